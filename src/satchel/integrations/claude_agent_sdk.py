"""Skills for the Claude Agent SDK, as options: system prompt, MCP server and hooks.

The SDK runs Claude Code as a separate program. The tools are therefore an in-process MCP server,
the catalogue is appended to the system prompt, and hooks append the shortlist to a prompt, deny
other tools, and identify the calling agent. Each conversation of Claude Code has its own session;
one that is resumed is read from Claude Code's transcript.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from satchel._optional import require
from satchel.errors import InvalidInput
from satchel.integrations.base import (
    MAX_CONVERSATIONS,
    SKILL,
    ConversationHistory,
    acall,
    apermit,
    atools_of,
    join_texts,
    running,
    sessions_of,
)
from satchel.session.history import find_skill_text, read_messages

try:
    from claude_agent_sdk import ClaudeAgentOptions, HookMatcher
    from mcp.server import Server
    from mcp.types import CallToolResult, ListToolsResult, TextContent, Tool
except ImportError:
    require("claude_agent_sdk", "claude-agent-sdk")
    raise

if TYPE_CHECKING:
    from typing import Unpack

    from claude_agent_sdk import AgentDefinition, ClaudeSDKClient

    from satchel.integrations.base import ChildOptions, SessionOptions, Sessions
    from satchel.integrations.base import SkillsSource as Given
    from satchel.session.session import Session

__all__ = ["SkillsOptions"]

MAX_RESULT_CHARS = 500_000
"""Requested result size; Claude Code shows only a preview beyond its own limit."""


class SkillsOptions:
    """Skills for one conversation with Claude Code, and for its sub-agents.

    Example:
        from claude_agent_sdk import ClaudeAgentOptions
        from satchel import Satchel
        from satchel.integrations.claude_agent_sdk import SkillsOptions

        skills = SkillsOptions(Satchel.for_project("."))
        options = skills.options(ClaudeAgentOptions(model="claude-sonnet-5"))
        # async with ClaudeSDKClient(options) as client: …
    """

    def __init__(
        self, skills: Given = None, *, name: str = "skills", **options: Unpack[SessionOptions]
    ) -> None:
        """Create the options.

        Args:
            skills: The session of the conversation, or a `Satchel` or a folder to create one.
            name: Name of the MCP server: the model sees `mcp__skills__Skill`.
            options: Those of `SessionOptions`, for new sessions.
        """
        self.name = name
        self._sessions = sessions_of(skills, **options)
        self.session = self._sessions.of()
        """The session of the first conversation."""
        self._conversations: dict[str, Session] = {}
        self._sub_agents: dict[str, Sessions] = {}
        self._other_agents = self._sessions.child()  # Claude Code's own sub-agents
        self._calls: dict[str, Session] = {}
        self._prompt = self.session.prompt
        self._declared: tuple[str, ...] = ()

    # --- options for the SDK ---------------------------------------------------------------

    def options(self, options: ClaudeAgentOptions | None = None) -> ClaudeAgentOptions:
        """Add skills to options. Claude Code's own list of skills is off unless it is set.

        Args:
            options: Your options; those of the SDK when None.

        Raises:
            InvalidInput: the system prompt or the MCP servers are in a file.
        """
        merged = options or ClaudeAgentOptions()
        if not isinstance(merged.mcp_servers, dict):
            raise InvalidInput("`mcp_servers` is a file", "Give the servers as a dictionary")
        server: Any = {"type": "sdk", "name": self.name, "instance": self._server()}
        hooks = {event: list(matchers) for event, matchers in (merged.hooks or {}).items()}
        hooks.setdefault("UserPromptSubmit", []).append(HookMatcher(hooks=[self._on_prompt]))
        hooks.setdefault("PreCompact", []).append(HookMatcher(hooks=[self._on_compact]))
        # The default is to deny: a hook that fails must not let a forbidden tool pass.
        hooks.setdefault("PreToolUse", []).append(
            HookMatcher(hooks=[self._on_tool], on_failure="block", timeout=600)
        )
        return replace(
            merged,
            system_prompt=self._system(merged.system_prompt),
            mcp_servers={**merged.mcp_servers, self.name: server},
            allowed_tools=[*merged.allowed_tools, f"mcp__{self.name}"],  # Satchel asks itself
            hooks=hooks,
            skills=[] if merged.skills is None else merged.skills,
        )

    def agent(
        self, name: str, agent: AgentDefinition, **limits: Unpack[ChildOptions]
    ) -> AgentDefinition:
        """Add skills to a sub-agent, limited to what the main agent may do.

        Args:
            name: Its name in the `agents` of the options.
            agent: Its definition. If it lists tools, ours are added to the list.
            limits: Those of `ChildOptions`.
        """
        self._sub_agents[name] = self._sessions.child(**limits)
        child = self.session.child(**limits)
        listed = agent.tools
        if listed is not None:
            listed = [*listed, *(f"mcp__{self.name}__{name}" for name in child.names)]
        return replace(
            agent,
            prompt=join_texts(agent.prompt, self._with_tool_names(child.prompt)),
            tools=listed,
        )

    async def refresh(self, client: ClaudeSDKClient) -> bool:
        """Declare tools that appeared since; call it between turns. True when there were some.

        Args:
            client: The client of the conversation.
        """
        if await self.session.anames() == self._declared:
            return False
        await client.toggle_mcp_server(self.name, enabled=False)
        await client.toggle_mcp_server(self.name, enabled=True)
        return True

    def _system(self, system: Any) -> Any:
        ours = self._with_tool_names(self._prompt)
        if system is None or isinstance(system, str):
            return join_texts(system, ours)
        if system["type"] == "file":
            raise InvalidInput("`system_prompt` is a file", "Give its text")
        key = "append" if system["type"] == "preset" else "prompt"
        return {**system, key: join_texts(system.get(key), ours)}

    def _with_tool_names(self, prompt: str) -> str:
        """The catalogue with the names that its tools have here."""
        note = f"Each tool named above has `mcp__{self.name}__` before its name here."
        return f"{prompt}\n\n{note}" if prompt else ""

    # --- the MCP server --------------------------------------------------------------------

    def _server(self) -> Server[Any]:
        async def listed(context: object, params: object) -> ListToolsResult:
            del context, params
            specs = await atools_of(self.session)
            self._declared = tuple(spec.name for spec in specs)
            tools = [
                {
                    "name": spec.name,
                    "description": spec.description,
                    "inputSchema": spec.parameters,
                    "_meta": {"anthropic/maxResultSizeChars": MAX_RESULT_CHARS},
                }
                for spec in specs
            ]
            return ListToolsResult(tools=[Tool.model_validate(tool) for tool in tools])

        async def called(context: object, params: Any) -> CallToolResult:
            del context
            meta = cast("dict[str, Any]", params.meta or {})
            call_id = meta.get("claudecode/toolUseId", "")
            session = self._calls.pop(call_id, None)
            several = self._sub_agents or len(self._conversations) > 1
            if session is None and several:  # the limits of the right one must apply
                return _result("It is not known which agent calls this tool", failed=True)
            arguments: dict[str, Any] = params.arguments or {}
            reply = await acall(session or self.session, params.name, arguments, call_id)
            return _result(reply.text, failed=reply.failed)

        return Server(self.name, on_list_tools=listed, on_call_tool=called)

    # --- the hooks -------------------------------------------------------------------------

    async def _on_prompt(self, data: Any, use: str | None, context: object) -> Any:
        del use, context
        note = await asyncio.to_thread(self._notice, data)
        output = {"hookEventName": "UserPromptSubmit", "additionalContext": note}
        return {"hookSpecificOutput": output} if note else {}

    def _conversation(self, data: Any) -> Session:
        """The session of a conversation, the first time with what the transcript tells."""
        key = data["session_id"]
        session = self._conversations.get(key)
        if session is None:
            is_first = not self._conversations
            session = self.session if is_first else self._sessions.of(key)
            if session is self.session and not is_first:
                session.forget()  # the host's own session: what it loaded is in another history
            self._conversations[key] = session
            if len(self._conversations) > MAX_CONVERSATIONS:
                self._conversations.pop(next(iter(self._conversations)))
            session.sync(_transcript(data.get("transcript_path"), self.name), complete=False)
        return session

    def _notice(self, data: Any) -> str:
        session = self._conversation(data)
        parts = [session.reminder_due(), session.tail(data["prompt"])]
        if session.prompt != self._prompt:  # Claude Code keeps the first one
            self._prompt = session.prompt
            parts.insert(0, self._with_tool_names(self._prompt))
        return "\n\n".join(part for part in parts if part)

    async def _on_compact(self, data: Any, use: str | None, context: object) -> Any:
        """The history is summarised: loaded skills may be loaded again."""
        del use, context
        session = await asyncio.to_thread(self._conversation, data)
        if lost := [skill.name for skill in session.loaded.values() if skill.present]:
            session.forget(*lost)
        return {}

    async def _on_tool(self, data: Any, use: str | None, context: object) -> Any:
        """Note the caller of our tools; deny other tools that a loaded skill forbids."""
        del context
        session = await asyncio.to_thread(self._session_of, data)
        if data["tool_name"].startswith(f"mcp__{self.name}__"):
            self._calls[use or ""] = session
            if len(self._calls) > MAX_CONVERSATIONS:  # noted, and then denied elsewhere
                self._calls.pop(next(iter(self._calls)))
            return {}
        refusal = await apermit(session, data["tool_name"], data["tool_input"])
        if refusal is None:
            return {}
        decision = {"permissionDecision": "deny", "permissionDecisionReason": refusal.text}
        return {"hookSpecificOutput": {"hookEventName": "PreToolUse", **decision}}

    def _session_of(self, data: Any) -> Session:
        session, agent = self._conversation(data), data.get("agent_id")
        if not agent:
            return session
        with running(session):
            return self._sub_agents.get(data.get("agent_type", ""), self._other_agents).of(agent)


def _transcript(path: str | None, server: str) -> ConversationHistory:
    """What Claude Code's transcript tells; after a summary only which tools are forbidden."""
    before: list[Any] = []
    after: list[Any] = []
    with suppress(OSError, ValueError), open(path or "", encoding="utf-8") as stream:
        for line in stream:
            row: dict[str, Any] = json.loads(line)
            message: dict[str, Any] = row.get("message") or {}
            if row.get("subtype") == "compact_boundary":
                before, after = [*before, *after], []
            elif message.get("role") and not row.get("isSidechain"):
                after.append(message)
    prefix = f"mcp__{server}__"
    forbidden = {
        skill.name: skill.disallowed
        for result in read_messages(before).results
        if result.tool == f"{prefix}{SKILL}" and (skill := find_skill_text(result.text))
    }
    history = read_messages(after)
    results = [result._replace(tool=result.tool.removeprefix(prefix)) for result in history.results]
    return ConversationHistory(results, history.prompts, forbidden)


def _result(text: str, *, failed: bool) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=text)], is_error=failed)
