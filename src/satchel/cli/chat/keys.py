"""What becomes of keys that are pressed while nobody reads? They wait, and are not drawn."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator


@contextlib.contextmanager
def unseen_keys() -> Generator[None]:
    """Keep the terminal from writing keys into an answer; the next prompt gets them."""
    if not sys.stdin.isatty():
        yield
        return
    import termios

    there = sys.stdin.fileno()
    before = termios.tcgetattr(there)
    after = termios.tcgetattr(there)
    after[3] &= ~termios.ECHO
    termios.tcsetattr(there, termios.TCSANOW, after)
    try:
        yield
    finally:
        termios.tcsetattr(there, termios.TCSANOW, before)


def forget_keys() -> None:
    """Forget what was typed ahead: nobody agrees to a question that was not there yet."""
    if sys.stdin.isatty():
        import termios

        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
