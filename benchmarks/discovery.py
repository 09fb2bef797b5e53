"""Discovery time of Satchel, its peers and a lower bound, measured in turns.

    python benchmarks/discovery.py --count 10000 --out discovery.json
    python benchmarks/discovery.py --corpus raw --peers none

Each round measures everybody once, so that a busy minute of the machine hits all alike. Ratios
are taken within a round and the median of them is shown; digits of different runs do not compare.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import peers
from corpora import REAL, ensure, ensure_synthetic, raw, real
from measure import machine, python_contender, run_once, table

if TYPE_CHECKING:
    from corpora import Row
    from measure import Contender, Run

LIMIT = "python limit"
C_WALK = "C loader"
OURS = "satchel"
COMMAND = "openskills list"

REFERENCES = {
    "scandir + stat": "scandir_stat",
    LIMIT: "python_limit",
    "python limit, recursive": "python_limit_recursive",
    C_WALK: "c_loader",
    "C loader, recursive": "c_loader_recursive",
}

SLOW_ROUNDS = 3
"""Peers take seconds to minutes: three rounds place them well enough."""


def contenders(with_peers: str, workdir: Path) -> tuple[list[Contender], list[Contender]]:
    """Those measured in every round, and those measured in the first rounds only."""
    python = sys.executable
    fast = [
        python_contender(name, "", python, "yardsticks.py", function)
        for name, function in REFERENCES.items()
    ]
    fast.append(python_contender(OURS, "", python, "ours.py"))
    if with_peers == "none":
        return fast, []
    wanted = "" if with_peers == "all" else with_peers
    return fast, [peers.install(peer, workdir) for peer in peers.chosen(wanted)]


def corpus(kind: str, count: int, workdir: Path, source: Path) -> tuple[Path, list[Row]]:
    """The skills to find, written on first use."""
    out = workdir / "corpora" / f"{kind}-{count or 'all'}"
    if kind == "synthetic":
        return out, ensure_synthetic(out, count)
    writer = raw if kind == "raw" else real
    return out, ensure(out, lambda skills: writer(skills, count, source))


def ratio(runs: dict[str, list[Run]], name: str, base: str) -> float:
    """The median, over the rounds both finished, of CPU time against a yardstick's."""
    shares = [
        mine.cpu / theirs.cpu
        for mine, theirs in zip(runs[name], runs[base], strict=False)
        if mine.status == theirs.status == "ok" and theirs.cpu
    ]
    return statistics.median(shares) if shares else float("nan")


def goals(kind: str, runs: dict[str, list[Run]], rows: dict[str, dict[str, Any]]) -> list[str]:
    """Which promises were kept; a promise about a peer that did not run is left out."""
    if rows[OURS]["status"] != "ok":
        return [f"MISSED: {OURS} {rows[OURS]['status']}: {rows[OURS]['reason']}"]
    checks: list[tuple[str, float, float]] = []
    if kind == "synthetic":
        checks.append((f"{OURS} / {LIMIT}", ratio(runs, OURS, LIMIT), 1.5))
        correct = [
            name
            for name, row in rows.items()
            if name in {peer.name for peer in peers.PEERS if peer.manager == "pip"}
            and row.get("right") == row["total"]
        ]
        if correct:
            fastest = min(correct, key=lambda name: rows[name]["cpu"])
            checks.append((f"{OURS} / {fastest}", ratio(runs, OURS, fastest), 1 / 30))
        if rows.get(COMMAND, {}).get("status") == "ok":
            checks.append((f"{OURS} / {COMMAND}", ratio(runs, OURS, COMMAND), 1 / 3))
    else:
        checks.append((f"{OURS} / {C_WALK}", ratio(runs, OURS, C_WALK), 0.8))
    return [
        f"{'kept' if value <= goal else 'MISSED'}: {label} = {value:.3f} (goal {goal:.3f})"
        for label, value, goal in checks
    ]


def printed(rows: dict[str, dict[str, Any]], total: int) -> str:
    """The table people read."""
    lines = [["", "version", "CPU s", "x limit", "x C loader", "RSS + MB", "found", "right"]]
    for name, row in rows.items():
        if "cpu" not in row:
            lines.append([name, row["version"], row["status"], "", "", "", "", row["reason"][:60]])
            continue
        figures = [f"{row['cpu']:.4f}", f"{row['x_limit']:.2f}", f"{row['x_c_loader']:.2f}"]
        figures += [f"{row['rss_added_mb']:.1f}", str(row["found"]), str(row["right"])]
        lines.append([name, row["version"], *figures])
    return f"{table(lines)}\n\n{total} skills have a description to compare with"


def main() -> None:
    """Measure in turns, print, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--corpus", choices=["synthetic", "raw", "real"], default="synthetic")
    parser.add_argument("--count", type=int, default=0, help="0: 10,000, or all the real ones")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--peers", default="all", help="all, none, or names between commas")
    parser.add_argument("--timeout", type=float, default=300.0)
    parser.add_argument("--source", type=Path, default=REAL, help="folder of the real corpus")
    parser.add_argument("--workdir", type=Path, help="keeps environments and corpora for next time")
    parser.add_argument("--out", type=Path, help="JSON file for the figures, outside the checkout")
    parser.add_argument("--gate", action="store_true", help="exit with 1 when a goal is missed")
    options = parser.parse_args()
    workdir = Path(options.workdir or tempfile.mkdtemp(prefix="satchel-discovery-")).resolve()
    count = options.count or (10_000 if options.corpus == "synthetic" else 0)
    folder, truth = corpus(options.corpus, count, workdir, options.source)
    fast, slow = contenders(options.peers, workdir)
    runs: dict[str, list[Run]] = {item.name: [] for item in [*fast, *slow]}
    # One look at every file first: the page cache is warm for all or for none.
    run_once(fast[1], folder / "skills", truth, options.timeout)
    for number in range(max(options.rounds, SLOW_ROUNDS)):
        for item in fast if number >= SLOW_ROUNDS else [*fast, *slow]:
            runs[item.name].append(run_once(item, folder / "skills", truth, options.timeout))
    rows: dict[str, dict[str, Any]] = {}
    comparable = sum(row.description is not None for row in truth)
    for item in [*fast, *slow]:
        row = peers.summary(item, runs[item.name], comparable)
        row["x_limit"] = ratio(runs, item.name, LIMIT)
        row["x_c_loader"] = ratio(runs, item.name, C_WALK)
        rows[item.name] = row
    promises = goals(options.corpus, runs, rows)
    print(f"{len(truth)} {options.corpus} skills, medians of {options.rounds} rounds in turns\n")
    print(printed(rows, comparable), *promises, sep="\n")
    if options.out:
        result = {"machine": machine(), "corpus": options.corpus, "count": len(truth)}
        options.out.write_text(
            json.dumps({**result, "rows": list(rows.values()), "goals": promises}, indent=1),
            "utf-8",
        )
    if options.gate and any(line.startswith("MISSED") for line in promises):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
