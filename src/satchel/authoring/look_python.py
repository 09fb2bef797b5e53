"""What does a Python program look like? Parsed, never imported."""

from __future__ import annotations

import ast
import os
import re
from typing import TYPE_CHECKING, NamedTuple

from satchel._fs import read_plain
from satchel._language import say

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_BROAD = frozenset(("Exception", "BaseException"))
_WRITERS = frozenset(("write_text", "write_bytes", "save", "to_csv", "to_excel"))
_ASKERS = frozenset(("exists", "isfile", "lexists", "is_file", "stat", "access"))
_FIELD = re.compile(r"%(?:\(\w+\))?[-#0 +]*\d*(?:\.\d+)?[sdifgrxec]|\{[^{}]*\}")


def look(files: Sequence[Source]) -> Look:
    """Look at the files of a program, the entry first."""
    trees: list[tuple[Source, ast.Module]] = []
    for source in files:
        try:
            trees.append((source, ast.parse(source.text)))
        except (SyntaxError, ValueError, RecursionError, MemoryError) as exc:
            line = getattr(exc, "lineno", 0) or 0
            return Look(broken=Spot(str(getattr(exc, "msg", "") or exc), source.path, line))
    errors = _Errors(trees)
    every = [(source, node) for source, tree in trees for node in ast.walk(tree)]
    entry = files[0].path
    return Look(
        reads=_reads(every, entry),
        writes=_writes(every, entry),
        loud=tuple(_loud(every)),
        errors=tuple(errors.texts),
        leaks=tuple(errors.leaks),
        guarded=any(_is_guard(node) for _, node in every),
        writes_files=any(_writes_file(node) for _, node in every),
        looks_first=any(_asks(node) for _, node in every),
    )


def _name(node: ast.AST) -> str:
    """`sys.stdin.readline` for an attribute chain; nothing for anything else."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    return ".".join([node.id, *reversed(parts)])


# --- reading and writing ------------------------------------------------------------------


def _reads(nodes: list[tuple[Source, ast.AST]], entry: str) -> Spot | None:
    parses = reads = False
    for source, node in nodes:
        if isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
            reads = reads or _name(node.iter).endswith(("sys.stdin", "stdin.buffer"))
        if not isinstance(node, ast.Call):
            continue
        name = _name(node.func)
        first = _name(node.args[0]) if node.args else ""
        whole = name.endswith(("stdin.read", "stdin.buffer.read", "stdin.readlines"))
        whole = whole or (name.endswith(".load") and "stdin" in first)
        if whole and not (name.endswith(".read") and node.args):
            return Spot(_to_its_end(f"{name}({first})"), source.path, node.lineno)
        reads = reads or name.endswith((".readline", "input")) or "stdin" in first
        parses = parses or name.rpartition(".")[2] in {"loads", "decode", "raw_decode"}
    if not reads:
        return Spot(say("It never reads stdin"), entry, 1)
    return None if parses else Spot(say("It never parses the line that it reads"), entry, 1)


def _to_its_end(part: str) -> str:
    return say(
        "It reads stdin to its end, which never comes for a warm process: `{part}`", part=part
    )


def _writes(nodes: list[tuple[Source, ast.AST]], entry: str) -> Spot | None:
    keys: set[str] = set()
    dumps = False
    for source, node in nodes:
        if isinstance(node, ast.Constant) and node.value in {"output", "error"}:
            keys.add(str(node.value))
        elif isinstance(node, ast.keyword) and node.arg in {"output", "error"}:
            keys.add(node.arg)
        elif isinstance(node, ast.Call):
            if _is_dumps(node):
                dumps = True
            if _is_print(node):
                for part in node.args:
                    if _is_dumps(part) and _has(part, "indent"):
                        return Spot(
                            say("It writes JSON over several lines: `{part}`", part="indent"),
                            source.path,
                            node.lineno,
                        )
    if not dumps:
        return Spot(say("It never writes JSON"), entry, 1)
    missing = sorted({"output", "error"} - keys)
    return Spot(say("Its answer has no `{key}`", key=missing[0]), entry, 1) if missing else None


def _is_dumps(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and _name(node.func).rpartition(".")[2] in {"dumps", "dump"}


def _has(node: ast.AST, keyword: str) -> bool:
    return isinstance(node, ast.Call) and any(
        item.arg == keyword
        and not (isinstance(item.value, ast.Constant) and item.value.value is None)
        for item in node.keywords
    )


def _is_print(node: ast.Call) -> bool:
    name = _name(node.func)
    if name == "print":
        return not any(
            item.arg == "file" and "stdout" not in _name(item.value) for item in node.keywords
        )
    return name.endswith(("stdout.write", "stdout.buffer.write"))


def _loud(nodes: list[tuple[Source, ast.AST]]) -> Iterator[Spot]:
    """Writing of anything that is surely not the answer."""
    for source, node in nodes:
        if not isinstance(node, ast.Call) or not _is_print(node):
            continue
        texts = [text for part in node.args for text in _texts(part, {})]
        answer = any(_is_dumps(inner) for part in node.args for inner in ast.walk(part))
        # A variable may hold the answer; a sentence does not.
        plain = [text for text in texts if text.strip() and not text.lstrip().startswith("{")]
        if not answer and (plain or (not node.args and _name(node.func) == "print")):
            shown = ast.unparse(node)[:60]
            yield Spot(
                say("Something else is written to stdout: `{part}`", part=shown),
                source.path,
                node.lineno,
            )


# --- guards and files ---------------------------------------------------------------------


def _is_guard(node: ast.AST) -> bool:
    """A `try` around a call that lets nothing through."""
    if not isinstance(node, ast.Try):
        return False
    broad = any(
        handler.type is None or any(name in _BROAD for name in _types(handler.type))
        for handler in node.handlers
    )
    return broad and any(
        isinstance(inner, ast.Call) for item in node.body for inner in ast.walk(item)
    )


def _types(node: ast.AST) -> list[str]:
    parts = node.elts if isinstance(node, ast.Tuple) else [node]
    return [_name(part).rpartition(".")[2] for part in parts]


def _writes_file(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    name = _name(node.func).rpartition(".")[2]
    if name != "open":
        return name in _WRITERS
    modes = [*node.args[1:2], *(item.value for item in node.keywords if item.arg == "mode")]
    return any(
        isinstance(mode, ast.Constant) and set(str(mode.value)) & set("wa+") for mode in modes
    )


def _asks(node: ast.AST) -> bool:
    if isinstance(node, ast.Name):
        return node.id == "FileExistsError"
    if not isinstance(node, ast.Call):
        return False
    name = _name(node.func).rpartition(".")[2]
    if name == "open":
        return any(
            isinstance(mode, ast.Constant) and "x" in str(mode.value) for mode in node.args[1:2]
        )
    return name in _ASKERS or (isinstance(node.func, ast.Attribute) and node.func.attr in _ASKERS)


# --- errors -------------------------------------------------------------------------------


class _Errors:
    """The texts of errors in a program, and those that come from elsewhere."""

    def __init__(self, trees: list[tuple[Source, ast.Module]]) -> None:
        self.texts: list[Spot] = []
        self.leaks: list[Spot] = []
        self._own = {
            node.name
            for _, tree in trees
            for node in ast.walk(tree)
            if isinstance(node, ast.ClassDef)
        }
        self._ways = {
            node.name: at
            for _, tree in trees
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            and (at := _passes_on(node)) is not None
        }
        for source, tree in trees:
            constants = _constants(tree)
            self._visit(tree, source.path, constants, {})

    def _visit(
        self, node: ast.AST, path: str, constants: dict[str, str], caught: dict[str, bool]
    ) -> None:
        """Walk with the names of caught exceptions: True when they are the author's own."""
        if isinstance(node, ast.ExceptHandler) and node.name:
            types = _types(node.type) if node.type is not None else []
            caught = {**caught, node.name: bool(types) and all(one in self._own for one in types)}
        for value in self._values(node):
            self._judge(value, path, constants, caught)
        for child in ast.iter_child_nodes(node):
            self._visit(child, path, constants, caught)

    def _values(self, node: ast.AST) -> Iterator[ast.expr]:
        """Expressions that become an error."""
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and key.value == "error":
                    yield value
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                if (
                    isinstance(target, ast.Subscript)
                    and isinstance(target.slice, ast.Constant)
                    and target.slice.value == "error"
                ):
                    yield node.value
        elif isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            if _name(node.exc.func) in self._own and node.exc.args:
                yield node.exc.args[0]
        elif isinstance(node, ast.Call):
            yield from (item.value for item in node.keywords if item.arg == "error")
            at = self._ways.get(_name(node.func).rpartition(".")[2])
            if at is not None and at < len(node.args):
                yield node.args[at]

    def _judge(
        self, value: ast.expr, path: str, constants: dict[str, str], caught: dict[str, bool]
    ) -> None:
        for inner in ast.walk(value):
            strange = isinstance(inner, ast.Name) and caught.get(inner.id) is False
            trace = isinstance(inner, ast.Call) and _name(inner.func).endswith("format_exc")
            if strange or trace:
                self.leaks.append(Spot(f"`{ast.unparse(value)[:60]}`", path, value.lineno))
                break
        for text in _texts(value, constants):
            if text.strip(" …"):
                self.texts.append(Spot(text, path, value.lineno))


def _passes_on(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int | None:
    """Which parameter a function returns as the error; None when it does not."""
    names = [item.arg for item in node.args.args]
    for inner in ast.walk(node):
        if isinstance(inner, ast.Return) and isinstance(inner.value, ast.Dict):
            for key, value in zip(inner.value.keys, inner.value.values, strict=True):
                if (
                    isinstance(key, ast.Constant)
                    and key.value == "error"
                    and isinstance(value, ast.Name)
                    and value.id in names
                ):
                    return names.index(value.id)
    return None


def _constants(tree: ast.Module) -> dict[str, str]:
    """Texts with a name at the top of a module."""
    return {
        target.id: item.value.value
        for item in tree.body
        if isinstance(item, ast.Assign)
        and isinstance(item.value, ast.Constant)
        and isinstance(item.value.value, str)
        for target in item.targets
        if isinstance(target, ast.Name)
    }


def _texts(node: ast.expr, constants: dict[str, str]) -> list[str]:  # noqa: PLR0911 - a table of shapes
    """What an expression may say, with `…` for what is filled in; nothing when nobody can tell."""
    if isinstance(node, ast.Constant):
        return [node.value] if isinstance(node.value, str) else []
    if isinstance(node, ast.Name):
        return [constants[node.id]] if node.id in constants else []
    if isinstance(node, ast.JoinedStr):
        parts = [str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values]
        return ["".join(parts)]
    if isinstance(node, ast.IfExp):
        return [*_texts(node.body, constants), *_texts(node.orelse, constants)]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
        return [_FIELD.sub("…", text) for text in _texts(node.left, constants)]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = _texts(node.left, constants), _texts(node.right, constants)
        if not left and not right:
            return []
        return [one + other for one in left or ["…"] for other in right or ["…"]]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr == "format":
            return [_FIELD.sub("…", text) for text in _texts(node.func.value, constants)]
        if node.func.attr in {"strip", "rstrip", "replace"}:
            return _texts(node.func.value, constants)
    return []


MAX_FILE = 256 * 1024
MAX_FILES = 40
MAX_FOLDERS = 2_000
_LEFT_OUT = frozenset((
    "node_modules", "vendor", "venv", "__pycache__", "dist", "build", "target", "tests", "test",
    "testdata", "references", "assets",
))  # fmt: skip


class Source(NamedTuple):
    """One file."""

    path: str
    """Relative to the skill's folder, with `/`."""
    text: str


class Spot(NamedTuple):
    """A place in the source."""

    text: str
    path: str
    line: int


class Look(NamedTuple):
    """What a program looks like."""

    reads: Spot | None = None
    """Why it does not read one line, if so; the text is a sentence."""
    writes: Spot | None = None
    """Why it does not write one line, if so."""
    loud: tuple[Spot, ...] = ()
    """Where something else goes to stdout."""
    errors: tuple[Spot, ...] = ()
    """Texts of errors, with `…` for what is filled in."""
    leaks: tuple[Spot, ...] = ()
    """Where an error shows what Python said."""
    guarded: bool = True
    """Whether something catches everything."""
    writes_files: bool = False
    looks_first: bool = False
    """Whether it asks if a file exists."""
    broken: Spot | None = None
    """The file cannot be parsed."""


def program_files(folder: str, entry: str) -> list[Source]:
    """The program's files, the entry first; what cannot be read is left out."""
    names: list[str] = []
    for walked, (here, folders, files) in enumerate(os.walk(folder)):
        near = os.path.relpath(here, folder).replace(os.sep, "/")
        folders[:] = sorted(
            name for name in folders if name not in _LEFT_OUT and not name.startswith(".")
        )
        if near.count("/") > 3:
            folders[:] = []
        for name in sorted(files):
            stem = name.rpartition(".")[0]
            if name.endswith(".py") and not _is_test(stem):
                names.append(name if near == "." else f"{near}/{name}")
        if len(names) > MAX_FILES or walked > MAX_FOLDERS:
            break
    names.sort(key=lambda name: name != entry)
    found: list[Source] = []
    for name in names[:MAX_FILES]:
        text = read_text(os.path.join(folder, name))
        if text is not None:
            found.append(Source(name, text))
    return found


def _is_test(stem: str) -> bool:
    return stem.startswith("test_") or stem.endswith("_test")


def read_text(path: str, limit: int = MAX_FILE) -> str | None:
    """A small file as text; None when it is something else."""
    try:
        return read_plain(path, limit).decode("utf-8")
    except (OSError, UnicodeDecodeError):
        return None
