"""Which servers did the user set, and where are their skills kept?

    locations = ["mcp:https://skills.example.com/mcp", "mcp:stdio:uvx our-skills"]

    [servers.docs]
    address = "https://skills.example.com/mcp"
    token = "DOCS_TOKEN"                        # the variable that holds it, never the token itself
    headers = {"X-Team" = "DOCS_TEAM"}          # header -> the variable that holds its value
    skills = ["skill://hidden/SKILL.md"]        # those that the server does not list

    [servers.local]
    command = ["uvx", "our-skills"]
    env = ["OUR_KEY"]                           # variables that the program may see

Only the user's own configuration, the environment and code are asked: a project may not make us
talk to anybody.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from satchel.settings import SERVER
from satchel.skill.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from satchel.settings import Settings

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,63}")
"""What a server may be called."""
_KEYS = frozenset(("address", "command", "token", "headers", "env", "skills"))
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HEADER = re.compile(r"[A-Za-z0-9-]+")
_OURS = frozenset(("accept", "content-length", "content-type", "host", "transfer-encoding"))
"""Headers that belong to the protocol."""
_STDIO = "stdio:"
DEPTH = "SATCHEL_MCP_DEPTH"
"""Set for programs that we start: they serve what they have, and start no programs for more."""
_HIDDEN = "•••"
_SHORTEST = 3
"""Shorter values are in every text."""


class Server(NamedTuple):
    """One server as the user set it."""

    name: str
    """What the user calls it; the host or the program when there is no name."""
    address: str = ""
    """An http or https address; empty when it is a program."""
    command: tuple[str, ...] = ()
    """A program that speaks over its standard input and output."""
    token: str = ""
    """The environment variable with a bearer token."""
    headers: tuple[tuple[str, str], ...] = ()
    """Header and the environment variable with its value."""
    env: tuple[str, ...] = ()
    """Environment variables that the program may see."""
    skills: tuple[str, ...] = ()
    """Addresses of skills that the server has and does not list."""

    @property
    def target(self) -> str:
        """What it is reached by, in one line."""
        return self.address or "stdio:" + " ".join(self.command)

    @property
    def key(self) -> str:
        """The name of its folder: it says which server, and no two have the same."""
        from hashlib import sha256

        whole = "\0".join((self.name, self.address, *self.command, self.token))
        shown = re.sub(r"[^A-Za-z0-9.-]", "-", self.name)
        return f"{shown}-{sha256(whole.encode('utf-8', 'surrogateescape')).hexdigest()[:12]}"


def without_secrets(server: Server, text: str) -> str:
    """A text without the values of the variables that a server's table names."""
    variables = (server.token, *(variable for _, variable in server.headers), *server.env)
    values = {os.environ.get(name, "").strip() for name in variables if name}
    parts = {part for value in values for part in (value, *value.split())}
    # As somebody may have escaped it, too; the longest first, since one may be part of another.
    parts |= {repr(value)[1:-1] for value in values}
    for part in sorted(parts, key=len, reverse=True):
        if len(part) >= _SHORTEST:
            text = text.replace(part, _HIDDEN)
    return text


def servers_of(settings: Settings) -> tuple[list[Server], list[Problem]]:
    """The servers that are set, and what is wrong with the others."""
    found: dict[str, Server] = {}
    problems: list[Problem] = []
    for name, make in _set(settings):
        try:
            server = make()
        except ValueError as exc:
            values = {"name": _shown(name), "why": str(exc)}
            problems.append(Problem("server-address", settings.paths.config, values=values))
            continue
        while server.name in found and found[server.name] != server:
            server = server._replace(name=f"{server.name}.2")
        found[server.name] = server
    return list(found.values()), problems


def _set(settings: Settings) -> Iterator[tuple[str, Any]]:
    """How people call each server that is set, and what makes it."""
    for name, row in settings.servers.items():
        yield name, lambda name=name, row=row: server_from(name, cast("Mapping[str, Any]", row))
    for item in settings.locations:
        if item.startswith(SERVER):
            yield item, lambda item=item: _from_text(item.removeprefix(SERVER))


def server_from(name: str, row: Mapping[str, Any]) -> Server:
    """A server from its table.

    Raises:
        ValueError: it cannot be used; the text says why.
    """
    if not NAME.fullmatch(name):
        raise ValueError("its name needs letters, digits, `.`, `-` and `_` only")
    if not _KEYS.issuperset(row):
        raise ValueError("its table has a key that does not exist")
    address, command = row.get("address", ""), row.get("command", ())
    if isinstance(command, str):
        import shlex

        command = shlex.split(command)
    if bool(address) == bool(command):
        raise ValueError("it needs either `address` or `command`")
    headers = row.get("headers", {})
    if not isinstance(headers, dict):
        raise ValueError("`headers` must be a table")  # noqa: TRY004 - one kind for the caller
    pairs = cast("dict[str, Any]", headers)
    if any(not _HEADER.fullmatch(key) or key.lower() in _OURS for key in pairs):
        raise ValueError("`headers` has one that may not be set")
    token, env = str(row.get("token", "")), _texts(row, "env")
    if any(not _VARIABLE.fullmatch(str(one)) for one in (*pairs.values(), *env, token or "_")):
        raise ValueError("`token`, `headers` and `env` name environment variables")
    return Server(
        name,
        _address(str(address)) if address else "",
        tuple(map(str, command)),
        token,
        tuple((key, str(value)) for key, value in pairs.items()),
        env,
        _texts(row, "skills"),
    )


def _texts(row: Mapping[str, Any], key: str) -> tuple[str, ...]:
    value = row.get(key, ())
    if not isinstance(value, (list, tuple)):
        raise ValueError(f"`{key}` must be a list")  # noqa: TRY004 - one kind for the caller
    return tuple(str(item) for item in cast("list[Any]", value))


def _from_text(text: str) -> Server:
    if text.startswith(_STDIO):
        import shlex

        command = tuple(shlex.split(text.removeprefix(_STDIO)))
        if not command:
            raise ValueError("there is no command after `stdio:`")
        return Server(_named(os.path.basename(command[0])), command=command)
    from urllib.parse import urlsplit

    address = _address(text)
    return Server(_named(urlsplit(address).netloc), address)


def _shown(text: str) -> str:
    """An address that was refused, without what may be a secret in it."""
    head, mark, rest = text.partition("://")
    if not mark:
        return text
    rest = re.split(r"[?#]", rest, maxsplit=1)[0]
    place, slash, path = rest.partition("/")
    before, at, host = place.rpartition("@")
    return f"{head}{mark}{_HIDDEN + at if before or at else ''}{host}{slash}{path}"


def _named(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._:-]", "-", text).strip("-.:_")[:64] or "server"


def _address(text: str) -> str:
    """An address, if it is one that may be used."""
    from urllib.parse import urlsplit

    if any(ord(sign) < 33 for sign in text):
        raise ValueError("the address has spaces or signs that show nothing")
    try:
        parts = urlsplit(text)
        host = parts.hostname or ""
        _ = parts.port
    except ValueError:
        raise ValueError("it is no address") from None
    if parts.scheme not in ("http", "https") or not host:
        raise ValueError("the address must begin with `https://`")
    if parts.username is not None or parts.password is not None:
        raise ValueError("a password in an address is seen by everybody: use `token`")
    if "?" in text or "#" in text:
        raise ValueError("what stands after `?` is seen by everybody: use `token` or `headers`")
    if parts.scheme == "http" and not _is_here(host):
        raise ValueError("without `https` only this computer itself may be asked")
    return text


def _is_here(host: str) -> bool:
    import ipaddress

    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
