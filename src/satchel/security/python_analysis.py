"""Analyses Python code by its syntax tree: what is decoded, fetched, read, sent and run.

Values carry labels through a module: `env:NAME`, `env:*`, `file:PATH`, `decoded`, `fetched`,
`encoded:NAME`, `gathered:…`, `dropped`. Where a labelled value reaches a call that runs or sends,
`PythonFindings` reports a rule. The analysis is simple on purpose: assignments in order, functions
by what they return and pass on.
"""

from __future__ import annotations

import ast
import re
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

from satchel.security import instruction_rules, python_rules
from satchel.security.python_rules import (
    DECODERS,
    ENCODERS,
    FETCHERS,
    SENDERS,
    ImportedNames,
    constant_text,
    is_assembled,
)
from satchel.security.report import Finding, OutOfTime
from satchel.security.shell_rules import names_fixed_host

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from satchel.security.regions import Region
    from satchel.security.report import TimeBudget

Labels = frozenset[str]
NONE: Labels = frozenset()
_RUNNERS = frozenset((
    "os.system", "os.popen", "subprocess.run", "subprocess.call", "subprocess.Popen",
    "subprocess.check_output", "subprocess.check_call", "subprocess.getoutput",
    "subprocess.getstatusoutput", "os.execv", "os.execl", "os.execvp", "os.spawnl", "pty.spawn",
    "asyncio.create_subprocess_shell", "commands.getoutput",
))  # fmt: skip
_EXECUTORS = frozenset((
    "exec", "eval", "builtins.exec", "builtins.eval", "code.interact", "types.FunctionType",
    "runpy.run_path",
))  # fmt: skip
_LOADERS = frozenset((
    "marshal.loads", "marshal.load", "pickle.loads", "dill.loads", "cloudpickle.loads",
))  # fmt: skip
_LOOKUPS = frozenset((
    "socket.gethostbyname", "socket.gethostbyname_ex", "socket.getaddrinfo",
    "dns.resolver.resolve", "dns.resolver.query",
))  # fmt: skip
_SILENT = frozenset(("headers", "auth", "timeout", "cert", "verify", "cookies", "proxies", "url"))
"""Keywords that may carry a secret, or are checked as the address."""
_DANGEROUS = frozenset((
    "exec", "eval", "compile", "system", "popen", "__import__", "b64decode", "loads", "Popen",
))  # fmt: skip
_HOOKS = frozenset((
    "sys.meta_path.append", "sys.meta_path.insert", "sys.path_hooks.append",
    "sys.path_hooks.insert",
))  # fmt: skip
_NATIVE = frozenset(("ctypes.CDLL", "ctypes.cdll.LoadLibrary"))
_SENDS = frozenset((
    "post", "put", "patch", "sendall", "sendto", "sendmail", "send_message", "storbinary",
    "urlopen",
))  # fmt: skip
_WHOLE = frozenset(("sendall", "sendto", "sendmail", "send_message", "urlopen", "Request"))
"""Calls whose first argument is sent too."""
_SHELLS = frozenset(("os.system", "os.popen", "subprocess.getoutput", "commands.getoutput"))


def _never_in_headers(labels: Labels) -> Labels:
    """What no service asks for in a header: the whole environment, and files with credentials."""
    return frozenset(one for one in labels if one == "env:*" or one.startswith("file:"))


class PythonCall(NamedTuple):
    """A call with the labels of its parts."""

    node: ast.Call
    name: str
    """The full name: `base64.b64decode`."""
    values: list[Labels]
    keywords: dict[str, Labels]
    base: Labels
    """Labels of the object whose method is called."""

    @property
    def last(self) -> str:
        """The last part of the name."""
        return self.name.rpartition(".")[2]

    @property
    def first(self) -> Labels:
        """Labels of the first argument."""
        return self.values[0] if self.values else NONE


def secrets_in(labels: Labels) -> set[str]:
    """The secret environment variables among labels."""
    return {
        one[4:] for one in labels if one.startswith("env:") and instruction_rules.is_secret(one[4:])
    }


class PythonFindings:
    """Collects the findings of one module."""

    def __init__(self, path: str, region: Region, names: ImportedNames) -> None:
        self.quiet = True
        """Set in the first pass, which only collects what functions do."""
        self.findings: list[Finding] = []
        self.commands: list[Region] = []
        self.sent: dict[str, Labels] = {}
        """Parameter of the current function -> labels of the address that it is sent to."""
        self._path = path
        self._region = region
        self._names = names

    def check(self, call: PythonCall) -> None:
        """Report the issues of a call."""
        name, first = call.name, call.first
        if name in _EXECUTORS or name in _RUNNERS:
            self._runs(call)
        if name in {"getattr", "__import__"}:
            self._spells(call)
        if name in _LOADERS:
            hidden = name.startswith("marshal") and {"decoded", "fetched"} & first
            self.report(call.node, "python-runs-decoded" if hidden else "python-loads-code", name)
        if name in _NATIVE and {"decoded", "fetched", "dropped"} & first:
            self.report(call.node, "python-loads-code", name)
        if name in _HOOKS:
            self.report(call.node, "python-import-hook", name)
        if name in {"json.dumps", "pickle.dumps", "urllib.parse.urlencode"}:
            for one in first:
                if one.startswith("gathered:"):
                    self.report(call.node, "python-gathers-secrets", one[9:])
        self._network(call)
        self._writes(call)

    def _spells(self, call: PythonCall) -> None:
        """Report a name that is assembled from pieces."""
        at = 1 if call.name == "getattr" else 0
        if len(call.node.args) <= at or not is_assembled(call.node.args[at]):
            return
        word = constant_text(call.node.args[at])
        if word in _DANGEROUS or (word and not at):
            self.report(call.node, "python-obfuscated-call", word)

    def _runs(self, call: PythonCall) -> None:
        shell = call.name in _RUNNERS
        if "decoded" in call.first:
            self.report(call.node, "python-runs-decoded", call.name)
        elif "fetched" in call.first and (not shell or _takes_shell(call)):
            self.report(call.node, "python-runs-fetched", call.name)
        elif "dropped" in call.first and not shell:
            self.report(call.node, "python-runs-dropped", call.name)
        if shell and call.node.args and not self.quiet:
            text = _shell_text(call.node.args[0])
            if text:
                line = self._region.line + call.node.lineno - 1
                self.commands.append(self._region._replace(kind="shell", text=text, line=line))

    def _network(self, call: PythonCall) -> None:
        node, name, values = call.node, call.name, call.values
        if name in _LOOKUPS:
            leaked = secrets_in(NONE.union(*values))
            if leaked:
                shown = f"{min(leaked)} in a name that is looked up"
                self.report(node, "python-sends-secret", shown)
            return
        if name not in SENDERS and name not in FETCHERS and call.last not in _SENDS:
            return
        where = 1 if call.last == "request" and len(node.args) > 1 else 0
        address = values[where] if len(values) > where else call.keywords.get("url", NONE)
        body = NONE.union(
            *(values if call.last in _WHOLE else values[where + 1 :]),
            *(
                labels if key not in _SILENT else _never_in_headers(labels)
                for key, labels in call.keywords.items()
            ),
        )
        host = instruction_rules.host_of(self._url(node, where))
        marks = frozenset((f"host:{host}",)) if host else NONE
        for label in body:
            if label.startswith("param:"):
                self.sent[label[6:]] = address | marks
        self.sends(node, body | address, address | marks)

    def _url(self, node: ast.Call, where: int) -> str:
        given = [one.value for one in node.keywords if one.arg == "url"] or node.args[where:]
        return self._first_text(given[0]) if given else ""

    def _first_text(self, node: ast.expr) -> str:
        """The first literal part of an address, which contains the host."""
        if isinstance(node, ast.JoinedStr) and node.values:
            first = node.values[0]
            if isinstance(first, ast.FormattedValue):
                return self._first_text(first.value)
            return constant_text(first)
        while isinstance(node, ast.BinOp):
            node = node.left
        if isinstance(node, ast.Name):
            return self._names.texts.get(node.id, "")
        return constant_text(node)

    def sends(self, node: ast.Call, body: Labels, address: Labels) -> None:
        """Report secrets among the labels of data that is sent to an address."""
        host = next((one[5:] for one in address if one.startswith("host:")), "")
        if "env:*" in body:
            self.report(node, "python-sends-environment", host)
            return
        files = sorted(one[5:] for one in body if one.startswith("file:"))
        if files:
            self.report(node, "python-sends-credentials", f"{files[0]} → {host}")
            return
        secrets = secrets_in(body)
        strange = {one for one in secrets if host and instruction_rules.is_foreign_host(one, host)}
        packed = {one[8:] for one in body if one.startswith("encoded:")}
        packed = {one for one in packed if not host or instruction_rules.is_foreign_host(one, host)}
        if strange or packed or (secrets and "decoded" in address):
            shown = min(strange or packed or secrets)
            place = host or "an address that is hidden"
            self.report(node, "python-sends-secret", f"{shown} → {place}")
        elif "read" in body and names_fixed_host(f"http://{host}"):
            self.report(node, "uploads-given-file", host)

    def _writes(self, call: PythonCall) -> None:
        arguments = call.node.args
        mode = constant_text(arguments[1]) if len(arguments) > 1 else ""
        opens = call.name == "open" and ("w" in mode or "a" in mode)
        if not opens and call.last not in {"write_text", "write_bytes"}:
            return
        for label in call.first | call.base:
            if label.startswith("start:"):
                rule = "python-login-keys" if "authorized_keys" in label else "python-start-files"
                self.report(call.node, rule, label[6:])
                return

    def report(self, node: ast.AST, rule: str, evidence: str) -> None:
        """Add a finding."""
        self.report_line(getattr(node, "lineno", 1), rule, evidence)

    def report_line(self, line: int, rule: str, evidence: str) -> None:
        """Add a finding for a line of the module, from 1."""
        if not self.quiet:
            at = self._region.line + line - 1
            self.findings.append(Finding(rule, self._path, at, evidence[:160]))


def _shell_text(node: ast.expr) -> str:
    """A command as a shell would see it, with placeholders in braces."""
    if isinstance(node, ast.List | ast.Tuple):
        return " ".join(_shell_text(one) or "X" for one in node.elts[:50])
    if not isinstance(node, ast.JoinedStr):
        return constant_text(node)
    out = ""
    for part in node.values:
        if not isinstance(part, ast.FormattedValue):
            out += constant_text(part)
        elif isinstance(part.value, ast.Name | ast.Attribute):
            out += "{" + ast.unparse(part.value) + "}"
        else:
            out += "{x}"
    return out


def _takes_shell(call: PythonCall) -> bool:
    return call.name in _SHELLS or any(one.arg == "shell" for one in call.node.keywords)


_WORTH = re.compile(
    r"\b(?:exec|eval|compile|system|popen|subprocess|environ|getenv|urlopen|requests|httpx|aiohttp"
    r"|socket|marshal|pickle|ctypes|meta_path|path_hooks|authorized_keys|LaunchAgents|bashrc|zshrc"
    r"|crontab|b64decode|__import__|getattr|smtplib|ftplib|urllib|http\.client|dns)\b"
)
_KEY_FILES = re.compile(
    r"\.ssh(?:/|\\|$)|id_rsa|id_ed25519|\.aws/(?:credentials|config)|\.aws$|\.gnupg|\.netrc|\.npmrc"
    r"|\.pypirc|\.docker/config|\.kube/config|\.git-credentials|Login Data|logins\.json|key4\.db"
    r"|wallet\.dat|\.electrum|\.ethereum|solana/id\.json|/etc/shadow|_history$|Cookies$|keychain"
    r"|\.credentials\.json|\.codex/auth|gcloud/|\.config/gh",
    re.IGNORECASE,
)
_DROPPED = re.compile(
    r"^(?:/tmp/|/var/tmp/|/dev/shm/|%temp%|.{0,80}/\.(?!venv|config|local)[\w-]+$)", re.IGNORECASE
)
_STARTS = re.compile(
    r"\.(?:bashrc|zshrc|bash_profile|zprofile|profile|zshenv)$|LaunchAgents|LaunchDaemons"
    r"|/etc/cron|/etc/systemd|systemd/user|rc\.local|Startup[/\\]|sitecustomize|\.pth$"
)
_ODD = frozenset(("rot13", "rot_13", "hex", "base64", "zlib", "bz2"))

Variables = dict[str, Labels]


class Module(NamedTuple):
    """The result for one module."""

    findings: tuple[Finding, ...]
    commands: tuple[Region, ...]
    """Texts that it passes to a shell."""
    secrets: frozenset[str]
    """Environment variables and credential files that it reads."""
    is_whole: bool = True
    """Whether all of it could be parsed."""


def read_python(path: str, region: Region, budget: TimeBudget) -> Module:
    """Analyse a module or an excerpt; what cannot be parsed is left out."""
    may_harm = region.script and python_rules.prefilter(region.text)
    follows = bool(_WORTH.search(region.text))
    if not follows and not may_harm:
        return Module((), (), frozenset())
    tree, is_whole = _parsed(_plain(region.text), budget, in_parts=region.script)
    reader = _PythonReader(path, region, tree)
    try:
        if follows:
            reader.read(tree, budget)
        if may_harm:
            reader.found.quiet = False
            for hit in python_rules.PythonIssues(tree, reader.names, region.text).all():
                rule, line, shown = hit
                reader.found.report_line(line, rule, shown)
    except (RecursionError, MemoryError, OutOfTime):
        is_whole = False
    return Module(
        tuple(dict.fromkeys(reader.found.findings)),
        tuple(reader.found.commands),
        frozenset(reader.secrets),
        is_whole,
    )


_MAX_PARTS = 2000
"""Statements of a module that are parsed one by one."""


def _parsed(text: str, budget: TimeBudget, *, in_parts: bool) -> tuple[ast.Module, bool]:
    """Parse a module, else each of its statements that can be parsed; and whether that was all.

    A statement that breaks no rule without its syntax, such as `print 1`, may be missing.
    """
    tree = _parsed_part(text)
    budget.check()
    if tree is not None or not in_parts:
        return tree or ast.Module([], []), tree is not None
    whole = ast.Module([], [])
    lines = text.split("\n")
    starts = [
        at
        for at, line in enumerate(lines)
        if line[:1] not in _INNER
        and not line.startswith(_GO_ON)
        and not (at and lines[at - 1].startswith("@"))
    ]
    is_whole = len(starts) <= _MAX_PARTS
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True) if is_whole else ():
        part = "\n".join(lines[start:end])
        tree = _parsed_part(part)
        budget.check()
        if tree is not None:
            whole.body += ast.increment_lineno(tree, start).body
        elif _WORTH.search(part) or python_rules.prefilter(part):
            is_whole = False
    return whole, is_whole


_INNER = frozenset(("", " ", "\t", "#", ")", "]", "}", "'", '"'))
_GO_ON = ("else", "elif ", "except", "finally")
"""How a line begins that does not begin a statement."""


def _parsed_part(text: str) -> ast.Module | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None


def _plain(text: str) -> str:
    """The code of a fence without indentation and interpreter prompts."""
    if ">>>" in text:
        lines = [
            line.strip()[4:] for line in text.split("\n") if line.strip()[:3] in {">>>", "..."}
        ]
        return "\n".join(lines)
    if text[:1] in {" ", "\t"}:
        from textwrap import dedent

        return dedent(text)
    return text.lstrip("\ufeff")


class _Function(NamedTuple):
    params: tuple[str, ...]
    returns: Labels
    sent: dict[str, Labels]
    """Parameter -> labels of the address that it is sent to."""


class _PythonReader:
    """Analyses one module in two passes: the first collects what functions do."""

    def __init__(self, path: str, region: Region, tree: ast.Module) -> None:
        self.names = ImportedNames(tree)
        self.found = PythonFindings(path, region, self.names)
        self.secrets: set[str] = set()
        self.functions: dict[str, _Function] = {}
        self._returns: set[str] = set()
        self._by_type: dict[type[ast.expr], Callable[[Any, Variables], Labels]] = {
            ast.Constant: self._constant,
            ast.Name: self._name,
            ast.Call: self._call,
            ast.Subscript: self._subscript,
            ast.Attribute: self._attribute,
            ast.Lambda: lambda node, variables: self._labels(node.body, variables),
            ast.ListComp: self._comprehension,
            ast.SetComp: self._comprehension,
            ast.GeneratorExp: self._comprehension,
            ast.DictComp: self._comprehension,
            ast.Dict: self._dict,
            ast.NamedExpr: self._walrus,
            ast.Compare: self._compare,
            ast.BinOp: self._sum,
        }

    def read(self, tree: ast.Module, budget: TimeBudget) -> None:
        for quiet in (True, False):
            self.found.quiet = quiet
            variables: Variables = {}
            self._body(tree.body, variables)
            budget.check()
            for node in self.names.functions:
                self._function(node, variables)
            budget.check()

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef, variables: Variables) -> None:
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        params = tuple(one.arg for one in arguments)
        inner = {**variables, **{name: frozenset((f"param:{name}",)) for name in params}}
        self.found.sent, self._returns = {}, set()
        self._body(node.body, inner)
        self.functions[node.name] = _Function(
            params, frozenset(self._returns), dict(self.found.sent)
        )

    def _body(self, body: Iterable[ast.stmt], variables: Variables) -> None:
        for node in body:
            self._statement(node, variables)

    def _statement(self, node: ast.stmt, variables: Variables) -> None:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            return  # analysed separately
        if isinstance(node, ast.ClassDef):
            self._body(node.body, variables)
        elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
            self._assign(node, variables)
        elif isinstance(node, ast.Return):
            if node.value is not None:
                self._returns |= self._labels(node.value, variables)
        else:
            self._compound(node, variables)

    def _compound(self, node: ast.stmt, variables: Variables) -> None:
        """Any other statement: its expressions first, then its body."""
        if isinstance(node, ast.For | ast.AsyncFor):
            labels = self._labels(node.iter, variables)
            self._bind(node.target, labels, variables)
        for name, value in ast.iter_fields(node):
            if name in {"iter", "target"} and isinstance(node, ast.For | ast.AsyncFor):
                continue
            if isinstance(value, ast.expr):
                self._labels(value, variables)
            elif isinstance(value, list):
                self._items(value, variables)  # pyright: ignore[reportUnknownArgumentType]

    def _items(self, items: list[object], variables: Variables) -> None:
        for item in items:
            if isinstance(item, ast.stmt):
                self._statement(item, variables)
            elif isinstance(item, ast.expr):
                self._labels(item, variables)
            elif isinstance(item, ast.withitem):
                labels = self._labels(item.context_expr, variables)
                if item.optional_vars is not None:
                    self._bind(item.optional_vars, labels, variables)
            elif isinstance(item, ast.ExceptHandler | ast.match_case):
                self._body(item.body, variables)

    def _assign(
        self, node: ast.Assign | ast.AnnAssign | ast.AugAssign, variables: Variables
    ) -> None:
        if node.value is None:
            return
        labels = self._labels(node.value, variables)
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for target in targets:
            if isinstance(node, ast.AugAssign):
                labels |= self._labels(target, variables)
            self._bind(target, labels, variables)
            name = self.names.dotted(target) or ""
            if name in {"builtins.__import__", "sys.meta_path", "sys.path_hooks"}:
                self.found.report(node, "python-import-hook", name)

    def _bind(self, target: ast.expr, labels: Labels, variables: Variables) -> None:
        if isinstance(target, ast.Name):
            variables[target.id] = labels
        elif isinstance(target, ast.Tuple | ast.List):
            for part in target.elts:
                self._bind(part, labels, variables)
        elif isinstance(target, ast.Starred):
            self._bind(target.value, labels, variables)
        elif isinstance(target, ast.Attribute | ast.Subscript):
            # An object carries the labels of its attributes and items.
            base = target.value
            while isinstance(base, ast.Attribute | ast.Subscript):
                base = base.value
            if isinstance(base, ast.Name) and labels:
                variables[base.id] = variables.get(base.id, NONE) | labels

    # --- expressions ----------------------------------------------------------------------

    def _labels(self, node: ast.expr, variables: Variables) -> Labels:
        """The labels of a value; checks the calls inside it."""
        handler = self._by_type.get(type(node))
        if handler is not None:
            return handler(node, variables)
        return self._union(ast.iter_child_nodes(node), variables)

    def _constant(self, node: ast.Constant, _variables: Variables) -> Labels:
        return _of_text(node.value) if isinstance(node.value, str) else NONE

    def _name(self, node: ast.Name, variables: Variables) -> Labels:
        if self.names.dotted(node) == "os.environ":
            return frozenset(("env:*",))
        return variables.get(node.id, NONE)

    def _attribute(self, node: ast.Attribute, variables: Variables) -> Labels:
        if self.names.dotted(node) == "os.environ":
            return frozenset(("env:*",))
        return self._labels(node.value, variables)

    def _walrus(self, node: ast.NamedExpr, variables: Variables) -> Labels:
        labels = self._labels(node.value, variables)
        self._bind(node.target, labels, variables)
        return labels

    def _compare(self, node: ast.Compare, variables: Variables) -> Labels:
        self._union((node.left, *node.comparators), variables)
        return NONE  # a boolean carries nothing

    def _sum(self, node: ast.BinOp, variables: Variables) -> Labels:
        text = constant_text(node)
        if text:
            return _of_text(text)
        parts: set[str] = set()
        inner: ast.expr = node
        while isinstance(inner, ast.BinOp):  # long sums nest on the left
            parts |= self._labels(inner.right, variables)
            inner = inner.left
        return frozenset(parts | self._labels(inner, variables))

    def _union(self, nodes: Iterable[ast.AST], variables: Variables) -> Labels:
        labels: set[str] = set()
        for child in nodes:
            if isinstance(child, ast.expr):
                labels |= self._labels(child, variables)
        return frozenset(labels)

    def _dict(self, node: ast.Dict, variables: Variables) -> Labels:
        """The labels of a dict; secrets of several issuers together are `gathered`."""
        labels = set(self._union((key for key in node.keys if key is not None), variables))
        found: set[str] = set()
        for value in node.values:
            carried = self._labels(value, variables)
            labels |= carried
            own = secrets_in(carried)
            if len(own) == 1 and len(carried) == 1 and isinstance(value, ast.Call | ast.Subscript):
                found |= own
        if len({instruction_rules.issuer(one) for one in found}) > 1:
            labels.add("gathered:" + ", ".join(sorted(found)))
        return frozenset(labels)

    def _comprehension(
        self,
        node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp,
        variables: Variables,
    ) -> Labels:
        inner = dict(variables)
        for part in node.generators:
            self._bind(part.target, self._labels(part.iter, inner), inner)
            for test in part.ifs:
                self._labels(test, inner)
        if isinstance(node, ast.DictComp):
            return self._labels(node.key, inner) | self._labels(node.value, inner)
        return self._labels(node.elt, inner)

    def _subscript(self, node: ast.Subscript, variables: Variables) -> Labels:
        if self.names.dotted(node.value) == "os.environ":
            return self._environment(constant_text(node.slice))
        return self._labels(node.value, variables) | self._labels(node.slice, variables)

    def _environment(self, name: str) -> Labels:
        if not name:
            return NONE
        if instruction_rules.is_secret(name):
            self.secrets.add(name)
        return frozenset((f"env:{name}",))

    def _call(self, node: ast.Call, variables: Variables) -> Labels:
        name = self.names.dotted(node.func) or ""
        last = name.rpartition(".")[2]
        if name in {"os.environ.get", "os.getenv", "os.environ.pop"} and node.args:
            return self._environment(constant_text(node.args[0]))
        values = [self._labels(one, variables) for one in node.args]
        keywords = {one.arg or "**": self._labels(one.value, variables) for one in node.keywords}
        given = NONE.union(*values, *keywords.values())
        base = NONE
        if isinstance(node.func, ast.Attribute):
            base = self._labels(node.func.value, variables)
        elif isinstance(node.func, ast.Call | ast.Subscript | ast.Lambda):
            base = self._labels(node.func, variables)
        self.found.check(PythonCall(node, name, values, keywords, base))
        labels = self._result(node, name, last, given | base)
        if isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name):
            holder = node.func.value.id
            if last in {"append", "update", "extend", "write", "add", "insert"} and given:
                variables[holder] = variables.get(holder, NONE) | given
        function = self.functions.get(name)
        return labels if function is None else self._local(node, function, values, keywords, labels)

    def _result(self, node: ast.Call, name: str, last: str, labels: Labels) -> Labels:
        if name in DECODERS or (last == "fromhex") or (last == "decode" and _odd_codec(node)):
            return labels | {"decoded"}
        if name in ENCODERS or last == "hex":
            return labels | {f"encoded:{one}" for one in secrets_in(labels)}
        if name in FETCHERS or (last in {"get", "request"} and "param:session" in labels):
            return (labels - {"decoded"}) | {"fetched"}
        if name in {"open", "io.open", "codecs.open", "pathlib.Path.open"} or last in {
            "read_text", "read_bytes",
        }:  # fmt: skip
            files = {f"file:{one[5:]}" for one in labels if one.startswith("path:")}
            self.secrets |= {one[5:] for one in files}
            return labels | files | {"read"} | ({"dropped"} if "temp" in labels else NONE)
        return labels

    def _local(
        self,
        node: ast.Call,
        function: _Function,
        values: list[Labels],
        keywords: dict[str, Labels],
        labels: Labels,
    ) -> Labels:
        """The labels of a call to a function of this module."""
        given = dict(zip(function.params, values, strict=False)) | keywords
        for param, address in function.sent.items():
            if param in given:
                self.found.sends(node, given[param], address)
        passed: set[str] = set()
        for label in function.returns:
            passed |= given.get(label[6:], NONE) if label.startswith("param:") else {label}
        return frozenset(passed) if function.returns else labels & {"decoded", "fetched"}


def _of_text(text: str) -> Labels:
    """The labels of a text that is a path."""
    if len(text) > 300:
        return NONE
    labels: set[str] = set()
    if _KEY_FILES.search(text) and not text.endswith(".pub"):
        labels.add(f"path:{text}")
    if _DROPPED.match(text):
        labels.add("temp")
    if _STARTS.search(text) or "authorized_keys" in text:
        labels.add(f"start:{text}")
    return frozenset(labels)


def _odd_codec(node: ast.Call) -> bool:
    """Whether a codec hides text, such as rot13; utf-8 does not."""
    return bool(node.args) and constant_text(node.args[0]) in _ODD
