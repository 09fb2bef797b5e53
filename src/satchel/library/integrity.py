"""Verifies that a skill may be used, before any of its content reaches a model.

A skill may be used when its folder is trusted and the scan does not block its content; with the
setting `trust = "locked"` it must also equal its entry in the lockfile. Files are hashed once; an
equal survey of the folder shows that nothing changed since. Code that passes on bytes of a file
compares those bytes with the file's digest, so that no change between check and read goes
unnoticed.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from satchel._fs import is_really_inside
from satchel.errors import Blocked, Changed, LockBroken, NotFound, Refused, SatchelError
from satchel.i18n import Message
from satchel.library.fingerprint import VerifiedFolder, changed_error, is_settled, list_stamps
from satchel.library.generated_files import (
    delete_generated_files,
    find_generated_files,
    is_bytecode_cache,
)
from satchel.library.location_walk import OWN_FOLDERS
from satchel.library.locations import local_folder
from satchel.library.locked_skills import LockedSkills, locked_files
from satchel.library.lockfile import pending_changes
from satchel.library.verdict_cache import VerdictCache
from satchel.skill.file_tree import FolderTree, MemoryTree, hash_tree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from satchel.library.locations import Location
    from satchel.library.lockfile import LockedSource, LockEntry
    from satchel.library.served_skills import ServedSkills
    from satchel.library.trust_store import TrustStore
    from satchel.security.report import ScanReport
    from satchel.skill.document import SkillDocument
    from satchel.skill.file_tree import TreeDigest
    from satchel.skill.model import Skill, SkillOrigin
    from satchel.skill.problems import Problem
    from satchel.trace import Trace

__all__ = ["IntegrityChecker", "VerifiedFolder", "scan_verified", "tree_of"]

_MAX_ATTEMPTS = 6
_RETRY_DELAY_S = 0.01
_MAX_FILES_SHOWN = 3
_MAX_CACHED_FILES = 100_000
_UNREADABLE = "unreadable"
"""The digest of a folder that cannot be hashed, for the record of blocked skills: its skill is not
offered until it can be."""


class _VerifiedTree(FolderTree):
    """The files of a verified folder; content is compared with its digest when read."""

    def __init__(self, verified: VerifiedFolder) -> None:
        super().__init__(verified.path, top_names=verified.top_names)
        verified_files = verified.tree.files
        self.files = tuple(file for file in self.files if file.path in verified_files)
        self._verified = verified
        self.has_changed = len(self.files) != len(verified_files)
        """Whether a file was removed or changed since."""

    def chunks(self, path: str) -> Iterator[bytes]:
        """Yield the whole content of a file."""
        data = b""
        try:
            data = b"".join(super().chunks(path))
        finally:  # also when it cannot be read
            self.has_changed |= not self._verified.has_content(path, data)
        yield data


class IntegrityChecker:
    """Checks the skills of one library."""

    def __init__(
        self,
        locations: Iterable[Location],
        trust: TrustStore,
        trace: Trace,
        *,
        served_skills: Mapping[str, ServedSkills] | None = None,
        scans: VerdictCache | None = None,
    ) -> None:
        """Create a checker.

        Args:
            locations: The locations of the skills.
            trust: Trusted folders and accepted risks.
            trace: Receives events.
            served_skills: The skills of each server by the path of its location.
            scans: Scans contents.
        """
        self._served_skills = served_skills or {}
        self.scans = scans or VerdictCache()
        self._locations_by_origin: dict[SkillOrigin, Location] = {}
        self.set_locations(locations)
        self._locked_skills = LockedSkills(self._locations_by_origin, self.scans)
        self._trust = trust
        self._trace = trace
        self._verified_by_path: dict[str, VerifiedFolder] = {}
        self._last_known: VerifiedFolder | None = None
        self._cached_file_count = 0
        self._screened_texts: set[str] = set()

    def set_locations(self, locations: Iterable[Location]) -> None:
        """Replace the locations: packages and plugins come and go."""
        self._locations_by_origin.clear()
        self._locations_by_origin.update((location.origin, location) for location in locations)

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
            return self._served(skill).check(skill)
        self._check_trust(skill)
        try:
            verified = self._verify(skill, clean=clean)
        except Refused:
            if not self._trust.locked:
                self._record_verdict(skill, _UNREADABLE, None)
            raise
        self._check_scan(skill, verified)
        return verified

    def screen(self, skills: Iterable[Skill]) -> bool:
        """Scan skills whose description alone is an attack: prompts have it before they are loaded.

        For folders that a person trusted, where skills come and change later.

        Args:
            skills: Offered skills.

        Returns:
            Whether one of them is blocked.
        """
        is_blocked = False
        for skill in skills:
            location = self._locations_by_origin.get(skill.origin)
            text = f"{skill.description}\n{skill.when_to_use}"
            if location is None or location.trusted is not None or text in self._screened_texts:
                continue
            from satchel.security import is_attack

            self._screened_texts.add(text)
            if is_attack(text):
                with suppress(SatchelError):
                    is_blocked |= self.scan(skill).verdict == "blocked"
        return is_blocked

    def _check_trust(self, skill: Skill) -> None:
        """Check the present real path: a link may have changed since the scan."""
        location = self._locations_by_origin.get(skill.origin)
        if location is not None and location.trusted_with:
            is_inside = is_really_inside(skill.base_dir, location.boundary)
            location = location._replace(trusted=location.trusted if is_inside else False)
        if location is None or location.trusted is True:
            return
        decision = location.trust_decision(skill.base_dir)
        if location.trusted is False or not self._trust.trusts(*decision):
            raise Refused(
                Message("The skill `{name}` is not trusted yet", name=skill.name),
                Message("Run `{command}`", command="satchel trust"),
            )

    def _verify(self, skill: Skill, *, clean: bool) -> VerifiedFolder:
        """Hash a skill; with the setting `trust = "locked"`, also compare it with the lockfile.

        A transaction may change the folder or the lockfile while they are read, so a difference is
        an error only when a second attempt reads the same and no change is pending.
        """
        previous_digest = ""
        error: SatchelError | None = None
        for attempt in range(_MAX_ATTEMPTS):
            entry = self._locked_skills.find_entry(skill)
            try:
                verified = self._hash(skill, entry, clean=clean)
            except (OSError, SatchelError) as exc:
                error, digest = _unreadable_error(skill, exc), ""
            else:
                tree, digest = verified.tree, verified.tree.digest
                error = self._find_lock_error(skill, entry, tree) if self._trust.locked else None
                if error is None:
                    return verified
            if attempt and digest == previous_digest and not self._read_pending_changes(skill):
                break
            previous_digest = digest
            if attempt:
                time.sleep(_RETRY_DELAY_S * attempt)
        assert error is not None  # noqa: S101 - every iteration sets it
        raise error

    def _read_pending_changes(self, skill: Skill) -> dict[str, str]:
        """The changes of a transaction in progress beside a skill: id -> the new digest."""
        return pending_changes(os.path.dirname(skill.origin.root), self._trust.key_path)

    def _find_lock_error(
        self, skill: Skill, entry: LockEntry | None, tree_digest: TreeDigest
    ) -> SatchelError | None:
        """The error for a skill that is not locked, or differs from its lock entry."""
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
        files = locked_files(entry, skill)
        if files == tree_digest.files:
            return None
        if self._read_pending_changes(skill).get(skill.head.id) == tree_digest.digest:
            return None
        differing_files = _find_differing_files(files, tree_digest.files)
        file_names = [f"`{path}`" for path in differing_files[:_MAX_FILES_SHOWN]]
        file_names += ["…"] if len(differing_files) > _MAX_FILES_SHOWN else []
        return Changed(
            Message(
                "The skill `{name}` is not what was locked; these files differ: {files}",
                name=skill.name,
                files=file_names,
            ),
            Message(
                "See what changed with `satchel verify {name}`. Yours? Run "
                "`satchel verify --accept {name}`. Not yours? Run `satchel install --frozen`",
                name=skill.reference,
            ),
            files=differing_files,
        )

    def _check_scan(self, skill: Skill, verified: VerifiedFolder) -> None:
        digest = verified.tree.digest
        if skill.source == "builtin" or self._trust.accepts(digest):
            return
        if reason := self.revocation(skill, digest):
            self._record_verdict(skill, digest, None)
            raise Blocked(
                Message(
                    "The hub revoked the skill `{name}`: {reason}", name=skill.name, reason=reason
                ),
                Message(
                    "Run `satchel update {name}` for a newer version, or remove it with "
                    "`satchel remove {name}`",
                    name=skill.reference,
                ),
            )
        report = self.scan(skill, verified)
        if report.verdict == "blocked":
            raise _blocked_error(skill, report)

    def revocation(self, skill: Skill, digest: str = "") -> str:
        """Why a hub revoked a skill, as far as is known here; empty when it did not.

        Args:
            skill: The skill.
            digest: The digest of its present content. What it was installed as counts too: edits
                of a revoked skill make no other skill of it.
        """
        reasons = self._trust.read().revoked
        if not reasons or skill.origin.remote:
            return ""
        entry = None
        with suppress(LockBroken):  # the skill is refused for that
            entry = self._locked_skills.find_entry(skill)
        digests = (digest, entry.tree, entry.upstream) if entry is not None else (digest,)
        return next((reasons[known] for known in digests if known in reasons), "")

    def scan(
        self,
        skill: Skill,
        verified: VerifiedFolder | None = None,
        verdicts: dict[str, str] | None = None,
        scanner: Callable[[VerifiedFolder], ScanReport | None] | None = None,
    ) -> ScanReport:
        """Scan a skill, unless its content was scanned before, and record the verdict.

        Args:
            skill: The skill.
            verified: Its files, if they were hashed already.
            verdicts: Collects verdicts of many skills for one call of `record_verdicts`.
            scanner: Does the work of `scan_verified`.

        Raises:
            SatchelError: it cannot be read.
        """
        if verified is None:
            try:
                entry = None
                with suppress(LockBroken):  # the skill is refused; its content can be scanned
                    entry = self._locked_skills.find_entry(skill)
                verified = self._hash(skill, entry, clean=False)
            except (OSError, SatchelError) as exc:
                self._record_verdict(skill, _UNREADABLE, verdicts)
                if isinstance(exc, OSError):
                    raise _unreadable_error(skill, exc) from exc
                raise
        digest = verified.tree.digest
        report = self.scans.report(digest)
        if report is None:
            report = (scanner or scan_verified)(verified)
            if report is None:
                raise changed_error(skill)
            self.scans.remember(digest, report)
        is_blocked = report.verdict == "blocked" or self.revocation(skill, digest)
        self._record_verdict(skill, digest if is_blocked else "", verdicts)
        return report

    def _record_verdict(self, skill: Skill, digest: str, verdicts: dict[str, str] | None) -> None:
        if verdicts is None:
            self.record_verdicts({skill.base_dir: digest})
        else:
            verdicts[skill.base_dir] = digest

    def record_verdicts(self, verdicts: Mapping[str, str]) -> None:
        """Record scan results: a skill's folder -> the digest of its blocked content."""
        with suppress(SatchelError):  # not saved: the skill is scanned and refused again
            self._trust.block(verdicts)

    def blocks(self, skill: Skill, digest: str) -> bool:
        """Whether a skill still has a blocked content that was not accepted."""
        if self._trust.accepts(digest):
            return False
        if self.revocation(skill):
            return True
        try:
            if skill.origin.remote:
                return self._served(skill).digest(skill) == digest
            return (
                self._hash(skill, self._locked_skills.find_entry(skill), clean=False).tree.digest
                == digest
            )
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
            if skill.source != "builtin" and self._locked_skills.find_entry(skill) is None:
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
        entry = self._locked_skills.find_entry(skill)
        if entry is None:
            return ()
        try:
            tree_digest = (verified or self._hash(skill, entry, clean=False)).tree
        except (OSError, SatchelError):
            return (skill.head.file,)
        return tuple(_find_differing_files(locked_files(entry, skill), tree_digest.files))

    def locked_source(self, skill: Skill) -> LockedSource | None:
        """The source of an installed skill; None without an entry in the lockfile.

        Raises:
            LockBroken: its lockfile is damaged.
        """
        entry = None if skill.origin.remote else self._locked_skills.find_entry(skill)
        return entry.place if entry is not None else None

    def digest(self, skill: Skill) -> str:
        """The digest of a skill's present content.

        Raises:
            SatchelError: it cannot be read.
        """
        if skill.origin.remote:
            return self._served(skill).digest(skill)
        try:
            return self._hash(skill, self._locked_skills.find_entry(skill), clean=False).tree.digest
        except OSError as exc:
            raise _unreadable_error(skill, exc) from exc

    def is_locked(self, skill: Skill) -> bool:
        """Whether a skill, or the skill around it, has a lock entry.

        Raises:
            LockBroken: its lockfile is damaged.
        """
        return not skill.origin.remote and self._locked_skills.find_entry(skill) is not None

    def is_own(self, skill: Skill) -> bool:
        """Whether the user made a skill: created here or in the user's folder, not installed."""
        in_own_folder = skill.source in ("global", "builtin")
        is_authored = in_own_folder or self._trust.is_authored(skill.base_dir)
        return is_authored and not self.is_locked(skill)

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
        location = self._locations_by_origin.get(skill.origin)
        is_trusted = location is None or (location.trusted is True and not location.trusted_with)
        is_own = is_trusted or self._trust.is_authored(skill.base_dir)
        try:
            if is_own and not self.is_locked(skill):
                return True
        except LockBroken:
            return False
        return self._trust.has_tool_grant(skill.base_dir, digest)

    def _served(self, skill: Skill) -> ServedSkills:
        served = self._served_skills.get(skill.origin.root)
        if served is None:
            raise NotFound(
                Message("There is no skill `{name}`", name=skill.name),
                Message("Run `{command}`", command="satchel mcp list"),
            )
        return served

    def _hash(self, skill: Skill, entry: LockEntry | None, *, clean: bool) -> VerifiedFolder:
        """Hash a skill's folder if it changed."""
        start_ns = time.time_ns()
        path, top_names = skill.base_dir, _top_names(skill)
        survey = list_stamps(path, top_names)
        cached = self._verified_by_path.get(path)
        # A content that is about to be used is hashed by this process.
        if cached is None and not clean:
            cached = self._last_known
        if cached is not None and cached.path == path and cached.survey == survey:
            return cached
        real_path = os.path.realpath(path)
        if not clean and (cached_tree := self.scans.tree_of(path, survey)) is not None:
            known = VerifiedFolder(path, real_path, top_names, cached_tree, survey)
            self._last_known = known  # a diagnosis asks several times in a row
            return known
        tree_digest = hash_tree(FolderTree(path, top_names=top_names))
        locked = locked_files(entry, skill) if entry else ()
        generated_files = find_generated_files(tree_digest.files, locked, real_path)
        bytecode_caches = list(filter(is_bytecode_cache, generated_files))
        if clean and bytecode_caches:
            self._delete_bytecode_caches(skill, real_path, bytecode_caches)
            survey = list_stamps(path, top_names)
        tree_digest = tree_digest.without(generated_files)
        verified = VerifiedFolder(path, real_path, top_names, tree_digest, survey)
        is_complete = clean or not bytecode_caches
        if is_complete and is_settled(survey, start_ns):  # a later change is detectable
            self._remember(verified)
            if not generated_files:
                self.scans.remember_tree(path, survey, tree_digest)
        return verified

    def _remember(self, verified: VerifiedFolder) -> None:
        """Cache a verified folder; all others go when there are too many files."""
        self._cached_file_count += len(verified.survey)
        if self._cached_file_count > _MAX_CACHED_FILES:
            self._verified_by_path.clear()
            self._cached_file_count = len(verified.survey)
        self._verified_by_path[verified.path] = verified

    def _delete_bytecode_caches(self, skill: Skill, root: str, paths: list[str]) -> None:
        """Delete bytecode caches, which Python would run instead of the checked files.

        Raises:
            Changed: one cannot be deleted.
        """
        try:
            delete_generated_files(root, paths)
        except (OSError, SatchelError) as exc:
            raise Changed(
                Message(
                    "The skill `{name}` has `{path}`, which was not checked and cannot be "
                    "deleted: {reason}",
                    name=skill.name,
                    path=paths[0],
                    reason=_reason(exc),
                ),
                Message("Remove it"),
            ) from exc
        self._trace.record("cleaned", (skill.name,), ref=skill.ref, files=len(paths))

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
        return self._served(skill).document(skill) if skill.origin.remote else skill.read()

    def document(self, skill: Skill, verified: VerifiedFolder) -> SkillDocument:
        """Return a skill's document after a check.

        Raises:
            Changed: the file differs from the checked one.
            Blocked: it is a served skill, and the scan blocks it.
        """
        if skill.origin.remote:
            served, file = self._served(skill), skill.head.file
            self.check_served(skill, file, served.fetch_verified(skill, file))
            return served.document(skill)
        return skill.read(_verifier(skill, verified))

    def check_served(self, skill: Skill, path: str, data: bytes) -> None:
        """Scan one file of a served skill after fetching it.

        Raises:
            Blocked: the scan blocks it, and the user did not accept the risk.
        """
        listed_digest = self._served(skill).digest(skill)
        if self._trust.accepts(listed_digest):
            return
        tree = MemoryTree({path: data})
        report = self.scans.scan(hash_tree(tree).digest, tree)
        if report.verdict == "blocked":
            with suppress(SatchelError):
                self._trust.block({skill.base_dir: listed_digest})
            raise _blocked_error(skill, report)

    # --- locks ----------------------------------------------------------------------------

    def lock_problem(self, path: str, *, deep: bool = False) -> Problem | None:
        """The problem of a damaged lockfile; a large one is read once, and again when `deep`."""
        return self._locked_skills.find_problem(path, deep=deep)


def scan_verified(verified: VerifiedFolder) -> ScanReport | None:
    """Scan a folder; None when it changed since it was hashed."""
    tree = _VerifiedTree(verified)
    from satchel.security import scan_tree

    report = scan_tree(tree)
    return None if tree.has_changed else report


def tree_of(skill: Skill) -> FolderTree:
    """The files of a skill that are scanned, and so may be copied, signed or sent.

    Raises:
        AccessDenied: a link in it leads elsewhere.
        SkillBroken: it is no skill's folder, or too large.
        Refused: it is a served skill.
        OSError: it cannot be read.
    """
    return FolderTree(local_folder(skill), top_names=_top_names(skill))


def _top_names(skill: Skill) -> frozenset[str] | None:
    """A skill at the root of a project is its file and its own folders, not the whole project."""
    return None if skill.head.id else OWN_FOLDERS | {skill.head.file}


def _find_differing_files(files: Mapping[str, str], other_files: Mapping[str, str]) -> list[str]:
    return sorted(
        path for path in {*files, *other_files} if files.get(path) != other_files.get(path)
    )


def _blocked_error(skill: Skill, report: ScanReport) -> Blocked:
    blocking = [finding.rule for finding in report.findings if finding.severity == "block"]
    rules = [f"`{rule}`" for rule in dict.fromkeys(blocking)]
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
    hint = exc.hint if isinstance(exc, SatchelError) else ""
    if not hint:
        hint = Message("Check the permissions" if isinstance(exc, PermissionError) else "Try again")
    return Refused(
        Message(
            "The skill `{name}` cannot be checked: {reason}", name=skill.name, reason=_reason(exc)
        ),
        hint,
    )


def _reason(exc: OSError | SatchelError) -> str:
    return exc.message if isinstance(exc, SatchelError) else exc.strerror or str(exc)


def _verifier(skill: Skill, verified: VerifiedFolder) -> Callable[[bytes], None]:
    """A function that compares bytes of the skill's own file with its digest."""
    path = skill.path[len(verified.path) :].lstrip(os.sep).replace(os.sep, "/")

    def verify(data: bytes) -> None:
        if not verified.has_content(path, data):
            raise changed_error(skill)

    return verify
