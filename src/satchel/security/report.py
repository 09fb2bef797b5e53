"""What does a scan say? Findings, what the skill can reach, and what was not looked at.

There are four verdicts, and none of them is a promise. `blocked` holds whatever was not looked at;
otherwise a scan that could not look at everything is `incomplete`, and its findings are shown too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from satchel.security.rules import RULES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from satchel.security.rules import Rule, Severity

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
