"""What do the YARA rules say? They need the extra `scan`; without it the other engines look alone.

The shipped rules are compiled once and kept. A rule `encoded_shell` is `encoded-shell` in the
reports; its sentences are in `rules/yara.toml`. Rules from a user's file are called
`yara:<name>` and take `severity`, `what`, `why` and `fix` from their `meta`.
"""

from __future__ import annotations

import atexit
import os
import threading
from functools import cache
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from satchel._language import Message
from satchel._optional import available, require
from satchel.errors import InvalidInput
from satchel.security.report import Finding
from satchel.security.rules import RULES, SEVERITIES, Rule

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_SECONDS = 5
_WORDS = "rule words {{ strings: {} condition: any of them }}"
_LIMIT = 4 << 20
"""Bytes of a user's file of rules."""
_loaded: dict[tuple[str, ...], Yara | None] = {}
_loading = threading.Lock()
"""To compile takes a second and some memory: whoever comes meanwhile waits for the first."""


class _Owned:
    """A scanner, and the thread that made it: no other may use it, nor let go of it."""

    def __init__(self, scanner: Any) -> None:
        self.scanner = scanner
        self.thread = threading.get_ident()


_alive: WeakSet[_Owned] = WeakSet()


class PerThread(threading.local):
    """A scanner for each thread: one that another thread made ends the process's work at once."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._owned: _Owned | None = None

    def get(self) -> Any:
        """This thread's."""
        if self._owned is None:
            self._owned = _Owned(self._make())
            _alive.add(self._owned)
        return self._owned.scanner


@atexit.register
def _keep_others() -> None:
    """Let the scanners of threads that still wait go with the process.

    The interpreter would let go of them in its own thread, and each would complain of it.
    """
    others = [one for one in _alive if one.thread != threading.get_ident()]
    if others:
        import ctypes

        for one in others:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(one))


class Yara:
    """Compiled rules, and the scanner that runs them."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._scanner = PerThread(make)

    def look(self, path: str, data: bytes) -> Iterator[Finding]:
        """What the rules find in a file."""
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


class Words:
    """Finds which of many words a text holds, all at once: far faster than one by one."""

    def __init__(self, module: Any, words: tuple[str, ...]) -> None:
        names = {f"$w{at}": word for at, word in enumerate(words)}
        lines = (f"{name} = {{ {word.encode().hex(' ')} }}" for name, word in names.items())
        self._names = names
        rules = module.compile(_WORDS.format(" ".join(lines)))

        def make() -> Any:
            scanner = module.Scanner(rules)
            scanner.max_matches_per_pattern(1)
            return scanner

        self._scanner = PerThread(make)

    def present(self, text: str) -> set[str]:
        """The words that `text`, in lower case, holds."""
        found = self._scanner.get().scan(text.encode("utf-8", "replace")).matching_rules
        names = self._names
        return {names[one.identifier] for rule in found for one in rule.patterns if one.matches}


def word_finder(words: tuple[str, ...]) -> Words | None:
    """A finder of words; None when YARA is not installed."""
    # Made once: one that a second thread replaces would be let go of with the first one's scanner.
    with _loading:
        return _finder(words)


@cache
def _finder(words: tuple[str, ...]) -> Words | None:
    module = available("yara_x")
    return None if module is None else Words(module, words)


def load(files: tuple[str, ...]) -> Yara | None:
    """The shipped rules and those of `files`; None when YARA is not installed.

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
    """What makes a scanner of the rules."""
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
                compiler.add_source(file.read(_LIMIT), origin=path)
        except OSError as exc:
            raise InvalidInput(
                Message("`{path}` cannot be read: {reason}", path=path, reason=exc.strerror or exc),
                "Give a file of YARA rules",
            ) from exc
        except (module.CompileError, UnicodeDecodeError) as exc:
            first = str(exc).strip().splitlines()[0]
            raise InvalidInput(
                f"`{path}` is not made of YARA rules: {first}", "Correct the file"
            ) from exc
    rules = compiler.build()
    for rule in rules:
        if rule.namespace != "default":
            RULES.add(_user_rule(rule))

    def make() -> Any:
        scanner = module.Scanner(rules)
        scanner.set_timeout(_SECONDS)
        scanner.max_matches_per_pattern(3)
        return scanner

    return make


def _user_rule(rule: Any) -> Rule:
    meta: dict[str, Any] = dict(rule.metadata)
    severity = str(meta.get("severity", "review")).lower()
    return Rule(
        id=f"yara:{rule.identifier}",
        severity=severity if severity in SEVERITIES else "review",
        what=str(meta.get("what") or meta.get("description") or rule.identifier),
        why=str(meta.get("why", "A rule of your own says so.")),
        fix=str(meta.get("fix", "Look at the file")),
        engine="yara",
    )
