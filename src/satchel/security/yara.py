"""YARA rules, with the extra `scan`; without it the other engines scan alone.

The built-in rules are compiled once. A rule `encoded_shell` is `encoded-shell` in reports; its
sentences are in `rules/yara.toml`. Rules of a user's file are named `yara:<name>` and take
`severity`, `what` and `fix` from their `meta`.
"""

from __future__ import annotations

import atexit
import os
import threading
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from satchel._optional import available, require
from satchel.errors import InvalidInput
from satchel.i18n import Message
from satchel.security.report import Finding
from satchel.security.rules import RULES, SEVERITIES, ScanRule

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_FILE_TIMEOUT_S = 5
_MAX_RULE_FILE_BYTES = 4 << 20
_loaded: dict[tuple[str, ...], Yara | None] = {}
_loading = threading.Lock()
"""Compiling takes a second and some memory, so concurrent callers wait for the first."""


class _Owned:
    """A scanner and the thread that made it: no other thread may use or release it."""

    def __init__(self, scanner: Any) -> None:
        self.scanner = scanner
        self.thread = threading.get_ident()


_alive: WeakSet[_Owned] = WeakSet()


class PerThread(threading.local):
    """One scanner per thread: using that of another thread aborts the process."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._owned: _Owned | None = None

    def get(self) -> Any:
        """The scanner of this thread."""
        if self._owned is None:
            self._owned = _Owned(self._make())
            _alive.add(self._owned)
        return self._owned.scanner


@atexit.register
def _keep_others() -> None:
    """Keep the scanners of other threads until the process ends.

    The interpreter would release them in the main thread, and each would print an error.
    """
    others = [one for one in _alive if one.thread != threading.get_ident()]
    if others:
        import ctypes

        for one in others:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(one))


class Yara:
    """Compiled rules with their scanners."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._scanner = PerThread(make)

    def scan(self, path: str, data: bytes) -> Iterator[Finding]:
        """The findings in a file."""
        for rule in self._scanner.get().scan(data).matching_rules:
            name = rule.identifier.replace("_", "-")
            if rule.namespace != "default":
                name = f"yara:{rule.identifier}"
            where = [match.offset for one in rule.patterns for match in one.matches]
            shown = [
                data[match.offset : match.offset + min(match.length, 80)]
                for one in rule.patterns
                for match in one.matches
            ]
            line = data.count(b"\n", 0, min(where)) + 1 if where and b"\0" not in data[:4096] else 0
            text = shown[0].decode("utf-8", "replace") if shown else ""
            yield Finding(name, path, line, " ".join(text.split()))


def load_rules(files: tuple[str, ...]) -> Yara | None:
    """Load the built-in rules and those of `files`; None when YARA is not installed.

    Raises:
        MissingExtra: files are given, and YARA is not installed.
        InvalidInput: a file is not made of YARA rules.
    """
    with _loading:
        if files not in _loaded:
            module = require("yara_x", "scan") if files else available("yara_x")
            _loaded[files] = None if module is None else Yara(_compiled(module, files))
        return _loaded[files]


def _compiled(module: Any, files: tuple[str, ...]) -> Callable[[], Any]:
    """Compile the rules; returns a factory of scanners."""
    compiler = module.Compiler()
    folder = os.path.join(os.path.dirname(__file__), "rules")
    for name in sorted(os.listdir(folder)):
        if name.endswith(".yar"):
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                compiler.add_source(file.read(), origin=name)
    for path in files:
        compiler.new_namespace(path)
        try:
            with open(path, encoding="utf-8") as file:
                compiler.add_source(file.read(_MAX_RULE_FILE_BYTES), origin=path)
        except OSError as exc:
            raise InvalidInput(
                Message("`{path}` cannot be read: {reason}", path=path, reason=exc.strerror or exc),
                "Give a file of YARA rules",
            ) from exc
        except (module.CompileError, UnicodeDecodeError) as exc:
            first = str(exc).strip().splitlines()[0]
            raise InvalidInput(
                f"`{path}` is not made of YARA rules: {first}", "Correct it"
            ) from exc
    rules = compiler.build()
    for rule in rules:
        if rule.namespace != "default":
            RULES.add(_user_rule(rule))

    def make() -> Any:
        scanner = module.Scanner(rules)
        scanner.set_timeout(_FILE_TIMEOUT_S)
        scanner.max_matches_per_pattern(3)
        return scanner

    return make


def _user_rule(rule: Any) -> ScanRule:
    meta: dict[str, Any] = dict(rule.metadata)
    severity = str(meta.get("severity", "review")).lower()
    return ScanRule(
        id=f"yara:{rule.identifier}",
        severity=severity if severity in SEVERITIES else "review",
        what=str(meta.get("what") or meta.get("description") or rule.identifier),
        fix=str(meta.get("fix", "Check that this is intended")),
        engine="yara",
    )
