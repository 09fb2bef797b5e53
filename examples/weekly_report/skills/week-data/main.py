"""One line of JSON in, one out: the rows of a week and of the week before."""

import csv
import json
import os
import sys

MAX_ROWS = 500


def run(arguments: dict[str, object]) -> dict[str, str]:
    """The rows as text, or what is wrong."""
    week = arguments.get("week")
    if not isinstance(week, int) or not 1 <= week <= 53:
        return {"output": "", "error": f"There is no such week: {week} — give 1 to 53"}
    parts = []
    for name in ("numbers", "tickets"):
        path = os.path.join("data", f"{name}.csv")
        if not os.path.exists(path):
            return {"output": "", "error": f"There is no such file: {path} — put it there"}
        with open(path, encoding="utf-8", newline="") as file:
            head, *rows = list(csv.reader(file))
        kept = [row for row in rows if row and row[0] in {str(week), str(week - 1)}][:MAX_ROWS]
        if not any(row[0] == str(week) for row in kept):
            return {"output": "", "error": f"No rows of week {week}: {path} — add them"}
        parts.append("\n".join([f"# {name}", ",".join(head), *map(",".join, kept)]))
    return {"output": "\n\n".join(parts), "error": ""}


if __name__ == "__main__":
    try:
        reply = run(json.loads(sys.stdin.readline()).get("arguments", {}))
    except Exception:  # noqa: BLE001 - whatever it is, an answer is due
        reply = {"output": "", "error": "The request cannot be read: stdin — send one line of JSON"}
    print(json.dumps(reply, ensure_ascii=False))
