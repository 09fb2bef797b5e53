"""Terminal output: escaping, wrapping, colours, tables and JSON.

Text of skills is untrusted: everything printed goes through `clean`, which makes characters visible
that could move the cursor, change colours or reorder text. A colour always comes with a word or
mark of the same meaning.
"""

from __future__ import annotations

import os
import sys

from satchel.cli import CommandRun
from satchel.i18n import render, say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any, TextIO

    from satchel.errors import SatchelError

_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
_MIN_LAST_COLUMNS = 16
_JOINERS = "\u200c\u200d"
"""Harmless, and needed by Persian and emoji."""
_BREAKS = "\t\n\x0b\x0c\r\x1c\x1d\x1e\x1f\x85\u2028\u2029"

STATES = {
    "active": ("●", "green"),
    "broken": ("✗", "red"),
    "shadowed": ("○", "dim"),
    "excluded": ("○", "dim"),
    "untrusted": ("?", "yellow"),
    "blocked": ("✗", "red"),
    "unverified": ("✗", "red"),
    "withheld": ("○", "cyan"),
    "modified": ("◐", "yellow"),
}
"""State of a skill -> its mark and colour."""
SEVERITIES = {"error": ("✗", "red"), "warning": ("▲", "yellow"), "note": ("·", "dim")}
"""Severity of a problem -> its mark and colour."""
_MARKS = frozenset(mark for mark, _ in (*STATES.values(), *SEVERITIES.values()))


def clean(text: str, keep: str = "\n\t") -> str:
    """Make characters visible that could control a terminal, except those of `keep`."""
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
            return char  # unassigned or private: drawn as one box
        return chr(0x2400 + code) if code < 0x20 else "␡" if code == 0x7F else "�"

    return "".join(map(shown, text.replace("\r\n", "\n")))


def one_line(text: str) -> str:
    """Clean `text` and put it on one line."""
    return clean(" ".join(text.split()), keep="")


def width_of(text: str) -> int:
    """The display width of `text` in columns."""
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
    """Cut `text` to `width` columns, with `…` at the end; 0 means no limit."""
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
    """Fill `text` up with spaces to `width` columns."""
    return text + " " * (width - width_of(text))


def wrap(text: str, width: int) -> list[str]:
    """Split `text` into lines of at most `width` columns; words are broken in wide scripts only."""
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
    """Split into words with their trailing space; code in backticks and wide characters count."""
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
    """Writes text, paragraphs and tables to a stream."""

    def __init__(self, stream: TextIO, colour: bool | None = None) -> None:
        """Write to `stream`; colour is None, then `--color`, then whether it is a terminal."""
        self.stream = stream
        self.is_terminal = _is_terminal(stream)
        if colour is None:
            colour = CommandRun.colour
        if colour is None:
            env = os.environ
            colour = self.is_terminal and not env.get("NO_COLOR") and env.get("TERM") != "dumb"
        self.colour = colour
        self.width = self._width()
        """Columns; 0 for a pipe, which gets whole lines."""

    def _width(self) -> int:
        columns = os.environ.get("COLUMNS", "")
        if columns.isdigit() and int(columns) > 0:
            return max(int(columns), 40)
        if not self.is_terminal:
            return 0
        try:
            # Some terminals report a width of 0.
            return max(os.get_terminal_size(self.stream.fileno()).columns or 80, 40)
        except (OSError, ValueError):
            return 80

    def paint(self, text: str, style: str) -> str:
        """Apply a style such as `green` or `bold red`, if this screen has colours."""
        if not self.colour or not style or not text:
            return text
        codes = ";".join(_CODES[word] for word in style.split())
        return f"\x1b[{codes}m{text}\x1b[0m"

    def write(self, text: str) -> None:
        """Write `text` unchanged."""
        self.stream.write(text)

    def line(
        self,
        text: str = "",
        style: str = "",
        indent: str = "",
        hang: str | None = None,
        lead: Sequence[tuple[str, str]] = (),
    ) -> None:
        """Write one paragraph, wrapped to the width.

        Args:
            text: Clean text without colours.
            style: Its style.
            indent: Text before the first line.
            hang: Text before the other lines; spaces as wide as `indent` when None.
            lead: Words before the text, each with its own style.
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
        """Write data: unchanged into a pipe, cleaned on a terminal."""
        text = clean(text) if self.is_terminal else text
        self.stream.write(text if text.endswith("\n") or not text else text + "\n")

    def table(
        self, head: Sequence[str], rows: Sequence[Sequence[str]], styles: Sequence[Sequence[str]]
    ) -> None:
        """Write rows under headings; only the last column is cut to the width.

        A column with a heading and no content is omitted. If the other columns leave too little
        room for the last one, each row takes two lines: the first columns, then the rest.

        Args:
            head: The headings.
            rows: Clean cells, without colours.
            styles: The style of each cell, row by row; missing ones are plain.
        """
        shown = [at for at in range(len(head)) if not head[at] or any(row[at] for row in rows)]
        widths = [max(width_of(row[at]) for row in (head, *rows)) for at in shown]
        last = len(shown) - 1
        room = self.width - sum(widths[:last]) - 2 * last
        least = min(_MIN_LAST_COLUMNS, widths[-1])
        if self.width and room < least:  # a few long cells must not cost every row a second line
            usual = [_usual_width([row[at] for row in (head, *rows)]) for at in shown[:last]]
            fits = self.width - sum(usual) - 2 * last
            widths, room = ([*usual, widths[-1]], fits) if fits >= least else (widths, room)
        if not self.width or room >= least:
            split = len(shown)
        else:
            split = next(
                (at for at in range(last, 1, -1) if sum(widths[:at]) + 2 * at - 2 <= self.width), 1
            )
        indent = widths[0] + 2 if not head[shown[0]] else 2
        names = "  ".join(pad(head[shown[at]], widths[at]) for at in range(split))
        self.stream.write(self.paint(names.rstrip(" "), "dim") + "\n")
        for row, style in zip(rows, styles, strict=True):
            cells = [(row[at], style[at] if at < len(style) else "") for at in shown]
            over = [width_of(cell) - wide for (cell, _), wide in zip(cells, widths, strict=True)]
            free = room - sum(one for one in over[:last] if one > 0)
            parts = last if split > last > 0 and self.width and free < least else split
            self._cells(cells[:parts], widths, free if parts > last else 0)
            if any(cell for cell, _ in cells[parts:]):
                self.stream.write(" " * indent)
                rest = [cell for cell in cells[parts:] if cell[0]]
                taken = indent + sum(width_of(cell) + 2 for cell, _ in rest[:-1])
                self._cells(rest, [0] * len(rest), max(self.width - taken, _MIN_LAST_COLUMNS))

    def _cells(self, cells: Sequence[tuple[str, str]], widths: Sequence[int], room: int) -> None:
        """Write one line of cells; the last is cut to `room`, 0 means no limit."""
        *others, (last, style) = cells
        line = "".join(
            self.paint(cell, how) + " " * (max(wide - width_of(cell), 0) + 2)
            for (cell, how), wide in zip(others, widths, strict=False)
        )
        self.stream.write((line + self.paint(cut(last, room), style)).rstrip(" ") + "\n")


def _usual_width(cells: Sequence[str]) -> int:
    """The width that nine of ten cells need."""
    widths = sorted(map(width_of, cells))
    return widths[(len(widths) - 1) * 9 // 10]


def _is_terminal(stream: TextIO) -> bool:
    try:
        return stream.isatty()
    except (AttributeError, ValueError):
        return False


def plural(count: int, one: str, several: str) -> str:
    """A number with its noun, such as `1 file` or `1,204 files`; both nouns are translated."""
    return say("{count} {noun}", count=f"{count:,}", noun=one if count == 1 else several)


def count_skills(count: int) -> str:
    """A number of skills, such as `1 skill`."""
    return plural(count, say("skill"), say("skills"))


def write_json(value: Any) -> None:
    """Print a value as JSON; control characters for terminals are escaped."""
    import json
    import re

    text = json.dumps(value, ensure_ascii=False, indent=2, default=str)
    # These occur only inside strings, where an escape is equivalent.
    unsafe = re.compile(
        "[\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
    )
    text = unsafe.sub(lambda found: f"\\u{ord(found.group()):04x}", text)
    sys.stdout.write(text + "\n")
    CommandRun.answered = True


def error_dict(exc: SatchelError) -> dict[str, str]:
    """An error as JSON."""
    return {"code": exc.code, "message": render(exc.message), "hint": render(exc.hint)}


def print_error(message: str, hint: str = "") -> None:
    """Print an error and its hint on stderr."""
    screen = Screen(sys.stderr)
    _labelled(screen, say("error: "), "bold red", render(message))
    if hint:
        screen.line()
        _labelled(screen, say("hint: "), "cyan", render(hint))


def _labelled(screen: Screen, word: str, style: str, text: str) -> None:
    """Write paragraphs after a coloured word; each is wrapped below its own indentation."""
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
