"""Share of tasks whose right skill is visible to the model: 10,000 skills, 12,000 characters.

Example:
    python benchmarks/end_to_end.py
    python benchmarks/end_to_end.py --vectors FOLDER --out benchmarks/results/end_to_end.json

The skills are those of the set `skillrouter75`: every right one of the tasks, then others up to
`--count`, drawn with a fixed seed; of several with one name the first is taken. About half of the
others have no description of their own. They get the first paragraph of their text, as some agents
do (`--fill opening`), or are left out in favour of names and descriptions without a text
(`--fill metadata`).

A task counts as served when at least one of its right skills is in the prompt. What Satchel
writes, the list and the shortlist together, keeps within the same budget as the other lists.
The data are not part of the project: `--data` is the folder that has them.
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import random
import re
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "src")]

import listings  # noqa: E402 - found through the line above
from interval import wilson  # noqa: E402 - the same
from listings import Listed  # noqa: E402 - the same
from measure import machine, table  # noqa: E402 - the same
from minilm import open_model  # noqa: E402 - the same

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from satchel import Satchel

DATA = HERE.parent.parent / "shared" / "retrieval"
SET = "skillrouter75"
SEEDS = 20
DRAWS = 2_000
"""Uses in a simulated history: more than a year of heavy work."""
_OPENING = 300
_PATIENCE = 600.0


class Task(NamedTuple):
    """A task, and the skills that are right for it."""

    key: str
    text: str
    relevant: frozenset[str]


class Source(NamedTuple):
    """One skill of the set."""

    listed: Listed
    body: str


# --- the data -----------------------------------------------------------------------------


def read_tasks(folder: Path) -> list[Task]:
    """The tasks of a set."""
    with (folder / "queries.jsonl").open(encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    return [
        Task(str(row["_id"]), row["text"], frozenset(map(str, row["relevant"]))) for row in rows
    ]


def pick(data: Path, tasks: Sequence[Task], count: int, seed: int, fill: str) -> list[Source]:
    """Every right skill, then others up to `count`; names are unique, whatever their case."""
    wanted = {key for task in tasks for key in task.relevant}
    described: list[Source] = []
    others: list[Source] = []
    right: list[Source] = []
    for row in _rows(data / SET / "corpus.jsonl.xz"):
        key, description = str(row["_id"]), str(row["description"]).strip()
        source = Source(Listed(key, row["name"], description), str(row["body"]))
        if key in wanted:
            right.append(source)
        elif description:
            described.append(source)
        elif fill == "opening" and (text := opening(source.body)):
            others.append(source._replace(listed=source.listed._replace(description=text)))
    if fill == "metadata":
        rows = _rows(data / "extra_metadata.jsonl.xz")
        others = [
            Source(Listed(f"extra-{number}", row["name"], row["desc"]), "")
            for number, row in enumerate(rows)
            if row["desc"].strip()
        ]
    chance = random.Random(seed)
    chance.shuffle(described)
    chance.shuffle(others)
    chosen: dict[str, Source] = {}
    for source in (*right, *described, *others):
        if len(chosen) >= count:
            break
        chosen.setdefault(" ".join(source.listed.name.split()).casefold(), source)
    return list(chosen.values())


def opening(body: str) -> str:
    """The first paragraph of prose; a heading when there is none."""
    heading = ""
    for part in re.split(r"\n\s*\n", re.sub(r"<!--.*?-->", "", body, flags=re.DOTALL)):
        text = " ".join(part.split())
        if text.startswith("#"):
            heading = heading or text.lstrip("# ")
        elif re.match(r"\w", text):
            return text[:_OPENING]
    return heading[:_OPENING]


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    if not path.exists():
        raise SystemExit(
            f"error: There is no `{path}`\n\nhint: Pass the data's folder with `--data`"
        )
    with lzma.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def install(sources: Iterable[Source], skills: Path) -> dict[str, str]:
    """Write the skills as folders; returns the key of each name."""
    keys: dict[str, str] = {}
    for number, (listed, body) in enumerate(sources):
        plain = re.sub(r"[^\w.-]+", "-", listed.name.lower()).strip("-.")[:100]
        folder = skills / f"{plain or 'skill'}-{number:05d}"
        folder.mkdir(parents=True)
        head = {"name": " ".join(listed.name.split()), "description": listed.description}
        lines = [f"{key}: {json.dumps(value)}" for key, value in head.items()]
        text = "---\n" + "\n".join(lines) + f"\n---\n\n{body}\n"
        (folder / "SKILL.md").write_bytes(text.encode("utf-8", "replace"))
        keys[folder.name] = listed.key
    return keys


# --- what a model sees --------------------------------------------------------------------


class Ours(NamedTuple):
    """What Satchel shows for every task."""

    installed: int
    alone: set[str]
    """The list when it has the whole budget for itself."""
    prefix: set[str]
    """The list that leaves room for the shortlist."""
    first: list[str]
    """What the detector ranks highest, task by task; empty when it says that nothing fits."""
    shortlists: list[set[str]]
    longest: int
    """Characters of list and longest shortlist."""
    engine: str
    """What keeps the index, and the model of the vectors if there is one."""
    waited: float
    ms: list[float]
    notes: list[str]


def ours(project: Path, keys: Mapping[str, str], tasks: Sequence[Task], options: Any) -> Ours:
    """Ask Satchel as a host does: one catalogue, and a shortlist for each task."""
    from satchel import Satchel
    from satchel.catalogue.catalogue import MAX_SHORTLIST_CHARS
    from satchel.detect.hybrid import HybridDetector
    from satchel.detect.pipeline import SelectionPipeline
    from satchel.detect.semantic import Semantic

    given: dict[str, Any] = {"trust": "all", "builtin": False, "trace": "memory"}
    if options.vectors:
        model = Semantic(open_model(options.vectors))
        given["detector"] = SelectionPipeline(HybridDetector(semantic=model))
    satchel = Satchel.for_project(
        project, budget=options.budget - MAX_SHORTLIST_CHARS, refresh_on_call=False, **given
    )
    skills = {one.name: keys[os.path.basename(one.base_dir)] for one in satchel.list_skills()}
    began = time.perf_counter()
    engine = settle(satchel)
    waited = time.perf_counter() - began
    prefix = satchel.preview()
    shortlists: list[set[str]] = []
    first: list[str] = []
    ms: list[float] = []
    notes: dict[str, int] = {}
    longest = 0
    for task in tasks:
        began = time.perf_counter()
        made = satchel.shortlist(task.text)
        ms.append((time.perf_counter() - began) * 1e3)
        if made.answer is None:
            raise SystemExit(f"error: The shortlist failed: {made.reason}")
        for note in made.answer.notes:
            notes[note] = notes.get(note, 0) + 1
        shortlists.append({skills[name] for name in made.listed})
        matches = made.answer.matches
        first.append(skills[matches[0].name] if matches else "")
        longest = max(longest, len(made.text))

    def listed(block: Any) -> set[str]:
        account = block.account
        return {skills[name] for name in (*account.full, *account.shortened, *account.named)}

    return Ours(
        len(skills),
        listed(satchel.preview(options.budget)),
        listed(prefix),
        first,
        shortlists,
        len(prefix.text) + longest,
        engine,
        waited,
        ms,
        [f"{note} ({count} tasks)" for note, count in notes.items()],
    )


def settle(satchel: Satchel) -> str:
    """Wait until the index is whole; returns what keeps it.

    A host's first queries do not wait, and answer with what there is: that is not measured here.
    """
    skills = satchel.library.snapshot().for_model
    ready = satchel.detector.prepare(skills)
    if ready is not None:
        return f"{ready.engine}, {ready.vectors}" if ready.vectors else str(ready.engine)
    until = time.perf_counter() + _PATIENCE
    while time.perf_counter() < until:
        answer = satchel.which("a first request", record=False)
        if not any("index" in note for note in answer.notes):
            return answer.detector
        time.sleep(0.5)
    raise SystemExit("error: The index was not ready in ten minutes")


# --- figures ------------------------------------------------------------------------------


class Figure(NamedTuple):
    """How many tasks a strategy serves."""

    name: str
    hits: float
    """Of several histories, the mean."""
    of: int
    low: float
    high: float
    spread: tuple[int, int] | None = None
    """Least and most over the histories."""

    def row(self) -> list[str]:
        """Its line of the table."""
        hits = f"{self.hits:.1f}".removesuffix(".0")
        if self.spread:
            hits += f" ({self.spread[0]} to {self.spread[1]})"
        share = f"{self.hits / self.of:.1%}"
        return [self.name, f"{hits} of {self.of}", share, f"{self.low:.1%} to {self.high:.1%}"]


def figure(name: str, tasks: Sequence[Task], runs: Sequence[Sequence[set[str]]]) -> Figure:
    """Count the tasks with a right skill in sight; `runs` has what each task saw, per history."""
    counts = [
        sum(bool(task.relevant & seen) for task, seen in zip(tasks, run, strict=True))
        for run in runs
    ]
    mean = statistics.fmean(counts)
    low, high = wilson(mean, len(tasks))
    spread = (min(counts), max(counts)) if len(counts) > 1 else None
    return Figure(name, mean, len(tasks), low, high, spread)


def peers(skills: Sequence[Listed], tasks: Sequence[Task], room: int) -> Iterator[Figure]:
    """The plain lists of others, each within `room`."""
    count = len(tasks)
    in_order = listings.alphabetical(skills)
    for name, cut in listings.STRATEGIES.items():
        yield figure(f"by name, {name}", tasks, [[cut(in_order, room)] * count])
    shown = {name: listings.STRATEGIES[name] for name in ("whole entries", "names only")}
    for name, cut in shown.items():
        runs: list[list[set[str]]] = []
        for seed in range(SEEDS):
            uses = listings.zipf_history(skills, DRAWS, seed)
            runs.append([cut(listings.by_use(skills, uses), room)] * count)
        yield figure(f"by use, {name}, {SEEDS} random histories", tasks, runs)
    for name, cut in shown.items():
        seen = [cut(listings.by_use(skills, _other_tasks(tasks, task)), room) for task in tasks]
        yield figure(f"by use, {name}, used in the other tasks", tasks, [seen])
    yield figure(
        "by use, whole entries, nothing used yet", tasks, [[listings.whole(in_order, room)] * count]
    )


def _other_tasks(tasks: Sequence[Task], this: Task) -> dict[str, float]:
    """A history that suits its user well: every right skill of every other task was used."""
    uses: dict[str, float] = {}
    for task in tasks:
        if task.key != this.key:
            for key in task.relevant:
                uses[key] = uses.get(key, 0.0) + 1
    return uses


def measured(
    found: Ours, skills: Sequence[Listed], tasks: Sequence[Task], room: int
) -> list[Figure]:
    """Every row of the table."""
    count = len(tasks)
    both = [found.prefix | seen for seen in found.shortlists]
    return [
        figure("satchel, list and shortlist", tasks, [both]),
        figure("its first choice alone", tasks, [[{one} for one in found.first]]),
        figure("satchel, list alone", tasks, [[found.alone] * count]),
        *peers(skills, tasks, room),
    ]


def main() -> None:
    """Install, ask, compare."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the labelled sets")
    parser.add_argument("--count", type=int, default=10_000, help="skills to install")
    parser.add_argument("--budget", type=int, default=12_000, help="characters for every strategy")
    parser.add_argument("--seed", type=int, default=7, help="which others are installed")
    parser.add_argument("--fill", choices=["opening", "metadata"], default="opening")
    parser.add_argument("--vectors", default="", help="an ONNX folder or an endpoint")
    parser.add_argument("--workdir", type=Path, help="keep skills and index here")
    parser.add_argument("--out", type=Path, help="write the figures as JSON")
    options = parser.parse_args()
    tasks = read_tasks(options.data / SET)
    sources = pick(options.data, tasks, options.count, options.seed, options.fill)
    skills = [source.listed for source in sources]
    work = options.workdir or Path(tempfile.mkdtemp(prefix="bench-"))
    try:
        report = run(work, sources, skills, tasks, options)
    finally:
        if options.workdir is None:
            shutil.rmtree(work, ignore_errors=True)
    if options.out:
        options.out.write_text(json.dumps(report, indent=1) + "\n", "utf-8")


def run(
    work: Path,
    sources: Sequence[Source],
    skills: Sequence[Listed],
    tasks: Sequence[Task],
    options: Any,
) -> dict[str, Any]:
    """Measure once, print, and return the figures."""
    os.environ["SATCHEL_HOME"] = str(work.resolve() / "home")
    shutil.rmtree(work / "project", ignore_errors=True)
    keys = install(sources, work / "project" / "skills")
    found = ours(work / "project", keys, tasks, options)
    if found.installed != len(sources):
        raise SystemExit(f"error: {found.installed} of {len(sources)} skills are offered")
    rows = measured(found, skills, tasks, options.budget)
    everything = sum(len(f"- {one.name}: {one.description}\n") for one in skills)
    ms = sorted(found.ms)
    print(f"{len(skills):,} skills, {options.budget:,} characters, {len(tasks)} tasks\n")
    print(
        table([["what the model sees", "tasks served", "share", "95 %"], *(r.row() for r in rows)])
    )
    print(f"\nEverybody in full, as lists without a budget do: {everything:,} characters")
    print(f"Satchel's list and its longest shortlist: {found.longest:,} characters")
    print(f"Shortlist: median {statistics.median(ms):.1f} ms, most {ms[-1]:.1f} ms; ", end="")
    print(f"index ({found.engine}) ready after {found.waited:.1f} s")
    for note in found.notes:
        print(f"note: {note}")
    return {
        "machine": machine(),
        "skills": len(skills),
        "budget": options.budget,
        "fill": options.fill,
        "seed": options.seed,
        "engine": found.engine,
        "tasks": len(tasks),
        "characters": {"ours": found.longest, "everything": everything},
        "ready_s": round(found.waited, 2),
        "shortlist_ms": {"median": round(statistics.median(ms), 2), "most": round(ms[-1], 2)},
        "nothing_fits": sum(not one for one in found.first),
        "notes": found.notes,
        "rows": [
            {
                "name": one.name,
                "hits": round(one.hits, 3),
                "of": one.of,
                "interval": [round(one.low, 4), round(one.high, 4)],
                "spread": list(one.spread) if one.spread else None,
            }
            for one in rows
        ],
    }


if __name__ == "__main__":
    main()
