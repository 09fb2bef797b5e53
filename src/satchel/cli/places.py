"""Where do skills live? init, locations."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from satchel._language import say
from satchel.cli.output import one_line, write_json
from satchel.cli.planning import tell_hidden
from satchel.cli.session import command
from satchel.facade import FIRST
from satchel.library.locations import OTHER_AGENTS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from satchel.cli.session import Session
    from satchel.library import Location
    from satchel.skill.model import Skill


# --- init ---------------------------------------------------------------------------------


@command(
    say("Write a first skill into `.agents/skills`, and trust it."),
    "satchel init",
    "satchel init release-notes",
)
@click.argument("name", default=FIRST)
def init(session: Session, name: str, as_json: bool) -> int:
    """The path on stdout, the next steps on stderr."""
    path = session.satchel.init(name)
    tell_hidden(session, [os.path.dirname(path)])
    if as_json:
        write_json({"name": name, "path": path})
        return 0
    session.out.data(path)
    err = session.err
    err.line(say("Edit the file: say what the skill does, and when to use it"), "", "1. ")
    err.line(say("See it listed: `satchel list`"), "", "2. ")
    # The greeting takes a name; what the others take, their author will know.
    example = (
        say("Try it: `satchel load {name} --args Ada`", name=name)
        if name == FIRST
        else say("Read it as a model does: `satchel load {name}`", name=name)
    )
    err.line(example, "", "3. ")
    return 0


# --- locations ----------------------------------------------------------------------------


@command(
    say("Show where skills are looked for, in order: the first place wins."),
    "satchel locations",
    "satchel locations --json",
)
def locations(session: Session, as_json: bool) -> int:
    """The table of places, below the root of the project."""
    satchel = session.satchel
    every = satchel.library.every()
    records = [_record(location, every) for location in satchel.library.locations]
    project = satchel.settings.project
    if as_json:
        write_json({"project": project, "locations": records})
        return 0
    rows: list[list[str]] = []
    styles: list[list[str]] = []
    for at, record in enumerate(records, 1):
        if not record["exists"] and record["label"] in OTHER_AGENTS:
            continue  # fifteen empty rows say nothing
        rows.append([
            str(at),
            one_line(record["label"]) + ("" if not record["single"] else "/SKILL.md"),
            record["source"],
            say("yes") if record["exists"] else say("no"),
            str(record["skills"]) if record["exists"] else "",
            _trust_word(record),
            say("yes") if record["writable"] else say("no"),
        ])  # fmt: skip
        dim = "" if record["exists"] else "dim"
        doubt = "yellow" if record["untrusted"] else dim
        styles.append(["dim", dim or "bold", dim, dim, dim, doubt, dim])
    head = [
        "",
        say("location"),
        say("source"),
        say("exists"),
        say("skills"),
        say("trusted"),
        say("writable"),
    ]
    session.out.table(head, rows, styles)
    session.tell_root()
    return 0


def _record(location: Location, every: Sequence[Skill]) -> dict[str, Any]:
    here = [
        skill
        for skill in every
        if skill.origin.root == location.path and skill.origin.label == location.name
    ]
    exists = location.supplier is not None or os.path.isdir(location.path)
    if location.single:
        exists = any(
            os.path.exists(os.path.join(location.path, name)) for name in ("SKILL.md", "skill.md")
        )
    return {
        "label": location.name,
        "path": location.path,
        "source": location.source,
        "single": location.single,
        "exists": exists,
        "skills": len(here),
        "untrusted": sum(skill.state == "untrusted" for skill in here),
        "trusted": {True: "yes", False: "no", None: "ask"}[location.trusted],
        "writable": location.writable and (not exists or os.access(location.path, os.W_OK)),
    }


def _trust_word(record: dict[str, Any]) -> str:
    """Whether its skills are offered: what was decided, or that nobody was asked yet."""
    if record["trusted"] != "ask":
        return say("yes") if record["trusted"] == "yes" else say("no")
    if not record["skills"]:
        return say("ask")
    if not record["untrusted"]:
        return say("yes")
    trusted = record["skills"] - record["untrusted"]
    return (
        say("{count} of {total}", count=trusted, total=record["skills"])
        if trusted
        else say("not yet")
    )
