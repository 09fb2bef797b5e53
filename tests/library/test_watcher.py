"""Watching locations with the `watch` extra."""

from __future__ import annotations

import time

from satchel import Library
from satchel.testing import make_skill


def _until(check, seconds: float = 8.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if check():
            return True
        time.sleep(0.05)
    return False


def described(library: Library, name: str) -> str:
    skill = library.refresh().get(name)
    return skill.description if skill else ""


def test_changes_are_noticed_and_quiet_is_cheap(tmp_path):
    root = tmp_path / "skills"
    for number in range(50):
        make_skill(root, f"s{number}")
    time.sleep(0.06)
    library = Library([str(root), str(tmp_path / "later")])
    watcher = library.watch()
    try:
        library.refresh()
        _until(lambda: library.refresh() is library.refresh() and not watcher.changed())
        quiet = library.refresh()
        began = time.thread_time()
        assert library.refresh() is quiet
        assert time.thread_time() - began < 0.01
        make_skill(root, "s7", "Edited while watched.")
        assert _until(lambda: described(library, "s7") == "Edited while watched.")
        make_skill(tmp_path / "later", "appeared")
        assert _until(lambda: library.refresh() and library.get_skill("appeared") is not None)
    finally:
        watcher.close()
    make_skill(root, "s8", "After the watcher stopped.")
    assert _until(lambda: described(library, "s8").startswith("After"))


def test_a_library_that_is_closed_watches_no_more(tmp_path):
    """The system has few watchers: whoever opens many libraries must be able to give them back."""
    make_skill(tmp_path / "skills", "one")
    library = Library([str(tmp_path / "skills")])
    watcher = library.watch()
    assert watcher.is_alive
    library.close()
    assert not watcher.is_alive
    assert library.refresh().get("one") is not None
