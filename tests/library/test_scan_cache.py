"""The scan cache: used when valid, rebuilt when damaged, updated from disk."""

from __future__ import annotations

import os
import time

import pytest

from satchel import Library
from satchel.library import ScanCache
from satchel.testing import make_skill


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "skills"
    for number in range(40):
        make_skill(folder, f"skill-{number:02d}", tags=["x"])
    (folder / "odd").mkdir()
    (folder / "odd/SKILL.md").write_text("---\nname: Odd\ndescription: Use when: odd\n---\n")
    (folder / "none").mkdir()
    (folder / "none/SKILL.md").write_text("nothing")
    time.sleep(0.06)  # stamps of just written files are not trusted
    return folder


def same_skills(first, second) -> bool:
    return [skill.ref for skill in first.snapshot()] == [skill.ref for skill in second.snapshot()]


def same(first, second) -> bool:
    left, right = first.snapshot(), second.snapshot()
    return (left.skills, left.hidden, left.problems) == (right.skills, right.hidden, right.problems)


def test_a_second_start_is_equal_and_reads_nothing(root, tmp_path):
    cold = Library([str(root)])
    Library([str(root)], index=ScanCache(str(tmp_path / "cache"))).snapshot()
    warm = Library([str(root)], index=ScanCache(str(tmp_path / "cache")))
    assert same(cold, warm)
    assert warm.files_read == 0


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "text", "random"])
def test_a_damaged_index_is_reported_and_rebuilt(root, tmp_path, damage):
    cache = str(tmp_path / "cache")
    Library([str(root)], index=ScanCache(cache)).snapshot()
    (file,) = (tmp_path / "cache/index").iterdir()
    data = bytearray(file.read_bytes())
    if damage == "flip":
        data[len(data) // 2] ^= 1
    damaged = {"cut": data[:200], "empty": b"", "text": b"hello", "random": os.urandom(500)}
    file.write_bytes(bytes(damaged.get(damage, data)))
    library = Library([str(root)], index=ScanCache(cache))
    assert same_skills(library, Library([str(root)]))
    assert "index-damaged" in {problem.code for problem in library.snapshot().problems}
    assert "index-damaged" not in {
        problem.code for problem in Library([str(root)], index=ScanCache(cache)).snapshot().problems
    }
