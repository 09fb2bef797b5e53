"""Parses the block of a frontmatter into fields with line numbers.

The block is read as YAML; when that fails, `broken_yaml` recovers its keys. The silent surprises of
YAML are Problems: the last of two keys wins, ` #` starts a comment, `1.10` becomes 1.1.
"""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Any, NamedTuple

import yaml

from satchel.skill.broken_yaml import fold_value, recover_keys
from satchel.skill.fields import FIELDS, correct_spelling
from satchel.skill.problems import Problem
from satchel.skill.yaml_reader import (
    UNREAD,
    BadValue,
    Pairs,
    Scalar,
    YamlRefusal,
    compose,
    value_of,
)

if TYPE_CHECKING:
    from collections.abc import Container

    from satchel.skill.yaml_reader import Node


class ParsedFields(NamedTuple):
    """The fields of a block."""

    values: dict[str, Any]
    """Top-level keys with the values of PyYAML, or literal text after a repair."""
    lines: dict[str, int]
    """Line of each key in the file."""
    texts: dict[str, str]
    """Source of each value that is no text, for fields that must be text."""
    problems: list[Problem]


def read_fields(
    block: str, first_line: int = 1, requested_keys: Container[str] | None = None
) -> ParsedFields:
    """Parse a block.

    Args:
        block: The text between the delimiters.
        first_line: Line number of the block in the file.
        requested_keys: Keys whose values are needed; the others are only checked.
    """
    refusal: YamlRefusal | None = None
    try:
        node = compose(block, requested_keys)
        if isinstance(node, Pairs):
            return _read_pairs(node, block, first_line)
        if not isinstance(node, Scalar):
            return _make_no_mapping(node, first_line)
    except YamlRefusal as exc:
        refusal = exc
        node = None
    except yaml.YAMLError:
        node = None
    fields = _read_broken_block(block, first_line, refusal, requested_keys)
    if not fields.values:
        return _make_no_mapping(node, first_line, fields.problems)
    return fields


def _make_no_mapping(
    node: Node | None, line: int, problems: list[Problem] | None = None
) -> ParsedFields:
    kind = "empty" if node is None else "text" if isinstance(node, Scalar) else "a list"
    problem = Problem("not-a-mapping", line=line, values={"kind": kind})
    return ParsedFields({}, {}, {}, [*(problems or []), problem])


def _read_pairs(node: Pairs, block: str, first_line: int) -> ParsedFields:
    fields = ParsedFields({}, {}, {}, [])
    may_have_comments = " #" in block or "\t#" in block
    ends = [*(key.start for key in node.nodes[2::2]), len(block)]
    for (key, value), end in zip(node.entries(), ends, strict=False):
        if not isinstance(key, Scalar):
            raise YamlRefusal("a list or mapping as a key", key.line)
        if key.plain and key.text == "<<":
            raise YamlRefusal("a merge key", key.line)
        name = key.text
        line = first_line + key.line
        if value is UNREAD:
            continue
        if name in fields.lines:
            fields.problems.append(Problem("duplicate-key", line=line, values={"key": name}))
        _add_field(fields, name, value, block[key.start : end], line)
        if may_have_comments and isinstance(value, Scalar) and value.plain:
            line_end = block[value.end :].partition("\n")[0]
            if line_end.lstrip().startswith("#") and value.text:
                fields.problems.append(Problem("hash-comment", line=line, values={"key": name}))
    _fix_spelling(fields)
    return fields


def _add_field(fields: ParsedFields, name: str, node: Node, source: str, line: int) -> None:
    """Add a field with the value of a node, or with its source text when that is refused."""
    try:
        value = value_of(node)
    except BadValue as exc:
        values = {"key": name, "text": exc.text, "kind": exc.kind}
        fields.problems.append(Problem("bad-value", line=line, values=values))
        value = node.text if isinstance(node, Scalar) else fold_value(source)
    except YamlRefusal as exc:
        values = {"key": name, "what": exc.what}
        fields.problems.append(Problem("yaml-refused", line=line, values=values))
        value = fold_value(source)
    if not isinstance(value, str):
        text = node.text if isinstance(node, Scalar) else fold_value(source)
        fields.texts[name] = text
        _report_conversion(fields, name, value, text, line)
    fields.values[name] = value
    fields.lines[name] = line


def _report_conversion(fields: ParsedFields, name: str, value: Any, text: str, line: int) -> None:
    """Report text that YAML converted into something that reads differently."""
    if name in FIELDS and name != "metadata":
        return  # reported by its own rule
    if isinstance(value, float) and (str(value) != text or text.endswith("0")):
        values = {"key": name, "text": text, "value": str(value)}
        fields.problems.append(Problem("number-value", line=line, values=values))
    elif isinstance(value, date):
        fields.problems.append(Problem("date-value", line=line, values={"key": name, "text": text}))


def _read_broken_block(
    block: str, first_line: int, refusal: YamlRefusal | None, requested_keys: Container[str] | None
) -> ParsedFields:
    broken_keys, problems = recover_keys(block, refusal)
    fields = ParsedFields({}, {}, {}, [])
    for problem in problems:
        values = problem.values
        if problem.code == "stray-text":
            values = {**values, "at": str(first_line + problem.line)}
        fields.problems.append(problem._replace(line=first_line + problem.line, values=values))
    for key in broken_keys:
        line = first_line + key.line
        if key.name in fields.lines:
            fields.problems.append(Problem("duplicate-key", line=line, values={"key": key.name}))
        fields.lines[key.name] = line
        if requested_keys is not None and key.name.lower() not in requested_keys:
            continue
        fields.values[key.name] = key.value
        if not isinstance(key.value, str):
            fields.texts[key.name] = key.text
            _report_conversion(fields, key.name, key.value, key.text, line)
    _fix_spelling(fields)
    return fields


def _fix_spelling(fields: ParsedFields) -> None:
    """Read `Name` as `name` and so on, when the correct spelling is absent."""
    for key in list(fields.values):
        correct_key = correct_spelling(key)
        if correct_key is None or correct_key in fields.values:
            continue
        values = {"key": key, "meant": correct_key}
        fields.problems.append(Problem("key-spelling", line=fields.lines[key], values=values))
        for table in (fields.values, fields.lines, fields.texts):
            if key in table:
                table[correct_key] = table[key]  # pyright: ignore[reportArgumentType]
