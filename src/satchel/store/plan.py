"""What a change would do, shown before it is done.

A `Plan` holds one `Step` for each skill. Everything a person wants to know before saying yes is in
it: the files, the frontmatter, new programs, new hosts, new secrets, and what the scan found. The
terminal, a web page and a script read the same plan.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

from satchel._language import say
from satchel.skill.tree import read_whole, seal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import ExitStack

    from satchel.errors import SatchelError
    from satchel.library.lockfile import Locked
    from satchel.security import Report
    from satchel.skill.tree import Seal, Tree
    from satchel.store.scope import Scope
    from satchel.store.stage import Stage

Kind = Literal["add", "replace", "remove", "same", "refused"]


class Difference(NamedTuple):
    """How a skill would change."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    fields: tuple[tuple[str, str, str], ...] = ()
    """Of the frontmatter: key, before, after."""
    programs: tuple[str, ...] = ()
    """Files that can be run and are new or changed."""
    hosts: tuple[str, ...] = ()
    """Hosts that nothing in the skill named before."""
    secrets: tuple[str, ...] = ()
    """Secrets that nothing in the skill asked for before."""
    kept: tuple[str, ...] = ()
    """Files in which your own edits are kept."""
    powers: tuple[str, ...] = ()
    """What the program of a tool skill may touch and might not before: `network`, `files: write`,
    `secret: API_KEY`. Of a new one, all of it."""

    @property
    def empty(self) -> bool:
        """Nothing would change."""
        return not (self.added or self.removed or self.changed)

    def to_dict(self) -> dict[str, Any]:
        """The form for `--json`."""
        table: dict[str, Any] = {key: list(value) for key, value in self._asdict().items()}
        table["fields"] = [
            {"key": key, "before": before, "after": after} for key, before, after in self.fields
        ]
        return table


class Step(NamedTuple):
    """What would happen to one skill."""

    kind: Kind
    id: str
    name: str = ""
    description: str = ""
    before: Locked | None = None
    """Its entry in the lock now."""
    after: Locked | None = None
    """Its entry in the lock then; None when it has none."""
    was: str = ""
    """Digest of what is on disk now; empty when there is nothing."""
    seal: Seal | None = None
    """What would be on disk then."""
    staged: str = ""
    """The folder that would take its place."""
    difference: Difference = Difference()
    report: Report | None = None
    """What the scan found."""
    notes: tuple[str, ...] = ()
    """What was ignored, renamed or made up on the way."""
    error: SatchelError | None = None
    """Why it was refused."""
    bases: tuple[str, ...] = ()
    """Hexadecimal digests under which content is kept, for merges and for the lockfile."""
    old: Tree | None = None
    """What the difference is against, where that is not what is on disk."""
    waived: bool = False
    """It brings nothing new, so what the scan says does not stop it."""

    @property
    def blocked(self) -> bool:
        """The scan says that it must not be installed unseen."""
        return not self.waived and self.report is not None and self.report.verdict == "blocked"

    def to_dict(self) -> dict[str, Any]:
        """The form for `--json`."""
        return {
            "id": self.id,
            "name": self.name,
            "action": self.kind,
            "tree": self.seal.digest if self.seal is not None else None,
            "source": self.after.place._asdict() if self.after is not None else None,
            "difference": self.difference.to_dict(),
            "scan": self.report.to_dict() if self.report is not None else None,
            "notes": list(self.notes),
            "error": self.error.message if self.error is not None else None,
            "hint": self.error.hint if self.error is not None else None,
        }


class Plan:
    """One change, made ready; `Store.carry_out` does it. Close it, or use it as a context."""

    def __init__(
        self, op: str, scope: Scope, steps: list[Step], stage: Stage, held: ExitStack
    ) -> None:
        self.op = op
        self.scope = scope
        self.steps = tuple(steps)
        self.stage = stage
        self._held = held

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove what was staged and not used."""
        self._held.close()

    def of_kind(self, *kinds: Kind) -> list[Step]:
        """The steps of some kinds."""
        return [step for step in self.steps if step.kind in kinds]

    @property
    def changes(self) -> list[Step]:
        """The steps that would change something."""
        return self.of_kind("add", "replace", "remove")

    @property
    def blocked(self) -> list[Step]:
        """The steps that need `accept_risk`."""
        return [step for step in self.changes if step.blocked]

    def to_dict(self) -> dict[str, Any]:
        """The form for `--json`."""
        return {
            "operation": self.op,
            "scope": self.scope.name,
            "skills": [step.to_dict() for step in self.steps],
        }


def verdict_words(verdict: str) -> str:
    """A verdict in the reader's language."""
    return {
        "blocked": say("blocked"),
        "review": say("review"),
        "incomplete": say("incomplete"),
        "no findings": say("no findings"),
    }[verdict]


def power_words(word: str) -> str:
    """What a program asks for, in words."""
    kind, _, name = word.partition(": ")
    if kind == "secret":
        return say("get the secret `{name}`", name=name)
    return {
        "network": say("use the network"),
        "files: read": say("read the project's files"),
        "files: write": say("read and change the project's files"),
    }.get(word, word)


_LONGEST = 1 << 20


def patch_of(before: Tree | None, after: Tree | None, name: str) -> str:
    """The difference of two versions, as a unified diff."""
    return "".join(_pieces(before, after, name))


def patch_one(before: Tree | None, after: Tree | None, path: str) -> str:
    """The same for a single file of them; empty when neither has it."""
    texts = [
        read_whole(tree, path)
        if tree is not None and any(file.path == path for file in tree.files)
        else None
        for tree in (before, after)
    ]
    was, will_be = (text is not None for text in texts)
    if not was and not will_be:
        return ""
    return "".join(_file(path, texts[0] or b"", texts[1] or b"", was, will_be))


def _pieces(before: Tree | None, after: Tree | None, name: str) -> Iterator[str]:
    trees = [before, after]
    old, new = (seal(tree).files if tree is not None else {} for tree in trees)
    for path in sorted({*old, *new}, key=os.fsencode):
        if old.get(path) == new.get(path):
            continue
        texts = [
            read_whole(tree, path) if tree is not None and path in marks else b""
            for tree, marks in zip(trees, (old, new), strict=True)
        ]
        yield from _file(f"{name}/{path}", texts[0], texts[1], path in old, path in new)


def _file(path: str, before: bytes, after: bytes, was: bool, will_be: bool) -> Iterator[str]:  # noqa: FBT001 - two of a kind
    from difflib import unified_diff

    first = f"a/{path}" if was else "/dev/null"
    second = f"b/{path}" if will_be else "/dev/null"
    if before == after:
        yield f"--- {first}\n+++ {second}\n# only the permission to execute changes\n"
        return
    if b"\0" in before + after or len(before) + len(after) > _LONGEST:
        yield f"--- {first}\n+++ {second}\n# binary: {len(before)} -> {len(after)} bytes\n"
        return
    lines = [text.decode("utf-8", "replace").splitlines(keepends=True) for text in (before, after)]
    for line in unified_diff(lines[0], lines[1], first, second):
        yield line if line.endswith("\n") else line + "\n\\ No newline at end of file\n"
