"""A workbook, opened safely and for reading only, and the sheet that is meant."""

from __future__ import annotations

import io
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from satchel.tools.excel.guard import DAMAGED, check_workbook
from satchel.tools.packaged import Failure, Text, ToolFailed

if TYPE_CHECKING:
    from collections.abc import Generator

    from satchel.tools.packaged import Job

KINDS = (".xlsx", ".xlsm")
_NAMED = 20

NO_SHEET = Failure(
    "no-sheet",
    "NOT_FOUND",
    Text("There is no such sheet", "Sheet 不存在"),
    Text("{sheet}"),
    Text("The sheets are: {sheets}", "可用 sheet 列表: {sheets}"),
    Text("The workbook has no sheet of this name", "工作簿中没有该名称的工作表"),
)
TWO_SHEETS = Failure(
    "two-sheets",
    "INVALID_PARAM",
    Text("`sheet` and `range` name different sheets", "`sheet` 与 `range` 指定了不同的工作表"),
    Text("{sheet}, {other}"),
    Text("Name the sheet in one of them", "请只在其中一处指定工作表"),
    Text("Both are given and differ", "两者同时给出且不一致"),
)


class Opened:
    """One workbook while it is read."""

    def __init__(self, data: bytes, path: str) -> None:
        from openpyxl import load_workbook  # here, so that a missing library is no damaged file

        self._load = load_workbook
        self._data = data
        self._path = path
        self._books: list[Any] = []

    def book(self, *, formulas: bool = False) -> Any:
        """The workbook with stored values, or with formulas."""
        book = self._load(
            io.BytesIO(self._data), read_only=True, data_only=not formulas, keep_links=False
        )
        self._books.append(book)
        return book

    def sheet(self, name: str, *, formulas: bool = False) -> Any:
        """A sheet by its name, in any case; the first one when the name is empty.

        Raises:
            ToolFailed: there is none of that name.
        """
        sheets = self.book(formulas=formulas).worksheets
        if not sheets:
            raise ToolFailed(DAMAGED, path=self._path)
        if not name:
            return sheets[0]
        for same in (str, str.casefold):
            for sheet in sheets:
                if same(sheet.title) == same(name):
                    return sheet
        names = [str(sheet.title)[:40] for sheet in sheets[:_NAMED]]
        more = f" … {len(sheets)}" if len(sheets) > _NAMED else ""
        raise ToolFailed(NO_SHEET, sheet=name, sheets=f"[{', '.join(names)}]{more}")

    def close(self) -> None:
        """Let go of what the library holds open."""
        for book in self._books:
            book.close()


@contextmanager
def opened(job: Job, path: str) -> Generator[Opened]:
    """Read a file of the project as a workbook; whatever the library stumbles over is `damaged`.

    Raises:
        ToolFailed: the file cannot be read, or must not be opened.
    """
    data = job.workspace.read(path, KINDS)
    check_workbook(data, path)
    workbook = Opened(data, path)
    try:
        # The library warns of parts that it passes over: styles, validations, printer settings.
        # None of them changes a value.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield workbook
    except ToolFailed:
        raise
    except Exception as exc:
        raise ToolFailed(DAMAGED, path=path) from exc
    finally:
        workbook.close()
