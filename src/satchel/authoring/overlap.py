"""Which skills of a library are easily mistaken for each other?

Two skills are as close as the words of their descriptions: the cosine between them, where a word
weighs the more the rarer it is here. It is the same from either side, and the words that make it up
are shown. Names are left out: a copy under another name is a copy.

Every pair at once would be two thousand million comparisons for 70,000 skills. But a pair can only
be close by a rare word: where words are ordered from common to rare, two skills that are closer
than some bound share a word at the rare end of both. So only those ends are indexed, and the bound
rises as better pairs are found. Descriptions made from one pattern share many common words, which
all together make no pair close: whoever was found by a common word is passed over when all that it
has of this and commoner words is too little. The answer is exact all the same.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right, insort
from collections import Counter, defaultdict
from heapq import heappush, heappushpop
from typing import TYPE_CHECKING, Any, NamedTuple

from satchel.authoring.triggers import DENSE, tells
from satchel.detect.terms import IDLE, IDLE_SIGNS, IDLE_WORDS, WORD, stem, terms_of, words_shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from satchel.skill import Skill

    Progress = Callable[[int, int], None]
    """Told how many of how many skills are done."""

COPY = 0.9
"""From here on two descriptions are nearly the same text."""
CONFUSABLE = 0.3
"""From here on a pair is worth a look: of the mistakes that our detector makes among 4,076 tools,
59 % are between such pairs, which are 0.4 % of all."""
_SHOWN = 6
_FEW = 100
"""Skills from which on a library tells how rare a word is; a smaller one is taken for so many."""
_SLACK = 1e-9
_LONGEST = 2_000
"""Characters of a description that are compared."""
_IDLE = frozenset(map(stem, IDLE)) | IDLE_WORDS
_RUNS = re.compile(f"{DENSE.pattern}+")
_GRAMMAR = "".join(IDLE_SIGNS - frozenset("会能可有用不以于")) + "、。，・"
"""Signs that a stretch of signs does not begin or end with."""
_LONGEST_STRETCH = 8
_LAST = 1 << 62
"""After any number of a row."""


class Pair(NamedTuple):
    """Two skills that are close."""

    one: Skill
    other: Skill
    score: float
    shared: tuple[str, ...]
    """Words of both, the weightiest first."""
    apart: tuple[tuple[str, ...], tuple[str, ...]]
    """Words that only the first has, and only the second."""

    @property
    def copy(self) -> bool:
        """Whether they are near copies."""
        return self.score >= COPY

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


class Group(NamedTuple):
    """Skills that say nearly the same."""

    skills: tuple[Skill, ...]
    score: float
    """How close the farthest one is to the first."""

    def to_dict(self) -> dict[str, Any]:
        """The form for `--json`."""
        rows = [{"name": one.name, "ref": one.ref, "path": one.path} for one in self.skills]
        return {"score": round(self.score, 3), "count": len(rows), "skills": rows}


class Overlap(NamedTuple):
    """What a library has of both."""

    skills: int
    groups: list[Group]
    """Near copies. In the pairs each group is stood for by its first skill."""
    pairs: list[Pair]
    """The closest first."""
    more: bool
    """Whether there are more pairs than were asked for."""

    @property
    def worst(self) -> float:
        """The closest that any two are."""
        scores = [one.score for one in (*self.groups, *self.pairs)]
        return max(scores, default=0.0)


_Row = dict[str, float]
"""Word -> its weight; the weights of a row have the length 1."""
_End = list[tuple[str, float]]
"""Words from common to rare, each with the length of the row up to it."""


def text_of(skill: Skill) -> str:
    """What a skill says of itself, but for its name."""
    text = skill.description[:_LONGEST]
    if skill.head.extra:
        text = f"{text} {skill.when_to_use[:_LONGEST]} {' '.join(skill.tags)}"
    return text


def terms_in(text: str) -> set[str]:
    """Its words as detectors cut them, without those that say nothing.

    Of scripts without spaces the pairs of signs are taken: they are the same with and without a
    dictionary.
    """
    return {
        term
        # In lower case, or `PDFs` would be `PD` and `Fs` too.
        for term in terms_of(text.lower())
        if term not in _IDLE and term[0] != WORD and (len(term) > 1 or term.isascii())
    }


def compare(
    skills: Sequence[Skill],
    *,
    least: float = CONFUSABLE,
    limit: int = 20,
    progress: Progress | None = None,
) -> Overlap:
    """The near copies of a library, and the pairs that are closest beside them.

    Args:
        skills: Those that are offered together.
        least: Pairs below this score are left out.
        limit: How many pairs to find.
        progress: Told how far it is.
    """
    tell: Progress = progress or _untold
    total = 3 * len(skills)
    rows = _rows(skills, lambda done: tell(done, total))
    # Those with the same words need no comparing.
    same: dict[frozenset[str], list[int]] = {}
    for at, row in enumerate(rows):
        same.setdefault(frozenset(row), []).append(at)
    firsts = [found[0] for words, found in same.items() if words]
    leads = _leads(rows, firsts, lambda done: tell(len(skills) + done, total))
    for words, found in same.items():
        for at in found if words else ():
            leads.setdefault(at, leads[found[0]])
    groups = _groups(skills, rows, leads)
    heads = [at for at in firsts if leads[at] == at]
    bound = max(least, _SLACK)
    # One more than is wanted, to know whether there are more.
    best = _closest(rows, heads, bound, limit + 1, lambda done: tell(2 * len(skills) + done, total))
    pairs: list[Pair] = []
    for score, one, other in best:
        first, second = sorted((one, other), key=lambda at: skills[at].ref)
        pairs.append(_pair(skills, rows, first, second, score))
    pairs.sort(key=lambda pair: (-round(pair.score, 6), pair.one.ref, pair.other.ref))
    tell(total, total)
    return Overlap(len(skills), groups, pairs[:limit], len(pairs) > limit)


def _untold(_done: int, _total: int) -> None:
    """Nobody waits."""


def compare_one(
    skill: Skill,
    skills: Sequence[Skill],
    *,
    least: float = CONFUSABLE,
    limit: int = 20,
    progress: Progress | None = None,
) -> Overlap:
    """The skills that one is easily mistaken for; near copies are among them."""
    tell: Progress = progress or _untold
    rows = _rows(skills, lambda done: tell(done, len(skills)))
    own = next(at for at, one in enumerate(skills) if one.path == skill.path)
    found = [
        (score, at)
        for at, row in enumerate(rows)
        if at != own and (score := _score(rows[own], row)) >= max(least, _SLACK)
    ]
    found.sort(key=lambda pair: (-round(pair[0], 6), skills[pair[1]].ref))
    pairs = [_pair(skills, rows, own, at, score) for score, at in found[:limit]]
    return Overlap(len(skills), [], pairs, len(found) > limit)


def _rows(skills: Sequence[Skill], tell: Callable[[int], None]) -> list[_Row]:
    said: list[set[str]] = []
    for at, skill in enumerate(skills):
        said.append(terms_in(text_of(skill)))
        if not at % 256:
            tell(at)
    counts = Counter(word for words in said for word in words)
    # Six copies among nine skills make their own words common: few skills tell little of rareness.
    total = max(len(said), _FEW)
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
    """Rows by the words at their rare end, those that have most of a word and commoner ones first.

    Whoever shares a word but no rarer one has at most what both have of that word and commoner
    ones: the product of the two lengths. Below the bound nobody need look.
    """

    def __init__(self) -> None:
        self._rows: defaultdict[str, list[tuple[float, int]]] = defaultdict(list)

    def add(self, at: int, end: _End) -> None:
        for word, length in end:
            insort(self._rows[word], (-length, at))

    def near(self, end: _End, bound: float) -> set[int]:
        """Those that may score as much as the bound beside the row with this end."""
        found: set[int] = set()
        for word, length in end:
            rows = self._rows.get(word)
            if rows is not None:
                last = bisect_right(rows, (_SLACK - bound / length, _LAST))
                found.update(at for _, at in rows[:last])
        return found


def _closest(
    rows: list[_Row], which: Sequence[int], bound: float, limit: int, tell: Callable[[int], None]
) -> list[tuple[float, int, int]]:
    """The best `limit` pairs of those that score at least `bound`."""
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
    """The words of which any pair above the bound shares one: without them too little is left.

    Each is given with the length of all that the row has up to it, from the commonest on.
    """
    left = 0.0
    end: _End = []
    for word, weight in sorted(row.items(), key=lambda item: (item[1], item[0])):
        left += weight * weight
        if left >= bound * bound - _SLACK:
            end.append((word, math.sqrt(left)))
    return end


def _leads(rows: list[_Row], firsts: Sequence[int], tell: Callable[[int], None]) -> dict[int, int]:
    """Skill -> the one that stands for it: the first that it is a near copy of.

    Whoever is stood for by another is compared with nobody else, however many copies there are.
    """
    index = _Index()
    place: dict[int, int] = {}
    leads: dict[int, int] = {}
    for done, at in enumerate(firsts):
        if not done % 256:
            tell(done)
        end = _rare_end(rows[at], COPY)
        near = sorted(index.near(end, COPY), key=place.__getitem__)
        lead = next((one for one in near if _score(rows[at], rows[one]) >= COPY), at)
        leads[at] = lead
        if lead == at:
            place[at] = done
            index.add(at, end)
    return leads


def _groups(skills: Sequence[Skill], rows: list[_Row], leads: dict[int, int]) -> list[Group]:
    members: defaultdict[int, list[int]] = defaultdict(list)
    for at in sorted(leads):
        members[leads[at]].append(at)
    groups = [
        Group(
            tuple(skills[at] for at in (lead, *(one for one in found if one != lead))),
            min(_score(rows[lead], rows[at]) for at in found if at != lead),
        )
        for lead, found in members.items()
        if len(found) > 1
    ]
    groups.sort(key=lambda group: (-len(group.skills), -round(group.score, 6), group.skills[0].ref))
    return groups


def _pair(skills: Sequence[Skill], rows: list[_Row], one: int, other: int, score: float) -> Pair:
    texts = [text_of(skills[at]).lower() for at in (one, other)]
    shared, first = _told(rows[one], rows[other], *texts)
    _, second = _told(rows[other], rows[one], *reversed(texts))
    return Pair(skills[one], skills[other], score, shared, (first, second))


def _told(
    row: _Row, others: _Row, text: str, beside: str
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The words of a text that another one has too, and those that it has alone, as it spells them.

    What is compared are stems and pairs of signs; people know only words.
    """
    shared: dict[str, float] = {}
    alone: dict[str, float] = {}
    spelt = words_shown(text, row)
    for term, weight in row.items():
        if not DENSE.search(term):
            found = shared if term in others else alone
            found[spelt[term]] = weight
    for run in _RUNS.findall(text):
        for word, both in _dense_words(run, row, others, beside):
            pairs = [word[at : at + 2] for at in range(len(word) - 1)]
            found = shared if both else alone
            found[word] = max(row.get(pair, 0.0) for pair in pairs)
    # Of 合同条款 and 条款 one is enough; and where both say 合同, the new thing is 条款.
    return _weightiest(shared, ()), _weightiest(alone, shared)


def _weightiest(words: dict[str, float], known: Iterable[str]) -> tuple[str, ...]:
    dense = [word for word in words if DENSE.search(word)]
    old = [word for word in known if DENSE.search(word)]
    new = [word for word in dense if not any(one in word for one in old)]
    whole = {word for word in new if not any(word != one and word in one for one in new)}
    kept = [word for word in words if word in whole or not DENSE.search(word)]
    return tuple(sorted(kept, key=lambda word: (-words[word], word))[:_SHOWN])


def _dense_words(run: str, row: _Row, others: _Row, beside: str) -> Iterator[tuple[str, bool]]:
    """The words of a run of signs, and whether the other text has them.

    Without a dictionary: the stretches that both have, and what is left between them.
    """
    cut = [term.removeprefix(WORD) for term in terms_of(run) if term[0] == WORD]
    if cut:
        yield from ((word, word in beside) for word in cut if len(word) > 1 and tells(word))
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
    if 1 < len(text) <= _LONGEST_STRETCH and tells(text):
        yield text, both
