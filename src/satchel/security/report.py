"""Scan reports: findings, inventory, verdict; export as SARIF.

The verdict `blocked` takes precedence over `incomplete`, which means that a part was not scanned.
No verdict is a guarantee.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from urllib.parse import quote

from satchel._unicode import replace_unprintable
from satchel.security.rules import OWASP, RULES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from satchel.security.rules import ScanRule, Severity

SCAN_TIMEOUT_S = 10.0
"""Per skill."""


class OutOfTime(Exception):
    """The scan of a skill exceeded its time budget."""


class TimeBudget:
    """A deadline that is checked between two pieces of work."""

    def __init__(self, seconds: float = SCAN_TIMEOUT_S) -> None:
        self._end = time.monotonic() + seconds

    def check(self) -> None:
        """Raise `OutOfTime` after the deadline."""
        if time.monotonic() > self._end:
            raise OutOfTime


Verdict = Literal["blocked", "review", "no findings", "incomplete"]


class Finding(NamedTuple):
    """A match of a rule."""

    rule: str
    path: str
    """The file, relative to the skill's folder."""
    line: int = 0
    """1-based; 0 when the finding is about the whole file."""
    evidence: str = ""
    """A short excerpt of the file. It is untrusted: clean it before printing."""

    @property
    def about(self) -> ScanRule:
        """The rule."""
        return RULES[self.rule]

    @property
    def severity(self) -> Severity:
        """`block`, `review` or `note`."""
        return self.about.severity

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        about = self.about
        return {
            "rule": self.rule,
            "severity": about.severity,
            "path": self.path,
            "line": self.line,
            "evidence": self.evidence,
            "what": about.what,
            "fix": about.fix,
            "owasp": list(about.owasp),
        }


class AllowedFinding(NamedTuple):
    """A finding that an allowlist accepts."""

    finding: Finding
    reason: str
    expires: str
    """ISO date: the last day on which it is accepted."""


class Inventory(NamedTuple):
    """Programs, hosts and secrets of a skill; compared at an update."""

    programs: tuple[str, ...] = ()
    """Files that can be run."""
    hosts: tuple[str, ...] = ()
    """Hosts in programs and commands."""
    secrets: tuple[str, ...] = ()
    """Environment variables and credential files that its code reads."""


class ScanReport(NamedTuple):
    """The result of a scan of one skill."""

    verdict: Verdict
    findings: tuple[Finding, ...] = ()
    """Worst first, then by file and line."""
    allowed: tuple[AllowedFinding, ...] = ()
    """Findings that an allowlist accepts."""
    unscanned: tuple[tuple[str, str], ...] = ()
    """(path, reason)."""
    inventory: Inventory = Inventory()
    engines: tuple[str, ...] = ()
    """`text`, `python`, … and `yara` when it is installed."""
    expired: tuple[str, ...] = ()
    """Allowances that match but are expired."""

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "verdict": self.verdict,
            "findings": [finding.to_dict() for finding in self.findings],
            "allowed": [
                {**one.finding.to_dict(), "reason": one.reason, "expires": one.expires}
                for one in self.allowed
            ],
            "expired": list(self.expired),
            "unscanned": [{"path": path, "reason": reason} for path, reason in self.unscanned],
            "inventory": {name: list(values) for name, values in self.inventory._asdict().items()},
            "engines": list(self.engines),
        }


def verdict_for(findings: Iterable[Finding], unscanned: Iterable[tuple[str, str]]) -> Verdict:
    """The verdict: blocked, else incomplete, else review, else no findings."""
    found = {finding.severity for finding in findings}
    if "block" in found:
        return "blocked"
    if any(True for _ in unscanned):
        return "incomplete"
    return "review" if "review" in found else "no findings"


_LEVELS = {"block": "error", "review": "warning", "note": "note"}
_SCORES = {"block": "9.0", "review": "5.0", "note": "2.0"}
"""SARIF's `security-severity`."""
SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def to_sarif(reports: Mapping[str, ScanReport], version: str) -> dict[str, Any]:
    """A SARIF log with one run over several skills.

    Args:
        reports: Folder of each skill, relative to the root of the scan -> its report.
        version: Of Satchel.
    """
    used = {one.rule for report in reports.values() for one in report.findings}
    used |= {one.finding.rule for report in reports.values() for one in report.allowed}
    rules = [RULES[name] for name in sorted(used)]
    places = {rule.id: at for at, rule in enumerate(rules)}
    results = [
        result for folder, report in reports.items() for result in _results(folder, report, places)
    ]
    missing = [
        _notice(folder, path, reason)
        for folder, report in reports.items()
        for path, reason in report.unscanned
    ]
    return {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "satchel",
                        "version": version,
                        "semanticVersion": version,
                        "rules": [_rule(rule) for rule in rules],
                    }
                },
                "invocations": [
                    {"executionSuccessful": True, "toolExecutionNotifications": missing}
                ],
                "results": results,
                "columnKind": "unicodeCodePoints",
            }
        ],
    }


def _rule(rule: ScanRule) -> dict[str, Any]:
    classes = [f"{name} {OWASP[name]}" for name in rule.owasp if name in OWASP]
    return {
        "id": rule.id,
        "shortDescription": {"text": rule.what},
        "help": {"text": rule.fix},
        "defaultConfiguration": {"level": _LEVELS[rule.severity]},
        "properties": {"tags": ["security", *classes], "security-severity": _SCORES[rule.severity]},
    }


def _results(folder: str, report: ScanReport, places: Mapping[str, int]) -> list[dict[str, Any]]:
    results = [_result(folder, one, places) for one in report.findings]
    for one in report.allowed:
        row = _result(folder, one.finding, places)
        why = f"{one.reason} (until {one.expires})"
        row["suppressions"] = [{"kind": "external", "status": "accepted", "justification": why}]
        results.append(row)
    return results


def _result(folder: str, finding: Finding, places: Mapping[str, int]) -> dict[str, Any]:
    about = finding.about
    text = f"{about.what}. {about.fix}."
    location: dict[str, Any] = {"artifactLocation": {"uri": _uri(folder, finding.path)}}
    if finding.line:
        region: dict[str, Any] = {"startLine": finding.line}
        if finding.evidence:
            region["snippet"] = {"text": _plain(finding.evidence)}
        location["region"] = region
    return {
        "ruleId": finding.rule,
        "ruleIndex": places[finding.rule],
        "level": _LEVELS[about.severity],
        "message": {"text": text},
        "locations": [{"physicalLocation": location}],
    }


def _notice(folder: str, path: str, reason: str) -> dict[str, Any]:
    return {
        "level": "warning",
        "message": {"text": f"Not looked at: {reason}"},
        "locations": [{"physicalLocation": {"artifactLocation": {"uri": _uri(folder, path)}}}],
    }


def _uri(folder: str, path: str) -> str:
    whole = f"{folder}/{path}" if folder not in {"", "."} else path
    return quote(whole.replace("\\", "/"), errors="surrogatepass")


def _plain(text: str) -> str:
    """Evidence without control and invisible characters."""
    return replace_unprintable(text, "\N{REPLACEMENT CHARACTER}")
