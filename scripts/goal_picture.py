"""Drawings of plans that stand alone, for the documentation: with colours, fonts and two themes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from satchel.goals.drawing import (
    TEXT_FONT_PX,
    TITLE_FONT_PX,
    body_of,
    box_of,
    lay_out_plan,
    size_of,
    xml_text_of,
)
from satchel.goals.labels import labels

if TYPE_CHECKING:
    from satchel.goals.model import GoalReport, Plan

_LIGHT = {
    "": ("#ffffff", "#8c959f", "#57606a"),
    "waiting": ("#ffffff", "#8c959f", "#57606a"),
    "running": ("#ddf4ff", "#0969da", "#0550ae"),
    "asking": ("#fff8c5", "#bf8700", "#7d4e00"),
    "done": ("#dafbe1", "#1a7f37", "#116329"),
    "failed": ("#ffebe9", "#cf222e", "#a40e26"),
    "skipped": ("#f6f8fa", "#afb8c1", "#6e7781"),
    "cancelled": ("#f6f8fa", "#afb8c1", "#6e7781"),
}
"""State -> fill, border and mark colours."""
_DARK = {
    "": ("#161b22", "#6e7681", "#9ea7b3"),
    "waiting": ("#161b22", "#6e7681", "#9ea7b3"),
    "running": ("#0d2440", "#58a6ff", "#a5d6ff"),
    "asking": ("#3b2300", "#d29922", "#e3b341"),
    "done": ("#0f2d1a", "#3fb950", "#7ee787"),
    "failed": ("#330f11", "#f85149", "#ffa198"),
    "skipped": ("#161b22", "#484f58", "#8b949e"),
    "cancelled": ("#161b22", "#484f58", "#8b949e"),
}
_FONTS = (
    'system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "PingFang SC", '
    '"Microsoft YaHei", "Noto Sans CJK SC", sans-serif'
)


def to_svg(plan: Plan, report: GoalReport | None = None) -> str:
    """Draw a plan, or a goal with its current states."""
    texts = labels(plan, report)
    layout = lay_out_plan(plan, rows=2 if report is None else 3)
    title = xml_text_of(" ".join(plan.goal.split()))
    size = size_of(layout)
    boxes = [box_of(name, box, texts[name]) for name, box in layout.boxes.items()]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{title}">',
        f"<title>{title}</title>",
        f"<style>{_style()}</style>",
        *body_of(layout, boxes, '<rect class="ground" width="100%" height="100%" rx="8"/>'),
    ]
    return "\n".join(parts) + "\n"


def _style() -> str:
    def colours(
        ground: str, ink: str, pale: str, line: str, states: dict[str, tuple[str, str, str]]
    ) -> str:
        rules = [f".ground{{fill:{ground}}}", f".t{{fill:{ink}}}", f".k{{fill:{pale}}}",
                 f".e{{stroke:{line}}}", f".tip{{fill:{line}}}"]  # fmt: skip
        for state, (fill, rim, mark) in states.items():
            name = state or "plan"
            rules.append(f".{name} rect{{fill:{fill};stroke:{rim}}}.{name} .m{{fill:{mark}}}")
        return "".join(rules)

    return (
        f"text{{font-family:{_FONTS};font-size:{TEXT_FONT_PX}px}}.t{{font-size:{TITLE_FONT_PX:.0f}px;"
        f"font-weight:600}}.m{{font-size:{TITLE_FONT_PX:.0f}px;font-weight:700;text-anchor:middle}}"
        ".e{fill:none;stroke-width:1.5}rect{stroke-width:1.5}.ground{stroke:none}"
        ".waiting rect,.skipped rect{stroke-dasharray:4 3}"
        + colours("#ffffff", "#1f2328", "#59636e", "#8c959f", _LIGHT)
        + "@media (prefers-color-scheme:dark){"
        + colours("#0d1117", "#e6edf3", "#9198a1", "#6e7681", _DARK)
        + "}"
    )
