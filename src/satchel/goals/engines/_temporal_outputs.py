"""Where are the large outputs of goals on Temporal? Below one folder, for each namespace apart.

A goal's id is unique in its namespace only. The namespace is known by the id that its server gave
it, and not by an address: a worker beside the server calls that otherwise than a terminal does.
"""

from __future__ import annotations

import os
import re

from satchel._language import say
from satchel.errors import Refused, StepFailed
from satchel.goals.artefacts import FolderArtefacts, digest_of

MISSING = "ARTEFACT_MISSING"


class NamespaceArtefacts:
    """Files of one namespace; what an earlier version kept for all of them is only read.

    Args:
        folder: Of all namespaces.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._goal = ""
        self._own: FolderArtefacts | None = None

    def enter(self, namespace: str, identity: str) -> None:
        """Say whose they are, before anything is kept or read.

        Args:
            namespace: What people call it.
            identity: What its server calls it: no other namespace of any server is called so.
        """
        self._own = FolderArtefacts(os.path.join(self._folder, part(namespace, identity)))

    async def put(self, data: bytes) -> str:
        """Write them, once."""
        return await self._mine.of(self._goal).put(data)

    async def get(self, name: str) -> bytes:
        """Read them."""
        try:
            return await self._mine.get(name)
        except StepFailed as exc:
            if exc.code != MISSING:
                raise
            # They are known by their digest: no other goal's bytes are taken for these.
            return await FolderArtefacts(self._folder).get(name)

    def of(self, goal: str) -> NamespaceArtefacts:
        """For one goal."""
        made = NamespaceArtefacts(self._folder)
        made._goal, made._own = goal, self._own
        return made

    async def forget(self, goal: str) -> None:
        """Remove those of this namespace; whose the earlier ones are, nobody knows."""
        await self._mine.forget(goal)

    @property
    def _mine(self) -> FolderArtefacts:
        if self._own is None:
            raise Refused(say("The engine is not open"), say("Use it with `async with`"))
        return self._own


def part(namespace: str, identity: str) -> str:
    """The name of a namespace's folder: to be read by people, and to be no other's."""
    readable = re.sub(r"[^A-Za-z0-9_-]+", "-", namespace)[:40].strip("-")
    return f"{readable or 'namespace'}-{digest_of(identity.encode())[:12]}"
