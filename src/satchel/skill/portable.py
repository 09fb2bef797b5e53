"""What does a SKILL.md's frontmatter say to somebody who reads it with another library?

A skill that travels is read twice: here, and by a host that compares field by field and loads
nothing on a difference. So the fields are rendered as YAML 1.2 has them, which is what most hosts
read with: `yes` is a text, `010` is ten, a date is the text that was written. What two readers
cannot agree on (repeated keys, aliases, text that only a repair makes readable) is refused.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from satchel.errors import SkillBroken
from satchel.skill.split import decode, split
from satchel.skill.yaml_block import Items, Pairs, Scalar, compose

if TYPE_CHECKING:
    from satchel.skill.yaml_block import Node

_NULL = re.compile(r"(?:~|null|Null|NULL)?\Z")
_BOOL = re.compile(r"(?:true|True|TRUE|false|False|FALSE)\Z")
_INT = re.compile(r"[-+]?[0-9]+\Z")
_BASE = re.compile(r"0(?:o[0-7]+|x[0-9a-fA-F]+)\Z")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z")
_ENDLESS = re.compile(r"(?:[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))\Z")
_NAME = re.compile(r"(?!.*--)[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?")
_TEXTS = {"description": 1024, "compatibility": 500, "license": 0, "allowed-tools": 0}
"""Fields that are text, and how long they may be; 0 means any length."""


def portable_fields(data: bytes) -> dict[str, Any]:
    """The frontmatter of a SKILL.md as plain JSON values, the same for every reader.

    Args:
        data: The whole file.

    Raises:
        SkillBroken: readers would not agree on it, or it is no skill by the published format.
    """
    import yaml

    from satchel.skill.yaml_block import Refusal

    try:
        data.decode()
    except UnicodeDecodeError as exc:
        raise _bad("the file is not UTF-8", "Save it as UTF-8") from exc
    text, _ = decode(data)
    parts = split(text) if text is not None else None
    if parts is None or parts.block is None or parts.first_line != 2:
        raise _bad("it does not begin with frontmatter", "Begin the file with a line `---`")
    try:
        node = compose(parts.block)
        fields = _value(node) if isinstance(node, Pairs) else None
    except Refusal as exc:
        raise _bad(f"its frontmatter uses {exc}", "Write the value out") from exc
    except (yaml.YAMLError, ValueError) as exc:
        raise _bad(
            "its frontmatter is not YAML without a repair", "Run `satchel check` on it"
        ) from exc
    if not isinstance(fields, dict):
        raise _bad("its frontmatter is not a table", "Write `name:` and `description:`")
    check_published(fields)  # pyright: ignore[reportUnknownArgumentType]
    return fields  # pyright: ignore[reportUnknownVariableType]


def check_published(fields: dict[str, Any]) -> None:
    """Make sure that fields are what the published format of skills says of them.

    Raises:
        SkillBroken: one of them is not.
    """
    name = fields.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise _bad(
            "its `name` is not 1 to 64 lowercase letters, digits and single hyphens",
            "Rename it, and its folder",
        )
    if not isinstance(fields.get("description"), str) or not fields["description"].strip():
        raise _bad("it has no `description` that is text", "Say what it does and when to use it")
    for field, most in _TEXTS.items():
        value = fields.get(field, "-")
        if not isinstance(value, str):
            raise _bad(f"its `{field}` is not text", "Put the value in quotes, on one line")
        if most and not 1 <= len(value) <= most:
            raise _bad(f"its `{field}` has not 1 to {most} characters", "Make it shorter")
    metadata: Any = fields.get("metadata", {})
    if not isinstance(metadata, dict) or not all(isinstance(one, str) for one in metadata.values()):  # pyright: ignore[reportUnknownVariableType]
        raise _bad("its `metadata` is not a table of texts", "Put the values in quotes")


def _value(node: Node) -> Any:
    if isinstance(node, Scalar):
        return _scalar(node.text) if node.plain else node.text
    if isinstance(node, Items):
        return [_value(item) for item in node.nodes]
    found: dict[str, Any] = {}
    pairs = iter(node.nodes)
    for key in pairs:
        if not isinstance(key, Scalar):
            raise ValueError("a key is a list or a table")  # noqa: TRY004 - the text is wrong
        if key.text in found or (key.plain and key.text == "<<"):
            raise ValueError("a key is repeated")
        found[key.text] = _value(next(pairs))
    return found


def _scalar(text: str) -> Any:
    if _NULL.match(text):
        return None
    if _BOOL.match(text):
        return text.lower() == "true"
    if _INT.match(text):
        return int(text)
    if _BASE.match(text):
        return int(text, 0)
    if _FLOAT.match(text):
        number = float(text)
        if number in (float("inf"), float("-inf")):
            raise ValueError("a number is too large")
        return number
    if _ENDLESS.match(text):
        raise ValueError("a number is not finite")
    return text


def _bad(what: str, fix: str) -> SkillBroken:
    return SkillBroken(what, fix)
