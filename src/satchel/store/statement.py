"""The text that a signature covers: one digest over every file of a skill but the signature.

    satchel-skill-1
    tree: sha256:…

The text is the same on every machine and needs no Satchel to be read or checked: `ssh-keygen` signs
it as it is. A skill's name is in its SKILL.md, and so in the digest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from satchel.skill.tree import digest_of, seal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from satchel.skill.tree import Tree

SIGNATURE = "SKILL.sig"
"""A signature by `ssh-keygen -Y sign`."""
NAMESPACE = "satchel"
"""Keeps a signature over something else, a git commit say, from counting here."""
_FIRST = "satchel-skill-1"


def signed_digest(tree: Tree) -> str:
    """The digest of a skill without its signature: signing it does not change it."""
    return signed_digest_of(seal(tree).files)


def signed_digest_of(files: Mapping[str, str]) -> str:
    """The same from fingerprints that are known already, as in `Seal.files` and in a lock."""
    return digest_of({path: mark for path, mark in files.items() if path != SIGNATURE})


def statement(tree: Tree) -> bytes:
    """The text that is signed."""
    return statement_of(signed_digest(tree))


def statement_of(digest: str) -> bytes:
    """The text that is signed, for a digest by `signed_digest`."""
    return f"{_FIRST}\ntree: {digest}\n".encode()
