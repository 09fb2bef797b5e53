"""Budget of a goal: usage of all its runs against its limits.

A revision continues with what earlier revisions left. `satchel goal retry --plan` raises the
budget. Steps that run at the same time are not coordinated: together they may exceed it. This
module uses no file, clock or environment, because it runs inside workflows too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from satchel.goals.model import NO_USAGE, GoalBudget, StepResult
from satchel.goals.reports import NO_SPENT, Spent, run_seconds, total
from satchel.i18n import Message, join_messages

if TYPE_CHECKING:
    from collections.abc import Mapping

    from satchel.goals.model import Plan


class BudgetTracker:
    """Usage of a goal with a budget so far."""

    def __init__(self, plan: Plan, earlier: Spent = NO_SPENT) -> None:
        self._plan = plan
        self._earlier = earlier
        self._tokens = _tokens(earlier)
        self._cost = earlier.usage.cost or 0.0

    def add(self, result: StepResult) -> None:
        """Add the usage of a step that ended."""
        usage = result.usage
        self._tokens += usage.input_tokens + usage.output_tokens
        self._cost += usage.cost or 0.0

    def used_up(
        self, results: Mapping[str, StepResult], running: Mapping[str, float], now: float
    ) -> str:
        """The part of the budget that is used up; empty when none is."""
        tokens, cost, seconds = self._plan.budget
        left = self.remaining(results, running, now)
        before = self._earlier
        if left.tokens is not None and left.tokens <= 0:
            return _used(f"{tokens} tokens", str(_tokens(before) or ""))
        if left.cost is not None and left.cost <= 0:
            return _used(f"${cost:g}", f"${before.usage.cost:g}" if before.usage.cost else "")
        if left.seconds is not None and left.seconds <= 0:
            return _used(f"{seconds:g} s", f"{before.seconds:g}" if before.seconds else "")
        return ""

    def remaining(
        self, results: Mapping[str, StepResult], running: Mapping[str, float], now: float
    ) -> GoalBudget:
        """The remaining budget; None where there is no limit."""
        tokens, cost, seconds = self._plan.budget
        if seconds is not None:
            live = {
                name: StepResult(name, "running", started=since, seconds=max(0.0, now - since))
                for name, since in running.items()
            }
            seconds -= run_seconds(self._plan, {**results, **live}) + self._earlier.seconds
        return GoalBudget(
            None if tokens is None else tokens - self._tokens,
            None if cost is None else cost - self._cost,
            seconds,
        )


def _tokens(earlier: Spent) -> int:
    return earlier.usage.input_tokens + earlier.usage.output_tokens


def _used(budget: str, before: str) -> str:
    """Describe which budget is used up, and the share of earlier runs."""
    used = Message("The budget of {budget} is used up", budget=budget)
    if not before:
        return used
    return join_messages((used, Message("earlier runs took {amount}", amount=before)))


def spent_before(
    plan: Plan,
    results: Mapping[str, StepResult],
    kept: Mapping[str, StepResult],
    earlier: Spent = NO_SPENT,
) -> Spent:
    """Usage that a new revision cannot derive from the results it keeps."""
    gone = total(one.usage for name, one in results.items() if name not in kept)
    held = {name: one for name, one in results.items() if name in kept}
    seconds = max(0.0, run_seconds(plan, results) - run_seconds(plan, held))
    if gone == NO_USAGE and not seconds:
        return earlier
    return Spent(total((earlier.usage, gone)), earlier.seconds + seconds)
