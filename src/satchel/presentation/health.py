"""The Health page: problems, scan verdicts and use of one library.

A thread finds the problems and scans the skills, and keeps the result until it runs again; requests
only read it. Use is counted on each request.
"""

from __future__ import annotations

import threading
from collections import Counter
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from satchel.errors import SatchelError, SettingsError
from satchel.i18n import LANGUAGES, language, render, say, set_language
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
from satchel.presentation.jobs import START_WAIT_S, BackgroundJob
from satchel.presentation.skill_index import count_untrusted, refresh_if_small
from satchel.skill.problems import PROBLEMS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import date

    from satchel.library.snapshot import Snapshot
    from satchel.presentation.jobs import JobState, ReportProgress
    from satchel.satchel import Satchel
    from satchel.security import ScanReport
    from satchel.skill.model import Skill
    from satchel.skill.problems import Problem

    Reports = list[tuple[Skill, ScanReport]]

# --- problems and scan --------------------------------------------------------------------

_SCAN_ORDER = ("block", "review", "note")
_ORDER = ("error", "warning", "note")


class HealthFindings(NamedTuple):
    """Everything that one run found."""

    problems: list[Problem]
    reports: Reports


class UnseenSkills(NamedTuple):
    """Skills that a model does not see in full, and the page to change that."""

    words: str
    link: str
    label: str


class HealthShown(NamedTuple):
    """The result of a run in one language."""

    problems: list[FindingGroup]
    """By kind, worst first."""
    unseen: list[UnseenSkills]
    scan: list[FindingGroup]
    """By rule, worst first."""
    verdicts: tuple[tuple[str, str, int], ...]
    """Word, tone and number of skills of each verdict."""


def find_all(satchel: Satchel, report: ReportProgress) -> HealthFindings:
    """Scan the skills, then find all problems as `satchel doctor` does."""
    skills = satchel.library.every()
    total = 2 * len(skills)
    reports: Reports = []
    seen: set[str] = set()
    for at, skill in enumerate(skills):
        report(at, total)
        if skill.source != "builtin" and not skill.origin.remote and skill.base_dir not in seen:
            seen.add(skill.base_dir)
            reports.append((skill, _scan(satchel, skill)))

    def with_progress() -> Iterator[object]:
        for at, skill in enumerate(skills):
            report(len(skills) + at, total)
            yield skill
        report(total, total)

    return HealthFindings(satchel.problems(deep=True, progress=with_progress()), reports)


def _scan(satchel: Satchel, skill: Skill) -> ScanReport:
    library = satchel.library
    try:
        report = library.integrity.scan(skill)
        if report.verdict == "blocked" and library.trust.accepts(library.integrity.digest(skill)):
            return report._replace(verdict="review")  # its risk was accepted, so it is used
        return report
    except SettingsError:
        raise  # an invalid allow-list affects every skill
    except (SatchelError, OSError) as exc:
        return unscanned_report(exc)


def check(satchel: Satchel, report: ReportProgress) -> dict[str, HealthShown]:
    """Find everything; returns the result by language, which is much smaller than the findings."""
    found, mine = find_all(satchel, report), language()
    try:
        return {name: _in_language(name, satchel, found) for name in LANGUAGES}
    finally:
        set_language(mine)


def _in_language(name: str, satchel: Satchel, found: HealthFindings) -> HealthShown:
    set_language(name)
    return show_findings(satchel, found)


def show_findings(satchel: Satchel, found: HealthFindings) -> HealthShown:
    """Group the findings of a run by kind, worst first."""
    by_code: dict[str, list[Problem]] = {}
    for problem in unique_problems(found.problems):
        by_code.setdefault(problem.code, []).append(problem)
    codes = sorted(
        by_code, key=lambda code: (_ORDER.index(PROBLEMS[code].severity), -len(by_code[code]), code)
    )
    reports = found.reports
    scan = group_findings((skill, one) for skill, report in reports for one in report.findings)
    worst = [TONES[severity] for severity in _SCAN_ORDER]
    scan.sort(key=lambda group: (worst.index(group.mood), -group.number, group.key))
    if missed := _unscanned(reports):
        scan.append(missed)
    counts = Counter(report.verdict for _, report in reports)
    return HealthShown(
        [_group(satchel, code, by_code[code]) for code in codes],
        list(_unseen(satchel)),
        scan,
        tuple(
            (say(verdict), TONES[verdict] if counts[verdict] else "", counts[verdict])
            for verdict in ("blocked", "review", "incomplete", "no findings")
        ),
    )


def _unscanned(reports: Reports) -> FindingGroup | None:
    """Files that were not scanned, as one group."""
    rows = [
        FindingPlace(path, skill.ref, skill.name, render(reason))
        for skill, report in reports
        for path, reason in report.unscanned
    ]
    if not rows:
        return None
    words, fix = say("Some files were not scanned"), say("Read them before you use the skill")
    group = FindingGroup("incomplete", say("incomplete"), "warn", len(rows), words, fix, [])
    return group._replace(places=rows[:MAX_PLACES_SHOWN])


def _unseen(satchel: Satchel) -> Iterator[UnseenSkills]:
    """Skills truncated by the budget, and untrusted ones."""
    look = satchel.library.snapshot()
    account = satchel.preview(snapshot=look).account
    budget = say("Change the budget")
    if count := len(account.named):
        yield UnseenSkills(
            say("Listed by name only: {count}", count=f"{count:,}"), "/catalogue", budget
        )
    if count := account.unlisted:
        yield UnseenSkills(say("Not listed: {count}", count=f"{count:,}"), "/catalogue", budget)
    if count := count_untrusted(satchel, look):
        words = say("Untrusted: {count}", count=f"{count:,}")
        yield UnseenSkills(words, "/skills?state=untrusted", say("Review"))


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


# --- use ----------------------------------------------------------------------------------
# The trace is read again only after it changed. The names of a catalogue are recorded once per
# catalogue, so offers are counted by catalogue and multiplied at the end.

PERIOD_DAYS = 30
MAX_USED_SHOWN = 8
MAX_UNUSED_SHOWN = 20
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


class UsedSkill(NamedTuple):
    """The counts of one skill."""

    name: str
    ref: str
    """Empty when it is no longer installed."""
    offered: int
    counts: tuple[int, ...]
    """In the order of `KINDS`."""


class UsageShown(NamedTuple):
    """The use of skills in the period."""

    recording: bool
    top: list[UsedSkill]
    unused: list[UsedSkill]
    """Offered, installed and never used; built-in ones last."""
    more_unused: int


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
    total: Counter[str] = Counter()
    for kind in KINDS:
        total.update(tally.by_skill[kind])
    snapshot = satchel.library.snapshot()
    top: list[UsedSkill] = []
    for name in sorted(total, key=lambda name: (-total[name], name))[:MAX_USED_SHOWN]:
        # A tool skill is offered by its tools and is not in the catalogue.
        skill = snapshot.get(name) or next(iter(satchel.library.named(name)), None)
        counts = tuple(tally.by_skill[kind][name] for kind in KINDS)
        top.append(
            UsedSkill(name, skill.ref if skill is not None else "", tally.offered[name], counts)
        )
    unused = [
        (skill.source == "builtin", UsedSkill(name, skill.ref, times, ()))
        for name, times in tally.offered.items()
        if name not in total and (skill := snapshot.get(name)) is not None
    ]
    unused.sort(key=lambda row: (row[0], -row[1].offered, row[1].name))
    shown = [one for _, one in unused[:MAX_UNUSED_SHOWN]]
    return UsageShown(satchel.trace.enabled, top, shown, len(unused) - len(shown))


# --- the page -----------------------------------------------------------------------------


class HealthLook(NamedTuple):
    """The current state of the page."""

    found: HealthShown | None
    """None until there is a result."""
    job: JobState
    stale: bool
    """The skills changed since."""
    use: UsageShown


def _has_same_skills(before: Snapshot, after: Snapshot) -> bool:
    """Whether two snapshots differ in states alone, which a scan changes."""
    one, other = (
        {
            skill.path: (skill.head.mtime_ns, skill.head.size)
            for skill in (*look.skills, *look.hidden)
        }
        for look in (before, after)
    )
    return one == other


class Health:
    """The checks of one project; one object per server, so that all readers share the work."""

    def __init__(self, satchel: Satchel) -> None:
        self._satchel = satchel
        self._counting = TraceCounter(satchel)
        self._job = BackgroundJob(
            lambda report: check(satchel, report), satchel.library.snapshot, _has_same_skills
        )

    def start(self) -> None:
        """Start a run, unless one runs."""
        self._refresh()
        self._job.start()
        self._job.wait(START_WAIT_S)

    def stop(self) -> None:
        """Stop the run at the next skill, without waiting."""
        self._job.stop()

    def look(self) -> HealthLook:
        """Return the current state; the first look starts a run, and a quick run is repeated."""
        self._refresh()
        job = self._job.refresh()
        result = self._job.result
        return HealthLook(
            None if result is None else result[language()],
            job,
            self._job.stale and not job.running,
            usage_of(self._satchel, self._counting.tally()),
        )

    def _refresh(self) -> None:
        """Refresh a small library, so that a save is seen at once."""
        refresh_if_small(self._satchel)
