"""Overlapping skills: pairs that are easily confused, for `satchel check --overlap`.

The description of each skill is given to the detector as a request. A skill that is selected beside
it would be selected for such requests too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from satchel.detect import Detection
    from satchel.detect.base import BaseDetector
    from satchel.skill.model import Skill

_MAX_RIVALS = 10
_MAX_SHARED_WORDS = 6


class OverlapPair(NamedTuple):
    """A pair of similar skills."""

    first: Skill
    other: Skill
    score: float
    """The score of a skill for a request in the words of the other; the best skill has 1."""
    shared: tuple[str, ...]
    """Words that the detector found in both."""
    is_near_copy: bool = False
    """Whether they are near duplicates, of which only one is selected."""

    def to_dict(self) -> dict[str, Any]:
        """The form for `--json`."""
        return {
            "score": round(self.score, 3),
            "copy": self.is_near_copy,
            "skills": [
                {"name": skill.name, "ref": skill.ref, "path": skill.path}
                for skill in (self.first, self.other)
            ],
            "shared": list(self.shared),
        }


class Overlap(NamedTuple):
    """The overlap of a library."""

    skill_count: int
    pairs: list[OverlapPair]
    """Near duplicates first, then the others by their score."""
    is_cut: bool
    """Whether more pairs were found than requested."""


def find_overlap(
    skills: Sequence[Skill],
    detector: BaseDetector,
    skill: Skill | None = None,
    *,
    limit: int = 20,
    progress: Callable[[int, int], None] | None = None,
) -> Overlap:
    """Find the pairs of skills that are most easily confused.

    Args:
        skills: Skills that are offered together.
        detector: Selects among them; it should not act on names that a request mentions.
        skill: One of them, to find only the pairs with it; None finds all pairs.
        limit: The number of pairs.
        progress: Called with the number of processed skills and the total.
    """
    by_name = {candidate.name: candidate for candidate in skills}
    described = skills if skill is None else (skill,)
    best_pairs: dict[frozenset[str], OverlapPair] = {}
    for index, candidate in enumerate(described):
        if progress is not None:
            progress(index, len(described))
        detection = detector.look(candidate.description, skills, _MAX_RIVALS)
        for pair in _find_pairs(candidate, detection, by_name):
            refs = frozenset((candidate.ref, pair.other.ref))
            best = best_pairs.get(refs)
            if best is None or (pair.is_near_copy, pair.score) > (best.is_near_copy, best.score):
                best_pairs[refs] = _sort_skills(pair) if skill is None else pair
    pairs = sorted(
        best_pairs.values(),
        key=lambda pair: (not pair.is_near_copy, -pair.score, pair.first.ref, pair.other.ref),
    )
    return Overlap(len(skills), pairs[:limit], len(pairs) > limit)


def _find_pairs(
    skill: Skill, detection: Detection, by_name: Mapping[str, Skill]
) -> Iterator[OverlapPair]:
    """Yield the skill with each one that is selected beside it, and with its near duplicates."""
    shared_words = {match.name: _shared_words(match.evidence) for match in detection.matches}
    for match in detection.matches:
        if match.skill.path != skill.path:
            yield OverlapPair(skill, match.skill, match.score, shared_words[match.name])
    for copy, original in detection.collapsed:
        if skill.name in (copy, original):
            other = by_name[copy if original == skill.name else original]
            shared = shared_words.get(skill.name) or shared_words.get(other.name, ())
            yield OverlapPair(skill, other, 1.0, shared, is_near_copy=True)


def _sort_skills(pair: OverlapPair) -> OverlapPair:
    first, other = sorted((pair.first, pair.other), key=lambda skill: skill.ref)
    return pair._replace(first=first, other=other)


def _shared_words(evidence: Sequence[str]) -> tuple[str, ...]:
    """Return the words of `field: word` pairs, each once, without those of the body.

    Only the header says what a skill is for.
    """
    fields_and_words = (text.partition(": ")[::2] for text in evidence)
    words = (word for field, word in fields_and_words if field not in ("body", "meaning"))
    return tuple(dict.fromkeys(words))[:_MAX_SHARED_WORDS]
