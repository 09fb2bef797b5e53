"""How do goals look on Temporal's wire? Plain JSON, and limits that keep each message in bounds.

A message may have 2 MB. So the plan is limited, and how large an output may be before it goes to
the artefacts depends on how many steps there are: a plan and all its results always fit into one
message, which is what a query, an end and a new revision need.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from satchel._language import say
from satchel._optional import require
from satchel.errors import InvalidInput
from satchel.goals.artefacts import is_reference
from satchel.goals.model import Answer, Goal
from satchel.goals.reports import NOTHING, Spent, pack, pack_results, unpack, unpack_results

try:
    from temporalio import activity
    from temporalio.api.common.v1 import Payload
    from temporalio.converter import (
        CompositePayloadConverter,
        DefaultPayloadConverter,
        EncodingPayloadConverter,
    )
except ImportError:
    require("temporalio", "temporal")
    raise

if TYPE_CHECKING:
    from collections.abc import Mapping

    from satchel.goals.artefacts import Artefacts
    from satchel.goals.model import GoalReport, StepCall, StepResult

WORKFLOW = "satchel.goal"
FORGOTTEN = "satchel.forgotten"
"""The workflow that takes the place of one that is removed, until the server has removed it."""
GONE = "forgotten"
"""Why it ended, when all was removed."""
PREVIOUS = "previous"
"""The memo that names the run before: the last one of the revision before."""
ACTIVITY = "satchel.step"
ANSWER = "answer"
"""The signal that brings a person's word."""
PROGRESS = "progress"
"""The query for everything but the plan."""
SUMMARY = "summary"
"""The query for one line of a list."""
EVENTS = "events"
"""The query for what happened since."""

MESSAGE_BYTES = 1_900_000
"""What a plan and all that belongs to it may have together."""
ANSWER_BYTES = 100_000
"""What is kept free for the words of people, however large the plan is."""
STEP_BYTES = 300
"""What a result has beside its output."""
RESULT_BYTES = 600_000
"""What all outputs of a goal may have together, outside of artefacts."""
LEAST = 300
"""Bytes of an output that are never moved away: a reference would be as long."""
PAGE_BYTES = 1_000_000
"""What one answer to a query about events has at most, but for its last event."""


class Task(NamedTuple):
    """What a workflow begins with: a revision of a goal, and what is known of it."""

    goal: Goal
    revision: int = 1
    known: Mapping[str, StepResult] = {}
    answers: Mapping[str, Answer] = {}
    marks: Mapping[str, str] = {}
    """Step -> the mark of an answer whose value is in `known`."""
    started: float = 0.0
    """When the goal first ran; 0 when it did not yet."""
    events: int = 20_000
    """Entries of the history after which the workflow goes on in a new one; Temporal's own end is
    at 51,200."""
    bytes: int = 20_000_000
    """The same for its size; Temporal's own end is at 50 MB."""
    spent: Spent = NOTHING
    """What earlier revisions took for results that are not in `known`."""


def pack_task(task: Task) -> dict[str, Any]:
    """A task as JSON values."""
    return {
        **task._asdict(),
        "goal": pack(task.goal),
        "known": pack_results(task.known),
        "answers": pack_answers(task.answers),
        "spent": pack(task.spent),
    }


def unpack_task(packed: Mapping[str, Any]) -> Task:
    """The same, back; what a later version added is ignored."""
    return Task(
        unpack(Goal, packed["goal"]),
        packed.get("revision", 1),
        unpack_results(packed.get("known", {})),
        unpack_answers(packed.get("answers", {})),
        packed.get("marks", {}),
        packed.get("started", 0.0),
        packed.get("events", Task._field_defaults["events"]),
        packed.get("bytes", Task._field_defaults["bytes"]),
        unpack(Spent, packed.get("spent", {})),
    )


def pack_answers(answers: Mapping[str, Answer]) -> dict[str, Any]:
    """Answers by step, as JSON values."""
    return {name: pack(answer) for name, answer in answers.items()}


def unpack_answers(packed: Mapping[str, Any]) -> dict[str, Answer]:
    """The same, back."""
    return {name: unpack(Answer, value) for name, value in packed.items()}


def pack_call(call: StepCall, large: int) -> dict[str, Any]:
    """A call with only those inputs that its step uses: every call is kept in the history."""
    from satchel.goals.templates import mentioned

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
    if notes:
        notes = tuple(cut(note, most // len(notes)) for note in notes)
    return result._replace(output=output, error=error, notes=notes)


def cut(text: str, most: int) -> str:
    """A text of so many bytes at most, but for the mark that it was cut."""
    data = text.encode("utf-8", "surrogatepass")
    return text if len(data) <= most else data[:most].decode("utf-8", "ignore") + "…"


def _room(goal: Goal) -> int:
    """How many bytes are left for answers."""
    steps = len(goal.plan.steps)
    taken = len(encoded(pack(goal))) + STEP_BYTES * steps + large_for(steps) * steps
    return MESSAGE_BYTES - taken


def insist_on_size(goal: Goal) -> None:
    """Refuse a plan that Temporal could not carry.

    Raises:
        InvalidInput: it is too large.
    """
    over = ANSWER_BYTES - _room(goal)
    if over > 0:
        raise InvalidInput(
            say("The plan has {over} bytes more than Temporal can carry", over=f"{over:,}"),
            say("Put long texts into files, or use the engine `dbos`"),
        )


def insist_on_answer(report: GoalReport, answer: Answer) -> None:
    """Refuse a word that is too long to be carried along.

    Raises:
        InvalidInput: it is too long.
    """
    said = sum(
        len(encoded(report.steps[step.id].output))
        for step in report.plan.steps
        if step.action_type == "human" and report.steps[step.id].state == "done"
    )
    over = len(encoded(pack(answer))) + said - _room(Goal(report.id, report.plan))
    if over > 0:
        raise InvalidInput(
            say("The answer has {over} bytes more than Temporal can carry", over=f"{over:,}"),
            say("Put it into a file, and say where it is"),
        )


def mark_of(answer: Answer) -> str:
    """What tells whether two answers are the same, without carrying them."""
    import hashlib

    text = json.dumps(pack(answer), sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def digest(goal: Goal) -> str:
    """What tells whether two plans are the same."""
    import hashlib

    text = json.dumps(pack(goal.plan), sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def encoded(value: Any) -> bytes:
    """JSON, its keys in the order they have: a step's output reads the same on every engine."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "surrogatepass")


class PlainJSON(EncodingPayloadConverter):
    """JSON values and nothing else; the SDK's own would sort the keys of every output."""

    @property
    def encoding(self) -> str:
        """As Temporal's web pages know it."""
        return "json/plain"

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


class ActivityArtefacts:
    """Artefacts, for activities of many goals at once: whose workflow it is, they are."""

    def __init__(self, artefacts: Artefacts) -> None:
        self._artefacts = artefacts

    async def put(self, data: bytes) -> str:
        """Keep them for the goal of the activity that runs: its workflow's id is the goal's."""
        goal = activity.info().workflow_id if activity.in_activity() else ""
        return await (self._artefacts.of(goal) if goal else self._artefacts).put(data)

    async def get(self, name: str) -> bytes:
        """Give them back."""
        return await self._artefacts.get(name)

    def of(self, goal: str) -> Artefacts:
        """For one goal."""
        return self._artefacts.of(goal)

    async def forget(self, goal: str) -> None:
        """Remove them."""
        await self._artefacts.forget(goal)
