"""Writes the page of the Python API from signatures and docstrings.

The source is parsed and not imported: adapters need no framework here, and annotations are shown as
they are written.
"""

from __future__ import annotations

import ast
import os
from copy import deepcopy
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MOST_NAMES = {
    "satchel": 20,
    "satchel.detect": 13,
    "satchel.goals": 14,
    "satchel.agent": 13,
    "satchel.testing": 3,
}
"""The packages, with how many names each may export at most."""
FIRST = ("Satchel", "Session", "Agent", "AgentSteps", "Engine")
"""What most programs use comes first on the page."""
LISTED = {
    # Those of `Engine` and `BaseDetector`:
    **dict.fromkeys(("DbosEngine", "LocalEngine", "TemporalEngine"), ()),
    **dict.fromkeys(
        ("HybridDetector", "LexicalDetector", "ModelDetector", "SelectionPipeline"), ()
    ),
    "Detection": ("fits", "names"),
    "Budget": ("of", "tokens", "share"),
    "Filter": (),
    "Library": (
        "snapshot",
        "refresh",
        "list_skills",
        "get_skill",
        "load_content",
        "close",
    ),
    "Location": (),
    "Problem": ("severity", "message", "fix", "to_dict"),
    "SatchelError": (),
    "Trace": ("listen", "history"),
}
"""Classes that have more methods than those for programs."""
UNLISTED = {
    "Satchel": ("explain_selection", "init", "preview", "store_of"),
    "Session": (
        "begin_turn", "forget_news", "offers", "owners", "reminder_due", "resolve",
        "take", "told", "within_reach",
    ),
}  # fmt: skip
"""Methods for Satchel's own layers."""
NO_ARGUMENTS = frozenset(("Session",))
"""Classes that other parts make."""
Function = ast.FunctionDef | ast.AsyncFunctionDef


def api_page() -> Iterator[str]:
    """The lines of the page.

    Raises:
        SystemExit: a package exports too many names, or a public name has no docstring.
    """
    yield "Import a name from the package under which it is listed. Types of arguments with a"
    yield "default are left out. `async` names the asynchronous twin of a method, with the same"
    yield "arguments. Every error is a [`SatchelError`](errors.md). The adapters are described in"
    yield "[Use skills in your agent](../guides/use-in-your-agent.md)."
    yield ""
    for package, most in MOST_NAMES.items():
        names = _exported(package)
        if len(names) > most:
            raise SystemExit(f"error: `{package}` exports {len(names)} names; at most {most}")
        names = [name for name in names if package == "satchel" or name not in _exported("satchel")]
        yield f"## `{package}`"
        yield ""
        names.sort(key=lambda name: (name not in FIRST, name))
        for name in names:
            yield f"### `{name}`"
            yield ""
            yield from _entry(package, name)


def _entry(package: str, name: str) -> Iterator[str]:
    module, node = _find(package, name) or (package, None)
    if isinstance(node, ast.Assign):
        yield from _item(
            f"{name} = {ast.unparse(node.value)}", "Another name, or one of these types."
        )
        return
    if isinstance(node, Function):
        yield from _item(_signature(node), _first_paragraph(node))
        return
    if node is None:
        raise SystemExit(f"error: `{package}.{name}` is not defined")
    functions = _functions(module, node)
    yield from _item(_constructor(node, functions.get("__init__")), _first_paragraph(node))
    for one in LISTED.get(name, functions):
        hidden = one[0] == "_" or one in UNLISTED.get(name, ())
        if hidden or (one[0] == "a" and one[1:] in functions):
            continue
        more = f", async `a{one}`" if f"a{one}" in functions else ""
        yield from _item(_signature(functions[one]), _first_paragraph(functions[one]), more)


def _constructor(node: ast.ClassDef, init: Any) -> str:
    """How an object is made: by its `__init__`, or of a record's fields."""
    if node.name in NO_ARGUMENTS:
        return node.name
    if init is not None:
        return node.name + _signature(init).removeprefix("__init__")
    fields = [one for one in node.body if isinstance(one, ast.AnnAssign)]
    record = any(ast.unparse(base) == "NamedTuple" for base in node.bases)
    return f"{node.name}({', '.join(map(ast.unparse, fields))})" if record else node.name


def _signature(node: Any) -> str:
    decorators = {ast.unparse(one) for one in node.decorator_list}
    returns = f" -> {ast.unparse(node.returns)}".removesuffix(" -> None")
    if "property" in decorators:
        return f"{node.name}{returns.replace(' ->', ':')}"
    text = ast.unparse(_plain_defaults(node.args))
    for own in ("self", "cls"):
        text = text.removeprefix(own).removeprefix(", ") if text.startswith(own) else text
    start = "async " if isinstance(node, ast.AsyncFunctionDef) else ""
    return f"{start}{node.name}({text}){returns}"


def _plain_defaults(args: ast.arguments) -> ast.arguments:
    """The arguments, without the types of those that have a default."""
    args = deepcopy(args)
    positional = [*args.posonlyargs, *args.args]
    with_default = positional[len(positional) - len(args.defaults) :]
    pairs = zip(args.kwonlyargs, args.kw_defaults, strict=True)
    for one in [*with_default, *(one for one, default in pairs if default is not None)]:
        one.annotation = None
    return args


def _first_paragraph(node: Any) -> str:
    text = ast.get_docstring(node)
    if not text:
        raise SystemExit(f"error: `{node.name}` is public and has no docstring")
    return " ".join(text.partition("\n\n")[0].split()).replace("<", "&lt;")


def _item(code: str, words: str, more: str = "") -> Iterator[str]:
    yield f"- `{code}`{more}<br>"
    yield f"  {words}"
    yield ""


@cache
def _tree(module: str) -> ast.Module:
    path = os.path.join(ROOT, "src", *module.split("."))
    path = os.path.join(path, "__init__.py") if os.path.isdir(path) else f"{path}.py"
    with open(path, encoding="utf-8") as file:
        return ast.parse(file.read())


def _exported(module: str) -> list[str]:
    for node in _tree(module).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return list(ast.literal_eval(node.value))
    raise SystemExit(f"error: `{module}` has no `__all__`")


def _find(module: str, name: str) -> tuple[str, Any] | None:
    """The module and the definition of a name; None when it is not one of ours."""
    for node in ast.walk(_tree(module)):
        if isinstance(node, ast.ClassDef | Function) and node.name == name:
            return module, node
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            return module, node
        if isinstance(node, ast.ImportFrom) and name in [one.name for one in node.names]:
            home = str(node.module)
            return _find(home, name) if home.startswith("satchel") else None
    return None


def _functions(module: str, node: ast.ClassDef) -> dict[str, Any]:
    """The methods of a class by name, with those of its bases."""
    found: dict[str, Any] = {}
    for base in node.bases:
        above = _find(module, ast.unparse(base))
        found |= _functions(*above) if above else {}
    return found | {one.name: one for one in node.body if isinstance(one, Function)}
