"""Many processes write at once, and readers look on without a lock.

A reader reads until all writers have ended, and says whether it ever saw a skill whose files do
not belong together.
"""

from __future__ import annotations

import multiprocessing
import os
import queue
import random
import re
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from chaos import works
from satchel.errors import Conflict, SatchelError
from satchel.library.lockfile import pending_changes, read_lock
from satchel.skill.file_tree import FolderTree, MemoryTree, hash_tree, read_whole
from satchel.store.trees import digest_at

if TYPE_CHECKING:
    from multiprocessing.queues import Queue
    from multiprocessing.synchronize import Event

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
    began = time.monotonic()
    spawn = multiprocessing.get_context("spawn")
    told, over = spawn.Queue(), spawn.Event()
    reading = [spawn.Process(target=read, args=(told, over, project, n)) for n in range(readers)]
    writing = [
        spawn.Process(target=write, args=(told, project, n, operations)) for n in range(writers)
    ]
    harm: list[str] = []
    reports: list[dict[str, Any]] = []
    for process in reading + writing:
        process.start()
    try:
        for number in range(writers + readers):
            if number == writers:  # readers go on until all writers have ended
                over.set()
            reports.append(told.get(timeout=max(1.0, limit - (time.monotonic() - began))))
    except queue.Empty:
        harm.append("a process did not end")
    finally:
        for process in reading + writing:
            process.kill()
            process.join()
    seconds = time.monotonic() - began
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
        sum(one.get("done", 0) for one in reports),
        sum(one.get("conflicts", 0) for one in reports),
        sum(one.get("reads", 0) for one in reports),
        sum(one.get("retries", 0) for one in reports),
        max((one.get("most", 0) for one in reports), default=0),
        seconds,
        harm + [line for one in reports for line in one["harm"]],
    )


def write(told: Queue[Any], project: str, seed: int, operations: int) -> None:
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
        except Exception as exc:  # noqa: BLE001 - every error is reported
            harm.append(f"{op}: {type(exc).__name__}: {exc}")
    told.put({"done": done, "conflicts": conflicts, "harm": harm})


def read(told: Queue[Any], over: Event, project: str, seed: int) -> None:
    """Look at skills until the writers have ended."""
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
    told.put({"reads": reads, "retries": retries, "most": most, "harm": harm[:20]})


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
