"""What does a scan say? Findings, what the skill can reach, and what was not looked at.

There are four verdicts, and none of them is a promise. `blocked` holds whatever was not looked at;
otherwise a scan that could not look at everything is `incomplete`, and its findings are shown too.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from urllib.parse import quote

from satchel.security.rules import OWASP, RULES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from satchel.security.rules import Rule, Severity

SECONDS = 10.0
"""For one skill."""


class OutOfTime(Exception):
    """The scan of a skill has taken long enough."""


class Budget:
    """A deadline that is looked at between two pieces of work."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self._end = time.monotonic() + seconds

    def check(self) -> None:
        """Go on, or raise `OutOfTime`."""
        if time.monotonic() > self._end:
            raise OutOfTime


Verdict = Literal["blocked", "review", "no findings", "incomplete"]


class Finding(NamedTuple):
    """One thing that a rule found."""

    rule: str
    path: str
    """The file, relative to the skill's folder."""
    line: int = 0
    """1-based; 0 when the finding is about the whole file."""
    evidence: str = ""
    """A short piece of the file. Hostile text: clean it before a terminal sees it."""

    @property
    def about(self) -> Rule:
        """The rule's severity and sentences."""
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


class Allowed(NamedTuple):
    """A finding that somebody accepted."""

    finding: Finding
    reason: str
    expires: str
    """ISO date: the last day it counts."""


class Inventory(NamedTuple):
    """What a skill brings and reaches; compared at an update."""

    programs: tuple[str, ...] = ()
    """Files that can be run."""
    hosts: tuple[str, ...] = ()
    """Hosts named in programs and in commands."""
    secrets: tuple[str, ...] = ()
    """Environment variables and credential files that its code reads."""


class Report(NamedTuple):
    """What one scan of one skill found."""

    verdict: Verdict
    findings: tuple[Finding, ...] = ()
    """Worst first, then by file and line."""
    allowed: tuple[Allowed, ...] = ()
    """Found, and accepted by an allow-list."""
    unscanned: tuple[tuple[str, str], ...] = ()
    """(path, why it was not looked at)."""
    inventory: Inventory = Inventory()
    engines: tuple[str, ...] = ()
    """What looked: `text`, `python`, … and `yara` when it is installed."""
    expired: tuple[str, ...] = ()
    """Allowances that would have matched, but are past their day."""

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


def judge(findings: Iterable[Finding], unscanned: Iterable[tuple[str, str]]) -> Verdict:
    """The verdict: blocked, else incomplete, else review, else no findings."""
    found = {finding.severity for finding in findings}
    if "block" in found:
        return "blocked"
    if any(True for _ in unscanned):
        return "incomplete"
    return "review" if "review" in found else "no findings"


_LEVELS = {"block": "error", "review": "warning", "note": "note"}
_SCORES = {"block": "9.0", "review": "5.0", "note": "2.0"}
"""By which services sort security findings."""
SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def to_sarif(reports: Mapping[str, Report], version: str) -> dict[str, Any]:
    """One run over several skills.

    Args:
        reports: Folder of each skill, relative to where the scan began -> its report.
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


def _rule(rule: Rule) -> dict[str, Any]:
    classes = [f"{name} {OWASP[name]}" for name in rule.owasp if name in OWASP]
    return {
        "id": rule.id,
        "shortDescription": {"text": rule.what},
        "fullDescription": {"text": rule.why},
        "help": {"text": rule.fix},
        "defaultConfiguration": {"level": _LEVELS[rule.severity]},
        "properties": {"tags": ["security", *classes], "security-severity": _SCORES[rule.severity]},
    }


def _results(folder: str, report: Report, places: Mapping[str, int]) -> list[dict[str, Any]]:
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
    """Evidence without characters that a viewer would act on."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)
