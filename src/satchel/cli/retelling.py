"""What does a tool tell a model, and how is it told to a person?

Tools, and what lies below them, speak to models: always in English, and with a next step that a
model can take. At the border of the terminal their sentences are recognised and said again, in the
reader's language and with a step for people. What is not recognised is shown as it is.
"""

from __future__ import annotations

import re

from satchel._language import say

_SAME = (
    # ReadFile
    "There is no `{path}`",
    "Check the path; it is relative to the project",
    "Did you mean `{path}`, in the skill's folder?",
    "`{path}` leads outside the project",
    "`{path}` is not a regular file",
    "`{path}` is not of a kind that may be read",
    "Only text files may: {kinds} and others of the setting `read_extensions`",
    "`{path}` is not text",
    "Give the path of a text file",
    "`{path}` is a folder",
    "Read a file in it: {names}",
    "It is empty",
    "`{path}` may not be read: {reason}",
    "`{path}` is no usable path",
    "Give another path",
    "`{path}` changed meanwhile",
    "Try again",
    # Skill
    "The skill at `{ref}` is shadowed",
    "Load `{name}`: that is the one at `{ref}`",
    "{error} in the tool `{name}`",
    # Files, and what decides about them
    "`{path}` is not there",
    "Run `satchel list` to see what is",
    "`{path}` cannot be read: {reason}",
    "Check its permissions",
    "`{path}` has {size} bytes; at most {limit} are read",
    "Move detail into files under `references/`",
    "Replace it with a regular file",
    "The trust file `{path}` cannot be read: {reason}",
    "Correct it, or delete it and trust again",
    # The detector
    "called by its name",
    "name has {words}",
    "description has {words}",
)
_OTHERWISE = {
    "Give a path below the project or below a skill's base directory": (
        "Give a path in the project or in the folder of a skill"
    ),
    "`{path}` has {count} lines; `offset` is {line}": (
        "`{path}` has {count} lines; `--offset` is {line}"
    ),
    "`{path}` has 1 line; `offset` is {line}": "`{path}` has 1 line; `--offset` is {line}",
    "Give a smaller offset": "Give a smaller `--offset`",
    "Ask the user to change its permissions": "Change its permissions",
    "This is a fault of the tool, not of the call: do not repeat it": (
        "This is a bug in Satchel: please report it with the command you ran"
    ),
}
SENTENCES = {**{sentence: sentence for sentence in _SAME}, **_OTHERWISE}
"""What is said to a model -> what is said to a person; both are templates."""


def retell(text: str) -> str:
    """`text` as a person should read it."""
    for told, said in SENTENCES.items():
        if "{" not in told:
            if text == told:
                return say(said)
            continue
        start = told.partition("{")[0]
        if text.startswith(start):
            found = re.fullmatch(_pattern(told), text, re.DOTALL)
            if found:
                return say(said, **found.groupdict())
    return text


def retell_reason(text: str) -> str:
    """Why a skill fits, part by part."""
    return say("; ").join(retell(part) for part in text.split("; "))


def _pattern(template: str) -> str:
    """A regular expression for the sentences that a template makes."""
    parts = re.split(r"\{(\w+)\}", template)
    return "".join(
        f"(?P<{part}>.+)" if at % 2 else re.escape(part) for at, part in enumerate(parts)
    )
