"""The other check-list: packaged skills. Each is a real package, found by its entry point."""

from __future__ import annotations

import itertools
import sys

import pytest

from satchel.authoring.check_packaged import check_packaged
from satchel.authoring.checklist import find_rules
from satchel.errors import NotFound

pytestmark = pytest.mark.req("E5", "E9")
_count = itertools.count(1)

BASE = """\
from satchel.tools.excel import skill as excel
from satchel.tools.packaged import Choice, Text

def renamed(name, tools=excel.tools, **more):
    tools = tuple(one._replace(name=name + "_" + one.name.partition("_")[2]) for one in tools)
    return excel._replace(name=name, tools=tools, wraps="somelib", **more)

INFO_TOOL = excel.tools[0]
INFO = "查看工作簿的工作表名称与尺寸，返回列表。文件上限 20MB。"

def first(**more):
    return (INFO_TOOL._replace(**more), *excel.tools[1:])

def described(name, en, zh):
    return renamed(name, first(description=Text(en, zh)))

def parameter(name, text):
    first_one, *others = INFO_TOOL.parameters
    return renamed(name, first(parameters=(first_one._replace(description=text), *others)))

def failing(name, remedy):
    odd = INFO_TOOL.failures[0]._replace(id="odd", remedy=remedy)
    return renamed(name, first(failures=(*INFO_TOOL.failures, odd)))

def without(name, failure):
    return renamed(name, first(failures=tuple(f for f in INFO_TOOL.failures if f.id != failure)))

"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Install a package whose record is the good one with a change."""

    def install(code: str, name: str = "") -> str:
        name = name or f"sheet{next(_count)}"
        folder = tmp_path / "site"
        info = folder / f"{name}-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Name: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[satchel.skills]\n{name} = {name}:skill\n")
        (folder / f"{name}.py").write_text(BASE + code.replace("NAME", repr(name)) + "\n")
        monkeypatch.syspath_prepend(str(folder))
        return name

    yield install
    for name in [name for name in sys.modules if name.startswith("sheet")]:
        del sys.modules[name]


def test_excel_passes_every_rule_except_the_run_of_its_tests():
    report = check_packaged("excel")
    assert not report.failed_codes
    assert {one.rule for one in report.verdicts if one.state == "skip"} == {"tests-pass"}
    assert {one.rule for one in report.verdicts} == {rule.id for rule in find_rules("packaged")}


@pytest.mark.parametrize(
    ("code", "fires"),
    [
        ("skill = renamed(NAME)", set()),
        ("skill = renamed(NAME, label='')", {"start-line"}),
        ("skill = renamed(NAME, mark='')", {"start-line"}),
        ("skill = renamed(NAME)._replace(wraps='')", {"registered"}),
        ("skill = renamed(NAME, when=excel.when[:2])", {"page-when-not"}),
        ("skill = renamed(NAME, when_not=())", {"page-when-not"}),
        ("skill = renamed(NAME, cannot=())", {"page-when-not"}),
        ("skill = renamed(NAME, left_out=())", {"page-left-out"}),
        ("skill = renamed(NAME, exposed=())", {"page-left-out"}),
        ("skill = renamed(NAME, scenarios=excel.scenarios[:1])", {"page-output"}),
        ("skill = renamed(NAME, prepare=None)", {"page-output"}),
        (
            "skill = described(NAME, 'Excel information of one workbook, at most 20 MB', INFO)",
            {"description-verb"},
        ),
        (
            "skill = described(NAME, 'Shows the sheets of one workbook, at most 20 MB', '工作表')",
            {"description-verb", "description-limit", "description-length"},
        ),
        (
            "skill = parameter(NAME, Text('Path'))",
            {"parameter-what", "parameter-bound", "parameter-example"},
        ),
        (
            "skill = failing(NAME, Text('try again'))",
            {"error-wording"},
        ),
        ("skill = without(NAME, 'outside')", {"safe-paths"}),
        ("skill = without(NAME, 'too-large')", {"limits"}),
    ],
)  # fmt: skip
def test_a_rule_fires_where_it_should(package, code, fires):
    report = check_packaged(package(code))
    # The record borrows its tools, and so the tests and the page of another one: not judged here.
    found = report.failed_codes.keys() - {"tests-errors", "tests-real", "page-exists"}
    assert found == fires


def test_an_unknown_package_is_an_error():
    with pytest.raises(NotFound, match="There is no skill `nothing`"):
        check_packaged("nothing")
