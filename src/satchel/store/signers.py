"""The signers whose signatures count, and the text that a signature covers.

    allowed_signers     OpenSSH's own format: an identity, options, a public key
    revoked_signers     public keys (or an OpenSSH revocation list) that never count again

The text has two lines, `satchel-skill-1` and `tree: sha256:…`, the digest of every file but the
signature. It needs no Satchel to be read or checked: `ssh-keygen` signs it as it is.

A project cannot name signers: whoever signs badly would only have to bring their own list.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, NamedTuple

from satchel._fs import locked, write_atomic
from satchel._language import say
from satchel.errors import InvalidInput, NotFound, Refused, SettingsError
from satchel.skill.tree import digest_of, seal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from satchel.skill.tree import Tree

SIGNATURE = "SKILL.sig"
"""A signature by `ssh-keygen -Y sign`."""
NAMESPACE = "satchel"
"""Keeps a signature over something else, a git commit say, from counting here."""
_FIRST = "satchel-skill-1"
KEY_TYPES = ("ssh-ed25519", "sk-ssh-ed25519@openssh.com")
"""Ed25519, in a file or in a hardware key."""
_MAX_FILE = 1 << 20
_KEY = re.compile(
    r"(?P<kind>(?:sk-)?(?:ssh|ecdsa)-[a-z0-9@.-]+)[ \t]+(?P<key>[A-Za-z0-9+/]+={0,2})(?=\s|$)"
)
_IDENTITY = re.compile(r"[^\s\"'#,*?!\x00-\x1f\x7f-\x9f][^\s\"',*?!\x00-\x1f\x7f-\x9f]{0,254}")
_DAY = re.compile(r"\d{4}-\d\d-\d\d")


class Signers(NamedTuple):
    """The files with signers."""

    folder: str
    """The user's configuration folder; empty when there is none."""

    @property
    def allowed(self) -> str:
        """OpenSSH's `allowed_signers`."""
        return os.path.join(self.folder, "allowed_signers") if self.folder else ""

    @property
    def revoked(self) -> str:
        """Keys that count no more."""
        return os.path.join(self.folder, "revoked_signers") if self.folder else ""


class Signer(NamedTuple):
    """Somebody whose signatures count."""

    identity: str
    key: str
    """The key's fingerprint, `SHA256:…`."""
    kind: str
    """`ssh-ed25519`, …"""
    options: str = ""
    """What limits the key, as OpenSSH writes it: `namespaces="satchel",valid-before="20270101"`."""

    @property
    def until(self) -> str:
        """The day on which the key stops to count, or nothing."""
        found = re.search(r'valid-before="?(\d{4})(\d\d)(\d\d)', self.options)
        return "-".join(found.groups()) if found else ""


def user_signers() -> Signers:
    """The signers of whoever runs this process."""
    from satchel.settings import find_paths

    config = find_paths(os.environ).config
    return Signers(os.path.dirname(config) if config else "")


def fingerprint_of(key: bytes) -> str:
    """How OpenSSH names a public key, `SHA256:…`."""
    from base64 import b64encode
    from hashlib import sha256

    return "SHA256:" + b64encode(sha256(key).digest()).decode().rstrip("=")


def list_signers(signers: Signers) -> list[Signer]:
    """The signers whose signatures count, in the order of the file."""
    return [signer for line in _lines(signers.allowed) if (signer := _parse(line))]


def add_signer(signers: Signers, identity: str, public_key: str, until: str = "") -> Signer:
    """Let a key's signatures count.

    Args:
        signers: Where to write it.
        identity: Whom the key belongs to, an e-mail address say.
        public_key: The line of a `.pub` file.
        until: The last day but one, `YYYY-MM-DD`: from that day on the key does not count.

    Raises:
        InvalidInput: the identity, the key or the day cannot be used.
        Refused: the key was revoked, or the file cannot be written.
    """
    if not _IDENTITY.fullmatch(identity):
        raise InvalidInput(
            say("`{name}` cannot be a signer's identity", name=identity),
            say("Use an e-mail address or a name without spaces, quotes, commas and wildcards"),
        )
    found = _KEY.match(public_key.strip())
    data = _decoded(found["key"]) if found else None
    if found is None or data is None or found["kind"] not in KEY_TYPES:
        raise InvalidInput(
            say("That is not an ed25519 public key"),
            say("Give the `.pub` file of a key made by `ssh-keygen -t ed25519`"),
        )
    if not _is_list(signers.revoked) and any(
        found["key"] in line for line in _lines(signers.revoked)
    ):
        raise Refused(
            say("The key `{key}` was revoked", key=fingerprint_of(data)),
            say("Ask for a new key, or delete the line in `{path}`", path=signers.revoked),
        )
    options = f'namespaces="{NAMESPACE}"'
    if until:
        if not _DAY.fullmatch(until):
            raise InvalidInput(
                say("`{value}` is not a day", value=until), say("Write it as `2027-12-31`")
            )
        options += f',valid-before="{until.replace("-", "")}"'
    row = f"{identity} {options} {found['kind']} {found['key']}"

    def change(lines: list[str]) -> list[str]:
        others = [line for line in lines if not _is(line, identity, found["key"])]
        return [*others, row]

    _edit(signers.allowed, change)
    return Signer(identity, fingerprint_of(data), found["kind"], options)


def remove_signer(signers: Signers, identity: str, *, revoke: bool = False) -> list[Signer]:
    """Let nothing count any more that this identity signed; returns what was removed.

    Args:
        signers: Where to remove it.
        identity: Whom the keys belong to; a key's fingerprint removes that key alone.
        revoke: Also write the keys down as bad: they count for nobody, and cannot be added again.

    Raises:
        NotFound: there is no such signer.
        Refused: a file cannot be written.
    """
    gone = [one for one in list_signers(signers) if identity in {one.identity, one.key}]
    if not gone:
        raise NotFound(
            say("There is no signer `{name}`", name=identity),
            say("Run `satchel signers list` to see them"),
        )
    rows = {line: signer for line in _lines(signers.allowed) if (signer := _parse(line)) in gone}
    if revoke:
        if _is_list(signers.revoked):
            raise Refused(
                say("`{path}` is a revocation list of OpenSSH", path=signers.revoked),
                say("Add the key with `ssh-keygen -k -u -f {path} KEY.pub`", path=signers.revoked),
            )
        keys = [f"{found['kind']} {found['key']}" for row in rows if (found := _key_in(row))]
        _edit(signers.revoked, lambda lines: [*lines, *(k for k in keys if k not in lines)])
    _edit(signers.allowed, lambda lines: [line for line in lines if line not in rows])
    return gone


def entries_with(signers: Signers, key: bytes) -> list[Signer]:
    """The lines that name a key, whether they count or not: to say why it does not."""
    return [one for one in list_signers(signers) if one.key == fingerprint_of(key)]


def _key_in(line: str) -> re.Match[str] | None:
    """The key of a line of `allowed_signers`."""
    return _KEY.search(line)


def _parse(line: str) -> Signer | None:
    """A line of `allowed_signers`; None when it is empty, a comment or not understood."""
    found = _key_in(line)
    data = _decoded(found["key"]) if found else None
    if found is None or data is None or line.startswith("#"):
        return None
    identity, _, options = line[: found.start()].strip().partition(" ")
    return Signer(identity.strip('"'), fingerprint_of(data), found["kind"], options.strip())


def _is(line: str, identity: str, key: str) -> bool:
    found = _key_in(line)
    parsed = _parse(line)
    return bool(found and found["key"] == key and parsed and parsed.identity == identity)


def _decoded(text: str) -> bytes | None:
    from base64 import b64decode

    try:
        return b64decode(text, validate=True)
    except ValueError:
        return None


def _lines(path: str) -> list[str]:
    """The lines of a file; none when there is no file.

    Raises:
        SettingsError: it is there and cannot be read. An unreadable list is never a yes.
    """
    if not path:
        return []
    try:
        with open(path, encoding="utf-8") as stream:
            text = stream.read(_MAX_FILE + 1)
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as exc:
        raise SettingsError(
            say("`{path}` cannot be read: {reason}", path=path, reason=exc), say("Correct the file")
        ) from exc
    return text[:_MAX_FILE].splitlines()


def _is_list(path: str) -> bool:
    """Whether a file is a binary revocation list, which only `ssh-keygen` can change."""
    try:
        with open(path, "rb") as stream:
            return stream.read(6) == b"SSHKRL"
    except OSError:
        return False


def _edit(path: str, change: Callable[[list[str]], list[str]]) -> None:
    """Change the lines of a file, all or nothing.

    Raises:
        Refused: it cannot be written.
    """
    if not path:
        raise Refused(
            say("There is no folder to keep signers in"), say("Set `HOME` or `SATCHEL_HOME`")
        )
    try:
        with locked(path + ".lock"):
            text = "\n".join([*change(_lines(path)), ""])
            write_atomic(path, text.encode(), private=True)
    except OSError as exc:
        raise Refused(
            say("`{path}` cannot be written: {reason}", path=path, reason=exc.strerror or exc),
            say("Make the folder writable, or set `SATCHEL_HOME` to one that is"),
        ) from exc


# --- what is signed -----------------------------------------------------------------------


def signed_digest(tree: Tree) -> str:
    """The digest of a skill without its signature: signing it does not change it."""
    return signed_digest_of(seal(tree).files)


def signed_digest_of(files: Mapping[str, str]) -> str:
    """The same from fingerprints that are known already, as in `Seal.files` and in a lock."""
    return digest_of({path: mark for path, mark in files.items() if path != SIGNATURE})


def statement(tree: Tree) -> bytes:
    """The text that is signed."""
    return statement_of(signed_digest(tree))


def statement_of(digest: str) -> bytes:
    """The text that is signed, for a digest by `signed_digest`."""
    return f"{_FIRST}\ntree: {digest}\n".encode()
