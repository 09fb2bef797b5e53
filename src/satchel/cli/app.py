"""The `satchel` command group.

A command's module is imported when the command is run. `run_click` converts errors of click.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import click

from satchel.cli import COMPLETE
from satchel.cli.context import CliContext, command, global_options
from satchel.cli.help import HelpGroup, help_text
from satchel.cli.options import OneOf, all_option, help_hint
from satchel.errors import InvalidInput
from satchel.i18n import say

if TYPE_CHECKING:
    from click.shell_completion import ShellComplete


def _show_version(ctx: click.Context, _option: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        from satchel import __version__

        click.echo(f"satchel {__version__}")
        ctx.exit()


@click.group(
    cls=HelpGroup,
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
def cli(ctx: click.Context) -> int:
    """Run before every command; show the help when there is none."""
    ctx.ensure_object(CliContext).offer_trust = _offer_trust
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
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


def _offer_trust(context: CliContext, *, note: bool) -> None:
    from satchel.cli.commands.trust import offer_trust

    offer_trust(context, note=note)


@command(
    say("Show the skills of this project."),
    "satchel list",
    "satchel list --all",
    "satchel list --json",
    "SATCHEL_BUILTIN=true satchel list",
    name="list",
)
@all_option(say("Also those that are not offered: shadowed, untrusted, excluded."))
def list_(context: CliContext, everything: bool, as_json: bool) -> int:
    from satchel.cli.commands.list_skills import show_list

    return show_list(context.satchel, everything=everything, as_json=as_json)


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
def completion(context: CliContext, shell: str) -> int:
    from click.shell_completion import get_completion_class

    script = cast("type[ShellComplete]", get_completion_class(shell))(cli, {}, "satchel", COMPLETE)
    # Not `source()`, which starts a shell to find its version.
    context.out.data(script.source_template % script.source_vars())
    return 0


cli.modules = {
    "list": "app:list_",
    "show": "commands.show:show",
    "load": "commands.inspect_skill:load",
    "read": "commands.inspect_skill:read",
    "search": "commands.inspect_skill:search",
    "which": "commands.which:which",
    "catalogue": "commands.inspect_skill:catalogue",
    "why": "commands.why:why",
    "doctor": "commands.why:doctor",
    "locations": "commands.locations:locations",
    "tools": "commands.tools:tools",
    "agents": "commands.link:agents",
    "index": "commands.index:index",
    "vectors": "commands.index:vectors",
    "init": "commands.locations:init",
    "new": "commands.manage:new",
    "add": "commands.manage:add",
    "import": "commands.manage:import_",
    "update": "commands.manage:update",
    "remove": "commands.manage:remove",
    "rename": "commands.manage:rename",
    "undo": "commands.manage:undo",
    "export": "commands.verify:export",
    "link": "commands.link:link",
    "chat": "commands.run:chat",
    "run": "commands.run:run",
    "goal": "commands.goal:goal",
    "worker": "commands.goal_run:worker",
    "mcp": "commands.mcp:mcp",
    "ui": "commands.ui:ui",
    "trust": "commands.trust:trust",
    "scan": "commands.scan:scan",
    "check": "commands.check:check",
    "try": "commands.test:try_",
    "test": "commands.test:test",
    "overlap": "commands.triggers:overlap",
    "validate": "commands.check:validate",
    "verify": "commands.verify:verify",
    "lock": "commands.verify:lock",
    "install": "commands.manage:install",
    "sandbox": "commands.sandbox:sandbox",
    "sign": "commands.sign:sign",
    "signers": "commands.sign:signers",
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


def run_click(args: list[str]) -> int:
    """Run a command line; returns the exit code.

    Raises:
        SatchelError: a command failed, or the arguments are invalid.
    """
    import os

    if COMPLETE in os.environ:
        cli.main(args, prog_name="satchel")
    try:
        with cli.make_context("satchel", args) as ctx:
            status: Any = cli.invoke(ctx)
            return status if isinstance(status, int) else 0
    except click.exceptions.Exit as exc:
        return exc.exit_code
    except click.Abort as exc:
        raise KeyboardInterrupt from exc
    except click.UsageError as exc:
        raise InvalidInput(*_message_and_hint(exc, args)) from exc
    except click.ClickException as exc:
        raise InvalidInput(_plain(exc)) from exc


def _message_and_hint(exc: click.UsageError, args: list[str]) -> tuple[str, str]:
    hint = help_hint(exc.ctx)
    name = next((word for word in args if word in cli.modules), "")
    if exc.ctx is None and name:
        hint = say("Run `{command} --help`", command=f"satchel {name}")
    if isinstance(exc, click.NoSuchOption):
        import difflib

        text = say("There is no option `{name}`", name=exc.option_name)
        # Click suggests every option that shares a few letters.
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
    return _plain(exc), hint


def _plain(exc: click.ClickException) -> str:
    return exc.format_message().replace("'", "`").rstrip(".")
