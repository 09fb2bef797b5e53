"""Harmful loops in Python code: over the user's files, or without end.

Analyses loops in the syntax tree: what they iterate over, and which functions they call, also one
level deeper. A filter for caches, or by age, counts as cleaning up.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, NamedTuple

from satchel.security.report import OutOfTime
from satchel.security.shell_rules import is_generated_path, is_home, is_work, names_fixed_host

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
_MAX_NAME_DEPTH = 40
_MAX_TEXT_CHARS = 4096


class ImportedNames:
    """The imported names, assigned texts and functions of a module."""

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
        text = constant_text(value)
        if text:
            self.texts.setdefault(target.id, text)
        elif isinstance(value, ast.Attribute):
            name = self.dotted(value)
            if name and name.count(".") == 1:
                self._real.setdefault(target.id, name)

    def dotted(self, node: ast.expr, depth: int = 0) -> str | None:
        """`b.b64decode` -> `base64.b64decode`; None when it is not a plain name."""
        if depth > _MAX_NAME_DEPTH:
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
            return constant_text(node.args[0]) or None
        if name == "getattr" and len(node.args) > 1:
            base, attribute = self.dotted(node.args[0], depth + 1), constant_text(node.args[1])
            if base and attribute:
                plain = base in {"__builtins__", "builtins"}
                return attribute if plain else f"{base}.{attribute}"
        return None


def _statements(tree: ast.Module) -> Iterator[ast.stmt]:
    """Every statement at any depth."""
    todo: list[ast.AST] = [*reversed(tree.body)]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.stmt):
            yield node
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            inner: object = getattr(node, name, None)
            if isinstance(inner, list):
                todo += reversed(inner)  # pyright: ignore[reportUnknownArgumentType]


def constant_text(node: ast.expr, depth: int = 0) -> str:
    """The text of an expression, where it can be computed without running it."""
    if depth > _MAX_NAME_DEPTH:
        return ""
    if isinstance(node, ast.Constant):
        value = node.value
        if isinstance(value, bytes):
            value = value.decode("latin-1")
        return value[:_MAX_TEXT_CHARS] if isinstance(value, str) else ""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = constant_text(node.left, depth + 1), constant_text(node.right, depth + 1)
        return (left + right)[:_MAX_TEXT_CHARS] if left and right else ""
    if isinstance(node, ast.Subscript):
        return constant_text(node.value, depth + 1)[::-1] if _backwards(node.slice) else ""
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
            parts = [constant_text(part, depth + 1) for part in node.args[0].elts[:200]]
            return constant_text(function.value, depth + 1).join(parts) if all(parts) else ""
        if function.attr in {"strip", "lower", "decode", "expanduser", "encode"}:
            inner = constant_text(function.value, depth + 1)
            return inner or (constant_text(node.args[0], depth + 1) if node.args else "")
    if node.args and isinstance(function, ast.Attribute | ast.Name):
        name = function.attr if isinstance(function, ast.Attribute) else function.id
        if name in {"Path", "expanduser", "expandvars", "PurePath"}:
            return constant_text(node.args[0], depth + 1)
    return ""


def is_assembled(node: ast.expr) -> bool:
    """Whether a text is assembled from pieces instead of a literal."""
    return not isinstance(node, ast.Constant | ast.Name | ast.Attribute | ast.JoinedStr)


def _backwards(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Slice)
        and isinstance(node.step, ast.UnaryOp)
        and isinstance(node.step.op, ast.USub)
    )


_GOES = re.compile(
    r"\b(?:walk|rglob|glob|iglob|iterdir|scandir|listdir|make_archive|tarfile|zipfile)\b"
)
_ACTS = re.compile(
    r"\b(?:remove|unlink|rmtree|encrypt\w*|post|put|urlopen|sendall|storbinary|upload_file\w*)\b"
)
_ENDLESS = re.compile(r"\bwhile (?:True|1)\b|\brange\((?:\d{4,}|10 ?\*\*|\d+_\d{3})")
_REPEATS = re.compile(r"\b(?:requests|httpx|urlopen|urllib|socket|fork|Process|append|aiohttp)\b")
_REMOVES = frozenset(("os.remove", "os.unlink", "shutil.rmtree", "pathlib.Path.unlink"))
_UPLOADS = frozenset(("post", "put", "sendall", "storbinary", "upload_file", "upload_fileobj"))
_ENCRYPTS = frozenset(("encrypt", "encryptor", "encrypt_and_digest", "Fernet", "AESGCM"))
_SHOWN = _ENCRYPTS | _UPLOADS | {"remove", "unlink", "rmtree", "rename"}
_ASKS = frozenset((
    "requests.get", "requests.post", "requests.head", "requests.request", "httpx.get",
    "httpx.post", "urllib.request.urlopen", "requests.put",
))  # fmt: skip
_PAUSES = frozenset(
    ("sleep", "input", "accept", "recv", "wait", "readline", "exit", "next", "poll")
)
_AGES = frozenset(("st_mtime", "st_ctime", "st_atime", "getmtime", "getctime", "getatime"))
_SAME = frozenset((
    "Path", "PurePath", "abspath", "realpath", "expanduser", "expandvars", "resolve", "sorted",
    "list", "walk", "scandir", "listdir", "iterdir", "str", "glob", "iglob", "rglob", "absolute",
))  # fmt: skip
_MAX_PATH_DEPTH = 8
_MAX_VISITED_NODES = 1_000_000
"""Of the bodies of all loops of a module: nested ones are visited again."""


RuleHit = tuple[str, int, str]
"""A rule, the line from 1, and the evidence."""


class _Body(NamedTuple):
    """The body of a loop or a function."""

    calls: frozenset[str]
    words: frozenset[str]
    names: frozenset[str]
    leaves: bool
    """Whether it can end the loop."""


def prefilter(text: str) -> bool:
    """Whether a module contains the words of an issue."""
    if _GOES.search(text) and _ACTS.search(text):
        return True
    return bool(_ENDLESS.search(text) and _REPEATS.search(text))


class PythonIssues:
    """Finds the issues of a module."""

    def __init__(self, tree: ast.Module, names: ImportedNames, text: str) -> None:
        self.tree = tree
        self.names = names
        self.away = names_fixed_host(text)
        self.visited = 0
        self.values: dict[str, ast.expr] = {}
        self.bodies: dict[str, _Body] = {}
        self.functions: dict[str, ast.FunctionDef | ast.AsyncFunctionDef] = {}
        self.loops: list[ast.For | ast.While | ast.AsyncFor] = []

    def all(self) -> Iterator[RuleHit]:
        """The issues, in the order of the loops.

        Raises:
            OutOfTime: its loops are too large.
        """
        calls: list[ast.Call] = []
        for node in ast.walk(self.tree):
            if isinstance(node, ast.For | ast.While | ast.AsyncFor):
                self.loops.append(node)
                if not isinstance(node, ast.While) and isinstance(node.target, ast.Name):
                    self.values[node.target.id] = node.iter
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                self.values[node.targets[0].id] = node.value
            elif isinstance(node, ast.Call):
                calls.append(node)
        self.functions = {one.name: one for one in self.names.functions}
        for loop in self.loops:
            if isinstance(loop, ast.While):
                yield from self._endless(loop)
            else:
                yield from self._over_files(loop)
                yield from self._many(loop)
        yield from self._packed(calls)

    def _body(self, body: list[ast.stmt]) -> _Body:
        calls: set[str] = set()
        words: set[str] = set()
        names: set[str] = set()
        leaves = False
        if self.visited > _MAX_VISITED_NODES:
            raise OutOfTime
        for part in body:
            for node in ast.walk(part):
                self.visited += 1
                if isinstance(node, ast.Name):
                    names.add(node.id)
                elif isinstance(node, ast.Call):
                    calls.add(self._named(node))
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    words.add(node.value[:200])
                elif isinstance(node, ast.Attribute):
                    words.add(node.attr)
                elif isinstance(node, ast.Break | ast.Return | ast.Raise | ast.Yield | ast.Await):
                    leaves = True
        return _Body(frozenset(calls), frozenset(words), frozenset(names), leaves)

    def _function(self, name: str) -> _Body:
        if name not in self.bodies:
            self.bodies[name] = self._body(self.functions[name].body)
        return self.bodies[name]

    def _named(self, call: ast.Call) -> str:
        name = self.names.dotted(call.func)
        if name:
            return name
        return call.func.attr if isinstance(call.func, ast.Attribute) else ""

    def _deep(self, body: list[ast.stmt]) -> _Body:
        """A body with the functions of this module that it calls or starts."""
        own = self._body(body)
        inner = [self._function(one) for one in own.names if one in self.functions]
        return _Body(
            own.calls.union(*(one.calls for one in inner)),
            own.words.union(*(one.words for one in inner)),
            own.names,
            own.leaves,
        )

    # --- loops over files -----------------------------------------------------------------

    def _over_files(self, loop: ast.For | ast.AsyncFor) -> Iterator[RuleHit]:
        if not self._walks(loop.iter):
            return
        where = self.path(loop.iter)
        body = self._deep(loop.body)
        lasts = {one.rpartition(".")[2] for one in body.calls}
        removes = bool(body.calls & _REMOVES or lasts & {"unlink", "rmtree"})
        tidies = any(is_generated_path(word) for word in body.words | {where}) or body.words & _AGES
        shown = f"{where or '…'}: {', '.join(sorted(lasts & _SHOWN))}"
        if lasts & _ENCRYPTS and (removes or lasts & {"rename", "replace"} or "wb" in body.words):
            if not any("decrypt" in one for one in self.functions):
                yield "encrypts-user-files", loop.lineno, shown
            return
        if removes and not tidies:
            if is_home(where):
                yield "deletes-user-files", loop.lineno, shown
            elif is_work(where):
                yield "deletes-work-files", loop.lineno, shown
        if self.away and (body.calls & SENDERS or lasts & _UPLOADS):
            if is_home(where):
                yield "sends-user-folder", loop.lineno, shown
            elif is_work(where):
                yield "sends-work-folder", loop.lineno, shown

    def _walks(self, node: ast.expr) -> bool:
        for part in ast.walk(node):
            if isinstance(part, ast.Call) and _GOES.search(self._named(part)):
                return True
            if isinstance(part, ast.Name):
                value = self.values.get(part.id)
                if isinstance(value, ast.Call) and _GOES.search(self._named(value)):
                    return True
        return False

    def path(self, node: ast.expr, depth: int = 0) -> str:
        """A path in shell notation, as far as it can be computed."""
        if depth > _MAX_PATH_DEPTH:
            return ""
        if isinstance(node, ast.Name):
            value = self.values.get(node.id)
            return self.path(value, depth + 1) if value is not None else ""
        if isinstance(node, ast.BinOp):
            left, right = self.path(node.left, depth + 1), self.path(node.right, depth + 1)
            return f"{left.rstrip('/')}/{right.lstrip('/')}" if left else ""
        if isinstance(node, ast.List | ast.Tuple):
            return " ".join(self.path(one, depth + 1) for one in node.elts[:20])
        if isinstance(node, ast.Call):
            return self._called_path(node, depth)
        return constant_text(node)

    def _called_path(self, node: ast.Call, depth: int) -> str:
        name = self._named(node)
        last = name.rpartition(".")[2]
        if last == "home" and "Path" in name:
            return "~"
        if last in {"getcwd", "cwd"}:
            return "."
        if last == "join" and node.args:
            parts = [self.path(one, depth + 1) for one in node.args]
            return "/".join(part.rstrip("/") for part in parts if part)
        if last not in _SAME:
            return ""
        if isinstance(node.func, ast.Attribute):
            base = self.path(node.func.value, depth + 1)
            if base and name.partition(".")[0] not in {"os", "glob", "pathlib"}:
                kinds = constant_text(node.args[0]) if node.args and "glob" in last else ""
                return f"{base.rstrip('/')}/{kinds}" if kinds else base
            if not base and name.partition(".")[0] not in {"os", "glob", "pathlib"}:
                return ""
        return self.path(node.args[0], depth + 1) if node.args else ""

    # --- loops without end ----------------------------------------------------------------

    def _endless(self, loop: ast.While) -> Iterator[RuleHit]:
        if not (isinstance(loop.test, ast.Constant) and loop.test.value):
            return
        body = self._deep(loop.body)
        lasts = {one.rpartition(".")[2] for one in body.calls}
        if body.leaves or lasts & _PAUSES:
            return
        if "os.fork" in body.calls or "multiprocessing.Process" in body.calls:
            yield "exhausts-machine", loop.lineno, "processes without end"
        elif self._grows(loop):
            yield "exhausts-machine", loop.lineno, "memory without end"
        elif body.calls & _ASKS and self.away:
            side = lasts & {"Thread", "submit", "create_task", "gather"}
            rule = "floods-host" if side else "many-requests"
            yield rule, loop.lineno, min(body.calls & _ASKS)

    def _grows(self, loop: ast.While) -> bool:
        for node in ast.walk(loop):
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
                for side in (node.left, node.right):
                    value = side.value if isinstance(side, ast.Constant) else 0
                    power = isinstance(side, ast.BinOp) and isinstance(side.op, ast.Pow)
                    if power or (isinstance(value, int) and value >= 100_000):
                        return True
        return False

    def _many(self, loop: ast.For | ast.AsyncFor) -> Iterator[RuleHit]:
        """A loop with many rounds that sends or starts a request in each."""
        rounds = loop.iter
        if not isinstance(rounds, ast.Call) or self._named(rounds) != "range" or not rounds.args:
            return
        most = rounds.args[min(1, len(rounds.args) - 1)]
        if isinstance(most, ast.Name):
            most = self.values.get(most.id, most)
        number = most.value if isinstance(most, ast.Constant) else 0
        if not isinstance(number, int) or number < 100 or not self.away:
            return
        body = self._deep(loop.body)
        lasts = {one.rpartition(".")[2] for one in body.calls}
        if not body.calls & _ASKS:
            return
        side = lasts & {"Thread", "submit", "create_task"}
        if body.leaves or lasts & _PAUSES or number < (100 if side else 1000):
            return
        yield "floods-host" if side else "many-requests", loop.lineno, f"{number} rounds"

    # --- archives -------------------------------------------------------------------------

    def _packed(self, calls: list[ast.Call]) -> Iterator[RuleHit]:
        if not self.away:
            return
        named = [(call, self._named(call)) for call in calls]
        if not any(name in SENDERS or name.rpartition(".")[2] in _UPLOADS for _, name in named):
            return
        tars = any("tarfile" in name for _, name in named)
        for call, name in named:
            last = name.rpartition(".")[2]
            if last == "make_archive":
                root = [one.value for one in call.keywords if one.arg == "root_dir"]
                given = root or call.args[2:3]
            elif last == "add" and call.args and tars:
                given = call.args[:1]
            else:
                continue
            where = self.path(given[0]) if given else "."
            if is_home(where):
                yield "sends-user-folder", call.lineno, f"{last}: {where}"
            elif is_work(where):
                yield "sends-work-folder", call.lineno, f"{last}: {where}"
