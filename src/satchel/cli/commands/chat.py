"""The command `chat`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from satchel._optional import must_be_installed
from satchel.cli.commands.tools import print_packaged_at_start
from satchel.cli.console import one_line
from satchel.cli.context import command
from satchel.cli.models import choose_model, make_limits, quietly, turn_options
from satchel.i18n import say

if TYPE_CHECKING:
    from satchel.cli.context import CliContext


@command(
    say("Chat with a model that has your skills."),
    "satchel chat",
    "satchel chat --model anthropic:claude-sonnet-5",
    json=False,
)
@click.option(
    "--ask", multiple=True, metavar="PATTERN", help=say("Ask before these tools too; repeatable.")
)
@turn_options
def chat(
    context: CliContext, model: str | None, allow_tools: bool, ask: tuple[str, ...], **limits: Any
) -> int:
    for package in ("rich", "prompt_toolkit", "pydantic_ai"):
        must_be_installed(package, "agent")
    context.defaults["builtin"] = True
    name = choose_model(context, model)
    with context.err.waiting(say("Starting {name}…", name=one_line(name))):
        from satchel.cli.commands.chat_loop import ChatLoop

    print_packaged_at_start(context)
    context.print_root()
    with quietly():
        loop = ChatLoop(context, name, make_limits(**limits), ask, allow_tools=allow_tools)
        return loop.run()
