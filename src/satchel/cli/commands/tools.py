"""The command `tools`: lists the tools of agents and their owners."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from satchel.cli.console import one_line, plural, write_json
from satchel.cli.context import command
from satchel.i18n import say

if TYPE_CHECKING:
    from collections.abc import Iterable

    from satchel.cli.context import CliContext
    from satchel.library.snapshot import ToolSnapshot
    from satchel.library.tool_skills import ToolSkill
    from satchel.tools.packaged import Packaged

_STYLES = {"enabled": "green", "disabled": "dim", "missing": "yellow"}


@command(
    say("Show the tools that an agent gets here, and their access."),
    "satchel tools",
    "SKILL_EXCEL_ENABLED=false satchel tools",
)
def tools(context: CliContext, as_json: bool) -> int:
    from satchel.tools.packaged import find_packaged

    satchel = context.satchel
    packaged = find_packaged() if satchel.settings.packaged else []
    enabled = [one.skill for one in packaged if one.state == "enabled" and one.skill is not None]
    names = {tool.name for skill in enabled for tool in skill.tools}
    toolset = satchel.tools()
    owners = toolset.owners
    snapshot = satchel.library.tools()
    records: list[dict[str, Any]] = []
    for definition in toolset.definitions("mcp"):
        name = str(definition["name"])
        is_packaged = name in names
        found = snapshot.tools.get(name) if not is_packaged else None
        owner, source = owners.get(name, ""), found[0] if found else None
        records.append(_record(definition, owner, source, packaged=is_packaged))
    broken = _broken(snapshot)
    if as_json:
        found = [
            {
                "name": one.name,
                "package": one.package,
                "state": one.state,
                "line": one.line,
                "reason": one.reason,
                "tools": [tool.name for tool in one.skill.tools] if one.skill else [],
            }
            for one in packaged
        ]
        write_json({"tools": records, "packaged": found, "broken": broken})
        return 0
    rows: list[list[str]] = []
    styles: list[list[str]] = []
    for record in records:
        rows.append([
            one_line(record["name"]),
            one_line(record["owner"]),
            say(", ").join(say(word) for word in record["may"]),
            one_line(record["description"]),
        ])  # fmt: skip
        styles.append(["bold", "", "yellow" if record["writes"] else "dim", ""])
    context.out.table([say("tool"), say("owner"), say("access"), say("description")], rows, styles)
    _print_packaged(context, packaged)
    if broken:
        count = plural(len(broken), say("broken"), say("broken"))
        context.err.line(f"{count} (`satchel doctor`)", "red")
    return 0


def _print_packaged(context: CliContext, packaged: Iterable[Packaged]) -> None:
    for one in packaged:
        line = one.line
        if one.skill is not None and not _can_show(one.skill.mark):
            line = line.removeprefix(one.skill.mark).lstrip()
        context.err.line(one_line(line), _STYLES.get(one.state, "red"))


def _can_show(mark: str) -> bool:
    try:
        mark.encode(sys.stderr.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True


def print_packaged_at_start(context: CliContext) -> None:
    """Print the state of packaged skills to stderr, except those with missing extras."""
    if context.satchel.settings.packaged:
        from satchel.tools.packaged import find_packaged

        _print_packaged(context, (one for one in find_packaged() if one.state != "missing"))


def _broken(snapshot: ToolSnapshot) -> list[str]:
    """Folders with an invalid skill.yaml."""
    known = {one.skill.base_dir for one in (*snapshot.skills, *snapshot.hidden)}
    folders = [os.path.dirname(one.path) for one in snapshot.problems if one.severity == "error"]
    return [folder for folder in dict.fromkeys(folders) if folder not in known]


def _record(
    definition: dict[str, Any], owner: str, source: ToolSkill | None, *, packaged: bool
) -> dict[str, Any]:
    writes = not definition["annotations"].get("readOnlyHint", False)
    may = ["writes" if writes else "reads"]
    if source is not None:
        # The definition promises nothing for a program; its sandbox decides.
        access = source.manifest.files.access
        writes = access == "write"
        may = ["runs", *({"read": ["reads"], "write": ["writes"]}.get(access, []))]
        if source.manifest.network:
            may.append("network")
    return {
        "name": str(definition["name"]),
        "owner": owner or "satchel",
        "kind": "builtin" if not owner else "packaged" if packaged else "skill",
        "writes": writes,
        "may": may,
        "description": str(definition["description"]),
    }
