"""Static analysis of Python programs; parsed, never imported."""

from __future__ import annotations

import ast
import os
import re
from typing import TYPE_CHECKING, NamedTuple

from satchel._fs import read_plain
from satchel.i18n import say

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_BROAD = frozenset(("Exception", "BaseException"))
_WRITERS = frozenset(("write_text", "write_bytes", "save", "to_csv", "to_excel"))
_ASKERS = frozenset(("exists", "isfile", "lexists", "is_file", "stat", "access"))
_FIELD = re.compile(r"%(?:\(\w+\))?[-#0 +]*\d*(?:\.\d+)?[sdifgrxec]|\{[^{}]*\}")


def analyse_python(files: Sequence[SourceFile]) -> SourceAnalysis:
    """Analyse the files of a program, the entry first."""
    trees: list[tuple[SourceFile, ast.Module]] = []
    for source in files:
        try:
            trees.append((source, ast.parse(source.text)))
        except (SyntaxError, ValueError, RecursionError, MemoryError) as exc:
            line = getattr(exc, "lineno", 0) or 0
            return SourceAnalysis(
                broken=SourceSpot(str(getattr(exc, "msg", "") or exc), source.path, line)
            )
    errors = _Errors(trees)
    every = [(source, node) for source, tree in trees for node in ast.walk(tree)]
    entry = files[0].path
    return SourceAnalysis(
        reads=_reads(every, entry),
        writes=_writes(every, entry),
        loud=tuple(_stray_output(every)),
        errors=tuple(errors.texts),
        leaks=tuple(errors.leaks),
        guarded=any(_is_guard(node) for _, node in every),
        writes_files=any(_writes_file(node) for _, node in every),
        checks_existence=any(_checks_existence(node) for _, node in every),
    )


def _name(node: ast.AST) -> str:
    """Return the dotted name of an attribute chain; empty for anything else."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    return ".".join([node.id, *reversed(parts)])


# --- reading and writing ------------------------------------------------------------------


def _reads(nodes: list[tuple[SourceFile, ast.AST]], entry: str) -> SourceSpot | None:
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
            text = say(
                "It reads stdin to its end, which never comes for a warm process: `{part}`",
                part=f"{name}({first})",
            )
            return SourceSpot(text, source.path, node.lineno)
        reads = reads or name.endswith((".readline", "input")) or "stdin" in first
        parses = parses or name.rpartition(".")[2] in {"loads", "decode", "raw_decode"}
    if not reads:
        return SourceSpot(say("It never reads stdin"), entry, 1)
    return None if parses else SourceSpot(say("It never parses the line that it reads"), entry, 1)


def _writes(nodes: list[tuple[SourceFile, ast.AST]], entry: str) -> SourceSpot | None:
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
                        return SourceSpot(
                            say("It writes JSON over several lines: `{part}`", part="indent"),
                            source.path,
                            node.lineno,
                        )
    if not dumps:
        return SourceSpot(say("It never writes JSON"), entry, 1)
    missing = sorted({"output", "error"} - keys)
    return (
        SourceSpot(say("Its answer has no `{key}`", key=missing[0]), entry, 1) if missing else None
    )


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


def _stray_output(nodes: list[tuple[SourceFile, ast.AST]]) -> Iterator[SourceSpot]:
    """Return prints that are certainly not the reply."""
    for source, node in nodes:
        if not isinstance(node, ast.Call) or not _is_print(node):
            continue
        texts = [text for part in node.args for text in _texts(part, {})]
        answer = any(_is_dumps(inner) for part in node.args for inner in ast.walk(part))
        # A variable may contain the reply; a literal sentence does not.
        plain = [text for text in texts if text.strip() and not text.lstrip().startswith("{")]
        if not answer and (plain or (not node.args and _name(node.func) == "print")):
            shown = ast.unparse(node)[:60]
            yield SourceSpot(
                say("Something else is written to stdout: `{part}`", part=shown),
                source.path,
                node.lineno,
            )


# --- guards and files ---------------------------------------------------------------------


def _is_guard(node: ast.AST) -> bool:
    """Return whether a `try` around a call catches everything."""
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


def _checks_existence(node: ast.AST) -> bool:
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
    """Error texts of a program, and those from elsewhere."""

    def __init__(self, trees: list[tuple[SourceFile, ast.Module]]) -> None:
        self.texts: list[SourceSpot] = []
        self.leaks: list[SourceSpot] = []
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
            and (at := _returned_parameter(node)) is not None
        }
        for source, tree in trees:
            self._visit(tree, source.path, _constants(tree), {})

    def _visit(
        self, node: ast.AST, path: str, constants: dict[str, str], caught: dict[str, bool]
    ) -> None:
        """Walk with the names of caught exceptions: True for the author's own."""
        if isinstance(node, ast.ExceptHandler) and node.name:
            types = _types(node.type) if node.type is not None else []
            caught = {**caught, node.name: bool(types) and all(one in self._own for one in types)}
        for value in self._values(node):
            self._judge(value, path, constants, caught)
        for child in ast.iter_child_nodes(node):
            self._visit(child, path, constants, caught)

    def _values(self, node: ast.AST) -> Iterator[ast.expr]:
        """Yield expressions that become an error."""
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
                self.leaks.append(SourceSpot(f"`{ast.unparse(value)[:60]}`", path, value.lineno))
                break
        for text in _texts(value, constants):
            if text.strip(" …"):
                self.texts.append(SourceSpot(text, path, value.lineno))


def _returned_parameter(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int | None:
    """Return the parameter that a function returns as the error; None without one."""
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
    """Return possible texts of an expression, with `…` for values; empty if unknown."""
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


MAX_FILE_BYTES = 256 * 1024
MAX_SOURCE_FILES = 40
MAX_WALKED_FOLDERS = 2_000
_LEFT_OUT = frozenset((
    "node_modules", "vendor", "venv", "__pycache__", "dist", "build", "target", "tests", "test",
    "testdata", "references", "assets",
))  # fmt: skip


class SourceFile(NamedTuple):
    """One file."""

    path: str
    """Relative to the skill's folder, with `/`."""
    text: str


class SourceSpot(NamedTuple):
    """A place in the source."""

    text: str
    path: str
    line: int


class SourceAnalysis(NamedTuple):
    """The properties of a program."""

    reads: SourceSpot | None = None
    """Why it does not read one line; empty if it does."""
    writes: SourceSpot | None = None
    """Why it does not write one line; empty if it does."""
    loud: tuple[SourceSpot, ...] = ()
    """Other writes to stdout."""
    errors: tuple[SourceSpot, ...] = ()
    """Error texts, with `…` for values."""
    leaks: tuple[SourceSpot, ...] = ()
    """Errors that contain a Python exception's text."""
    guarded: bool = True
    writes_files: bool = False
    checks_existence: bool = False
    """Whether it checks that a file exists."""
    broken: SourceSpot | None = None
    """The file cannot be parsed."""


def program_files(folder: str, entry: str) -> list[SourceFile]:
    """Return the program's readable files, the entry first."""
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
            if name.endswith(".py") and not stem.startswith("test_") and not stem.endswith("_test"):
                names.append(name if near == "." else f"{near}/{name}")
        if len(names) > MAX_SOURCE_FILES or walked > MAX_WALKED_FOLDERS:
            break
    names.sort(key=lambda name: name != entry)
    found: list[SourceFile] = []
    for name in names[:MAX_SOURCE_FILES]:
        text = read_text(os.path.join(folder, name))
        if text is not None:
            found.append(SourceFile(name, text))
    return found


def read_text(path: str, limit: int = MAX_FILE_BYTES) -> str | None:
    """Read a small file as text; None when it is something else."""
    try:
        return read_plain(path, limit).decode("utf-8")
    except (OSError, UnicodeDecodeError):
        return None
