"""Which git addresses and refs are used, and how is one written down without its password?

An address reaches `git` as an argument, and some addresses are programs (`ext::sh -c …`). Only
plain ones pass. What is recorded or shown never carries a user's secret.
"""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import urlsplit, urlunsplit

from satchel.store.archive.rules import refuse

_SCHEMES = frozenset(("https", "http", "ssh", "git"))
_SCP = re.compile(
    r"(?P<user>[A-Za-z0-9_][A-Za-z0-9._-]*)@(?P<host>[A-Za-z0-9][A-Za-z0-9.-]*)"
    r":(?P<path>[A-Za-z0-9~_/.][^\s]*)\Z"
)
_HOST = re.compile(r"(?:[A-Za-z0-9][A-Za-z0-9._-]*|\[[0-9A-Fa-f:.]+\])\Z")
_REF = re.compile(r"(?!-)(?!.*(?:\.\.|@\{|//|\.lock(?:/|\Z)))[^\x00-\x20\x7f~^:?*\[\\]{1,250}\Z")
_COMMIT = re.compile(r"(?:[0-9a-f]{40}|[0-9a-f]{64})\Z")


class Address(NamedTuple):
    """A repository's address."""

    clean: str
    """Without any secret: for the lockfile, for people, and for git's arguments."""
    real: str
    """As given; equal to `clean` unless there is a secret in it."""
    secrets: tuple[str, ...] = ()
    """What must not be shown."""


def parse_address(text: str) -> Address:
    """Check an address and take the secrets out of it. A path on this machine is left alone.

    Raises:
        Unsafe: it is not a plain address.
    """
    if not text or text.startswith("-") or not text.isprintable():
        raise refuse("git-address", _harmless(text))
    if text.startswith("/") or re.match(r"[A-Za-z]:[\\/]", text):
        return Address(text, text)
    if _SCP.match(text):
        return Address(text, text)
    try:
        parts = urlsplit(text)
        host, port = parts.hostname or "", parts.port
    except ValueError as exc:
        raise refuse("git-address", _harmless(text)) from exc
    written = f"[{host}]" if ":" in host else host
    if (
        parts.scheme.lower() not in _SCHEMES
        or not _HOST.match(written)
        or not parts.path.strip("/")
    ):
        raise refuse("git-address", _harmless(text))
    keep = f"{parts.username}@" if parts.scheme == "ssh" and parts.username else ""
    if keep.startswith("-"):
        raise refuse("git-address", _harmless(text))
    place = f"{keep}{written}" + (f":{port}" if port is not None else "")
    clean = urlunsplit((parts.scheme.lower(), place, parts.path, "", ""))
    real = urlunsplit((parts.scheme.lower(), parts.netloc, parts.path, parts.query, ""))
    secrets = tuple(
        word for word in (parts.netloc.rpartition("@")[0], parts.password, parts.query) if word
    )
    if keep and not parts.password:
        secrets = (parts.query,) if parts.query else ()
    if not secrets:
        real = clean
    return Address(clean, real, secrets)


def check_ref(ref: str) -> None:
    """Refuse a ref that git would read as something else.

    Raises:
        Unsafe: it is no plain name.
    """
    if not _REF.match(ref) or ref.startswith("/") or ref.endswith(("/", ".")) or ref == "@":
        raise refuse("git-ref", ref)


def is_commit(ref: str) -> bool:
    """Whether a ref is a whole commit id."""
    return bool(_COMMIT.match(ref))


def _harmless(text: str) -> str:
    """An address that is refused, without what might be a password."""
    return re.sub(r"//[^/@]*@", "//…@", text) or "-"
