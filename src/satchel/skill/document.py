"""A file of YAML or JSON that is no skill, such as a plan: its values, and the lines they stand on.

The bounds of `yaml_block` hold here too: no aliases, anchors, tags or merges.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml

from satchel.skill.manifest_nodes import plain
from satchel.skill.yaml_block import Items, Pairs, Refusal, Scalar, compose

if TYPE_CHECKING:
    from satchel.skill.yaml_block import Node

Path = tuple[str | int, ...]
"""Where a value stands: keys and indexes from the top."""


class Unreadable(Exception):
    """The text is neither YAML nor JSON; the message says why."""

    def __init__(self, reason: str, line: int = 0) -> None:
        super().__init__(reason)
        self.line = line


class Document:
    """One file, read.

    Attributes:
        value: What it says, as JSON knows it.
        lines: The line of each key and item down to the third level; none for JSON.
        twice: Keys that stand in a mapping more than once; the last one counts.
    """

    def __init__(self, value: Any) -> None:
        self.value = value
        self.lines: dict[Path, int] = {}
        self.twice: list[Path] = []


def read_document(text: str, most: int) -> Document:
    """Read a whole file.

    Args:
        text: YAML, or JSON when it begins with a brace.
        most: How many values it may have.

    Raises:
        Unreadable: it is neither, or goes over a bound.
    """
    if text.lstrip()[:1] == "{":
        try:
            return _json(text)
        except (ValueError, RecursionError) as exc:
            if not _is_yaml(text, most):
                line = getattr(exc, "lineno", 0)
                raise Unreadable(str(getattr(exc, "msg", exc)), line) from exc
    node = _compose(text, most)
    document = Document(None if node is None else plain(node))
    if node is not None:
        _note(node, (), document)
    return document


def _json(text: str) -> Document:
    import json

    twice: list[str] = []

    def table(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            names = [name for name, _ in pairs]
            twice.extend(name for name in found if names.count(name) > 1)
        return found

    def refused(name: str) -> float:
        raise ValueError(f"`{name}` is no number")

    document = Document(json.loads(text, object_pairs_hook=table, parse_constant=refused))
    document.twice = [(name,) for name in twice]
    return document


def _is_yaml(text: str, most: int) -> bool:
    try:
        return _compose(text, most) is not None
    except Unreadable:
        return False


def _compose(text: str, most: int) -> Node | None:
    try:
        return compose(text, most=most)
    except Refusal as exc:
        raise Unreadable(f"it has {exc}", exc.line + 1) from exc
    except yaml.YAMLError as exc:
        mark: Any = getattr(exc, "problem_mark", None)
        reason = str(getattr(exc, "problem", "") or getattr(exc, "reason", "") or "it is damaged")
        raise Unreadable(reason[:200], mark.line + 1 if mark else 0) from exc


def _note(node: Node, path: Path, document: Document) -> None:
    """Where things stand."""
    if isinstance(node, Items):
        for index, item in enumerate(node.nodes):
            here = (*path, index)
            document.lines[here] = item.line + 1
            if len(here) < 3:
                _note(item, here, document)
    elif isinstance(node, Pairs):
        pairs = iter(node.nodes)
        for key in pairs:
            value = next(pairs)
            here = (*path, key.text if isinstance(key, Scalar) else str(plain(key)))
            if here in document.lines:
                document.twice.append(here)
            document.lines[here] = key.line + 1
            if len(here) < 3:
                _note(value, here, document)
