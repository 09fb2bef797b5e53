"""`ToolSteps`: runs `tool` steps through a session, without a model or the extra `agent`."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import TYPE_CHECKING, Any, cast

from satchel.errors import StepFailed
from satchel.goals.model import Done, Usage
from satchel.i18n import say
from satchel.tools.framing import one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from satchel.envelope import Envelope
    from satchel.goals.model import Step, Work
    from satchel.satchel import Satchel
    from satchel.session.permissions import Approve
    from satchel.session.session import Session

_PERMANENT = frozenset((
    "NOT_FOUND", "ACCESS_DENIED", "PERMISSION_DENIED", "INVALID_PARAM", "CONFLICT",
    "IS_DIRECTORY", "BINARY_FILE", "INTERNAL_ERROR",
))  # fmt: skip
"""Envelope codes after which the same call fails again."""
_UNPREPARED = frozenset(("missing-secret", "missing-runtime", "build-failed"))
"""Faults that only a person can fix."""
_MAX_NOTE_CHARS = 400


class ToolSteps:
    """Runs `tool` steps; approvals are handled by the engine."""

    def __init__(
        self,
        satchel: Satchel,
        *,
        approve: Approve = None,
        ask: Sequence[str] = (),
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        only: Sequence[str] | None = None,
    ) -> None:
        """Create a runner.

        Args:
            satchel: The project's skills.
            approve: Decides about risky tools; None denies tools that write or use the network.
            ask: Patterns of further tools that need approval.
            include: Only skills that match one of these patterns.
            exclude: No skills that match one of these.
            only: Patterns of the permitted tools; all when None.
        """
        self.satchel = satchel
        self._approve: Approve = approve
        self._ask = ask
        self._scope = {"include": include, "exclude": exclude, "tools": only}
        self._making = threading.Lock()

    def session(self) -> Session:
        """Start a session with the skills and tools that steps may use, also for `decompose`."""
        scope = cast("Any", self._scope)
        with self._making:  # steps start concurrently, in threads, and share lazily created objects
            _ = self.satchel.detector
            return self.satchel.session(approve=self._approve, ask=self._ask, **scope)

    async def run(self, work: Work) -> Done:
        """Run one attempt of a step.

        Raises:
            StepFailed: the step failed; `retryable` allows another attempt.
        """
        kind = work.step.action_type
        if kind == "tool":
            return await self._call(work)
        if kind in {"llm", "skill"}:
            raise no_model()
        raise StepFailed(
            say("A step of type `{kind}` is not done by an agent", kind=kind),
            say("Run `{command}`", command="satchel goal answer"),
            code="INVALID_PARAM",
            retryable=False,
        )

    def close(self) -> None:
        """End the processes of tool skills."""
        self.satchel.close()

    async def _call(self, work: Work) -> Done:
        step = work.step
        session = await asyncio.to_thread(self.session)
        reply = await session.acall(step.tool, dict(work.arguments), key=work.key)
        if reply.error is not None:
            raise step_failed(reply)
        last_line = one_line(reply.text.rpartition("\n")[2], _MAX_NOTE_CHARS)
        notes = (last_line,) if reply.status == "partial" else ()
        skills = tuple(session.loaded)
        return Done(_output_of(reply, step), Usage(), skills, (step.tool,), notes)


def no_model() -> StepFailed:
    """The failure of a step that needs a model when there is none."""
    return StepFailed(
        say("No model is set, and this step needs one"),
        say("Name one as `provider:model`"),
        code="INVALID_PARAM",
        retryable=False,
    )


def step_failed(reply: Envelope) -> StepFailed:
    """Convert a failed call to the step's failure."""
    assert reply.error is not None  # noqa: S101 - only those come here
    code, message, hint, _ = reply.error
    fixed = reply.data.get("failure") in _UNPREPARED or code in _PERMANENT
    return StepFailed(message, hint, code=code, retryable=not fixed)


def _output_of(reply: Envelope, step: Step) -> Any:
    """The output of a tool: its data if the step has a schema, otherwise its text.

    A program's text is used without the frame for models: it is the next step's
    input, and may go to a tool.
    """
    data = reply.data
    program = "tier" in data and isinstance(data.get("output"), str)
    if not step.output:
        return data["output"] if program else reply.text
    if not program:
        return data
    if "data" in data:
        return data["data"]
    try:
        return json.loads(data["output"])
    except ValueError:
        return data["output"]  # validation reports what is wrong
