"""Verifies that a skill may be used, before any of its content reaches a model.

A skill may be used when its folder is trusted and the scan does not block its content; with the
setting `trust = "locked"` it must also equal its entry in the lockfile. Files are hashed once; an
equal survey of the folder shows that nothing changed since. Code that passes on bytes of a file
compares those bytes with the file's digest, so that no change between check and read goes
unnoticed.
"""

from __future__ import annotations

import os
import stat
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from satchel._fs import RACY_NS, open_beneath
from satchel.errors import Blocked, Changed, LockBroken, NotFound, Refused, SatchelError
from satchel.i18n import Message
from satchel.library.fingerprint import (
    VerdictCache,
    VerifiedFolder,
    changed_error,
    is_settled,
    list_stamps,
)
from satchel.library.locations import local_folder
from satchel.library.lockfile import pending_changes, read_lock
from satchel.library.scanner import OWN_FOLDERS
from satchel.skill.file_tree import FolderTree, MemoryTree, TreeDigest, digest_of, hash_tree
from satchel.skill.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from satchel.library.locations import Location
    from satchel.library.lockfile import Lock, LockedSource, LockEntry
    from satchel.library.served_skills import ServedSkills
    from satchel.library.trust_store import TrustStore
    from satchel.security.report import ScanReport
    from satchel.skill.document import SkillDocument
    from satchel.skill.model import Skill, SkillOrigin
    from satchel.trace import Trace

__all__ = ["IntegrityChecker", "VerifiedFolder", "generated", "tree_of"]

_MAX_ATTEMPTS = 6
_RETRY_DELAY_S = 0.01
_MAX_FILES_SHOWN = 3
_MAX_CACHED_FILES = 100_000
_MAX_QUICK_LOCK_BYTES = 128 * 1024
"""Larger lockfiles are not read during a refresh, unless they changed."""
_NO_LOCK: Lock = {}
_DESKTOP_FILE, _DESKTOP_MAGIC = ".DS_Store", b"\0\0\0\x01Bud1"
"""The file that macOS writes into folders, and its first bytes."""
_MAX_DESKTOP_FILE_BYTES = 1 << 20
_SIGNATURE = "SKILL.sig"


class _VerifiedTree(FolderTree):
    """The files of a verified folder; content is compared with its digest when read."""

    def __init__(self, verified: VerifiedFolder) -> None:
        super().__init__(verified.path, only=verified.only)
        known = verified.tree.files
        self.files = tuple(file for file in self.files if file.path in known)
        self._verified = verified
        self.differs = len(self.files) != len(known)
        """A file was removed or changed since."""

    def chunks(self, path: str) -> Iterator[bytes]:
        """Yield the whole content of a file."""
        from hashlib import sha256

        data = b""
        try:
            data = b"".join(super().chunks(path))
        finally:  # also when it cannot be read
            self.differs |= not self._verified.has(path, sha256(data).hexdigest())
        yield data


class IntegrityChecker:
    """Checks the skills of one library."""

    def __init__(
        self,
        locations: Iterable[Location],
        trust: TrustStore,
        trace: Trace,
        *,
        supplies: Mapping[str, ServedSkills] | None = None,
        scans: VerdictCache | None = None,
    ) -> None:
        """Create a checker.

        Args:
            locations: The locations of the skills.
            trust: Trusted folders and accepted risks.
            trace: Receives events.
            supplies: Served skills by the location's path.
            scans: Scans contents.
        """
        self._supplies = supplies or {}
        self.scans = scans or VerdictCache()
        self._places = {location.origin: location for location in locations}
        self._trust = trust
        self._trace = trace
        self._verified: dict[str, VerifiedFolder] = {}
        self._cached_files = 0
        self._locks: dict[str, tuple[tuple[int, ...], Lock | tuple[str, str]]] = {}

    # --- checking -------------------------------------------------------------------------

    def check(self, skill: Skill, *, clean: bool = True) -> VerifiedFolder:
        """Verify that a skill may be used with its present content.

        Args:
            skill: The skill.
            clean: Delete bytecode caches in it, as is necessary before it is used.

        Raises:
            Refused: its folder is not trusted, or it must be locked and is not.
            Blocked: the scan blocks it, and the user did not accept the risk.
            Changed: it must be locked and differs, or it changes while it is read.
            LockBroken: its lockfile is damaged.
            NotFound: it does not exist any more.
        """
        if skill.origin.remote:
            return self._supply(skill).check(skill)
        self._check_trust(skill)
        verified = self._verify(skill, clean=clean)
        self._check_scan(skill, verified)
        return verified

    def _check_trust(self, skill: Skill) -> None:
        """Check the present real path: a link may have changed since the scan."""
        place = self._places.get(skill.origin)
        if place is None or place.trusted is True:
            return
        if place.trusted is False or not self._trust.trusts(skill.base_dir, place.boundary):
            raise Refused(
                Message("The skill `{name}` is not trusted yet", name=skill.name),
                Message("Run `{command}`", command="satchel trust"),
            )

    def _verify(self, skill: Skill, *, clean: bool) -> VerifiedFolder:
        """The files of a skill; with `trust = "locked"`, equal to the lockfile."""
        seen: object = None
        failure: SatchelError | None = None
        for attempt in range(_MAX_ATTEMPTS):
            entry = self._entry(skill)
            try:
                verified = self._hash(skill, entry, clean=clean)
            except (OSError, SatchelError) as exc:
                failure, now = _unreadable_error(skill, exc), None
            else:
                failure = (
                    self._lock_error(skill, entry, verified.tree) if self._trust.locked else None
                )
                if failure is None:
                    return verified
                now = verified.tree.digest
            # A transaction in progress may have changed the folder while it was read.
            if now == seen and attempt and not pending_changes(_root_of(skill), self._trust.marks):
                break
            seen = now
            if attempt:
                time.sleep(_RETRY_DELAY_S * attempt)
        assert failure is not None  # noqa: S101 - every iteration sets it
        raise failure

    def _lock_error(
        self, skill: Skill, entry: LockEntry | None, found: TreeDigest
    ) -> SatchelError | None:
        if skill.source == "builtin":
            return None
        if entry is None:
            return Refused(
                Message(
                    "The skill `{name}` is not in a lockfile, and the setting `trust` is `locked`",
                    name=skill.name,
                ),
                Message("Import a skill from its source, which locks it, or change the setting"),
            )
        files = _locked_files(entry, skill)
        if files == found.files:
            return None
        if pending_changes(_root_of(skill), self._trust.marks).get(skill.head.id) == found.digest:
            return None
        differing = _differing_files(files, found.files)
        shown = [f"`{path}`" for path in differing[:_MAX_FILES_SHOWN]]
        shown += ["…"] if len(differing) > _MAX_FILES_SHOWN else []
        return Changed(
            Message(
                "The skill `{name}` is not what was locked; these files differ: {files}",
                name=skill.name,
                files=shown,
            ),
            Message(
                "See what changed with `satchel verify {name}`. Yours? Run "
                "`satchel verify --accept {name}`. Not yours? Run `satchel install --frozen`",
                name=skill.reference,
            ),
            files=differing,
        )

    def _check_scan(self, skill: Skill, verified: VerifiedFolder) -> None:
        digest = verified.tree.digest
        if skill.source == "builtin" or self._trust.accepts(digest):
            return
        report = self.scan(skill, verified)
        if report.verdict == "blocked":
            raise _blocked_error(skill, report)

    def scan(
        self,
        skill: Skill,
        verified: VerifiedFolder | None = None,
        found: dict[str, str] | None = None,
        scanner: Callable[[VerifiedFolder], ScanReport | None] | None = None,
    ) -> ScanReport:
        """Scan a skill, unless its content was scanned before, and record the verdict.

        Args:
            skill: The skill.
            verified: Its files, if they were hashed already.
            found: Collects verdicts of many skills for one call of `record_verdicts`.
            scanner: Does the work of `scan_verified`.

        Raises:
            SatchelError: it cannot be read.
        """
        if verified is None:
            try:
                entry = None
                with suppress(LockBroken):  # the skill is refused; its content can be scanned
                    entry = self._entry(skill)
                verified = self._hash(skill, entry, clean=False)
            except OSError as exc:
                raise _unreadable_error(skill, exc) from exc
        digest = verified.tree.digest
        report = self.scans.report(digest)
        if report is None:
            report = (scanner or scan_verified)(verified)
            if report is None:
                raise changed_error(skill)
            self.scans.remember(digest, report)
        rows = {} if found is None else found
        rows[skill.base_dir] = digest if report.verdict == "blocked" else ""
        if found is None:
            self.record_verdicts(rows)
        return report

    def record_verdicts(self, found: Mapping[str, str]) -> None:
        """Record scan results: a skill's folder -> the digest of its blocked content."""
        with suppress(SatchelError):  # not saved: the skill is scanned and refused again
            self._trust.block(found)

    def blocks(self, skill: Skill, digest: str) -> bool:
        """Whether a skill still has a blocked content that was not accepted."""
        if self._trust.accepts(digest):
            return False
        try:
            if skill.origin.remote:
                return self._supply(skill).digest(skill) == digest
            return self._hash(skill, self._entry(skill), clean=False).tree.digest == digest
        except (OSError, SatchelError):
            return True

    def is_accepted(self, skill: Skill) -> bool:
        """Whether the user accepted the risk of a skill's present content.

        Raises:
            SatchelError: it cannot be read.
        """
        return self._trust.accepts(self.digest(skill))

    def pins(self, skill: Skill) -> bool:
        """Whether a skill equals its lock entry, or ships with Satchel."""
        try:
            if skill.source != "builtin" and self._entry(skill) is None:
                return False  # without hashing
            self._verify(skill, clean=False)
        except SatchelError:
            return False
        return True

    def modified(self, skill: Skill, verified: VerifiedFolder | None = None) -> tuple[str, ...]:
        """The files of an installed skill that differ from the lockfile; empty without an entry.

        Args:
            skill: The skill.
            verified: Its files, if they were hashed already.

        Raises:
            LockBroken: its lockfile is damaged.
        """
        if skill.origin.remote:
            return ()
        entry = self._entry(skill)
        if entry is None:
            return ()
        try:
            found = (verified or self._hash(skill, entry, clean=False)).tree
        except (OSError, SatchelError):
            return (skill.head.file,)
        files = _locked_files(entry, skill)
        return () if files == found.files else tuple(_differing_files(files, found.files))

    def place(self, skill: Skill) -> LockedSource | None:
        """The source of an installed skill; None without an entry in the lockfile.

        Raises:
            LockBroken: its lockfile is damaged.
        """
        entry = None if skill.origin.remote else self._entry(skill)
        return entry.place if entry is not None else None

    def digest(self, skill: Skill) -> str:
        """The digest of a skill's present content.

        Raises:
            SatchelError: it cannot be read.
        """
        if skill.origin.remote:
            return self._supply(skill).digest(skill)
        try:
            return self._hash(skill, self._entry(skill), clean=False).tree.digest
        except OSError as exc:
            raise _unreadable_error(skill, exc) from exc

    def is_locked(self, skill: Skill) -> bool:
        """Whether a skill, or the skill around it, has a lock entry.

        Raises:
            LockBroken: its lockfile is damaged.
        """
        return not skill.origin.remote and self._entry(skill) is not None

    def is_own(self, skill: Skill) -> bool:
        """Whether the user made a skill: created here or in the user's folder, not installed."""
        theirs = skill.source in ("global", "builtin") or self._trust.is_authored(skill.base_dir)
        return theirs and not self.is_locked(skill)

    def grants_tools(self, skill: Skill, digest: str) -> bool:
        """Whether `allowed-tools` of a skill counts without a further approval.

        It does for the user's own skills, for those of a folder that is trusted without a question
        (in Python: the folder that was given), and for a content that the user granted. A skill
        that was installed from elsewhere needs the grant in every folder.

        Args:
            skill: The skill.
            digest: The digest of its content.
        """
        if skill.origin.remote:
            return False
        place = self._places.get(skill.origin)
        is_own = place is None or place.trusted is True or self._trust.is_authored(skill.base_dir)
        try:
            return (is_own and not self.is_locked(skill)) or self._trust.has_tool_grant(
                skill.base_dir, digest
            )
        except LockBroken:
            return False

    def _supply(self, skill: Skill) -> ServedSkills:
        supply = self._supplies.get(skill.origin.root)
        if supply is None:
            raise NotFound(
                Message("There is no skill `{name}`", name=skill.name),
                Message("Run `{command}`", command="satchel mcp list"),
            )
        return supply

    def _hash(self, skill: Skill, entry: LockEntry | None, *, clean: bool) -> VerifiedFolder:
        """Hash a skill's folder if it changed."""
        began = time.time_ns()
        path, only = skill.base_dir, _own_names(skill)
        rows = list_stamps(path, only)
        kept = self._verified.get(path)
        if kept is not None and kept.rows == rows:
            return kept
        # A content that is about to be used is hashed by this process.
        if not clean and (known := self.scans.tree_of(path, rows)) is not None:
            return VerifiedFolder(path, os.path.realpath(path), only, known, rows)
        tree = FolderTree(path, only=only)
        whole, real = hash_tree(tree), os.path.realpath(path)
        listed: Mapping[str, str] = _locked_files(entry, skill) if entry is not None else {}
        left = [one for one in whole.files if one not in listed and generated(one, real)]
        caches = [one for one in left if _is_cache(one)]
        if clean and caches:
            self._delete_caches(skill, real, caches)
            rows = list_stamps(path, only)
        fresh = VerifiedFolder(path, real, only, _without_files(whole, left), rows)
        if is_settled(rows, began) and (clean or not caches):  # a later change is detectable
            self._cached_files += len(rows)
            if self._cached_files > _MAX_CACHED_FILES:
                self._verified.clear()
                self._cached_files = len(rows)
            self._verified[path] = fresh
            if not left:
                self.scans.remember_tree(path, rows, fresh.tree)
        return fresh

    def _delete_caches(self, skill: Skill, real: str, caches: list[str]) -> None:
        """Delete bytecode caches, which Python would run instead of the checked files.

        Raises:
            Changed: it cannot be deleted.
        """
        try:
            for path in caches:
                _unlink_beneath(real, path)
            for path in {os.path.dirname(path) for path in caches}:
                with suppress(OSError):  # not empty
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
                Message("Remove it"),
            ) from exc
        self._trace.record("cleaned", (skill.name,), ref=skill.ref, files=len(caches))

    # --- reading --------------------------------------------------------------------------

    def read(self, skill: Skill) -> SkillDocument:
        """Check a skill and return its document, parsed from the checked bytes.

        Raises:
            SatchelError: as `check`, or it cannot be read.
        """
        return self.document(skill, self.check(skill))

    def inspect(self, skill: Skill) -> SkillDocument:
        """Return a skill's document for review, whether trusted or not.

        Raises:
            SatchelError: it cannot be read, or differs from what its server listed.
        """
        return self._supply(skill).document(skill) if skill.origin.remote else skill.read()

    def document(self, skill: Skill, verified: VerifiedFolder) -> SkillDocument:
        """Return a skill's document after a check.

        Raises:
            Changed: the file differs from the checked one.
            Blocked: it is a served skill, and the scan blocks it.
        """
        if skill.origin.remote:
            supply = self._supply(skill)
            self.check_served(skill, skill.head.file, supply.fetch_verified(skill, skill.head.file))
            return supply.document(skill)
        return skill.read(_verifier(skill, verified))

    def check_served(self, skill: Skill, path: str, data: bytes) -> None:
        """Scan one file of a served skill after fetching it.

        Raises:
            Blocked: the scan blocks it, and the user did not accept the risk.
        """
        found = hash_tree(MemoryTree({path: data}))
        mark = self._supply(skill).digest(skill)
        if self._trust.accepts(mark):
            return
        report = self.scans.scan(found.digest, MemoryTree({path: data}))
        if report.verdict == "blocked":
            with suppress(SatchelError):
                self._trust.block({skill.base_dir: mark})
            raise _blocked_error(skill, report)

    # --- locks ----------------------------------------------------------------------------

    def lock_problem(self, path: str, *, deep: bool = False) -> Problem | None:
        """The problem of a damaged lockfile; a large one is read once, and again when `deep`."""
        stamp = _stamp(path)
        if not stamp:
            return None
        known = f"lock {path} {stamp}" if stamp[2] > _MAX_QUICK_LOCK_BYTES and not deep else ""
        if known and self.scans.knows(known):
            return None
        try:
            self._lock_at(path)
        except LockBroken as exc:
            return Problem("lock-broken", path, values={"reason": exc.why, "fix": exc.hint})
        if known and time.time_ns() - stamp[1] >= RACY_NS:
            self.scans.add(known)
        return None

    def _entry(self, skill: Skill) -> LockEntry | None:
        """The lock entry of a skill, or of the skill around it."""
        lock, skill_id = self._lock(skill.origin), skill.head.id
        while lock and skill_id:
            entry = lock.get(skill_id)
            if entry is not None:
                return entry
            skill_id = skill_id.rpartition("/")[0]
        return None

    def _lock(self, origin: SkillOrigin) -> Lock:
        place = self._places.get(origin)
        return self._lock_at(place.lock) if place is not None and place.lock else _NO_LOCK

    def _lock_at(self, path: str) -> Lock:
        stamp = _stamp(path)
        if not stamp:
            return _NO_LOCK
        known = self._locks.get(path)
        if known is None or known[0] != stamp:
            try:
                found = read_lock(path)
            except LockBroken as exc:
                found = (exc.message, exc.hint)
            if known is not None and known[1] == found:
                found = known[1]
            young = time.time_ns() - stamp[1] < RACY_NS
            known = self._locks[path] = (() if young else stamp, found)
        lock = known[1]
        if isinstance(lock, tuple):
            raise LockBroken(*lock)
        return lock


def _root_of(skill: Skill) -> str:
    return os.path.dirname(skill.origin.root)


def scan_verified(verified: VerifiedFolder) -> ScanReport | None:
    """Scan a folder; None when it changed since it was hashed."""
    tree = _VerifiedTree(verified)
    from satchel.security import scan_tree

    report = scan_tree(tree)
    return None if tree.differs else report


def tree_of(skill: Skill) -> FolderTree:
    """The files of a skill that are scanned, and so may be copied, signed or sent.

    Raises:
        AccessDenied: a link in it leads elsewhere.
        SkillBroken: it is no skill's folder, or too large.
        Refused: it is a served skill.
        OSError: it cannot be read.
    """
    return FolderTree(local_folder(skill), only=_own_names(skill))


def _own_names(skill: Skill) -> frozenset[str] | None:
    """A skill at the root of a project is its file and its own folders, not the whole project."""
    return None if skill.head.id else OWN_FOLDERS | {_SIGNATURE, skill.head.file}


def _locked_files(entry: LockEntry, skill: Skill) -> Mapping[str, str]:
    """The locked files of a skill, whose folder may lie inside that of a locked skill."""
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
        info = os.lstat(path)  # links are not followed
    except OSError:
        return ()
    return (info.st_mtime_ns, info.st_ctime_ns, info.st_size, info.st_ino)


def generated(path: str, root: str = "") -> bool:
    """Whether an unlisted file is a bytecode cache or the metadata of macOS.

    Bytecode caches are recognised by their path. The file of macOS is recognised by name and first
    bytes, so never without `root`.

    Args:
        path: Relative to the skill's folder, with `/`.
        root: That folder.
    """
    if path.rpartition("/")[2] != _DESKTOP_FILE:
        return _is_cache(path) and (not root or _is_file(root, path))
    if not root or not _is_file(root, path):
        return False
    try:
        descriptor = open_beneath(root, path)
    except (OSError, SatchelError):
        return False
    try:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode) or info.st_size > _MAX_DESKTOP_FILE_BYTES:
            return False
        return os.read(descriptor, 16).startswith(_DESKTOP_MAGIC)
    except OSError:
        return False
    finally:
        os.close(descriptor)


def _is_cache(path: str) -> bool:
    """Whether a path is a bytecode file, or a temporary one while it is written."""
    folder, _, name = path.rpartition("/")
    stem, mark, rest = name.rpartition(".pyc")
    fits = bool(stem and mark) and (not rest or (rest[0] == "." and rest[1:].isdecimal()))
    return fits and folder.rpartition("/")[2] == "__pycache__"


def _is_file(root: str, path: str) -> bool:
    try:
        return stat.S_ISREG(os.lstat(os.path.join(root, path)).st_mode)
    except OSError:
        return False


def _without_files(whole: TreeDigest, left_out: Iterable[str]) -> TreeDigest:
    gone = frozenset(left_out)
    if not gone:
        return whole
    files = {path: mark for path, mark in whole.files.items() if path not in gone}
    return TreeDigest(digest_of(files), files)


def _unlink_beneath(root: str, path: str) -> None:
    """Delete a file below a folder, without following links out of it."""
    folder, name = os.path.split(path)
    if os.unlink not in os.supports_dir_fd:
        os.unlink(os.path.join(root, path))
        return
    descriptor = open_beneath(root, folder or ".")
    try:
        os.unlink(name, dir_fd=descriptor)
    finally:
        os.close(descriptor)


def _differing_files(one: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    return sorted(path for path in {*one, *other} if one.get(path) != other.get(path))


def _blocked_error(skill: Skill, report: ScanReport) -> Blocked:
    rules = [f"`{one}`" for one in dict.fromkeys(
        found.rule for found in report.findings if found.severity == "block"
    )]  # fmt: skip
    return Blocked(
        Message("The scan blocks the skill `{name}`: {rules}", name=skill.name, rules=rules),
        Message(
            "Read the findings with `satchel scan {name}`. To use it anyway: "
            "`satchel trust {name} --accept-risk WHY`",
            name=skill.reference,
        ),
    )


def _unreadable_error(skill: Skill, exc: OSError | SatchelError) -> SatchelError:
    if isinstance(exc, FileNotFoundError) and not os.path.exists(skill.path):
        return NotFound(
            Message("There is no `{path}`", path=skill.path),
            Message("Run `{command}`", command="satchel list"),
        )
    if isinstance(exc, (Changed, LockBroken)):
        return exc
    return Refused(
        Message(
            "The skill `{name}` cannot be checked: {reason}", name=skill.name, reason=_reason(exc)
        ),
        Message("Check the permissions" if isinstance(exc, PermissionError) else "Try again"),
    )


def _reason(exc: OSError | SatchelError) -> str:
    return exc.message if isinstance(exc, SatchelError) else exc.strerror or str(exc)


def _verifier(skill: Skill, verified: VerifiedFolder) -> Callable[[bytes], None]:
    """A function that compares bytes of the skill's own file with its digest."""
    from hashlib import sha256

    path = skill.path[len(verified.path) :].lstrip(os.sep).replace(os.sep, "/")

    def verify(data: bytes) -> None:
        if not verified.has(path, sha256(data).hexdigest()):
            raise changed_error(skill)

    return verify
