"""One conversation: its prompt, loaded skills, permissions and suggestions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from satchel.session.session import Session

__all__ = ["Session"]


def __getattr__(name: str) -> Any:
    if name != "Session":
        raise AttributeError(f"module `satchel.session` has no attribute `{name}`")
    from satchel.session.session import Session

    return Session
