"""Messages of the engine `temporal`: plain JSON within Temporal's limit of 2 MB.

The plan is limited, and the size from which an output becomes an artifact depends on the number
of steps: a plan and all its results fit into one message, as a query and a new revision need it.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any, NamedTuple

from satchel._optional import require
from satchel.errors import InvalidInput
from satchel.goals.artifacts import is_reference
from satchel.goals.model import Answer, Goal, StepResult
from satchel.goals.reports import NESTED_RECORDS, NO_SPENT, Spent, pack
from satchel.goals.templates import references_of
from satchel.i18n import say

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
"""Workflow type of a tombstone, which replaces a removed goal."""
ACTIVITY = "satchel.step"
ANSWER = "answer"
PROGRESS = "progress"
"""Query for everything but the plan."""

MAX_MESSAGE_BYTES = 1_900_000
"""Limit of a plan with everything that belongs to it."""
MAX_ANSWER_BYTES = 100_000
"""Reserved for answers, however large the plan is."""
STEP_BYTES = 300
"""Size of a result without its output."""
MAX_RESULTS_BYTES = 600_000
"""Limit of all outputs of a goal, outside of artifacts."""
MIN_ARTIFACT_BYTES = 300
"""Smaller outputs never become artifacts: the reference would be as long."""


class Task(NamedTuple):
    """The input of a workflow: a revision of a goal, and its known results."""

    goal: Goal
    revision: int = 1
    known: Mapping[str, StepResult] = {}
    answers: Mapping[str, Answer] = {}
    started: float = 0.0
    """Time of the goal's first run; 0 before it."""
    spent: Spent = NO_SPENT
    """Usage of earlier revisions for results that are not in `known`."""


NESTED_RECORDS[Task] = {"goal": Goal, "known": StepResult, "answers": Answer, "spent": Spent}


def pack_call(call: StepCall, large: int) -> dict[str, Any]:
    """Pack a call with only the inputs that its step uses: every call is kept in the history."""
    references = list(references_of(call.step))
    wanted = {one.name for one in references if one.kind == "inputs"}
    call = call._replace(
        inputs={name: value for name, value in call.inputs.items() if name in wanted},
        text=call.text if any(one.kind == "goal" for one in references) else "",
    )
    return {"call": pack(call), "large": large}


def artifact_threshold(steps: int) -> int:
    """The size in bytes from which an output becomes an artifact."""
    return max(MIN_ARTIFACT_BYTES, MAX_RESULTS_BYTES // max(1, steps))


def shorten_result(result: StepResult, large: int) -> StepResult:
    """Shorten the texts of a result to leave room for those of the other steps."""
    most = max(MIN_ARTIFACT_BYTES // 2, large // 4)
    output, error, notes = result.output, result.error, result.notes
    if is_reference(output):
        output = {**output, "head": cut_text(str(output.get("head", "")), most)}
    if error is not None:
        error = error._replace(message=cut_text(error.message, most))
    notes = tuple(cut_text(note, most // len(notes)) for note in notes)
    return result._replace(output=output, error=error, notes=notes)


def cut_text(text: str, most: int) -> str:
    """Cut a text to a number of bytes, plus the mark of the cut."""
    data = text.encode("utf-8", "surrogatepass")
    return text if len(data) <= most else data[:most].decode("utf-8", "ignore") + "…"


def require_size(goal: Goal, answers: int = MAX_ANSWER_BYTES) -> None:
    """Refuse a plan and answers that exceed Temporal's message limit.

    Raises:
        InvalidInput: it is too large.
    """
    steps = len(goal.plan.steps)
    taken = (
        len(encode_json(pack(goal))) + (STEP_BYTES + artifact_threshold(steps)) * steps + answers
    )
    if taken > MAX_MESSAGE_BYTES:
        over = f"{taken - MAX_MESSAGE_BYTES:,}"
        raise InvalidInput(
            say(
                "The plan with its answers has {over} bytes more than Temporal can carry", over=over
            ),
            say("Put long texts into files, or use the engine `dbos`"),
        )


def json_digest(record: Any) -> str:
    """A digest for comparing answers or plans."""
    text = json.dumps(pack(record), sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def encode_json(value: Any) -> bytes:
    """JSON with keys in their order: a step's output reads the same on every engine."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "surrogatepass")


class PlainJSON(JSONPlainPayloadConverter):
    """The SDK's JSON without sorted keys."""

    def to_payload(self, value: Any) -> Payload | None:
        """Encode."""
        return Payload(metadata={"encoding": b"json/plain"}, data=encode_json(value))

    def from_payload(self, payload: Payload, type_hint: type | None = None) -> Any:  # noqa: ARG002
        """Decode; records are unpacked where they are used."""
        return json.loads(payload.data)


class Converter(CompositePayloadConverter):
    """The SDK's converter with our JSON."""

    def __init__(self) -> None:
        others = DefaultPayloadConverter.default_encoding_payload_converters
        super().__init__(*(PlainJSON() if one.encoding == "json/plain" else one for one in others))
