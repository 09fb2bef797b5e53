#!/bin/sh
grep -rn --include='*.py' 'TODO' . | sed 's/^\.\///' | sort
