"""How is the file of another program replaced without losing what it wrote meanwhile?

A person reads what would change and thinks about it, and programs write their files all the time.
So the file is read again at the last moment, and left alone when it is not what was shown. Files
like these hold tokens: a new one has its mode before it has its first byte.
"""

from __future__ import annotations

import os
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from satchel._fs import locked, read_plain
from satchel._language import say
from satchel.errors import Changed, Refused
from satchel.settings import find_paths

if TYPE_CHECKING:
    from collections.abc import Generator

_MOST = 8 << 20
_PATIENCE = 10.0


def read(path: str) -> str | None:
    """A file as text, with its line ends as they are; None when there is none.

    Raises:
        Refused: it cannot be read.
    """
    try:
        return read_plain(path, _MOST).decode()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as exc:
        raise Refused(
            say("`{path}` cannot be read", path=path), say("Look at the file, and try again")
        ) from exc


def replace(path: str, before: str | None, after: str | None, copy: str, mode: int) -> None:
    """Make `path` what it should be, if it still is what it was.

    Args:
        path: The file itself, no link to it.
        before: What it was when the change was shown; None when there was none.
        after: What it should be; None to delete it.
        copy: Where to keep what is replaced; nowhere when empty.
        mode: Who may read it, when there was none.

    Raises:
        Changed: somebody wrote it meanwhile.
        Refused: it cannot be written.
    """
    with _turn(path):
        _compare(path, before)
        if before is not None:
            mode = os.stat(path).st_mode & 0o777
            if copy:
                _write(copy, before, mode, None)
        if after is None:
            os.unlink(path)
            return
        _write(path, after, mode, before, compared=True)


def forget(copy: str) -> None:
    """Delete a copy that is no longer needed.

    Raises:
        Refused: it cannot be deleted.
    """
    with _turn(copy):
        os.unlink(copy)


@contextmanager
def _turn(path: str) -> Generator[None]:
    """One of us at a time; what the system says becomes a refusal."""
    state = find_paths(os.environ).state
    try:
        lock = os.path.join(state, "programs.lock") if state else ""
        with locked(lock, timeout=_PATIENCE) if lock else nullcontext():
            yield
    except OSError as exc:
        raise Refused(
            say("`{path}` cannot be written: {reason}", path=path, reason=exc.strerror or exc),
            say("Make the file and its folder writable, and try again"),
        ) from exc


def _compare(path: str, before: str | None) -> None:
    if read(path) != before:
        raise Changed(
            say("`{path}` was written since the change was made out", path=path),
            say("Run the command again, and look at the difference anew"),
        )


def _write(path: str, text: str, mode: int, before: str | None, *, compared: bool = False) -> None:
    folder = os.path.dirname(path)
    os.makedirs(folder, exist_ok=True)
    name = f".{os.path.basename(path)}.{os.getpid()}.{os.urandom(4).hex()}"
    temporary = os.path.join(folder, name)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
    descriptor = os.open(temporary, flags, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            os.chmod(temporary, mode)
            stream.write(text.encode())
            stream.flush()
            os.fsync(stream.fileno())
        if compared:
            _compare(path, before)
        os.replace(temporary, path)
    except BaseException:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise
