"""Secrets that a tool skill declares: lookup, and redaction in answers.

Looked up in this order: the keyring (service `satchel`, extra `keyring`), the file `secrets.env`
next to `config.toml`, the environment. Only names in a skill.yaml are looked up, and only for a
skill that may run. In the output of the program the values, also as base64, hex and URL-encoded,
are replaced by their names. That prevents accidents; the sandbox without network prevents
exfiltration.
"""

from __future__ import annotations

import base64
import json
import os
import re
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from satchel._fs import read_plain
from satchel._optional import available
from satchel.errors import SettingsError
from satchel.i18n import Message
from satchel.security.secret_flows import is_secret

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from satchel.library.trust_store import ScriptGrant
    from satchel.settings import Settings

FILE = "secrets.env"
SERVICE = "satchel"
MIN_SECRET_CHARS = 6
"""Anything shorter occurs in ordinary text too often to be redacted."""
_MAX_FILE_BYTES = 256 * 1024
_VARIABLE_LINE = re.compile(r"\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=(.*)")
_TRUNCATION_MARKER = re.compile(r"… \[[\d,]+ bytes were dropped\] …\n")
"""The start of a text whose beginning was dropped."""
_MIN_PART_CHARS = 4
"""Length from which a piece of a secret at a cut is redacted."""

Pairs = tuple[tuple[str, str], ...]
"""Name and value of each secret or variable."""


def variable_option(name: str) -> str:
    """The option of `satchel trust` that passes a variable to the scripts of a skill."""
    return f"--secret {name}" if is_secret(name) else f"--variable {name}"


class UnsetSecret(SettingsError):
    """A secret has no value."""


class Secrets:
    """Looks up the values of secrets."""

    def __init__(self, settings: Settings, env: Mapping[str, str] | None = None) -> None:
        config = settings.paths.config
        self.file = os.path.join(os.path.dirname(config), FILE) if config else ""
        self._env = env

    def values(self, names: Sequence[str], *, min_chars: int = MIN_SECRET_CHARS) -> Pairs:
        """Name and value of each secret.

        Args:
            names: Their names.
            min_chars: The least length of a value.

        Raises:
            SettingsError: one is not set, too short, or the file cannot be used.
        """
        pairs: list[tuple[str, str]] = []
        missing: list[str] = []
        table: dict[str, str] | None = None
        for name in names:
            value = read_keyring(name)
            if not value:
                table = self._read_file() if table is None else table
                environment = os.environ if self._env is None else self._env
                value = table.get(name) or environment.get(name)
            if not value:
                missing.append(name)
                continue
            if len(value) < min_chars or "\0" in value:
                raise SettingsError(
                    Message("The secret `{name}` is too short, or contains NUL", name=name),
                    Message("Use at least {count} characters", count=min_chars),
                )
            pairs.append((name, value))
        if missing:
            step = Message(
                "Put `{name}=…` into `{path}`, or set `{name}` in the environment",
                name=missing[0],
                path=self.file or FILE,
            )
            quoted_names = [f"`{name}`" for name in missing]
            raise UnsetSecret(Message("Not set: {names}", names=quoted_names), step)
        return tuple(pairs)

    def having_values(self, names: Iterable[str]) -> set[str]:
        """Those of the names that have a value; an unusable file counts as empty."""
        environment = os.environ if self._env is None else self._env
        table: dict[str, str] = {}
        with suppress(SettingsError):  # reported when a value is needed
            table = self._read_file()
        return {
            name
            for name in names
            if table.get(name) or environment.get(name) or _is_in_keyring(name)
        }

    def _read_file(self) -> dict[str, str]:
        """Read `secrets.env`; empty when there is none.

        Raises:
            SettingsError: it cannot be read, or other users may read it.
        """
        if not self.file:
            return {}
        try:
            is_private = os.name == "nt" or not os.lstat(self.file).st_mode & 0o077
            text = read_plain(self.file, _MAX_FILE_BYTES).decode()
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except (OSError, UnicodeDecodeError) as exc:
            reason = exc.strerror or str(exc) if isinstance(exc, OSError) else "UTF-8"
            raise SettingsError(
                Message("`{path}` cannot be used: {reason}", path=self.file, reason=reason),
                Message("Correct it"),
            ) from exc
        if not is_private:
            raise SettingsError(
                Message("Other users may read `{path}`", path=self.file),
                Message("Run `{command}`", command=f"chmod 600 {self.file}"),
            )
        return dict(parse_variables(text))


class GrantedValues(NamedTuple):
    """The values of what the user granted to the scripts of a skill."""

    secrets: Pairs
    variables: Pairs
    unset: dict[str, SettingsError]
    """Why others cannot be used, by name."""


def look_up_grant(settings: Settings, grant: ScriptGrant) -> GrantedValues:
    """Look up the secrets and variables that the user granted to the scripts of a skill."""
    store = Secrets(settings)
    secrets: list[tuple[str, str]] = []
    variables: list[tuple[str, str]] = []
    unset: dict[str, SettingsError] = {}
    for name in (*grant.secrets, *grant.variables):
        try:
            if name in grant.secrets:
                secrets += store.values((name,))
            else:
                variables += store.values((name,), min_chars=1)
        except SettingsError as exc:
            unset[name] = exc
    return GrantedValues(tuple(secrets), tuple(variables), unset)


def parse_variables(text: str) -> Iterator[tuple[str, str]]:
    """Yield name and value of each variable that a `.env` file sets."""
    for line in text.splitlines():
        match = _VARIABLE_LINE.fullmatch(line)
        if match is None:
            continue
        value = match.group(2).strip()
        if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
            value = value[1:-1]
        yield match.group(1), value


def read_keyring(name: str) -> str:
    """Return a secret of the keyring; empty without one."""
    module: Any = available("keyring")
    if module is None:
        return ""
    try:
        return str(module.get_password(SERVICE, name) or "")
    except Exception:  # noqa: BLE001 - a locked or absent keyring has no secrets
        return ""


@cache
def _is_in_keyring(name: str) -> bool:
    """Whether the keyring has a value; asked once, because it may be another process."""
    return bool(read_keyring(name))


class Redactor:
    """Replaces the values of secrets in the output of a program."""

    def __init__(self, secrets: Pairs) -> None:
        placeholders: dict[str, str] = {}
        for name, value in secrets:
            for form in _list_forms(value):
                placeholders.setdefault(form, f"[secret {name}]")
        self._placeholders = placeholders
        """What replaces each form of a value."""
        # The longest first: a short form may be part of a longer one.
        forms = sorted(placeholders, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, forms))) if forms else None
        self.count = 0
        """Number of replacements."""

    def redact_text(self, text: str) -> str:
        """Redact a text."""
        if self._pattern is None or not text:
            return text
        return self._pattern.sub(self._replace, text)

    def redact_shortened(self, text: str) -> str:
        """Redact a shortened text, where a cut may have split a secret."""
        if self._pattern is None or not text:
            return text
        text, marker = self.redact_text(text), ""
        match = _TRUNCATION_MARKER.match(text)
        if match is not None:
            marker, text = match.group(), self._redact_edge(text[match.end() :], at_end=False)
        return marker + self._redact_edge(text, at_end=True)

    def _replace(self, match: re.Match[str]) -> str:
        self.count += 1
        return self._placeholders[match.group()]

    def _redact_edge(self, text: str, *, at_end: bool) -> str:
        """Redact the beginning of a secret at the end of a text, or the end of one at its start."""
        for form, placeholder in self._placeholders.items():
            for size in range(min(len(form) - 1, len(text)), _MIN_PART_CHARS - 1, -1):
                if at_end and text.endswith(form[:size]):
                    self.count += 1
                    return text[:-size] + placeholder
                if not at_end and text.startswith(form[-size:]):
                    self.count += 1
                    return placeholder + text[size:]
        return text

    def redact_value(self, value: Any) -> Any:
        """Redact a JSON value, including keys."""
        if self._pattern is None:
            return value
        if isinstance(value, str):
            return self.redact_text(value)
        if isinstance(value, dict):
            table = cast("dict[Any, Any]", value)
            return {
                self.redact_text(str(key)): self.redact_value(member)
                for key, member in table.items()
            }
        if isinstance(value, list):
            return [self.redact_value(member) for member in cast("list[Any]", value)]
        if isinstance(value, int | float) and not isinstance(value, bool):
            text = str(value)
            return self.redact_text(text) if self._pattern.search(text) else value
        return value


def _list_forms(value: str) -> Iterable[str]:
    """List the ways in which a program may write a secret: as it is, encoded, escaped."""
    from urllib.parse import quote, quote_plus

    data = value.encode("utf-8", "surrogateescape")
    forms = {
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
        forms.add(encode(data).decode().rstrip("="))
        # Inside a longer text it starts at one of three offsets; the outer characters are shared.
        for shift in (0, 1, 2):
            encoded = encode(b"\0" * shift + data).decode().rstrip("=")
            forms.add(encoded[shift + 1 if shift else 0 : -1])
    forms |= {line.strip() for line in value.splitlines()}  # a key in several lines
    return (form for form in forms if len(form) >= MIN_SECRET_CHARS)
