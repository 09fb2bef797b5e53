"""The command `catalogue`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from satchel.cli.console import one_line, write_json
from satchel.cli.context import command
from satchel.cli.options import OneOf, WholeNumber
from satchel.i18n import say
from satchel.settings import SETTINGS, Settings

if TYPE_CHECKING:
    from satchel.cli.context import CliContext

_DEFAULTS = Settings._field_defaults
_FORMS = next(setting.choices for setting in SETTINGS if setting.name == "form")


@command(
    say("Print the catalogue that the model sees."),
    "satchel catalogue",
    "satchel catalogue --budget 4000 --form markdown",
)
@click.option(
    "--budget",
    type=WholeNumber(),
    metavar="CHARACTERS",
    help=say("Default: {value}.", value=f"{_DEFAULTS['budget']:,}"),
)
@click.option("--form", type=OneOf(_FORMS), help=say("Default: {value}.", value=_DEFAULTS["form"]))
def catalogue(context: CliContext, budget: int | None, form: Any, as_json: bool) -> int:
    block = context.satchel.preview(budget, form)
    if as_json:
        account = block.account._asdict()
        write_json({"text": block.text, "digest": block.digest, "account": account})
        return 0
    context.out.data(block.text)
    context.err.line(one_line(block.account.summary()))
    return 0
