"""Validates the list of skills that an MCP server sends.

Nothing in a list is trusted: an entry is refused as a whole unless every file has one name below
the skill's own folder, a SHA-256 digest and a size within the limits of the extension.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from urllib.parse import unquote

from satchel._unicode import replace_unprintable
from satchel.i18n import Message
from satchel.library.supplier import SKILL_FILE, ServedFile, ServedSkill
from satchel.skill.file_tree import digest_of
from satchel.skill.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping

MAX_FILES = 512
"""Files of one skill, a limit of the extension."""
MAX_SKILL_BYTES = 16 << 20
"""Bytes of one skill, a limit of the extension."""
_MAX_FRONTMATTER_BYTES = 64 * 1024
_MAX_URI_CHARS = 1024
_MAX_PATH_NAME_BYTES = 200
_MAX_PATH_NAMES = 16
_MAX_PROBLEMS = 100
_MAX_NAME_CHARS_SHOWN = 80
_SKILL_NAME = re.compile(r"(?=.{1,64}\Z)[^\W_]+(?:-[^\W_]+)*")
_SHA256_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
_SCHEME_AND_PATH = re.compile(r"([a-z][a-z0-9+.-]*)://([^?#]+)", re.DOTALL)
_DEVICE_NAME = re.compile(r"(?i:con|prn|aux|nul|com\d|lpt\d)(?:\..*)?")
"""Names that Windows reserves for devices."""


class InvalidEntry(ValueError):
    """An entry of a list is refused; its text is the reason, as a phrase."""


class _SkillAddress(NamedTuple):
    """The address of a file of a skill, split into its parts."""

    scheme: str
    names: list[str]
    """Each is one name in one folder."""


def read_entries(
    entries: Iterable[Any], label: str
) -> tuple[dict[str, ServedSkill], list[Problem]]:
    """Validate the entries of a list.

    Args:
        entries: The entries as JSON values.
        label: The user's name for the server.

    Returns:
        The valid skills by id, and the problems of the others.
    """
    skills_by_folded_id: dict[str, ServedSkill] = {}
    problems: list[Problem] = []
    for entry in entries:
        try:
            served = _read_entry(entry, skills_by_folded_id)
            skills_by_folded_id[served.id.casefold()] = served
        except InvalidEntry as exc:
            values = {"server": label, "name": _display_name(entry), "why": exc.args[0]}
            problems.append(Problem("served-refused", values=values))
    named = _rename_duplicates(list(skills_by_folded_id.values()), label, problems)
    return named, problems[:_MAX_PROBLEMS]


def _read_entry(entry: Any, used_ids: Container[str]) -> ServedSkill:
    """Validate one entry.

    Args:
        entry: The entry.
        used_ids: The ids of earlier entries, case-folded.

    Raises:
        InvalidEntry: it is refused.
    """
    if not isinstance(entry, dict):
        raise InvalidEntry("it is not valid")
    table = cast("dict[str, Any]", entry)
    uri, frontmatter, resources = (table.get(key) for key in ("uri", "frontmatter", "resources"))
    if not isinstance(uri, str) or not isinstance(frontmatter, dict):
        raise InvalidEntry("it is not valid")
    if resources == "dynamic":
        raise InvalidEntry("its content changes from read to read")
    if not isinstance(resources, list):
        raise _invalid_files("resources")
    fields = cast("dict[str, Any]", frontmatter)
    name = _check_frontmatter(fields)
    address = _split_uri(uri)
    if address.names[-2:] != [name, SKILL_FILE]:
        raise _invalid_address(uri)
    folder = address._replace(names=address.names[:-1])
    skill_id = _make_id(uri, folder, used_ids)
    files = _read_files(cast("list[Any]", resources), folder)
    if SKILL_FILE not in files or files[SKILL_FILE].uri != uri:
        raise _invalid_files(SKILL_FILE)
    return ServedSkill(
        id=skill_id,
        name=name,
        uri=uri,
        frontmatter=fields,
        files=files,
        digest=_served_digest(uri, fields, files),
    )


def _make_id(uri: str, folder: _SkillAddress, used_ids: Container[str]) -> str:
    """The names of a skill's folder in one; other schemes than `skill` come first.

    Raises:
        InvalidEntry: the id is not valid, or another entry has it.
    """
    scheme = () if folder.scheme == "skill" else (folder.scheme,)
    skill_id = "~".join((*scheme, *folder.names))
    if (
        any("~" in name for name in folder.names)
        or len(skill_id.encode()) > _MAX_PATH_NAME_BYTES
        or skill_id.casefold() in used_ids
    ):
        raise _invalid_address(uri)
    return skill_id


def _served_digest(
    uri: str, frontmatter: Mapping[str, Any], files: Mapping[str, ServedFile]
) -> str:
    """The digest over everything that is listed for a skill."""
    rows = {path: f"sha256:{file.digest} {file.size} {file.uri}" for path, file in files.items()}
    # Paths contain no NUL, so these two rows cannot collide with a file.
    rows["\0uri"] = uri
    text = json.dumps(frontmatter, sort_keys=True, default=str)
    rows["\0frontmatter"] = sha256(text.encode()).hexdigest()
    return digest_of(rows)


def _check_frontmatter(fields: dict[str, Any]) -> str:
    """Check the frontmatter, and return the name in it."""
    from satchel.security.hidden_characters import mixes_scripts

    name, description = fields.get("name"), fields.get("description")
    if (
        not isinstance(name, str)
        or not _SKILL_NAME.fullmatch(name)
        or name != unicodedata.normalize("NFKC", name.lower())
    ):
        raise InvalidEntry("its name is not valid")
    if not name.isascii() and mixes_scripts(name):
        raise InvalidEntry("its name mixes letters of two alphabets that look alike")
    if not isinstance(description, str) or not description.strip():
        raise InvalidEntry(Message("its frontmatter is not valid: {part}", part="description"))
    try:
        size = len(json.dumps(fields).encode("utf-8"))
    except (ValueError, RecursionError):
        size = _MAX_FRONTMATTER_BYTES + 1
    if size > _MAX_FRONTMATTER_BYTES:
        limit = f"> {_MAX_FRONTMATTER_BYTES} B"
        raise InvalidEntry(Message("its frontmatter is not valid: {part}", part=limit))
    return name


def _read_files(resources: list[Any], folder: _SkillAddress) -> dict[str, ServedFile]:
    """Validate the listed files of a skill; returns them by path."""
    if len(resources) > MAX_FILES:
        raise InvalidEntry(Message("it is too large: the limit is {part}", part=MAX_FILES))
    files: dict[str, ServedFile] = {}
    folded_paths: set[str] = set()
    for resource in resources:
        file = _read_file(resource, folder)
        folded_path = unicodedata.normalize("NFC", file.path).casefold()
        if folded_path in folded_paths:
            raise _invalid_files(file.path)
        folded_paths.add(folded_path)
        files[file.path] = file
    if sum(file.size for file in files.values()) > MAX_SKILL_BYTES:
        raise InvalidEntry(Message("it is too large: the limit is {part}", part=MAX_SKILL_BYTES))
    folders = {
        path[:index] for path in folded_paths for index, sign in enumerate(path) if sign == "/"
    }
    if folders & folded_paths:
        raise _invalid_files(min(folders & folded_paths))
    return files


def _read_file(resource: Any, folder: _SkillAddress) -> ServedFile:
    table = cast("dict[str, Any]", resource) if isinstance(resource, dict) else {}
    uri, digest, size = (table.get(key) for key in ("uri", "digest", "size"))
    digest_match = _SHA256_DIGEST.fullmatch(digest) if isinstance(digest, str) else None
    if isinstance(size, float) and size.is_integer():
        size = int(size)
    if (
        not isinstance(uri, str)
        or digest_match is None
        or not isinstance(size, int)
        or isinstance(size, bool)
        or size < 0
    ):
        raise _invalid_files(str(uri))
    scheme, names = _split_uri(uri)
    depth = len(folder.names)
    if scheme != folder.scheme or names[:depth] != folder.names or len(names) <= depth:
        raise _invalid_files(uri)
    return ServedFile("/".join(names[depth:]), uri, digest_match[1], size)


def _split_uri(uri: str) -> _SkillAddress:
    """Split an address into its scheme and names."""
    match = _SCHEME_AND_PATH.fullmatch(uri) if len(uri) <= _MAX_URI_CHARS else None
    if match is None:
        raise _invalid_address(uri)
    # A byte sequence that is not UTF-8 becomes a character that no name may have.
    names = [unquote(name, errors="surrogateescape") for name in match[2].split("/")]
    if len(names) > _MAX_PATH_NAMES or not all(map(_is_path_name, names)):
        raise _invalid_address(uri)
    return _SkillAddress(match[1], names)


def _is_path_name(name: str) -> bool:
    """Whether a text is the name of one file or folder on every system."""
    return (
        name.isprintable()
        and 0 < len(name.encode()) <= _MAX_PATH_NAME_BYTES
        and not name.endswith((".", " "))
        and name[0] != " "
        and not any(sign in '/\\:*?"<>|%' for sign in name)
        and not _DEVICE_NAME.fullmatch(name)
    )


def _rename_duplicates(
    skills: list[ServedSkill], label: str, problems: list[Problem]
) -> dict[str, ServedSkill]:
    """Name skills of the same name by their paths: the extension forbids preferring one."""
    counts = Counter(served.name for served in skills)
    named: dict[str, ServedSkill] = {}
    for served in skills:
        long_name = served.id.replace("~", "-")
        if counts[served.name] > 1 and long_name not in counts:
            values = {"server": label, "name": served.name, "offered": long_name}
            problems.append(Problem("served-renamed", served.uri, values=values))
            named[served.id] = served._replace(name=long_name)
        else:
            named[served.id] = served
    return named


def _invalid_files(part: str) -> InvalidEntry:
    return InvalidEntry(Message("its list of files is not valid: {part}", part=_display_name(part)))


def _invalid_address(uri: str) -> InvalidEntry:
    return InvalidEntry(Message("its address is not valid: {part}", part=_display_name(uri)))


def _display_name(entry: Any) -> str:
    """Return how an entry, or the text in its place, is called in a problem."""
    uri = cast("dict[str, Any]", entry).get("uri") if isinstance(entry, dict) else entry
    text = str(uri)[: _MAX_NAME_CHARS_SHOWN + 1]
    plain = replace_unprintable(text, "?").replace("`", "?")
    is_short = len(plain) <= _MAX_NAME_CHARS_SHOWN
    return plain if is_short else plain[:_MAX_NAME_CHARS_SHOWN] + "…"
