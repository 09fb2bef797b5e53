"""The tools of one agent: described for a provider, called by name, and never raising.

A `Session` holds one and decides which calls reach it; nothing is checked against permissions here.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Literal, NoReturn, cast, get_args
from weakref import WeakKeyDictionary

from satchel._language import Message
from satchel.envelope import ErrorInfo, failure
from satchel.errors import InvalidInput, NotFound, Refused, SatchelError, SettingsError, SkillBroken
from satchel.tools.base import Call, Resolved
from satchel.tools.frame import one_line
from satchel.tools.naming import ask_for_trust, blocked_skill, said_of
from satchel.tools.parameters import check, echo, read_arguments
from satchel.tools.read_file import ReadFileTool
from satchel.tools.selecting import SearchTool
from satchel.tools.skill_tool import SkillTool, list_folder
from satchel.trace import span

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from satchel.catalogue import Budget, Catalogue
    from satchel.detect.pipeline import SelectionPipeline
    from satchel.envelope import Envelope, ErrorCode
    from satchel.library import Library, Snapshot
    from satchel.library.tool_shelf import ToolSnapshot
    from satchel.runners.base import Cancel
    from satchel.settings import Form, Settings
    from satchel.tools.base import Tool
    from satchel.tools.engine import LocalEngine
    from satchel.tools.read_file import Addresses
    from satchel.trace import Trace


class ScriptTools:
    """Where a toolset gets the tools that come and go."""

    def __init__(
        self,
        library: Library,
        settings: Settings,
        engine: LocalEngine,
        trace: Trace,
    ) -> None:
        """Offer the tools of a library.

        Args:
            library: Whose.
            settings: Limits, and where secrets are.
            engine: What runs their programs.
            trace: Where events go.
        """
        self._library = library
        self._settings = settings
        self._engine = engine
        self._trace = trace
        self._made: tuple[ToolSnapshot, dict[str, Tool]] | None = None

    def current(self) -> dict[str, Tool]:
        """The offered tools by name as of the last look; the same table while nothing changed."""
        look = self._library.tools()
        if self._made is None or self._made[0] is not look:
            self._made = (look, self._make(look))
        return self._made[1]

    def _make(self, look: ToolSnapshot) -> dict[str, Tool]:
        if not look.tools:
            return {}
        from satchel.tools.script_tool import ScriptTool
        from satchel.tools.secrets import Secrets

        secrets = Secrets(self._settings)
        return {
            name: ScriptTool(
                source,
                tool,
                library=self._library,
                settings=self._settings,
                engine=self._engine,
                secrets=secrets,
                trace=self._trace,
            )
            for name, (source, tool) in look.tools.items()
        }

    def refusal(self, name: str) -> SatchelError | None:
        """Why a tool that is known is not offered; None when nobody knows it."""
        look = self._library.tools()
        source = look.withheld(name)
        if source is None:
            return self._broken(look, name)
        skill = source.skill
        shown, whose = one_line(name, 64), one_line(skill.name, 100)
        exc = look.refused.get(skill.ref)
        if exc is not None:
            hint = Message(
                "Only a person can decide about that ({step}). Ask the user, and go on without it "
                "meanwhile",
                people="{step}",
                step=one_line(exc.hint, 300),
            )
            return Refused(one_line(exc.message, 600), hint)
        if skill.state == "untrusted":
            why = Message(
                "The tool `{tool}` belongs to the skill `{name}`, which came with `{where}` and is "
                "not trusted yet",
                tool=shown,
                name=whose,
                where=one_line(skill.origin.label, 200),
            )
            return Refused(why, ask_for_trust())
        if skill.state == "blocked":
            return Refused(*blocked_skill(skill))
        if skill.state == "shadowed":
            return NotFound(
                Message("The tool `{tool}` belongs to a skill that is shadowed", tool=shown),
                Message("Use those of `{name}`", name=one_line(skill.winner, 200)),
            )
        return None

    def _broken(self, look: ToolSnapshot, name: str) -> SatchelError | None:
        """A skill.yaml that cannot be used, in the folder whose tools would be called so."""
        import os

        for problem in look.problems:
            folder = os.path.basename(os.path.dirname(problem.path)).replace("-", "_")
            if problem.severity == "error" and (name == folder or name.startswith(f"{folder}_")):
                wrong, fix = said_of(problem)
                shown = one_line(name, 64)
                why = Message(
                    "The skill of the tool `{tool}` cannot be read: {problem}",
                    tool=shown,
                    problem=wrong,
                )
                step = "Go on without it. The user can repair it: {fix}"
                return SkillBroken(why, Message(step, people="{fix}", fix=fix))
        return None


def revision_of(library: Library, tool: str) -> str:
    """The revision of the skill whose program a tool is, so that an approval is for that one."""
    found = library.tools().tools.get(tool)
    if found is None:
        return ""
    source = found[0]
    return f"{source.digest}/{list_folder(source.skill.base_dir, '').revision}"


Provider = Literal["anthropic", "openai", "openai-responses", "gemini", "bedrock", "mcp"]
"""`openai` is the form of Chat Completions, which most other providers understand too; `gemini`
gives entries of `functionDeclarations`, `bedrock` those of Converse's `toolConfig.tools`."""
PROVIDERS: tuple[str, ...] = get_args(Provider)
_OTHER_CATALOGUES = 16
"""Catalogues of other budgets and forms that are kept for a snapshot."""


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
    _check_provider(provider)
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


_catalogues: WeakKeyDictionary[Snapshot, dict[tuple[Any, ...], Catalogue]] = WeakKeyDictionary()


def catalogue_of(
    look: Snapshot,
    settings: Settings,
    budget: int | Budget | None = None,
    form: Form | None = None,
) -> Catalogue:
    """The catalogue of a snapshot, made once for all conversations.

    Args:
        look: The skills.
        settings: Budget, form and pinned names.
        budget: Another budget than that of the settings.
        form: Another form.
    """
    from satchel.catalogue import build_catalogue

    usual = (settings.budget, settings.form, settings.pin)
    key = (settings.budget if budget is None else budget, form or settings.form, settings.pin)
    made = _catalogues.setdefault(look, {})
    found = made.get(key) if key == usual else made.pop(key, None)
    if found is None:
        found = build_catalogue(
            look.skills,
            budget=key[0],
            form=key[1],
            pin=settings.pin,
            withheld=look.withheld,
            get=look.get,
        )
    found = made.setdefault(key, found)
    for old in [one for one in list(made) if one != usual][:-_OTHER_CATALOGUES]:
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
    """The envelope of a call that could not be made."""
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
    engine: LocalEngine | None = None,
    addresses: Addresses | None = None,
) -> Toolset:
    """The tools `Skill`, `ReadFile` and `SkillSearch` over a library, and those of its tool skills.

    Args:
        library: Which skills there are.
        settings: The project's folder, limits and habits.
        trace: Where events go; the library's own when None.
        detector: Gives what searches, when it is needed.
        engine: What runs the programs of tool skills; without it their tools are not offered.
        addresses: Resolves `skill://` addresses for `ReadFile`.
    """
    trace = trace or library.trace
    where = trace

    def packaged() -> Sequence[Tool]:
        from satchel.tools.packaged import packaged_tools

        return packaged_tools(settings, where)

    tools: tuple[Tool, ...] = (
        SkillTool(library, settings, trace),
        ReadFileTool(library, settings, addresses),
        SearchTool(library, detector, trace),
    )
    scripts: ScriptTools | None = None
    if engine is not None:
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
        more: Callable[[], Sequence[Tool]] | None = None,
        scripts: ScriptTools | None = None,
    ) -> None:
        """Gather tools.

        Args:
            tools: The tools, in the order in which they are described.
            library: Whose skills the descriptions list.
            settings: Budget and form of that list.
            trace: Where events go; the library's own when None.
            more: Further tools, asked for when a name is not known or all of them are wanted: who
                only loads a skill does not wait for installed packages. None of them replaces one
                of `tools`.
            scripts: Where the tools of tool skills come from; they come and go with the library,
                and none of them replaces one of the others.
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
        """What can be called, as of the last look."""
        return tuple(self._now())

    @property
    def owners(self) -> dict[str, str]:
        """Each tool that can be called, and whose skill it is; empty for Satchel's own."""
        return {name: str(getattr(tool, "owner", "")) for name, tool in self._now().items()}

    def find(self, name: str) -> Tool | None:
        """The tool of that name as of the last look; None when there is none."""
        # What is always there is found without a look at packages or at the disk.
        return self._tools.get(name) or self._all().get(name) or self._now().get(name)

    def version(self, look: Snapshot) -> object:
        """Equal while the tools that are offered stay the same ones."""
        self._now()
        return self._changes, bool(look.for_model)

    def offered(self, look: Snapshot) -> list[str]:
        """The names that `definitions` has."""
        any_skill = bool(look.for_model)
        return [name for name, tool in self._now().items() if any_skill or not tool.about_skills]

    def call(
        self,
        name: str,
        arguments: Mapping[str, Any] | str | None = None,
        *,
        as_person: bool = False,
        cancel: Cancel | None = None,
    ) -> Envelope:
        """Call a tool without any check of permissions: a `Session` makes those.

        Args:
            name: Which tool.
            arguments: Its arguments, as a table or as JSON text.
            as_person: A person asks, not a model.
            cancel: How the call is taken back while a program runs.
        """
        try:
            table = read_arguments(arguments)
        except SatchelError as exc:
            return failed_call(exc, arguments)
        look = self._library.snapshot()
        tool = self.find(str(name))
        skill = tool.named(table, look) if isinstance(tool, SkillTool) else None
        found = Resolved(str(name), table, tool, look, skill)
        return self.run(found, as_person=as_person, cancel=cancel)

    def run(
        self,
        found: Resolved,
        *,
        act: Callable[[Call], Envelope] | None = None,
        stack: Sequence[str] = (),
        as_person: bool = False,
        cancel: Cancel | None = None,
        key: str = "",
        loaded: Sequence[str] = (),
    ) -> Envelope:
        """Make a call. Whatever is wrong comes back as an envelope, never as an exception.

        Args:
            found: The call.
            act: What is done in place of the tool's own `run`.
            stack: Names of the skills within which the call is made, outermost first.
            as_person: A person asks: what only people may load is loaded.
            cancel: How the call is taken back while a program runs.
            key: The same for a program whenever this very call is made again.
            loaded: The folders of the skills that the conversation loaded.
        """
        name, started = found.name, found.started
        given: dict[str, Any] = {}
        asked = ""
        with span("satchel.tool", **{"satchel.tool.name": name}) as note:
            try:
                given = echo(found.given)
                tool = found.tool or self._missing(name)
                asked = str(getattr(tool, "owner", ""))
                # A packaged tool has its own words, in the model's language, for what is wrong.
                own: Any = getattr(tool, "check", None)
                checked = (
                    own(found.given) if own else check(found.given, tool.parameters, tool.aliases)
                )
                if tool.about_skills:
                    asked = str(checked.get("name", ""))
                reply = (act or tool.run)(
                    Call(
                        checked, given, started, tuple(stack), as_person, cancel, key, loaded, found
                    )
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

    def _missing(self, name: str) -> NoReturn:
        tools = self._now()
        refusal = self._scripts and self._scripts.refusal(name)
        if refusal:
            raise refusal
        known = [f"`{item}`" for item in tools] or "none"
        raise NotFound(
            Message("There is no tool `{name}`", name=one_line(name, 60)),
            Message("The tools are {names}", names=known),
        )

    def _now(self) -> dict[str, Tool]:
        """Every tool by name as of the last look; the same table while none change."""
        always = self._all()
        if self._scripts is None:
            return always
        scripts = self._scripts.current()
        if self._seen is None or self._seen[0] is not scripts:
            found = dict(always)
            for name, tool in scripts.items():
                if found.setdefault(name, tool) is not tool:
                    owner = str(getattr(tool, "owner", ""))
                    self._trace.record("shadowed", (owner,), tool=name, by="a tool of the host")
            self._seen = (scripts, found)
            self._changes += 1
        return self._seen[1]

    def _all(self) -> dict[str, Tool]:
        """Every tool by its name, those of packages too."""
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
        look: Snapshot | None = None,
    ) -> list[dict[str, Any]]:
        """The tools as a provider wants them described.

        While the library does not change the answer does not change by a byte. Where there are no
        skills to load, the tools that are about skills are left out.

        Args:
            provider: One of `PROVIDERS`.
            catalogue: Whether the description of `Skill` lists the skills: for hosts without a
                system prompt.
            look: The library to describe; as of the last look when None.

        Raises:
            InvalidInput: there is no such provider.
        """
        _check_provider(provider)
        look = look or self._library.snapshot()
        text = ""
        if catalogue and look.for_model:
            told = catalogue_of(look, self._settings)
            tell_offer(self._trace, told)
            text = told.text
        key = (provider, text, self.version(look))
        if self._described is None or self._described[0] != key:
            tools = self._now()
            made = [
                describe(tools[name], provider, name, text if name == SkillTool.name else "")
                for name in self.offered(look)
            ]
            self._described = (key, made)
        return list(self._described[1])


def _failure(code: Any, message: str, hint: str, given: dict[str, Any], started: float) -> Envelope:
    elapsed = round((time.perf_counter() - started) * 1000)
    return failure(code, message, hint, params=given, time_ms=elapsed)
