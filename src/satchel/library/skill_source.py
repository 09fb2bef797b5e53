"""Skills from code or a database: the protocol `SkillSource`, and `skill_from_text`.

A source returns whole skills; a library treats them as those of a server. They come after all
folders, never replace a local skill, and are scanned when they are loaded. Their programs are not
run, and their `allowed-tools` grants nothing.
"""

from __future__ import annotations

import json
import os
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from urllib.parse import quote

from satchel.errors import InvalidInput
from satchel.i18n import Message
from satchel.library.locations import Location
from satchel.library.remote.listed_skills import read_entries
from satchel.library.supplier import SKILL_FILE, ServedListing
from satchel.skill.problems import Problem
from satchel.skill.reader import parse_document

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from satchel.library.supplier import ServedFile
    from satchel.settings import Settings


class SourceSkill(NamedTuple):
    """A skill of a `SkillSource`, with all its files."""

    name: str
    """The name in its frontmatter."""
    files: Mapping[str, bytes]
    """Path, with `/` -> content; `SKILL.md` is one of them."""


class SkillSource(Protocol):
    """Skills from code or a database, for `Satchel.for_project(…, sources=[…])`.

    Example:
        from satchel import Satchel, skill_from_text


        class Handbook:
            label = "handbook"
            skills = (skill_from_text("Say hello.", name="greet", description="Greets people."),)

            def list_skills(self):
                return self.skills


        satchel = Satchel.for_project(".", sources=[Handbook()])
        assert "Say hello." in satchel.load_content("greet")
    """

    @property
    def label(self) -> str:
        """The name of the source, which is part of the `ref` of its skills."""
        ...

    def list_skills(self) -> Sequence[SourceSkill]:
        """Return all skills; called at each refresh.

        Return the same object while nothing changes: then nothing is compared.
        """
        ...


def skill_from_text(
    text: str, *, name: str = "", description: str = "", files: Mapping[str, bytes] | None = None
) -> SourceSkill:
    """Make a skill of a source from its text.

    Args:
        text: A whole SKILL.md; or its body, with `name` and `description`.
        name: The name, when the text has no frontmatter.
        description: What it does and when to use it, when the text has no frontmatter.
        files: Further files by path, such as `references/terms.md`.

    Raises:
        InvalidInput: it has no name, no description, or a frontmatter that is not valid.

    Example:
        from satchel import skill_from_text

        skill = skill_from_text("Say hello.", name="greet", description="Greets people.")
        assert list(skill.files) == ["SKILL.md"]
    """
    if name or description:
        text = f"---\nname: {json.dumps(name)}\ndescription: {json.dumps(description)}\n---\n{text}"
    data = text.encode()
    fields = parse_document(data, "", SKILL_FILE, (0, 0, len(data))).fields
    if not all(isinstance(fields.get(key), str) and fields[key] for key in ("name", "description")):
        raise InvalidInput(
            Message("A skill needs a name and a description"),
            Message("Give a text with frontmatter, or `name` and `description`"),
        )
    return SourceSkill(fields["name"], {SKILL_FILE: data, **(files or {})})


def source_locations(sources: Sequence[SkillSource], settings: Settings) -> list[Location]:
    """A location for each source; none of them is asked yet.

    Raises:
        InvalidInput: two sources have the same label.
    """
    labels = [source.label for source in sources]
    if len(set(labels)) < len(labels):
        raise InvalidInput(Message("Two sources have the same label: {names}", names=labels))
    base = os.path.join(settings.paths.cache or settings.project, "sources")
    return [
        Location(
            os.path.join(base, quote(source.label, safe="")),
            "code",
            f"code:{source.label}",
            trusted=True,
            writable=False,
            supplier=_SourceSupplier(source),
        )
        for source in sources
    ]


class _SourceSupplier:
    """A `SkillSource` as a supplier: its skills become entries as a server lists them."""

    def __init__(self, source: SkillSource) -> None:
        self._source = source
        self.label = source.label
        self._skills: Sequence[SourceSkill] | None = None
        self._contents: dict[str, bytes] = {}
        """By digest."""
        self._listing = ServedListing({})

    def prepare(self) -> None:
        """Do nothing: the skills are read when they are listed."""

    def listing(self) -> ServedListing:
        """Return the skills of the source; those of the last call while it fails."""
        try:
            skills = self._source.list_skills()
        except Exception as exc:  # noqa: BLE001 - the code of a source may raise anything
            values = {"name": self.label, "reason": str(exc) or type(exc).__name__}
            problems = (Problem("server-unreachable", self.label, values=values),)
            if self._listing.problems != problems:
                self._listing = ServedListing(self._listing.served, problems)
            self._skills = None
            return self._listing
        if skills is not self._skills:
            self._contents = {}
            served, problems = read_entries([self._entry(skill) for skill in skills], self.label)
            if (served, tuple(problems)) != self._listing:
                self._listing = ServedListing(served, tuple(problems))
            self._skills = skills
        return self._listing

    def _entry(self, skill: SourceSkill) -> dict[str, Any]:
        resources: list[dict[str, Any]] = []
        address = f"skill://{quote(skill.name, safe='')}"
        for path, data in skill.files.items():
            digest = sha256(data).hexdigest()
            self._contents[digest] = data
            uri = f"{address}/{quote(path)}"
            resources.append({"uri": uri, "digest": f"sha256:{digest}", "size": len(data)})
        text = skill.files.get(SKILL_FILE, b"")
        fields = parse_document(text, skill.name, SKILL_FILE, (0, 0, len(text))).fields
        return {"uri": f"{address}/{SKILL_FILE}", "frontmatter": fields, "resources": resources}

    def fetch(self, file: ServedFile) -> bytes:
        """Return the content of a file."""
        return self._contents.get(file.digest, b"")

    def mark_stale(self) -> None:
        """Compare the skills again at the next refresh."""
        self._skills = None

    def close(self) -> None:
        """Do nothing: there is no connection."""
