"""Cost of serving 10,000 skills over MCP, and the delay of change notifications.

    python benchmarks/mcp_server.py --out benchmarks/results/mcp-server.json

Three processes: `satchel mcp serve`, a bare server of the same SDK whose one resource is a text in
memory, and this one, which asks both in turn over loopback HTTP, so that whatever else the machine
does hits both alike. *First* is the first time that anybody asks for something: the server reads
and hashes then. Nothing is read before.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests"))

import httpx  # noqa: E402

from mcp_talk import events, read_answer, request, serving  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable

BODY = "A line of instructions that says what to do next and what to look at.\n" * 30
BARE = """
import sys
import mcp_types as types, uvicorn
from mcp.server.lowlevel.server import Server
TEXT = sys.argv[1]
async def read(ctx, params):
    return types.ReadResourceResult(contents=[types.TextResourceContents(
        uri=str(params.uri), mime_type="text/markdown", text=TEXT)], ttl_ms=5000)
async def listed(ctx, params):
    return types.ListResourcesResult(resources=[])
server = Server("bare", on_read_resource=read, on_list_resources=listed)
import socket
place = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
place.bind(("127.0.0.1", 0))
place.listen(128)
print(f"bare at http://127.0.0.1:{place.getsockname()[1]}/mcp", flush=True)
uvicorn.Server(uvicorn.Config(server.streamable_http_app(), log_config=None, access_log=False)).run(
    sockets=[place])
"""


def write(root: Path, number: int, more: str = "") -> Path:
    """One skill of three files."""
    folder = root / "skills" / f"skill-{number:05}"
    (folder / "references").mkdir(parents=True, exist_ok=True)
    (folder / "scripts").mkdir(exist_ok=True)
    head = f"---\nname: {folder.name}\ndescription: Does thing {number} when asked for it\n---\n\n"
    (folder / "SKILL.md").write_text(head + BODY + more, "utf-8")
    (folder / "references" / "more.md").write_text(BODY * 2, "utf-8")
    (folder / "scripts" / "run.py").write_text(f"print({number})\n", "utf-8")
    return folder


class Asked:
    """One connection to one server."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.client = httpx.Client(timeout=60)

    def ask(self, method: str, **params: Any) -> tuple[float, dict[str, Any]]:
        """Milliseconds, and the result."""
        sent = request(method, params)
        began = time.perf_counter()
        answer = self.client.post(self.url, **sent)
        took = time.perf_counter() - began
        return took * 1000, read_answer(answer)


def summary(times: list[float]) -> dict[str, float]:
    """What is kept of many times."""
    cuts = statistics.quantiles(times, n=100, method="inclusive")
    return {"n": len(times), "p50": round(cuts[49], 3), "p99": round(cuts[98], 3)}


def pages(ours: Asked, method: str) -> list[float]:
    """All pages of a list."""
    times: list[float] = []
    cursor = None
    while True:
        took, found = ours.ask(method, **({"cursor": cursor} if cursor else {}))
        times.append(took)
        cursor = found.get("nextCursor")
        if cursor is None:
            return times


def changes(root: Path, url: str, rounds: int, watched: Callable[[], None]) -> list[float]:
    """Milliseconds from a change on disk to its notification."""
    heard = events(url, resourcesListChanged=True)
    watched()
    times: list[float] = []
    for number in range(rounds):
        began = time.monotonic()
        write(root, 50 + number * 7, f"changed {began}\n")
        at, _ = heard.timed(timeout=30)
        times.append((at - began) * 1000)
        while not heard.quiet(0.7):
            pass
    heard.close()
    return times


def run(count: int, asked: int, rounds: int) -> dict[str, Any]:
    """Everything in one run."""
    import random

    chance = random.Random(7)  # the same questions every time
    root = Path(tempfile.mkdtemp(prefix="satchel-mcp-"))
    try:
        for number in range(count):
            write(root, number)
        text = (root / "skills" / "skill-00000" / "SKILL.md").read_text("utf-8")
        bare = subprocess.Popen(
            [sys.executable, "-c", BARE, text], stdout=subprocess.PIPE, text=True
        )
        assert bare.stdout is not None
        began = time.monotonic()
        with serving(str(root)) as url:
            started = time.monotonic() - began
            ours, other = Asked(url), Asked(bare.stdout.readline().rpartition(" at ")[2].strip())
            ours.ask("server/discover")
            rows: dict[str, Any] = {}
            names = [f"skill-{chance.randrange(count):05}" for _ in range(asked)]
            for row in ("skills/get, first", "resources/read", "skills/get", "bare read"):
                rows[row] = []
            for name in dict.fromkeys(names):
                rows["skills/get, first"].append(
                    ours.ask("skills/get", uri=f"skill://{name}/SKILL.md")[0]
                )
            for name in names:
                uri = f"skill://{name}/SKILL.md"
                rows["bare read"].append(other.ask("resources/read", uri=uri)[0])
                rows["resources/read"].append(ours.ask("resources/read", uri=uri)[0])
                rows["skills/get"].append(ours.ask("skills/get", uri=uri)[0])
            rows["skills/list, first"] = pages(ours, "skills/list")
            rows["skills/list"] = pages(ours, "skills/list")
            rows["resources/list"] = pages(ours, "resources/list")
            told = changes(root, url, rounds, lambda: None)
        bare.terminate()
        bare.wait()
        bare.stdout.close()
        ours.client.close()
        other.client.close()
    finally:
        shutil.rmtree(root, ignore_errors=True)
    return {
        "skills": count,
        "files": count * 3,
        "page": 100,
        "cpus": os.cpu_count(),
        "python": sys.version.split()[0],
        "ready s": round(started, 2),
        "ms": {name: summary(times) for name, times in rows.items()},
        "notification ms": {**summary(told), "worst": round(max(told), 1)},
    }


def main() -> None:
    """Measure and keep."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--skills", type=int, default=10_000)
    parser.add_argument("--asked", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    found = run(options.skills, options.asked, options.rounds)
    text = json.dumps(found, indent=2) + "\n"
    if options.out:
        options.out.write_text(text, "utf-8")
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
