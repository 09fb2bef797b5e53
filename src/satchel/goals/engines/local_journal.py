"""Goals of the engine `local`: state in memory, `Execution`, and the journal on disk.

    goals/ID/journal.jsonl   what happened, one line each, appended
    goals/ID/last            the digest of the last line that was synced
    goals/ID/lock            held by the process that runs the goal
    goals/ID/cancel          created to request cancellation
    goals/ID/answer.lock     held while a line is written, and while an answer is checked

A line is written before its result is used, so a killed process loses only steps that were running.
Starts, ends and answers are synced to the disk; a power cut may lose the results of the last
seconds, and those steps run again. A last line without an end was torn by a crash and is ignored;
the next writer marks it with `_TORN`. Every line ends with a digest of itself and of the line
before it: a line that was changed, removed or moved makes the goal `damaged`, and so does an end
that is missing after the last synced line. Journals of Satchel 0.1 have no digests; lines with
digests may follow lines without, never the other way round.
"""

from __future__ import annotations

import json
import os
import re
import time
from contextlib import suppress
from hashlib import sha256
from typing import TYPE_CHECKING, Any, cast

from satchel._fs import check_lock_file, make_folders, sync_folder
from satchel.goals.engines import base
from satchel.goals.executor import RunProgress
from satchel.goals.model import OVER
from satchel.goals.reports import last_event_time, pack, report_of
from satchel.goals.step_runner import StepContext, perform
from satchel.i18n import Message, pack_messages

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
        StepResult,
    )

_HEAD_BYTES = 64
"""The submission time is within these bytes."""
_DIGEST = re.compile(rb',"sha":"([0-9a-f]{32})"\}\Z')
_TORN = b" torn\n"
_FLAGS = os.O_CREAT | getattr(os, "O_CLOEXEC", 0)


class DamagedLine(Exception):
    """A line of a journal was changed, or lines are missing; 0 stands for the end."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def damage_of(path: str, number: int) -> Message:
    """What is wrong with a journal, for people."""
    if not number:
        return Message("The last lines of `{path}` are missing", path=path)
    return Message(
        "Line {count} of `{path}`, or one before it, was changed, removed or moved",
        count=number,
        path=path,
    )


class Journal:
    """The journal of one goal."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.path = os.path.join(folder, "journal.jsonl")
        self._last = os.path.join(folder, "last")
        self._cancel = os.path.join(folder, "cancel")
        self._lock: BaseFileLock | None = None
        self._file = -1
        self._size = 0
        """Bytes of the journal that are in `_chain`."""
        self._chain = _Chain()

    # --- lock -----------------------------------------------------------------------------

    def lock(self, seconds: float = 0.2) -> bool:
        """Lock the goal; False when another process has the lock."""
        from filelock import Timeout

        while True:
            lock = self._lock_of("lock")
            try:
                lock.acquire(timeout=seconds)
            except Timeout:
                return False
            except FileNotFoundError:
                continue  # a removal has just deleted the folder as well
            self._lock = lock
            return True

    def unlock(self) -> None:
        """Unlock the goal."""
        self._close()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def is_locked(self) -> bool:
        """Whether a live process has the lock."""
        if self._lock is not None:
            return True
        if not self.lock(0):
            return True
        self.unlock()
        return False

    def answer_lock(self) -> BaseFileLock:
        """Lock held while a line is written, and while an answer is checked: the first one wins."""
        return self._lock_of("answer.lock")

    def _lock_of(self, name: str) -> BaseFileLock:
        from filelock import FileLock

        make_folders(self.folder)
        path = os.path.join(self.folder, name)
        check_lock_file(path)
        return FileLock(path, poll_interval=0.01, thread_local=False, mode=0o600)

    # --- cancellation by other processes --------------------------------------------------

    def request_cancel(self) -> None:
        """Request cancellation from the process that runs it."""
        os.close(os.open(self._cancel, os.O_WRONLY | _FLAGS, 0o600))

    def cancel_requested(self) -> bool:
        """Whether cancellation was requested."""
        return os.path.exists(self._cancel)

    def clear_cancel(self) -> None:
        """Withdraw the request."""
        if os.path.exists(self._cancel):
            os.unlink(self._cancel)

    # --- lines ----------------------------------------------------------------------------

    def begin(self, goal: Goal, at: float) -> None:
        """Write the first line."""
        self._add({"at": at, "goal": pack(goal)}, sync=True)
        sync_folder(self.folder)

    def add_result(self, result: StepResult) -> None:
        """Write the result of a step."""
        self._add({"step": pack(result)})

    def add_answer(self, step: str, answer: Answer, revision: int) -> None:
        """Write the answer to a question of this revision; the caller holds `answer_lock`."""
        self._append({"answer": pack(answer), "to": step, "of": revision}, sync=True)

    def add_run(self, at: float) -> None:
        """Write the start of a run."""
        self._add({"run": at})

    def add_revision(self, revision: int, plan: Plan, keep: list[str]) -> None:
        """Write the start of a revision with these results."""
        self._add({"revision": revision, "plan": pack(plan), "keep": keep}, sync=True)

    def add_end(self, state: GoalState, reason: str, at: float) -> None:
        """Write the end of a run."""
        self._add(pack_messages({"end": state, "reason": reason, "at": at}), sync=True)

    def _add(self, line: dict[str, Any], *, sync: bool = False) -> None:
        with self.answer_lock():
            self._append(line, sync=sync)

    def _append(self, line: dict[str, Any], *, sync: bool = False) -> None:
        text = json.dumps(line, ensure_ascii=True, separators=(",", ":")).encode()
        try:
            self._follow()
            data = self._chain.sign(text)
            self._size += len(data)
            while data:  # a single write, except on a nearly full disk
                data = data[os.write(self._file, data) :]
        except OSError:
            self._close()  # the next write looks for a torn line
            raise
        if sync:
            os.fsync(self._file)
            # Only after the sync: a power cut must not leave it ahead of the journal.
            last = os.open(self._last, os.O_WRONLY | _FLAGS, 0o600)
            try:
                os.write(last, self._chain.digest)
            finally:
                os.close(last)

    def _follow(self) -> None:
        """Read the lines that were written since, here and by other processes."""
        if self._file < 0:
            self._file = os.open(self.path, os.O_RDWR | os.O_APPEND | _FLAGS, 0o600)
            self._size, self._chain = 0, _Chain()
        size = os.fstat(self._file).st_size
        if size == self._size:
            return
        with open(self.path, "rb") as file:
            file.seek(self._size)
            *lines, torn = file.read().split(b"\n")
        try:
            for text in lines:
                self._chain.check(text)
        except DamagedLine as exc:
            reason = damage_of(self.path, exc.number)
            raise base.goal_damaged(os.path.basename(self.folder), reason) from None
        if torn:
            os.write(self._file, _TORN)
            size += len(_TORN)
        self._size = size

    def _close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def submitted_at(self) -> float | None:
        """When the goal was submitted; None without a goal, 0 when it cannot be read."""
        try:
            with open(self.path, "rb") as file:
                head = file.read(_HEAD_BYTES)
                if not head:
                    return self._unreadable()
                if head.startswith(b'{"at":'):
                    return float(head[len(b'{"at":') :].partition(b",")[0])
                line = json.loads(head + file.readline())  # older versions write it last
                return float(line["at"])
        except (FileNotFoundError, NotADirectoryError):
            return self._unreadable()
        except (ValueError, KeyError, TypeError):
            return 0.0  # torn by a crash

    def _unreadable(self) -> float | None:
        """0 when there was a journal and its content is gone, else None."""
        return 0.0 if os.path.exists(self._last) else None

    # --- removal --------------------------------------------------------------------------

    def remove(self) -> None:
        """Remove the goal's folder and unlock it; the caller holds the lock.

        The journal is removed first: without it there is no goal, whatever a crash leaves behind. A
        lock file that is removed while locked protects nothing for processes that wait for it.
        """
        for path in (self._last, self.path):
            with suppress(FileNotFoundError):
                os.unlink(path)
        self.clear_cancel()
        lock = os.path.join(self.folder, "lock")
        with suppress(OSError):
            os.unlink(os.path.join(self.folder, "answer.lock"))
        if os.name == "posix":
            os.unlink(lock)
        self.unlock()
        with suppress(OSError):
            if os.name != "posix":
                os.unlink(lock)  # an open file cannot be removed there
            os.rmdir(self.folder)
        with suppress(OSError):
            sync_folder(os.path.dirname(self.folder))


class _Chain:
    """The digest over the lines so far."""

    def __init__(self) -> None:
        self.digest = b""
        self.lines = 0
        self._signed = False

    def check(self, text: bytes) -> bytes | None:
        """Add a line and return it without its digest; None when a crash tore it.

        Raises:
            DamagedLine: the digest is not that of the line and the lines before it.
        """
        self.lines += 1
        if text.endswith(_TORN[:-1]):
            return None
        mark = _DIGEST.search(text)
        if mark is not None:
            text = text[: mark.start()] + b"}"
        self.digest = self._next(text)
        if (self._signed and mark is None) or (mark and mark[1] != self.digest):
            raise DamagedLine(self.lines)
        self._signed = mark is not None
        return text

    def sign(self, text: bytes) -> bytes:
        """Add a line and return it with its digest."""
        self.lines += 1
        self.digest, self._signed = self._next(text), True
        return text[:-1] + b',"sha":"%b"}\n' % self.digest

    def _next(self, text: bytes) -> bytes:
        return sha256(self.digest + text).hexdigest()[:32].encode()


def lines_of(path: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """The lines with their numbers; none when there is no such file.

    Raises:
        DamagedLine: a line was changed, or lines are missing.
    """
    last = _content(os.path.join(os.path.dirname(path), "last"))  # first: it may only be behind
    *lines, torn = _content(path).split(b"\n")
    chain = _Chain()
    for number, full in enumerate(lines, 1):
        text = chain.check(full)
        if chain.digest == last:
            last = b""
        try:
            line = json.loads(text or b"0")
        except ValueError:
            continue  # torn or damaged: indistinguishable without a digest
        if isinstance(line, dict):
            yield number, cast("dict[str, Any]", line)
    if _DIGEST.search(torn[:-1]):  # a complete line whose end is another byte
        raise DamagedLine(len(lines) + 1)
    if last:
        raise DamagedLine(0)


def _content(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return b""


IDLE: frozenset[str] = base.AT_REST | {"queued"}
"""States of a goal that no process runs."""


class LocalGoal:
    """One goal, in memory."""

    def __init__(self, goal: Goal) -> None:
        self.goal = goal
        self.first_plan = goal.plan
        self.revision = 1
        self.state: GoalState = "queued"
        self.reason = ""
        self.started = 0.0
        self.ended_at = 0.0
        """When the last run ended, if known."""
        self.progress = RunProgress()
        self.last_report: GoalReport | None = None
        self.answers: dict[str, Answer] = {}
        self.journal: Journal | None = None
        self.task: asyncio.Task[None] | None = None
        self.cancelled = False

    @property
    def results(self) -> dict[str, StepResult]:
        """Results of its steps so far."""
        return self.progress.results

    @results.setter
    def results(self, results: dict[str, StepResult]) -> None:
        self.progress.results = results

    def report(self, engine: str = "") -> GoalReport:
        """The current report."""
        if self.last_report is not None:
            return self.last_report
        report = report_of(
            self.goal,
            self.progress.all_results(),
            self.state,
            reason=self.reason,
            engine=engine,
            started=self.started,
            revision=self.revision,
            ended=self.ended_at,
        )
        if self.state in OVER and not self.ended_at:
            return report._replace(ended=last_event_time(report))
        return report

    def begin(self) -> None:
        """Begin a run."""
        self.last_report = None
        self.state, self.reason = "running", ""
        self.started = self.started or time.time()

    def end(self, report: GoalReport, at: float) -> None:
        """End a run."""
        self.ended_at = at
        self.last_report = report._replace(ended=at) if report.state in OVER else report
        self.state, self.reason = report.state, report.reason

    def revise(self, plan: Plan | None, from_step: str) -> None:
        """Begin a new revision with the results that are still valid."""
        self.goal, self.results = base.new_revision(self.goal, self.results, plan, from_step)
        self.revision += 1
        self.answers = {}
        self.last_report = None
        self.state, self.reason = "queued", ""

    def has_new_answer(self) -> bool:
        """Whether a step that asks was answered meanwhile."""
        return self.state == "asking" and any(
            name in self.answers and result.state == "asking"
            for name, result in self.results.items()
        )


class LocalExecution:
    """One run of a goal: the `Execution` of this engine."""

    def __init__(self, record: LocalGoal, context: StepContext) -> None:
        self._record = record
        self._context = StepContext(
            context.runner, context.artifacts.of(record.goal.id), context.large
        )
        self._journal = record.journal
        self.now: Callable[[], float] = time.time

    async def record(self, step: Step, body: Callable[[], Awaitable[StepResult]]) -> StepResult:
        """Run it, and write its result."""
        del step
        result = await body()
        if result.state != "waiting" and self._journal is not None:
            self._journal.add_result(result)
        return result

    def perform(self, call: StepCall) -> Coroutine[Any, Any, StepResult]:
        """Run the step in this process."""
        return perform(call, self._context)

    async def ask(self, step: Step, text: str) -> Answer | None:
        """Return None: the run ends, and an answer starts the next one."""
        del text
        return self._record.answers.get(step.id)
