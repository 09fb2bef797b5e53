"""which: at most three skills for a request, why, and what to do when there is none."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess

import pytest

from satchel import Satchel
from satchel.cli.choosing import which
from satchel.cli.inspecting import search
from satchel.cli.output import width_of
from satchel.detect.base import Answer, BaseDetector, Match
from satchel.detect.notes import Note

HOSTILE = (
    '---\nname: "evil\\e[2J\\u202egnp"\n'
    'description: "Quarterly zebra\\e[31m report\\n\\u202eevil\\u202c \\x9b1m. Use it."\n---\nx\n'
)
ORDERS = set("\x1b\x9b\x07\u202e\u202c")


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
        return Answer(chosen, after, self._fit, 0.5, "hybrid", 1.5, **self._more)


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
    # What waits for trust may be what is missing.
    assert "`satchel trust`" in done.out
    told = terminal.run("which", "xylophone", "--json")
    assert (told.status, json.loads(told.out)["fits"]) == (3, False)


def test_a_project_without_skills_has_an_answer_too(empty):
    done = empty.run("which", "anything at all")
    assert done.status == 3
    assert done.out.startswith("No skill fits")


@pytest.mark.parametrize("limit", [1, 2])
def test_the_limit_is_the_callers(terminal, limit):
    goal = "review a style guide, repair yaml and write docs"
    told = json.loads(terminal.run("which", goal, "--limit", str(limit), "--json").out)
    assert 1 <= len(told["skills"]) <= limit
    assert told["runners_up"]


def test_nothing_is_recorded_as_selected(terminal):
    for more in ((), ("--block",), ("--skill", "fix-yaml")):
        assert terminal.run("which", "review a pull request", *more).status == 0
    terminal.run("why", "code-review", "--goal", "review a pull request")
    trace = terminal.home / ".local/state/satchel/trace.jsonl"
    assert not trace.exists() or '"selected"' not in trace.read_text()


# --- what somebody decided ----------------------------------------------------------------


@pytest.mark.req("C3")
def test_a_skill_that_is_asked_for_is_chosen_whatever_the_words_say(terminal):
    done = terminal.run("which", "review this pull request", "--skill", "fix-yaml")
    assert done.status == 0
    assert done.out.startswith("● fix-yaml  set to be chosen\n")
    told = json.loads(terminal.run("which", "x", "--skill", "fix-yaml", "--json").out)
    assert [row["name"] for row in told["skills"]] == ["fix-yaml"]
    assert told["skills"][0]["detector"] == "explicit"


def test_a_skill_that_is_barred_is_not_even_a_runner_up(terminal):
    words = ("which", "review this pull request", "--json")
    told = json.loads(terminal.run(*words, "--never", "code-review").out)
    names = {row["name"] for row in (*told["skills"], *told["runners_up"])}
    assert "code-review" not in names


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
    assert "Only the first 1048576 bytes" in done.err
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
    assert done.err.startswith("There is no block: no skill fits")
    off = terminal.run("which", "review this pull request", "--block", SATCHEL_SHORTLIST="0")
    assert (off.status, off.out) == (3, "")
    assert off.err == "There is no block: the setting `shortlist` is 0\n"


# --- how it looks -------------------------------------------------------------------------


def test_near_copies_are_counted_with_the_one_that_stands_for_them(inside):
    detector = Scripted(
        [("code-review", 4.0)],
        [("fix-yaml", 1.0)],
        collapsed=(("review-2", "code-review"), ("review-3", "code-review"), ("y", "fix-yaml")),
    )
    _, status, out, err = inside(which, detector, "review")
    assert status == 0
    assert "  2 near copies: `review-2`, `review-3`\n" in out
    assert "fix-yaml: 1 near copy: `y`" in out
    assert err == "1 of 4 skills; 82 % sure of the first\n"


def test_what_is_too_weak_is_shown_with_the_next_step(inside):
    detector = Scripted([], [("fix-yaml", 1.0), ("style-guide", 0.5)], fit=0.31)
    _, status, out, _ = inside(which, detector, "mend", "it")
    assert status == 3
    assert "31 % sure of the closest; at least 50 % is needed" in out
    assert re.search(r"^closest +why", out, re.MULTILINE)
    assert "0.50" not in out
    assert '`satchel why fix-yaml --goal "mend it"`' in out
    assert "the setting `vectors`" in out


def test_a_goal_that_no_shell_should_read_is_not_repeated(inside):
    detector = Scripted([], [("fix-yaml", 1.0)], fit=0.1)
    _, _, out, _ = inside(which, detector, "mend $(rm -r x)")
    assert '`satchel why fix-yaml --goal "…"`' in out
    assert "$(rm" not in out


def test_notes_and_costs_are_for_people(inside):
    cost = {"calls": 1.0, "input_tokens": 812.0, "output_tokens": 9.0, "usd": 0.0004}
    detector = Scripted([("fix-yaml", 1.0)], notes=("the index is being built",), cost=cost)
    _, _, out, err = inside(which, detector, "mend")
    assert "index" not in out
    assert "the index is being built\n" in err
    assert "1 calls, 812 tokens sent, 9 received; $ 0.0004" in err


def test_what_a_search_should_be_known_for_is_said_beside_it(inside):
    detector = Scripted([("fix-yaml", 1.0)])
    detector.notes = ("the index is being built\x1b[2J",)
    for words in (("yaml",), ("yaml", "--json")):
        done = inside(search, detector, *words)
        assert "fix-yaml" in done.out
        assert "index" not in done.out
        assert done.err == "the index is being built␛[2J\n"
    nothing = Scripted([])
    nothing.notes = ("the index is being built",)
    assert "No skill fits" in inside(search, nothing, "yaml").err


def test_who_is_far_behind_is_counted_only(inside):
    far = [("style-guide", 0.05), ("code-review", 0.01)]
    out = inside(which, Scripted([("fix-yaml", 1.0)], far), "mend").out
    assert out.endswith("\n… and 2 more, far behind\n")
    assert "style-guide" not in out
    out = inside(which, Scripted([("fix-yaml", 1.0)], [("chinese-writing", 0.4), *far]), "mend").out
    assert "chinese-writing" in out
    assert "style-guide" not in out
    assert out.endswith("\n… and 2 more\n")


def test_only_scores_of_one_detector_are_compared(inside):
    """A score of another one would make a bar that means nothing."""
    detector = Scripted([("fix-yaml", 1.0)], [("style-guide", 0.5)])
    _, _, out, _ = inside(which, detector, "mend")
    assert "● fix-yaml  ■■■■■■■■■■  words\n" in out
    assert "style-guide  ■■■■■·····  name has" in out


def test_scores_are_for_scripts(inside):
    """A fused score says nothing to whoever has another one for another request."""
    detector = Scripted([("fix-yaml", 0.1234)], [("style-guide", 0.0567)])
    done = inside(which, detector, "mend")
    assert not re.search(r"\d\.\d", done.out + done.err)
    told = json.loads(inside(which, detector, "mend", "--json").out)
    assert (told["skills"][0]["score"], told["runners_up"][0]["score"]) == (0.1234, 0.0567)


def test_a_name_that_nobody_has_is_said_before_the_list(terminal, inside):
    notes = ("Later", Note("unknown-skill-near", name="terraform-plan", names="`x`"))
    done = inside(which, Scripted([("fix-yaml", 1.0)], notes=notes), "mend")
    first, *rest = done.err.splitlines()
    assert first == notes[1]
    assert rest[-1] == "Later"
    assert done.err.count("terraform-plan") == 1
    seen = _on_a_terminal(terminal, "which", "use skill terraform-plan to review this code")
    assert seen.index("There is no skill") < seen.index("code-review")


def test_an_empty_reason_is_not_printed(inside):
    class Silent(Scripted):
        def look(self, goal_text, skills, limit=None):
            answer = super().look(goal_text, skills)
            plain = [[one._replace(reason=" ") for one in rows] for rows in answer[:2]]
            return answer._replace(matches=plain[0], runners_up=plain[1])

    out = inside(which, Silent([("fix-yaml", 1.0)], [("style-guide", 0.5)]), "mend").out
    assert [line for line in out.splitlines() if line and not line.strip()] == []
    assert "style-guide  ■■■■■·····  –" in out


def test_one_skill_cannot_be_asked_for_and_barred(terminal):
    words = ("--skill", "fix-yaml", "--never", ".agents/skills/fix-yaml")
    done = terminal.run("which", "mend", *words)
    assert (done.status, done.out) == (2, "")
    assert "`fix-yaml` is given both with `--skill` and with `--never`" in done.err


def test_chinese_lists_have_their_own_comma(inside, monkeypatch):
    class Two(Scripted):
        def look(self, goal_text, skills, limit=None):
            answer = super().look(goal_text, skills)
            said = [one._replace(reason="name has `a`, `b`") for one in answer.matches]
            return answer._replace(matches=said)

    monkeypatch.setenv("SATCHEL_LANG", "zh")
    out = inside(which, Two([("fix-yaml", 1.0)]), "mend").out
    assert "`a`、`b`" in out


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("columns", [40, 60, 80, 120])
def test_nothing_is_wider_than_the_screen(terminal, inside, monkeypatch, columns, language):
    name = "a-very-long-name-of-a-skill-that-reviews-pull-requests-and-more"
    terminal.skill(
        f".agents/skills/{name}",
        f"---\nname: {name}\ndescription: 评审 pull requests, in turn. {'Very. ' * 40}\n---\nx\n",
    )
    terminal.trust(f".agents/skills/{name}")
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("SATCHEL_LANG", language)
    rows = [(name, 0.9), ("chinese-writing", 0.5)], [("fix-yaml", 0.4), ("style-guide", 0.3)]
    copies = tuple((f"near-copy-{at}", name) for at in range(9))
    first = inside(which, Scripted(*rows, collapsed=copies), "x")
    assert f" {name}" in first.out  # the answer is never cut
    for done in (first, inside(which, Scripted([], rows[0]), "x " * 40)):
        lines = [*done.out.splitlines(), *done.err.splitlines()]
        wide = [line for line in lines if width_of(line) > columns]
        # A word is not broken, nor is code: there is nothing else on such a line.
        assert [line for line in wide if name not in line and "`satchel" not in line] == []


def test_a_hostile_skill_orders_nothing_around(terminal):
    terminal.skill(".agents/skills/evil", HOSTILE)
    terminal.trust(".agents/skills/evil")
    env = {"SATCHEL_TRUST": "all"}
    for words in (("quarterly zebra report",), ("zebra \x1b[2J \u202e report",)):
        done = terminal.run("which", *words, **env)
        assert "evil" in done.out
        assert not ORDERS & set(done.out + done.err)
        told = terminal.run("which", *words, "--json", **env)
        assert not ORDERS & set(told.out)
        assert json.loads(told.out)["fits"]
    why = terminal.run("why", ".agents/skills/evil", "--goal", "zebra \x1b[2J", **env)
    assert not ORDERS & set(why.out + why.err)


def _on_a_terminal(terminal, *words, **env):
    """What somebody sees who sits in front of it."""
    ours, theirs = pty.openpty()
    done = subprocess.Popen(
        terminal.command(*words),
        cwd=terminal.project,
        env=terminal.env(**env),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    seen = b""
    try:
        while part := os.read(ours, 65536):
            seen += part
    except OSError:
        pass  # the other side is closed
    os.close(ours)
    done.wait()
    return seen.decode()


def test_colour_says_nothing_alone(terminal):
    words = ("which", "review this pull request")
    seen = _on_a_terminal(terminal, *words, NO_COLOR="")
    plain = _on_a_terminal(terminal, *words, NO_COLOR="1")
    assert "\x1b[32m●\x1b[0m" in seen
    assert "\x1b" not in plain
    assert re.sub(r"\x1b\[[0-9;]*m", "", seen) == plain


def test_a_pipe_gets_whole_lines(terminal):
    done = terminal.run("which", "review this pull request", COLUMNS="")
    assert "review of a diff or a pull request." in done.out


def test_a_block_says_that_the_called_one_does_not_exist(terminal):
    done = terminal.run("which", "use skill nosuch", "--block", COLUMNS="")
    assert (done.status, done.out.strip()) == (3, "")
    assert "There is no block: there is no skill `nosuch`" in done.err


def test_one_that_is_not_trusted_is_not_said_to_be_missing(empty):
    text = "---\nname: invoice\ndescription: Makes invoices for customers.\n---\nSteps.\n"
    empty.skill(".agents/skills/invoice", text)
    for words in ((), ("--block",)):
        done = empty.run("which", "use skill invoice", *words, COLUMNS="")
        assert done.status == 3
        assert "`invoice` is not trusted yet: see `satchel show invoice`, then" in done.err
        assert "no skill `invoice`" not in done.err
    done = empty.run("which", "make invoices for my customers", COLUMNS="")
    assert "`invoice` is not trusted yet and would come first: see" in done.err
