"""How does an agent of smolagents get skills? As an agent that knows a session.

    agent = SkillsAgent(tools=[], model=model, skills=Satchel.for_project("."))
    agent.run("review my change")
    agent.run("and now the docs", reset=False)

smolagents has one conversation for each agent: its memory. So each agent has one session. The
catalogue goes into the instructions, the shortlist behind the task, and the tools are looked up
before each step. `SkillsCodeAgent` is the same for an agent that writes Python.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from satchel._optional import require
from satchel.integrations.base import (
    SKILL,
    call,
    forget_lost,
    joined,
    permit,
    running,
    sessions_of,
    tail,
    tools_of,
)

try:
    from smolagents import (  # pyright: ignore[reportMissingTypeStubs] - it has none
        CodeAgent,
        MultiStepAgent,
        Tool,
        ToolCallingAgent,
    )
except ImportError:
    require("smolagents", "smolagents")
    raise

if TYPE_CHECKING:
    from satchel.integrations.base import Sessions, Skills, ToolSpec
    from satchel.tools.session import Session

__all__ = ["SkillsAgent", "SkillsCodeAgent", "skill_tools"]

_KNOWN = {"string", "boolean", "integer", "number", "array", "object", "null"}


class SkillTool(Tool):
    """One tool as it is now."""

    output_type = "string"
    skip_forward_signature_validation = True

    def __init__(self, session: Session, spec: ToolSpec, given: list[str] | None = None) -> None:
        """Take the tool's description from its specification.

        Args:
            session: Whose tool it is.
            spec: What it is.
            given: Where the texts of skills are noted that the model got.
        """
        self.name = spec.name
        self.description = spec.description
        required = spec.parameters.get("required", ())
        self.inputs = {
            name: _input(schema, needed=name in required)
            for name, schema in spec.parameters.get("properties", {}).items()
        }
        self._session = session
        self._given = given if spec.name == SKILL else None
        cast("Any", super()).__init__()

    def forward(self, **arguments: Any) -> str:
        """Call it. A failure is told in the text, so that the model can go on."""
        given = {name: value for name, value in arguments.items() if value is not None}
        text = call(self._session, self.name, given).text
        if self._given is not None:
            self._given.append(text.strip())
        return text


class _Skilled(MultiStepAgent):
    """What both kinds of agents do."""

    tools: dict[str, Any]
    managed_agents: dict[str, Any]

    def __init__(
        self, *args: Any, skills: Skills | Sessions = None, instructions: str = "", **more: Any
    ) -> None:
        """Take what the agent takes, and the skills.

        Args:
            args: For the agent.
            skills: The session of the conversation, or a `Satchel` or a folder to begin one of.
            instructions: The host's own; the catalogue comes behind them.
            more: For the agent.
        """
        self._sessions = sessions_of(skills)
        self._runs = 0
        self._own = instructions
        self._given: list[str] = []
        self.session = self._sessions.of()
        told = joined(instructions, self.session.prompt)
        cast("Any", super()).__init__(*args, instructions=told, **more)
        self._host = dict(self.tools)
        self._look()

    def run(self, task: str, *args: Any, reset: bool = True, **more: Any) -> Any:
        """Run, with the shortlist behind the task."""
        if reset and self._sessions.nested:  # a team member that is asked again begins anew
            self._runs += 1
            self.session = self._sessions.of(str(self._runs))
        behind = tail(self.session, task, () if reset else self._results())
        self._look()
        task = f"{task}\n\n{behind}" if behind else task
        with running(self.session):
            return cast("Any", super()).run(task, *args, reset=reset, **more)

    def _step_stream(self, memory_step: Any) -> Any:
        forget_lost(self.session, self._results())
        self._look()
        yield from super()._step_stream(memory_step)

    def _look(self) -> None:
        """Have the tools and the catalogue as they are now."""
        ours = {
            spec.name: SkillTool(self.session, spec, self._given) for spec in tools_of(self.session)
        }
        before = list(self.tools)
        self.tools = {**self._host, **ours, **self._host}  # the host's come first, and win
        self.instructions = joined(self._own, self.session.prompt)
        executor = getattr(self, "python_executor", None)
        if executor is not None and before != list(self.tools):
            executor.send_tools({**self.tools, **self.managed_agents})

    def _results(self) -> list[str]:
        """The texts of skills that the model sees.

        A step of smolagents has the results of all its calls in one text, and does not say whose
        is which. So what `Skill` gave is noted when it is given, and looked for: a page that only
        looks like a skill is none.
        """
        seen = [getattr(step, "observations", None) or "" for step in self.memory.steps]
        self._given[:] = [text for text in self._given if any(text in one for one in seen)]
        return list(self._given)


class SkillsAgent(_Skilled, ToolCallingAgent):
    """A `ToolCallingAgent` with skills."""

    def execute_tool_call(self, tool_name: str, arguments: dict[str, str] | str) -> Any:
        """Refuse what a loaded skill forbids; the others run."""
        known = {**self.tools, **self.managed_agents}
        if tool_name in known and not isinstance(known[tool_name], SkillTool):
            refusal = tool_name != "final_answer" and permit(self.session, tool_name, arguments)
            if refusal:
                return refusal.text
        with running(self.session):
            return super().execute_tool_call(tool_name, arguments)


class SkillsCodeAgent(_Skilled, CodeAgent):
    """A `CodeAgent` with skills: the tools are functions, and their results are printed."""


def skill_tools(session: Session) -> list[SkillTool]:
    """The tools as they are now, for an agent of your own.

    Put `session.prompt` into its instructions. What is added to the library later is not in this
    list: a `SkillsAgent` looks before each step.
    """
    return [SkillTool(session, spec) for spec in tools_of(session)]


def _input(schema: dict[str, Any], *, needed: bool) -> dict[str, Any]:
    """A parameter as smolagents wants it: with one of its types, and a description."""
    kinds = cast("str | list[str] | None", schema.get("type"))
    known = bool(kinds) and _KNOWN.issuperset([kinds] if isinstance(kinds, str) else kinds)
    made = {"description": "", **schema, "type": kinds if known else "any"}
    return made if needed else {**made, "nullable": True}
