"""Secrets that a tool skill declares: lookup, and redaction in answers.

Looked up in this order: the keyring (service `satchel`, extra `keyring`), the file `secrets.env`
next to `config.toml`, the environment. Only names in a skill.yaml are looked up, and only for a
skill that may run. In the output of the program the values, also as base64, hex and URL-encoded,
are replaced by their names. That prevents accidents; the sandbox without network prevents
exfiltration.

"""

from __future__ import annotations

import base64
import os
import re
from typing import TYPE_CHECKING, Any, cast

from satchel._fs import read_plain
from satchel._optional import available
from satchel.errors import SettingsError
from satchel.i18n import Message

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from satchel.settings import Settings

FILE = "secrets.env"
SERVICE = "satchel"
MIN_SECRET_CHARS = 6
"""Anything shorter occurs in ordinary text too often to be redacted."""
_MAX_FILE_BYTES = 256 * 1024
_LINE = re.compile(r"\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=(.*)")
_GAP = re.compile(r"… \[[\d,]+ bytes were dropped\] …\n")
"""The marker at the start of a text whose beginning was dropped."""
_MIN_PART_CHARS = 4
"""Length from which a piece of a secret at a cut is redacted."""

Pairs = tuple[tuple[str, str], ...]


class Secrets:
    """Looks up the values of secrets."""

    def __init__(self, settings: Settings, env: Mapping[str, str] | None = None) -> None:
        config = settings.paths.config
        self.file = os.path.join(os.path.dirname(config), FILE) if config else ""
        self._env = env

    def values(self, names: Sequence[str]) -> Pairs:
        """Name and value of each secret.

        Raises:
            SettingsError: one is not set, too short, or the file cannot be used.
        """
        found: list[tuple[str, str]] = []
        missing: list[str] = []
        table: dict[str, str] | None = None
        for name in names:
            value = _from_keyring(name)
            if not value:
                table = self._read() if table is None else table
                environment = os.environ if self._env is None else self._env
                value = table.get(name) or environment.get(name)
            if not value:
                missing.append(name)
                continue
            if len(value) < MIN_SECRET_CHARS or "\0" in value:
                raise SettingsError(
                    Message("The secret `{name}` is too short, or contains NUL", name=name),
                    Message("Use at least {count} characters", count=MIN_SECRET_CHARS),
                )
            found.append((name, value))
        if missing:
            step = Message(
                "Put `{name}=…` into `{path}`, or set `{name}` in the environment",
                name=missing[0],
                path=self.file or FILE,
            )
            shown = [f"`{name}`" for name in missing]
            raise SettingsError(Message("Not set: {names}", names=shown), step)
        return tuple(found)

    def _read(self) -> dict[str, str]:
        if not self.file:
            return {}
        try:
            private = os.name == "nt" or not os.lstat(self.file).st_mode & 0o077
            text = read_plain(self.file, _MAX_FILE_BYTES).decode()
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except (OSError, UnicodeDecodeError) as exc:
            reason = exc.strerror or str(exc) if isinstance(exc, OSError) else "UTF-8"
            raise SettingsError(
                Message("`{path}` cannot be used: {reason}", path=self.file, reason=reason),
                Message("Correct it"),
            ) from exc
        if not private:
            raise SettingsError(
                Message("Other users may read `{path}`", path=self.file),
                Message("Run `{command}`", command=f"chmod 600 {self.file}"),
            )
        return dict(_lines(text))


def _lines(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        match = _LINE.fullmatch(line)
        if match is None:
            continue
        value = match.group(2).strip()
        if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
            value = value[1:-1]
        yield match.group(1), value


def _from_keyring(name: str) -> str:
    module: Any = available("keyring")
    if module is None:
        return ""
    try:
        return str(module.get_password(SERVICE, name) or "")
    except Exception:  # noqa: BLE001 - a locked or absent keyring has no secrets
        return ""


class Redactor:
    """Replaces the values of secrets in the output of a program."""

    def __init__(self, secrets: Pairs) -> None:
        needles: dict[str, str] = {}
        for name, value in secrets:
            for form in _forms(value):
                needles.setdefault(form, f"[secret {name}]")
        self._needles = needles
        # The longest first: a short form may be part of a longer one.
        parts = sorted(needles, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, parts))) if parts else None
        self.count = 0
        """Number of replacements."""

    def text(self, text: str) -> str:
        """The text without secrets."""
        return self._pattern.sub(self._name, text) if self._pattern is not None and text else text

    def pieces(self, text: str) -> str:
        """Redact a shortened text, where a cut may have split a secret."""
        if self._pattern is None or not text:
            return text
        text, mark = self.text(text), ""
        gap = _GAP.match(text)
        if gap is not None:
            mark, text = gap.group(), self._redact_edge(text[gap.end() :], at_end=False)
        return mark + self._redact_edge(text, at_end=True)

    def _name(self, match: re.Match[str]) -> str:
        self.count += 1
        return self._needles[match.group()]

    def _redact_edge(self, text: str, *, at_end: bool) -> str:
        """Redact the beginning of a secret at the end of a text, or the end of one at its start."""
        for form, name in self._needles.items():
            for size in range(min(len(form) - 1, len(text)), _MIN_PART_CHARS - 1, -1):
                if at_end and text.endswith(form[:size]):
                    self.count += 1
                    return text[:-size] + name
                if not at_end and text.startswith(form[-size:]):
                    self.count += 1
                    return name + text[size:]
        return text

    def value(self, value: Any) -> Any:
        """Redact a JSON value, including keys."""
        if self._pattern is None:
            return value
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            table = cast("dict[Any, Any]", value)
            return {self.text(str(key)): self.value(item) for key, item in table.items()}
        if isinstance(value, list):
            return [self.value(item) for item in cast("list[Any]", value)]
        if isinstance(value, int | float) and not isinstance(value, bool):
            shown = str(value)
            return self.text(shown) if self._pattern.search(shown) else value
        return value


def _forms(value: str) -> Iterable[str]:
    import json
    from urllib.parse import quote, quote_plus

    data = value.encode("utf-8", "surrogateescape")
    found = {
        value,
        value.strip(),
        json.dumps(value)[1:-1],
        json.dumps(value, ensure_ascii=False)[1:-1],
        quote(data, safe=""),
        quote_plus(data),
        data.hex(),
        data.hex().upper(),
    }
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        found.add(encode(data).decode().rstrip("="))
        # Inside a longer text it starts at one of three offsets; the outer characters are shared.
        for shift in (0, 1, 2):
            whole = encode(b"\0" * shift + data).decode().rstrip("=")
            found.add(whole[shift + 1 if shift else 0 : -1])
    found |= {line.strip() for line in value.splitlines()}  # a key in several lines
    return (form for form in found if len(form) >= MIN_SECRET_CHARS)
