"""What can every source do, and what does it hand over?

A `Source` is an address. Fetching it gives a `Bundle`: all its files as one tree, and the `Place`
that the lockfile will remember. Nothing is written to where skills live; a hub's client is one
more source.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple, Protocol
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from satchel._language import say
from satchel.store.archive.rules import refuse

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    from satchel.library.lockfile import Place
    from satchel.skill.tree import Tree


class Bundle(NamedTuple):
    """What a source holds right now. Open until the `with` block ends."""

    place: Place
    """Where it came from. `path` is what was asked for within it, such as one skill's folder."""
    tree: Tree
    """Every file of the source. Links are still links; `subtree` resolves them for one skill."""
    notes: tuple[str, ...] = ()
    """What was left out or is worth knowing, in the reader's language."""
    name: str = ""
    """What to call a skill that lies at the very top and has no folder of its own."""

    def place_of(self, path: str) -> Place:
        """The place of one skill within the source."""
        return self.place._replace(path=path)


class Source(Protocol):
    """Somewhere skills come from."""

    @property
    def kind(self) -> str:
        """As in `Place.kind`."""
        ...

    @property
    def url(self) -> str:
        """As in `Place.url`: never with a password."""
        ...

    def fetch(
        self, *, ref: str = "", commit: str = "", progress: Callable[[str], None] | None = None
    ) -> AbstractContextManager[Bundle]:
        """Get what is there now, or what `ref` or `commit` names.

        Raises:
            Unsafe: it holds something that is never unpacked.
            NotFound: it is not there, or has no such ref.
        """
        ...


def blocked_paths(tree: Tree) -> Mapping[str, str]:
    """Paths of a source that no skill may contain, with the rule: submodules, devices."""
    found: Mapping[str, str] = getattr(tree, "blocked", {})
    return found


_SCHEMES = frozenset(("https", "http", "ssh", "git"))
_SCP = re.compile(
    r"(?P<user>[A-Za-z0-9_][A-Za-z0-9._-]*)@(?P<host>[A-Za-z0-9][A-Za-z0-9.-]*)"
    r":(?P<path>[A-Za-z0-9~_/.][^\s]*)\Z"
)
_HOST = re.compile(r"(?:[A-Za-z0-9][A-Za-z0-9._-]*|\[[0-9A-Fa-f:.]+\])\Z")
_REF = re.compile(r"(?!-)(?!.*(?:\.\.|@\{|//|\.lock(?:/|\Z)))[^\x00-\x20\x7f~^:?*\[\\]{1,250}\Z")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:{1,2}//+")
_DRIVE = re.compile(r"[A-Za-z]:[\\/]")
_PASSWORD = re.compile(r"[^/@:\[\]]*:")
_PORT = re.compile(r"[0-9]*(?:[/?#]|\Z)")
_COMMIT = re.compile(r"(?:[0-9a-f]{40}|[0-9a-f]{64})\Z")


class Address(NamedTuple):
    """A repository's address."""

    clean: str
    """Without any secret: for the lockfile, for people, and for git's arguments."""
    user: str = ""
    """Who to be there; a part of `clean` where it is no secret, as in `ssh://git@…`."""
    password: str | None = None
    """None when there is none; an empty one may follow a token."""

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must not be shown: as it is, and as it is written in an address."""
        plain = self.password is not None or self.clean.startswith("ssh:")
        word = self.password if plain else self.user  # a user without a password is a token
        return tuple(dict.fromkeys((word, quote(word, safe="")))) if word else ()

    @property
    def site(self) -> str:
        """The machine that the user and the password are for: no other may get them."""
        parts = urlsplit(self.clean)
        return f"{parts.scheme}://{parts.netloc}"


def parse_address(text: str, whole: str = "") -> Address:
    """Check an address and take the secrets out of it. A path on this machine is left alone.

    A user and a password are for `git`, and reach it on a way that nobody else sees. A secret in a
    query would be an argument of a program, which everybody on the machine sees: it is refused.

    Args:
        text: The address.
        whole: What was typed, of which it is a part; a password may hold the sign that it was
            split at.

    Raises:
        Unsafe: it is not a plain address.
    """
    refused = redacted(whole or text) or "-"
    if not text or text.startswith("-") or not text.isprintable():
        raise refuse("git-address", refused)
    if text.startswith("/") or _DRIVE.match(text):
        return Address(text)
    if _SCP.match(text):
        return Address(text)
    try:
        parts = urlsplit(text)
        host, port = parts.hostname or "", parts.port
    except ValueError as exc:
        raise refuse("git-address", refused) from exc
    scheme = parts.scheme.lower()
    written = f"[{host}]" if ":" in host else host
    if scheme not in _SCHEMES or not _HOST.match(written) or not parts.path.strip("/"):
        raise refuse("git-address", refused)
    if parts.query:
        raise refuse("git-address", refused, say("leave out what follows the `?`"))
    user, password = _credentials(parts.username, parts.password)
    plain = scheme == "ssh" and bool(user) and password is None
    if user is not None and not plain and "@" in parts.path:
        # A password with a `/` ends the host's part early: the rest of it would be shown.
        raise refuse("git-address", refused, say("write `/` and `@` in a password as %2F and %40"))
    if not f"{user}{password}".isprintable() or (user or "").startswith("-"):
        raise refuse("git-address", refused)
    keep = f"{parts.username}@" if scheme == "ssh" and parts.username else ""
    place = f"{keep}{written}" + (f":{port}" if port is not None else "")
    return Address(urlunsplit((scheme, place, parts.path, "", "")), user or "", password)


def _credentials(user: str | None, password: str | None) -> tuple[str | None, str | None]:
    """As they are meant, not as an address has to write them."""
    return (
        None if user is None else unquote(user),
        None if password is None else unquote(password),
    )


def redacted(text: str) -> str:
    """What was typed as a source, without what might be a secret; right for every message.

    Rather too little is shown than too much: up to the last `@` everything may be a password, and
    so may a port that is no number, and every query.
    """
    scheme = _SCHEME.match(text)
    start, rest = (scheme.group(), text[scheme.end() :]) if scheme else ("", text)
    if scheme and "@" in rest.partition("?")[2]:
        rest = "…"  # it may be in the middle of a password
    elif "@" in rest and (scheme or (_PASSWORD.match(rest) and not _DRIVE.match(rest))):
        rest = "…@" + rest.rpartition("@")[2]
    elif scheme and (user := _PASSWORD.match(rest)) and not _PORT.match(rest, user.end()):
        rest = "…"
    return start + (rest.partition("?")[0] + "?…" if scheme and "?" in rest else rest)


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
