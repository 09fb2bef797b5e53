"""One JSON line out and one line back, by a deadline, with an untrusted program.

`exchange` writes the request and reads the reply at the same time, so that neither side blocks the
other however long the lines are. What a program may do, and the result:

- It answers without reading its input, or closes it: the reply counts. The process serves this call
  only. A *kept* worker is different: output before the request is written completely is
  `early-reply`, and input that cannot be written is `closed-input`.
- It answers and exits with a status other than 0: the reply counts, the status is reported.
- It answers and does not end: after a short grace period it is killed, without an exit status.
- It writes more after its line: `two-replies`, if that line is a reply at all; else the error of
  the line, since that came first. White space is ignored, except from a kept worker.
- It ends after a line without a newline: the line counts if it is a complete JSON object; else
  `partial-reply`.
- It ends without a line: by its exit, `memory`, `processes`, `cannot-start`, `crashed`,
  `exit-code`, `closed-input` (it did not read the whole request), `no-reply`.
- It closes its output and runs on: no reply can come, so it is killed at once (`no-reply`).
- It writes to stderr without end: all is read, the last part is kept.

`reply` parses the line. Nothing here raises for what a program does.
"""

from __future__ import annotations

import os
import select
import signal
import time
from typing import TYPE_CHECKING, Literal, NamedTuple

from satchel.i18n import Message
from satchel.runners.base import RunResult
from satchel.runners.reply import is_complete, quote, read_reply, two_lines_fault

if TYPE_CHECKING:
    from satchel.runners.base import Cancel, Exit, Fault, ProgramLimits, Tier
    from satchel.runners.launcher import LaunchedProcess as Process

EXIT_GRACE_S = 0.1
"""For a program to end after its reply."""
KILL_TIMEOUT_S = 5.0
"""For the end of a killed program, which takes milliseconds; more only on a machine without a free
core, where the deadline passes by as much."""
_CHUNK_BYTES = 1 << 16
_PIPE_BYTES = 1 << 16
"""Capacity of a pipe."""


class ExchangeResult(NamedTuple):
    """The result of one exchange."""

    line: bytes = b""
    """The reply without its newline; only without a fault."""
    fault: Fault | None = None
    detail: str = ""
    stderr: str = ""
    exit: Exit | None = None
    """How the program ended; None for a kept worker without a fault."""
    wrote: bytes = b""
    """With a fault: the beginning of the output."""

    @property
    def exit_code(self) -> int | None:
        """The exit status or signal of the program; None when it was killed."""
        return None if self.exit is None or self.exit.reason else self.exit.code


def exchange(
    process: Process,
    line: bytes,
    limits: ProgramLimits,
    deadline: float,
    cancel: Cancel | None = None,
    *,
    keep: bool = False,
) -> ExchangeResult:
    """Send a program one line and read its reply.

    Args:
        process: the program; its descriptors are closed by the caller, except its input, which is
            closed here once the line is written.
        line: the request, with its newline.
        limits: limits of the reply and of stderr.
        deadline: by `time.monotonic`; returns at most `KILL_TIMEOUT_S` after it.
        cancel: becomes readable when the call is cancelled.
        keep: the process gets further lines. Without a fault it is left running, with its input
            open; after any fault it is killed as always.
    """
    state = _LineExchange(process, line, limits, deadline, cancel, keep=keep)
    return state.exchange_kept() if keep else state.exchange_once()


class _LineExchange:
    def __init__(
        self,
        process: Process,
        line: bytes,
        limits: ProgramLimits,
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
        self.grace_end = 0.0
        self.keep = keep
        self.answer = bytearray()
        self.length = -1
        """Bytes of the first line, once it is complete."""
        self.cut_off = False
        """Whether its input was closed before the request was written."""
        self.errors = bytearray()
        """The end of stderr."""
        self.dropped = 0
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

    def exchange_once(self) -> ExchangeResult:
        """Exchange with a process that serves this line only."""
        self._write()
        fault, detail = self._exchange_lines()
        if fault is not None:
            return self._fail(fault, detail)
        if self.length < 0:
            return self._without_line()
        self._read_until_closed()
        if self._extra_output():
            return self._fail(*self._extra_output_fault())
        exit_ = self.process.wait(max(0.0, self._grace_deadline() - time.monotonic()))
        if exit_ is None:
            exit_ = self._end()
            self._drain()
            if self._extra_output():
                return self._fail(*self._extra_output_fault())
        return ExchangeResult(bytes(self.answer[: self.length]), None, "", self._said(), exit_)

    def exchange_kept(self) -> ExchangeResult:
        """Exchange with a process that gets further lines."""
        self._read(self.process.stderr)
        if self._read(self.process.stdout):
            early = quote(bytes(self.answer).strip())
            return self._fail(
                "early-reply",
                Message(
                    "it wrote something that is not its reply: {quote}; send it to stderr",
                    quote=early,
                ),
            )
        self._write()
        fault, detail = self._exchange_lines()
        if fault is not None:
            return self._fail(fault, detail)
        if self.length < 0:
            return self._without_line()
        if self.request:
            return self._fail("early-reply", Message("it did not read the whole request"))
        if len(self.answer) > self.length + 1:
            return self._fail(*self._extra_output_fault())
        self._read(self.process.stderr)
        return ExchangeResult(bytes(self.answer[: self.length]), stderr=self._said())

    # --- parts -------------------------------------------------------------------------------

    def _exchange_lines(self) -> tuple[Fault | None, str]:
        """Write and read until there is a line, or none can come."""
        output = self.process.stdout
        while self.length < 0 and output in self.open and not (self.keep and self.cut_off):
            left = self.deadline - time.monotonic()
            if left <= 0:
                return "timeout", self._timeout_detail()
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
        """Write what the pipe takes; close it when all is written or its reader is gone."""
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
        if descriptor not in self.open:
            return False
        try:
            data = os.read(descriptor, _CHUNK_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self.poll.unregister(descriptor)
            self.open.discard(descriptor)
            return False
        if descriptor == self.process.stderr:
            self.errors += data
            over = max(len(self.errors) - self.limits.stderr, 0)
            self.dropped += over
            del self.errors[:over]
        else:
            self._add(data)
        return True

    def _add(self, data: bytes) -> None:
        if self.length < 0:
            at = data.find(b"\n")
            if at >= 0:
                self.length = len(self.answer) + at
            self.answer += data
        elif len(self.answer) <= self.length + 1 + _CHUNK_BYTES:
            self.answer += data  # enough of it for an error message

    def _drain(self) -> None:
        """Read what is left in the pipes of the ended program: at most a pipeful."""
        for end in (self.process.stdout, self.process.stderr):
            for _ in range(64):
                if not self._read(end):
                    break

    def _grace_deadline(self) -> float:
        """When the grace period ends, which starts at the first call."""
        self.grace_end = self.grace_end or min(self.deadline, time.monotonic() + EXIT_GRACE_S)
        return self.grace_end

    def _read_until_closed(self) -> None:
        """Read on until the program closes its outputs, writes more, or the grace period ends."""
        until = self._grace_deadline()
        outputs = {self.process.stdout, self.process.stderr}
        while outputs & self.open and not self._extra_output():
            left = until - time.monotonic()
            if left <= 0:
                return
            for descriptor, _ in self.poll.poll(left * 1000 + 0.5):
                if descriptor == self.cancel:
                    self.poll.unregister(self.cancel)  # too late: the reply is complete
                    self.cancel = -1
                elif descriptor in outputs:
                    self._read(descriptor)
                else:
                    self._write()

    def _extra_output(self) -> bytes:
        """What was written after the line, without white space around it."""
        return bytes(self.answer[self.length + 1 :]).strip() if self.length >= 0 else b""

    # --- faults ------------------------------------------------------------------------------

    def _extra_output_fault(self) -> tuple[Fault, str]:
        return two_lines_fault(bytes(self.answer[: self.length]), self._extra_output())

    def _without_line(self) -> ExchangeResult:
        exit_ = self.process.wait(max(0.0, self._grace_deadline() - time.monotonic()))
        ended = exit_
        if exit_ is None:
            exit_ = self._end()
            if exit_ is not None and exit_.reason != "killed":
                ended = exit_  # it had ended before, but was reported late
        self._drain()
        said = self._said()
        if not self.keep and self.length < 0 and is_complete(bytes(self.answer)):
            return ExchangeResult(bytes(self.answer), None, "", said, exit_)
        fault, detail = self._fault_of_exit(ended)
        return ExchangeResult(b"", fault, detail, said, exit_, self._wrote())

    def _said(self) -> str:
        """The end of stderr, with a note when bytes before it were dropped."""
        note = f"… [{self.dropped:,} bytes were dropped] …\n" if self.dropped else ""
        return note + self.errors.decode("utf-8", "replace")

    def _wrote(self) -> bytes:
        return bytes(self.answer[: self.limits.raw * 4])

    def _fault_of_exit(self, exit_: Exit | None) -> tuple[Fault, str]:
        if exit_ is None:
            return self._fault_without_reply()
        if exit_.reason in {"", "killed"}:
            if exit_.code < 0:
                ended = Message("it was ended by {signal}", signal=signal_name(-exit_.code))
                return "crashed", ended
            if exit_.code > 0:
                ended = Message("it exited with status {status}", status=exit_.code)
                return "exit-code", ended
            return self._fault_without_reply()
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
                return "crashed", Message("its supervisor was killed")

    def _fault_without_reply(self) -> tuple[Fault, str]:
        """The fault of a program that closed its output, or ended well, without a line."""
        if self._is_unread():
            return "closed-input", Message("it did not read the whole request")
        if self.answer:
            said = quote(bytes(self.answer))
            return "partial-reply", Message(
                "it wrote something that is not its reply: {quote}; send it to stderr", quote=said
            )
        return "no-reply", Message("it ended without a reply")

    def _is_unread(self) -> bool:
        """Whether it certainly did not read the whole request.

        A pipe holds a short request, read or not: whether writing it failed depends on timing, and
        a fault should not. A kept worker has no such excuse: it ran before.
        """
        return bool(self.request) and (self.keep or self.length_of_request > _PIPE_BYTES)

    def _too_long(self) -> tuple[Fault, str]:
        return "too-long", Message(
            "its reply is longer than {count} bytes", count=f"{self.limits.reply:,}"
        )

    def _timeout_detail(self) -> str:
        seconds = f"{self.limits.timeout:g}"
        return Message("there was no reply within {seconds} s", seconds=seconds)

    def _fail(self, fault: Fault, detail: str) -> ExchangeResult:
        exit_ = self._end()
        self._drain()
        return ExchangeResult(b"", fault, detail, self._said(), exit_, self._wrote())

    def _end(self) -> Exit | None:
        self.process.kill()
        self._close_input()
        return self.process.wait(KILL_TIMEOUT_S)


def to_result(
    exchanged: ExchangeResult, limits: ProgramLimits, tier: Tier, way: Literal["cold", "warm"]
) -> RunResult:
    """The result of a call: the parsed reply line, or the fault."""
    fault, detail = exchanged.fault, exchanged.detail
    if fault == "cannot-start" and not detail:
        # The program was never started, so stderr is bwrap's own.
        said = exchanged.stderr.strip().splitlines()
        detail = said[0] if said else "bubblewrap"
    raw = exchanged.line or exchanged.wrote
    about = RunResult(
        fault=fault,
        detail=detail,
        tier=tier,
        way=way,
        stderr=exchanged.stderr,
        exit_code=exchanged.exit_code,
        peak=exchanged.exit.peak if exchanged.exit is not None else 0,
        raw=raw[: limits.raw * 4].decode("utf-8", "replace")[: limits.raw],
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


def signal_name(number: int) -> str:
    """The name of a signal."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIG{number}"
