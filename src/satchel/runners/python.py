"""The Python runtime of skills: interpreter, environment, packages.

Every skill runs in an environment of its own, also one without requirements: it can import neither
Satchel's packages nor those of the machine.

Packages are resolved first, to names, versions and hashes. A resolution with anything but wheels
from an index is refused. Then exactly these wheels are unpacked. Nothing of a package runs.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import sys
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any
from venv import EnvBuilder

from satchel.errors import BuildFailed, MissingRuntime
from satchel.i18n import say
from satchel.runners.base import Program
from satchel.runners.build import (
    HOME_FOLDER,
    BuildToolFailed,
    cannot_build,
    digest,
    is_complete,
    read_inside,
    unpublished_error,
)
from satchel.runners.sandbox import find_interpreter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from satchel.runners.build import BuildCache, Progress
    from satchel.runners.sandbox import Interpreter

# --- requirements -------------------------------------------------------------------------
# `requirements.txt`, and its resolution by pip or uv, may name packages, versions, markers and
# hashes. They may not name indexes, other files, paths or addresses: the user's own settings of pip
# or uv decide where packages come from.

REQUIREMENTS = "requirements.txt"
MAX_FILE_BYTES = 256 * 1024

_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
_VERSION = r"(?:===|==|~=|!=|<=|>=|<|>)\s*[A-Za-z0-9.*+!_-]+"
_LINE = re.compile(
    rf"{_NAME}\s*(?:\[\s*{_NAME}(?:\s*,\s*{_NAME})*\s*\])?"
    rf"\s*\(?\s*(?:{_VERSION}(?:\s*,\s*{_VERSION})*)?\s*,?\s*\)?\s*"
    r"(?:;[\w\s.<>=!~()'\",+*-]+)?"
)
_HASH = re.compile(r"--hash[= ](?:sha256|sha384|sha512):[0-9a-fA-F]{64,128}")


def read_requirements(folder: str, path: str = REQUIREMENTS) -> str:
    """The packages in `requirements.txt`, one a line; empty when there are none.

    Raises:
        BuildFailed: a line is something else than a package, a version, a marker or a hash.
    """
    raw = read_inside(folder, path, MAX_FILE_BYTES)
    if not raw:
        return ""
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        raise BuildFailed(
            say("`{path}` is not text", path=path),
            say("Save the file as UTF-8 without BOM"),
        ) from exc
    packages, wrong = split_requirements(text)
    if wrong:
        raise unpublished_error(
            path, [f"{say('line {line}', line=line)}: `{words}`" for line, words in wrong]
        )
    return "\n".join(packages)


def split_requirements(text: str) -> tuple[list[str], list[tuple[int, str]]]:
    """The lines that name a package, and all others with their numbers."""
    packages: list[str] = []
    wrong: list[tuple[int, str]] = []
    number, start, joined = 0, 0, ""
    for number, line in enumerate(text.splitlines(), 1):
        start = start or number
        bare = "" if line.lstrip().startswith("#") else re.sub(r"\s#.*$", "", line)
        if bare.rstrip().endswith("\\"):
            joined += bare.rstrip()[:-1] + " "
            continue
        requirement = (joined + bare).strip()
        joined, first, start = "", start, 0
        if requirement and is_plain(requirement):
            packages.append(re.sub(r"\s+", " ", requirement))
        elif requirement:
            wrong.append((first, requirement[:80]))
    if joined.strip():
        wrong.append((number, "\\"))
    return packages, wrong


def is_plain(line: str) -> bool:
    """Whether a requirement names a package of an index, with a version, a marker or hashes."""
    if re.search(r"(?:^|[\s;])-(?!-hash)", line):
        return False
    need, *options = re.split(r" (?=--)", " ".join(line.split()))
    return bool(_LINE.fullmatch(need.strip())) and all(
        _HASH.fullmatch(option) for option in options
    )


def is_package(item: object) -> bool:
    """Whether an entry of a list, as in a script, is such a requirement."""
    return (
        isinstance(item, str)
        and item.isprintable()
        and " --" not in item
        and is_plain(item.strip())
    )


_CLAUSE = re.compile(r"\s*(>=|<=|==|!=|~=|>|<)\s*(\d{1,4}(?:\.\d{1,4}){0,3})(\.\*)?\s*")


def fits(version_range: str) -> bool:
    """Whether the running Python, from which environments are made, is in a range of versions."""
    running = tuple(sys.version_info[:3])
    for clause in filter(str.strip, version_range.split(",")):
        parts = _CLAUSE.fullmatch(clause)
        if parts is None:
            return False
        sign, star = parts[1], bool(parts[3])
        version = tuple(int(part) for part in parts[2].split("."))
        full = (*version, 0, 0)[:3]
        same = running[: len(version)] == version if star else running == full
        fits = {
            ">=": running >= full,
            "<=": running <= full,
            ">": running > full,
            "<": running < full,
            "==": same,
            "!=": not same,
            "~=": running >= full and running[: len(version) - 1] == version[:-1],
        }
        if not fits[sign]:
            return False
    return True


FLAGS = ("-E", "-s", "-B", "-X", "utf8")
"""Isolated mode (`-I`), except that the folder of the script is importable: no variables, no user's
packages, no bytecode next to the sources; text is UTF-8 whatever the locale."""
_SCRIPT_FLAGS = ("-s", "-B", "-X", "utf8")
_SCRIPT_ENV = (
    ("PYTHONDONTWRITEBYTECODE", "1"),
    ("PYTHONNOUSERSITE", "1"),
    ("PYTHONUNBUFFERED", "1"),
    ("PYTHONUTF8", "1"),
)
"""Flags for the Pythons that a script starts. Its variables are made for it alone."""
_WHEELS = ("--only-binary", ":all:")
_PIP = """
import runpy, sys
def refuse(event, values):
    if event in ("subprocess.Popen", "os.fork", "os.forkpty", "os.exec", "os.posix_spawn",
                 "os.system") and not str(values[:1]).startswith("('/lib/ld-musl-"):
        raise PermissionError("this package would have to be built")
sys.addaudithook(refuse)
sys.path.insert(0, sys.argv.pop(1))
sys.argv[0] = "pip"
runpy.run_module("pip", run_name="__main__", alter_sys=True)
"""
"""Runs pip so that it starts no process. pip would build what a wheel's metadata names by address,
whatever `--only-binary` is, and it builds in processes. It starts musl only, for its version."""


def prepare(
    builds: BuildCache, folder: str, entry: str, progress: Progress
) -> tuple[Program, tuple[str, ...]]:
    """The Python program, and the files that it depends on.

    Raises:
        MissingRuntime: there is no pip and no uv.
        BuildFailed: its packages cannot be installed.
    """
    home = environment(builds, read_requirements(folder), os.path.basename(folder), progress)
    python, read = _python_in(home), find_interpreter().read
    script = os.path.join(folder, *entry.split("/"))
    program = Program(
        argv=(python, *FLAGS, script), folder=folder, runtime="python", read=(home, *read)
    )
    return program, (python,)


def script_program(folder: str, home: str, command: tuple[str, ...]) -> Program:
    """A program that may import from the skill's folder and starts this Python as `python`.

    Args:
        folder: The skill's folder.
        home: The environment.
        command: What starts the script; `python` stands for the environment's.
    """
    python = _python_in(home)
    argv = (python, *_SCRIPT_FLAGS, *command[1:]) if command[0] == "python" else command
    read = (home, *find_interpreter().read)
    folders = (os.path.dirname(python),)
    return Program(
        argv, folder, "python", read, (("PYTHONPATH", folder), *_SCRIPT_ENV), path=folders
    )


def environment(builds: BuildCache, requirements: str, skill: str, progress: Progress) -> str:
    """The folder of an environment with these packages, built where missing.

    Args:
        builds: Where it is built.
        requirements: One package a line, as `read_requirements` returns them.
        skill: A name for messages.
        progress: Called with one line at every stage.

    Raises:
        MissingRuntime: there is no pip and no uv.
        BuildFailed: its packages cannot be installed.
    """
    base = find_interpreter()

    def build(staging: str, path: str) -> tuple[str, ...]:
        return _build(
            builds, base, requirements, staging=staging, path=path, skill=skill, progress=progress
        )

    return builds.get_or_build("python", _key(requirements), build, progress)


def is_built(builds: BuildCache, requirements: str) -> bool:
    """Whether the environment with these packages is in the cache."""
    return is_complete(builds.path("python", _key(requirements)))


def _key(requirements: str) -> str:
    base = find_interpreter()
    return digest("python resolved", base.executable, base.tag, requirements)


def _python_in(home: str) -> str:
    return os.path.join(home, "env", "bin", "python")


# --- the environment ----------------------------------------------------------------------


def _build(
    builds: BuildCache,
    base: Interpreter,
    requirements: str,
    staging: str,
    path: str,
    skill: str,
    progress: Progress,
) -> tuple[str, ...]:
    home = os.path.join(staging, "env")
    _make_empty(home)
    if requirements:
        _install(builds, base, staging, requirements, skill, progress)
        # The environment is read-only later, and compiling at every start is slow. Not with the
        # environment's own Python: starting it may already run code of a package.
        compiling = [base.executable, "-I", "-m", "compileall", "-qq", "-s", staging, "-p", path]
        with suppress(BuildToolFailed):  # some packages ship files for other Pythons
            builds.run([*compiling, home], staging, read=base.read)
    return (os.path.relpath(_python_in(staging), staging), os.path.join("env", "pyvenv.cfg"))


def _make_empty(home: str) -> None:
    EnvBuilder(clear=True, symlinks=True).create(home)


def _install(
    builds: BuildCache,
    base: Interpreter,
    staging: str,
    requirements: str,
    skill: str,
    progress: Progress,
) -> None:
    """Install with uv where available, else with pip; with pip also where uv failed.

    uv does not read pip's configuration, so a machine that is set up for pip only needs pip.
    """
    failure = ""
    file = os.path.join(staging, REQUIREMENTS)
    for tool, command, read in _installers(builds, staging):
        progress(say("Installing the packages of `{skill}` with {tool}…", skill=skill, tool=tool))
        run = partial(
            builds.run,
            staging=staging,
            cache=tool,
            network=True,
            read=(*base.read, read),
            PIP_CACHE_DIR=builds.cache("pip"),
            UV_CACHE_DIR=builds.cache("uv"),
            UV_LINK_MODE="copy",
            UV_PYTHON=_python_in(staging),
        )
        _write(file, requirements)
        try:
            if "--hash" not in requirements:  # with hashes it must name every package
                resolve = _resolve_by_uv if tool == "uv" else _resolve_by_pip
                _write(file, _check(resolve(run, command, file)))
            run([*command, "install", *_WHEELS, "--no-deps", "--require-hashes", "-r", file])
        except BuildToolFailed as exc:
            named = re.findall(r"^(?:Collecting|Processing) .+", exc.output, re.MULTILINE)
            failure = "\n".join((f"{tool}: {exc.message}", *named[-1:]))
            # The next tool starts the environment's Python: it must not be half-installed.
            _make_empty(os.path.join(staging, "env"))
        else:
            return
    if not failure:
        raise MissingRuntime(
            say("`{name}` is not installed", name="uv"),
            say("Run `{command}`", command="pip install uv"),
        )
    raise cannot_build(skill, failure)


def _installers(builds: BuildCache, staging: str) -> Iterator[tuple[str, list[str], str]]:
    """The installers, the fastest first: name, command, path to read."""
    beside = os.path.join(os.path.dirname(sys.executable), "uv")
    uv = builds.which("uv") or (beside if os.access(beside, os.X_OK) else None)
    if uv:
        uv = os.path.realpath(uv)
        yield "uv", [uv, "pip"], uv
    spec = importlib.util.find_spec("pip")
    for pip in (spec and spec.submodule_search_locations) or ():
        alone = os.path.join(staging, HOME_FOLDER, "only-pip")  # without the packages next to it
        os.makedirs(alone)
        os.symlink(pip, os.path.join(alone, "pip"))
        yield "pip", [_python_in(staging), "-I", "-c", _PIP, alone], pip


def _resolve_by_uv(run: Callable[[list[str]], str], command: list[str], file: str) -> str:
    """All packages with hashes. uv itself refuses what metadata names by address."""
    options = ["--generate-hashes", "--no-header", "--no-annotate", "--quiet"]
    return run([*command, "compile", *_WHEELS, *options, file])


def _resolve_by_pip(run: Callable[[list[str]], str], command: list[str], file: str) -> str:
    report = f"{file}.json"
    options = ["--dry-run", "--ignore-installed", "--report", report, "--progress-bar", "off"]
    run([*command, "install", *_WHEELS, *options, "-r", file])
    with open(report, encoding="utf-8") as stream:
        items: list[dict[str, Any]] = json.load(stream)["install"]
    os.unlink(report)
    lines: list[str] = []
    for item in items:
        name, address = item["metadata"]["name"], item["download_info"]["url"]
        if item["is_direct"] or not address.endswith(".whl"):
            lines.append(f"{name} @ {address}")
        else:
            hashed = item["download_info"]["archive_info"]["hashes"]["sha256"]
            lines.append(f"{name}=={item['metadata']['version']} --hash=sha256:{hashed}")
    return "\n".join(lines)


def _check(resolved: str) -> str:
    """Check that a resolution has only wheels from an index.

    Raises:
        BuildFailed: it has something else.

    """
    packages, wrong = split_requirements(resolved)
    if wrong:
        raise unpublished_error(REQUIREMENTS, [f"`{words}`" for _, words in wrong])
    return "\n".join(packages)


def _write(file: str, text: str) -> None:
    with open(file, "w", encoding="utf-8") as stream:
        stream.write(text + "\n")
