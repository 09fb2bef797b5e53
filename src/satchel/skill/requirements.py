"""What a skill requires of the machine and of the library: `SkillRequirements`.

Agents have no common field for it. These forms are read, with the names that real skills use:

    requires: (or requirements:)            also below `metadata`, and below `metadata.<vendor>`
      bins: [ffmpeg]                        programs, each must be there
      anyBins: [npm, pnpm]                  programs, one of them must be there
      env: [API_KEY]                        environment variables or secrets
      skills: [pdf-forms]                   other skills
      mcp: [github]                         MCP servers of the host
      os: [linux, darwin]
    prerequisites: {commands: [...], env_vars: [...]}
    dependencies: {skills: [...]}
    platforms: [macos]                      also `os` below `metadata` and `metadata.<vendor>`

A value that cannot be read in one way only, such as a sentence, is no requirement: a skill must not
be hidden because of a guess.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple, cast

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_FIELD_BY_KEY = {
    "bins": "bins", "bin": "bins", "binaries": "bins", "commands": "bins",
    "anybins": "any_bins",
    "env": "env", "envvars": "env",
    "skills": "skills",
    "mcp": "mcp", "mcpservers": "mcp",
    "os": "platforms", "platform": "platforms", "platforms": "platforms",
}  # fmt: skip
"""Key, in lower case without `_` and `-` -> field of `SkillRequirements`."""
_KEYS_BY_TABLE = {
    "requires": frozenset(_FIELD_BY_KEY),
    "requirements": frozenset(_FIELD_BY_KEY),
    "prerequisites": frozenset(_FIELD_BY_KEY) - {"skills"},
    "dependencies": frozenset(("skills",)),  # its other keys are names of packages
}
REQUIREMENT_KEYS = (*_KEYS_BY_TABLE, "platforms", "metadata")
"""The fields that may contain requirements."""
_PLATFORMS = {
    "darwin": "macos", "mac": "macos", "macos": "macos", "osx": "macos",
    "linux": "linux",
    "win": "windows", "win32": "windows", "windows": "windows",
}  # fmt: skip
SANDBOX_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""The PATH of programs of skills in a sandbox."""
_MAX_NAMES = 32
_MAX_NAME_CHARS = 100
_VERSION = r"(?:\s*[<>=~^!].*)?"
_NAME_BY_KIND = {
    "bins": re.compile(rf"([A-Za-z0-9_][\w.+-]*){_VERSION}", re.ASCII),
    "env": re.compile(r"([A-Za-z_]\w*)", re.ASCII),
    "mcp": re.compile(r"([A-Za-z0-9@][\w./@-]*)", re.ASCII),
    "skills": re.compile(rf"(?:[\w.-]+/)*(\w[\w.-]*){_VERSION}"),
}
_NAME_BY_KIND["any_bins"] = _NAME_BY_KIND["bins"]
_KEY_FRAGMENTS = ("equire", "rerequis", "ependencies", "latforms", "os:", 'os"')


class SkillRequirements(NamedTuple):
    """What a skill requires; each name is plain text without spaces."""

    bins: tuple[str, ...] = ()
    """Programs, all of which must be there."""
    any_bins: tuple[str, ...] = ()
    """Programs, one of which must be there."""
    env: tuple[str, ...] = ()
    """Environment variables or secrets."""
    mcp: tuple[str, ...] = ()
    """MCP servers of the host, which Satchel cannot see: never unmet."""
    skills: tuple[str, ...] = ()
    """Other skills, by name or id."""
    platforms: tuple[str, ...] = ()
    """`linux`, `macos` or `windows`; empty for every platform."""


def may_have_requirements(block: str) -> bool:
    """Whether a frontmatter may have requirements; fast, and true too often."""
    return any(fragment in block for fragment in _KEY_FRAGMENTS)


def read_requirements(fields: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """The requirements in a frontmatter, as the non-empty fields of `SkillRequirements`.

    Args:
        fields: The values of `REQUIREMENT_KEYS`, as far as the frontmatter has them.
    """
    requirements: dict[str, list[str]] = {}
    for key, value in _find_values(fields):
        kind = _FIELD_BY_KEY[key]
        kind_names = requirements.setdefault(kind, [])
        names = _read_platforms(value) if kind == "platforms" else _read_names(kind, value)
        kind_names += [name for name in dict.fromkeys(names) if name not in kind_names]
    return {
        kind: tuple(names[:_MAX_NAMES]) for kind, names in sorted(requirements.items()) if names
    }


def _find_values(fields: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The keys of `_FIELD_BY_KEY` and their values, wherever they count."""
    yield from _find_in_table(fields, is_frontmatter=True)
    metadata = _as_map(fields.get("metadata"))
    if not metadata.get("always"):
        yield from _find_in_table(metadata)
    for vendor in metadata.values():
        table = _as_map(vendor)
        if not table.get("always"):  # `always: true` of OpenClaw switches its checks off
            yield from _find_in_table(table)


def _find_in_table(
    table: Mapping[str, Any], *, is_frontmatter: bool = False
) -> Iterator[tuple[str, Any]]:
    for key, allowed in _KEYS_BY_TABLE.items():
        for name, value in _as_map(table.get(key)).items():
            normalized_name = str(name).lower().replace("_", "").replace("-", "")
            if normalized_name in allowed:
                yield normalized_name, value
    for key in ("platforms",) if is_frontmatter else ("os", "platforms"):
        if key in table:
            yield key, table[key]


def _as_map(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}


def _list_items(value: Any) -> list[Any]:
    listed = value.split(",") if isinstance(value, str) else value
    items = cast("list[Any]", listed) if isinstance(listed, list) else []
    return [item for item in items if str(item).strip().lower() not in ("", "none")]


def _read_names(kind: str, value: Any) -> list[str]:
    """The names of a list, or of a line; none of a line in which anything else is written."""
    items = _list_items(value)
    names: list[str] = []
    for item in items:
        if isinstance(item, dict):
            table = cast("dict[str, Any]", item)
            if table.get("required") is False or table.get("optional") or "default" in table:
                continue
            item = table.get("name")  # noqa: PLW2901
        text = item.strip() if isinstance(item, str) else ""
        match = _NAME_BY_KIND[kind].fullmatch(text) if len(text) <= _MAX_NAME_CHARS else None
        if match is not None:
            names.append(match.group(1))
        elif isinstance(value, str):
            return []
    # Of several programs of which one suffices, all must be understood.
    return names if kind != "any_bins" or len(names) == len(items) else []


def _read_platforms(value: Any) -> list[str]:
    """The platforms; none when a name is not of an operating system that is known here."""
    platforms = [_PLATFORMS.get(str(item).strip().lower(), "") for item in _list_items(value)]
    return platforms if all(platforms) else []
