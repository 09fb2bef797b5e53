"""The Python source of a tool skill: which files there are, and what the rules ask of them.

Files are read and parsed, never run. Programs in other languages are proven by `check --run`.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from satchel._fs import read_plain

MAX_FILE = 256 * 1024
MAX_FILES = 40
MAX_FOLDERS = 2_000
_LEFT_OUT = frozenset((
    "node_modules", "vendor", "venv", "__pycache__", "dist", "build", "target", "tests", "test",
    "testdata", "references", "assets",
))  # fmt: skip


class Source(NamedTuple):
    """One file."""

    path: str
    """Relative to the skill's folder, with `/`."""
    text: str


class Spot(NamedTuple):
    """A place in the source."""

    text: str
    path: str
    line: int


class Look(NamedTuple):
    """What a program looks like."""

    reads: Spot | None = None
    """Why it does not read one line, if so; the text is a sentence."""
    writes: Spot | None = None
    """Why it does not write one line, if so."""
    loud: tuple[Spot, ...] = ()
    """Where something else goes to stdout."""
    errors: tuple[Spot, ...] = ()
    """Texts of errors, with `…` for what is filled in."""
    leaks: tuple[Spot, ...] = ()
    """Where an error shows what Python said."""
    guarded: bool = True
    """Whether something catches everything."""
    writes_files: bool = False
    looks_first: bool = False
    """Whether it asks if a file exists."""
    broken: Spot | None = None
    """The file cannot be parsed."""


def program_files(folder: str, entry: str) -> list[Source]:
    """The program's files, the entry first; what cannot be read is left out."""
    names: list[str] = []
    for walked, (here, folders, files) in enumerate(os.walk(folder)):
        near = os.path.relpath(here, folder).replace(os.sep, "/")
        folders[:] = sorted(
            name for name in folders if name not in _LEFT_OUT and not name.startswith(".")
        )
        if near.count("/") > 3:
            folders[:] = []
        for name in sorted(files):
            stem = name.rpartition(".")[0]
            if name.endswith(".py") and not _is_test(stem):
                names.append(name if near == "." else f"{near}/{name}")
        if len(names) > MAX_FILES or walked > MAX_FOLDERS:
            break
    names.sort(key=lambda name: name != entry)
    found: list[Source] = []
    for name in names[:MAX_FILES]:
        text = read_text(os.path.join(folder, name))
        if text is not None:
            found.append(Source(name, text))
    return found


def _is_test(stem: str) -> bool:
    return stem.startswith("test_") or stem.endswith("_test")


def read_text(path: str, limit: int = MAX_FILE) -> str | None:
    """A small file as text; None when it is something else."""
    try:
        return read_plain(path, limit).decode("utf-8")
    except (OSError, UnicodeDecodeError):
        return None
