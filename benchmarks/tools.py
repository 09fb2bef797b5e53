"""Cost of a tool skill call compared with the bare program.

    python benchmarks/tools.py --out benchmarks/results/tools.json
    python benchmarks/tools.py --part whole --rounds 50     # also: cold, crowd

Every program is called in turns with its bare counterpart, so that a busy moment hits both:

    cold    under the sandbox, against `subprocess.run` of the same program
    warm    a kept worker, against a write and a read on the pipes of the same program, held the
            same way (and, to know it, against the same program without a sandbox: `outside`)
    whole   `Toolset.call`, with all its checks, against the runner alone
    crowd   200 calls of 20 skills at once, with and without one that hangs
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tool_crowd
import tool_tables
from measure import machine, table
from sampling import Figure, in_turns, ratios
from tool_programs import SOURCES, Source, write

if TYPE_CHECKING:
    from collections.abc import Callable

    from satchel.runners.base import Program, RunRequest, RunResult, Tier
    from satchel.settings import Settings

PARTS = ("cold", "whole", "crowd")
TOKEN = "token"
PLAIN = {"PATH": os.environ.get("PATH", ""), "LANG": "C.UTF-8"}
"""As little as the sandbox gives: some variables make Node read certificates at its start."""
LINE = b'{"arguments":{"token":"token"}}\n'
Measures = dict[str, "Callable[[], float]"]


class Bench:
    """The skills, built once, and a pool to run them."""

    def __init__(self, folder: str) -> None:
        from satchel.runners.pool import Pool
        from satchel.runners.runtimes import Runtimes
        from satchel.runners.tiers import choose_tier
        from satchel.settings import load_settings

        home = os.path.join(folder, "home")
        env = {"SATCHEL_HOME": home, "PATH": os.environ.get("PATH", "")}
        self.settings: Settings = load_settings(folder, env=env, trace="memory")
        self.tier: Tier = choose_tier(self.settings)
        self.runtimes = Runtimes(self.settings.paths.cache)
        self.place = os.path.join(folder, "skills")
        self.pool = Pool(tier=self.tier)

    def program(self, name: str, source: Source | None = None) -> Program:
        """A skill, written and built."""
        from satchel.skill.manifest_parser import load_manifest

        folder = os.path.join(self.place, name)
        if not os.path.exists(folder):
            write(self.place, name, source or SOURCES[name])
        manifest = load_manifest(folder).manifest
        assert manifest is not None
        return self.runtimes.prepare(folder, manifest)

    def request(self, name: str) -> RunRequest:
        """One call of a skill."""
        from satchel.runners.base import RunRequest

        return RunRequest(name, name, {"token": TOKEN}, self.program(name))

    def close(self) -> None:
        """End what is kept."""
        self.pool.close()


def _timed(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def _asked(run: Callable[[RunRequest], RunResult], request: RunRequest) -> Callable[[], float]:
    def call() -> None:
        result = run(request)
        assert result.output == f"结果 {TOKEN}", result

    return lambda: _timed(call)


def _bare(argv: tuple[str, ...]) -> Callable[[], float]:
    def call() -> None:
        done = subprocess.run(argv, input=LINE, capture_output=True, check=True, env=PLAIN)
        assert TOKEN.encode() in done.stdout

    return lambda: _timed(call)


def _isolated(program: Program) -> tuple[str, ...]:
    argv = program.argv
    return (argv[0], "-I", argv[-1]) if program.runtime == "python" else argv


def cold(bench: Bench) -> Measures:
    """Each runtime bare and under the sandbox."""
    found: Measures = {}
    for name in ("python", "node", "typescript", "go", "binary"):
        request = bench.request(name)
        found[f"{name} bare"] = _bare(_isolated(request.program))
        found[f"{name} cold"] = _asked(bench.pool.run, request)
    return found


def whole(bench: Bench) -> Measures:
    """The tool as an agent calls it, beside the runner alone."""
    from satchel.detect.pipeline import default_detector
    from satchel.library import Library, Location
    from satchel.tools import make_toolset
    from satchel.tools.program_runner import ProgramRunner

    names = ("python", "binary")
    requests = {name: bench.request(name) for name in names}
    library = Library([Location(bench.place, trusted=True)])
    tools = make_toolset(
        library,
        bench.settings,
        detector=lambda: default_detector(bench.settings),
        runner=ProgramRunner(bench.settings),
    )
    found: Measures = {}
    for name, request in requests.items():

        def call(tool: str = f"{name}_call") -> None:
            reply = tools.call(tool, {"token": TOKEN})
            assert reply.status == "success", reply.text

        found[f"{name} runner"] = _asked(bench.pool.run, request)
        found[f"{name} whole"] = lambda call=call: _timed(call)
    return found


def crowd(bench: Bench) -> dict[str, Any]:
    """200 calls at once, twice."""
    from tool_programs import PYTHON

    programs: dict[str, Program] = {}
    for number in range(18):
        source = Source("python", "main.py", {"main.py": PYTHON})
        programs[f"plain{number}"] = bench.program(f"plain{number}", source)
    for name, text in (("hangs", tool_crowd.HANG), ("crashes", tool_crowd.CRASH)):
        programs[name] = bench.program(name, Source("python", "main.py", {"main.py": text}))
    return {
        name: tool_crowd.run(programs, bench.tier, hung=hung)
        for name, hung in (("without", False), ("with", True))
    }


PAIRS = {"cold": "bare", "whole": "runner"}


def measured(part: str, bench: Bench, rounds: int) -> dict[str, Any]:
    """The figures of one part: milliseconds, and ratios within each round."""
    measures: Measures = {"cold": cold, "whole": whole}[part](bench)
    in_turns(measures, 3)  # builds, starts and caches are not what is asked
    rows = in_turns(measures, rounds)
    figures = {name: Figure.of(row[name] * 1000 for row in rows)._asdict() for name in measures}
    shares: dict[str, Any] = {}
    for name in measures:
        runtime, _, way = name.rpartition(" ")
        if way == part:
            base = f"{runtime} {PAIRS[part]}"
            shares[f"{name} / {PAIRS[part]}"] = ratios(rows, name, base)._asdict()
            more = Figure.of((row[name] - row[base]) * 1000 for row in rows)
            shares[f"{name} - {PAIRS[part]}"] = more._asdict()
    return {"ms": figures, "against": shares}


def main() -> None:
    """Measure, print tables, write the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--part", action="append", choices=PARTS)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="tools-")
    result: dict[str, Any] = {"machine": machine(), "rounds": options.rounds}
    bench = Bench(folder)
    try:
        result["tier"] = bench.tier
        for part in options.part or PARTS:
            if part == "crowd":
                result[part] = crowd(bench)
                print(table(tool_tables.tool_crowd(result)), end="\n\n")
            else:
                result[part] = measured(part, bench, options.rounds)
                print(table(tool_tables.part(result, part)), end="\n\n", flush=True)
    finally:
        bench.close()
        shutil.rmtree(folder, ignore_errors=True)
    print(table(tool_tables.tools(result)))
    if options.out:
        options.out.write_text(json.dumps(result, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
