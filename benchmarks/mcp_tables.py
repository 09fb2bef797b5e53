"""Documentation tables of the MCP server figures."""

from __future__ import annotations

from typing import Any

Rows = list[list[str]]


def mcp_conformance(kept: dict[str, Any]) -> Rows:
    """What the official checks say of each server."""
    rows = [["", "enumeration", "manifest", "directory"]]
    for name, scenarios in kept["servers"].items():
        shown = f"**{name}**" if name == "satchel" else name
        rows.append([shown, *(_states(states) for states in scenarios.values())])
    return rows


def _states(states: dict[str, int]) -> str:
    total = sum(states.values())
    said = [f"{states.get('success', 0)} of {total}"]
    for state, word in (("failure", "failed"), ("warning", "warned"), ("skipped", "skipped")):
        if states.get(state):
            said.append(f"{states[state]} {word}")
    return ", ".join(said)


def mcp_server(kept: dict[str, Any]) -> Rows:
    """How long requests take among many skills."""
    rows = [["", "p50", "p99"]]
    names = {
        "bare read": "bare read",
        "resources/read": "`resources/read`",
        "skills/get": "`skills/get`",
        "skills/get, first": "`skills/get`, first",
        "skills/list": f"`skills/list`, a page of {kept['page']}",
        "skills/list, first": f"`skills/list`, a page of {kept['page']}, first",
        "resources/list": f"`resources/list`, a page of {kept['page']}",
    }
    for name, shown in names.items():
        row = kept["ms"][name]
        rows.append([shown, f"{row['p50']:.1f}", f"{row['p99']:.1f}"])
    told = kept["notification ms"]
    rows.append(["a change on disk is told after", f"{told['p50']:.0f}", f"{told['p99']:.0f}"])
    return rows
