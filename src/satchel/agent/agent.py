"""`Agent`: a conversation with skills, kept between turns.

agent = Agent.for_project(".", model="anthropic:claude-sonnet-5")
result = await agent.run("review src/app.py")
print(result.text, result.report.cached)
async for event in agent.stream("and the tests?"):
    ...

A turn: the tools are registered, the frozen prompt goes out with them, the user's message has the
shortlist and any news behind it, and skills come as results of calls. So what was sent stays the
beginning of what is sent next, byte for byte, and a provider's prompt cache keeps hitting.
"""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from typing import TYPE_CHECKING, Any

from pydantic_ai import capture_run_messages
from pydantic_ai.exceptions import AgentRunError, ToolFailed, UsageLimitExceeded, UserError
from pydantic_ai.messages import (
    ModelRequest,
    ModelResponse,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    UserPromptPart,
)

from satchel._language import say
from satchel.agent.delegation import Crew
from satchel.agent.failures import translate
from satchel.agent.records import Limits, TextDelta, TurnDone, TurnResult
from satchel.agent.trimming import CHOSEN, complete, drop_old_turns, forget_lost, notes_in
from satchel.agent.turn import Turn
from satchel.errors import InvalidInput
from satchel.facade import Satchel
from satchel.tools.frame import one_line
from satchel.tools.presence import SKILL

if TYPE_CHECKING:
    import os
    from collections.abc import AsyncIterable, AsyncIterator, Callable, Mapping, Sequence

    from pydantic_ai import RunContext
    from pydantic_ai.messages import ModelMessage
    from pydantic_ai.models import Model

    from satchel.agent.records import Event, SubAgent
    from satchel.envelope import Envelope
    from satchel.tools.gate import Approve
    from satchel.tools.session import Fork, Session

_RAN = "The user had a sub-agent do what a skill says. This is its answer."


class Agent:
    """An agent with the skills of a project, on pydantic-ai."""

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
        models: Mapping[str, Model | str] | None = None,
        settings: Mapping[str, Any] | None = None,
        session: Session | None = None,
    ) -> None:
        """Make an agent; `for_project` finds the skills too.

        Args:
            satchel: The skills.
            model: Any model of pydantic-ai, or its name such as `openai:gpt-5`.
            instructions: What stands in the system prompt before the skills.
            tools: Tools of the host: functions, or tools and toolsets of pydantic-ai.
            sub_agents: Sub-agents that the model may start with `Task`, by name.
            limits: What a turn may take.
            approve: As for `Satchel.session`.
            ask: Patterns of further tools that need approval.
            models: What `model: …` of a skill with `context: fork` may be, by that word.
            settings: Further settings of pydantic-ai's models.
            session: A conversation that was begun already; a new one when None.

        Raises:
            ModelFailed: the model is unknown, or its key is missing.
        """
        self.satchel = satchel
        self.instructions = instructions
        self.limits = limits or Limits()
        self._crew = Crew(
            model,
            tools=tools,
            sub_agents=sub_agents,
            models=models,
            limits=self.limits,
            settings=settings,
        )
        self._begin: Callable[[], Session] = lambda: satchel.session(approve=approve, ask=ask)
        self.session = session or self._begin()
        """What the conversation was told, what it loaded, what may be done in it."""
        self.history: list[ModelMessage] = []
        """The conversation so far, as pydantic-ai keeps it."""
        self._loop = self._crew.loop(self.session, instructions)
        self._runner: asyncio.Runner | None = None
        self._busy = False
        self._leaving: asyncio.Task[TurnResult] | None = None
        self._forks: list[Fork] = []

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
        models: Mapping[str, Model | str] | None = None,
        settings: Mapping[str, Any] | None = None,
        **given: Any,
    ) -> Agent:
        """Make an agent with the skills of a folder, which may have none yet.

        Args:
            path: The project's folder.
            model: The model or its name.
            satchel: The skills, when they were opened already.
            instructions: As for the class, like what follows.
            tools: Tools of the host.
            sub_agents: Sub-agents that the model may start.
            limits: What a turn may take.
            approve: As for `Satchel.session`.
            ask: Patterns of further tools that need approval.
            models: What `model: …` of a skill may be.
            settings: Further settings of pydantic-ai's models.
            given: Any setting of Satchel by name (`trust="all"`).

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
            models=models,
            settings=settings,
        )

    async def run(self, text: str) -> TurnResult:
        """Run one turn and return the model's answer.

        Raises:
            ModelFailed: the provider cannot be reached, or refuses.
            InvalidInput: a turn is running already.
        """
        return await self._turn(text, None)

    def run_sync(self, text: str) -> TurnResult:
        """`run` for programs without an event loop.

        Raises:
            ModelFailed: the provider cannot be reached, or refuses.
            InvalidInput: a turn is running already, or an event loop is.
        """
        if _in_a_loop():
            raise InvalidInput(
                say("`run_sync` was called inside an event loop"), say("Use `await agent.run(…)`")
            )
        if self._runner is None:
            # One loop for all turns: the connections to the provider belong to it.
            self._runner = asyncio.Runner()
            # At exit its threads can be neither joined nor started any more: it would hang or fail.
            weakref.finalize(self, self._runner.close).atexit = False
        return self._runner.run(self.run(text))

    async def stream(self, text: str) -> AsyncIterator[Event]:
        """Run one turn and yield its events; the last one is `TurnDone`.

        Raises:
            ModelFailed: the provider cannot be reached, or refuses.
            InvalidInput: a turn is running already.
        """
        events: asyncio.Queue[Event | None] = asyncio.Queue()

        async def work() -> TurnResult:
            try:
                return await self._turn(text, events.put_nowait)
            finally:
                events.put_nowait(None)

        task = asyncio.create_task(work())
        try:
            while (event := await events.get()) is not None:
                yield event
            result = await task
            yield TurnDone(result.text, result.report)
        finally:
            if not task.done():  # whoever listened went away
                self._leaving = task
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task

    def load(self, name: str, args: str = "") -> Envelope:
        """Load a skill on the user's behalf, as `/name args` does, before the next turn.

        What its author keeps from models is loaded too. Its text stands before the next message.
        A skill with `context: fork` is run by a sub-agent when the next turn begins, and its answer
        stands there instead.

        Args:
            name: Which skill.
            args: What the user said behind its name.

        Raises:
            InvalidInput: a turn is running.
        """
        self._must_be_idle()
        given = {"name": name, "args": args} if args else {"name": name}
        fork = self._crew.forked(self.session, given, as_person=True)
        if fork is not None:
            if fork.reply.error is None:
                self._forks.append(fork)
            return fork.reply
        reply = self.session.call(SKILL, given, as_person=True)
        if reply.error is None:
            words = f"{CHOSEN}\n\n{reply.text}"
            self.history = [*self.history, ModelRequest(parts=[UserPromptPart(words)])]
        return reply

    def reset(self) -> None:
        """Start a new conversation with an empty history and no loaded skills.

        Raises:
            InvalidInput: a turn is running.
        """
        self._must_be_idle()
        self.history = []
        self._forks = []
        self.session = self._begin()
        self._loop = self._crew.loop(self.session, self.instructions)

    def close(self) -> None:
        """End the processes of tool skills, and the event loop of `run_sync`."""
        if self._runner is not None:
            self._runner.close()
            self._runner = None
        self.satchel.close()

    def _must_be_idle(self) -> None:
        if self._busy:
            raise InvalidInput(
                say("A turn is running already"), say("Wait for it, or use another agent")
            )

    async def _turn(self, text: str, sink: Callable[[Event], None] | None) -> TurnResult:
        for _ in range(3):  # a stream that nobody listens to any more is closed by the loop: let it
            if self._busy:
                await asyncio.sleep(0)
        if self._busy and self._leaving is not None:
            await asyncio.wait({self._leaving})
        self._must_be_idle()
        self._busy = True
        self._leaving = None
        session, mark = self.session, self.session.checkpoint()
        try:
            return await self._converse(text, Turn(self.limits, sink), stream=sink is not None)
        except UserError as exc:
            session.restore(mark)
            raise InvalidInput(
                say("The parts of the agent do not fit: {reason}", reason=one_line(str(exc), 600)),
                say("Change the tools or settings that were given to it"),
            ) from exc
        except AgentRunError as exc:
            session.restore(mark)
            raise translate(exc, self._crew.model, self.limits.http_retries) from exc
        except BaseException:
            # A turn that came to nothing is no part of the conversation, nor is what it loaded.
            session.restore(mark)
            raise
        finally:
            self._busy = False

    async def _converse(self, text: str, turn: Turn, *, stream: bool) -> TurnResult:
        history = drop_old_turns(self.history, self.limits.history)
        if len(history) < len(self.history):
            forget_lost(self.session, history, notes_in(self.history))
        timer = asyncio.timeout(self.limits.seconds)
        with capture_run_messages() as sofar:
            try:
                async with timer:
                    result = await self._loop.run(
                        await self._message(text, turn),
                        deps=turn,
                        message_history=history,
                        usage=turn.usage,
                        usage_limits=self._crew.usage_limits(),
                        event_stream_handler=_listen if stream else None,
                        infer_name=False,
                    )
            except UsageLimitExceeded as exc:
                return self._stopped(sofar or history, turn, turn.reached() or exc.message)
            except TimeoutError:
                if not timer.expired():
                    raise
                seconds = f"{self.limits.seconds:g}"
                why = say("The turn took longer than {seconds} seconds", seconds=seconds)
                return self._stopped(sofar or history, turn, why)
        self.history = result.all_messages()
        self._forks = []
        return TurnResult(result.output, turn.report())

    async def _message(self, text: str, turn: Turn) -> str:
        """What the user says, with what a person had run before it and what is new behind it."""
        ran = [await self._run_fork(fork, turn) for fork in self._forks]
        tail = turn.note(await self.session.atail(text))
        turn.waiting = self.satchel.library.waiting_line()
        parts = (*ran, text, self.session.reminder_due(), tail)
        return "\n\n".join(part for part in parts if part)

    async def _run_fork(self, fork: Fork, turn: Turn) -> str:
        try:
            return f"{_RAN}\n\n{await self._crew.run_fork(self.session, fork, turn)}"
        except ToolFailed as exc:
            return f"{_RAN}\n\n{exc.message}"

    def _stopped(self, sofar: list[ModelMessage], turn: Turn, why: str) -> TurnResult:
        """A turn that a limit ended: the next one can go on from there."""
        self.history = complete(sofar)
        forget_lost(self.session, self.history, (*notes_in(sofar), *turn.notes))
        last = self.history[-1] if self.history else None
        said = last.text if isinstance(last, ModelResponse) else None
        return TurnResult(said or "", turn.report(why))


def _in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def _listen(ctx: RunContext[Turn], events: AsyncIterable[Any]) -> None:
    """Tell the text of the answer as it comes."""
    async for event in events:
        if isinstance(event, PartStartEvent):
            if isinstance(event.part, TextPart) and event.part.content:
                ctx.deps.tell(TextDelta(event.part.content))
        elif (
            isinstance(event, PartDeltaEvent)
            and isinstance(event.delta, TextPartDelta)
            and event.delta.content_delta
        ):
            ctx.deps.tell(TextDelta(event.delta.content_delta))
