"""SKILLS FOR EVERYONE ELSE: an MCP server, on stdio or over HTTP.

    served      the skills that one client may have, by address, with digests
    views       one client's part of the library, and what it sees in place of paths
    handlers    the methods: skills, resources, tools, prompts, in pages
    server      the SDK's server with these handlers
    watching    who is told that something changed
    over_http   the web server around it, tokens and who they belong to
    setup       the configuration files of other programs

Nothing here is imported before `serve` is called; it needs `pip install "satchel[mcp]"`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from satchel._optional import require

if TYPE_CHECKING:
    from satchel.facade import Satchel
    from satchel.integrations.mcp.over_http import Web

EXTENSION = "io.modelcontextprotocol/skills"


def serve_stdio(satchel: Satchel, *, tools: bool = True) -> None:
    """Serve the skills of a project on stdin and stdout until the client goes.

    Args:
        satchel: Whose skills.
        tools: Whether there are also plain tools, for clients that do not know the extension.

    Raises:
        MissingExtra: the `mcp` extra is not installed.
    """
    require("mcp", "mcp")
    from satchel.integrations.mcp.server import run_stdio
    from satchel.integrations.mcp.views import Views

    run_stdio(Views(satchel, tools=tools))


def serve_http(satchel: Satchel, web: Web, *, tools: bool = True) -> None:
    """Serve the skills of a project over HTTP until somebody ends the process.

    Args:
        satchel: Whose skills.
        web: Where to listen and who may come in.
        tools: Whether there are also plain tools, for clients that do not know the extension.

    Raises:
        MissingExtra: the `mcp` extra is not installed.
        Refused: it would be open to other machines without a token.
    """
    require("mcp", "mcp")
    from satchel.integrations.mcp.over_http import run_http

    run_http(satchel, web, tools=tools)
