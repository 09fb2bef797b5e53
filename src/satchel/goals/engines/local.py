"""The engine `local`: goals run as asyncio tasks of one process, without optional packages.

Each goal has a journal in a folder: `resume` continues after a crash, and other processes can
report, answer and cancel. Without a folder the journals are temporary.
"""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import suppress
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Self

from satchel.errors import InvalidInput, NotFound, Refused
from satchel.goals import approvals
from satchel.goals.artifacts import FolderArtifacts
from satchel.goals.engines import base
from satchel.goals.engines.local_journal import (
    IDLE,
    DamagedLine,
    Journal,
    LocalExecution,
    LocalGoal,
    damage_of,
    lines_of,
)
from satchel.goals.executor import execute
from satchel.goals.model import OVER, Answer, Goal, Plan, StepResult
from satchel.goals.plan_checks import require_valid, running_steps
from satchel.goals.reports import continued_results, json_text, pack, summary_of, unpack
from satchel.goals.step_runner import StepContext
from satchel.i18n import say, unpack_messages

if TYPE_CHECKING:
    from collections.abc import Sequence

    from satchel.goals.artifacts import Artifacts
    from satchel.goals.model import GoalReport, GoalState, GoalSummary, StepRunner


def require_same_plan(record: LocalGoal, plan: Plan) -> None:
    """Raise unless an existing goal has this plan.

    Raises:
        Conflict: it has another plan, or its journal is damaged.
    """
    if record.state == "damaged":
        raise base.goal_damaged(record.goal.id, record.reason)
    known = (record.goal.plan, record.first_plan)
    if plan not in known and json_text(pack(plan)) not in (json_text(pack(one)) for one in known):
        raise base.plan_conflict(record.goal.id)


def read_goal(journal: Journal) -> LocalGoal | None:
    """Read a goal from its journal, as far as it is readable; None when there is none."""
    record: LocalGoal | None = None
    number = 0
    try:
        for number, line in lines_of(journal.path):  # noqa: B007 - named when it cannot be used
            if record is not None:
                _apply_line(record, line)
            else:
                record = LocalGoal(unpack(Goal, line["goal"]))
                record.started = float(line.get("at", 0.0))
    except (DamagedLine, InvalidInput, LookupError, TypeError, ValueError) as exc:
        number = exc.number if isinstance(exc, DamagedLine) else number if record else 1
        record = record or LocalGoal(Goal(os.path.basename(journal.folder), Plan("", ())))
        record.state = "damaged"
        record.reason = damage_of(journal.path, number)
    return record


def _apply_line(record: LocalGoal, line: dict[str, Any]) -> None:
    if "step" in line:
        result = unpack(StepResult, line["step"])
        record.results[result.step] = result
    elif "answer" in line:
        if line.get("of", record.revision) == record.revision:
            record.answers[line["to"]] = unpack(Answer, line["answer"])
    elif "revision" in line:
        kept = set(line["keep"])
        record.results = {name: one for name, one in record.results.items() if name in kept}
        record.goal = record.goal._replace(plan=unpack(Plan, line["plan"]))
        record.revision, record.answers = int(line["revision"]), {}
        record.state, record.reason = "queued", ""
    elif "end" in line:
        record.state, record.reason = line["end"], unpack_messages(line).get("reason", "")
        record.ended_at = float(line.get("at", 0.0))  # missing in journals of older versions
    elif "run" in line:
        record.state, record.reason = "running", ""


POLL_INTERVAL_S = 0.3
_CANCEL_TIMEOUT_S = 5.0
"""How long `cancel` waits for steps to clean up."""


class LocalEngine:
    """Runs goals in this process.

    Args:
        runner: Runs the steps; without one, goals can only be viewed, answered and cancelled.
        folder: Storage of journals and large outputs; a temporary one when empty.
    """

    name = "local"

    def __init__(self, runner: StepRunner | None = None, folder: str = "") -> None:
        self._temporary = None if folder else TemporaryDirectory(prefix="satchel-goals-")
        folder = self._temporary.name if self._temporary else folder
        self.artifacts: Artifacts = FolderArtifacts(os.path.join(folder, "artefacts"))
        self._context = StepContext(runner, self.artifacts) if runner else None
        self._folder = os.path.join(folder, "goals")
        self._loaded: dict[str, LocalGoal] = {}
        """Goals that run here. The others are read on every request, because other processes may
        change them."""
        self._cancel_poll: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Stop running goals; they can be resumed, unless the folder is temporary."""
        tasks = [record.task for record in self._loaded.values() if record.task]
        if self._cancel_poll is not None:
            tasks.append(self._cancel_poll)
            self._cancel_poll = None
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._temporary is not None:
            self._temporary.cleanup()

    # --- lookup and locks -----------------------------------------------------------------

    def _journal(self, goal_id: str) -> Journal:
        """The journal of a goal."""
        return Journal(os.path.join(self._folder, goal_id))

    def _get(self, goal_id: str) -> LocalGoal:
        """The current state of a goal, in whichever process it runs.

        Raises:
            NotFound: there is no such goal.
        """
        record = self._loaded.get(goal_id)
        if record is not None:
            return record
        record, journal = self._read(goal_id)
        if record.state not in IDLE and not journal.is_locked():
            record, _ = self._read(goal_id)  # it may have ended just now
            if record.state not in IDLE:
                record.state = "queued"
                record.reason = say("Its process is gone; `satchel goal resume` goes on with it")
        if record.state == "running":  # in another process, whose journal has only ended steps
            record.progress.running = dict.fromkeys(
                running_steps(record.goal.plan, record.results), 0.0
            )
        return record

    def _lock(self, goal_id: str) -> LocalGoal:
        """Lock a goal in order to run it here.

        Raises:
            NotFound: there is no such goal.
            Conflict: another process runs it, or its journal is damaged.
        """
        record = self._loaded.get(goal_id)
        if record is not None:
            return record
        _, journal = self._read(goal_id)
        if not journal.lock():
            raise base.goal_running(goal_id)
        record, _ = self._read(goal_id)
        if record.state == "damaged":
            journal.unlock()
            raise base.goal_damaged(goal_id, record.reason)
        if record.state not in IDLE:
            record.state = "queued"  # its process is gone, since the lock was free
        record.journal = journal
        return record

    def _unlock(self, record: LocalGoal) -> None:
        """Unlock a goal, so that another process may run it."""
        if record.journal is not None:
            record.journal.unlock()
            self._loaded.pop(record.goal.id, None)

    def _ids(self, before: float | None = None) -> list[str]:
        """Ids of all goals, or of those submitted before a time, newest first."""
        found: list[tuple[float, str]] = []
        for name in os.listdir(self._folder) if os.path.isdir(self._folder) else ():
            began = self._journal(name).submitted_at()
            if began is not None:
                found.append((began, name))
        return [name for at, name in sorted(found, reverse=True) if before is None or at < before]

    def _read(self, goal_id: str) -> tuple[LocalGoal, Journal]:
        plain = goal_id not in {"", ".", ".."} and os.path.basename(goal_id) == goal_id
        if not plain or "\0" in goal_id:
            raise base.goal_missing(goal_id)
        journal = self._journal(goal_id)
        record = read_goal(journal)
        if record is None or record.goal.id != goal_id:
            raise base.goal_missing(goal_id)
        return record, journal

    # --- starting -------------------------------------------------------------------------

    async def submit(self, goal: Goal) -> GoalReport:
        """Start a goal; a known id with the same plan changes nothing."""
        require_valid(goal)
        record = self._loaded.get(goal.id)
        if record is not None:
            require_same_plan(record, goal.plan)
        else:
            record = self._submit(goal)
        return record.report(self.name)

    def _submit(self, goal: Goal) -> LocalGoal:
        journal = self._journal(goal.id)
        if not journal.lock():
            record = self._get(goal.id)
            require_same_plan(record, goal.plan)
            return record
        try:
            record = read_goal(journal)
            if record is None:
                record = LocalGoal(goal)
                record.started = time.time()
                journal.begin(goal, record.started)
            require_same_plan(record, goal.plan)
        except BaseException:
            journal.unlock()
            raise
        record.journal = journal
        if record.state in {"queued", "running"}:  # new, or its process is gone
            self._start(record)
        else:
            self._unlock(record)
        return record

    async def resume(self, goal_id: str) -> GoalReport:
        """Continue a goal whose process is gone."""
        record = self._lock(goal_id)
        if record.task is not None:
            raise base.goal_running(goal_id)
        if record.state == "cancelled":
            self._unlock(record)
            raise base.goal_cancelled(goal_id)
        if record.state in OVER or (record.state == "asking" and not record.has_new_answer()):
            self._unlock(record)
        else:
            self._start(record)
        return record.report(self.name)

    async def retry(
        self, goal_id: str, *, from_step: str = "", plan: Plan | None = None
    ) -> GoalReport:
        """Start a new revision of a goal that is over or asks; valid results are kept."""
        record = self._lock(goal_id)
        if record.task is not None:
            raise base.goal_running(goal_id)
        try:
            record.revise(plan, from_step)
            self._journal_of(record).add_revision(
                record.revision, record.goal.plan, [*record.results]
            )
        except BaseException:
            self._unlock(record)
            raise
        self._start(record)
        return record.report(self.name)

    async def answer(self, goal_id: str, step: str, answer: Answer) -> None:
        """Record an answer and continue the goal."""
        record = self._get(goal_id)
        if record.state == "damaged":
            raise base.goal_damaged(goal_id, record.reason)
        journal = record.journal or self._journal(goal_id)
        with journal.answer_lock():
            record = self._get(goal_id)
            written = read_goal(journal)  # by any process
            said = written.answers if written else record.answers
            if not approvals.is_new_answer(record.report(), step, answer, said.get(step)):
                return
            journal.add_answer(step, answer, record.revision)
        record.answers[step] = answer
        if record.task is not None:
            return  # its run finds the answer when it ends
        journal.unlock()
        if self._context is None or not journal.lock():
            return  # the process that runs it looks for answers after unlocking it
        reread = read_goal(journal)
        if reread is None or not reread.has_new_answer():
            journal.unlock()
            return
        reread.journal = journal
        self._start(reread)

    # --- running --------------------------------------------------------------------------

    def _start(self, record: LocalGoal) -> None:
        """Run a goal here; without a runner it stays in its journal, to be resumed."""
        if self._context is None:
            record.state = "queued"
            self._unlock(record)
            return
        try:
            self._journal_of(record).clear_cancel()
            self._journal_of(record).add_run(time.time())
        except BaseException:
            self._unlock(record)
            raise
        self._loaded[record.goal.id] = record
        record.cancelled = False
        record.begin()
        record.task = asyncio.create_task(self._run(record, self._context))
        record.task.add_done_callback(lambda task: self._ended(record, task))
        if self._cancel_poll is None:
            self._cancel_poll = asyncio.create_task(self._poll_cancellations())

    async def _run(self, record: LocalGoal, context: StepContext) -> None:
        """Run a goal as far as possible; again when it was answered meanwhile."""
        while True:
            known = continued_results(record.results) if record.results else {}
            # Open questions stay open until the new run reaches them.
            open_questions = {
                name: one for name, one in record.results.items() if one.state == "asking"
            }
            record.results = {**open_questions, **known}
            report = await execute(
                record.goal,
                LocalExecution(record, context),
                known=known,
                answers=record.answers,
                revision=record.revision,
                started=record.started,
                progress=record.progress,
                engine=self.name,
            )
            now = time.time()
            journal = self._journal_of(record)
            journal.add_end(report.state, report.reason, now)
            written = read_goal(journal)
            record.answers = written.answers if written else record.answers
            record.end(report, now)
            if not record.has_new_answer() and not _has_late_answer(record):
                return
            journal.add_run(time.time())
            record.begin()

    def _ended(self, record: LocalGoal, task: asyncio.Task[None]) -> None:
        """Handle the end of a run: by itself, cancelled, closed with the engine, or by an error."""
        record.task = None
        try:
            if task.cancelled():
                if record.cancelled:  # a closed engine leaves goals as they are, to be resumed
                    self._close(record, "cancelled", "")
            elif (exc := task.exception()) is not None:
                self._close(record, "failed", f"{type(exc).__name__}: {exc}")
        finally:
            self._unlock(record)

    @staticmethod
    def _close(record: LocalGoal, state: GoalState, reason: str) -> None:
        now = time.time()
        record.last_report = None
        record.state, record.reason, record.ended_at = state, reason, now
        record.last_report = record.report(LocalEngine.name)
        with suppress(OSError):  # a full disk may be why it failed
            LocalEngine._journal_of(record).add_end(state, reason, now)
            LocalEngine._journal_of(record).clear_cancel()

    @staticmethod
    def _journal_of(record: LocalGoal) -> Journal:
        """The journal of a goal that is locked here."""
        assert record.journal is not None  # noqa: S101 - as `lock` left it
        return record.journal

    async def _poll_cancellations(self) -> None:
        while True:
            await asyncio.sleep(POLL_INTERVAL_S)
            for record in list(self._loaded.values()):
                if record.task and record.journal and record.journal.cancel_requested():
                    record.cancelled = True
                    record.task.cancel()
                    record.journal.clear_cancel()

    async def cancel(self, goal_id: str) -> None:
        """Cancel a goal."""
        record = self._get(goal_id)
        if record.state in OVER:
            return
        if record.task is not None:
            record.cancelled = True
            record.task.cancel()
            await asyncio.wait([record.task], timeout=_CANCEL_TIMEOUT_S)
            return
        record.journal = self._journal(goal_id)
        if not record.journal.lock():
            record.journal.request_cancel()
            return
        self._close(record, "cancelled", "")
        self._unlock(record)

    async def forget(self, goal_id: str) -> None:
        """Remove a goal that is over, with its journal and its large outputs."""
        record = self._get(goal_id)
        if record.task is not None or record.state not in OVER:
            raise base.goal_not_over(goal_id, record.state)
        journal = self._journal(goal_id)
        if not journal.lock():
            raise base.goal_not_over(goal_id, "running")
        try:
            record = self._get(goal_id)  # from the journal: it does not run here
            if record.state not in OVER:  # another process restarted it just now
                raise base.goal_not_over(goal_id, record.state)
            await self.artifacts.forget(goal_id)  # first: a remaining journal can be removed again
            journal.remove()
        finally:
            journal.unlock()

    # --- reports --------------------------------------------------------------------------

    async def report(self, goal_id: str) -> GoalReport:
        """Return the current report."""
        return self._get(goal_id).report(self.name)

    async def wait(self, goal_id: str, timeout: float | None = None) -> GoalReport:  # noqa: ASYNC109
        """Wait until it is over or asks; return the report when the time is up."""
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            record = self._get(goal_id)
            left = None if end is None else end - time.monotonic()
            at_rest = record.task is None and record.state in IDLE
            if at_rest or (left is not None and left <= 0):
                return record.report(self.name)
            task = record.task
            if task is None:
                await asyncio.sleep(POLL_INTERVAL_S if left is None else min(left, POLL_INTERVAL_S))
                continue
            await asyncio.wait([task], timeout=left)
            if task.done() and record.last_report is not None:
                return record.last_report  # a full disk leaves no line about the end

    async def list(
        self, *, states: Sequence[GoalState] = (), limit: int = 50, before: float | None = None
    ) -> list[GoalSummary]:
        """Summaries, newest first."""
        found: list[GoalSummary] = []
        for name in self._ids(before):
            if len(found) >= limit:
                break
            with suppress(NotFound):
                summary = summary_of(self._get(name).report(self.name))
                if not states or summary.state in states:
                    found.append(summary)
        return found

    async def work(self, *, drain: float = 30.0) -> None:
        """Raise: this engine has no workers."""
        del drain
        raise Refused(
            say("The engine `local` has no workers"),
            say("Use `--engine dbos` or `--engine temporal` for work on several machines"),
        )


def _has_late_answer(record: LocalGoal) -> bool:
    """Unlock a goal, and check for an answer that arrived while it was locked."""
    journal = record.journal
    if journal is None or record.state != "asking":
        return False
    journal.unlock()
    written = read_goal(journal)
    if written is None or not written.has_new_answer() or not journal.lock():
        return False
    record.answers = written.answers
    return True
