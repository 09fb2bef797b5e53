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

_SERVER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,63}")
_SERVER_KEYS = frozenset(("address", "command", "token", "headers", "env"))
_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HEADER_NAME = re.compile(r"[A-Za-z0-9-]+")
_PROTOCOL_HEADERS = frozenset(
    ("accept", "content-length", "content-type", "host", "transfer-encoding")
)
"""Headers that belong to the protocol."""
DEPTH = "SATCHEL_MCP_DEPTH"
"""Set for programs that are started as servers: they take no skills from servers themselves."""
_MASK = "•••"
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
        identity = "\0".join((self.name, self.address, *self.command, self.token))
        safe_name = re.sub(r"[^A-Za-z0-9.-]", "-", self.name)
        return f"{safe_name}-{sha256(identity.encode('utf-8', 'surrogateescape')).hexdigest()[:12]}"


def without_secrets(server: McpServer, text: str) -> str:
    """Return a text without the values of the variables that a server's table names."""
    variables = (server.token, *(variable for _, variable in server.headers), *server.env)
    values = {os.environ.get(name, "").strip() for name in variables if name}
    secrets: set[str] = set()
    for value in values:
        secrets.update((value, *value.split(), repr(value)[1:-1]))
    for secret in sorted(secrets, key=len, reverse=True):  # one may be part of another
        if len(secret) >= _MIN_SECRET_CHARS:
            text = text.replace(secret, _MASK)
    return text


def read_servers(settings: Settings) -> tuple[list[McpServer], list[Problem]]:
    """Return the configured servers, and problems of those that cannot be used."""
    servers: list[McpServer] = []
    problems: list[Problem] = []
    for name, table in settings.servers.items():
        try:
            servers.append(server_from(name, table))
        except ValueError as exc:
            values = {"name": name, "why": str(exc)}
            problems.append(Problem("server-address", settings.paths.config, values=values))
    return servers, problems


def server_from(name: str, table: Mapping[str, Any]) -> McpServer:
    """Return a server from its table.

    Raises:
        ValueError: the table is not valid; its text is the reason.
    """
    if not _SERVER_NAME.fullmatch(name):
        raise ValueError("its name is not valid")
    if not _SERVER_KEYS.issuperset(table):
        raise ValueError("it has an unknown key")
    address, command = table.get("address", ""), table.get("command", ())
    if isinstance(command, str):
        command = shlex.split(command)
    if bool(address) == bool(command):
        raise ValueError("it needs either `address` or `command`")
    headers = table.get("headers", {})
    if not isinstance(headers, dict):
        raise ValueError("`headers` is not valid")  # noqa: TRY004 - one kind for the caller
    variable_by_header = cast("dict[str, Any]", headers)
    for header in variable_by_header:
        if not _HEADER_NAME.fullmatch(header) or header.lower() in _PROTOCOL_HEADERS:
            raise ValueError("`headers` is not valid")
    token, env = str(table.get("token", "")), _read_texts(table, "env")
    variables = [*map(str, variable_by_header.values()), *env, *([token] if token else [])]
    if not all(map(_VARIABLE_NAME.fullmatch, variables)):
        raise ValueError("`token`, `headers` and `env` name environment variables")
    return McpServer(
        name=name,
        address=_check_address(str(address)) if address else "",
        command=tuple(map(str, command)),
        token=token,
        headers=tuple((header, str(name)) for header, name in variable_by_header.items()),
        env=env,
    )


def _read_texts(table: Mapping[str, Any], key: str) -> tuple[str, ...]:
    value = table.get(key, ())
    if not isinstance(value, (list, tuple)):
        raise ValueError(f"`{key}` must be a list")  # noqa: TRY004 - one kind for the caller
    return tuple(str(text) for text in cast("list[Any]", value))


def _check_address(text: str) -> str:
    """Return an address that is safe to contact.

    Raises:
        ValueError: it is not; the text is the reason.
    """
    if any(ord(sign) < 33 for sign in text):
        raise ValueError("it is not valid")
    try:
        url = urlsplit(text)
        host = url.hostname or ""
        _ = url.port  # raises when it is no number
    except ValueError:
        raise ValueError("it is not valid") from None
    if url.scheme not in ("http", "https") or not host:
        raise ValueError("the address must begin with `https://`")
    if url.username is not None or url.password is not None or "?" in text or "#" in text:
        raise ValueError("an address must not contain secrets: use `token` or `headers`")
    try:
        is_local = host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        is_local = False
    if url.scheme == "http" and not is_local:
        raise ValueError("the address must begin with `https://`")
    return text


# --- the user's config.toml -------------------------------------------------------------------


def change_server(config: str, name: str, table: Mapping[str, Any] | None) -> None:
    """Append a server's table to the configuration, or remove it if `table` is None.

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
            expected = tomllib.loads(text)
            servers = expected.setdefault("servers", {})
            if table is None:
                text = _remove_table(text, name, servers)
            else:
                text = _append_table(text, name, table, servers)
            if not servers:
                del expected["servers"]
            if tomllib.loads(text) != expected:
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


def _append_table(text: str, name: str, table: Mapping[str, Any], servers: dict[str, Any]) -> str:
    """Append a server to the text of a configuration, and to `servers`."""
    if name in servers:
        raise Conflict(
            say("`{path}` exists already", path=name),
            say("Run `{command}`", command=f"satchel mcp remove {name}"),
        )
    try:
        server_from(name, table)
    except ValueError as exc:
        raise InvalidInput(
            say("`{path}` cannot be used: {reason}", path=name, reason=say(str(exc))),
            say("Run `{command}`", command="satchel mcp add --help"),
        ) from exc
    servers[name] = dict(table)
    toml_name = name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name)
    rows = "".join(f"{key} = {_toml(value)}\n" for key, value in table.items())
    before = text.removesuffix("\n") + "\n\n" if text else ""
    return f"{before}[servers.{toml_name}]\n{rows}"


def _remove_table(text: str, name: str, servers: dict[str, Any]) -> str:
    """Remove a server from the text of a configuration, and from `servers`."""
    if name not in servers:
        raise NotFound(
            say("There is no server `{name}`", name=name),
            say("Run `{command}`", command="satchel mcp list"),
        )
    del servers[name]
    spellings = "|".join(map(re.escape, (name, json.dumps(name), f"'{name}'")))
    # From the heading to the next empty line or heading.
    return re.sub(rf"(?m)\n?^\[servers\.(?:{spellings})\].*\n(?:[^\[\r\n].*(?:\n|\Z))*", "", text)


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        pairs = cast("dict[str, str]", value).items()
        return "{" + ", ".join(f"{json.dumps(key)} = {_toml(text)}" for key, text in pairs) + "}"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
