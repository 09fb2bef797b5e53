"""Ranges such as `Sheet2!A1:C10`, and what a cell holds, as text and as JSON."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from satchel.tools.packaged import Failure, Text, ToolFailed

MAX_ROWS = 1_000
MAX_COLUMNS = 100
LAST_ROW = 1_048_576
LAST_COLUMN = 16_384
MAX_CELL = 1_000
"""Characters of one cell that are shown; a longer one is cut, and it is said."""

BAD_RANGE = Failure(
    "bad-range",
    "INVALID_PARAM",
    Text("That is not a range of cells", "单元格区域格式不正确"),
    Text("{range}"),
    Text("Write it like A1:C10, or like Sheet2!A1:C10", "请使用 A1:C10 或 Sheet2!A1:C10 的格式"),
    Text("It is not written as Excel writes it", "不符合 Excel 的区域写法"),
)
RANGE_TOO_LARGE = Failure(
    "range-too-large",
    "INVALID_PARAM",
    Text("The range is too large", "单元格区域过大"),
    Text("{range} ({rows} x {columns})"),
    Text("Ask for at most 1000 rows and 100 columns at once", "请每次最多请求 1000 行 × 100 列"),
    Text("More than 1000 rows or 100 columns", "超过 1000 行或 100 列"),
)

_CELL = r"\$?([A-Za-z]{1,3})\$?([1-9][0-9]{0,6})"
_RANGE = re.compile(rf"\s*{_CELL}(?:\s*:\s*{_CELL})?\s*")


class Area(NamedTuple):
    """A rectangle of cells, counted from one."""

    left: int
    top: int
    right: int
    bottom: int

    @property
    def rows(self) -> int:
        """How many rows it has."""
        return self.bottom - self.top + 1

    @property
    def columns(self) -> int:
        """How many columns it has."""
        return self.right - self.left + 1

    def __str__(self) -> str:
        return f"{column_name(self.left)}{self.top}:{column_name(self.right)}{self.bottom}"


def column_name(number: int) -> str:
    """`A` for 1, `AA` for 27."""
    name = ""
    while number:
        number, letter = divmod(number - 1, 26)
        name = chr(65 + letter) + name
    return name


def column_number(name: str) -> int:
    """1 for `A`, 27 for `AA`."""
    number = 0
    for letter in name.upper():
        number = number * 26 + ord(letter) - 64
    return number


def parse_range(text: str) -> tuple[str, Area | None]:
    """Sheet and rectangle of a range; the sheet is empty when it names none, so is the rectangle.

    Raises:
        ToolFailed: it is no range, or a larger one than is read at once.
    """
    sheet, mark, cells = text.strip().rpartition("!")
    if sheet.startswith("'") and sheet.endswith("'") and len(sheet) > 1:
        sheet = sheet[1:-1].replace("''", "'")
    if not cells and not mark:
        return "", None
    found = _RANGE.fullmatch(cells)
    if found is None or (mark and not sheet):
        raise ToolFailed(BAD_RANGE, range=text)
    left, top, right, bottom = found.groups()
    columns = sorted((column_number(left), column_number(right or left)))
    rows = sorted((int(top), int(bottom or top)))
    area = Area(columns[0], rows[0], columns[1], rows[1])
    if area.right > LAST_COLUMN or area.bottom > LAST_ROW:
        raise ToolFailed(BAD_RANGE, range=text)
    if area.rows > MAX_ROWS or area.columns > MAX_COLUMNS:
        raise ToolFailed(RANGE_TOO_LARGE, range=text, rows=area.rows, columns=area.columns)
    return sheet, area


def plain(value: Any) -> Any:
    """A cell's value as JSON has it: text, number, true, false or null."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):  # noqa: PLR0124 - not a number
            return str(value)
        return int(value) if value.is_integer() and abs(value) < 1e15 else value
    if hasattr(value, "isoformat"):  # dates and times
        text = value.isoformat()
        return text.removesuffix("T00:00:00")
    return str(getattr(value, "text", value))


def shown(value: Any) -> str:
    """The same as text."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    return str(value)
