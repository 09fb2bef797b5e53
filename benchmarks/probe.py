"""Measurements that need their own process, one function each.

Run by `sampling.probe`, which passes the arguments as JSON:

    python benchmarks/probe.py cold '{"root": "skills", "runners": ["limit", "satchel"], "turn": 0}'

Prints one JSON object. What is paid once in a process (imports, compiled expressions) is paid
before anything is timed; `start` is the exception, and shows it apart.
"""

from __future__ import annotations

import gc
import json
import os
import statistics
import sys
import tempfile
import time
from typing import TYPE_CHECKING, Any

import yardsticks

if TYPE_CHECKING:
    from collections.abc import Callable

    from satchel import Library, Satchel

_cpu = time.process_time
Figures = dict[str, Any]


def _library(root: str, cache: str = "") -> Library:
    from satchel.library import Library, Location, ScanCache

    return Library([Location(root)], index=ScanCache(cache) if cache else None)


def _satchel(root: str, **settings: Any) -> Satchel:
    from satchel import Satchel
    from satchel.project import library_for
    from satchel.settings import load_settings

    chosen = load_settings(os.environ["HOME"], locations=[root], builtin=False, **settings)
    chosen = chosen._replace(paths=chosen.paths._replace(cache=""))
    return Satchel(library_for(chosen), chosen)


def _cold(root: str) -> Any:
    return _library(root).snapshot()


def _get_ready() -> None:
    """Read one simple and one odd skill, so that all that is loaded once is loaded."""
    with tempfile.TemporaryDirectory() as root:
        for name, value in (("simple", "Does one thing"), ("odd", '"a \\u0062"')):
            folder = os.path.join(root, name)
            os.mkdir(folder)
            with open(os.path.join(folder, "SKILL.md"), "w", encoding="utf-8") as file:
                file.write(f"---\nname: {name}\ndescription: {value}\n---\n")
        found = [_cold(root), yardsticks.c_loader(root)]
    assert [len(item) for item in found] == [2, 2], "the skills to get ready with were not read"


RUNNERS: dict[str, Callable[[str], Any]] = {
    "limit": yardsticks.python_limit,
    "limit, recursive": yardsticks.python_limit_recursive,
    "C loader": yardsticks.c_loader_grouped,
    "C loader, recursive": yardsticks.c_loader_recursive,
    "satchel": _cold,
}


def cold(root: str, runners: list[str], turn: int) -> Figures:
    """CPU seconds of each runner from nothing, one after the other; `turn` says who begins."""
    _get_ready()
    first = turn % len(runners)
    figures: Figures = {}
    for name in [*runners[first:], *runners[:first]]:
        gc.collect()
        began = _cpu()
        found = RUNNERS[name](root)
        figures[name] = _cpu() - began
        figures[f"{name}: found"] = len(found)
        del found
    return figures


def start(root: str, cache: str = "") -> Figures:
    """A first look in a new process: cold without a cache folder, warm with one that is filled."""
    began = _cpu()
    import satchel.library  # noqa: F401  # pyright: ignore[reportUnusedImport]

    imported = _cpu() - began
    gc.collect()
    began = _cpu()
    library = _library(root, cache)
    found = len(library.snapshot().skills)
    spent = _cpu() - began
    return {"cpu": spent, "import_cpu": imported, "found": found, "reads": library.files_read}


def stat(root: str) -> Figures:
    """The least that a warm start can do, in the same kind of process."""
    known = yardsticks.prepare_scandir_stat(root)
    gc.collect()
    began = _cpu()
    changed = yardsticks.scandir_stat(root, known)
    return {"cpu": _cpu() - began, "changed": len(changed)}


def refresh(root: str, rounds: int) -> Figures:
    """Looks at an unchanged library in a running process, in turns with scandir + stat."""
    library = _library(root)
    snapshot = library.snapshot()
    assert library.refresh() is snapshot, "the corpus changes while it is measured"
    known = yardsticks.prepare_scandir_stat(root)
    ours: list[float] = []
    theirs: list[float] = []
    for _ in range(rounds):
        began = _cpu()
        library.refresh()
        middle = _cpu()
        yardsticks.scandir_stat(root, known)
        ours.append(middle - began)
        theirs.append(_cpu() - middle)
    return {"satchel": ours, "scandir + stat": theirs}


def memory(root: str, *, traced: bool) -> Figures:
    """Bytes that each skill adds to a process, as the system or as Python counts."""
    _get_ready()
    if traced:
        import tracemalloc

        tracemalloc.start(1)
    gc.collect()
    before = _used(traced=traced)
    snapshot = _cold(root)
    gc.collect()
    added = _used(traced=traced) - before
    return {"bytes": added / max(len(snapshot.skills) + len(snapshot.hidden), 1)}


def _used(*, traced: bool) -> int:
    if traced:
        import tracemalloc

        return tracemalloc.get_traced_memory()[0]
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _tokens(text: str) -> int:
    """An estimate: four ASCII characters a token, two of other alphabets, one of CJK."""
    return (sum(1 if char < "\x80" else 2 if char < "\u0800" else 4 for char in text) + 3) // 4


def catalogue(root: str, sizes: list[int], budget: int, rounds: int) -> Figures:
    """Seconds and size of the block for the first so many skills, in turns."""
    from satchel.catalogue import build_catalogue

    snapshot = _cold(root)
    # Those that share a name with another too: more than a library offers, and all the harder.
    everything = (*snapshot.skills, *snapshot.hidden)
    chosen = {count: everything[:count] for count in sizes if count <= len(everything)}
    spent: dict[int, list[float]] = {count: [] for count in chosen}
    known: dict[int, list[float]] = {count: [] for count in chosen}
    figures: Figures = {}
    for _ in range(rounds):
        for count, skills in chosen.items():
            began = _cpu()
            built = build_catalogue(skills, budget=budget)
            middle = _cpu()
            build_catalogue(skills, budget=budget, withheld=built.account.withheld)
            known[count].append(_cpu() - middle)
            spent[count].append(middle - began)
            account = built.account
            figures[str(count)] = {
                "characters": len(built.text),
                "tokens": _tokens(built.text),
                "described": len(account.full) + len(account.shortened),
                "named": len(account.named),
                "unlisted": account.unlisted,
            }
    for count in chosen:
        figures[str(count)]["cpu"] = statistics.median(spent[count])
        figures[str(count)]["known"] = statistics.median(known[count])
    return figures


def load(root: str, names: int) -> Figures:
    """Microseconds to load one skill by name, in each way a host may do it."""
    figures: Figures = {}
    satchel = _satchel(root, trust="all", refresh_on_call=False)
    skills = satchel.list_skills()
    step = max(1, len(skills) // names)
    wanted = [skill.name for skill in skills[::step]][: min(names, 200)]
    tools = satchel.tools()
    tools.call("Skill", {"name": wanted[0]})  # imports
    satchel.load_content(wanted[0])
    rest = wanted[1:] or wanted
    ways: dict[str, Callable[[str], Any]] = {
        "body read": satchel.load_content,
        "call, first": lambda name: tools.call("Skill", {"name": name}),
        "call, cached": lambda name: tools.call("Skill", {"name": name}),
    }
    for way, call in ways.items():
        spent = [_timed(lambda name=name, call=call: call(name)) for name in rest]
        figures[way] = statistics.median(spent)
    fresh = _satchel(root, trust="all", refresh_on_call=True)
    fresh.library.snapshot()
    calls = fresh.tools()
    calls.call("Skill", {"name": wanted[0]})
    few = wanted[:5] if len(skills) > 5_000 else wanted[:50]
    figures["call, refreshed"] = statistics.median(
        [_timed(lambda name=name: calls.call("Skill", {"name": name})) for name in few]
    )
    return figures


def _timed(call: Callable[[], Any]) -> float:
    began = _cpu()
    call()
    return (_cpu() - began) * 1e6


def search(root: str, queries: int) -> Figures:
    """Seconds of a search: the first one after a look, and the ones after it."""
    satchel = _satchel(root, trust="all")
    skills = satchel.list_skills()
    from satchel.detect import LexicalDetector

    detector = LexicalDetector()
    everything = satchel.library.snapshot().skills
    began = _cpu()
    detector.detect("deploy a report", everything)
    first = _cpu() - began
    spent: list[float] = []
    step = max(1, len(skills) // queries)
    for skill in skills[::step][:queries]:
        words = " ".join(skill.description.split()[:4])
        began = _cpu()
        detector.detect(words, everything)
        spent.append(_cpu() - began)
    return {"first": first, "later": statistics.median(spent)}


def survive(root: str, broken: list[str], healthy: int) -> Figures:
    """Whether broken folders cost a neighbour, and whether each of them can be seen."""
    snapshot = _cold(root)
    names = {skill.id for skill in snapshot.skills}
    said = [problem.path for problem in snapshot.problems]
    silent = [
        folder
        for folder in broken
        if folder not in names and not any(f"/{folder}" in path for path in said)
    ]
    return {"lost": healthy - len(names - set(broken)), "silent": len(silent)}


KINDS: dict[str, Callable[..., Figures]] = {
    function.__name__: function
    for function in (
        cold, start, stat, refresh, memory, catalogue, load, search, survive,
    )
}  # fmt: skip


if __name__ == "__main__":
    print(json.dumps(KINDS[sys.argv[1]](**json.loads(sys.argv[2]))))
