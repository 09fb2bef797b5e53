"""Builds the steps of a plan: each skill is staged, scanned and compared with the installed one.

Nothing is written outside the staging folder. A skill that cannot be used becomes a refused step
with its reason, so that one bad skill of a hundred does not hide the others. Every tree is hashed
once here; its digest travels with it (`trees.py`).
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from satchel.errors import InvalidInput, NotFound, Refused, SatchelError, SkillBroken
from satchel.i18n import join_names, say
from satchel.library.fingerprint import VerdictCache
from satchel.library.integrity import generated
from satchel.library.lockfile import LockedVerdict, LockEntry
from satchel.skill.document import MANIFEST
from satchel.skill.file_tree import (
    FolderTree,
    TreeDigest,
    digest_of,
    hash_tree,
    main_file,
    read_whole,
    skill_md_name,
)
from satchel.skill.metadata import MAX_NAME_CHARS, NAME, as_words, id_of, slug
from satchel.skill.reader import load_document, parse_document
from satchel.store.disk_errors import disk_errors_as_refusal
from satchel.store.export import pack_tree
from satchel.store.install_state import changed_files
from satchel.store.journal import refuse_repository
from satchel.store.plan import ChangeStep, Difference
from satchel.store.sources import find_skills, subtree
from satchel.store.trees import ComposedTree, HashedTree, PathState, read_content, state_at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from satchel.library.lockfile import Lock, LockedSource
    from satchel.security import ScanReport
    from satchel.skill.document import SkillDocument
    from satchel.skill.file_tree import Tree
    from satchel.store.sources import Bundle, FoundSkill
    from satchel.store.sources.base import HubFinder
    from satchel.store.staging import StagingFolder
    from satchel.store.workdir import Scope

_LICENCE_FILES = ("LICENSE", "LICENCE", "COPYING", "LICENSE.TXT", "LICENSE.MD", "LICENCE.TXT")
_MAX_VALUE_CHARS = 200


class InstalledSkill(NamedTuple):
    """The present content of a skill's folder."""

    state: PathState = PathState("")
    tree: HashedTree | None = None
    """Its files without generated ones, such as caches; None when there is no folder."""


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

    def from_source(
        self, pick: SelectedSkill, bundle: Bundle, *, signer: Callable[[Tree], str] | None
    ) -> ChangeStep:
        """A step that installs one skill of a source."""
        try:
            with disk_errors_as_refusal(self.scope.work):
                source = subtree(bundle.tree, pick.path)
                tree: Tree = source
                upstream = HashedTree(source) if pick.renames else None
                if upstream is not None:
                    if signer is not None:  # its signature is of the files before the change
                        signer(upstream)
                        signer = None
                    tree = with_name(upstream, pick.id, pick.id)
        except SatchelError as exc:
            return self.refused(pick.id, exc)._replace(notes=pick.notes)
        notes = (*pick.notes, *bundle.notes, *source.notes)
        place = bundle.place_of(pick.path)
        step = self.from_tree(pick.id, tree, place, upstream=upstream, signer=signer)
        return step._replace(notes=(*notes, *step.notes))

    def from_tree(
        self,
        skill_id: str,
        tree: Tree,
        place: LockedSource,
        *,
        upstream: HashedTree | None = None,
        signer: Callable[[Tree], str] | None = None,
        against: HashedTree | None = None,
        like: str = "",
    ) -> ChangeStep:
        """A step that installs a tree.

        Args:
            skill_id: The folder's name.
            tree: The files to install.
            place: The source that is recorded in the lockfile.
            upstream: The source's version, when `tree` contains the user's edits too.
            signer: Returns the identity that signed a tree, or an empty string.
            against: The version to compare with, in place of the installed one.
            like: Id of the skill that this derives from; its mode bits are not widened.
        """
        target = self.scope.target(skill_id)
        try:
            with disk_errors_as_refusal(self.scope.work):
                refuse_repository(target)
                written = self.stage.write_tree(skill_id, tree, self.scope.target(like or skill_id))
                folder = self.stage.folder(skill_id)
                staged = HashedTree(FolderTree(folder), written)
                document = _read_document(folder, skill_id)
                report = self.scans.scan(staged.digest, staged)
                pristine = upstream or staged
                bases = [self._archive_base(one) for one in dict.fromkeys((staged, pristine))]
                identity = signer(staged) if signer is not None else ""
                installed = self.installed(skill_id)
                old = against or installed.tree
                difference = Difference(powers=_powers(staged))
                if old is not None:
                    was = self.scans.scan(old.digest, old)
                    difference = _difference(old, staged, document, was, report)
                requests = as_words(document.fields.get("allowed-tools"))
                difference = difference._replace(requests=requests)
        except SatchelError as exc:
            return self.refused(skill_id, exc)
        head = document.head
        name = head.name if head is not None else skill_id
        before = self.lock.get(skill_id)
        after = LockEntry(
            skill_id,
            name,
            place,
            _licence(document, staged),
            written.digest,
            written.files,
            _verdict(report),
            pristine.digest if pristine.digest != written.digest else "",
            identity,
        )
        kind = "add" if installed.tree is None else "replace"
        if (
            installed.tree is not None
            and installed.tree.digest == written.digest
            and _same_origin(before, after)
        ):
            kind = "same"
        return ChangeStep(
            kind,
            skill_id,
            name,
            head.description if head is not None else "",
            before,
            after,
            installed.state,
            written,
            folder,
            difference,
            report,
            bases=tuple(bases),
            old=against,
        )

    def refused(self, skill_id: str, error: SatchelError) -> ChangeStep:
        """A step for a skill that cannot be installed."""
        before = self.lock.get(skill_id)
        return ChangeStep("refused", skill_id, skill_id, before=before, error=error)

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
        found = state.fingerprint or hash_tree(tree)
        locked = self.lock[skill_id].files if skill_id in self.lock else {}
        clean = {
            path: mark
            for path, mark in found.files.items()
            if path in locked or not generated(path, folder)
        }
        if len(clean) < len(found.files):
            found = TreeDigest(digest_of(clean), clean)
        return InstalledSkill(state, HashedTree(tree, found))

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

    def _archive_base(self, tree: HashedTree) -> str:
        """Store pristine content for comparisons and restores; returns its digest."""
        name = tree.digest.removeprefix("sha256:")
        target = os.path.join(self.stage.path, f"{name}.zip")
        if not os.path.exists(target):
            pack_tree(tree, target)
        return name


def _difference(
    old: HashedTree, new: HashedTree, document: SkillDocument, before: ScanReport, after: ScanReport
) -> Difference:
    added, removed, changed = changed_files(old.fingerprint, new.fingerprint)
    was, now = before.inventory, after.inventory
    touched = {*added, *changed}
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


def _same_origin(before: LockEntry | None, after: LockEntry) -> bool:
    """Whether the lockfile entry stays the same, apart from scan, signer and a hub's count."""
    if before is None:
        return False
    place = before.place._replace(seen=after.place.seen)
    return before._replace(scan=after.scan, signer=after.signer, place=place) == after


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


def _with_program(document: SkillDocument, folder: str, skill_id: str) -> SkillDocument:
    """The document; without its head when the manifest or its entry file is not valid."""
    from satchel.skill.manifest_parser import check_entry, read_manifest

    with open(os.path.join(folder, MANIFEST), "rb") as stream:
        reading = check_entry(read_manifest(stream.read(), skill_id), folder)
    if reading.manifest is not None:
        return document
    return document._replace(head=None, problems=reading.problems)


def _powers(tree: Tree) -> tuple[str, ...]:
    """The permissions that the program of a tool skill asks for."""
    if not any(file.path == MANIFEST for file in tree.files):
        return ()
    from satchel.skill.manifest_parser import requested_permissions

    return requested_permissions(read_whole(tree, MANIFEST))


def _fields(old: Tree, document: SkillDocument) -> tuple[tuple[str, str, str], ...]:
    """The changes of the frontmatter: key, before, after."""
    file = main_file(file.path for file in old.files)
    before = parse_document(read_whole(old, file), "", file, (0, 0, 0)).fields if file else {}
    after = document.fields
    return tuple(
        (key, _one_line(before.get(key, "")), _one_line(after.get(key, "")))
        for key in (*after, *(key for key in before if key not in after))
        if before.get(key) != after.get(key)
    )


def _one_line(value: Any) -> str:
    """A frontmatter value as one short line."""
    if isinstance(value, list | tuple):
        value = join_names(str(item) for item in cast("list[Any]", value))
    elif isinstance(value, bool):
        value = "true" if value else "false"
    elif isinstance(value, dict):
        import json

        value = json.dumps(value, ensure_ascii=False, default=str)
    text = " ".join(str(value).split())
    return text if len(text) <= _MAX_VALUE_CHARS else text[: _MAX_VALUE_CHARS - 1] + "…"


def _licence(document: SkillDocument, tree: Tree) -> str:
    """The licence in the frontmatter, or the first line of the licence file."""
    licence = _one_line(document.fields.get("license") or document.fields.get("licence") or "")
    if licence:
        return licence
    for file in tree.files:
        if file.path.upper() in _LICENCE_FILES and file.size < 1 << 18:
            text = read_whole(tree, file.path).decode("utf-8", "replace")
            return _one_line(next((line for line in text.splitlines() if line.strip()), ""))
    return ""


def _verdict(report: ScanReport) -> LockedVerdict:
    rules = {finding.rule for finding in report.findings if finding.severity != "note"}
    return LockedVerdict(report.verdict, tuple(sorted(rules)), "+".join(report.engines))


# --- selection of skills in a source -------------------------------------------------------

_MAX_NAMES_SHOWN = 12


class SelectedSkill(NamedTuple):
    """A skill of a source that will be imported."""

    id: str
    path: str
    """Its folder within the source."""
    notes: tuple[str, ...] = ()
    description: str = ""
    renames: bool = False
    """Whether the `name` in its frontmatter becomes the id too."""
    is_chosen: bool = False
    """Whether the user gave the id."""


def select_skills(
    bundle: Bundle,
    *,
    path: str = "",
    skill_id: str = "",
    names: Sequence[str] = (),
    everything: bool = False,
) -> list[SelectedSkill]:
    """Select skills of a source, and their ids.

    Args:
        bundle: The source.
        path: The folder within the source.
        skill_id: The id to install under; only for a single skill.
        names: The names of the skills to select.
        everything: Select all.

    Raises:
        NotFound: there is no skill, or none of a given name.
        InvalidInput: there are several, and none was selected.
    """
    found = find_skills(bundle.tree, path or bundle.place.path, name=bundle.name)
    if not found:
        url = bundle.place.url  # of a local source relative to the lockfile, so its name is shown
        where = url if "://" in url else url.rstrip("/").rpartition("/")[2]
        raise NotFound(
            say("There is no SKILL.md in `{path}`", path=where),
            say("Give the folder of a skill"),
        )
    if names:
        found = _select_by_name(found, names)
    elif len(found) > 1 and not everything:
        raise InvalidInput(
            say("There are {count} skills in it: {names}", count=len(found), names=_ids_of(found)),
            say("Choose with `--skill NAME`, or take them all with `--all`"),
        )
    if skill_id and len(found) > 1:
        raise InvalidInput(say("`{key}` is there twice", key=skill_id), say("Choose another name"))
    return with_ids(found, skill_id)


def _select_by_name(found: Sequence[FoundSkill], names: Sequence[str]) -> list[FoundSkill]:
    chosen: list[FoundSkill] = []
    for name in names:
        matching = [item for item in found if name in (item.id, item.name, item.path)]
        if not matching:
            near = close_names(name, (item.id for item in found))
            raise NotFound(
                say("There is no skill `{name}`", name=name),
                say("Did you mean {names}?", names=join_names(near))
                if near
                else say("It has {names}", names=_ids_of(found)),
            )
        if len(matching) > 1:
            raise InvalidInput(
                say("`{key}` is there twice", key=name),
                say(
                    "Give its folder with `--path`: {paths}",
                    paths=join_names(f"`{item.path}`" for item in matching[:_MAX_NAMES_SHOWN]),
                ),
            )
        chosen += matching
    return chosen


def _ids_of(found: Sequence[FoundSkill]) -> str:
    shown = join_names(f"`{item.id}`" for item in found[:_MAX_NAMES_SHOWN])
    more = len(found) - _MAX_NAMES_SHOWN
    return say("{names} and {count} more", names=shown, count=more) if more > 0 else shown


def close_names(name: str, known: Iterable[str]) -> list[str]:
    """Up to three known names similar to `name`, in backticks."""
    import difflib

    return [f"`{one}`" for one in difflib.get_close_matches(name, list(known), n=3)]


def with_ids(found: Sequence[FoundSkill], given: str = "") -> list[SelectedSkill]:
    """An id for each skill: `given`, or the folder's name, prefixed when it is taken."""
    taken: set[str] = set()
    picks: list[SelectedSkill] = []
    for item in found:
        wanted = given or item.id
        notes: list[str] = []
        folder = item.path.rpartition("/")[2]
        if folder and not given and wanted != folder:
            notes.append(say("`{name}` is installed as `{id}`", name=folder, id=wanted))
        skill_id, parts = wanted, item.path.split("/")[:-1]
        while skill_id in taken and parts:
            skill_id = slug(f"{parts.pop()}-{wanted}")
        number = 2
        while skill_id in taken:
            skill_id, number = slug(f"{wanted[:58]}-{number}"), number + 1
        if skill_id != wanted:
            notes.append(say("`{name}` is installed as `{id}`", name=item.path, id=skill_id))
        taken.add(skill_id)
        # A copy with the name of the first skill would hide it, or be hidden.
        renames = bool(given) and item.name != given and item.file != MANIFEST
        if renames:
            notes.append(say("The skill `{name}` is renamed to `{id}`", name=item.name, id=given))
        picks.append(
            SelectedSkill(skill_id, item.path, tuple(notes), item.description, renames, bool(given))
        )
    return picks


def with_name(tree: Tree, new: str, skill_id: str) -> Tree:
    """The files of a skill with another `name` in the frontmatter; nothing else changes.

    Raises:
        Refused: its tools are named after its folder, or the line cannot be changed safely.
        NotFound: it has no SKILL.md.
    """
    content = read_content(tree)
    file = skill_md_name(content)
    by_hand = say("Change it by hand")
    if MANIFEST in content:
        message = say("The tools of `{name}` are called after its folder", name=skill_id)
        raise Refused(message, by_hand)
    if not file:
        raise NotFound(say("There is no SKILL.md in `{path}`", path=skill_id))
    text, mode = content[file]
    head, fence, rest = text.partition(b"\n---")
    line = f"name: {new}".encode()
    changed, count = re.subn(rb"(?m)^name[ \t]*:[^\r\n]*", line, head, count=1)
    if not count:
        # Right after the opening line.
        first, newline, more = head.partition(b"\n")
        changed = first + b"\n" + line + newline + more
    content[file] = changed + fence + rest, mode
    before, after = (
        parse_document(data, skill_id, file, (0, 0, 0)) for data in (text, content[file][0])
    )
    if after.fields != {**before.fields, "name": new} or after.body != before.body:
        message = say("The name of `{name}` cannot be changed automatically", name=skill_id)
        raise Refused(message, by_hand)
    return ComposedTree(content)


def check_new_id(skill_id: str) -> None:
    """Check the id of a new skill.

    Raises:
        InvalidInput: it is not valid.
    """
    if not NAME.fullmatch(skill_id) or len(skill_id) > MAX_NAME_CHARS:
        raise InvalidInput(
            say("`{name}` is not a valid name", name=skill_id),
            say("Write `{value}`", value=slug(skill_id)),
        )


def scaffold(name: str, description: str, body: str, skill_id: str) -> tuple[str, bytes]:
    """The id and the SKILL.md of a new, minimal skill; see `Store.plan_add`."""
    import json

    name = name.strip()
    if not name:
        raise InvalidInput(
            say("A skill needs a name"), say("Write `{value}`", value="release-notes")
        )
    if skill_id:
        check_new_id(skill_id)
    skill_id = skill_id or id_of(name)
    if not skill_id:
        raise InvalidInput(
            say("`{name}` is not a valid name",
                name=name),
            say("Give it an id with `--id`"),
        )  # fmt: skip
    title = name if name != skill_id else skill_id.replace("-", " ").capitalize()
    about = description.strip() or (
        "To be written. Say what this skill does and when to use it, in one or two sentences."
    )
    # A JSON string is a YAML string too.
    about = json.dumps(" ".join(about.split()), ensure_ascii=False)
    steps = body.strip() or (
        "To be written: the steps to take, in order, and how to know that the work is done.\n\n"
        "What the user gave: $ARGUMENTS"
    )
    text = f"---\nname: {skill_id}\ndescription: {about}\n---\n# {title}\n\n{steps}\n"
    return skill_id, text.encode()
