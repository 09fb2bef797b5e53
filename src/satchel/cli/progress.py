"""A progress bar on stderr for work that takes longer than a second."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any, Self, TypeVar

import click

from satchel.cli.console import cut, one_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import TracebackType

_SHOW_AFTER_S = 1.0
_MAX_NAME_COLUMNS = 24
_Item = TypeVar("_Item")


class ProgressBar:
    """A bar that is called with progress: `bar(name, done, total)`."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._began = time.monotonic()
        self._is_terminal = sys.stderr.isatty()
        self._bar: Any = None
        self._at = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.__exit__(kind, error, trace)
            self._bar = None

    def __call__(self, name: str, done: int, total: int) -> None:
        """Show that `done` of `total` are done, and that `name` is next."""
        if not self._is_terminal or time.monotonic() - self._began < _SHOW_AFTER_S:
            return
        if self._bar is None:
            if done >= total:
                return
            self._bar = click.progressbar(
                length=total,
                label=self._label,
                file=sys.stderr,
                item_show_func=lambda item: cut(one_line(str(item or "")), _MAX_NAME_COLUMNS),
            ).__enter__()
        self._bar.update(max(done - self._at, 0), name)
        self._at = done


def with_progress(items: Sequence[_Item], label: str) -> Iterator[_Item]:
    """Yield the items one by one under a progress bar."""
    with ProgressBar(label) as progress:
        for at, item in enumerate(items):
            progress("", at, len(items))
            yield item
        progress("", len(items), len(items))
