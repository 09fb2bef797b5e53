"""Terminal output: escaping, wrapping, colours, tables and JSON.

Text of skills is untrusted: everything printed goes through `clean`, which makes characters visible
that could move the cursor, change colours or reorder text. A colour always comes with a word or
mark of the same meaning.
"""

from __future__ import annotations

import os
import re
import sys
from contextlib import contextmanager

from satchel.cli import CommandRun
from satchel.i18n import render, say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Sequence
    from typing import Any, TextIO

    from satchel.errors import SatchelError

_STYLE_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
_MIN_LAST_CELL_COLUMNS = 16
_JOINING_CHARS = "\u200c\u200d"
"""Harmless, and needed by Persian and emoji."""
_LINE_BREAKS = "\t\n\x0b\x0c\r\x1c\x1d\x1e\x1f\x85\u2028\u2029"

STATES = {
    "active": ("●", "green"),
    "broken": ("✗", "red"),
    "shadowed": ("○", "dim"),
    "excluded": ("○", "dim"),
    "untrusted": ("?", "yellow"),
    "needs setup": ("○", "yellow"),
    "blocked": ("✗", "red"),
    "unverified": ("✗", "red"),
    "withheld": ("○", "cyan"),
    "modified": ("◐", "yellow"),
}
"""State of a skill -> its mark and colour."""
SEVERITIES = {"error": ("✗", "red"), "warning": ("▲", "yellow"), "note": ("·", "dim")}
"""Severity of a problem -> its mark and colour."""
_CLOSING_SIGNS = "，。；：、！？）】》”’…"
_OPENING_SIGNS = "（【《“‘"
_TERMINAL_CONTROLS = re.compile(
    "[\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)
_NARROW_MARKS = frozenset(mark for mark, _ in (*STATES.values(), *SEVERITIES.values()))


def clean(text: str, keep: str = "\n\t") -> str:
    """Make characters visible that could control a terminal, except those of `keep`."""
    if text.isprintable():
        return text
    import unicodedata

    def clean_char(char: str) -> str:
        if char.isprintable() or char in keep or char in _JOINING_CHARS:
            return char
        if char.isspace() and char not in _LINE_BREAKS:
            return char
        code = ord(char)
        if unicodedata.category(char) not in {"Cc", "Cf", "Cs", "Zl", "Zp"}:
            return char  # unassigned or private: drawn as one box
        return chr(0x2400 + code) if code < 0x20 else "␡" if code == 0x7F else "�"

    return "".join(map(clean_char, text.replace("\r\n", "\n")))


def one_line(text: str) -> str:
    """Clean `text` and put it on one line."""
    return clean(" ".join(text.split()), keep="")


def width_of(text: str) -> int:
    """The display width of `text` in columns."""
    if text.isascii():
        return len(text)
    if text in _NARROW_MARKS:
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
    for index, char in enumerate(text):
        used += width_of(char)
        if used > width - 1:
            return text[:index].rstrip() + "…"
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
    for word in _split_words(text):
        if line and used + width_of(word.rstrip(" ")) > width:
            lines.append(line.rstrip(" "))
            line, used = "", 0
        line += word
        used += width_of(word)
    return [*lines, line.rstrip(" ")]


def _split_words(text: str) -> Iterable[str]:
    """Split into words with their trailing space; a wide character or code is a word too."""
    word = ""
    is_code = False
    for char in text:
        if is_code:
            word += char
            is_code = char != "`"
            continue
        if not char.isascii() and (char in _CLOSING_SIGNS or width_of(char) == 2):
            if not word or char in _CLOSING_SIGNS or word[-1] in _OPENING_SIGNS:
                word += char
                continue
            yield word
            word = char
            continue
        if (
            word
            and word[-1] not in _OPENING_SIGNS
            and (word[-1] == " " != char or width_of(word[-1]) == 2)
        ):
            yield word
            word = ""
        word += char
        is_code = char == "`"
    if word:
        yield word


class _TableLayout:
    """The widths of a table, and where its rows are split into two lines."""

    def __init__(
        self, titles: Sequence[str], rows: Sequence[Sequence[str]], screen_width: int
    ) -> None:
        """Lay out a table; a screen of width 0 has no limit."""
        columns = list(zip(titles, *rows, strict=True))
        widths = [max(map(width_of, column)) for column in columns]
        last = len(titles) - 1
        room = screen_width - sum(widths[:last]) - 2 * last
        self.min_last = min(_MIN_LAST_CELL_COLUMNS, widths[-1])
        """Columns that the last cell needs."""
        if screen_width and room < self.min_last:  # a few long cells must not cost each row a line
            usual_widths = [*map(_usual_width, columns[:last]), widths[-1]]
            usual_room = screen_width - sum(usual_widths[:last]) - 2 * last
            if usual_room >= self.min_last:
                widths, room = usual_widths, usual_room
        self.widths = widths
        self.room = room
        """Columns that are left for the last cell."""
        self.split = len(titles)
        """Number of cells on the first line."""
        if screen_width and room < self.min_last:
            counts = range(last, 1, -1)
            fitting = (
                count for count in counts if sum(widths[:count]) + 2 * count - 2 <= screen_width
            )
            min_count = 1 if titles[0] else min(2, last)  # a mark does not stand alone
            self.split = next(fitting, min_count)
        self.indent = 2 if titles[0] else widths[0] + 2
        """Spaces before the second line."""


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
        codes = ";".join(_STYLE_CODES[name] for name in style.split())
        return f"\x1b[{codes}m{text}\x1b[0m"

    def write(self, text: str) -> None:
        """Write `text` unchanged."""
        self.stream.write(text)

    @contextmanager
    def waiting(self, text: str) -> Generator[None]:
        """Show `text` on a terminal until the block ends."""
        if self.is_terminal:
            self.write(f"{text}\r")
            self.stream.flush()
        try:
            yield
        finally:
            if self.is_terminal:
                self.write(f"{' ' * width_of(text)}\r")
                self.stream.flush()

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
        plain = "".join(words for words, _ in lead)
        lines = wrap(plain + text, max(room, 20) if self.width else 0)
        first = lines[0]
        if plain and first.startswith(plain):
            painted = "".join(self.paint(words, lead_style) for words, lead_style in lead)
            lines[0] = painted + self.paint(first[len(plain) :], style)
        else:
            lines[0] = self.paint(first, style)
        indented = [indent + lines[0], *(hang + self.paint(line, style) for line in lines[1:])]
        self.stream.write("\n".join(indented).rstrip(" ") + "\n")

    def title(self, text: str) -> None:
        """Write a heading after an empty line."""
        self.stream.write(f"\n{self.paint(text, 'bold')}\n")

    def data(self, text: str) -> None:
        """Write data: unchanged into a pipe, cleaned on a terminal."""
        text = clean(text) if self.is_terminal else text
        self.stream.write(text if text.endswith("\n") or not text else text + "\n")

    def table(
        self, titles: Sequence[str], rows: Sequence[Sequence[str]], styles: Sequence[Sequence[str]]
    ) -> None:
        """Write rows under headings; only the last column is cut to the width.

        A column with a heading and no content is omitted. If the other columns leave too little
        room for the last one, each row takes two lines: the first columns, then the rest.

        Args:
            titles: The headings.
            rows: Clean cells, without colours.
            styles: The style of each cell, row by row; missing ones are plain.
        """
        columns = [
            index
            for index, title in enumerate(titles)
            if not title or any(row[index] for row in rows)
        ]
        shown_titles = [titles[index] for index in columns]
        cells = [[row[index] for index in columns] for row in rows]
        layout = _TableLayout(shown_titles, cells, self.width)
        heading = "  ".join(map(pad, shown_titles[: layout.split], layout.widths))
        self.stream.write(self.paint(heading.rstrip(" "), "dim") + "\n")
        for row, row_styles in zip(cells, styles, strict=True):
            cell_styles = [
                row_styles[index] if index < len(row_styles) else "" for index in columns
            ]
            self._write_row(list(zip(row, cell_styles, strict=True)), layout)

    def _write_row(self, cells: Sequence[tuple[str, str]], layout: _TableLayout) -> None:
        """Write one row on one line, or on two."""
        last = len(cells) - 1
        pairs = zip(cells[:last], layout.widths, strict=False)
        excess = sum(max(width_of(cell) - width, 0) for (cell, _), width in pairs)
        room = layout.room - excess
        split = layout.split
        if split > last > 0 and self.width and room < layout.min_last:
            split = last
        self._write_cells(cells[:split], layout.widths, room if split > last else 0)
        if below := [cell for cell in cells[split:] if cell[0]]:
            self.stream.write(" " * layout.indent)
            used = layout.indent + sum(width_of(cell) + 2 for cell, _ in below[:-1])
            self._write_cells(
                below, [0] * len(below), max(self.width - used, _MIN_LAST_CELL_COLUMNS)
            )

    def _write_cells(
        self, cells: Sequence[tuple[str, str]], widths: Sequence[int], room: int
    ) -> None:
        """Write one line of cells; the last is cut to `room`, 0 means no limit."""
        *others, (last, style) = cells
        line = "".join(
            self.paint(cell, cell_style) + " " * (max(width - width_of(cell), 0) + 2)
            for (cell, cell_style), width in zip(others, widths, strict=False)
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


def plural(count: int, singular: str, plural_noun: str) -> str:
    """A number with its noun, such as `1 file` or `1,204 files`; both nouns are translated."""
    return say("{count} {noun}", count=f"{count:,}", noun=singular if count == 1 else plural_noun)


def count_skills(count: int) -> str:
    """A number of skills, such as `1 skill`."""
    return plural(count, say("skill"), say("skills"))


def write_json(value: Any) -> None:
    """Print a value as JSON; control characters for terminals are escaped."""
    import json  # costs a fifth of the start-up of `satchel list`

    text = json.dumps(value, ensure_ascii=False, indent=2, default=str)
    # These occur only inside strings, where an escape is equivalent.
    text = _TERMINAL_CONTROLS.sub(lambda match: f"\\u{ord(match.group()):04x}", text)
    sys.stdout.write(text + "\n")
    CommandRun.answered = True


def error_dict(exc: SatchelError) -> dict[str, str]:
    """An error as JSON."""
    return {"code": exc.code, "message": render(exc.message), "hint": render(exc.hint)}


def print_error(message: str, hint: str = "") -> None:
    """Print an error and its hint on stderr."""
    screen = Screen(sys.stderr)
    _print_labelled(screen, say("error: "), "bold red", render(message))
    if hint:
        screen.line()
        _print_labelled(screen, say("hint: "), "cyan", render(hint))


def _print_labelled(screen: Screen, label: str, style: str, text: str) -> None:
    """Write paragraphs after a coloured label; each is wrapped below its own indentation."""
    room = screen.width - width_of(label) if screen.width else 0
    lines: list[str] = []
    for line in clean(text).split("\n"):
        body = line.lstrip(" →")
        lead = line[: len(line) - len(body)]
        first, *others = wrap(body, max(room - width_of(lead), min(room, 20)))
        lines += [lead + first, *(" " * width_of(lead) + part for part in others)]
    plain = label.rstrip(" ")
    painted_label = screen.paint(plain, style) + label[len(plain) :]
    screen.write(painted_label + ("\n" + " " * width_of(label)).join(lines) + "\n")
