"""Rules about which tools may be called: reads tool patterns and decides about calls with them.

A pattern names a tool and, in parentheses, what it is called with (`argument_patterns`):

    ReadFile              the tool of that name; `Read`, its name in other agents, is an alias
    excel_*               every tool with that prefix
    Bash(git:*)           `git` with any arguments
    Write(docs/*)         a path below `docs`

`satchel.session.permissions` applies the rules to the calls of a session.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from satchel.errors import InvalidInput
from satchel.i18n import say
from satchel.skill.metadata import as_words
from satchel.tools.argument_patterns import UNKNOWN_BASE, glob_match, matches_certainly, may_match

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from satchel.tools.argument_patterns import BaseFolder

ALIASES = {"Read": "ReadFile"}
"""Names that other agents have for tools of ours."""
MIN_PREFIX_LETTERS = 3
"""Before the `*` in the name of a tool that a skill approves in advance."""
_TOOL_PATTERN = re.compile(r"([^()\s]+)(?:\((.*)\))?", re.DOTALL)
"""Groups: the pattern of the tool's name, and that of its arguments."""
_WORD_WITH_ARGUMENTS = re.compile(r"[^\s,()]+(?:\([^)]*\))?")


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


# --- reading patterns -------------------------------------------------------------------------


def parse_patterns(value: Any, *, forbidding: bool = False) -> tuple[str, ...]:
    """Read the patterns of a frontmatter field: a list, or one line with spaces or commas.

    Args:
        value: The field as parsed from the frontmatter.
        forbidding: Reduce a malformed pattern to the tools it names, instead of ignoring it.
    """
    if forbidding and isinstance(value, dict):
        value = list(cast("dict[Any, Any]", value))
    patterns: list[str] = []
    for word in as_words(value):
        is_balanced = word.count("(") == word.count(")") <= 1
        if _TOOL_PATTERN.fullmatch(word) and (is_balanced or not forbidding):
            patterns.append(word)
        elif forbidding and is_balanced:
            patterns += [] if word.startswith("(") else _WORD_WITH_ARGUMENTS.findall(word)
        elif forbidding:
            patterns += re.split(r"[()]", word, maxsplit=1)[0].split()
    return tuple(dict.fromkeys(patterns))


def check_patterns(value: Any) -> tuple[str, ...]:
    """Return the patterns that a host passed; one text is one pattern.

    Raises:
        InvalidInput: the value is neither a text nor a sequence of texts.
    """
    patterns: tuple[Any, ...]
    try:
        patterns = (value,) if isinstance(value, str) else tuple(value)
    except TypeError:
        patterns = (None,)
    if not all(isinstance(pattern, str) for pattern in patterns):
        raise InvalidInput(
            say("`{value}` is not valid", value=repr(value)[:60]),
            say("Give texts such as `Bash(git:*)`, in a list"),
        )
    return patterns


# --- one pattern ------------------------------------------------------------------------------


def is_overbroad(pattern: str) -> bool:
    """Whether a pattern is neither a tool's name nor a long enough prefix with `*`."""
    match = _TOOL_PATTERN.fullmatch(pattern)
    if match is None:
        return True
    prefix, star, suffix = match[1].partition("*")
    if any(sign in prefix for sign in "?[]!"):
        return True
    letters = re.sub(r"[\W_]", "", prefix)
    return bool(star) and (bool(suffix) or len(letters) < MIN_PREFIX_LETTERS)


def is_grantable(pattern: str) -> bool:
    """Whether a skill can ask for a tool with a pattern; it cannot for `RunScript`.

    A script may be any program, so only the user can grant it, in the settings.
    """
    return not is_overbroad(pattern) and not may_name_tool(pattern, "RunScript")


def is_tool_named(pattern: str, tool: str) -> bool:
    """Whether a pattern names this tool, with any arguments."""
    match = _TOOL_PATTERN.fullmatch(pattern)
    return match is not None and _is_same_name(match[1], tool)


def may_name_tool(pattern: str, tool: str) -> bool:
    """Whether a pattern may name this tool, in any spelling of the name."""
    match = _TOOL_PATTERN.fullmatch(pattern)
    return match is not None and _may_be_same_name(match[1], tool)


def is_call_granted(
    pattern: str, tool: str, arguments: Mapping[str, Any], base: BaseFolder = UNKNOWN_BASE
) -> bool:
    """Whether a skill's pattern certainly covers a call."""
    return not is_overbroad(pattern) and is_call_covered(pattern, tool, arguments, base)


def is_call_covered(
    pattern: str, tool: str, arguments: Mapping[str, Any], base: BaseFolder = UNKNOWN_BASE
) -> bool:
    """Whether a pattern certainly covers a call, however broad it is; for patterns of the host."""
    match = _TOOL_PATTERN.fullmatch(pattern)
    if match is None or not _is_same_name(match[1], tool):
        return False
    return match[2] is None or matches_certainly(match[2], arguments, base)


def is_call_forbidden(
    pattern: str, tool: str, arguments: Mapping[str, Any], base: BaseFolder = UNKNOWN_BASE
) -> bool:
    """Whether a pattern may cover a call, or a part of it."""
    match = _TOOL_PATTERN.fullmatch(pattern)
    if match is None or not _may_be_same_name(match[1], tool):
        return False
    return match[2] is None or may_match(match[2], arguments, base)


def _is_same_name(name_pattern: str, tool: str) -> bool:
    return glob_match(name_pattern, tool) or ALIASES.get(name_pattern) == tool


def _may_be_same_name(name_pattern: str, tool: str) -> bool:
    """Ignores case, and treats a character class as `?`."""
    folded_tool, folded_pattern = tool.casefold(), name_pattern.casefold()
    globs = {name_pattern, re.sub(r"\[[^\]]*\]", "?", name_pattern)}
    globs.update(name for alias, name in ALIASES.items() if alias.casefold() == folded_pattern)
    return any(glob_match(glob.casefold(), folded_tool) for glob in globs)


# --- all rules --------------------------------------------------------------------------------


def decide_call(
    tool: str,
    arguments: Mapping[str, Any],
    *,
    needs_approval: bool,
    skill_rules: Iterable[SkillToolRules] = (),
    boundaries: Sequence[Sequence[str]] = (),
    base: BaseFolder = UNKNOWN_BASE,
) -> RuleResult:
    """Decide whether a call is allowed.

    Args:
        tool: Name of the tool.
        arguments: Arguments of the call.
        needs_approval: Whether the call needs approval unless a skill's rule grants it.
        skill_rules: Rules of the skills loaded here and in the parent sessions.
        boundaries: Lists of the host's patterns; each list must cover the call.
        base: Where relative paths begin.
    """
    for patterns in boundaries:
        naming_patterns = [pattern for pattern in patterns if is_tool_named(pattern, tool)]
        if not naming_patterns:
            return RuleResult("deny")
        if not any(is_call_covered(pattern, tool, arguments, base) for pattern in naming_patterns):
            return RuleResult("deny", ", ".join(naming_patterns))
    skill_rules = tuple(skill_rules)
    for rules in skill_rules:
        for pattern in rules.disallowed:
            if is_call_forbidden(pattern, tool, arguments, base):
                return RuleResult("deny", pattern, rules.skill)
    if not needs_approval:
        return RuleResult("allow")
    for rules in skill_rules:
        for pattern in rules.allowed:
            if is_call_granted(pattern, tool, arguments, base):
                return RuleResult("allow", pattern, rules.skill)
    return RuleResult("ask")
