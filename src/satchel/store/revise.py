"""What the user does to an installed skill: another name, and edits that shall stay."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from satchel._language import say
from satchel.errors import Changed, Conflict, NotFound, Refused
from satchel.library.lockfile import Place
from satchel.skill.model import MANIFEST
from satchel.skill.tree import read_whole, skill_file
from satchel.store.journal import standing
from satchel.store.merge import ComposedTree
from satchel.store.plan import Step
from satchel.store.trouble import unchanged
from satchel.store.update import open_base

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from satchel.library.lockfile import Locked
    from satchel.skill.tree import Mode, Tree
    from satchel.store.approving import Approvals
    from satchel.store.prepare import Workbench


def rename_steps(bench: Workbench, approvals: Approvals, skill_id: str, new: str) -> Iterator[Step]:
    """The skill under its new name, and the end of the old one.

    A new name brings nothing that was not there: it approves nothing, and the scan is not asked
    again whether it may stay.
    """
    entry = bench.lock.get(skill_id)
    tree = bench.present_tree(skill_id)
    here = bench.present(skill_id)
    upstream = open_base(bench.scope, entry) if entry is not None else None
    place = entry.place if entry is not None else Place("new")
    step = bench.put(new, _renamed(tree, new, skill_id), place, upstream=upstream, like=skill_id)
    if step.error is not None:
        raise step.error
    if entry is None or step.after is None:
        step = step._replace(after=None, bases=(), own=approvals.kind(skill_id) == "own")
    else:
        # Without the pristine copy the edits would pass for the source's own.
        after = step.after._replace(
            upstream=entry.upstream or entry.tree, scan=entry.scan, signer=""
        )
        step = step._replace(after=after)
    known = here is not None and approvals.knows(skill_id, here)
    yield step._replace(approved=known, waived=True)
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
    approvals: Approvals,
    skill_id: str,
    files: Mapping[str, bytes],
    expect: Mapping[str, str],
) -> Step:
    """A skill with other content in some files.

    Its user wrote it here and now: the scan tells, and stops nothing. Where the content before was
    approved, so is this; where it was not, an edit does not make it so.
    """
    entry = bench.lock.get(skill_id)
    here = bench.present(skill_id)
    if here is None:
        raise NotFound(
            say("`{name}` is locked but not there", name=skill_id), say("Run `satchel install`")
        )
    for path, digest in expect.items():
        if here.files.get(path, "").removeprefix("sha256:").removesuffix(" x") != digest:
            raise _meanwhile(skill_id)
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
        raise _meanwhile(skill_id)
    # An earlier version is what the difference is against, and it is on the disk: no base to keep.
    return step._replace(
        kind="same" if step.difference.empty else "replace",
        after=entry,
        bases=(),
        own=approvals.kind(skill_id) == "own",
        approved=approvals.knows(skill_id, here),
        waived=True,
    )


def _meanwhile(skill_id: str) -> Conflict:
    return Conflict(
        say("`{name}` was changed meanwhile; nothing was changed by this command", name=skill_id),
        say("Look at it, then run the command again"),
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
