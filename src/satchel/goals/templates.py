r"""Template references in prompts and arguments: `{{steps.ID.output}}`, `{{inputs.X}}`, `{{goal}}`.

A text is read once, from left to right: inserted values are never expanded again, since outputs
are untrusted. `\{{` writes literal braces. This module uses no file, clock or environment, because
it runs inside workflows too.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from satchel.errors import StepFailed
from satchel.goals.artifacts import OutputPreview
from satchel.i18n import Message

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from satchel.goals.model import Step

ID = r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}"
_REFERENCE = re.compile(r"(\\?)\{\{(.*?)\}\}", re.DOTALL)
_STEP = re.compile(rf"steps\.({ID})\.output((?:\.[^.\s{{}}]+)*)")
_INPUT = re.compile(r"inputs\.([^.\s{}]+)((?:\.[^.\s{}]+)*)")
_ITEM = re.compile(r"item((?:\.[^.\s{}]+)*)")
_MAX_REFERENCE_CHARS = 200
_MAX_INDEX_DIGITS = 18
MAX_INSERTED_CHARS = 4_000_000
"""Inserted into one text: a short plan could ask for gigabytes."""


class Reference(NamedTuple):
    """One parsed `{{…}}`."""

    kind: str
    """`steps`, `inputs`, `item` or `goal`."""
    name: str = ""
    """Id of a step, or name of an input."""
    path: tuple[str, ...] = ()
    """Fields and indexes below it."""
    text: str = ""
    """The source text without braces."""


class TemplateValues(NamedTuple):
    """The values that references resolve to."""

    inputs: Mapping[str, Any]
    outputs: Mapping[str, Any]
    """Step id -> output; None for a step that failed."""
    goal: str = ""
    item: Any = None
    """The item of `for_each`."""


def parse(inner: str) -> Reference | None:
    """Parse the text between two pairs of braces; None when it is no reference."""
    inner = inner.strip()
    if inner == "goal":
        return Reference("goal", text=inner)
    match = _ITEM.fullmatch(inner)
    if match:
        return Reference("item", "item", tuple(match[1].split(".")[1:]), inner)
    for kind, pattern in (("steps", _STEP), ("inputs", _INPUT)):
        match = pattern.fullmatch(inner)
        if match:
            path = tuple(match[2].split(".")[1:])
            return Reference(kind, match[1], path, inner)
    return None


def parse_single(text: str) -> Reference | None:
    """Parse a text that is one reference alone; None when it is another text."""
    match = _REFERENCE.fullmatch(text) if text[:2] == "{{" and text[-2:] == "}}" else None
    return parse(match[2]) if match else None


def references_in(text: str) -> Iterator[tuple[str, Reference | None]]:
    """Each `{{…}}` of a text with its parsed reference; None where it is invalid."""
    if "{{" in text:
        for match in _REFERENCE.finditer(text, 0, _last_end(text)):
            if not match[1]:
                yield match[2].strip(), parse(match[2])


def _last_end(text: str) -> int:
    """The end of the last reference: without it, unclosed braces take quadratic time."""
    return text.rfind("}}") + 2


def texts_of(step: Step) -> Iterator[tuple[str, str]]:
    """The texts of a step that may contain references, each with its field."""
    if step.prompt:
        yield "prompt", step.prompt
    if step.arguments:
        yield from _texts(step.arguments, "arguments")
    if step.for_each is not None:
        yield from _texts(step.for_each.items, "for_each.items")
    if step.when is not None:
        yield from _texts(step.when._asdict(), "when")


def _texts(value: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, item in cast("dict[Any, Any]", value).items():
            yield from _texts(item, f"{path}.{key}")
    elif isinstance(value, list | tuple):
        for index, item in enumerate(cast("list[Any]", value)):
            yield from _texts(item, f"{path}.{index}")


def references_of(step: Step) -> tuple[Reference, ...]:
    """All references of a step, in order."""
    return tuple(
        reference
        for _, text in texts_of(step)
        for _, reference in references_in(text)
        if reference is not None
    )


def may_have_references(step: Step) -> bool:
    """Whether a step has texts that may contain references; quick, because it is asked often."""
    return bool("{{" in step.prompt or step.arguments or step.for_each or step.when)


def referenced_steps(step: Step) -> tuple[str, ...]:
    """The ids of the steps whose outputs a step uses, each once."""
    if not may_have_references(step):
        return ()
    return tuple(dict.fromkeys(ref.name for ref in references_of(step) if ref.kind == "steps"))


class TemplateRoom:
    """The characters that may still be inserted into the texts of a step."""

    def __init__(self) -> None:
        self._left = MAX_INSERTED_CHARS

    def take(self, text: str) -> str:
        """Count a text and return it; raises `StepFailed` when there is no room for it."""
        self._left -= len(text)
        if self._left < 0:
            raise StepFailed(
                f"More than {MAX_INSERTED_CHARS:,} characters would be put into its texts",
                "Use fewer references, or fields of outputs instead of whole ones",
                code="TOO_LARGE",
                retryable=False,
            )
        return text


def fill(text: str, values: TemplateValues, room: TemplateRoom | None = None) -> str:
    """Fill all references of a text: texts as they are, everything else as JSON.

    Raises:
        StepFailed: a referenced value is missing, or the text would be too large.
    """
    if "{{" not in text:
        return text
    remaining = room or TemplateRoom()

    def replace(match: re.Match[str]) -> str:
        if match[1]:
            return match[0][1:]
        reference = parse(match[2])
        if reference is None:
            raise _missing(match[2].strip())
        value = resolve(reference, values)
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        return remaining.take(text)

    end = _last_end(text)
    return _REFERENCE.sub(replace, text[:end]) + text[end:]


def fill_value(value: Any, values: TemplateValues, room: TemplateRoom | None = None) -> Any:
    """Fill a tree of arguments; a text that is a single reference keeps the type of its value."""
    room = room or TemplateRoom()
    if isinstance(value, str):
        reference = parse_single(value)
        if reference is None:
            return fill(value, values, room)
        return resolve(reference, values)
    if isinstance(value, dict):
        table = cast("dict[Any, Any]", value)
        return {key: fill_value(item, values, room) for key, item in table.items()}
    if isinstance(value, list | tuple):
        return [fill_value(item, values, room) for item in cast("list[Any]", value)]
    return value


def resolve(reference: Reference, values: TemplateValues) -> Any:
    """Resolve a reference.

    Raises:
        StepFailed: there is no such value.
    """
    if reference.kind == "goal":
        return values.goal
    tables = {"inputs": values.inputs, "steps": values.outputs, "item": {"item": values.item}}
    table = tables[reference.kind]
    if reference.name not in table:
        raise _missing(reference.text)
    value = table[reference.name]
    for part in reference.path:
        if value is None or isinstance(value, OutputPreview):
            return value  # a failed step whose dependents continue
        if isinstance(value, dict) and part in value:
            value = cast("dict[str, Any]", value)[part]
        elif isinstance(value, list) and _index(part) < len(cast("list[Any]", value)):
            value = cast("list[Any]", value)[_index(part)]
        else:
            raise _missing(reference.text)
    return value


def _index(part: str) -> int:
    """A path part as an index; beyond every list when it is none."""
    valid = part.isdecimal() and len(part) <= _MAX_INDEX_DIGITS
    return int(part) if valid else 10**_MAX_INDEX_DIGITS


def _missing(what: str) -> StepFailed:
    what = what if len(what) <= _MAX_REFERENCE_CHARS else f"{what[:_MAX_REFERENCE_CHARS]}…"
    return StepFailed(
        f"There is nothing for `{{{{{what}}}}}`",
        Message("Look at what the step before it gave"),
        code="MISSING_INPUT",
        retryable=False,
    )
