"""Fields of a frontmatter -> the name, description and listed extras of a Head.

Warn, do not refuse: an upper-case name or a long description still makes a usable skill. Only a
missing description, or no usable name at all, keeps a skill out.
"""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING, Any, NamedTuple

from satchel.skill.fields import LISTED
from satchel.skill.problems import Problem
from satchel.skill.yaml_block import kind_of

if TYPE_CHECKING:
    from satchel.skill.frontmatter import Fields

NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
"""What a name should look like (matched whole)."""
MAX_NAME = 64
MAX_DESCRIPTION = 1024
_NAME_LIMIT = 200  # beyond this a "name" is prose: the folder's is used
_MAX_EXTRA = 4096

INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    "\u3164\ufeff\uffa0\U000e0000-\U000e0fff]"
)
"""Characters that show nothing: hidden text lives here. ZWJ and ZWNJ are judged in context."""
_JOINERS = "\u200c\u200d"


class Reading(NamedTuple):
    """What the fields mean."""

    name: str
    description: str
    extra: dict[str, Any] | None
    usable: bool


def interpret(fields: Fields, folder: str, problems: list[Problem]) -> Reading:
    """Work out name, description and extras; what is odd goes to `problems`."""
    name = _name(fields, folder, problems)
    description = _description(fields, problems)
    if not description:
        line = fields.lines.get("description", 0)
        problems.append(Problem("description-missing", line=line))
    return Reading(name, description, _extra(fields), bool(name and description))


def visible(text: str, key: str, line: int, problems: list[Problem]) -> str:
    """Remove invisible characters; those that shape emoji and Indic or Arabic script stay."""
    if text.isascii() or not INVISIBLE.search(text):
        return text
    names: list[str] = []

    def judge(match: re.Match[str]) -> str:
        char = match.group()
        before, after = text[: match.start()][-1:], text[match.end() :][:1]
        if char in _JOINERS and before and after and _joins(before) and _joins(after):
            return char
        names.append(f"U+{ord(char):04X}")
        return ""

    clean = INVISIBLE.sub(judge, text)
    if names:
        shown = ", ".join(dict.fromkeys(names[:4]))
        values = {"key": key, "count": str(len(names)), "names": shown}
        problems.append(Problem("invisible-characters", line=line, values=values))
    return clean


def _joins(char: str) -> bool:
    """Whether a joiner beside `char` has a meaning: emoji, marks, and joining scripts."""
    return unicodedata.category(char) in ("So", "Sk", "Mn", "Mc", "Lo")


def _name(fields: Fields, folder: str, problems: list[Problem]) -> str:
    value = fields.values.get("name")
    line = fields.lines.get("name", 0)
    if value is not None and not isinstance(value, str):
        text = fields.texts.get("name", "")
        kind = kind_of(value)
        usable = not isinstance(value, (list, dict)) and bool(text.strip())
        value = text if usable else folder
        problems.append(Problem("name-not-text", line=line, values={"kind": kind, "name": value}))
    if value:
        value = " ".join(visible(value, "name", line, problems).split())
    if value and ("/" in value or "\\" in value):
        # A name that looks like a path could stand for another skill: it becomes a word.
        values = {"name": value, "better": slug(value)}
        problems.append(Problem("name-pattern", line=line, values=values))
        value = slug(value)
    if not value or len(value) > _NAME_LIMIT:
        if value:
            values = {"length": str(len(value))}
            problems.append(Problem("name-too-long", line=line, values=values))
        value = folder
        if not value:
            problems.append(Problem("name-unusable", line=line))
            return ""
        problems.append(Problem("name-missing", line=line, values={"name": value}))
    if len(value) > MAX_NAME:
        problems.append(Problem("name-too-long", line=line, values={"length": str(len(value))}))
    if not NAME.fullmatch(value):
        values = {"name": value, "better": slug(value)}
        problems.append(Problem("name-pattern", line=line, values=values))
    if folder and value != folder:
        values = {"name": value, "folder": folder}
        problems.append(Problem("name-mismatch", line=line, values=values))
    return value


def slug(name: str) -> str:
    """The nearest name that follows the pattern; a word of ours where nothing of it does."""
    return id_of(name) or "my-skill"


def id_of(name: str) -> str:
    """The same; empty where a name has nothing that an id can be made of, such as `会议纪要`."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:MAX_NAME].strip("-")


def _description(fields: Fields, problems: list[Problem]) -> str:
    value = fields.values.get("description")
    line = fields.lines.get("description", 0)
    if value is None:
        return ""
    if not isinstance(value, str):
        kind = kind_of(value)
        problems.append(Problem("description-not-text", line=line, values={"kind": kind}))
        value = fields.texts.get("description", "")
    value = visible(value, "description", line, problems)
    clean = value.strip()
    if clean != value.strip("\n") and clean:
        problems.append(Problem("description-spaces", line=line))
    if len(clean) > MAX_DESCRIPTION:
        values = {"length": str(len(clean))}
        problems.append(Problem("description-too-long", line=line, values=values))
    return clean


def _extra(fields: Fields) -> dict[str, Any] | None:
    found: dict[str, Any] = {}
    values = fields.values
    for key in LISTED:
        value = values.get(key)
        if value is None:
            continue
        if key in ("disable-model-invocation", "user-invocable"):
            flag = as_flag(value)
            if flag is not None:
                found[key] = flag
        elif key == "tags":
            found[key] = as_words(value)
        else:
            text = value if isinstance(value, str) else fields.texts.get(key, "")
            found[key] = visible(text, key, 0, []).strip()[:_MAX_EXTRA]
    return found or None


def as_flag(value: Any) -> bool | None:
    """A yes-or-no value as people write it, or None."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        return {
            "true": True,
            "yes": True,
            "on": True,
            "false": False,
            "no": False,
            "off": False,
        }.get(value.strip().lower())
    return None


def as_words(value: Any) -> tuple[str, ...]:
    """A list as people write it: a YAML list, or one line with commas or spaces."""
    if isinstance(value, str):
        parts = value.split(",") if "," in value else _outside_parentheses(value)
        return tuple(part.strip() for part in parts if part.strip())
    if isinstance(value, (list, tuple)):
        return tuple(str(item).strip() for item in value if item is not None)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return ()


def _outside_parentheses(line: str) -> list[str]:
    """Split at spaces, but keep `Bash(git log)` together."""
    return re.findall(r"[^\s(]+(?:\([^)]*\))?|\([^)]*\)", line)
