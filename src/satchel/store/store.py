"""`Store`: all changes of the skills of one scope.

    with store.plan_import("skills.zip") as plan:   # staged, scanned, compared; nothing changed yet
        store.apply(plan)                           # one transaction

A plan that is not applied leaves nothing behind. An applied one can be undone.
"""

from __future__ import annotations

import os
from contextlib import ExitStack, suppress
from functools import wraps
from typing import TYPE_CHECKING, Concatenate, ParamSpec

from satchel.errors import InvalidInput, NotFound, SatchelError
from satchel.i18n import say
from satchel.library.lockfile import LockedSource, read_lock
from satchel.skill.file_tree import FolderTree, MemoryTree
from satchel.store.archive.rules import shown
from satchel.store.disk_errors import disk_errors_as_refusal
from satchel.store.install_state import verify_skill
from satchel.store.journal import ENTRY_FILE, JOURNAL_FILE, refuse_repository
from satchel.store.plan import ChangePlan, ChangeStep
from satchel.store.plan_applier import PlanApplier
from satchel.store.planner import StepBuilder
from satchel.store.record_files import write_lockfile
from satchel.store.scope_lock import locked_scope
from satchel.store.skill_names import InstalledNames, check_new_id, new_skill_document
from satchel.store.skill_selection import select_skills
from satchel.store.sources import source_of
from satchel.store.staging import StagingFolder
from satchel.store.trees import state_at
from satchel.store.undo import history as read_entries
from satchel.store.update import (
    edit_step,
    fix_steps,
    lock_step,
    plan_install,
    plan_update,
    rename_steps,
    resolving_step,
    skill_patches,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from satchel.library import Library
    from satchel.library.lockfile import Lock, LockEntry
    from satchel.library.trust_store import TrustStore
    from satchel.skill.file_tree import Tree
    from satchel.store.install_state import InstallState
    from satchel.store.merge import Side
    from satchel.store.skill_names import SelectedSkill
    from satchel.store.sources import Bundle
    from satchel.store.sources.base import HubFinder
    from satchel.store.transaction import Receipt
    from satchel.store.undo import HistoryEntry, Undone
    from satchel.store.update import SkillPatches
    from satchel.store.workdir import Scope


_Params = ParamSpec("_Params")


def _recovers_first(
    method: Callable[Concatenate[Store, _Params], ChangePlan],
) -> Callable[Concatenate[Store, _Params], ChangePlan]:
    """Decorate a method that plans: it recovers an interrupted change first."""

    @wraps(method)
    def recover_and_plan(
        self: Store, *arguments: _Params.args, **keywords: _Params.kwargs
    ) -> ChangePlan:
        self.recover()
        try:
            return method(self, *arguments, **keywords)
        except SatchelError as exc:
            for text in self.repaired:
                exc.add_note(text)
            raise

    return recover_and_plan


class Store:
    """Installs, updates and removes the skills of a project or of the user.

    Each method that begins with `plan_` returns a `ChangePlan`, and changes nothing. `apply` makes
    the change in one transaction, which `undo` takes back.

    Example:
        from satchel import Satchel

        store = Satchel.for_project(".").store()
        with store.plan_add("greet", "Greets people. Use for a welcome.", "Say hello.") as plan:
            receipt = store.apply(plan)
        assert [step.id for step in receipt.done] == ["greet"]
        store.undo()
    """

    def __init__(
        self,
        scope: Scope,
        *,
        trust: TrustStore,
        library: Library | None = None,
        hubs: Callable[[], HubFinder] | None = None,
    ) -> None:
        """Create a store; nothing is read or written yet.

        Args:
            scope: The folders to change.
            trust: The trusted folders; an installed skill is added.
            library: Finds skills of other locations, for better refusals.
            hubs: Returns the configured hubs; called when a source needs them.
        """
        self.scope = scope
        self.trust = trust
        self._library = library
        self._hubs = hubs
        self._skills = InstalledNames(scope, library)
        self._applier = PlanApplier(scope, trust, self._invalidate)
        self.repaired: tuple[str, ...] = ()
        """What recovery did before the latest plan or `verify`."""

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
        skill_id, text = new_skill_document(name, description, body, skill_id)
        return self.plan_new(skill_id, MemoryTree({"SKILL.md": text}))

    @_recovers_first
    def plan_new(self, skill_id: str, tree: Tree) -> ChangePlan:
        """Plan a new skill with the given files.

        Args:
            skill_id: Its id, which is the name of its folder.
            tree: Its files.

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

        Example:
            with store.plan_import("skills/code-review", skill_id="review") as plan:
                for step in plan.steps:
                    print(step.kind, step.id, step.difference.added, step.notes)
                store.apply(plan)
        """
        if skill_id:
            check_new_id(skill_id)
        origin = source_of(source, base=self.scope.root, hubs=self._hubs)
        with origin.fetch(ref=ref) as bundle:
            with disk_errors_as_refusal(source):
                selection = select_skills(
                    bundle, path=path, skill_id=skill_id, names=names, everything=everything,
                    has_skill=self._skills.has_skill,
                )  # fmt: skip
            if bundle.place.kind == "hub":
                self._learn_revoked()
            return self.plan_picked(bundle, selection, progress=progress)

    @_recovers_first
    def plan_picked(
        self,
        bundle: Bundle,
        wanted: Sequence[SelectedSkill],
        *,
        progress: Callable[[str, int, int], None] | None = None,
    ) -> ChangePlan:
        """Plan the import of selected skills (`select_skills`) from an open source.

        Args:
            bundle: The content of the source.
            wanted: The skills to import.
            progress: As in `plan_import`.
        """

        def steps(builder: StepBuilder) -> Iterator[ChangeStep]:
            for number, selected in enumerate(wanted):
                if progress is not None:
                    progress(selected.id, number, len(wanted))
                step = builder.from_source(selected, bundle)
                conflict = None
                if step.kind == "add":
                    conflict = self._skills.find_name_conflict(step, selected, builder.lock)
                yield step if conflict is None else builder.refused_step(step.id, conflict)
            if progress is not None:
                progress("", len(wanted), len(wanted))

        return self._plan("import", steps)

    @_recovers_first
    def plan_remove(self, names: Iterable[str]) -> ChangePlan:
        """Plan the removal of skills of this scope.

        Args:
            names: Ids or names of the skills.

        Raises:
            NotFound: there is no such skill.
            Refused: it belongs to a product or to another location.
        """

        def steps(builder: StepBuilder) -> Iterator[ChangeStep]:
            for name in names:
                skill_id = self.resolve(name)
                entry = builder.lock.get(skill_id)
                skill_name = entry.name if entry is not None else name
                target = self.scope.target(skill_id)
                with disk_errors_as_refusal(target):
                    refuse_repository(target)
                    state = state_at(target)
                yield ChangeStep("remove", skill_id, skill_name, before=entry, installed=state)

        return self._plan("remove", steps)

    @_recovers_first
    def plan_update(
        self,
        names: Iterable[str] = (),
        *,
        discard_edits: bool = False,
        keep: Side | Mapping[str, Side] | None = None,
        progress: Callable[[str, int, int], None] | None = None,
    ) -> ChangePlan:
        """Plan updates from the sources; the user's edits are merged with the source's changes.

        A step with changes that exclude each other is refused (`EditConflict`) without `keep`.

        Args:
            names: The skills; all with a source when empty.
            discard_edits: Replace edits by the source's version; `undo` restores them.
            keep: The side of each conflict: `mine`, `theirs`, or `both` with conflict marks; for
                all skills, or by id. For a named skill that has conflict marks, the side that
                stays.
            progress: As in `plan_import`.
        """
        names = list(names)
        if isinstance(keep, str) and names:
            chosen: dict[str, Side] = {self.resolve(name): keep for name in names}
            resolved = self._plan("edit", lambda builder: _resolving_steps(builder, chosen))
            if resolved.steps:
                return resolved
            resolved.close()
        lock = self.lock()
        entries = [self._locked_entry(lock, name) for name in names] or list(lock.values())
        sides = _sides_by_id(lock, keep)
        self._learn_revoked()
        return self._plan(
            "update",
            lambda builder: plan_update(
                builder, entries, discard_edits=discard_edits, keep=sides, progress=progress
            ),
            lock,
        )

    def diff(self, name: str) -> SkillPatches:
        """The user's edits of an installed skill, and what an update would bring.

        Args:
            name: Its id or name.

        Raises:
            NotFound: it is not in the lockfile.
            SatchelError: its source cannot be read.
        """
        entry = self._locked_entry(self.lock(), name)
        patches: list[SkillPatches] = []

        def compare(builder: StepBuilder) -> list[ChangeStep]:
            patches.append(skill_patches(builder, entry))
            return []

        self._plan("update", compare).close()
        return patches[0]

    @_recovers_first
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
        skill_ids = [self._locked_entry(lock, name).id for name in names]
        return self._plan(
            "install",
            lambda builder: plan_install(
                builder, skill_ids, frozen=frozen, fetch=fetch, progress=progress
            ),
            lock,
        )

    @_recovers_first
    def plan_rename(self, name: str, new: str) -> ChangePlan:
        """Plan another id and name for a skill.

        Args:
            name: Its present id or name.
            new: The new id and name.

        Raises:
            InvalidInput: the new name is not valid, or is taken.
        """
        check_new_id(new)
        skill_id = self.resolve(name)
        if os.path.lexists(os.path.join(self.scope.folder, new)):
            raise InvalidInput(say("`{path}` exists already", path=new), say("Choose another name"))
        return self._plan("rename", lambda builder: rename_steps(builder, skill_id, new))

    @_recovers_first
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

    @_recovers_first
    def plan_fix(self, scripts: Mapping[str, Collection[str]]) -> ChangePlan:
        """Plan the mechanical fixes of skills, as `satchel check --fix` does.

        Args:
            scripts: The id of each skill, and its scripts that get Unix line ends.
        """
        return self._plan("edit", lambda builder: fix_steps(builder, scripts))

    @_recovers_first
    def plan_lock(self, names: Iterable[str] = ()) -> ChangePlan:
        """Plan to lock the user's edits; those of all modified skills when none is named.

        Args:
            names: Ids or names of the skills.
        """
        lock = self.lock()
        entries = [self._locked_entry(lock, name) for name in names]
        if not entries:
            entries = [
                state.entry for state in self.verify() if state.entry and state.state == "modified"
            ]
        return self._plan(
            "lock", lambda builder: [lock_step(builder, entry) for entry in entries], lock
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
        return self._applier.apply(
            plan, accept_risk=accept_risk, skipped_ids=leave, grant_tools=grant_tools
        )

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
        return self._applier.undo(redo=redo, number=number)

    def recover(self) -> None:
        """Finish a change that was interrupted, or remove what it left; see `repaired`."""
        self.repaired = self._applier.recover()

    def history(self) -> list[HistoryEntry]:
        """The changes that can be undone, newest first."""
        return read_entries(self.scope)

    def last_change(self, *, redo: bool = False) -> tuple[str, int]:
        """When the last change was made, or undone with `redo`; empty when there is none."""
        state = "undone" if redo else "done"
        try:
            entry = next(entry for entry in self.history() if entry.state == state)
            path = self.scope.part("history", str(entry.number), ENTRY_FILE)
            return entry.time, os.stat(path).st_mtime_ns
        except (StopIteration, OSError, SatchelError):
            return "", 0

    def require_complete(self, plan: ChangePlan, *, accept_risk: str = "") -> None:
        """Refuse a plan with refused or blocked steps.

        Args:
            plan: The plan.
            accept_risk: As in `apply`: blocked steps count as complete then.

        Raises:
            SatchelError: the reason of the first refused step.
            Blocked: the scan blocks a step.
        """
        self._applier.require_complete(plan, accept_risk=accept_risk)

    def verify(
        self, names: Iterable[str] = (), *, progress: Callable[[int, int], None] | None = None
    ) -> list[InstallState]:
        """Compare skills on disk with the lockfile; an interrupted change is finished first.

        Args:
            names: The skills; all when empty.
            progress: Called with the number done and the total.

        Example:
            assert [item.state for item in store.verify(["review"])] == ["intact"]
        """
        if os.path.lexists(self.scope.part(JOURNAL_FILE)):
            self.recover()
        lock = self.lock()
        skill_ids = [self.resolve(name) for name in names] or sorted(
            {*lock, *self._skills.folder_ids()}
        )
        states: list[InstallState] = []
        for skill_id in skill_ids:
            if progress is not None:
                progress(len(states), len(skill_ids))
            entry = lock.get(skill_id)
            digest = (entry.upstream or entry.tree) if entry is not None else ""
            state = verify_skill(self.scope, entry, skill_id)
            states.append(state._replace(revoked=self.trust.read().revoked.get(digest, "")))
        return states

    def find_revoked(self) -> dict[str, str]:
        """Ask the hubs which installed skills they revoked; those are not offered any more.

        Returns:
            The id of each revoked skill, and the hub's reason.

        Raises:
            SatchelError: a hub cannot be read.
        """
        revoked_skills: dict[str, str] = {}
        reasons: dict[str, str] = {}
        folders: dict[str, str] = {}
        errors: list[SatchelError] = []
        for entry in self.lock().values():
            if entry.place.kind != "hub" or self._hubs is None:
                continue
            digest = entry.upstream or entry.tree
            try:
                revoked = self._hubs().revoked(entry.place, base=self.scope.root)
            except SatchelError as exc:
                errors.append(exc)
                continue
            if digest in revoked:
                revoked_skills[entry.id] = reasons[digest] = shown(revoked[digest])
                folders[self.scope.target(entry.id)] = entry.tree
        self.trust.add_revoked(reasons, folders)
        if errors:
            raise errors[0]
        return revoked_skills

    def _learn_revoked(self) -> None:
        with suppress(SatchelError):  # what fails here fails for the skill itself too
            self.find_revoked()

    def hub_count(self, hub: str) -> int:
        """The number of commits of a hub that the lockfile names; 0 for none."""
        places = [entry.place for entry in self.lock().values() if entry.place.hub == hub]
        return max((int(place.seen) for place in places if place.seen.isdecimal()), default=0)

    def lower_hub_count(self, hub: str, count: int) -> None:
        """Write a lower number of commits of a hub into the lockfile.

        Args:
            hub: The name of the hub.
            count: The number that it has now.
        """
        if self.hub_count(hub) <= count:
            return
        self.recover()
        with locked_scope(self.scope):
            lock = self.lock()
            for skill_id, entry in lock.items():
                if entry.place.hub == hub:
                    place = entry.place._replace(seen=str(count))
                    lock[skill_id] = entry._replace(place=place)
            write_lockfile(self.scope, lock)

    def _invalidate(self) -> None:
        if self._library is not None:
            self._library.invalidate()

    # --- lookup ---------------------------------------------------------------------------

    def resolve(self, name: str) -> str:
        """The id of a skill of this scope, from its id or name.

        Args:
            name: The id or the name of a skill.

        Raises:
            NotFound: there is no such skill.
            Refused: it belongs to a product or to another location.
        """
        return self._skills.resolve(name, self.lock())

    def tree(self, name: str) -> Tree:
        """The files of an installed skill.

        Args:
            name: The id or the name of a skill.
        """
        return FolderTree(os.path.join(self.scope.folder, self.resolve(name)))

    def _locked_entry(self, lock: Lock, name: str) -> LockEntry:
        skill_id = self.resolve(name)
        if skill_id not in lock:
            raise NotFound(
                say("`{name}` is not in the lockfile", name=skill_id),
                say("Run `{command}`", command="satchel install SOURCE"),
            )
        return lock[skill_id]

    def _plan(
        self,
        op: str,
        make_steps: Callable[[StepBuilder], Iterable[ChangeStep]],
        lock: Lock | None = None,
    ) -> ChangePlan:
        """Create a plan with its staging folder, which is deleted when `make_steps` raises."""
        with ExitStack() as stack:
            stage = stack.enter_context(StagingFolder(self.scope))
            stage.repaired = self.repaired
            lock = self.lock() if lock is None else lock
            scans = self._library.integrity.scans if self._library is not None else None
            builder = StepBuilder(self.scope, stage, lock, self._hubs, scans)
            steps = list(make_steps(builder))
            return ChangePlan(op, self.scope, steps, stage, stack.pop_all())


def _resolving_steps(builder: StepBuilder, sides: Mapping[str, Side]) -> Iterator[ChangeStep]:
    """Steps that take one side of the conflict marks in skills."""
    for skill_id, side in sides.items():
        step = resolving_step(builder, skill_id, side)
        if step is not None:
            yield step


def _sides_by_id(lock: Lock, keep: Side | Mapping[str, Side] | None) -> Mapping[str, Side]:
    """The side of the conflicts of each skill."""
    return dict.fromkeys(lock, keep) if isinstance(keep, str) else keep or {}
