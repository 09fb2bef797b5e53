"""The skills that one client may read, by their URIs.

A URI is only looked up in a table of served skills; no path is made from it. Files are read on
request, and a page of a listing reads that page alone. A skill that cannot be served has its reason
recorded in the trace.
"""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING, NamedTuple

from satchel.errors import Changed, NotFound, SatchelError
from satchel.integrations.mcp.served_manifest import make_manifest
from satchel.integrations.mcp.skill_uri import normalise_uri, split_uri

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from satchel.integrations.mcp.served_manifest import ServedManifest
    from satchel.library import Library, Snapshot
    from satchel.skill.model import Skill

_MAX_MANIFESTS = 20_000
_MAX_LIST_AGE_S = 5.0
"""Maximum age of a list without a refresh: as long as a client may cache one."""
_MAX_READ_ATTEMPTS = 3


class ResolvedResource(NamedTuple):
    """The skill and the file that a URI names."""

    name: str
    """The name of the skill."""
    path: str
    """The path of the file or folder below the skill; empty for the skill's own folder."""
    manifest: ServedManifest


class ManifestCache:
    """The manifests of a library, shared by all views."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._manifests: dict[str, ServedManifest] = {}
        """Folder of a skill -> its manifest."""
        self._refusals: dict[str, tuple[str, str]] = {}
        """Folder of a skill that cannot be served -> the reason and its fix."""
        self._lock = threading.Lock()
        self._refreshed_at = time.monotonic()

    def refresh_if_old(self) -> None:
        """Refresh the library if it was not refreshed recently."""
        if time.monotonic() - self._refreshed_at > _MAX_LIST_AGE_S:
            self._refreshed_at = time.monotonic()
            self._library.refresh()

    def get(self, skill: Skill) -> ServedManifest | None:
        """Return the current manifest of a skill; None when it cannot be served."""
        folder = skill.base_dir
        cached = self._manifests.get(folder)
        integrity = self._library.integrity
        try:
            if (
                cached is not None
                and cached.skill.head is skill.head
                and integrity.check(skill) is cached.verified
            ):
                return cached
            manifest = make_manifest(skill, integrity)
        except (OSError, SatchelError) as exc:
            self._record_refusal(skill, exc)
            return None
        with self._lock:
            self._refusals.pop(folder, None)
            if len(self._manifests) >= _MAX_MANIFESTS:
                self._manifests.clear()
            self._manifests[folder] = manifest
        return manifest

    def _record_refusal(self, skill: Skill, exc: OSError | SatchelError) -> None:
        """Record in the trace why a skill cannot be served, unless it was recorded already."""
        if isinstance(exc, SatchelError):
            reason, fix = exc.message, exc.hint
        else:
            reason, fix = exc.strerror or str(exc), "Look at the folder"
        with self._lock:
            self._manifests.pop(skill.base_dir, None)
            previous = self._refusals.get(skill.base_dir)
            self._refusals[skill.base_dir] = (reason, fix)
        if previous != (reason, fix):
            self._library.trace.record(
                "failed", (skill.name,), what="mcp", ref=skill.ref, reason=reason, fix=fix
            )

    def find_changed(self) -> set[str]:
        """Return the folders of served skills that have changed."""
        manifests = list(self._manifests.items())
        return {folder for folder, manifest in manifests if not manifest.is_current()}

    def forget(self, folders: set[str]) -> None:
        """Read the skills in these folders again on the next request."""
        with self._lock:
            for folder in folders:
                self._manifests.pop(folder, None)


class _ServedSkills(NamedTuple):
    """The skills of a snapshot that one client may access."""

    snapshot: Snapshot
    by_name: dict[str, Skill]
    names: Sequence[str]
    """The names in `by_name`, sorted."""
    hidden_folders: dict[str, list[str]]
    """Folder of a skill -> the skill folders inside it that the client may not access."""


class SkillResources:
    """The skills that one client may read, by URI."""

    def __init__(self, library: Library, manifests: ManifestCache) -> None:
        self._library = library
        self._manifests = manifests
        self._cached_skills: _ServedSkills | None = None

    @property
    def names(self) -> Sequence[str]:
        """The names of all skills that may be served, sorted. No file is read."""
        return self._skills().names

    def manifests(self, names: Sequence[str]) -> Iterator[tuple[str, ServedManifest]]:
        """Yield name and manifest of some skills; those that cannot be served are left out."""
        skills = self._skills()
        for name in names:
            skill = skills.by_name.get(name)
            manifest = self._manifest(skills, skill) if skill is not None else None
            if manifest is not None:
                yield name, manifest

    def find(self, uri: str) -> ResolvedResource:
        """Resolve a URI to a served skill and the path of one of its files.

        Raises:
            NotFound: nothing is served there; the error does not reveal whether it exists.
        """
        skill_path = self._locate(uri)
        if skill_path is not None:
            skill, path = skill_path
            manifest = self._manifest(self._skills(), skill)
            if manifest is not None:
                return ResolvedResource(skill.name, path, manifest)
        raise NotFound("Nothing is served at this address", "Call skills/list")

    def path_of(self, uri: str) -> str:
        """Return the absolute path of a URI; empty when the client may not access it."""
        skill_path = self._locate(normalise_uri(uri))
        if skill_path is None:
            return ""
        skill, path = skill_path
        hidden = tuple(self._skills().hidden_folders.get(skill.base_dir, ()))
        if f"{path}/".startswith(hidden):
            return ""
        return os.path.join(skill.base_dir, *path.split("/")) if path else skill.base_dir

    def read(self, uri: str) -> tuple[ResolvedResource, bytes]:
        """Return what a URI names and the file's bytes, verified against its skill's manifest.

        Raises:
            NotFound: no file is served there.
        """
        for _ in range(_MAX_READ_ATTEMPTS):
            resource = self.find(uri)
            try:
                return resource, resource.manifest.read(resource.path)
            except Changed:
                self._manifests.forget({resource.manifest.skill.base_dir})
        raise NotFound("The file changes while it is read", "Try again")

    def _locate(self, uri: str) -> tuple[Skill, str] | None:
        """Return the skill that a URI names and the path below its folder. No file is read."""
        segments = split_uri(uri)
        by_name = self._skills().by_name
        for count in range(len(segments), 0, -1):  # a name may contain a `/`
            skill = by_name.get("/".join(segments[:count]))
            if skill is not None:
                return skill, "/".join(segments[count:])
        return None

    def _manifest(self, skills: _ServedSkills, skill: Skill) -> ServedManifest | None:
        """Return the manifest of a skill, without inner skills that this client may not access."""
        manifest = self._manifests.get(skill)
        hidden = tuple(skills.hidden_folders.get(skill.base_dir, ()))
        if manifest is None or not hidden:
            return manifest
        files = {path: file for path, file in manifest.files.items() if not path.startswith(hidden)}
        return manifest._replace(files=files)

    def _skills(self) -> _ServedSkills:
        """Return the skills of the current snapshot that the client may access."""
        self._manifests.refresh_if_old()
        snapshot, skills = self._library.snapshot(), self._cached_skills
        if skills is None or skills.snapshot is not snapshot:
            # User-only skills are served as prompts; a host could not distinguish them.
            by_name = dict(sorted((skill.name, skill) for skill in snapshot.for_model))
            hidden_folders = _find_hidden_folders(snapshot, by_name.values())
            skills = _ServedSkills(snapshot, by_name, list(by_name), hidden_folders)
            self._cached_skills = skills
        return skills


def _find_hidden_folders(snapshot: Snapshot, served: Iterable[Skill]) -> dict[str, list[str]]:
    """Return the folders inside each served skill that hold skills that clients may not access."""
    hidden_skills = [skill for skill in snapshot.every() if skill.state == "excluded"]
    hidden_skills += [skill for skill in snapshot.skills if not skill.for_model]
    served_folders = {skill.base_dir for skill in served} if hidden_skills else set[str]()
    hidden_folders: dict[str, list[str]] = {}
    for skill in hidden_skills:
        parent = os.path.dirname(skill.base_dir)
        while len(parent) > 1 and parent != os.path.dirname(parent):
            if parent in served_folders:
                path_below = os.path.relpath(skill.base_dir, parent).replace(os.sep, "/")
                hidden_folders.setdefault(parent, []).append(f"{path_below}/")
            parent = os.path.dirname(parent)
    return hidden_folders
