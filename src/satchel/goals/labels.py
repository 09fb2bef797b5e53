"""Texts of the boxes in drawings of plans, shared by all formats."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from satchel.i18n import render, say

if TYPE_CHECKING:
    from satchel.goals.model import GoalReport, Plan, Step, StepResult, Usage

MARKS = {
    "waiting": "○",
    "running": "◐",
    "asking": "?",
    "done": "✓",
    "failed": "✗",
    "skipped": "–",
    "cancelled": "■",
}
"""State of a step -> its mark, so that colour is never the only sign."""
_MINUTE_S = 60.0


def state_word(state: str) -> str:
    """The name of a step's or goal's state in the reader's language."""
    return {
        "queued": say("queued"),
        "waiting": say("{count} waiting", count="").strip(),
        "running": say("running"),
        "asking": say("waiting for you"),
        "done": say("{count} done", count="").strip(),  # `done` alone is another word elsewhere
        "partial": say("partial"),
        "failed": say("failed"),
        "skipped": say("skipped"),
        "cancelling": say("cancelling"),
        "cancelled": say("cancelled"),
        "damaged": say("damaged"),
    }.get(state, state)


class Label(NamedTuple):
    """The texts of one box."""

    title: str
    kind: str
    """Type of the step, with its skill, tool or model."""
    state: str = ""
    """Empty for a plan that is not run."""
    taken: str = ""
    """Usage, or the reason of a failure."""
    person: bool = False


def label_of(step: Step, result: StepResult | None = None) -> Label:
    """The texts of a step's box."""
    title = " ".join((step.title or step.id).split())
    if result is None:
        return Label(title, kind_of(step), person=step.action_type == "human")
    taken = ""
    if result.error is not None and result.state in {"failed", "skipped"}:
        taken = " ".join(render(result.error.message).split())
    elif result.state in {"done", "running"} and (result.seconds or result.usage.requests):
        taken = usage_line(result) if step.action_type != "human" else waiting_time(result)
    return Label(title, kind_of(step), result.state, taken, step.action_type == "human")


def labels(plan: Plan, report: GoalReport | None) -> dict[str, Label]:
    """Step id -> its texts."""
    if report is None:
        return {step.id: label_of(step) for step in plan.steps}
    return {step.id: label_of(step, report.steps.get(step.id)) for step in plan.steps}


def kind_of(step: Step) -> str:
    """Describe the type of a step in a few words."""
    if step.action_type == "skill":
        return say("skill {name}", name=step.skill)
    if step.action_type == "tool":
        return say("tool {name}", name=step.tool)
    if step.action_type == "human":
        return say("a person")
    return step.model or say("model")


def usage_line(result: StepResult) -> str:
    """Time, tokens and attempts of a step."""
    parts = [format_seconds(result.seconds)]
    tokens = result.usage.input_tokens + result.usage.output_tokens
    if tokens:
        parts.append(say("{count} tokens", count=f"{tokens:,}"))
    if result.attempts > 1:
        parts.append(say("{count} tries", count=result.attempts))
    return " · ".join(parts)


def usage_words(usage: Usage) -> tuple[str, ...]:
    """Usage of models as text; empty when none was called."""
    if not usage.requests and not usage.input_tokens:
        return ()
    noun = say("request") if usage.requests == 1 else say("requests")
    words = (
        say("{count} {noun}", count=f"{usage.requests:,}", noun=noun),
        say("{count} tokens in", count=f"{usage.input_tokens:,}"),
        say("{count} tokens out", count=f"{usage.output_tokens:,}"),
    )
    return words if usage.cost is None else (*words, f"${usage.cost:.4f}")


def waiting_time(result: StepResult) -> str:
    """How long a step waited for a person; empty when negligible."""
    return say("waited {time}", time=format_seconds(result.seconds)) if result.seconds >= 1 else ""


def format_seconds(amount: float) -> str:
    """Format a duration."""
    if amount >= _MINUTE_S:
        seconds = round(amount)
        hours, minutes = divmod(seconds // 60, 60)
        if hours:
            return f"{hours} h {minutes:02} min"
        return f"{minutes} min {seconds % 60:02} s"
    return f"{amount:.1f} s" if amount >= 1 else f"{round(amount * 1000)} ms"
