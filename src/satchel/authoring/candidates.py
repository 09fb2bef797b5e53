"""Which words of a prompt are worth trying in a description, and which of them caught it?

Only words that say what is wanted: in a description, "please" or 看看 would catch every prompt. And
words, never a whole prompt: a description that repeats its tests passes them and nothing else.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from satchel.authoring.advice import DENSE, Change, as_word
from satchel.authoring.telling import IDLE_EAST, tells
from satchel.detect.stems import stem
from satchel.detect.terms import WORD, goal_terms, terms_of
from satchel.detect.words import even

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from satchel.authoring.triggers import Row

_WORD = re.compile(r"[^\W_]+(?:['’.+#-]*[^\W_]+)*[+#]*")
_PIECES = re.compile("[\u3400-\u9fff\u3005\uf900-\ufaff]+|[\u30a1-\u30ff]+|[\uac00-\ud7ff]+")
"""Ideographs, katakana and Hangul: what words of substance are written in."""
_LONGEST = 3
"""Words of a phrase."""
_LONGEST_RUN = 4
"""Signs of a run that may be a word, where nobody cuts runs into words."""
_PARTICLES = re.compile("[的了吗呢吧呀啊们请帮我你您他她它这那把被给让]")


def akin(word: str, term: str) -> bool:
    """Whether a detector may take two words for one: `note` and `notes`."""
    return stem(word) == stem(term)


# --- words to add -------------------------------------------------------------------------


def lacking(row: Row, has: str, others_say: Callable[[str], int]) -> Iterator[Change]:
    """Words of a prompt that the skill does not have: one by one, as phrases, and two together.

    Args:
        row: The prompt that missed the skill.
        has: All that the skill says of itself.
        others_say: In how many descriptions of other skills some words are.
    """
    prompt = row.prompt.text
    has = even(has).lower()
    known = {stem(word) for word in _words(has)}
    runs: list[list[str]] = [[]]
    count = 0
    for word in _words(prompt):
        low = word.lower()
        if DENSE.search(word) or not tells(low) or stem(low) in known:
            runs.append([])
        else:
            runs[-1].append(low)
        count += not DENSE.search(word)
    missing = [word.lower() for word in row.missing]

    def weight(word: str) -> tuple[int, int]:
        """The detector's own order, then the rare ones first."""
        at = next((at for at, one in enumerate(missing) if akin(one, word)), len(missing))
        return at, others_say(word)

    dense = _dense_words(prompt, has)
    spaced = sorted((word for run in runs for word in run), key=weight)
    whole = "".join(_words(even(prompt).lower()))
    for word in (*dense, *spaced):
        # One word may be all there is; a run of signs that nobody cut is a sentence.
        if word != whole or not DENSE.search(word) or word in _cut(prompt):
            yield Change("add", word)
    for run in runs:
        for size in range(2, min(_LONGEST, len(run), count - 1) + 1):
            yield from (
                Change("add", " ".join(run[at : at + size])) for at in range(len(run) - size + 1)
            )
    if len(dense) > 1 and len("".join(dense[:2])) < len(whole):
        yield Change("add", "、".join(dense[:2]))
    elif len(spaced) > 1 and count > len(spaced[:2]):
        yield Change("add", ", ".join(spaced[:2]))


def _dense_words(prompt: str, has: str) -> list[str]:
    """The words of a script without spaces that the skill lacks; without a dictionary short runs.

    What grammar and asking are made of is cut out first, so that a run is about something.
    """
    if not DENSE.search(prompt):
        return []
    found = _cut(prompt)
    rest = even(prompt)
    for word in found:
        rest = rest.replace(word, " ")
    if not found:
        found = []
        rest = _PARTICLES.sub(" ", IDLE_EAST.sub(" ", rest))
    for run in _PIECES.findall(rest):
        if 2 <= len(run) <= _LONGEST_RUN or not "\u3400" <= run[0] <= "\u9fff":
            found.append(run)
        if len(run) > 2 and not _cut(prompt) and "\u3400" <= run[0] <= "\u9fff":
            found += [run[at : at + 2] for at in range(0, len(run) - 1, 2)]
    return [word for word in dict.fromkeys(found) if tells(word) and word not in has]


def _cut(text: str) -> list[str]:
    """The words that a dictionary finds; none without one."""
    return [term.removeprefix(WORD) for term in goal_terms(text) if term.startswith(WORD)]


def _words(text: str) -> list[str]:
    return _WORD.findall(text)


# --- words to drop ------------------------------------------------------------------------


def catching(text: str, row: Row) -> Iterator[Change]:
    """Words of the description by which a prompt caught the skill: one by one, then two."""
    caught = caught_by(text, row)
    yield from (Change("drop", word) for word in caught)
    for at in range(len(caught) - 1):
        phrase = f"{caught[at]} {caught[at + 1]}"
        if as_word(phrase).search(text):
            yield Change("drop", phrase)


def caught_by(text: str, row: Row) -> list[str]:
    """Words that a description shares with a prompt, as the description spells them."""
    seen: Sequence[str] = () if row.own is None else row.own.evidence
    terms = [piece.partition(": ")[2].lower() for piece in seen]
    terms += [word.lower() for word in _words(row.prompt.text)]
    found = [
        word
        for word in dict.fromkeys(one.lower() for one in _words(text))
        if not DENSE.search(word) and tells(word) and any(akin(word, term) for term in terms)
    ]
    prompt = set(terms_of(row.prompt.text))
    dense = _cut(text) or [term for term in terms if DENSE.search(term)]
    found += [
        word
        for word in dict.fromkeys(dense)
        if tells(word) and word in even(text) and {word, WORD + word} & prompt
    ]
    return found
