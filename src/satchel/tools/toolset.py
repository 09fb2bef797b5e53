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
from satchel.tools.base import ResolvedCall, ToolCall
from satchel.tools.framing import one_line
from satchel.tools.lookup import (
    blocked_skill,
    describe_problem,
    for_person,
    untrusted_skill,
    unverified_skill,
)
from satchel.tools.read_file import ReadFileTool
from satchel.tools.schema import echo, read_arguments
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
    from satchel.tools.base import Tool
    from satchel.tools.program_runner import ProgramRunner
    from satchel.trace import Trace


_FIRST_BUILD_S = 30.0


class ProgramTools:
    """The tools of tool skills, which change with the library."""

    def __init__(
        self, library: Library, settings: Settings, runner: ProgramRunner, trace: Trace
    ) -> None:
        self._library = library
        self._settings = settings
        self._runner = runner
        self._trace = trace
        self._made: tuple[ToolSnapshot, dict[str, Tool]] | None = None

    def current(self) -> dict[str, Tool]:
        """The offered tools by name; the same table while nothing changed."""
        snapshot = self._library.tools()
        if self._made is None or self._made[0] is not snapshot:
            if self._try_builds(snapshot):
                snapshot = self._library.tools(refresh=True)  # without those that failed
            self._made = (snapshot, self._make(snapshot))
        return self._made[1]

    def _try_builds(self, snapshot: ToolSnapshot) -> bool:
        """Build the Go programs that were never built; whether one failed.

        One that takes long, or that nothing is known about otherwise, is offered: its first call
        builds it.
        """
        failed = False
        for source in snapshot.skills:
            if source.manifest.runtime != "go":
                continue
            from satchel.library.readiness import build_result
            from satchel.runners.base import BuildStopped

            skill, integrity = source.skill, self._library.integrity
            try:
                digest = integrity.check(skill).tree.digest
                if build_result(source.manifest, digest, self._settings.paths.cache) is None:
                    self._runner.prepare(
                        skill.base_dir,
                        source.manifest,
                        digest,
                        seconds=_FIRST_BUILD_S,
                        own=integrity.is_own(skill),
                    )
            except BuildFailed:
                failed = True
            except (SatchelError, BuildStopped):
                continue
        return failed

    def _make(self, snapshot: ToolSnapshot) -> dict[str, Tool]:
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

    def refusal(self, name: str) -> SatchelError | None:
        """Why a known tool is not offered; None for an unknown one."""
        snapshot = self._library.tools()
        source = snapshot.withheld(name)
        if source is None:
            return self._broken(snapshot, name)
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
        if skill.state == "shadowed":
            return NotFound(
                Message("The skill at `{ref}` is shadowed", ref=one_line(skill.ref, 200)),
                Message("Use the tools of `{name}`", name=one_line(skill.shadowed_by, 200)),
            )
        return None

    def _broken(self, snapshot: ToolSnapshot, name: str) -> SatchelError | None:
        """The error of a broken skill.yaml in the folder whose tools would have this prefix."""
        for problem in snapshot.problems:
            folder = os.path.basename(os.path.dirname(problem.path)).replace("-", "_")
            if problem.severity == "error" and (name == folder or name.startswith(f"{folder}_")):
                wrong, fix = describe_problem(problem)
                name = one_line(folder, 64)
                why = Message(
                    "The skill `{name}` cannot be read: {problem}", name=name, problem=wrong
                )
                return SkillBroken(why, for_person(fix))
        return None


def revision_of(library: Library, tool: str) -> str:
    """The revision of a tool's skill, to which an approval is bound; empty for other tools."""
    found = library.tools().tools.get(tool)
    if found is None:
        return ""
    source = found[0]
    try:
        verified = library.integrity.check(source.skill)
    except SatchelError:
        return ""  # the call itself reports the error
    return f"{source.digest}/{verified.tree.digest}"


Provider = Literal["anthropic", "openai", "openai-responses", "gemini", "bedrock", "mcp"]
"""`openai` is Chat Completions, which most other providers accept; `gemini` gives entries of
`functionDeclarations`, `bedrock` those of Converse's `toolConfig.tools`."""
PROVIDERS: tuple[str, ...] = get_args(Provider)
_MAX_OTHER_CATALOGUES = 16
"""Catalogues of other budgets and forms that are cached for a snapshot."""


def describe(tool: Tool, provider: str, name: str, catalogue: str = "") -> dict[str, Any]:
    """Describe one tool for one provider.

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


_catalogues: WeakKeyDictionary[Snapshot, dict[tuple[Any, ...], Catalogue]] = WeakKeyDictionary()


def cached_catalogue(
    snapshot: Snapshot,
    settings: Settings,
    budget: int | Budget | None = None,
    form: Form | None = None,
) -> Catalogue:
    """The catalogue of a snapshot, built once for all sessions."""
    usual = (settings.budget, settings.form, settings.pin)
    key = (settings.budget if budget is None else budget, form or settings.form, settings.pin)
    made = _catalogues.setdefault(snapshot, {})
    found = made.get(key) if key == usual else made.pop(key, None)
    if found is None:
        found = build_catalogue(
            snapshot.skills,
            budget=key[0],
            form=key[1],
            pin=settings.pin,
            withheld=snapshot.withheld,
            get=snapshot.get,
        )
    found = made.setdefault(key, found)
    for old in [one for one in list(made) if one != usual][:-_MAX_OTHER_CATALOGUES]:
        made.pop(old, None)
    return found


def _check_provider(provider: str) -> None:
    if provider in PROVIDERS:
        return
    from difflib import get_close_matches

    near = get_close_matches(str(provider), PROVIDERS, 1)
    known = ", ".join(f"`{item}`" for item in PROVIDERS)
    hint = f"Did you mean `{near[0]}`? " if near else ""
    raise InvalidInput(f"There is no form for `{provider}`", f"{hint}Choose one of {known}")


def failed_call(exc: SatchelError, arguments: Any) -> Envelope:
    """The envelope for a call that could not be resolved."""
    try:
        given: dict[str, Any] = echo(read_arguments(arguments))
    except SatchelError:
        given = {}
    return failure(cast("ErrorCode", exc.code), exc.message, exc.hint, params=given, time_ms=0)


def make_toolset(
    library: Library,
    settings: Settings,
    *,
    trace: Trace | None = None,
    detector: Callable[[], SelectionPipeline],
    runner: ProgramRunner | None = None,
    path_of: Callable[[str], str] | None = None,
) -> Toolset:
    """Build the toolset: `Skill`, `ReadFile`, `SkillSearch`, and tools of skills and packages."""
    trace = trace or library.trace
    where = trace

    def packaged() -> Sequence[Tool]:
        from satchel.tools.packaged import packaged_tools

        return packaged_tools(settings, where)

    tools: tuple[Tool, ...] = (
        SkillTool(library, settings, trace),
        ReadFileTool(library, settings, path_of),
        SearchTool(library, detector, trace),
    )
    scripts: ProgramTools | None = None
    if runner is not None:
        scripts = ProgramTools(library, settings, runner, trace)
    more = packaged if settings.packaged else None
    return Toolset(tools, library, settings, trace, more=more, scripts=scripts)


class Toolset:
    """A set of tools that can be called by name."""

    def __init__(
        self,
        tools: Sequence[Tool],
        library: Library,
        settings: Settings,
        trace: Trace | None = None,
        *,
        more: Callable[[], Sequence[Tool]] | None = None,
        scripts: ProgramTools | None = None,
    ) -> None:
        """Set up.

        Args:
            tools: The tools, in the order in which they are described.
            library: Skills that the descriptions list.
            settings: Budget and form of that list.
            trace: Where events are recorded; the library's own when None.
            more: Gives further tools, called at the first unknown name or listing, so that loading
                a skill does not wait for installed packages. They replace none of `tools`.
            scripts: The tools of tool skills; they replace none of the others.
        """
        self._more = more
        self._scripts = scripts
        self._changes = 0
        self._seen: tuple[dict[str, Tool], dict[str, Tool]] | None = None
        self._tools = {tool.name: tool for tool in tools}
        self._library = library
        self._settings = settings
        self._trace = trace or library.trace
        self._described: tuple[object, list[dict[str, Any]]] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the tools that can be called."""
        return tuple(self._current_tools())

    @property
    def owners(self) -> dict[str, str]:
        """The skill that provides each tool; empty for Satchel's own."""
        return {name: tool.owner for name, tool in self._current_tools().items()}

    def find(self, name: str) -> Tool | None:
        """The tool of that name; None when there is none."""
        # The built-in tools are found without searching packages or the disk.
        return (
            self._tools.get(name)
            or self._static_tools().get(name)
            or self._current_tools().get(name)
        )

    def version(self, snapshot: Snapshot) -> object:
        """A value that is equal while the offered tools stay the same."""
        self._current_tools()
        return self._changes, bool(snapshot.for_model)

    def offered(self, snapshot: Snapshot) -> list[str]:
        """The names in `definitions`."""
        any_skill = bool(snapshot.for_model)
        return [
            name
            for name, tool in self._current_tools().items()
            if any_skill or not tool.about_skills
        ]

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
        skill = tool.named(table, snapshot) if isinstance(tool, SkillTool) else None
        found = ResolvedCall(str(name), table, tool, snapshot, skill)
        return self.run(found, as_person=as_person, cancel=cancel)

    def run(
        self,
        found: ResolvedCall,
        *,
        act: Callable[[ToolCall], Envelope] | None = None,
        stack: Sequence[str] = (),
        as_person: bool = False,
        cancel: Cancel | None = None,
        key: str = "",
        loaded: Sequence[str] = (),
        call_id: str = "",
    ) -> Envelope:
        """Run a resolved call. Errors are returned as an envelope; never raises.

        Args:
            found: The call.
            act: Replaces the tool's own `run`.
            stack: Names of the skills within which the call is made, outermost first.
            as_person: The user calls, not the model: skills for people can be loaded.
            cancel: Ends the call while a program runs.
            key: An idempotency key that is passed to the program.
            loaded: Folders of the skills loaded in the session.
            call_id: The provider's id of the call, for the trace.
        """
        name, started = found.name, found.started
        given: dict[str, Any] = {}
        asked = ""
        shown = one_line(str(name), 60)
        marks = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": shown,
            "gen_ai.tool.type": "function",
            **({"gen_ai.tool.call.id": call_id} if call_id else {}),
        }
        with span(f"execute_tool {shown}", **{"satchel.tool.name": name}, **marks) as note:
            try:
                given = echo(found.given)
                tool = found.tool or self._missing(name)
                asked = tool.owner
                checked = tool.check(found.given)
                if tool.about_skills:
                    asked = str(checked.get("name", ""))
                reply = (act or tool.run)(
                    ToolCall(
                        found, checked, given, started, tuple(stack), as_person, cancel, key, loaded
                    )
                )
            except SettingsError as exc:
                # A file of the user is wrong, not the caller's arguments.
                reply = _failure("EXECUTION_ERROR", exc.message, exc.hint, given, started)
            except SatchelError as exc:
                reply = _failure(exc.code, exc.message, exc.hint, given, started)
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
                reply = _failure("INTERNAL_ERROR", message, hint, given, started)
                error = ErrorInfo("INTERNAL_ERROR", message, hint, bug=True)
                reply = reply._replace(error=error)
            note("satchel.status", reply.status)
            if reply.error is not None:
                note("satchel.error", reply.error.code)
                note("error.type", reply.error.code)
                fix = reply.data.get("fix")
                self._trace.record(
                    "failed",
                    (asked,) if asked else (),
                    tool=str(name),
                    code=reply.error.code,
                    reason=reply.error.message,
                    **({"fix": fix} if fix else {}),
                )
        return reply

    def _missing(self, name: str) -> NoReturn:
        tools = self._current_tools()
        refusal = self._scripts and self._scripts.refusal(name)
        if refusal:
            raise refusal
        known = [f"`{item}`" for item in tools] or "none"
        raise NotFound(
            Message("There is no tool `{name}`", name=one_line(name, 60)),
            Message("The tools are {names}", names=known),
        )

    def _current_tools(self) -> dict[str, Tool]:
        """Every tool by name; the same table while none change."""
        always = self._static_tools()
        if self._scripts is None:
            return always
        scripts = self._scripts.current()
        if self._seen is None or self._seen[0] is not scripts:
            found = dict(always)
            for name, tool in scripts.items():
                if found.setdefault(name, tool) is not tool:
                    self._trace.record(
                        "shadowed", (tool.owner,), tool=name, by="a tool of the host"
                    )
            self._seen = (scripts, found)
            self._changes += 1
        return self._seen[1]

    def _static_tools(self) -> dict[str, Tool]:
        """Every tool by name except those of tool skills."""
        if self._more is not None:
            more, self._more = self._more, None
            for tool in more():
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
        if self._described is None or self._described[0] != key:
            tools = self._current_tools()
            made = [
                describe(tools[name], provider, name, text if name == SkillTool.name else "")
                for name in self.offered(snapshot)
            ]
            self._described = (key, made)
        return list(self._described[1])


def _failure(code: Any, message: str, hint: str, given: dict[str, Any], started: float) -> Envelope:
    elapsed = round((time.perf_counter() - started) * 1000)
    return failure(code, message, hint, params=given, time_ms=elapsed)
