"""Fast scan of the first bytes of a SKILL.md into a `SkillHeader`.

Most frontmatters contain only simple lines. One regular expression recognises those that YAML can
read in one way only, and extracts name and description. All other files go through the YAML parser.
A test compares both on real files.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, cast

from satchel.skill.document import SkillHeader
from satchel.skill.problems import NO_PROBLEMS, Problem

if TYPE_CHECKING:
    from collections.abc import Callable

SCAN_BYTES = 4096
"""Bytes to read first; few frontmatters are longer."""

# Characters that end a line, that YAML refuses, or that replace invalid bytes.
_ODD = r"\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffd-\uffff"
# A key that the scan does not need, and no misspelling of one (`Name`, `user_invocable`).
_KEY = (
    r"(?>[B-CE-MO-SVX-Zb-ce-mo-svx-z_]|"  # first letters of no such key: the fast path
    r"(?![nN][aA][mM][eE]|[dD][eE][sS]|[dD][iI][sS]|[wW][hH]|(?!tags:)[tT][aA][gG][sS]"
    r"|[uU][sS][eE]|[aA][rR][gG])[A-Za-z])[\w-]*+"
)
# A plain value that YAML reads literally: begins with a letter or digit, no `: ` and no ` #`.
_REST = rf"(?>[^:#{_ODD}]++|:(?=[^ \n\t])|(?<=[^ \n\t])#)*+"
_PLAIN = rf"[^\W_]{_REST}"
_DOUBLE = rf'"[^"\\{_ODD}]*+"'
_SINGLE = rf"'[^'{_ODD}]*+'"
_ITEM = rf"(?>[A-Za-z0-9_][A-Za-z0-9_. -]*+|{_DOUBLE}|{_SINGLE})"
_FLOW = rf"\[(?:{_ITEM}(?:, ?{_ITEM})*+)?\]"
_VALUE = f"(?>{_PLAIN}|{_DOUBLE}|{_SINGLE}|{_FLOW})"
_DEEPER = rf"(?>(?>    {_KEY}: {_VALUE}\n)++|(?>    - {_VALUE}\n)++)"
_INNER = rf"  {_KEY}:(?> {_VALUE}\n|\n{_DEEPER})"
_NESTED = rf"(?>(?>{_INNER})++|(?>  - {_VALUE}\n)++|(?>- {_VALUE}\n)++)?+"
_LINES = rf"(?>{_KEY}:(?> {_VALUE}\n|\n{_NESTED}))*+"
_BLOCK = rf"([>|])[+-]?\n((?>  [^ {_ODD}][^{_ODD}]*+\n)++)"
_MORE = r"\n  (?=[^ \n])"
# A character class here would cost more than all the rest; `scan_header` checks the value with
# string searches.
_DESCRIPTION = (
    rf"description: (?>([^\W\d_][^\n]*+(?>{_MORE}[^\n]++)*+)\n"
    rf"|\"((?>[^\"\\\n]++|{_MORE})++)\"\n|'((?>[^'\n]++|''|{_MORE})++)'\n|{_BLOCK})"
)
_NAME = r"name: ([\"']?)([a-z][a-z0-9]*+(?>-[a-z0-9]++)*+)\1\n"
_SIMPLE = rf"---\n(?>{_LINES}{_NAME}{_LINES}{_DESCRIPTION}{_LINES})---\n"
# Not compiled here: a start from the scan cache needs none of them.
_HIDDEN = "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\uffa0]"
# Removing them is twice as fast as `isprintable`.
_PRINTABLE = bytes(range(0x20, 0x7F))
_WORD = r"[^\W\d_][^\"']*"
_AFTER_LIST = r"(?m)^(?!(?:  )?- )"
_NOT_TEXT = frozenset(("true", "false", "yes", "no", "on", "off", "null"))
_SECOND = (b"---", b"\n---", b"\n\n---")
"""Possible starts of a second frontmatter."""
_MAX_DESCRIPTION_CHARS = 1024
_MAX_NAME_CHARS = 64

_new = cast("Callable[[type[SkillHeader], tuple[Any, ...]], SkillHeader]", tuple.__new__)  # pyright: ignore[reportUnknownMemberType]
"""Builds a NamedTuple without its constructor, in half the time."""


def _simple_first(text: str) -> re.Match[str] | None:
    """Compile on the first read: a start from the scan cache reads no file and saves 15 ms."""
    global _simple  # noqa: PLW0603 - replaces itself by the compiled pattern
    _simple = re.compile(_SIMPLE).match
    return _simple(text)


_simple: Callable[[str], re.Match[str] | None] = _simple_first


def scan_header(
    data: bytes, skill_id: str, file: str, stamp: tuple[int, int, int]
) -> SkillHeader | None:
    """Return the header of a simple file; None when the file needs the YAML parser."""
    end = data.find(b"\n---\n", 3) + 5
    if end < 5 and data.startswith(b"---\r\n"):
        data = data.replace(b"\r\n", b"\n")
        end = data.find(b"\n---\n", 3) + 5
    try:
        text = data[:end].decode()
    except UnicodeDecodeError:
        return None
    found = _simple(text)
    if found is None or data.startswith(_SECOND, end):
        return None
    name, description = found.group(2, 3)
    if description is not None:
        shown = description
        if "\n" in shown:
            shown = description = _folded(shown)
        if (
            (":" in shown and (": " in shown or shown[-1] == ":"))
            or ("#" in shown and " #" in shown)
            or (len(shown) < 6 and shown.lower() in _NOT_TEXT)
        ):
            return None
    else:
        double, single, style, block = found.group(4, 5, 6, 7)
        if style:
            # Lines are indented by two spaces; `>` joins them with spaces, `|` keeps them.
            shown = block[2:-1].replace("\n  ", " ")
            description = block[2:-1].replace("\n  ", "\n") if style == "|" else shown
        else:
            shown = description = _folded(double or single.replace("''", "'"))
    if (
        len(shown) > _MAX_DESCRIPTION_CHARS
        or shown[0] == " "
        or shown[-1] == " "
        or name in _NOT_TEXT
        or len(name) > _MAX_NAME_CHARS
        or (shown.encode().translate(None, _PRINTABLE) and not _is_printable(shown))
    ):
        return None
    extra = None
    if "\ntags:" in text:
        tagged = text.find("\ntags:")
        tags = _tags(text[tagged + 6 :])
        if tags is None or text.find("\ntags:", tagged + 1) >= 0:
            return None
        extra = {"tags": tags}
    folder = skill_id[skill_id.rfind("/") + 1 :]
    if name == folder:
        mtime, ctime, size = stamp
        return _new(
            SkillHeader,
            (folder, description, skill_id, file, mtime, ctime, size, extra, NO_PROBLEMS),
        )
    line = text.count("\n", 0, found.start(2)) + 1
    problem = Problem("name-mismatch", "", line, {"name": name, "folder": folder})
    return _new(SkillHeader, (name, description, skill_id, file, *stamp, extra, (problem,)))


def _is_printable(text: str) -> bool:
    return text.isprintable() and not re.search(_HIDDEN, text)


def _folded(text: str) -> str:
    # Where YAML would trim, the newline stays, and the value is rejected as not printable.
    return text.replace("\n  ", " ") if " \n" not in text else text


def _tags(text: str) -> tuple[str, ...] | None:
    """Tags of a simple list whose items are unambiguous text; `text` begins after the key."""
    first, _, rest = text.partition("\n")
    if first:
        if first[:2] != " [":
            return None
        items = first[2:-1].split(",")
    else:
        items = rest[: re.search(_AFTER_LIST, rest).start()].split("\n")[:-1]  # pyright: ignore[reportOptionalMemberAccess] - a `---` follows
        items = [item.lstrip(" ")[2:] for item in items]
    words = tuple(item.strip() for item in items if item)
    plain = all(re.fullmatch(_WORD, word) and word.lower() not in _NOT_TEXT for word in words)
    return words if plain else None
