"""Records of the files of a skill's folder, for review before it is trusted.

Nothing outside the folder is read: links that lead out are listed and not followed, and what is
neither a file nor a folder is listed and not opened. Files of a server are fetched when they are
opened, and compared with the server's listing.
"""

from __future__ import annotations

import json
import os
import stat
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from satchel._fs import is_inside, open_beneath
from satchel.errors import AccessDenied, NotFound, Refused
from satchel.i18n import say
from satchel.library.integrity import tree_of
from satchel.library.location_walk import OWN_FOLDERS
from satchel.presentation.skill_lookup import broken_at, find_skill
from satchel.presentation.skills import row_key
from satchel.skill.file_tree import VERSION_CONTROL, kind_of_mode
from satchel.store.disk_errors import disk_errors_as_refusal
from satchel.store.export import write_archive
from satchel.tools.file_reply import decode_text
from satchel.tools.framing import encodable, printable, size_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from satchel.satchel import Satchel
    from satchel.skill.file_tree import Tree
    from satchel.skill.model import Skill

MAX_FILES_SHOWN = 400
_MAX_FILES_COUNTED = 20_000
"""A larger folder is not walked to its end."""
_MAX_DEPTH = 32
MAX_FILE_BYTES = 200_000
_PICTURES = {
    ".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG", ".gif": "GIF", ".webp": "WebP", ".bmp": "BMP",
    ".ico": "ICO", ".avif": "AVIF", ".tif": "TIFF", ".tiff": "TIFF",
}  # fmt: skip

Kind = Literal["file", "program", "link", "odd", "folder"]


class FileEntry(NamedTuple):
    """A file or folder of a skill."""

    name: str
    path: str
    """Relative to the skill's folder, with `/`; empty when it cannot be opened here."""
    kind: Kind
    size: str
    """Empty for a folder."""
    note: str
    inside: tuple[FileEntry, ...] = ()


class FileTreeShown(NamedTuple):
    """A skill's files as a tree."""

    entries: tuple[FileEntry, ...]
    total: int
    size: str
    hidden_count: int
    failed: str = ""
    """Why the files cannot be listed."""


class FileContent(NamedTuple):
    """One file, as far as it is shown."""

    path: str
    display_path: str
    kind: Literal["text", "picture", "binary"]
    text: str = ""
    data: bytes = b""
    note: str = ""


class _FileOwner(NamedTuple):
    """The folder that holds the files."""

    root: str
    only: frozenset[str] | None
    """Names in `root` that belong to the skill; None for all."""
    main_file: str
    skill: Skill | None


def list_files(satchel: Satchel, ref: str) -> FileTreeShown:
    """List the files of a skill, or the file that is broken.

    Raises:
        NotFound: there is no such skill.
    """
    try:
        return _as_tree(walk_files(satchel, ref))
    except OSError as exc:
        return FileTreeShown((), 0, "", 0, exc.strerror or str(exc))


def walk_files(satchel: Satchel, ref: str) -> Iterable[tuple[str, int, int, str]]:
    """Return path, size, mode and link target of each file of a skill.

    Raises:
        NotFound: there is no such skill.
    """
    owner = _owner_of(satchel, ref)
    supply = satchel.library.served_skills_of(owner.skill) if owner.skill is not None else None
    if supply is not None and owner.skill is not None:
        served = supply.files_of(owner.skill).values()
        return [(file.path, file.size, 0o100644, "") for file in served]
    return _walk(owner)


def read_file(satchel: Satchel, ref: str, path: str) -> FileContent:
    """Read a file of a skill, as far as it is shown.

    Args:
        satchel: The project's skills.
        ref: The skill.
        path: Relative to the skill's folder; empty for the skill's own file.

    Raises:
        NotFound: there is no such skill or file.
        AccessDenied: the path leads out of the skill.
        Refused: it is not a file, or cannot be read.
        Changed: it differs from its server's listing.
    """
    owner = _owner_of(satchel, ref)
    path = path or owner.main_file
    supply = satchel.library.served_skills_of(owner.skill) if owner.skill is not None else None
    if supply is not None and owner.skill is not None:
        data = supply.fetch_verified(owner.skill, path)
        return _content(path, data[:MAX_FILE_BYTES], len(data))
    data, size = _read(owner, path, MAX_FILE_BYTES)
    return _content(path, data, size)


def read_bytes(satchel: Satchel, ref: str, path: str, max_bytes: int) -> bytes:
    """Read a whole file of a skill on disk, to be edited.

    Raises:
        NotFound: there is no such skill or file.
        AccessDenied: the path leads out of the skill.
        Refused: it is not a file, cannot be read, or is larger than `max_bytes`.
    """
    data, size = _read(_owner_of(satchel, ref), path, max_bytes)
    if size > max_bytes:
        raise _unread(printable(path)[:300], say("larger than {size}", size=size_of(max_bytes)))
    return data


def _owner_of(satchel: Satchel, ref: str) -> _FileOwner:
    item = broken_at(satchel, ref)
    if item is not None:
        folder, file = os.path.split(item.problem.path)
        return _FileOwner(folder, frozenset((file,)), file, None)
    skill = find_skill(satchel, ref)
    main_file = skill.head.file
    # A skill at the top of a project is its file and its own folders, not the whole project.
    only = None if skill.head.id else OWN_FOLDERS | {main_file}
    return _FileOwner(skill.base_dir, only, main_file, skill)


def _read(owner: _FileOwner, path: str, max_bytes: int) -> tuple[bytes, int]:
    display_path = printable(path)[:300]
    outside = AccessDenied(
        say("`{path}` is not part of this skill", path=display_path), say("Open one of its files")
    )
    steps = path.split("/")
    if ".." in steps or not _contains(owner, steps):
        raise outside
    try:
        descriptor = open_beneath(owner.root, path)
    except AccessDenied as exc:
        raise outside from exc
    except FileNotFoundError as exc:
        raise NotFound(
            say("There is no file `{path}` in this skill", path=display_path),
            say("Open one of its files"),
        ) from exc
    except OSError as exc:
        raise _unread(display_path, exc.strerror or str(exc)) from exc
    try:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode):
            raise Refused(
                say("`{path}` is {what}", path=display_path, what=say(kind_of_mode(info.st_mode))),
                say("Open one of its files"),
            )
        if not _is_part(owner, path):
            raise outside
        data = b""
        while len(data) < max_bytes and (part := os.read(descriptor, max_bytes - len(data))):
            data += part
        return data, max(info.st_size, len(data))
    except OSError as exc:
        raise _unread(display_path, exc.strerror or str(exc)) from exc
    finally:
        os.close(descriptor)


def _is_part(owner: _FileOwner, path: str) -> bool:
    """Whether a link within the folder leads to a part of the skill."""
    base = os.path.realpath(owner.root)
    real = os.path.realpath(os.path.join(owner.root, path))
    if not is_inside(real, base):
        return False
    return _contains(owner, real[len(base) :].strip(os.sep).split(os.sep))


def _contains(owner: _FileOwner, steps: list[str]) -> bool:
    """Whether the parts of a path lead to a file that may be shown."""
    if not VERSION_CONTROL.isdisjoint(step.casefold() for step in steps[:-1]):
        return False
    return owner.only is None or steps[0] in owner.only


def _unread(display_path: str, reason: str) -> Refused:
    return Refused(
        say("`{path}` cannot be read: {reason}", path=display_path, reason=reason),
        say("Check the permissions"),
    )


def _content(path: str, data: bytes, size: int) -> FileContent:
    display_path = printable(path)
    cut = size > len(data)
    picture = _PICTURES.get(os.path.splitext(path)[1].lower())
    if picture is not None:
        note = say("{kind} picture, {size}", kind=picture, size=size_of(size))
        return FileContent(path, display_path, "picture", note=note)
    text, fallback = decode_text(data, is_cut=cut)
    if text is None:
        note = say("Binary file, {size}", size=size_of(size))
        return FileContent(path, display_path, "binary", note=note)
    note = ""
    if cut:
        note = say("First {shown} of {size}", shown=size_of(len(data)), size=size_of(size))
    elif fallback:
        note = say("Not valid UTF-8")
    return FileContent(path, display_path, "text", encodable(text), data, note)


# --- the tree -----------------------------------------------------------------------------


def _walk(owner: _FileOwner) -> Iterable[tuple[str, int, int, str]]:
    """Yield path, size, mode and link target of every file."""
    todo = [("", 0)]
    file_count = 0
    while todo:
        folder, depth = todo.pop()
        folder_path = os.path.join(owner.root, folder) if folder else owner.root
        with os.scandir(folder_path) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                if not folder and owner.only is not None and entry.name not in owner.only:
                    continue
                path = f"{folder}/{entry.name}" if folder else entry.name
                info = entry.stat(follow_symlinks=False)
                if stat.S_ISDIR(info.st_mode):
                    if entry.name not in VERSION_CONTROL and depth < _MAX_DEPTH:
                        todo.append((path, depth + 1))
                    continue
                file_count += 1
                if file_count > _MAX_FILES_COUNTED:
                    return
                target = os.readlink(entry.path) if stat.S_ISLNK(info.st_mode) else ""
                yield path, info.st_size, info.st_mode, target


class _Folder(NamedTuple):
    folders: dict[str, _Folder]
    files: list[FileEntry]


def _as_tree(files: Iterable[tuple[str, int, int, str]]) -> FileTreeShown:
    top = _Folder({}, [])
    total = size = 0
    for path, length, mode, target in files:
        total += 1
        size += length if stat.S_ISREG(mode) else 0
        if total > MAX_FILES_SHOWN:
            continue
        *folders, name = path.split("/")
        if len(folders) > _MAX_DEPTH:  # a server's listing may be deeper than any disk
            folders = [*folders[:_MAX_DEPTH], "…"]
        parent = top
        for step in folders:
            parent = parent.folders.setdefault(step, _Folder({}, []))
        parent.files.append(_entry(name, path, length, mode, target))
    return FileTreeShown(_entries(top), total, size_of(size), max(0, total - MAX_FILES_SHOWN))


def _entry(name: str, path: str, length: int, mode: int, target: str) -> FileEntry:
    display_name = printable(name)
    openable = path if encodable(path) == path else ""
    if stat.S_ISLNK(mode):
        return FileEntry(display_name, openable, "link", "", f"→ {printable(target)}")
    if not stat.S_ISREG(mode):
        return FileEntry(display_name, "", "odd", "", say(kind_of_mode(mode)))
    if mode & 0o100:
        return FileEntry(display_name, openable, "program", size_of(length), say("executable"))
    return FileEntry(display_name, openable, "file", size_of(length), "")


def _entries(folder: _Folder) -> tuple[FileEntry, ...]:
    """Files first, then folders; SKILL.md on top."""
    files = sorted(folder.files, key=lambda file: (file.name.upper() != "SKILL.MD", file.name))
    below = (
        FileEntry(printable(name), "", "folder", "", "", _entries(inside))
        for name, inside in sorted(folder.folders.items())
    )
    return (*files, *below)


def field_text(value: Any) -> str:
    """Return a frontmatter value as text."""
    if isinstance(value, str):
        return encodable(value)
    try:
        return encodable(json.dumps(value, ensure_ascii=False, default=str))
    except (TypeError, ValueError, RecursionError):
        return "…"  # a key that is not text, or a circular value


# --- export -------------------------------------------------------------------------------


class _JoinedTree:
    """Several skills as one tree, each in a folder of its name."""

    def __init__(self, skills: Sequence[Skill]) -> None:
        self._trees: dict[str, Tree] = {}
        for skill in skills:
            name = os.path.basename(skill.base_dir)
            self._trees[name if name not in self._trees else row_key(skill.ref)] = tree_of(skill)
        self.files = tuple(
            file._replace(path=f"{name}/{file.path}")
            for name, tree in self._trees.items()
            for file in tree.files
        )

    def chunks(self, path: str) -> Iterator[bytes]:
        """Yield the content of a file."""
        name, _, inside = path.partition("/")
        return self._trees[name].chunks(inside)


def export_skills(skills: Sequence[Skill], folder: str) -> tuple[str, str]:
    """Write an archive with a folder per skill; returns its path, and a name for it.

    Raises:
        SatchelError: a skill cannot be read, or contains a file that no archive may contain.
    """
    name = f"{os.path.basename(skills[0].base_dir)}.zip" if len(skills) == 1 else "skills.zip"
    path = os.path.join(folder, "skills.zip")
    with disk_errors_as_refusal(name):
        write_archive(_JoinedTree(skills), path)
    return path, name
