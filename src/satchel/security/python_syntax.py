"""Parses Python code, and resolves the names and constant texts in its syntax tree.

The code may be incomplete: an excerpt, Python 2, or a module with broken lines. The data flow
analysis and the rules about loops use it, and its tables of well-known functions.
"""

from __future__ import annotations

import ast
import re
from textwrap import dedent
from typing import TYPE_CHECKING, NamedTuple

from satchel._threads import parse_module

if TYPE_CHECKING:
    from collections.abc import Iterator

    from satchel.security.report import TimeBudget

DECODERS = frozenset((
    "base64.b64decode", "base64.urlsafe_b64decode", "base64.standard_b64decode", "base64.b32decode",
    "base64.b16decode", "base64.b85decode", "base64.a85decode", "base64.decodebytes",
    "binascii.a2b_base64", "binascii.unhexlify", "binascii.a2b_hex", "zlib.decompress",
    "gzip.decompress", "lzma.decompress", "bz2.decompress", "codecs.decode", "bytes.fromhex",
    "bytearray.fromhex",
))  # fmt: skip
ENCODERS = frozenset((
    "base64.b64encode", "base64.urlsafe_b64encode", "base64.b32encode", "base64.b16encode",
    "base64.b85encode", "binascii.hexlify", "binascii.b2a_base64", "binascii.b2a_hex",
    "zlib.compress", "gzip.compress", "codecs.encode",
))  # fmt: skip
FETCHERS = frozenset((
    "requests.get", "requests.request", "urllib.request.urlopen", "urllib.request.urlretrieve",
    "httpx.get", "httpx.request", "urllib2.urlopen", "urllib.urlopen",
    "requests.Session.get", "urllib3.request", "aiohttp.request",
))  # fmt: skip
SENDERS = frozenset((
    "requests.post", "requests.put", "requests.patch", "requests.request", "httpx.post",
    "httpx.put", "httpx.patch", "httpx.request", "urllib.request.urlopen",
    "urllib.request.Request", "urllib2.urlopen", "aiohttp.request", "urllib3.request",
))  # fmt: skip
_MAX_NAME_DEPTH = 40
_MAX_TEXT_CHARS = 4096
_TEXT_PRESERVING_FUNCTIONS = frozenset(("Path", "PurePath", "expanduser", "expandvars"))
"""Functions whose results count as the texts of their arguments."""
_MAX_LEFT_OUT_LINES = 200
"""Of a module."""
_PROMPTS = frozenset((">>>", "..."))
_PYTHON_2_SYNTAX = tuple(
    (re.compile(pattern, re.MULTILINE), text)
    for pattern, text in (
        (r"(^[ \t]*|[:;][ \t]*)print\b[ \t]*(?:>>[ \t]*|(?=[\"'\w\[{`-]))", r"\1_ = "),
        (r"\bexec[ \t]+(?=[\"'\w])([^#;\n]+?)(?:[ \t]+in[ \t][^#;\n]+)?(?=[ \t]*(?:[#;]|$))",
         r"exec(\1)"),
        (r"\bexcept\b([^:\n]+),[ \t]*(\w+)[ \t]*:", r"except\1 as \2:"),
        (r"\braise[ \t]+([\w.]+[ \t]*,)", r"_ = \1"),
        (r"\b0(?=[0-7]+\b)", "0o"),
        (r"\b(\d+|0x[\da-f]+)[lL]\b", r"\1"),
        (r"\blambda[ \t]*\(([^()\n]*)\)[ \t]*:", r"lambda \1:"),
        (r"<>", "!="),
        (r"`", " "),
        (r"\b[uU](?=[rR][\"'])", ""),
    )
)  # fmt: skip
"""Pattern of what Python 2 writes in another way, and its replacement."""


class ParsedPython(NamedTuple):
    """The syntax tree of a module."""

    tree: ast.Module
    left_out_lines: dict[int, str]
    """The lines that cannot be parsed, by their index."""
    is_whole: bool = True
    """Whether nothing but `left_out_lines` is missing."""


def parse_python(text: str, budget: TimeBudget, *, tolerant: bool) -> ParsedPython:
    """Parse a module.

    Args:
        text: The module.
        budget: The time budget.
        tolerant: Whether Python 2 is translated, and lines that cannot be parsed are left out.
    """
    lines = text.split("\n")
    left_out: dict[int, str] = {}
    is_translated = False
    while True:
        budget.check()
        try:
            return ParsedPython(parse_module("\n".join(lines)), left_out)
        except SyntaxError as exc:
            if not tolerant or len(left_out) >= _MAX_LEFT_OUT_LINES:
                break
            if not is_translated:
                is_translated = True
                lines = _translate_python_2(text).split("\n")
                continue
            index = min(max(exc.lineno or 1, 1), len(lines)) - 1
            while index >= 0 and (index in left_out or not lines[index].strip()):
                index -= 1
            if index < 0:
                break
            left_out[index] = lines[index]
            lines[index] = _make_placeholder(lines, index)
        except (ValueError, RecursionError, MemoryError):
            break
    return ParsedPython(ast.Module([], []), {}, is_whole=False)


def extract_code(text: str) -> str:
    """Return the code of a fence without indentation and interpreter prompts."""
    if ">>>" in text:
        lines = map(str.strip, text.split("\n"))
        return "\n".join(line[4:] for line in lines if line[:3] in _PROMPTS)
    return dedent(text) if text[:1] in {" ", "\t"} else text.lstrip("\ufeff")


def _translate_python_2(text: str) -> str:
    text = text.expandtabs(8)
    for pattern, replacement in _PYTHON_2_SYNTAX:
        text = pattern.sub(replacement, text)
    return text


def _make_placeholder(lines: list[str], index: int) -> str:
    """Return a statement in the place of a line, with a body if one follows."""
    depth = _indentation(lines[index])
    next_line = next((line for line in lines[index + 1 :] if line.strip()), "")
    return " " * depth + ("if 1:" if _indentation(next_line) > depth else "pass")


def _indentation(line: str) -> int:
    return len(line) - len(line.lstrip())


class ImportedNames:
    """The imported names, assigned texts and functions of a module."""

    def __init__(self, tree: ast.Module) -> None:
        self._full_names: dict[str, str] = {}
        self.texts: dict[str, str] = {}
        """Variable -> the text that is assigned to it first."""
        self.functions: list[ast.FunctionDef | ast.AsyncFunctionDef] = []
        for node in _iterate_statements(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    if alias.asname:
                        self._full_names[alias.asname] = alias.name
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                for alias in node.names:
                    self._full_names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                self.functions.append(node)
            elif isinstance(node, ast.Assign) and len(node.targets) == 1:
                self._add_assignment(node.targets[0], node.value)

    def _add_assignment(self, target: ast.expr, value: ast.expr) -> None:
        if not isinstance(target, ast.Name):
            return
        text = read_constant_text(value)
        if text:
            self.texts.setdefault(target.id, text)
        elif isinstance(value, ast.Attribute):
            name = self.full_name(value)
            if name and name.count(".") == 1:
                self._full_names.setdefault(target.id, name)

    def full_name(self, node: ast.expr, depth: int = 0) -> str | None:
        """Return the full name, as in `b.b64decode` -> `base64.b64decode`; None for other nodes."""
        if depth > _MAX_NAME_DEPTH:
            return None
        if isinstance(node, ast.Name):
            return self._full_names.get(node.id, node.id)
        if isinstance(node, ast.Attribute):
            base = self.full_name(node.value, depth + 1)
            return None if base is None else f"{base}.{node.attr}"
        if isinstance(node, ast.Call) and node.args:
            return self._looked_up_name(node, depth)
        return None

    def _looked_up_name(self, node: ast.Call, depth: int) -> str | None:
        """Return the name that `__import__` or `getattr` looks up; None for other calls."""
        name = self.full_name(node.func, depth + 1)
        if name in {"__import__", "importlib.import_module"}:
            return read_constant_text(node.args[0]) or None
        if name == "getattr" and len(node.args) > 1:
            base, attribute = (
                self.full_name(node.args[0], depth + 1),
                read_constant_text(node.args[1]),
            )
            if base and attribute:
                is_built_in = base in {"__builtins__", "builtins"}
                return attribute if is_built_in else f"{base}.{attribute}"
        return None


def _iterate_statements(tree: ast.Module) -> Iterator[ast.stmt]:
    """Return every statement at any depth, in the order of the text."""
    stack: list[ast.AST] = [*reversed(tree.body)]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.stmt):
            yield node
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            inner: object = getattr(node, name, None)
            if isinstance(inner, list):
                stack += reversed(inner)  # pyright: ignore[reportUnknownArgumentType]


def read_constant_text(node: ast.expr, depth: int = 0) -> str:
    """Return the text of an expression; empty where it cannot be computed without running it."""
    if depth > _MAX_NAME_DEPTH:
        return ""
    if isinstance(node, ast.Constant):
        value = node.value
        if isinstance(value, bytes):
            value = value.decode("latin-1")
        return value[:_MAX_TEXT_CHARS] if isinstance(value, str) else ""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = (
            read_constant_text(node.left, depth + 1),
            read_constant_text(node.right, depth + 1),
        )
        return (left + right)[:_MAX_TEXT_CHARS] if left and right else ""
    if isinstance(node, ast.Subscript):
        return read_constant_text(node.value, depth + 1)[::-1] if _is_backwards(node.slice) else ""
    if isinstance(node, ast.Call):
        return _read_call_text(node, depth)
    return ""


def _read_call_text(node: ast.Call, depth: int) -> str:
    function = node.func
    if isinstance(function, ast.Attribute):
        return _read_method_text(function, node.args, depth)
    if not isinstance(function, ast.Name) or not node.args:
        return ""
    if function.id == "chr":
        return _read_character(node.args[0])
    return (
        read_constant_text(node.args[0], depth + 1)
        if function.id in _TEXT_PRESERVING_FUNCTIONS
        else ""
    )


def _read_method_text(method: ast.Attribute, arguments: list[ast.expr], depth: int) -> str:
    if method.attr in {"strip", "lower", "decode", "expanduser", "encode"}:
        text = read_constant_text(method.value, depth + 1)
        return text or (read_constant_text(arguments[0], depth + 1) if arguments else "")
    if not arguments:
        return ""
    if method.attr == "join" and isinstance(arguments[0], ast.List | ast.Tuple):
        parts = [read_constant_text(part, depth + 1) for part in arguments[0].elts[:200]]
        return read_constant_text(method.value, depth + 1).join(parts) if all(parts) else ""
    return (
        read_constant_text(arguments[0], depth + 1)
        if method.attr in _TEXT_PRESERVING_FUNCTIONS
        else ""
    )


def _read_character(value: ast.expr) -> str:
    """Return the character with a constant code."""
    code = value.value if isinstance(value, ast.Constant) else None
    return chr(code) if isinstance(code, int) and 0 < code < 0x110000 else ""


def is_assembled(node: ast.expr) -> bool:
    """Whether a text is assembled from pieces instead of a literal."""
    return not isinstance(node, ast.Constant | ast.Name | ast.Attribute | ast.JoinedStr)


def _is_backwards(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Slice)
        and isinstance(node.step, ast.UnaryOp)
        and isinstance(node.step.op, ast.USub)
    )
