"""Validates a server's list of skills. Nothing in it is trusted.

An entry is accepted if every file has one name below the skill's own folder, a SHA-256 digest and a
size, within the limits of the extension. Otherwise the whole entry is refused.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote

from satchel._language import Message
from satchel.library.supplier import OWN, Served, ServedFile, mark_of
from satchel.skill.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

MAX_FILES = 512
"""Files of one skill, a limit of the extension."""
MAX_SKILL_BYTES = 16 << 20
"""Bytes of one skill, a limit of the extension."""
_MAX_FRONTMATTER_BYTES = 64 * 1024
_MAX_URI = 1024
_MAX_PART_BYTES = 200
_MAX_PARTS = 16
_MAX_PROBLEMS = 100
_SHOWN = 80
_NAME = re.compile(r"(?=.{1,64}\Z)[^\W_]+(?:-[^\W_]+)*")
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
_SCHEME = re.compile(r"([a-z][a-z0-9+.-]*)://([^?#]+)", re.DOTALL)
_RESERVED = re.compile(r"(?i:con|prn|aux|nul|com\d|lpt\d)(?:\..*)?")


class Unusable(ValueError):
    """Why an entry is refused, as a phrase."""


def read_entries(
    rows: Iterable[Any], label: str
) -> tuple[dict[str, Served], list[Problem], list[Any]]:
    """Return the skills of a list by id, problems, and the rows that were accepted."""
    taken: dict[str, tuple[Served, Any]] = {}
    problems: list[Problem] = []
    for row in rows:
        try:
            served = _entry(row, taken)
            taken[served.id.casefold()] = (served, row)
        except Unusable as exc:
            values = {"server": label, "name": _shown(row), "why": exc.args[0]}
            problems.append(Problem("served-refused", values=values))
    found = _with_names([served for served, _ in taken.values()], label, problems)
    return found, problems[:_MAX_PROBLEMS], [row for _, row in taken.values()]


def _entry(row: Any, taken: Container[str]) -> Served:
    if not isinstance(row, dict):
        raise Unusable("the entry is no object")
    entry = cast("dict[str, Any]", row)
    uri, frontmatter, resources = (entry.get(key) for key in ("uri", "frontmatter", "resources"))
    if not isinstance(uri, str) or not isinstance(frontmatter, dict):
        raise Unusable("the entry has no address or no frontmatter")
    if resources == "dynamic":
        raise Unusable("its content changes from read to read")
    if not isinstance(resources, list):
        raise Unusable("the entry does not list its files")
    fields = cast("dict[str, Any]", frontmatter)
    name = _name(fields)
    scheme, parts = _parts(uri)
    if len(parts) < 2 or parts[-1] != OWN:
        raise Unusable("its address does not end in `SKILL.md`")
    if parts[-2] != name:
        raise Unusable("the last part of its address is not its name")
    base = parts[:-1]
    skill_id = "~".join(base) if scheme == "skill" else "~".join((scheme, *base))
    if any("~" in part for part in base) or len(skill_id.encode()) > _MAX_PART_BYTES:
        raise Unusable("it has an address that could lead elsewhere")
    if skill_id.casefold() in taken:
        raise Unusable("another skill in the list has the same address")
    files = _files(cast("list[Any]", resources), scheme, base)
    if OWN not in files or files[OWN].uri != uri:
        raise Unusable("its SKILL.md is not among its files")
    return Served(skill_id, name, uri, fields, files, mark_of(uri, fields, files))


def _name(fields: dict[str, Any]) -> str:
    """Check the frontmatter, and return the name in it."""
    from satchel.security.unseen import mixed

    name, description = fields.get("name"), fields.get("description")
    if (
        not isinstance(name, str)
        or not _NAME.fullmatch(name)
        or name != unicodedata.normalize("NFKC", name.lower())
    ):
        raise Unusable("its name is no name of a skill")
    if not name.isascii() and mixed(name):
        raise Unusable("its name mixes letters of two alphabets that look alike")
    if not isinstance(description, str) or not description.strip():
        raise Unusable("it has no description")
    try:
        size = len(json.dumps(fields).encode("utf-8"))
    except (ValueError, RecursionError):
        raise Unusable("its frontmatter has text that is no text") from None
    if size > _MAX_FRONTMATTER_BYTES:
        raise Unusable("its frontmatter is too large")
    return name


def _files(rows: list[Any], scheme: str, base: list[str]) -> dict[str, ServedFile]:
    if len(rows) > MAX_FILES:
        raise Unusable(Message("it has more than {part} files", part=MAX_FILES))
    files: dict[str, ServedFile] = {}
    seen: set[str] = set()
    for row in rows:
        file = _file(row, scheme, base)
        alike = unicodedata.normalize("NFC", file.path).casefold()
        if alike in seen:
            raise Unusable("two of its files have the same name, or differ in case alone")
        seen.add(alike)
        files[file.path] = file
    if sum(file.size for file in files.values()) > MAX_SKILL_BYTES:
        raise Unusable(Message("it has more than {part} bytes", part=MAX_SKILL_BYTES))
    folders = {one[:at] for one in seen for at, sign in enumerate(one) if sign == "/"}
    if folders & seen:
        raise Unusable("one of its files is also a folder")
    return files


def _file(row: Any, scheme: str, base: list[str]) -> ServedFile:
    entry = cast("dict[str, Any]", row) if isinstance(row, dict) else {}
    uri, digest, size = (entry.get(key) for key in ("uri", "digest", "size"))
    found = _DIGEST.fullmatch(digest) if isinstance(digest, str) else None
    if not isinstance(uri, str) or found is None:
        raise Unusable("one of its files has no address or no SHA-256 digest")
    if isinstance(size, float) and size.is_integer():
        size = int(size)
    if not isinstance(size, int) or isinstance(size, bool) or size < 0:
        raise Unusable("one of its files has no size")
    own, parts = _parts(uri)
    if own != scheme or parts[: len(base)] != base or len(parts) <= len(base):
        raise Unusable("one of its files lies outside its folder")
    return ServedFile("/".join(parts[len(base) :]), uri, found[1], size)


def _parts(uri: str) -> tuple[str, list[str]]:
    """Split an address into its scheme and names, each of which is one name in one folder."""
    found = _SCHEME.fullmatch(uri) if len(uri) <= _MAX_URI else None
    if found is None:
        raise Unusable("it has an address that is none")
    # A byte sequence that is not UTF-8 becomes a character that no name may have.
    parts = [unquote(part, errors="surrogateescape") for part in found[2].split("/")]
    if len(parts) > _MAX_PARTS or not all(map(_is_part, parts)):
        raise Unusable("it has an address that could lead elsewhere")
    return found[1], parts


def _is_part(part: str) -> bool:
    """Whether a text is the name of one file or folder on every system."""
    return (
        part.isprintable()
        and 0 < len(part.encode()) <= _MAX_PART_BYTES
        and not part.endswith((".", " "))
        and part[0] != " "
        and not any(sign in '/\\:*?"<>|%' for sign in part)
        and not _RESERVED.fullmatch(part)
    )


def _with_names(found: list[Served], label: str, problems: list[Problem]) -> dict[str, Served]:
    """Name skills of the same name by their paths: the extension forbids preferring one."""
    names = Counter(served.name for served in found)
    named: dict[str, Served] = {}
    for served in found:
        longer = served.id.replace("~", "-")
        if names[served.name] > 1 and longer not in names:
            values = {"server": label, "name": served.name, "offered": longer}
            problems.append(Problem("served-renamed", served.uri, values=values))
            named[served.id] = served._replace(name=longer)
        else:
            named[served.id] = served
    return named


def _shown(row: Any) -> str:
    """Return how an entry is called in a problem."""
    uri = cast("dict[str, Any]", row).get("uri") if isinstance(row, dict) else row
    text = str(uri)[: _SHOWN + 1]
    plain = "".join(sign if sign.isprintable() and sign != "`" else "?" for sign in text)
    return plain if len(plain) <= _SHOWN else plain[:_SHOWN] + "…"
