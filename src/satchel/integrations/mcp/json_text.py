"""How is one entry of a JSON file changed without touching the rest of it?

Programs allow comments and commas at the end in their JSON, people lay it out as they like, and
all of that would be lost if the file were read and written. So the text is scanned for the place,
and only the entry is put there or cut out. The result is read again before anybody gets it.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

_SPACE = re.compile(r"(?:[ \t\r\n]+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"')
_PLAIN = re.compile(r"[-+.\w]+")
# The remarks that stand behind something on its line.
_REMARKS = re.compile(r"(?:[ \t]*/\*.*?\*/)*(?:[ \t]*//[^\r\n]*)?", re.DOTALL)
_DEPTH = 64


class Member(NamedTuple):
    """One `"key": value` of an object, by its places in the text."""

    key: str
    start: int
    value: int
    end: int


class Table(NamedTuple):
    """An object."""

    start: int
    """Where its brace is."""
    end: int
    """Behind its closing brace."""
    members: list[Member]
    comma: int
    """Behind a comma after the last member; -1 when there is none."""

    def get(self, key: str) -> Member | None:
        """The last member of that name: that is the one which counts."""
        return next((one for one in reversed(self.members) if one.key == key), None)


def get(text: str, table: str, name: str) -> Any:
    """The entry as a value; None when there is none.

    Raises:
        ValueError: it is not the JSON that was expected.
    """
    if not text.strip():
        return None
    holder = _top(text).get(table)
    if holder is None or _object(text, holder.value, 1).get(name) is None:
        return None
    return _plain(text)[table][name]


def put(text: str, table: str, name: str, entry: dict[str, Any]) -> str:
    """The text with `entry` under `table` and `name`, laid out as the text is.

    Raises:
        ValueError: it is not the JSON that was expected.
    """
    if not text.strip():
        return json.dumps({table: {name: entry}}, indent=2, ensure_ascii=False) + "\n"
    top = _top(text)
    holder = top.get(table)
    if holder is None:
        after = _insert(text, top, table, {name: entry})
    else:
        inner = _object(text, holder.value, 1)
        member = inner.get(name)
        if member is None:
            after = _insert(text, inner, name, entry)
        elif _plain(text[member.value : member.end]) == entry:
            return text
        else:
            shown = _shown(text, entry, (member.value, member.end), _lead(text, member.start))
            after = text[: member.value] + shown + text[member.end :]
    values = _plain(text)
    _check(after, {**values, table: {**values.get(table, {}), name: entry}})
    return after


def drop(text: str, table: str, name: str) -> str:
    """The text without the entry, its comma and its line. Remarks around it stay.

    Raises:
        ValueError: it is not the JSON that was expected.
    """
    after = text
    while after.strip():
        holder = _top(after).get(table)
        inner = None if holder is None else _object(after, holder.value, 1)
        member = None if inner is None else inner.get(name)
        if inner is None or member is None:
            break
        after = _cut(after, inner, inner.members.index(member))
    if after != text:
        values = _plain(text)
        held = {key: value for key, value in values[table].items() if key != name}
        _check(after, {**values, table: held})
    return after


def _check(after: str, wanted: Any) -> None:
    _top(after)
    if _plain(after) != wanted:
        raise ValueError("the result would not be what it should be")


def _insert(text: str, table: Table, key: str, value: Any) -> str:
    """Behind the last member and the remarks on its line, on lines of its own if it has such."""
    inside = text[table.start + 1 : table.end - 1]
    inline = "\n" not in (inside if table.members else text.strip())
    lead = _lead(text, table.start)
    row = lead + _unit(text)
    if table.members and not inline:
        row = _own_lead(text, table.members[-1].start) or row
    span = (table.start, table.end) if inline else (0, 0)
    compact = _is_compact(text, table)
    colon = ":" if inline and compact else ": "
    words = json.dumps(key) + colon + _shown(text, value, span, row, compact=compact)
    line = _line(text)
    if not table.members:
        kept = inside.rstrip()
        space = inside[len(kept) :]
        if inline:
            words = f"{kept}{words}{space}" if not kept else f"{kept} {words}{space}"
        else:
            close = space if kept and "\n" in space else line + lead
            words = f"{kept}{line}{row}{words}{close}"
        return text[: table.start + 1] + words + text[table.end - 1 :]
    comma = table.comma >= 0
    end = table.comma if comma else table.members[-1].end
    if inline:  # a line comment would have ended with a line
        place = table.start + 1 + len(inside.rstrip())
        gap = "" if compact else " "
        if comma:
            return f"{text[:place]}{gap}{words},{text[place:]}"
        return f"{text[:place]},{gap}{words}{text[place:]}"
    remarks = _REMARKS.match(text, end)
    place = remarks.end() if remarks else end
    first, last = ("", ",") if comma else (",", "")
    return f"{text[:end]}{first}{text[end:place]}{line}{row}{words}{last}{text[place:]}"


def _cut(text: str, table: Table, at: int) -> str:
    member = table.members[at]
    behind = _skip(text, member.end)
    has_comma = text[behind : behind + 1] == ","
    cuts = [(member.start, member.end)]
    if has_comma:
        cuts.append((behind, behind + 1))
    elif at:  # the last one: the comma before it must go
        before = _skip(text, table.members[at - 1].end)
        cuts.insert(0, (before, before + 1))
    # Where the line has nothing else, it goes too.
    start = _back(text, member.start)
    end = cuts[-1][1]
    while text[end : end + 1] in {" ", "\t"}:
        end += 1
    alone = start == 0 or text[start - 1] == "\n"
    whole = not has_comma or not text[member.end : behind].strip()
    if alone and whole and text[end : end + 2] == "\r\n":
        cuts.append((start, end + 2))
    elif alone and whole and text[end : end + 1] == "\n":
        cuts.append((start, end + 1))
    elif not alone and at and at + 1 == len(table.members):
        cuts.append((start, member.start))
    elif not alone:
        cuts.append((cuts[-1][1], end))
    gone = {place for first, last in cuts for place in range(first, last)}
    first, last = min(gone), max(gone) + 1
    kept = "".join(text[place] for place in range(first, last) if place not in gone)
    before, after = text[:first] + kept, text[last:]
    if not before[table.start + 1 :].strip() and not text[last : table.end - 1].strip():
        return before[: table.start + 1] + text[table.end - 1 :]
    return before + after


def _shown(
    text: str, value: Any, span: tuple[int, int], lead: str, *, compact: bool = False
) -> str:
    """A value on one line when what stands in `span` is on one, else indented as the text is."""
    if span[1] > span[0] and "\n" not in text[span[0] : span[1]]:
        marks = (",", ":") if compact else (", ", ": ")
        return json.dumps(value, separators=marks, ensure_ascii=False)
    lines = json.dumps(value, indent=_unit(text), ensure_ascii=False).split("\n")
    return f"{_line(text)}{lead}".join(lines)


def _is_compact(text: str, table: Table) -> bool:
    """Whether no space follows a colon."""
    return bool(table.members) and text[table.members[0].value - 1] == ":"


def _line(text: str) -> str:
    """How a line ends here."""
    at = text.find("\n")
    return "\r\n" if at > 0 and text[at - 1] == "\r" else "\n"


def _unit(text: str) -> str:
    """One step to the right."""
    leads = (_own_lead(text, one.start) for one in _top(text).members)
    return next((lead for lead in leads if lead), "  ")


def _lead(text: str, at: int) -> str:
    """What the line of a place begins with."""
    start = text.rfind("\n", 0, at) + 1
    end = start
    while text[end : end + 1] in {" ", "\t"}:
        end += 1
    return text[start:end]


def _own_lead(text: str, at: int) -> str:
    """The same, for what is the first on its line; else nothing."""
    start = _back(text, at)
    return text[start:at] if start and text[start - 1] == "\n" else ""


def _back(text: str, at: int) -> int:
    while at and text[at - 1] in " \t":
        at -= 1
    return at


def _top(text: str) -> Table:
    start = _skip(text, 1 if text[:1] == "\ufeff" else 0)
    table = _object(text, start, 0)
    if _skip(text, table.end) != len(text):
        raise ValueError("there is something behind its end")
    return table


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _object(text: str, at: int, depth: int) -> Table:
    if text[at : at + 1] != "{":
        raise ValueError("there is no object where one should be")
    members: list[Member] = []
    comma = -1
    start, at = at, _skip(text, at + 1)
    while text[at : at + 1] != "}":
        if members and comma < 0:
            raise ValueError("a comma is missing")
        key = _STRING.match(text, at)
        if key is None:
            raise ValueError("a key is missing")
        colon = _skip(text, key.end())
        if text[colon : colon + 1] != ":":
            raise ValueError("a colon is missing")
        value = _skip(text, colon + 1)
        end = _value(text, value, depth + 1)
        members.append(Member(json.loads(key[0]), key.start(), value, end))
        at, comma = _skip(text, end), -1
        if text[at : at + 1] == ",":
            comma = at + 1
            at = _skip(text, comma)
    return Table(start, at + 1, members, comma)


def _value(text: str, at: int, depth: int) -> int:
    """Where a value ends."""
    if depth > _DEPTH:
        raise ValueError("it is nested too deeply")
    if text[at : at + 1] == "{":
        return _object(text, at, depth).end
    if text[at : at + 1] == "[":
        at = _skip(text, at + 1)
        while text[at : at + 1] != "]":
            at = _skip(text, _value(text, at, depth + 1))
            if text[at : at + 1] == ",":
                at = _skip(text, at + 1)
            elif text[at : at + 1] != "]":
                raise ValueError("a list does not end")
        return at + 1
    found = _STRING.match(text, at) or _PLAIN.match(text, at)
    if found is None:
        raise ValueError("a value is missing")
    return found.end()


def _plain(text: str) -> Any:
    """The values, read without comments and commas at the end."""
    out: list[str] = []
    at = 0
    while at < len(text):
        string = _STRING.match(text, at)
        if string is not None:
            out.append(string[0])
            at = string.end()
            continue
        after = _skip(text, at)
        if after > at:
            at = after
            continue
        if text[at] == "," and text[_skip(text, at + 1) : _skip(text, at + 1) + 1] in {"}", "]"}:
            at += 1
            continue
        word = _PLAIN.match(text, at)
        end = word.end() if word is not None else at + 1
        out.append(text[at:end])
        at = end
    return json.loads("".join(out).lstrip("\ufeff"))
