"""The good and bad examples that the rules were made from, in both languages."""

from __future__ import annotations

import pytest

from satchel.authoring import text_rules
from satchel.authoring.text_rules import find_internals, find_message_fault

pytestmark = pytest.mark.req("E5")


@pytest.mark.parametrize(
    ("text", "slips"),
    [
        (
            (
                "读取 Excel 工作表指定区域的单元格内容，以行列数组形式返回。"
                "支持跨 Sheet 读取，文件大小上限 20MB。"
            ),
            set(),
        ),
        ("读取 Excel 工作表指定区域内容，返回行列数组。文件上限 20MB。", set()),
        ("将 Markdown 转换为 PDF，仅支持 UTF-8 编码，文件上限 20MB。", set()),
        ("批量重命名工作区内的文件，不会覆盖已有文件，一次最多 100 个。", set()),
        ("Reads a range of cells from a workbook and returns rows. Files up to 20 MB.", set()),
        ("Frobnicates the rows of a table. At most 1,000 rows, never in place.", set()),
        ("Quickly resizes images. Up to 20 MB, only PNG and JPEG are accepted.", set()),
        ("Apply labels to messages that match a query, at most 100 messages a call.", set()),
        ("Convert a CSV file to JSON; the file must exist and have a header row.", set()),
        ("读取 Excel 文件", {"limit", "length"}),
        ("这个工具基于 excelize 库，可以读取 xlsx 格式的 Excel 文件", {"verb", "limit", "library"}),
        ("Excel 读取工具，功能强大，支持多种功能", {"verb", "limit", "filler"}),
        ("This tool reads Excel files of up to 20 MB with openpyxl.", {"verb", "library"}),
        ("A powerful reader for spreadsheets, at most 20 MB each", {"verb", "filler"}),
        ("Excel reader for files of at most 20 MB in a folder", {"verb"}),
        ("Reads files", {"limit", "length"}),
        ("Sends HTTP requests to a server, at most 10 requests a minute", set()),
    ],
)
def test_faults_of_a_description(text, slips):
    least, most = text_rules.description_bounds(text)
    found = {
        "verb": not text_rules.begins_with_verb(text),
        "limit": not text_rules.has_limit(text),
        "length": not least <= text_rules.description_length(text) <= most,
        "library": bool(text_rules.find_library(text)),
        "filler": bool(text_rules.find_filler(text)),
    }
    assert {name for name, wrong in found.items() if wrong} == slips


@pytest.mark.parametrize(
    ("text", "lacks"),
    [
        (
            (
                "要读取的单元格区域，格式为 A1:C10。跨 Sheet 写法：Sheet2!A1:B5。"
                "最大范围 1000 行 × 100 列。示例：A1:D20"
            ),
            set(),
        ),
        ("工作表名称，默认第一个 Sheet。示例：Sheet1、销售数据", set()),
        ("是否包含表头行（默认 true）。为 true 时第一行作为字段名返回", set()),
        ("Excel 文件路径（相对工作区）。示例：data/report.xlsx", set()),
        ("工作表名，默认第一个 Sheet。示例：Sheet1", set()),
        ("单元格区域，格式 A1:C10。默认读取全部。示例：A1:D20", set()),
        ("Range of cells, written A1:C10, at most 1000 rows. Example: A1:D20", set()),
        ("Whether the first row has names. Default true; when true it is left out", set()),
        ("Number of words to return, from 1 to 50, default 5. E.g. 10", set()),
        ("单元格区域", {"bound", "example"}),
        ("如 A1:C10", {"what", "bound"}),
        ("Sheet 名称（可选）", {"bound", "example"}),
        ("Cell range", {"bound", "example"}),
        ("e.g. A1:C10", {"what", "bound"}),
        ("Name of the sheet (optional)", {"bound", "example"}),
        ("Default 5. Example: 3", {"what"}),
    ],
)
def test_missing_elements_of_a_parameter_description(text, lacks):
    truth = text.startswith(("是否", "Whether"))
    found = {
        "what": text_rules.has_meaning(text),
        "bound": text_rules.has_bound(text),
        "example": text_rules.has_example(text, is_boolean=truth),
    }
    assert {name for name, there in found.items() if not there} == lacks


@pytest.mark.parametrize(
    ("message", "slip", "inside"),
    [
        ("文件不存在: report.xlsx — 请先用 file_list 确认路径", "", False),
        ("单元格区域超出工作表范围 (最大行: 100) — 请用 excel_info 查询实际尺寸", "", False),
        ("文件过大 (25MB)，超过 20MB 上限 — 请拆分后分批处理", "", False),
        ("Sheet 不存在: 销售数据 — 可用 sheet 列表: [Sheet1, Sheet2]", "", False),
        ("File not found: report.xlsx — list the folder to see what is there", "", False),
        ("open report.xlsx: no such file or directory", "no-step", True),
        ("错误", "vague", False),
        ("操作失败，请重试", "no-step", False),
        ("文件不存在: a — 请重试", "empty-step", False),
        ("runtime error: index out of range", "no-step", True),
        ("Error — look at the log file", "vague", False),
        ("KeyError: 'path' — check the arguments", "", True),
    ],
)
def test_faults_of_an_error_message(message, slip, inside):
    assert find_message_fault(message) == slip
    assert bool(find_internals(message)) is inside
