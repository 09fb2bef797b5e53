"""Signatures of skills: whose count, making them and checking them.

Signatures are OpenSSH's (`ssh-keygen -Y`): most people have a key already, and agents, passphrases
and hardware keys work as they always do. We drive the program and never touch a private key. Which
signatures count is for the user's own list to say; a project cannot name signers.

    allowed_signers     OpenSSH's own format: an identity, options, a public key
    revoked_signers     public keys (or an OpenSSH revocation list) that never count again

A signature covers two lines, `satchel-skill-1` and `tree: sha256:…`, the digest of every file but
the signature. `ssh-keygen` can check it without Satchel.

    sign_folder       writes SKILL.sig
    verify_tree       the signature of somebody on the list, or the reason why not
    check_signature   the same as a state, for those who only look
    signer_of         the same for those who install
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Literal, NamedTuple

from satchel._fs import locked, write_atomic
from satchel._language import say
from satchel.errors import (
    Changed,
    InvalidInput,
    MissingExtra,
    NotFound,
    Refused,
    SettingsError,
    SkillBroken,
)
from satchel.skill.tree import FolderTree, digest_of, head_file, read_whole, seal

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
