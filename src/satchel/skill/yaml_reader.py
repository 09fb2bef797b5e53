"""YAML reader with bounds on the cost of hostile input.

`yaml.safe_load` is safe from code, not from cost: aliases multiply, nesting recurses. Here the
parser's events are counted and built into a small tree; aliases, anchors, tags and merges are
refused. Values are converted on demand, by PyYAML's own rules, so they equal those of its safe
loader.
"""

from __future__ import annotations

import json
import math
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import yaml
from yaml.constructor import ConstructorError, SafeConstructor

from satchel.i18n import Message

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator

try:
    from yaml import cyaml
except ImportError:  # PyYAML without libyaml: slower, same results
    _Parser: Any = yaml.SafeLoader
else:
    _Parser = cast("Any", cyaml).CParser

MAX_DEPTH = 16
MAX_NODES = 2_000
_START_EVENTS = (yaml.MappingStartEvent, yaml.SequenceStartEvent)
_END_EVENTS = (yaml.MappingEndEvent, yaml.SequenceEndEvent)

_TEXT_TAG = "tag:yaml.org,2002:str"
_resolvers = cast(
    "dict[str | None, list[tuple[str, Any]]]", yaml.SafeLoader.yaml_implicit_resolvers
)
_constructor: Any = SafeConstructor()
_constructors = cast("dict[str, Any]", SafeConstructor.yaml_constructors)


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

    def entries(self) -> Iterator[tuple[Node, Node]]:
        """Yield each key with its value."""
        return zip(self.nodes[::2], self.nodes[1::2], strict=True)


Node = Scalar | Items | Pairs
UNREAD = Scalar("", plain=False, line=0, start=0, end=0)
"""Placeholder of a value that was not requested."""


def compose(
    block: str, requested_keys: Container[str] | None = None, max_nodes: int = MAX_NODES
) -> Node | None:
    """Read one document.

    Args:
        block: The YAML.
        requested_keys: Top-level keys whose values are needed. Other values are parsed and counted,
            and are `UNREAD` in the result.
        max_nodes: Maximum number of values.

    Raises:
        YamlRefusal: it exceeds a bound or uses aliases, anchors, tags or merges.
        yaml.YAMLError: it is not YAML.
    """
    parser = _Parser(block)
    try:
        return _TreeBuilder(requested_keys, max_nodes).build(parser.get_event)
    finally:
        parser.dispose()


class _TreeBuilder:
    """Builds nodes from the events of a parser, and bounds their number and depth."""

    __slots__ = (
        "depth",
        "max_nodes",
        "nodes",
        "outer_nodes",
        "requested_keys",
        "top_nodes",
        "unread_depth",
    )

    def __init__(self, requested_keys: Container[str] | None, max_nodes: int) -> None:
        self.requested_keys = requested_keys
        self.max_nodes = max_nodes
        self.top_nodes: list[Node] = []
        self.nodes = self.top_nodes
        """Nodes of the innermost open list or mapping."""
        self.outer_nodes: list[list[Node]] = []
        """Nodes of the lists and mappings around it."""
        self.depth = 0
        self.unread_depth = 0
        """The depth at which a value began that was not requested; 0 while reading."""

    def build(self, next_event: Callable[[], Any]) -> Node | None:
        """Read all events of one document."""
        count = 0
        while True:
            event = next_event()
            kind = event.__class__
            if kind is yaml.ScalarEvent:
                if event.anchor is not None or event.tag is not None:
                    raise _feature_refusal(event)
                if not self.unread_depth:
                    self._add_scalar(event)
            elif kind in _START_EVENTS:
                self._open(event)
            elif kind in _END_EVENTS:
                self._close()
                continue
            elif kind is yaml.AliasEvent:
                raise YamlRefusal("an alias", event.start_mark.line)
            elif kind is yaml.StreamEndEvent:
                return self.top_nodes[0] if self.top_nodes else None
            elif kind is yaml.DocumentStartEvent and self.top_nodes:
                raise YamlRefusal("a second document", event.start_mark.line)
            else:
                continue
            count += 1
            if count > self.max_nodes:
                raise YamlRefusal(f"more than {self.max_nodes} values", event.start_mark.line)

    def _add_scalar(self, event: Any) -> None:
        if self.requested_keys is not None and self._is_next_unread():
            self.nodes.append(UNREAD)
            return
        mark = event.start_mark
        self.nodes.append(
            Scalar(event.value, event.implicit[0], mark.line, mark.index, event.end_mark.index)
        )

    def _open(self, event: Any) -> None:
        if event.anchor is not None or event.tag is not None:
            raise _feature_refusal(event)
        mark = event.start_mark
        if self.depth >= MAX_DEPTH:
            raise YamlRefusal(
                Message("more than {part} levels of nesting", part=MAX_DEPTH), mark.line
            )
        is_unread = not self.unread_depth and self._is_next_unread()
        self.depth += 1
        if is_unread:
            self.nodes.append(UNREAD)
            self.unread_depth = self.depth
        elif not self.unread_depth:
            nodes: list[Node] = []
            shape = Pairs if event.__class__ is yaml.MappingStartEvent else Items
            self.nodes.append(shape(nodes, mark.line, mark.index))
            self.outer_nodes.append(self.nodes)
            self.nodes = nodes

    def _close(self) -> None:
        if not self.unread_depth:
            self.nodes = self.outer_nodes.pop()
        elif self.unread_depth == self.depth:
            self.unread_depth = 0
        self.depth -= 1

    def _is_next_unread(self) -> bool:
        """Whether the next node is the value of a top-level key that was not requested."""
        is_value = len(self.nodes) % 2 == 1
        if self.depth != 1 or self.requested_keys is None or not is_value:
            return False
        key = self.nodes[-1]
        return (
            isinstance(key, Scalar)
            and key.text not in self.requested_keys
            and key.text.lower() not in self.requested_keys
        )


def _feature_refusal(event: Any) -> YamlRefusal:
    feature = "an anchor" if event.anchor is not None else f"the tag `{event.tag}`"
    return YamlRefusal(feature, event.start_mark.line)


def value_of(node: Node) -> Any:
    """The Python value of a node, equal to that of PyYAML's safe loader.

    Raises:
        BadValue: an invalid number or date.
        YamlRefusal: a merge key, or a key that is a list or mapping.
    """
    if isinstance(node, Scalar):
        return _scalar_value(node.text) if node.plain else node.text
    if isinstance(node, Items):
        return [value_of(item) for item in node.nodes]
    mapping: dict[Any, Any] = {}
    for key, value in node.entries():
        if not isinstance(key, Scalar):
            raise YamlRefusal("a list or mapping as a key", key.line)
        if key.plain and key.text == "<<":
            raise YamlRefusal("a merge key", key.line)
        mapping[value_of(key)] = value_of(value)
    return mapping


def _scalar_value(text: str) -> Any:
    tag = next(
        (tag for tag, pattern in _resolvers.get(text[:1], ()) if pattern.match(text)), _TEXT_TAG
    )
    if tag == _TEXT_TAG:
        return text
    try:
        # Not `construct_object`, which keeps every node it constructed.
        return _constructors[tag](_constructor, yaml.ScalarNode(tag, text))
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


def to_json(node: Node) -> Any:
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
        return [to_json(item) for item in node.nodes]
    return {_key_text(key): to_json(value) for key, value in node.entries()}


def _key_text(key: Node) -> str:
    return key.text if isinstance(key, Scalar) else str(to_json(key))


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


def read_document(text: str, max_nodes: int) -> YamlDocument:
    """Parse a whole file.

    Args:
        text: YAML, or JSON when it begins with a brace.
        max_nodes: Maximum number of values.

    Raises:
        UnreadableDocument: it is neither, or exceeds a bound.
    """
    if text.lstrip()[:1] == "{":
        with suppress(ValueError, RecursionError):  # NaN; else a flow mapping of YAML
            return YamlDocument(
                json.loads(text, object_pairs_hook=_reject_duplicates, parse_constant=int)
            )
    node = _compose_document(text, max_nodes)
    document = YamlDocument(None if node is None else to_json(node))
    if node is not None:
        _record_lines(node, (), document)
    return document


def _reject_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The fields of a JSON object; the reader of YAML reports a key that is there twice."""
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise ValueError
    return fields


def _compose_document(text: str, max_nodes: int) -> Node | None:
    try:
        return compose(text, max_nodes=max_nodes)
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
            value_path = (*path, index)
            document.lines[value_path] = item.line + 1
            if len(value_path) < 3:
                _record_lines(item, value_path, document)
    elif isinstance(node, Pairs):
        for key, value in node.entries():
            value_path = (*path, _key_text(key))
            if value_path in document.lines:
                document.twice.append(value_path)
            document.lines[value_path] = key.line + 1
            if len(value_path) < 3:
                _record_lines(value, value_path, document)
