"""What a server's list says, and what of it is refused: nothing here is believed.

An entry becomes a skill when every file of it has one name below the skill's own folder, a SHA-256
digest and a size, and when all of it stays within what the extension allows. A path that could mean
two things, or another place, makes the whole entry unusable: half a skill is none.
"""

from __future__ import annotations

import os
import re
import unicodedata
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote

from satchel.library.supplier import OWN, Served, ServedFile, mark_of
from satchel.skill.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_FILES = 512
"""Files of one skill, as the extension has it."""
MAX_SIZE = 16 << 20
"""Bytes of one skill, as the extension has it."""
_MAX_FRONTMATTER = 64 * 1024
_MAX_NAME = 64
_MAX_PATH = 1024
_MAX_PART = 200
_MAX_PARTS = 16
_SHOWN = 80
_MOST_PROBLEMS = 100
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
_SCHEME = re.compile(r"([a-z][a-z0-9+.-]*)://(.+)", re.DOTALL)
_RESERVED = re.compile(r"(?i:con|prn|aux|nul|com\d|lpt\d)(?:\..*)?")


class Unusable(ValueError):
    """Why an entry cannot be taken, as a phrase."""


def read_entries(
    rows: Iterable[Any], label: str
) -> tuple[dict[str, Served], list[Problem], list[Any]]:
    """What a list gives: skills by id, what was refused, and the rows that were taken.

    Args:
        rows: The entries as they came.
        label: What the user calls the server.
    """
    taken: dict[str, tuple[Served, Any]] = {}
    problems: list[Problem] = []
    seen: set[str] = set()
    for row in rows:
        try:
            served = _entry(row, seen)
        except Unusable as exc:
            if len(problems) < _MOST_PROBLEMS:
                values = {"server": label, "name": _shown(row), "why": str(exc)}
                problems.append(Problem("served-refused", values=values))
            continue
        taken[served.id] = (served, row)
    found = _told_apart([served for served, _ in taken.values()], label, problems)
    return found, problems, [row for _, row in taken.values()]


def _entry(row: Any, seen: set[str]) -> Served:
    """One entry, if it can be taken; its address is noted in `seen`."""
    if not isinstance(row, dict):
        raise Unusable("the entry is no object")
    entry = cast("dict[str, Any]", row)
    uri, frontmatter, resources = (entry.get(key) for key in ("uri", "frontmatter", "resources"))
    if not isinstance(uri, str) or not isinstance(frontmatter, dict):
        raise Unusable("the entry has no address or no frontmatter")
    fields = cast("dict[str, Any]", frontmatter)
    if resources == "dynamic":
        raise Unusable("its content changes from read to read, so nobody could approve it")
    if not isinstance(resources, list):
        raise Unusable("the entry does not list its files")
    name = _named(fields)
    description = fields.get("description")
    if not isinstance(description, str) or not description.strip():
        raise Unusable("it has no description")
    _bounded(fields)
    scheme, parts = _parts(uri)
    if len(parts) < 2 or parts[-1] != OWN:
        raise Unusable("its address does not end in `SKILL.md`")
    if parts[-2] != name:
        raise Unusable("the last part of its address is not its name")
    base = parts[:-1]
    skill_id = "~".join(base) if scheme == "skill" else "~".join((scheme, *base))
    if any("~" in part for part in base) or len(skill_id.encode()) > _MAX_PART:
        raise Unusable("it has an address that could lead elsewhere")
    if skill_id.casefold() in seen:
        raise Unusable("another skill in the list has the same address")
    files = _files(cast("list[Any]", resources), scheme, base)
    own = files.get(OWN)
    if own is None or own.uri != uri:
        raise Unusable("its SKILL.md is not among its files")
    seen.add(skill_id.casefold())
    return Served(skill_id, name, uri, fields, files, mark_of(uri, fields, files))


def _named(fields: dict[str, Any]) -> str:
    name = fields.get("name")
    if not isinstance(name, str) or not _is_name(name):
        raise Unusable("its name is no name of a skill")
    if not name.isascii():
        from satchel.security.unseen import mixed

        if mixed(name):
            raise Unusable("its name mixes letters of two alphabets that look alike")
    return name


def _bounded(fields: dict[str, Any]) -> None:
    import json

    try:
        size = len(json.dumps(fields).encode("utf-8"))
    except (ValueError, RecursionError):
        raise Unusable("its frontmatter has text that is no text") from None
    if size > _MAX_FRONTMATTER:
        raise Unusable("its frontmatter is too large")


def _files(rows: list[Any], scheme: str, base: list[str]) -> dict[str, ServedFile]:
    if len(rows) > MAX_FILES:
        raise Unusable(f"it has more than {MAX_FILES} files")
    files: dict[str, ServedFile] = {}
    seen: set[str] = set()
    total = 0
    for row in rows:
        file = _file(row, scheme, base)
        alike = unicodedata.normalize("NFC", file.path).casefold()
        if alike in seen:
            raise Unusable("two of its files have the same name, or differ in case alone")
        seen.add(alike)
        files[file.path] = file
        total += file.size
        if total > MAX_SIZE:
            raise Unusable(f"it has more than {MAX_SIZE} bytes")
    for alike in seen:
        while "/" in alike:
            alike = alike.rpartition("/")[0]  # noqa: PLW2901 - up, folder by folder
            if alike in seen:
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
    if size > MAX_SIZE:
        raise Unusable(f"it has more than {MAX_SIZE} bytes")
    own, parts = _parts(uri)
    if own != scheme or parts[: len(base)] != base or len(parts) <= len(base):
        raise Unusable("one of its files lies outside its folder")
    return ServedFile("/".join(parts[len(base) :]), uri, found[1], size)


def _parts(uri: str) -> tuple[str, list[str]]:
    """The scheme and the names of an address, each of which can only be one name in one folder."""
    found = _SCHEME.fullmatch(uri) if len(uri) <= _MAX_PATH else None
    if found is None or "?" in uri or "#" in uri:
        raise Unusable("it has an address that is none")
    parts = [_decoded(part) for part in found[2].split("/")]
    if len(parts) > _MAX_PARTS or not all(map(_is_part, parts)):
        raise Unusable("it has an address that could lead elsewhere")
    return found[1], parts


def _decoded(part: str) -> str:
    """A part as it is meant; nothing when it is no text."""
    try:
        return unquote(part, errors="strict")
    except UnicodeDecodeError:
        return ""


def _is_part(part: str) -> bool:
    """Whether a text is the name of one file or folder on every system, and nothing else."""
    try:
        size = len(part.encode())
    except UnicodeEncodeError:
        return False
    return (
        0 < size <= _MAX_PART
        and not part.endswith((".", " "))
        and part[0] != " "
        and not any(sign in '/\\:*?"<>|%' for sign in part)
        and part.isprintable()
        and not _RESERVED.fullmatch(part)
        and os.path.basename(part) == part
    )


def _is_name(name: str) -> bool:
    """By the published format: lower-case letters and digits, with single hyphens between them."""
    return (
        0 < len(name) <= _MAX_NAME
        and name == name.lower()
        and unicodedata.normalize("NFKC", name) == name
        and all(part.isalnum() for part in name.split("-"))
    )


def _told_apart(found: list[Served], label: str, problems: list[Problem]) -> dict[str, Served]:
    """Skills of one name each get the path that tells them apart; none is dropped for another."""
    names: dict[str, int] = {}
    for served in found:
        names[served.name] = names.get(served.name, 0) + 1
    told: dict[str, Served] = {}
    for served in found:
        offered = served.name
        longer = served.id.replace("~", "-")
        if names[served.name] > 1 and longer != offered and longer not in names:
            values = {"server": label, "name": served.name, "offered": longer}
            if len(problems) < _MOST_PROBLEMS:
                problems.append(Problem("served-renamed", served.uri, values=values))
            offered = longer
        told[served.id] = served._replace(name=offered)
    return told


def _shown(row: Any) -> str:
    """What to call an entry that may be anything."""
    uri = cast("dict[str, Any]", row).get("uri") if isinstance(row, dict) else row
    text = str(uri)[: 4 * _SHOWN]
    plain = "".join(sign if sign.isprintable() and sign != "`" else "?" for sign in text)
    return plain if len(plain) <= _SHOWN else plain[:_SHOWN] + "…"
