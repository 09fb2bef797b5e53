"""`satchel list --tools`: the tools of agents and their owners."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from satchel.cli.console import one_line, plural, write_json
from satchel.i18n import say

if TYPE_CHECKING:
    from collections.abc import Iterable

    from satchel.cli.context import CliContext
    from satchel.library.snapshot import ToolSnapshot
    from satchel.library.tool_skills import ToolSkill
    from satchel.satchel import Satchel
    from satchel.tools.packaged import Packaged

_STATE_STYLES = {"enabled": "green", "disabled": "dim", "missing": "yellow"}


def show_tools(context: CliContext, *, as_json: bool) -> int:
    """Print the tools that an agent gets here, packaged skills and broken ones."""
    from satchel.tools.packaged import find_packaged

    satchel = context.satchel
    packaged = find_packaged() if satchel.settings.packaged else []
    records = _tools_to_dicts(satchel, packaged)
    broken = _find_broken(satchel.library.tools())
    if as_json:
        packages = [_package_to_dict(entry) for entry in packaged]
        write_json({"tools": records, "packaged": packages, "broken": broken})
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


def _tools_to_dicts(satchel: Satchel, packaged: Iterable[Packaged]) -> list[dict[str, Any]]:
    """The tools of an agent as JSON."""
    enabled = [entry.skill for entry in packaged if entry.state == "enabled" and entry.skill]
    packaged_names = {tool.name for skill in enabled for tool in skill.tools}
    toolset = satchel.tools()
    snapshot = satchel.library.tools()
    records: list[dict[str, Any]] = []
    for definition in toolset.definitions("mcp"):
        name = str(definition["name"])
        is_packaged = name in packaged_names
        entry = snapshot.tools.get(name) if not is_packaged else None
        tool_skill = entry[0] if entry else None
        owner = toolset.owners.get(name, "")
        records.append(_tool_to_dict(definition, owner, tool_skill, is_packaged=is_packaged))
    return records


def _package_to_dict(entry: Packaged) -> dict[str, Any]:
    return {
        "name": entry.name,
        "package": entry.package,
        "state": entry.state,
        "line": entry.line,
        "reason": entry.reason,
        "tools": [tool.name for tool in entry.skill.tools] if entry.skill else [],
    }


def _print_packaged(context: CliContext, packaged: Iterable[Packaged]) -> None:
    for entry in packaged:
        line = entry.line
        if entry.skill is not None and not _can_show(entry.skill.mark):
            line = line.removeprefix(entry.skill.mark).lstrip()
        context.err.line(one_line(line), _STATE_STYLES.get(entry.state, "red"))


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

        _print_packaged(context, (entry for entry in find_packaged() if entry.state != "missing"))


def _find_broken(snapshot: ToolSnapshot) -> list[str]:
    """Folders with an invalid skill.yaml."""
    valid_folders = {
        tool_skill.skill.base_dir for tool_skill in (*snapshot.skills, *snapshot.hidden)
    }
    folders = [
        os.path.dirname(problem.path)
        for problem in snapshot.problems
        if problem.severity == "error"
    ]
    return [folder for folder in dict.fromkeys(folders) if folder not in valid_folders]


def _tool_to_dict(
    definition: dict[str, Any], owner: str, tool_skill: ToolSkill | None, *, is_packaged: bool
) -> dict[str, Any]:
    writes = not definition["annotations"].get("readOnlyHint", False)
    permissions = ["writes" if writes else "reads"]
    if tool_skill is not None:
        # The definition promises nothing for a program; its sandbox decides.
        access = tool_skill.manifest.files.access
        writes = access == "write"
        permissions = ["runs", *({"read": ["reads"], "write": ["writes"]}.get(access, []))]
        if tool_skill.manifest.network:
            permissions.append("network")
    kind = "builtin"
    if owner:
        kind = "packaged" if is_packaged else "skill"
    return {
        "name": str(definition["name"]),
        "owner": owner or "satchel",
        "kind": kind,
        "writes": writes,
        "may": permissions,
        "description": str(definition["description"]),
    }
