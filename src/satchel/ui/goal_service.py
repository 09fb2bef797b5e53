"""The goals shown by the web UI: one engine per server, and the processes that continue goals.

The engine is opened with the first page of goals and runs no steps. As in the terminal, workers run
them where an engine is shared by machines; else a separate process continues a goal that was
answered or retried, and outlives this server.

A plan that was chosen, uploaded or made of words is a draft until it is started. A process of its
own, `satchel goal plan`, makes it of words: it imports a model's packages, and can be killed.

While a goal is shown, one task polls the engine and notifies the pages.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from satchel._optional import must_be_installed
from satchel.errors import InvalidInput, Refused, SatchelError, ServerFailed
from satchel.goals.approvals import asks_model, first_unapproved, needs_model, unfinished_plan
from satchel.goals.drawing.svg import stable_layout, to_inline_svg
from satchel.goals.engines.factory import is_shared, open_engine, resume_in_background
from satchel.goals.model import OVER
from satchel.i18n import language, say
from satchel.presentation.goals import check_plan
from satchel.ui.pending import PendingItems

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable

    from satchel.goals.drawing.layout import Layout
    from satchel.goals.engines.base import Engine
    from satchel.goals.engines.factory import Background
    from satchel.goals.model import GoalReport, Plan
    from satchel.goals.plan_checks import PlanProblem
    from satchel.satchel import Satchel
    from satchel.ui.events import LiveEvents

_Given = TypeVar("_Given")
LIST = "goals"
GOAL = "goal:"
POLL_INTERVAL_S = 1.0
"""For the list."""
FAST_POLL_INTERVAL_S = 0.4
"""For a goal."""
EVENT_MERGE_S = 0.15
"""The shortest wait for an engine, and between two looks for a worker."""
_PAUSE_RATIO = 3
"""A slow check is followed by a pause of this many times its duration."""
ENGINE_TIMEOUT_S = 15.0
CLOSE_TIMEOUT_S = 5.0
"""Time for an engine that is being opened when the server ends."""
MAX_GOALS_WATCHED = 100
WORKER_WAIT_S = 1.0
"""Time for a worker of this machine to take a goal before a process is started for it."""
_MAX_LAYOUTS = 64
_EXPECTED_EXIT_CODES = (0, 1, 8)
"""Exit codes of a process that continued its goal: done, failed, waiting for an answer."""
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
        self.making: asyncio.Task[None] | None = None

    def cancel(self) -> None:
        """End the process that makes its plan."""
        if self.making is not None:
            self.making.cancel()


class GoalAction(NamedTuple):
    """A requested change to a goal."""

    report: GoalReport
    left: Plan
    """The steps that would run."""
    allow: bool = False
    """Whether tools that write or use the network may be called."""


class GoalService:
    """The engine, its subscribers, and the processes started for goals."""

    def __init__(self, satchel: Satchel, live: LiveEvents) -> None:
        self._satchel = satchel
        self._live = live
        self._engine: Engine | None = None
        self._opening: asyncio.Task[Engine] | None = None
        self._open_began = 0.0
        self._closed = False
        self._change_locks: dict[str, asyncio.Lock] = {}
        """Serialises changes to one goal."""
        self._pollers: dict[str, asyncio.Task[None]] = {}
        self._processes: dict[str, Background] = {}
        self._changes: set[asyncio.Task[None]] = set()
        self._allowed: set[str] = set()
        """Goals whose process may call tools that write."""
        self.drafts = PendingItems[GoalDraft](MAX_DRAFTS, GoalDraft.cancel)
        self._layouts: dict[tuple[bytes, str], Layout] = {}
        """By plan and language, not by id: another goal may reuse an id."""
        self.start: Callable[..., Background] = resume_in_background
        """Starts a process for a goal; replaced by tests."""
        live.on_subscribe = self._subscribed

    @property
    def shared(self) -> bool:
        """Whether workers of other machines run the steps."""
        return is_shared(self._satchel.settings, None)

    @property
    def name(self) -> str:
        """The name of the engine."""
        return self._satchel.settings.engine.partition(":")[0]

    async def engine(self) -> Engine:
        """Return the engine, and open it first if necessary.

        A slow open continues in the background for later callers.

        Raises:
            SatchelError: it is not open yet, or cannot be opened; the next call tries again.
        """
        if self._engine is not None:
            return self._engine
        if self._closed:
            raise self._broken(RuntimeError(say("the server is stopping")))
        if self._opening is None:
            self._open_began = time.monotonic()
            self._opening = asyncio.create_task(self._open())
            self._opening.add_done_callback(_retrieve_error)
        opening = self._opening
        # Callers after the timeout fail at once.
        timeout = max(EVENT_MERGE_S, self._open_began + ENGINE_TIMEOUT_S - time.monotonic())
        if opening not in (await asyncio.wait((opening,), timeout=timeout))[0]:
            raise self._broken(TimeoutError())
        return opening.result()

    async def _open(self) -> Engine:
        """Open the engine without a timeout: an open in a thread cannot be cancelled."""
        try:
            opened = await open_engine(self._satchel.settings).__aenter__()
        except Exception as exc:
            raise exc if isinstance(exc, SatchelError) else self._broken(exc) from exc
        finally:
            self._opening = None
        if self._closed:  # the server has ended meanwhile
            await opened.__aexit__(None, None, None)
            raise self._broken(RuntimeError(say("the server is stopping")))
        self._engine = opened
        return opened

    async def call(self, what: Callable[[Engine], Awaitable[_Given]]) -> _Given:
        """Call the engine.

        Raises:
            SatchelError: it cannot be opened, does not answer, or refuses.
        """
        engine = await self.engine()
        try:
            async with asyncio.timeout(ENGINE_TIMEOUT_S):
                if engine.name != "local":
                    return await what(engine)
                # Its journals are files: reading them must not block other requests.
                return await asyncio.to_thread(lambda: asyncio.run(_awaited(what(engine))))
        except SatchelError:
            raise
        except Exception as exc:
            raise self._broken(exc) from exc

    def _broken(self, exc: Exception) -> ServerFailed:
        why = say("it takes too long") if isinstance(exc, TimeoutError) else str(exc).strip()
        return ServerFailed(
            say("The engine `{engine}` does not answer: {reason}", engine=self.name,
                reason=(why or type(exc).__name__).splitlines()[0]),
        )  # fmt: skip

    async def close(self) -> None:
        """Stop polling and close the engine. Processes of goals continue."""
        self._live.on_subscribe = None
        self._closed = True
        making = (one.making for one in self.drafts.values() if one.making)
        tasks = [*self._pollers.values(), *making]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._changes:
            await asyncio.wait(set(self._changes), timeout=CLOSE_TIMEOUT_S)
        if self._opening is not None:  # it closes itself
            await asyncio.wait((self._opening,), timeout=CLOSE_TIMEOUT_S)
        engine, self._engine = self._engine, None
        if engine is not None:
            await engine.__aexit__(None, None, None)

    async def drawing(self, report: GoalReport) -> str:
        """Return the drawing of a goal as inline SVG. The layout is cached."""
        key = (sha256(repr(report.plan).encode("utf-8", "surrogatepass")).digest(), language())
        layout = self._layouts.get(key)
        if layout is None:
            layout = await asyncio.to_thread(stable_layout, report.plan)
            while len(self._layouts) >= _MAX_LAYOUTS:
                self._layouts.pop(next(iter(self._layouts)), None)
            self._layouts[key] = layout
        return to_inline_svg(report, lambda step: f"/goals/{report.id}?step={step}", layout)

    # --- drafts -----------------------------------------------------------------------------

    async def add_draft(self, label: str, text: str) -> GoalDraft:
        """Read a plan file as a draft."""
        draft = GoalDraft(label)
        draft.plan, draft.problems = await asyncio.to_thread(check_plan, self._satchel, text)
        return self._keep(draft)

    def require_planner(self) -> None:
        """Check that plans can be made of words.

        Raises:
            MissingExtra: the extra `agent` is not installed.
            InvalidInput: no model is configured.
        """
        must_be_installed("pydantic_ai", "agent")
        if not self._satchel.settings.model:
            raise InvalidInput(*_no_model())

    def plan_words(self, words: str) -> GoalDraft:
        """Let a model make a plan of a goal in words.

        Raises:
            MissingExtra: the extra `agent` is not installed.
            InvalidInput: no model is configured.
        """
        self.require_planner()
        draft = GoalDraft(words)
        draft.making = asyncio.create_task(self._make_plan(draft, words))
        return self._keep(draft)

    def _keep(self, draft: GoalDraft) -> GoalDraft:
        draft.key = self.drafts.add(draft)
        return draft

    async def _make_plan(self, draft: GoalDraft, words: str) -> None:
        try:
            async with asyncio.timeout(PLANNING_TIMEOUT_S):
                text = await self._run_planner(words)
            draft.plan, draft.problems = await asyncio.to_thread(check_plan, self._satchel, text)
        except TimeoutError:
            draft.error = say("it takes too long")
        except Exception as exc:  # noqa: BLE001 - the page must show why the task ended
            draft.error = str(exc)[-_MAX_ERROR_CHARS:] or say("failed")

    async def _run_planner(self, words: str) -> str:
        """The plan that `satchel goal plan` prints.

        Raises:
            ServerFailed: it failed; the message is what it printed.
        """
        command = ["--project", self._satchel.settings.project, "goal", "plan", "-"]
        given = {"SATCHEL_LANG": language(), "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8"}
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "satchel", *command),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, **given},
        )
        try:
            out, err = await process.communicate(words.encode("utf-8", "replace"))
        finally:
            if process.returncode is None:
                process.kill()
        if process.returncode:
            raise ServerFailed(err.decode("utf-8", "replace").strip())
        return out.decode("utf-8", "replace")

    # --- changes ----------------------------------------------------------------------------

    async def change(self, action: GoalAction, begin: Callable[[Engine], Awaitable[Any]]) -> None:
        """Apply a change to a goal and continue it, by the rules of the terminal; one at a time.

        A process that runs the goal already gets the change. If it was just ending, the page still
        asks, and the same answer starts another process.

        Raises:
            MissingExtra: steps would run here, and the extra `agent` is not installed.
            InvalidInput: a step needs a model, and none is configured.
            Refused: a step calls a tool that is not allowed.
            Conflict: the goal has changed meanwhile.
        """
        if not self.shared:
            await asyncio.to_thread(self._require_ability, action)
        change = asyncio.create_task(self._change(action, begin))
        self._changes.add(change)
        change.add_done_callback(self._changes.discard)
        change.add_done_callback(_retrieve_error)
        try:
            # A recorded change is continued even if the client disconnects.
            await asyncio.shield(change)
        except asyncio.CancelledError:
            if change.cancelled():
                raise
            raise self._broken(RuntimeError(say("the server is stopping"))) from None

    async def _change(self, action: GoalAction, begin: Callable[[Engine], Awaitable[Any]]) -> None:
        """Record the change first, then find a process for it."""
        goal_id = action.report.id
        async with self._change_locks.setdefault(goal_id, asyncio.Lock()):
            await self.call(begin)
            self.notify(goal_id)
            if self.shared:
                return
            on = self.is_running(goal_id) and (not action.allow or goal_id in self._allowed)
            # A process that is just ending does not take the goal from its queue.
            if on and (self.name == "local" or await self._was_taken(goal_id)):
                return
            if not await self._was_taken(goal_id):
                await self._start(goal_id, allow=action.allow)

    def _require_ability(self, action: GoalAction) -> None:
        if asks_model(action.left) or asks_model(unfinished_plan(action.report)):
            must_be_installed("pydantic_ai", "agent")
        settings = self._satchel.settings
        if needs_model(action.left) and not settings.model:
            raise InvalidInput(*_no_model())
        step = None if action.allow else first_unapproved(self._satchel, action.left.steps)
        if step is not None:
            raise Refused(
                say("Step `{step}` calls `{tool}`, which may write or use the network",
                    step=step.id, tool=step.tool),
            )  # fmt: skip

    async def _was_taken(self, goal_id: str) -> bool:
        """Whether a worker of this machine took the goal; `local` has none."""
        if self.name == "local":
            return False
        deadline = time.monotonic() + WORKER_WAIT_S
        while time.monotonic() < deadline:
            report = await self.call(lambda engine: engine.report(goal_id))
            if report.state in OVER or (report.state == "running" and not report.reason):
                return True
            await asyncio.sleep(EVENT_MERGE_S)
        return False

    async def _start(self, goal_id: str, *, allow: bool) -> None:
        options = ["--engine", self.name, *(["--allow-tools"] if allow else [])]
        settings = self._satchel.settings
        self._processes[goal_id] = await asyncio.to_thread(
            self.start, settings, goal_id, options, project=settings.project
        )
        (self._allowed.add if allow else self._allowed.discard)(goal_id)

    def is_running(self, goal_id: str) -> bool:
        """Whether a process started here runs a goal."""
        found = self._processes.get(goal_id)
        return found is not None and found.process.poll() is None

    def last_output(self, goal_id: str) -> str:
        """Return the last output of a process started here that failed; else an empty text."""
        found = self._processes.get(goal_id)
        code = None if found is None else found.process.poll()
        ended = code is not None and code not in _EXPECTED_EXIT_CODES
        return found.log_tail() if found is not None and ended else ""

    # --- notifications ----------------------------------------------------------------------

    def notify(self, goal_id: str) -> None:
        """Notify pages of a change to a goal."""
        self._live.publish(f"{GOAL}{goal_id}")
        self._live.publish(LIST)

    def _subscribed(self, name: str) -> None:
        """A page subscribes; it may have missed changes since it was made."""
        self._live.publish(name)
        if name not in self._pollers:
            self._pollers[name] = asyncio.create_task(self._poll(name))

    async def _poll(self, name: str) -> None:
        """Notify pages of changes while there are any."""
        seen: Hashable = None
        try:
            while self._live.has_subscribers(name):
                began = time.monotonic()
                now = await self._fingerprint(name)
                if seen is not None and now != seen:
                    self._live.publish(name)
                seen = now
                pause = POLL_INTERVAL_S if name == LIST else FAST_POLL_INTERVAL_S
                await asyncio.sleep(max(pause, (time.monotonic() - began) * _PAUSE_RATIO))
        finally:
            self._pollers.pop(name, None)

    async def _fingerprint(self, name: str) -> Hashable:
        """A value that changes with the goal, or with the list."""
        goal_id = name.removeprefix(GOAL)
        try:
            if name == LIST:
                return tuple(await self.call(lambda one: one.list(limit=MAX_GOALS_WATCHED)))
            report = await self.call(lambda one: one.report(goal_id))
        except SatchelError as exc:
            return type(exc).__name__, exc.message
        steps = tuple(
            (one.state, one.attempts, one.started, one.seconds) for one in report.steps.values()
        )
        found = self._processes.get(goal_id)
        gone = None if found is None else found.process.poll()
        return report.state, report.revision, report.reason, steps, gone


def _no_model() -> tuple[str, str]:
    hint = say("Set `SATCHEL_MODEL` to `PROVIDER:NAME` and restart `satchel ui`")
    return say("No model is configured"), hint


async def _awaited(one: Awaitable[_Given]) -> _Given:
    return await one


def _retrieve_error(task: asyncio.Task[Any]) -> None:
    """Retrieve the error of a task that may have no caller left: asyncio would log it."""
    if not task.cancelled():
        task.exception()
