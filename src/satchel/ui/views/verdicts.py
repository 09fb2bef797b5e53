"""The scan of every installed skill, grouped by rule."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from satchel._language import render, say
from satchel.errors import SatchelError, SettingsError
from satchel.ui.views.findings import MOODS, SHOWN, Group, Place, severity_words

if TYPE_CHECKING:
    from satchel.facade import Satchel
    from satchel.security import Finding, Report
    from satchel.skill.model import Skill
    from satchel.ui.views.jobs import Tell

    Reports = list[tuple[Skill, Report]]

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


def scan_all(satchel: Satchel, tell: Tell) -> Reports:
    """Scan the installed skills, offered or not, without those that ship with Satchel.

    Raises:
        SettingsError: an allow-list cannot be used.
    """
    every = satchel.library.every()
    kept = [one for one in every if one.source != "builtin" and not one.origin.remote]
    skills = list({one.base_dir: one for one in reversed(kept)}.values())[::-1]
    found: Reports = []
    for at, skill in enumerate(skills):
        tell(at, len(skills))
        found.append((skill, _scan(satchel, skill)))
    tell(len(skills), len(skills))
    return found


def _scan(satchel: Satchel, skill: Skill) -> Report:
    from satchel.security import Report

    library = satchel.library
    try:
        report = library.seals.scan(skill)
        if report.verdict == "blocked" and library.trust.accepts(library.seals.digest(skill)):
            return report._replace(verdict="review")  # its risk was accepted: it is used
        return report
    except SettingsError:
        raise  # an allow-list that is wrong is wrong for every skill
    except (SatchelError, OSError) as exc:
        reason = exc.message if isinstance(exc, SatchelError) else exc.strerror or str(exc)
        return Report("incomplete", unscanned=((".", reason),))


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
            missed.append(Missed(skill.name, skill.ref, path, render(reason)))
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
        return say("The scan blocks 1 skill: it is not offered")
    if blocked:
        return say("The scan blocks {count} skills: they are not offered", count=f"{blocked:,}")
    if review:
        return say("Nothing is blocked; {count} are worth a look", count=f"{review:,}")
    if incomplete:
        return say("Nothing was found, but not everything could be looked at")
    return say("Nothing was found. That is no promise, but a good sign")
