"""The Excel packaged skill, also the template for others.

The record `skill` below has everything about it: the text for agents, for its page and for the
linter. `info_tool`, `read_tool` and `write_tool` hold the tools; `workbook` opens files safely.
openpyxl is imported at the first call.
"""

from __future__ import annotations

import os
from typing import Any, cast

from satchel.tools.excel.info_tool import EXCEL_INFO
from satchel.tools.excel.read_tool import EXCEL_READ
from satchel.tools.excel.write_tool import EXCEL_WRITE
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
        "rows into new workbooks."
    ),
    tools=(EXCEL_INFO, EXCEL_READ, EXCEL_WRITE),
    when=(
        Text("The user gives an .xlsx report and asks what is in it"),
        Text("Some rows or columns of a large workbook are needed, and not all of it"),
        Text("A result should be handed over as a table that opens in Excel"),
    ),
    when_not=(
        Text("A .csv or other text file: `ReadFile` reads it directly"),
        Text("Only the names and sizes of sheets: `excel_info` is lighter than `excel_read`"),
        Text("A table that only the user reads in the chat: write it in Markdown"),
    ),
    cannot=(
        Text("Change cells of an existing workbook in place"),
        Text("Calculate: values are those that Excel stored when it saved the file"),
        Text("Read .xls, .xlsb, encrypted workbooks, charts, pictures, comments or macros"),
    ),
    scenarios=(
        Scenario(
            Text("Read the first rows of a sales report"),
            "excel_read",
            {"path": "data/sales.xlsx", "range": "A1:D3"},
        ),
        Scenario(
            Text("Read a second sheet by name"),
            "excel_read",
            {"path": "data/sales.xlsx", "sheet": "Notes"},
        ),
        Scenario(
            Text("Hand over a summary"),
            "excel_write",
            {"path": "reports/totals.xlsx", "rows": [["Region", "Revenue"], ["North", 1820.5]]},
        ),
    ),
    exposed=(
        Choice(
            Text("Sheets and their declared size"),
            Text("A model needs them before it can ask for a range"),
        ),
        Choice(
            Text("Stored values; a formula where none is stored"),
            Text("Values are what people see, and nothing is shown as empty"),
        ),
        Choice(
            Text("New workbooks with one sheet"),
            Text("Nothing that exists is changed, so nothing can be lost"),
        ),
    ),
    left_out=(
        Choice(
            Text("Editing an existing workbook"),
            Text(
                "openpyxl drops pictures, some charts and other parts when it saves a file that it "
                "did not make: the user would lose them without a word"
            ),
        ),
        Choice(Text("Styles, widths, merged cells"), Text("They cost parameters and add no data")),
        Choice(
            Text("Charts, pictures, pivot tables"),
            Text("A model cannot see the result, so it cannot tell whether it is right"),
        ),
        Choice(
            Text("Macros and links to other workbooks"),
            Text("They run code or fetch data on the user's machine"),
        ),
    ),
    prepare=write_examples,
)
"""The entry point `satchel.skills`: `excel`."""
