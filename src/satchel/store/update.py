"""Steps for updates, renames, edits and the installation of locked skills.

Each source is fetched once, however many skills came from it. A skill whose source cannot be
reached, or which the user edited, is a refused step: the others are updated.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import TYPE_CHECKING

from satchel.errors import Changed, Conflict, NotFound, Refused, SatchelError
from satchel.i18n import say
from satchel.library.lockfile import LockedSource
from satchel.skill.document import MANIFEST
from satchel.store.archive import open_archive
from satchel.store.disk_errors import changed_meanwhile, disk_errors_as_refusal
from satchel.store.plan import ChangeStep
from satchel.store.planner import with_name
from satchel.store.sources import find_skills, source_from, subtree
from satchel.store.trees import ComposedTree, HashedTree, PathState, read_content

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from satchel.library.lockfile import LockEntry
    from satchel.skill.file_tree import Tree
    from satchel.store.planner import StepBuilder
    from satchel.store.sources import Bundle
    from satchel.store.workdir import Scope

_KINDS_WITHOUT_UPDATES = ("new", "upload")
"""Kinds of sources that cannot be fetched again."""


def plan_update(
    builder: StepBuilder,
    entries: Sequence[LockEntry],
    *,
    discard_edits: bool = False,
    signer: Callable[[Tree], str] | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> Iterator[ChangeStep]:
    """A step for each skill whose source can be fetched again."""
    groups: dict[tuple[str, str, str], list[LockEntry]] = {}
    for entry in entries:
        if entry.place.kind not in _KINDS_WITHOUT_UPDATES:
            place = entry.place
            groups.setdefault((place.kind, place.url, place.ref), []).append(entry)
    total = sum(map(len, groups.values()))
    at = 0
    for (_, _, wanted), members in groups.items():
        if progress is not None:
            progress(members[0].id, at, total)
        with ExitStack() as stack:
            try:
                place = members[0].place._replace(ref=wanted, commit="", path="")
                source = source_from(place, base=builder.scope.root, hubs=builder.hubs)
                bundle = stack.enter_context(source.fetch(ref=wanted))
            except SatchelError as exc:
                for entry in members:
                    yield builder.refused(entry.id, exc)._replace(name=entry.name)
                at += len(members)
                continue
            for entry in members:
                if progress is not None:
                    progress(entry.id, at, total)
                yield _update_step(builder, entry, bundle, signer, discard_edits=discard_edits)
                at += 1
    if progress is not None:
        progress("", total, total)


def _update_step(
    builder: StepBuilder,
    entry: LockEntry,
    bundle: Bundle,
    signer: Callable[[Tree], str] | None,
    *,
    discard_edits: bool,
) -> ChangeStep:
    place = bundle.place._replace(path=entry.place.path)
    try:
        with disk_errors_as_refusal(builder.scope.target(entry.id)):
            theirs = HashedTree(_find_again(bundle, entry.place))
            mine = builder.installed(entry.id).tree
            known = entry.upstream or entry.tree
            if mine is not None and theirs.digest == known:
                return _same(entry, mine.digest)
            locked = open_base(builder.scope, entry, entry.tree) if discard_edits else mine
            renamed = None
            if mine is not None and locked is not None and entry.upstream:
                renamed = _renamed_again(builder, entry, locked, theirs)
            if mine is None or mine.digest == known or (discard_edits and renamed is None):
                step = builder.from_tree(entry.id, theirs, place, signer=signer)
                notes = bundle.notes if place.kind == "hub" else ()  # version, key and verdict
                return step._replace(notes=(*notes, *step.notes))
            if renamed is None:
                raise Conflict(
                    say("`{name}` has your edits, so it was not updated", name=entry.id),
                    _discard_hint(entry),
                )
            return builder.from_tree(entry.id, renamed, place, upstream=theirs)
    except SatchelError as exc:
        return builder.refused(entry.id, exc)._replace(name=entry.name)


def _same(entry: LockEntry, digest: str) -> ChangeStep:
    """A step that changes nothing."""
    state = PathState(digest)
    return ChangeStep("same", entry.id, entry.name, before=entry, after=entry, installed=state)


def _find_again(bundle: Bundle, place: LockedSource) -> Tree:
    found = find_skills(bundle.tree, place.path)
    if not any(item.path == place.path for item in found):
        raise NotFound(say("There is no `{path}`", path=place.path or "."), say("Check the path"))
    return subtree(bundle.tree, place.path)


def _renamed_again(
    builder: StepBuilder, entry: LockEntry, mine: HashedTree, theirs: HashedTree
) -> Tree | None:
    """The source's version under the user's name; None when there are other edits than that."""
    base = open_base(builder.scope, entry)
    if base is None or MANIFEST in base.fingerprint.files:
        return None
    if HashedTree(with_name(base, entry.id, entry.id)).digest != mine.digest:
        return None
    return with_name(theirs, entry.id, entry.id)


def _discard_hint(entry: LockEntry) -> str:
    return say("`satchel update {name} --discard-edits` replaces your edits; `satchel undo` brings "
               "them back", name=entry.id)  # fmt: skip


def open_base(scope: Scope, entry: LockEntry, digest: str = "") -> HashedTree | None:
    """The stored content of a digest, the source's version by default; None when not kept."""
    digest = digest or entry.upstream or entry.tree
    path = scope.part("base", f"{digest.removeprefix('sha256:')}.zip")
    if not os.path.exists(path):
        return None
    with open_archive(path) as archive:
        tree = HashedTree(ComposedTree(read_content(archive)))
    return tree if tree.digest == digest else None


def rename_steps(builder: StepBuilder, skill_id: str, new: str) -> Iterator[ChangeStep]:
    """The skill under its new name, and the removal of the old one.

    The content is not new: the scan does not stop it.
    """
    entry = builder.lock.get(skill_id)
    tree = builder.installed_tree(skill_id)
    upstream = open_base(builder.scope, entry) if entry is not None else None
    place = entry.place if entry is not None else LockedSource("new")
    with disk_errors_as_refusal(builder.scope.target(skill_id)):
        renamed = with_name(tree, new, skill_id)
    step = builder.from_tree(new, renamed, place, upstream=upstream, like=skill_id)
    if step.error is not None:
        raise step.error
    if entry is None or step.after is None:
        step = step._replace(after=None, bases=())
    else:
        # Without the source's version the edits would count as the source's own.
        after = step.after._replace(
            upstream=entry.upstream or entry.tree, scan=entry.scan, signer=""
        )
        step = step._replace(after=after)
    yield step._replace(waived=True)
    state = builder.installed(skill_id).state
    yield ChangeStep("remove", skill_id, skill_id, before=entry, installed=state)


def lock_step(
    builder: StepBuilder, entry: LockEntry, signer: Callable[[Tree], str] | None
) -> ChangeStep:
    """A step that locks the content on disk; compared with the locked content, and scanned."""
    mine = builder.installed_tree(entry.id)
    if mine.digest == entry.tree:
        return _same(entry, mine.digest)
    notes: list[str] = []

    def identity_of(tree: Tree) -> str:
        try:
            return signer(tree) if signer is not None else ""
        except Changed:
            notes.append(say("The signature does not fit the edits"))
            return ""

    step = builder.from_tree(
        entry.id,
        mine,
        entry.place,
        upstream=open_base(builder.scope, entry),
        signer=identity_of,
        against=open_base(builder.scope, entry, entry.tree),
    )
    if step.error is not None or step.after is None:
        return step
    after = step.after._replace(upstream=entry.upstream or entry.tree)
    return step._replace(kind="replace", after=after, notes=(*step.notes, *notes))


def edit_step(
    builder: StepBuilder, skill_id: str, files: Mapping[str, bytes], expect: Mapping[str, str]
) -> ChangeStep:
    """A step with new content for some files of a skill.

    The user wrote it here and now: the scan reports, but does not stop it.
    """
    entry = builder.lock.get(skill_id)
    tree = builder.installed_tree(skill_id)
    for path, digest in expect.items():
        mark = tree.fingerprint.files.get(path, "")
        if mark.removeprefix("sha256:").removesuffix(" x") != digest:
            raise changed_meanwhile(skill_id)
    with disk_errors_as_refusal(builder.scope.target(skill_id)):
        content = read_content(tree)
    for path, data in files.items():
        mode = content[path][1] if path in content else "file"
        if mode == "link":
            raise Refused(
                say("`{path}` is a link", path=path), say("Edit the file that it leads to")
            )
        content[path] = data, mode
    place = entry.place if entry is not None else LockedSource("new")
    step = builder.from_tree(skill_id, ComposedTree(content), place)
    if step.error is not None:
        return step
    # The lockfile entry stays, so that the skill shows as modified.
    kind = "same" if step.difference.empty else "replace"
    return step._replace(kind=kind, after=entry, bases=(), waived=True)


def plan_install(
    builder: StepBuilder,
    only: Collection[str] = (),
    *,
    frozen: bool,
    fetch: bool = True,
    progress: Callable[[str, int, int], None] | None = None,
) -> Iterator[ChangeStep]:
    """A step for each locked skill, or for `only` some of them; see `Store.plan_install`."""
    wanted = [entry for entry in builder.lock.values() if not only or entry.id in only]
    total = len(wanted)
    # Sources stay open: a hundred skills of one repository fetch it once.
    with ExitStack() as stack:
        fetched: dict[tuple[str, ...], Bundle | SatchelError] = {}
        for at, entry in enumerate(wanted):
            if progress is not None:
                progress(entry.id, at, total)
            try:
                with disk_errors_as_refusal(entry.id):
                    mine = builder.installed(entry.id).tree
                    if mine is not None and (mine.digest == entry.tree or not frozen):
                        differs = mine.digest != entry.tree
                        note = say("it differs from the lockfile; see `satchel verify`")
                        notes = (note,) if differs else ()
                        yield _same(entry, mine.digest)._replace(notes=notes)
                        continue
                    tree = _locked_tree(builder, entry, fetched if fetch else None, stack)
            except SatchelError as exc:
                yield builder.refused(entry.id, exc)._replace(name=entry.name)
                continue
            step = builder.from_tree(entry.id, tree, entry.place)
            if step.kind != "refused":
                # The lockfile is what is installed here: its entry stays as it is.
                kind = "replace" if mine is not None else "add"
                step = step._replace(kind=kind, after=entry, before=entry)
            yield step
    if progress is not None:
        progress("", total, total)


def _locked_tree(
    builder: StepBuilder,
    entry: LockEntry,
    fetched: dict[tuple[str, ...], Bundle | SatchelError] | None,
    stack: ExitStack,
) -> Tree:
    """The files of a lockfile entry, from the base archive or, with `fetched`, from its source.

    Raises:
        Refused: there is no base archive, and nothing may be fetched.
        Changed: the source has other content than what is locked.
    """
    base = open_base(builder.scope, entry, entry.tree)
    if base is not None:
        return base
    if fetched is None:
        raise Refused(
            say("What was imported as `{name}` is not kept here", name=entry.id),
            say("Run `{command}`", command="satchel install --frozen"),
        )
    place = entry.place
    key = (place.kind, place.url, place.ref, place.commit)
    if key not in fetched:
        try:
            place_of_all = place._replace(path="")
            source = source_from(place_of_all, base=builder.scope.root, hubs=builder.hubs)
            fetched[key] = stack.enter_context(source.fetch(ref=place.ref, commit=place.commit))
        except SatchelError as exc:
            fetched[key] = exc
    bundle = fetched[key]
    if isinstance(bundle, SatchelError):
        raise bundle
    tree = HashedTree(subtree(bundle.tree, place.path))
    if tree.digest == entry.tree:
        return tree
    if entry.edited and tree.digest == entry.upstream:
        raise Changed(
            say("`{name}` is locked with edits, which its source does not have", name=entry.id),
            say("Keep the folder itself in version control, or lock the source's version"),
        )
    raise Changed(
        say("`{name}` is not what was locked: its source differs", name=entry.id),
        say("Run `{command}`", command=f"satchel update {entry.id}"),
    )
