"""A prompt passes when the skill is chosen for it, or not, as its author says."""

from __future__ import annotations

import re

import pytest

from satchel import Satchel
from satchel.authoring.trigger_tests import (
    TriggerResult,
    load_outside_skill,
    run_prompt,
    skills_with,
)
from satchel.detect import BaseDetector, Match
from satchel.errors import InvalidInput, NotFound, SkillBroken
from satchel.skill.trigger_file import TriggerPrompt
from satchel.testing import make_skill, make_tool_skill

pytestmark = pytest.mark.req("C3")
SKILLS = {
    "code-review": "Reviews source code for bugs, security holes and style.",
    "git-helper": "Explains a diff, a branch or a merge conflict, and opens a pull request.",
    "release-notes": "Writes release notes from commits when a version is published.",
    "pdf-forms": "Fills in PDF forms and extracts their fields.",
    "translation": "Translates text between German, French and Spanish.",
    "spreadsheets": "Builds spreadsheets with formulas, charts and pivot tables.",
}


def make_library(folder) -> Satchel:
    """A project with these skills, all of them trusted."""
    for name, text in SKILLS.items():
        make_skill(folder / ".agents/skills", name, text)
    return Satchel.for_project(folder, trust="all", builtin=False)


def should(*texts: str) -> list[TriggerPrompt]:
    """Prompts that should choose the skill."""
    return [TriggerPrompt(text, fires=True, line=at) for at, text in enumerate(texts, 1)]


def should_not(*texts: str, instead: str = "") -> list[TriggerPrompt]:
    """Prompts that should not."""
    return [
        TriggerPrompt(text, fires=False, line=at, instead=instead)
        for at, text in enumerate(texts, 1)
    ]


class Counting(BaseDetector):
    """Chooses the two skills that share most words with the goal: a user's own, with one method."""

    def detect(self, goal_text, skills):
        wanted = _words(goal_text)
        found: list[Match] = []
        for skill in skills:
            both = sorted(wanted & _words(f"{skill.name} {skill.description}"))
            if both:
                evidence = tuple(f"description: {word}" for word in both)
                found.append(Match(skill.name, len(both), "", evidence, skill))
        return sorted(found, key=lambda match: (-match.score, match.name))[:2]


def _words(text: str) -> set[str]:
    return set(re.findall(r"[a-z]{4,}", text.lower()))


@pytest.fixture
def satchel(tmp_path) -> Satchel:
    return make_library(tmp_path)


@pytest.fixture(params=["ours", "counting"])
def detector(request, satchel):
    return satchel.detector if request.param == "ours" else Counting()


def _result(satchel: Satchel, detector, name: str, prompts) -> TriggerResult:
    skills = satchel.library.snapshot().for_model
    skill = next(one for one in skills if one.name == name)
    rows = tuple(run_prompt(skill, one, skills, detector) for one in prompts)
    return TriggerResult(skill, "", rows)


def test_every_outcome_of_a_prompt(satchel, detector):
    prompts = [
        *should("Look for bugs and security holes in this source code"),
        *should("Build a spreadsheet with charts and formulas"),
        *should_not("Reviews of source code: style and bugs"),
        *should_not("Translates German text into French and Spanish", instead="translation"),
        *should_not("Fill in the fields of this PDF form", instead="translation"),
    ]
    result = _result(satchel, detector, "code-review", prompts)
    hit, missed, fired, quiet, elsewhere = result.results
    assert [row.is_selected for row in result.results] == [True, False, True, False, False]
    assert [row.ok for row in result.results] == [True, False, False, True, False]
    assert (hit.rank, fired.rank) == (1, 1)
    assert missed.rivals[0].name == "spreadsheets"
    assert any("charts" in piece for piece in missed.rivals[0].evidence)
    assert fired.match is not None
    assert any("bugs" in piece for piece in fired.match.evidence)
    assert (quiet.is_rival_selected, elsewhere.is_rival_selected) == (True, False)
    assert not result.ok
    told = result.to_dict()
    assert [row["ok"] for row in told["prompts"]] == [row.ok for row in result.results]
    assert told["prompts"][3]["instead_chosen"] is True


# --- the line-up --------------------------------------------------------------------------


def test_an_untrusted_skill_takes_part_in_trigger_tests(tmp_path):
    make_skill(tmp_path / "skills", "stranger", "Carves marble statues.")
    satchel = Satchel.for_project(tmp_path, trust="ask", builtin=False)
    (skill,) = satchel.library.find("stranger")
    assert skill.state == "untrusted"
    offered = satchel.library.snapshot().for_model
    assert skill.path not in {one.path for one in offered}
    skills = skills_with(offered, skill)
    assert [one.state for one in skills if one.path == skill.path] == ["active"]
    (prompt,) = should("Carve a marble statue")
    row = run_prompt(skill, prompt, skills, satchel.detector)
    assert row.ok


def test_a_skill_outside_the_library_replaces_the_one_of_its_name(satchel, tmp_path):
    other = tmp_path / "elsewhere"
    make_skill(other, "pdf-forms", "Carves marble statues.")
    skill = load_outside_skill(str(other / "pdf-forms"))
    offered = satchel.library.snapshot().for_model
    skills = skills_with(offered, skill)
    assert len(skills) == len(offered)
    assert [one.path for one in skills if one.name == "pdf-forms"] == [skill.path]
    (prompt,) = should("Carve a marble statue")
    row = run_prompt(skill, prompt, skills, satchel.detector)
    assert row.ok


def test_a_skill_that_words_never_select_is_not_tested(satchel, tmp_path):
    make_tool_skill(tmp_path / ".agents/skills", "words", tool="words_count")
    make_skill(tmp_path / ".agents/skills", "by-hand", disable_model_invocation=True)
    satchel.refresh()
    library = satchel.library
    with pytest.raises(InvalidInput, match="tools and no instructions"):
        skills_with((), library.tools(refresh=True).find("words")[0].skill)
    with pytest.raises(InvalidInput, match="people alone"):
        skills_with((), library.find("by-hand")[0])


def test_a_folder_without_a_skill_is_an_error(tmp_path):
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(NotFound, match=r"no SKILL\.md"):
            load_outside_skill(str(folder))
    (tmp_path / "SKILL.md").write_text("# Only a heading\n")
    with pytest.raises(SkillBroken, match="is not a skill"):
        load_outside_skill(str(tmp_path))
