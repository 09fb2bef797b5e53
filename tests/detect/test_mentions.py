"""Mentions: which skills a request names, which it rules out, and which names are unknown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from in_memory import skill
from satchel.detect.mentions import NameTable, parse_mentions

NAMES = (
    "pdf", "pdf-forms", "docx", "code-review", "food", "表格处理", "数据分析", "acme:lint",
    "python", "HOME", "tmp", "run", "my skill", "5", "c++", "test_runner", "path", "users",
)  # fmt: skip


SKILLS = tuple(skill(name) for name in NAMES)
TABLE = NameTable(SKILLS)


def parse(request: str, table: NameTable = TABLE) -> str:
    """What was found in short: `+pdf -docx ?foo`."""
    found = parse_mentions(request, table)
    parts = [f"+{one.skill.name}" for one in found.wanted]
    parts += [f"-{one.skill.name}" for one in found.unwanted]
    return " ".join([*parts, *(f"?{one.name}" for one in found.unknown)])


@pytest.mark.req("C3", "A13")
@pytest.mark.parametrize(
    ("request_", "names"),
    [
        ("use skill pdf", "+pdf"),
        ("Use Skill PDF, please", "+pdf"),
        ("use the pdf skill to fill this in", "+pdf"),
        ("load the pdf skill", "+pdf"),
        ("Fill this in with skill pdf", "+pdf"),
        ("use the skill called pdf-forms", "+pdf-forms"),
        ("use the pdf skill and the docx skill", "+pdf +docx"),
        ("use skill `pdf` and “docx”", "+pdf +docx"),
        ("use skill **pdf**", "+pdf"),
        ("use the @pdf skill", "+pdf"),
        ("use code-review on this", "+code-review"),
        ("use code-review and run the tests", "+code-review"),
        ("use `pdf` on this", "+pdf"),
        ("Fill it in. --skill pdf", "+pdf"),
        ("--skill=pdf do it", "+pdf"),
        ("--skill pdf,docx do it", "+pdf +docx"),
        ('--skill "my skill" go', "+my skill"),
        ("$pdf fill this form", "+pdf"),
        ("/pdf fill this form", "+pdf"),
        ("please /code-review this", "+code-review"),
        ("use `/pdf`", "+pdf"),
        ("使用 pdf 技能", "+pdf"),
        ("用pdf技能填表", "+pdf"),
        ("请用技能 pdf 填表", "+pdf"),
        ("請使用「表格处理」技能", "+表格处理"),
        ("使用技能：数据分析", "+数据分析"),
        ("使用pdf、docx技能", "+pdf +docx"),
        ("能不能用 pdf 技能", "+pdf"),
        ("不得不用 pdf 技能", "+pdf"),
        ("用$pdf处理", "+pdf"),
        ("don't forget to use the pdf skill", "+pdf"),
        ("why don't you use the pdf skill", "+pdf"),
        ("If it does not work use the pdf skill", "+pdf"),
    ],
)
def test_a_named_skill_is_wanted(request_, names):
    assert parse(request_) == names


@pytest.mark.req("C3")
@pytest.mark.parametrize(
    ("request_", "names"),
    [
        ("don't use pdf", "-pdf"),
        ("do not use the pdf skill", "-pdf"),
        ("Don’t use the “pdf” skill", "-pdf"),
        ("don't use pdf or docx", "-pdf -docx"),
        ("don't use pdf, use the docx skill", "+docx -pdf"),
        ("I don't want you to use the pdf skill", "-pdf"),
        ("never use $pdf", "-pdf"),
        ("--no-skill pdf", "-pdf"),
        ("make it without pdf", "-pdf"),
        ("make it without using the pdf skill", "-pdf"),
        ("use the docx skill instead of pdf", "+docx -pdf"),
        ("use skill pdf; don't use skill pdf", "-pdf"),
        ("不要用 pdf 技能", "-pdf"),
        ("不用 pdf", "-pdf"),
        ("不使用pdf", "-pdf"),
        ("别用pdf，用docx技能", "+docx -pdf"),
        ("用docx技能而不是pdf", "+docx -pdf"),
        ("请不要再用 $pdf 了", "-pdf"),
    ],
)
def test_a_negated_skill_is_ruled_out(request_, names):
    assert parse(request_) == names


@pytest.mark.parametrize(
    "request_",
    ["use pdf", "use python to sort this", "use 5 where it is empty", "@pdf have a look",
     "use a skill", "use the right skill", "use your writing skills", "it costs $5", "echo $HOME",
     "cd $path/x", "let $pdf=3", "${pdf}", "$x$ and $pdf$", "\\$pdf", "look at /usr/pdf",
     "see http://example.com/pdf now", "clean /tmp please", "GET /users", "保存到 /docx",
     "and/or pdf", "improve the pdf-forms skill", "create a skill: pdf", "it is $pdfs",
     "this is not python related", "this app does not run with python", "用户的pdf技能",
     "使用合适的技能", "$price = 3 fails", "$PRICE is empty", "$50k of revenue",
     "$user->name is null", "/etc/hosts is broken",
     "```\n$pdf /docx use skill pdf\n```\nwhat does this do", "a log ```$pdf``` of yesterday",
     "> use skill pdf\nwhat did they mean", "~~~\n/pdf\n~~~", "it says ```\n/pdf and never ends",
     "", "   \n"],
)  # fmt: skip
def test_other_text_names_no_skill(request_):
    assert parse(request_) == ""


@pytest.mark.req("C3")
def test_an_unknown_name_comes_with_the_nearest_names():
    for request, name in (
        ("use skill foood", "foood"),
        ("use the foood skill", "foood"),
        ("--skill foood", "foood"),
        ("/foood please", "foood"),
        ("$foood please", "foood"),
    ):
        (unknown,) = parse_mentions(request, TABLE).unknown
        assert unknown.name == name, request
        assert [one.name for one in unknown.similar] == ["food"], request
    assert parse("使用翻译技能") == "?翻译"
    found = parse_mentions("use skill foood", TABLE)
    assert found.notes == ("There is no skill `foood`; did you mean `food`?",)
    assert (found.notes[0].code, found.notes[0].values["name"]) == ("unknown-skill-near", "foood")
    many = " ".join(f"--skill none{number}" for number in range(9))
    assert parse_mentions(many, TABLE).notes[-1] == ("6 more names in the request are no skills")


def test_the_longest_name_and_the_exact_spelling_win():
    assert parse("use skill pdf-forms") == parse("use the pdf forms skill") == "+pdf-forms"
    assert parse("use skill pdf-form") == "?pdf-form"
    assert parse("use skill c++") == "+c++"
    assert parse("use skill Test-Runner") == "+test_runner"
    table = NameTable(tuple(map(skill, ("Test", "test", "te st", "te-st"))))
    for name in ("Test", "test", "te-st"):
        assert parse(f"use skill {name}", table) == f"+{name}"
    assert parse("use skill TEST", table) == "+Test"


def test_namespaces_ids_and_refs_name_a_skill():
    other = skill("fill", id="office/fill-in")
    table = NameTable((*SKILLS, other))
    assert parse("use skill lint", table) == parse("use skill acme/lint", table) == "+acme:lint"
    assert parse("use skill office/fill-in", table) == "+fill"
    assert table.exact(other.ref) is other
    assert parse("use skill lint", NameTable((skill("a:lint"), skill("b:lint")))) == "?lint"


@pytest.mark.parametrize(
    ("request_", "rest"),
    [
        ("never use pdf-forms; join two files", "; join two files"),
        ("join two files without pdf-forms", "join two files"),
        ("use skill terraform-plan to set it up", "to set it up"),
        ("use the spreadsheet skill to sum", "spreadsheet to sum"),
        ("不要用 pdf 技能，合并文件", ",合并文件"),
        ("join two files", None),
    ],
)
def test_the_remaining_request_has_no_mentions(request_, rest):
    assert parse_mentions(request_, TABLE).remaining_request == rest


def test_a_mention_quotes_the_request():
    (one,) = parse_mentions("First use  the PDF skill, then rest", TABLE).wanted
    assert one.phrase == "use the PDF skill"


def test_the_middle_of_a_very_long_request_is_skipped_with_a_note():
    request = f"use skill pdf. {'so it is. ' * 2_000}{'use skill docx. ' * 9_000}{'a. ' * 9_000}"
    found = parse_mentions(request + "--skill food", TABLE)
    assert [one.skill.name for one in found.wanted] == ["pdf", "food"]
    assert [note.code for note in found.notes] == ["unheard"]
    assert found.remaining_request is not None
    assert "use skill docx" in found.remaining_request


def test_hostile_requests_take_no_more_steps_than_their_length():
    """Every pattern is tried once per anchor, and every anchor is behind the last one."""
    units = (
        "$", "$a ", "/a ", "use ", "use skill ", "not $a ", "用", "不要用", "`", "``` ", "use '",
        "--skill a,", "don't ", "a,", "> \n", " ", "İ", "/a and ", "without ", "use the a skill ",
        "not to to to ", "use **", "`````",
    )  # fmt: skip
    table = NameTable((*SKILLS, skill("a")))
    for unit in units:
        calls = []
        for size in (4_000, 8_000):
            counting = _Counting(table)
            parse_mentions((unit * size)[:size], counting)  # type: ignore[arg-type]
            calls.append(counting.calls)
        assert calls[1] <= 2 * calls[0] + 50, unit


class _Counting:
    """Counts how often a table is asked."""

    def __init__(self, table: NameTable) -> None:
        self._table = table
        self.calls = 0

    def __getattr__(self, name):
        self.calls += 1
        return getattr(self._table, name)


WORDS = st.sampled_from(
    [*NAMES, "use", "skill", "skills", "the", "not", "don't", "without", "$", "/", "--skill ",
     "用", "技能", "不要", "`", "「", "」", ",", ".", "\n", "```", "and", " "]
)  # fmt: skip


@given(st.one_of(st.text(max_size=200), st.lists(WORDS, max_size=30).map(" ".join)))
def test_any_text_gives_the_same_result_twice(request_):
    first = parse_mentions(request_, TABLE)
    assert first == parse_mentions(request_, NameTable(list(SKILLS)))
    assert first.ruled_out.isdisjoint(one.skill.name for one in first.wanted)


NAMED = st.text(
    st.characters(whitelist_categories=("Ll", "Lu", "Lo", "Nd"), max_codepoint=0xFFFF),
    min_size=1,
    max_size=20,
)


@given(NAMED, st.sampled_from(["use skill `{}`", "--skill {}", "使用「{}」技能"]))
def test_any_name_can_be_called(name, phrase):
    table = NameTable((skill(name), skill("other-one")))
    assert [one.skill.name for one in parse_mentions(phrase.format(name), table).wanted] == [name]
