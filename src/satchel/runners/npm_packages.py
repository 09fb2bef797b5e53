"""Installs the npm packages of skills.

npm works in a clean folder of the sandbox: it gets the names and versions of the skill's
`package.json` and the checksums of its lock file, and nothing else of the skill. Without a lock
file npm writes one first. Every lock file is checked: everything it pins must come from a registry.
Then exactly that is installed, and no script of a package runs.
"""

from __future__ import annotations

import json
import os
import platform
import re
import sys
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from satchel.errors import BuildFailed, MissingRuntime
from satchel.i18n import say
from satchel.runners.build import (
    BuildToolFailed,
    cannot_build,
    digest,
    is_complete,
    read_inside,
    unpublished_error,
)
from satchel.runners.node import install_hint

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from satchel.runners.build import BuildCache, Progress
    from satchel.runners.node import Node

_MAX_FILE_BYTES = 8 * 1024 * 1024
_MAX_ENTRIES_SHOWN = 12
_PACKAGE_NAME = re.compile(r"(?:@[a-z0-9~-][a-z0-9._~-]*/)?[a-z0-9~-][a-z0-9._~-]*", re.IGNORECASE)
_VERSION_RANGE = re.compile(r"[\w.*^~<>=|\s+-]*")
"""A version, a range or a tag: no address, no path, no alias."""
_ALIAS = re.compile(rf"npm:{_PACKAGE_NAME.pattern}(?:@{_VERSION_RANGE.pattern})?", re.IGNORECASE)
PACKAGE_FILE, LOCK_FILE = "package.json", "package-lock.json"
_INSTALLED_FIELDS = ("dependencies", "optionalDependencies")
_NPM_OPTIONS = (
    "--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier", "--omit=dev",
    "--no-bin-links", "--loglevel=error", "--omit-lockfile-registry-resolved",
    "--fetch-retries=1", "--fetch-retry-mintimeout=1000",  # fail soon when offline
    "--git=/no/git",  # a cloned repository may bring its own configuration
)  # fmt: skip


def install_packages(builds: BuildCache, node: Node, folder: str, progress: Progress) -> str:
    """Return the `node_modules` of a skill, installed when missing; empty when it needs none."""
    modules = os.path.join(folder, "node_modules")
    if has_modules(folder):
        return modules  # part of the skill, and scanned with it
    package = read_package(folder)
    lock = read_lock(folder, package=package) if package else None
    name = os.path.basename(folder)
    return npm_install(builds, node, name, package=package, lock=lock, progress=progress)


def has_modules(folder: str, subfolder: str = "") -> bool:
    """Whether the skill brings its packages, beside its `package.json` in a subfolder."""
    modules = os.path.join(folder, subfolder, "node_modules")
    return os.path.isdir(modules) and not os.path.islink(modules)


def npm_install(
    builds: BuildCache,
    node: Node,
    name: str,
    *,
    package: dict[str, Any],
    lock: dict[str, Any] | None,
    progress: Progress,
) -> str:
    """Return the `node_modules` with these dependencies, built where missing; empty without any.

    Raises:
        MissingRuntime: there is no npm.
        BuildFailed: npm cannot install them.
    """
    if not package:
        return ""
    texts = _format_files(package, lock)

    def build(staging: str, _path: str) -> tuple[str, ...]:
        if not node.npm:
            raise MissingRuntime(
                say("`{name}` is not installed", name="npm"),
                install_hint(),
            )
        for file, text in texts.items():
            with open(os.path.join(staging, file), "w", encoding="utf-8") as stream:
                stream.write(text)
        progress(say("Installing the packages of `{skill}` with {tool}…", skill=name, tool="npm"))
        read = (*node.read, os.path.dirname(os.path.dirname(node.npm)))
        run = partial(builds.run, staging=staging, cache="npm", network=True, read=read)
        try:
            if lock is None:
                run([node.path, node.npm, "install", "--package-lock-only", *_NPM_OPTIONS,
                     "--cache", builds.cache("npm")])  # fmt: skip
                read_lock(staging)
            run([node.path, node.npm, "ci", *_NPM_OPTIONS, "--cache", builds.cache("npm")])
        except BuildToolFailed as exc:
            raise cannot_build(name, f"npm: {exc.message}") from exc
        os.makedirs(os.path.join(staging, "node_modules"), exist_ok=True)
        return ("node_modules",)

    home = builds.get_or_build("node", _cache_key(texts), build, progress)
    return os.path.join(home, "node_modules")


def is_built(builds: BuildCache, package: dict[str, Any], lock: dict[str, Any] | None) -> bool:
    """Whether the `node_modules` with these dependencies is in the cache."""
    return not package or is_complete(builds.path("node", _cache_key(_format_files(package, lock))))


def _format_files(package: dict[str, Any], lock: dict[str, Any] | None) -> dict[str, str]:
    """Format `package.json` and the lock file, by name."""
    tables = {PACKAGE_FILE: package} if lock is None else {PACKAGE_FILE: package, LOCK_FILE: lock}
    return {file: json.dumps(table, sort_keys=True, indent=2) for file, table in tables.items()}


def _cache_key(texts: dict[str, str]) -> str:
    libc = platform.libc_ver()[0]  # compiled packages are built for one
    return digest("node resolved", sys.platform, platform.machine(), libc, *texts.items())


def read_package(folder: str, path: str = PACKAGE_FILE) -> dict[str, Any]:
    """Read the names and versions in `package.json`; empty when there are none.

    Raises:
        BuildFailed: it names something that is not a version in a registry.
    """
    document = _read_json(folder, path) or {}
    dependencies: dict[str, Any] = {}
    refused: list[str] = []
    for field in ("dependencies", "optionalDependencies", "overrides"):
        table = document.get(field)
        if table:
            refused += [f"{field}: {entry}" for entry in _find_unpublished(table)]
            dependencies[field] = table
    if document.get("workspaces"):
        refused.append("workspaces")
    if refused:
        raise unpublished_error(path, refused)
    if not dependencies.get("dependencies") and not dependencies.get("optionalDependencies"):
        return {}
    return {"private": True, **dependencies}


def _find_unpublished(table: Any) -> list[str]:
    """Find the entries of a table of dependencies that are not a package and a version."""
    if not isinstance(table, dict):
        return [str(table)[:80]]
    entries: list[str] = []
    for name, version in cast("dict[str, Any]", table).items():
        if isinstance(version, dict):  # overrides may be nested
            entries += _find_unpublished(version)
        elif not isinstance(version, str) or not _VERSION_RANGE.fullmatch(version):
            entries.append(f"`{name}`: `{str(version)[:80]}`")
        elif name != "." and not _PACKAGE_NAME.fullmatch(
            name
        ):  # `.`: an override of the package itself
            entries.append(f"`{name[:80]}`")
    return entries


def read_lock(
    folder: str, path: str = LOCK_FILE, package: dict[str, Any] | None = None
) -> dict[str, Any] | None:
    """Read the lock file without its addresses; None when there is none.

    It provides the checksums; the user's own settings of npm provide the addresses. It may not
    name another package for one that `package`, the `package.json`, names.

    Raises:
        BuildFailed: it links to folders, or pins something that is not in a registry.
    """
    entries = _read_lock_entries(folder, path)
    if entries is None:
        return None
    pinned: dict[str, dict[str, Any]] = {}
    refused: list[str] = []
    declared = {name for field in _INSTALLED_FIELDS for name in (package or {}).get(field, ())}
    for key, entry in entries.items():
        if not _is_pinned_in_registry(key, entry, declared):
            refused.append(f"`{key[:80]}`")
        refused += [f"`{key[:80]}`: {dependency}" for dependency in _iter_unpublished(entry)]
        pinned[key] = {name: value for name, value in entry.items() if name != "resolved"}
    if refused:
        raise unpublished_error(path, refused[:_MAX_ENTRIES_SHOWN])
    if "" in pinned:
        root = pinned[""]
        pinned[""] = {name: root[name] for name in root if name in _INSTALLED_FIELDS}
    return {"lockfileVersion": 3, "requires": True, "packages": pinned}


def _read_lock_entries(folder: str, path: str) -> dict[str, dict[str, Any]] | None:
    """Read the entries of a lock file by their keys; None when there is no file."""
    document = _read_json(folder, path)
    if document is None:
        return None
    packages = document.get("packages")
    if not isinstance(packages, dict):
        raise BuildFailed(
            say("`{path}` is not of npm 7 or later", path=path),
            say("Run `{command}`", command="npm install"),
        )
    entries = cast("dict[str, Any]", packages)
    return {key: entry for key, entry in entries.items() if isinstance(entry, dict)}


def _is_pinned_in_registry(key: str, entry: dict[str, Any], declared: Collection[str]) -> bool:
    """Whether an entry of the lock file pins the package of its key to a version of a registry.

    Args:
        key: `node_modules/` and the name; empty for the skill itself.
        entry: The entry.
        declared: The packages that the `package.json` names.
    """
    if entry.get("link") or (key and not key.startswith("node_modules/")):
        return False
    package_name = key.removeprefix("node_modules/")
    if package_name in declared and entry.get("name", package_name) != package_name:
        return False
    version = entry.get("version", "")
    return (
        ".." not in key.split("/")
        and isinstance(version, str)
        and _VERSION_RANGE.fullmatch(version) is not None
        and str(entry.get("resolved", "https://")).startswith(("https://", "http://"))
    )


def _iter_unpublished(entry: dict[str, Any]) -> Iterator[str]:
    """Yield the dependencies of a pinned package that are not in a registry."""
    for field in ("dependencies", "optionalDependencies", "peerDependencies"):
        table: Any = entry.get(field)
        dependencies = cast("dict[str, Any]", table) if isinstance(table, dict) else {}
        for name, version in dependencies.items():
            if not _VERSION_RANGE.fullmatch(str(version)) and not _ALIAS.fullmatch(str(version)):
                yield f"`{name}`: `{str(version)[:80]}`"


def _read_json(folder: str, file: str) -> dict[str, Any] | None:
    raw = read_inside(folder, file, _MAX_FILE_BYTES)
    if raw is None:
        return None
    try:
        document = json.loads(raw.decode("utf-8-sig"))
    except (ValueError, RecursionError) as exc:
        raise BuildFailed(
            say("`{path}` cannot be read: {reason}", path=file, reason=str(exc)[:120])
        ) from exc
    if not isinstance(document, dict):
        raise BuildFailed(say("`{path}` is damaged", path=file))
    return cast("dict[str, Any]", document)
