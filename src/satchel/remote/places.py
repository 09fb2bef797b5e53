"""Which locations do servers make, and where are the files of their skills kept?"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from typing import TYPE_CHECKING

from satchel.library.locations import Location, policy
from satchel.remote.servers import DEPTH, servers_of
from satchel.remote.supplier import McpSupplier
from satchel.skill.problems import Problem

if TYPE_CHECKING:
    from satchel.remote.servers import Server
    from satchel.settings import Settings


_CONTENT = re.compile(r"[0-9a-f]{64}")


def served_locations(settings: Settings) -> tuple[list[Location], list[Problem]]:
    """A location for each server, and what is wrong with those that have none.

    Nobody is asked anything yet.
    """
    servers, problems = servers_of(settings)
    if servers and os.environ.get(DEPTH):
        values = {"count": str(len(servers))}
        return [], [*problems, Problem("server-nested", settings.paths.config, values=values)]
    cache = settings.paths.cache
    if servers and not cache:
        values = {"name": servers[0].name, "why": "there is no folder for a cache"}
        return [], [*problems, Problem("server-address", values=values)]
    locations = [
        Location(
            folder_of(cache, server),
            "server",
            f"mcp:{server.name}",
            policy(settings),
            writable=False,
            supplier=McpSupplier(server, folder_of(cache, server)),
        )
        for server in servers
    ]
    return locations, problems


def folder_of(cache: str, server: Server) -> str:
    """Where the files of a server's skills are kept."""
    return os.path.join(cache, "remote", server.key)


def drop_contents(cache: str) -> None:
    """Remove the kept contents that are in no kept list any more."""
    home = os.path.join(cache, "remote")
    folder = os.path.join(home, "contents")
    needed: set[bytes] = set()
    try:
        names = os.listdir(folder)
        lists = [name for name in os.listdir(home) if name.endswith(".json")]
        for name in lists:
            with open(os.path.join(home, name), "rb") as stream:
                needed.update(re.findall(rb"sha256:([0-9a-f]{64})", stream.read()))
    except OSError:
        return  # what cannot be known to be needless stays
    for name in names:
        if _CONTENT.fullmatch(name) and name.encode() not in needed:
            with suppress(OSError):
                os.unlink(os.path.join(folder, name))
