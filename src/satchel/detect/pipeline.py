"""From a request to the chosen skills, in one pass.

    request ─► mentions ─► `use` and `never` ─► detector: rank, threshold, near duplicates ─► limit

A skill that the host set with `use` is chosen; else the skills that the request names; else the
detector decides with what is left of the request. What the request rules out, or `never` does, is
taken away before the detector is asked, so that it is asked once. Its errors are not caught.
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

from satchel._language import Message
from satchel.detect.base import (
    EXPLICIT,
    RIVALS,
    Answer,
    BaseDetector,
    Match,
    Note,
    Place,
    as_base,
    checked_answer,
    name_of,
)
from satchel.detect.mentions import NameTables
from satchel.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from satchel.detect.base import Detector, Prepared
    from satchel.detect.mentions import Mentions
    from satchel.settings import Settings
    from satchel.skill import Skill

_MAY_MENTION = re.compile(
    r"skill|[$/`\"'\d_:-]|[^\0-\x7f]|\b(?:not|never|without|instead of|rather than|avoid|stop|dont|"
    r"cannot)\b",
    re.IGNORECASE,
).search
"""A request without any of this mentions no skill, and needs no table of names."""
OVERRIDE = "override"
"""The detector of an answer that `use` decided."""


class SelectionPipeline(BaseDetector):
    """Chooses skills for a request: by name, by the host's word, then by a detector."""

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
        self.detector = as_base(detector)
        self.name = name_of(self.detector)
        self.mentions = mentions
        self._use = _several(use)
        self._never = _several(never)
        self._names = NameTables()
        self._last_fewer: tuple[Sequence[Skill], frozenset[str], Sequence[Skill]] | None = None
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
        """The same pipeline with other `use` and `never`; detector and index are shared."""
        use, never = _several(use), _several(never)
        if not use and not never:
            return self
        return SelectionPipeline(self.detector, mentions=self.mentions, use=use, never=never)

    def look(self, goal_text: str, skills: Sequence[Skill], limit: int | None = None) -> Answer:
        """Return the whole answer."""
        began = time.perf_counter()
        answer = self._answer(goal_text, skills, limit)
        if answer.detector in (EXPLICIT, OVERRIDE):
            answer = answer._replace(took_ms=(time.perf_counter() - began) * 1e3)
        return answer if limit is None else _cut(answer, limit)

    def rank(
        self, goal_text: str, skills: Sequence[Skill], limit: int = 50, *, reasons: bool = True
    ) -> list[Match]:
        """Set and named skills first, then as the detector ranks; what is ruled out comes last."""
        found = self._parse(goal_text, skills)
        first, _ = self._set(skills)
        first += _as_matches(found)
        others = self.detector.rank(_search_text(found, goal_text), skills, limit, reasons=reasons)
        best = max((match.score for match in others), default=1.0)
        named = {match.name: match._replace(score=max(best, 1.0)) for match in reversed(first)}
        ranked = [*reversed(named.values()), *(one for one in others if one.name not in named)]
        return _put_last(ranked, found.ruled_out.union(self._barred(skills)))[:limit]

    def place(self, goal_text: str, skills: Sequence[Skill], skill: Skill) -> Place:
        """Where one skill stands; one that is not among `skills` is placed as if it were."""
        if not _has(skills, skill):
            skills = (*skills, skill)
        found = self._parse(goal_text, skills)
        first, _ = self._set(skills)
        first += _as_matches(found)
        ahead = [(match, {EXPLICIT: 1.0}) for match in first]
        for at, match in enumerate(first):
            if match.skill.path == skill.path:
                return Place(at + 1, len(skills), match, {EXPLICIT: 1.0}, ahead[:at], ())
        place = self.detector.place(_search_text(found, goal_text), skills, skill)
        barred = self._barred(skills).get(skill.name)
        if barred is None and skill.name in found.ruled_out:
            barred = Note("ruled-out", name=skill.name)
        if barred is not None:
            match = place.match or Match(skill.name, 0.0, "", (), skill)
            return place._replace(rank=0, match=match._replace(reason=str(barred)))
        if not first:
            return place
        names = {match.name for match in first}
        rivals = [pair for pair in place.ahead if pair[0].name not in names]
        rank = place.rank + len(first) if place.rank else 0
        return place._replace(rank=rank, ahead=[*ahead, *rivals][:RIVALS])

    def prepare(
        self,
        skills: Sequence[Skill],
        progress: Callable[[int], None] | None = None,
        *,
        rebuild: bool = False,
    ) -> Prepared | None:
        """Build the detector's index, or bring it up to date; None when it keeps none."""
        return self.detector.prepare(skills, progress, rebuild=rebuild)

    def indexed(self) -> int | None:
        """Return how many skills the detector's index holds; None when it keeps none."""
        return self.detector.indexed()

    def _answer(self, goal_text: str, skills: Sequence[Skill], limit: int | None) -> Answer:
        called, notes = self._set(skills)
        if called:
            return Answer(called, [], 1.0, 0.0, OVERRIDE, 0.0, tuple(notes))
        found = self._parse(goal_text, skills)
        notes += found.notes
        barred = self._barred(skills)
        notes += barred.values()
        named = [match for match in _as_matches(found) if match.name not in barred]
        if named:
            return Answer(named, [], 1.0, 0.0, EXPLICIT, 0.0, tuple(notes))
        perhaps = _suggested(found, barred)
        if found.rest is not None and not _says_something(found.rest):
            return Answer([], perhaps, 0.0, 0.0, EXPLICIT, 0.0, tuple(notes))
        goal = goal_text if found.rest is None else found.rest
        out = found.ruled_out.union(barred)
        fewer = self._without(skills, out)
        answer = checked_answer(self.detector, self.detector.look(goal, fewer, limit))
        if out:  # a user's detector may name skills that it was not given
            answer = answer._replace(
                matches=[match for match in answer.matches if match.name not in out],
                runners_up=[match for match in answer.runners_up if match.name not in out],
            )
        if perhaps and not answer.matches:
            names = {match.name for match in perhaps}
            others = [match for match in answer.runners_up if match.name not in names]
            answer = answer._replace(runners_up=[*perhaps, *others])
        return answer._replace(notes=tuple(dict.fromkeys((*notes, *answer.notes))))

    def _parse(self, goal_text: str, skills: Sequence[Skill]) -> Mentions:
        from satchel.detect.mentions import Mentions, parse_mentions

        if not self.mentions or not skills or _MAY_MENTION(goal_text) is None:
            return Mentions()
        return parse_mentions(goal_text, self._names.of(skills))

    def _set(self, skills: Sequence[Skill]) -> tuple[list[Match], list[Note]]:
        """The skills of `use`, and a note for each that is not there."""
        found: dict[str, Match] = {}
        notes: list[Note] = []
        for one in self._use:
            skill = self._find(one, skills)
            if skill is None:
                notes.append(Note("use-missing", name=_name(one)))
            else:
                match = Match(skill.name, 1.0, Message("set to be chosen"), (), skill, EXPLICIT)
                found.setdefault(skill.name, match)
        return list(found.values()), notes

    def _barred(self, skills: Sequence[Skill]) -> dict[str, Note]:
        """The names of the skills of `never`, with a note for each."""
        found = [self._find(one, skills) for one in self._never]
        return {one.name: Note("never", name=one.name) for one in found if one is not None}

    def _find(self, one: str | Skill, skills: Sequence[Skill]) -> Skill | None:
        if not isinstance(one, str):
            return one if _has(skills, one) else None
        return self._names.of(skills).exact(one)

    def _without(self, skills: Sequence[Skill], names: frozenset[str]) -> Sequence[Skill]:
        """The skills without some; the same tuple for the same ones, since detectors cache."""
        if not names:
            return skills
        last = self._last_fewer
        if last is not None and last[0] is skills and last[1] == names:
            return last[2]
        fewer = tuple(skill for skill in skills if skill.name not in names)
        if isinstance(skills, tuple):
            self._last_fewer = (skills, names, fewer)
        return fewer


def as_pipeline(detector: Detector, *, mentions: bool = True) -> SelectionPipeline:
    """The pipeline around a detector; one that is a pipeline is returned as it is.

    Raises:
        InvalidInput: it is no detector.
    """
    if isinstance(detector, SelectionPipeline):
        return detector
    return SelectionPipeline(detector, mentions=mentions)


def _as_matches(found: Mentions) -> list[Match]:
    """The wanted skills as matches, each with the same score."""
    return [
        Match(
            one.skill.name,
            1.0,
            Message("called by name: `{said}`", said=one.said),
            (f"goal: {one.said}",),
            one.skill,
            EXPLICIT,
        )
        for one in found.wanted
    ]


def _suggested(found: Mentions, barred: Iterable[str]) -> list[Match]:
    """Skills that an unknown name may have meant: to be shown, not to be chosen."""
    out = found.ruled_out.union(barred)
    matches = {
        skill.name: Match(
            skill.name,
            0.0,
            Message("its name is written almost like `{said}`", said=one.name),
            (),
            skill,
            EXPLICIT,
        )
        for one in found.unknown
        for skill in one.near
        if skill.name not in out
    }
    return list(matches.values())


def _says_something(text: str) -> bool:
    """Whether a text has words to search with: `please do it` has none."""
    from satchel.detect.terms import goal_terms

    return bool(goal_terms(text))


def _search_text(found: Mentions, goal_text: str) -> str:
    """What to search with: the request without its mentions, or the unknown names alone."""
    if found.rest is None or _says_something(found.rest):
        return goal_text if found.rest is None else found.rest
    return " ".join(one.name for one in found.unknown) or goal_text


def _cut(answer: Answer, limit: int) -> Answer:
    """The answer with at most `limit` chosen skills beside the named ones."""
    named = sum(match.detector == EXPLICIT for match in answer.matches)
    cut = max(limit, named)
    rest = answer.matches[cut:]
    return answer._replace(matches=answer.matches[:cut], runners_up=[*rest, *answer.runners_up])


def _put_last(found: list[Match], names: frozenset[str]) -> list[Match]:
    """The same list with some skills behind all others, and with no better scores than theirs."""
    if not names:
        return found
    first = [match for match in found if match.name not in names]
    most = first[-1].score if first else math.inf
    last = [match for match in found if match.name in names]
    return first + [match._replace(score=min(match.score, most)) for match in last]


def _has(skills: Sequence[Skill], skill: Skill) -> bool:
    """Whether a skill is among some: the object itself, or another one with its path."""
    if any(map(is_, skills, repeat(skill))):
        return True
    path, folder = skill.path, os.path.basename(skill.base_dir)
    # A path is built whenever it is read, so ids are compared first.
    return any(
        one.path == path for one in skills if not (own := one.head.id) or own.endswith(folder)
    )


def _several(names: Iterable[str | Skill]) -> tuple[str | Skill, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def _name(one: str | Skill) -> str:
    return one if isinstance(one, str) else one.name


_SEEN = (
    "project", "locations", "project_locations", "include", "exclude", "tags", "builtin",
    "ecosystem", "trust", "max_depth", "max_folders",
)  # fmt: skip
"""Settings that decide which skills are seen."""


def default_detector(
    settings: Settings,
    patience: float = 0.0,
    on_wait: Callable[[int, int], None] | None = None,
) -> SelectionPipeline:
    """The detector for these settings; it reads and builds nothing before its first look.

    Args:
        settings: What was set.
        patience: Seconds that a look may wait for an index that is being built.
        on_wait: Called while it waits, with how many are indexed, and of how many.
    """
    from satchel.detect.hybrid import HybridDetector

    kept = index_folder(settings)
    semantic = None
    if settings.vectors:
        from satchel.detect.semantic import Semantic
        from satchel.detect.vectors.open import open_embedder

        folder = os.path.join(kept, "vectors") if kept else None
        semantic = Semantic(partial(open_embedder, settings.vectors), folder)
    limit = settings.shortlist or 3
    hybrid = HybridDetector(
        kept, semantic=semantic, limit=limit, patience=patience, on_wait=on_wait
    )
    return SelectionPipeline(hybrid)


def index_folder(settings: Settings) -> str | None:
    """Where the index of the skills that these settings show is kept; None keeps it in memory."""
    if not settings.use_index or not settings.paths.cache:
        return None
    # Who sees other skills has an index of its own: how rare a word is depends on all of them.
    seen = repr([(name, getattr(settings, name)) for name in _SEEN] + [settings.paths.config])
    name = sha256(seen.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return os.path.join(settings.paths.cache, "search", name)
