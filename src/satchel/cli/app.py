"""The `satchel` command group.

A command's module is imported when the command is run. `run_click` converts errors of click.
"""

from __future__ import annotations

import os
from typing import Any

import click

from satchel import __version__
from satchel.cli import COMPLETE
from satchel.cli.context import CliContext, command, global_options
from satchel.cli.options import HelpGroup, all_option, flag_option, help_hint
from satchel.errors import InvalidInput
from satchel.i18n import say


def _show_version(ctx: click.Context, _option: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        click.echo(f"satchel {__version__}")
        ctx.exit()


@click.group(
    cls=HelpGroup,
    invoke_without_command=True,
    help=say("Find, install, check and run the skills of agents."),
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
        ["-V", "--version"],
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
    say("List the skills of this project."),
    "satchel list",
    "satchel list --all",
    "satchel list --locations",
    name="list",
)
@all_option(say("Also skills that are not offered: shadowed, untrusted, excluded, broken."))
@flag_option("--locations", say("List the searched folders instead, in order of precedence."))
def list_(context: CliContext, everything: bool, locations: bool, as_json: bool) -> int:
    if locations:
        context.command = "list --locations"  # shows untrusted folders, asks nothing
        from satchel.cli.commands.list_skills import show_locations

        return show_locations(context, as_json=as_json)
    from satchel.cli.commands.list_skills import show_list

    return show_list(context.satchel, everything=everything, as_json=as_json)


cli.modules = {
    "list": "app:list_",
    "show": "commands.show:show",
    "search": "commands.search:search",
    "why": "commands.why:why",
    "catalogue": "commands.catalogue:catalogue",
    "doctor": "commands.doctor:doctor",
    "tools": "commands.tools:tools",
    "agents": "commands.link:agents",
    "new": "commands.new:new",
    "install": "commands.install:install",
    "update": "commands.update:update",
    "remove": "commands.remove:remove",
    "rename": "commands.remove:rename",
    "undo": "commands.undo:undo",
    "export": "commands.export:export",
    "link": "commands.link:link",
    "chat": "commands.chat:chat",
    "run": "commands.run:run",
    "try": "commands.try_tool:try_",
    "goal": "commands.goal:goal",
    "mcp": "commands.mcp:mcp",
    "ui": "commands.ui:ui",
    "check": "commands.check:check",
    "test": "commands.test:test",
    "scan": "commands.scan:scan",
    "verify": "commands.verify:verify",
    "trust": "commands.trust:trust",
    "sign": "commands.sign:sign",
    "publish": "commands.publish:publish",
    "yank": "commands.publish:yank",
    "hub": "commands.hub:hub",
    "config": "commands.config:config",
}
cli.synonyms = {
    "init": "new",
    "add": "new",
    "create": "new",
    "load": "show NAME --as-model",
    "read": "show NAME --file PATH",
    "which": "search",
    "find": "search",
    "locations": "list --locations",
    "ls": "list",
    "validate": "check --spec",
    "lint": "check",
    "overlap": "check --overlap",
    "lock": "verify --accept",
    "import": "install",
    "signers": "sign --signers",
    "worker": "goal worker",
    "index": "config index",
    "vectors": "config set embeddings",
    "sandbox": "config sandbox",
    "completion": "config completion",
    "settings": "config",
    "uninstall": "remove",
    "rm": "remove",
    "delete": "remove",
    "upgrade": "update",
    "mv": "rename",
    "call": "try",
    "ask": "run",
    "web": "ui",
    "release": "publish",
    "push": "publish",
    "registry": "hub",
    "mirror": "hub mirror",
}
cli.headings = {
    "list": say("See"),
    "new": say("Change"),
    "chat": say("Run"),
    "check": say("Check"),
    "publish": say("Share"),
    "config": say("Set"),
}


def run_click(args: list[str]) -> int:
    """Run a command line; returns the exit code.

    Raises:
        SatchelError: a command failed, or the arguments are invalid.
    """
    if COMPLETE in os.environ:
        cli.main(args, prog_name="satchel")
    if args[:1] == ["help"]:
        args = [*args[1:], "--help"]
    elif args[:1] == ["--json"]:
        end = args.index("--") if "--" in args else len(args)
        args = [*args[1:end], "--json", *args[end:]]
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
        return say("`{name}` is missing", name=exc.param.human_readable_name.upper()), hint
    return _plain(exc), hint


def _plain(exc: click.ClickException) -> str:
    return exc.format_message().replace("'", "`").rstrip(".")
