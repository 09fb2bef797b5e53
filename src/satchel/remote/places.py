"""Which locations do servers make, and where are the files of their skills kept?"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from satchel.library.locations import Location, policy
from satchel.remote.kept import home_of
from satchel.remote.servers import DEPTH, servers_of
from satchel.remote.supplier import McpSupplier
from satchel.skill.problems import Problem

if TYPE_CHECKING:
    from satchel.remote.servers import Server
    from satchel.settings import Settings
    from satchel.trace import Trace


def served_locations(
    settings: Settings, trace: Trace | None = None
) -> tuple[list[Location], list[Problem]]:
    """A location for each server, and what is wrong with those that have none.

    Nobody is asked anything yet.

    Args:
        settings: What the user set.
        trace: Told of what is dropped of what was kept.
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
            supplier=McpSupplier(server, folder_of(cache, server), trace),
        )
        for server in servers
    ]
    return locations, problems


def folder_of(cache: str, server: Server) -> str:
    """Where the files of a server's skills are kept."""
    return os.path.join(home_of(cache), server.key)
