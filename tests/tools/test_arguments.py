"""How the arguments of a call enter a skill's text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from satchel.tools.arguments import apply_arguments, argument_names


def filled(body: str, args: str = "", **more) -> str:
    return apply_arguments(body, args, base_dir="/base", **more)


NAMES = {"names": ("issue", "issue_id", "who")}
CODE = "```\nrun $1/$2.md\n``` for $1.50 and $5"


@pytest.mark.req("A5")
@pytest.mark.parametrize(
    ("body", "args", "more", "expected"),
    [
        ("Review $ARGUMENTS. Again: $ARGUMENTS", "src/ x", {}, "Review src/ x. Again: src/ x"),
        ("Review.", "src/", {}, "Review.\n\nARGUMENTS: src/"),
        ("Review.\n\n", "src/", {}, "Review.\n\nARGUMENTS: src/"),
        ("Review.", "", {}, "Review."),
        ("Review.", "  \n", {}, "Review."),
        ("Review $ARGUMENTS now", "", {}, "Review  now"),
        ("处理$ARGUMENTS文件", "a.txt", {}, "处理a.txt文件"),
        ("`$ARGUMENTS`\n```\nrun $ARGUMENTS\n```", "x", {}, "`x`\n```\nrun x\n```"),
        ("$ARGUMENTS_LIST", "x", {}, "$ARGUMENTS_LIST\n\nARGUMENTS: x"),
        # One by its place, or by its name.
        ("$ARGUMENTS[0]|$ARGUMENTS[1]|$1", "1 '2 b'", {}, "1|2 b|1"),
        ("From $1 to $2", "here there", {"hint": "[from] [to]"}, "From here to there"),
        ("$ARGUMENTS[5]|$1", "a", {}, "|a"),
        ("$issue $issue_id $who $whom", "7 8 me", NAMES, "7 8 me $whom"),
        ("$issue $issue_id", "7", NAMES, "7 "),
        ("$issue", "", NAMES, ""),
        # What no placeholder took is appended.
        ("Only $1", "a b", {"hint": "[one]"}, "Only a\n\nARGUMENTS: a b"),
        ("Only $1", "a b", {}, "Only $1\n\nARGUMENTS: a b"),
        # A skill that declares arguments may use them anywhere.
        (CODE, "a b", {"hint": "[from] [to]"}, "```\nrun a/b.md\n``` for $1.50 and $5"),
        (CODE, "", {"hint": "<from> <to>"}, "```\nrun /.md\n``` for $1.50 and $5"),
        ("```\n$1\n```\n$ARGUMENTS", "a", {}, "```\na\n```\na"),
        # A backslash keeps a placeholder.
        (
            r"\$ARGUMENTS \$1 \${SKILL_DIR} \$HOME $1",
            "x",
            {},
            r"$ARGUMENTS $1 ${SKILL_DIR} \$HOME x",
        ),
        (r"\$who $who", "a b c", NAMES, "$who c\n\nARGUMENTS: a b c"),
        ("${SKILL_DIR}/a ${CLAUDE_SKILL_DIR}/b ${HOME}", "", {}, "/base/a /base/b ${HOME}"),
        # Arguments are not gone through again.
        ("$ARGUMENTS|$1", "$1 $ARGUMENTS ${SKILL_DIR}", {}, "$1 $ARGUMENTS ${SKILL_DIR}|$1"),
    ],
)
def test_arguments_enter_the_text(body, args, more, expected):
    assert filled(body, args, **more) == expected


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
def test_money_and_code_are_unchanged_without_declared_arguments(text):
    assert filled(text) == text
    assert filled(text, "a b c d e").startswith(text)


@given(st.text(), st.text(), st.lists(st.text(), max_size=3), st.text())
def test_any_text_can_be_filled(body, args, names, hint):
    text = filled(body, args, names=argument_names(names), hint=hint)
    if not args.strip() and "$" not in body:
        assert text == body
    if args.strip() and "$" not in body:
        assert text.endswith(f"ARGUMENTS: {args.strip()}")
