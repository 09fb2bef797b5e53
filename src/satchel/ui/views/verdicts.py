"""What could a skill do to you? The scan of every installed skill, kept by what it consists of."""

from __future__ import annotations

import os
import time
import weakref
from typing import TYPE_CHECKING, NamedTuple

from satchel._language import say
from satchel.errors import SatchelError, SettingsError
from satchel.library.locations import global_folder, user_folder
from satchel.retelling import retell
from satchel.ui.views.findings import MOODS, SHOWN, Group, Place, severity_words

if TYPE_CHECKING:
    from satchel.facade import Satchel
    from satchel.library import Snapshot
    from satchel.library.tool_shelf import ToolSnapshot
    from satchel.security import Finding, Report
    from satchel.skill.model import Skill
    from satchel.ui.views.jobs import Tell

    Reports = list[tuple[Skill, Report]]

MANY = 500
"""Skills from which on a scan begins only when somebody asks for it."""
_KEPT = 200_000
"""Reports that are remembered."""
_ORDER = ("block", "review", "note")
_FILES = 20


class Missed(NamedTuple):
    """Something that was not looked at."""

    name: str
    ref: str
    path: str
    reason: str


class Verdicts(NamedTuple):
    """What the scans say."""

    mood: str
    verdict: str
    """One sentence."""
    scanned: int
    clean: int
    review: int
    blocked: int
    incomplete: int
    groups: list[Group]
    """Findings by rule, worst first."""
    missed: list[Missed]
    more_missed: int
    accepted: int
    """Findings that somebody accepted."""
    yara: bool
    """Whether YARA looked too."""


class Scanner:
    """Scans skills; whoever did not change is not scanned again."""

    def __init__(self, satchel: Satchel) -> None:
        self._satchel = satchel
        self._known: dict[tuple[str, str, str], Report] = {}
        self._counted: tuple[weakref.ref[Snapshot], weakref.ref[ToolSnapshot], int] | None = None
        """The snapshots that were counted, and how many there were."""

    def count(self) -> int:
        """How many there are to scan; counted once for each state of the library."""
        library = self._satchel.library
        skills, tools = library.snapshot(), library.tools()
        known = self._counted
        if known is None or known[0]() is not skills or known[1]() is not tools:
            known = (weakref.ref(skills), weakref.ref(tools), len(self.subjects()))
            self._counted = known
        return known[2]

    def subjects(self) -> list[Skill]:
        """The skills that somebody put here, offered or not; not those that ship with Satchel."""
        every = self._satchel.library.every()
        kept = [one for one in every if one.source != "builtin" and not one.origin.remote]
        return list({one.base_dir: one for one in reversed(kept)}.values())[::-1]

    def run(self, tell: Tell) -> Reports:
        """Scan them all.

        Raises:
            SettingsError: an allow-list cannot be used.
        """
        skills = self.subjects()
        accepted = self._accepted()
        found: Reports = []
        for at, skill in enumerate(skills):
            tell(at, len(skills))
            found.append((skill, self._scan(skill, accepted)))
        tell(len(skills), len(skills))
        return found

    def _scan(self, skill: Skill, accepted: str) -> Report:
        from satchel.library.seal import tree_of
        from satchel.security import Report
        from satchel.skill.tree import seal

        try:
            key = (seal(tree_of(skill)).digest, skill.base_dir, accepted)
            known = self._known.get(key)
            if known is None:
                known = self._satchel.scan(skill)
                if len(self._known) >= _KEPT:
                    self._known.clear()
                self._known[key] = known
        except SettingsError:
            raise  # an allow-list that is wrong is wrong for every skill
        except (SatchelError, OSError) as exc:
            reason = exc.message if isinstance(exc, SatchelError) else exc.strerror or str(exc)
            return Report("incomplete", unscanned=((".", reason),))
        return known

    def _accepted(self) -> str:
        """Another text as soon as an allow-list changed, or a day is over: allowances end."""
        from satchel.security.allow import FILE

        settings = self._satchel.settings
        folders = [os.path.dirname(settings.paths.config)]
        both = user_folder(settings), global_folder()
        folders += [os.path.dirname(one) for one in both if one]
        marks: list[object] = [time.strftime("%Y-%m-%d")]
        for folder in folders:
            try:
                info = os.stat(os.path.join(folder, FILE))
                marks.append((info.st_size, info.st_mtime_ns))
            except OSError:
                marks.append(None)
        return repr(marks)


def verdicts(reports: Reports) -> Verdicts:
    """What was found, for people."""
    counts: dict[str, int] = {}
    by_rule: dict[str, list[tuple[Skill, Finding]]] = {}
    missed: list[Missed] = []
    unseen = 0
    for skill, report in reports:
        counts[report.verdict] = counts.get(report.verdict, 0) + 1
        for finding in report.findings:
            by_rule.setdefault(finding.rule, []).append((skill, finding))
        unseen += len(report.unscanned)
        room = _FILES - len(missed)
        for path, reason in report.unscanned[: max(room, 0)]:
            missed.append(Missed(skill.name, skill.ref, path, retell(say(reason))))
    groups = [_group(rule, rows) for rule, rows in by_rule.items()]
    worst = [MOODS[severity] for severity in _ORDER]
    groups.sort(key=lambda group: (worst.index(group.mood), -group.number, group.key))
    blocked, review = counts.get("blocked", 0), counts.get("review", 0)
    incomplete = counts.get("incomplete", 0)
    return Verdicts(
        "bad" if blocked else "warn" if review or incomplete else "good",
        _verdict(len(reports), blocked, review, incomplete),
        len(reports),
        counts.get("no findings", 0),
        review,
        blocked,
        incomplete,
        groups,
        missed,
        unseen - len(missed),
        sum(len(report.allowed) for _, report in reports),
        any("yara" in report.engines for _, report in reports),
    )


def _group(rule: str, rows: list[tuple[Skill, Finding]]) -> Group:
    about = rows[0][1].about
    places = [
        Place(
            f"{one.path}:{one.line}" if one.line else one.path, skill.ref, skill.name, one.evidence
        )
        for skill, one in rows[:SHOWN]
    ]
    return Group(
        rule,
        severity_words()[about.severity],
        MOODS[about.severity],
        len(rows),
        say(about.what),
        say(about.fix),
        places,
        say(about.why),
    )


def _verdict(scanned: int, blocked: int, review: int, incomplete: int) -> str:
    if not scanned:
        return say("There is no skill of yours to scan")
    if blocked == 1:
        return say("One skill does what no skill should: look at it before anything runs")
    if blocked:
        return say(
            "{count} skills do what no skill should: look at them before anything runs",
            count=f"{blocked:,}",
        )
    if review:
        return say("Nothing is blocked; {count} are worth a look", count=f"{review:,}")
    if incomplete:
        return say("Nothing was found, but not everything could be looked at")
    return say("Nothing was found. That is no promise, but a good sign")
