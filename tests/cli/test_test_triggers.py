"""`satchel test --triggers` and `satchel check --overlap`."""

from __future__ import annotations

import json
import os

import pytest

pytestmark = [pytest.mark.timeout(60), pytest.mark.req("C3")]

SKILLS = {
    "code-review": "Reviews source code for bugs, security holes and style.",
    "git-helper": "Explains a diff or a merge conflict, and opens a pull request.",
    "pdf-forms": "Fills in PDF forms and extracts their fields.",
    "spreadsheets": "Builds spreadsheets with formulas, charts and pivot tables.",
    "translation": "Translates text between German, French and Spanish.",
}
GOOD = """\
should:
  - Find bugs and security holes in source code
should_not:
  - prompt: Fill in PDF forms
    instead: pdf-forms
"""
MIXED = """\
should:
  - Find bugs and security holes in source code
  - Inspect Haskell modules
  - Inspect Haskell
should_not:
  - prompt: Fill in PDF forms
    instead: translation
  - Extract fields of PDF forms
"""


@pytest.fixture
def desk(empty):
    empty.skills(SKILLS)
    return empty


def _prompts(desk, name: str, text: str, file: str = "triggers.yaml") -> None:
    folder = desk.project / f".agents/skills/{name}/evals"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / file).write_text(text, encoding="utf-8")


SNAPSHOTS = {"triggers-mixed": MIXED, "triggers-good": GOOD, "triggers-none": None}


@pytest.mark.parametrize("name", SNAPSHOTS)
def test_whole_runs_of_trigger_tests(name, desk):
    text = SNAPSHOTS[name]
    if text is not None:
        _prompts(desk, "code-review", text)
    desk.check(name, desk.run("test", "--triggers", "code-review"))
    if name == "triggers-mixed":
        words = ("test", "--triggers", "code-review")
        desk.check(f"zh-{name}", desk.run(*words, SATCHEL_LANG="zh"))


def test_a_skill_without_a_program_has_prompts_to_run(desk):
    _prompts(desk, "code-review", GOOD)
    done = desk.run("test", "code-review", COLUMNS="")
    assert done.status == 2
    assert "hint: Run `satchel test --triggers code-review`" in done.err
    done = desk.run("test", "translation", COLUMNS="")
    assert "hint: Run `satchel check translation`" in done.err


def test_json_has_everything(desk):
    _prompts(desk, "code-review", MIXED)
    done = desk.run("test", "--triggers", "code-review", "--json")
    told = json.loads(done.out)
    assert (done.status, told["ok"], told["broken"]) == (1, False, [])
    (record,) = told["results"]
    assert [row["ok"] for row in record["prompts"]] == [True, False, False, False, True]


def test_without_a_name_every_skill_with_prompts_is_tested(desk):
    nothing = desk.run("test", "--triggers")
    assert nothing.status == 0
    assert "There are no trigger tests" in nothing.err
    _prompts(desk, "code-review", GOOD)
    _prompts(desk, "pdf-forms", "should: [Fill in PDF forms]\n")
    done = desk.run("test", "--triggers", "--json")
    assert done.status == 0, done.out
    assert [one["name"] for one in json.loads(done.out)["results"]] == ["code-review", "pdf-forms"]
    assert desk.run("test", "--triggers", "--all").status == 0
    # One broken file does not hide the others.
    _prompts(desk, "translation", "should: [\n")
    done = desk.run("test", "--triggers")
    assert done.status == 5
    assert "✓ code-review" in done.out
    assert "The trigger tests of `translation` cannot be run" in " ".join(done.err.split())
    told = json.loads(desk.run("test", "--triggers", "--json").out)
    assert [one["name"] for one in told["broken"]] == ["translation"]
    assert told["broken"][0]["problems"][0]["line"] == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "`NAME` is missing"),
        (("--triggers", "a", "--all"), "Give one of `NAME`, `--all`"),
        (("--triggers", "."), "`.` has several skills"),
    ],
)
def test_wrong_arguments_have_a_hint(words, message, desk):
    done = desk.run("test", *words)
    assert (done.status, done.out) == (2, "")
    assert done.err.startswith(f"error: {message}\n\nhint: ")


def test_a_hostile_prompt_moves_no_cursor(desk):
    _prompts(desk, "code-review", 'should: ["Inspect \\e[31m Haskell \\u202e"]\n')
    done = desk.run("test", "--triggers", "code-review")
    assert "\x1b" not in done.out
    assert "\u202e" not in done.out


def test_a_new_skill_passes_its_own_prompts(empty):
    assert empty.run("new", "style-check").status == 0
    assert empty.run("new", "shenyue", SATCHEL_LANG="zh").status == 0
    for builtin in ("false", "true"):
        done = empty.run("test", "--triggers", SATCHEL_BUILTIN=builtin)
        assert done.status == 0, done.out
    path = empty.project / ".agents/skills/style-check/evals/triggers.yaml"
    assert "satchel test --triggers style-check" in path.read_text()
    checked = json.loads(empty.run("check", "style-check", "--json").out)[0]
    assert {"files-valid": "pass"}.items() <= {
        box["rule"]: box["state"] for box in checked["boxes"]
    }.items()
    path.write_text("should:\n  - Fix this: please\n")
    checked = empty.run("check", "style-check", COLUMNS="")
    assert checked.status == 0
    where = os.path.join("evals", "triggers.yaml")
    assert f"warning triggers-row ({where}:2): A row is a mapping" in checked.out


# --- overlap -----------------------------------------------------------------------------


OVERLAPPING = {
    "code-review": "Reviews pull requests for bugs, security and style.",
    "review-changes": "Reviews pull requests: bugs, tests and style.",
    "pdf-forms": "Fills in PDF forms and extracts their fields.",
    "pdf-forms-2": "Fills in PDF forms and extracts their fields.",
    "translation": "Translates text between German, French and Spanish.",
}


@pytest.fixture
def similar(empty):
    empty.skills(OVERLAPPING)
    return empty


OVERLAP_RUNS = {
    "overlap": ("check", "--overlap"),
    "overlap-one": ("check", "--overlap", "pdf-forms"),
    "overlap-none": ("check", "--overlap", "translation"),
}


def test_whole_runs_of_overlap(similar):
    for name, words in OVERLAP_RUNS.items():
        similar.check(name, similar.run(*words))
    similar.check("zh-overlap", similar.run("check", "--overlap", SATCHEL_LANG="zh"))


def test_exit_codes_of_overlap(similar):
    assert similar.run("check", "--overlap").status == 0
    assert similar.run("check", "--overlap", "--strict").status == 1
    assert similar.run("check", "--overlap", "code-review", "--strict").status == 0
    assert similar.run("check", "--overlap", "no-such-skill").status == 3


def test_overlap_names_untrusted_skills_and_strict_does_not_pass_without_them(empty):
    head = "---\nname: greet\ndescription: Greets people. Use for a welcome.\n---\n"
    empty.skill("skills/greet", f"{head}Say hello.\n")
    run = empty.run("check", "--overlap", COLUMNS="")
    assert (run.status, "1 skill of this folder is not trusted yet" in run.err) == (0, True), run
    assert empty.run("check", "--overlap", "--strict").status == 8
    record = json.loads(empty.run("check", "--overlap", "--strict", "--json").out)
    assert (record["ok"], record["untrusted"]) == (False, 1)
    assert empty.run("check", "--overlap", "--strict", SATCHEL_TRUST="all").status == 0
