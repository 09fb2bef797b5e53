"""The packages of a script: declared in the script or the skill, else inferred from its imports.

A Python script declares them in the block that PEP 723 defines, a skill in the `requirements.txt`
or `package.json` that is nearest to the script. Only packages of an index may be declared. A
`pyproject.toml` is not read: those of real skills name indexes of their own, or what imports show.

An import name is never taken as the name of a package: anyone may publish a package under it. Only
`import_names.toml` decides. `script_imports` finds the imports. An import that the script can do
without (`try: import x except ImportError: x = None`) is installed where the table has it, and left
out otherwise.
"""

from __future__ import annotations

import json
import os
import re
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from satchel.errors import BuildFailed
from satchel.i18n import say
from satchel.runners import npm_packages, python
from satchel.runners.build import list_files, read_inside, unpublished_error
from satchel.runners.script_imports import (
    PythonModules,
    find_package_name,
    iter_node_imports,
    load_import_names,
)
from satchel.settings import parse_toml

if TYPE_CHECKING:
    from collections.abc import Iterable

    from satchel.runners.script_imports import ForeignImport

EnvironmentSource = Literal["pep723", "requirements", "package.json", "inferred", "none"]
"""Where packages are named: in the script, in a file of the skill, nowhere (`inferred` from
imports), or there are none."""
_MAX_ENTRIES_SHOWN = 12
"""Of the wrong entries or unknown imports in one message."""
_BLOCK_START = "# /// script"
"""The first line of the block that PEP 723 defines."""
_PROJECT_FILE = "pyproject.toml"
_PYTHON_USE = re.compile(
    r"([\w-]+\.py)\b|\bpython[\d.]*\s+(?:-\w\s+){0,3}-m\s*([\w.]+)"
    r"|^[ \t]*(?:import|from)\s+([\w.]+)",
    re.MULTILINE,
)
"""A file, a module that is run, and an import in a here-document."""


class ScriptPackages(NamedTuple):
    """What a script needs."""

    source: EnvironmentSource = "none"
    packages: tuple[str, ...] = ()
    file: str = ""
    """The file that declares them, below the skill's folder; empty when none does."""
    missing: tuple[str, ...] = ()
    """Imports of unknown packages that the script can do without."""
    ignored: str = ""
    """A file that names packages, too, and is not read."""


def find_packages(
    folder: str, path: str, language: Literal["python", "node", "shell"]
) -> ScriptPackages:
    """Find the packages of a script.

    Args:
        folder: The skill's folder.
        path: The script below it, with `/`.
        language: A shell script finds the Python packages of a `requirements.txt`, else those of
            the Python files that it names.

    Raises:
        BuildFailed: they are unknown, or are not packages of an index.
    """
    if language == "node":
        return _read_package_json(folder, path) or _infer_for_node(folder, path)
    block = _read_block(path, read_inside(folder, path) or b"") if language == "python" else None
    if block is not None:
        return ScriptPackages("pep723", _read_dependencies(path, block), path)
    if file := _find_nearest(folder, path, python.REQUIREMENTS):
        if language == "python" and _uses_no_packages(folder, path):
            return ScriptPackages()
        lines = python.read_requirements(folder, file).split("\n")
        return ScriptPackages("requirements", tuple(filter(None, lines)), file)
    if language == "shell":
        return _infer_for_shell(folder, path)
    return _infer_for_python(folder, path)


def _find_nearest(folder: str, path: str, name: str) -> str:
    """Find the file of this name beside the script or above it, up to the skill's folder."""
    parent = path.rpartition("/")[0]
    while True:
        file = f"{parent}/{name}" if parent else name
        if os.path.lexists(os.path.join(folder, *file.split("/"))):
            return file
        if not parent:
            return ""
        parent = parent.rpartition("/")[0]


# --- package.json -------------------------------------------------------------------------


def _read_package_json(folder: str, path: str) -> ScriptPackages | None:
    """Read the nearest `package.json`; None where there is none, or it declares no packages."""
    file = _find_nearest(folder, path, npm_packages.PACKAGE_FILE)
    if not file:
        return None
    if npm_packages.has_modules(folder, os.path.dirname(file)):
        return ScriptPackages("package.json", file=file)
    table = npm_packages.read_package(folder, file)
    names = {**table.get("dependencies", {}), **table.get("optionalDependencies", {})}
    if not names:
        return None
    packages = tuple(f"{name}@{version}" for name, version in sorted(names.items()))
    node_dependencies(folder, packages, file)  # refuses what a lock file pins elsewhere
    return ScriptPackages("package.json", packages, file)


def node_dependencies(
    folder: str, packages: tuple[str, ...], file: str
) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Read what npm installs: the dependencies that `file` declares, and the lock file beside it.

    Raises:
        BuildFailed: they name something that is not a version in a registry.
    """
    if not packages:
        return {}, None
    if not file:
        return {"private": True, "dependencies": dict.fromkeys(packages, "*")}, None
    lock = os.path.join(os.path.dirname(file), npm_packages.LOCK_FILE)
    package = npm_packages.read_package(folder, file)
    return package, npm_packages.read_lock(folder, lock, package)


# --- PEP 723 ------------------------------------------------------------------------------


def _read_block(path: str, source: bytes) -> dict[str, Any] | None:
    """Read the table of the block in a script; None without a block.

    Raises:
        BuildFailed: it is not closed, is not TOML, is too large, or there are several.
    """
    lines = source.decode("utf-8-sig", "replace").splitlines()
    starts = [number for number, line in enumerate(lines) if line.rstrip() == _BLOCK_START]
    if not starts:
        return None
    if len(starts) > 1:
        raise _block_error(path, say("there are several"))
    content: list[str] = []
    line_count, is_closed = 0, False
    for line in lines[starts[0] + 1 :]:
        if line != "#" and not line.startswith("# "):
            break
        if line.rstrip() == "# ///":
            line_count, is_closed = len(content), True
        content.append(line[2:])
    if not is_closed:
        raise _block_error(path, say("the line `# ///` at its end is missing"))
    text = "\n".join(content[:line_count])
    if len(text) > python.MAX_FILE_BYTES:
        raise _block_error(path, say("it is too long"))
    try:
        return parse_toml(text)
    except (ValueError, RecursionError) as exc:
        raise _block_error(path, str(exc)[:200]) from exc


def _block_error(path: str, reason: str) -> BuildFailed:
    return BuildFailed(
        say("The block `{block}` in `{path}` cannot be used: {reason}",
            block=_BLOCK_START, path=path, reason=reason),
        say("Correct it"),
    )  # fmt: skip


def _read_dependencies(path: str, block: dict[str, Any]) -> tuple[str, ...]:
    """Read the packages of a block.

    Raises:
        BuildFailed: it names something else than packages of an index, or needs another Python.
    """
    version_range = block.get("requires-python", "")
    if not isinstance(version_range, str) or not python.fits(version_range):
        version = "{}.{}.{}".format(*sys.version_info)
        raise BuildFailed(
            say("`{path}` needs Python {wanted}; here is {version}",
                path=path, wanted=str(version_range)[:80], version=version),
            say("Run Satchel with another Python"),
        )  # fmt: skip
    packages: Any = block.get("dependencies", [])
    if not isinstance(packages, list):
        raise _block_error(path, say("`{name}` must be a list of texts", name="dependencies"))
    entries = cast("list[Any]", packages)
    refused = [f"`{str(entry)[:80]}`" for entry in entries if not python.is_package(entry)]
    if isinstance(block.get("tool"), dict) and "uv" in block["tool"]:
        refused.append("`[tool.uv]`")
    if refused:
        raise unpublished_error(path, refused[:_MAX_ENTRIES_SHOWN])
    return tuple(str(entry).strip() for entry in entries)


# --- inference ----------------------------------------------------------------------------


def _uses_no_packages(folder: str, path: str) -> bool:
    """Whether a Python script and the modules that it imports use no packages at all."""
    modules = PythonModules(folder, path)
    try:
        return not any(modules.iter_foreign_imports()) and not modules.sources.has_dynamic_imports
    except BuildFailed:
        return False


def _infer_for_shell(folder: str, path: str) -> ScriptPackages:
    """Find the packages of the Python that a shell script runs, as far as they are known."""
    text = (read_inside(folder, path) or b"").decode("utf-8", "replace")
    packages: set[str] = set()
    for file, *names in sorted(set(_PYTHON_USE.findall(text))):
        module = "".join(names)
        packages.add(find_package_name(load_import_names("python"), module))
        suffix = "/" + (file or module.replace(".", "/") + ".py")
        for script in list_files(folder):
            if f"/{script}".endswith(suffix):
                with suppress(BuildFailed):  # that script has a plan of its own
                    packages.update(find_packages(folder, script, "python").packages)
    sorted_packages = tuple(sorted(packages - {""}, key=str.lower))
    return ScriptPackages("inferred" if sorted_packages else "none", sorted_packages)


def _infer_for_python(folder: str, path: str) -> ScriptPackages:
    imports = PythonModules(folder, path).iter_foreign_imports()
    packages, unknown = _look_up_packages("python", imports)
    ignored = _find_nearest(folder, path, _PROJECT_FILE) if packages.packages or unknown else ""
    dependencies = json.dumps(_list_all_names(packages, unknown))
    _refuse_unknown(
        unknown,
        say(
            "Add this to the beginning of the script. Check the names first, because a package may "
            "have another name than its import: {block}",
            block=f"\n{_BLOCK_START}\n# dependencies = {dependencies}\n# ///",
        ),
        ignored,
    )
    return packages._replace(ignored=ignored)


def _infer_for_node(folder: str, path: str) -> ScriptPackages:
    packages, unknown = _look_up_packages("npm", iter_node_imports(folder, path))
    table = {"dependencies": dict.fromkeys(_list_all_names(packages, unknown), "*")}
    _refuse_unknown(
        unknown,
        say(
            "Add a `package.json` beside the script. Check the names first: {block}",
            block=json.dumps(table, ensure_ascii=False),
        ),
    )
    return packages


def _list_all_names(packages: ScriptPackages, unknown: list[tuple[str, str]]) -> list[str]:
    return [*packages.packages, *sorted({name for _, name in unknown})]


def unread_file_note(file: str) -> str:
    """Return the note about a file with packages that is not read."""
    return say(
        "`{file}` is not read: name packages in `requirements.txt` or in the script", file=file
    )


def _refuse_unknown(unknown: list[tuple[str, str]], hint: str, ignored: str = "") -> None:
    if unknown:
        hint = f"{unread_file_note(ignored)}\n{hint}" if ignored else hint
        lines = [f"{path}: `{name}`" for path, name in unknown[:_MAX_ENTRIES_SHOWN]]
        lines += ["…"] if len(unknown) > _MAX_ENTRIES_SHOWN else []
        raise BuildFailed("\n".join((say("No package is known for these imports:"), *lines)), hint)


def _look_up_packages(
    language: str, imports: Iterable[ForeignImport]
) -> tuple[ScriptPackages, list[tuple[str, str]]]:
    """Find the packages of imports, and the required imports (file and name) without one."""
    table = load_import_names(language)
    packages: set[str] = set()
    is_optional: dict[tuple[str, str], bool] = {}  # of the unknown imports
    for statement in imports:
        if package := find_package_name(table, statement.name):
            packages.add(package)
            continue
        name = statement.name.split(".")[0] if language == "python" else statement.name
        key = (statement.path, name)
        is_optional[key] = is_optional.get(key, True) and statement.is_optional
    required = sorted(key for key, optional in is_optional.items() if not optional)
    missing = tuple(sorted({name for (_, name), optional in is_optional.items() if optional}))
    sorted_packages = tuple(sorted(packages, key=str.lower))
    source: EnvironmentSource = "inferred" if sorted_packages else "none"
    return ScriptPackages(source, sorted_packages, missing=missing), required
