"""Steps for updates, renames, edits and the installation of locked skills.

Each source is fetched once, however many skills came from it. The update of an edited skill merges
the edits with the source's changes (`merge.py`). A skill whose source cannot be reached, or which
cannot be merged without a choice, is a refused step: the others are updated.

Edits that are not locked stay unlocked: the lockfile then has the source's version, and the skill
shows as modified, so that a merge makes nothing trusted that was not.
"""

from __future__ import annotations

import os
from contextlib import ExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from satchel.errors import (
    Changed,
    Conflict,
    EditConflict,
    NotFound,
    Refused,
    SatchelError,
    SkillBroken,
)
from satchel.i18n import join_names, say
from satchel.library.lockfile import LockedSource
from satchel.skill.document import MANIFEST
from satchel.skill.file_fixes import fix_skill_md
from satchel.skill.file_tree import main_file, read_whole, skill_md_name
from satchel.skill.reader import parse_document
from satchel.store.archive import open_archive
from satchel.store.archive.rules import shown
from satchel.store.disk_errors import changed_meanwhile, disk_errors_as_refusal
from satchel.store.merge import find_marked_files, merge_trees, take_side
from satchel.store.patch import tree_patch
from satchel.store.plan import ChangeStep
from satchel.store.skill_names import rename_tree
from satchel.store.sources import find_skills, source_from, subtree
from satchel.store.trees import HashedTree, PathState, copy_tree

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from satchel.library.lockfile import LockEntry
    from satchel.skill.file_tree import Tree
    from satchel.store.merge import Merge, Side
    from satchel.store.planner import StepBuilder
    from satchel.store.sources import Bundle
    from satchel.store.workdir import Scope

_KINDS_WITHOUT_UPDATES = ("new", "upload")
"""Kinds of sources that cannot be fetched again."""
_MAX_NAMES_SHOWN = 12


def plan_update(
    builder: StepBuilder,
    entries: Sequence[LockEntry],
    *,
    discard_edits: bool = False,
    keep: Mapping[str, Side] | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> Iterator[ChangeStep]:
    """A step for each skill whose source can be fetched again; see `Store.plan_update`."""
    groups: dict[tuple[str, str, str], list[LockEntry]] = {}
    for entry in entries:
        if entry.place.kind not in _KINDS_WITHOUT_UPDATES:
            source = entry.place
            groups.setdefault((source.kind, source.url, source.ref), []).append(entry)
    total = sum(map(len, groups.values()))
    done_count = 0
    for (_, _, ref), group in groups.items():
        if progress is not None:
            progress(group[0].id, done_count, total)
        with ExitStack() as stack:
            try:
                locked_source = group[0].place._replace(ref=ref, commit="", path="")
                source = source_from(
                    locked_source,
                    base=builder.scope.root,
                    hubs=builder.hubs,
                    find_kept=partial(_find_kept, builder, group[0]),
                )
                bundle = stack.enter_context(source.fetch(ref=ref))
            except SatchelError as exc:
                for entry in group:
                    yield builder.refused_step(entry.id, exc)._replace(name=entry.name)
                done_count += len(group)
                continue
            for entry in group:
                if progress is not None:
                    progress(entry.id, done_count, total)
                side = (keep or {}).get(entry.id)
                yield _update_step(builder, entry, bundle, discard_edits=discard_edits, keep=side)
                done_count += 1
    if progress is not None:
        progress("", total, total)


def _find_kept(builder: StepBuilder, entry: LockEntry, digest: str) -> Tree | None:
    """Return the files with a digest, as the store or the skill's folder has them."""
    with suppress(SatchelError, OSError):  # else it is downloaded
        kept_tree = open_base(builder.scope, entry, digest)
        if kept_tree is not None:
            return kept_tree
        installed_tree = builder.installed(entry.id).tree
        if installed_tree is not None and installed_tree.digest == digest:
            return copy_tree(installed_tree)  # a copy, which no editor changes
    return None


def _update_step(
    builder: StepBuilder,
    entry: LockEntry,
    bundle: Bundle,
    *,
    discard_edits: bool,
    keep: Side | None,
) -> ChangeStep:
    source = bundle.place._replace(path=entry.place.path)
    try:
        with disk_errors_as_refusal(builder.scope.target(entry.id)):
            new_tree = HashedTree(_find_locked_skill(bundle, entry.place))
            installed_tree = builder.installed(entry.id).tree
            upstream_digest = entry.upstream or entry.tree
            if installed_tree is not None and new_tree.digest == upstream_digest:
                return _unchanged_step(entry, installed_tree.digest)._replace(notes=bundle.news)
            if installed_tree is None or installed_tree.digest == upstream_digest:
                return _replacing_step(builder, entry, bundle, new_tree)
            base_tree = open_base(builder.scope, entry)
            if discard_edits:
                is_renamed = base_tree is not None and _is_renamed(base_tree, entry)
                if base_tree is None or not is_renamed or MANIFEST in base_tree.fingerprint.files:
                    return _replacing_step(builder, entry, bundle, new_tree)
                renamed_tree = rename_tree(new_tree, entry.id, entry.id)
                return builder.from_tree(entry.id, renamed_tree, source, upstream=new_tree)
            if base_tree is None:
                raise Conflict(
                    say("`{name}` has your edits, and the version that you edited is not kept here",
                        name=entry.id),
                    _discard_hint(entry),
                )  # fmt: skip
            return _merging_step(
                builder, entry, source, (base_tree, installed_tree, new_tree), keep
            )
    except SatchelError as exc:
        return builder.refused_step(entry.id, exc)._replace(name=entry.name)


def _replacing_step(
    builder: StepBuilder, entry: LockEntry, bundle: Bundle, new_tree: HashedTree
) -> ChangeStep:
    """A step that installs the source's version."""
    source = bundle.place._replace(path=entry.place.path)
    step = builder.from_tree(entry.id, new_tree, source)
    notes = bundle.notes if source.kind == "hub" else ()  # version, key and verdict
    return step._replace(notes=(*notes, *step.notes))


def _merging_step(
    builder: StepBuilder,
    entry: LockEntry,
    source: LockedSource,
    trees: tuple[HashedTree, HashedTree, HashedTree],
    keep: Side | None,
) -> ChangeStep:
    """A step that merges the user's edits with the source's changes.

    Args:
        builder: The builder of the plan.
        entry: The lockfile entry.
        source: The source of the new version.
        trees: The source's version that is installed, the content on disk, and the new version.
        keep: The side of each conflict.

    Raises:
        EditConflict: there is a conflict, and no side is chosen.
    """
    base, mine, upstream = trees
    theirs = upstream
    if _is_renamed(base, entry) and MANIFEST not in base.fingerprint.files:
        base = HashedTree(rename_tree(base, entry.id, entry.id))
        theirs = HashedTree(rename_tree(upstream, entry.id, entry.id))
    marked_files = find_marked_files(mine)
    if marked_files:
        raise Conflict(
            say("`{name}` has conflict marks: {files}", name=entry.id, files=_names(marked_files)),
            say("Edit them, or take one side with `satchel update {name} --keep mine` or "
                "`--keep theirs`", name=entry.id),
        )  # fmt: skip
    merge = merge_trees(base, mine, theirs, keep)
    if merge.conflicts and keep is None:
        raise EditConflict(
            say("You and the source of `{name}` changed the same lines: {files}",
                name=entry.id, files=_names(merge.conflicts)),
            say("Keep one side with `satchel update {name} --keep mine` or `satchel update {name} "
                "--keep theirs`", name=entry.id),
            files=merge.conflicts,
            marked=merge.marked,
        )  # fmt: skip
    step = builder.from_tree(entry.id, merge.tree, source, upstream=upstream)
    if isinstance(step.error, SkillBroken) and keep == "both":
        raise Conflict(
            say("Both sides of the frontmatter of `{name}` cannot be kept: it could not be read",
                name=entry.id),
            say("Keep `mine` or `theirs`"),
        )  # fmt: skip
    new_entry = step.after
    if step.error is not None or new_entry is None:
        return step
    if mine.digest != base.digest:
        step = step._replace(keeps_edits=True, notes=(*_merge_notes(merge, keep), *step.notes))
    if mine.digest == entry.tree:  # the edits were locked, or there is another name only
        return step._replace(after=new_entry._replace(upstream=upstream.digest))
    after = new_entry._replace(
        tree=theirs.digest,
        files=theirs.fingerprint.files,
        upstream=upstream.digest if upstream.digest != theirs.digest else "",
    )
    bases = (*step.bases, builder.archive_base(theirs))
    return step._replace(kind="replace", after=after, bases=tuple(dict.fromkeys(bases)))


def _merge_notes(merge: Merge, keep: Side | None) -> Iterator[str]:
    """The merged files, and how their conflicts were decided."""
    if clean_paths := [path for path in merge.merged if path not in merge.conflicts]:
        yield say("Your edits and those of the source were merged: {files}",
                  files=_names(clean_paths))  # fmt: skip
    elif not merge.conflicts:
        yield say("Your edits are kept")
    if merge.conflicts:
        names = _names(merge.conflicts)
        yield {
            "mine": say("Where both changed the same lines, yours are kept: {files}", files=names),
            "theirs": say("Where both changed the same lines, those of the source are taken: "
                          "{files}", files=names),
        }.get(keep or "", say("Both versions are kept between conflict marks: {files}",
                              files=names))  # fmt: skip


def _names(paths: Sequence[str]) -> str:
    return join_names(f"`{shown(path)}`" for path in paths[:_MAX_NAMES_SHOWN])


def _is_renamed(base: HashedTree, entry: LockEntry) -> bool:
    """Whether a skill was installed or renamed to another name than the source's."""
    file = main_file(base.fingerprint.files)
    head = parse_document(read_whole(base, file), "", file, (0, 0, 0)).head if file else None
    return head is not None and head.name != entry.name and entry.name == entry.id


def resolving_step(builder: StepBuilder, skill_id: str, side: Side) -> ChangeStep | None:
    """A step that takes one side of the conflict marks in a skill; None when it has none."""
    tree = builder.installed_tree(skill_id)
    paths = find_marked_files(tree)
    if not paths or side == "both":
        return None
    files = {path: take_side(read_whole(tree, path), side) for path in paths}
    step = edit_step(builder, skill_id, files, {})
    return step._replace(waived=False, keeps_edits=True)


class SkillPatches(NamedTuple):
    """The edits of a skill, and what an update would bring, as unified diffs."""

    edits: str
    upstream: str
    revision: str
    """The commit or version that an update would install."""


def skill_patches(builder: StepBuilder, entry: LockEntry) -> SkillPatches:
    """Compare a skill on disk, and the present version of its source, with the installed version.

    Raises:
        Refused: the installed version is not kept here.
        SatchelError: the source cannot be read.
    """
    base = open_base(builder.scope, entry)
    if base is None:
        raise Refused(
            say("What was imported as `{name}` is not kept here", name=entry.id),
            say("Run `{command}`", command="satchel install --frozen"),
        )
    is_renamed = _is_renamed(base, entry) and MANIFEST not in base.fingerprint.files
    named_base = HashedTree(rename_tree(base, entry.id, entry.id)) if is_renamed else base
    edits = tree_patch(named_base, builder.installed_tree(entry.id), entry.id)
    if entry.place.kind in _KINDS_WITHOUT_UPDATES:
        return SkillPatches(edits, "", "")
    locked_source = entry.place._replace(commit="", path="")
    source = source_from(locked_source, base=builder.scope.root, hubs=builder.hubs)
    with source.fetch(ref=entry.place.ref) as bundle:
        new_tree = HashedTree(_find_locked_skill(bundle, entry.place))
        upstream = tree_patch(base, new_tree, entry.id)
        return SkillPatches(edits, upstream, bundle.place.commit)


def _unchanged_step(entry: LockEntry, digest: str) -> ChangeStep:
    """A step that changes nothing."""
    state = PathState(digest)
    return ChangeStep("same", entry.id, entry.name, before=entry, after=entry, installed=state)


def _find_locked_skill(bundle: Bundle, source: LockedSource) -> Tree:
    skills = find_skills(bundle.tree, source.path)
    if not any(skill.path == source.path for skill in skills):
        raise NotFound(say("There is no `{path}`", path=source.path or "."), say("Check the path"))
    return subtree(bundle.tree, source.path)


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
        tree = HashedTree(copy_tree(archive))
    return tree if tree.digest == digest else None


def rename_steps(builder: StepBuilder, skill_id: str, new_name: str) -> Iterator[ChangeStep]:
    """The skill under its new name, and the removal of the old one.

    The content is not new: the scan does not stop it.
    """
    entry = builder.lock.get(skill_id)
    tree = builder.installed_tree(skill_id)
    upstream = open_base(builder.scope, entry) if entry is not None else None
    source = entry.place if entry is not None else LockedSource("new")
    with disk_errors_as_refusal(builder.scope.target(skill_id)):
        renamed_tree = rename_tree(tree, new_name, skill_id)
    step = builder.from_tree(
        new_name, renamed_tree, source, upstream=upstream, derived_from=skill_id
    )
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


def lock_step(builder: StepBuilder, entry: LockEntry) -> ChangeStep:
    """A step that locks the content on disk; compared with the locked content, and scanned."""
    installed_tree = builder.installed_tree(entry.id)
    if installed_tree.digest == entry.tree:
        return _unchanged_step(entry, installed_tree.digest)
    step = builder.from_tree(
        entry.id,
        installed_tree,
        entry.place,
        upstream=open_base(builder.scope, entry),
        compared_tree=open_base(builder.scope, entry, entry.tree),
    )
    if step.error is not None or step.after is None:
        return step
    after = step.after._replace(upstream=entry.upstream or entry.tree)
    return step._replace(kind="replace", after=after)


def edit_step(
    builder: StepBuilder, skill_id: str, files: Mapping[str, bytes], expect: Mapping[str, str]
) -> ChangeStep:
    """A step with new content for some files of a skill.

    The user wrote it here and now: the scan reports, but does not stop it.
    """
    entry = builder.lock.get(skill_id)
    tree = builder.installed_tree(skill_id)
    for path, digest in expect.items():
        entry_digest = tree.fingerprint.files.get(path, "")
        if entry_digest.removeprefix("sha256:").removesuffix(" x") != digest:
            raise changed_meanwhile(skill_id)
    for file in tree.files:
        if file.path in files and file.mode == "link":
            raise Refused(
                say("`{path}` is a link", path=file.path), say("Edit the file that it leads to")
            )
    with disk_errors_as_refusal(builder.scope.target(skill_id)):
        edited_tree = copy_tree(tree, files)
    source = entry.place if entry is not None else LockedSource("new")
    step = builder.from_tree(skill_id, edited_tree, source)
    if step.error is not None:
        return step
    # The lockfile entry stays, so that the skill shows as modified.
    kind = "same" if step.difference.empty else "replace"
    return step._replace(kind=kind, after=entry, bases=(), waived=True)


def fix_steps(builder: StepBuilder, scripts: Mapping[str, Collection[str]]) -> Iterator[ChangeStep]:
    """A step for each skill with mechanical fixes; see `Store.plan_fix`."""
    for skill_id, script_paths in scripts.items():
        try:
            tree = builder.installed_tree(skill_id)
            files = {path: read_whole(tree, path).replace(b"\r\n", b"\n") for path in script_paths}
            if file := skill_md_name(file.path for file in tree.files):
                files[file] = fix_skill_md(read_whole(tree, file), skill_id)
            yield edit_step(builder, skill_id, files, {})
        except SatchelError as exc:
            yield builder.refused_step(skill_id, exc)


def plan_install(
    builder: StepBuilder,
    skill_ids: Collection[str] = (),
    *,
    frozen: bool,
    fetch: bool = True,
    progress: Callable[[str, int, int], None] | None = None,
) -> Iterator[ChangeStep]:
    """A step for each locked skill, or for those of `skill_ids`; see `Store.plan_install`."""
    entries = [entry for entry in builder.lock.values() if not skill_ids or entry.id in skill_ids]
    total = len(entries)
    # Sources stay open: a hundred skills of one repository fetch it once.
    with ExitStack() as stack:
        bundles: dict[tuple[str, ...], Bundle | SatchelError] = {}
        for number, entry in enumerate(entries):
            if progress is not None:
                progress(entry.id, number, total)
            try:
                with disk_errors_as_refusal(entry.id):
                    installed_tree = builder.installed(entry.id).tree
                    if installed_tree is not None and (
                        installed_tree.digest == entry.tree or not frozen
                    ):
                        step = _unchanged_step(entry, installed_tree.digest)
                        if installed_tree.digest != entry.tree:
                            note = say("it differs from the lockfile; see `satchel verify`")
                            step = step._replace(notes=(note,))
                        yield step
                        continue
                    tree = _locked_tree(builder, entry, bundles if fetch else None, stack)
            except SatchelError as exc:
                yield builder.refused_step(entry.id, exc)._replace(name=entry.name)
                continue
            step = builder.from_tree(entry.id, tree, entry.place)
            if step.kind != "refused":
                # The lockfile is what is installed here: its entry stays as it is.
                kind = "replace" if installed_tree is not None else "add"
                step = step._replace(kind=kind, after=entry, before=entry)
            yield step
    if progress is not None:
        progress("", total, total)


def _locked_tree(
    builder: StepBuilder,
    entry: LockEntry,
    bundles: dict[tuple[str, ...], Bundle | SatchelError] | None,
    stack: ExitStack,
) -> Tree:
    """Return the files of a lockfile entry, from the base archive or from its source.

    Args:
        builder: The builder of the plan.
        entry: The lockfile entry.
        bundles: The sources that are open, by address; None when nothing may be fetched.
        stack: Closes a source that is opened here.

    Raises:
        Refused: there is no base archive, and nothing may be fetched; or the hub revoked it.
        Changed: the source has other content than what is locked.
    """
    base_tree = open_base(builder.scope, entry, entry.tree)
    if base_tree is not None:
        if bundles is not None and entry.place.kind == "hub" and builder.hubs is not None:
            digest = entry.upstream or entry.tree
            builder.hubs().refuse_revoked(entry.place, digest, base=builder.scope.root)
        return base_tree
    if bundles is None:
        raise Refused(
            say("What was imported as `{name}` is not kept here", name=entry.id),
            say("Run `{command}`", command="satchel install --frozen"),
        )
    source = entry.place
    key = (source.kind, source.url, source.ref, source.commit)
    if key not in bundles:
        try:
            whole_source = source._replace(path="")
            fetcher = source_from(whole_source, base=builder.scope.root, hubs=builder.hubs)
            bundles[key] = stack.enter_context(fetcher.fetch(ref=source.ref, commit=source.commit))
        except SatchelError as exc:
            bundles[key] = exc
    bundle = bundles[key]
    if isinstance(bundle, SatchelError):
        raise bundle
    tree = HashedTree(subtree(bundle.tree, source.path))
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
