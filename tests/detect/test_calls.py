"""Calls are told from talk about skills, from code and from paths; lists are heard whole."""

from __future__ import annotations

import pytest

from listening import COMMON as SKILLS
from listening import DETECTOR, heard


@pytest.mark.req("C3")
@pytest.mark.parametrize(
    "goal",
    [
        "What is wrong with the pdf skill?",
        "I have a problem with the pdf skill, it never triggers",
        "Something is broken with my docker skill",
        "The agent keeps loading the docker skill, why?",
        "Compare the pdf skill with the docx skill",
        "Replace the pdf skill by the docx skill",
        "Write an email to a developer with react skills",
        "Job ad: skills: python, sql, react",
        "use the code-review branch to deploy",
        "Use the release-notes template in docs",
        "I'm looking for someone with docker skills",
        "Hire people with python and sql skills",
        "Help, there's an issue with the docker skill",
        "compare pdf skill with docx skill",
        "use code-review.md as a template",
        "please do the review with code-review",
        "don't use the pdf template",
        "Is something wrong with the pdf skill?",
        "I'm having trouble with the pdf skill",
        "There are bugs with the docker skill",
        "What happens with the docker skill loaded",
        "use my tool to improve the pdf skill",
        "Required skills: python, sql",
        "My skills: python and react. Write a CV",
        "Update my resume. Skills: python, sql",
        "use the `pdf` file",
        "use docker? not sure",
        "触发 pdf 技能",
        "he is using the pdf skill",
    ],
)
def test_who_talks_about_a_skill_does_not_call_it(goal):
    assert heard(goal) == ""


@pytest.mark.req("C3")
@pytest.mark.parametrize(
    ("goal", "names"),
    [
        ("read the file with the pdf skill", "+pdf"),
        ("Fix the errors with the debug skill", "+debug"),
        ("Solve this problem with the debug skill", "+debug"),
        ("do it by the pdf skill", "+pdf"),
        ("Process this via the pdf skill", "+pdf"),
        ("Load the docker skill", "+docker"),
        ("Use release-notes to write it", "+release-notes"),
        ("use $search", "+search"),
        ("Continue with the pdf skill", "+pdf"),
        ("Go on with the docx skill", "+docx"),
        ("I need help with the pdf skill", "+pdf"),
        ("Merge the files with the pdf skill", "+pdf"),
        ("Compare the two files with the pdf skill", "+pdf"),
        ("Replace the words with the docx skill", "+docx"),
        ("Is there any problem? Look at it with the debug skill", "+debug"),
        ("Fill in the form, skills: pdf", "+pdf"),
        ("skill: pdf", "+pdf"),
        ("Do it. skill: pdf", "+pdf"),
        ("Do it with skill: pdf", "+pdf"),
        ("use `code-review` for it", "+code-review"),
        ('use "release-notes"', "+release-notes"),
        ("run code-review on the main branch", "+code-review"),
        ("使用 docker 技能", "+docker"),
        ("用翻译技能", "+翻译"),
        ("trigger the pdf skill", "+pdf"),
        ("keep using the pdf skill", "+pdf"),
        ("Start using the pdf skill", "+pdf"),
        ("It was done with the pdf skill", "+pdf"),
        ("My advice is: use the pdf skill", "+pdf"),
        ("The best thing is to use the pdf skill", "+pdf"),
    ],
)
def test_who_works_with_a_skill_calls_it(goal, names):
    assert heard(goal) == names


@pytest.mark.req("C3")
@pytest.mark.parametrize(
    ("goal", "names"),
    [
        ("use any skill but pdf to read this file", "-pdf"),
        ("Read the PDF files, use any skill except pdf", "-pdf"),
        ("除了翻译以外的技能都可以用", "-翻译"),
        ("除了翻译技能都可以用", "-翻译"),
        ("use all skills except for pdf and docx", "-pdf -docx"),
        ("use any skill other than pdf", "-pdf"),
        ("do not use any skill but pdf", "+pdf"),
        ("除了 pdf 技能，其他技能都不要用", "+pdf"),
        ("除了 pdf 以外，别的技能都可以", "-pdf"),
        ("除了 pdf，还要 docx", ""),
        ("apply any skill except docx.", "-docx"),
        ("use any skill, but not pdf", "-pdf"),
        ("use whatever skill you like except pdf", "-pdf"),
    ],
)
def test_exceptions_are_ruled_out(goal, names):
    assert heard(goal) == names


@pytest.mark.req("C3")
@pytest.mark.parametrize(
    ("goal", "names"),
    [
        ("do not use docker or git", "-docker -git"),
        ("do it with the pdf and docx skills", "+pdf +docx"),
        ("use the pdf and docx skills", "+pdf +docx"),
        ("use code-review and deploy", "+code-review +deploy"),
        ("use pdf-forms and pdf", "+pdf-forms +pdf"),
        ("use `pdf` and docx", "+pdf +docx"),
        ("use code-review, then release-notes", "+code-review +release-notes"),
        ("use the pdf skill, then the docx skill", "+pdf +docx"),
        ("use skill pdf, then docx", "+pdf +docx"),
        ("use code-review to test and deploy this", "+code-review"),
        ("use pdf-forms and search the folder", "+pdf-forms"),
        ("use code-review and test the app", "+code-review"),
        ("use the pdf skill and search the web", "+pdf"),
        ("use the pdf skill and then deploy it", "+pdf"),
        ("don't use pdf and search the web", "-pdf"),
        ("don't use pdf and docx", "-pdf -docx"),
        ("don't use pdf, docx or excel please", "-pdf -docx -excel"),
        ("Fill in the form. Skills: pdf, docx", "+pdf +docx"),
    ],
)
def test_all_of_an_enumeration_are_heard_and_nothing_else(goal, names):
    assert heard(goal) == names


@pytest.mark.req("C3")
@pytest.mark.parametrize(
    ("goal", "names"),
    [
        ("/review and /test", "+review +test"),
        ("do /review and /test", "+review +test"),
        ('$search = $_GET["q"]; build SQL queries', ""),
        ("echo $test", ""),
        ("/docs is out of date, write release notes", ""),
        ("/tests fail on CI, debug the failing programs", ""),
        ("/tmp is full, clean it up", ""),
        ("$test is empty, fix it", ""),
        ("print($search)", ""),
        ("/api returns 500, fix the route", ""),
        ("/deploy", "+deploy"),
        ("/deploy the app", "+deploy"),
        ("/review is what I want", ""),
        ("$search for cats", "+search"),
        ("please $search for cats", "+search"),
        ("/search cats", "+search"),
        ("/review, /test", "+review +test"),
        ("/review then /test", "+review +test"),
        ("see /review and /test", ""),
        ("the routes /api and /search", ""),
        ("GET /api and /search fail", ""),
        ("/test fails", ""),
        ("/test the build", "+test"),
        ("/review my code", "+review"),
        ("/foo my code", "?foo"),
        ("$foo please", "?foo"),
        ("$test=1; echo $test", ""),
        ("if ($search) { run }", ""),
        ("SELECT $search + 1", ""),
    ],
)
def test_code_and_paths_call_nobody(goal, names):
    assert heard(goal) == names


@pytest.mark.parametrize("goal", ["使用翻议技能", "使用「翻议」技能"])
def test_a_slip_in_a_short_chinese_name_is_seen(goal):
    found = DETECTOR.heard(goal, SKILLS)
    assert found.notes == ("There is no skill `翻议`; did you mean `翻译`?",)
    assert [one.skill.name for one in found.meant] == ["翻译"]
