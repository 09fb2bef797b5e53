"""Hostile archives, repositories and folders: each refused by its own rule, and harmlessly."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from hostile.archives import ACCEPTED, ZIPS
from hostile.repositories import FOLDERS, GITS
from hostile.tars import TARS
from hostile.zip_fields import FIELD_ZIPS
from satchel.store.archive import RULES

CASES = [*ZIPS, *FIELD_ZIPS, *TARS, *GITS, *FOLDERS]
SECONDS = 2.0
MEGABYTES = 128

pytestmark = [pytest.mark.timeout(180)]


def _files(folder: str) -> dict[str, tuple[int, int, int]]:
    """Everything below a folder, with the metadata that a write changes."""
    found: dict[str, tuple[int, int, int]] = {}
    for here, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = os.path.join(here, name)
            info = os.lstat(path)
            found[path] = (info.st_mode, info.st_size, info.st_mtime_ns)
    return found


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """All cases, read one after the other in one process of its own."""
    base = tmp_path_factory.mktemp("hostile")
    sources, staging = base / "sources", base / "staging"
    staging.mkdir()
    words: dict[str, str] = {}
    for number, case in enumerate(CASES):
        folder = sources / str(number)
        folder.mkdir(parents=True)
        words[case.name] = case.make(str(folder))
    (base / "list.json").write_text(json.dumps(words))
    before = _files(str(sources))
    here = os.path.dirname(os.path.abspath(__file__))
    source = os.path.join(os.path.dirname(os.path.dirname(here)), "src")
    done = subprocess.run(
        [
            sys.executable,
            "-B",
            os.path.join(here, "reading.py"),
            str(base / "list.json"),
            str(staging),
        ],
        cwd=sources,
        env={**os.environ, "PYTHONPATH": source, "TMPDIR": str(staging)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    result["changed"] = sorted(set(before.items()) ^ set(_files(str(sources)).items()))
    result["left"] = sorted(name for name in os.listdir(staging) if not name.isdigit())
    return result


def test_there_are_enough_of_them():
    names = [case.name for case in CASES]
    assert len(set(names)) == len(names)
    assert len(ZIPS) >= 45
    assert len(TARS) >= 25
    assert len(GITS) >= 12
    assert len(FOLDERS) >= 5
    assert {case.rule for case in CASES} <= {*RULES, ACCEPTED}


def test_each_is_refused_by_its_own_rule_or_harmless(report):
    found = {name: row["outcome"] for name, row in report["cases"].items()}
    assert found == {case.name: case.rule for case in CASES}


def test_nothing_is_written_outside_the_staging_folder(report):
    assert report["seen"] == []
    assert report["changed"] == []
    assert report["left"] == [], "something temporary was left behind"


def test_each_takes_at_most_two_seconds(report):
    slow = {n: row["seconds"] for n, row in report["cases"].items() if row["seconds"] > SECONDS}
    assert slow == {}


def test_each_takes_at_most_128_megabytes(report):
    assert max(row["megabytes"] for row in report["cases"].values()) <= MEGABYTES


def test_no_file_stays_open(report):
    assert report["descriptors"] < 16


def test_every_rule_has_a_case_or_its_own_test():
    elsewhere = {"changed-while-read", "repository"}
    assert set(RULES) - {case.rule for case in CASES} - elsewhere == set()
