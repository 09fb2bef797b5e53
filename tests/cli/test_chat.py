"""`satchel chat` in a real terminal, and in a pipe, with a scripted model at the other end."""

from __future__ import annotations

import os
import stat
import subprocess
import sys

import pytest

from model_server import ModelServer, Reply
from satchel.cli.chat.markdown import split_blocks
from satchel.testing import make_tool_skill
from typing_at import Typing

pytestmark = pytest.mark.timeout(180)
MODEL = "anthropic:claude-sonnet-5"


@pytest.fixture
def sit(terminal, warm):
    """Sits somebody down at a chat with a scripted model."""
    open_ = []

    def start(script, *words, **env):
        server = ModelServer(script).start()
        known = terminal.env(**warm, **server.environment(), SATCHEL_MODEL=MODEL, TERM="xterm")
        known.pop("COLUMNS")
        known.pop("NO_COLOR", None)
        typing = Typing(terminal.command("chat", *words), terminal.project, {**known, **env})
        open_.extend([typing, server])
        typing.sees("Ctrl-D ends", 60)
        typing.quiet()
        return typing, server

    yield start
    for one in open_:
        if isinstance(one, Typing):
            one.__exit__()
        else:
            one.close()


@pytest.fixture
def pipe(terminal, warm):
    """A chat whose messages come from a pipe."""

    def run(script, *lines, words=(), **env):
        with ModelServer(script) as server:
            known = {**warm, **server.environment(), "SATCHEL_MODEL": MODEL, **env}
            stdin = "".join(f"{line}\n" for line in lines)
            done = terminal.run("chat", *words, stdin=stdin, **known)
        return done, server

    return run


def script(request):
    said = request.last_user.partition("\n")[0]
    if "slow" in said:
        return Reply("word " * 400, pause=0.2)
    if "review" in said and request.step == 0:
        return Reply(calls=[("Skill", {"name": "code-review"})])
    if "read" in said and request.step == 0:
        return Reply(calls=[("ReadFile", {"path": "notes.md"})])
    if "read" in said:
        return Reply("It says: " + request.results[0].text[:60])
    return Reply(f"# Title\n\nYou said **{said}** and `more`.")


# --- a person at a terminal ---------------------------------------------------------------


def test_an_answer_is_drawn_and_the_end_is_told(sit):
    typing, _ = sit(script)
    typing.type("review this\r")
    typing.sees("◆ code-review  loaded, ")
    shown = typing.sees("and more.")
    assert "Title" in shown
    assert "You said review this" in shown
    assert "**" not in shown
    typing.quiet()
    typing.type("\x04")
    assert typing.ends() == 0
    assert "2 requests, " in typing.text
    assert "from the cache)" in typing.text
    assert "Skills used: code-review" in typing.text
    assert "\x1b[1;36mcode-review" in typing.raw


def test_a_person_is_asked_and_may_say_always(sit, terminal):
    (terminal.project / "notes.md").write_text("milk and bread\n", encoding="utf-8")
    typing, server = sit(script, "--ask", "ReadFile")
    typing.type("read it\r")
    typing.sees("? Call the tool `ReadFile`?")
    typing.sees("path=notes.md")
    typing.sees("always in this chat:")
    typing.quiet()
    typing.type("maybe\r")
    typing.sees("Type `y`, `n` or `a`, then Enter")
    typing.sees("always in this chat:")
    typing.quiet()
    typing.type("n\r")
    typing.sees("✗ ReadFile  not called: you said no")
    typing.sees("did not agree")
    typing.quiet()
    typing.type("read again\r")
    typing.sees("always in this chat:")
    typing.quiet()
    typing.type("a\r")
    typing.sees("✓ ReadFile  path=notes.md")
    typing.sees("milk")
    typing.quiet()
    typing.type("read once more\r")
    assert "?" not in typing.sees("✓ ReadFile  path=notes.md").replace("once more?", "")
    typing.sees("milk")
    assert len(server.requests) == 6


def test_ctrl_c_stops_the_turn_and_ctrl_d_the_chat(sit):
    typing, server = sit(script)
    typing.type("slow please\r")
    typing.sees("word word")
    typing.type("\x03")
    typing.sees("Stopped. The model does not know of this turn")
    typing.quiet()
    typing.type("half a line\x03")
    typing.sees("Ctrl-D ends the chat")
    typing.quiet()
    typing.type("are you there\r")
    typing.sees("You said are you there")
    assert [
        message.text for message in server.requests[-1].messages if "slow" in message.text
    ] == []
    typing.quiet()
    typing.type("\x04")
    assert typing.ends() == 0
    assert "1 turn was broken off and is not counted" in typing.text


def test_names_are_completed_and_lines_are_kept(sit, terminal):
    typing, _ = sit(script)
    typing.type("/code-r")
    typing.sees("Reviews code for bugs")
    typing.type("\x15")
    typing.quiet()
    typing.type("use $chin")
    typing.sees("把中文写得自然")
    typing.type("\t")
    typing.quiet()
    typing.type("\x15")
    typing.type("/re\t")  # at once, before the menu can be there
    typing.sees("/refresh")
    typing.type("\t")
    typing.sees("/reset")
    typing.type("\r")
    typing.sees("A new conversation begins")
    typing.quiet()
    typing.type("first\\\rsecond\r")
    typing.sees("You said first")
    typing.quiet()
    typing.type("\x04")
    assert typing.ends() == 0
    path = terminal.home / ".local/state/satchel/chat-history"
    assert "+first\n+second\n" in path.read_text(encoding="utf-8")
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600


def test_without_colour_the_text_comes_as_it_is(sit):
    typing, _ = sit(script, NO_COLOR="1")
    typing.type("hello\r")
    typing.sees("# Title")
    typing.sees("You said **hello** and `more`.")


@pytest.mark.parametrize(
    ("model", "words"), [(MODEL, "ANTHROPIC_API_KEY"), ("nope", "There is no model `nope`")]
)
def test_a_model_that_cannot_be_had_is_told_before_the_prompt(terminal, warm, model, words):
    env = terminal.env(**warm, SATCHEL_MODEL=model, ANTHROPIC_API_KEY="", TERM="xterm")
    with Typing(terminal.command("chat"), terminal.project, env) as typing:
        typing.sees(words, 60)
        assert typing.ends() == 1
        assert "Ctrl-D ends" not in typing.text


def test_a_message_that_came_to_nothing_is_offered_again(sit):
    typing, server = sit([Reply("no", status=404), "Here I am."])
    typing.type("are you there\r")
    typing.sees("There is no model `claude-sonnet-5` at this provider")
    typing.sees("lets another model answer")
    typing.quiet()
    typing.type("\r")
    typing.sees("Here I am.")
    assert server.requests[-1].last_user.startswith("are you there")


# --- a pipe -------------------------------------------------------------------------------


def test_orders_are_obeyed(pipe):
    done, server = pipe(
        script,
        "review this",
        "/loaded",
        "/skills",
        "/why code-review",
        "/cost",
        "/model openai:gpt-5",
        "hello",
        "/model nobody:x",
        "/refresh",
        "/reset",
        "/loaded",
        "/code-reviw",
        "/why",
        "/etc/hosts is a path",
        "/help",
        "/quit",
        "never said",
    )
    assert done.status == 1  # not all that was ordered could be done
    for words in (
        "> review this\n  ◆ code-review  loaded, ",
        "◆  code-review  ",
        "● For this request\n  “review this”",
        "openai:gpt-5 answers",
        "Nothing changed: 4 skills",
        "A new conversation begins",
        "No skill is loaded in this conversation",
        "You said **/etc/hosts is a path**",
        "/refresh ",
    ):
        assert words in done.out, words
    assert "error: There is no provider `nobody`" in done.err
    assert "hint: Did you mean `/code-review`?" in done.err
    assert "error: `/why` needs the name of a skill" in done.err
    assert "never said" not in done.out
    providers = [request.provider for request in server.requests]
    assert providers[:2] == ["anthropic"] * 2
    assert set(providers[2:]) <= {"openai", "openai-responses"}
    # The other model carries the conversation on; after `/reset` nothing is known of it.
    assert any("review this" in message.text for message in server.requests[2].messages)
    assert not any("review this" in message.text for message in server.requests[3].messages)


def test_a_person_loads_what_models_may_not(terminal, pipe):
    terminal.skill(
        ".agents/skills/release",
        "---\nname: release\ndescription: Releases. Use to release.\n"
        "disable-model-invocation: true\n---\nTag $ARGUMENTS and push.\n",
    )
    terminal.trust(".agents/skills/release")
    done, server = pipe(["Done.", "Again."], "/release v2", "and now?")
    assert "  ◆ release  loaded by you\nDone." in done.out
    assert "Skills used: release" in done.out
    first, second = server.requests
    said = "\n".join(message.text for message in first.messages)
    assert '<skill-loaded name="release">' in said
    assert "Tag v2 and push." in said
    assert "/release v2" in said
    assert "loaded earlier" not in said
    # What was sent stays the beginning of what is sent next.
    assert second.messages[: len(first.messages)] == first.messages


def test_nothing_in_an_answer_commands_the_terminal(pipe):
    done, _ = pipe(["\x1b]0;owned\x07\x1b[2Jhello"], "hi", "/quit")
    assert "\x1b" not in done.out
    assert "hello" in done.out


def test_a_provider_that_fails_does_not_end_the_chat(pipe):
    done, _ = pipe([Reply("no", status=404), "Here I am."], "hi", "hi again")
    assert "error: There is no model `claude-sonnet-5` at this provider: no\n" in done.err
    assert "Here I am." in done.out
    assert done.status == 1


def test_a_limit_of_tokens_ends_a_turn(pipe):
    done, server = pipe(script, "review this", words=("--max-tokens", "1"))
    assert done.status == 8
    assert len(server.requests) == 1
    assert "tokens" in done.out


def test_an_unknown_order_is_told_to_scripts(terminal, pipe):
    terminal.skill(
        ".agents/skills/release",
        "---\nname: release\ndescription: Releases. Use to release.\n---\nTag $ARGUMENTS.\n",
    )
    terminal.trust(".agents/skills/release")
    done, server = pipe(["never"], "/rel 1.2")
    assert (done.status, server.requests) == (3, [])
    assert "hint: Did you mean `/release`?" in done.err


def test_tool_skills_are_shown_and_called_by_models_only(terminal, pipe):
    make_tool_skill(str(terminal.project / ".agents/skills"), "word-count")
    assert terminal.run("trust", "word-count", "--yes").status == 0
    done, server = pipe(["never"], "/skills", "/tools", "/word-count x")
    assert "1 tool skill" in done.out.splitlines()[0]
    rows = [line.split() for line in done.out.splitlines()]
    assert any(row[:3] == ["●", "word-count", "tool:"] for row in rows)
    assert any(row[1:2] == ["word-count"] and row[0] != "●" for row in rows)
    assert "error: `/word-count` is a tool skill: models call it" in done.err
    assert (done.status, server.requests) == (2, [])


def test_what_changed_or_broke_is_in_the_header_and_marked(terminal, pipe):
    text = "---\nname: release\ndescription: Releases. Use to release.\n---\nTag it.\n"
    terminal.skill(".agents/skills/release", text)
    assert terminal.run("trust", "release", "--yes").status == 0
    terminal.skill(".agents/skills/release", text + "And more.\n")
    terminal.skill(".agents/skills/odd", "---\nname: [\n---\nBody\n")
    done, _ = pipe(["never"], "/skills")
    first = " ".join(done.out.partition("\n\n")[0].split())
    assert "1 changed: `satchel trust`" in first
    assert "broken: `satchel doctor`" in first
    assert "changed: `satchel trust release`" in done.out
    assert any(line.split()[:2] == ["✗", "odd"] for line in done.out.splitlines())


def test_it_speaks_chinese(pipe):
    done, _ = pipe(script, "review this", "/help", "/quit", SATCHEL_LANG="zh")
    assert "◆ code-review  已加载，" in done.out
    assert "/技能名 文字" in done.out
    assert "用到的技能：code-review" in done.out


def test_other_commands_wait_for_none_of_it(terminal):
    code = "import sys; from satchel.cli.main import run; run(['which', 'x']); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=terminal.project,
        env=terminal.env(),
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = set(done.stdout.split())
    assert not loaded & {"rich", "prompt_toolkit", "pydantic_ai", "satchel.cli.chatting"}


# --- blocks -------------------------------------------------------------------------------

TEXT = """\
# Title

A paragraph
of two lines.

- one

  more of one
- two

```python
a = 1

b = 2
```

| a | b |
| - | - |
| 1 | 2 |

The end"""


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_blocks_are_the_same_however_the_text_comes(size):
    blocks, rest = [], ""
    for at in range(0, len(TEXT), size):
        done, rest = split_blocks(rest + TEXT[at : at + size])
        blocks += done
    assert blocks == [
        "# Title",
        "A paragraph\nof two lines.",
        "- one\n\n  more of one\n- two",
        "```python\na = 1\n\nb = 2\n```",
        "| a | b |\n| - | - |\n| 1 | 2 |",
    ]
    assert rest == "The end"
