"""Which engine is used, and which index folders are removed."""

from __future__ import annotations

import os
import sys
import time

import pytest

from satchel.detect.index import Row
from satchel.detect.index.upkeep import (
    FORMAT,
    TANTIVY_FROM,
    UNUSED_S,
    choose_engine,
    open_index,
    remove_indexes,
    remove_unused,
)


def test_without_a_folder_everything_stays_in_memory():
    assert open_index(None, 1_000_000).engine == "memory"


@pytest.mark.parametrize(("count", "engine"), [(TANTIVY_FROM - 1, "memory"), (10**6, "tantivy")])
def test_the_engine_follows_the_number_of_skills(count, engine, tmp_path):
    index = open_index(str(tmp_path / "made"), count)
    assert index.engine == engine == choose_engine(str(tmp_path / "made"), count)
    index.update([Row("/a", (1, 1, 1), ("pdf", "", "", "", ""))])
    assert os.listdir(tmp_path / "made") == [f"{engine}-{FORMAT}"]
    assert open_index(str(tmp_path / "made"), count).stamps() == {"/a": (1, 1, 1)}


def test_without_tantivy_plain_python_takes_any_number(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tantivy", None)
    assert open_index(str(tmp_path), 10**6).engine == "memory"


def test_replaced_indexes_and_older_formats_are_removed(tmp_path):
    kept = ["mine", f"tantivy-{FORMAT}", f"tantivy-{FORMAT + 1}"]
    for name in (*kept, "memory-0", f"memory-{FORMAT}", "tantivy-0", "fts5-2"):
        os.mkdir(tmp_path / name)
    remove_indexes(str(tmp_path), "tantivy")
    assert sorted(os.listdir(tmp_path)) == kept
    remove_indexes(str(tmp_path))
    assert sorted(os.listdir(tmp_path)) == ["mine", f"tantivy-{FORMAT + 1}"]


def test_indexes_of_projects_that_are_not_used_any_more_are_removed(tmp_path):
    old = time.time() - UNUSED_S - 60
    for name in ("0" * 16, "1" * 16, "2" * 16, "mine"):
        (tmp_path / name / "plain").mkdir(parents=True)
        os.utime(tmp_path / name / "plain", (old, old))
        os.utime(tmp_path / name, (old, old))
    os.utime(tmp_path / ("1" * 16) / "plain")  # searched today
    os.utime(tmp_path / ("2" * 16))
    remove_unused(str(tmp_path))
    assert sorted(os.listdir(tmp_path)) == ["1" * 16, "2" * 16, "mine"]
    remove_unused(str(tmp_path / "none"))
