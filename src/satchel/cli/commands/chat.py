"""The command `chat`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from satchel._optional import require
from satchel.cli.commands.tools import print_packaged_at_start
from satchel.cli.context import command
from satchel.cli.models import choose_model, limits_of, quietly, turn_options
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
    context: CliContext, model: str | None, yes: bool, ask: tuple[str, ...], **limits: Any
) -> int:
    for package in ("rich", "prompt_toolkit", "pydantic_ai"):
        require(package, "agent")
    from satchel.cli.commands.chat_loop import ChatLoop

    context.defaults["builtin"] = True
    name = choose_model(context, model)
    print_packaged_at_start(context)
    with quietly():
        return ChatLoop(context, name, limits_of(**limits), ask, yes=yes).run()
