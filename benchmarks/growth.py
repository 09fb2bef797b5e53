"""Growth of the cost of each command with the number of skills.

    python benchmarks/growth.py --workdir DIR --out growth.json

The same questions at 10, 100, 1,000, 10,000 and 100,000 skills: the first look, the first look of
the next process, another look, memory, the catalogue, a search, one skill by name.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
from pathlib import Path
from typing import Any

from corpora import ensure_synthetic
from measure import machine, table
from sampling import Figure, probe

SIZES = (10, 100, 1_000, 10_000, 100_000)
NOUNS = {
    "cold": ("first look", "ms"),
    "warm": ("first look of the next process", "ms"),
    "refresh": ("another look, nothing changed", "ms"),
    "floor": ("scandir + stat", "ms"),
    "memory": ("memory per skill", "B"),
    "catalogue": ("catalogue of 12,000 characters", "ms"),
    "search": ("search, four words", "ms"),
    "search first": ("search, the first after a look", "ms"),
    "load": ("load by name, first time", "µs"),
    "load cached": ("load by name, again", "µs"),
    "load refreshed": ("load by name, with a look for changes", "µs"),
}
"""Key -> what it is called, and its unit."""


def measure(count: int, workdir: Path, rounds: int) -> dict[str, Figure]:
    """Every figure at one size."""
    out = workdir / "corpora" / f"synthetic-{count}"
    ensure_synthetic(out, count)
    root = str(out / "skills")
    runs: dict[str, list[float]] = {key: [] for key in NOUNS}
    with tempfile.TemporaryDirectory(prefix="cache-", dir=workdir) as cache:
        probe("start", root=root, cache=cache)
        for turn in range(rounds):
            cold = probe("cold", root=root, runners=["satchel"], turn=turn)
            runs["cold"].append(cold["satchel"] * 1e3)
            runs["warm"].append(probe("start", root=root, cache=cache)["cpu"] * 1e3)
            look = probe("refresh", root=root, rounds=5)
            runs["refresh"] += [value * 1e3 for value in look["satchel"]]
            runs["floor"] += [value * 1e3 for value in look["scandir + stat"]]
            runs["memory"].append(probe("memory", root=root, traced=True)["bytes"])
            block = probe("catalogue", root=root, sizes=[count], budget=12_000, rounds=5)
            runs["catalogue"].append(block[str(count)]["known"] * 1e3)
            search = probe("search", root=root, queries=20)
            runs["search"].append(search["later"] * 1e3)
            runs["search first"].append(search["first"] * 1e3)
            load = probe("load", root=root, names=100)
            runs["load"].append(load["call, first"])
            runs["load cached"].append(load["call, cached"])
            runs["load refreshed"].append(load["call, refreshed"])
    return {key: Figure.of(values) for key, values in runs.items()}


def exponent(found: dict[int, dict[str, Figure]], key: str) -> float:
    """The power of N by which a figure grows between the two largest sizes; 1 is linear."""
    sizes = sorted(found)[-2:]
    if len(sizes) < 2:
        return float("nan")
    small, large = (found[size][key].value for size in sizes)
    return math.log(large / small) / math.log(sizes[1] / sizes[0]) if small > 0 < large else 0.0


def printed(found: dict[int, dict[str, Figure]]) -> str:
    """The table people read."""
    sizes = sorted(found)
    lines = [["", "unit", *(f"{size:,}" for size in sizes), "grows as"]]
    for key, (label, unit) in NOUNS.items():
        values = [found[size][key].value for size in sizes]
        cells = [f"{value:,.0f}" if value >= 100 else f"{value:.2g}" for value in values]
        lines.append([label, unit, *cells, f"N^{exponent(found, key):.1f}"])
    return table(lines)


def main() -> None:
    """Measure size by size, print, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--sizes", type=int, nargs="*", default=list(SIZES))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workdir", type=Path, help="keeps the corpora for next time")
    parser.add_argument("--out", type=Path, help="JSON file for the figures")
    options = parser.parse_args()
    workdir = Path(options.workdir or tempfile.mkdtemp(prefix="satchel-growth-")).resolve()
    workdir.mkdir(parents=True, exist_ok=True)
    found = {size: measure(size, workdir, options.rounds) for size in options.sizes}
    print(printed(found))
    if options.out:
        result: dict[str, Any] = {"machine": machine(), "rounds": options.rounds, "sizes": {}}
        for size, figures in found.items():
            result["sizes"][str(size)] = {key: item._asdict() for key, item in figures.items()}
        options.out.write_text(json.dumps(result, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
