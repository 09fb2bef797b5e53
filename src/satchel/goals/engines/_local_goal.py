"""A goal in the process that runs it: its results so far, its side of `execute`, its journal.

    goals/ID/journal.jsonl   what happened, one line each, appended
    goals/ID/lock            held by the process that runs the goal
    goals/ID/cancel          made by who wants it to stop
    goals/ID/answer.lock     held while an answer is looked at and written

A line is written before anything is built on it, so a killed process loses only steps that were
running. What begins, ends or is answered is waited for until the disk has it; a power cut may take
the results of the last seconds, and those steps are done again. A last line without an end was torn
by a crash and is ignored; the next writer marks it with `_TORN`. Every line ends with a checksum:
any other line that does not match its own makes the goal `damaged`. Journals of Satchel 0.1 have
no checksums, and theirs may go on with lines that have one, never the other way round.
"""

from __future__ import annotations

import json
import os
import re
import time
import zlib
from typing import TYPE_CHECKING, Any, cast

from satchel._fs import check_lock_file, make_folders, sync_folder
from satchel._language import pack_messages
from satchel.goals.execution import Progress, Workbench
from satchel.goals.model import OVER
from satchel.goals.perform import perform
from satchel.goals.reports import last_sign, pack, report_of
from satchel.goals.revision import still_known
from satchel.goals.spending import NOTHING, spent

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable, Coroutine, Iterator
    from typing import Any

    from filelock import BaseFileLock

    from satchel.goals.model import (
        Answer,
        Goal,
        GoalReport,
        GoalState,
        Plan,
        Step,
        StepCall,
        StepEvent,
        StepResult,
    )

_HEAD = 64
"""Bytes at the beginning that say when it was submitted."""
_CHECKSUM = re.compile(rb',"crc":"([0-9a-f]{8})"\}\Z')
_TORN = b" torn\n"
_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0)


class DamagedLine(Exception):
    """A line of a journal is not as it was written."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number
        """Which line, from 1."""


class Journal:
    """The lines of one goal."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.path = os.path.join(folder, "journal.jsonl")
        self._cancel = os.path.join(folder, "cancel")
        self._lock: BaseFileLock | None = None
        self._file = -1

    # --- who runs it ----------------------------------------------------------------------

    def take(self, seconds: float = 0.2) -> bool:
        """Become the one who runs it; False when another process is."""
        from filelock import Timeout

        while True:
            lock = self._lock_of("lock")
            try:
                lock.acquire(timeout=seconds)
            except Timeout:
                return False
            except FileNotFoundError:
                continue  # who removed the goal has just removed the folder as well
            self._lock = lock
            return True

    def leave(self) -> None:
        """Let others run it."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def is_run(self) -> bool:
        """Whether a process that lives runs it."""
        if self._lock is not None:
            return True
        if not self.take(0):
            return True
        self.leave()
        return False

    def one_answer(self) -> BaseFileLock:
        """Held by who looks whether there is an answer, and gives one: the first one holds."""
        return self._lock_of("answer.lock")

    def _lock_of(self, name: str) -> BaseFileLock:
        from filelock import FileLock

        make_folders(self.folder)
        path = os.path.join(self.folder, name)
        check_lock_file(path)
        return FileLock(path, poll_interval=0.01, thread_local=False, mode=0o600)

    # --- being stopped from elsewhere -----------------------------------------------------

    def ask_to_stop(self) -> None:
        """Tell the process that runs it."""
        os.close(os.open(self._cancel, _FLAGS, 0o600))

    def told_to_stop(self) -> bool:
        """Whether somebody did."""
        return os.path.exists(self._cancel)

    def forget_stop(self) -> None:
        """What was asked is done, or came too late."""
        if os.path.exists(self._cancel):
            os.unlink(self._cancel)

    # --- lines ----------------------------------------------------------------------------

    def begin(self, goal: Goal, at: float) -> None:
        """The first line."""
        self._add({"at": at, "goal": pack(goal)}, sync=True)
        sync_folder(self.folder)

    def add_result(self, result: StepResult) -> None:
        """How a step ended."""
        self._add({"step": pack(result)})

    def add_answer(self, step: str, answer: Answer, revision: int) -> None:
        """What a person said, to a question of this revision."""
        self._add({"answer": pack(answer), "to": step, "of": revision}, sync=True)

    def add_run(self, at: float) -> None:
        """A run begins."""
        self._add({"run": at})

    def add_revision(self, revision: int, plan: Plan, keep: list[str]) -> None:
        """A new revision begins with these results."""
        self._add({"revision": revision, "plan": pack(plan), "keep": keep}, sync=True)

    def add_end(self, state: GoalState, reason: str, at: float) -> None:
        """A run has ended."""
        self._add(pack_messages({"end": state, "reason": reason, "at": at}), sync=True)

    def _add(self, line: dict[str, Any], *, sync: bool = False) -> None:
        if self._file < 0:
            self._file = os.open(self.path, _FLAGS, 0o600)
            if _torn(self.path):
                os.write(self._file, _TORN)
        text = json.dumps(line, ensure_ascii=True, separators=(",", ":")).encode()
        data = text[:-1] + b',"crc":"%08x"}\n' % zlib.crc32(text)
        try:
            while data:  # a whole line at once, but for a disk that is nearly full
                data = data[os.write(self._file, data) :]
        except OSError:
            os.close(self._file)
            self._file = -1  # the next line looks for what was torn
            raise
        if sync:
            os.fsync(self._file)

    def began(self) -> float | None:
        """When the goal was submitted; None when the first line was not written."""
        try:
            with open(self.path, "rb") as file:
                head = file.read(_HEAD)
                if not head:
                    return None
                if head.startswith(b'{"at":'):
                    return float(head[len(b'{"at":') :].partition(b",")[0])
                line = json.loads(head + file.readline())  # of an older Satchel: it comes last
                return float(line["at"])
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (ValueError, KeyError, TypeError):
            return 0.0  # torn by a crash

    # --- the end --------------------------------------------------------------------------

    def remove(self) -> None:
        """Remove all of it; the lock must be ours, and is let go.

        The journal goes first: without it there is no goal, whatever else is left by a crash. A
        lock that is removed while it is held is no lock any more for who waits for it.
        """
        from contextlib import suppress

        with suppress(FileNotFoundError):
            os.unlink(self.path)
        self.forget_stop()
        lock = os.path.join(self.folder, "lock")
        with suppress(OSError):
            os.unlink(os.path.join(self.folder, "answer.lock"))
        if os.name == "posix":
            os.unlink(lock)
        self.leave()
        with suppress(OSError):
            if os.name != "posix":
                os.unlink(lock)  # an open file cannot be removed there
            os.rmdir(self.folder)
        with suppress(OSError):
            sync_folder(os.path.dirname(self.folder))


def lines_of(path: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """The lines with their numbers, from the first; none when there is no such file.

    Raises:
        DamagedLine: one is not as it was written.
    """
    try:
        with open(path, "rb") as file:
            lines = file.read().split(b"\n")
    except FileNotFoundError:
        return
    checked = False
    for number, text in enumerate(lines[:-1], 1):  # behind the last end there is a torn line
        if text.endswith(_TORN[:-1]):
            continue
        checksum = _CHECKSUM.search(text)
        if checksum is not None:
            checked = True
            text = text[: checksum.start()] + b"}"  # noqa: PLW2901
            if zlib.crc32(text) != int(checksum[1], 16):
                raise DamagedLine(number)
        elif checked:
            raise DamagedLine(number)
        try:
            line = json.loads(text)
        except ValueError:
            continue  # torn, or damaged: without a checksum that cannot be known
        if isinstance(line, dict):
            yield number, cast("dict[str, Any]", line)
    if _CHECKSUM.search(lines[-1][:-1]):  # a whole line, and its end is another byte
        raise DamagedLine(len(lines))


def _torn(path: str) -> bool:
    """Whether the last line has no end."""
    with open(path, "rb") as file:
        if not file.seek(0, os.SEEK_END):
            return False
        file.seek(-1, os.SEEK_END)
        return file.read(1) != b"\n"


AT_REST: frozenset[str] = OVER | {"asking", "queued"}
"""States in which nothing happens by itself."""


class Held:
    """One goal, in memory."""

    def __init__(self, goal: Goal) -> None:
        self.goal = goal
        self.first = goal.plan
        """The plan it was submitted with."""
        self.revision = 1
        self.spent = NOTHING
        """What earlier revisions took for results that do not hold any more."""
        self.state: GoalState = "queued"
        self.reason = ""
        self.started = 0.0
        self.over_since = 0.0
        """When the last run ended, where that is known."""
        self.progress = Progress()
        self.ended: GoalReport | None = None
        """How the last run ended."""
        self.answers: dict[str, Answer] = {}
        self.journal: Journal | None = None
        self.task: asyncio.Task[None] | None = None
        self.cancelled = False

    @property
    def results(self) -> dict[str, StepResult]:
        """How its steps ended so far."""
        return self.progress.results

    @results.setter
    def results(self, results: dict[str, StepResult]) -> None:
        self.progress.results = results

    def report(self, engine: str = "") -> GoalReport:
        """How far it is."""
        if self.ended is not None:
            return self.ended
        report = report_of(
            self.goal,
            self.progress.seen(),
            self.state,
            reason=self.reason,
            engine=engine,
            started=self.started,
            revision=self.revision,
            spent=self.spent,
            ended=self.over_since,
        )
        if self.state in OVER and not self.over_since:
            return report._replace(ended=last_sign(report))
        return report

    def begin(self) -> None:
        """A run begins."""
        self.ended = None
        self.state, self.reason = "running", ""
        self.started = self.started or time.time()
        self.progress.tries.clear()

    def end(self, report: GoalReport, at: float) -> None:
        """A run has ended."""
        self.over_since = at
        self.ended = report._replace(ended=at) if report.state in OVER else report
        self.state, self.reason = report.state, report.reason

    def revise(self, plan: Plan, from_step: str) -> None:
        """Begin a new revision with the results that still hold."""
        kept = still_known(self.goal.plan, plan, self.results, from_step)
        self.spent = spent(self.goal.plan, self.results, kept, self.spent)
        self.results = kept
        self.goal = self.goal._replace(plan=plan)
        self.revision += 1
        self.answers = {}
        self.ended = None
        self.state, self.reason = "queued", ""

    def tried(self, event: StepEvent) -> None:
        """A try of a step failed, and another one follows."""
        notes = self.progress.tries.get(event.step, ())
        self.progress.tries[event.step] = (*notes, event.text)

    def forgettable(self) -> bool:
        """Whether nothing more happens to it."""
        return self.task is None and self.state in OVER

    def to_go_on(self) -> bool:
        """Whether a step that asks was answered meanwhile."""
        return self.state == "asking" and any(
            name in self.answers and result.state == "asking"
            for name, result in self.results.items()
        )


class LocalExecution:
    """One run of a goal, as `execute` sees this process."""

    def __init__(self, held: Held, bench: Workbench) -> None:
        self._held = held
        self._bench = Workbench(bench.runner, bench.artefacts.of(held.goal.id), bench.large)
        self._journal = held.journal
        self.now: Callable[[], float] = time.time

    def record(
        self, step: Step, body: Callable[[], Awaitable[StepResult]]
    ) -> Awaitable[StepResult]:
        """Run it; with a journal, write down how it ended."""
        del step
        return body() if self._journal is None else self._written(self._journal, body)

    @staticmethod
    async def _written(journal: Journal, body: Callable[[], Awaitable[StepResult]]) -> StepResult:
        result = await body()
        if result.state != "waiting":
            journal.add_result(result)
        return result

    def perform(self, call: StepCall) -> Coroutine[Any, Any, StepResult]:
        """Do it here."""
        return perform(call, self._bench, self._held.tried)

    async def ask(self, step: Step, text: str) -> Answer | None:
        """Nobody is waited for: the run ends, and an answer begins the next one."""
        del text
        return self._held.answers.get(step.id)
