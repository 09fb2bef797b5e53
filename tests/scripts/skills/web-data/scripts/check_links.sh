#!/usr/bin/env bash
# Prints the status of every address in a file.
grep -oE 'https?://[^ )>"]+' "$1" | sort -u | while read -r address; do
    python3 - "$address" <<'PY'
import sys
import urllib.error
import urllib.request

try:
    status = urllib.request.urlopen(sys.argv[1], timeout=5).status
except urllib.error.HTTPError as error:
    status = error.code
except OSError as error:
    status = f"unreachable ({error})"
print(status, sys.argv[1])
PY
done
