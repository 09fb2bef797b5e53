"""The published format of a frontmatter, as hosts see it that read YAML 1.2.

The Skills extension sends a frontmatter as JSON, which must be the same for every reader.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, cast

import yaml

from satchel.errors import SkillBroken
from satchel.skill.frontmatter import decode, split_file
from satchel.skill.yaml_reader import Items, Pairs, Scalar, YamlRefusal, compose

if TYPE_CHECKING:
    from satchel.skill.yaml_reader import Node

_NULL = re.compile(r"(?:~|null|Null|NULL)?\Z")
_BOOL = re.compile(r"(?:true|True|TRUE|false|False|FALSE)\Z")
_INTEGER = re.compile(r"[-+]?[0-9]+\Z")
_OCTAL_OR_HEX = re.compile(r"0(?:o[0-7]+|x[0-9a-fA-F]+)\Z")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z")
_INFINITY_OR_NAN = re.compile(r"(?:[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))\Z")
_PUBLISHED_NAME = re.compile(r"(?!.*--)[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?")
_MAX_CHARS_BY_FIELD = {"description": 1024, "compatibility": 500, "license": 0, "allowed-tools": 0}
"""Text fields and their maximum length; 0 means any length."""


def portable_fields(data: bytes) -> dict[str, Any]:
    """The frontmatter of a SKILL.md as plain JSON values, the same for every reader.

    Args:
        data: The whole file.

    Raises:
        SkillBroken: readers would disagree, or it is no skill by the published format.
    """
    try:
        data.decode()
    except UnicodeDecodeError as exc:
        raise SkillBroken("the file is not UTF-8", "Save the file as UTF-8 without BOM") from exc
    text, _ = decode(data)
    split = split_file(text) if text is not None else None
    if split is None or split.block is None or split.first_line != 2:
        raise SkillBroken("it does not begin with frontmatter", "Begin the file with a line `---`")
    try:
        node = compose(split.block)
        fields = _json_value(node) if isinstance(node, Pairs) else None
    except YamlRefusal as exc:
        raise SkillBroken(f"its frontmatter uses {exc}", "Write the value out") from exc
    except (yaml.YAMLError, ValueError) as exc:
        raise SkillBroken(
            "its frontmatter is not YAML without a repair", "Run `satchel check` on it"
        ) from exc
    if not isinstance(fields, dict):
        raise SkillBroken("its frontmatter is not a table", "Write `name:` and `description:`")
    check_published(fields)  # pyright: ignore[reportUnknownArgumentType]
    return fields  # pyright: ignore[reportUnknownVariableType]


def check_published(fields: dict[str, Any]) -> None:
    """Check fields against the published format.

    Raises:
        SkillBroken: a field violates it.
    """
    name = fields.get("name")
    if not isinstance(name, str) or not _PUBLISHED_NAME.fullmatch(name):
        raise SkillBroken(
            "its `name` is not 1 to 64 lowercase letters, digits and single hyphens",
            "Rename it, and its folder",
        )
    if not isinstance(fields.get("description"), str) or not fields["description"].strip():
        raise SkillBroken(
            "it has no `description` that is text", "Say what it does and when to use it"
        )
    for field, max_chars in _MAX_CHARS_BY_FIELD.items():
        value = fields.get(field, "-")
        if not isinstance(value, str):
            raise SkillBroken(f"its `{field}` is not text", "Put the value in quotes, on one line")
        if max_chars and not 1 <= len(value) <= max_chars:
            raise SkillBroken(
                f"its `{field}` has not 1 to {max_chars} characters", "Make it shorter"
            )
    metadata: Any = fields.get("metadata", {})
    entries = cast("dict[str, Any]", metadata) if isinstance(metadata, dict) else {"": None}
    if not all(isinstance(value, str) for value in entries.values()):
        raise SkillBroken("its `metadata` is not a table of texts", "Put the values in quotes")


def _json_value(node: Node) -> Any:
    """The value of a node by YAML 1.2.

    Raises:
        ValueError: JSON has no such value.
    """
    if isinstance(node, Scalar):
        return _json_scalar(node.text) if node.plain else node.text
    if isinstance(node, Items):
        return [_json_value(item) for item in node.nodes]
    mapping: dict[str, Any] = {}
    for key, value in node.entries():
        if not isinstance(key, Scalar):
            raise ValueError("a key is a list or a table")  # noqa: TRY004 - the text is wrong
        if key.text in mapping or (key.plain and key.text == "<<"):
            raise ValueError("a key is repeated")
        mapping[key.text] = _json_value(value)
    return mapping


def _json_scalar(text: str) -> Any:
    if _NULL.match(text):
        return None
    if _BOOL.match(text):
        return text.lower() == "true"
    if _INTEGER.match(text):
        return int(text)
    if _OCTAL_OR_HEX.match(text):
        return int(text, 0)
    if _FLOAT.match(text):
        number = float(text)
        if number in (float("inf"), float("-inf")):
            raise ValueError("a number is too large")
        return number
    if _INFINITY_OR_NAN.match(text):
        raise ValueError("a number is not finite")
    return text
