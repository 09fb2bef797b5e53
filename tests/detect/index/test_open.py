"""Which engine is taken, and what an upgrade leaves behind."""

from __future__ import annotations

import os
import sys

import pytest

from satchel.detect.index import Row
from satchel.detect.index.open import (
    FORMAT,
    FTS5_FROM,
    TANTIVY_FROM,
    choose_engine,
    open_index,
    sweep,
)


def test_without_a_folder_everything_stays_in_memory():
    assert open_index(None, 1_000_000).engine == "memory"


@pytest.mark.parametrize(
    ("count", "engine"),
    [(0, "memory"), (TANTIVY_FROM - 1, "memory"), (TANTIVY_FROM, "tantivy"), (10**6, "tantivy")],
)
def test_the_engine_follows_the_number_of_skills(count, engine, tmp_path):
    index = open_index(str(tmp_path / "made"), count)
    assert index.engine == engine == choose_engine(str(tmp_path / "made"), count)
    index.update([Row("/a", (1, 1, 1), ("pdf", "", "", "", ""))])
    index.close()
    assert os.listdir(tmp_path / "made") == [f"{engine}-{FORMAT}"]
    again = open_index(str(tmp_path / "made"), count)
    assert again.stamps() == {"/a": (1, 1, 1)}


def test_sqlite_takes_over_where_tantivy_is_not_installed(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tantivy", None)
    assert open_index(str(tmp_path), FTS5_FROM - 1).engine == "memory"
    assert open_index(str(tmp_path), FTS5_FROM).engine == "fts5"


def test_and_plain_python_where_sqlite_cannot_search(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tantivy", None)
    monkeypatch.setattr("satchel.detect.index.fts5.has_fts5", lambda: False)
    assert open_index(str(tmp_path), 10**6).engine == "memory"


def test_a_library_at_the_border_does_not_go_to_and_fro(tmp_path):
    folder = str(tmp_path)
    assert open_index(folder, TANTIVY_FROM).engine == "tantivy"
    assert open_index(folder, TANTIVY_FROM - 1).engine == "tantivy"
    assert open_index(folder, TANTIVY_FROM // 2).engine == "tantivy"
    assert open_index(folder, TANTIVY_FROM // 2 - 1).engine == "memory"


def test_what_is_outgrown_or_of_an_older_format_is_swept(tmp_path):
    names = [
        "memory-0",
        f"memory-{FORMAT}",
        "tantivy-0",
        f"fts5-{FORMAT}",
        f"tantivy-{FORMAT + 1}",
        "mine",
    ]
    for name in names:
        os.mkdir(tmp_path / name)
    sweep(str(tmp_path), "tantivy")
    assert sorted(os.listdir(tmp_path)) == [f"fts5-{FORMAT}", "mine", f"tantivy-{FORMAT + 1}"]
    sweep(str(tmp_path / "none"), "tantivy")


def test_nothing_heavy_is_imported_before_an_index_is_opened(root):
    import subprocess

    code = (
        "import sys\nimport satchel.detect.index.open, satchel.detect.index\n"
        "heavy = {'sqlite3', 'tantivy', 'satchel.detect.index.memory'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    env = {**os.environ, "PYTHONPATH": os.path.join(root, "src")}
    subprocess.run([sys.executable, "-c", code], env=env, check=True)
