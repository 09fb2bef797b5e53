"""Parser for `evals/triggers.yaml`: prompts that should or should not select a skill.

    should: ["Review my pull request", {prompt: "Look over this diff", note: from a user}]
    should_not: [{prompt: "Write a release note", instead: release-notes}]

A file with a problem is not run.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from satchel._fs import open_beneath, read_small
from satchel.errors import AccessDenied
from satchel.i18n import similar_names
from satchel.skill.manifest import ErrorCollector, read_yaml
from satchel.skill.yaml_reader import Items, Pairs, Scalar

if TYPE_CHECKING:
    from satchel.skill.problems import Problem
    from satchel.skill.yaml_reader import Node

FILE = "evals/triggers.yaml"
MAX_FILE_BYTES = 64 * 1024
MAX_PROMPTS = 200
MAX_PROMPT_CHARS = 2_000
_FIRES_BY_LIST = {"should": True, "should_not": False}
"""Key of a list -> whether its prompts should select the skill."""
_PROMPT_KEYS = ("prompt", "note", "instead")
_MAX_KEY_CHARS_SHOWN = 60
_FILE_PROBLEM_CODES = ("triggers-large", "triggers-not-yaml", "triggers-refused")


class TriggerPrompt(NamedTuple):
    """One prompt of the file."""

    text: str
    fires: bool
    """Whether it should select the skill."""
    line: int = 0
    note: str = ""
    instead: str = ""
    """For a prompt that should not select this skill: the skill that it should select."""


class Triggers(NamedTuple):
    """A parsed file of prompts."""

    path: str
    prompts: tuple[TriggerPrompt, ...]
    problems: tuple[Problem, ...] = ()
    """With any, it is not run."""


def has_triggers(folder: str) -> bool:
    """Whether a skill's folder has a file of prompts."""
    return os.path.lexists(os.path.join(folder, FILE))


def load_triggers(folder: str) -> Triggers | None:
    """Read the prompts of a skill's folder; None when it has none.

    The folder is untrusted: links that lead out of it are refused.
    """
    if not has_triggers(folder):
        return None
    path = os.path.join(folder, FILE)
    errors = ErrorCollector()
    prompts: tuple[TriggerPrompt, ...] = ()
    try:
        descriptor = open_beneath(folder, FILE)
        try:
            data = read_small(descriptor, MAX_FILE_BYTES + 1)
        finally:
            os.close(descriptor)
    except AccessDenied:
        errors.add("unreadable", reason="it leads outside the skill's folder")
    except OSError as exc:
        if os.path.isfile(path) and os.path.getsize(path) > MAX_FILE_BYTES:
            errors.add("triggers-large", limit=str(MAX_FILE_BYTES))
        else:
            errors.add("unreadable", reason=str(exc.strerror or exc))
    else:
        triggers = read_triggers(data)
        prompts = triggers.prompts
        errors.problems += triggers.problems
    return Triggers(path, prompts, tuple(problem.at(path) for problem in errors.problems))


def read_triggers(data: bytes) -> Triggers:
    """Parse the content of a file."""
    errors = ErrorCollector()
    top_level = read_yaml(data, MAX_FILE_BYTES, errors, _FILE_PROBLEM_CODES)
    prompts: list[TriggerPrompt] = []
    if isinstance(top_level, Pairs):
        _read_lists(top_level, prompts, errors)
    elif not errors.problems:
        kind = "text"
        if not isinstance(top_level, Scalar):
            kind = "empty" if top_level is None else "a list"
        errors.add("triggers-shape", 1, kind=kind)
    if len(prompts) > MAX_PROMPTS:
        line = prompts[MAX_PROMPTS].line
        count, limit = str(len(prompts)), str(MAX_PROMPTS)
        errors.add("triggers-many", line, key="prompt", count=count, limit=limit)
    elif not prompts and not errors.problems:
        errors.add("triggers-none", 1)
    errors.problems.sort(key=lambda problem: problem.line)
    return Triggers(FILE, tuple(prompts[:MAX_PROMPTS]), tuple(errors.problems))


def _read_lists(top_level: Pairs, prompts: list[TriggerPrompt], errors: ErrorCollector) -> None:
    for key, value in top_level.entries():
        fires = _FIRES_BY_LIST.get(key.text) if isinstance(key, Scalar) else None
        if fires is None:
            _report_unknown_key(key, tuple(_FIRES_BY_LIST), errors)
            continue
        if isinstance(value, Scalar) and not _read_text(value):
            continue  # an empty list
        for node in value.nodes if isinstance(value, Items) else [value]:
            _read_prompt(node, prompts, errors, fires=fires)


def _read_prompt(
    node: Node, prompts: list[TriggerPrompt], errors: ErrorCollector, *, fires: bool
) -> None:
    """Read one prompt: a text, or a mapping with `prompt`."""
    line = node.line + 1
    if isinstance(node, Items):
        errors.add("triggers-row", line, kind="a list")
        return
    if isinstance(node, Scalar):
        fields = {"prompt": _read_text(node)}
    else:
        fields = _read_prompt_fields(node, errors)
    if fields is None:
        return
    text = fields.get("prompt", "")
    if not text:
        errors.add("triggers-row", line, kind="empty")
    elif len(text) > MAX_PROMPT_CHARS:
        errors.add_too_long("triggers-long", "prompt", line, text, MAX_PROMPT_CHARS)
    else:
        note, instead = fields.get("note", ""), fields.get("instead", "")
        prompts.append(TriggerPrompt(text, fires, line, note, instead))


def _read_prompt_fields(node: Pairs, errors: ErrorCollector) -> dict[str, str] | None:
    """The fields of a prompt; None when it is none."""
    fields: dict[str, str] = {}
    unknown_keys: list[Node] = []
    for key, value in node.entries():
        if isinstance(key, Scalar) and key.text in _PROMPT_KEYS and isinstance(value, Scalar):
            fields[key.text] = _read_text(value)
        else:
            unknown_keys.append(key)
    if "prompt" not in fields and unknown_keys:
        errors.add("triggers-row", node.line + 1, kind="a mapping")
        return None
    for key in unknown_keys:
        _report_unknown_key(key, _PROMPT_KEYS, errors)
    return fields


def _report_unknown_key(key: Node, allowed_keys: tuple[str, ...], errors: ErrorCollector) -> None:
    name = key.text if isinstance(key, Scalar) else "?"
    near = similar_names(name.lower(), allowed_keys)
    better = f"`{near[0]}`" if near else " / ".join(f"`{word}`" for word in allowed_keys[:2])
    errors.add("triggers-key", key.line + 1, key=_shorten(name), better=better)


def _read_text(node: Scalar) -> str:
    text = " ".join(node.text.split())
    return "" if node.plain and text.lower() in ("", "~", "null") else text


def _shorten(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _MAX_KEY_CHARS_SHOWN else f"{text[: _MAX_KEY_CHARS_SHOWN - 1]}…"
