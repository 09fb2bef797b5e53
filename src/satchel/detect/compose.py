"""How do several detectors make one?

    FirstHit(a, b)          a decides; b only when a finds nothing
    Union(a, b)             both decide; their lists are merged by rank
    Override(a, use, never) the user or the host decides, and a only where they said nothing
    Scoped(a, include=...)  a, for an agent that has only some of the skills
    WithExplicit(a)         a skill that the goal calls by name wins, one it rules out never does

Each is a detector itself, so they nest. What a goal rules out is left out of every member's answer
as soon as one member hears it, and a member that raises is left out with a note (see `composed`).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from satchel.detect.base import Answer, Match, Place
from satchel.detect.composed import (
    Composed,
    ask,
    goal_for,
    heard_by,
    name_of,
    notes_for,
    nothing,
    put_last,
)
from satchel.detect.explicit import (
    ExplicitDetector,
    as_matches,
    says_something,
    search_words,
    set_right,
    suggested,
)
from satchel.detect.merging import EXPLICIT, denied, each_once, unite
from satchel.detect.names import NamesKept
from satchel.detect.notes import (
    FAILED,
    FAILED_ALONE,
    NEVER,
    NOT_OFFERED,
    OUT_OF_SCOPE,
    RULED_OUT,
)
from satchel.detect.placing import place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from satchel.detect.base import Detector
    from satchel.detect.composed import Ranks
    from satchel.detect.explicit import Heard
    from satchel.skill import Skill

_RUNNERS = 10
"""Runners-up of a merged answer."""
_RIVALS = 3
"""How many of those that are ahead are named."""


class _Several(Composed):
    """Asks its members one after the other, unless the goal wants no skill at all."""

    def _answer(self, goal_text: str, skills: Sequence[Skill]) -> tuple[Answer, Exception | None]:
        heard, notes = self._listen(goal_text, skills)
        if heard.none:
            return nothing(EXPLICIT)._replace(notes=notes), None
        out = notes_for(heard)
        asked = (
            self._ask(member, goal_for(member, goal_text, heard), skills, out, FAILED)
            for member in self.members
        )
        return self._decide(asked, notes)

    def _decide(
        self, asked: Iterable[tuple[Answer, Exception | None]], notes: tuple[str, ...]
    ) -> tuple[Answer, Exception | None]:
        """The answer of those that are asked while this goes through them."""
        raise NotImplementedError


class FirstHit(_Several):
    """The first detector that finds something decides."""

    name = "first-hit"

    def _decide(
        self, asked: Iterable[tuple[Answer, Exception | None]], notes: tuple[str, ...]
    ) -> tuple[Answer, Exception | None]:
        said = list(notes)
        empty: list[Answer] = []
        error: Exception | None = None
        for answer, failure in asked:
            said += answer.notes
            if failure is not None:
                error = error or failure
            elif answer.matches:
                return answer._replace(notes=each_once(said)), None
            else:
                empty.append(answer)
        answer = unite(empty, 0, _RUNNERS) if empty else nothing(self.name)
        return answer._replace(notes=each_once(said)), None if empty else error


class Union(_Several):
    """All detectors decide; how their lists become one is said in `merging`."""

    name = "union"

    def __init__(self, *members: Detector, limit: int = 0) -> None:
        """Choose at most `limit` skills, and whoever is called by name; 0 sets no limit."""
        super().__init__(*members)
        self._limit = limit

    def _decide(
        self, asked: Iterable[tuple[Answer, Exception | None]], notes: tuple[str, ...]
    ) -> tuple[Answer, Exception | None]:
        said = list(notes)
        answers: list[Answer] = []
        error: Exception | None = None
        for answer, failure in asked:
            if failure is None:
                answers.append(answer)
            else:
                error = error or failure
                said += answer.notes
        answer = unite(answers, self._limit, _RUNNERS) if answers else nothing(self.name)
        told = each_once((*said, *answer.notes))
        return answer._replace(notes=told), None if answers else error


class WithExplicit(Composed):
    """Whoever is called by name is chosen, and nobody else; what is ruled out never is.

    Only a goal that calls nobody by name is passed on, and of it only what is not about names: who
    is ruled out, or not there, must not do the searching.
    """

    name = "with-explicit"

    def __init__(self, detector: Detector) -> None:
        super().__init__(detector)
        self.name = name_of(detector)
        self._explicit = ExplicitDetector()

    def heard(self, goal_text: str, skills: Sequence[Skill]) -> Heard:
        """What the goal says about skills by name."""
        return self._explicit.heard(goal_text, skills)

    def _ranked(
        self, ask: Ranks, goal_text: str, skills: Sequence[Skill], limit: int
    ) -> list[Match]:
        """Called by name first, then as the detector ranks; what is ruled out comes last."""
        heard = self.heard(goal_text, skills)
        called = as_matches(heard)
        try:
            others = ask(self.members[0], search_words(heard, goal_text), skills, limit)
        except Exception:
            if not called:
                raise
            others = []
        best = max((match.score for match in others), default=1.0)
        names = {match.name for match in called}
        found = [match._replace(score=max(best, 1.0)) for match in called]
        found += [match for match in others if match.name not in names]
        return put_last(found, heard.ruled_out)[:limit]

    def place(self, goal_text: str, skills: Sequence[Skill], skill: Skill) -> Place:
        """The detector's account, behind those that are called by name."""
        heard = self.heard(goal_text, skills)
        called = as_matches(heard)
        ahead = [(match, {EXPLICIT: 1.0}) for match in called]
        for at, match in enumerate(called):
            if match.skill.path == skill.path:
                return Place(at + 1, len(skills), match, {EXPLICIT: 1.0}, ahead[:at], ())
        found = place(self.members[0], search_words(heard, goal_text), skills, skill)
        if skill.name in heard.ruled_out:
            return denied(found, skill, RULED_OUT.format(name=skill.name))
        if not called:
            return found
        names = {match.name for match in called}
        rivals = [pair for pair in found.ahead if pair[0].name not in names]
        behind = found.rank + len(called) if found.rank else 0
        return found._replace(rank=behind, ahead=[*ahead, *rivals][:_RIVALS])

    def _answer(self, goal_text: str, skills: Sequence[Skill]) -> tuple[Answer, Exception | None]:
        heard, notes = self._listen(goal_text, skills)
        if heard.wanted:
            return Answer(as_matches(heard), [], 1.0, 0.0, EXPLICIT, 0.0, notes), None
        if heard.none:
            return Answer([], [], 0.0, 0.0, EXPLICIT, 0.0, notes), None
        perhaps = suggested(heard)
        goal = goal_text if heard.rest is None else heard.rest
        if heard.rest is not None and not says_something(goal):
            return Answer([], perhaps, 0.0, 0.0, EXPLICIT, 0.0, notes), None
        answer, error = self._ask(self.members[0], goal, skills, notes_for(heard), FAILED_ALONE)
        if perhaps and not answer.matches:
            names = {match.name for match in perhaps}
            others = [match for match in answer.runners_up if match.name not in names]
            answer = answer._replace(runners_up=[*perhaps, *others])
        return answer._replace(notes=each_once((*notes, *answer.notes))), error


class Override(Composed):
    """What the user or the host has set comes before what any detector finds.

    With `use`, those skills are chosen and no others, and the detector is not asked; `never` holds
    for everyone, also for a skill that the goal calls by name. Skills are given by name, id or ref,
    or as they are.
    """

    name = "override"

    def __init__(
        self,
        detector: Detector,
        use: Iterable[str | Skill] = (),
        never: Iterable[str | Skill] = (),
    ) -> None:
        super().__init__(detector)
        self._use = (use,) if isinstance(use, str) else tuple(use)
        self._never = (never,) if isinstance(never, str) else tuple(never)
        self._names = NamesKept()

    def _ranked(
        self, ask: Ranks, goal_text: str, skills: Sequence[Skill], limit: int
    ) -> list[Match]:
        """The set ones first, then as the detector ranks; `never` comes last."""
        called, _ = self._set(skills)
        names = {match.name for match in called}
        others = ask(self.members[0], goal_text, skills, limit)
        found = [*called, *(match for match in others if match.name not in names)]
        return put_last(found, self._barred(skills))[:limit]

    def place(self, goal_text: str, skills: Sequence[Skill], skill: Skill) -> Place:
        """The detector's account, behind the set ones."""
        called, _ = self._set(skills)
        for at, match in enumerate(called):
            if match.skill.path == skill.path:
                return Place(at + 1, len(skills), match, {}, [(one, {}) for one in called[:at]], ())
        found = place(self.members[0], goal_text, skills, skill)
        reason = self._barred(skills).get(skill.name)
        return denied(found, skill, reason) if reason else found

    def _answer(self, goal_text: str, skills: Sequence[Skill]) -> tuple[Answer, Exception | None]:
        called, notes = self._set(skills)
        if called:
            return Answer(called, [], 1.0, 0.0, self.name, 0.0, notes), None
        barred = self._barred(skills)
        answer, error = self._ask(self.members[0], goal_text, skills, barred, FAILED_ALONE)
        return answer._replace(notes=each_once((*notes, *answer.notes))), error

    def _set(self, skills: Sequence[Skill]) -> tuple[list[Match], tuple[str, ...]]:
        """The skills of `use`, and a note for each that may not be or is not there."""
        if not self._use:
            return [], ()
        barred = self._barred(skills)
        found: dict[str, Match] = {}
        notes: list[str] = []
        for one in self._use:
            skill = self._find(one, skills)
            if skill is None:
                name = one if isinstance(one, str) else one.name
                notes.append(NOT_OFFERED.format(name=name))
            elif skill.name in barred:
                notes.append(barred[skill.name])
            else:
                match = Match(skill.name, 1.0, "set to be chosen", (), skill, EXPLICIT)
                found.setdefault(skill.name, match)
        return list(found.values()), tuple(notes)

    def _barred(self, skills: Sequence[Skill]) -> dict[str, str]:
        found = [self._find(one, skills) for one in self._never]
        names = [skill.name for skill in found if skill is not None]
        return {name: NEVER.format(name=name) for name in names}

    def _find(self, one: str | Skill, skills: Sequence[Skill]) -> Skill | None:
        names = self._names.of(skills)
        if isinstance(one, str):
            at = names.exact(one)
            return skills[at] if at is not None else None
        at = names.exact(one.name)
        same = at is not None and skills[at].path == one.path
        return one if same or any(skill.path == one.path for skill in skills) else None


class Scoped(Composed):
    """The detector for an agent that has only some of the skills.

    Patterns as in a library's filter: `*` and `?` in names and ids, `exclude` beats `include`; with
    `tags` a skill needs one of them. `for_model` leaves out what only people may load.
    """

    name = "scoped"

    def __init__(
        self,
        detector: Detector,
        include: Iterable[str] = (),
        exclude: Iterable[str] = (),
        tags: Iterable[str] = (),
        *,
        for_model: bool = True,
    ) -> None:
        super().__init__(detector)
        self.name = name_of(detector)
        self._include = _pattern(include)
        self._exclude = _pattern(exclude)
        self._tags = frozenset(tag.casefold() for tag in _several(tags))
        self._for_model = for_model
        self._last: tuple[Sequence[Skill], Sequence[Skill]] | None = None

    def keeps(self, skill: Skill) -> bool:
        """Whether the agent has this skill."""
        head = skill.head
        if self._exclude and (self._exclude(head.name) or self._exclude(head.id)):
            return False
        if self._include and not (self._include(head.name) or self._include(head.id)):
            return False
        if self._for_model and not skill.for_model:
            return False
        return not self._tags or any(str(tag).casefold() in self._tags for tag in skill.tags)

    def scope(self, skills: Sequence[Skill]) -> Sequence[Skill]:
        """The agent's skills: the same tuple for the same tuple, since detectors keep indexes."""
        last = self._last
        if last is not None and last[0] is skills:
            return last[1]
        kept = tuple(skill for skill in skills if self.keeps(skill))
        if not isinstance(skills, tuple):
            return kept
        scope = kept if len(kept) < len(skills) else skills
        self._last = (skills, scope)
        return scope

    def _ranked(
        self, ask: Ranks, goal_text: str, skills: Sequence[Skill], limit: int
    ) -> list[Match]:
        """As the detector ranks the agent's skills."""
        return ask(self.members[0], goal_text, self.scope(skills), limit)

    def place(self, goal_text: str, skills: Sequence[Skill], skill: Skill) -> Place:
        """Where a skill stands among the agent's skills."""
        found = place(self.members[0], goal_text, self.scope(skills), skill)
        if self.keeps(skill):
            return found
        return denied(found, skill, OUT_OF_SCOPE.format(name=skill.name))

    def heard(self, goal_text: str, skills: Sequence[Skill]) -> Heard:
        """What the detector hears about the agent's skills."""
        scope = self.scope(skills)
        heard = heard_by(self.members[0], goal_text, scope)
        return heard._replace(notes=set_right(heard.notes, scope, skills))

    def prepare(
        self,
        skills: Sequence[Skill],
        progress: Callable[[int], None] | None = None,
        rebuild: bool = False,  # noqa: FBT001, FBT002 - as the protocol has it
    ) -> Any:
        """Build the index of the agent's skills."""
        return super().prepare(self.scope(skills), progress, rebuild)

    def _answer(self, goal_text: str, skills: Sequence[Skill]) -> tuple[Answer, Exception | None]:
        scope = self.scope(skills)
        answer, error = ask(self.members[0], goal_text, scope, FAILED_ALONE)
        return answer._replace(notes=set_right(answer.notes, scope, skills)), error


def _pattern(patterns: Iterable[str]) -> Callable[[str], object] | None:
    patterns = _several(patterns)
    if not patterns:
        return None
    import fnmatch

    return re.compile("|".join(fnmatch.translate(item) for item in patterns)).match


def _several(words: Iterable[str]) -> tuple[str, ...]:
    """One word alone is one word, and not its letters."""
    return (words,) if isinstance(words, str) else tuple(words)
