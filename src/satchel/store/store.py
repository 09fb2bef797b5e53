"""The object callers hold: every way to change the skills of a scope.

    with store.plan_import("skills.zip") as plan:   # staged, scanned, compared; nothing changed yet
        store.carry_out(plan)                       # one transaction

A plan that nobody carries out leaves no trace. What was carried out can be undone.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from functools import wraps
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from satchel._language import listed, say
from satchel.errors import (
    Blocked,
    Incomplete,
    InvalidInput,
    NotFound,
    Refused,
    SatchelError,
)
from satchel.library.lockfile import Place, read_lock, salvage
from satchel.skill.interpret import MAX_NAME, NAME, slug
from satchel.skill.tree import FolderTree, MemoryTree, head_file
from satchel.store import history
from satchel.store.choose import check_new_id, choose, close_names, scaffold
from satchel.store.journal import Change, refuse_repository, standing
from satchel.store.merge import stand
from satchel.store.plan import Plan, Step
from satchel.store.prepare import Workbench
from satchel.store.scope import meanwhile, unchanged
from satchel.store.sources import source_of
from satchel.store.stage import stage
from satchel.store.transaction import Receipt, commit, recover
from satchel.store.update import edit_step, lock_step, plan_install, plan_update, rename_steps

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from satchel.library import Library
    from satchel.library.lockfile import Lock, Locked
    from satchel.library.trust import TrustBook
    from satchel.security import Allowance
    from satchel.skill.tree import Tree
    from satchel.store.choose import Pick
    from satchel.store.merge import Standing
    from satchel.store.scope import Scope
    from satchel.store.sources import Bundle


_PUTS = frozenset(("add", "import", "install", "init"))
"""Operations whose result is the user's own choice, and so trusted."""
_MAKES = frozenset(("add", "init"))
_Made = TypeVar("_Made", Receipt, history.Undone)
_Given = ParamSpec("_Given")


def _settled(
    method: Callable[Concatenate[Store, _Given], Plan],
) -> Callable[Concatenate[Store, _Given], Plan]:
    """Finish an interrupted change before a plan is made: it is made on what holds."""

    @wraps(method)
    def planned(self: Store, *given: _Given.args, **named: _Given.kwargs) -> Plan:
        self.repaired = tuple(repair.text for repair in recover(self.scope))
        try:
            return method(self, *given, **named)
        except SatchelError as exc:
            for text in self.repaired:
                exc.add_note(text)
            raise

    return planned


class Store:
    """The skills of one scope, for writing."""

    def __init__(
        self,
        scope: Scope,
        *,
        trust: TrustBook,
        library: Library | None = None,
        allow: Sequence[Allowance] = (),
        signer: Callable[[Tree], str] | None = None,
    ) -> None:
        """Make a store; nothing is read or written yet.

        Args:
            scope: Which folder.
            trust: Where trusted folders are kept; what is installed here is trusted.
            library: Knows the skills that are not ours to change, for better refusals.
            allow: Findings that the user accepts.
            signer: Says who signed a tree; nothing when nobody did.
        """
        self.scope = scope
        self.trust = trust
        self._library = library
        self._allow = tuple(allow)
        self._signer = signer
        self.repaired: tuple[str, ...] = ()
        """What was finished of interrupted changes before the latest plan."""

    def lock(self) -> Lock:
        """What is locked.

        Raises:
            LockBroken: the lockfile is damaged.
        """
        return read_lock(self.scope.lock)

    # --- making plans ---------------------------------------------------------------------

    def plan_add(
        self, name: str, description: str = "", body: str = "", *, skill_id: str = ""
    ) -> Plan:
        """A new, minimal skill. Its id is the name with everything odd taken out.

        Args:
            name: What it is called.
            description: What it does and when to use it.
            body: The instructions.
            skill_id: Its id, where none can be made of the name, or another is wanted.

        Raises:
            InvalidInput: there is one already, or nothing can be called so.
        """
        skill_id, text = scaffold(name, description, body, skill_id)
        return self.plan_new(skill_id, MemoryTree({"SKILL.md": text}))

    @_settled
    def plan_new(self, skill_id: str, tree: Tree) -> Plan:
        """A new skill of the user's own, whose files were made here.

        Raises:
            InvalidInput: there is one already.
        """
        if os.path.lexists(os.path.join(self.scope.folder, skill_id)):
            raise InvalidInput(
                say("The skill `{name}` exists already", name=skill_id),
                say("Choose another name, or edit `{path}`", path=self._shown(skill_id)),
            )

        def steps(bench: Workbench) -> Iterator[Step]:
            # Its author will edit it all day: nothing to lock.
            step = bench.put(skill_id, tree, Place("new"))
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
    ) -> Plan:
        """Skills from a folder, an archive or a git repository.

        Args:
            source: A path or an address.
            skill_id: Under which id; only for a single skill.
            ref: Branch, tag or commit of a repository.
            path: The folder within the source.
            names: Which of several skills.
            everything: All of them.
            progress: Told how far it is.

        Raises:
            NotFound: there is no skill in it.
            InvalidInput: there are several, and nobody said which.
            Unsafe: it holds something that is never unpacked.
        """
        if skill_id:
            check_new_id(skill_id)
        origin = source_of(source, base=self.scope.root)
        with origin.fetch(ref=ref) as bundle:
            with unchanged(source):
                wanted = choose(
                    bundle, path=path, skill_id=skill_id, names=names, everything=everything
                )
            return self.plan_picked(bundle, wanted, progress=progress)

    @_settled
    def plan_picked(
        self,
        bundle: Bundle,
        wanted: Sequence[Pick],
        *,
        progress: Callable[[str, int, int], None] | None = None,
    ) -> Plan:
        """Skills of a source that is open already, such as one that somebody chose from.

        Args:
            bundle: What the source holds.
            wanted: Which of its skills, and under which ids (`choose`).
            progress: Told how far it is.
        """

        def steps(bench: Workbench) -> Iterator[Step]:
            for at, pick in enumerate(wanted):
                if progress is not None:
                    progress(pick.id, at, len(wanted))
                yield bench.take(pick, bundle, signer=self._signer)
            if progress is not None:
                progress("", len(wanted), len(wanted))

        return self._plan("import", steps)

    @_settled
    def plan_remove(self, names: Iterable[str]) -> Plan:
        """Take skills away. Only those of this scope.

        Raises:
            NotFound: there is no such skill here.
            Refused: it is somebody else's: a product's, or another place's.
        """

        def steps(bench: Workbench) -> Iterator[Step]:
            for name in names:
                skill_id = self.resolve(name)
                entry = bench.lock.get(skill_id)
                shown = entry.name if entry is not None else name
                with unchanged(self.scope.target(skill_id)):
                    refuse_repository(self.scope.target(skill_id))
                    was = standing(self.scope.target(skill_id))
                yield Step("remove", skill_id, shown, before=entry, was=was)

        return self._plan("remove", steps)

    @_settled
    def plan_update(
        self,
        names: Iterable[str] = (),
        *,
        ref: str = "",
        discard_edits: bool = False,
        progress: Callable[[str, int, int], None] | None = None,
    ) -> Plan:
        """Newer versions from where the skills came; your own edits are merged or kept back.

        Args:
            names: Which; all that have a source when empty.
            ref: Another branch, tag or commit; only for one skill.
            discard_edits: Take the source's version whatever you edited; `undo` brings yours back.
            progress: Told how far it is.
        """
        lock = self.lock()
        chosen = [self._locked(lock, name) for name in names] or list(lock.values())
        return self._plan(
            "update",
            lambda bench: plan_update(
                bench,
                chosen,
                ref=ref,
                discard_edits=discard_edits,
                signer=self._signer,
                progress=progress,
            ),
            lock,
        )

    @_settled
    def plan_install(
        self,
        names: Iterable[str] = (),
        *,
        frozen: bool = False,
        fetch: bool = True,
        progress: Callable[[str, int, int], None] | None = None,
    ) -> Plan:
        """What the lockfile says and the disk lacks.

        Args:
            names: Which; all that are locked when empty.
            frozen: Bring back changed skills too, so that the disk is exactly what is locked.
            fetch: Take from its source what is not kept here; it is refused else.
            progress: Told how far it is.
        """
        lock = self.lock()
        only = [self._locked(lock, name).id for name in names]
        return self._plan(
            "install",
            lambda bench: plan_install(bench, only, frozen=frozen, fetch=fetch, progress=progress),
            lock,
        )

    @_settled
    def plan_rename(self, name: str, new: str) -> Plan:
        """Another id and name for a skill.

        Raises:
            InvalidInput: the new name cannot be one, or is taken.
        """
        if not NAME.fullmatch(new) or len(new) > MAX_NAME:
            raise InvalidInput(
                say("`{name}` cannot be a skill's name: use a-z, 0-9 and single hyphens", name=new),
                say("Try `{name}`", name=slug(new)),
            )
        skill_id = self.resolve(name)
        if os.path.lexists(os.path.join(self.scope.folder, new)):
            raise InvalidInput(
                say("The skill `{name}` exists already", name=new), say("Choose another name")
            )
        return self._plan("rename", lambda bench: rename_steps(bench, skill_id, new))

    @_settled
    def plan_edit(
        self, name: str, files: Mapping[str, bytes], *, expect: Mapping[str, str] | None = None
    ) -> Plan:
        """Other content for some files of a skill, written by the user; the rest stays.

        What is locked stays locked as it was, so that the skill shows as modified.

        Args:
            name: Its id or name.
            files: Path within the skill -> the whole new content.
            expect: Path -> SHA-256, in hexadecimal, of what the user began with; empty for a file
                that was not there. Who saves overwrites nothing they have not seen.

        Raises:
            NotFound: there is no such skill here.
            Conflict: it is not what was expected, or changes this very moment.
            Refused: it is somebody else's.
        """
        skill_id = self.resolve(name)
        return self._plan("edit", lambda bench: [edit_step(bench, skill_id, files, expect or {})])

    @_settled
    def plan_lock(self, names: Iterable[str] = ()) -> Plan:
        """Your own edits become part of what is locked; all modified ones when none is named."""
        lock = self.lock()
        chosen = [self._locked(lock, name) for name in names]
        if not chosen:
            chosen = [one.entry for one in self.verify() if one.entry and one.state == "modified"]
        return self._plan(
            "lock", lambda bench: [lock_step(bench, one, self._signer) for one in chosen], lock
        )

    # --- carrying them out ----------------------------------------------------------------

    def carry_out(
        self, plan: Plan, *, accept_risk: str = "", leave: Collection[str] = ()
    ) -> Receipt:
        """Do what a plan says, in one transaction.

        Args:
            plan: What to do. Refused steps are left out; look at them first.
            accept_risk: Install blocked skills too; the reason is kept in the lockfile.
            leave: Ids of steps that are not wanted after all.

        Raises:
            Blocked: there is nothing else to do, and nobody accepted the risk.
            Conflict: something changed since the plan was made.
            Refused: the disk says no; the old state holds.
            Incomplete: it was done, but its trust could not be written down, or the disk did
                not confirm it.
        """
        kept = tuple(step for step in plan.changes if step.id in leave)
        steps = [step for step in plan.changes if step.id not in leave]
        left = [
            step for step in steps if step.blocked and not accept_risk and not self._accepted(step)
        ]
        steps = [_with_reason(step, accept_risk) for step in steps if step not in left]
        if not steps:
            if left:
                raise _blocked(left)
            repaired = [repair.text for repair in recover(self.scope)]
            return Receipt(0, repaired=(*plan.stage.notes, *repaired), kept=kept)
        bases = {
            base: os.path.join(plan.stage.path, f"{base}.zip")
            for step in steps
            for base in step.bases
        }
        receipt = commit(
            self.scope,
            plan.stage,
            [
                Change(step.id, step.staged, step.was, step.seal.digest if step.seal else "")
                for step in steps
            ],
            relock=lambda lock: _relocked(lock, steps),
            op=plan.op,
            summary=listed(f"`{step.id}`" for step in steps[:5]),
            bases=bases,
        )
        self._told()
        done = receipt._replace(done=tuple(steps), left=tuple(left), kept=kept)
        return self._complete(
            done, lambda: self._decide(plan.op, steps, accepted=bool(accept_risk))
        )

    def _decide(self, op: str, steps: Sequence[Step], *, accepted: bool) -> None:
        """Trust what was put here by the user, and no more what went.

        Args:
            op: Which operation.
            steps: What was done.
            accepted: The user accepted the risk of blocked steps now, whatever a lockfile says.
        """
        gone = [step for step in steps if step.kind == "remove"]
        targets = [self.scope.target(step.id) for step in gone]
        was_trusted = any(self.trust.trusts(one, self.scope.boundary) for one in targets)
        was_made = any(self.trust.is_made(one) for one in targets)
        made = op in _MAKES or (op == "rename" and was_made)
        for step in gone:
            self.trust.set_aside(self.scope.target(step.id), step.was)
        put = [step for step in steps if step.kind != "remove"]
        for step in put:
            if accepted and step.blocked and step.seal is not None and step.after is not None:
                self.trust.accept(step.seal.digest, step.after.scan.accepted)
        if op in _PUTS or (op == "rename" and was_trusted):
            self.trust.trust(*(self.scope.target(step.id) for step in put), made=made)

    def _complete(self, done: _Made, decide: Callable[[], object]) -> _Made:
        """Write down the trust that belongs to a change that was made.

        Raises:
            Incomplete: that could not be done, or the disk did not confirm the change.
        """
        try:
            decide()
        except SatchelError as exc:
            words = say("The change was made, but: {reason}", reason=exc.message)
            done = done._replace(trouble=(words, exc.hint, *done.trouble))
        if done.trouble:
            first, *rest = done.trouble
            raise Incomplete(first, say(". ").join(filter(None, rest)), receipt=done)
        return done

    def _told(self) -> None:
        """Something changed: whoever looks next sees it, whether a watcher noticed or not."""
        if self._library is not None:
            self._library.doubt()

    def _accepted(self, step: Step) -> bool:
        """Whether this user accepted this very content before, whatever a lockfile says."""
        return step.seal is not None and self.trust.accepts(step.seal.digest)

    def undo(self, *, redo: bool = False, number: int = 0) -> history.Undone:
        """Bring back what was there before the last change.

        Args:
            redo: Take the last undo back.
            number: Only if that is the entry of the history which is undone or done again: who
                looks at a list must not undo what came after it.

        Raises:
            NotFound: there is nothing to undo.
            Conflict: something else was changed meanwhile.
            Refused: the last change is one that cannot be undone.
            Incomplete: it was undone, but the trust could not be written down, or the disk did
                not confirm it.
        """
        undone = history.undo(self.scope, redo=redo, number=number)
        self._told()
        return self._complete(undone, lambda: self._follow(undone.ids))

    def _follow(self, ids: Iterable[str]) -> None:
        """Let trust follow an undoing: what went is not trusted, what came back is as it was."""
        for target in map(self.scope.target, ids):
            if os.path.lexists(target):
                self.trust.bring_back(target, standing(target))
            else:
                self.trust.revoke(target)

    def history(self) -> list[history.Entry]:
        """The changes that can be undone, newest first."""
        return history.history(self.scope)

    def insist(self, plan: Plan, *, accept_risk: str = "") -> None:
        """Refuse a plan that would not do everything.

        Raises:
            SatchelError: the reason of the first step that was refused.
            Blocked: the scan blocks one of them.
        """
        for step in plan.of_kind("refused"):
            if step.error is not None:
                raise step.error
        blocked = [step for step in plan.blocked if not self._accepted(step)]
        if blocked and not accept_risk:
            raise _blocked(blocked)

    def rebuild_lock(self, *, dry_run: bool = False) -> tuple[list[str], list[str]]:
        """Write a damaged lockfile anew; returns the ids that were kept and those without source.

        Sound entries stay as they are. In place of a damaged one the last that the history has is
        taken; a skill without either is locked no more. This cannot be undone.

        Args:
            dry_run: Only return what would be kept.

        Raises:
            Incomplete: it was done, but the disk did not confirm it; `receipt` is what is returned.
        """
        there = set(self._ids())
        past = history.last_locked(self.scope)
        sound = {name: entry for name, entry in past.items() if name in there}
        sound |= salvage(self.scope.lock)
        lost = sorted(name for name in there if name not in sound)
        if dry_run:
            return sorted(sound), lost
        made = commit(
            self.scope, None, [], relock=lambda _: sound, op="rebuild", summary="", rebuild=True
        )
        result = sorted(sound), lost
        if made.trouble:
            raise Incomplete(made.trouble[0], made.trouble[1], receipt=result)
        return result

    def verify(
        self, names: Iterable[str] = (), *, progress: Callable[[int, int], None] | None = None
    ) -> list[Standing]:
        """Whether what is on disk is what is locked; everything when no name is given.

        Args:
            names: Which skills.
            progress: Told how many of how many are done.
        """
        lock = self.lock()
        if chosen := [self.resolve(name) for name in names]:
            return [stand(self.scope, lock.get(item), item) for item in chosen]
        every = sorted({*lock, *self._ids()})
        found: list[Standing] = []
        for item in every:
            if progress is not None:
                progress(len(found), len(every))
            found.append(stand(self.scope, lock.get(item), item))
        return found

    # --- finding --------------------------------------------------------------------------

    def resolve(self, name: str) -> str:
        """The id of a skill of this scope, from its id or name.

        Raises:
            NotFound: there is no such skill here.
            Refused: it is somebody else's.
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
                raise Refused(
                    say("`{name}` lies within another folder, `{path}`",
                        name=name, path=skill.head.id),
                    say("Change that folder by hand"),
                )  # fmt: skip
        if elsewhere:
            skill = elsewhere[0]
            raise Refused(
                say("`{name}` ships with a product and cannot be changed", name=name)
                if skill.is_system
                else say("`{name}` is in `{place}`, which Satchel does not write to",
                         name=name, place=skill.origin.label),
                say("Exclude it: add its name to the setting `exclude`"),
            )  # fmt: skip
        near = close_names(name, {*lock, *self._ids()})
        raise NotFound(
            say("There is no skill `{name}` in `{folder}`", name=name, folder=self.scope.folder),
            say("Did you mean {names}?", names=listed(near))
            if near
            else say("Run `satchel list --all` to see what there is"),
        )

    def tree(self, name: str) -> Tree:
        """The files of an installed skill."""
        return FolderTree(os.path.join(self.scope.folder, self.resolve(name)))

    def _locked(self, lock: Lock, name: str) -> Locked:
        skill_id = self.resolve(name)
        if skill_id not in lock:
            raise NotFound(
                say(
                    "`{name}` is not in the lockfile: it did not come from anywhere", name=skill_id
                ),
                say("Import it from its source to have it locked"),
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

    def _shown(self, skill_id: str) -> str:
        folder = self.scope.target(skill_id)
        names = os.listdir(folder) if os.path.isdir(folder) else []
        return os.path.relpath(os.path.join(folder, head_file(names) or "SKILL.md"))

    # --- inside ---------------------------------------------------------------------------

    def _plan(
        self, op: str, make: Callable[[Workbench], Iterable[Step]], lock: Lock | None = None
    ) -> Plan:
        """A plan with its staging folder, which is gone when a step cannot be made.

        Args:
            op: Which command.
            make: Makes the steps.
            lock: The lock that the plan is made on; it is read when None.
        """
        with ExitStack() as stack:
            here = stack.enter_context(stage(self.scope))
            here.notes = (*here.notes, *self.repaired)
            lock = self.lock() if lock is None else lock
            steps = list(make(Workbench(self.scope, here, lock, self._allow)))
            return Plan(op, self.scope, steps, here, stack.pop_all())


def _blocked(steps: Sequence[Step]) -> Blocked:
    return Blocked(
        say("The scan blocked {names}", names=listed(f"`{step.id}`" for step in steps)),
        say("Read what it found; to install it all the same, give `--accept-risk WHY`"),
    )


def _with_reason(step: Step, reason: str) -> Step:
    """A blocked step with the reason why it is installed all the same."""
    if not reason or not step.blocked or step.after is None:
        return step
    import time

    said = f"{time.strftime('%Y-%m-%d', time.gmtime())}: {reason}"
    return step._replace(after=step.after._replace(scan=step.after.scan._replace(accepted=said)))


def _relocked(lock: Lock, steps: Sequence[Step]) -> Lock:
    """The lock after the steps.

    Raises:
        Conflict: an entry is not what the plan saw: the skill was removed or changed meanwhile.
    """
    changed = dict(lock)
    for step in steps:
        if lock.get(step.id) != step.before:
            raise meanwhile(step.id)
        if step.after is not None:
            changed[step.id] = step.after
        else:
            changed.pop(step.id, None)
    return changed
