"""One line out, one line back, by a deadline: the talk with a program that is not to be trusted.

`exchange` writes the request and reads the answer at the same time, so neither side can block the
other however long the lines are. What a program may do, and what is made of it:

- It answers without reading its input, or closes it: the answer counts. The process is its own,
  nobody else's answer can be on that pipe. A *kept* worker is another matter: there, bytes that
  wait before the request is out, or a line that is whole before the request is, belong to nobody
  knows what (`early-reply`), and input that cannot be written is `closed-input`.
- It answers and exits with a status other than 0: the answer counts, the status is reported.
- It answers and does not end: after a short grace it is ended; no exit status is reported.
- It writes more after its line: `two-replies`, if that line is a reply at all; else what is wrong
  with the line is said, since that came first. Blank space is let pass, except by a kept worker.
- It ends after a line without a newline: the line counts if it is a whole JSON object, since no
  beginning of a longer one is; else `partial-reply`.
- It ends without a line: by what it said on the way out, `memory`, `processes`, `cannot-start`,
  `crashed`, `exit-code`, `closed-input` (it would not take the whole request), `no-reply`.
- It closes its output and runs on: no answer can come, so it is ended at once (`no-reply`).
- It writes to standard error for ever: all is read, the first and the last part are kept.

What the line says is judged by `reply`. Nothing here raises for what a program does.
"""

from __future__ import annotations

import os
import select
import signal
import time
from typing import TYPE_CHECKING, Literal, NamedTuple

from satchel._language import Message
from satchel.runners.base import RunResult
from satchel.runners.reply import is_whole, misplaced, quote, read_reply

if TYPE_CHECKING:
    from satchel.runners.base import Cancel, Exit, Fault, Limits, Process, Tier

GRACE = 0.1
"""Seconds that a program has to end after its answer."""
LAST = 5.0
"""Seconds to wait for the end of a program that was killed, which takes milliseconds; more only on
a machine without a free core, where the deadline passes by as much."""
_CHUNK = 1 << 16
_PIPE = 1 << 16
"""Bytes that a pipe holds."""
_SIGXFSZ = 25
_SLACK = 1 << 16


class Exchanged(NamedTuple):
    """What came of one exchange."""

    line: bytes = b""
    """The answer without its newline; only without a fault."""
    fault: Fault | None = None
    detail: str = ""
    stderr: str = ""
    exit: Exit | None = None
    """How the program ended, when it has: never for a kept worker that is well."""
    wrote: bytes = b""
    """With a fault: the beginning of what came in place of an answer."""

    @property
    def exit_code(self) -> int | None:
        """The status it chose itself or the signal that ended it; None when it was ended."""
        return None if self.exit is None or self.exit.reason else self.exit.code


def exchange(
    process: Process,
    line: bytes,
    limits: Limits,
    deadline: float,
    cancel: Cancel | None = None,
    *,
    keep: bool = False,
) -> Exchanged:
    """Send a program one line and read its answer.

    Args:
        process: the program; its descriptors are closed by whoever started it, but its input is
            closed here once the line is written.
        line: the request, with its newline.
        limits: bounds of the answer and of standard error.
        deadline: by `time.monotonic`; the call is back at most `LAST` seconds after it.
        cancel: becomes readable when nobody waits for the answer any more.
        keep: the process gets further lines after this one. It is left running, and its input
            open, when all went well; after any fault it is ended as always.
    """
    talk = _Talk(process, line, limits, deadline, cancel, keep=keep)
    return talk.kept() if keep else talk.once()


class _Talk:
    """One exchange under way."""

    def __init__(
        self,
        process: Process,
        line: bytes,
        limits: Limits,
        deadline: float,
        cancel: Cancel | None,
        *,
        keep: bool,
    ) -> None:
        self.process = process
        self.request = memoryview(line)
        self.length_of_request = len(line)
        self.limits = limits
        self.deadline = deadline
        self.keep = keep
        self.answer = bytearray()
        self.length = -1
        """Bytes of the first line, once it is whole."""
        self.cut_off = False
        """Its input is closed, and part of the request was not written."""
        self.errors = _Tail(limits.stderr)
        self.cancel = cancel.fileno() if cancel is not None else -1
        self.poll = select.poll()
        self.open: set[int] = set()
        for end in (process.stdout, process.stderr):
            os.set_blocking(end, False)
            self.poll.register(end, select.POLLIN)
            self.open.add(end)
        if self.cancel >= 0:
            self.poll.register(self.cancel, select.POLLIN)

    # --- the two kinds of exchange ---------------------------------------------------------

    def once(self) -> Exchanged:
        """A process for this line alone."""
        self._write()
        fault, detail = self._converse()
        if fault is not None:
            return self._fail(fault, detail)
        if self.length < 0:
            return self._without_line()
        self._linger()
        if self._more():
            return self._fail(*self._too_much())
        exit_ = self.process.wait(max(0.0, self._graceful() - time.monotonic()))
        if exit_ is None:
            exit_ = self._end()
            self._drain()
            if self._more():
                return self._fail(*self._too_much())
        return Exchanged(bytes(self.answer[: self.length]), None, "", self.errors.text(), exit_)

    def kept(self) -> Exchanged:
        """A process that gets further lines."""
        self._read(self.process.stderr)
        if self._read(self.process.stdout):
            early = quote(bytes(self.answer).strip())
            return self._fail(
                "early-reply", Message("it had written {quote} before it was asked", quote=early)
            )
        self._write()
        fault, detail = self._converse()
        if fault is not None:
            return self._fail(fault, detail)
        if self.length < 0:
            return self._without_line()
        if self.request:
            return self._fail(
                "early-reply", Message("it answered before it had read the whole request")
            )
        if len(self.answer) > self.length + 1:
            return self._fail(*self._too_much())
        self._read(self.process.stderr)
        return Exchanged(bytes(self.answer[: self.length]), stderr=self.errors.text())

    # --- parts of it -------------------------------------------------------------------------

    def _converse(self) -> tuple[Fault | None, str]:
        """Write and read until there is a line, or no hope of one."""
        output = self.process.stdout
        while self.length < 0 and output in self.open and not (self.keep and self.cut_off):
            left = self.deadline - time.monotonic()
            if left <= 0:
                return "timeout", self._late()
            for descriptor, _ in self.poll.poll(left * 1000 + 0.5):
                if descriptor == self.cancel:
                    return "cancelled", Message("the call was taken back")
                if descriptor == self.process.stdin:
                    self._write()
                else:
                    self._read(descriptor)
            if self.length >= 0:
                break
            if len(self.answer) > self.limits.reply:
                return self._too_long()
        if self.length > self.limits.reply:
            return self._too_long()
        return None, ""

    def _write(self) -> None:
        """Write what the pipe takes, and close it when all is written or nobody reads."""
        stdin = self.process.stdin
        if stdin < 0:
            return
        if stdin not in self.open:
            os.set_blocking(stdin, False)
        try:
            while self.request:
                written = os.write(stdin, self.request[: 1 << 20])
                self.request = self.request[written:]
        except BlockingIOError:
            if stdin not in self.open:
                self.poll.register(stdin, select.POLLOUT)
                self.open.add(stdin)
            return
        except OSError:
            self.cut_off = True
        if stdin in self.open:
            self.poll.unregister(stdin)
            self.open.discard(stdin)
        if not self.keep:
            self._close_input()

    def _close_input(self) -> None:
        stdin = self.process.stdin
        if stdin >= 0:
            if stdin in self.open:
                self.poll.unregister(stdin)
                self.open.discard(stdin)
            self.process.stdin = -1
            os.close(stdin)

    def _read(self, descriptor: int) -> bool:
        """Read once from an output; True when something came."""
        if descriptor not in self.open:
            return False
        try:
            data = os.read(descriptor, _CHUNK)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self.poll.unregister(descriptor)
            self.open.discard(descriptor)
            return False
        if descriptor == self.process.stderr:
            self.errors.add(data)
        else:
            self._take(data)
        return True

    def _take(self, data: bytes) -> None:
        """Add what came to the answer."""
        if self.length < 0:
            at = data.find(b"\n")
            if at >= 0:
                self.length = len(self.answer) + at
            self.answer += data
        elif len(self.answer) <= self.length + 1 + _CHUNK:
            self.answer += data  # enough of it to say what it is

    def _drain(self) -> None:
        """Read what is left in the pipes, which nobody writes to any more: at most a pipeful."""
        for end in (self.process.stdout, self.process.stderr):
            for _ in range(64):
                if not self._read(end):
                    break

    def _graceful(self) -> float:
        if not hasattr(self, "_until"):
            self._until = min(self.deadline, time.monotonic() + GRACE)
        return self._until

    def _linger(self) -> None:
        """Read on until the program closes its outputs, it writes more, or the grace is over."""
        until = self._graceful()
        outputs = {self.process.stdout, self.process.stderr}
        while outputs & self.open and not self._more():
            left = until - time.monotonic()
            if left <= 0:
                return
            for descriptor, _ in self.poll.poll(left * 1000 + 0.5):
                if descriptor == self.cancel:
                    self.poll.unregister(self.cancel)  # too late: the answer is here
                    self.cancel = -1
                elif descriptor in outputs:
                    self._read(descriptor)
                else:
                    self._write()

    def _more(self) -> str:
        """What was written after the line, if it is more than blank space."""
        rest = bytes(self.answer[self.length + 1 :])
        if self.length < 0 or not rest.strip():
            return ""
        return Message("it wrote more after its reply: {quote}", quote=quote(rest.strip()))

    # --- faults ------------------------------------------------------------------------------

    def _too_much(self) -> tuple[Fault, str]:
        """The fault of more than one line: was the first of them a reply?"""
        wrong = misplaced(bytes(self.answer[: self.length])) if self._more() else None
        return wrong or ("two-replies", self._more() or Message("it wrote a blank line too many"))

    def _without_line(self) -> Exchanged:
        """The output is closed and there is no whole line."""
        exit_ = self.process.wait(max(0.0, self._graceful() - time.monotonic()))
        ended = exit_
        if exit_ is None:
            exit_ = self._end()
            if exit_ is not None and exit_.reason != "killed":
                ended = exit_  # it had ended before, and that was reported late
        self._drain()
        said = self.errors.text()
        if not self.keep and self.length < 0 and is_whole(bytes(self.answer)):
            return Exchanged(bytes(self.answer), None, "", said, exit_)
        fault, detail = self._by_exit(ended)
        return Exchanged(b"", fault, detail, said, exit_, self._wrote())

    def _wrote(self) -> bytes:
        return bytes(self.answer[: self.limits.raw * 4])

    def _by_exit(self, exit_: Exit | None) -> tuple[Fault, str]:
        """The fault of a program that ended, or will not go on, without an answer."""
        if exit_ is None and self._unread():
            return "closed-input", Message("it closed its input before it had read the request")
        if exit_ is None and self.answer:
            cut = quote(bytes(self.answer))
            return "partial-reply", Message(
                "it closed its output within a line: {quote}", quote=cut
            )
        if exit_ is None:
            return "no-reply", Message("it closed its output without a reply")
        if exit_.reason in {"", "killed"}:
            return self._by_status(exit_.code)
        match exit_.reason:
            case "cannot-start":
                return "cannot-start", exit_.detail
            case "memory":
                size = self.limits.memory // (1024 * 1024)
                return "memory", Message(
                    "it and its children held more than {size} MB together", size=f"{size:,}"
                )
            case "processes":
                return "processes", Message(
                    "it started more than {count} processes", count=f"{self.limits.processes:,}"
                )
            case _:
                return "crashed", Message("whoever watched over it was killed")

    def _by_status(self, code: int) -> tuple[Fault, str]:
        wrote = Message("without a reply")
        if self.answer:
            count = f"{len(self.answer):,}"
            wrote = Message("after {count} bytes of an unfinished line", count=count)
        if code < 0:
            signal_ = name_of(-code)
            return "crashed", Message(
                "it was ended by {signal} {wrote}", signal=signal_, wrote=wrote
            )
        if code > 0:
            return "exit-code", Message(
                "it exited with status {status} {wrote}", status=code, wrote=wrote
            )
        if self._unread():
            return "closed-input", Message(
                "it did not read the whole request, and ended {wrote}", wrote=wrote
            )
        if self.answer:
            cut = quote(bytes(self.answer))
            return "partial-reply", Message("it ended {wrote}: {quote}", wrote=wrote, quote=cut)
        return "no-reply", Message("it ended without a reply")

    def _unread(self) -> bool:
        """Whether it certainly did not take the whole request.

        A pipe holds a short one, read or not: whether its writing failed is a matter of luck, and
        a fault should not be. A kept worker has no such excuse, it was there before.
        """
        return bool(self.request) and (self.keep or self.length_of_request > _PIPE)

    def _too_long(self) -> tuple[Fault, str]:
        return "too-long", Message(
            "its reply is longer than {count} bytes", count=f"{self.limits.reply:,}"
        )

    def _late(self) -> str:
        if self.answer:
            so_far = Message(
                "it had written {count} bytes of an unfinished line", count=f"{len(self.answer):,}"
            )
        elif self.request and self.process.stdin >= 0:
            so_far = Message(
                "it had not read the last {count} bytes of the request",
                count=f"{len(self.request):,}",
            )
        else:
            so_far = Message("it had written nothing")
        return Message(
            "there was no reply within {seconds} s; {so_far}",
            seconds=f"{self.limits.timeout:g}",
            so_far=so_far,
        )

    def _fail(self, fault: Fault, detail: str) -> Exchanged:
        exit_ = self._end()
        self._drain()
        return Exchanged(b"", fault, detail, self.errors.text(), exit_, self._wrote())

    def _end(self) -> Exit | None:
        """Kill the program and see it gone."""
        self.process.kill()
        self._close_input()
        return self.process.wait(LAST)


class _Tail:
    """The first quarter and the last three quarters of `limit` bytes of standard error."""

    def __init__(self, limit: int) -> None:
        self._head = bytearray()
        self._tail = bytearray()
        self._first = limit // 4
        self._last = limit - self._first
        self._dropped = 0

    def add(self, data: bytes) -> None:
        """Take the next bytes."""
        room = self._first - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        if len(self._tail) > 2 * self._last + _SLACK:
            self._cut()

    def text(self) -> str:
        """What was kept, with a note where something is missing."""
        self._cut()
        if not self._dropped:
            return (self._head + self._tail).decode("utf-8", "replace")
        head, tail = (part.decode("utf-8", "replace") for part in (self._head, self._tail))
        return f"{head}\n… [{self._dropped:,} bytes were dropped] …\n{tail}"

    def _cut(self) -> None:
        over = len(self._tail) - self._last
        if over > 0:
            self._dropped += over
            del self._tail[:over]


def result_of(
    exchanged: Exchanged, limits: Limits, tier: Tier, way: Literal["cold", "warm"]
) -> RunResult:
    """What a call comes to: the reply line judged, or the fault passed on."""
    fault, detail = exchanged.fault, exchanged.detail
    if fault == "cannot-start" and not detail:
        # bwrap's own voice: the minder knows that the program was never reached.
        said = exchanged.stderr.strip().splitlines()
        detail = said[0] if said else Message("bubblewrap failed")
    about = RunResult(
        fault=fault,
        detail=detail,
        tier=tier,
        way=way,
        stderr=exchanged.stderr,
        exit_code=exchanged.exit_code,
        peak=exchanged.exit.peak if exchanged.exit is not None else 0,
        raw=_beginning(exchanged.line or exchanged.wrote, limits.raw),
    )
    if fault is not None:
        return about
    reply = read_reply(exchanged.line, limits.output)
    return about._replace(
        output=reply.output,
        error=reply.error,
        data=reply.data,
        truncated=reply.truncated,
        fault=reply.fault,
        detail=reply.detail,
    )


def _beginning(data: bytes, limit: int) -> str:
    """The first characters of what a program wrote; a byte that is none shows as U+FFFD."""
    return data[: limit * 4].decode("utf-8", "replace")[:limit]


def name_of(number: int) -> str:
    """The name of a signal, and what it usually means."""
    try:
        name = signal.Signals(number).name
    except ValueError:
        return Message("signal {number}", number=number)
    return Message("{name} (a file grew past its limit)", name=name) if number == _SIGXFSZ else name
