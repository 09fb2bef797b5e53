"""Scan reports: findings, inventory, verdict.

The verdict `blocked` takes precedence over `incomplete`, which means that a file was not scanned
that is no text. Text that was not scanned is a blocking finding, of the rule `not-examined`. No
verdict is a guarantee.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

from satchel.i18n import pack_messages, unpack_messages
from satchel.security.rules import RULES

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from satchel.security.rules import ScanRule, Severity

MIN_SCAN_TIMEOUT_S = 10.0
"""Processor time per skill, and as much again for each 8 MiB of it."""
_MAX_SMALL_BYTES = 8 << 20
_CHECK_INTERVAL_S = 0.01
MAX_EVIDENCE_CHARS = 160
"""Of a finding."""


class OutOfTime(Exception):
    """The scan of a skill exceeded its time budget."""


class TimeBudget:
    """A limit of this thread's processor time, checked between two pieces of work."""

    def __init__(self, size: int = 0) -> None:
        """Start the budget of a skill.

        Args:
            size: The bytes of its files.
        """
        seconds = MIN_SCAN_TIMEOUT_S * (1 + size / _MAX_SMALL_BYTES)
        self._end = time.thread_time() + seconds
        self._next_check = 0.0

    def check(self) -> None:
        """Raise `OutOfTime` after the limit."""
        now = time.monotonic()
        if now < self._next_check:
            return
        self._next_check = now + _CHECK_INTERVAL_S  # reading the clock of the thread is slower
        if time.thread_time() > self._end:
            raise OutOfTime


Verdict = Literal["blocked", "review", "no findings", "incomplete"]


class Finding(NamedTuple):
    """A match of a rule."""

    rule: str
    """The id of the rule; the page on scan rules lists them."""
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
        """Return the values for JSON."""
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


class TextSource(NamedTuple):
    """The text of a file, for findings about positions in it."""

    path: str
    text: str

    def finding(self, rule: str, position: int, evidence: str) -> Finding:
        """Return a finding for the line of a position."""
        line = self.text.count("\n", 0, position) + 1
        return Finding(rule, self.path, line, evidence[:MAX_EVIDENCE_CHARS])


class Inventory(NamedTuple):
    """Programs, hosts and secrets of a skill; compared at an update."""

    programs: tuple[str, ...] = ()
    """Files that can be run."""
    hosts: tuple[str, ...] = ()
    """Hosts in programs and commands."""
    secrets: tuple[str, ...] = ()
    """Environment variables and credential files that its code reads."""
    requests: tuple[str, ...] = ()
    """Files with the word `allowed-tools`: a SKILL.md without it requests no tools."""


class ScanReport(NamedTuple):
    """The result of a scan of one skill.

    Example:
        from satchel import Satchel

        satchel = Satchel.for_project(".")
        report = satchel.scan(satchel.list_skills()[0])
        for finding in report.findings:
            print(finding.severity, finding.rule, finding.path, finding.line)
    """

    verdict: Verdict
    """Whether the skill may be used as it is."""
    findings: tuple[Finding, ...] = ()
    """Worst first, then by file and line."""
    unscanned: tuple[tuple[str, str], ...] = ()
    """(path, reason)."""
    inventory: Inventory = Inventory()
    engines: tuple[str, ...] = ()
    """`text`, `python`, …: what scanned it."""

    @property
    def reasons(self) -> tuple[str, ...]:
        """The rules that ask for a review, and the files that were not scanned."""
        rules = [finding.rule for finding in self.findings if finding.severity == "review"]
        return tuple(dict.fromkeys((*rules, *(path for path, _ in self.unscanned))))

    def without(self, rules: Collection[str]) -> ScanReport:
        """The report without the findings of some rules.

        Args:
            rules: The ids of the rules to leave out.
        """
        findings = tuple(finding for finding in self.findings if finding.rule not in rules)
        return self._replace(verdict=verdict_for(findings, self.unscanned), findings=findings)

    def to_text(self) -> str:
        """Return one line of JSON, for `from_text`."""
        return json.dumps(pack_messages(self._asdict()), separators=(",", ":"))

    @classmethod
    def from_text(cls, text: str) -> Self | None:
        """Read the report of a line; None when it is damaged."""
        try:
            fields = unpack_messages(json.loads(text))
            return cls(
                verdict=fields["verdict"],
                findings=tuple(Finding(*finding) for finding in fields["findings"]),
                unscanned=tuple((path, reason) for path, reason in fields["unscanned"]),
                inventory=Inventory(*map(tuple, fields["inventory"])),
                engines=tuple(fields["engines"]),
            )
        except (ValueError, TypeError, KeyError):
            return None

    def to_dict(self) -> dict[str, Any]:
        """Return the values for JSON."""
        return {
            "verdict": self.verdict,
            "findings": [finding.to_dict() for finding in self.findings],
            "unscanned": [{"path": path, "reason": reason} for path, reason in self.unscanned],
            "inventory": {name: list(values) for name, values in self.inventory._asdict().items()},
            "engines": list(self.engines),
        }


def verdict_for(findings: Iterable[Finding], unscanned: Iterable[tuple[str, str]]) -> Verdict:
    """Return the verdict: blocked, else incomplete, else review, else no findings."""
    severities = {finding.severity for finding in findings}
    if "block" in severities:
        return "blocked"
    if any(True for _ in unscanned):
        return "incomplete"
    return "review" if "review" in severities else "no findings"
