"""The tool excel_info: the sheets of a workbook, with the size and the first row of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from satchel.tools.excel.workbook import (
    FAILURES,
    KINDS,
    LAST_ROW_NUMBER,
    PATH,
    column_name,
    opened,
    plain,
    shown,
)
from satchel.tools.failures import READING
from satchel.tools.framing import attribute, encodable, framed, one_line
from satchel.tools.packaged import ALWAYS, PackagedTool, Text, ToolAnswer

if TYPE_CHECKING:
    from satchel.tools.packaged import Job

_MAX_SHEETS_LISTED = 50
_MAX_FIRST_ROW_COLUMNS = 12
_MAX_INFO_CHARS = 6_500

_SHEET_COUNT_TEXT = Text("{count} sheets", "共 {count} 个工作表")
_HIDDEN_TEXT = Text(", hidden", "，隐藏")
_UNLISTED_SHEETS_TEXT = Text(
    "{count} more sheets are not listed; excel_read takes any of them by name",
    "另有 {count} 个工作表未列出；可用 excel_read 按名称读取",
)


def run_info(job: Job) -> ToolAnswer:
    """Describe a workbook."""
    path = str(job.arguments["path"])
    relative = encodable(job.workspace.relative(path, KINDS))
    with opened(job, path) as workbook:
        worksheets = workbook.book().worksheets
        total = len(worksheets)
        sheets = [_describe_sheet(sheet) for sheet in worksheets[:_MAX_SHEETS_LISTED]]
    headline = job.say(_SHEET_COUNT_TEXT, count=total)
    lines = [_sheet_line(job, sheet) for sheet in sheets]
    listed_count = _count_fitting(lines, _MAX_INFO_CHARS - len(headline) - 1)
    body = "\n".join((headline, *lines[:listed_count]))
    text = framed("file-read", f'path="{attribute(relative)}"', body)
    omitted_count = total - listed_count
    if omitted_count:
        text += "\n" + job.say(_UNLISTED_SHEETS_TEXT, count=omitted_count)
    data = {"path": relative, "sheets": sheets[:listed_count], "sheets_total": total}
    return ToolAnswer(
        text, data, truncated=bool(omitted_count), stats={"sheets": total}, path=relative
    )


EXCEL_INFO = PackagedTool(
    "excel_info",
    Text(
        "List the sheets of an Excel file with their size; files up to 20 MB.",
        "查看 Excel 工作簿的工作表列表、行列数与首行内容，文件上限 20MB。",
    ),
    (PATH,),
    (*ALWAYS, *READING, *FAILURES),
    run_info,
    example={"path": "data/sales.xlsx"},
)


def _describe_sheet(sheet: Any) -> dict[str, Any]:
    first_cells = next(sheet.iter_rows(1, 1, 1, _MAX_FIRST_ROW_COLUMNS, values_only=True), ())
    rows, columns = sheet_size(sheet)
    first_row = [encodable(one_line(shown(plain(value)), 40)) for value in first_cells]
    while first_row and not first_row[-1]:
        first_row.pop()
    return {
        "name": encodable(str(sheet.title)),
        "rows": rows,
        "columns": columns,
        "range": f"A1:{column_name(columns)}{rows}" if rows and columns else "",
        "hidden": sheet.sheet_state != "visible",
        "first_row": first_row,
    }


def sheet_size(sheet: Any) -> tuple[int, int]:
    """Return the number of rows and columns that a sheet declares, or else counted."""
    if sheet.max_row and sheet.max_column:
        return int(sheet.max_row), int(sheet.max_column)
    rows = columns = 0
    # Bounded: a row may declare any number.
    for row_number, row in enumerate(sheet.iter_rows(1, LAST_ROW_NUMBER, values_only=True), 1):
        filled = [column for column, value in enumerate(row, 1) if value is not None]
        if filled:
            rows, columns = row_number, max(columns, filled[-1])
    return rows, columns


def _sheet_line(job: Job, sheet: dict[str, Any]) -> str:
    line = f"{one_line(sheet['name'])}: {sheet['rows']} x {sheet['columns']}"
    if sheet["range"]:
        line += f" ({sheet['range']})"
    if sheet["hidden"]:
        line += job.say(_HIDDEN_TEXT)
    if sheet["first_row"]:
        line += f"; {', '.join(sheet['first_row'])}"
    return line


def _count_fitting(lines: list[str], room: int) -> int:
    """Return how many of the lines have room for all their characters."""
    for index, line in enumerate(lines):
        room -= len(line) + 1
        if room < 0:
            return index
    return len(lines)
