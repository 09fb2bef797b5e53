#!/usr/bin/env bash
set -o pipefail
grep -E 'ERROR|FATAL' "$1" | awk '{ count[$3]++ } END { for (name in count) print count[name], name }' | sort -rn
