"""`Store`: all changes of the skills of one scope.

    with store.plan_import("skills.zip") as plan:   # staged, scanned, compared; nothing changed yet
        store.apply(plan)                           # one transaction

A plan that is not applied leaves nothing behind. An applied one can be undone.
"""

from __future__ import annotations

import os
import time
from contextlib import ExitStack, suppress
from functools import partial, wraps
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from satchel.errors import Blocked, Incomplete, InvalidInput, NameTaken, NotFound, SatchelError
from satchel.i18n import join_names, say
from satchel.library.lockfile import LockedSource, read_lock
from satchel.skill.file_tree import FolderTree, MemoryTree
from satchel.skill.problems import PROBLEMS
from satchel.store.disk_errors import changed_meanwhile, disk_errors_as_refusal
from satchel.store.install_state import verify_one
from satchel.store.journal import SkillChange, refuse_repository
from satchel.store.plan import ChangePlan, ChangeStep
from satchel.store.planner import StepBuilder, check_new_id, close_names, scaffold, select_skills
from satchel.store.recovery import recover
from satchel.store.sources import source_of
from satchel.store.staging import StagingFolder
from satchel.store.transaction import PendingChange, Receipt, commit
from satchel.store.trees import state_at
from satchel.store.undo import Undone
from satchel.store.undo import history as read_entries
from satchel.store.undo import undo as undo_change
from satchel.store.update import edit_step, lock_step, plan_install, plan_update, rename_steps
from satchel.store.workdir import not_ours

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from satchel.library import Library
    from satchel.library.lockfile import Lock, LockEntry
    from satchel.library.trust_store import TrustStore
    from satchel.skill.file_tree import Tree
    from satchel.store.install_state import InstallState
    from satchel.store.planner import SelectedSkill
    from satchel.store.sources import Bundle
    from satchel.store.sources.base import HubFinder
    from satchel.store.undo import HistoryEntry
    from satchel.store.workdir import Scope


_TRUSTED_OPS = frozenset(("add", "import", "install", "init"))
"""Operations that trust their result: the user chose it."""
_AUTHORED_OPS = frozenset(("add", "init"))
_Result = TypeVar("_Result", Receipt, Undone)
_Params = ParamSpec("_Params")


def _recovering(
    method: Callable[Concatenate[Store, _Params], ChangePlan],
) -> Callable[Concatenate[Store, _Params], ChangePlan]:
    """Decorate a method that plans: recover an interrupted change first."""

    @wraps(method)
    def planned(self: Store, *given: _Params.args, **named: _Params.kwargs) -> ChangePlan:
        self.repaired = tuple(recover(self.scope))
        try:
            return method(self, *given, **named)
        except SatchelError as exc:
            for text in self.repaired:
                exc.add_note(text)
            raise

    return planned


class Store:
    """Installs, updates and removes the skills of one scope."""

    def __init__(
        self,
        scope: Scope,
        *,
        trust: TrustStore,
        library: Library | None = None,
        signer: Callable[[Tree], str] | None = None,
        hubs: Callable[[], HubFinder] | None = None,
    ) -> None:
        """Create a store; nothing is read or written yet.

        Args:
            scope: The folders to change.
            trust: The trusted folders; an installed skill is added.
            library: Finds skills of other locations, for better refusals.
            signer: Returns the identity that signed a tree, or an empty string.
            hubs: Returns the configured hubs; called when a source needs them.
        """
        self.scope = scope
        self.trust = trust
        self._library = library
        self._signer = signer
        self._hubs = hubs
        self.repaired: tuple[str, ...] = ()
        """What recovery did before the latest plan."""

    def lock(self) -> Lock:
        """The entries of the lockfile.

        Raises:
            LockBroken: the lockfile is damaged.
        """
        return read_lock(self.scope.lock)

    # --- plans ----------------------------------------------------------------------------

    def plan_add(
        self, name: str, description: str = "", body: str = "", *, skill_id: str = ""
    ) -> ChangePlan:
        """Plan a new, minimal skill.

        Args:
            name: Its name.
            description: What it does and when to use it.
            body: The instructions.
            skill_id: Its id; derived from the name when empty.

        Raises:
            InvalidInput: it exists already, or the name gives no id.
        """
        skill_id, text = scaffold(name, description, body, skill_id)
        return self.plan_new(skill_id, MemoryTree({"SKILL.md": text}))

    @_recovering
    def plan_new(self, skill_id: str, tree: Tree) -> ChangePlan:
        """Plan a new skill with the given files.

        Raises:
            InvalidInput: it exists already.
        """
        if os.path.lexists(os.path.join(self.scope.folder, skill_id)):
            raise InvalidInput(
                say("`{path}` exists already", path=skill_id), say("Choose another name")
            )

        def steps(builder: StepBuilder) -> Iterator[ChangeStep]:
            # Not locked: its author will edit it.
            step = builder.from_tree(skill_id, tree, LockedSource("new"))
            yield step._replace(after=None, bases=(), waived=True)

        return self._plan("add", steps)

    def plan_import(
        self,
        source: str,
        *,
        skill_id: str = "",
        ref: str = "",
        path: str = "",
        names: Sequence[str] = (),
        everything: bool = False,
        progress: Callable[[str, int, int], None] | None = None,
    ) -> ChangePlan:
        """Plan the import of skills from a hub, a folder, an archive or a git repository.

        Args:
            source: A path or an address.
            skill_id: The id to install under; only for a single skill.
            ref: Branch, tag or commit of a repository; versions of a hub's skill.
            path: The folder within the source.
            names: The skills to import, when there are several.
            everything: Import all skills.
            progress: Called with a skill's id, the number done and the total.

        Raises:
            NotFound: there is no skill in it.
            InvalidInput: there are several, and none was selected.
            Unsafe: it contains something that is never unpacked.
        """
        if skill_id:
            check_new_id(skill_id)
        origin = source_of(source, base=self.scope.root, hubs=self._hubs)
        with origin.fetch(ref=ref) as bundle:
            with disk_errors_as_refusal(source):
                wanted = select_skills(
                    bundle, path=path, skill_id=skill_id, names=names, everything=everything
                )
            return self.plan_picked(bundle, wanted, progress=progress)

    @_recovering
    def plan_picked(
        self,
        bundle: Bundle,
        wanted: Sequence[SelectedSkill],
        *,
        progress: Callable[[str, int, int], None] | None = None,
    ) -> ChangePlan:
        """Plan the import of selected skills (`select_skills`) from an open source."""

        def steps(builder: StepBuilder) -> Iterator[ChangeStep]:
            for at, pick in enumerate(wanted):
                if progress is not None:
                    progress(pick.id, at, len(wanted))
                step = builder.from_source(pick, bundle, signer=self._signer)
                taken = self._name_taken(step, pick, builder.lock) if step.kind == "add" else None
                yield builder.refused(step.id, taken) if taken is not None else step
            if progress is not None:
                progress("", len(wanted), len(wanted))

        return self._plan("import", steps)

    def _name_taken(self, step: ChangeStep, pick: SelectedSkill, lock: Lock) -> NameTaken | None:
        """The error for a new skill with the name of an installed one, which it would replace.

        A project's skill may hide one of the user only under an id that was chosen.
        """
        target, wanted = self.scope.target(step.id), step.name.casefold()
        folders = [
            self.scope.target(key) for key, entry in lock.items() if entry.name.casefold() == wanted
        ]
        for skill in self._library.named(step.name) if self._library is not None else ():
            is_here = os.path.dirname(skill.base_dir) == self.scope.folder
            is_users = skill.source == "global" and self.scope.name == "project"
            if is_here or (is_users and not pick.is_chosen):
                folders.append(skill.base_dir)
        other = next((one for one in folders if one != target), None)
        if other is None:
            return None
        number, free = 2, step.id
        while free == step.name or os.path.lexists(self.scope.target(free)):
            number, free = number + 1, f"{step.name}-{number}"
        return NameTaken(
            say("`{name}` is the name of the skill in `{path}`, which the new one would replace",
                name=step.name, path=other),
            say("Install it under another name with `--id {id}`", id=free),
            suggestion=free,
        )  # fmt: skip

    @_recovering
    def plan_remove(self, names: Iterable[str]) -> ChangePlan:
        """Plan the removal of skills of this scope.

        Raises:
            NotFound: there is no such skill.
            Refused: it belongs to a product or to another location.
        """

        def steps(builder: StepBuilder) -> Iterator[ChangeStep]:
            for name in names:
                skill_id = self.resolve(name)
                entry = builder.lock.get(skill_id)
                shown = entry.name if entry is not None else name
                target = self.scope.target(skill_id)
                with disk_errors_as_refusal(target):
                    refuse_repository(target)
                    state = state_at(target)
                yield ChangeStep("remove", skill_id, shown, before=entry, installed=state)

        return self._plan("remove", steps)

    @_recovering
    def plan_update(
        self,
        names: Iterable[str] = (),
        *,
        discard_edits: bool = False,
        progress: Callable[[str, int, int], None] | None = None,
    ) -> ChangePlan:
        """Plan updates from the sources; the step of an edited skill is refused.

        Args:
            names: The skills; all with a source when empty.
            discard_edits: Replace edits by the source's version; `undo` restores them.
            progress: As in `plan_import`.
        """
        lock = self.lock()
        chosen = [self._locked(lock, name) for name in names] or list(lock.values())
        return self._plan(
            "update",
            lambda builder: plan_update(
                builder, chosen, discard_edits=discard_edits, signer=self._signer, progress=progress
            ),
            lock,
        )

    @_recovering
    def plan_install(
        self,
        names: Iterable[str] = (),
        *,
        frozen: bool = False,
        fetch: bool = True,
        progress: Callable[[str, int, int], None] | None = None,
    ) -> ChangePlan:
        """Plan the installation of locked skills that are missing on disk.

        Args:
            names: The skills; all locked ones when empty.
            frozen: Also replace modified skills by what is locked.
            fetch: Fetch the sources of skills whose content is not kept here; else refuse them.
            progress: As in `plan_import`.
        """
        lock = self.lock()
        only = [self._locked(lock, name).id for name in names]
        return self._plan(
            "install",
            lambda builder: plan_install(
                builder, only, frozen=frozen, fetch=fetch, progress=progress
            ),
            lock,
        )

    @_recovering
    def plan_rename(self, name: str, new: str) -> ChangePlan:
        """Plan another id and name for a skill.

        Raises:
            InvalidInput: the new name is not valid, or is taken.
        """
        check_new_id(new)
        skill_id = self.resolve(name)
        if os.path.lexists(os.path.join(self.scope.folder, new)):
            raise InvalidInput(say("`{path}` exists already", path=new), say("Choose another name"))
        return self._plan("rename", lambda builder: rename_steps(builder, skill_id, new))

    @_recovering
    def plan_edit(
        self, name: str, files: Mapping[str, bytes], *, expect: Mapping[str, str] | None = None
    ) -> ChangePlan:
        """Plan new content for some files of a skill, written by the user.

        The lockfile entry stays, so that the skill shows as modified.

        Args:
            name: Its id or name.
            files: Path within the skill -> the whole new content.
            expect: Path -> hexadecimal SHA-256 of the content that the user edited; empty for a
                file that did not exist.

        Raises:
            NotFound: there is no such skill.
            Conflict: a file is not what was expected.
            Refused: it belongs to a product or to another location.
        """
        skill_id = self.resolve(name)
        return self._plan(
            "edit", lambda builder: [edit_step(builder, skill_id, files, expect or {})]
        )

    @_recovering
    def plan_lock(self, names: Iterable[str] = ()) -> ChangePlan:
        """Plan to lock the user's edits; those of all modified skills when none is named."""
        lock = self.lock()
        chosen = [self._locked(lock, name) for name in names]
        if not chosen:
            chosen = [one.entry for one in self.verify() if one.entry and one.state == "modified"]
        return self._plan(
            "lock", lambda builder: [lock_step(builder, one, self._signer) for one in chosen], lock
        )

    # --- changes --------------------------------------------------------------------------

    def apply(
        self,
        plan: ChangePlan,
        *,
        accept_risk: str = "",
        leave: Collection[str] = (),
        grant_tools: bool = False,
    ) -> Receipt:
        """Apply a plan in one transaction.

        Args:
            plan: The plan. Refused steps are left out; review them first.
            accept_risk: Install blocked skills too; the reason is kept in the lockfile.
            leave: Ids of steps to leave out.
            grant_tools: Grant the tools that the new content requests.

        Raises:
            Blocked: the scan blocks all steps, and the risk is not accepted.
            Conflict: a skill, or what was staged for it, changed since the plan was made.
            Refused: the disk reports an error; the old state is valid.
            Incomplete: it was applied, but the trust could not be saved, or the disk did not
                confirm it.
        """
        kept = tuple(step for step in plan.changes if step.id in leave)
        steps = [step for step in plan.changes if step.id not in leave]
        left = [
            step for step in steps if step.blocked and not accept_risk and not self._accepted(step)
        ]
        steps = [_with_reason(step, accept_risk) for step in steps if step not in left]
        if not steps:
            if left:
                raise _blocked(left, plan.op)
            repaired = (*plan.stage.repaired, *recover(self.scope))
            return Receipt(0, repaired=repaired, kept=kept)
        pending = PendingChange(
            plan.op,
            join_names(f"`{step.id}`" for step in steps[:5]),
            [
                SkillChange(
                    step.id,
                    step.staged,
                    step.was,
                    step.tree_digest.digest if step.tree_digest is not None else "",
                )
                for step in steps
            ],
            partial(_relocked, steps=steps),
            bases={
                base: os.path.join(plan.stage.path, f"{base}.zip")
                for step in steps
                for base in step.bases
            },
            seen={step.id: step.installed for step in steps},
        )
        was = {self.scope.target(step.id): step.was for step in steps}
        with suppress(SatchelError):  # for an undo of a change that is interrupted
            self.trust.suspend(was, keep=list(was))
        receipt = commit(self.scope, pending, plan.stage)
        self._invalidate()
        done = receipt._replace(done=tuple(steps), left=tuple(left), kept=kept)

        def update_trust() -> None:
            self._update_trust(plan.op, steps, accepted=bool(accept_risk))
            if grant_tools:
                self.trust.grant_tools({
                    self.scope.target(step.id): step.tree_digest.digest
                    for step in steps
                    if step.difference.requests and step.tree_digest is not None
                })  # fmt: skip

        return self._complete(done, update_trust)

    carry_out = apply  # the name up to 0.2

    def _update_trust(self, op: str, steps: Sequence[ChangeStep], *, accepted: bool) -> None:
        """Trust installed skills, revoke the trust of removed ones, and save accepted risks."""
        gone = [step for step in steps if step.kind == "remove"]
        targets = [self.scope.target(step.id) for step in gone]
        was_trusted = any(self.trust.trusts(one, self.scope.boundary) for one in targets)
        was_made = any(self.trust.is_authored(one) for one in targets)
        made = op in _AUTHORED_OPS or (op == "rename" and was_made)
        put = [step for step in steps if step.kind != "remove"]
        self.trust.suspend(
            {self.scope.target(step.id): step.was for step in steps},
            keep=[self.scope.target(step.id) for step in put],
        )
        for step in put:
            if accepted and step.blocked and step.tree_digest is not None and step.after:
                self.trust.accept(step.tree_digest.digest, step.after.scan.accepted)
        if op in _TRUSTED_OPS or (op == "rename" and was_trusted):
            self.trust.trust(*(self.scope.target(step.id) for step in put), made=made)

    def _complete(self, done: _Result, update_trust: Callable[[], object]) -> _Result:
        """Save the trust that belongs to a change; raises `Incomplete` for any trouble."""
        try:
            update_trust()
        except SatchelError as exc:
            text = say("The change was made, but: {reason}", reason=exc.message)
            done = done._replace(trouble=(text, exc.hint, *done.trouble))
        if done.trouble:
            first, *rest = done.trouble
            raise Incomplete(first, say(". ").join(filter(None, rest)), receipt=done)
        return done

    def _invalidate(self) -> None:
        if self._library is not None:
            self._library.invalidate()

    def _accepted(self, step: ChangeStep) -> bool:
        """Whether this user accepted this content before."""
        return step.tree_digest is not None and self.trust.accepts(step.tree_digest.digest)

    def undo(self, *, redo: bool = False, number: int = 0) -> Undone:
        """Undo the last change.

        Args:
            redo: Redo the last undo.
            number: Undo only if this history entry is the next one; any when 0.

        Raises:
            NotFound: there is nothing to undo.
            Conflict: another entry is the next one.
            Refused: the last change cannot be undone.
            Incomplete: it was undone, but the trust could not be saved, or the disk did not
                confirm it.
        """
        undone = undo_change(self.scope, redo=redo, number=number)
        self._invalidate()
        return self._complete(undone, lambda: self._restore_trust(undone.changes))

    def _restore_trust(self, changes: Iterable[SkillChange]) -> None:
        """Restore the trust of the restored contents, and revoke that of the replaced ones."""
        at = {self.scope.target(change.id): change for change in changes}
        self.trust.suspend({target: change.before for target, change in at.items()})
        for target, change in at.items():
            self.trust.restore(target, change.after)

    def history(self) -> list[HistoryEntry]:
        """The changes that can be undone, newest first."""
        return read_entries(self.scope)

    def require_complete(self, plan: ChangePlan, *, accept_risk: str = "") -> None:
        """Refuse a plan with refused or blocked steps.

        Raises:
            SatchelError: the reason of the first refused step.
            Blocked: the scan blocks a step.
        """
        for step in plan.of_kind("refused"):
            if step.error is not None:
                raise step.error
        blocked = [step for step in plan.blocked if not self._accepted(step)]
        if blocked and not accept_risk:
            raise _blocked(blocked, plan.op)

    def verify(
        self, names: Iterable[str] = (), *, progress: Callable[[int, int], None] | None = None
    ) -> list[InstallState]:
        """Compare skills on disk with the lockfile.

        Args:
            names: The skills; all when empty.
            progress: Called with the number done and the total.
        """
        lock = self.lock()
        chosen = [self.resolve(name) for name in names] or sorted({*lock, *self._ids()})
        found: list[InstallState] = []
        for skill_id in chosen:
            if progress is not None:
                progress(len(found), len(chosen))
            found.append(verify_one(self.scope, lock.get(skill_id), skill_id))
        return found

    # --- lookup ---------------------------------------------------------------------------

    def resolve(self, name: str) -> str:
        """The id of a skill of this scope, from its id or name.

        Raises:
            NotFound: there is no such skill.
            Refused: it belongs to a product or to another location.
        """
        lock = self.lock()
        plain = name == os.path.basename(name) and not name.startswith(".")
        if name in lock or (plain and os.path.isdir(self.scope.target(name))):
            return name
        for entry in lock.values():
            if entry.name == name:
                return entry.id
        elsewhere = self._library.find(name) if self._library is not None else []
        for skill in elsewhere:
            if os.path.realpath(skill.origin.root) == os.path.realpath(self.scope.folder):
                if "/" not in skill.head.id:
                    return skill.head.id
                raise not_ours(skill)
        if elsewhere:
            raise not_ours(elsewhere[0])
        near = close_names(name, {*lock, *self._ids()})
        raise NotFound(
            say("There is no skill `{name}`", name=name),
            say("Did you mean {names}?", names=join_names(near))
            if near
            else say("Run `{command}`", command="satchel list --all"),
        )

    def tree(self, name: str) -> Tree:
        """The files of an installed skill."""
        return FolderTree(os.path.join(self.scope.folder, self.resolve(name)))

    def _locked(self, lock: Lock, name: str) -> LockEntry:
        skill_id = self.resolve(name)
        if skill_id not in lock:
            raise NotFound(
                say("`{name}` is not in the lockfile", name=skill_id),
                say("Run `{command}`", command="satchel install SOURCE"),
            )
        return lock[skill_id]

    def _ids(self) -> list[str]:
        try:
            names = os.listdir(self.scope.folder)
        except OSError:
            return []
        return [
            name
            for name in names
            if not name.startswith(".") and os.path.isdir(os.path.join(self.scope.folder, name))
        ]

    def _plan(
        self, op: str, make: Callable[[StepBuilder], Iterable[ChangeStep]], lock: Lock | None = None
    ) -> ChangePlan:
        """A plan with its staging folder, which is deleted when `make` raises."""
        with ExitStack() as stack:
            stage = stack.enter_context(StagingFolder(self.scope))
            stage.repaired = self.repaired
            lock = self.lock() if lock is None else lock
            scans = self._library.integrity.scans if self._library is not None else None
            steps = list(make(StepBuilder(self.scope, stage, lock, self._hubs, scans)))
            return ChangePlan(op, self.scope, steps, stage, stack.pop_all())


def _blocked(steps: Sequence[ChangeStep], op: str) -> Blocked:
    hint = say("Read what it found; to install it all the same, give `--accept-risk WHY`")
    if op == "lock":  # it is installed already
        hint = say(PROBLEMS["blocked"].fix, name=steps[0].id)
    return Blocked(
        say("The scan blocked {names}", names=join_names(f"`{step.id}`" for step in steps)), hint
    )


def _with_reason(step: ChangeStep, reason: str) -> ChangeStep:
    """A blocked step with the reason for accepting the risk in its lockfile entry."""
    if not reason or not step.blocked or step.after is None:
        return step

    why = f"{time.strftime('%Y-%m-%d', time.gmtime())}: {reason}"
    return step._replace(after=step.after._replace(scan=step.after.scan._replace(accepted=why)))


def _relocked(lock: Lock, steps: Sequence[ChangeStep]) -> Lock:
    """The lock after the steps; raises `Conflict` when an entry changed since the plan."""
    changed = dict(lock)
    for step in steps:
        if lock.get(step.id) != step.before:
            raise changed_meanwhile(step.id)
        if step.after is not None:
            changed[step.id] = step.after
        else:
            changed.pop(step.id, None)
    return changed
