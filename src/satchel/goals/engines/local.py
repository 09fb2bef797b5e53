"""The engine `local`: goals run as asyncio tasks of one process, without optional packages.

Each goal has a journal in a folder: `resume` continues after a crash, and other processes can
report, answer and cancel. Without a folder the journals are temporary.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from contextlib import suppress
from math import inf
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Self

from satchel.errors import Conflict, NotFound, Refused
from satchel.goals import approvals
from satchel.goals.artifacts import FolderArtifacts
from satchel.goals.engines import base
from satchel.goals.engines.local_goal import IDLE, LocalExecution, LocalGoal, read_goal
from satchel.goals.engines.local_journal import Journal
from satchel.goals.executor import default_answer, execute
from satchel.goals.model import DEFAULT_PRIORITY, FINAL_GOAL_STATES, FINAL_STEP_STATES
from satchel.goals.plan_checks import require_valid
from satchel.goals.reports import (
    continued_results,
    json_text,
    last_event_time,
    pack,
    summary_of,
    total,
)
from satchel.goals.status import (
    DAY_S,
    MAX_STEPS_LISTED,
    BegunStep,
    GoalStatus,
    count_goals,
    overdue_question,
    sort_steps,
)
from satchel.goals.step_runner import StepContext
from satchel.goals.telemetry import report_death, report_end
from satchel.i18n import say

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from satchel.goals.artifacts import Artifacts
    from satchel.goals.model import (
        Answer,
        Goal,
        GoalReport,
        GoalState,
        GoalSummary,
        Plan,
        Schedule,
        StepRunner,
        Usage,
    )
    from satchel.goals.status import StepStatus


POLL_INTERVAL_S = 0.3
_CANCEL_TIMEOUT_S = 5.0
"""How long `cancel` waits for steps to clean up."""


def require_same_plan(record: LocalGoal, plan: Plan) -> None:
    """Raise unless an existing goal has this plan.

    Raises:
        Conflict: it has another plan, or its journal is damaged.
    """
    if record.state == "damaged":
        raise base.goal_damaged(record.goal.id, record.reason)
    plans = (record.goal.plan, record.first_plan)
    if plan not in plans and json_text(pack(plan)) not in (
        json_text(pack(known_plan)) for known_plan in plans
    ):
        raise base.plan_conflict(record.goal.id)


def _require_no_versions(versions: Mapping[str, str] | None) -> None:
    """Raise unless skills are run as they are.

    Raises:
        Refused: versions are wanted, and there are no workers to choose from.
    """
    if versions:
        raise Refused(
            say("The engine `local` runs skills as they are, and cannot wait for other versions"),
            say("Use an engine with workers, or submit the goal without `versions`"),
        )


class LocalEngine:
    """Runs goals in this process, with their state in a folder.

    Args:
        runner: Runs the steps; without one, goals can only be viewed, answered and cancelled.
        folder: Storage of journals and large outputs; a temporary one when empty.

    Example:
        import asyncio

        from satchel.goals import Answer, Done, Goal, LocalEngine, Plan, Step, Work


        class Steps:
            async def run(self, work: Work) -> Done:
                return Done(f"{work.step.id}: {work.prompt}")


        plan = Plan(
            "Publish the notes",
            (
                Step("draft", prompt="Write the notes"),
                Step("check", "human", prompt="Publish {{steps.draft.output}}?"),
            ),
        )


        async def main():
            async with LocalEngine(Steps()) as engine:
                goal = Goal.of(plan)
                await engine.submit(goal)
                report = await engine.wait(goal.id)
                assert report.state == "asking"
                await engine.answer(goal.id, "check", Answer(by="Ada"))
                return await engine.wait(goal.id)


        report = asyncio.run(main())
        assert report.state == "done"
    """

    name = "local"

    def __init__(self, runner: StepRunner | None = None, folder: str = "") -> None:
        self._temporary = None if folder else TemporaryDirectory(prefix="satchel-goals-")
        folder = self._temporary.name if self._temporary else folder
        self.artifacts: Artifacts = FolderArtifacts(os.path.join(folder, "artefacts"))
        self._context = (
            StepContext(runner, self.artifacts, suspects=asyncio.Lock(), engine=self.name)
            if runner
            else None
        )
        self._folder = os.path.join(folder, "goals")
        self._loaded: dict[str, LocalGoal] = {}
        """Goals that run here. The others are read on every request, because other processes may
        change them."""
        self._cancel_poll: asyncio.Task[None] | None = None
        self._deadline_tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Stop running goals; they can be resumed, unless the folder is temporary."""
        tasks = [record.task for record in self._loaded.values() if record.task]
        tasks += self._deadline_tasks
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
        record.journal = journal
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
        goals: list[tuple[float, str]] = []
        for name in os.listdir(self._folder) if os.path.isdir(self._folder) else ():
            began = self._journal(name).submitted_at()
            if began is not None:
                goals.append((began, name))
        return [
            name
            for submitted_at, name in sorted(goals, reverse=True)
            if before is None or submitted_at < before
        ]

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
        _require_no_versions(goal.versions)
        if goal.priority != DEFAULT_PRIORITY:
            raise Refused(
                say("The engine `local` begins every goal at once, so there is no priority"),
                say("Use an engine with workers, or leave `--priority` out"),
            )
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
        if await self._answer_overdue(goal_id):
            return self._get(goal_id).report(self.name)
        record = self._lock(goal_id)
        if record.task is not None:
            raise base.goal_running(goal_id)
        if record.state == "cancelled":
            self._unlock(record)
            raise base.goal_cancelled(goal_id)
        if record.state in FINAL_GOAL_STATES or (
            record.state == "asking" and not record.has_new_answer()
        ):
            self._unlock(record)
        else:
            self._start(record)
        return record.report(self.name)

    async def retry(
        self,
        goal_id: str,
        *,
        from_step: str = "",
        plan: Plan | None = None,
        versions: Mapping[str, str] | None = None,
    ) -> GoalReport:
        """Start a new revision of a goal that is over or asks; valid results are kept."""
        _require_no_versions(versions)
        await base.wait_until_cancelled(goal_id, lambda: self.report(goal_id))
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
            recorded = written.answers if written else record.answers
            if not approvals.is_new_answer(record.report(), step, answer, recorded.get(step)):
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

    async def _answer_overdue(self, goal_id: str) -> bool:
        """Answer overdue questions of a goal with their defaults; False when there are none."""
        report = self._get(goal_id).report()
        deadlines = base.deadlines_of(report)
        overdue = [step for step in report.plan.steps if deadlines.get(step.id, inf) <= time.time()]
        for step in overdue:
            with suppress(Conflict):  # a person was faster
                await self.answer(goal_id, step.id, default_answer(step))
        return bool(overdue)

    def _schedule_deadline(self, record: LocalGoal) -> None:
        """Look for overdue questions when the next deadline of a goal has passed."""
        deadlines = base.deadlines_of(record.report()).values()
        if not deadlines:
            return

        async def wait_for_deadline() -> None:
            await asyncio.sleep(max(0.0, min(deadlines) - time.time()) + 0.01)
            with suppress(NotFound):  # it was removed
                await self._answer_overdue(record.goal.id)

        task = asyncio.create_task(wait_for_deadline())
        self._deadline_tasks.add(task)
        task.add_done_callback(self._deadline_tasks.discard)

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
        for worker in {begun.worker for begun in record.begun.values()} - {""}:
            report_death(self.name, worker)
        record.count_deaths()
        record.begin()
        record.task = asyncio.create_task(self._run(record, self._context))
        record.task.add_done_callback(lambda task: self._ended(record, task))
        if self._cancel_poll is None:
            self._cancel_poll = asyncio.create_task(self._poll_cancellations())

    async def _run(self, record: LocalGoal, context: StepContext) -> None:
        """Run a goal as far as possible; again when it was answered meanwhile."""
        while True:
            results = continued_results(record.results) if record.results else {}
            # Open questions stay open until the new run reaches them.
            open_questions = {
                name: result for name, result in record.results.items() if result.state == "asking"
            }
            record.results = {**open_questions, **results}
            report = await execute(
                record.goal,
                LocalExecution(record, context),
                known_results=results,
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
            report_end(self.name, record.goal.id, report.state, report.seconds)
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
        if record.state == "asking":
            self._schedule_deadline(record)

    @staticmethod
    def _close(record: LocalGoal, state: GoalState, reason: str) -> None:
        now = time.time()
        record.last_report = None
        record.state, record.reason, record.ended_at = state, reason, now
        record.last_report = record.report(LocalEngine.name)
        report_end(LocalEngine.name, record.goal.id, state, record.last_report.seconds)
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
                requested = record.journal is not None and record.journal.cancel_requested()
                if record.task and requested and not record.cancelled:
                    record.cancelled = True
                    record.task.cancel()

    async def cancel(self, goal_id: str) -> None:
        """Cancel a goal."""
        record = self._get(goal_id)
        if record.state in FINAL_GOAL_STATES:
            return
        if record.task is not None:
            if not record.cancelled:  # twice would interrupt its cleanup
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
        if record.task is not None or record.state not in FINAL_GOAL_STATES:
            raise base.goal_not_over(goal_id, record.state)
        journal = self._journal(goal_id)
        if not journal.lock():
            raise base.goal_not_over(goal_id, "running")
        try:
            record = self._get(goal_id)  # from the journal: it does not run here
            if record.state not in FINAL_GOAL_STATES:  # another process restarted it just now
                raise base.goal_not_over(goal_id, record.state)
            await self.artifacts.forget(goal_id)  # first: a remaining journal can be removed again
            journal.remove()
        finally:
            journal.unlock()

    async def ended_before(self, moment: float) -> Sequence[str]:
        """The ids of the goals that ended before a moment, the latest first."""
        ended: list[str] = []
        for goal_id in self._ids(moment):
            with suppress(NotFound):
                report = self._get(goal_id).report(self.name)
                if report.state in FINAL_GOAL_STATES:
                    # By its steps, where a damaged journal has no end.
                    ended += [goal_id] if (report.ended or last_event_time(report)) < moment else []
        return ended

    async def forget_all(self, goal_ids: Sequence[str]) -> Sequence[str]:
        """Remove those of the goals that are over."""
        removed: list[str] = []
        for goal_id in goal_ids:
            with suppress(NotFound, Conflict):
                await self.forget(goal_id)
                removed.append(goal_id)
        return removed

    # --- reports --------------------------------------------------------------------------

    async def report(self, goal_id: str) -> GoalReport:
        """Return the current report."""
        return self._get(goal_id).report(self.name)

    async def wait(self, goal_id: str, timeout: float | None = None) -> GoalReport:  # noqa: ASYNC109
        """Wait until it is over or asks; return the report when the time is up."""
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            record = self._get(goal_id)
            remaining = None if end is None else end - time.monotonic()
            at_rest = record.task is None and record.state in IDLE
            if at_rest or (remaining is not None and remaining <= 0):
                return record.report(self.name)
            task = record.task
            if task is None:
                await asyncio.sleep(
                    POLL_INTERVAL_S if remaining is None else min(remaining, POLL_INTERVAL_S)
                )
                continue
            await asyncio.wait([task], timeout=remaining)
            if task.done() and record.last_report is not None:
                return record.last_report  # a full disk leaves no line about the end

    async def list(
        self, *, states: Sequence[GoalState] = (), limit: int = 50, before: float | None = None
    ) -> list[GoalSummary]:
        """Summaries, newest first."""
        summaries: list[GoalSummary] = []
        for name in self._ids(before):
            if len(summaries) >= limit:
                break
            with suppress(NotFound):
                summary = summary_of(self._get(name).report(self.name))
                if not states or summary.state in states:
                    summaries.append(summary)
        return summaries

    async def status(self) -> GoalStatus:
        """Count the goals, and find the steps whose process is gone. Reads all journals."""
        now = time.time()
        records: list[LocalGoal] = []
        for goal_id in self._ids():
            with suppress(NotFound):
                records.append(self._get(goal_id))
        reports = [record.report(self.name) for record in records]
        day_ago = now - DAY_S
        states = Counter(report.state for report in reports if _is_recent(report, day_ago))
        fields = sort_steps(
            BegunStep(record.goal.id, step, is_alive=record.state != "queued")
            for record in records
            if record.state in {"queued", "running"}
            for step in record.begun.values()
        )
        fields["waiting"] = (*_overdue_questions(reports, day_ago), *fields["waiting"])[
            :MAX_STEPS_LISTED
        ]
        return GoalStatus(
            self.name,
            now,
            unattended=states["queued"],
            usage=total(usage for report in reports for usage in _usages_since(report, day_ago)),
            **count_goals(states),
            **fields,
        )

    async def schedule(self, goal: Goal, cron: str) -> None:
        """Raise: this engine has no schedules."""
        raise _no_schedules(cron, goal.id)

    async def schedules(self) -> Sequence[Schedule]:
        """Raise: this engine has no schedules."""
        raise _no_schedules()

    async def unschedule(self, name: str) -> None:
        """Raise: this engine has no schedules."""
        raise _no_schedules(name=name)

    async def work(self, *, drain: float = 30.0) -> None:
        """Raise: this engine has no workers."""
        del drain
        raise Refused(
            say("The engine `local` has no workers"),
            say("Use `--engine dbos` or `--engine temporal` for work on several machines"),
        )

    async def health(self) -> str:
        """Return no problem: this engine needs no server."""
        return ""


def _no_schedules(cron: str = "0 7 * * 1", name: str = "NAME") -> Refused:
    run = f'satchel goal run PLAN.yaml --id "{name}-$(date +\\%FT\\%H\\%M)" --detach'
    return Refused(
        say("The engine `local` has no schedules: no process of it runs all the time"),
        say("Use another `--engine`, or this line for cron: `{line}`", line=f"{cron}  {run}"),
    )


def _is_recent(report: GoalReport, since: float) -> bool:
    """Whether a goal is open, or ended after a moment."""
    return report.state not in FINAL_GOAL_STATES - {"damaged"} or report.ended >= since


def _overdue_questions(reports: Sequence[GoalReport], before: float) -> list[StepStatus]:
    """The questions that were asked before a moment."""
    return [
        overdue_question(report.id, step.step, step.started)
        for report in reports
        for step in report.steps.values()
        if step.state == "asking" and step.started < before
    ]


def _usages_since(report: GoalReport, since: float) -> list[Usage]:
    """What the steps of a goal used that ended after a moment."""
    return [
        step.usage
        for step in report.results.values()
        if step.state in FINAL_STEP_STATES and step.started + step.seconds >= since
    ]


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
