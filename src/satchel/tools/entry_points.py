"""Which installed packages offer something under a name of ours: found without importing them.

The standard library can tell (`importlib.metadata`), and takes 40 ms to be imported. What it reads
are small text files in plain folders, so they are read here in about one. Where packages live
elsewhere, in a zip file or behind a finder of their own, it is asked after all.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from importlib.metadata import Distribution

_MAX = 256 * 1024
_KINDS = (".dist-info", ".egg-info")


class EntryPoint(NamedTuple):
    """One line that a package wrote for us."""

    name: str
    value: str
    """`module:attribute`."""
    package: str
    version: str


_found: dict[tuple[str, tuple[str, ...]], list[EntryPoint]] = {}


def entry_points(group: str) -> list[EntryPoint]:
    """What installed packages declare in a group, by package, then by name.

    It is looked up once for each `sys.path`: a package that is installed meanwhile is seen by the
    next process.
    """
    key = (group, tuple(sys.path))
    if key not in _found:
        found = ask_python(group) if _is_odd() else read_folders(group)
        found.sort(key=lambda one: (one.package != "satchel", one.package, one.name))
        _found[key] = found
    return list(_found[key])


def forget() -> None:
    """Look again: somebody installed a package in this process."""
    _found.clear()


def _is_odd() -> bool:
    """Whether packages may live in more than plain folders."""
    if any(os.path.isfile(path) for path in sys.path):
        return True
    return any(
        hasattr(finder, "find_distributions") and getattr(finder, "__name__", "") != "PathFinder"
        for finder in sys.meta_path
    )


def read_folders(group: str) -> list[EntryPoint]:
    """What packages in plain folders declare."""
    found: list[EntryPoint] = []
    seen: set[str] = set()
    for path in dict.fromkeys(sys.path):
        try:
            with os.scandir(path or ".") as entries:
                folders = [entry for entry in entries if entry.name.endswith(_KINDS)]
        except OSError:
            continue  # not a folder, or not there: Python passes over it too
        for entry in sorted(folders, key=lambda one: one.name):
            package, version = _name_of(entry.name)
            if package in seen:
                continue  # an earlier folder of the path has it, and is the one that is imported
            seen.add(package)
            text = _read(os.path.join(entry.path, "entry_points.txt"))
            if f"[{group}]" in text:
                found += [
                    EntryPoint(name, value, package, version)
                    for name, value in _section(text, group)
                ]
    return found


def _name_of(folder: str) -> tuple[str, str]:
    """Package and version, from `name-1.0.dist-info` or `name-1.0-py3.11.egg-info`."""
    parts = folder.rpartition(".")[0].split("-")
    return parts[0].lower().replace("_", "-").replace(".", "-"), parts[1] if parts[1:] else ""


def _read(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return file.read(_MAX).decode("utf-8", "replace")
    except OSError:
        return ""  # most packages have none


def _section(text: str, group: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    inside = False
    for raw in text.splitlines():
        line = raw.strip()
        if line.startswith("["):
            inside = line == f"[{group}]"
        elif inside and "=" in line and not line.startswith(("#", ";")):
            name, _, value = line.partition("=")
            # What stands in brackets after it is an extra, which nobody uses any more.
            found.append((name.strip(), value.partition("[")[0].strip()))
    return found


def ask_python(group: str) -> list[EntryPoint]:
    """The same from the standard library, which knows every kind of package."""
    from importlib.metadata import entry_points as ask

    return [
        EntryPoint(one.name, one.value.partition("[")[0].strip(), *_whose(one.dist))
        for one in ask(group=group)
    ]


def _whose(package: Distribution | None) -> tuple[str, str]:
    """Package and version; by its folder when it does not tell, since half of it was removed."""
    if package is None:
        return "", ""
    try:
        return package.name.lower().replace("_", "-").replace(".", "-"), package.version
    except Exception:  # noqa: BLE001 - each finder fails in its own way
        return _name_of(os.path.basename(str(getattr(package, "_path", ""))))
