"""Records and protocols of program runs.

    Program             how a prepared skill is started: made by a runtime, from a manifest
    ProgramPermissions  what it may access: made by the tool, from the manifest and the settings
    ProgramLimits       how much of each resource it may use
    Launch              a program with its permissions for one sandbox tier: made by `sandbox`
    RunRequest          one call
    RunResult           its result; faults are results too: a bad program raises nothing

`pool.Pool` takes a request and always returns, at the latest shortly after the deadline.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

Tier = Literal["bwrap", "landlock", "none"]
"""`bwrap` (namespaces and seccomp), `landlock` (Landlock and seccomp), `none` (an ordinary child:
only with the user's agreement)."""

Fault = Literal[
    "cannot-start",
    "timeout",
    "cancelled",
    "crashed",
    "exit-code",
    "memory",
    "processes",
    "no-reply",
    "partial-reply",
    "too-long",
    "bad-utf8",
    "not-json",
    "not-an-object",
    "wrong-fields",
    "two-replies",
    "early-reply",
    "closed-input",
]
"""What can go wrong with any program. `crashed`: killed by a signal. `memory`: killed for using too
much. `processes`: killed for starting too many."""


class ProgramLimits(NamedTuple):
    """Resource limits of a program."""

    timeout: float = 30.0
    """Seconds from the request to the complete reply."""
    reply: int = 4 * 1024 * 1024
    """Bytes of the reply line."""
    output: int = 8_000
    """Characters of `output` for the model; a cut is announced."""
    stderr: int = 64 * 1024
    """Bytes kept of stderr; the rest is dropped."""
    file_size: int = 20 * 1024 * 1024
    """Bytes of each file it writes."""
    memory: int = 512 * 1024 * 1024
    """Bytes that it and its children may hold together."""
    processes: int = 64
    open_files: int = 256
    raw: int = 2_000
    """Characters kept of stdout as written, for the author."""


class Program(NamedTuple):
    """How a prepared skill is started."""

    argv: tuple[str, ...]
    """The interpreter or binary (absolute), and its arguments."""
    folder: str
    """The skill's folder: absolute, read-only."""
    runtime: str
    read: tuple[str, ...] = ()
    """Further absolute paths that it needs: its environment, its toolchain."""
    env: tuple[tuple[str, str], ...] = ()
    """Variables that the runtime needs."""
    key: str = ""
    """Changes with the program's content and environment, which outdates its workers."""


class ProgramPermissions(NamedTuple):
    """What a program may access besides its own folder and a scratch folder."""

    workspace: str = ""
    """Absolute folder, which is then its working folder; empty without access."""
    named: tuple[str, ...] = ()
    """The only files and folders of the workspace that are visible, as real paths; all when
    empty."""
    writable: bool = False
    """Whether the workspace may be written."""
    network: bool = False
    secrets: tuple[tuple[str, str], ...] = ()
    """Name and value. Never logged, never in an argument list."""
    guard: tuple[str, ...] = ()
    """Absolute paths in a writable workspace that are protected, existing or not: skills, their
    lockfiles. `workspace_guard` adds what every workspace has."""

    def __repr__(self) -> str:
        names = ", ".join(name for name, _ in self.secrets)
        return (
            f"ProgramPermissions(workspace={self.workspace!r}, writable={self.writable}, "
            f"network={self.network}, secrets=<{names}>)"
        )


class Launch(NamedTuple):
    """Everything that the launcher needs to start one process."""

    argv: tuple[str, ...]
    env: tuple[tuple[str, str], ...]
    """The whole environment of the first process."""
    cwd: str
    tier: Tier = "none"
    arguments: bytes = b""
    """bwrap only: NUL-separated options, passed by descriptor so that no process list shows
    them."""
    seccomp: bytes = b""
    """The BPF program, for bwrap by descriptor, or for the launcher's child."""
    read: tuple[str, ...] = ()
    """Landlock only: paths that may be read and executed."""
    write: tuple[str, ...] = ()
    """Landlock only: paths that may also be written."""
    limits: ProgramLimits = ProgramLimits()
    scratch: str = ""
    """A folder of its own, removed with its content after the process; empty where the sandbox
    makes one in memory."""
    network: bool = False
    """Whether the network is allowed: Landlock denies TCP otherwise."""

    def discard(self) -> None:
        """Remove the empty scratch folder of a program that never started."""
        if self.scratch:
            with contextlib.suppress(OSError):
                os.rmdir(self.scratch)

    def __repr__(self) -> str:
        # Without environment and options: both may hold secrets.
        return f"Launch(argv={self.argv!r}, cwd={self.cwd!r}, tier={self.tier!r})"


class Exit(NamedTuple):
    """How a process ended."""

    code: int
    """Exit status; negative is the signal that killed it."""
    peak: int = 0
    """Peak memory in bytes, as far as measured."""
    reason: Literal["", "memory", "processes", "killed", "cannot-start", "lost"] = ""
    """Set when the launcher killed it, when it never ran (`cannot-start`), or when its supervisor
    died, so that nothing is known (`lost`)."""
    detail: str = ""
    """For `cannot-start`: the reason."""


class BuildStopped(Exception):
    """A build was cancelled or took too long."""

    def __init__(self, fault: Literal["cancelled", "timeout"]) -> None:
        super().__init__(fault)
        self.fault: Literal["cancelled", "timeout"] = fault


class CannotStart(Exception):
    """The program was not started; the message is the reason in one sentence."""


class Cancel(Protocol):
    """Cancellation of a call by the host."""

    def fileno(self) -> int:
        """A descriptor that becomes readable when the call is cancelled."""
        ...


def is_cancelled(cancel: Cancel) -> bool:
    """Whether a call was cancelled."""
    import select

    poll = select.poll()  # not `select`: descriptor numbers may be too high
    poll.register(cancel.fileno(), select.POLLIN)
    return bool(poll.poll(0))


class RunRequest(NamedTuple):
    """One call of one tool."""

    skill: str
    """The `ref` of the skill, for queues and workers."""
    tool: str
    arguments: Mapping[str, Any]
    """Checked, with defaults."""
    program: Program
    permissions: ProgramPermissions = ProgramPermissions()
    limits: ProgramLimits = ProgramLimits()
    several: bool = False
    """Whether the program serves several tools, so that the request names one."""
    workers: int = 0
    cancel: Cancel | None = None
    own: bool = False
    """Whether the skill is the user's own: the setting `sandbox = own` runs it without a
    sandbox."""
    key: str = ""
    """Idempotency key, the same for every repetition of the call."""


class RunResult(NamedTuple):
    """The result of a call."""

    output: str = ""
    error: str = ""
    """The error that the program reports."""
    data: dict[str, Any] | None = None
    """Structured output, if any."""
    fault: Fault | None = None
    detail: str = ""
    """Details of a fault, in one English sentence without a full stop."""
    truncated: int = 0
    """Number of characters of the output that were cut."""
    tier: Tier = "none"
    way: Literal["cold", "warm"] = "cold"
    denied: tuple[str, ...] = ()
    """What was restored in the workspace after the call."""
    stderr: str = ""
    exit_code: int | None = None
    peak: int = 0
    """Peak memory in bytes."""
    waited_ms: float = 0.0
    """Time in the queue."""
    ran_ms: float = 0.0
    """Time from the start of the process, or from the request to a warm one, to the reply."""
    raw: str = ""
    """The beginning of stdout as written; may be empty for a warm process."""
