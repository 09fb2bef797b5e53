"""Skills that a model sees when a listing has no room for all of them.

The strategies of other skill systems, reduced to what decides: in which order skills are taken, and
how much of each is written. Every entry is counted at its barest (`- name: description` and a line
end, no rules, no paths, no frame), so each strategy lists more here than its owner does.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence


class Listed(NamedTuple):
    """A skill as far as a listing cares."""

    key: str
    name: str
    description: str


def whole(skills: Iterable[Listed], room: int) -> set[str]:
    """Name and description or nothing; who does not fit is passed over, and the next is tried."""
    seen: set[str] = set()
    for skill in skills:
        cost = len(f"- {skill.name}: {skill.description}\n")
        if cost <= room:
            seen.add(skill.key)
            room -= cost
    return seen


def names(skills: Iterable[Listed], room: int) -> set[str]:
    """Names alone, as many as fit."""
    seen: set[str] = set()
    for skill in skills:
        room -= len(f"- {skill.name}\n")
        if room < 0:
            break
        seen.add(skill.key)
    return seen


def trimmed(skills: Sequence[Listed], room: int) -> set[str]:
    """Descriptions cut evenly; where that does not fit for all, names; then as many as fit."""
    bare = sum(len(f"- {skill.name}\n") for skill in skills)
    return {skill.key for skill in skills} if bare <= room else names(skills, room)


def alphabetical(skills: Iterable[Listed]) -> list[Listed]:
    """By name, whatever its case."""
    return sorted(skills, key=lambda skill: (skill.name.casefold(), skill.key))


def by_use(skills: Iterable[Listed], uses: Mapping[str, float]) -> list[Listed]:
    """The most used first; who was never used follows by name."""
    return sorted(alphabetical(skills), key=lambda skill: -uses.get(skill.key, 0.0))


def zipf_history(skills: Sequence[Listed], draws: int, seed: int) -> dict[str, float]:
    """Usage counts of a simulated user with random favourites."""
    chance = random.Random(seed)
    order = list(skills)
    chance.shuffle(order)
    weights = [1 / rank for rank in range(1, len(order) + 1)]
    uses: dict[str, float] = {}
    for skill in chance.choices(order, weights, k=draws):
        uses[skill.key] = uses.get(skill.key, 0.0) + 1
    return uses


STRATEGIES: dict[str, Callable[[Sequence[Listed], int], set[str]]] = {
    "whole entries": whole,
    "evenly trimmed": trimmed,
    "names only": names,
}
