"""What the user approved: which skills as they were, and which folders whatever they hold.

One file in the state folder, readable by people. An approval of a skill is bound to the digests of
its content, newest first: several, so that an update can be approved before it is put in place,
and an undo asks nothing. An approval of a project, and of what the user makes here, is bound to the
folder. Paths are real paths, so a link cannot borrow the trust of what it replaced.

A look at the disk cannot read every file of 100,000 skills. It compares the *head*, which is all
that reaches a model before a skill is loaded; the content is compared at the load (`seal.py`).
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast, get_args

from satchel._fs import RACY_NS, is_inside, locked, write_atomic
from satchel._language import Message
from satchel.errors import InternalError, Refused, SettingsError
from satchel.library.marks import key_path

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from satchel.skill.model import Head
    from satchel.skill.tree import Seal

Kind = Literal["project", "skill", "own"]
"""`project`: all that is below the folder, now and later. `skill`: one skill as it was approved.
`own`: one skill whatever it will hold, since its author edits it all day."""
Verdict = Literal["yes", "no", "changed", "unbound"]
"""`changed`: approved once, and not as it is. `unbound`: approved before approvals were bound to
content."""
_KINDS = get_args(Kind)
_VERSION = 2
_KEPT = 8
"""Approved contents of one skill that are remembered."""


class Approval(NamedTuple):
    """What was approved of one folder."""

    kind: Kind
    digests: tuple[str, ...] = ()
    """Tree digests, newest first."""
    heads: tuple[str, ...] = ()
    """Marks of the heads that those contents have."""
    since: str = ""
    """When it was last approved."""
    made: tuple[str, ...] = ()
    """Those that the user made: it is `own` again when an undo brings one of them back."""


Approvals = dict[str, Approval]
"""By folder. Never changed in place: another state is another table."""
_NOTHING: Approvals = {}


class TrustBook:
    """The approvals of one user."""

    def __init__(self, path: str | None) -> None:
        """Keep approvals in the file `path`; None keeps them in memory."""
        self._path = path
        self._folders: Approvals = _NOTHING
        self._stamp: tuple[int, int, int] | None = None
        self._projects: tuple[Approvals, tuple[str, ...]] = (_NOTHING, ())
        self._files: dict[str, Mapping[str, str]] = {}
        """What approved contents consist of, where nothing is kept on disk."""

    @property
    def marks(self) -> str:
        """Where the same user's key is, by which Satchel knows what it wrote itself."""
        return key_path(os.path.dirname(self._path) if self._path is not None else "")

    def folders(self) -> Approvals:
        """Approved folder -> its approval; the same object while nothing changed.

        Raises:
            SettingsError: the file is damaged. A damaged file is never a yes.
        """
        if self._path is None:
            return self._folders
        try:
            info = os.stat(self._path)
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            self._folders, self._stamp = _NOTHING, None  # none to be had: nothing is approved
            return _NOTHING
        except OSError as exc:  # a disk that fails for a moment is no book without pages
            raise SettingsError(
                Message(
                    "`{path}` cannot be read: {reason}", path=self._path, reason=exc.strerror or exc
                ),
                "Look after the disk, then run the command again",
            ) from exc
        stamp = (info.st_ctime_ns, info.st_size, info.st_ino)
        if stamp != self._stamp:
            import time

            found = _read(self._path)
            if found != self._folders:
                self._folders = found
            # What was written this moment may be written again within one tick of the clock.
            young = time.time_ns() - info.st_ctime_ns < RACY_NS
            self._stamp = None if young else stamp
        return self._folders

    def projects(self) -> tuple[str, ...]:
        """The folders that are approved with all they will hold."""
        folders = self.folders()
        if self._projects[0] is not folders:
            found = tuple(folder for folder, row in folders.items() if row.kind == "project")
            self._projects = (folders, found)
        return self._projects[1]

    def approve(self, folder: str, kind: Kind, seal: Seal | None = None, head: str = "") -> None:
        """Trust a project, a skill as it is, or a skill of the user's own.

        Args:
            folder: The project's or the skill's folder.
            kind: What the approval is bound to.
            seal: What the skill consists of. A `skill` is not approved without it.
            head: `head_mark` of that content.

        Raises:
            Refused: the approval cannot be kept.
        """
        self.approve_all([(folder, kind, seal, head)])

    def approve_all(
        self, rows: Iterable[tuple[str, Kind, Seal | None, str]], *, made: bool = False
    ) -> None:
        """Approve several at once.

        Args:
            rows: Folder, kind, seal and head as in `approve`.
            made: What they hold is the user's own work, and that is remembered.

        Raises:
            Refused: the approvals cannot be kept.
        """
        new = [(os.path.realpath(row[0]), *row[1:]) for row in rows]
        if any(kind == "skill" and seal is None for _, kind, seal, _ in new):
            raise InternalError("A skill was to be approved without its content")

        def add(folders: Approvals) -> None:
            for folder, wanted, seal, head in new:
                old = folders.get(folder, Approval(wanted))
                # The folder of a project may be a skill too: approving that takes nothing away.
                kind: Kind = "project" if old.kind == "project" else wanted
                digest = seal.digest if seal is not None else ""
                folders[folder] = Approval(
                    kind,
                    _newest(digest, old.digests),
                    _newest(head, old.heads),
                    _now(),
                    _newest(digest if made else "", old.made),
                )

        self._change(add)
        for _, _, seal, _ in new:
            if seal is not None and self._path is not None:
                keep_files(self._path, seal)
            elif seal is not None:
                self._files[seal.digest] = seal.files

    def files_of(self, digest: str) -> Mapping[str, str] | None:
        """Path -> mark of the content that was approved under this digest; None when not known."""
        if self._path is None:
            return self._files.get(digest)
        return kept_files(self._path, digest)

    def revoke(self, folder: str) -> bool:
        """Trust `folder` and what is below it no more; True when something was revoked."""
        real = os.path.realpath(folder)
        before = self.folders()

        def remove(folders: Approvals) -> None:
            for one in [one for one in folders if is_inside(one, real)]:
                del folders[one]

        self._change(remove)
        return before != self.folders()

    def _change(self, change: Callable[[Approvals], None]) -> None:
        if self._path is None:
            folders = dict(self._folders)
            change(folders)
            self._folders = folders
            return
        try:
            with locked(self._path + ".lock"):
                self._stamp = None
                with suppress(FileNotFoundError):
                    os.stat(self._path)  # one that is hidden for the moment must not be replaced
                folders = dict(self.folders())
                change(folders)
                _save(folders, self._path)
                self._stamp = None
                drop_others(self._path, {one for row in folders.values() for one in row.digests})
        except OSError as exc:
            raise Refused(
                f"Trust cannot be kept in `{self._path}`: {exc.strerror or exc}",
                "Make the folder writable, or set `SATCHEL_HOME` to one that is",
            ) from exc

    def binding(self, real: str) -> Approval | None:
        """What binds the skill in this real folder; None when its folder alone is trusted.

        A skill that nobody approved is bound to an approval without content: nothing equals it.
        """
        row = self.folders().get(real) or Approval("skill")
        if row.kind != "skill" or any(is_inside(real, one) for one in self.projects()):
            return None
        return row

    def judge(self, root: str, links: Mapping[str, str]) -> Judge:
        """How the skills below `root` stand; `links` are followed ones, target -> id."""
        return Judge(os.path.realpath(root), self.folders(), self.projects(), links)


class Judge:
    """Trust for the skills of one location, cheap to ask a hundred thousand times."""

    def __init__(
        self,
        root: str,
        folders: Mapping[str, Approval],
        projects: tuple[str, ...],
        links: Mapping[str, str],
    ) -> None:
        self._root = root
        self._projects = projects
        self._folders = folders
        self._links = {via: target for target, via in links.items()}
        self._all = any(is_inside(root, folder) for folder in projects)
        self.everything = self._all and not links
        """The whole location is approved."""
        self.nothing = not folders
        """Nobody approved anything anywhere."""

    def verdict(self, skill_id: str, head: Head) -> Verdict:
        """Whether a skill may be offered."""
        real = self._real(skill_id) if self._links else ""
        if real:
            if any(is_inside(real, one) for one in self._projects):
                return "yes"
        elif self._all:
            return "yes"
        else:
            real = f"{self._root}/{skill_id}" if skill_id else self._root
        row = self._folders.get(real if os.sep == "/" else real.replace("/", os.sep))
        if row is None:
            return "no"
        if row.kind != "skill":
            return "yes"
        if not row.digests:
            return "unbound"
        return "yes" if head_mark(head) in row.heads else "changed"

    def _real(self, skill_id: str) -> str:
        """Where a skill behind a link really lies, or nothing when it is behind none."""
        head = skill_id
        while head:
            target = self._links.get(head)
            if target is not None:
                return target + skill_id[len(head) :]
            head = head.rpartition("/")[0]
        return ""


def head_mark(head: Head) -> str:
    """A short mark of all that reaches a model before a skill is loaded.

    The same in every process, for the same name, description and listed fields.
    """
    try:
        from _blake2 import blake2b  # `hashlib` brings OpenSSL along, which takes 4 ms
    except ImportError:
        from hashlib import blake2b

    parts = [head.name, head.description]
    extra = head.extra
    if extra:
        for key in sorted(extra):
            value = extra[key]
            parts.append(key)
            if isinstance(value, (tuple, list)):
                items = cast("tuple[Any, ...]", value)
                parts += (str(len(items)), *map(str, items))
            else:
                parts.append(str(value))
    data = [part.encode("utf-8", "surrogatepass") for part in parts]
    text = b"".join([b"%d:" % len(part) + part for part in data])
    return blake2b(text, digest_size=16).hexdigest()


def _newest(value: str, known: tuple[str, ...]) -> tuple[str, ...]:
    """`value` before what is known, each once."""
    if not value:
        return known
    return (value, *(one for one in known if one != value))[:_KEPT]


def _now() -> str:
    import time

    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _read(path: str) -> Approvals:
    import json

    try:
        with open(path, encoding="utf-8") as stream:
            table = json.load(stream)
        version = table["version"]
        found = {str(folder): _approval(row) for folder, row in table["folders"].items()}
        reason = f"its version is {version!r}" if version not in (1, _VERSION) else ""
    except (OSError, ValueError, KeyError, AttributeError, TypeError, RecursionError) as exc:
        reason = str(exc)
        found = _NOTHING
    if reason:
        raise SettingsError(
            Message("The trust file `{path}` cannot be read: {reason}", path=path, reason=reason),
            Message("Correct it, or delete it and trust again"),
        )
    return found


def _approval(row: dict[str, Any]) -> Approval:
    kind = row["kind"]
    if kind not in _KINDS:
        raise ValueError(f"there is no approval of kind {kind!r}")
    digests, heads, made = (_texts(row.get(key, [])) for key in ("digests", "heads", "made"))
    return Approval(kind, digests, heads, str(row.get("since", "")), made)


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):  # pyright: ignore[reportUnknownVariableType]
        raise TypeError("digests, heads and made are lists of texts")
    return tuple(cast("list[str]", value))


def _save(folders: Approvals, path: str) -> None:
    import json

    table: dict[str, dict[str, Any]] = {}
    for folder, row in folders.items():
        entry: dict[str, Any] = {"kind": row.kind, "since": row.since}
        if row.digests:
            entry["digests"] = row.digests
        if row.heads:
            entry["heads"] = row.heads
        if row.made:
            entry["made"] = row.made
        table[folder] = entry
    # ASCII only: folder names that are not UTF-8 come back as they were.
    text = json.dumps({"version": _VERSION, "folders": table}, indent=2)
    write_atomic(path, (text + "\n").encode(), private=True)


_FOLDER = "approved"
_KIND = "sha256:"
_DIGITS = 64


def keep_files(book: str, seal: Seal) -> None:
    """Keep what an approved content consists of, beside the trust file `book`.

    What cannot be kept is not: the approval holds all the same.
    """
    import json

    from satchel.skill.tree import digest_of

    path = _path(book, seal.digest)
    # The mark of a served skill is made otherwise, so its table could not be told from another.
    if not path or digest_of(seal.files) != seal.digest or kept_files(book, seal.digest):
        return
    with suppress(OSError):
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        # ASCII only: names that are not UTF-8 come back as they were.
        with open(path, "w", encoding="ascii") as stream:
            json.dump(seal.files, stream)


def kept_files(book: str, digest: str) -> Mapping[str, str] | None:
    """Path -> mark of an approved content; None when it is not known."""
    import json

    from satchel.skill.tree import digest_of

    try:
        with open(_path(book, digest), encoding="ascii") as stream:
            table: Any = json.load(stream)
        files = {str(path): str(mark) for path, mark in table.items()}
        return files if digest_of(files) == digest else None
    except (OSError, ValueError, AttributeError, RecursionError):
        return None


def drop_others(book: str, digests: Collection[str]) -> None:
    """Delete the tables of contents that are approved no more."""
    folder = os.path.join(os.path.dirname(book), _FOLDER)
    with suppress(OSError):
        for name in os.listdir(folder):
            if f"{_KIND}{name}" not in digests:
                os.unlink(os.path.join(folder, name))


def _path(book: str, digest: str) -> str:
    """Where the table of a digest is; nowhere when it is no digest of ours."""
    name = digest.removeprefix(_KIND)
    fits = len(name) == _DIGITS and name.isalnum() and name.isascii()
    return os.path.join(os.path.dirname(book), _FOLDER, name) if fits else ""
