"""excel_read: the cells of a range, as rows.

What does not fit into the answer is announced with the range to ask for next. Formulas are shown by
the value that was stored with them; where none was stored, that is said and not shown as empty.
"""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Any, NamedTuple

from satchel.tools.excel.workbook import (
    BAD_RANGE,
    FAILURES,
    KINDS,
    LAST_ROW,
    MAX_CELL,
    MAX_COLUMNS,
    MAX_ROWS,
    NO_SHEET,
    RANGE_TOO_LARGE,
    TWO_SHEETS,
    Area,
    column_name,
    opened,
    parse_range,
    plain,
    shown,
)
from satchel.tools.frame import attribute, encodable, framed, one_line
from satchel.tools.packaged import (
    ALWAYS,
    Answer,
    Failure,
    PackagedParameter,
    PackagedTool,
    Text,
    ToolFailed,
)
from satchel.tools.workspace import MAX_TEXT, READING

if TYPE_CHECKING:
    from satchel.tools.packaged import (
        Job,
    )

_SHEETS = 50
_FIRST = 12

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


def run_info(job: Job) -> Answer:
    """Describe a workbook."""
    path = str(job.arguments["path"])
    where = encodable(job.workspace.relative(path, KINDS))
    sheets: list[dict[str, Any]] = []
    with opened(job, path) as workbook:
        book = workbook.book()
        total = len(book.worksheets)
        for sheet in book.worksheets[:_SHEETS]:
            top = next(sheet.iter_rows(1, 1, 1, _FIRST, values_only=True), ())
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
    body, cut = _fit_lines(lines, 6_500)
    text = framed("file-read", f'path="{attribute(where)}"', body)
    left = total - cut
    if left:
        text += "\n" + job.say(_MORE_SHEETS, count=left)
    data = {"path": where, "sheets": sheets[:cut], "sheets_total": total}
    return Answer(text, data, truncated=bool(left), stats={"sheets": total}, path=where)


def _fit_lines(lines: list[str], room: int) -> tuple[str, int]:
    """As many lines as there is room for, and how many of them are sheets."""
    kept: list[str] = []
    for line in lines:
        room -= len(line) + 1
        if room < 0:
            break
        kept.append(line)
    return "\n".join(kept), len(kept) - 1


def size_of(sheet: Any) -> tuple[int, int]:
    """Rows and columns, as the sheet declares them; counted when it does not."""
    if sheet.max_row and sheet.max_column:
        return int(sheet.max_row), int(sheet.max_column)
    rows = columns = 0
    # A bound, since a row may call itself number nine billion.
    for at, row in enumerate(sheet.iter_rows(1, LAST_ROW, values_only=True), 1):
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
    Text("It begins below the last row or right of the last column", "起始行列超出工作表"),
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
_UNKNOWN = Text(
    "{count} cells hold formulas whose values were never stored; they are empty here. "
    "Set formulas to true to see them.",
    "{count} 个单元格的公式没有存储计算结果，此处为空。将 formulas 设为 true 可查看公式。",
)
_EMPTY = Text("The sheet is empty.", "工作表为空。")
_ROOM = MAX_TEXT - 1_200
"""What is left for cells beside the frame and the notes."""


class Page(NamedTuple):
    """What was read of a sheet."""

    sheet: str
    area: Area
    """What the rows cover."""
    rows: list[list[Any]]
    bottom: int
    """The last row that was asked for and is there."""
    wide: bool = False
    """There are columns that nobody asked for by range."""
    ended: bool = False
    """Fewer rows are there than were asked for."""
    unknown: int = 0
    """Formulas without a stored value."""


def run(job: Job) -> Answer:
    """Read a range."""
    given = job.arguments
    path = str(given["path"])
    where = encodable(job.workspace.relative(path, KINDS))
    named, area = parse_range(str(given["range"]))
    sheet = str(given["sheet"]).strip()
    if named and sheet and named.casefold() != sheet.casefold():
        raise ToolFailed(TWO_SHEETS, sheet=sheet, other=named)
    page = _read(job, path, sheet or named, area, formulas=bool(given["formulas"]))
    return _tell(job, page, where, header=bool(given["header"]))


def _read(job: Job, path: str, name: str, area: Area | None, *, formulas: bool) -> Page:
    # Without a range one more row and column than are shown: to know whether there are more.
    wanted = area or Area(1, 1, MAX_COLUMNS + 1, MAX_ROWS + 1)
    with opened(job, path) as workbook:
        sheet = workbook.sheet(name, formulas=formulas)
        rows = _cells(sheet, wanted)
        title = encodable(str(sheet.title))
        last = size_of(sheet) if not _filled(rows) or area is None else (0, 0)
        unknown = 0
        shape = rows
        if not formulas and any(value is None for row in rows for value in row):
            hidden = _cells(workbook.sheet(name, formulas=True), wanted)
            unknown = sum(
                value is None and formula is not None
                for row, other in zip(rows, hidden, strict=False)
                for value, formula in zip(row, other, strict=False)
            )
            shape = hidden  # a column of formulas is there, though their values are not known
    if area is not None:
        if not _filled(rows) and (area.top > last[0] or area.left > last[1]):
            raise ToolFailed(OUTSIDE_SHEET, range=area, rows=last[0], columns=last[1])
        bottom = area.top + len(rows) - 1
        seen = area._replace(bottom=max(bottom, area.top))
        return Page(title, seen, rows, seen.bottom, ended=bottom < area.bottom, unknown=unknown)
    wide = any(len(row) > MAX_COLUMNS and row[MAX_COLUMNS] is not None for row in shape)
    more = len(shape) > MAX_ROWS
    least = MAX_ROWS + 1 if _filled(shape[MAX_ROWS:]) else 0
    shape = shape[:MAX_ROWS]
    while shape and not _filled(shape[-1:]):
        shape.pop()
    rows = rows[: len(shape)]
    filled = [at for row in shape for at, value in enumerate(row, 1) if value is not None]
    width = min(max(filled, default=1), MAX_COLUMNS)
    rows = [row[:width] for row in rows]
    # What a sheet declares may be wrong: a row that was seen is there.
    bottom = max(last[0], len(rows), least) if more else len(rows)
    seen = Area(1, 1, width, max(len(rows), 1))
    return Page(title, seen, rows, bottom, wide=wide, unknown=unknown)


def _cells(sheet: Any, area: Area) -> list[list[Any]]:
    found = sheet.iter_rows(area.top, area.bottom, area.left, area.right, values_only=True)
    return [[plain(value) for value in row] for row in found]


def _filled(rows: list[list[Any]]) -> bool:
    return any(value is not None for row in rows for value in row)


def _tell(job: Job, page: Page, where: str, *, header: bool) -> Answer:
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
        bottom = min(page.bottom, seen.bottom + MAX_ROWS)
        following = str(Area(area.left, seen.bottom + 1, area.right, bottom))
    if following:
        notes.append(job.say(_MORE, next=following))
    if page.wide:
        notes.append(job.say(_WIDE, column=str(area).partition(":")[2].rstrip("0123456789")))
    if cut:
        notes.append(job.say(_CUT, count=cut, limit=MAX_CELL))
    if page.unknown:
        notes.append(job.say(_UNKNOWN, count=page.unknown))
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
    return Answer(text, data, truncated=partial, stats=stats, path=where)


def _shorten(rows: list[list[Any]]) -> tuple[list[list[Any]], int]:
    """The rows with long texts cut, and how many there were."""
    cut = 0
    found: list[list[Any]] = []
    for row in rows:
        kept: list[Any] = []
        for value in row:
            if isinstance(value, str):
                value = encodable(value)  # noqa: PLW2901
                if len(value) > MAX_CELL:
                    value = value[: MAX_CELL - 1] + "…"  # noqa: PLW2901
                    cut += 1
            kept.append(value)
        found.append(kept)
    return found, cut


def _line(row: list[Any]) -> str:
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\n").writerow([shown(value) for value in row])
    return stream.getvalue()


def _fit(rows: list[list[Any]], lines: list[str]) -> tuple[int, int]:
    """How many rows fit, and how many columns of them: fewer only when one row is too long."""
    room = _ROOM
    for at, line in enumerate(lines):
        room -= len(line)
        if room < 0:
            if at:
                return at, len(rows[0])
            width = len(rows[0])
            while width > 1 and len(_line(rows[0][:width])) * 4 > _ROOM * 3:
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
        PackagedParameter(
            "formulas",
            "boolean",
            required=False,
            default=False,
            description=Text(
                "Whether formulas are shown as written; false by default, and their stored values "
                "are shown. Example: true",
                "是否显示公式原文，默认 false，即显示公式已存储的计算结果。示例：true",
            ),
        ),
    ),
    (
        *ALWAYS,
        *READING,
        *FAILURES,
        BAD_RANGE,
        RANGE_TOO_LARGE,
        TWO_SHEETS,
        NO_SHEET,
        OUTSIDE_SHEET,
    ),
    run,
    example={"path": "data/sales.xlsx", "range": "A1:D5"},
)
