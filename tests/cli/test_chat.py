"""`satchel chat` in a terminal and in a pipe, with a scripted model."""

from __future__ import annotations

import os
import stat
from contextlib import ExitStack

import pytest

from model_server import ModelServer, Reply
from satchel.testing import make_tool_skill
from typing_at import Typing

pytestmark = pytest.mark.timeout(180)
MODEL = "anthropic:claude-sonnet-5"


@pytest.fixture
def sit(terminal):
    """Starts a chat with a scripted model in a terminal."""
    with ExitStack() as stack:

        def start(script, *words, **env):
            terminal.trust(".")
            server = stack.enter_context(ModelServer(script))
            known = terminal.env(**server.environment(), SATCHEL_MODEL=MODEL, TERM="xterm")
            known.pop("COLUMNS")
            known.pop("NO_COLOR", None)
            command = terminal.command("chat", *words)
            typing = stack.enter_context(Typing(command, terminal.project, {**known, **env}))
            typing.sees("Ctrl-D ends it", 60)
            typing.quiet()
            return typing, server

        yield start


@pytest.fixture
def pipe(terminal):
    """A chat whose messages come from a pipe."""

    def run(script, *lines, words=(), **env):
        with ModelServer(script) as server:
            known = {**server.environment(), "SATCHEL_MODEL": MODEL, **env}
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
        return Reply("It says: " + request.results[0].text[:120])
    return Reply(f"# Title\n\nYou said **{said}** and `more`.")


# --- a person at a terminal ---------------------------------------------------------------


def test_an_answer_is_drawn_and_its_end_is_shown(sit):
    typing, _ = sit(script)
    typing.type("review this\r")
    typing.sees("◆ code-review  loaded  ")
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
    typing.type("n\r")
    typing.sees("✗ ReadFile  The user did not agree to call `ReadFile`")
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
    typing.sees("Stopped")
    typing.quiet()
    typing.type("half a line\x03")
    typing.sees("Ctrl-D ends it")
    typing.quiet()
    typing.type("are you there\r")
    typing.sees("You said are you there")
    assert [
        message.text for message in server.requests[-1].messages if "slow" in message.text
    ] == []
    typing.quiet()
    typing.type("\x04")
    assert typing.ends() == 0
    assert "1 request, " in typing.text


def test_names_are_completed_and_messages_are_kept(sit, terminal):
    typing, _ = sit(script)
    typing.type("/code-r")
    typing.sees("Reviews code for bugs")
    typing.type("\x15use $chin")
    typing.sees("把中文写得自然")
    typing.type("\t first\r")
    typing.sees("You said use $chinese-writing first")
    typing.quiet()
    typing.type("\x04")
    assert typing.ends() == 0
    path = terminal.home / ".local/state/satchel/chat-history"
    assert "+use $chinese-writing first\n" in path.read_text(encoding="utf-8")
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600


def test_without_colour_the_text_comes_as_it_is(sit):
    typing, _ = sit(script, NO_COLOR="1")
    typing.type("hello\r")
    typing.sees("# Title")
    typing.sees("You said **hello** and `more`.")


# --- a pipe -------------------------------------------------------------------------------


def test_a_person_loads_what_models_may_not(terminal, pipe):
    terminal.skill(
        ".agents/skills/release",
        "---\nname: release\ndescription: Releases. Use to release.\n"
        "disable-model-invocation: true\n---\nTag $ARGUMENTS and push.\n",
    )
    terminal.trust(".agents/skills/release")
    done, server = pipe(["Done.", "Again."], "/release v2", "and now?")
    assert "  ◆ release  loaded\nDone." in done.out
    assert "Skills used: release" in done.out
    first, second = server.requests
    said = "\n".join(message.text for message in first.messages)
    assert '<skill-loaded name="release"' in said
    assert "Tag v2 and push." in said
    assert "/release v2" in said
    assert "loaded earlier" not in said
    # What was sent stays the beginning of what is sent next.
    assert second.messages[: len(first.messages)] == first.messages


def test_a_failed_turn_does_not_end_the_chat_and_no_answer_commands_the_terminal(pipe):
    done, _ = pipe([Reply("no", status=404), "\x1b]0;owned\x07\x1b[2JHere"], "hi", "hi again")
    assert "error: There is no model `claude-sonnet-5` at this provider: no\n" in done.err
    assert "Here" in done.out
    assert "\x1b" not in done.out
    assert done.status == 1


def test_slash_commands_do_what_they_say(terminal, pipe):
    make_tool_skill(str(terminal.project / ".agents/skills"), "word-count")
    terminal.trust(".")
    lines = (
        "review this|/skills|/why code-review|hello|/reset|/code-reviw|/word-count x|/why"
        "|/etc/hosts is a path|/help|/quit|never said"
    )
    done, server = pipe(script, *lines.split("|"))
    assert done.status == 3  # that of the first message that failed
    for words in (
        "> review this\n  ◆ code-review  loaded  ",
        "●  word-count",
        "● For this request\n  “review this”",
        "New conversation",
        "You said **/etc/hosts is a path**",
        "/reset ",
    ):
        assert words in done.out, words
    for words in (
        "error: There is no skill `code-reviw`\n\nhint: Nearest: code-review. ",
        "word-count",
        "error: `NAME` is missing",
    ):
        assert words in done.err, words
    assert "never said" not in done.out
    # After `/reset` nothing is known of the conversation.
    assert any("review this" in message.text for message in server.requests[2].messages)
    assert not any("review this" in message.text for message in server.requests[3].messages)


def test_exit_codes(pipe):
    done, server = pipe(script, "review this", words=("--max-requests", "1"))
    assert (done.status, len(server.requests)) == (8, 1)
    assert "Stopped by a limit" in done.out
    done, server = pipe(["never"], "/nothing 1.2")
    assert (done.status, server.requests) == (3, [])
