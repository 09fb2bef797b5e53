"""Checks rules about files that ruff and pyright do not check.

1. No Python file is longer than 750 lines.
2. No file names a package registry, an index address or the origin of a package. Users of Satchel
   decide where packages come from; hashes prove that they are the right ones.

Example:
    python scripts/gates.py

Exits 1 and lists every finding when a rule is broken.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import NamedTuple

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MAX_LINES = 750


class Finding(NamedTuple):
    """One broken rule in one place."""

    path: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message}"


def _registry_pattern() -> re.Pattern[str]:
    """The forbidden words, put together here so that this file does not contain them."""
    hosts = (
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("npmjs", "org"),
        ("npmjs", "com"),
        ("yarnpkg", "com"),
        ("rubygems", "org"),
        ("proxy.golang", "org"),
        ("crates", "io"),
        ("conda", "anaconda.org"),
    )
    names = "|".join(re.escape(f"{name}.{ending}") for name, ending in hosts)
    dashes = "-" * 2
    options = f"(?<![\\w-]){dashes}(?:extra-|default-)?index(?:-url)?(?=[\\s=])"
    links = f"(?<![\\w-]){dashes}find-links\\b"
    keys = r"(?m:^\s*(?:extra-)?index[-_]url\s*=)"
    fetched = '"(?:resolved)"\\s*:\\s*"'
    return re.compile(f"{names}|{options}|{links}|{keys}|{fetched}", re.IGNORECASE)


def project_files(root: str) -> list[str]:
    """Every file that is tracked or about to be, relative to `root`."""
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=root,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    paths = (path for path in listing.split("\0") if path)
    return sorted(path for path in paths if os.path.isfile(os.path.join(root, path)))


def check_length(path: str, text: str, limit: int = MAX_LINES) -> list[Finding]:
    """Find Python files that are too long."""
    lines = len(text.splitlines())
    if path.endswith(".py") and lines > limit:
        return [Finding(path, limit + 1, f"{lines} lines, more than {limit}: split it by noun")]
    return []


def check_registries(path: str, text: str) -> list[Finding]:
    """Find names of package registries."""
    return [
        Finding(
            path,
            text.count("\n", 0, match.start()) + 1,
            f"names a package source: `{match.group().strip()}`",
        )
        for match in _registry_pattern().finditer(text)
    ]


def check_all(root: str) -> list[Finding]:
    """Every finding in every file of the project. Binary files are left out."""
    findings: list[Finding] = []
    for path in project_files(root):
        with open(os.path.join(root, path), "rb") as file:
            raw = file.read()
        if b"\0" in raw:
            continue
        text = raw.decode("utf-8", "replace")
        findings += check_length(path, text)
        findings += check_registries(path, text)
    return findings


def main() -> int:
    """Print findings, if any."""
    findings = check_all(ROOT)
    for finding in findings:
        print(finding)
    if findings:
        print(f"\nerror: {len(findings)} findings", file=sys.stderr)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
