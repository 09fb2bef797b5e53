"""Skills of a server as a location of a library.

A scan needs only the server's list. A file is fetched on demand, and its size and digest are
compared with the list at every use, also when it comes from the cache.
"""

from __future__ import annotations

import os
import unicodedata
from contextlib import suppress
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

from satchel._fs import open_beneath, write_atomic
from satchel._unicode import TO_LATIN
from satchel.errors import Changed, NotFound, SatchelError
from satchel.i18n import Message
from satchel.library.fingerprint import FileStamps, VerifiedFolder, changed_error
from satchel.library.supplier import SKILL_FILE
from satchel.skill.file_tree import TreeDigest
from satchel.skill.reader import header_from_fields, parse_document

if TYPE_CHECKING:
    from collections.abc import Mapping

    from satchel.library.location_state import LocationState
    from satchel.library.locations import Location
    from satchel.library.supplier import ServedFile, ServedListing, ServedSkill, Supplier
    from satchel.skill.document import SkillDocument, SkillHeader
    from satchel.skill.model import Skill
    from satchel.skill.problems import Problem

_REGULAR_FILE_MODE = 0o100600


class _ListedSkill(NamedTuple):
    """A skill of the list, and the header that was made for it."""

    served: ServedSkill
    header: SkillHeader


class ServedSkills:
    """The skills of one server."""

    def __init__(self, location: Location, blob_folder: str) -> None:
        """Wrap a location that has a supplier.

        Args:
            location: Its `path` is the base of its skills' paths, and does not exist.
            blob_folder: The cache folder of contents, by digest; empty without one.
        """
        assert location.supplier is not None  # noqa: S101 - checked by the caller
        self.location = location
        self.supplier: Supplier = location.supplier
        self._blob_folder = blob_folder
        self._listing: ServedListing | None = None
        self._listed_skills: dict[str, _ListedSkill] = {}
        self._verified: dict[str, tuple[ServedSkill, VerifiedFolder]] = {}

    # --- listing --------------------------------------------------------------------------

    def fill(self, state: LocationState) -> bool:
        """Put the listed skills into the state of a location; False when nothing changed."""
        listing = self.supplier.listing()
        if listing is self._listing:
            return False
        # Concurrent readers use the old list until the new one is complete.
        listed_skills: dict[str, _ListedSkill] = {}
        problems = list(listing.problems)
        for skill_id, served in listing.served.items():
            old = self._listed_skills.get(skill_id)
            if old is not None and (old.served.digest, old.served.name) == (
                served.digest,
                served.name,
            ):
                listed_skills[skill_id] = old  # the same header object, so that caches stay valid
                continue
            header, header_problems = _make_header(served)
            if header is None:
                problems += [problem.at(served.uri) for problem in header_problems]
            else:
                listed_skills[skill_id] = _ListedSkill(served, header)
        self._listed_skills = listed_skills
        state.headers = {skill_id: listed.header for skill_id, listed in listed_skills.items()}
        state.folder_problems = {"": problems} if problems else {}
        self._listing = listing
        return True

    def find_id(self, uri: str) -> str:
        """The id of the skill at an address; empty when there is none.

        A skill that is not listed is requested by its address.
        """
        request: Any = getattr(self.supplier, "request_skill", None)
        listed = {skill.served.uri: skill_id for skill_id, skill in self._listed_skills.items()}
        if uri not in listed and request is not None:
            request(uri)
            served_skills = self.supplier.listing().served
            listed = {served.uri: skill_id for skill_id, served in served_skills.items()}
        return listed.get(uri, "")

    def files_of(self, skill: Skill) -> Mapping[str, ServedFile]:
        """The listed files of a skill, fetched or not."""
        return self._find_served(skill).files

    def digest(self, skill: Skill) -> str:
        """The digest over everything that is listed for a skill."""
        return self._find_served(skill).digest

    def _find_served(self, skill: Skill) -> ServedSkill:
        """The listed skill of a library's skill.

        Raises:
            Changed: the list has another skill under this id.
            NotFound: it is not listed any more.
        """
        listed = self._listed_skills.get(skill.head.id)
        if listed is None:
            raise NotFound(
                Message("There is no skill `{name}`", name=skill.name),
                "Run `satchel list` to see what there is",
            )
        if listed.header is not skill.head and listed.header != skill.head:
            raise changed_error(skill)
        return listed.served

    # --- checking -------------------------------------------------------------------------

    def check(self, skill: Skill) -> VerifiedFolder:
        """Return the listed files of a skill.

        Raises:
            Changed: the list has another skill under this id.
            NotFound: it is not listed any more.
        """
        served = self._find_served(skill)
        cached = self._verified.get(served.id)
        if cached is None or cached[0] is not served:
            survey = [
                FileStamps(
                    file.path,
                    mtime_ns=int(file.digest[:15], 16),
                    ctime_ns=0,
                    size=file.size,
                    inode=0,
                    mode=_REGULAR_FILE_MODE,
                )
                for file in sorted(served.files.values())
            ]
            folder = skill.base_dir
            verified = VerifiedFolder(
                path=folder,
                real_path=os.path.realpath(folder),
                top_names=None,
                tree=_listed_digest(served),
                survey=survey,
            )
            cached = self._verified[served.id] = (served, verified)
        return cached[1]

    # --- reading --------------------------------------------------------------------------

    def document(self, skill: Skill) -> SkillDocument:
        """Fetch and parse a skill's SKILL.md.

        Raises:
            Changed: it is not what was listed.
            SatchelError: it cannot be fetched.
        """
        served = self._find_served(skill)
        data = self.fetch_verified(skill, SKILL_FILE)
        document = parse_document(
            data, str(served.frontmatter["name"]), SKILL_FILE, (0, 0, len(data))
        )
        header, listed = document.head, skill.head
        if header is None or (header.description, header.extra) != (
            listed.description,
            listed.extra,
        ):
            self.supplier.mark_stale()
            raise Changed(
                f"The frontmatter of the skill `{skill.name}` is not what the server "
                f"`{self.supplier.label}` listed",
                Message("Report it to the operator of the server"),
            )
        return document._replace(
            problems=tuple(problem.at(skill.path) for problem in document.problems),
            head=skill.head,
        )

    def fetch_verified(self, skill: Skill, path: str) -> bytes:
        """Return a file from the cache or the supplier, compared with the list.

        Raises:
            Changed: it is not listed, or not what was listed.
            SatchelError: it cannot be fetched.
        """
        file = self._find_served(skill).files.get(path)
        if file is None:
            raise Changed(Message("There is no `{path}`", path=path), Message("Check the path"))
        if not self._blob_folder:
            data = self.supplier.fetch(file)
            self._verify(file, data)
            return data
        data = _read_blob(self._blob_folder, file.digest, file.size)
        blob_path = os.path.join(self._blob_folder, file.digest)
        # The cache is optional; a file's modification time is the time of its last use.
        if data is not None and _is_as_listed(data, file):
            with suppress(OSError):
                os.utime(blob_path)
            return data
        data = self.supplier.fetch(file)
        self._verify(file, data)
        with suppress(OSError):
            write_atomic(blob_path, data, private=True, durable=False)
        return data

    def _verify(self, file: ServedFile, data: bytes) -> None:
        if _is_as_listed(data, file):
            return
        self.supplier.mark_stale()
        reason = (
            f"it has {len(data)} bytes, and {file.size} were listed"
            if len(data) != file.size
            else "its digest is another"
        )
        raise Changed(
            Message(
                "`{file}` is not what the server `{server}` listed: {reason}",
                file=file.path,
                server=self.supplier.label,
                reason=reason,
            ),
            Message("Try again"),
        )


def confusable_key(name: str) -> str:
    """Normalise a name so that names that look alike are equal."""
    if not name.isascii():
        decomposed = unicodedata.normalize("NFKD", name).casefold()
        name = "".join(sign for sign in decomposed if not unicodedata.combining(sign))
        name = name.translate(TO_LATIN)
    return name.lower().replace("_", "-").replace(" ", "-")


def _make_header(served: ServedSkill) -> tuple[SkillHeader | None, tuple[Problem, ...]]:
    """The header of a listed skill; None and its problems when it is no valid skill."""
    file = served.files[SKILL_FILE]
    folder = str(served.frontmatter["name"])
    header, problems = header_from_fields(served.frontmatter, folder, file.size)
    if header is None:
        return None, problems
    # Stamps derived from the digest: code that compares stamps detects every change.
    digits = served.digest.removeprefix("sha256:")
    stamp = {"mtime_ns": int(digits[:12], 16), "ctime_ns": int(digits[12:24], 16)}
    return header._replace(id=served.id, name=served.name, **stamp), problems


def _listed_digest(served: ServedSkill) -> TreeDigest:
    files = {path: f"sha256:{file.digest}" for path, file in served.files.items()}
    return TreeDigest(served.digest, files)


def _is_as_listed(data: bytes, file: ServedFile) -> bool:
    return len(data) == file.size and sha256(data).hexdigest() == file.digest


def _read_blob(folder: str, path: str, size: int) -> bytes | None:
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
