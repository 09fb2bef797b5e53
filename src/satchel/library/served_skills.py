"""Skills of a server as a location of a library.

A scan needs only the server's list. A file is fetched on demand, and its size and digest are
compared with the list at every use, also when it comes from the cache.
"""

from __future__ import annotations

import os
import unicodedata
from contextlib import suppress
from typing import TYPE_CHECKING

from satchel._fs import open_beneath, write_atomic
from satchel._unicode import TO_LATIN
from satchel.errors import Changed, NotFound, SatchelError
from satchel.i18n import Message
from satchel.library.fingerprint import VerifiedFolder, changed_error
from satchel.library.supplier import SKILL_FILE
from satchel.skill.file_tree import TreeDigest
from satchel.skill.reader import header_from_fields, parse_document

if TYPE_CHECKING:
    from collections.abc import Mapping

    from satchel.library.locations import Location
    from satchel.library.scanner import LocationState
    from satchel.library.supplier import ServedFile, ServedListing, ServedSkill, Supplier
    from satchel.skill.document import SkillDocument, SkillHeader
    from satchel.skill.model import Skill
    from satchel.skill.problems import Problem

_REGULAR_FILE_MODE = 0o100600


class ServedSkills:
    """The skills of one server."""

    def __init__(self, location: Location, blobs: str) -> None:
        """Wrap a location that has a supplier.

        Args:
            location: Its `path` is the base of its skills' paths, and does not exist.
            blobs: The cache folder of contents, by digest.
        """
        assert location.supplier is not None  # noqa: S101 - checked by the caller
        self.location = location
        self.supplier: Supplier = location.supplier
        self._blobs = blobs
        self._listing: ServedListing | None = None
        self._known: dict[str, tuple[ServedSkill, SkillHeader]] = {}
        self._verified: dict[str, tuple[ServedSkill, VerifiedFolder]] = {}

    # --- looking --------------------------------------------------------------------------

    def fill(self, state: LocationState) -> bool:
        """Put the listed skills into the state of a location; False when nothing changed."""
        listing = self.supplier.listing()
        if listing is self._listing:
            return False
        # Concurrent readers use the old list until the new one is complete.
        before = self._known
        known: dict[str, tuple[ServedSkill, SkillHeader]] = {}
        notes = list(listing.problems)
        for skill_id, served in listing.served.items():
            old = before.get(skill_id)
            if old is not None and old[0].digest == served.digest and old[0].name == served.name:
                known[skill_id] = old  # the same header object, so that caches stay valid
            else:
                head, problems = _header_of(served)
                if head is None:
                    notes += [one.at(served.uri) for one in problems]
                    continue
                known[skill_id] = (served, head)
        self._known = known
        state.heads = {skill_id: head for skill_id, (_, head) in known.items()}
        state.notes = {"": notes} if notes else {}
        self._listing = listing
        return True

    def files_of(self, skill: Skill) -> Mapping[str, ServedFile]:
        """The listed files of a skill, fetched or not."""
        return self._entry(skill).files

    def digest(self, skill: Skill) -> str:
        """The digest over everything that is listed for a skill."""
        return self._entry(skill).digest

    def _entry(self, skill: Skill) -> ServedSkill:
        known = self._known.get(skill.head.id)
        if known is None:
            raise NotFound(
                Message("There is no skill `{name}`", name=skill.name),
                "Run `satchel list` to see what there is",
            )
        if known[1] is not skill.head and known[1] != skill.head:
            raise changed_error(skill)
        return known[0]

    # --- checking -------------------------------------------------------------------------

    def check(self, skill: Skill) -> VerifiedFolder:
        """Return the listed files of a skill.

        Raises:
            Changed: the list has another skill under this id.
            NotFound: it is not listed any more.
        """
        served = self._entry(skill)
        kept = self._verified.get(served.id)
        if kept is None or kept[0] is not served:
            rows = [
                (file.path, int(file.digest[:15], 16), 0, file.size, 0, _REGULAR_FILE_MODE)
                for file in sorted(served.files.values())
            ]
            folder = skill.base_dir
            verified = VerifiedFolder(
                folder, os.path.realpath(folder), None, _listed_digest(served), rows
            )
            kept = self._verified[served.id] = (served, verified)
        return kept[1]

    # --- reading --------------------------------------------------------------------------

    def document(self, skill: Skill) -> SkillDocument:
        """Fetch and parse a skill's SKILL.md.

        Raises:
            Changed: it is not what was listed.
            SatchelError: it cannot be fetched.
        """
        served = self._entry(skill)
        data = self.fetch_verified(skill, SKILL_FILE)
        document = parse_document(
            data, str(served.frontmatter["name"]), SKILL_FILE, (0, 0, len(data))
        )
        head = document.head
        listed = skill.head
        if head is None or (head.description, head.extra) != (listed.description, listed.extra):
            self.supplier.mark_stale()
            raise Changed(
                f"The frontmatter of the skill `{skill.name}` is not what the server "
                f"`{self.supplier.label}` listed",
                Message("Report it to the operator of the server"),
            )
        return document._replace(
            problems=tuple(problem.at(skill.path) for problem in document.problems),
            head=skill.head if document.head is not None else None,
        )

    def fetch_verified(self, skill: Skill, path: str) -> bytes:
        """Return a file from the cache or the supplier, compared with the list.

        Raises:
            Changed: it is not listed, or not what was listed.
            SatchelError: it cannot be fetched.
        """
        file = self._entry(skill).files.get(path)
        if file is None:
            raise Changed(Message("There is no `{path}`", path=path), Message("Check the path"))
        data = _if_listed(_read_cached(self._blobs, file.digest, file.size), file)
        cached = os.path.join(self._blobs, file.digest)
        # The cache is optional; a file's modification time is the time of its last use.
        if data is not None:
            with suppress(OSError):
                os.utime(cached)
            return data
        data = self.supplier.fetch(file)
        self._verify(file, data)
        with suppress(OSError):
            write_atomic(cached, data, private=True, durable=False)
        return data

    def _verify(self, file: ServedFile, data: bytes) -> None:
        if _if_listed(data, file) is not None:
            return
        self.supplier.mark_stale()
        what = (
            f"it has {len(data)} bytes, and {file.size} were listed"
            if len(data) != file.size
            else "its digest is another"
        )
        raise Changed(
            Message(
                "`{file}` is not what the server `{server}` listed: {reason}",
                file=file.path,
                server=self.supplier.label,
                reason=what,
            ),
            Message("Try again"),
        )


def confusable_key(name: str) -> str:
    """Normalise a name so that names that look alike are equal."""
    if not name.isascii():
        plain = unicodedata.normalize("NFKD", name).casefold()
        name = "".join(sign for sign in plain if not unicodedata.combining(sign))
        name = name.translate(TO_LATIN)
    return name.lower().replace("_", "-").replace(" ", "-")


def _header_of(served: ServedSkill) -> tuple[SkillHeader | None, tuple[Problem, ...]]:
    own = served.files[SKILL_FILE]
    folder = str(served.frontmatter["name"])
    head, problems = header_from_fields(served.frontmatter, folder, own.size)
    if head is None:
        return None, problems
    # Stamps derived from the digest: code that compares stamps detects every change.
    digits = served.digest.removeprefix("sha256:")
    stamp = {"mtime_ns": int(digits[:12], 16), "ctime_ns": int(digits[12:24], 16)}
    return head._replace(id=served.id, name=served.name, **stamp), problems


def _listed_digest(served: ServedSkill) -> TreeDigest:
    files = {path: f"sha256:{file.digest}" for path, file in served.files.items()}
    return TreeDigest(served.digest, files)


def _if_listed(data: bytes | None, file: ServedFile) -> bytes | None:
    if data is None or len(data) != file.size:
        return None
    from hashlib import sha256

    return data if sha256(data).hexdigest() == file.digest else None


def _read_cached(folder: str, path: str, size: int) -> bytes | None:
    """Read a cached file, with one byte more than listed to detect a larger one."""
    try:
        descriptor = open_beneath(folder, path)
    except (OSError, SatchelError):
        return None
    try:
        with os.fdopen(descriptor, "rb") as stream:
            return stream.read(size + 1)
    except OSError:
        return None
