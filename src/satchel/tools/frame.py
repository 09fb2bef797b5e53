"""How text from files is handed to a model so that it cannot pose as ours.

A frame is a pair of tags around somebody else's text. Inside, every `<` that begins one of our
tags is written `&lt;`, however it is disguised: other case, spaces, invisible signs, look-alike
letters. So a frame ends where we end it, and no text opens one.
"""

from __future__ import annotations

import re
import unicodedata

from satchel._language import Message, edited

TAGS = ("skill-loaded", "skill-files", "file-read", "available-skills", "skills", "tool-output")
"""What only we may write."""

_GAP = r"[\s\\/!?_\x00-\x1f\x7f-]*+"
_ANY = "|".join(_GAP.join(tag.replace("-", "")) for tag in TAGS)
_TAG = re.compile(f"<{_GAP}(?:{_ANY})(?![a-z0-9])", re.IGNORECASE)
_LOOK_ALIKE = {
    "ѕ": "s", "ꜱ": "s", "к": "k", "κ": "k", "і": "i", "ı": "i", "ι": "i", "ӏ": "l", "ⅼ": "l",
    "о": "o", "ο": "o", "а": "a", "α": "a", "ԁ": "d", "ⅾ": "d", "е": "e", "ε": "e", "г": "r",
    "ƒ": "f", "ν": "v", "ь": "b", "‹": "<", "〈": "<", "⟨": "<", "᚜": "<", "˂": "<", "∕": "/",
    "⁄": "/", "⧸": "/",
}  # fmt: skip
_NOTHING = ("Cf", "Cc", "Mn", "Me", "Zs", "Zl", "Zp", "Co", "Cn", "Cs", "Pd", "Pc")


class _Plain(dict[int, int]):
    """Each sign as the ASCII sign it looks like, worked out when first met."""

    def __missing__(self, code: int) -> int:
        if len(self) > 20_000:
            self.clear()  # a text with every sign there is must not fill the memory
        sign = chr(code)
        if code < 128:
            found = sign
        else:
            found = _LOOK_ALIKE.get(sign) or _LOOK_ALIKE.get(sign.lower()) or ""
            if not found:
                found = unicodedata.normalize("NFKC", sign)
                if unicodedata.category(sign) in _NOTHING or sign in "\u3164\u115f\u1160\uffa0":
                    found = " "
        # Exactly one sign for one sign: places in the copy are places in the original.
        self[code] = ord(found) if len(found) == 1 else code
        return self[code]


_plain = _Plain()


def disarm(text: str) -> tuple[str, int]:
    """Write `&lt;` where the text would begin one of our tags; also how often that was."""
    if text.isascii():
        if "<" not in text:
            return text, 0
        places = [match.start() for match in _TAG.finditer(text)]
    else:
        places = [match.start() for match in _TAG.finditer(text.translate(_plain))]
    if not places:
        return text, 0
    parts: list[str] = []
    done = 0
    for place in places:
        parts += (text[done:place], "&lt;")
        done = place + 1
    parts.append(text[done:])
    return "".join(parts), len(places)


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
        if (not limit or len(text) <= limit) and not disarm(text)[1]:
            return text
    text = printable(" ".join(text.split()))
    if limit and len(text) > limit:
        cut = text[: limit - 1]
        space = cut.rfind(" ")
        text = (cut[:space] if space > limit // 2 else cut).rstrip(" ,;:.-") + "…"
    return disarm(text)[0]


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
