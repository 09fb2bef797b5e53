"""`Agent`: a conversation with skills, kept between turns.

    agent = Agent.for_project(".", model="anthropic:claude-sonnet-5")
    result = await agent.run("review src/app.py")
    print(result.text, result.report.cached)
    async for event in agent.stream("and the tests?"):
        ...

In a turn the tools are registered, the frozen prompt is sent with them, the user's message is
followed by the shortlist and change notices, and skills arrive as tool results. Sent messages stay
an unchanged prefix of the next request, so that a provider's prompt cache keeps hitting.
"""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from typing import TYPE_CHECKING, Any

from pydantic_ai import capture_run_messages
from pydantic_ai.exceptions import AgentRunError, UsageLimitExceeded, UserError
from pydantic_ai.messages import (
    ModelRequest,
    ModelResponse,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    UserPromptPart,
)

from satchel.agent.events import Limits, TextDelta, Turn, TurnDone, TurnResult, limit_notice
from satchel.agent.history_trimmer import (
    CHOSEN,
    drop_old_turns,
    sync_session,
    without_open_calls,
)
from satchel.agent.models import translate
from satchel.agent.subagents import AgentFactory
from satchel.errors import InvalidInput
from satchel.i18n import say
from satchel.satchel import Satchel
from satchel.session.history import SKILL
from satchel.tools.framing import one_line

if TYPE_CHECKING:
    import os
    from collections.abc import (
        AsyncIterable,
        AsyncIterator,
        Callable,
        Collection,
        Mapping,
        Sequence,
    )

    from pydantic_ai import RunContext
    from pydantic_ai.messages import ModelMessage
    from pydantic_ai.models import Model

    from satchel.agent.events import Event, SubAgent
    from satchel.envelope import Envelope
    from satchel.session.permissions import Approve
    from satchel.session.session import Session

_CLOSING_PASSES_COUNT = 3
"""Passes of the event loop after which an abandoned stream is closed."""


class Agent:
    """An agent with the skills of a project, on pydantic-ai. An agent is one conversation.

    Example:
        from satchel.agent import Agent

        agent = Agent.for_project(".", model="anthropic:claude-sonnet-5")
        result = agent.run_sync("Please review my change")
        print(result.text)
        assert result.report.skills == ("code-review",)
        agent.close()
    """

    def __init__(  # noqa: PLR0913 - one keyword for each part
        self,
        satchel: Satchel,
        model: Model | str,
        *,
        instructions: str = "",
        tools: Sequence[Any] = (),
        sub_agents: Mapping[str, SubAgent] | None = None,
        limits: Limits | None = None,
        approve: Approve = None,
        ask: Sequence[str] = (),
        settings: Mapping[str, Any] | None = None,
        session: Session | None = None,
    ) -> None:
        """Create an agent; `for_project` finds the skills too.

        Args:
            satchel: The project's skills.
            model: Any model of pydantic-ai, or its name such as `openai:gpt-5`.
            instructions: Text of the system prompt before the skills.
            tools: Tools of the host: functions, or tools and toolsets of pydantic-ai.
            sub_agents: Sub-agents that the model may start with `Task`, by name.
            limits: Limits of a turn.
            approve: As for `Satchel.session`.
            ask: Patterns of further tools that need approval.
            settings: Further settings of pydantic-ai's models.
            session: An existing session; a new one when None.

        Raises:
            ModelFailed: the model is unknown, or its key is missing.
        """
        self.satchel = satchel
        self.instructions = instructions
        self.limits = limits or Limits()
        self._factory = AgentFactory(
            model,
            tools=tools,
            sub_agents=sub_agents,
            limits=self.limits,
            settings=settings,
        )
        self._start_session: Callable[[], Session] = lambda: satchel.session(
            approve=approve, ask=ask
        )
        self.session = session or self._start_session()
        """Prompt, loaded skills and permissions of the conversation."""
        self.history: list[ModelMessage] = []
        """The messages so far, as pydantic-ai stores them."""
        self._model_agent = self._factory.make_agent(self.session, instructions)
        self._sync_runner: asyncio.Runner | None = None
        self._busy = False
        self._abandoned_turn: asyncio.Task[TurnResult] | None = None
        """The turn of a stream whose consumer stopped, until it has ended."""

    @classmethod
    def for_project(  # noqa: PLR0913 - same
        cls,
        path: str | os.PathLike[str] = ".",
        *,
        model: Model | str,
        satchel: Satchel | None = None,
        instructions: str = "",
        tools: Sequence[Any] = (),
        sub_agents: Mapping[str, SubAgent] | None = None,
        limits: Limits | None = None,
        approve: Approve = None,
        ask: Sequence[str] = (),
        settings: Mapping[str, Any] | None = None,
        **given: Any,
    ) -> Agent:
        """Create an agent with the skills of a folder, which may have none yet.

        Args:
            path: The project's folder.
            model: Any model of pydantic-ai, or its name such as `openai:gpt-5`.
            satchel: The project's skills; opened here when None.
            instructions: Text of the system prompt before the skills.
            tools: Tools of the host: functions, or tools and toolsets of pydantic-ai.
            sub_agents: Sub-agents that the model may start with `Task`, by name.
            limits: Limits of a turn.
            approve: As for `Satchel.session`.
            ask: Patterns of further tools that need approval.
            settings: Further settings of pydantic-ai's models.
            given: Settings of Satchel by name, such as `trust="all"`.

        Raises:
            SettingsError: a setting cannot be used.
            ModelFailed: the model is unknown, or its key is missing.
        """
        return cls(
            satchel or Satchel.for_project(path, **given),
            model,
            instructions=instructions,
            tools=tools,
            sub_agents=sub_agents,
            limits=limits,
            approve=approve,
            ask=ask,
            settings=settings,
        )

    async def run(self, text: str) -> TurnResult:
        """Run one turn and return the model's answer.

        Args:
            text: The user's message.

        Raises:
            ModelFailed: the provider cannot be reached, or refuses.
            InvalidInput: a turn is running already.
        """
        return await self._run_turn(text, None)

    def run_sync(self, text: str) -> TurnResult:
        """`run` for programs without an event loop.

        Args:
            text: The user's message.

        Raises:
            ModelFailed: the provider cannot be reached, or refuses.
            InvalidInput: a turn is running already, or an event loop is.
        """
        if _has_running_loop():
            raise InvalidInput(
                say("`run_sync` was called inside an event loop"), say("Use `await agent.run(…)`")
            )
        if self._sync_runner is None:
            # One loop for all turns: the connections to the provider belong to it.
            self._sync_runner = asyncio.Runner()
            # At exit threads can be neither joined nor started any more: it would hang or fail.
            weakref.finalize(self, self._sync_runner.close).atexit = False
        return self._sync_runner.run(self.run(text))

    async def stream(self, text: str) -> AsyncIterator[Event]:
        """Run one turn and yield its events; the last one is `TurnDone`.

        Args:
            text: The user's message.

        Raises:
            ModelFailed: the provider cannot be reached, or refuses.
            InvalidInput: a turn is running already.

        Example:
            import asyncio

            from satchel.agent import TextDelta, ToolStarted


            async def show():
                agent = Agent.for_project(".", model="anthropic:claude-sonnet-5")
                async for event in agent.stream("Please review my change"):
                    if isinstance(event, ToolStarted):
                        print(event.name, dict(event.arguments))
                    elif isinstance(event, TextDelta):
                        print(event.text, end="")
                agent.close()


            asyncio.run(show())
        """
        events: asyncio.Queue[Event | None] = asyncio.Queue()

        async def run_turn() -> TurnResult:
            try:
                return await self._run_turn(text, events.put_nowait)
            finally:
                events.put_nowait(None)

        task = asyncio.create_task(run_turn())
        try:
            while (event := await events.get()) is not None:
                yield event
            result = await task
            yield TurnDone(result.text, result.report)
        finally:
            if not task.done():  # the consumer stopped iterating
                self._abandoned_turn = task
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task

    def load(self, name: str, args: str = "") -> Envelope:
        """Load a skill on the user's behalf, as `/name args` does, before the next turn.

        Also loads skills that are hidden from models. The text precedes the next message.

        Args:
            name: The skill's name.
            args: The user's arguments.

        Raises:
            InvalidInput: a turn is running.
        """
        self._require_idle()
        arguments = {"name": name, "args": args} if args else {"name": name}
        reply = self.session.call(SKILL, arguments, as_person=True)
        if reply.error is None:
            message = f"{CHOSEN}\n\n{reply.text}"
            self.history = [*self.history, ModelRequest(parts=[UserPromptPart(message)])]
        return reply

    def reset(self) -> None:
        """Start a new conversation with an empty history and no loaded skills.

        Raises:
            InvalidInput: a turn is running.
        """
        self._require_idle()
        self.history = []
        self.session = self._start_session()
        self._model_agent = self._factory.make_agent(self.session, self.instructions)

    def close(self) -> None:
        """End the processes of tool skills, and the event loop of `run_sync`."""
        if self._sync_runner is not None:
            self._sync_runner.close()
            self._sync_runner = None
        self.satchel.close()

    def _require_idle(self) -> None:
        if self._busy:
            raise InvalidInput(
                say("A turn is running already"), say("Wait for it, or use another agent")
            )

    async def _wait_for_abandoned_turn(self) -> None:
        """Let the event loop close the stream that a consumer left, and wait for its turn."""
        for _ in range(_CLOSING_PASSES_COUNT):
            if self._busy:
                await asyncio.sleep(0)
        if self._busy and self._abandoned_turn is not None:
            await asyncio.wait({self._abandoned_turn})

    async def _run_turn(self, text: str, on_event: Callable[[Event], None] | None) -> TurnResult:
        await self._wait_for_abandoned_turn()
        self._require_idle()
        self._busy = True
        self._abandoned_turn = None
        loaded_before = frozenset(self.session.loaded)
        try:
            return await self._converse(
                text, Turn(self.limits, on_event), stream=on_event is not None
            )
        except UserError as exc:
            self._forget_turn(loaded_before)
            raise InvalidInput(
                say("The parts of the agent do not fit: {reason}", reason=one_line(str(exc), 600)),
                say("Check the tools and settings of the agent"),
            ) from exc
        except AgentRunError as exc:
            self._forget_turn(loaded_before)
            raise translate(exc, self._factory.model) from exc
        except BaseException:
            self._forget_turn(loaded_before)
            raise
        finally:
            self._busy = False

    def _forget_turn(self, loaded_before: Collection[str]) -> None:
        """Forget a failed turn: skills that it loaded, and change notices that it sent."""
        for name in self.session.loaded:
            if name not in loaded_before:
                self.session.drop(name)
        sync_session(self.session, self.history)

    async def _converse(self, text: str, turn: Turn, *, stream: bool) -> TurnResult:
        history = drop_old_turns(self.history, self.limits.history)
        await asyncio.to_thread(sync_session, self.session, history)
        timer = asyncio.timeout(self.limits.seconds)
        with capture_run_messages() as messages:
            try:
                async with timer:
                    result = await self._model_agent.run(
                        await self._message(text, turn),
                        deps=turn,
                        message_history=history,
                        usage=turn.usage,
                        usage_limits=self._factory.usage_limits(),
                        event_stream_handler=_emit_text if stream else None,
                        infer_name=False,
                    )
            except UsageLimitExceeded as exc:
                notice = turn.limit_reached() or exc.message
                return self._end_at_limit(messages or history, turn, notice)
            except TimeoutError:
                if not timer.expired():
                    raise
                notice = limit_notice("seconds", f"{self.limits.seconds:g}")
                return self._end_at_limit(messages or history, turn, notice)
        self.history = result.all_messages()
        return TurnResult(result.output, turn.report())

    async def _message(self, text: str, turn: Turn) -> str:
        """Return the user's message, with reminders and change notices behind it."""
        tail = await self.session.atail(text)
        turn.untrusted_notice = self.satchel.library.untrusted_notice()
        blocks = (text, self.session.reminder_due(), tail)
        return "\n\n".join(block for block in blocks if block)

    def _end_at_limit(self, messages: list[ModelMessage], turn: Turn, notice: str) -> TurnResult:
        """Keep a turn that a limit ended, so that the next one can continue."""
        self.history = without_open_calls(messages)
        sync_session(self.session, self.history)
        last_message = self.history[-1] if self.history else None
        answer = last_message.text if isinstance(last_message, ModelResponse) else None
        return TurnResult(answer or "", turn.report(notice))


def _has_running_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def _emit_text(ctx: RunContext[Turn], events: AsyncIterable[Any]) -> None:
    """Emit the text of pydantic-ai's events as it arrives."""
    async for event in events:
        if isinstance(event, PartStartEvent):
            if isinstance(event.part, TextPart) and event.part.content:
                ctx.deps.emit(TextDelta(event.part.content))
        elif (
            isinstance(event, PartDeltaEvent)
            and isinstance(event.delta, TextPartDelta)
            and event.delta.content_delta
        ):
            ctx.deps.emit(TextDelta(event.delta.content_delta))
