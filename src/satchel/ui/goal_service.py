"""The goals shown by the web UI: changes to them, and the processes that continue them.

As in the terminal, workers run the steps where an engine is shared by machines; else a separate
process continues a goal that was answered or retried, and outlives this server.

While a goal is shown, one task polls the engine and notifies the pages.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

from satchel._optional import must_be_installed
from satchel.agent.tool_steps import ToolSteps
from satchel.errors import SatchelError
from satchel.goals.approval_files import open_requests, waiting_goals
from satchel.goals.approvals import asks_model, needs_model, unfinished_plan
from satchel.goals.drawing import lay_out_plan, to_inline_svg
from satchel.goals.engines.factory import approvals_folder, resume_in_background
from satchel.goals.model import FINAL_GOAL_STATES
from satchel.i18n import language
from satchel.ui.engine_connection import CLOSE_TIMEOUT_S, EngineConnection, retrieve_error
from satchel.ui.goal_drafts import GoalDrafts, missing_model_error

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable

    from satchel.goals.approval_files import OpenRequest
    from satchel.goals.drawing import Layout
    from satchel.goals.engines.base import Engine
    from satchel.goals.engines.factory import Background
    from satchel.goals.model import GoalReport, Plan
    from satchel.satchel import Satchel
    from satchel.ui.events import LiveEvents

LIST_TOPIC = "goals"
GOAL_TOPIC_PREFIX = "goal:"
LIST_POLL_INTERVAL_S = 1.0
GOAL_POLL_INTERVAL_S = 0.4
_PAUSE_RATIO = 3
"""A slow check is followed by a pause of this many times its duration."""
MAX_GOALS_WATCHED = 100
WORKER_WAIT_S = 1.0
"""Time for a worker of this machine to take a goal before a process is started for it."""
WORKER_POLL_INTERVAL_S = 0.15
"""Time between two looks whether a worker took a goal."""
_MAX_LAYOUTS = 64
_EXPECTED_EXIT_CODES = (0, 1, 8)
"""Exit codes of a process that continued its goal: done, failed, waiting for an answer."""


class GoalAction(NamedTuple):
    """A requested change to a goal."""

    report: GoalReport
    remaining: Plan
    """The steps that would run."""
    allow: bool = False
    """Whether tools that write or use the network may be called."""


class GoalService:
    """Changes goals, starts processes for them, and tells pages when they change."""

    def __init__(self, satchel: Satchel, live_events: LiveEvents) -> None:
        self._satchel = satchel
        self._live_events = live_events
        self.connection = EngineConnection(satchel.settings)
        self.drafts = GoalDrafts(satchel)
        self._change_locks: dict[str, asyncio.Lock] = {}
        """Serialises changes to one goal."""
        self._change_tasks: set[asyncio.Task[None]] = set()
        self._pollers: dict[str, asyncio.Task[None]] = {}
        self._processes: dict[str, Background] = {}
        self._goals_with_tool_permission: set[str] = set()
        """Goals whose process may call tools that write."""
        self._layouts: dict[tuple[bytes, str], Layout] = {}
        """By plan and language, not by id: another goal may reuse an id."""
        self.start_process: Callable[..., Background] = resume_in_background
        """Starts a process for a goal; replaced by tests."""
        live_events.on_subscribe = self._on_subscribe

    async def close(self) -> None:
        """Stop polling and close the engine. Processes of goals continue."""
        self._live_events.on_subscribe = None
        self.connection.stop_opening()
        tasks = [*self._pollers.values(), *self.drafts.planning_tasks()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._change_tasks:
            await asyncio.wait(set(self._change_tasks), timeout=CLOSE_TIMEOUT_S)
        await self.connection.close()

    async def drawing(self, report: GoalReport) -> str:
        """Return the drawing of a goal as inline SVG. The layout is cached."""
        key = (sha256(repr(report.plan).encode("utf-8", "surrogatepass")).digest(), language())
        layout = self._layouts.get(key)
        if layout is None:
            layout = await asyncio.to_thread(lay_out_plan, report.plan)
            while len(self._layouts) >= _MAX_LAYOUTS:
                self._layouts.pop(next(iter(self._layouts)), None)
            self._layouts[key] = layout
        return to_inline_svg(report, lambda step: f"/goals/{report.id}?step={step}", layout)

    # --- changes ----------------------------------------------------------------------------

    async def current_versions(self, plan: Plan) -> dict[str, str] | None:
        """Return the digests of a plan's skills and tools, if workers run it; else None."""
        if not self.connection.is_shared:
            return None
        return await asyncio.to_thread(ToolSteps(self._satchel).versions_of, plan)

    async def apply_change(
        self, action: GoalAction, begin: Callable[[Engine], Awaitable[Any]]
    ) -> None:
        """Apply a change to a goal and continue it, by the rules of the terminal; one at a time.

        A process that runs the goal already gets the change. If it was just ending, the page still
        asks, and the same answer starts another process.

        Args:
            action: The change.
            begin: Records the change in the engine.

        Raises:
            MissingExtra: steps would run here, and the extra `agent` is not installed.
            InvalidInput: a step needs a model, and none is configured.
            Conflict: the goal has changed meanwhile.
        """
        if not self.connection.is_shared:
            await asyncio.to_thread(self._require_ability, action)
        task = asyncio.create_task(self._apply_and_continue(action, begin))
        self._change_tasks.add(task)
        task.add_done_callback(self._change_tasks.discard)
        task.add_done_callback(retrieve_error)
        try:
            # A recorded change is continued even if the client disconnects.
            await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                raise
            raise self.connection.stopping_error() from None

    async def _apply_and_continue(
        self, action: GoalAction, begin: Callable[[Engine], Awaitable[Any]]
    ) -> None:
        """Record the change first, then find a process for it."""
        goal_id = action.report.id
        async with self._change_locks.setdefault(goal_id, asyncio.Lock()):
            await self.connection.call(begin)
            self.notify(goal_id)
            if not self.connection.is_shared and not await self._is_continued(action):
                await self._start(goal_id, allow_tools=action.allow)

    async def _is_continued(self, action: GoalAction) -> bool:
        """Whether the goal continues without another process."""
        goal_id = action.report.id
        if self.connection.engine_name == "local":
            # Its goals are run by the processes started for them: there is no queue.
            has_permission = not action.allow or goal_id in self._goals_with_tool_permission
            return self.is_running(goal_id) and has_permission
        # A process that runs is no sign: one that is just ending takes no goal from the queue.
        return await self._is_taken_by_worker(goal_id)

    async def _is_taken_by_worker(self, goal_id: str) -> bool:
        """Whether a worker of this machine takes the goal within `WORKER_WAIT_S`."""
        deadline = time.monotonic() + WORKER_WAIT_S
        while time.monotonic() < deadline:
            report = await self._report(goal_id)
            is_running = report.state == "running" and not report.reason
            if is_running or report.state in FINAL_GOAL_STATES:
                return True
            await asyncio.sleep(WORKER_POLL_INTERVAL_S)
        return False

    def _require_ability(self, action: GoalAction) -> None:
        """Check that the steps can run here.

        Raises:
            MissingExtra: a step calls a model, and the extra `agent` is not installed.
            InvalidInput: a step calls a model without naming it, and none is configured.
        """
        if asks_model(action.remaining) or asks_model(unfinished_plan(action.report)):
            must_be_installed("pydantic_ai", "agent")
        if needs_model(action.remaining) and not self._satchel.settings.model:
            raise missing_model_error()

    # --- processes --------------------------------------------------------------------------

    async def _start(self, goal_id: str, *, allow_tools: bool) -> None:
        """Start a process that continues the goal."""
        permission = "--allow-tools" if allow_tools else "--ask-in-browser"
        options = ["--engine", self.connection.engine_name, permission]
        settings = self._satchel.settings
        self._processes[goal_id] = await asyncio.to_thread(
            self.start_process, settings, goal_id, options, project=settings.project
        )
        if allow_tools:
            self._goals_with_tool_permission.add(goal_id)
        else:
            self._goals_with_tool_permission.discard(goal_id)

    def is_running(self, goal_id: str) -> bool:
        """Whether a process started here runs a goal."""
        background = self._processes.get(goal_id)
        return background is not None and background.process.poll() is None

    def last_output(self, goal_id: str) -> str:
        """Return the last output of a process started here that failed; else an empty text."""
        exit_code = self._exit_code(goal_id)
        if exit_code is None or exit_code in _EXPECTED_EXIT_CODES:
            return ""
        return self._processes[goal_id].log_tail()

    def _exit_code(self, goal_id: str) -> int | None:
        """Return the exit code of a process started here; None while it runs, and without one."""
        background = self._processes.get(goal_id)
        return None if background is None else background.process.poll()

    def requests(self, goal_id: str) -> tuple[OpenRequest, ...]:
        """Return the requests for approval of a goal's process; none where workers run it."""
        if self.connection.is_shared:
            return ()
        return open_requests(approvals_folder(self._satchel.settings, goal_id))

    def waiting(self) -> frozenset[str]:
        """Return the goals whose processes wait for an approval."""
        with suppress(SatchelError):
            if not self.connection.is_shared:
                return waiting_goals(approvals_folder(self._satchel.settings))
        return frozenset()

    # --- notifications ----------------------------------------------------------------------

    def notify(self, goal_id: str) -> None:
        """Notify pages of a change to a goal."""
        self._live_events.publish(f"{GOAL_TOPIC_PREFIX}{goal_id}")
        self._live_events.publish(LIST_TOPIC)

    def _on_subscribe(self, topic: str) -> None:
        """A page subscribes; it may have missed changes since it was made."""
        self._live_events.publish(topic)
        if topic not in self._pollers:
            self._pollers[topic] = asyncio.create_task(self._poll(topic))

    async def _poll(self, topic: str) -> None:
        """Notify pages of changes while there are any."""
        previous: Hashable = None  # before the first look, which is no change
        interval = LIST_POLL_INTERVAL_S if topic == LIST_TOPIC else GOAL_POLL_INTERVAL_S
        try:
            while self._live_events.has_subscribers(topic):
                began = time.monotonic()
                fingerprint = await self._fingerprint(topic)
                if previous is not None and fingerprint != previous:
                    self._live_events.publish(topic)
                previous = fingerprint
                await asyncio.sleep(max(interval, (time.monotonic() - began) * _PAUSE_RATIO))
        finally:
            self._pollers.pop(topic, None)

    async def _fingerprint(self, topic: str) -> Hashable:
        """Return a value that changes with the goal, or with the list."""
        goal_id = topic.removeprefix(GOAL_TOPIC_PREFIX)
        try:
            if topic == LIST_TOPIC:
                return await self.connection.call(_list_fingerprint)
            report = await self._report(goal_id)
        except SatchelError as exc:
            return type(exc).__name__, exc.message
        steps = tuple(
            (step.state, step.attempts, step.started, step.seconds)
            for step in report.steps.values()
        )
        request_keys = tuple(request.key for request in self.requests(goal_id))
        return (
            *(report.state, report.revision, report.reason),
            *(steps, self._exit_code(goal_id), request_keys),
        )

    async def _report(self, goal_id: str) -> GoalReport:
        return await self.connection.call(lambda engine: engine.report(goal_id))


async def _list_fingerprint(engine: Engine) -> Hashable:
    """Return a value that changes with the list of goals, and with what is shown of workers."""
    goals = tuple(await engine.list(limit=MAX_GOALS_WATCHED))
    if engine.name == "local":
        return goals
    status = await engine.status()
    workers = tuple((worker.name, worker.is_alive, worker.steps) for worker in status.workers)
    return goals, workers, status.waiting, status.stuck
