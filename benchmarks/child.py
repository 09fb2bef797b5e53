"""Measures one discovery adapter once, in its own process.

Run by `measure.py` with the interpreter of the environment under test:

    python -I child.py ADAPTER FUNCTION ROOT PAIRS_FILE

Prints one JSON object. The process imports next to nothing, so that the memory added is the
adapter's own. Importing the adapter is timed apart from the discovery.
"""

import gc
import importlib.util
import json
import os
import resource
import sys
import time
from typing import Any


def resident_mb() -> float:
    """Memory of this process that is in RAM now."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def cpu_seconds() -> float:
    """CPU time of this process, its threads, and the programs it ran."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def load(path: str) -> Any:
    """Import a file outside any package, under a unique name."""
    spec = importlib.util.spec_from_file_location("adapter_under_test", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main() -> None:
    """Import, prepare, measure, write what was found, print the figures."""
    adapter_path, function, root, pairs_file = sys.argv[1:]
    # Libraries print; the answer must be the only thing on the pipe.
    answer = os.dup(1)
    os.dup2(2, 1)
    started = cpu_seconds()
    adapter = load(adapter_path)
    import_cpu = cpu_seconds() - started
    prepare = getattr(adapter, f"prepare_{function}", None)
    extra = (prepare(root),) if prepare else ()
    gc.collect()
    before = resident_mb()
    wall, cpu = time.perf_counter(), cpu_seconds()
    found = getattr(adapter, function)(root, *extra)
    cpu, wall = cpu_seconds() - cpu, time.perf_counter() - wall
    gc.collect()
    added = resident_mb() - before
    with open(pairs_file, "w", encoding="utf-8") as file:
        json.dump(adapter.pairs(found), file)
    figures = {"cpu": cpu, "wall": wall, "rss_added_mb": added, "import_cpu": import_cpu}
    os.write(answer, json.dumps(figures).encode())


main()
