"""How words reach a terminal: safely, in its width, and with colours that mean something.

Skill text is hostile. `clean` makes every character visible that could move a cursor, recolour a
line or turn text around; everything printed for people goes through it. No colour carries a
meaning alone: a word or a mark says the same.
"""

from __future__ import annotations

import os
import sys

from satchel._language import render, say
from satchel.cli import Run

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any, TextIO

    from satchel.errors import SatchelError

_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
_LAST = 16
"""Columns that the last cell of a table gets at least."""
_JOINERS = "\u200c\u200d"
"""Persian and emoji need them, and they move nothing."""
_BREAKS = "\t\n\x0b\x0c\r\x1c\x1d\x1e\x1f\x85\u2028\u2029"

STATES = {
    "active": ("●", "green"),
    "broken": ("✗", "red"),
    "shadowed": ("○", "dim"),
    "excluded": ("○", "dim"),
    "untrusted": ("?", "yellow"),
    "blocked": ("✗", "red"),
    "modified": ("◐", "yellow"),
}
"""State of a skill, or of a file that is none -> its mark and colour."""
SEVERITIES = {"error": ("✗", "red"), "warning": ("▲", "yellow"), "note": ("·", "dim")}
"""Severity of a problem -> its mark and colour."""
_MARKS = frozenset(mark for mark, _ in (*STATES.values(), *SEVERITIES.values()))


def clean(text: str, keep: str = "\n\t") -> str:
    """`text` with every character made visible that could command a terminal.

    Args:
        text: Words from a skill, a path or a message.
        keep: Line breaks and tabs that may stay.
    """
    if text.isprintable():
        return text
    import unicodedata

    def shown(char: str) -> str:
        if char.isprintable() or char in keep or char in _JOINERS:
            return char
        if char.isspace() and char not in _BREAKS:
            return char
        code = ord(char)
        if unicodedata.category(char) not in {"Cc", "Cf", "Cs", "Zl", "Zp"}:
            return char  # unassigned or private: odd, but it is drawn as one box
        return chr(0x2400 + code) if code < 0x20 else "␡" if code == 0x7F else "�"

    return "".join(map(shown, text.replace("\r\n", "\n")))


def one_line(text: str) -> str:
    """`text` cleaned, on a single line."""
    return clean(" ".join(text.split()), keep="")


def width_of(text: str) -> int:
    """How many columns `text` takes."""
    if text.isascii():
        return len(text)
    if text in _MARKS:
        return 1
    from unicodedata import category, east_asian_width

    total = 0
    for char in text:
        if east_asian_width(char) in "WF":
            total += 2
        elif category(char) not in {"Mn", "Me", "Cf"}:
            total += 1
    return total


def cut(text: str, width: int) -> str:
    """`text` in at most `width` columns; `…` says that there was more. 0 means no limit."""
    if width <= 0 or len(text) * 2 <= width or width_of(text) <= width:
        return text
    if text.isascii():
        return text[: width - 1].rstrip() + "…"
    used = 0
    for at, char in enumerate(text):
        used += width_of(char)
        if used > width - 1:
            return text[:at].rstrip() + "…"
    return text


def pad(text: str, width: int) -> str:
    """`text` filled up with spaces to `width` columns."""
    return text + " " * (width - width_of(text))


def wrap(text: str, width: int) -> list[str]:
    """`text` in lines of at most `width` columns; a word is never broken, wide scripts may be."""
    if width <= 0 or width_of(text) <= width:
        return [text]
    lines: list[str] = []
    line, used = "", 0
    for piece in _pieces(text):
        size = width_of(piece)
        if line and used + width_of(piece.rstrip(" ")) > width:
            lines.append(line.rstrip(" "))
            line, used = "", 0
        line += piece
        used += size
    return [*lines, line.rstrip(" ")]


def _pieces(text: str) -> Iterable[str]:
    """Words with the space after them; code in backticks and each wide character are words too."""
    closing = "，。；：、！？）】》”’…"
    opening = "（【《“‘"
    word = ""
    code = False
    for char in text:
        if code:
            word += char
            code = char != "`"
            continue
        if not char.isascii() and (char in closing or width_of(char) == 2):
            if not word or char in closing or word[-1] in opening:
                word += char
                continue
            yield word
            word = char
            continue
        if (
            word
            and word[-1] not in opening
            and (word[-1] == " " != char or width_of(word[-1]) == 2)
        ):
            yield word
            word = ""
        word += char
        code = char == "`"
    if word:
        yield word


class Screen:
    """One stream that people may be looking at."""

    def __init__(self, stream: TextIO, colour: bool | None = None) -> None:
        """Write to `stream`; without `colour`, `--color` decides, else whether it is a terminal."""
        self.stream = stream
        colour = Run.colour if colour is None else colour
        self.is_terminal = _is_terminal(stream)
        self.colour = self._wants_colour() if colour is None else colour
        self.width = self._width()

    def _wants_colour(self) -> bool:
        env = os.environ
        return self.is_terminal and not env.get("NO_COLOR") and env.get("TERM") != "dumb"

    def _width(self) -> int:
        """Columns; 0 when nobody looks, so that a pipe gets whole lines."""
        columns = os.environ.get("COLUMNS", "")
        if columns.isdigit() and int(columns) > 0:
            return max(int(columns), 40)
        if not self.is_terminal:
            return 0
        try:
            # Some terminals do not know their width, and say 0.
            return max(os.get_terminal_size(self.stream.fileno()).columns or 80, 40)
        except (OSError, ValueError):
            return 80

    def paint(self, text: str, style: str) -> str:
        """`text` in a style such as `green` or `bold red`, where colour is wanted."""
        if not self.colour or not style or not text:
            return text
        codes = ";".join(_CODES[word] for word in style.split())
        return f"\x1b[{codes}m{text}\x1b[0m"

    def write(self, text: str) -> None:
        """Write `text` as it is."""
        self.stream.write(text)

    def line(
        self,
        text: str = "",
        style: str = "",
        indent: str = "",
        hang: str | None = None,
        lead: Sequence[tuple[str, str]] = (),
    ) -> None:
        """Write one paragraph, folded to the width.

        Args:
            text: Clean text without colours.
            style: How to paint it.
            indent: What stands before the first line.
            hang: What stands before the others; as many spaces as `indent` has when None.
            lead: Words before the text, each with a style of its own.
        """
        hang = " " * width_of(indent) if hang is None else hang
        room = self.width - max(width_of(indent), width_of(hang)) if self.width else 0
        plain = "".join(part for part, _ in lead)
        lines = wrap(plain + text, max(room, 20) if self.width else 0)
        first = lines[0]
        if plain and first.startswith(plain):
            painted = "".join(self.paint(part, how) for part, how in lead)
            lines[0] = painted + self.paint(first[len(plain) :], style)
        else:
            lines[0] = self.paint(first, style)
        body = [indent + lines[0], *(hang + self.paint(part, style) for part in lines[1:])]
        self.stream.write("\n".join(body).rstrip(" ") + "\n")

    def title(self, text: str) -> None:
        """Write a heading after an empty line."""
        self.stream.write(f"\n{self.paint(text, 'bold')}\n")

    def data(self, text: str) -> None:
        """Write what a program may read: untouched into a pipe, made harmless on a terminal."""
        text = clean(text) if self.is_terminal else text
        self.stream.write(text if text.endswith("\n") or not text else text + "\n")

    def table(
        self, head: Sequence[str], rows: Sequence[Sequence[str]], styles: Sequence[Sequence[str]]
    ) -> None:
        """Write rows under headings. The last column takes what room is left, and is cut to it.

        A column with a heading and no content is left out. Where there is too little room, the
        widest column is narrowed: a longer cell is written whole, and its row goes on below it.

        Args:
            head: The headings.
            rows: Clean cells, without colours.
            styles: For each row the style of each cell; missing ones are plain.
        """
        every = range(len(head))
        shown = [at for at in every if not head[at] or any(row[at] for row in rows)]
        names = [head[at] for at in shown]
        widths = self._columns(names, [[row[at] for at in shown] for row in rows])
        self.stream.write(self.paint("  ".join(map(pad, names, widths)).rstrip(" "), "dim") + "\n")
        for row, style in zip(rows, styles, strict=True):
            cells = [(row[at], style[at] if at < len(style) else "") for at in shown]
            self.stream.write(self._row(cells, widths) + "\n")

    def _columns(self, head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
        """The width of each column; that of the last is 0 when there is no limit."""
        content = [
            max((width_of(row[at][: self.width or None]) for row in rows), default=0)
            for at in range(len(head))
        ]
        # A column without a heading holds a mark or a number.
        least = [width_of(word) or size for word, size in zip(head, content, strict=True)]
        widths = [*map(max, least, content)]
        if not self.width:
            return [*widths[:-1], 0]
        room = self.width - 2 * (len(head) - 1)
        wanted = min(max(_LAST, self.width // 3), widths[-1])
        while sum(widths[:-1]) + wanted > room:
            wide = [at for at in range(len(head) - 1) if widths[at] > least[at]]
            if not wide:
                break
            widths[max(wide, key=widths.__getitem__)] -= 1
        return [*widths[:-1], max(room - sum(widths[:-1]), wanted)]

    def _row(self, cells: Sequence[tuple[str, str]], widths: Sequence[int]) -> str:
        lines: list[str] = []
        line, used, start = "", 0, 0
        for at, (cell, style) in enumerate(cells):
            if at == len(cells) - 1:
                cell = cut(cell, widths[at])  # noqa: PLW2901 - what is shown of it
            if size := width_of(cell):
                # What would leave the screen begins further to the left.
                begin = min(start, max(self.width - size, 0)) if self.width else start
                if used and begin < used + 2:
                    lines.append(line)
                    line, used = "", 0
                line += " " * (begin - used) + self.paint(cell, style)
                used = begin + size
            start += widths[at] + 2
        return "\n".join([*lines, line])


def _is_terminal(stream: TextIO) -> bool:
    try:
        return stream.isatty()
    except (AttributeError, ValueError):
        return False


def write_json(value: Any) -> None:
    """Print a value as JSON; characters that command terminals are written as escapes."""
    import json
    import re

    text = json.dumps(value, ensure_ascii=False, indent=2, default=str)
    # They can only stand inside strings, where an escape means the same.
    unsafe = re.compile(
        "[\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
    )
    text = unsafe.sub(lambda found: f"\\u{ord(found.group()):04x}", text)
    sys.stdout.write(text + "\n")
    Run.answered = True


def told_error(exc: SatchelError) -> dict[str, str]:
    """A failure for scripts, in the words that people get."""
    return {"code": exc.code, "message": render(exc.message), "hint": render(exc.hint)}


def with_error(made: dict[str, Any], failed: SatchelError | None) -> dict[str, Any]:
    """What was made, for scripts, and what of it failed."""
    return made if failed is None else {**made, "error": told_error(failed)}


def complain(message: str, hint: str = "", colour: bool | None = None) -> None:
    """Say on stderr what went wrong and what to do next."""
    screen = Screen(sys.stderr, colour)
    _told(screen, say("error: "), "bold red", message)
    if hint:
        screen.line()
        _told(screen, say("hint: "), "cyan", hint)


def _told(screen: Screen, word: str, style: str, text: str) -> None:
    """Paragraphs after a coloured word, each folded below its own beginning."""
    room = screen.width - width_of(word) if screen.width else 0
    lines: list[str] = []
    for line in clean(text).split("\n"):
        body = line.lstrip(" →")
        lead = line[: len(line) - len(body)]
        first, *rest = wrap(body, max(room - width_of(lead), min(room, 20)))
        lines += [lead + first, *(" " * width_of(lead) + part for part in rest)]
    plain = word.rstrip(" ")
    head = screen.paint(plain, style) + word[len(plain) :]
    screen.write(head + ("\n" + " " * width_of(word)).join(lines) + "\n")
