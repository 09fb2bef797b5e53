"""The library as MCP clients see it: its skills, tools and prompts.

In a session, tools that a loaded skill forbids are denied. Stateless requests have no loaded
skills: there the skill's text lists what is forbidden.
"""

from __future__ import annotations

import json
import threading
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, cast

from satchel.envelope import failure
from satchel.errors import SatchelError
from satchel.integrations.mcp.path_redaction import PathRedactor
from satchel.integrations.mcp.skill_resources import ManifestCache, SkillResources
from satchel.satchel import Satchel
from satchel.session.loaded_skills import LoadedSkills
from satchel.session.permissions import PermissionGate
from satchel.session.session import Session
from satchel.tools.arguments import argument_names
from satchel.tools.framing import one_line, printable
from satchel.tools.proposed_changes import NEEDS_PERSON
from satchel.tools.read_file import is_address
from satchel.tools.toolset import make_toolset

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from satchel.envelope import Envelope
    from satchel.i18n import Message
    from satchel.library import Snapshot
    from satchel.session.permissions import ApprovalRequest
    from satchel.skill.model import Skill
    from satchel.tools.base import CancelToken
    from satchel.tools.toolset import Toolset

READ_DESCRIPTION = (
    "Read a text file of a skill: join the skill's base directory and the file's path. On a folder "
    "it answers with what is in it."
)
"""The description of `ReadFile` for remote clients, which have no project here."""
OWN_TOOLS = frozenset(("Skill", "SkillSearch", "ReadFile"))
"""Satchel's own tools that are served, in addition to those of tool skills."""
_RUN_SCRIPT = "RunScript"
_PATH_ARGUMENTS = ("path", "relativePath", "relative_path")
_MAX_FORBIDDEN_SHOWN = 20

ask_user: ContextVar[Callable[[ApprovalRequest], bool | Message] | None] = ContextVar(
    "satchel_mcp_user", default=None
)
"""Asks the user of the client that makes the running call; a text is the reason if it cannot."""


class ClientView:
    """The skills, tools and prompts of a project for clients."""

    def __init__(
        self, satchel: Satchel, *, tools: bool = True, remote: bool = False, scripts: bool = False
    ) -> None:
        """Create a view.

        Args:
            satchel: The skills.
            tools: Whether tools are served.
            remote: Clients may be on another machine: they can read files of skills, not of the
                project.
            scripts: Whether `RunScript` is served.
        """
        library, settings = satchel.library, satchel.settings
        # Tools of installed packages work on the project's files, which are not for remote clients.
        settings = settings._replace(packaged=settings.packaged and not remote)
        self.satchel = Satchel(library, settings, runner=satchel.runner)
        self.library = library
        self.tools = tools
        self._scripts = scripts
        self.manifests = ManifestCache(library)
        self.resources = SkillResources(library, self.manifests)
        self._redactor = PathRedactor(library, settings) if remote else None
        self._toolset: Toolset | None = None
        self._lock = threading.Lock()
        self._prompts: tuple[Snapshot, dict[str, Skill]] | None = None
        self._argument_names: dict[str, tuple[object, tuple[str, ...]]] = {}
        """Folder of a skill -> its header, and the names of its arguments."""

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
                    resolve_address=self.resources.path_of,
                    run_scripts=self._scripts,
                )
            return self._toolset

    def new_session(self) -> Session:
        """Create the session of a conversation, which denies what loaded skills forbid.

        Approval before a tool runs is up to the host; changes that it proposes are shown to the
        client's user. The host does not report when a text was trimmed either, so each load
        returns the text.
        """
        satchel = self.satchel
        return Session(
            self.library,
            satchel.settings,
            detector=lambda: satchel.detector,
            runner=satchel.runner,
            gate=PermissionGate(satchel.trace, approve=_approve),
            loaded=LoadedSkills(self.library, deduplicate=False),
            toolset=self.toolset,
        )

    def definitions(
        self, *, catalogue: bool = True, stateless: bool = False
    ) -> list[dict[str, Any]]:
        """Return the tools in MCP's format.

        Args:
            catalogue: Whether the description of `Skill` lists the skills.
            stateless: Whether calls have no session: `RunScript` then takes the loaded digest.
        """
        if not self.tools:
            return []
        toolset = self.toolset
        owners = toolset.owners
        overrides: dict[str, dict[str, Any]] = {}
        if self._redactor is not None:
            overrides["ReadFile"] = {"description": READ_DESCRIPTION}
        definitions = toolset.definitions("mcp", catalogue=catalogue)
        if stateless:
            schemas = {tool["name"]: tool["inputSchema"] for tool in definitions}
            overrides[_RUN_SCRIPT] = {"inputSchema": _with_digest(schemas.get(_RUN_SCRIPT, {}))}
        return [
            {**tool, **overrides.get(tool["name"], {})}
            for tool in definitions
            if tool["name"] in self._own_tools or owners.get(tool["name"])
        ]

    def call(
        self,
        name: str,
        arguments: Mapping[str, Any],
        cancel: CancelToken,
        session: Session | None = None,
    ) -> Envelope:
        """Call a tool; it never raises."""
        if not self.tools or not self._is_served(name):
            return _refusal("NOT_FOUND", f"There is no tool `{one_line(name, 60)}`", "", arguments)
        redactor = self._redactor
        if redactor is not None and name == "ReadFile" and not _are_uris(arguments):
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

    @property
    def _own_tools(self) -> frozenset[str]:
        return OWN_TOOLS | {_RUN_SCRIPT} if self._scripts else OWN_TOOLS

    def _is_served(self, name: str) -> bool:
        return name in self._own_tools or bool(self.toolset.owners.get(name))

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
        if name == _RUN_SCRIPT:  # an earlier request loaded its skill: the digest proves it
            session.call("Skill", {"name": arguments.get("skill")})
            digests = [record.digest for record in session.loaded.values()]
            if digests and arguments.get("digest") not in digests:
                return _refusal(
                    "PERMISSION_DENIED",
                    "`digest` is not that of the skill's present text",
                    "Call Skill first, read what it says, and give its `digest`",
                    arguments,
                )
            arguments = {key: arguments[key] for key in arguments if key != "digest"}
        reply = session.call(name, arguments, cancel=cancel, as_person=as_person)
        disallowed = [tool for skill in session.loaded.values() for tool in skill.disallowed]
        if not disallowed:
            return reply
        data = {**reply.data, "disallowed_tools": disallowed}
        return reply._replace(text=f"{reply.text}\n{_disallowed_note(disallowed)}", data=data)

    # --- prompts --------------------------------------------------------------------------

    @property
    def prompts(self) -> dict[str, Skill]:
        """The skills that a user may call, by the name of their prompt, sorted."""
        snapshot = self.library.snapshot()
        if self._prompts is None or self._prompts[0] is not snapshot:
            skills = {printable(skill.name): skill for skill in snapshot.skills if skill.for_people}
            self._prompts = (snapshot, dict(sorted(skills.items())))
        return self._prompts[1]

    def arguments_of(self, skill: Skill) -> list[tuple[str, str]]:
        """Return name and hint of each argument of a skill.

        These are the names in its `arguments`, otherwise one for its `argument-hint`.
        """
        hint = one_line(skill.argument_hint, 200)
        names = self._declared_arguments(skill)
        if names:
            return [(name, hint) for name in names]
        return [("args", hint)] if hint else []

    def _declared_arguments(self, skill: Skill) -> tuple[str, ...]:
        """Return the names in a skill's `arguments`, which are read once: no scan stores them."""
        cached = self._argument_names.get(skill.base_dir)
        if cached is not None and cached[0] is skill.head:
            return cached[1]
        try:
            names = argument_names(self.library.integrity.read(skill).fields.get("arguments"))
        except SatchelError:
            names = ()  # the error is reported when the prompt is requested
        self._argument_names[skill.base_dir] = (skill.head, names)
        return names

    def prompt(
        self, name: str, arguments: Mapping[str, str], session: Session | None = None
    ) -> Envelope:
        """Load a skill for a user, in their session if there is one."""
        no_prompt = _refusal("NOT_FOUND", "There is no such prompt", "Call prompts/list", arguments)
        skill = self.prompts.get(name)
        if skill is None:
            return no_prompt
        names = [argument for argument, _ in self.arguments_of(skill)]
        args = " ".join(_quote(arguments[key]) for key in names if arguments.get(key))
        if names == ["args"]:
            args = arguments.get("args", "")
        tool_arguments = {"name": skill.name, **({"args": args} if args else {})}
        if session is not None:
            reply = session.call("Skill", tool_arguments, as_person=True)
        else:
            reply = self._call_stateless("Skill", tool_arguments, as_person=True)
        if reply.error is not None and reply.error.code == "NOT_FOUND":
            return no_prompt  # it was removed since the list was made
        return reply if self._redactor is None else self._redactor.redact("Skill", reply)

    # --- changes --------------------------------------------------------------------------

    def fingerprints(self) -> tuple[str, str]:
        """Return the fingerprints of the tools and of the prompts, to detect changes."""
        digest = self.library.snapshot().digest
        tools = json.dumps(self.definitions(catalogue=False), sort_keys=True, default=str)
        return f"{tools} {digest if self.tools else ''}", digest


def _disallowed_note(disallowed: Sequence[str]) -> str:
    """Return the sentence that asks a model not to call the tools that a skill forbids."""
    names = ", ".join(f"`{one_line(tool, 100)}`" for tool in disallowed[:_MAX_FORBIDDEN_SHOWN])
    hidden_count = len(disallowed) - _MAX_FORBIDDEN_SHOWN
    others = f" and {hidden_count} more" if hidden_count > 0 else ""
    return (
        f"While you follow this skill, do not call: {names}{others} (its `disallowed-tools`). "
        "This server does not remember what was loaded, so it cannot refuse them."
    )


def _approve(request: ApprovalRequest) -> bool:
    """Approve a call; ask the client's user about changes, and about packages of a script."""
    ask = ask_user.get()
    if not (request.changes or (request.tool == _RUN_SCRIPT and request.reasons)):
        return True
    answer = ask(request) if ask is not None else NEEDS_PERSON
    return cast("bool", answer)  # or a reason


def _with_digest(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Add `digest` to the parameters of `RunScript`, for calls without a session."""
    description = "The `digest` of the skill in the text that Skill returned"
    parameter = {"type": "string", "description": description}
    properties = {**schema.get("properties", {}), "digest": parameter}
    required = [*schema.get("required", ()), "digest"]
    return {**schema, "properties": properties, "required": required}


def _are_uris(arguments: Mapping[str, Any]) -> bool:
    """Whether all paths among the arguments are URIs."""
    paths = [arguments[key] for key in _PATH_ARGUMENTS if isinstance(arguments.get(key), str)]
    return all(is_address(path) for path in paths)


def _quote(argument: str) -> str:
    """Put an argument in quotation marks if it has spaces or quotation marks."""
    if '"' in argument:
        return f"'{argument}'"
    has_spaces = any(character.isspace() for character in argument)
    return f'"{argument}"' if has_spaces else argument


def _refusal(code: Any, message: str, hint: str, arguments: Mapping[str, Any]) -> Envelope:
    return failure(code, message, hint, params=dict(arguments), time_ms=0)
