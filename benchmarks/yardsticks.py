"""The lower bound of discovery: the same walk written by hand.

These are the yardsticks, not competitors. `python_limit` does no check, no repair, no record and
reads only what plain `key: value` lines say; no library can be honest and faster in plain Python.
`c_loader` is what one gets by calling the compiled YAML loader on every file.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HEAD = 4096
"""Most frontmatters end within the first page of the file."""

MAX_DEPTH = 6
SKIPPED = frozenset({".git", "node_modules"})

Skills = dict[str, dict[str, Any]]
Stamps = dict[str, tuple[int, int]]


def python_limit(root: str) -> Skills:
    """List the root, read 4 KB of `<folder>/SKILL.md`, parse by hand."""
    return _read_all(_children(root), parse_by_hand)


def python_limit_recursive(root: str) -> Skills:
    """The same, but look into every folder first, as a library that finds nested skills must."""
    return _read_all(_walk(root), parse_by_hand)


def c_loader(root: str) -> Skills:
    """List the root, read the frontmatter, give it to PyYAML's C loader."""
    return _read_all(_children(root), parse_by_c_loader)


def c_loader_grouped(root: str) -> Skills:
    """The same where skills lie in folders one level down: list those, look for nothing else."""
    return _read_all(_grandchildren(root), parse_by_c_loader)


def c_loader_recursive(root: str) -> Skills:
    """The recursive walk with the C loader on every file."""
    return _read_all(_walk(root), parse_by_c_loader)


def prepare_scandir_stat(root: str) -> Stamps:
    """What an index knew from last time: when each file changed, and its size."""
    known: Stamps = {}
    for path in _children(root):
        try:
            found = os.stat(path)
        except OSError:
            continue
        known[path] = (found.st_mtime_ns, found.st_size)
    return known


def scandir_stat(root: str, known: Stamps) -> list[str]:
    """Which files changed since `known`: the least a warm start can do."""
    changed: list[str] = []
    for path in _children(root):
        try:
            found = os.stat(path)
        except OSError:
            continue
        if known.get(path) != (found.st_mtime_ns, found.st_size):
            changed.append(path)
    return changed


def pairs(found: Skills | list[str]) -> list[tuple[str, str]]:
    """Name and description of everything found, for the comparison with the truth."""
    if isinstance(found, list):
        return []
    return [
        (str(data["name"]), str(data["description"]))
        for data in found.values()
        if "name" in data and "description" in data
    ]


def parse_by_hand(head: bytes, _path: str) -> dict[str, Any] | None:
    """Read `key: value` lines, quotes, and one level of nesting; anything else is read wrongly."""
    text = head.decode("utf-8", "replace")
    if not text.startswith("---\n"):
        return None
    end = text.find("\n---", 3)
    if end < 0:
        return None
    data: dict[str, Any] = {}
    nested: dict[str, str] | None = None
    for line in text[4:end].split("\n"):
        key, colon, value = line.partition(":")
        if not colon:
            continue
        value = value.strip()
        if value and value[0] in "\"'" and value[-1] == value[0]:
            value = value[1:-1]
        if line[0] == " ":
            if nested is not None:
                nested[key.strip()] = value
        elif value:
            data[key] = value
            nested = None
        else:
            data[key] = nested = {}
    return data


def parse_by_c_loader(head: bytes, path: str) -> dict[str, Any] | None:
    """Find the block and let the compiled YAML loader read it; a block it refuses is dropped."""
    import yaml

    text = head.decode("utf-8", "replace").replace("\r\n", "\n").removeprefix("\ufeff")
    if not text.startswith("---"):
        return None
    end = text.find("\n---", 3)
    if end < 0:
        if len(head) < HEAD:
            return None
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read().removeprefix("\ufeff")
        end = text.find("\n---", 3)
        if end < 0:
            return None
    try:
        data = yaml.load(text[text.find("\n") : end], Loader=yaml.CSafeLoader)
    except (yaml.YAMLError, ValueError, TypeError):
        return None
    return data if isinstance(data, dict) else None  # pyright: ignore[reportUnknownVariableType]


def _children(root: str) -> Iterator[str]:
    with os.scandir(root) as entries:
        for entry in entries:
            yield entry.path + "/SKILL.md"


def _grandchildren(root: str) -> Iterator[str]:
    with os.scandir(root) as groups:
        for group in groups:
            yield from _children(group.path)


def _walk(root: str) -> Iterator[str]:
    waiting = [(root, 0)]
    while waiting:
        folder, depth = waiting.pop()
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name == "SKILL.md":
                    yield entry.path
                elif (
                    depth < MAX_DEPTH
                    and entry.is_dir(follow_symlinks=False)
                    and entry.name not in SKIPPED
                ):
                    waiting.append((entry.path, depth + 1))


def _read_all(paths: Iterator[str], parse: Callable[[bytes, str], dict[str, Any] | None]) -> Skills:
    found: Skills = {}
    for path in paths:
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except OSError:
            continue
        try:
            head = os.read(descriptor, HEAD)
        finally:
            os.close(descriptor)
        data = parse(head, path)
        if data is not None:
            found[path] = data
    return found
