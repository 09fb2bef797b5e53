"""The tools of one agent: described for a provider, called by name, and never raising.

A host asks for `definitions` before each request, hands each call of the model to `call`, and
gives whoever works inside a skill the toolset `within` it.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Literal, get_args

from satchel._language import Message
from satchel.envelope import ErrorInfo, failure
from satchel.errors import InvalidInput, NotFound, SatchelError, SettingsError
from satchel.tools.base import Call
from satchel.tools.frame import one_line
from satchel.tools.loaded import LoadedSkills
from satchel.tools.parameters import check, echo, read_arguments
from satchel.tools.read_file import ReadFileTool
from satchel.tools.search_tool import SearchTool
from satchel.tools.skill_tool import SkillTool
from satchel.trace import span

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from satchel.catalogue import Catalogue
    from satchel.detect import Detector
    from satchel.envelope import Envelope
    from satchel.library import Library, Snapshot
    from satchel.runners.base import Cancel
    from satchel.settings import Settings
    from satchel.tools.base import Tool
    from satchel.tools.engine import LocalEngine
    from satchel.tools.read_file import Addresses
    from satchel.tools.script_tools import ScriptTools
    from satchel.trace import Trace

Provider = Literal["anthropic", "openai", "openai-responses", "gemini", "bedrock", "mcp"]
"""`openai` is the form of Chat Completions, which most other providers understand too; `gemini`
gives entries of `functionDeclarations`, `bedrock` those of Converse's `toolConfig.tools`."""
PROVIDERS: tuple[str, ...] = get_args(Provider)


def describe(tool: Tool, provider: str, name: str, catalogue: str = "") -> dict[str, Any]:
    """One tool for one provider.

    Args:
        tool: The tool.
        provider: Whose form.
        name: What it is called there.
        catalogue: What is told about the skills, after the tool's own description.

    Raises:
        InvalidInput: nobody knows that provider.
    """
    import copy

    text = f"{tool.description}\n\n{catalogue}" if catalogue else tool.description
    schema = copy.deepcopy(tool.parameters)
    if provider == "anthropic":
        return {"name": name, "description": text, "input_schema": schema}
    if provider == "openai":
        function = {"name": name, "description": text, "parameters": schema}
        return {"type": "function", "function": function}
    if provider == "openai-responses":
        # Strict is the default there and forbids parameters that may be left out.
        return {
            "type": "function",
            "name": name,
            "description": text,
            "parameters": schema,
            "strict": False,
        }
    if provider == "gemini":
        return {"name": name, "description": text, "parametersJsonSchema": schema}
    if provider == "bedrock":
        spec = {"name": name, "description": text, "inputSchema": {"json": schema}}
        return {"toolSpec": spec}
    if provider == "mcp":
        writes = bool(getattr(tool, "writes", False))
        hints = {
            "title": name,
            "readOnlyHint": not writes,
            "destructiveHint": writes,
            "idempotentHint": True,
            "openWorldHint": False,
            **getattr(tool, "hints", {}),  # a program of a tool skill promises nothing
        }
        return {"name": name, "description": text, "inputSchema": schema, "annotations": hints}
    known = ", ".join(f"`{item}`" for item in PROVIDERS)
    raise InvalidInput(f"There is no form for `{provider}`", f"Choose one of {known}")


def tell_offer(trace: Trace, catalogue: Catalogue) -> None:
    """Record which skills a model is told of in this turn, and how."""
    account = catalogue.account
    trace.record("listed", account.full)
    if account.shortened:
        trace.record("shortened", account.shortened)
    if account.named:
        trace.record("named", account.named)
    if account.unlisted:
        trace.record("unlisted", (), count=account.unlisted)
    trace.record(
        "offered",
        (),
        digest=catalogue.digest,
        budget=account.budget,
        used=account.used,
        total=account.total,
        full=list(account.full),
        shortened=list(account.shortened),
        named=list(account.named),
        unlisted=account.unlisted,
    )


def make_toolset(
    library: Library,
    settings: Settings,
    *,
    trace: Trace | None = None,
    detector: Detector | None = None,
    engine: LocalEngine | None = None,
    addresses: Addresses | None = None,
) -> Toolset:
    """The tools `Skill`, `ReadFile` and `SkillSearch` over a library, and those of its tool skills.

    Args:
        library: Which skills there are.
        settings: The project's folder, limits and habits.
        trace: Where events go; the library's own when None.
        detector: What searches; the one for these settings when None.
        engine: What runs the programs of tool skills; without it their tools are not offered.
        addresses: Resolves `skill://` addresses for `ReadFile`.
    """
    if detector is None:
        from satchel.detect.pipeline import default_detector

        detector = default_detector(settings)
    else:
        from satchel.detect.pipeline import as_pipeline

        detector = as_pipeline(detector)
    trace = trace or library.trace
    where = trace

    def packaged() -> Sequence[Tool]:
        from satchel.tools.packaged import packaged_tools

        return packaged_tools(settings, where)

    loaded = LoadedSkills(library.seals)
    tools: tuple[Tool, ...] = (
        SkillTool(library, settings, loaded, trace),
        ReadFileTool(library, settings, loaded, addresses),
        SearchTool(library, settings, detector, trace),
    )
    scripts: ScriptTools | None = None
    if engine is not None:
        from satchel.tools.script_tools import ScriptTools

        scripts = ScriptTools(library, settings, engine, trace)
    more = packaged if settings.packaged else None
    return Toolset(tools, library, settings, trace, more=more, scripts=scripts)


class Toolset:
    """Some tools under one roof."""

    def __init__(
        self,
        tools: Sequence[Tool],
        library: Library,
        settings: Settings,
        trace: Trace | None = None,
        *,
        prefix: str = "",
        stack: tuple[str, ...] = (),
        more: Callable[[], Sequence[Tool]] | None = None,
        scripts: ScriptTools | None = None,
    ) -> None:
        """Gather tools.

        Args:
            tools: The tools, in the order in which they are described.
            library: Whose skills the descriptions list.
            settings: Budget and form of that list.
            trace: Where events go; the library's own when None.
            prefix: Put before every name.
            stack: Names of the skills within which the tools are used, outermost first.
            more: Further tools, asked for when a name is not known or all of them are wanted: who
                only loads a skill does not wait for installed packages. None of them replaces one
                of `tools`.
            scripts: Where the tools of tool skills come from; they come and go with the library,
                and none of them replaces one of the others.
        """
        self._more = more
        self._scripts = scripts
        self._seen: tuple[dict[str, Tool], dict[str, Tool]] | None = None
        self._tools = {prefix + tool.name: tool for tool in tools}
        self._library = library
        self._settings = settings
        self._trace = trace or library.trace
        self._prefix = prefix
        self._stack = stack
        self._told: tuple[Snapshot, Catalogue] | None = None
        self._described: dict[tuple[str, bool], list[dict[str, Any]]] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """What can be called now."""
        return tuple(self._now(refresh=self._settings.refresh_on_call))

    @property
    def owners(self) -> dict[str, str]:
        """Each tool that can be called now, and whose skill it is; empty for Satchel's own."""
        tools = self._now(refresh=self._settings.refresh_on_call)
        return {name: str(getattr(tool, "owner", "")) for name, tool in tools.items()}

    def find(self, name: str) -> Tool | None:
        """The tool of that name; None when there is none now."""
        known = self._tools.get(name) or self._all().get(name)
        return known or self._now(refresh=self._settings.refresh_on_call).get(name)

    def call(
        self,
        name: str,
        arguments: Mapping[str, Any] | str | None = None,
        *,
        stack: Sequence[str] | None = None,
        as_person: bool = False,
        cancel: Cancel | None = None,
        key: str = "",
        loaded: Sequence[str] | None = None,
    ) -> Envelope:
        """Call a tool. Whatever is wrong comes back as an envelope, never as an exception.

        Args:
            name: Which tool.
            arguments: Its arguments, as a table or as the JSON text that some providers send.
            stack: Names of the skills within which the call is made; `within` sets it for good.
            as_person: A person asks: what only people may load is loaded.
            cancel: How the call is taken back while a program runs.
            key: What a program is told to know this call by, when it may be made again.
            loaded: The folders of the skills that the conversation loaded; those that these tools
                loaded when None.
        """
        started = time.perf_counter()
        given: dict[str, Any] = {}
        asked = ""
        with span("satchel.tool", **{"satchel.tool.name": str(name)}) as note:
            try:
                table = read_arguments(arguments)
                given = echo(table)
                tool = self._tool(name)
                asked = str(getattr(tool, "owner", ""))
                # A packaged tool has its own words, in the model's language, for what is wrong.
                own: Any = getattr(tool, "check", None)
                checked = own(table) if own else check(table, tool.parameters, tool.aliases)
                if tool.about_skills:
                    asked = str(checked.get("name", ""))
                within = self._stack if stack is None else tuple(stack)
                reply = tool.run(
                    Call(checked, given, started, within, as_person, cancel, key, loaded)
                )
            except SettingsError as exc:
                # Not the caller's parameters are wrong but a file of the user's.
                reply = _failure("EXECUTION_ERROR", exc.message, exc.hint, given, started)
            except SatchelError as exc:
                reply = _failure(exc.code, exc.message, exc.hint, given, started)
            except Exception as exc:  # noqa: BLE001 - a tool must answer, whatever happens
                message = Message(
                    "{error} in the tool `{name}`",
                    error=type(exc).__name__,
                    name=one_line(str(name), 60),
                )
                hint = Message(
                    "This is a fault of the tool, not of the call: do not repeat it",
                    people="This is a bug in Satchel: please report it with the command you ran",
                )
                reply = _failure("INTERNAL_ERROR", message, hint, given, started)
                error = ErrorInfo("INTERNAL_ERROR", message, hint, bug=True)
                reply = reply._replace(error=error)
            note("satchel.status", reply.status)
            if reply.error is not None:
                note("satchel.error", reply.error.code)
                fix = reply.data.get("fix")  # what a person has to do, where that is known
                self._trace.record(
                    "failed",
                    (asked,) if asked else (),
                    tool=str(name),
                    code=reply.error.code,
                    reason=reply.error.message,
                    **({"fix": fix} if fix else {}),
                )
        return reply

    def _tool(self, name: str) -> Tool:
        # What is always there is found without a look at packages or at the disk.
        tool = self._tools.get(str(name)) or self._all().get(str(name))
        if tool is not None:
            return tool
        tools = self._now(refresh=self._settings.refresh_on_call)
        tool = tools.get(str(name))
        if tool is None:
            refusal = self._scripts and self._scripts.refusal(str(name).removeprefix(self._prefix))
            if refusal:
                raise refusal
            known = [f"`{item}`" for item in tools] or "none"
            shown = one_line(str(name), 60)
            raise NotFound(
                Message("There is no tool `{name}`", name=shown),
                Message("The tools are {names}", names=known),
            )
        return tool

    def _now(self, *, refresh: bool) -> dict[str, Tool]:
        """Every tool by the name it has here, those of tool skills too; the same while none change.

        Args:
            refresh: Whether to look at the disk.
        """
        always = self._all()
        if self._scripts is None:
            return always
        scripts = self._scripts.current(refresh=refresh)
        if self._seen is None or self._seen[0] is not scripts:
            found = dict(always)
            for name, tool in scripts.items():
                shown = self._prefix + name
                if found.setdefault(shown, tool) is not tool:
                    owner = str(getattr(tool, "owner", ""))
                    self._trace.record("shadowed", (owner,), tool=shown, by="a tool of the host")
            self._seen = (scripts, found)
            self._described.clear()
        return self._seen[1]

    def _all(self) -> dict[str, Tool]:
        """Every tool by its name, those of packages too."""
        if self._more is not None:
            more, self._more = self._more, None
            for tool in more():
                self._tools.setdefault(self._prefix + tool.name, tool)
        return self._tools

    def definitions(
        self, provider: str = "anthropic", *, catalogue: bool = True
    ) -> list[dict[str, Any]]:
        """The tools as a provider wants them described; for the next request, ask again.

        While the library does not change the answer does not change by a byte. Where there are no
        skills to load, the tools that are about skills are left out.

        Args:
            provider: `anthropic`, `openai` (Chat Completions), `openai-responses` or `mcp`.
            catalogue: Whether the description of `Skill` lists the skills. Leave it out where the
                system prompt has the list.

        Raises:
            InvalidInput: nobody knows that provider.
        """
        fresh = self._settings.refresh_on_call
        tools = self._now(refresh=fresh)
        looked = self._scripts is not None  # they are looked for together with all skills
        look = self._library.refresh() if fresh and not looked else self._library.snapshot()
        told = self._tell(look)
        any_skill = told.account.total > len(told.account.withheld)
        if catalogue and any_skill:
            tell_offer(self._trace, told)
        key = (provider, catalogue)
        if key not in self._described:
            self._described[key] = [
                describe(
                    tool,
                    provider,
                    name,
                    told.text if catalogue and tool.name == SkillTool.name else "",
                )
                for name, tool in tools.items()
                if not tool.about_skills or any_skill
            ]
        return list(self._described[key])

    def filtered(self, names: Iterable[str]) -> Toolset:
        """The same with only these tools, in their own order."""
        wanted = set(names)
        tools = [tool for name, tool in self._all().items() if name in wanted]
        scripts = self._scripts
        if scripts is not None:
            scripts = scripts.limited(name.removeprefix(self._prefix) for name in wanted)
        return self._with(tools, self._prefix, self._stack, scripts)

    def with_prefix(self, prefix: str) -> Toolset:
        """The same with `prefix` before each name, for hosts that have tools of these names."""
        prefix += self._prefix
        return self._with(list(self._all().values()), prefix, self._stack, self._scripts)

    def within(self, *skills: str) -> Toolset:
        """The same for whoever works inside these skills, so that cycles are seen.

        A model cannot say within which skill it works, or not be believed; the host knows.
        """
        stack = (*self._stack, *skills)
        return self._with(list(self._all().values()), self._prefix, stack, self._scripts)

    def _with(
        self,
        tools: Sequence[Tool],
        prefix: str,
        stack: tuple[str, ...],
        scripts: ScriptTools | None,
    ) -> Toolset:
        library, settings = self._library, self._settings
        return Toolset(
            tools, library, settings, self._trace, prefix=prefix, stack=stack, scripts=scripts
        )

    def _tell(self, look: Snapshot) -> Catalogue:
        """The catalogue of a snapshot, made once."""
        if self._told is None or self._told[0] is not look:
            from satchel.catalogue import build_catalogue

            given = self._settings
            told = build_catalogue(
                look.skills,
                budget=given.budget,
                form=given.form,
                pin=given.pin,
                withheld=look.withheld,
                get=look.get,
            )
            self._told = (look, told)
            self._described.clear()
        return self._told[1]


def _failure(code: Any, message: str, hint: str, given: dict[str, Any], started: float) -> Envelope:
    elapsed = round((time.perf_counter() - started) * 1000)
    return failure(code, message, hint, params=given, time_ms=elapsed)
