"""Turns a program or a build tool into a `Launch` for one tier of sandbox.

Both tiers give the same view (`view`): the skill's folder and its runtime read-only, a scratch
folder that is also its home, the workspace as declared, no network unless declared, and an
environment made from nothing. They differ in how the rest is kept away: bwrap does not show it,
Landlock does not let it be opened.
"""

from __future__ import annotations

import os
from functools import lru_cache
from typing import TYPE_CHECKING

from satchel.runners.base import Launch, Limits
from satchel.runners.bwrap import View, command, find_bwrap, options
from satchel.runners.view import (
    PATH,
    beneath,
    devices,
    environment,
    find_interpreter,
    guards,
    parts,
    refuse_too_much,
    system,
    without_nested,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from satchel.runners.base import Powers, Program, Tier

_LIMITS = Limits()
_BUILD_LIMITS = Limits(
    file_size=4 << 30, memory=4 << 30, processes=2048, open_files=4096, timeout=0.0
)
_PLACES = ("/tmp", "/scratch", "/satchel-scratch")  # noqa: S108 - places inside bwrap
"""Where the scratch folder may be: the first one that shares nothing with what the program sees."""
_SCRATCH_FILES = 4
"""The scratch folder in memory holds as much as this many of the largest files."""
_CONFINE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_confine.py")


def dress(
    program: Program, powers: Powers, limits: Limits = _LIMITS, tier: Tier = "none"
) -> Launch:
    """Everything the launcher needs to start `program` with `powers` and no more.

    For `landlock` and `none` it makes the scratch folder, which the launcher removes.

    Raises:
        Refused: what it would see is too much, such as a home folder.
    """
    folder = os.path.realpath(program.folder)
    seen = without_nested((program.folder, folder, *program.read))
    workspace = os.path.realpath(powers.workspace) if powers.workspace else ""
    refuse_too_much((*seen, workspace) if workspace else seen)
    if tier == "none":
        scratch = _make_scratch()
        env = environment(program, powers, scratch, os.environ.get("PATH", PATH))
        cwd = workspace or scratch
        return Launch(program.argv, env, cwd, limits=limits, scratch=scratch, network=True)
    # What lies in the skill's own folder stays as it is, whatever was declared.
    writable = powers.writable and bool(workspace) and not beneath(workspace, folder)
    guard = guards(workspace, folder, powers.guard) if writable else ()
    read = seen if writable or not workspace else (*seen, workspace)
    write = (workspace,) if writable else ()
    argv = program.argv
    if tier == "landlock":
        # It grants whole trees: where something is guarded, everything beside it.
        write = parts(workspace, guard) if writable else ()
        read = (*read, workspace) if guard else read
        scratch = _make_scratch()
    else:
        confining = _confining() if workspace and not writable and refuses_fifos() else ()
        read = (*read, *confining)
        scratch = _free_place((*read, *write))
        if confining:
            argv = (confining[0], "-I", "-S", _CONFINE, scratch, "/dev", "--", *argv)
    view = View(
        read=read,
        write=write,
        guard=guard,
        scratch=scratch,
        cwd=workspace or scratch,
        scratch_size=limits.file_size * _SCRATCH_FILES,
        network=powers.network,
        env=environment(program, powers, scratch, PATH),
    )
    return _hold(argv, view, limits, tier)


def dress_build(
    argv: tuple[str, ...],
    env: Mapping[str, str],
    cwd: str,
    read: tuple[str, ...],
    write: tuple[str, ...],
    *,
    network: bool,
    tier: Tier,
) -> Launch:
    """The launch of a build tool, which sees the system and `read`, and writes `write` alone.

    Raises:
        Refused: what it would see is too much, such as a home folder.
    """
    refuse_too_much((*read, *write))
    variables = tuple({"PATH": PATH, **env}.items())
    if tier == "none":
        return Launch(argv, variables, cwd, limits=_BUILD_LIMITS, network=True)
    view = View(
        read=read,
        write=write,
        scratch="" if tier == "landlock" else _free_place((*read, *write)),
        cwd=cwd,
        scratch_size=_LIMITS.file_size,
        network=network,
        env=variables,
    )
    return _hold(argv, view, _BUILD_LIMITS, tier)


def _hold(argv: tuple[str, ...], view: View, limits: Limits, tier: Tier) -> Launch:
    paths, links = system(network=view.network)
    seccomp = _filter(network=view.network, landlock=tier == "landlock")
    if tier == "landlock":
        readable, writable = devices()
        return Launch(
            argv,
            view.env,
            view.cwd,
            tier,
            seccomp=seccomp,
            read=(*paths, *readable, *view.read),
            write=(*filter(None, (view.scratch,)), *writable, *view.write),
            limits=limits,
            scratch=view.scratch,
            network=view.network,
        )
    return Launch(
        command(find_bwrap() or "/usr/bin/bwrap", argv),  # the launcher reports a missing one
        (),
        "/",
        tier,
        arguments=options(view._replace(read=without_nested((*paths, *view.read)), links=links)),
        seccomp=seccomp,
        limits=limits,
        network=view.network,
    )


def refuses_fifos() -> bool:
    """Whether bwrap refuses to write FIFOs of a read-only workspace: it takes Landlock."""
    from satchel.runners._confine import landlock_abi

    return landlock_abi() > 0


@lru_cache(maxsize=1)
def _confining() -> tuple[str, ...]:
    """The Python that runs `_confine.py` inside bwrap, and all that it needs to see."""
    python = find_interpreter()
    return (python.executable, _CONFINE, *python.read)


def _free_place(bound: tuple[str, ...]) -> str:
    """Where nothing is bound, above or below: else its folders would outlast an emptying."""
    for place in _PLACES:
        if not any(beneath(path, place) or beneath(place, path) for path in bound):
            return place
    return _PLACES[-1]


@lru_cache(maxsize=4)
def _filter(*, network: bool, landlock: bool) -> bytes:
    from satchel.runners.seccomp import build_filter

    return build_filter(os.uname().machine, network=network, landlock=landlock)


def _make_scratch() -> str:
    """A folder of the program's own; the launcher removes it when the program has ended."""
    path = os.path.join(_temporary(), f"satchel-{os.urandom(12).hex()}")
    os.mkdir(path, 0o700)
    return path


@lru_cache(maxsize=1)
def _temporary() -> str:
    import tempfile

    return os.path.realpath(tempfile.gettempdir())
