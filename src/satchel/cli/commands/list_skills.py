"""The command `list`.

`main` and click both call `show_list`. Nothing heavy is imported here, to keep the start-up short.
"""

from __future__ import annotations

import os
import sys

from satchel.cli.console import STATES, Screen, count_skills, one_line, write_json
from satchel.i18n import say
from satchel.library.locations import OTHER_AGENTS
from satchel.library.snapshot import find_broken
from satchel.skill.problems import PROBLEMS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from satchel.library.snapshot import BrokenSkill
    from satchel.library.tool_scanner import ToolSkill
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
    unfinished = _unfinished(satchel)
    problems = (*snapshot.problems, *tools.problems, *unfinished)
    skills = [*offered, *hidden] if everything else offered
    tool_skills = {
        (one.skill.origin.root, one.skill.head.id): one for one in (*tools.skills, *tools.hidden)
    }
    for problem in unfinished:
        screen = Screen(sys.stderr)
        screen.line(one_line(problem.message), "yellow")
        screen.line(one_line(problem.fix), "", "→ ")
    broken = find_broken(problems, satchel.library.locations)
    shown = broken if everything else []
    verified = offered if everything or len(offered) <= _MAX_SKILLS_VERIFIED else ()
    modified = {skill.ref for skill in satchel.library.modified(verified)}
    if as_json:
        rows = [skill.to_dict() for skill in skills]
        for row, skill in zip(rows, skills, strict=True) if tool_skills or modified else ():
            if skill.ref in modified:
                row["modified"] = True
            source = tool_skills.get((skill.origin.root, skill.head.id))
            row.update(source.to_dict() if source is not None else {})
        write_json([*rows, *(item.to_dict() for item in shown)])
        return 0
    if skills or shown:
        screen = Screen(sys.stdout)
        _table(screen, skills, shown, tool_skills, modified, states=everything)
    sys.stdout.flush()
    seen = (offered, hidden, problems)
    policy = "ask" if satchel.settings.asks else satchel.settings.trust
    screen = Screen(sys.stderr)
    screen.line(_summary(seen, len(broken), len(modified), everything=everything, policy=policy))
    for pattern in satchel.library.unmatched() if satchel.settings.include else ():
        text = say("No skill matches `{name}` in `include`", name=one_line(pattern))
        screen.line(text, "yellow")
    return 0


def _unfinished(satchel: Satchel) -> list[Problem]:
    locks = [location.lock for location in satchel.library.locations if location.lock]
    if not any(os.path.isdir(os.path.join(os.path.dirname(lock), ".satchel")) for lock in locks):
        return []
    from satchel.library.lockfile import interrupted_changes
    from satchel.library.ownership import key_path

    return interrupted_changes(locks, key_path(satchel.settings.paths.state))


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
    *,
    states: bool,
) -> None:
    # The id gets a column only when one differs from the name.
    ids = any(skill.id != skill.name for skill in skills)
    tools = any((skill.origin.root, skill.head.id) in tool_skills for skill in skills)
    head = ["", say("name"), say("source"), say("description")]
    if tools:
        head.insert(3, say("tools"))
    if ids:
        head.insert(2, say("id"))
    if states:
        head.insert(1, say("state"))
    rows: list[list[str]] = []
    styles: list[list[str]] = []
    for skill in skills:
        state = "modified" if skill.ref in modified else skill.state
        mark, colour = STATES[state]
        if state == "active" and skill.head.problems and _grave(skill.head.problems):
            mark, colour = "▲", "yellow"
        label = skill.origin.label
        where = label if skill.origin.remote or label in OTHER_AGENTS else skill.source
        about = skill.description
        if skill.winner:
            about = say("hidden by {ref}, which goes before it", ref=skill.winner)
        row = [mark, one_line(skill.name), where, one_line(about)]
        dim = "dim" if skill.state in ("shadowed", "excluded") else ""
        style = [colour, dim or "bold", "dim", dim]
        if tools:
            source = tool_skills.get((skill.origin.root, skill.head.id))
            row.insert(3, " ".join(source.tools) if source is not None else "")
            style.insert(3, dim or "cyan")
        if ids:
            row.insert(2, one_line(skill.id) if skill.id != skill.name else "")
            style.insert(2, "dim")
        if states:
            row.insert(1, say(state))
            style.insert(1, colour)
        rows.append(row)
        styles.append(style)
    mark, colour = STATES["broken"]
    for item in broken:
        row = [mark, say("broken"), one_line(item.name), item.source]
        gap = [""] if tools else []
        wrong = one_line(item.problem.message)
        rows.append([*row[:3], *([""] if ids else []), row[3], *gap, wrong])
        styles.append([colour, colour, "bold", *(["dim"] if ids else []), "dim"])
    screen.table(head, rows, styles)


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
    count = len(offered)
    parts = [count_skills(count)]
    untrusted = sum(skill.state == "untrusted" for skill in concealed)
    blocked = sum(skill.state == "blocked" for skill in concealed)
    hidden = len(concealed) - untrusted - blocked
    if hidden and everything:
        parts.append(say("{count} hidden", count=hidden))
    elif hidden:
        parts.append(say("{count} hidden (`satchel list --all`)", count=hidden))
    if untrusted and policy == "locked":
        parts.append(say("{count} not pinned (`satchel verify`)", count=untrusted))
    elif untrusted:
        parts.append(say("{count} not trusted yet (`satchel trust`)", count=untrusted))
    if blocked:
        parts.append(say("{count} blocked (`satchel scan --all`)", count=blocked))
    if modified:
        parts.append(say("{count} modified (`satchel verify`)", count=modified))
    problems = sum(PROBLEMS[item.code].severity == "warning" for item in noted)
    problems += sum(_grave(skill.head.problems) for skill in offered if skill.head.problems)
    problems += sum(_grave(skill.head.problems) for skill in concealed if skill.head.problems)
    if broken and problems:
        parts.append(say("{count} broken", count=broken))
    elif broken:
        parts.append(say("{count} broken (`satchel doctor`)", count=broken))
    if problems == 1:
        parts.append(say("1 problem (`satchel doctor`)"))
    elif problems:
        parts.append(say("{count} problems (`satchel doctor`)", count=problems))
    text = say(", ").join(parts)
    if not count and not concealed and not broken:
        text += say("; ") + say("run `satchel init` to write a first one")
    return text
