"""Similar skills in a library: near copies and confusable pairs.

The similarity of two skills is the cosine of the words of their descriptions, weighted by rarity in
the library. It is symmetric, and the shared words are shown. Names are ignored: a copy under
another name is a copy.

Comparing all pairs would take two thousand million comparisons for 70,000 skills. With words
ordered from common to rare, two skills above a bound share a word at the rare end of both. Only
those ends are indexed, and the bound rises as better pairs are found. Candidates that share only
common words are skipped when the weight of those words cannot reach the bound. The result is exact.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right, insort
from collections import Counter, defaultdict
from heapq import heappush, heappushpop
from typing import TYPE_CHECKING, Any, NamedTuple

from satchel.authoring.trigger_tests import DENSE, is_significant
from satchel.detect.tokenizer import (
    DENSE_STOPWORDS,
    STOP_SIGNS,
    STOPWORDS,
    WORD,
    pieces_of,
    stem,
    terms_of,
    words_shown,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

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
_RUNS = re.compile(f"{DENSE.pattern}+")
_GRAMMAR = "".join(STOP_SIGNS - frozenset("会能可有用不以于")) + "、。，・"
"""Signs that no word of a dense script begins or ends with."""
_MAX_RUN_CHARS = 8
_MAX_ROW_INDEX = 1 << 62


class OverlapPair(NamedTuple):
    """A pair of similar skills."""

    one: Skill
    other: Skill
    score: float
    shared: tuple[str, ...]
    """Shared words, heaviest first."""
    apart: tuple[tuple[str, ...], tuple[str, ...]]
    """Words of the first only, and of the second only."""

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
                {"name": skill.name, "ref": skill.ref, "path": skill.path, "only": list(only)}
                for skill, only in zip((self.one, self.other), self.apart, strict=True)
            ],
            "shared": list(self.shared),
        }


class OverlapGroup(NamedTuple):
    """A group of near copies."""

    skills: tuple[Skill, ...]
    score: float
    """The similarity of the first and the farthest one."""

    def to_dict(self) -> dict[str, Any]:
        """The form for `--json`."""
        rows = [{"name": one.name, "ref": one.ref, "path": one.path} for one in self.skills]
        return {"score": round(self.score, 3), "count": len(rows), "skills": rows}


class Overlap(NamedTuple):
    """The overlap of a library."""

    skills: int
    groups: list[OverlapGroup]
    """Near copies. In `pairs` each group is represented by its first skill."""
    pairs: list[OverlapPair]
    """Most similar first."""
    more: bool
    """Whether more pairs were found than requested."""

    @property
    def worst(self) -> float:
        """The highest score."""
        scores = [one.score for one in (*self.groups, *self.pairs)]
        return max(scores, default=0.0)


_Row = dict[str, float]
"""Word -> weight; normalised to length 1."""
_End = list[tuple[str, float]]
"""Words from common to rare, each with the length of the row up to it."""


def text_of(skill: Skill) -> str:
    """Return the texts of a skill without its name."""
    text = skill.description[:_MAX_DESCRIPTION_CHARS]
    if skill.head.extra:
        text = f"{text} {skill.when_to_use[:_MAX_DESCRIPTION_CHARS]} {' '.join(skill.tags)}"
    return text


def significant_terms(text: str) -> set[str]:
    """Return its terms without stop words.

    Pairs of signs are used for dense scripts: they do not depend on a dictionary.
    """
    return {
        term
        # Lowercase first, or `PDFs` would also be split.
        for term in terms_of(text.lower())
        if term not in _IDLE and term[0] != WORD and (len(term) > 1 or term.isascii())
    }


def compare(
    skills: Sequence[Skill],
    *,
    least: float = MIN_CONFUSABLE_SCORE,
    limit: int = 20,
    progress: Progress | None = None,
) -> Overlap:
    """Find near copies, and the most similar other pairs.

    Args:
        skills: Skills that are offered together.
        least: The minimum score of pairs.
        limit: The number of pairs.
        progress: Called with the progress.
    """
    tell: Progress = progress or _no_progress
    total = 3 * len(skills)
    rows = _rows(skills, lambda done: tell(done, total))
    # Equal texts need no comparison.
    same: dict[frozenset[str], list[int]] = {}
    for at, row in enumerate(rows):
        same.setdefault(frozenset(row), []).append(at)
    firsts = [found[0] for words, found in same.items() if words]
    leads = _representatives(rows, firsts, lambda done: tell(len(skills) + done, total))
    for words, found in same.items():
        for at in found if words else ():
            leads.setdefault(at, leads[found[0]])
    groups = _groups(skills, rows, leads)
    heads = [at for at in firsts if leads[at] == at]
    bound = max(least, _MIN_SCORE)
    # One more than requested, to detect more.
    best = _closest_pairs(
        rows, heads, bound, limit + 1, lambda done: tell(2 * len(skills) + done, total)
    )
    pairs: list[OverlapPair] = []
    for score, one, other in best:
        first, second = sorted((one, other), key=lambda at: skills[at].ref)
        pairs.append(_pair(skills, rows, first, second, score))
    pairs.sort(key=lambda pair: (-round(pair.score, 6), pair.one.ref, pair.other.ref))
    tell(total, total)
    return Overlap(len(skills), groups, pairs[:limit], len(pairs) > limit)


def _no_progress(_done: int, _total: int) -> None: ...


def compare_one(
    skill: Skill,
    skills: Sequence[Skill],
    *,
    least: float = MIN_CONFUSABLE_SCORE,
    limit: int = 20,
    progress: Progress | None = None,
) -> Overlap:
    """Return skills that are confusable with one, near copies included."""
    tell: Progress = progress or _no_progress
    rows = _rows(skills, lambda done: tell(done, len(skills)))
    own = next(at for at, one in enumerate(skills) if one.path == skill.path)
    found = [
        (score, at)
        for at, row in enumerate(rows)
        if at != own and (score := _score(rows[own], row)) >= max(least, _MIN_SCORE)
    ]
    found.sort(key=lambda pair: (-round(pair[0], 6), skills[pair[1]].ref))
    pairs = [_pair(skills, rows, own, at, score) for score, at in found[:limit]]
    return Overlap(len(skills), [], pairs, len(found) > limit)


def _rows(skills: Sequence[Skill], tell: Callable[[int], None]) -> list[_Row]:
    said: list[set[str]] = []
    for at, skill in enumerate(skills):
        said.append(significant_terms(text_of(skill)))
        if not at % 256:
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
    score = 0.0
    for word in one.keys() & other.keys():
        score += one[word] * other[word]
    return min(score, 1.0)


class _Index:
    """Index of rows by the words at their rare end, longest prefix first.

    Two rows that share a word but no rarer one score at most the product of their prefix lengths up
    to that word; below the bound they are skipped.
    """

    def __init__(self) -> None:
        self._rows: defaultdict[str, list[tuple[float, int]]] = defaultdict(list)

    def add(self, at: int, end: _End) -> None:
        for word, length in end:
            insort(self._rows[word], (-length, at))

    def near(self, end: _End, bound: float) -> set[int]:
        """Return rows that may reach the bound together with this one."""
        found: set[int] = set()
        for word, length in end:
            rows = self._rows.get(word)
            if rows is not None:
                last = bisect_right(rows, (_MIN_SCORE - bound / length, _MAX_ROW_INDEX))
                found.update(at for _, at in rows[:last])
        return found


def _closest_pairs(
    rows: list[_Row], which: Sequence[int], bound: float, limit: int, tell: Callable[[int], None]
) -> list[tuple[float, int, int]]:
    index = _Index()
    best: list[tuple[float, int, int]] = []
    for done, at in enumerate(which):
        if not done % 256:
            tell(done)
        end = _rare_end(rows[at], bound)
        for other in index.near(end, bound):
            score = _score(rows[at], rows[other])
            if score < bound:
                continue
            pair = (score, other, at)
            if len(best) < limit:
                heappush(best, pair)
            else:
                heappushpop(best, pair)
            if len(best) == limit:
                bound = max(bound, best[0][0])
        index.add(at, end)
    return best


def _rare_end(row: _Row, bound: float) -> _End:
    """Return the words of which any pair above the bound shares one.

    Each comes with the prefix length of the row up to it, starting with the most common.
    """
    left = 0.0
    end: _End = []
    for word, weight in sorted(row.items(), key=lambda item: (item[1], item[0])):
        left += weight * weight
        if left >= bound * bound - _MIN_SCORE:
            end.append((word, math.sqrt(left)))
    return end


def _representatives(
    rows: list[_Row], firsts: Sequence[int], tell: Callable[[int], None]
) -> dict[int, int]:
    """Map each near copy to its representative, the first similar skill.

    Represented skills are not compared again, however many copies there are.
    """
    index = _Index()
    place: dict[int, int] = {}
    leads: dict[int, int] = {}
    for done, at in enumerate(firsts):
        if not done % 256:
            tell(done)
        end = _rare_end(rows[at], MIN_COPY_SCORE)
        near = sorted(index.near(end, MIN_COPY_SCORE), key=place.__getitem__)
        lead = next((one for one in near if _score(rows[at], rows[one]) >= MIN_COPY_SCORE), at)
        leads[at] = lead
        if lead == at:
            place[at] = done
            index.add(at, end)
    return leads


def _groups(skills: Sequence[Skill], rows: list[_Row], leads: dict[int, int]) -> list[OverlapGroup]:
    members: defaultdict[int, list[int]] = defaultdict(list)
    for at in sorted(leads):
        members[leads[at]].append(at)
    groups = [
        OverlapGroup(
            tuple(skills[at] for at in (lead, *(one for one in found if one != lead))),
            min(_score(rows[lead], rows[at]) for at in found if at != lead),
        )
        for lead, found in members.items()
        if len(found) > 1
    ]
    groups.sort(key=lambda group: (-len(group.skills), -round(group.score, 6), group.skills[0].ref))
    return groups


def _pair(
    skills: Sequence[Skill], rows: list[_Row], one: int, other: int, score: float
) -> OverlapPair:
    texts = [text_of(skills[at]).lower() for at in (one, other)]
    shared, first = _split_words(rows[one], rows[other], *texts)
    _, second = _split_words(rows[other], rows[one], *reversed(texts))
    return OverlapPair(skills[one], skills[other], score, shared, (first, second))


def _split_words(
    row: _Row, others: _Row, text: str, beside: str
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Split the words of a text into those shared with another text and its own.

    Terms are compared; words are returned as spelled.
    """
    shared: dict[str, float] = {}
    alone: dict[str, float] = {}
    spelt = words_shown(pieces_of(text), row)
    for term, weight in row.items():
        if not DENSE.search(term):
            found = shared if term in others else alone
            found[spelt[term]] = weight
    for run in _RUNS.findall(text):
        for word, both in _dense_words(run, row, others, beside):
            pairs = [word[at : at + 2] for at in range(len(word) - 1)]
            found = shared if both else alone
            found[word] = max(row.get(pair, 0.0) for pair in pairs)
    # One of 合同条款 and 条款 suffices; if both texts contain 合同, the own word is 条款.
    return _weightiest(shared, ()), _weightiest(alone, shared)


def _weightiest(words: dict[str, float], known: Iterable[str]) -> tuple[str, ...]:
    dense = [word for word in words if DENSE.search(word)]
    old = [word for word in known if DENSE.search(word)]
    new = [word for word in dense if not any(one in word for one in old)]
    whole = {word for word in new if not any(word != one and word in one for one in new)}
    kept = [word for word in words if word in whole or not DENSE.search(word)]
    return tuple(sorted(kept, key=lambda word: (-words[word], word))[:_MAX_WORDS_SHOWN])


def _dense_words(run: str, row: _Row, others: _Row, beside: str) -> Iterator[tuple[str, bool]]:
    """Return the words of a run of signs, and whether the other text has them.

    Without a dictionary: the shared substrings, and the rest between them.
    """
    cut = [term.removeprefix(WORD) for term in terms_of(run) if term[0] == WORD]
    if cut:
        yield from (
            (word, word in beside) for word in cut if len(word) > 1 and is_significant(word)
        )
        return
    stretch, both = "", False
    for at, sign in enumerate(run):
        around = (run[at - 1 : at + 1] if at else "", run[at : at + 2])
        here = any(pair in row and pair in others for pair in around)
        joined = not stretch or not here or around[0] in others
        if stretch and (here != both or not joined):
            yield from _stretch(stretch, both=both)
            stretch = ""
        both = here
        stretch += sign
    yield from _stretch(stretch, both=both)


def _stretch(text: str, *, both: bool) -> Iterator[tuple[str, bool]]:
    text = text.strip(_GRAMMAR)
    if 1 < len(text) <= _MAX_RUN_CHARS and is_significant(text):
        yield text, both
