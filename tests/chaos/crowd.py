"""Many processes write at once, and readers look on without a lock.

    python crowd.py write PROJECT SEED OPERATIONS
    python crowd.py read PROJECT SEED

A writer says at the end what it did. A reader reads until it is told to stop, by the end of its
input, and says whether it ever saw a skill whose files do not belong together.
"""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import threading
import time
from typing import Any, NamedTuple

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from chaos import works
from satchel.errors import Conflict, SatchelError
from satchel.library.lockfile import pending_changes, read_lock
from satchel.skill.file_tree import FolderTree, MemoryTree, hash_tree, read_whole
from satchel.store.trees import digest_at

SKILLS = tuple(f"skill-{number}" for number in range(40))
TRIES = 200


class Outcome(NamedTuple):
    """The result of a crowd."""

    writers: int
    readers: int
    operations: int
    conflicts: int
    """Operations that found a skill changed meanwhile, and were refused."""
    reads: int
    retries: int
    """Looks that had to be repeated because something was just changing."""
    most_tries: int
    seconds: float
    harm: list[str]


def gather(project: str, writers: int, operations: int, readers: int, limit: float) -> Outcome:
    """Let them all loose; `limit` is when a deadlock is called one."""
    here = os.path.abspath(__file__)
    source = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(here))), "src")
    environment = {**os.environ, "PYTHONPATH": source, "PYTHONDONTWRITEBYTECODE": "1"}

    def start(*words: object) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, here, *map(str, words)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
        )

    began = time.monotonic()
    reading = [start("read", project, seed) for seed in range(readers)]
    writing = [start("write", project, seed, operations) for seed in range(writers)]
    harm: list[str] = []
    told: dict[str, list[dict[str, Any]]] = {"write": [], "read": []}
    for kind, processes in (("write", writing), ("read", reading)):
        for process in processes:
            try:
                left = max(1.0, limit - (time.monotonic() - began))
                said, _ = process.communicate(timeout=left)
                told[kind].append(json.loads(said))
            except (subprocess.TimeoutExpired, ValueError) as exc:
                process.kill()
                process.communicate()
                harm.append(f"a process that should {kind} did not end well: {exc}")
    seconds = time.monotonic() - began
    for report in told["write"] + told["read"]:
        harm += report["harm"]
    scope = works.scope_of(project)
    lock = read_lock(scope.lock)
    for skill in SKILLS:
        locked = lock[skill].tree if skill in lock else ""
        if digest_at(scope.target(skill)) != locked:
            harm.append(f"`{skill}` is not what is locked")
    if os.path.exists(scope.part("journal.json")) or os.listdir(scope.part("stage")):
        harm.append("something was left behind")
    return Outcome(
        writers,
        readers,
        sum(report["done"] for report in told["write"]),
        sum(report["conflicts"] for report in told["write"]),
        sum(report["reads"] for report in told["read"]),
        sum(report["retries"] for report in told["read"]),
        max((report["most"] for report in told["read"]), default=0),
        seconds,
        harm,
    )


def write(project: str, seed: int, operations: int) -> dict[str, Any]:
    """Mixed operations on skills that everybody changes."""
    chance = random.Random(seed)
    scope = works.scope_of(project)
    done = conflicts = 0
    harm: list[str] = []
    for number in range(operations):
        skill = chance.choice(SKILLS)
        version = seed * 100_000 + number + 1
        op = chance.choice((*works.OPS, "undo") if number % 10 == 9 else works.OPS)
        if op == "remove" and not os.path.isdir(scope.target(skill)):
            op = "add"
        try:
            works.transactions(project, op, skill, version)
            done += 1
        except Conflict:
            conflicts += 1
        except SatchelError as exc:
            harm.append(f"{op}: {type(exc).__name__}: {exc.message}")
        except Exception as exc:  # noqa: BLE001 - every error is reported
            harm.append(f"{op}: {type(exc).__name__}: {exc}")
    return {"done": done, "conflicts": conflicts, "harm": harm}


def read(project: str, seed: int) -> dict[str, Any]:
    """Look at skills until the input ends."""
    over = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
    chance = random.Random(seed)
    reads = retries = most = 0
    harm: list[str] = []
    while not over.is_set():
        skill = chance.choice(SKILLS)
        time.sleep(0.001)  # leave the writers some of the machine
        tries, wrong = look(project, skill)
        reads += 1
        retries += tries - 1
        most = max(most, tries)
        if wrong:
            harm.append(f"`{skill}`: {wrong}")
    return {"reads": reads, "retries": retries, "most": most, "harm": harm[:20]}


def look(project: str, skill: str) -> tuple[int, str]:
    """Read a skill as documented: by the lock, or by what is under way; else once more."""
    scope = works.scope_of(project)
    for tries in range(1, TRIES + 1):
        lock = read_lock(scope.lock)
        expected = {lock[skill].tree if skill in lock else ""}
        try:
            folder = FolderTree(scope.target(skill))
            files = {file.path: read_whole(folder, file.path) for file in folder.files}
            programs = frozenset(file.path for file in folder.files if file.mode == "program")
            found = hash_tree(MemoryTree(files, programs)).digest
        except (OSError, SatchelError):
            files, found = {}, "" if not os.path.isdir(scope.target(skill)) else "moving"
        if found not in expected:
            under_way = pending_changes(scope.root)
            if skill not in under_way or under_way[skill] != found:
                continue
        versions = {
            match
            for data in files.values()
            for match in re.findall(rb"version (\d+)\n", data[:300])
        }
        return tries, "" if len(versions) <= 1 else f"torn: {sorted(versions)}"
    return TRIES, "it never came to rest"


if __name__ == "__main__":
    words = sys.argv[2:]
    if sys.argv[1] == "write":
        report = write(words[0], int(words[1]), int(words[2]))
    else:
        report = read(words[0], int(words[1]))
    sys.stdout.write(json.dumps(report))
