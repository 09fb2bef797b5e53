"""Recall and false positives of the security scanner.

Example:
    python benchmarks/scanner.py --malskills DIR --skillfortify DIR --cisco ../cisco/bin/python

The public sets are not part of the project: give the folders into which they were unpacked. Nothing
in them is run. `--cisco` is a Python that has cisco-ai-skill-scanner; it looks at the same folders,
and its findings of HIGH and above count as blocked. MalSkills is split by its authors' names: the
samples of authors from n to z were not read while the rules were written, but they were scored
often. The samples of skillfortify, and the real skills that were blocked, were read. Those of
skill-inject were not, except for three lines of one script that 0.2 blocked wrongly: its skills are
built by `skill_inject.py` and only counted. Times are processor time for each folder with a
SKILL.md, without start-up; a busy machine takes longer. `--write` keeps the rows of a scanner that
did not run.
"""

from __future__ import annotations

import argparse
import atexit
import csv
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from typing import TYPE_CHECKING, Any, NamedTuple

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [os.path.join(ROOT, "benchmarks"), os.path.join(ROOT, "src")]

from interval import wilson  # noqa: E402 - found through the line above

from satchel.security import scan_tree  # noqa: E402 - the same
from satchel.skill.file_tree import FolderTree, TreeLimits  # noqa: E402 - the same

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_LIMITS = TreeLimits(files=100_000, depth=64, size=1 << 30)
_ADAPTER = os.path.join(ROOT, "benchmarks", "peer_adapters", "cisco_scanner.py")


class Sample(NamedTuple):
    """One labelled skill."""

    set: str
    part: str
    """Which part of the set: what was read while rules were written, and what was not."""
    bad: bool
    folders: tuple[str, ...]
    """Where its SKILL.md files are: one, or several versions."""


class Answer(NamedTuple):
    """What a scanner said of a sample."""

    blocked: bool
    seconds: tuple[float, ...]
    """For each of its folders."""


def load_malskills(path: str) -> list[Sample]:
    """The 100 + 100 of `ground_truth_final.csv`."""
    table = os.path.join(path, "data", "ground_truth", "ground_truth_final.csv")
    with open(table, encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    samples: list[Sample] = []
    for row in rows:
        seen = row["Skill_name"][0].lower() < "n"
        folders = _skill_folders(os.path.join(path, row["Ground_truth_path"]))
        samples.append(
            Sample(
                "MalSkills",
                "authors a-m (read)" if seen else "authors n-z (not read)",
                row["Label"] == "malicious",
                folders,
            )
        )
    return samples


def load_skillfortify(path: str) -> list[Sample]:
    """The SKILL.md samples: the slices `claude` and `openclaw`, 180 + 180."""
    samples: list[Sample] = []
    for part in ("claude", "openclaw"):
        for label in ("malicious", "benign"):
            folder = os.path.join(path, "benchmarks", "skills", part, label)
            samples += [
                Sample(
                    "skillfortify",
                    part,
                    label == "malicious",
                    _skill_folders(os.path.join(folder, name)),
                )
                for name in sorted(os.listdir(folder))
            ]
    return samples


def load_skill_inject(path: str) -> list[Sample]:
    """The held-out set."""
    from skill_inject import build

    target = tempfile.mkdtemp(prefix="skill-inject-")
    atexit.register(shutil.rmtree, target)
    return [
        Sample("skill-inject", row.part, bad=row.part != "clean", folders=(row.folder,))
        for row in build(path, target)
    ]


def load_plain(path: str) -> list[Sample]:
    """Folders of skills that are taken to be benign: how many would be blocked."""
    folders = [
        os.path.join(root, name)
        for root, names, _ in os.walk(path)
        for name in names
        if os.path.isfile(os.path.join(root, name, "SKILL.md"))
    ]
    return [Sample("real skills", "", bad=False, folders=(folder,)) for folder in sorted(folders)]


def _skill_folders(path: str) -> tuple[str, ...]:
    found = [root for root, _, files in os.walk(path) if "SKILL.md" in files or "skill.md" in files]
    return tuple(sorted(found)) or (path,)


def ask_satchel(samples: Sequence[Sample]) -> list[Answer]:
    """Scan each sample; one process, rules loaded before the clock starts."""
    scan_tree(FolderTree(os.path.dirname(os.path.abspath(__file__)), _LIMITS))
    answers: list[Answer] = []
    for sample in samples:
        blocked = False
        times: list[float] = []
        for folder in sample.folders:
            started = time.process_time()
            report = scan_tree(FolderTree(folder, _LIMITS))
            times.append(time.process_time() - started)
            blocked |= report.verdict == "blocked"
        answers.append(Answer(blocked, tuple(times)))
    return answers


def ask_cisco(samples: Sequence[Sample], python: str) -> list[Answer]:
    """The same folders through the other scanner."""
    folders = [folder for sample in samples for folder in sample.folders]
    done = subprocess.run(
        [python, _ADAPTER],
        input=json.dumps(folders),
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"folder"')]
    said = {row["folder"]: row for row in rows}
    if len(said) < len(set(folders)):
        print(done.stderr[-2000:], file=sys.stderr)
        raise SystemExit(f"error: the other scanner answered for {len(said)} of {len(folders)}")
    return [
        Answer(
            any(said[folder]["worst"].upper() in {"HIGH", "CRITICAL"} for folder in sample.folders),
            tuple(said[folder]["s"] for folder in sample.folders),
        )
        for sample in samples
    ]


def rows_of(
    samples: Sequence[Sample], answers: Sequence[Answer], name: str
) -> list[dict[str, Any]]:
    """Figures per set and per part of a set."""
    rows: list[dict[str, Any]] = []
    keys: dict[tuple[str, str], list[int]] = {}
    for at, sample in enumerate(samples):
        keys.setdefault((sample.set, ""), []).append(at)
        if sample.part:
            keys.setdefault((sample.set, sample.part), []).append(at)
    for (group, part), places in keys.items():
        bad = [answers[at].blocked for at in places if samples[at].bad]
        good = [answers[at].blocked for at in places if not samples[at].bad]
        times = sorted(one * 1000 for at in places for one in answers[at].seconds)
        rows.append(
            {
                "scanner": name,
                "set": group,
                "part": part or "all",
                "recall": _share(bad),
                "false_positives": _share(good),
                "median_ms": round(times[len(times) // 2], 2),
                "p95_ms": round(times[min(int(len(times) * 0.95), len(times) - 1)], 2),
            }
        )
    return rows


def _share(blocked: Sequence[bool]) -> dict[str, Any]:
    low, high = wilson(sum(blocked), len(blocked))
    return {
        "blocked": sum(blocked),
        "of": len(blocked),
        "interval": [round(low, 4), round(high, 4)],
    }


def show(rows: Iterable[dict[str, Any]]) -> None:
    """One line per scanner, set and part."""
    head = ("scanner", "set", "part", "recall", "false positives", "median", "p95")
    print("{:10} {:13} {:22} {:28} {:28} {:>9} {:>9}".format(*head))
    for row in rows:
        print(
            f"{row['scanner']:10} {row['set']:13} {row['part']:22} {_words(row['recall']):28} "
            f"{_words(row['false_positives']):28} "
            f"{row['median_ms']:6.1f} ms {row['p95_ms']:6.1f} ms"
        )


def _words(share: dict[str, Any]) -> str:
    if not share["of"]:
        return "-"
    low, high = share["interval"]
    rate = share["blocked"] / share["of"]
    return f"{share['blocked']}/{share['of']} {rate:.1%} [{low:.1%}, {high:.1%}]"


def main() -> int:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--malskills", metavar="DIR")
    parser.add_argument("--skillfortify", metavar="DIR")
    parser.add_argument("--skill-inject", metavar="DIR")
    parser.add_argument("--plain", metavar="DIR", help="skills taken to be benign")
    parser.add_argument("--cisco", metavar="PYTHON", help="a Python that has the other scanner")
    parser.add_argument("--write", action="store_true", help="write results/scanner.json")
    given = parser.parse_args()
    samples: list[Sample] = []
    if given.malskills:
        samples += load_malskills(given.malskills)
    if given.skillfortify:
        samples += load_skillfortify(given.skillfortify)
    if given.skill_inject:
        samples += load_skill_inject(given.skill_inject)
    plain = load_plain(given.plain) if given.plain else []
    if not samples and not plain:
        parser.error("give at least one set")
    rows = rows_of(samples + plain, ask_satchel(samples + plain), "satchel")
    if given.cisco:
        rows += rows_of(samples, ask_cisco(samples, given.cisco), "cisco")
    show(rows)
    if given.write:
        path = os.path.join(ROOT, "benchmarks", "results", "scanner.json")
        with open(path, encoding="utf-8") as file:
            before = json.load(file)["rows"]
        measured = {row["scanner"] for row in rows}
        rows += [row for row in before if row["scanner"] not in measured]
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"rows": rows}, file, indent=1)
            file.write("\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
