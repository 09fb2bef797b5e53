"""The tools excel_info and excel_read: the sheets of a workbook, and a range of cells as rows.

When the answer is cut, it names the range to read next. A formula is shown by its stored value, or
as written when it has none.
"""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Any, NamedTuple

from satchel.tools.excel.workbook import (
    BAD_RANGE,
    FAILURES,
    KINDS,
    LAST_ROW_NUMBER,
    MAX_CELL_CHARS,
    MAX_COLUMN_COUNT,
    MAX_ROW_COUNT,
    NO_SHEET,
    RANGE_TOO_LARGE,
    Area,
    column_name,
    opened,
    parse_range,
    plain,
    shown,
)
from satchel.tools.framing import attribute, encodable, framed, one_line
from satchel.tools.packaged import (
    ALWAYS,
    Failure,
    PackagedParameter,
    PackagedTool,
    Text,
    ToolAnswer,
    ToolFailed,
)
from satchel.tools.workspace import MAX_TEXT_CHARS, READING

if TYPE_CHECKING:
    from satchel.tools.packaged import Job

_MAX_SHEETS_LISTED = 50
_MAX_FIRST_ROW_COLUMNS = 12
_MAX_INFO_CHARS = 6_500

PATH = PackagedParameter(
    "path",
    "string",
    required=True,
    default=None,
    description=Text(
        "Path of the workbook, relative to the project; required, .xlsx or .xlsm, at most 20 MB. "
        "Example: data/sales.xlsx",
        "Excel 文件路径（相对工作区），必填，仅支持 .xlsx 或 .xlsm，上限 20MB。"
        "示例：data/report.xlsx",
    ),
    rule={"minLength": 1, "maxLength": 4096},
)
_MORE_SHEETS = Text(
    "{count} more sheets are not listed; excel_read takes any of them by name",
    "另有 {count} 个工作表未列出；可用 excel_read 按名称读取",
)
_HIDDEN = Text(", hidden", "，隐藏")
_HEAD = Text("{count} sheets", "共 {count} 个工作表")


def run_info(job: Job) -> ToolAnswer:
    """Describe a workbook."""
    path = str(job.arguments["path"])
    where = encodable(job.workspace.relative(path, KINDS))
    sheets: list[dict[str, Any]] = []
    with opened(job, path) as workbook:
        book = workbook.book()
        total = len(book.worksheets)
        for sheet in book.worksheets[:_MAX_SHEETS_LISTED]:
            top = next(sheet.iter_rows(1, 1, 1, _MAX_FIRST_ROW_COLUMNS, values_only=True), ())
            rows, columns = size_of(sheet)
            sheets.append({
                "name": encodable(str(sheet.title)),
                "rows": rows,
                "columns": columns,
                "range": f"A1:{column_name(columns)}{rows}" if rows and columns else "",
                "hidden": sheet.sheet_state != "visible",
                "first_row": [encodable(one_line(shown(plain(value)), 40)) for value in top],
            })  # fmt: skip
            while sheets[-1]["first_row"] and not sheets[-1]["first_row"][-1]:
                sheets[-1]["first_row"].pop()
    lines = [job.say(_HEAD, count=total)]
    lines += [
        f"{one_line(sheet['name'])}: {sheet['rows']} x {sheet['columns']}"
        + (f" ({sheet['range']})" if sheet["range"] else "")
        + (job.say(_HIDDEN) if sheet["hidden"] else "")
        + (f"; {', '.join(sheet['first_row'])}" if sheet["first_row"] else "")
        for sheet in sheets
    ]
    body, cut = _fit_lines(lines, _MAX_INFO_CHARS)
    text = framed("file-read", f'path="{attribute(where)}"', body)
    left = total - cut
    if left:
        text += "\n" + job.say(_MORE_SHEETS, count=left)
    data = {"path": where, "sheets": sheets[:cut], "sheets_total": total}
    return ToolAnswer(text, data, truncated=bool(left), stats={"sheets": total}, path=where)


def _fit_lines(lines: list[str], room: int) -> tuple[str, int]:
    kept: list[str] = []
    for line in lines:
        room -= len(line) + 1
        if room < 0:
            break
        kept.append(line)
    return "\n".join(kept), len(kept) - 1


def size_of(sheet: Any) -> tuple[int, int]:
    """Rows and columns, as the sheet declares them; else counted."""
    if sheet.max_row and sheet.max_column:
        return int(sheet.max_row), int(sheet.max_column)
    rows = columns = 0
    # Bounded: a row may declare any number.
    for at, row in enumerate(sheet.iter_rows(1, LAST_ROW_NUMBER, values_only=True), 1):
        filled = [place for place, value in enumerate(row, 1) if value is not None]
        if filled:
            rows, columns = at, max(columns, filled[-1])
    return rows, columns


INFO = PackagedTool(
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

_MORE = Text(
    "Not everything is shown. Call excel_read again with range {next} and header false for the "
    "rest.",
    "内容未全部显示。请以 range {next}、header false 再次调用 excel_read 读取其余部分。",
)
_WIDE = Text(
    "Columns right of {column} are not shown; ask for them by range.",
    "{column} 列右侧的内容未显示；请通过 range 读取。",
)
_ENDS = Text("The sheet ends at row {row}.", "工作表到第 {row} 行为止。")
_CUT = Text(
    "{count} cells are longer than {limit} characters and were cut.",
    "{count} 个单元格超过 {limit} 个字符，已截断。",
)
_EMPTY = Text("The sheet is empty.", "工作表为空。")
_MAX_CELLS_CHARS = MAX_TEXT_CHARS - 1_200
"""Leaves room for the frame and the notes."""


class SheetPage(NamedTuple):
    """A part of a sheet."""

    sheet: str
    area: Area
    """The range of the rows."""
    rows: list[list[Any]]
    bottom: int
    """The last existing row of the requested range."""
    wide: bool = False
    """Whether there are more columns, without a requested range."""
    ended: bool = False
    """Whether the sheet has fewer rows than requested."""


def run(job: Job) -> ToolAnswer:
    """Read a range."""
    given = job.arguments
    path = str(given["path"])
    where = encodable(job.workspace.relative(path, KINDS))
    named, area = parse_range(str(given["range"]))
    sheet = str(given["sheet"]).strip()
    if named and sheet and named.casefold() != sheet.casefold():
        raise ToolFailed(BAD_RANGE, range=given["range"])
    page = _read(job, path, named or sheet, area)
    return _answer(job, page, where, header=bool(given["header"]))


def _read(job: Job, path: str, name: str, area: Area | None) -> SheetPage:
    # Without a range read one more row and column than are shown, to detect whether there are more.
    wanted = area or Area(1, 1, MAX_COLUMN_COUNT + 1, MAX_ROW_COUNT + 1)
    with opened(job, path) as workbook:
        sheet = workbook.sheet(name)
        rows = _cells(sheet, wanted)
        title = encodable(str(sheet.title))
        if any(value is None for row in rows for value in row):
            formulas = _cells(workbook.sheet(name, formulas=True), wanted)
            rows = [
                [formula if value is None else value for value, formula in zip(*pair, strict=False)]
                for pair in zip(rows, formulas, strict=False)
            ]
        last = size_of(sheet) if not _filled(rows) or area is None else (0, 0)
    if area is not None:
        if not _filled(rows) and (area.top > last[0] or area.left > last[1]):
            raise ToolFailed(OUTSIDE_SHEET, range=area, rows=last[0], columns=last[1])
        bottom = area.top + len(rows) - 1
        seen = area._replace(bottom=max(bottom, area.top))
        return SheetPage(title, seen, rows, seen.bottom, ended=bottom < area.bottom)
    wide = any(len(row) > MAX_COLUMN_COUNT and row[MAX_COLUMN_COUNT] is not None for row in rows)
    more = len(rows) > MAX_ROW_COUNT
    least = MAX_ROW_COUNT + 1 if _filled(rows[MAX_ROW_COUNT:]) else 0
    rows = rows[:MAX_ROW_COUNT]
    while rows and not _filled(rows[-1:]):
        rows.pop()
    filled = [at for row in rows for at, value in enumerate(row, 1) if value is not None]
    width = min(max(filled, default=1), MAX_COLUMN_COUNT)
    rows = [row[:width] for row in rows]
    # The declared size may be wrong: a row that was read exists.
    bottom = max(last[0], len(rows), least) if more else len(rows)
    seen = Area(1, 1, width, max(len(rows), 1))
    return SheetPage(title, seen, rows, bottom, wide=wide)


def _cells(sheet: Any, area: Area) -> list[list[Any]]:
    found = sheet.iter_rows(area.top, area.bottom, area.left, area.right, values_only=True)
    return [[plain(value) for value in row] for row in found]


def _filled(rows: list[list[Any]]) -> bool:
    return any(value is not None for row in rows for value in row)


def _answer(job: Job, page: SheetPage, where: str, *, header: bool) -> ToolAnswer:
    rows, cut = _shorten(page.rows)
    lines = [_line(row) for row in rows]
    count, width = _fit(rows, lines)
    notes: list[str] = []
    area = page.area
    seen = area._replace(bottom=max(area.top + count - 1, area.top))
    following = ""
    if width < area.columns and rows:
        seen = seen._replace(right=area.left + width - 1)
        following = str(Area(seen.right + 1, area.top, area.right, seen.bottom))
    elif seen.bottom < page.bottom and rows:
        bottom = min(page.bottom, seen.bottom + MAX_ROW_COUNT)
        following = str(Area(area.left, seen.bottom + 1, area.right, bottom))
    if following:
        notes.append(job.say(_MORE, next=following))
    if page.wide:
        notes.append(job.say(_WIDE, column=str(area).partition(":")[2].rstrip("0123456789")))
    if cut:
        notes.append(job.say(_CUT, count=cut, limit=MAX_CELL_CHARS))
    partial = bool(notes)
    if page.ended:
        notes.append(job.say(_ENDS, row=page.bottom))
    if not rows:
        notes.append(job.say(_EMPTY))
    rows = [row[:width] for row in rows[:count]]
    body = "".join(_line(row) for row in rows)
    marks = f'path="{attribute(where)[:300]}" sheet="{attribute(page.sheet)[:60]}" range="{seen}"'
    data: dict[str, Any] = {"path": where, "sheet": page.sheet, "range": str(seen)}
    if header and rows:
        data["columns"] = [shown(value) for value in rows[0]]
        rows = rows[1:]
    data["rows"] = rows
    if following:
        data["next_range"] = following
    stats: dict[str, Any] = {"rows": len(rows), "columns": seen.columns}
    text = "\n".join((framed("file-read", marks, body), *notes))
    return ToolAnswer(text, data, truncated=partial, stats=stats, path=where)


def _shorten(rows: list[list[Any]]) -> tuple[list[list[Any]], int]:
    """The rows with long texts cut, and the number of cuts."""
    cut = 0
    found: list[list[Any]] = []
    for row in rows:
        kept: list[Any] = []
        for value in row:
            if isinstance(value, str):
                value = encodable(value)  # noqa: PLW2901
                if len(value) > MAX_CELL_CHARS:
                    value = value[: MAX_CELL_CHARS - 1] + "…"  # noqa: PLW2901
                    cut += 1
            kept.append(value)
        found.append(kept)
    return found, cut


def _line(row: list[Any]) -> str:
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\n").writerow([shown(value) for value in row])
    return stream.getvalue()


def _fit(rows: list[list[Any]], lines: list[str]) -> tuple[int, int]:
    """The number of rows that fit, and of columns: fewer only when one row is too long."""
    room = _MAX_CELLS_CHARS
    for at, line in enumerate(lines):
        room -= len(line)
        if room < 0:
            if at:
                return at, len(rows[0])
            width = len(rows[0])
            while width > 1 and len(_line(rows[0][:width])) * 4 > _MAX_CELLS_CHARS * 3:
                width -= 1
            return 1, width
    return len(rows), len(rows[0]) if rows else 0


TOOL = PackagedTool(
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
    run,
    example={"path": "data/sales.xlsx", "range": "A1:D5"},
)
