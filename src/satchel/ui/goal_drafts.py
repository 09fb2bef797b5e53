"""Plans that wait to be started as goals.

A plan that was chosen, uploaded or made of words is a draft until it is started. A process of its
own, `satchel goal plan`, makes it of words: it imports a model's packages, and can be killed.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import TYPE_CHECKING

from satchel._optional import must_be_installed
from satchel.errors import InvalidInput, ServerFailed
from satchel.i18n import language, say
from satchel.presentation.goal_plans import check_plan
from satchel.ui.pending import PendingItems

if TYPE_CHECKING:
    from satchel.goals.model import Plan
    from satchel.goals.plan_rules import PlanProblem
    from satchel.satchel import Satchel

MAX_DRAFTS = 32
PLANNING_TIMEOUT_S = 600.0
_MAX_ERROR_CHARS = 2_000


class GoalDraft:
    """A plan that waits to be started, or is being made."""

    def __init__(self, label: str) -> None:
        self.key = ""
        self.label = label
        self.plan: Plan | None = None
        self.problems: list[PlanProblem] = []
        self.error = ""
        """Why no plan could be made."""
        self.goal_id = ""
        self.planning_task: asyncio.Task[None] | None = None

    def cancel(self) -> None:
        """End the process that makes its plan."""
        if self.planning_task is not None:
            self.planning_task.cancel()


class GoalDrafts(PendingItems[GoalDraft]):
    """The latest drafts; the oldest is cancelled when there are too many."""

    def __init__(self, satchel: Satchel) -> None:
        super().__init__(MAX_DRAFTS, GoalDraft.cancel)
        self._satchel = satchel

    async def read_plan(self, label: str, text: str) -> GoalDraft:
        """Read a plan file as a draft."""
        draft = GoalDraft(label)
        await self._read_into(draft, text)
        return self._add(draft)

    def plan_goal(self, goal_words: str) -> GoalDraft:
        """Let a model make a plan of a goal in words.

        Raises:
            MissingExtra: the extra `agent` is not installed.
            InvalidInput: no model is configured.
        """
        self.require_planner()
        draft = GoalDraft(goal_words)
        draft.planning_task = asyncio.create_task(self._make_plan(draft, goal_words))
        return self._add(draft)

    def require_planner(self) -> None:
        """Check that plans can be made of words.

        Raises:
            MissingExtra: the extra `agent` is not installed.
            InvalidInput: no model is configured.
        """
        must_be_installed("pydantic_ai", "agent")
        if not self._satchel.settings.model:
            raise missing_model_error()

    def planning_tasks(self) -> list[asyncio.Task[None]]:
        """Return the tasks that make plans."""
        return [draft.planning_task for draft in self.values() if draft.planning_task]

    def _add(self, draft: GoalDraft) -> GoalDraft:
        draft.key = self.add(draft)
        return draft

    async def _read_into(self, draft: GoalDraft, text: str) -> None:
        draft.plan, draft.problems = await asyncio.to_thread(check_plan, self._satchel, text)

    async def _make_plan(self, draft: GoalDraft, goal_words: str) -> None:
        try:
            async with asyncio.timeout(PLANNING_TIMEOUT_S):
                text = await self._run_planner(goal_words)
            await self._read_into(draft, text)
        except TimeoutError:
            draft.error = say("it takes too long")
        except Exception as exc:  # noqa: BLE001 - the page must show why the task ended
            draft.error = str(exc)[-_MAX_ERROR_CHARS:] or say("failed")

    async def _run_planner(self, goal_words: str) -> str:
        """Return the plan that `satchel goal plan` prints.

        Raises:
            ServerFailed: it failed; the message is what it printed.
        """
        command = ["--project", self._satchel.settings.project, "goal", "plan", "-"]
        variables = {"SATCHEL_LANG": language(), "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8"}
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "satchel", *command),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, **variables},
        )
        try:
            output, error_output = await process.communicate(goal_words.encode("utf-8", "replace"))
        finally:
            if process.returncode is None:
                process.kill()
        if process.returncode:
            raise ServerFailed(error_output.decode("utf-8", "replace").strip())
        return output.decode("utf-8", "replace")


def missing_model_error() -> InvalidInput:
    """Return the error of a step or a plan that needs a model."""
    return InvalidInput(
        say("No model is configured"),
        say("Set `SATCHEL_MODEL` to `PROVIDER:NAME` and restart `satchel ui`"),
    )
