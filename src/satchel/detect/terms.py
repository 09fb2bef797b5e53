"""Which terms does a text have, and what is each worth in a goal?

    Latin and other spaced scripts    words in lower case, `camelCase` apart, English ones stemmed
    Chinese, Japanese, Korean, Thai   single signs, pairs of signs, words where a cutter is there

Skills and goals are cut alike, or nothing would ever be found. What a term weighs is decided on the
goal's side alone, so that the index need not change with it: words that say nothing are left out,
where whole words of a dense script are known its pairs only help out, and of a very long goal the
beginning and the end count most: people paste a log between two sentences.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from typing import TYPE_CHECKING

from satchel._optional import available
from satchel.detect.idle import IDLE, IDLE_SIGNS, IDLE_WORDS, NEVER_NAMES
from satchel.detect.stems import stem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

MOST_TERMS = 256
"""Distinct terms of a goal that are looked for."""
LONGEST = 40
"""Characters of one term: a hash or a line of base64 is no word."""
_PAIR_BESIDE_WORDS = 0.15
_SIGN = 0.3
"""A single sign of a dense script; a word of one sign is no more."""
_LONG = 3_000
"""Characters from which on the middle of a goal counts less."""
_EDGE = 1_000
"""Characters of its beginning and of its end that count whole."""
_MIDDLE = 0.4
_AS_NAME = 0.8
"""A word that says nothing, written like a name."""
_IDLE_WEIGHT, _IDLE_MOST = 0.1, 2
"""What a word weighs that says nothing, where there are no others, and how many are looked for."""
_MAX_CLAUSES = 12
_MIN_CLAUSE_CHARS = 4
_AND_THEN = (
    "and|then|also|finally|next|after that|afterwards|然后|再|最后|并且|并|同时|接着|そして|그리고"
)
_CLAUSE_ENDS = re.compile(
    rf"(?<=[.!?;])\s+|(?<=[。！？；])|\n+|[,，、]\s*(?:{_AND_THEN})\s*",
)
WORD = "="
"""Before a word that a cutter found, since a pair of signs may be spelt the same."""

# Thai, Lao, Myanmar, Khmer, and everything from the CJK radicals to Hangul.
_DENSE = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u2fff\u3005-\u3007\u3040-\u312f\u3130-\u318f"
    "\u31a0-\u31ff\u3400-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\U00020000-\U0003ffff"
)
# Vowels and other marks that stand on or beside a letter are part of its word: whatever composes
# with Latin, Greek and Cyrillic, Devanagari and its neighbours to the south, Tibetan.
_MARKS = (
    "\u0300-\u036f\u0483-\u0487\u0900-\u0903\u093a-\u094f\u0951-\u0957\u0962\u0963\u0f71-\u0f84"
    "\u0980-\u0983\u09bc-\u09cd\u0a01-\u0a03\u0a3c-\u0a4d\u0a81-\u0a83\u0abc-\u0acd\u0b01-\u0b03"
    "\u0b3c-\u0b57\u0b82\u0bbe-\u0bcd\u0c00-\u0c04\u0c3e-\u0c56\u0c81-\u0c83\u0cbc-\u0cd6"
    "\u0d00-\u0d03\u0d3b-\u0d4d\u0dca-\u0ddf"
)
_PIECES = re.compile(rf"[{_DENSE}]+|[^\W_{_DENSE}](?:[^\W_{_DENSE}]|[{_MARKS}])*")
_UNWRITTEN = re.compile("[\u0591-\u05c7\u0610-\u061a\u0640\u064b-\u065f\u0670\u06d6-\u06ed]")
"""Hebrew and Arabic signs that most people leave out when they write."""
_IS_DENSE = re.compile(rf"[{_DENSE}]").match
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])(?![A-Z]s(?![a-z]))")
_HAS_HUMP = re.compile(r"[a-z0-9][A-Z]|[A-Z]{2}[a-z]").search
_RUN = re.compile(r"[A-Za-z0-9]+")
SIGNED = {"c++": "cpp", "c#": "csharp", "f#": "fsharp", ".net": "dotnet"}
"""Names that are told apart by their signs, and how they are spelt without: in a skill's name."""
_SIGNED = re.compile(r"(?<![a-z0-9_.])(?:c\+\+(?![a-z+])|[cf]#(?![a-z0-9#])|\.net(?![a-z0-9_]))")
# A capital after a small word: `my Go code`, but neither `Go on` nor `DO NOT` nor `How To Go`.
_NAMED = re.compile(r"\b[a-z]+,?\s([A-Z][a-z]+|IT)\b")


def terms_of(text: str) -> list[str]:
    """The terms of a skill's text, in order, as often as they stand there."""
    found: list[str] = []
    for piece in _pieces(text):
        if piece.isascii() or not _IS_DENSE(piece):
            if len(piece) <= LONGEST:
                found.append(stem(piece))
            continue
        found += piece
        found += [piece[at : at + 2] for at in range(len(piece) - 1)]
        found += [WORD + word for word in _cut(piece)]
    return found


def goal_terms(text: str, most: int = MOST_TERMS) -> dict[str, float]:
    """The distinct terms of a goal and what each weighs, in the order of the goal."""
    weights: dict[str, float] = {}
    if len(text) <= _LONG:
        _weigh(text, 1.0, weights, most)
        for word in _NAMED.findall(text):
            low = word.lower()
            if low in IDLE and low not in NEVER_NAMES:
                weights.setdefault(stem(low), _AS_NAME)
    else:
        _weigh(text[:_EDGE], 1.0, weights, most)
        _weigh(text[-_EDGE:], 1.0, weights, most)
        _weigh(text[_EDGE:-_EDGE], _MIDDLE, weights, most)
    return weights


def idle_words(text: str) -> list[str]:
    """The words of a short goal that say nothing, each once."""
    if len(text) > _LONG:
        return []
    return list(dict.fromkeys(piece for piece in _pieces(text) if piece in IDLE))


def pieces_of(text: str) -> list[str]:
    """The words of a text in lower case, and its runs of signs, as they stand there."""
    return _pieces(text)


def idle_terms(text: str) -> dict[str, float]:
    """The longest terms of a goal whose words all say nothing, for who searches for such words."""
    found: dict[str, float] = {}
    for piece in _pieces(text):
        if _IS_DENSE(piece):
            pairs = [piece[at : at + 2] for at in range(len(piece) - 1)]
            found.update(dict.fromkeys(pairs or [piece], _IDLE_WEIGHT))
        elif len(piece) <= LONGEST:
            found[stem(piece)] = _IDLE_WEIGHT
    return {term: found[term] for term in sorted(found, key=lambda term: -len(term))[:_IDLE_MOST]}


def _weigh(text: str, share: float, weights: dict[str, float], most: int) -> None:
    """Add the terms of a part of a goal; `share` is what the part counts."""
    for piece in _pieces(text):
        if len(weights) >= most:
            break
        if piece.isascii() or not _IS_DENSE(piece):
            if len(piece) <= LONGEST and piece not in IDLE:
                term = stem(piece)
                weights[term] = max(share, weights.get(term, 0.0))
            continue
        for term, weight in _dense_terms(piece):
            if len(weights) < most or term in weights:
                weights[term] = max(weight * share, weights.get(term, 0.0))


def _dense_terms(run: str) -> Iterator[tuple[str, float]]:
    """The terms of a run of signs, and what each weighs."""
    words = _cut(run)
    for word in words:
        if word not in IDLE_WORDS:
            yield WORD + word, 1.0 if len(word) > 1 else _SIGN
    pair = _PAIR_BESIDE_WORDS if words else 1.0
    for at in range(len(run) - 1):
        both = run[at : at + 2]
        if both not in IDLE_WORDS and not (both[0] in IDLE_SIGNS and both[1] in IDLE_SIGNS):
            yield both, pair
    if not words:
        for sign in run:
            if sign not in IDLE_SIGNS:
                yield sign, _SIGN


def spelt_terms(text: str) -> Iterator[tuple[str, str]]:
    """The terms of a text and how each is spelt there: people know no stems and no half words.

    Of a dense run that a cutter knows come its words alone, else its pairs.
    """
    for piece in _pieces(text):
        if not _IS_DENSE(piece):
            if len(piece) <= LONGEST:
                yield stem(piece), piece
        elif words := _cut(piece):
            for word in words:
                yield WORD + word, word
        else:
            for at in range(len(piece) - 1):
                yield piece[at : at + 2], piece[at : at + 2]
            if len(piece) == 1:
                yield piece, piece


def is_dense(term: str) -> bool:
    """Whether a term is of a script that writes no spaces."""
    return _IS_DENSE(shown(term)) is not None


def shown(term: str) -> str:
    """A term as people see it."""
    return term.removeprefix(WORD)


def words_shown(text: str, terms: Iterable[str]) -> dict[str, str]:
    """For each term the word of the text that it stands for: people know no stems."""
    wanted = set(terms)
    found: dict[str, str] = {}
    for piece in _pieces(text):
        if not _IS_DENSE(piece) and len(piece) <= LONGEST:
            core = stem(piece)
            if core in wanted:
                found.setdefault(core, piece)
    for term in wanted:
        found.setdefault(term, shown(term))
    return found


def cutter() -> str:
    """Who cuts Chinese into words; nobody is empty. Other cutters make other terms.

    Its dictionary is read for the answer, which takes a fifth of a second: ask late.
    """
    return "rjieba" if _cutter() is not None else ""


def spelt_out(name: str) -> str:
    """A name as one would say it: `getTeamStats` and `get_team_stats` are `get Team Stats`."""
    return " ".join(_HUMP.sub(" ", name).replace("_", " ").replace("-", " ").split())


def _pieces(text: str) -> list[str]:
    if not text.isascii():
        text = _UNWRITTEN.sub("", unicodedata.normalize("NFKC", text))
    if _HAS_HUMP(text):
        # `SQLite` is found by `sqlite`, `HTMLPage` by `page`: such words stand whole and apart.
        text = _RUN.sub(_whole_and_apart, text)
    return _PIECES.findall(unsigned(text.lower()).replace("'", "").replace("\u2019", ""))


def unsigned(low: str) -> str:
    """A text in lower case with `c#` and its like spelt in letters, as skills are named."""
    if "c++" not in low and "#" not in low and ".net" not in low:
        return low
    return _SIGNED.sub(lambda found: f" {SIGNED[found[0]]} ", low)


def _whole_and_apart(found: re.Match[str]) -> str:
    word = found[0]
    if len(word) > 2 * LONGEST or not _HAS_HUMP(word):
        return word
    apart = _HUMP.sub(" ", word)
    return word if apart == word else f"{word.lower()} {apart}"  # `PDFs` is one word


def _cut(run: str) -> list[str]:
    """The words of a run of signs, long ones also in parts; none without a cutter."""
    cut = _cutter()
    # Kana and Hangul are other languages: a Chinese dictionary would only cut them at random.
    if cut is None or not _is_chinese(run):
        return []
    return [word for word in cut(run) if not word.isspace()]


_KANA_OR_HANGUL = re.compile("[\u3040-\u30ff\uac00-\ud7ff\u0e00-\u17ff]").search


def _is_chinese(run: str) -> bool:
    return _KANA_OR_HANGUL(run) is None


@cache
def _cutter() -> Callable[[str], list[str]] | None:
    module = available("rjieba")
    return getattr(module, "cut_for_search", None)  # of half a package there may be only a folder


def clauses(goal: str) -> list[str]:
    """The sentences of a goal, at most `_MAX_CLAUSES`; the goal itself when it is one."""
    parts = [part.strip() for part in _CLAUSE_ENDS.split(goal) if part]
    found = [part for part in parts if len(part) >= _MIN_CLAUSE_CHARS]
    return found[:_MAX_CLAUSES] or [goal.strip()]
