"""Disguises: code joined from pieces, packages that look like others, tools with a well-known name.

Plain words decide first, so that a text without an install command or a `join` costs nothing. All
patterns are bounded.
"""

from __future__ import annotations

import os
import re
from functools import cache
from typing import TYPE_CHECKING

from satchel.security.report import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from satchel.security.regions import Region


def find_disguises(path: str, region: Region) -> Iterator[Finding]:
    """The disguises in a region of a file."""
    if region.kind in {"javascript", "decoded"} or region.kind == "code":
        yield from _pieced(path, region)
    if region.kind != "data" or os.path.basename(path) in _MANIFESTS:
        yield from _lookalikes(path, region)
    if os.path.basename(path) == "skill.yaml":
        yield from _shadows(path, region)


# --- code joined from pieces ---------------------------------------------------------------
# `"chi" + "ld_process"` has one purpose: that no search finds it. The pieces are joined as the
# program would join them, and the result is searched for names that start or fetch programs.

_TEXT = r"""(?:"(?:[^"\\\n]|\\.){0,200}"|'(?:[^'\\\n]|\\.){0,200}'|`[^`\\\n$]{0,200}`)"""
_LITERAL = re.compile(_TEXT)
_SUM = re.compile(rf"{_TEXT}(?:\s{{0,9}}\+\s{{0,9}}{_TEXT}){{1,60}}")
_LIST = re.compile(
    rf"\[\s{{0,9}}({_TEXT}(?:\s{{0,9}},\s{{0,9}}{_TEXT}){{1,80}})\s{{0,9}},?\s{{0,9}}\]"
    rf"((?:\.reverse\(\))?)\s{{0,9}}\.join\(\s{{0,9}}({_TEXT})?\s{{0,9}}\)"
)
_SPLIT = re.compile(
    rf"({_TEXT})\s{{0,9}}\.split\(\s{{0,9}}({_TEXT})\s{{0,9}}\)((?:\.reverse\(\))?)"
    rf"\s{{0,9}}\.join\(\s{{0,9}}({_TEXT})?\s{{0,9}}\)"
)
_NUMBERS = re.compile(
    r"(?:\b(?:\d{2,3}|0x[0-9a-f]{2})\s{0,9},\s{0,9}){3,400}(?:\d{2,3}|0x[0-9a-f]{2})\b"
)
_ESCAPES = re.compile(r"(?:\\x[0-9a-fA-F]{2}|\\u00[0-9a-fA-F]{2}){4,400}")
_SHORT = re.compile(
    r"""(?:\b(?:const|let|var)\s{1,3}|,\s{0,3})(\w{1,30})\s{0,3}=\s{0,3}"""
    r"""("[^"\\\n]{1,24}"|'[^'\\\n]{1,24}')"""
)

_NAMED_LIST = re.compile(
    rf"\b(?:const|let|var)\s{{1,3}}(\w{{1,30}})\s{{0,3}}=\s{{0,3}}"
    rf"(\[\s{{0,9}}{_TEXT}(?:\s{{0,9}},\s{{0,9}}{_TEXT}){{1,80}}\s{{0,9}}\])"
)
_MAX_SHORT = 40
"""Names of short texts and lists that are inserted where they are used."""
_TEMPLATE = re.compile(r"""\$\{\s{0,3}["']([^"'\n]{1,24})["']\s{0,3}\}""")
_TELLING = re.compile(
    r"child_process|execsync|execfile|spawnsync|\bspawn\b|\brequire\b|\beval\b|\bconstructor\b"
    r"|\bmainmodule\b|process\.env|/bin/(?:ba|z)?sh|\bcurl\b|\bwget\b|powershell|cmd\.exe|\bexec\b"
    r"|invoke-expression|\bprocess\b|\bglobalthis\b|\bfunction\b\s*\(|\bfromcharcode\b|\batob\b|\|\s*(?:ba)?sh\b"
)


def _pieced(path: str, region: Region) -> Iterator[Finding]:
    text = region.text
    if not any(
        word in text
        for word in ("join(", "+", "fromCharCode", "fromCodePoint", "\\x", "\\u00", "${")
    ):
        return
    for start, pieces, joined in _joined(_with_values(text)):
        found = _TELLING.search(joined.lower())
        if found and not any(found.group() in piece.lower() for piece in pieces):
            line = region.line + text.count("\n", 0, start)
            yield Finding("joins-pieces", path, line, joined[:160])
            return


def _with_values(text: str) -> str:
    """A program with the short texts of its variables in their place."""
    values = dict(_SHORT.findall(text)[:_MAX_SHORT])
    if values:
        names = "|".join(map(re.escape, values))
        used = re.compile(rf"(?<=[+\[(,{{])(\s{{0,3}})({names})(?=\s{{0,3}}[+\]),}}])")
        text = used.sub(lambda found: found[1] + values[found[2]], text)
    lists = dict(_NAMED_LIST.findall(text)[:_MAX_SHORT])
    if lists:
        names = "|".join(map(re.escape, lists))
        used = re.compile(rf"\b({names})(?=(?:\.reverse\(\))?\.join\()")
        text = used.sub(lambda found: lists[found[1]], text)
    return text


def _joined(text: str) -> Iterator[tuple[int, list[str], str]]:
    """Where a text is joined from pieces, the pieces, and the result."""
    if "+" in text:
        for found in _SUM.finditer(text):
            pieces = [_inner(part) for part in _LITERAL.findall(found.group())]
            yield found.start(), pieces, "".join(pieces)
    if "join(" in text:
        for found in _LIST.finditer(text):
            pieces = [_inner(part) for part in _LITERAL.findall(found[1])]
            yield found.start(), pieces, _inner(found[3]).join(pieces[:: -1 if found[2] else 1])
        for found in _SPLIT.finditer(text):
            whole, between = _inner(found[1]), _inner(found[2])
            parts = whole.split(between) if between else [*whole]
            yield found.start(), [whole], _inner(found[4]).join(parts[:: -1 if found[3] else 1])
    yield from _decoded_codes(text)
    if "${" in text and (whole := _TEMPLATE.sub(r"\1", text)) != text:
        for found in _LITERAL.finditer(whole):
            if found.group() not in text:
                yield found.start(), [text], _inner(found.group())


def _decoded_codes(text: str) -> Iterator[tuple[int, list[str], str]]:
    """The texts that are written as the codes of their characters."""
    if "from" in text:
        for found in _NUMBERS.finditer(text):
            codes = [int(part.strip(), 0) for part in found.group().split(",")]
            if all(9 <= code < 127 for code in codes):
                yield found.start(), [], "".join(map(chr, codes))
    if "\\x" in text or "\\u00" in text:
        for found in _ESCAPES.finditer(text):
            codes = re.findall(r"\\(?:x|u00)(..)", found.group())
            yield found.start(), [], "".join(chr(int(code, 16)) for code in codes)


def _inner(literal: str | None) -> str:
    """The text of a literal; a `join` without argument puts a comma between the pieces."""
    return literal[1:-1] if literal else ","


# --- packages that look like others --------------------------------------------------------
# A typosquat differs by one letter or a separator from a package that everyone knows.


@cache
def _well_known(language: str) -> frozenset[str]:
    import tomllib

    with open(os.path.join(os.path.dirname(__file__), "packages.toml"), "rb") as file:
        return frozenset(tomllib.load(file)[language].split())


_MANIFESTS = frozenset(("package.json", "pyproject.toml", "Pipfile", "requirements.txt"))
_INSTALLS = re.compile(
    r"(?<![\w-])(?:(?:pip[23]?|uv|pipx|poetry|pdm)\s{1,3}(?:pip\s{1,3}|tool\s{1,3})?(?:install|add)"
    r"|(uvx)|(npm|pnpm|yarn|bun)\s{1,3}(?:install|add|i)|(npx|bunx))\s{1,3}([^\n;&|`#)]{2,400})"
)
_NAME = re.compile(
    r"['\"]?([A-Za-z][\w.-]{2,60})(?:\[[\w,-]{1,60}\])?(?:[<>=~!@^][^\s'\"]{0,60})?['\"]?[,.]?"
)
_REQUIREMENT = re.compile(r"^([A-Za-z][\w.-]{2,60})(?=\s*(?:$|[<>=~!\[;#]))", re.MULTILINE)
_DEPENDENCY = re.compile(r'"([a-z][\w.-]{2,60})"\s{0,9}:\s{0,9}"[~^>=]{0,2}(?:\d|\*|latest)')
_QUOTED = re.compile(r"""["']([A-Za-z][\w.-]{2,60})(?:\[[\w,-]{1,60}\])?\s{0,3}(?:[<>=~!]=|["'])""")
_ENDS = frozenset((
    "and", "or", "to", "then", "for", "if", "in", "with", "from", "the", "on", "as", "is",
))  # fmt: skip
_SEPARATORS = re.compile(r"[-_.]+")
_MIN_CHANGED_CHARS = 6
"""Shorter names have too many honest neighbours."""


def _lookalikes(path: str, region: Region) -> Iterator[Finding]:
    seen: set[str] = set()
    for start, name, language in _packages(path, region):
        if name in seen:
            continue
        seen.add(name)
        other = similar_package(name, language)
        if other:
            line = region.line + region.text.count("\n", 0, start)
            yield Finding("lookalike-package", path, line, f"{name}: {other}?")


def _packages(path: str, region: Region) -> Iterator[tuple[int, str, str]]:
    """Where packages are installed or required, their names, and the language."""
    text = region.text
    base = os.path.basename(path)
    if base == "package.json":
        yield from ((found.start(), found[1], "node") for found in _DEPENDENCY.finditer(text))
        return
    if base in _MANIFESTS or (base.startswith("requirements") and base.endswith((".txt", ".in"))):
        pattern = _QUOTED if base == "pyproject.toml" else _REQUIREMENT
        yield from ((found.start(), found[1], "python") for found in pattern.finditer(text))
        return
    if "# /// script" in text:
        block = text[text.index("# /// script") :].partition("\n# ///\n")[0]
        yield from ((0, found[1], "python") for found in _QUOTED.finditer(block))
    if not any(word in text for word in _WORDS):
        return
    for found in _INSTALLS.finditer(text):
        language = "node" if found[2] or found[3] else "python"
        words = found[4].split()[: 2 if found[1] or found[3] else None]
        for word in words:
            if word in _ENDS:
                break
            name = _NAME.fullmatch(word)
            if name:
                yield found.start(), name[1].rstrip("."), language


_WORDS = ("pip", "uv ", "uvx ", "poetry ", "pdm ", "npm ", "npx ", "yarn ", "bun ", "bunx ")


def similar_package(name: str, language: str) -> str:
    """The well-known package that a name is almost equal to; nothing for an honest name."""
    known = _well_known(language)
    name = name.lower()
    plain = _SEPARATORS.sub("-", name) if language == "python" else name
    if plain in known or name in known:
        return ""
    bare = _SEPARATORS.sub("", name)
    stem = re.sub(r"(?:\.js|-js)$", "", name)
    if language == "node" and stem != name and stem in known:
        return stem
    for other in known:
        if abs(len(other) - len(plain)) > 1 or len(other) < 4:
            continue
        if _SEPARATORS.sub("", other) == bare or _is_slip(plain, other):
            return other
    return ""


def _is_slip(name: str, other: str) -> bool:
    """Whether a name is another one with one letter added, left out, changed or swapped."""
    at = next((n for n, (a, b) in enumerate(zip(name, other, strict=False)) if a != b), -1)
    if at < 0:
        at = min(len(name), len(other))
    long_enough = min(len(name), len(other)) >= _MIN_CHANGED_CHARS
    if len(name) == len(other):
        swapped = (
            name[at : at + 2] == other[at : at + 2][::-1] and name[at + 2 :] == other[at + 2 :]
        )
        changed = name[at + 1 :] == other[at + 1 :] and not other[at].isdigit()
        return (swapped and at + 1 < len(name)) or (changed and long_enough)
    longer, shorter = (name, other) if len(name) > len(other) else (other, name)
    if longer[at + 1 :] != shorter[at:] or longer[at].isdigit():
        return False
    doubled = at > 0 and longer[at] == longer[at - 1]
    return doubled or (long_enough and longer[at].isalpha())


# --- tools with a well-known name ----------------------------------------------------------

_TOOL_NAME = re.compile(r"^[ \t-]{0,12}name:[ \t]{0,4}['\"]?([A-Za-z][\w-]{1,40})", re.MULTILINE)
_BUILT_IN_TOOLS = frozenset((
    "read", "write", "edit", "bash", "grep", "glob", "ls", "task", "skill", "shell", "terminal",
    "webfetch", "websearch", "todowrite", "multiedit", "notebookedit", "readfile", "writefile",
    "editfile", "runscript", "runcommand", "executecommand", "killshell", "bashoutput",
    "applypatch", "strreplaceeditor", "askuserquestion", "exitplanmode", "webbrowser", "python",
))  # fmt: skip


def _shadows(path: str, region: Region) -> Iterator[Finding]:
    for found in _TOOL_NAME.finditer(region.text):
        if re.sub(r"[-_]", "", found[1].lower()) in _BUILT_IN_TOOLS:
            line = region.line + region.text.count("\n", 0, found.start())
            yield Finding("shadows-tool", path, line, found[1])
            return
