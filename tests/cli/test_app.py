"""Global options, usage errors, completion, and examples of the help."""

from __future__ import annotations

import json
import re
import shlex

import click
import pytest

from satchel.cli.app import cli
from satchel.cli.console import width_of

COMMANDS = {
    name: cli.get_command(click.Context(cli), name)
    for name in cli.list_commands(click.Context(cli))
}
WITHOUT_JSON = {"chat", "mcp serve", "ui"}


def _below(group: click.Group, before: str = "") -> dict[str, click.Command]:
    """The commands of a group and those below them, by what is typed."""
    found: dict[str, click.Command] = {}
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        assert command is not None
        found[before + name] = command
        if isinstance(command, click.Group):
            found |= _below(command, f"{before}{name} ")
    return found


EVERY = _below(cli)


@pytest.mark.parametrize("words", [("--project", "{}", "list"), ("list", "--project", "{}")])
def test_global_options_may_stand_before_or_after(terminal, words, tmp_path):
    words = [word.format(terminal.project) for word in words]
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    terminal.project, project = elsewhere, terminal.project
    assert "code-review" in terminal.run(*words).out
    terminal.project = project


@pytest.mark.parametrize("name", EVERY)
def test_every_command_with_data_takes_json(name):
    options = {option for parameter in EVERY[name].params for option in parameter.opts}
    assert {"--project", "--color"} <= options
    wanted = name not in WITHOUT_JSON and not isinstance(EVERY[name], click.Group)
    assert ("--json" in options) is wanted


def _examples(command: click.Command) -> list[str]:
    """The lines of its help that can be typed."""
    text = (command.help or "").partition("Examples:")[2]
    return re.findall(r"^  (satchel .*)$", text, re.MULTILINE)


def test_every_example_of_the_help_is_understood(monkeypatch):
    """Each reaches its own command, with options and words that the command takes."""
    reached = []

    def reaching(name: str):
        return lambda **_: reached.append(name)

    for name, command in EVERY.items():
        monkeypatch.setattr(command, "callback", reaching(name))
    for line in [line for command in EVERY.values() for line in _examples(command)]:
        words = shlex.split(line.partition(" > ")[0])[1:]
        cli.main(words, prog_name="satchel", standalone_mode=False)
        assert line.startswith(f"satchel {reached.pop()}"), line


def _complete(terminal, line: str) -> list[str]:
    """What bash is offered, each with its kind."""
    words = line.split(" ")
    env = {
        "_SATCHEL_COMPLETE": "bash_complete",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
    }
    done = terminal.run(**env)
    assert done.status == 0, done.err
    return [row.removeprefix("plain,") for row in done.out.split()]


def test_names_and_commands_complete(terminal):
    assert "catalogue" in _complete(terminal, "satchel c")
    assert _complete(terminal, "satchel show co") == ["code-review"]
    assert _complete(terminal, "satchel list --al") == ["--all"]
    assert _complete(terminal, "satchel catalogue --form m") == ["markdown"]
    assert _complete(terminal, "satchel install REA") == ["file,REA"]
    assert _complete(terminal, "satchel mcp li") == ["list"]
    assert _complete(terminal, "satchel mcp install claude-") == ["claude-desktop", "claude-code"]
    assert _complete(terminal, "satchel mcp serve --to") == ["--token-env"]


def test_no_words_mean_help(empty):
    assert empty.run() == empty.run("--help")._replace(words=())


@pytest.mark.parametrize("name", EVERY)
def test_help_speaks_chinese_within_the_width(name, empty):
    done = empty.run(*name.split(), "--help", SATCHEL_LANG="zh", COLUMNS="80")
    assert done.out.startswith("用法：satchel")
    assert "示例：" in done.out
    assert "选项：" in done.out
    assert "显示本帮助并退出" in done.out
    wide = [line for line in done.out.splitlines() if width_of(line) > 78]
    # Lines that can be run are not folded.
    assert [line for line in wide if not line.startswith("    satchel ")] == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("list", "--all=3"), "`--all` takes no value"),
        (("catalogue", "--budget", "-1"), "`--budget` needs a whole number (0…), not `-1`"),
        (("search", "x", "--limit", "1.5"), "`--limit` needs a whole number (1…), not `1.5`"),
        (("ui", "--port", "70000"), "`--port` needs a whole number (0…65535), not `70000`"),
    ],
)
def test_usage_errors_name_the_option(words, message, empty):
    done = empty.run(*words)
    assert done.status == 2
    assert done.err.startswith(f"error: {message}\n\nhint: ")


@pytest.mark.parametrize(
    ("words", "status", "code"),
    [
        ("show nothing-here", 3, "NOT_FOUND"),
        ("nothing-here", 2, "INVALID_PARAM"),
        ("list --nothing-here", 2, "INVALID_PARAM"),
        ("scan nothing-here", 3, "NOT_FOUND"),
    ],
)
def test_with_json_an_error_is_printed_once_in_one_form(terminal, words, status, code):
    done = terminal.run(*words.split(), "--json")
    assert done.status == status
    error = json.loads(done.out)["error"]
    assert error["code"] == code
    assert set(error) == {"code", "message", "hint"}
    assert done.err.startswith(f"error: {error['message']}\n")
    assert terminal.run(*words.split()).out == ""
    assert terminal.run(*words.split(), "--", "--json").out == ""  # that is no option


@pytest.mark.parametrize("name", EVERY)
def test_help_fits_a_screen(name):
    command = EVERY[name]
    with command.make_context(name, [], resilient_parsing=True, terminal_width=80) as context:
        assert len(command.get_help(context).splitlines()) <= 40
    assert len(_examples(command)) <= 3


def test_the_help_of_all_commands_fits_a_screen(empty):
    done = empty.run("--help", COLUMNS="80").out.splitlines()
    assert len(done) <= 43
    assert all(name in "\n".join(done) for name in COMMANDS)
    assert empty.run("help", COLUMNS="80").out.splitlines() == done
    assert empty.run("help", "list").out == empty.run("list", "-h").out


def test_there_are_not_too_many_options():
    everywhere = {"--json", "--project", "--color", "--help"}
    leaves = [one for one in EVERY.values() if not isinstance(one, click.Group)]
    options = [
        option
        for command in (cli, *leaves)
        for option in command.params
        if isinstance(option, click.Option) and not everywhere.intersection(option.opts)
    ]
    assert len(options) <= 195


@pytest.mark.parametrize("name", cli.synonyms)
def test_old_and_foreign_names_say_what_to_type(name, empty):
    done = empty.run(name)
    line = f"error: There is no command `{name}`; did you mean `satchel {cli.synonyms[name]}`?\n"
    assert (done.status, done.err) == (2, line)
    words = cli.synonyms[name].split()
    assert words[0] in COMMANDS
    known = EVERY.get(" ".join(words[:2]), EVERY[words[0]])
    options = {option for parameter in known.params for option in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= options


def test_json_may_stand_before_the_command(terminal):
    assert terminal.run("--json", "list").out == terminal.run("list", "--json").out


@pytest.mark.parametrize("words", [("--no-color", "lst"), ("lst", "--no-color")])
def test_no_color_holds_for_errors(words, empty):
    assert "\x1b[3" not in empty.on_a_terminal(*words, NO_COLOR="")
    assert "\x1b[1;31m" in empty.on_a_terminal("lst", NO_COLOR="")
