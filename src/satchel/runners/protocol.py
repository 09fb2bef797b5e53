"""Exchanges with an untrusted program, by a deadline: one line out and back, or a script's run.

`exchange` writes the request and reads the reply at the same time, so that neither side blocks the
other however long the lines are. What a program may do, and the result:

- It answers without reading its input, or closes it: the reply counts, as the process serves this
  call only.
- It answers and exits with a status other than 0: the reply counts, the status is reported.
- It answers and does not end: after a short grace period it is killed, without an exit status.
- It writes more after its line: `two-replies`, if that line is a reply at all; else the error of
  the line, since that came first. White space is ignored.
- It ends after a line without a newline: the line counts if it is a complete JSON object; else
  `partial-reply`.
- It ends without a line: by its exit, `memory`, `processes`, `cannot-start`, `crashed`,
  `exit-code`, `closed-input` (it did not read the whole request), `no-reply`.
- It closes its output and runs on: no reply can come, so it is killed at once (`no-reply`).
- It writes to stderr without end: all is read, the last part is kept.

`reply` parses the line. Nothing here raises for what a program does.

`run_script` runs a program that exchanges no lines: its input is written, and both outputs are read
until it ends. The first part of stdout and the last part of stderr are kept, whatever its exit.
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
    from satchel.runners.base import Cancel, Exit, Fault, LiveOutput, ProgramLimits, Tier
    from satchel.runners.launcher import RunningProgram

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
    """The reply without its newline, only without a fault; of a script what it wrote, always."""
    fault: Fault | None = None
    detail: str = ""
    stderr: str = ""
    exit: Exit | None = None
    """How the program ended."""
    wrote: bytes = b""
    """With a fault: the beginning of the output."""
    dropped: int = 0
    """Bytes of a script's output that were not kept."""

    @property
    def exit_code(self) -> int | None:
        """The exit status or signal of the program; None when it was killed."""
        return None if self.exit is None or self.exit.reason else self.exit.code


def exchange(
    process: RunningProgram,
    line: bytes,
    limits: ProgramLimits,
    deadline: float,
    cancel: Cancel | None = None,
) -> ExchangeResult:
    """Send a program one line and read its reply.

    Args:
        process: the program; its descriptors are closed by the caller, except its input, which is
            closed here once the line is written.
        line: the request, with its newline.
        limits: limits of the reply and of stderr.
        deadline: by `time.monotonic`; returns at most `KILL_TIMEOUT_S` after it.
        cancel: becomes readable when the call is cancelled.
    """
    return _LineExchange(process, line, limits, deadline=deadline, cancel=cancel).exchange()


def run_script(
    process: RunningProgram,
    stdin: bytes,
    limits: ProgramLimits,
    deadline: float,
    cancel: Cancel | None = None,
    *,
    live: LiveOutput | None = None,
) -> ExchangeResult:
    """Write a script its input and read its outputs until it ends; see `exchange`."""
    run = _ScriptRun(process, stdin, limits, deadline=deadline, cancel=cancel)
    run.live = live
    return run.exchange()


class _LineExchange:
    def __init__(
        self,
        process: RunningProgram,
        line: bytes,
        limits: ProgramLimits,
        deadline: float,
        cancel: Cancel | None,
    ) -> None:
        self.process = process
        self.request = memoryview(line)
        self.request_bytes = len(line)
        self.limits = limits
        self.deadline = deadline
        self.grace_end = 0.0
        self.output = bytearray()
        self.line_length = -1
        """Bytes of the first line, once it is complete."""
        self.stderr_tail = bytearray()
        """The end of stderr."""
        self.dropped = 0
        self.cancel = cancel.fileno() if cancel is not None else -1
        self.poll = select.poll()
        self.open_ends: set[int] = set()
        for end in (process.stdout, process.stderr):
            os.set_blocking(end, False)
            self.poll.register(end, select.POLLIN)
            self.open_ends.add(end)
        if self.cancel >= 0:
            self.poll.register(self.cancel, select.POLLIN)

    def exchange(self) -> ExchangeResult:
        """Write the line, read the reply, and wait for the end of the process."""
        self._write()
        fault, detail = self._exchange_lines()
        if fault is not None:
            return self._fail(fault, detail)
        if self.line_length < 0:
            return self._finish_without_line()
        self._read_until_closed()
        if self._extra_output():
            return self._fail(*self._extra_output_fault())
        exit_ = self.process.wait(max(0.0, self._grace_deadline() - time.monotonic()))
        if exit_ is None:
            exit_ = self._kill()
            self._drain()
            if self._extra_output():
                return self._fail(*self._extra_output_fault())
        line = bytes(self.output[: self.line_length])
        return ExchangeResult(line, stderr=self._format_stderr(), exit=exit_)

    # --- parts -------------------------------------------------------------------------------

    def _exchange_lines(self) -> tuple[Fault | None, str]:
        """Write and read until there is a line, or none can come."""
        output = self.process.stdout
        while self.line_length < 0 and output in self.open_ends:
            remaining = self.deadline - time.monotonic()
            if remaining <= 0:
                return "timeout", self._timeout_detail()
            for descriptor, _ in self.poll.poll(remaining * 1000 + 0.5):
                if descriptor == self.cancel:
                    return "cancelled", Message("the call was taken back")
                if descriptor == self.process.stdin:
                    self._write()
                else:
                    self._read(descriptor)
            if self.line_length >= 0:
                break
            if len(self.output) > self.limits.reply:
                return self._too_long()
        if self.line_length > self.limits.reply:
            return self._too_long()
        return None, ""

    def _write(self) -> None:
        """Write what the pipe takes; close it when all is written or its reader is gone."""
        stdin = self.process.stdin
        if stdin < 0:
            return
        if stdin not in self.open_ends:
            os.set_blocking(stdin, False)
        try:
            while self.request:
                written = os.write(stdin, self.request[: 1 << 20])
                self.request = self.request[written:]
        except BlockingIOError:
            if stdin not in self.open_ends:
                self.poll.register(stdin, select.POLLOUT)
                self.open_ends.add(stdin)
            return
        except OSError:
            pass  # the program closed its input; its reply counts all the same
        self._close_input()

    def _close_input(self) -> None:
        stdin = self.process.stdin
        if stdin >= 0:
            if stdin in self.open_ends:
                self.poll.unregister(stdin)
                self.open_ends.discard(stdin)
            self.process.stdin = -1
            os.close(stdin)

    def _read(self, descriptor: int) -> bool:
        if descriptor not in self.open_ends:
            return False
        try:
            data = os.read(descriptor, _CHUNK_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self.poll.unregister(descriptor)
            self.open_ends.discard(descriptor)
            return False
        if descriptor == self.process.stderr:
            self._add_error(data)
        else:
            self._add_output(data)
        return True

    def _add_error(self, data: bytes) -> None:
        self.stderr_tail += data
        excess_bytes = max(len(self.stderr_tail) - self.limits.stderr, 0)
        self.dropped += excess_bytes
        del self.stderr_tail[:excess_bytes]

    def _add_output(self, data: bytes) -> None:
        if self.line_length < 0:
            position = data.find(b"\n")
            if position >= 0:
                self.line_length = len(self.output) + position
            self.output += data
        elif len(self.output) <= self.line_length + 1 + _CHUNK_BYTES:
            self.output += data  # enough of it for an error message

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
        grace_end = self._grace_deadline()
        outputs = {self.process.stdout, self.process.stderr}
        while outputs & self.open_ends and not self._extra_output():
            remaining = grace_end - time.monotonic()
            if remaining <= 0:
                return
            for descriptor, _ in self.poll.poll(remaining * 1000 + 0.5):
                if descriptor == self.cancel:
                    self.poll.unregister(self.cancel)  # too late: the reply is complete
                    self.cancel = -1
                elif descriptor in outputs:
                    self._read(descriptor)
                else:
                    self._write()

    def _extra_output(self) -> bytes:
        """What was written after the line, without white space around it."""
        return bytes(self.output[self.line_length + 1 :]).strip() if self.line_length >= 0 else b""

    # --- faults ------------------------------------------------------------------------------

    def _extra_output_fault(self) -> tuple[Fault, str]:
        return two_lines_fault(bytes(self.output[: self.line_length]), self._extra_output())

    def _finish_without_line(self) -> ExchangeResult:
        exit_ = self.process.wait(max(0.0, self._grace_deadline() - time.monotonic()))
        ended = exit_
        if exit_ is None:
            exit_ = self._kill()
            if exit_ is not None and exit_.reason != "killed":
                ended = exit_  # it had ended before, but was reported late
        self._drain()
        stderr_text = self._format_stderr()
        if self.line_length < 0 and is_complete(bytes(self.output)):
            return ExchangeResult(bytes(self.output), stderr=stderr_text, exit=exit_)
        fault, detail = self._find_exit_fault(ended)
        return ExchangeResult(
            fault=fault, detail=detail, stderr=stderr_text, exit=exit_, wrote=self._first_output()
        )

    def _format_stderr(self) -> str:
        """The end of stderr, with a note when bytes before it were dropped."""
        note = f"… [{self.dropped:,} bytes were dropped] …\n" if self.dropped else ""
        return note + self.stderr_tail.decode("utf-8", "replace")

    def _first_output(self) -> bytes:
        return bytes(self.output[: self.limits.raw * 4])

    def _find_exit_fault(self, exit_: Exit | None) -> tuple[Fault, str]:
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
            case "memory" | "processes" | "written":
                return exit_.reason, self._describe_limit(exit_.reason)
            case _:
                return "crashed", Message("its supervisor was killed")

    def _describe_limit(self, reason: Literal["memory", "processes", "written"]) -> Message:
        """The detail of a limit that the launcher enforces."""
        match reason:
            case "memory":
                size = self.limits.memory // (1024 * 1024)
                return Message(
                    "it and its children held more than {size} MB together", size=f"{size:,}"
                )
            case "processes":
                return Message(
                    "it started more than {count} processes", count=f"{self.limits.processes:,}"
                )
            case "written":
                return too_much_written(self.limits)

    def _fault_without_reply(self) -> tuple[Fault, str]:
        """The fault of a program that closed its output, or ended well, without a line."""
        if self._is_unread():
            return "closed-input", Message("it did not read the whole request")
        if self.output:
            quoted = quote(bytes(self.output))
            return "partial-reply", Message(
                "it wrote something that is not its reply: {quote}; send it to stderr", quote=quoted
            )
        return "no-reply", Message("it ended without a reply")

    def _is_unread(self) -> bool:
        """Whether it certainly did not read the whole request.

        A pipe holds a short request, read or not: whether writing it failed depends on timing, and
        a fault should not.
        """
        return bool(self.request) and self.request_bytes > _PIPE_BYTES

    def _too_long(self) -> tuple[Fault, str]:
        return "too-long", Message(
            "its reply is longer than {count} bytes", count=f"{self.limits.reply:,}"
        )

    def _timeout_detail(self) -> str:
        seconds = f"{self.limits.timeout:g}"
        return Message("there was no reply within {seconds} s", seconds=seconds)

    def _fail(self, fault: Fault, detail: str) -> ExchangeResult:
        exit_ = self._kill()
        self._drain()
        return ExchangeResult(
            fault=fault,
            detail=detail,
            stderr=self._format_stderr(),
            exit=exit_,
            wrote=self._first_output(),
        )

    def _kill(self) -> Exit | None:
        self.process.kill()
        self._close_input()
        return self.process.wait(KILL_TIMEOUT_S)


class _ScriptRun(_LineExchange):
    """A run of a program that exchanges no lines."""

    dropped_output = 0
    live: LiveOutput | None = None

    def exchange(self) -> ExchangeResult:
        """Write the input, and read both outputs until the process ends."""
        self._write()
        self.poll.register(self.process.fileno(), select.POLLIN)
        while (exit_ := self.process.wait(0)) is None:
            remaining = self.deadline - time.monotonic()
            if remaining <= 0:
                return self._fail("timeout", self._timeout_detail())
            for descriptor, _ in self.poll.poll(remaining * 1000 + 0.5):
                if descriptor == self.cancel:
                    return self._fail("cancelled", Message("the call was taken back"))
                if descriptor == self.process.stdin:
                    self._write()
                else:
                    self._read(descriptor)
        self._close_input()
        self._drain()
        if exit_.code == 0 and not exit_.reason:
            return self._make_result(None, "", exit_)
        return self._make_result(*self._find_exit_fault(exit_), exit_)

    def _add_error(self, data: bytes) -> None:
        if self.live is not None:
            self.live("stderr", data)
        super()._add_error(data)

    def _add_output(self, data: bytes) -> None:
        if self.live is not None:
            self.live("stdout", data)
        shown_part = data[: max(self.limits.reply - len(self.output), 0)]
        self.output.extend(shown_part)
        self.dropped_output += len(data) - len(shown_part)

    def _fail(self, fault: Fault, detail: str) -> ExchangeResult:
        exit_ = self._kill()
        self._drain()
        return self._make_result(fault, detail, exit_)

    def _make_result(self, fault: Fault | None, detail: str, exit_: Exit | None) -> ExchangeResult:
        output, dropped = bytes(self.output), self.dropped_output
        return ExchangeResult(
            output, fault, detail, stderr=self._format_stderr(), exit=exit_, dropped=dropped
        )

    def _timeout_detail(self) -> str:
        return Message("it did not end within {seconds} s", seconds=f"{self.limits.timeout:g}")


def script_result(exchanged: ExchangeResult, tier: Tier) -> RunResult:
    """The result of a script: what it printed, and the fault if it failed."""
    result = _describe_end(exchanged, tier)
    output = exchanged.line.decode("utf-8", "replace")
    return result._replace(output=output, truncated=exchanged.dropped)


def _describe_end(exchanged: ExchangeResult, tier: Tier) -> RunResult:
    """A result without the output."""
    detail = exchanged.detail
    if exchanged.fault == "cannot-start" and not detail:
        # The program was never started, so stderr is bwrap's own.
        stderr_lines = exchanged.stderr.strip().splitlines()
        detail = stderr_lines[0] if stderr_lines else "bubblewrap"
    return RunResult(
        fault=exchanged.fault,
        detail=detail,
        tier=tier,
        stderr=exchanged.stderr,
        exit_code=exchanged.exit_code,
        peak=exchanged.exit.peak if exchanged.exit is not None else 0,
    )


def to_result(exchanged: ExchangeResult, limits: ProgramLimits, tier: Tier) -> RunResult:
    """The result of a call: the parsed reply line, or the fault."""
    raw = (exchanged.line or exchanged.wrote)[: limits.raw * 4]
    result = _describe_end(exchanged, tier)._replace(
        raw=raw.decode("utf-8", "replace")[: limits.raw]
    )
    if exchanged.fault is not None:
        return result
    reply = read_reply(exchanged.line, limits.output)
    return result._replace(
        output=reply.output,
        error=reply.error,
        data=reply.data,
        truncated=reply.truncated,
        fault=reply.fault,
        detail=reply.detail,
    )


def too_much_written(limits: ProgramLimits) -> Message:
    """The detail of the fault `written`."""
    return Message(
        "it wrote more than {size} MB or {count} files to the workspace or its home",
        size=f"{limits.written >> 20:,}",
        count=f"{limits.changes:,}",
    )


def signal_name(number: int) -> str:
    """The name of a signal."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIG{number}"
