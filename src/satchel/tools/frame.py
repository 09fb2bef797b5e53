"""Frames around text from files and programs, so that a model can tell it from Satchel's own.

A frame is a pair of tags that carry the same nonce. The nonce is random, made after the text was
read, and does not occur in it: no text can close its frame or open another one. Nonces appear only
in tool results, so that the prompt keeps its bytes.
"""

from __future__ import annotations

import os

from satchel._language import Message, edited

_NONCE_BYTES = 6


def make_nonce(*texts: str) -> str:
    """A random word that occurs in none of the texts."""
    while True:
        nonce = os.urandom(_NONCE_BYTES).hex()
        if not any(nonce in text for text in texts):
            return nonce


def framed(tag: str, marks: str, text: str, nonce: str = "") -> str:
    """A text between two tags.

    Args:
        tag: The name of the tags.
        marks: Attributes of the opening tag, quoted already.
        text: What stands between them.
        nonce: One that `make_nonce` made for the text; a new one when empty.
    """
    nonce = nonce or make_nonce(text)
    ending = "" if not text or text.endswith("\n") else "\n"
    return f'<{tag} {marks} nonce="{nonce}">\n{text}{ending}</{tag} nonce="{nonce}">'


def printable(text: str) -> str:
    r"""One visible line: signs that show nothing or break lines are written as `\uXXXX`."""
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() else _code(sign) for sign in text)


def _code(sign: str) -> str:
    code = ord(sign)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def attribute(text: str) -> str:
    """A value that cannot leave its quotes."""
    text = printable(text).replace("&", "&amp;").replace('"', "&quot;")
    return text.replace("<", "&lt;").replace(">", "&gt;")


def one_line(text: str, limit: int = 0) -> str:
    """A text from a file as part of one of our lines, shortened at a word's end.

    A message that is short enough stays one.
    """
    if isinstance(text, Message):
        text = edited(text, one_line)
        if not limit or len(text) <= limit:
            return text
    text = printable(" ".join(text.split()))
    if limit and len(text) > limit:
        cut = text[: limit - 1]
        space = cut.rfind(" ")
        text = (cut[:space] if space > limit // 2 else cut).rstrip(" ,;:.-") + "…"
    return text


def encodable(text: str) -> str:
    """The text without half signs, which no reply can carry."""
    if text.isascii():
        return text
    return text.encode("utf-8", "replace").decode()


def size_of(count: int) -> str:
    """A file's size as people write it."""
    if count < 1_000:
        return f"{count} B"
    if count < 1_000_000:
        return f"{count / 1_000:.1f} kB"
    return f"{count / 1_000_000:.1f} MB"


def plural(count: int, word: str) -> str:
    """`1 file`, `2 files`."""
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"
