"""Skills served by MCP servers, through the Skills extension and the official SDK's client.

Reading order: `servers` (configuration), `supplier` (a server as a location of a library: its list
checked, its cache, its connection in a thread), `wire` (requests).
"""

from __future__ import annotations

from satchel.remote.servers import Server, servers_of
from satchel.remote.supplier import served_locations

__all__ = ["Server", "served_locations", "servers_of"]
