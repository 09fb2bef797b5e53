"""Is a skill still what was locked or approved? Asked before anything of it reaches a model.

    seals.check(skill)     raises Changed, or gives what was verified
    seals.read(skill)      the document, from bytes that were verified
    seals.take(skill)      what there is now, to be approved
    tree_of(skill)         the files that are the skill
    generated(path, root)  what running or browsing a skill leaves in it

Two rules. A skill that was approved must be what was approved. A skill that is locked must equal
its lock, or be approved as it is. The files are hashed once; then an equal survey of the folder
says that nothing changed. Whoever shows bytes of a file compares those very bytes with the mark of
the file, so that nothing can come between the check and the reading.
"""

from __future__ import annotations

import os
import stat
import time
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from satchel._fs import RACY_NS, open_beneath
from satchel._language import Message
from satchel.errors import Changed, LockBroken, NotFound, Refused, SatchelError
from satchel.library.lockfile import pending, read_lock
from satchel.library.supplier import folder_of
from satchel.library.survey import Sealed, Taken, is_settled, survey
from satchel.library.trust import head_mark
from satchel.library.walk import OWN_FOLDERS
from satchel.skill.problems import Problem
from satchel.skill.tree import FolderTree, Seal, digest_of, seal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from satchel.library.locations import Location
    from satchel.library.lockfile import Lock, Locked
    from satchel.library.supply import Supply
    from satchel.library.trust import Approval, Approvals, TrustBook
    from satchel.skill.model import Document, Head, Origin, Skill
    from satchel.trace import Trace

__all__ = ["Sealed", "Seals", "Taken", "clean_seal", "generated", "head_mark", "tree_of"]

_TRIES = 6
_NAP = 0.01
_SHOWN = 3
_MOST_KEPT = 100_000
"""Files whose marks are remembered, over all skills."""
_QUICK_LOCK = 128 * 1024
"""A lockfile of this size is read in a few milliseconds, so a look at the disk can afford it."""
_NO_LOCK: Lock = {}
_DESKTOP = {
    ".DS_Store": b"\0\0\0\x01Bud1",
    "Thumbs.db": b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1",
    "desktop.ini": b"",
}
"""What a desktop writes into a folder that somebody looks at, and how such a file begins."""
_DESKTOP_SIZE = 1 << 20
_SIGNATURE = "SKILL.sig"


class _Passed(NamedTuple):
    """A check that went well, and on what it depends."""

    lock: Lock
    rows: Approvals
    head: Head
    sealed: Sealed | None
    """None when nothing binds the skill."""


class _Demand(NamedTuple):
    """What the content of a skill has to be."""

    skill: Skill
    lock: Lock
    rows: Approvals
    entry: Locked | None
    row: Approval | None
    path: str
    """The folder that is sealed."""
    inner: str
    """The skill's folder below it, with a `/` at the end; empty when it is the same."""
    marks: str = ""
    """The user's key, by which a journal is known to be ours."""

    def met(self, seal: Seal, real: str) -> bool:
        """Whether this is what was locked or approved."""
        digest = within = seal.digest
        if self.inner:
            size = len(self.inner)
            part = {
                path[size:]: mark for path, mark in seal.files.items() if path[:size] == self.inner
            }
            within = digest_of(part)
        if self.row is not None and within not in self.row.digests:
            return False
        entry = self.entry
        if entry is None or digest == entry.tree:
            return True
        around, own = self.rows.get(real), self.rows.get(os.path.join(real, self.inner).rstrip("/"))
        return (
            (around is not None and digest in around.digests)
            or (own is not None and within in own.digests)
            or pending(_root_of(self.skill), self.marks).get(entry.id) == digest
        )


class Seals:
    """Checks the skills of one library."""

    def __init__(
        self,
        locations: Iterable[Location],
        trust: TrustBook,
        trace: Trace,
        supplies: Mapping[str, Supply] | None = None,
    ) -> None:
        """Check the skills of some locations.

        Args:
            locations: Where they lie.
            trust: What was approved.
            trace: Where events go.
            supplies: Those whose files somebody supplies, by the location's path.
        """
        self._supplies = supplies or {}
        self._trusted: dict[Origin, bool | None] = {}
        self._locks: dict[Origin, str] = {}
        for location in locations:
            self._trusted[location.origin] = location.trusted
            self._locks[location.origin] = location.lock
        self._trust = trust
        self._trace = trace
        self._passed: dict[tuple[str, str, bool], _Passed] = {}
        self._sealed: dict[str, Sealed] = {}
        self._kept = 0
        self._read: dict[str, tuple[tuple[int, ...], Lock | tuple[str, str]]] = {}

    # --- checking -------------------------------------------------------------------------

    def check(self, skill: Skill, *, strict: bool = True, clean: bool = True) -> Sealed | None:
        """Make sure that a skill is what was locked or approved.

        Args:
            skill: Which one.
            strict: A skill that nobody approved is refused; else nothing is asked of it.
            clean: Delete what Python and desktops left in it, as is right before it is used.
                Whoever only looks leaves it there, and finds it in `left`.

        Returns:
            What was verified, or None when nothing binds the skill to a content.

        Raises:
            Changed: it is something else.
            LockBroken: its lockfile is damaged.
            NotFound: it is gone.
        """
        if skill.origin.remote:
            return self._supply(skill).check(skill, self._trust, strict=strict)
        head = skill.head
        kept = self._passed.get((skill.origin.root, head.id, strict))
        if (
            kept is not None
            and kept.head is head
            and kept.lock is self._lock(skill.origin)
            and kept.rows is self._trust.folders()
        ):
            sealed = kept.sealed
            try:
                if sealed is None or survey(sealed.path, sealed.only) == sealed.rows:
                    return sealed
            except (OSError, SatchelError):
                pass  # said below, with its reason
        return self._check(skill, strict=strict, clean=clean)

    def _check(self, skill: Skill, *, strict: bool, clean: bool) -> Sealed | None:
        seen: object = None
        failure: SatchelError | None = None
        for attempt in range(_TRIES):
            demand = self._demand(skill, strict=strict)
            if demand is None:
                return None
            try:
                sealed, settled = self._seal(demand.path, _only(skill))
            except (OSError, SatchelError) as exc:
                failure, now = _unsealable(demand, exc), (demand.lock, None)
            else:
                if demand.met(sealed.seal, sealed.real):
                    if settled and not pending(_root_of(skill), self._trust.marks):
                        passed = _Passed(demand.lock, demand.rows, skill.head, sealed)
                        self._remember(skill, passed, strict=strict)
                    return sealed
                left = _left_in(demand, sealed)
                rest = _without(sealed.seal, left)
                if left and demand.met(rest, sealed.real):
                    if not clean:
                        return sealed._replace(seal=rest, left=tuple(left))
                    self._clean(demand, sealed, left)
                    continue
                failure = _changed(demand, rest, self._trust)
                now = (demand.lock, sealed.seal.digest)
            # A transaction may be under way: what was read belongs to two moments then.
            if now == seen and not pending(_root_of(skill), self._trust.marks):
                break
            seen = now
            if attempt:
                time.sleep(_NAP * attempt)
        raise failure or _changed(demand, None, self._trust)  # pyright: ignore[reportPossiblyUnboundVariable]

    def _supply(self, skill: Skill) -> Supply:
        supply = self._supplies.get(skill.origin.root)
        if supply is None:
            raise NotFound(
                Message("The server of the skill `{name}` is not set any more", name=skill.name),
                Message("Run `satchel mcp list` to see which are"),
            )
        return supply

    def is_approved(self, skill: Skill) -> bool:
        """Whether a person approved a served skill's very content; True of every local one."""
        return not skill.origin.remote or self._supply(skill).is_approved(skill, self._trust)

    def is_locked(self, skill: Skill) -> bool:
        """Whether it was installed from somewhere, or lies in a skill that was.

        Raises:
            LockBroken: its lockfile is damaged.
        """
        return _entry_of(self._lock(skill.origin), skill.head.id) is not None

    def _demand(self, skill: Skill, *, strict: bool) -> _Demand | None:
        """What is asked of a skill's content; None when nothing is."""
        lock, rows = self._lock(skill.origin), self._trust.folders()
        entry = _entry_of(lock, skill.head.id)
        row = None
        if self._trusted.get(skill.origin, True) is None:
            row = self._trust.binding(os.path.realpath(skill.base_dir))
            if row is not None and not row.digests and not strict:
                row = None
        if entry is None and row is None:
            self._remember(skill, _Passed(lock, rows, skill.head, None), strict=strict)
            return None
        outer = entry.id if entry is not None else skill.head.id
        inner = skill.head.id[len(outer) + 1 :]
        path = os.path.join(skill.origin.root, outer) if outer else skill.origin.root
        inner = f"{inner}/" if inner else ""
        return _Demand(skill, lock, rows, entry, row, path, inner, self._trust.marks)

    def _remember(self, skill: Skill, passed: _Passed, *, strict: bool) -> None:
        if len(self._passed) >= _MOST_KEPT:
            self._passed.clear()
        self._passed[skill.origin.root, skill.head.id, strict] = passed

    def _seal(self, path: str, only: frozenset[str] | None) -> tuple[Sealed, bool]:
        """Hash a folder, unless nothing changed since; also whether that is sure to show."""
        began = time.time_ns()
        rows = survey(path, only)
        kept = self._sealed.get(path)
        if kept is not None and kept.rows == rows:
            return kept, True
        fresh = Sealed(path, os.path.realpath(path), only, seal(FolderTree(path, only=only)), rows)
        settled = is_settled(rows, began)
        if settled:
            self._kept += len(rows)
            if self._kept > _MOST_KEPT:
                self._sealed.clear()
                self._kept = len(rows)
            self._sealed[path] = fresh
        return fresh, settled

    def _clean(self, demand: _Demand, sealed: Sealed, extra: list[str]) -> None:
        """Delete what Python and desktops wrote into an approved skill.

        It cannot be left: Python runs what a cache says, not what the approved module says, and
        nobody looked into the rest.

        Raises:
            Changed: they cannot be deleted.
        """
        try:
            for path in extra:
                _unlink_beneath(sealed.real, path)
            for path in {os.path.dirname(path) for path in extra if _is_cache(path)}:
                with suppress(OSError):  # it holds something that was locked
                    os.rmdir(os.path.join(sealed.real, path))
        except (OSError, SatchelError) as exc:
            raise Changed(
                Message(
                    "The skill `{name}` has `{path}`, which nobody approved and which "
                    "cannot be deleted: {reason}",
                    name=demand.skill.name,
                    path=extra[0],
                    reason=_reason(exc),
                ),
                Message(
                    "Delete the `__pycache__` folders of the skill, and what your desktop put there"
                ),
            ) from exc
        skill = demand.skill
        self._trace.record("cleaned", (skill.name,), ref=skill.ref, files=len(extra))

    # --- reading --------------------------------------------------------------------------

    def read(self, skill: Skill) -> Document:
        """A skill's document, of the bytes that were verified.

        Raises:
            SatchelError: as `check`, or it cannot be read.
        """
        sealed = self.check(skill)
        return skill.read() if sealed is None else self.document(skill, sealed)

    def inspect(self, skill: Skill) -> Document:
        """A skill's document for a person who looks at it, approved or not.

        Raises:
            SatchelError: it cannot be read, or is not what its server listed.
        """
        return self._supply(skill).document(skill) if skill.origin.remote else skill.read()

    def document(self, skill: Skill, sealed: Sealed) -> Document:
        """A skill's document after a check.

        Raises:
            Changed: the file is not the one that was checked.
        """
        if skill.origin.remote:
            return self._supply(skill).document(skill)
        return skill.read(_verifier(skill, sealed))

    def take(self, skill: Skill) -> Taken:
        """What a skill is now, to be approved.

        Raises:
            SatchelError: it cannot be bound to its content, or is no skill any more.
        """
        from satchel.skill.load import read_head

        if skill.origin.remote:
            return self._supply(skill).take(skill)
        try:
            found = clean_seal(tree_of(skill))
        except (OSError, SatchelError) as exc:
            if isinstance(exc, FileNotFoundError) and not os.path.exists(skill.path):
                raise _gone(skill) from exc
            raise Refused(
                Message(
                    "The skill `{name}` cannot be approved as it is: {reason}",
                    name=skill.name,
                    reason=_reason(exc),
                ),
                Message(
                    "Mend that, or trust the project's folder whatever it holds: "
                    "`satchel trust --always`"
                ),
            ) from exc
        sealed = Sealed(skill.base_dir, os.path.realpath(skill.base_dir), None, found, [])
        read: list[bytes] = []
        verify = _verifier(skill, sealed)
        skill.read(lambda data: (verify(data), read.append(data))[0])
        # As a look at the disk reads it: that is what the mark will be compared with.
        named = skill.head.id or os.path.basename(skill.base_dir)
        head, _ = read_head(read[0], named, skill.head.file, (0, 0, 0))
        return Taken(skill, found, head_mark(head) if head is not None else "")

    # --- locks ----------------------------------------------------------------------------

    def lock_problem(self, path: str, *, deep: bool = False) -> Problem | None:
        """What is wrong with a lockfile; a large one is read only when `deep`."""
        stamp = _stamp(path)
        if not stamp or (stamp[2] > _QUICK_LOCK and not deep):
            return None
        try:
            self._lock_at(path)
        except LockBroken as exc:
            return Problem("lock-broken", path, values={"reason": exc.why})
        return None

    def _lock(self, origin: Origin) -> Lock:
        """The lock of a location."""
        path = self._locks.get(origin, "")
        return self._lock_at(path) if path else _NO_LOCK

    def _lock_at(self, path: str) -> Lock:
        """A lock, read again when the file changed."""
        stamp = _stamp(path)
        if not stamp:
            return _NO_LOCK
        known = self._read.get(path)
        if known is None or known[0] != stamp:
            try:
                found = read_lock(path)
            except LockBroken as exc:
                found = (exc.message, exc.hint)
            if known is not None and known[1] == found:
                found = known[1]
            young = time.time_ns() - stamp[1] < RACY_NS
            known = self._read[path] = (() if young else stamp, found)
        lock = known[1]
        if isinstance(lock, tuple):
            raise LockBroken(*lock)
        return lock


def _root_of(skill: Skill) -> str:
    return os.path.dirname(skill.origin.root)


def tree_of(skill: Skill) -> FolderTree:
    """The files that are a skill: what is approved, and so what may be copied, signed or sent.

    Raises:
        AccessDenied: a link in it leads elsewhere.
        SkillBroken: it is no skill's folder, or too large.
        Refused: it lies on a server.
        OSError: it cannot be read.
    """
    return FolderTree(folder_of(skill), only=_only(skill))


def _only(skill: Skill) -> frozenset[str] | None:
    """A skill at the top of a project is its file and its own folders, not the whole project."""
    return None if skill.head.id else OWN_FOLDERS | {_SIGNATURE, skill.head.file}


def _entry_of(lock: Lock, skill_id: str) -> Locked | None:
    """The entry of a skill, or of the locked skill in whose folder it lies."""
    while lock and skill_id:
        entry = lock.get(skill_id)
        if entry is not None:
            return entry
        skill_id = skill_id.rpartition("/")[0]
    return None


def _stamp(path: str) -> tuple[int, ...]:
    try:
        info = os.lstat(path)  # a link is not followed, and so never right
    except OSError:
        return ()
    return (info.st_mtime_ns, info.st_ctime_ns, info.st_size, info.st_ino)


def generated(path: str, root: str = "") -> bool:
    """Whether a file that nobody listed is a leftover of running a skill or of looking at it.

    Python's caches are known by where they are. What a desktop writes is known by its name and by
    how it begins, so without `root` it is not known at all: anybody can choose a name.

    Args:
        path: Relative to the skill's folder, with `/`.
        root: That folder.
    """
    kind = _DESKTOP.get(path.rpartition("/")[2])
    if kind is None:
        return _is_cache(path) and (not root or _is_file(root, path))
    if not root or not _is_file(root, path):
        return False
    try:
        descriptor = open_beneath(root, path)
    except (OSError, SatchelError):
        return False
    try:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode) or info.st_size > _DESKTOP_SIZE:
            return False
        start = os.read(descriptor, 256)
        return start.startswith(kind) if kind else _is_settings(start)
    except OSError:
        return False
    finally:
        os.close(descriptor)


def _is_cache(path: str) -> bool:
    """A file of Python's beside a module, also while it is being written."""
    folder, _, name = path.rpartition("/")
    stem, mark, rest = name.rpartition(".pyc")
    fits = bool(stem and mark) and (not rest or (rest[0] == "." and rest[1:].isdecimal()))
    return fits and folder.rpartition("/")[2] == "__pycache__"


def _is_settings(start: bytes) -> bool:
    """Whether a `desktop.ini` begins as one: with the name of a section on a line of its own."""
    code = "utf-16" if start[:2] == b"\xff\xfe" else "utf-8-sig"
    line = start.decode(code, "replace").lstrip("\r\n").partition("\n")[0].rstrip("\r")
    return line[:1] == "[" and line[-1:] == "]" and line.strip("[.]{}-").isalnum()


def _is_file(root: str, path: str) -> bool:
    try:
        return stat.S_ISREG(os.lstat(os.path.join(root, path)).st_mode)
    except OSError:
        return False


def clean_seal(tree: FolderTree) -> Seal:
    """The fingerprint of a folder without what is `generated` in it."""
    whole = seal(tree)
    return _without(whole, _leftovers(tree.root, whole))


def _leftovers(root: str, whole: Seal) -> list[str]:
    return [path for path in whole.files if generated(path, root)]


def _left_in(demand: _Demand, sealed: Sealed) -> list[str]:
    """What is `generated` there, and was not locked with the rest."""
    listed = demand.entry.files if demand.entry is not None else {}
    return [path for path in _leftovers(sealed.real, sealed.seal) if path not in listed]


def _without(whole: Seal, left_out: Iterable[str]) -> Seal:
    gone = frozenset(left_out)
    if not gone:
        return whole
    files = {path: mark for path, mark in whole.files.items() if path not in gone}
    return Seal(digest_of(files), files)


def _unlink_beneath(root: str, path: str) -> None:
    """Delete a file below a folder; links on the way do not lead out of it."""
    folder, name = os.path.split(path)
    if os.unlink not in os.supports_dir_fd:
        os.unlink(os.path.join(root, path))
        return
    descriptor = open_beneath(root, folder or ".")
    try:
        os.unlink(name, dir_fd=descriptor)
    finally:
        os.close(descriptor)


def _changed(demand: _Demand, found: Seal | None, book: TrustBook) -> Changed:
    name = demand.skill.name
    typed = demand.skill.typed
    entry = demand.entry
    files = found.files if found is not None else {}
    if entry is None:
        return Changed(
            Message("The skill `{name}` changed since it was approved", name=name),
            Message(
                "Read it with `satchel show {name}`, then run `satchel trust {name}`", name=typed
            ),
            kind="approval",
            files=_since_approved(demand, files, book),
        )
    hint = Message(
        "See what changed with `satchel lock {name} --dry-run`. Yours? Run "
        "`satchel lock {name}`. Not yours? Run `satchel install --frozen`",
        name=typed,
    )
    differing = _differing(entry.files, files)
    if not differing:
        return Changed(
            Message("The skill `{name}` is locked, but not approved as it is", name=name),
            Message(
                "Read it with `satchel show {name}`, then run `satchel trust {name}`", name=typed
            ),
            kind="approval",
            files=_since_approved(demand, files, book),
        )
    shown = [f"`{path}`" for path in differing[:_SHOWN]]
    shown += ["…"] if len(differing) > _SHOWN else []
    return Changed(
        Message(
            "The skill `{name}` is not what was locked; these files differ: {files}",
            name=name,
            files=shown,
        ),
        hint,
        kind="lock",
        files=differing,
    )


def _since_approved(demand: _Demand, now: Mapping[str, str], book: TrustBook) -> list[str]:
    """The files that differ from the approved content that is nearest; none when nobody knows."""
    size = len(demand.inner)
    own = {path[size:]: mark for path, mark in now.items() if path[:size] == demand.inner}
    tables = map(book.files_of, demand.row.digests if demand.row is not None else ())
    found = [_differing(table, own) for table in tables if table is not None]
    return min(found, key=len) if found else []


def _differing(one: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    return sorted(path for path in {*one, *other} if one.get(path) != other.get(path))


def _unsealable(demand: _Demand, exc: OSError | SatchelError) -> SatchelError:
    skill = demand.skill
    if isinstance(exc, FileNotFoundError) and not os.path.exists(skill.path):
        return _gone(skill)
    return Changed(
        Message(
            "Whether the skill `{name}` is what was approved cannot be told: {reason}",
            name=skill.name,
            reason=_reason(exc),
        ),
        Message("Look at it with `satchel show {name}`", name=skill.typed),
        kind="untold",
        reason=_reason(exc),
    )


def _gone(skill: Skill) -> NotFound:
    return NotFound(
        Message("`{path}` is not there", path=skill.path),
        Message("Run `satchel list` to see what is"),
    )


def _reason(exc: OSError | SatchelError) -> str:
    return exc.message if isinstance(exc, SatchelError) else exc.strerror or str(exc)


def _verifier(skill: Skill, sealed: Sealed) -> Callable[[bytes], None]:
    """Compares what was read of a skill's own file with what was verified."""
    from hashlib import sha256

    path = skill.path[len(sealed.path) :].lstrip(os.sep).replace(os.sep, "/")

    def verify(data: bytes) -> None:
        if not sealed.has(path, sha256(data).hexdigest()):
            raise Changed(
                Message("The skill `{name}` changed while it was read", name=skill.name),
                Message("Try again"),
            )

    return verify
