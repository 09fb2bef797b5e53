"""Trigger tests: prompts that should and should not select a skill, for `satchel test --triggers`.

A prompt that should select the skill passes when it is among the matches; one that should not
passes when it is not, and the skill under `instead` is. The detector decides; no model is called.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from satchel.diagnosis.selection import significant_words
from satchel.errors import InvalidInput, NotFound, SatchelError, SkillBroken
from satchel.i18n import say
from satchel.skill.eval_file import has_cases, trigger_prompts
from satchel.skill.file_tree import skill_md_name
from satchel.skill.model import DEPENDENCIES, Skill, SkillOrigin
from satchel.skill.reader import load_document

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from satchel.detect import Match
    from satchel.detect.pipeline import SelectionPipeline
    from satchel.satchel import Satchel
    from satchel.skill.trigger_file import TriggerPrompt, Triggers

_OUTER_SOURCES = ("builtin", "system", "global", *DEPENDENCIES)
"""Sources of skills outside the project."""
_TESTABLE_STATES = ("active", "untrusted", "needs setup")
_MAX_WORDS_SHOWN = 5


class TriggerSuite(NamedTuple):
    """A skill and its trigger tests."""

    skill: Skill
    triggers: Triggers


class PromptResult(NamedTuple):
    """The result of one prompt."""

    prompt: TriggerPrompt
    is_selected: bool
    rank: int
    """The rank of the skill; 0 when nothing matched."""
    rivals: tuple[Match, ...]
    """Matches of other skills, best first."""
    match: Match | None
    """The match of the skill."""
    missing: tuple[str, ...]
    """Words of the prompt that the skill lacks."""
    fit: float
    """The fit of the best skill."""
    threshold: float
    near_copy: str = ""
    """The near duplicate that is selected instead."""
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether the skill, and the one under `instead`, were selected as expected."""
        return self.is_selected == self.prompt.fires and self.is_rival_selected

    @property
    def is_rival_selected(self) -> bool:
        """Whether the skill under `instead` was selected, if any."""
        name = self.prompt.instead
        return not name or any(match.name == name for match in self.rivals)

    def to_dict(self) -> dict[str, Any]:
        """The form for `--json`."""
        return {
            "prompt": self.prompt.text,
            "line": self.prompt.line,
            "should": self.prompt.fires,
            "chosen": self.is_selected,
            "ok": self.ok,
            "rank": self.rank or None,
            "fit": round(self.fit, 4),
            "threshold": round(self.threshold, 4),
            "evidence": list(self.match.evidence) if self.match is not None else [],
            "rivals": [
                {"name": match.name, "ref": match.skill.ref, "evidence": list(match.evidence)}
                for match in self.rivals
            ],
            "missing": significant_words(self.missing)[:_MAX_WORDS_SHOWN],
            "stand_in": self.near_copy or None,
            "instead": self.prompt.instead or None,
            "instead_chosen": self.is_rival_selected if self.prompt.instead else None,
            "note": self.prompt.note or None,
            "detector_notes": list(self.notes),
        }


class TriggerResult(NamedTuple):
    """The results of one skill's prompts."""

    skill: Skill
    path: str
    results: tuple[PromptResult, ...]

    @property
    def ok(self) -> bool:
        """Whether every prompt passed."""
        return all(result.ok for result in self.results)

    def to_dict(self) -> dict[str, Any]:
        """The form for `--json`."""
        return {
            "name": self.skill.name,
            "ref": self.skill.ref,
            "path": self.path,
            "ok": self.ok,
            "prompts": [result.to_dict() for result in self.results],
        }


def run_trigger_tests(
    satchel: Satchel,
    suites: Sequence[TriggerSuite],
    progress: Callable[[str, int, int], object],
) -> list[TriggerResult]:
    """Run the prompts of some skills in the offered library.

    Args:
        satchel: Provides skills and detector.
        suites: The skills with their prompts.
        progress: Called with a skill's name, the number of prompts run, and the total.

    Raises:
        InvalidInput: one of the skills cannot be chosen by a prompt.
    """
    skills: Sequence[Skill] = satchel.library.snapshot().for_model
    for suite in suites:
        skills = skills_with(skills, suite.skill)
    with suppress(OSError, SatchelError):  # another process is indexing, or a model is unavailable
        satchel.prepare()
    total = sum(len(suite.triggers.prompts) for suite in suites)
    results: list[TriggerResult] = []
    completed = 0
    for skill, triggers in suites:
        prompt_results: list[PromptResult] = []
        for prompt in triggers.prompts:
            prompt_results.append(run_prompt(skill, prompt, skills, satchel.detector))
            completed += 1
            progress(skill.name, completed, total)
        results.append(TriggerResult(skill, triggers.path, tuple(prompt_results)))
    return results


def run_prompt(
    skill: Skill, prompt: TriggerPrompt, skills: Sequence[Skill], detector: SelectionPipeline
) -> PromptResult:
    """Run the detector for a prompt of a skill that is among `skills`."""
    detection = detector.look(prompt.text, skills)
    paths = [match.skill.path for match in detection.matches]
    result = PromptResult(
        prompt=prompt,
        is_selected=skill.path in paths,
        rank=0,
        rivals=tuple(match for match in detection.matches if match.skill.path != skill.path),
        match=None,
        missing=(),
        fit=detection.fit,
        threshold=detection.threshold,
        notes=detection.notes,
    )
    if result.is_selected:
        index = paths.index(skill.path)
        return result._replace(rank=index + 1, match=detection.matches[index])
    ranking = detector.place(prompt.text, skills, skill)
    return result._replace(
        rank=ranking.rank,
        match=ranking.match,
        missing=ranking.missing,
        near_copy=next((other for copy, other in detection.collapsed if copy == skill.name), ""),
    )


# --- selection of skills ------------------------------------------------------------------


def load_outside_skill(folder: str) -> Skill:
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
        first = next(problem for problem in document.problems if problem.severity == "error")
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
    if any(candidate is skill for candidate in offered):
        return tuple(offered)
    active = skill._replace(state="active", shadowed_by="")
    others = (
        candidate
        for candidate in offered
        if candidate.name != skill.name and candidate.path != skill.path
    )
    return (*others, active)


def find_suites(skills: Iterable[Skill], *, everything: bool = False) -> list[TriggerSuite]:
    """Return selectable skills that have trigger prompts.

    Args:
        skills: All known skills.
        everything: Whether to include skills outside the project.
    """
    suites: list[TriggerSuite] = []
    for skill in skills:
        is_included = everything or skill.source not in _OUTER_SOURCES
        is_selectable = skill.for_model and not skill.is_tool and skill.state in _TESTABLE_STATES
        if not (is_included and is_selectable) or skill.origin.remote:
            continue
        if has_cases(skill.base_dir):
            triggers = trigger_prompts(skill.base_dir, skill.name)
            if triggers is not None:
                suites.append(TriggerSuite(skill, triggers))
    return suites
