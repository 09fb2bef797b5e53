"""Splits files into regions: prose, commands, code, hidden comments.

The same words mean different things in each: a command in a fence is meant to be run, a comment in
Markdown is visible to models only. Markdown is parsed roughly and line by line in one pass, so that
the time is linear for any text.
"""

from __future__ import annotations

import os
import re
from html import unescape
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

_KIND_SUFFIXES = {
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
_KINDS = {suffix: kind for kind, words in _KIND_SUFFIXES.items() for suffix in words.split()}
"""Suffix of a file, or language of a fence -> kind of region."""
_SHEBANG = re.compile(
    r"#!(?:[^\s#]|[ \t](?!#)){0,80}?"
    r"\b(python|bash|zsh|sh|dash|ksh|fish|node|deno|bun|pwsh|perl|ruby|php)"
)
_INTERPRETERS = {
    "python": "python", "node": "javascript", "deno": "javascript", "bun": "javascript",
    "pwsh": "powershell", "perl": "code", "ruby": "code", "php": "code",
}  # fmt: skip
PROGRAM_KINDS = frozenset(("shell", "powershell", "python", "javascript", "code"))
_PICTURE_SUFFIXES = (
    ".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp", ".tif", ".tiff", ".heic", ".avif", ".ico",
)  # fmt: skip
_FENCE = re.compile(r"[ \t>*+\-\d.]*?(`{3,}|~{3,})[ \t]*\{?\.?([\w+#-]*)")
_COMMENT_START, _COMMENT_END = "<!--", "-->"
_HEADING = re.compile(r" {0,3}(#{1,6})[ \t]+(.*)")
_FRONTMATTER_ENDS = frozenset(("---", "..."))
_MAX_HEADING_CHARS = 200
_MAX_ABOVE_CHARS = 240
_EMPHASIS = re.compile(
    r"(?<![^\s>(])[*_]{1,3}(?=[^\W_])|(?<=[\w.,:;!?`)])[*_]{1,3}(?=[\s.,:;!?)<]|\Z)"
    r"|(?<=[^\W_])\*\*(?=[^\W_])|\\$",
    re.MULTILINE,
)
"""Markup that changes how words look, and not what they say."""
_MAX_PARAGRAPH_CHARS = 4000
_PARAGRAPH_LINE = re.compile(r"[ \t]*(?:>[ \t]*)*+([^\W\d_]|[\"'(`~$\[])")
"""The start of a line that continues a paragraph or a quotation."""
_UNFINISHED_SENTENCE = re.compile(
    r"\b(?:not|never|don['’]?t|to|the|your|and|or|of|from|with|about|all|any|tell|run|send)$",
    re.IGNORECASE,
)
_LIST_ITEM = re.compile(r"[ \t>]*(?:[-*+|]|\d{1,2}[.)])[ \t]+(\w)")
"""The start of an item of a list, which may continue the sentence of the item above it."""
_SOURCE_SUFFIXES = frozenset((
    "sql", "tex", "latex", "m", "r", "make", "makefile", "mk", "cmake", "gradle", "h",
))  # fmt: skip
"""Suffixes of languages whose files an agent rarely runs: they are no programs."""


class _HiddenTextPattern(NamedTuple):
    """A form of text that models see and people do not."""

    word: str
    """A text without this word has no match."""
    kind: str
    """The kind of region in which it is searched."""
    pattern: re.Pattern[str]
    """One of its groups is the hidden text."""


_LINK_TITLE = _HiddenTextPattern("]:", "prose", re.compile(
    r"^ {0,3}\[[^\]\n]{1,200}\]:[ \t]{0,9}<?[^\s>]{0,2000}>?[ \t]{1,9}(?:\(([^\n]{8,4000})\)"
    r"|\"([^\"\n]{8,4000})\"|'([^'\n]{8,4000})')[ \t]{0,9}$", re.MULTILINE))  # fmt: skip
_HIDDEN_ELEMENT = _HiddenTextPattern("<", "prose", re.compile(
    r"<\w{1,20}\b[^>\n]{0,200}(?:\bhidden\b|display:\s{0,3}none|visibility:\s{0,3}hidden"
    r"|font-size:\s{0,3}0|opacity:\s{0,3}0\b|color:\s{0,3}(?:#fff|white))[^>\n]{0,200}>([^<]{8,4000})",
    re.IGNORECASE))  # fmt: skip
_XML_COMMENT = _HiddenTextPattern("<!--", "data", re.compile(r"<!--([^\0]{8,4000}?)-->"))
_DRAWING_TEXT = _HiddenTextPattern("<", "data", re.compile(
    r"<(?:desc|title|metadata|text|rdf:li|dc:\w{1,20})\b[^>\n]{0,200}>([^<]{8,4000})",
    re.IGNORECASE))  # fmt: skip
_HIDDEN_TEXT_PATTERNS = (_LINK_TITLE, _HIDDEN_ELEMENT, _XML_COMMENT, _DRAWING_TEXT)


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

    def line_at(self, position: int) -> int:
        """Return the line of the file at a position in the text."""
        return self.line + self.text.count("\n", 0, position)


def detect_kind(path: str, start: str) -> str:
    """Return the kind of a file by its name, else by its first line; `prose` by default."""
    return detect_known_kind(path, start) or "prose"


def detect_known_kind(path: str, start: str) -> str:
    """Return the same as `detect_kind`; empty when neither name nor first line tells the kind."""
    name = os.path.basename(path).lower()
    stem, suffix = os.path.splitext(name)
    kind = _KINDS.get(suffix[1:] if suffix else stem)
    return detect_interpreter_kind(start) if kind is None else kind


def detect_interpreter_kind(start: str) -> str:
    """Return the kind of program that the first line names; empty when it names none."""
    match = _SHEBANG.match(start)
    return _INTERPRETERS.get(match[1], "shell") if match else ""


def is_program_file(path: str, kind: str) -> bool:
    """Whether a file is a program."""
    suffix = os.path.splitext(path)[1].lower()[1:] or os.path.basename(path).lower()
    return kind in PROGRAM_KINDS and suffix not in _SOURCE_SUFFIXES


def split_regions(path: str, text: str) -> Iterator[Region]:
    """Split a file into its regions."""
    kind = detect_kind(path, text[:200])
    if path == "skill.yaml":
        yield Region("front", text, 1)  # sent to models, as frontmatter is
    elif kind == "markdown":
        yield from _split_markdown(path, text)
    elif kind == "prose":
        if path.lower().endswith(_PICTURE_SUFFIXES):
            yield Region("hidden", text, 1)  # the text is its metadata
        is_package_list = "require" in path or "constraint" in path
        yield from _ProseSplitter(text.split("\n"), keeps_lines=is_package_list).split()
    else:
        yield from _add_hidden_texts(Region(kind, text, 1, script=kind in PROGRAM_KINDS))


def _split_markdown(path: str, text: str) -> Iterator[Region]:
    lines = text.split("\n")
    body_start = 0
    if lines[0].lstrip("\ufeff").rstrip() == "---":
        end = next((n for n in range(1, len(lines)) if lines[n].rstrip() in _FRONTMATTER_ENDS), 0)
        if end:
            yield Region("front", "\n".join(lines[1:end]), 2)
            body_start = end + 1
    # The title of a skill describes all of it, not a part.
    top_level = 2 if os.path.basename(path).lower() == "skill.md" else 1
    yield from _ProseSplitter(
        lines[body_start:], first_line=body_start + 1, top_level=top_level
    ).split()


class _ProseSplitter:
    """Splits prose at headings, fences and comments."""

    def __init__(
        self,
        lines: list[str],
        *,
        first_line: int = 1,
        top_level: int = 1,
        keeps_lines: bool = False,
    ) -> None:
        """Prepare the split of a page.

        Args:
            lines: The page.
            first_line: The number of its first line in the file.
            top_level: The highest heading level that counts as a heading of regions.
            keeps_lines: Whether the lines of a paragraph are not joined.
        """
        self._lines = lines
        self._first_line = first_line
        self._top_level = top_level
        self._keeps_lines = keeps_lines
        self._titles: dict[int, str] = {}
        """Heading level -> the current heading."""
        self._heading = ""
        self._above = ""
        self._prose: list[str] = []
        self._prose_index = 0
        """The index of the first line of `_prose`."""

    def split(self) -> Iterator[Region]:
        """Split the page into regions."""
        index = 0
        while index < len(self._lines):
            line = self._lines[index]
            if fence := _match_fence(line):
                yield from self._finish_prose()
                end = _find_fence_end(self._lines, index + 1, fence[1])
                code = "\n".join(self._lines[index + 1 : end])
                yield self._make_region(_detect_fence_kind(fence[2]), code, index + 1)
                index = min(end + 1, len(self._lines))
                self._start_prose(index)
            elif _COMMENT_START in line:
                before, _, _ = line.partition(_COMMENT_START)
                self._prose.append(before)
                yield from self._finish_prose()
                comment = _read_comment(self._lines, index)
                yield self._make_region("hidden", comment.text, index)
                self._start_prose(comment.last_index, comment.remainder)
                index = comment.last_index + 1
            elif heading := _match_heading(line):
                yield from self._finish_prose()
                self._enter_section(len(heading[1]), heading[2])
                self._start_prose(index, line)
                index += 1
            else:
                self._prose.append(line)
                index += 1
        yield from self._finish_prose()

    def _start_prose(self, index: int, *lines: str) -> None:
        self._prose = [*lines]
        self._prose_index = index

    def _finish_prose(self) -> Iterator[Region]:
        """Return the regions of the prose that was read, unless it is empty."""
        if any(self._prose):
            text = "\n".join(self._prose) if self._keeps_lines else _join_paragraphs(self._prose)
            yield from _add_hidden_texts(self._make_region("prose", text, self._prose_index))
            self._above = text[-_MAX_ABOVE_CHARS:]

    def _make_region(self, kind: str, text: str, index: int) -> Region:
        line = self._first_line + index
        return Region(kind, text, line, heading=self._heading, above=self._above)

    def _enter_section(self, level: int, title: str) -> None:
        self._titles = {key: outer for key, outer in self._titles.items() if key < level}
        self._titles[level] = title.strip()[:_MAX_HEADING_CHARS]
        self._heading = " > ".join(
            title for key, title in self._titles.items() if key >= self._top_level
        )
        self._above = ""


def _match_fence(line: str) -> re.Match[str] | None:
    return _FENCE.match(line) if "`" in line or "~" in line else None


def _match_heading(line: str) -> re.Match[str] | None:
    return _HEADING.match(line) if "#" in line[:7] else None


def _join_paragraphs(lines: list[str]) -> str:
    """Return prose without emphasis, and with each paragraph in its first line.

    Empty lines take the place of the others, so that what follows keeps its line number.
    """
    text = "\n".join(lines)
    if "&" in text:
        text = unescape(text).replace("\xa0", " ")
    if "*" in text or "_" in text or "\\" in text:
        text = _EMPHASIS.sub("", text)
    parts: list[str] = []
    joined_lines = paragraph_chars = 0
    for line in text.split("\n"):
        continuation = None
        if 0 < paragraph_chars < _MAX_PARAGRAPH_CHARS:
            continuation = _PARAGRAPH_LINE.match(line)
        if continuation is None and parts and (item := _LIST_ITEM.match(line)):
            continuation = item if _UNFINISHED_SENTENCE.search(parts[-1]) else None
        if continuation:
            parts += (" ", line[continuation.start(1) :].rstrip())
            joined_lines += 1
            paragraph_chars += len(line)
        else:
            parts += ("\n" * (joined_lines + 1), line.rstrip())
            joined_lines = 0
            paragraph_chars = len(line.strip(" \t>"))
    return "".join(parts[1:]) + "\n" * joined_lines


def _add_hidden_texts(region: Region) -> Iterator[Region]:
    """Return a region, and regions for the texts in it that only models see."""
    yield region
    hidden: list[Region] = []
    for word, kind, pattern in _HIDDEN_TEXT_PATTERNS:
        if region.kind != kind or word not in region.text:
            continue
        for match in pattern.finditer(region.text):
            text = next(filter(None, match.groups()), "")
            line = region.line_at(match.start())
            hidden.append(region._replace(kind="hidden", text=text, line=line))
    yield from sorted(hidden, key=lambda part: part.line)


def _find_fence_end(lines: list[str], start: int, opening: str) -> int:
    """Return the index of the line that closes a fence, or the number of lines."""
    for index in range(start, len(lines)):
        line = lines[index].strip(" \t>")
        if line.startswith(opening) and not line.strip(opening[0]):
            return index
    return len(lines)


class _Comment(NamedTuple):
    text: str
    last_index: int
    """The index of its last line."""
    remainder: str
    """The text after it, in its last line."""


def _read_comment(lines: list[str], index: int) -> _Comment:
    """Read the comment that begins in a line."""
    _, _, first_line = lines[index].partition(_COMMENT_START)
    if _COMMENT_END in first_line:
        text, _, remainder = first_line.partition(_COMMENT_END)
        if _COMMENT_START in remainder:
            text += remainder  # With more than one comment on a line, all of its end is hidden.
        return _Comment(text, index, remainder.replace(_COMMENT_START, " "))
    comment_lines = [first_line]
    for last_index in range(index + 1, len(lines)):
        line, end, remainder = lines[last_index].partition(_COMMENT_END)
        comment_lines.append(line)
        if end:
            remainder = remainder.replace(_COMMENT_START, " ")
            return _Comment("\n".join(comment_lines), last_index, remainder)
    return _Comment("\n".join(comment_lines), len(lines) - 1, "")


def _detect_fence_kind(language: str) -> str:
    """Return the kind of a fence with this language."""
    kind = _KINDS.get(language.lower(), "code") if language else "plain"
    return "plain" if kind in {"markdown", "prose"} else kind
