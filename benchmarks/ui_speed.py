"""Response time of the first page of skills and of search-as-you-type in the web UI.

    python benchmarks/ui_speed.py --workdir WORK --out ui-speed.json
    python benchmarks/ui_speed.py --skills 3000 --rounds 1            # a quick look

All the real skills are written into a project, the real server is started in a process of its own,
and each request is asked over loopback: times are the server's with the way there and back. Beside
each search the detector alone answers the same words in this process, without reasons as the page
asks it, in turns with the server, so that a busy moment of the machine hits both. What is under way
is said on stderr.

With `--workdir` the library and its search index are kept: the next run with the same folder and
the same number of skills builds neither. An index that takes longer than `--index-minutes` ends the
run instead of holding it up for hours.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from corpora import REAL, ensure, real
from measure import machine, table

TYPED = (
    "review code", "fill in a pdf form", "kubernetes deploy", "write unit tests", "sql query",
    "translate chinese", "make slides", "security audit",
)  # fmt: skip
"""What people type, letter by letter."""
FIRST_PAGE = 200.0
SEARCH = 50.0
"""Milliseconds that were promised; the search's is its p95."""
ROWS = 50
"""Rows of a page."""
SEARCHED = ROWS + 1
"""Skills that the page asks the detector for."""
WAIT = 300.0
"""Seconds that the server has to start, and to answer once."""
SETTLED = 3
"""Searches in a row that take about the same: whatever is loaded at first use is there."""
_began = time.monotonic()


def say(words: str) -> None:
    """Progress for the user."""
    print(f"[{time.monotonic() - _began:6.1f} s] {words}", file=sys.stderr, flush=True)


class Browser:
    """One connection with a session."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if not parts.hostname:
            raise SystemExit("error: The server ended before it said its address")
        self._line = http.client.HTTPConnection(parts.hostname, parts.port or 80, timeout=WAIT)
        self._headers: dict[str, str] = {}
        self._enter(f"{parts.path}?{parts.query}")

    def _enter(self, path: str) -> None:
        answer, body = self._ask("GET", path)
        cookies = [value for name, value in answer.getheaders() if name.lower() == "set-cookie"]
        if answer.status != 303 or not cookies:
            raise SystemExit(f"error: The link let nobody in: {answer.status}\n{body[:500]}")
        self._headers["Cookie"] = "; ".join(one.partition(";")[0] for one in cookies)

    def _ask(
        self, method: str, path: str, body: str | None = None
    ) -> tuple[http.client.HTTPResponse, str]:
        self._line.request(method, path, body, self._headers)
        answer = self._line.getresponse()
        return answer, answer.read().decode("utf-8", "replace")

    def reconnect(self) -> None:
        """Open a new connection: the server closes idle ones after a few seconds."""
        self.close()
        self._line.connect()

    def close(self) -> None:
        """End the connection."""
        self._line.close()

    def get(self, path: str, *, part: bool = False) -> tuple[float, str]:
        """Milliseconds and the answer."""
        if part:
            self._headers["HX-Request"] = "true"
        began = time.perf_counter()
        answer, body = self._ask("GET", path)
        took = (time.perf_counter() - began) * 1e3
        self._headers.pop("HX-Request", None)
        if answer.status != 200:
            raise SystemExit(f"{path}: {answer.status}\n{body[:500]}")
        return took, body


def memory(pid: int) -> float:
    """Megabytes that a process has in memory."""
    status = Path(f"/proc/{pid}/status")
    if not status.exists():
        return 0.0
    found = re.search(r"VmRSS:\s+(\d+) kB", status.read_text())
    return int(found[1]) / 1024 if found else 0.0


def figures(times: list[float]) -> dict[str, float]:
    """The median, the 95th of a hundred, and the worst."""
    ordered = sorted(times)
    at = min(len(ordered) - 1, round(0.95 * (len(ordered) - 1)))
    return {"p50": statistics.median(ordered), "p95": ordered[at], "worst": ordered[-1]}


def measure(browser: Browser, satchel: Any, rounds: int) -> dict[str, dict[str, float]]:
    """Everything once per round, the server and the detector in turns."""
    very_first, body = browser.get("/skills")
    if '<tr id="row-' not in body:
        raise SystemExit("error: The first page has no rows")
    say(f"the very first page took {very_first:.0f} ms")
    pages = [browser.get("/skills")[0] for _ in range(20)]
    prefixes = [text[:end] for text in TYPED for end in range(1, len(text) + 1)]
    warm_up(browser, satchel)
    typed: list[float] = []
    bare: list[float] = []
    for number in range(rounds):
        say(f"searching, round {number + 1} of {rounds}")
        browser.reconnect()
        for prefix in prefixes if number % 2 == 0 else prefixes[::-1]:
            typed.append(browser.get(f"/skills?q={quote(prefix)}", part=True)[0])
            began = time.perf_counter()
            satchel.search(prefix, SEARCHED, reasons=False)
            bare.append((time.perf_counter() - began) * 1e3)
    say("later pages")
    browser.reconnect()
    last = max(2, len(satchel.library.snapshot()) // ROWS)
    chosen = range(2, last + 1, max(1, last // 20))
    late = [browser.get(f"/skills?page={page}", part=True)[0] for page in chosen]
    return {
        "first page, very first": figures([very_first]),
        "first page": figures(pages),
        "later pages": figures(late),
        "search as you type": figures(typed),
        "detector alone": figures(bare),
    }


def warm_up(browser: Browser, satchel: Any) -> None:
    """Search till both have loaded what they load at first use."""
    began, before, steady = time.monotonic(), 0.0, 0
    while steady < SETTLED and time.monotonic() - began < WAIT:
        satchel.search("warm", SEARCHED, reasons=False)
        browser.reconnect()
        took = browser.get("/skills?q=warm", part=True)[0]
        steady = steady + 1 if took < 1.5 * before + 20 else 0
        before = took
    say(f"warm after {time.monotonic() - began:.1f} s; a search takes {before:.0f} ms")


def prepare(satchel: Any, minutes: float) -> None:
    """Build the search index, or take the one that is there."""
    began = told = time.monotonic()

    def progress(done: int) -> None:
        nonlocal told
        now = time.monotonic()
        if now - began > minutes * 60:
            raise SystemExit(
                f"error: {done} skills are in the index after {minutes:g} minutes\n\n"
                "hint: Give it more with `--index-minutes`, and keep it with `--workdir`"
            )
        if now - told > 5:
            told = now
            say(f"  {done} skills are in the index")

    made = satchel.prepare(progress)
    say(f"the index is there: {made}")


def start(project: Path) -> tuple[subprocess.Popen[str], Browser]:
    """A separate server, and a logged-in client."""
    command = [sys.executable, "-m", "satchel", "ui", "--no-browser", "--port", "0"]
    server = subprocess.Popen(command, cwd=project, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    stuck = threading.Timer(WAIT, server.kill)
    stuck.daemon = True
    stuck.start()
    try:
        return server, Browser(server.stdout.readline().strip())
    except BaseException:
        end(server)
        raise
    finally:
        stuck.cancel()


def end(server: subprocess.Popen[str]) -> None:
    """End a server; one that does not listen is ended anyway."""
    server.terminate()
    try:
        server.wait(20)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()
    if server.stdout is not None:
        server.stdout.close()


def main() -> None:
    """Write the library, start the server, measure, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--skills", "--count", dest="count", type=int, default=0, help="0: all the real ones"
    )
    parser.add_argument("--index-minutes", type=float, default=60.0, help="for building the index")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--source", type=Path, default=REAL, help="folder of the real corpus")
    parser.add_argument("--workdir", type=Path, help="keeps library and index for next time")
    parser.add_argument("--out", type=Path, help="JSON file for the figures, outside the checkout")
    options = parser.parse_args()
    workdir = Path(options.workdir or tempfile.mkdtemp(prefix="satchel-ui-")).resolve()
    project = workdir / f"project-{options.count or 'all'}"
    say(f"writing the skills into {project}, unless they are there")
    written = ensure(project / ".agents", lambda to: real(to, options.count, options.source))
    home = workdir / f"home-{options.count or 'all'}"
    home.mkdir(exist_ok=True)
    os.environ.update(SATCHEL_HOME=str(home), HOME=str(home), SATCHEL_TRUST="all")
    from satchel.satchel import Satchel

    satchel = Satchel.for_project(project)
    say(f"{len(written)} skills, {len(satchel.library.snapshot())} of them offered; their index")
    prepare(satchel, options.index_minutes)
    say("starting the server")
    server, browser = start(project)
    try:
        at_start = memory(server.pid)
        rows = measure(browser, satchel, options.rounds)
        used = memory(server.pid)
    finally:
        browser.close()
        end(server)
    lines = [["", "p50 ms", "p95 ms", "worst ms"]]
    lines += [[name, *(f"{row[key]:.1f}" for key in row)] for name, row in rows.items()]
    ratio = rows["search as you type"]["p50"] / rows["detector alone"]["p50"]
    checks = (
        ("first page, p95", rows["first page"]["p95"], FIRST_PAGE),
        ("search as you type, p95", rows["search as you type"]["p95"], SEARCH),
    )
    goals = [
        f"{'kept' if value <= goal else 'MISSED'}: {name} {value:.1f} ms (goal {goal:.0f})"
        for name, value, goal in checks
    ]
    print(
        table(lines),
        "",
        f"search / detector: {ratio:.2f} (p50); server {at_start:.0f} MB at first, {used:.0f} MB",
        *goals,
        sep="\n",
    )
    if options.out:
        result: dict[str, Any] = {
            "machine": machine(),
            "count": len(written),
            "rows": rows,
            "ratio": ratio,
        }
        result.update(server_mb=used, server_mb_at_start=at_start, goals=goals)
        options.out.write_text(json.dumps(result, indent=1), "utf-8")


if __name__ == "__main__":
    main()
