"""Import time of 2,000 skills in one command, compared with `tar -x` of the same files.

    python benchmarks/bulk_import.py --archive ../shared/corpus/skills-sample.tar.xz --out bulk.json

`tar` only unpacks. `satchel import` also refuses what is hostile, reads everything back, hashes,
scans, keeps what a merge needs, and waits for the disk. Both run as whole programs, in turns.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from measure import machine, table

TAR = "tar -x"
IMPORT = "satchel import --all"
VERIFY = "satchel verify"


def _timed(words: list[str], **options: Any) -> tuple[float, subprocess.CompletedProcess[str]]:
    began = time.perf_counter()
    done = subprocess.run(words, capture_output=True, text=True, check=False, **options)
    return time.perf_counter() - began, done


def _round(archive: Path, workdir: Path) -> tuple[dict[str, float], dict[str, Any]]:
    folder = Path(tempfile.mkdtemp(prefix="bulk-", dir=workdir))
    satchel = [sys.executable, "-m", "satchel"]
    env = {**os.environ, "HOME": str(folder / "home"), "SATCHEL_BUILTIN": "false"}
    try:
        for name in ("unpacked", "project", "home"):
            (folder / name).mkdir()
        spent: dict[str, float] = {}
        spent[TAR], done = _timed(["tar", "-xf", str(archive), "-C", str(folder / "unpacked")])
        if done.returncode:
            raise RuntimeError(done.stderr)
        words = [*satchel, "install", str(archive), "--all", "--yes", "--json"]
        spent[IMPORT], done = _timed(words, cwd=folder / "project", env=env)
        if done.returncode not in (0, 1):
            raise RuntimeError(done.stderr)
        result = json.loads(done.stdout)
        words = [*satchel, "verify", "--json"]
        spent[VERIFY], done = _timed(words, cwd=folder / "project", env=env)
        if done.returncode:
            raise RuntimeError(done.stderr)
        kinds: dict[str, int] = {}
        for row in result["skills"]:
            kinds[row["action"]] = kinds.get(row["action"], 0) + 1
        verdicts: dict[str, int] = {}
        for row in result["skills"]:
            if row["scan"]:
                verdict = row["scan"]["verdict"]
                verdicts[verdict] = verdicts.get(verdict, 0) + 1
        return spent, {"installed": len(result["done"]), "steps": kinds, "verdicts": verdicts}
    finally:
        shutil.rmtree(folder)


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--archive", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workdir", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rounds = [_round(options.archive, options.workdir) for _ in range(options.rounds)]
    figures = {
        name: {
            "seconds": median(spent[name] for spent, _ in rounds),
            "ratio": median(spent[name] / spent[TAR] for spent, _ in rounds),
        }
        for name in (TAR, IMPORT, VERIFY)
    }
    counts = rounds[-1][1]
    rows = [["", "seconds", "ratio"]]
    for name, row in figures.items():
        rows.append([name, f"{row['seconds']:.2f}", f"{row['ratio']:.1f}"])
    print(table(rows))
    print(counts)
    if options.out:
        found = {"machine": machine(), "rounds": len(rounds), "figures": figures, **counts}
        options.out.write_text(json.dumps(found, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
