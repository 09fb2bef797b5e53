"""Response times of the web UI: start, list, sorting, search as you type, and busy moments.

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
GOALS = {
    "page at start": ("worst", 1_000.0),
    "list": ("p95", 50.0),
    "sorted and filtered, first use": ("worst", 150.0),
    "search as you type": ("p95", 50.0),
    "search while skills change": ("p95", 100.0),
    "skill by name, first use": ("worst", 300.0),
    "goals while Health computes": ("worst", 300.0),
}
"""Row -> figure and milliseconds that it may take."""
SELECTIONS = (
    "sort=-problems", "sort=problems", "sort=name", "sort=-name", "sort=source", "sort=-used",
    "sort=-state", "state=shadowed", "state=active", "source=user&sort=-problems",
)  # fmt: skip
CHANGES = 6
"""Skills that are changed on disk while somebody types."""
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


def measure(
    browser: Browser, satchel: Any, project: Path, rounds: int
) -> dict[str, dict[str, float]]:
    """Everything once per round, the server and the detector in turns."""
    at_start, body = browser.get("/skills")
    began = time.monotonic()
    while '<tr id="row-' not in body and time.monotonic() - began < WAIT:
        time.sleep(0.1)
        body = browser.get("/skills")[1]
    say(f"the first page took {at_start:.0f} ms, rows {time.monotonic() - began:.1f} s more")
    selected = [browser.get(f"/skills?{one}", part=True)[0] for one in SELECTIONS]
    names = [satchel.library.snapshot().skills[at].name for at in (7, 70, 700)]
    opened = [browser.get(f"/skill?ref={quote(name)}")[0] for name in names]
    pages = [browser.get("/skills")[0] for _ in range(20)]
    warm_up(browser, satchel)
    typed: list[float] = []
    bare: list[float] = []
    for number in range(rounds):
        say(f"searching, round {number + 1} of {rounds}")
        browser.reconnect()
        for prefix in prefixes() if number % 2 == 0 else prefixes()[::-1]:
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
        "page at start": figures([at_start]),
        "list": figures(pages),
        "sorted and filtered, first use": figures(selected),
        "skill by name, first use": figures(opened),
        "later pages": figures(late),
        "search as you type": figures(typed),
        "detector alone": figures(bare),
        "search while skills change": figures(search_while_changing(browser, project)),
        "goals while Health computes": figures(goals_while_busy(browser)),
    }


def prefixes() -> list[str]:
    """Every state of the search field while somebody types."""
    return [text[:end] for text in TYPED for end in range(1, len(text) + 1)]


def search_while_changing(browser: Browser, project: Path) -> list[float]:
    """Type while an editor saves skills: the server reads the library again."""
    say("searching while skills change")
    browser.reconnect()
    files = sorted((project / ".agents" / "skills").glob("*/SKILL.md"))[::1_000][:CHANGES]
    before = [file.read_bytes() for file in files]
    typed: list[float] = []
    try:
        for number, prefix in enumerate(prefixes()):
            if number % 20 == 0 and number // 20 < len(files):
                file = files[number // 20]
                file.write_bytes(file.read_bytes() + b"\nOne line more.\n")
            typed.append(browser.get(f"/skills?q={quote(prefix)}", part=True)[0])
            time.sleep(0.05)
    finally:
        for file, data in zip(files, before, strict=False):
            file.write_bytes(data)
    return typed


def goals_while_busy(browser: Browser) -> list[float]:
    """Load the goals while the Health page scans every skill."""
    say("goals while Health computes")
    browser.reconnect()
    browser.get("/goals")
    browser.get("/health")
    times: list[float] = []
    for _ in range(20):
        times.append(browser.get("/goals")[0])
        time.sleep(0.1)
    return times


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
        rows = measure(browser, satchel, project, options.rounds)
        used = memory(server.pid)
    finally:
        browser.close()
        end(server)
    lines = [["", "p50 ms", "p95 ms", "worst ms"]]
    lines += [[name, *(f"{row[key]:.1f}" for key in row)] for name, row in rows.items()]
    ratio = rows["search as you type"]["p50"] / rows["detector alone"]["p50"]
    goals = [
        f"{'kept' if rows[name][key] <= most else 'MISSED'}: {name}, {key} "
        f"{rows[name][key]:.1f} ms (goal {most:.0f})"
        for name, (key, most) in GOALS.items()
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
