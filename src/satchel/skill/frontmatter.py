"""Decodes a SKILL.md and splits it into its frontmatter block and its body.

Delimiters are whole lines, since descriptions may contain `---`. `frontmatter_fields` parses the
block.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from satchel.i18n import Message
from satchel.skill.problems import Problem

MAX_FRONTMATTER_CHARS = 64 * 1024
_MAX_LINK_CHARS = 300

_FILE_PATH = re.compile(r"[\w./@-]*/[\w./@-]*")
_OPENING_LINE = re.compile(r"---([ \t]*)(?:\n|\Z)")
_CLOSING_LINE = re.compile(r"---([ \t]*)$", re.MULTILINE)
_NO_YAML_LINE = re.compile(
    r"^(?:\.\.\.|#{1,6} |```|<!--|\* |> |\|)|^[ \t]*-{3,}[ \t]*$", re.MULTILINE
)
_CONTROL_CHARACTER = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\x80-\x84\x86-\x9f\ufffe\uffff]")
_SECOND_FRONTMATTER = re.compile(
    r"\s*---[ \t]*\n(?:[A-Za-z_][\w-]*[ \t]*:.*\n|[ \t]+.*\n|\n){0,20}?(?:name|description)[ \t]*:"
)
_CONFLICT_MARKS = ("<<<<<<< ", "=======", ">>>>>>> ")
_BINARY_SIGNATURES = (
    b"\x7fELF",
    b"PK\x03\x04",
    b"\x89PNG",
    b"\xff\xd8\xff",
    b"GIF8",
    b"%PDF",
    b"MZ",
)


class SplitFile(NamedTuple):
    """A file split into frontmatter and body."""

    block: str | None
    """The YAML between the delimiters, or None when the file is no skill."""
    first_line: int
    """Line number of the block in the file."""
    body: str
    problems: list[Problem]


def decode(data: bytes) -> tuple[str | None, list[Problem]]:
    """Decode bytes into text with Unix line ends; None when they are no text."""
    problems: list[Problem] = []
    if data.startswith(_BINARY_SIGNATURES):
        return None, [Problem("not-text")]
    if data.startswith(b"\xef\xbb\xbf"):
        data = data[3:]
        problems.append(Problem("bom", line=1))
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        text = data.decode("utf-16", "replace")
        problems.append(Problem("wide-encoding", values={"encoding": "UTF-16"}))
    else:
        try:
            text = data.decode()
        except UnicodeDecodeError:
            text = data.decode("utf-8", "replace")
            invalid_count = text.count("\ufffd")
            if invalid_count > len(text) // 10 and not text.startswith("---"):
                return None, [Problem("not-text")]
            line = text[: text.index("\ufffd")].count("\n") + 1 if invalid_count else 1
            values = {"count": str(invalid_count)}
            problems.append(Problem("invalid-utf8", line=line, values=values))
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text, problems


def split_file(text: str) -> SplitFile:
    """Find the frontmatter in decoded text."""
    problems: list[Problem] = []
    stripped = text.lstrip("\n \t\ufeff") if text[:1] in "\n \t\ufeff" else text
    blank_count = len(text) - len(stripped)
    start_line = 1
    if blank_count and stripped.startswith("---"):
        problems.append(Problem("leading-blank", line=1))
        start_line = text.count("\n", 0, blank_count) + 1
        text = stripped
    opening = _OPENING_LINE.match(text)
    start = opening.end() if opening is not None else 0
    closing = _find_closing_line(text, start) if opening is not None else None
    if conflict_line := find_conflict_line(text):
        line = start_line + conflict_line - 1
        if closing is None or conflict_line <= text.count("\n", 0, closing.start()):
            return SplitFile(None, 1, text, [*problems, Problem("merge-conflict", line=line)])
        problems.append(Problem("conflict-marks", line=line))
    if opening is None:
        return SplitFile(None, 1, text, [*problems, _no_frontmatter_problem(text)])
    if opening.group(1):
        problems.append(Problem("delimiter-spaces", line=start_line))
    if closing is None:
        block, body, problem = _split_unclosed(text, start, start_line)
        problems.append(problem)
    else:
        block = text[start : closing.start()]
        body = text[closing.end() + 1 :]
        problems += _find_end_problems(closing, body, start_line + 1 + block.count("\n"))
    if len(block) > MAX_FRONTMATTER_CHARS:
        return SplitFile(None, 1, body, [*problems, _too_large_problem()])
    control = _CONTROL_CHARACTER.search(block)
    if control:
        line = start_line + 1 + block.count("\n", 0, control.start())
        block, count = _CONTROL_CHARACTER.subn("", block)
        problems.append(Problem("control-characters", line=line, values={"count": str(count)}))
    return SplitFile(block, start_line + 1, body, problems)


def _find_end_problems(closing: re.Match[str], body: str, line: int) -> list[Problem]:
    """Problems of the closing line, and of a second frontmatter after it."""
    problems: list[Problem] = []
    if closing.group(1):
        problems.append(Problem("delimiter-spaces", line=line))
    if body.lstrip("\n \t").startswith("---") and _SECOND_FRONTMATTER.match(body):
        problems.append(Problem("doubled-frontmatter", line=line + 1))
    return problems


def find_conflict_line(text: str) -> int:
    """The line of the first merge conflict outside code blocks, which may explain them; else 0."""
    if not all(f"\n{mark}" in f"\n{text}" for mark in _CONFLICT_MARKS):
        return 0
    fence, first_line, mark_count = "", 0, 0
    for number, line in enumerate(text.split("\n"), 1):
        if fence:
            fence = "" if line.startswith(fence) else fence
        elif line.startswith(("```", "~~~")):
            fence = line[:3]
        elif line.startswith(_CONFLICT_MARKS[mark_count]):
            first_line = first_line or number
            mark_count += 1
            if mark_count == len(_CONFLICT_MARKS):
                return first_line
    return 0


def _find_closing_line(text: str, start: int) -> re.Match[str] | None:
    """The first line after `start` that consists of `---` alone."""
    position = start - 1
    while True:
        position = text.find("\n---", position)
        if position < 0:
            return None
        closing = _CLOSING_LINE.match(text, position + 1)
        if closing is not None:
            return closing
        position += 1


def _too_large_problem() -> Problem:
    """The problem of a frontmatter over the limit."""
    return Problem("frontmatter-too-large", values={"limit": str(MAX_FRONTMATTER_CHARS)})


def _split_unclosed(text: str, start: int, start_line: int) -> tuple[str, str, Problem]:
    """Without a closing line, the block ends before the first line that is no YAML."""
    no_yaml = _NO_YAML_LINE.search(text, start)
    end = no_yaml.start() if no_yaml else len(text)
    end = min(end, start + MAX_FRONTMATTER_CHARS)
    block = text[start:end]
    line = start_line + 1 + block.count("\n")
    before = Message("line {part}", part=line) if no_yaml else "the end of the file"
    return block, text[end:], Problem("unclosed-frontmatter", line=line, values={"before": before})


def _no_frontmatter_problem(text: str) -> Problem:
    content = text.strip()
    if len(content) < _MAX_LINK_CHARS and _FILE_PATH.fullmatch(content):
        return Problem("symlink-as-text", line=1, values={"target": content})
    return Problem("no-frontmatter", line=1)
