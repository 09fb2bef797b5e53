"""Which tools does an agent get here, and whose are they? tools."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from satchel._language import say
from satchel.cli.output import one_line, write_json
from satchel.cli.session import command

if TYPE_CHECKING:
    from collections.abc import Iterable

    from satchel.cli.session import Session
    from satchel.library.tool_shelf import ToolSkill, ToolSnapshot
    from satchel.tools.packaged import Packaged

_STYLES = {"enabled": "green", "disabled": "dim", "missing": "yellow"}


@command(
    say("Show every tool that an agent gets here, and whose it is.")
    + "\n\n"
    + say(
        "The third column says what it can do: a tool of Satchel or of a package reads or "
        "writes; one of a tool skill runs a program, which sees no more than what stands there."
    ),
    "satchel tools",
    "satchel tools --json",
    "SKILL_EXCEL_ENABLED=false satchel tools",
)
def tools(session: Session, as_json: bool) -> int:
    """The tools on stdout; what packaged skills say at start-up on stderr."""
    from satchel.tools.packaged import find_packaged

    satchel = session.satchel
    packaged = find_packaged() if satchel.settings.packaged else []
    names = {tool.name for one in packaged if one.skill is not None for tool in one.skill.tools}
    toolset = satchel.tools()
    owners = toolset.owners
    look = satchel.library.tools()
    records: list[dict[str, Any]] = []
    for told in toolset.definitions("mcp"):
        name = str(told["name"])
        mine = name in names
        source = look.tools.get(name) if not mine else None
        records.append(
            _record(told, owners.get(name, ""), source[0] if source else None, packaged=mine)
        )
    broken = _broken(look)
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
    session.out.table([say("tool"), say("owner"), say("may"), say("description")], rows, styles)
    err = session.err
    tell_packaged(session, packaged)
    if broken:
        words = say(
            "{count} skills are broken and bring no tools (`satchel doctor`)", count=len(broken)
        )
        one_only = say("1 skill is broken and brings no tools (`satchel doctor`)")
        err.line(one_only if len(broken) == 1 else words, "red")
    return 0


def tell_packaged(session: Session, packaged: Iterable[Packaged]) -> None:
    """One line for each packaged skill on stderr: whether it is on, and why not."""
    for one in packaged:
        mark = one.skill.mark if one.skill is not None else ""  # for a log, not for a terminal
        line = one_line(one.line.removeprefix(mark).lstrip())
        session.err.line(line, _STYLES.get(one.state, "red"))


def tell_packaged_at_start(session: Session) -> None:
    """The same for a person at a terminal, before a model is asked; no word of missing extras."""
    if session.err.is_terminal and session.satchel.settings.packaged:
        from satchel.tools.packaged import find_packaged

        tell_packaged(session, (one for one in find_packaged() if one.state != "missing"))


def _broken(look: ToolSnapshot) -> list[str]:
    """Folders whose skill.yaml cannot be used."""
    known = {one.skill.base_dir for one in (*look.skills, *look.hidden)}
    folders = [os.path.dirname(one.path) for one in look.problems if one.severity == "error"]
    return [folder for folder in dict.fromkeys(folders) if folder not in known]


def _record(
    told: dict[str, Any], owner: str, source: ToolSkill | None, *, packaged: bool
) -> dict[str, Any]:
    writes = not told["annotations"].get("readOnlyHint", False)
    may = ["writes" if writes else "reads"]
    if source is not None:
        # To a model nothing is promised for a program; here is what its sandbox lets it do.
        access = source.manifest.files.access
        writes = access == "write"
        may = ["runs", *({"read": ["reads"], "write": ["writes"]}.get(access, []))]
        if source.manifest.network:
            may.append("network")
    return {
        "name": str(told["name"]),
        "owner": owner or "satchel",
        "kind": "builtin" if not owner else "packaged" if packaged else "skill",
        "writes": writes,
        "may": may,
        "description": str(told["description"]),
    }
