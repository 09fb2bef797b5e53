"""Builds the sandboxed launch specification of a program or a build tool.

Both tiers give the same view: the skill's folder and its runtime read-only, a scratch folder that
is also its home, the workspace as declared, no network unless declared, and a new environment. They
differ in how everything else is hidden: bwrap does not mount it, Landlock denies opening it.
"""

from __future__ import annotations

import os
import sys
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from satchel._fs import is_inside
from satchel.errors import Refused
from satchel.i18n import say
from satchel.runners.base import Launch, ProgramLimits

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from satchel.runners.base import Program, ProgramPermissions, Tier

# --- bubblewrap ---------------------------------------------------------------------------
# bwrap itself is started with an empty environment: `--clearenv` would leave the caller's whole
# environment readable in `/proc/1/environ`. Options, which contain secrets, are never on a command
# line. What is not bound does not exist inside: no home, no `/run`, no `/var`, no `/sys`. Each bind
# costs about 0.03 ms, so the list is short.

_BWRAP_PLACES = ("/usr/bin", "/usr/local/bin", "/bin", "/run/current-system/sw/bin")
"""Not PATH, where a project may have put a folder of its own."""
_INSIDE = "1000"
"""Uid of the host's root inside: an ordinary user. Other users keep theirs."""
_HOLD = (
    "--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent", "--new-session",
    "--cap-drop", "ALL", "--hostname", "sandbox",
)  # fmt: skip
_DEVICES = ("null", "zero", "random", "urandom")


class SandboxView(NamedTuple):
    """What a program sees; every path is absolute."""

    read: tuple[str, ...]
    """Folders and files, at the same paths."""
    links: tuple[tuple[str, str], ...] = ()
    """Links of the system: target and path."""
    write: tuple[str, ...] = ()
    guard: tuple[str, ...] = ()
    """Read-only parts of what may be written."""
    scratch: str = "/tmp"  # noqa: S108 - a place inside the sandbox, in memory
    cwd: str = "/"
    scratch_size: int = 0
    network: bool = False
    env: tuple[tuple[str, str], ...] = ()


def find_bwrap() -> str:
    """The path of bubblewrap; empty when it is not installed."""
    for folder in _BWRAP_PLACES:
        path = os.path.join(folder, "bwrap")
        if os.access(path, os.X_OK):
            return path
    return ""


def bwrap_command(bwrap: str, argv: Iterable[str]) -> tuple[str, ...]:
    """The command line, without the descriptors, which the launcher adds."""
    return (bwrap, "--", *argv)


def bwrap_options(view: SandboxView) -> bytes:
    """The options, each terminated by NUL."""
    words = [*_HOLD]
    if view.network:
        words.append("--share-net")
    if os.geteuid() == 0:
        words += ["--uid", _INSIDE, "--gid", _INSIDE]
    for target, path in view.links:
        words += ["--symlink", target, path]
    words += ["--proc", "/proc", *_devices(view.scratch)]
    words += ["--size", str(view.scratch_size), "--perms", "0700", "--tmpfs", view.scratch]
    words += _binds(view)
    # The root is in memory, too, and could be filled without a limit. And root of the host,
    # whatever its uid inside, would still own the files below `/proc/sys`.
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


def _binds(view: SandboxView) -> list[str]:
    """Shallow paths first, so that a deeper one is not covered; read-only wins."""
    how = dict.fromkeys(view.write, "--bind")
    for path in view.guard:
        # A folder above a protected one could be renamed and replaced: a mount point cannot.
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


# --- the view of a program ----------------------------------------------------------------
# Only paths that are named here, by the runtime or by the user's declaration are visible. A
# workspace that contains the user's home is refused.

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store")
_ETC = ("ld.so.cache", "alternatives", "localtime", "ssl/openssl.cnf")
"""Node exits at once when it may not read the last one."""
_ETC_NETWORK = (
    "resolv.conf", "hosts", "nsswitch.conf", "gai.conf", "services", "protocols", "ssl/certs",
    "ssl/cert.pem", "pki/tls/certs", "pki/ca-trust/extracted", "ca-certificates",
)  # fmt: skip
"""Names and certificates; never a folder with private keys."""
_PROC = ("self", "cpuinfo", "meminfo", "stat")
"""Landlock: the process itself and what is the same for everyone. Node reads its memory use and the
number of processors there; command lines of other processes stay hidden."""
_READ_DEVICES = ("zero", "random", "urandom")
_WRITE_DEVICES = ("null",)
_KEPT = ("LANG", "LANGUAGE", "TZ")


class Interpreter(NamedTuple):
    """A Python from which environments are made."""

    executable: str
    tag: str
    """Identifies it: environments of another one are not used."""
    read: tuple[str, ...]
    """Paths that it needs."""


def find_interpreter() -> Interpreter:
    """The base Python of the one that runs Satchel.

    It needs its whole prefix, or of a system prefix only its own parts.
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


def program_environment(
    program: Program, permissions: ProgramPermissions, scratch: str, path: str
) -> tuple[tuple[str, str], ...]:
    """The program's variables, without the user's own except for the locale."""
    env = dict(permissions.secrets)
    env |= {
        name: value for name, value in os.environ.items() if name in _KEPT or name.startswith("LC_")
    }
    env["PATH"] = path
    env.update(program.env)
    env["HOME"] = env["TMPDIR"] = env["SATCHEL_SCRATCH"] = scratch
    env["SATCHEL_SKILL_DIR"] = program.folder
    if permissions.workspace:
        env["SATCHEL_WORKSPACE"] = os.path.realpath(permissions.workspace)
    return tuple(env.items())


@lru_cache(maxsize=2)
def system_paths(*, network: bool) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    """Paths of the system that every program needs, and links among them: target and path."""
    names = _ETC + (_ETC_NETWORK if network else ())
    read: list[str] = []
    links: list[tuple[str, str]] = []
    for path in (*_SYSTEM, *(f"/etc/{name}" for name in names)):
        # Some systems keep the resolver's file below /run, which is hidden.
        if os.path.islink(path) and path != "/etc/resolv.conf":
            links.append((os.readlink(path), path))
        elif os.path.exists(path):
            read.append(path)
    return tuple(read), tuple(links)


def landlock_devices() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Landlock: readable paths of `/proc` and `/dev`, and writable ones."""
    readable = (*(f"/proc/{name}" for name in _PROC), *(f"/dev/{name}" for name in _READ_DEVICES))
    return readable, tuple(f"/dev/{name}" for name in _WRITE_DEVICES)


def protected_paths(workspace: str, folder: str, names: Iterable[str] = ()) -> tuple[str, ...]:
    """Existing paths that are read-only in a writable workspace."""
    from satchel.runners.workspace_guard import ALWAYS_PROTECTED, sort_paths

    fixed = (os.path.join(workspace, name) for name in ALWAYS_PROTECTED)
    found = list(sort_paths(workspace, (*fixed, *names))[0])
    if is_inside(folder, workspace):
        beside = os.path.dirname(folder)  # contains the other skills
        found.append(beside if beside != workspace else folder)
    return without_nested(found)


def unprotected_parts(folder: str, guard: Iterable[str]) -> tuple[str, ...]:
    """Everything in a folder except protected paths and links, as few paths as possible."""
    guarded = [path for path in guard if is_inside(path, folder)]
    if not guarded:
        return (folder,)
    if folder in guarded:
        return ()
    found: list[str] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if not entry.is_symlink():
                found += unprotected_parts(entry.path, guarded)
    return tuple(found)


def refuse_too_much(paths: Iterable[str]) -> None:
    """Refuse to show a whole home to a program.

    Raises:
        Refused: one of the paths contains the user's home or Satchel's own files.
    """
    private = _private(os.path.expanduser("~"), *_satchel_folders())
    for path in paths:
        if path == "/" or any(is_inside(item, path) for item in private):
            raise Refused(
                say("A program must not see `{path}`: your home or Satchel's own files lie in it",
                    path=path),
                say("Use a folder of its own as the workspace"),
            )  # fmt: skip


def _satchel_folders() -> tuple[str, str]:
    from satchel.settings import find_paths

    paths = find_paths(os.environ)
    return os.path.dirname(paths.config), paths.state


@lru_cache(maxsize=8)
def _private(*places: str) -> tuple[str, ...]:
    # For some users the home is `/` or does not exist: it contains nothing then.
    found = [os.path.realpath(path) for path in places if os.path.isabs(path) and path != "/"]
    return tuple(found)


def without_nested(paths: Iterable[str]) -> tuple[str, ...]:
    """Remove paths that lie in another one."""
    kept: list[str] = []
    for path in sorted(set(filter(None, paths))):  # a nested one follows its parent
        if not any(is_inside(path, root) for root in kept):
            kept.append(path)
    return tuple(kept)


_LIMITS = ProgramLimits()
_BUILD_LIMITS = ProgramLimits(
    file_size=4 << 30, memory=4 << 30, processes=2048, open_files=4096, timeout=0.0
)
_PLACES = ("/tmp", "/scratch", "/satchel-scratch")  # noqa: S108 - places inside bwrap
"""Candidates for the scratch folder: the first one that overlaps with nothing visible is used."""
_SCRATCH_SIZE_RATIO = 4
"""Size of the scratch folder in memory, as a multiple of the largest file."""
_CONFINE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_landlock.py")


def sandboxed_launch(
    program: Program,
    permissions: ProgramPermissions,
    limits: ProgramLimits = _LIMITS,
    tier: Tier = "none",
) -> Launch:
    """Build the launch of `program` with `permissions`.

    For `landlock` and `none` it creates the scratch folder, which the launcher removes.

    Raises:
        Refused: it would see too much, such as a home folder.
    """
    folder = os.path.realpath(program.folder)
    seen = without_nested((program.folder, folder, *program.read))
    workspace = os.path.realpath(permissions.workspace) if permissions.workspace else ""
    visible = permissions.named or (workspace,) if workspace else ()
    refuse_too_much((*seen, *visible))
    if tier == "none":
        scratch = _make_scratch()
        env = program_environment(program, permissions, scratch, os.environ.get("PATH", PATH))
        cwd = workspace or scratch
        return Launch(program.argv, env, cwd, limits=limits, scratch=scratch, network=True)
    # The skill's own folder stays read-only, whatever was declared.
    writable = permissions.writable and bool(workspace) and not is_inside(workspace, folder)
    guard = protected_paths(workspace, folder, permissions.guard) if writable else ()
    read = seen if writable else (*seen, *visible)
    write = (workspace,) if writable else ()
    argv = program.argv
    if tier == "landlock":
        # Landlock grants whole trees: next to something protected, each sibling by itself.
        write = unprotected_parts(workspace, guard) if writable else ()
        read = (*read, workspace) if guard else read
        scratch = _make_scratch()
    else:
        confining = _confining() if workspace and not writable and refuses_fifos() else ()
        read = (*read, *confining)
        scratch = _free_place((*read, *write))
        if confining:
            argv = (confining[0], "-I", "-S", _CONFINE, scratch, "/dev", "--", *argv)
    view = SandboxView(
        read=read,
        write=write,
        guard=guard,
        scratch=scratch,
        cwd=workspace or scratch,
        scratch_size=limits.file_size * _SCRATCH_SIZE_RATIO,
        network=permissions.network,
        env=program_environment(program, permissions, scratch, PATH),
    )
    return _make_launch(argv, view, limits, tier)


def sandboxed_build(
    argv: tuple[str, ...],
    env: Mapping[str, str],
    cwd: str,
    read: tuple[str, ...],
    write: tuple[str, ...],
    *,
    network: bool,
    tier: Tier,
) -> Launch:
    """Build the launch of a build tool, which reads the system and `read`, and writes `write`.

    Raises:
        Refused: it would see too much, such as a home folder.
    """
    refuse_too_much((*read, *write))
    variables = tuple({"PATH": PATH, **env}.items())
    if tier == "none":
        return Launch(argv, variables, cwd, limits=_BUILD_LIMITS, network=True)
    view = SandboxView(
        read=read,
        write=write,
        scratch="" if tier == "landlock" else _free_place((*read, *write)),
        cwd=cwd,
        scratch_size=_LIMITS.file_size,
        network=network,
        env=variables,
    )
    return _make_launch(argv, view, _BUILD_LIMITS, tier)


def _make_launch(
    argv: tuple[str, ...], view: SandboxView, limits: ProgramLimits, tier: Tier
) -> Launch:
    paths, links = system_paths(network=view.network)
    seccomp = _filter(network=view.network, landlock=tier == "landlock")
    if tier == "landlock":
        readable, writable = landlock_devices()
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
        bwrap_command(find_bwrap() or "/usr/bin/bwrap", argv),  # the launcher reports a missing one
        (),
        "/",
        tier,
        arguments=bwrap_options(
            view._replace(read=without_nested((*paths, *view.read)), links=links)
        ),
        seccomp=seccomp,
        limits=limits,
        network=view.network,
    )


def refuses_fifos() -> bool:
    """Whether bwrap can deny writing to FIFOs of a read-only workspace, which needs Landlock."""
    from satchel.runners._landlock import landlock_abi

    return landlock_abi() > 0


@lru_cache(maxsize=1)
def _confining() -> tuple[str, ...]:
    """The Python that runs `_landlock.py` inside bwrap, and the paths that it needs."""
    python = find_interpreter()
    return (python.executable, _CONFINE, *python.read)


def _free_place(bound: tuple[str, ...]) -> str:
    for place in _PLACES:
        if not any(is_inside(path, place) or is_inside(place, path) for path in bound):
            return place
    return _PLACES[-1]


@lru_cache(maxsize=4)
def _filter(*, network: bool, landlock: bool) -> bytes:
    from satchel.runners.seccomp import build_filter

    return build_filter(os.uname().machine, network=network, landlock=landlock)


def _make_scratch() -> str:
    path = os.path.join(_temporary(), f"satchel-{os.urandom(12).hex()}")
    os.mkdir(path, 0o700)
    return path


@lru_cache(maxsize=1)
def _temporary() -> str:
    import tempfile

    return os.path.realpath(tempfile.gettempdir())
