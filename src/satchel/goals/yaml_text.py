"""How is a plan written so that people like to read it? Block texts, few quotes, no references.

Only what JSON knows is written; the safe reader of `satchel.skill` reads it back as it was.
"""

from __future__ import annotations

import json
import re
from typing import Any, cast

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_ ./()'+=-]*(?<! )")
"""Texts that YAML takes for nothing else, unless they are one of these:"""
_WORDS = frozenset(("y", "n", "yes", "no", "on", "off", "true", "false", "null"))
_ODD = re.compile(
    r"[^\n\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]"
)
"""What may not stand as it is: tabs, carriage returns, controls, other line ends."""
_SHORT = 80


def to_yaml(value: dict[str, Any]) -> str:
    """A mapping as a YAML file."""
    return "\n".join(_mapping(value, 0)) + "\n"


def _mapping(table: dict[str, Any], indent: int) -> list[str]:
    lines: list[str] = []
    for key, value in table.items():
        name = _inline(str(key))
        first, rest = _value(value, indent)
        lines.append(f"{' ' * indent}{name}:{first}")
        lines += rest
    return lines


def _items(rows: list[Any], indent: int) -> list[str]:
    lines: list[str] = []
    pad = " " * indent
    for row in rows:
        if isinstance(row, dict) and row:
            inner = _mapping(cast("dict[str, Any]", row), indent + 2)
            lines.append(f"{pad}- {inner[0].lstrip()}")
            lines += inner[1:]
        else:
            first, rest = _value(row, indent)
            lines.append(f"{pad}-{first}")
            lines += rest
    return lines


def _value(value: Any, indent: int) -> tuple[str, list[str]]:
    """What follows on the line of its key, and the lines after it."""
    if isinstance(value, str) and "\n" in value and _fits_block(value):
        tail = len(value) - len(value.rstrip("\n"))
        mark = ("-", "", "+")[min(tail, 2)]
        body = value[: len(value) - tail] if tail < 2 else value[:-1]
        pad = " " * (indent + 2)
        return f" |{mark}", [f"{pad}{line}" if line else "" for line in body.split("\n")]
    if isinstance(value, dict) and value:
        table = cast("dict[str, Any]", value)
        if (flow := _flow(table)) is not None:
            return f" {flow}", []
        return "", _mapping(table, indent + 2)
    if isinstance(value, list | tuple) and value:
        rows = list(cast("list[Any]", value))
        if (flow := _flow(rows)) is not None:
            return f" {flow}", []
        return "", _items(rows, indent + 2)
    return f" {_inline(value)}", []


def _flow(value: Any) -> str | None:
    """A short list or mapping of simple values on one line."""
    if isinstance(value, dict):
        table = cast("dict[str, Any]", value)
        if any(isinstance(item, dict | list | tuple) for item in table.values()):
            return None
        parts = [f"{_inline(str(key))}: {_inline(item)}" for key, item in table.items()]
        text = "{" + ", ".join(parts) + "}"
    else:
        if any(isinstance(item, dict | list | tuple) for item in value):
            return None
        text = "[" + ", ".join(_inline(item) for item in value) + "]"
    return text if len(text) <= _SHORT else None


def _inline(value: Any) -> str:
    if isinstance(value, str):
        if _PLAIN.fullmatch(value) and value.lower() not in _WORDS and len(value) <= 200:
            return value
        return _escaped(value)
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return f"{value:.1f}"
    if isinstance(value, float):
        text = repr(value)
        if "e" in text:  # YAML wants a dot and a sign
            number, _, power = text.partition("e")
            number = number if "." in number else f"{number}.0"
            text = f"{number}e{power if power[0] in '+-' else '+' + power}"
        return text
    return json.dumps(value, ensure_ascii=False)


def _escaped(text: str) -> str:
    """In double quotes."""
    quoted = json.dumps(text, ensure_ascii=False)
    return _ODD.sub(lambda found: f"\\u{ord(found[0]):04x}", quoted)


def _fits_block(text: str) -> bool:
    if _ODD.search(text) or text[0] in " \n":
        return False
    return not any(line != line.rstrip(" ") and not line.strip() for line in text.split("\n"))
