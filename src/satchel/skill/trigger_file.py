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
from satchel.skill.manifest import ErrorCollector, read_yaml
from satchel.skill.yaml_reader import Items, Pairs, Scalar

if TYPE_CHECKING:
    from satchel.skill.problems import Problem
    from satchel.skill.yaml_reader import Node

FILE = "evals/triggers.yaml"
MAX_FILE_BYTES = 64 * 1024
MAX_PROMPTS = 200
MAX_PROMPT_CHARS = 2_000
_SIDES = {"should": True, "should_not": False}
"""Key of a list -> whether its prompts should select the skill."""
_PARTS = ("prompt", "note", "instead")
_CODES = ("triggers-large", "triggers-not-yaml", "triggers-refused")


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
        read = read_triggers(data)
        prompts = read.prompts
        errors.found += read.problems
    return Triggers(path, prompts, tuple(problem.at(path) for problem in errors.found))


def read_triggers(data: bytes) -> Triggers:
    """Parse the content of a file."""
    errors = ErrorCollector()
    top = read_yaml(data, MAX_FILE_BYTES, errors, _CODES)
    prompts: list[TriggerPrompt] = []
    if isinstance(top, Pairs):
        _lists(top, prompts, errors)
    elif not errors.found:
        kind = "empty" if top is None else "a list" if isinstance(top, Items) else "text"
        errors.add("triggers-shape", 1, kind=kind)
    if len(prompts) > MAX_PROMPTS:
        line = prompts[MAX_PROMPTS].line
        count, limit = str(len(prompts)), str(MAX_PROMPTS)
        errors.add("triggers-many", line, key="prompt", count=count, limit=limit)
    elif not prompts and not errors.found:
        errors.add("triggers-none", 1)
    errors.found.sort(key=lambda problem: problem.line)
    return Triggers(FILE, tuple(prompts[:MAX_PROMPTS]), tuple(errors.found))


def _lists(top: Pairs, prompts: list[TriggerPrompt], errors: ErrorCollector) -> None:
    nodes = iter(top.nodes)
    for key in nodes:
        value = next(nodes)
        fires = _SIDES.get(key.text) if isinstance(key, Scalar) else None
        if fires is None:
            _unknown_key(key, tuple(_SIDES), errors)
            continue
        if isinstance(value, Scalar) and not _text(value):
            continue  # an empty list
        for node in value.nodes if isinstance(value, Items) else [value]:
            _row(node, prompts, errors, fires=fires)


def _row(node: Node, prompts: list[TriggerPrompt], errors: ErrorCollector, *, fires: bool) -> None:
    """One prompt: a text, or a mapping with `prompt`."""
    line = node.line + 1
    if isinstance(node, Items):
        errors.add("triggers-row", line, kind="a list")
        return
    found = {"prompt": _text(node)} if isinstance(node, Scalar) else _parts(node, errors)
    if found is None:
        return
    text = found.get("prompt", "")
    if not text:
        errors.add("triggers-row", line, kind="empty")
    elif len(text) > MAX_PROMPT_CHARS:
        errors.long("triggers-long", "prompt", line, text, MAX_PROMPT_CHARS)
    else:
        row = TriggerPrompt(text, fires, line, found.get("note", ""), found.get("instead", ""))
        prompts.append(row)


def _parts(node: Pairs, errors: ErrorCollector) -> dict[str, str] | None:
    found: dict[str, str] = {}
    strange: list[Node] = []
    nodes = iter(node.nodes)
    for key in nodes:
        value = next(nodes)
        if isinstance(key, Scalar) and key.text in _PARTS and isinstance(value, Scalar):
            found[key.text] = _text(value)
        else:
            strange.append(key)
    if "prompt" not in found and strange:
        errors.add("triggers-row", node.line + 1, kind="a mapping")
        return None
    for key in strange:
        _unknown_key(key, _PARTS, errors)
    return found


def _unknown_key(key: Node, known: tuple[str, ...], errors: ErrorCollector) -> None:
    from difflib import get_close_matches

    name = key.text if isinstance(key, Scalar) else "?"
    near = get_close_matches(name.lower(), known, 1, cutoff=0.6)
    better = f"`{near[0]}`" if near else " / ".join(f"`{word}`" for word in known[:2])
    errors.add("triggers-key", key.line + 1, key=_short(name), better=better)


def _text(node: Scalar) -> str:
    text = " ".join(node.text.split())
    return "" if node.plain and text.lower() in ("", "~", "null") else text


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 60 else f"{text[:59]}…"
