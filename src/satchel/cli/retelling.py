"""What does a tool tell a model, and how is it told to a person?

Tools, and what lies below them, speak to models: always in English, and with a next step that a
model can take. At the border of the terminal their sentences are recognised and said again, in the
reader's language and with a step for people. What is not recognised is shown as it is.
"""

from __future__ import annotations

import re

from satchel._language import say

_REBUILD = (
    "Take it from version control again, or run `satchel lock --rebuild` to write it anew from "
    "what is installed"
)
_VERIFY = (
    "See what changed with `satchel lock {name} --dry-run`. Yours? Run `satchel lock {name}`. Not "
    "yours? Run `satchel install --frozen`"
)
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
    "The lockfile `{path}` cannot be used: {reason}",
    _REBUILD,
    # What a skill is bound to
    "The skill `{name}` changed since it was approved",
    "Read it with `satchel show {name}`, then run `satchel trust {name}`",
    "The skill `{name}` is not what was locked; these files differ: {files}",
    "The skill `{name}` is locked, but not approved as it is",
    _VERIFY,
    "The skill `{name}` changed while it was read",
    "Whether the skill `{name}` is what was approved cannot be told: {reason}",
    "Look at it with `satchel show {name}`",
    "The skill `{name}` has `{path}`, which nobody approved and which cannot be deleted: {reason}",
    "Delete the `__pycache__` folders of the skill, and what your desktop put there",
    "The skill `{name}` cannot be approved as it is: {reason}",
    "Mend that, or trust the project's folder whatever it holds: `satchel trust --always`",
    "`{file}` is not part of the skill `{name}` as it was approved",
    "Run `satchel show {name}` to see what is there",
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
    "Only a person can decide about that ({step}). Tell the user, and go on without it meanwhile": (
        "{step}"
    ),
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
                values = found.groupdict()
                if "step" in values:
                    values["step"] = retell(values["step"])
                return say(said, **values)
    return text


def retell_reason(text: str) -> str:
    """Why a skill fits, part by part."""
    return say("; ").join(retell(part) for part in text.split("; "))


def _pattern(template: str) -> str:
    """A regular expression for the sentences that a template makes."""
    parts = re.split(r"\{(\w+)\}", template)
    pattern = ""
    for at, part in enumerate(parts):
        if at % 2 == 0:
            pattern += re.escape(part)
        else:  # what is said twice is the same twice
            pattern += f"(?P={part})" if f"(?P<{part}>" in pattern else f"(?P<{part}>.+)"
    return pattern
