"""Bytes of a SKILL.md -> the frontmatter block and the body.

Delimiters are whole lines: splitting on the three characters `---` cuts descriptions that contain
them. Nothing is guessed: what is odd becomes a Problem, and what is not a skill says why.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from satchel._language import Message
from satchel.skill.problems import Problem

MAX_FRONTMATTER = 64 * 1024
"""Longer frontmatter (in characters) is refused: no real one comes near it, and YAML costs time."""

_OPEN = re.compile(r"---([ \t]*)(?:\n|\Z)")
_CLOSE = re.compile(r"---([ \t]*)$", re.MULTILINE)
_ENDS_UNCLOSED = re.compile(
    r"^(?:\.\.\.|#{1,6} |```|<!--|\* |> |\|)|^[ \t]*-{3,}[ \t]*$", re.MULTILINE
)
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\x80-\x84\x86-\x9f\ufffe\uffff]")
_LATER = re.compile(r"^---[ \t]*\n(?:.*\n){0,12}?(?:name|description)[ \t]*:", re.MULTILINE)
_AGAIN = re.compile(
    r"\s*---[ \t]*\n(?:[A-Za-z_][\w-]*[ \t]*:.*\n|[ \t]+.*\n|\n){0,20}?(?:name|description)[ \t]*:"
)
_LOOKS_BINARY = (b"\x7fELF", b"PK\x03\x04", b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"%PDF", b"MZ")


class Split(NamedTuple):
    """A file taken apart."""

    block: str | None
    """The YAML between the delimiters, or None when the file is not a skill."""
    first_line: int
    """Line number of the block's first line in the file."""
    body: str
    problems: list[Problem]


def decode(data: bytes) -> tuple[str | None, list[Problem]]:
    """Turn bytes into text with Unix line ends; None when they are not text."""
    problems: list[Problem] = []
    if data.startswith(_LOOKS_BINARY):
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
            bad = text.count("\ufffd")
            if bad > len(text) // 10 and not text.startswith("---"):
                return None, [Problem("not-text")]
            line = text[: text.index("\ufffd")].count("\n") + 1 if bad else 1
            problems.append(Problem("invalid-utf8", line=line, values={"count": str(bad)}))
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text, problems


def split(text: str) -> Split:
    """Find the frontmatter in decoded text."""
    problems: list[Problem] = []
    stripped = text.lstrip("\n \t\ufeff") if text[:1] in "\n \t\ufeff" else text
    skipped = len(text) - len(stripped)
    if skipped and stripped.startswith("---"):
        problems.append(Problem("leading-blank", line=1))
        start_line = text.count("\n", 0, skipped) + 1
        text = stripped
    else:
        start_line = 1
    opening = _OPEN.match(text)
    if opening is None:
        return Split(None, 1, text, [*problems, _not_a_skill(text)])
    if opening.group(1):
        problems.append(Problem("delimiter-spaces", line=start_line))
    start = opening.end()
    closing = _closing(text, start)
    if closing is None:
        block, body, problem = _unclosed(text, start, start_line)
        problems.append(problem)
    else:
        block = text[start : closing.start()]
        body = text[closing.end() + 1 :]
        if closing.group(1):
            line = start_line + 1 + block.count("\n")
            problems.append(Problem("delimiter-spaces", line=line))
        if body.lstrip("\n \t").startswith("---") and _AGAIN.match(body):
            line = start_line + 2 + block.count("\n")
            problems.append(Problem("doubled-frontmatter", line=line))
    if len(block) > MAX_FRONTMATTER:
        return Split(None, 1, body, [*problems, too_large()])
    control = _CONTROL.search(block)
    if control:
        line = start_line + 1 + block.count("\n", 0, control.start())
        block, count = _CONTROL.subn("", block)
        problems.append(Problem("control-characters", line=line, values={"count": str(count)}))
    return Split(block, start_line + 1, body, problems)


def _closing(text: str, start: int) -> re.Match[str] | None:
    """The first line after `start` that is `---` and nothing else."""
    at = start - 1
    while True:
        at = text.find("\n---", at)
        if at < 0:
            return None
        closing = _CLOSE.match(text, at + 1)
        if closing is not None:
            return closing
        at += 1


def too_large() -> Problem:
    """The frontmatter is over the bound."""
    return Problem("frontmatter-too-large", values={"limit": str(MAX_FRONTMATTER)})


def _unclosed(text: str, start: int, start_line: int) -> tuple[str, str, Problem]:
    """Without a closing line, take only what stands before the first thing that is no YAML."""
    end = _ENDS_UNCLOSED.search(text, start)
    stop = end.start() if end else len(text)
    stop = min(stop, start + MAX_FRONTMATTER)
    block = text[start:stop]
    line = start_line + 1 + block.count("\n")
    before = Message("line {part}", part=line) if end else "the end of the file"
    return block, text[stop:], Problem("unclosed-frontmatter", line=line, values={"before": before})


def _not_a_skill(text: str) -> Problem:
    """Name what the file begins with instead, so that its author sees the slip."""
    head = text.lstrip()
    first = head.partition("\n")[0].strip()
    if not head:
        return Problem("no-frontmatter", values={"found": "the file is empty"})
    if (
        len(head) < 300
        and "\n" not in head.strip()
        and re.fullmatch(r"[\w./@-]+", first)
        and "/" in first
    ):
        return Problem("symlink-as-text", line=1, values={"target": first})
    later = _LATER.search(text)
    if later:
        line = text.count("\n", 0, later.start()) + 1
        found = Message("it comes only at line {part}", part=line)
    elif first.startswith(("<<<<<<<", ">>>>>>>")):
        found = "an unresolved merge conflict comes first"
    elif first.startswith("#"):
        found = "a heading comes first"
    elif first.startswith("<!--"):
        found = "an HTML comment comes first"
    elif first.startswith("```"):
        found = "a code fence comes first"
    elif first.startswith("<"):
        found = "HTML comes first"
    elif first.startswith("{"):
        found = "JSON comes first"
    elif first.startswith("---"):
        found = "the first line has more than the three hyphens"
    elif re.match(r"(?:name|description)\s*:", first):
        found = "the keys are there without it"
    else:
        found = "other text comes first"
    return Problem("no-frontmatter", line=1, values={"found": found})
