"""Writes the kept figures as tables between the markers of the documentation.

    python benchmarks/tables.py            # after a new run
    python benchmarks/tables.py --check    # fail when a page shows other figures than the results

A page has `<!-- figures: NAME -->` before a table and `<!-- end of figures -->` after it.
What stands between them stays where nothing was measured yet.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import agent_tables
import mcp_tables
import retrieval_tables
import script_tables
import store_tables
import tool_tables
import work_tables
from goal_rows import Row, figure_text, spread_text
from growth import NOUNS, exponent
from sampling import Figure

if TYPE_CHECKING:
    from collections.abc import Callable

HERE = Path(__file__).resolve().parent
DOCS = HERE.parent / "docs"
MARKED = re.compile(
    r"(?P<begin><!-- figures: (?P<name>[\w-]+) -->\n).*?(?P<end><!-- end of figures -->)", re.DOTALL
)


def _kept(name: str) -> dict[str, Any]:
    return json.loads((HERE / "results" / f"{name}.json").read_text("utf-8"))


def _markdown(rows: list[list[str]]) -> str:
    head, *body = rows
    rule = ["---", *("---:" for _ in head[1:])]
    return "".join(f"| {' | '.join(row)} |\n" for row in [head, rule, *body])


def _goal_rows() -> list[Row]:
    sections = _kept("goals")["sections"]
    rows: list[Row] = []
    for section in sections.values():
        for row in section["rows"]:
            figure = Figure(**row["figure"]) if row["figure"] else None
            rows.append(Row(**row)._replace(figure=figure))
    return rows


def goals() -> str:
    """The goals that are not met, and how many are."""
    found = [row for row in _goal_rows() if row.goal]
    missed = [row for row in found if row.met is False]
    rows = [[row.what, row.goal, figure_text(row), spread_text(row)] for row in missed]
    rows.append([f"the other {len(found) - len(missed)}", "", "met", ""])
    return _markdown([["", "goal", "median", "lowest–highest"], *rows])


def peers() -> str:
    """Discovery: the floor, Satchel and everybody else."""
    kept = _kept("discovery")
    rows = [["", "version", "CPU s", "× Satchel", "RSS added, MB"]]
    found = [row for row in kept["rows"] if row["name"] != "scandir + stat" and "cpu" in row]
    ours = next(row["cpu_runs"] for row in found if row["name"] == "satchel")
    for row in sorted(found, key=lambda row: row["cpu"]):
        name = f"**{row['name']}**" if row["name"] == "satchel" else row["name"]
        # Within a round, as everywhere: peers have fewer rounds than Satchel.
        pairs = zip(row["cpu_runs"], ours, strict=False)
        ratio = Figure.of(theirs / mine for theirs, mine in pairs).value
        times = f"{ratio:,.0f}" if ratio >= 10 else f"{ratio:.1f}"
        seconds = f"{row['cpu']:.2f}" if row["cpu"] < 10 else f"{row['cpu']:.1f}"
        figures = [seconds, times, f"{row['rss_added_mb']:.0f}"]
        rows.append([name, row["version"], *figures])
    return _markdown(rows)


def growth() -> str:
    """The same nouns at every size."""
    kept = _kept("growth")["sizes"]
    found = {
        int(size): {key: Figure(**value) for key, value in figures.items()}
        for size, figures in kept.items()
    }
    sizes = sorted(found)
    rows = [["", *(f"{size:,}" for size in sizes), "grows as"]]
    for key, (label, unit) in NOUNS.items():
        cells = [_short(found[size][key].value, unit) for size in sizes]
        power = exponent(found, key)
        grows = "not at all" if abs(power) < 0.15 else "N" if power > 0.85 else f"N^{power:.1f}"
        rows.append([label, *cells, grows])
    return _markdown(rows)


def _short(value: float, unit: str) -> str:
    if unit == "µs" and value >= 1000:
        value, unit = value / 1000, "ms"
    if unit == "ms" and value >= 1000:
        return f"{value / 1000:.2g} s"
    return f"{value:,.0f} {unit}" if value >= 100 else f"{value:.2g} {unit}"


def startup() -> str:
    """Whole programs."""
    commands = _kept("startup")["commands"]
    rows = [["", "CPU ms", "net of python", "× python"]]
    for name, spent in commands.items():
        if " / " not in name and " - " not in name:
            net, times = commands[f"{name} - bare"], commands[f"{name} / bare"]
            figures = [f"{item['value']:.1f}" for item in (spent, net)]
            rows.append([f"`{name}`", *figures, f"{times['value']:.2f}"])
    return _markdown(rows)


def install() -> str:
    """What a bare install puts on the disk."""
    packages = _kept("startup")["packages"]
    rows = [[name, f"{size:.2f}"] for name, size in packages.items()]
    return _markdown([["package", "MB"], *rows, ["together", f"{sum(packages.values()):.2f}"]])


def broken() -> str:
    """What one broken folder among twenty healthy ones does to a library."""
    kept = _kept("broken")
    rows = [["", "kinds survived", "crashed at", "hung at"]]
    for name, verdicts in kept.items():
        kinds = {kind: verdict for kind, verdict in verdicts.items() if not kind.startswith("1 %")}
        good = sum(verdict.startswith("ok") for verdict in kinds.values())
        crashed = [kind for kind, verdict in kinds.items() if verdict == "CRASH"]
        hung = [kind for kind, verdict in kinds.items() if verdict == "HANG"]
        rows.append([name, f"{good} of {len(kinds)}", ", ".join(crashed), ", ".join(hung)])
    return _markdown(rows)


def _of_store(name: str) -> Callable[[], str]:
    return lambda: _markdown(getattr(store_tables, name)(_kept(name)))


def _of_scripts(name: str) -> Callable[[], str]:
    return lambda: _markdown(getattr(script_tables, name)(_kept("scripts")))


def _of_retrieval(name: str, kept: str) -> Callable[[], str]:
    return lambda: _markdown(getattr(retrieval_tables, name)(_kept(kept)))


def _of_agents(name: str, kept: str) -> Callable[[], str]:
    return lambda: _markdown(getattr(agent_tables, name)(_kept(kept)))


def _of_mcp(name: str, kept: str) -> Callable[[], str]:
    return lambda: _markdown(getattr(mcp_tables, name)(_kept(kept)))


def _of_work(name: str, kept: str) -> Callable[[], str]:
    return lambda: _markdown(getattr(work_tables, name)(_kept(kept)))


TABLES: dict[str, Callable[[], str]] = {
    **{
        function.__name__: function for function in (goals, peers, growth, startup, install, broken)
    },
    **{name: _of_store(name) for name in ("crashes", "scanner")},
    **{name: _of_scripts(name) for name in ("script_plans", "script_refusals")},
    "tools": lambda: _markdown(tool_tables.tools(_kept("tools"))),
    **{name: _of_retrieval(name, "retrieval") for name in ("retrieval", "no_skill")},
    "retrieval_speed": _of_retrieval("retrieval_speed", "retrieval-speed"),
    "end_to_end": _of_retrieval("end_to_end", "end_to_end"),
    "prompt_cache": _of_agents("prompt_cache", "prompt-cache"),
    "mcp_conformance": _of_mcp("mcp_conformance", "mcp-conformance"),
    "mcp_server": _of_mcp("mcp_server", "mcp-server"),
    "goal_overhead": _of_work("goal_overhead", "goal-overhead"),
    "goal_crashes": _of_work("goal_crashes", "goal-crashes"),
}


def _filled(found: re.Match[str]) -> str:
    """The marked part with its table; as it was when there are no figures for it yet."""
    try:
        table = TABLES[found["name"]]()
    except FileNotFoundError:
        print(f"nothing measured yet for `{found['name']}`", file=sys.stderr)
        return found[0]
    return f"{found['begin']}\n{table}\n{found['end']}"


def main() -> None:
    """Write every table, or say which page is out of date."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when stale")
    options = parser.parse_args()
    stale: list[str] = []
    for path in sorted(DOCS.rglob("*.md")):
        before = path.read_text("utf-8")
        after = MARKED.sub(_filled, before)
        if after != before:
            stale.append(path.relative_to(DOCS).as_posix())
            if not options.check:
                path.write_text(after, "utf-8")
    if stale:
        print(*stale, sep="\n")
    if stale and options.check:
        print("\nerror: These pages show other figures", file=sys.stderr)
        print("\nhint: Run `python benchmarks/tables.py`", file=sys.stderr)
        raise SystemExit(1)


if __name__ == "__main__":
    main()
