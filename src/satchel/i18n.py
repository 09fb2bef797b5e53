"""Translation of sentences for people.

English sentences are the keys; `locale/<language>.json` holds the others. A sentence without a
translation is shown in English: that is visible, and a test lists it.

    say       translates a sentence at once
    Message   an English sentence that keeps its template and values, for text that both models and
              people read: models get the English, `render` translates it for people
"""

from __future__ import annotations

import os
from contextvars import ContextVar

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any, Self

LANGUAGES = ("en", "zh")

_MAX_JOINED_SENTENCES = 20
_MAX_COMPARED_CHARS = 64
_COUNTS = frozenset(("count", "total", "used", "budget"))
_LIST_TYPES = (list, tuple)
_VALUE_TYPES = (str, int, float, list, tuple)
_tables: dict[str, dict[str, str]] = {"en": {}}
_reader: ContextVar[str] = ContextVar("satchel-language", default="")


def language() -> str:
    """The user's language: set by `set_language`, else by `SATCHEL_LANG`, else by the locale."""
    if reader_language := _reader.get():
        return reader_language
    for variable in ("SATCHEL_LANG", "LC_ALL", "LC_MESSAGES", "LANG"):
        value = os.environ.get(variable)
        if value:
            return language_of(value)
    return "en"


def model_language() -> str:
    """The language of tools for the model: by `SATCHEL_LANG` alone.

    Another locale of the terminal must not change the prompt, which the provider caches.
    """
    return language_of(os.environ.get("SATCHEL_LANG", ""))


def language_of(name: str) -> str:
    """Simplified Chinese or English. Traditional Chinese is not translated: it gets English."""
    name = name.lower().replace("_", "-")
    traditional = name.startswith(("zh-hant", "zh-tw", "zh-hk", "zh-mo"))
    return "zh" if name.startswith("zh") and not traditional else "en"


def set_language(name: str) -> None:
    """Set the language of this task or thread; empty resets it to that of the process."""
    _reader.set(name if name in LANGUAGES else "")


def say(sentence: str, /, **values: object) -> str:
    """Return `sentence` in the user's language, with `{name}` fields filled in.

    Numbers named `count`, `total`, `used` or `budget` get thousands separators: 1,863.
    """
    reader_language = language()
    if reader_language != "en":
        sentence = table(reader_language).get(sentence, sentence)
    for name in _COUNTS.intersection(values):
        if isinstance(number := values[name], int):
            values[name] = f"{number:,}"
    return sentence.format(**values) if values else sentence


class Message(str):
    """An English sentence that keeps its template and values, so that `render` can translate it."""

    __slots__ = ("people", "template", "values")
    template: str
    values: dict[str, Any]
    people: str
    """Another template for people, where the model's next step differs from theirs."""

    def __new__(cls, template: str, /, *, people: str = "", **values: Any) -> Self:
        """Fill a template. Values are texts, numbers, messages, or lists of texts."""
        values = {
            name: value if isinstance(value, _VALUE_TYPES) else str(value)
            for name, value in values.items()
        }
        message = super().__new__(cls, _fill(template, values, ", ".join, str))
        message.template, message.values, message.people = template, values, people
        return message

    def __getnewargs_ex__(self) -> tuple[tuple[str], dict[str, Any]]:
        """Copy and pickle by template and values."""
        return (self.template,), {"people": self.people, **self.values}


def map_text(text: str, change: Callable[[str], str]) -> str:
    """Apply a function to a text, or to the texts among a message's values."""
    if not isinstance(text, Message):
        return change(text)
    values = {
        name: [map_text(item, change) for item in value]
        if type(value) in _LIST_TYPES
        else map_text(value, change)
        if isinstance(value, str)
        else value
        for name, value in text.values.items()
    }
    return Message(text.template, people=text.people, **values)


def render(text: str) -> str:
    """Translate a message for people; return any other text unchanged."""
    if not isinstance(text, Message):
        return text
    sentence = text.people or text.template
    sentence = table(language()).get(sentence, sentence)
    return _fill(sentence, text.values, join_names, render)


def for_model(text: str) -> str:
    """A message in the language of tools for the model, in its words for the model."""
    if not isinstance(text, Message) or model_language() == "en":
        return text
    sentence = table("zh").get(text.template, text.template)
    return _fill(sentence, text.values, "、".join, for_model)


def join_messages(messages: Iterable[str]) -> str:
    """Join sentences with semicolons; of many only the first, and the number of the rest."""
    sentences = [message for message in messages if message]
    if len(sentences) > _MAX_JOINED_SENTENCES:
        hidden_count = len(sentences) - _MAX_JOINED_SENTENCES
        sentences[_MAX_JOINED_SENTENCES:] = [Message("and {count} more", count=hidden_count)]
    joined = sentences.pop() if sentences else ""
    while sentences:
        joined = Message("{first}; {rest}", first=sentences.pop(), rest=joined)
    return joined


def pack_messages(values: Mapping[str, Any]) -> dict[str, Any]:
    """Convert values for JSON: messages become texts, and `said` keeps their templates."""
    messages = {name: packed for name, value in values.items() if (packed := _packed(value))}
    return (
        {**values, **{name: _plain(values[name]) for name in messages}, "said": messages}
        if messages
        else {**values}
    )


def unpack_messages(packed: Mapping[str, Any]) -> dict[str, Any]:
    """Restore the values given to `pack_messages`; a text that `said` does not match stays."""
    values = dict(packed)
    messages: Any = values.pop("said", None) or {}
    try:
        for name, packed_message in messages.items():
            message = _unpacked(values[name], packed_message)
            values[name] = message if _plain(message) == values[name] else values[name]
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        pass  # written by another version: keep the texts
    return values


def _packed(value: Any) -> Any:
    """The parts of a message, or of a list with messages; None for anything else."""
    if type(value) in _LIST_TYPES:
        items = [_packed(item) for item in value]
        return items if any(items) else None
    if not isinstance(value, Message):
        return None
    values = {name: _packed(inner) or inner for name, inner in value.values.items()}
    return {"template": value.template, "values": values, "people": value.people}


def _unpacked(text: Any, packed: Any) -> Any:
    if type(packed) in _LIST_TYPES:
        return [_unpacked(*pair) for pair in zip(text, packed, strict=True)]
    if packed is None:
        return text
    values = {
        name: _unpacked(inner, inner if isinstance(inner, dict) else None)
        for name, inner in packed["values"].items()
    }
    return Message(packed["template"], people=packed["people"], **values)


def _plain(value: Any) -> Any:
    return [str(item) for item in value] if type(value) in _LIST_TYPES else str(value)


def _fill(
    template: str,
    values: Mapping[str, Any],
    join: Callable[[Iterable[str]], str],
    read: Callable[[str], str],
) -> str:
    filled: dict[str, Any] = {}
    for name, value in values.items():
        filled[name] = read(value) if isinstance(value, str) else value
        if type(value) in _LIST_TYPES:
            filled[name] = join(map(read, value))
    return template.format(**filled) if filled else template


def join_names(words: Iterable[str]) -> str:
    """Join words with the comma of the user's language."""
    return ("、" if language() == "zh" else ", ").join(words)


def similar_names(
    name: str, candidates: Iterable[str], count: int = 1, *, ratio: float = 0.6
) -> list[str]:
    """Known names that `name` may misspell, the most similar first."""
    from difflib import get_close_matches

    return get_close_matches(name[:_MAX_COMPARED_CHARS], list(candidates), count, cutoff=ratio)


def did_you_mean(names: Iterable[str]) -> str:
    """The hint that suggests names; empty without any."""
    joined = join_names(f"`{name}`" for name in names)
    return say("Did you mean {names}?", names=joined) if joined else ""


def table(name: str) -> dict[str, str]:
    """The translations of one language; read once."""
    if name not in _tables:
        import json

        folder = os.path.join(os.path.dirname(__file__), "locale")
        with open(os.path.join(folder, f"{name}.json"), encoding="utf-8") as file:
            _tables[name] = json.load(file)
    return _tables[name]
