"""What a detector is: it reads a goal and names the skills that fit, best first, and says why.

Any object with this one method can take the place of ours: embeddings, a model that is asked, or
a user's own rules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from satchel.skill import Skill


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

    def detect(self, goal_text: str, skills: Sequence[Skill]) -> list[Match]:
        """Return matches, best first; nothing fits means an empty list.

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


class Looks(Protocol):
    """A detector that says more than the list."""

    def look(self, goal_text: str, skills: Sequence[Skill]) -> Answer:
        """The whole answer; `detect` is its `matches`."""
        ...


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


class Places(Protocol):
    """A detector that can say where one skill stands."""

    def place(self, goal_text: str, skills: Sequence[Skill], skill: Skill) -> Place:
        """Rank, account and rivals of one skill for one goal."""
        ...


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


class Prepares(Protocol):
    """A detector that keeps an index."""

    def prepare(
        self,
        skills: Sequence[Skill],
        progress: Callable[[int], None] | None = None,
        rebuild: bool = False,  # noqa: FBT001, FBT002 - a plain protocol for getattr
    ) -> Prepared:
        """Build the index, or bring it up to date, and wait for it.

        Args:
            skills: What it should hold.
            progress: Told how many skills were taken so far.
            rebuild: Throw away what is there first.
        """
        ...

    def indexed(self) -> int:
        """How many skills the index on disk holds; 0 without one. Nothing is built for it."""
        ...
