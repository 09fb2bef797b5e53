"""Is a call in Python a bad one? Judged by what the values carry that reach it.

`python.py` follows the values and asks here at every call.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from satchel.security import flows
from satchel.security.pynames import FETCHERS, SENDERS, folded, is_built
from satchel.security.report import Finding
from satchel.security.whose import is_fixed_place

if TYPE_CHECKING:
    from satchel.security.pynames import Names
    from satchel.security.regions import Region

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
"""Where a secret belongs, or what is judged as the address."""
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


class Call(NamedTuple):
    """A call, and what its parts carry."""

    node: ast.Call
    name: str
    """In full: `base64.b64decode`."""
    values: list[Labels]
    keywords: dict[str, Labels]
    base: Labels
    """Of the thing whose method is called."""

    @property
    def last(self) -> str:
        """The last part of the name."""
        return self.name.rpartition(".")[2]

    @property
    def first(self) -> Labels:
        """Of the first argument."""
        return self.values[0] if self.values else NONE


def secrets_in(labels: Labels) -> set[str]:
    """Environment variables with a secret that a value carries."""
    return {one[4:] for one in labels if one.startswith("env:") and flows.is_secret(one[4:])}


class Judge:
    """Keeps what was found in one module."""

    def __init__(self, path: str, region: Region, names: Names) -> None:
        self.quiet = True
        """The first walk only learns what functions do."""
        self.findings: list[Finding] = []
        self.commands: list[Region] = []
        self.sent: dict[str, Labels] = {}
        """Parameter of the function being walked -> labels of the address that it is sent to."""
        self._path = path
        self._region = region
        self._names = names

    def judge(self, call: Call) -> None:
        """Report whatever is wrong with a call."""
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

    def _spells(self, call: Call) -> None:
        """A name that is put together from pieces."""
        at = 1 if call.name == "getattr" else 0
        if len(call.node.args) <= at or not is_built(call.node.args[at]):
            return
        word = folded(call.node.args[at])
        if word in _DANGEROUS or (word and not at):
            self.report(call.node, "python-obfuscated-call", word)

    def _runs(self, call: Call) -> None:
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

    def _network(self, call: Call) -> None:
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
            *(labels for key, labels in call.keywords.items() if key not in _SILENT),
        )
        host = flows.host_of(self._url(node, where))
        marks = frozenset((f"host:{host}",)) if host else NONE
        for label in body:
            if label.startswith("param:"):
                self.sent[label[6:]] = address | marks
        self.sends(node, body | address, address | marks)

    def _url(self, node: ast.Call, where: int) -> str:
        given = [one.value for one in node.keywords if one.arg == "url"] or node.args[where:]
        return self._first_text(given[0]) if given else ""

    def _first_text(self, node: ast.expr) -> str:
        """The text that an address begins with: enough for the host."""
        if isinstance(node, ast.JoinedStr) and node.values:
            first = node.values[0]
            if isinstance(first, ast.FormattedValue):
                return self._first_text(first.value)
            return folded(first)
        while isinstance(node, ast.BinOp):
            node = node.left
        if isinstance(node, ast.Name):
            return self._names.texts.get(node.id, "")
        return folded(node)

    def sends(self, node: ast.Call, body: Labels, address: Labels) -> None:
        """Something with these labels is sent to an address with those."""
        host = next((one[5:] for one in address if one.startswith("host:")), "")
        if "env:*" in body:
            self.report(node, "python-sends-environment", host)
            return
        files = sorted(one[5:] for one in body if one.startswith("file:"))
        if files:
            self.report(node, "python-sends-credentials", f"{files[0]} → {host}")
            return
        secrets = secrets_in(body)
        strange = {one for one in secrets if host and flows.is_strange(one, host)}
        packed = {one[8:] for one in body if one.startswith("encoded:")}
        packed = {one for one in packed if not host or flows.is_strange(one, host)}
        if strange or packed or (secrets and "decoded" in address):
            shown = min(strange or packed or secrets)
            place = host or "an address that is hidden"
            self.report(node, "python-sends-secret", f"{shown} → {place}")
        elif "read" in body and is_fixed_place(f"http://{host}"):
            self.report(node, "uploads-given-file", host)

    def _writes(self, call: Call) -> None:
        arguments = call.node.args
        mode = folded(arguments[1]) if len(arguments) > 1 else ""
        opens = call.name == "open" and ("w" in mode or "a" in mode)
        if not opens and call.last not in {"write_text", "write_bytes"}:
            return
        for label in call.first | call.base:
            if label.startswith("start:"):
                rule = "python-login-keys" if "authorized_keys" in label else "python-start-files"
                self.report(call.node, rule, label[6:])
                return

    def report(self, node: ast.AST, rule: str, evidence: str) -> None:
        """Keep a finding."""
        self.report_line(getattr(node, "lineno", 1), rule, evidence)

    def report_line(self, line: int, rule: str, evidence: str) -> None:
        """Keep a finding about a line of the module, from 1."""
        if not self.quiet:
            at = self._region.line + line - 1
            self.findings.append(Finding(rule, self._path, at, evidence[:160]))


def _shell_text(node: ast.expr) -> str:
    """A command as a shell would see it; what is filled in stays in braces."""
    if isinstance(node, ast.List | ast.Tuple):
        return " ".join(_shell_text(one) or "X" for one in node.elts[:50])
    if not isinstance(node, ast.JoinedStr):
        return folded(node)
    out = ""
    for part in node.values:
        if not isinstance(part, ast.FormattedValue):
            out += folded(part)
        elif isinstance(part.value, ast.Name | ast.Attribute):
            out += "{" + ast.unparse(part.value) + "}"
        else:
            out += "{x}"
    return out


def _takes_shell(call: Call) -> bool:
    return call.name in _SHELLS or any(one.arg == "shell" for one in call.node.keywords)
