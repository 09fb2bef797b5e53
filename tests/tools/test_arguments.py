"""How the arguments of a call enter a skill's text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from satchel.tools.arguments import apply_arguments, argument_names


def filled(body: str, args: str = "", **more) -> str:
    return apply_arguments(body, args, base_dir="/base", **more).text


@pytest.mark.req("A5")
@pytest.mark.parametrize(
    ("body", "args", "expected"),
    [
        ("Review $ARGUMENTS. Again: $ARGUMENTS", "src/ lib/", "Review src/ lib/. Again: src/ lib/"),
        ("Review.", "src/", "Review.\n\nARGUMENTS: src/"),
        ("Review.\n\n", "src/", "Review.\n\nARGUMENTS: src/"),
        ("Review.", "", "Review."),
        ("Review.", "  \n", "Review."),
        ("Review $ARGUMENTS now", "", "Review  now"),
        ("处理$ARGUMENTS文件", "a.txt", "处理a.txt文件"),
        ("`$ARGUMENTS`\n```\nrun $ARGUMENTS\n```", "x", "`x`\n```\nrun x\n```"),
        ("$ARGUMENTS_LIST", "x", "$ARGUMENTS_LIST\n\nARGUMENTS: x"),
    ],
)
def test_all_arguments(body, args, expected):
    assert filled(body, args) == expected


@pytest.mark.req("A5")
def test_one_argument_by_its_place():
    body = "$ARGUMENTS[0]|$ARGUMENTS[1]|$ARGUMENTS[5]|$1|$2"
    assert filled(body, "one 'two words' three") == (
        "one|two words||one|two words\n\nARGUMENTS: one 'two words' three"
    )
    assert filled("From $1 to $2", "here there") == "From here to there"


@pytest.mark.req("A5")
def test_arguments_by_name():
    names = ("issue", "issue_id", "who")
    assert filled("$issue $issue_id $who $whom", "7 8 me", names=names) == "7 8 me $whom"
    assert filled("$issue $issue_id", "7", names=names) == "7 "
    assert filled("$issue", "", names=names) == ""


@pytest.mark.parametrize(
    ("value", "names"),
    [
        (["issue", "who"], ("issue", "who")),
        ("issue, who", ("issue", "who")),
        ("issue who", ("issue", "who")),
        ([{"name": "issue", "required": True}, {"name": "who"}], ("issue", "who")),
        ({"issue": "which", "who": "whom"}, ("issue", "who")),
        (["$(evil)", "a b", 3, None, "ok"], ("ok",)),
        (None, ()),
        (True, ()),
    ],
)
def test_names_are_read_however_they_are_written(value, names):
    assert argument_names(value) == names


def test_what_no_placeholder_took_is_appended():
    assert filled("Only $1", "a b") == "Only a\n\nARGUMENTS: a b"
    assert filled("Both $1 $2", "a b") == "Both a b"
    assert filled(r"Literally \$ARGUMENTS", "a") == "Literally $ARGUMENTS\n\nARGUMENTS: a"


@pytest.mark.parametrize(
    "text",
    [
        "It costs $1.50, $10, $1,000, $5M or US$1",
        "```sh\nawk '{print $1}'\n```",
        "~~~\necho $1\n~~~",
        "A range of $1-2, $5–10 and $3/month, and $2 million",
        "$0 and $$1 and ${1} and $HOME",
    ],
)
def test_money_and_code_are_left_alone_where_nobody_speaks_of_arguments(text):
    assert filled(text) == text
    assert filled(text, "a b c d e").startswith(text)


def test_a_skill_that_declares_arguments_may_use_them_anywhere():
    body = "```\nrun $1/$2.md\n``` for $1.50 and $5"
    assert filled(body, "a b", hint="[from] [to]") == "```\nrun a/b.md\n``` for $1.50 and $5"
    assert filled(body, "", hint="<from> <to>") == "```\nrun /.md\n``` for $1.50 and $5"
    assert filled("```\n$1\n```\n$ARGUMENTS", "a") == "```\na\n```\na"


def test_a_backslash_keeps_a_placeholder():
    body = r"\$ARGUMENTS \$1 \${SKILL_DIR} \$name \$HOME $1"
    assert filled(body, "x", names=("name",)) == r"$ARGUMENTS $1 ${SKILL_DIR} $name \$HOME x"


def test_the_folder():
    body = "${SKILL_DIR}/a ${CLAUDE_SKILL_DIR}/b ${HOME}"
    assert filled(body) == "/base/a /base/b ${HOME}"


def test_arguments_are_not_gone_through_again():
    assert filled("$ARGUMENTS|$1", "$1 $ARGUMENTS ${SKILL_DIR}") == "$1 $ARGUMENTS ${SKILL_DIR}|$1"


@given(st.text(), st.text(), st.lists(st.text(), max_size=3), st.text())
def test_any_text_can_be_filled(body, args, names, hint):
    applied = apply_arguments(body, args, base_dir="/base", names=argument_names(names), hint=hint)
    if not args.strip() and "$" not in body:
        assert applied.text == body
    if args.strip() and "$" not in body:
        assert applied.text.endswith(f"ARGUMENTS: {args.strip()}")
