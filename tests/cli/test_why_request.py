"""`satchel why --goal`: rank, fields, competitors, missing words and advice."""

from __future__ import annotations

import json
import time

import pytest

from satchel.diagnosis.selection import significant_words

GOAL = "review this pull request"


def _chapter(out: str) -> str:
    """The section about the request, and the advice at the end."""
    first, _, story = out[out.index("For this request") - 2 :].partition("\n\n● Location")
    if not story:
        first, _, story = first.partition("\n\n▲ Location")
    return (
        first
        + "\n\nWhat to do next" * ("What to do next" in story)
        + (story.partition("What to do next")[2])
    )


# --- with the detector that ships ---------------------------------------------------------


@pytest.mark.req("C7")
def test_a_selected_skill_needs_no_fix(terminal):
    done = terminal.run("why", "code-review", "--goal", GOAL)
    assert done.status == 0
    told = _chapter(done.out)
    assert told.startswith("● For this request\n  “review this pull request”\n")
    assert "it would be chosen: rank 1 of 4" in told
    assert "satchel why code-review --goal" not in told


def test_a_skill_without_words_of_the_request_is_explained(terminal):
    told = _chapter(terminal.run("why", "fix-yaml", "--goal", "xylophone concerto").out)
    assert told.startswith("▲ For this request")
    assert "it is not chosen" in told
    assert "→ Call it by its name: a request with `use skill fix-yaml`" in told
    assert "`pin`" not in told  # it is listed in full already
    short = terminal.run(
        "why", "fix-yaml", "--goal", "xylophone", SKILLS_PROMPT_CHAR_BUDGET="300"
    ).out
    assert _chapter(short).count("add `fix-yaml` to `pin`") == 1


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("release-notes", "not offered (untrusted)"),
        ("skills/code-review", "not offered (shadowed)"),
    ],
)
def test_a_skill_that_is_not_offered_is_explained_and_ranked(terminal, name, first):
    out = terminal.run("why", name, "--goal", "write release notes, review the rest").out
    assert first in out.splitlines()[0]
    told = _chapter(out).splitlines()
    assert told[2] == "  it is not offered, so it cannot be chosen"
    assert told[3].startswith("  rank ")
    assert "chosen instead" not in out
    row = json.loads(terminal.run("why", name, "--goal", "release notes review", "--json").out)
    assert row["goal"]["offered"] is False
    assert row["goal"]["chosen"] is False
    assert row["goal"]["of"] == 5


def test_the_explanation_as_json(terminal):
    told = json.loads(terminal.run("why", "code-review", "--goal", GOAL, "--json").out)
    assert told["state"] == "active"
    goal = told["goal"]
    assert (goal["text"], goal["rank"], goal["of"]) == (GOAL, 1, 4)
    assert goal["chosen"] is True
    assert goal["advice"] == []
    assert goal["match"]["name"] == "code-review"
    assert sum(goal["fields"].values()) > 0
    keys = {"fit", "threshold", "missing", "ahead", "instead", "near_copy_of", "detector", "notes"}
    assert keys <= set(goal)
    assert "goal" not in json.loads(terminal.run("why", "code-review", "--json").out)


@pytest.mark.req("C3")
def test_an_excluding_request_is_the_reason(terminal):
    goal = "review this pull request, but do not use the code-review skill"
    out = terminal.run("why", "code-review", "--goal", goal, COLUMNS="").out
    told = _chapter(out)
    assert "it is not chosen: `code-review` is left out: the request says not to use it" in told
    assert "What to do next" not in told
    called = _chapter(terminal.run("why", "fix-yaml", "--goal", "use the fix-yaml skill").out)
    assert called.count("called by name: `") == 1
    assert "called by name: called" not in called
    assert "it would be chosen: rank 1 of 4" in called


def test_missing_words_are_those_that_belong_in_a_description():
    words = "please xylophone 这份 的 can't 帮我把这份合同改成表格 表格 看看 翻译 译成 翻译成"
    assert significant_words(words.split()) == ["xylophone", "表格", "翻译"]


# --- what was chosen before ---------------------------------------------------------------


def _remember(terminal, skills, goal, runners_up=()):
    trace = terminal.home / ".local/state/satchel/trace.jsonl"
    trace.parent.mkdir(parents=True, exist_ok=True)
    row = {
        "t": time.time(),
        "kind": "selected",
        "project": str(terminal.project),
        "skills": skills,
        "runners_up": [[name, 0.5] for name in runners_up],
        "goal": goal,
        "detector": "hybrid",
    }
    with trace.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")


@pytest.mark.req("C7")
def test_past_selections_are_listed(terminal):
    _remember(terminal, ["code-review"], "look at\nmy diff")
    _remember(terminal, ["code-review", "fix-yaml"], "review\x1b[2J " * 20)
    _remember(terminal, ["fix-yaml"], "mend the config", ["code-review"])
    _remember(terminal, [], "xylophone")
    story = terminal.run("why", "code-review", COLUMNS="").out
    assert "chosen: 2 of 4\n" in story
    assert "“review␛[2J review" in story
    assert "…”" in story
    never = terminal.run("why", "style-guide").out
    assert "chosen: 0 of 4" in never
    told = json.loads(terminal.run("why", "code-review", "--json").out)["selected"]
    assert (told["requests"], told["times"]) == (4, 2)


def test_a_number_of_a_request_is_no_missing_word(terminal):
    out = terminal.run("why", "fix-yaml", "--goal", "show the top 10 customers").out
    assert ("`customers`" in out, "`10`" in out) == (True, False)
