"""Cost of verifying a skill's digest before it is loaded.

    python benchmarks/sealing.py --out benchmarks/results/sealing.json

A load is a whole call of the tool `Skill`, through the toolset, with a look for changes. The same
skill is loaded where nothing is locked, and where only locked skills are used, in turns. `again`
has everything in memory; `text read` has to read SKILL.md, and knows the stamps of the folder;
`first` hashes and scans all files.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from measure import machine, table
from sampling import Figure, ratios

if TYPE_CHECKING:
    from collections.abc import Callable

    from satchel.library import Library
    from satchel.tools import Toolset

FILES = (1, 5, 20)
WAYS = ("unbound", "locked")
STATES = ("again", "text read", "first")
_cpu = time.process_time


class Bench:
    """One skill of so many files, bound in each way."""

    def __init__(self, folder: str, files: int) -> None:
        from satchel.library import Library, Location, TrustStore
        from satchel.library.lockfile import LockedSource, LockEntry, lock_path, render_lock
        from satchel.settings import load_settings
        from satchel.skill.file_tree import FolderTree, hash_tree

        self.settings = load_settings(folder, env={"SATCHEL_HOME": folder}, trace="memory")
        self.libraries: dict[str, Library] = {}
        for way in WAYS:
            place = os.path.join(folder, way, "skills")
            _write(os.path.join(place, "one"), files)
            book = TrustStore(os.path.join(folder, f"{way}.json"), locked=way == "locked")
            library = Library([Location(place, trusted=True)], trust=book)
            skill = library.list_skills(hidden=True)[0]
            if way == "locked":
                found = hash_tree(FolderTree(skill.base_dir))
                source = LockedSource("git", "https://example.org/skills", "main", "0" * 40)
                row = LockEntry("one", "one", source, "MIT", found.digest, found.files)
                with open(lock_path(place), "wb") as file:
                    file.write(render_lock({"one": row}))
            self.libraries[way] = library

    def tools(self, way: str, state: str) -> Toolset:
        """The tools as they are before a load of that kind."""
        from satchel.detect.pipeline import default_detector
        from satchel.library import Library
        from satchel.tools import make_toolset

        library = self.libraries[way]
        if state == "first":
            library = Library(library.locations, trust=library.trust)
            library.snapshot()
        made = make_toolset(
            library, self.settings, detector=lambda: default_detector(self.settings)
        )
        if state == "text read":
            skill = library.refresh().skills[0]
            library.integrity.check(skill)
        return made


def _write(folder: str, files: int) -> None:
    from satchel.testing import make_skill

    make_skill(os.path.dirname(folder), "one", body="Do this, and then that.\n" * 200)
    os.makedirs(os.path.join(folder, "references"), exist_ok=True)
    for number in range(files - 1):
        with open(os.path.join(folder, f"references/{number}.md"), "w", encoding="utf-8") as file:
            file.write(f"Line of file {number}.\n" * 150)


def measure(files: int, rounds: int) -> list[dict[str, float]]:
    """Microseconds of each way and state, and of the parts of a check, round by round."""
    folder = tempfile.mkdtemp(prefix="sealing-")
    try:
        bench = Bench(folder, files)
        time.sleep(0.2)  # files younger than 50 ms are read again
        ready = {way: bench.tools(way, "again") for way in WAYS}
        for tools in ready.values():
            _timed(tools)
        found: list[dict[str, float]] = []
        for _ in range(rounds):
            row: dict[str, float] = {}
            for state in STATES:
                for way in WAYS:
                    tools = ready[way] if state == "again" else bench.tools(way, state)
                    row[f"{way}, {state}"] = _timed(tools)
            found.append({**row, **_parts(bench.libraries["locked"])})
        return found
    finally:
        shutil.rmtree(folder)


def _timed(tools: Toolset) -> float:
    began = _cpu()
    reply = tools.call("Skill", {"name": "one"})
    spent = (_cpu() - began) * 1e6
    assert reply.status == "success", reply.text
    return spent


def _parts(library: Library) -> dict[str, float]:
    """The check alone, the pass over the folder that is part of it, and the listing it replaces."""
    from satchel.library.fingerprint import list_stamps
    from satchel.tools.skill_tool import list_folder

    skill = library.refresh().skills[0]
    base = skill.base_dir
    calls: dict[str, Callable[[], Any]] = {
        "check": lambda: library.integrity.check(skill),
        "pass over the folder": lambda: list_stamps(base),
        "listing": lambda: list_folder(list_stamps(base), "SKILL.md"),
    }
    spent: dict[str, float] = {}
    for name, call in calls.items():
        began = _cpu()
        call()
        spent[name] = (_cpu() - began) * 1e6
    return spent


def _shares(rows: list[dict[str, float]]) -> dict[str, float]:
    """The check against the load: within each round, then the median over the rounds."""
    again, text = "unbound, again", "unbound, text read"
    beyond = [{**row, "beyond": row["check"] - row["pass over the folder"]} for row in rows]
    return {
        "locked / unbound, again": ratios(rows, "locked, again", again).value,
        "locked / unbound, text read": ratios(rows, "locked, text read", text).value,
        "check beyond the pass / load, again": ratios(beyond, "beyond", again).value,
        "check / load, again": ratios(rows, "check", again).value,
    }


def main() -> None:
    """Measure, print a table, write the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=400)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    runs = {str(files): measure(files, given.rounds) for files in FILES}
    shares = {files: _shares(rows) for files, rows in runs.items()}
    sizes = {
        files: {name: Figure.of(row[name] for row in rows)._asdict() for name in rows[0]}
        for files, rows in runs.items()
    }
    rows = [["CPU µs, median", *(f"{files} files" for files in sizes)]]
    names = list(next(iter(sizes.values())))
    rows += [[name, *(f"{sizes[n][name]['value']:.0f}" for n in sizes)] for name in names]
    rows += [
        [name, *(f"{100 * shares[n][name]:.0f} %" for n in sizes)] for name in shares[str(FILES[0])]
    ]
    print(table(rows))
    result: dict[str, Any] = {"machine": machine(), "us": sizes, "shares": shares}
    if given.out:
        given.out.write_text(json.dumps(result, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
