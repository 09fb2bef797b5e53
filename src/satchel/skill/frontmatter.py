"""A frontmatter block -> fields, with line numbers and repairs.

The whole block is read as YAML first. Only when that fails is it read key by key (`repair`). What
YAML does without a word (the last of two keys wins, ` #` cuts a line, `1.10` becomes 1.1) is said
as a Problem.
"""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Any, NamedTuple

import yaml

from satchel.skill.fields import FIELDS, meant
from satchel.skill.problems import Problem
from satchel.skill.repair import fold, recover
from satchel.skill.yaml_block import (
    UNREAD,
    BadValue,
    Pairs,
    Refusal,
    Scalar,
    compose,
    value_of,
)

if TYPE_CHECKING:
    from collections.abc import Container

    from satchel.skill.yaml_block import (
        Node,
    )


class Fields(NamedTuple):
    """What a block says."""

    values: dict[str, Any]
    """Every top-level key, as PyYAML reads it, or literal text where it was repaired."""
    lines: dict[str, int]
    """The line of each key in the file."""
    texts: dict[str, str]
    """The source of each value that is not text, for when text was meant."""
    problems: list[Problem]


def read_fields(block: str, first_line: int = 1, only: Container[str] | None = None) -> Fields:
    """Read a block.

    Args:
        block: The text between the delimiters.
        first_line: The file's line number of the block's first line.
        only: Keys whose values are wanted; the rest is checked for shape alone.
    """
    refused: Refusal | None = None
    try:
        node = compose(block, only)
        if isinstance(node, Pairs):
            return _from_pairs(node, block, first_line)
        if not isinstance(node, Scalar):
            return _not_a_mapping(node, first_line)
    except Refusal as exc:
        refused = exc
        node = None
    except yaml.YAMLError:
        node = None
    fields = _from_recovery(block, first_line, refused, only)
    if not fields.values:
        return _not_a_mapping(node, first_line, fields.problems)
    return fields


def _not_a_mapping(node: Node | None, line: int, problems: list[Problem] | None = None) -> Fields:
    kind = "empty" if node is None else "text" if isinstance(node, Scalar) else "a list"
    problem = Problem("not-a-mapping", line=line, values={"kind": kind})
    return Fields({}, {}, {}, [*(problems or []), problem])


def _from_pairs(node: Pairs, block: str, first_line: int) -> Fields:
    fields = Fields({}, {}, {}, [])
    nodes = node.nodes
    comments = " #" in block or "\t#" in block
    for number in range(0, len(nodes), 2):
        key, item = nodes[number], nodes[number + 1]
        if not isinstance(key, Scalar):
            raise Refusal("a list or mapping as a key", key.line)
        if key.plain and key.text == "<<":
            raise Refusal("a merge key", key.line)
        name = key.text
        line = first_line + key.line
        if item is UNREAD:
            continue
        if name in fields.lines:
            fields.problems.append(Problem("duplicate-key", line=line, values={"key": name}))
        end = nodes[number + 2].start if number + 2 < len(nodes) else len(block)
        source = block[key.start : end]
        _take(fields, name, item, source, line)
        if comments and isinstance(item, Scalar) and item.plain:
            rest = block[item.end :].partition("\n")[0]
            if rest.lstrip().startswith("#") and item.text:
                fields.problems.append(Problem("hash-comment", line=line, values={"key": name}))
    _respell(fields)
    return fields


def _take(fields: Fields, name: str, item: Node, source: str, line: int) -> None:
    try:
        value = value_of(item)
    except BadValue as exc:
        values = {"key": name, "text": exc.text, "kind": exc.kind}
        fields.problems.append(Problem("bad-value", line=line, values=values))
        value = fold(source) if not isinstance(item, Scalar) else item.text
    except Refusal as exc:
        values = {"key": name, "what": exc.what}
        fields.problems.append(Problem("yaml-refused", line=line, values=values))
        value = fold(source)
    if not isinstance(value, str):
        text = item.text if isinstance(item, Scalar) else fold(source)
        fields.texts[name] = text
        _surprise(fields, name, value, text, line)
    fields.values[name] = value
    fields.lines[name] = line


def _surprise(fields: Fields, name: str, value: Any, text: str, line: int) -> None:
    """Say where YAML turned text into something that reads differently."""
    if name in FIELDS and name != "metadata":
        return  # its own rule speaks of it
    if isinstance(value, float) and (str(value) != text or text.endswith("0")):
        values = {"key": name, "text": text, "value": str(value)}
        fields.problems.append(Problem("number-value", line=line, values=values))
    elif isinstance(value, date):
        fields.problems.append(Problem("date-value", line=line, values={"key": name, "text": text}))


def _from_recovery(
    block: str, first_line: int, refused: Refusal | None, only: Container[str] | None
) -> Fields:
    parts, problems = recover(block, refused)
    fields = Fields({}, {}, {}, [])
    for problem in problems:
        values = problem.values
        if problem.code == "stray-text":
            values = {**values, "at": str(first_line + problem.line)}
        fields.problems.append(problem._replace(line=first_line + problem.line, values=values))
    for part in parts:
        line = first_line + part.line
        if part.key in fields.lines:
            fields.problems.append(Problem("duplicate-key", line=line, values={"key": part.key}))
        if only is not None and part.key.lower() not in only:
            fields.lines[part.key] = line
            continue
        fields.values[part.key] = part.value
        fields.lines[part.key] = line
        if not isinstance(part.value, str):
            fields.texts[part.key] = part.text
            _surprise(fields, part.key, part.value, part.text, line)
    _respell(fields)
    return fields


def _respell(fields: Fields) -> None:
    """Read `Name` as `name` and the like, when the right spelling is absent."""
    for key in list(fields.values):
        right = meant(key)
        if right is None or right in fields.values:
            continue
        values = {"key": key, "meant": right}
        fields.problems.append(Problem("key-spelling", line=fields.lines[key], values=values))
        for table in (fields.values, fields.lines, fields.texts):
            if key in table:
                table[right] = table[key]  # pyright: ignore[reportArgumentType]
