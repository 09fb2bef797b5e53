"""Analyses the data flow of Python code: what is decoded, fetched, read, sent and run.

Values carry labels through a module, which `python_calls` lists; where a labelled value reaches a
call, `CallChecker` reports a rule. The analysis is simple on purpose: assignments in order,
functions by what they return and pass on.
"""

from __future__ import annotations

import ast
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from satchel.security.python_calls import (
    NO_LABELS,
    CallChecker,
    Labels,
    PythonCall,
    select_secrets,
    select_values,
)
from satchel.security.python_loops import LoopAnalyzer, may_have_issue, may_have_issue_part
from satchel.security.python_syntax import (
    DECODERS,
    ENCODERS,
    FETCHERS,
    ImportedNames,
    extract_code,
    parse_python,
    read_constant_text,
)
from satchel.security.report import OutOfTime
from satchel.security.secret_flows import is_secret, read_issuer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from satchel.security.regions import Region
    from satchel.security.report import Finding, TimeBudget

_FLOW_WORDS = re.compile(
    r"\b(?:exec|eval|compile|system|popen|subprocess|environ|getenv|urlopen|requests|httpx|aiohttp"
    r"|socket|marshal|pickle|ctypes|meta_path|path_hooks|authorized_keys|LaunchAgents|bashrc|zshrc"
    r"|crontab|b64decode|__import__|getattr|smtplib|ftplib|urllib|http\.client|dns)\b"
)
_CREDENTIAL_FILE = re.compile(
    r"\.ssh(?:/|\\|$)|id_rsa|id_ed25519|\.aws/(?:credentials|config)|\.aws$|\.gnupg|\.netrc|\.npmrc"
    r"|\.pypirc|\.docker/config|\.kube/config|\.git-credentials|Login Data|logins\.json|key4\.db"
    r"|wallet\.dat|\.electrum|\.ethereum|solana/id\.json|/etc/shadow|_history$|Cookies$|keychain"
    r"|\.credentials\.json|\.codex/auth|gcloud/|\.config/gh",
    re.IGNORECASE,
)
_TEMPORARY_FILE = re.compile(
    r"^(?:/tmp/|/var/tmp/|/dev/shm/|%temp%|.{0,80}/\.(?!venv|config|local)[\w-]+$)", re.IGNORECASE
)
_LOGIN_FILE = re.compile(
    r"\.(?:bashrc|zshrc|bash_profile|zprofile|profile|zshenv)$|LaunchAgents|LaunchDaemons"
    r"|/etc/cron|/etc/systemd|systemd/user|rc\.local|Startup[/\\]|sitecustomize|\.pth$"
)
_SHELL_COMMAND = re.compile(
    r"^[ \t]*(?:rm|curl|wget|scp|rsync|dd|find|env|nc|tar|gpg|shred|sudo|git)"
    r"[ \t]+(?:[-~/$.*|\"']|\w+[ \t]+[-~/$.*|\"']|https?:)",
    re.MULTILINE,
)
"""Commands in a file that is called Python."""
_HIDING_CODECS = frozenset(("rot13", "rot_13", "hex", "base64", "zlib", "bz2"))
"""Codecs that hide text; utf-8 does not."""
_OPENERS = frozenset(("open", "io.open", "codecs.open", "pathlib.Path.open"))
_READERS = frozenset(("read_text", "read_bytes"))
_ENVIRONMENT_GETTERS = frozenset(("os.environ.get", "os.getenv", "os.environ.pop"))
_ADDING_METHODS = frozenset(("append", "update", "extend", "write", "add", "insert"))
_REPLACED_HOOKS = frozenset(("builtins.__import__", "sys.meta_path", "sys.path_hooks"))
_MAX_PATH_CHARS = 300

Variables = dict[str, Labels]
"""Variable -> the labels of its value."""


class PythonResult(NamedTuple):
    """What the analysis of a module found."""

    findings: tuple[Finding, ...]
    commands: tuple[Region, ...]
    """Texts that it passes to a shell."""
    secrets: frozenset[str]
    """Environment variables and credential files that it reads."""
    is_whole: bool = True
    """Whether it was analysed whole, but for single lines."""
    is_shell: bool = False
    """Whether a shell may run it: it has lines that are no Python."""


def analyse_python(path: str, region: Region, budget: TimeBudget) -> PythonResult:
    """Analyse a module or an excerpt; what cannot be parsed is left out."""
    may_have_loop = region.script and may_have_issue(region.text)
    may_have_flow = bool(_FLOW_WORDS.search(region.text))
    may_be_shell = region.script and _SHELL_COMMAND.search(region.text)
    if not may_have_flow and not may_have_loop and not may_be_shell:
        return PythonResult((), (), frozenset())
    parsed = parse_python(extract_code(region.text), budget, tolerant=region.script)
    is_whole = parsed.is_whole
    analysis = _FlowAnalysis(path, region, parsed.tree)
    checker = analysis.checker
    try:
        if may_have_flow:
            analysis.run(parsed.tree, budget)
        checker.is_reporting = True
        if may_have_loop:
            for issue in LoopAnalyzer(parsed.tree, analysis.names, region.text).find_issues():
                checker.report_line(issue.line, issue.rule, issue.evidence)
    except (RecursionError, MemoryError, OutOfTime):
        is_whole = False
    if parsed.left_out_lines:
        left_out = "\n".join(parsed.left_out_lines.values())
        if _FLOW_WORDS.search(left_out) or (may_have_loop and may_have_issue_part(left_out)):
            is_whole = False
        checker.is_reporting = True
        first = min(parsed.left_out_lines)
        evidence = parsed.left_out_lines[first].strip()
        checker.report_line(first + 1, "unparsed-python", evidence)
    return PythonResult(
        findings=tuple(dict.fromkeys(checker.findings)),
        commands=tuple(checker.commands),
        secrets=frozenset(analysis.secrets),
        is_whole=is_whole,
        is_shell=bool(parsed.left_out_lines),
    )


class _Function(NamedTuple):
    """What a function of the module does with its arguments."""

    parameters: tuple[str, ...]
    returns: Labels
    sent: dict[str, Labels]
    """Parameter -> labels of the address that it is sent to."""


class _FlowAnalysis:
    """Analyses one module in two passes: the first collects what functions do."""

    def __init__(self, path: str, region: Region, tree: ast.Module) -> None:
        self.names = ImportedNames(tree)
        self.checker = CallChecker(path, region, self.names)
        self.secrets: set[str] = set()
        self._functions: dict[str, _Function] = {}
        self._returns: set[str] = set()
        self._handlers: dict[type[ast.expr], Callable[[Any, Variables], Labels]] = {
            ast.Constant: self._constant_labels,
            ast.Name: self._name_labels,
            ast.Call: self._call_labels,
            ast.Subscript: self._subscript_labels,
            ast.Attribute: self._attribute_labels,
            ast.Lambda: lambda node, variables: self._labels(node.body, variables),
            ast.ListComp: self._comprehension_labels,
            ast.SetComp: self._comprehension_labels,
            ast.GeneratorExp: self._comprehension_labels,
            ast.DictComp: self._comprehension_labels,
            ast.Dict: self._dict_labels,
            ast.NamedExpr: self._assignment_labels,
            ast.Compare: self._comparison_labels,
            ast.BinOp: self._sum_labels,
        }

    def run(self, tree: ast.Module, budget: TimeBudget) -> None:
        """Analyse the statements of the module, then its functions, in both passes."""
        for is_reporting in (False, True):
            self.checker.is_reporting = is_reporting
            variables: Variables = {}
            self._run_body(tree.body, variables)
            budget.check()
            for node in self.names.functions:
                self._run_function(node, variables)
            budget.check()

    def _run_function(
        self, node: ast.FunctionDef | ast.AsyncFunctionDef, variables: Variables
    ) -> None:
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        parameters = tuple(argument.arg for argument in arguments)
        inner = {**variables, **{name: frozenset((f"param:{name}",)) for name in parameters}}
        self.checker.sent, self._returns = {}, set()
        self._run_body(node.body, inner)
        self._functions[node.name] = _Function(
            parameters, frozenset(self._returns), dict(self.checker.sent)
        )

    def _run_body(self, body: Iterable[ast.stmt], variables: Variables) -> None:
        for node in body:
            self._run_statement(node, variables)

    def _run_statement(self, node: ast.stmt, variables: Variables) -> None:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            return  # analysed separately
        if isinstance(node, ast.ClassDef):
            self._run_body(node.body, variables)
        elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
            self._assign(node, variables)
        elif isinstance(node, ast.Return):
            if node.value is not None:
                self._returns |= self._labels(node.value, variables)
        else:
            self._run_compound(node, variables)

    def _run_compound(self, node: ast.stmt, variables: Variables) -> None:
        """Analyse any other statement: its expressions first, then its body."""
        if isinstance(node, ast.For | ast.AsyncFor):
            labels = self._labels(node.iter, variables)
            self._bind(node.target, labels, variables)
        for name, value in ast.iter_fields(node):
            if name in {"iter", "target"} and isinstance(node, ast.For | ast.AsyncFor):
                continue
            if isinstance(value, ast.expr):
                self._labels(value, variables)
            elif isinstance(value, list):
                self._run_parts(value, variables)  # pyright: ignore[reportUnknownArgumentType]

    def _run_parts(self, parts: list[object], variables: Variables) -> None:
        """Analyse the parts of a statement, such as its body and its handlers."""
        for part in parts:
            if isinstance(part, ast.stmt):
                self._run_statement(part, variables)
            elif isinstance(part, ast.expr):
                self._labels(part, variables)
            elif isinstance(part, ast.withitem):
                labels = self._labels(part.context_expr, variables)
                if part.optional_vars is not None:
                    self._bind(part.optional_vars, labels, variables)
            elif isinstance(part, ast.ExceptHandler | ast.match_case):
                self._run_body(part.body, variables)

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
            name = self.names.full_name(target) or ""
            if name in _REPLACED_HOOKS:
                self.checker.report(node, "python-import-hook", name)

    def _bind(self, target: ast.expr, labels: Labels, variables: Variables) -> None:
        """Give the labels of a value to the variables of a target."""
        if isinstance(target, ast.Name):
            variables[target.id] = labels
        elif isinstance(target, ast.Tuple | ast.List):
            for element in target.elts:
                self._bind(element, labels, variables)
        elif isinstance(target, ast.Starred):
            self._bind(target.value, labels, variables)
        elif isinstance(target, ast.Attribute | ast.Subscript):
            # An object carries the labels of its attributes and items.
            holder = target.value
            while isinstance(holder, ast.Attribute | ast.Subscript):
                holder = holder.value
            if isinstance(holder, ast.Name) and labels:
                variables[holder.id] = variables.get(holder.id, NO_LABELS) | labels

    # --- expressions ----------------------------------------------------------------------

    def _labels(self, node: ast.expr, variables: Variables) -> Labels:
        """Return the labels of a value; checks the calls inside it."""
        handler = self._handlers.get(type(node))
        if handler is not None:
            return handler(node, variables)
        return self._labels_of_all(ast.iter_child_nodes(node), variables)

    def _constant_labels(self, node: ast.Constant, _variables: Variables) -> Labels:
        return _text_labels(node.value) if isinstance(node.value, str) else NO_LABELS

    def _name_labels(self, node: ast.Name, variables: Variables) -> Labels:
        if self.names.full_name(node) == "os.environ":
            return frozenset(("env:*",))
        return variables.get(node.id, NO_LABELS)

    def _attribute_labels(self, node: ast.Attribute, variables: Variables) -> Labels:
        if self.names.full_name(node) == "os.environ":
            return frozenset(("env:*",))
        return self._labels(node.value, variables)

    def _assignment_labels(self, node: ast.NamedExpr, variables: Variables) -> Labels:
        labels = self._labels(node.value, variables)
        self._bind(node.target, labels, variables)
        return labels

    def _comparison_labels(self, node: ast.Compare, variables: Variables) -> Labels:
        self._labels_of_all((node.left, *node.comparators), variables)
        return NO_LABELS  # a boolean carries nothing

    def _sum_labels(self, node: ast.BinOp, variables: Variables) -> Labels:
        text = read_constant_text(node)
        if text:
            return _text_labels(text)
        labels: set[str] = set()
        operand: ast.expr = node
        while isinstance(operand, ast.BinOp):  # long sums nest on the left
            labels |= self._labels(operand.right, variables)
            operand = operand.left
        return frozenset(labels | self._labels(operand, variables))

    def _labels_of_all(self, nodes: Iterable[ast.AST], variables: Variables) -> Labels:
        labels: set[str] = set()
        for child in nodes:
            if isinstance(child, ast.expr):
                labels |= self._labels(child, variables)
        return frozenset(labels)

    def _dict_labels(self, node: ast.Dict, variables: Variables) -> Labels:
        """Return the labels of a dict; secrets of several issuers together are `gathered`."""
        labels = set(self._labels_of_all((key for key in node.keys if key is not None), variables))
        gathered: set[str] = set()
        for value in node.values:
            value_labels = self._labels(value, variables)
            labels |= value_labels
            if len(value_labels) == 1 and isinstance(value, ast.Call | ast.Subscript):
                gathered |= select_secrets(value_labels)
        if len({read_issuer(secret) for secret in gathered}) > 1:
            labels.add("gathered:" + ", ".join(sorted(gathered)))
        return frozenset(labels)

    def _comprehension_labels(
        self,
        node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp,
        variables: Variables,
    ) -> Labels:
        inner = dict(variables)
        for generator in node.generators:
            self._bind(generator.target, self._labels(generator.iter, inner), inner)
            for condition in generator.ifs:
                self._labels(condition, inner)
        if isinstance(node, ast.DictComp):
            return self._labels(node.key, inner) | self._labels(node.value, inner)
        return self._labels(node.elt, inner)

    def _subscript_labels(self, node: ast.Subscript, variables: Variables) -> Labels:
        if self.names.full_name(node.value) == "os.environ":
            return self._environment_labels(read_constant_text(node.slice))
        return self._labels(node.value, variables) | self._labels(node.slice, variables)

    def _environment_labels(self, name: str) -> Labels:
        """Return the labels of an environment variable; remembers secret ones."""
        if not name:
            return NO_LABELS
        if is_secret(name):
            self.secrets.add(name)
        return frozenset((f"env:{name}",))

    def _call_labels(self, node: ast.Call, variables: Variables) -> Labels:
        name = self.names.full_name(node.func) or ""
        last = name.rpartition(".")[2]
        if name in _ENVIRONMENT_GETTERS and node.args:
            return self._environment_labels(read_constant_text(node.args[0]))
        values = [self._labels(argument, variables) for argument in node.args]
        keywords = {
            keyword.arg or "**": self._labels(keyword.value, variables) for keyword in node.keywords
        }
        argument_labels = NO_LABELS.union(*values, *keywords.values())
        base = NO_LABELS
        if isinstance(node.func, ast.Attribute):
            base = self._labels(node.func.value, variables)
        elif isinstance(node.func, ast.Call | ast.Subscript | ast.Lambda):
            base = self._labels(node.func, variables)
        self.checker.check(PythonCall(node, name, values, keywords, base))
        labels = self._result_labels(node, name, last, argument_labels | base)
        if isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name):
            holder = node.func.value.id
            if last in _ADDING_METHODS and argument_labels:
                variables[holder] = variables.get(holder, NO_LABELS) | argument_labels
        function = self._functions.get(name)
        if function is None:
            return labels
        arguments = dict(zip(function.parameters, values, strict=False)) | keywords
        return self._local_call_labels(node, function, arguments, labels)

    def _result_labels(self, node: ast.Call, name: str, last: str, labels: Labels) -> Labels:
        """Return the labels of a call's result from those of its arguments and object."""
        if name in DECODERS or last == "fromhex" or (last == "decode" and _hides_text(node)):
            return labels | {"decoded"}
        if name in ENCODERS or last == "hex":
            return labels | {f"encoded:{secret}" for secret in select_secrets(labels)}
        if name in FETCHERS or (last in {"get", "request"} and "param:session" in labels):
            return (labels - {"decoded"}) | {"fetched"}
        if name in _OPENERS or last in _READERS:
            return self._file_labels(labels)
        return labels

    def _file_labels(self, labels: Labels) -> Labels:
        """Return the labels of what is read from a file; remembers files with credentials."""
        files = select_values(labels, "path:")
        self.secrets |= files
        dropped = {"dropped"} if "temp" in labels else NO_LABELS
        return labels | {f"file:{file}" for file in files} | {"read"} | dropped

    def _local_call_labels(
        self, node: ast.Call, function: _Function, arguments: Variables, labels: Labels
    ) -> Labels:
        """Return the labels of a call to a function of this module.

        Args:
            node: The call.
            function: The function.
            arguments: Parameter -> labels of its argument.
            labels: The labels that the call has where the function returns nothing.
        """
        for parameter, address in function.sent.items():
            if parameter in arguments:
                self.checker.check_sent(node, arguments[parameter], address)
        if not function.returns:
            return labels & {"decoded", "fetched"}
        result: set[str] = set()
        for label in function.returns:
            if label.startswith("param:"):
                result |= arguments.get(label.removeprefix("param:"), NO_LABELS)
            else:
                result.add(label)
        return frozenset(result)


def _text_labels(text: str) -> Labels:
    """Return the labels of a text, which may be a path."""
    return NO_LABELS if len(text) > _MAX_PATH_CHARS else _path_labels(text)


@lru_cache(2000)  # each text is read twice
def _path_labels(text: str) -> Labels:
    labels: set[str] = set()
    if _CREDENTIAL_FILE.search(text) and not text.endswith(".pub"):
        labels.add(f"path:{text}")
    if _TEMPORARY_FILE.match(text):
        labels.add("temp")
    if _LOGIN_FILE.search(text) or "authorized_keys" in text:
        labels.add(f"start:{text}")
    return frozenset(labels)


def _hides_text(node: ast.Call) -> bool:
    """Whether the codec of a call hides text."""
    return bool(node.args) and read_constant_text(node.args[0]) in _HIDING_CODECS
