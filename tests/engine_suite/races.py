"""Two changes of a goal at the same moment: one happens, or one after the other; none is lost."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, Any

from engine_suite.bench import Gate, holds, person, work
from satchel.errors import Conflict
from satchel.goals.model import Answer
from sizes import sized

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from engine_suite.bench import Bench
    from satchel.goals.model import Goal

ROUNDS = sized(1, 200)
"""Of each pair of changes."""
CHANGES: dict[str, Callable[[Bench, Goal], Awaitable[Any]]] = {
    "answer": lambda bench, goal: bench.engine.answer(goal.id, "ask", Answer(value="yes")),
    "other answer": lambda bench, goal: bench.engine.answer(goal.id, "ask", Answer(value="no")),
    "retry": lambda bench, goal: bench.engine.retry(goal.id, from_step="a"),
    "cancel": lambda bench, goal: bench.engine.cancel(goal.id),
    "resume": lambda bench, goal: bench.engine.resume(goal.id),
}


async def changes_at_the_same_moment(bench: Bench) -> None:
    """Every change that was accepted has happened, and none that was refused."""
    for pair in itertools.combinations_with_replacement(CHANGES, 2):
        for _ in range(ROUNDS):
            await _race(bench, *pair)


async def _race(bench: Bench, *names: str) -> None:
    """Make changes of a goal that asks at the same moment, and compare what came of them."""
    gate = Gate()
    goal = bench.goal(
        work("a"), person("ask", "a"), work("paid", "ask"), work={"paid": holds(gate)}
    )
    await bench.run(goal, "asking")
    script = bench.script(goal)
    script.acts["a"] = holds(gate)  # nothing comes to an end before both changes are made
    results = await asyncio.gather(
        *(CHANGES[name](bench, goal) for name in names), return_exceptions=True
    )
    for result in results:
        assert not isinstance(result, BaseException) or isinstance(result, Conflict), result
    refused = [isinstance(result, Conflict) for result in results]
    accepted = [name for name, no in zip(names, refused, strict=True) if not no]
    gate.open()
    report = await bench.engine.wait(goal.id, bench.patience)
    about = (names, accepted, report)
    answered = any("answer" in name for name in accepted)
    assert accepted, about
    assert {*accepted} != {"answer", "other answer"}, about
    assert not (answered and "retry" in accepted), about
    assert accepted.count("retry") <= 1, about
    # A cancellation may take the revision of a retry that has only been prepared.
    revisions = {1, 2} if {*accepted} == {"cancel"} else {1 + accepted.count("retry")}
    assert report.revision in revisions, about
    expected = {"done"} if answered else {"asking"}
    if "cancel" in accepted:
        expected = {"cancelled", "asking"} if "retry" in accepted else {"cancelled"}
    assert report.state in expected, about
    # Paid once, and only where the report shows it.
    assert script.times("paid") <= answered, about
    assert script.times("a") <= report.revision, about
