"""Turns a program or a build tool into a `Launch` for one tier of sandbox.

Both tiers give the same view (`view`): the skill's folder and its runtime read-only, a scratch
folder that is also its home, the workspace as declared, no network unless declared, and an
environment made from nothing. They differ in how the rest is kept away: bwrap does not show it,
Landlock does not let it be opened.
"""

from __future__ import annotations

import os
import sys
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from satchel._language import say
from satchel.errors import Refused
from satchel.runners.base import Launch, Limits

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from satchel.runners.base import Powers, Program, Tier

# --- bubblewrap ---------------------------------------------------------------------------
# bwrap itself is started with an empty environment: `--clearenv` would leave the caller's whole
# environment readable in `/proc/1/environ`. Options, and with them secrets, never stand on a
# command line. What is not bound does not exist inside: no home, no `/run`, no `/var`, no `/sys`.
# Each bind costs about 0.03 ms, so the list is short but not shorter than it should be.

_BWRAP_PLACES = ("/usr/bin", "/usr/local/bin", "/bin", "/run/current-system/sw/bin")
"""Not PATH: a project may have put a folder of its own there."""
_INSIDE = "1000"
"""Who root is inside: an ordinary user. Everybody else keeps their number."""
_HOLD = (
    "--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent", "--new-session",
    "--cap-drop", "ALL", "--hostname", "sandbox",
)  # fmt: skip
_DEVICES = ("null", "zero", "random", "urandom")


class View(NamedTuple):
    """What a program gets to see; every path is absolute."""

    read: tuple[str, ...]
    """Folders and files, at their own places."""
    links: tuple[tuple[str, str], ...] = ()
    """Links of the system: what they say, where they are."""
    write: tuple[str, ...] = ()
    guard: tuple[str, ...] = ()
    """Inside what may be written, and yet only to be read."""
    scratch: str = "/tmp"  # noqa: S108 - a place inside the sandbox, in memory
    cwd: str = "/"
    scratch_size: int = 0
    network: bool = False
    env: tuple[tuple[str, str], ...] = ()


def find_bwrap() -> str:
    """Where bubblewrap is installed; nothing when it is not."""
    for folder in _BWRAP_PLACES:
        path = os.path.join(folder, "bwrap")
        if os.access(path, os.X_OK):
            return path
    return ""


def command(bwrap: str, argv: Iterable[str]) -> tuple[str, ...]:
    """The command line. The launcher adds which descriptors hold the options and the filter."""
    return (bwrap, "--", *argv)


def options(view: View) -> bytes:
    """The options, each ended by NUL."""
    words = [*_HOLD]
    if view.network:
        words.append("--share-net")
    if os.geteuid() == 0:
        words += ["--uid", _INSIDE, "--gid", _INSIDE]
    for said, place in view.links:
        words += ["--symlink", said, place]
    words += ["--proc", "/proc", *_devices(view.scratch)]
    words += ["--size", str(view.scratch_size), "--perms", "0700", "--tmpfs", view.scratch]
    words += _binds(view)
    # The root is memory, too: without this it could be filled without a limit. And root of the
    # host, whatever its number inside, would still own the files below `/proc/sys`.
    words += ["--remount-ro", "/proc", "--remount-ro", "/", "--chdir", view.cwd]
    for name, value in view.env:
        words += ["--setenv", name, value]
    return b"".join(os.fsencode(word) + b"\0" for word in words)


def _devices(scratch: str) -> list[str]:
    words = ["--dir", "/dev", "--symlink", scratch, "/dev/shm"]  # noqa: S108 - inside
    words += ["--symlink", "/proc/self/fd", "/dev/fd"]
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        words += ["--symlink", f"/proc/self/fd/{number}", f"/dev/{name}"]
    for name in _DEVICES:
        words += ["--dev-bind", f"/dev/{name}", f"/dev/{name}"]
    return words


def _binds(view: View) -> list[str]:
    """Shallow paths first, so that a deeper one is not covered; reading wins over writing."""
    how = dict.fromkeys(view.write, "--bind")
    for path in view.guard:
        # A folder above a guarded one could be renamed away, and another put in its place: a
        # mount point cannot.
        above = os.path.dirname(path)
        while any(above.startswith(root + "/") for root in view.write):
            how.setdefault(above, "--bind")
            above = os.path.dirname(above)
    how.update(dict.fromkeys(view.read, "--ro-bind-try"))
    how.update(dict.fromkeys(view.guard, "--ro-bind"))
    words: list[str] = []
    for path in sorted(how, key=lambda path: path.count("/")):
        words += [how[path], path, path]
    return words


# --- what a program sees ------------------------------------------------------------------
# A path that is not named here, by the runtime or by the user's own declaration, is not seen.
# Nothing asks for the user's home: a workspace that would show it is refused.

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
