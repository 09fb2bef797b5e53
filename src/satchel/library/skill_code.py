"""What the code in a skill's folder uses, found with patterns: programs, variables and hosts.

The results help a person who reviews a skill. They are no protection: code can hide what it uses.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from typing import TYPE_CHECKING

from satchel._fs import read_plain

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_MAX_CODE_BYTES = 200_000
_CODE_ENDINGS = (".bash", ".cjs", ".js", ".mjs", ".py", ".sh", ".ts")
_SHELL_ENDINGS = (".bash", ".sh")
_VARIABLE_READ = re.compile(
    rb"""(?:environ(?:\.\w+)?|getenv|process\.env)\s*(?:[\[(]\s*['"]|\.)([A-Z][A-Z0-9_]+)\b"""
)
"""A read of an environment variable in Python or JavaScript."""
_SHELL_VARIABLE_READ = re.compile(rb"\$\{?([A-Z][A-Z0-9_]+)\b")
_SHELL_ASSIGNMENT = re.compile(
    rb"\b([A-Z][A-Z0-9_]+)(?:\[\w+\])?\+?=|\b(?:for|read(?:[ \t]+-\w+)*)[ \t]+([A-Z][A-Z0-9_]+)\b"
)
_ALWAYS_SET = frozenset((
    "BASH_REMATCH", "BASH_SOURCE", "BASH_VERSION", "EUID", "FUNCNAME", "HOME", "HOSTNAME", "IFS",
    "LANG", "LINENO", "OPTARG", "OPTIND", "OSTYPE", "PATH", "PIPESTATUS", "PPID", "PWD", "RANDOM",
    "REPLY", "SATCHEL_SCRATCH", "SATCHEL_SKILL_DIR", "SATCHEL_WORKSPACE", "SECONDS", "SHELL",
    "TERM", "TMPDIR", "TZ", "UID", "USER",
))  # fmt: skip
"""Variables that a script has, or needs no value of the user's for."""
_NETWORK_CLIENT = re.compile(
    rb"""\b(?:requests|httpx|aiohttp|urllib3?|http\.client|socket|websockets?|axios|undici|node-fetch"""
    rb"""|XMLHttpRequest|curl|wget|fetch\s*\(|https?\.(?:get|request)\b|git\s+clone)"""
)
"""How code names what uses the network."""
_URL_HOST = re.compile(rb"""://(?:[^\s/@'"<>]{1,80}@)?([A-Za-z0-9][A-Za-z0-9.-]{2,250})""")
_COMMENT_OR_DOCSTRING = re.compile(
    rb"""^\s*(?:#|//|\*|/\*).*$|\"{3}[\s\S]*?\"{3}|'{3}[\s\S]*?'{3}""", re.MULTILINE
)
"""Lines of comments, and texts of several lines."""
_NAMESPACE_HOSTS = (
    "w3.org", "openxmlformats.org", "schemas.microsoft.com", "xmlsoap.org", "purl.org",
    "schema.org", "json-schema.org", "oasis-open.org", "ns.adobe.com", "inkscape.org",
)  # fmt: skip
"""Hosts that name XML and JSON schemas, and are not contacted."""


def is_in_code(folder: str, names: Sequence[str]) -> bool:
    """Whether a file of code in a skill's folder has one of the names as a word."""
    word = re.compile(rf"(?<![\w-])(?:{'|'.join(map(re.escape, names))})(?![\w-])".encode())
    return any(word.search(code) for _, code in _read_code_files(folder))


def variables_read(folder: str) -> set[str]:
    """The environment variables that the code in a skill's folder reads, without usual ones."""
    names: set[bytes] = set()
    for file_name, code in _read_code_files(folder):
        if file_name.endswith(_SHELL_ENDINGS):
            assigned = _SHELL_ASSIGNMENT.findall(code)
            names |= set(_SHELL_VARIABLE_READ.findall(code)).difference(*assigned)
        else:
            names.update(_VARIABLE_READ.findall(code))
    return {name.decode() for name in names} - _ALWAYS_SET


def hosts_contacted(folder: str) -> tuple[str, ...]:
    """The hosts that the code in a skill's folder seems to contact, sorted.

    Only files that use the network count, without comments, documentation and XML namespaces.
    """
    hosts: set[str] = set()
    for _, code in _read_code_files(folder):
        if _NETWORK_CLIENT.search(code):
            statements = _COMMENT_OR_DOCSTRING.sub(b"", code)
            names = _URL_HOST.findall(statements)
            hosts.update(name.decode().lower().rstrip(".") for name in names)
    return tuple(sorted(host for host in hosts if not host.endswith(_NAMESPACE_HOSTS)))


def _read_code_files(folder: str) -> Iterator[tuple[str, bytes]]:
    """Yield the name and the content of each file of code."""
    for parent, _, file_names in os.walk(folder):
        for name in file_names:
            if name.endswith(_CODE_ENDINGS):
                with suppress(OSError):
                    yield name, read_plain(os.path.join(parent, name), _MAX_CODE_BYTES)
