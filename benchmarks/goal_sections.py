"""Measurements of the speed goals, one function per row."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import broken
import discovery
import startup
from corpora import ensure, ensure_synthetic, with_broken
from goal_rows import Row, missing, most, shown
from measure import run_once
from sampling import Figure, probe, ratios

if TYPE_CHECKING:
    from collections.abc import Callable

    from goal_rows import Plan


def cold(plan: Plan) -> list[Row]:
    """Discovery from nothing, against the floor written in Python."""
    rows: list[Row] = []
    for count in plan.sizes:
        root = plan.synthetic(count)
        runners = ["limit", "limit, recursive", "satchel"]
        runs = [probe("cold", root=root, runners=runners, turn=turn) for turn in range(plan.rounds)]
        what = f"cold discovery, {count:,}"
        rows.append(most(f"{what}, / Python limit", 1.5, ratios(runs, "satchel", "limit"), "×"))
        recursive = ratios(runs, "satchel", "limit, recursive")
        rows.append(shown(f"{what}, / limit that looks for nested skills", recursive, "×"))
        rows.append(shown(f"{what}, CPU", Figure.of(run["satchel"] for run in runs), "s"))
    root = plan.actual("raw-grouped")
    what = "cold discovery, real frontmatters, / C loader"
    if root is None:
        return [*rows, missing(what, "≤ 0.8 ×", "the real frontmatters are not here")]
    runners = ["C loader", "C loader, recursive", "satchel"]
    runs = [probe("cold", root=root, runners=runners, turn=turn) for turn in range(plan.rounds)]
    rows.append(most(what, 0.8, ratios(runs, "satchel", "C loader"), "×"))
    recursive = ratios(runs, "satchel", "C loader, recursive")
    rows.append(shown("cold discovery, real, / C loader that looks for nested", recursive, "×"))
    rows.append(shown("cold discovery, real, CPU", Figure.of(r["satchel"] for r in runs), "s"))
    return rows


def peers(plan: Plan) -> list[Row]:
    """Discovery against the fastest of the others, import included."""
    goals = {"fastest correct Python peer": 30.0, discovery.COMMAND: 3.0}
    if plan.peers == "none":
        return [
            missing(f"cold discovery, {name} / satchel", f"≥ {goal:g} ×", "peers were left out")
            for name, goal in goals.items()
        ]
    root = plan.synthetic(plan.middle)
    truth = ensure_synthetic(Path(root).parent, plan.middle)
    fast, others = discovery.contenders(plan.peers, plan.workdir)
    everybody = [item for item in fast if item.name == discovery.OURS] + others
    runs: list[dict[str, float]] = []
    right: set[str] = set()
    for _ in range(plan.rounds):
        figures: dict[str, float] = {}
        for item in everybody:
            run = run_once(item, Path(root), truth, 300.0)
            if run.status == "ok":
                figures[item.name] = run.cpu
                if run.right == len(truth):
                    right.add(item.name)
        runs.append(figures)
    rows: list[Row] = []
    names = [item.name for item in others if item.name in right]
    python = [name for name in names if not name.startswith("openskills")]
    fastest = min(python, key=lambda name: Figure.of(run[name] for run in runs).value, default="")
    for (label, goal), name in zip(goals.items(), (fastest, discovery.COMMAND), strict=True):
        what = f"cold discovery, {label} / satchel"
        if name not in right:
            rows.append(missing(what, f"≥ {goal:g} ×", "it did not run or was wrong"))
            continue
        figure = ratios(runs, name, discovery.OURS)
        rows.append(Row(what, f"≥ {goal:g} ×", figure, "×", figure.value >= goal, name))
    return rows


def warm(plan: Plan) -> list[Row]:
    """The first look of a new process that finds an index."""
    rows: list[Row] = []
    for count in plan.sizes:
        root = plan.synthetic(count)
        changing = Path(root, f"skill-{count // 2:06d}", "SKILL.md")
        before = changing.read_bytes()
        runs: list[dict[str, float]] = []
        try:
            for turn in range(plan.rounds):
                # A new index each round: a start that finds little changed leaves it as it is.
                with tempfile.TemporaryDirectory(prefix="cache-", dir=plan.workdir) as cache:
                    time.sleep(0.1)  # younger files are read again, to be on the safe side
                    probe("start", root=root, cache=cache)
                    none = probe("start", root=root, cache=cache)
                    changing.write_bytes(before + b"\n" * (turn + 1))
                    time.sleep(0.1)
                    one = probe("start", root=root, cache=cache)
                    fresh = probe("start", root=root)
                    assert (one["reads"], none["reads"]) == (1, 0), "the index did not serve"
                    floor = probe("stat", root=root)["cpu"]
                    runs.append(
                        {
                            "one": one["cpu"],
                            "none": none["cpu"],
                            "whole": none["cpu"] + none["import_cpu"],
                            "cold": fresh["cpu"],
                            "stat": floor,
                        }
                    )
        finally:
            changing.write_bytes(before)
        for key, label in (("none", "nothing changed"), ("one", "one changed")):
            what = f"warm start, {count:,}, {label}"
            rows.append(most(f"{what}, / own cold", 0.4, ratios(runs, key, "cold"), "×"))
            rows.append(most(f"{what}, / scandir + stat", 2.0, ratios(runs, key, "stat"), "×"))
        whole = ratios(runs, "whole", "stat")
        rows.append(shown(f"warm start, {count:,}, with import, / scandir + stat", whole, "×"))
        rows.append(shown(f"warm start, {count:,}, CPU", Figure.of(r["none"] for r in runs), "s"))
    return rows


def refresh(plan: Plan) -> list[Row]:
    """Another look of a process that runs."""
    rows: list[Row] = []
    for count in plan.sizes:
        found = probe("refresh", root=plan.synthetic(count), rounds=max(plan.rounds, 5))
        pairs = zip(found["satchel"], found["scandir + stat"], strict=True)
        figure = Figure.of(ours / theirs for ours, theirs in pairs)
        what = f"refresh, {count:,}, nothing changed, / scandir + stat"
        rows.append(
            most(what, 1.3, figure, "×") if count == plan.middle else shown(what, figure, "×")
        )
    return rows


def memory(plan: Plan) -> list[Row]:
    """What one more skill adds."""
    rows: list[Row] = []
    for count in plan.sizes:
        root = plan.synthetic(count)
        for traced, label in ((False, "resident"), (True, "as Python counts")):
            runs = [probe("memory", root=root, traced=traced)["bytes"] for _ in range(3)]
            what = f"memory per skill, {count:,}, {label}"
            rows.append(most(what, 1024, Figure.of(runs), "B"))
    return rows


def starting(plan: Plan) -> list[Row]:
    """Import, install, and the commands people wait for."""
    rows: list[Row] = []
    if plan.quick:
        installed = startup.here()
        rows.append(missing("bare install, packages", "≤ 12", "left out of a quick run"))
        rows.append(missing("bare install, size", "≤ 16 MB", "left out of a quick run"))
    else:
        installed = startup.install(plan.workdir, plan.wheel)
        sizes = installed.packages
        names = ", ".join(sizes)
        count = float(len([name for name in sizes if name != "unaccounted"]))
        packages = Figure(count, count, count, 1)
        total = Figure.of([sum(sizes.values())])
        rows.append(Row("bare install, packages", "≤ 12", packages, "", count <= 12, names))
        rows.append(most("bare install, size", 16, total, "MB", "with bytecode"))
    found = startup.measure(installed, plan.workdir, plan.starts, skills=100)
    rows += [
        most(f"`{name}`, net of python", 60, found[f"{name} - bare"], "ms")
        for name in (startup.IMPORT, startup.FACADE)
    ]
    loaded = startup.terminal_modules(installed, plan.workdir)
    none = Figure.of([float(len(loaded))])
    what = "terminal packages that it imports"
    rows.append(Row(what, "none", none, "", not loaded, ", ".join(loaded)))
    for name, limit in ((startup.LIST, 4.0), (startup.VERSION, 2.5)):
        what = f"`{name}`{' of 100 skills' if limit == 4.0 else ''}, / python -c pass"
        rows.append(most(what, limit, found[f"{name} / bare"], "×"))
    first = found[f"{startup.LIST_COLD} / bare"]
    return [*rows, shown("`satchel list` of 100 skills without an index", first, "×")]


def catalogue(plan: Plan) -> list[Row]:
    """Writing the block must not depend on how many skills there are."""
    root = plan.actual("real") or plan.synthetic(plan.sizes[-1])
    arguments: dict[str, Any] = {"root": root, "sizes": list(plan.catalogue), "budget": 12_000}
    runs = [probe("catalogue", rounds=5, **arguments) for _ in range(min(plan.rounds, 5))]
    counts = sorted(map(int, runs[0]))
    rows = [
        shown(
            f"catalogue, {count:,} skills, CPU",
            Figure.of(run[str(count)]["cpu"] * 1000 for run in runs),
            "ms",
            _standing(runs[0][str(count)]),
        )
        for count in counts
    ]
    # The smallest are described and the largest only named: 1,000 and more do the same work.
    top, base = str(counts[-1]), str(counts[min(1, len(counts) - 1)])
    what = f"catalogue, time at {counts[-1]:,} / at {int(base):,}"
    flat = Figure.of(run[top]["known"] / run[base]["known"] for run in runs)
    rows.append(Row(what, "flat: ≤ 2 ×", flat, "×", flat.value <= 2.0, "the withheld are known"))
    first = Figure.of(run[top]["cpu"] / run[base]["cpu"] for run in runs)
    rows.append(shown(f"{what}, with the search for withheld skills", first, "×"))
    size = max(run["characters"] for run in runs[0].values())
    rows.append(most("catalogue, size of the block", 12_000, Figure.of([size]), "characters"))
    for count in counts:
        item = runs[0][str(count)]
        each = item["tokens"] / max(item["described"] + item["named"], 1)
        what = f"catalogue, tokens per listed skill, {count:,} skills"
        rows.append(most(what, 60, Figure.of([each]), "tokens"))
    whole = probe("catalogue", root=root, sizes=[int(base)], budget=10**9, rounds=1)[base]
    each = whole["tokens"] / whole["described"]
    what = "catalogue, tokens per skill in full, without a budget"
    return [*rows, shown(what, Figure.of([each]), "tokens")]


def _standing(item: dict[str, Any]) -> str:
    return f"{item['described']} described, {item['named']} named, {item['unlisted']} counted"


def load(plan: Plan) -> list[Row]:
    """One skill by its name."""
    rows: list[Row] = []
    found: dict[int, list[dict[str, float]]] = {}
    for count in (100, *plan.sizes):
        root = plan.synthetic(count)
        found[count] = [probe("load", root=root, names=100) for _ in range(min(plan.rounds, 5))]
        for key, label, limit in (
            ("call, cached", "body in cache", 50.0),
            ("body read", "body not in cache", 200.0),
            ("call, first", "body not in cache, whole tool call", 200.0),
        ):
            what = f"load by name, {count:,}, {label}"
            rows.append(most(what, limit, Figure.of(run[key] for run in found[count]), "µs"))
        fresh = Figure.of(run["call, refreshed"] for run in found[count])
        rows.append(shown(f"load by name, {count:,}, with a look for changes", fresh, "µs"))
    few, many = found[100], found[plan.sizes[-1]]
    pairs = [(a["call, first"], b["call, first"]) for a, b in zip(few, many, strict=True)]
    flat = Figure.of(large / small for small, large in pairs)
    what = f"load by name, {plan.sizes[-1]:,} / 100"
    return [*rows, Row(what, "flat: ≤ 1.5 ×", flat, "×", flat.value <= 1.5)]


def survival(plan: Plan) -> list[Row]:
    """Broken folders among healthy ones: one kind at a time, then all at once."""
    bad: list[str] = []
    kinds = [(kind,) for kind in broken.EVERY] + [tuple(broken.EVERY)]
    for chosen in kinds:
        label = chosen[0] if len(chosen) == 1 else "all together"
        slug = label.replace(" ", "-").lower()
        out = plan.workdir / "corpora" / f"{'one' if len(chosen) == 1 else 'broken'}-{slug}"
        count = 21 * len(chosen)
        truth = ensure(out, lambda skills, k=chosen, n=count: with_broken(skills, n, 7, 1 / 21, k))
        spoilt = [row.folder for row in truth if row.kind != "healthy"]
        arguments: dict[str, Any] = {"broken": spoilt, "healthy": len(truth) - len(spoilt)}
        try:
            found = probe("survive", timeout=20, root=str(out / "skills"), **arguments)
        except (RuntimeError, OSError) as exc:
            bad.append(f"{label}: {exc}")
            continue
        if found["lost"] or found["silent"]:
            bad.append(f"{label}: lost {found['lost']}, silent {found['silent']}")
    survived = Figure.of([float(len(kinds) - len(bad))])
    what = f"broken files: {len(broken.EVERY)} kinds one by one, and together"
    note = "; ".join(bad) or "no crash, no hang, no neighbour lost, each one seen"
    return [Row(what, f"{len(kinds)} of {len(kinds)}", survived, "", not bad, note)]


SECTIONS: dict[str, Callable[[Plan], list[Row]]] = {
    "cold": cold,
    "peers": peers,
    "warm": warm,
    "refresh": refresh,
    "memory": memory,
    "startup": starting,
    "catalogue": catalogue,
    "load": load,
    "broken": survival,
}
