"""Releases: a skill's folder becomes a checked, scanned and signed release of a hub.

The blob is a tar.gz with the same bytes for the same files and the same zlib: ustar, sorted names,
no times, no owners. Readers identify a release by the digest of its files (`tree`); the digest of
the blob says only where it is.
"""

from __future__ import annotations

import io
import os
import tarfile
from datetime import UTC, datetime
from functools import partial
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
from satchel.store.hub_client import format as hub_format
from satchel.store.hub_client.versions import parse_name, parse_version
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
    description: Row
    """Description, license and verdict of the scan."""
    archive: bytes
    """The bytes of the blob; empty when the storage has it."""

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
    return hub_format.pack(stream.getvalue())


def read_draft(
    folder: str, publisher: str, version: str = "", ledger: HubLedger | None = None
) -> Draft:
    """Read, check, scan and pack a skill; its folder's name and frontmatter name the release.

    A skill that declares no version gets the day as its version: 2026.1119.0, and 2026.1119.1 when
    the ledger has that already.
    """
    folder = os.path.abspath(folder)
    skill_id = os.path.basename(folder)
    name = f"{publisher}/{skill_id}"
    _require_valid_skill(folder, name)
    tree = subtree(FolderTree(folder))
    document = _read_document(tree, skill_id)
    version = version or _declared_version(document)
    if version and parse_version(version) is None:
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
    archive = pack_blob(tree)
    with open_packed(archive) as packed_tree:  # as readers do, whose limits may refuse it
        digest = hash_tree(packed_tree).digest
    change: Row = {
        "type": "release",
        "name": name,
        "version": version or _day_version(ledger, name, digest),
        "tree": digest,
        "blob": hub_format.digest_hex(archive),
        "size": len(archive),
    }
    return Draft(change, _describe(document, report.verdict), archive)


def _require_valid_skill(folder: str, name: str) -> None:
    """Check that a folder is a valid skill, and its name one that a hub takes."""
    if parse_name(name) is None:
        raise InvalidInput(
            say("`{name}` is not a valid name", name=name),
            say("Write `{value}`", value="acme/release-notes"),
        )
    for problem in validate_folder(folder):
        if problem.severity == "error":
            raise SkillBroken(
                say("`{name}` is not a skill: {problem}", name=name, problem=problem.message),
                problem.fix,
            )


def _declared_version(document: SkillDocument) -> str:
    """Return the version in the frontmatter; that in `metadata` where there is no other."""
    metadata: Any = document.fields.get("metadata")
    fields = cast("dict[str, Any]", metadata) if isinstance(metadata, dict) else {}
    return str(document.fields.get("version") or fields.get("version") or "")


def _day_version(ledger: HubLedger | None, name: str, tree: str) -> str:
    """Return the version of a skill that declares none; that of its newest release if it fits."""
    releases = ledger.sorted_releases(name) if ledger else []
    if releases and releases[-1].tree == tree:
        return releases[-1].version
    today = datetime.now(UTC)
    number = (today.year, 100 * today.month + today.day, 0)
    if releases and releases[-1].number >= number:
        first, second, last = releases[-1].number
        number = (first, second, last + 1)
    return ".".join(map(str, number))


def stage_folder(
    ledger: HubLedger, folder: str, key: SshKey | None, refused: dict[str, SatchelError]
) -> list[Draft]:
    """Read the skills of a folder `publisher/skill` that differ from their newest release.

    With a key their blobs are written at once: thousands of them would fill the memory.

    Args:
        ledger: The releases of the hub.
        folder: The folder of the publishers.
        key: Signs the releases; None for a dry run, which writes nothing.
        refused: Receives the reason of each skill that cannot be released, by name.
    """
    drafts: list[Draft] = []
    paths = sorted(Path(folder).glob("[!.]*/[!.]*/"))
    if not any(main_file(os.listdir(path)) for path in paths):
        raise NotFound(
            say("`{path}` has no skill in a folder `publisher/skill`", path=folder),
            say("Check the path"),
        )
    for path in paths:
        publisher, name = path.parent.name, f"{path.parent.name}/{path.name}"
        try:
            draft = _changed_draft(ledger, str(path), name)
            if draft is None:
                continue
            if key is not None:
                if ledger.current_key(publisher):
                    _check_publisher(ledger, publisher, key)
                ledger.storage.put_content("blobs", draft.archive)
            drafts.append(draft._replace(archive=b""))
        except SatchelError as exc:
            refused[name] = exc
    return drafts


def _changed_draft(ledger: HubLedger, folder: str, name: str) -> Draft | None:
    """Return a draft of a skill; None if its newest release has the same files and its key."""
    digest = hash_tree(subtree(FolderTree(folder))).digest
    newest = next(reversed(ledger.sorted_releases(name)), None)
    has_same_files = newest is not None and newest.tree == digest
    is_readable = newest is not None and newest.scan != hub_format.UNREADABLE
    current_key = ledger.current_key(name.partition("/")[0])
    if newest and has_same_files and is_readable and newest.key == current_key:
        return None
    draft = read_draft(folder, name.partition("/")[0], ledger=ledger)
    number = parse_version(draft.change["version"]) or ()
    if newest and not has_same_files and number <= newest.number:
        raise _version_taken_error(f"{name}@{newest.version}")
    return draft


def _read_document(tree: Tree, name: str) -> SkillDocument:
    file = main_file(entry.path for entry in tree.files)
    data = read_whole(tree, file) if file else b""
    document = parse_document(data, name, file, (0, 0, len(data)))
    if document.head is None:
        raise SkillBroken(say("There is no SKILL.md in `{path}`", path=name))
    return document


def _describe(document: SkillDocument, verdict: str) -> Row:
    """Return what the index says of a release beside its digests."""
    description = document.head.description if document.head else ""
    licence = document.fields.get("license")
    licence = licence if isinstance(licence, str) else ""
    return {
        "description": " ".join(description.split())[:_MAX_DESCRIPTION_CHARS],
        "license": " ".join(licence.split())[:_MAX_LICENSE_CHARS],
        "scan": verdict,
    }


def inspect_release(storage: Storage, release: HubRelease, verdict: str = "") -> Row:
    """Check that a blob holds the files of its release, and scan them unless a verdict is given."""
    with open_packed(storage.content("blobs", release.blob, release.size)) as tree:
        if hash_tree(tree).digest != release.tree:
            raise hub_format.damaged(hub_format.content_path("blobs", release.blob))
        document = _read_document(tree, release.name.partition("/")[2])
        return _describe(document, verdict or scan_tree(tree).verdict)


# --- changes -------------------------------------------------------------------------------


def publish(ledger: HubLedger, drafts: Sequence[Draft], key: SshKey) -> int:
    """Release skills; returns the number of the last commit.

    Before anything is written, every blob must be among the drafts or in the hub already.
    """
    for draft in drafts:
        if not draft.archive and draft.change["blob"] not in ledger.storage.stored_blobs:
            ledger.storage.content("blobs", draft.change["blob"], draft.change["size"])
    commit_number = ledger.count
    for batch in batches(drafts):
        changes = [draft.change for draft in batch]
        is_needed = bool(_needed_releases(ledger, changes, key))
        for draft in batch:  # also those that the hub has: a blob may be lost
            path = hub_format.content_path("blobs", draft.change["blob"])
            data = draft.archive
            if data and (is_needed or ledger.storage.get(path, len(data)) != data):
                ledger.storage.put_content("blobs", data)
        if is_needed:
            rows = sign_changes(changes, ledger.hub, key)
            commit_number = ledger.append(partial(_needed_releases, ledger, rows, key))
        ledger.storage.save()
    return commit_number


def _needed_releases(ledger: HubLedger, changes: Sequence[Row], key: SshKey) -> list[Row]:
    """Return the releases that the hub does not have yet."""
    needed: list[Row] = []
    for change in changes:
        name, version = str(change["name"]), str(change["version"])
        _check_publisher(ledger, name.partition("/")[0], key)
        release = ledger.releases(name).get(version)
        if release and (
            release.yanked or release.tree in ledger.revoked or release.tree != change["tree"]
        ):
            raise _version_taken_error(f"{name}@{version}")
        has_other_key = release is not None and release.key != key.public
        if release is None or release.scan == hub_format.UNREADABLE or has_other_key:
            needed.append(change)
    return needed


def _version_taken_error(title: str) -> Refused:
    """Return the error for a version that has other content."""
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
        raise foreign_key_error(publisher)


def foreign_key_error(owner: str) -> Refused:
    """Return the error for a key that has no right to a change."""
    return Refused(say("This is not the key of `{name}`", name=owner))


def _old_key_error(owner: str) -> Refused:
    """Return the error for a new key that is, or was, in use."""
    return Refused(
        say("`{name}` had this key before", name=owner),
        say("Run `{command}`", command="ssh-keygen -t ed25519"),
    )


def _require_reason(reason: str) -> None:
    """Refuse a reason that no hub takes."""
    limit = hub_format.MAX_REASON_CHARS
    if len(reason) > limit or not reason.isprintable():
        raise InvalidInput(
            say("The reason must be one line of at most {limit} characters", limit=limit),
            say("Write a shorter one"),
        )


def yank(ledger: HubLedger, name: str, version: str, reason: str, key: SshKey) -> int:
    """Withdraw a release from selection; returns the number of the commit."""
    _require_reason(reason)

    def make_changes() -> list[Row]:
        release = ledger.releases(name).get(version)
        if release is None:
            raise NotFound(say("There is no `{path}`", path=f"{name}@{version}"))
        _check_publisher(ledger, name.partition("/")[0], key)
        change = {"type": "yank", "name": name, "version": version, "reason": reason}
        return [] if release.yanked else sign_changes([change], ledger.hub, key)

    return ledger.append(make_changes)


def revoke(ledger: HubLedger, tree: str, reason: str, key: SshKey) -> int:
    """Forbid the installation of a tree under any name; returns the number of the commit."""
    _require_reason(reason)
    if key.public != ledger.key:
        raise foreign_key_error(ledger.hub)
    rows = sign_changes([{"type": "revoke", "tree": tree, "reason": reason}], ledger.hub, key)
    return ledger.append(lambda: [] if tree in ledger.revoked else rows)


def allow(ledger: HubLedger, publishers: Sequence[str], public: str, key: SshKey) -> int:
    """Register publishers, or change their key; signed by the present key or the hub's."""
    commit_number = ledger.count
    for batch in batches(publishers):
        commit_number = ledger.append(partial(_make_registrations, ledger, batch, public, key))
    return commit_number


def _make_registrations(
    ledger: HubLedger, publishers: Sequence[str], public: str, key: SshKey
) -> list[Row]:
    rows: list[Row] = []
    for publisher in publishers:
        current = ledger.current_key(publisher)
        if current == public:
            continue
        if any(past_key.key == public for past_key in ledger.keys(publisher)):
            raise _old_key_error(publisher)
        # The hub takes over no publisher that was registered while a folder was built.
        if key.public not in {current, ledger.key} or (current and public == ledger.key):
            raise foreign_key_error(publisher)
        rows.append(
            {"type": "publisher", "publisher": publisher, "key": public, "previous": current}
        )
    return sign_changes(rows, ledger.hub, key)


def rotate(ledger: HubLedger, new_key: str, key: SshKey) -> int:
    """Replace the hub's key, also as that of publishers; the old one signs the new one."""
    if key.public != ledger.key:
        raise foreign_key_error(ledger.hub)
    if new_key in {key.public, *(rotation["previous"] for rotation in ledger.rotations)}:
        raise _old_key_error(ledger.hub)
    publishers = dict.fromkeys(record.publisher for record in ledger.all_keys())
    change = {"key": new_key, "previous": key.public}
    changes: list[Row] = [
        {"type": "publisher", "publisher": publisher, **change}
        for publisher in publishers
        if ledger.current_key(publisher) == key.public
    ]
    rows = sign_changes([*changes, {"type": "rotate", **change}], ledger.hub, key)
    return ledger.append(lambda: rows if ledger.key == key.public else [])
