"""Which language people read here, and how a sentence is said in it.

English sentences are the keys; `locale/<language>.json` holds the others. A sentence without a
translation is shown in English: that is visible, and a test lists it.
"""

from __future__ import annotations

import os
from contextvars import ContextVar

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

LANGUAGES = ("en", "zh")

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
    """Return `sentence` in the reader's language, with `{name}` fields filled in."""
    chosen = language()
    if chosen != "en":
        sentence = table(chosen).get(sentence, sentence)
    return sentence.format(**values) if values else sentence


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
