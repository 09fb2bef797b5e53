"""One client's part of the library: which skills, which tools, which prompts.

A part is an intersection: a client's filter can leave out skills of the project, never add one.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

from satchel.envelope import failure
from satchel.errors import SatchelError
from satchel.facade import Satchel
from satchel.integrations.mcp.served import Manifests, Served
from satchel.library.filters import Filter
from satchel.library.narrowed import NarrowedLibrary
from satchel.tools.arguments import argument_names
from satchel.tools.frame import one_line, printable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from satchel.envelope import Envelope
    from satchel.library import Snapshot
    from satchel.skill.model import Skill
    from satchel.tools.taking_back import TakenBack

PLAIN = frozenset(("Skill", "SkillSearch", "ReadFile"))
"""Satchel's own tools that are served; the tools of tool skills come on top."""


class Part(NamedTuple):
    """What a client may have."""

    name: str
    wanted: Filter = Filter()
    tools: bool = True


class View:
    """One client's look at the skills."""

    def __init__(
        self, satchel: Satchel, part: Part, manifests: Manifests, *, remote: bool = False
    ) -> None:
        """Take a part.

        Args:
            satchel: Whose skills.
            part: What of it.
            manifests: Shared by all clients.
            remote: The client may be on another machine: it reads files of skills, not of the
                project.
        """
        library = satchel.library
        if any(part.wanted):
            library = NarrowedLibrary(library, part.wanted)
        # Tools of installed packages work on the project's files: they are nobody's skill.
        settings = satchel.settings._replace(packaged=False)
        satchel = Satchel(library, settings, engine=satchel.engine)
        self.name = part.name
        self.satchel = satchel
        self.library = library
        self.tools = part.tools
        self.served = Served(library, manifests)
        self._remote = remote
        self._prompts: tuple[Snapshot, dict[str, Skill]] | None = None
        self._names: dict[str, tuple[object, tuple[str, ...]]] = {}

    # --- tools ----------------------------------------------------------------------------

    def definitions(self, *, catalogue: bool = True) -> list[dict[str, Any]]:
        """The tools as MCP describes them; the description of `Skill` lists the skills."""
        if not self.tools:
            return []
        toolset = self.satchel.tools()
        owners = toolset.owners
        return [
            item
            for item in toolset.definitions("mcp", catalogue=catalogue)
            if item["name"] in PLAIN or owners.get(item["name"])
        ]

    def call(self, name: str, arguments: Mapping[str, Any], cancel: TakenBack) -> Envelope:
        """Call a tool; it never raises."""
        if not self.tools or not self._has(name):
            return _refusal("NOT_FOUND", f"There is no tool `{one_line(name, 60)}`", "", arguments)
        if self._remote and name == "ReadFile" and not self._is_ours(arguments):
            return _refusal(
                "ACCESS_DENIED",
                "Only files of skills can be read here",
                "Give a path below the base directory of a skill",
                arguments,
            )
        return self.satchel.tools().call(name, arguments, cancel=cancel)

    def _has(self, name: str) -> bool:
        return name in PLAIN or bool(self.satchel.tools().owners.get(name))

    def _is_ours(self, arguments: Mapping[str, Any]) -> bool:
        """Whether a path lies in the folder of a skill that this client may have."""
        wanted = arguments.get("path") or arguments.get("relativePath")
        wanted = wanted or arguments.get("relative_path")
        if not isinstance(wanted, str) or "\0" in wanted:
            return True  # the tool says what is wrong with it
        real = os.path.realpath(os.path.join(self.satchel.settings.project, wanted))
        look = self.library.snapshot()
        for holder in self.library.holders(real):
            mine = look.get(holder.name)
            # What only people may load comes as a prompt: its file is not read around that.
            if mine is not None and mine.for_model and mine.base_dir == holder.base_dir:
                return True
        return False

    # --- prompts --------------------------------------------------------------------------

    @property
    def prompts(self) -> dict[str, Skill]:
        """The skills that a person may call, by the name of their prompt, sorted."""
        look = self.library.snapshot()
        if self._prompts is None or self._prompts[0] is not look:
            found = {printable(skill.name): skill for skill in look.skills if skill.for_people}
            self._prompts = (look, dict(sorted(found.items())))
        return self._prompts[1]

    def arguments_of(self, skill: Skill) -> list[tuple[str, str]]:
        """What a skill takes: the names in its `arguments`, else one for its `argument-hint`."""
        hint = one_line(skill.argument_hint, 200)
        names = self._names_in(skill)
        if names:
            return [(name, hint) for name in names]
        return [("args", hint)] if hint else []

    def _names_in(self, skill: Skill) -> tuple[str, ...]:
        """The names in a skill's `arguments`, which a scan does not keep: read once."""
        kept = self._names.get(skill.base_dir)
        if kept is not None and kept[0] is skill.head:
            return kept[1]
        try:
            names = argument_names(self.library.seals.read(skill).fields.get("arguments"))
        except SatchelError:
            names = ()  # whoever asks for the prompt is told
        self._names[skill.base_dir] = (skill.head, names)
        return names

    def prompt(self, name: str, given: Mapping[str, str]) -> Envelope:
        """Load a skill for a person."""
        skill = self.prompts.get(name)
        if skill is None:
            return _refusal("NOT_FOUND", "There is no such prompt", "Call prompts/list", given)
        names = [one for one, _ in self.arguments_of(skill)]
        args = " ".join(_quoted(given[one]) for one in names if given.get(one))
        if names == ["args"]:
            args = given.get("args", "")
        table = {"name": skill.name, **({"args": args} if args else {})}
        return self.satchel.tools().call("Skill", table, as_person=True)

    # --- changes --------------------------------------------------------------------------

    def marks(self) -> tuple[str, str]:
        """What tools and prompts are, in short: other marks say that they changed."""
        import json

        digest = self.library.snapshot().digest
        tools = json.dumps(self.definitions(catalogue=False), sort_keys=True, default=str)
        return f"{tools} {digest if self.tools else ''}", digest


class Views:
    """Everybody's part: one for whoever comes without a name, and one for each client."""

    def __init__(
        self,
        satchel: Satchel,
        parts: Sequence[Part] = (),
        *,
        tools: bool = True,
        remote: bool = False,
    ) -> None:
        self.satchel = satchel
        self.manifests = Manifests(satchel.library)
        self.default = View(satchel, Part("", tools=tools), self.manifests, remote=remote)
        self._by_name = {
            part.name: View(satchel, part, self.manifests, remote=remote) for part in parts
        }

    def of(self, name: str | None) -> View:
        """A client's view. A name that nobody gave a part has the whole."""
        return self._by_name.get(name, self.default) if name else self.default

    def all(self) -> list[View]:
        """Every view."""
        return [self.default, *self._by_name.values()]


def _quoted(word: str) -> str:
    """One argument as one word."""
    if not any(sign.isspace() for sign in word) and '"' not in word:
        return word
    return f"'{word}'" if '"' in word else f'"{word}"'


def _refusal(code: Any, message: str, step: str, given: Mapping[str, Any]) -> Envelope:
    return failure(code, message, step, params=dict(given), time_ms=0)
