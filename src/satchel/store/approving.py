"""Which changes are approvals, and of what?

Who installs a skill has seen it, or was asked: what is put there is approved as it is. That holds
only for what the plan showed. An update of a skill that nobody approved, a new name, a lockfile
that came with a project: none of these is an approval of what was there before.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from satchel.store.verify import stand

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from satchel.library.trust import Kind, TrustBook
    from satchel.skill.tree import Seal
    from satchel.store.plan import Step
    from satchel.store.scope import Scope

_Row = tuple[str, "Kind", "Seal | None", str]


class Approvals:
    """The approvals of one scope."""

    def __init__(self, scope: Scope, trust: TrustBook) -> None:
        self._scope = scope
        self._trust = trust

    def knows(self, skill_id: str, seal: Seal) -> bool:
        """Whether this content, in this place, is what the user approved or made."""
        bound = self._trust.binding(os.path.realpath(self._scope.target(skill_id)))
        return bound is None or seal.digest in bound.digests

    def kind(self, skill_id: str) -> str:
        """As what a skill's folder is approved; nothing when it is not."""
        real = os.path.realpath(self._scope.target(skill_id))
        approval = self._trust.folders().get(real)
        return approval.kind if approval is not None else ""

    def before(self, steps: Sequence[Step]) -> None:
        """Approve what will be there, before it is: no reader finds it without its approval.

        The approval of what is there now holds beside it, so that an undo needs no question.
        """
        rows = self._settled(step.id for step in steps)
        for step in steps:
            if step.seal is not None and step.approved:
                rows.append((self._scope.target(step.id), "skill", step.seal, step.head))
        self._write(rows)

    def after(self, steps: Sequence[Step]) -> None:
        """What the user made here is theirs to edit, once it is there."""
        self._write([
            (self._scope.target(step.id), "own", step.seal, step.head)
            for step in steps
            if step.seal is not None and step.approved and step.own
        ])  # fmt: skip

    def settle(self, ids: Iterable[str]) -> None:
        """Bind what is the user's own to its present content, because its folder will change.

        Nobody who comes to that folder later inherits what its owner could do.
        """
        self._write(self._settled(ids))

    def _settled(self, ids: Iterable[str]) -> list[_Row]:
        rows: list[_Row] = []
        for skill_id in ids:
            if self.kind(skill_id) == "own":
                now = stand(self._scope, None, skill_id)
                if now.seal is not None:
                    rows.append((self._scope.target(skill_id), "skill", now.seal, now.head))
        return rows

    def _write(self, rows: list[_Row]) -> None:
        if rows:
            self._trust.approve_all(rows)
