"""How can text that a stranger wrote stand inside the block without breaking out of it?

Two steps. `clean` makes one line of visible characters; then one function per form quotes what
means something in that form. A name or description that went through both cannot end its entry,
begin another, or hide words from the person who reads the prompt.
"""

from __future__ import annotations

import re

# What shows nothing: controls, bidirectional marks, fillers, private use, tags, selectors that no
# emoji needs, halves of surrogate pairs. By code point, not by Python's Unicode tables, so that
# two versions of Python write the same bytes.
_UNSEEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f"
    "\u2028-\u202e\u2060-\u206f\u3164\ud800-\udfff\ue000-\uf8ff\ufdd0-\ufdef\ufe00-\ufe0d\ufeff"
    "\uffa0\ufff0-\ufffb\ufffe\uffff\U000e0000-\U000e0fff\U000f0000-\U0010ffff]+"
)
# Joiners and emoji selectors mean something between two other letters; in a row they hide bits.
_STRAY = re.compile(
    "(?<![^\x00-\x7f\u200c\u200d])[\u200c\u200d]+|[\u200c\u200d](?![^\x00-\x7f\u200c\u200d])"
    "|(?<=[\ufe0e\ufe0f])[\ufe0e\ufe0f]+"
)
_TICKS = re.compile("`+")
_MARKED = re.compile(r"[\\`\[\]<>]")


def clean(text: str) -> str:
    """One line of visible characters; clean text comes back as it is."""
    text = " ".join(text.split())
    if text.isascii() and text.isprintable():
        return text
    return " ".join(_STRAY.sub("", _UNSEEN.sub("", text)).split())


def xml_text(text: str) -> str:
    """Text between two tags."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def xml_value(text: str) -> str:
    """An attribute's value, with its quotes."""
    return f'"{xml_text(text).replace(chr(34), "&quot;")}"'


def markdown_text(text: str) -> str:
    """Text in a list item: no code, link, image or tag begins in it."""
    return _MARKED.sub(r"\\\g<0>", text)


def markdown_code(text: str) -> str:
    """A code span that holds exactly `text`, whatever backticks are in it."""
    fence = "`"
    if "`" in text:
        fence *= 1 + max(len(run) for run in _TICKS.findall(text))
        if text[0] == "`" or text[-1] == "`":
            text = f" {text} "
    return f"{fence}{text}{fence}"


def json_text(text: str) -> str:
    """A JSON string, with its quotes."""
    import json

    return json.dumps(text, ensure_ascii=False)
