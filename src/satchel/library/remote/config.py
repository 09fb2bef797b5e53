"""MCP servers in the user's configuration: parsing, validation, adding and removing.

Servers come from the user's configuration, the environment and code, never from a project. Tokens
and values of headers are named by the environment variable that holds them.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import tomllib
from hashlib import sha256
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from urllib.parse import urlsplit

from satchel._fs import locked, write_atomic
from satchel.errors import Conflict, InvalidInput, NotFound, Refused
from satchel.i18n import say
from satchel.skill.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Mapping

    from satchel.settings import Settings

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,63}")
_KEYS = frozenset(("address", "command", "token", "headers", "env"))
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HEADER = re.compile(r"[A-Za-z0-9-]+")
_PROTOCOL = frozenset(("accept", "content-length", "content-type", "host", "transfer-encoding"))
"""Headers that belong to the protocol."""
DEPTH = "SATCHEL_MCP_DEPTH"
"""Set for programs that are started as servers: they take no skills from servers themselves."""
_HIDDEN = "•••"
_MIN_SECRET_CHARS = 3


class McpServer(NamedTuple):
    """One configured server."""

    name: str
    """The user's name for it."""
    address: str = ""
    """An http or https address; empty if it is a program."""
    command: tuple[str, ...] = ()
    """A program that speaks over its standard input and output."""
    token: str = ""
    """The environment variable with a bearer token."""
    headers: tuple[tuple[str, str], ...] = ()
    """Header and the environment variable with its value."""
    env: tuple[str, ...] = ()
    """Environment variables that the program may see."""

    @property
    def target(self) -> str:
        """Its address or command in one line."""
        return self.address or "stdio:" + " ".join(self.command)

    @property
    def key(self) -> str:
        """The name of its folder, unique per server."""
        whole = "\0".join((self.name, self.address, *self.command, self.token))
        shown = re.sub(r"[^A-Za-z0-9.-]", "-", self.name)
        return f"{shown}-{sha256(whole.encode('utf-8', 'surrogateescape')).hexdigest()[:12]}"


def without_secrets(server: McpServer, text: str) -> str:
    """Return a text without the values of the variables that a server's table names."""
    variables = (server.token, *(variable for _, variable in server.headers), *server.env)
    values = {os.environ.get(name, "").strip() for name in variables if name}
    parts = {part for value in values for part in (value, *value.split(), repr(value)[1:-1])}
    for part in sorted(parts, key=len, reverse=True):  # one may be part of another
        if len(part) >= _MIN_SECRET_CHARS:
            text = text.replace(part, _HIDDEN)
    return text


def servers_of(settings: Settings) -> tuple[list[McpServer], list[Problem]]:
    """Return the configured servers, and problems of those that cannot be used."""
    found: list[McpServer] = []
    problems: list[Problem] = []
    for name, row in settings.servers.items():
        try:
            found.append(server_from(name, row))
        except ValueError as exc:
            values = {"name": name, "why": str(exc)}
            problems.append(Problem("server-address", settings.paths.config, values=values))
    return found, problems


def server_from(name: str, row: Mapping[str, Any]) -> McpServer:
    """Return a server from its table.

    Raises:
        ValueError: the table is not valid; its text is the reason.
    """
    if not _NAME.fullmatch(name):
        raise ValueError("its name is not valid")
    if not _KEYS.issuperset(row):
        raise ValueError("it has an unknown key")
    address, command = row.get("address", ""), row.get("command", ())
    if isinstance(command, str):
        command = shlex.split(command)
    if bool(address) == bool(command):
        raise ValueError("it needs either `address` or `command`")
    headers = row.get("headers", {})
    if not isinstance(headers, dict):
        raise ValueError("`headers` is not valid")  # noqa: TRY004 - one kind for the caller
    pairs = cast("dict[str, Any]", headers)
    if any(not _HEADER.fullmatch(key) or key.lower() in _PROTOCOL for key in pairs):
        raise ValueError("`headers` is not valid")
    token, env = str(row.get("token", "")), _texts(row, "env")
    if any(not _VARIABLE.fullmatch(str(one)) for one in (*pairs.values(), *env, token or "_")):
        raise ValueError("`token`, `headers` and `env` name environment variables")
    return McpServer(
        name,
        _address(str(address)) if address else "",
        tuple(map(str, command)),
        token,
        tuple((key, str(value)) for key, value in pairs.items()),
        env,
    )


def _texts(row: Mapping[str, Any], key: str) -> tuple[str, ...]:
    value = row.get(key, ())
    if not isinstance(value, (list, tuple)):
        raise ValueError(f"`{key}` must be a list")  # noqa: TRY004 - one kind for the caller
    return tuple(str(item) for item in cast("list[Any]", value))


def _address(text: str) -> str:
    if any(ord(sign) < 33 for sign in text):
        raise ValueError("it is not valid")
    try:
        parts = urlsplit(text)
        host = parts.hostname or ""
        _ = parts.port
    except ValueError:
        raise ValueError("it is not valid") from None
    if parts.scheme not in ("http", "https") or not host:
        raise ValueError("the address must begin with `https://`")
    if parts.username is not None or parts.password is not None or "?" in text or "#" in text:
        raise ValueError("an address must not contain secrets: use `token` or `headers`")
    try:
        is_local = host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        is_local = False
    if parts.scheme == "http" and not is_local:
        raise ValueError("the address must begin with `https://`")
    return text


# --- the user's config.toml -------------------------------------------------------------------


def change_server(config: str, name: str, row: Mapping[str, Any] | None) -> None:
    """Append a server's table to the configuration, or remove it if `row` is None.

    The file is created if needed, and written only if it parses as wanted afterwards.

    Raises:
        InvalidInput: the table is not valid.
        Conflict: there is a server of that name already.
        NotFound: there is none to remove.
        Refused: the file cannot be changed.
    """
    if not config:
        raise Refused(say("There is no home folder"), say("Set `HOME` or `SATCHEL_HOME`"))
    try:
        with locked(config + ".lock"):
            text = ""
            if os.path.exists(config):
                with open(config, encoding="utf-8", newline="") as stream:
                    text = stream.read()
            table = tomllib.loads(text)
            servers = table.pop("servers", {})
            text = _without(text, name, servers) if row is None else _with(text, name, row, servers)
            if tomllib.loads(text) != {**table, **({"servers": servers} if servers else {})}:
                raise Refused(
                    say("`{path}` is written in a way that cannot be changed safely", path=config),
                    say("Change it by hand"),
                )
            write_atomic(os.path.realpath(config), text.encode(), private=True)
    except OSError as exc:
        raise Refused(
            say("`{path}` cannot be written: {reason}", path=config, reason=exc.strerror or exc),
            say("Check the permissions"),
        ) from exc


def _with(text: str, name: str, row: Mapping[str, Any], servers: dict[str, Any]) -> str:
    if name in servers:
        raise Conflict(
            say("`{path}` exists already", path=name),
            say("Run `{command}`", command=f"satchel mcp remove {name}"),
        )
    try:
        server_from(name, row)
    except ValueError as exc:
        raise InvalidInput(
            say("`{path}` cannot be used: {reason}", path=name, reason=say(str(exc))),
            say("Run `{command}`", command="satchel mcp add --help"),
        ) from exc
    servers[name] = dict(row)
    key = name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name)
    lines = [f"[servers.{key}]", *(f"{key} = {_toml(value)}" for key, value in row.items())]
    return "\n".join([*([text.removesuffix("\n"), ""] if text else []), *lines, ""])


def _without(text: str, name: str, servers: dict[str, Any]) -> str:
    if name not in servers:
        raise NotFound(
            say("There is no server `{name}`", name=name),
            say("Run `{command}`", command="satchel mcp list"),
        )
    del servers[name]
    key = "|".join(re.escape(one) for one in (name, json.dumps(name), f"'{name}'"))
    # From the heading to the next empty line or heading.
    return re.sub(rf"(?m)\n?^\[servers\.(?:{key})\].*\n(?:[^\[\r\n].*(?:\n|\Z))*", "", text)


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        pairs = cast("dict[str, str]", value).items()
        return "{" + ", ".join(f"{json.dumps(key)} = {_toml(one)}" for key, one in pairs) + "}"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
