#!/bin/sh
# For main, and once a day: release what changed, and renew the signature of the hub.
set -eu
key=$(mktemp)
trap 'rm -f "$key"' EXIT
printf '%s\n' "$HUB_KEY" >"$key"
satchel hub build "$HUB" skills --key "$key"
