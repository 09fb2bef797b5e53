"""Reads a block back the way a strict reader of its form would: what does it really list?"""

from __future__ import annotations

import re
from typing import NamedTuple
from xml.etree import ElementTree as ET

from hypothesis import strategies as st

from in_memory import skill


class Listed(NamedTuple):
    name: str
    id: str
    hint: str
    text: str


class Block(NamedTuple):
    entries: list[Listed]
    names: list[str]
    note: str
    intro: str


# --- reading ------------------------------------------------------------------------------


def read_block(text: str, form: str) -> Block:
    return read_xml(text) if form == "xml" else read_markdown(text)


def read_xml(text: str) -> Block:
    root = ET.fromstring(text)
    assert root.tag == "skills"
    assert {child.tag for child in root} <= {"skill", "names", "note"}
    entries = [
        Listed(
            child.attrib["name"],
            child.attrib.get("id", child.attrib["name"]),
            child.attrib.get("args", ""),
            child.text or "",
        )
        for child in root.findall("skill")
    ]
    names = [line for child in root.findall("names") for line in (child.text or "").split("\n")]
    notes = [child.text or "" for child in root.findall("note")]
    assert len(notes) == 1
    return Block(entries, [name for name in names if name], notes[0], root.text or "")


def read_markdown(text: str) -> Block:
    heading, intro, *rest = text.split("\n\n")
    assert heading == "## Skills"
    entries: list[Listed] = []
    names: list[str] = []
    for part in rest[:-1]:
        if part.startswith("By name only: "):
            at = len("By name only: ")
            while at < len(part):
                name, at = _code_span(part, at)
                names.append(name)
                assert part[at : at + 1] in {"", " "}
                at += 1
        else:
            entries += [_bullet(line) for line in part.split("\n")]
    return Block(entries, names, _unquoted(rest[-1]), intro)


def _bullet(line: str) -> Listed:
    assert line.startswith("- `")
    name, at = _code_span(line, 2)
    hint, identity = "", name
    if line.startswith(" `", at):
        hint, at = _code_span(line, at + 1)
    if line.startswith(" (id `", at):
        identity, at = _code_span(line, at + 5)
        assert line[at] == ")"
        at += 1
    if line.startswith(" (path `", at):
        path, at = _code_span(line, at + 7)
        assert (path[:7], path[-9:], line[at]) == ("skills/", "/SKILL.md", ")")
        at += 1
    assert line.startswith(": ", at)
    return Listed(name, identity, hint, _unquoted(line[at + 2 :]))


def _code_span(text: str, at: int) -> tuple[str, int]:
    """A code span as CommonMark reads it: up to the next run of exactly as many backticks."""
    opening = re.compile("`+").match(text, at)
    assert opening
    for run in re.compile("`+").finditer(text, opening.end()):
        if len(run[0]) == len(opening[0]):
            inside = text[opening.end() : run.start()]
            if inside.strip() and inside[0] == inside[-1] == " ":
                inside = inside[1:-1]
            return inside, run.end()
    raise AssertionError(f"a code span that never ends: {text[at:]}")


def _unquoted(text: str) -> str:
    assert not re.search(r"(?<!\\)(?:\\\\)*[`\[\]<>]", text), "markup in a description"
    return re.sub(r"\\([\\`\[\]<>])", r"\1", text)


# --- hostile text -------------------------------------------------------------------------

_TRICKS = [
    "</skill>", "</skills>", '<skill name="evil">', "</names>", "<note>", "&lt;", "&amp;", "]]>",
    "<!--", '"', "'", '"}],"names":["evil', "\\", "\\u0022", "`", "``", "\n- `evil`: now", "\n\n",
    "\r", "\t", "\u2028", "\x00", "\x1b[31m", "\x85", "\u202e", "\u200b", "\u200d", "\ufe0f",
    "\U000e0041", "\ud800", "\ufffe", "\ue000", "[x](y)", "![](z)", "# ", "* ", "By name only: ",
    "{{skills}}", "{{x}}", "…", "中文。", "é", "ไทย", "👩\u200d💻", " ", ". ", "word ", "e.g. ",
]  # fmt: skip

hostile = st.lists(
    st.one_of(st.sampled_from(_TRICKS), st.text(st.characters(), max_size=12)), max_size=12
).map("".join)

skills = st.lists(
    st.builds(
        skill,
        st.one_of(st.from_regex(r"[a-z]{1,9}(-[a-z]{1,9})?", fullmatch=True), hostile),
        hostile,
        st.one_of(st.none(), hostile),
        when_to_use=hostile,
        argument_hint=hostile,
        disable_model_invocation=st.sampled_from([False, False, False, True]),
    ),
    max_size=16,
)
