"""Skills that somebody supplies file by file: which are there, and how do their files get here?

A look at the library needs the list alone. A file is fetched when somebody asks for it, and never
used unless size and digest are the listed ones: from the network, from the cache, every time.
"""

from __future__ import annotations

import os
import unicodedata
from contextlib import suppress
from typing import TYPE_CHECKING

from satchel._fs import open_beneath, write_atomic
from satchel._language import Message
from satchel.errors import Changed, NotFound, SatchelError
from satchel.library.locations import OWN
from satchel.library.survey import Sealed
from satchel.skill.load import head_of_fields, parse_document
from satchel.skill.tree import Seal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from satchel.library.locations import Listing, Location, Served, ServedFile, Supplier
    from satchel.library.walk import Shelf
    from satchel.skill.model import Document, Head, Skill
    from satchel.skill.problems import Problem

_REGULAR = 0o100600
_LOOK_ALIKE = str.maketrans(
    "авеіјкмнорсѕтухһԁԛԝӏαεικνορτυχ０１",
    "abeijkmhopcstyxhdqwlaeikvoptux01",
)
"""Letters of other alphabets that are read as Latin ones."""


class Supply:
    """The skills of one supplier, as a location of a library."""

    def __init__(self, location: Location, blobs: str) -> None:
        """Take a location that has a supplier.

        Args:
            location: Its `path` is the base of its skills' paths; nothing lies there.
            blobs: The folder where contents are kept by their digest.
        """
        assert location.supplier is not None  # noqa: S101 - whoever calls looked
        self.location = location
        self.supplier: Supplier = location.supplier
        self._blobs = blobs
        self._listing: Listing | None = None
        self._known: dict[str, tuple[Served, Head]] = {}
        self._sealed: dict[str, tuple[Served, Sealed]] = {}

    # --- looking --------------------------------------------------------------------------

    def is_new(self) -> bool:
        """Whether there is another list than the one that was taken last."""
        return self.supplier.listing() is not self._listing

    def fill(self, shelf: Shelf) -> bool:
        """Put what is listed on a shelf; False when nothing changed. No file is read for that."""
        listing = self.supplier.listing()
        if listing is self._listing:
            return False
        # Others look meanwhile: they have the old list until the new one is whole.
        before = self._known
        known: dict[str, tuple[Served, Head]] = {}
        notes = list(listing.problems)
        for skill_id, served in listing.served.items():
            old = before.get(skill_id)
            if old is not None and old[0].mark == served.mark and old[0].name == served.name:
                known[skill_id] = old  # the very same head: nobody has to look again
            else:
                head, problems = _head(served)
                if head is None:
                    notes += [one.at(served.uri) for one in problems]
                    continue
                known[skill_id] = (served, head)
        self._known = known
        shelf.heads = {skill_id: head for skill_id, (_, head) in known.items()}
        shelf.notes = {"": notes} if notes else {}
        self._listing = listing
        return True

    def files_of(self, skill: Skill) -> Mapping[str, ServedFile]:
        """The files of a skill as listed, fetched or not."""
        return self._entry(skill).files

    def mark(self, skill: Skill) -> str:
        """The digest of all that is listed of a skill."""
        return self._entry(skill).mark

    def _entry(self, skill: Skill) -> Served:
        known = self._known.get(skill.head.id)
        if known is None:
            raise NotFound(
                Message(
                    "The server `{server}` lists the skill `{name}` no more",
                    server=self.supplier.label,
                    name=skill.name,
                ),
                "Run `satchel list` to see what there is",
            )
        if known[1] is not skill.head and known[1] != skill.head:
            raise _changed(skill)
        return known[0]

    # --- checking -------------------------------------------------------------------------

    def check(self, skill: Skill) -> Sealed:
        """What a skill must consist of, by the list.

        Raises:
            Changed: the list has another skill under this id.
            NotFound: it is listed no more.
        """
        served = self._entry(skill)
        kept = self._sealed.get(served.id)
        if kept is None or kept[0] is not served:
            rows = [
                (file.path, int(file.digest[:15], 16), 0, file.size, 0, _REGULAR)
                for file in sorted(served.files.values())
            ]
            folder = skill.base_dir
            sealed = Sealed(folder, os.path.realpath(folder), None, _seal(served), rows)
            kept = self._sealed[served.id] = (served, sealed)
        return kept[1]

    # --- reading --------------------------------------------------------------------------

    def document(self, skill: Skill) -> Document:
        """A skill's own file, described as it was listed.

        Raises:
            Changed: it is not what was listed.
            SatchelError: it cannot be had.
        """
        served = self._entry(skill)
        data = self.bring(skill, OWN)
        document = parse_document(data, str(served.frontmatter["name"]), OWN, (0, 0, len(data)))
        head = document.head
        listed = skill.head
        if head is None or (head.description, head.extra) != (listed.description, listed.extra):
            self.supplier.suspect()
            raise Changed(
                f"The frontmatter of the skill `{skill.name}` is not what the server "
                f"`{self.supplier.label}` listed",
                Message("Do not use it. Tell whoever runs the server"),
            )
        return document._replace(
            problems=tuple(problem.at(skill.path) for problem in document.problems),
            head=skill.head if document.head is not None else None,
        )

    def bring(self, skill: Skill, path: str) -> bytes:
        """A file of a skill, from the cache or the supplier; always compared with the list.

        Raises:
            Changed: it is not listed, or not what was listed.
            SatchelError: it cannot be had.
        """
        served = self._entry(skill)
        file = served.files.get(path)
        if file is None:
            raise Changed(
                Message(
                    "`{file}` is not among the files that the server `{server}` listed "
                    "for the skill `{name}`",
                    file=path,
                    server=self.supplier.label,
                    name=skill.name,
                ),
                Message("Read one of the listed files"),
            )
        data = _right(_read(self._blobs, file.digest, file.size), file)
        cached = os.path.join(self._blobs, file.digest)
        # A cache that cannot be written is no cache; the time of a file is that of its last use.
        if data is not None:
            with suppress(OSError):
                os.utime(cached)
            return data
        data = self.supplier.fetch(served, file)
        self._compare(skill, file, data)
        with suppress(OSError):
            write_atomic(cached, data, private=True, durable=False)
        return data

    def _compare(self, skill: Skill, file: ServedFile, data: bytes) -> None:
        if _right(data, file) is not None:
            return
        self.supplier.suspect()
        what = (
            f"it has {len(data)} bytes, and {file.size} were listed"
            if len(data) != file.size
            else "its digest is another"
        )
        raise Changed(
            Message(
                "`{file}` of the skill `{name}` is not what the server `{server}` listed: {reason}",
                file=file.path,
                name=skill.name,
                server=self.supplier.label,
                reason=what,
            ),
            Message("It may have changed there: look again with `satchel list`"),
        )


def likeness(name: str) -> str:
    """What a name looks like: two names that people take for each other are alike."""
    if not name.isascii():
        plain = unicodedata.normalize("NFKD", name).casefold()
        name = "".join(sign for sign in plain if not unicodedata.combining(sign))
        name = name.translate(_LOOK_ALIKE)
    return name.lower().replace("_", "-").replace(" ", "-")


def _head(served: Served) -> tuple[Head | None, tuple[Problem, ...]]:
    own = served.files[OWN]
    folder = str(served.frontmatter["name"])
    head, problems = head_of_fields(served.frontmatter, folder, own.size)
    if head is None:
        return None, problems
    # In place of a file's times: whoever compares those sees every change of what was listed.
    digits = served.mark.removeprefix("sha256:")
    stamp = {"mtime_ns": int(digits[:12], 16), "ctime_ns": int(digits[12:24], 16)}
    return head._replace(id=served.id, name=served.name, **stamp), problems


def _seal(served: Served) -> Seal:
    files = {path: f"sha256:{file.digest}" for path, file in served.files.items()}
    return Seal(served.mark, files)


def _changed(skill: Skill) -> Changed:
    return Changed(
        Message(
            "The server `{server}` lists another content for the skill `{name}` now",
            name=skill.name,
            server=skill.origin.label,
        ),
        Message("Look again with `satchel list`"),
    )


def _right(data: bytes | None, file: ServedFile) -> bytes | None:
    """The bytes if they are the listed ones."""
    if data is None or len(data) != file.size:
        return None
    from hashlib import sha256

    return data if sha256(data).hexdigest() == file.digest else None


def _read(folder: str, path: str, size: int) -> bytes | None:
    """A kept file, or one byte more than it should have; None when there is none to be read."""
    try:
        descriptor = open_beneath(folder, path)
    except (OSError, SatchelError):
        return None
    try:
        with os.fdopen(descriptor, "rb") as stream:
            return stream.read(size + 1)
    except OSError:
        return None
