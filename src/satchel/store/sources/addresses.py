"""Checks the addresses and refs of git, and hides secrets of an address in messages."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit, urlunsplit

from satchel.i18n import say
from satchel.store.archive.rules import refuse

if TYPE_CHECKING:
    from urllib.parse import SplitResult

_SCHEMES = frozenset(("https", "http", "ssh", "git"))
_SCP_ADDRESS = re.compile(
    r"(?P<user>[A-Za-z0-9_][A-Za-z0-9._-]*)@(?P<host>[A-Za-z0-9][A-Za-z0-9.-]*)"
    r":(?P<path>[A-Za-z0-9~_/.][^\s]*)\Z"
)
_HOST_NAME = re.compile(r"(?:[A-Za-z0-9][A-Za-z0-9._-]*|\[[0-9A-Fa-f:.]+\])\Z")
_REF_NAME = re.compile(
    r"(?!-)(?!.*(?:\.\.|@\{|//|\.lock(?:/|\Z)))[^\x00-\x20\x7f~^:?*\[\\]{1,250}\Z"
)
_SCHEME_PREFIX = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:{1,2}//+")
_WINDOWS_DRIVE = re.compile(r"[A-Za-z]:[\\/]")
_USER_PREFIX = re.compile(r"[^/@:\[\]]*:")
_PORT_NUMBER = re.compile(r"[0-9]*(?:[/?#]|\Z)")
_COMMIT_ID = re.compile(r"(?:[0-9a-f]{40}|[0-9a-f]{64})\Z")


def parse_address(text: str, full_text: str = "") -> str:
    """Check an address and normalise it. A local path is returned unchanged.

    Secrets are refused: they would be visible in the arguments of git, and end in the lockfile.

    Args:
        text: The address.
        full_text: The full text that it is a part of, for messages: a password may contain the
            separator.

    Raises:
        Unsafe: it is not a plain address.
    """
    shown_text = redact_address(full_text or text) or "-"
    if not text or text.startswith("-") or not text.isprintable():
        raise refuse("git-address", shown_text)
    if text.startswith("/") or _WINDOWS_DRIVE.match(text) or _SCP_ADDRESS.match(text):
        return text
    try:
        parts = urlsplit(text)
        host, port = _written_host(parts), parts.port
    except ValueError as exc:
        raise refuse("git-address", shown_text) from exc
    scheme = parts.scheme.lower()
    if scheme not in _SCHEMES or not _HOST_NAME.match(host) or not parts.path.strip("/"):
        raise refuse("git-address", shown_text)
    if parts.query:
        raise refuse("git-address", shown_text, say("it is not valid"))
    authority = _user_prefix(parts, shown_text) + host + (f":{port}" if port is not None else "")
    return urlunsplit((scheme, authority, parts.path, "", ""))


def _written_host(parts: SplitResult) -> str:
    """The host of an address as it is written there: an IPv6 address has brackets."""
    host = parts.hostname or ""
    return f"[{host}]" if ":" in host else host


def _user_prefix(parts: SplitResult, shown_text: str) -> str:
    """The user of an ssh address with its `@`; empty when there is none.

    Raises:
        Unsafe: there is a password, a user of another scheme, or one that git takes for an option.
    """
    is_ssh = parts.scheme.lower() == "ssh"
    prefix = f"{parts.username}@" if is_ssh and parts.username else ""
    if parts.password is not None or (parts.username is not None and not prefix):
        why = say("it has a user or a password: use ssh, or a credential helper of git")
        raise refuse("git-address", shown_text, why)
    if unquote(prefix).startswith("-") or not unquote(prefix).isprintable():
        raise refuse("git-address", shown_text)
    return prefix


def redact_address(text: str) -> str:
    """Return the text of a source without possible secrets, for messages.

    Everything up to the last `@`, a port that is not a number, and a query may be secret.
    """
    scheme = _SCHEME_PREFIX.match(text)
    if scheme:
        return scheme.group() + _redact_authority(text[scheme.end() :])
    if "@" in text and _USER_PREFIX.match(text) and not _WINDOWS_DRIVE.match(text):
        return "…@" + text.rpartition("@")[2]
    return text


def _redact_authority(address: str) -> str:
    """Return what follows `https://`, without possible secrets."""
    if "@" in address.partition("?")[2]:
        return "…"  # it may be in the middle of a password
    user_prefix = _USER_PREFIX.match(address)
    if "@" in address:
        address = "…@" + address.rpartition("@")[2]
    elif user_prefix and not _PORT_NUMBER.match(address, user_prefix.end()):
        return "…"
    path, question_mark, _ = address.partition("?")
    return path + "?…" if question_mark else path


def check_ref(ref: str) -> None:
    """Refuse a ref that git would interpret in another way.

    Raises:
        Unsafe: it is not a plain name.
    """
    if not _REF_NAME.match(ref) or ref.startswith("/") or ref.endswith(("/", ".")) or ref == "@":
        raise refuse("git-ref", ref)


def is_commit(ref: str) -> bool:
    """Whether a ref is a full commit id."""
    return bool(_COMMIT_ID.match(ref))
