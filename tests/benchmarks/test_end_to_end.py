"""The benchmark runs on any folder of the same shape; how good its figures are is not judged."""

from __future__ import annotations

import json
import lzma
import os
import subprocess
import sys

import pytest

COLOURS = ("amber", "beige", "coral", "denim", "ebony", "fawn")


@pytest.fixture
def data(tmp_path):
    """A small set: six tasks, six right skills, and sixty others, half of them not described."""
    folder = tmp_path / "data" / "skillrouter75"
    folder.mkdir(parents=True)
    rows = [
        {
            "_id": f"r{number}",
            "name": f"z-{colour}-painting",
            "description": f"Paints fences and doors in {colour}.",
            "body": f"# Paint\n\nTake {colour} paint.",
        }
        for number, colour in enumerate(COLOURS)
    ]
    rows += [
        {
            "_id": f"o{number}",
            "name": f"Other Skill {number}",
            "description": f"Counts sheep of flock {number}." if number % 2 else "",
            "body": f"# Other\n\nCount the sheep of flock {number} and say how many there are.",
        }
        for number in range(60)
    ]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "corpus.jsonl.xz").write_bytes(lzma.compress(text.encode()))
    tasks = [
        {"_id": f"q{number}", "text": f"Please paint it {colour}", "relevant": [f"r{number}"]}
        for number, colour in enumerate(COLOURS)
    ]
    (folder / "queries.jsonl").write_text("".join(json.dumps(task) + "\n" for task in tasks))
    return folder.parent


@pytest.mark.soak
@pytest.mark.timeout(60)
def test_it_compares_what_a_model_sees(root, data, tmp_path):
    out = tmp_path / "out.json"
    done = subprocess.run(
        [
            sys.executable,
            os.path.join(root, "benchmarks", "end_to_end.py"),
            *("--data", str(data), "--count", "50", "--budget", "2100", "--out", str(out)),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "50 skills, 2,100 characters, 6 tasks" in done.stdout
    report = json.loads(out.read_text())
    rows = {row["name"]: row for row in report["rows"]}
    assert report["characters"]["ours"] <= 2_100
    assert rows["satchel, list and shortlist"]["hits"] == 6
    assert rows["by name, whole entries"]["hits"] == 0
    assert rows["by use, whole entries, nothing used yet"]["hits"] == 0
    for row in rows.values():
        low, high = row["interval"]
        assert 0 <= low <= row["hits"] / row["of"] <= high <= 1
