"""How are the skills? Six looks, each made when somebody wants it, and one figure of each.

    doctor     what is wrong                    scan      what could do harm
    drift      what is not as it was locked     overlap   what is easily mistaken
    triggers   whether prompts choose right     use       what was used, and what never

What takes long runs in a thread (`jobs`); what was found is kept, and told in the reader's words.
"""

from __future__ import annotations

import weakref
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from satchel._language import language, say
from satchel.retelling import retell
from satchel.ui.views.choosing import MANY as MANY_PAIRS
from satchel.ui.views.choosing import (
    Closeness,
    Tests,
    closeness,
    compare_all,
    find_tests,
    run_tests,
    tests,
)
from satchel.ui.views.doctor import Doctor, diagnosis, look_deep
from satchel.ui.views.drift import Drift, compare_with_lock, drift
from satchel.ui.views.jobs import Job, Standing
from satchel.ui.views.shelf import look_now
from satchel.ui.views.use import Counting, Use, use
from satchel.ui.views.verdicts import MANY as MANY_SCANS
from satchel.ui.views.verdicts import Scanner, Verdicts, verdicts

if TYPE_CHECKING:
    from collections.abc import Callable

    from satchel.facade import Satchel
    from satchel.skill.problems import Problem

T = TypeVar("T")
R = TypeVar("R")
SECTIONS = ("doctor", "scan", "drift", "overlap", "triggers", "use")
MANY_LOCKED = 2_000
"""Skills from which on the lock is compared only when somebody asks for it."""

Found = Doctor | Verdicts | Drift | Closeness | Tests | Use
"""What a look found."""


class Figure(NamedTuple):
    """One figure at the top."""

    key: str
    """The section that it leads to."""
    value: str
    label: str
    mood: str


class Look(NamedTuple):
    """One section as it is now."""

    key: str
    found: Found | None
    """None as long as there is nothing to show."""
    job: Standing
    """The work behind it; of `doctor` the deep check."""
    stale: bool = False
    """The skills changed since."""
    ask: int = 0
    """How many skills it would take, where it begins only when somebody asks."""


class Health:
    """The six looks at one project. One for a server: work is shared by all who look."""

    def __init__(self, satchel: Satchel) -> None:
        self._satchel = satchel
        self._scanner = Scanner(satchel)
        self._counting = Counting(satchel)
        snapshot = satchel.library.snapshot
        self._deep = Job(lambda tell: look_deep(satchel, tell), snapshot)
        self._scan = Job(self._scanner.run, snapshot)
        self._drift = Job(lambda tell: compare_with_lock(satchel, tell), snapshot)
        self._overlap = Job(lambda tell: compare_all(satchel, tell), snapshot)
        self._tests = Job(lambda _: find_tests(satchel), snapshot)
        self._run = Job(lambda tell: run_tests(satchel, tell), snapshot)
        self._seen: tuple[weakref.ref[object], weakref.ref[object]] | None = None
        self._problems: list[Problem] = []
        self._said: dict[tuple[str, str], tuple[object, Any]] = {}

    def titles(self) -> dict[str, tuple[str, str]]:
        """Section -> what it is called, and what it answers."""
        return {
            "doctor": (say("Doctor"), say("What is wrong or odd, by kind, with what to do")),
            "scan": (say("Safety"), say("What the skills that you installed could do to you")),
            "drift": (say("Drift"), say("Whether what is installed is what was locked")),
            "overlap": (say("Overlap"), say("Skills that a request cannot tell apart")),
            "triggers": (
                say("Trigger tests"),
                say("Whether prompts choose the skills that they should"),
            ),
            "use": (say("Use"), say("What was offered, chosen, loaded and ran in 30 days")),
        }

    def start(self, key: str) -> None:
        """Begin the work of a section, unless it runs; `doctor` begins the deep check."""
        jobs: dict[str, Job[object]] = {
            "doctor": self._deep,
            "scan": self._scan,
            "drift": self._drift,
            "overlap": self._overlap,
            "triggers": self._run,
        }  # pyright: ignore[reportAssignmentType] - nobody takes a result from these
        self._freshen()
        job = jobs.get(key)
        if job is not None and job.start():
            job.wait(0.2)

    def stop(self) -> None:
        """Let all work end at the next skill: the server ends. It waits for nothing."""
        for job in (self._deep, self._scan, self._drift, self._overlap, self._tests, self._run):
            job.stop()

    def look(self, key: str) -> Look:
        """One section, as it is now; what is quick is looked at again."""
        looks = {
            "doctor": self._look_doctor,
            "scan": self._look_scan,
            "drift": self._look_drift,
            "overlap": self._look_overlap,
            "triggers": self._look_triggers,
            "use": self._look_use,
        }
        self._freshen()
        found = looks[key]()
        return found._replace(job=found.job._replace(trouble=retell(found.job.trouble)))

    def figures(self, known: Look | None = None) -> list[Figure]:
        """The figures of what was looked at so far; of one section alone when it is given."""
        if known is not None:
            return [_figure(known)]
        return [_figure(self._known(key)) for key in SECTIONS]

    def _freshen(self) -> None:
        """What was saved a moment ago counts, where a look costs next to nothing."""
        if look_now(self._satchel):
            self._satchel.library.tools(refresh=True)

    # --- one by one -----------------------------------------------------------------------

    def _look_doctor(self) -> Look:
        job = self._deep.look(begin=False)
        deep = self._deep.result
        if deep is not None and not self._deep.stale:
            return Look("doctor", self._diagnosis(deep, deep=True), job)
        found = self._diagnosis(self._shallow(), deep=False)
        return Look("doctor", found, job, stale=self._deep.stale)

    def _diagnosis(self, problems: list[Problem], *, deep: bool) -> Doctor:
        made = partial(diagnosis, self._satchel, deep=deep)
        return self._once("doctor", problems, made)

    def _once(self, key: str, raw: T, make: Callable[[T], R]) -> R:
        """What was found, in the reader's words: made once for each language, since it is long."""
        place = (key, language())
        kept = self._said.get(place)
        if kept is not None and kept[0] is raw:
            return kept[1]
        made = make(raw)
        self._said[place] = (raw, made)
        return made

    def _shallow(self) -> list[Problem]:
        """What is found without reading every skill; made once for each state of the library."""
        library = self._satchel.library
        now = (library.snapshot(), library.tools())
        seen = self._seen
        if seen is None or now[0] is not seen[0]() or now[1] is not seen[1]():
            self._problems = self._satchel.problems()
            self._seen = (weakref.ref(library.snapshot()), weakref.ref(library.tools()))
        return self._problems

    def _look_scan(self) -> Look:
        count = self._scanner.count()
        job = self._scan.look(begin=count <= MANY_SCANS)
        result = self._scan.result
        found = self._once("scan", result, verdicts) if result is not None else None
        return Look("scan", found, job, self._scan.stale, count)

    def _look_drift(self) -> Look:
        count = len(self._satchel.library.snapshot())
        job = self._drift.look(begin=count <= MANY_LOCKED)
        result = self._drift.result
        found = drift(self._satchel, result) if result is not None else None
        return Look("drift", found, job, self._drift.stale, count)

    def _look_overlap(self) -> Look:
        count = len(self._satchel.library.snapshot().for_model)
        job = self._overlap.look(begin=count <= MANY_PAIRS)
        result = self._overlap.result
        found = closeness(result) if result is not None else None
        return Look("overlap", found, job, self._overlap.stale, count)

    def _look_triggers(self) -> Look:
        listed = self._tests.look()
        if listed.running or self._tests.result is None:
            return Look("triggers", None, listed)
        job = self._run.look(begin=False)
        found = tests(self._satchel, self._tests.result, self._run.result)
        return Look("triggers", found, job, self._run.stale)

    def _look_use(self) -> Look:
        found = use(self._satchel, self._counting.tally())
        return Look("use", found, Standing(ran=True))

    def _known(self, key: str) -> Look:
        """What is known without any work."""
        job: Standing = Standing()
        found: Found | None = None
        if key == "doctor" and self._seen is not None:
            deep = self._deep.result if not self._deep.stale else None
            known = self._problems if deep is None else deep
            found = self._diagnosis(known, deep=deep is not None)
        elif key == "use" and self._counting.counted is not None:
            found = use(self._satchel, self._counting.counted)
        elif key == "scan" and self._scan.result is not None:
            found = self._once("scan", self._scan.result, verdicts)
        elif key == "drift" and self._drift.result is not None:
            found = drift(self._satchel, self._drift.result)
        elif key == "overlap" and self._overlap.result is not None:
            found = closeness(self._overlap.result)
        elif key == "triggers" and self._tests.result is not None:
            found = tests(self._satchel, self._tests.result, self._run.result)
        return Look(key, found, job)


def _figure(look: Look) -> Figure:
    """The number that says most about a section."""
    found = look.found
    value, label, mood = "–", "", "none"
    if isinstance(found, Doctor):
        value, label, mood = _doctor_figure(found)
    elif isinstance(found, Verdicts):
        value, mood = f"{found.scanned:,}", found.mood
        label = say("scanned, nothing found")
        if found.blocked:
            value, label = (
                f"{found.blocked:,}",
                say("blocked of {count} scanned", count=found.scanned),
            )
        elif found.review or found.incomplete:
            value = f"{found.review + found.incomplete:,}"
            label = say("to look at, of {count} scanned", count=found.scanned)
        elif not found.scanned:
            label, mood = say("scanned"), "none"
    elif isinstance(found, Drift):
        value, mood, label = f"{found.drifted:,}", found.mood, say("drifted")
    elif isinstance(found, Closeness):
        count = len(found.pairs) + len(found.copies) + found.more_copies
        value = f"{count:,}" + ("+" if found.more else "")
        label, mood = say("easily mistaken"), found.mood
    elif isinstance(found, Tests):
        mood, label = found.mood, say("skills with trigger tests")
        value = f"{len(found.skills) + found.more:,}"
        if found.ran and found.skills:
            value = f"{found.passed}/{found.passed + found.failed}"
            label = say("prompts chose right")
    elif isinstance(found, Use):
        value, label, mood = f"{found.never_count:,}", say("never fired"), found.mood
        if found.empty:
            label = say("used in 30 days")
    return Figure(look.key, value, label or _unknown()[look.key], mood)


def _doctor_figure(found: Doctor) -> tuple[str, str, str]:
    if found.errors:
        label = say("error") if found.errors == 1 else say("errors")
        return f"{found.errors:,}", label, "bad"
    if found.warnings:
        label = say("warning") if found.warnings == 1 else say("warnings")
        return f"{found.warnings:,}", label, "warn"
    if found.unseen:
        return f"{found.skills:,}", say("skills, not all are seen"), "warn"
    return f"{found.skills:,}", say("skills, all well"), "good"


def _unknown() -> dict[str, str]:
    """What a figure will say."""
    return {
        "doctor": say("errors"),
        "scan": say("scanned"),
        "drift": say("drifted"),
        "overlap": say("easily mistaken"),
        "triggers": say("prompts chose right"),
        "use": say("never fired"),
    }
