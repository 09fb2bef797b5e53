"""Selection of skills for a request.

    request ─► mentions ─► `use` and `never` ─► detector: rank, threshold, near duplicates ─► limit

Precedence: skills that the host sets with `use`, then skills that the request names, then the
detector with the rest of the request. Skills excluded by the request or by `never` are removed
before the detector runs, so it runs once. Its errors are not caught.
"""

from __future__ import annotations

import math
import os
import re
import time
from functools import partial
from hashlib import sha256
from itertools import repeat
from operator import is_
from typing import TYPE_CHECKING

from satchel.detect.base import (
    EXPLICIT,
    MAX_RIVALS,
    Detection,
    DetectorNote,
    Match,
    RankExplanation,
    SkillSubset,
    WrappingDetector,
    check_detection,
    detector_name,
)
from satchel.detect.mentions import Mentions, NameTable, NameTables, parse_mentions
from satchel.detect.tokenizer import GoalText
from satchel.errors import InvalidInput
from satchel.i18n import Message

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from satchel.detect.base import Detector
    from satchel.detect.mentions import Mention
    from satchel.settings import Settings
    from satchel.skill import Skill

_find_possible_mention = re.compile(
    r"skill|[$/`\"'\d_:-]|[^\0-\x7f]|\b(?:not|never|without|instead of|rather than|avoid|stop|dont|"
    r"cannot)\b",
    re.IGNORECASE,
).search
"""A request without a match mentions no skill and needs no table of names."""
_VISIBILITY_SETTINGS = (
    "project", "locations", "project_locations", "include", "exclude", "tags", "builtin",
    "ecosystem", "trust",
)  # fmt: skip
"""Settings that determine the visible skills."""
OVERRIDE = "override"
"""Detector name of results decided by `use`."""


class SelectionPipeline(WrappingDetector):
    """Selects skills by name, by the host's settings, then by a detector."""

    def __init__(
        self,
        detector: Detector,
        *,
        mentions: bool = True,
        use: Iterable[str | Skill] = (),
        never: Iterable[str | Skill] = (),
    ) -> None:
        """Wrap a detector.

        Args:
            detector: Decides about requests that name no skill.
            mentions: Whether skills that the request names are chosen, and none of those that it
                rules out.
            use: Choose these and nothing else, by name, id or ref.
            never: Do not choose these, even if the request names them.

        Raises:
            InvalidInput: the detector is none, or a skill is both in `use` and in `never`.
        """
        super().__init__(detector)
        self.name = detector_name(self.detector)
        self.mentions = mentions
        self._use = _as_tuple(use)
        self._never = _as_tuple(never)
        self._names = NameTables()
        self._last_subset: SkillSubset | None = None
        never_names = {_entry_name(entry) for entry in self._never}
        use_names = (_entry_name(entry) for entry in self._use)
        contradiction = next((name for name in use_names if name in never_names), None)
        if contradiction is not None:
            raise InvalidInput(
                f"`{contradiction}` is to be chosen and never to be chosen",
                "Leave one of the two out",
            )

    @property
    def notes(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Notes of the detector's last search."""
        return self.detector.notes

    def overriding(
        self, use: Iterable[str | Skill] = (), never: Iterable[str | Skill] = ()
    ) -> SelectionPipeline:
        """Return a pipeline with other `use` and `never` that shares detector and index.

        Args:
            use: Choose these and nothing else, by name, id or ref.
            never: Do not choose these.
        """
        use, never = _as_tuple(use), _as_tuple(never)
        if not use and not never:
            return self
        return SelectionPipeline(self.detector, mentions=self.mentions, use=use, never=never)

    def look(
        self,
        goal_text: str,
        skills: Sequence[Skill],
        limit: int | None = None,
        *,
        hidden: Callable[[], Sequence[Skill]] | None = None,
    ) -> Detection:
        """Return the detection.

        Args:
            goal_text: The request.
            skills: The skills to choose from.
            limit: How many to choose at most, besides those that the request names.
            hidden: Returns skills that are not offered; those that the request names are reported.
        """
        started_at = time.perf_counter()
        chosen, notes = self._match_use(skills)
        if chosen:
            return _make_detection(chosen, notes, OVERRIDE, started_at)
        mentions = self._parse(goal_text, skills, hidden)
        barred = self._find_barred(skills)
        notes += [*mentions.notes, *barred.values()]
        named = [match for match in _make_matches(mentions.wanted) if match.name not in barred]
        goal = (
            goal_text
            if named or mentions.remaining_request is None
            else GoalText(mentions.remaining_request)
        )
        if named or (isinstance(goal, GoalText) and not goal.terms):
            detection = _make_detection(named, notes, EXPLICIT, started_at)
            return detection._replace(unavailable=mentions.unavailable)
        excluded = mentions.ruled_out.union(barred)
        allowed_skills = self._exclude(skills, excluded)
        detection = self.detector.look(goal, allowed_skills, limit)
        check_detection(self.detector, detection)
        detection = detection._replace(
            matches=[match for match in detection.matches if match.name not in excluded],
            runners_up=[match for match in detection.runners_up if match.name not in excluded],
            notes=tuple(dict.fromkeys((*notes, *detection.notes))),
            unavailable=mentions.unavailable,
        )
        return detection if limit is None else _limit_matches(detection, limit)

    def rank(
        self, goal_text: str, skills: Sequence[Skill], limit: int = 50, *, reasons: bool = True
    ) -> list[Match]:
        """Return set and named skills first, then the detector's ranking, then excluded skills."""
        mentions = self._parse(goal_text, skills)
        first = self._match_first(mentions, skills)
        others = self.detector.rank(
            _search_text(mentions, goal_text), skills, limit, reasons=reasons
        )
        max_score = max((match.score for match in others), default=1.0)
        named = {match.name: match.replace(score=max(max_score, 1.0)) for match in reversed(first)}
        ranked = [
            *reversed(named.values()),
            *(match for match in others if match.name not in named),
        ]
        return _put_last(ranked, mentions.ruled_out.union(self._find_barred(skills)))[:limit]

    def place(self, goal_text: str, skills: Sequence[Skill], skill: Skill) -> RankExplanation:
        """Return the rank of a skill; one that is not among `skills` is ranked as if it were."""
        if not _is_among(skills, skill):
            skills = (*skills, skill)
        mentions = self._parse(goal_text, skills)
        first = self._match_first(mentions, skills)
        ahead = [(match, {EXPLICIT: 1.0}) for match in first]
        for index, match in enumerate(first):
            if match.skill.path == skill.path:
                return RankExplanation(
                    index + 1, len(skills), match, {EXPLICIT: 1.0}, ahead[:index], ()
                )
        explanation = self.detector.place(_search_text(mentions, goal_text), skills, skill)
        note = self._find_barred(skills).get(skill.name)
        if note is None and skill.name in mentions.ruled_out:
            note = DetectorNote("ruled-out", name=skill.name)
        if note is not None:
            match = explanation.match or Match(skill.name, 0.0, "", (), skill)
            return explanation._replace(rank=0, match=match.replace(reason=str(note)))
        if not first:
            return explanation
        names = {match.name for match in first}
        rivals = [rival for rival in explanation.ahead if rival[0].name not in names]
        rank = explanation.rank + len(first) if explanation.rank else 0
        return explanation._replace(rank=rank, ahead=[*ahead, *rivals][:MAX_RIVALS])

    def named_among(self, goal_text: str, skills: Sequence[Skill]) -> tuple[Skill, ...]:
        """Return the skills that a request names."""
        return tuple(mention.skill for mention in self._parse(goal_text, skills).wanted)

    def _parse(
        self,
        goal_text: str,
        skills: Sequence[Skill],
        hidden: Callable[[], Sequence[Skill]] | None = None,
    ) -> Mentions:
        if not self.mentions or _find_possible_mention(goal_text) is None:
            return Mentions()
        hidden_skills = hidden() if hidden is not None else ()
        hidden_names = NameTable(hidden_skills) if hidden_skills else None
        if skills:
            return parse_mentions(goal_text, self._names.table_for(skills), hidden_names)
        named = parse_mentions(goal_text, hidden_names).wanted if hidden_names is not None else ()
        return Mentions(unavailable=tuple(mention.skill for mention in named))

    def _match_first(self, mentions: Mentions, skills: Sequence[Skill]) -> list[Match]:
        """Return the skills of `use`, then those that the request names."""
        chosen, _ = self._match_use(skills)
        return chosen + _make_matches(mentions.wanted)

    def _match_use(self, skills: Sequence[Skill]) -> tuple[list[Match], list[DetectorNote]]:
        """Return the skills of `use`, and a note for each that is missing."""
        matches: dict[str, Match] = {}
        notes: list[DetectorNote] = []
        for entry in self._use:
            skill = self._find(entry, skills)
            if skill is None:
                notes.append(DetectorNote("use-missing", name=_entry_name(entry)))
            else:
                match = Match(skill.name, 1.0, Message("set to be chosen"), (), skill, EXPLICIT)
                matches.setdefault(skill.name, match)
        return list(matches.values()), notes

    def _find_barred(self, skills: Sequence[Skill]) -> dict[str, DetectorNote]:
        """Return the names of `never`, with a note for each."""
        barred_skills = [self._find(entry, skills) for entry in self._never]
        return {
            skill.name: DetectorNote("never", name=skill.name)
            for skill in barred_skills
            if skill is not None
        }

    def _find(self, entry: str | Skill, skills: Sequence[Skill]) -> Skill | None:
        if not isinstance(entry, str):
            return entry if _is_among(skills, entry) else None
        return self._names.table_for(skills).exact(entry)

    def _exclude(self, skills: Sequence[Skill], names: frozenset[str]) -> Sequence[Skill]:
        """Return the skills without some names; the same tuple for the same names, for caches."""
        if not names:
            return skills
        if not isinstance(skills, tuple):
            return [skill for skill in skills if skill.name not in names]
        subset = self._last_subset
        if subset is None or subset.library is not skills or subset.without != names:
            subset = self._last_subset = SkillSubset(skills, names)
        return subset


def as_pipeline(detector: Detector, *, mentions: bool = True) -> SelectionPipeline:
    """Wrap a detector, unless it is a pipeline.

    Raises:
        InvalidInput: it is no detector.
    """
    if isinstance(detector, SelectionPipeline):
        return detector
    return SelectionPipeline(detector, mentions=mentions)


def _make_detection(
    matches: list[Match], notes: list[DetectorNote], detector: str, started_at: float
) -> Detection:
    """Return the detection of a request that needs no ranking."""
    took_ms = (time.perf_counter() - started_at) * 1e3
    fit = 1.0 if matches else 0.0
    return Detection(
        matches=matches,
        runners_up=[],
        fit=fit,
        threshold=0.0,
        detector=detector,
        took_ms=took_ms,
        notes=tuple(notes),
    )


def _make_matches(mentions: Iterable[Mention]) -> list[Match]:
    return [
        Match(
            mention.skill.name,
            1.0,
            Message("called by name: `{said}`", said=mention.phrase),
            (f"goal: {mention.phrase}",),
            mention.skill,
            EXPLICIT,
        )
        for mention in mentions
    ]


def _search_text(mentions: Mentions, goal_text: str) -> str:
    """Return the request without its mentions, or the unknown names."""
    if mentions.remaining_request is None:
        return goal_text
    goal = GoalText(mentions.remaining_request)
    if goal.terms:
        return goal
    return " ".join(unknown.name for unknown in mentions.unknown) or goal_text


def _limit_matches(detection: Detection, limit: int) -> Detection:
    """Return the detection with at most `limit` matches besides the named ones."""
    named_count = sum(match.detector == EXPLICIT for match in detection.matches)
    limit = max(limit, named_count)
    surplus = detection.matches[limit:]
    return detection._replace(
        matches=detection.matches[:limit], runners_up=[*surplus, *detection.runners_up]
    )


def _put_last(matches: list[Match], names: frozenset[str]) -> list[Match]:
    """Move some skills to the end, with scores not above the others."""
    if not names:
        return matches
    first = [match for match in matches if match.name not in names]
    max_score = first[-1].score if first else math.inf
    last = [match for match in matches if match.name in names]
    return first + [match.replace(score=min(match.score, max_score)) for match in last]


def _is_among(skills: Sequence[Skill], skill: Skill) -> bool:
    """Whether a skill is among some, by identity or path."""
    if any(map(is_, skills, repeat(skill))):
        return True
    path, folder = skill.path, os.path.basename(skill.base_dir)
    # Building a path is slow, so ids are compared first.
    return any(
        other.path == path
        for other in skills
        if not (own_id := other.head.id) or own_id.endswith(folder)
    )


def _as_tuple(names: Iterable[str | Skill]) -> tuple[str | Skill, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def _entry_name(entry: str | Skill) -> str:
    return entry if isinstance(entry, str) else entry.name


def default_detector(
    settings: Settings, patience: float = 0.0, on_wait: Callable[[int, int], None] | None = None
) -> SelectionPipeline:
    """Return the detector for these settings; nothing is read or built before the first request.

    Args:
        settings: The settings.
        patience: Seconds to wait for an index that is being built.
        on_wait: Called while it waits, with how many are indexed, and of how many.
    """
    from satchel.detect.hybrid import HybridDetector

    cache_folder = index_folder(settings)
    semantic = None
    if settings.embeddings:
        from satchel.detect.embeddings.endpoint import Endpoint
        from satchel.detect.semantic import Semantic

        folder = os.path.join(cache_folder, "vectors") if cache_folder else None
        semantic = Semantic(partial(Endpoint, settings.embeddings), folder)
    limit = settings.shortlist or 3
    hybrid = HybridDetector(
        cache_folder, semantic=semantic, limit=limit, patience=patience, on_wait=on_wait
    )
    return SelectionPipeline(hybrid)


def index_folder(settings: Settings) -> str | None:
    """Return the index folder for these settings; None keeps it in memory."""
    if not settings.paths.cache:
        return None
    # A different set of visible skills has its own index, since term rarity depends on all of them.
    visibility = repr(
        [(name, getattr(settings, name)) for name in _VISIBILITY_SETTINGS] + [settings.paths.config]
    )
    name = sha256(visibility.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return os.path.join(settings.paths.cache, "search", name)
