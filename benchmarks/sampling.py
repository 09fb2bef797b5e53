"""Repeats measurements in turns and summarises them with their spread."""

from __future__ import annotations

import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent


class Figure(NamedTuple):
    """A median, and how far single rounds were from it."""

    value: float
    low: float
    high: float
    rounds: int

    @classmethod
    def of(cls, values: Iterable[float]) -> Figure:
        """The median of some rounds."""
        seen = sorted(values)
        if not seen:
            return cls(float("nan"), float("nan"), float("nan"), 0)
        return cls(statistics.median(seen), seen[0], seen[-1], len(seen))


def ratios(rows: Sequence[Mapping[str, float]], name: str, base: str) -> Figure:
    """One figure against another of the same round, then the median over the rounds."""
    return Figure.of(row[name] / row[base] for row in rows if row[base])


def environment(home: str) -> dict[str, str]:
    """An empty home and the package under test: the installed one, else that of the checkout."""
    kept = {"PATH": os.environ.get("PATH", ""), "LANG": "C.UTF-8", "HOME": home, "TMPDIR": home}
    path = os.environ.get("PYTHONPATH", "")
    if importlib.util.find_spec("satchel") is None:
        path = str(ROOT / "src")
    return {**kept, "PYTHONPATH": path} if path else kept


def probe(kind: str, timeout: float = 600.0, **arguments: Any) -> dict[str, Any]:
    """Run one function of `probe.py` in a new process.

    Raises:
        RuntimeError: it failed, with the end of what it said.
    """
    with tempfile.TemporaryDirectory(prefix="bench-") as home:
        done = subprocess.run(
            [sys.executable, str(HERE / "probe.py"), kind, json.dumps(arguments)],
            env=environment(home),
            cwd=home,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
    if done.returncode:
        raise RuntimeError(f"probe `{kind}`: {done.stderr.strip()[-2000:]}")
    return json.loads(done.stdout)


def spent_by(command: Sequence[str], cwd: str, env: Mapping[str, str]) -> float:
    """CPU seconds of a whole program, from its start to its end; what it prints is dropped."""
    process = subprocess.Popen(
        command,
        cwd=cwd,
        env=dict(env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    assert process.stderr is not None
    said = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.stderr.close()
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"`{Path(command[0]).name}` failed: {said.decode()[-2000:]}")
    return usage.ru_utime + usage.ru_stime


def in_turns(commands: Mapping[str, Callable[[], float]], rounds: int) -> list[dict[str, float]]:
    """Measure everything once a round, so that a busy minute hits all alike."""
    return [{name: measure() for name, measure in commands.items()} for _ in range(rounds)]
