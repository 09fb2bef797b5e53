"""Unsafe workbooks are refused before they are opened."""

from __future__ import annotations

import io
import struct
import tracemalloc
import zipfile

import pytest
from openpyxl import Workbook

from satchel.tools.excel import workbook as guard


def workbook(**parts: bytes) -> dict[str, bytes]:
    """The parts of a small workbook, some replaced."""
    stream = io.BytesIO()
    book = Workbook()
    book.active.append(["a", 1])
    book.save(stream)
    with zipfile.ZipFile(stream) as archive:
        found = {name: archive.read(name) for name in archive.namelist()}
    return found | parts


def packed(parts, method=zipfile.ZIP_DEFLATED) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as archive:
        for name, data in parts.items():
            archive.writestr(name, data)
    return stream.getvalue()


SHEET = "xl/worksheets/sheet1.xml"
LAUGHS = b"""<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;">]>
<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><sheetData><row r="1">
<c r="A1" t="inlineStr"><is><t>&b;</t></is></c></row></sheetData></worksheet>"""


@pytest.fixture
def tried(excel):
    """Both reading tools on some bytes; one answer."""

    def call(data):
        excel.bytes("evil.xlsx", data)
        found = {excel.failed(name, path="evil.xlsx") for name in ("excel_info", "excel_read")}
        assert len(found) == 1
        return found.pop()

    return call


@pytest.mark.req("E6")
def test_entities_and_other_encodings_are_not_read(tried):
    assert tried(packed(workbook(**{SHEET: LAUGHS}))) == "unsafe"
    assert tried(packed(workbook(**{"xl/styles.xml": LAUGHS.lower()}))) == "unsafe"
    wide = LAUGHS.decode().replace('"1.0"', '"1.0" encoding="UTF-16"')
    assert tried(packed(workbook(**{SHEET: wide.encode("utf-16")}))) == "unsafe"
    assert tried(packed(workbook(**{SHEET: wide.encode("utf-16-le")}))) == "unsafe"
    other = b'<?xml version="1.0" encoding="cp037"?><a/>'
    assert tried(packed(workbook(**{SHEET: other}))) == "unsafe"
    split = b"<a>" + b" " * (256 * 1024 - 8) + b"<!DOCTYPE x>"
    assert tried(packed(workbook(**{SHEET: split}))) == "unsafe"
    for before in (b"", b" " * 100):  # by content
        assert tried(packed(workbook(**{"xl/media/a.dat": before + LAUGHS}))) == "unsafe"


@pytest.mark.req("E6")
@pytest.mark.timeout(60)
def test_bombs_are_refused_without_being_unpacked(tried):
    zeros = packed(workbook(**{SHEET: b" " * (210 * 1024 * 1024)}))
    assert len(zeros) < 1024 * 1024
    tracemalloc.start()
    assert tried(zeros) == "bomb"
    assert tracemalloc.get_traced_memory()[1] < 32 * 1024 * 1024
    tracemalloc.stop()
    many = packed({f"x{number}.xml": b"" for number in range(4_100)}, zipfile.ZIP_STORED)
    assert tried(many) == "bomb"
    assert tried(packed(workbook(**{SHEET: b"<c/>" * (5 << 20)}))) == "bomb"  # its ratio


@pytest.mark.req("E6")
def test_too_many_tags_are_refused(tried, monkeypatch):
    monkeypatch.setattr(guard, "MAX_TAG_COUNT", 1_000)
    assert tried(packed(workbook(**{SHEET: b"<a>" + b"<c/>" * 2_000 + b"</a>"}))) == "bomb"


def test_a_directory_that_lies_about_its_length_is_refused(tried):
    data = packed(workbook())
    end = data.rfind(b"PK\x05\x06")
    lying = data[:end + 10] + struct.pack("<HI", 60_000, 4_000_000) + data[end + 16:]  # fmt: skip
    assert tried(lying) == "damaged"
    record = b"PK\x06\x06" + struct.pack("<QHHIIQQQQ", 44, 45, 45, 0, 0, 10**6, 10**6, 10**8, 0)
    assert tried(data[:end] + record + data[end:]) == "damaged"


def test_locked_and_doubled_parts_are_refused(tried):
    data = bytearray(packed(workbook()))
    at = data.find(b"PK\x01\x02")
    data[at + 8] |= 1
    assert tried(bytes(data)) == "locked"
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr(SHEET, b"<a/>")
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr(SHEET, b"<a/>")
    assert tried(stream.getvalue()) == "unsafe"


def test_a_file_cut_anywhere_is_an_answer(excel):
    data = packed(workbook())
    for at in range(0, len(data), 97):
        excel.bytes("cut.xlsx", data[:at])
        assert excel.failed("excel_read", path="cut.xlsx") == "damaged"
    for at in range(30, len(data), 61):
        broken = bytearray(data)
        broken[at] ^= 0x55
        excel.bytes("cut.xlsx", bytes(broken))
        excel.call("excel_read", path="cut.xlsx")


@pytest.mark.timeout(10)
def test_a_row_with_a_huge_number_does_not_make_it_wait(excel):
    rows = b"".join(
        b'<row r="%d"><c r="A%d"><v>1</v></c></row>' % (number, number)
        for number in (1, 999_999_999_999)
    )
    sheet = (
        b'<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main">'
        b"<sheetData>" + rows + b"</sheetData></worksheet>"
    )
    excel.bytes("evil.xlsx", packed(workbook(**{SHEET: sheet})))
    assert excel.call("excel_info", path="evil.xlsx").status == "success"
    assert excel.call("excel_read", path="evil.xlsx", header=False).data["rows"] == [[1]]
