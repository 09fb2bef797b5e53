"""Where do other programs keep their list of MCP servers, and what is written there?

Each program has a file for the user and most have one for a project. What is written for a project
names no path of this machine, since such files are shared.
"""

from __future__ import annotations

import os
import shutil
import sys
from typing import Any, Literal, NamedTuple, cast

from satchel._fs import is_really_inside
from satchel._language import say
from satchel.errors import InvalidInput, Refused
from satchel.integrations.mcp import json_text, toml_text
from satchel.integrations.mcp.replacing import forget, read, replace

Scope = Literal["user", "project"]
NAME = "satchel"
BACKUP = ".satchel-backup"
_HERE = "${workspaceFolder}"


class Program(NamedTuple):
    """A program that takes MCP servers."""

    title: str
    user: str
    """Its file below the home folder."""
    project: str
    """Its file below a project; empty when it has none."""
    table: str
    """The key that holds the servers."""
    usual: Scope
    typed: bool = False
    """Whether an entry says its `type`."""
    folder: str = ""
    """How a project's file names the project's folder, where the program does not start there.

    A user's file cannot say it that way: nothing need be open, and then it means nothing."""


def programs() -> dict[str, Program]:
    """The programs that are known, by name."""
    if sys.platform == "darwin":
        apps = "Library/Application Support"
    elif os.name == "nt":
        apps = "AppData/Roaming"
    else:
        apps = ".config"
    return {
        "claude-desktop": Program(
            "Claude Desktop", f"{apps}/Claude/claude_desktop_config.json", "", "mcpServers", "user"
        ),
        "claude-code": Program(
            "Claude Code", ".claude.json", ".mcp.json", "mcpServers", "project", typed=True
        ),
        "cursor": Program(
            "Cursor", ".cursor/mcp.json", ".cursor/mcp.json", "mcpServers", "user", folder=_HERE
        ),
        "vscode": Program(
            "VS Code",
            f"{apps}/Code/User/mcp.json",
            ".vscode/mcp.json",
            "servers",
            "project",
            typed=True,
            folder=_HERE,
        ),
        "codex": Program(
            "Codex", ".codex/config.toml", ".codex/config.toml", "mcp_servers", "user"
        ),
        "gemini": Program(
            "Gemini CLI", ".gemini/settings.json", ".gemini/settings.json", "mcpServers", "user"
        ),
    }


class Change(NamedTuple):
    """What would be written."""

    program: Program
    path: str
    """The file itself; where a link was found, what it leads to."""
    before: str | None
    """The file as it is; None when there is none."""
    after: str | None
    """The file as it would be; None when it would be deleted."""
    restores: bool = False
    """Whether the copy which was kept is no longer needed: it is back, or says nothing more."""
    scope: Scope = "project"
    """Whose file it is; a new one of the user's is for the user alone."""
    renews: bool = False
    """Whether only our own entry changes: what was kept of the file before it is kept."""

    @property
    def needed(self) -> bool:
        """Whether there is anything to do."""
        return self.before != self.after

    def difference(self, name: str = "") -> list[str]:
        """The lines that change, as `diff -u` shows them; the file is called `name` there."""
        import difflib

        old = (self.before or "").splitlines()
        new = (self.after or "").splitlines()
        name = name or self.path
        return list(difflib.unified_diff(old, new, name, name, lineterm=""))


def entry(program: Program, scope: Scope, project: str) -> dict[str, Any]:
    """What a program is told: how to start the server."""
    args = ["mcp", "serve"]
    if scope == "project":
        command = NAME
        if program.folder:
            args += ["--project", program.folder]
    else:
        command = _command()
        if command == sys.executable:
            args = ["-m", "satchel", *args]
        if program.folder or not program.project:  # it starts it nowhere in particular
            args += ["--project", os.path.abspath(project)]
    kind = {"type": "stdio"} if program.typed else {}
    return {**kind, "command": command, "args": args}


def _command() -> str:
    """The whole path: a program with windows has not the PATH of a terminal."""
    beside = os.path.join(os.path.dirname(sys.executable), NAME)
    if os.access(beside, os.X_OK):
        return beside
    return shutil.which(NAME) or sys.executable


def plan_install(name: str, scope: Scope | None, project: str) -> Change:
    """What would be written so that a program knows this server.

    Raises:
        InvalidInput: the program has no file for that.
        Refused: the file cannot be read or changed safely.
    """
    program, scope, path = _place(name, scope, project)
    before = read(path)
    after = _put(program, before or "", entry(program, scope, project), path)
    ours = None if before is None else _get(program, before, path)
    renews = before is not None and is_ours(ours) and _is_only_ours(program, before, ours, path)
    return Change(program, path, before, after, scope=scope, renews=renews)


def plan_uninstall(name: str, scope: Scope | None, project: str) -> Change:
    """What would be written so that a program no longer knows it.

    Where nobody touched the file since, it becomes what it was before, to the byte.

    Raises:
        InvalidInput: the program has no file for that.
        Refused: the entry is somebody else's, or the file cannot be read or changed safely.
    """
    program, scope, path = _place(name, scope, project)
    before = read(path)
    ours = None if before is None else _get(program, before, path)
    if before is None or ours is None:
        return Change(program, path, before, before)
    if not is_ours(ours):
        raise Refused(
            say("The entry `{name}` of {program} does not start Satchel", name=NAME,
                program=program.title),
            say("Look at it in `{path}`, and remove it there if nobody needs it", path=path),
        )  # fmt: skip
    kept = read(path + BACKUP)
    if kept is not None and _was_before(program, kept, ours, before, path):
        return Change(program, path, before, kept, restores=True)
    if _put(program, "", ours, path) == before:
        spent = kept is not None and _has_ours(program, kept, path)
        return Change(program, path, before, None, restores=spent)
    return Change(program, path, before, _drop(program, before, path))


def is_ours(held: Any) -> bool:
    """Whether an entry of a program starts this one."""
    if not isinstance(held, dict):
        return False
    told = cast("dict[str, Any]", held)
    command, args = told.get("command"), told.get("args")
    if not isinstance(command, str):
        return False
    last = command.replace("\\", "/").rsplit("/", 1)[-1].lower()
    if last.removesuffix(".exe") == NAME:
        return True
    return isinstance(args, list) and cast("list[Any]", args)[:2] == ["-m", NAME]


def write(change: Change) -> str:
    """Make a change; returns the path of the copy that was kept, or nothing.

    Raises:
        Changed: the file is no longer what the change was made out from.
        Refused: it cannot be written.
    """
    kept = change.path + BACKUP
    copy = kept if change.before is not None and change.after is not None else ""
    if change.restores or change.renews:
        copy = ""
    mode = 0o600 if change.scope == "user" else 0o644
    replace(change.path, change.before, change.after, copy, mode)
    if change.restores:
        forget(kept)
    return copy


def _place(name: str, scope: Scope | None, project: str) -> tuple[Program, Scope, str]:
    program = programs()[name]
    scope = scope or program.usual
    if scope == "user":
        path = os.path.join(os.path.expanduser("~"), program.user)
        return program, scope, _real(path)
    if not program.project:
        raise InvalidInput(
            say("{program} has no configuration for a project", program=program.title),
            say("Leave out `--scope`"),
        )
    folder = os.path.abspath(project)
    path = os.path.join(folder, program.project)
    if not is_really_inside(path, folder):  # projects come from anywhere
        raise Refused(
            say("`{path}` leads outside the project", path=path),
            say("Look at the link, or give `--scope user`"),
        )
    return program, scope, _real(path)


def _real(path: str) -> str:
    """A link to somebody's own collection stays a link: what it leads to is changed."""
    return os.path.realpath(path) if os.path.islink(path) else path


def _has_ours(program: Program, text: str, path: str) -> bool:
    """Whether a copy is one of a file that had our entry already."""
    try:
        return is_ours(_get(program, text, path))
    except Refused:
        return False


def _is_only_ours(program: Program, text: str, ours: Any, path: str) -> bool:
    """Whether a file is what it was before our entry, and that entry: nobody else changed it."""
    kept = read(path + BACKUP)
    if kept is not None and _was_before(program, kept, ours, text, path):
        return True
    return _put(program, "", ours, path) == text


def _was_before(program: Program, kept: str, ours: Any, before: str, path: str) -> bool:
    """Whether a file is the copy that was kept and our entry, and nothing else."""
    try:
        return not is_ours(_get(program, kept, path)) and _put(program, kept, ours, path) == before
    except Refused:  # the copy is not what it was; the file itself counts
        return False


def _get(program: Program, text: str, path: str) -> Any:
    editor = toml_text if path.endswith(".toml") else json_text
    try:
        return editor.get(text, program.table, NAME)
    except ValueError as exc:
        raise _unsafe(path, exc, say("Change it by hand")) from exc


def _put(program: Program, text: str, ours: dict[str, Any], path: str) -> str:
    editor = toml_text if path.endswith(".toml") else json_text
    try:
        return editor.put(text, program.table, NAME, ours)
    except ValueError as exc:
        if editor is toml_text:
            shown = toml_text.written(program.table, NAME, ours).rstrip()
            words = say("Change it by hand; the entry should be:")
        else:
            shown = f"{_quoted(NAME)}: {_quoted(ours)}"
            words = say("Change it by hand; in `{table}` there should be:", table=program.table)
        hint = f"{words}\n{shown}"
        raise _unsafe(path, exc, hint) from exc


def _drop(program: Program, text: str, path: str) -> str:
    editor = toml_text if path.endswith(".toml") else json_text
    try:
        return editor.drop(text, program.table, NAME)
    except ValueError as exc:
        hint = say("Remove `{name}` from `{table}` by hand", name=NAME, table=program.table)
        raise _unsafe(path, exc, hint) from exc


def _quoted(value: Any) -> str:
    import json

    return json.dumps(value, ensure_ascii=False)


def _unsafe(path: str, exc: ValueError, hint: str) -> Refused:
    return Refused(say("`{path}` cannot be changed safely: {reason}", path=path, reason=exc), hint)
