"""The lockfile says it: bring the disk to exactly that, or say why it cannot be done."""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import TYPE_CHECKING

from satchel._language import say
from satchel.errors import Changed, Refused, SatchelError
from satchel.skill.tree import seal
from satchel.store.archive import open_archive
from satchel.store.plan import Step
from satchel.store.sources import source_from, subtree
from satchel.store.trouble import refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from satchel.library.lockfile import Locked
    from satchel.skill.tree import Tree
    from satchel.store.prepare import Workbench
    from satchel.store.sources import Bundle


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
            except (SatchelError, OSError) as exc:
                error = exc if isinstance(exc, SatchelError) else refusal(exc, entry.id)
                yield Step("refused", entry.id, entry.name, before=entry, error=error)
                continue
            was = here.digest if here is not None else ""
            if was == entry.tree or (was and not frozen):
                notes = () if was == entry.tree else (say("it differs from the lockfile"),)
                yield Step(
                    "same", entry.id, entry.name, before=entry, after=entry, was=was, notes=notes
                )
                continue
            try:
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
