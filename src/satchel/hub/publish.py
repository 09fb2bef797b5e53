"""Releases: a skill's folder becomes a checked, scanned and signed release of a hub.

The blob is a tar.gz with the same bytes for the same files and the same zlib: ustar, sorted names,
no times, no owners. Readers identify a release by the digest of its files (`tree`); the digest of
the blob says only where it is.
"""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from satchel.errors import Blocked, InvalidInput, NotFound, Refused, SatchelError, SkillBroken
from satchel.hub.ledger import batches, sign_changes
from satchel.i18n import say
from satchel.security.scan import scan_tree
from satchel.skill.file_tree import FolderTree, hash_tree, main_file, read_whole
from satchel.skill.reader import parse_document
from satchel.skill.validate import validate_folder
from satchel.store.archive import open_packed
from satchel.store.hub_client import format as files
from satchel.store.hub_client.release_name import parse_name, parse_version
from satchel.store.sources.base import subtree

if TYPE_CHECKING:
    from collections.abc import Sequence

    from satchel.hub.ledger import HubLedger
    from satchel.hub.storage import Storage
    from satchel.skill.document import SkillDocument
    from satchel.skill.file_tree import Tree
    from satchel.store.hub_client.format import HubRelease, Row
    from satchel.store.signing import SshKey

_MAX_DESCRIPTION_CHARS = 1024
_MAX_LICENSE_CHARS = 200


class Draft(NamedTuple):
    """A skill that is ready to be released."""

    change: Row
    """The release without a signature."""
    about: Row
    """Description, license and verdict of the scan."""
    data: bytes
    """The archive; empty when the storage has it."""

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
    return files.pack(stream.getvalue())


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
    with open_packed(data) as packed:  # as readers do, whose limits may refuse it
        digest = hash_tree(packed).digest
    change: Row = {
        "type": "release", "name": name, "version": version, "tree": digest,
        "blob": files.digest_hex(data), "size": len(data),
    }  # fmt: skip
    return Draft(change, _describe(document, report.verdict), data)


def read_folder(
    ledger: HubLedger, folder: str, key: SshKey | None, refused: dict[str, SatchelError]
) -> list[Draft]:
    """The skills of a folder `publisher/skill` that differ from their newest release.

    With a key their blobs are written at once: thousands of them would fill the memory.
    """
    drafts: list[Draft] = []
    if not os.path.isdir(folder):
        raise NotFound(say("There is no `{path}`", path=folder), say("Check the path"))
    for path in sorted(Path(folder).glob("*/*/")):
        publisher, name = path.parent.name, f"{path.parent.name}/{path.name}"
        if publisher.startswith(".") or path.name.startswith("."):
            continue
        try:
            tree = hash_tree(subtree(FolderTree(str(path)))).digest
            last = next(reversed(ledger.sorted_releases(name)), None)
            same = last is not None and last.tree == tree
            if last and same and last.scan != files.UNREADABLE:
                continue
            draft = read_draft(str(path), publisher)
            if last and not same and (parse_version(draft.change["version"]) or ()) <= last.number:
                raise _version_taken(f"{name}@{last.version}")
            if key is not None:
                if ledger.current_key(publisher):
                    _check_publisher(ledger, publisher, key)
                ledger.storage.put_content("blobs", draft.data)
            drafts.append(draft._replace(data=b""))
        except SatchelError as exc:
            refused[name] = exc
    return drafts


def _read_main(tree: Tree, name: str) -> SkillDocument:
    file = main_file(one.path for one in tree.files)
    data = read_whole(tree, file) if file else b""
    document = parse_document(data, name, file, (0, 0, len(data)))
    if document.head is None:
        raise SkillBroken(say("There is no SKILL.md in `{path}`", path=name))
    return document


def _describe(document: SkillDocument, verdict: str) -> Row:
    texts = (document.head.description if document.head else "", document.fields.get("license"))
    about, terms = (" ".join(one.split()) if isinstance(one, str) else "" for one in texts)
    return {
        "description": about[:_MAX_DESCRIPTION_CHARS],
        "license": terms[:_MAX_LICENSE_CHARS],
        "scan": verdict,
    }


def inspect_release(storage: Storage, release: HubRelease, verdict: str = "") -> Row:
    """Check that a blob holds the files of its release, and scan them unless a verdict is given."""
    with open_packed(storage.content("blobs", release.blob, release.size)) as tree:
        if hash_tree(tree).digest != release.tree:
            raise files.damaged(files.content_path("blobs", release.blob))
        document = _read_main(tree, release.name.partition("/")[2])
        return _describe(document, verdict or scan_tree(tree).verdict)


# --- changes -------------------------------------------------------------------------------


def publish(ledger: HubLedger, drafts: Sequence[Draft], key: SshKey) -> int:
    """Release skills; returns the number of the last commit."""
    count = ledger.count
    for batch in batches(drafts):
        changes = [one.change for one in batch]
        if not _needed_releases(ledger, changes, key):
            continue
        for one in batch:
            if one.data:
                ledger.storage.put_content("blobs", one.data)
        rows = sign_changes(changes, ledger.hub, key)
        count = ledger.append(lambda rows=rows: _needed_releases(ledger, rows, key))
    return count


def _needed_releases(ledger: HubLedger, changes: Sequence[Row], key: SshKey) -> list[Row]:
    """The releases that the hub does not have yet."""
    needed: list[Row] = []
    for change in changes:
        name, version = str(change["name"]), str(change["version"])
        _check_publisher(ledger, name.partition("/")[0], key)
        found = ledger.releases(name).get(version)
        if found and (found.yanked or found.tree in ledger.revoked or found.tree != change["tree"]):
            raise _version_taken(f"{name}@{version}")
        if found is None or found.scan == files.UNREADABLE:
            needed.append(change)
    return needed


def _version_taken(title: str) -> Refused:
    """The error for a version that has other content."""
    text = say("`{path}` exists already", path=title)
    return Refused(text, say("Raise the version in its SKILL.md"))


def _check_publisher(ledger: HubLedger, publisher: str, key: SshKey) -> None:
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


def yank(ledger: HubLedger, name: str, version: str, reason: str, key: SshKey) -> int:
    """Withdraw a release from selection; returns the number of the commit."""

    def make() -> list[Row]:
        found = ledger.releases(name).get(version)
        if found is None:
            raise NotFound(say("There is no `{path}`", path=f"{name}@{version}"))
        _check_publisher(ledger, name.partition("/")[0], key)
        row = {"type": "yank", "name": name, "version": version, "reason": reason}
        return [] if found.yanked else sign_changes([row], ledger.hub, key)

    return ledger.append(make)


def revoke(ledger: HubLedger, tree: str, reason: str, key: SshKey) -> int:
    """Forbid the installation of a tree under any name; returns the number of the commit."""
    if key.public != ledger.key:
        raise foreign_key(ledger.hub)
    rows = sign_changes([{"type": "revoke", "tree": tree, "reason": reason}], ledger.hub, key)
    return ledger.append(lambda: [] if tree in ledger.revoked else rows)


def allow(ledger: HubLedger, publishers: Sequence[str], public: str, key: SshKey) -> int:
    """Register publishers, or change their key; signed by the present key or the hub's."""
    count = ledger.count
    for names in batches(publishers):
        count = ledger.append(lambda names=names: _registrations(ledger, names, public, key))
    return count


def _registrations(
    ledger: HubLedger, publishers: Sequence[str], public: str, key: SshKey
) -> list[Row]:
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
        # The hub takes over no publisher that was registered while a folder was built.
        if key.public not in {current, ledger.key} or (current and public == ledger.key):
            raise foreign_key(publisher)
        rows.append(
            {"type": "publisher", "publisher": publisher, "key": public, "previous": current}
        )
    return sign_changes(rows, ledger.hub, key)
