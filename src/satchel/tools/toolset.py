"""The tools of one agent: finds them by name, describes them for a provider, runs calls.

`Session` decides which calls reach it; permissions are not checked here. Calls never raise.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any, Literal, NoReturn, cast, get_args
from weakref import WeakKeyDictionary

from satchel.catalogue import build_catalogue
from satchel.envelope import ErrorInfo, failure
from satchel.errors import (
    BuildFailed,
    InvalidInput,
    NotFound,
    Refused,
    SatchelError,
    SettingsError,
    SkillBroken,
)
from satchel.i18n import Message
from satchel.runners.base import BuildStopped
from satchel.tools.base import ResolvedCall, ToolCall
from satchel.tools.framing import one_line
from satchel.tools.lookup import (
    blocked_skill,
    describe_problem,
    for_person,
    skill_without_setup,
    untrusted_skill,
    unverified_skill,
)
from satchel.tools.read_file import ReadFileTool
from satchel.tools.schema import echo, read_arguments
from satchel.tools.script_tool import RunScriptTool
from satchel.tools.selection import SearchTool
from satchel.tools.skill_tool import SkillTool
from satchel.trace import span

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from satchel.catalogue import Budget, Catalogue
    from satchel.detect.pipeline import SelectionPipeline
    from satchel.envelope import Envelope, ErrorCode
    from satchel.library import Library, Snapshot
    from satchel.library.snapshot import ToolSnapshot
    from satchel.runners.base import Cancel
    from satchel.settings import Form, Settings
    from satchel.tools.base import ReviewChanges, Tool
    from satchel.tools.program_runner import ProgramRunner
    from satchel.trace import Trace


Provider = Literal["anthropic", "openai", "openai-responses", "gemini", "bedrock", "mcp"]
"""`openai` is Chat Completions, which most other providers accept; `gemini` gives entries of
`functionDeclarations`, `bedrock` those of Converse's `toolConfig.tools`."""
PROVIDERS: tuple[str, ...] = get_args(Provider)
_FIRST_BUILD_TIMEOUT_S = 30.0
_MAX_OTHER_CATALOGUES = 16
"""Catalogues of other budgets and forms that are cached for a snapshot."""
_catalogues: WeakKeyDictionary[Snapshot, dict[tuple[Any, ...], Catalogue]] = WeakKeyDictionary()
"""The catalogues of each snapshot, by budget, form and pinned skills."""


class ProgramTools:
    """The tools of tool skills, which change with the library."""

    def __init__(
        self, library: Library, settings: Settings, runner: ProgramRunner, trace: Trace
    ) -> None:
        self._library = library
        self._settings = settings
        self._runner = runner
        self._trace = trace
        self._cached_tools: tuple[ToolSnapshot, dict[str, Tool]] | None = None
        """The tools of the snapshot for which they were made."""

    def offered_tools(self) -> dict[str, Tool]:
        """The offered tools by name; the same table while nothing changed."""
        snapshot = self._library.tools()
        if self._cached_tools is None or self._cached_tools[0] is not snapshot:
            if self._try_builds(snapshot):
                snapshot = self._library.tools(refresh=True)  # without those that failed
            self._cached_tools = (snapshot, self._make_tools(snapshot))
        return self._cached_tools[1]

    def _try_builds(self, snapshot: ToolSnapshot) -> bool:
        """Build the Go programs that were never built; return whether one failed.

        One that takes long, or that nothing is known about otherwise, is offered: its first call
        builds it.
        """
        has_failed = False
        for source in snapshot.skills:
            if source.manifest.runtime != "go":
                continue
            from satchel.library.readiness import build_result

            skill, integrity = source.skill, self._library.integrity
            try:
                digest = integrity.check(skill).tree.digest
                if digest in self._runner.tried:
                    continue
                if build_result(source.manifest, digest, self._settings.paths.cache) is None:
                    self._runner.tried.add(digest)
                    self._runner.prepare(
                        skill.base_dir,
                        source.manifest,
                        digest,
                        seconds=_FIRST_BUILD_TIMEOUT_S,
                        own=integrity.is_own(skill),
                    )
            except BuildFailed:
                has_failed = True
            except (SatchelError, BuildStopped):
                continue
        return has_failed

    def _make_tools(self, snapshot: ToolSnapshot) -> dict[str, Tool]:
        if not snapshot.tools:
            return {}
        from satchel.tools.program_tool import ProgramTool
        from satchel.tools.secrets import Secrets

        secrets = Secrets(self._settings)
        return {
            name: ProgramTool(
                source,
                tool,
                library=self._library,
                settings=self._settings,
                runner=self._runner,
                secrets=secrets,
                trace=self._trace,
            )
            for name, (source, tool) in snapshot.tools.items()
        }

    def find_refusal(self, name: str) -> SatchelError | None:
        """Find why a known tool is not offered; None for an unknown one."""
        snapshot = self._library.tools()
        source = snapshot.find_hidden(name)
        if source is None:
            return _find_broken_skill(snapshot, name)
        skill = source.skill
        exc = snapshot.refused.get(skill.ref)
        if exc is not None:
            return Refused(one_line(exc.message, 600), for_person(exc.hint))
        if skill.state == "untrusted":
            return Refused(*untrusted_skill(self._library, skill))
        if skill.state == "blocked":
            return Refused(*blocked_skill(skill))
        if skill.state == "unverified":
            return unverified_skill(self._library, skill)
        if skill.state == "needs setup":
            return Refused(*skill_without_setup(skill))
        if skill.state == "shadowed":
            return NotFound(
                Message("The skill at `{ref}` is shadowed", ref=one_line(skill.ref, 200)),
                Message("Use the tools of `{name}`", name=one_line(skill.shadowed_by, 200)),
            )
        return None


def _find_broken_skill(snapshot: ToolSnapshot, tool: str) -> SatchelError | None:
    """Find the error of a broken skill.yaml in the folder whose tools would have this prefix."""
    broken_skills = (
        (os.path.basename(os.path.dirname(problem.path)).replace("-", "_"), problem)
        for problem in snapshot.problems
        if problem.severity == "error"
    )
    candidates = [
        (folder, problem)
        for folder, problem in broken_skills
        if tool == folder or tool.startswith(f"{folder}_")
    ]
    if not candidates:
        return None
    folder, problem = max(candidates, key=lambda pair: len(pair[0]))
    fault, fix = describe_problem(problem)
    message = Message(
        "The skill `{name}` cannot be read: {problem}", name=one_line(folder, 64), problem=fault
    )
    return SkillBroken(message, for_person(fix))


def revision_of(library: Library, tool: str) -> str:
    """Return the revision of a tool's skill, to which an approval is bound; empty for others."""
    entry = library.tools().tools.get(tool)
    if entry is None:
        return ""
    source = entry[0]
    try:
        verified = library.integrity.check(source.skill)
    except SatchelError:
        return ""  # the call itself reports the error
    return f"{source.digest}/{verified.tree.digest}"


def make_definition(tool: Tool, provider: str, name: str, catalogue: str = "") -> dict[str, Any]:
    """Make the definition of one tool for one provider.

    Raises:
        InvalidInput: there is no such provider.
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
        # Strict is the default there and forbids optional parameters.
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
    _check_provider(provider)
    hints = {
        "title": name,
        "readOnlyHint": not tool.writes,
        "destructiveHint": tool.writes,
        "idempotentHint": True,
        "openWorldHint": False,
        **tool.hints,
    }
    return {"name": name, "description": text, "inputSchema": schema, "annotations": hints}


def record_offer(trace: Trace, catalogue: Catalogue) -> None:
    """Record which skills are listed for a model in this turn, and how."""
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


def cached_catalogue(
    snapshot: Snapshot,
    settings: Settings,
    budget: int | Budget | None = None,
    form: Form | None = None,
) -> Catalogue:
    """Return the catalogue of a snapshot, built once for all sessions."""
    default_key = (settings.budget, settings.form, settings.pin)
    key = (settings.budget if budget is None else budget, form or settings.form, settings.pin)
    cached = _catalogues.setdefault(snapshot, {})
    # Others are put in again, so that those used last are at the end.
    catalogue = cached.get(key) if key == default_key else cached.pop(key, None)
    if catalogue is None:
        catalogue = build_catalogue(
            snapshot.skills,
            budget=key[0],
            form=key[1],
            pin=settings.pin,
            withheld=snapshot.withheld,
            get=snapshot.get,
        )
    catalogue = cached.setdefault(key, catalogue)
    other_keys = [other for other in list(cached) if other != default_key]
    for unused_key in other_keys[:-_MAX_OTHER_CATALOGUES]:
        cached.pop(unused_key, None)
    return catalogue


def _check_provider(provider: str) -> None:
    if provider in PROVIDERS:
        return
    from difflib import get_close_matches

    similar = get_close_matches(str(provider), PROVIDERS, 1)
    names = ", ".join(f"`{name}`" for name in PROVIDERS)
    hint = f"Did you mean `{similar[0]}`? " if similar else ""
    raise InvalidInput(f"There is no provider `{provider}`", f"{hint}Choose one of {names}")


def failed_call(exc: SatchelError, arguments: Any) -> Envelope:
    """Make the envelope for a call that could not be resolved."""
    try:
        params: dict[str, Any] = echo(read_arguments(arguments))
    except SatchelError:
        params = {}
    return failure(cast("ErrorCode", exc.code), exc.message, exc.hint, params=params, time_ms=0)


def make_toolset(
    library: Library,
    settings: Settings,
    *,
    trace: Trace | None = None,
    detector: Callable[[], SelectionPipeline],
    runner: ProgramRunner | None = None,
    resolve_address: Callable[[str], str] | None = None,
    run_scripts: bool = True,
) -> Toolset:
    """Build the toolset: `Skill`, `ReadFile`, `SkillSearch`, and tools of skills and packages.

    With a runner and `run_scripts` there is `RunScript`, too.
    """
    trace = trace or library.trace
    recorder = trace

    def load_packaged_tools() -> Sequence[Tool]:
        from satchel.tools.packaged import packaged_tools

        return packaged_tools(settings, recorder)

    run_script: RunScriptTool | None = None
    if runner is not None and run_scripts:
        run_script = RunScriptTool(library, settings, runner, trace)
    list_scripts = run_script.list_scripts if run_script is not None else None
    tools: list[Tool] = [
        SkillTool(library, settings, trace, list_scripts=list_scripts),
        ReadFileTool(library, settings, resolve_address),
        SearchTool(library, detector, trace),
        *((run_script,) if run_script is not None else ()),
    ]
    programs: ProgramTools | None = None
    if runner is not None:
        programs = ProgramTools(library, settings, runner, trace)
    load_extra_tools = load_packaged_tools if settings.packaged else None
    return Toolset(
        tools, library, settings, trace, load_extra_tools=load_extra_tools, programs=programs
    )


class Toolset:
    """A set of tools that can be called by name."""

    def __init__(
        self,
        tools: Sequence[Tool],
        library: Library,
        settings: Settings,
        trace: Trace | None = None,
        *,
        load_extra_tools: Callable[[], Sequence[Tool]] | None = None,
        programs: ProgramTools | None = None,
    ) -> None:
        """Set up.

        Args:
            tools: The tools, in the order in which they are described.
            library: Skills that the descriptions list.
            settings: Budget and form of that list.
            trace: Where events are recorded; the library's own when None.
            load_extra_tools: Returns further tools, called at the first unknown name or listing, so
                that loading a skill does not wait for installed packages. They replace none of
                `tools`.
            programs: The tools of tool skills; they replace none of the others.
        """
        self._load_extra_tools = load_extra_tools
        self._programs = programs
        self._change_count = 0
        self._cached_tools: tuple[dict[str, Tool], dict[str, Tool]] | None = None
        """The tools of tool skills, and all tools with these."""
        self._tools = {tool.name: tool for tool in tools}
        self._library = library
        self._settings = settings
        self._trace = trace or library.trace
        self._cached_definitions: tuple[object, list[dict[str, Any]]] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the tools that can be called."""
        return tuple(self._current_tools())

    @property
    def owners(self) -> dict[str, str]:
        """The skill that provides each tool; empty for Satchel's own."""
        return {name: tool.owner for name, tool in self._current_tools().items()}

    def find(self, name: str) -> Tool | None:
        """Find the tool of that name; None when there is none."""
        # The built-in tools are found without searching packages or the disk.
        return (
            self._tools.get(name)
            or self._static_tools().get(name)
            or self._current_tools().get(name)
        )

    def version(self, snapshot: Snapshot) -> object:
        """A value that is equal while the offered tools stay the same."""
        self._current_tools()
        static_tools = self._static_tools().values()
        return self._change_count, tuple(tool.is_offered(snapshot) for tool in static_tools)

    def offered(self, snapshot: Snapshot) -> list[str]:
        """The names in `definitions`."""
        tools = self._current_tools()
        return [name for name, tool in tools.items() if tool.is_offered(snapshot)]

    def call(
        self,
        name: str,
        arguments: Mapping[str, Any] | str | None = None,
        *,
        as_person: bool = False,
        cancel: Cancel | None = None,
    ) -> Envelope:
        """Call a tool without permission checks, which `Session` makes."""
        try:
            table = read_arguments(arguments)
        except SatchelError as exc:
            return failed_call(exc, arguments)
        snapshot = self._library.snapshot()
        tool = self.find(str(name))
        skill = tool.find_named(table, snapshot) if isinstance(tool, SkillTool) else None
        resolved = ResolvedCall(str(name), table, tool, snapshot, skill)
        return self.run(resolved, as_person=as_person, cancel=cancel)

    def run(  # noqa: PLR0913 - what the session knows about a call
        self,
        resolved: ResolvedCall,
        *,
        act: Callable[[ToolCall], Envelope] | None = None,
        stack: Sequence[str] = (),
        as_person: bool = False,
        cancel: Cancel | None = None,
        key: str = "",
        loaded: Sequence[str] = (),
        loaded_digests: Mapping[str, str] | None = None,
        call_id: str = "",
        review: ReviewChanges | None = None,
    ) -> Envelope:
        """Run a resolved call. Errors are returned as an envelope; never raises.

        Args:
            resolved: The call.
            act: Replaces the tool's own `run`.
            stack: Names of the skills within which the call is made, outermost first.
            as_person: The user calls, not the model: skills for people can be loaded.
            cancel: Ends the call while a program runs.
            key: An idempotency key that is passed to the program.
            loaded: Folders of the skills loaded in the session.
            loaded_digests: Their names, with the digest of the text that was loaded.
            call_id: The provider's id of the call, for the trace.
            review: Decides about the changes that the tool proposes.
        """
        name, started = resolved.name, resolved.started
        params: dict[str, Any] = {}
        skill_name = ""
        display_name = one_line(str(name), 60)
        span_attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": display_name,
            "gen_ai.tool.type": "function",
            **({"gen_ai.tool.call.id": call_id} if call_id else {}),
        }
        with span(
            f"execute_tool {display_name}", **{"satchel.tool.name": name}, **span_attributes
        ) as set_attribute:
            try:
                params = echo(resolved.received)
                tool = resolved.tool or self._refuse_unknown(name, resolved.snapshot)
                skill_name = tool.owner
                arguments = tool.check(resolved.received)
                if tool.about_skills:
                    skill_name = str(arguments.get("name") or arguments.get("skill") or "")
                reply = (act or tool.run)(
                    ToolCall(
                        resolved=resolved,
                        arguments=arguments,
                        received=params,
                        started=started,
                        stack=tuple(stack),
                        as_person=as_person,
                        cancel=cancel,
                        key=key,
                        loaded=loaded,
                        loaded_digests=loaded_digests or {},
                        review=review,
                    )
                )
            except SettingsError as exc:
                # A file of the user is wrong, not the caller's arguments.
                reply = _failure("EXECUTION_ERROR", exc.message, exc.hint, params, started)
            except SatchelError as exc:
                reply = _failure(exc.code, exc.message, exc.hint, params, started)
            except Exception as exc:  # noqa: BLE001 - a call never raises
                message = Message(
                    "{error} in the tool `{name}`",
                    error=type(exc).__name__,
                    name=one_line(str(name), 60),
                )
                hint = Message(
                    "This is a fault of the tool, not of the call: do not repeat it",
                    people="This is a bug in Satchel: please report it with the command you ran",
                )
                reply = _failure("INTERNAL_ERROR", message, hint, params, started)
                error = ErrorInfo("INTERNAL_ERROR", message, hint, bug=True)
                reply = reply._replace(error=error)
            set_attribute("satchel.status", reply.status)
            if reply.error is not None:
                set_attribute("satchel.error", reply.error.code)
                set_attribute("error.type", reply.error.code)
                fix = reply.data.get("fix")
                self._trace.record(
                    "failed",
                    (skill_name,) if skill_name else (),
                    tool=str(name),
                    code=reply.error.code,
                    reason=reply.error.message,
                    **({"fix": fix} if fix else {}),
                )
        return reply

    def _refuse_unknown(self, name: str, snapshot: Snapshot) -> NoReturn:
        refusal = self._programs.find_refusal(name) if self._programs is not None else None
        if refusal is not None:
            raise refusal
        names = [f"`{offered_name}`" for offered_name in self.offered(snapshot)] or "none"
        raise NotFound(
            Message("There is no tool `{name}`", name=one_line(name, 60)),
            Message("The tools are {names}", names=names),
        )

    def _current_tools(self) -> dict[str, Tool]:
        """Every tool by name; the same table while none change."""
        static_tools = self._static_tools()
        if self._programs is None:
            return static_tools
        program_tools = self._programs.offered_tools()
        if self._cached_tools is None or self._cached_tools[0] is not program_tools:
            tools = dict(static_tools)
            for name, tool in program_tools.items():
                if tools.setdefault(name, tool) is not tool:
                    self._trace.record(
                        "shadowed", (tool.owner,), tool=name, by="a tool of the host"
                    )
            self._cached_tools = (program_tools, tools)
            self._change_count += 1
        return self._cached_tools[1]

    def _static_tools(self) -> dict[str, Tool]:
        """Every tool by name except those of tool skills."""
        if self._load_extra_tools is not None:
            load_extra_tools, self._load_extra_tools = self._load_extra_tools, None
            for tool in load_extra_tools():
                self._tools.setdefault(tool.name, tool)
        return self._tools

    def definitions(
        self,
        provider: str = "anthropic",
        *,
        catalogue: bool = False,
        snapshot: Snapshot | None = None,
    ) -> list[dict[str, Any]]:
        """The tools in the format of a provider.

        Byte-identical while the library does not change. Without skills to load, the tools about
        skills are left out.

        Args:
            provider: One of `PROVIDERS`.
            catalogue: Whether the description of `Skill` lists the skills: for hosts without a
                system prompt.
            snapshot: The snapshot to describe; the current one when None.

        Raises:
            InvalidInput: there is no such provider.
        """
        _check_provider(provider)
        snapshot = snapshot or self._library.snapshot()
        text = ""
        if catalogue and snapshot.for_model:
            listing = cached_catalogue(snapshot, self._settings)
            record_offer(self._trace, listing)
            text = listing.text
        key = (provider, text, self.version(snapshot))
        if self._cached_definitions is None or self._cached_definitions[0] != key:
            tools = self._current_tools()
            definitions = [
                make_definition(tools[name], provider, name, text if name == SkillTool.name else "")
                for name in self.offered(snapshot)
            ]
            self._cached_definitions = (key, definitions)
        return list(self._cached_definitions[1])


def _failure(
    code: Any, message: str, hint: str, params: dict[str, Any], started: float
) -> Envelope:
    elapsed = round((time.perf_counter() - started) * 1000)
    return failure(code, message, hint, params=params, time_ms=elapsed)
