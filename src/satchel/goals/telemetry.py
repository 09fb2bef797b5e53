"""Logs and metrics of steps, goals and workers, for those who operate them.

Each event is one record of the logger `satchel.goals.telemetry`, with its values in the attributes
`LOG_FIELDS`. The metrics need the package `opentelemetry-api`; the program, or
`opentelemetry-instrument`, says where they go. Their attributes have few values: never the id of a
goal or step.

Neither contains a prompt, an output or a secret. The messages of errors may quote them, so a logged
reason has neither quoted values nor the words of exceptions, programs and providers; `satchel goal
show` has the whole message.
"""

from __future__ import annotations

import logging
import re
import time
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from satchel._optional import available
from satchel.errors import SatchelError
from satchel.goals.model import FINAL_GOAL_STATES
from satchel.i18n import Message, render, say
from satchel.tools.framing import one_line

if TYPE_CHECKING:
    from satchel.goals.model import GoalState, StepCall, StepError, StepResult, Usage

LOG_FIELDS = (
    "event", "engine", "goal", "revision", "step", "worker", "attempt", "state", "seconds",
    "tokens", "cost", "code", "reason",
)  # fmt: skip
"""Attributes of log records; each event has those that concern it."""
_MAX_REASON_CHARS = 200
_find_own_words = re.compile(r".*?(?=: |：|\Z)", re.DOTALL).match
"""What follows a colon are the words of others."""
_QUOTED = re.compile(r"`.*`", re.DOTALL)
"""From the first quoted value to the last: a value may have backticks itself."""
_SECONDS_BUCKETS = (
    0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1_800, 3_600,
)  # fmt: skip
_TOKEN_BUCKETS = tuple(4**power for power in range(14))
"""As the GenAI conventions have them."""

_logger = logging.getLogger(__name__)
_logger.addHandler(logging.NullHandler())  # without a handler of the program, nothing is printed


class _Instruments:
    """The instruments of OpenTelemetry."""

    def __init__(self, meter: Any) -> None:
        self.steps_begun = meter.create_counter(
            "satchel.step.begun", "{step}", "Steps that a worker has begun."
        )
        self.step_duration = meter.create_histogram(
            "satchel.step.duration",
            "s",
            "Time from the begin of a step to its end, with all attempts.",
            explicit_bucket_boundaries_advisory=_SECONDS_BUCKETS,
        )
        self.step_cost = meter.create_counter(
            "satchel.step.cost", "USD", "Cost of requests to models, where the price is known."
        )
        self.tokens = meter.create_histogram(
            "gen_ai.client.token.usage",
            "{token}",
            "Tokens of an attempt of a step.",
            explicit_bucket_boundaries_advisory=_TOKEN_BUCKETS,
        )
        self.goals_ended = meter.create_counter(
            "satchel.goal.ended", "{goal}", "Goals that have ended."
        )
        self.worker_deaths = meter.create_counter(
            "satchel.worker.deaths", "{worker}", "Workers that are gone without handing over."
        )


@cache
def _instruments() -> _Instruments | None:
    """The instruments; None when the API of OpenTelemetry is not installed."""
    api = available("opentelemetry.metrics")
    return None if api is None else _Instruments(api.get_meter("satchel"))


class StepTelemetry:
    """Reports what happens to one step on a worker."""

    def __init__(self, call: StepCall, engine: str, worker: str) -> None:
        self._skill = call.step.skill
        self._values: dict[str, Any] = {
            "engine": engine,
            "goal": call.goal,
            "revision": call.revision,
            "step": call.step.id,
            "worker": worker,
        }
        self._attributes: dict[str, Any] = {
            "satchel.engine": engine,
            "satchel.action_type": call.step.action_type,
        }
        self._begun_at: float | None = None
        self._reason: str | None = None
        """Why the last attempt failed."""

    def wait(self, reason: str) -> None:
        """Report that this worker cannot run the step, once per reason."""
        _log_waiting(reason, **self._values)

    def begin(self, attempt: int, version: str) -> None:
        """Report that the step begins. A skill without a version may be any text of a plan."""
        self._begun_at = time.perf_counter()
        if self._skill and version:
            self._attributes["satchel.skill"] = self._skill
        if (instruments := _instruments()) is not None:
            instruments.steps_begun.add(1, self._attributes)
        if _logger.isEnabledFor(logging.INFO):
            text = say(
                "Step `{step}` of goal `{goal}` begins, attempt {count}",
                step=self._values["step"], goal=self._values["goal"], count=attempt,
            )  # fmt: skip
            self._log(logging.INFO, "step.begun", text, attempt=attempt)

    def use(self, usage: Usage) -> None:
        """Report what an attempt used."""
        instruments = _instruments()
        if instruments is None or not usage.requests:
            return
        attributes = {**self._attributes, "gen_ai.operation.name": "invoke_agent"}
        tokens = {"input": usage.input_tokens, "output": usage.output_tokens}
        for kind, count in tokens.items():
            instruments.tokens.record(count, {**attributes, "gen_ai.token.type": kind})
        if usage.cost:
            instruments.step_cost.add(usage.cost, self._attributes)

    def fail(self, error: StepError, exc: BaseException) -> None:
        """Note why an attempt failed."""
        self._reason = _reason_of(error, exc)

    def retry(self, error: StepError, attempt: int, pause: float) -> None:
        """Report that another attempt follows after `pause` seconds."""
        reason = self._reason or ""
        text = say(
            "Attempt {count} of step `{step}` of goal `{goal}` failed: {reason};"
            " the next one begins in {seconds} s",
            count=attempt, step=self._values["step"], goal=self._values["goal"],
            reason=_join(error.code, reason), seconds=f"{pause:.1f}",
        )  # fmt: skip
        self._log(
            logging.WARNING,
            "step.retried",
            text,
            attempt=attempt,
            code=error.code,
            reason=reason,
            seconds=round(pause, 3),
        )

    def cancel(self) -> None:
        """Report that the step ends here without a result: it is cancelled, or handed over."""
        if self._begun_at is not None:
            self._end("cancelled")

    def end(self, result: StepResult) -> None:
        """Report the result of the step."""
        self._end(result.state, result.error, result)

    def _end(
        self, state: str, error: StepError | None = None, result: StepResult | None = None
    ) -> None:
        seconds = 0.0 if self._begun_at is None else time.perf_counter() - self._begun_at
        code = error.code if error is not None else ""
        if (instruments := _instruments()) is not None:
            attributes = {**self._attributes, "satchel.state": state}
            attributes |= {"error.type": code} if code else {}
            instruments.step_duration.record(seconds, attributes)
        level = logging.WARNING if state == "failed" else logging.INFO
        if not _logger.isEnabledFor(level):
            return
        values: dict[str, Any] = {"state": state, "seconds": round(seconds, 3)}
        details = [say(state), f"{seconds:.1f} s"]
        if result is not None and result.usage.requests:
            values["tokens"] = result.usage.input_tokens + result.usage.output_tokens
            details.append(say("{count} tokens", count=values["tokens"]))
            if result.usage.cost is not None:
                values["cost"] = result.usage.cost
                details.append(f"${result.usage.cost:.4f}")
        if error is not None:
            reason = _reason_of(error) if self._reason is None else self._reason
            values |= {"code": code, "reason": reason}
            details.append(_join(code, reason))
        text = say(
            "Step `{step}` of goal `{goal}` ended: {details}",
            step=self._values["step"], goal=self._values["goal"], details=", ".join(details),
        )  # fmt: skip
        self._log(level, "step.ended", text, **values)

    def _log(self, level: int, event: str, text: str, **values: Any) -> None:
        _log(level, event, text, **self._values, **values)


def report_death(engine: str, worker: str) -> None:
    """Report that a worker is gone without handing over its steps."""
    if (instruments := _instruments()) is not None:
        instruments.worker_deaths.add(1, {"satchel.engine": engine})
    text = say("Worker `{worker}` is gone; other workers take over its steps", worker=worker)
    _log(logging.WARNING, "worker.lost", text, engine=engine, worker=worker)


def report_end(engine: str, goal_id: str, state: GoalState, seconds: float = 0.0) -> None:
    """Report that a goal has ended; one that asks a person has not."""
    if state not in FINAL_GOAL_STATES:
        return
    if (instruments := _instruments()) is not None:
        instruments.goals_ended.add(1, {"satchel.engine": engine, "satchel.state": state})
    if _logger.isEnabledFor(logging.INFO):
        text = say("Goal `{goal}` ended: {state}", goal=goal_id, state=say(state))
        values = {"goal": goal_id, "state": state, "seconds": round(seconds, 3)}
        _log(logging.INFO, "goal.ended", text, engine=engine, **values)


@lru_cache(maxsize=1_024)
def _log_waiting(reason: str, **values: Any) -> None:
    """Log why a step waits; cached, since a worker is asked again every second."""
    text = say(
        "Step `{step}` of goal `{goal}` waits for another worker: {reason}",
        step=values["step"], goal=values["goal"], reason=render(reason),
    )  # fmt: skip
    _log(logging.WARNING, "step.waits", text, reason=str(reason), **values)


def _log(level: int, event: str, text: str, **values: Any) -> None:
    _logger.log(
        level, "%s", one_line(text, 4 * _MAX_REASON_CHARS), extra={"event": event, **values}
    )


def _join(code: str, reason: str) -> str:
    return f"{code}: {reason}" if reason else code


def _reason_of(error: StepError, exc: BaseException | None = None) -> str:
    """Why a step failed, in Satchel's words alone: the class of an unexpected exception."""
    if exc is not None and not isinstance(exc, SatchelError):
        return type(exc).__name__
    message = render(error.message)
    words = _find_own_words(message)
    own_words = words[0] if words else ""
    if not isinstance(error.message, Message) and (
        error.code == "EXECUTION_ERROR" or (error.code == "MODEL_FAILED" and own_words == message)
    ):
        return ""  # a program's error, or a provider's
    return one_line(_QUOTED.sub("`…`", own_words), _MAX_REASON_CHARS)
