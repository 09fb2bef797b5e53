"""How is a plan written as a Mermaid flowchart? For pages that draw such text themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from satchel.goals.drawing.words import MARKS, labels
from satchel.goals.wiring import needs_of

if TYPE_CHECKING:
    from satchel.goals.drawing.words import Label
    from satchel.goals.model import GoalReport, Plan

_CLASSES = {
    "waiting": "stroke-dasharray:4 3",
    "running": "stroke:#0969da,stroke-width:2px",
    "asking": "stroke:#bf8700,stroke-width:2px",
    "done": "stroke:#1a7f37,stroke-width:2px",
    "failed": "stroke:#cf222e,stroke-width:2px",
    "skipped": "stroke:#8c959f,stroke-dasharray:4 3",
    "cancelled": "stroke:#8c959f",
}
"""Only rims: the page's theme fills the boxes, by day and by night."""
_SHAPES = {"human": ("{{", "}}"), "tool": ("[[", "]]"), "skill": ("(", ")")}
"""Who does it -> the form of the box; a model's is a plain one."""


def to_mermaid(plan: Plan, report: GoalReport | None = None) -> str:
    """Write a plan, or a goal as far as it is.

    Args:
        plan: What to draw; without cycles.
        report: Where its states come from.
    """
    said = labels(plan, report)
    names = {step.id: f"s{number}" for number, step in enumerate(plan.steps, 1)}
    lines = ["flowchart TD"]
    for step in plan.steps:
        opens, closes = _SHAPES.get(step.action_type, ("[", "]"))
        label = said[step.id]
        state = f":::{label.state}" if label.state else ""
        lines.append(f'    {names[step.id]}{opens}"{_words(label)}"{closes}{state}')
    lines += [
        f"    {names[need]} --> {names[step.id]}"
        for step in plan.steps
        for need in needs_of(step)
        if need in names
    ]
    used = {label.state for label in said.values()}
    lines += [f"    classDef {state} {look}" for state, look in _CLASSES.items() if state in used]
    return "\n".join(lines) + "\n"


def _words(label: Label) -> str:
    mark = f"{MARKS[label.state]} " if label.state else ""
    parts = (f"{mark}{label.title}", label.kind, label.taken)
    return "<br>".join(_text(part) for part in parts if part)


def _text(text: str) -> str:
    """`text` as a label takes it: whatever could end it, or be markup, is a numbered entity."""
    line = "".join(char for char in " ".join(text.split()) if char.isprintable())
    return "".join(f"#{ord(char)};" if char in '#"&<>`\\*_[]{}()|;%' else char for char in line)
