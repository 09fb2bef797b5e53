#!/usr/bin/env bash
set -euo pipefail
name=$1
mkdir -p "$name/src/$name" "$name/tests"
printf '[project]\nname = "%s"\nversion = "0.1.0"\n' "$name" >"$name/pyproject.toml"
echo "\"\"\"$name.\"\"\"" >"$name/src/$name/__init__.py"
echo "def test_import():
    import $name" >"$name/tests/test_$name.py"
find "$name" -type f | sort
