"""Does the part of a pattern in parentheses cover what a call is about?

Two questions with opposite doubts. `surely` is for what allows: one parameter says what the call is
about, nothing else in the call can matter, and its text is covered however it is read. `perhaps` is
for what forbids: any value of the call may be what it is about, and each is read in every way that
a program may read it. Paths are compared as paths and addresses by their host, never as text alone.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, NamedTuple, cast

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_PATHS = frozenset((
    "file_path", "path", "filename", "file_name", "file", "relativepath", "relative_path",
    "notebook_path", "directory", "folder", "dir",
))  # fmt: skip
_ADDRESSES = frozenset(("url", "uri", "address", "href"))
_NAMES = frozenset(("name", "skill"))
_OTHERS = frozenset(("command", "cmd", "script", "code", "query", "pattern"))
_SUBJECTS = _PATHS | _ADDRESSES | _NAMES | _OTHERS
"""Parameters that say what a call is about."""
_HARMLESS = frozenset((
    "content", "contents", "text", "description", "old_string", "new_string", "prompt", "title",
    "encoding",
))  # fmt: skip
"""Parameters that say nothing of what a call reaches."""
_OPERATORS = re.compile(r"[;&|<>\n\r`()]|\$[({]")
"""Where a shell would begin another command, or send text elsewhere."""
_BETWEEN = re.compile(r"[;&|<>\n\r`(){}]")
"""The same, and where it may."""
_WRAPPERS = frozenset((
    "!", "time", "then", "do", "else", "elif", "if", "while", "until", "command", "builtin", "exec",
    "nohup", "env", "sudo", "doas", "nice", "xargs", "eval", "sh", "bash", "zsh", "dash", "timeout",
    "setsid", "stdbuf", "busybox",
))  # fmt: skip
"""Words behind which a shell runs what follows."""
_ASSIGNED = re.compile(r"[A-Za-z_]\w*\+?=.*", re.DOTALL)
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*:[\\/]{2}\S*", re.IGNORECASE)
_SUSPECT = re.compile(r"[\x00-\x20\x7f\\]")
_DEPTH = 20
_LONGEST = 4_096
_PIECES = 20_000


class Unreadable(Exception):
    """A value that cannot be turned into text."""


class Place(NamedTuple):
    """Where relative paths begin."""

    project: str = ""

    def absolute(self, path: str) -> str:
        """The path from the root, with no `..` in it."""
        return os.path.normpath(os.path.join(self.project or os.sep, os.path.expanduser(path)))

    def real(self, path: str) -> str:
        """The same with links followed, where the project's folder is known."""
        return os.path.realpath(self.absolute(path)) if self.project else self.absolute(path)


NOWHERE = Place()


def like(pattern: str, text: str) -> bool:
    """Whether a text is a pattern with `*` for anything and `?` for one sign; `[` is itself."""
    at = behind = 0
    star, retry = -1, 0
    while behind < len(text):
        if at < len(pattern) and pattern[at] == "*":
            star, retry = at, behind
            at += 1
        elif at < len(pattern) and pattern[at] in ("?", text[behind]):
            at += 1
            behind += 1
        elif star >= 0:
            at, retry = star + 1, retry + 1
            behind = retry
        else:
            return False
    return not pattern[at:].strip("*")


# --- for sure ---------------------------------------------------------------------------------


def surely(rule: str, arguments: Mapping[str, Any], place: Place = NOWHERE) -> bool:
    """Whether a rule covers a call, whatever the tool makes of its arguments."""
    rule = rule.strip()
    found = _subject(arguments)
    if found is None:
        return False
    parameter, text = found
    if parameter in _ADDRESSES:
        return _surely_address(rule, text)
    if rule.startswith("domain:"):
        return False
    if parameter in _PATHS:
        return _surely_path(rule, text, place)
    if parameter not in _NAMES and _OPERATORS.search(text):
        return False
    return rule in {"", "*"} or _starts_or_is(rule, text)


def _subject(arguments: Mapping[str, Any]) -> tuple[str, str] | None:
    """The one parameter that a call is about, and its text; None when that is not sure."""
    given = {str(key): value for key, value in arguments.items() if value is not None}
    known = [key for key in given if key.lower() in _SUBJECTS]
    open_ones = known or [key for key in given if not isinstance(given[key], bool | int | float)]
    if len(open_ones) != 1:
        return None
    subject = open_ones[0]
    text = given.pop(subject)
    if not isinstance(text, str):
        return None
    for key, value in given.items():
        harmless = isinstance(value, str) and key.lower() in _HARMLESS
        if not harmless and not isinstance(value, bool | int | float):
            return None
    return subject.lower(), text.strip()


def _surely_path(rule: str, text: str, place: Place) -> bool:
    if not text or "\0" in text or "\\" in text:
        return False
    parts = text.split("/")
    if ".." in parts and ".." not in rule.split("/"):
        return False
    if rule in {"", "*"}:
        return True
    outside = text.startswith(("/", "~")) or os.path.isabs(text)
    if outside and not rule.startswith(("/", "~")):
        return False
    wanted = place.absolute(rule)
    if not like(wanted, place.absolute(text)):
        return False
    if not place.project:
        return True
    # A link may lead out of what was meant.
    real = place.real(text)
    return like(wanted, real) or like(Place(os.path.realpath(place.project)).absolute(rule), real)


def _surely_address(rule: str, text: str) -> bool:
    if _SUSPECT.search(text):
        return False
    if rule in {"", "*"}:
        return True
    if rule.startswith("domain:"):
        host = _host(text) if re.match(r"https?://", text, re.IGNORECASE) else None
        return host is not None and _below(host, rule)
    return like(rule, text)


def _starts_or_is(rule: str, text: str) -> bool:
    if rule.endswith(":*"):
        start = rule[:-2].rstrip()
        return text == start or text.startswith(start + " ")
    return like(rule, text)


# --- perhaps ----------------------------------------------------------------------------------


def perhaps(rule: str, arguments: Mapping[str, Any], place: Place = NOWHERE) -> bool:
    """Whether a rule covers a call, or a part of it, as some program may read its arguments."""
    rule = rule.strip()
    if rule in {"", "*"}:
        return True
    texts: list[tuple[str, str]] = []
    try:
        for key, value in arguments.items():
            texts += [(str(key).lower(), text) for text in _texts(value)]
    except Unreadable:
        return True
    if not texts:
        return True
    if rule.startswith("domain:"):
        return any(_perhaps_host(rule, key, text) for key, text in texts)
    folded = rule.casefold()
    return any(
        _perhaps_command(folded, text, whole=key in _HARMLESS) or _perhaps_path(rule, text, place)
        for key, text in texts
    )


def _texts(value: Any, depth: int = 0) -> Iterator[str]:
    """Every text in a value, and what a list says when it is read as one line."""
    if depth > _DEPTH:
        raise Unreadable
    if value is None or isinstance(value, bool):
        return
    if isinstance(value, str):
        yield value
    elif isinstance(value, int | float):
        yield repr(value) if isinstance(value, float) or value.bit_length() < _LONGEST else ""
    elif isinstance(value, bytes | bytearray | os.PathLike):
        yield _as_text(cast("bytes | bytearray | os.PathLike[Any]", value))
    elif isinstance(value, dict):
        for key, item in cast("dict[Any, Any]", value).items():
            yield from _texts(key, depth + 1)
            yield from _texts(item, depth + 1)
    elif isinstance(value, list | tuple | set | frozenset):
        rows = [list(_texts(item, depth + 1)) for item in cast("list[Any]", value)]
        for row in rows:
            yield from row
        yield " ".join(row[-1] for row in rows if row)
    else:
        raise Unreadable


def _as_text(value: bytes | bytearray | os.PathLike[Any]) -> str:
    try:
        found: Any = value if isinstance(value, bytes | bytearray) else os.fspath(value)
        return found if isinstance(found, str) else bytes(found).decode()
    except (TypeError, ValueError) as exc:
        raise Unreadable from exc


def _perhaps_command(rule: str, text: str, *, whole: bool = False) -> bool:
    """Whether a text is what a rule says, or a command in it; `whole`: it is no command."""
    text = text.casefold().replace("\\\n", " ")
    if _starts_or_is(rule, text.strip()):
        return True
    pieces = [] if whole else _BETWEEN.split(text, maxsplit=_PIECES)
    if len(pieces) > _PIECES:
        return True  # nobody writes that by hand
    return any(_starts_or_is(rule, one) for piece in pieces for one in _readings(piece))


def _readings(piece: str) -> Iterator[str]:
    """A command as it stands, and what it runs behind words such as `time` or `A=1`."""
    words = [word for word in re.sub(r"[\"'\\]", "", piece).split() if word]
    wrapped = False
    while words:
        yield " ".join(words)
        program = words[0].rpartition("/")[2]
        if program != words[0]:
            yield " ".join((program, *words[1:]))
        behind = wrapped and (words[0].startswith("-") or words[0].isdigit())
        if program not in _WRAPPERS and not _ASSIGNED.fullmatch(words[0]) and not behind:
            return
        wrapped = True
        words = words[1:]


def _perhaps_path(rule: str, text: str, place: Place) -> bool:
    text = text.strip()
    if not text or len(text) > _LONGEST or "\0" in text or "\n" in text or rule.endswith(":*"):
        return False
    text = text.replace("\\", "/")
    ways = {place.absolute(text).casefold(), place.real(text).casefold()}
    rules = {rule, rule.replace("**/", "")}
    meant = {place.absolute(one).casefold() for one in rules}
    if place.project:
        really = Place(os.path.realpath(place.project))
        meant.update(really.absolute(one).casefold() for one in rules)
    if not any(sign in rule for sign in "*?"):
        meant.add(place.real(rule).casefold())
    return any(like(one, way) for one in meant for way in ways)


def _perhaps_host(rule: str, key: str, text: str) -> bool:
    text = text.strip()
    if key in _ADDRESSES:
        if _SUSPECT.search(text):
            return True
        host = _host(text if "://" in text else f"//{text}")
        return host is None or _below(host, rule)
    for found in _ADDRESS.findall(text):
        host = None if _SUSPECT.search(found) else _host(found)
        if host is None or _below(host, rule):
            return True
    return _below(text.casefold().rstrip("."), rule)


def _host(address: str) -> str | None:
    """Whom an address reaches; None when programs may disagree about that."""
    from urllib.parse import unquote, urlsplit

    try:
        host = urlsplit(address).hostname
        return unquote(host).encode("idna").decode().lower().rstrip(".") if host else None
    except ValueError:  # UnicodeError is one
        return None


def _below(host: str, rule: str) -> bool:
    wanted = rule.removeprefix("domain:").strip().lower().removeprefix("*.").rstrip(".")
    return bool(wanted) and (host == wanted or host.endswith("." + wanted))
