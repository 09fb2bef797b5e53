"""How would a model write the weekly report? A script for `ModelServer` that can count.

Run as a program it serves this model until it is interrupted:

    python tests/weekly_model.py
"""

from __future__ import annotations

import re
import sys
import threading
from typing import TYPE_CHECKING

from model_server import ModelServer, Reply

if TYPE_CHECKING:
    from model_server import Request


def answer(request: Request) -> Reply:
    """What the skill in the system context asks for."""
    given = request.messages[0].text
    if "# Trends" in request.system:
        return Reply(_trends(given))
    if "# Outliers" in request.system:
        return Reply(_outliers(given))
    if "# What customers say" in request.system:
        return Reply(_voices(given))
    assert "# Weekly report" in request.system, request.system
    return Reply(_report(given))


def _rows(text: str) -> dict[str, dict[str, list[int]]]:
    found: dict[str, dict[str, list[int]]] = {}
    for week, day, *values in re.findall(r"^(\d+),(\w+),(\d+),(\d+),(\d+)$", text, re.MULTILINE):
        found.setdefault(week, {})[day] = [int(value) for value in values]
    return found


def _trends(text: str) -> str:
    before, now = (_rows(text)[week] for week in sorted(_rows(text)))
    lines: list[str] = []
    for at, name in enumerate(("Visits", "Orders", "Refunds")):
        old, new = (sum(row[at] for row in week.values()) for week in (before, now))
        change = 100 * (new - old) / old
        lines.append(f"{name} {change:+.1f} %, from {old:,} to {new:,}")
    return "\n".join(lines)


def _outliers(text: str) -> str:
    before, now = (_rows(text)[week] for week in sorted(_rows(text)))
    lines: list[str] = []
    for at, name in enumerate(("visits", "orders", "refunds")):
        for day, values in now.items():
            usual = before[day][at]
            if usual > 2 and abs(values[at] - usual) > max(0.3 * usual, 5):
                lines.append(f"{day}: {values[at]} {name}, usual are {usual}")
    return "\n".join(lines)


def _voices(text: str) -> str:
    tickets = re.findall(r"^46,(\d+),(.*)$", text, re.MULTILINE)
    tickets = [(number, words) for number, words in tickets if number != "Mon" and " " in words]
    wednesday = [number for number, words in tickets if "Wednesday" in words]
    first = f"Orders of Wednesday: {len(wednesday)} tickets (#{wednesday[0]})"
    return f"{first}\nBank transfer: 1 ticket, again"


def _report(text: str) -> str:
    said = re.findall(r"The reviewer said: (.*)", text)[0]
    trends = re.findall(r"^Visits.*$", text, re.MULTILINE)[0]
    odd = re.findall(r"^Wed: .*$", text, re.MULTILINE)[0]
    if said == "approved":
        said = "A day without checkout cost us orders"
    return (
        f"# Week 46\n\n{said}.\n\n"
        f"## Numbers\n\n- {trends}\n\n## Unusual\n\n- {odd}\n\n## Customers\n\n"
        "- 3 tickets about orders of Wednesday\n\nTo do: find out why checkout stood still."
    )


def serve() -> int:
    """Serve the model until Ctrl-C; prints what to export."""
    with ModelServer(answer) as server:
        for name, value in server.environment().items():
            sys.stdout.write(f"export {name}={value}\n")
        sys.stdout.write("export SATCHEL_MODEL=anthropic:claude-sonnet-5\n")
        sys.stdout.flush()
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            return 0
    return 0


if __name__ == "__main__":
    sys.exit(serve())
