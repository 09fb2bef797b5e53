"""Who does the steps that call a tool? A session, and no model: the extra `agent` is not needed."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import TYPE_CHECKING, Any, cast

from satchel._language import say
from satchel.errors import StepFailed
from satchel.goals.model import Done, Usage
from satchel.tools.frame import one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from satchel.envelope import Envelope
    from satchel.facade import Satchel
    from satchel.goals.model import Step, Work
    from satchel.tools.gate import Approve
    from satchel.tools.session import Session

_PERMANENT = frozenset((
    "NOT_FOUND", "ACCESS_DENIED", "PERMISSION_DENIED", "INVALID_PARAM", "CONFLICT",
    "IS_DIRECTORY", "BINARY_FILE", "INTERNAL_ERROR",
))  # fmt: skip
"""Codes of envelopes after which the same call fails again."""
_UNPREPARED = frozenset(("missing-secret", "missing-runtime", "build-failed"))
"""What only a person can put right."""
_LONGEST = 400


class ToolSteps:
    """Does `tool` steps; what waits for people is the engine's business."""

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
        """Take the parts.

        Args:
            satchel: The skills.
            approve: Who is asked about risky tools; None refuses what writes or uses the network.
            ask: Patterns of further tools that need a person's word.
            include: Only skills that match one of these patterns.
            exclude: No skills that match one of these.
            only: Patterns of the tools that may be called; all of them when None.
        """
        self.satchel = satchel
        self._approve: Approve = approve
        self._ask = ask
        self._scope = {"include": include, "exclude": exclude, "tools": only}
        self._making = threading.Lock()

    def session(self) -> Session:
        """Start a session with the skills and tools that steps may use, also for `decompose`."""
        scope = cast("Any", self._scope)
        with self._making:  # steps begin at once, in threads, and share what is made lazily
            _ = self.satchel.detector
            return self.satchel.session(approve=self._approve, ask=self._ask, **scope)

    async def run(self, work: Work) -> Done:
        """Do one try of a step.

        Raises:
            StepFailed: it cannot be done; `retryable` says whether to try again.
        """
        kind = work.step.action_type
        if kind == "tool":
            return await self._call(work)
        if kind in {"llm", "skill"}:
            raise no_model()
        raise StepFailed(
            say("A step of type `{kind}` is not done by an agent", kind=kind),
            say("Answer it with `satchel goal approve`"),
            code="INVALID_PARAM",
            retryable=False,
        )

    def close(self) -> None:
        """End the processes of tool skills."""
        self.satchel.close()

    async def _call(self, work: Work) -> Done:
        """One call of a tool."""
        step = work.step
        session = await asyncio.to_thread(self.session)
        reply = await session.acall(step.tool, dict(work.arguments), key=work.key)
        if reply.error is not None:
            raise refused(reply)
        notes = (one_line(reply.text.rpartition("\n")[2], _LONGEST),) if _is_cut(reply) else ()
        skills = tuple(session.loaded)
        return Done(_output_of(reply, step), Usage(), skills, (step.tool,), notes)


def no_model() -> StepFailed:
    """A step asks a model, and none is there."""
    return StepFailed(
        say("No model is set, and this step needs one"),
        say("Name one as `provider:model`"),
        code="INVALID_PARAM",
        retryable=False,
    )


def refused(reply: Envelope) -> StepFailed:
    """A call that came to nothing, as the step's failure."""
    assert reply.error is not None  # noqa: S101 - only those come here
    code, message, hint, _ = reply.error
    fixed = reply.data.get("failure") in _UNPREPARED or code in _PERMANENT
    return StepFailed(message, hint, code=code, retryable=not fixed)


def _is_cut(reply: Envelope) -> bool:
    return reply.status == "partial"


def _output_of(reply: Envelope, step: Step) -> Any:
    """What a tool gave: its data where the step promises a shape, else its text.

    A program's text is taken without the frame that a model would see: it is the next step's
    input, and may be a tool's.
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
        return data["output"]  # whoever checks it says what is wrong
