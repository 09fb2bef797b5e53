"""Name, description and listed extras from frontmatter fields.

Only a missing description or the lack of any usable name makes a skill unusable; everything else,
such as an upper-case name, is a warning.
"""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING, Any, NamedTuple

from satchel._unicode import INVISIBLE, JOINERS
from satchel.skill.fields import LISTED
from satchel.skill.problems import Problem
from satchel.skill.requirements import read_requirements
from satchel.skill.yaml_reader import kind_of

if TYPE_CHECKING:
    from satchel.skill.frontmatter_fields import ParsedFields

NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
"""Recommended pattern of names (matched whole)."""
UNWRITTEN = re.compile(
    r"[ \t>*#-]*(?:To be written\b|TODO\b(?=:)|TBD\b(?=[.:]|$)|\[TODO[:\]]|Lorem ipsum\b|"
    r"\[insert [^\]]*\]"
    r"|Description (?:goes )?here\b|待编写|待补充|在此填写)",
    re.IGNORECASE,
)
"""Template placeholders at the start of a line; elsewhere they are prose."""
MAX_NAME_CHARS = 64
MAX_DESCRIPTION_CHARS = 1024
_MAX_USABLE_NAME_CHARS = 200
"""A longer "name" is prose: that of the folder is used."""
_MAX_EXTRA_CHARS = 4096
_FLAGS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_WORD = re.compile(r"[^\s(]+(?:\([^)]*\))?|\([^)]*\)")
"""A word of a line that is split at spaces outside parentheses, as in `Bash(git log)`."""


class MetadataResult(NamedTuple):
    """Name, description and extras of a skill."""

    name: str
    description: str
    extra: dict[str, Any] | None
    is_usable: bool


def interpret_fields(fields: ParsedFields, folder: str, problems: list[Problem]) -> MetadataResult:
    """Derive name, description and extras; problems are added to `problems`."""
    name = _read_name(fields, folder, problems)
    description = _read_description(fields, problems)
    if not description:
        line = fields.lines.get("description", 0)
        problems.append(Problem("description-missing", line=line))
    return MetadataResult(name, description, _read_extra(fields), bool(name and description))


def strip_invisible(text: str, key: str, line: int, problems: list[Problem]) -> str:
    """Remove invisible characters, except those that shape emoji and Indic or Arabic script."""
    if text.isascii() or not INVISIBLE.search(text):
        return text
    names: list[str] = []

    def replace(match: re.Match[str]) -> str:
        char = match.group()
        before, after = text[: match.start()][-1:], text[match.end() :][:1]
        if char in JOINERS and before and after and _is_joinable(before) and _is_joinable(after):
            return char
        names.append(f"U+{ord(char):04X}")
        return ""

    clean = INVISIBLE.sub(replace, text)
    if names:
        listed_names = ", ".join(dict.fromkeys(names[:4]))
        values = {"key": key, "count": str(len(names)), "names": listed_names}
        problems.append(Problem("invisible-characters", line=line, values=values))
    return clean


def too_long(key: str, text: str, limit: int, line: int) -> Problem:
    """The problem of a field that exceeds the limit of the specification."""
    code = f"{key if key in ('name', 'description') else 'field'}-too-long"
    values = {"key": key, "length": str(len(text)), "limit": str(limit)}
    return Problem(code, line=line, values=values)


def _is_joinable(char: str) -> bool:
    """Whether a joiner beside `char` has an effect: emoji, marks, and joining scripts."""
    return unicodedata.category(char) in ("So", "Sk", "Mn", "Mc", "Lo")


def _read_name(fields: ParsedFields, folder: str, problems: list[Problem]) -> str:
    value = fields.values.get("name")
    line = fields.lines.get("name", 0)
    if value is not None and not isinstance(value, str):
        text = fields.texts.get("name", "")
        kind = kind_of(value)
        is_usable = not isinstance(value, (list, dict)) and bool(text.strip())
        value = text if is_usable else folder
        problems.append(Problem("name-not-text", line=line, values={"key": "name", "kind": kind}))
    if value:
        value = " ".join(strip_invisible(value, "name", line, problems).split())
    if value and ("/" in value or "\\" in value):
        # A name that looks like a path could be mistaken for another skill.
        values = {"name": value, "better": slug(value)}
        problems.append(Problem("name-pattern", line=line, values=values))
        value = slug(value)
    if not value or len(value) > _MAX_USABLE_NAME_CHARS:
        if value:
            problems.append(too_long("name", value, MAX_NAME_CHARS, line))
        value = folder
        if not value:
            problems.append(Problem("name-unusable", line=line))
            return ""
        problems.append(Problem("name-missing", line=line, values={"name": value}))
    problems += _check_name(value, folder, line)
    return value


def _check_name(value: str, folder: str, line: int) -> list[Problem]:
    """Problems of a name that can be used."""
    problems: list[Problem] = []
    if len(value) > MAX_NAME_CHARS:
        problems.append(too_long("name", value, MAX_NAME_CHARS, line))
    if not NAME.fullmatch(value):
        values = {"name": value, "better": slug(value)}
        problems.append(Problem("name-pattern", line=line, values=values))
    if folder and value != folder:
        values = {"name": value, "folder": folder}
        problems.append(Problem("name-mismatch", line=line, values=values))
    return problems


def slug(name: str) -> str:
    """The most similar valid name; `my-skill` when nothing of it is valid."""
    return id_of(name) or "my-skill"


def id_of(name: str) -> str:
    """The most similar valid name; empty for names such as `会议纪要`."""
    ascii_name = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", ascii_name).strip("-")[:MAX_NAME_CHARS].strip("-")


def _read_description(fields: ParsedFields, problems: list[Problem]) -> str:
    value = fields.values.get("description")
    line = fields.lines.get("description", 0)
    if value is None:
        return ""
    if not isinstance(value, str):
        values = {"key": "description", "kind": kind_of(value)}
        problems.append(Problem("description-not-text", line=line, values=values))
        value = fields.texts.get("description", "")
    value = strip_invisible(value, "description", line, problems)
    clean = value.strip()
    if clean != value.strip("\n") and clean:
        problems.append(Problem("description-spaces", line=line))
    if len(clean) > MAX_DESCRIPTION_CHARS:
        problems.append(too_long("description", clean, MAX_DESCRIPTION_CHARS, line))
    return clean


def _read_extra(fields: ParsedFields) -> dict[str, Any] | None:
    extra: dict[str, Any] = {}
    values = fields.values
    for key in LISTED:
        value = values.get(key)
        if value is None:
            continue
        if key in ("disable-model-invocation", "user-invocable"):
            flag = as_flag(value)
            if flag is not None:
                extra[key] = flag
        elif key == "tags":
            extra[key] = as_words(value)
        else:
            text = value if isinstance(value, str) else fields.texts.get(key, "")
            extra[key] = strip_invisible(text, key, 0, []).strip()[:_MAX_EXTRA_CHARS]
    if requirements := read_requirements(values):
        extra["requires"] = requirements
    return extra or None


def as_flag(value: Any) -> bool | None:
    """A boolean in any common spelling, or None."""
    if isinstance(value, bool):
        return value
    return _FLAGS.get(value.strip().lower()) if isinstance(value, str) else None


def as_words(value: Any) -> tuple[str, ...]:
    """A YAML list, or a line separated by commas or spaces."""
    if isinstance(value, str):
        words = value.split(",") if "," in value else _WORD.findall(value)
        return tuple(word.strip() for word in words if word.strip())
    if isinstance(value, (list, tuple)):
        return tuple(str(item).strip() for item in value if item is not None)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return ()
