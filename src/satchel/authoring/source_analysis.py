"""Static analysis of Python programs; parsed, never imported.

Only frequent mistakes are found. What else can go wrong is proven by a run: `satchel check --run`.
"""

from __future__ import annotations

import ast
import os
from typing import TYPE_CHECKING, NamedTuple

from satchel._fs import read_plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

MAX_FILE_BYTES = 256 * 1024
MAX_SOURCE_FILES = 40
MAX_WALKED_FOLDERS = 2_000
_LEFT_OUT = frozenset((
    "node_modules", "vendor", "venv", "__pycache__", "dist", "build", "target", "tests", "test",
    "testdata", "references", "assets",
))  # fmt: skip
_BROAD = frozenset(("Exception", "BaseException"))
_WRITERS = frozenset(("write_text", "write_bytes", "save", "to_csv", "to_excel"))
_CHECKERS = frozenset(("exists", "isfile", "lexists", "is_file", "stat", "access"))
_REPLY_KEYS = frozenset(("output", "error"))


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
    """Where it does not read one line; None if it does."""
    writes: SourceSpot | None = None
    """Where it does not write one line; None if it does."""
    loud: tuple[SourceSpot, ...] = ()
    """Other writes to stdout."""
    errors: tuple[SourceSpot, ...] = ()
    """Error texts, with `…` for values."""
    leaks: tuple[SourceSpot, ...] = ()
    """Errors that contain a Python exception's text."""
    guarded: bool = True
    writes_files: bool = False
    checks_existence: bool = False
    broken: SourceSpot | None = None
    """The file cannot be parsed."""


Nodes = list[tuple[SourceFile, ast.AST]]


def analyse_python(files: Sequence[SourceFile]) -> SourceAnalysis:
    """Analyse the files of a program, the entry first."""
    nodes: Nodes = []
    for source in files:
        try:
            nodes += ((source, node) for node in ast.walk(ast.parse(source.text)))
        except (SyntaxError, ValueError, RecursionError, MemoryError) as exc:
            line = getattr(exc, "lineno", 0) or 0
            return SourceAnalysis(
                broken=SourceSpot(str(getattr(exc, "msg", "") or exc), source.path, line)
            )
    own = {node.name for _, node in nodes if isinstance(node, ast.ClassDef)}
    calls = [(source, node) for source, node in nodes if isinstance(node, ast.Call)]
    return SourceAnalysis(
        reads=_reads(calls, files),
        writes=_writes(nodes, files[0].path),
        loud=tuple(_stray_output(calls)),
        errors=tuple(_errors(nodes, own)),
        leaks=tuple(_leaks(nodes, own)),
        guarded=any(_is_guard(node) for _, node in nodes),
        writes_files=any(_writes_file(node) for _, node in calls),
        checks_existence=any(_last(node.func) in _CHECKERS for _, node in calls)
        or any(isinstance(node, ast.Name) and node.id == "FileExistsError" for _, node in nodes),
    )


def _name(node: ast.AST) -> str:
    """Return the dotted name of an attribute chain; of another expression only its attributes."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    parts.append(node.id if isinstance(node, ast.Name) else "")
    return ".".join(reversed(parts))


def _last(node: ast.AST) -> str:
    return _name(node).rpartition(".")[2]


def _shown(node: ast.AST) -> str:
    try:
        return f"`{ast.unparse(node)[:60]}`"
    except RecursionError:
        return ""


# --- reading and writing ------------------------------------------------------------------


def _reads(
    calls: list[tuple[SourceFile, ast.Call]], files: Sequence[SourceFile]
) -> SourceSpot | None:
    for source, node in calls:
        name = _name(node.func)
        whole = name.endswith((".read", ".readlines")) and "stdin" in name and not node.args
        if whole or (name.endswith(".load") and node.args and "stdin" in _name(node.args[0])):
            return SourceSpot(_shown(node), source.path, node.lineno)
    if any("stdin" in source.text or "input(" in source.text for source in files):
        return None
    return SourceSpot("", files[0].path, 1)


def _writes(nodes: Nodes, entry: str) -> SourceSpot | None:
    keys = {node.value for _, node in nodes if isinstance(node, ast.Constant)}
    keys |= {node.arg for _, node in nodes if isinstance(node, ast.keyword)}
    missing = sorted(_REPLY_KEYS - keys)
    if missing:
        return SourceSpot(f"`{missing[0]}`", entry, 1)
    return None if any(_is_dumps(node) for _, node in nodes) else SourceSpot("", entry, 1)


def _is_dumps(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and _last(node.func) in {"dumps", "dump"}


def _stray_output(calls: list[tuple[SourceFile, ast.Call]]) -> Iterator[SourceSpot]:
    """Return prints of a literal sentence, which is certainly not the reply."""
    for source, node in calls:
        if _name(node.func) != "print" or any(item.arg == "file" for item in node.keywords):
            continue
        texts = [text for part in node.args if (text := _text(part).strip())]
        if any(not text.startswith("{") for text in texts):
            yield SourceSpot(_shown(node), source.path, node.lineno)


# --- guards and files ---------------------------------------------------------------------


def _is_guard(node: ast.AST) -> bool:
    """Return whether a `try` catches everything."""
    return isinstance(node, ast.Try) and any(
        handler.type is None or not _BROAD.isdisjoint(_types(handler)) for handler in node.handlers
    )


def _types(handler: ast.ExceptHandler) -> list[str]:
    parts = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return [_last(part) for part in parts if part is not None]


def _writes_file(node: ast.Call) -> bool:
    name = _last(node.func)
    if name != "open":
        return name in _WRITERS
    modes = [*node.args[1:2], *(item.value for item in node.keywords if item.arg == "mode")]
    return any(
        isinstance(mode, ast.Constant) and set(str(mode.value)) & set("wa+") for mode in modes
    )


# --- errors -------------------------------------------------------------------------------


def _error_values(nodes: Iterable[ast.AST]) -> Iterator[ast.expr]:
    """Yield what a reply contains under `error`."""
    for node in nodes:
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and key.value == "error":
                    yield value


def _errors(nodes: Nodes, own: set[str]) -> Iterator[SourceSpot]:
    for source, node in nodes:
        values = list(_error_values([node]))
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            values += node.exc.args[:1] if _name(node.exc.func) in own else []
        for value in values:
            text = _text(value)
            if text.strip(" …"):
                yield SourceSpot(text, source.path, value.lineno)


def _leaks(nodes: Nodes, own: set[str]) -> Iterator[SourceSpot]:
    """Return errors with the text of an exception that is not the author's own."""
    for source, node in nodes:
        if not isinstance(node, ast.ExceptHandler) or {*_types(node)} <= own:
            continue
        for value in _error_values(ast.walk(node)):
            inner = list(ast.walk(value))
            if any(isinstance(one, ast.Name) and one.id == node.name for one in inner) or any(
                isinstance(one, ast.Call) and _last(one.func) == "format_exc" for one in inner
            ):
                yield SourceSpot(_shown(value), source.path, value.lineno)


def _text(node: ast.expr) -> str:
    """Return the text of a literal or an f-string, with `…` for values; empty if unknown."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        parts = [str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values]
        return "".join(parts)
    return ""


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
