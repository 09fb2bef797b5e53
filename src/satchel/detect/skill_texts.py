"""The texts of a skill that are searched: by the word index and by embeddings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from satchel.detect.index import FIELDS, IndexRow, file_stamp
from satchel.detect.tokenizer import extract_terms, split_name

if TYPE_CHECKING:
    from satchel.skill import Skill

_MAX_FIELD_CHARS = {
    "name": 200,
    "description": 2_000,
    "when": 2_000,
    "triggers": 1_000,
    "body": 8_000,
}
"""Indexed characters per field."""
_TRIGGER_KEYS = ("triggers", "keywords")
"""Frontmatter fields with trigger words; `tags` come with the scan."""


def header_texts(skill: Skill) -> dict[str, str]:
    """Return the fields that the scan has read."""
    head = skill.head
    texts: dict[str, str] = {}
    if head.name:
        texts["name"] = head.name[: _MAX_FIELD_CHARS["name"]]
    if head.description:
        texts["description"] = head.description[: _MAX_FIELD_CHARS["description"]]
    if head.extra:
        extra = {"when": skill.when_to_use, "triggers": " ".join(skill.tags)}
        texts |= {field: text[: _MAX_FIELD_CHARS[field]] for field, text in extra.items() if text}
    return texts


def read_texts(skill: Skill) -> dict[str, str]:
    """Return all fields; reads the body from disk.

    Raises:
        SatchelError: the file cannot be read.
    """
    texts = header_texts(skill)
    if skill.is_tool or skill.origin.remote:  # remote files are not fetched before they are loaded
        return texts
    document = skill.read()
    words = [texts.get("triggers", "")]
    words += [_join_words(document.fields.get(key)) for key in _TRIGGER_KEYS]
    triggers = " ".join(word for word in words if word)
    if triggers:
        texts["triggers"] = triggers[: _MAX_FIELD_CHARS["triggers"]]
    texts["body"] = document.body[: _MAX_FIELD_CHARS["body"]]
    return texts


def make_row_from_texts(skill: Skill, texts: dict[str, str]) -> IndexRow:
    """Return the index row of a skill."""
    fields = tuple(" ".join(extract_terms(texts.get(field, ""))) for field in FIELDS)
    return IndexRow(skill.path, file_stamp(skill), fields)


def make_row(skill: Skill) -> IndexRow:
    """Return the index row of a skill; reads its file.

    Raises:
        SatchelError: the file cannot be read.
    """
    return make_row_from_texts(skill, read_texts(skill))


def make_header_row(skill: Skill) -> IndexRow:
    """Return the index row of a skill without its body; reads nothing."""
    return make_row_from_texts(skill, header_texts(skill))


def embedding_texts(skill: Skill) -> tuple[str, str]:
    """Return the texts to embed: the name, and the name with the description."""
    texts = header_texts(skill)
    name = split_name(texts.get("name", ""))
    about = ". ".join(text for text in (texts.get("description"), texts.get("when")) if text)
    return name, f"{name}: {about}" if name else about


def _join_words(value: Any) -> str:
    """Return the text, or the texts of a list, in a field of the frontmatter."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return " ".join(item for item in cast("list[Any]", value) if isinstance(item, str))
    return ""
