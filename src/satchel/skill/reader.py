"""Reads a skill's file into a `SkillHeader` or a `SkillDocument`.

Only regular files within the size limits are read, without blocking. A file that is no skill yields
problems, not an exception.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Any

from satchel.errors import NotFound, Refused, SkillBroken
from satchel.i18n import Message
from satchel.skill.document import MANIFEST, SkillDocument, SkillHeader
from satchel.skill.fields import LISTED, with_misspellings
from satchel.skill.file_tree import kind_of_mode
from satchel.skill.frontmatter import decode, split_file
from satchel.skill.frontmatter_fields import ParsedFields, read_fields
from satchel.skill.metadata import interpret_fields
from satchel.skill.problems import NO_PROBLEMS
from satchel.skill.requirements import REQUIREMENT_KEYS, may_have_requirements

if TYPE_CHECKING:
    from collections.abc import Callable

    from satchel.skill.frontmatter import SplitFile
    from satchel.skill.problems import Problem

MAX_FILE_BYTES = 4 * 1024 * 1024
_HEADER_KEYS = with_misspellings(("name", "description", *LISTED))
_HEADER_AND_REQUIREMENT_KEYS = _HEADER_KEYS | with_misspellings(REQUIREMENT_KEYS)


def read_header(
    data: bytes, skill_id: str, file: str, stamp: tuple[int, int, int]
) -> tuple[SkillHeader | None, tuple[Problem, ...]]:
    """Parse the header of a SKILL.md or skill.yaml from its first bytes."""
    if file == MANIFEST:
        from satchel.skill.manifest_parser import read_tool_header

        return read_tool_header(data, skill_id, stamp)
    split, problems = _split(data)
    if split is None or split.block is None:
        return None, tuple(problems)
    if "\ufffd" not in split.block:
        # The invalid bytes are in the body, of which a scan reads only the beginning.
        problems = [problem for problem in problems if problem.code != "invalid-utf8"]
    may_require = may_have_requirements(split.block)
    keys = _HEADER_AND_REQUIREMENT_KEYS if may_require else _HEADER_KEYS
    fields = read_fields(split.block, split.first_line, keys)
    return _make_header(fields, problems, skill_id, file, stamp)


def _split(data: bytes) -> tuple[SplitFile | None, list[Problem]]:
    text, problems = decode(data)
    if text is None:
        return None, problems
    split = split_file(text)
    problems += split.problems
    return split, problems


def _make_header(
    fields: ParsedFields,
    problems: list[Problem],
    skill_id: str,
    file: str,
    stamp: tuple[int, int, int],
) -> tuple[SkillHeader | None, tuple[Problem, ...]]:
    problems += fields.problems
    if any(problem.severity == "error" for problem in problems):
        return None, tuple(problems)
    folder = skill_id.rpartition("/")[2]
    reading = interpret_fields(fields, folder, problems)
    if not reading.is_usable:
        return None, tuple(problems)
    header_problems = tuple(problems) or NO_PROBLEMS
    mtime_ns, ctime_ns, size = stamp
    header = SkillHeader(
        name=reading.name,
        description=reading.description,
        id=skill_id,
        file=file,
        mtime_ns=mtime_ns,
        ctime_ns=ctime_ns,
        size=size,
        extra=reading.extra,
        problems=header_problems,
    )
    return header, header_problems


def header_from_fields(
    values: dict[str, Any], skill_id: str, size: int
) -> tuple[SkillHeader | None, tuple[Problem, ...]]:
    """Build the header of a frontmatter that was received without its file.

    Args:
        values: The fields as JSON values.
        skill_id: The skill's id, the last part of which is its folder.
        size: Bytes of the file.
    """
    texts = {key: str(value) for key, value in values.items() if not isinstance(value, str)}
    return _make_header(ParsedFields(values, {}, texts, []), [], skill_id, "SKILL.md", (0, 0, size))


def parse_document(
    data: bytes, skill_id: str, file: str, stamp: tuple[int, int, int]
) -> SkillDocument:
    """Parse the whole content of a SKILL.md or skill.yaml."""
    if file == MANIFEST:
        from satchel.skill.manifest_parser import parse_tool_document

        return parse_tool_document(data, skill_id, stamp)
    split, problems = _split(data)
    if split is None:
        return SkillDocument({}, {}, "", tuple(problems), None)
    if split.block is None:
        return SkillDocument({}, {}, split.body, tuple(problems), None)
    fields = read_fields(split.block, split.first_line)
    header, header_problems = _make_header(fields, problems, skill_id, file, stamp)
    return SkillDocument(fields.values, fields.lines, split.body, header_problems, header)


def load_document(
    folder: str,
    file: str = "SKILL.md",
    skill_id: str | None = None,
    verify: Callable[[bytes], None] | None = None,
) -> SkillDocument:
    """Read a whole SKILL.md or skill.yaml.

    Args:
        folder: The skill's folder.
        file: The file's name.
        skill_id: The skill's id; the folder's name when None.
        verify: Called with the bytes of the document; raises to refuse them.

    Raises:
        NotFound: the file does not exist.
        Refused: the operating system denies access.
        SkillBroken: it is no regular file, or too large.
    """
    path = os.path.join(folder, file)
    try:
        descriptor = os.open(
            path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
        )
    except FileNotFoundError as exc:
        raise NotFound(
            Message("There is no `{path}`", path=path),
            Message("Run `{command}`", command="satchel list"),
        ) from exc
    except OSError as exc:
        raise _unreadable_error(path, exc) from exc
    try:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode):
            raise SkillBroken(f"`{path}` is {kind_of_mode(info.st_mode)}", Message("Remove it"))
        if info.st_size > MAX_FILE_BYTES:
            raise SkillBroken(
                Message(
                    "`{path}` has {size} bytes; at most {limit} are read",
                    path=path,
                    size=info.st_size,
                    limit=MAX_FILE_BYTES,
                ),
                Message("Move details into `references/`"),
            )
        data = _read_all(descriptor, info.st_size)
    except OSError as exc:
        raise _unreadable_error(path, exc) from exc
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
    """Read the file, with a buffer of its present size rather than of the maximum."""
    data = os.read(descriptor, size + 1)
    while size < len(data) < MAX_FILE_BYTES:  # the file grew
        size = len(data)
        data += os.read(descriptor, MAX_FILE_BYTES - size)
    return data


def _unreadable_error(path: str, exc: OSError) -> Refused:
    return Refused(
        Message("`{path}` cannot be read: {reason}", path=path, reason=exc.strerror),
        Message("Check the permissions"),
    )
