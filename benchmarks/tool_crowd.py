"""Behaviour of 200 concurrent calls of 20 skills, with and without one that hangs.

Each answer carries its caller's token, so that a mixed-up one is seen. Processes are counted from
outside while the calls run: everything below the launcher.
"""

from __future__ import annotations

import os
import statistics
import threading
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from satchel.runners.base import Program, RunRequest, RunResult, Tier

CALLS = 200
HANG = "import time\ntime.sleep(600)\n"
CRASH = "import os\nos.abort()\n"


def run(programs: dict[str, Program], tier: Tier, *, hung: bool) -> dict[str, Any]:
    """Call everything at once; what came of it.

    Args:
        programs: healthy ones, one that hangs and one that crashes.
        tier: how they are held.
        hung: whether the one that hangs takes part. The others are called as often either way.
    """
    from satchel.runners.base import ProgramLimits, RunRequest
    from satchel.runners.pool import Pool

    pool = Pool(tier=tier)
    names = list(programs)
    requests: list[RunRequest] = []
    for number in range(CALLS):
        name = names[number % len(names)]
        if name == "hangs" and not hung:
            continue
        program = programs[name]
        timeout = 3.0 if name == "hangs" else 60.0
        token = {"token": f"{name}-{number}"}
        limits = ProgramLimits(timeout=timeout)
        requests.append(RunRequest(name, name, token, program, limits=limits))
    try:
        return _called(pool.run, requests, pool.slots)
    finally:
        pool.close()


def _called(call: Any, requests: list[RunRequest], slots: int) -> dict[str, Any]:
    from satchel.runners import _process_tree

    results: dict[int, RunResult] = {}
    took: dict[int, float] = {}
    gate = threading.Barrier(len(requests) + 1)
    done = threading.Event()
    most = 0

    def one(number: int) -> None:
        gate.wait()
        began = time.perf_counter()
        results[number] = call(requests[number])
        took[number] = time.perf_counter() - began

    def count() -> None:
        nonlocal most
        while not done.wait(0.02):
            most = max(most, len(_process_tree.descendants(_launcher())))

    threads = [threading.Thread(target=one, args=(number,)) for number in range(len(requests))]
    counter = threading.Thread(target=count)
    for thread in (*threads, counter):
        thread.start()
    gate.wait()
    began = time.perf_counter()
    for thread in threads:
        thread.join()
    whole = time.perf_counter() - began
    done.set()
    counter.join()
    good = {n: r for n, r in enumerate(requests) if r.skill not in {"hangs", "crashes"}}
    wrong = sum(results[n].output != f"结果 {r.arguments['token']}" for n, r in good.items())
    waits = sorted(took[n] for n in good)
    firsts: dict[str, float] = {}
    for number in good:
        skill = requests[number].skill
        firsts[skill] = min(firsts.get(skill, 1e9), took[number])
    return {
        "calls": len(requests),
        "slots": slots,
        "skills": len({request.skill for request in requests}),
        "wrong": wrong,
        "median_ms": statistics.median(waits) * 1000,
        "p95_ms": waits[int(0.95 * len(waits))] * 1000,
        "slowest_first_answer_ms": max(firsts.values()) * 1000,
        "whole_ms": whole * 1000,
        "most_processes": most,
        "hung": sum(result.fault == "timeout" for result in results.values()),
        "crashed": sum(result.fault == "crashed" for result in results.values()),
    }


def _launcher() -> int:
    from satchel.runners.launcher import launcher

    return int(getattr(launcher(), "pid", 0)) or os.getpid()
