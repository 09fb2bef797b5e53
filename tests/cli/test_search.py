"""`satchel search`: choices, reasons, and what is printed when no skill fits."""

from __future__ import annotations

import json
import re

import pytest

from satchel.cli.commands.search import search
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
    done = terminal.run("search", "please review the code of this pull request")
    assert done.status == 0
    assert "●  code-review  " in done.out
    assert "of 4 skills" in done.err
    explained = terminal.run("search", "please review the code of this pull request", "--explain")
    assert explained.out.startswith("● code-review  ")
    assert "`review`" in explained.out


def test_scripts_get_the_whole_answer(terminal):
    told = json.loads(terminal.run("search", "review", "this", "pull request", "--json").out)
    assert told["fits"] is True
    assert told["goal"] == "review this pull request"
    first = told["skills"][0]
    assert first["name"] == "code-review"
    assert first["ref"] == ".agents/skills/code-review"
    assert any(item.endswith("review") for item in first["evidence"])
    keys = "runners_up near_copies detector fit threshold took_ms notes cost"
    assert set(keys.split()) <= set(told)


def test_a_script_sees_by_the_exit_code_that_none_fits(terminal):
    done = terminal.run("search", "xylophone")
    assert done.status == 3
    assert done.out == ""
    assert "\nNo skill fits\n" in done.err
    assert "run `satchel trust`" in done.err
    assert "`satchel new`" not in done.err, "a skill may be here, untrusted"
    terminal.trust("skills")
    assert "`satchel new`" in terminal.run("search", "xylophone").err
    told = terminal.run("search", "xylophone", "--json")
    assert (told.status, json.loads(told.out)["fits"]) == (3, False)


def test_nothing_is_recorded_as_selected(terminal):
    assert terminal.run("search", "review a pull request").status == 0
    terminal.run("why", "code-review", "--goal", "review a pull request")
    trace = terminal.home / ".local/state/satchel/trace.jsonl"
    assert not trace.exists() or '"selected"' not in trace.read_text()


# --- where the goal comes from ------------------------------------------------------------


def test_a_long_request_comes_from_a_pipe(terminal):
    text = "Please review\nthis pull request.\n" + "And then nothing.\n" * 400
    done = terminal.run("search", "-", "--json", stdin=text)
    told = json.loads(done.out)
    assert told["skills"][0]["name"] == "code-review"
    assert told["goal"].startswith("Please review\nthis")
    assert len(told["goal"]) == 200


@pytest.mark.parametrize(
    ("words", "stdin", "message"),
    [
        ((), "", "`TEXT` is missing"),
        (("  ",), "", "`TEXT` is missing"),
        (("-",), "\n", "`TEXT` is missing"),
        (("-",), "a\0b", "stdin is not text"),
        (("x", "--limit", "0"), "", "`--limit` needs a whole number (1…), not `0`"),
    ],
)
def test_usage_errors(terminal, words, stdin, message):
    done = terminal.run("search", *words, stdin=stdin)
    assert (done.status, done.out) == (2, "")
    assert done.err.startswith(f"error: {message}")


def test_a_broken_skill_that_is_named_says_what_is_wrong(terminal):
    done = terminal.run("search", "use the plain-text skill", COLUMNS="")
    assert "`plain-text` is not a skill: " in done.err
    assert "There is no skill" not in done.err


def test_a_request_that_is_too_long_is_refused(terminal):
    done = terminal.run("search", "-", stdin="review " * 200_000)
    assert (done.status, "`stdin` has more than 1,048,576 bytes" in done.err) == (2, True)


# --- how it looks -------------------------------------------------------------------------


def test_weak_matches_are_not_listed(inside):
    detector = Scripted([], [("fix-yaml", 1.0), ("style-guide", 0.5)], fit=0.31)
    _, status, out, err = inside(search, detector, "mend", "it")
    assert status == 3
    assert out == ""
    assert "No skill fits: the closest reaches 31 %, 50 % is needed" in err
    assert "fix-yaml" not in err
    assert '`satchel search "…" --explain`' in err


def test_percentage_and_threshold_agree(inside):
    chosen = [("fix-yaml", 1.0), ("style-guide", 0.7), ("code-review", 0.5)]
    _, _, out, err = inside(search, Scripted(chosen, fit=0.8), "mend", "it")
    assert [line.split()[1:4] for line in out.splitlines()[1:]] == [
        ["fix-yaml", "80", "%"],
        ["style-guide", "56", "%"],
    ]
    assert "2 of 4 skills" in err
    _, _, out, _ = inside(search, Scripted(chosen, fit=0.8), "mend", "it", "--explain")
    below = out.partition("not selected")[2]
    assert "code-review   40 %" in below


def test_each_skill_has_its_own_certainty_beside_it(terminal):
    about = {"slide-maker": "Guide to slides.", "logo-maker": "Draws logos. Asks for the style."}
    terminal.skills(about)
    done = terminal.run("search", "a table with the style of this guide")
    shown = [re.findall(r"■+|\d+ %", one) for one in done.out.splitlines() if one[:1] == "●"]
    told = json.loads(terminal.run("search", done.words[1], "--json").out)
    fits = [f"{round(told['fit'] * one['score'] * 100)} %" for one in told["skills"]]
    assert (len(shown) > 1, shown) == (True, [[fit] for fit in fits])


def test_a_word_that_only_looks_alike_names_no_skill(terminal):
    about = "Comprehensive guide to writing testable product hypotheses that drive learning"
    terminal.skills({"hypothesis-writing": about})
    done = terminal.run("search", "write unit tests for my parser")
    assert (done.status, done.out, "hypothesis" in done.err) == (3, "", False)
