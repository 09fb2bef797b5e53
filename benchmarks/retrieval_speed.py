"""Search time from 1,000 to 1,000,000 skills, compared with bare tantivy.

    python benchmarks/retrieval_speed.py --out benchmarks/results/retrieval-speed.json
    python benchmarks/retrieval_speed.py --sizes 1000 10000      # a quick look

Who is asked:

    bare          tantivy as its own documentation uses it: the same terms in the same five fields,
                  one disjunction over all of them, the ten best, their keys from the stored texts
    bare, apart   the same field by field, as many of each as the detector asks for
    index         ours, field by field, as many of each as the detector asks for: 50, or 200 for a
                  long goal
    legs          ours, the fields of the head added up by the index, and the body
    ranking       the detector without words about it: the goal cut into terms, the fields fused,
                  the ten best
    detector      the whole `HybridDetector.rank`, from a text to ten explained matches
    memory        the other engine

Everybody answers every goal, one after the other in one process, who begins changing each time.
Times are CPU times.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from many_skills import goals, skills_of, texts
from measure import machine, table
from sampling import environment

if TYPE_CHECKING:
    from collections.abc import Callable

    from satchel.detect.index import FieldIndex, IndexRow
    from satchel.skill import Skill

SIZES = (1_000, 10_000, 69_568, 1_000_000)
"""69,568 are all the real ones."""
GOAL = 1.5
"""How many times bare tantivy's time a search may take."""
KINDS = ("short", "long")
LEGS = {
    "head": {"name": 0.7, "description": 1.0, "when": 1.0, "triggers": 0.7},
    "body": {"body": 1.0},
}
"""What the detector asks the index for."""
EACH = {name: {name: 1.0} for name in ("name", "description", "when", "triggers", "body")}
"""Each field by itself."""
_MEMORY_MOST = 10_000
_FEW_GOALS = 60
"""Goals that a slow engine answers."""
_cpu = time.process_time


class Bare:
    """tantivy, and nothing of ours but the terms."""

    def __init__(self, folder: str) -> None:
        import tantivy

        from satchel.detect.index import FIELDS

        self.api: Any = tantivy
        os.makedirs(folder, exist_ok=True)
        builder: Any = tantivy.SchemaBuilder()
        builder.add_text_field("key", stored=True, tokenizer_name="raw", index_option="basic")
        for field in FIELDS:
            builder.add_text_field(field, tokenizer_name="whitespace", index_option="freq")
        self.schema: Any = builder.build()
        self.index: Any = tantivy.Index(self.schema, folder)
        self.fields = FIELDS
        self.searcher: Any = self.index.searcher()

    def update(self, rows: list[IndexRow]) -> None:
        """Add or replace rows; a search sees them."""
        few = len(rows) < 500
        writer = self.index.writer(15_000_000 if few else 1_000_000_000, 1)
        for row in rows:
            if few:
                writer.delete_documents_by_term("key", row.key)
            document = self.api.Document()
            document.add_text("key", row.key)
            for field, text in zip(self.fields, row.fields, strict=True):
                if text:
                    document.add_text(field, text)
            writer.add_document(document)
        writer.commit()
        writer.wait_merging_threads()
        self.index.reload()
        self.searcher = self.index.searcher()

    def search(self, terms: dict[str, float], limit: int = 10) -> list[tuple[str, float]]:
        """The best keys, one disjunction over all fields."""
        query, should = self.api.Query, self.api.Occur.Should
        parts = [
            (should, query.term_query(self.schema, field, term, "freq"))
            for field in self.fields
            for term in terms
        ]
        hits = self.searcher.search(query.boolean_query(parts), limit, count=False).hits
        return [(self.searcher.doc(place)["key"][0], score) for score, place in hits]

    def apart(self, terms: dict[str, float], limit: int) -> dict[str, dict[str, float]]:
        """The best keys of each field, with the weights of the terms."""
        query, should = self.api.Query, self.api.Occur.Should
        found: dict[str, dict[str, float]] = {}
        for field in self.fields:
            parts = [
                (
                    should,
                    query.boost_query(query.term_query(self.schema, field, term, "freq"), weight),
                )
                for term, weight in terms.items()
            ]
            hits = self.searcher.search(query.boolean_query(parts), limit, count=False).hits
            found[field] = {self.searcher.doc(place)["key"][0]: score for score, place in hits}
        return found


def rows_of(skills: tuple[Skill, ...], bodies: list[str]) -> list[IndexRow]:
    """What the index gets, cut as always; the body is the opening, for more is not known."""
    from satchel.detect.skill_texts import header_texts, make_row_from_texts

    return [
        make_row_from_texts(skill, {**header_texts(skill), "body": body})
        for skill, body in zip(skills, bodies, strict=True)
    ]


def _timed(call: Callable[[], Any]) -> dict[str, float]:
    wall, cpu = time.perf_counter(), _cpu()
    call()
    return {"cpu": _cpu() - cpu, "wall": time.perf_counter() - wall}


def measure(size: int, folder: str, rounds: int) -> dict[str, Any]:
    """Everything at one size, in this process."""
    from satchel.detect.hybrid import MAX_CANDIDATES, MAX_LONG_GOAL_CANDIDATES, HybridDetector
    from satchel.detect.index.memory import MemoryIndex
    from satchel.detect.index.tantivy_index import TantivyIndex
    from satchel.detect.tokenizer import GoalText

    found = texts(size)
    skills = skills_of(found)
    asked = {kind: goals(found, rounds, kind) for kind in KINDS}
    rows: list[IndexRow] = []
    bodies = [text.body for text in found]
    builds = {"cutting into terms": _timed(lambda: rows.extend(rows_of(skills, bodies)))}
    del found
    by_key = {row.key: row for row in rows}
    places = {name: os.path.join(folder, name) for name in ("bare", "index", "detector")}
    bare = Bare(places["bare"])
    builds["bare"] = _timed(lambda: bare.update(rows))
    engines: dict[str, FieldIndex] = {"index": TantivyIndex(places["index"])}
    if size <= _MEMORY_MOST:
        engines["memory"] = MemoryIndex()
    for name, engine in engines.items():
        builds[name] = _timed(lambda engine=engine: engine.update(rows))
    detector = HybridDetector(places["detector"], rows=lambda skill: by_key[skill.path])
    builds["detector"] = _timed(lambda: detector.prepare(skills))

    ours = engines["index"]

    def many(terms: dict[str, float]) -> int:
        return MAX_CANDIDATES if len(terms) <= 24 else MAX_LONG_GOAL_CANDIDATES

    asks: dict[str, Callable[[str, dict[str, float]], Any]] = {
        "bare": lambda _text, terms: bare.search(terms),
        "bare, apart": lambda _text, terms: bare.apart(terms, many(terms)),
        "legs": lambda _text, terms: ours.search_signals(list(terms.items()), LEGS, many(terms)),
        "ranking": lambda text, _terms: detector.ranking(text, skills, depth=10),
        "detector": lambda text, _terms: detector.rank(text, skills, 10),
    }
    for name, engine in engines.items():
        asks[name] = lambda _text, terms, engine=engine: engine.search_signals(
            list(terms.items()), EACH, many(terms)
        )
    gc.collect()
    gc.freeze()  # a million rows of the benchmark's own are not to be walked again and again
    spent = {
        kind: _ask(asks, [(goal, GoalText(goal).terms) for goal in asked[kind]]) for kind in KINDS
    }
    updates = _updates(bare, engines, detector, skills, rows, by_key, asked["short"][0])
    sizes = {name: _disk(place) for name, place in places.items() if os.path.isdir(place)}
    return {
        "build s": builds,
        "query ms": {kind: _summary(values) for kind, values in spent.items()},
        "update ms": updates,
        "disk MB": sizes,
    }


def _ask(
    asks: dict[str, Callable[[str, dict[str, float]], Any]],
    goals_: list[tuple[str, dict[str, float]]],
) -> dict[str, list[float]]:
    """Milliseconds of each goal for each contender."""
    spent: dict[str, list[float]] = {name: [] for name in asks}
    names = list(asks)
    for text, terms in goals_[:5]:  # what is paid once is paid before
        for name in names:
            asks[name](text, terms)
    for turn, (text, terms) in enumerate(goals_):
        shift = turn % len(names)
        for name in names[shift:] + names[:shift]:
            if name == "memory" and turn >= _FEW_GOALS:
                continue
            began = _cpu()
            asks[name](text, terms)
            spent[name].append((_cpu() - began) * 1e3)
    return spent


def _updates(
    bare: Bare,
    engines: dict[str, FieldIndex],
    detector: Any,
    skills: tuple[Skill, ...],
    rows: list[IndexRow],
    by_key: dict[str, IndexRow],
    goal: str,
    rounds: int = 7,
) -> dict[str, dict[str, float]]:
    """One skill changes, and the next search knows: the median of some rounds."""
    spent: dict[str, list[dict[str, float]]] = {}
    terms = [("changed", 1.0)]
    for turn in range(rounds):
        at = turn * (len(rows) // rounds)
        row = rows[at]._replace(stamp=(turn + 2, 1, 1))
        by_key[row.key] = row
        head = skills[at].head._replace(mtime_ns=turn + 2)
        skills = (*skills[:at], skills[at]._replace(head=head), *skills[at + 1 :])
        calls: dict[str, Callable[[], Any]] = {
            "bare": lambda row=row: (bare.update([row]), bare.search(dict(terms))),
            "detector": lambda skills=skills: detector.rank(goal, skills, 10),
        }
        for name, engine in engines.items():
            calls[name] = lambda engine=engine, row=row: (
                engine.update([row]),
                engine.search_signals(terms, EACH, 10),
            )
        for name, call in calls.items():
            spent.setdefault(name, []).append(_timed(call))
    return {
        name: {key: 1e3 * statistics.median(one[key] for one in found) for key in ("cpu", "wall")}
        for name, found in spent.items()
    }


def memory(folder: str, what: str, asked: list[str]) -> dict[str, float]:
    """What an opened index keeps in memory after some searches, in a process of its own."""
    from satchel.detect.index.tantivy_index import TantivyIndex
    from satchel.detect.tokenizer import GoalText

    terms = [GoalText(goal).terms for goal in asked]
    __import__("tantivy")
    before = _resident()
    if what == "bare":
        bare = Bare(os.path.join(folder, "bare"))
        for one in terms:
            bare.search(one)
    else:
        index = TantivyIndex(os.path.join(folder, what))
        for one in terms:
            index.search_signals(list(one.items()), EACH, 100)
    gc.collect()
    after = _resident()
    return {key: after[key] - before[key] for key in after}


def _resident() -> dict[str, float]:
    """Megabytes of this process: what is its own, and mapped files, which the system may drop."""
    found: dict[str, float] = {}
    names = {"RssAnon:": "own", "RssFile:": "mapped"}
    with open("/proc/self/status", encoding="ascii") as file:
        for line in file:
            key, _, value = line.partition("\t")
            if key in names:
                found[names[key]] = int(value.split()[0]) / 1024
    return found


def _disk(folder: str) -> float:
    sizes = (os.path.getsize(os.path.join(here, f)) for here, _, fs in os.walk(folder) for f in fs)
    return sum(sizes) / 1e6


def _summary(spent: dict[str, list[float]]) -> dict[str, dict[str, float]]:
    """Median and 99th percentile, and both against bare tantivy on the same goals."""
    found: dict[str, dict[str, float]] = {}
    for name, values in spent.items():
        base = sorted(spent["bare"][: len(values)])
        mine = sorted(values)
        far = min(len(mine) - 1, int(0.99 * len(mine)))
        found[name] = {
            "p50": statistics.median(mine),
            "p99": mine[far],
            "p50 / bare": statistics.median(mine) / statistics.median(base),
            "p99 / bare": mine[far] / base[far],
            "goals": len(mine),
        }
    return found


def _child(*arguments: str) -> dict[str, Any]:
    """Run a part of this file in a new process."""
    with tempfile.TemporaryDirectory(prefix="bench-") as home:
        done = subprocess.run(
            [sys.executable, __file__, "--part", *arguments],
            env=environment(home),
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
    if done.returncode:
        raise RuntimeError(f"`{' '.join(arguments)}` failed")
    return json.loads(done.stdout)


def at_size(size: int, workdir: str, rounds: int) -> dict[str, Any]:
    """Everything at one size; the files are removed after it."""
    folder = os.path.join(workdir, f"retrieval-{size}")
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    try:
        found = _child("measure", str(size), folder, str(rounds))
        names = [name for name in ("bare", "index") if name in found["disk MB"]]
        found["memory MB"] = {name: _child("memory", folder, name) for name in names}
        return found
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def printed(found: dict[int, dict[str, Any]]) -> str:
    """The tables people read."""
    lines = [["CPU ms", "skills", "p50", "p99", "p50 / bare", "p99 / bare", "goals"]]
    for kind in KINDS:
        for size, figures in found.items():
            for name, one in figures["query ms"][kind].items():
                cells = [f"{one[key]:.2f}" for key in ("p50", "p99", "p50 / bare", "p99 / bare")]
                lines.append([f"{kind}, {name}", f"{size:,}", *cells, f"{one['goals']:.0f}"])
    other = [["", "skills", "build s", "update ms", "disk MB", "own MB", "mapped MB"]]
    for size, figures in found.items():
        for name, build in figures["build s"].items():
            spent = figures["update ms"].get(name, {}).get("cpu")
            kept = figures["memory MB"].get(name, {})
            cells = [build["cpu"], spent, figures["disk MB"].get(name)]
            cells += [kept.get("own"), kept.get("mapped")]
            said = ["" if cell is None else f"{cell:.1f}" for cell in cells]
            other.append([name, f"{size:,}", *said])
    return f"{table(lines)}\n\n{table(other)}"


def verdict(found: dict[int, dict[str, Any]]) -> str:
    """Whether the goal is met, and by how much at the worst size."""
    lines = [["against `bare`", "at most", f"goal {GOAL}"]]
    for name in ("bare, apart", "index", "legs", "ranking", "detector"):
        for kind in KINDS:
            for key in ("p50", "p99"):
                ratios = [one["query ms"][kind][name][f"{key} / bare"] for one in found.values()]
                said = "met" if max(ratios) <= GOAL else "not met"
                lines.append([f"{name}, {kind}, {key}", f"{max(ratios):.2f}", said])
    return table(lines)


def main() -> None:
    """Measure size by size, print, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--sizes", type=int, nargs="*", default=list(SIZES))
    parser.add_argument("--goals", type=int, default=400, help="goals of each kind")
    parser.add_argument("--workdir", type=Path, help="where the indexes stand meanwhile")
    parser.add_argument("--out", type=Path, help="JSON file for the figures")
    parser.add_argument("--part", nargs="*", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        print(json.dumps(_part(*options.part)))
        return
    with tempfile.TemporaryDirectory(prefix="satchel-retrieval-", dir=options.workdir) as workdir:
        found = {size: at_size(size, workdir, options.goals) for size in options.sizes}
    print(printed(found))
    print()
    print(verdict(found))
    if options.out:
        result = {"machine": machine(), "sizes": {str(size): one for size, one in found.items()}}
        options.out.write_text(json.dumps(result, indent=1) + "\n", "utf-8")


def _part(name: str, *arguments: str) -> dict[str, Any]:
    if name == "measure":
        return measure(int(arguments[0]), arguments[1], int(arguments[2]))
    found = texts(1_000)
    return memory(arguments[0], arguments[1], goals(found, 200, "short", seed=9))


if __name__ == "__main__":
    main()
