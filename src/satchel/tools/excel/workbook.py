"""Workbooks: cell ranges, safety checks, and read-only opening."""

from __future__ import annotations

import io
import re
import warnings
import zlib
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from satchel.tools.packaged import Failure, PackagedParameter, Text, ToolFailed

if TYPE_CHECKING:
    import zipfile
    from collections.abc import Generator

    from satchel.tools.packaged import Job

MAX_ROW_COUNT = 1_000
MAX_COLUMN_COUNT = 100
LAST_ROW_NUMBER = 1_048_576
LAST_COLUMN_NUMBER = 16_384
MAX_CELL_CHARS = 1_000
"""Of one cell in an answer."""

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
"""The parameter of the tools that read a workbook."""
BAD_RANGE = Failure(
    "bad-range",
    "INVALID_PARAM",
    Text("That is not a range of cells", "单元格区域格式不正确"),
    Text("{range}"),
    Text("Write it like A1:C10, or like Sheet2!A1:C10", "请使用 A1:C10 或 Sheet2!A1:C10 的格式"),
)
RANGE_TOO_LARGE = Failure(
    "range-too-large",
    "INVALID_PARAM",
    Text("The range is too large", "单元格区域过大"),
    Text("{range} ({rows} x {columns})"),
    Text("Ask for at most 1000 rows and 100 columns at once", "请每次最多请求 1000 行 × 100 列"),
)

_CELL = r"\$?([A-Za-z]{1,3})\$?([1-9][0-9]{0,6})"
_RANGE = re.compile(rf"\s*{_CELL}(?:\s*:\s*{_CELL})?\s*")


class Area(NamedTuple):
    """A rectangle of cells, counted from one."""

    left: int
    top: int
    right: int
    bottom: int

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.bottom - self.top + 1

    @property
    def columns(self) -> int:
        """Number of columns."""
        return self.right - self.left + 1

    def __str__(self) -> str:
        return f"{column_name(self.left)}{self.top}:{column_name(self.right)}{self.bottom}"


def column_name(number: int) -> str:
    """`A` for 1, `AA` for 27."""
    name = ""
    while number:
        number, letter = divmod(number - 1, 26)
        name = chr(65 + letter) + name
    return name


def column_number(name: str) -> int:
    """1 for `A`, 27 for `AA`."""
    number = 0
    for letter in name.upper():
        number = number * 26 + ord(letter) - 64
    return number


def parse_range(text: str) -> tuple[str, Area | None]:
    """Parse a range to its sheet and area; each may be missing.

    Raises:
        ToolFailed: it is no range, or too large.
    """
    sheet, mark, cells = text.strip().rpartition("!")
    if sheet.startswith("'") and sheet.endswith("'") and len(sheet) > 1:
        sheet = sheet[1:-1].replace("''", "'")
    if not cells and not mark:
        return "", None
    match = _RANGE.fullmatch(cells)
    if match is None or (mark and not sheet):
        raise ToolFailed(BAD_RANGE, range=text)
    left, top, right, bottom = match.groups()
    columns = sorted((column_number(left), column_number(right or left)))
    rows = sorted((int(top), int(bottom or top)))
    area = Area(columns[0], rows[0], columns[1], rows[1])
    if area.right > LAST_COLUMN_NUMBER or area.bottom > LAST_ROW_NUMBER:
        raise ToolFailed(BAD_RANGE, range=text)
    if area.rows > MAX_ROW_COUNT or area.columns > MAX_COLUMN_COUNT:
        raise ToolFailed(RANGE_TOO_LARGE, range=text, rows=area.rows, columns=area.columns)
    return sheet, area


def plain(value: Any) -> Any:
    """A cell's value as JSON data."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):  # noqa: PLR0124 - not a number
            return str(value)
        return int(value) if value.is_integer() and abs(value) < 1e15 else value
    if hasattr(value, "isoformat"):  # dates and times
        text = value.isoformat()
        return text.removesuffix("T00:00:00")
    return str(getattr(value, "text", value))


def shown(value: Any) -> str:
    """A cell's JSON value as text."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    return str(value)


MAX_PART_COUNT = 4_000
MAX_UNPACKED_BYTES = 200 * 1024 * 1024
MAX_TAG_COUNT = 8_000_000
MAX_COMPRESSION_RATIO = 300
"""Applies once the parts have more than `_SMALL_BYTES`."""
_SMALL_BYTES = 16 * 1024 * 1024
_CHUNK_BYTES = 256 * 1024

DAMAGED = Failure(
    "damaged",
    "EXECUTION_ERROR",
    Text("The file is not a usable workbook", "文件不是可用的工作簿"),
    Text("{path}"),
    Text(
        "Ask the user to open it in Excel and save it again as .xlsx",
        "请让用户在 Excel 中打开并重新另存为 .xlsx",
    ),
)
LOCKED = Failure(
    "locked",
    "PERMISSION_DENIED",
    Text(
        "The workbook is encrypted, or in the old .xls format", "工作簿已加密，或为旧版 .xls 格式"
    ),
    Text("{path}"),
    Text("Ask the user to save it without a password as .xlsx", "请让用户去除密码并另存为 .xlsx"),
)
BOMB = Failure(
    "bomb",
    "PERMISSION_DENIED",
    Text("The workbook becomes too large when unpacked", "工作簿解压后过大"),
    Text("{path} ({reason})"),
    Text("Split it into smaller workbooks", "请拆分为较小的工作簿"),
)
UNSAFE = Failure(
    "unsafe",
    "PERMISSION_DENIED",
    Text("The workbook contains XML that is not read", "工作簿包含不予读取的 XML"),
    Text("{path} ({reason})"),
    Text(
        "Ask the user to open it in Excel and save it again as .xlsx",
        "请让用户在 Excel 中打开并重新另存为 .xlsx",
    ),
)
FAILURES = (DAMAGED, LOCKED, BOMB, UNSAFE)

_ENTRY = b"PK\x01\x02"
"""Begins each entry of the central directory."""
_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_BOMS = (b"\xff\xfe", b"\xfe\xff", b"\x00", b"<\x00", b"+/v")
_ENCODING = re.compile(rb"^\s*<\?xml[^>]*?encoding\s*=\s*[\"']([^\"']*)", re.DOTALL)
_KNOWN = frozenset((b"utf-8", b"utf8", b"us-ascii", b"ascii"))
_DECLARED = re.compile(rb"<!(?:DOCTYPE|ENTITY)", re.IGNORECASE)


def check_workbook(data: bytes, path: str) -> None:
    """Refuse encrypted, damaged, oversized and unsafe files.

    Raises:
        ToolFailed: one of `FAILURES`.
    """
    import zipfile

    if data[:8] == _OLE:
        raise ToolFailed(LOCKED, path=path)
    if data.count(_ENTRY) > MAX_PART_COUNT:  # before the directory is read into memory
        _bomb(path, f"> {MAX_PART_COUNT:,} parts")
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            parts = archive.infolist()
            _check_parts(parts, path)
            tags = 0
            for part in parts:
                if _is_xml(archive, part):
                    tags += _read_through(archive, part, path)
                    if tags > MAX_TAG_COUNT:
                        _bomb(path, f"> {MAX_TAG_COUNT:,} tags")
    except (zipfile.BadZipFile, zlib.error, OSError, EOFError, ValueError, NotImplementedError):
        raise ToolFailed(DAMAGED, path=path) from None


def _check_parts(parts: list[zipfile.ZipInfo], path: str) -> None:
    if any(part.flag_bits & 1 for part in parts):
        raise ToolFailed(LOCKED, path=path)
    names = Counter(part.filename for part in parts)
    twice = [name for name, count in names.items() if count > 1]
    if twice:
        raise ToolFailed(UNSAFE, path=path, reason=twice[0])
    total = sum(part.file_size for part in parts)
    if total > MAX_UNPACKED_BYTES:
        _bomb(path, f"> {MAX_UNPACKED_BYTES // 1024 // 1024} MB")
    packed = sum(part.compress_size for part in parts)
    if total > _SMALL_BYTES and total > MAX_COMPRESSION_RATIO * packed:
        _bomb(path, f"{total // max(packed, 1)} x")


def _is_xml(archive: zipfile.ZipFile, part: zipfile.ZipInfo) -> bool:
    """By name or content: relationships may lead to a part of any name."""
    if part.filename.lower().endswith((".xml", ".rels", ".vml")):
        return True
    with archive.open(part) as stream:
        start = stream.read(64).lstrip(b"\xef\xbb\xbf\xfe\xff\0 \t\r\n")
        return start[:1] in (b"<", b"")


def _read_through(archive: zipfile.ZipFile, part: zipfile.ZipInfo, path: str) -> int:
    """Scan one part without keeping it; returns its number of tags."""
    tags = 0
    before = b""
    with archive.open(part) as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            if not tags and not before:
                named = _ENCODING.match(chunk.removeprefix(b"\xef\xbb\xbf"))
                if chunk.startswith(_BOMS) or (named and named[1].lower() not in _KNOWN):
                    raise ToolFailed(UNSAFE, path=path, reason=f"encoding: {part.filename}")
            if _DECLARED.search(before + chunk):
                raise ToolFailed(UNSAFE, path=path, reason=f"DOCTYPE: {part.filename}")
            before = chunk[-16:]
            tags += chunk.count(b"<")
    return tags


def _bomb(path: str, reason: str) -> NoReturn:
    raise ToolFailed(BOMB, path=path, reason=reason)


KINDS = (".xlsx", ".xlsm")
_MAX_SHEETS_NAMED = 20

NO_SHEET = Failure(
    "no-sheet",
    "NOT_FOUND",
    Text("There is no such sheet", "Sheet 不存在"),
    Text("{sheet}"),
    Text("The sheets are: {sheets}", "可用 sheet 列表: {sheets}"),
)


class Opened:
    """A workbook that is open for reading."""

    def __init__(self, data: bytes, path: str) -> None:
        from openpyxl import load_workbook  # not in `book`: a missing library is no damaged file

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
        names = [str(sheet.title)[:40] for sheet in sheets[:_MAX_SHEETS_NAMED]]
        ending = f" … {len(sheets)}" if len(sheets) > _MAX_SHEETS_NAMED else ""
        raise ToolFailed(NO_SHEET, sheet=name, sheets=f"[{', '.join(names)}]{ending}")

    def close(self) -> None:
        """Close the workbooks."""
        for book in self._books:
            book.close()


@contextmanager
def opened(job: Job, path: str) -> Generator[Opened]:
    """Open a file of the project as a workbook; errors of the library become `damaged`.

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
