"""The Health page: problems, scan and use of one library.

The problems and the scan are found by a thread (`jobs`) and kept until the library changes; use is
counted on each request.
"""

from __future__ import annotations

import threading
from collections import Counter
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from satchel.errors import SatchelError, SettingsError
from satchel.i18n import render, say
from satchel.presentation.findings import (
    MAX_PLACES_SHOWN,
    TONES,
    FindingGroup,
    FindingPlace,
    generic_text,
    group_findings,
    shown_path,
    skill_at,
    unique_problems,
    unscanned_report,
)
from satchel.presentation.jobs import BackgroundJob, JobState
from satchel.presentation.skill_index import count_untrusted, refresh_if_small
from satchel.presentation.wording import counted
from satchel.skill.problems import PROBLEMS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import date

    from satchel.presentation.jobs import ReportProgress
    from satchel.satchel import Satchel
    from satchel.security import ScanReport
    from satchel.skill.model import Skill
    from satchel.skill.problems import Problem

    Reports = list[tuple[Skill, ScanReport]]


_SCAN_ORDER = ("block", "review", "note")
_MAX_UNSCANNED_SHOWN = 20


class UnscannedShown(NamedTuple):
    """A file that was not scanned."""

    name: str
    ref: str
    path: str
    reason: str


class ScanVerdicts(NamedTuple):
    """The result of all scans."""

    mood: str
    verdict: str
    scanned: int
    clean: int
    review: int
    blocked: int
    incomplete: int
    groups: list[FindingGroup]
    """Findings by rule, worst first."""
    missed: list[UnscannedShown]
    more_missed: int
    accepted: int
    yara: bool


def scan_all(satchel: Satchel, report: ReportProgress) -> Reports:
    """Scan the installed skills, offered or not, without those that ship with Satchel.

    Raises:
        SettingsError: an allow-list cannot be used.
    """
    every = satchel.library.every()
    kept = [one for one in every if one.source != "builtin" and not one.origin.remote]
    skills = list({one.base_dir: one for one in reversed(kept)}.values())[::-1]
    found: Reports = []
    for at, skill in enumerate(skills):
        report(at, len(skills))
        found.append((skill, _scan(satchel, skill)))
    report(len(skills), len(skills))
    return found


def _scan(satchel: Satchel, skill: Skill) -> ScanReport:
    library = satchel.library
    try:
        report = library.seals.scan(skill)
        if report.verdict == "blocked" and library.trust.accepts(library.seals.digest(skill)):
            return report._replace(verdict="review")  # its risk was accepted, so it is used
        return report
    except SettingsError:
        raise  # an invalid allow-list affects every skill
    except (SatchelError, OSError) as exc:
        return unscanned_report(exc)


def summarise_scans(reports: Reports) -> ScanVerdicts:
    """Summarise scan reports."""
    counts = Counter(report.verdict for _, report in reports)
    missed: list[UnscannedShown] = []
    unseen = 0
    for skill, report in reports:
        unseen += len(report.unscanned)
        room = _MAX_UNSCANNED_SHOWN - len(missed)
        for path, reason in report.unscanned[: max(room, 0)]:
            missed.append(UnscannedShown(skill.name, skill.ref, path, render(reason)))
    groups = group_findings((skill, one) for skill, report in reports for one in report.findings)
    worst = [TONES[severity] for severity in _SCAN_ORDER]
    groups.sort(key=lambda group: (worst.index(group.mood), -group.number, group.key))
    blocked, review, incomplete = (counts[one] for one in ("blocked", "review", "incomplete"))
    return ScanVerdicts(
        "bad" if blocked else "warn" if review or incomplete else "good",
        _scan_verdict(len(reports), blocked, review, incomplete),
        len(reports),
        counts["no findings"],
        review,
        blocked,
        incomplete,
        groups,
        missed,
        unseen - len(missed),
        sum(len(report.allowed) for _, report in reports),
        any("yara" in report.engines for _, report in reports),
    )


def _scan_verdict(scanned: int, blocked: int, review: int, incomplete: int) -> str:
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


# --- use ----------------------------------------------------------------------------------
# The trace is read again only after it changed. The names of a catalogue are recorded once per
# catalogue, so offers are counted by catalogue and multiplied at the end.

PERIOD_DAYS = 30
MAX_USED_SHOWN = 12
MAX_UNUSED_SHOWN = 50
KINDS = ("selected", "loaded", "ran", "failed")
"""Trace event kinds that are counted."""


class UsageTally(NamedTuple):
    """Counts of one period."""

    offers: int
    by_skill: dict[str, Counter[str]]
    """Kind -> skill -> count."""
    offered: Counter[str]
    """Skill -> number of catalogues that listed it."""
    found: frozenset[str]
    """Skills found by a model's search."""


class ScanLine(NamedTuple):
    """The counts of one skill."""

    name: str
    ref: str
    """Empty when it is no longer installed."""
    offered: int
    counts: tuple[int, ...]
    """In the order of `KINDS`."""


class UnusedSkill(NamedTuple):
    """A skill that was offered and never used."""

    name: str
    ref: str
    offered: int
    searched: bool
    """A model's search found it, and it was still not loaded."""


class UsageShown(NamedTuple):
    """The use of skills in the period."""

    mood: str
    verdict: str
    empty: bool
    recording: bool
    top: list[ScanLine]
    never: list[UnusedSkill]
    never_count: int
    words: tuple[str, ...]
    """Labels in the order of `KINDS`."""


class TraceCounter:
    """Counts trace events and caches the result until the trace changes."""

    def __init__(self, satchel: Satchel) -> None:
        self._satchel = satchel
        self._lock = threading.Lock()
        self._seen: object = None
        self._tally: UsageTally | None = None

    def tally(self) -> UsageTally:
        """Return the counts of the last `PERIOD_DAYS` days."""
        today = datetime.now().astimezone().date()
        with self._lock:
            seen = (self._satchel.trace.mark(), today)
            if self._tally is None or seen != self._seen:
                self._tally = count_events(self._satchel.trace.history(), today)
                self._seen = seen
            return self._tally


def count_events(rows: Iterable[dict[str, Any]], today: date) -> UsageTally:
    """Count the rows of a trace, newest first.

    Args:
        rows: From `Trace.history`.
        today: The last day of the period.
    """
    first = today - timedelta(days=PERIOD_DAYS - 1)
    starts = datetime.combine(first, datetime.min.time()).timestamp()
    by_digest: Counter[str] = Counter()
    names: dict[str, list[str]] = {}
    by_skill: dict[str, Counter[str]] = {kind: Counter() for kind in KINDS}
    found: set[str] = set()
    for row in rows:
        moment, kind = row.get("t"), row.get("kind")
        if not isinstance(moment, int | float) or not 0 <= moment < 1e11:
            continue
        if kind == "offered":
            digest = str(row.get("digest", ""))
            if "full" in row and (moment >= starts or digest in by_digest):
                # Older rows count too: the names of a catalogue are recorded only once.
                names.setdefault(
                    digest,
                    [one for key in ("full", "shortened", "named") for one in _names(row.get(key))],
                )
            if moment >= starts:
                by_digest[digest] += 1
            continue
        if moment < starts:
            continue
        skills = _names(row.get("skills"))
        if kind == "searched":
            found.update(skills)
        if kind not in by_skill or (kind == "ran" and row.get("ended") != "well"):
            continue
        by_skill[kind].update(dict.fromkeys(skills, 1))
    offered: Counter[str] = Counter()
    for digest, times in by_digest.items():
        for name in names.get(digest, ()):
            offered[name] += times
    return UsageTally(by_digest.total(), by_skill, offered, frozenset(found))


def _names(value: Any) -> list[str]:
    if not isinstance(value, list):
        return []
    return [one for one in cast("list[Any]", value) if isinstance(one, str)]


def usage_of(satchel: Satchel, tally: UsageTally) -> UsageShown:
    """Return the most used skills, and those that were never used."""
    happened = sum(tally.by_skill[kind].total() for kind in KINDS)
    silent = _unused(satchel, tally)
    mood, verdict = _use_verdict(tally, happened, len(silent))
    return UsageShown(
        mood,
        verdict,
        not happened and not tally.offers,
        satchel.trace.enabled,
        _top(satchel, tally),
        silent[:MAX_UNUSED_SHOWN],
        len(silent),
        kind_words(),
    )


def kind_words() -> tuple[str, ...]:
    """Return the labels of `KINDS`."""
    return (say("chosen"), say("loaded"), say("ran well"), say("failed"))


def _unused(satchel: Satchel, tally: UsageTally) -> list[UnusedSkill]:
    """Offered, installed and unused skills; built-in ones last."""
    used = {name for kind in ("selected", "loaded", "ran") for name in tally.by_skill[kind]}
    snapshot = satchel.library.snapshot()
    rows: list[tuple[bool, UnusedSkill]] = []
    for name, times in tally.offered.items():
        skill = snapshot.get(name) if name not in used else None
        if skill is not None:
            one = UnusedSkill(name, skill.ref, times, name in tally.found)
            rows.append((skill.source == "builtin", one))
    rows.sort(key=lambda row: (row[0], -row[1].offered, row[1].name))
    return [one for _, one in rows]


def _top(satchel: Satchel, tally: UsageTally) -> list[ScanLine]:
    total: Counter[str] = Counter()
    for kind in KINDS:
        total.update(tally.by_skill[kind])
    best = sorted(total, key=lambda name: (-total[name], name))[:MAX_USED_SHOWN]
    snapshot = satchel.library.snapshot()
    lines: list[ScanLine] = []
    for name in best:
        # A tool skill is offered by its tools and is not in the catalogue.
        skill = snapshot.get(name) or next(iter(satchel.library.find(name)), None)
        counts = tuple(tally.by_skill[kind][name] for kind in KINDS)
        ref = skill.ref if skill is not None else ""
        lines.append(ScanLine(name, ref, tally.offered[name], counts))
    return lines


def _use_verdict(tally: UsageTally, happened: int, silent: int) -> tuple[str, str]:
    if not happened and not tally.offers:
        return "none", say("No agent used these skills in the last {days} days", days=PERIOD_DAYS)
    if silent:
        words = (
            say("One skill was offered and never used")
            if silent == 1
            else say("{count} skills were offered and never used", count=f"{silent:,}")
        )
        return "warn", words
    if not tally.offered:
        return "none", say(
            "Skills were used in the last {days} days; none was offered", days=PERIOD_DAYS
        )
    return "good", say("Every skill that was offered was used")


_ORDER = ("error", "warning", "note")


class TruncatedSkills(NamedTuple):
    """Valid skills that a model does not see in full."""

    words: str
    link: str
    door: str


class DoctorShown(NamedTuple):
    """The problems of all skills."""

    mood: str
    verdict: str
    groups: list[FindingGroup]
    unseen: tuple[TruncatedSkills, ...] = ()


def find_problems(satchel: Satchel, report: ReportProgress) -> list[Problem]:
    """Find all problems, as `satchel doctor` does: every skill is read in full."""
    skills = satchel.library.every()

    def with_progress() -> Iterator[object]:
        for at, skill in enumerate(skills):
            report(at, len(skills))
            yield skill
        report(len(skills), len(skills))

    return satchel.problems(deep=True, progress=with_progress())


def group_problems(satchel: Satchel, problems: Sequence[Problem]) -> DoctorShown:
    """Group problems by kind and drop duplicates."""
    by_code: dict[str, list[Problem]] = {}
    for problem in unique_problems(problems):
        by_code.setdefault(problem.code, []).append(problem)
    counts = dict.fromkeys(_ORDER, 0)
    for code, rows in by_code.items():
        counts[PROBLEMS[code].severity] += len(rows)
    order = sorted(
        by_code, key=lambda code: (_ORDER.index(PROBLEMS[code].severity), -len(by_code[code]), code)
    )
    errors, warnings, notes = (counts[severity] for severity in _ORDER)
    skills = len(satchel.library.every())
    unseen = tuple(_unseen(satchel))
    mood = "bad" if errors else "warn" if warnings or unseen else "good"
    groups = [_group(satchel, code, by_code[code]) for code in order]
    verdict = _verdict(errors, warnings, notes, skills, unseen=bool(unseen))
    return DoctorShown(mood, verdict, groups, unseen)


def _unseen(satchel: Satchel) -> Iterator[TruncatedSkills]:
    """Skills truncated by the budget, and untrusted ones."""
    look = satchel.library.snapshot()
    account = satchel.preview(snapshot=look).account
    named, unlisted = len(account.named), account.unlisted
    if named:
        words = say(
            "{count} skills are offered by name only: the budget has no room for more",
            count=f"{named:,}",
        )
        one = say("1 skill is offered by name only: the budget has no room for more")
        yield TruncatedSkills(one if named == 1 else words, "/catalogue", say("Try budgets"))
    if unlisted:
        words = say(
            "{count} skills are not listed: a model finds them only by a search",
            count=f"{unlisted:,}",
        )
        one = say("1 skill is not listed: a model finds it only by a search")
        yield TruncatedSkills(one if unlisted == 1 else words, "/catalogue", say("Try budgets"))
    waiting = count_untrusted(satchel, look)
    if waiting:
        words = say(
            "{count} skills are not trusted: no model is told of them", count=f"{waiting:,}"
        )
        one = say("1 skill is not trusted: no model is told of it")
        yield TruncatedSkills(
            one if waiting == 1 else words, "/skills?state=untrusted", say("Look at them")
        )


def _group(satchel: Satchel, code: str, rows: list[Problem]) -> FindingGroup:
    rule = PROBLEMS[code]
    project = satchel.settings.project
    words, fix = rows[0].message, rows[0].fix
    first = rows[:MAX_PLACES_SHOWN]
    same_words = all(one.message == words for one in first)
    same_fix = all(one.fix == fix for one in first)
    places: list[FindingPlace] = []
    for one in first:
        skill = skill_at(satchel, one.path)
        places.append(
            FindingPlace(
                shown_path(one.path, project, one.line),
                skill.ref if skill is not None else "",
                skill.name if skill is not None else "",
                "" if same_words else one.message,
                "" if same_fix else one.fix,
            )
        )
    return FindingGroup(
        code,
        say(rule.severity),
        TONES[rule.severity],
        len(rows),
        words if same_words else generic_text(rule.message),
        fix if same_fix else generic_text(rule.fix),
        places,
    )


def _verdict(errors: int, warnings: int, notes: int, skills: int, *, unseen: bool) -> str:
    if not skills and not errors and not warnings:
        return say("There is no skill here yet, and nothing is wrong")
    if errors:
        return say("Something needs you: {words}", words=counted(errors, warnings, notes))
    if warnings:
        return say("It works, but look at this: {words}", words=counted(errors, warnings, notes))
    if unseen:
        return say("Nothing is broken, but a model does not see all of your skills as they are")
    if skills == 1:
        return say("All is well with your skill")
    return say("All is well with your {count} skills", count=f"{skills:,}")


SECTIONS = ("problems", "scan", "use")
MAX_CHECKED_SKILLS = 2_000
"""A larger library is checked only on request."""
MAX_SCANNED_SKILLS = 500
"""A larger library is scanned only on request."""


class HealthSection(NamedTuple):
    """The current state of one section."""

    key: str
    found: DoctorShown | ScanVerdicts | UsageShown | None
    """None until there is a result."""
    job: JobState
    stale: bool = False
    """The skills changed since."""
    ask: int = 0
    """Number of skills the work would take, if it starts only on request."""


class Health:
    """The sections of one project; one object per server, so that all readers share the work."""

    def __init__(self, satchel: Satchel) -> None:
        self._satchel = satchel
        self._counting = TraceCounter(satchel)
        snapshot = satchel.library.snapshot
        self._problems = BackgroundJob(lambda report: find_problems(satchel, report), snapshot)
        self._scan = BackgroundJob(lambda report: scan_all(satchel, report), snapshot)

    def titles(self) -> dict[str, tuple[str, str]]:
        """Return title and subtitle of each section."""
        return {
            "problems": (say("Problems"), say("What is wrong or odd, by kind, with what to do")),
            "scan": (say("Safety"), say("What the skills that you installed could do to you")),
            "use": (say("Use"), say("What was offered, chosen, loaded and ran in 30 days")),
        }

    def start(self, key: str) -> None:
        """Start the work of a section, unless it runs."""
        self._refresh()
        if key != "use":
            job = self._problems if key == "problems" else self._scan
            job.start()
            job.wait(0.2)

    def stop(self) -> None:
        """Stop all work at the next skill, without waiting."""
        self._problems.stop()
        self._scan.stop()

    def section(self, key: str) -> HealthSection:
        """Return one section; quick work is repeated."""
        self._refresh()
        if key == "use":
            return HealthSection(
                "use", usage_of(self._satchel, self._counting.tally()), JobState(ran=True)
            )
        count = len(self._satchel.library.snapshot())
        if key == "scan":
            job = self._scan.refresh(begin=count <= MAX_SCANNED_SKILLS)
            reports = self._scan.result
            found = summarise_scans(reports) if reports is not None else None
            return HealthSection("scan", found, job, self._scan.stale, count)
        job = self._problems.refresh(begin=count <= MAX_CHECKED_SKILLS)
        problems = self._problems.result
        doctor = group_problems(self._satchel, problems) if problems is not None else None
        return HealthSection("problems", doctor, job, self._problems.stale, count)

    def _refresh(self) -> None:
        """Refresh a small library, so that a save is seen at once."""
        if refresh_if_small(self._satchel):
            self._satchel.library.tools(refresh=True)
