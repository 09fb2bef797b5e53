"""The commands of `satchel`, and what it accepts before them.

Each group of commands is a file beside this one, imported when one of its commands is run. Errors
of click leave in the voice of the house: `run_click` is the border.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import click

from satchel._language import say
from satchel.cli import COMPLETE
from satchel.cli.helping import Commands, help_text
from satchel.cli.session import Session, command, global_options
from satchel.cli.values import OneOf, help_hint
from satchel.errors import InvalidInput

if TYPE_CHECKING:
    from click.shell_completion import ShellComplete


def _show_version(context: click.Context, _option: click.Parameter, value: bool) -> None:
    if value and not context.resilient_parsing:
        from satchel import __version__

        click.echo(f"satchel {__version__}")
        context.exit()


@click.group(
    cls=Commands,
    invoke_without_command=True,
    help=help_text(
        say("Find, install, check and load the skills of an agent, and say why."),
        "satchel list",
        "satchel import skill.zip",
        "satchel why code-review",
        "satchel --project ~/my-site doctor",
        more=say(
            "The options below may be given before or after the command. Data goes to stdout, "
            "words for people to stderr. With `--json` a failure is on stdout too, as `error`."
        ),
    ),
    epilog=say(
        "Exit codes: 0 done, 1 problems found, 2 wrong usage, 3 not found, 4 refused, 5 broken "
        "skill, 6 an extra or a runtime is missing, 7 a program cannot be built, 8 not everything "
        "was tried, 70 a bug in Satchel."
    ),
)
@click.pass_context
def cli(context: click.Context) -> int:
    """Everything begins here; without a command, help is shown."""
    context.ensure_object(Session).offer_trust = _offer_trust
    if context.invoked_subcommand is None:
        click.echo(context.get_help())
    return 0


cli.params += [
    *global_options(hidden=False),
    click.Option(
        ["--version"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_show_version,
        help=say("Show the version and exit."),
    ),
]


def _offer_trust(session: Session, *, note: bool) -> None:
    from satchel.cli.trusting import offer_trust

    offer_trust(session, note=note)


@command(
    say("Show the skills of this project."),
    "satchel list",
    "satchel list --all",
    "satchel list --json",
    "SATCHEL_BUILTIN=true satchel list",
    name="list",
)
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help=say("Also those that are not offered: shadowed, untrusted, excluded."),
)
def list_(session: Session, everything: bool, as_json: bool) -> int:
    """`satchel list`, when it has options that the fast lane does not know."""
    from satchel.cli.listing import show_list

    return show_list(session.satchel, everything=everything, as_json=as_json, colour=session.colour)


@command(
    say("Print the script that completes commands and names of skills in your shell."),
    "echo 'source <(satchel completion bash)' >> ~/.bashrc",
    "mkdir -p ~/.zfunc && satchel completion zsh > ~/.zfunc/_satchel",
    "mkdir -p ~/.config/fish/completions && \\",
    "  satchel completion fish > ~/.config/fish/completions/satchel.fish",
    more=say(
        "Then open a new shell. In zsh, `fpath+=~/.zfunc` goes before `compinit` in `~/.zshrc`."
    ),
    json=False,
)
@click.argument("shell", type=OneOf(["bash", "zsh", "fish"]))
def completion(session: Session, shell: str) -> int:
    """Click writes the script; this only prints it."""
    from click.shell_completion import get_completion_class

    script = cast("type[ShellComplete]", get_completion_class(shell))(cli, {}, "satchel", COMPLETE)
    # Not `source()`: it starts a shell to ask for its version.
    session.out.data(script.source_template % script.source_vars())
    return 0


cli.places = {
    "list": "app:list_",
    "show": "showing:show",
    "load": "inspecting:load",
    "read": "inspecting:read",
    "search": "inspecting:search",
    "which": "choosing:which",
    "catalogue": "inspecting:catalogue",
    "why": "explaining:why",
    "doctor": "explaining:doctor",
    "locations": "places:locations",
    "tools": "tooling:tools",
    "agents": "linking:agents",
    "index": "indexing:index",
    "vectors": "indexing:vectors",
    "init": "places:init",
    "new": "managing:new",
    "add": "managing:add",
    "import": "managing:import_",
    "update": "managing:update",
    "remove": "managing:remove",
    "rename": "managing:rename",
    "undo": "managing:undo",
    "export": "verifying:export",
    "link": "linking:link",
    "chat": "chatting:chat",
    "run": "running:run",
    "goal": "goals:goal",
    "worker": "goal_runs:worker",
    "mcp": "serving:mcp",
    "ui": "browsing:ui",
    "trust": "trusting:trust",
    "scan": "scanning:scan",
    "check": "checking:check",
    "try": "trying:try_",
    "test": "trying:test",
    "overlap": "triggering:overlap",
    "validate": "checking:validate",
    "verify": "verifying:verify",
    "lock": "verifying:lock",
    "install": "managing:install",
    "sandbox": "sandboxing:sandbox",
    "sign": "signing:sign",
    "signers": "signing:signers",
    "completion": "app:completion",
}
cli.synonyms = {
    "uninstall": "remove",
    "rm": "remove",
    "delete": "remove",
    "ls": "list",
    "create": "new",
    "scaffold": "new",
    "upgrade": "update",
    "lint": "check",
    "call": "try",
    "mv": "rename",
    "history": "undo",
    "find": "search",
    "select": "which",
    "ask": "run",
    "agent": "chat",
    "reindex": "index",
    "catalog": "catalogue",
    "goals": "goal",
    "workers": "worker",
    "web": "ui",
    "browser": "ui",
    "dashboard": "ui",
}
cli.headings = {
    "list": say("See what there is"),
    "init": say("Change it"),
    "chat": say("Give it to a model"),
    "trust": say("Check and trust"),
    "completion": say("Your shell"),
}


def run_click(words: list[str]) -> int:
    """Run a command line through click; its errors become those of the house.

    Raises:
        SatchelError: a command failed, or the words are not understood.
    """
    import os

    if COMPLETE in os.environ:
        cli.main(words, prog_name="satchel")
    try:
        with cli.make_context("satchel", words) as context:
            done: Any = cli.invoke(context)
            return done if isinstance(done, int) else 0
    except click.exceptions.Exit as exc:
        return exc.exit_code
    except click.Abort as exc:
        raise KeyboardInterrupt from exc
    except click.UsageError as exc:
        raise InvalidInput(*_words_of(exc, _hint(exc.ctx, words))) from exc
    except click.ClickException as exc:
        raise InvalidInput(_no_stop(exc.format_message())) from exc


def _hint(context: click.Context | None, words: list[str]) -> str:
    """Where the command is explained; click does not always know which one it was."""
    name = next((word for word in words if word in cli.places), "")
    if context is None and name:
        return say("Run `{command} --help`", command=f"satchel {name}")
    return help_hint(context)


def _words_of(exc: click.UsageError, hint: str) -> tuple[str, str]:
    """What click wants to say, and the next step, in our voice."""
    if isinstance(exc, click.NoSuchOption):
        import difflib

        text = say("There is no option `{name}`", name=exc.option_name)
        # Click names all that share a few letters.
        near = difflib.get_close_matches(exc.option_name, exc.possibilities or (), 1, cutoff=0.75)
        return text, say("Did you mean {names}?", names=f"`{near[0]}`") if near else hint
    if isinstance(exc, click.BadOptionUsage):
        if "does not take" in exc.message:
            return say("`{name}` takes no value", name=exc.option_name), hint
        return say("`{name}` needs a value", name=exc.option_name), hint
    if isinstance(exc, click.MissingParameter) and exc.param is not None:
        if exc.param.name == "shell":
            return say("Which shell? bash, zsh or fish"), hint
        return say("`{name}` is missing", name=exc.param.human_readable_name.upper()), hint
    return _no_stop(exc.format_message()), hint


def _no_stop(text: str) -> str:
    return text.replace("'", "`").rstrip(".")
