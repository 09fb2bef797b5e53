"""Skills served by MCP servers, through the Skills extension and the official SDK's client.

Reading order: `config` (configuration), `source` (a server as a location of a library: its list,
cache and connection), `client` (requests), `listed_skills` (validation of a list).
"""

from __future__ import annotations

from satchel.library.remote.config import McpServer, read_servers
from satchel.library.remote.source import served_locations

__all__ = ["McpServer", "read_servers", "served_locations"]
