"""Crash tests of the store: killed processes, disk errors, concurrent writers.

    python benchmarks/crashes.py --out benchmarks/results/crashes.json

The long form of `tests/chaos`: two thousand kills of the store at random moments; a kill and an
error at every system call that changes something, errors at the calls that only read, errors that
last; and 32 processes with 200 operations each while others read. Needs `strace`.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from measure import machine

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from chaos.crowd import gather
from chaos.faults import OPERATIONS, Bench
from chaos.killing import Server, kill_often

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from chaos.faults import Fault, Operation

BY_CALL: dict[str, Callable[[Bench, Operation], Iterator[Fault]]] = {
    "store_calls": lambda bench, op: bench.kills(op),
    "store_errors": lambda bench, op: bench.failures(op, 4, 16),
    "outages": lambda bench, op: bench.outages(op),
}
"""How operations are disturbed at each of their calls."""
PARTS = ("kills", *BY_CALL, "crowd")


def at_every_call(server: Server, folder: str, part: str) -> dict[str, Any]:
    """Disturb each operation at each of its calls."""
    faults = BY_CALL[part]
    bench = Bench(server, folder)
    rows: dict[str, Any] = {}
    for operation in OPERATIONS:
        ends: Counter[str] = Counter()
        harm: list[str] = []
        slowest = 0.0
        for fault in faults(bench, operation):
            found, ended, seconds = bench.disturb(operation, fault)
            ends[ended] += 1
            harm += found
            slowest = max(slowest, seconds)
        rows[operation.title] = {
            "faults": ends.total(),
            **ends,
            "slowest_recovery_ms": round(slowest * 1e3, 1),
            "harm": harm,
        }
        print(operation.title, rows[operation.title], flush=True)
    return rows


def run(part: str, server: Server, options: argparse.Namespace) -> Any:
    """One part of it, as a row of the result."""
    with tempfile.TemporaryDirectory(prefix="chaos-", dir=options.workdir) as folder:
        if part == "kills":
            return kill_often(server, folder, options.kills)._asdict()
        if part in BY_CALL:
            return at_every_call(server, folder, part)
        outcome = gather(folder, options.writers, options.operations, readers=4, limit=3_000)
        return outcome._asdict()


def main() -> int:
    """Run the parts that were asked for; 1 when something was harmed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--kills", type=int, default=2_000)
    parser.add_argument("--writers", type=int, default=32)
    parser.add_argument("--operations", type=int, default=200)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--workdir")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    result: dict[str, Any] = {}
    if options.out and options.out.exists():
        result = json.loads(options.out.read_text())
    result["machine"] = machine()
    harmed = 0
    with Server() as server:
        for part in options.parts:
            began = time.monotonic()
            row = run(part, server, options)
            rows = row.values() if part in BY_CALL else [row]
            harmed += sum(len(one["harm"]) for one in rows)
            result[part] = {"wall_s": round(time.monotonic() - began, 1), "result": row}
            print(part, json.dumps(result[part])[:600], flush=True)
            if options.out:
                options.out.write_text(json.dumps(result, indent=1) + "\n")
    return 1 if harmed else 0


if __name__ == "__main__":
    sys.exit(main())
