"""A host for tests: a project with an empty home, whose library takes skills from one address."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import pytest

from satchel import Satchel
from talking import session_over

if TYPE_CHECKING:
    from collections.abc import Iterator

    from satchel.envelope import Envelope
    from satchel.library.remote.source import McpSupplier
    from satchel.session.session import Session


@contextmanager
def hosting(folder: str, address: str, **settings: Any) -> Iterator[Satchel]:
    """A project in `folder` that takes skills from `address`, under the name `docs`."""
    project = os.path.join(folder, "project")
    os.makedirs(project, exist_ok=True)
    given: dict[str, Any] = {"servers": {"docs": {"address": address}}, "builtin": False}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SATCHEL_HOME", os.path.join(folder, "home"))
        satchel = Satchel.for_project(project, **{**given, **settings})
    try:
        yield satchel
    finally:
        satchel.library.close()


def supplier(satchel: Satchel) -> McpSupplier:
    """What asks the one server."""
    found: Any = next(one.supplier for one in satchel.library.locations if one.supplier)
    return found


def ask_again(satchel: Satchel) -> None:
    """Take the server's list as it is now, without waiting until it is due."""
    supplier(satchel).refresh()
    satchel.refresh()


def states(satchel: Satchel) -> dict[str, str]:
    """Every skill and its state."""
    return {skill.name: skill.state for skill in satchel.list_skills(hidden=True)}


def refusals(satchel: Satchel) -> list[str]:
    """What the library says that it did not take, in words."""
    look = satchel.library.snapshot()
    return [one.message for one in look.problems if one.code.startswith(("served-", "server-"))]


_sessions: WeakKeyDictionary[Satchel, Session] = WeakKeyDictionary()


def session_of(satchel: Satchel) -> Session:
    """The one conversation of a test."""
    if satchel not in _sessions:
        _sessions[satchel] = session_over(satchel.library, satchel.settings)
    return _sessions[satchel]


def load(satchel: Satchel, name: str) -> Envelope:
    """Load a skill as a model does."""
    return session_of(satchel).call("Skill", {"name": name})


def read(satchel: Satchel, path: str) -> Envelope:
    """Read a file as a model does."""
    return session_of(satchel).call("ReadFile", {"path": path})
