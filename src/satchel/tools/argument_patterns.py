"""Matches the part of a tool pattern in parentheses against the arguments of a call.

    git:*         `git` with any arguments, without further shell commands
    npm run *     a glob over the text
    docs/*        a path below `docs`, however it is written

A pattern that allows must match with certainty (`matches_certainly`); one that forbids matches in
doubt (`may_match`). So `git:*` does not allow `git log; rm x`, but does forbid it. An allowing
pattern needs exactly one parameter that is the subject of the call, and no other parameter that
could matter; for a forbidding pattern any value may be the subject. Paths are compared as paths,
never as text alone. `domain:` is always in doubt: it allows no address, and forbids all.
`permission_rules` is the only caller.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, NamedTuple, cast

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_PATH_PARAMETERS = frozenset((
    "file_path", "path", "filename", "file_name", "file", "relativepath", "relative_path",
    "notebook_path", "directory", "folder", "dir",
))  # fmt: skip
_ADDRESS_PARAMETERS = frozenset(("url", "uri", "address", "href"))
_NAME_PARAMETERS = frozenset(("name", "skill"))
_TEXT_PARAMETERS = frozenset(("command", "cmd", "script", "code", "query", "pattern"))
_SUBJECT_PARAMETERS = _PATH_PARAMETERS | _ADDRESS_PARAMETERS | _NAME_PARAMETERS | _TEXT_PARAMETERS
"""Parameters that name what a call reads, writes, fetches or runs."""
_HARMLESS_PARAMETERS = frozenset((
    "content", "contents", "text", "description", "old_string", "new_string", "prompt", "title",
    "encoding",
))  # fmt: skip
"""Parameters that cannot change what a call reaches."""
_SHELL_OPERATOR = re.compile(r"[;&|<>\n\r`()]|\$[({]")
"""Where a shell starts another command or redirects text."""
_COMMAND_SEPARATOR = re.compile(r"[;&|<>\n\r`(){}]")
"""`_SHELL_OPERATOR`, and characters that only may separate commands."""
_WRAPPER_COMMANDS = frozenset((
    "!", "time", "then", "do", "else", "elif", "if", "while", "until", "command", "builtin", "exec",
    "nohup", "env", "sudo", "doas", "nice", "xargs", "eval", "sh", "bash", "zsh", "dash", "timeout",
    "setsid", "stdbuf", "busybox",
))  # fmt: skip
"""Words after which a shell runs what follows."""
_SHELL_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=.*", re.DOTALL)
_SUSPECT_ADDRESS_CHARACTER = re.compile(r"[\x00-\x20\x7f\\]")
_MAX_NESTING_DEPTH = 20
_MAX_PATH_CHARS = _MAX_INTEGER_BITS = 4_096
_MAX_COMMAND_COUNT = 20_000


class UnreadableArgument(Exception):
    """A value that cannot be turned into text."""


class BaseFolder(NamedTuple):
    """Where relative paths begin."""

    project: str = ""

    def absolute(self, path: str) -> str:
        """The normalised absolute path."""
        return os.path.normpath(os.path.join(self.project or os.sep, os.path.expanduser(path)))

    def real(self, path: str) -> str:
        """The absolute path, with links resolved when the project's folder is known."""
        return os.path.realpath(self.absolute(path)) if self.project else self.absolute(path)

    def resolved(self) -> BaseFolder:
        """The same folder, without links in its own path."""
        return BaseFolder(os.path.realpath(self.project))


UNKNOWN_BASE = BaseFolder()


def glob_match(pattern: str, text: str) -> bool:
    """Match a text against a pattern with `*` and `?`; `[` has no special meaning."""
    pattern_index = text_index = 0
    star_index, retry_index = -1, 0
    while text_index < len(text):
        if pattern_index < len(pattern) and pattern[pattern_index] == "*":
            star_index, retry_index = pattern_index, text_index
            pattern_index += 1
        elif pattern_index < len(pattern) and pattern[pattern_index] in ("?", text[text_index]):
            pattern_index += 1
            text_index += 1
        elif star_index >= 0:
            pattern_index, retry_index = star_index + 1, retry_index + 1
            text_index = retry_index
        else:
            return False
    return not pattern[pattern_index:].strip("*")


# --- certain matches --------------------------------------------------------------------------


def matches_certainly(
    pattern: str, arguments: Mapping[str, Any], base: BaseFolder = UNKNOWN_BASE
) -> bool:
    """Whether a pattern covers a call, however the tool interprets its arguments."""
    pattern = pattern.strip()
    subject = _find_subject(arguments)
    if subject is None:
        return False
    parameter, text = subject
    if pattern.startswith("domain:"):
        return False
    if parameter in _ADDRESS_PARAMETERS and _SUSPECT_ADDRESS_CHARACTER.search(text):
        return False
    if parameter in _PATH_PARAMETERS:
        return _path_matches_certainly(pattern, text, base)
    is_inert = parameter in _NAME_PARAMETERS | _ADDRESS_PARAMETERS
    if not is_inert and _SHELL_OPERATOR.search(text):
        return False
    return pattern in {"", "*"} or _text_matches(pattern, text)


def _find_subject(arguments: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the one parameter that is the subject of a call, and its text.

    None when several could be it, or when another parameter could matter.
    """
    values = {str(key): value for key, value in arguments.items() if value is not None}
    subject_keys = [key for key in values if key.lower() in _SUBJECT_PARAMETERS]
    candidates = subject_keys or [
        key for key in values if not isinstance(values[key], bool | int | float)
    ]
    if len(candidates) != 1:
        return None
    subject = candidates[0]
    text = values.pop(subject)
    if not isinstance(text, str):
        return None
    for key, value in values.items():
        is_harmless_text = isinstance(value, str) and key.lower() in _HARMLESS_PARAMETERS
        if not is_harmless_text and not isinstance(value, bool | int | float):
            return None
    return subject.lower(), text.strip()


def _path_matches_certainly(pattern: str, path: str, base: BaseFolder) -> bool:
    if not path or "\0" in path or "\\" in path:
        return False
    if ".." in path.split("/") and ".." not in pattern.split("/"):
        return False
    if pattern in {"", "*"}:
        return True
    is_absolute = path.startswith(("/", "~")) or os.path.isabs(path)
    if is_absolute and not pattern.startswith(("/", "~")):
        return False
    absolute_pattern = base.absolute(pattern)
    if not glob_match(absolute_pattern, base.absolute(path)):
        return False
    if not base.project:
        return True
    # A link may lead out of the allowed folder.
    real_path = base.real(path)
    return glob_match(absolute_pattern, real_path) or glob_match(
        base.resolved().absolute(pattern), real_path
    )


def _text_matches(pattern: str, text: str) -> bool:
    """Whether a text matches a glob, or begins with the words before `:*`."""
    if pattern.endswith(":*"):
        prefix = pattern[:-2].rstrip()
        return text == prefix or text.startswith(prefix + " ")
    return glob_match(pattern, text)


# --- possible matches -------------------------------------------------------------------------


def may_match(pattern: str, arguments: Mapping[str, Any], base: BaseFolder = UNKNOWN_BASE) -> bool:
    """Whether a pattern covers a call, or a part of it, in any interpretation of its arguments."""
    pattern = pattern.strip()
    if pattern in {"", "*"} or pattern.startswith("domain:"):
        return True
    texts: list[tuple[str, str]] = []
    try:
        for key, value in arguments.items():
            texts += [(str(key).lower(), text) for text in _iter_texts(value)]
    except UnreadableArgument:
        return True
    if not texts:
        return True
    folded_pattern = pattern.casefold()
    return any(
        _command_may_match(folded_pattern, text, is_single=parameter in _HARMLESS_PARAMETERS)
        or _path_may_match(pattern, text, base)
        for parameter, text in texts
    )


def _iter_texts(value: Any, depth: int = 0) -> Iterator[str]:
    """Yield every text in a value, and each list joined to one line."""
    if depth > _MAX_NESTING_DEPTH:
        raise UnreadableArgument
    if value is None or isinstance(value, bool):
        return
    if isinstance(value, str):
        yield value
    elif isinstance(value, int | float):
        is_short = isinstance(value, float) or value.bit_length() < _MAX_INTEGER_BITS
        yield repr(value) if is_short else ""
    elif isinstance(value, dict):
        for key, member in cast("dict[Any, Any]", value).items():
            yield from _iter_texts(key, depth + 1)
            yield from _iter_texts(member, depth + 1)
    elif isinstance(value, list | tuple | set | frozenset):
        member_texts = [list(_iter_texts(member, depth + 1)) for member in cast("list[Any]", value)]
        for texts in member_texts:
            yield from texts
        yield " ".join(texts[-1] for texts in member_texts if texts)
    else:
        raise UnreadableArgument


def _command_may_match(pattern: str, text: str, *, is_single: bool = False) -> bool:
    """Whether a text, or unless `is_single` a command in it, matches a pattern."""
    text = text.casefold().replace("\\\n", " ")
    if _text_matches(pattern, text.strip()):
        return True
    commands = [] if is_single else _COMMAND_SEPARATOR.split(text, maxsplit=_MAX_COMMAND_COUNT)
    if len(commands) > _MAX_COMMAND_COUNT:
        return True
    return any(
        _text_matches(pattern, reading)
        for command in commands
        for reading in _iter_readings(command)
    )


def _iter_readings(command: str) -> Iterator[str]:
    """Yield a command as written, and what it runs after words such as `time` or `A=1`."""
    words = [word for word in re.sub(r"[\"'\\]", "", command).split() if word]
    follows_wrapper = False
    while words:
        first_word = words[0]
        yield " ".join(words)
        program = first_word.rpartition("/")[2]
        if program != first_word:
            yield " ".join((program, *words[1:]))
        is_option = follows_wrapper and (first_word.startswith("-") or first_word.isdigit())
        is_assignment = _SHELL_ASSIGNMENT.fullmatch(first_word) is not None
        if program not in _WRAPPER_COMMANDS and not is_assignment and not is_option:
            return
        follows_wrapper = True
        words = words[1:]


def _path_may_match(pattern: str, text: str, base: BaseFolder) -> bool:
    path = text.strip()
    if not path or len(path) > _MAX_PATH_CHARS or "\0" in path or "\n" in path:
        return False
    if pattern.endswith(":*"):
        return False
    path = path.replace("\\", "/")
    paths = {base.absolute(path).casefold(), base.real(path).casefold()}
    spellings = {pattern, pattern.replace("**/", "")}
    patterns = {base.absolute(spelling).casefold() for spelling in spellings}
    if base.project:
        resolved_base = base.resolved()
        patterns.update(resolved_base.absolute(spelling).casefold() for spelling in spellings)
    if not any(sign in pattern for sign in "*?"):
        patterns.add(base.real(pattern).casefold())
    return any(glob_match(glob, candidate) for glob in patterns for candidate in paths)
