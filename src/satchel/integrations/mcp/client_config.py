"""Registers the MCP server with other programs: Claude, Cursor, VS Code, Codex, Gemini.

A program's own `mcp add` command is used if it has one on the PATH. Otherwise one entry of its file
is set, if that is plain JSON, with a copy of the file beside it. Anything else is refused with the
entry to paste. A project's file names no path of this machine, since such files are shared.
"""

from __future__ import annotations

import difflib
import json
import os
import shlex
import shutil
import subprocess
import sys
import tomllib
from typing import Any, Literal, NamedTuple

from satchel._fs import is_really_inside, read_plain, write_atomic
from satchel.errors import Changed, InvalidInput, Refused
from satchel.i18n import say

Scope = Literal["user", "project"]
NAME = "satchel"
BACKUP = ".satchel-backup"
_HERE = "${workspaceFolder}"
_MAX_CONFIG_BYTES = 8 << 20
_APPS = {"darwin": "Library/Application Support", "win32": "AppData/Roaming"}.get(
    sys.platform, ".config"
)


class McpClient(NamedTuple):
    """A program with MCP servers, and its files below the home folder and a project."""

    title: str
    user: str
    project: str
    table: str
    """The key that holds the servers."""
    usual: Scope
    typed: bool = False
    """Whether an entry has a `type`."""
    folder: str = ""
    """How a project's file names the project's folder, if the program does not start there."""
    command: str = ""
    """Its own command with `mcp add` and `mcp remove`."""


_DESKTOP, _CODE = f"{_APPS}/Claude/claude_desktop_config.json", f"{_APPS}/Code/User/mcp.json"
_CURSOR, _CODEX, _GEMINI = ".cursor/mcp.json", ".codex/config.toml", ".gemini/settings.json"
PROGRAMS = {
    "claude-desktop": McpClient("Claude Desktop", _DESKTOP, "", "mcpServers", "user"),
    "claude-code": McpClient("Claude Code", ".claude.json", ".mcp.json", "mcpServers", "project",
                           typed=True, command="claude"),
    "cursor": McpClient("Cursor", _CURSOR, _CURSOR, "mcpServers", "user", folder=_HERE),
    "vscode": McpClient("VS Code", _CODE, ".vscode/mcp.json", "servers", "project",
                      typed=True, folder=_HERE),
    "codex": McpClient("Codex", _CODEX, _CODEX, "mcp_servers", "user", command="codex"),
    "gemini": McpClient("Gemini CLI", _GEMINI, _GEMINI, "mcpServers", "user", command="gemini"),
}  # fmt: skip


class ConfigChange(NamedTuple):
    """A planned change: commands of the program, or a new text of its file."""

    program: McpClient
    path: str
    before: str | None
    """None if there is no file."""
    after: str | None
    scope: Scope
    commands: tuple[tuple[str, ...], ...] = ()

    @property
    def needed(self) -> bool:
        """Whether it changes anything."""
        return bool(self.commands) or self.before != self.after

    def difference(self, name: str) -> list[str]:
        """The commands, or the lines of the file that change, as `diff -u` shows them."""
        if self.commands:
            return [f"+{shlex.join(command)}" for command in self.commands]
        old, new = (self.before or "").splitlines(), (self.after or "").splitlines()
        return list(difflib.unified_diff(old, new, name, name, lineterm=""))


def plan(name: str, scope: Scope | None, project: str, *, remove: bool = False) -> ConfigChange:
    """Plan to register this server with a program, or to remove it there.

    Raises:
        InvalidInput: the program has no file for that scope.
        Refused: the file cannot be changed.
    """
    program = PROGRAMS[name]
    scope = scope or program.usual
    path = _path(program, scope, project)
    wanted = None if remove else _entry(program, scope, project)
    toml = path.endswith(".toml")
    try:
        before = _read(path)
        content: dict[str, Any] = (
            tomllib.loads(before or "") if toml else json.loads(before or "{}")
        )
        servers: dict[str, Any] = {**content.get(program.table, {})}
        held = servers.pop(NAME, None)
        after = f"{before}\n" if before else ""
        if toml and wanted and held is None:
            after += f"{_toml_table(program, wanted)}\n"
            tomllib.loads(after)  # fails if `mcp_servers` is an inline table
    except (OSError, ValueError, AttributeError, TypeError) as exc:
        raise _by_hand(path, program, wanted) from exc
    change = ConfigChange(program, path, before, before, scope)
    if held == wanted or (wanted and isinstance(held, dict) and {**held, **wanted} == held):
        return change
    tool = program.command
    if tool and shutil.which(tool) and (tool != "codex" or scope == "user"):
        options = () if tool == "codex" else ("--scope", scope)
        commands: list[tuple[str, ...]] = []
        if held is not None:
            commands.append((tool, "mcp", "remove", *options, NAME))
        if wanted is not None:
            words = ["--", wanted["command"], *wanted["args"]]
            if tool == "gemini":
                words[:2] = words[1::-1]
            commands.append((tool, "mcp", "add", *options, NAME, *words))
        return change._replace(commands=tuple(commands))
    if toml and (wanted is None or held is not None):
        raise _by_hand(path, program, wanted)
    if toml:
        return change._replace(after=after)
    content[program.table] = servers if wanted is None else {**servers, NAME: wanted}
    return change._replace(after=json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def apply(change: ConfigChange, project: str) -> str:
    """Make a change; returns the path of the copy of the file, if there is one.

    Raises:
        Changed: the file was written since the change was planned.
        Refused: it cannot be written, or a command of the program failed.
    """
    for command in change.commands:
        done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)  # noqa: S603 - shown before
        if done.returncode:
            raise Refused((done.stderr or done.stdout).strip() or " ".join(command), "")
    if change.commands:
        return ""
    path = change.path
    if _read(path) != change.before:
        raise Changed(say("`{path}` changed meanwhile", path=path), say("Try again"))
    mode = 0o600 if change.scope == "user" else 0o644
    try:
        if change.before is not None:
            mode = os.stat(path).st_mode & 0o777
            write_atomic(path + BACKUP, change.before.encode(), private=True)
        write_atomic(path, (change.after or "").encode(), private=True)
        os.chmod(path, mode)
    except OSError as exc:
        raise Refused(
            say("`{path}` cannot be written: {reason}", path=path, reason=exc.strerror or exc),
            say("Check the permissions"),
        ) from exc
    return path + BACKUP if change.before is not None else ""


def _entry(program: McpClient, scope: Scope, project: str) -> dict[str, Any]:
    args = ["mcp", "serve"]
    if scope == "project":
        command = NAME
        args += ["--project", program.folder] if program.folder else []
    else:
        # The whole path: a graphical program does not have the PATH of a terminal.
        command = os.path.join(os.path.dirname(sys.executable), NAME)
        if not os.access(command, os.X_OK):
            command, args = sys.executable, ["-m", NAME, *args]
        if program.folder or not program.project:  # its working directory is undefined
            args += ["--project", os.path.abspath(project)]
    return {**({"type": "stdio"} if program.typed else {}), "command": command, "args": args}


def _path(program: McpClient, scope: Scope, project: str) -> str:
    if scope == "user":
        return os.path.realpath(os.path.join(os.path.expanduser("~"), program.user))
    if not program.project:
        text = say("{program} has no configuration for a project", program=program.title)
        raise InvalidInput(text, say("Leave out `--scope`"))
    folder = os.path.abspath(project)
    path = os.path.join(folder, program.project)
    if not is_really_inside(path, folder):  # projects are untrusted
        raise Refused(
            say("`{path}` leads outside the project", path=path), say("Leave out `--scope`")
        )
    return os.path.realpath(path) if os.path.islink(path) else path


def _read(path: str) -> str | None:
    try:
        return read_plain(path, _MAX_CONFIG_BYTES).decode()
    except FileNotFoundError:
        return None


def _toml_table(program: McpClient, wanted: dict[str, Any]) -> str:
    rows = (f"{key} = {json.dumps(value)}" for key, value in wanted.items())
    return "\n".join((f"[{program.table}.{NAME}]", *rows))


def _by_hand(path: str, program: McpClient, wanted: dict[str, Any] | None) -> Refused:
    if wanted is None:
        hint = say("Remove `{name}` from `{table}` by hand", name=NAME, table=program.table)
    else:
        entry = json.dumps({program.table: {NAME: wanted}}, ensure_ascii=False)
        entry = _toml_table(program, wanted) if path.endswith(".toml") else entry
        hint = "\n".join((say("Change it by hand:"), entry))
    return Refused(say("Satchel edits plain JSON only, and not `{path}`", path=path), hint)
