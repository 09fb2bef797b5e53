#!/usr/bin/env bash
# rotate.sh FILE COUNT
set -eu
for ((i = $2; i > 1; i--)); do
    [ ! -e "$1.$((i - 1))" ] || mv "$1.$((i - 1))" "$1.$i"
done
mv "$1" "$1.1"
: >"$1"
