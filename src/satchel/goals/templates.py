r"""What flows from step to step? `{{steps.ID.output}}`, `{{inputs.X}}` and `{{goal}}` in a prompt.

A text is read once, from left to right: what is put in is never looked at again, since outputs
are untrusted. `\{{` writes braces that mean nothing. Nothing here knows a file, a clock or the
environment, for it runs inside workflows too.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from satchel._language import Message
from satchel.errors import StepFailed
from satchel.goals.artefacts import Shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from satchel.goals.model import Step

ID = r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}"
"""What a step may be called."""
_PLACE = re.compile(r"(\\?)\{\{(.*?)\}\}", re.DOTALL)
_STEP = re.compile(rf"steps\.({ID})\.output((?:\.[^.\s{{}}]+)*)")
_INPUT = re.compile(r"inputs\.([^.\s{}]+)((?:\.[^.\s{}]+)*)")
_NAMED = 200
"""Characters of a reference that an error shows."""
_DIGITS = 18
"""Of an index: no list is longer."""
MOST = 4_000_000
"""Characters that are put into the texts of one step: a short plan could ask for gigabytes."""


class Reference(NamedTuple):
    """One `{{…}}` that is understood."""

    kind: str
    """`steps`, `inputs` or `goal`."""
    name: str = ""
    """Which step, or which input."""
    path: tuple[str, ...] = ()
    """Fields and indexes below it."""
    text: str = ""
    """As it is written, without the braces."""


class Values(NamedTuple):
    """What fills the places."""

    inputs: Mapping[str, Any]
    outputs: Mapping[str, Any]
    """Step id -> output; None stands for a step that failed."""
    goal: str = ""


class Room:
    """How much may still be put in: one for all texts of a step.

    Args:
        most: Characters.
    """

    def __init__(self, most: int = MOST) -> None:
        self.most = most
        self._left = most
        self._whole: set[Reference] = set()

    def take(self, text: str) -> str:
        """The text, if there is room for it.

        Raises:
            StepFailed: there is none.
        """
        self._left -= len(text)
        if self._left < 0:
            raise StepFailed(
                f"More than {self.most:,} characters would be put into its texts",
                "Use fewer references, or fields of outputs instead of whole ones",
                code="TOO_LARGE",
                retryable=False,
            )
        return text

    def share(self, reference: Reference, value: Any) -> Any:
        """A value that is given as it is: once it costs nothing, for it is there already."""
        if reference in self._whole:
            self.take(as_text(value))
        self._whole.add(reference)
        return value


def parse(inner: str) -> Reference | None:
    """What stands between two pairs of braces; None when it is nothing that is known."""
    inner = inner.strip()
    if inner == "goal":
        return Reference("goal", text=inner)
    for kind, pattern in (("steps", _STEP), ("inputs", _INPUT)):
        found = pattern.fullmatch(inner)
        if found:
            path = tuple(found[2].split(".")[1:])
            return Reference(kind, found[1], path, inner)
    return None


def places(text: str) -> Iterator[tuple[str, Reference | None]]:
    """Each `{{…}}` of a text, and what it refers to; None where that is not known."""
    if "{{" in text:
        for found in _PLACE.finditer(text, 0, _end(text)):
            if not found[1]:
                yield found[2].strip(), parse(found[2])


def _end(text: str) -> int:
    """Where the last place may end: without this, braces that never close take quadratic time."""
    return text.rfind("}}") + 2


def texts_of(step: Step) -> Iterator[tuple[str, str]]:
    """The texts of a step that may hold places, each with the field it stands in."""
    if step.prompt:
        yield "prompt", step.prompt
    if step.arguments:
        yield from _texts(step.arguments, "arguments")


def _texts(value: Any, where: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield where, value
    elif isinstance(value, dict):
        for key, item in cast("dict[Any, Any]", value).items():
            yield from _texts(item, f"{where}.{key}")
    elif isinstance(value, list | tuple):
        for index, item in enumerate(cast("list[Any]", value)):
            yield from _texts(item, f"{where}.{index}")


def mentioned(step: Step) -> tuple[Reference, ...]:
    """Everything that a step's texts refer to, in the order they do."""
    return tuple(
        reference
        for _, text in texts_of(step)
        for _, reference in places(text)
        if reference is not None
    )


def steps_mentioned(step: Step) -> tuple[str, ...]:
    """The ids of the steps whose outputs a step's texts use, each once."""
    if "{{" not in step.prompt and not step.arguments:
        return ()
    return tuple(dict.fromkeys(ref.name for ref in mentioned(step) if ref.kind == "steps"))


def fill(text: str, values: Values, room: Room | None = None) -> str:
    """A text with every place filled: texts as they are, everything else as JSON.

    Raises:
        StepFailed: something that it refers to is not there, or it would be too large.
    """
    if "{{" not in text:
        return text
    left = room or Room()

    def put(found: re.Match[str]) -> str:
        if found[1]:
            return found[0][1:]
        reference = parse(found[2])
        if reference is None:
            raise _missing(found[2].strip())
        return left.take(as_text(look_up(reference, values)))

    end = _end(text)
    return _PLACE.sub(put, text[:end]) + text[end:]


class Piece(NamedTuple):
    """A part of a text that was filled in as far as that was possible."""

    text: str
    reference: str = ""
    """Where it comes from; empty for what the plan's author wrote."""
    known: bool = True
    """False when there is nothing for it yet: the text is the place as it was written."""


def pieces(text: str, values: Values) -> Iterator[Piece]:
    """A text as `fill` makes it, piece by piece; what is not there yet stays as it is written."""
    at = 0
    for found in _PLACE.finditer(text, 0, _end(text)) if "{{" in text else ():
        if found.start() > at:
            yield Piece(text[at : found.start()])
        at = found.end()
        reference = None if found[1] else parse(found[2])
        if found[1]:
            yield Piece(found[0][1:])
            continue
        try:
            if reference is None:
                raise _missing(found[2])
            yield Piece(as_text(look_up(reference, values)), reference.text)
        except StepFailed:
            yield Piece(found[0], found[2].strip(), known=False)
    if at < len(text):
        yield Piece(text[at:])


def fill_value(value: Any, values: Values, room: Room | None = None) -> Any:
    """The same for a whole tree of arguments; a text that is one place alone keeps its type."""
    room = room or Room()
    if isinstance(value, str):
        whole = _PLACE.fullmatch(value) if value[:2] == "{{" and value[-2:] == "}}" else None
        reference = parse(whole[2]) if whole else None
        if reference is None:
            return fill(value, values, room)
        return room.share(reference, look_up(reference, values))
    if isinstance(value, dict):
        table = cast("dict[Any, Any]", value)
        return {key: fill_value(item, values, room) for key, item in table.items()}
    if isinstance(value, list | tuple):
        return [fill_value(item, values, room) for item in cast("list[Any]", value)]
    return value


def look_up(reference: Reference, values: Values) -> Any:
    """What a reference stands for.

    Raises:
        StepFailed: it is not there.
    """
    if reference.kind == "goal":
        return values.goal
    table = values.inputs if reference.kind == "inputs" else values.outputs
    if reference.name not in table:
        raise _missing(reference.text)
    value = table[reference.name]
    for index, part in enumerate(reference.path):
        if isinstance(value, Shown):
            return value.below(reference.path[index:])
        if value is None:
            return None  # a step that failed, and the plan goes on without it
        if isinstance(value, dict) and part in value:
            value = cast("dict[str, Any]", value)[part]
        elif isinstance(value, list) and _index(part) < len(cast("list[Any]", value)):
            value = cast("list[Any]", value)[_index(part)]
        else:
            raise _missing(reference.text)
    return value


def _index(part: str) -> int:
    """A part of a path as an index; beyond every list when it is none."""
    return int(part) if part.isdecimal() and len(part) <= _DIGITS else 10**_DIGITS


def as_text(value: Any) -> str:
    """A value inside a text."""
    if isinstance(value, str):
        return value
    import json

    return json.dumps(value, ensure_ascii=False)


def _missing(what: str) -> StepFailed:
    what = what if len(what) <= _NAMED else f"{what[:_NAMED]}…"
    return StepFailed(
        f"There is nothing for `{{{{{what}}}}}`",
        Message("Look at what the step before it gave"),
        code="MISSING_INPUT",
        retryable=False,
    )
