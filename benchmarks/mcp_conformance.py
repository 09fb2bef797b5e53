"""Results of the official MCP conformance checks for two skill servers.

    python benchmarks/mcp_conformance.py --out benchmarks/results/mcp-conformance.json

`satchel mcp serve` and the provider of fastmcp serve the same three skills; the checks of
`@modelcontextprotocol/conformance` run against both. `CI_NODE_MODULES` names a folder where they
are installed; without it they are installed first.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from importlib.metadata import version
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests"))

from mcp_talk import node, official, serving, write_skill  # noqa: E402

SCENARIOS = (
    "sep-2640-skills-enumeration",
    "sep-2640-skills-manifest",
    "sep-2640-skills-directory",
)
FASTMCP = """
import sys
from pathlib import Path
from fastmcp import FastMCP
from fastmcp.server.providers.skills import SkillsDirectoryProvider
from fastmcp.skills.extension import SkillsExtension
provider = SkillsDirectoryProvider(roots=Path(sys.argv[1]), experimental_skills=True)
server = FastMCP("skills")
server.add_provider(provider)
server.add_extension(SkillsExtension(providers=[provider]))
server.run(transport="http", host="127.0.0.1", port=int(sys.argv[2]), show_banner=False)
"""


def checks(url: str) -> dict[str, dict[str, int]]:
    """How many checks of each scenario ended how."""
    found: dict[str, dict[str, int]] = {}
    for scenario in SCENARIOS:
        with tempfile.TemporaryDirectory() as folder:
            command = [node(), official("conformance", "dist", "index.js"), "server", "--url", url]
            subprocess.run(
                [*command, "--scenario", scenario, "--output-dir", folder],
                capture_output=True,
                timeout=120,
                check=False,
            )
            [kept] = Path(folder).rglob("checks.json")
            states = Counter(row["status"].lower() for row in json.loads(kept.read_text("utf-8")))
            found[scenario] = dict(sorted(states.items()))
    return found


def free_port() -> int:
    """A free port."""
    import socket

    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        return place.getsockname()[1]


def run() -> dict[str, Any]:
    """Both, one after the other."""
    with tempfile.TemporaryDirectory() as folder:
        for name in ("pdf-forms", "changelog", "release"):
            write_skill(folder, name, **{"references/deep/a.md": "a\n", "scripts/b.py": "1\n"})
        with serving(folder, SATCHEL_BUILTIN="false") as url:
            ours = checks(url)
        port = free_port()
        other = subprocess.Popen(
            [sys.executable, "-c", FASTMCP, f"{folder}/skills", str(port)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            time.sleep(8)
            theirs = checks(f"http://127.0.0.1:{port}/mcp")
        finally:
            other.terminate()
            other.wait()
    package = json.loads(Path(official("conformance", "package.json")).read_text("utf-8"))
    return {
        "suite": package["version"],
        "servers": {"satchel": ours, f"fastmcp {version('fastmcp')}": theirs},
    }


def main() -> None:
    """Measure and keep."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    text = json.dumps(run(), indent=2) + "\n"
    if options.out:
        options.out.write_text(text, "utf-8")
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
