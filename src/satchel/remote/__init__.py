"""SKILLS THAT LIVE ON A SERVER: found through the Skills extension of MCP, fetched when asked for.

Reading order: `servers` (which ones the user set), `entries` (what a list says, and what of it is
refused), `supplier` (what a library asks, with the list that was kept), `kept` (what of it nobody
needs any more), `places` (the locations that makes), `line` (one connection, in a thread of its
own), `wire` (the requests, and what is too much or too slow), `config` (the user's file, changed by
a server).
"""

from __future__ import annotations

from satchel.remote.places import served_locations
from satchel.remote.servers import Server, servers_of

__all__ = ["Server", "served_locations", "servers_of"]
