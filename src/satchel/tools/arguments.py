r"""Substitutes the arguments of a Skill call in the skill's text.

    $ARGUMENTS        all of them, as given
    $ARGUMENTS[0]     one of them, counted from zero
    $1                one of them, counted from one
    $name             one of them, by the names in the `arguments` field
    ${SKILL_DIR}      the skill's folder (also `${CLAUDE_SKILL_DIR}`)
    \$ARGUMENTS        the placeholder itself, without the backslash

Arguments are split as a shell would, with quotes. The text is scanned once, so that a placeholder
in an argument is not substituted. Arguments without a placeholder are appended as `ARGUMENTS: …`.
With empty arguments nothing is appended and placeholders become empty.

In real skills `$1` is mostly money, SQL or awk. It is a placeholder only where the author uses
arguments: the fields `arguments` or `argument-hint`, or `$ARGUMENTS` in the text.
"""

from __future__ import annotations

import re
from typing import Any

from satchel.skill.metadata import as_words

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
# The outer group of each form closes last, so that `lastgroup` is its kind.
_PLACEHOLDER_FORMS = (
    r"(?P<all>\\?\$ARGUMENTS(?:\[(?P<index>\d{1,3})\]|(?![A-Za-z0-9_])))"
    r"|(?P<folder>\\?\$\{(?:CLAUDE_)?SKILL_DIR\})"
    r"|(?P<position>\\?(?<![A-Za-z0-9_$])\$(?P<number>[1-9])(?![A-Za-z0-9_]|[.,]\d))"
)
_PLACEHOLDER = re.compile(_PLACEHOLDER_FORMS)
_HINTED_ARGUMENT = re.compile(r"\[[^\]]*\]|<[^>]*>|\S+")


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
    """Split as a shell would, at spaces where quotes do not close. Backslashes stay."""
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
) -> str:
    """Substitute `args` in `body`.

    Args:
        body: The skill's text.
        args: The arguments, in one line.
        base_dir: Value of `${SKILL_DIR}`.
        names: The names in the skill's `arguments` field, in order.
        hint: Its `argument-hint` field, which implies their number.
    """
    has_arguments = bool(args.strip())
    if "$" not in body:
        return _append(body, args) if has_arguments else body
    substitution = _Substitution(body, args if has_arguments else "", base_dir, names, hint)
    text = substitution.pattern.sub(substitution.replace, body)
    is_complete = not has_arguments or substitution.used_every_argument()
    return text if is_complete else _append(text, args)


def _append(text: str, args: str) -> str:
    return f"{text.rstrip()}\n\nARGUMENTS: {args.strip()}"


class _Substitution:
    def __init__(
        self, body: str, args: str, base_dir: str, names: tuple[str, ...], hint: str
    ) -> None:
        self._args = args
        self._base_dir = base_dir
        self._names = names
        self._words = split_arguments(args)
        self._declared_count = len(names) or len(_HINTED_ARGUMENT.findall(hint))
        self._uses_arguments = bool(self._declared_count) or "$ARGUMENTS" in body
        self._used_whole_text = False
        self._used_indexes: set[int] = set()
        self.pattern = _PLACEHOLDER
        if names:
            # The longest first, so that `$issue_id` is not read as `$issue`.
            choice = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
            named = rf"(?P<named>\\?\$(?P<name>{choice})(?![A-Za-z0-9_]))"
            self.pattern = re.compile(f"{_PLACEHOLDER_FORMS}|{named}")

    def used_every_argument(self) -> bool:
        """Whether every argument was used; False when there is none."""
        if self._used_whole_text:
            return True
        return bool(self._words) and len(self._used_indexes) == len(self._words)

    def replace(self, match: re.Match[str]) -> str:
        """The replacement of one placeholder."""
        placeholder = match.group()
        kind = match.lastgroup
        value = self._replacement(match, str(kind))
        if value is None:
            return placeholder
        return placeholder[1:] if placeholder.startswith("\\") else value

    def _replacement(self, match: re.Match[str], kind: str) -> str | None:
        """The value of a placeholder, which counts as used unless it is escaped."""
        escaped = match.group().startswith("\\")
        if kind == "folder":
            return self._base_dir
        if kind == "all":
            index = match.group("index")
            if index is not None:
                return self._word(int(index), escaped=escaped)
            self._used_whole_text = self._used_whole_text or not escaped
            return self._args
        if kind == "named":
            return self._word(self._names.index(match.group("name")), escaped=escaped)
        number = int(match.group("number"))
        if not self._uses_arguments or number > max(len(self._words), self._declared_count):
            return None
        return self._word(number - 1, escaped=escaped)

    def _word(self, index: int, *, escaped: bool) -> str:
        """One argument, which counts as used unless its placeholder is escaped."""
        if index >= len(self._words):
            return ""
        if not escaped:
            self._used_indexes.add(index)
        return self._words[index]
