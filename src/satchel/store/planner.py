"""Builds the steps of a plan: each skill is staged, scanned and compared with the installed one.

Nothing is written outside the staging folder. A skill that cannot be used becomes a refused step
with its reason, so that one bad skill of a hundred does not hide the others. Every tree is hashed
once here; its digest travels with it (`trees.py`).
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from satchel.errors import NotFound, Refused, SatchelError, SkillBroken
from satchel.i18n import join_names, say
from satchel.library.generated_files import find_generated_files
from satchel.library.lockfile import LockedVerdict, LockEntry
from satchel.library.verdict_cache import VerdictCache
from satchel.skill.document import MANIFEST
from satchel.skill.file_tree import FolderTree, hash_tree, main_file, read_whole
from satchel.skill.metadata import as_words
from satchel.skill.reader import load_document, parse_document
from satchel.store.disk_errors import disk_errors_as_refusal
from satchel.store.export import pack_tree
from satchel.store.install_state import changed_files
from satchel.store.journal import refuse_repository
from satchel.store.plan import ChangeStep, Difference
from satchel.store.skill_names import SelectedSkill, rename_tree
from satchel.store.skill_selection import select_skills
from satchel.store.sources import subtree
from satchel.store.trees import HashedTree, PathState, state_at

if TYPE_CHECKING:
    from collections.abc import Callable

    from satchel.library.lockfile import Lock, LockedSource
    from satchel.security import ScanReport
    from satchel.skill.document import SkillDocument
    from satchel.skill.file_tree import Tree
    from satchel.store.plan import Kind
    from satchel.store.sources import Bundle
    from satchel.store.sources.base import HubFinder
    from satchel.store.staging import StagingFolder
    from satchel.store.workdir import Scope

__all__ = ["InstalledSkill", "SelectedSkill", "StagedSkill", "StepBuilder", "select_skills"]
# `SelectedSkill` and `select_skills` are here for programs that import them from this module.

_LICENCE_FILES = ("LICENSE", "LICENCE", "COPYING", "LICENSE.TXT", "LICENSE.MD", "LICENCE.TXT")
_MAX_LICENCE_FILE_BYTES = (1 << 18) - 1
_MAX_VALUE_CHARS = 200


class InstalledSkill(NamedTuple):
    """The present content of a skill's folder."""

    state: PathState = PathState("")
    tree: HashedTree | None = None
    """Its files without generated ones, such as caches; None when there is no folder."""


class StagedSkill(NamedTuple):
    """A skill in the staging folder."""

    folder: str
    tree: HashedTree
    document: SkillDocument
    report: ScanReport


class StepBuilder:
    """Builds the steps of one plan."""

    def __init__(
        self,
        scope: Scope,
        stage: StagingFolder,
        lock: Lock,
        hubs: Callable[[], HubFinder] | None = None,
        scans: VerdictCache | None = None,
    ) -> None:
        self.scans = scans or VerdictCache()
        self.scope = scope
        self.stage = stage
        self.lock = lock
        self.hubs = hubs
        self._installed: dict[str, InstalledSkill] = {}

    def from_source(self, selected: SelectedSkill, bundle: Bundle) -> ChangeStep:
        """A step that installs one skill of a source."""
        try:
            with disk_errors_as_refusal(self.scope.work):
                source_tree = subtree(bundle.tree, selected.path)
                tree: Tree = source_tree
                upstream = HashedTree(source_tree) if selected.renames else None
                if upstream is not None:
                    tree = rename_tree(upstream, selected.id, selected.id)
        except SatchelError as exc:
            return self.refused_step(selected.id, exc)._replace(notes=selected.notes)
        notes = (*selected.notes, *bundle.notes, *source_tree.notes)
        source = bundle.place_of(selected.path)
        step = self.from_tree(selected.id, tree, source, upstream=upstream)
        return step._replace(notes=(*notes, *step.notes))

    def from_tree(
        self,
        skill_id: str,
        tree: Tree,
        source: LockedSource,
        *,
        upstream: HashedTree | None = None,
        compared_tree: HashedTree | None = None,
        derived_from: str = "",
    ) -> ChangeStep:
        """A step that installs a tree.

        Args:
            skill_id: The folder's name.
            tree: The files to install.
            source: The source that is recorded in the lockfile.
            upstream: The source's version, when `tree` contains the user's edits too.
            compared_tree: The version to compare with, in place of the installed one.
            derived_from: Id of the skill that this derives from; its mode bits are not widened.
        """
        try:
            with disk_errors_as_refusal(self.scope.work):
                refuse_repository(self.scope.target(skill_id))
                staged = self._stage(skill_id, tree, derived_from or skill_id)
                pristine = upstream or staged.tree
                archived_trees = dict.fromkeys((staged.tree, pristine))
                bases = tuple(self.archive_base(archived) for archived in archived_trees)
                installed = self.installed(skill_id)
                difference = self._compare(compared_tree or installed.tree, staged)
        except SatchelError as exc:
            return self.refused_step(skill_id, exc)
        header = staged.document.head
        old_entry = self.lock.get(skill_id)
        new_entry = _lock_entry(skill_id, staged, source=source, upstream=pristine.digest)
        return ChangeStep(
            kind=_step_kind(installed, staged, old_entry, new_entry),
            id=skill_id,
            name=new_entry.name,
            description=header.description if header is not None else "",
            before=old_entry,
            after=new_entry,
            installed=installed.state,
            tree_digest=staged.tree.fingerprint,
            staged=staged.folder,
            difference=difference,
            report=staged.report,
            bases=bases,
            old=compared_tree,
        )

    def _stage(self, skill_id: str, tree: Tree, mode_source_id: str) -> StagedSkill:
        """Write a tree to the staging folder, read its document and scan it."""
        mode_source = self.scope.target(mode_source_id)
        fingerprint = self.stage.write_tree(skill_id, tree, mode_source)
        folder = self.stage.folder(skill_id)
        staged_tree = HashedTree(FolderTree(folder), fingerprint)
        document = _read_document(folder, skill_id)
        report = self.scans.scan(staged_tree.digest, staged_tree)
        return StagedSkill(folder, staged_tree, document, report)

    def _compare(self, old_tree: HashedTree | None, staged: StagedSkill) -> Difference:
        """Compare a staged skill with an older version; None when there is none."""
        if old_tree is None:
            difference = Difference(powers=_requested_permissions(staged.tree))
        else:
            old_report = self.scans.scan(old_tree.digest, old_tree)
            difference = _difference(old_tree, old_report, staged)
        return difference._replace(requests=as_words(staged.document.fields.get("allowed-tools")))

    def refused_step(self, skill_id: str, error: SatchelError) -> ChangeStep:
        """A step for a skill that cannot be installed."""
        entry = self.lock.get(skill_id)
        notes = tuple(getattr(error, "__notes__", ()))
        return ChangeStep("refused", skill_id, skill_id, before=entry, error=error, notes=notes)

    def installed(self, skill_id: str) -> InstalledSkill:
        """The present content of a skill's folder, hashed at the first call.

        Raises:
            Refused: it is a link or a file, or cannot be read.
        """
        if skill_id not in self._installed:
            folder = self.scope.target(skill_id)
            with disk_errors_as_refusal(folder):
                self._installed[skill_id] = self._read_installed(skill_id, folder)
        return self._installed[skill_id]

    def _read_installed(self, skill_id: str, folder: str) -> InstalledSkill:
        state = state_at(folder)
        if not state.digest:
            return InstalledSkill()
        if os.path.islink(folder) or not os.path.isdir(folder):
            raise Refused(
                say("`{path}` is not what Satchel puts there", path=folder),
                say("Move it elsewhere"),
            )
        tree = FolderTree(folder)  # raises the reason where there is no digest
        tree_digest = state.fingerprint or hash_tree(tree)
        locked_files = self.lock[skill_id].files if skill_id in self.lock else {}
        generated = find_generated_files(tree_digest.files, locked_files, folder)
        return InstalledSkill(state, HashedTree(tree, tree_digest.without(generated)))

    def installed_tree(self, skill_id: str) -> HashedTree:
        """The files of an installed skill without generated ones.

        Raises:
            NotFound: it is not there.
            Refused: it is a link or a file, or cannot be read.
        """
        tree = self.installed(skill_id).tree
        if tree is None:
            raise NotFound(
                say("`{name}` is locked but not there", name=skill_id),
                say("Run `{command}`", command="satchel install"),
            )
        return tree

    def archive_base(self, tree: HashedTree) -> str:
        """Store pristine content for comparisons and restores; returns its digest."""
        name = tree.digest.removeprefix("sha256:")
        target = os.path.join(self.stage.path, f"{name}.zip")
        if not os.path.exists(target):
            pack_tree(tree, target)
        return name


def _lock_entry(
    skill_id: str, staged: StagedSkill, *, source: LockedSource, upstream: str
) -> LockEntry:
    """The lockfile entry of a staged skill; `upstream` is the digest of the source's version."""
    header = staged.document.head
    fingerprint = staged.tree.fingerprint
    return LockEntry(
        id=skill_id,
        name=header.name if header is not None else skill_id,
        place=source,
        licence=_licence(staged.document, staged.tree),
        tree=fingerprint.digest,
        files=fingerprint.files,
        scan=_locked_verdict(staged.report),
        upstream=upstream if upstream != fingerprint.digest else "",
    )


def _step_kind(
    installed: InstalledSkill,
    staged: StagedSkill,
    old_entry: LockEntry | None,
    new_entry: LockEntry,
) -> Kind:
    if installed.tree is None:
        return "add"
    has_same_files = installed.tree.digest == staged.tree.digest
    return "same" if has_same_files and _is_same_entry(old_entry, new_entry) else "replace"


def _is_same_entry(old_entry: LockEntry | None, new_entry: LockEntry) -> bool:
    """Whether the lockfile entry stays the same, apart from scan, signer and a hub's count."""
    if old_entry is None:
        return False
    source = old_entry.place._replace(seen=new_entry.place.seen)
    return (
        old_entry._replace(scan=new_entry.scan, signer=new_entry.signer, place=source) == new_entry
    )


def _difference(old_tree: HashedTree, old_report: ScanReport, staged: StagedSkill) -> Difference:
    added, removed, changed = changed_files(old_tree.fingerprint, staged.tree.fingerprint)
    old_inventory, new_inventory = old_report.inventory, staged.report.inventory
    touched_paths = {*added, *changed}
    old_permissions = _requested_permissions(old_tree)
    return Difference(
        added=tuple(added),
        removed=tuple(removed),
        changed=tuple(changed),
        fields=_changed_fields(old_tree, staged.document),
        programs=tuple(path for path in new_inventory.programs if path in touched_paths),
        hosts=tuple(host for host in new_inventory.hosts if host not in old_inventory.hosts),
        secrets=tuple(
            secret for secret in new_inventory.secrets if secret not in old_inventory.secrets
        ),
        powers=tuple(
            permission
            for permission in _requested_permissions(staged.tree)
            if permission not in old_permissions
        ),
    )


def _read_document(folder: str, skill_id: str) -> SkillDocument:
    """Read a skill's SKILL.md, or the skill.yaml of a tool skill.

    Raises:
        NotFound: there is neither.
        SkillBroken: it is not valid.
    """
    file = main_file(os.listdir(folder))
    if not file:
        raise NotFound(
            say("There is no SKILL.md in `{path}`", path=skill_id),
            say("Give the folder of a skill"),
        )
    document = load_document(folder, file, skill_id)
    if document.head is not None and file == MANIFEST:
        document = _check_program(document, folder, skill_id)
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


def _check_program(document: SkillDocument, folder: str, skill_id: str) -> SkillDocument:
    """The document; without its head when the manifest or its entry file is not valid."""
    from satchel.skill.manifest_parser import check_entry, read_manifest

    with open(os.path.join(folder, MANIFEST), "rb") as stream:
        reading = check_entry(read_manifest(stream.read(), skill_id), folder)
    if reading.manifest is not None:
        return document
    return document._replace(head=None, problems=reading.problems)


def _requested_permissions(tree: Tree) -> tuple[str, ...]:
    """The permissions that the program of a tool skill asks for."""
    if not any(file.path == MANIFEST for file in tree.files):
        return ()
    from satchel.skill.manifest_parser import requested_permissions

    return requested_permissions(read_whole(tree, MANIFEST))


def _changed_fields(old_tree: Tree, document: SkillDocument) -> tuple[tuple[str, str, str], ...]:
    """The changes of the frontmatter: key, before, after."""
    file = main_file(file.path for file in old_tree.files)
    old_fields = (
        parse_document(read_whole(old_tree, file), "", file, (0, 0, 0)).fields if file else {}
    )
    new_fields = document.fields
    removed_keys = (key for key in old_fields if key not in new_fields)
    return tuple(
        (key, _short_value(old_fields.get(key, "")), _short_value(new_fields.get(key, "")))
        for key in (*new_fields, *removed_keys)
        if old_fields.get(key) != new_fields.get(key)
    )


def _short_value(value: Any) -> str:
    """A frontmatter value as one short line."""
    if isinstance(value, list | tuple):
        value = join_names(str(element) for element in cast("list[Any]", value))
    elif isinstance(value, bool):
        value = "true" if value else "false"
    elif isinstance(value, dict):
        value = json.dumps(value, ensure_ascii=False, default=str)
    text = " ".join(str(value).split())
    return text if len(text) <= _MAX_VALUE_CHARS else text[: _MAX_VALUE_CHARS - 1] + "…"


def _licence(document: SkillDocument, tree: Tree) -> str:
    """The licence in the frontmatter, or the first line of the licence file."""
    licence = _short_value(document.fields.get("license") or document.fields.get("licence") or "")
    if licence:
        return licence
    for file in tree.files:
        if file.path.upper() in _LICENCE_FILES and file.size <= _MAX_LICENCE_FILE_BYTES:
            text = read_whole(tree, file.path).decode("utf-8", "replace")
            return _short_value(next((line for line in text.splitlines() if line.strip()), ""))
    return ""


def _locked_verdict(report: ScanReport) -> LockedVerdict:
    rules = {finding.rule for finding in report.findings if finding.severity != "note"}
    return LockedVerdict(report.verdict, tuple(sorted(rules)), "+".join(report.engines))
