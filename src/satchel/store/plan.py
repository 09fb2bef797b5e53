"""Plans: the steps of a change, for review before it is applied.

A `ChangePlan` has one `ChangeStep` for each skill, with the differences of files and frontmatter,
new programs, hosts and secrets, and the findings of the scan. The terminal, the browser and scripts
use the same plan.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

from satchel.i18n import say
from satchel.skill.file_tree import read_whole
from satchel.store.trees import PathState, digest_tree

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import ExitStack

    from satchel.errors import SatchelError
    from satchel.library.lockfile import LockEntry
    from satchel.security import ScanReport
    from satchel.skill.file_tree import Tree, TreeDigest
    from satchel.store.staging import StagingFolder
    from satchel.store.workdir import Scope

Kind = Literal["add", "replace", "remove", "same", "refused"]


class Difference(NamedTuple):
    """The differences between two versions of a skill."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    fields: tuple[tuple[str, str, str], ...] = ()
    """Of the frontmatter: key, before, after."""
    programs: tuple[str, ...] = ()
    """New or changed programs."""
    hosts: tuple[str, ...] = ()
    """New hosts."""
    secrets: tuple[str, ...] = ()
    """New secrets."""
    powers: tuple[str, ...] = ()
    """New permissions of a tool skill's program: `network`, `files: write`, `secret: API_KEY`."""
    requests: tuple[str, ...] = ()
    """Every tool that the new version's `allowed-tools` names."""

    @property
    def empty(self) -> bool:
        """Whether no file differs."""
        return not (self.added or self.removed or self.changed)

    def to_dict(self) -> dict[str, Any]:
        """The form for `--json`."""
        table: dict[str, Any] = {key: list(value) for key, value in self._asdict().items()}
        table["fields"] = [
            {"key": key, "before": before, "after": after} for key, before, after in self.fields
        ]
        return table


class ChangeStep(NamedTuple):
    """The planned change of one skill."""

    kind: Kind
    id: str
    name: str = ""
    description: str = ""
    before: LockEntry | None = None
    """The present lockfile entry."""
    after: LockEntry | None = None
    """The new lockfile entry; None when the skill is not locked."""
    installed: PathState = PathState("")
    """The present content of its folder."""
    tree_digest: TreeDigest | None = None
    """The new content."""
    staged: str = ""
    """The folder with the new content."""
    difference: Difference = Difference()
    report: ScanReport | None = None
    notes: tuple[str, ...] = ()
    error: SatchelError | None = None
    """The reason of a refused step."""
    bases: tuple[str, ...] = ()
    """Hexadecimal digests of the base archives."""
    old: Tree | None = None
    """The other side of `difference`, where that is not the installed content."""
    waived: bool = False
    """The content is not new, so the scan does not stop it."""

    @property
    def was(self) -> str:
        """The digest of the present content; empty when there is none."""
        return self.installed.digest

    @property
    def blocked(self) -> bool:
        """Whether the scan blocks the new content."""
        return not self.waived and self.report is not None and self.report.verdict == "blocked"

    def to_dict(self) -> dict[str, Any]:
        """The form for `--json`."""
        return {
            "id": self.id,
            "name": self.name,
            "action": self.kind,
            "tree": self.tree_digest.digest if self.tree_digest is not None else None,
            "source": self.after.place._asdict() if self.after is not None else None,
            "difference": self.difference.to_dict(),
            "scan": self.report.to_dict() if self.report is not None else None,
            "notes": list(self.notes),
            "error": self.error.message if self.error is not None else None,
            "hint": self.error.hint if self.error is not None else None,
        }


class ChangePlan:
    """A change that `Store.apply` can apply. Closing it, or leaving its context, discards it."""

    def __init__(
        self, op: str, scope: Scope, steps: list[ChangeStep], stage: StagingFolder, held: ExitStack
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
        """Delete what was staged and not applied."""
        self._held.close()

    def of_kind(self, *kinds: Kind) -> list[ChangeStep]:
        """The steps of the given kinds."""
        return [step for step in self.steps if step.kind in kinds]

    @property
    def changes(self) -> list[ChangeStep]:
        """The steps that change something."""
        return self.of_kind("add", "replace", "remove")

    @property
    def blocked(self) -> list[ChangeStep]:
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
    """A permission in the reader's language."""
    kind, _, name = word.partition(": ")
    if kind == "secret":
        return say("get the secret `{name}`", name=name)
    return {
        "network": say("use the network"),
        "files: read": say("read the project's files"),
        "files: write": say("read and change the project's files"),
    }.get(word, word)


_MAX_DIFF_BYTES = 1 << 20


def patch_of(before: Tree | None, after: Tree | None, name: str) -> str:
    """A unified diff of two versions."""
    old, new = (digest_tree(tree).files if tree is not None else {} for tree in (before, after))
    pieces: list[str] = []
    for path in sorted({*old, *new}, key=os.fsencode):
        if old.get(path) != new.get(path):
            texts = [
                read_whole(tree, path) if tree is not None and path in marks else None
                for tree, marks in ((before, old), (after, new))
            ]
            pieces += _file(f"{name}/{path}", *texts)
    return "".join(pieces)


def patch_one(before: Tree | None, after: Tree | None, path: str) -> str:
    """A unified diff of one file; empty when neither version has it."""
    texts = [
        read_whole(tree, path)
        if tree is not None and any(file.path == path for file in tree.files)
        else None
        for tree in (before, after)
    ]
    return "" if texts == [None, None] else "".join(_file(path, *texts))


def _file(path: str, old: bytes | None, new: bytes | None) -> Iterator[str]:
    from difflib import unified_diff

    first = "/dev/null" if old is None else f"a/{path}"
    second = "/dev/null" if new is None else f"b/{path}"
    before, after = old or b"", new or b""
    if before == after:
        yield f"--- {first}\n+++ {second}\n# only the permission to execute changes\n"
        return
    if b"\0" in before + after or len(before) + len(after) > _MAX_DIFF_BYTES:
        yield f"--- {first}\n+++ {second}\n# binary: {len(before)} -> {len(after)} bytes\n"
        return
    lines = [text.decode("utf-8", "replace").splitlines(keepends=True) for text in (before, after)]
    for line in unified_diff(lines[0], lines[1], first, second):
        yield line if line.endswith("\n") else line + "\n\\ No newline at end of file\n"
