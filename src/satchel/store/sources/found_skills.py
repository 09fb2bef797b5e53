"""Finds the skills in the files of a source, by their SKILL.md or skill.yaml.

A repository of plugins names them in `.claude-plugin/marketplace.json`, a plugin itself in
`.claude-plugin/plugin.json`. These manifests only group the skills: those that no manifest names
are found too.
"""

from __future__ import annotations

import json
import posixpath
import re
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from satchel.errors import NotFound
from satchel.i18n import say
from satchel.library.location_walk import SKIPPED_FOLDERS
from satchel.skill.document import MANIFEST
from satchel.skill.header import scan_header
from satchel.store.archive.rules import shown
from satchel.store.sources.base import files_below

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from satchel.skill.file_tree import Tree

_SKILL_FILE_LOWER = "skill.md"
_RUNTIME_FIELD = re.compile(rb"(?m)^runtime[ \t]*:")
"""Distinguishes a manifest from other files of that name."""
_MAX_HEAD_BYTES = 256 << 10
_PLUGIN_FOLDER = ".claude-plugin"
_MAX_MANIFEST_BYTES = 4 << 20


class FoundSkill(NamedTuple):
    """One skill in a source."""

    path: str
    """Its folder within the source; empty at the top."""
    id: str
    """The name of the folder to install it in."""
    name: str
    """From the frontmatter, else the id."""
    file: str = "SKILL.md"
    """Its SKILL.md, in any case, or the `skill.yaml` of a tool skill."""
    description: str = ""
    """From the frontmatter; empty when that cannot be read."""
    requires: tuple[str, ...] = ()
    """Names or ids of the skills that it requires."""
    plugins: tuple[str, ...] = ()
    """Names of the plugins that it is a part of."""


class FoundPlugin(NamedTuple):
    """One plugin of a source."""

    name: str
    folders: tuple[str, ...]
    """Its skills, or the folders with its skills."""
    elsewhere: str = ""
    """Its own source, when its skills are not in this one."""

    def has(self, path: str) -> bool:
        """Whether a folder of a skill belongs to it."""
        return any(not folder or f"{path}/".startswith(f"{folder}/") for folder in self.folders)


class PluginManifest(NamedTuple):
    """The manifest of a marketplace or of one plugin."""

    plugins: tuple[FoundPlugin, ...] = ()
    is_marketplace: bool = False
    problem: str = ""
    """Why it cannot be used, for the user; empty when it can."""

    def group(self, skills: Sequence[FoundSkill]) -> list[FoundSkill]:
        """The skills with the names of their plugins."""
        return [
            skill._replace(
                plugins=tuple(plugin.name for plugin in self.plugins if plugin.has(skill.path))
            )
            for skill in skills
        ]


def find_skills(tree: Tree, path: str = "", *, name: str = "") -> list[FoundSkill]:
    """Find the skills of a source, in the order of their paths.

    With a SKILL.md in `path` itself: that one skill. Else every folder below it with a SKILL.md,
    except inside another skill or in folders that a library skips (`node_modules`). A folder with
    only a skill.yaml counts too, unless skills with a SKILL.md are below it.

    Args:
        tree: All files of the source.
        path: The folder to search; it may be the SKILL.md or the skill.yaml itself.
        name: The id of a skill at the top, which has no folder of its own.

    Raises:
        NotFound: there is no such folder.
    """
    path = path.strip("/")
    folder, _, file_name = path.rpartition("/")
    if file_name.lower() == _SKILL_FILE_LOWER or file_name == MANIFEST:
        path = folder
    files = files_below(tree, path)
    if path and not files:
        raise NotFound(say("There is no `{path}`", path=shown(path)), say("Check the path"))
    main_files: dict[str, str] = {}
    """Folder -> its SKILL.md as it is written there."""
    manifest_folders: list[str] = []
    for file in files:
        folder, _, file_name = file.path.rpartition("/")
        if file_name.lower() == _SKILL_FILE_LOWER:
            if folder not in main_files or file_name == "SKILL.md":
                main_files[folder] = file_name
        elif file_name == MANIFEST:
            manifest_folders.append(folder)
    if manifest_folders:
        main_files.update(_find_tool_skills(tree, manifest_folders, main_files, path))
    return [
        _read_skill(tree, folder, main_files[folder], name)
        for folder in sorted(_outermost_folders(main_files, path))
    ]


def read_plugins(tree: Tree, path: str = "") -> PluginManifest:
    """Read the manifest of the marketplace or plugin in a folder; an empty one without any.

    Args:
        tree: All files of the source.
        path: The folder.
    """
    start = path.strip("/")
    for name in ("marketplace.json", "plugin.json"):
        manifest_path = posixpath.join(start, _PLUGIN_FOLDER, name)
        if not any(file.path == manifest_path for file in tree.files):
            continue
        try:
            table = _read_table(tree, manifest_path)
            if name == "plugin.json":
                return PluginManifest((_read_plugin(tree, start, table, table),))
            return PluginManifest(tuple(_read_marketplace(tree, start, table)), is_marketplace=True)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as exc:
            reason = shown(str(exc) or type(exc).__name__)
            text = say("`{path}` cannot be used: {reason}", path=manifest_path, reason=reason)
            return PluginManifest(problem=text)
    return PluginManifest()


def _read_marketplace(tree: Tree, start: str, table: dict[str, Any]) -> Iterator[FoundPlugin]:
    root = str(table.get("metadata", {}).get("pluginRoot", ""))
    for row in cast("list[dict[str, Any]]", table["plugins"]):
        source: Any = row.get("source", "")
        if not isinstance(source, str):
            parts = (source.get(key) for key in ("repo", "url", "package", "path"))
            address = next((str(part) for part in parts if part), str(source.get("source", "")))
            yield FoundPlugin(str(row["name"]), (), shown(address))
            continue
        folder = posixpath.normpath(posixpath.join(start, root, source))
        folder = "" if folder == "." else folder
        manifest_path = posixpath.join(folder, _PLUGIN_FOLDER, "plugin.json")
        has_manifest = any(file.path == manifest_path for file in tree.files)
        manifest = _read_table(tree, manifest_path) if has_manifest else {}
        yield _read_plugin(tree, folder, row, {**manifest, **row})


def _read_plugin(
    tree: Tree, folder: str, row: dict[str, Any], table: dict[str, Any]
) -> FoundPlugin:
    """A plugin in a folder: its manifest names its skills, else they are in `skills`, or below."""
    paths: Any = table.get("skills") or []
    paths = [paths] if isinstance(paths, str) else paths
    folders = [posixpath.normpath(posixpath.join(folder, str(path))) for path in paths]
    if not folders:
        default = posixpath.join(folder, "skills")
        folders = [default if files_below(tree, default) else folder]
    return FoundPlugin(str(row["name"]), tuple("" if path == "." else path for path in folders))


def _read_table(tree: Tree, path: str) -> dict[str, Any]:
    data = b"".join(tree.chunks(path))
    if len(data) > _MAX_MANIFEST_BYTES:
        raise ValueError(f"{len(data)} bytes")
    return cast("dict[str, Any]", json.loads(data))


def _find_tool_skills(
    tree: Tree, manifest_folders: list[str], main_files: dict[str, str], start: str
) -> dict[str, str]:
    """Return the folders that are skills by their skill.yaml alone, each with that file's name."""
    parent_folders = {""}
    """Folders with a skill below them."""
    for folder in main_files:
        parent = folder
        while parent and parent not in parent_folders:
            parent_folders.add(parent)
            parent = parent.rpartition("/")[0]
    manifests: dict[str, str] = {}
    for folder in manifest_folders:
        if folder in main_files or (folder in parent_folders and main_files):
            continue
        data = _read_start(tree, f"{folder}/{MANIFEST}" if folder else MANIFEST)
        if folder == start or _RUNTIME_FIELD.search(data):
            manifests[folder] = MANIFEST
    return manifests


def _outermost_folders(folders: dict[str, str], start: str) -> Iterator[str]:
    """Yield the folders of skills that are not inside another skill or a skipped folder."""
    if start in folders:
        yield start
        return
    for folder in folders:
        parent = folder
        parts = folder[len(start) :].strip("/").split("/")
        if SKIPPED_FOLDERS.intersection(parts):
            continue
        while parent:
            parent = parent.rpartition("/")[0]
            if parent in folders and len(parent) >= len(start):
                break
        else:
            yield folder


def _read_skill(tree: Tree, folder: str, file: str, fallback: str) -> FoundSkill:
    from satchel.skill.metadata import slug
    from satchel.skill.reader import read_header

    path = f"{folder}/{file}" if folder else file
    folder_name = folder.rpartition("/")[2]
    data = _read_start(tree, path)
    stamp = (0, 0, len(data))
    if file == MANIFEST:
        head = read_header(data, folder_name or slug(fallback), file, stamp)[0]
    else:
        head = (
            scan_header(data, folder_name, file, stamp)
            or read_header(data, folder_name, file, stamp)[0]
        )
    name = head.name if head else ""
    preferred_id = folder_name or fallback or name
    description = head.description if head else ""
    requires: tuple[str, ...] = ()
    if head is not None and head.extra:
        requires = head.extra.get("requires", {}).get("skills", ())
    return FoundSkill(
        path=folder,
        id=slug(preferred_id),
        name=name or slug(preferred_id),
        file=file,
        description=description,
        requires=requires,
    )


def _read_start(tree: Tree, path: str) -> bytes:
    data = b""
    for chunk in tree.chunks(path):
        data += chunk
        if len(data) >= _MAX_HEAD_BYTES:
            break
    return data[:_MAX_HEAD_BYTES]
