"""The tool excel_read: a range of cells as rows.

When the answer is cut, it names the range to read next. A formula is shown by its stored value, or
as written when it has none.
"""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Any, NamedTuple

from satchel.tools.excel.info_tool import sheet_size
from satchel.tools.excel.workbook import (
    BAD_RANGE,
    FAILURES,
    KINDS,
    MAX_CELL_CHARS,
    MAX_COLUMN_COUNT,
    MAX_ROW_COUNT,
    NO_SHEET,
    PATH,
    RANGE_TOO_LARGE,
    Area,
    column_name,
    opened,
    parse_range,
    plain,
    shown,
)
from satchel.tools.failures import READING
from satchel.tools.framing import attribute, encodable, framed
from satchel.tools.packaged import (
    ALWAYS,
    MAX_TEXT_CHARS,
    Failure,
    PackagedParameter,
    PackagedTool,
    Text,
    ToolAnswer,
    ToolFailed,
)

if TYPE_CHECKING:
    from satchel.tools.packaged import Job

_MAX_CELLS_CHARS = MAX_TEXT_CHARS - 1_200
"""Leaves room for the frame and the notes."""

OUTSIDE_SHEET = Failure(
    "outside-sheet",
    "INVALID_PARAM",
    Text("The range lies outside the sheet", "单元格区域超出工作表范围"),
    Text(
        "{range} (last row {rows}, last column {columns})",
        "{range} (最大行: {rows}, 最大列: {columns})",
    ),
    Text("Call excel_info for the real size", "请用 excel_info 查询实际尺寸"),
)
_NEXT_RANGE_TEXT = Text(
    "Not everything is shown. Call excel_read again with range {next} and header false for the "
    "rest.",
    "内容未全部显示。请以 range {next}、header false 再次调用 excel_read 读取其余部分。",
)
_MORE_COLUMNS_TEXT = Text(
    "Columns right of {column} are not shown; ask for them by range.",
    "{column} 列右侧的内容未显示；请通过 range 读取。",
)
_SHEET_END_TEXT = Text("The sheet ends at row {row}.", "工作表到第 {row} 行为止。")
_SHORTENED_TEXT = Text(
    "{count} cells are longer than {limit} characters and were cut.",
    "{count} 个单元格超过 {limit} 个字符，已截断。",
)
_EMPTY_SHEET_TEXT = Text("The sheet is empty.", "工作表为空。")


def run_read(job: Job) -> ToolAnswer:
    """Read a range."""
    arguments = job.arguments
    path = str(arguments["path"])
    relative = encodable(job.workspace.relative(path, KINDS))
    range_sheet, area = parse_range(str(arguments["range"]))
    sheet = str(arguments["sheet"]).strip()
    if range_sheet and sheet and range_sheet.casefold() != sheet.casefold():
        raise ToolFailed(BAD_RANGE, range=arguments["range"])
    page = _read_page(job, path, range_sheet or sheet, area)
    return _make_answer(job, page, relative, has_header=bool(arguments["header"]))


EXCEL_READ = PackagedTool(
    "excel_read",
    Text(
        "Read cells of an Excel sheet as rows; up to 1000 x 100 cells, files up to 20 MB.",
        "读取 Excel 工作表指定区域的单元格，以行列数组返回。最多 1000 行 × 100 列，文件上限 20MB。",
    ),
    (
        PATH,
        PackagedParameter(
            "sheet",
            "string",
            required=False,
            default="",
            description=Text(
                "Name of the sheet; the first sheet by default. Example: Sales 2026",
                "工作表名称，默认第一个 Sheet。示例：Sheet1、销售数据",
            ),
            rule={"maxLength": 100},
        ),
        PackagedParameter(
            "range",
            "string",
            required=False,
            default="",
            description=Text(
                "Cells to read, written like A1:C10 or Sheet2!A1:B5; at most 1000 rows x 100 "
                "columns, everything by default. Example: A1:D20",
                "要读取的单元格区域，格式为 A1:C10。跨 Sheet 写法：Sheet2!A1:B5。"
                "最大范围 1000 行 × 100 列，默认读取全部。示例：A1:D20",
            ),
            rule={"maxLength": 200},
        ),
        PackagedParameter(
            "header",
            "boolean",
            required=False,
            default=True,
            description=Text(
                "Whether the first row holds the names of the columns; true by default, and the "
                "names are then given apart from the rows. Example: false",
                "是否包含表头行，默认 true。为 true 时第一行作为字段名返回。示例：false",
            ),
        ),
    ),
    (*ALWAYS, *READING, *FAILURES, BAD_RANGE, RANGE_TOO_LARGE, NO_SHEET, OUTSIDE_SHEET),
    run_read,
    example={"path": "data/sales.xlsx", "range": "A1:D5"},
)


class SheetPage(NamedTuple):
    """A part of a sheet."""

    sheet: str
    area: Area
    """The range of the rows."""
    rows: list[list[Any]]
    last_row: int
    """The last existing row of the requested range."""
    has_more_columns: bool = False
    """Whether there are more columns, without a requested range."""
    is_past_end: bool = False
    """Whether the sheet has fewer rows than requested."""


def _read_page(job: Job, path: str, name: str, area: Area | None) -> SheetPage:
    # Without a range read one more row and column than are shown, to detect whether there are more.
    requested = area or Area(1, 1, MAX_COLUMN_COUNT + 1, MAX_ROW_COUNT + 1)
    with opened(job, path) as workbook:
        sheet = workbook.sheet(name)
        rows = _read_cells(sheet, requested)
        title = encodable(str(sheet.title))
        if any(value is None for row in rows for value in row):
            formulas = _read_cells(workbook.sheet(name, formulas=True), requested)
            rows = [
                [formula if value is None else value for value, formula in zip(*pair, strict=False)]
                for pair in zip(rows, formulas, strict=False)
            ]
        is_empty = not _has_values(rows)
        last_row, last_column = sheet_size(sheet) if is_empty or area is None else (0, 0)
    if area is None:
        return _first_page(title, rows, last_row)
    if is_empty and (area.top > last_row or area.left > last_column):
        raise ToolFailed(OUTSIDE_SHEET, range=area, rows=last_row, columns=last_column)
    last_read_row = area.top + len(rows) - 1
    read_area = area._replace(bottom=max(last_read_row, area.top))
    is_past_end = last_read_row < area.bottom
    return SheetPage(title, read_area, rows, read_area.bottom, is_past_end=is_past_end)


def _first_page(title: str, rows: list[list[Any]], declared_rows: int) -> SheetPage:
    """The page of a sheet that is read without a range."""
    has_more_columns = any(
        len(row) > MAX_COLUMN_COUNT and row[MAX_COLUMN_COUNT] is not None for row in rows
    )
    has_more_rows = len(rows) > MAX_ROW_COUNT
    min_row_count = MAX_ROW_COUNT + 1 if _has_values(rows[MAX_ROW_COUNT:]) else 0
    rows = rows[:MAX_ROW_COUNT]
    while rows and not _has_values(rows[-1:]):
        rows.pop()
    filled = [column for row in rows for column, value in enumerate(row, 1) if value is not None]
    width = min(max(filled, default=1), MAX_COLUMN_COUNT)
    rows = [row[:width] for row in rows]
    # The declared size may be wrong: a row that was read exists.
    last_row = max(declared_rows, len(rows), min_row_count) if has_more_rows else len(rows)
    area = Area(1, 1, width, max(len(rows), 1))
    return SheetPage(title, area, rows, last_row, has_more_columns=has_more_columns)


def _read_cells(sheet: Any, area: Area) -> list[list[Any]]:
    rows = sheet.iter_rows(area.top, area.bottom, area.left, area.right, values_only=True)
    return [[plain(value) for value in row] for row in rows]


def _has_values(rows: list[list[Any]]) -> bool:
    return any(value is not None for row in rows for value in row)


def _make_answer(job: Job, page: SheetPage, relative: str, *, has_header: bool) -> ToolAnswer:
    rows, shortened_cell_count = _shorten(page.rows)
    row_count, column_count = _count_fitting(rows)
    shown_area, next_range = _find_shown_area(page, row_count, column_count)
    rows = [row[:column_count] for row in rows[:row_count]]
    omission_notes = _make_omission_notes(job, page, next_range, shortened_cell_count)
    end_notes = _make_end_notes(job, page)
    text = "\n".join((_make_body(page, relative, shown_area, rows), *omission_notes, *end_notes))
    data: dict[str, Any] = {"path": relative, "sheet": page.sheet, "range": str(shown_area)}
    if has_header and rows:
        data["columns"] = [shown(value) for value in rows[0]]
        rows = rows[1:]
    data["rows"] = rows
    if next_range:
        data["next_range"] = next_range
    stats: dict[str, Any] = {"rows": len(rows), "columns": shown_area.columns}
    return ToolAnswer(text, data, truncated=bool(omission_notes), stats=stats, path=relative)


def _make_omission_notes(
    job: Job, page: SheetPage, next_range: str, shortened_cell_count: int
) -> list[str]:
    """Return notes on the cells that the answer does not show in full."""
    notes: list[str] = []
    if next_range:
        notes.append(job.say(_NEXT_RANGE_TEXT, next=next_range))
    if page.has_more_columns:
        notes.append(job.say(_MORE_COLUMNS_TEXT, column=column_name(page.area.right)))
    if shortened_cell_count:
        notes.append(job.say(_SHORTENED_TEXT, count=shortened_cell_count, limit=MAX_CELL_CHARS))
    return notes


def _make_end_notes(job: Job, page: SheetPage) -> list[str]:
    """Return notes on the end of the sheet."""
    notes: list[str] = []
    if page.is_past_end:
        notes.append(job.say(_SHEET_END_TEXT, row=page.last_row))
    if not page.rows:
        notes.append(job.say(_EMPTY_SHEET_TEXT))
    return notes


def _make_body(page: SheetPage, relative: str, area: Area, rows: list[list[Any]]) -> str:
    """Return the rows as framed CSV."""
    sheet = attribute(page.sheet)[:60]
    attributes = f'path="{attribute(relative)[:300]}" sheet="{sheet}" range="{area}"'
    return framed("file-read", attributes, "".join(_csv_line(row) for row in rows))


def _find_shown_area(page: SheetPage, row_count: int, column_count: int) -> tuple[Area, str]:
    """Return the area that is shown, and the range to read next; empty when nothing follows."""
    area = page.area
    shown_area = area._replace(bottom=max(area.top + row_count - 1, area.top))
    if not page.rows:
        return shown_area, ""
    if column_count < area.columns:
        shown_area = shown_area._replace(right=area.left + column_count - 1)
        return shown_area, str(Area(shown_area.right + 1, area.top, area.right, shown_area.bottom))
    if shown_area.bottom < page.last_row:
        bottom = min(page.last_row, shown_area.bottom + MAX_ROW_COUNT)
        return shown_area, str(Area(area.left, shown_area.bottom + 1, area.right, bottom))
    return shown_area, ""


def _shorten(rows: list[list[Any]]) -> tuple[list[list[Any]], int]:
    """Return the rows with long texts cut, and the number of cut cells."""
    shortened_cell_count = 0
    shortened_rows: list[list[Any]] = []
    for row in rows:
        shortened: list[Any] = []
        for value in row:
            if isinstance(value, str):
                value = encodable(value)  # noqa: PLW2901
                if len(value) > MAX_CELL_CHARS:
                    value = value[: MAX_CELL_CHARS - 1] + "…"  # noqa: PLW2901
                    shortened_cell_count += 1
            shortened.append(value)
        shortened_rows.append(shortened)
    return shortened_rows, shortened_cell_count


def _csv_line(row: list[Any]) -> str:
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\n").writerow([shown(value) for value in row])
    return stream.getvalue()


def _count_fitting(rows: list[list[Any]]) -> tuple[int, int]:
    """Return how many rows fit, and how many columns: fewer only when one row is too long."""
    if not rows:
        return 0, 0
    column_count = len(rows[0])
    room = _MAX_CELLS_CHARS
    for index, row in enumerate(rows):
        room -= len(_csv_line(row))
        if room < 0:
            return (index, column_count) if index else (1, _count_fitting_columns(row))
    return len(rows), column_count


def _count_fitting_columns(row: list[Any]) -> int:
    column_count = len(row)
    while column_count > 1 and len(_csv_line(row[:column_count])) * 4 > _MAX_CELLS_CHARS * 3:
        column_count -= 1
    return column_count
