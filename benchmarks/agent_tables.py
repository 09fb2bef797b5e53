"""Documentation tables of the agent figures."""

from __future__ import annotations

from typing import Any

Rows = list[list[str]]


def prompt_cache(kept: dict[str, Any]) -> Rows:
    """Thirty turns: what a provider could serve from its cache."""
    rows = [
        ["", "prefix kept", "Anthropic", "OpenAI", "at best", "input tokens", "paid as"]
    ]  # fmt: skip
    first, second = kept["agents"]["anthropic"], kept["agents"]["openai"]
    for name, row in first.items():
        if "rebuild" in name:  # a setting of 0.1
            continue
        shown = f"**{name}**" if name == "satchel" else name
        rows.append(
            [
                shown,
                f"{row['keeps']} of {row['requests'] - 1}",
                f"{row['share']:.1%}",
                f"{second[name]['share']:.1%}",
                f"{row['best share']:.1%}",
                f"{row['input tokens']:,}",
                f"{row['paid tokens']:,}",
            ]
        )
    return rows
