"""Who keeps the goals that pages show, and who looks whether they moved? One engine per server.

The engine is opened when the first page of goals is, and looks only: it does no steps. As in a
terminal, workers do them where an engine is shared by machines; else a process of its own goes on
with a goal that somebody answered or tries again, and outlives this server.

While somebody looks at a goal, one task asks the engine about it and tells the pages. It hears of
events where an engine has them, and asks every second besides: who was killed says nothing.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from satchel._language import language, say
from satchel._optional import must_be_installed
from satchel.errors import InvalidInput, Refused, SatchelError, ServerFailed
from satchel.goals.drawing.svg import steady_layout, to_inline_svg
from satchel.goals.engines.opening import go_on, is_shared, open_engine
from satchel.goals.model import OVER
from satchel.goals.permission import asks_model, needs_model, not_done, unallowed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable

    from satchel.facade import Satchel
    from satchel.goals.drawing.layout import Layout
    from satchel.goals.engines.base import Engine
    from satchel.goals.engines.opening import Background
    from satchel.goals.model import GoalReport, Plan
    from satchel.ui.live import Live

_Given = TypeVar("_Given")
LIST = "goals"
GOAL = "goal:"
PERIOD = 1.0
"""Seconds between two looks at a list, or at a goal that something else tells of."""
QUICK = 0.3
"""The same at a goal that only looking tells of."""
GAP = 0.15
"""Seconds that events are gathered for: many steps may end at once."""
_SHARE = 3
"""A look that takes long is followed by a pause of so many times that."""
PATIENCE = 15.0
"""Seconds that an engine has for an answer."""
LEAVING = 5.0
"""Seconds that an engine which is being opened has to end, once the server does."""
AGAIN = 1.0
"""Seconds after which an engine that could not be opened is tried again."""
LONGEST = 100
"""Goals of a list whose changes are looked for."""
TAKEN = 1.0
"""Seconds that a worker of this machine has to take a goal before a process is started for it."""
_KEPT = 64
"""Drawings whose places are remembered."""
_EXPECTED = (0, 1, 8)
"""Exit codes of a process that went on with its goal: done, failed, asks again."""


class Wish(NamedTuple):
    """What somebody wants to happen to a goal."""

    report: GoalReport
    left: Plan
    """The steps that would be done."""
    command: str
    """What does the same in a terminal."""
    allow: bool = False
    """Whether tools that write or use the network may be called."""


class Keeper:
    """The engine, who watches it, and the processes that were started for goals."""

    def __init__(self, satchel: Satchel, live: Live) -> None:
        self._satchel = satchel
        self._live = live
        self._engine: Engine | None = None
        self._opening: asyncio.Task[Engine] | None = None
        self._began = 0.0
        """When the opening began."""
        self._left = False
        self._bringing: dict[str, asyncio.Lock] = {}
        """One request at a time lets a goal go on."""
        self._failed: tuple[float, SatchelError] | None = None
        self._looking: dict[str, asyncio.Task[None]] = {}
        self._processes: dict[str, Background] = {}
        self._going: set[asyncio.Task[None]] = set()
        self._allowed: set[str] = set()
        """Goals whose process may let tools write."""
        self._layouts: dict[tuple[bytes, str], Layout] = {}
        """What a plan and a language make of boxes: another goal may take a name that was free."""
        self.start: Callable[..., Background] = go_on
        """Starts a process for a goal; a test has another."""
        live.asked = self._asked

    @property
    def shared(self) -> bool:
        """Whether workers of other machines do the steps."""
        return is_shared(self._satchel.settings, None)

    @property
    def name(self) -> str:
        """What the engine is called."""
        return self._satchel.settings.engine

    async def engine(self) -> Engine:
        """The engine, opened now at the latest.

        One that takes long to open goes on with it: whoever asks later finds the same one.

        Raises:
            SatchelError: it is not open yet, or cannot be; the next one who asks tries again.
        """
        if self._engine is not None:
            return self._engine
        if self._left:
            raise self._broken(RuntimeError(say("the server ends")))
        if self._opening is None:
            if self._failed is not None and time.monotonic() - self._failed[0] < AGAIN:
                raise self._failed[1]
            self._began = time.monotonic()
            self._opening = asyncio.create_task(self._open())
            self._opening.add_done_callback(_hear)
        opening = self._opening
        # Who comes after it took too long is told so at once.
        patience = max(GAP, self._began + PATIENCE - time.monotonic())
        if opening not in (await asyncio.wait((opening,), timeout=patience))[0]:
            raise self._broken(TimeoutError())
        return opening.result()

    async def _open(self) -> Engine:
        """Open it, however long it takes: what is opened in a thread cannot be called back."""
        try:
            opened = await open_engine(self._satchel.settings).__aenter__()
        except Exception as exc:
            ours = exc if isinstance(exc, SatchelError) else self._broken(exc)
            self._failed = (time.monotonic(), ours)
            raise ours from exc
        finally:
            self._opening = None
        if self._left:  # nobody wants it any more
            await opened.__aexit__(None, None, None)
            raise self._broken(RuntimeError(say("the server ends")))
        self._engine = opened
        return opened

    async def ask(self, what: Callable[[Engine], Awaitable[_Given]]) -> _Given:
        """Ask the engine something.

        Raises:
            SatchelError: it cannot be opened, does not answer, or says no.
        """
        engine = await self.engine()
        try:
            async with asyncio.timeout(PATIENCE):
                if engine.name != "local":
                    return await what(engine)
                # Its journals are files: reading them must hold up nobody else's page.
                return await asyncio.to_thread(lambda: asyncio.run(_whole(what(engine))))
        except SatchelError:
            raise
        except Exception as exc:
            raise self._broken(exc) from exc

    def _broken(self, exc: Exception) -> ServerFailed:
        why = say("it takes too long") if isinstance(exc, TimeoutError) else str(exc).strip()
        return ServerFailed(
            say("The engine `{engine}` does not answer: {reason}", engine=self.name,
                reason=(why or type(exc).__name__).splitlines()[0]),
            say("Look whether its database or its server runs; the page tries again"),
        )  # fmt: skip

    async def close(self) -> None:
        """Look no more. Goals go on: their processes are not ours."""
        self._live.asked = None
        self._left = True
        tasks = list(self._looking.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._going:
            await asyncio.wait(set(self._going), timeout=LEAVING)
        if self._opening is not None:  # it closes itself
            await asyncio.wait((self._opening,), timeout=LEAVING)
        engine, self._engine = self._engine, None
        if engine is not None:
            await engine.__aexit__(None, None, None)

    async def drawing(self, report: GoalReport) -> str:
        """A goal drawn as it stands, as a part of a page. Where boxes stand is found out once."""
        key = (_mark(report.plan), language())
        layout = self._layouts.get(key)
        if layout is None:
            layout = await asyncio.to_thread(steady_layout, report.plan)
            while len(self._layouts) >= _KEPT:
                self._layouts.pop(next(iter(self._layouts)), None)
            self._layouts[key] = layout
        return to_inline_svg(report, lambda step: f"/goals/{report.id}?step={step}", layout)

    # --- bringing on ----------------------------------------------------------------------

    async def bring_on(self, wish: Wish, begin: Callable[[Engine], Awaitable[Any]]) -> None:
        """Let a goal go on as `begin` says, by the rules of the terminal; one at a time.

        A process that goes on with the goal already hears of it. If it was just ending, the page
        still asks, and the same answer starts another process.

        Args:
            wish: What somebody wants.
            begin: Says it to the engine.

        Raises:
            MissingExtra: steps would be done here, and the extra `agent` is not installed.
            InvalidInput: a step asks a model, and none is chosen.
            Refused: a step calls what nobody allowed.
            Conflict: the goal is not as somebody thought.
        """
        if not self.shared:
            await asyncio.to_thread(self._must_be_able, wish)
        going = asyncio.create_task(self._go_on(wish, begin))
        self._going.add(going)
        going.add_done_callback(self._went)
        try:
            await asyncio.shield(going)  # what is recorded is gone on with, whoever leaves
        except asyncio.CancelledError:
            if going.cancelled():
                raise
            raise self._broken(RuntimeError(say("the server ends"))) from None

    def _went(self, going: asyncio.Task[None]) -> None:
        self._going.discard(going)
        if not going.cancelled():
            going.exception()  # whoever asked was told, unless they left

    async def _go_on(self, wish: Wish, begin: Callable[[Engine], Awaitable[Any]]) -> None:
        """Record it first; who goes on with it is looked for after that."""
        goal_id = wish.report.id
        async with self._bringing.setdefault(goal_id, asyncio.Lock()):
            await self.ask(begin)
            self.tell(goal_id)
            if self.shared:
                return
            if self.is_on(goal_id) and (not wish.allow or goal_id in self._allowed):
                return
            if not await self._is_taken(goal_id):
                await self._start(goal_id, allow=wish.allow)

    def _must_be_able(self, wish: Wish) -> None:
        if asks_model(wish.left) or asks_model(not_done(wish.report)):
            must_be_installed("pydantic_ai", "agent")
        settings = self._satchel.settings
        if needs_model(wish.left) and not settings.model:
            raise InvalidInput(
                say("No model is chosen"),
                say("Set `SATCHEL_MODEL` where `satchel ui` is started, or run `{command}`",
                    command=f"{wish.command} --model PROVIDER:NAME"),
            )  # fmt: skip
        step = None if wish.allow else unallowed(self._satchel, wish.left.steps)
        if step is not None:
            raise Refused(
                say("Step `{step}` calls `{tool}`, which may write or use the network",
                    step=step.id, tool=step.tool),
                say("Tick the box that allows it, or run `{command}`",
                    command=f"{wish.command} --allow-tools"),
            )  # fmt: skip

    async def _is_taken(self, goal_id: str) -> bool:
        """Whether a worker of this machine took it; `local` has none."""
        if self.name == "local":
            return False
        patience = time.monotonic() + TAKEN
        while time.monotonic() < patience:
            report = await self.ask(lambda engine: engine.report(goal_id))
            if report.state in OVER or (report.state == "running" and not report.reason):
                return True
            await asyncio.sleep(GAP)
        return False

    async def _start(self, goal_id: str, *, allow: bool) -> None:
        options = ["--engine", self.name, *(["--allow-tools"] if allow else [])]
        settings = self._satchel.settings
        self._processes[goal_id] = await asyncio.to_thread(
            self.start, settings, goal_id, options, project=settings.project
        )
        (self._allowed.add if allow else self._allowed.discard)(goal_id)

    def is_on(self, goal_id: str) -> bool:
        """Whether a process that was started here goes on with a goal."""
        found = self._processes.get(goal_id)
        return found is not None and found.process.poll() is None

    def trouble(self, goal_id: str) -> str:
        """What a process that was started here said when it could not go on; else nothing."""
        found = self._processes.get(goal_id)
        code = None if found is None else found.process.poll()
        return "" if found is None or code is None or code in _EXPECTED else found.last_words()

    # --- looking --------------------------------------------------------------------------

    def tell(self, goal_id: str) -> None:
        """Something happened to a goal: pages look anew."""
        self._live.tell(f"{GOAL}{goal_id}")
        self._live.tell(LIST)

    def _asked(self, name: str) -> None:
        """A page begins to listen; what happened since it was made it has not seen."""
        self._live.tell(name)
        if name not in self._looking:
            self._looking[name] = asyncio.create_task(self._look(name))

    async def _look(self, name: str) -> None:
        """Tell pages when something changed, while there are any."""
        seen: Hashable = None
        watching: asyncio.Task[None] | None = None
        nudge = asyncio.Event()
        try:
            while self._live.is_wanted(name):
                began = time.monotonic()
                now, moves = await self._sign(name)
                if seen is not None and now != seen:
                    self._live.tell(name)
                seen = now
                if moves and name != LIST and (watching is None or watching.done()):
                    watching = asyncio.create_task(self._watch(name.removeprefix(GOAL), nudge))
                took = time.monotonic() - began
                alone = watching is None and name != LIST and self.name == "local"
                with suppress(TimeoutError):
                    async with asyncio.timeout(max(QUICK if alone else PERIOD, took * _SHARE)):
                        await nudge.wait()
                nudge.clear()
                await asyncio.sleep(GAP)
        finally:
            self._looking.pop(name, None)
            if watching is not None:
                watching.cancel()
                await asyncio.gather(watching, return_exceptions=True)

    async def _sign(self, name: str) -> tuple[Hashable, bool]:
        """What tells one moment from another, and whether somebody is at work."""
        goal_id = name.removeprefix(GOAL)
        try:
            if name == LIST:
                return tuple(await self.ask(lambda one: one.list(limit=LONGEST))), False
            report = await self.ask(lambda one: one.report(goal_id))
        except SatchelError as exc:
            return (type(exc).__name__, exc.message), False
        steps = tuple(
            (one.state, one.attempts, one.started, one.seconds) for one in report.steps.values()
        )
        found = self._processes.get(goal_id)
        gone = None if found is None else found.process.poll()
        sign = (report.state, report.revision, report.reason, steps, gone)
        # Journals of `local` are read as quickly as its own watchers would.
        return sign, report.state in {"queued", "running"} and self.name != "local"

    async def _watch(self, goal_id: str, nudge: asyncio.Event) -> None:
        """Hear of events till the goal is over or asks; whoever looks says what they mean."""
        with suppress(Exception):  # the next look says what is wrong
            engine = await self.engine()
            async for _ in engine.watch(goal_id):
                nudge.set()


def _mark(plan: Plan) -> bytes:
    """What tells one plan from another."""
    return sha256(repr(plan).encode("utf-8", "surrogatepass")).digest()


async def _whole(one: Awaitable[_Given]) -> _Given:
    return await one


def _hear(opening: asyncio.Task[Engine]) -> None:
    """An opening that fails when nobody waits for it any more: the next one who asks is told."""
    if not opening.cancelled():
        opening.exception()
