"""Cost of calls that may write: the overlay, the list of changes, applying.

    python benchmarks/overlay.py --out benchmarks/results/overlay.json
    python benchmarks/overlay.py --rounds 50 --files 1000

A program works for 10 ms. In each round it runs once in every way, so that a busy moment hits all:

    bare        `subprocess.run` of bubblewrap with the workspace mounted for writing
    read        the runner, with a workspace that may be read
    overlay     the runner, with an overlay; the program changes nothing
    changed     the same; the program changes one file, and the proposal is discarded
    call        the tool as an agent calls it, which changes nothing
    call writes the same, which changes one file: it is compared, applied and synced to disk
    script      `RunScript` as an agent calls it, which changes nothing
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from measure import machine, table
from sampling import Figure, in_turns, ratios

if TYPE_CHECKING:
    from collections.abc import Callable

    from satchel.runners.base import RunResult, Tier

MANIFEST = """name: demo_call
description: Work for ten milliseconds, for measuring.
runtime: {runtime}
entry: {entry}
files: write
parameters:
  - name: write
    type: boolean
    required: true
    description: Whether a file is changed. Example - true
"""
C = r"""#include <stdio.h>
#include <string.h>
#include <time.h>

int main(void) {
    static char line[65536];
    struct timespec begun, now;
    clock_gettime(CLOCK_MONOTONIC, &begun);
    fgets(line, sizeof line, stdin);
    do clock_gettime(CLOCK_MONOTONIC, &now);
    while ((now.tv_sec - begun.tv_sec) * 1000000000L + now.tv_nsec - begun.tv_nsec < 10000000L);
    if (strstr(line, "true")) {
        FILE *file = fopen("changed.txt", "w");
        fprintf(file, "%ld\n", now.tv_nsec);
        fclose(file);
    }
    printf("{\"output\": \"done\", \"error\": \"\"}\n");
    return 0;
}
"""
PYTHON = """import json, sys, time
line = sys.stdin.readline()
end = time.monotonic() + 0.01
while time.monotonic() < end:
    pass
if line and json.loads(line)["arguments"]["write"]:
    with open("changed.txt", "w") as file:
        file.write(f"{end}\\n")
print(json.dumps({"output": "done", "error": ""}))
"""
SKILL = (
    "---\nname: script\ndescription: Work for ten milliseconds. For measuring.\n---\n\nRun it.\n"
)
LINE = b'{"arguments":{"write":false}}\n'


def write_skills(project: str) -> dict[str, str]:
    """Write the skills; gives their folders by runtime."""
    folders: dict[str, str] = {}
    for runtime, entry, text in (("binary", "skill", C), ("python", "main.py", PYTHON)):
        folder = folders[runtime] = os.path.join(project, ".agents/skills", f"demo-{runtime}")
        os.makedirs(folder)
        manifest = MANIFEST.format(runtime=runtime, entry=entry)
        manifest = manifest.replace("demo_call", f"demo_{runtime}_call")
        Path(folder, "skill.yaml").write_text(manifest, "utf-8")
        source = Path(folder, "skill.c" if runtime == "binary" else entry)
        source.write_text(text, "utf-8")
        if runtime == "binary":
            subprocess.run(["cc", "-O2", "-o", os.path.join(folder, entry), source], check=True)
    script = Path(project, ".agents/skills/script")
    (script / "scripts").mkdir(parents=True)
    (script / "SKILL.md").write_text(SKILL, "utf-8")
    (script / "scripts/work.py").write_text(PYTHON, "utf-8")
    return folders


def fill(project: str, count: int) -> None:
    """Write files to a workspace, 100 to a folder."""
    for number in range(count):
        folder = os.path.join(project, "data", str(number // 100))
        if number % 100 == 0:
            os.makedirs(folder)
        with open(os.path.join(folder, f"{number}.txt"), "w", encoding="utf-8") as file:
            file.write(f"{number}\n")
    Path(project, "changed.txt").write_text("old\n", "utf-8")


def timed(call: Callable[[], object]) -> float:
    """Seconds of a call."""
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


class Bench:
    """A project with skills and files, in one tier."""

    def __init__(self, folder: str, tier: Tier, count: int) -> None:
        from satchel import Satchel
        from satchel.runners.pool import Pool
        from satchel.runners.runtimes import Runtimes
        from satchel.runners.tiers import choose_tier
        from satchel.settings import load_settings

        self.project = os.path.join(folder, f"{tier}-{count}")
        self.folders = write_skills(self.project)
        fill(self.project, count)
        settings = load_settings(self.project)
        self.runtimes = Runtimes(settings.paths.cache)
        self.pool = Pool(settings, tier=tier)
        self.is_default = tier == choose_tier(settings)
        """Whether the calls of a session run in this tier."""
        self.session = Satchel.for_project(self.project, trust="all").session(approve=True)

    def measures(self) -> dict[str, Callable[[], float]]:
        """Every way for every program."""
        from satchel.runners.base import ProgramPermissions, RunRequest
        from satchel.skill.manifest_parser import load_manifest

        measures: dict[str, Callable[[], float]] = {}
        for runtime, folder in self.folders.items():
            manifest = load_manifest(folder).manifest
            assert manifest is not None
            program = self.runtimes.prepare(folder, manifest)
            for name, writable, writes in (
                ("read", False, False), ("overlay", True, False), ("changed", True, True),
            ):  # fmt: skip
                request = RunRequest(
                    runtime, "call", {"write": writes}, program,
                    ProgramPermissions(self.project, writable=writable),
                )  # fmt: skip
                measures[f"{runtime} {name}"] = partial(timed, partial(self._run, request, writes))
            bare = (
                "bwrap", "--unshare-all", "--die-with-parent", "--ro-bind", "/", "/",
                "--dev", "/dev", "--proc", "/proc", "--bind", self.project, self.project,
                "--chdir", self.project, "--", *program.argv,
            )  # fmt: skip
            run = partial(subprocess.run, bare, input=LINE, capture_output=True, check=True, env={})
            measures[f"{runtime} bare"] = partial(timed, run)
            for name, writes in (("call", False), ("call writes", True)) * self.is_default:
                call = partial(self._call, f"demo_{runtime}_call", write=writes)
                measures[f"{runtime} {name}"] = partial(timed, call)
        if self.is_default and "RunScript" in self.session.tool_names:
            self._call("Skill", name="script")
            arguments = {"skill": "script", "script": "scripts/work.py"}
            call = partial(self._call, "RunScript", **arguments)
            measures["python script"] = partial(timed, call)
        return measures

    def _run(self, request: Any, writes: bool) -> RunResult:  # noqa: FBT001
        result = self.pool.run(request)
        assert result.fault is None, (result.detail, result.stderr)
        if result.changes is not None:
            assert len(result.changes.changes) == writes
            result.changes.discard()
        return result

    def _call(self, tool: str, **arguments: Any) -> None:
        reply = self.session.call(tool, arguments)
        assert reply.status == "success", reply.text
        changes: list[Any] = (reply.data or {}).get("changes", [])
        assert len(changes) == bool(arguments.get("write")), reply.text


def against(rows: list[dict[str, float]], name: str, base: str) -> dict[str, Any]:
    """The ratio and the difference in milliseconds of two ways, within each round."""
    return {
        "ratio": ratios(rows, name, base)._asdict(),
        "more_ms": Figure.of((row[name] - row[base]) * 1000 for row in rows)._asdict(),
        "over_ms": Figure.of((row[name] - 1.25 * row[base]) * 1000 for row in rows)._asdict(),
    }


def measure(bench: Bench, rounds: int) -> dict[str, Any]:
    """Milliseconds of every way, and each against what it is compared with."""
    measures = bench.measures()
    in_turns(measures, 3)  # starts and caches
    rows = in_turns(measures, rounds)
    compared: dict[str, Any] = {}
    for name in measures:
        runtime, _, way = name.partition(" ")
        base = {"overlay": "read", "changed": "overlay"}.get(way, "bare")
        if way not in ("bare", "read"):
            compared[f"{name} / {base}"] = against(rows, name, f"{runtime} {base}")
    figures = {name: Figure.of(row[name] * 1000 for row in rows)._asdict() for name in measures}
    return {"ms": figures, "against": compared}


def rows_of(result: dict[str, Any]) -> list[list[str]]:
    """The comparisons as a table."""
    rows = [["way", "tier", "files", "ms (fastest–slowest)", "ratio", "more ms", "over 1.25 × ms"]]
    for part in result["parts"]:
        for name, row in part["against"].items():
            ms = part["ms"][name.partition(" / ")[0]]
            rows.append([
                name, part["tier"], f"{part['files']:,}",
                f"{ms['value']:.1f} ({ms['low']:.1f}–{ms['high']:.1f})",
                *(f"{row[key]['value']:.2f}" for key in ("ratio", "more_ms", "over_ms")),
            ])  # fmt: skip
    return rows


def main() -> None:
    """Measure, print a table, write the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--files", type=int, action="append")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="overlay-")
    os.environ["SATCHEL_HOME"] = os.path.join(folder, "home")
    result: dict[str, Any] = {"machine": machine(), "rounds": options.rounds, "parts": []}
    try:
        for count in options.files or (10, 100_000):
            for tier in ("bwrap", "landlock"):
                part = measure(Bench(folder, tier, count), options.rounds)
                result["parts"].append({"tier": tier, "files": count, **part})
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(table(rows_of(result)))
    if options.out:
        options.out.write_text(json.dumps(result, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
