"""What is in a skill's folder, and in one file of it? For people who look before they trust.

Nothing outside the folder is ever read: links are named and not followed out of it, and what is
neither a file nor a folder is named and not opened. Files that lie on a server are fetched when
somebody opens them, and compared with what the server listed.
"""

from __future__ import annotations

import os
import stat
import time
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from satchel._diagnosis import content_problem
from satchel._fs import is_inside, open_beneath
from satchel._language import say
from satchel.errors import AccessDenied, NotFound, Refused, SatchelError
from satchel.library.walk import OWN_FOLDERS
from satchel.skill.interpret import as_words
from satchel.skill.problems import PROBLEMS
from satchel.skill.tree import VERSION_CONTROL, kind_of_mode
from satchel.tools.frame import encodable, printable, size_of
from satchel.tools.read_file import decode
from satchel.ui.views.skills import (
    broken_at,
    broken_row,
    find_file,
    find_skill,
    own_scope,
    row_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from satchel.facade import Satchel
    from satchel.skill.model import Document, Skill
    from satchel.skill.problems import Problem
    from satchel.ui.views.skills import Row

MOST = 400
"""Files and folders of a skill that are shown; more are counted."""
_COUNTED = 20_000
"""Files that are counted; a folder beyond it is not walked to its end."""
_DEEPEST = 32
SHOWN = 200_000
"""Bytes of a file that are shown."""
_PICTURES = {
    ".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG", ".gif": "GIF", ".webp": "WebP", ".bmp": "BMP",
    ".ico": "ICO", ".avif": "AVIF", ".tif": "TIFF", ".tiff": "TIFF",
}  # fmt: skip

Kind = Literal["file", "program", "link", "odd", "folder"]


class Entry(NamedTuple):
    """A file or folder of a skill."""

    name: str
    path: str
    """Below the skill's folder, with `/`; empty when it cannot be opened here."""
    kind: Kind
    size: str
    """As people write it; empty of a folder."""
    said: str
    """What is to know about it."""
    inside: tuple[Entry, ...] = ()


class Files(NamedTuple):
    """A skill's files as a tree."""

    entries: tuple[Entry, ...]
    total: int
    size: str
    more: int
    """How many are not shown."""
    failed: str = ""
    """Why they cannot be told."""


class Content(NamedTuple):
    """One file, as far as it is shown."""

    path: str
    shown: str
    """The path for people."""
    size: int
    kind: Literal["text", "picture", "binary"]
    text: str = ""
    data: bytes = b""
    """What was read."""
    cut: bool = False
    """The file goes on."""
    said: str = ""
    """What is to know about it."""
    is_own: bool = False
    """It is the skill's SKILL.md or skill.yaml itself."""


class _Held(NamedTuple):
    """Whose files they are."""

    root: str
    only: frozenset[str] | None
    """Names right below `root` that count; everything when None."""
    own: str
    skill: Skill | None


def list_files(satchel: Satchel, ref: str) -> Files:
    """The files of a skill, or the one that should be a skill and is none.

    Raises:
        NotFound: there is no such skill.
    """
    held = _held(satchel, ref)
    supply = satchel.library.supply_of(held.skill) if held.skill is not None else None
    if supply is not None and held.skill is not None:
        served = supply.files_of(held.skill).values()
        return _as_tree((one.path, one.size, 0o100644, "") for one in served)
    try:
        return _as_tree(_walk(held))
    except OSError as exc:
        return Files((), 0, "", 0, exc.strerror or str(exc))


def read_file(satchel: Satchel, ref: str, path: str) -> Content:
    """A file of a skill, as far as it is shown.

    Args:
        satchel: Whose skills.
        ref: Which skill.
        path: Below the skill's folder; empty means the skill's own file.

    Raises:
        NotFound: there is no such skill or file.
        AccessDenied: the path leads out of the skill.
        Refused: it is no file, or may not be read.
        Changed: it is not what its server listed.
    """
    held = _held(satchel, ref)
    path = path or held.own
    own = path == held.own
    supply = satchel.library.supply_of(held.skill) if held.skill is not None else None
    if supply is not None and held.skill is not None:
        data = supply.bring(held.skill, path)
        return _content(path, data[:SHOWN], len(data), own=own)
    data, size = _read(held, path)
    return _content(path, data, size, own=own)


def _held(satchel: Satchel, ref: str) -> _Held:
    item = broken_at(satchel, ref)
    if item is not None:
        folder, file = os.path.split(item.problem.path)
        return _Held(folder, frozenset((file,)), file, None)
    skill = find_skill(satchel, ref)
    own = skill.head.file
    # A skill at the top of a project is its file and its own folders, not the whole project.
    only = None if skill.head.id else OWN_FOLDERS | {own}
    return _Held(skill.base_dir, only, own, skill)


def _read(held: _Held, path: str) -> tuple[bytes, int]:
    shown = printable(path)[:300]
    outside = AccessDenied(
        say("`{path}` is no part of this skill", path=shown), say("Open one of its files")
    )
    steps = path.split("/")
    if ".." in steps or (held.only is not None and steps[0] not in held.only):
        raise outside
    if not VERSION_CONTROL.isdisjoint(step.casefold() for step in steps[:-1]):
        raise outside
    try:
        descriptor = open_beneath(held.root, path)
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
        if not _is_part(held, path):
            raise outside
        data = b""
        while len(data) < SHOWN and (part := os.read(descriptor, SHOWN - len(data))):
            data += part
        return data, max(info.st_size, len(data))
    except OSError as exc:
        raise _unread(shown, exc.strerror or str(exc)) from exc
    finally:
        os.close(descriptor)


def _is_part(held: _Held, path: str) -> bool:
    """Whether a link within the folder leads to what is part of the skill."""
    base = os.path.realpath(held.root)
    real = os.path.realpath(os.path.join(held.root, path))
    if not is_inside(real, base):
        return False
    steps = real[len(base) :].strip(os.sep).split(os.sep)
    within = VERSION_CONTROL.isdisjoint(step.casefold() for step in steps[:-1])
    return within and (held.only is None or steps[0] in held.only)


def _unread(shown: str, reason: str) -> Refused:
    return Refused(
        say("`{path}` cannot be read: {reason}", path=shown, reason=reason),
        say("Check its permissions"),
    )


def _content(path: str, data: bytes, size: int, *, own: bool) -> Content:
    shown = printable(path)
    cut = size > len(data)
    picture = _PICTURES.get(os.path.splitext(path)[1].lower())
    if picture is not None:
        said = say("A picture ({kind}, {size}). Pictures of skills are not shown",
                   kind=picture, size=size_of(size))  # fmt: skip
        return Content(path, shown, size, "picture", said=said, is_own=own)
    text, fallback = decode(data, cut=cut)
    if text is None:
        said = say("Not text ({size}). Open it with a program that you trust", size=size_of(size))
        return Content(path, shown, size, "binary", said=said, is_own=own)
    said = ""
    if cut:
        said = say("This is the first {shown} of {size}", shown=size_of(len(data)),
                   size=size_of(size))  # fmt: skip
    elif fallback:
        said = say("Some bytes are not UTF-8 and are shown as �")
    return Content(path, shown, size, "text", encodable(text), data, cut, said, own)


# --- the tree -----------------------------------------------------------------------------


def _walk(held: _Held) -> Iterable[tuple[str, int, int, str]]:
    """Every file: its path, size, mode, and where it leads when it is a link."""
    todo = [("", 0)]
    seen = 0
    while todo:
        folder, depth = todo.pop()
        here = os.path.join(held.root, folder) if folder else held.root
        with os.scandir(here) as entries:
            for entry in sorted(entries, key=lambda one: one.name):
                if not folder and held.only is not None and entry.name not in held.only:
                    continue
                path = f"{folder}/{entry.name}" if folder else entry.name
                info = entry.stat(follow_symlinks=False)
                if stat.S_ISDIR(info.st_mode):
                    if entry.name not in VERSION_CONTROL and depth < _DEEPEST:
                        todo.append((path, depth + 1))
                    continue
                seen += 1
                if seen > _COUNTED:
                    return
                target = os.readlink(entry.path) if stat.S_ISLNK(info.st_mode) else ""
                yield path, info.st_size, info.st_mode, target


class _Folder(NamedTuple):
    folders: dict[str, _Folder]
    files: list[Entry]


def _as_tree(found: Iterable[tuple[str, int, int, str]]) -> Files:
    top = _Folder({}, [])
    total = size = 0
    for path, length, mode, target in found:
        total += 1
        size += length if stat.S_ISREG(mode) else 0
        if total > MOST:
            continue
        *folders, name = path.split("/")
        if len(folders) > _DEEPEST:  # a server may list what no disk has
            folders = [*folders[:_DEEPEST], "…"]
        here = top
        for step in folders:
            here = here.folders.setdefault(step, _Folder({}, []))
        here.files.append(_entry(name, path, length, mode, target))
    return Files(_entries(top), total, size_of(size), max(0, total - MOST))


def _entry(name: str, path: str, length: int, mode: int, target: str) -> Entry:
    shown = printable(name)
    openable = path if encodable(path) == path else ""
    if stat.S_ISLNK(mode):
        return Entry(shown, openable, "link", "", say("a link to `{path}`", path=printable(target)))
    if not stat.S_ISREG(mode):
        return Entry(shown, "", "odd", "", say(kind_of_mode(mode)))
    if mode & 0o100:
        return Entry(shown, openable, "program", size_of(length), say("can be run"))
    return Entry(shown, openable, "file", size_of(length), "")


def _entries(folder: _Folder) -> tuple[Entry, ...]:
    """Files first, then folders: what a skill says of itself is on top."""
    own = sorted(folder.files, key=lambda one: (one.name.upper() != "SKILL.MD", one.name))
    below = (
        Entry(printable(name), "", "folder", "", "", _entries(inside))
        for name, inside in sorted(folder.folders.items())
    )
    return (*own, *below)


def plain(value: Any) -> str:
    """A value of a frontmatter as people read it."""
    if isinstance(value, str):
        return encodable(value)
    import json

    try:
        return encodable(json.dumps(value, ensure_ascii=False, default=str))
    except (TypeError, ValueError, RecursionError):
        return "…"  # a key that is no text, or a value that holds itself


_TOLD_BY_FIELDS = frozenset(("inert-field", "unknown-field"))
"""What the table of fields says already."""
_MOST_PROBLEMS = 30
_MOST_LINES = 200
_LONGEST_LINE = 500


class Wrong(NamedTuple):
    """A problem in words, and what to do."""

    severity: str
    words: str
    fix: str
    line: int


class Line(NamedTuple):
    """A line of a file as it was written."""

    number: int
    text: str
    bad: bool
    """The problem is here."""


class Detail(NamedTuple):
    """One skill, opened."""

    row: Row
    description: str
    path: str
    tags: tuple[str, ...]
    allowed: tuple[str, ...]
    """Tools that it wants to use without asking."""
    tools: tuple[str, ...]
    """Tools that it brings."""
    wants: tuple[str, ...]
    """What their program may touch."""
    changed: str
    """When its file was last changed; empty when nobody knows."""
    problems: tuple[Wrong, ...]
    files: Files
    own: str
    """The path of its own file, which is shown first."""
    scope: str
    """Where it may be changed; empty when it may not."""
    raw: tuple[Line, ...] = ()
    """The lines of a file that is no skill: what is wrong is in them."""


def detail_of(satchel: Satchel, ref: str) -> Detail:
    """Everything below the row of one skill, or of a file that should be one.

    Raises:
        NotFound: there is none, or no more.
    """
    item = broken_at(satchel, ref)
    if item is not None:
        problem = item.problem
        files = list_files(satchel, ref)
        own = next((one.path for one in files.entries if one.kind != "odd"), "")
        return Detail(
            broken_row(item), "", printable(problem.path), (), (), (), (), "",
            tuple(_told([problem])), files, own, own_scope(satchel, find_file(satchel, ref)),
            tuple(_lines(satchel, ref, problem.line)),
        )  # fmt: skip
    skill = find_skill(satchel, ref)
    document, found = _read_whole(satchel, skill)
    source = satchel.library.tools().of(skill)
    fields = document.fields if document is not None else {}
    return Detail(
        row_of(satchel, skill),
        encodable(skill.description),
        printable(skill.path),
        tuple(printable(tag) for tag in skill.tags),
        tuple(printable(word) for word in as_words(fields.get("allowed-tools"))),
        tuple(printable(name) for name in source.tools) if source is not None else (),
        source.wants if source is not None else (),
        "" if skill.origin.remote else _when(skill.mtime),
        tuple(_told(found)),
        list_files(satchel, skill.ref),
        skill.head.file if encodable(skill.head.file) == skill.head.file else "",
        own_scope(satchel, skill),
    )


def _lines(satchel: Satchel, ref: str, bad: int) -> Iterable[Line]:
    """The beginning of a file line by line, or what is around the bad one."""
    try:
        content = read_file(satchel, ref, "")
    except SatchelError:
        return  # said where the file is shown
    lines = content.text.replace("\r\n", "\n").split("\n") if content.kind == "text" else []
    if lines and not lines[-1]:
        lines.pop()  # the file's last line end begins no line
    first = max(0, min(bad, len(lines)) - _MOST_LINES // 2) if bad > _MOST_LINES else 0
    for number, text in enumerate(lines[first : first + _MOST_LINES], first + 1):
        cut = text if len(text) <= _LONGEST_LINE else f"{text[:_LONGEST_LINE]}…"
        yield Line(number, printable(cut.expandtabs(4)), number == bad)


def _read_whole(satchel: Satchel, skill: Skill) -> tuple[Document | None, list[Problem]]:
    """Its document, where it lies here, and what is wrong with it."""
    from satchel.skill.validate import check

    problems: list[Problem] = []
    changed = content_problem(satchel.library, skill)
    if changed is not None:
        problems.append(changed)
    if skill.origin.remote:  # fetched when somebody opens it
        return None, [*problems, *skill.problems]
    try:
        document = skill.read()
    except SatchelError:
        return None, [*problems, *skill.problems]  # said where the file is shown
    if skill.is_tool:
        return document, [*problems, *document.problems]
    return document, [*problems, *check(document)]


def _told(problems: Iterable[Problem]) -> Iterable[Wrong]:
    """Errors first; what the table of fields says is left out."""
    order = ("error", "warning", "note")
    kept = [one for one in problems if one.code not in _TOLD_BY_FIELDS]
    kept.sort(key=lambda one: order.index(PROBLEMS[one.code].severity))
    for one in kept[:_MOST_PROBLEMS]:
        yield Wrong(one.severity, encodable(one.message), encodable(one.fix), one.line)
    if len(kept) > _MOST_PROBLEMS:
        yield Wrong("note", say("… and {count} more", count=len(kept) - _MOST_PROBLEMS), "", 0)


def _when(stamp: float) -> str:
    try:
        return time.strftime("%Y-%m-%d %H:%M", time.localtime(stamp))
    except (OverflowError, OSError, ValueError):
        return ""  # a file may claim any time
