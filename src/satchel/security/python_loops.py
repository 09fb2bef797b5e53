"""Finds harmful loops in Python code: over the user's files, or without end.

The rules look at what a loop iterates over, and at which functions its body calls, also in the
functions of the module that it calls. A filter for caches, or by age, counts as cleaning up.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, NamedTuple

from satchel.security.python_syntax import SENDERS, read_constant_text
from satchel.security.report import OutOfTime
from satchel.security.shell_targets import is_generated_path, is_home, is_work, names_fixed_host

if TYPE_CHECKING:
    from collections.abc import Iterator

    from satchel.security.python_syntax import ImportedNames

_FILE_WALK_WORDS = re.compile(
    r"\b(?:walk|rglob|glob|iglob|iterdir|scandir|listdir|make_archive|tarfile|zipfile)\b"
)
_FILE_ACTION_WORDS = re.compile(
    r"\b(?:remove|unlink|rmtree|encrypt\w*|post|put|urlopen|sendall|storbinary|upload_file\w*)\b"
)
_ENDLESS_LOOP = re.compile(r"\bwhile (?:True|1)\b|\brange\((?:\d{4,}|10 ?\*\*|\d+_\d{3})")
_REPEATED_WORDS = re.compile(
    r"\b(?:requests|httpx|urlopen|urllib|socket|fork|Process|append|aiohttp)\b"
)
_REMOVERS = frozenset(("os.remove", "os.unlink", "shutil.rmtree", "pathlib.Path.unlink"))
_UPLOADERS = frozenset(("post", "put", "sendall", "storbinary", "upload_file", "upload_fileobj"))
_ENCRYPTERS = frozenset(("encrypt", "encryptor", "encrypt_and_digest", "Fernet", "AESGCM"))
_EVIDENCE_NAMES = _ENCRYPTERS | _UPLOADERS | {"remove", "unlink", "rmtree", "rename"}
_REQUESTERS = frozenset((
    "requests.get", "requests.post", "requests.head", "requests.request", "httpx.get",
    "httpx.post", "urllib.request.urlopen", "requests.put",
))  # fmt: skip
_PAUSING_CALLS = frozenset(
    ("sleep", "input", "accept", "recv", "wait", "readline", "exit", "next", "poll")
)
_AGE_ATTRIBUTES = frozenset(
    ("st_mtime", "st_ctime", "st_atime", "getmtime", "getctime", "getatime")
)
_PATH_PRESERVING_FUNCTIONS = frozenset((
    "Path", "PurePath", "abspath", "realpath", "expanduser", "expandvars", "resolve", "sorted",
    "list", "walk", "scandir", "listdir", "iterdir", "str", "glob", "iglob", "rglob", "absolute",
))  # fmt: skip
_PARALLEL_CALLS = frozenset(("Thread", "submit", "create_task"))
_MIN_PARALLEL_ROUNDS = 100
_MIN_ROUNDS = 1000
"""Of a loop that sends requests one after another."""
_MIN_LARGE_FACTOR = 100_000
_MAX_PATH_DEPTH = 8
_MAX_VISITED_NODES = 1_000_000
"""Of the bodies of all loops of a module: nested ones are visited again."""


class LoopIssue(NamedTuple):
    """A harmful loop, or an archive of the user's files that is sent away."""

    rule: str
    line: int
    """1-based line of the module."""
    evidence: str


def may_have_issue_part(text: str) -> bool:
    """Whether a part of a module contains a word of an issue."""
    patterns = (_FILE_WALK_WORDS, _FILE_ACTION_WORDS, _ENDLESS_LOOP, _REPEATED_WORDS)
    return any(pattern.search(text) for pattern in patterns)


def may_have_issue(text: str) -> bool:
    """Whether a module contains the words of an issue."""
    if _FILE_WALK_WORDS.search(text) and _FILE_ACTION_WORDS.search(text):
        return True
    return bool(_ENDLESS_LOOP.search(text) and _REPEATED_WORDS.search(text))


class _Body(NamedTuple):
    """What the body of a loop or a function contains."""

    calls: frozenset[str]
    """Full names of the functions that it calls."""
    words: frozenset[str]
    """Its texts and the names of its attributes."""
    names: frozenset[str]
    """Its variables and functions."""
    can_leave: bool
    """Whether it can end the loop."""

    @property
    def last_names(self) -> set[str]:
        """The last parts of the names of the calls."""
        return {name.rpartition(".")[2] for name in self.calls}

    def removes_files(self) -> bool:
        """Whether it calls a function that removes files."""
        return bool(self.calls & _REMOVERS or self.last_names & {"unlink", "rmtree"})

    def cleans_up(self, root: str) -> bool:
        """Whether the files in `root` are caches, or are chosen by their age."""
        return bool(self.words & _AGE_ATTRIBUTES) or any(
            map(is_generated_path, self.words | {root})
        )

    def encrypts_files(self) -> bool:
        """Whether files are replaced by encrypted ones."""
        if not self.last_names & _ENCRYPTERS:
            return False
        renames = bool(self.last_names & {"rename", "replace"})
        return self.removes_files() or renames or "wb" in self.words


def _select_folder_rules(root: str, home_rule: str, work_rule: str) -> tuple[str, ...]:
    """Return the rule about a folder: of the user, of their work, or none."""
    if is_home(root):
        return (home_rule,)
    return (work_rule,) if is_work(root) else ()


class LoopAnalyzer:
    """Finds the issues of one module."""

    def __init__(self, tree: ast.Module, names: ImportedNames, text: str) -> None:
        self._tree = tree
        self._names = names
        self._has_fixed_host = names_fixed_host(text)
        self._visited_nodes = 0
        self._values: dict[str, ast.expr] = {}
        self._bodies: dict[str, _Body] = {}
        self._functions = {function.name: function for function in names.functions}
        self._loops: list[ast.For | ast.While | ast.AsyncFor] = []

    def find_issues(self) -> Iterator[LoopIssue]:
        """Find the issues, in the order of the loops.

        Raises:
            OutOfTime: its loops are too large.
        """
        calls: list[ast.Call] = []
        for node in ast.walk(self._tree):
            if isinstance(node, ast.For | ast.While | ast.AsyncFor):
                self._loops.append(node)
                if not isinstance(node, ast.While) and isinstance(node.target, ast.Name):
                    self._values[node.target.id] = node.iter
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                self._values[node.targets[0].id] = node.value
            elif isinstance(node, ast.Call):
                calls.append(node)
        for loop in self._loops:
            if isinstance(loop, ast.While):
                yield from self._find_endless(loop)
            else:
                yield from self._find_file_loop(loop)
                yield from self._find_many_requests(loop)
        yield from self._find_sent_archives(calls)

    def _read_body(self, body: list[ast.stmt]) -> _Body:
        calls: set[str] = set()
        words: set[str] = set()
        names: set[str] = set()
        can_leave = False
        if self._visited_nodes > _MAX_VISITED_NODES:
            raise OutOfTime
        for part in body:
            for node in ast.walk(part):
                self._visited_nodes += 1
                if isinstance(node, ast.Name):
                    names.add(node.id)
                elif isinstance(node, ast.Call):
                    calls.add(self._call_name(node))
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    words.add(node.value[:200])
                elif isinstance(node, ast.Attribute):
                    words.add(node.attr)
                elif isinstance(node, ast.Break | ast.Return | ast.Raise | ast.Yield | ast.Await):
                    can_leave = True
        return _Body(frozenset(calls), frozenset(words), frozenset(names), can_leave)

    def _read_function(self, name: str) -> _Body:
        if name not in self._bodies:
            self._bodies[name] = self._read_body(self._functions[name].body)
        return self._bodies[name]

    def _call_name(self, call: ast.Call) -> str:
        name = self._names.full_name(call.func)
        if name:
            return name
        return call.func.attr if isinstance(call.func, ast.Attribute) else ""

    def _read_with_called(self, body: list[ast.stmt]) -> _Body:
        """Read a body with the functions of this module that it calls or starts."""
        own_body = self._read_body(body)
        called_bodies = [
            self._read_function(name) for name in own_body.names if name in self._functions
        ]
        return _Body(
            own_body.calls.union(*(called.calls for called in called_bodies)),
            own_body.words.union(*(called.words for called in called_bodies)),
            own_body.names,
            own_body.can_leave,
        )

    # --- loops over files -----------------------------------------------------------------

    def _find_file_loop(self, loop: ast.For | ast.AsyncFor) -> Iterator[LoopIssue]:
        if not self._iterates_files(loop.iter):
            return
        root = self._read_path(loop.iter)
        body = self._read_with_called(loop.body)
        evidence = f"{root or '…'}: {', '.join(sorted(body.last_names & _EVIDENCE_NAMES))}"
        if body.encrypts_files():
            if not any("decrypt" in name for name in self._functions):
                yield LoopIssue("encrypts-user-files", loop.lineno, evidence)
            return
        rules: list[str] = []
        if body.removes_files() and not body.cleans_up(root):
            rules += _select_folder_rules(root, "deletes-user-files", "deletes-work-files")
        if self._has_fixed_host and (body.calls & SENDERS or body.last_names & _UPLOADERS):
            rules += _select_folder_rules(root, "sends-user-folder", "sends-work-folder")
        for rule in rules:
            yield LoopIssue(rule, loop.lineno, evidence)

    def _iterates_files(self, node: ast.expr) -> bool:
        for part in ast.walk(node):
            if isinstance(part, ast.Call) and _FILE_WALK_WORDS.search(self._call_name(part)):
                return True
            if isinstance(part, ast.Name):
                value = self._values.get(part.id)
                if isinstance(value, ast.Call) and _FILE_WALK_WORDS.search(self._call_name(value)):
                    return True
        return False

    def _read_path(self, node: ast.expr, depth: int = 0) -> str:
        """Return a path in shell notation, as far as it can be computed."""
        if depth > _MAX_PATH_DEPTH:
            return ""
        if isinstance(node, ast.Name):
            value = self._values.get(node.id)
            return self._read_path(value, depth + 1) if value is not None else ""
        if isinstance(node, ast.BinOp):
            left, right = (
                self._read_path(node.left, depth + 1),
                self._read_path(node.right, depth + 1),
            )
            return f"{left.rstrip('/')}/{right.lstrip('/')}" if left else ""
        if isinstance(node, ast.List | ast.Tuple):
            return " ".join(self._read_path(element, depth + 1) for element in node.elts[:20])
        if isinstance(node, ast.Call):
            return self._read_call_path(node, depth)
        return read_constant_text(node)

    def _read_call_path(self, node: ast.Call, depth: int) -> str:
        name = self._call_name(node)
        last = name.rpartition(".")[2]
        if last == "home" and "Path" in name:
            return "~"
        if last in {"getcwd", "cwd"}:
            return "."
        if last == "join" and node.args:
            parts = [self._read_path(argument, depth + 1) for argument in node.args]
            return "/".join(part.rstrip("/") for part in parts if part)
        if last not in _PATH_PRESERVING_FUNCTIONS:
            return ""
        in_module = name.partition(".")[0] in {"os", "glob", "pathlib"}
        if isinstance(node.func, ast.Attribute) and not in_module:
            return self._read_method_path(node.func, node.args, depth)
        return self._read_path(node.args[0], depth + 1) if node.args else ""

    def _read_method_path(
        self, method: ast.Attribute, arguments: list[ast.expr], depth: int
    ) -> str:
        """Return the path of an object, with the pattern of its `glob`."""
        base = self._read_path(method.value, depth + 1)
        pattern = read_constant_text(arguments[0]) if arguments and "glob" in method.attr else ""
        return f"{base.rstrip('/')}/{pattern}" if base and pattern else base

    # --- loops without end ----------------------------------------------------------------

    def _find_endless(self, loop: ast.While) -> Iterator[LoopIssue]:
        if not (isinstance(loop.test, ast.Constant) and loop.test.value):
            return
        body = self._read_with_called(loop.body)
        if body.can_leave or body.last_names & _PAUSING_CALLS:
            return
        if "os.fork" in body.calls or "multiprocessing.Process" in body.calls:
            yield LoopIssue("exhausts-machine", loop.lineno, "processes without end")
        elif self._grows(loop):
            yield LoopIssue("exhausts-machine", loop.lineno, "memory without end")
        elif body.calls & _REQUESTERS and self._has_fixed_host:
            is_parallel = body.last_names & (_PARALLEL_CALLS | {"gather"})
            rule = "floods-host" if is_parallel else "many-requests"
            yield LoopIssue(rule, loop.lineno, min(body.calls & _REQUESTERS))

    def _grows(self, loop: ast.While) -> bool:
        """Whether a loop multiplies or raises to a power, so that its values become large."""
        for node in ast.walk(loop):
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
                for factor in (node.left, node.right):
                    value = factor.value if isinstance(factor, ast.Constant) else 0
                    is_power = isinstance(factor, ast.BinOp) and isinstance(factor.op, ast.Pow)
                    if is_power or (isinstance(value, int) and value >= _MIN_LARGE_FACTOR):
                        return True
        return False

    def _find_many_requests(self, loop: ast.For | ast.AsyncFor) -> Iterator[LoopIssue]:
        """Find a loop with many rounds that sends or starts a request in each."""
        count = self._count_rounds(loop.iter)
        if count < _MIN_PARALLEL_ROUNDS or not self._has_fixed_host:
            return
        body = self._read_with_called(loop.body)
        if not body.calls & _REQUESTERS:
            return
        last_names = body.last_names
        is_parallel = bool(last_names & _PARALLEL_CALLS)
        min_count = _MIN_PARALLEL_ROUNDS if is_parallel else _MIN_ROUNDS
        if body.can_leave or last_names & _PAUSING_CALLS or count < min_count:
            return
        rule = "floods-host" if is_parallel else "many-requests"
        yield LoopIssue(rule, loop.lineno, f"{count} rounds")

    def _count_rounds(self, rounds: ast.expr) -> int:
        """Return the end of a `range`; 0 where it is not known."""
        if (
            not isinstance(rounds, ast.Call)
            or self._call_name(rounds) != "range"
            or not rounds.args
        ):
            return 0
        limit = rounds.args[min(1, len(rounds.args) - 1)]
        if isinstance(limit, ast.Name):
            limit = self._values.get(limit.id, limit)
        number = limit.value if isinstance(limit, ast.Constant) else 0
        return number if isinstance(number, int) else 0

    # --- archives -------------------------------------------------------------------------

    def _find_sent_archives(self, calls: list[ast.Call]) -> Iterator[LoopIssue]:
        if not self._has_fixed_host:
            return
        call_names = [self._call_name(call) for call in calls]
        if not any(name in SENDERS or name.rpartition(".")[2] in _UPLOADERS for name in call_names):
            return
        uses_tarfile = any("tarfile" in name for name in call_names)
        for call, name in zip(calls, call_names, strict=True):
            last = name.rpartition(".")[2]
            if last == "make_archive" or (last == "add" and call.args and uses_tarfile):
                path = self._read_packed_path(call, last)
                for rule in _select_folder_rules(path, "sends-user-folder", "sends-work-folder"):
                    yield LoopIssue(rule, call.lineno, f"{last}: {path}")

    def _read_packed_path(self, call: ast.Call, last: str) -> str:
        """Return the folder that is put into an archive; default: the current one."""
        if last == "add":
            return self._read_path(call.args[0])
        root = [keyword.value for keyword in call.keywords if keyword.arg == "root_dir"]
        folders = root or call.args[2:3]
        return self._read_path(folders[0]) if folders else "."
