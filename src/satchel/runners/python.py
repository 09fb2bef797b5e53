"""Which Python runs a skill, and in which environment?

Every skill runs in an environment of its own, also one without requirements: neither Satchel's
packages nor those of the machine are part of what it can import. Installing runs nothing of what is
installed: wheels are unpacked, never built.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from satchel._language import say
from satchel.errors import BuildFailed, MissingRuntime
from satchel.runners.base import Program
from satchel.runners.build import ToolFailed
from satchel.runners.contents import digest
from satchel.runners.requirements import REQUIREMENTS, read_requirements

if TYPE_CHECKING:
    from collections.abc import Iterator

    from satchel.runners.build import Progress, Workshop

FLAGS = ("-E", "-s", "-B", "-X", "utf8")
"""Isolated mode (`-I`) but for one thing: the folder of the script is importable. No variables, no
user's packages; nothing is written beside the sources; text is UTF-8 whatever the locale says."""
_SYSTEM = frozenset(("/", "/usr", "/usr/local"))


class Interpreter(NamedTuple):
    """A Python to make environments from."""

    executable: str
    tag: str
    """Which one: environments of another are not used."""
    read: tuple[str, ...]
    """What it needs to see of the disk."""


def prepare(
    shop: Workshop, folder: str, entry: str, progress: Progress
) -> tuple[Program, tuple[str, ...]]:
    """A Python program, and the files that it stands on.

    Raises:
        MissingRuntime: there is no Python.
        BuildFailed: its packages cannot be installed.
    """
    wanted = read_requirements(folder)
    base = find_interpreter(shop)
    key = digest("python", base.executable, base.tag, wanted)

    def build(aside: str, path: str) -> tuple[str, ...]:
        return _build(shop, base, wanted, aside, path, os.path.basename(folder), progress)

    home = shop.make("python", key, build, progress)
    python = _inside(home)
    script = os.path.join(folder, *entry.split("/"))
    program = Program(
        argv=(python, *FLAGS, script),
        folder=folder,
        runtime="python",
        read=(home, *base.read),
    )
    return program, (python,)


def _inside(home: str) -> str:
    parts = ("Scripts", "python.exe") if os.name == "nt" else ("bin", "python")
    return os.path.join(home, "env", *parts)


# --- the interpreter ----------------------------------------------------------------------


def find_interpreter(shop: Workshop) -> Interpreter:
    """The Python below the one that runs Satchel; one on PATH where Satchel is frozen."""
    executable = getattr(sys, "_base_executable", None) or sys.executable
    if executable and not getattr(sys, "frozen", False):
        tag = f"{sys.implementation.cache_tag}-{sys.platform}"
        stdlib = os.path.dirname(os.path.realpath(os.__file__))
        return Interpreter(executable, tag, _needed(executable, sys.base_prefix, stdlib))
    found = shop.which("python3") or shop.which("python")
    if found is None:
        raise MissingRuntime(
            say("This skill needs Python, which is not installed"),
            say("Install Python 3.11 or newer, so that `python3` is on PATH"),
        )
    code = (
        "import sys,sysconfig;print(sys.executable,sys.base_prefix,sysconfig.get_path('stdlib'),"
        "sys.implementation.cache_tag,sep='\\n')"
    )
    try:
        told = shop.run([found, "-I", "-c", code], cwd=os.sep).split("\n")
    except ToolFailed as exc:
        raise MissingRuntime(
            say("`{path}` does not start: {reason}", path=found, reason=exc.words),
            say("Install Python 3.11 or newer, so that `python3` is on PATH"),
        ) from exc
    executable, prefix, stdlib, tag = told[:4]
    return Interpreter(executable, f"{tag}-{sys.platform}", _needed(executable, prefix, stdlib))


def _needed(executable: str, prefix: str, stdlib: str) -> tuple[str, ...]:
    """The prefix where it is Python's own; where it is the system's, only Python's parts of it."""
    shared = os.path.join(prefix, "lib", f"lib{os.path.basename(stdlib)}.so.1.0")
    real = os.path.realpath(executable)
    if prefix not in _SYSTEM:
        paths = [prefix, os.path.realpath(prefix), real, executable]
    else:
        paths = [real, executable, stdlib, shared]
    kept: list[str] = []
    for path in paths:
        inside = any(path == other or path.startswith(other + os.sep) for other in kept)
        if path and not inside and os.path.exists(path):
            kept.append(path)
    return tuple(kept)


# --- the environment ----------------------------------------------------------------------


def _build(
    shop: Workshop,
    base: Interpreter,
    wanted: str,
    aside: str,
    path: str,
    skill: str,
    progress: Progress,
) -> tuple[str, ...]:
    progress(say("Making a Python environment for `{skill}`", skill=skill))
    home = os.path.join(aside, "env")
    _make_empty(shop, base, home)
    if wanted:
        file = os.path.join(aside, REQUIREMENTS)
        with open(file, "w", encoding="utf-8") as stream:
            stream.write(wanted + "\n")
        _install(shop, base, aside, file, skill, progress)
        # Later nothing can be written there, and compiling at every start is slow. Not with the new
        # environment's own Python: starting it may already run something of a package.
        progress(say("Compiling the packages of `{skill}`", skill=skill))
        compiling = [base.executable, "-I", "-m", "compileall", "-qq", "-s", aside, "-p", path]
        with suppress(ToolFailed):  # some packages ship files for other Pythons
            shop.run([*compiling, home], cwd=aside)
    return (os.path.relpath(_inside(aside), aside), os.path.join("env", "pyvenv.cfg"))


def _make_empty(shop: Workshop, base: Interpreter, home: str) -> None:
    command = [base.executable, "-I", "-m", "venv", "--clear", "--without-pip", home]
    try:
        shop.run(command, cwd=os.path.dirname(home))
    except ToolFailed as exc:
        raise BuildFailed(
            say("A Python environment cannot be made") + f"\n{exc.words}",
            say("Install Python's `venv` module (Debian: `apt install python3-venv`)"),
        ) from exc


def _install(
    shop: Workshop, base: Interpreter, aside: str, file: str, skill: str, progress: Progress
) -> None:
    """Install by uv where it is, else by pip; pip also where uv found nothing.

    uv does not read pip's configuration, so a machine set up for pip alone is served by pip.
    """
    python = _inside(aside)
    failures: list[ToolFailed] = []
    with open(file, encoding="utf-8") as stream:
        hashed = "--hash" in stream.read()
    for tool, command in _installers(shop, python):
        progress(say("Installing the packages of `{skill}` with {tool}", skill=skill, tool=tool))
        caches = {"UV_CACHE_DIR": shop.cache("uv"), "PIP_CACHE_DIR": shop.cache("pip")}
        try:
            more = ["--require-hashes"] if hashed else []
            shop.run([*command, *more, "-r", file], cwd=aside, **caches)
        except ToolFailed as exc:
            failures.append(ToolFailed(tool, exc.words))
            # The next tool starts the environment's Python: nothing half-installed may be in it.
            _make_empty(shop, base, os.path.join(aside, "env"))
        else:
            return
    if not failures:
        raise MissingRuntime(
            say("`{skill}` needs packages, and there is neither uv nor pip here", skill=skill),
            say("Run `pip install uv`, or install pip (Debian: `apt install python3-venv`)"),
        )
    raise BuildFailed(
        say("The packages of `{skill}` cannot be installed", skill=skill)
        + f"\n{failures[-1].tool}: {failures[-1].words}",
        say("Check `{file}`; only packages that come as wheels are installed", file=REQUIREMENTS),
    )


def _installers(shop: Workshop, python: str) -> Iterator[tuple[str, list[str]]]:
    """The commands that can install into an environment, the quickest first."""
    import importlib.util

    beside = os.path.join(os.path.dirname(sys.executable), "uv.exe" if os.name == "nt" else "uv")
    uv = shop.which("uv") or (beside if os.access(beside, os.X_OK) else None)
    if uv:
        options = ["--python", python, "--only-binary", ":all:", "--no-progress"]
        yield "uv", [uv, "pip", "install", *options]
    options = ["--only-binary", ":all:", "--no-compile", "--no-input", "--progress-bar", "off"]
    options += ["--disable-pip-version-check", "--no-warn-script-location", "--retries", "2"]
    if importlib.util.find_spec("pip") is not None and not getattr(sys, "frozen", False):
        pip = [sys.executable, "-I", "-m", "pip", "--python", python]
        yield "pip", [*pip, "install", *options]
    elif _bootstrap(shop, python):
        yield "pip", [python, "-I", "-m", "pip", "install", *options]


def _bootstrap(shop: Workshop, python: str) -> bool:
    """Put pip into the environment itself, from what Python brings along."""
    try:
        shop.run([python, "-I", "-m", "ensurepip", "--default-pip"], cwd=os.path.dirname(python))
    except ToolFailed:
        return False
    return True
