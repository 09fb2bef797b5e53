"""One line of JSON in, one out: a report becomes a file, once for each key."""

import json
import os
import re
import sys

MAX_TEXT_CHARS = 100_000


def run(arguments: dict[str, object], key: str) -> dict[str, str]:
    """The path of the report, or what is wrong."""
    name, text = arguments.get("name"), arguments.get("text")
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9-]{1,60}", name):
        error = f"No usable name: {name} — letters, digits and `-`, at most 60"
        return {"output": "", "error": error}
    if not isinstance(text, str) or not 0 < len(text.strip()) <= MAX_TEXT_CHARS:
        return {"output": "", "error": f"No usable text: text — 1 to {MAX_TEXT_CHARS:,} characters"}
    path = os.path.join("reports", f"{name}.md")
    note = f"<!-- {key} -->" if key else ""
    os.makedirs("reports", exist_ok=True)
    if note and os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            if file.read().endswith(f"{note}\n"):
                return {"output": path, "error": ""}  # this very step wrote it already
    whole = text.rstrip() + "\n" + (f"\n{note}\n" if note else "")
    with open(f"{path}.new", "w", encoding="utf-8") as file:
        file.write(whole)
    os.replace(f"{path}.new", path)
    return {"output": path, "error": ""}


if __name__ == "__main__":
    try:
        request = json.loads(sys.stdin.readline())
        reply = run(request.get("arguments", {}), request.get("key", ""))
    except Exception:  # noqa: BLE001 - whatever it is, an answer is due
        reply = {"output": "", "error": "The request cannot be read: stdin — send one line of JSON"}
    print(json.dumps(reply, ensure_ascii=False))
