"""Reads a skill's `requirements.txt`, and what pip or uv resolved it to.

Both may name packages, versions, markers and hashes. They may not say where packages come from,
include another file, or name a path or an address: the user's own settings of pip or uv decide.
"""

from __future__ import annotations

import re

from satchel._language import say
from satchel.errors import BuildFailed
from satchel.runners.contents import read_inside

REQUIREMENTS = "requirements.txt"
_MOST = 256 * 1024

_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
_VERSION = r"(?:===|==|~=|!=|<=|>=|<|>)\s*[A-Za-z0-9.*+!_-]+"
_LINE = re.compile(
    rf"{_NAME}\s*(?:\[\s*{_NAME}(?:\s*,\s*{_NAME})*\s*\])?"
    rf"\s*\(?\s*(?:{_VERSION}(?:\s*,\s*{_VERSION})*)?\s*,?\s*\)?\s*"
    r"(?:;[\w\s.<>=!~()'\",+*-]+)?"
)
_HASH = re.compile(r"--hash[= ](?:sha256|sha384|sha512):[0-9a-fA-F]{64,128}")


def read_requirements(folder: str) -> str:
    """What `requirements.txt` asks for, one package a line; empty when there is none.

    Raises:
        BuildFailed: a line says something else than a package, a version, a marker or a hash.
    """
    raw = read_inside(folder, REQUIREMENTS, _MOST)
    if not raw:
        return ""
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        raise BuildFailed(
            say("`{file}` is not UTF-8", file=REQUIREMENTS), say("Save it as UTF-8")
        ) from exc
    kept, wrong = split_requirements(text)
    if wrong:
        lines = [say("line {line}: `{text}`", line=line, text=words) for line, words in wrong]
        raise BuildFailed(
            say("`{file}` may only name packages", file=REQUIREMENTS) + "\n" + "\n".join(lines),
            say(
                "Write `name==version`; options, addresses and paths are refused, "
                "and your own settings of pip or uv say where packages come from"
            ),
        )
    return "\n".join(kept)


def split_requirements(text: str) -> tuple[list[str], list[tuple[int, str]]]:
    """The lines that name a package, and all others with their numbers."""
    kept: list[str] = []
    wrong: list[tuple[int, str]] = []
    number, start, joined = 0, 0, ""
    for number, line in enumerate(text.splitlines(), 1):
        start = start or number
        bare = "" if line.lstrip().startswith("#") else re.sub(r"\s#.*$", "", line)
        if bare.rstrip().endswith("\\"):
            joined += bare.rstrip()[:-1] + " "
            continue
        whole = (joined + bare).strip()
        joined, first, start = "", start, 0
        if whole and _is_plain(whole):
            kept.append(re.sub(r"\s+", " ", whole))
        elif whole:
            wrong.append((first, whole[:80]))
    if joined.strip():
        wrong.append((number, "\\"))
    return kept, wrong


def _is_plain(line: str) -> bool:
    if line.startswith("-"):
        return False
    need, *options = re.split(r"\s+(?=--)", line)
    return bool(_LINE.fullmatch(need.strip())) and all(_HASH.fullmatch(one) for one in options)
