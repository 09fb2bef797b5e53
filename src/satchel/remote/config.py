"""The user's `config.toml`, changed by a table: a server is added or taken out, the rest stays.

Nothing is written that does not read back as wanted: comments and order are the user's.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from typing import TYPE_CHECKING, Any

from satchel._fs import locked, write_atomic
from satchel._language import say
from satchel.errors import Conflict, InvalidInput, NotFound, Refused, SettingsError
from satchel.remote.servers import server_from

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def add_server(config: str, name: str, row: Mapping[str, Any]) -> None:
    """Add a server to a configuration.

    Args:
        config: The user's `config.toml`; made when there is none.
        name: What the server is to be called.
        row: Its table.

    Raises:
        InvalidInput: it is no server that can be used.
        Conflict: there is one of that name.
        Refused: the file cannot be changed.
    """
    try:
        server_from(name, row)
    except ValueError as exc:
        raise InvalidInput(
            say("`{name}` is no server that can be used: {why}", name=name, why=say(str(exc))),
            say("Run `satchel mcp add --help`"),
        ) from exc

    def change(text: str, table: dict[str, Any]) -> str:
        if name in table.get("servers", {}):
            raise Conflict(
                say("There is a server `{name}` already", name=name),
                say("Run `satchel mcp remove {name}` first", name=name),
            )
        lines = [f"[servers.{_key(name)}]", *(f"{key} = {_value(row[key])}" for key in row)]
        start = text if not text or text.endswith("\n") else text + "\n"
        return start + ("\n" if start else "") + "\n".join(lines) + "\n"

    _edit(config, change, lambda servers: {**servers, name: dict(row)})


def remove_server(config: str, name: str) -> None:
    """Take a server out of a configuration.

    Raises:
        NotFound: there is none of that name.
        Refused: the file cannot be changed.
    """

    def change(text: str, table: dict[str, Any]) -> str:
        if name not in table.get("servers", {}):
            raise NotFound(
                say("There is no server `{name}` in `{path}`", name=name, path=config),
                say("Run `satchel mcp list` to see which there are"),
            )
        key = "|".join(re.escape(one) for one in (name, json.dumps(name), f"'{name}'"))
        own = re.compile(rf"\s*\[\s*servers\s*\.\s*(?:{key})\s*(?:\.[^]]*)?\]\s*(?:#.*)?")
        kept: list[str] = []
        after: list[str] = []  # comments and empty lines that may belong to what comes next
        within = False
        for line in text.splitlines(keepends=True):
            plain = line.strip()
            if plain.startswith("["):
                kept += after
                after = []
                within = own.fullmatch(line.rstrip("\r\n")) is not None
                if within and kept and not kept[-1].strip():
                    kept.pop()  # the empty line that parted it from what was before
            if not within:
                kept.append(line)
            elif not plain or plain.startswith("#"):
                after.append(line)
            else:
                after = []  # a key of its own comes after them: they were its own, too
        return "".join((*kept, *(after if any(map(str.strip, after)) else ())))

    _edit(config, change, lambda servers: {k: v for k, v in servers.items() if k != name})


def _edit(
    config: str,
    change: Callable[[str, dict[str, Any]], str],
    wanted: Callable[[dict[str, Any]], dict[str, Any]],
) -> None:
    if not config:
        raise Refused(
            say("There is no place for your configuration"),
            say("Set `SATCHEL_HOME` to a folder of yours"),
        )
    try:
        with locked(config + ".lock"):
            text, table = _read(config)
            new = change(text, table)
            servers = wanted(table.get("servers", {}))
            rest = {key: value for key, value in table.items() if key != "servers"}
            if _table(new) != {**rest, **({"servers": servers} if servers else {})}:
                raise Refused(
                    say("`{path}` is written in a way that cannot be changed safely", path=config),
                    say("Change it by hand"),
                )
            write_atomic(os.path.realpath(config), new.encode(), private=True)
    except OSError as exc:
        raise Refused(
            say("`{path}` cannot be written: {reason}", path=config, reason=exc.strerror or exc),
            say("Make the folder writable, or set `SATCHEL_HOME` to one that is"),
        ) from exc


def _table(text: str) -> dict[str, Any] | None:
    try:
        return tomllib.loads(text)
    except ValueError:
        return None


def _read(config: str) -> tuple[str, dict[str, Any]]:
    try:
        with open(config, encoding="utf-8", newline="") as stream:
            text = stream.read()
    except FileNotFoundError:
        return "", {}
    try:
        return text, tomllib.loads(text)
    except ValueError as exc:
        raise SettingsError(
            say("`{path}` is not valid TOML: {reason}", path=config, reason=exc),
            say("Correct the file"),
        ) from exc


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else json.dumps(name)


def _value(value: Any) -> str:
    if isinstance(value, dict):
        pairs = ", ".join(f"{_key(key)} = {_value(item)}" for key, item in value.items())  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        return f"{{{pairs}}}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_value, value))}]"  # pyright: ignore[reportUnknownArgumentType]
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
