"""Ids and names of skills: lookup, conflicts, free ids, another name, a new SKILL.md.

The id is the name of the folder; the name stands in the frontmatter.
"""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING, NamedTuple

from satchel.errors import InvalidInput, NameTaken, NotFound, Refused
from satchel.i18n import did_you_mean, join_names, say, similar_names
from satchel.skill.document import MANIFEST
from satchel.skill.file_tree import read_whole, skill_md_name
from satchel.skill.metadata import MAX_NAME_CHARS, NAME, id_of, slug
from satchel.skill.reader import parse_document
from satchel.store.archive.rules import shown
from satchel.store.trees import copy_tree
from satchel.store.workdir import not_ours

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from satchel.library import Library
    from satchel.library.lockfile import Lock
    from satchel.skill.file_tree import Tree
    from satchel.skill.model import Skill
    from satchel.store.plan import ChangeStep
    from satchel.store.sources import FoundSkill
    from satchel.store.workdir import Scope

_NAME_LINE = re.compile(rb"(?m)^name[ \t]*:[^\r\n]*")
_MAX_NUMBERED_ID_CHARS = 58
"""How much of an id stays when a number is appended."""
_DESCRIPTION_TEMPLATE = (
    "To be written. Say what this skill does and when to use it, in one or two sentences."
)
_BODY_TEMPLATE = (
    "To be written: the steps to take, in order, and how to know that the work is done.\n\n"
    "What the user gave: $ARGUMENTS"
)


class SelectedSkill(NamedTuple):
    """A skill of a source that will be imported."""

    id: str
    """The id to install it under."""
    path: str
    """Its folder within the source."""
    notes: tuple[str, ...] = ()
    """Remarks for the user."""
    description: str = ""
    """The description in its frontmatter."""
    renames: bool = False
    """Whether the `name` in its frontmatter becomes the id too."""
    is_chosen: bool = False
    """Whether the user gave the id."""


class RequiredSkill(NamedTuple):
    """A skill that another one of the same source requires."""

    by: FoundSkill
    name: str
    skill: FoundSkill | None
    """None unless the source has exactly one of that name."""
    matches: int

    @property
    def note(self) -> str:
        """What the plan says of it."""
        values = {"name": self.name, "by": self.by.name}
        if self.skill is not None:
            return say("`{name}` is included, because `{by}` requires it", **values)
        if self.matches:
            return say("`{by}` requires `{name}`, of which this source has several", **values)
        return say(
            "`{by}` requires `{name}`, which is not in this source: install it too", **values
        )


class InstalledNames:
    """Finds the skills of a scope by id or name, and conflicts with the names of new ones."""

    def __init__(self, scope: Scope, library: Library | None) -> None:
        """Store the parts; without a library, skills of other locations are not found."""
        self._scope = scope
        self._library = library

    def folder_ids(self) -> list[str]:
        """Return the ids of the skills that have a folder, locked or not."""
        try:
            names = os.listdir(self._scope.folder)
        except OSError:
            return []
        return [
            name
            for name in names
            if not name.startswith(".") and os.path.isdir(os.path.join(self._scope.folder, name))
        ]

    def resolve(self, name: str, lock: Lock) -> str:
        """Return the id of a skill of this scope, from its id or name; see `Store.resolve`."""
        is_folder_name = name == os.path.basename(name) and not name.startswith(".")
        if name in lock or (is_folder_name and os.path.isdir(self._scope.target(name))):
            return name
        for entry in lock.values():
            if entry.name == name:
                return entry.id
        candidates = self._library.find(name) if self._library is not None else []
        for skill in candidates:
            if os.path.realpath(skill.origin.root) == os.path.realpath(self._scope.folder):
                if "/" not in skill.head.id:
                    return skill.head.id
                raise not_ours(skill)
        if candidates:
            raise not_ours(candidates[0])
        similar = similar_names(name, {*lock, *self.folder_ids()}, 3)
        raise NotFound(
            say("There is no skill `{name}`", name=name),
            did_you_mean(similar) or say("Run `{command}`", command="satchel list --all"),
        )

    def has_skill(self, name: str) -> bool:
        """Whether a skill of this name or id is here; an installed one is not replaced unasked."""
        matching = self._library.find(name) if self._library is not None else []
        return bool(matching) or os.path.lexists(self._scope.target(name))

    def find_name_conflict(
        self, step: ChangeStep, selected: SelectedSkill, lock: Lock
    ) -> NameTaken | None:
        """Return the error for a new skill with the name of one that it would replace.

        A project's skill may hide one of the user only under an id that the user chose.
        """
        target, name = self._scope.target(step.id), step.name.casefold()
        folders = [
            self._scope.target(skill_id)
            for skill_id, entry in lock.items()
            if entry.name.casefold() == name
        ]
        namesakes = self._library.named(step.name) if self._library is not None else ()
        folders += [skill.base_dir for skill in namesakes if self._is_replaced_by(skill, selected)]
        other_folder = next((folder for folder in folders if folder != target), None)
        if other_folder is None:
            return None
        free_id = self._find_free_id(step)
        return NameTaken(
            say("`{name}` is the name of the skill in `{path}`, which the new one would replace",
                name=step.name, path=other_folder),
            say("Install it under another name with `--id {id}`", id=free_id),
            suggestion=free_id,
        )  # fmt: skip

    def _is_replaced_by(self, skill: Skill, selected: SelectedSkill) -> bool:
        if os.path.dirname(skill.base_dir) == self._scope.folder:
            return True
        is_user_skill = skill.source == "global" and self._scope.name == "project"
        return is_user_skill and not selected.is_chosen

    def _find_free_id(self, step: ChangeStep) -> str:
        number, skill_id = 2, step.id
        while skill_id == step.name or os.path.lexists(self._scope.target(skill_id)):
            number, skill_id = number + 1, f"{step.name}-{number}"
        return skill_id


def assign_ids(
    selected: Sequence[FoundSkill],
    chosen_id: str = "",
    required: Sequence[RequiredSkill] = (),
) -> list[SelectedSkill]:
    """Assign each skill its id: `chosen_id`, or the folder's name, prefixed when it is taken.

    Args:
        selected: The selected skills.
        chosen_id: The id that the user gave for a single skill.
        required: What they require; the skills among it follow.
    """
    required_skills = [requirement.skill for requirement in required if requirement.skill]
    taken_ids: set[str] = set()
    skills: list[SelectedSkill] = []
    for skill in (*selected, *required_skills):
        user_id = "" if skills else chosen_id
        skill_id = _free_id(user_id or skill.id, skill.path, taken_ids)
        taken_ids.add(skill_id)
        # A copy with the name of the first skill would hide it, or be hidden.
        is_renamed = bool(user_id) and skill.name != user_id and skill.file != MANIFEST
        notes = [
            requirement.note
            for requirement in required
            if skill is (requirement.skill or requirement.by)
        ]
        notes += _id_notes(skill, user_id, skill_id)
        if is_renamed:
            renaming = say("The skill `{name}` is renamed to `{id}`", name=skill.name, id=user_id)
            notes.append(renaming)
        skills.append(
            SelectedSkill(
                id=skill_id,
                path=skill.path,
                notes=tuple(notes),
                description=skill.description,
                renames=is_renamed,
                is_chosen=bool(user_id),
            )
        )
    return skills


def _free_id(preferred: str, path: str, taken_ids: Collection[str]) -> str:
    """An id that is not taken: with the folders above the skill in front, else with a number."""
    skill_id = preferred
    parents = path.split("/")[:-1]
    while skill_id in taken_ids and parents:
        skill_id = slug(f"{parents.pop()}-{preferred}")
    number = 2
    while skill_id in taken_ids:
        skill_id = slug(f"{preferred[:_MAX_NUMBERED_ID_CHARS]}-{number}")
        number += 1
    return skill_id


def _id_notes(skill: FoundSkill, user_id: str, skill_id: str) -> Iterator[str]:
    """What the user reads where the id is not the name of the folder, or was taken."""
    if skill.plugins:
        names = join_names(f"`{shown(name)}`" for name in skill.plugins)
        yield say("From the plugin {names}", names=names)
    preferred = user_id or skill.id
    folder = skill.path.rpartition("/")[2]
    if folder and not user_id and preferred != folder:
        yield say("`{name}` is installed as `{id}`", name=folder, id=preferred)
    if skill_id != preferred:
        yield say("`{name}` is installed as `{id}`", name=skill.path, id=skill_id)


def rename_tree(tree: Tree, new_name: str, skill_id: str) -> Tree:
    """The files of a skill with another `name` in the frontmatter; nothing else changes.

    Raises:
        Refused: its tools are named after its folder, or the line cannot be changed safely.
        NotFound: it has no SKILL.md.
    """
    paths = {file.path for file in tree.files}
    file = skill_md_name(paths)
    by_hand = say("Change it by hand")
    if MANIFEST in paths:
        message = say("The tools of `{name}` are called after its folder", name=skill_id)
        raise Refused(message, by_hand)
    if not file:
        raise NotFound(say("There is no SKILL.md in `{path}`", path=skill_id))
    old_text = read_whole(tree, file)
    new_text = _set_name_line(old_text, new_name)
    old = parse_document(old_text, skill_id, file, (0, 0, 0))
    new = parse_document(new_text, skill_id, file, (0, 0, 0))
    if new.fields != {**old.fields, "name": new_name} or new.body != old.body:
        message = say("The name of `{name}` cannot be changed automatically", name=skill_id)
        raise Refused(message, by_hand)
    return copy_tree(tree, {file: new_text})


def _set_name_line(text: bytes, name: str) -> bytes:
    """Replace the line with the name in the frontmatter, or add it below the opening line."""
    frontmatter, fence, body = text.partition(b"\n---")
    name_line = f"name: {name}".encode()
    changed, count = _NAME_LINE.subn(lambda _: name_line, frontmatter, count=1)
    if not count:
        opening, newline, other_lines = frontmatter.partition(b"\n")
        changed = opening + b"\n" + name_line + newline + other_lines
    return changed + fence + body


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


def new_skill_document(name: str, description: str, body: str, skill_id: str) -> tuple[str, bytes]:
    """The id and the SKILL.md of a new, minimal skill; see `Store.plan_add`."""
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
            say("`{name}` is not a valid name", name=name), say("Give it an id with `--id`")
        )
    title = name if name != skill_id else skill_id.replace("-", " ").capitalize()
    one_line = " ".join((description.strip() or _DESCRIPTION_TEMPLATE).split())
    # A JSON string is a YAML string too.
    quoted = json.dumps(one_line, ensure_ascii=False)
    steps = body.strip() or _BODY_TEMPLATE
    text = f"---\nname: {skill_id}\ndescription: {quoted}\n---\n# {title}\n\n{steps}\n"
    return skill_id, text.encode()
