"""Workers of the engine `dbos`: one workflow per run of a goal, with the steps inside.

DBOS identifies a step by the order of calls, so every step is recorded in the order of the plan. It
rejects writes of a worker that has lost a run. Taking over from dead processes is done here: each
worker renews a lease, and the others put the runs of a worker whose lease has ended back into the
queue. A worker that was frozen verifies that a run is still its own
before it begins a step.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from satchel.errors import Refused, ServerFailed
from satchel.goals.database import IDLE_TRANSACTION_S
from satchel.goals.engines.base import scheduled_goal
from satchel.goals.engines.dbos_queries import ENGINE, FIRING, STEP, WORKFLOW
from satchel.goals.engines.dbos_runs import RunOrder, parse
from satchel.goals.engines.dbos_tables import SCHEMA, is_surely_dead
from satchel.goals.executor import default_answer, execute
from satchel.goals.model import Goal, StepBegun, StepResult
from satchel.goals.reports import pack, unpack
from satchel.goals.step_runner import AttemptLog, perform, worker_label
from satchel.goals.telemetry import report_death, report_end
from satchel.i18n import pack_messages, say

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from satchel.goals.engines.dbos_runs import DbosRuns
    from satchel.goals.engines.dbos_tables import DbosTables
    from satchel.goals.model import Answer, Step, StepCall
    from satchel.goals.step_runner import StepContext

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
APPLICATION = "satchel-goals"
VERSION = "1"
"""Version of the workflow's shape. A plan is data, so this changes only when recorded runs of an
older Satchel can no longer be replayed."""
_CANCEL_POLL_S = 0.5
_MAX_BATCH_ITEMS = 500
"""Of one statement."""
_ABILITIES_INTERVAL_S = 10.0
_ABILITIES_PAUSE_RATIO = 50
"""A slow look at the skills is followed by a pause of this many times its duration."""
_LEAVE_DELAY_S = 1.0
"""How long a run stays with a worker that cannot run its steps, before another one may take it."""

_serving: DbosWorker | None = None
"""DBOS exists once per process, so there is one worker."""
_registered = False


class DbosWorker:
    """The worker of this process."""

    def __init__(
        self, store: DbosTables, runs: DbosRuns, context: StepContext,
        continue_answered: Callable[[], None], only: str, lease: float,
        *, start: Callable[[Goal], Any],
    ) -> None:  # fmt: skip
        self.name = runs.worker
        self.context = context
        self.store = store
        self.write_begun = _Batches(partial(store.write_begun, worker=runs.worker))
        self.read_begun = _Batches(store.begun_steps)
        self._runs = runs
        self._continue_goal = continue_answered
        self.start = start
        """Starts a goal, unless it was started."""
        self._only = only
        self.lease = lease
        self.about: dict[str, Any] = {"lease": lease, "goal": only}
        """What the status of the engine shows of this worker."""
        self._announced = ""
        self._announcements: asyncio.Task[None] | None = None
        self._dbos: Any = None
        self._active: dict[str, asyncio.Task[Any]] = {}
        """Run -> its latest task in this process."""
        self.busy = 0
        """Running steps and pending writes, which `close` waits for."""
        self._draining = False
        self._releases: set[asyncio.Task[None]] = set()
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
            dbos.DBOS.workflow(name=FIRING)(_start_scheduled)
            _registered = True
        instance = dbos.DBOS(
            config={
                "name": APPLICATION,
                "system_database_url": self.store.url,
                "system_database_engine": self.store.engine,
                "db_engine_kwargs": {"hide_parameters": True},
                "dbos_system_schema": SCHEMA,
                "serializer": dbos.DBOSPortableJSONSerializer(),
                "application_version": VERSION,
                "executor_id": self.name,
                "sys_db_idle_transaction_timeout_sec": IDLE_TRANSACTION_S,
                "max_executor_threads": 16 if self.store.sqlite else 32,
                "run_migrations": False,
                "scheduler_polling_interval_sec": 2.0,
                # Warnings are about expected events: runs that are cancelled or handed over.
                "log_level": "ERROR",
            }
        )
        if dbos.DBOS.executor_id != self.name:  # `DBOS(…)` returned the application's own instance
            raise in_use
        _serving, self._dbos = self, instance
        try:
            await asyncio.to_thread(self.store.renew_lease, self.name, self.lease)
            await asyncio.to_thread(self._announce)
            await self._claim()
            dbos.DBOS.listen_queues([self._runs.queue])
            dbos.DBOS.launch()  # not in a thread: runs belong to this event loop
        except BaseException:
            await self._destroy()
            raise
        self._thread.start()
        self._poll_task = asyncio.create_task(self._poll_cancelled())
        self._announcements = asyncio.create_task(self._look_for_abilities())

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
            [results] = (
                await asyncio.to_thread(self._runs.known_results, [order]) if order.before else [{}]
            )
            execution = _Execution(self, order, task)
            await execution.attempts.read()
            report = await execute(
                order.goal,
                execution,
                known_results=results,
                answers=order.answers,
                revision=parse(name).revision,
            )
            report_end(ENGINE, order.goal.id, report.state, report.seconds)
        except (error.DBOSWorkflowConflictIDError, error.DBOSWorkflowCancelledError):
            raise asyncio.CancelledError from None  # another worker has it, or it is over
        finally:
            if self._active.get(name) is task:
                del self._active[name]
            if task.cancelling():
                self.poll_now.set()
        return pack_messages({"state": report.state, "reason": report.reason})

    async def ensure_may_begin(self, execution: _Execution) -> None:
        """Block an attempt when this worker is closing or has lost the run."""
        if self._draining:
            self.busy -= 1
            try:
                await asyncio.Event().wait()  # until the run is cancelled
            finally:
                self.busy += 1
        current = execution.verified_at >= self._steady_since and not self._overdue()
        while not current:
            now = time.monotonic()
            task = self._active.get(execution.name)
            ours = await asyncio.to_thread(self._runs.own_runs)
            if execution.name not in ours or task is not execution.task:
                execution.task.cancel()
                await asyncio.Event().wait()  # until that reaches this step
            execution.verified_at = now
            # This process may have been suspended after the answer was made.
            current = time.monotonic() - now < self.lease / 2

    def release(self, execution: _Execution) -> None:
        """Put a run back into the queue: this worker cannot run its steps."""

        async def requeue() -> None:
            execution.task.cancel()
            await asyncio.wait([execution.task])
            await asyncio.to_thread(self._runs.release, execution.name)

        task = asyncio.create_task(requeue())
        self._releases.add(task)
        task.add_done_callback(self._releases.discard)

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

    def problem(self) -> str:
        """Why this worker cannot run steps; empty when it can."""
        seconds = time.monotonic() - self._renewed
        if seconds < self.lease:  # each renewal is a write to the database
            return ""
        return say(
            "The lease of this worker was last renewed {seconds} s ago", seconds=round(seconds)
        )

    def _overdue(self) -> bool:
        """Whether the lease may have ended: then other workers may have our runs."""
        return time.monotonic() - self._renewed > self.lease / 2

    def _announce(self) -> None:
        """Write what this worker can run, if that has changed."""
        about = json.dumps(self.about)
        if about != self._announced:
            self.store.announce(self.name, about)
            self._announced = about

    async def _look_for_abilities(self) -> None:
        """Look again and again what the runner can run; skills change on the disk."""
        abilities = getattr(self.context.runner, "abilities", None)
        while abilities is not None:
            began = time.monotonic()
            try:
                self.about = {**self.about, **await asyncio.to_thread(abilities)}
            except Exception:
                logging.getLogger(__name__).exception("looking for skills failed")
            seconds = time.monotonic() - began
            await asyncio.sleep(max(_ABILITIES_INTERVAL_S, seconds * _ABILITIES_PAUSE_RATIO))

    def _renew_lease(self) -> None:
        """Renew the lease, in a separate thread, so that a busy event loop does not lose it."""
        while not self._stop.is_set():
            began = time.monotonic()
            if self._overdue():
                # Before the renewal, so that no outdated run counts as current.
                self._steady_since = began
                self._announced = ""  # others may have removed it with the lease
            try:
                self.store.renew_lease(self.name, self.lease)
                self._renewed = began
                self._announce()
                # After an outage of the database every lease is overdue: a worker that was overdue
                # itself judges no other before one lease duration has passed.
                steady = began - self._steady_since >= self.lease
                for name, seconds_left in self.store.workers().items():
                    if not is_surely_dead(name) and not (seconds_left < 0 and steady):
                        continue
                    # One process extends the lease of a dead worker, and takes over its runs.
                    if name != self.name and self.store.claim_worker(
                        name, seconds_left, self.lease
                    ):
                        self._runs.requeue(name, died=True)
                        report_death(ENGINE, worker_label(name))
                        self.store.remove_worker(name)
                self._continue_goal()
            except Exception:
                logging.getLogger(__name__).exception("renewing the lease failed")
            self._stop.wait(self.lease / 5)

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
        if self._announcements is not None:
            self._announcements.cancel()
        tasks = list(self._active.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=10)
        await asyncio.to_thread(self._runs.requeue, self.name)
        await self._destroy()
        await asyncio.to_thread(self._runs.requeue, self.name)  # runs that were just being dequeued
        await asyncio.to_thread(self.store.remove_worker, self.name)

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


class _Batches(Generic[_Item, _Result]):
    """Calls a blocking function for many tasks: items that arrive during a call go together."""

    def __init__(self, function: Callable[[Sequence[_Item]], Sequence[_Result]]) -> None:
        self._function = function
        self._waiting: list[tuple[_Item, asyncio.Future[_Result]]] = []
        self._task: asyncio.Task[None] | None = None

    async def __call__(self, item: _Item) -> _Result:
        """Return the result for an item, or raise what the call for its batch raised."""
        result: asyncio.Future[_Result] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, result))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._call())
        return await result

    async def _call(self) -> None:
        while self._waiting:
            batch = self._waiting[:_MAX_BATCH_ITEMS]
            del self._waiting[:_MAX_BATCH_ITEMS]
            items, futures = zip(*batch, strict=True)
            try:
                results = await asyncio.to_thread(self._function, items)
            except Exception as exc:  # noqa: BLE001 - each caller gets it
                for future in futures:
                    if not future.done():
                        future.set_exception(exc)
                continue
            for future, result in zip(futures, results, strict=True):
                if not future.done():  # its caller was cancelled
                    future.set_result(result)


class _DbosAttempts(AttemptLog):
    """The records of begun steps of a run, in the database."""

    def __init__(self, worker: DbosWorker, execution: _Execution, order: RunOrder) -> None:
        self.worker = worker.name
        self._worker = worker
        self._execution = execution
        self._goal, self._revision, _ = parse(order.run)
        self.records: dict[str, StepBegun] = {}

    async def read(self) -> None:
        """Read the records that earlier workers left."""
        self.records = await self._worker.read_begun((self._goal, self._revision))

    def begun(self, step: str) -> StepBegun:
        """The record of a step, as earlier workers left it."""
        return self.records.get(step) or super().begun(step)

    async def write(self, begun: StepBegun) -> None:
        """Write a record, unless this worker is closing or has lost the run."""
        if begun.worker:
            await self._worker.ensure_may_begin(self._execution)
        text = json.dumps(pack(begun))
        row = (self._goal, self._revision, begun.step, begun.worker, text)
        while True:
            try:
                await self._worker.write_begun(row)
                break
            except ServerFailed:  # DBOS waits for its database without a limit as well
                await asyncio.sleep(_CANCEL_POLL_S)

    async def confirm(self) -> None:
        """Wait until this worker has the run for certain: it may have been suspended."""
        await self._worker.ensure_may_begin(self._execution)

    async def leave_to_others(self, begun: StepBegun) -> bool:
        """Wait; give the run to other workers when no other step of it runs here."""
        await self.write(begun)
        execution = self._execution
        execution.running -= 1
        self._worker.busy -= 1
        try:
            await asyncio.sleep(_LEAVE_DELAY_S)
            if not execution.running:
                self._worker.release(execution)
                await asyncio.Event().wait()  # until the run is cancelled
        finally:
            execution.running += 1
            self._worker.busy += 1
        return True


class _Execution:
    """One run: the `Execution` for `execute`."""

    def __init__(self, worker: DbosWorker, order: RunOrder, task: asyncio.Task[Any]) -> None:
        from dbos import DBOS

        self.name = order.run
        self.task = task
        self.verified_at = time.monotonic() - worker.lease
        """When this run was this worker's for certain: DBOS took it some time before this."""
        self.running = 0
        """Steps that run, or are about to."""
        self._worker = worker
        artifacts = worker.context.artifacts.of(order.goal.id)
        self.attempts = _DbosAttempts(worker, self, order)
        self._context = worker.context._replace(artifacts=artifacts, log=self.attempts)
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
        except BaseException:
            if fresh:  # the run was cancelled, or another worker has it
                await self.attempts.write(StepBegun(step.id, fresh[0].attempts))
            raise
        finally:
            if fresh:
                self._worker.busy -= 1
        return fresh[0] if fresh else unpack(StepResult, packed)

    async def perform(self, call: StepCall) -> StepResult:
        self.running += 1
        self._worker.busy += 1
        try:
            return await perform(call, self._context)
        finally:
            self.running -= 1
            self._worker.busy -= 1

    async def ask(self, step: Step, text: str) -> Answer | None:  # noqa: ARG002
        """Return None: an answer starts another run, or its deadline does."""
        if step.deadline is not None:
            run = parse(self.name)
            answer = default_answer(step)
            await asyncio.to_thread(
                self._worker.store.add_deadline,
                run.goal, run.revision, step.id, answer, step.deadline,
            )  # fmt: skip
        return None


async def _run_goal(order: dict[str, Any]) -> dict[str, Any]:
    if _serving is None:
        raise asyncio.CancelledError  # the process is closing
    return await _serving.run(unpack(RunOrder, order))


async def _start_scheduled(moment: str, packed: dict[str, Any]) -> None:
    if _serving is None:
        raise asyncio.CancelledError  # the process is closing
    goal = scheduled_goal(unpack(Goal, packed), datetime.fromisoformat(moment))
    await asyncio.to_thread(_serving.start, goal)
