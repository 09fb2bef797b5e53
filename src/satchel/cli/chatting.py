"""`satchel chat`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from satchel._language import say
from satchel._optional import require
from satchel.cli.running import turn_options
from satchel.cli.session import command
from satchel.cli.tooling import tell_packaged_at_start

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
@click.option("--allow-tools", "yes", is_flag=True,
              help=say("Let every tool be called without asking."))  # fmt: skip
@click.option("--ask", multiple=True, metavar="PATTERN", help=say("Ask before these tools too."))
@turn_options
def chat(session: Session, model: str | None, yes: bool, ask: tuple[str, ...], **most: Any) -> int:
    """Errors of a turn do not end the chat."""
    for package in ("rich", "prompt_toolkit", "pydantic_ai"):
        require(package, "agent")
    from satchel.cli.chat.conversation import Conversation
    from satchel.cli.chat.models import choose_model, limits_of, quietly

    session.defaults["builtin"] = True
    name, limits = choose_model(session, model), limits_of(**most)
    tell_packaged_at_start(session)
    with quietly():
        return Conversation(session, name, limits, ask, yes=yes).run()
