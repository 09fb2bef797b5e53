"""The `satchel` command group.

A command's module is imported when the command is run. `run_click` converts errors of click.
"""

from __future__ import annotations

import os
from typing import Any

import click

from satchel import __version__
from satchel.cli import COMPLETION_VARIABLE
from satchel.cli.context import CliContext, command, global_options
from satchel.cli.options import HelpGroup, all_option, flag_option, help_hint
from satchel.errors import InvalidInput
from satchel.i18n import did_you_mean, say, similar_names


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
    """Import `offer_trust` only when a command needs it."""
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
@flag_option("--tools", say("Show the tools that an agent gets here, and their access."))
@flag_option("--benefit", say("Show the results of `satchel eval` instead of descriptions."))
def list_(
    context: CliContext,
    everything: bool,
    locations: bool,
    tools: bool,
    benefit: bool,
    as_json: bool,
) -> int:
    if tools:
        context.command = "list --tools"
        from satchel.cli.commands.tools import show_tools

        return show_tools(context, as_json=as_json)
    if locations:
        context.command = "list --locations"  # shows untrusted folders, asks nothing
        from satchel.cli.commands.list_locations import show_locations

        return show_locations(context, as_json=as_json)
    from satchel.cli.commands.list_skills import show_list

    return show_list(context.satchel, everything=everything, benefit=benefit, as_json=as_json)


cli.modules = {
    "list": "app:list_",
    "show": "commands.show:show",
    "search": "commands.search:search",
    "why": "commands.why:why",
    "catalogue": "commands.catalogue:catalogue",
    "doctor": "commands.doctor:doctor",
    "new": "commands.new:new",
    "install": "commands.install:install",
    "update": "commands.update:update",
    "diff": "commands.update:diff",
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
    "eval": "commands.eval:eval_",
    "improve": "commands.improve:improve",
    "scan": "commands.scan:scan",
    "verify": "commands.verify:verify",
    "trust": "commands.trust:trust",
    "publish": "commands.publish:publish",
    "yank": "commands.publish:yank",
    "hub": "commands.hub:hub",
    "config": "commands.config:config",
}
cli.aliases = {"add": "install"}
cli.synonyms = {
    "init": "new",
    "create": "new",
    "load": "show NAME --as-model",
    "find": "search",
    "ls": "list",
    "tools": "list --tools",
    "agents": "link --list",
    "lint": "check",
    "import": "install",
    "index": "search --build-index",
    "settings": "config",
    "uninstall": "remove",
    "rm": "remove",
    "delete": "remove",
    "upgrade": "update",
    "mv": "rename",
    "call": "try",
    "ask": "run",
    "evaluate": "eval",
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
    if COMPLETION_VARIABLE in os.environ:
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
        raise InvalidInput(_click_message(exc)) from exc


def _message_and_hint(exc: click.UsageError, args: list[str]) -> tuple[str, str]:
    hint = help_hint(exc.ctx)
    name = next((word for word in args if word in cli.modules), "")
    if exc.ctx is None and name:
        hint = say("Run `{command} --help`", command=f"satchel {name}")
    if isinstance(exc, click.NoSuchOption):
        text = say("There is no option `{name}`", name=exc.option_name)
        # Click suggests every option that shares a few letters.
        similar_options = similar_names(exc.option_name, exc.possibilities or (), ratio=0.75)
        return text, did_you_mean(similar_options) or hint
    if isinstance(exc, click.BadOptionUsage):
        if "does not take" in exc.message:
            return say("`{name}` takes no value", name=exc.option_name), hint
        return say("`{name}` needs a value", name=exc.option_name), hint
    if isinstance(exc, click.MissingParameter) and exc.param is not None:
        return say("`{name}` is missing", name=exc.param.human_readable_name.upper()), hint
    return _click_message(exc), hint


def _click_message(exc: click.ClickException) -> str:
    return exc.format_message().replace("'", "`").rstrip(".")
