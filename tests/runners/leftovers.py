"""What is still there after a program has ended."""

from __future__ import annotations

import os
import time

MARK = "SATCHEL_TEST_MARK"
"""A variable that marks a program and all that it starts."""


def marked(mark: str) -> list[int]:
    """Every process that has this mark in its environment or among its arguments."""
    wanted = mark.encode()
    return [
        int(name)
        for name in os.listdir("/proc")
        if name.isdigit()
        and any(wanted in read(f"/proc/{name}/{file}") for file in ("environ", "cmdline"))
    ]


def read(path: str) -> bytes:
    """A file of /proc; empty when there is none any more."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def below(pid: int) -> dict[int, str]:
    """Every descendant of a process, with its state (`Z` is a zombie)."""
    parents: dict[int, tuple[int, str]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            fields = read(f"/proc/{name}/stat").rpartition(b")")[2].split()
            if fields:
                parents[int(name)] = (int(fields[1]), fields[0].decode())
    found: dict[int, str] = {}
    queue = [pid]
    while queue:
        above = queue.pop()
        for each, (parent, state) in parents.items():
            if parent == above and each not in found:
                found[each] = state
                queue.append(each)
    return found


def eventually(condition, seconds: float = 2.0) -> bool:
    """Whether `condition()` becomes true in time."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if condition():
            return True
        time.sleep(0.01)
    return bool(condition())
