#!/bin/bash
git log --format=%an | sort | uniq -c | sort -rn | awk '{ n = $1; $1 = ""; print substr($0, 2) "\t" n }'
