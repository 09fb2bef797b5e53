"""How is one table of a TOML file changed without touching the rest of it?

The standard library reads TOML and does not write it. The table is found by its heading and put
there as text, or cut out; what the result says is compared with what it should say before anybody
gets it.
"""

from __future__ import annotations

import json
import re
import tomllib
from typing import Any, NamedTuple, cast

# Whatever may hold a bracket, a `#` or the end of a line without meaning it. The text was read
# as TOML before, so everything that opens is closed.
_WHOLE = re.compile(
    r'"""(?:[^\\]|\\.)*?"""(?:"{0,2})'
    r"|'''.*?'''(?:'{0,2})"
    r'|"(?:[^"\\\n]|\\.)*"'
    r"|'[^'\n]*'"
    r"|#[^\n]*",
    re.DOTALL,
)


class Row(NamedTuple):
    """A statement, a comment or an empty line, by its places in the text."""

    start: int
    end: int
    """Behind its last line."""
    kind: str
    """The first character that counts: `[` for a heading, `#`, or nothing for an empty line."""


def get(text: str, table: str, name: str) -> Any:
    """The entry as a value; None when there is none.

    Raises:
        ValueError: it is not the TOML that was expected.
    """
    held = _read(text).get(table)
    return cast("dict[str, Any]", held).get(name) if isinstance(held, dict) else None


def written(table: str, name: str, entry: dict[str, Any], line: str = "\n") -> str:
    """An entry as a table."""
    rows = [f"[{table}.{name}]"]
    for key, value in entry.items():
        shown = json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        rows.append(f"{key} = {shown}")
    return line.join(rows) + line


def put(text: str, table: str, name: str, entry: dict[str, Any]) -> str:
    """The text with `entry` under `table` and `name`.

    Raises:
        ValueError: it is not the TOML that was expected.
    """
    before = _read(text)
    held = before.get(table, {})
    if not isinstance(held, dict):
        raise ValueError(f"`{table}` is not a table")  # noqa: TRY004 - the text is wrong, not the call
    if get(text, table, name) == entry:  # however it is written
        return text
    line = _line(text)
    block = written(table, name, entry, line)
    found = _blocks(text, table, name)
    if not found and name in held:
        raise _odd(table, name)
    if not found:
        gap = "" if not text.strip() else line if text.endswith("\n") else line * 2
        after = f"{text}{gap}{block}"
    else:
        after = _without(text, found[1:])
        after = after[: found[0][0]] + block + after[found[0][1] :]
    if _read(after) != {**before, table: {**held, name: entry}}:
        raise ValueError("the result would not be what it should be")
    return after


def drop(text: str, table: str, name: str) -> str:
    """The text without the entry. Remarks before and behind it stay.

    Raises:
        ValueError: it is not the TOML that was expected.
    """
    if get(text, table, name) is None:
        return text
    found = _blocks(text, table, name)
    if not found:
        raise _odd(table, name)
    after = _without(text, found)
    before = _read(text)
    held = {key: value for key, value in before[table].items() if key != name}
    result = _read(after)
    if {**before, table: held} not in (result, {table: {}, **result}):
        raise ValueError("the result would not be what it should be")
    return after


def _odd(table: str, name: str) -> ValueError:
    return ValueError(f"`{table}.{name}` is not written as a table of its own")


def _read(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as exc:
        raise ValueError(f"it is not TOML: {exc}") from exc


def _line(text: str) -> str:
    """How a line ends here."""
    at = text.find("\n")
    return "\r\n" if at > 0 and text[at - 1] == "\r" else "\n"


def _without(text: str, blocks: list[tuple[int, int]]) -> str:
    """The text without some places of it, nor the empty lines that only kept them apart."""
    for start, end in reversed(blocks):
        head, rest = text[:start], text[end:]
        if not rest.split("\n", 1)[0].strip():
            kept = head.rstrip("\r\n")
            head = head[: len(kept)] + (_line(text) if kept else "")
            rest = rest if kept else rest.lstrip("\r\n")
        text = head + rest
    return text


def _blocks(text: str, table: str, name: str) -> list[tuple[int, int]]:
    """From each heading of the entry, or of something below it, to the last statement there."""
    found: list[tuple[int, int]] = []
    ours = False
    for row in _rows(text):
        if row.kind == "[":
            ours = _path(text[row.start : row.end])[:2] == (table, name)
            if ours and found and not text[found[-1][1] : row.start].strip():
                found[-1] = (found[-1][0], row.end)
            elif ours:
                found.append((row.start, row.end))
        elif ours and row.kind not in {"", "#"}:
            found[-1] = (found[-1][0], row.end)
    return found


def _path(heading: str) -> tuple[str, ...]:
    """The names in a heading, however they are quoted."""
    names: list[str] = []
    value: Any = tomllib.loads(heading)
    while value:
        if isinstance(value, list):
            value = cast("list[Any]", value)[0]
            continue
        [(key, value)] = cast("dict[str, Any]", value).items()
        names.append(key)
    return tuple(names)


def _rows(text: str) -> list[Row]:
    """The text in pieces: what looks like a heading inside a string or a list is none."""
    rows: list[Row] = []
    start = at = depth = 0
    while at < len(text):
        whole = _WHOLE.match(text, at)
        if whole is not None:
            at = whole.end()
            continue
        mark = text[at]
        at += 1
        if mark in "[{":
            depth += 1
        elif mark in "]}":
            depth -= 1
        elif mark == "\n" and not depth:
            rows.append(Row(start, at, text[start:at].lstrip()[:1]))
            start = at
    if start < at:
        rows.append(Row(start, at, text[start:at].lstrip()[:1]))
    return rows
