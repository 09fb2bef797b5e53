"""Finds the files that the body of a skill refers to and its folder lacks."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote

from satchel.skill.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from satchel.skill.document import SkillDocument

_MENTION_SIGNS = ("](", "references/", "scripts/", "assets/")
"""Part of what `_LINK_TARGET`, `_BACKTICK_PATH`, `_FILE_TO_USE` and `_SCRIPT_COMMAND` match."""
_MENTION_OR_FENCE = re.compile("|".join(map(re.escape, (*_MENTION_SIGNS, "```", "~~~"))))
_LINK_TARGET = re.compile(r"""\]\(\s*<?([^()<>\s]{1,400})>?(?:\s+["'][^()]*)?\)""")
"""Target of a Markdown link."""
_BACKTICK_PATH = re.compile(r"`((?:references|scripts|assets)/[^`\s]+)(?:\s[^`]*)?`")
"""A path in backticks into one of a skill's own folders."""
_FILE_PATH = r"[\w./-]*\w\.[A-Za-z]\w{0,4}(?![\w/*<{$-])"
_FILE_TO_USE = re.compile(
    r"(?<!uv )(?<!bun )\b(?i:run|execute|use|read|see|open|consult)\s+(?:the\s+)?`?"
    rf"((?:scripts|references)/{_FILE_PATH})"
)
"""A file that the text says to run or read."""
_SCRIPT_COMMAND = re.compile(
    r"(?:^|[\s`(\"'])(?:python3?|bash|sh|node|bun|uv run(?: --script)?|npx tsx|perl|ruby|php"
    r"|Rscript|(?:pwsh|powershell)(?:\.exe)?(?: -\w+(?: Bypass)?){0,4})\s+[\"']?(?:\./"
    rf"|\$\{{?(?:CLAUDE_)?SKILL_DIR\}}?/|\{{baseDir\}}/)?(scripts/{_FILE_PATH})"
)
"""A command that runs a script of the skill."""
_OTHER_FOLDER = re.compile(r"(?m)^\s*(?:\$ )?cd |git clone|\bpytest\b|\bdocker |\bkubectl ")
"""Part of a code block whose commands run in the user's project or elsewhere."""
_SHELL_NAMES = ("", "bash", "sh", "shell", "console", "zsh", "terminal", "powershell")
_WRITTEN_SCRIPT = re.compile(
    rf"\b(?i:create|write|touch|tee|cat >+|save (?:\w+ )?(?:as|to))\s+`?(scripts/{_FILE_PATH})"
)
"""A script that the text says to write."""
_MAX_PARENT_FOLDERS = 5
"""Folders above a skill, such as that of a plugin, in which its commands may find scripts."""
_PLACEHOLDER_OR_URL = re.compile(
    r"[<>*{}$|\[\]…:\\]|\.\.\.|^[/#~?]|^path/to/|\b(?:YYYY|XXX?|NAME)\b"
)
"""Placeholders and external targets: `references/<topic>.md`, `https://…`, `#top`."""
_EXAMPLE_WORD = re.compile(
    r"\b(?:examples?|such as|would be|upstream|no longer|whether)\b|\be\.g|\bits `|例如|比如|示例",
    re.IGNORECASE,
)
"""A line whose files are examples, of another skill, or may be absent."""


class _Mention(NamedTuple):
    """A line that may name files."""

    start: int
    """Its offset in the body."""
    line: str
    is_command: bool
    """Whether it is a line of a code block for a shell that runs in the skill's folder."""


def find_missing_files(document: SkillDocument, folder: str, file: str | bytes) -> list[Problem]:
    """Find the files that the body refers to and the folder lacks.

    Relative links count, paths in backticks that begin with one of the skill's folders, files that
    the text says to run or read, and commands that run a script, also in code blocks; examples and
    files that the text says to write do not.

    Args:
        document: The SKILL.md.
        folder: The skill's folder.
        file: The path of the SKILL.md, or its content if it is not written yet.
    """
    if document.head is None:
        return []
    line_by_path: dict[str, int] = {}
    body = document.body
    for mention in _find_mentions(body):
        if mention.is_command:
            paths = _find_absent_scripts(mention.line, folder, _SCRIPT_COMMAND)
        else:
            paths = _find_absent_files(mention.line, folder)
        for path in paths:
            line_by_path.setdefault(path, body.count("\n", 0, mention.start))
    if not line_by_path:
        return []
    written_paths = set(_WRITTEN_SCRIPT.findall(body))
    body_line = _find_body_line(file, body)
    return [
        Problem("file-missing", line=body_line + line if body_line else 0, values={"file": path})
        for path, line in line_by_path.items()
        if path not in written_paths
    ]


def _find_mentions(body: str) -> Iterator[_Mention]:
    """Yield the lines that may name files; in code blocks only the commands."""
    if not any(sign in body for sign in _MENTION_SIGNS):
        return
    end, is_fenced, runs_here = -1, False, True
    for match in _MENTION_OR_FENCE.finditer(body):
        if match.start() < end:
            continue  # in a line that was read
        start = body.rfind("\n", 0, match.start()) + 1
        end = body.find("\n", start) % (len(body) + 1)
        line = body[start:end]
        if not line.lstrip().startswith(("```", "~~~")):
            if runs_here or not is_fenced:
                yield _Mention(start, line, is_fenced)
            continue
        is_fenced = not is_fenced
        if is_fenced:
            close = body.find(f"\n{line.lstrip()[:3]}", end) % (len(body) + 1)
            is_shell = line.strip("`~ \t") in _SHELL_NAMES
            runs_here = is_shell and not _OTHER_FOLDER.search(body, end, close)


def _find_absent_files(line: str, folder: str) -> list[str]:
    """Find the files that a line refers to and the folder lacks; none when it is an example."""
    # `scripts/build.sh` may be the project's, unless the skill has such a folder.
    targets = _LINK_TARGET.findall(re.sub("`[^`]*`", "", line)) + [
        path
        for path in _BACKTICK_PATH.findall(line)
        if not path.startswith("scripts/") or os.path.exists(f"{folder}/scripts")
    ]
    targets += _find_absent_scripts(line, folder, _SCRIPT_COMMAND, _FILE_TO_USE)
    absent = [
        path
        for path in map(_resolve_link, targets)
        if path and not os.path.exists(os.path.join(folder, path))
    ]
    return [] if absent and _EXAMPLE_WORD.search(line) else absent


def _find_absent_scripts(line: str, folder: str, *patterns: re.Pattern[str]) -> list[str]:
    """Find the files that a line says to run or read, and no folder above the skill's has.

    A command such as `python scripts/build.py` may be the project's, unless the skill has scripts.
    """
    if not os.path.exists(f"{folder}/scripts"):
        patterns = tuple(pattern for pattern in patterns if pattern is not _SCRIPT_COMMAND)
    paths = dict.fromkeys(path for pattern in patterns for path in pattern.findall(line))
    folders = (folder, *parent_folders(folder)) if paths else ()
    return [
        path
        for path in paths
        if not any(os.path.exists(os.path.join(parent, path)) for parent in folders)
    ]


def parent_folders(folder: str) -> list[str]:
    """List the folders above a skill in which its commands may find files."""
    return [os.path.join(folder, *[os.pardir] * up) for up in range(1, _MAX_PARENT_FOLDERS + 1)]


def _resolve_link(target: str) -> str:
    """The target of a link relative to the skill; empty when it leads elsewhere."""
    if _PLACEHOLDER_OR_URL.search(target) or target.endswith("/"):
        return ""
    path = target.partition("#")[0].partition("?")[0].rstrip(",;.")
    if "%" in path:
        path = unquote(path)
    path = os.path.normpath(path) if path else ""
    # `[text](url)` is a placeholder: a file has an extension or lies in a folder.
    if path.startswith("..") or ("/" not in path and "." not in path):
        return ""
    return path


def _find_body_line(file: str | bytes, body: str) -> int:
    """The first line of the body; 0 when the file cannot be read."""
    try:
        if isinstance(file, str):
            with open(file, "rb") as stream:
                file = stream.read()
    except OSError:
        return 0
    return file.count(b"\n") - body.count("\n") + 1
