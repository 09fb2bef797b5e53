"""Which prompts should choose a skill, and which should not? Its `evals/triggers.yaml`.

    should: ["Review my pull request", {prompt: "Look over this diff", note: from a user}]
    should_not: [{prompt: "Write a release note", instead: release-notes}]

A list of `query` and `should_trigger`, which other tools write as JSON, is read too. A file with a
slip is not run: a test that is half understood proves nothing.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, NamedTuple

import yaml

from satchel._fs import open_beneath, read_small
from satchel._language import Message
from satchel.errors import AccessDenied
from satchel.skill.frontmatter import decode
from satchel.skill.manifest import Slips
from satchel.skill.yaml_block import Items, Pairs, Refusal, Scalar, compose, plain

if TYPE_CHECKING:
    from satchel.skill.problems import Problem
    from satchel.skill.yaml_block import Node

FILE = "evals/triggers.yaml"
FILES = (FILE, "evals/triggers.yml", "evals/triggers.json")
"""Where the prompts may stand; the first that is there counts."""
MAX_FILE = 64 * 1024
MAX_PROMPTS = 200
MAX_PROMPT = 2_000
"""Characters of one prompt."""
_SIDES = {
    "should": True, "should_trigger": True, "should_fire": True,
    "should_not": False, "should_not_trigger": False, "should_not_fire": False, "shouldnt": False,
}  # fmt: skip
"""Key of a list -> whether its prompts should choose the skill."""
_PARTS = {
    "prompt": "prompt", "query": "prompt", "text": "prompt", "goal": "prompt", "input": "prompt",
    "note": "note", "reason": "note", "comment": "note", "instead": "instead",
}  # fmt: skip
"""Key of a row -> what it is."""
_FLAGS = ("should_trigger", "should_fire")
_IDLE = ("id", "tags")
_PAIR = re.compile(r"\\u(d[89ab][0-9a-f]{2})\\u(d[c-f][0-9a-f]{2})", re.IGNORECASE)


class Prompt(NamedTuple):
    """One prompt of the file."""

    text: str
    fires: bool
    """Whether the skill should be chosen for it."""
    line: int = 0
    note: str = ""
    instead: str = ""
    """For one that should not: the skill that should be chosen."""


class Triggers(NamedTuple):
    """What a file says."""

    path: str
    prompts: tuple[Prompt, ...]
    problems: tuple[Problem, ...] = ()

    @property
    def broken(self) -> tuple[Problem, ...]:
        """What keeps the prompts from being run."""
        return tuple(one for one in self.problems if one.code != "two-files")


def has_triggers(folder: str) -> bool:
    """Whether there is such a file in a skill's folder."""
    try:
        names = os.listdir(os.path.join(folder, "evals"))
    except OSError:
        return False
    return any(os.path.basename(file) in names for file in FILES)


def load_triggers(folder: str) -> Triggers | None:
    """Read the prompts of a skill's folder; None when it has none.

    The folder may be a stranger's: no link leads out of it.
    """
    there = [file for file in FILES if os.path.lexists(os.path.join(folder, file))]
    if not there:
        return None
    path = os.path.join(folder, there[0])
    slips = Slips()
    for other in there[1:]:
        slips.add("two-files", used=there[0], other=other)
    prompts: tuple[Prompt, ...] = ()
    try:
        descriptor = open_beneath(folder, there[0])
        try:
            data = read_small(descriptor, MAX_FILE + 1)
        finally:
            os.close(descriptor)
    except AccessDenied:
        slips.add("unreadable", reason="it leads outside the skill's folder")
    except OSError as exc:
        if os.path.isfile(path) and os.path.getsize(path) > MAX_FILE:
            slips.add("triggers-large", limit=str(MAX_FILE))
        else:
            slips.add("unreadable", reason=str(exc.strerror or exc))
    else:
        read = read_triggers(data, path)
        prompts = read.prompts
        slips.found += read.problems
    return Triggers(path, prompts, tuple(problem.at(path) for problem in slips.found))


def read_triggers(data: bytes, path: str = FILE) -> Triggers:
    """Read the bytes of a file.

    Args:
        data: The whole file.
        path: What it is called; JSON has its own escapes.
    """
    slips = Slips()
    top = _top(data, path, slips)
    prompts: list[Prompt] = []
    if isinstance(top, Items):
        for node in top.nodes:
            _row(node, prompts, slips)
    elif isinstance(top, Pairs):
        _lists(top, prompts, slips)
    elif not slips.found:
        kind = "empty" if top is None else "text"
        slips.add("triggers-shape", 1, kind=kind)
    if len(prompts) > MAX_PROMPTS:
        line = prompts[MAX_PROMPTS].line
        slips.add("triggers-many", line, count=str(len(prompts)), limit=str(MAX_PROMPTS))
    elif not prompts and not slips.found:
        slips.add("triggers-none", 1)
    _said_twice(prompts, slips)
    slips.found.sort(key=lambda problem: problem.line)
    return Triggers(path, tuple(prompts[:MAX_PROMPTS]), tuple(slips.found))


def _top(data: bytes, path: str, slips: Slips) -> Node | None:
    if len(data) > MAX_FILE:
        slips.add("triggers-large", limit=str(MAX_FILE))
        return None
    text, problems = decode(data)
    if text is None:
        slips.add("triggers-not-yaml", reason="it is binary")
        return None
    slips.found += [problem for problem in problems if problem.code != "bom"]
    if path.endswith(".json"):
        # JSON is YAML but for these two.
        text = _PAIR.sub(_joined, text.replace("\t", " "))
    try:
        return compose(text)
    except Refusal as exc:
        slips.add("triggers-refused", exc.line + 1, what=exc.what)
    except yaml.YAMLError as exc:
        mark: Any = getattr(exc, "problem_mark", None)
        reason = str(getattr(exc, "problem", "") or getattr(exc, "reason", "") or "it is damaged")
        slips.add("triggers-not-yaml", mark.line + 1 if mark else 0, reason=reason[:200])
    return None


def _joined(pair: re.Match[str]) -> str:
    high, low = (int(half, 16) for half in pair.groups())
    return chr(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00))


def _lists(top: Pairs, prompts: list[Prompt], slips: Slips) -> None:
    """The lists of a file by whether their prompts should choose the skill."""
    nodes = iter(top.nodes)
    for key in nodes:
        value = next(nodes)
        fires = _SIDES.get(_plainly(key))
        if fires is None:
            _strange(key, ("should", "should_not"), slips)
            continue
        if isinstance(value, Scalar) and not _text(value):
            continue  # a list that is still to be written
        for node in value.nodes if isinstance(value, Items) else [value]:
            _row(node, prompts, slips, fires=fires)


def _row(node: Node, prompts: list[Prompt], slips: Slips, *, fires: bool | None = None) -> None:
    """One prompt.

    Args:
        node: A text, or a mapping with `prompt`.
        prompts: Where it goes.
        slips: Where problems go.
        fires: What its list says; None where each row says it.
    """
    line = node.line + 1
    if isinstance(node, Items):
        slips.add("triggers-row", line, kind="a list")
        return
    flag: Any = None
    found: dict[str, str] = {}
    if isinstance(node, Scalar):
        found["prompt"] = _text(node)
    else:
        parts = _parts(node, slips, flags=fires is None)
        if parts is None:
            return
        found, flag = parts
    text = found.get("prompt", "")
    if not text:
        slips.add("triggers-row", line, kind="empty")
    elif len(text) > MAX_PROMPT:
        slips.add("triggers-long", line, length=str(len(text)), limit=str(MAX_PROMPT))
    elif fires is None and not isinstance(flag, bool):
        slips.add("triggers-side", line, text=_short(text))
    else:
        side = bool(flag) if fires is None else fires
        row = Prompt(text, side, line, found.get("note", ""), found.get("instead", ""))
        prompts.append(row)


def _parts(node: Pairs, slips: Slips, *, flags: bool) -> tuple[dict[str, str], Any] | None:
    """The keys of a row; None when it is not one."""
    found: dict[str, str] = {}
    flag: Any = None
    strange: list[Node] = []
    nodes = iter(node.nodes)
    for key in nodes:
        value = next(nodes)
        name = _plainly(key)
        if flags and name in _FLAGS:
            flag = plain(value)
        elif name in _PARTS and isinstance(value, Scalar):
            found[_PARTS[name]] = _text(value)
        elif name not in _IDLE:
            strange.append(key)
    if "prompt" not in found and strange and flag is None:
        first = strange[0]
        if isinstance(first, Scalar) and first.plain and " " in first.text.strip():
            slips.add("triggers-colon", node.line + 1, text=_short(first.text))
        else:
            slips.add("triggers-row", node.line + 1, kind="a mapping")
        return None
    for key in strange:
        _strange(key, ("prompt", "note", "instead", *(_FLAGS[:1] if flags else ())), slips)
    return found, flag


def _strange(key: Node, known: tuple[str, ...], slips: Slips) -> None:
    from difflib import get_close_matches

    name = key.text if isinstance(key, Scalar) else "?"
    near = get_close_matches(_plainly(key), known, 1, cutoff=0.6)
    better = f"`{near[0]}`" if near else " / ".join(f"`{word}`" for word in known[:2])
    slips.add("triggers-key", key.line + 1, key=_short(name), better=better)


def _said_twice(prompts: list[Prompt], slips: Slips) -> None:
    seen: dict[str, Prompt] = {}
    for one in prompts:
        first = seen.setdefault(" ".join(one.text.lower().split()), one)
        if first is not one:
            where = Message("line {part}", part=first.line)
            slips.add("triggers-twice", one.line, text=_short(one.text), where=where)


def _plainly(key: Node) -> str:
    """A key however it is written: `Should not`, `should-not`."""
    if not isinstance(key, Scalar):
        return ""
    return re.sub(r"[\s-]+", "_", key.text.strip().lower().replace("'", ""))


def _text(node: Scalar) -> str:
    text = " ".join(node.text.split())
    return "" if node.plain and text.lower() in ("", "~", "null") else text


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 60 else f"{text[:59]}…"
