"""The Health page: problems, scan and use of one library.

The problems and the scan are found by a thread (`jobs`) and kept until the library changes; use is
counted on each request.
"""

from __future__ import annotations

import threading
from collections import Counter
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from satchel._language import render, say
from satchel.errors import SatchelError, SettingsError
from satchel.presentation import counted
from satchel.skill.problems import PROBLEMS
from satchel.ui.views.findings import (
    MOODS,
    SHOWN,
    Group,
    Place,
    in_general,
    shown_path,
    skill_at,
)
from satchel.ui.views.jobs import Job, Standing
from satchel.ui.views.shelf import look_now, waiting_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import date

    from satchel.facade import Satchel
    from satchel.security import Finding, Report
    from satchel.skill.model import Skill
    from satchel.skill.problems import Problem
    from satchel.ui.views.jobs import Tell

    Reports = list[tuple[Skill, Report]]


_SCAN_ORDER = ("block", "review", "note")
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
    groups = [_scan_group(rule, rows) for rule, rows in by_rule.items()]
    worst = [MOODS[severity] for severity in _SCAN_ORDER]
    groups.sort(key=lambda group: (worst.index(group.mood), -group.number, group.key))
    blocked, review = counts.get("blocked", 0), counts.get("review", 0)
    incomplete = counts.get("incomplete", 0)
    return Verdicts(
        "bad" if blocked else "warn" if review or incomplete else "good",
        _scan_verdict(len(reports), blocked, review, incomplete),
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


def _scan_group(rule: str, rows: list[tuple[Skill, Finding]]) -> Group:
    about = rows[0][1].about
    places = [
        Place(
            f"{one.path}:{one.line}" if one.line else one.path, skill.ref, skill.name, one.evidence
        )
        for skill, one in rows[:SHOWN]
    ]
    return Group(
        rule,
        say(about.severity),
        MOODS[about.severity],
        len(rows),
        say(about.what),
        say(about.fix),
        places,
        say(about.why),
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
# The trace is read once, and again only when something was written to it. What a catalogue names
# is written once per catalogue, so offers are counted by catalogue and multiplied out at the end.

DAYS = 30
TOP = 12
NEVER = 50
"""Skills that never fired that are shown."""
KINDS = ("selected", "loaded", "ran", "failed")
"""What can become of a skill that was offered."""


class Tally(NamedTuple):
    """What was counted."""

    offers: int
    """How often a catalogue was offered."""
    by_skill: dict[str, Counter[str]]
    """Kind -> skill -> how often."""
    offered: Counter[str]
    """Skill -> how often a catalogue named it."""
    found: frozenset[str]
    """Skills that a search of the model brought."""


class Line(NamedTuple):
    """One skill of the list."""

    name: str
    ref: str
    """Empty when there is none of that name any more."""
    offered: int
    counts: tuple[int, ...]
    """As `KINDS`."""


class Silent(NamedTuple):
    """A skill that was offered and never used."""

    name: str
    ref: str
    offered: int
    searched: bool
    """A search of the model brought it, and still nobody loaded it."""


class Use(NamedTuple):
    """What became of the skills."""

    mood: str
    verdict: str
    empty: bool
    """Nothing was recorded in these days."""
    recording: bool
    """Whether anything is recorded at all."""
    top: list[Line]
    never: list[Silent]
    never_count: int
    words: tuple[str, ...]
    """The kinds as people read them, as `KINDS`."""


class Counting:
    """Counts the trace, and keeps the sums until something is written to it."""

    def __init__(self, satchel: Satchel) -> None:
        self._satchel = satchel
        self._hold = threading.Lock()
        self._seen: object = None
        self._tally: Tally | None = None

    def tally(self) -> Tally:
        """What happened in the last thirty days."""
        today = datetime.now().astimezone().date()
        with self._hold:
            seen = (self._satchel.trace.mark(), today)
            if self._tally is None or seen != self._seen:
                self._tally = count(self._satchel.trace.history(), today)
                self._seen = seen
            return self._tally


def count(rows: Iterable[dict[str, Any]], today: date) -> Tally:
    """Count the rows of a trace, the newest first.

    Args:
        rows: As `Trace.history` gives them.
        today: The last day that counts.
    """
    first = today - timedelta(days=DAYS - 1)
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
                # Older rows count too: what is offered again is not named again.
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
    return Tally(by_digest.total(), by_skill, offered, frozenset(found))


def _names(value: Any) -> list[str]:
    if not isinstance(value, list):
        return []
    return [one for one in cast("list[Any]", value) if isinstance(one, str)]


def use(satchel: Satchel, tally: Tally) -> Use:
    """The most used skills, and those that never fired."""
    happened = sum(tally.by_skill[kind].total() for kind in KINDS)
    silent = _silent(satchel, tally)
    mood, verdict = _use_verdict(tally, happened, len(silent))
    return Use(
        mood,
        verdict,
        not happened and not tally.offers,
        satchel.trace.enabled,
        _top(satchel, tally),
        silent[:NEVER],
        len(silent),
        kind_words(),
    )


def kind_words() -> tuple[str, ...]:
    """What can become of a skill, in the reader's language."""
    return (say("chosen"), say("loaded"), say("ran well"), say("failed"))


def _silent(satchel: Satchel, tally: Tally) -> list[Silent]:
    """Offered, still here, and neither chosen, loaded nor run; one's own skills first."""
    used = {name for kind in ("selected", "loaded", "ran") for name in tally.by_skill[kind]}
    snapshot = satchel.library.snapshot()
    rows: list[tuple[bool, Silent]] = []
    for name, times in tally.offered.items():
        skill = snapshot.get(name) if name not in used else None
        if skill is not None:
            one = Silent(name, skill.ref, times, name in tally.found)
            rows.append((skill.source == "builtin", one))
    rows.sort(key=lambda row: (row[0], -row[1].offered, row[1].name))
    return [one for _, one in rows]


def _top(satchel: Satchel, tally: Tally) -> list[Line]:
    total: Counter[str] = Counter()
    for kind in KINDS:
        total.update(tally.by_skill[kind])
    best = sorted(total, key=lambda name: (-total[name], name))[:TOP]
    snapshot = satchel.library.snapshot()
    lines: list[Line] = []
    for name in best:
        # A tool skill is offered by its tools, so the catalogue does not know it.
        skill = snapshot.get(name) or next(iter(satchel.library.find(name)), None)
        counts = tuple(tally.by_skill[kind][name] for kind in KINDS)
        ref = skill.ref if skill is not None else ""
        lines.append(Line(name, ref, tally.offered[name], counts))
    return lines


def _use_verdict(tally: Tally, happened: int, silent: int) -> tuple[str, str]:
    if not happened and not tally.offers:
        return "none", say("No agent used these skills in the last {days} days", days=DAYS)
    if silent:
        words = (
            say("One skill was offered and never used")
            if silent == 1
            else say("{count} skills were offered and never used", count=f"{silent:,}")
        )
        return "warn", words
    if not tally.offered:
        return "none", say("Skills were used in the last {days} days; none was offered", days=DAYS)
    return "good", say("Every skill that was offered was used")


_ORDER = ("error", "warning", "note")


class Unseen(NamedTuple):
    """Skills that are sound, and that a model does not see as their authors wrote them."""

    words: str
    link: str
    door: str
    """What the link says."""


class Doctor(NamedTuple):
    """What the doctor says."""

    mood: str
    verdict: str
    """One sentence."""
    errors: int
    warnings: int
    notes: int
    skills: int
    """How many there are."""
    groups: list[Group]
    """Worst first."""
    unseen: tuple[Unseen, ...] = ()


def look_deep(satchel: Satchel, tell: Tell) -> list[Problem]:
    """Find all problems, as `satchel doctor` does: every skill is read whole."""
    skills = satchel.library.every()

    def told() -> Iterator[object]:
        for at, skill in enumerate(skills):
            tell(at, len(skills))
            yield skill
        tell(len(skills), len(skills))

    return satchel.problems(deep=True, progress=told())


def diagnosis(satchel: Satchel, problems: Sequence[Problem]) -> Doctor:
    """Group problems for the page; one that was found twice counts once."""
    by_code: dict[str, list[Problem]] = {}
    for problem in _once(problems):
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
    return Doctor(mood, verdict, errors, warnings, notes, skills, groups, unseen)


def _unseen(satchel: Satchel) -> Iterator[Unseen]:
    """What no file is to blame for: the budget, and trust that nobody gave yet."""
    look = satchel.library.snapshot()
    account = satchel.preview(look=look).account
    named, unlisted = len(account.named), account.unlisted
    if named:
        words = say(
            "{count} skills are offered by name only: the budget has no room for more",
            count=f"{named:,}",
        )
        one = say("1 skill is offered by name only: the budget has no room for more")
        yield Unseen(one if named == 1 else words, "/catalogue", say("Try budgets"))
    if unlisted:
        words = say(
            "{count} skills are not listed: a model finds them only by a search",
            count=f"{unlisted:,}",
        )
        one = say("1 skill is not listed: a model finds it only by a search")
        yield Unseen(one if unlisted == 1 else words, "/catalogue", say("Try budgets"))
    waiting = waiting_in(satchel, look)
    if waiting:
        words = say(
            "{count} skills are not trusted: no model is told of them", count=f"{waiting:,}"
        )
        one = say("1 skill is not trusted: no model is told of it")
        yield Unseen(one if waiting == 1 else words, "/skills?state=untrusted", say("Look at them"))


def _once(problems: Iterable[Problem]) -> Iterator[Problem]:
    """Each one once: a scan and a deep look may both have found it."""
    seen: set[tuple[object, ...]] = set()
    for problem in problems:
        key = (*problem[:3], tuple(sorted(problem.values.items())))
        if key not in seen:
            seen.add(key)
            yield problem


def _group(satchel: Satchel, code: str, rows: list[Problem]) -> Group:
    rule = PROBLEMS[code]
    project = satchel.settings.project
    words, fix = rows[0].message, rows[0].fix
    first = rows[:SHOWN]
    same_words = all(one.message == words for one in first)
    same_fix = all(one.fix == fix for one in first)
    places: list[Place] = []
    for one in first:
        skill = skill_at(satchel, one.path)
        places.append(
            Place(
                shown_path(one.path, project, one.line),
                skill.ref if skill is not None else "",
                skill.name if skill is not None else "",
                "" if same_words else one.message,
                "" if same_fix else one.fix,
            )
        )
    return Group(
        code,
        say(rule.severity),
        MOODS[rule.severity],
        len(rows),
        words if same_words else in_general(rule.message),
        fix if same_fix else in_general(rule.fix),
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
MANY_READ = 2_000
"""Skills from which on the problems are looked for only on request."""
MANY_SCANNED = 500
"""Skills from which on a scan begins only on request."""


class Look(NamedTuple):
    """One section as it is now."""

    key: str
    found: Doctor | Verdicts | Use | None
    """None as long as there is nothing to show."""
    job: Standing
    stale: bool = False
    """The skills changed since."""
    ask: int = 0
    """How many skills it would take, where it begins only on request."""


class Health:
    """The sections of one project; one object per server, so that all readers share the work."""

    def __init__(self, satchel: Satchel) -> None:
        self._satchel = satchel
        self._counting = Counting(satchel)
        snapshot = satchel.library.snapshot
        self._problems = Job(lambda tell: look_deep(satchel, tell), snapshot)
        self._scan = Job(lambda tell: scan_all(satchel, tell), snapshot)

    def titles(self) -> dict[str, tuple[str, str]]:
        """Section -> its title and what it is about."""
        return {
            "problems": (say("Problems"), say("What is wrong or odd, by kind, with what to do")),
            "scan": (say("Safety"), say("What the skills that you installed could do to you")),
            "use": (say("Use"), say("What was offered, chosen, loaded and ran in 30 days")),
        }

    def start(self, key: str) -> None:
        """Begin the work of a section, unless it runs."""
        self._freshen()
        if key != "use":
            job = self._problems if key == "problems" else self._scan
            job.start()
            job.wait(0.2)

    def stop(self) -> None:
        """Let all work end at the next skill: the server ends. It waits for nothing."""
        self._problems.stop()
        self._scan.stop()

    def look(self, key: str) -> Look:
        """One section, as it is now; what is quick is done again."""
        self._freshen()
        if key == "use":
            return Look("use", use(self._satchel, self._counting.tally()), Standing(ran=True))
        count = len(self._satchel.library.snapshot())
        if key == "scan":
            job = self._scan.look(begin=count <= MANY_SCANNED)
            reports = self._scan.result
            found = verdicts(reports) if reports is not None else None
            return Look("scan", found, job, self._scan.stale, count)
        job = self._problems.look(begin=count <= MANY_READ)
        problems = self._problems.result
        doctor = diagnosis(self._satchel, problems) if problems is not None else None
        return Look("problems", doctor, job, self._problems.stale, count)

    def _freshen(self) -> None:
        """What was saved a moment ago counts, where a look costs next to nothing."""
        if look_now(self._satchel):
            self._satchel.library.tools(refresh=True)
