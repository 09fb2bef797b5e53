"""Runs one step on a worker: attempts, timeouts, and validation of its output.

Shared by all engines. A failed step is a result; only cancellation is an exception, and it reaches
the runner first.

The timeout of a step covers its work, not its time in a provider's queue: it pauses while the step
waits for a rate limit. An attempt that is cancelled returns no result: its usage is attached to the
cancellation.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from satchel.errors import ModelFailed, SatchelError, ServerFailed, StepFailed
from satchel.goals import artifacts, output_schema
from satchel.goals.model import (
    NO_USAGE,
    Retry,
    StepBegun,
    StepError,
    StepResult,
    Usage,
    Work,
    resource_of,
)
from satchel.goals.reports import total
from satchel.goals.step_inputs import evaluate, fill_texts, load_values
from satchel.goals.telemetry import StepTelemetry
from satchel.goals.templates import may_have_references
from satchel.i18n import Message

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator

    from satchel.goals.artifacts import Artifacts
    from satchel.goals.model import Done, GoalBudget, StepCall, StepRunner, StepState


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


_CANCEL_INTERVAL_S = 1.0
"""How often a step that ignores its cancellation is cancelled again."""
MAX_WORKER_DEATHS = 5
"""A step during which so many workers died fails."""
_MIN_SUSPECT_DEATHS = 2
"""From so many deaths on, a worker runs only one such step at a time: if it dies again, the others
are not counted."""
_DEATH_DELAY = Retry(first=1.0, factor=2.0, most=60.0)
"""Delays before a step runs again after the death of its worker."""


class AttemptLog:
    """Keeps the records of steps that have begun; an engine makes them durable."""

    worker = "0@localhost"
    """The name of the worker in the records."""

    def begun(self, step: str) -> StepBegun:
        """The record of a step as earlier workers left it."""
        return StepBegun(step)

    async def write(self, begun: StepBegun) -> None:
        """Store a record."""

    async def confirm(self) -> None:
        """Wait until the step is certainly this worker's; called just before the runner."""

    async def leave_to_others(self, begun: StepBegun) -> bool:
        """Leave a step to a worker that can run it; False where there is no other worker."""
        del begun
        return False


class StepContext(NamedTuple):
    """What a worker needs to run a step."""

    runner: StepRunner
    artifacts: Artifacts
    artifact_bytes: int = 32_768
    """Larger outputs, in bytes, are stored as artifacts."""
    log: AttemptLog = AttemptLog()
    """The records of begun steps."""
    suspects: asyncio.Lock | None = None
    """Held by a step during which workers have died repeatedly."""
    engine: str = ""
    """The name of the engine, for logs and metrics."""


async def perform(call: StepCall, context: StepContext) -> StepResult:
    """Run a step until its output is valid, as often as its policy allows."""
    telemetry = StepTelemetry(call, context.engine, worker_label(context.log.worker))
    try:
        result = await _perform(call, context, telemetry)
    except BaseException:
        telemetry.cancel()
        raise
    telemetry.end(result)
    return result


async def _perform(call: StepCall, context: StepContext, telemetry: StepTelemetry) -> StepResult:
    begun = context.log.begun(call.step.id)
    if begun.deaths >= MAX_WORKER_DEATHS:
        error = StepError(
            "WORKER_LOST",
            Message("Its worker died {count} times while it ran", count=begun.deaths),
            Message("Look at the workers' logs: the step may take their memory, or kill them"),
            retryable=False,
        )
        return _result_of(begun, "failed", error=error)
    begun = await _find_version(call, context, begun, telemetry)
    if begun.deaths:
        await asyncio.sleep(delay_before(begun.deaths + 1, _DEATH_DELAY))
    if begun.deaths < _MIN_SUSPECT_DEATHS or context.suspects is None:
        return await _run_attempts(call, context, begun, telemetry)
    async with context.suspects:
        return await _run_attempts(call, context, begun, telemetry)


async def _find_version(
    call: StepCall, context: StepContext, begun: StepBegun, telemetry: StepTelemetry
) -> StepBegun:
    """Wait until this worker can run a step; returns its record with the version to run."""
    while True:
        version, problem = await _check_worker(call, context)
        if not problem:
            return begun._replace(version=version, waits_for="")
        telemetry.wait(problem)
        if not await context.log.leave_to_others(begun._replace(waits_for=problem)):
            return begun  # the runner says what is missing


async def _check_worker(call: StepCall, context: StepContext) -> tuple[str, str]:
    """The version of a step's skill or tool on this worker, and why it cannot run the step."""
    step = call.step
    worker = worker_label(context.log.worker)
    if step.action_type in {"llm", "skill"} and not getattr(context.runner, "has_model", True):
        return "", Message("Worker `{worker}` has no model", worker=worker)
    version_of = getattr(context.runner, "version_of", None)
    resource = resource_of(step)
    if version_of is None or not resource:
        return "", ""
    version = await asyncio.to_thread(version_of, step)
    if version is None:
        problem = Message("Worker `{worker}` does not have `{name}`", worker=worker, name=resource)
        return "", problem
    if not call.version or version == call.version:
        return version, ""
    problem = Message(
        "Worker `{worker}` has `{name}` in version {version}, and the goal wants {wanted}",
        worker=worker,
        name=resource,
        version=version[:12],
        wanted=call.version[:12],
    )
    return "", problem


def worker_label(name: str) -> str:
    """The name of a worker as reports show it: `PID@HOST`."""
    _, pid, _, host = f"{name}:::".split(":")[:4]
    return f"{pid}@{host}" if pid else name


async def _run_attempts(
    call: StepCall, context: StepContext, begun: StepBegun, telemetry: StepTelemetry
) -> StepResult:
    step = call.step
    begun = begun._replace(started=time.time())
    telemetry.begin(begun.attempts + 1, begun.version)
    clock = time.perf_counter()
    try:
        prepared = await _prepare(call, context)
    except Exception as exc:  # noqa: BLE001 - also one that has no memory left
        error = error_of(exc)._replace(retryable=False)
        return _result_of(begun, "failed", error=error)
    if isinstance(prepared, StepResult):
        return prepared._replace(started=begun.started, seconds=time.perf_counter() - clock)
    run = _send_notification if step.action_type == "notify" else context.runner.run
    while True:
        begun = begun._replace(attempts=begun.attempts + 1, worker=context.log.worker)
        await context.log.write(begun)
        work = prepared._replace(attempt=begun.attempts)
        notes: list[str] = []
        usage = NO_USAGE
        try:
            attempt = _confirmed(context.log, run, work)
            outcome = await _with_timeout(attempt, call, time.perf_counter() - clock)
            usage = outcome.usage
            if usage.requests and usage.cost is None and call.left.cost is not None:
                notes.append("its price is not known, so the budget of `cost` does not count it")
            output = await _validated(outcome.output, call, context, notes)
        except (Exception, asyncio.CancelledError) as exc:  # noqa: BLE001 - it may fail in any way
            after, cost = _retry_hints(exc)
            usage = total((usage, cost, attached_usage(exc)))
            begun = _ended_attempt(begun, usage, notes, telemetry)
            try:
                error = error_of(exc)
                telemetry.fail(error, exc)
            except asyncio.CancelledError as end:
                attach_usage(end, begun.usage)
                await context.log.write(begun)
                raise
        else:
            begun = _ended_attempt(begun, usage, [*notes, *outcome.notes], telemetry)
            return _result_of(
                begun,
                "done",
                output=output,
                seconds=time.perf_counter() - clock,
                skills=outcome.skills,
                tools=outcome.tools,
            )
        begun = begun._replace(failures=begun.failures + 1)
        pause = max(after, delay_before(begun.failures + 1, call.retry))
        seconds = time.perf_counter() - clock
        notes = [*begun.notes]
        if (
            not error.retryable
            or begun.failures >= call.retry.attempts
            or _budget_exhausted(call.left, begun.usage, seconds + pause, notes)
        ):
            begun = begun._replace(notes=tuple(notes))
            return _result_of(begun, "failed", error=error, seconds=seconds)
        begun = begun._replace(notes=(*begun.notes, _failure_note(begun, error)))
        telemetry.retry(error, begun.attempts, pause)
        try:
            await context.log.write(begun)
            await asyncio.sleep(pause)
        except asyncio.CancelledError as end:
            attach_usage(end, begun.usage)
            raise


def _ended_attempt(
    begun: StepBegun, usage: Usage, notes: list[str], telemetry: StepTelemetry
) -> StepBegun:
    """The record after an attempt, with what it used."""
    telemetry.use(usage)
    usage = total((begun.usage, usage)) if usage != NO_USAGE else begun.usage
    return begun._replace(worker="", usage=usage, notes=(*begun.notes, *notes))


def _failure_note(begun: StepBegun, error: StepError) -> str:
    """What a report says of an attempt that failed and is followed by another one."""
    why = _storable(error.message, _MAX_NOTE_CHARS)
    return Message("try {count}: {why}", count=begun.attempts, why=why)


def _result_of(begun: StepBegun, state: StepState, **fields: Any) -> StepResult:
    """The result of a step, with the attempts and the usage of its record."""
    return StepResult(
        begun.step,
        state,
        attempts=begun.attempts,
        usage=begun.usage,
        started=begun.started,
        notes=begun.notes,
        version=begun.version,
        **fields,
    )


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


def _storable(message: str, max_chars: int = _MAX_MESSAGE_CHARS) -> str:
    """A message that every engine can store: cut, and without lone surrogates."""
    text = message if len(message) <= max_chars else message[:max_chars]
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text


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
        return StepError(exc.code, _storable(exc.message), exc.hint, exc.retryable)
    if isinstance(exc, SatchelError):
        retryable = isinstance(exc, ModelFailed | ServerFailed)
        return StepError(exc.code, _storable(exc.message), exc.hint, retryable)
    text = str(exc)
    name = type(exc).__name__
    message = _storable(f"{name}: {text}" if text else name)
    return StepError("EXECUTION_ERROR", message, retryable=not isinstance(exc, _MISTAKES))


async def _prepare(call: StepCall, context: StepContext) -> Work | StepResult:
    """Return what the runner is to do, or the result of a step that needs no runner.

    Raises:
        StepFailed: its inputs cannot be loaded or evaluated.
    """
    step = call.step
    if not may_have_references(step):
        return Work(call.goal, step, step.prompt, {}, call.key)
    values = await load_values(call, context.artifacts)
    result = evaluate(step, values)
    if result is not None:
        notes: list[str] = []
        if result.output is not None:
            output = await _validated(result.output, call, context, notes)
            result = result._replace(output=output, notes=tuple(notes))
        return result
    prompt, arguments = fill_texts(step, values)
    return Work(call.goal, step, prompt, arguments, call.key)


async def _send_notification(work: Work) -> Done:
    from satchel.goals.notifications import send_notification  # workflows have no network

    return await send_notification(work)


def _budget_exhausted(
    remaining: GoalBudget, usage: Usage, seconds: float, notes: list[str]
) -> bool:
    """Whether the attempts so far and the delay exhaust the goal's budget; adds a note if so."""
    tokens = usage.input_tokens + usage.output_tokens
    over = (
        (remaining.tokens is not None and tokens >= remaining.tokens)
        or (remaining.cost is not None and (usage.cost or 0.0) >= remaining.cost)
        or (remaining.seconds is not None and seconds >= remaining.seconds)
    )
    if over:
        notes.append("not tried again: the budget of the goal is used up")
    return over


async def _confirmed(log: AttemptLog, run: Callable[[Work], Awaitable[Done]], work: Work) -> Done:
    """Run an attempt in its own task, in which nothing lies between the check and the runner."""
    with paused():  # the time of the step begins with its work
        await log.confirm()
    return await run(work)


async def _run_to_end(work: Awaitable[Done]) -> Done:
    """Await an attempt; when cancelled, cancel it again every second until it has ended."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError as end:
        while not task.done():
            task.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.wait([task], timeout=_CANCEL_INTERVAL_S)
        try:
            attach_usage(end, task.result().usage)
        except asyncio.CancelledError as exc:
            attach_usage(end, attached_usage(exc))
        except Exception as exc:  # noqa: BLE001 - the cancellation counts
            attach_usage(end, _retry_hints(exc)[1])
        raise


async def _with_timeout(work: Awaitable[Done], call: StepCall, elapsed: float) -> Done:
    """Run an attempt within the step's timeout and the goal's remaining time.

    Libraries may `uncancel` their task: in ours, a cancelled run would look like a failed attempt.
    """
    remaining_s = None if call.left.seconds is None else max(0.0, call.left.seconds - elapsed)
    if call.timeout is None and remaining_s is None:
        return await _run_to_end(work)
    timeout, budget = asyncio.timeout(call.timeout), asyncio.timeout(remaining_s)
    try:
        async with budget, timeout:
            with pausing(timeout):  # waiting for a rate limit costs the goal's time
                return await _run_to_end(work)
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
    if len(data) > context.artifact_bytes or artifacts.is_reference(output):
        digest = await context.artifacts.put(data)
        return artifacts.reference(digest, data)
    return json.loads(text)


class _PausedTimeout:
    """A timeout of the current attempt, and how many of its requests wait and work."""

    def __init__(self, timeout: asyncio.Timeout) -> None:
        self.timeout = timeout
        self.waiting = self.working = 0
        self.remaining: float | None = None
        """Seconds left when it was paused."""
        self.still = False


_running: ContextVar[tuple[_PausedTimeout, ...]] = ContextVar("satchel_timeouts", default=())


@contextmanager
def paused() -> Generator[None]:
    """Wait for a rate limit: the timeouts of the step are paused while no other request works."""
    _count(waiting=1)
    try:
        yield
    finally:
        _count(waiting=-1)


@contextmanager
def running() -> Generator[None]:
    """Work, for which the timeouts of the step run although another request waits."""
    _count(working=1)
    try:
        yield
    finally:
        _count(working=-1)


def _count(*, waiting: int = 0, working: int = 0) -> None:
    now = asyncio.get_running_loop().time()
    for timer in _running.get():
        timer.waiting += waiting
        timer.working += working
        still = timer.waiting > 0 and not timer.working
        if still == timer.still:
            continue
        timer.still = still
        if still:
            due = timer.timeout.when()
            timer.remaining = None if due is None else due - now
            _reschedule(timer.timeout, None)
        elif timer.remaining is not None:
            _reschedule(timer.timeout, now + timer.remaining)


def _reschedule(timeout: asyncio.Timeout, due: float | None) -> None:
    with suppress(RuntimeError):  # it has expired, and the step is cleaning up
        timeout.reschedule(due)


@contextmanager
def pausing(timeout: asyncio.Timeout) -> Generator[None]:
    """Pause a running timeout while the step waits for a rate limit."""
    token = _running.set((*_running.get(), _PausedTimeout(timeout)))
    try:
        yield
    finally:
        _running.reset(token)


def attach_usage(end: BaseException, usage: Usage) -> None:
    """Attach the usage of an attempt to the cancellation that ends it."""
    cast("Any", end).satchel_usage = usage


def attached_usage(end: BaseException | None) -> Usage:
    """The usage attached to a cancellation; none when it came from elsewhere."""
    return getattr(end, "satchel_usage", NO_USAGE)
