"""How does a skill in TypeScript run as fast as one in JavaScript? It is transformed once.

esbuild turns the program's own files into one plain file in the cache; its packages stay outside.
Node that strips types by itself does that anew at every start, which takes longer than all the
rest: so that is the way only where esbuild cannot be had.

One trap: modules are strict, and strict code must not have a parameter named `arguments`, which
the protocol makes a tempting name. Such a file is compiled to a script, which may.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, cast

from satchel._language import say
from satchel.errors import BuildFailed, MissingRuntime
from satchel.runners import npm
from satchel.runners.base import Program
from satchel.runners.build import ToolFailed
from satchel.runners.contents import digest, digest_files, list_files, read_inside
from satchel.runners.node import in_place

if TYPE_CHECKING:
    from satchel.runners.build import Progress, Workshop
    from satchel.runners.node import Node

ENTRIES = (".ts", ".mts", ".cts", ".tsx")
_SOURCES = (*ENTRIES, ".js", ".mjs", ".cjs", ".jsx", ".json")
_STRIPS = (22, 18)
"""The first Node that runs TypeScript without being asked to."""
_STRICT = 'Declarations with the name "'
_BUNDLER = os.path.join(os.path.dirname(__file__), "_bundle.mjs")


def prepare(
    shop: Workshop,
    node: Node,
    folder: str,
    entry: str,
    packages: str,
    progress: Progress,
) -> tuple[Program, tuple[str, ...]]:
    """A program in TypeScript, and the files that it stands on.

    Raises:
        BuildFailed: it cannot be transformed, or esbuild cannot be had and Node is too old.
    """
    try:
        esbuild = tool(shop, node, "esbuild", progress)
    except (BuildFailed, MissingRuntime) as exc:
        if node.version < _STRIPS:
            raise
        reason = exc.message.split("\n")[0]
        progress(say("Node strips the types at every call, since: {reason}", reason=reason))
        quiet = "--disable-warning=ExperimentalWarning"
        return in_place(node, folder, entry, packages, quiet)
    for _attempt in range(3):
        content = _content(folder)
        key = digest("typescript", folder, entry, packages, node.version, esbuild, content)

        def build(aside: str, _path: str) -> tuple[str, ...]:
            return _build(shop, node, folder, entry, packages, esbuild, aside, progress)

        home = shop.make("typescript", key, build, progress)
        if _content(folder) == content:
            break  # else it was edited meanwhile, and who knows what was read
    else:
        raise BuildFailed(
            say("`{skill}` changes while it is built", skill=os.path.basename(folder)),
            say("Try again"),
        )
    made = os.path.join(home, "main.cjs")
    if not os.path.exists(made):
        made = os.path.join(home, "main.mjs")
    read = (home, *((os.path.dirname(packages),) if packages else ()), *node.read)
    program = Program((node.path, made), folder, "node", read)
    return program, (node.path, made, *((packages,) if packages else ()))


def _content(folder: str) -> str:
    return digest_files(folder, list_files(folder, lambda name: name.endswith(_SOURCES)))


def tool(shop: Workshop, node: Node, name: str, progress: Progress) -> str:
    """The folder of a package that Satchel itself uses, of one version, checked by checksum."""
    import json

    here = os.path.join(os.path.dirname(__file__), "node_tools", name)
    tables: list[dict[str, Any]] = []
    for file in ("package.json", "package-lock.json"):
        with open(os.path.join(here, file), encoding="utf-8") as stream:
            tables.append(json.load(stream))
    version = tables[0]["dependencies"][name]
    words = say("Getting {tool} {version}, once for all skills", tool=name, version=version)
    home = npm.npm_install(
        shop, node, name, tables[0], tables[1], lambda line: progress(line or words)
    )
    return os.path.join(home, "node_modules", name)


def _build(
    shop: Workshop,
    node: Node,
    folder: str,
    entry: str,
    packages: str,
    esbuild: str,
    aside: str,
    progress: Progress,
) -> tuple[str, ...]:
    progress(say("Transforming the TypeScript of `{skill}`", skill=os.path.basename(folder)))
    asked: dict[str, Any] = {
        "esbuild": esbuild,
        "typescript": "",
        "folder": folder,
        "entry": entry,
        "out": aside,
        "target": f"node{node.version[0]}.{node.version[1]}",
        "tsconfig": (read_inside(folder, "tsconfig.json", 1 << 20) or b"{}").decode(
            "utf-8-sig", "replace"
        ),
        "format": "esm" if _is_module(folder, entry) else "cjs",
        "sloppy": [],
    }
    errors = _bundle(shop, node, asked)
    loose = sorted({one["file"] for one in errors if one["text"].startswith(_STRICT)})
    if loose and asked["format"] == "cjs":
        progress(
            say(
                "{files}: `arguments` or `eval` is used as a name, which a module must not do: "
                "compiled as a script",
                files=", ".join(f"`{one}`" for one in loose),
            )
        )
        asked["typescript"] = tool(shop, node, "typescript", progress)
        asked["sloppy"] = loose
        errors = _bundle(shop, node, asked)
    if errors:
        raise BuildFailed(
            say("The TypeScript of `{skill}` cannot be used", skill=os.path.basename(folder))
            + "\n"
            + "\n".join(_line(one) for one in errors[:6]),
            say("Mend these lines"),
        )
    if packages:
        os.symlink(packages, os.path.join(aside, "node_modules"), target_is_directory=True)
    return tuple(name for name in os.listdir(aside) if name.startswith("main."))


def _line(error: dict[str, Any]) -> str:
    place = f"{error['file']}:{error['line']}:{error['column'] + 1}: " if error["file"] else ""
    return place + str(error["text"])


def _is_module(folder: str, entry: str) -> bool:
    """Whether the author said that it is a module; otherwise a script starts sooner."""
    import json

    if entry.endswith((".mts", ".cts")):
        return entry.endswith(".mts")
    try:
        package: Any = json.loads(read_inside(folder, "package.json", 1 << 20) or b"{}")
    except ValueError:
        return False
    return isinstance(package, dict) and cast("dict[str, Any]", package).get("type") == "module"


def _bundle(shop: Workshop, node: Node, asked: dict[str, Any]) -> list[dict[str, Any]]:
    """Run the bundler; what it complains about."""
    import json

    try:
        answer = json.loads(
            shop.run([node.path, _BUNDLER], cwd=asked["out"], stdin=json.dumps(asked))
        )
    except ToolFailed as exc:
        return [{"text": exc.words, "file": "", "line": 0, "column": 0}]
    return [] if answer["ok"] else answer["errors"]
