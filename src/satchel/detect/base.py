"""The `Detector` protocol, the result records, and the base class of richer detectors.

A detector is any object with the method `detect`. A detector that supports more (detailed results,
rankings, an index) extends `BaseDetector`, whose defaults are built on `detect`.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self, cast

from satchel.errors import InvalidInput
from satchel.i18n import Message

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from satchel.skill import Skill

TEMPLATES = {
    "unknown-skill": "There is no skill `{name}`",
    "unknown-skill-near": "There is no skill `{name}`; did you mean {names}?",
    "unknown-skills-more": "{count} more names in the request are no skills",
    "people-only": "`{name}` is for people only: no model may load it",
    "ruled-out": "`{name}` is left out: the request says not to use it",
    "unheard": "{count} characters of the request were not searched for names of skills",
    "both": "`{name}` is left out: the request says not to use it",
    "never": "`{name}` is left out: it is set never to be chosen",
    "never-missing": "There is no skill `{name}`",
    "use-missing": "There is no skill `{name}`",
    "model-failed": "The model gave no usable answer: {reason}",
    "model-nonsense": "The model gave no usable answer: {reason}",
    "model-strangers": "Skills named by the model that were not on its list: {count}",
    "model-cut": "The model was shown the first {count} characters of the request",
    "untrusted": "The skill `{name}` is not trusted yet",
    "unpinned": "`{name}` is not offered: no lockfile pins it as it is",
    "blocked": "`{name}` is not offered: the scan blocks it",
    "needs-setup": "`{name}` is not offered, because it needs {what}",
    "lock-broken": "`{name}` is not offered: the lockfile beside it is damaged",
}
"""Note code -> message template."""


class DetectorNote(Message):
    """A notice of a detector for the user, as in `Detection.notes`; `str()` is the sentence."""

    __slots__ = ("code",)
    code: str
    """The kind of notice."""

    def __new__(cls, code: str, **values: Any) -> Self:
        """Make the note with this code."""
        note = super().__new__(cls, TEMPLATES[code], **values)
        note.code = code
        return note

    def __getnewargs_ex__(self) -> tuple[tuple[str], dict[str, Any]]:
        return (self.code,), self.values


EXPLICIT = "explicit"
"""Detector name of matches that the request names."""
MAX_RIVALS = 3
Reasons = tuple[str, tuple[str, ...]]
"""The reason and the evidence of a match."""


class Match:
    """A skill that matches a request, with the reason."""

    __slots__ = ("_explain", "_reasons", "detector", "name", "score", "skill")
    name: str
    """The name of the skill."""
    score: float
    """Comparable within one detection only."""
    skill: Skill
    """The skill."""
    detector: str
    """The detector that found it: `explicit`, `hybrid`, `model`."""

    def __init__(
        self,
        name: str,
        score: float,
        reason: str,
        evidence: tuple[str, ...],
        skill: Skill,
        detector: str = "",
    ) -> None:
        """Create a match; a detector of your own does.

        Args:
            name: The name of the skill.
            score: How well it matches.
            reason: Why it matches, in one line.
            evidence: The matching words by field.
            skill: The skill.
            detector: The name of the detector that found it.
        """
        self.name, self.score = name, score
        self.skill, self.detector = skill, detector
        self._reasons = (reason, evidence)
        self._explain: Callable[[], Reasons] | None = None

    @classmethod
    def lazy(
        cls, name: str, score: float, explain: Callable[[], Reasons], skill: Skill, detector: str
    ) -> Self:
        """Create a match whose reason and evidence are made when they are first read.

        Args:
            name: The name of the skill.
            score: How well it matches.
            explain: Returns the reason and the evidence.
            skill: The skill.
            detector: The name of the detector that found it.
        """
        match = cls(name, score, "", (), skill, detector)
        match._explain = explain
        return match

    @property
    def reason(self) -> str:
        """Why it matches, in one line."""
        return self._load_reasons()[0]

    @property
    def evidence(self) -> tuple[str, ...]:
        """The matching words by field: `name: review`, `description: pull`."""
        return self._load_reasons()[1]

    def _load_reasons(self) -> Reasons:
        """Return the reason and the evidence, which are made at the first call."""
        explain = self._explain
        if explain is not None:  # several threads may read it: each gets the same
            self._reasons = explain()
            self._explain = None
        return self._reasons

    def replace(self, **changes: Any) -> Match:
        """Return a copy with some fields changed.

        Args:
            changes: The new values by field.
        """
        copy = Match.lazy(self.name, self.score, self._load_reasons, self.skill, self.detector)
        if "reason" in changes or "evidence" in changes:
            reason, evidence = self._load_reasons()
            reasons = changes.pop("reason", reason), changes.pop("evidence", evidence)
            copy = Match(self.name, self.score, *reasons, self.skill, self.detector)
        for field, value in changes.items():
            setattr(copy, field, value)
        return copy

    def _values(self) -> tuple[Any, ...]:
        return (self.name, self.score, *self._load_reasons(), self.skill, self.detector)

    def __reduce__(self) -> tuple[Any, ...]:
        return Match, self._values()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Match) and self._values() == other._values()

    def __hash__(self) -> int:
        return hash((self.name, self.score))

    def __repr__(self) -> str:
        return f"Match{self._values()!r}"


class SkillSubset(tuple["Skill", ...]):  # noqa: SLOT001 - a tuple takes no slots
    """The skills of a library without some names.

    A detector may reuse what it keeps about the whole library.
    """

    library: tuple[Skill, ...]
    without: frozenset[str]

    def __new__(cls, library: tuple[Skill, ...], without: frozenset[str]) -> Self:
        """Leave out the skills with these names."""
        subset = super().__new__(cls, (skill for skill in library if skill.name not in without))
        subset.library, subset.without = library, without
        return subset


class Detector(Protocol):
    """Finds the skills that fit a request: any object with this method.

    Example:
        from satchel import Satchel


        class ByTag:
            def detect(self, goal_text, skills):
                words = set(goal_text.lower().split())
                return [skill.name for skill in skills if words & set(skill.name.split("-"))]


        satchel = Satchel.for_project(".", detector=ByTag())
        assert satchel.which("Write the release notes").names == ["release-notes"]
    """

    def detect(self, goal_text: str, skills: Sequence[Skill]) -> Sequence[Match | str]:
        """Return matches, or names of skills, best first; nothing fits means an empty list.

        The same goal and skills give the same answer, in any process.

        Args:
            goal_text: The request.
            skills: The skills to choose from.
        """
        ...


SkillDetector = Detector
"""The same under the name that frameworks use."""


class Detection(NamedTuple):
    """The result of selecting skills for a request; true when a skill fits.

    Example:
        from satchel import Satchel

        detection = Satchel.for_project(".").which("Can you fill in this PDF form?")
        if detection:
            best = detection.matches[0]
            print(best.name, best.reason, best.evidence)
        else:
            print("No skill fits", [match.name for match in detection.runners_up])
    """

    matches: list[Match]
    """The selected skills, best first; empty when none fits."""
    runners_up: list[Match]
    """Skills that ranked below the matches or did not reach the threshold."""
    fit: float
    """The estimated probability that the first match fits, from 0 to 1."""
    threshold: float
    """No skill is selected below this `fit`."""
    detector: str
    """The name of the detector."""
    took_ms: float
    """How long the selection took, in milliseconds."""
    notes: tuple[str, ...] = ()
    """Notices for the user: the index is being built, vectors are off for this language."""
    collapsed: tuple[tuple[str, str], ...] = ()
    """Omitted near duplicates: the duplicate, and the skill listed instead of it."""
    cost: dict[str, float] | None = None
    """Model usage: `input_tokens`, `output_tokens`, `calls`, and `usd` if available."""
    unavailable: tuple[Skill, ...] = ()
    """Skills that the request names and that are not offered."""

    def __bool__(self) -> bool:
        return bool(self.matches)

    def __repr__(self) -> str:
        # Full matches contain full skills, which are too long for a debugger.
        parts = [f"fit={self.fit:.2f}", f"threshold={self.threshold:.2f}"]
        if self.runners_up:
            parts.append(f"runners_up={[match.name for match in self.runners_up]!r}")
        if self.notes:
            parts.append(f"notes={self.notes!r}")
        return f"Detection({self.names!r}, {', '.join(parts)}, detector={self.detector!r})"

    @property
    def fits(self) -> bool:
        """Whether a skill fits."""
        return bool(self.matches)

    @property
    def names(self) -> list[str]:
        """The names of the matches, best first."""
        return [match.name for match in self.matches]


class RankExplanation(NamedTuple):
    """The rank of one skill for one request, as `satchel why NAME --goal` shows it.

    Example:
        place = Satchel.for_project(".").place("code-review", "Can you fill in this PDF form?")
        print(place.rank, "of", place.of, place.missing)
    """

    rank: int
    """1 is the best; 0 when nothing matched."""
    of: int
    """The number of skills that were ranked."""
    match: Match | None
    """The skill with its score and reason; None when nothing matched."""
    fields: dict[str, float]
    """The score contribution of each field, and of `vectors`."""
    ahead: list[tuple[Match, dict[str, float]]]
    """The best skills with a higher score, with their contributions."""
    missing: tuple[str, ...]
    """Words of the request that the skill does not contain, heaviest first."""


class IndexReport(NamedTuple):
    """The state of an index after `satchel search --build-index`."""

    engine: str
    """`memory` or `tantivy`."""
    skills: int
    """The number of skills in the index."""
    changed: int
    """The number of skills that were added, updated or removed."""
    seconds: float
    """How long the build took."""
    folder: str
    """The index folder; empty for an index in memory."""
    vectors: str = ""
    """The embedding model; empty without one."""
    embedded: int = 0
    """The number of embedded skills, without those in scripts that the model does not cover."""


class BaseDetector:
    """A detector with an index, rankings and detailed results.

    At least one of `detect` and `look` has to be overridden.

    Example:
        from satchel import Match, Satchel
        from satchel.detect import BaseDetector


        class Newest(BaseDetector):
            def detect(self, goal_text, skills):
                skill = max(skills, key=lambda one: one.mtime)
                return [Match(skill.name, 1.0, "changed last", (), skill, "newest")]


        satchel = Satchel.for_project(".", detector=Newest())
        assert len(satchel.which("anything").matches) == 1
    """

    name = ""
    """The name in results and traces; the class name when empty."""
    notes: tuple[str, ...] = ()

    def detect(self, goal_text: str, skills: Sequence[Skill]) -> list[Match]:
        """Return matches, best first; nothing fits means an empty list.

        Args:
            goal_text: The request.
            skills: The skills to choose from.
        """
        return self.look(goal_text, skills).matches

    def look(self, goal_text: str, skills: Sequence[Skill], limit: int | None = None) -> Detection:
        """Return the detection.

        Args:
            goal_text: The request.
            skills: The skills to choose from.
            limit: How many to choose at most; None leaves it to the detector.
        """
        del limit  # the pipeline cuts the list
        started_at = time.perf_counter()
        matches = check_matches(self, self.detect(goal_text, skills), skills)
        took_ms = (time.perf_counter() - started_at) * 1e3
        return Detection(matches, [], 1.0 if matches else 0.0, 0.0, detector_name(self), took_ms)

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
        return check_matches(self, self.detect(goal_text, skills), skills)[:limit]

    def place(self, goal_text: str, skills: Sequence[Skill], skill: Skill) -> RankExplanation:
        """Return the rank of one skill, with what is ahead of it.

        Args:
            goal_text: The request.
            skills: The skills to rank.
            skill: The skill to explain, one of them.
        """
        matches = self.rank(goal_text, skills, len(skills))
        for index, match in enumerate(matches):
            if match.skill.path == skill.path:
                ahead = [(rival, dict[str, float]()) for rival in matches[:index][:MAX_RIVALS]]
                return RankExplanation(index + 1, len(skills), match, {}, ahead, ())
        return RankExplanation(
            0, len(skills), None, {}, [(rival, {}) for rival in matches[:MAX_RIVALS]], ()
        )

    def prepare(
        self,
        skills: Sequence[Skill],
        progress: Callable[[int], None] | None = None,
        *,
        rebuild: bool = False,
    ) -> IndexReport | None:
        """Build the index, or bring it up to date, and wait for it; None without an index.

        Args:
            skills: What it should hold.
            progress: Called with the number of skills read so far.
            rebuild: Delete the index first.
        """
        del skills, progress, rebuild
        return None


class WrappingDetector(BaseDetector):
    """A detector on top of another one, which ranks, explains and keeps the index."""

    def __init__(self, detector: Detector) -> None:
        self.detector = as_base(detector)

    def rank(
        self, goal_text: str, skills: Sequence[Skill], limit: int = 50, *, reasons: bool = True
    ) -> list[Match]:
        """Return the ranking of the other detector."""
        return self.detector.rank(goal_text, skills, limit, reasons=reasons)

    def place(self, goal_text: str, skills: Sequence[Skill], skill: Skill) -> RankExplanation:
        """Return the explanation of the other detector."""
        return self.detector.place(goal_text, skills, skill)

    def prepare(
        self,
        skills: Sequence[Skill],
        progress: Callable[[int], None] | None = None,
        *,
        rebuild: bool = False,
    ) -> IndexReport | None:
        """Build or update the index of the other detector."""
        return self.detector.prepare(skills, progress, rebuild=rebuild)


class UserDetector(BaseDetector):
    """Adapts a user's detector that only implements `detect`, and validates its result."""

    def __init__(self, detector: Detector) -> None:
        self._detector = detector
        self.name = detector_name(detector)

    def detect(self, goal_text: str, skills: Sequence[Skill]) -> list[Match]:
        """Return the result of the wrapped detector as matches."""
        return check_matches(self, self._detector.detect(goal_text, skills), skills)


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


def detector_name(detector: object) -> str:
    """Return the name of a detector in results and traces."""
    return str(getattr(detector, "name", "") or type(detector).__name__)


def check_matches(detector: object, result: Any, skills: Sequence[Skill] = ()) -> list[Match]:
    """Validate the result of a detector: a list of matches, or of names of `skills`.

    Raises:
        InvalidInput: it is something else, or a name is none of theirs; the message names the
            detector.
    """
    if isinstance(result, Match) or not isinstance(result, list | tuple):
        raise _invalid_result(
            detector, f"returned {_describe_type(result)}, not a list of `Match` objects or names"
        )
    entries = cast("list[Any]", result)
    matches: list[Match] = []
    for index, entry in enumerate(entries):
        if isinstance(entry, str):
            score = round(1.0 - index / len(entries), 3)
            matches.append(Match(entry, score, "", (), _find_named(detector, entry, skills)))
        elif isinstance(entry, Match):
            matches.append(entry)
        else:
            raise _invalid_result(
                detector,
                f"returned a list with {_describe_type(entry)} in it, not a `Match` or a name",
            )
    return matches


def _find_named(detector: object, name: str, skills: Sequence[Skill]) -> Skill:
    for skill in skills:
        if name in (skill.name, skill.id):
            return skill
    raise _invalid_result(
        detector, f"returned `{name}`, which is none of the skills that it was given"
    )


def check_detection(detector: object, detection: Any) -> Detection:
    """Validate the detailed result of a detector.

    Raises:
        InvalidInput: it is something else; the message names the detector.
    """
    if not isinstance(detection, Detection):
        raise _invalid_result(
            detector, f"returned {_describe_type(detection)} from `look`, not a `Detection`"
        )
    check_matches(detector, detection.matches)
    check_matches(detector, detection.runners_up)
    return detection


def _invalid_result(detector: object, problem: str) -> InvalidInput:
    return InvalidInput(
        f"The detector `{detector_name(detector)}` {problem}",
        "Return names of the given skills, or `satchel.detect.Match(name, score, reason, evidence, "
        "skill)`, best first; an empty list when nothing fits",
    )


def _describe_type(value: object) -> str:
    return "nothing" if value is None else f"a `{type(value).__name__}`"
