"""The skills that one client may have, by address; what cannot be served says why.

Nothing is read before somebody asks, and a page of a listing reads that page alone.
"""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING, NamedTuple

from satchel.errors import Changed, NotFound, SatchelError
from satchel.integrations.mcp.addresses import address, segments, skill_paths
from satchel.integrations.mcp.manifest import make_manifest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from satchel.integrations.mcp.manifest import Manifest
    from satchel.library import Library, Snapshot
    from satchel.skill.model import Skill

_MOST_KEPT = 20_000
"""Manifests that are remembered."""
_OLDEST = 5.0
"""Seconds that a list may be old, whoever should have looked: as long as a client may keep one."""


class Unserved(NamedTuple):
    """A skill that is offered here and cannot be served, and why."""

    skill: Skill
    reason: str
    fix: str


class Found(NamedTuple):
    """What an address means."""

    path: str
    """The skill's path."""
    file: str
    """The path of the file or folder below the skill; empty for the skill's own folder."""
    manifest: Manifest


class Manifests:
    """The manifests of a library, shared by all who have a part of it."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._kept: dict[str, Manifest] = {}
        self._refused: dict[str, tuple[object, Unserved]] = {}
        self._lock = threading.Lock()
        self._looked = time.monotonic()

    def look(self) -> None:
        """Look for changes if nobody has for a while. The server's own looks come much sooner."""
        if time.monotonic() - self._looked > _OLDEST:
            self._looked = time.monotonic()
            self._library.refresh()

    def get(self, skill: Skill) -> Manifest | None:
        """What is served of a skill now; None when nothing is."""
        key = skill.base_dir
        kept = self._kept.get(key)
        try:
            if (
                kept is not None
                and kept.skill.head is skill.head
                and kept.stands()
                and self._library.seals.check(skill) is kept.sealed
            ):
                return kept
            made = make_manifest(skill, self._library.seals)
        except (OSError, SatchelError) as exc:
            self._refuse(skill, exc)
            return None
        with self._lock:
            self._refused.pop(key, None)
            if len(self._kept) >= _MOST_KEPT:
                self._kept.clear()
            self._kept[key] = made
        return made

    def _refuse(self, skill: Skill, exc: OSError | SatchelError) -> None:
        if isinstance(exc, SatchelError):
            why = Unserved(skill, exc.message, exc.hint)
        else:
            why = Unserved(skill, exc.strerror or str(exc), "Look at the folder")
        with self._lock:
            self._kept.pop(skill.base_dir, None)
            before = self._refused.get(skill.base_dir)
            self._refused[skill.base_dir] = (skill.head, why)
        if before is None or before[1][1:] != why[1:]:
            self._library.trace.record(
                "failed", (skill.name,), what="mcp", ref=skill.ref, reason=why.reason, fix=why.fix
            )

    def __len__(self) -> int:
        """How many skills were read so far."""
        return len(self._kept)

    def refused(self) -> list[Unserved]:
        """Those that were asked for and could not be served."""
        return [why for _, why in self._refused.values()]

    def changed(self, paths: set[str] | None = None) -> set[str]:
        """The folders of skills that were handed out and are something else by now.

        Args:
            paths: What was touched; everything is looked at when None.
        """
        if paths is None:
            folders = set(self._kept)
        else:
            folders: set[str] = set()
            for path in paths:
                while len(path) > 1 and path not in folders:
                    if path in self._kept:
                        folders.add(path)
                    path = os.path.dirname(path)  # noqa: PLW2901 - upwards
        found = [(key, self._kept.get(key)) for key in folders]
        return {
            key
            for key, kept in found
            if kept is not None and (kept.settled or paths) and not kept.stands()
        }

    def forget(self, folders: set[str]) -> None:
        """Read these again when somebody asks."""
        with self._lock:
            for folder in folders:
                self._kept.pop(folder, None)


class _Table(NamedTuple):
    """What a snapshot comes to for one client."""

    look: Snapshot
    paths: dict[str, Skill]
    names: Sequence[str]
    closed: dict[str, list[str]]
    """Folder of a skill -> the folders in it that are skills the client may not have."""


def _closed(look: Snapshot, served: Iterable[Skill]) -> dict[str, list[str]]:
    left = [skill for skill in look.hidden if skill.state == "excluded"]
    left += [skill for skill in look.skills if not skill.for_model]
    closed: dict[str, list[str]] = {}
    if not left:
        return closed
    folders = {skill.base_dir for skill in served}
    for skill in left:
        above = os.path.dirname(skill.base_dir)
        while len(above) > 1 and above != os.path.dirname(above):
            if above in folders:
                inner = os.path.relpath(skill.base_dir, above).replace(os.sep, "/")
                closed.setdefault(above, []).append(f"{inner}/")
            above = os.path.dirname(above)
    return closed


class Served:
    """What one client may have of it."""

    def __init__(self, library: Library, manifests: Manifests) -> None:
        self._library = library
        self._manifests = manifests
        self._table: _Table | None = None
        self._by_head: tuple[object, dict[int, str]] = (None, {})

    def _paths(self) -> _Table:
        self._manifests.look()
        look = self._library.snapshot()
        table = self._table
        if table is None or table.look is not look:
            # What only people may load is for prompts; a host could not tell it from the others.
            paths = skill_paths(look.for_model)
            table = self._table = _Table(look, paths, list(paths), _closed(look, paths.values()))
        return table

    def _manifest(self, skill: Skill, closed: dict[str, list[str]]) -> Manifest | None:
        """What is served of a skill, without the skills in it that this client may not have."""
        found = self._manifests.get(skill)
        inner = tuple(closed.get(skill.base_dir, ()))
        if found is None or not inner:
            return found
        files = {path: item for path, item in found.files.items() if not path.startswith(inner)}
        return found._replace(files=files)

    @property
    def paths(self) -> Sequence[str]:
        """The paths of all skills that could be served, sorted. Nothing is read."""
        return self._paths().names

    def inner(self, skill: Skill) -> tuple[str, ...]:
        """The folders in a skill's folder that this client may not have, each with a `/`."""
        return tuple(self._paths().closed.get(skill.base_dir, ()))

    def manifests(self, paths: Sequence[str]) -> Iterator[tuple[str, Manifest]]:
        """Those of some skills; whatever cannot be served is left out, and the trace says why."""
        table = self._paths()
        for path in paths:
            skill = table.paths.get(path)
            found = self._manifest(skill, table.closed) if skill is not None else None
            if found is not None:
                yield path, found

    def find(self, uri: str) -> Found:
        """What an address means; the innermost skill that is served has it.

        Raises:
            NotFound: nothing is served there. It is not said whether there is something.
        """
        names = segments(uri)
        table = self._paths()
        for count in range(len(names), 0, -1):
            path = "/".join(names[:count])
            skill = table.paths.get(path)
            if skill is None:
                continue
            manifest = self._manifest(skill, table.closed)
            if manifest is not None:
                return Found(path, "/".join(names[count:]), manifest)
        raise NotFound("Nothing is served at this address", "Call skills/list")

    def place(self, uri: str) -> tuple[Skill, str] | None:
        """The skill that an address belongs to and the path below its folder. Nothing is read."""
        names = segments(uri)
        paths = self._paths().paths
        for count in range(len(names), 0, -1):
            skill = paths.get("/".join(names[:count]))
            if skill is not None:
                return skill, "/".join(names[count:])
        return None

    def read(self, uri: str) -> tuple[Found, bytes]:
        """A file's bytes, which are the ones that its skill announces.

        Raises:
            NotFound: no file is served there.
        """
        for _ in range(3):
            found = self.find(uri)
            try:
                return found, found.manifest.read(found.file)
            except Changed:
                self._manifests.forget({found.manifest.skill.base_dir})
        raise NotFound("The file changes while it is read", "Try again")

    def uri(self, skill: Skill) -> str:
        """The address of a skill, whether it is served or not."""
        table = self._paths().paths
        if self._by_head[0] is not table:
            self._by_head = (table, {id(one.head): path for path, one in table.items()})
        return address(self._by_head[1].get(id(skill.head), skill.name), "SKILL.md")
