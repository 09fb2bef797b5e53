"""Which skills are near copies of one another? People install the same skill from three places.

Two skills are twins when their descriptions share almost all their terms, and the goal has none of
those that tell them apart: `send to Discord` and `send to Telegram` are no copies for who says
where. Only the few that would be shown are compared, each cut once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from satchel.detect.terms import terms_of

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from satchel.skill import Skill

ALIKE = 0.9
"""Shared terms over all terms, from which two descriptions are one."""
_COMPARED = 1_000
"""Characters of a description that are compared."""
_SHORT = 6
"""A description of fewer terms says too little to be compared: its name must be the same too."""


class _Said(NamedTuple):
    """What one skill says of itself, cut once."""

    name: str
    words: frozenset[str]


def is_twin(one: Skill, other: Skill, goal: Container[str] = ()) -> bool:
    """Whether two skills say the same of themselves, as far as a goal's terms can tell."""
    return _alike(_said(one), _said(other), goal)


def collapse(
    skills: Sequence[Skill], goal: Container[str] = (), most: int | None = None
) -> tuple[list[int], list[tuple[int, int]]]:
    """Which of some ranked skills stand for themselves, and which for whom the others.

    Args:
        skills: Best first.
        goal: The goal's terms.
        most: How many are to stay; who comes later is not looked at.

    Returns:
        Positions that stay, and pairs of a near copy and the position that stands for it.
    """
    kept: list[int] = []
    copies: list[tuple[int, int]] = []
    said: list[_Said] = []
    for at, skill in enumerate(skills):
        if most is not None and len(kept) >= most:
            break
        said.append(_said(skill))
        for earlier in kept:
            if _alike(said[earlier], said[at], goal):
                copies.append((at, earlier))
                break
        else:
            kept.append(at)
    return kept, copies


def _alike(one: _Said, other: _Said, goal: Container[str]) -> bool:
    first, second = one.words, other.words
    fewer, more = sorted((len(first), len(second)))
    if fewer < ALIKE * more or len(first & second) < ALIKE * len(first | second):
        return False  # the common case, and nothing was cut for it
    if fewer < _SHORT and (first != second or one.name != other.name):
        return False
    both = set(terms_of(" ".join(first & second)))
    apart = terms_of(" ".join((first | {one.name}) ^ (second | {other.name})))
    return not any(term in goal and term not in both for term in apart)


def _said(skill: Skill) -> _Said:
    text = skill.description[:_COMPARED].lower()
    words = text.split() if text.isascii() else terms_of(text)
    return _Said(skill.name.casefold().replace("_", "-"), frozenset(words))
