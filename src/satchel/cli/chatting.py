"""How do I talk to a model that has these skills? chat."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from satchel._language import say
from satchel._optional import require
from satchel.cli.session import command
from satchel.cli.values import Amount, WholeNumber

if TYPE_CHECKING:
    from satchel.cli.session import Session


@command(
    say("Talk to a model that has the skills of this project.")
    + "\n\n"
    + say(
        "The answer comes as it is written, with a line for each call of a tool and each skill "
        "that is loaded. `/NAME` loads a skill yourself, `/why NAME` says why one was used or not, "
        "`/help` shows the rest. A tool that writes or uses the network asks first."
    ),
    "satchel chat",
    "satchel chat --model anthropic:claude-sonnet-5",
    "satchel chat --ask ReadFile",
    more=say(
        "The model is `--model`, else the variable `SATCHEL_MODEL`, else the setting `model`. In a "
        "pipe each line is a message, nobody can be asked, and the exit code is that of the first "
        "message that came to nothing."
    ),
    json=False,
)
@click.option("--model", metavar="PROVIDER:NAME", help=say("Who answers."))
@click.option("--yes", is_flag=True, help=say("Let every tool be called without asking."))
@click.option("--ask", multiple=True, metavar="PATTERN", help=say("Ask before these tools too."))
@click.option(
    "--max-requests", type=WholeNumber(1), metavar="N", help=say("Requests that a turn may make.")
)
@click.option(
    "--max-tokens",
    type=WholeNumber(1),
    metavar="N",
    help=say("Tokens that a turn may take, in and out."),
)
@click.option(
    "--max-cost", type=Amount(), metavar="DOLLARS", help=say("What a turn may cost, if known.")
)
def chat(
    session: Session,
    model: str | None,
    yes: bool,
    ask: tuple[str, ...],
    max_requests: int | None,
    max_tokens: int | None,
    max_cost: float | None,
) -> int:
    """The terminal is the person's; errors of a turn do not end the chat."""
    import asyncio
    from importlib.util import find_spec

    for package in ("rich", "prompt_toolkit", "pydantic_ai"):
        if find_spec(package) is None:  # the last takes a second to import: that is done later
            require(package, "agent")
    from satchel.cli.chat.conversation import Conversation
    from satchel.cli.chat.models import choose_model, limits_of, quietly

    name = choose_model(session, model)
    with quietly():
        limits = limits_of(max_requests, max_tokens, max_cost)
        talk = Conversation(session, name, yes=yes, ask=ask, limits=limits)
        return asyncio.run(talk.run())
