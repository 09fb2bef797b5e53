"""A folder -> a Head or a whole Document.

Only regular files are opened, without blocking, and never more than the bounds. A file that is
not a skill comes back as problems, not as an exception: one bad skill never hides another.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Any

from satchel._language import Message
from satchel.errors import NotFound, Refused, SkillBroken
from satchel.skill.fields import LISTED, with_spellings
from satchel.skill.frontmatter import decode, read_fields, split
from satchel.skill.interpret import interpret
from satchel.skill.model import MANIFEST, Document, Head
from satchel.skill.problems import NO_PROBLEMS
from satchel.skill.tree import kind_of_mode

if TYPE_CHECKING:
    from collections.abc import Callable

    from satchel.skill.frontmatter import Fields, Split
    from satchel.skill.problems import Problem

MAX_FILE = 4 * 1024 * 1024
"""A SKILL.md beyond this is not read whole: the longest real one is far below."""
_WANTED = with_spellings(("name", "description", *LISTED))


def read_head(
    data: bytes, skill_id: str, file: str, stamp: tuple[int, int, int]
) -> tuple[Head | None, tuple[Problem, ...]]:
    """Read the first bytes of a file with the real parser.

    `data` should be the first `split.MAX_FRONTMATTER` bytes or the whole file. A `skill.yaml` is
    read as what it is.
    """
    if file == MANIFEST:
        from satchel.skill.manifest_read import read_tool_head

        return read_tool_head(data, skill_id, stamp)
    parts, problems = _take_apart(data)
    if parts is None or parts.block is None:
        return None, tuple(problems)
    if "\ufffd" not in parts.block:
        # The damage is in the body, of which a scan sees only the beginning.
        problems = [problem for problem in problems if problem.code != "invalid-utf8"]
    fields = read_fields(parts.block, parts.first_line, _WANTED)
    return _head(fields, problems, skill_id, file, stamp)


def _take_apart(data: bytes) -> tuple[Split | None, list[Problem]]:
    text, problems = decode(data)
    if text is None:
        return None, problems
    parts = split(text)
    problems += parts.problems
    return parts, problems


def _head(
    fields: Fields, problems: list[Problem], skill_id: str, file: str, stamp: tuple[int, int, int]
) -> tuple[Head | None, tuple[Problem, ...]]:
    problems += fields.problems
    if not fields.values and any(problem.severity == "error" for problem in problems):
        return None, tuple(problems)
    folder = skill_id.rpartition("/")[2]
    reading = interpret(fields, folder, problems)
    if not reading.usable:
        return None, tuple(problems)
    found = tuple(problems) or NO_PROBLEMS
    mtime, ctime, size = stamp
    head = Head(
        reading.name, reading.description, skill_id, file, mtime, ctime, size, reading.extra, found
    )
    return head, found


def head_of_fields(
    values: dict[str, Any], skill_id: str, size: int
) -> tuple[Head | None, tuple[Problem, ...]]:
    """A Head from a frontmatter that came without its file, by the rules for files.

    Args:
        values: Every field, as JSON has them.
        skill_id: The skill's id, the last part of which is its folder.
        size: Bytes of the file.
    """
    from satchel.skill.frontmatter import Fields

    texts = {key: str(value) for key, value in values.items() if not isinstance(value, str)}
    return _head(Fields(values, {}, texts, []), [], skill_id, "SKILL.md", (0, 0, size))


def parse_document(data: bytes, skill_id: str, file: str, stamp: tuple[int, int, int]) -> Document:
    """Read a whole file's bytes."""
    if file == MANIFEST:
        from satchel.skill.manifest_read import parse_tool_document

        return parse_tool_document(data, skill_id, stamp)
    parts, problems = _take_apart(data)
    if parts is None:
        return Document({}, {}, "", tuple(problems), None)
    if parts.block is None:
        return Document({}, {}, parts.body, tuple(problems), None)
    fields = read_fields(parts.block, parts.first_line)
    head, found = _head(fields, problems, skill_id, file, stamp)
    return Document(fields.values, fields.lines, parts.body, found, head)


def load_document(
    folder: str,
    file: str = "SKILL.md",
    skill_id: str | None = None,
    verify: Callable[[bytes], None] | None = None,
) -> Document:
    """Read the SKILL.md of `folder` whole, or its skill.yaml when `file` says so.

    Args:
        folder: The skill's folder.
        file: The file's own name.
        skill_id: The skill's id; the folder's name when None.
        verify: Gets the very bytes that the document is made of, and raises when it may not be.

    Raises:
        NotFound: there is no such file.
        Refused: the operating system does not let us read it.
        SkillBroken: it is not a regular file, or is far too large.
    """
    path = os.path.join(folder, file)
    try:
        descriptor = os.open(
            path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
        )
    except FileNotFoundError as exc:
        raise NotFound(
            Message("`{path}` is not there", path=path),
            Message("Run `satchel list` to see what is"),
        ) from exc
    except OSError as exc:
        raise _refused(path, exc) from exc
    try:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode):
            raise SkillBroken(
                f"`{path}` is {kind_of_mode(info.st_mode)}",
                Message("Replace it with a regular file"),
            )
        if info.st_size > MAX_FILE:
            raise SkillBroken(
                Message(
                    "`{path}` has {size} bytes; at most {limit} are read",
                    path=path,
                    size=info.st_size,
                    limit=MAX_FILE,
                ),
                Message("Move detail into files under `references/`"),
            )
        data = _read_all(descriptor, info.st_size)
    except OSError as exc:
        raise _refused(path, exc) from exc
    finally:
        os.close(descriptor)
    if verify is not None:
        verify(data)
    if skill_id is None:
        skill_id = os.path.basename(os.path.abspath(folder))
    document = parse_document(
        data, skill_id, file, (info.st_mtime_ns, info.st_ctime_ns, info.st_size)
    )
    return document._replace(problems=tuple(problem.at(path) for problem in document.problems))


def _read_all(descriptor: int, size: int) -> bytes:
    """The file as it is now; room for the size it had, not for the largest it might have."""
    data = os.read(descriptor, size + 1)
    while size < len(data) < MAX_FILE:  # it grew meanwhile
        size = len(data)
        data += os.read(descriptor, MAX_FILE - size)
    return data


def _refused(path: str, exc: OSError) -> Refused:
    return Refused(
        Message("`{path}` cannot be read: {reason}", path=path, reason=exc.strerror),
        Message("Check its permissions"),
    )
