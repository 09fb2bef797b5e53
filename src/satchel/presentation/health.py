"""The Health page: problems and scan verdicts of one library, and how often skills are used.

A thread finds the problems and scans the skills, and keeps the result until it runs again; requests
only read it. Use is counted again when the trace changed.
"""

from __future__ import annotations

import time
from collections import Counter
from contextlib import nullcontext
from typing import TYPE_CHECKING, NamedTuple

from satchel.diagnosis.file_problems import unique_problems, unscanned_report
from satchel.diagnosis.folder_review import ScanProcess
from satchel.errors import SatchelError, SettingsError
from satchel.i18n import LANGUAGES, language, render, say, set_language
from satchel.presentation.findings import (
    MAX_LOCATIONS_SHOWN,
    TONES,
    FindingGroup,
    FindingLocation,
    generic_text,
    group_findings,
    short_path,
    skill_at,
)
from satchel.presentation.jobs import START_WAIT_S, BackgroundJob
from satchel.presentation.skill_index import count_untrusted, refresh_if_small
from satchel.presentation.skill_usage import PERIOD_DAYS, count_events, show_usage
from satchel.presentation.skills import state_words
from satchel.skill.problems import PROBLEMS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from satchel.presentation.jobs import JobState, ReportProgress
    from satchel.presentation.skill_usage import UsageShown, Uses
    from satchel.satchel import Satchel
    from satchel.security import ScanReport
    from satchel.skill.model import Skill
    from satchel.skill.problems import Problem

    Reports = list[tuple[Skill, ScanReport]]

_FINDING_SEVERITIES = ("block", "review", "note")
_PROBLEM_SEVERITIES = ("error", "warning", "note")
_MAX_SKILLS_IN_THREAD = 100
"""More skills are scanned in another process, which takes a moment to start."""


class HealthFindings(NamedTuple):
    """Everything that one run found."""

    problems: list[Problem]
    reports: Reports


class UnseenSkills(NamedTuple):
    """Skills that a model does not see in full, and the page to change that."""

    message: str
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
    """Label, tone and number of skills of each verdict."""


def find_all(satchel: Satchel, report: ReportProgress) -> HealthFindings:
    """Scan the skills, then find all problems as `satchel doctor` does."""
    skills = satchel.library.every()
    total = 2 * len(skills)
    reports: Reports = []
    scanned_folders: set[str] = set()
    needs_process = len(skills) > _MAX_SKILLS_IN_THREAD
    with ScanProcess() if needs_process else nullcontext() as scanner:
        for index, skill in enumerate(skills):
            report(index, total)
            if skill.source == "builtin" or skill.origin.remote:
                continue
            if skill.base_dir not in scanned_folders:
                scanned_folders.add(skill.base_dir)
                reports.append((skill, _scan(satchel, skill, scanner)))

    def with_progress() -> Iterator[object]:
        for index, skill in enumerate(skills):
            report(len(skills) + index, total)
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
    findings, own_language = find_all(satchel, report), language()
    try:
        return {name: _show_in_language(name, satchel, findings) for name in LANGUAGES}
    finally:
        set_language(own_language)


def _show_in_language(name: str, satchel: Satchel, findings: HealthFindings) -> HealthShown:
    set_language(name)
    return show_findings(satchel, findings)


def show_findings(satchel: Satchel, findings: HealthFindings) -> HealthShown:
    """Group the findings of a run by kind, worst first."""
    by_code: dict[str, list[Problem]] = {}
    for problem in unique_problems(findings.problems):
        by_code.setdefault(problem.code, []).append(problem)
    codes = sorted(
        by_code,
        key=lambda code: (
            _PROBLEM_SEVERITIES.index(PROBLEMS[code].severity),
            -len(by_code[code]),
            code,
        ),
    )
    reports = findings.reports
    scan = group_findings(
        (skill, finding) for skill, report in reports for finding in report.findings
    )
    tones = [TONES[severity] for severity in _FINDING_SEVERITIES]
    scan.sort(key=lambda group: (tones.index(group.tone), -group.total, group.key))
    if unscanned := _group_unscanned(reports):
        scan.append(unscanned)
    counts = Counter(report.verdict for _, report in reports)
    return HealthShown(
        [_group_problems(satchel, code, by_code[code]) for code in codes],
        list(_find_unseen(satchel)),
        scan,
        tuple(
            (say(verdict), TONES[verdict] if counts[verdict] else "", counts[verdict])
            for verdict in ("blocked", "review", "incomplete", "no findings")
        ),
    )


def _group_unscanned(reports: Reports) -> FindingGroup | None:
    """Return the files that were not scanned as one group."""
    locations = [
        FindingLocation(path, skill.ref, skill.name, render(reason))
        for skill, report in reports
        for path, reason in report.unscanned
    ]
    if not locations:
        return None
    return FindingGroup(
        key="incomplete",
        severity=say("incomplete"),
        tone="warn",
        total=len(locations),
        message=say("Some files were not scanned"),
        fix=say("Read them before you use the skill"),
        locations=locations[:MAX_LOCATIONS_SHOWN],
    )


def _find_unseen(satchel: Satchel) -> Iterator[UnseenSkills]:
    """Yield the skills that the budget truncates, and untrusted ones."""
    snapshot = satchel.library.snapshot()
    account = satchel.preview(snapshot=snapshot).account
    budget_label = say("Change the budget")
    if count := len(account.named):
        yield UnseenSkills(
            say("Listed by name only: {count}", count=f"{count:,}"), "/catalogue", budget_label
        )
    if count := account.unlisted:
        message = say("Not listed: {count}", count=f"{count:,}")
        yield UnseenSkills(message, "/catalogue", budget_label)
    if count := count_untrusted(satchel, snapshot):
        message = say("Untrusted: {count}", count=f"{count:,}")
        yield UnseenSkills(message, "/skills?state=untrusted", say("Review"))


def _group_problems(satchel: Satchel, code: str, problems: list[Problem]) -> FindingGroup:
    """Return the group of problems with the same code."""
    rule = PROBLEMS[code]
    project = satchel.settings.project
    message, fix = problems[0].message, problems[0].fix
    shown = problems[:MAX_LOCATIONS_SHOWN]
    has_same_message = all(problem.message == message for problem in shown)
    has_same_fix = all(problem.fix == fix for problem in shown)
    locations: list[FindingLocation] = []
    for problem in shown:
        skill = skill_at(satchel, problem.path)
        locations.append(
            FindingLocation(
                short_path(problem.path, project, problem.line),
                skill.ref if skill is not None else "",
                skill.name if skill is not None else "",
                "" if has_same_message else problem.message,
                "" if has_same_fix else problem.fix,
            )
        )
    return FindingGroup(
        key=code,
        severity=say(rule.severity),
        tone=TONES[rule.severity],
        total=len(problems),
        message=message if has_same_message else _generic_message(code),
        fix=fix if has_same_fix else generic_text(rule.fix).removeprefix("…"),
        locations=locations,
    )


def _generic_message(code: str) -> str:
    """Return what is wrong at several locations, without the values of each."""
    if code == "needs-setup":
        return state_words("needs setup")[1]
    return generic_text(PROBLEMS[code].message)


class HealthState(NamedTuple):
    """The current state of the page."""

    findings: HealthShown | None
    """None until there is a result."""
    job: JobState
    is_stale: bool
    """Whether the skills changed since."""
    usage: UsageShown


class Health:
    """The checks of one project; one object per server, so that all readers share the work."""

    def __init__(self, satchel: Satchel) -> None:
        self._satchel = satchel
        self._job = BackgroundJob(lambda report: check(satchel, report), satchel.library.snapshot)
        self._uses: tuple[object, Uses] | None = None
        """The stamps of the trace's files, and its counts at that time."""

    def start(self) -> None:
        """Start a run, unless one runs."""
        refresh_if_small(self._satchel)
        self._job.start()
        self._job.wait(START_WAIT_S)

    def stop(self) -> None:
        """Stop the run at the next skill, without waiting."""
        self._job.stop()

    def state(self) -> HealthState:
        """Return the current state; the first call starts a run, and a quick run is repeated."""
        refresh_if_small(self._satchel)  # so that a save is seen at once
        job = self._job.refresh()
        result = self._job.result
        return HealthState(
            None if result is None else result[language()],
            job,
            self._job.stale and not job.running,
            show_usage(self._satchel, self._count_uses()),
        )

    def _count_uses(self) -> Uses:
        """Count the last `PERIOD_DAYS` days; they are counted again when the trace changes."""
        trace = self._satchel.trace
        file_stamps = trace.file_stamps()
        if self._uses is None or self._uses[0] != file_stamps:
            since = time.time() - PERIOD_DAYS * 86_400
            self._uses = file_stamps, count_events(trace.history(), since)
        return self._uses[1]
