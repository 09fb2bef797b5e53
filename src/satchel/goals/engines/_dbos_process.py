"""Which process is this, and is that other one still alive? For who takes over from whom.

A name says the machine, its namespace of processes, the process and when it began. So another
process of the same machine knows at once that it is gone; others wait until its lease runs out.
"""

from __future__ import annotations

import os
import secrets


def own_name() -> str:
    """A name that no other process ever has."""
    pid = os.getpid()
    return f"{_machine()}:{pid}:{_began(pid)}:{secrets.token_hex(4)}"


def surely_dead(name: str) -> bool:
    """Whether a process of this machine is gone. False when that cannot be known from here."""
    parts = name.split(":")
    if len(parts) != 4 or parts[0] != _machine() or not parts[0] or not parts[1].isdigit():
        return False
    began = _began(int(parts[1]))
    return began != parts[2] if began or parts[2] else False


def _machine() -> str:
    """The same for processes that see each other's numbers; empty where that cannot be told."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot = file.read().strip()
        return f"{boot[:13]}-{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return ""


def _began(pid: int) -> str:
    """When a process began, in ticks since the machine did; empty when it is gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in {"Z", "X"} else fields[19]
