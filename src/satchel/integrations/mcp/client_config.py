"""Registers the MCP server with other programs: Claude, Cursor, VS Code, Codex, Gemini.

A program's own `mcp add` command is used if it has one on the PATH. Otherwise one entry of its file
is set, if that is plain JSON, with a copy of the file beside it. Anything else is refused with the
entry to paste. A project's file names no path of this machine, since such files are shared.
"""

from __future__ import annotations

import difflib
import json
import os
import re
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


class McpClient(NamedTuple):
    """A program with MCP servers, and its configuration files."""

    title: str
    user_file: str
    """Path below the home folder."""
    project_file: str
    """Path below a project; empty when the program has no configuration for a project."""
    servers_key: str
    """The key of the file that holds the servers."""
    default_scope: Scope
    has_type_field: bool = False
    """Whether an entry has a `type`."""
    project_variable: str = ""
    """How a project's file names the project's folder, if the program does not start there."""
    command: str = ""
    """Its own command with `mcp add` and `mcp remove`."""


SERVER_NAME = "satchel"
BACKUP_SUFFIX = ".satchel-backup"
_MAX_CONFIG_BYTES = 8 << 20
_APP_FOLDERS = {"darwin": "Library/Application Support", "win32": "AppData/Roaming"}
_APP_FOLDER = _APP_FOLDERS.get(sys.platform, ".config")
_WORKSPACE = "${workspaceFolder}"
CLIENTS = {
    "claude-desktop": McpClient(
        "Claude Desktop",
        user_file=f"{_APP_FOLDER}/Claude/claude_desktop_config.json",
        project_file="",
        servers_key="mcpServers",
        default_scope="user",
    ),
    "claude-code": McpClient(
        "Claude Code",
        user_file=".claude.json",
        project_file=".mcp.json",
        servers_key="mcpServers",
        default_scope="project",
        has_type_field=True,
        command="claude",
    ),
    "cursor": McpClient(
        "Cursor",
        user_file=".cursor/mcp.json",
        project_file=".cursor/mcp.json",
        servers_key="mcpServers",
        default_scope="user",
        project_variable=_WORKSPACE,
    ),
    "vscode": McpClient(
        "VS Code",
        user_file=f"{_APP_FOLDER}/Code/User/mcp.json",
        project_file=".vscode/mcp.json",
        servers_key="servers",
        default_scope="project",
        has_type_field=True,
        project_variable=_WORKSPACE,
    ),
    "codex": McpClient(
        "Codex",
        user_file=".codex/config.toml",
        project_file=".codex/config.toml",
        servers_key="mcp_servers",
        default_scope="user",
        command="codex",
    ),
    "gemini": McpClient(
        "Gemini CLI",
        user_file=".gemini/settings.json",
        project_file=".gemini/settings.json",
        servers_key="mcpServers",
        default_scope="user",
        command="gemini",
    ),
}


class ConfigChange(NamedTuple):
    """A planned change: commands of the program, or a new text of its file."""

    client: McpClient
    path: str
    old_text: str | None
    """None if there is no file."""
    new_text: str | None
    scope: Scope
    commands: tuple[tuple[str, ...], ...] = ()

    @property
    def is_needed(self) -> bool:
        """Whether it changes anything."""
        return bool(self.commands) or self.old_text != self.new_text

    def diff_lines(self, file_name: str) -> list[str]:
        """Return the commands, or the lines of the file that change, as `diff -u` shows them."""
        if self.commands:
            return [f"+{shlex.join(command)}" for command in self.commands]
        old_lines, new_lines = (
            (self.old_text or "").splitlines(),
            (self.new_text or "").splitlines(),
        )
        return list(difflib.unified_diff(old_lines, new_lines, file_name, file_name, lineterm=""))


def plan(
    client_id: str, scope: Scope | None, project: str, *, remove: bool = False
) -> ConfigChange:
    """Plan to register this server with a program, or to remove it there.

    Raises:
        InvalidInput: the program has no file for that scope.
        Refused: the file cannot be changed.
    """
    client = CLIENTS[client_id]
    scope = scope or client.default_scope
    path = _config_path(client, scope, project)
    entry = None if remove else _make_entry(client, scope, project)
    is_toml = path.endswith(".toml")
    try:
        old_text = _read_text(path)
        config = _parse(path, old_text or "")
        servers: dict[str, Any] = {**config.get(client.servers_key, {})}
        old_entry = servers.pop(SERVER_NAME, None)
        new_text = None
        if is_toml and (entry is None) != (old_entry is None):
            new_text = _change_toml(old_text or "", client, entry)
    except (OSError, ValueError, AttributeError, TypeError) as exc:
        raise _edit_refusal(path, client, entry) from exc
    change = ConfigChange(client, path, old_text, old_text, scope)
    if _is_same_entry(entry, old_entry):
        return change
    if _has_command(client, scope):
        commands = _make_commands(client, scope, entry, replace=old_entry is not None)
        return change._replace(commands=commands)
    if not is_toml:
        config[client.servers_key] = servers if entry is None else {**servers, SERVER_NAME: entry}
        new_text = json.dumps(config, indent=2, ensure_ascii=False) + "\n"
    if new_text is None:
        raise _edit_refusal(path, client, entry)
    return change._replace(new_text=new_text)


def apply(change: ConfigChange, project: str) -> str:
    """Make a change; returns the path of the copy of the file, if there is one.

    Raises:
        Changed: the file was written since the change was planned.
        Refused: it cannot be written, or a command of the program failed.
    """
    if change.commands:
        _run_commands(change.commands, project)
        return ""
    path = change.path
    if _read_text(path) != change.old_text:
        raise Changed(say("`{path}` changed meanwhile", path=path), say("Try again"))
    mode = 0o600 if change.scope == "user" else 0o644
    try:
        if change.old_text is not None:
            mode = os.stat(path).st_mode & 0o777
            write_atomic(path + BACKUP_SUFFIX, change.old_text.encode(), private=True)
        write_atomic(path, (change.new_text or "").encode(), private=True)
        os.chmod(path, mode)
    except OSError as exc:
        raise Refused(
            say("`{path}` cannot be written: {reason}", path=path, reason=exc.strerror or exc),
            say("Check the permissions"),
        ) from exc
    return path + BACKUP_SUFFIX if change.old_text is not None else ""


def _run_commands(commands: tuple[tuple[str, ...], ...], project: str) -> None:
    for command in commands:
        process = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)  # noqa: S603 - shown before
        if process.returncode:
            raise Refused((process.stderr or process.stdout).strip() or " ".join(command), "")


def _config_path(client: McpClient, scope: Scope, project: str) -> str:
    """Return the absolute path of the program's file for a scope."""
    if scope == "user":
        return os.path.realpath(os.path.join(os.path.expanduser("~"), client.user_file))
    if not client.project_file:
        message = say("{program} has no configuration for a project", program=client.title)
        raise InvalidInput(message, say("Leave out `--scope`"))
    folder = os.path.abspath(project)
    path = os.path.join(folder, client.project_file)
    if not is_really_inside(path, folder):  # projects are untrusted
        raise Refused(
            say("`{path}` leads outside the project", path=path), say("Leave out `--scope`")
        )
    return os.path.realpath(path) if os.path.islink(path) else path


def _make_entry(client: McpClient, scope: Scope, project: str) -> dict[str, Any]:
    """Return the entry that starts this server."""
    args = ["mcp", "serve"]
    if scope == "project":
        command = SERVER_NAME
        if client.project_variable:
            args += ["--project", client.project_variable]
    else:
        # The whole path: a graphical program does not have the PATH of a terminal.
        command = os.path.join(os.path.dirname(sys.executable), SERVER_NAME)
        if not os.access(command, os.X_OK):
            command, args = sys.executable, ["-m", SERVER_NAME, *args]
        if client.project_variable or not client.project_file:  # its working directory is undefined
            args += ["--project", os.path.abspath(project)]
    type_field = {"type": "stdio"} if client.has_type_field else {}
    return {**type_field, "command": command, "args": args}


def _is_same_entry(entry: dict[str, Any] | None, old_entry: Any) -> bool:
    """Whether the file has the entry already; it may have more keys."""
    if entry and isinstance(old_entry, dict):
        return {**old_entry, **entry} == old_entry
    return old_entry == entry


def _has_command(client: McpClient, scope: Scope) -> bool:
    """Whether the program's own command can change this scope."""
    if not client.command or not shutil.which(client.command):
        return False
    return client.command != "codex" or scope == "user"


def _make_commands(
    client: McpClient, scope: Scope, entry: dict[str, Any] | None, *, replace: bool
) -> tuple[tuple[str, ...], ...]:
    """Return the calls of the program's own command that replace or remove the entry."""
    program = client.command
    options = () if program == "codex" else ("--scope", scope)
    commands: list[tuple[str, ...]] = []
    if replace:
        commands.append((program, "mcp", "remove", *options, SERVER_NAME))
    if entry is not None:
        server_command = ["--", entry["command"], *entry["args"]]
        if program == "gemini":  # it takes the `--` after the command of the server
            server_command = [entry["command"], "--", *entry["args"]]
        commands.append((program, "mcp", "add", *options, SERVER_NAME, *server_command))
    return tuple(commands)


def _read_text(path: str) -> str | None:
    """Return the text of a file; None when it does not exist."""
    try:
        return read_plain(path, _MAX_CONFIG_BYTES).decode()
    except FileNotFoundError:
        return None


def _parse(path: str, text: str) -> dict[str, Any]:
    return tomllib.loads(text) if path.endswith(".toml") else json.loads(text or "{}")


def _change_toml(text: str, client: McpClient, entry: dict[str, Any] | None) -> str | None:
    """Return a TOML file with the entry added, or removed if it is None."""
    return _add_toml_table(text, client, entry) if entry else _remove_toml_table(text, client)


def _add_toml_table(text: str, client: McpClient, entry: dict[str, Any]) -> str:
    """Return a TOML file with a new table at its end.

    Raises:
        ValueError: `mcp_servers` is an inline table.
    """
    text = f"{text}\n" if text else ""
    text += f"{_toml_table(client, entry)}\n"
    tomllib.loads(text)
    return text


def _remove_toml_table(text: str, client: McpClient) -> str | None:
    """Return a TOML file without the table; None where it is not written as lines of its own."""
    table = re.escape(f"{client.servers_key}.{SERVER_NAME}")
    new_text = re.sub(
        rf"\n*^\[{table}\b[^\]]*\].*\n?(?:[^\n\[#].*\n?)*", "\n", text, flags=re.MULTILINE
    )
    expected = tomllib.loads(text)
    del expected[client.servers_key][SERVER_NAME]
    return new_text if {client.servers_key: {}, **tomllib.loads(new_text)} == expected else None


def _toml_table(client: McpClient, entry: dict[str, Any]) -> str:
    lines = [f"{key} = {json.dumps(value)}" for key, value in entry.items()]
    return "\n".join([f"[{client.servers_key}.{SERVER_NAME}]", *lines])


def _edit_refusal(path: str, client: McpClient, entry: dict[str, Any] | None) -> Refused:
    """Return the error for a file that is not edited, with the entry to paste."""
    if entry is None:
        table = client.servers_key
        hint = say("Remove `{name}` from `{table}` by hand", name=SERVER_NAME, table=table)
    else:
        snippet = json.dumps({client.servers_key: {SERVER_NAME: entry}}, ensure_ascii=False)
        if path.endswith(".toml"):
            snippet = _toml_table(client, entry)
        hint = "\n".join((say("Change it by hand:"), snippet))
    return Refused(say("Satchel edits plain JSON only, and not `{path}`", path=path), hint)
