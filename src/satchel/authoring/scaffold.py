"""Scaffolding: new skills that run and pass their check-list, for `satchel new`.

The templates are real skills named `example-skill`, in English; `templates/zh.json` contains the
Chinese of every sentence. Each template can be run and checked by itself.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from typing import TYPE_CHECKING, Literal, NamedTuple
from unicodedata import normalize

from satchel.errors import InvalidInput, Refused
from satchel.i18n import say
from satchel.skill.metadata import slug

if TYPE_CHECKING:
    from satchel.authoring.text_rules import Language

Kind = Literal["skill", "scripts", "python", "typescript", "go", "binary"]
KINDS: tuple[Kind, ...] = ("skill", "scripts", "python", "typescript", "go", "binary")
_KINDS_WITHOUT_TOOL = ("skill", "scripts")
COMPILE_COMMAND = ("cc", "-O2", "-o", "skill", "main.c")
"""Compiler command of a `binary`."""

_RUNTIMES = {
    "python": ("python", "main.py"),
    "typescript": ("node", "main.ts"),
    "go": ("go", "main.go"),
    "binary": ("binary", "skill"),
}
"""Kind of a tool skill -> its runtime and entry."""
_MAX_TOOL_NAME_CHARS = 64


class Scaffold(NamedTuple):
    """The files of a new skill."""

    id: str
    kind: Kind
    files: dict[str, bytes]
    """Path, with `/` -> content."""
    programs: frozenset[str] = frozenset()
    """Files that may be executed."""
    tool: str = ""
    """The name of its tool; empty for a SKILL.md."""
    missing: str = ""
    """What could not be created here, such as a binary without a compiler."""


def new_skill(name: str, kind: Kind = "skill", language: Language = "en") -> Scaffold:
    """Return the files of a new skill.

    Args:
        name: What it is called; its id is that in lower case, with hyphens for everything odd.
        kind: Instructions (`skill`), also with `scripts`, or a tool in one of four languages.
        language: The language of its texts.

    Raises:
        InvalidInput: the name cannot be that of a skill.
        Refused: the installed compiler fails.
    """
    has_letters = any(char.isalnum() for char in normalize("NFKD", name) if char.isascii())
    skill_id = slug(name)
    domain = skill_id.replace("-", "_")
    tool = "" if kind in _KINDS_WITHOUT_TOOL else f"{domain}_count"
    is_tool_name = domain[:1].isalpha() and len(tool) <= _MAX_TOOL_NAME_CHARS
    if not has_letters or (tool and not is_tool_name):
        raise InvalidInput(
            say("`{name}` is not a valid name", name=name.strip()),
            say("Use a-z, 0-9 and single hyphens"),
        )
    folders = (kind,) if kind in _KINDS_WITHOUT_TOOL else ("tool", kind)
    files: dict[str, bytes] = {}
    for folder in folders:
        for path, text in sorted(_read_templates(folder).items()):
            files[path] = _fill_template(text, skill_id, kind, language).encode()
    if kind != "binary":
        shell = frozenset(path for path in files if path.endswith(".sh"))
        return Scaffold(skill_id, kind, files, shell, tool)
    program = _compile(files["main.c"])
    if program is None:
        return Scaffold(skill_id, kind, files, tool=tool, missing=" ".join(COMPILE_COMMAND))
    files["skill"] = program
    return Scaffold(skill_id, kind, files, frozenset(("skill",)), tool)


def _read_templates(folder: str) -> dict[str, str]:
    """Read a folder of templates; path with `/` -> text."""
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "templates", folder)
    templates: dict[str, str] = {}
    for current, _, names in os.walk(root):
        for path in [os.path.join(current, name) for name in names]:
            target = os.path.relpath(path, root).replace(os.sep, "/").removesuffix(".tmpl")
            with open(path, encoding="utf-8") as file:
                templates[target] = file.read()
    return templates


def _fill_template(text: str, skill_id: str, kind: Kind, language: Language) -> str:
    if kind in _RUNTIMES:
        runtime, entry = _RUNTIMES[kind]
        text = text.replace("runtime: python", f"runtime: {runtime}")
        text = text.replace("entry: main.py", f"entry: {entry}")
    if language == "zh":
        chinese = translations()
        # Longest first: a sentence may contain another one.
        for sentence in sorted(chinese, key=len, reverse=True):
            text = text.replace(sentence, chinese[sentence])
    text = text.replace("Example skill", skill_id.replace("-", " ").capitalize())
    return text.replace("example-skill", skill_id).replace(
        "example_skill", skill_id.replace("-", "_")
    )


def translations() -> dict[str, str]:
    """Return English -> Chinese of the templates."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "templates", "zh.json")
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def _compile(source: bytes) -> bytes | None:
    """Compile a C source; None without a compiler.

    Raises:
        Refused: the installed compiler fails.
    """
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "main.c"), "wb") as file:
            file.write(source)
        process = subprocess.run(  # noqa: S603 - our own source, by the user's own compiler
            [compiler, *COMPILE_COMMAND[1:]],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        if process.returncode != 0:
            reason = (process.stderr.strip().splitlines() or [str(process.returncode)])[0]
            raise Refused(
                say(
                    "`{command}` failed: {reason}", command=" ".join(COMPILE_COMMAND), reason=reason
                ),
                say("Install a C compiler with its headers, or choose another `--kind`"),
            )
        with open(os.path.join(folder, "skill"), "rb") as file:
            return file.read()


def write_scaffold(scaffold: Scaffold, folder: str) -> str:
    """Write a new skill below a folder atomically; return the skill's folder.

    Raises:
        InvalidInput: the name is taken.
        Refused: the folder cannot be written.
    """
    target = os.path.join(folder, scaffold.id)
    if os.path.lexists(target):
        raise InvalidInput(say("`{path}` exists already", path=target), say("Choose another name"))
    draft_folder = ""
    try:
        os.makedirs(folder, exist_ok=True)
        draft_folder = tempfile.mkdtemp(prefix=f".{scaffold.id}-", dir=folder)
        os.chmod(draft_folder, 0o755)  # noqa: S103 - a folder like any other, not a secret
        for path, content in scaffold.files.items():
            full_path = os.path.join(draft_folder, path)
            os.makedirs(os.path.dirname(full_path), exist_ok=True)
            with open(full_path, "wb") as file:
                file.write(content)
            if path in scaffold.programs:
                os.chmod(full_path, 0o755)  # noqa: S103 - a program
        os.rename(draft_folder, target)
    except OSError as exc:
        if draft_folder:
            shutil.rmtree(draft_folder, ignore_errors=True)
        raise Refused(
            say("`{path}` cannot be written: {reason}", path=target, reason=exc.strerror or exc),
            say("Check the permissions"),
        ) from exc
    return target
