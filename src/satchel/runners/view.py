"""What does a program get to see? Paths and variables, the same for every tier.

A path that is not named here, by the runtime or by the user's own declaration, is not seen. Nothing
asks for the user's home: a workspace that would show it is refused.
"""

from __future__ import annotations

import os
import sys
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from satchel._language import say
from satchel.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Iterable

    from satchel.runners.base import Powers, Program

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store")
_ETC = ("ld.so.cache", "alternatives", "localtime", "ssl/openssl.cnf")
"""Node ends at once when it may not read the last one."""
_ETC_NETWORK = (
    "resolv.conf", "hosts", "nsswitch.conf", "gai.conf", "services", "protocols", "ssl/certs",
    "ssl/cert.pem", "pki/tls/certs", "pki/ca-trust/extracted", "ca-certificates",
)  # fmt: skip
"""Names and certificates; never a folder with private keys."""
_PROC = ("self", "cpuinfo", "meminfo", "stat")
"""Landlock: of `/proc`, itself and what is the same for everybody. Node reads its own memory use
and the number of processors there; command lines of other processes stay unread."""
_READ_DEVICES = ("zero", "random", "urandom")
_WRITE_DEVICES = ("null",)
_KEPT = ("LANG", "LANGUAGE", "TZ")


class Interpreter(NamedTuple):
    """A Python to make environments from."""

    executable: str
    tag: str
    """Which one: environments of another are not used."""
    read: tuple[str, ...]
    """What it needs to see of the disk."""


def find_interpreter() -> Interpreter:
    """The Python below the one that runs Satchel.

    It needs its prefix, or only its own parts of one that is the system's.
    """
    executable = getattr(sys, "_base_executable", None) or sys.executable
    prefix, real = sys.base_prefix, os.path.realpath(executable)
    stdlib = os.path.dirname(os.path.realpath(os.__file__))
    if prefix not in {"/", "/usr", "/usr/local"}:
        paths = (prefix, os.path.realpath(prefix), real, executable)
    else:
        shared = os.path.join(prefix, "lib", f"lib{os.path.basename(stdlib)}.so.1.0")
        paths = (real, executable, stdlib, shared)
    tag = f"{sys.implementation.cache_tag}-{sys.platform}"
    return Interpreter(executable, tag, without_nested(filter(os.path.exists, paths)))


def environment(
    program: Program, powers: Powers, scratch: str, path: str
) -> tuple[tuple[str, str], ...]:
    """The program's variables, made from nothing: the user's own are nobody's business."""
    env = dict(powers.secrets)
    env |= {
        name: value for name, value in os.environ.items() if name in _KEPT or name.startswith("LC_")
    }
    env["PATH"] = path
    env.update(program.env)
    env["HOME"] = env["TMPDIR"] = env["SATCHEL_SCRATCH"] = scratch
    env["SATCHEL_SKILL_DIR"] = program.folder
    if powers.workspace:
        env["SATCHEL_WORKSPACE"] = os.path.realpath(powers.workspace)
    return tuple(env.items())


@lru_cache(maxsize=2)
def system(*, network: bool) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    """Paths of the system that every program needs, and links among them: what, where."""
    names = _ETC + (_ETC_NETWORK if network else ())
    read: list[str] = []
    links: list[tuple[str, str]] = []
    for path in (*_SYSTEM, *(f"/etc/{name}" for name in names)):
        # Some systems keep the resolver's file below /run, which is not seen.
        if os.path.islink(path) and path != "/etc/resolv.conf":
            links.append((os.readlink(path), path))
        elif os.path.exists(path):
            read.append(path)
    return tuple(read), tuple(links)


def devices() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Landlock: what of `/proc` and `/dev` may be read, and what may be written too."""
    readable = (*(f"/proc/{name}" for name in _PROC), *(f"/dev/{name}" for name in _READ_DEVICES))
    return readable, tuple(f"/dev/{name}" for name in _WRITE_DEVICES)


def guards(workspace: str, folder: str, names: Iterable[str] = ()) -> tuple[str, ...]:
    """What stays as it is inside a workspace that may be written, as far as it exists.

    Args:
        workspace: The real path of the folder.
        folder: The skill's own.
        names: What else is guarded; absolute paths, there or not.
    """
    from satchel.runners.guards import FIXED, resolve

    fixed = (os.path.join(workspace, name) for name in FIXED)
    found = list(resolve(workspace, (*fixed, *names))[0])
    if beneath(folder, workspace):
        beside = os.path.dirname(folder)  # the other skills lie there
        found.append(beside if beside != workspace else folder)
    return without_nested(found)


def parts(folder: str, guard: Iterable[str]) -> tuple[str, ...]:
    """Everything in a folder beside the guarded, as few paths as possible; links left out."""
    guarded = [path for path in guard if beneath(path, folder)]
    if not guarded:
        return (folder,)
    if folder in guarded:
        return ()
    found: list[str] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if not entry.is_symlink():
                found += parts(entry.path, guarded)
    return tuple(found)


def refuse_too_much(paths: Iterable[str]) -> None:
    """No skill sees a whole home, however it came to ask for it.

    Raises:
        Refused: one of the paths holds the user's home or Satchel's own files.
    """
    private = _private(os.path.expanduser("~"), *_satchels())
    for path in paths:
        if path == "/" or any(beneath(item, path) for item in private):
            raise Refused(
                say("A program must not see `{path}`: your home or Satchel's own files lie in it",
                    path=path),
                say("Use a folder of its own as the workspace"),
            )  # fmt: skip


def _satchels() -> tuple[str, str]:
    from satchel.settings import find_paths

    paths = find_paths(os.environ)
    return os.path.dirname(paths.config), paths.state


@lru_cache(maxsize=8)
def _private(*places: str) -> tuple[str, ...]:
    # For some users the home is `/` or does not exist: there is nothing in it then.
    found = [os.path.realpath(path) for path in places if os.path.isabs(path) and path != "/"]
    return tuple(found)


def without_nested(paths: Iterable[str]) -> tuple[str, ...]:
    """The same without those that lie in another."""
    kept: list[str] = []
    for path in sorted(set(filter(None, paths))):  # what lies in another comes after it
        if not any(beneath(path, root) for root in kept):
            kept.append(path)
    return tuple(kept)


def beneath(path: str, root: str) -> bool:
    """Whether `path` is `root` or lies in it."""
    return path == root or path.startswith(root if root.endswith("/") else root + "/")
