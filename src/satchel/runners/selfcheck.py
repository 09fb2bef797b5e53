"""Does a sandbox hold? Programs try to get out, and this says what came of it.

`probe(tier)` asks once per process, with a few attempts that need one process start: a version
number proves nothing. `check(tier)` tries everything and is what `satchel sandbox check` shows;
`bare()` is the control: the same attempts without a sandbox, which must succeed, or nothing was
proved. `Stage` sets up what there is to steal; tests bring programs in other languages.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from typing import TYPE_CHECKING, NamedTuple, Self

from satchel._language import listed, say
from satchel.runners.base import Limits, Powers, Program
from satchel.runners.dressing import dress
from satchel.runners.seccomp import ARCHES

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    from satchel.runners.base import Launch, Tier

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_escapes.py")
CANARY = "SATCHEL_ESCAPE_CANARY"
_QUICK = (
    "read-secret", "list-home", "write-skill", "write-workspace", "chmod-secret", "host-environ",
    "host-root", "host-cmdline", "inherited-descriptor", "host-memory", "trace-host",
    "signal-host", "limit-host", "tcp-connect", "udp-send", "unix-socket", "abstract-socket",
    "user-namespace", "mount-something", "io-uring", "kernel-keys",
)  # fmt: skip
_PATIENCE = 20.0
_SHM = 0o1600
"""IPC_CREAT, and readable by its owner alone."""


class Standing(NamedTuple):
    """What is known of one tier."""

    tier: Tier
    holds: bool
    why: str
    """What is wrong with it; nothing when it holds."""
    rows: Mapping[str, str]
    """For each attempt `escaped`, or what stopped it."""
    took_ms: float = 0.0


class Stage:
    """Things that are worth stealing, set up outside the sandbox; a context manager."""

    def __init__(self, *, everything: bool = True) -> None:
        self.root = os.path.realpath(tempfile.mkdtemp(prefix="satchel-check-"))
        self._everything = everything
        self._open = contextlib.ExitStack()
        self._buffer = ctypes.create_string_buffer(b"canary in memory")
        self.targets: dict[str, str] = {}

    def __enter__(self) -> Self:
        try:
            self._lay_out()
            self._listen()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()
        shutil.rmtree(self.root, ignore_errors=True)

    def _lay_out(self) -> None:
        names = ("home", "skill", "other", "outside", "workspace")
        places = {name: os.path.join(self.root, name) for name in names}
        secret = os.path.join(places["home"], ".ssh", "id_canary")
        for folder in (*places.values(), os.path.dirname(secret)):
            os.makedirs(folder)
        for path, text in (
            (secret, "canary: a private key"),
            (os.path.join(places["other"], "SKILL.md"), "canary: another skill"),
            (os.path.join(places["skill"], "data.txt"), "of the skill"),
            (os.path.join(places["outside"], "notes.txt"), "canary: notes"),
            (os.path.join(places["outside"], "taken.txt"), "canary: taken"),
            (os.path.join(places["outside"], "tool"), "#!/bin/sh\nexit 0\n"),
            (os.path.join(places["workspace"], "old.txt"), "of the user"),
            (os.path.join(places["workspace"], "kept.txt"), "of the user"),
        ):
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
        os.chmod(secret, 0o600)
        os.chmod(os.path.join(places["outside"], "tool"), 0o700)
        machine = os.uname().machine
        self.secret_fd = os.open(secret, os.O_RDONLY)
        self._open.callback(os.close, self.secret_fd)
        self.targets = {
            **places,
            "root": self.root,
            "secret": secret,
            "host": str(os.getpid()),
            "host_fd": str(self.secret_fd),
            "address": str(ctypes.addressof(self._buffer)),
            "numbers": json.dumps(ARCHES[machine].numbers if machine in ARCHES else {}),
            "device": _first("/dev/mem", "/dev/kmsg", "/dev/vda", "/dev/sda", "/dev/loop0"),
            "release_agent": _release_agent(),
            "shm_file": "/dev/shm/none",  # noqa: S108 - what a program would look for
            "shm_id": "-1",
        }

    def _listen(self) -> None:
        for name, kind in (("tcp", socket.SOCK_STREAM), ("udp", socket.SOCK_DGRAM)):
            own = self._socket(socket.AF_INET, kind)
            own.bind(("127.0.0.1", 0))
            self.targets[name] = str(own.getsockname()[1])
            if name == "tcp":
                own.listen()
        path = os.path.join(self.root, "docker.sock")
        abstract = os.path.basename(self.root)
        for address in (path, "\0" + abstract):
            own = self._socket(socket.AF_UNIX, socket.SOCK_STREAM)
            own.bind(address)
            own.listen(64)
        log = os.path.join(self.root, "log.sock")
        self._socket(socket.AF_UNIX, socket.SOCK_DGRAM).bind(log)
        self.targets |= {"unix": path, "abstract": abstract, "unix_datagram": log}
        if not self._everything:
            return
        shared = f"/dev/shm/{abstract}-memory"  # noqa: S108 - removed below
        with contextlib.suppress(OSError), open(shared, "x", encoding="utf-8") as file:
            file.write("canary")
            self._open.callback(os.unlink, shared)
            self.targets["shm_file"] = shared
        libc = ctypes.CDLL(None)
        number = libc.shmget(0, 4096, _SHM)
        if number >= 0:
            self._open.callback(libc.shmctl, number, 0, None)
            self.targets["shm_id"] = str(number)

    def _socket(self, family: int, kind: int) -> socket.socket:
        return self._open.enter_context(socket.socket(family, kind))


def probe(tier: Tier) -> Standing:
    """Whether a tier holds here; tried once per process, then remembered."""
    found = _known.get(tier)
    if found is None:
        found = _known[tier] = check(tier, only=_QUICK)
    return found


_known: dict[str, Standing] = {}


def check(tier: Tier, only: Sequence[str] = ()) -> Standing:
    """Try to get out of a tier; everything when `only` names nothing."""
    began = time.perf_counter()
    missing = _missing(tier)
    if missing:
        return Standing(tier, holds=False, why=missing, rows={})
    with Stage(everything=not only) as stage:
        targets = {**stage.targets, "only": ",".join(only)}
        program = python_program(stage.targets["skill"], targets)
        powers = Powers(workspace=stage.targets["workspace"])
        limits = Limits(timeout=_PATIENCE)
        with contextlib.nullcontext() if only else _canary():
            launch = dress(program, powers, limits, tier)
        said, trouble = run(launch)
    return _judge(tier, said, trouble, only, began)


@contextlib.contextmanager
def _canary() -> Generator[None, None, None]:
    """A variable of the host that dressing must drop. Not for a host with threads."""
    os.environ[CANARY] = "canary"
    try:
        yield
    finally:
        del os.environ[CANARY]


def bare(only: Sequence[str] = ()) -> Standing:
    """The control: the same attempts by an ordinary child."""
    began = time.perf_counter()
    with Stage() as stage:
        targets = {**stage.targets, "only": ",".join(only)}
        program = python_program(stage.targets["skill"], targets)
        said, trouble = run_bare(program.argv, stage)
    return _judge("none", said, trouble, only, began)


def python_program(folder: str, targets: Mapping[str, str]) -> Program:
    """The attempts in Python, as a skill's program."""
    here = os.path.realpath(sys.executable)
    read = (PROGRAM, here, *_homes_of_python())
    argv = (here, "-I", "-S", PROGRAM, json.dumps(dict(targets)))
    return Program(argv, folder, "python", read=read)


def run(launch: Launch) -> tuple[str, str]:
    """Start a program, wait for its end; what it said, and what it complained about."""
    from satchel.runners.launcher import CannotStart, launcher

    try:
        process = launcher().start(launch)
    except CannotStart as exc:
        return "", str(exc)
    try:
        os.close(process.stdin)
        process.stdin = -1
        until = time.monotonic() + _PATIENCE
        said, complaint = _drain(process.stdout, process.stderr, until)
        # A busy machine reports the end late; a tier must not be given up for that.
        ended = process.wait(max(1.0, until - time.monotonic()))
    finally:
        process.close()
    if ended is not None and ended.detail:
        complaint = ended.detail
    if ended is None or ended.code:
        complaint = complaint or f"ended with {ended.code if ended else 'nothing'}"
    elif said:
        complaint = ""
    return said, complaint


def run_bare(argv: Sequence[str], stage: Stage) -> tuple[str, str]:
    """Start a program as most hosts do: with the environment, and whatever is open."""
    scratch = os.path.join(stage.root, "scratch")
    os.makedirs(scratch, exist_ok=True)
    done = subprocess.run(  # noqa: S603 - our own program
        list(argv),
        cwd=scratch,
        env={**os.environ, CANARY: "canary", "SATCHEL_SCRATCH": scratch},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        pass_fds=(stage.secret_fd,),
        timeout=_PATIENCE,
        check=False,
    )
    return done.stdout, done.stderr if done.returncode else ""


def rows_of(said: str) -> dict[str, str]:
    """What a program wrote: attempt and outcome."""
    return dict(line.split("\t", 1) for line in said.splitlines() if "\t" in line)


def _judge(tier: Tier, said: str, trouble: str, only: Sequence[str], began: float) -> Standing:
    rows = rows_of(said)
    took = (time.perf_counter() - began) * 1e3
    out = [name for name, outcome in rows.items() if outcome == "escaped"]
    untried = [name for name in only if name not in rows]
    if trouble or not rows or untried:
        why = trouble.strip().splitlines()[-1] if trouble.strip() else ""
        why = why or say("not every attempt was made")
    else:
        why = say("a program got out by {names}", names=listed(out)) if out else ""
    return Standing(tier, not why, why, rows, took)


def _missing(tier: Tier) -> str:
    """What a tier needs and is not here; found without starting anything."""
    if not sys.platform.startswith("linux"):
        return say("only Linux has it")
    if os.uname().machine not in ARCHES:
        return say("not written for {machine}", machine=os.uname().machine)
    if tier == "bwrap":
        from satchel.runners.bwrap import find_bwrap

        return "" if find_bwrap() else say("bubblewrap is not installed")
    from satchel.runners._confine import LOWEST_ABI, landlock_abi

    abi = landlock_abi()
    if abi >= LOWEST_ABI:
        return ""
    return say("Linux 6.12 is needed: Landlock {needed}, here {abi}", needed=LOWEST_ABI, abi=abi)


def _homes_of_python() -> tuple[str, ...]:
    """What the interpreter needs to start: its library, and libpython if that is a file."""
    import sysconfig

    names = ("stdlib", "platstdlib")
    found = [os.path.realpath(sysconfig.get_paths()[name]) for name in names]
    library = sysconfig.get_config_var("LIBDIR")
    shared = sysconfig.get_config_var("LDLIBRARY")
    if library and shared and str(shared).endswith(".so"):
        path = os.path.join(str(library), str(shared) + ".1.0")
        found += [path] if os.path.exists(path) else []
    return tuple(found)


def _drain(out: int, err: int, deadline: float) -> tuple[str, str]:
    import select

    kept = {out: b"", err: b""}
    left = {out, err}
    poll = select.poll()
    for fd in left:
        poll.register(fd, select.POLLIN | select.POLLHUP)
    while left and (wait := deadline - time.monotonic()) > 0:
        for fd, _ in poll.poll(wait * 1000):
            part = os.read(fd, 65536)
            kept[fd] += part
            if not part:
                left.discard(fd)
                poll.unregister(fd)
    return kept[out].decode(errors="replace"), kept[err].decode(errors="replace")


def _first(*paths: str) -> str:
    return next((path for path in paths if os.path.exists(path)), paths[0])


def _release_agent() -> str:
    base = "/sys/fs/cgroup"
    with contextlib.suppress(OSError):
        for name in sorted(os.listdir(base)):
            path = os.path.join(base, name, "release_agent")
            if os.path.exists(path):
                return path
    return os.path.join(base, "cgroup.procs")
