"""Parser for `evals/triggers.yaml`: prompts that should or should not select a skill.

    should: ["Review my pull request", {prompt: "Look over this diff", note: from a user}]
    should_not: [{prompt: "Write a release note", instead: release-notes}]

A JSON list of `query` and `should_trigger`, as other tools write it, is read too. A file with a
problem is not run.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from satchel._fs import open_beneath, read_small
from satchel.errors import AccessDenied
from satchel.i18n import Message
from satchel.skill.manifest import ErrorCollector, read_yaml
from satchel.skill.yaml_reader import Items, Pairs, Scalar, plain

if TYPE_CHECKING:
    from satchel.skill.problems import Problem
    from satchel.skill.yaml_reader import Node

FILE = "evals/triggers.yaml"
FILES = (FILE, "evals/triggers.yml", "evals/triggers.json")
"""The first that exists is read."""
MAX_FILE_BYTES = 64 * 1024
MAX_PROMPTS = 200
MAX_PROMPT_CHARS = 2_000
_SIDES = {
    "should": True, "should_trigger": True, "should_fire": True,
    "should_not": False, "should_not_trigger": False, "should_not_fire": False, "shouldnt": False,
}  # fmt: skip
"""Key of a list -> whether its prompts should select the skill."""
_PARTS = {
    "prompt": "prompt", "query": "prompt", "text": "prompt", "goal": "prompt", "input": "prompt",
    "note": "note", "reason": "note", "comment": "note", "instead": "instead",
}  # fmt: skip
"""Key of a row -> its normalised name."""
_CODES = ("triggers-large", "triggers-not-yaml", "triggers-refused")
_FLAGS = ("should_trigger", "should_fire")
_IDLE = ("id", "tags")


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

    @property
    def broken(self) -> tuple[Problem, ...]:
        """Problems that prevent a run."""
        return tuple(one for one in self.problems if one.code != "two-files")


def has_triggers(folder: str) -> bool:
    """Whether a skill's folder has a file of prompts."""
    try:
        names = os.listdir(os.path.join(folder, "evals"))
    except OSError:
        return False
    return any(os.path.basename(file) in names for file in FILES)


def load_triggers(folder: str) -> Triggers | None:
    """Read the prompts of a skill's folder; None when it has none.

    The folder is untrusted: links that lead out of it are refused.
    """
    there = [file for file in FILES if os.path.lexists(os.path.join(folder, file))]
    if not there:
        return None
    path = os.path.join(folder, there[0])
    errors = ErrorCollector()
    for other in there[1:]:
        errors.add("two-files", used=there[0], other=other)
    prompts: tuple[TriggerPrompt, ...] = ()
    try:
        descriptor = open_beneath(folder, there[0])
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
        read = read_triggers(data, path)
        prompts = read.prompts
        errors.found += read.problems
    return Triggers(path, prompts, tuple(problem.at(path) for problem in errors.found))


def read_triggers(data: bytes, path: str = FILE) -> Triggers:
    """Parse the content of a file.

    Args:
        data: The whole file.
        path: Its name; JSON has its own escapes.
    """
    errors = ErrorCollector()
    top = read_yaml(data, MAX_FILE_BYTES, errors, _CODES, is_json=path.endswith(".json"))
    prompts: list[TriggerPrompt] = []
    if isinstance(top, Items):
        for node in top.nodes:
            _row(node, prompts, errors)
    elif isinstance(top, Pairs):
        _lists(top, prompts, errors)
    elif not errors.found:
        kind = "empty" if top is None else "text"
        errors.add("triggers-shape", 1, kind=kind)
    if len(prompts) > MAX_PROMPTS:
        line = prompts[MAX_PROMPTS].line
        count, limit = str(len(prompts)), str(MAX_PROMPTS)
        errors.add("triggers-many", line, key="prompt", count=count, limit=limit)
    elif not prompts and not errors.found:
        errors.add("triggers-none", 1)
    _report_duplicates(prompts, errors)
    errors.found.sort(key=lambda problem: problem.line)
    return Triggers(path, tuple(prompts[:MAX_PROMPTS]), tuple(errors.found))


def _lists(top: Pairs, prompts: list[TriggerPrompt], errors: ErrorCollector) -> None:
    nodes = iter(top.nodes)
    for key in nodes:
        value = next(nodes)
        fires = _SIDES.get(_normalise_key(key))
        if fires is None:
            _unknown_key(key, ("should", "should_not"), errors)
            continue
        if isinstance(value, Scalar) and not _text(value):
            continue  # an empty list
        for node in value.nodes if isinstance(value, Items) else [value]:
            _row(node, prompts, errors, fires=fires)


def _row(
    node: Node, prompts: list[TriggerPrompt], errors: ErrorCollector, *, fires: bool | None = None
) -> None:
    """One prompt.

    Args:
        node: A text, or a mapping with `prompt`.
        prompts: Collects the prompts.
        errors: Collects the problems.
        fires: The side of its list; None where each row has its own.
    """
    line = node.line + 1
    if isinstance(node, Items):
        errors.add("triggers-row", line, kind="a list")
        return
    flag: Any = None
    found: dict[str, str] = {}
    if isinstance(node, Scalar):
        found["prompt"] = _text(node)
    else:
        parts = _parts(node, errors, flags=fires is None)
        if parts is None:
            return
        found, flag = parts
    text = found.get("prompt", "")
    if not text:
        errors.add("triggers-row", line, kind="empty")
    elif len(text) > MAX_PROMPT_CHARS:
        errors.long("triggers-long", "prompt", line, text, MAX_PROMPT_CHARS)
    elif fires is None and not isinstance(flag, bool):
        errors.add("triggers-side", line, text=_short(text))
    else:
        side = bool(flag) if fires is None else fires
        row = TriggerPrompt(text, side, line, found.get("note", ""), found.get("instead", ""))
        prompts.append(row)


def _parts(
    node: Pairs, errors: ErrorCollector, *, flags: bool
) -> tuple[dict[str, str], Any] | None:
    found: dict[str, str] = {}
    flag: Any = None
    strange: list[Node] = []
    nodes = iter(node.nodes)
    for key in nodes:
        value = next(nodes)
        name = _normalise_key(key)
        if flags and name in _FLAGS:
            flag = plain(value)
        elif name in _PARTS and isinstance(value, Scalar):
            found[_PARTS[name]] = _text(value)
        elif name not in _IDLE:
            strange.append(key)
    if "prompt" not in found and strange and flag is None:
        errors.add("triggers-row", node.line + 1, kind="a mapping")
        return None
    for key in strange:
        _unknown_key(key, ("prompt", "note", "instead", *(_FLAGS[:1] if flags else ())), errors)
    return found, flag


def _unknown_key(key: Node, known: tuple[str, ...], errors: ErrorCollector) -> None:
    from difflib import get_close_matches

    name = key.text if isinstance(key, Scalar) else "?"
    near = get_close_matches(_normalise_key(key), known, 1, cutoff=0.6)
    better = f"`{near[0]}`" if near else " / ".join(f"`{word}`" for word in known[:2])
    errors.add("triggers-key", key.line + 1, key=_short(name), better=better)


def _report_duplicates(prompts: list[TriggerPrompt], errors: ErrorCollector) -> None:
    seen: dict[str, TriggerPrompt] = {}
    for one in prompts:
        first = seen.setdefault(" ".join(one.text.lower().split()), one)
        if first is not one:
            where = Message("line {part}", part=first.line)
            errors.add("triggers-twice", one.line, text=_short(one.text), where=where)


def _normalise_key(key: Node) -> str:
    if not isinstance(key, Scalar):
        return ""
    return re.sub(r"[\s-]+", "_", key.text.strip().lower().replace("'", ""))


def _text(node: Scalar) -> str:
    text = " ".join(node.text.split())
    return "" if node.plain and text.lower() in ("", "~", "null") else text


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 60 else f"{text[:59]}…"
