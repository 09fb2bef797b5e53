"""What a script of a skill imports from packages, itself and through the files that it imports.

Nothing runs: Python is parsed, JavaScript is searched. Modules of the skill and of the language
count for nothing, but what they import does. `script_packages` finds the packages of the imports.
"""

from __future__ import annotations

import ast
import os
import re
import sys
import tomllib
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from satchel._threads import parse_module
from satchel.errors import BuildFailed
from satchel.i18n import say
from satchel.runners.build import list_files, read_inside
from satchel.runners.typescript import module_specifiers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_MAX_SOURCE_BYTES = 1024 * 1024
"""Of a script and the files that it imports; more needs a declaration."""
_MAX_IMPORTS = 5_000
"""In these files."""
_DYNAMIC_IMPORT = re.compile(
    rb"importlib|__import__|runpy|subprocess|entry_points|\bexec\("
    rb"|\bos\.(?:system|popen|exec|spawn)"
)
"""What may use packages that no import names."""
_PANDAS_PACKAGES = {
    "read_excel": "openpyxl", "to_excel": "openpyxl",
    "ExcelFile": "openpyxl", "ExcelWriter": "openpyxl",
    "read_parquet": "pyarrow", "to_parquet": "pyarrow",
}  # fmt: skip
"""Attributes of pandas, with the package that they import."""
_PYTHON_NAME_END = re.compile(rb"""\.py(?=["'\\{])""")
"""The end of a text that may name a script."""
_IMPORT_ERROR_NAMES = frozenset(
    ("ImportError", "ModuleNotFoundError", "Exception", "BaseException")
)
"""Exceptions that a handler of a failed import catches."""
_EXIT_FUNCTIONS = frozenset(("exit", "_exit", "quit", "abort", "die", "fail", "fatal"))
"""Functions that end a program."""
_JAVASCRIPT_SUFFIXES = (
    ".js", ".mjs", ".cjs", ".ts", ".mts", ".cts", "/index.js", "/index.mjs", "/index.ts",
)  # fmt: skip
"""What Node adds to the path of an import, beside nothing."""


class ForeignImport(NamedTuple):
    """An import of something that is neither of the skill nor of the language."""

    path: str
    """The file that has it."""
    name: str
    """Dotted for Python, a package for JavaScript."""
    is_optional: bool
    """Whether the file can do without it."""


class _Import(NamedTuple):
    """One import statement of Python, or one specifier of JavaScript."""

    name: str
    """Dotted: the module, and after `from` also the name, which may be a module."""
    level: int = 0
    """Dots of a relative import."""
    is_optional: bool = False
    is_path: bool = False
    """Whether `name` is a text that ends in `.py`: the name of a script, if the skill has it."""


@cache
def load_import_names(language: str) -> dict[str, str]:
    """Load the packages of import names, for `python` or `npm`; `node` has the builtins."""
    with open(os.path.join(os.path.dirname(__file__), "import_names.toml"), "rb") as file:
        return tomllib.load(file)[language]


def find_package_name(table: dict[str, str], name: str) -> str:
    """Find the package of the most exact dotted name in the table; empty when there is none."""
    parts = name.split(".")
    prefixes = (".".join(parts[:count]) for count in range(len(parts), 0, -1))
    return next((table[prefix] for prefix in prefixes if prefix in table), "")


class _SourceReader:
    """Reads the files of one script, and refuses more than can be parsed in a moment."""

    def __init__(self, folder: str, path: str) -> None:
        self._folder = folder
        self._script = path
        self._byte_count = self._import_count = 0
        self.has_dynamic_imports = False
        """Whether a file may use packages that no import names."""

    def read(self, path: str) -> bytes:
        """Read a file; empty when it is missing.

        Raises:
            BuildFailed: the files are too large.
        """
        data = read_inside(self._folder, path) or b""
        self._byte_count += len(data)
        self.has_dynamic_imports = self.has_dynamic_imports or bool(_DYNAMIC_IMPORT.search(data))
        self._check_size()
        return data

    def count_import(self) -> None:
        """Count an import, of which there may be a limited number."""
        self._import_count += 1
        self._check_size()

    def _check_size(self) -> None:
        if self._byte_count > _MAX_SOURCE_BYTES or self._import_count > _MAX_IMPORTS:
            raise BuildFailed(
                say("`{path}` is too large to look for its imports", path=self._script),
                say("Name its packages in a file: {files}",
                    files="`requirements.txt`, `package.json`"),
            )  # fmt: skip


# --- imports of Python --------------------------------------------------------------------


class PythonModules:
    """The Python modules of a skill, as one script finds them.

    Python looks into the folder of the script, then into the skill's folder. Scripts also change
    `sys.path`: other folders of the skill count for names that nothing else explains.
    """

    def __init__(self, folder: str, path: str) -> None:
        self.sources = _SourceReader(folder, path)
        self._script = path
        self._files = frozenset(file for file in list_files(folder) if file.endswith(".py"))
        self._file_names = tuple(os.fsencode(file.rpartition("/")[2]) for file in self._files)
        self._folders = {""}
        self._module_folders: dict[str, set[str]] = {}
        """The folders that have a module of each name."""
        for file in self._files:
            file_module = file.removesuffix(".py")
            module = file_module
            while module and module not in self._folders:
                parent, _, name = module.rpartition("/")
                self._module_folders.setdefault(name, set()).add(parent)
                if module != file_module:
                    self._folders.add(module)
                module = parent

    def iter_foreign_imports(self) -> Iterator[ForeignImport]:
        """Yield what the script imports from packages.

        Imports of another script that it names, to start it, are optional.
        """
        queue, queued, started = [self._script], {self._script}, set[str]()
        for path in queue:  # grows while it is read
            source = self.sources.read(path)
            ends = (match.end() for match in _PYTHON_NAME_END.finditer(source))
            names_file = any(source.endswith(self._file_names, 0, end) for end in ends)
            iter_children = _iter_statements
            if names_file or b"pandas" in source:  # in expressions
                iter_children = ast.iter_child_nodes
            for statement in _iter_python_imports(path, source, iter_children):
                self.sources.count_import()
                own_files = self._find_own_files(path, statement)
                if own_files is not None:
                    new_files = {*own_files} - queued
                    queue += sorted(new_files)
                    queued |= new_files
                    if statement.is_path:
                        started |= new_files
                elif not statement.level and not _is_standard(statement.name):
                    is_optional = statement.is_optional or path in started
                    yield ForeignImport(path, statement.name, is_optional)

    def _find_own_files(self, path: str, statement: _Import) -> list[str] | None:
        """Find the files of the skill that an import reads; None when it names a package."""
        folder, name = path.rpartition("/")[0], statement.name
        if statement.is_path:
            return [file for file in self._files if file == name or file.endswith(f"/{name}")]
        if statement.level:
            parts = folder.split("/") if folder else []
            package = "/".join(parts[: len(parts) - statement.level + 1])
            return self._find_module_files(package, name)
        for base in dict.fromkeys((self._script.rpartition("/")[0], "", folder)):
            if (files := self._find_module_files(base, name)) is not None:
                return files
        if _is_standard(name) or _is_known(name):
            return None
        bases = self._module_folders.get(name.split(".", 1)[0])
        if not bases:
            return None
        return [
            file for base in sorted(bases) for file in self._find_module_files(base, name) or ()
        ]

    def _find_module_files(self, base: str, name: str) -> list[str] | None:
        """Find the files of a module in a folder, and of the packages around it.

        None when the folder has no module of the first part of the name.
        """
        files: list[str] = []
        path = base
        for depth, part in enumerate(name.split(".")):
            path = f"{path}/{part}" if path else part
            candidates = (f"{path}.py", f"{path}/__init__.py")
            module_files = [file for file in candidates if file in self._files]
            if not module_files:
                # Without `__init__.py` a folder is a module only where there is no other.
                is_module = path in self._folders
                if depth == 0 and (_is_standard(name) or _is_known(name)):
                    is_module = False
                if not is_module:
                    return files if depth else None
            files += module_files
        return files


def _is_standard(name: str) -> bool:
    return name.split(".", 1)[0] in sys.stdlib_module_names or name.startswith("__")


def _is_known(name: str) -> bool:
    return bool(find_package_name(load_import_names("python"), name))


def _parse_module(path: str, source: bytes) -> ast.Module:
    """Parse a script.

    Raises:
        BuildFailed: it is not valid in this version of Python.
    """
    try:
        return parse_module(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as exc:
        line = getattr(exc, "lineno", None) or "?"
        reason = getattr(exc, "msg", "") or type(exc).__name__
        raise BuildFailed(
            say("`{path}` is not Python {version}: {reason} (line {line})",
                path=path, version="{}.{}".format(*sys.version_info), reason=reason, line=line),
            say("Correct it"),
        ) from exc  # fmt: skip


def _iter_python_imports(
    path: str, source: bytes, iter_children: Callable[[ast.AST], Iterator[ast.AST]]
) -> Iterator[_Import]:
    """Yield the imports of a script, and the names of other scripts in its texts."""
    stack: list[tuple[ast.AST, bool]] = [(_parse_module(path, source), False)]
    while stack:
        node, is_optional = stack.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from _iter_imported_names(node, is_optional=is_optional)
        elif isinstance(node, ast.Constant):
            if isinstance(node.value, str) and node.value.endswith(".py"):
                yield _Import(node.value, is_path=True)
        elif isinstance(node, ast.Try | ast.TryStar):
            stack += _split_try(node, is_optional=is_optional)
        elif isinstance(node, ast.If) and _is_for_types(node.test):
            stack += [(child, is_optional) for child in node.orelse]
        else:
            if (
                isinstance(node, ast.Attribute)
                and node.attr in _PANDAS_PACKAGES
                and b"pandas" in source
            ):
                yield _Import(_PANDAS_PACKAGES[node.attr], is_optional=True)
            stack += [(child, is_optional) for child in iter_children(node)]


def _iter_statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements inside one, its handlers and its cases."""
    for field in ("body", "orelse", "finalbody", "handlers", "cases"):
        yield from getattr(node, field, ())


def _iter_imported_names(
    node: ast.Import | ast.ImportFrom, *, is_optional: bool
) -> Iterator[_Import]:
    for name in node.names:
        if isinstance(node, ast.Import):
            yield _Import(name.name, is_optional=is_optional)
        else:
            dotted_name = f"{node.module}.{name.name}" if node.module else name.name
            yield _Import(dotted_name, node.level, is_optional)


def _is_for_types(test: ast.expr) -> bool:
    """Whether a condition is `TYPE_CHECKING`."""
    name = test.attr if isinstance(test, ast.Attribute) else getattr(test, "id", "")
    return name == "TYPE_CHECKING"


def _split_try(node: ast.Try | ast.TryStar, *, is_optional: bool) -> list[tuple[ast.AST, bool]]:
    """Split a `try` into its parts, each with whether its imports are optional.

    Where a handler of `ImportError` goes on, the imports of the body are optional; where it ends
    the program they are not. What such a handler imports instead is never required.
    """
    import_handlers = [handler for handler in node.handlers if _catches_import_error(handler)]
    goes_on = bool(import_handlers) and not any(map(_ends_program, import_handlers))
    parts: list[tuple[ast.AST, bool]] = []
    for child in node.body:
        is_import = isinstance(child, ast.Import | ast.ImportFrom)
        parts.append((child, is_optional or (is_import and goes_on)))
    needs_no_fallback = _imports_standard_only(node.body)
    for handler in node.handlers:
        is_fallback = handler in import_handlers
        if not (is_fallback and needs_no_fallback):
            parts.append((handler, is_optional or is_fallback))
    parts += [(child, is_optional) for child in (*node.orelse, *node.finalbody)]
    return parts


def _imports_standard_only(body: Iterable[ast.stmt]) -> bool:
    """Whether statements import something, and all of it is of the standard library."""
    imports = [child for child in body if isinstance(child, ast.Import | ast.ImportFrom)]
    names = [name for child in imports for name in _list_modules(child)]
    return bool(names) and all(map(_is_standard, names))


def _list_modules(node: ast.Import | ast.ImportFrom) -> list[str]:
    if isinstance(node, ast.ImportFrom):
        return [node.module or ""]
    return [name.name for name in node.names]


def _catches_import_error(handler: ast.ExceptHandler) -> bool:
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    names = {getattr(kind, "id", getattr(kind, "attr", "")) for kind in kinds if kind}
    return handler.type is None or not _IMPORT_ERROR_NAMES.isdisjoint(names)


def _ends_program(handler: ast.ExceptHandler) -> bool:
    """Whether a handler raises, or calls a function that ends the program."""
    for node in ast.walk(handler):
        if isinstance(node, ast.Raise):
            return True
        if isinstance(node, ast.Call):
            function = node.func
            name = getattr(function, "id", getattr(function, "attr", ""))
            if name in _EXIT_FUNCTIONS:
                return True
    return False


# --- imports of JavaScript ----------------------------------------------------------------


def iter_node_imports(folder: str, path: str) -> Iterator[ForeignImport]:
    """Yield what a script of JavaScript or TypeScript imports from packages."""
    files = frozenset(list_files(folder))
    builtins = load_import_names("node")["builtins"].split()
    queue, queued = [path], {path}
    sources = _SourceReader(folder, path)
    for importer in queue:  # grows while it is read
        text = sources.read(importer).decode("utf-8-sig", "replace")
        for name, is_optional in module_specifiers(text):
            sources.count_import()
            if name.startswith("."):
                file = _find_javascript_file(files, importer, name)
                if file.endswith(_JAVASCRIPT_SUFFIXES) and file not in queued:
                    queue.append(file)
                    queued.add(file)
            elif not name.startswith(("node:", "/", "#", "file:", "data:")):
                part_count = 2 if name[:1] == "@" else 1
                package = "/".join(name.split("/")[:part_count])
                if package not in builtins and not _is_bundled(folder, importer, package):
                    yield ForeignImport(importer, package, is_optional)


def _find_javascript_file(files: frozenset[str], importer: str, name: str) -> str:
    """Find the file of the skill that a relative import reads; empty when there is none."""
    path = os.path.normpath(os.path.join(os.path.dirname(importer), name))
    # A `.ts` file may be imported as `.js`.
    for base in (path, path.removesuffix(".js")):
        for suffix in ("", *_JAVASCRIPT_SUFFIXES):
            if f"{base}{suffix}" in files:
                return f"{base}{suffix}"
    return ""


def _is_bundled(folder: str, path: str, package: str) -> bool:
    """Whether the skill brings a package in a `node_modules` that Node finds from a file."""
    parent = path.rpartition("/")[0]
    while True:
        if os.path.isdir(os.path.join(folder, parent, "node_modules", *package.split("/"))):
            return True
        if not parent:
            return False
        parent = parent.rpartition("/")[0]
