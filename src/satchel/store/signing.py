"""SSH keys that sign the files of a hub.

Signatures are made by `ssh-keygen -Y`, so that agents, passphrases and hardware keys work, and no
private key is read here. Readers verify them without it (`hub_client/signatures.py`).
"""

from __future__ import annotations

import os
import shutil
import tempfile
from base64 import b64decode, b64encode
from hashlib import sha256
from typing import TYPE_CHECKING

from satchel.errors import InvalidInput, MissingExtra, NotFound, Refused
from satchel.i18n import say

if TYPE_CHECKING:
    from collections.abc import Sequence

_KEY_TYPE = "ssh-ed25519"
_MAX_KEY_BYTES = 16 << 10
_SIGN_TIMEOUT_S = 180
"""Long enough to type a passphrase or to touch a hardware key."""
_MAX_PROCESS_TEXTS = 500


class SshKey:
    """A key that signs texts for a hub."""

    def __init__(self, path: str) -> None:
        """Find the key.

        Args:
            path: A private ed25519 key, or a public one whose private half is in the agent.

        Raises:
            NotFound: there is no such file.
            InvalidInput: it is not an ed25519 key.
            Refused: `ssh-keygen` cannot read it.
        """
        self.path = os.path.abspath(os.path.expanduser(path))
        if not os.path.isfile(self.path):
            raise NotFound(
                say("There is no `{path}`", path=self.path),
                say("Run `{command}`", command="ssh-keygen -t ed25519"),
            )
        if self.path.endswith(".pub"):
            with open(self.path, encoding="utf-8", errors="replace") as stream:
                text = stream.read(_MAX_KEY_BYTES)
        else:
            text = _run_ssh_keygen(["-y", "-f", self.path]).decode("utf-8", "replace")
        self.public = plain_key(text)
        """As in a `.pub` file, without a comment."""

    def sign(self, texts: Sequence[bytes], namespace: str) -> list[str]:
        """Sign texts; returns base64 of the 64 bytes of each signature.

        Raises:
            Refused: `ssh-keygen` failed.
        """
        signatures: list[str] = []
        with tempfile.TemporaryDirectory(prefix="satchel-") as folder:
            for start in range(0, len(texts), _MAX_PROCESS_TEXTS):
                paths: list[str] = []
                for number, text in enumerate(texts[start : start + _MAX_PROCESS_TEXTS], start):
                    paths.append(os.path.join(folder, str(number)))
                    with open(paths[-1], "wb") as stream:
                        stream.write(text)
                _run_ssh_keygen(["-Y", "sign", "-q", "-f", self.path, "-n", namespace, *paths])
                for path in paths:
                    with open(path + ".sig", "rb") as stream:
                        signatures.append(b64encode(_extract_signature(stream.read())).decode())
        return signatures


def plain_key(text: str) -> str:
    """An ed25519 key as in a `.pub` file, without its comment.

    Raises:
        InvalidInput: it is another kind of key, or none.
    """
    kind, encoded, *_ = [*text.split(), "", ""]
    try:
        data = b64decode(encoded, validate=True)
    except ValueError:
        data = b""
    if kind != _KEY_TYPE or len(data) != 51 or data[:19] != b"\0\0\0\x0bssh-ed25519\0\0\0 ":
        raise InvalidInput(
            say("This is not a public ed25519 key"),
            say("Use the content of a `.pub` file of `ssh-keygen -t ed25519`"),
        )
    return f"{kind} {encoded}"


def key_fingerprint(text: str) -> str:
    """OpenSSH's fingerprint of an ed25519 key as in a `.pub` file, `SHA256:…`."""
    digest = sha256(b64decode(plain_key(text).split()[1])).digest()
    return "SHA256:" + b64encode(digest).decode().rstrip("=")


def _extract_signature(data: bytes) -> bytes:
    """The 64 bytes of the signature in a file of `ssh-keygen` (PROTOCOL.sshsig of OpenSSH).

    Raises:
        Refused: it is damaged.
    """
    lines = data.strip().splitlines()[1:-1]
    try:
        unread = b64decode(b"".join(line.strip() for line in lines), validate=True)[10:]
        signature = b""
        for _field in ("key", "namespace", "reserved", "hash", "signature"):
            signature, unread = _read_ssh_string(unread)
        _, signature = _read_ssh_string(signature)
        return _read_ssh_string(signature)[0]
    except ValueError as exc:
        raise Refused(say("`ssh-keygen` failed: {reason}", reason=exc), say("Try again")) from exc


def _read_ssh_string(data: bytes) -> tuple[bytes, bytes]:
    """A string of SSH's wire format, and the rest."""
    size = int.from_bytes(data[:4], "big")
    if len(data) < 4 + size:
        raise ValueError("it ends early")
    return data[4 : 4 + size], data[4 + size :]


def _run_ssh_keygen(arguments: list[str]) -> bytes:
    """Run `ssh-keygen` with a private key; returns its output. No shell is involved.

    Raises:
        MissingExtra: it is not installed.
        Refused: it failed.
    """
    import subprocess

    program = shutil.which("ssh-keygen")
    if program is None:
        raise MissingExtra(
            say("`{name}` is not installed", name="ssh-keygen"),
            say("Run `{command}`", command="apt install openssh-client"),
        )
    try:
        completed = subprocess.run(  # noqa: S603 - a list of words; untrusted content is in files
            [program, *arguments],
            input=b"",
            capture_output=True,
            timeout=_SIGN_TIMEOUT_S,
            check=False,
        )
    except (subprocess.TimeoutExpired, OSError) as exc:
        raise Refused(say("`ssh-keygen` failed: {reason}", reason=exc), say("Try again")) from exc
    if completed.returncode:
        lines = completed.stderr.decode("utf-8", "replace").strip().splitlines()
        raise Refused(
            say("`ssh-keygen` failed: {reason}", reason=lines[-1] if lines else "?"),
            say("Try again"),
        )
    return completed.stdout
