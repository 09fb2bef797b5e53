"""What is a thing called in Python, however it was imported or spelled?"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

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
_DEEPEST = 40
_LONGEST = 4096


class Names:
    """Names of a module, by what they were imported as; and texts that were given names."""

    def __init__(self, tree: ast.Module) -> None:
        self._real: dict[str, str] = {}
        self.texts: dict[str, str] = {}
        self.functions: list[ast.FunctionDef | ast.AsyncFunctionDef] = []
        for node in _statements(tree):
            if isinstance(node, ast.Import):
                for one in node.names:
                    if one.asname:
                        self._real[one.asname] = one.name
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                for one in node.names:
                    self._real[one.asname or one.name] = f"{node.module}.{one.name}"
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                self.functions.append(node)
            elif isinstance(node, ast.Assign) and len(node.targets) == 1:
                self._given(node.targets[0], node.value)

    def _given(self, target: ast.expr, value: ast.expr) -> None:
        if not isinstance(target, ast.Name):
            return
        text = folded(value)
        if text:
            self.texts.setdefault(target.id, text)
        elif isinstance(value, ast.Attribute):
            name = self.dotted(value)
            if name and name.count(".") == 1:
                self._real.setdefault(target.id, name)

    def dotted(self, node: ast.expr, depth: int = 0) -> str | None:
        """`b.b64decode` -> `base64.b64decode`; None when it is no plain name."""
        if depth > _DEEPEST:
            return None
        if isinstance(node, ast.Name):
            return self._real.get(node.id, node.id)
        if isinstance(node, ast.Attribute):
            base = self.dotted(node.value, depth + 1)
            return None if base is None else f"{base}.{node.attr}"
        if isinstance(node, ast.Call) and node.args:
            return self._called(node, depth)
        return None

    def _called(self, node: ast.Call, depth: int) -> str | None:
        name = self.dotted(node.func, depth + 1)
        if name in {"__import__", "importlib.import_module"}:
            return folded(node.args[0]) or None
        if name == "getattr" and len(node.args) > 1:
            base, attribute = self.dotted(node.args[0], depth + 1), folded(node.args[1])
            if base and attribute:
                plain = base in {"__builtins__", "builtins"}
                return attribute if plain else f"{base}.{attribute}"
        return None


def _statements(tree: ast.Module) -> Iterator[ast.stmt]:
    """Every statement, however deep; expressions hold none."""
    todo: list[ast.AST] = [*reversed(tree.body)]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.stmt):
            yield node
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            inner: object = getattr(node, name, None)
            if isinstance(inner, list):
                todo += reversed(inner)  # pyright: ignore[reportUnknownArgumentType]


def folded(node: ast.expr, depth: int = 0) -> str:
    """The text that an expression is, when it can be told without running it."""
    if depth > _DEEPEST:
        return ""
    if isinstance(node, ast.Constant):
        value = node.value
        if isinstance(value, bytes):
            value = value.decode("latin-1")
        return value[:_LONGEST] if isinstance(value, str) else ""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = folded(node.left, depth + 1), folded(node.right, depth + 1)
        return (left + right)[:_LONGEST] if left and right else ""
    if isinstance(node, ast.Subscript):
        return folded(node.value, depth + 1)[::-1] if _backwards(node.slice) else ""
    if isinstance(node, ast.Call):
        return _called_text(node, depth)
    return ""


def _called_text(node: ast.Call, depth: int) -> str:
    function = node.func
    if isinstance(function, ast.Name) and function.id == "chr" and node.args:
        value = node.args[0]
        code = value.value if isinstance(value, ast.Constant) else None
        return chr(code) if isinstance(code, int) and 0 < code < 0x110000 else ""
    if isinstance(function, ast.Attribute):
        if function.attr == "join" and node.args and isinstance(node.args[0], ast.List | ast.Tuple):
            parts = [folded(part, depth + 1) for part in node.args[0].elts[:200]]
            return folded(function.value, depth + 1).join(parts) if all(parts) else ""
        if function.attr in {"strip", "lower", "decode", "expanduser", "encode"}:
            inner = folded(function.value, depth + 1)
            return inner or (folded(node.args[0], depth + 1) if node.args else "")
    if node.args and isinstance(function, ast.Attribute | ast.Name):
        name = function.attr if isinstance(function, ast.Attribute) else function.id
        if name in {"Path", "expanduser", "expandvars", "PurePath"}:
            return folded(node.args[0], depth + 1)
    return ""


def is_built(node: ast.expr) -> bool:
    """Whether a text is put together from pieces instead of written down."""
    return not isinstance(node, ast.Constant | ast.Name | ast.Attribute | ast.JoinedStr)


def _backwards(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Slice)
        and isinstance(node.step, ast.UnaryOp)
        and isinstance(node.step.op, ast.USub)
    )
