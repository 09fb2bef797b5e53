#!/usr/bin/env bash
set -euo pipefail
echo "# Changes since ${1:?usage: changelog.sh TAG}"
git log --format='- %s (%an)' "$1"..HEAD
