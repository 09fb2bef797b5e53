"""Makes programs that Node runs: JavaScript and TypeScript of skills.

A program runs from its own folder. Its packages are in the cache, and Node searches the folders
above a file for packages: so the program is started through a link next to its packages. Node
strips the types of TypeScript itself; where it is too old for that (then Node's own stripper, the
npm package `amaro`, does it), or where a parameter is called `arguments`, a changed copy of the
entry is started, among links to the skill's other files.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from satchel.errors import BuildFailed, MissingRuntime
from satchel.runners.base import Program
from satchel.runners.build import BuildToolFailed, digest, read_inside
from satchel.runners.node import TYPESCRIPT, old_node_error
from satchel.runners.npm_packages import npm_install

if TYPE_CHECKING:
    from satchel.runners.build import BuildCache
    from satchel.runners.node import Node

_QUIET_FLAGS = (
    "--disable-warning=ExperimentalWarning",
    "--disable-warning=MODULE_TYPELESS_PACKAGE_JSON",
)
# The last version that runs on Node 20.
_AMARO_PACKAGE = {"dependencies": {"amaro": "0.1.9"}}
_AMARO_LOCK = {
    "lockfileVersion": 3,
    "requires": True,
    "packages": {
        "": _AMARO_PACKAGE,
        "node_modules/amaro": {
            "version": "0.1.9",
            "integrity": "sha512-qNWW9clA6hzyyc1vrffgwYPYG4GZPom0MHvZQM4QQPzxTWwuYp7pOiZTAOXTlkWc"
            "yiTtHM5t/Ypw9sAVhoqbdg==",
        },
    },
}
_STRIP_PROGRAM = """
const fs = require("fs"), [, amaro, file] = process.argv;
const text = fs.readFileSync(file, "utf8");
fs.writeFileSync(file, require(amaro).transformSync(text, { mode: "strip-only" }).code);
"""
_MAX_ADAPTED_BYTES = 256 * 1024
_TYPESCRIPT_IMPORT = re.compile(r"""["']\.{1,2}/[^"'\n]*\.[mc]?ts["']""")
_MODULE_STATEMENT = re.compile(r"^\s*(?:import\b(?!\s*\()|export\b|await\b)", re.MULTILINE)


def make_program(
    node: Node, folder: str, entry: str, packages: str, copy: str = ""
) -> tuple[Program, tuple[str, ...]]:
    """Make the program in the skill's own folder; return it with the files that it depends on.

    Args:
        node: The Node that runs it.
        folder: The skill's folder.
        entry: Its file in the folder.
        packages: Its `node_modules`; empty when it needs none.
        copy: The changed copy of the entry (see `copy_typescript`); empty when it runs as it is.
    """
    flags = _QUIET_FLAGS if entry.endswith(TYPESCRIPT) and node.strips_types else ()
    has_own_packages = not packages or packages == os.path.join(folder, "node_modules")
    home = "" if has_own_packages else os.path.dirname(packages)
    if copy:
        read = tuple(filter(None, (os.path.dirname(copy), home)))
        program = Program((node.path, *flags, copy), folder, "node", (*read, *node.read))
        return program, (node.path, copy)
    if has_own_packages:
        script = os.path.join(folder, *entry.split("/"))
        argv = (node.path, *flags, script)
        return Program(argv, folder, "node", node.read), (node.path,)
    link = os.path.join(home, "in", digest(folder)[:16])
    _set_link(link, folder)
    link_flags = ("--preserve-symlinks", "--preserve-symlinks-main")
    argv = (node.path, *link_flags, *flags, os.path.join(link, *entry.split("/")))
    return Program(argv, folder, "node", (home, *node.read)), (node.path, packages, link)


def copy_typescript(builds: BuildCache, node: Node, folder: str, entry: str, packages: str) -> str:
    """Make a changed copy of a TypeScript entry that this Node can run; empty if it runs as it is.

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
    adapted = rename_arguments(text)
    if node.strips_types and adapted == text:
        return ""
    *folders, name = entry.split("/")
    if not node.strips_types:
        if not text or _TYPESCRIPT_IMPORT.search(text):
            raise old_node_error(node)
        name = f"{name.rpartition('.')[0]}.{'mjs' if _MODULE_STATEMENT.search(adapted) else 'cjs'}"
    levels = [os.path.join(folder, *folders[:depth]) for depth in range(len(folders) + 1)]
    siblings = [sorted(name for name in os.listdir(level) if name[0] != ".") for level in levels]

    def build(staging: str, _path: str) -> tuple[str, ...]:
        if packages and not os.path.isdir(os.path.join(folder, "node_modules")):
            os.symlink(packages, os.path.join(staging, "node_modules"))
        current = staging
        for level, names, part in zip(levels, siblings, (*folders, name), strict=True):
            for sibling in {*names} - {part}:
                os.symlink(os.path.join(level, sibling), os.path.join(current, sibling))
            current = os.path.join(current, part)
            if part is not name:
                os.mkdir(current)
        with open(current, "w", encoding="utf-8") as file:
            file.write(adapted)
        if not node.strips_types:
            _strip_types(builds, node, current, staging)
        return ("/".join((*folders, name)),)

    inputs = (node.path, node.version, folder, entry, packages, siblings, adapted)
    key = digest("typescript", *inputs)
    home = builds.get_or_build("typescript", key, build, lambda _line: None)
    return os.path.join(home, *folders, name)


def _strip_types(builds: BuildCache, node: Node, script: str, staging: str) -> None:
    """Replace a file by what `amaro` makes of it."""
    try:
        modules = npm_install(
            builds,
            node,
            "amaro",
            package=_AMARO_PACKAGE,
            lock=_AMARO_LOCK,
            progress=lambda _line: None,
        )
        argv = (node.path, "-e", _STRIP_PROGRAM, os.path.join(modules, "amaro"), script)
        builds.run(argv, staging, read=(*node.read, modules))
    except (BuildFailed, BuildToolFailed, MissingRuntime) as exc:
        raise old_node_error(node) from exc


def _set_link(link: str, folder: str) -> None:
    """Make a link lead to a folder, atomically."""
    if os.path.islink(link) and os.readlink(link) == folder:
        return
    os.makedirs(os.path.dirname(link), mode=0o700, exist_ok=True)
    staging = f"{link}.{os.urandom(4).hex()}"
    os.symlink(folder, staging, target_is_directory=True)
    os.replace(staging, link)
