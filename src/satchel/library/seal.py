"""Whether a skill may be used as it is now, decided before anything of it reaches a model.

    seals.check(skill)     raises, or returns the files that were checked
    seals.read(skill)      the document, from bytes that were checked
    seals.modified(skill)  which files differ from the lockfile
    tree_of(skill)         the files that are the skill
    generated(path, root)  what running or browsing a skill leaves in it

A skill is used when its folder is trusted and the scan does not block its content; where the
setting `trust` is `locked`, also only when it equals its entry in the lockfile. The files are
hashed once; afterwards an equal survey of the folder says that nothing changed. Code that shows
bytes of a file compares those very bytes with the digest of the file, so that nothing can come
between the check and the reading.
"""

from __future__ import annotations

import os
import stat
import time
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from satchel._fs import RACY_NS, open_beneath
from satchel._language import Message
from satchel.errors import Blocked, Changed, LockBroken, NotFound, Refused, SatchelError
from satchel.library.locations import folder_of
from satchel.library.lockfile import pending, read_lock
from satchel.library.survey import ScanCache, Sealed, is_settled, survey
from satchel.library.walk import OWN_FOLDERS
from satchel.skill.problems import Problem
from satchel.skill.tree import FolderTree, MemoryTree, Seal, digest_of, seal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from satchel.library.locations import Location
    from satchel.library.lockfile import Lock, Locked
    from satchel.library.supply import Supply
    from satchel.library.trust import TrustBook, TrustRecord
    from satchel.security.report import Report
    from satchel.skill.model import Document, Head, Origin, Skill
    from satchel.trace import Trace

__all__ = ["Sealed", "Seals", "generated", "tree_of"]

_TRIES = 6
_NAP_SECONDS = 0.01
_SHOWN_FILES = 3
_MOST_FILES_KEPT = 100_000
"""Files whose digests are remembered, over all skills."""
_QUICK_LOCK_BYTES = 128 * 1024
"""A lockfile of this size is read in a few milliseconds, so a look at the disk can afford it."""
_NO_LOCK: Lock = {}
_DESKTOP = {
    ".DS_Store": b"\0\0\0\x01Bud1",
    "Thumbs.db": b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1",
    "desktop.ini": b"",
}
"""What a desktop writes into a folder that is looked at, and how such a file begins."""
_DESKTOP_BYTES = 1 << 20
_SIGNATURE = "SKILL.sig"


class _Passed(NamedTuple):
    """A check that went well, and on what it depends."""

    lock: Lock
    record: TrustRecord
    head: Head
    sealed: Sealed


class _SealedTree(FolderTree):
    """The files that were hashed; what is read of one is compared with its digest."""

    def __init__(self, sealed: Sealed) -> None:
        super().__init__(sealed.path, only=sealed.only)
        known = sealed.seal.files
        self.files = tuple(file for file in self.files if file.path in known)
        self._sealed = sealed
        self.differs = len(self.files) != len(known)
        """A file went or changed since."""

    def chunks(self, path: str) -> Iterator[bytes]:
        """The content of a file, whole."""
        from hashlib import sha256

        data = b""
        try:
            data = b"".join(super().chunks(path))
        finally:  # also when it cannot be read
            self.differs |= not self._sealed.has(path, sha256(data).hexdigest())
        yield data


class Seals:
    """Checks the skills of one library."""

    def __init__(
        self,
        locations: Iterable[Location],
        trust: TrustBook,
        trace: Trace,
        *,
        supplies: Mapping[str, Supply] | None = None,
        scans: ScanCache | None = None,
    ) -> None:
        """Check the skills of some locations.

        Args:
            locations: Where they lie.
            trust: Which folders are trusted, and which risks were accepted.
            trace: Where events go.
            supplies: The suppliers of served skills, by the location's path.
            scans: Scans contents, and remembers which were not blocked.
        """
        self._supplies = supplies or {}
        self._scans = scans or ScanCache()
        self._places = {location.origin: location for location in locations}
        self._trust = trust
        self._trace = trace
        self._passed: dict[tuple[str, str], _Passed] = {}
        self._sealed: dict[str, Sealed] = {}
        self._kept = 0
        self._read: dict[str, tuple[tuple[int, ...], Lock | tuple[str, str]]] = {}

    # --- checking -------------------------------------------------------------------------

    def check(self, skill: Skill, *, clean: bool = True) -> Sealed:
        """Make sure that a skill may be used as it is now.

        Args:
            skill: Which one.
            clean: Delete what Python left in it, as is right before it is used.

        Returns:
            What was checked.

        Raises:
            Refused: its folder is not trusted, or no lockfile pins it where one must.
            Blocked: the scan blocks it, and the user did not accept that.
            Changed: it is not what is locked where it must be, or changes this moment.
            LockBroken: its lockfile is damaged.
            NotFound: it is gone.
        """
        if skill.origin.remote:
            return self._supply(skill).check(skill)
        kept = self._passed.get((skill.origin.root, skill.head.id))
        if (
            kept is not None
            and kept.head is skill.head
            and kept.lock is self._lock_where_it_counts(skill)
            and kept.record is self._trust.read()
        ):
            try:
                if survey(kept.sealed.path, kept.sealed.only) == kept.sealed.rows:
                    return kept.sealed
            except (OSError, SatchelError):
                pass  # said below, with its reason
        record, lock = self._trust.read(), self._lock_where_it_counts(skill)
        self._check_trust(skill)
        sealed, settled = self._matching(skill, clean=clean)
        self._check_scan(skill, sealed)
        if settled and record is self._trust.read():
            if len(self._passed) >= _MOST_FILES_KEPT:
                self._passed.clear()
            passed = _Passed(lock, record, skill.head, sealed)
            self._passed[skill.origin.root, skill.head.id] = passed
        return sealed

    def _check_trust(self, skill: Skill) -> None:
        """Decide again on the path as it is now: a link may have been turned since the look."""
        place = self._places.get(skill.origin)
        if place is None or place.trusted is True:
            return
        if place.trusted is False or not self._trust.trusts(skill.base_dir, place.boundary):
            raise Refused(
                Message("The skill `{name}` is not trusted yet", name=skill.name),
                Message("Run `satchel trust` in the project"),
            )

    def _matching(self, skill: Skill, *, clean: bool) -> tuple[Sealed, bool]:
        """The files of a skill; where only locked ones may be used, equal to the lockfile."""
        seen: object = None
        failure: SatchelError | None = None
        for attempt in range(_TRIES):
            entry = self._entry(skill)
            try:
                sealed, settled = self._seal(skill, entry, clean=clean)
            except (OSError, SatchelError) as exc:
                failure, now = _unreadable(skill, exc), None
            else:
                failure = self._differs(skill, entry, sealed.seal) if self._trust.locked else None
                if failure is None:
                    return sealed, settled
                now = sealed.seal.digest
            # A transaction may be under way: what was read belongs to two moments then.
            if now == seen and attempt and not pending(_root_of(skill), self._trust.marks):
                break
            seen = now
            if attempt:
                time.sleep(_NAP_SECONDS * attempt)
        assert failure is not None  # noqa: S101 - the loop ends by it alone
        raise failure

    def _differs(self, skill: Skill, entry: Locked | None, found: Seal) -> SatchelError | None:
        """Why a skill is not what a lockfile pins."""
        if skill.source == "builtin":
            return None
        if entry is None:
            return Refused(
                Message(
                    "The skill `{name}` is not in a lockfile, and the setting `trust` is `locked`",
                    name=skill.name,
                ),
                Message("Import it from its source, which locks it, or change the setting `trust`"),
            )
        files = _pinned(entry, skill)
        if digest_of(files) == found.digest:
            return None
        if pending(_root_of(skill), self._trust.marks).get(skill.head.id) == found.digest:
            return None
        differing = _differing(files, found.files)
        shown = [f"`{path}`" for path in differing[:_SHOWN_FILES]]
        shown += ["…"] if len(differing) > _SHOWN_FILES else []
        return Changed(
            Message(
                "The skill `{name}` is not what was locked; these files differ: {files}",
                name=skill.name,
                files=shown,
            ),
            Message(
                "See what changed with `satchel lock {name} --dry-run`. Yours? Run "
                "`satchel lock {name}`. Not yours? Run `satchel install --frozen`",
                name=skill.typed,
            ),
            files=differing,
        )

    def _check_scan(self, skill: Skill, sealed: Sealed) -> None:
        digest = sealed.seal.digest
        if skill.source == "builtin" or self._trust.accepts(digest):
            return
        blocked = self._trust.read().blocked
        if self._scans.knows(digest) and blocked.get(os.path.realpath(skill.base_dir)) != digest:
            return
        report = self.scan(skill, sealed)
        if report.verdict == "blocked":
            raise _blocked(skill, report)

    def scan(
        self, skill: Skill, sealed: Sealed | None = None, found: dict[str, str] | None = None
    ) -> Report:
        """Scan a skill as it is now; what is found is remembered for every door.

        Args:
            skill: Which one.
            sealed: Its files, where they were hashed already.
            found: Where the verdict is put, for `note`, when many skills are scanned.

        Raises:
            SatchelError: it cannot be read.
        """
        if sealed is None:
            try:
                sealed, _ = self._seal(skill, self._entry(skill), clean=False)
            except OSError as exc:
                raise _unreadable(skill, exc) from exc
        tree = _SealedTree(sealed)
        report = self._scans.scan(tree, os.path.basename(skill.base_dir))
        if tree.differs:
            raise _changing(skill)
        digest = sealed.seal.digest
        self._scans.remember(digest, report)
        rows = {} if found is None else found
        rows[skill.base_dir] = digest if report.verdict == "blocked" else ""
        if found is None:
            self.note(rows)
        return report

    def note(self, found: Mapping[str, str]) -> None:
        """Remember what scans found: a skill's folder -> the digest of its blocked content."""
        with suppress(SatchelError):  # a state folder that cannot be written: refused all the same
            self._trust.block(found)

    def blocks(self, skill: Skill, digest: str) -> bool:
        """Whether a skill still has the content that the scan blocked, and it is not accepted."""
        if self._trust.accepts(digest):
            return False
        try:
            if skill.origin.remote:
                return self._supply(skill).mark(skill) == digest
            return self._seal(skill, self._entry(skill), clean=False)[0].seal.digest == digest
        except (OSError, SatchelError):
            return True

    def is_accepted(self, skill: Skill) -> bool:
        """Whether the user accepted the risk of a skill as it is now.

        Raises:
            SatchelError: it cannot be read.
        """
        return self._trust.accepts(self.digest(skill))

    def pins(self, skill: Skill) -> bool:
        """Whether a lockfile pins a skill exactly as it is, or it ships with Satchel."""
        try:
            if skill.source != "builtin" and self._entry(skill) is None:
                return False  # nothing need be hashed to know it
            self._matching(skill, clean=False)
        except SatchelError:
            return False
        return True

    def modified(self, skill: Skill) -> tuple[str, ...]:
        """The files of an installed skill that differ from the lockfile; none when it has no entry.

        Raises:
            LockBroken: its lockfile is damaged.
        """
        if skill.origin.remote:
            return ()
        entry = self._entry(skill)
        if entry is None:
            return ()
        try:
            found = self._seal(skill, entry, clean=False)[0].seal
        except (OSError, SatchelError):
            return (skill.head.file,)
        files = _pinned(entry, skill)
        return () if digest_of(files) == found.digest else tuple(_differing(files, found.files))

    def digest(self, skill: Skill) -> str:
        """The digest of a skill as it is now.

        Raises:
            SatchelError: it cannot be read.
        """
        if skill.origin.remote:
            return self._supply(skill).mark(skill)
        try:
            return self._seal(skill, self._entry(skill), clean=False)[0].seal.digest
        except OSError as exc:
            raise _unreadable(skill, exc) from exc

    def is_locked(self, skill: Skill) -> bool:
        """Whether it was installed from somewhere, or lies in a skill that was.

        Raises:
            LockBroken: its lockfile is damaged.
        """
        return not skill.origin.remote and self._entry(skill) is not None

    def is_own(self, skill: Skill) -> bool:
        """Whether a skill is the user's own work: made here or in their folder, not installed."""
        theirs = skill.source in ("global", "builtin") or self._trust.is_made(skill.base_dir)
        return theirs and not self.is_locked(skill)

    def _supply(self, skill: Skill) -> Supply:
        supply = self._supplies.get(skill.origin.root)
        if supply is None:
            raise NotFound(
                Message("The server of the skill `{name}` is not set any more", name=skill.name),
                Message("Run `satchel mcp list` to see which are"),
            )
        return supply

    def _seal(self, skill: Skill, entry: Locked | None, *, clean: bool) -> tuple[Sealed, bool]:
        """Hash a skill's folder, unless nothing changed since; also whether a change would show."""
        began = time.time_ns()
        path, only = skill.base_dir, _only(skill)
        rows = survey(path, only)
        kept = self._sealed.get(path)
        if kept is not None and kept.rows == rows:
            return kept, True
        tree = FolderTree(path, only=only)
        whole, real = seal(tree), os.path.realpath(path)
        listed: Mapping[str, str] = _pinned(entry, skill) if entry is not None else {}
        left = [one for one in whole.files if one not in listed and generated(one, real)]
        caches = [one for one in left if _is_cache(one)]
        if clean and caches:
            self._clean(skill, real, caches)
            rows = survey(path, only)
        fresh = Sealed(path, real, only, _without(whole, left), rows)
        settled = is_settled(rows, began) and (clean or not caches)
        if settled:
            self._kept += len(rows)
            if self._kept > _MOST_FILES_KEPT:
                self._sealed.clear()
                self._kept = len(rows)
            self._sealed[path] = fresh
        return fresh, settled

    def _clean(self, skill: Skill, real: str, caches: list[str]) -> None:
        """Delete what Python wrote into a skill: it would run that, not what was checked.

        Raises:
            Changed: it cannot be deleted.
        """
        try:
            for path in caches:
                _unlink_beneath(real, path)
            for path in {os.path.dirname(path) for path in caches}:
                with suppress(OSError):  # it holds something else
                    os.rmdir(os.path.join(real, path))
        except (OSError, SatchelError) as exc:
            raise Changed(
                Message(
                    "The skill `{name}` has `{path}`, which was not checked and cannot be "
                    "deleted: {reason}",
                    name=skill.name,
                    path=caches[0],
                    reason=_reason(exc),
                ),
                Message("Delete the `__pycache__` folders of the skill"),
            ) from exc
        self._trace.record("cleaned", (skill.name,), ref=skill.ref, files=len(caches))

    # --- reading --------------------------------------------------------------------------

    def read(self, skill: Skill) -> Document:
        """A skill's document, of the bytes that were checked.

        Raises:
            SatchelError: as `check`, or it cannot be read.
        """
        return self.document(skill, self.check(skill))

    def inspect(self, skill: Skill) -> Document:
        """A skill's document for a person who looks at it, trusted or not.

        Raises:
            SatchelError: it cannot be read, or is not what its server listed.
        """
        return self._supply(skill).document(skill) if skill.origin.remote else skill.read()

    def document(self, skill: Skill, sealed: Sealed) -> Document:
        """A skill's document after a check.

        Raises:
            Changed: the file is not the one that was checked.
            Blocked: it is a server's, and the scan blocks it.
        """
        if skill.origin.remote:
            supply = self._supply(skill)
            self.check_served(skill, skill.head.file, supply.bring(skill, skill.head.file))
            return supply.document(skill)
        return skill.read(_verifier(skill, sealed))

    def check_served(self, skill: Skill, path: str, data: bytes) -> None:
        """Scan one file of a served skill, as it is fetched.

        Raises:
            Blocked: the scan blocks it, and the user did not accept that.
        """
        found = seal(MemoryTree({path: data}))
        mark = self._supply(skill).mark(skill)
        if self._scans.knows(found.digest) or self._trust.accepts(mark):
            return
        report = self._scans.scan(MemoryTree({path: data}), os.path.basename(skill.base_dir))
        self._scans.remember(found.digest, report)
        if report.verdict == "blocked":
            with suppress(SatchelError):
                self._trust.block({skill.base_dir: mark})
            raise _blocked(skill, report)

    # --- locks ----------------------------------------------------------------------------

    def lock_problem(self, path: str, *, deep: bool = False) -> Problem | None:
        """What is wrong with a lockfile; a large one is read only when `deep`."""
        stamp = _stamp(path)
        if not stamp or (stamp[2] > _QUICK_LOCK_BYTES and not deep):
            return None
        try:
            self._lock_at(path)
        except LockBroken as exc:
            return Problem("lock-broken", path, values={"reason": exc.why})
        return None

    def _lock_where_it_counts(self, skill: Skill) -> Lock:
        return self._lock(skill.origin) if self._trust.locked else _NO_LOCK

    def _entry(self, skill: Skill) -> Locked | None:
        """The entry of a skill, or of the locked skill in whose folder it lies."""
        lock, skill_id = self._lock(skill.origin), skill.head.id
        while lock and skill_id:
            entry = lock.get(skill_id)
            if entry is not None:
                return entry
            skill_id = skill_id.rpartition("/")[0]
        return None

    def _lock(self, origin: Origin) -> Lock:
        """The lock of a location."""
        place = self._places.get(origin)
        return self._lock_at(place.lock) if place is not None and place.lock else _NO_LOCK

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
    """The files that are a skill: what is scanned, and so what may be copied, signed or sent.

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


def _pinned(entry: Locked, skill: Skill) -> Mapping[str, str]:
    """What a lockfile says of a skill's own folder, which may lie within a locked skill's."""
    inner = skill.head.id[len(entry.id) + 1 :]
    if not inner:
        return entry.files
    prefix = f"{inner}/"
    return {
        path.removeprefix(prefix): mark
        for path, mark in entry.files.items()
        if path.startswith(prefix)
    }


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
        if not stat.S_ISREG(info.st_mode) or info.st_size > _DESKTOP_BYTES:
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


def _differing(one: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    return sorted(path for path in {*one, *other} if one.get(path) != other.get(path))


def _blocked(skill: Skill, report: Report) -> Blocked:
    rules = [f"`{one}`" for one in dict.fromkeys(
        found.rule for found in report.findings if found.severity == "block"
    )]  # fmt: skip
    return Blocked(
        Message("The scan blocks the skill `{name}`: {rules}", name=skill.name, rules=rules),
        Message(
            "Read what it found with `satchel scan {name}`. To use it all the same: "
            "`satchel trust {name} --accept-risk WHY`",
            name=skill.typed,
        ),
    )


def _changing(skill: Skill) -> Changed:
    return Changed(
        Message("The skill `{name}` changed while it was read", name=skill.name),
        Message("Try again"),
    )


def _unreadable(skill: Skill, exc: OSError | SatchelError) -> SatchelError:
    if isinstance(exc, FileNotFoundError) and not os.path.exists(skill.path):
        return NotFound(
            Message("`{path}` is not there", path=skill.path),
            Message("Run `satchel list` to see what is"),
        )
    if isinstance(exc, (Changed, LockBroken)):
        return exc
    return Refused(
        Message(
            "The skill `{name}` cannot be checked: {reason}", name=skill.name, reason=_reason(exc)
        ),
        Message("Fix the cause: a skill that cannot be checked is not used"),
    )


def _reason(exc: OSError | SatchelError) -> str:
    return exc.message if isinstance(exc, SatchelError) else exc.strerror or str(exc)


def _verifier(skill: Skill, sealed: Sealed) -> Callable[[bytes], None]:
    """Compares what was read of a skill's own file with what was verified."""
    from hashlib import sha256

    path = skill.path[len(sealed.path) :].lstrip(os.sep).replace(os.sep, "/")

    def verify(data: bytes) -> None:
        if not sealed.has(path, sha256(data).hexdigest()):
            raise _changing(skill)

    return verify
