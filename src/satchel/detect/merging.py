"""How are the answers of several detectors made one, and what is left out of them?

Scores of two detectors say nothing about each other, so lists are merged by rank: whoever was
called by name first, then the first of each list, then the second of each. A skill that several
lists have stands where its best rank puts it, before those that fewer lists have. The scores of a
merged list are 1, 1/2, 1/3 and so on: an order and no measure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from satchel.detect.base import Answer, Match

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from satchel.detect.base import Place
    from satchel.skill import Skill

EXPLICIT = "explicit"
"""The detector of whoever was called by name."""


def interleave(lists: Sequence[Sequence[Match]]) -> list[Match]:
    """One list of several, by rank; a single list stays as it is."""
    lists = [matches for matches in lists if matches]
    if len(lists) <= 1:
        return list(lists[0]) if lists else []
    seen: dict[str, list[tuple[int, int, Match]]] = {}
    for number, matches in enumerate(lists):
        for rank, match in enumerate(matches):
            there = seen.setdefault(match.name, [])
            if all(other != number for _, other, _ in there):
                there.append((rank, number, match))

    def key(found: list[tuple[int, int, Match]]) -> tuple[bool, int, int, int]:
        called = any(match.detector == EXPLICIT for _, _, match in found)
        rank, number, _ = min(found, key=lambda one: one[:2])
        return (not called, rank, -len(found), number)

    ordered = sorted(seen.values(), key=key)
    return [_joined(found, 1 / at) for at, found in enumerate(ordered, 1)]


def _joined(found: list[tuple[int, int, Match]], score: float) -> Match:
    """One match of several for the same skill; the one that called it by name speaks first."""
    matches = [match for _, _, match in sorted(found, key=lambda one: one[:2])]
    matches.sort(key=lambda match: match.detector != EXPLICIT)
    first = matches[0]
    reasons = dict.fromkeys(match.reason for match in matches if match.reason)
    evidence = dict.fromkeys(item for match in matches for item in match.evidence)
    return first._replace(score=score, reason="; ".join(reasons), evidence=tuple(evidence))


def unite(answers: Sequence[Answer], limit: int, runners: int) -> Answer:
    """One answer of several; at most `limit` matches, if it is not 0."""
    merged = interleave([answer.matches for answer in answers])
    called = sum(match.detector == EXPLICIT for match in merged)
    cut = max(limit, called) if limit else len(merged)
    chosen = merged[:cut]
    known = {match.name for match in chosen}
    others = interleave([merged[cut:], *(answer.runners_up for answer in answers)])
    surest = max(answers, key=lambda answer: (bool(answer.matches), answer.fit))
    deciders = dict.fromkeys(answer.detector for answer in answers if answer.matches)
    return Answer(
        chosen,
        [match for match in others if match.name not in known][:runners],
        surest.fit,
        surest.threshold,
        "+".join(deciders or dict.fromkeys(answer.detector for answer in answers)),
        sum(answer.took_ms for answer in answers),
        each_once(note for answer in answers for note in answer.notes),
        tuple(dict.fromkeys(pair for answer in answers for pair in answer.collapsed)),
        add_costs(answer.cost for answer in answers),
    )


def without(answer: Answer, ruled_out: Mapping[str, str]) -> Answer:
    """The answer without some skills.

    Args:
        answer: Whose answer.
        ruled_out: Names, and the note for each; it is added if the skill was chosen, or came next.
    """
    if not ruled_out:
        return answer
    matches = [match for match in answer.matches if match.name not in ruled_out]
    rest = [match for match in answer.runners_up if match.name not in ruled_out]
    there = (*answer.matches, *answer.runners_up)
    notes = [ruled_out[match.name] for match in there if match.name in ruled_out]
    return answer._replace(
        matches=matches,
        runners_up=rest,
        # The verdict was about the first one; of those that are left none was judged so.
        fit=answer.fit if matches or not answer.matches else 0.0,
        notes=each_once((*answer.notes, *notes)),
        collapsed=tuple(pair for pair in answer.collapsed if not ruled_out.keys() & {*pair}),
    )


def denied(place: Place, skill: Skill, reason: str) -> Place:
    """The place of a skill that may not be chosen: behind everyone, and the reason."""
    if place.match is not None:
        match = place.match._replace(reason=reason)
    else:
        match = Match(skill.name, 0.0, reason, (), skill)
    return place._replace(rank=0, match=match)


def add_costs(costs: Iterable[dict[str, float] | None]) -> dict[str, float] | None:
    """What all of them cost; None when nothing was charged."""
    total: dict[str, float] = {}
    for cost in costs:
        for key, value in (cost or {}).items():
            total[key] = total.get(key, 0.0) + value
    return total or None


def each_once(notes: Iterable[str]) -> tuple[str, ...]:
    """Notes in their order, none of them twice."""
    return tuple(dict.fromkeys(notes))
