"""Which language people read here, and how a sentence is said in it.

English sentences are the keys; `locale/<language>.json` holds the others. A sentence without a
translation is shown in English: that is visible, and a test lists it.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

LANGUAGES = ("en", "zh")

_tables: dict[str, dict[str, str]] = {"en": {}}


def language() -> str:
    """The language by `SATCHEL_LANG`, else by the usual locale variables."""
    for variable in ("SATCHEL_LANG", "LC_ALL", "LC_MESSAGES", "LANG"):
        value = os.environ.get(variable)
        if value:
            return "zh" if value.lower().startswith("zh") else "en"
    return "en"


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
