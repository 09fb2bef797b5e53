"""The detector that listens: who is called by name, who is ruled out, and who is nobody."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from listening import DETECTOR, skill
from listening import heard as heard_of
from satchel.detect import ExplicitDetector
from satchel.skill import Origin

if TYPE_CHECKING:
    from satchel.skill import Skill

NAMES = (
    "pdf", "pdf-forms", "docx", "code-review", "food", "表格处理", "数据分析", "acme:lint",
    "python", "HOME", "tmp", "run", "my skill", "文書作成", "번역", "5", "c++", "test_runner",
    "path", "users",
)  # fmt: skip


SKILLS = tuple(skill(name) for name in NAMES)


def heard(goal: str, skills: tuple[Skill, ...] = SKILLS) -> str:
    return heard_of(goal, skills)


@pytest.mark.req("C3")
@pytest.mark.parametrize(
    ("goal", "names"),
    [
        ("use skill pdf", "+pdf"),
        ("Use Skill PDF, please", "+pdf"),
        ("use the pdf skill to fill this in", "+pdf"),
        ("Fill this in with skill pdf", "+pdf"),
        ("skill: pdf", "+pdf"),
        ("skills: pdf, docx and code-review", "+pdf +docx +code-review"),
        ("Fill it in. --skill pdf", "+pdf"),
        ("--skill=pdf do it", "+pdf"),
        ("--skill pdf,docx do it", "+pdf +docx"),
        ("--skill pdf --skill docx", "+pdf +docx"),
        ('--skill "my skill" go', "+my skill"),
        ("$pdf fill this form", "+pdf"),
        ("/pdf fill this form", "+pdf"),
        ("please /code-review this", "+code-review"),
        ("try `/pdf`", "+pdf"),
        ("use skill `pdf` and “docx”", "+pdf +docx"),
        ("use skill **pdf**", "+pdf"),
        ("run the pdf skill", "+pdf"),
        ("use the excellent pdf skill", "+pdf"),
        ("use the pdf skill and the docx skill", "+pdf +docx"),
        ("use the skill called pdf-forms", "+pdf-forms"),
        ("use the @pdf skill", "+pdf"),
        ("use code-review on this", "+code-review"),
        ("use `pdf` on this", "+pdf"),
        ("utilise le skill pdf", "+pdf"),
        ("benutze den Skill pdf", "+pdf"),
        ("usa la skill pdf", "+pdf"),
        ("используй skill pdf", "+pdf"),
    ],
)
def test_a_skill_that_is_called_by_name_is_heard(goal, names):
    assert heard(goal) == names


@pytest.mark.req("C3")
@pytest.mark.parametrize(
    ("goal", "names"),
    [
        ("使用 pdf 技能", "+pdf"),
        ("用pdf技能填表", "+pdf"),
        ("请用技能 pdf 填表", "+pdf"),
        ("請使用「表格处理」技能", "+表格处理"),
        ("使用技能：数据分析", "+数据分析"),
        ("用技能表格处理来做", "+表格处理"),
        ("使用pdf、docx技能", "+pdf +docx"),
        ("分别使用 pdf 技能和 docx 技能", "+pdf +docx"),
        ("能不能用 pdf 技能", "+pdf"),
        ("别忘了使用 pdf 技能", "+pdf"),
        ("不得不用 pdf 技能", "+pdf"),
        ("使用/pdf", "+pdf"),
        ("用$pdf处理", "+pdf"),
        ("用户的pdf技能", ""),
        ("使用合适的技能", ""),
        ("使用翻译技能", "?翻译"),
        ("pdfスキルを使って", "+pdf"),
        ("文書作成スキルを使ってください", "+文書作成"),
        ("スキル「pdf」を使って", "+pdf"),
        ("pdfとdocxスキルを使って", "+pdf +docx"),
        ("pdf-formsを使って", "+pdf-forms"),
        ("pdfスキルを改善して", ""),
        ("pdf 스킬을 사용해", "+pdf"),
        ("스킬 pdf를 사용해줘", "+pdf"),
        ("번역 스킬로 해줘", "+번역"),
        ("ＰＤＦ スキルを使って", "+pdf"),
    ],
)
def test_chinese_japanese_and_korean_are_understood(goal, names):
    assert heard(goal) == names


@pytest.mark.req("C3")
@pytest.mark.parametrize(
    ("goal", "names"),
    [
        ("don't use pdf", "-pdf"),
        ("do not use the pdf skill", "-pdf"),
        ("Don’t use the “pdf” skill", "-pdf"),
        ("don't use pdf or docx", "-pdf -docx"),
        ("don't use pdf, use the docx skill", "+docx -pdf"),
        ("I don't want you to use the pdf skill", "-pdf"),
        ("Do not, under any circumstances, use the pdf skill", "-pdf"),
        ("never use $pdf", "-pdf"),
        ("--no-skill pdf", "-pdf"),
        ("make it without pdf", "-pdf"),
        ("stop using pdf", "-pdf"),
        ("use the docx skill instead of pdf", "+docx -pdf"),
        ("use the pdf skill, not docx", "+pdf -docx"),
        ("not pdf but the docx skill", "+docx -pdf"),
        ("neither pdf nor docx", "-pdf -docx"),
        ("the pdf skill must not be used", "-pdf"),
        ("code-review is off limits", "-code-review"),
        ("skip the docx skill", "-docx"),
        ("use skill pdf; don't use skill pdf", "-pdf"),
        ("不要用 pdf 技能", "-pdf"),
        ("不使用pdf", "-pdf"),
        ("别用pdf，用docx技能", "+docx -pdf"),
        ("用docx技能而不是pdf", "+docx -pdf"),
        ("pdf技能不要用", "-pdf"),
        ("请不要再用 $pdf 了", "-pdf"),
        ("pdfスキルを使わないで", "-pdf"),
        ("pdfではなくdocxスキルを使って", "+docx -pdf"),
        ("$pdf を使わないで", "-pdf"),
        ("pdf 스킬을 사용하지 마", "-pdf"),
        ("pdf 말고 docx 스킬로", "+docx -pdf"),
        ("n'utilise pas le skill pdf", "-pdf"),
        ("benutze nicht den Skill pdf", "-pdf"),
        ("не используй skill pdf", "-pdf"),
    ],
)
def test_what_is_ruled_out_is_not_wanted(goal, names):
    assert heard(goal) == names
    assert {match.name for match in DETECTOR.detect(goal, SKILLS)}.isdisjoint(
        name[1:] for name in names.split() if name.startswith("-")
    )


@pytest.mark.parametrize(
    ("goal", "names"),
    [
        ("don't forget to use the pdf skill", "+pdf"),
        ("do not hesitate to use the pdf skill", "+pdf"),
        ("why not use the pdf skill", "+pdf"),
        ("why don't you use the pdf skill", "+pdf"),
        ("not only use the pdf skill", "+pdf"),
        ("no, use the pdf skill", "+pdf"),
        ("If it does not work use the pdf skill", "+pdf"),
        ("do not merge without the code-review skill", "+code-review"),
    ],
)
def test_a_negation_of_something_else_rules_nothing_out(goal, names):
    assert heard(goal) == names


@pytest.mark.req("C3")
@pytest.mark.parametrize(
    "goal",
    [
        "Why did you use the code-review skill last time?",
        "why didn't you use the code-review skill",
        "Did you use $code-review?",
        "Can I use code-review for contracts?",
        "should we use the pdf skill here",
        "how do I use the code-review skill?",
        "explain how to use skill pdf",
        "what can I do with the pdf skill",
        "What happens if I use the pdf skill twice?",
        "I tried to use the pdf skill and it failed",
        "can I use the excellent skill",
        "为什么要用 pdf 技能？",
        "我可以用 pdf 技能吗",
    ],
)
def test_a_question_about_a_skill_is_no_order(goal):
    assert heard(goal) == ""
    assert DETECTOR.heard(goal, SKILLS).rest is None  # it is searched with as it is


@pytest.mark.parametrize(
    "goal",
    [
        "can you use the pdf skill",
        "could you please use the pdf skill",
        "do it using the pdf skill",
        "do the form with the pdf skill",
        "have the agent use the pdf skill",
        "what is in this file? use the pdf skill",
        "tell me how to fill this with the pdf skill",
    ],
)
def test_a_polite_order_is_one(goal):
    assert heard(goal) == "+pdf"


@pytest.mark.req("C3")
@pytest.mark.parametrize(
    "goal",
    [
        "Fill in this form and do not use any skill",
        "please don't use skills for this",
        "Fill it in without any skills.",
        "without using a skill, fill it in",
        "use no skill, just answer",
        "No skills, please. Fill it in",
        "I don't want you to use any skills",
        "不要使用任何技能，直接回答",
        "请不要用技能",
        "スキルを使わないで",
        "この件はスキルを使わないでください",
        "스킬을 사용하지 마",
    ],
)
def test_no_skill_at_all_may_be_asked_for(goal):
    found = DETECTOR.heard(goal, SKILLS)
    assert found.none
    assert found.notes == ("No skill: the request asks for none",)
    assert not found.wanted


@pytest.mark.parametrize(
    ("goal", "names"),
    [
        ("do not use any skill except pdf", "+pdf"),
        ("do not use any skills but docx and pdf", "+docx +pdf"),
        ("use the pdf skill and do not use any skill of others", "+pdf"),
        ("write an article for people without any skills", ""),
        ("I have no skill in drawing, make a logo", ""),
        ("do not use a skill that writes files", ""),
        ("do not use skill pdf", "-pdf"),
        ("不要用技能 pdf", "-pdf"),
        ("pdf スキルを使わないで", "-pdf"),
    ],
)
def test_some_of_no_skills_are_some(goal, names):
    assert heard(goal) == names
    assert not DETECTOR.heard(goal, SKILLS).none


@pytest.mark.req("C3")
@pytest.mark.parametrize(
    ("goal", "names"),
    [
        ("don't use the csv skills", "-csv-join -csv-sort"),
        ("never use any csv skill", "-csv-join -csv-sort"),
        ("join it without the csv skills", "-csv-join -csv-sort"),
        ("don't use the csv skill", "-csv-join -csv-sort"),
        ("不要用csv技能", "-csv-join -csv-sort"),
        ("don't use the pdf skills", "-pdf -pdf-forms"),
        ("don't use any pdf skill", "-pdf -pdf-forms"),
        ("don't use the pdf skill", "-pdf"),
        ("don't use the pdf and docx skills", "-pdf -docx"),
        ("don't use the best skills", ""),
    ],
)
def test_a_whole_kind_may_be_ruled_out(goal, names):
    skills = (*SKILLS, skill("csv-join"), skill("csv-sort"), skill("best-of"))
    assert heard(goal, skills) == names


@pytest.mark.req("C3")
@pytest.mark.parametrize(
    ("goal", "rest"),
    [
        ("never use pdf-forms; join two files", "; join two files"),
        ("join two files without pdf-forms", "join two files"),
        ("use skill terraform-plan to set it up", "to set it up"),
        ("$terraform please", "please"),
        ("join it --skill nothing-like-it", "join it"),
        ("use the spreadsheet skill to sum", "spreadsheet to sum"),
        ("the pdf skill must not be used, join two files", "the , join two files"),
        ("不要用 pdf 技能，合并文件", ",合并文件"),
        ("don't use pdf\n```\njoin a b\n```\n> and more", "join a b > and more"),
        ("never use pdf-join; join two files", "; join two files"),
        ("join two files", None),
    ],
)
def test_what_is_left_to_search_with_has_no_calls(goal, rest):
    found = DETECTOR.heard(goal, SKILLS).rest
    assert (found if found is None else " ".join(found.split())) == rest


@pytest.mark.parametrize(
    ("goal", "names"),
    [
        ("$terraform please", "?terraform"),
        ("$price = 3 fails", ""),
        ("$PRICE is empty", ""),
        ("$50k of revenue", ""),
        ("$user->name is null", ""),
        ("/etc/hosts is broken", ""),
        ("/terraform it", "?terraform"),
    ],
)
def test_a_command_that_nothing_has(goal, names):
    assert heard(goal) == names


@pytest.mark.parametrize(
    ("written", "meant"),
    [("fodo", ["food"]), ("foood", ["food"]), ("foo", ["food"]), ("fool", ["food"]),
     ("fxxd", []), ("zzzz", []), ("docs", ["docx"]), ("5x", [])],
)  # fmt: skip
def test_one_slip_of_the_pen_is_seen(written, meant):
    answer = DETECTOR.look(f"use skill {written}", SKILLS)
    assert answer.matches == []
    assert [match.name for match in answer.runners_up] == meant
    assert all(match.reason == f"its name is written almost like `{written}`"
               for match in answer.runners_up)  # fmt: skip


@pytest.mark.parametrize(
    "goal",
    [
        "use pdf",
        "use python to sort this",
        "use 5 where it is empty",
        "@pdf have a look",
        "use a skill",
        "use the right skill",
        "use your writing skills",
        "it costs $5",
        "echo $HOME",
        "cd $path/x",
        "let $pdf=3",
        "${pdf}",
        "$x$ and $pdf$",
        "\\$pdf",
        "look at /usr/pdf",
        "see src/pdf now",
        "see http://example.com/pdf now",
        "clean /tmp please",
        "GET /users",
        "the /users endpoint",
        "store it in the `/docx` folder",
        "保存到 /docx",
        "输入/数据分析",
        "and/or pdf",
        "improve the pdf-forms skill",
        "create a skill: pdf",
        "this is not python related",
        "```\n$pdf /docx use skill pdf\n```\nwhat does this do",
        "a log ```$pdf``` of yesterday",
        "> use skill pdf\nwhat did they mean",
        "~~~\n/pdf\n~~~",
        "it says ```\n/pdf and never ends",
        "",
        "   \n",
    ],
)
def test_nobody_is_called(goal):
    assert heard(goal) == ""


def test_a_slash_at_the_beginning_is_a_command_whatever_it_names_elsewhere():
    assert heard("/run the tests") == "+run"
    assert heard("/tmp is full") == ""  # something is told of a folder


def test_a_name_is_whole_and_the_longest_wins():
    assert heard("use skill pdf-forms") == "+pdf-forms"
    assert heard("use the pdf forms skill") == "+pdf-forms"
    assert heard("$pdf-forms") == "+pdf-forms"
    assert heard("use skill pdf-form") == "?pdf-form"  # not `pdf`
    assert heard("it is $pdfs") == ""
    assert heard("use skill c++") == "+c++"
    assert heard("use skill Test-Runner") == "+test_runner"


def test_the_spelling_that_was_written_wins():
    skills = (skill("Test"), skill("test"), skill("te st"), skill("te-st"))
    for name in ("Test", "test", "te-st"):
        assert heard(f"use skill {name}", skills) == f"+{name}"
    assert heard("use skill TEST", skills) == "+Test"  # the first one


def test_namespaces_ids_and_refs_name_a_skill():
    home = Origin("/home", "global", "~/.config/agents/skills")
    skills = (*SKILLS, skill("fill", "office/fill-in"), skill("tidy", "tidy-up", home))
    assert heard("use skill acme:lint", skills) == "+acme:lint"
    assert heard("use skill lint", skills) == "+acme:lint"
    assert heard("use skill office/fill-in", skills) == "+fill"
    assert heard("use skill office:fill-in", skills) == "+fill"
    assert heard("use skill skills/office/fill-in", skills) == "+fill"
    assert heard("use skill ~/.config/agents/skills/tidy-up", skills) == "+tidy"
    assert heard("use skill `tidy-up`", skills) == "+tidy"
    two = (skill("a:lint"), skill("b:lint"))
    assert heard("use skill lint", two) == "?lint"  # which of them?


def test_a_name_that_nothing_has_is_told_with_those_that_are_near():
    answer = DETECTOR.look("use skill foood", SKILLS)
    assert answer.matches == []
    assert answer.notes == ("There is no skill `foood`; did you mean `food`?",)
    (unknown,) = DETECTOR.heard("--skill zzzz", SKILLS).unknown
    assert unknown == ("zzzz", ())
    goal = " ".join(f"--skill none{number}" for number in range(9))
    assert DETECTOR.look(goal, SKILLS).notes[-1] == (
        "There are no skills of 6 other names that the request gives"
    )
    assert heard("/foood please") == "?foood"


def test_a_match_quotes_what_was_said():
    answer = DETECTOR.look("First use  the PDF skill, then rest", SKILLS)
    (match,) = answer.matches
    assert match.reason == "called by name: `use the PDF skill`"
    assert match.evidence == ("goal: use the PDF skill",)
    assert match.detector == answer.detector == "explicit"
    assert answer.fit == 1.0


def test_what_is_both_wanted_and_ruled_out_is_told():
    answer = DETECTOR.look("use skill pdf. Do not use pdf", SKILLS)
    assert answer.matches == []
    assert answer.notes == ("`pdf` is asked for and ruled out in one request: it is left out",)


def test_a_hundred_thousand_skills_cost_one_table():
    many = tuple(skill(f"{word}-{n}") for n in range(50_000) for word in ("pdf", "report"))
    detector = ExplicitDetector()
    detector.detect("use skill pdf-1", many)
    began = time.perf_counter()
    for n in range(100):
        (match,) = detector.detect(f"Fill in the form and use skill report-{n}", many)
        assert match.name == f"report-{n}"
    assert time.perf_counter() - began < 1


@pytest.mark.parametrize(
    "unit",
    ["$", "$a ", "/a ", "use ", "use skill ", "not $a ", "用", "不要用", "スキル", "`", "``` ",
     "use '", "--skill a,", "skill: ", "don't ", "a,", "> \n", " ", "İ", "do not use any skill ",
     "can i use skill a ", "don't use the a skills ", "no skill. don't use a. ", "不要用技能 ",
     "wrong with the a skill ", "any skill but a ", "除了a技能", "/a and ", "you can't use a ",
     "i'd rather not use a, ", "skills: a, a, ", "a? no "],
)  # fmt: skip
def test_hostile_goals_cost_no_more_than_their_length(unit):
    skills = (*SKILLS, skill("a"))

    def seconds(size: int) -> float:
        goal = (unit * (size // len(unit) + 1))[:size]
        began = time.process_time()
        DETECTOR.heard(goal, skills)
        return time.process_time() - began

    seconds(1000)
    small, large = seconds(10_000), seconds(80_000)
    assert large < 8 * 4 * small + 0.2  # eight times the text; quadratic would be 64 times


def test_of_a_long_text_the_beginning_and_the_end_are_heard_and_the_note_says_so():
    long = "use skill docx. " * 130_000
    began = time.process_time()
    found = DETECTOR.heard(f"use skill pdf. {'so it is. ' * 2_000}{long}{'and so on. ' * 2_000} "
                           "--skill food", SKILLS)  # fmt: skip
    assert time.process_time() - began < 1
    assert [one.skill.name for one in found.wanted] == ["pdf", "food"]
    assert len(found.notes) == 1
    assert found.notes[0].endswith(
        " characters amid the request were not searched for names of skills"
    )
    assert found.rest is not None
    assert "use skill docx" in found.rest  # others search with all of it
    quiet = DETECTOR.heard("a report: " * 10_000, SKILLS)
    assert quiet.rest is None
    assert len(quiet.notes) == 1


WORDS = st.sampled_from(
    [*NAMES, "use", "skill", "skills", "the", "not", "don't", "without", "$", "/", "--skill ",
     "用", "技能", "不要", "スキル", "を使って", "스킬", "사용", "`", "「", "」", ",", ".", "\n",
     "```", "but", "and", " "]
)  # fmt: skip


@given(st.one_of(st.text(max_size=200), st.lists(WORDS, max_size=30).map(" ".join)))
def test_whatever_the_goal_nothing_raises_and_the_answer_stays_the_same(goal):
    first = DETECTOR.heard(goal, SKILLS)
    assert first == ExplicitDetector().heard(goal, SKILLS)
    assert first == ExplicitDetector().heard(goal, list(SKILLS))
    unwanted = {one.skill.name for one in first.unwanted}
    assert unwanted.isdisjoint(match.name for match in DETECTOR.detect(goal, SKILLS))


NEGATIONS = st.sampled_from(
    ["don't use {}", "do not use the {} skill", "never use skill {}", "without {}",
     "instead of {}", "please do not use `{}`", "rather than the {} skill", "without using {}",
     "不要用 {}", "不使用{}技能", "别用 {} 技能", "{}スキルを使わないで",
     "{} 스킬을 사용하지 마", "don't run /{}", "do not use ${}"]
)  # fmt: skip


@given(
    NEGATIONS,
    st.sampled_from(["pdf", "pdf-forms", "docx", "code-review", "food", "python"]),
    st.sampled_from(["", "use skill {} first. ", "please $" + "{}. ", "--skill {} . "]),
    st.sampled_from(["", ". Thank you", "\nand be quick", "。谢谢", "; then stop"]),
)
def test_what_is_ruled_out_is_never_chosen(negation, name, before, after):
    goal = before.format(name) + negation.format(name) + after
    found = DETECTOR.heard(goal, SKILLS)
    assert name in {one.skill.name for one in found.unwanted}, goal
    assert name not in {match.name for match in DETECTOR.detect(goal, SKILLS)}


NAMED = st.text(
    st.characters(whitelist_categories=("Ll", "Lu", "Lo", "Nd"), max_codepoint=0xFFFF),
    min_size=1,
    max_size=20,
)


@given(NAMED, st.sampled_from(["use skill `{}`", "--skill {}", "skill: {}", "使用「{}」技能"]))
def test_any_name_can_be_called(name, phrase):
    one = skill(name)
    goal = phrase.format(name)
    assert [match.name for match in DETECTOR.detect(goal, (one, skill("other-one")))] == [name]
