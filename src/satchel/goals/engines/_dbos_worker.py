"""Workers of the engine `dbos`: one workflow per run of a goal, with the steps inside.

DBOS knows a step by the order of calls, so every step is recorded in the order of the plan. It
refuses what a worker writes that has lost a run. DBOS leaves open who takes over from a dead
process: each worker renews a lease, and the others put the runs of one whose lease ran out, or
whose process is gone, back into the queue. A worker that was frozen asks whether its runs are still
its own before it begins a step.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from satchel._language import pack_messages, say
from satchel.errors import Refused
from satchel.goals.engines._dbos_runs import STEP, WORKFLOW, Order, parse
from satchel.goals.engines._dbos_store import IDLE, SCHEMA, surely_dead
from satchel.goals.execute import execute
from satchel.goals.model import StepResult
from satchel.goals.perform import perform
from satchel.goals.reports import pack, unpack

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection

    from satchel.goals.engines._dbos_runs import Runs
    from satchel.goals.engines._dbos_store import Store
    from satchel.goals.execution import Workbench
    from satchel.goals.model import Answer, Done, Step, StepCall, Work

APPLICATION = "satchel-goals"
VERSION = "1"
"""Of the workflow's shape. A plan is data, so this changes only when recorded runs of an older
Satchel could not be replayed any more."""
_LOOK_S = 0.5
"""Seconds between two looks for runs that were cancelled."""
_ORPHANS_S = 10.0
"""Seconds between two looks for runs of workers without a lease."""

_serving: Worker | None = None
"""DBOS is one per process, so there is one worker."""
_registered = False


class Worker:
    """This process, working.

    Args:
        store: Our tables.
        runs: Those of DBOS.
        bench: Does the steps.
        go_on: Called as often as the lease is renewed.
        only: Ids of the goals that this process may do; all when None.
        lease: Seconds.
    """

    def __init__(
        self, store: Store, runs: Runs, bench: Workbench, go_on: Callable[[], None],
        only: Collection[str] | None, lease: float,
    ) -> None:  # fmt: skip
        self.name = runs.worker
        self.bench = bench
        self._store = store
        self._runs = runs
        self._go_on = go_on
        self._only = only
        self._lease = lease
        self._dbos: Any = None
        self._active: dict[str, asyncio.Task[Any]] = {}
        """Run -> its latest execution here."""
        self._busy = 0
        self._idle = asyncio.Event()
        self._draining = False
        self._looks: asyncio.Task[None] | None = None
        self._look = asyncio.Event()
        self._renewed = self._steady = time.monotonic()
        """When the lease was renewed last, and since when it was never overdue: others may have
        taken what was ours before that."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._hold, name="satchel-lease", daemon=True)

    async def launch(self) -> None:
        """Begin to take work.

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
            dbos.DBOS.workflow(name=WORKFLOW)(_goal)
            _registered = True
        made = dbos.DBOS(
            config={
                "name": APPLICATION,
                "system_database_url": self._store.url,
                # One pool for a file. A server gets another, so that a lease never waits.
                "system_database_engine": self._store.engine if self._store.sqlite else None,
                "db_engine_kwargs": {"hide_parameters": True},
                "dbos_system_schema": SCHEMA,
                "serializer": dbos.DBOSPortableJSONSerializer(),
                "application_version": VERSION,
                "executor_id": self.name,
                "sys_db_idle_transaction_timeout_sec": IDLE,
                "max_executor_threads": 16 if self._store.sqlite else 32,
                "run_migrations": False,
                "scheduler_polling_interval_sec": 3600.0,
                # Warnings are about what is meant to happen: runs that are cancelled or given away.
                "log_level": "ERROR",
            }
        )
        if dbos.DBOS.executor_id != self.name:  # `DBOS(…)` gave the application's own
            raise in_use
        _serving, self._dbos = self, made
        try:
            await asyncio.to_thread(self._store.alive, self.name, self._lease)
            await self._claim()
            dbos.DBOS.listen_queues([self._runs.queue])
            dbos.DBOS.launch()  # here and not in a thread: runs shall be on this loop
        except BaseException:
            await self._destroy()
            raise
        self._thread.start()
        self._looks = asyncio.create_task(self._look_around())

    # --- one run ----------------------------------------------------------------------------

    async def run(self, order: Order) -> dict[str, Any]:
        """Carry out a run; cancelled when it is not ours any more."""
        from dbos import error

        name = order.run
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - DBOS runs workflows in tasks
        if name in self._active:  # it was taken from us, and has come back
            self._active[name].cancel()
        self._active[name] = task
        try:
            known = await asyncio.to_thread(self._runs.known, order) if order.before else {}
            report = await execute(
                order.goal,
                _Execution(self, order, task),
                known=known,
                answers=order.answers,
                revision=parse(name).revision,
                spent=order.spent,
            )
        except (error.DBOSWorkflowConflictIDError, error.DBOSWorkflowCancelledError):
            raise asyncio.CancelledError from None  # it is another worker's, or over
        finally:
            if self._active.get(name) is task:
                del self._active[name]
            if task.cancelling():
                self._look.set()
        return pack_messages({"state": report.state, "reason": report.reason})

    def busy(self, more: int) -> None:
        """Count what is being done, or written down, and should not be cut off."""
        self._busy += more
        if not self._busy:
            self._idle.set()

    async def may_begin(self, execution: _Execution) -> None:
        """Hold a try back when this worker is about to leave, or has lost the run."""
        if self._draining:
            self.busy(-1)
            try:
                await asyncio.Event().wait()  # until the run is cancelled
            finally:
                self.busy(1)
        now = time.monotonic()
        if execution.since >= self._steady and not self._overdue():
            return
        task = self._active.get(execution.run)
        ours = await asyncio.to_thread(self._runs.ours)
        if ours.get(execution.run, True) or task is not execution.task:
            execution.task.cancel()
            raise asyncio.CancelledError
        execution.since = now

    async def _claim(self) -> None:
        if self._only is not None:
            await asyncio.to_thread(self._runs.claim, list(self._only))

    async def _look_around(self) -> None:
        """End runs here that were cancelled, or that another worker has."""
        while self._dbos is not None:
            try:
                async with asyncio.timeout(_LOOK_S):
                    await self._look.wait()
            except TimeoutError:
                pass
            self._look.clear()
            try:
                await self._claim()
                active = dict(self._active)  # what begins from now on is not asked about
                ours = await asyncio.to_thread(self._runs.ours)
                for name, stops in ours.items():
                    if stops and name not in self._active:  # its steps have ended
                        await asyncio.to_thread(self._runs.cancel, name)
            except Exception:
                logging.getLogger(__name__).exception("looking for cancelled goals failed")
                continue
            for name, task in active.items():
                lost = ours.get(name, True) and self._active.get(name) is task
                if lost and not task.cancelling():  # twice would cut off its tidying
                    task.cancel()

    def look(self) -> None:
        """Something was cancelled: look at once."""
        self._look.set()

    # --- the lease --------------------------------------------------------------------------

    def _overdue(self) -> bool:
        """Whether the lease may have run out: then others may have our runs."""
        return time.monotonic() - self._renewed > self._lease / 2

    def _hold(self) -> None:
        """Renew the lease, in a thread of its own: a busy loop must not cost it."""
        orphans = 0.0
        while not self._stop.is_set():
            began = time.monotonic()
            if self._overdue():
                self._steady = began  # before it is renewed: nothing shall take new for old
            try:
                self._store.alive(self.name, self._lease)
                self._renewed = began
                # After the database was away everybody's lease is overdue: a worker that was
                # overdue itself judges none by it before one lease has passed.
                steady = began - self._steady >= self._lease
                workers = self._store.workers()
                for name, left in workers.items():
                    if name != self.name and (surely_dead(name) or (left < 0 and steady)):
                        self._take_over(name)
                if began >= orphans:
                    orphans = began + _ORPHANS_S
                    for name in self._runs.workers() - set(workers):
                        self._store.alive(name, self._lease)  # which runs out
                self._go_on()
            except Exception:
                logging.getLogger(__name__).exception("renewing the lease failed")
            self._stop.wait(self._lease / 5)

    def _take_over(self, worker: str) -> None:
        """Put the runs of a dead worker back into the queue."""
        if self._store.claim(worker):
            self._runs.give_back(worker, died=True)

    # --- the end ----------------------------------------------------------------------------

    async def drain(self, seconds: float) -> None:
        """Begin nothing more, finish the steps that run, and hand the rest to others."""
        if self._dbos is None:
            return
        self._draining = True
        for event in self._dbos.background_thread_stop_events:
            event.set()
        if self._busy and seconds > 0:
            self._idle.clear()
            try:
                async with asyncio.timeout(seconds):
                    while self._busy:
                        await self._idle.wait()
                        self._idle.clear()
                        await asyncio.sleep(0)  # what has ended goes on to write it down
            except TimeoutError:
                pass
        await self.close()

    async def close(self) -> None:
        """Leave. What was begun here goes on elsewhere, at once."""
        if self._dbos is None:
            return
        self._draining = True
        self._stop.set()
        for event in self._dbos.background_thread_stop_events:
            event.set()
        self._dbos = None
        await asyncio.to_thread(self._thread.join, 10)
        if self._looks is not None:  # not cut off: it may be asking the database
            self._look.set()
            await self._looks
        tasks = list(self._active.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=10)
        await asyncio.to_thread(self._runs.give_back, self.name)
        await self._destroy()
        await asyncio.to_thread(self._runs.give_back, self.name)  # what was just being taken
        await asyncio.to_thread(self._store.claim, self.name)

    async def _destroy(self) -> None:
        """Close DBOS in a thread of its own: the loop's pool is the one that is being closed."""
        global _serving  # noqa: PLW0603
        from dbos import DBOS

        loop = asyncio.get_running_loop()
        pool = ThreadPoolExecutor(1, "satchel-close")
        await loop.run_in_executor(pool, DBOS.destroy)
        pool.shutdown(wait=False)
        # The loop still has DBOS' pool, which is closed.
        loop.set_default_executor(ThreadPoolExecutor(thread_name_prefix="asyncio"))
        self._dbos = _serving = None


class _Execution:
    """One run, as `execute` and the runner see it."""

    def __init__(self, worker: Worker, order: Order, task: asyncio.Task[Any]) -> None:
        from dbos import DBOS

        self.run = order.run
        self.task = task
        self.since = time.monotonic()
        """When this run was surely its worker's own."""
        self._worker = worker
        artefacts = worker.bench.artefacts.of(order.goal.id)
        self._bench = worker.bench._replace(runner=_Guarded(self, worker), artefacts=artefacts)
        self._step = DBOS.run_step_async

    def now(self) -> float:
        """The clock: what is decided by it is decided inside of steps, and recorded."""
        return time.time()

    async def record(self, step: Step, body: Callable[[], Awaitable[StepResult]]) -> StepResult:
        """A step of DBOS: known by its place, which is that in the plan."""
        fresh: list[StepResult] = []

        async def once() -> dict[str, Any]:
            result = await body()
            fresh.append(result)
            self._worker.busy(1)
            return pack(result)

        try:
            packed = await self._step({"name": STEP + step.id}, once)
        finally:
            if fresh:
                self._worker.busy(-1)
        return fresh[0] if fresh else unpack(StepResult, packed)

    async def perform(self, call: StepCall) -> StepResult:
        """Here, in this process."""
        self._worker.busy(1)
        try:
            return await perform(call, self._bench)
        finally:
            self._worker.busy(-1)

    async def ask(self, step: Step, text: str) -> Answer | None:  # noqa: ARG002
        """None: when a person answers, another run begins."""
        return None


class _Guarded:
    """The runner, behind `may_begin`."""

    def __init__(self, execution: _Execution, worker: Worker) -> None:
        self._execution = execution
        self._worker = worker

    async def run(self, work: Work) -> Done:
        """One try."""
        await self._worker.may_begin(self._execution)
        return await self._worker.bench.runner.run(work)


async def _goal(order: dict[str, Any]) -> dict[str, Any]:
    """The workflow: one run of a goal."""
    if _serving is None:
        raise asyncio.CancelledError  # the process is leaving
    return await _serving.run(unpack(Order, order))
