"""Trigger tests: prompts that should and should not select a skill.

Run by `satchel test --triggers`. A prompt that should select the skill passes when it is among the
matches; one that should not passes when it is not, and the skill under `instead` is. The detector
decides; no model is called.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from satchel.errors import InvalidInput, NotFound, SatchelError, SkillBroken
from satchel.explain_selection import significant_words
from satchel.i18n import say
from satchel.skill.file_tree import skill_md_name
from satchel.skill.model import Skill, SkillOrigin
from satchel.skill.reader import load_document
from satchel.skill.trigger_file import has_triggers, load_triggers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from satchel.detect import Match
    from satchel.detect.pipeline import SelectionPipeline
    from satchel.satchel import Satchel
    from satchel.skill.trigger_file import TriggerPrompt, Triggers

    Subject = tuple[Skill, Triggers]

OTHERS = ("builtin", "system", "global")
"""Locations outside the project."""
_MAX_WORDS_SHOWN = 5


class PromptResult(NamedTuple):
    """The result of one prompt."""

    prompt: TriggerPrompt
    chosen: bool
    rank: int
    """The rank of the skill; 0 when nothing matched."""
    rivals: tuple[Match, ...]
    """Other matches, best first."""
    own: Match | None
    """The match of the skill."""
    missing: tuple[str, ...]
    """Words of the prompt that the skill lacks."""
    sure: tuple[float, float]
    """The fit of the best skill, and the threshold."""
    stand_in: str = ""
    """The near copy selected instead."""
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether the skill, and the one under `instead`, were selected as expected."""
        return self.chosen == self.prompt.fires and self.instead

    @property
    def instead(self) -> bool:
        """Whether the skill under `instead` was selected, if any."""
        wanted = self.prompt.instead
        return not wanted or any(one.name == wanted for one in self.rivals)

    def to_dict(self) -> dict[str, Any]:
        """The form for `--json`."""
        return {
            "prompt": self.prompt.text,
            "line": self.prompt.line,
            "should": self.prompt.fires,
            "chosen": self.chosen,
            "ok": self.ok,
            "rank": self.rank or None,
            "fit": round(self.sure[0], 4),
            "threshold": round(self.sure[1], 4),
            "evidence": list(self.own.evidence) if self.own is not None else [],
            "rivals": [
                {"name": one.name, "ref": one.skill.ref, "evidence": list(one.evidence)}
                for one in self.rivals
            ],
            "missing": significant_words(self.missing)[:_MAX_WORDS_SHOWN],
            "stand_in": self.stand_in or None,
            "instead": self.prompt.instead or None,
            "instead_chosen": self.instead if self.prompt.instead else None,
            "note": self.prompt.note or None,
            "detector_notes": list(self.notes),
        }


class TriggerResult(NamedTuple):
    """The results of one skill's prompts."""

    skill: Skill
    path: str
    rows: tuple[PromptResult, ...]

    @property
    def ok(self) -> bool:
        """Whether every prompt passed."""
        return all(row.ok for row in self.rows)

    def to_dict(self) -> dict[str, Any]:
        """The form for `--json`."""
        return {
            "name": self.skill.name,
            "ref": self.skill.ref,
            "path": self.path,
            "ok": self.ok,
            "prompts": [row.to_dict() for row in self.rows],
        }


def run_subjects(
    satchel: Satchel,
    subjects: Sequence[tuple[Skill, Triggers]],
    tell: Callable[[str, int, int], object],
) -> list[TriggerResult]:
    """Run the prompts of some skills in the offered library.

    Args:
        satchel: Provides skills and detector.
        subjects: The skills with their prompts.
        tell: Called with a skill's name, the number of prompts run, and the total.

    Raises:
        InvalidInput: one of the skills cannot be chosen by a prompt.
    """
    skills: Sequence[Skill] = satchel.library.snapshot().for_model
    for skill, _ in subjects:
        skills = skills_with(skills, skill)
    with suppress(OSError, SatchelError):  # another process is indexing, or a model is unavailable
        satchel.prepare()
    total = sum(len(triggers.prompts) for _, triggers in subjects)
    results: list[TriggerResult] = []
    done = 0
    for skill, triggers in subjects:
        rows: list[PromptResult] = []
        for prompt in triggers.prompts:
            rows.append(run_prompt(skill, prompt, skills, satchel.detector))
            done += 1
            tell(skill.name, done, total)
        results.append(TriggerResult(skill, triggers.path, tuple(rows)))
    return results


def run_prompt(
    skill: Skill, prompt: TriggerPrompt, skills: Sequence[Skill], detector: SelectionPipeline
) -> PromptResult:
    """Run the detector for a prompt of a skill that is among `skills`."""
    answer = detector.look(prompt.text, skills)
    own = next((one for one in answer.matches if one.skill.path == skill.path), None)
    others = tuple(one for one in answer.matches if one.skill.path != skill.path)
    sure = (answer.fit, answer.threshold)
    if own is not None:
        rank = answer.matches.index(own) + 1
        return PromptResult(prompt, True, rank, others, own, (), sure, notes=answer.notes)  # noqa: FBT003
    where = detector.place(prompt.text, skills, skill)
    return PromptResult(
        prompt,
        chosen=False,
        rank=where.rank,
        rivals=others,
        own=where.match,
        missing=where.missing,
        sure=sure,
        stand_in=next((other for copy, other in answer.collapsed if copy == skill.name), ""),
        notes=answer.notes,
    )


# --- which skills ------------------------------------------------------------------------


def skill_at(folder: str) -> Skill:
    """Load the skill of a folder outside the library.

    Raises:
        NotFound: it has no SKILL.md.
        SkillBroken: that is not a skill.
    """
    folder = os.path.abspath(folder)
    try:
        file = skill_md_name(os.listdir(folder))
    except OSError:
        file = ""
    if not file:
        raise NotFound(
            say("There is no SKILL.md in `{path}`", path=folder),
            say("Give the folder of a skill"),
        )
    document = load_document(folder, file)
    if document.head is None:
        first = next(one for one in document.problems if one.severity == "error")
        raise SkillBroken(
            say(
                "`{name}` is not a skill: {problem}",
                name=os.path.basename(folder),
                problem=first.message,
            ),
            first.fix,
        )
    origin = SkillOrigin(os.path.dirname(folder), "extra", os.path.dirname(folder))
    return Skill(document.head, origin)


def skills_with(offered: Sequence[Skill], skill: Skill) -> tuple[Skill, ...]:
    """Return the offered skills with this one in place of those with its name.

    Raises:
        InvalidInput: it cannot be selected by a prompt.
    """
    if skill.is_tool:
        raise InvalidInput(
            say("`{name}` has tools and no instructions to choose", name=skill.name),
            say("Run `{command}`", command=f"satchel test {skill.reference}"),
        )
    if not skill.for_model:
        raise InvalidInput(
            say("`{name}` is chosen by people alone: `disable-model-invocation`", name=skill.name),
            say("Remove that line from its SKILL.md to have models choose it"),
        )
    if any(one is skill for one in offered):
        return tuple(offered)
    active = skill._replace(state="active", shadowed_by="")
    others = (one for one in offered if one.name != skill.name and one.path != skill.path)
    return (*others, active)


def subjects(skills: Iterable[Skill], *, everything: bool = False) -> list[Subject]:
    """Return selectable skills that have trigger prompts.

    Args:
        skills: All known skills.
        everything: Whether to include skills outside the project.
    """
    every = [
        skill
        for skill in skills
        if (everything or skill.source not in OTHERS)
        and skill.for_model
        and not skill.is_tool
        and skill.state in ("active", "untrusted")
        and not skill.origin.remote
        and has_triggers(skill.base_dir)
    ]
    read = [(skill, load_triggers(skill.base_dir)) for skill in every]
    return [(skill, triggers) for skill, triggers in read if triggers is not None]
