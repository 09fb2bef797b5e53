"""Applies plans and undoes changes, and keeps the trust file in step with them."""

from __future__ import annotations

import os
import time
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from satchel.errors import Blocked, Incomplete, SatchelError
from satchel.i18n import join_names, say
from satchel.skill.problems import PROBLEMS
from satchel.store.disk_errors import changed_meanwhile
from satchel.store.journal import SkillChange
from satchel.store.recovery import recover
from satchel.store.transaction import PendingChange, Receipt, commit
from satchel.store.undo import Undone, undo

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from satchel.library.lockfile import Lock
    from satchel.library.trust_store import TrustStore
    from satchel.store.plan import ChangePlan, ChangeStep
    from satchel.store.workdir import Scope

_TRUSTED_OPS = frozenset(("add", "import", "install", "init"))
"""Operations that trust their result: the user chose it."""
_AUTHORED_OPS = frozenset(("add", "init"))
"""Operations whose result the user writes."""
_Result = TypeVar("_Result", Receipt, Undone)


class PlanApplier:
    """Applies the plans of one scope; see the methods of `Store` with the same names."""

    def __init__(self, scope: Scope, trust: TrustStore, on_change: Callable[[], object]) -> None:
        """Store the parts; `on_change` is called after each change on disk."""
        self._scope = scope
        self._trust = trust
        self._on_change = on_change

    def apply(
        self,
        plan: ChangePlan,
        *,
        accept_risk: str,
        skipped_ids: Collection[str],
        grant_tools: bool,
    ) -> Receipt:
        """Apply a plan in one transaction."""
        skipped = tuple(step for step in plan.changes if step.id in skipped_ids)
        steps = [step for step in plan.changes if step.id not in skipped_ids]
        blocked = [] if accept_risk else self._find_blocked(steps)
        steps = [_record_accepted_risk(step, accept_risk) for step in steps if step not in blocked]
        if not steps:
            if blocked:
                raise _blocked_error(blocked, plan.op)
            repaired = (*plan.stage.repaired, *self.recover())
            return Receipt(0, repaired=repaired, kept=skipped)
        expectation_error: SatchelError | None = None
        try:
            self._expect_trust(plan.op, steps)
        except SatchelError as exc:
            expectation_error = exc
        pending = _pending_change(plan, steps)._replace(settle=self.follow_changes)
        receipt = commit(self._scope, pending, plan.stage)
        self._on_change()
        completed = receipt._replace(done=tuple(steps), left=tuple(blocked), kept=skipped)

        def update_trust() -> None:
            if expectation_error is not None:
                raise expectation_error
            self.follow_changes(pending.changes)  # also of folders that stay
            if accept_risk:
                self._save_accepted_risks(steps)
            if grant_tools:
                self._grant_requested_tools(steps)

        return self._complete(completed, update_trust)

    def undo(self, *, redo: bool, number: int) -> Undone:
        """Undo or redo the last change."""
        undone = undo(self._scope, redo=redo, number=number, settle=self.follow_changes)
        self._on_change()
        return self._complete(undone, lambda: self.follow_changes(undone.changes))

    def recover(self) -> tuple[str, ...]:
        """Finish an interrupted change; returns what was done, for the user."""
        return tuple(recover(self._scope, self.follow_changes))

    def follow_changes(self, changes: Iterable[SkillChange]) -> None:
        """Save the trust that belongs to changed folders; again, it changes nothing."""
        self._trust.follow_changes({
            self._scope.target(change.id): (change.before, change.after) for change in changes
        })  # fmt: skip

    def require_complete(self, plan: ChangePlan, *, accept_risk: str) -> None:
        """Refuse a plan with refused or blocked steps."""
        for step in plan.of_kind("refused"):
            if step.error is not None:
                raise step.error
        blocked = [] if accept_risk else self._find_blocked(plan.changes)
        if blocked:
            raise _blocked_error(blocked, plan.op)

    def _complete(self, result: _Result, update_trust: Callable[[], object]) -> _Result:
        """Save the trust that belongs to a change; raises `Incomplete` for any trouble."""
        try:
            update_trust()
        except SatchelError as exc:
            message = say("The change was made, but: {reason}", reason=exc.message)
            result = result._replace(trouble=(message, exc.hint, *result.trouble))
        if result.trouble:
            message, *hints = result.trouble
            raise Incomplete(message, say(". ").join(filter(None, hints)), receipt=result)
        return result

    def _find_blocked(self, steps: Iterable[ChangeStep]) -> list[ChangeStep]:
        """Return the steps that the scan blocks and whose risk this user has not accepted."""
        return [step for step in steps if step.blocked and not self._is_risk_accepted(step)]

    def _expect_trust(self, op: str, steps: Sequence[ChangeStep]) -> None:
        """Remember what the change will trust, so that it does also after an interruption."""
        removed = [self._scope.target(step.id) for step in steps if step.kind == "remove"]
        installed = {
            self._scope.target(step.id): step.tree_digest.digest
            for step in steps
            if step.kind != "remove" and step.tree_digest is not None
        }
        trusted, authored = set[str](), set[str]()
        for folder in installed:
            former_folders = removed if op == "rename" else [folder]
            if op in _TRUSTED_OPS or any(map(partial(self._has_trust, op), former_folders)):
                trusted.add(folder)
            if op in _AUTHORED_OPS or (
                op not in _TRUSTED_OPS and any(map(self._trust.is_authored, former_folders))
            ):
                authored.add(folder)
        self._trust.expect_contents(installed, trusted=trusted, authored=authored)

    def _has_trust(self, op: str, folder: str) -> bool:
        """Whether what replaces the content of a folder has its trust."""
        if op == "rename":  # the new folder has what the old one had
            return self._trust.trusts(folder, self._scope.boundary)
        return os.path.realpath(folder) in self._trust.read().folders

    def _save_accepted_risks(self, steps: Iterable[ChangeStep]) -> None:
        for step in steps:
            if step.kind == "remove" or step.tree_digest is None:
                continue
            if step.blocked and step.after:
                self._trust.accept(step.tree_digest.digest, step.after.scan.accepted)

    def _is_risk_accepted(self, step: ChangeStep) -> bool:
        """Whether this user accepted the risk of this content before."""
        return step.tree_digest is not None and self._trust.accepts(step.tree_digest.digest)

    def _grant_requested_tools(self, steps: Iterable[ChangeStep]) -> None:
        """Grant the tools that the new contents request."""
        self._trust.grant_tools({
            self._scope.target(step.id): step.tree_digest.digest
            for step in steps
            if step.difference.requests and step.tree_digest is not None
        })  # fmt: skip


def _blocked_error(steps: Sequence[ChangeStep], op: str) -> Blocked:
    """Return the error for steps that the scan blocks."""
    hint = say("Read what it found; to install it all the same, give `--accept-risk WHY`")
    if op == "lock":  # it is installed already
        hint = say(PROBLEMS["blocked"].fix, name=steps[0].id)
    return Blocked(
        say("The scan blocked {names}", names=join_names(f"`{step.id}`" for step in steps)), hint
    )


def _record_accepted_risk(step: ChangeStep, reason: str) -> ChangeStep:
    """Add the date and the reason to the lockfile entry of a blocked step."""
    if not reason or not step.blocked or step.after is None:
        return step
    date = time.strftime("%Y-%m-%d", time.gmtime())
    verdict = step.after.scan._replace(accepted=f"{date}: {reason}")
    return step._replace(after=step.after._replace(scan=verdict))


def _pending_change(plan: ChangePlan, steps: Sequence[ChangeStep]) -> PendingChange:
    """Return the transaction of some steps of a plan."""
    changes = [
        SkillChange(
            id=step.id,
            staged=step.staged,
            before=step.was,
            after=step.tree_digest.digest if step.tree_digest is not None else "",
        )
        for step in steps
    ]
    bases = {
        base: os.path.join(plan.stage.path, f"{base}.zip") for step in steps for base in step.bases
    }
    return PendingChange(
        plan.op,
        join_names(f"`{step.id}`" for step in steps[:5]),
        changes,
        partial(_update_lock, steps=steps),
        bases=bases,
        seen={step.id: step.installed for step in steps},
    )


def _update_lock(lock: Lock, steps: Sequence[ChangeStep]) -> Lock:
    """Return the lock after the steps.

    Raises:
        Conflict: an entry changed since the plan.
    """
    changed = dict(lock)
    for step in steps:
        if lock.get(step.id) != step.before:
            raise changed_meanwhile(step.id)
        if step.after is not None:
            changed[step.id] = step.after
        else:
            changed.pop(step.id, None)
    return changed
