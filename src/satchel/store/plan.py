"""Plans: the steps of a change, for review before it is applied.

A `ChangePlan` has one `ChangeStep` for each skill, with the differences of files and frontmatter,
new programs, hosts and secrets, and the findings of the scan. The terminal, the browser and scripts
use the same plan.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

from satchel.i18n import say
from satchel.store.trees import PathState

if TYPE_CHECKING:
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
    """Paths of new files."""
    removed: tuple[str, ...] = ()
    """Paths of files that go."""
    changed: tuple[str, ...] = ()
    """Paths of files with another content."""
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
    """What happens to the skill."""
    id: str
    """The id of the skill, which is the name of its folder."""
    name: str = ""
    """The name in its frontmatter."""
    description: str = ""
    """The description in its frontmatter."""
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
    """What differs from the present content."""
    report: ScanReport | None = None
    """The result of the scan of the new content; None when it was not scanned."""
    notes: tuple[str, ...] = ()
    """Remarks for the user."""
    error: SatchelError | None = None
    """The reason of a refused step."""
    bases: tuple[str, ...] = ()
    """Hexadecimal digests of the base archives."""
    old: Tree | None = None
    """The other side of `difference`, where that is not the installed content."""
    waived: bool = False
    """The content is not new, so the scan does not stop it."""
    keeps_edits: bool = False
    """The new content has the user's edits, or the side of each conflict that the user chose."""

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
    """A change that `Store.apply` can apply. Closing it, or leaving its context, discards it.

    Example:
        from satchel import Satchel

        store = Satchel.for_project(".").store()
        with store.plan_import("skills/code-review", skill_id="review") as plan:
            assert [(step.kind, step.id) for step in plan.changes] == [("add", "review")]
            if not plan.blocked:
                store.apply(plan)
    """

    def __init__(
        self,
        op: str,
        scope: Scope,
        steps: list[ChangeStep],
        stage: StagingFolder,
        resources: ExitStack,
    ) -> None:
        self.op = op
        self.scope = scope
        self.steps = tuple(steps)
        self.stage = stage
        self._resources = resources

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Delete what was staged and not applied."""
        self._resources.close()

    def of_kind(self, *kinds: Kind) -> list[ChangeStep]:
        """The steps of the given kinds.

        Args:
            kinds: The kinds to return.
        """
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


def verdict_label(verdict: str) -> str:
    """Return a verdict in the reader's language."""
    return {
        "blocked": say("blocked"),
        "review": say("review"),
        "incomplete": say("incomplete"),
        "no findings": say("no findings"),
    }[verdict]


def permission_label(permission: str) -> str:
    """Return an entry of `Difference.powers` in the reader's language."""
    kind, _, name = permission.partition(": ")
    if kind == "secret":
        return say("get the secret `{name}`", name=name)
    return {
        "network": say("use the network"),
        "files: read": say("read the project's files"),
        "files: write": say("read and change the project's files"),
    }.get(permission, permission)
