"""Options before and after, slips, completion, and help that can be run."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys

import click
import pytest

from cli.conftest import Terminal, furnish
from model_server import ModelServer, Reply
from satchel.cli.app import cli
from satchel.cli.output import width_of
from sizes import sized
from tiny_models import write_onnx

COMMANDS = {
    name: cli.get_command(click.Context(cli), name)
    for name in cli.list_commands(click.Context(cli))
}
WITHOUT_JSON = {"chat", "completion", "help", "mcp serve", "ui"}


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


def _examples() -> list[str]:
    """The first example of each command in CI, all of them in soak."""
    found: list[str] = []
    for command in EVERY.values():
        text = command.help or ""
        lines = re.findall(r"^  (satchel .*)$", text.partition("Example:")[2], re.MULTILINE)
        found += sized(lines[:1], lines)
    return list(dict.fromkeys(found))


@pytest.fixture(scope="module")
def furniture(tmp_path_factory):
    """Everything that the examples speak of: sources, keys, folders. Made once, copied often."""
    base = tmp_path_factory.mktemp("furniture")
    home, project = base / "home", base / "project"
    project.mkdir()
    text = "---\nname: {0}\ndescription: Helps with {0}. Use for {0}.\n---\nBody\n"
    (project / "README.md").write_text("hello\n")
    for folder in ("skills/pdf-forms", "Downloads/some-skill"):
        (home / folder).mkdir(parents=True)
        (home / folder / "SKILL.md").write_text(text.format(folder.split("/")[1]))
    shutil.make_archive(str(project / "pdf-forms"), "zip", home / "skills")
    shutil.make_archive(str(project / "team-skills"), "gztar", home / "skills")
    remote = base / "remote"
    shutil.copytree(home / "skills", remote / "skills")
    for words in ("init -q -b main", "add -A", "commit -qm one", "tag v2", "tag v3"):
        subprocess.run(["git", *words.split()], cwd=remote, check=True)
    config = base / "gitconfig"
    config.write_text(f'[url "{remote}"]\n insteadOf = https://example.com/skills.git\n')
    (home / ".ssh").mkdir(mode=0o700)
    key = home / ".ssh/id_ed25519"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    shutil.copy(f"{key}.pub", project / "ada.pub")
    (project / "week.yaml").write_text(WEEK)
    return base


WEEK = """\
goal: Report what happened this week
inputs: {week: 45}
steps:
  - {id: trends, tool: ReadFile, arguments: {path: README.md}}
  - id: review
    action_type: human
    prompt: "Is that week {{inputs.week}}? {{steps.trends.output}}"
"""
RUN = "goal run week.yaml --id week-3f9a"


BEFORE = {
    **{
        f"goal {what}": [RUN]
        for what in ("show", "resume", "approve", "retry", "cancel", "graph week-")
    },
    "goal remove": [RUN, "goal cancel week-3f9a"],
    "update": ["import https://example.com/skills.git --ref v2"],
    "remove": ["add release-notes", "import pdf-forms.zip"],
    "rename": ["import pdf-forms.zip"],
    "undo": ["add some-skill"],
    "undo --redo": ["add some-skill", "undo"],
    "export": ["import pdf-forms.zip"],
    "verify": ["import pdf-forms.zip"],
    "lock": ["import pdf-forms.zip"],
    "link": ["link code-review --agent claude-code"],
    "sign": ["trust release-notes --yes"],
    "sign release-notes --check": [
        "trust release-notes --yes",
        "sign release-notes",
        "signers add ada@example.org --key ada.pub",
    ],
    "signers remove": ["signers add ada@example.org --key ada.pub"],
    "trust --revoke": ["trust --yes"],
    "check": ["new word-count --kind python"],
    "try": ["new word-count --kind python"],
    "test": ["new word-count --kind python"],
    "test --triggers": ["new style-check"],
}
"""The beginning of an example -> what was done before it; the longest counts."""
ASKS = {
    "goal": {0, 8},
    "goal run report what happened this week": {4},
    "goal approve week-3f9a review --no --note the numbers are old": {1},
    "remove release-notes": {4},
    "export pdf-forms": {4},
    "trust": {0, 4},
    "which": {0, 3},
    "mcp add docs https://skills.example.com/mcp": {1},
    "mcp add docs https://skills.example.com/mcp --token-env DOCS_TOKEN": {1},
    "mcp add local -- uvx our-skills": {1},
    "mcp check": {0, 1},
    "mcp check --json": {0, 1},
    "mcp copy pdf-forms": {3},
    "mcp copy pdf-forms --to skills/pdf-forms": {3},
    "mcp install claude-code": {4},
    "mcp list docs": {3},
    "mcp remove docs": {3},
    "mcp serve --http --token-env SKILLS_TOKEN": {3},
    "doctor": {0, 1},
    "validate": {0, 1},
    "check": {0, 1},
}
"""Examples that are meant to find something, or to ask a person who is not there."""


class Stage:
    """One place where examples are run: what comes before them is done once, kept, and put back."""

    def __init__(self, base, furniture) -> None:
        self._here, self._kept = base / "here", base / "kept"
        self._known: dict[tuple[str, ...], str] = {}
        self._furniture = furniture
        self.env = {"SATCHEL_BUILTIN": "true", "GIT_CONFIG_GLOBAL": str(furniture / "gitconfig")}

    def set(self, *before: str) -> Terminal:
        """The terminal as it is after these commands."""
        shutil.rmtree(self._here, ignore_errors=True)
        if before in self._known:
            shutil.copytree(self._known[before], self._here, symlinks=True)
            return Terminal(self._here)
        terminal = self.set(*before[:-1]) if before else self._bare()
        if before:
            done = terminal.run(*before[-1].split(), **self.env)
            assert done.status in ({8} if before[-1] == RUN else {0}), done.err
        self._known[before] = str(self._kept / str(len(self._known)))
        shutil.copytree(self._here, self._known[before], symlinks=True)
        return terminal

    def _bare(self) -> Terminal:
        self._here.mkdir()
        terminal = furnish(Terminal(self._here))
        for part in ("home", "project"):
            shutil.copytree(self._furniture / part, getattr(terminal, part), dirs_exist_ok=True)
        return terminal


@pytest.fixture(scope="module")
def stage(tmp_path_factory, furniture) -> Stage:
    return Stage(tmp_path_factory.mktemp("stage"), furniture)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("line", _examples())
def test_every_example_of_the_help_can_be_run(line, stage, warm):
    env = stage.env
    words = shlex.split(line.partition(" > ")[0])[1:]
    said = " ".join(words)
    known = [start for start in BEFORE if said.startswith(start)]
    earlier = BEFORE[max(known, key=len)] if known else ()
    terminal = stage.set(*(() if words[0] == "init" else ("init", *earlier)))
    if words[0] == "vectors":
        write_onnx(terminal.home / "models/minilm")
    if words[0] in {"chat", "run"} or said.startswith("goal plan"):
        with ModelServer(_says) as server:
            known = {**env, **warm, **server.environment(), "SATCHEL_MODEL": "openai:gpt-5"}
            done = terminal.run(*words, stdin="hello\n", **known)
    elif said == "mcp serve --http":
        assert "End it with Ctrl-C" in _served(terminal, *words, "--port", "0", lines=3, **env)
        return
    elif words[0] == "ui":
        if "--password-file" in said:
            file = terminal.home / ".satchel-password"
            file.write_text("a long password\n")
            file.chmod(0o600)
            words[words.index("--password-file") + 1] = str(file)
        # A port of its own: others may run at the same time.
        told = _served(terminal, *words, "--no-browser", "--port", "0", lines=1, **env)
        assert "Ctrl-C" in told or "network" in told
        return
    elif said == "worker --engine dbos":
        known = {**env, **warm, "SATCHEL_MODEL": "openai:gpt-5", "OPENAI_API_KEY": "none"}
        assert "is ready" in _served(terminal, *words, lines=1, **known)
        return
    elif words[0] == "worker":  # nobody listens there
        known = {**env, **warm, "SATCHEL_MODEL": "openai:gpt-5", "OPENAI_API_KEY": "none"}
        done = terminal.run(*words, **known, SATCHEL_TEMPORAL="127.0.0.1:9")
        assert done.status == 1
        return
    else:
        done = terminal.run(*words, **env)
    allowed = ASKS.get(said) or ASKS.get(words[0]) or {0}
    assert done.status in allowed, done.err


def _says(request) -> Reply:
    """A plan to who plans, a greeting to all others."""
    if "submit_plan" not in request.tools:
        return Reply("Hello.")
    plan = {"goal": "Report", "steps": [{"id": "report", "prompt": "Say what happened"}]}
    return Reply(calls=[("submit_plan", plan)])


def _served(terminal, *words: str, lines: int = 2, **env: str) -> str:
    """What a server says before it waits for clients; it is ended then."""
    with subprocess.Popen(
        terminal.command(*words),
        cwd=terminal.project,
        env=terminal.env(**env),
        stderr=subprocess.PIPE,
        encoding="utf-8",
    ) as process:
        assert process.stderr is not None
        told = "".join(process.stderr.readline() for _ in range(lines))
        process.terminate()
    assert process.returncode == 0
    return told


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
    assert _complete(terminal, "satchel mcp un") == ["uninstall"]
    assert _complete(terminal, "satchel mcp install claude-") == ["claude-desktop", "claude-code"]
    assert _complete(terminal, "satchel mcp serve --to") == ["--token-env", "--token-file"]


def test_trust_completes_what_waits_and_revoke_what_is_trusted(terminal):
    assert _complete(terminal, "satchel trust ") == ["release-notes"]
    trusted = _complete(terminal, "satchel trust --revoke ")
    assert trusted == ["chinese-writing", "code-review", "fix-yaml", "style-guide"]


def test_paths_and_global_options_complete_too(terminal):
    assert _complete(terminal, "satchel validate ski") == ["file,ski"]
    assert _complete(terminal, "satchel read REA") == ["file,REA"]
    assert _complete(terminal, "satchel list --p") == ["--project"]
    assert _complete(terminal, "satchel list --no") == ["--no-color"]
    assert _complete(terminal, "satchel list --project d") == ["dir,d"]


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_the_lines_that_install_completion_can_be_run(empty):
    """Only those of the shells that there are could be tried whole; bash runs all three lines."""
    text = (COMMANDS["completion"].help or "").partition("\b\n")[2].partition("\n\n")[0]
    lines = "\n".join(line.strip() for line in text.splitlines()[1:])
    bin_ = empty.home / "bin"
    bin_.mkdir()
    program = bin_ / "satchel"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m satchel "$@"\n')
    program.chmod(0o755)
    env = empty.env(PATH=f"{bin_}{os.pathsep}{os.environ['PATH']}")
    script = f"set -e\n{lines}\n. ~/.bashrc\ncomplete -p satchel\n"
    done = subprocess.run(
        ["bash", "-c", script], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "_satchel_completion" in done.stdout
    assert (empty.home / ".zfunc/_satchel").read_text().startswith("#compdef satchel")
    assert "satchel" in (empty.home / ".config/fish/completions/satchel.fish").read_text()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_for_a_shell_is_printed(empty, shell):
    done = empty.run("completion", shell)
    assert done.status == 0
    assert f"_SATCHEL_COMPLETE={shell}_complete" in done.out


def test_no_words_mean_help(empty):
    assert empty.run() == empty.run("--help")._replace(words=())


def test_help_is_also_a_command(empty):
    assert empty.run("help").out == empty.run("--help").out
    assert empty.run("help", "why").out == empty.run("why", "--help").out
    assert empty.run("help", "mcp", "add").out == empty.run("mcp", "add", "--help").out
    assert "Did you mean `satchel mcp add`?" in empty.run("help", "mcp", "ad").err
    assert "`satchel why` does not take `more`" in empty.run("help", "why", "more").err
    wrong = empty.run("help", "wy")
    assert (wrong.status, wrong.out) == (2, "")
    assert "Did you mean `satchel why`?" in wrong.err


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


def test_the_commands_are_those_that_were_promised():
    shown = [name for name, command in COMMANDS.items() if not command.hidden]
    promised = (
        "list show load read search which catalogue why doctor locations tools agents index "
        "vectors "
        "init new add import update remove rename undo export link "
        "chat run goal worker mcp ui "
        "trust scan check try test overlap validate verify lock install sandbox sign signers "
        "completion"
    )
    assert shown == promised.split()
    assert isinstance(COMMANDS["catalog"], click.Command)


def test_a_command_waits_for_no_other(empty):
    code = "import sys; from satchel.cli.main import run; run(['locations']); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=empty.project,
        env=empty.env(),
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = set(done.stdout.split())
    assert "satchel.cli.places" in loaded
    assert not loaded & {"satchel.cli.explaining", "satchel.cli.inspecting", "yaml", "json"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("list", "--all=3"), "`--all` takes no value"),
        (("why", "x", "--budget", "-1"), "`--budget` must be at least 0, not `-1`"),
        (("read", "x", "--limit", "1.5"), "`--limit` needs a whole number, not `1.5`"),
        (("completion", "tcsh"), "`SHELL` is one of `bash`, `zsh`, `fish`, not `tcsh`"),
        (("search",), "`WORDS` is missing"),
        (("list", "--verbose"), "There is no option `--verbose`"),
    ],
)
def test_slips_are_told_in_our_words(words, message, empty):
    done = empty.run(*words)
    assert done.status == 2
    assert done.err.startswith(f"error: {message}\n\nhint: ")


@pytest.mark.parametrize(
    ("words", "status", "code"),
    [
        ("show nothing-here", 3, "NOT_FOUND"),
        ("undo", 3, "NOT_FOUND"),
        ("new code-review", 2, "INVALID_PARAM"),
        ("nothing-here", 2, "INVALID_PARAM"),
        ("list --nothing-here", 2, "INVALID_PARAM"),
        ("goal show nothing-here", 3, "NOT_FOUND"),
        ("scan nothing-here", 3, "NOT_FOUND"),
    ],
)
def test_whoever_asks_for_json_gets_one_failure_of_one_shape(terminal, words, status, code):
    done = terminal.run(*words.split(), "--json")
    assert done.status == status
    error = json.loads(done.out)["error"]
    assert error["code"] == code
    assert set(error) == {"code", "message", "hint"}
    assert done.err.startswith(f"error: {error['message']}\n")
    assert terminal.run(*words.split()).out == ""
    assert terminal.run(*words.split(), "--", "--json").out == ""  # that is no option


def test_a_format_that_is_json_is_json_as_well(terminal):
    for words in (("--format", "json"), ("--format=json",)):
        done = terminal.run("scan", "nothing-here", *words)
        assert json.loads(done.out)["error"]["code"] == "NOT_FOUND"


def test_a_tools_answer_is_an_envelope_also_where_it_failed(terminal):
    for words in (("load", "nothing-here"), ("read", "nothing-here/x.md")):
        assert json.loads(terminal.run(*words, "--json").out)["error"]["code"] == "NOT_FOUND"
