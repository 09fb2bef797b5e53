"""Newer versions from where skills came, with the user's own edits kept.

Each source is fetched once, however many skills came from it. A skill whose source cannot be
reached, or whose edits collide with the update, is a refused step: the others are updated.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import TYPE_CHECKING

from satchel._language import listed, say
from satchel.errors import Conflict, NotFound, SatchelError
from satchel.skill.tree import Seal, seal
from satchel.store.archive import open_archive
from satchel.store.merge import differing, merge_trees
from satchel.store.plan import Step
from satchel.store.sources import find_skills, source_from, subtree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from satchel.library.lockfile import Locked, Place
    from satchel.skill.tree import Tree
    from satchel.store.prepare import Workbench
    from satchel.store.scope import Scope
    from satchel.store.sources import Bundle

_ONCE = ("new", "upload")
"""Made here, or handed over once: there is nowhere to look for a newer version."""


def plan_update(
    bench: Workbench,
    entries: Sequence[Locked],
    *,
    approved: Callable[[str, Seal], bool],
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
                    approved=approved,
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
    approved: Callable[[str, Seal], bool],
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
        if here.digest != entry.tree and not approved(entry.id, here):
            raise _foreign_edits(entry, here)
        return _merged(bench, entry, theirs, place)
    except SatchelError as exc:
        return Step("refused", entry.id, entry.name, before=entry, error=exc)


def _foreign_edits(entry: Locked, here: Seal) -> Conflict:
    """Edits that nobody locked or approved: they may be the user's, or an attacker's."""
    added, removed, changed = differing(Seal(entry.tree, entry.files), here)
    files = listed(f"`{path}`" for path in [*changed, *added, *removed][:5])
    return Conflict(
        say("`{name}` was edited since it was locked: {files}", name=entry.id, files=files),
        say("Yours? Run `satchel lock {name}`, then update. Not yours? Run "
            "`satchel install --frozen`", name=entry.id),
    )  # fmt: skip


def _same_skill(bundle: Bundle, place: Place) -> Tree:
    found = find_skills(bundle.tree, place.path)
    if not any(item.path == place.path for item in found):
        raise NotFound(
            say("`{source}` has no skill in `{path}` any more",
                source=place.url, path=place.path or "."),
            say("Look where it went, and import it from there"),
        )  # fmt: skip
    return subtree(bundle.tree, place.path)


def _merged(bench: Workbench, entry: Locked, theirs: Tree, place: Place) -> Step:
    """Your edits and theirs."""
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
    return bench.put(entry.id, merged.tree, place, upstream=theirs, kept=merged.kept, like=entry.id)


def open_base(scope: Scope, entry: Locked, digest: str = "") -> Tree | None:
    """What the source had when the skill was installed, or None when it was not kept."""
    digest = (digest or entry.upstream or entry.tree).removeprefix("sha256:")
    path = os.path.join(scope.work, "base", f"{digest}.zip")
    if not os.path.exists(path):
        return None
    tree = open_archive(path)
    return tree if seal(tree).digest == f"sha256:{digest}" else None
