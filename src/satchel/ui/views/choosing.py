"""Can a request tell skills apart? Pairs that are easily mistaken, and trigger tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from satchel._language import listed, say
from satchel.ui.views.findings import MARKS, shown_path

if TYPE_CHECKING:
    from collections.abc import Sequence

    from satchel.authoring.overlap import Overlap
    from satchel.authoring.triggers import Result, Row
    from satchel.facade import Satchel
    from satchel.skill.model import Skill
    from satchel.skill.triggers import Triggers
    from satchel.ui.views.jobs import Tell

    Subjects = list[tuple[Skill, Triggers]]

MANY = 3_000
"""Skills from which on a comparison begins only when somebody asks for it."""
PAIRS = 20
GROUPS = 10
_NAMES = 8
_WORDS = 4
_PROMPTS = 40
"""Prompts of one skill that are shown; those that fail come first."""
_SKILLS = 100
"""Skills with tests that are shown."""


class Named(NamedTuple):
    """A skill by its name, and its address."""

    name: str
    ref: str


class Twins(NamedTuple):
    """Two skills that are close."""

    one: Named
    other: Named
    percent: int
    """How close, cut and not rounded: only the same words are 100."""
    mood: str
    shared: str
    only_one: str
    only_other: str


class Copies(NamedTuple):
    """Skills that say nearly the same."""

    skills: list[Named]
    more: int
    percent: int


class Closeness(NamedTuple):
    """What a library has of both."""

    mood: str
    verdict: str
    compared: int
    copies: list[Copies]
    more_copies: int
    pairs: list[Twins]
    more: bool
    """Whether there are more pairs than are shown."""


def compare_all(satchel: Satchel, tell: Tell) -> Overlap:
    """The closest pairs of what is offered."""
    from satchel.authoring.overlap import compare

    skills = satchel.library.snapshot().for_model
    passes = 3  # each skill is read, grouped and paired; people count skills
    return compare(
        skills, limit=PAIRS, progress=lambda done, total: tell(done // passes, total // passes)
    )


def closeness(found: Overlap) -> Closeness:
    """The same for people."""
    copies = [
        Copies(
            [Named(one.name, one.ref) for one in group.skills[:_NAMES]],
            max(len(group.skills) - _NAMES, 0),
            _percent(group.score),
        )
        for group in found.groups[:GROUPS]
    ]
    pairs = [
        Twins(
            Named(pair.one.name, pair.one.ref),
            Named(pair.other.name, pair.other.ref),
            _percent(pair.score),
            "warn" if pair.copy else "info",
            listed(_telling(pair.shared)),
            listed(_telling(pair.apart[0])),
            listed(_telling(pair.apart[1])),
        )
        for pair in found.pairs
    ]
    if not found.skills:
        verdict = say("There is no skill to compare")
    elif not pairs and not copies:
        verdict = say("No two skills are easily mistaken for each other")
    elif copies:
        verdict = say("Some skills say nearly the same: a request cannot tell them apart")
    else:
        verdict = say("Some skills are easily mistaken for each other")
    mood = "warn" if copies or any(pair.mood == "warn" for pair in pairs) else "good"
    if pairs and mood == "good":
        mood = "info"
    more = max(len(found.groups) - GROUPS, 0)
    return Closeness(mood, verdict, found.skills, copies, more, pairs, found.more)


def _telling(words: Sequence[str]) -> list[str]:
    """Words that say something: a number alone says nothing about two skills."""
    return [word for word in words if not word.isdecimal()]


def _percent(score: float) -> int:
    return int(score * 100 + 1e-6)


# --- trigger tests ------------------------------------------------------------------------


class Prompt(NamedTuple):
    """What became of one prompt."""

    text: str
    line: int
    fires: bool
    ok: bool
    story: list[str]
    """Why it went elsewhere."""
    chosen: list[Named]
    """Who was chosen instead."""

    @property
    def mark(self) -> str:
        """A sign for those who see no colours."""
        return MARKS["good" if self.ok else "bad"]


class Tested(NamedTuple):
    """A skill that has trigger tests."""

    name: str
    ref: str
    where: str
    number: int
    """Prompts."""
    mood: str
    """`none` as long as nobody ran them."""
    passed: int
    prompts: list[Prompt]
    trouble: str = ""
    """Why they cannot be run."""
    fix: str = ""
    more: int = 0

    @property
    def mark(self) -> str:
        """A sign for those who see no colours."""
        return MARKS[self.mood]


class Tests(NamedTuple):
    """All of them."""

    mood: str
    verdict: str
    skills: list[Tested]
    ran: bool
    passed: int
    failed: int
    more: int
    notes: list[str]


class Run(NamedTuple):
    """What a run left."""

    results: list[Result]
    notes: list[str]


def find_tests(satchel: Satchel) -> Subjects:
    """The skills of this project that have trigger tests."""
    from satchel.authoring.triggers import subjects, with_known_names

    every = satchel.library.every()
    return with_known_names(subjects(every), every)


def run_tests(satchel: Satchel, tell: Tell) -> Run:
    """Run every prompt with the detector that picks skills for requests."""
    from satchel.authoring.triggers import run_subjects

    found = [one for one in find_tests(satchel) if not one[1].broken]
    results = run_subjects(satchel, found, lambda _, done, total: tell(done, total))
    told = (note for one in results for row in one.rows for note in row.notes)
    return Run(results, list(dict.fromkeys(told)))


def tests(satchel: Satchel, found: Subjects, run: Run | None) -> Tests:
    """The tests there are, and what became of them, for people.

    Args:
        satchel: Whose.
        found: Skills with their prompts.
        run: What the last run left; None when there was none.
    """
    results = {one.skill.path: one for one in run.results} if run is not None else {}
    every = [_tested(satchel, *one, results.get(one[0].path)) for one in found]
    every.sort(key=lambda one: (one.mood != "bad", one.name))
    rows = [row for one in results.values() for row in one.rows]
    passed = sum(row.ok for row in rows)
    failed = len(rows) - passed
    broken = sum(bool(one.trouble) for one in every)
    ran = run is not None
    if not every:
        mood, verdict = "none", say("No skill of this project has trigger tests yet")
    elif failed or broken:
        mood = "bad"
        verdict = (
            say("{passed} passed, {failed} failed", passed=passed, failed=failed)
            if failed
            else say("Some trigger tests cannot be run")
        )
    elif ran:
        mood, verdict = "good", say("Every prompt chose what it should")
    else:
        mood = "none"
        verdict = say("{count} skills have trigger tests: run them", count=len(every))
        if len(every) == 1:
            verdict = say("One skill has trigger tests: run them")
    notes = run.notes[:3] if run is not None else []
    more = max(len(every) - _SKILLS, 0)
    return Tests(mood, verdict, every[:_SKILLS], ran, passed, failed, more, notes)


def _tested(satchel: Satchel, skill: Skill, triggers: Triggers, result: Result | None) -> Tested:
    where = shown_path(triggers.path, satchel.settings.project)
    count = len(triggers.prompts)
    if triggers.broken:
        first = triggers.broken[0]
        line = say("line {part}", part=first.line) + say(": ") if first.line else ""
        return Tested(
            skill.name, skill.ref, where, count, "bad", 0, [], line + first.message, first.fix
        )
    if result is None:
        return Tested(skill.name, skill.ref, where, count, "none", 0, [])
    rows = sorted(result.rows, key=lambda row: (row.ok, row.prompt.line))
    passed = sum(row.ok for row in rows)
    return Tested(
        skill.name,
        skill.ref,
        where,
        len(rows),
        "good" if passed == len(rows) else "bad",
        passed,
        [_prompt(row) for row in rows[:_PROMPTS]],
        more=max(len(rows) - _PROMPTS, 0),
    )


def _prompt(row: Row) -> Prompt:
    """One prompt, and why it went where it went, where that is not as it should be."""
    from satchel.authoring.telling import tells

    story: list[str] = []
    if not row.ok and row.prompt.fires:
        if row.stand_in:
            story.append(say("`{name}` stands for it: they are near copies", name=row.stand_in))
        elif not row.rivals:
            story.append(say("No skill was chosen"))
        missing = [word for word in row.missing if tells(word)][:_WORDS]
        if missing:
            words = listed(f"`{word}`" for word in missing)
            story.append(say("the skill lacks {words}", words=words))
    elif not row.ok and row.chosen:
        story.append(say("It was chosen, and should not be"))
    if not row.instead:
        story.append(say("`{name}` was not chosen instead", name=row.prompt.instead))
    rivals = [] if row.ok else [Named(one.name, one.skill.ref) for one in row.rivals[:_WORDS]]
    return Prompt(row.prompt.text, row.prompt.line, row.prompt.fires, row.ok, story, rivals)
