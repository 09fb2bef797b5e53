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
    checked_answer,
    name_of,
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

_MAY_MENTION = re.compile(
    r"skill|[$/`\"'\d_:-]|[^\0-\x7f]|\b(?:not|never|without|instead of|rather than|avoid|stop|dont|"
    r"cannot)\b",
    re.IGNORECASE,
).search
"""A request without a match mentions no skill and needs no table of names."""
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
        self.name = name_of(self.detector)
        self.mentions = mentions
        self._use = _several(use)
        self._never = _several(never)
        self._names = NameTables()
        self._last_subset: SkillSubset | None = None
        names = {_name(one) for one in self._never}
        both = next((_name(one) for one in self._use if _name(one) in names), None)
        if both is not None:
            raise InvalidInput(
                f"`{both}` is to be chosen and never to be chosen", "Leave one of the two out"
            )

    @property
    def notes(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Notes of the detector's last search."""
        return self.detector.notes

    def overriding(
        self, use: Iterable[str | Skill] = (), never: Iterable[str | Skill] = ()
    ) -> SelectionPipeline:
        """Return a pipeline with other `use` and `never` that shares detector and index."""
        use, never = _several(use), _several(never)
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
        """Return the whole answer.

        Args:
            goal_text: The request.
            skills: The skills to choose from.
            limit: How many to choose at most, besides those that the request names.
            hidden: Returns skills that are not offered; those that the request names are reported.
        """
        began = time.perf_counter()
        called, notes = self._set(skills)
        if called:
            return _decided(called, notes, OVERRIDE, began)
        found = self._parse(goal_text, skills, hidden)
        barred = self._barred(skills)
        notes += [*found.notes, *barred.values()]
        out = found.ruled_out.union(barred)
        named = [match for match in _as_matches(found.wanted) if match.name not in barred]
        goal = goal_text if named or found.rest is None else GoalText(found.rest)
        if named or (isinstance(goal, GoalText) and not goal.terms):
            answer = _decided(named, notes, EXPLICIT, began)
            return answer._replace(unavailable=found.unavailable)
        fewer = self._without(skills, out)
        answer = checked_answer(self.detector, self.detector.look(goal, fewer, limit))
        matches = [match for match in answer.matches if match.name not in out]
        others = [match for match in answer.runners_up if match.name not in out]
        answer = answer._replace(
            matches=matches,
            runners_up=others,
            notes=tuple(dict.fromkeys((*notes, *answer.notes))),
            unavailable=found.unavailable,
        )
        return answer if limit is None else _cut(answer, limit)

    def rank(
        self, goal_text: str, skills: Sequence[Skill], limit: int = 50, *, reasons: bool = True
    ) -> list[Match]:
        """Return set and named skills first, then the detector's ranking, then excluded skills."""
        found = self._parse(goal_text, skills)
        first, _ = self._set(skills)
        first += _as_matches(found.wanted)
        others = self.detector.rank(_search_text(found, goal_text), skills, limit, reasons=reasons)
        best = max((match.score for match in others), default=1.0)
        named = {match.name: match.replace(score=max(best, 1.0)) for match in reversed(first)}
        ranked = [*reversed(named.values()), *(one for one in others if one.name not in named)]
        return _put_last(ranked, found.ruled_out.union(self._barred(skills)))[:limit]

    def place(self, goal_text: str, skills: Sequence[Skill], skill: Skill) -> RankExplanation:
        """Return the rank of a skill; one that is not among `skills` is ranked as if it were."""
        if not _has(skills, skill):
            skills = (*skills, skill)
        found = self._parse(goal_text, skills)
        first, _ = self._set(skills)
        first += _as_matches(found.wanted)
        ahead = [(match, {EXPLICIT: 1.0}) for match in first]
        for at, match in enumerate(first):
            if match.skill.path == skill.path:
                return RankExplanation(at + 1, len(skills), match, {EXPLICIT: 1.0}, ahead[:at], ())
        place = self.detector.place(_search_text(found, goal_text), skills, skill)
        barred = self._barred(skills).get(skill.name)
        if barred is None and skill.name in found.ruled_out:
            barred = DetectorNote("ruled-out", name=skill.name)
        if barred is not None:
            match = place.match or Match(skill.name, 0.0, "", (), skill)
            return place._replace(rank=0, match=match.replace(reason=str(barred)))
        if not first:
            return place
        names = {match.name for match in first}
        rivals = [pair for pair in place.ahead if pair[0].name not in names]
        rank = place.rank + len(first) if place.rank else 0
        return place._replace(rank=rank, ahead=[*ahead, *rivals][:MAX_RIVALS])

    def named_among(self, goal_text: str, skills: Sequence[Skill]) -> tuple[Skill, ...]:
        """Return the skills that a request names."""
        return tuple(one.skill for one in self._parse(goal_text, skills).wanted)

    def _parse(
        self,
        goal_text: str,
        skills: Sequence[Skill],
        hidden: Callable[[], Sequence[Skill]] | None = None,
    ) -> Mentions:
        if not self.mentions or _MAY_MENTION(goal_text) is None:
            return Mentions()
        others = hidden() if hidden is not None else ()
        table = NameTable(others) if others else None
        if skills:
            return parse_mentions(goal_text, self._names.of(skills), table)
        named = parse_mentions(goal_text, table).wanted if table is not None else ()
        return Mentions(unavailable=tuple(one.skill for one in named))

    def _set(self, skills: Sequence[Skill]) -> tuple[list[Match], list[DetectorNote]]:
        found: dict[str, Match] = {}
        notes: list[DetectorNote] = []
        for one in self._use:
            skill = self._find(one, skills)
            if skill is None:
                notes.append(DetectorNote("use-missing", name=_name(one)))
            else:
                match = Match(skill.name, 1.0, Message("set to be chosen"), (), skill, EXPLICIT)
                found.setdefault(skill.name, match)
        return list(found.values()), notes

    def _barred(self, skills: Sequence[Skill]) -> dict[str, DetectorNote]:
        """Return the names of `never`, with a note for each."""
        found = [self._find(one, skills) for one in self._never]
        return {one.name: DetectorNote("never", name=one.name) for one in found if one is not None}

    def _find(self, one: str | Skill, skills: Sequence[Skill]) -> Skill | None:
        if not isinstance(one, str):
            return one if _has(skills, one) else None
        return self._names.of(skills).exact(one)

    def _without(self, skills: Sequence[Skill], names: frozenset[str]) -> Sequence[Skill]:
        """Return the skills without some names; the same tuple for the same names, for caches."""
        if not names:
            return skills
        if not isinstance(skills, tuple):
            return [skill for skill in skills if skill.name not in names]
        last = self._last_subset
        if last is None or last.whole is not skills or last.without != names:
            last = self._last_subset = SkillSubset(skills, names)
        return last


def as_pipeline(detector: Detector, *, mentions: bool = True) -> SelectionPipeline:
    """Wrap a detector, unless it is a pipeline.

    Raises:
        InvalidInput: it is no detector.
    """
    if isinstance(detector, SelectionPipeline):
        return detector
    return SelectionPipeline(detector, mentions=mentions)


def _decided(
    matches: list[Match], notes: list[DetectorNote], detector: str, began: float
) -> Detection:
    """Return the detection of a request that needs no ranking."""
    took_ms = (time.perf_counter() - began) * 1e3
    fit = 1.0 if matches else 0.0
    return Detection(matches, [], fit, 0.0, detector, took_ms, tuple(notes))


def _as_matches(wanted: Iterable[Mention]) -> list[Match]:
    return [
        Match(
            one.skill.name,
            1.0,
            Message("called by name: `{said}`", said=one.said),
            (f"goal: {one.said}",),
            one.skill,
            EXPLICIT,
        )
        for one in wanted
    ]


def _search_text(found: Mentions, goal_text: str) -> str:
    """Return the request without its mentions, or the unknown names."""
    if found.rest is None:
        return goal_text
    rest = GoalText(found.rest)
    if rest.terms:
        return rest
    return " ".join(one.name for one in found.unknown) or goal_text


def _cut(answer: Detection, limit: int) -> Detection:
    """Return the result with at most `limit` matches besides the named ones."""
    named = sum(match.detector == EXPLICIT for match in answer.matches)
    cut = max(limit, named)
    rest = answer.matches[cut:]
    return answer._replace(matches=answer.matches[:cut], runners_up=[*rest, *answer.runners_up])


def _put_last(found: list[Match], names: frozenset[str]) -> list[Match]:
    """Move some skills to the end, with scores not above the others."""
    if not names:
        return found
    first = [match for match in found if match.name not in names]
    most = first[-1].score if first else math.inf
    last = [match for match in found if match.name in names]
    return first + [match.replace(score=min(match.score, most)) for match in last]


def _has(skills: Sequence[Skill], skill: Skill) -> bool:
    """Whether a skill is among some, by identity or path."""
    if any(map(is_, skills, repeat(skill))):
        return True
    path, folder = skill.path, os.path.basename(skill.base_dir)
    # Building a path is slow, so ids are compared first.
    return any(
        one.path == path for one in skills if not (own := one.head.id) or own.endswith(folder)
    )


def _several(names: Iterable[str | Skill]) -> tuple[str | Skill, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def _name(one: str | Skill) -> str:
    return one if isinstance(one, str) else one.name


_SEEN = (
    "project", "locations", "project_locations", "include", "exclude", "tags", "builtin",
    "ecosystem", "trust",
)  # fmt: skip
"""Settings that determine the visible skills."""


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

    kept = index_folder(settings)
    semantic = None
    if settings.embeddings:
        from satchel.detect.embeddings import open_embedder
        from satchel.detect.semantic import Semantic

        folder = os.path.join(kept, "vectors") if kept else None
        semantic = Semantic(partial(open_embedder, settings.embeddings), folder)
    limit = settings.shortlist or 3
    hybrid = HybridDetector(
        kept, semantic=semantic, limit=limit, patience=patience, on_wait=on_wait
    )
    return SelectionPipeline(hybrid)


def index_folder(settings: Settings) -> str | None:
    """Return the index folder for these settings; None keeps it in memory."""
    if not settings.paths.cache:
        return None
    # A different set of visible skills has its own index, since term rarity depends on all of them.
    seen = repr([(name, getattr(settings, name)) for name in _SEEN] + [settings.paths.config])
    name = sha256(seen.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return os.path.join(settings.paths.cache, "search", name)
