"""Explains why a skill is selected for a request, or not.

The detector ranks the skills (`RankExplanation`) and chooses among them (`Detection`); this module
puts that into words: whether a skill would be chosen, the score of each field, the skills ahead of
it, and what would help.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from satchel.i18n import join_names, render, say

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from satchel.detect import Detection, Match, RankExplanation
    from satchel.skill.model import Skill

EXPLICIT = "explicit"
"""Detector name of skills that a request mentions by name."""
MAX_WORDS_SHOWN = 6
_MAX_LATIN_WORD_CHARS, _MAX_CJK_WORD_CHARS = 32, 6
_DEMONSTRATIVES = frozenset("这那哪每各某這")
"""First characters of words such as 这份."""
_REQUEST_WORDS = frozenset(("show", "give", "tell", "find", "make", "list", "need", "want", "top"))
"""Words of requests that say nothing about a skill."""
_MIN_SCORE_SHOWN = 0.005


class SelectionExplanation(NamedTuple):
    """Whether a skill is selected for one request, and its rank."""

    goal: str
    skill: Skill
    place: RankExplanation | None
    """None when it cannot be selected: it has tools and no instructions."""
    answer: Detection
    offered: bool
    chosen: bool
    copy_of: str
    """The near duplicate that is selected in its place, or empty."""


def explain_selection(
    skill: Skill, goal: str, place: RankExplanation | None, answer: Detection
) -> SelectionExplanation:
    """Combine the rank and the detection of one skill and one goal."""
    offered = skill.state == "active" and skill.for_model and not skill.is_tool
    return SelectionExplanation(
        goal,
        skill,
        place,
        answer,
        offered,
        offered and any(match.skill.path == skill.path for match in answer.matches),
        dict(answer.collapsed).get(skill.name, "") if offered else "",
    )


# --- in words -----------------------------------------------------------------------------


def verdict(explanation: SelectionExplanation) -> Iterator[str]:
    """Yield sentences on whether it can be selected, and whether it is."""
    place, answer = explanation.place, explanation.answer
    if place is None:
        yield say("it has tools and no instructions: models call its tools, and nothing chooses it")
        return
    rank = say("rank {rank} of {count}", rank=place.rank, count=place.of)
    if not explanation.offered:
        yield say("it is not offered, so it cannot be chosen")
        if place.rank:
            yield rank
        else:
            yield say("nothing of it matches")
    elif explanation.chosen:
        yield say("it would be chosen: {rank}", rank=rank)
    elif explanation.copy_of:
        copy = say("`{name}` is a near duplicate", name=explanation.copy_of)
        yield say("it is not chosen: {reason}", reason=copy)
    else:
        reason = rank if place.rank else reason_text(place.match) if place.match else ""
        yield say("it is not chosen: {reason}", reason=reason or say("nothing of it matches"))
    if not answer.matches and answer.threshold and place.rank:
        yield say(
            "the closest reaches {fit} %, {needed} % is needed",
            fit=int(100 * answer.fit + 1e-6),
            needed=int(100 * answer.threshold + 1e-6),
        )
    elif explanation.offered and not explanation.chosen and answer.matches:
        names = join_names(f"`{match.name}`" for match in answer.matches)
        yield say("chosen instead: {names}", names=names)


def detector_and_reason(explanation: SelectionExplanation) -> tuple[str, str]:
    """The detector that selected it and its reason; empty when there is none."""
    place = explanation.place
    if place is None or place.match is None or not place.rank:
        return "", ""
    # The reason of a mentioned skill names the mention.
    called = place.match.detector == EXPLICIT
    reason = reason_text(place.match)
    return ("" if called or not reason else selected_by(place.match, explanation.answer)), reason


def label(field: str, account: Mapping[str, float]) -> str:
    """Display name of a score field; beside lexical fields, the others are of embeddings."""
    if field == "name" and ("about" in account or "head" in account):
        return say("meaning of the name")
    return {
        "explicit": say("called by name"),
        "head": say("name and description"),
        "name": say("name"),
        "description": say("description"),
        "when": say("when to use"),
        "triggers": say("triggers"),
        "body": say("instructions"),
        "about": say("meaning"),
        "clauses": say("meaning, by sentence"),
        "vectors": say("meaning"),
    }.get(field) or field


def score_differences(
    theirs: Mapping[str, float], own: Mapping[str, float]
) -> list[tuple[str, float]]:
    """The fields in which another skill scores higher, largest difference first."""
    found = [(field, value - own.get(field, 0.0)) for field, value in theirs.items()]
    return sorted((pair for pair in found if pair[1] > _MIN_SCORE_SHOWN), key=lambda pair: -pair[1])


def difference_text(match: Match, theirs: Mapping[str, float], own: Mapping[str, float]) -> str:
    """Describe why another skill ranks higher."""
    found = [
        f"{label(field, theirs)} (+{value:.2f})" for field, value in score_differences(theirs, own)
    ]
    return join_names(found) or reason_text(match)


def reason_text(match: Match) -> str:
    """The reason of a match in the user's language; empty when there is none."""
    return " ".join(render(match.reason).split()) if match.reason.strip() else ""


def selected_by(match: Match, answer: Detection) -> str:
    """Display name of the detector of a match."""
    name = match.detector or answer.detector
    if name == EXPLICIT:
        return say("called by name")
    if name in ("hybrid", "lexical", "minimal", "words"):
        by_vectors = any(item.startswith(("meaning: ", "vectors: ")) for item in match.evidence)
        return say("words and vectors") if by_vectors else say("words")
    return say("a model") if name == "model" else name


# --- what would help ----------------------------------------------------------------------


def decided_by_mention(answer: Detection) -> bool:
    """Whether mentions decided the selection."""
    return answer.detector == EXPLICIT or any(one.detector == EXPLICIT for one in answer.matches)


def missing_words(explanation: SelectionExplanation) -> list[str]:
    """Significant words of the request that the skill lacks; none when mentions decided."""
    place = explanation.place
    if place is None or decided_by_mention(explanation.answer):
        return []
    return significant_words(place.missing)


def significant_words(words: Iterable[str]) -> list[str]:
    """Keep the words that belong in a description: no stop words, no phrases."""
    from satchel.detect.tokenizer import DENSE_STOPWORDS, STOP_SIGNS, STOPWORDS

    found: list[str] = []
    for word in words:
        plain = "".join(char for char in word.casefold() if char.isalnum())
        latin = plain.isascii()
        if not plain or plain.isdigit() or plain in STOPWORDS or plain in DENSE_STOPWORDS:
            continue
        if plain in _REQUEST_WORDS:
            continue
        most = _MAX_LATIN_WORD_CHARS if latin else _MAX_CJK_WORD_CHARS
        if len(plain) > most or len(word.split()) > 1 or all(char in STOP_SIGNS for char in plain):
            continue
        if not latin and (plain[0] in _DEMONSTRATIVES or plain[:1] == plain[1:]):
            continue
        if any(char in other for other in found for char in plain if not char.isascii()):
            continue  # another segmentation of the same word
        found.append(word)
    return found


def next_steps(explanation: SelectionExplanation) -> Iterator[str]:
    """Yield the next steps for this request, most useful first."""
    place, skill = explanation.place, explanation.skill
    if place is None or explanation.chosen or (not place.rank and place.match is not None):
        return
    if explanation.copy_of:
        yield say(
            "Keep one of the two, or say in both descriptions when which of them is meant: "
            "`satchel show {name}`",
            name=explanation.copy_of,
        )
        return
    if decided_by_mention(explanation.answer):
        # Changing a description has no effect on mentions.
        if explanation.offered and explanation.answer.matches:
            yield _mention_advice(skill.name)
        return
    if not explanation.offered:
        return
    if place.ahead and explanation.answer.matches:
        yield say(
            "Say in the description of `{name}` what it is not for, if it is not for this",
            name=place.ahead[0][0].name,
        )
    if missing_words(explanation):
        yield say("Add the missing words to its description, if it is for such requests")
    yield _mention_advice(skill.name)


def _mention_advice(name: str) -> str:
    return say("Call it by its name: a request with `use skill {name}` always gets it", name=name)
