"""Watches folders for changes in a thread (`watch` extra)."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any

from satchel._optional import require

if TYPE_CHECKING:
    from collections.abc import Sequence


_MAX_PATHS = 10_000
"""Beyond this, everything counts as changed."""


class Watcher:
    """Detects changes below some folders."""

    def __init__(self, folders: Sequence[str], files: Sequence[str] = ()) -> None:
        """Start watching. Each call of `changed` checks for folders that did not exist yet.

        Args:
            folders: Watched recursively.
            files: Checked by `changed`, since their folder may be a whole project.

        Raises:
            MissingExtra: the `watch` extra is not installed.
        """
        watchfiles: Any = require("watchfiles", "watch")
        self._files = {file: _stamp(file) for file in files}
        self._watched = [folder for folder in folders if os.path.isdir(folder)]
        self._missing = [folder for folder in folders if not os.path.isdir(folder)]
        self._dirty = threading.Event()
        self._dirty.set()  # earlier changes are unknown
        self._paths: set[str] = set()
        self._lost = True
        self._stop = threading.Event()
        self._ready = threading.Event()
        self._hold = threading.Lock()
        self._watch = watchfiles.watch
        self._start()

    def _start(self) -> None:
        self._ready.clear()
        self._thread = threading.Thread(target=self._run, name="satchel-watch", daemon=True)
        self._thread.start()
        self._ready.wait(5)

    @property
    def is_alive(self) -> bool:
        """False once watching failed: from then on everything counts as changed."""
        return self._thread.is_alive()

    def changed(self) -> bool:
        """Whether anything changed since the last call."""
        appeared = [folder for folder in self._missing if os.path.isdir(folder)]
        if appeared:
            self._missing = [folder for folder in self._missing if folder not in appeared]
            self._watched += appeared
            self._lost = True
            self.close()
            self._stop.clear()
            self._start()
            self._dirty.set()
        for file, before in self._files.items():
            now = _stamp(file)
            if now != before:
                self._files[file] = now
                self._dirty.set()
        if not self._thread.is_alive():
            return True  # a failed watcher must not hide changes
        if self._dirty.is_set():
            self._dirty.clear()
            return True
        return False

    def invalidate(self) -> None:
        """Make the next call of `changed` return True."""
        self._dirty.set()

    def touched(self) -> set[str] | None:
        """The paths that changed since the last call; None when not all are known."""
        with self._hold:
            paths, self._paths = self._paths, set()
            lost, self._lost = self._lost, False
        return None if lost or not self._thread.is_alive() else paths

    def close(self) -> None:
        """Stop watching."""
        self._stop.set()
        self._thread.join(5)

    def _run(self) -> None:
        if not self._watched:
            self._ready.set()
            self._stop.wait()
            return
        changes = self._watch(
            *self._watched,
            stop_event=self._stop,
            debounce=50,
            step=20,
            rust_timeout=200,
            yield_on_timeout=True,
            watch_filter=None,
        )
        try:
            for change in changes:
                self._ready.set()
                if change:
                    with self._hold:
                        if len(self._paths) < _MAX_PATHS:
                            self._paths.update(path for _, path in change)
                        else:
                            self._lost = True
                    self._dirty.set()
        except RuntimeError:
            # The system has no watchers left, or lost this one: `changed` returns True from now on.
            self._ready.set()


def _stamp(file: str) -> tuple[int, int] | None:
    try:
        info = os.stat(file)
    except OSError:
        return None
    return info.st_ctime_ns, info.st_size
