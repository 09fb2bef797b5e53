"""The write-ahead journal of a transaction.

`journal.json` exists only during a transaction. It holds everything needed to finish it: which
folders take which places, and the lockfile entries before and after. A completed transaction
renames the file into the history, so that one step both ends and records it. The file is signed
(`library/ownership.py`); one signed elsewhere is ignored.
"""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from satchel._fs import is_wrong_kind, read_plain, write_atomic
from satchel.errors import Refused, SatchelError
from satchel.i18n import say
from satchel.library.lockfile import check_id, parse_lock
from satchel.library.ownership import (
    RECORD_KIND,
    SIGNATURE,
    load_or_create_key,
    sign_record,
    verify_record,
)
from satchel.skill.file_tree import VERSION_CONTROL

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from satchel.library.lockfile import Lock
    from satchel.store.workdir import Scope

Kind = Literal["do", "undo", "redo"]

JOURNAL_FILE = "journal.json"
ENTRY_FILE = "entry.json"
JOURNAL_VERSION = 1

_STAGED_PATH = re.compile(r"(?:stage/[0-9a-f-]+/new|history/[0-9]+/old)/([^/]+)")
MAX_RECORD_BYTES = 64 << 20


class ForeignRecord(ValueError):
    """A record that is not signed with this user's key."""


class SkillChange(NamedTuple):
    """The change of one skill's folder."""

    id: str
    staged: str
    """The folder that takes its place; empty for a removal."""
    before: str
    """The digest of the present content; see `PathState.digest`."""
    after: str
    """The digest of the new content; empty for a removal."""


class TransactionRecord(NamedTuple):
    """One transaction."""

    number: int
    op: str
    """The command."""
    summary: str
    time: str
    """`2030-01-31T12:00:00Z`."""
    changes: tuple[SkillChange, ...]
    """With `staged` relative to the work folder."""
    locked: tuple[str, ...] = ()
    """Ids whose lockfile entries change."""
    lock_before: str = ""
    """The changing lockfile entries before, in the lockfile's format."""
    lock_after: str = ""
    kind: Kind = "do"
    of: int = 0
    """The number of the transaction that is undone or redone."""

    @property
    def ids(self) -> tuple[str, ...]:
        """Every skill that changes, on disk or in the lockfile."""
        return tuple(sorted({change.id for change in self.changes}.union(self.locked)))

    def rows(self, side: Literal["before", "after"]) -> Lock:
        """The changing lockfile entries on one side."""
        text = self.lock_before if side == "before" else self.lock_after
        return parse_lock(text.encode(), JOURNAL_FILE) if text else {}

    def entry(self, scope: Scope) -> str:
        """The folder of this transaction in the history."""
        return scope.part("history", str(self.number))

    def old(self, scope: Scope, skill_id: str) -> str:
        """The path of a replaced or removed folder in the history."""
        return scope.part("history", str(self.number), "old", skill_id)


def refuse_repository(path: str) -> None:
    """Refuse to change a skill's folder that contains a repository: no digest covers it.

    Raises:
        Refused: there is a version control folder at any depth.
        OSError: the folder cannot be read.
    """
    pending_folders = [path] if os.path.isdir(path) and not os.path.islink(path) else []
    while pending_folders:
        with os.scandir(pending_folders.pop()) as entries:
            for entry in entries:
                if not entry.is_dir(follow_symlinks=False):
                    continue
                if entry.name in VERSION_CONTROL:
                    raise Refused(
                        say("`{path}` is a repository within a skill, which Satchel does not move",
                            path=entry.path),
                        say("Move it elsewhere"),
                    )  # fmt: skip
                pending_folders.append(entry.path)


def render_record(record: TransactionRecord, scope: Scope | None = None) -> bytes:
    """A record as the bytes of a file, signed when the scope has a key.

    Raises:
        OSError: the key cannot be read.
    """
    table: dict[str, Any] = {"version": JOURNAL_VERSION, **record._asdict()}
    table["changes"] = [change._asdict() for change in record.changes]
    if scope is not None and scope.marks:
        table[SIGNATURE] = sign_record(
            table, load_or_create_key(scope.marks), os.path.realpath(scope.work), RECORD_KIND
        )
    # ASCII only: names that are not UTF-8 come back as they were.
    return (json.dumps(table, indent=1) + "\n").encode()


def parse_record(
    data: bytes, scope: Scope | None = None, signing_paths: Sequence[str] = ()
) -> TransactionRecord:
    """Parse a record. The file may have come with a project, so every value is checked.

    Args:
        data: The bytes of the file.
        scope: The scope; without it, or without its key, the signature is not checked.
        signing_paths: Work folders where it may have been signed; only here when empty.

    Raises:
        ForeignRecord: it is not signed with this user's key.
        ValueError: it is damaged, or names a path outside the work folder.
        OSError: the key cannot be read.
    """
    try:
        table = cast("dict[str, Any]", json.loads(data))
        if (
            scope is not None
            and scope.marks
            and not verify_record(
                table, scope.marks, signing_paths or (os.path.realpath(scope.work),), RECORD_KIND
            )
        ):
            raise ForeignRecord(say("it is damaged, or was not written here"))
        if table["version"] != JOURNAL_VERSION:
            raise ValueError(f"its version is {table['version']!r}")
        changes = tuple(
            SkillChange(*(str(row[field]) for field in SkillChange._fields))
            for row in table["changes"]
        )
        record = TransactionRecord(
            number=int(table["number"]),
            op=str(table["op"]),
            summary=str(table["summary"]),
            time=str(table["time"]),
            changes=changes,
            locked=tuple(map(str, table["locked"])),
            lock_before=str(table["lock_before"]),
            lock_after=str(table["lock_after"]),
            kind=table["kind"],
            of=int(table["of"]),
        )
        if record.kind not in ("do", "undo", "redo") or record.number < 1:
            raise ValueError("it has a kind or a number that does not exist")
        _check_changes(record.changes)
    except (KeyError, TypeError, AttributeError, RecursionError, SatchelError) as exc:
        raise ValueError(str(exc) or type(exc).__name__) from exc
    return record


def _check_changes(changes: Iterable[SkillChange]) -> None:
    """Check that every path is one that Satchel makes, and that each skill occurs once."""
    skill_ids: set[str] = set()
    for change in changes:
        check_id(change.id)
        staged_path = _STAGED_PATH.fullmatch(change.staged)
        if change.id in skill_ids or bool(change.staged) != bool(change.after):
            raise ValueError(f"it says two things about `{change.id}`")
        if change.staged and (staged_path is None or staged_path.group(1) != change.id):
            raise ValueError(f"`{change.staged}` is no place for a staged skill")
        skill_ids.add(change.id)


def relative_to_work(scope: Scope, changes: Iterable[SkillChange]) -> list[SkillChange]:
    """The changes with their staged folders relative to the work folder.

    Raises:
        ValueError: a staged folder is elsewhere, or a skill occurs twice.
    """
    relative_changes: list[SkillChange] = []
    for change in changes:
        staged = change.staged and os.path.relpath(change.staged, scope.work).replace(os.sep, "/")
        relative_changes.append(change._replace(staged=staged))
    _check_changes(relative_changes)
    return relative_changes


def is_free_of_links(scope: Scope, path: str) -> bool:
    """Whether no folder between the work folder and a path is a symbolic link."""
    while path != scope.work:
        path = os.path.dirname(path)
        if os.path.islink(path) or len(path) < len(scope.work):
            return False
    return True


def read_record(
    path: str, scope: Scope | None = None, signing_paths: Sequence[str] = ()
) -> TransactionRecord | None:
    """Read a journal or a history entry; None when there is none. For arguments see `parse_record`.

    Raises:
        ForeignRecord: it is not signed with this user's key.
        ValueError: it is damaged, or not a regular file.
        OSError: it cannot be read.
    """
    try:
        data = read_plain(path, MAX_RECORD_BYTES)
    except FileNotFoundError:
        return None
    except OSError as exc:
        if is_wrong_kind(exc):
            raise ValueError(exc.strerror or str(exc)) from exc
        raise
    return parse_record(data, scope, signing_paths)


def read_journal(scope: Scope) -> TransactionRecord | None:
    """Read the journal; None when there is none.

    A journal is rolled forward without a question, so only one that was signed here counts, also
    where a moved work folder was adopted.

    Raises:
        ValueError: it is damaged or foreign, or a folder that it names is a link.
        OSError: it cannot be read.
    """
    record = read_record(scope.part(JOURNAL_FILE), scope)
    if record is not None:
        paths = [record.old(scope, "x")]
        paths += [scope.part(change.staged) for change in record.changes]
        if not all(is_free_of_links(scope, path) for path in paths):
            raise ValueError("a folder in it is a link")
    return record


def write_journal(scope: Scope, record: TransactionRecord) -> None:
    """Write the journal durably. From here on a crash is rolled forward."""
    write_atomic(scope.part(JOURNAL_FILE), render_record(record, scope))
