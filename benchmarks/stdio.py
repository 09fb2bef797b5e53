"""Resource leaks and start cost over ten thousand program starts.

    python benchmarks/stdio.py --calls 10000

A small C program answers, fails, crashes, or leaves a daemon behind, in turn; before and after,
descriptors of the host and of its launcher are counted, and processes below it. Then single calls
are timed: bare (`subprocess`), through the launcher, and with the whole exchange. Takes about a
minute. Needs a C compiler.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from measure import machine

from runners.leftovers import below
from runners.once import run_once
from satchel.runners.base import Launch, Program, ProgramLimits, RunRequest
from satchel.runners.launcher import Launcher

SOURCE = Path(__file__).resolve().parent.parent / "tests" / "runners" / "faulty" / "program.c"
GOOD = b'{"output": "fine", "error": ""}\n'.hex()
KINDS: dict[str, tuple[str, ...]] = {
    "answers": ("read", f"out:{GOOD}:1"),
    "answers, reads nothing": (f"out:{GOOD}:1",),
    "silent": ("read",),
    "exit status": ("read", "exit:3"),
    "crash": ("read", "kill:11"),
    "half a line": ("read", "out:7b22:1"),
    "not JSON": ("read", "out:7b220a:1"),
    "two replies": ("read", f"out:{GOOD}:2"),
    "leaves a daemon": ("daemon", "read", f"out:{GOOD}:1"),
    "cannot start": (),
}


def held(launcher: Launcher) -> dict[str, int]:
    """What the host and its launcher hold now."""
    family = below(launcher.pid)
    return {
        "host_descriptors": len(os.listdir("/proc/self/fd")),
        "launcher_descriptors": len(os.listdir(f"/proc/{launcher.pid}/fd")),
        "processes": len(family),
        "zombies": list(family.values()).count("Z"),
        "host_kb": resident(os.getpid()),
        "launcher_kb": resident(launcher.pid),
    }


def resident(pid: int) -> int:
    """Memory of a process in kB."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4


def leak(program: str, calls: int) -> dict[str, Any]:
    """Make many calls of all kinds, and compare before with after."""
    launcher = Launcher()
    limits = ProgramLimits(timeout=10)
    faults: Counter[str] = Counter()
    slowest = 0.0

    def call(name: str) -> None:
        nonlocal slowest
        argv = (program, *KINDS[name]) if KINDS[name] else (f"{program}-missing",)
        request = RunRequest("stdio", name, {}, Program(argv, "/", "binary"), limits=limits)
        began = time.monotonic()
        result = run_once(launcher, Launch(argv, (), "/", limits=limits), request)
        faults[f"{name}: {result.fault or 'answer'}"] += 1
        slowest = max(slowest, (time.monotonic() - began) * 1000)

    for name in KINDS:
        call(name)
    time.sleep(0.5)
    before = held(launcher)
    began = time.monotonic()
    for number in range(calls):
        call(list(KINDS)[number % len(KINDS)])
    seconds = time.monotonic() - began
    time.sleep(5)  # minders that are not needed any more go by themselves
    after = held(launcher)
    launcher.close()
    return {
        "calls": calls,
        "seconds": round(seconds, 1),
        "slowest_ms": round(slowest, 1),
        "before": before,
        "after": after,
        "faults": dict(faults),
    }


def cost(program: str, rounds: int) -> dict[str, float]:
    """Median milliseconds of one call, three ways, taken in turn."""
    launcher = Launcher()
    limits = ProgramLimits(timeout=10)
    argv = (program, *KINDS["answers"])
    launch = Launch(argv, (), "/", limits=limits)
    request = RunRequest("stdio", "cost", {}, Program(argv, "/", "binary"), limits=limits)
    times: dict[str, list[float]] = {"bare": [], "launcher": [], "exchange": []}
    began = time.perf_counter()
    run_once(launcher, launch, request)
    first = (time.perf_counter() - began) * 1000
    for _ in range(rounds):
        began = time.perf_counter()
        subprocess.run(argv, input=b'{"arguments":{}}\n', capture_output=True, check=True)
        times["bare"].append(time.perf_counter() - began)
        began = time.perf_counter()
        process = launcher.start(launch)
        os.close(process.stdin)
        process.stdin = -1
        process.wait(5)
        process.close()
        times["launcher"].append(time.perf_counter() - began)
        began = time.perf_counter()
        run_once(launcher, launch, request)
        times["exchange"].append(time.perf_counter() - began)
    launcher.close()
    medians = {f"{name}_ms": round(median(each) * 1000, 2) for name, each in times.items()}
    return {"first_call_ms": round(first, 1), **medians}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        program = str(Path(folder) / "program")
        subprocess.run(["cc", "-O1", "-o", program, str(SOURCE)], check=True)
        found = {
            "machine": machine(),
            "cost": cost(program, options.rounds),
            "leak": leak(program, options.calls),
        }
    text = json.dumps(found, indent=2) + "\n"
    if options.out:
        options.out.write_text(text)
    print(text, end="")


if __name__ == "__main__":
    main()
