r"""How the arguments of a Skill call enter the skill's text.

    $ARGUMENTS        all of them, as given
    $ARGUMENTS[0]     one of them, counted from zero
    $1                one of them, counted from one
    $name             one of them, by the names in the `arguments` field
    ${SKILL_DIR}      the skill's folder (also `${CLAUDE_SKILL_DIR}`)
    \$ARGUMENTS        the placeholder itself: the backslash goes, the rest stays

Arguments are split as a shell would, quotes hold words together. The text is gone through once, so
that what came in with an argument is never taken for a placeholder. What no placeholder took is
appended as `ARGUMENTS: …`, so that nothing the caller gave is lost. With empty arguments nothing
is appended and placeholders become empty.

`$1` needs care: in real skills it is mostly money, SQL or awk. It is a placeholder where the author
uses arguments (the fields `arguments` or `argument-hint`, or `$ARGUMENTS` in the text). Elsewhere
it is one only in prose, and only when that argument was given.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from satchel.skill.interpret import as_words

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_FENCE = re.compile(r"^[ \t]*(```|~~~).*?(?:^[ \t]*\1|\Z)", re.MULTILINE | re.DOTALL)
_PROSE = re.compile(
    r"(?<![&.}/–-])\\?\$\d(?![$(\[]|[.,:%+/–-][\w$]| ?(?:million|billion|per|USD)\b)"
)
"""`$1` as a word of a sentence, and not as an amount of money."""
_FORMS = (
    r"(?P<all>\\?\$ARGUMENTS(?:\[(?P<index>\d{1,3})\]|(?![A-Za-z0-9_])))"
    r"|(?P<folder>\\?\$\{(?:CLAUDE_)?SKILL_DIR\})"
    r"|(?P<place>\\?(?<![A-Za-z0-9_$])\$(?P<number>[1-9])(?![A-Za-z0-9_]|[.,]\d))"
)
_PLAIN = re.compile(_FORMS)
_HINTED = re.compile(r"\[[^\]]*\]|<[^>]*>|\S+")


class Applied(NamedTuple):
    """A skill's text with its arguments in place."""

    text: str
    filled: int
    """How many placeholders were filled."""
    appended: bool
    """Whether the arguments were added at the end."""


def argument_names(value: Any) -> tuple[str, ...]:
    """The names in an `arguments` field: a list, one line, or a list of tables with `name`."""
    if isinstance(value, dict):
        words = tuple(str(key) for key in value)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    elif isinstance(value, list):
        items = [item.get("name") if isinstance(item, dict) else item for item in value]  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
        words = as_words(items)
    else:
        words = as_words(value)
    return tuple(word for word in words if _NAME.fullmatch(word))


def split_arguments(args: str) -> list[str]:
    """Split as a shell would; where quotes do not close, at spaces. Backslashes stay."""
    if '"' not in args and "'" not in args:
        return args.split()
    import shlex

    reader = shlex.shlex(args, posix=True, punctuation_chars=False)
    reader.whitespace_split = True
    reader.commenters = ""
    reader.escape = ""
    try:
        return list(reader)
    except ValueError:
        return args.split()


def apply_arguments(
    body: str, args: str, *, base_dir: str, names: tuple[str, ...] = (), hint: str = ""
) -> Applied:
    """Put `args` into `body`.

    Args:
        body: The skill's text.
        args: What the caller gave, in one line.
        base_dir: What `${SKILL_DIR}` stands for.
        names: The names in the skill's `arguments` field, in order.
        hint: Its `argument-hint` field, which says how many it takes.
    """
    given = bool(args.strip())
    if "$" not in body:
        return _append(body, args, 0) if given else Applied(body, 0, appended=False)
    filling = _Filling(body, args if given else "", base_dir, names, hint)
    text = filling.pattern.sub(filling.fill, body)
    if given and not filling.complete():
        return _append(text, args, filling.filled)
    return Applied(text, filling.filled, appended=False)


def _append(text: str, args: str, filled: int) -> Applied:
    return Applied(f"{text.rstrip()}\n\nARGUMENTS: {args.strip()}", filled, appended=True)


class _Filling:
    """One pass over one text."""

    def __init__(
        self, body: str, args: str, base_dir: str, names: tuple[str, ...], hint: str
    ) -> None:
        self._body = body
        self._args = args
        self._base_dir = base_dir
        self._names = names
        self._words = split_arguments(args)
        self._promised = len(names) or len(_HINTED.findall(hint))
        self._at_ease = bool(self._promised) or "$ARGUMENTS" in body
        self._fences: list[tuple[int, int]] | None = None
        self._whole = False
        self._taken: set[int] = set()
        self.filled = 0
        self.pattern = _PLAIN
        if names:
            # The longest first, so that `$issue_id` is not read as `$issue`.
            choice = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
            named = rf"(?P<named>\\?\$(?P<name>{choice})(?![A-Za-z0-9_]))"
            self.pattern = re.compile(f"{_FORMS}|{named}")

    def complete(self) -> bool:
        """Whether every argument went somewhere."""
        return self._whole or len(self._taken) == len(self._words) > 0

    def fill(self, match: re.Match[str]) -> str:
        """What stands in place of one placeholder."""
        found = match.group()
        kind = match.lastgroup
        value = self._value(match, str(kind))
        if value is None:
            return found
        if found.startswith("\\"):
            return found[1:]
        self.filled += 1
        return value

    def _value(self, match: re.Match[str], kind: str) -> str | None:
        escaped = match.group().startswith("\\")
        if kind == "folder":
            return self._base_dir
        if kind == "all":
            index = match.group("index")
            if index is not None:
                return self._word(int(index), escaped=escaped)
            self._whole = self._whole or not escaped
            return self._args
        if kind == "named":
            return self._word(self._names.index(match.group("name")), escaped=escaped)
        number = int(match.group("number"))
        if number > len(self._words) and number > self._promised:
            return None
        if not self._at_ease and not self._in_prose(match.start()):
            return None
        return self._word(number - 1, escaped=escaped)

    def _word(self, index: int, *, escaped: bool) -> str:
        if index >= len(self._words):
            return ""
        if not escaped:
            self._taken.add(index)
        return self._words[index]

    def _in_prose(self, at: int) -> bool:
        if not _PROSE.match(self._body, at):
            return False
        if self._fences is None:
            self._fences = [match.span() for match in _FENCE.finditer(self._body)]
        return not any(start <= at < end for start, end in self._fences)
