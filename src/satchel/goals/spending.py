"""Is the budget used up? What all runs of a goal took together, against what it may take.

The budget is the goal's: a revision that is tried again goes on with what the ones before left.
Who has used it up gives the goal a larger one, with `satchel goal retry --plan`.

Steps that run at once do not know of each other: together they may go over it. Nothing here knows
a file, a clock or the environment: it runs inside workflows too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from satchel._language import Message, several
from satchel.goals.model import NO_USAGE, Budget, StepResult
from satchel.goals.reports import NOTHING, Spent, at_work, total

if TYPE_CHECKING:
    from collections.abc import Mapping

    from satchel.goals.model import Plan


class Spending:
    """What a goal with a budget took so far.

    Args:
        plan: With the budget.
        earlier: What earlier revisions took for results that are not kept.
    """

    def __init__(self, plan: Plan, earlier: Spent = NOTHING) -> None:
        self._plan = plan
        self._earlier = earlier
        self._tokens = _tokens(earlier)
        self._cost = earlier.usage.cost or 0.0

    def add(self, result: StepResult) -> None:
        """A step has ended."""
        usage = result.usage
        self._tokens += usage.input_tokens + usage.output_tokens
        self._cost += usage.cost or 0.0

    def used_up(
        self, results: Mapping[str, StepResult], running: Mapping[str, float], now: float
    ) -> str:
        """Which part of the budget allows no new step; empty when all do.

        Args:
            results: Of the steps that ended.
            running: Step -> since when it runs.
            now: The time.
        """
        tokens, cost, seconds = self._plan.budget
        left = self.left(results, running, now)
        before = self._earlier
        if left.tokens is not None and left.tokens <= 0:
            used = Message("The budget of {count} tokens is used up", count=tokens)
            return _with(used, str(_tokens(before) or ""))
        if left.cost is not None and left.cost <= 0:
            used = Message("The budget of ${cost} is used up", cost=f"{cost:g}")
            return _with(used, f"${before.usage.cost:g}" if before.usage.cost else "")
        if left.seconds is not None and left.seconds <= 0:
            used = Message("The budget of {count} seconds is used up", count=f"{seconds:g}")
            return _with(used, f"{before.seconds:g}" if before.seconds else "")
        return ""

    def left(
        self, results: Mapping[str, StepResult], running: Mapping[str, float], now: float
    ) -> Budget:
        """What may still be taken; None where there is no limit."""
        tokens, cost, seconds = self._plan.budget
        if seconds is not None:
            live = {
                name: StepResult(name, "running", started=since, seconds=max(0.0, now - since))
                for name, since in running.items()
            }
            seconds -= at_work(self._plan, {**results, **live}) + self._earlier.seconds
        return Budget(
            None if tokens is None else tokens - self._tokens,
            None if cost is None else cost - self._cost,
            seconds,
        )


def _tokens(earlier: Spent) -> int:
    return earlier.usage.input_tokens + earlier.usage.output_tokens


def _with(used: Message, before: str) -> str:
    """Which budget is used up, and what of it earlier runs took."""
    if not before:
        return used
    return several((used, Message("before it was tried again it took {amount}", amount=before)))


def spent(
    plan: Plan,
    results: Mapping[str, StepResult],
    kept: Mapping[str, StepResult],
    earlier: Spent = NOTHING,
) -> Spent:
    """What a new revision cannot see in the results that it keeps.

    Args:
        plan: Of the revision that ends.
        results: Of that revision.
        kept: Those that still hold.
        earlier: The same, of the revisions before.
    """
    gone = total(one.usage for name, one in results.items() if name not in kept)
    held = {name: one for name, one in results.items() if name in kept}
    seconds = max(0.0, at_work(plan, results) - at_work(plan, held))
    if gone == NO_USAGE and not seconds:
        return earlier
    return Spent(total((earlier.usage, gone)), earlier.seconds + seconds)
