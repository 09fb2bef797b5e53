"""Which words of a description would change what a skill is chosen for? Only what was tried.

A prompt that misses the skill may have words that its description lacks; a prompt that it should
leave alone may be caught by one word too many. Each such change is tried: the same library, a
detector of the same kind, the skill with another description. What makes no prompt pass is not
said, nor what makes another one fail.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from satchel.authoring.advice import Advice
from satchel.authoring.candidates import catching, lacking
from satchel.authoring.lineup import reworded
from satchel.authoring.triggers import does_right
from satchel.detect.words import even
from satchel.errors import SatchelError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from satchel.authoring.advice import Change
    from satchel.authoring.rehearsal import Rehearsal
    from satchel.authoring.triggers import Result, Row
    from satchel.skill import Skill
    from satchel.skill.triggers import Prompt

Case = tuple["Skill", "Prompt"]
"""A prompt, and the skill that should or should not be chosen for it."""
MOST = 4
"""Pieces of advice for one skill."""
LOOKS = 1_500
"""Questions to the detector that one skill's advice may cost."""
_TRIED = 24
"""Changes that are tried in one round."""
_LISTED = 3
"""Changes of those that help most that are run against all prompts."""
_MAX_DESCRIPTION = 1_024


class _Spent(Exception):
    """As many questions as may be were asked."""


class _Trials:
    """One skill in one library, under changing descriptions."""

    def __init__(self, skill: Skill, skills: Sequence[Skill], stage: Rehearsal) -> None:
        self.skill = skill
        self._skills = skills
        self._at = next(at for at, one in enumerate(skills) if one.path == skill.path)
        self._stage = stage
        self._left = LOOKS
        self._changed: tuple[str, Skill, tuple[Skill, ...]] = ("", skill, ())
        self._count = 0
        self._texts: list[str] | None = None
        self._said: dict[str, int] = {}

    def others_say(self, words: str) -> int:
        """In how many descriptions of other skills some words are."""
        if words not in self._said:
            if self._texts is None:
                self._texts = [
                    even(one.description).lower()
                    for one in self._skills
                    if one.path != self.skill.path
                ]
            self._said[words] = sum(words in text for text in self._texts)
        return self._said[words]

    def end(self) -> None:
        """Leave the skill as it is, for the trials of the next one."""
        if self._count:
            with suppress(SatchelError):
                self._stage.prepare(self._skills)

    def passes(self, case: Case, description: str) -> bool:
        """Whether a prompt does what it should under another description.

        Raises:
            _Spent: enough was asked.
        """
        if not self._left:
            raise _Spent
        self._left -= 1
        if self._changed[0] != description:
            self._count += 1
            new = reworded(self.skill, description, self._count)
            rest = (*self._skills[: self._at], new, *self._skills[self._at + 1 :])
            self._changed = (description, new, rest)
            try:
                self._stage.prepare(rest)
            except SatchelError as exc:
                raise _Spent from exc  # the model went away: what is left cannot be tried
        _, new, rest = self._changed
        skill, prompt = case
        asked = new if skill.path == self.skill.path else skill
        return does_right(asked, prompt, rest, self._stage.detector)


def advise(
    result: Result, skills: Sequence[Skill], stage: Rehearsal, others: Sequence[Result] = ()
) -> tuple[Advice, ...]:
    """Changes of the description that help, each with what it gives on top of those before it.

    Args:
        result: What became of the prompts.
        skills: The line-up they were run in.
        stage: On whose detector they were run.
        others: What became of the prompts of other skills: they must pass as before.
    """
    failed = [row for row in result.rows if not row.ok]
    if not failed:
        return ()
    own: list[Case] = [(result.skill, row.prompt) for row in result.rows]
    passing = {at for at, row in enumerate(result.rows) if row.ok}
    guarded: list[Case] = [
        (one.skill, row.prompt)
        for one in others
        if one.skill.path != result.skill.path
        for row in one.rows
        if row.ok
    ]
    trials = _Trials(result.skill, skills, stage)
    found: list[Advice] = []
    text = result.skill.description
    try:
        while len(passing) < len(own) and len(found) < MOST:
            failing = [row for at, row in enumerate(result.rows) if at not in passing]
            step = _step(trials, text, failing, own, passing, guarded)
            if step is None:
                break
            change, now = step
            prompts = tuple(own[at][1].text for at in sorted(now - passing))
            found.append(Advice(change, len(passing), len(now), len(own), prompts))
            text, passing = change.made_in(text), now
    except _Spent:
        pass
    finally:
        trials.end()
    return tuple(found)


def _step(
    trials: _Trials,
    text: str,
    failing: list[Row],
    own: list[Case],
    passing: set[int],
    guarded: list[Case],
) -> tuple[Change, set[int]] | None:
    """The change that makes most prompts pass and none fail; of equals the likeliest."""
    short: list[tuple[int, bool, int, Change]] = []
    for order, change in enumerate(_changes(trials, text, failing)):
        new = change.made_in(text)
        if new != text and 0 < len(new) <= _MAX_DESCRIPTION:
            gained = sum(trials.passes((trials.skill, row.prompt), new) for row in failing)
            if gained:
                # What others say in two words is better said in two.
                phrase = change.words.count(" ") == 1 and trials.others_say(change.words) > 0
                short.append((-gained, not phrase, order, change))
    for _, _, _, change in sorted(short)[:_LISTED]:
        new = change.made_in(text)
        now = {at for at, case in enumerate(own) if trials.passes(case, new)}
        if passing < now and all(trials.passes(case, new) for case in guarded):
            return change, now
    return None


def _changes(trials: _Trials, text: str, failing: list[Row]) -> list[Change]:
    """What is worth trying, the likeliest first."""
    tally: dict[Change, int] = {}
    for row in failing:
        if row.prompt.fires:
            has = f"{trials.skill.name} {text} {trials.skill.when_to_use}"
            found = lacking(row, has, trials.others_say)
        else:
            found = catching(text, row)
        for change in dict.fromkeys(found):
            tally[change] = tally.get(change, 0) + 1
    ranked = sorted(tally, key=lambda change: -tally[change])
    return ranked[:_TRIED]
