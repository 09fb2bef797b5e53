"""Which indexes does nobody use any more?

Every project, and every set of settings that shows other skills, has an index folder of its own
beside the others. Whoever searches leaves a stamp in it, at most once a day; the stamp names the
project. Whoever writes an index removes those beside it that were not used for a month and whose
project is gone, and those that were not used for three months at all. They can be built anew.
"""

from __future__ import annotations

import os
import re
import time
from contextlib import ExitStack, suppress

from satchel._fs import locked, write_atomic

STAMP = "used"
"""The file in an index folder whose time says when it was used, and whose text says by which
project."""
SWEPT = "swept"
"""The file beside the folders whose time says when they were swept."""
DAY = 86_400.0
UNUSED = 30 * DAY
"""Seconds without use after which the index of a project that is gone is removed."""
OLD = 90 * DAY
"""Seconds without use after which any index is removed."""
_LOOK = 3_600.0
"""Seconds in which a process does not look at the stamps again."""
_FOLDER = re.compile("[0-9a-f]{16}")
_GONE = ".gone"


class Use:
    """The use of one index folder among those of other projects."""

    def __init__(self, folder: str, project: str) -> None:
        self.folder = folder
        self.swept = 0
        """How many others were removed so far."""
        self._project = project
        self._mark_at = self._sweep_at = 0.0

    def mark(self) -> None:
        """Leave the stamp, at most once a day; a folder that is not there is not made."""
        if time.monotonic() < self._mark_at:
            return
        stamp = os.path.join(self.folder, STAMP)
        # Where nothing can be kept there is nothing to sweep, and the search says so itself.
        with suppress(OSError):
            if not os.path.isdir(self.folder):
                return
            if not os.path.lexists(stamp):
                project = self._project.encode("utf-8", "surrogatepass")
                write_atomic(stamp, project, private=True, durable=False)
            elif _age(stamp) >= DAY:
                os.utime(stamp, follow_symlinks=False)
        self._mark_at = time.monotonic() + _LOOK

    def sweep_daily(self) -> None:
        """Sweep, if nobody has done so today."""
        if time.monotonic() < self._sweep_at:
            return
        self._sweep_at = time.monotonic() + _LOOK
        with suppress(OSError):
            stamp = os.path.join(os.path.dirname(self.folder), SWEPT)
            if not os.path.lexists(stamp) or _age(stamp) >= DAY:
                self.sweep()

    def sweep(self) -> None:
        """Remove the indexes beside this one that nobody uses, but none that is being written.

        What cannot be removed stays for the next time.
        """
        self.mark()
        shelf, own = os.path.split(self.folder)
        with suppress(OSError):
            for name in os.listdir(shelf):
                place = os.path.join(shelf, name)
                if name.endswith(_GONE) and _FOLDER.fullmatch(name.removesuffix(_GONE)):
                    _throw_away(place)  # a sweep was cut short
                elif name != own and _FOLDER.fullmatch(name) and _remove(place):
                    self.swept += 1
            write_atomic(os.path.join(shelf, SWEPT), b"", private=True, durable=False)


def _remove(folder: str) -> bool:
    """Remove an index folder, if it is unused and nobody writes it: whether it is gone."""
    if not _is_unused(folder):
        return False
    gone = folder + _GONE
    try:
        with ExitStack() as stack:
            for path in _locks(folder):
                stack.enter_context(locked(path, timeout=0.0))
            if not _is_unused(folder, written=False):  # somebody came while we took the locks
                return False
            os.rename(folder, gone)  # in one step: nobody meets half an index
    except OSError:  # being written, or not ours to remove
        return False
    _throw_away(gone)
    return True


def _is_unused(folder: str, *, written: bool = True) -> bool:
    """Whether a folder may go, by its stamp and, if asked for, by when it was last written."""
    stamp = os.path.join(folder, STAMP)
    try:
        age = _age(stamp) if os.path.lexists(stamp) else _age(folder)
        if age >= UNUSED and written:
            # One without a stamp is of an older version; its index was written all the same.
            for here, _, names in os.walk(folder):
                age = min([age, *(_age(os.path.join(here, name)) for name in names)])
        return age >= OLD or (age >= UNUSED and _is_gone(stamp))
    except OSError:
        return False


def _is_gone(stamp: str) -> bool:
    """Whether the project that a stamp names is not there; one that is not named may be."""
    try:
        with open(stamp, "rb") as file:
            project = file.read().decode("utf-8", "surrogatepass")
    except (OSError, UnicodeDecodeError):
        return False
    if not os.path.isabs(project):
        return False
    try:
        os.stat(project)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except (OSError, ValueError):  # it cannot be looked at
        return False
    return False


def _locks(folder: str) -> list[str]:
    """The locks of those who write in it: one for each way to cut words."""
    paths = (os.path.join(folder, name, "writer.lock") for name in os.listdir(folder))
    return [path for path in paths if os.path.lexists(path)]


def _throw_away(folder: str) -> None:
    import shutil

    shutil.rmtree(folder, ignore_errors=True)


def _age(path: str) -> float:
    return time.time() - os.lstat(path).st_mtime
