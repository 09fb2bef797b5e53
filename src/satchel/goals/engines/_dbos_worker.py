"""How does a process work on goals with DBOS? One workflow per run, with the steps inside.

DBOS knows a step by the order of calls, so every step is recorded in the order of the plan. It
fences whoever lost a run: what such a worker still writes is refused. A worker that was frozen
asks whether its runs are still its own before it begins a step; `_dbos_lease` says who takes over.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from satchel._language import say
from satchel.errors import Refused
from satchel.goals.engines._dbos_lease import Lease
from satchel.goals.engines._dbos_process import own_name
from satchel.goals.engines._dbos_runs import STEP, WORKFLOW, Order, ending
from satchel.goals.engines._dbos_store import IDLE, SCHEMA, DatabaseArtefacts
from satchel.goals.execute import execute
from satchel.goals.model import StepResult
from satchel.goals.perform import perform
from satchel.goals.reports import pack, unpack

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Generator

    from dbos import DBOS

    from satchel.goals.engines._dbos_runs import Runs
    from satchel.goals.engines._dbos_store import Store
    from satchel.goals.engines.base import Workbench
    from satchel.goals.model import Answer, Done, Step, StepCall, StepEvent, Work

APPLICATION = "satchel-goals"
VERSION = "1"
"""Of the workflow's shape. A plan is data, so this changes only when recorded runs of an older
Satchel could not be replayed any more."""
QUEUE = "satchel-goals"
RECOVERIES = 20
"""A goal whose workers die so often, without a step being done meanwhile, is set aside. With 5, of
400 goals whose worker was killed every second six were, through no fault of theirs."""
_LOOK = 0.5
"""Seconds between two looks for runs that were cancelled."""
_EXPECTED = ("Asyncio task cancelled", "no longer owned", "cancelled during execution",
             "is not the latest version")  # fmt: skip
"""What DBOS warns of although it is what we wanted."""

_AWAY = 5.0
"""Seconds between two lines about a database that does not answer."""
_said_away = 0.0

_serving: Worker | None = None
"""DBOS is one per process, so there is one worker."""


class Worker:
    """This process, working."""

    def __init__(  # noqa: PLR0913 - what the engine has, and nobody else makes one
        self, store: Store, runs: Runs, bench: Workbench, hear: Callable[[StepEvent], None],
        ended: Callable[[], None], go_on: Callable[[], None], *, only: Collection[str] | None,
        lease: float, threads: int,
    ) -> None:  # fmt: skip
        self.name = own_name()
        self.bench = bench
        self.hear = hear
        self._store = store
        self._runs = runs
        self._ended = ended
        self._only = only
        self._lease = Lease(store, runs, self.name, lease, self._give_back, go_on)
        self._threads = threads
        self._dbos: Any = None
        self._active: dict[str, asyncio.Task[Any]] = {}
        """Run -> its latest execution here."""
        self._busy = 0
        self._idle = asyncio.Event()
        self._draining = False
        self._looks: asyncio.Task[None] | None = None
        self._look = asyncio.Event()

    async def launch(self) -> None:
        """Begin to take work.

        Raises:
            Refused: DBOS is in use in this process already.
        """
        global _serving  # noqa: PLW0603
        import dbos

        if _serving is not None or _in_use():
            raise Refused(
                say("This process works with DBOS already, and DBOS is one per process"),
                say("Close the other engine first, or start another process"),
            )
        _register(dbos.DBOS)
        await asyncio.to_thread(self._lease.take)
        _serving = self
        logging.getLogger("dbos").addFilter(_unexpected)
        try:
            self._dbos = dbos.DBOS(
                config={
                    "name": APPLICATION,
                    "system_database_url": self._store.url,
                    # One pool for a file. A server gets another, so that a lease never waits.
                    "system_database_engine": self._store.engine if self._store.sqlite else None,
                    "dbos_system_schema": SCHEMA,
                    "serializer": dbos.DBOSPortableJSONSerializer(),
                    "application_version": VERSION,
                    "executor_id": self.name,
                    "sys_db_idle_transaction_timeout_sec": IDLE,
                    "max_executor_threads": self._threads,
                    "run_migrations": False,
                    "scheduler_polling_interval_sec": 3600.0,
                    "log_level": "WARNING",
                }
            )
            with _taking(self._only):
                dbos.DBOS.launch()  # here and not in a thread: runs shall be on this loop
        except BaseException:
            _serving = None
            logging.getLogger("dbos").removeFilter(_unexpected)
            await _on_own_thread(_destroy)
            raise
        self._lease.hold()
        self._looks = asyncio.create_task(self._look_around())

    # One run

    async def run(self, order: Order) -> dict[str, Any]:
        """Carry out a run; cancelled when it is not ours any more."""
        from dbos import error

        if self._only is not None and order.goal.id not in self._only:
            raise asyncio.CancelledError  # never: it is not asked for. Whoever is next has it
        name = str(order.run)
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - DBOS runs workflows in tasks
        earlier = self._active.get(name)
        if earlier is not None:  # it was taken from us, and has come back
            earlier.cancel()
        self._active[name] = task
        try:
            known = await asyncio.to_thread(self._runs.known, order) if order.before else {}
            report = await execute(
                order.goal,
                _Execution(self, order, task, self._lease.doubts),
                known=known,
                answers=order.answers,
                revision=order.run.revision,
                spent=order.spent,
            )
        except (error.DBOSWorkflowConflictIDError, error.DBOSWorkflowCancelledError):
            # Somebody else has it, or it is over: nothing of it is ours to say.
            raise asyncio.CancelledError from None
        finally:
            if self._active.get(name) is task:
                del self._active[name]
            if task.cancelling():
                self.look()
            self._ended()
        return ending(report)

    async def perform(self, call: StepCall, bench: Workbench) -> StepResult:
        """Do one step."""
        self.busy(1)
        try:
            return await perform(call, bench, self.hear)
        finally:
            self.busy(-1)

    def busy(self, more: int) -> None:
        """So many more things are being done, or written down, that should not be cut off."""
        self._busy += more
        if not self._busy:
            self._idle.set()

    async def may_begin(self, execution: _Execution) -> None:
        """Before each try: not when this worker is about to leave, or has lost the run."""
        if self._draining:
            self.busy(-1)
            try:
                await asyncio.Event().wait()  # until the run is cancelled
            finally:
                self.busy(1)
        doubts = self._lease.doubts
        if execution.doubts == doubts and not self._lease.overdue():
            return
        task = self._active.get(execution.run)
        lost = await asyncio.to_thread(self._runs.lost, [execution.run], self.name, thorough=True)
        if lost or task is not execution.task:
            execution.task.cancel()
            raise asyncio.CancelledError
        execution.doubts = doubts

    async def _look_around(self) -> None:
        """End runs here that were cancelled, or that somebody else has."""
        last = time.monotonic()
        while self._dbos is not None:
            try:
                async with asyncio.timeout(_LOOK):
                    await self._look.wait()
            except TimeoutError:
                pass
            self._look.clear()
            now = time.monotonic()
            away, last = now - last > self._lease.seconds / 2, now
            try:
                await self._say_what_has_ended()
                if not self._active:
                    continue
                lost = await asyncio.to_thread(
                    self._runs.lost, list(self._active), self.name, thorough=away
                )
            except Exception:
                logging.getLogger(__name__).exception("looking for cancelled goals failed")
                continue
            for name in lost:
                task = self._active.get(name)
                if task is not None and not task.cancelling():  # twice would cut off its tidying
                    task.cancel()

    async def _say_what_has_ended(self) -> None:
        """Of what was cancelled here: only then may it begin anew."""
        for name in await asyncio.to_thread(self._store.stopping, self.name):
            if name not in self._active:
                await asyncio.to_thread(self._store.stopped, name)

    async def went_on(self, run: str) -> None:
        """A run that lost its worker got further: what killed that one lies behind it."""
        try:
            await asyncio.to_thread(self._store.went_on, run, self.name)
        except Exception:
            logging.getLogger(__name__).exception("forgetting earlier workers failed")

    def look(self) -> None:
        """Something was cancelled: look at once."""
        self._look.set()

    def _give_back(self, workers: list[str]) -> bool:
        if self._dbos is None:
            return False  # about to leave: others see to it
        _give_back(self._dbos, workers)
        return True

    # The end

    async def drain(self, seconds: float) -> None:
        """Begin nothing more, finish what steps are at it, and hand the rest to others."""
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
                        await asyncio.sleep(0)  # whoever has ended goes on to write it down
            except TimeoutError:
                pass
        await self.close()

    async def close(self) -> None:
        """Leave. What was begun here goes on elsewhere, at once."""
        global _serving  # noqa: PLW0603
        dbos, self._dbos = self._dbos, None
        if dbos is None:
            return
        self._draining = True
        await asyncio.to_thread(self._lease.let_go)
        for event in dbos.background_thread_stop_events:
            event.set()
        if self._looks is not None:  # not cut off: it may be asking the database
            self._look.set()
            await self._looks
        tasks = list(self._active.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=10)
        for thread in threading.enumerate():
            if thread.name == f"queue-worker-{QUEUE}":  # it may be taking one more
                await asyncio.to_thread(thread.join, 5)
        try:
            await asyncio.to_thread(self._store.left_alive, self.name)
            await asyncio.to_thread(_give_back, dbos, [self.name])
            await asyncio.to_thread(self._store.gone, [self.name])
        finally:
            logging.getLogger("dbos").removeFilter(_unexpected)
            await _on_own_thread(_destroy)
            _serving = None


class _Execution:
    """One run, as `execute` sees it."""

    def __init__(self, worker: Worker, order: Order, task: asyncio.Task[Any], doubts: int) -> None:
        from dbos import DBOS

        self.run = str(order.run)
        self.task = task
        self.doubts = doubts
        """The worker's, when this run was surely its own."""
        self._worker = worker
        kept = worker.bench.artefacts
        self._bench = worker.bench._replace(
            runner=_Guarded(self, worker),
            artefacts=kept.of_run(order.goal.id, self.run, order.born)
            if isinstance(kept, DatabaseArtefacts)
            else kept.of(order.goal.id),
        )
        self._step = DBOS.run_step_async
        self._again = False

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
        if not fresh:
            self._again = True  # it was recorded by a worker that is gone
            return unpack(StepResult, packed)
        if self._again:
            self._again = False
            await self._worker.went_on(self.run)
        return fresh[0]

    async def perform(self, call: StepCall) -> StepResult:
        """Here, in this process."""
        return await self._worker.perform(call, self._bench)

    async def ask(self, step: Step, text: str) -> Answer | None:  # noqa: ARG002
        """Nobody is waited for: when they answer, another run begins."""
        return None

    def tell(self, event: StepEvent) -> None:
        """For those who watch in this process."""
        self._worker.hear(event)


class _Guarded:
    """The runner, for who may still begin."""

    def __init__(self, execution: _Execution, worker: Worker) -> None:
        self._execution = execution
        self._worker = worker
        self._runner = worker.bench.runner

    async def run(self, work: Work) -> Done:
        """One try."""
        await self._worker.may_begin(self._execution)
        return await self._runner.run(work)


async def _goal(order: dict[str, Any]) -> dict[str, Any]:
    """The workflow: one run of a goal."""
    if _serving is None:
        raise asyncio.CancelledError  # the process is leaving
    return await _serving.run(Order.of(order))


_registered = False


def _register(dbos: type[DBOS]) -> None:
    global _registered  # noqa: PLW0603
    if not _registered:
        dbos.workflow(name=WORKFLOW, max_recovery_attempts=RECOVERIES)(_goal)
        _registered = True


def _in_use() -> bool:
    """Whether the application itself works with DBOS in this process."""
    from importlib import import_module

    return getattr(import_module("dbos._dbos"), "_dbos_global_instance", None) is not None


def _unexpected(record: logging.LogRecord) -> bool:
    """Whether a line of DBOS' log is worth reading; of a database that is away, one in a while.

    What follows its first line are statements with their values: outputs of steps belong in no log.
    """
    global _said_away  # noqa: PLW0603
    message = record.getMessage()
    if any(part in message for part in _EXPECTED):
        return False
    if "(psycopg." not in message and "(sqlite3." not in message:
        return True
    record.msg, record.args = message.partition("\n")[0], ()
    now = time.monotonic()
    if now - _said_away < _AWAY:
        return False
    _said_away = now
    return True


@contextmanager
def _taking(only: Collection[str] | None) -> Generator[None]:
    """Have a DBOS that is launched meanwhile leave the runs of other goals in the queue."""
    if only is None:
        yield
        return
    from dbos._sys_db import SystemDatabase

    database: Any = SystemDatabase
    create = database.create

    def narrow(*given: Any, **named: Any) -> Any:
        made = create(*given, **named)
        _narrow(made, only)
        return made

    database.create = staticmethod(narrow)
    try:
        yield
    finally:
        database.create = staticmethod(create)


def _narrow(database: Any, goals: Collection[str]) -> None:
    """Let it take the runs of these goals only.

    DBOS takes all that its application may do. There is no public way to narrow that, so our
    condition goes in beside that of the application.
    """
    import sqlalchemy as sa

    take, owned = database.start_queued_workflows, database._name_filter  # noqa: SLF001
    taking = threading.local()

    def narrowed(column: Any, value: Any) -> Any:
        found = owned(column, value)
        names = getattr(column, "table", None)
        if not getattr(taking, "now", False) or "workflow_uuid" not in getattr(names, "c", ()):
            return found
        run = cast("Any", names).c.workflow_uuid
        mine = [sa.func.substr(run, 1, len(goal) + 1) == f"{goal}." for goal in list(goals)]
        return sa.and_(found, sa.or_(sa.false(), *mine))

    def take_mine(*given: Any, **named: Any) -> Any:
        taking.now = True
        try:
            return take(*given, **named)
        finally:
            taking.now = False

    database._name_filter = narrowed  # noqa: SLF001
    database.start_queued_workflows = take_mine


def _give_back(dbos: Any, workers: list[str]) -> None:
    """Put into the queue what still is with these workers: two who do it at once do it once.

    DBOS does this itself at a start, for its own name, and for who runs its operator. The public
    way, `resume_workflows`, would also begin again what was cancelled in between.
    """
    dbos._recover_pending_workflows(workers)  # noqa: SLF001


def _destroy() -> None:
    from dbos import DBOS

    DBOS.destroy()


async def _on_own_thread(work: Callable[[], object]) -> None:
    """Not on the pool of the loop: that is the one that is being closed."""
    loop = asyncio.get_running_loop()
    over = loop.create_future()

    def do() -> None:
        try:
            work()
        finally:
            loop.call_soon_threadsafe(over.set_result, None)

    threading.Thread(target=do, name="satchel-close", daemon=True).start()
    await over
    # The loop still has DBOS' pool, which is closed: whoever comes next needs an open one.
    from concurrent.futures import ThreadPoolExecutor

    loop.set_default_executor(ThreadPoolExecutor(thread_name_prefix="asyncio"))
