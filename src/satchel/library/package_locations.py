"""Locations of skills that installed packages ship: Python packages and `node_modules`.

A Python package ships skills in `PACKAGE/.agents/skills`; the files of its distribution are named
in `RECORD`, which is read without `importlib.metadata`, whose import takes longer than that. A
package of `node_modules` ships them in `.agents/skills` or `skills`, where `library-skills` and
`npx skills` look too. No environment is walked: what a `RECORD` or a `node_modules` names is kept,
in memory and in the cache folder, until its stamp changes.

An environment is untrusted input. Its skills are trusted with the project, stay inside the folder
of the packages with links resolved, and come after all other folders.
"""

from __future__ import annotations

import os
import re
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from satchel._fs import RACY_NS, is_really_inside, read_plain
from satchel.library.location_state import UNKNOWN_STAMP, Stamp, stamp_of
from satchel.library.locations import Location, project_trust
from satchel.library.scan_cache import cache_path, load_values, save_values

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from satchel.settings import Settings

_Names = tuple[Stamp, tuple[str, ...]]
_UNKNOWN: _Names = (UNKNOWN_STAMP, ())
_MAX_RECORD_BYTES = 32 << 20
_MAX_PACKAGE_JSON_BYTES = 1 << 20
_DIST_INFO = ".dist-info"
_SKILL_ROW = re.compile(r'(?m)^((?:[^/\n",]+/)+\.agents/skills)/[^\n",]+/SKILL\.md,')
"""A row of a `RECORD`: the path of a skill, its digest and its size."""
_TOOL_RECEIPTS = ("uv-receipt.toml", "pipx_metadata.json")
"""Files of an environment that `uv tool install` or `pipx install` made for one program: its other
packages are what that program needs, and no project of the user depends on them."""
_NAME = re.compile(r"@?[\w.+!-]{1,200}")
"""The name of a package, of a scope, or of a folder with both name and version."""


class PackageLocations:
    """Finds the locations of the packages that are installed for a project."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        cache = settings.paths.cache
        self._cache_file = cache_path(cache, ("packages", settings.project)) if cache else ""
        self._known: dict[str, _Names] = {}
        """Path of a file or folder -> its stamp, and the names in it that matter."""
        self._current: dict[str, _Names] = {}
        """The same of the search that is under way."""
        self._is_loaded = not cache

    def find(self) -> tuple[Location, ...]:
        """Find the locations; only what changed is read."""
        if not self._is_loaded:
            self._is_loaded = True
            with suppress(OSError, ValueError, TypeError, EOFError):
                self._known = dict(load_values(self._cache_file))
        self._current = {}
        locations: dict[str, Location] = {}
        for location in (*self._python_locations(), *self._node_locations()):
            locations.setdefault(location.path, location)
        if self._current != self._known and self._cache_file:
            with suppress(OSError):  # the cache is optional
                save_values(self._cache_file, self._current)
        self._known = self._current
        return tuple(locations.values())

    def _python_locations(self) -> Iterator[Location]:
        for folder in _site_packages(self._settings):
            names = self._names_at(folder, _list_distributions)
            is_unchanged = self._is_unchanged(folder)
            for name in names:
                record = f"{folder}/{name}/RECORD"
                stamp, paths = self._known.get(record, _UNKNOWN)
                if is_unchanged and stamp != UNKNOWN_STAMP and not paths:
                    # An installation or update would have changed the folder.
                    self._current[record] = stamp, paths
                    continue
                package, _, version = name.removesuffix(_DIST_INFO).partition("-")
                label = f"package:{package.replace('_', '-').lower()}"
                for path in self._names_at(record, _read_record):
                    yield self._location(folder, path, label, version)

    def _node_locations(self) -> Iterator[Location]:
        for level in self._settings.levels:
            root = f"{level}/node_modules"
            if not is_really_inside(root, level):
                continue
            names = self._names_at(root, _list_node_packages)
            for scope in [name for name in names if name.startswith("@")]:
                scope_names = self._names_at(f"{root}/{scope}", _list_node_packages)
                names += tuple(f"{scope}/{name}" for name in scope_names)
            for path in names:
                package = re.sub(r"/(?:\.agents/)?skills$", "", path)
                if package != path:
                    version = self._names_at(f"{root}/{package}/package.json", _read_version)
                    yield self._location(root, path, f"npm:{package}", "".join(version))

    def _location(self, folder: str, path: str, label: str, version: str) -> Location:
        return Location(
            os.path.normpath(f"{folder}/{path}"),
            "package",
            label,
            project_trust(self._settings),
            boundary=folder,
            writable=False,
            version=version,
            trusted_with=self._settings.project,
        )

    def _names_at(self, path: str, find: Callable[[str], Iterable[str]]) -> tuple[str, ...]:
        """What a function finds in a file or folder; it is called again when the stamp changed."""
        try:
            info = os.stat(path)
            stamp, names = self._known.get(path, _UNKNOWN)
            if stamp != stamp_of(info):
                names = tuple(find(path))
        except OSError:
            return ()
        is_settled = time.time_ns() - info.st_ctime_ns >= RACY_NS
        self._current[path] = (stamp_of(info) if is_settled else UNKNOWN_STAMP, names)
        return names

    def _is_unchanged(self, path: str) -> bool:
        names = self._current.get(path, _UNKNOWN)
        return names[0] != UNKNOWN_STAMP and names == self._known.get(path)


def _site_packages(settings: Settings) -> list[str]:
    """The folders of the Python packages of a project.

    Its environment is the nearest `.venv` that does not lead out of its folder, else the active
    environment, else that of this process, unless uv or pipx made that one for Satchel alone.
    """
    for level in settings.levels:
        environment = f"{level}/.venv"
        if os.path.isfile(f"{environment}/pyvenv.cfg") and is_really_inside(environment, level):
            break
    else:
        environment = os.environ.get("VIRTUAL_ENV") or ""
        if not os.path.isabs(environment):
            environment = sys.prefix
            if any(os.path.isfile(f"{environment}/{file}") for file in _TOOL_RECEIPTS):
                return []
    names = ["Lib"]
    with suppress(OSError):
        pythons = os.listdir(f"{environment}/lib")
        names += sorted(f"lib/{name}" for name in pythons if name.startswith("python3"))
    folders = [os.path.join(environment, name, "site-packages") for name in names]
    return [folder for folder in folders if is_really_inside(folder, environment)]


def _list_distributions(folder: str) -> list[str]:
    names = os.listdir(folder)
    return sorted(name for name in names if name.endswith(_DIST_INFO) and _NAME.fullmatch(name))


def _read_record(path: str) -> list[str]:
    """The folders with skills that a `RECORD` names."""
    text = read_plain(path, _MAX_RECORD_BYTES).decode("utf-8", "replace")
    return list(dict.fromkeys(_SKILL_ROW.findall(text))) if "/.agents/skills/" in text else []


def _list_node_packages(folder: str) -> Iterator[str]:
    """The folders with skills of the packages in a folder, and the names of scopes.

    A package that leads out of the folder is linked, not installed: it is left out.
    """
    for name in filter(_NAME.fullmatch, sorted(os.listdir(folder))):
        if name.startswith("@"):
            yield name
            continue
        for path in (f"{name}/.agents/skills", f"{name}/skills"):
            with suppress(OSError):
                files = [
                    f"{folder}/{path}/{name}/SKILL.md" for name in os.listdir(f"{folder}/{path}")
                ]
                if any(map(os.path.exists, files)) and is_really_inside(f"{folder}/{path}", folder):
                    yield path


def _read_version(path: str) -> list[str]:
    """The version in a `package.json`; empty when it has none."""
    import json

    with suppress(ValueError, RecursionError, AttributeError):
        version = json.loads(read_plain(path, _MAX_PACKAGE_JSON_BYTES)).get("version")
        return [version] if isinstance(version, str) and _NAME.fullmatch(version) else []
    return []
