"""Frames around text from files and programs, so that a model can distinguish it from Satchel's.

A frame is a pair of tags that carry the same nonce. The nonce is random, made after the text was
read, and does not occur in it: no text can close its frame or open another one. Nonces appear only
in tool results, so that the prompt keeps its bytes.
"""

from __future__ import annotations

import os

from satchel.i18n import Message, map_text

_NONCE_BYTES = 6


def make_nonce(*texts: str) -> str:
    """A random hex word that occurs in none of the texts."""
    while True:
        nonce = os.urandom(_NONCE_BYTES).hex()
        if not any(nonce in text for text in texts):
            return nonce


def framed(tag: str, marks: str, text: str, nonce: str = "") -> str:
    """Put a text between two tags."""
    nonce = nonce or make_nonce(text)
    ending = "" if not text or text.endswith("\n") else "\n"
    return f'<{tag} {marks} nonce="{nonce}">\n{text}{ending}</{tag} nonce="{nonce}">'


def printable(text: str) -> str:
    r"""One visible line: other characters are written as `\uXXXX`."""
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() else _escaped(ord(sign)) for sign in text)


def _escaped(code: int) -> str:
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def attribute(text: str) -> str:
    """Escape an attribute value."""
    text = printable(text).replace("&", "&amp;").replace('"', "&quot;")
    return text.replace("<", "&lt;").replace(">", "&gt;")


def one_line(text: str, limit: int = 0) -> str:
    """Collapse a text to one printable line, shortened at a word's end.

    A message that is short enough stays a message.
    """
    if isinstance(text, Message):
        text = map_text(text, one_line)
        if not limit or len(text) <= limit:
            return text
    text = printable(" ".join(text.split()))
    if limit and len(text) > limit:
        cut = text[: limit - 1]
        space = cut.rfind(" ")
        text = (cut[:space] if space > limit // 2 else cut).rstrip(" ,;:.-") + "…"
    return text


def encodable(text: str) -> str:
    """Replace lone surrogates, which JSON cannot carry."""
    if text.isascii():
        return text
    return text.encode("utf-8", "replace").decode()


def size_of(count: int) -> str:
    """A file size with a unit."""
    if count < 1_000:
        return f"{count} B"
    if count < 1_000_000:
        return f"{count / 1_000:.1f} kB"
    return f"{count / 1_000_000:.1f} MB"


def plural(count: int, word: str) -> str:
    """`1 file`, `2 files`."""
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"
