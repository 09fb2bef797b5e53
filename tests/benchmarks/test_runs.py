"""Benchmarks run and have their figures; how good those are is not for a test to say."""

from __future__ import annotations

import json
import lzma
import os
import subprocess
import sys

import pytest

from needs import needs

pytestmark = [pytest.mark.soak, pytest.mark.timeout(240)]
COLOURS = ("amber", "beige", "coral", "denim", "ebony", "fawn")


@pytest.fixture
def run(root, tmp_path):
    """Run a benchmark: what it printed, and what it kept."""

    def run(script, *words):
        out = tmp_path / "out.json"
        done = subprocess.run(
            [sys.executable, os.path.join(root, "benchmarks", script), *words, "--out", str(out)],
            env={**os.environ, "PYTHONPATH": os.path.join(root, "src")},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout, json.loads(out.read_text("utf-8"))

    return run


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


def test_what_a_model_sees_is_compared(run, data):
    words = ("--data", str(data), "--count", "50", "--budget", "2100")
    told, report = run("end_to_end.py", *words)
    assert "50 skills, 2,100 characters, 6 tasks" in told
    rows = {row["name"]: row for row in report["rows"]}
    assert report["characters"]["ours"] <= 2_100
    assert rows["satchel, list and shortlist"]["hits"] == 6
    assert rows["by name, whole entries"]["hits"] == 0
    assert rows["by use, whole entries, nothing used yet"]["hits"] == 0
    for row in rows.values():
        low, high = row["interval"]
        assert 0 <= low <= row["hits"] / row["of"] <= high <= 1


def test_a_quick_run_prints_every_goal(run, tmp_path):
    told, report = run("goals.py", "--quick", "--workdir", str(tmp_path / "work"))
    sections = report["sections"].values()
    found = {row["what"]: row for section in sections for row in section["rows"]}
    assert len(found) >= 27
    assert [row for row in found if row not in told] == []
    broken = found["broken files: 21 kinds one by one, and together"]
    assert broken["figure"]["value"] == 22, broken["note"]
    assert found["terminal packages that it imports"]["figure"]["value"] == 0


def test_retrieval_has_its_figures(run):
    told, report = run("retrieval_speed.py", "--sizes", "300", "--goals", "6")
    assert "detector, long, p99" in told
    figures = report["sizes"]["300"]
    for kind in ("short", "long"):
        asked = figures["query ms"][kind]
        assert {"bare", "bare, apart", "index", "legs", "ranking", "detector"} <= set(asked)
        assert asked["bare"]["p50 / bare"] == 1.0
        assert asked["detector"]["goals"] == 6
    assert figures["build s"]["index"]["cpu"] > 0
    assert figures["update ms"]["detector"]["wall"] > 0
    assert figures["memory MB"]["index"]["mapped"] > 0


def test_tool_skills_have_their_tables(run):
    needs("bwrap")
    told, report = run("tools.py", "--rounds", "2", "--part", "cold")
    assert "Python, cold, / `python -I`" in told
    assert report["cold"]["against"]["python cold / bare"]["rounds"] == 2
