"""Splits files into regions: prose, commands, code, hidden comments.

The same words mean different things in each: a command in a fence is meant to be run, a comment in
Markdown is visible to models only. Markdown is parsed roughly and line by line in one pass, so that
the time is linear for any text.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator


class Region(NamedTuple):
    """A part of a file."""

    kind: str
    """`prose`, `plain` (a fence without a language), `hidden` (a comment in Markdown), `front`
    (frontmatter), `shell`, `powershell`, `python`, `javascript`, `code` (another language),
    `data`, or `decoded` (found inside another region)."""
    text: str
    line: int
    """1-based line of its first character."""
    heading: str = ""
    """The headings above it."""
    above: str = ""
    """The end of the prose above it."""
    script: bool = False
    """Whether the file is a program, not a page with examples."""


_BY_WORD = {
    "shell": "sh bash zsh fish shell console terminal shellsession sh-session command ksh dash "
    "command",
    "powershell": "powershell ps1 psm1 pwsh ps cmd bat batch dos",
    "python": "python py python3 pyw py3 ipython pycon",
    "javascript": "javascript js mjs cjs ts tsx jsx typescript node mts cts coffee vue svelte",
    "code": "rb ruby pl pm perl php lua go rs rust c h cc cpp hpp cs java kt kts swift scala r "
    "groovy dart vbs vba applescript scpt osascript awk sql tcl make makefile mk dockerfile "
    "gradle cmake nix zig nim ex exs clj hs ml jl m csharp golang",
    "data": "json jsonl json5 jsonc yaml yml toml ini cfg conf csv tsv xml html htm svg css scss "
    "lock properties plist env graphql proto diff patch log mermaid dot latex tex bib ipynb sarif "
    "http dotenv jinja j2 tmpl template",
    "markdown": "md markdown mdx mdc",
    "prose": "txt rst adoc org text license notice",
}
_KINDS = {word: kind for kind, words in _BY_WORD.items() for word in words.split()}
_SHEBANG = re.compile(
    r"#![^\n]{0,80}?\b(python|bash|zsh|sh|dash|ksh|fish|node|deno|bun|pwsh|perl|ruby|php)"
)
_INTERPRETERS = {
    "python": "python", "node": "javascript", "deno": "javascript", "bun": "javascript",
    "pwsh": "powershell", "perl": "code", "ruby": "code", "php": "code",
}  # fmt: skip
PROGRAMS = frozenset(("shell", "powershell", "python", "javascript", "code"))
"""Kinds of programs."""
_PICTURES = (
    ".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp", ".tif", ".tiff", ".heic", ".avif", ".ico",
)  # fmt: skip
_FENCE = re.compile(r"[ \t>*+\-\d.]*?(`{3,}|~{3,})[ \t]*\{?\.?([\w+#-]*)")
_HEADING = re.compile(r" {0,3}(#{1,6})[ \t]+(.*)")
_MAX_ABOVE_CHARS = 240
_SOURCES = frozenset((
    "sql", "tex", "latex", "m", "r", "make", "makefile", "mk", "cmake", "gradle", "h",
))  # fmt: skip
"""Languages whose files an agent rarely runs: not programs."""


def kind_of(path: str, start: str) -> str:
    """The kind of a file, by its name, else by its first line."""
    return known_kind(path, start) or "prose"


def known_kind(path: str, start: str) -> str:
    """As `kind_of`; empty when neither name nor first line tells."""
    name = os.path.basename(path).lower()
    stem, suffix = os.path.splitext(name)
    kind = _KINDS.get(suffix[1:] if suffix else stem)
    if kind is not None:
        return kind
    found = _SHEBANG.match(start)
    return _INTERPRETERS.get(found[1], "shell") if found else ""


def is_program_file(path: str, kind: str) -> bool:
    """Whether a file is a program."""
    suffix = os.path.splitext(path)[1].lower()[1:] or os.path.basename(path).lower()
    return kind in PROGRAMS and suffix not in _SOURCES


def regions_of(path: str, text: str) -> Iterator[Region]:
    """The parts of a file."""
    kind = kind_of(path, text[:200])
    if path == "skill.yaml":
        yield Region("front", text, 1)  # sent to models, as frontmatter is
    elif kind == "markdown":
        title = os.path.basename(path).lower() != "skill.md"
        yield from _markdown(text, 1 if title else 2)
    elif kind == "prose":
        if path.lower().endswith(_PICTURES):
            yield Region("hidden", text, 1)  # of its metadata
        yield from _sections(text.split("\n"), 1, 1)
    else:
        yield from _with_unseen(Region(kind, text, 1, script=kind in PROGRAMS))


def _markdown(text: str, top: int) -> Iterator[Region]:
    lines = text.split("\n")
    at = 0
    if lines[0].lstrip("\ufeff").rstrip() == "---":
        end = next((n for n in range(1, len(lines)) if lines[n].rstrip() in {"---", "..."}), 0)
        if end:
            yield Region("front", "\n".join(lines[1:end]), 2)
            at = end + 1
    yield from _sections(lines[at:], at + 1, top)


def _sections(lines: list[str], first: int, top: int) -> Iterator[Region]:
    """Split prose at headings, fences and comments.

    Args:
        lines: The page.
        first: The number of its first line.
        top: The highest heading level that is kept: a skill's title does not describe a part.
    """
    titles: dict[int, str] = {}
    heading = above = ""
    prose: list[str] = []
    started = first
    at = 0
    while at < len(lines):
        line = lines[at]
        fence = _FENCE.match(line) if "`" in line or "~" in line else None
        comment = line.find("<!--") if fence is None else -1
        title = _HEADING.match(line) if fence is None and "#" in line[:7] else None
        if fence is None and comment < 0 and title is None:
            prose.append(line)
            at += 1
            continue
        if comment >= 0:
            prose.append(line[:comment])
        if any(prose):
            text = "\n".join(prose)
            yield from _with_unseen(Region("prose", text, started, heading, above))
            above = text[-_MAX_ABOVE_CHARS:]
        if fence is not None:
            end = _closing(lines, at + 1, fence[1])
            text = "\n".join(lines[at + 1 : end])
            yield Region(_fenced(fence[2].lower()), text, first + at + 1, heading, above)
            at = min(end + 1, len(lines))
            prose, started = [], first + at
        elif comment >= 0:
            end, rest, text = _comment(lines, at, comment)
            yield Region("hidden", text, first + at, heading, above)
            at = end + 1
            prose, started = [rest], first + end
        elif title is not None:
            level = len(title[1])
            titles = {key: words for key, words in titles.items() if key < level}
            titles[level] = title[2].strip()[:200]
            heading = " > ".join(words for key, words in titles.items() if key >= top)
            above = ""
            prose, started = [line], first + at
            at += 1
    if any(prose):
        yield from _with_unseen(Region("prose", "\n".join(prose), started, heading, above))


_UNSEEN = (
    ("]:", "prose", re.compile(
        r"^ {0,3}\[[^\]\n]{1,200}\]:[ \t]{0,9}<?[^\s>]{0,2000}>?[ \t]{1,9}(?:\(([^\n]{8,4000})\)"
        r"|\"([^\"\n]{8,4000})\"|'([^'\n]{8,4000})')[ \t]{0,9}$", re.MULTILINE)),
    ("<", "prose", re.compile(
        r"<\w{1,20}\b[^>\n]{0,200}(?:\bhidden\b|display:\s{0,3}none|visibility:\s{0,3}hidden"
        r"|font-size:\s{0,3}0|opacity:\s{0,3}0\b|color:\s{0,3}(?:#fff|white))[^>\n]{0,200}>([^<]{8,4000})",
        re.IGNORECASE)),
    ("<!--", "data", re.compile(r"<!--([^\0]{8,4000}?)-->")),
    ("<", "data", re.compile(
        r"<(?:desc|title|metadata|text|rdf:li|dc:\w{1,20})\b[^>\n]{0,200}>([^<]{8,4000})",
        re.IGNORECASE)),
)  # fmt: skip
"""Plain word, kind of region, and what only models see of it: titles of link definitions, hidden
elements, comments and descriptions of drawings."""


def _with_unseen(region: Region) -> Iterator[Region]:
    """A region, and the texts in it that only models see."""
    yield region
    hidden: list[Region] = []
    for word, kind, pattern in _UNSEEN:
        if region.kind != kind or word not in region.text:
            continue
        for found in pattern.finditer(region.text):
            text = next(filter(None, found.groups()), "")
            line = region.line + region.text.count("\n", 0, found.start())
            hidden.append(region._replace(kind="hidden", text=text, line=line))
    yield from sorted(hidden, key=lambda part: part.line)


def _closing(lines: list[str], at: int, mark: str) -> int:
    for number in range(at, len(lines)):
        word = lines[number].strip(" \t>")
        if word.startswith(mark) and not word.strip(mark[0]):
            return number
    return len(lines)


def _comment(lines: list[str], at: int, column: int) -> tuple[int, str, str]:
    """(last line, the rest of that line, the comment)."""
    first = lines[at][column + 4 :]
    if "-->" in first:
        hidden, _, rest = first.partition("-->")
        # With more than one comment on a line the whole rest counts as hidden.
        return at, rest.replace("<!--", " "), hidden + (rest if "<!--" in rest else "")
    hidden_lines = [first]
    for number in range(at + 1, len(lines)):
        part, end, rest = lines[number].partition("-->")
        hidden_lines.append(part)
        if end:
            return number, rest.replace("<!--", " "), "\n".join(hidden_lines)
    return len(lines) - 1, "", "\n".join(hidden_lines)


def _fenced(word: str) -> str:
    """The kind of a fence with this language."""
    kind = _KINDS.get(word, "code") if word else "plain"
    return "plain" if kind in {"markdown", "prose"} else kind
