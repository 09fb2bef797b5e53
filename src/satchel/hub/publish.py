"""Releases: a skill's folder becomes a checked, scanned and signed release of a hub.

The blob is a tar.gz with the same bytes for the same files and the same zlib: ustar, sorted names,
no times, no owners. Readers identify a release by the digest of its files (`tree`); the digest of
the blob says only where it is.
"""

from __future__ import annotations

import io
import os
import tarfile
import tempfile
import zlib
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from satchel.errors import Blocked, InvalidInput, NotFound, Refused, SkillBroken
from satchel.hub.commits import UNREADABLE, Inspection, open_chain, read_content, sign_changes
from satchel.hub.storage import put_content
from satchel.i18n import say
from satchel.security.scan import scan_tree
from satchel.skill.file_tree import FolderTree, hash_tree, main_file, read_whole
from satchel.skill.reader import parse_document
from satchel.skill.validate import validate_folder
from satchel.store.archive import open_archive
from satchel.store.hub_client import format as files
from satchel.store.hub_client.release_name import parse_name, parse_version
from satchel.store.sources.base import subtree

if TYPE_CHECKING:
    from collections.abc import Sequence

    from satchel.hub.commits import HubLedger
    from satchel.hub.storage import Storage
    from satchel.skill.document import SkillDocument
    from satchel.skill.file_tree import Tree
    from satchel.store.archive import ArchiveTree
    from satchel.store.hub_client.format import HubRelease, Row
    from satchel.store.signing import SshKey

_MAX_DESCRIPTION_CHARS = 1024
_MAX_LICENSE_CHARS = 200


class Draft(NamedTuple):
    """A skill that is ready to be released."""

    change: Row
    """The release without a signature."""
    about: Inspection
    data: bytes
    """The archive."""

    @property
    def title(self) -> str:
        """`publisher/skill@version`."""
        return f"{self.change['name']}@{self.change['version']}"


def pack_blob(tree: Tree) -> bytes:
    """Write the files of a skill as tar.gz."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for file in tree.files:
            entry = tarfile.TarInfo(file.path)
            entry.size = file.size
            entry.mode = 0o755 if file.mode == "program" else 0o644
            try:
                archive.addfile(entry, io.BytesIO(read_whole(tree, file.path)))
            except ValueError as exc:
                raise InvalidInput(say("`{name}` is not a valid name", name=file.path)) from exc
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    data = packer.compress(stream.getvalue()) + packer.flush()
    if len(data) > (limit := files.MAX_BLOB_BYTES):
        raise InvalidInput(say("`{path}` has more than {count} bytes", path=".tar.gz", count=limit))
    return data[:4] + bytes(4) + data[8:]  # no time


def read_draft(folder: str, publisher: str, version: str = "") -> Draft:
    """Read, check, scan and pack a skill; its folder's name and frontmatter name the release."""
    folder = os.path.abspath(folder)
    skill = os.path.basename(folder)
    name = f"{publisher}/{skill}"
    if parse_name(name) is None:
        raise InvalidInput(
            say("`{name}` is not a valid name", name=name),
            say("Write `{value}`", value="acme/release-notes"),
        )
    error = next((one for one in validate_folder(folder) if one.severity == "error"), None)
    if error is not None:
        raise SkillBroken(
            say("`{name}` is not a skill: {problem}", name=name, problem=error.message), error.fix
        )
    tree = subtree(FolderTree(folder))
    document = _read_main(tree, skill)
    inner: Any = document.fields.get("metadata")
    inner = cast("dict[str, Any]", inner).get("version") if isinstance(inner, dict) else None
    version = version or str(document.fields.get("version") or inner or "")
    if parse_version(version) is None:
        raise InvalidInput(
            say("`{name}` has no version such as `{value}`", name=name, value="1.0.0"),
            say("Write `{value}` into its SKILL.md", value='metadata: {version: "1.0.0"}'),
        )
    report = scan_tree(tree)
    if report.verdict == "blocked":
        raise Blocked(
            say("The scan blocks `{name}`: {reason}", name=name, reason=report.findings[0].rule),
            say("Run `{command}`", command=f"satchel scan {folder}"),
        )
    data = pack_blob(tree)
    blob, size = files.digest_hex(data), len(data)
    digest = hash_tree(tree).digest
    change: Row = {"type": "release", "name": name, "version": version, "tree": digest}
    about = _describe(document, report.verdict)
    return Draft({**change, "blob": blob, "size": size}, about, data)


def _read_main(tree: Tree, name: str) -> SkillDocument:
    file = main_file(one.path for one in tree.files)
    data = read_whole(tree, file) if file else b""
    document = parse_document(data, name, file, (0, 0, len(data)))
    if document.head is None:
        raise SkillBroken(say("There is no SKILL.md in `{path}`", path=name))
    return document


def _describe(document: SkillDocument, verdict: str) -> Inspection:
    terms = document.fields.get("license")
    texts = (document.head.description if document.head else "", terms)
    about, terms = (" ".join(one.split()) if isinstance(one, str) else "" for one in texts)
    return Inspection(about[:_MAX_DESCRIPTION_CHARS], terms[:_MAX_LICENSE_CHARS], verdict)


def open_blob(storage: Storage, release: HubRelease) -> ArchiveTree:
    """Open the files of a release with the strict reader."""
    data = read_content(storage, "blobs", release.blob, release.size)
    with tempfile.NamedTemporaryFile(prefix="satchel-") as stream:
        stream.write(data)
        stream.flush()
        return open_archive(stream.name)


def inspect_release(storage: Storage, release: HubRelease, verdict: str = "") -> Inspection:
    """Check that a blob holds the files of its release, and scan them unless a verdict is given."""
    skill = release.name.partition("/")[2]
    with open_blob(storage, release) as tree:
        if hash_tree(tree).digest != release.tree:
            raise files.damaged(files.content_path("blobs", release.blob))
        return _describe(_read_main(tree, skill), verdict or scan_tree(tree).verdict)


# --- changes -------------------------------------------------------------------------------


def publish(storage: Storage, draft: Draft, key: SshKey) -> int:
    """Release a skill; returns the number of the commit."""
    chain = open_chain(storage)
    if not needed_releases(chain.ledger, [draft.change], key):
        return chain.ledger.count
    put_content(storage, "blobs", draft.data)
    changes = sign_changes([draft.change], chain.ledger.hub, key)
    return chain.append(lambda ledger: needed_releases(ledger, changes, key))


def needed_releases(ledger: HubLedger, changes: Sequence[Row], key: SshKey) -> list[Row]:
    """The releases among changes that the hub does not have yet."""
    needed: list[Row] = []
    for change in changes:
        name, version = str(change["name"]), str(change["version"])
        check_publisher(ledger, name.partition("/")[0], key)
        found = ledger.releases(name).get(parse_version(version) or (0, 0, 0))
        if found is not None and found.tree != change["tree"]:
            raise version_taken(f"{name}@{version}")
        if found is None or found.scan == UNREADABLE:
            needed.append(change)
    return needed


def version_taken(title: str) -> Refused:
    """The error for a version that has other content."""
    return Refused(
        say("`{path}` exists already", path=title), say("Raise the version in its SKILL.md")
    )


def check_publisher(ledger: HubLedger, publisher: str, key: SshKey) -> None:
    """Check that a key is that of a publisher."""
    current = ledger.current_key(publisher)
    if not current:
        raise NotFound(
            say("There is no {kind} `{name}`", kind=say("publisher"), name=publisher),
            say("Run `{command}`", command=f"satchel hub allow STORE {publisher} KEY.pub"),
        )
    if current != key.public:
        raise foreign_key(publisher)


def foreign_key(owner: str) -> Refused:
    """The error for a key that has no right to a change."""
    return Refused(say("This is not the key of `{name}`", name=owner))


def yank(storage: Storage, name: str, version: str, reason: str, key: SshKey) -> int:
    """Withdraw a release from selection, or with an empty reason restore it; returns the commit."""

    def make(ledger: HubLedger) -> list[Row]:
        found = ledger.releases(name).get(parse_version(version) or (0, 0, 0))
        if found is None:
            raise NotFound(say("There is no `{path}`", path=f"{name}@{version}"))
        check_publisher(ledger, name.partition("/")[0], key)
        time = files.timestamp()
        if found.yanked_at >= time:
            last = files.parse_timestamp(found.yanked_at)
            time = files.timestamp(last + timedelta(seconds=1))
        row = {"type": "yank", "name": name, "version": version, "reason": reason, "time": time}
        return [] if found.yanked == reason else sign_changes([row], ledger.hub, key)

    return open_chain(storage).append(make)


def revoke(storage: Storage, tree: str, reason: str, key: SshKey) -> int:
    """Forbid the installation of a tree under any name; returns the number of the commit."""
    return open_chain(storage).append(lambda ledger: revocation(ledger, tree, reason, key))


def revocation(ledger: HubLedger, tree: str, reason: str, key: SshKey) -> list[Row]:
    """The signed change that revokes a tree; none when it is revoked."""
    if key.public != ledger.key:
        raise foreign_key(ledger.hub)
    row = {"type": "revoke", "tree": tree, "reason": reason, "time": files.timestamp()}
    return [] if tree in ledger.revoked else sign_changes([row], ledger.hub, key)


def allow(storage: Storage, publisher: str, public: str, key: SshKey) -> int:
    """Register a publisher, or change its key; signed by its present key or the hub's."""
    chain = open_chain(storage)
    return chain.append(lambda ledger: registrations(ledger, [publisher], public, key))


def registrations(
    ledger: HubLedger, publishers: Sequence[str], public: str, key: SshKey
) -> list[Row]:
    """The signed changes that give publishers a key; none for those that have it."""
    rows: list[Row] = []
    for publisher in publishers:
        current = ledger.current_key(publisher)
        if current == public:
            continue
        if any(one.key == public for one in ledger.keys(publisher)):
            raise Refused(
                say("`{name}` had this key before", name=publisher),
                say("Run `{command}`", command="ssh-keygen -t ed25519"),
            )
        if key.public not in {current, ledger.key}:
            raise foreign_key(ledger.hub)
        by = "publisher" if key.public == current else "hub"
        row = {"type": "publisher", "publisher": publisher, "key": public, "previous": current}
        rows.append({**row, "by": by})
    return sign_changes(rows, ledger.hub, key)
