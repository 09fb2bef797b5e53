"""Where can skills be put? Each scope as people call it, and why one cannot be used now."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from satchel._language import say
from satchel.errors import SatchelError

if TYPE_CHECKING:
    from satchel.facade import Satchel
    from satchel.store.scope import Name
    from satchel.store.store import Store

SCOPES: tuple[Name, ...] = ("project", "global")


class ScopeShown(NamedTuple):
    """One scope."""

    name: Name
    title: str
    place: str
    """Where its skills are; empty when it cannot be opened."""
    store: Store | None
    """None when it cannot be opened."""
    trouble: str = ""
    """Why not."""
    hint: str = ""


def show_scopes(satchel: Satchel) -> tuple[ScopeShown, ...]:
    """Both of them: one that cannot be opened is no reason to hide the other."""
    return tuple(_shown(satchel, name) for name in SCOPES)


def _shown(satchel: Satchel, name: Name) -> ScopeShown:
    try:
        store = satchel.store(name)
    except SatchelError as exc:
        return ScopeShown(name, scope_words(name), "", None, exc.message, exc.hint)
    return ScopeShown(name, scope_words(name), scope_place(store), store)


def scope_words(name: str) -> str:
    """A scope as people call it."""
    return say("All your projects") if name == "global" else say("This project")


def scope_place(store: Store) -> str:
    """Where the skills of a scope are, as people write it."""
    folder, home = store.scope.folder, os.path.expanduser("~")
    if store.scope.boundary:
        return os.path.relpath(folder, store.scope.boundary).replace(os.sep, "/")
    return folder.replace(home, "~", 1) if folder.startswith(home + os.sep) else folder
