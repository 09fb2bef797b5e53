"""The code blocks of the five documents, read from the documents while the tests run.

A block is used as it stands. What must differ is in `CHANGES`, each row with its reason.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

_FENCED = re.compile(r"^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


class Change(NamedTuple):
    """A part of a block that cannot be used as it stands."""

    document: str
    old: str
    new: str
    reason: str


CHANGES: tuple[Change, ...] = ()


class Block(NamedTuple):
    """A fenced block."""

    document: str
    """A for `000_….txt` up to E for `004_….txt`."""
    line: int
    language: str
    text: str


class Documents:
    """The documents in a folder."""

    def __init__(self, folder: Path) -> None:
        """Read them; their order by name gives the letters."""
        self.texts = {
            letter: path.read_text(encoding="utf-8")
            for letter, path in zip("ABCDE", sorted(folder.glob("*.txt")), strict=True)
        }

    def blocks(self, document: str) -> list[Block]:
        """All blocks of a document, in order, with the changes of the table."""
        text = self.texts[document]
        return [
            Block(
                document,
                text.count("\n", 0, match.start()) + 1,
                match["language"],
                _changed(document, match["text"]),
            )
            for match in _FENCED.finditer(text)
        ]

    def block(self, document: str, part: str) -> str:
        """The text of the first block that contains `part`."""
        return next(block.text for block in self.blocks(document) if part in block.text)

    def run(self, document: str, part: str, **names: object) -> dict[str, object]:
        """Run a Python block with these names defined before it; the names after it."""
        exec(compile(self.block(document, part), f"document {document}", "exec"), names)
        return names


def _changed(document: str, text: str) -> str:
    for change in CHANGES:
        if change.document == document:
            text = text.replace(change.old, change.new)
    return text
