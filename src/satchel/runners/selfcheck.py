"""Checks that a sandbox holds, by programs that try to leave it (`_probes`).

`check(tier)` makes every attempt in one process start: a version number proves nothing. `bare()` is
the control: the same attempts without a sandbox, which must succeed, or nothing was proved.
`probe(tier)` remembers the result for this process. `Stage` sets up what there is to reach.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING, NamedTuple, Self

from satchel._language import listed, say
from satchel.runners import _probes
from satchel.runners.base import Limits, Powers, Program
from satchel.runners.dressing import dress
from satchel.runners.seccomp import ARCHES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from satchel.runners.base import Launch, Tier

PROGRAM = os.path.abspath(_probes.__file__)
_PATIENCE = 20.0


class Standing(NamedTuple):
    """What is known of one tier."""

    tier: Tier
    holds: bool
    why: str
    """What is wrong with it; nothing when it holds."""
    rows: Mapping[str, str]
    """For each attempt `escaped`, or what stopped it."""


class Stage:
    """Files, sockets and descriptors outside the sandbox; a context manager."""

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
        own = self._open.enter_context(socket.socket(family, kind))
        own.bind(address)
        if kind == socket.SOCK_STREAM:
            own.listen(64)
        return own


def probe(tier: Tier) -> Standing:
    """Whether a tier holds here; tried once per process, then remembered."""
    found = _known.get(tier)
    if found is None:
        found = _known[tier] = check(tier)
    return found


_known: dict[str, Standing] = {}


def check(tier: Tier) -> Standing:
    """Make every attempt inside a tier."""
    missing = _missing(tier)
    if missing:
        return Standing(tier, holds=False, why=missing, rows={})
    with Stage() as stage:
        program = python_program(stage.targets["skill"], stage.targets)
        powers = Powers(workspace=stage.targets["workspace"])
        said, trouble = run(dress(program, powers, Limits(timeout=_PATIENCE), tier))
    return _judge(tier, said, trouble)


def bare() -> Standing:
    """The control: the same attempts by an ordinary child."""
    with Stage() as stage:
        program = python_program(stage.targets["skill"], stage.targets)
        said, trouble = run_bare(program.argv, stage)
    return _judge("none", said, trouble)


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
        return "", exc.args[0]
    try:
        os.close(process.stdin)
        process.stdin = -1
        ended = process.wait(_PATIENCE)
        said, complaint = _written(process.stdout), _written(process.stderr)
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
        env={**os.environ, "SATCHEL_SCRATCH": scratch},
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


def _judge(tier: Tier, said: str, trouble: str) -> Standing:
    rows = rows_of(said)
    out = [name for name, outcome in rows.items() if outcome == "escaped"]
    if trouble or rows.keys() != _probes.PROBES.keys():
        why = trouble.strip().splitlines()[-1] if trouble.strip() else ""
        why = why or say("not every attempt was made")
    else:
        why = say("a program got out by {names}", names=listed(out)) if out else ""
    return Standing(tier, not why, why, rows)


def _missing(tier: Tier) -> str:
    """What a tier needs and is not here; found without starting anything."""
    if not sys.platform.startswith("linux"):
        return say("only Linux has it")
    if os.uname().machine not in ARCHES:
        return say("not written for {machine}", machine=os.uname().machine)
    if tier == "bwrap":
        from satchel.runners.dressing import find_bwrap

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


def _written(end: int) -> str:
    """What a program that has ended left in a pipe, which holds 64 KB."""
    os.set_blocking(end, False)
    try:
        return os.read(end, 1 << 16).decode(errors="replace")
    except BlockingIOError:
        return ""
