"""Requests for approval of a process that runs a goal, answered by another process.

    NUMBER-TOKEN.json      the request; its process holds a lock on it while it waits
    NUMBER-TOKEN.answer    `yes` or `no`

What the process proposes is gone with it, so a request without a lock is removed.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import secrets
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from satchel._fs import write_atomic
from satchel.errors import Conflict
from satchel.goals.step_runner import paused
from satchel.i18n import say
from satchel.session.permissions import ApprovalRequest
from satchel.tools.proposed_changes import ProposedChange

if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import TextIO

POLL_INTERVAL_S = 0.3
MAX_WAIT_S = 24 * 3600.0
_NAME = re.compile(r"\d+-[0-9a-f]{16}")


class OpenRequest(NamedTuple):
    """A request that waits for an answer."""

    key: str
    request: ApprovalRequest


class FileApproval:
    """An `approve` whose requests are answered by `answer_request`.

    The timeouts of a step are paused meanwhile. Without an answer within a day it is no.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder

    async def __call__(self, request: ApprovalRequest) -> bool:
        """Write a request, and wait for its answer."""
        end = time.monotonic() + MAX_WAIT_S
        with _waiting(self._folder, request) as path, paused():
            while time.monotonic() < end:
                answer = _read_answer(path)
                if answer is not None:
                    return answer
                await asyncio.sleep(POLL_INTERVAL_S)
        return False


@contextmanager
def _waiting(folder: str, request: ApprovalRequest) -> Generator[str]:
    """Keep a request in its file; yields the path of its answer."""
    os.makedirs(folder, mode=0o700, exist_ok=True)
    path = os.path.join(folder, f"{time.time_ns()}-{secrets.token_hex(8)}")
    row = request._asdict() | {"changes": [change._asdict() for change in request.changes]}
    descriptor = os.open(f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(descriptor, "w", encoding="utf-8", errors="replace") as file:
            _try_lock(file)
            json.dump(row, file, ensure_ascii=False, default=str)
            file.flush()
            os.rename(f"{path}.new", f"{path}.json")
            yield f"{path}.answer"
    finally:
        for ending in ("new", "json", "answer"):
            with suppress(OSError):
                os.unlink(f"{path}.{ending}")
        with suppress(OSError):  # other requests wait
            os.rmdir(folder)


def _read_answer(path: str) -> bool | None:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read() == "yes"
    except FileNotFoundError:
        return None


def open_requests(folder: str) -> tuple[OpenRequest, ...]:
    """Return the requests that wait for an answer, oldest first."""
    names: list[str] = []
    with suppress(OSError):
        names = sorted(os.listdir(folder))
    requests: list[OpenRequest] = []
    for name in names:
        key, ending = os.path.splitext(name)
        if ending == ".json" and f"{key}.answer" not in names:
            request = _read(os.path.join(folder, name))
            requests += [OpenRequest(key, request)] if request is not None else []
    return tuple(requests)


def waiting_goals(folder: str) -> frozenset[str]:
    """Return the goals whose processes wait for an answer, of the folder of all requests."""
    names: list[str] = []
    with suppress(OSError):
        names = os.listdir(folder)
    return frozenset(name for name in names if open_requests(os.path.join(folder, name)))


def answer_request(folder: str, key: str, *, approved: bool) -> None:
    """Answer a request.

    Raises:
        Conflict: it does not wait any more.
    """
    if not _NAME.fullmatch(key) or key not in {waiting.key for waiting in open_requests(folder)}:
        raise Conflict(say("This was answered already, or its process is gone"))
    data = b"yes" if approved else b"no"
    write_atomic(os.path.join(folder, f"{key}.answer"), data)


def _read(path: str) -> ApprovalRequest | None:
    """The request in a file; None when its process is gone."""
    try:
        with open(path, encoding="utf-8") as file:
            if _try_lock(file):
                os.unlink(path)
                return None
            row: dict[str, Any] = json.load(file)
    except (OSError, ValueError):  # answered just now
        return None
    changes = tuple(ProposedChange(**change) for change in row.pop("changes"))
    return ApprovalRequest(**row)._replace(changes=changes, reasons=tuple(row["reasons"]))


def _try_lock(file: TextIO) -> bool:
    """Lock a file; False when another process has it locked."""
    try:
        import fcntl
    except ImportError:  # Windows, where a request without its process stays
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
