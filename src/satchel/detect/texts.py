"""What of a skill is searched? Its name, its description, and what its file says beyond them.

The head of a skill is at hand; `when_to_use` and tags too. The body is read from disk, once, when
the skill is indexed. A stranger's file may be of any size, so every field has an end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from satchel.detect.index.base import FIELDS, Row
from satchel.detect.terms import spelt_out, terms_of

if TYPE_CHECKING:
    from satchel.detect.index.base import Stamp
    from satchel.skill import Skill

_LIMITS = {"name": 200, "description": 2_000, "when": 2_000, "triggers": 1_000, "body": 8_000}
"""Characters of each field that are indexed."""
_NAME, _DESCRIPTION = _LIMITS["name"], _LIMITS["description"]
_TRIGGER_KEYS = ("triggers", "keywords")
"""Fields that authors write words into that should call the skill; `tags` are known to the scan."""


def stamp_of(skill: Skill) -> Stamp:
    """What tells one state of the skill's file from another."""
    head = skill.head
    return (head.mtime_ns, head.ctime_ns, head.size)


def head_texts(skill: Skill) -> dict[str, str]:
    """The fields that need no look at the disk, as written."""
    head = skill.head
    texts: dict[str, str] = {}
    if head.name:
        texts["name"] = head.name[:_NAME]
    if head.description:
        texts["description"] = head.description[:_DESCRIPTION]
    if head.extra:
        more = {"when": skill.when_to_use, "triggers": " ".join(skill.tags)}
        texts |= {field: text[: _LIMITS[field]] for field, text in more.items() if text}
    return texts


def texts_of(skill: Skill) -> dict[str, str]:
    """Every field, with the body read now.

    Raises:
        SatchelError: the file cannot be read.
    """
    texts = head_texts(skill)
    if skill.is_tool or skill.origin.remote:  # nothing of a server is fetched before it is loaded
        return texts
    document = skill.read()
    words = [texts.get("triggers", "")]
    words += [_joined(document.fields.get(key)) for key in _TRIGGER_KEYS]
    triggers = " ".join(word for word in words if word)
    if triggers:
        texts["triggers"] = triggers[: _LIMITS["triggers"]]
    texts["body"] = document.body[: _LIMITS["body"]]
    return texts


def row_of(skill: Skill, texts: dict[str, str]) -> Row:
    """A skill as the index keeps it."""
    cut = tuple(" ".join(terms_of(texts[field])) if field in texts else "" for field in FIELDS)
    return Row(skill.path, stamp_of(skill), cut)


def make_row(skill: Skill) -> Row:
    """The row of a skill, its file read now.

    Raises:
        SatchelError: the file cannot be read.
    """
    return row_of(skill, texts_of(skill))


def head_row(skill: Skill) -> Row:
    """The row of what the scan kept, without the body: nothing is read."""
    return row_of(skill, head_texts(skill))


def for_vectors(skill: Skill) -> tuple[str, str]:
    """What a model is given: the name, and the name with what the skill says it does."""
    texts = head_texts(skill)
    name = spelt_out(texts.get("name", ""))
    about = ". ".join(text for text in (texts.get("description"), texts.get("when")) if text)
    return name, f"{name}: {about}" if name else about


def _joined(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return " ".join(item for item in cast("list[Any]", value) if isinstance(item, str))
    return ""
