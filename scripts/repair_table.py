"""Prints how often each repair, warning and refusal occurs in real files.

Example:
    python scripts/repair_table.py
    python scripts/repair_table.py --corpus ../shared/corpus

Two sets are read. `raw-frontmatter` has frontmatter as authors wrote it and shows how often each
rule matches. `frontmatter-edge-cases` has headers of files selected because they are broken.
Neither has whole bodies, so the two rules about bodies are omitted.
"""

from __future__ import annotations

import base64
import json
import lzma
import os
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [os.path.join(ROOT, "src")]

if TYPE_CHECKING:
    from collections.abc import Iterator

SETS = {"as written": "raw-frontmatter.jsonl.xz", "picked": "frontmatter-edge-cases.jsonl.xz"}
BODY_RULES = frozenset(("body-empty", "body-long"))


class Tally(NamedTuple):
    """What was found in one set."""

    files: int
    loaded: int
    clean: int
    """Files that load and have nothing to be said about them."""
    seen: Counter[str]
    """Rule -> files that it speaks of."""
    lost: Counter[str]
    """Rule -> those of them that are not skills."""


def main(arguments: list[str]) -> int:
    """Print the table."""
    folder = os.path.join(os.path.dirname(ROOT), "shared", "corpus")
    if len(arguments) == 2 and arguments[0] == "--corpus":
        folder = arguments[1]
    elif arguments:
        print("usage: repair_table.py [--corpus DIR]", file=sys.stderr)
        return 2
    tallies = [count(os.path.join(folder, file)) for file in SETS.values()]
    print("\n".join(table(tallies)))
    return 0


def count(path: str) -> Tally:
    """Read every file of one set as the library would."""
    from satchel.skill.reader import parse_document
    from satchel.skill.validate import check_document

    files = loaded = clean = 0
    seen: Counter[str] = Counter()
    lost: Counter[str] = Counter()
    for row in rows(path):
        raw = str(row["raw"])
        data = raw.encode() if row.get("encoding", "utf-8") == "utf-8" else base64.b64decode(raw)
        document = parse_document(data, str(row["dir_name"]), "SKILL.md", (0, 0, 0))
        codes = {problem.code for problem in check_document(document)} - BODY_RULES
        files += 1
        seen.update(codes)
        if document.head is None:
            lost.update(codes)
        else:
            loaded += 1
            clean += not codes
    return Tally(files, loaded, clean, seen, lost)


def rows(path: str) -> Iterator[dict[str, Any]]:
    """The records of one compressed file."""
    with lzma.open(path, "rt", encoding="utf-8") as stream:
        for line in stream:
            yield json.loads(line)


def table(tallies: list[Tally]) -> Iterator[str]:
    """The table in Markdown: totals, then one line a rule, the frequent ones first."""
    from satchel.skill.problems import PROBLEMS

    heads = " | ".join(f"{name} | not loaded" for name in SETS)
    yield f"| Problem | Severity | {heads} |"
    yield "| --- | --- |" + " ---: |" * (2 * len(SETS))
    cells = " | ".join(f"**{each.files:,}** | {each.files - each.loaded:,}" for each in tallies)
    yield f"| *all files* | | {cells} |"
    yield f"| *nothing to say* | | {' | '.join(f'{each.clean:,} | 0' for each in tallies)} |"
    for severity in ("error", "warning", "note"):
        codes = [code for code, rule in PROBLEMS.items() if rule.severity == severity]
        codes = [code for code in codes if any(each.seen[code] for each in tallies)]
        for code in sorted(codes, key=lambda code: [-each.seen[code] for each in tallies]):
            cells = " | ".join(f"{each.seen[code]:,} | {each.lost[code]:,}" for each in tallies)
            yield f"| `{code}` | {severity} | {cells} |"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
