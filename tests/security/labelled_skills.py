"""The labelled skills of `skills/*.txt`: attacks, and honest ones that look dangerous.

`##### class language name: description` starts a skill, whose text is its SKILL.md; `@@@ path`
starts a further file, and `@@@ path kind` a picture with the text as its metadata. `held_out.txt`
was written before the rules, which were never changed because of it. A `¦` is left out: it keeps
names of package sources out of the project.
"""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parent / "skills"


class LabelledSkill(NamedTuple):
    """A skill and its class."""

    label: str
    name: str
    files: dict[str, bytes]


def load_skills(name: str) -> list[LabelledSkill]:
    """The skills of one file."""
    text = (FOLDER / f"{name}.txt").read_text(encoding="utf-8").replace("¦", "")
    return [_skill(part) for part in text.split("##### ")[1:]]


def _skill(text: str) -> LabelledSkill:
    head, _, body = text.partition("\n")
    label, _language, about = head.split(" ", 2)
    name, _, description = about.partition(": ")
    page, *others = body.split("@@@ ")
    files = {"SKILL.md": f"---\nname: {name}\ndescription: {description}\n---\n{page}".encode()}
    for other in others:
        where, _, content = other.partition("\n")
        path, _, kind = where.partition(" ")
        files[path] = picture(kind, content.strip()) if kind else content.encode()
    return LabelledSkill(label, name, files)


def picture(kind: str, text: str) -> bytes:
    """A PNG, JPEG or GIF with a text that viewers do not show."""
    data = text.encode()
    if kind == "COM":
        return b"\xff\xd8\xff\xfe" + struct.pack(">H", len(data) + 2) + data + b"\xff\xd9"
    if kind == "comment":
        blocks = [data[at : at + 255] for at in range(0, len(data), 255)]
        packed = b"".join(bytes([len(block)]) + block for block in blocks)
        return b"GIF89a\1\0\1\0\0\0\0!\xfe" + packed + b"\0;"
    if kind == "iTXt":
        chunk = b"iTXtDescription\0\0\0en\0\0" + data
    elif kind == "zTXt":
        chunk = b"zTXtComment\0\0" + zlib.compress(data)
    else:
        chunk = b"tEXtComment\0" + data
    header = b"IHDR" + struct.pack(">LLBBBBB", 1, 1, 8, 0, 0, 0, 0)
    pixels = b"IDAT" + zlib.compress(b"\0\0")
    return b"\x89PNG\r\n\x1a\n" + b"".join(map(_chunk, (header, chunk, pixels, b"IEND")))


def _chunk(body: bytes) -> bytes:
    return struct.pack(">L", len(body) - 4) + body + struct.pack(">L", zlib.crc32(body))
