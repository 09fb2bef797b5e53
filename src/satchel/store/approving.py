"""Which changes are approvals, and of what?

Who installs a skill has seen it, or was asked: what is put there is approved as it is. That holds
only for what the plan showed. An update of a skill that nobody approved, a new name, a lockfile
that came with a project: none of these is an approval of what was there before.

A skill of the user's own is approved whatever it holds. Before somebody else's content takes its
place it is bound to what it holds now. When nothing comes of the change, or an undo brings that
very content back, it is the user's own again.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from satchel.errors import SatchelError
from satchel.store.journal import NAME
from satchel.store.verify import stand

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Sequence

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

    @contextmanager
    def before(self, steps: Sequence[Step]) -> Generator[None]:
        """Approve what will be there, before it is: no reader finds it without its approval.

        The approval of what is there now holds beside it, so that an undo needs no question.
        """
        owned = {step.id for step in steps if step.own and self.kind(step.id) == "own"}
        with self.settled(step.id for step in steps if step.id not in owned):
            self._write([
                (self._scope.target(step.id), "own" if step.id in owned else "skill", step.seal,
                 step.head)
                for step in steps
                if step.seal is not None and step.approved
            ])  # fmt: skip
            yield

    def after(self, steps: Sequence[Step]) -> None:
        """What the user made here is theirs to edit, once it is there."""
        self._write([
            (self._scope.target(step.id), "own", step.seal, step.head)
            for step in steps
            if step.seal is not None and step.approved and step.own
        ])  # fmt: skip

    @contextmanager
    def settled(self, ids: Iterable[str]) -> Generator[None]:
        """Bind what is the user's own to its present content, because its folder will change.

        Nobody who comes to that folder later inherits what its owner could do. When the change
        fails and the folder holds what it held, its owner keeps it.
        """
        owned = [skill_id for skill_id in ids if self.kind(skill_id) == "own"]
        rows: list[_Row] = []
        for skill_id in owned:
            target, now = self._scope.target(skill_id), stand(self._scope, None, skill_id)
            if now.seal is not None:
                rows.append((target, "skill", now.seal, now.head))
            else:
                # Nothing to bind it to: it is gone, or cannot be read.
                self._trust.revoke(target)
        self._write(rows, made=True)
        try:
            yield
        except BaseException as exc:
            self._keep(owned, exc)
            raise

    def _keep(self, owned: list[str], exc: BaseException) -> None:
        """Give back what a change took that came to nothing."""
        if os.path.lexists(self._scope.part(NAME)):
            return  # a journal is left: the next command makes the change after all
        try:
            self.returned(owned)
        except SatchelError as other:
            exc.add_note(other.message)

    def returned(self, ids: Iterable[str]) -> None:
        """What holds again exactly what the user once made there is the user's own again."""
        rows: list[_Row] = []
        folders = self._trust.folders()
        for skill_id in ids:
            target = self._scope.target(skill_id)
            approval = folders.get(os.path.realpath(target))
            if approval is None or approval.kind != "skill" or not approval.made:
                continue
            now = stand(self._scope, None, skill_id)
            if now.seal is not None and now.seal.digest in approval.made:
                rows.append((target, "own", now.seal, now.head))
        self._write(rows)

    def _write(self, rows: list[_Row], *, made: bool = False) -> None:
        if rows:
            self._trust.approve_all(rows, made=made)
