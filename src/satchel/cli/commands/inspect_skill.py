"""The commands `load`, `read`, `search` and `catalogue`: what a model gets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from satchel.cli.console import one_line, print_error, write_json
from satchel.cli.context import command, print_reply, skill_argument
from satchel.cli.options import AnyPath, OneOf, WholeNumber, limit_option
from satchel.errors import InvalidInput, NotFound, Refused, SatchelError
from satchel.i18n import say
from satchel.settings import SETTINGS, Settings

if TYPE_CHECKING:
    from satchel.cli.context import CliContext

_DEFAULTS = Settings._field_defaults
_FORMS = next(setting.choices for setting in SETTINGS if setting.name == "form")


@command(
    say("Print a skill as a model gets it, with arguments filled in."),
    "satchel load hello-skill",
    "satchel load hello-skill --args Ada",
)
@skill_argument()
@click.option(
    "--args",
    "arguments",
    metavar="TEXT",
    default="",
    help=say("What takes the place of `$ARGUMENTS`."),
)
def load(context: CliContext, name: str, arguments: str, as_json: bool) -> int:
    context.given["trace"] = "off"
    given: dict[str, Any] = {"name": name, **({"args": arguments} if arguments else {})}
    reply = context.satchel.tools().call("Skill", given, as_person=True)
    if reply.error is not None and not as_json:
        error = _load_error(context, name)
        if error is not None:
            print_error(error.message, error.hint)
            return error.exit_code
    return print_reply(context, reply, as_json=as_json)


def _load_error(context: CliContext, name: str) -> SatchelError | None:
    """A more precise error than that of the tool, which is written for models; None if none is."""
    from satchel.skill.problems import Problem
    from satchel.tools.lookup import find_skill

    satchel = context.satchel
    skill = find_skill(satchel.library.snapshot(), name, satchel.settings.project)
    if skill is None:
        try:
            found = context.find(name)
        except SatchelError as exc:
            return exc
        if not found[0].is_tool:
            return None
        return InvalidInput(
            say("`{name}` has tools and no instructions to load", name=one_line(name)),
            say("See them: `satchel show {name}`", name=found[0].typed),
        )
    shown = one_line(skill.name)
    if skill.state == "untrusted" and satchel.library.is_unpinned(skill):
        problem = Problem("unpinned", values={"name": shown})
        return Refused(problem.message, problem.fix)
    if skill.state == "excluded":
        return NotFound(
            say("The skill `{name}` is left out by a filter", name=shown),
            say("Change `include`, `exclude` or `tags` in `satchel.toml`"),
        )
    return None


@command(
    say("Print a text file of the project or of a skill, with the limits an agent has."),
    "satchel read README.md",
    "satchel read .agents/skills/hello-skill/SKILL.md --offset 5 --limit 10",
)
@click.argument("path", type=AnyPath())
@click.option(
    "--offset", type=WholeNumber(1), metavar="N", help=say("The first line to print, at least 1.")
)
@click.option(
    "--limit", type=WholeNumber(1), metavar="N", help=say("How many lines to print, at least 1.")
)
def read(
    context: CliContext, path: str, offset: int | None, limit: int | None, as_json: bool
) -> int:
    options = {"path": path, "offset": offset, "limit": limit}
    given = {name: value for name, value in options.items() if value is not None}
    reply = context.satchel.tools().call("ReadFile", given, as_person=True)
    return print_reply(context, reply, as_json=as_json)


@command(
    say("Find the skills that fit some words, best first.")
    + "\n\n"
    + say("Exits with 3 when nothing is found."),
    "satchel search review a skill",
    "satchel search 写技能 --limit 3",
)
@click.argument("words", nargs=-1, required=True)
@limit_option(say("How many at most, at least 1; by default 10."), 10)
def search(context: CliContext, words: tuple[str, ...], limit: int, as_json: bool) -> int:
    from satchel.cli.commands.which import NO_REASON, NONE_FITS, format_reason, show_notes

    text = " ".join(words)
    if not text.strip():
        raise InvalidInput(
            say("There are no words to search for"), say("Give some: `satchel search review`")
        )
    with context.index_progress():
        matches = context.satchel.search(text, limit)
    notes = context.satchel.detector.notes
    if as_json:
        write_json([
            {
                "name": match.name,
                "score": round(match.score, 4),
                "reason": match.reason,
                "evidence": list(match.evidence),
                "description": match.skill.description,
                "ref": match.skill.ref,
            }
            for match in matches
        ])  # fmt: skip
        show_notes(context.err, notes)
        return 0 if matches else NONE_FITS
    if not matches:
        context.err.line(say("No skill fits; `satchel list` shows them all"))
        show_notes(context.err, notes)
        return NONE_FITS
    rows = [
        [one_line(match.name), f"{match.score:.2f}", format_reason(match) or NO_REASON]
        for match in matches
    ]
    context.out.table(
        [say("name"), say("score"), say("why")], rows, [["bold", "dim"] for _ in matches]
    )
    show_notes(context.err, notes)
    return 0


@command(
    say("Print what the model is told about the skills, and account for every one of them.")
    + "\n\n"
    + say("The block goes to stdout, the account to stderr. Nothing is recorded as offered."),
    "satchel catalogue",
    "satchel catalogue --budget 4000 --form markdown",
)
@click.option(
    "--budget",
    type=WholeNumber(),
    metavar="N",
    help=say(
        "Characters that the block may take; by default {value}, the setting `budget`.",
        value=_DEFAULTS["budget"],
    ),
)
@click.option(
    "--tokens",
    type=WholeNumber(),
    metavar="N",
    help=say("Budget in estimated tokens instead of characters."),
)
@click.option(
    "--form",
    type=OneOf(_FORMS),
    help=say("Form of the block; by default {value}, the setting `form`.", value=_DEFAULTS["form"]),
)
def catalogue(
    context: CliContext, budget: int | None, tokens: int | None, form: Any, as_json: bool
) -> int:
    from satchel.catalogue import Budget

    room = budget if tokens is None else Budget.tokens(tokens)
    block = context.satchel.preview(room, form)
    if as_json:
        account = block.account._asdict()
        write_json({"text": block.text, "digest": block.digest, "account": account})
        return 0
    context.out.data(block.text)
    context.err.line(one_line(block.account.summary()))
    return 0
