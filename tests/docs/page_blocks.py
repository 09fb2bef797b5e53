"""Parses the code blocks of a page and their options."""

from __future__ import annotations

import re
from typing import NamedTuple

_FENCE = re.compile(r"^(?P<indent>[ \t]*)(?P<fence>`{3,}|~{3,})[ \t]*(?P<info>[^`\n]*)$")
_COMMENT = re.compile(r"^\s*<!--\s*(?P<word>fixture|not run)\s*:\s*(?P<text>.*?)\s*-->\s*$")
_TITLE = re.compile(r"""title=(?P<quote>["'])(?P<title>.*?)(?P=quote)""")


class Block(NamedTuple):
    """One fenced block, or one `<!-- fixture: NAME -->` on its way."""

    line: int
    language: str
    """`fixture` for a fixture, empty when the page names none."""
    text: str
    """The code, or the fixture's name."""
    title: str = ""
    """A path: the block is a file, which is written and not run."""
    not_run: str = ""
    """The reason of `<!-- not run: REASON -->`."""


def parse(page: str) -> list[Block]:
    """Every block of a page of Markdown, in order.

    Raises:
        ValueError: A block is not closed, or `not run` stands before something else.
    """
    blocks: list[Block] = []
    lines = page.splitlines()
    reason = ""
    at = 0
    while at < len(lines):
        fence = _FENCE.match(lines[at])
        comment = _COMMENT.match(lines[at])
        if fence:
            end = _closing(lines, at, fence["fence"])
            language, title = _info(fence["info"])
            text = "\n".join(_dedent(line, fence["indent"]) for line in lines[at + 1 : end])
            blocks.append(Block(at + 1, language, text, title, reason))
            reason = ""
            at = end
        elif comment and comment["word"] == "fixture":
            blocks.append(Block(at + 1, "fixture", comment["text"]))
        elif comment:
            reason = comment["text"]
        elif lines[at].strip() and reason:
            raise ValueError(f"line {at + 1}: `not run` stands before something that is no block")
        at += 1
    if reason:
        raise ValueError("`not run` stands at the end of the page")
    return blocks


def _closing(lines: list[str], start: int, fence: str) -> int:
    for at in range(start + 1, len(lines)):
        bare = lines[at].strip()
        if bare.startswith(fence) and not bare.strip(fence[0]):
            return at
    raise ValueError(f"line {start + 1}: the block is not closed")


def _info(info: str) -> tuple[str, str]:
    """Language and title of `python title="a.py"` or `{ .python title="a.py" }`."""
    title = _TITLE.search(info)
    words = re.sub(_TITLE, "", info).replace("{", " ").replace("}", " ").split()
    language = words[0].removeprefix(".") if words else ""
    return language, title["title"] if title else ""


def _dedent(line: str, indent: str) -> str:
    return line.removeprefix(indent) if line.startswith(indent) else line.lstrip()
