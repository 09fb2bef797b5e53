"""The MCP server: serves skills to other programs on stdio or over HTTP.

    skill_uri        the form of a URI
    served_manifest  a skill's frontmatter and the digests of its files
    skill_resources  the skills that a client may read, by URI
    path_redaction   the removal of paths of this machine from replies
    client_view      the library as clients see it
    handlers         the methods: skills, resources, tools, prompts, with pagination
    server           the SDK's server with these handlers
    notifications    notifications of changes
    http             the web server, and the authentication of clients
    client_config    the configuration files of other programs

Nothing here is imported before `serve` is called; it needs `pip install "satchel[mcp]"`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from satchel._optional import require

if TYPE_CHECKING:
    from satchel.integrations.mcp.http import Web
    from satchel.satchel import Satchel

EXTENSION = "io.modelcontextprotocol/skills"


def serve_stdio(satchel: Satchel, *, tools: bool = True, scripts: bool = False) -> None:
    """Serve the skills of a project on stdin and stdout until the client disconnects.

    Args:
        satchel: The project.
        tools: Whether tools are served.
        scripts: Whether the tool `RunScript` is served, too.

    Raises:
        MissingExtra: the `mcp` extra is not installed.
    """
    require("mcp", "mcp")
    from satchel.integrations.mcp.client_view import ClientView
    from satchel.integrations.mcp.server import run_stdio

    run_stdio(ClientView(satchel, tools=tools, scripts=scripts))


def serve_http(satchel: Satchel, web: Web, *, tools: bool = True) -> None:
    """Serve the skills of a project over HTTP until the process ends.

    Args:
        satchel: The project.
        web: The address, and how clients authenticate.
        tools: Whether tools are served.

    Raises:
        MissingExtra: the `mcp` extra is not installed.
        Refused: it would be open to other machines without a token.
    """
    require("mcp", "mcp")
    from satchel.integrations.mcp.http import run_http

    run_http(satchel, web, tools=tools)
