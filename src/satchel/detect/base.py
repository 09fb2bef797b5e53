"""The `Detector` protocol, the records of an answer, and the base class of richer detectors.

A detector is any object with the method `detect`. One that can do more (whole answers, rankings, an
index) extends `BaseDetector`, whose methods are all made of `detect` until they are overridden.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self, cast

from satchel._language import Message
from satchel.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from satchel.skill import Skill

TEMPLATES = {
    "unknown-skill": "There is no skill `{name}`",
    "unknown-skill-near": "There is no skill `{name}`; did you mean {names}?",
    "unknown-skills-more": "There are no skills of {count} other names that the request gives",
    "people-only": "`{name}` is there for people alone: no model may load it",
    "ruled-out": "`{name}` is left out: the request says not to use it",
    "unheard": "{count} characters amid the request were not searched for names of skills",
    "both": "`{name}` is asked for and ruled out in one request: it is left out",
    "never": "`{name}` is left out: it is set never to be chosen",
    "never-missing": "`{name}` is set never to be chosen, and there is no such skill",
    "use-missing": "`{name}` is set to be chosen, and there is no such skill",
    "model-failed": "The model failed, and the order of `{name}` stands: {reason}",
    "model-nonsense": (
        "The model gave no usable answer, and the order of `{name}` stands: {reason}"
    ),
    "model-strangers": "The model named {count} that were not on its list: they are left out",
    "model-kept": "The model was asked this before: its answer was kept",
    "model-cut": "The model was shown the first {count} characters of the request",
    "untrusted": "`{name}` is not trusted yet: run `satchel trust` in the project",
    "unpinned": "`{name}` is not offered: no lockfile pins it as it is",
    "blocked": "`{name}` is not offered: the scan blocks it; see `satchel scan {typed}`",
}
"""Code -> sentence."""


class Note(Message):
    """A message with a code of `TEMPLATES`."""

    __slots__ = ("code",)
    code: str

    def __new__(cls, code: str, **values: Any) -> Self:
        """Make the note with this code."""
        made = super().__new__(cls, TEMPLATES[code], **values)
        made.code = code
        return made

    def __getnewargs_ex__(self) -> tuple[tuple[str], dict[str, Any]]:
        """How it is copied and pickled."""
        return (self.code,), self.values


def code_of(note: str) -> str:
    """The code of a note; empty for the plain text of a user's detector."""
    return note.code if isinstance(note, Note) else ""


EXPLICIT = "explicit"
"""The detector of skills that a request names."""
RIVALS = 3
"""How many of the skills that are ahead a `Place` names."""


class Match(NamedTuple):
    """One skill that fits."""

    name: str
    score: float
    """Comparable within one answer only."""
    reason: str
    """Why, in one line."""
    evidence: tuple[str, ...]
    """What was seen where: `name: review`, `description: pull`."""
    skill: Skill
    detector: str = ""
    """Who found it: `explicit`, `hybrid`, `model`."""


class Detector(Protocol):
    """Finds the skills that fit a goal."""

    def detect(self, goal_text: str, skills: Sequence[Skill]) -> Sequence[Match | str]:
        """Return matches, or names of skills, best first; nothing fits means an empty list.

        The same goal and skills give the same answer, in any process.
        """
        ...


SkillDetector = Detector
"""The same under the name that frameworks use."""


class Answer(NamedTuple):
    """One look for the skills that fit a goal, with all that a person may ask about it.

    It is true when a skill fits. `skills` and `near_copies`, as `satchel which --json` has them,
    are other words for `matches` and `collapsed`.
    """

    matches: list[Match]
    """The chosen ones, best first; empty when no skill fits."""
    runners_up: list[Match]
    """Who came next, and whoever was too weak to be chosen."""
    fit: float
    """How sure it is that the first one fits, from 0 to 1; measured, not guessed."""
    threshold: float
    """Below this `fit` no skill is said to fit."""
    detector: str
    """Who decided."""
    took_ms: float
    notes: tuple[str, ...] = ()
    """What a person should know: the index is being built, vectors are off for this language."""
    collapsed: tuple[tuple[str, str], ...] = ()
    """Near copies that were left out: the copy, and the skill that stands for it."""
    cost: dict[str, float] | None = None
    """What a model charged: `input_tokens`, `output_tokens`, `calls`, `usd` where it is known."""

    def __bool__(self) -> bool:
        return bool(self.matches)

    def __repr__(self) -> str:
        # Whole matches hold whole skills: nobody can read those in a debugger.
        parts = [f"fit={self.fit:.2f}", f"threshold={self.threshold:.2f}"]
        if self.runners_up:
            parts.append(f"runners_up={[match.name for match in self.runners_up]!r}")
        if self.notes:
            parts.append(f"notes={self.notes!r}")
        return f"Answer({self.names!r}, {', '.join(parts)}, detector={self.detector!r})"

    @property
    def fits(self) -> bool:
        """Whether any skill fits."""
        return bool(self.matches)

    @property
    def names(self) -> list[str]:
        """The names of the chosen ones, best first."""
        return [match.name for match in self.matches]

    @property
    def skills(self) -> list[Match]:
        """The chosen ones: `matches`, by the word that `--json` has for them."""
        return self.matches

    @property
    def near_copies(self) -> tuple[tuple[str, str], ...]:
        """Near copies that were left out: `collapsed`, by the word that `--json` has for them."""
        return self.collapsed


class Place(NamedTuple):
    """Where one skill stands for one goal: what `satchel why NAME --goal` tells."""

    rank: int
    """1 is the best; 0 when nothing of it matched."""
    of: int
    """Among how many skills."""
    match: Match | None
    fields: dict[str, float]
    """What each field (and `vectors`) gave to its score."""
    ahead: list[tuple[Match, dict[str, float]]]
    """The best ones that beat it, with the same account."""
    missing: tuple[str, ...]
    """Words of the goal that the skill has nowhere, the weightiest first."""


class Prepared(NamedTuple):
    """An index that is ready: what `satchel index` tells."""

    engine: str
    """`memory` or `tantivy`."""
    skills: int
    """How many it holds now."""
    changed: int
    """How many were read for it: new ones, changed ones, and those that are gone."""
    seconds: float
    folder: str
    """Where it lies; empty when it is kept in memory."""
    vectors: str = ""
    """The model whose vectors are kept beside the words; empty without one."""
    embedded: int = 0
    """How many skills have vectors by it; not those in scripts that it does not read."""
    without_vectors: tuple[tuple[str, str], ...] = ()
    """Names of skills that have none by the model, each with the reason."""


class BaseDetector:
    """A detector that can do more than choose. Override what it knows better than these defaults.

    At least one of `detect` and `look` has to be overridden.
    """

    name = ""
    """How answers and traces call it; the class name when empty."""
    notes: tuple[str, ...] = ()
    """Notes of the last search."""

    def detect(self, goal_text: str, skills: Sequence[Skill]) -> list[Match]:
        """Return matches, best first; nothing fits means an empty list."""
        return self.look(goal_text, skills).matches

    def look(self, goal_text: str, skills: Sequence[Skill], limit: int | None = None) -> Answer:
        """Return the whole answer.

        Args:
            goal_text: The request.
            skills: The skills to choose from.
            limit: How many to choose at most; None leaves it to the detector.
        """
        del limit  # the pipeline cuts the list
        began = time.perf_counter()
        found = checked_matches(self, self.detect(goal_text, skills), skills)
        took = (time.perf_counter() - began) * 1e3
        return Answer(found, [], 1.0 if found else 0.0, 0.0, name_of(self), took)

    def rank(
        self, goal_text: str, skills: Sequence[Skill], limit: int = 50, *, reasons: bool = True
    ) -> list[Match]:
        """Return the best skills, whether they fit or not.

        Args:
            goal_text: The request.
            skills: The skills to rank.
            limit: How many at most.
            reasons: Whether matches need a reason; without, a detector may answer sooner.
        """
        del reasons
        return checked_matches(self, self.detect(goal_text, skills), skills)[:limit]

    def place(self, goal_text: str, skills: Sequence[Skill], skill: Skill) -> Place:
        """Return the rank of one skill, with what is ahead of it."""
        found = self.rank(goal_text, skills, len(skills))
        for at, match in enumerate(found):
            if match.skill.path == skill.path:
                ahead = [(one, dict[str, float]()) for one in found[:at][:RIVALS]]
                return Place(at + 1, len(skills), match, {}, ahead, ())
        return Place(0, len(skills), None, {}, [(one, {}) for one in found[:RIVALS]], ())

    def prepare(
        self,
        skills: Sequence[Skill],
        progress: Callable[[int], None] | None = None,
        *,
        rebuild: bool = False,
    ) -> Prepared | None:
        """Build the index, or bring it up to date, and wait for it; None without an index.

        Args:
            skills: What it should hold.
            progress: Called with the number of skills read so far.
            rebuild: Delete the index first.
        """
        del skills, progress, rebuild
        return None

    def indexed(self) -> int | None:
        """Return how many skills the index on disk holds; None for a detector without one."""
        return None


class UserDetector(BaseDetector):
    """Wraps a user's detector that has `detect` alone, and checks what it returns."""

    def __init__(self, detector: Detector) -> None:
        self._detector = detector
        self.name = name_of(detector)

    def detect(self, goal_text: str, skills: Sequence[Skill]) -> list[Match]:
        """Return what the detector returns, as matches."""
        return checked_matches(self, self._detector.detect(goal_text, skills), skills)


def as_base(detector: Detector) -> BaseDetector:
    """Wrap a user's detector, unless it extends `BaseDetector` already.

    Raises:
        InvalidInput: it is no detector.
    """
    if isinstance(detector, BaseDetector):
        return detector
    if isinstance(detector, type) or not callable(getattr(detector, "detect", None)):
        kind = detector if isinstance(detector, type) else type(detector)
        raise InvalidInput(
            f"`{kind.__name__}` is no detector",
            "Give an object with a method `detect(goal_text, skills)` that returns `Match` objects "
            "or names",
        )
    return UserDetector(detector)


def name_of(detector: object) -> str:
    """What a detector is called in answers and traces."""
    return str(getattr(detector, "name", "") or type(detector).__name__)


def checked_matches(detector: object, found: Any, skills: Sequence[Skill] = ()) -> list[Match]:
    """Return what a detector returned, if it is a list of matches, or of names of `skills`.

    Raises:
        InvalidInput: it is something else, or a name is none of theirs; the message names the
            detector.
    """
    if isinstance(found, Match) or not isinstance(found, list | tuple):
        raise _wrong(detector, f"returned {_kind(found)}, not a list of `Match` objects or names")
    rows = cast("list[Any]", found)
    matches: list[Match] = []
    for at, row in enumerate(rows):
        if isinstance(row, str):
            score = round(1.0 - at / len(rows), 3)
            matches.append(Match(row, score, "", (), _named(detector, row, skills)))
        elif isinstance(row, Match):
            matches.append(row)
        else:
            raise _wrong(
                detector, f"returned a list with {_kind(row)} in it, not a `Match` or a name"
            )
    return matches


def _named(detector: object, name: str, skills: Sequence[Skill]) -> Skill:
    for skill in skills:
        if name in (skill.name, skill.id):
            return skill
    raise _wrong(detector, f"returned `{name}`, which is none of the skills that it was given")


def checked_answer(detector: object, answer: Any) -> Answer:
    """Return the answer of a detector, if it is one.

    Raises:
        InvalidInput: it is something else; the message names the detector.
    """
    if not isinstance(answer, Answer):
        raise _wrong(detector, f"returned {_kind(answer)} from `look`, not an `Answer`")
    checked_matches(detector, answer.matches)
    checked_matches(detector, answer.runners_up)
    return answer


def _wrong(detector: object, what: str) -> InvalidInput:
    return InvalidInput(
        f"The detector `{name_of(detector)}` {what}",
        "Return names of the given skills, or `satchel.detect.Match(name, score, reason, evidence, "
        "skill)`, best first; an empty list when nothing fits",
    )


def _kind(value: object) -> str:
    return "nothing" if value is None else f"a `{type(value).__name__}`"
