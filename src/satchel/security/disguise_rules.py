"""Disguises: code joined from pieces, packages that look like others, tools with a well-known name.

Plain words decide first, so that a text without an install command or a `join` costs nothing. All
patterns are bounded.
"""

from __future__ import annotations

import os
import re
import tomllib
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from satchel.security.report import MAX_EVIDENCE_CHARS, Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from satchel.security.regions import Region

_STRING_LITERAL = r"""(?:"(?:[^"\\\n]|\\.){0,200}"|'(?:[^'\\\n]|\\.){0,200}'|`[^`\\\n$]{0,200}`)"""
_LITERAL_PATTERN = re.compile(_STRING_LITERAL)
_CONCATENATION = re.compile(rf"{_STRING_LITERAL}(?:\s{{0,9}}\+\s{{0,9}}{_STRING_LITERAL}){{1,60}}")
_JOINED_LIST = re.compile(
    rf"\[\s{{0,9}}({_STRING_LITERAL}(?:\s{{0,9}},\s{{0,9}}{_STRING_LITERAL}){{1,80}})\s{{0,9}},?\s{{0,9}}\]"
    rf"((?:\.reverse\(\))?)\s{{0,9}}\.join\(\s{{0,9}}({_STRING_LITERAL})?\s{{0,9}}\)"
)
_SPLIT_AND_JOINED = re.compile(
    rf"({_STRING_LITERAL})\s{{0,9}}\.split\(\s{{0,9}}({_STRING_LITERAL})\s{{0,9}}\)((?:\.reverse\(\))?)"
    rf"\s{{0,9}}\.join\(\s{{0,9}}({_STRING_LITERAL})?\s{{0,9}}\)"
)
_CHARACTER_CODES = re.compile(
    r"(?:\b(?:\d{2,3}|0x[0-9a-f]{2})\s{0,9},\s{0,9}){3,400}(?:\d{2,3}|0x[0-9a-f]{2})\b"
)
_CHARACTER_ESCAPES = re.compile(r"(?:\\x[0-9a-fA-F]{2}|\\u00[0-9a-fA-F]{2}){4,400}")
_SHORT_VARIABLE = re.compile(
    r"""(?:\b(?:const|let|var)\s{1,3}|,\s{0,3})(\w{1,30})\s{0,3}=\s{0,3}"""
    r"""("[^"\\\n]{1,24}"|'[^'\\\n]{1,24}')"""
)
_LIST_VARIABLE = re.compile(
    rf"\b(?:const|let|var)\s{{1,3}}(\w{{1,30}})\s{{0,3}}=\s{{0,3}}"
    rf"(\[\s{{0,9}}{_STRING_LITERAL}(?:\s{{0,9}},\s{{0,9}}{_STRING_LITERAL}){{1,80}}\s{{0,9}}\])"
)
_JOINING_WORDS = ("join(", "+", "fromCharCode", "fromCodePoint", "\\x", "\\u00", "${")
_MAX_INSERTED_VARIABLES = 40
"""Variables with short texts, and with lists, that are inserted where they are used."""
_TEMPLATE_TEXT = re.compile(r"""\$\{\s{0,3}["']([^"'\n]{1,24})["']\s{0,3}\}""")
_DANGEROUS_NAME = re.compile(
    r"child_process|execsync|execfile|spawnsync|\bspawn\b|\brequire\b|\beval\b|\bconstructor\b"
    r"|\bmainmodule\b|process\.env|/bin/(?:ba|z)?sh|\bcurl\b|\bwget\b|powershell|cmd\.exe|\bexec\b"
    r"|invoke-expression|\bprocess\b|\bglobalthis\b|\bfunction\b\s*\(|\bfromcharcode\b|\batob\b|\|\s*(?:ba)?sh\b"
)

_MANIFEST_NAMES = frozenset(("package.json", "pyproject.toml", "Pipfile", "requirements.txt"))
_INSTALL_COMMAND = re.compile(
    r"(?<![\w-])(?:(?:pip[23]?|uv|pipx|poetry|pdm)\s{1,3}(?:pip\s{1,3}|tool\s{1,3})?(?:install|add)"
    r"|(uvx)|(npm|pnpm|yarn|bun)\s{1,3}(?:install|add|i)|(npx|bunx))\s{1,3}([^\n;&|`#)]{2,400})"
)
_INSTALLER_WORDS = (
    "pip", "uv ", "uvx ", "poetry ", "pdm ", "npm ", "npx ", "yarn ", "bun ", "bunx ",
)  # fmt: skip
_PACKAGE_NAME = re.compile(
    r"['\"]?([A-Za-z][\w.-]{2,60})(?:\[[\w,-]{1,60}\])?(?:[<>=~!@^][^\s'\"]{0,60})?['\"]?[,.]?"
)
_REQUIREMENT_LINE = re.compile(r"^([A-Za-z][\w.-]{2,60})(?=\s*(?:$|[<>=~!\[;#]))", re.MULTILINE)
_NODE_DEPENDENCY = re.compile(r'"([a-z][\w.-]{2,60})"\s{0,9}:\s{0,9}"[~^>=]{0,2}(?:\d|\*|latest)')
_QUOTED_PACKAGE = re.compile(
    r"""["']([A-Za-z][\w.-]{2,60})(?:\[[\w,-]{1,60}\])?\s{0,3}(?:[<>=~!]=|["'])"""
)
_SENTENCE_WORDS = frozenset((
    "and", "or", "to", "then", "for", "if", "in", "with", "from", "the", "on", "as", "is",
))  # fmt: skip
_SEPARATORS = re.compile(r"[-_.]+")
_MIN_CHANGED_CHARS = 6
"""Shorter names have too many honest neighbours."""

_TOOL_NAME = re.compile(r"^[ \t-]{0,12}name:[ \t]{0,4}['\"]?([A-Za-z][\w-]{1,40})", re.MULTILINE)
_BUILT_IN_TOOLS = frozenset((
    "read", "write", "edit", "bash", "grep", "glob", "ls", "task", "skill", "shell", "terminal",
    "webfetch", "websearch", "todowrite", "multiedit", "notebookedit", "readfile", "writefile",
    "editfile", "runscript", "runcommand", "executecommand", "killshell", "bashoutput",
    "applypatch", "strreplaceeditor", "askuserquestion", "exitplanmode", "webbrowser", "python",
))  # fmt: skip


def find_disguises(path: str, region: Region) -> Iterator[Finding]:
    """Find the disguises in a region of a file."""
    if region.kind in {"javascript", "decoded"} or region.kind == "code":
        yield from _find_joined_code(path, region)
    if region.kind != "data" or os.path.basename(path) in _MANIFEST_NAMES:
        yield from _find_lookalikes(path, region)
    if os.path.basename(path) == "skill.yaml":
        yield from _find_shadowed_tools(path, region)


# --- code joined from pieces ---------------------------------------------------------------
# `"chi" + "ld_process"` has one purpose: that no search finds it. The pieces are joined as the
# program would join them, and the result is searched for names that start or fetch programs.


def _find_joined_code(path: str, region: Region) -> Iterator[Finding]:
    text = region.text
    if not any(word in text for word in _JOINING_WORDS):
        return
    for joined in _find_joined_texts(_insert_variables(text)):
        match = _DANGEROUS_NAME.search(joined.text.lower())
        if match and not any(match.group() in piece.lower() for piece in joined.pieces):
            line = region.line_at(joined.position)
            yield Finding("joins-pieces", path, line, joined.text[:MAX_EVIDENCE_CHARS])
            return


def _insert_variables(text: str) -> str:
    """Return a program with the short texts of its variables in their place."""
    values = dict(_SHORT_VARIABLE.findall(text)[:_MAX_INSERTED_VARIABLES])
    if values:
        names = "|".join(map(re.escape, values))
        used = re.compile(rf"(?<=[+\[(,{{])(\s{{0,3}})({names})(?=\s{{0,3}}[+\]),}}])")
        text = used.sub(lambda match: match[1] + values[match[2]], text)
    lists = dict(_LIST_VARIABLE.findall(text)[:_MAX_INSERTED_VARIABLES])
    if lists:
        names = "|".join(map(re.escape, lists))
        used = re.compile(rf"\b({names})(?=(?:\.reverse\(\))?\.join\()")
        text = used.sub(lambda match: lists[match[1]], text)
    return text


class _JoinedText(NamedTuple):
    position: int
    pieces: list[str]
    text: str


def _find_joined_texts(text: str) -> Iterator[_JoinedText]:
    """Find the texts that a program joins from pieces."""
    if "+" in text:
        for match in _CONCATENATION.finditer(text):
            pieces = [_unquote(literal) for literal in _LITERAL_PATTERN.findall(match.group())]
            yield _JoinedText(match.start(), pieces, "".join(pieces))
    if "join(" in text:
        yield from _find_joined_lists(text)
    yield from _decode_character_codes(text)
    if "${" in text and (expanded := _TEMPLATE_TEXT.sub(r"\1", text)) != text:
        for match in _LITERAL_PATTERN.finditer(expanded):
            if match.group() not in text:
                yield _JoinedText(match.start(), [text], _unquote(match.group()))


def _find_joined_lists(text: str) -> Iterator[_JoinedText]:
    """Find lists of texts, and texts split into lists, that are joined."""
    for match in _JOINED_LIST.finditer(text):
        items, reverse, separator = match.groups()
        pieces = [_unquote(literal) for literal in _LITERAL_PATTERN.findall(items)]
        ordered = pieces[::-1] if reverse else pieces
        yield _JoinedText(match.start(), pieces, _unquote(separator).join(ordered))
    for match in _SPLIT_AND_JOINED.finditer(text):
        original, split_at, reverse, separator = match.groups()
        original, split_at = _unquote(original), _unquote(split_at)
        pieces = original.split(split_at) if split_at else [*original]
        ordered = pieces[::-1] if reverse else pieces
        yield _JoinedText(match.start(), [original], _unquote(separator).join(ordered))


def _decode_character_codes(text: str) -> Iterator[_JoinedText]:
    """Return the texts that are written as the codes of their characters."""
    if "from" in text:
        for match in _CHARACTER_CODES.finditer(text):
            codes = [int(code.strip(), 0) for code in match.group().split(",")]
            if all(9 <= code < 127 for code in codes):
                yield _JoinedText(match.start(), [], "".join(map(chr, codes)))
    if "\\x" in text or "\\u00" in text:
        for match in _CHARACTER_ESCAPES.finditer(text):
            codes = re.findall(r"\\(?:x|u00)(..)", match.group())
            yield _JoinedText(match.start(), [], "".join(chr(int(code, 16)) for code in codes))


def _unquote(literal: str | None) -> str:
    """Return the text of a literal; a `join` without argument puts a comma between the pieces."""
    return literal[1:-1] if literal else ","


# --- packages that look like others --------------------------------------------------------
# A typosquat differs by one letter or a separator from a package that everyone knows.


class _Package(NamedTuple):
    position: int
    name: str
    language: str
    """`python` or `node`."""


@cache
def _load_well_known(language: str) -> frozenset[str]:
    with open(os.path.join(os.path.dirname(__file__), "packages.toml"), "rb") as file:
        return frozenset(tomllib.load(file)[language].split())


def _find_lookalikes(path: str, region: Region) -> Iterator[Finding]:
    checked_names: set[str] = set()
    for position, name, language in _find_packages(path, region):
        if name in checked_names:
            continue
        checked_names.add(name)
        similar = find_similar_package(name, language)
        if similar:
            evidence = f"{name}: {similar}?"
            yield Finding("lookalike-package", path, region.line_at(position), evidence)


def _find_packages(path: str, region: Region) -> Iterator[_Package]:
    """Find the packages that are installed or required."""
    text = region.text
    manifest = _select_manifest_pattern(os.path.basename(path))
    if manifest is not None:
        pattern, language = manifest
        for match in pattern.finditer(text):
            yield _Package(match.start(), match[1], language)
        return
    if "# /// script" in text:
        block = text[text.index("# /// script") :].partition("\n# ///\n")[0]
        for match in _QUOTED_PACKAGE.finditer(block):
            yield _Package(0, match[1], "python")
    if any(word in text for word in _INSTALLER_WORDS):
        yield from _find_installed_packages(text)


def _select_manifest_pattern(file_name: str) -> tuple[re.Pattern[str], str] | None:
    """Return how a manifest lists packages, and the language; None for other files."""
    if file_name == "package.json":
        return _NODE_DEPENDENCY, "node"
    if file_name == "pyproject.toml":
        return _QUOTED_PACKAGE, "python"
    if file_name in _MANIFEST_NAMES or (
        file_name.startswith("requirements") and file_name.endswith((".txt", ".in"))
    ):
        return _REQUIREMENT_LINE, "python"
    return None


def _find_installed_packages(text: str) -> Iterator[_Package]:
    """Find the packages in the commands that install them."""
    for install in _INSTALL_COMMAND.finditer(text):
        language = "node" if install[2] or install[3] else "python"
        words = install[4].split()[: 2 if install[1] or install[3] else None]
        for word in words:
            if word in _SENTENCE_WORDS:
                break
            name = _PACKAGE_NAME.fullmatch(word)
            if name:
                yield _Package(install.start(), name[1].rstrip("."), language)


def find_similar_package(name: str, language: str) -> str:
    """Return the well-known package that a name is almost equal to; nothing for an honest name."""
    well_known = _load_well_known(language)
    name = name.lower()
    normalised = _SEPARATORS.sub("-", name) if language == "python" else name
    if normalised in well_known or name in well_known:
        return ""
    letters = _SEPARATORS.sub("", name)
    stem = re.sub(r"(?:\.js|-js)$", "", name)
    if language == "node" and stem != name and stem in well_known:
        return stem
    for other in well_known:
        if abs(len(other) - len(normalised)) > 1 or len(other) < 4:
            continue
        if _SEPARATORS.sub("", other) == letters or _is_typo(normalised, other):
            return other
    return ""


def _is_typo(name: str, other: str) -> bool:
    """Whether a name is another one with one letter added, left out, changed or swapped."""
    position = next((n for n, (a, b) in enumerate(zip(name, other, strict=False)) if a != b), -1)
    if position < 0:
        position = min(len(name), len(other))
    if len(name) == len(other):
        return _is_swap(name, other, position) or _is_change(name, other, position)
    longer, shorter = (name, other) if len(name) > len(other) else (other, name)
    return _is_addition(longer, shorter, position)


def _is_swap(name: str, other: str, position: int) -> bool:
    """Whether two neighbouring letters are swapped."""
    end = position + 2
    swapped = name[position:end] == other[position:end][::-1] and name[end:] == other[end:]
    return swapped and position + 1 < len(name)


def _is_change(name: str, other: str, position: int) -> bool:
    """Whether one letter is another one."""
    if name[position + 1 :] != other[position + 1 :] or other[position].isdigit():
        return False
    return len(name) >= _MIN_CHANGED_CHARS


def _is_addition(longer: str, shorter: str, position: int) -> bool:
    """Whether one letter is added."""
    letter = longer[position]
    if longer[position + 1 :] != shorter[position:] or letter.isdigit():
        return False
    if position > 0 and letter == longer[position - 1]:
        return True
    return len(shorter) >= _MIN_CHANGED_CHARS and letter.isalpha()


# --- tools with a well-known name ----------------------------------------------------------


def _find_shadowed_tools(path: str, region: Region) -> Iterator[Finding]:
    for match in _TOOL_NAME.finditer(region.text):
        if re.sub(r"[-_]", "", match[1].lower()) in _BUILT_IN_TOOLS:
            yield Finding("shadows-tool", path, region.line_at(match.start()), match[1])
            return
