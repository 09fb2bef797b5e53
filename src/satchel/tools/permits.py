"""May a tool be called now? Pure rules over patterns; nobody is asked and nothing is called here.

A pattern names a tool, and perhaps what it is called with:

    ReadFile              the tool of that name; `Read`, as other agents call it, means it too
    excel_*               every tool whose name begins so
    Bash(git:*)           `git`, with whatever follows; not what a shell would run beside it
    Bash(npm run *)       the text with `*` for anything
    Write(docs/*)         a path below `docs`, however it is written
    WebFetch(domain:x.y)  an address on that host, or below it

A pattern that allows must match for sure; one that forbids matches in doubt. So `Bash(git:*)`
among the allowed says nothing of `git log; rm x`, and among the forbidden it says no to it. What
stands in parentheses is compared in `covering`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from satchel._language import say
from satchel.errors import InvalidInput
from satchel.skill.interpret import as_words
from satchel.tools.covering import NOWHERE, like, perhaps, surely

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from satchel.tools.covering import Place

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
