"""What does a skill bring and reach? Programs, hosts and secrets, to compare at an update."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from satchel.security.flows import is_secret
from satchel.security.regions import PROGRAMS
from satchel.security.report import Inventory

if TYPE_CHECKING:
    from satchel.security.regions import Region

_HOST = re.compile(r"://(?:[^\s/@'\"<>]{1,80}@)?([A-Za-z0-9][A-Za-z0-9.-]{2,250})")
_VARIABLES = (
    re.compile(r"process\.env\.([A-Za-z_]\w{1,60})"),
    re.compile(r"process\.env\[\s*['\"]([A-Za-z_]\w{1,60})"),
    re.compile(r"\$(?:env:)?\{?([A-Z][A-Z0-9_]{2,60})\b"),
    re.compile(r"(?:environ(?:\.get)?|getenv|ENV(?:\.fetch)?)\s*[\[(]\s*['\"]([A-Za-z_]\w{1,60})"),
)
_MOST = 500
"""Hosts or secrets of one skill that are listed."""


class Collector:
    """Gathers while a skill is read."""

    def __init__(self) -> None:
        self.programs: set[str] = set()
        self.hosts: set[str] = set()
        self.secrets: set[str] = set()

    def look(self, region: Region) -> None:
        """Take note of what a program or a command names."""
        if region.kind not in PROGRAMS and region.kind not in {"plain", "decoded"}:
            return
        text = region.text
        if "://" in text and len(self.hosts) < _MOST:
            self.hosts.update(found.rstrip(".").lower() for found in _HOST.findall(text))
        if region.kind != "plain" and ("env" in text.lower() or "$" in text):
            for pattern in _VARIABLES:
                self.secrets.update(name for name in pattern.findall(text) if is_secret(name))

    def result(self) -> Inventory:
        """Everything, sorted."""
        return Inventory(
            tuple(sorted(self.programs)),
            tuple(sorted(self.hosts)[:_MOST]),
            tuple(sorted(self.secrets)[:_MOST]),
        )
