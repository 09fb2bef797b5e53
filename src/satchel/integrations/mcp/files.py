"""What does `ReadFile` find at an address? What `resources/read` has there, as far as it has it.

A skill that cannot be served as the extension wants it is still there for `Skill`, and so are its
files here: they are opened below its folder, wherever that lies. A folder inside that is a skill
which the client may not have is not there.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from satchel._fs import is_inside
from satchel.errors import NotFound
from satchel.integrations.mcp.addresses import SCHEME
from satchel.tools.frame import one_line, printable
from satchel.tools.read_file import Addressed

if TYPE_CHECKING:
    from satchel.integrations.mcp.served import Served
    from satchel.library import Library
    from satchel.skill.model import Skill

ABSENT = "Give the path of one of the skill's files: the skill itself lists them"
"""The next step after an address that nothing has."""


class SkillFiles:
    """The files of the skills that one client may have, by address."""

    hint = ABSENT

    def __init__(self, library: Library, served: Served) -> None:
        self._library = library
        self._served = served

    def find(self, uri: str) -> Addressed:
        """What is there.

        Raises:
            NotFound: nothing is.
        """
        uri = _tidy(uri)
        place = self._served.place(uri)
        if place is None:
            raise NotFound("Nothing is served at this address", self._otherwise(uri))
        try:
            found = self._served.find(uri)
        except NotFound:
            return self._opened(uri, *place)
        if found.file in found.manifest.files:
            return Addressed(uri, found.file, data=self._served.read(uri)[1])
        children = found.manifest.folder(found.file)
        if children is None:
            raise NotFound("Nothing is served at this address", ABSENT)
        rows = [_row(name, is_folder=item is None) for name, item in children.items()]
        return Addressed(uri, found.file, entries=tuple(rows))

    def path_of(self, uri: str) -> str:
        """The absolute path that an address stands for; the address itself when it has none."""
        place = self._served.place(_tidy(uri))
        if place is None:
            return uri
        skill, file = place
        return os.path.join(skill.base_dir, *file.split("/")) if file else skill.base_dir

    def _opened(self, uri: str, skill: Skill, file: str) -> Addressed:
        """A file of a skill that has no manifest."""
        inner = self._served.inner(skill)
        full = os.path.realpath(os.path.join(skill.base_dir, file))
        inside = is_inside(full, os.path.realpath(skill.base_dir))
        if not inside or f"{file}/".startswith(inner) or not self._is_ours(full):
            raise NotFound("Nothing is served at this address", ABSENT)
        if not os.path.isdir(full):
            return Addressed(uri, file, root=skill.base_dir)
        prefix = f"{file}/" if file else ""
        with os.scandir(full) as entries:
            rows = [
                _row(one.name, is_folder=one.is_dir())
                for one in entries
                if not f"{prefix}{one.name}/".startswith(inner)
            ]
        return Addressed(uri, file, entries=tuple(rows))

    def _is_ours(self, real: str) -> bool:
        """Whether a path lies in the folder of a skill that this client may have."""
        look = self._library.snapshot()
        for holder in self._library.holders(real):
            mine = look.get(holder.name)
            # What only people may load comes as a prompt: its file is not read around that.
            if mine is not None and mine.for_model and mine.base_dir == holder.base_dir:
                return True
        return False

    def _otherwise(self, uri: str) -> str:
        """What may have been meant: the name of a skill in other letters."""
        name, _, rest = uri[len(SCHEME) :].partition("/")
        for path in self._served.paths:
            if path != name and path.casefold() == name.casefold():
                meant = f"{SCHEME}{path}/{rest}".rstrip("/")
                return f"Did you mean `{one_line(meant, 300)}`?"
        if self._served.place(f"{SCHEME}{name}") is not None:
            return ABSENT
        return "Give `skill://NAME/FILE`, with the name of a skill that Skill or SkillSearch lists"


def _tidy(uri: str) -> str:
    """An address without steps that lead nowhere: a `/` at its end, `./` and `//`."""
    names = [name for name in uri[len(SCHEME) :].split("/") if name not in {"", "."}]
    return SCHEME + "/".join(names)


def _row(name: str, *, is_folder: bool) -> dict[str, str]:
    return {"path": printable(name), "type": "dir" if is_folder else "file"}
