"""One client's part of the library: which skills, which tools, which prompts.

A part is an intersection: a client's filter can leave out skills of the project, never add one.

Where a client has a session, what its loaded skills forbid is refused in it. Where each request
stands alone nobody knows what was loaded before: there the loaded text says what is forbidden.
"""

from __future__ import annotations

import os
import re
import threading
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from satchel.envelope import failure
from satchel.errors import SatchelError
from satchel.facade import Satchel
from satchel.integrations.mcp.served import Manifests, Served, SkillFiles, address
from satchel.library.narrowed import NarrowedLibrary
from satchel.library.snapshot import Filter
from satchel.tools.arguments import argument_names
from satchel.tools.frame import attribute, encodable, one_line, printable
from satchel.tools.read_file import is_address
from satchel.tools.toolset import make_toolset

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from satchel.envelope import Envelope
    from satchel.library import Library, Snapshot
    from satchel.settings import Settings
    from satchel.skill.model import Skill
    from satchel.tools.base import TakenBack
    from satchel.tools.session import Session
    from satchel.tools.toolset import Toolset

READ = (
    "Read a text file of a skill: join the skill's base directory and the file's path. On a folder "
    "it answers with what is in it."
)
"""What `ReadFile` is to such a client: it has no project here."""
_SAID = frozenset((
    # of Skill
    "name", "base_dir", "content", "files", "files_total", "files_complete", "revision",
    "changed_since_loaded", "disallowed_tools", "available", "available_total",
    # of ReadFile
    "path", "first_line", "last_line", "lines", "entries", "entries_total",
    # of SkillSearch
    "matches", "notes",
    # of tool skills: not their tier, way, limits, denied paths, raw answers or standard error
    "tool", "skill", "output", "data", "exit", "fault", "failure",
    # of several
    "truncated", "fallback",
))  # fmt: skip
"""What of a tool's data leaves this machine."""


class Outside:
    """Between the tools, which speak of paths, and a client, which has addresses."""

    def __init__(self, library: Library, settings: Settings, served: Served) -> None:
        self._library = library
        self._settings = settings
        self._served = served

    def outward(self, tool: str, reply: Envelope) -> Envelope:
        """A reply as it leaves.

        Args:
            tool: Who said it.
            reply: What it said.
        """
        data = {key: value for key, value in reply.data.items() if key in _SAID}
        if reply.error is None and tool == "ReadFile":
            return reply._replace(data=data)  # a file says what it says
        if reply.error is None and tool == "Skill":
            return self._loaded(reply, data)
        error = reply.error
        # What the client sent comes back as it sent it.
        context = {
            key: value if key == "params_input" else self._clean(value)
            for key, value in reply.context.items()
        }
        return reply._replace(
            data=cast("dict[str, Any]", self._clean(data)),
            text=self._without(reply.text),
            error=error and error._replace(message=self._without(error.message), hint=""),
            context=context,
        )

    def _loaded(self, reply: Envelope, data: dict[str, Any]) -> Envelope:
        """A skill with its address for its folder; the rest are the words of its author."""
        base, name = str(data["base_dir"]), str(data["name"])
        # By the folder that the reply itself has: the skill may be gone by now, or another one.
        skill = self._library.snapshot().get(name)
        uri = address(name)
        if skill is not None and encodable(skill.base_dir) == base:
            uri = self._served.uri(skill).removesuffix("/SKILL.md")

        def put(text: str) -> str:
            text = _replaced(text, base, uri)
            # `${SKILL_DIR}-forms` is beside the skill, and no address of anybody.
            return _replaced(text, os.path.dirname(base), f"{uri}/..")

        context = dict(reply.context)
        if isinstance(context.get("path_resolved"), str):
            context["path_resolved"] = put(context["path_resolved"])
        data = {**data, "base_dir": uri, "content": put(str(data.get("content", "")))}
        return reply._replace(data=data, text=put(reply.text), context=context)

    def _clean(self, value: Any) -> Any:
        """Whatever a tool handed over, each text in it without paths of this machine."""
        if isinstance(value, str):
            return self._without(value)
        if isinstance(value, dict):
            table = cast("dict[Any, Any]", value)
            return {self._clean(key): self._clean(one) for key, one in table.items()}
        if isinstance(value, list | tuple):
            return [self._clean(one) for one in cast("list[Any]", value)]
        return value

    def _without(self, text: str) -> str:
        """A text without paths of this machine."""
        for root, name in self._known():
            if root in text or printable(root) in text:
                text = _replaced(text, root, name)
        return text

    def _known(self) -> Iterator[tuple[str, str]]:
        """Folders of this machine, and what stands for them, the innermost first."""
        settings = self._settings
        paths = settings.paths
        own = [(paths.cache, "(cache)"), (paths.state, "(state)")]
        own += [(os.path.dirname(paths.config), "(config)")]
        places = [one.path for one in self._library.locations if one.path != settings.project]
        found = [(one + os.sep, "skill://") for one in places] + own
        found += [(settings.project, "."), (os.path.expanduser("~"), "~")]
        for root, name in found:
            if len(root) > 1:
                yield root, name
                end = os.sep if root.endswith(os.sep) else ""
                yield os.path.realpath(root) + end, name


def _replaced(text: str, old: str, new: str) -> str:
    """A text without a path, however the tools write one; not where a longer name goes on."""
    after = "" if old.endswith(os.sep) else r"(?![\w-])(?!\.\w)"
    for form in dict.fromkeys((old, encodable(old), printable(old), attribute(old))):
        if form in text:
            text = re.sub(rf"(?<![\w.-]){re.escape(form)}{after}", lambda _: new, text)
    return text


PLAIN = frozenset(("Skill", "SkillSearch", "ReadFile"))
"""Satchel's own tools that are served; the tools of tool skills come on top."""
_PATHS = ("path", "relativePath", "relative_path")
_BANS = 20
"""Forbidden tools that are named in a text."""


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
        self._outside = Outside(library, settings, self.served) if remote else None
        self._toolset: Toolset | None = None
        self._lock = threading.Lock()
        self._prompts: tuple[Snapshot, dict[str, Skill]] | None = None
        self._names: dict[str, tuple[object, tuple[str, ...]]] = {}

    # --- tools ----------------------------------------------------------------------------

    @property
    def toolset(self) -> Toolset:
        """What is called here; `ReadFile` knows addresses too."""
        with self._lock:
            if self._toolset is None:
                self._toolset = make_toolset(
                    self.library,
                    self.satchel.settings,
                    trace=self.satchel.trace,
                    detector=lambda: self.satchel.detector,
                    engine=self.satchel.engine,
                    addresses=SkillFiles(self.library, self.served),
                )
            return self._toolset

    def talk(self) -> Session:
        """A conversation: what its loaded skills forbid is refused in it.

        Whether a person is asked before a tool runs is the host's affair. It does not say when a
        text was trimmed away either, so each load hands the text over.
        """
        from satchel.tools.gate import Gate
        from satchel.tools.loaded import LoadedSkills
        from satchel.tools.session import Session

        satchel = self.satchel
        return Session(
            self.library,
            satchel.settings,
            detector=lambda: satchel.detector,
            engine=satchel.engine,
            gate=Gate(satchel.trace, approve=True),
            loaded=LoadedSkills(self.library, points=False),
            toolset=self.toolset,
        )

    def definitions(self, *, catalogue: bool = True) -> list[dict[str, Any]]:
        """The tools as MCP describes them; the description of `Skill` lists the skills."""
        if not self.tools:
            return []
        toolset = self.toolset
        owners = toolset.owners
        own = {"ReadFile": {"description": READ}} if self._outside is not None else {}
        return [
            {**item, **own.get(item["name"], {})}
            for item in toolset.definitions("mcp", catalogue=catalogue)
            if item["name"] in PLAIN or owners.get(item["name"])
        ]

    def call(
        self,
        name: str,
        arguments: Mapping[str, Any],
        cancel: TakenBack,
        talk: Session | None = None,
    ) -> Envelope:
        """Call a tool; it never raises.

        Args:
            name: Which one.
            arguments: As the client sent them.
            cancel: How it is taken back.
            talk: The client's conversation; None where each request stands alone.
        """
        if not self.tools or not self._has(name):
            return _refusal("NOT_FOUND", f"There is no tool `{one_line(name, 60)}`", "", arguments)
        outside = self._outside
        if outside is not None and name == "ReadFile" and not _are_addresses(arguments):
            return _refusal(
                "ACCESS_DENIED",
                "Only files of skills can be read here",
                "Give a path below the base directory of a skill: `skill://NAME/FILE`",
                arguments,
            )
        if talk is not None:
            reply = talk.call(name, arguments, cancel=cancel)
        else:
            reply = self._alone(name, arguments, cancel=cancel)
        return reply if outside is None else outside.outward(name, reply)

    def _has(self, name: str) -> bool:
        return name in PLAIN or bool(self.toolset.owners.get(name))

    def _alone(
        self,
        name: str,
        arguments: Mapping[str, Any],
        *,
        cancel: TakenBack | None = None,
        as_person: bool = False,
    ) -> Envelope:
        """A call in a conversation of its own: a loaded skill's text says what it forbids."""
        talk = self.talk()
        reply = talk.call(name, arguments, cancel=cancel, as_person=as_person)
        banned = [one for held in talk.loaded.values() for one in held.disallowed]
        if not banned:
            return reply
        shown = ", ".join(f"`{one_line(one, 100)}`" for one in banned[:_BANS])
        more = f" and {len(banned) - _BANS} more" if len(banned) > _BANS else ""
        note = (
            f"While you follow this skill, do not call: {shown}{more} (its `disallowed-tools`). "
            "This server does not remember what was loaded, so it cannot refuse them."
        )
        data = {**reply.data, "disallowed_tools": list(banned)}
        return reply._replace(text=f"{reply.text}\n{note}", data=data)

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

    def prompt(self, name: str, given: Mapping[str, str], talk: Session | None = None) -> Envelope:
        """Load a skill for a person, in their conversation if there is one."""
        gone = _refusal("NOT_FOUND", "There is no such prompt", "Call prompts/list", given)
        skill = self.prompts.get(name)
        if skill is None:
            return gone
        names = [one for one, _ in self.arguments_of(skill)]
        args = " ".join(_quoted(given[one]) for one in names if given.get(one))
        if names == ["args"]:
            args = given.get("args", "")
        table = {"name": skill.name, **({"args": args} if args else {})}
        if talk is not None:
            reply = talk.call("Skill", table, as_person=True)
        else:
            reply = self._alone("Skill", table, as_person=True)
        if reply.error is not None and reply.error.code == "NOT_FOUND":
            return gone  # it went since the list was made
        return reply if self._outside is None else self._outside.outward("Skill", reply)

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


def _are_addresses(arguments: Mapping[str, Any]) -> bool:
    """Whether no path is given but addresses of files of skills."""
    given = [arguments[key] for key in _PATHS if isinstance(arguments.get(key), str)]
    return all(is_address(one) for one in given)


def _quoted(word: str) -> str:
    """One argument as one word."""
    if not any(sign.isspace() for sign in word) and '"' not in word:
        return word
    return f"'{word}'" if '"' in word else f'"{word}"'


def _refusal(code: Any, message: str, step: str, given: Mapping[str, Any]) -> Envelope:
    return failure(code, message, step, params=dict(given), time_ms=0)
