"""How is one step done? On the machine that does it, with its tries, timeouts and checks.

Every engine comes here, so that a step behaves the same on each. A step that fails is a result;
only being cancelled is an exception, and the runner hears of it first.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from satchel._language import Message
from satchel.errors import ModelFailed, SatchelError, ServerFailed, StepFailed
from satchel.goals import artefacts, schema
from satchel.goals.clock import Clock, carry, make_current
from satchel.goals.model import NO_USAGE, StepError, StepEvent, StepResult, Usage, Work
from satchel.goals.reports import total
from satchel.goals.templates import Room, Values, fill, fill_value

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator

    from satchel.goals.execution import Workbench
    from satchel.goals.model import Budget, Done, Retry, StepCall

_MESSAGE = 2_000
"""Characters of an error's message that are kept."""
_NOTE = 200
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
"""Errors in a program, which another try does not cure."""


async def perform(
    call: StepCall, bench: Workbench, tell: Callable[[StepEvent], None] | None = None
) -> StepResult:
    """Do a step: as often as its policy allows, until it gives what it promised.

    Args:
        call: Which step, with what.
        bench: Who does it, and where large outputs go.
        tell: Hears of each new try.
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
            prompt, arguments = await _filled(call, bench)
        except Exception as exc:  # noqa: BLE001 - also one that has no memory left
            error = error_of(exc)._replace(retryable=False)
            return StepResult(step.id, "failed", error=error, started=started)
    while True:
        attempt += 1
        work = Work(call.goal, step, prompt, arguments, call.key, attempt)
        ticking = Clock(None if call.left.seconds is None else _latest(call, clock))
        make_current(ticking)
        try:
            done = await _in_time(bench.runner.run(work), call, ticking)
            usage = done.usage if usage is NO_USAGE else total((usage, done.usage))
            if done.usage.requests and done.usage.cost is None and call.left.cost is not None:
                notes.append("its price is not known, so the budget of `cost` does not count it")
            output = await _kept(done.output, call, bench, notes)
        except (Exception, asyncio.CancelledError) as exc:  # noqa: BLE001 - it may fail in any way
            with _counting(usage, ticking):
                error = error_of(exc)
            after, cost = _told(exc)
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
        pause = max(after, pause_before(attempt + 1, call.retry))
        if (
            not error.retryable
            or attempt >= call.retry.attempts
            or _used_up(call.left, usage, time.perf_counter() - clock + pause, notes)
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
        why = _cut(error.message, _NOTE)
        told = {"count": attempt, "code": error.code, "why": why}
        # The code of a failed try is for scripts.
        notes.append(Message("try {count}: {code}: {why}", people="try {count}: {why}", **told))
        if tell is not None:
            tell(StepEvent(call.goal, step.id, "retrying", time.time(), notes[-1]))
        with _counting(usage):
            await asyncio.sleep(pause)


@contextmanager
def _counting(usage: Usage, clock: Clock | None = None) -> Generator[None]:
    """Whoever cancels the step learns what its tries took until then."""
    try:
        yield
    except asyncio.CancelledError as end:
        carry(end, usage if clock is None else total((usage, clock.spent)))
        raise


def _told(exc: BaseException) -> tuple[float, Usage]:
    """How long to wait before the next try, and what this one took, where the runner knows it."""
    if not isinstance(exc, StepFailed):
        return 0.0, NO_USAGE
    return exc.after or 0.0, exc.usage if isinstance(exc.usage, Usage) else NO_USAGE


def pause_before(attempt: int, retry: Retry) -> float:
    """Seconds to wait before a try, the second one being 2."""
    try:
        pause = min(retry.most, retry.first * retry.factor ** (attempt - 2))
    except OverflowError:
        pause = retry.most
    return max(0.0, pause * (1 + random.uniform(-retry.jitter, retry.jitter)))  # noqa: S311


def _cut(message: str, most: int) -> str:
    """A message that is not too long; a text otherwise."""
    return message if len(message) <= most else message[:most]


def error_of(exc: BaseException) -> StepError:
    """An exception as what is kept of it.

    Raises:
        asyncio.CancelledError: it is one, and the run itself was cancelled. A runner that ends
            itself by cancelling has only failed.
    """
    if isinstance(exc, asyncio.CancelledError):
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise exc
        return StepError("CANCELLED", Message("What it called was cancelled"))
    if isinstance(exc, StepFailed):
        return StepError(exc.code, _cut(exc.message, _MESSAGE), exc.hint, exc.retryable)
    if isinstance(exc, SatchelError):
        retryable = isinstance(exc, ModelFailed | ServerFailed)
        return StepError(exc.code, _cut(exc.message, _MESSAGE), exc.hint, retryable)
    said = str(exc)
    name = type(exc).__name__
    message = (f"{name}: {said}" if said else name)[:_MESSAGE]
    return StepError("EXECUTION_ERROR", message, retryable=not isinstance(exc, _MISTAKES))


async def _filled(call: StepCall, bench: Workbench) -> tuple[str, dict[str, Any]]:
    """The prompt and the arguments with every reference filled in."""
    step = call.step
    outputs = call.outputs
    if any(artefacts.is_reference(output) for output in outputs.values()):
        outputs = {
            name: await artefacts.load(output, bench.artefacts) for name, output in outputs.items()
        }
    values = Values(call.inputs, outputs, call.text)
    arguments: dict[str, Any] = {}
    room = Room()
    if step.arguments:
        arguments = fill_value(dict(step.arguments), values, room)
    return fill(step.prompt, values, room), arguments


def _used_up(left: Budget, usage: Usage, seconds: float, notes: list[str]) -> bool:
    """Whether the tries so far, and the pause, take all that the goal may take; it is noted."""
    tokens = usage.input_tokens + usage.output_tokens
    over = (
        (left.tokens is not None and tokens >= left.tokens)
        or (left.cost is not None and (usage.cost or 0.0) >= left.cost)
        or (left.seconds is not None and seconds >= left.seconds)
    )
    if over:
        notes.append("not tried again: the budget of the goal is used up")
    return over


def _latest(call: StepCall, clock: float) -> float:
    """When the goal has no time left, as the loop counts."""
    left = (call.left.seconds or 0.0) - (time.perf_counter() - clock)
    return asyncio.get_running_loop().time() + max(0.0, left)


async def _in_time(work: Awaitable[Done], call: StepCall, clock: Clock) -> Done:
    """Wait for a try as long as one may take, and no longer than the goal may."""
    seconds, latest = call.timeout, clock.latest
    if seconds is None and latest is None:
        return await work
    now = asyncio.get_running_loop().time()
    due = now + seconds if seconds is not None else latest
    limit = asyncio.timeout_at(due if latest is None or due is None else min(due, latest))
    try:
        async with limit:
            with clock.stopping(limit):
                return await work
    except TimeoutError:
        if not limit.expired():
            raise
        if latest is not None and asyncio.get_running_loop().time() >= latest:
            raise StepFailed(
                Message("The goal's budget of `seconds` ran out meanwhile"),
                Message("Give the goal more of them, with `satchel goal retry --plan`"),
                code="BUDGET",
                retryable=False,
                usage=clock.spent,
            ) from None
        raise StepFailed(
            Message("It took longer than {count} seconds", count=f"{seconds:g}"),
            Message("Give the step a longer `timeout`, or less to do"),
            code="TIMEOUT",
            usage=clock.spent,
        ) from None


async def _kept(output: Any, call: StepCall, bench: Workbench, notes: list[str]) -> Any:
    """The output as every engine can keep it.

    Raises:
        StepFailed: it is not what the step promised.
    """
    step = call.step
    if step.output:
        slips = schema.slips(output, step.output)
        if slips:
            raise StepFailed(
                "; ".join(slips),
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
    # What looks like a reference of ours would be followed: it is kept as an artefact itself.
    if len(data) > bench.large or artefacts.is_reference(output):
        digest = await bench.artefacts.put(data)
        return artefacts.reference(digest, data, output, bench.large // 8)
    return json.loads(text)
