"""The command `list`.

`main` and click both call `show_list`. Nothing heavy is imported here, to keep the start-up short.
"""

from __future__ import annotations

import os
import sys

from satchel.cli.console import STATES, Screen, count_skills, one_line, plural, write_json
from satchel.errors import LockBroken
from satchel.i18n import say
from satchel.library.locations import OTHER_AGENTS, source_words
from satchel.library.snapshot import find_broken
from satchel.skill.problems import PROBLEMS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from typing import Any

    from satchel.cli.context import CliContext
    from satchel.library import Library, Location
    from satchel.library.lockfile import LockedSource
    from satchel.library.snapshot import BrokenSkill
    from satchel.library.tool_skills import ToolSkill
    from satchel.satchel import Satchel
    from satchel.skill.model import Skill
    from satchel.skill.problems import Problem

_MAX_SKILLS_VERIFIED = 500
"""Without `--all`, more skills are not compared with the lockfile."""


def show_list(satchel: Satchel, *, everything: bool = False, as_json: bool = False) -> int:
    """Print the skills on stdout, with `everything` also hidden ones, and a summary on stderr."""
    snapshot, tools = satchel.library.snapshot(), satchel.library.tools()
    only = [one.skill for one in tools.only()]
    offered = _in_order(snapshot.skills, [skill for skill in only if skill.state == "active"])
    hidden = [*snapshot.hidden, *(skill for skill in only if skill.state != "active")]
    problems = (*snapshot.problems, *tools.problems)
    skills = [*offered, *hidden] if everything else offered
    tool_skills = {
        (one.skill.origin.root, one.skill.head.id): one for one in (*tools.skills, *tools.hidden)
    }
    broken = find_broken(problems, satchel.library.locations)
    shown = broken if everything else []
    verified = offered if everything or len(offered) <= _MAX_SKILLS_VERIFIED else ()
    modified = {skill.ref for skill in satchel.library.modified(verified)}
    hubs = {skill.ref: name for skill in verified if (name := hub_name(satchel, skill))}
    if as_json:
        rows = [skill.to_dict() for skill in skills]
        for row, skill in zip(rows, skills, strict=True) if tool_skills or modified or hubs else ():
            if skill.ref in modified:
                row["modified"] = True
            if skill.ref in hubs:
                row["hub"] = hubs[skill.ref]
            source = tool_skills.get((skill.origin.root, skill.head.id))
            row.update(source.to_dict() if source is not None else {})
        write_json([*rows, *(item.to_dict() for item in shown)])
        return 0
    if skills or shown:
        screen = Screen(sys.stdout)
        _table(screen, skills, shown, tool_skills, modified, hubs, states=everything)
    sys.stdout.flush()
    seen = (offered, hidden, problems)
    policy = "ask" if satchel.settings.asks else satchel.settings.trust
    screen = Screen(sys.stderr)
    screen.line(_summary(seen, len(broken), len(modified), everything=everything, policy=policy))
    for pattern in satchel.library.unmatched() if satchel.settings.include else ():
        text = say("No skill matches `{name}` in `include`", name=one_line(pattern))
        screen.line(text, "yellow")
    return 0


def hub_place(library: Library, skill: Skill) -> LockedSource | None:
    """The source of a skill that was installed from a hub."""
    try:
        place = library.integrity.place(skill)
    except LockBroken:  # reported as a problem
        return None
    return place if place is not None and place.kind == "hub" else None


def hub_name(satchel: Satchel, skill: Skill) -> str:
    """The name and version of a hub's skill, `acme/pdf@1.2.0`; empty for others."""
    place = hub_place(satchel.library, skill)
    return f"{'/'.join(place.url.split('/')[-2:])}@{place.commit}" if place is not None else ""


def _in_order(skills: Sequence[Skill], tools: list[Skill]) -> list[Skill]:
    """Put tool skills before built-in skills, which come last."""
    if not tools:
        return list(skills)
    ours = [skill for skill in skills if skill.source == "builtin"]
    return [*(skill for skill in skills if skill.source != "builtin"), *tools, *ours]


def _table(
    screen: Screen,
    skills: Sequence[Skill],
    broken: Sequence[BrokenSkill],
    tool_skills: Mapping[tuple[str, str], ToolSkill],
    modified: Collection[str],
    hubs: Mapping[str, str],
    *,
    states: bool,
) -> None:
    rows: list[list[str]] = []
    styles: list[list[str]] = []
    for skill in skills:
        state = "modified" if skill.ref in modified else skill.shown_state
        mark, colour = STATES[state]
        if state == "active" and skill.head.problems and _grave(skill.head.problems):
            mark, colour = "▲", "yellow"
        label = skill.origin.label
        where = (
            label if skill.origin.remote or label in OTHER_AGENTS else source_words(skill.source)
        )
        where = one_line(hubs.get(skill.ref, where))
        source = tool_skills.get((skill.origin.root, skill.head.id))
        about = skill.description
        if skill.shadowed_by:
            about = say("hidden by {ref}", ref=skill.shadowed_by)
        rows.append([
            mark,
            one_line(skill.name),
            one_line(skill.id) if skill.id != skill.name else "",
            _state_word(state) if states else "",
            where,
            " ".join(source.tools) if source is not None else "",
            one_line(about),
        ])  # fmt: skip
        dim = "dim" if skill.state in ("shadowed", "excluded") else ""
        styles.append([colour, dim or "bold", "dim", colour, "dim", dim or "cyan", dim])
    mark, colour = STATES["broken"]
    for item in broken:
        wrong = one_line(item.problem.message)
        rows.append(
            [mark, one_line(item.name), "", say("broken"), source_words(item.source), "", wrong]
        )
        styles.append([colour, "bold", "dim", colour, "dim"])
    head = ["", say("name"), say("id"), say("state"), say("source"), say("tools")]
    screen.table([*head, say("description")], rows, styles)


def _state_word(state: str) -> str:
    return say("user only") if state == "withheld" else say(state)


def _grave(problems: Iterable[Problem]) -> int:
    """Count errors and warnings."""
    return sum(PROBLEMS[problem.code].severity != "note" for problem in problems)


def _summary(
    seen: tuple[Sequence[Skill], Sequence[Skill], Sequence[Problem]],
    broken: int,
    modified: int,
    *,
    everything: bool,
    policy: str,
) -> str:
    offered, concealed, noted = seen
    untrusted = sum(skill.state == "untrusted" for skill in concealed)
    blocked = sum(skill.state == "blocked" for skill in concealed)
    problems = sum(PROBLEMS[item.code].severity == "warning" for item in noted)
    every = (*offered, *concealed)
    problems += sum(_grave(one.head.problems) for one in every if one.head.problems)
    unverified = sum(skill.state == "unverified" for skill in concealed)
    withheld = sum(skill.shown_state == "withheld" for skill in offered)
    hidden = len(concealed) - untrusted - blocked - unverified
    waiting = say("not pinned") if policy == "locked" else say("untrusted")
    parts = [count_skills(len(offered))]
    for count, noun, command in (
        (withheld, say("user only"), ""),
        (hidden, say("hidden"), "" if everything else "satchel list --all"),
        (untrusted, waiting, "satchel verify" if policy == "locked" else "satchel trust"),
        (blocked, say("blocked"), "satchel scan --all"),
        (unverified, say("unverified"), "satchel doctor"),
        (modified, say("modified"), "satchel verify"),
        (broken, say("broken"), "" if problems else "satchel doctor"),
        (problems, say("problem") if problems == 1 else say("problems"), "satchel doctor"),
    ):
        if count:
            parts.append(plural(count, noun, noun) + (f" (`{command}`)" if command else ""))
    text = say(", ").join(parts)
    if not offered and not concealed and not broken:
        text += say(". ") + say("Run `{command}`", command="satchel new")
    return text


def show_locations(context: CliContext, *, as_json: bool) -> int:
    """Print the locations."""
    satchel = context.satchel
    every = satchel.library.every()
    records = [_record(location, every) for location in satchel.library.locations]
    if as_json:
        write_json({"project": satchel.settings.project, "locations": records})
        return 0
    rows: list[list[str]] = []
    styles: list[list[str]] = []
    for record in records:
        if not record["exists"] and record["label"] in OTHER_AGENTS:
            continue
        rows.append([
            str(len(rows) + 1),
            one_line(record["label"]) + ("" if not record["single"] else "/SKILL.md"),
            source_words(record["source"]),
            f"{record['skills']:,}" if record["exists"] else say("none"),
            _trust_word(record) if record["exists"] else "",
        ])  # fmt: skip
        dim = "" if record["exists"] else "dim"
        doubt = "yellow" if record["untrusted"] else dim
        styles.append(["dim", dim or "bold", dim, dim, doubt])
    head = ["", say("location"), say("source"), say("skills"), say("trusted")]
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
    if not record["untrusted"]:
        return say("yes") if record["skills"] else say("ask")
    trusted = record["skills"] - record["untrusted"]
    return say("{count} of {total}", count=trusted, total=record["skills"])
