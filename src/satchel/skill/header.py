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
_REFUSED_CHARACTERS = r"\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffd-\uffff"
# A key that the scan does not need, and no misspelling of one (`Name`, `user_invocable`).
_KEY = (
    r"(?>[B-CE-MO-SVX-Zb-ce-mo-svx-z_]|"  # first letters of no such key: the fast path
    r"(?![nN][aA][mM][eE]|[dD][eE][sS]|[dD][iI][sS]|[wW][hH]|(?!tags:)[tT][aA][gG][sS]"
    r"|[uU][sS][eE]|[aA][rR][gG])[A-Za-z])[\w-]*+"
)
# A plain value that YAML reads literally: begins with a letter or digit, no `: ` and no ` #`.
_PLAIN_TAIL = rf"(?>[^:#{_REFUSED_CHARACTERS}]++|:(?=[^ \n\t])|(?<=[^ \n\t])#)*+"
_PLAIN = rf"[^\W_]{_PLAIN_TAIL}"
_DOUBLE = rf'"[^"\\{_REFUSED_CHARACTERS}]*+"'
_SINGLE = rf"'[^'{_REFUSED_CHARACTERS}]*+'"
_ITEM = rf"(?>[A-Za-z0-9_][A-Za-z0-9_. -]*+|{_DOUBLE}|{_SINGLE})"
_FLOW = rf"\[(?:{_ITEM}(?:, ?{_ITEM})*+)?\]"
_VALUE = f"(?>{_PLAIN}|{_DOUBLE}|{_SINGLE}|{_FLOW})"
_DEEPER = rf"(?>(?>    {_KEY}: {_VALUE}\n)++|(?>    - {_VALUE}\n)++)"
_INNER = rf"  {_KEY}:(?> {_VALUE}\n|\n{_DEEPER})"
_NESTED = rf"(?>(?>{_INNER})++|(?>  - {_VALUE}\n)++|(?>- {_VALUE}\n)++)?+"
_LINES = rf"(?>{_KEY}:(?> {_VALUE}\n|\n{_NESTED}))*+"
_BLOCK = rf"([>|])[+-]?\n((?>  [^ {_REFUSED_CHARACTERS}][^{_REFUSED_CHARACTERS}]*+\n)++)"
_CONTINUED_LINE = r"\n  (?=[^ \n])"
# A character class here would cost more than all the rest; `scan_header` checks the value with
# string searches.
_DESCRIPTION = (
    rf"description: (?>([^\W\d_][^\n]*+(?>{_CONTINUED_LINE}[^\n]++)*+)\n"
    rf"|\"((?>[^\"\\\n]++|{_CONTINUED_LINE})++)\"\n|'((?>[^'\n]++|''|{_CONTINUED_LINE})++)'\n|{_BLOCK})"
)
_NAME = r"name: ([\"']?)([a-z][a-z0-9]*+(?>-[a-z0-9]++)*+)\1\n"
_SIMPLE_FILE = rf"---\n(?>{_LINES}{_NAME}{_LINES}{_DESCRIPTION}{_LINES})---\n"
# Not compiled here: a start from the scan cache needs none of them.
_FILLERS = "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\uffa0]"
# Removing them is twice as fast as `isprintable`.
_PRINTABLE = bytes(range(0x20, 0x7F))
_PLAIN_WORD = r"[^\W\d_][^\"']*"
_AFTER_LIST = r"(?m)^(?!(?:  )?- )"
_NOT_TEXT = frozenset(("true", "false", "yes", "no", "on", "off", "null"))
_SECOND_FRONTMATTER_STARTS = (b"---", b"\n---", b"\n\n---")
"""Possible starts of a second frontmatter."""
_MAX_DESCRIPTION_CHARS = 1024
_MAX_NAME_CHARS = 64

_new_header = cast("Callable[[type[SkillHeader], tuple[Any, ...]], SkillHeader]", tuple.__new__)  # pyright: ignore[reportUnknownMemberType]
"""Builds a NamedTuple without its constructor, in half the time."""


def _compile_and_match(text: str) -> re.Match[str] | None:
    """Compile on the first read: a start from the scan cache reads no file and saves 15 ms."""
    global _match_simple_file  # noqa: PLW0603 - replaces itself by the compiled pattern
    _match_simple_file = re.compile(_SIMPLE_FILE).match
    return _match_simple_file(text)


_match_simple_file: Callable[[str], re.Match[str] | None] = _compile_and_match


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
    match = _match_simple_file(text)
    if match is None or data.startswith(_SECOND_FRONTMATTER_STARTS, end) or _has_requirements(text):
        return None
    name, description = match.group(2, 3)
    if description is None:
        text_to_check, description = _read_quoted_description(match)
    else:
        text_to_check = description = _fold(description) if "\n" in description else description
        if _is_special(text_to_check):
            return None
    if not _is_usable(name, text_to_check):
        return None
    extra = None
    if "\ntags:" in text:
        tags = _read_tags(text)
        if tags is None:
            return None
        extra = {"tags": tags}
    folder = skill_id[skill_id.rfind("/") + 1 :]
    if name == folder:
        mtime, ctime, size = stamp
        return _new_header(
            SkillHeader,
            (folder, description, skill_id, file, mtime, ctime, size, extra, NO_PROBLEMS),
        )
    line = text.count("\n", 0, match.start(2)) + 1
    problem = Problem("name-mismatch", "", line, {"name": name, "folder": folder})
    return _new_header(SkillHeader, (name, description, skill_id, file, *stamp, extra, (problem,)))


def _read_quoted_description(match: re.Match[str]) -> tuple[str, str]:
    """A description in quotes or in a block: the text that is judged, and the value."""
    double, single, style, block = match.group(4, 5, 6, 7)
    if not style:
        text = _fold(double or single.replace("''", "'"))
        return text, text
    # Lines are indented by two spaces; `>` joins them with spaces, `|` keeps them.
    text = block[2:-1].replace("\n  ", " ")
    return text, block[2:-1].replace("\n  ", "\n") if style == "|" else text


def _is_special(text: str) -> bool:
    """Whether YAML reads text without quotes as a mapping, a comment or another type."""
    return (
        (":" in text and (": " in text or text[-1] == ":"))
        or ("#" in text and " #" in text)
        or (len(text) < 6 and text.lower() in _NOT_TEXT)
    )


def _is_usable(name: str, description: str) -> bool:
    """Whether both values have no problems of their own."""
    return not (
        len(description) > _MAX_DESCRIPTION_CHARS
        or description[0] == " "
        or description[-1] == " "
        or name in _NOT_TEXT
        or len(name) > _MAX_NAME_CHARS
        or (description.encode().translate(None, _PRINTABLE) and not _is_printable(description))
    )


def _has_requirements(text: str) -> bool:
    """Whether lines of a simple file may be keys of `requirements.REQUIREMENT_KEYS`."""
    return (
        "equires:" in text
        or "erequisites:" in text
        or "ependencies:" in text
        or "latforms:" in text
        or " os:" in text
    )


def _is_printable(text: str) -> bool:
    return text.isprintable() and not re.search(_FILLERS, text)


def _fold(text: str) -> str:
    # Where YAML would trim, the newline stays, and the value is rejected as not printable.
    return text.replace("\n  ", " ") if " \n" not in text else text


def _read_tags(text: str) -> tuple[str, ...] | None:
    """Tags of the only simple list whose items are unambiguous text."""
    start = text.find("\ntags:")
    if text.find("\ntags:", start + 1) >= 0:
        return None
    first, _, following_lines = text[start + 6 :].partition("\n")
    if first:
        if first[:2] != " [":
            return None
        items = first[2:-1].split(",")
    else:
        items = following_lines[: re.search(_AFTER_LIST, following_lines).start()].split("\n")[:-1]  # pyright: ignore[reportOptionalMemberAccess] - a `---` follows
        items = [item.lstrip(" ")[2:] for item in items]
    words = tuple(item.strip() for item in items if item)
    are_plain = all(
        re.fullmatch(_PLAIN_WORD, word) and word.lower() not in _NOT_TEXT for word in words
    )
    return words if are_plain else None
