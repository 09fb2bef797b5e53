"""Runs one contender in a child process and compares its result with the truth.

Every measurement is a new process, so nobody profits from the run before. CPU seconds are the
figure to compare: wall time on a shared machine tells about the neighbours.
"""

from __future__ import annotations

import json
import os
import platform
import signal
import statistics
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from corpora import Row

HERE = Path(__file__).resolve().parent


class Contender(NamedTuple):
    """Something that finds skills, and the command that measures it once."""

    name: str
    version: str
    command: tuple[str, ...]
    """Gets the root and the file for the pairs appended."""
    failed: str = ""
    """Why it cannot be run at all; the row is then reported, not dropped."""


class Run(NamedTuple):
    """One measurement."""

    status: str
    """`ok`, `crashed`, `timed out` or `not installed`."""
    cpu: float = 0.0
    wall: float = 0.0
    rss_added_mb: float = 0.0
    import_cpu: float = 0.0
    found: int = 0
    right: int = 0
    """Skills of the truth that were found with the right description."""
    healthy_lost: int = 0
    """Unbroken skills that are missing or wrong."""
    repaired: int = 0
    """Broken skills that were found with the description a careful reader finds."""
    error: str = ""


def python_contender(
    name: str, version: str, python: str | Path, adapter: str, function: str = "scan"
) -> Contender:
    """A contender written in Python: `child.py` in the interpreter of its environment."""
    # -I keeps the adapters' folder off the path: `fastmcp.py` there must not be `fastmcp`.
    command = (str(python), "-I", str(HERE / "child.py"), str(HERE / adapter), function)
    return Contender(name, version, command)


def run_once(contender: Contender, skills: Path, truth: list[Row], timeout: float) -> Run:
    """Measure a contender once, kill it when it does not come back."""
    if contender.failed:
        return Run("not installed", error=contender.failed)
    with tempfile.TemporaryDirectory(prefix="bench-") as home:
        pairs_file, log = Path(home, "pairs.json"), Path(home, "stderr")
        # A home of its own: no user's skills are found, no cache of an earlier run is read.
        environment = {
            "PATH": os.environ.get("PATH", ""),
            "HOME": home,
            "TMPDIR": home,
            "LANG": "C.UTF-8",
        }
        with log.open("wb") as errors:
            process = subprocess.Popen(
                [*contender.command, str(skills.resolve()), str(pairs_file)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=environment,
                start_new_session=True,
            )
            try:
                output, _ = process.communicate(timeout=timeout)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
                return Run("timed out", wall=timeout, error=f"no answer in {timeout:.0f} s")
        if process.returncode != 0:
            return Run("crashed", error=_last_line(log) or f"exit code {process.returncode}")
        figures: dict[str, float] = json.loads(output)
        return _judged(figures, json.loads(pairs_file.read_text("utf-8")), truth)


def _judged(figures: dict[str, float], pairs: list[list[Any]], truth: list[Row]) -> Run:
    """Compare by name and description, which is all that every library reports."""
    got = {(str(name).strip(), _folded(str(description))) for name, description in pairs}
    right = lost = repaired = 0
    for row in truth:
        if row.description is None:
            continue
        wanted = _folded(row.description)
        # Some libraries call a skill by its folder: that is a choice, not an error.
        if (row.name.strip(), wanted) in got or (row.folder.strip(), wanted) in got:
            right += 1
            repaired += row.kind != "healthy"
        elif row.kind == "healthy":
            lost += 1
    return Run(
        "ok",
        figures["cpu"],
        figures["wall"],
        figures["rss_added_mb"],
        figures["import_cpu"],
        found=len(pairs),
        right=right,
        healthy_lost=lost,
        repaired=repaired,
    )


def _folded(text: str) -> str:
    # Libraries strip and re-wrap; that is taste, not error.
    return " ".join(text.split())


def _last_line(log: Path) -> str:
    lines = [line for line in log.read_text("utf-8", "replace").splitlines() if line.strip()]
    return lines[-1].strip()[:300] if lines else ""


def median(runs: list[Run], field: str) -> float:
    """The median of one figure over the runs that came back."""
    values = [getattr(run, field) for run in runs if run.status == "ok"]
    return statistics.median(values) if values else float("nan")


def machine() -> dict[str, Any]:
    """What the figures were taken on; they compare only with figures of the same run."""
    return {
        "python": platform.python_version(),
        "system": platform.system(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
    }


def table(rows: list[list[str]]) -> str:
    """Align columns: the first to the left, figures to the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines: list[str] = []
    for row in rows:
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("  ".join(cells).rstrip())
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(lines)
