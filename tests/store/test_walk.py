"""From `Store.plan_import` to the end of `Store.apply` every tree is hashed once."""

from __future__ import annotations

import hashlib
import os
import time

import pytest

from satchel._fs import RACY_NS
from satchel.errors import Conflict
from satchel.library import fingerprint

OLD = "The old text, which no other file has.\n"
NEW = "The new text, which no other file has.\n"


@pytest.fixture
def hashed(monkeypatch):
    """Counts the SHA-256 computations over data that contains a text."""
    fed: list[bytearray] = []
    original = hashlib.sha256

    class Counting:
        def __init__(self, data: bytes = b"", **options: bool) -> None:
            self._inner = original(data, **options)
            self._fed = bytearray(data)
            fed.append(self._fed)

        def update(self, data: bytes) -> None:
            self._inner.update(data)
            self._fed += data

        def __getattr__(self, name: str):
            return getattr(self._inner, name)

    monkeypatch.setattr(hashlib, "sha256", Counting)
    return lambda text: sum(text.encode() in data for data in fed)


@pytest.fixture
def settled(bench):
    """A source whose new version is not installed yet; the old one was written a moment ago."""
    folder = bench.folder("greet", OLD)
    bench.bring(folder)
    path = folder / "SKILL.md"
    path.write_text(path.read_text().replace(OLD, NEW))
    time.sleep(2 * RACY_NS / 1e9)
    return folder


def test_a_replacement_hashes_the_old_and_the_new_tree_once(bench, settled, hashed):
    store = bench.store
    with store.plan_import(str(settled)) as plan:
        assert [step.kind for step in plan.steps] == ["replace"]
        store.apply(plan)
    assert NEW in (bench.skills / "greet/SKILL.md").read_text()
    assert (hashed(OLD), hashed(NEW)) == (1, 1)


def swap(path) -> None:
    """Other content of the same length and with the same modification time."""
    before = path.stat()
    text = path.read_text()
    path.write_text(text.replace("text", "swap"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size


@pytest.mark.parametrize("swapped", ["installed", "staged"])
def test_a_file_swapped_after_the_plan_is_refused(bench, settled, swapped):
    store = bench.store
    with store.plan_import(str(settled)) as plan:
        time.sleep(2 * RACY_NS / 1e9)
        folder = bench.skills / "greet"
        if swapped == "staged":
            folder = type(folder)(plan.steps[0].staged)
        swap(folder / "SKILL.md")
        with pytest.raises(Conflict, match="greet"):
            store.apply(plan)
    text = (bench.skills / "greet/SKILL.md").read_text()
    assert NEW not in text
    assert NEW.replace("text", "swap") not in text
    assert len(store.history()) == 1


@pytest.mark.parametrize("touched", ["installed", "staged"])
def test_a_file_that_was_only_touched_is_no_conflict(bench, settled, touched):
    store = bench.store
    with store.plan_import(str(settled)) as plan:
        folder = bench.skills / "greet" if touched == "installed" else plan.steps[0].staged
        os.utime(os.path.join(folder, "SKILL.md"))
        store.apply(plan)
    assert NEW in (bench.skills / "greet/SKILL.md").read_text()


def test_a_file_changed_a_moment_before_the_plan_is_hashed_again(
    bench, settled, hashed, monkeypatch
):
    """Its time stamps might not show a further change."""
    monkeypatch.setattr(fingerprint, "RACY_NS", 10**12)
    bench.do("import", str(settled))
    assert hashed(OLD) == 2


def test_a_folder_that_became_a_link_is_refused(bench, settled):
    store = bench.store
    with store.plan_import(str(settled)) as plan:
        (bench.skills / "greet").rename(bench.base / "moved")
        (bench.skills / "greet").symlink_to(bench.base / "moved")
        with pytest.raises(Conflict):
            store.apply(plan)
    assert (bench.skills / "greet").is_symlink()
