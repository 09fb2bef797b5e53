"""The journal of a goal of the engine `local`: its lines, digests and locks on disk.

    goals/ID/journal.jsonl   what happened, one line each, appended
    goals/ID/last            the digest of the last line that was synced
    goals/ID/lock            locked by the process that runs the goal
    goals/ID/cancel          created to request cancellation
    goals/ID/answer.lock     locked while a line is written, and while an answer is checked

A line is written before its result is used, so a killed process loses only steps that were running.
Starts, ends and answers are synced to the disk; a power cut may lose the results of the last
seconds, and those steps run again. A last line without an end was torn by a crash and is ignored;
the next writer marks it with `_TORN_MARK`. Every line ends with a digest of itself and of the line
before it: a line that was changed, removed or moved makes the goal `damaged`, and so does an end
that is missing after the last synced line. Journals of Satchel 0.1 have no digests; lines with
digests may follow lines without, never the other way round.
"""

from __future__ import annotations

import json
import os
import re
from contextlib import suppress
from hashlib import sha256
from typing import TYPE_CHECKING, Any, cast

from satchel._fs import check_lock_file, make_folders, sync_folder
from satchel.goals.engines import base
from satchel.goals.reports import pack
from satchel.i18n import Message, pack_messages

if TYPE_CHECKING:
    from collections.abc import Iterator

    from filelock import BaseFileLock

    from satchel.goals.model import Answer, Goal, GoalState, Plan, StepBegun, StepResult

_HEAD_BYTES = 64
"""The submission time is within these bytes."""
_LINE_DIGEST = re.compile(rb',"sha":"([0-9a-f]{32})"\}\Z')
"""The digest at the end of a line."""
_TORN_MARK = b" torn\n"
_OPEN_FLAGS = os.O_CREAT | getattr(os, "O_CLOEXEC", 0)


class DamagedLine(Exception):
    """A line of a journal was changed, or lines are missing; number 0 stands for the end."""

    def __init__(self, line_number: int) -> None:
        super().__init__(line_number)
        self.line_number = line_number


def damage_message(path: str, line_number: int) -> Message:
    """Return what is wrong with a journal, for people; line 0 stands for its end."""
    if not line_number:
        return Message("The last lines of `{path}` are missing", path=path)
    return Message(
        "Line {count} of `{path}`, or one before it, was changed, removed or moved",
        count=line_number,
        path=path,
    )


class Journal:
    """The journal of one goal."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.path = os.path.join(folder, "journal.jsonl")
        self._last_digest_path = os.path.join(folder, "last")
        self._cancel_path = os.path.join(folder, "cancel")
        self._lock: BaseFileLock | None = None
        self._file = -1
        self._size = 0
        """Bytes of the journal that are in `_digests`."""
        self._digests = _DigestChain()

    # --- lock -----------------------------------------------------------------------------

    def lock(self, timeout: float = 0.2) -> bool:
        """Lock the goal; return False when another process has the lock."""
        from filelock import Timeout

        while True:
            lock = self._open_lock("lock")
            try:
                lock.acquire(timeout=timeout)
            except Timeout:
                return False
            except FileNotFoundError:
                continue  # a removal has just deleted the folder as well
            self._lock = lock
            return True

    def unlock(self) -> None:
        """Unlock the goal."""
        self._close_file()
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
        """Return the lock for writing a line and for checking an answer: the first answer wins."""
        return self._open_lock("answer.lock")

    def _open_lock(self, name: str) -> BaseFileLock:
        from filelock import FileLock

        make_folders(self.folder)
        path = os.path.join(self.folder, name)
        check_lock_file(path)
        return FileLock(path, poll_interval=0.01, thread_local=False, mode=0o600)

    # --- cancellation by other processes --------------------------------------------------

    def request_cancel(self) -> None:
        """Request cancellation from the process that runs it."""
        os.close(os.open(self._cancel_path, os.O_WRONLY | _OPEN_FLAGS, 0o600))

    def cancel_requested(self) -> bool:
        """Whether cancellation was requested."""
        return os.path.exists(self._cancel_path)

    def clear_cancel(self) -> None:
        """Withdraw the request."""
        if os.path.exists(self._cancel_path):
            os.unlink(self._cancel_path)

    # --- lines ----------------------------------------------------------------------------

    def begin(self, goal: Goal, now: float) -> None:
        """Write the first line."""
        self._add_line({"at": now, "goal": pack(goal)}, sync=True)
        sync_folder(self.folder)

    def add_result(self, result: StepResult) -> None:
        """Write the result of a step."""
        self._add_line({"step": pack(result)})

    def add_begun(self, begun: StepBegun) -> None:
        """Write that a step begins, or that an attempt has ended without a result."""
        self._add_line({"begun": pack(begun)})

    def add_answer(self, step: str, answer: Answer, revision: int) -> None:
        """Write the answer to a question of this revision; the caller holds `answer_lock`."""
        self._append_line({"answer": pack(answer), "to": step, "of": revision}, sync=True)

    def add_run(self, now: float) -> None:
        """Write the start of a run."""
        self._add_line({"run": now})

    def add_revision(self, revision: int, plan: Plan, keep: list[str]) -> None:
        """Write the start of a revision with these results."""
        self._add_line({"revision": revision, "plan": pack(plan), "keep": keep}, sync=True)

    def add_end(self, state: GoalState, reason: str, now: float) -> None:
        """Write the end of a run."""
        self._add_line(pack_messages({"end": state, "reason": reason, "at": now}), sync=True)

    def _add_line(self, line: dict[str, Any], *, sync: bool = False) -> None:
        with self.answer_lock():
            self._append_line(line, sync=sync)

    def _append_line(self, line: dict[str, Any], *, sync: bool = False) -> None:
        text = json.dumps(line, ensure_ascii=True, separators=(",", ":")).encode()
        try:
            self._read_new_lines()
            unwritten = self._digests.sign(text)
            self._size += len(unwritten)
            while unwritten:  # a single write, except on a nearly full disk
                unwritten = unwritten[os.write(self._file, unwritten) :]
        except OSError:
            self._close_file()  # the next write looks for a torn line
            raise
        if sync:
            os.fsync(self._file)
            # Only after the sync: a power cut must not leave it ahead of the journal.
            digest_file = os.open(self._last_digest_path, os.O_WRONLY | _OPEN_FLAGS, 0o600)
            try:
                os.write(digest_file, self._digests.last_digest)
            finally:
                os.close(digest_file)

    def _read_new_lines(self) -> None:
        """Check the lines that were written since the last call, here and by other processes.

        Raises:
            Conflict: the journal is damaged.
        """
        if self._file < 0:
            self._file = os.open(self.path, os.O_RDWR | os.O_APPEND | _OPEN_FLAGS, 0o600)
            self._size, self._digests = 0, _DigestChain()
        size = os.fstat(self._file).st_size
        if size == self._size:
            return
        with open(self.path, "rb") as file:
            file.seek(self._size)
            *lines, torn_line = file.read().split(b"\n")
        try:
            for line in lines:
                self._digests.check(line)
        except DamagedLine as exc:
            reason = damage_message(self.path, exc.line_number)
            raise base.goal_damaged(os.path.basename(self.folder), reason) from None
        if torn_line:
            os.write(self._file, _TORN_MARK)
            size += len(_TORN_MARK)
        self._size = size

    def _close_file(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def submitted_at(self) -> float | None:
        """Return when the goal was submitted; None without a goal, 0 when it cannot be read."""
        try:
            with open(self.path, "rb") as file:
                head = file.read(_HEAD_BYTES)
                if not head:
                    return self._missing_start_time()
                if head.startswith(b'{"at":'):
                    return float(head[len(b'{"at":') :].partition(b",")[0])
                line = json.loads(head + file.readline())  # older versions write it last
                return float(line["at"])
        except (FileNotFoundError, NotADirectoryError):
            return self._missing_start_time()
        except (ValueError, KeyError, TypeError):
            return 0.0  # torn by a crash

    def _missing_start_time(self) -> float | None:
        """Return 0 when there was a journal and its content is gone, else None."""
        return 0.0 if os.path.exists(self._last_digest_path) else None

    # --- removal --------------------------------------------------------------------------

    def remove(self) -> None:
        """Remove the goal's folder and unlock it; the caller holds the lock.

        The journal is removed first: without it there is no goal, whatever a crash leaves behind. A
        lock file that is removed while locked protects nothing for processes that wait for it.
        """
        for path in (self._last_digest_path, self.path):
            with suppress(FileNotFoundError):
                os.unlink(path)
        self.clear_cancel()
        lock_path = os.path.join(self.folder, "lock")
        with suppress(OSError):
            os.unlink(os.path.join(self.folder, "answer.lock"))
        if os.name == "posix":
            os.unlink(lock_path)
        self.unlock()
        with suppress(OSError):
            if os.name != "posix":
                os.unlink(lock_path)  # an open file cannot be removed there
            os.rmdir(self.folder)
        with suppress(OSError):
            sync_folder(os.path.dirname(self.folder))


class _DigestChain:
    """The digests of the lines so far; each covers its line and the digest before it."""

    def __init__(self) -> None:
        self.last_digest = b""
        self.line_count = 0
        self._is_signed = False
        """Whether the last line has a digest."""

    def check(self, line: bytes) -> bytes | None:
        """Add a line and return it without its digest; None when a crash tore it.

        Raises:
            DamagedLine: the digest is not that of the line and the lines before it.
        """
        self.line_count += 1
        if line.endswith(_TORN_MARK[:-1]):
            return None
        digest_match = _LINE_DIGEST.search(line)
        if digest_match is not None:
            line = line[: digest_match.start()] + b"}"
        elif self._is_signed:
            raise DamagedLine(self.line_count)
        self.last_digest = self._next_digest(line)
        if digest_match is not None and digest_match[1] != self.last_digest:
            raise DamagedLine(self.line_count)
        self._is_signed = digest_match is not None
        return line

    def sign(self, line: bytes) -> bytes:
        """Add a line and return it with its digest."""
        self.line_count += 1
        self.last_digest, self._is_signed = self._next_digest(line), True
        return line[:-1] + b',"sha":"%b"}\n' % self.last_digest

    def _next_digest(self, line: bytes) -> bytes:
        return sha256(self.last_digest + line).hexdigest()[:32].encode()


def read_lines(path: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Read the lines of a journal with their numbers; none when there is no such file.

    Raises:
        DamagedLine: a line was changed, or lines are missing.
    """
    # The digest is read first: it may be older than the journal, never newer.
    missing_digest = _read_bytes(os.path.join(os.path.dirname(path), "last"))
    *lines, torn_line = _read_bytes(path).split(b"\n")
    digests = _DigestChain()
    for number, signed_line in enumerate(lines, 1):
        text = digests.check(signed_line)
        if digests.last_digest == missing_digest:
            missing_digest = b""
        try:
            entry = json.loads(text or b"0")
        except ValueError:
            continue  # torn or damaged: indistinguishable without a digest
        if isinstance(entry, dict):
            yield number, cast("dict[str, Any]", entry)
    if _LINE_DIGEST.search(torn_line[:-1]):  # a complete line whose end is another byte
        raise DamagedLine(len(lines) + 1)
    if missing_digest:
        raise DamagedLine(0)


def _read_bytes(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return b""
