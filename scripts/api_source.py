"""Reads signatures and docstrings from the source, for the pages of the Python API.

The source is parsed and not imported: adapters need no framework here, and annotations are shown as
they are written.
"""

from __future__ import annotations

import ast
import os
import re
from copy import deepcopy
from functools import cache
from inspect import cleandoc
from textwrap import dedent
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
Function = ast.FunctionDef | ast.AsyncFunctionDef

_SECTION = re.compile(r"(Args|Returns|Yields|Raises|Example):\n((?:(?:    .*)?\n)*)", re.MULTILINE)
_ITEM = re.compile(r"^(\w+): ", re.MULTILINE)


class Docstring(NamedTuple):
    """A docstring and its sections."""

    text: str = ""
    """All paragraphs before the first section."""
    arguments: Mapping[str, str] = MappingProxyType({})
    returns: str = ""
    raises: Mapping[str, str] = MappingProxyType({})
    example: str = ""

    @property
    def summary(self) -> str:
        """The first paragraph, in one line."""
        return " ".join(self.text.partition("\n\n")[0].split())


class Field(NamedTuple):
    """A field of a record, an attribute or a property."""

    name: str
    annotation: ast.expr | None
    default: str
    words: str


class Method(NamedTuple):
    """A function of a class."""

    node: ast.FunctionDef | ast.AsyncFunctionDef
    twin: bool = False
    """Whether there is an asynchronous function of the same name with an `a` in front."""

    @property
    def decorators(self) -> set[str]:
        """Names such as `property`."""
        return {ast.unparse(one) for one in self.node.decorator_list}


class Found(NamedTuple):
    """A definition, and the module that has it."""

    module: str
    node: Any


def parse_docstring(text: str) -> Docstring:
    """Split a docstring into its text and its sections."""
    text = cleandoc(text) + "\n"
    found = {match[1]: dedent(match[2]).strip() for match in _SECTION.finditer(text)}
    return Docstring(
        _SECTION.sub("", text).strip(),
        _items(found.get("Args", "")),
        found.get("Returns", found.get("Yields", "")),
        _items(found.get("Raises", "")),
        found.get("Example", ""),
    )


def _items(section: str) -> dict[str, str]:
    parts = _ITEM.split(section)
    return {
        name: " ".join(words.split()) for name, words in zip(parts[1::2], parts[2::2], strict=True)
    }


def docstring(node: Any) -> Docstring:
    """The docstring of a class or function; empty without one."""
    return parse_docstring(ast.get_docstring(node) or "")


# --- modules ------------------------------------------------------------------------------


@cache
def tree(module: str) -> ast.Module:
    """A module of the package."""
    path = os.path.join(ROOT, "src", *module.split("."))
    path = f"{path}.py" if os.path.exists(f"{path}.py") else os.path.join(path, "__init__.py")
    with open(path, encoding="utf-8") as file:
        return ast.parse(file.read())


def exported(module: str) -> list[str]:
    """The names in `__all__`.

    Raises:
        SystemExit: the module has no such list.
    """
    for node in tree(module).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return list(ast.literal_eval(node.value))
    raise SystemExit(f"error: `{module}` has no `__all__`")


@cache
def find(module: str, name: str) -> Found | None:
    """The definition of a name that a module has or imports; None when it is not one of ours."""
    for body in _bodies(tree(module)):
        for node in body:
            if isinstance(node, ast.ClassDef | Function) and node.name == name:
                return Found(module, node)
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
                return Found(module, node)
            if isinstance(node, ast.ImportFrom) and node.module:
                for one in node.names:
                    if (one.asname or one.name) == name:
                        home = node.module
                        return find(home, one.name) if home.startswith("satchel") else None
    return None


def _bodies(node: ast.Module) -> list[list[ast.stmt]]:
    """What runs when a module is imported, or is read by type checkers."""
    inner = [one for one in node.body if isinstance(one, ast.If | ast.Try)]
    return [node.body, *(one.body for one in inner)]


def words_below(body: list[ast.stmt], node: ast.stmt) -> str:
    """The text that stands below an assignment, in one line."""
    after = body[body.index(node) + 1 :][:1]
    match after:
        case [ast.Expr(value=ast.Constant(value=str(text)))]:
            return " ".join(text.split())
        case _:
            return ""


def alias_words(found: Found) -> str:
    """The text below a type alias."""
    bodies = (body for body in _bodies(tree(found.module)) if found.node in body)
    return next((words_below(body, found.node) for body in bodies), "")


# --- classes ------------------------------------------------------------------------------


def bases(found: Found) -> list[tuple[str, Found | None]]:
    """The base classes as they are written, with the definitions of those that are ours."""
    names = [ast.unparse(base).partition("[")[0] for base in found.node.bases]
    return [(name, find(found.module, name)) for name in names]


def is_record(found: Found) -> bool:
    """Whether a class is a named tuple or a typed dictionary."""
    return any(
        name in {"NamedTuple", "TypedDict"} or (base is not None and is_record(base))
        for name, base in bases(found)
    )


def methods(found: Found) -> dict[str, Method]:
    """Public methods and properties of a class and its bases, without the asynchronous twins."""
    functions: dict[str, Any] = {}
    others: set[str] = set()
    for _, base in bases(found):
        if base is not None and isinstance(base.node, ast.ClassDef):
            functions |= {name: one.node for name, one in methods(base).items()}
    for node in found.node.body:
        if isinstance(node, Function) and not _is_overload(node):
            functions[node.name] = node
        elif isinstance(node, ast.Assign):
            others.add(ast.unparse(node.targets[0]))
    every = {*functions, *others}
    return {
        name: Method(node, f"a{name}" in every)
        for name, node in functions.items()
        if name[0] != "_" and not (name[0] == "a" and name[1:] in functions)
    }


def _is_overload(node: Any) -> bool:
    return any(ast.unparse(one) == "overload" for one in node.decorator_list)


def constructor(found: Found) -> ast.FunctionDef | None:
    """The `__init__` of a class or of its nearest base that is ours."""
    for node in found.node.body:
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            return node
    for _, base in bases(found):
        if base is not None and isinstance(base.node, ast.ClassDef):
            inner = constructor(base)
            if inner is not None:
                return inner
    return None


def fields(found: Found) -> list[Field]:
    """The fields of a record, with those of its bases; the public attributes of other classes."""
    rows: dict[str, Field] = {}
    for _, base in bases(found):
        if base is not None and isinstance(base.node, ast.ClassDef):
            rows |= {row.name: row for row in fields(base)}
    body = found.node.body
    for node in body:
        match node:
            case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation, value=value):
                default = code(value) if value is not None else ""
                rows[name] = Field(name, annotation, default, words_below(body, node))
            case _:
                pass
    init = constructor(found)
    made = init.body if init is not None else []
    for node in made:
        match node:
            case ast.Assign(targets=[ast.Attribute(attr=name)]) if words_below(made, node):
                rows[name] = Field(name, None, "", words_below(made, node))
            case ast.AnnAssign(target=ast.Attribute(attr=name), annotation=annotation):
                if words_below(made, node):
                    rows[name] = Field(name, annotation, "", words_below(made, node))
            case _:
                pass
    return [row for name, row in rows.items() if name[0] != "_" and "init=False" not in row.default]


# --- functions ----------------------------------------------------------------------------


def parameters(node: Any) -> list[Field]:
    """The parameters of a function, without `self`."""
    args = node.args
    positional = [*args.posonlyargs, *args.args]
    missing = [None] * (len(positional) - len(args.defaults))
    pairs = [*zip(positional, [*missing, *args.defaults], strict=True)]
    pairs += [(args.vararg, None)] * (args.vararg is not None)
    pairs += zip(args.kwonlyargs, args.kw_defaults, strict=True)
    pairs += [(args.kwarg, None)] * (args.kwarg is not None)
    given = docstring(node).arguments
    return [
        Field(
            _stars(args, one) + one.arg,
            one.annotation,
            code(default) if default is not None else "",
            given.get(one.arg, ""),
        )
        for one, default in pairs
        if one.arg not in {"self", "cls"}
    ]


def _stars(args: ast.arguments, one: ast.arg) -> str:
    return "*" if one is args.vararg else "**" if one is args.kwarg else ""


def signature(name: str, node: Any, module: str, width: int = 76) -> str:
    """How a function is called: in one line, or with a line for each parameter."""
    parts = [_parameter(row, module) for row in parameters(node)]
    first = len([one for one in [*node.args.posonlyargs, *node.args.args] if one.arg != "self"])
    first -= any(one.arg == "cls" for one in node.args.args)
    if node.args.kwonlyargs and node.args.vararg is None:
        parts.insert(first, "*")
    start = "async " if isinstance(node, ast.AsyncFunctionDef) else ""
    arrow = "" if node.returns is None else f" -> {spelled_out(node.returns, module)}"
    arrow = "" if node.name == "__init__" else arrow
    line = f"{start}{name}({', '.join(parts)}){arrow}"
    if len(line) <= width:
        return line
    return "\n".join([f"{start}{name}(", *(f"    {part}," for part in parts), f"){arrow}"])


def _parameter(row: Field, module: str) -> str:
    annotation = ""
    if row.annotation is not None:
        annotation = f": {spelled_out(row.annotation, module)}"
    equals = " = " if annotation else "="
    return row.name + annotation + (equals + row.default if row.default else "")


class _SpelledOut(ast.NodeTransformer):
    """Replaces names that stand for a few values, and those of constrained type variables."""

    def __init__(self, module: str, kept: Collection[str] | None) -> None:
        self.module = module
        self.kept = kept

    def visit_Name(self, node: ast.Name) -> ast.expr:
        found = find(self.module, node.id)
        match found.node if found is not None else None:
            case ast.Assign(value=ast.Subscript(value=ast.Name(id="Literal")) as value):
                return node if self.kept is None or node.id in self.kept else value
            case ast.Assign(value=ast.Call(func=ast.Name(id="TypeVar"), args=[_, *options])):
                texts = [
                    ast.literal_eval(one) if isinstance(one, ast.Constant) else one.id
                    for one in options
                    if isinstance(one, ast.Constant | ast.Name)
                ]
                return ast.parse(" | ".join(texts) or node.id, mode="eval").body
            case _:
                return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        if ast.unparse(node.value) == "Unpack":
            return node.slice
        self.generic_visit(node)
        return node


def spelled_out(annotation: ast.expr, module: str, kept: Collection[str] | None = None) -> str:
    """An annotation without names that only Satchel's own source needs.

    Args:
        annotation: The annotation.
        module: Where it stands.
        kept: Names of a few values that stay; all of them when None.
    """
    return code(_SpelledOut(module, kept).visit(deepcopy(annotation)))


def code(node: ast.AST) -> str:
    """Source text, with the quotes that ruff prefers."""
    return re.sub(r"'([^'\"\\]*)'", r'"\1"', ast.unparse(node))
