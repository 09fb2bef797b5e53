"""The files of a skill and the digest over them.

A `Tree` is a skill's files in a folder, an archive or a git repository. `hash_tree` computes the
digest for locks and accepted risks. Path and content are hashed with their lengths, so
that different trees never yield the same input.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, Self

from satchel._fs import open_beneath
from satchel._unicode import fold
from satchel.errors import AccessDenied, SkillBroken
from satchel.i18n import Message
from satchel.skill.document import MANIFEST

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_KIND_BY_TEST = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISLNK, "a link that leads nowhere"),
)


def kind_of_mode(mode: int) -> str:
    """Name of a file type, for messages."""
    return next((name for test, name in _KIND_BY_TEST if test(mode)), "not a regular file")


Mode = Literal["file", "program", "link"]

VERSION_CONTROL = frozenset((".git",))
"""Folders directly in a skill that are no part of it; a file or link of that name is."""
IGNORED = frozenset((
    *VERSION_CONTROL, ".hg", ".svn", ".DS_Store", "Thumbs.db", "desktop.ini", "__MACOSX",
))  # fmt: skip
"""Leftovers of version control and desktops, omitted when a skill is imported.

In a folder on disk they count as part of the skill, since a program can read them.
"""
_CHUNK_BYTES = 1 << 20
_DIGEST_PREFIX = b"satchel-tree-1\0"
_REPOSITORY_ENTRIES = frozenset(("head", "objects", "refs", "commondir"))


class TreeLimits(NamedTuple):
    """Maximum size of one skill."""

    files: int = 10_000
    depth: int = 64
    size: int = 64 << 20
    """Bytes of all files together."""


LIMITS = TreeLimits()


class TreeFile(NamedTuple):
    """One file of a skill."""

    path: str
    """Relative to the skill's folder, with `/`."""
    size: int
    mode: Mode = "file"
    """`program` is executable. `link` leads to another file of the same skill."""


class Tree(Protocol):
    """The files of a skill in a folder, an archive or a repository."""

    @property
    def files(self) -> tuple[TreeFile, ...]:
        """All files, sorted by path."""
        ...

    def chunks(self, path: str) -> Iterator[bytes]:
        """Yield the content of a file; for a link, its target.

        Args:
            path: The path of a file, as in `files`.
        """
        ...


class TreeDigest(NamedTuple):
    """The digests of a tree."""

    digest: str
    """`sha256:` and 64 hexadecimal digits, over all of `files`."""
    files: dict[str, str]
    """Path -> `sha256:…`, followed by ` x` if the file is executable, or `link:…`."""

    def without(self, paths: Iterable[str]) -> TreeDigest:
        """The digests of the tree without some of its files."""
        removed = frozenset(paths)
        if not removed:
            return self
        files = {path: digest for path, digest in self.files.items() if path not in removed}
        return TreeDigest(digest_of(files), files)

    def to_text(self) -> str:
        """One line, for `from_text`."""
        import json  # not on the way of `list`

        return json.dumps(self, separators=(",", ":"))

    @classmethod
    def from_text(cls, text: str) -> Self | None:
        """The digests of a line; None when it is damaged."""
        import json  # not on the way of `list`

        try:
            digest, files = json.loads(text)
            return cls(str(digest), dict(files))
        except (ValueError, TypeError):
            return None


def skill_md_name(names: Iterable[str]) -> str:
    """The name of the SKILL.md or its case variant; empty when there is none."""
    candidates = sorted(name for name in names if name.upper() == "SKILL.MD")
    return "SKILL.md" if "SKILL.md" in candidates else next(iter(candidates), "")


def main_file(names: Iterable[str]) -> str:
    """The name of the SKILL.md, else of the skill.yaml; empty when there is neither."""
    names = list(names)
    return skill_md_name(names) or next((name for name in names if name == MANIFEST), "")


def find_repository(paths: Iterable[str]) -> str:
    """The path because of which git takes a folder for a repository; empty when there is none.

    git runs commands that the configuration of a repository names, in the next folder that a user
    enters. A repository is anything named `.git`, and a folder of any name that has a `HEAD` and
    either `objects` and `refs` of any kind, or a `commondir` that leads to them. Names count as
    equal when some file system treats them so.

    Args:
        paths: Files and folders of one tree, in any order; the folders above them are implied.
    """
    folders: dict[str, set[str]] = {}
    for path in paths:
        folder = ""
        for part in path.split("/"):
            name = folded_name(part)
            if name == ".git":
                return path
            if name in _REPOSITORY_ENTRIES:
                entries = folders.setdefault(folder, set())
                entries.add(name)
                if entries >= {"head", "objects", "refs"} or entries >= {"head", "commondir"}:
                    return path
            folder = f"{folder}/{name}"
    return ""


def folded_name(name: str) -> str:
    """A key that is equal for names which some file system treats as the same."""
    if not name.isascii():
        name = fold(name)
    name = name.lower().partition(":")[0].rstrip(". ")
    return ".git" if name.startswith("git~") else name


def hash_tree(tree: Tree) -> TreeDigest:
    """Read a tree and compute its digests."""
    files = {file.path: file_digest(tree, file) for file in tree.files}
    return TreeDigest(digest_of(files), files)


def file_digest(tree: Tree, file: TreeFile) -> str:
    """The value of one file in `TreeDigest.files`."""
    if file.mode == "link":
        return "link:" + os.fsdecode(b"".join(tree.chunks(file.path)))
    from hashlib import sha256

    hasher = sha256()
    for chunk in tree.chunks(file.path):
        hasher.update(chunk)
    return f"sha256:{hasher.hexdigest()}" + (" x" if file.mode == "program" else "")


def digest_of(files: Mapping[str, str]) -> str:
    """The digest over a table as in `TreeDigest.files`."""
    from hashlib import sha256

    hasher = sha256(_DIGEST_PREFIX)
    rows = sorted((os.fsencode(path), os.fsencode(digest)) for path, digest in files.items())
    for row in rows:
        for text in row:
            hasher.update(len(text).to_bytes(8, "big") + text)
    return f"sha256:{hasher.hexdigest()}"


def read_whole(tree: Tree, path: str, limit: int = LIMITS.size) -> bytes:
    """Return the content of a file.

    Raises:
        SkillBroken: it is larger than `limit`.
    """
    data = bytearray()
    for chunk in tree.chunks(path):
        data += chunk
        if len(data) > limit:
            raise SkillBroken(f"`{path}` is larger than {limit} bytes", "Make the file smaller")
    return bytes(data)


class MemoryTree:
    """A tree in memory, for a scaffold, a merge or a test."""

    def __init__(
        self, content: Mapping[str, bytes], programs: frozenset[str] = frozenset()
    ) -> None:
        self._content = dict(content)
        self.files = tuple(
            TreeFile(path, len(content[path]), "program" if path in programs else "file")
            for path in sorted(content, key=os.fsencode)
        )

    def chunks(self, path: str) -> Iterator[bytes]:
        """Yield the whole content."""
        yield self._content[path]


class FolderTree:
    """The files of a folder on disk; nothing outside it is read."""

    def __init__(
        self, root: str, limits: TreeLimits = LIMITS, top_names: frozenset[str] | None = None
    ) -> None:
        """List the files below `root`.

        Args:
            root: The folder.
            limits: Maximum size.
            top_names: Names directly below `root` to include; everything when None.

        Raises:
            AccessDenied: a link leads outside, or to a file that is not part of the skill.
            SkillBroken: an entry is no file, folder or link, or the folder is too large.
            OSError: it cannot be read.
        """
        self.root = root
        self._max_bytes = limits.size
        files = _list_files(root, limits, top_names)
        self.files = tuple(sorted(files, key=lambda file: os.fsencode(file.path)))

    def chunks(self, path: str) -> Iterator[bytes]:
        """Yield the content in chunks of one megabyte."""
        full_path = os.path.join(self.root, path)
        if os.path.islink(full_path):
            yield os.fsencode(os.readlink(full_path))
            return
        descriptor = open_beneath(self.root, path)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise SkillBroken(f"`{path}` is no regular file any more", "Look at the folder")
            size = 0
            while chunk := os.read(descriptor, _CHUNK_BYTES):
                size += len(chunk)
                if size > self._max_bytes:  # the file grows while it is read
                    raise _too_large(self.root, f"more than {self._max_bytes >> 20} MiB")
                yield chunk
        finally:
            os.close(descriptor)


def _list_files(
    root: str, limits: TreeLimits, top_names: frozenset[str] | None
) -> Iterator[TreeFile]:
    file_count = size = folder_count = 0
    pending_folders = [("", 0)]
    while pending_folders:
        folder, depth = pending_folders.pop()
        with os.scandir(os.path.join(root, folder) if folder else root) as entries:
            for entry in entries:
                if top_names is not None and not folder and entry.name not in top_names:
                    continue
                path = f"{folder}/{entry.name}" if folder else entry.name
                info = entry.stat(follow_symlinks=False)
                if stat.S_ISDIR(info.st_mode):
                    if not folder and entry.name in VERSION_CONTROL:
                        continue
                    if depth >= limits.depth:
                        raise _too_large(root, f"folders deeper than {limits.depth} levels")
                    folder_count += 1
                    if folder_count > limits.files:
                        raise _too_large(root, f"more than {limits.files} folders")
                    pending_folders.append((path, depth + 1))
                    continue
                file_count += 1
                size += info.st_size
                if file_count > limits.files:
                    raise _too_large(root, f"more than {limits.files} files")
                if size > limits.size:
                    raise _too_large(root, f"more than {limits.size >> 20} MiB")
                yield _check_file(root, path, info, top_names)


def _check_file(
    root: str, path: str, info: os.stat_result, top_names: frozenset[str] | None
) -> TreeFile:
    if stat.S_ISLNK(info.st_mode):
        target = os.path.realpath(os.path.join(root, path))
        base = os.path.realpath(root)
        steps = target[len(base) + 1 :].split(os.sep)
        folders = steps if os.path.isdir(target) else steps[:-1]
        # What no digest contains was not scanned. File systems may ignore case.
        if (
            (target != base and not target.startswith(base + os.sep))
            or not VERSION_CONTROL.isdisjoint(step.casefold() for step in folders)
            or (top_names is not None and steps[0] not in top_names)
        ):
            raise AccessDenied(
                Message("`{path}` is a link that leads out of the skill", path=path),
                Message("Replace the link by a copy"),
            )
        return TreeFile(path, info.st_size, "link")
    if not stat.S_ISREG(info.st_mode):
        raise SkillBroken(
            Message(
                "`{file}` is {kind}, not a regular file",
                file=path,
                kind=Message(kind_of_mode(info.st_mode)),
            ),
            Message("Remove it"),
        )
    return TreeFile(path, info.st_size, "program" if info.st_mode & 0o100 else "file")


def _too_large(root: str, what: str) -> SkillBroken:
    return SkillBroken(
        f"`{os.path.basename(root)}` has {what}", "Remove what the skill does not need"
    )
