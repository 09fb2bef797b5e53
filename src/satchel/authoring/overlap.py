"""Similar skills in a library: near copies and confusable pairs.

The similarity of two skills is the cosine of the words of their descriptions, weighted by rarity in
the library. It is symmetric, and the shared words are shown. Names are ignored: a copy under
another name is a copy.

Not all pairs are compared: with words ordered from common to rare, two skills above a bound share a
word at the rare end of both. Only those ends are indexed, and the bound rises as better pairs are
found. The result is exact.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from heapq import heappush, heappushpop
from typing import TYPE_CHECKING, Any, NamedTuple

from satchel.detect.tokenizer import (
    DENSE_STOPWORDS,
    STOPWORDS,
    WORD,
    pieces_of,
    stem,
    terms_of,
    words_shown,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from satchel.skill import Skill

    Progress = Callable[[int, int], None]
    """Called with the number of processed skills and the total."""

MIN_COPY_SCORE = 0.9
MIN_CONFUSABLE_SCORE = 0.3
"""Of the detector's mistakes among 4,076 tools, 59 % are between pairs above it, which are 0.4 % of
all."""
_MAX_WORDS_SHOWN = 6
_MIN_LIBRARY_SKILLS = 100
"""A smaller library is treated as this large, since it has no reliable word rarity."""
_MIN_SCORE = 1e-9
_MAX_DESCRIPTION_CHARS = 2_000
_IDLE = frozenset(map(stem, STOPWORDS)) | DENSE_STOPWORDS
_DENSE_RUNS = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\ud7ff\uf900-\ufaff\U00020000-\U0003ffff]+"
)
"""Runs of scripts that write no spaces."""

_Row = dict[str, float]
"""Word -> weight; normalised to length 1."""


class OverlapPair(NamedTuple):
    """A pair of similar skills."""

    one: Skill
    other: Skill
    score: float
    shared: tuple[str, ...]
    """Shared words, heaviest first."""

    @property
    def copy(self) -> bool:
        """Whether they are near copies."""
        return self.score >= MIN_COPY_SCORE

    def to_dict(self) -> dict[str, Any]:
        """The form for `--json`."""
        return {
            "score": round(self.score, 3),
            "copy": self.copy,
            "skills": [
                {"name": skill.name, "ref": skill.ref, "path": skill.path}
                for skill in (self.one, self.other)
            ],
            "shared": list(self.shared),
        }


class Overlap(NamedTuple):
    """The overlap of a library."""

    skills: int
    pairs: list[OverlapPair]
    """Most similar first."""
    more: bool
    """Whether more pairs were found than requested."""


def compare(
    skills: Sequence[Skill],
    only: Skill | None = None,
    *,
    least: float = MIN_CONFUSABLE_SCORE,
    limit: int = 20,
    progress: Progress | None = None,
) -> Overlap:
    """Find the most similar pairs.

    Args:
        skills: Skills that are offered together.
        only: One of them: pairs with this one alone.
        least: The minimum score of pairs.
        limit: The number of pairs.
        progress: Called with the progress.
    """

    def tell(done: int) -> None:
        if progress is not None and not done % 256:
            progress(done, 2 * len(skills))

    rows = _rows(skills, tell)
    bound = max(least, _MIN_SCORE)
    # One more than requested, to detect more.
    if only is None:
        found = _closest_pairs(rows, bound, limit + 1, tell)
    else:
        own = next(at for at, one in enumerate(skills) if one.path == only.path)
        scores = ((_score(rows[own], row), own, at) for at, row in enumerate(rows) if at != own)
        found = [pair for pair in scores if pair[0] >= bound]
    pairs: list[OverlapPair] = []
    for score, one, other in found:
        if only is None and skills[other].ref < skills[one].ref:
            one, other = other, one  # noqa: PLW2901 - in the order of their refs
        shared = _shared_words(skills[one], rows[one], rows[other])
        pairs.append(OverlapPair(skills[one], skills[other], score, shared))
    pairs.sort(key=lambda pair: (-round(pair.score, 6), pair.one.ref, pair.other.ref))
    return Overlap(len(skills), pairs[:limit], len(pairs) > limit)


def _text(skill: Skill) -> str:
    """Return the texts of a skill without its name."""
    text = skill.description[:_MAX_DESCRIPTION_CHARS]
    if skill.head.extra:
        text = f"{text} {skill.when_to_use[:_MAX_DESCRIPTION_CHARS]} {' '.join(skill.tags)}"
    return text.lower()  # or `PDFs` would also be split


def _significant_terms(text: str) -> set[str]:
    """Return its terms without stop words.

    Pairs of signs are used for dense scripts: they do not depend on a dictionary.
    """
    return {
        term
        for term in terms_of(text)
        if term not in _IDLE and term[0] != WORD and (len(term) > 1 or term.isascii())
    }


def _rows(skills: Sequence[Skill], tell: Callable[[int], None]) -> list[_Row]:
    said: list[set[str]] = []
    for at, skill in enumerate(skills):
        said.append(_significant_terms(_text(skill)))
        tell(at)
    counts = Counter(word for words in said for word in words)
    # Copies make their own words common: few skills give no reliable rarity.
    total = max(len(said), _MIN_LIBRARY_SKILLS)
    weights = {word: math.log(1 + total / count) for word, count in counts.items()}
    rows: list[_Row] = []
    for words in said:
        length = math.sqrt(sum(weights[word] ** 2 for word in words)) or 1.0
        rows.append({word: weights[word] / length for word in words})
    return rows


def _score(one: _Row, other: _Row) -> float:
    return min(sum(one[word] * other[word] for word in one.keys() & other.keys()), 1.0)


def _closest_pairs(
    rows: list[_Row], bound: float, limit: int, tell: Callable[[int], None]
) -> list[tuple[float, int, int]]:
    index: defaultdict[str, list[int]] = defaultdict(list)
    best: list[tuple[float, int, int]] = []
    for at, row in enumerate(rows):
        tell(len(rows) + at)
        end = _rare_end(row, bound)
        for other in {other for word in end for other in index.get(word, ())}:
            score = _score(row, rows[other])
            if score < bound:
                continue
            if len(best) < limit:
                heappush(best, (score, other, at))
            else:
                heappushpop(best, (score, other, at))
            if len(best) == limit:
                bound = max(bound, best[0][0])
        for word in end:
            index[word].append(at)
    return best


def _rare_end(row: _Row, bound: float) -> list[str]:
    """Return the words of which any pair above the bound shares one."""
    left = 0.0
    end: list[str] = []
    for word, weight in sorted(row.items(), key=lambda item: (item[1], item[0])):
        left += weight * weight
        if left >= bound * bound - _MIN_SCORE:
            end.append(word)
    return end


def _shared_words(skill: Skill, row: _Row, other: _Row) -> tuple[str, ...]:
    """Return the shared words as the first skill spells them, heaviest first."""
    text = _text(skill)
    shared = row.keys() & other.keys()
    spelt = words_shown(pieces_of(text), shared)
    found = {spelt[term]: row[term] for term in shared if not _DENSE_RUNS.match(term)}
    for run in _DENSE_RUNS.findall(text):
        for word in _shared_runs(run, shared):
            found[word] = max(row[word[at : at + 2]] for at in range(len(word) - 1))
    return tuple(sorted(found, key=lambda word: (-found[word], word))[:_MAX_WORDS_SHOWN])


def _shared_runs(run: str, shared: set[str]) -> Iterator[str]:
    """Yield the longest parts of a run of signs of which every pair is shared."""
    part = ""
    for at, sign in enumerate(run):
        if part and run[at - 1 : at + 1] in shared:
            part += sign
            continue
        if len(part) > 1:
            yield part
        part = sign
    if len(part) > 1:
        yield part
