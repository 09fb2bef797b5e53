"""The commands `init` and `locations`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from satchel.cli.console import one_line, write_json
from satchel.cli.context import command
from satchel.cli.plan_prompt import print_shadowed
from satchel.i18n import say
from satchel.library.locations import OTHER_AGENTS
from satchel.satchel import EXAMPLE_SKILL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from satchel.cli.context import CliContext
    from satchel.library import Location
    from satchel.skill.model import Skill


@command(
    say("Write a first skill into `.agents/skills`, and trust it."),
    "satchel init",
    "satchel init release-notes",
)
@click.argument("name", default=EXAMPLE_SKILL)
def init(context: CliContext, name: str, as_json: bool) -> int:
    path = context.satchel.init(name)
    print_shadowed(context, [os.path.dirname(path)])
    if as_json:
        write_json({"name": name, "path": path})
        return 0
    context.out.data(path)
    err = context.err
    err.line(say("Edit the file: say what the skill does, and when to use it"), "", "1. ")
    err.line(say("See it listed: `satchel list`"), "", "2. ")
    # Only the default skill is known to take a name as its argument.
    example = (
        say("Try it: `satchel load {name} --args Ada`", name=name)
        if name == EXAMPLE_SKILL
        else say("Read it as a model does: `satchel load {name}`", name=name)
    )
    err.line(example, "", "3. ")
    return 0


@command(
    say("Show where skills are looked for, in order: the first place wins."),
    "satchel locations",
    "satchel locations --json",
)
def locations(context: CliContext, as_json: bool) -> int:
    satchel = context.satchel
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
            continue
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
    context.out.table(head, rows, styles)
    context.print_root()
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
