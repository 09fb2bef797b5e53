"""What does a tool tell a model, and how is it told to a person?

Tools, and what lies below them, speak to models: always in English, and with a next step that a
model can take. At the border to people, in a terminal or a browser, their sentences are recognised
and said again, in the reader's language and with a step for people. What is not recognised is shown
as it is.
"""

from __future__ import annotations

import re

from satchel._language import language, listed, say
from satchel.detect.notes import TEMPLATES, Note, render
from satchel.retelling.calls import BOUND, NESTED, OTHERWISE, SAME, STEPS
from satchel.retelling.goals import GOALS

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
    # What lies on a server
    "The skill `{name}` lies on a server ({origin}) and is read when it is loaded",
    "Run `satchel show {name}` to read it",
    "The skill `{name}` lies on a server ({origin}): there is no folder to work on",
    "Make a copy of your own first: `satchel mcp copy {name}`",
    "The skill `{name}` lies on a server, which may change it at any time",
    "Approve it as it is now: `satchel trust {name}`",
    "The skill `{name}` comes from a server: its files are read while it is loaded",
    "`{file}` is not among the files that the server `{server}` listed for the skill `{name}`",
    "Read one of the listed files",
    "`{file}` of the skill `{name}` is not what the server `{server}` listed: {reason}",
    "`{file}` of the skill `{name}` cannot be had from the server `{server}`: {reason}",
    (
        "The skill `{name}` says something else than the server `{server}` listed; "
        "these fields differ: {fields}"
    ),
    "Do not use it. Tell whoever runs the server",
    "The skill `{name}` of the server `{server}` is not as it was approved",
    "The server `{server}` lists the skill `{name}` no more",
    "The server of the skill `{name}` is not set any more",
    "Run `satchel mcp list` to see which are",
    "The skill `{name}` comes from a server (`{server}`) and is not approved yet",
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
    # The scan
    "only its first {size} MiB are read as text",
    "it is larger than {size} MiB",
    "it cannot be read: {reason}",
    # The detector
    "called by its name",
    "name has {words}",
    "description has {words}",
    "when_to_use has {words}",
    "triggers has {words}",
    "instructions match too",
    "instructions have {words}",
    "a part of a word matches",
    "chosen by the model",
    "its meaning is near",
    "called by name: `{said}`",
    "set to be chosen",
    *TEMPLATES.values(),
    "its name is written almost like `{said}`",
    # The shortlist
    "the setting `shortlist` is 0",
    "the request is empty",
    "there are no skills",
    "the chosen skills are not offered to models",
    "no room for {names}",
    "no skill fits: the best is {fit} sure, below {threshold}",
    "no skill fits",
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
SENTENCES = {
    **{sentence: sentence for sentence in _SAME},
    **_OTHERWISE,
    **OTHERWISE,
    **{sentence: sentence for sentence in SAME},
    **{sentence: sentence for sentence in GOALS},
}
"""What is said to a model -> what is said to a person; both are templates."""
_ENOUGH = 8
"""Characters of ours that a problem is known by."""


def retell(text: str) -> str:
    """`text` as a person should read it."""
    if isinstance(text, Note):
        return render(text)
    found = _several(text) if "; " in text else None
    for read in (_known, _of_a_file):
        if found is None:
            found = read(text)
    return text if found is None else found


def _known(text: str) -> str | None:
    """One sentence said again; None when nobody knows it."""
    small = text[:1].lower() + text[1:]  # one that was put at the beginning of a message
    for told, said in SENTENCES.items():
        for form in (text, small) if small != text else (text,):
            if not form.startswith(told.partition("{")[0]):
                continue
            found = re.fullmatch(_pattern(told), form, re.DOTALL)
            values = _values(found) if found else None
            if values is not None:
                again = say(said, **values)
                return again if form == text else again[:1].upper() + again[1:]
    return None


def _values(found: re.Match[str]) -> dict[str, str] | None:
    """What fills the fields, sentences among it said again; None when one has to be known."""
    values = found.groupdict()
    for name in NESTED & set(values):
        inner = values[name]
        again = _of_a_skill(inner) if name in ("problem", "fix") else _known(inner)
        if again is None and name in BOUND:
            return None
        values[name] = inner if again is None else again
    return values


def _several(text: str) -> str | None:
    """What is wrong with several arguments: all is said again, or nothing."""
    said: list[str] = []
    parts = text.split("; ")
    at = 0
    while at < len(parts):
        for end in (at + 1, at + 2):  # one sentence has a semicolon of its own
            again = _known("; ".join(parts[at:end]))
            if again is not None:
                said.append(again)
                at = end
                break
        else:
            return None
    return say("; ").join(said)


def _of_a_file(text: str) -> str | None:
    """A file that a tool cannot use: told in the model's language, said in the reader's."""
    if " — " not in text:
        return None
    from satchel.tools.workspace import READING, WRITING

    for failure in dict.fromkeys((*READING, *WRITING)):
        for told in ("en", "zh"):
            found = re.fullmatch(_pattern(failure.told(told)), text, re.DOTALL)
            if found:
                step = STEPS.get(failure.remedy.en)
                whole = failure.told(language())
                if step is not None:
                    whole = whole.rpartition(" — ")[0] + f" — {say(step)}"
                return whole.format(**found.groupdict())
    return None


def _of_a_skill(text: str) -> str | None:
    """What is wrong with a file of a skill, or what to do about it."""
    from satchel.skill.problems import PROBLEMS, Problem

    for code, rule in PROBLEMS.items():
        for at, template in enumerate((rule.message, rule.fix)):
            if len(re.sub(r"\{\w+\}", "", template)) < _ENOUGH:
                continue
            found = re.fullmatch(_pattern(template), text, re.DOTALL)
            if found:
                problem = Problem(code, values=found.groupdict())
                return problem.fix if at else problem.message
    return None


def retell_reason(text: str) -> str:
    """Why a skill fits, part by part."""
    told = say("; ").join(retell(part) for part in text.split("; "))
    return told.replace("`, `", listed(("`", "`")))  # a list within a part


def _pattern(template: str) -> str:
    """A regular expression for the sentences that a template makes."""
    parts = re.split(r"\{(\w+)\}", template)
    pattern = ""
    for at, part in enumerate(parts):
        if at % 2 == 0:
            pattern += re.escape(part)
        else:  # what is said twice is the same twice
            known = f"(?P<{part}>" in pattern
            pattern += f"(?P={part})" if known else f"(?P<{part}>.+?)"
    return pattern
