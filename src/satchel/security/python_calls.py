"""Checks calls in Python code: what they run, fetch, send and write.

A value carries labels, which say where it comes from:

`env:NAME`, `env:*`       an environment variable, or all of them
`path:PATH`, `file:PATH`  the path of a file with credentials, or its content
`start:PATH`, `temp`      the path of a file that runs at login, or of a temporary file
`read`, `dropped`         the content of a file, or of a temporary file
`decoded`, `fetched`      text that was encoded, or that comes from the network
`encoded:NAME`            an environment variable that was encoded
`gathered:NAMES`          a dict with the secrets of several issuers
`param:NAME`, `host:NAME` a parameter of the current function, or the host of an address
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from satchel.security.python_syntax import FETCHERS, SENDERS, is_assembled, read_constant_text
from satchel.security.report import MAX_EVIDENCE_CHARS, Finding
from satchel.security.secret_flows import find_host, is_foreign_host, is_secret
from satchel.security.shell_targets import names_fixed_host

if TYPE_CHECKING:
    from satchel.security.python_syntax import ImportedNames
    from satchel.security.regions import Region

Labels = frozenset[str]
NO_LABELS: Labels = frozenset()
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
_SERIALIZERS = frozenset(("json.dumps", "pickle.dumps", "urllib.parse.urlencode"))
_HEADER_KEYWORDS = frozenset(
    ("headers", "auth", "timeout", "cert", "verify", "cookies", "proxies", "url")
)
"""Keyword arguments that may carry a secret, or that are checked as the address."""
_DANGEROUS_NAMES = frozenset((
    "exec", "eval", "compile", "system", "popen", "__import__", "b64decode", "loads", "Popen",
))  # fmt: skip
_IMPORT_HOOKS = frozenset((
    "sys.meta_path.append", "sys.meta_path.insert", "sys.path_hooks.append",
    "sys.path_hooks.insert",
))  # fmt: skip
_NATIVE_LOADERS = frozenset(("ctypes.CDLL", "ctypes.cdll.LoadLibrary"))
_SENDING_METHODS = frozenset((
    "post", "put", "patch", "sendall", "sendto", "sendmail", "send_message", "storbinary",
    "urlopen",
))  # fmt: skip
_FIRST_ARGUMENT_SENDERS = frozenset(
    ("sendall", "sendto", "sendmail", "send_message", "urlopen", "Request")
)
"""Calls whose first argument is sent too."""
_SHELL_RUNNERS = frozenset(("os.system", "os.popen", "subprocess.getoutput", "commands.getoutput"))


def select_values(labels: Labels, prefix: str) -> set[str]:
    """Return what follows the prefix in the labels that have it."""
    return {label.removeprefix(prefix) for label in labels if label.startswith(prefix)}


def select_secrets(labels: Labels) -> set[str]:
    """Return the secret environment variables among labels."""
    return {name for name in select_values(labels, "env:") if is_secret(name)}


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
        return self.values[0] if self.values else NO_LABELS


def _select_leaked_secrets(body: Labels, address: Labels, host: str) -> set[str]:
    """Return the secrets in sent data that are for another host, or for a hidden address."""
    secrets = select_secrets(body)
    encoded = select_values(body, "encoded:")
    if host:
        foreign = {name for name in secrets if is_foreign_host(name, host)}
        encoded = {name for name in encoded if is_foreign_host(name, host)}
        if foreign:
            return foreign
    return encoded or (secrets if "decoded" in address else set())


def _select_never_in_headers(labels: Labels) -> Labels:
    """Return what no service asks for in a header: the environment, and files with credentials."""
    return frozenset(label for label in labels if label == "env:*" or label.startswith("file:"))


class CallChecker:
    """Checks the calls of one module, and collects the findings."""

    def __init__(self, path: str, region: Region, names: ImportedNames) -> None:
        self.is_reporting = False
        """Whether issues become findings; not in the first pass over the functions."""
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
            self._check_run(call)
        if name in {"getattr", "__import__"}:
            self._check_assembled_name(call)
        if name in _LOADERS:
            is_hidden = name.startswith("marshal") and {"decoded", "fetched"} & first
            rule = "python-runs-decoded" if is_hidden else "python-loads-code"
            self.report(call.node, rule, name)
        if name in _NATIVE_LOADERS and {"decoded", "fetched", "dropped"} & first:
            self.report(call.node, "python-loads-code", name)
        if name in _IMPORT_HOOKS:
            self.report(call.node, "python-import-hook", name)
        if name in _SERIALIZERS:
            for secrets in select_values(first, "gathered:"):
                self.report(call.node, "python-gathers-secrets", secrets)
        self._check_network(call)
        self._check_write(call)

    def _check_assembled_name(self, call: PythonCall) -> None:
        """Report a name that is assembled from pieces."""
        arguments = call.node.args
        index = 1 if call.name == "getattr" else 0
        if len(arguments) <= index or not is_assembled(arguments[index]):
            return
        name = read_constant_text(arguments[index])
        if name in _DANGEROUS_NAMES or (name and call.name == "__import__"):
            self.report(call.node, "python-obfuscated-call", name)

    def _check_run(self, call: PythonCall) -> None:
        """Report data that is run as code; remember commands for a shell."""
        is_command = call.name in _RUNNERS
        if "decoded" in call.first:
            self.report(call.node, "python-runs-decoded", call.name)
        elif "fetched" in call.first and (not is_command or _uses_shell(call)):
            self.report(call.node, "python-runs-fetched", call.name)
        elif "dropped" in call.first and not is_command:
            self.report(call.node, "python-runs-dropped", call.name)
        if is_command and call.node.args and self.is_reporting:
            text = _read_command(call.node.args[0])
            if text:
                line = self._region.line + call.node.lineno - 1
                self.commands.append(self._region._replace(kind="shell", text=text, line=line))

    def _check_network(self, call: PythonCall) -> None:
        """Report secrets in a name that is looked up, or in data that is sent."""
        node, name, values = call.node, call.name, call.values
        if name in _LOOKUPS:
            leaked = select_secrets(NO_LABELS.union(*values))
            if leaked:
                evidence = f"{min(leaked)} in a name that is looked up"
                self.report(node, "python-sends-secret", evidence)
            return
        if name not in SENDERS and name not in FETCHERS and call.last not in _SENDING_METHODS:
            return
        url_index = 1 if call.last == "request" and len(node.args) > 1 else 0
        address = (
            values[url_index] if len(values) > url_index else call.keywords.get("url", NO_LABELS)
        )
        body = NO_LABELS.union(
            *(values if call.last in _FIRST_ARGUMENT_SENDERS else values[url_index + 1 :]),
            *(
                labels if key not in _HEADER_KEYWORDS else _select_never_in_headers(labels)
                for key, labels in call.keywords.items()
            ),
        )
        host = find_host(self._read_url(node, url_index))
        target = address | {f"host:{host}"} if host else address
        for parameter in select_values(body, "param:"):
            self.sent[parameter] = target
        self.check_sent(node, body | address, target)

    def _read_url(self, node: ast.Call, url_index: int) -> str:
        urls = [keyword.value for keyword in node.keywords if keyword.arg == "url"]
        urls = urls or node.args[url_index:]
        return self._read_first_text(urls[0]) if urls else ""

    def _read_first_text(self, node: ast.expr) -> str:
        """Return the first literal part of an address, which contains the host."""
        if isinstance(node, ast.JoinedStr) and node.values:
            first = node.values[0]
            if isinstance(first, ast.FormattedValue):
                return self._read_first_text(first.value)
            return read_constant_text(first)
        while isinstance(node, ast.BinOp):
            node = node.left
        if isinstance(node, ast.Name):
            return self._names.texts.get(node.id, "")
        return read_constant_text(node)

    def check_sent(self, node: ast.Call, body: Labels, address: Labels) -> None:
        """Report secrets among the labels of data that is sent to an address."""
        host = next(iter(select_values(address, "host:")), "")
        if "env:*" in body:
            self.report(node, "python-sends-environment", host)
            return
        files = select_values(body, "file:")
        if files:
            self.report(node, "python-sends-credentials", f"{min(files)} → {host}")
        elif secrets := _select_leaked_secrets(body, address, host):
            target = host or "an address that is hidden"
            self.report(node, "python-sends-secret", f"{min(secrets)} → {target}")
        elif "read" in body and names_fixed_host(f"http://{host}"):
            self.report(node, "uploads-given-file", host)

    def _check_write(self, call: PythonCall) -> None:
        """Report what is written to a file that runs at login."""
        arguments = call.node.args
        mode = read_constant_text(arguments[1]) if len(arguments) > 1 else ""
        opens_to_write = call.name == "open" and ("w" in mode or "a" in mode)
        if not opens_to_write and call.last not in {"write_text", "write_bytes"}:
            return
        files = select_values(call.first | call.base, "start:")
        if files:
            file = min(files)
            rule = "python-login-keys" if "authorized_keys" in file else "python-start-files"
            self.report(call.node, rule, file)

    def report(self, node: ast.AST, rule: str, evidence: str) -> None:
        """Add a finding."""
        self.report_line(getattr(node, "lineno", 1), rule, evidence)

    def report_line(self, line: int, rule: str, evidence: str) -> None:
        """Add a finding for a line of the module, from 1."""
        if self.is_reporting:
            file_line = self._region.line + line - 1
            self.findings.append(
                Finding(rule, self._path, file_line, evidence[:MAX_EVIDENCE_CHARS])
            )


def _read_command(node: ast.expr) -> str:
    """Return a command as a shell reads it, with placeholders in braces."""
    if isinstance(node, ast.List | ast.Tuple):
        return " ".join(_read_command(element) or "X" for element in node.elts[:50])
    if not isinstance(node, ast.JoinedStr):
        return read_constant_text(node)
    command = ""
    for part in node.values:
        if not isinstance(part, ast.FormattedValue):
            command += read_constant_text(part)
        elif isinstance(part.value, ast.Name | ast.Attribute):
            command += "{" + ast.unparse(part.value) + "}"
        else:
            command += "{x}"
    return command


def _uses_shell(call: PythonCall) -> bool:
    return call.name in _SHELL_RUNNERS or any(
        keyword.arg == "shell" for keyword in call.node.keywords
    )
