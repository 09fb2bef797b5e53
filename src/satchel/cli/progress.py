"""How far is it? A bar on stderr for whoever waits longer than a second at a terminal."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any, Self, TypeVar

import click

from satchel.cli.output import cut, one_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import TracebackType

PATIENCE = 1.0
"""Seconds before a bar appears."""
_NAME = 24
_Item = TypeVar("_Item")


class Progress:
    """A bar that others report to: `progress(name, done, total)`."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._began = time.monotonic()
        self._looking = sys.stderr.isatty()
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
        """Say that `done` of `total` are done, and that `name` is next."""
        if not self._looking or time.monotonic() - self._began < PATIENCE:
            return
        if self._bar is None:
            if done >= total:
                return
            self._bar = click.progressbar(
                length=total,
                label=self._label,
                file=sys.stderr,
                item_show_func=lambda item: cut(one_line(str(item or "")), _NAME),
            ).__enter__()
        self._bar.update(max(done - self._at, 0), name)
        self._at = done


def with_progress(items: Sequence[_Item], label: str) -> Iterator[_Item]:
    """The items one by one, with a bar for whoever waits."""
    with Progress(label) as progress:
        for at, item in enumerate(items):
            progress("", at, len(items))
            yield item
        progress("", len(items), len(items))
