"""A server of somebody else's making: fastmcp's own provider of skills, over HTTP.

python fastmcp_server.py FOLDER PORT
"""

from __future__ import annotations

import sys

from fastmcp import FastMCP
from fastmcp.server.providers.skills import SkillsDirectoryProvider
from fastmcp.skills.extension import SkillsExtension


def main() -> None:
    """Serve the skills of a folder."""
    provider = SkillsDirectoryProvider(roots=sys.argv[1], experimental_skills=True, reload=True)
    server = FastMCP("skills", providers=[provider])
    server.add_extension(SkillsExtension(providers=[provider]))
    server.run(transport="http", host="127.0.0.1", port=int(sys.argv[2]), show_banner=False)


if __name__ == "__main__":
    main()
