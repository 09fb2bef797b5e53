"""The tool excel_write: writes rows into a new workbook.

Everything is checked before a file is touched. An existing file is replaced only on request, and
atomically. A text that begins with `=` stays a text: a formula could start a program or call
another machine.
"""

from __future__ import annotations

import io
import math
import re
from typing import TYPE_CHECKING, Any, cast

from satchel.tools.excel.workbook import MAX_COLUMN_COUNT, MAX_ROW_COUNT, Area, column_name
from satchel.tools.failures import WRITING
from satchel.tools.packaged import (
    ALWAYS,
    Failure,
    PackagedParameter,
    PackagedTool,
    Text,
    ToolAnswer,
    ToolFailed,
)

if TYPE_CHECKING:
    from satchel.tools.packaged import Job

KINDS = (".xlsx",)
_MAX_CELL_CHARS = 32_767
_MAX_EXACT_INTEGER = 10**15
"""Excel keeps fifteen digits of a number."""
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_SHEET = re.compile(r"[^\[\]:*?/\\\x00-\x1f]{1,31}")

BAD_ROWS = Failure(
    "bad-rows",
    "INVALID_PARAM",
    Text("`rows` is not a list of rows", "`rows` 不是行的列表"),
    Text("{reason}"),
    Text(
        'Write it like [["Name", "Score"], ["Ada", 95]]',
        '请使用 [["姓名", "分数"], ["张三", 95]] 的格式',
    ),
)
ROWS_TOO_LARGE = Failure(
    "rows-too-large",
    "INVALID_PARAM",
    Text("There are too many cells", "单元格数量过多"),
    Text("{rows} x {columns}"),
    Text(
        "Write at most 1000 rows of 100 columns into one file",
        "请每个文件最多写入 1000 行 × 100 列",
    ),
)
BAD_CELL = Failure(
    "bad-cell",
    "INVALID_PARAM",
    Text("Excel cannot hold this cell", "Excel 无法保存该单元格"),
    Text("{cell} ({reason})"),
    Text("Shorten the text or remove its control characters", "请缩短文本或去除控制字符"),
)
BAD_SHEET = Failure(
    "bad-sheet",
    "INVALID_PARAM",
    Text("Excel does not allow this name of a sheet", "工作表名称不合法"),
    Text("{sheet}"),
    Text("Use 1 to 31 characters and none of []:*?/\\", "请使用 1～31 个字符，且不含 []:*?/\\"),
)
_DONE = Text(
    "Wrote {rows} x {columns} cells to `{path}`, sheet `{sheet}`, {range}.",
    "已将 {rows} 行 × {columns} 列写入 `{path}` 的工作表 `{sheet}`，区域 {range}。",
)
_REPLACED = Text("The file that was there is gone.", "原有文件已被替换。")


def run_write(job: Job) -> ToolAnswer:
    """Write a workbook."""
    arguments = job.arguments
    path, overwrite = str(arguments["path"]), bool(arguments["overwrite"])
    sheet = str(arguments["sheet"]).strip() or "Sheet1"
    # 1. Arguments, without touching the disk.
    job.workspace.relative(path, KINDS)
    if not _SHEET.fullmatch(sheet) or sheet[0] == "'" or sheet[-1] == "'":
        raise ToolFailed(BAD_SHEET, sheet=sheet)
    rows = _check_rows(arguments["rows"])
    # 2. The target.
    job.workspace.check_target(path, KINDS, overwrite=overwrite)
    # 3. Build the file in memory, then write it.
    data = _build(rows, sheet)
    written = job.workspace.write(path, data, overwrite=overwrite)
    width = max(len(row) for row in rows)
    area = Area(1, 1, width, len(rows))
    sentences = [
        job.say(_DONE, rows=len(rows), columns=width, path=written.path, sheet=sheet, range=area),
        job.say(_REPLACED) if written.replaced else "",
    ]
    answer: dict[str, Any] = {
        "path": written.path,
        "sheet": sheet,
        "range": str(area),
        "replaced": written.replaced,
        "bytes": len(data),
    }
    return ToolAnswer(
        " ".join(filter(None, sentences)), answer, stats={"bytes": len(data)}, path=written.path
    )


def _check_rows(raw_rows: Any) -> list[list[Any]]:
    rows: list[list[Any]] = []
    for index, row in enumerate(cast("list[Any]", raw_rows)):
        if not isinstance(row, list | tuple):
            raise ToolFailed(BAD_ROWS, reason=f"rows[{index}]")
        rows.append(list(cast("list[Any]", row)))
    width = max((len(row) for row in rows), default=0)
    if not width:
        raise ToolFailed(BAD_ROWS, reason="[]")
    if len(rows) > MAX_ROW_COUNT or width > MAX_COLUMN_COUNT:
        raise ToolFailed(ROWS_TOO_LARGE, rows=len(rows), columns=width)
    for down, row in enumerate(rows, 1):
        for across, value in enumerate(row, 1):
            _check_cell(value, f"{column_name(across)}{down}")
    return rows


def _check_cell(value: Any, cell: str) -> None:
    if value is None or isinstance(value, bool | int):
        return
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ToolFailed(BAD_ROWS, reason=f"{cell}: {value}")
        return
    if not isinstance(value, str):
        raise ToolFailed(BAD_ROWS, reason=f"{cell}: {type(value).__name__}")
    if len(value) > _MAX_CELL_CHARS:
        raise ToolFailed(BAD_CELL, cell=cell, reason=f"{len(value):,} > {_MAX_CELL_CHARS:,}")
    if _CONTROL.search(value):
        raise ToolFailed(BAD_CELL, cell=cell, reason=repr(_CONTROL.findall(value)[0]))


def _build(rows: list[list[Any]], sheet: str) -> bytes:
    """The workbook; texts like formulas and numbers that Excel would round are texts in it."""
    from openpyxl import Workbook

    book = Workbook()
    page = cast("Any", book.active)
    page.title = sheet
    for down, row in enumerate(rows, 1):
        for across, value in enumerate(row, 1):
            if value is None:
                continue
            cell = page.cell(down, across)
            if (
                isinstance(value, int)
                and not isinstance(value, bool)
                and abs(value) >= _MAX_EXACT_INTEGER
            ):
                value = str(value)  # noqa: PLW2901
            cell.value = value
            if isinstance(value, str) and cell.data_type != "s":
                # A text such as `=1+1` or `#N/A`. The quote prefix keeps it a text when edited.
                cell.data_type = "s"
                cell.quotePrefix = True
    stream = io.BytesIO()
    book.save(stream)
    return stream.getvalue()


EXCEL_WRITE = PackagedTool(
    "excel_write",
    Text(
        "Write rows into a new Excel file; up to 1000 x 100 cells, replaces only if told.",
        "将行列数据写入新的 Excel 文件，最多 1000 行 × 100 列；文件已存在时默认不覆盖。",
    ),
    (
        PackagedParameter(
            "path",
            "string",
            required=True,
            default=None,
            description=Text(
                "Path of the new file, relative to the project; required, must end in .xlsx, "
                "missing folders are made. Example: reports/summary.xlsx",
                "要写入的文件路径（相对工作区），必填，须以 .xlsx 结尾，缺少的文件夹会自动创建。"
                "示例：reports/summary.xlsx",
            ),
            rule={"minLength": 1, "maxLength": 4096},
        ),
        PackagedParameter(
            "rows",
            "array",
            required=True,
            default=None,
            description=Text(
                "Rows of cells, each a list of texts, numbers, true, false or null; required, at "
                'most 1000 rows x 100 columns. Example: [["Name", "Score"], ["Ada", 95]]',
                "行的列表，每行是文本、数字、true、false 或 null 的列表；必填，"
                '最多 1000 行 × 100 列。示例：[["姓名", "分数"], ["张三", 95]]',
            ),
            rule={"items": {"type": "array", "items": {}}, "minItems": 1},
        ),
        PackagedParameter(
            "sheet",
            "string",
            required=False,
            default="Sheet1",
            description=Text(
                "Name of the sheet, at most 31 characters; Sheet1 by default. Example: Summary",
                "工作表名称，最多 31 个字符，默认 Sheet1。示例：汇总",
            ),
        ),
        PackagedParameter(
            "overwrite",
            "boolean",
            required=False,
            default=False,
            description=Text(
                "Whether an existing file is replaced as a whole; false by default, and then it is "
                "an error. Example: true",
                "文件已存在时是否整体替换，默认 false，此时报错。示例：true",
            ),
        ),
    ),
    (*ALWAYS, *WRITING, BAD_ROWS, ROWS_TOO_LARGE, BAD_CELL, BAD_SHEET),
    run_write,
    example={
        "path": "reports/summary.xlsx",
        "rows": [["Region", "Total"], ["North", 1820.5], ["South", 2240]],
        "sheet": "Summary",
    },
    writes=True,
)
