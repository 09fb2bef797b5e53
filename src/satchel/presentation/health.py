"""The Health page: problems, scan verdicts and use of one library.

A thread finds the problems and scans the skills, and keeps the result until it runs again; requests
only read it. Use is counted again when the trace changed.
"""

from __future__ import annotations

import time
from collections import Counter
from contextlib import nullcontext
from itertools import islice
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
from satchel.presentation.jobs import START_WAIT_S, BackgroundJob, ScanProcess
from satchel.presentation.skill_index import count_untrusted, refresh_if_small
from satchel.skill.problems import PROBLEMS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from satchel.presentation.jobs import JobState, ReportProgress
    from satchel.satchel import Satchel
    from satchel.security import ScanReport
    from satchel.skill.model import Skill
    from satchel.skill.problems import Problem

    Reports = list[tuple[Skill, ScanReport]]

# --- problems and scan --------------------------------------------------------------------

_SCAN_ORDER = ("block", "review", "note")
_ORDER = ("error", "warning", "note")
_MAX_SKILLS_IN_THREAD = 100
"""More skills are scanned in another process, which takes a moment to start."""


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
    many = len(skills) > _MAX_SKILLS_IN_THREAD
    with ScanProcess() if many else nullcontext() as scanner:
        for at, skill in enumerate(skills):
            report(at, total)
            if skill.source != "builtin" and not skill.origin.remote and skill.base_dir not in seen:
                seen.add(skill.base_dir)
                reports.append((skill, _scan(satchel, skill, scanner)))

    def with_progress() -> Iterator[object]:
        for at, skill in enumerate(skills):
            report(len(skills) + at, total)
            yield skill
        report(total, total)

    return HealthFindings(satchel.problems(deep=True, progress=with_progress()), reports)


def _scan(satchel: Satchel, skill: Skill, scanner: ScanProcess | None) -> ScanReport:
    library = satchel.library
    try:
        report = library.integrity.scan(skill, scanner=scanner)
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

PERIOD_DAYS = 30
MAX_USED_SHOWN = 8
MAX_UNUSED_SHOWN = 20
KINDS = ("selected", "loaded", "ran", "failed")
"""Trace event kinds that are counted."""

Uses = dict[str, Counter[str]]
"""Kind -> skill -> count."""


class UsedSkill(NamedTuple):
    """The counts of one skill."""

    name: str
    ref: str
    """Empty when it is no longer installed."""
    counts: tuple[int, ...] = ()
    """In the order of `KINDS`."""


class UsageShown(NamedTuple):
    """The use of skills in the period."""

    recording: bool
    top: list[UsedSkill]
    unused: list[UsedSkill]
    """Offered and never used; built-in ones last."""
    more_unused: int


def count_events(rows: Iterable[dict[str, Any]], since: float) -> Uses:
    """Count the rows of a trace that are not older than `since`, in seconds since the epoch."""
    found: Uses = {kind: Counter() for kind in KINDS}
    for row in rows:
        moment, kind, skills = row.get("t"), row.get("kind"), row.get("skills")
        if not isinstance(moment, int | float) or moment < since or kind not in found:
            continue
        if isinstance(skills, list) and (kind != "ran" or row.get("ended") == "well"):
            names = cast("list[object]", skills)
            found[kind].update({one for one in names if isinstance(one, str)})
    return found


def usage_of(satchel: Satchel, uses: Uses) -> UsageShown:
    """Return the most used skills; and if any was used, those that were not."""
    total: Counter[str] = Counter()
    for kind in KINDS:
        total.update(uses[kind])
    snapshot = satchel.library.snapshot()
    top: list[UsedSkill] = []
    for name in sorted(total, key=lambda name: (-total[name], name))[:MAX_USED_SHOWN]:
        # A tool skill is offered by its tools and is not in the catalogue.
        skill = snapshot.get(name) or next(iter(satchel.library.named(name)), None)
        counts = tuple(uses[kind][name] for kind in KINDS)
        top.append(UsedSkill(name, skill.ref if skill is not None else "", counts))
    if not total:
        return UsageShown(satchel.trace.enabled, [], [], 0)
    offered = snapshot.for_model  # built-in ones last; not walked to its end: it may be large
    used = [skill for name in total if (skill := snapshot.get(name)) and skill.for_model]
    unused = (UsedSkill(one.name, one.ref) for one in offered if one.name not in total)
    shown = list(islice(unused, MAX_UNUSED_SHOWN))
    more = len(offered) - len(used) - len(shown)
    return UsageShown(satchel.trace.enabled, top, shown, more)


# --- the page -----------------------------------------------------------------------------


class HealthLook(NamedTuple):
    """The current state of the page."""

    found: HealthShown | None
    """None until there is a result."""
    job: JobState
    stale: bool
    """The skills changed since."""
    use: UsageShown


class Health:
    """The checks of one project; one object per server, so that all readers share the work."""

    def __init__(self, satchel: Satchel) -> None:
        self._satchel = satchel
        self._job = BackgroundJob(lambda report: check(satchel, report), satchel.library.snapshot)
        self._uses: tuple[object, Uses] | None = None
        """Counts of the trace, and its mark at that time."""

    def start(self) -> None:
        """Start a run, unless one runs."""
        refresh_if_small(self._satchel)
        self._job.start()
        self._job.wait(START_WAIT_S)

    def stop(self) -> None:
        """Stop the run at the next skill, without waiting."""
        self._job.stop()

    def look(self) -> HealthLook:
        """Return the current state; the first look starts a run, and a quick run is repeated."""
        refresh_if_small(self._satchel)  # so that a save is seen at once
        job = self._job.refresh()
        result = self._job.result
        return HealthLook(
            None if result is None else result[language()],
            job,
            self._job.stale and not job.running,
            usage_of(self._satchel, self._count_uses()),
        )

    def _count_uses(self) -> Uses:
        """The counts of the last `PERIOD_DAYS` days; counted again when the trace changes."""
        trace = self._satchel.trace
        mark = trace.mark()
        if self._uses is None or self._uses[0] != mark:
            since = time.time() - PERIOD_DAYS * 86_400
            self._uses = mark, count_events(trace.history(), since)
        return self._uses[1]
