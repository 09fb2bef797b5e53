"""Explains why a skill is selected for a request, or not.

The detector ranks the skills (`RankExplanation`) and selects some of them (`Detection`). This
module puts that into words: whether a skill would be selected, the score of each field, the skills
ahead of it, and what would help. `satchel why --goal` and a skill's page in the browser show it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from satchel.detect.stop_words import DENSE_STOPWORDS, STOP_SIGNS, STOPWORDS
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
    ranking: RankExplanation | None
    """None when it cannot be selected: it has tools and no instructions."""
    detection: Detection
    is_offered: bool
    is_selected: bool
    near_copy_of: str
    """The near duplicate that is selected in its place, or empty."""


def explain_selection(
    skill: Skill, goal: str, ranking: RankExplanation | None, detection: Detection
) -> SelectionExplanation:
    """Combine the rank and the detection of one skill and one goal."""
    is_offered = skill.state == "active" and skill.for_model and not skill.is_tool
    return SelectionExplanation(
        goal=goal,
        skill=skill,
        ranking=ranking,
        detection=detection,
        is_offered=is_offered,
        is_selected=is_offered
        and any(match.skill.path == skill.path for match in detection.matches),
        near_copy_of=dict(detection.collapsed).get(skill.name, "") if is_offered else "",
    )


# --- in words -----------------------------------------------------------------------------


def verdict_sentences(explanation: SelectionExplanation) -> Iterator[str]:
    """Yield sentences that say whether it can be selected, and whether it is."""
    ranking, detection = explanation.ranking, explanation.detection
    if ranking is None:
        yield say("it has tools and no instructions: models call its tools, and nothing chooses it")
        return
    rank = say("rank {rank} of {count}", rank=ranking.rank, count=ranking.of)
    if not explanation.is_offered:
        yield say("it is not offered, so it cannot be chosen")
        yield rank if ranking.rank else say("nothing of it matches")
    elif explanation.is_selected:
        yield say("it would be chosen: {rank}", rank=rank)
    else:
        yield say("it is not chosen: {reason}", reason=_refusal_reason(explanation, ranking, rank))
    if not detection.matches and detection.threshold and ranking.rank:
        yield threshold_text(detection)
    elif explanation.is_offered and not explanation.is_selected and detection.matches:
        names = join_names(f"`{match.name}`" for match in detection.matches)
        yield say("chosen instead: {names}", names=names)


def _refusal_reason(explanation: SelectionExplanation, ranking: RankExplanation, rank: str) -> str:
    """Return why it is not selected; `rank` is its rank in words."""
    if explanation.near_copy_of:
        return say("`{name}` is a near duplicate", name=explanation.near_copy_of)
    if ranking.rank:
        return rank
    reason = reason_text(ranking.match) if ranking.match else ""
    return reason or say("nothing of it matches")


def threshold_text(detection: Detection) -> str:
    """Say how close the best skill is, where none fits."""
    return say(
        "the closest reaches {fit} %, {needed} % is needed",
        fit=percent(detection.fit),
        needed=percent(detection.threshold),
    )


# --- fit ----------------------------------------------------------------------------------


def move_weak_matches(detection: Detection) -> Detection:
    """Move matches whose own confidence is below the threshold to the runners-up."""
    fitting = [match for match in detection.matches if _is_fitting(match, detection)]
    weak = [match for match in detection.matches if match not in fitting]
    return (
        detection._replace(matches=fitting, runners_up=[*weak, *detection.runners_up])
        if weak
        else detection
    )


def _is_fitting(match: Match, detection: Detection) -> bool:
    return match.detector == EXPLICIT or confidence(match, detection) >= detection.threshold


def fit_text(match: Match, detection: Detection) -> str:
    """Return how well a skill fits; `by name` for one that the request names."""
    return (
        say("by name")
        if match.detector == EXPLICIT
        else f"{percent(confidence(match, detection))} %"
    )


def confidence(match: Match, detection: Detection) -> float:
    """Return the confidence from 0 to 1: of the first match, in proportion for the others.

    Only scores of the same detector are compared. Without a threshold there is no confidence, and
    the best match has a full bar.
    """
    candidates = (*detection.matches, *detection.runners_up)
    best_score = max(other.score for other in candidates if other.detector == match.detector)
    if best_score <= 0:
        return 0.0
    best_confidence = detection.fit if detection.threshold else 1.0
    return min(max(match.score, 0.0) / best_score, 1.0) * best_confidence


def percent(value: float) -> int:
    """Return a share in percent, rounded down: 100 means certain, and 50 at least a half."""
    return int(100 * value + 1e-6)


# --- fields and detectors -----------------------------------------------------------------


def detector_and_reason(explanation: SelectionExplanation) -> tuple[str, str]:
    """The detector that selected it and its reason; empty when there is none."""
    ranking = explanation.ranking
    if ranking is None or ranking.match is None or not ranking.rank:
        return "", ""
    # The reason of a mentioned skill names the mention.
    is_mentioned = ranking.match.detector == EXPLICIT
    reason = reason_text(ranking.match)
    if is_mentioned or not reason:
        return "", reason
    return detector_label(ranking.match, explanation.detection), reason


def field_label(field: str, scores: Mapping[str, float]) -> str:
    """Display name of a score field; beside lexical fields, the others are of embeddings."""
    if field == "name" and ("about" in scores or "head" in scores):
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
    rival_scores: Mapping[str, float], scores: Mapping[str, float]
) -> list[tuple[str, float]]:
    """The fields in which another skill scores higher, largest difference first."""
    differences = [(field, value - scores.get(field, 0.0)) for field, value in rival_scores.items()]
    return sorted(
        (pair for pair in differences if pair[1] > _MIN_SCORE_SHOWN), key=lambda pair: -pair[1]
    )


def difference_text(
    match: Match, rival_scores: Mapping[str, float], scores: Mapping[str, float]
) -> str:
    """Describe why another skill ranks higher."""
    fields = [
        f"{field_label(field, rival_scores)} (+{value:.2f})"
        for field, value in score_differences(rival_scores, scores)
    ]
    return join_names(fields) or reason_text(match)


def reason_text(match: Match) -> str:
    """The reason of a match in the user's language; empty when there is none."""
    return " ".join(render(match.reason).split()) if match.reason.strip() else ""


def detector_label(match: Match, detection: Detection) -> str:
    """Display name of the detector of a match."""
    name = match.detector or detection.detector
    if name == EXPLICIT:
        return say("called by name")
    if name in ("hybrid", "lexical", "minimal", "words"):
        by_vectors = any(
            evidence.startswith(("meaning: ", "vectors: ")) for evidence in match.evidence
        )
        return say("words and vectors") if by_vectors else say("words")
    return say("a model") if name == "model" else name


# --- what would help ----------------------------------------------------------------------


def decided_by_mention(detection: Detection) -> bool:
    """Whether mentions decided the selection."""
    return detection.detector == EXPLICIT or any(
        match.detector == EXPLICIT for match in detection.matches
    )


def missing_words(explanation: SelectionExplanation) -> list[str]:
    """Significant words of the request that the skill lacks; none when mentions decided."""
    ranking = explanation.ranking
    if ranking is None or decided_by_mention(explanation.detection):
        return []
    return significant_words(ranking.missing)


def significant_words(words: Iterable[str]) -> list[str]:
    """Keep the words that belong in a description: no stop words, no phrases."""
    significant: list[str] = []
    for word in words:
        plain = "".join(char for char in word.casefold() if char.isalnum())
        ideographs = [char for char in plain if not char.isascii()]
        is_repeated = any(char in other for other in significant for char in ideographs)
        if _is_significant(plain) and len(word.split()) == 1 and not is_repeated:
            significant.append(word)  # a repeated one is another segmentation of the same word
    return significant


def _is_significant(word: str) -> bool:
    """Whether a word, in lower case and without signs, may belong in a description."""
    if not word or word.isdigit() or all(char in STOP_SIGNS for char in word):
        return False
    if word in STOPWORDS or word in DENSE_STOPWORDS or word in _REQUEST_WORDS:
        return False
    if word.isascii():
        return len(word) <= _MAX_LATIN_WORD_CHARS
    is_demonstrative = word[0] in _DEMONSTRATIVES or word[:1] == word[1:]
    return len(word) <= _MAX_CJK_WORD_CHARS and not is_demonstrative


def next_steps(explanation: SelectionExplanation) -> Iterator[str]:
    """Yield the next steps for this request, most useful first."""
    ranking, skill = explanation.ranking, explanation.skill
    if (
        ranking is None
        or explanation.is_selected
        or (not ranking.rank and ranking.match is not None)
    ):
        return
    if explanation.near_copy_of:
        yield say(
            "Keep one of the two, or say in both descriptions when which of them is meant: "
            "`satchel show {name}`",
            name=explanation.near_copy_of,
        )
        return
    if decided_by_mention(explanation.detection):
        # Changing a description has no effect on mentions.
        if explanation.is_offered and explanation.detection.matches:
            yield _mention_advice(skill.name)
        return
    if not explanation.is_offered:
        return
    if ranking.ahead and explanation.detection.matches:
        yield say(
            "Say in the description of `{name}` what it is not for, if it is not for this",
            name=ranking.ahead[0][0].name,
        )
    if missing_words(explanation):
        yield say("Add the missing words to its description, if it is for such requests")
    yield _mention_advice(skill.name)


def _mention_advice(name: str) -> str:
    return say("Call it by its name: a request with `use skill {name}` always gets it", name=name)
