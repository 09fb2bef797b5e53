"""Which tools does an agent get here, and whose are they? tools."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from satchel._language import say
from satchel.cli.output import one_line, write_json
from satchel.cli.session import command

if TYPE_CHECKING:
    from satchel.cli.session import Session

_STYLES = {"enabled": "green", "disabled": "dim", "missing": "yellow"}


@command(
    say("Show every tool that an agent gets here, and whose it is."),
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
    records = [
        _record(told, owners.get(str(told["name"]), ""), packaged=told["name"] in names)
        for told in toolset.definitions("mcp", catalogue=False)
    ]
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
        write_json({"tools": records, "packaged": found})
        return 0
    rows: list[list[str]] = []
    styles: list[list[str]] = []
    for record in records:
        rows.append([
            one_line(record["name"]),
            one_line(record["owner"]),
            say("writes") if record["writes"] else say("reads"),
            one_line(record["description"]),
        ])  # fmt: skip
        styles.append(["bold", "", "yellow" if record["writes"] else "dim", ""])
    session.out.table([say("tool"), say("owner"), "", say("description")], rows, styles)
    err = session.err
    for one in packaged:
        err.line(one_line(one.line), _STYLES.get(one.state, "red"))
    return 0


def _record(told: dict[str, Any], owner: str, *, packaged: bool) -> dict[str, Any]:
    return {
        "name": str(told["name"]),
        "owner": owner or "satchel",
        "kind": "builtin" if not owner else "packaged" if packaged else "skill",
        "writes": not told["annotations"].get("readOnlyHint", False),
        "description": str(told["description"]),
    }
