"""Builds the sandboxed launch specification of a program or a build tool.

Both tiers give the same view: the skill's folder and its runtime read-only, a scratch folder that
is also its home, the workspace as declared, no network unless declared, and a new environment. They
differ in how everything else is hidden: bwrap does not mount it, Landlock denies opening it.
"""

from __future__ import annotations

import os
import sys
import tempfile
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from satchel._fs import is_inside
from satchel.errors import Refused
from satchel.i18n import say
from satchel.runners.base import Launch, ProgramLimits
from satchel.skill.file_tree import VERSION_CONTROL
from satchel.skill.requirements import SANDBOX_PATH

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from satchel.runners.base import Overlay, Program, ProgramPermissions, Tier

# --- bubblewrap ---------------------------------------------------------------------------
# bwrap itself is started with an empty environment: `--clearenv` would leave the caller's whole
# environment readable in `/proc/1/environ`. Options, which contain secrets, are never on a command
# line. What is not bound does not exist inside: no home, no `/run`, no `/var`, no `/sys`. Each bind
# costs about 0.03 ms, so the list is short.

_BWRAP_FOLDERS = ("/usr/bin", "/usr/local/bin", "/bin", "/run/current-system/sw/bin")
"""Not PATH, where a project may have put a folder of its own."""
_SANDBOX_UID = "1000"
"""Uid of the host's root inside: an ordinary user. Other users keep theirs."""
_ISOLATION_OPTIONS = (
    "--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent", "--new-session",
    "--cap-drop", "ALL", "--hostname", "sandbox",
)  # fmt: skip
_EMPTY_FILE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "py.typed")
_DEVICES = ("null", "zero", "random", "urandom")
_SYSTEM_PATHS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store")
_ETC_FILES = ("ld.so.cache", "alternatives", "localtime", "ssl/openssl.cnf")
"""Node exits at once when it may not read the last one."""
_ETC_NETWORK_FILES = (
    "resolv.conf", "hosts", "nsswitch.conf", "gai.conf", "services", "protocols", "ssl/certs",
    "ssl/cert.pem", "pki/tls/certs", "pki/ca-trust/extracted", "ca-certificates",
)  # fmt: skip
"""Names and certificates; never a folder with private keys."""
_PROC_FILES = ("self", "cpuinfo", "meminfo", "stat")
"""Landlock: the process itself and what is the same for everyone. Node reads its memory use and the
number of processors there; command lines of other processes stay hidden."""
_READ_DEVICES = ("zero", "random", "urandom")
_WRITE_DEVICES = ("null",)
_PASSED_VARIABLES = ("LANG", "LANGUAGE", "TZ")
_LIMITS = ProgramLimits()
_BUILD_LIMITS = ProgramLimits(
    file_size=4 << 30, memory=4 << 30, processes=2048, open_files=4096, timeout=0.0
)
_SCRATCH = "/tmp"  # noqa: S108 - a place inside bwrap
"""The scratch folder; what is visible below it is mounted into it."""
_SCRATCH_SIZE_RATIO = 4
"""Size of the scratch folder in memory, as a multiple of the largest file."""
_CONFINING_SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_landlock.py")
_SECRET_NAMES = frozenset((".env", ".envrc", ".netrc", ".pgpass", ".pypirc", ".git-credentials"))
_PUBLIC_SUFFIXES = (".example", ".sample", ".template", ".dist")
_UNSEARCHED_FOLDERS = frozenset((".git", "node_modules", "__pycache__", ".venv", "venv"))
_MAX_SEARCHED_ENTRIES = 2_000
_MAX_SEARCHED_DEPTH = 3


class SandboxView(NamedTuple):
    """What a program sees; every path is absolute."""

    read: tuple[str, ...]
    """Folders and files, at the same paths."""
    links: tuple[tuple[str, str], ...] = ()
    """Links of the system: target and path."""
    write: tuple[str, ...] = ()
    overlay: Overlay | None = None
    """Over the workspace, which is then in `write`."""
    scratch: str = ""
    """In memory, or on disk beside an overlay."""
    cwd: str = "/"
    scratch_size: int = 0
    network: bool = False
    env: tuple[tuple[str, str], ...] = ()
    hidden: tuple[str, ...] = ()
    """Files of the workspace, and folders of the skill, that look empty."""


def find_bwrap() -> str:
    """The path of bubblewrap; empty when it is not installed."""
    for folder in _BWRAP_FOLDERS:
        path = os.path.join(folder, "bwrap")
        if os.access(path, os.X_OK):
            return path
    return ""


def bwrap_command(bwrap: str, argv: Iterable[str]) -> tuple[str, ...]:
    """The command line, without the descriptors, which the launcher adds."""
    return (bwrap, "--", *argv)


def bwrap_options(view: SandboxView) -> bytes:
    """The options, each terminated by NUL."""
    options = [*_ISOLATION_OPTIONS]
    if view.network:
        options.append("--share-net")
    if os.geteuid() == 0:
        options += ["--uid", _SANDBOX_UID, "--gid", _SANDBOX_UID]
    for target, path in view.links:
        options += ["--symlink", target, path]
    options += ["--proc", "/proc", *_device_options(view.scratch)]
    if view.overlay is not None:
        options += ["--bind", view.overlay.scratch, view.scratch]
    else:
        options += ["--size", str(view.scratch_size), "--perms", "0700", "--tmpfs", view.scratch]
    options += _bind_options(view)
    for path in view.hidden:
        if os.path.isdir(path):
            options += ["--tmpfs", path, "--remount-ro", path]
        else:
            options += ["--ro-bind", _EMPTY_FILE, path]
    # The root is in memory, too, and could be filled without a limit. And root of the host,
    # whatever its uid inside, would still own the files below `/proc/sys`.
    options += ["--remount-ro", "/proc", "--remount-ro", "/", "--chdir", view.cwd]
    for name, value in view.env:
        options += ["--setenv", name, value]
    return b"".join(os.fsencode(option) + b"\0" for option in options)


def _device_options(scratch: str) -> list[str]:
    options = ["--dir", "/dev", "--symlink", scratch, "/dev/shm"]  # noqa: S108 - inside
    options += ["--symlink", "/proc/self/fd", "/dev/fd"]
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        options += ["--symlink", f"/proc/self/fd/{number}", f"/dev/{name}"]
    for name in _DEVICES:
        options += ["--dev-bind", f"/dev/{name}", f"/dev/{name}"]
    return options


def _bind_options(view: SandboxView) -> list[str]:
    """Shallow paths first, so that a deeper one is not covered; read-only wins."""
    bind_options = dict.fromkeys(view.write, "--bind")
    bind_options.update(dict.fromkeys(view.read, "--ro-bind-try"))
    overlay = view.overlay
    options: list[str] = []
    for path in sorted(bind_options, key=lambda path: path.count("/")):
        if overlay is not None and overlay.mounted_by == "bwrap" and path == overlay.workspace:
            options += ["--overlay-src", path, "--overlay", overlay.upper, overlay.work, path]
        else:
            options += [bind_options[path], path, path]
    return options


# --- the view of a program ----------------------------------------------------------------
# Only paths that are named here, by the runtime or by the user's declaration are visible. A
# workspace that contains the user's home is refused.


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
        name: value
        for name, value in os.environ.items()
        if name in _PASSED_VARIABLES or name.startswith("LC_")
    }
    env["PATH"] = os.pathsep.join((*program.path, path))
    env.update(program.env)
    env["HOME"] = env["TMPDIR"] = env["SATCHEL_SCRATCH"] = scratch
    env["SATCHEL_SKILL_DIR"] = program.folder
    env["GIT_CONFIG_NOSYSTEM"] = "1"  # Landlock: git fails where it may not read `/etc/gitconfig`
    if permissions.workspace:
        env["SATCHEL_WORKSPACE"] = os.path.realpath(permissions.workspace)
    return tuple(env.items())


@lru_cache(maxsize=2)
def system_paths(*, network: bool) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    """Paths of the system that every program needs, and links among them: target and path."""
    names = _ETC_FILES + (_ETC_NETWORK_FILES if network else ())
    read: list[str] = []
    links: list[tuple[str, str]] = []
    for path in (*_SYSTEM_PATHS, *(f"/etc/{name}" for name in names)):
        # Some systems keep the resolver's file below /run, which is hidden.
        if os.path.islink(path) and path != "/etc/resolv.conf":
            links.append((os.readlink(path), path))
        elif os.path.exists(path):
            read.append(path)
    return tuple(read), tuple(links)


def landlock_devices() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Landlock: readable paths of `/proc` and `/dev`, and writable ones."""
    readable = (
        *(f"/proc/{name}" for name in _PROC_FILES),
        *(f"/dev/{name}" for name in _READ_DEVICES),
    )
    return readable, tuple(f"/dev/{name}" for name in _WRITE_DEVICES)


def refuse_too_much(paths: Iterable[str]) -> None:
    """Refuse to show a whole home to a program.

    Raises:
        Refused: one of the paths contains the user's home or Satchel's own files.
    """
    private = _resolve_private_folders(os.path.expanduser("~"), *_satchel_folders())
    for path in paths:
        if path == _SCRATCH:
            raise Refused(
                say("A program cannot work in `{path}`, since it has a folder of its own there",
                    path=path),
                say("Use a folder below it as the workspace"),
            )  # fmt: skip
        if path == "/" or any(is_inside(private_path, path) for private_path in private):
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
def _resolve_private_folders(*folders: str) -> tuple[str, ...]:
    # For some users the home is `/` or does not exist: it contains nothing then.
    real_folders = [
        os.path.realpath(path) for path in folders if os.path.isabs(path) and path != "/"
    ]
    return tuple(real_folders)


def without_nested(paths: Iterable[str]) -> tuple[str, ...]:
    """Remove paths that lie in another one."""
    outer_paths: list[str] = []
    for path in sorted(set(filter(None, paths))):  # a nested one follows its parent
        if not any(is_inside(path, root) for root in outer_paths):
            outer_paths.append(path)
    return tuple(outer_paths)


def sandboxed_launch(
    program: Program,
    permissions: ProgramPermissions,
    limits: ProgramLimits = _LIMITS,
    tier: Tier = "none",
    overlay: Overlay | None = None,
) -> Launch:
    """Build the launch of `program` with `permissions`.

    In a sandbox a workspace without an overlay is read-only. For `landlock` and `none` it creates
    the scratch folder, which the launcher removes.

    Raises:
        Refused: it would see too much, such as a home folder.
    """
    folder = os.path.realpath(program.folder)
    program_paths = without_nested((program.folder, folder, *program.read))
    workspace = os.path.realpath(permissions.workspace) if permissions.workspace else ""
    visible = permissions.named or (workspace,) if workspace else ()
    refuse_too_much((*program_paths, *visible))
    if tier == "none":
        return _plain_launch(program, permissions, limits, workspace)
    # The skill's own folder stays read-only, whatever was declared.
    if not may_write(program, permissions):
        overlay = None
    read, write = program_paths, (workspace,)
    if overlay is None:
        read, write = (*program_paths, *visible), ()
    argv = program.argv
    if tier == "landlock":
        scratch = overlay.scratch if overlay is not None else _make_scratch()
    else:
        guard = _find_fifo_guard(workspace) if overlay is None else ()
        read = (*read, *guard)
        mounted = _list_below_scratch((*read, *write))
        # What is written beside files that are read-only would be lost without a word.
        scratch = "/scratch" if mounted and overlay is None else _SCRATCH
        if guard:
            argv = (guard[0], "-I", "-S", _CONFINING_SCRIPT, scratch, "/dev", "--", *argv)
        # bwrap makes the folders above what it mounts there, which count as written.
        folders_made = "".join(mounted).count("/")
        limits = limits._replace(changes=limits.changes + folders_made)
    hidden = _hidden_paths(permissions, workspace, folder)
    view = SandboxView(
        read=read,
        write=write,
        hidden=hidden,
        overlay=overlay and overlay._replace(hidden=hidden),
        scratch=scratch,
        cwd=workspace or scratch,
        scratch_size=limits.file_size * _SCRATCH_SIZE_RATIO,
        network=permissions.network,
        env=program_environment(program, permissions, scratch, SANDBOX_PATH),
    )
    return _make_launch(argv, view, limits, tier)


def _plain_launch(
    program: Program, permissions: ProgramPermissions, limits: ProgramLimits, workspace: str
) -> Launch:
    """The launch without a sandbox."""
    scratch = _make_scratch()
    env = program_environment(program, permissions, scratch, os.environ.get("PATH", SANDBOX_PATH))
    cwd = workspace or scratch
    return Launch(program.argv, env, cwd, limits=limits, scratch=scratch, network=True)


def _list_below_scratch(paths: Iterable[str]) -> list[str]:
    return [path for path in paths if is_inside(path, _SCRATCH)]


def _hidden_paths(permissions: ProgramPermissions, workspace: str, folder: str) -> tuple[str, ...]:
    """The secrets of a workspace, and the repositories of the skill.

    A repository is neither scanned nor part of the content that was approved.
    """
    hidden = secret_files(workspace) if workspace and not permissions.named else ()
    if folder == workspace:
        return hidden
    paths = (os.path.join(folder, name) for name in VERSION_CONTROL)
    repositories = (path for path in paths if os.path.isdir(path) and not os.path.islink(path))
    return (*hidden, *repositories)


def secret_files(workspace: str) -> tuple[str, ...]:
    """The files in which projects keep secrets, such as `.env`: a program finds them empty.

    The search goes three folders deep and ends after 2,000 entries, shallow ones first.
    """
    secrets: list[str] = []
    folders, count = [(workspace, 1)], 0
    for folder, depth in folders:  # grows while it is read
        with suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                count += 1
                if count > _MAX_SEARCHED_ENTRIES:
                    return tuple(secrets)
                if entry.is_dir(follow_symlinks=False):
                    if depth < _MAX_SEARCHED_DEPTH and entry.name not in _UNSEARCHED_FOLDERS:
                        folders.append((entry.path, depth + 1))
                elif _is_secret(entry.name) and entry.is_file(follow_symlinks=False):
                    secrets.append(entry.path)
    return tuple(secrets)


def _is_secret(name: str) -> bool:
    name = name.lower()
    return name in _SECRET_NAMES or (
        name.startswith(".env.") and not name.endswith(_PUBLIC_SUFFIXES)
    )


def may_write(program: Program, permissions: ProgramPermissions) -> bool:
    """Whether a program writes to its workspace: never where that lies in the skill's folder."""
    if not permissions.writable or not permissions.workspace:
        return False
    workspace = os.path.realpath(permissions.workspace)
    return not is_inside(workspace, os.path.realpath(program.folder))


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
    variables = tuple({"PATH": SANDBOX_PATH, **env}.items())
    if tier == "none":
        return Launch(argv, variables, cwd, limits=_BUILD_LIMITS, network=True)
    view = SandboxView(
        read=read,
        write=write,
        scratch="" if tier == "landlock" else _SCRATCH,
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
    seccomp = _seccomp_filter(network=view.network, landlock=tier == "landlock")
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
            scratch=view.scratch if view.overlay is None else "",
            network=view.network,
            overlay=view.overlay,
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
        overlay=view.overlay,
    )


def refuses_fifos() -> bool:
    """Whether bwrap can deny writing to FIFOs of a read-only workspace, which needs Landlock."""
    from satchel.runners._landlock import landlock_abi

    return landlock_abi() > 0


def _find_fifo_guard(workspace: str) -> tuple[str, ...]:
    """Find what denies writing to the FIFOs of a read-only workspace; empty where nothing can."""
    return _confining_command() if workspace and refuses_fifos() else ()


@lru_cache(maxsize=1)
def _confining_command() -> tuple[str, ...]:
    """The Python that runs `_landlock.py` inside bwrap, and the paths that it needs."""
    python = find_interpreter()
    return (python.executable, _CONFINING_SCRIPT, *python.read)


@lru_cache(maxsize=4)
def _seccomp_filter(*, network: bool, landlock: bool) -> bytes:
    from satchel.runners.seccomp import build_filter

    return build_filter(os.uname().machine, network=network, landlock=landlock)


def _make_scratch() -> str:
    path = os.path.join(_temporary_folder(), f"satchel-{os.urandom(12).hex()}")
    os.mkdir(path, 0o700)
    return path


@lru_cache(maxsize=1)
def _temporary_folder() -> str:
    return os.path.realpath(tempfile.gettempdir())
