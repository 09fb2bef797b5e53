"""What it means to run a tool skill's program once: the records that all runners share.

    Program     how a prepared skill is started: made by a runtime, from a manifest
    Powers      what it may touch: made by the tool, from the manifest and the user's settings
    Limits      how much of everything it may take
    Launch      a program with its powers, dressed for one tier of sandbox: made by the sandbox
    RunRequest  one call
    RunResult   what came of it; a fault is a result too, so nothing here raises for a bad program

`pool.Pool` takes a request and always comes back, at the latest a moment after the deadline.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

Tier = Literal["bwrap", "landlock", "none"]
"""How a program is held: `bwrap` (namespaces and seccomp), `landlock` (Landlock and seccomp),
`none` (an ordinary child: only where the user agreed to that)."""

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
"""What can go wrong with a program, whatever it was meant to do. `crashed`: killed by a signal.
`memory`: killed for taking too much. `processes`: killed for starting too many."""


class Limits(NamedTuple):
    """How much a program may take."""

    timeout: float = 30.0
    """Seconds from the request to the whole reply."""
    reply: int = 4 * 1024 * 1024
    """Bytes of the line it answers with."""
    output: int = 8_000
    """Characters of `output` that reach the model; the rest is cut, and the cut is announced."""
    stderr: int = 64 * 1024
    """Bytes kept of what it writes for people; the rest is read and dropped."""
    file_size: int = 20 * 1024 * 1024
    """Bytes of any file it writes."""
    memory: int = 512 * 1024 * 1024
    """Bytes that it and its children may hold together."""
    address_space: int = 0
    """Bytes of address space; 0 leaves it alone: Node and Go reserve far more than they use."""
    processes: int = 64
    open_files: int = 256
    raw: int = 2_000
    """Characters kept of what it wrote, as it wrote them, for whoever mends it."""


class Program(NamedTuple):
    """How a prepared skill is started."""

    argv: tuple[str, ...]
    """The interpreter or binary, absolute, and its arguments."""
    folder: str
    """The skill's folder: absolute, seen read-only."""
    runtime: str
    read: tuple[str, ...] = ()
    """Further absolute paths it needs to see: its environment, its toolchain."""
    env: tuple[tuple[str, str], ...] = ()
    """Variables the runtime needs."""
    key: str = ""
    """Changes whenever the program's content or environment does: other workers are old then."""


class Powers(NamedTuple):
    """What a program may touch beside its own folder and a scratch folder."""

    workspace: str = ""
    """Absolute folder, or nothing when it may not see it. It is the working folder then."""
    writable: bool = False
    """Whether the workspace may be written."""
    network: bool = False
    secrets: tuple[tuple[str, str], ...] = ()
    """Name and value. Never logged, never in an argument list."""
    guard: tuple[str, ...] = ()
    """Absolute paths in a writable workspace that stay as they are, there or not: skills, their
    lockfiles. `guards` adds what every workspace has."""

    def __repr__(self) -> str:
        names = ", ".join(name for name, _ in self.secrets)
        return (
            f"Powers(workspace={self.workspace!r}, writable={self.writable}, "
            f"network={self.network}, secrets=<{names}>)"
        )


class Launch(NamedTuple):
    """Everything the launcher needs to start one process."""

    argv: tuple[str, ...]
    env: tuple[tuple[str, str], ...]
    """The whole environment of the first process."""
    cwd: str
    tier: Tier = "none"
    arguments: bytes = b""
    """bwrap only: NUL-separated options, handed over by descriptor so that no list shows them."""
    seccomp: bytes = b""
    """The BPF program: given to bwrap by descriptor, or installed by the launcher's child."""
    read: tuple[str, ...] = ()
    """Landlock only: what may be read and run."""
    write: tuple[str, ...] = ()
    """Landlock only: what may be written too."""
    limits: Limits = Limits()
    scratch: str = ""
    """A folder of its own, removed with everything in it when the process has ended; empty where
    the sandbox makes one in memory."""
    network: bool = False
    """Whether the network is open: Landlock closes TCP otherwise."""

    def give_up(self) -> None:
        """Remove the scratch folder of what never started: it is empty still."""
        if self.scratch:
            with contextlib.suppress(OSError):
                os.rmdir(self.scratch)

    def __repr__(self) -> str:
        # Not the environment, not the options: both may hold secrets.
        return f"Launch(argv={self.argv!r}, cwd={self.cwd!r}, tier={self.tier!r})"


class Exit(NamedTuple):
    """How a process ended."""

    code: int
    """Exit status; negative is the signal that killed it."""
    peak: int = 0
    """Most memory held, in bytes, as far as it was seen."""
    reason: Literal["", "memory", "processes", "killed", "cannot-start", "lost"] = ""
    """Set when it was the launcher that ended it, when it never ran (`cannot-start`), or when
    whoever watched it died, so that nothing more is known (`lost`)."""
    detail: str = ""
    """For `cannot-start`: what stood in the way."""


class Process(Protocol):
    """A started program. Its descriptors belong to whoever started it."""

    stdin: int
    stdout: int
    stderr: int
    pid: int
    """As seen from here."""

    def kill(self) -> None:
        """End it and every descendant at once; safe to call twice."""
        ...

    def wait(self, timeout: float) -> Exit | None:
        """How it ended, when it has and no descendant is left; None when time is up."""
        ...

    def close(self) -> None:
        """Kill it, and give back every descriptor."""
        ...


class BuildStopped(Exception):
    """A build was given up: nobody waits for it any more, or it took too long."""

    def __init__(self, fault: Literal["cancelled", "timeout"]) -> None:
        super().__init__(fault)
        self.fault: Literal["cancelled", "timeout"] = fault


class CannotStart(Exception):
    """The program was not started; the text says why, in one sentence."""


class Cancel(Protocol):
    """How a host takes a call back."""

    def fileno(self) -> int:
        """A descriptor that becomes readable when the call is taken back."""
        ...


class RunRequest(NamedTuple):
    """One call of one tool."""

    skill: str
    """Whose: the `ref` of the skill, for queues and workers."""
    tool: str
    arguments: Mapping[str, Any]
    """Checked, with defaults filled in."""
    program: Program
    powers: Powers = Powers()
    limits: Limits = Limits()
    several: bool = False
    """The request names its tool, since the program serves several."""
    workers: int = 0
    cancel: Cancel | None = None
    own: bool = False
    """The skill is the user's own: the setting `sandbox = own` lets it run without a sandbox."""
    key: str = ""
    """The same whenever this very call is made again, so that the program can do a thing once."""


class RunResult(NamedTuple):
    """What came of a call."""

    output: str = ""
    error: str = ""
    """What the program itself calls an error."""
    data: dict[str, Any] | None = None
    """Structured output, when the program gave any."""
    fault: Fault | None = None
    detail: str = ""
    """What exactly was wrong, in one English sentence without a full stop, for a fault."""
    truncated: int = 0
    """Characters of the output that were cut."""
    tier: Tier = "none"
    way: Literal["cold", "warm"] = "cold"
    denied: tuple[str, ...] = ()
    """What the sandbox was seen to refuse, as far as that can be known."""
    stderr: str = ""
    exit_code: int | None = None
    peak: int = 0
    """Most memory held, in bytes."""
    waited_ms: float = 0.0
    """Time in the queue."""
    ran_ms: float = 0.0
    """Time from the start of the process, or from handing a warm one its line, to the reply."""
    raw: str = ""
    """The beginning of what it wrote to standard output, as it wrote it; a warm process may leave
    it empty."""
