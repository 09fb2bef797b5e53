"""Versions of a skill compared: an update with the user's edits, and the disk with the lockfile.

Three versions of every file: the one that was installed (base), the one on disk (mine), and the
new one (theirs). Where only one side changed, that side wins; where both changed different lines,
both are kept. Where they changed the same lines nobody guesses: the file is a conflict.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from satchel.errors import SatchelError
from satchel.library.seal import generated
from satchel.skill.tree import File, FolderTree, Seal, digest_of, read_whole, seal
from satchel.store.signing import check_signature

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from satchel.library.lockfile import Locked
    from satchel.skill.tree import Mode, Tree
    from satchel.store.scope import Scope

_MOST_LINES = 4_000
"""Comparing is quadratic at worst; beyond this a text that both sides changed is a conflict."""


class Merged(NamedTuple):
    """What came of a merge."""

    tree: Tree | None
    """The result; None when there are conflicts."""
    conflicts: tuple[str, ...]
    """Files that both sides changed in the same lines, or that one side changed and one removed."""
    kept: tuple[str, ...]
    """Files where your edits are part of the result."""


class ComposedTree:
    """Files put together here, each with what it may do: links and programs stay what they are."""

    def __init__(self, content: dict[str, tuple[bytes, Mode]]) -> None:
        self._content = content
        self.files = tuple(
            File(path, len(content[path][0]), content[path][1])
            for path in sorted(content, key=os.fsencode)
        )

    def chunks(self, path: str) -> Iterator[bytes]:
        """The content, at once."""
        yield self._content[path][0]


def compose(tree: Tree, left_out: Callable[[str], bool] = lambda _path: False) -> ComposedTree:
    """A tree as one in memory, without some of its files."""
    return ComposedTree({
        file.path: (read_whole(tree, file.path), file.mode)
        for file in tree.files
        if not left_out(file.path)
    })  # fmt: skip


class _Side(NamedTuple):
    """One version of a skill."""

    tree: Tree
    marks: dict[str, str]
    modes: dict[str, Mode]

    def content(self, path: str) -> bytes:
        return read_whole(self.tree, path)


def merge_trees(base: Tree, mine: Tree, theirs: Tree) -> Merged:
    """Bring your edits and an update together."""
    sides = [
        _Side(tree, seal(tree).files, {file.path: file.mode for file in tree.files})
        for tree in (base, mine, theirs)
    ]
    old, own, new = sides
    content: dict[str, tuple[bytes, Mode]] = {}
    conflicts: list[str] = []
    kept: list[str] = []
    for path in sorted({*old.marks, *own.marks, *new.marks}, key=os.fsencode):
        was, is_now, will_be = (side.marks.get(path) for side in sides)
        if is_now in (was, will_be):
            if will_be is not None:
                content[path] = new.content(path), new.modes[path]
        elif will_be == was:
            kept.append(path)
            if is_now is not None:
                content[path] = own.content(path), own.modes[path]
        else:
            kept.append(path)
            both = _both_changed(path, old, own, new)
            if both is None:
                conflicts.append(path)
                continue
            content[path] = both, _mode(path, old, own, new)
    if conflicts:
        return Merged(None, tuple(conflicts), tuple(kept))
    return Merged(ComposedTree(content), (), tuple(kept))


def _mode(path: str, old: _Side, own: _Side, new: _Side) -> Mode:
    """Whether a merged file may be executed: whoever changed that decides."""
    mine = own.modes[path]
    return mine if mine != old.modes.get(path, "file") else new.modes[path]


def _both_changed(path: str, old: _Side, own: _Side, new: _Side) -> bytes | None:
    """One file that both sides changed; None when a person has to decide."""
    marks = [side.marks.get(path) for side in (old, own, new)]
    if marks[1] is None or marks[2] is None or any((m or "").startswith("link:") for m in marks):
        return None
    base = old.content(path) if marks[0] is not None else b""
    return merge_text(base, own.content(path), new.content(path))


def merge_text(base: bytes, mine: bytes, theirs: bytes) -> bytes | None:
    """Three versions of a text in one; None when they disagree, or when it is no text."""
    if b"\0" in base + mine + theirs:
        return None
    texts = [text.splitlines(keepends=True) for text in (base, mine, theirs)]
    if max(map(len, texts)) > _MOST_LINES:
        return None
    merged: list[bytes] = []
    at = [0, 0, 0]
    for start, own, new, length in _shared(*texts):
        piece = _decide(texts[0][at[0] : start], texts[1][at[1] : own], texts[2][at[2] : new])
        if piece is None:
            return None
        merged += piece
        merged += texts[0][start : start + length]
        at = [start + length, own + length, new + length]
    return b"".join(merged)


def _decide(
    base: Sequence[bytes], mine: Sequence[bytes], theirs: Sequence[bytes]
) -> Sequence[bytes] | None:
    if mine in (base, theirs):
        return theirs
    return mine if theirs == base else None


def _shared(
    base: list[bytes], mine: list[bytes], theirs: list[bytes]
) -> Iterator[tuple[int, int, int, int]]:
    """Runs of lines that all three have, in order: their places and their length. Then the end."""
    from difflib import SequenceMatcher

    own = SequenceMatcher(None, base, mine, autojunk=False).get_matching_blocks()
    new = SequenceMatcher(None, base, theirs, autojunk=False).get_matching_blocks()
    first = second = 0
    while first < len(own) and second < len(new):
        here, there = own[first], new[second]
        start = max(here.a, there.a)
        end = min(here.a + here.size, there.a + there.size)
        if start < end:
            yield start, here.b + start - here.a, there.b + start - there.a, end - start
        if here.a + here.size < there.a + there.size:
            first += 1
        else:
            second += 1
    yield len(base), len(mine), len(theirs), 0


def differing(before: Seal, after: Seal) -> tuple[list[str], list[str], list[str]]:
    """Files that were added, removed and changed between two versions."""
    added = [path for path in after.files if path not in before.files]
    removed = [path for path in before.files if path not in after.files]
    changed = [path for path, mark in after.files.items() if before.files.get(path, mark) != mark]
    return added, removed, changed


State = Literal["intact", "modified", "missing", "unlocked", "unreadable"]


class Standing(NamedTuple):
    """How one skill stands against its lock."""

    id: str
    state: State
    """`modified`: other than what is locked. `unlocked`: made here, nothing to compare with."""
    entry: Locked | None = None
    seal: Seal | None = None
    """What is there, without what running it left behind."""
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    generated: tuple[str, ...] = ()
    """Caches that running the skill left: removed before the next load."""
    reason: str = ""
    signature: str = "unsigned"
    """`unsigned`, `valid`, `unknown-signer` or `invalid`, checked now."""
    signer: str = ""
    """Who signed what is there now."""

    @property
    def drifted(self) -> bool:
        """Somebody should look."""
        return self.state in ("modified", "missing", "unreadable") or self.signature == "invalid"

    def to_dict(self) -> dict[str, Any]:
        """The form for `--json`."""
        entry = self.entry
        return {
            "id": self.id,
            "state": self.state,
            "tree": self.seal.digest if self.seal is not None else None,
            "locked": entry.tree if entry is not None else None,
            "source": entry.place._asdict() if entry is not None else None,
            "signature": self.signature,
            "signer": self.signer or None,
            "added": list(self.added),
            "removed": list(self.removed),
            "changed": list(self.changed),
            "generated": list(self.generated),
            "reason": self.reason or None,
        }


def stand(scope: Scope, entry: Locked | None, skill_id: str = "") -> Standing:
    """Compare one skill with its entry."""
    skill_id = skill_id or (entry.id if entry is not None else "")
    folder = os.path.join(scope.folder, skill_id)
    if not os.path.lexists(folder):
        return Standing(skill_id, "missing", entry)
    try:
        tree = FolderTree(folder)
        here = seal(tree)
    except (SatchelError, OSError) as exc:
        return Standing(skill_id, "unreadable", entry, reason=str(exc).split("\n", 1)[0])
    locked = entry.files if entry is not None else {}
    left = tuple(path for path in here.files if path not in locked and generated(path, folder))
    if left:
        clean = {path: mark for path, mark in here.files.items() if path not in left}
        here = Seal(digest_of(clean), clean)
    signed = check_signature(tree, files=here.files)
    if entry is None:
        found = Standing(skill_id, "unlocked", None, here, generated=left)
    else:
        added, removed, changed = differing(Seal(entry.tree, entry.files), here)
        found = Standing(
            skill_id,
            "intact" if here.digest == entry.tree else "modified",
            entry,
            here,
            tuple(added),
            tuple(removed),
            tuple(changed),
            left,
        )
    return found._replace(
        signature=signed.state,
        signer=signed.identity,
        reason=signed.reason if signed.state == "invalid" else "",
    )
