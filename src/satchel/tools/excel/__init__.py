"""The Excel packaged skill, also the template for others.

The record `skill` below has everything about it: the text for agents, for its page and for the
linter. `reader` and `writer` hold the tools; `workbook` opens files safely. openpyxl is imported at
the first call.
"""

from __future__ import annotations

import os
from typing import Any, cast

from satchel.tools.excel import reader, writer
from satchel.tools.packaged import Choice, PackagedSkill, Scenario, Text

__all__ = ["skill"]


def write_examples(folder: str) -> None:
    """Write the workbook that the examples read: sales of four regions, and a sheet of notes."""
    from openpyxl import Workbook

    book = Workbook()
    sheet = cast("Any", book.active)
    sheet.title = "Sales"
    for row in (
        ("Region", "Month", "Units", "Revenue"),
        ("North", "2026-01", 120, 1820.5),
        ("South", "2026-01", 95, 1430),
        ("East", "2026-01", 143, 2240.75),
        ("West", "2026-01", 88, 1105.2),
    ):
        sheet.append(row)
    notes = book.create_sheet("Notes")
    notes.append(("Note", "Author"))
    notes.append(("West is an estimate", "Ada"))
    path = os.path.join(folder, "data", "sales.xlsx")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    book.save(path)


skill = PackagedSkill(
    name="excel",
    label="Excel",
    mark="📊",
    wraps="openpyxl",
    needs=("openpyxl",),
    install='pip install "satchel[excel]"',
    overview=Text(
        "Wraps openpyxl: looks into Excel workbooks, reads ranges of cells as rows, and writes "
        "rows into new workbooks.",
        "封装 openpyxl：查看 Excel 工作簿结构，按区域读取单元格，并将行列数据写入新的工作簿。",
    ),
    tools=(reader.INFO, reader.TOOL, writer.TOOL),
    when=(
        Text(
            "The user gives an .xlsx report and asks what is in it",
            "用户提供 .xlsx 报表并询问其中内容时",
        ),
        Text(
            "Some rows or columns of a large workbook are needed, and not all of it",
            "只需要大型工作簿中的部分行列时",
        ),
        Text(
            "A result should be handed over as a table that opens in Excel",
            "需要以可在 Excel 中打开的表格交付结果时",
        ),
        Text(
            "Formulas of a workbook have to be looked at without running them",
            "需要查看工作簿中的公式而不执行时",
        ),
    ),
    when_not=(
        Text(
            "A .csv or other text file: `ReadFile` reads it directly",
            ".csv 等文本文件：请直接用 `ReadFile`",
        ),
        Text(
            "Only the names and sizes of sheets: `excel_info` is lighter than `excel_read`",
            "只需查看结构：`excel_info` 比 `excel_read` 更轻量",
        ),
        Text(
            "A table that only the user reads in the chat: write it in Markdown",
            "仅在对话中展示的表格：请直接使用 Markdown",
        ),
    ),
    cannot=(
        Text(
            "Change cells of an existing workbook in place",
            "就地修改已有工作簿中的单元格",
        ),
        Text(
            "Calculate: values are those that Excel stored when it saved the file",
            "计算公式：数值为 Excel 保存文件时存储的结果",
        ),
        Text(
            "Read .xls, .xlsb, encrypted workbooks, charts, pictures, comments or macros",
            "读取 .xls、.xlsb、加密工作簿、图表、图片、批注或宏",
        ),
    ),
    scenarios=(
        Scenario(
            Text("Read the first rows of a sales report", "读取销售报表的前几行"),
            "excel_read",
            {"path": "data/sales.xlsx", "range": "A1:D3"},
        ),
        Scenario(
            Text("Read a second sheet by name", "按名称读取第二个工作表"),
            "excel_read",
            {"path": "data/sales.xlsx", "sheet": "Notes"},
        ),
        Scenario(
            Text("Hand over a summary", "交付汇总表"),
            "excel_write",
            {
                "path": "reports/totals.xlsx",
                "rows": [["Region", "Revenue"], ["North", 1820.5]],
            },
        ),
    ),
    exposed=(
        Choice(
            Text("Sheets and their declared size", "工作表及其声明的尺寸"),
            Text(
                "A model needs them before it can ask for a range",
                "模型需要先了解尺寸才能请求区域",
            ),
        ),
        Choice(
            Text("Stored values, and formulas on request", "存储的数值，以及按需查看的公式"),
            Text(
                "Values are what people see; formulas explain them",
                "数值是用户所见内容，公式用于解释数值",
            ),
        ),
        Choice(
            Text("New workbooks with one sheet", "只含一个工作表的新工作簿"),
            Text(
                "Nothing that exists is changed, so nothing can be lost",
                "不改动已有内容，因此不会造成丢失",
            ),
        ),
    ),
    left_out=(
        Choice(
            Text("Editing an existing workbook", "编辑已有工作簿"),
            Text(
                "openpyxl drops pictures, some charts and other parts when it saves a file that it "
                "did not make: the user would lose them without a word",
                "openpyxl 保存非自身创建的文件时会丢弃图片和部分图表，用户会在不知情时丢失数据",
            ),
        ),
        Choice(
            Text("Styles, widths, merged cells", "样式、列宽、合并单元格"),
            Text("They cost parameters and add no data", "增加参数而不增加数据"),
        ),
        Choice(
            Text("Charts, pictures, pivot tables", "图表、图片、数据透视表"),
            Text(
                "A model cannot see the result, so it cannot tell whether it is right",
                "模型无法看到结果，也就无法判断是否正确",
            ),
        ),
        Choice(
            Text("Macros and links to other workbooks", "宏与外部工作簿链接"),
            Text(
                "They run code or fetch data on the user's machine",
                "它们会在用户机器上运行代码或获取数据",
            ),
        ),
    ),
    prepare=write_examples,
)
"""The entry point `satchel.skills`: `excel`."""
