"""Launch plans of a skill's scripts: the interpreter of a file, and the packages that it needs.

A plan is made from the files alone: nothing runs. The interpreter follows from the shebang, then
from the ending, the packages from declarations and imports (`script_packages`).
`Runtimes.prepare` builds what a plan names.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import stat
from typing import TYPE_CHECKING, NamedTuple

from satchel.errors import BuildFailed
from satchel.i18n import say
from satchel.runners.base import SCRIPT_FOLDERS, SCRIPT_INTERPRETERS, scripts_named
from satchel.runners.build import list_files, read_inside
from satchel.skill.document import MANIFEST
from satchel.skill.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Iterable

    from satchel.runners.base import ScriptInterpreter
    from satchel.runners.script_packages import EnvironmentSource


class ScriptPlan(NamedTuple):
    """How a script of a skill is started."""

    path: str
    """Below the skill's folder, with `/`."""
    interpreter: ScriptInterpreter
    source: EnvironmentSource = "none"
    packages: tuple[str, ...] = ()
    """What is to be installed, as the question to the user names it."""
    file: str = ""
    """The file that names the packages, below the skill's folder; empty when none does."""
    missing: tuple[str, ...] = ()
    """Imports of unknown packages that the script can do without: they are not installed."""
    ignored: str = ""
    """A file that names packages, too, and is not read."""
    flags: tuple[str, ...] = ()
    """Options of the shell, from the shebang."""


_PROGRAMS: dict[str, ScriptInterpreter] = {
    "bash": "bash",
    "sh": "sh",
    "dash": "sh",
    "node": "node",
    "nodejs": "node",
    "tsx": "node",
    "ts-node": "node",
    "npx": "node",  # `npx tsx`
    "bun": "node",
    "uv": "python",
}
_PYTHON = re.compile(r"python[\d.]*")
_SHEBANG = re.compile(
    rb"#![ \t]*(?:\S*/)?(?:env[ \t]+(?:-S[ \t]*)?)?(?:\S*/)?([^\s/]+)[ \t]*([^\r\n]*)"
)
_SHELL_FLAGS = re.compile(r"(?:-[a-zA-Z]+ ?)*")
_HEAD_BYTES = 512
_ELF = b"\x7fELF"


def plan_script(folder: str, path: str) -> ScriptPlan:
    """The launch plan of a script.

    Args:
        folder: The skill's folder.
        path: The script below it, with `/`.

    Raises:
        BuildFailed: it cannot be run; the message is the reason.
    """
    path = "/".join(part for part in path.split("/") if part != ".")
    head = read_inside(folder, path, first_bytes=_HEAD_BYTES)
    if head is None:
        raise BuildFailed(
            say("There is no `{path}`", path=path), say("Add the file, or correct the path")
        )
    interpreter, flags = _interpreter(folder, path, head)
    if interpreter == "executable":
        return ScriptPlan(path, interpreter)
    from satchel.runners.script_packages import find_packages

    language = interpreter if interpreter in ("python", "node") else "shell"
    packages = find_packages(folder, path, language)
    return ScriptPlan(path, interpreter, *packages, flags=flags)


def _interpreter(folder: str, path: str, head: bytes) -> tuple[ScriptInterpreter, tuple[str, ...]]:
    shebang = _SHEBANG.match(head.removeprefix(b"\xef\xbb\xbf"))
    program = shebang[1].decode("utf-8", "replace") if shebang else ""
    words = shebang[2].decode("utf-8", "replace") if shebang else ""
    if _PYTHON.fullmatch(program):
        return "python", ()
    if interpreter := _PROGRAMS.get(program):
        shell = interpreter in ("bash", "sh") and _SHELL_FLAGS.fullmatch(words.strip())
        return interpreter, tuple(words.split()) if shell else ()
    ending = os.path.splitext(path)[1].lower()
    if not program and ending in SCRIPT_INTERPRETERS and not path.endswith(".d.ts"):
        return SCRIPT_INTERPRETERS[ending], ()
    if not program and not head.startswith(_ELF):
        raise BuildFailed(
            say("`{path}` is no script that can be run", path=path),
            say("Use Python, a shell, Node or an executable file"),
        )
    if program and not shutil.which(program):
        raise BuildFailed(
            say("`{name}` is not installed", name=program),
            say("Install it, or run the skill on another machine"),
        )
    check_executable(folder, path)
    return "executable", ()


def check_executable(folder: str, path: str) -> str:
    """The absolute path of a program that the system starts itself.

    Raises:
        BuildFailed: it is not executable.
    """
    file = os.path.join(folder, *path.split("/"))
    if not os.access(file, os.X_OK):
        raise BuildFailed(
            say("`{entry}` may not be executed", entry=path),
            say("Run `{command}`", command=f"chmod +x {shlex.quote(file)}"),
        )
    return file


# --- lists of scripts ---------------------------------------------------------------------


def list_scripts(files: Iterable[tuple[str, int]], text: str = "") -> tuple[str, ...]:
    """The files of a skill that can be run as scripts, by their names and modes alone.

    Args:
        files: Path below the skill's folder with `/`, and mode, of each file.
        text: The skill's text; a file that it says to run is a script wherever it is.
    """
    named = scripts_named(text)
    return tuple(path for path, mode in files if _looks_like_script(path, mode, named))


def _looks_like_script(path: str, mode: int, named: frozenset[str]) -> bool:
    *folders, name = path.split("/")
    ending = os.path.splitext(name)[1].lower()
    if stat.S_IFMT(mode) not in (0, stat.S_IFREG) or _NO_SCRIPT.search(path):
        return False
    if path in named:
        return True
    if ending in SCRIPT_INTERPRETERS:
        return not folders or bool(SCRIPT_FOLDERS.intersection(folders))
    return bool(SCRIPT_FOLDERS.intersection(folders)) and (
        bool(mode & stat.S_IXUSR) or (not ending and name.islower())
    )


_NO_SCRIPT = re.compile(
    r"(?:^|/)(?:__init__|conftest|setup|test_[^/]*|[^/]*_test)\.py$|\.(?:test|spec|config|d)\.[cm]?[jt]s$"
    r"|(?:^|/)(?:node_modules|__pycache__|tests?|__tests__|fixtures|\.[^/]+)/|(?:^|/)\.[^/]*$"
)


# --- problems -----------------------------------------------------------------------------

_MAX_FILES = 2_000
"""A folder with more is a repository rather than a skill: its scripts are not planned."""


def script_problems(file: str, text: str = "") -> list[Problem]:
    """A problem for each script of a skill that cannot be run, or has the wrong line ends.

    Args:
        file: Its SKILL.md or skill.yaml, absolute; the program of the latter is not planned.
        text: The body of that file.
    """
    folder, name = os.path.split(file)
    problems: list[Problem] = []
    try:
        paths = list_files(folder)
        files = [(path, os.lstat(os.path.join(folder, path)).st_mode) for path in paths]
    except OSError:  # reported where the files are
        return problems
    for path in list_scripts(files, text) if len(files) <= _MAX_FILES else ():
        try:
            head = read_inside(folder, path, first_bytes=_HEAD_BYTES) or b""
            if head.startswith(b"#!") and head.partition(b"\n")[0].endswith(b"\r"):
                problems.append(Problem("script-ends", file, values={"file": path}))
            elif name != MANIFEST:
                plan_script(folder, path)
        except BuildFailed as exc:
            values = {"file": path, "reason": exc.message, "fix": exc.hint}
            problems.append(Problem("script-plan", file, values=values))
    return problems
