"""Locations of skills of the plugins that are installed for Claude Code.

    ~/.claude/plugins/installed_plugins.json          where each plugin is, and for which project
    ~/.claude/plugins/cache/MARKET/PLUGIN/VERSION/    a plugin, with the folder `skills`
    ~/.claude/plugins/marketplaces/MARKET/            a marketplace, whose manifest may name skills

`CLAUDE_CONFIG_DIR` and `CLAUDE_CODE_PLUGIN_CACHE_DIR` move these folders, as they do for Claude
Code. Nothing is written there. The skills are trusted with the project. A plugin counts if its
record belongs to the user and its folder lies in the folder of plugins with links resolved, if it
is installed for the user or for this repository, and if no settings file switches it off.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from satchel._fs import is_inside, is_really_inside, read_plain
from satchel.library.location_state import UNKNOWN_STAMP, stamp_of
from satchel.library.locations import Location, project_trust

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from satchel.library.location_state import Stamp
    from satchel.settings import Settings

_MAX_FILE_BYTES = 4 << 20
_PLUGIN_ID = re.compile(r"([\w.-]{1,100})@([\w.-]{1,100})")
_VERSION = re.compile(r"[\w.+-]{1,64}")
_MANIFEST = ".claude-plugin"


class PluginLocations:
    """Finds the locations of installed plugins."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        home = os.path.expanduser("~")
        config = os.environ.get("CLAUDE_CONFIG_DIR") or os.path.join(home, ".claude")
        folder = os.environ.get("CLAUDE_CODE_PLUGIN_CACHE_DIR") or os.path.join(config, "plugins")
        self._folder = folder if os.path.isabs(folder) else ""
        self._records = os.path.join(folder, "installed_plugins.json")
        self._switches = [
            os.path.join(config, "settings.json"),
            *(
                f"{level}/.claude/{name}"
                for level in settings.levels
                for name in ("settings.json", "settings.local.json")
            ),
        ]
        self._stamps: list[Stamp] = []
        self._locations: tuple[Location, ...] = ()

    def find(self) -> tuple[Location, ...]:
        """Find the locations; the files are read again when one of them changed."""
        stamps = [_stamp_at(path) for path in (self._records, *self._switches)]
        if stamps != self._stamps:
            self._stamps = stamps
            self._locations = ()
            if self._folder and _is_own_file(self._records):
                self._locations = tuple(self._find_locations())
        return self._locations

    def _find_locations(self) -> Iterator[Location]:
        disabled = {
            name
            for path in self._switches
            for name, is_enabled in _table(_read(path), "enabledPlugins").items()
            if is_enabled is False
        }
        for plugin_id, rows in _table(_read(self._records), "plugins").items():
            match = _PLUGIN_ID.fullmatch(plugin_id)
            if match is None or plugin_id in disabled:
                continue
            entry = next(filter(self._is_for_here, _list_objects(rows)), None)
            if entry is not None:
                yield from self._list_locations(match, entry)

    def _is_for_here(self, entry: Mapping[str, Any]) -> bool:
        """Whether a plugin is installed for the user, or for this repository."""
        path = entry.get("projectPath")
        if entry.get("scope", "user") in {"user", "managed"}:
            return True
        levels = map(os.path.realpath, self._settings.levels)
        return isinstance(path, str) and os.path.realpath(path) in levels

    def _list_locations(self, match: re.Match[str], entry: Mapping[str, Any]) -> Iterator[Location]:
        folder, version = entry.get("installPath"), str(entry.get("version", ""))
        if not isinstance(folder, str) or not os.path.isabs(folder):
            return
        folder = os.path.normpath(folder)
        parents: dict[str, list[str]] = {}
        for path in self._skill_paths(folder, *match.groups()):
            is_skill = os.path.exists(f"{path}/SKILL.md") and path != folder
            parent, name = os.path.split(path) if is_skill else (path, "")
            parents.setdefault(parent, []).append(name)
        for parent, names in parents.items():
            yield Location(
                parent,
                "plugin",
                f"plugin:{match[0]}",
                project_trust(self._settings),
                # A folder elsewhere is refused, and reported, when it is read.
                boundary=folder if is_really_inside(folder, self._folder) else self._folder,
                writable=False,
                folders=tuple(names),
                version=version if _VERSION.fullmatch(version) else "",
                trusted_with=self._settings.project,
            )

    def _skill_paths(self, folder: str, name: str, market: str) -> list[str]:
        """The folders with skills of a plugin: `skills`, and those that its manifests name."""
        market_file = f"{self._folder}/marketplaces/{market}/{_MANIFEST}/marketplace.json"
        rows = _list_objects(_read(market_file).get("plugins"))
        manifests = [_read(f"{folder}/{_MANIFEST}/plugin.json")]
        manifests += [row for row in rows if row.get("name") == name]
        names: list[Any] = ["skills"]
        for manifest in manifests:
            value = manifest.get("skills")
            names += cast("list[Any]", value) if isinstance(value, list) else [value]
        paths = [
            os.path.normpath(os.path.join(folder, path)) for path in names if isinstance(path, str)
        ]
        return [
            path for path in dict.fromkeys(paths) if is_inside(path, folder) and os.path.isdir(path)
        ]


def _stamp_at(path: str) -> Stamp:
    try:
        return stamp_of(os.stat(path))
    except OSError:
        return UNKNOWN_STAMP


def _is_own_file(path: str) -> bool:
    with suppress(OSError):
        return not hasattr(os, "geteuid") or os.lstat(path).st_uid == os.geteuid()
    return False


def _read(path: str) -> dict[str, Any]:
    """The object in a JSON file; empty when there is none."""
    import json

    with suppress(OSError, ValueError, RecursionError):
        value = json.loads(read_plain(path, _MAX_FILE_BYTES))
        return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    return {}


def _table(values: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = values.get(key)
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _list_objects(value: Any) -> list[dict[str, Any]]:
    """The objects of a list; up to version 1 of the record there was one without a list."""
    values = cast("list[Any]", value if isinstance(value, list) else [value])
    return [cast("dict[str, Any]", item) for item in values if isinstance(item, dict)]
