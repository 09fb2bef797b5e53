"""Runs one step on a worker: attempts, timeouts, and validation of its output.

Shared by all engines. A failed step is a result; only cancellation is an exception, and it reaches
the runner first.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from satchel.errors import ModelFailed, SatchelError, ServerFailed, StepFailed
from satchel.goals import artifacts, output_schema
from satchel.goals.model import NO_USAGE, StepError, StepResult, Usage, Work
from satchel.goals.reports import total
from satchel.goals.step_timer import attach_usage, attached_usage, pausing
from satchel.goals.templates import TemplateRoom, TemplateValues, fill, fill_value
from satchel.i18n import Message

if TYPE_CHECKING:
    from collections.abc import Awaitable, Generator

    from satchel.goals.artifacts import Artifacts
    from satchel.goals.model import Done, GoalBudget, Retry, StepCall, StepRunner

_MAX_MESSAGE_CHARS = 2_000
_MAX_NOTE_CHARS = 200
_MISTAKES = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    ImportError,
    LookupError,
    NameError,
    NotImplementedError,
    SyntaxError,
    TypeError,
)
"""Programming errors: another attempt cannot fix them."""


class StepContext(NamedTuple):
    """What a worker needs to run a step."""

    runner: StepRunner
    artifacts: Artifacts
    large: int = 32_768
    """Larger outputs, in bytes, are stored as artifacts."""


async def perform(call: StepCall, context: StepContext) -> StepResult:
    """Run a step until its output is valid, as often as its policy allows.

    Args:
        call: The step with its inputs.
        context: The runner, and the storage of large outputs.
    """
    step = call.step
    started = time.time()
    clock = time.perf_counter()
    notes: list[str] = []
    usage = NO_USAGE
    attempt = 0
    prompt = step.prompt
    arguments: dict[str, Any] = {}
    if step.arguments or "{{" in prompt:
        try:
            prompt, arguments = await _fill_work(call, context)
        except Exception as exc:  # noqa: BLE001 - also one that has no memory left
            error = error_of(exc)._replace(retryable=False)
            return StepResult(step.id, "failed", error=error, started=started)
    while True:
        attempt += 1
        work = Work(call.goal, step, prompt, arguments, call.key, attempt)
        try:
            done = await _with_timeout(context.runner.run(work), call, time.perf_counter() - clock)
            usage = done.usage if usage is NO_USAGE else total((usage, done.usage))
            if done.usage.requests and done.usage.cost is None and call.left.cost is not None:
                notes.append("its price is not known, so the budget of `cost` does not count it")
            output = await _validated(done.output, call, context, notes)
        except (Exception, asyncio.CancelledError) as exc:  # noqa: BLE001 - it may fail in any way
            with _attach_usage_on_cancel(usage):
                error = error_of(exc)
            after, cost = _retry_hints(exc)
            usage = total((usage, cost))
        else:
            return StepResult(
                step.id,
                "done",
                output,
                None,
                attempt,
                usage,
                started,
                time.perf_counter() - clock,
                done.skills,
                done.tools,
                (*notes, *done.notes) if notes else done.notes,
            )
        pause = max(after, delay_before(attempt + 1, call.retry))
        if (
            not error.retryable
            or attempt >= call.retry.attempts
            or _budget_exhausted(call.left, usage, time.perf_counter() - clock + pause, notes)
        ):
            return StepResult(
                step.id,
                "failed",
                None,
                error,
                attempt,
                usage,
                started,
                time.perf_counter() - clock,
                notes=tuple(notes),
            )
        why = _cut(error.message, _MAX_NOTE_CHARS)
        notes.append(Message("try {count}: {why}", count=attempt, why=why))
        with _attach_usage_on_cancel(usage):
            await asyncio.sleep(pause)


@contextmanager
def _attach_usage_on_cancel(usage: Usage) -> Generator[None]:
    """Attach the usage of all attempts to a cancellation that passes."""
    try:
        yield
    except asyncio.CancelledError as end:
        attach_usage(end, total((usage, attached_usage(end))))
        raise


def _retry_hints(exc: BaseException) -> tuple[float, Usage]:
    """The retry delay and the usage that a runner's error reports."""
    if not isinstance(exc, StepFailed):
        return 0.0, NO_USAGE
    return exc.after or 0.0, exc.usage if isinstance(exc.usage, Usage) else NO_USAGE


def delay_before(attempt: int, retry: Retry) -> float:
    """Seconds to wait before an attempt; the second attempt is number 2."""
    try:
        pause = min(retry.most, retry.first * retry.factor ** (attempt - 2))
    except OverflowError:
        pause = retry.most
    return max(0.0, pause * (1 + random.uniform(-retry.jitter, retry.jitter)))  # noqa: S311


def _cut(message: str, most: int) -> str:
    return message if len(message) <= most else message[:most]


def error_of(exc: BaseException) -> StepError:
    """Convert an exception to a recorded error.

    Raises:
        asyncio.CancelledError: it is one, and the run itself was cancelled. A runner that cancels
            itself has only failed.
    """
    if isinstance(exc, asyncio.CancelledError):
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise exc
        return StepError("CANCELLED", Message("What it called was cancelled"))
    if isinstance(exc, StepFailed):
        return StepError(exc.code, _cut(exc.message, _MAX_MESSAGE_CHARS), exc.hint, exc.retryable)
    if isinstance(exc, SatchelError):
        retryable = isinstance(exc, ModelFailed | ServerFailed)
        return StepError(exc.code, _cut(exc.message, _MAX_MESSAGE_CHARS), exc.hint, retryable)
    said = str(exc)
    name = type(exc).__name__
    message = (f"{name}: {said}" if said else name)[:_MAX_MESSAGE_CHARS]
    return StepError("EXECUTION_ERROR", message, retryable=not isinstance(exc, _MISTAKES))


async def _fill_work(call: StepCall, context: StepContext) -> tuple[str, dict[str, Any]]:
    step = call.step
    outputs = call.outputs
    if any(artifacts.is_reference(output) for output in outputs.values()):
        outputs = {
            name: await artifacts.load(output, context.artifacts)
            for name, output in outputs.items()
        }
    values = TemplateValues(call.inputs, outputs, call.text)
    room = TemplateRoom()
    arguments: dict[str, Any] = fill_value(dict(step.arguments), values, room)
    return fill(step.prompt, values, room), arguments


def _budget_exhausted(left: GoalBudget, usage: Usage, seconds: float, notes: list[str]) -> bool:
    """Whether the attempts so far and the delay exhaust the goal's budget; adds a note if so."""
    tokens = usage.input_tokens + usage.output_tokens
    over = (
        (left.tokens is not None and tokens >= left.tokens)
        or (left.cost is not None and (usage.cost or 0.0) >= left.cost)
        or (left.seconds is not None and seconds >= left.seconds)
    )
    if over:
        notes.append("not tried again: the budget of the goal is used up")
    return over


async def _with_timeout(work: Awaitable[Done], call: StepCall, elapsed: float) -> Done:
    """Run an attempt within the step's timeout and the goal's remaining time.

    Libraries may `uncancel` their task: in ours, a cancelled run would look like a failed attempt.
    """
    left = None if call.left.seconds is None else max(0.0, call.left.seconds - elapsed)
    if call.timeout is None and left is None:
        return await asyncio.ensure_future(work)
    timeout, budget = asyncio.timeout(call.timeout), asyncio.timeout(left)
    try:
        async with budget, timeout:
            with pausing(timeout):  # waiting for a rate limit costs the goal's time
                return await asyncio.ensure_future(work)
    except TimeoutError as exc:
        usage = attached_usage(exc.__cause__)
        if budget.expired():
            raise StepFailed(
                Message("the goal's budget of `seconds` is used up"),
                Message("Give the goal more of them, with `satchel goal retry --plan`"),
                code="BUDGET",
                retryable=False,
                usage=usage,
            ) from None
        if not timeout.expired():
            raise
        raise StepFailed(
            Message("it took longer than {seconds} seconds", seconds=f"{call.timeout:g}"),
            Message("Give the step a longer `timeout`"),
            code="TIMEOUT",
            usage=usage,
        ) from None


async def _validated(output: Any, call: StepCall, context: StepContext, notes: list[str]) -> Any:
    """Validate an output and convert it to a form that every engine can store.

    Raises:
        StepFailed: it does not match the step's schema.
    """
    step = call.step
    if step.output:
        problems = output_schema.violations(output, step.output)
        if problems:
            raise StepFailed(
                "; ".join(problems),
                Message("Say in the prompt what the output must look like"),
                code="INVALID_OUTPUT",
            )
    try:
        text = json.dumps(output, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as exc:
        raise StepFailed(
            f"It gave something that JSON cannot say: {exc}", code="INVALID_OUTPUT", retryable=False
        ) from exc
    try:
        data = text.encode()
    except UnicodeEncodeError:
        data = text.encode("utf-8", "replace")
        text = data.decode()
        notes.append("characters that no text can have were replaced by `?`")
    # An output that looks like a reference would be followed: it is stored as an artifact itself.
    if len(data) > context.large or artifacts.is_reference(output):
        digest = await context.artifacts.put(data)
        return artifacts.reference(digest, data)
    return json.loads(text)
