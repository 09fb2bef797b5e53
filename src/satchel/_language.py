"""Which language people read here, and how a sentence is said in it.

English sentences are the keys; `locale/<language>.json` holds the others. A sentence without a
translation is shown in English: that is visible, and a test lists it.

    say       a sentence in the reader's language, made where it is shown
    Message   a sentence in English that keeps its template and values, made where it is not known
              who reads it: a model gets the English, `render` says it to a person
"""

from __future__ import annotations

import os
from contextvars import ContextVar

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any, Self

LANGUAGES = ("en", "zh")

_MAX_SENTENCES = 20
_COUNTS = frozenset(("count", "total", "used", "budget"))
_LISTS = (list, tuple)
_KEPT = (str, int, float, list, tuple)
_tables: dict[str, dict[str, str]] = {"en": {}}
_reader: ContextVar[str] = ContextVar("satchel-language", default="")


def language() -> str:
    """Who reads here: as `speak` said, else by `SATCHEL_LANG`, else by the locale's variables."""
    if chosen := _reader.get():
        return chosen
    for variable in ("SATCHEL_LANG", "LC_ALL", "LC_MESSAGES", "LANG"):
        value = os.environ.get(variable)
        if value:
            return "zh" if value.lower().startswith("zh") else "en"
    return "en"


def speak(name: str) -> None:
    """From here on, in this task or thread alone, `name` is the reader's language.

    A server has readers of several languages at once; empty is the process's own again.
    """
    _reader.set(name if name in LANGUAGES else "")


def say(sentence: str, /, **values: object) -> str:
    """Return `sentence` in the reader's language, with `{name}` fields filled in.

    A number called `count`, `total`, `used` or `budget` is written with separators: 1,863.
    """
    chosen = language()
    if chosen != "en":
        sentence = table(chosen).get(sentence, sentence)
    for name in _COUNTS.intersection(values):
        if isinstance(number := values[name], int):
            values[name] = f"{number:,}"
    return sentence.format(**values) if values else sentence


class Message(str):
    """An English sentence that keeps what it is made of, so that `render` can translate it."""

    __slots__ = ("people", "template", "values")
    template: str
    values: dict[str, Any]
    people: str
    """What a person is told in its place, where a model gets another step; a template too."""

    def __new__(cls, template: str, /, *, people: str = "", **values: Any) -> Self:
        """Fill a template. Values are texts, numbers, messages, or lists of words."""
        values = {
            name: value if isinstance(value, _KEPT) else str(value)
            for name, value in values.items()
        }
        made = super().__new__(cls, _fill(template, values, ", ".join, str))
        made.template, made.values, made.people = template, values, people
        return made

    def __getnewargs_ex__(self) -> tuple[tuple[str], dict[str, Any]]:
        """How it is copied and pickled."""
        return (self.template,), {"people": self.people, **self.values}


def edited(text: str, change: Callable[[str], str]) -> str:
    """A text changed; of a message the texts among its values."""
    if not isinstance(text, Message):
        return change(text)
    values = {
        name: [edited(one, change) for one in value]
        if type(value) in _LISTS
        else edited(value, change)
        if isinstance(value, str)
        else value
        for name, value in text.values.items()
    }
    return Message(text.template, people=text.people, **values)


def render(text: str) -> str:
    """A message in the reader's language and for people; any other text as it is."""
    if not isinstance(text, Message):
        return text
    sentence = text.people or text.template
    sentence = table(language()).get(sentence, sentence)
    return _fill(sentence, text.values, listed, render)


def several(messages: Iterable[str]) -> str:
    """Several sentences in one, with semicolons; of many the first ones, and how many more."""
    found = [one for one in messages if one]
    if len(found) > _MAX_SENTENCES:
        found[_MAX_SENTENCES:] = [Message("and {count} more", count=len(found) - _MAX_SENTENCES)]
    made = found.pop() if found else ""
    while found:
        made = Message("{first}; {rest}", first=found.pop(), rest=made)
    return made


def pack_messages(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values for JSON: messages become texts, and `said` keeps what they are made of."""
    said = {name: found for name, value in values.items() if (found := _packed(value))}
    return (
        {**values, **{name: _plain(values[name]) for name in said}, "said": said}
        if said
        else {**values}
    )


def unpack_messages(packed: Mapping[str, Any]) -> dict[str, Any]:
    """What `pack_messages` was given; a text that `said` does not make stays as it is."""
    values = dict(packed)
    said: Any = values.pop("said", None) or {}
    try:
        for name, one in said.items():
            made = _unpacked(values[name], one)
            values[name] = made if _plain(made) == values[name] else values[name]
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        pass  # another version wrote it: the texts are shown as they are
    return values


def _packed(value: Any) -> Any:
    """What a message, or a list with messages in it, is made of; None for anything else."""
    if type(value) in _LISTS:
        found = [_packed(one) for one in value]
        return found if any(found) else None
    if not isinstance(value, Message):
        return None
    values = {name: _packed(one) or one for name, one in value.values.items()}
    return {"template": value.template, "values": values, "people": value.people}


def _unpacked(text: Any, said: Any) -> Any:
    """A value from what `_packed` made of it, and for what is no message from its text."""
    if type(said) in _LISTS:
        return [_unpacked(*pair) for pair in zip(text, said, strict=True)]
    if said is None:
        return text
    values = {
        name: _unpacked(one, one if isinstance(one, dict) else None)
        for name, one in said["values"].items()
    }
    return Message(said["template"], people=said["people"], **values)


def _plain(value: Any) -> Any:
    return [str(one) for one in value] if type(value) in _LISTS else str(value)


def _fill(
    template: str,
    values: Mapping[str, Any],
    join: Callable[[Iterable[str]], str],
    read: Callable[[str], str],
) -> str:
    filled: dict[str, Any] = {}
    for name, value in values.items():
        filled[name] = read(value) if isinstance(value, str) else value
        if type(value) in _LISTS:
            filled[name] = join(map(read, value))
    return template.format(**filled) if filled else template


def listed(words: Iterable[str]) -> str:
    """Several words after each other, with the comma that the reader's language puts there."""
    return ("、" if language() == "zh" else ", ").join(words)


def table(name: str) -> dict[str, str]:
    """The translations of one language, read once."""
    if name not in _tables:
        import json

        folder = os.path.join(os.path.dirname(__file__), "locale")
        with open(os.path.join(folder, f"{name}.json"), encoding="utf-8") as file:
            _tables[name] = json.load(file)
    return _tables[name]
