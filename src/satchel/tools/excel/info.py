"""excel_info: which sheets a workbook has, and how large they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from satchel.tools.excel.cells import LAST_ROW, column_name, plain, shown
from satchel.tools.excel.guard import FAILURES
from satchel.tools.excel.workbook import KINDS, opened
from satchel.tools.frame import attribute, encodable, framed, one_line
from satchel.tools.packaged import ALWAYS, Answer, PackagedParameter, PackagedTool, Text
from satchel.tools.workspace import READING

if TYPE_CHECKING:
    from satchel.tools.packaged import Job

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
_MORE = Text(
    "{count} more sheets are not listed; excel_read takes any of them by name",
    "另有 {count} 个工作表未列出；可用 excel_read 按名称读取",
)
_HIDDEN = Text(", hidden", "，隐藏")
_HEAD = Text("{count} sheets", "共 {count} 个工作表")


def run(job: Job) -> Answer:
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
    body, cut = _fit(lines, 6_500)
    text = framed("file-read", f'path="{attribute(where)}"', body)
    left = total - cut
    if left:
        text += "\n" + job.say(_MORE, count=left)
    data = {"path": where, "sheets": sheets[:cut], "sheets_total": total}
    return Answer(text, data, truncated=bool(left), stats={"sheets": total}, path=where)


def _fit(lines: list[str], room: int) -> tuple[str, int]:
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


TOOL = PackagedTool(
    "excel_info",
    Text(
        "List the sheets of an Excel file with their size; files up to 20 MB.",
        "查看 Excel 工作簿的工作表列表、行列数与首行内容，文件上限 20MB。",
    ),
    (PATH,),
    (*ALWAYS, *READING, *FAILURES),
    run,
    example={"path": "data/sales.xlsx"},
)
