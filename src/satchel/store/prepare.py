"""A tree of files -> a step of a plan: staged, scanned, and compared with what is there.

Nothing outside the staging folder is written here. A skill that cannot be used becomes a refused
step with its reason, so that one bad skill of a hundred does not hide the others.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Any, cast

from satchel._language import listed, say
from satchel.errors import NotFound, Refused, SatchelError, SkillBroken
from satchel.library.lockfile import Locked, Verdict
from satchel.library.seal import generated
from satchel.security import scan_tree
from satchel.skill.load import load_document, parse_document
from satchel.skill.model import MANIFEST
from satchel.skill.tree import FolderTree, head_file, read_whole, seal
from satchel.store.export import write_archive
from satchel.store.journal import refuse_repository, standing
from satchel.store.merge import compose, differing
from satchel.store.plan import Difference, Step
from satchel.store.scope import unchanged
from satchel.store.sources import subtree

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from satchel.library.lockfile import Lock, Place
    from satchel.security import Allowance, Report
    from satchel.skill.model import Document
    from satchel.skill.tree import Seal, Tree
    from satchel.store.choose import Pick
    from satchel.store.scope import Scope
    from satchel.store.sources import Bundle
    from satchel.store.stage import Stage

_LICENCES = ("LICENSE", "LICENCE", "COPYING", "LICENSE.TXT", "LICENSE.MD", "LICENCE.TXT")
_SHOWN = 200


class Workbench:
    """Makes steps for one plan."""

    def __init__(
        self, scope: Scope, stage: Stage, lock: Lock, allow: Sequence[Allowance] = ()
    ) -> None:
        self.scope = scope
        self.stage = stage
        self.lock = lock
        self._allow = allow

    def take(self, pick: Pick, bundle: Bundle, *, signer: Callable[[Tree], str] | None) -> Step:
        """A step that puts one skill of a source in its place."""
        try:
            with unchanged(self.scope.work):
                tree = subtree(bundle.tree, pick.path)
        except SatchelError as exc:
            before = self.lock.get(pick.id)
            return Step("refused", pick.id, pick.id, before=before, error=exc, notes=pick.notes)
        notes = (*pick.notes, *bundle.notes, *tree.notes)
        step = self.put(pick.id, tree, bundle.place_of(pick.path), signer=signer)
        return step._replace(notes=(*notes, *step.notes))

    def put(
        self,
        skill_id: str,
        tree: Tree,
        place: Place,
        *,
        upstream: Tree | None = None,
        kept: Sequence[str] = (),
        signer: Callable[[Tree], str] | None = None,
        against: Tree | None = None,
        like: str = "",
    ) -> Step:
        """A step that puts a tree in a skill's place.

        Args:
            skill_id: The folder's name.
            tree: What shall be installed.
            place: Where it came from.
            upstream: What the source had, when `tree` has the user's edits too.
            kept: Files with edits of the user.
            signer: Says who signed a tree; nothing when nobody did.
            against: What to compare with, in place of what is on disk.
            like: Id of the skill that this is made from; its mode bits are not widened.
        """
        before = self.lock.get(skill_id)
        try:
            with unchanged(self.scope.work):
                refuse_repository(self.scope.target(skill_id))
                over = self.scope.target(like or skill_id)
                sealed = self.stage.write_tree(skill_id, tree, over)
                folder = self.stage.folder(skill_id)
                staged = FolderTree(folder)
                document = _document(folder, skill_id)
                report = scan_tree(staged, allow=self._allow, name=skill_id)
                pristine = sealed if upstream is None else seal(upstream)
                bases = [self._keep(sealed, staged)]
                if upstream is not None:
                    bases.append(self._keep(pristine, upstream))
                who = signer(staged) if signer is not None else ""
                was, here = standing(self.scope.target(skill_id)), self.present(skill_id)
                old = against or (self.present_tree(skill_id) if here is not None else None)
                difference = Difference(powers=_powers(staged))
                if old is not None:
                    difference = _difference(old, staged, sealed, document, report)
                    difference = difference._replace(kept=tuple(kept))
        except SatchelError as exc:
            return Step("refused", skill_id, skill_id, before=before, error=exc)
        head = document.head
        name = head.name if head is not None else skill_id
        after = Locked(
            skill_id,
            name,
            place,
            _licence(document, staged),
            sealed.digest,
            sealed.files,
            _verdict(report),
            pristine.digest if pristine.digest != sealed.digest else "",
            who,
        )
        kind = "add" if here is None else "replace"
        if here is not None and here.digest == sealed.digest and _same_origin(before, after):
            kind = "same"
        return Step(
            kind,
            skill_id,
            name,
            head.description if head is not None else "",
            before,
            after,
            was,
            sealed,
            folder,
            difference,
            report,
            bases=tuple(bases),
            old=against,
        )

    def present(self, skill_id: str) -> Seal | None:
        """What is in a skill's place now, without what running it left behind.

        Raises:
            Refused: it is a link or a file, which is not ours to change.
        """
        folder = self.scope.target(skill_id)
        with unchanged(folder):
            try:
                mode = os.lstat(folder).st_mode  # a failing disk is no empty place
            except FileNotFoundError:
                return None
            if stat.S_ISDIR(mode):
                return seal(self.present_tree(skill_id))
        raise Refused(
            say("`{name}` is a link or a file, which Satchel did not put there", name=skill_id),
            say("Move it away, or import under another id with `--id`"),
        )

    def present_tree(self, skill_id: str) -> Tree:
        """The same as files."""
        locked = self.lock[skill_id].files if skill_id in self.lock else {}
        folder = self.scope.target(skill_id)
        with unchanged(folder):
            return compose(
                FolderTree(folder), lambda path: path not in locked and generated(path, folder)
            )

    def _keep(self, pristine: Seal, tree: Tree) -> str:
        """Set the pristine content aside, for the merge with a later version."""
        name = pristine.digest.removeprefix("sha256:")
        target = os.path.join(self.stage.path, f"{name}.zip")
        if not os.path.exists(target):
            write_archive(tree, target)
        return name


def _difference(
    old: Tree, new: FolderTree, sealed: Seal, document: Document, report: Report
) -> Difference:
    """What changes from one version to the next."""
    added, removed, changed = differing(seal(old), sealed)
    was = scan_tree(old).inventory
    touched = {*added, *changed}
    now = report.inventory
    return Difference(
        tuple(added),
        tuple(removed),
        tuple(changed),
        _fields(old, document),
        tuple(path for path in now.programs if path in touched),
        tuple(host for host in now.hosts if host not in was.hosts),
        tuple(secret for secret in now.secrets if secret not in was.secrets),
        powers=tuple(power for power in _powers(new) if power not in _powers(old)),
    )


def _same_origin(before: Locked | None, after: Locked) -> bool:
    """Whether the lock says the same already; who scanned it, and with what, is no change."""
    return before is not None and before._replace(scan=after.scan, signer=after.signer) == after


def _document(folder: str, skill_id: str) -> Document:
    """The skill's SKILL.md, or its skill.yaml where it has tools only; it must be one.

    Raises:
        SkillBroken: it is no skill; the message says why.
    """
    file = head_file(os.listdir(folder))
    if not file:
        raise NotFound(
            say("`{name}` has no SKILL.md", name=skill_id),
            say("A skill is a folder with a SKILL.md or a skill.yaml: give the one that has it"),
        )
    document = load_document(folder, file, skill_id)
    if document.head is not None and file == MANIFEST:
        document = _with_program(document, folder, skill_id)
    if document.head is None:
        errors = (problem for problem in document.problems if problem.severity == "error")
        worst = next(errors, next(iter(document.problems), None))
        raise SkillBroken(
            say(
                "`{name}` is not a skill: {problem}",
                name=skill_id,
                problem=worst.message if worst is not None else "SKILL.md",
            ),
            worst.fix if worst is not None else "",
        )
    return document


def _with_program(document: Document, folder: str, skill_id: str) -> Document:
    """The same, or no skill any more when its entry is not in the folder."""
    from satchel.skill.manifest_read import read_manifest, with_entry

    with open(os.path.join(folder, MANIFEST), "rb") as stream:
        reading = with_entry(read_manifest(stream.read(), skill_id), folder)
    if reading.manifest is not None:
        return document
    return document._replace(head=None, problems=reading.problems)


def _powers(tree: Tree) -> tuple[str, ...]:
    """What the program of a tool skill may touch beside its own folder."""
    if not any(file.path == MANIFEST for file in tree.files):
        return ()
    from satchel.skill.manifest_read import read_powers_of

    return read_powers_of(read_whole(tree, MANIFEST))


def _fields(old: Tree, document: Document) -> tuple[tuple[str, str, str], ...]:
    """What the frontmatter says differently."""
    file = head_file(file.path for file in old.files)
    before = parse_document(read_whole(old, file), "", file, (0, 0, 0)).fields if file else {}
    after = document.fields
    return tuple(
        (key, _short(before.get(key, "")), _short(after.get(key, "")))
        for key in (*after, *(key for key in before if key not in after))
        if before.get(key) != after.get(key)
    )


def _short(value: Any) -> str:
    """A value as its author would write it on one line."""
    if isinstance(value, list | tuple):
        value = listed(str(item) for item in cast("list[Any]", value))
    elif isinstance(value, bool):
        value = "true" if value else "false"
    elif isinstance(value, dict):
        import json

        value = json.dumps(value, ensure_ascii=False, default=str)
    text = " ".join(str(value).split())
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def _licence(document: Document, tree: FolderTree) -> str:
    """What the author says about the licence, or the first line of the file that does."""
    said = _short(document.fields.get("license") or document.fields.get("licence") or "")
    if said:
        return said
    for file in tree.files:
        if file.path.upper() in _LICENCES and file.size < 1 << 18:
            text = read_whole(tree, file.path).decode("utf-8", "replace")
            return _short(next((line for line in text.splitlines() if line.strip()), ""))
    return ""


def _verdict(report: Report) -> Verdict:
    rules = {finding.rule for finding in report.findings if finding.severity != "note"}
    return Verdict(report.verdict, tuple(sorted(rules)), "+".join(report.engines))
