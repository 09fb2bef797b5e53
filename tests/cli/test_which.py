"""`satchel which`: choices, reasons, and what is printed when no skill fits."""

from __future__ import annotations

import json

import pytest

from satchel import Satchel
from satchel.cli.commands.which import which
from satchel.detect.base import BaseDetector, Detection, Match


class Scripted(BaseDetector):
    """A detector that answers what the test wants to see on a screen."""

    name = "hybrid"
    notes: tuple[str, ...] = ()

    def __init__(self, chosen, after=(), fit=0.82, **more) -> None:
        self._chosen, self._after, self._fit, self._more = chosen, after, fit, more

    def detect(self, goal_text, skills):
        return self.look(goal_text, skills).matches

    def look(self, goal_text, skills, limit=None):
        known = {skill.name: skill for skill in skills}

        def made(rows):
            return [
                Match(name, score, f"name has `{name}`", (f"name: {name}",), known[name], "hybrid")
                for name, score in rows
            ]

        chosen, after = made(self._chosen), made(self._after)
        return Detection(chosen, after, self._fit, 0.5, "hybrid", 1.5, **self._more)


# --- what is chosen -----------------------------------------------------------------------


@pytest.mark.req("C3")
def test_the_skill_for_a_request_comes_with_its_reasons(terminal):
    done = terminal.run("which", "please review the code of this pull request")
    assert done.status == 0
    assert done.out.startswith("● code-review")
    assert "`review`" in done.out
    assert "■" in done.out
    assert "of 4 skills" in done.err


def test_scripts_get_the_whole_answer(terminal):
    told = json.loads(terminal.run("which", "review", "this", "pull request", "--json").out)
    assert told["fits"] is True
    assert told["goal"] == "review this pull request"
    first = told["skills"][0]
    assert first["name"] == "code-review"
    assert first["ref"] == ".agents/skills/code-review"
    assert any(item.endswith("review") for item in first["evidence"])
    keys = "runners_up near_copies detector fit threshold took_ms notes cost"
    assert set(keys.split()) <= set(told)


def test_a_script_sees_by_the_exit_code_that_none_fits(terminal):
    done = terminal.run("which", "xylophone")
    assert done.status == 3
    assert done.out.startswith("No skill fits\n")
    assert "`satchel new`" in done.out
    told = terminal.run("which", "xylophone", "--json")
    assert (told.status, json.loads(told.out)["fits"]) == (3, False)


def test_nothing_is_recorded_as_selected(terminal):
    for more in ((), ("--block",), ("--skill", "fix-yaml")):
        assert terminal.run("which", "review a pull request", *more).status == 0
    terminal.run("why", "code-review", "--goal", "review a pull request")
    trace = terminal.home / ".local/state/satchel/trace.jsonl"
    assert not trace.exists() or '"selected"' not in trace.read_text()


# --- options that decide ------------------------------------------------------------------


@pytest.mark.req("C3")
def test_a_skill_that_is_asked_for_is_chosen_whatever_the_words_say(terminal):
    done = terminal.run("which", "review this pull request", "--skill", "fix-yaml")
    assert done.status == 0
    assert done.out.startswith("● fix-yaml  set to be chosen\n")
    told = json.loads(terminal.run("which", "x", "--skill", "fix-yaml", "--json").out)
    assert [row["name"] for row in told["skills"]] == ["fix-yaml"]
    assert told["skills"][0]["detector"] == "explicit"


@pytest.mark.parametrize(
    ("option", "name", "status", "message"),
    [
        ("--skill", "code-reveiw", 3, "There is no skill `code-reveiw`"),
        ("--never", "code-reveiw", 3, "There is no skill `code-reveiw`"),
        ("--skill", "release-notes", 4, "is not offered, so it cannot be chosen"),
        ("--skill", "plain-text", 5, "is not a skill yet"),
    ],
)
def test_a_name_that_cannot_be_meant_is_said(terminal, option, name, status, message):
    done = terminal.run("which", "review", option, name)
    assert (done.status, done.out) == (status, "")
    assert message in done.err


# --- where the goal comes from ------------------------------------------------------------


@pytest.mark.parametrize("words", [("--file", "goal.md"), ("--file", "-"), ("-",)])
def test_a_long_goal_comes_from_a_file_or_a_pipe(terminal, words):
    text = "Please review\nthis pull request.\n" + "And then nothing.\n" * 400
    (terminal.project / "goal.md").write_text("\ufeff" + text, encoding="utf-8")
    done = terminal.run("which", *words, "--json", stdin=text)
    told = json.loads(done.out)
    assert told["skills"][0]["name"] == "code-review"
    assert told["goal"].startswith("Please review\nthis")
    assert len(told["goal"]) == 200


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        ((), 2, "There is no goal"),
        (("  ",), 2, "There is no goal"),
        (("--file", "empty.md"), 2, "There is no goal"),
        (("x", "--file", "empty.md"), 2, "The goal is there twice"),
        (("--file", "nowhere.md"), 3, "There is no `nowhere.md`"),
        (("--file", "."), 4, "`.` cannot be read"),
        (("--file", "binary"), 2, "`binary` is not text"),
        (("x", "--limit", "0"), 2, "`--limit` must be at least 1"),
    ],
)
def test_slips_with_the_goal_are_told(terminal, words, status, message):
    (terminal.project / "empty.md").write_text("\n")
    (terminal.project / "binary").write_bytes(b"a\0b")
    done = terminal.run("which", *words)
    assert (done.status, done.out) == (status, "")
    assert done.err.startswith(f"error: {message}")
    assert "\nhint: " in done.err


def test_a_goal_without_end_is_cut_and_that_is_said(terminal):
    done = terminal.run("which", "-", "--json", stdin="review " * 200_000)
    assert "Only the first 1,048,576 bytes" in done.err
    assert json.loads(done.out)["skills"][0]["name"] == "code-review"


# --- what the model would get -------------------------------------------------------------


def test_the_block_is_what_a_host_would_send(terminal, monkeypatch):
    done = terminal.run("which", "review this pull request", "--block")
    assert done.status == 0
    for name, value in terminal.env().items():
        monkeypatch.setenv(name, value)
    own = Satchel.for_project(terminal.project).shortlist("review this pull request", record=False)
    assert done.out == own.text + "\n"
    assert f"in {len(own.text)} characters" in done.err
    told = json.loads(terminal.run("which", "review this pull request", "--block", "--json").out)
    assert told["block"] == own.text
    assert told["listed"] == list(own.listed)


def test_no_block_is_said_and_not_printed(terminal):
    done = terminal.run("which", "xylophone", "--block")
    assert (done.status, done.out) == (3, "")
    assert "There is no block: no skill fits" in done.err
    off = terminal.run("which", "review this pull request", "--block", SATCHEL_SHORTLIST="0")
    assert (off.status, off.out) == (3, "")
    assert off.err.endswith("There is no block: the setting `shortlist` is 0\n")


# --- how it looks -------------------------------------------------------------------------


def test_what_is_too_weak_is_not_named(inside):
    detector = Scripted([], [("fix-yaml", 1.0), ("style-guide", 0.5)], fit=0.31)
    _, status, out, _ = inside(which, detector, "mend", "it")
    assert status == 3
    assert "31 % sure of the closest; at least 50 % is needed" in out
    assert "fix-yaml" not in out
    assert "■" not in out
    assert '`satchel why NAME --goal "mend it"`' in out
    assert "the setting `vectors`" in out


def test_a_goal_that_no_shell_should_read_is_not_repeated(inside):
    detector = Scripted([], [("fix-yaml", 1.0)], fit=0.1)
    _, _, out, _ = inside(which, detector, "mend $(rm -r x)")
    assert '`satchel why NAME --goal "…"`' in out
    assert "$(rm" not in out


def test_notes_and_costs_are_for_people(inside):
    cost = {"calls": 1.0, "input_tokens": 812.0, "output_tokens": 9.0, "usd": 0.0004}
    detector = Scripted([("fix-yaml", 1.0)], notes=("the index is being built",), cost=cost)
    _, _, out, err = inside(which, detector, "mend")
    assert "index" not in out
    assert "the index is being built\n" in err
    assert "1 calls, 812 tokens sent, 9 received; $ 0.0004" in err


def test_one_skill_cannot_be_asked_for_and_barred(terminal):
    words = ("--skill", "fix-yaml", "--never", ".agents/skills/fix-yaml")
    done = terminal.run("which", "mend", *words)
    assert (done.status, done.out) == (2, "")
    assert "`fix-yaml` is given both with `--skill` and with `--never`" in done.err
