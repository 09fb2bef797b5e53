"""YAML reader with bounds on the cost of hostile input.

`yaml.safe_load` is safe from code, not from cost: aliases multiply, nesting recurses. Here the
parser's events are counted and built into a small tree; aliases, anchors, tags and merges are
refused. Values are converted on demand, by PyYAML's own rules, so they equal those of its safe
loader.
"""

from __future__ import annotations

import math
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import yaml
from yaml.constructor import ConstructorError, SafeConstructor

from satchel.i18n import Message

if TYPE_CHECKING:
    from collections.abc import Callable, Container

try:
    from yaml import cyaml
except ImportError:  # PyYAML without libyaml: slower, same results
    _Parser: Any = yaml.SafeLoader
else:
    _Parser = cast("Any", cyaml).CParser

MAX_DEPTH = 16
MAX_NODES = 2_000

_STR = "tag:yaml.org,2002:str"
_resolvers = cast(
    "dict[str | None, list[tuple[str, Any]]]", yaml.SafeLoader.yaml_implicit_resolvers
)
_construct: Any = SafeConstructor()
_rules = cast("dict[str, Any]", SafeConstructor.yaml_constructors)


class YamlRefusal(Exception):
    """The block uses a feature that is not supported; the message names it."""

    def __init__(self, what: str, line: int) -> None:
        super().__init__(what)
        self.what = what
        self.line = line


class BadValue(Exception):
    """A scalar looks like a number or a date and is invalid."""

    def __init__(self, text: str, kind: str) -> None:
        super().__init__(text)
        self.text = text
        self.kind = kind


class Scalar(NamedTuple):
    """A text; `plain` when unquoted, so that YAML may read it as another type."""

    text: str
    plain: bool
    line: int
    start: int
    end: int


class Items(NamedTuple):
    """A list."""

    nodes: list[Node]
    line: int
    start: int


class Pairs(NamedTuple):
    """A mapping in order, including repeated keys."""

    nodes: list[Node]
    """Keys and values, alternating."""
    line: int
    start: int


Node = Scalar | Items | Pairs


def compose(block: str, only: Container[str] | None = None, most: int = MAX_NODES) -> Node | None:
    """Read one document.

    Args:
        block: The YAML.
        only: Top-level keys whose values are needed. The rest is parsed and counted, and is
            `UNREAD` in the result.
        most: Maximum number of values.

    Raises:
        YamlRefusal: it exceeds a bound or uses aliases, anchors, tags or merges.
        yaml.YAMLError: it is not YAML.
    """
    parser = _Parser(block)
    try:
        return _build(parser.get_event, only, most)
    finally:
        parser.dispose()


UNREAD = Scalar("", plain=False, line=0, start=0, end=0)
"""Placeholder of a value that was not requested."""


def _build(  # noqa: C901, PLR0912, PLR0915 - one loop, one branch an event
    get: Callable[[], Any], only: Container[str] | None, most: int
) -> Node | None:
    stack: list[list[Node]] = []
    top: list[Node] = []
    into: list[Node] = top
    count = depth = 0
    unread = 0  # the depth at which an unwanted value began; 0 while reading
    while True:
        event = get()
        kind = event.__class__
        if kind is yaml.ScalarEvent:
            if event.anchor is not None or event.tag is not None:
                raise YamlRefusal(_feature(event), event.start_mark.line)
            if not unread:
                if depth == 1 and only is not None and len(into) & 1 and _unwanted(into[-1], only):
                    into.append(UNREAD)
                else:
                    mark = event.start_mark
                    into.append(
                        Scalar(
                            event.value,
                            event.implicit[0],
                            mark.line,
                            mark.index,
                            event.end_mark.index,
                        )
                    )
        elif kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
            if event.anchor is not None or event.tag is not None:
                raise YamlRefusal(_feature(event), event.start_mark.line)
            if depth >= MAX_DEPTH:
                deep = Message("more than {part} levels of nesting", part=MAX_DEPTH)
                raise YamlRefusal(deep, event.start_mark.line)
            depth += 1
            if not unread:
                if depth == 2 and only is not None and len(into) & 1 and _unwanted(into[-1], only):
                    into.append(UNREAD)
                    unread = depth
                else:
                    nodes: list[Node] = []
                    mark = event.start_mark
                    shape = Pairs if kind is yaml.MappingStartEvent else Items
                    into.append(shape(nodes, mark.line, mark.index))
                    stack.append(into)
                    into = nodes
        elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
            if not unread:
                into = stack.pop()
            elif unread == depth:
                unread = 0
            depth -= 1
            continue
        elif kind is yaml.AliasEvent:
            raise YamlRefusal("an alias", event.start_mark.line)
        elif kind is yaml.StreamEndEvent:
            return top[0] if top else None
        else:
            if kind is yaml.DocumentStartEvent and top:
                raise YamlRefusal("a second document", event.start_mark.line)
            continue
        count += 1
        if count > most:
            raise YamlRefusal(f"more than {most} values", event.start_mark.line)


def _unwanted(key: Node, only: Container[str]) -> bool:
    return isinstance(key, Scalar) and key.text not in only and key.text.lower() not in only


def _feature(event: Any) -> str:
    return "an anchor" if event.anchor is not None else f"the tag `{event.tag}`"


def value_of(node: Node) -> Any:
    """The Python value of a node, equal to that of PyYAML's safe loader.

    Raises:
        BadValue: an invalid number or date.
        YamlRefusal: a merge key, or a key that is a list or mapping.
    """
    if isinstance(node, Scalar):
        return _scalar(node.text) if node.plain else node.text
    if isinstance(node, Items):
        return [value_of(item) for item in node.nodes]
    found: dict[Any, Any] = {}
    pairs = iter(node.nodes)
    for key in pairs:
        if not isinstance(key, Scalar):
            raise YamlRefusal("a list or mapping as a key", key.line)
        if key.plain and key.text == "<<":
            raise YamlRefusal("a merge key", key.line)
        found[value_of(key)] = value_of(next(pairs))
    return found


def _scalar(text: str) -> Any:
    tag = next((tag for tag, pattern in _resolvers.get(text[:1], ()) if pattern.match(text)), _STR)
    if tag == _STR:
        return text
    try:
        # Not `construct_object`, which keeps every node it constructed.
        return _rules[tag](_construct, yaml.ScalarNode(tag, text))
    except (KeyError, ValueError, OverflowError, ConstructorError) as exc:
        raise BadValue(text, tag.rpartition(":")[2]) from exc


def kind_of(value: Any) -> str:
    """Name of a value's type, for messages."""
    if value is None:
        return "empty"
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, (int, float)):
        return "a number"
    if isinstance(value, str):
        return "text"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, dict):
        return "a mapping"
    return "a date"


def plain(node: Node) -> Any:
    """The JSON value of a node; dates and unrepresentable numbers as text."""
    if isinstance(node, Scalar):
        try:
            value = value_of(node)
        except BadValue:
            return node.text
        if isinstance(value, float):
            return value if math.isfinite(value) else node.text
        if isinstance(value, int):
            return value if value.bit_length() <= 64 else node.text
        return value if value is None or isinstance(value, str) else node.text
    if isinstance(node, Items):
        return [plain(item) for item in node.nodes]
    table: dict[str, Any] = {}
    pairs = iter(node.nodes)
    for key in pairs:
        value = plain(next(pairs))
        table[key.text if isinstance(key, Scalar) else str(plain(key))] = value
    return table


Path = tuple[str | int, ...]
"""Keys and indexes from the top to a value."""


class UnreadableDocument(Exception):
    """The text is neither YAML nor JSON."""

    def __init__(self, reason: str, line: int = 0) -> None:
        super().__init__(reason)
        self.line = line


class YamlDocument:
    """A parsed file.

    Attributes:
        value: The content as JSON values.
        lines: The line of each key and item down to the third level; empty for JSON.
        twice: Repeated keys; the last one counts.
    """

    def __init__(self, value: Any) -> None:
        self.value = value
        self.lines: dict[Path, int] = {}
        self.twice: list[Path] = []


def read_document(text: str, most: int) -> YamlDocument:
    """Parse a whole file.

    Args:
        text: YAML, or JSON when it begins with a brace.
        most: Maximum number of values.

    Raises:
        UnreadableDocument: it is neither, or exceeds a bound.
    """
    if text.lstrip()[:1] == "{":
        import json

        with suppress(ValueError, RecursionError):  # NaN; else a flow mapping of YAML
            return YamlDocument(json.loads(text, object_pairs_hook=_unique, parse_constant=int))
    node = _compose(text, most)
    document = YamlDocument(None if node is None else plain(node))
    if node is not None:
        _record_lines(node, (), document)
    return document


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The fields of a JSON object; the reader of YAML reports a key that is there twice."""
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise ValueError
    return fields


def _compose(text: str, most: int) -> Node | None:
    try:
        return compose(text, most=most)
    except YamlRefusal as exc:
        raise UnreadableDocument(f"it has {exc}", exc.line + 1) from exc
    except yaml.YAMLError as exc:
        raise UnreadableDocument(*yaml_error(exc)) from exc


def yaml_error(exc: yaml.YAMLError) -> tuple[str, int]:
    """The reason of a YAML error and its line; 0 when it has none."""
    mark: Any = getattr(exc, "problem_mark", None)
    reason = str(getattr(exc, "problem", "") or getattr(exc, "reason", "") or "it is damaged")
    return reason[:200], mark.line + 1 if mark else 0


def _record_lines(node: Node, path: Path, document: YamlDocument) -> None:
    if isinstance(node, Items):
        for index, item in enumerate(node.nodes):
            here = (*path, index)
            document.lines[here] = item.line + 1
            if len(here) < 3:
                _record_lines(item, here, document)
    elif isinstance(node, Pairs):
        pairs = iter(node.nodes)
        for key in pairs:
            value = next(pairs)
            here = (*path, key.text if isinstance(key, Scalar) else str(plain(key)))
            if here in document.lines:
                document.twice.append(here)
            document.lines[here] = key.line + 1
            if len(here) < 3:
                _record_lines(value, here, document)
