"""Messages of the engine `temporal`: plain JSON that keeps within Temporal's 2 MB.

The plan is limited, and the size from which an output goes to the artefacts depends on the number
of steps: a plan and all its results fit into one message, as a query and a new revision need it.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any, NamedTuple

from satchel._language import say
from satchel._optional import require
from satchel.errors import InvalidInput
from satchel.goals.artefacts import is_reference
from satchel.goals.model import Answer, Goal, StepResult
from satchel.goals.reports import INSIDE, NOTHING, Spent, pack
from satchel.goals.templates import mentioned

try:
    from temporalio.api.common.v1 import Payload
    from temporalio.converter import (
        CompositePayloadConverter,
        DefaultPayloadConverter,
        JSONPlainPayloadConverter,
    )
except ImportError:
    require("temporalio", "temporal")
    raise

if TYPE_CHECKING:
    from collections.abc import Mapping

    from satchel.goals.model import StepCall

WORKFLOW = "satchel.goal"
FORGOTTEN = "satchel.forgotten"
"""The workflow that takes the place of one that is removed."""
ACTIVITY = "satchel.step"
ANSWER = "answer"
"""The signal that brings an answer."""
PROGRESS = "progress"
"""The query for everything but the plan."""

MESSAGE_BYTES = 1_900_000
"""What a plan and all that belongs to it may have together."""
ANSWER_BYTES = 100_000
"""What is kept free for answers, however large the plan is."""
STEP_BYTES = 300
"""What a result has beside its output."""
RESULT_BYTES = 600_000
"""What all outputs of a goal may have together, outside of artefacts."""
LEAST = 300
"""Bytes of an output that are never moved away: a reference would be as long."""


class Task(NamedTuple):
    """The input of a workflow: a revision of a goal, and what is known of it."""

    goal: Goal
    revision: int = 1
    known: Mapping[str, StepResult] = {}
    answers: Mapping[str, Answer] = {}
    started: float = 0.0
    """When the goal first ran; 0 when it did not yet."""
    spent: Spent = NOTHING
    """What earlier revisions took for results that are not in `known`."""


INSIDE[Task] = {"goal": Goal, "known": StepResult, "answers": Answer, "spent": Spent}


def pack_call(call: StepCall, large: int) -> dict[str, Any]:
    """A call with only those inputs that its step uses: every call is kept in the history."""
    references = list(mentioned(call.step))
    wanted = {one.name for one in references if one.kind == "inputs"}
    call = call._replace(
        inputs={name: value for name, value in call.inputs.items() if name in wanted},
        text=call.text if any(one.kind == "goal" for one in references) else "",
    )
    return {"call": pack(call), "large": large}


def large_for(steps: int) -> int:
    """How many bytes an output may have outside of the artefacts."""
    return max(LEAST, RESULT_BYTES // max(1, steps))


def fitting(result: StepResult, large: int) -> StepResult:
    """A result whose texts leave room for those of the other steps."""
    most = max(LEAST // 2, large // 4)
    output, error, notes = result.output, result.error, result.notes
    if is_reference(output):
        output = {**output, "head": cut(str(output.get("head", "")), most)}
    if error is not None:
        error = error._replace(message=cut(error.message, most))
    notes = tuple(cut(note, most // len(notes)) for note in notes)
    return result._replace(output=output, error=error, notes=notes)


def cut(text: str, most: int) -> str:
    """A text of so many bytes at most, but for the mark that it was cut."""
    data = text.encode("utf-8", "surrogatepass")
    return text if len(data) <= most else data[:most].decode("utf-8", "ignore") + "…"


def insist_on_size(goal: Goal, answers: int = ANSWER_BYTES) -> None:
    """Refuse a plan and answers of so many bytes that Temporal could not carry.

    Raises:
        InvalidInput: it is too large.
    """
    steps = len(goal.plan.steps)
    taken = len(encoded(pack(goal))) + (STEP_BYTES + large_for(steps)) * steps + answers
    if taken > MESSAGE_BYTES:
        over = f"{taken - MESSAGE_BYTES:,}"
        raise InvalidInput(
            say(
                "The plan with its answers has {over} bytes more than Temporal can carry", over=over
            ),
            say("Put long texts into files, or use the engine `dbos`"),
        )


def mark_of(record: Any) -> str:
    """A digest that tells whether two answers or plans are the same."""
    text = json.dumps(pack(record), sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def encoded(value: Any) -> bytes:
    """JSON, its keys in the order they have: a step's output reads the same on every engine."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "surrogatepass")


class PlainJSON(JSONPlainPayloadConverter):
    """The SDK's JSON without its sorting of keys."""

    def to_payload(self, value: Any) -> Payload | None:
        """Encode."""
        return Payload(metadata={"encoding": b"json/plain"}, data=encoded(value))

    def from_payload(self, payload: Payload, type_hint: type | None = None) -> Any:  # noqa: ARG002
        """Decode; records are made of it where they are wanted."""
        return json.loads(payload.data)


class Converter(CompositePayloadConverter):
    """The SDK's converter with our JSON in the place of its own."""

    def __init__(self) -> None:
        others = DefaultPayloadConverter.default_encoding_payload_converters
        super().__init__(*(PlainJSON() if one.encoding == "json/plain" else one for one in others))
