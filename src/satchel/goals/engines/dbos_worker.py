"""Workers of the engine `dbos`: one workflow per run of a goal, with the steps inside.

DBOS identifies a step by the order of calls, so every step is recorded in the order of the plan. It
rejects writes of a worker that has lost a run. Taking over from dead processes is done here: each
worker renews a lease, and the others put the runs of a worker whose lease has ended back into the
queue. A worker that was frozen verifies that a run is still its own
before it begins a step.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from satchel.errors import Refused
from satchel.goals.database import IDLE_TRANSACTION_S
from satchel.goals.engines.dbos_runs import STEP, WORKFLOW, RunOrder, parse
from satchel.goals.engines.dbos_tables import SCHEMA, is_surely_dead
from satchel.goals.executor import execute
from satchel.goals.model import StepResult
from satchel.goals.reports import pack, unpack
from satchel.goals.step_runner import perform
from satchel.i18n import pack_messages, say

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from satchel.goals.engines.dbos_runs import DbosRuns
    from satchel.goals.engines.dbos_tables import DbosTables
    from satchel.goals.model import Answer, Done, Step, StepCall, Work
    from satchel.goals.step_runner import StepContext

APPLICATION = "satchel-goals"
VERSION = "1"
"""Version of the workflow's shape. A plan is data, so this changes only when recorded runs of an
older Satchel can no longer be replayed."""
_CANCEL_POLL_S = 0.5

_serving: DbosWorker | None = None
"""DBOS exists once per process, so there is one worker."""
_registered = False


class DbosWorker:
    """The worker of this process."""

    def __init__(
        self, store: DbosTables, runs: DbosRuns, context: StepContext,
        continue_answered: Callable[[], None], only: str, lease: float,
    ) -> None:  # fmt: skip
        self.name = runs.worker
        self.context = context
        self._store = store
        self._runs = runs
        self._continue_goal = continue_answered
        self._only = only
        self._lease = lease
        self._dbos: Any = None
        self._active: dict[str, asyncio.Task[Any]] = {}
        """Run -> its latest task in this process."""
        self.busy = 0
        """Running steps and pending writes, which `close` waits for."""
        self._draining = False
        self._poll_task: asyncio.Task[None] | None = None
        self.poll_now = asyncio.Event()
        """Set to look for cancelled runs at once."""
        self._renewed = self._steady_since = time.monotonic()
        """When the lease was last renewed, and since when it has never been overdue: other workers
        may have taken runs before that."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._renew_lease, name="satchel-lease", daemon=True)

    async def launch(self) -> None:
        """Start taking work.

        Raises:
            Refused: DBOS is in use in this process already.
        """
        global _serving, _registered  # noqa: PLW0603
        import dbos

        in_use = Refused(
            say("This process works with DBOS already, and DBOS is one per process"),
            say("Close the other engine first, or start another process"),
        )
        if _serving is not None:
            raise in_use
        if not _registered:
            dbos.DBOS.workflow(name=WORKFLOW)(_run_goal)
            _registered = True
        made = dbos.DBOS(
            config={
                "name": APPLICATION,
                "system_database_url": self._store.url,
                "system_database_engine": self._store.engine,
                "db_engine_kwargs": {"hide_parameters": True},
                "dbos_system_schema": SCHEMA,
                "serializer": dbos.DBOSPortableJSONSerializer(),
                "application_version": VERSION,
                "executor_id": self.name,
                "sys_db_idle_transaction_timeout_sec": IDLE_TRANSACTION_S,
                "max_executor_threads": 16 if self._store.sqlite else 32,
                "run_migrations": False,
                "scheduler_polling_interval_sec": 3600.0,
                # Warnings are about expected events: runs that are cancelled or handed over.
                "log_level": "ERROR",
            }
        )
        if dbos.DBOS.executor_id != self.name:  # `DBOS(…)` returned the application's own instance
            raise in_use
        _serving, self._dbos = self, made
        try:
            await asyncio.to_thread(self._store.renew_lease, self.name, self._lease)
            await self._claim()
            dbos.DBOS.listen_queues([self._runs.queue])
            dbos.DBOS.launch()  # not in a thread: runs belong to this event loop
        except BaseException:
            await self._destroy()
            raise
        self._thread.start()
        self._poll_task = asyncio.create_task(self._poll_cancelled())

    # --- one run ----------------------------------------------------------------------------

    async def run(self, order: RunOrder) -> dict[str, Any]:
        """Execute a run; cancelled when it belongs to another worker."""
        from dbos import error

        name = order.run
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - DBOS runs workflows in tasks
        if name in self._active:  # it was taken over, and has come back
            self._active[name].cancel()
        self._active[name] = task
        try:
            known = await asyncio.to_thread(self._runs.known_results, order) if order.before else {}
            report = await execute(
                order.goal,
                _Execution(self, order, task),
                known=known,
                answers=order.answers,
                revision=parse(name).revision,
            )
        except (error.DBOSWorkflowConflictIDError, error.DBOSWorkflowCancelledError):
            raise asyncio.CancelledError from None  # another worker has it, or it is over
        finally:
            if self._active.get(name) is task:
                del self._active[name]
            if task.cancelling():
                self.poll_now.set()
        return pack_messages({"state": report.state, "reason": report.reason})

    async def may_begin(self, execution: _Execution) -> None:
        """Block an attempt when this worker is closing or has lost the run."""
        if self._draining:
            self.busy -= 1
            try:
                await asyncio.Event().wait()  # until the run is cancelled
            finally:
                self.busy += 1
        now = time.monotonic()
        if execution.since >= self._steady_since and not self._overdue():
            return
        task = self._active.get(execution.name)
        ours = await asyncio.to_thread(self._runs.own_runs)
        if execution.name not in ours or task is not execution.task:
            execution.task.cancel()
            raise asyncio.CancelledError
        execution.since = now

    async def _claim(self) -> None:
        if self._only:
            await asyncio.to_thread(self._runs.claim, self._only)

    async def _poll_cancelled(self) -> None:
        """Cancel the tasks of runs that were cancelled or taken over."""
        while self._dbos is not None:
            try:
                async with asyncio.timeout(_CANCEL_POLL_S):
                    await self.poll_now.wait()
            except TimeoutError:
                pass
            self.poll_now.clear()
            try:
                await self._claim()
                active = dict(self._active)  # runs that begin from now on are not checked
                ours = await asyncio.to_thread(self._runs.own_runs)
            except Exception:
                logging.getLogger(__name__).exception("looking for cancelled goals failed")
                continue
            for name, task in active.items():
                lost = name not in ours and self._active.get(name) is task
                if lost and not task.cancelling():  # twice would interrupt its cleanup
                    task.cancel()

    # --- lease ------------------------------------------------------------------------------

    def _overdue(self) -> bool:
        """Whether the lease may have ended: then other workers may have our runs."""
        return time.monotonic() - self._renewed > self._lease / 2

    def _renew_lease(self) -> None:
        """Renew the lease, in a separate thread, so that a busy event loop does not lose it."""
        while not self._stop.is_set():
            began = time.monotonic()
            if self._overdue():
                # Before the renewal, so that no outdated run counts as current.
                self._steady_since = began
            try:
                self._store.renew_lease(self.name, self._lease)
                self._renewed = began
                # After an outage of the database every lease is overdue: a worker that was overdue
                # itself judges no other before one lease duration has passed.
                steady = began - self._steady_since >= self._lease
                for name, left in self._store.workers().items():
                    if not is_surely_dead(name) and not (left < 0 and steady):
                        continue
                    # One process extends the lease of a dead worker, and takes over its runs.
                    if name != self.name and self._store.claim_worker(name, left, self._lease):
                        self._runs.requeue(name, died=True)
                        self._store.remove_worker(name)
                self._continue_goal()
            except Exception:
                logging.getLogger(__name__).exception("renewing the lease failed")
            self._stop.wait(self._lease / 5)

    # --- closing ----------------------------------------------------------------------------

    async def close(self, drain: float = 0.0) -> None:
        """Begin nothing more, finish running steps within `drain` seconds, hand over the rest."""
        if self._dbos is None:
            return
        self._draining = True
        for event in self._dbos.background_thread_stop_events:
            event.set()
        give_up = time.monotonic() + drain
        while self.busy and time.monotonic() < give_up:  # noqa: ASYNC110 - it counts
            await asyncio.sleep(0.02)
        self._stop.set()
        self._dbos = None
        await asyncio.to_thread(self._thread.join, 10)
        if self._poll_task is not None:  # not cancelled: it may be in a query
            self.poll_now.set()
            await self._poll_task
        tasks = list(self._active.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=10)
        await asyncio.to_thread(self._runs.requeue, self.name)
        await self._destroy()
        await asyncio.to_thread(self._runs.requeue, self.name)  # runs that were just being dequeued
        await asyncio.to_thread(self._store.remove_worker, self.name)

    async def _destroy(self) -> None:
        """Close DBOS in a separate thread: it shuts down the loop's default executor."""
        global _serving  # noqa: PLW0603
        from dbos import DBOS

        loop = asyncio.get_running_loop()
        pool = ThreadPoolExecutor(1, "satchel-close")
        await loop.run_in_executor(pool, DBOS.destroy)
        pool.shutdown(wait=False)
        # The loop's default executor is DBOS' pool, which is closed.
        loop.set_default_executor(ThreadPoolExecutor(thread_name_prefix="asyncio"))
        self._dbos = _serving = None


class _Execution:
    """One run: the `Execution` for `execute`, and the runner of its steps."""

    def __init__(self, worker: DbosWorker, order: RunOrder, task: asyncio.Task[Any]) -> None:
        from dbos import DBOS

        self.name = order.run
        self.task = task
        self.since = time.monotonic()
        """When this run was verified to be this worker's."""
        self._worker = worker
        artifacts = worker.context.artifacts.of(order.goal.id)
        self._context = worker.context._replace(runner=self, artifacts=artifacts)
        self._step = DBOS.run_step_async

    def now(self) -> float:
        """Wall clock: decisions based on it are made inside of steps, and recorded."""
        return time.time()

    async def record(self, step: Step, body: Callable[[], Awaitable[StepResult]]) -> StepResult:
        """Record a step with DBOS, which identifies it by its position."""
        fresh: list[StepResult] = []

        async def once() -> dict[str, Any]:
            result = await body()
            fresh.append(result)
            self._worker.busy += 1
            return pack(result)

        try:
            packed = await self._step({"name": STEP + step.id}, once)
        finally:
            if fresh:
                self._worker.busy -= 1
        return fresh[0] if fresh else unpack(StepResult, packed)

    async def perform(self, call: StepCall) -> StepResult:
        self._worker.busy += 1
        try:
            return await perform(call, self._context)
        finally:
            self._worker.busy -= 1

    async def ask(self, step: Step, text: str) -> Answer | None:  # noqa: ARG002
        """Return None: an answer starts another run."""
        return None

    async def run(self, work: Work) -> Done:
        """Run an attempt, unless this worker is closing or has lost the run."""
        await self._worker.may_begin(self)
        return await self._worker.context.runner.run(work)


async def _run_goal(order: dict[str, Any]) -> dict[str, Any]:
    if _serving is None:
        raise asyncio.CancelledError  # the process is closing
    return await _serving.run(unpack(RunOrder, order))
