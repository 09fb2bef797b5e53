"""What does a skill say to a model, and which one fits? load, read, search, catalogue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from satchel._language import render, say
from satchel.cli.output import one_line
from satchel.cli.session import answer_with, command, complete_names
from satchel.cli.values import AnyPath, OneOf, WholeNumber
from satchel.errors import InvalidInput
from satchel.settings import SETTINGS, Settings

if TYPE_CHECKING:
    from satchel.cli.session import Session
    from satchel.errors import SatchelError

_DEFAULTS = Settings._field_defaults
_FORMS = next(setting.choices for setting in SETTINGS if setting.name == "form")

# --- load, read ---------------------------------------------------------------------------


@command(
    say("Print a skill as a model gets it, with arguments filled in."),
    "satchel load hello-skill",
    "satchel load hello-skill --args Ada",
)
@click.argument("name", shell_complete=complete_names)
@click.option(
    "--args",
    "arguments",
    metavar="TEXT",
    default="",
    help=say("What takes the place of `$ARGUMENTS`."),
)
def load(session: Session, name: str, arguments: str, as_json: bool) -> int:
    """The Skill tool, for a person; nothing is recorded as used."""
    session.given["trace"] = "off"
    words: dict[str, Any] = {"name": name}
    if arguments:
        words["args"] = arguments
    reply = session.satchel.tools().call("Skill", words, as_person=True)
    if reply.error is not None and not as_json:
        reason = _why_not(session, name)
        if reason is not None:
            from satchel.cli.output import complain

            complain(render(reason.message), render(reason.hint), session.colour)
            return reason.exit_code
    return answer_with(session, reply, as_json=as_json)


def _why_not(session: Session, name: str) -> SatchelError | None:
    """Why a skill cannot be loaded, for a person; None when the tool said it best."""
    from satchel.errors import NotFound, Refused
    from satchel.skill.problems import Problem
    from satchel.tools.naming import find_skill

    satchel = session.satchel
    look = satchel.library.snapshot()
    skill = find_skill(look, name, satchel.settings.project)
    if skill is None:
        return _nothing_to_load(session, name)
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


def _nothing_to_load(session: Session, name: str) -> SatchelError | None:
    """Why nothing of that name has instructions."""
    from satchel.errors import InvalidInput, SatchelError

    try:
        found = session.find(name)
    except SatchelError as exc:
        return exc
    if not found[0].is_tool:
        return None
    return InvalidInput(
        say("`{name}` has tools and no instructions to load", name=one_line(name)),
        say("See them: `satchel show {name}`", name=found[0].typed),
    )


@command(
    say("Print a text file of the project or of a skill, with the limits an agent has."),
    "satchel read README.md",
    "satchel read .agents/skills/hello-skill/SKILL.md --offset 5 --limit 10",
)
@click.argument("path", type=AnyPath())
@click.option(
    "--offset",
    type=WholeNumber(1),
    metavar="N",
    help=say("The first line to print, at least 1."),
)
@click.option(
    "--limit", type=WholeNumber(1), metavar="N", help=say("How many lines to print, at least 1.")
)
def read(session: Session, path: str, offset: int | None, limit: int | None, as_json: bool) -> int:
    """The ReadFile tool, for a person."""
    given = {"path": path, "offset": offset, "limit": limit}
    words = {name: value for name, value in given.items() if value is not None}
    reply = session.satchel.tools().call("ReadFile", words, as_person=True)
    return answer_with(session, reply, as_json=as_json)


# --- search -------------------------------------------------------------------------------


@command(
    say("Find the skills that fit some words, best first.")
    + "\n\n"
    + say("Exits with 3 when nothing is found."),
    "satchel search review a skill",
    "satchel search 写技能 --limit 3",
)
@click.argument("words", nargs=-1, required=True)
@click.option(
    "--limit",
    default=10,
    type=WholeNumber(1),
    metavar="N",
    help=say("How many at most, at least 1; by default 10."),
)
def search(session: Session, words: tuple[str, ...], limit: int, as_json: bool) -> int:
    """What `SkillSearch` would answer."""
    from satchel.cli.choosing import NO_REASON, NONE_FITS, show_notes, told_reason

    text = " ".join(words)
    if not text.strip():
        raise InvalidInput(
            say("There are no words to search for"), say("Give some: `satchel search review`")
        )
    with session.choosing():
        matches = session.satchel.search(text, limit)
    notes = session.satchel.detector.notes
    if as_json:
        from satchel.cli.output import write_json

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
        show_notes(session.err, notes)
        return 0 if matches else NONE_FITS
    if not matches:
        session.err.line(say("No skill fits; `satchel list` shows them all"))
        show_notes(session.err, notes)
        return NONE_FITS
    rows = [
        [one_line(match.name), f"{match.score:.2f}", told_reason(match) or NO_REASON]
        for match in matches
    ]
    session.out.table(
        [say("name"), say("score"), say("why")], rows, [["bold", "dim"] for _ in matches]
    )
    show_notes(session.err, notes)
    return 0


# --- catalogue ----------------------------------------------------------------------------


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
    session: Session, budget: int | None, tokens: int | None, form: Any, as_json: bool
) -> int:
    """The block of the system prompt."""
    from satchel.catalogue import Budget

    room = budget if tokens is None else Budget.tokens(tokens)
    block = session.satchel.preview(room, form)
    if as_json:
        from satchel.cli.output import write_json

        account = block.account
        write_json({"text": block.text, "digest": block.digest, "account": account._asdict()})
        return 0
    session.out.data(block.text)
    session.err.line(one_line(block.account.summary()))
    return 0
