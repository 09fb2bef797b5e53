"""Scaffolding: new skills that run and pass their check-list, for `satchel new`.

The templates are real skills named `example-skill`, in English; `templates/zh.json` contains the
Chinese of every sentence. Each template can be run and checked by itself.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal, NamedTuple
from unicodedata import normalize

from satchel.errors import InvalidInput, Refused
from satchel.i18n import say
from satchel.skill.metadata import slug

if TYPE_CHECKING:
    from satchel.authoring.text_rules import Language

Kind = Literal["skill", "python", "typescript", "go", "binary"]
KINDS: tuple[Kind, ...] = ("skill", "python", "typescript", "go", "binary")
COMPILE = ("cc", "-O2", "-o", "skill", "main.c")
"""Compiler command of a `binary`."""

_ENTRIES = {
    "python": ("python", "main.py"),
    "typescript": ("node", "main.ts"),
    "go": ("go", "main.go"),
    "binary": ("binary", "skill"),
}
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
    """The files of a new skill.

    Args:
        name: What it is called; its id is that in lower case, with hyphens for everything odd.
        kind: Instructions (`skill`), or a tool in one of four languages.
        language: Of its texts.

    Raises:
        InvalidInput: nothing can be called so.
        Refused: the compiler that is here does not compile.
    """
    written = any(mark.isalnum() for mark in normalize("NFKD", name) if mark.isascii())
    skill_id = slug(name)
    domain = skill_id.replace("-", "_")
    tool = "" if kind == "skill" else f"{domain}_count"
    if not written or (tool and (not domain[0].isalpha() or len(tool) > _MAX_TOOL_NAME_CHARS)):
        raise InvalidInput(
            say("`{name}` is not a valid name", name=name.strip()),
            say("Use a-z, 0-9 and single hyphens"),
        )
    folders = ("skill",) if kind == "skill" else ("tool", kind)
    files: dict[str, bytes] = {}
    for folder in folders:
        for path, text in sorted(_templates(folder).items()):
            files[path] = _filled(text, skill_id, domain, kind, language).encode()
    if kind != "binary":
        return Scaffold(skill_id, kind, files, tool=tool)
    program = _compiled(files["main.c"])
    if program is None:
        return Scaffold(skill_id, kind, files, tool=tool, missing=" ".join(COMPILE))
    files["skill"] = program
    return Scaffold(skill_id, kind, files, frozenset(("skill",)), tool)


def _templates(folder: str) -> dict[str, str]:
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "templates", folder)
    found: dict[str, str] = {}
    for here, _, names in os.walk(root):
        for name in names:
            path = os.path.join(here, name)
            with open(path, encoding="utf-8") as file:
                found[os.path.relpath(path, root).replace(os.sep, "/").removesuffix(".tmpl")] = (
                    file.read()
                )
    return found


def _filled(text: str, skill_id: str, domain: str, kind: Kind, language: Language) -> str:
    if kind in _ENTRIES:
        runtime, entry = _ENTRIES[kind]
        text = text.replace("runtime: python", f"runtime: {runtime}")
        text = text.replace("entry: main.py", f"entry: {entry}")
    if language == "zh":
        table = translations()
        # Longest first: a sentence may contain another one.
        for sentence in sorted(table, key=len, reverse=True):
            text = text.replace(sentence, table[sentence])
    text = text.replace("Example skill", skill_id.replace("-", " ").capitalize())
    return text.replace("example-skill", skill_id).replace("example_skill", domain)


def translations() -> dict[str, str]:
    """Return English -> Chinese of the templates."""
    import json

    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "templates", "zh.json")
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def _compiled(source: bytes) -> bytes | None:
    """Compile a C source; None without a compiler.

    Raises:
        Refused: the installed compiler fails.
    """
    import shutil
    import subprocess
    import tempfile

    compiler = next(
        (found for name in ("cc", "gcc", "clang") if (found := shutil.which(name))), None
    )
    if compiler is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "main.c"), "wb") as file:
            file.write(source)
        done = subprocess.run(  # noqa: S603 - our own source, by the user's own compiler
            [compiler, *COMPILE[1:]], cwd=folder, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            reason = (done.stderr.strip().splitlines() or [str(done.returncode)])[0]
            raise Refused(
                say("`{command}` failed: {reason}", command=" ".join(COMPILE), reason=reason),
                say("Install a C compiler with its headers, or choose another `--kind`"),
            )
        with open(os.path.join(folder, "skill"), "rb") as file:
            return file.read()


def write_into(scaffold: Scaffold, folder: str) -> str:
    """Write a new skill below a folder atomically; return the skill's folder.

    Raises:
        InvalidInput: the name is taken.
        Refused: the folder cannot be written.
    """
    import shutil
    import tempfile

    target = os.path.join(folder, scaffold.id)
    if os.path.lexists(target):
        raise InvalidInput(say("`{path}` exists already", path=target), say("Choose another name"))
    aside = ""
    try:
        os.makedirs(folder, exist_ok=True)
        aside = tempfile.mkdtemp(prefix=f".{scaffold.id}-", dir=folder)
        os.chmod(aside, 0o755)  # noqa: S103 - a folder like any other, not a secret
        for path, content in scaffold.files.items():
            full = os.path.join(aside, path)
            os.makedirs(os.path.dirname(full), exist_ok=True)
            with open(full, "wb") as file:
                file.write(content)
            if path in scaffold.programs:
                os.chmod(full, 0o755)  # noqa: S103 - a program
        os.rename(aside, target)
    except OSError as exc:
        if aside:
            shutil.rmtree(aside, ignore_errors=True)
        raise Refused(
            say("`{path}` cannot be written: {reason}", path=target, reason=exc.strerror or exc),
            say("Check the permissions"),
        ) from exc
    return target
