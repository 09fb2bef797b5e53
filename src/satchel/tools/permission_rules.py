"""Rules about which tools may be called: patterns, matched against the arguments of a call.

A pattern names a tool and, in parentheses, what it is called with:

    ReadFile              the tool of that name; `Read`, its name in other agents, is an alias
    excel_*               every tool with that prefix
    Bash(git:*)           `git` with any arguments, without further shell commands
    Bash(npm run *)       a glob over the text
    Write(docs/*)         a path below `docs`, however it is written

A pattern that allows must match with certainty (`matches_certainly`); one that forbids matches in
doubt (`may_match`). So `Bash(git:*)` does not allow `git log; rm x`, but does forbid it. An
allowing pattern needs exactly one parameter that is the subject of the call, and no other parameter
that could matter; for a forbidding pattern any value may be the subject. Paths are compared as
paths, never as text alone. `domain:` is always in doubt: it allows no address, and forbids all.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from satchel.errors import InvalidInput
from satchel.i18n import say
from satchel.skill.metadata import as_words

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
"""Parameters that name what a call reads, writes, fetches or runs."""
_HARMLESS = frozenset((
    "content", "contents", "text", "description", "old_string", "new_string", "prompt", "title",
    "encoding",
))  # fmt: skip
"""Parameters that cannot change what a call reaches."""
_OPERATORS = re.compile(r"[;&|<>\n\r`()]|\$[({]")
"""Where a shell starts another command or redirects text."""
_BETWEEN = re.compile(r"[;&|<>\n\r`(){}]")
"""`_OPERATORS`, and characters that only may separate commands."""
_WRAPPERS = frozenset((
    "!", "time", "then", "do", "else", "elif", "if", "while", "until", "command", "builtin", "exec",
    "nohup", "env", "sudo", "doas", "nice", "xargs", "eval", "sh", "bash", "zsh", "dash", "timeout",
    "setsid", "stdbuf", "busybox",
))  # fmt: skip
"""Words after which a shell runs what follows."""
_ASSIGNED = re.compile(r"[A-Za-z_]\w*\+?=.*", re.DOTALL)
_SUSPECT = re.compile(r"[\x00-\x20\x7f\\]")
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


NOWHERE = BaseFolder()


def glob_match(pattern: str, text: str) -> bool:
    """Match a text against a pattern with `*` and `?`; `[` has no special meaning."""
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


# --- certain matches --------------------------------------------------------------------------


def matches_certainly(rule: str, arguments: Mapping[str, Any], base: BaseFolder = NOWHERE) -> bool:
    """Whether a rule covers a call, however the tool interprets its arguments."""
    rule = rule.strip()
    found = _subject(arguments)
    if found is None:
        return False
    parameter, text = found
    if rule.startswith("domain:") or (parameter in _ADDRESSES and _SUSPECT.search(text)):
        return False
    if parameter in _PATHS:
        return _certain_path(rule, text, base)
    if parameter not in _NAMES | _ADDRESSES and _OPERATORS.search(text):
        return False
    return rule in {"", "*"} or _starts_or_is(rule, text)


def _subject(arguments: Mapping[str, Any]) -> tuple[str, str] | None:
    """The one parameter that is the subject of a call, and its text; None when it is ambiguous."""
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


def _certain_path(rule: str, text: str, base: BaseFolder) -> bool:
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
    wanted = base.absolute(rule)
    if not glob_match(wanted, base.absolute(text)):
        return False
    if not base.project:
        return True
    # A link may lead out of the allowed folder.
    real = base.real(text)
    return glob_match(wanted, real) or glob_match(
        BaseFolder(os.path.realpath(base.project)).absolute(rule), real
    )


def _starts_or_is(rule: str, text: str) -> bool:
    if rule.endswith(":*"):
        start = rule[:-2].rstrip()
        return text == start or text.startswith(start + " ")
    return glob_match(rule, text)


# --- possible matches -------------------------------------------------------------------------


def may_match(rule: str, arguments: Mapping[str, Any], base: BaseFolder = NOWHERE) -> bool:
    """Whether a rule covers a call, or a part of it, in any interpretation of its arguments."""
    rule = rule.strip()
    if rule in {"", "*"} or rule.startswith("domain:"):
        return True
    texts: list[tuple[str, str]] = []
    try:
        for key, value in arguments.items():
            texts += [(str(key).lower(), text) for text in _texts(value)]
    except UnreadableArgument:
        return True
    if not texts:
        return True
    folded = rule.casefold()
    return any(
        _possible_command(folded, text, whole=key in _HARMLESS) or _possible_path(rule, text, base)
        for key, text in texts
    )


def _texts(value: Any, depth: int = 0) -> Iterator[str]:
    """Every text in a value, and each list joined to one line."""
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
        for key, item in cast("dict[Any, Any]", value).items():
            yield from _texts(key, depth + 1)
            yield from _texts(item, depth + 1)
    elif isinstance(value, list | tuple | set | frozenset):
        rows = [list(_texts(item, depth + 1)) for item in cast("list[Any]", value)]
        for row in rows:
            yield from row
        yield " ".join(row[-1] for row in rows if row)
    else:
        raise UnreadableArgument


def _possible_command(rule: str, text: str, *, whole: bool = False) -> bool:
    """Whether a text, or unless `whole` a command in it, matches a rule."""
    text = text.casefold().replace("\\\n", " ")
    if _starts_or_is(rule, text.strip()):
        return True
    pieces = [] if whole else _BETWEEN.split(text, maxsplit=_MAX_COMMAND_COUNT)
    if len(pieces) > _MAX_COMMAND_COUNT:
        return True
    return any(_starts_or_is(rule, one) for piece in pieces for one in _readings(piece))


def _readings(piece: str) -> Iterator[str]:
    """A command as written, and what it runs after words such as `time` or `A=1`."""
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


def _possible_path(rule: str, text: str, base: BaseFolder) -> bool:
    text = text.strip()
    if (
        not text
        or len(text) > _MAX_PATH_CHARS
        or "\0" in text
        or "\n" in text
        or rule.endswith(":*")
    ):
        return False
    text = text.replace("\\", "/")
    ways = {base.absolute(text).casefold(), base.real(text).casefold()}
    rules = {rule, rule.replace("**/", "")}
    meant = {base.absolute(one).casefold() for one in rules}
    if base.project:
        really = BaseFolder(os.path.realpath(base.project))
        meant.update(really.absolute(one).casefold() for one in rules)
    if not any(sign in rule for sign in "*?"):
        meant.add(base.real(rule).casefold())
    return any(glob_match(one, way) for one in meant for way in ways)


ALIASES = {"Read": "ReadFile"}
"""Names that other agents have for tools of ours."""
MIN_PREFIX_LETTERS = 3
"""Before the `*` in the name of a tool that a skill approves in advance."""
_PATTERN = re.compile(r"([^()\s]+)(?:\((.*)\))?", re.DOTALL)
_WORD = re.compile(r"[^\s,()]+(?:\([^)]*\))?")


class RuleResult(NamedTuple):
    """The decision of the rules about one call."""

    answer: Literal["allow", "ask", "deny"]
    pattern: str = ""
    """The pattern that decided, if any."""
    by: str = ""
    """The skill that has the pattern; empty for a pattern of the host."""


class SkillToolRules(NamedTuple):
    """The tool patterns of one loaded skill."""

    skill: str
    allowed: tuple[str, ...] = ()
    disallowed: tuple[str, ...] = ()


def patterns_of(value: Any, *, forbidding: bool = False) -> tuple[str, ...]:
    """The patterns of a frontmatter field: a list, or one line with spaces or commas.

    Args:
        value: The field as parsed from the frontmatter.
        forbidding: Reduce a malformed pattern to the tools it names, instead of ignoring it.
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
    """Patterns given by a host: one text is one pattern.

    Raises:
        InvalidInput: the value is neither a text nor a sequence of texts.
    """
    found: tuple[Any, ...]
    try:
        found = (value,) if isinstance(value, str) else tuple(value)
    except TypeError:
        found = (None,)
    if not all(isinstance(one, str) for one in found):
        raise InvalidInput(
            say("`{value}` is not valid", value=repr(value)[:60]),
            say("Give texts such as `Bash(git:*)`, in a list"),
        )
    return found


def is_overbroad(pattern: str) -> bool:
    """Whether a pattern is neither a tool's name nor a long enough prefix with `*`."""
    found = _PATTERN.fullmatch(pattern)
    if found is None:
        return True
    name = found[1]
    start, star, rest = name.partition("*")
    return any(sign in start for sign in "?[]!") or bool(
        star and (rest or len(re.sub(r"[\W_]", "", start)) < MIN_PREFIX_LETTERS)
    )


def names(pattern: str, tool: str) -> bool:
    """Whether a pattern names this tool, with any arguments."""
    found = _PATTERN.fullmatch(pattern)
    return found is not None and _same_tool(found[1], tool)


def may_match_name(pattern: str, tool: str) -> bool:
    """Whether a pattern may name this tool, in any spelling of the name."""
    found = _PATTERN.fullmatch(pattern)
    return found is not None and _may_be_tool(found[1], tool)


def allows(
    pattern: str, tool: str, arguments: Mapping[str, Any], base: BaseFolder = NOWHERE
) -> bool:
    """Whether a skill's pattern certainly covers a call."""
    return not is_overbroad(pattern) and covers(pattern, tool, arguments, base)


def covers(
    pattern: str, tool: str, arguments: Mapping[str, Any], base: BaseFolder = NOWHERE
) -> bool:
    """Whether a pattern certainly covers a call, however broad it is; for patterns of the host."""
    found = _PATTERN.fullmatch(pattern)
    if found is None or not _same_tool(found[1], tool):
        return False
    return found[2] is None or matches_certainly(found[2], arguments, base)


def forbids(
    pattern: str, tool: str, arguments: Mapping[str, Any], base: BaseFolder = NOWHERE
) -> bool:
    """Whether a pattern may cover a call, or a part of it."""
    found = _PATTERN.fullmatch(pattern)
    if found is None or not _may_be_tool(found[1], tool):
        return False
    return found[2] is None or may_match(found[2], arguments, base)


def decide(
    tool: str,
    arguments: Mapping[str, Any],
    *,
    risky: bool,
    grants: Iterable[SkillToolRules] = (),
    within: Sequence[Sequence[str]] = (),
    base: BaseFolder = NOWHERE,
) -> RuleResult:
    """Decide whether a call is allowed.

    Args:
        tool: Name of the tool.
        arguments: Arguments of the call.
        risky: Whether the call needs approval.
        grants: Rules of the skills loaded here and in the parent sessions.
        within: Lists of patterns; each list must cover the call.
        base: Where relative paths begin.
    """
    for patterns in within:
        named = [pattern for pattern in patterns if names(pattern, tool)]
        if not named:
            return RuleResult("deny")
        if not any(covers(pattern, tool, arguments, base) for pattern in named):
            return RuleResult("deny", ", ".join(named))
    grants = tuple(grants)
    for grant in grants:
        for pattern in grant.disallowed:
            if forbids(pattern, tool, arguments, base):
                return RuleResult("deny", pattern, grant.skill)
    if not risky:
        return RuleResult("allow")
    for grant in grants:
        for pattern in grant.allowed:
            if allows(pattern, tool, arguments, base):
                return RuleResult("allow", pattern, grant.skill)
    return RuleResult("ask")


def _same_tool(pattern: str, tool: str) -> bool:
    return glob_match(pattern, tool) or ALIASES.get(pattern) == tool


def _may_be_tool(pattern: str, tool: str) -> bool:
    """Ignores case, and treats a character class as `?`."""
    tool = tool.casefold()
    ways = {pattern, re.sub(r"\[[^\]]*\]", "?", pattern)}
    ways.update(meant for name, meant in ALIASES.items() if name.casefold() == pattern.casefold())
    return any(glob_match(way.casefold(), tool) for way in ways)
