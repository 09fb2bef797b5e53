"""Records and protocols of program runs.

    Program             how a prepared skill is started: made by a runtime, from a manifest
    ProgramPermissions  what it may access: made by the tool, from the manifest and the settings
    ProgramLimits       how much of each resource it may use
    Launch              a program with its permissions for one sandbox tier: made by `sandbox`
    RunRequest          one call
    RunResult           its result; faults are results too: a bad program raises nothing
    ChangeProposal      what a program that may write would change: part of the result

`pool.Pool` takes a request and always returns, at the latest shortly after the deadline.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from satchel.i18n import Message

Tier = Literal["bwrap", "landlock", "none"]
"""`bwrap` (namespaces and seccomp), `landlock` (Landlock and seccomp), `none` (an ordinary child:
only with the user's agreement)."""

ScriptInterpreter = Literal["python", "bash", "sh", "node", "executable"]
"""`executable`: a file that the system starts itself."""

SCRIPT_FOLDERS = frozenset(("scripts", "bin", "tools"))
"""Folders of a skill with files to run. Elsewhere `scripts_named` decides."""
SCRIPT_INTERPRETERS: dict[str, ScriptInterpreter] = {
    ".py": "python",
    ".bash": "bash",
    ".sh": "bash",
    ".js": "node",
    ".mjs": "node",
    ".cjs": "node",
    ".ts": "node",
    ".mts": "node",
    ".cts": "node",
}
"""Of files without a shebang, by their ending."""
_COMMAND = re.compile(
    r"(?:\b(?:python[\d.]*|(?:ba|z)?sh|node|tsx|ts-node|bun|uv run|perl|ruby)\s+(?:-\S+\s+){0,5}"
    r"|\b(?i:run|execute)\s+(?:the\s+)?|(?:运行|执行)\s*"
    r"|^[ \t]*(?:\$ )?(?=[\"']?(?:[.~]|[<{$][^\s/]*)/))"
    r"(?=[\"'`]?([^\s\"'`]{1,300}))",
    re.MULTILINE,
)
_ENDING = re.compile(r"\.(?:py|(?:ba|z)?sh|[cm]?[jt]s|pl|rb)\b", re.IGNORECASE)


def scripts_named(text: str) -> frozenset[str]:
    """The files that a skill's text says to run, such as `python {baseDir}/src/x.py`.

    Each is there by every end of its path, because texts name the skill's folder in many ways.
    """
    lines = "\n".join(line for line in text.split("\n") if _ENDING.search(line))
    paths = (path.rstrip(".,;:)") for path in _COMMAND.findall(lines))
    parts = [[part for part in path.split("/") if part.strip(".")] for path in paths]
    named = [path for path in parts if path and _ENDING.search(path[-1])]
    return frozenset("/".join(path[start:]) for path in named for start in range(len(path)))


Fault = Literal[
    "cannot-start",
    "timeout",
    "cancelled",
    "crashed",
    "exit-code",
    "memory",
    "processes",
    "written",
    "no-reply",
    "partial-reply",
    "too-long",
    "bad-utf8",
    "not-json",
    "not-an-object",
    "wrong-fields",
    "two-replies",
    "closed-input",
]
"""What can go wrong with any program. `crashed`: killed by a signal. `memory`: killed for using too
much. `processes`: killed for starting too many. `written`: it wrote too much to the workspace."""


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
    written: int = 512 * 1024 * 1024
    """Bytes that it may write to the workspace, all files together."""
    changes: int = 20_000
    """Files and folders of the workspace that it may change."""
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
    """Changes with the program's content and environment."""
    path: tuple[str, ...] = ()
    """Folders that come first on its PATH."""


class ProgramPermissions(NamedTuple):
    """What a program may access besides its own folder and a scratch folder."""

    workspace: str = ""
    """Absolute folder, which is then its working folder; empty without access."""
    named: tuple[str, ...] = ()
    """The only files and folders of the workspace that are visible, as real paths; all when
    empty."""
    writable: bool = False
    """Whether the workspace may be written: through an overlay, so that each change is a proposal.
    Without a sandbox the program writes to it directly."""
    network: bool = False
    secrets: tuple[tuple[str, str], ...] = ()
    """Name and value. Never logged, never in an argument list."""

    def __repr__(self) -> str:
        names = ", ".join(name for name, _ in self.secrets)
        return (
            f"ProgramPermissions(workspace={self.workspace!r}, writable={self.writable}, "
            f"network={self.network}, secrets=<{names}>)"
        )


class Overlay(NamedTuple):
    """An overlay over a workspace: what the program writes lands in `upper`."""

    workspace: str
    upper: str
    work: str
    """A folder of the kernel's, beside `upper`."""
    mounted_by: Literal["launcher", "bwrap"] = "launcher"
    hidden: tuple[str, ...] = ()
    """Files and folders that the launcher covers by empty ones."""
    scratch: str = ""
    """The program's scratch folder and home, beside `upper`."""


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
    overlay: Overlay | None = None

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
    reason: Literal["", "memory", "processes", "written", "killed", "cannot-start", "lost"] = ""
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
    """Cancels a call that is running: any object with this method."""

    def fileno(self) -> int:
        """A descriptor that becomes readable when the call is cancelled."""
        ...


def is_cancelled(cancel: Cancel) -> bool:
    """Whether a call was cancelled."""
    poll = select.poll()  # not `select`: descriptor numbers may be too high
    poll.register(cancel.fileno(), select.POLLIN)
    return bool(poll.poll(0))


class LiveOutput(Protocol):
    """Gets what a script writes while it runs."""

    def __call__(self, stream: Literal["stdout", "stderr"], data: bytes, /) -> None:
        """Get the next bytes, which are untrusted."""
        ...


class ScriptInput(NamedTuple):
    """What a script gets: it exchanges no JSON, so its output is what it prints."""

    args: tuple[str, ...] = ()
    """Arguments of its command line."""
    stdin: str = ""
    live: LiveOutput | None = None


class RunRequest(NamedTuple):
    """One call of one tool, or one run of a script."""

    skill: str
    """The `ref` of the skill, for the queue."""
    tool: str
    arguments: Mapping[str, Any]
    """Checked, with defaults."""
    program: Program
    permissions: ProgramPermissions = ProgramPermissions()
    limits: ProgramLimits = ProgramLimits()
    several: bool = False
    """Whether the program serves several tools, so that the request names one."""
    cancel: Cancel | None = None
    own: bool = False
    """Whether the skill is the user's own: the setting `sandbox = own` runs it without a
    sandbox."""
    key: str = ""
    """Idempotency key, the same for every repetition of the call."""
    protected: tuple[str, ...] = ()
    """Absolute paths in a writable workspace to which no change is ever applied, existing or not:
    folders of skills, their lockfiles. `change_rules` adds what every workspace has."""
    script: ScriptInput | None = None
    """Set when the program is a script; `arguments` are not sent then."""


# --- proposed changes ---------------------------------------------------------------------

ChangeKind = Literal["created", "changed", "deleted"]


class WorkspaceState(NamedTuple):
    """What identifies a workspace at the start of a run."""

    path: str
    device: int
    inode: int
    began_ns: int
    """What changed in the workspace after this moment conflicts with the program's changes."""


class Change(NamedTuple):
    """One proposed change of a file or link in the workspace."""

    path: str
    """Relative to the workspace, with `/`."""
    kind: ChangeKind
    old_size: int | None = None
    """Bytes of the file as it is; None when it is created."""
    new_size: int | None = None
    """Bytes of the file as it would be; None when it is deleted."""
    executable: bool = False
    """Whether the file would be executable."""
    link: str = ""
    """The target, where it would be a link."""
    needs_consent: bool = False
    """Whether the file runs automatically or changes how other programs behave."""
    was_executable: bool = False
    """Whether the file is executable."""


class RefusedChange(NamedTuple):
    """A change that is never applied."""

    path: str
    reason: Message


class ApplyResult(NamedTuple):
    """The result of applying accepted changes: all were applied, or none."""

    applied: tuple[Change, ...] = ()
    conflicts: tuple[str, ...] = ()
    """Paths that the user changed since the program started."""
    trouble: str = ""
    """Why the workspace could not be written."""
    kept: tuple[str, ...] = ()
    """Accepted deletions that were not made: the file was moved to where nothing is applied."""


class ChangeProposal(Protocol):
    """The changes that one run proposes: the receiver applies accepted ones, or discards all."""

    changes: tuple[Change, ...]
    """What may be applied, by path."""
    refused: tuple[RefusedChange, ...]
    """What is never applied."""
    scratch_files: tuple[str, ...]
    """Files that the program left in its scratch folder, which goes; relative to it."""
    empty_folders: tuple[str, ...]
    """New folders without files, which are not made."""

    @property
    def permitted(self) -> tuple[Change, ...]:
        """The changes that need no consent of their own."""
        ...

    def diff(self, change: Change) -> str:
        """A unified diff of a text file; empty for a link, and for what is binary or too long."""
        ...

    def apply(self, changes: Iterable[Change]) -> ApplyResult:
        """Apply accepted changes, all or none, and discard the others."""
        ...

    def discard(self) -> None:
        """Remove what the program wrote; idempotent."""
        ...


class RunResult(NamedTuple):
    """The result of a call."""

    output: str = ""
    """The output of the reply, or what a script wrote to stdout, also when it failed."""
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
    changes: ChangeProposal | None = None
    """What a program that may write proposes: the receiver applies or discards it."""
    stderr: str = ""
    exit_code: int | None = None
    peak: int = 0
    """Peak memory in bytes."""
    waited_ms: float = 0.0
    """Time in the queue."""
    ran_ms: float = 0.0
    """Time from the start of the process to the reply."""
    raw: str = ""
    """The beginning of stdout as written."""
