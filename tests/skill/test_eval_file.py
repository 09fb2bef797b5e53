"""Evaluation cases are read from the dialects of real authors, or are problems with a line."""

from __future__ import annotations

import json
import sys

import pytest

from satchel.authoring.check_skill import check_folder
from satchel.skill.eval_file import EvalCheck, load_cases, trigger_prompts
from satchel.testing import make_skill

TRAILING_COMMA = '{"evals": [\n {"prompt": "a"},\n]}'
"""Python 3.13 names the line of the comma, older ones that of the bracket."""


@pytest.fixture
def skill(tmp_path):
    """A skill; call it with file names and contents of its folder `evals`."""
    make_skill(tmp_path, "pdf-forms")
    folder = tmp_path / "pdf-forms"

    def write(**files):
        for name, content in files.items():
            path = folder / "evals" / name.replace("__", "/").replace("_json", ".json")
            path.parent.mkdir(parents=True, exist_ok=True)
            text = content if isinstance(content, str) else json.dumps(content, indent=1)
            path.write_text(text, encoding="utf-8")
        return str(folder)

    return write


@pytest.mark.parametrize(
    "content",
    [
        {"skill_name": "x", "evals": [{"id": 1, "prompt": "Fill it", "expected_output": "Filled",
                                       "assertions": ["has a name", {"text": "is signed"}]}]},
        {"evals": [{"id": 1, "prompt": "Fill it", "expected_output": "Filled",
                    "expectations": ["has a name", "is signed"]}]},
        [{"id": 1, "question": "Fill it", "ground_truth": "Filled", "expected_skill": "pdf-forms",
          "expected_behavior": ["has a name", "is signed"]}],
        {"id": 1, "prompt": "Fill it", "expected_behavior": "Filled",
         "pass_criteria": ["has a name", "is signed"]},
        {"name": "1", "prompt": "Fill it", "expected_output": "Filled",
         "judge": [{"check": "has a name", "weight": 0.5}, {"check": "is signed"}]},
    ],
)  # fmt: skip
def test_every_dialect_becomes_the_same_case(skill, content):
    (case,) = load_cases(skill(evals_json=content)).cases
    assert (case.id, case.prompt, case.expected) == ("1", "Fill it", "Filled")
    assert case.statements == ("has a name", "is signed")
    assert case.is_task


def test_a_case_knows_its_line_its_files_and_its_checks(skill):
    text = """{"evals": [
  {"prompt": "a {", "expected_output": "b"},
  {
    "prompt": "c",
    "files": ["files/in.csv"],
    "checks": [
      {"contains": "total"},
      {"file": "out.csv"},
      {"matches": "^id", "file": "out.csv"},
      {"schema": {"type": "object"}},
      {"script": "evals/check.py", "args": ["out.csv"]}
    ]
  }
]}"""
    suite = load_cases(skill(evals_json=text, files__in="x", **{"files__in.csv": "x"}))
    assert suite.problems == ()
    assert [(case.id, case.line) for case in suite.cases] == [("1", 2), ("2", 3)]
    assert suite.cases[1].files == ("files/in.csv",)
    assert suite.cases[1].checks == (
        EvalCheck("contains", "total"),
        EvalCheck("file", "out.csv", "out.csv"),
        EvalCheck("matches", "^id", "out.csv"),
        EvalCheck("schema", {"type": "object"}),
        EvalCheck("script", "evals/check.py", args=("out.csv",)),
    )


def test_prompts_about_selection_are_cases_too(skill):
    folder = skill(
        eval_queries_json=[{"query": "Fill it", "should_trigger": True},
                           {"query": "Cook", "should_trigger": False}],
        evals_json=[{"input": "Sing", "type": "false_positive", "expected_behavior": "Does not"},
                    {"question": "Book it", "expected_skill": "travel"}],
    )  # fmt: skip
    suite = load_cases(folder)
    assert {case.prompt: case.fires for case in suite.cases} == {
        "Fill it": True, "Cook": False, "Sing": False, "Book it": False,
    }  # fmt: skip
    assert suite.tasks == ()
    triggers = trigger_prompts(folder)
    assert triggers is not None
    assert ("Book it", False, "travel") in [
        (prompt.text, prompt.fires, prompt.instead) for prompt in triggers.prompts
    ]
    folder = skill(**{"triggers.yaml": "should: [Only this]\n"})
    assert [prompt.text for prompt in trigger_prompts(folder).prompts] == ["Only this"]
    assert {case.prompt for case in load_cases(folder).cases} >= {"Only this", "Fill it"}


@pytest.mark.parametrize(
    ("content", "code", "line"),
    [
        (TRAILING_COMMA, "evals-not-json", 2 if sys.version_info >= (3, 13) else 3),
        ("[" * 100_000, "evals-not-json", 0),
        ("[]", "evals-none", 1),
        ('{"evals": [\n "a"]}', "evals-row", 1),
        ('[{"prompt": "a"},\n {"prompt": " "}]', "evals-prompt", 2),
        ('[{"prompt": "a",\n "checks": [\n {"equals": 1}]}]', "evals-check", 3),
        ('[{"prompt": "a", "checks": [{"matches": "("}]}]', "evals-check", 1),
        ('\n[{"prompt": "a", "files": ["../../etc/passwd"]}]', "evals-file", 2),
    ],
)
def test_what_cannot_be_read_is_a_problem_with_its_line(skill, content, code, line):
    folder = skill(evals_json=content)
    (problem,) = load_cases(folder).problems
    assert (problem.code, problem.line) == (code, line)
    assert problem.message
    assert problem.fix
    (report,) = check_folder(folder)
    assert code in report.failed_codes


def test_other_files_of_the_folder_are_no_problem_and_links_do_not_lead_out(skill, tmp_path):
    folder = skill(settings_json={"agents": []}, scenarios__one_json={"prompt": "a", "judge": []})
    assert [case.prompt for case in load_cases(folder).cases] == ["a"]
    (tmp_path / "secret.json").write_text('[{"prompt": "secret"}]')
    (tmp_path / "pdf-forms/evals/evals.json").symlink_to(tmp_path / "secret.json")
    suite = load_cases(folder)
    assert [problem.code for problem in suite.problems] == ["unreadable"]
    assert "secret" not in {case.prompt for case in suite.cases}


def test_a_folder_whose_cases_are_in_another_format_is_a_problem(skill):
    suite = load_cases(skill(**{"triage.yaml": "metrics: []\n"}))
    assert [problem.code for problem in suite.problems] == ["evals-unread"]
