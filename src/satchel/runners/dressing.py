"""What does one program get? Its launch, dressed for a tier.

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
from satchel.runners.view import (
    PATH,
    beneath,
    devices,
    environment,
    guards,
    parts,
    refuse_too_much,
    system,
    without_nested,
)

if TYPE_CHECKING:
    from satchel.runners.base import Powers, Program, Tier

_LIMITS = Limits()
_PLACES = ("/tmp", "/scratch", "/satchel-scratch")  # noqa: S108 - places inside bwrap
"""Where the scratch folder may be: the first one that shares nothing with what the program sees."""
_SCRATCH_FILES = 4
"""The scratch folder in memory holds as much as this many of the largest files."""


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
    shown = workspace if writable else ""
    read = seen if writable or not workspace else (*seen, workspace)
    if tier == "landlock":
        # It grants whole trees: where something is guarded, everything beside it.
        write = parts(workspace, guard) if writable else ()
        read = (*read, workspace) if guard else read
        return _landlock(program, powers, limits, read, write)
    return _bwrap(program, powers, limits, read, shown, guard)


def _landlock(
    program: Program,
    powers: Powers,
    limits: Limits,
    read: tuple[str, ...],
    write: tuple[str, ...],
) -> Launch:
    scratch = _make_scratch()
    readable, writable = devices()
    return Launch(
        program.argv,
        environment(program, powers, scratch, PATH),
        os.path.realpath(powers.workspace) if powers.workspace else scratch,
        "landlock",
        seccomp=_filter(network=powers.network, unix=False, landlock=True),
        read=(*system(network=powers.network)[0], *readable, *read),
        write=(scratch, *writable, *write),
        limits=limits,
        scratch=scratch,
        network=powers.network,
    )


def _bwrap(
    program: Program,
    powers: Powers,
    limits: Limits,
    read: tuple[str, ...],
    write: str,
    guard: tuple[str, ...],
) -> Launch:
    from satchel.runners.bwrap import View, command, find_bwrap, options

    bwrap = find_bwrap() or "/usr/bin/bwrap"  # the launcher says that it is missing
    workspace = os.path.realpath(powers.workspace) if powers.workspace else ""
    scratch = _free_place((*read, write) if write else read)
    # Shared network, shared abstract sockets: without Landlock no unix sockets at all.
    scoped = powers.network and _can_scope(bwrap)
    paths, links = system(network=powers.network)
    view = View(
        read=without_nested((*paths, *read)),
        links=links,
        write=(write,) if write else (),
        guard=guard,
        scratch=scratch,
        cwd=workspace or scratch,
        scratch_size=limits.file_size * _SCRATCH_FILES,
        network=powers.network,
        env=environment(program, powers, scratch, PATH),
    )
    return Launch(
        command(bwrap, program.argv),
        (),
        "/",
        "bwrap",
        arguments=options(view),
        seccomp=_filter(network=powers.network, unix=scoped or not powers.network, landlock=False),
        limits=limits,
        network=powers.network,
        scoped=scoped,
    )


def _free_place(bound: tuple[str, ...]) -> str:
    """Where nothing is bound, above or below: else its folders would outlast an emptying."""
    for place in _PLACES:
        if not any(beneath(path, place) or beneath(place, path) for path in bound):
            return place
    return _PLACES[-1]


@lru_cache(maxsize=8)
def _filter(*, network: bool, unix: bool, landlock: bool) -> bytes:
    from satchel.runners.seccomp import build_filter

    return build_filter(os.uname().machine, network=network, unix=unix, landlock=landlock)


@lru_cache(maxsize=4)
def _can_scope(bwrap: str) -> bool:
    """Whether Landlock may come before bwrap; one that is set-user-id could not start then."""
    from satchel.runners._confine import LOWEST_ABI, landlock_abi

    try:
        return landlock_abi() >= LOWEST_ABI and not os.stat(bwrap).st_mode & 0o4000
    except OSError:
        return False


def _make_scratch() -> str:
    """A folder of the program's own; the launcher removes it when the program has ended."""
    path = os.path.join(_temporary(), f"satchel-{os.urandom(12).hex()}")
    os.mkdir(path, 0o700)
    return path


@lru_cache(maxsize=1)
def _temporary() -> str:
    import tempfile

    return os.path.realpath(tempfile.gettempdir())
