"""Sandbox tiers: tests them with programs that try to escape (`_probes`), and selects one.

    bwrap      namespaces and seccomp: what is not mounted does not exist
    landlock   Landlock and seccomp: what is not granted cannot be opened
    none       an ordinary process, only where the user's settings permit it

`check(tier)` makes every attempt in one process start: a version number proves nothing.
`probe(tier)` caches the result for this process. `ProbeStage` sets up the targets.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import sys
import tempfile
from typing import TYPE_CHECKING, NamedTuple, Self

from satchel.errors import Unsandboxed
from satchel.i18n import join_names, say
from satchel.runners import _probes
from satchel.runners.base import Program, ProgramLimits, ProgramPermissions
from satchel.runners.sandbox import find_bwrap, find_interpreter, sandboxed_launch
from satchel.runners.seccomp import ARCHES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from satchel.runners.base import Launch, Tier
    from satchel.settings import Settings

PROGRAM = os.path.abspath(_probes.__file__)
_PROBE_TIMEOUT_S = 20.0


class TierState(NamedTuple):
    """The result of the self-check for one tier."""

    tier: Tier
    holds: bool
    why: str
    """The reason when it does not hold."""
    rows: Mapping[str, str]
    """For each attempt `escaped`, or what denied it."""


class ProbeStage:
    """Targets outside the sandbox: files, sockets and descriptors; a context manager."""

    def __init__(self) -> None:
        self.root = os.path.realpath(tempfile.mkdtemp(prefix="satchel-check-"))
        self.targets: dict[str, str] = {}
        self.secret_fd = -1
        self._open = contextlib.ExitStack()

    def __enter__(self) -> Self:
        try:
            self._set_up()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()
        shutil.rmtree(self.root, ignore_errors=True)

    def _set_up(self) -> None:
        places = {name: os.path.join(self.root, name) for name in ("home", "skill", "workspace")}
        for folder in places.values():
            os.makedirs(folder)
        secret = os.path.join(places["home"], "id_canary")
        with open(secret, "w", encoding="utf-8") as file:
            file.write("canary: a private key")
        os.chmod(secret, 0o600)
        self.secret_fd = os.open(secret, os.O_RDONLY)
        self._open.callback(os.close, self.secret_fd)
        path, abstract = os.path.join(self.root, "docker.sock"), os.path.basename(self.root)
        tcp = self._listen(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0))
        udp = self._listen(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0))
        self._listen(socket.AF_UNIX, socket.SOCK_STREAM, path)
        self._listen(socket.AF_UNIX, socket.SOCK_STREAM, "\0" + abstract)
        self.targets = {
            **places,
            "secret": secret,
            "host": str(os.getpid()),
            "tcp": str(tcp.getsockname()[1]),
            "udp": str(udp.getsockname()[1]),
            "unix": path,
            "abstract": abstract,
        }

    def _listen(self, family: int, kind: int, address: str | tuple[str, int]) -> socket.socket:
        listener = self._open.enter_context(socket.socket(family, kind))
        listener.bind(address)
        if kind == socket.SOCK_STREAM:
            listener.listen(64)
        return listener


def probe(tier: Tier) -> TierState:
    """Whether a tier holds here; checked once per process."""
    state = _known.get(tier)
    if state is None:
        state = _known[tier] = check(tier)
    return state


_known: dict[str, TierState] = {}


def check(tier: Tier) -> TierState:
    """Run every attempt inside a tier."""
    missing = missing_requirement(tier)
    if missing:
        return TierState(tier, holds=False, why=missing, rows={})
    with ProbeStage() as stage:
        program = python_program(stage.targets["skill"], stage.targets)
        permissions = ProgramPermissions(workspace=stage.targets["workspace"])
        output, trouble = run(
            sandboxed_launch(program, permissions, ProgramLimits(timeout=_PROBE_TIMEOUT_S), tier)
        )
    return _evaluate(tier, output, trouble)


def python_program(folder: str, targets: Mapping[str, str]) -> Program:
    """The attempts as a skill's Python program."""
    python = find_interpreter()
    argv = (python.executable, "-I", "-S", PROGRAM, json.dumps(dict(targets)))
    return Program(argv, folder, "python", read=(PROGRAM, *python.read))


def run(launch: Launch) -> tuple[str, str]:
    """Run a program to its end; returns its output and its error, if any."""
    from satchel.runners.base import CannotStart
    from satchel.runners.launcher import launcher

    try:
        process = launcher().start(launch)
    except CannotStart as exc:
        return "", exc.args[0]
    try:
        os.close(process.stdin)
        process.stdin = -1
        ended = process.wait(_PROBE_TIMEOUT_S)
        output, error = _remaining(process.stdout), _remaining(process.stderr)
    finally:
        process.close()
    if ended is not None and ended.detail:
        error = ended.detail
    if ended is None or ended.code:
        error = error or f"ended with {ended.code if ended else 'nothing'}"
    elif output:
        error = ""
    return output, error


def parse_rows(output: str) -> dict[str, str]:
    """The outcome of each attempt."""
    return dict(line.split("\t", 1) for line in output.splitlines() if "\t" in line)


def _evaluate(tier: Tier, output: str, trouble: str) -> TierState:
    rows = parse_rows(output)
    out = [name for name, outcome in rows.items() if outcome == "escaped"]
    if trouble or rows.keys() != _probes.PROBES.keys():
        why = trouble.strip().splitlines()[-1] if trouble.strip() else ""
        why = why or say("not every attempt was made")
    else:
        why = say("a program got out by {names}", names=join_names(out)) if out else ""
    return TierState(tier, not why, why, rows)


def missing_requirement(tier: Tier) -> str:
    """What a tier needs and this machine lacks; found without starting a process."""
    if not sys.platform.startswith("linux"):
        return say("only Linux has it")
    if os.uname().machine not in ARCHES:
        return say("not written for {machine}", machine=os.uname().machine)
    if tier == "bwrap":
        return "" if find_bwrap() else say("`{name}` is not installed", name="bubblewrap")
    from satchel.runners._landlock import MIN_LANDLOCK_ABI, landlock_abi

    abi = landlock_abi()
    if abi >= MIN_LANDLOCK_ABI:
        return ""
    return say(
        "Linux 6.12 is needed: Landlock {needed}, here {abi}", needed=MIN_LANDLOCK_ABI, abi=abi
    )


def _remaining(end: int) -> str:
    os.set_blocking(end, False)
    try:
        return os.read(end, 1 << 16).decode(errors="replace")
    except BlockingIOError:
        return ""


# --- choice -------------------------------------------------------------------------------

TIERS: tuple[Tier, ...] = ("bwrap", "landlock")
"""The strongest first."""


def choose_tier(
    settings: Settings, *, own: bool = False, ask: Callable[[Tier], TierState] | None = None
) -> Tier:
    """The tier for a program.

    Raises:
        Unsandboxed: no tier works, and the settings do not permit to run without.
    """
    if sys.platform == "win32":
        raise Unsandboxed(say("Programs of skills do not run on Windows"), missing_hint())
    if settings.sandbox == "off":
        return "none"
    reasons: list[str] = []
    for tier in TIERS:
        state = (ask or probe)(tier)
        if state.holds:
            return tier
        reasons.append(f"{tier}: {state.why}")
    if settings.sandbox == "own" and own:
        return "none"
    raise Unsandboxed(
        say("There is no sandbox here to run a program in ({reasons})", reasons="; ".join(reasons)),
        missing_hint(),
    )


def missing_hint() -> str:
    """What to do where no tier holds."""
    if sys.platform == "win32":
        return say("Use Satchel in the Windows Subsystem for Linux, where the sandbox works")
    if sys.platform == "linux":
        return say(
            "Install bubblewrap, or run `satchel config sandbox` to see what is missing; "
            "`SATCHEL_SANDBOX=own` runs your own skills without one"
        )
    return say(
        "The sandbox needs Linux. `SATCHEL_SANDBOX=off` runs programs of skills without one: each "
        "call then needs approval, and can do whatever you can do"
    )
