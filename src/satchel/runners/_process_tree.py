"""Descendants of a process and the memory they hold together, read from /proc.

Runs inside the launcher: standard library only.
"""

from __future__ import annotations

import os

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def read(path: str) -> bytes:
    """Read a small file of /proc; empty when the process is gone."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        parts: list[bytes] = []
        while part := os.read(descriptor, 65536):
            parts.append(part)
        return b"".join(parts)
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def children(pid: int) -> list[int]:
    """The children of all threads of `pid`."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []
    child_pids: list[int] = []
    for thread in threads:
        child_pids += map(int, read(f"/proc/{pid}/task/{thread}/children").split())
    return child_pids


def children_slowly(pid: int) -> list[int]:
    """`children` for a kernel without these files: reads the parent of every process."""
    child_pids: list[int] = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            # The name in brackets may contain brackets and spaces: count from its end.
            fields = read(f"/proc/{name}/stat").rpartition(b")")[2].split()
            if len(fields) > 1 and int(fields[1]) == pid:
                child_pids.append(int(name))
    return child_pids


def session(pid: int) -> int:
    """The session id of a process; 0 when it is gone."""
    try:
        return os.getsid(pid)
    except OSError:
        return 0


def descendants(pid: int) -> list[int]:
    """All descendants of `pid`, parents first."""
    ordered: list[int] = []
    pids = {pid}
    queue = [pid]
    while queue:
        for child in children_of(queue.pop()):
            if child not in pids:
                pids.add(child)
                ordered.append(child)
                queue.append(child)
    return ordered


def resident(pid: int) -> int:
    """Resident bytes of a process; shared pages count fully."""
    fields = read(f"/proc/{pid}/statm").split()
    return int(fields[1]) * PAGE_BYTES if len(fields) > 1 else 0


def proportional(pid: int) -> int:
    """Resident bytes of a process; shared pages are divided by their users. Slow."""
    for line in read(f"/proc/{pid}/smaps_rollup").splitlines():
        if line.startswith(b"Pss:"):
            return int(line.split()[1]) * 1024
    return resident(pid)


def memory_of(pids: list[int], limit: int) -> int:
    """Bytes that processes hold together.

    The sum of resident pages is cheap, but counts shared pages once per process. So shared pages
    are divided only when that sum is above `limit`.
    """
    total = sum(map(resident, pids))
    if total > limit and len(pids) > 1:
        total = sum(map(proportional, pids))
    return total


def send(pid: int, number: int) -> bool:
    """Send a signal; False when it could not be sent."""
    try:
        os.kill(pid, number)
    except OSError:
        return False
    return True


children_of = (
    children if os.path.exists(f"/proc/self/task/{os.getpid()}/children") else children_slowly
)
