"""How did it end? What an answer, a failure or a used-up budget makes of a step and of a goal.

Nothing here knows a file, a clock or the environment: it runs inside workflows too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from satchel._language import Message
from satchel.errors import StepFailed
from satchel.goals import schema
from satchel.goals.model import StepError, StepResult

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from satchel.goals.model import Answer, GoalState, Step


def final(code: str, message: str) -> StepError:
    """An error that another try would not cure."""
    return StepError(code, message, retryable=False)


def broken(step: Step, exc: Exception) -> StepResult:
    """A step that could not even begin, or end: a result too, or workflows would hang in it."""
    if isinstance(exc, StepFailed):
        error = StepError(exc.code, exc.message, exc.hint, exc.retryable)
    else:
        error = final("EXECUTION_ERROR", f"{type(exc).__name__}: {exc}"[:2_000])
    return StepResult(step.id, "failed", error=error)


def answered(step: Step, answer: Answer, since: float, now: float) -> StepResult:
    """What a person's word makes of a step."""
    by = Message("answered by {name}", name=answer.by) if answer.by else ""
    notes = tuple(note for note in (by, answer.note) if note)
    result = StepResult(
        step.id, "done", attempts=1, started=since, seconds=max(0.0, now - since), notes=notes
    )
    if not answer.approved:
        said = Message("{name} said no", name=answer.by) if answer.by else None
        said = said or Message("A person said no")
        if answer.note:
            said = Message("{said}: {answer}", said=said, answer=answer.note)
        return result._replace(state="failed", error=final("REJECTED", said))
    value = "approved" if answer.value is None else answer.value
    slips = schema.slips(value, step.output) if step.output else []
    if slips:
        return result._replace(state="failed", error=final("INVALID_OUTPUT", "; ".join(slips)))
    return result._replace(output=value)


def skipped(step: Step, cause: StepResult) -> StepResult:
    """A step that is left out because of one that it needs."""
    if cause.error is not None and cause.state == "skipped":
        return StepResult(step.id, "skipped", error=cause.error)  # the first culprit, not the last
    why = Message("It needs step `{name}`, which failed", name=cause.step)
    if cause.state == "skipped":
        why = Message("It needs step `{name}`, which was skipped", name=cause.step)
    elif cause.state == "cancelled":
        why = Message("It needs step `{name}`, which was cancelled", name=cause.step)
    return StepResult(step.id, "skipped", error=final("SKIPPED", why))


def ending(
    steps: Sequence[Step],
    results: Mapping[str, StepResult],
    culprit: StepResult | None = None,
    broke: str = "",
) -> tuple[GoalState, str]:
    """The state of a goal whose run has ended, and why it is not `done`.

    Args:
        steps: Of its plan.
        results: Of every step.
        culprit: The failure that stopped everything.
        broke: Which budget is used up.
    """
    if culprit is not None:
        return "failed", _why(culprit)
    if broke:
        return "failed", broke
    bad = [result for result in results.values() if result.state != "done"]
    if not bad:
        return "done", ""
    states = {result.state for result in results.values()}
    if "asking" in states:
        return "asking", ""
    bad = [results[step.id] for step in steps if results[step.id].state != "done"]
    first = next((result for result in bad if result.state == "failed"), bad[0])
    return ("partial" if "done" in states else "failed"), _why(first)


def _why(result: StepResult) -> str:
    return Message(
        "Step `{name}`: {why}",
        name=result.step,
        why=result.error.message if result.error else result.state,
    )
