"""Rules about which tools may be called: patterns, matched against the arguments of a call.

A pattern names a tool, and perhaps what it is called with:

    ReadFile              the tool of that name; `Read`, as other agents call it, means it too
    excel_*               every tool whose name begins so
    Bash(git:*)           `git`, with whatever follows; not what a shell would run beside it
    Bash(npm run *)       the text with `*` for anything
    Write(docs/*)         a path below `docs`, however it is written
    WebFetch(domain:x.y)  an address on that host, or below it

A pattern that allows must match for sure; one that forbids matches in doubt. So `Bash(git:*)`
among the allowed says nothing of `git log; rm x`, and among the forbidden it says no to it. For
what allows, `surely`: one parameter says what the call is about, nothing else in it can matter, and
its text is covered however it is read. For what forbids, `perhaps`: any value may be what the call
is about. Paths are compared as paths and addresses by their host, never as text alone.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from satchel._language import say
from satchel.errors import InvalidInput
from satchel.skill.interpret import as_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

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


ALIASES = {"Read": "ReadFile"}
"""What other agents call tools that we have, so that their skills mean ours."""
ENOUGH = 3
"""Letters that must stand before the `*` in the name of a tool that is approved in advance."""
_PATTERN = re.compile(r"([^()\s]+)(?:\((.*)\))?", re.DOTALL)
_WORD = re.compile(r"[^\s,()]+(?:\([^)]*\))?")


class Verdict(NamedTuple):
    """What the rules say about one call."""

    answer: Literal["go", "ask", "no"]
    pattern: str = ""
    """The pattern that decided, if one did."""
    by: str = ""
    """The skill whose pattern it is; empty when it is the host's."""


class Grant(NamedTuple):
    """What one skill says about tools while it is loaded."""

    skill: str
    allowed: tuple[str, ...] = ()
    disallowed: tuple[str, ...] = ()


def patterns_of(value: Any, *, forbidding: bool = False) -> tuple[str, ...]:
    """The patterns of a frontmatter field: a list, or one line with spaces or commas.

    Args:
        value: What the author wrote.
        forbidding: What is no pattern means every whole tool that it names, instead of nothing.
    """
    if forbidding and isinstance(value, dict):
        value = list(cast("dict[Any, Any]", value))
    found: list[str] = []
    for word in as_words(value):
        balanced = word.count("(") == word.count(")") <= 1
        if _PATTERN.fullmatch(word) and (balanced or not forbidding):
            found.append(word)
        elif forbidding and balanced:
            found += [] if word.startswith("(") else _WORD.findall(word)
        elif forbidding:
            found += re.split(r"[()]", word, maxsplit=1)[0].split()
    return tuple(dict.fromkeys(found))


def as_patterns(value: Any) -> tuple[str, ...]:
    """Patterns that a host gives: one text is one pattern.

    Raises:
        InvalidInput: it is neither a text nor a sequence of texts.
    """
    found: tuple[Any, ...]
    try:
        found = (value,) if isinstance(value, str) else tuple(value)
    except TypeError:
        found = (None,)
    if not all(isinstance(one, str) for one in found):
        raise InvalidInput(
            say("{value} is no list of patterns", value=repr(value)[:60]),
            say("Give texts such as `Bash(git:*)`, in a list"),
        )
    return found


def too_wide(pattern: str) -> bool:
    """Whether a pattern names no tool that somebody had in mind: it would approve what comes.

    A name, or the beginning of one with a `*` behind it, is narrow enough.
    """
    found = _PATTERN.fullmatch(pattern)
    if found is None:
        return True
    name = found[1]
    start, star, rest = name.partition("*")
    return any(sign in start for sign in "?[]!") or bool(
        star and (rest or len(re.sub(r"[\W_]", "", start)) < ENOUGH)
    )


def names(pattern: str, tool: str) -> bool:
    """Whether a pattern is about this tool, whatever it is called with."""
    found = _PATTERN.fullmatch(pattern)
    return found is not None and _same_tool(found[1], tool)


def may_name(pattern: str, tool: str) -> bool:
    """The same in doubt: whichever way the name is written."""
    found = _PATTERN.fullmatch(pattern)
    return found is not None and _perhaps_tool(found[1], tool)


def allows(pattern: str, tool: str, arguments: Mapping[str, Any], place: Place = NOWHERE) -> bool:
    """Whether a pattern of a skill covers a call for sure."""
    return not too_wide(pattern) and covers(pattern, tool, arguments, place)


def covers(pattern: str, tool: str, arguments: Mapping[str, Any], place: Place = NOWHERE) -> bool:
    """Whether a pattern covers a call for sure, however wide it is: a host knows what it says."""
    found = _PATTERN.fullmatch(pattern)
    if found is None or not _same_tool(found[1], tool):
        return False
    return found[2] is None or surely(found[2], arguments, place)


def forbids(pattern: str, tool: str, arguments: Mapping[str, Any], place: Place = NOWHERE) -> bool:
    """Whether a pattern may cover a call, or a part of it."""
    found = _PATTERN.fullmatch(pattern)
    if found is None or not _perhaps_tool(found[1], tool):
        return False
    return found[2] is None or perhaps(found[2], arguments, place)


def decide(
    tool: str,
    arguments: Mapping[str, Any],
    *,
    risky: bool,
    grants: Iterable[Grant] = (),
    within: Sequence[Sequence[str]] = (),
    place: Place = NOWHERE,
) -> Verdict:
    """What may be done about a call.

    Args:
        tool: Its name.
        arguments: What it is called with.
        risky: Whether a person has to agree to it.
        grants: What the loaded skills say, and those loaded by whoever gave the task.
        within: Lists of patterns; each of them must cover the call.
        place: Where relative paths begin.
    """
    for patterns in within:
        named = [pattern for pattern in patterns if names(pattern, tool)]
        if not named:
            return Verdict("no")
        if not any(covers(pattern, tool, arguments, place) for pattern in named):
            return Verdict("no", ", ".join(named))
    grants = tuple(grants)
    for grant in grants:
        for pattern in grant.disallowed:
            if forbids(pattern, tool, arguments, place):
                return Verdict("no", pattern, grant.skill)
    if not risky:
        return Verdict("go")
    for grant in grants:
        for pattern in grant.allowed:
            if allows(pattern, tool, arguments, place):
                return Verdict("go", pattern, grant.skill)
    return Verdict("ask")


def _same_tool(pattern: str, tool: str) -> bool:
    return like(pattern, tool) or ALIASES.get(pattern) == tool


def _perhaps_tool(pattern: str, tool: str) -> bool:
    """Whether a name may be meant: big and small letters, and a class of signs for any sign."""
    tool = tool.casefold()
    ways = {pattern, re.sub(r"\[[^\]]*\]", "?", pattern)}
    ways.update(meant for name, meant in ALIASES.items() if name.casefold() == pattern.casefold())
    return any(like(way.casefold(), tool) for way in ways)
