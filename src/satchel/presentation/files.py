"""Records of the files of a skill's folder, for review before it is trusted.

Nothing outside the folder is read: links that lead out are listed and not followed, and what is
neither a file nor a folder is listed and not opened. Files of a server are fetched when they are
opened, and compared with the server's listing.
"""

from __future__ import annotations

import os
import stat
import time
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from satchel._fs import is_inside, open_beneath
from satchel.doctor import content_problem
from satchel.errors import AccessDenied, NotFound, Refused, SatchelError
from satchel.i18n import say
from satchel.library.scanner import OWN_FOLDERS
from satchel.presentation.findings import FIELD_PROBLEMS, document_problems
from satchel.presentation.skills import (
    broken_at,
    broken_row,
    find_file,
    find_skill,
    own_scope,
    row_of,
)
from satchel.skill.file_tree import VERSION_CONTROL, kind_of_mode
from satchel.skill.metadata import as_words
from satchel.skill.problems import PROBLEMS
from satchel.tools.framing import encodable, printable, size_of
from satchel.tools.read_file import decode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from satchel.presentation.skills import SkillRow
    from satchel.satchel import Satchel
    from satchel.skill.document import SkillDocument
    from satchel.skill.model import Skill
    from satchel.skill.problems import Problem

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
    said: str
    inside: tuple[FileEntry, ...] = ()


class FileTreeShown(NamedTuple):
    """A skill's files as a tree."""

    entries: tuple[FileEntry, ...]
    total: int
    size: str
    more: int
    failed: str = ""
    """Why the files cannot be listed."""


class FileContent(NamedTuple):
    """One file, as far as it is shown."""

    path: str
    shown: str
    kind: Literal["text", "picture", "binary"]
    text: str = ""
    data: bytes = b""
    said: str = ""


class _FileOwner(NamedTuple):
    """The folder that holds the files."""

    root: str
    only: frozenset[str] | None
    """Names in `root` that belong to the skill; None for all."""
    own: str
    skill: Skill | None


def list_files(satchel: Satchel, ref: str) -> FileTreeShown:
    """List the files of a skill, or the file that is broken.

    Raises:
        NotFound: there is no such skill.
    """
    owner = _owner_of(satchel, ref)
    supply = satchel.library.supply_of(owner.skill) if owner.skill is not None else None
    if supply is not None and owner.skill is not None:
        served = supply.files_of(owner.skill).values()
        return _as_tree((one.path, one.size, 0o100644, "") for one in served)
    try:
        return _as_tree(_walk(owner))
    except OSError as exc:
        return FileTreeShown((), 0, "", 0, exc.strerror or str(exc))


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
    path = path or owner.own
    supply = satchel.library.supply_of(owner.skill) if owner.skill is not None else None
    if supply is not None and owner.skill is not None:
        data = supply.fetch_verified(owner.skill, path)
        return _content(path, data[:MAX_FILE_BYTES], len(data))
    data, size = _read(owner, path)
    return _content(path, data, size)


def _owner_of(satchel: Satchel, ref: str) -> _FileOwner:
    item = broken_at(satchel, ref)
    if item is not None:
        folder, file = os.path.split(item.problem.path)
        return _FileOwner(folder, frozenset((file,)), file, None)
    skill = find_skill(satchel, ref)
    own = skill.head.file
    # A skill at the top of a project is its file and its own folders, not the whole project.
    only = None if skill.head.id else OWN_FOLDERS | {own}
    return _FileOwner(skill.base_dir, only, own, skill)


def _read(owner: _FileOwner, path: str) -> tuple[bytes, int]:
    shown = printable(path)[:300]
    outside = AccessDenied(
        say("`{path}` is no part of this skill", path=shown), say("Open one of its files")
    )
    steps = path.split("/")
    if ".." in steps or (owner.only is not None and steps[0] not in owner.only):
        raise outside
    if not VERSION_CONTROL.isdisjoint(step.casefold() for step in steps[:-1]):
        raise outside
    try:
        descriptor = open_beneath(owner.root, path)
    except AccessDenied as exc:
        raise outside from exc
    except FileNotFoundError as exc:
        raise NotFound(
            say("There is no file `{path}` in this skill", path=shown), say("Open one of its files")
        ) from exc
    except OSError as exc:
        raise _unread(shown, exc.strerror or str(exc)) from exc
    try:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode):
            raise Refused(
                say("`{path}` is {what}", path=shown, what=say(kind_of_mode(info.st_mode))),
                say("Open one of its files"),
            )
        if not _is_part(owner, path):
            raise outside
        data = b""
        while len(data) < MAX_FILE_BYTES and (
            part := os.read(descriptor, MAX_FILE_BYTES - len(data))
        ):
            data += part
        return data, max(info.st_size, len(data))
    except OSError as exc:
        raise _unread(shown, exc.strerror or str(exc)) from exc
    finally:
        os.close(descriptor)


def _is_part(owner: _FileOwner, path: str) -> bool:
    """Whether a link within the folder leads to a part of the skill."""
    base = os.path.realpath(owner.root)
    real = os.path.realpath(os.path.join(owner.root, path))
    if not is_inside(real, base):
        return False
    steps = real[len(base) :].strip(os.sep).split(os.sep)
    within = VERSION_CONTROL.isdisjoint(step.casefold() for step in steps[:-1])
    return within and (owner.only is None or steps[0] in owner.only)


def _unread(shown: str, reason: str) -> Refused:
    return Refused(
        say("`{path}` cannot be read: {reason}", path=shown, reason=reason),
        say("Check its permissions"),
    )


def _content(path: str, data: bytes, size: int) -> FileContent:
    shown = printable(path)
    cut = size > len(data)
    picture = _PICTURES.get(os.path.splitext(path)[1].lower())
    if picture is not None:
        said = say("A picture ({kind}, {size}). Pictures of skills are not shown",
                   kind=picture, size=size_of(size))  # fmt: skip
        return FileContent(path, shown, "picture", said=said)
    text, fallback = decode(data, cut=cut)
    if text is None:
        said = say("Not text ({size}). Open it with a program that you trust", size=size_of(size))
        return FileContent(path, shown, "binary", said=said)
    said = ""
    if cut:
        said = say("This is the first {shown} of {size}", shown=size_of(len(data)),
                   size=size_of(size))  # fmt: skip
    elif fallback:
        said = say("Some bytes are not UTF-8 and are shown as �")
    return FileContent(path, shown, "text", encodable(text), data, said)


# --- the tree -----------------------------------------------------------------------------


def _walk(owner: _FileOwner) -> Iterable[tuple[str, int, int, str]]:
    """Yield path, size, mode and link target of every file."""
    todo = [("", 0)]
    seen = 0
    while todo:
        folder, depth = todo.pop()
        here = os.path.join(owner.root, folder) if folder else owner.root
        with os.scandir(here) as entries:
            for entry in sorted(entries, key=lambda one: one.name):
                if not folder and owner.only is not None and entry.name not in owner.only:
                    continue
                path = f"{folder}/{entry.name}" if folder else entry.name
                info = entry.stat(follow_symlinks=False)
                if stat.S_ISDIR(info.st_mode):
                    if entry.name not in VERSION_CONTROL and depth < _MAX_DEPTH:
                        todo.append((path, depth + 1))
                    continue
                seen += 1
                if seen > _MAX_FILES_COUNTED:
                    return
                target = os.readlink(entry.path) if stat.S_ISLNK(info.st_mode) else ""
                yield path, info.st_size, info.st_mode, target


class _Folder(NamedTuple):
    folders: dict[str, _Folder]
    files: list[FileEntry]


def _as_tree(found: Iterable[tuple[str, int, int, str]]) -> FileTreeShown:
    top = _Folder({}, [])
    total = size = 0
    for path, length, mode, target in found:
        total += 1
        size += length if stat.S_ISREG(mode) else 0
        if total > MAX_FILES_SHOWN:
            continue
        *folders, name = path.split("/")
        if len(folders) > _MAX_DEPTH:  # a server's listing may be deeper than any disk
            folders = [*folders[:_MAX_DEPTH], "…"]
        here = top
        for step in folders:
            here = here.folders.setdefault(step, _Folder({}, []))
        here.files.append(_entry(name, path, length, mode, target))
    return FileTreeShown(_entries(top), total, size_of(size), max(0, total - MAX_FILES_SHOWN))


def _entry(name: str, path: str, length: int, mode: int, target: str) -> FileEntry:
    shown = printable(name)
    openable = path if encodable(path) == path else ""
    if stat.S_ISLNK(mode):
        return FileEntry(
            shown, openable, "link", "", say("a link to `{path}`", path=printable(target))
        )
    if not stat.S_ISREG(mode):
        return FileEntry(shown, "", "odd", "", say(kind_of_mode(mode)))
    if mode & 0o100:
        return FileEntry(shown, openable, "program", size_of(length), say("can be run"))
    return FileEntry(shown, openable, "file", size_of(length), "")


def _entries(folder: _Folder) -> tuple[FileEntry, ...]:
    """Files first, then folders; SKILL.md on top."""
    own = sorted(folder.files, key=lambda one: (one.name.upper() != "SKILL.MD", one.name))
    below = (
        FileEntry(printable(name), "", "folder", "", "", _entries(inside))
        for name, inside in sorted(folder.folders.items())
    )
    return (*own, *below)


def field_text(value: Any) -> str:
    """Return a frontmatter value as text."""
    if isinstance(value, str):
        return encodable(value)
    import json

    try:
        return encodable(json.dumps(value, ensure_ascii=False, default=str))
    except (TypeError, ValueError, RecursionError):
        return "…"  # a key that is not text, or a circular value


_MAX_PROBLEMS_SHOWN = 30
_MAX_LINES_SHOWN = 200
_MAX_LINE_CHARS = 500


class ProblemShown(NamedTuple):
    """A problem and how to fix it."""

    severity: str
    words: str
    fix: str
    line: int


class FileLine(NamedTuple):
    """A line of a broken file."""

    number: int
    text: str
    bad: bool


class SkillDetail(NamedTuple):
    """The details of one skill."""

    row: SkillRow
    description: str
    path: str
    tags: tuple[str, ...]
    allowed: tuple[str, ...]
    """Tools that it wants to use without asking."""
    tools: tuple[str, ...]
    wants: tuple[str, ...]
    """Permissions of its program."""
    changed: str
    """Modification time of its file; empty when unknown."""
    problems: tuple[ProblemShown, ...]
    files: FileTreeShown
    own: str
    scope: str
    """The scope in which it can be changed; empty when it cannot."""
    raw: tuple[FileLine, ...] = ()
    """The lines of a file that is not a valid skill."""


def detail_of(satchel: Satchel, ref: str) -> SkillDetail:
    """Return the details of one skill, or of a broken file.

    Raises:
        NotFound: there is no such skill.
    """
    item = broken_at(satchel, ref)
    if item is not None:
        problem = item.problem
        files = list_files(satchel, ref)
        own = next((one.path for one in files.entries if one.kind != "odd"), "")
        scope = own_scope(satchel, find_file(satchel, ref))
        return SkillDetail(
            broken_row(item), "", printable(problem.path), (), (), (), (), "",
            tuple(_problems_shown([problem])), files, own, scope,
            tuple(_lines(satchel, ref, problem.line)),
        )  # fmt: skip
    skill = find_skill(satchel, ref)
    document, found = _read_whole(satchel, skill)
    source = satchel.library.tools().of(skill)
    fields = document.fields if document is not None else {}
    return SkillDetail(
        row_of(satchel, skill),
        encodable(skill.description),
        printable(skill.path),
        tuple(printable(tag) for tag in skill.tags),
        tuple(printable(word) for word in as_words(fields.get("allowed-tools"))),
        tuple(printable(name) for name in source.tools) if source is not None else (),
        source.wants if source is not None else (),
        "" if skill.origin.remote else _when(skill.mtime),
        tuple(_problems_shown(found)),
        list_files(satchel, skill.ref),
        skill.head.file if encodable(skill.head.file) == skill.head.file else "",
        own_scope(satchel, skill),
    )


def _lines(satchel: Satchel, ref: str, bad: int) -> Iterable[FileLine]:
    """The first lines of a file, or those around the line of the problem."""
    try:
        content = read_file(satchel, ref, "")
    except SatchelError:
        return  # reported where the file is shown
    lines = content.text.replace("\r\n", "\n").split("\n") if content.kind == "text" else []
    if lines and not lines[-1]:
        lines.pop()  # the last line end begins no line
    first = max(0, min(bad, len(lines)) - _MAX_LINES_SHOWN // 2) if bad > _MAX_LINES_SHOWN else 0
    for number, text in enumerate(lines[first : first + _MAX_LINES_SHOWN], first + 1):
        cut = text if len(text) <= _MAX_LINE_CHARS else f"{text[:_MAX_LINE_CHARS]}…"
        yield FileLine(number, printable(cut.expandtabs(4)), number == bad)


def _read_whole(satchel: Satchel, skill: Skill) -> tuple[SkillDocument | None, list[Problem]]:
    """The document, unless it is on a server, and its problems."""
    try:
        document = skill.read() if not skill.origin.remote else None
    except SatchelError:  # reported where the file is shown
        document = None
    if document is not None:
        return document, document_problems(satchel.library, skill, document)
    changed = content_problem(satchel.library, skill)
    return None, [*([changed] if changed is not None else []), *skill.problems]


def _problems_shown(problems: Iterable[Problem]) -> Iterable[ProblemShown]:
    """Errors first, without those that the table of fields shows."""
    order = ("error", "warning", "note")
    kept = [one for one in problems if one.code not in FIELD_PROBLEMS]
    kept.sort(key=lambda one: order.index(PROBLEMS[one.code].severity))
    for one in kept[:_MAX_PROBLEMS_SHOWN]:
        yield ProblemShown(one.severity, encodable(one.message), encodable(one.fix), one.line)
    if len(kept) > _MAX_PROBLEMS_SHOWN:
        yield ProblemShown(
            "note", say("… and {count} more", count=len(kept) - _MAX_PROBLEMS_SHOWN), "", 0
        )


def _when(stamp: float) -> str:
    try:
        return time.strftime("%Y-%m-%d %H:%M", time.localtime(stamp))
    except (OverflowError, OSError, ValueError):
        return ""  # a file may have any time
