"""How does a goal run in one process, with nothing installed? As asyncio tasks.

Without a folder everything is lost with the process. With one, each goal has a journal: `resume`
goes on where a killed process stopped, and other processes can look, answer and cancel.
"""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

from satchel._language import Message, say, unpack_messages
from satchel.errors import InvalidInput, NotFound, Refused
from satchel.goals import answers
from satchel.goals.artefacts import FolderArtefacts, MemoryArtefacts
from satchel.goals.engines._local_goal import (
    AT_REST,
    DamagedLine,
    Held,
    Journal,
    LocalExecution,
    lines_of,
)
from satchel.goals.engines.base import (
    busy,
    cancelled,
    damaged,
    missing,
    not_over,
    other_plan,
    watch_reports,
)
from satchel.goals.execute import execute
from satchel.goals.execution import Workbench
from satchel.goals.graph import insist
from satchel.goals.model import (
    OVER,
    Answer,
    Goal,
    Plan,
    StepResult,
)
from satchel.goals.reports import pack, report_of, summary_of, unpack
from satchel.goals.revision import going_on
from satchel.goals.spending import spent
from satchel.goals.wiring import at_work

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from satchel.goals.artefacts import Artefacts
    from satchel.goals.model import (
        GoalReport,
        GoalState,
        GoalSummary,
        StepEvent,
        StepRunner,
    )

KEPT = 10_000
"""Goals that stay in memory, without a folder, once they are over."""


class Shelf:
    """The goals of one engine.

    Args:
        folder: Where goals have their folders; nowhere when empty.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.here: dict[str, Held] = {}
        """Goals in memory. With a folder, only those that run here: another process may bring the
        others on, so they are read whenever they are asked for."""

    def journal(self, goal_id: str) -> Journal | None:
        """Its journal; None without a folder."""
        return Journal(os.path.join(self.folder, goal_id)) if self.folder else None

    def known(self, goal_id: str) -> Held:
        """A goal as it is now, wherever it runs.

        Raises:
            NotFound: there is none.
        """
        held = self.here.get(goal_id)
        if held is not None:
            return held
        held, journal = self._read(goal_id)
        if held.state not in AT_REST and not journal.is_run():
            held, _ = self._read(goal_id)  # it may have ended just now
            if held.state not in AT_REST:
                held.state = "queued"
                held.reason = say("Its process is gone; `satchel goal resume` goes on with it")
        if held.state == "running":  # of another process, whose journal has only what ended
            held.progress.running = dict.fromkeys(at_work(held.goal.plan, held.results), 0.0)
        return held

    def adopt(self, goal_id: str) -> Held:
        """A goal to bring on here: its lock is ours.

        Raises:
            NotFound: there is none.
            Conflict: another process runs it, or its journal is damaged.
        """
        held = self.here.get(goal_id)
        if held is not None:
            return held
        _, journal = self._read(goal_id)
        if not journal.take():
            raise busy(goal_id)
        held, _ = self._read(goal_id)
        if held.state == "damaged":
            journal.leave()
            raise damaged(goal_id)
        if held.state not in AT_REST:
            held.state = "queued"  # whoever ran it is gone, for the lock is ours
        held.journal = journal
        return held

    def let_go(self, held: Held) -> None:
        """Whoever wants may bring it on."""
        if held.journal is not None:
            held.journal.leave()
            self.here.pop(held.goal.id, None)

    def make_room(self, ended: Held) -> list[str]:
        """One more is over: keep only the latest of those in memory. Returns who is gone."""
        if self.folder:
            return []
        gone: list[str] = []
        self.here[ended.goal.id] = self.here.pop(ended.goal.id, ended)
        if len(self.here) <= KEPT + KEPT // 10:
            return gone
        for name in [name for name, held in self.here.items() if held.forgettable()]:
            if len(self.here) <= KEPT:
                break
            del self.here[name]
            gone.append(name)
        return gone

    def names(self, before: float | None = None) -> list[str]:
        """All goals, or those submitted before a moment; those first that were submitted last."""
        found: list[tuple[float, str]] = []
        if not self.folder:
            found = [(held.started, name) for name, held in self.here.items()]
        elif os.path.isdir(self.folder):
            for name in os.listdir(self.folder):
                began = Journal(os.path.join(self.folder, name)).began()
                if began is not None:
                    found.append((began, name))
        return [name for at, name in sorted(found, reverse=True) if before is None or at < before]

    def _read(self, goal_id: str) -> tuple[Held, Journal]:
        plain = goal_id not in {"", ".", ".."} and os.path.basename(goal_id) == goal_id
        journal = self.journal(goal_id) if plain and "\0" not in goal_id else None
        held = read(journal) if journal else None
        if held is None or journal is None or held.goal.id != goal_id:
            raise missing(goal_id)
        return held, journal


def must_be(held: Held, plan: Plan) -> None:
    """A goal that is there must have this plan.

    Raises:
        Conflict: it has another, or its journal is damaged.
    """
    if held.state == "damaged":
        raise damaged(held.goal.id)
    if not (same_plan(held.goal.plan, plan) or same_plan(held.first, plan)):
        raise other_plan(held.goal.id)


def read(journal: Journal) -> Held | None:
    """The goal as the lines tell it, as far as they can be read; None when there is none."""
    held: Held | None = None
    number = 0
    try:
        for number, line in lines_of(journal.path):  # noqa: B007 - named when it cannot be used
            if held is not None:
                _fold(held, line)
            else:
                held = Held(unpack(Goal, line["goal"]))
                held.started = float(line.get("at", 0.0))
    except (DamagedLine, InvalidInput, LookupError, TypeError, ValueError) as exc:
        number = exc.number if isinstance(exc, DamagedLine) else number if held else 1
        held = held or Held(Goal(os.path.basename(journal.folder), Plan("", ())))
        held.state = "damaged"
        held.reason = Message(
            "Line {count} of `{path}` is damaged", count=number, path=journal.path
        )
    return held


def _fold(held: Held, line: dict[str, Any]) -> None:
    """One line more."""
    if "step" in line:
        result = unpack(StepResult, line["step"])
        held.results[result.step] = result
    elif "answer" in line:
        if line.get("of", held.revision) == held.revision:
            held.answers[line["to"]] = unpack(Answer, line["answer"])
    elif "revision" in line:
        kept = set(line["keep"])
        results = {name: one for name, one in held.results.items() if name in kept}
        held.spent = spent(held.goal.plan, held.results, results, held.spent)
        held.results = results
        held.goal = held.goal._replace(plan=unpack(Plan, line["plan"]))
        held.revision, held.answers = int(line["revision"]), {}
        held.state, held.reason = "queued", ""
    elif "end" in line:
        held.state, held.reason = line["end"], unpack_messages(line).get("reason", "")
        held.over_since = float(line.get("at", 0.0))  # an older Satchel did not write it
    elif "run" in line:
        held.state, held.reason = "running", ""


def same_plan(one: Plan, other: Plan) -> bool:
    """Whether two plans are the same once they are written down."""
    if one == other:
        return True
    import json

    try:
        return json.dumps(pack(one), sort_keys=True) == json.dumps(pack(other), sort_keys=True)
    except (TypeError, ValueError) as exc:
        raise InvalidInput(f"The plan has a value that JSON cannot say: {exc}") from exc


LOOK = 0.3
"""Seconds between two looks at what other processes do and want."""
_GLANCE = 0.05
"""Seconds between two looks at a goal of this process."""
_PATIENCE = 5.0
"""Seconds that `cancel` waits for steps to clean up."""


class LocalEngine:
    """Runs goals in this process, with a journal in a folder or in memory.

    Args:
        runner: Runs the steps; without one goals can only be viewed, answered and cancelled.
        folder: Where journals and large outputs are kept; nowhere when empty.
        large: Outputs of more bytes than this are kept as artefacts.
    """

    name = "local"
    durable = False

    def __init__(
        self, runner: StepRunner | None = None, folder: str = "", *, large: int = 32_768
    ) -> None:
        self.artefacts: Artefacts = MemoryArtefacts()
        if folder:
            self.artefacts = FolderArtefacts(os.path.join(folder, "artefacts"))
        self._bench = Workbench(runner, self.artefacts, large) if runner else None
        self._shelf = Shelf(os.path.join(folder, "goals") if folder else "")
        self._looking: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        """End what runs; with a folder it can be resumed."""
        tasks = [held.task for held in self._shelf.here.values() if held.task]
        if self._looking is not None:
            tasks.append(self._looking)
            self._looking = None
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- beginning ------------------------------------------------------------------------

    async def submit(self, goal: Goal) -> GoalReport:
        """Begin a goal and come back at once. The same id and plan again is the same goal."""
        insist(goal)
        held = self._shelf.here.get(goal.id)
        if held is not None:
            must_be(held, goal.plan)
        elif self._shelf.folder:
            held = self._submit_to_folder(goal)
        else:
            held = Held(goal)
            self._start(held)
        return held.report(self.name)

    def _submit_to_folder(self, goal: Goal) -> Held:
        journal = self._shelf.journal(goal.id)
        assert journal is not None  # noqa: S101 - there is a folder
        if not journal.take():
            held = self._shelf.known(goal.id)
            must_be(held, goal.plan)
            return held
        try:
            held = read(journal)
            if held is None:
                held = Held(goal)
                held.started = time.time()
                journal.begin(goal, held.started)
            must_be(held, goal.plan)
        except BaseException:
            journal.leave()
            raise
        held.journal = journal
        if held.state in {"queued", "running"}:  # new, or its process is gone
            self._start(held)
        else:
            self._shelf.let_go(held)
        return held

    async def resume(self, goal_id: str) -> GoalReport:
        """Go on with a goal whose process is gone."""
        held = self._shelf.adopt(goal_id)
        if held.task is not None:
            raise busy(goal_id)
        if held.state == "cancelled":
            self._shelf.let_go(held)
            raise cancelled(goal_id)
        if held.state in OVER or (held.state == "asking" and not held.to_go_on()):
            self._shelf.let_go(held)
        else:
            self._start(held)
        return held.report(self.name)

    async def retry(
        self, goal_id: str, *, from_step: str = "", plan: Plan | None = None
    ) -> GoalReport:
        """Begin a new revision of a goal that is over or asks; kept are results that hold."""
        held = self._shelf.adopt(goal_id)
        if held.task is not None:
            raise busy(goal_id)
        try:
            wanted = held.goal.plan if plan is None else plan
            insist(held.goal._replace(plan=wanted))
            held.revise(wanted, from_step)
            if held.journal is not None:
                held.journal.add_revision(held.revision, wanted, [*held.results])
        except BaseException:
            self._shelf.let_go(held)
            raise
        self._start(held)
        return held.report(self.name)

    async def answer(self, goal_id: str, step: str, answer: Answer) -> None:
        """Say a person's word; the goal goes on."""
        held = self._shelf.known(goal_id)
        if held.state == "damaged":
            raise damaged(goal_id)
        journal = held.journal or self._shelf.journal(goal_id)
        if journal is None:
            held = self._shelf.known(goal_id)
            if not answers.is_new(held.report(), step, answer, held.answers.get(step)):
                return
        else:
            with journal.one_answer():
                held = self._shelf.known(goal_id)
                written = read(journal)  # by any process
                said = written.answers if written else held.answers
                if not answers.is_new(held.report(), step, answer, said.get(step)):
                    return
                journal.add_answer(step, answer, held.revision)
        held.answers[step] = answer
        if held.task is not None:
            return  # its run sees the answer when it ends
        if journal is None:
            self._start(held)
            return
        journal.leave()
        if self._bench is None or not journal.take():
            return  # the process that runs it looks for answers when it has let go
        again = read(journal)
        if again is None or not again.to_go_on():
            journal.leave()
            return
        again.journal = journal
        self._start(again)

    # --- running --------------------------------------------------------------------------

    def _start(self, held: Held) -> None:
        """Run it here; without a runner it stays in its journal, for who has one to resume it."""
        if self._bench is None:
            if held.journal is None:
                raise Refused(
                    say("Nobody here can do the steps of `{goal}`", goal=held.goal.id),
                    say("Give the engine a runner"),
                )
            held.state = "queued"
            self._shelf.let_go(held)
            return
        try:
            if held.journal is not None:
                held.journal.forget_stop()
                held.journal.add_run(time.time())
        except BaseException:
            self._shelf.let_go(held)
            raise
        self._shelf.here[held.goal.id] = held
        held.cancelled = False
        held.begin()
        held.task = asyncio.create_task(self._run(held, self._bench))
        held.task.add_done_callback(lambda task: self._ended(held, task))
        if held.journal is not None and self._looking is None:
            self._looking = asyncio.create_task(self._look())

    async def _run(self, held: Held, bench: Workbench) -> None:
        """Run a goal as far as it goes; again when it was answered meanwhile."""
        while True:
            known = going_on(held.results) if held.results else {}
            # Who asked before still asks, also while the new run has not come to it.
            asked = {name: one for name, one in held.results.items() if one.state == "asking"}
            held.results = {**asked, **known}
            report = await execute(
                held.goal,
                LocalExecution(held, bench),
                known=known,
                answers=held.answers,
                revision=held.revision,
                spent=held.spent,
                started=held.started,
                progress=held.progress,
                engine=self.name,
            )
            now = time.time()
            if held.journal is not None:
                held.journal.add_end(report.state, report.reason, now)
                written = read(held.journal)
                held.answers = written.answers if written else held.answers
            held.end(report, now)
            if not held.to_go_on() and not _late_answer(held):
                return
            if held.journal is not None:
                held.journal.add_run(time.time())
            held.begin()

    def _ended(self, held: Held, task: asyncio.Task[None]) -> None:
        """A goal runs no more: by itself, cancelled, with the engine, or because of a fault."""
        held.task = None
        try:
            if task.cancelled():
                # An engine that is closed leaves goals in a folder as they are, to be resumed.
                if held.cancelled or held.journal is None:
                    why = "" if held.cancelled else Message("The engine was closed")
                    self._close(held, "cancelled", why)
            elif (exc := task.exception()) is not None:
                self._close(held, "failed", f"{type(exc).__name__}: {exc}")
        finally:
            self._shelf.let_go(held)
            for name in self._shelf.make_room(held):
                if isinstance(self.artefacts, MemoryArtefacts):
                    self.artefacts.drop(name)

    @staticmethod
    def _close(held: Held, state: GoalState, reason: str) -> None:
        now = time.time()
        held.end(
            report_of(
                held.goal,
                held.results,
                state,
                reason=reason,
                engine=LocalEngine.name,
                started=held.started,
                revision=held.revision,
                spent=held.spent,
            ),
            now,
        )
        if held.journal is not None:
            with suppress(OSError):  # a full disk is why it failed, maybe
                held.journal.add_end(state, reason, now)
                held.journal.forget_stop()

    async def _look(self) -> None:
        """Look every now and then whether another process wants something stopped."""
        while True:
            await asyncio.sleep(LOOK)
            for held in list(self._shelf.here.values()):
                if held.task and held.journal and held.journal.told_to_stop():
                    held.cancelled = True
                    held.task.cancel()
                    held.journal.forget_stop()

    async def cancel(self, goal_id: str) -> None:
        """Stop it."""
        held = self._shelf.known(goal_id)
        if held.state in OVER:
            return
        if held.task is not None:
            held.cancelled = True
            held.task.cancel()
            await asyncio.wait([held.task], timeout=_PATIENCE)
            return
        held.journal = self._shelf.journal(goal_id)
        if held.journal is not None and not held.journal.take():
            held.journal.ask_to_stop()
            return
        self._close(held, "cancelled", "")
        self._shelf.let_go(held)

    async def forget(self, goal_id: str) -> None:
        """Remove a goal that is over, with its journal and its large outputs."""
        held = self._shelf.known(goal_id)
        if held.task is not None or held.state not in OVER:
            raise not_over(goal_id, held.state)
        journal = self._shelf.journal(goal_id)
        if journal is None:
            self._shelf.here.pop(goal_id, None)
            await self.artefacts.forget(goal_id)
            return
        if not journal.take():
            raise not_over(goal_id, "running")
        try:
            held = self._shelf.known(goal_id)  # by the lines: it is not run here
            if held.state not in OVER:  # somebody began it again just now
                raise not_over(goal_id, held.state)
            await self.artefacts.forget(goal_id)  # first: what is left can be removed again
            journal.remove()
        finally:
            journal.leave()

    # --- looking --------------------------------------------------------------------------

    async def report(self, goal_id: str) -> GoalReport:
        """How far it is now."""
        return self._shelf.known(goal_id).report(self.name)

    async def wait(self, goal_id: str, timeout: float | None = None) -> GoalReport:  # noqa: ASYNC109
        """Until it is over, or asks a person; what is so far when the time is up."""
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            held = self._shelf.known(goal_id)
            left = None if end is None else end - time.monotonic()
            rests = held.task is None and held.state in AT_REST
            if rests or (left is not None and left <= 0):
                return held.report(self.name)
            if held.task is None:
                await asyncio.sleep(LOOK if left is None else min(left, LOOK))
            else:
                await asyncio.wait([held.task], timeout=left)

    async def list(
        self, *, states: Sequence[GoalState] = (), limit: int = 50, before: float | None = None
    ) -> list[GoalSummary]:
        """Those first that were submitted last."""
        found: list[GoalSummary] = []
        for name in self._shelf.names(before):
            if len(found) >= limit:
                break
            with suppress(NotFound):
                summary = summary_of(self._shelf.known(name).report(self.name))
                if not states or summary.state in states:
                    found.append(summary)
        return found

    def watch(self, goal_id: str) -> AsyncIterator[StepEvent]:
        """What happens to it, until it is over or asks. Beginning with what has happened."""
        held = self._shelf.known(goal_id)

        async def report() -> GoalReport:  # a full disk has no line about the end
            return held.report(self.name) if held.task or held.ended else await self.report(goal_id)

        return watch_reports(report, AT_REST, _GLANCE if held.task else LOOK)

    async def work(self, *, drain: float = 30.0) -> None:
        """There are no workers here."""
        del drain
        raise Refused(
            say("The engine `local` has no workers"),
            say("Use `--engine dbos` or `--engine temporal` for work on several machines"),
        )


def _late_answer(held: Held) -> bool:
    """Let go of the lock, and look whether an answer came while it was held."""
    journal = held.journal
    if journal is None or held.state != "asking":
        return False
    journal.leave()
    written = read(journal)
    if written is None or not written.to_go_on() or not journal.take():
        return False
    held.answers = written.answers
    return True
