"""The write lock of a scope, which every change of the store holds."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING

from satchel._fs import locked
from satchel.store.disk_errors import disk_errors_as_refusal
from satchel.store.workdir import LOCK_TIMEOUT_S, prepare_scope

if TYPE_CHECKING:
    from collections.abc import Generator

    from satchel.store.workdir import Scope


@contextmanager
def locked_scope(scope: Scope, *, timeout: float = LOCK_TIMEOUT_S) -> Generator[list[str]]:
    """Hold the write lock of a scope; yields what was adopted, for the user."""
    scope_lock = ExitStack()
    with disk_errors_as_refusal(scope.part("lock")):
        adoption_note = prepare_scope(scope)
        scope_lock.enter_context(locked(scope.part("lock"), timeout=timeout, private=False))
    try:
        yield [adoption_note] if adoption_note else []
    finally:
        with suppress(OSError):  # the operating system releases it in any case
            scope_lock.close()
