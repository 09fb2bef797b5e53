"""SSH signatures of skills, and the list of accepted signers.

Signatures are made and verified by `ssh-keygen -Y`, so that agents, passphrases and hardware keys
work, and no private key is read here. Only the user's own list names signers; a project cannot.

    allowed_signers     OpenSSH's format: an identity, options, a public key
    revoked_signers     public keys

A signature covers two lines, `satchel-skill-1` and `tree: sha256:…`, the digest of every file but
the signature. `ssh-keygen` can verify it without Satchel.

    sign_folder       writes SKILL.sig
    verify_tree       returns the accepted signature, or raises the reason
    check_signature   returns the state of the signature
    signer_of         returns the identity, for the lockfile
    SshKey            signs any texts, for hubs
    plain_key         checks a public key
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Literal, NamedTuple

from satchel._fs import locked, write_atomic
from satchel.errors import (
    Changed,
    InvalidInput,
    MissingExtra,
    NotFound,
    Refused,
    SettingsError,
    SkillBroken,
)
from satchel.i18n import say
from satchel.skill.file_tree import FolderTree, digest_of, main_file, read_whole
from satchel.store.trees import digest_tree

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from satchel.skill.file_tree import Tree

SIGNATURE = "SKILL.sig"
NAMESPACE = "satchel"
"""A signature with another namespace, such as that of a git commit, is refused."""
_STATEMENT_HEADER = "satchel-skill-1"
KEY_TYPES = ("ssh-ed25519", "sk-ssh-ed25519@openssh.com")
_MAX_SIGNERS_BYTES = 1 << 20
_KEY = re.compile(
    r"(?P<kind>(?:sk-)?(?:ssh|ecdsa)-[a-z0-9@.-]+)[ \t]+(?P<key>[A-Za-z0-9+/]+={0,2})(?=\s|$)"
)
_IDENTITY = re.compile(r"[^\s\"'#,*?!\x00-\x1f\x7f-\x9f][^\s\"',*?!\x00-\x1f\x7f-\x9f]{0,254}")


class Signers(NamedTuple):
    """The files with accepted and revoked signers."""

    folder: str
    """The user's configuration folder; empty when there is none."""

    @property
    def allowed(self) -> str:
        """OpenSSH's `allowed_signers`."""
        return os.path.join(self.folder, "allowed_signers") if self.folder else ""

    @property
    def revoked(self) -> str:
        """Keys that are refused."""
        return os.path.join(self.folder, "revoked_signers") if self.folder else ""


class Signer(NamedTuple):
    """An accepted signer."""

    identity: str
    key: str
    """The key's fingerprint, `SHA256:…`."""
    kind: str
    """`ssh-ed25519`, …"""
    options: str = ""
    """OpenSSH's options of the key: `namespaces="satchel",valid-before="20270101"`."""

    @property
    def until(self) -> str:
        """The first day on which the key is not accepted, or nothing."""
        found = re.search(r'valid-before="?(\d{4})(\d\d)(\d\d)', self.options)
        return "-".join(found.groups()) if found else ""


def user_signers() -> Signers:
    """The signers of the user of this process."""
    from satchel.settings import find_paths

    config = find_paths(os.environ).config
    return Signers(os.path.dirname(config) if config else "")


def fingerprint_of(key: bytes) -> str:
    """OpenSSH's fingerprint of a public key, `SHA256:…`."""
    from base64 import b64encode
    from hashlib import sha256

    return "SHA256:" + b64encode(sha256(key).digest()).decode().rstrip("=")


def plain_key(text: str) -> str:
    """An ed25519 key as in a `.pub` file, without its comment.

    Raises:
        InvalidInput: it is another kind of key, or none.
    """
    kind, encoded, *_ = [*text.split(), "", ""]
    data = _decoded(encoded) or b""
    if kind != KEY_TYPES[0] or len(data) != 51 or data[:19] != b"\0\0\0\x0bssh-ed25519\0\0\0 ":
        raise InvalidInput(
            say("This is not a public ed25519 key"),
            say("Use the content of a `.pub` file of `ssh-keygen -t ed25519`"),
        )
    return f"{kind} {encoded}"


def key_fingerprint(text: str) -> str:
    """OpenSSH's fingerprint of an ed25519 key as in a `.pub` file."""
    return fingerprint_of(_decoded(plain_key(text).split()[1]) or b"")


def _wrong_kind(kind: str) -> InvalidInput:
    return InvalidInput(
        say("The key is of the kind `{kind}`, not ed25519", kind=kind or "?"),
        say("Run `{command}`", command="ssh-keygen -t ed25519"),
    )


def list_signers(signers: Signers) -> list[Signer]:
    """The accepted signers, in the order of the file."""
    return [signer for line in _read_lines(signers.allowed) if (signer := _parse(line))]


def add_signer(signers: Signers, identity: str, public_key: str) -> Signer:
    """Accept signatures of a key.

    Args:
        signers: The files to change.
        identity: The owner of the key, such as an e-mail address.
        public_key: The line of a `.pub` file.

    Raises:
        InvalidInput: the identity or the key cannot be used.
        Refused: the key was revoked, or the file cannot be written.
    """
    if not _IDENTITY.fullmatch(identity):
        raise InvalidInput(
            say("`{name}` is not a valid name", name=identity), say("Use an e-mail address")
        )
    found = _KEY.match(public_key.strip())
    data = _decoded(found["key"]) if found else None
    if found is None or data is None or found["kind"] not in KEY_TYPES:
        raise _wrong_kind(found["kind"] if found else "")
    if any(found["key"] in line for line in _read_lines(signers.revoked)):
        raise Refused(
            say("The key `{key}` was revoked", key=fingerprint_of(data)), say("Ask for a new key")
        )
    options = f'namespaces="{NAMESPACE}"'
    row = f"{identity} {options} {found['kind']} {found['key']}"

    def change(lines: list[str]) -> list[str]:
        others = [line for line in lines if not _is_entry(line, identity, found["key"])]
        return [*others, row]

    _edit_lines(signers.allowed, change)
    return Signer(identity, fingerprint_of(data), found["kind"], options)


def revoke_signer(signers: Signers, identity: str) -> list[Signer]:
    """Remove the keys of a signer, so that they cannot be added again; returns them.

    Args:
        signers: The files to change.
        identity: The owner of the keys, or the fingerprint of one key.

    Raises:
        NotFound: there is no such signer.
        Refused: a file cannot be written.
    """
    gone = [one for one in list_signers(signers) if identity in {one.identity, one.key}]
    if not gone:
        raise NotFound(
            say("There is no signer `{name}`", name=identity),
            say("Run `{command}`", command="satchel sign --signers"),
        )
    rows = {
        line: signer for line in _read_lines(signers.allowed) if (signer := _parse(line)) in gone
    }
    keys = [f"{found['kind']} {found['key']}" for row in rows if (found := _KEY.search(row))]
    _edit_lines(signers.revoked, lambda lines: [*lines, *(k for k in keys if k not in lines)])
    _edit_lines(signers.allowed, lambda lines: [line for line in lines if line not in rows])
    return gone


def _parse(line: str) -> Signer | None:
    """Parse a line of `allowed_signers`; None when it has no key."""
    found = _KEY.search(line)
    data = _decoded(found["key"]) if found else None
    if found is None or data is None or line.startswith("#"):
        return None
    identity, _, options = line[: found.start()].strip().partition(" ")
    return Signer(identity.strip('"'), fingerprint_of(data), found["kind"], options.strip())


def _is_entry(line: str, identity: str, key: str) -> bool:
    found = _KEY.search(line)
    parsed = _parse(line)
    return bool(found and found["key"] == key and parsed and parsed.identity == identity)


def _decoded(text: str) -> bytes | None:
    from base64 import b64decode

    try:
        return b64decode(text, validate=True)
    except ValueError:
        return None


def _read_lines(path: str) -> list[str]:
    """The lines of a file; none when there is no file.

    Raises:
        SettingsError: it cannot be read.
    """
    if not path:
        return []
    try:
        with open(path, encoding="utf-8") as stream:
            text = stream.read(_MAX_SIGNERS_BYTES + 1)
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as exc:
        raise SettingsError(
            say("`{path}` cannot be read: {reason}", path=path, reason=exc), say("Correct it")
        ) from exc
    return text[:_MAX_SIGNERS_BYTES].splitlines()


def _edit_lines(path: str, change: Callable[[list[str]], list[str]]) -> None:
    """Change the lines of a file, all or nothing.

    Raises:
        Refused: it cannot be written.
    """
    if not path:
        raise Refused(say("There is no home folder"), say("Set `HOME` or `SATCHEL_HOME`"))
    try:
        with locked(path + ".lock"):
            text = "\n".join([*change(_read_lines(path)), ""])
            write_atomic(path, text.encode(), private=True)
    except OSError as exc:
        raise Refused(
            say("`{path}` cannot be written: {reason}", path=path, reason=exc.strerror or exc),
            say("Check the permissions"),
        ) from exc


# --- what is signed -----------------------------------------------------------------------


def signed_digest(tree: Tree) -> str:
    """The digest of a skill without its signature."""
    files = digest_tree(tree).files
    return digest_of({path: mark for path, mark in files.items() if path != SIGNATURE})


def statement(tree: Tree) -> bytes:
    """The text that is signed."""
    return f"{_STATEMENT_HEADER}\ntree: {signed_digest(tree)}\n".encode()


_MAX_SIGNATURE_BYTES = 16 << 10
_VERIFY_TIMEOUT_S = 20
_SIGN_TIMEOUT_S = 180
"""Long enough to type a passphrase or to touch a hardware key."""
_MAX_PROCESS_TEXTS = 500
_HEAD = b"-----BEGIN SSH SIGNATURE-----"
_FOOT = b"-----END SSH SIGNATURE-----"


class Signature(NamedTuple):
    """An accepted signature."""

    identity: str
    key: str
    """The key's fingerprint, `SHA256:…`."""


class SignatureState(NamedTuple):
    """The state of a skill's signature."""

    state: Literal["unsigned", "valid", "unknown-signer", "invalid"]
    """`invalid`: the files or the signature changed. `unknown-signer`: the signature is correct,
    but its key is not accepted, or it could not be verified here."""
    identity: str = ""
    key: str = ""
    reason: str = ""
    hint: str = ""


class _Envelope(NamedTuple):
    """The content of a signature file."""

    key: bytes
    kind: str
    namespace: str
    signature: bytes
    """As the kind of key defines it; 64 bytes for ed25519."""


# --- signing ------------------------------------------------------------------------------


def sign_folder(folder: str, key: str, tree: FolderTree | None = None) -> str:
    """Sign the skill in a folder; returns the path of its `SKILL.sig`.

    Args:
        folder: The skill.
        tree: Its files (`tree_of`), where not everything in the folder is the skill.
        key: A private key, or a public one whose private half is in the agent.

    Raises:
        NotFound: there is no skill, or no key.
        InvalidInput: the key is not an ed25519 key.
        Refused: `ssh-keygen` failed, or the file cannot be written.
        MissingExtra: `ssh-keygen` is not installed.
    """
    key = _key_file(key)
    tree = tree or FolderTree(folder)
    if not main_file(file.path for file in tree.files):
        raise NotFound(
            say("There is no SKILL.md in `{path}`", path=folder), say("Give the folder of a skill")
        )
    if any("__pycache__" in file.path.split("/") for file in tree.files):
        raise Refused(say("`{path}` has a `__pycache__` folder", path=folder), say("Remove it"))
    words = ["-Y", "sign", "-f", key, "-n", NAMESPACE]
    made = _run_checked(words, statement(tree))
    kind = _open_envelope(made).kind
    if kind not in KEY_TYPES:
        raise _wrong_kind(kind)
    path = os.path.join(folder, SIGNATURE)
    try:
        write_atomic(path, made)
    except OSError as exc:
        raise Refused(
            say("`{path}` cannot be written: {reason}", path=path, reason=exc.strerror or exc),
            say("Check the permissions"),
        ) from exc
    return path


def _key_file(path: str) -> str:
    path = os.path.abspath(os.path.expanduser(path))
    if not os.path.isfile(path):
        raise NotFound(
            say("There is no `{path}`", path=path),
            say("Run `{command}`", command="ssh-keygen -t ed25519"),
        )
    return path


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
        self.path = _key_file(path)
        if self.path.endswith(".pub"):
            with open(self.path, encoding="utf-8", errors="replace") as stream:
                text = stream.read(_MAX_SIGNATURE_BYTES)
        else:
            text = _run_checked(["-y", "-f", self.path], b"").decode("utf-8", "replace")
        self.public = plain_key(text)
        """As in a `.pub` file, without a comment."""

    def sign(self, texts: Sequence[bytes], namespace: str) -> list[str]:
        """Sign texts; returns base64 of the 64 bytes of each signature.

        Raises:
            Refused: `ssh-keygen` failed.
        """
        import tempfile
        from base64 import b64encode

        made: list[str] = []
        with tempfile.TemporaryDirectory(prefix="satchel-") as folder:
            for start in range(0, len(texts), _MAX_PROCESS_TEXTS):
                paths: list[str] = []
                for at, text in enumerate(texts[start : start + _MAX_PROCESS_TEXTS], start):
                    paths.append(os.path.join(folder, str(at)))
                    with open(paths[-1], "wb") as stream:
                        stream.write(text)
                _run_checked(["-Y", "sign", "-q", "-f", self.path, "-n", namespace, *paths], b"")
                for path in paths:
                    with open(path + ".sig", "rb") as stream:
                        made.append(b64encode(_open_envelope(stream.read()).signature).decode())
        return made


# --- verifying ----------------------------------------------------------------------------


def verify_tree(tree: Tree, signers: Signers | None = None) -> Signature:
    """Verify the `SKILL.sig` of a skill.

    Args:
        tree: The skill's files.
        signers: The accepted signers; the user's own when None.

    Raises:
        Changed: the signature is damaged, or the files are not those that were signed.
        Refused: there is no signature, or its key is unknown, expired or revoked.
        MissingExtra: `ssh-keygen` is not installed.
    """
    signers = user_signers() if signers is None else signers
    data = _signature_of(tree)
    if data is None:
        raise Refused(
            say("The skill is not signed"), say("Run `{command}`", command="satchel sign")
        )
    envelope = _open_envelope(data)
    if envelope.namespace != NAMESPACE:
        raise Refused(
            say("The signature was made for `{name}`, not for skills", name=envelope.namespace),
            say("Run `{command}`", command="satchel sign"),
        )
    if envelope.kind not in KEY_TYPES:
        raise Refused(
            say("The key is of the kind `{kind}`, not ed25519", kind=envelope.kind),
            say("Run `{command}`", command="satchel sign"),
        )
    import tempfile

    with tempfile.TemporaryDirectory(prefix="satchel-") as folder:
        path = os.path.join(folder, SIGNATURE)
        with open(path, "wb") as stream:
            stream.write(data)
        return _verify(statement(tree), path, envelope, signers)


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
    # Not accepted. First find out whether the signature is correct at all.
    status, _, _ = _run(["-Y", "check-novalidate", "-n", NAMESPACE, "-s", path], text)
    if status:
        raise Changed(
            say("The files are not those that were signed with `{key}`", key=key),
            say("Run `{command}`", command="satchel install --frozen"),
        )
    raise _not_allowed(envelope.key, signers)


def _not_allowed(key: bytes, signers: Signers) -> Refused:
    """The reason why a correct signature is not accepted."""
    mark = fingerprint_of(key)
    entries = [one for one in list_signers(signers) if one.key == mark]
    if not entries:
        return Refused(
            say("The skill was signed with the unknown key `{key}`", key=mark),
            say("If you know whose it is: `satchel sign --trust-key FILE.pub --as IDENTITY`"),
        )
    return Refused(
        say(
            "The key `{key}` of `{name}` was revoked, has expired or is not for skills",
            key=mark,
            name=entries[0].identity,
        ),
        say("Ask for a new key"),
    )


def check_signature(tree: Tree, signers: Signers | None = None) -> SignatureState:
    """`verify_tree` with a state in place of an exception."""
    if all(file.path != SIGNATURE for file in tree.files):
        return SignatureState("unsigned", reason=say("The skill is not signed"))
    try:
        found = verify_tree(tree, signers)
    except Changed as exc:
        return SignatureState("invalid", reason=exc.message, hint=exc.hint)
    except (Refused, MissingExtra) as exc:
        return SignatureState("unknown-signer", reason=exc.message, hint=exc.hint)
    return SignatureState("valid", found.identity, found.key)


def signer_of(tree: Tree) -> str:
    """The accepted identity that signed a skill, or an empty string.

    Raises:
        Changed: the signature is invalid. Such a skill is not installed.
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
                raise _damaged()
            try:
                return read_whole(tree, SIGNATURE, _MAX_SIGNATURE_BYTES)
            except SkillBroken as exc:
                raise _damaged() from exc
    return None


def _open_envelope(data: bytes) -> _Envelope:
    """Parse a signature file (PROTOCOL.sshsig of OpenSSH).

    Raises:
        Changed: it is damaged.
    """
    from base64 import b64decode

    lines = data.strip().splitlines()
    if len(lines) < 3 or lines[0].strip() != _HEAD or lines[-1].strip() != _FOOT:
        raise _damaged()
    try:
        blob = b64decode(b"".join(line.strip() for line in lines[1:-1]), validate=True)
        if blob[:10] != b"SSHSIG\0\0\0\1":
            raise _damaged()
        key, rest = _read_ssh_string(blob[10:])
        namespace, rest = _read_ssh_string(rest)
        _, rest = _read_ssh_string(rest)
        _, rest = _read_ssh_string(rest)
        kind, _ = _read_ssh_string(key)
        _, signature = _read_ssh_string(_read_ssh_string(rest)[0])
        signature, _ = _read_ssh_string(signature)
        return _Envelope(key, kind.decode("ascii"), namespace.decode("utf-8"), signature)
    except ValueError as exc:
        raise _damaged() from exc


def _read_ssh_string(data: bytes) -> tuple[bytes, bytes]:
    """A string of SSH's wire format, and the rest."""
    size = int.from_bytes(data[:4], "big")
    if len(data) < 4 + size:
        raise ValueError("it ends early")
    return data[4 : 4 + size], data[4 + size :]


def _damaged() -> Changed:
    return Changed(
        say("`{path}` is damaged", path=SIGNATURE),
        say("Run `{command}`", command="satchel install --frozen"),
    )


def _run(
    words: list[str], text: bytes, *, seconds: int = _VERIFY_TIMEOUT_S
) -> tuple[int, bytes, bytes]:
    """Run `ssh-keygen` with `text` as its input; no shell is involved.

    Raises:
        MissingExtra: it is not installed.
        Refused: it does not finish in time, or cannot be run.
    """
    import shutil
    import subprocess

    program = shutil.which("ssh-keygen")
    if program is None:
        raise MissingExtra(
            say("`{name}` is not installed", name="ssh-keygen"),
            say("Run `{command}`", command="apt install openssh-client"),
        )
    try:
        done = subprocess.run(  # noqa: S603 - a list of words; untrusted content is in files
            [program, *words], input=text, capture_output=True, timeout=seconds, check=False
        )
    except (subprocess.TimeoutExpired, OSError) as exc:
        raise Refused(say("`ssh-keygen` failed: {reason}", reason=exc), say("Try again")) from exc
    return done.returncode, done.stdout, done.stderr


def _run_checked(words: list[str], text: bytes) -> bytes:
    """Run `ssh-keygen` with a private key; returns its output.

    Raises:
        Refused: it failed.
    """
    status, made, errors = _run(words, text, seconds=_SIGN_TIMEOUT_S)
    if status:
        raise Refused(
            say("`ssh-keygen` failed: {reason}", reason=_last_line(errors)), say("Try again")
        )
    return made


def _last_line(output: bytes) -> str:
    lines = output.decode("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines else "?"
