#!/bin/sh
# For a pull request: every skill passes the checks and the scan, and can be released.
set -eu
for skill in skills/*/*/; do
    satchel check "$skill"
    satchel scan "$skill"
done
satchel hub build "$HUB" skills --dry-run
