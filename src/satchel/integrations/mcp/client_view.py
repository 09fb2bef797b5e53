"""The library as clients see it: its skills, tools and prompts.

In a session, tools that a loaded skill forbids are denied. Stateless requests have no loaded
skills: there the skill's text lists what is forbidden.
"""

from __future__ import annotations

import os
import re
import threading
from typing import TYPE_CHECKING, Any, cast

from satchel.envelope import failure
from satchel.errors import SatchelError
from satchel.integrations.mcp.skill_resources import ManifestCache, SkillResources, address
from satchel.satchel import Satchel
from satchel.tools.arguments import argument_names
from satchel.tools.framing import attribute, encodable, one_line, printable
from satchel.tools.read_file import is_address
from satchel.tools.toolset import make_toolset

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from satchel.envelope import Envelope
    from satchel.library import Library, Snapshot
    from satchel.session.session import Session
    from satchel.settings import Settings
    from satchel.skill.model import Skill
    from satchel.tools.base import CancelToken
    from satchel.tools.toolset import Toolset

READ_DESCRIPTION = (
    "Read a text file of a skill: join the skill's base directory and the file's path. On a folder "
    "it answers with what is in it."
)
"""The description of `ReadFile` for remote clients, which have no project here."""
_PUBLIC_KEYS = frozenset((
    # of Skill
    "name", "base_dir", "content", "files", "files_total", "revision",
    "changed_since_loaded", "disallowed_tools", "available", "available_total",
    # of ReadFile
    "path", "first_line", "last_line", "lines", "entries", "entries_total",
    # of SkillSearch
    "matches", "notes",
    # of tool skills: not their tier, limits, denied paths, raw answers or standard error
    "tool", "skill", "output", "data", "exit", "fault", "failure",
    # of several
    "truncated", "fallback",
))  # fmt: skip
"""The keys of a tool's data that leave this machine."""


class PathRedactor:
    """Replaces paths of this machine by URIs in replies to a client."""

    def __init__(self, library: Library, settings: Settings) -> None:
        self._library = library
        self._settings = settings

    def redact(self, tool: str, reply: Envelope) -> Envelope:
        """Redact a reply."""
        data = {key: value for key, value in reply.data.items() if key in _PUBLIC_KEYS}
        if reply.error is None and tool == "ReadFile":
            return reply._replace(data=data)  # the content of a file is not changed
        if reply.error is None and tool == "Skill":
            return self._loaded(reply, data)
        error = reply.error
        # The client's own values are returned unchanged.
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
        """Redact a loaded skill; its author's text is not changed."""
        base, uri = str(data["base_dir"]), address(str(data["name"]))

        def with_uri(text: str) -> str:
            text = _replace_path(text, base, uri)
            # `${SKILL_DIR}-forms` is beside the skill, and not part of its URI.
            return _replace_path(text, os.path.dirname(base), f"{uri}/..")

        context = dict(reply.context)
        if isinstance(context.get("path_resolved"), str):
            context["path_resolved"] = with_uri(context["path_resolved"])
        data = {**data, "base_dir": uri, "content": with_uri(str(data.get("content", "")))}
        return reply._replace(data=data, text=with_uri(reply.text), context=context)

    def _clean(self, value: Any) -> Any:
        """Remove paths of this machine from all texts of a value."""
        if isinstance(value, str):
            return self._without(value)
        if isinstance(value, dict):
            table = cast("dict[Any, Any]", value)
            return {self._clean(key): self._clean(one) for key, one in table.items()}
        if isinstance(value, list | tuple):
            return [self._clean(one) for one in cast("list[Any]", value)]
        return value

    def _without(self, text: str) -> str:
        for root, name in self._known():
            if root in text or printable(root) in text:
                text = _replace_path(text, root, name)
        return text

    def _known(self) -> Iterator[tuple[str, str]]:
        """Folders of this machine with their replacements, innermost first."""
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


def _replace_path(text: str, old: str, new: str) -> str:
    """Replace a path in all its spellings, except where a longer name continues."""
    after = "" if old.endswith(os.sep) else r"(?![\w-])(?!\.\w)"
    for form in dict.fromkeys((old, encodable(old), printable(old), attribute(old))):
        if form in text:
            text = re.sub(rf"(?<![\w.-]){re.escape(form)}{after}", lambda _: new, text)
    return text


OWN_TOOLS = frozenset(("Skill", "SkillSearch", "ReadFile"))
"""Satchel's own tools that are served, in addition to those of tool skills."""
_PATH_ARGUMENTS = ("path", "relativePath", "relative_path")
_MAX_FORBIDDEN_SHOWN = 20


class ClientView:
    """The skills, tools and prompts of a project for clients."""

    def __init__(self, satchel: Satchel, *, tools: bool = True, remote: bool = False) -> None:
        """Create a view.

        Args:
            satchel: The skills.
            tools: Whether tools are served.
            remote: Clients may be on another machine: they can read files of skills, not of the
                project.
        """
        library = satchel.library
        # Tools of installed packages work on the project's files, which are not for remote clients.
        settings = satchel.settings
        settings = settings._replace(packaged=settings.packaged and not remote)
        satchel = Satchel(library, settings, runner=satchel.runner)
        self.satchel = satchel
        self.library = library
        self.tools = tools
        self.manifests = ManifestCache(library)
        self.served = SkillResources(library, self.manifests)
        self._redactor = PathRedactor(library, settings) if remote else None
        self._toolset: Toolset | None = None
        self._lock = threading.Lock()
        self._prompts: tuple[Snapshot, dict[str, Skill]] | None = None
        self._names: dict[str, tuple[object, tuple[str, ...]]] = {}

    # --- tools ----------------------------------------------------------------------------

    @property
    def toolset(self) -> Toolset:
        """The tools that are called here; `ReadFile` accepts URIs too."""
        with self._lock:
            if self._toolset is None:
                self._toolset = make_toolset(
                    self.library,
                    self.satchel.settings,
                    trace=self.satchel.trace,
                    detector=lambda: self.satchel.detector,
                    runner=self.satchel.runner,
                    path_of=self.served.path_of,
                )
            return self._toolset

    def new_session(self) -> Session:
        """Create the session of a conversation, which denies what loaded skills forbid.

        Approval before a tool runs is up to the host. The host does not report when a
        text was trimmed either, so each load returns the text.
        """
        from satchel.session.loaded_skills import LoadedSkills
        from satchel.session.permissions import PermissionGate
        from satchel.session.session import Session

        satchel = self.satchel
        return Session(
            self.library,
            satchel.settings,
            detector=lambda: satchel.detector,
            runner=satchel.runner,
            gate=PermissionGate(satchel.trace, approve=True),
            loaded=LoadedSkills(self.library, deduplicate=False),
            toolset=self.toolset,
        )

    def definitions(self, *, catalogue: bool = True) -> list[dict[str, Any]]:
        """The tools in MCP's format; the description of `Skill` lists the skills."""
        if not self.tools:
            return []
        toolset = self.toolset
        owners = toolset.owners
        own = {"ReadFile": {"description": READ_DESCRIPTION}} if self._redactor is not None else {}
        return [
            {**item, **own.get(item["name"], {})}
            for item in toolset.definitions("mcp", catalogue=catalogue)
            if item["name"] in OWN_TOOLS or owners.get(item["name"])
        ]

    def call(
        self,
        name: str,
        arguments: Mapping[str, Any],
        cancel: CancelToken,
        session: Session | None = None,
    ) -> Envelope:
        """Call a tool; it never raises."""
        if not self.tools or not self._has(name):
            return _refusal("NOT_FOUND", f"There is no tool `{one_line(name, 60)}`", "", arguments)
        redactor = self._redactor
        if redactor is not None and name == "ReadFile" and not _are_addresses(arguments):
            return _refusal(
                "ACCESS_DENIED",
                "Only files of skills can be read here",
                "Give a path below the base directory of a skill: `skill://NAME/FILE`",
                arguments,
            )
        if session is not None:
            reply = session.call(name, arguments, cancel=cancel)
        else:
            reply = self._call_stateless(name, arguments, cancel=cancel)
        return reply if redactor is None else redactor.redact(name, reply)

    def _has(self, name: str) -> bool:
        return name in OWN_TOOLS or bool(self.toolset.owners.get(name))

    def _call_stateless(
        self,
        name: str,
        arguments: Mapping[str, Any],
        *,
        cancel: CancelToken | None = None,
        as_person: bool = False,
    ) -> Envelope:
        """Call a tool without a session: a loaded skill's text lists what it forbids."""
        session = self.new_session()
        reply = session.call(name, arguments, cancel=cancel, as_person=as_person)
        banned = [one for held in session.loaded.values() for one in held.disallowed]
        if not banned:
            return reply
        shown = ", ".join(f"`{one_line(one, 100)}`" for one in banned[:_MAX_FORBIDDEN_SHOWN])
        more = (
            f" and {len(banned) - _MAX_FORBIDDEN_SHOWN} more"
            if len(banned) > _MAX_FORBIDDEN_SHOWN
            else ""
        )
        note = (
            f"While you follow this skill, do not call: {shown}{more} (its `disallowed-tools`). "
            "This server does not remember what was loaded, so it cannot refuse them."
        )
        data = {**reply.data, "disallowed_tools": list(banned)}
        return reply._replace(text=f"{reply.text}\n{note}", data=data)

    # --- prompts --------------------------------------------------------------------------

    @property
    def prompts(self) -> dict[str, Skill]:
        """The skills that a user may call, by the name of their prompt, sorted."""
        look = self.library.snapshot()
        if self._prompts is None or self._prompts[0] is not look:
            found = {printable(skill.name): skill for skill in look.skills if skill.for_people}
            self._prompts = (look, dict(sorted(found.items())))
        return self._prompts[1]

    def arguments_of(self, skill: Skill) -> list[tuple[str, str]]:
        """The arguments of a skill: those in `arguments`, otherwise one for `argument-hint`."""
        hint = one_line(skill.argument_hint, 200)
        names = self._names_in(skill)
        if names:
            return [(name, hint) for name in names]
        return [("args", hint)] if hint else []

    def _names_in(self, skill: Skill) -> tuple[str, ...]:
        """The names in a skill's `arguments`, which a scan does not store: read once."""
        kept = self._names.get(skill.base_dir)
        if kept is not None and kept[0] is skill.head:
            return kept[1]
        try:
            names = argument_names(self.library.integrity.read(skill).fields.get("arguments"))
        except SatchelError:
            names = ()  # the error is reported when the prompt is requested
        self._names[skill.base_dir] = (skill.head, names)
        return names

    def prompt(
        self, name: str, given: Mapping[str, str], session: Session | None = None
    ) -> Envelope:
        """Load a skill for a user, in their session if there is one."""
        gone = _refusal("NOT_FOUND", "There is no such prompt", "Call prompts/list", given)
        skill = self.prompts.get(name)
        if skill is None:
            return gone
        names = [one for one, _ in self.arguments_of(skill)]
        args = " ".join(_quote(given[one]) for one in names if given.get(one))
        if names == ["args"]:
            args = given.get("args", "")
        table = {"name": skill.name, **({"args": args} if args else {})}
        if session is not None:
            reply = session.call("Skill", table, as_person=True)
        else:
            reply = self._call_stateless("Skill", table, as_person=True)
        if reply.error is not None and reply.error.code == "NOT_FOUND":
            return gone  # it was removed since the list was made
        return reply if self._redactor is None else self._redactor.redact("Skill", reply)

    # --- changes --------------------------------------------------------------------------

    def fingerprints(self) -> tuple[str, str]:
        """Fingerprints of tools and prompts, to detect changes."""
        import json

        digest = self.library.snapshot().digest
        tools = json.dumps(self.definitions(catalogue=False), sort_keys=True, default=str)
        return f"{tools} {digest if self.tools else ''}", digest


def _are_addresses(arguments: Mapping[str, Any]) -> bool:
    given = [arguments[key] for key in _PATH_ARGUMENTS if isinstance(arguments.get(key), str)]
    return all(is_address(one) for one in given)


def _quote(word: str) -> str:
    if not any(sign.isspace() for sign in word) and '"' not in word:
        return word
    return f"'{word}'" if '"' in word else f'"{word}"'


def _refusal(code: Any, message: str, step: str, given: Mapping[str, Any]) -> Envelope:
    return failure(code, message, step, params=dict(given), time_ms=0)
