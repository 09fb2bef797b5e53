"""Tokenizer: terms of skills and goals, and the weights of goal terms.

    Latin and other spaced scripts    lowercase words, `camelCase` split, English stemmed
    Chinese, Japanese, Korean, Thai   signs, pairs of signs, words if a segmenter is installed

Skills and goals are tokenised alike. Weights apply to goal terms only, so that the index does not
depend on them: stop words are dropped, pairs of signs count less where whole words are known, and
the middle of a very long goal counts less than its ends, because users paste logs between two
sentences.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from typing import TYPE_CHECKING, NamedTuple, Self

from satchel._optional import available
from satchel.detect.stemmer import stem
from satchel.detect.stop_words import (
    DENSE_STOPWORDS,
    KEYWORD_STOPWORDS,
    NEVER_NAMES,
    STOP_SIGNS,
    STOPWORDS,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_SEPARATORS = re.compile("[\x00-/:-@\\[-`{-\x7f]+")
"""ASCII signs. Other characters delimit a word too: `使用pdf工具` contains the word `pdf`."""
_PUNCTUATION = dict.fromkeys(
    (ord(sign) for sign in "«·»‐‑‒–—―‘’“”•…←→−●、。《》「」『』【】・"), " "
)
# Thai, Lao, Myanmar, Khmer, and everything from the CJK radicals to the ideographs.
_DENSE_RUN = re.compile(
    "([\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\ud7ff\uf900-\ufaff\U00020000-\U0003ffff]+)"
)
# Marks apart from their letters, parts of Hangul, wide and narrow forms, ligatures. Only such texts
# are normalised: it is by far the slowest step.
_has_variant_spelling = re.compile(
    "[\u0300-\u036f\u1100-\u11ff\u3099\u309a\uff10-\uff19\uff21-\uff3a\uff41-\uff5a\uff66-\uffdc\ufb00-\ufb06]"
).search
_MAX_RUN_CHARS = 8
_MAX_STOPWORDS = 2
MAX_GOAL_TERMS = 256
MAX_TERM_CHARS = 40
"""Hashes and base64 lines are no words."""
_PAIR_WEIGHT = 0.15
_SIGN_WEIGHT = 0.3
"""A single sign, or a word of one sign, in a dense script."""
MIN_LONG_GOAL_CHARS = 3_000
"""From this length the middle of a goal counts less."""
_MAX_NAME_CHARS = 300
_EDGE_CHARS = 1_000
"""At the beginning and at the end of a long goal."""
_MIDDLE_WEIGHT = 0.4
_CAPITALISED_WEIGHT = 0.8
"""A stop word written like a name."""
_MAX_CLAUSES = 12
_MIN_CLAUSE_CHARS = 4
_AND_THEN = (
    "and|then|also|finally|next|after that|afterwards|然后|再|最后|并且|并|同时|接着|そして|그리고"
)
_CLAUSE_ENDS = re.compile(rf"(?<=[.!?;])\s+|(?<=[。！？；])|\n+|[,，、]\s*(?:{_AND_THEN})\s*")
WORD_PREFIX = "="
"""Of segmented words, since a pair of signs may be spelled the same."""
_FORMATS = (
    ("excel", "xlsx", "spreadsheet", "workbook", "csv", "=电子表格"),
    ("word", "docx"),
    ("powerpoint", "pptx", "ppt", "slides", "presentation", "=幻灯片", "=演示文稿"),
)
"""Names of the same kind of file. In 63,357 descriptions of real skills, each of them occurs with
another of its row at least 60 times as often as by chance."""
SYNONYMS = {
    stem(word): tuple(stem(other) for other in names if other != word)
    for names in _FORMATS
    for word in names
    if word != "csv"
}
"""Term -> terms that a skill may have in its place. A request for CSV has none: the skills for
spreadsheets that read it say so, and their other names would outweigh it."""
_SYNONYM_WEIGHT = 0.6
"""Two other names outweigh a verb of the request, and the name in the request outweighs each."""

# Thai, Lao, Myanmar, Khmer, and everything from the CJK radicals to Hangul.
_DENSE_SCRIPTS = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u2fff\u3005-\u3007\u3040-\u312f\u3130-\u318f"
    "\u31a0-\u31ff\u3400-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\U00020000-\U0003ffff"
)
# Combining vowels and marks belong to their word: for Latin, Greek and Cyrillic, Devanagari and the
# Indic scripts south of it, Tibetan.
_COMBINING_MARKS = (
    "\u0300-\u036f\u0483-\u0487\u0900-\u0903\u093a-\u094f\u0951-\u0957\u0962\u0963\u0f71-\u0f84"
    "\u0980-\u0983\u09bc-\u09cd\u0a01-\u0a03\u0a3c-\u0a4d\u0a81-\u0a83\u0abc-\u0acd\u0b01-\u0b03"
    "\u0b3c-\u0b57\u0b82\u0bbe-\u0bcd\u0c00-\u0c04\u0c3e-\u0c56\u0c81-\u0c83\u0cbc-\u0cd6"
    "\u0d00-\u0d03\u0d3b-\u0d4d\u0dca-\u0ddf"
)
_PIECE = re.compile(
    rf"[{_DENSE_SCRIPTS}]+|[^\W_{_DENSE_SCRIPTS}](?:[^\W_{_DENSE_SCRIPTS}]|[{_COMBINING_MARKS}])*"
)
_OPTIONAL_SIGNS = re.compile("[\u0591-\u05c7\u0610-\u061a\u0640\u064b-\u065f\u0670\u06d6-\u06ed]")
"""Optional Hebrew and Arabic signs."""
_is_in_dense_script = re.compile(rf"[{_DENSE_SCRIPTS}]").match
_has_kana_or_hangul = re.compile("[\u3040-\u30ff\uac00-\ud7ff\u0e00-\u17ff]").search
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])(?![A-Z]s(?![a-z]))")
_has_hump = re.compile(r"[a-z0-9][A-Z]|[A-Z]{2}[a-z]").search
_HUMPED_RUN = re.compile(
    r"(?<![A-Za-z0-9])[A-Za-z0-9]*?(?:[a-z0-9][A-Z]|[A-Z]{2}[a-z])[A-Za-z0-9]*"
)
SIGNED_NAMES = {"c++": "cpp", "c#": "csharp", "f#": "fsharp", ".net": "dotnet"}
"""Names with signs, and their spelling in skill names."""
_SIGNED_NAME = re.compile(
    r"(?<![a-z0-9_.])(?:c\+\+(?![a-z+])|[cf]#(?![a-z0-9#])|\.net(?![a-z0-9_]))"
)
# A capital after a lowercase word: `my Go code`, but not `Go on`, `DO NOT` or `How To Go`.
_CAPITALISED_WORD = re.compile(r"\b[a-z]+,?\s([A-Z][a-z]+|IT)\b")


class Word(NamedTuple):
    """A search word."""

    text: str
    is_bordered: bool
    """Whether its script separates words."""


def normalise_unicode(text: str) -> str:
    """Return a text in lower case and in one spelling."""
    if not text.isascii() and _has_variant_spelling(text):
        text = unicodedata.normalize("NFKC", text)
    return text.lower()


def query_key(text: str) -> str:
    """Return the words of a query or a name, each between single spaces."""
    text = normalise_unicode(text)
    if not text.isascii():
        text = text.translate(_PUNCTUATION)
    return f" {' '.join(_SEPARATORS.sub(' ', text).split())} "


def split_query(query: str) -> list[Word]:
    """Return the unique search words of a query; stop words only if there are no others."""
    words: dict[str, Word] = {}
    stop_words: dict[str, Word] = {}
    for piece in query.split():
        for part in filter(None, _DENSE_RUN.split(piece)):
            if _DENSE_RUN.match(part):
                words.update((run, Word(run, is_bordered=False)) for run in _split_dense_run(part))
            else:
                table = stop_words if part in KEYWORD_STOPWORDS else words
                table[part] = Word(part, is_bordered=True)
    if words:
        return list(words.values())
    return sorted(stop_words.values(), key=lambda word: -len(word.text))[:_MAX_STOPWORDS]


def _split_dense_run(run: str) -> list[str]:
    """Return the pairs of a run without spaces, and the run itself if it may be one word."""
    if len(run) <= 2:
        return [run]
    pairs = [run[start : start + 2] for start in range(len(run) - 1)]
    return [run, *pairs] if len(run) <= _MAX_RUN_CHARS else pairs


def extract_terms(text: str) -> list[str]:
    """Return the terms of a skill's text in order, with repetitions."""
    return terms_of_pieces(split_pieces(text))


def terms_of_pieces(pieces: Iterable[str]) -> list[str]:
    """Return the terms of the words and runs of signs of a text."""
    terms: list[str] = []
    for piece in pieces:
        if piece.isascii() or not _is_in_dense_script(piece):
            if len(piece) <= MAX_TERM_CHARS:
                terms.append(stem(piece))
            continue
        terms += piece
        terms += [piece[start : start + 2] for start in range(len(piece) - 1)]
        terms += [WORD_PREFIX + word for word in _segment(piece)]
    return terms


class GoalText(str):
    """A request with its terms.

    It is tokenised once, when it is created, and accepted wherever a text is.
    """

    __slots__ = ("name_key", "pieces", "terms")
    pieces: list[str]
    """Lowercase words and runs of signs."""
    terms: dict[str, float]
    """Unique terms with their weights."""
    name_key: str
    """The request in the normalised form of names; empty if it is longer than any name."""

    def __new__(cls, text: str) -> Self:
        """Tokenise a request."""
        goal = super().__new__(cls, text)
        weights: dict[str, float] = {}
        if len(text) <= MIN_LONG_GOAL_CHARS:
            goal.pieces = split_pieces(text)
            _add_weights(goal.pieces, 1.0, weights)
            for word in () if text[1:].islower() else _CAPITALISED_WORD.findall(text):
                lowered = word.lower()
                if lowered in STOPWORDS and lowered not in NEVER_NAMES:
                    weights.setdefault(stem(lowered), _CAPITALISED_WEIGHT)
        else:
            first, last = split_pieces(text[:_EDGE_CHARS]), split_pieces(text[-_EDGE_CHARS:])
            middle = split_pieces(text[_EDGE_CHARS:-_EDGE_CHARS])
            goal.pieces = first + middle + last
            _add_weights(first, 1.0, weights)
            _add_weights(last, 1.0, weights)
            _add_weights(middle, _MIDDLE_WEIGHT, weights)
        goal.terms = weights
        goal.name_key = query_key(text) if len(text) <= _MAX_NAME_CHARS else ""
        return goal


def add_synonyms(terms: dict[str, float]) -> dict[str, float]:
    """Return the terms of a goal with other names of the files in it, which count less."""
    if SYNONYMS.keys().isdisjoint(terms):
        return terms
    others = {other: 0.0 for term in terms for other in SYNONYMS.get(term, ())}
    for term, weight in terms.items():
        for other in SYNONYMS.get(term, ()):
            others[other] = max(others[other], _SYNONYM_WEIGHT * weight)
    return {**others, **terms}


def _add_weights(pieces: Iterable[str], share: float, weights: dict[str, float]) -> None:
    """Add the terms of a part of a goal, scaled by `share`."""
    for piece in pieces:
        if len(weights) >= MAX_GOAL_TERMS:
            break
        if piece in STOPWORDS:
            continue
        if piece.isascii() or not _is_in_dense_script(piece):
            if len(piece) <= MAX_TERM_CHARS and weights.get(term := stem(piece), 0.0) < share:
                weights[term] = share
            continue
        for term, weight in _weigh_dense_terms(piece):
            if len(weights) < MAX_GOAL_TERMS or term in weights:
                weights[term] = max(weight * share, weights.get(term, 0.0))


def _weigh_dense_terms(run: str) -> Iterator[tuple[str, float]]:
    """Yield the terms of a run of signs with their weights."""
    words = _segment(run)
    for word in words:
        if word not in DENSE_STOPWORDS:
            yield WORD_PREFIX + word, 1.0 if len(word) > 1 else _SIGN_WEIGHT
    pair_weight = _PAIR_WEIGHT if words else 1.0
    for start in range(len(run) - 1):
        pair = run[start : start + 2]
        if pair not in DENSE_STOPWORDS and not STOP_SIGNS.issuperset(pair):
            yield pair, pair_weight
    if not words:
        for sign in run:
            if sign not in STOP_SIGNS:
                yield sign, _SIGN_WEIGHT


def extract_spelt_terms(text: str) -> Iterator[tuple[str, str]]:
    """Yield the terms of a text with their spelling.

    A dense run yields its words, or its pairs without a segmenter.
    """
    for piece in split_pieces(text):
        if not _is_in_dense_script(piece):
            if len(piece) <= MAX_TERM_CHARS:
                yield stem(piece), piece
        elif words := _segment(piece):
            for word in words:
                yield WORD_PREFIX + word, word
        else:
            for start in range(len(piece) - 1):
                yield piece[start : start + 2], piece[start : start + 2]
            if len(piece) == 1:
                yield piece, piece


def is_dense(term: str) -> bool:
    """Whether a term is in a script without spaces."""
    return _is_in_dense_script(display_term(term)) is not None


def display_term(term: str) -> str:
    """Return the display form of a term."""
    return term.removeprefix(WORD_PREFIX)


def find_spellings(pieces: Iterable[str], terms: Iterable[str]) -> dict[str, str]:
    """Return the word of the text for each term, since stems are not readable."""
    remaining_terms = set(terms)
    spellings: dict[str, str] = {}
    for piece in pieces:
        if not _is_in_dense_script(piece) and len(piece) <= MAX_TERM_CHARS:
            term = stem(piece)
            if term in remaining_terms:
                spellings.setdefault(term, piece)
    for term in remaining_terms:
        spellings.setdefault(term, display_term(term))
    return spellings


def segmenter_name() -> str:
    """Return the name of the Chinese word segmenter; empty without one.

    Loads its dictionary, which takes 0.2 seconds: call late.
    """
    return "rjieba" if _load_segmenter() is not None else ""


def split_name(name: str) -> str:
    """Split a name into words: `getTeamStats` and `get_team_stats` -> `get Team Stats`."""
    return " ".join(_HUMP.sub(" ", name).replace("_", " ").replace("-", " ").split())


def split_pieces(text: str) -> list[str]:
    """Return the lowercase words and runs of signs of a text."""
    if not text.isascii():
        text = _OPTIONAL_SIGNS.sub("", unicodedata.normalize("NFKC", text))
    if _has_hump(text):
        # `SQLite` is found by `sqlite`, `HTMLPage` by `page`: both forms are kept.
        text = _HUMPED_RUN.sub(_add_split_form, text)
    lowered = text.lower()
    if "#" in lowered or "c++" in lowered or ".net" in lowered:
        lowered = spell_signs(lowered)
    return _PIECE.findall(lowered.replace("'", "").replace("\u2019", ""))


def spell_signs(lowered: str) -> str:
    """Replace `c#` and similar names in a lowercase text by the spelling of skill names."""
    return _SIGNED_NAME.sub(lambda match: f" {SIGNED_NAMES[match[0]]} ", lowered)


def _add_split_form(match: re.Match[str]) -> str:
    word = match[0]
    if len(word) > 2 * MAX_TERM_CHARS:
        return word
    split = _HUMP.sub(" ", word)
    return word if split == word else f"{word.lower()} {split}"  # `PDFs` is one word


def _segment(run: str) -> list[str]:
    """Return the words of a run of signs, long ones also in parts; none without a segmenter."""
    segment = _load_segmenter()
    # A Chinese dictionary would split kana and Hangul at random.
    if segment is None or _has_kana_or_hangul(run) is not None:
        return []
    return [word for word in segment(run) if not word.isspace()]


@cache
def _load_segmenter() -> Callable[[str], list[str]] | None:
    module = available("rjieba")
    return getattr(module, "cut_for_search", None)  # a broken installation may leave only a folder


def split_clauses(goal: str) -> list[str]:
    """Return the sentences of a goal, at most `_MAX_CLAUSES`."""
    clauses = [part.strip() for part in _CLAUSE_ENDS.split(goal) if part]
    clauses = [clause for clause in clauses if len(clause) >= _MIN_CLAUSE_CHARS]
    return clauses[:_MAX_CLAUSES] or [goal.strip()]
