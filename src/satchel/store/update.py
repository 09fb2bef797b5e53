"""Newer versions from where skills came, with the user's own edits kept; what the lockfile says.

Each source is fetched once, however many skills came from it. A skill whose source cannot be
reached, or whose edits collide with the update, is a refused step: the others are updated.
"""

from __future__ import annotations

import os
import re
from contextlib import ExitStack
from typing import TYPE_CHECKING

from satchel._language import listed, say
from satchel.errors import Changed, Conflict, NotFound, Refused, SatchelError
from satchel.library.lockfile import Place
from satchel.skill.model import MANIFEST
from satchel.skill.tree import read_whole, seal, skill_file
from satchel.store.archive import open_archive
from satchel.store.journal import standing
from satchel.store.merge import ComposedTree, merge_trees
from satchel.store.plan import Step
from satchel.store.scope import meanwhile, refusal, unchanged
from satchel.store.sources import find_skills, source_from, subtree

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from satchel.library.lockfile import Locked
    from satchel.skill.tree import Mode, Tree
    from satchel.store.prepare import Workbench
    from satchel.store.scope import Scope
    from satchel.store.sources import Bundle

_ONCE = ("new", "upload")
"""Made here, or handed over once: there is nowhere to look for a newer version."""


def plan_update(
    bench: Workbench,
    entries: Sequence[Locked],
    *,
    ref: str = "",
    discard_edits: bool = False,
    signer: Callable[[Tree], str] | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> Iterator[Step]:
    """A step for each skill that has a source."""
    groups: dict[tuple[str, str, str], list[Locked]] = {}
    for entry in entries:
        if entry.place.kind not in _ONCE:
            place = entry.place
            groups.setdefault((place.kind, place.url, ref or place.ref), []).append(entry)
    total = sum(map(len, groups.values()))
    at = 0
    for (_, _, wanted), members in groups.items():
        if progress is not None:
            progress(members[0].id, at, total)
        with ExitStack() as stack:
            try:
                place = members[0].place._replace(ref=wanted, commit="", path="")
                source = source_from(place, base=bench.scope.root)
                bundle = stack.enter_context(source.fetch(ref=wanted))
            except SatchelError as exc:
                for entry in members:
                    yield Step("refused", entry.id, entry.name, before=entry, error=exc)
                at += len(members)
                continue
            for entry in members:
                if progress is not None:
                    progress(entry.id, at, total)
                yield _newer(
                    bench,
                    entry,
                    bundle,
                    discard_edits=discard_edits,
                    signer=signer,
                )
                at += 1
    if progress is not None:
        progress("", total, total)


def _newer(
    bench: Workbench,
    entry: Locked,
    bundle: Bundle,
    *,
    discard_edits: bool,
    signer: Callable[[Tree], str] | None,
) -> Step:
    """The step for one skill."""
    place = bundle.place._replace(path=entry.place.path)
    try:
        theirs = _same_skill(bundle, entry.place)
        pristine = seal(theirs)
        here = bench.present(entry.id)
        known = entry.upstream or entry.tree
        if pristine.digest == known and here is not None:
            return Step("same", entry.id, entry.name, before=entry, after=entry, was=here.digest)
        if here is None or here.digest == known or discard_edits:
            like = entry.id if here is not None else ""
            return bench.put(entry.id, theirs, place, signer=signer, like=like)
        return _merged(bench, entry, theirs, place, locked=here.digest == entry.tree)
    except SatchelError as exc:
        return Step("refused", entry.id, entry.name, before=entry, error=exc)


def _same_skill(bundle: Bundle, place: Place) -> Tree:
    found = find_skills(bundle.tree, place.path)
    if not any(item.path == place.path for item in found):
        raise NotFound(
            say("`{source}` has no skill in `{path}` any more",
                source=place.url, path=place.path or "."),
            say("Look where it went, and import it from there"),
        )  # fmt: skip
    return subtree(bundle.tree, place.path)


def _merged(bench: Workbench, entry: Locked, theirs: Tree, place: Place, *, locked: bool) -> Step:
    """The source's version merged with the user's edits.

    Args:
        bench: Makes the step.
        entry: What is locked now.
        theirs: The source's version.
        place: Where it came from.
        locked: Whether the edits are part of what is locked now.

    Raises:
        Conflict: both changed the same lines, or what the edits began with is not kept.
    """
    base = open_base(bench.scope, entry)
    if base is None:
        raise Conflict(
            say("`{name}` has edits of yours, and the version they began with is gone",
                name=entry.id),
            say("Set them aside, then run `satchel update {name} --discard-edits`", name=entry.id),
        )  # fmt: skip
    merged = merge_trees(base, bench.present_tree(entry.id), theirs)
    if merged.tree is None:
        raise Conflict(
            say("Your edits of `{name}` and the update change the same lines of {files}",
                name=entry.id, files=listed(f"`{path}`" for path in merged.conflicts)),
            say("See theirs with `satchel update {name} --discard-edits --dry-run`; without "
                "`--dry-run` it replaces yours, and `satchel undo` brings them back",
                name=entry.id),
        )  # fmt: skip
    step = bench.put(entry.id, merged.tree, place, upstream=theirs, kept=merged.kept, like=entry.id)
    if locked or step.after is None:
        return step
    # Edits that were not locked are kept on disk and stay unlocked: only the source's version is.
    pristine = seal(theirs)
    after = step.after._replace(tree=pristine.digest, files=pristine.files, upstream="")
    return step._replace(after=after)


def open_base(scope: Scope, entry: Locked, digest: str = "") -> Tree | None:
    """What the source had when the skill was installed, or None when it was not kept."""
    digest = (digest or entry.upstream or entry.tree).removeprefix("sha256:")
    path = os.path.join(scope.work, "base", f"{digest}.zip")
    if not os.path.exists(path):
        return None
    tree = open_archive(path)
    return tree if seal(tree).digest == f"sha256:{digest}" else None


def rename_steps(bench: Workbench, skill_id: str, new: str) -> Iterator[Step]:
    """The skill under its new name, and the end of the old one.

    A new name brings nothing that was not there: the scan is not asked whether it may stay.
    """
    entry = bench.lock.get(skill_id)
    tree = bench.present_tree(skill_id)
    upstream = open_base(bench.scope, entry) if entry is not None else None
    place = entry.place if entry is not None else Place("new")
    step = bench.put(new, _renamed(tree, new, skill_id), place, upstream=upstream, like=skill_id)
    if step.error is not None:
        raise step.error
    if entry is None or step.after is None:
        step = step._replace(after=None, bases=())
    else:
        # Without the pristine copy the edits would pass for the source's own.
        after = step.after._replace(
            upstream=entry.upstream or entry.tree, scan=entry.scan, signer=""
        )
        step = step._replace(after=after)
    yield step._replace(waived=True)
    target = bench.scope.target(skill_id)
    with unchanged(target):
        was = standing(target)
    yield Step("remove", skill_id, skill_id, before=entry, was=was)


def lock_step(bench: Workbench, entry: Locked, signer: Callable[[Tree], str] | None) -> Step:
    """What is on disk becomes what is locked: shown against what was locked, and scanned."""
    here = bench.present(entry.id)
    if here is None:
        raise NotFound(
            say("`{name}` is locked but not there", name=entry.id), say("Run `satchel install`")
        )
    if here.digest == entry.tree:
        return Step("same", entry.id, entry.name, before=entry, after=entry, was=here.digest)
    notes: list[str] = []

    def who(tree: Tree) -> str:
        try:
            return signer(tree) if signer is not None else ""
        except Changed:
            notes.append(
                say("The signature does not fit the edits: sign it yourself, or remove `SKILL.sig`")
            )
            return ""

    step = bench.put(
        entry.id,
        bench.present_tree(entry.id),
        entry.place,
        upstream=open_base(bench.scope, entry),
        signer=who,
        against=open_base(bench.scope, entry, entry.tree),
        like=entry.id,
    )
    if step.error is not None or step.after is None:
        return step
    after = step.after._replace(upstream=entry.upstream or entry.tree)
    return step._replace(kind="replace", after=after, notes=(*step.notes, *notes))


def edit_step(
    bench: Workbench,
    skill_id: str,
    files: Mapping[str, bytes],
    expect: Mapping[str, str],
) -> Step:
    """A skill with other content in some files.

    Its user wrote it here and now: the scan tells, and stops nothing.
    """
    entry = bench.lock.get(skill_id)
    here = bench.present(skill_id)
    if here is None:
        raise NotFound(
            say("`{name}` is locked but not there", name=skill_id), say("Run `satchel install`")
        )
    for path, digest in expect.items():
        if here.files.get(path, "").removeprefix("sha256:").removesuffix(" x") != digest:
            raise meanwhile(skill_id)
    tree = bench.present_tree(skill_id)
    content: dict[str, tuple[bytes, Mode]] = {
        file.path: (read_whole(tree, file.path), file.mode) for file in tree.files
    }
    for path, data in files.items():
        mode = content[path][1] if path in content else "file"
        if mode == "link":
            raise Refused(
                say("`{path}` is a link", path=path), say("Edit the file that it leads to")
            )
        content[path] = data, mode
    place = entry.place if entry is not None else Place("new")
    step = bench.put(skill_id, ComposedTree(content), place, like=skill_id)
    if step.error is not None:
        return step
    if bench.present(skill_id) != here:
        # Somebody wrote while we read: what was read belongs to two moments.
        raise meanwhile(skill_id)
    # An earlier version is what the difference is against, and it is on the disk: no base to keep.
    return step._replace(
        kind="same" if step.difference.empty else "replace",
        after=entry,
        bases=(),
        waived=True,
    )


def _renamed(tree: Tree, new: str, skill_id: str) -> Tree:
    """The same files, with another `name` in the frontmatter."""
    content: dict[str, tuple[bytes, Mode]] = {
        file.path: (read_whole(tree, file.path), file.mode) for file in tree.files
    }
    file = skill_file(content)
    if MANIFEST in content:
        raise Refused(
            say("The tools of `{name}` are called after its folder", name=skill_id),
            say("Rename the tools in its skill.yaml, then move the folder by hand"),
        )
    if not file:
        raise NotFound(say("`{name}` has no SKILL.md", name=skill_id))
    text, mode = content[file]
    head, fence, rest = text.partition(b"\n---")
    line = f"name: {new}".encode()
    changed, count = re.subn(rb"(?m)^name[ \t]*:.*$", line, head, count=1)
    if not count:
        # Right after the opening line.
        first, newline, more = head.partition(b"\n")
        changed = first + b"\n" + line + newline + more
    content[file] = changed + fence + rest, mode
    return ComposedTree(content)


def plan_install(
    bench: Workbench,
    only: Collection[str] = (),
    *,
    frozen: bool,
    fetch: bool = True,
    progress: Callable[[str, int, int], None] | None = None,
) -> Iterator[Step]:
    """A step for each locked skill, or for `only` some of them; see `Store.plan_install`."""
    wanted = [entry for entry in bench.lock.values() if not only or entry.id in only]
    total = len(wanted)
    # Sources stay open: a hundred skills of one repository fetch it once.
    with ExitStack() as stack:
        fetched: dict[tuple[str, ...], Bundle | SatchelError] = {}
        for at, entry in enumerate(wanted):
            if progress is not None:
                progress(entry.id, at, total)
            try:
                here = bench.present(entry.id)
                was = here.digest if here is not None else ""
                if was == entry.tree or (was and not frozen):
                    notes = () if was == entry.tree else (say("it differs from the lockfile"),)
                    step = Step("same", entry.id, entry.name, before=entry, after=entry, was=was)
                    yield step._replace(notes=notes)
                    continue
                tree = _locked_tree(bench, entry, fetched if fetch else None, stack)
            except (SatchelError, OSError) as exc:
                error = exc if isinstance(exc, SatchelError) else refusal(exc, entry.id)
                yield Step("refused", entry.id, entry.name, before=entry, error=error)
                continue
            # Not like what is there: that may be somebody else's doing, down to its modes.
            step = bench.put(entry.id, tree, entry.place)
            if step.kind == "refused":
                yield step
                continue
            kind = "replace" if was else "add"
            # The lock is the order, not the result: it stays as it is.
            yield step._replace(kind=kind, after=entry, before=entry)
    if progress is not None:
        progress("", total, total)


def _locked_tree(
    bench: Workbench,
    entry: Locked,
    fetched: dict[tuple[str, ...], Bundle | SatchelError] | None,
    stack: ExitStack,
) -> Tree:
    """The files of an entry, from what was kept here or from its source; None: from here alone.

    Raises:
        Refused: nothing was kept here, and no source is to be asked.
        Changed: the source gives something else than what is locked.
    """
    kept = os.path.join(bench.scope.work, "base", f"{entry.tree.removeprefix('sha256:')}.zip")
    if os.path.exists(kept):
        tree = stack.enter_context(open_archive(kept))
        if seal(tree).digest == entry.tree:
            return tree
    if fetched is None:
        raise Refused(
            say("What was imported as `{name}` is not kept here", name=entry.id),
            say("Run `satchel install --frozen` in a terminal of this machine: it fetches it"),
        )
    place = entry.place
    key = (place.kind, place.url, place.ref, place.commit)
    if key not in fetched:
        try:
            source = source_from(place._replace(path=""), base=bench.scope.root)
            fetched[key] = stack.enter_context(source.fetch(ref=place.ref, commit=place.commit))
        except SatchelError as exc:
            fetched[key] = exc
    bundle = fetched[key]
    if isinstance(bundle, SatchelError):
        raise bundle
    tree = subtree(bundle.tree, place.path)
    digest = seal(tree).digest
    if digest == entry.tree:
        return tree
    if entry.edited and digest == entry.upstream:
        raise Changed(
            say("`{name}` is locked with local edits, which its source does not have",
                name=entry.id),
            say("Keep the folder itself in version control, or lock the source's version"),
        )  # fmt: skip
    raise Changed(
        say("`{name}` is not what was locked: its source changed", name=entry.id),
        say("Run `satchel update {name}` to see what changed", name=entry.id),
    )
