"""Who signed this skill, and is it what they signed?

Signatures are OpenSSH's (`ssh-keygen -Y`): most people have a key already, and agents, passphrases
and hardware keys work as they always do. We drive the program and never touch a private key. Which
signatures count is for the user's own list to say (`signers.py`).

    sign_folder       writes SKILL.sig
    verify_tree       the signature of somebody on the list, or the reason why not
    check_signature   the same as a state, for those who only look
    signer_of         the same for those who install
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal, NamedTuple

from satchel._fs import write_atomic
from satchel._language import say
from satchel.errors import Changed, InvalidInput, MissingExtra, NotFound, Refused, SkillBroken
from satchel.skill.tree import FolderTree, head_file, read_whole
from satchel.store.signers import (
    KEY_TYPES,
    NAMESPACE,
    SIGNATURE,
    entries_with,
    fingerprint_of,
    signed_digest,
    signed_digest_of,
    statement_of,
    user_signers,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from satchel.skill.tree import Tree
    from satchel.store.signers import Signers

_MAX_SIGNATURE = 16 << 10
_CHECKING = 20
_SIGNING = 180
"""Seconds: somebody may be looking for a passphrase, or for the key to touch."""
_HEAD = b"-----BEGIN SSH SIGNATURE-----"
_FOOT = b"-----END SSH SIGNATURE-----"


class Signature(NamedTuple):
    """A signature that counts."""

    identity: str
    key: str
    """The key's fingerprint, `SHA256:…`."""


class SignatureState(NamedTuple):
    """How a skill stands, for those who only look."""

    state: Literal["unsigned", "valid", "unknown-signer", "invalid"]
    """`invalid` means that somebody changed something; `unknown-signer` that it is in order, by
    somebody who is not on the list, or could not be checked here."""
    identity: str = ""
    key: str = ""
    reason: str = ""
    hint: str = ""


class _Envelope(NamedTuple):
    """What a signature file says of itself."""

    key: bytes
    kind: str
    namespace: str


# --- signing ------------------------------------------------------------------------------


def sign_folder(folder: str, key: str, tree: FolderTree | None = None) -> str:
    """Sign the skill in a folder; returns the path of its `SKILL.sig`.

    Args:
        folder: The skill.
        tree: Its files, by `tree_of`, where not everything in the folder is the skill.
        key: A private key, or a public one whose private half is in the agent.

    Raises:
        NotFound: there is no skill, or no key.
        InvalidInput: the key is not an ed25519 key.
        Refused: `ssh-keygen` would not sign, or the file cannot be written.
        MissingExtra: `ssh-keygen` is not installed.
    """
    key = os.path.abspath(os.path.expanduser(key))
    if not os.path.isfile(key):
        raise NotFound(
            say("There is no key `{path}`", path=key),
            say("Make one: `ssh-keygen -t ed25519 -f {path}`", path=key),
        )
    tree = tree or FolderTree(folder)
    if not head_file(file.path for file in tree.files):
        raise NotFound(
            say("There is no SKILL.md in `{path}`", path=folder), say("Give the skill's folder")
        )
    if any("__pycache__" in file.path.split("/") for file in tree.files):
        raise Refused(
            say("`{path}` has a `__pycache__` folder, which nobody reads", path=folder),
            say("Remove it, then sign again"),
        )
    text = statement_of(signed_digest(tree))
    status, made, said = _run(["-Y", "sign", "-f", key, "-n", NAMESPACE], text, seconds=_SIGNING)
    if status:
        raise Refused(
            say("`ssh-keygen` did not sign: {reason}", reason=_last_line(said)),
            say("Try it by hand: `ssh-keygen -Y sign -f {path} -n satchel FILE`", path=key),
        )
    kind = _open_envelope(made).kind
    if kind not in KEY_TYPES:
        raise InvalidInput(
            say("`{path}` is a key of the kind `{kind}`, not ed25519", path=key, kind=kind),
            say("Make one: `ssh-keygen -t ed25519`"),
        )
    path = os.path.join(folder, SIGNATURE)
    try:
        write_atomic(path, made)
    except OSError as exc:
        raise Refused(
            say("`{path}` cannot be written: {reason}", path=path, reason=exc.strerror or exc),
            say("Check the permissions of the folder"),
        ) from exc
    return path


# --- verifying ----------------------------------------------------------------------------


def verify_tree(
    tree: Tree, signers: Signers | None = None, files: Mapping[str, str] | None = None
) -> Signature:
    """Verify the `SKILL.sig` of a skill.

    Args:
        tree: The skill's files, wherever they are.
        signers: Whose signatures count; the user's own list when None.
        files: `Seal.files` of the tree, where they are known; else the tree is read.

    Raises:
        Changed: the signature is damaged, or the files are not those that were signed.
        Refused: there is no signature, its maker is not on the list, or their key does not count
            (any more).
        MissingExtra: `ssh-keygen` is not installed.
    """
    signers = user_signers() if signers is None else signers
    data = _signature_of(tree)
    if data is None:
        raise Refused(
            say("The skill is not signed"),
            say("Sign it with `satchel sign`, or ask whoever made it"),
        )
    envelope = _open_envelope(data)
    if envelope.namespace != NAMESPACE:
        raise Refused(
            say("The signature was made for `{name}`, not for skills", name=envelope.namespace),
            say("Sign it again with `satchel sign`"),
        )
    if envelope.kind not in KEY_TYPES:
        raise Refused(
            say("The signature is by a key of the kind `{kind}`, not ed25519", kind=envelope.kind),
            say("Sign it again with an ed25519 key"),
        )
    import tempfile

    with tempfile.TemporaryDirectory(prefix="satchel-") as folder:
        path = os.path.join(folder, SIGNATURE)
        with open(path, "wb") as stream:
            stream.write(data)
        digest = signed_digest(tree) if files is None else signed_digest_of(files)
        return _verify(statement_of(digest), path, envelope, signers)


def _verify(text: bytes, path: str, envelope: _Envelope, signers: Signers) -> Signature:
    key = fingerprint_of(envelope.key)
    allowed = signers.allowed
    names: list[str] = []
    if allowed and os.path.isfile(allowed):
        status, out, _ = _run(["-Y", "find-principals", "-s", path, "-f", allowed], b"")
        names = out.decode("utf-8", "replace").splitlines() if status == 0 else []
    revoked = ["-r", signers.revoked] if signers.revoked and os.path.exists(signers.revoked) else []
    for name in names:
        words = ["-Y", "verify", "-f", allowed, "-I", name, "-n", NAMESPACE, "-s", path]
        status, _, _ = _run([*words, *revoked], text)
        if status == 0:
            return Signature(name, key)
    # It does not count. Whether it is in order at all is the first thing to know.
    status, _, _ = _run(["-Y", "check-novalidate", "-n", NAMESPACE, "-s", path], text)
    if status:
        raise Changed(
            say("The files are not those that were signed with `{key}`", key=key),
            say("Get the skill again from whoever signed it"),
        )
    raise _not_allowed(envelope.key, signers, found=bool(names))


def _not_allowed(key: bytes, signers: Signers, *, found: bool) -> Refused:
    """Why a good signature does not count."""
    mark = fingerprint_of(key)
    entries = entries_with(signers, key)
    if not entries:
        return Refused(
            say("The skill was signed with `{key}`, which is nobody's on your list", key=mark),
            say(
                "If you know whose key it is, run `satchel signers add IDENTITY --key FILE.pub`, "
                "otherwise do not trust it"
            ),
        )
    name = entries[0].identity
    until = entries[0].until
    if not found and until:
        return Refused(
            say("The key of `{name}` counted until {day}", name=name, day=until),
            say("Ask `{name}` to sign with a new key", name=name),
        )
    if found and signers.revoked and os.path.exists(signers.revoked):
        return Refused(
            say("The key `{key}` of `{name}` was revoked", key=mark, name=name),
            say("Ask `{name}` to sign with a new key", name=name),
        )
    return Refused(
        say("The key of `{name}` does not count for skills", name=name),
        say("See its line in `{path}`", path=signers.allowed),
    )


def check_signature(
    tree: Tree, signers: Signers | None = None, files: Mapping[str, str] | None = None
) -> SignatureState:
    """The state of a skill's signature, from the arguments of `verify_tree`. Does not raise."""
    if all(file.path != SIGNATURE for file in tree.files):
        return SignatureState("unsigned", reason=say("The skill is not signed"))
    try:
        found = verify_tree(tree, signers, files)
    except Changed as exc:
        return SignatureState("invalid", reason=exc.message, hint=exc.hint)
    except (Refused, MissingExtra) as exc:
        return SignatureState("unknown-signer", reason=exc.message, hint=exc.hint)
    return SignatureState("valid", found.identity, found.key)


def signer_of(tree: Tree) -> str:
    """Who of the user's list signed a skill, for its entry in a lock; nothing when nobody did.

    Raises:
        Changed: a signature is wrong. Such a skill is not installed.
    """
    found = check_signature(tree)
    if found.state == "invalid":
        raise Changed(found.reason, found.hint)
    return found.identity


# --- the file and the program -------------------------------------------------------------


def _signature_of(tree: Tree) -> bytes | None:
    """The content of `SKILL.sig`, or None when there is none."""
    for file in tree.files:
        if file.path == SIGNATURE:
            if file.mode == "link":
                raise _damaged(say("it is a link"))
            try:
                return read_whole(tree, SIGNATURE, _MAX_SIGNATURE)
            except SkillBroken as exc:
                raise _damaged(say("it is too large")) from exc
    return None


def _open_envelope(data: bytes) -> _Envelope:
    """Take a signature file apart, as PROTOCOL.sshsig of OpenSSH describes it.

    Raises:
        Changed: it is damaged.
    """
    from base64 import b64decode

    lines = data.strip().splitlines()
    if len(lines) < 3 or lines[0].strip() != _HEAD or lines[-1].strip() != _FOOT:
        raise _damaged(say("it does not look like one"))
    try:
        blob = b64decode(b"".join(line.strip() for line in lines[1:-1]), validate=True)
        if blob[:10] != b"SSHSIG\0\0\0\1":
            raise _damaged(say("it does not look like one"))
        key, rest = _string(blob[10:])
        namespace, _ = _string(rest)
        kind, _ = _string(key)
        return _Envelope(key, kind.decode("ascii"), namespace.decode("utf-8"))
    except ValueError as exc:
        raise _damaged(say("it does not look like one")) from exc


def _string(data: bytes) -> tuple[bytes, bytes]:
    """A string of SSH's wire format, and what follows it."""
    size = int.from_bytes(data[:4], "big")
    if len(data) < 4 + size:
        raise ValueError("it ends early")
    return data[4 : 4 + size], data[4 + size :]


def _damaged(reason: str) -> Changed:
    return Changed(
        say("The signature `{file}` is damaged: {reason}", file=SIGNATURE, reason=reason),
        say("Get the skill again from whoever signed it"),
    )


def _run(words: list[str], text: bytes, *, seconds: int = _CHECKING) -> tuple[int, bytes, bytes]:
    """Run `ssh-keygen` with `text` as its input; no shell is involved.

    Raises:
        MissingExtra: it is not installed.
        Refused: it does not come to an end.
    """
    import shutil
    import subprocess

    program = shutil.which("ssh-keygen")
    if program is None:
        raise MissingExtra(
            say("Signatures need the program `ssh-keygen`, which is not installed"),
            say("Install OpenSSH 8.2 or later, such as the package `openssh-client`"),
        )
    try:
        done = subprocess.run(  # noqa: S603 - a list of words; what a stranger wrote is in files
            [program, *words], input=text, capture_output=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired as exc:
        raise Refused(
            say("`ssh-keygen` gave no answer within {count} seconds", count=seconds),
            say("Try again, and answer what it asks"),
        ) from exc
    except OSError as exc:
        raise Refused(
            say("`ssh-keygen` cannot be run: {reason}", reason=exc.strerror or exc),
            say("Check its permissions"),
        ) from exc
    return done.returncode, done.stdout, done.stderr


def _last_line(said: bytes) -> str:
    lines = said.decode("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines else "?"
