"""`ToolSteps`: runs `tool` steps through a session, without a model or the extra `agent`."""

from __future__ import annotations

import asyncio
import json
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from satchel.errors import SatchelError, StepFailed
from satchel.goals.model import Done, Usage, resource_of
from satchel.i18n import Message, say
from satchel.session.permissions import NEEDS_APPROVAL
from satchel.tools.framing import one_line
from satchel.tools.proposed_changes import change_notes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from satchel.envelope import Envelope
    from satchel.goals.model import Plan, Step, Work
    from satchel.satchel import Satchel
    from satchel.session.options import ChildOptions
    from satchel.session.permissions import Approve
    from satchel.session.session import Session

_PERMANENT_CODES = frozenset((
    "NOT_FOUND", "ACCESS_DENIED", "PERMISSION_DENIED", "INVALID_PARAM", "CONFLICT",
    "IS_DIRECTORY", "BINARY_FILE", "INTERNAL_ERROR",
))  # fmt: skip
"""Envelope codes after which the same call fails again."""
_SETUP_FAILURES = frozenset(("missing-secret", "missing-runtime", "build-failed"))
"""Faults that only a person can fix."""
_MAX_NOTE_CHARS = 400
_SHORT_DIGEST_CHARS = 12


class ToolSteps:
    """Runs `tool` steps; approvals are handled by the engine."""

    has_model = False
    """Whether it runs steps that need a model; other workers do where it does not."""

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
            approve: Decides about risky tools and changes; see `SessionOptions`.
            ask: Patterns of further tools that need approval.
            include: Only skills that match one of these patterns.
            exclude: No skills that match one of these.
            only: Patterns of the permitted tools; all when None.
        """
        self.satchel = satchel
        self._approve: Approve = approve
        self._ask = ask
        self._options: ChildOptions = {"include": include, "exclude": exclude, "tools": only}
        self._session_lock = threading.Lock()

    def session(self) -> Session:
        """Start a session with the skills and tools that steps may use, also for `decompose`."""
        with (
            self._session_lock
        ):  # steps start concurrently, in threads, and share lazily created objects
            _ = self.satchel.detector
            return self.satchel.session(approve=self._approve, ask=self._ask, **self._options)

    def version_of(self, step: Step) -> str | None:
        """Return the digest of the skill or tool skill of a step; None when it is not here.

        The digest is empty for Satchel's own tools, packaged tools, and steps that need no skill.

        Args:
            step: A step of a plan.
        """
        library = self.satchel.library
        snapshot = library.refresh()
        if step.action_type == "tool":
            if step.tool not in self.session().tool_names:
                return None
            owners = (owner.skill for owner in snapshot.tools.skills if step.tool in owner.tools)
            skill = next(owners, None)
            return "" if skill is None else library.integrity.digest(skill)
        if not step.skill:
            return ""
        skill = library.get_skill(step.skill)
        return None if skill is None else library.integrity.digest(skill)

    def versions_of(self, plan: Plan) -> dict[str, str]:
        """The digests of the skills and tools of a plan, for `Goal.versions`.

        Args:
            plan: The plan of a goal.
        """
        versions = {resource_of(step): self.version_of(step) for step in plan.steps}
        return {name: version for name, version in versions.items() if name and version}

    def abilities(self) -> dict[str, Any]:
        """What this runner can run: its model, and name -> short digest of the skills."""
        library = self.satchel.library
        snapshot = library.refresh()
        skills = {skill.name: skill for skill in snapshot.skills}
        skills |= {owner.skill.name: owner.skill for owner in snapshot.tools.skills}
        digests: dict[str, str] = {}
        for name, skill in sorted(skills.items()):
            with suppress(SatchelError):  # it cannot be read
                digests[name] = library.integrity.digest(skill)[:_SHORT_DIGEST_CHARS]
        return {"model": "", "skills": digests}

    async def run(self, work: Work) -> Done:
        """Run one attempt of a step.

        Raises:
            StepFailed: the step failed; `retryable` allows another attempt.
        """
        kind = work.step.action_type
        if kind == "tool":
            return await self._call(work)
        if kind in {"llm", "skill"}:
            raise missing_model_failure()
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
        """Call the tool of a step."""
        step = work.step
        session = await asyncio.to_thread(self.session)
        if session.lacks_approval(step.tool):  # what it writes would be discarded
            raise StepFailed(
                Message(NEEDS_APPROVAL, tool=one_line(step.tool, 60)),
                Message("Pass `--allow-tools` to allow that"),
                code="PERMISSION_DENIED",
                retryable=False,
            )
        reply = await session.acall(step.tool, dict(work.arguments), key=work.key)
        if reply.error is not None:
            raise make_step_failure(reply)
        denied = reply.data.get("denied")
        if callable(self._approve) and denied and not reply.data.get("changes"):
            message = Message("Nothing that `{tool}` proposed was applied", tool=step.tool)
            raise StepFailed(message, denied[0], code="REJECTED", retryable=False)
        notes = list(change_notes(reply.data))
        if reply.status == "partial":
            notes.insert(0, one_line(reply.text.rpartition("\n")[2], _MAX_NOTE_CHARS))
        return Done(
            output=_read_output(reply, step),
            usage=Usage(),
            skills=tuple(session.loaded),
            tools=(step.tool,),
            notes=tuple(notes),
        )


def missing_model_failure() -> StepFailed:
    """Return the failure of a step that needs a model when there is none."""
    return StepFailed(
        say("No model is set, and this step needs one"),
        say("Name one as `provider:model`"),
        code="INVALID_PARAM",
        retryable=False,
    )


def make_step_failure(reply: Envelope) -> StepFailed:
    """Convert a failed call to the step's failure."""
    assert reply.error is not None  # noqa: S101 - only those come here
    code, message, hint, _ = reply.error
    is_permanent = code in _PERMANENT_CODES or reply.data.get("failure") in _SETUP_FAILURES
    return StepFailed(message, hint, code=code, retryable=not is_permanent)


def _read_output(reply: Envelope, step: Step) -> Any:
    """Return the output of a tool: its data if the step has a schema, otherwise its text.

    A program's text is used without the frame for models: it is the next step's
    input, and may go to a tool.
    """
    data = reply.data
    is_program = "tier" in data and isinstance(data.get("output"), str)
    if not step.output:
        return data["output"] if is_program else reply.text
    if not is_program:
        return data
    if "data" in data:
        return data["data"]
    try:
        return json.loads(data["output"])
    except ValueError:
        return data["output"]  # validation reports what is wrong
