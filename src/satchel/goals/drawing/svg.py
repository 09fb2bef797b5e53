"""How is a plan drawn as an SVG? One file without scripts, fonts or links, by day and by night.

Inside a page it has neither colours nor fonts of its own, and each box is a link: `to_inline_svg`.
Whatever a plan says is text here: it is escaped, and characters that XML does not allow are left
out. The colours follow the reader's own choice of light or dark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from satchel.goals.drawing.layout import place
from satchel.goals.drawing.words import MARKS, labels, state_word
from satchel.goals.wiring import needs_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from satchel.goals.drawing.layout import Box, Layout, Line
    from satchel.goals.drawing.words import Label
    from satchel.goals.model import GoalReport, Plan

_SIZE, _SMALL = 14.0, 11.5
"""Pixels of the title's font, and of the words below it."""
_BOLD = 1.18
"""How much wider a bold letter is; Chinese characters are not."""
_EDGE = 24.0
_ROW, _GAP = 20.0, 16.0
_LEFT, _RIGHT = 36.0, 16.0
"""Room inside a box before and after the words; the mark of a state stands before them."""
_NARROW, _WIDE = 132.0, 248.0
_STEADY = 148.0
"""Room for what a step took: a box that grew while people look would move all others."""
_NARROW_LETTERS = frozenset("iljtfrI.,:;'|!()[] -")
_WIDE_LETTERS = frozenset("mwMW@%—…")

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
"""State -> what fills its box, the box's rim, and its mark."""
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
_TIP = (
    '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
    'orient="auto-start-reverse"><path class="tip" d="M0 0.8 7.4 4 0 7.2z"/></marker></defs>'
)
_FONTS = (
    'system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "PingFang SC", '
    '"Microsoft YaHei", "Noto Sans CJK SC", sans-serif'
)


def to_svg(plan: Plan, report: GoalReport | None = None) -> str:
    """Draw a plan, or a goal as far as it is.

    Args:
        plan: What to draw; without cycles.
        report: Where its states come from.
    """
    said = labels(plan, report)
    sizes = {name: _size_of(label) for name, label in said.items()}
    edges = [(need, step.id) for step in plan.steps for need in needs_of(step)]
    layout = place(sizes, edges)
    width, height = layout.width + 2 * _EDGE, layout.height + 2 * _EDGE
    title = _text(" ".join(plan.goal.split()))
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}" role="img" aria-label="{title}">'
    )
    parts = [
        head,
        f"<title>{title}</title>",
        f"<style>{_style()}</style>",
        _TIP,
        '<rect class="ground" width="100%" height="100%" rx="8"/>',
        f'<g transform="translate({_EDGE:.0f} {_EDGE:.0f})">',
        *(_line(line) for line in layout.lines),
        *(_box(name, box, said[name]) for name, box in layout.boxes.items()),
        "</g>",
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def steady_layout(plan: Plan) -> Layout:
    """Where boxes stand whatever happens to their steps: for drawings that are looked at live."""
    sizes: dict[str, tuple[float, float]] = {}
    for name, label in labels(plan, None).items():
        words = max(_width(label.title, _SIZE, _BOLD), _width(label.kind, _SMALL), _STEADY)
        sizes[name] = (min(words, _WIDE) + _LEFT + _RIGHT, 3 * _ROW + _GAP)
    return place(sizes, [(need, step.id) for step in plan.steps for need in needs_of(step)])


def to_inline_svg(
    report: GoalReport, link: Callable[[str], str], layout: Layout | None = None
) -> str:
    """Draw a goal as a part of a page, which has the colours: by the same classes.

    Args:
        report: How far it is.
        link: Step id -> the address of its details.
        layout: What `steady_layout` made of the same plan, where somebody kept it.
    """
    layout = layout or steady_layout(report.plan)
    said = labels(report.plan, report)
    width, height = layout.width + 2 * _EDGE, layout.height + 2 * _EDGE
    size = f'viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}"'
    title = _text(" ".join(report.plan.goal.split()))
    parts = [
        f'<svg {size} role="group" aria-label="{title}">',
        _TIP,
        f'<g transform="translate({_EDGE:.0f} {_EDGE:.0f})">',
        *(_line(line) for line in layout.lines),
        *(
            _linked(name, box, said[name], link(name), report.steps[name].started)
            for name, box in layout.boxes.items()
        ),
        "</g>",
        "</svg>",
    ]
    return "\n".join(parts)


def _linked(name: str, box: Box, label: Label, address: str, started: float) -> str:
    """A box that leads to its step; one that runs says since when, so that a clock can tick."""
    room = box.width - _LEFT - _RIGHT + 0.5
    x, y = box.x + _LEFT, box.y + _GAP / 2 + 14
    word = state_word(label.state)
    said = ", ".join(part for part in (label.title, label.kind, word, label.taken) if part)
    ticks = ""
    if label.state == "running" and started:
        ticks = f' data-since="{started:.3f}" data-word="{_text(word)}"'
    taken = _cut(label.taken or word, room, _SMALL)
    return "".join((
        (f'<a class="{label.state}" href="{_text(address)}" data-step="{_text(name)}" '
        f'id="box-{_text(name)}"><title>{_text(said)}</title>'),
        f'<rect x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}"',
        f' height="{box.height:.1f}" rx="{box.height / 2 if label.person else 7:.0f}"/>',
        _words("t", x, y, _cut(label.title, room, _SIZE, _BOLD)),
        _words("k", x, y + _ROW, _cut(label.kind, room, _SMALL)),
        f'<text class="k s" x="{x:.1f}" y="{y + 2 * _ROW:.1f}"{ticks}>{_text(taken)}</text>',
        _words("m", box.x + _LEFT / 2 + 1, y, MARKS[label.state]),
        "</a>",
    ))  # fmt: skip


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
        f"text{{font-family:{_FONTS};font-size:{_SMALL}px}}.t{{font-size:{_SIZE:.0f}px;"
        f"font-weight:600}}.m{{font-size:{_SIZE:.0f}px;font-weight:700;text-anchor:middle}}"
        ".e{fill:none;stroke-width:1.5}rect{stroke-width:1.5}.ground{stroke:none}"
        ".waiting rect,.skipped rect{stroke-dasharray:4 3}"
        + colours("#ffffff", "#1f2328", "#59636e", "#8c959f", _LIGHT)
        + "@media (prefers-color-scheme:dark){"
        + colours("#0d1117", "#e6edf3", "#9198a1", "#6e7681", _DARK)
        + "}"
    )


def _size_of(label: Label) -> tuple[float, float]:
    words = max(
        _width(label.title, _SIZE, _BOLD),
        _width(label.kind, _SMALL),
        min(_width(label.taken, _SMALL), _WIDE),
    )
    rows = 3 if label.taken else 2
    aside = _aside(label)
    wide = min(max(words + aside, _NARROW), _WIDE + aside)
    return wide, rows * _ROW + _GAP


def _aside(label: Label) -> float:
    return (_LEFT if label.state else _RIGHT) + _RIGHT


def _box(name: str, box: Box, label: Label) -> str:
    room = box.width - _aside(label) + 0.5
    x, y = box.x + _aside(label) - _RIGHT, box.y + _GAP / 2 + 14
    parts = (label.title, f"{name}: {label.kind}", label.state, label.taken)
    made = [
        f'<g class="{label.state or "plan"}"><title>{_text(_lines(parts))}</title>',
        f'<rect x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}"',
        f' height="{box.height:.1f}" rx="{box.height / 2 if label.person else 7:.0f}"/>',
        _words("t", x, y, _cut(label.title, room, _SIZE, _BOLD)),
        _words("k", x, y + _ROW, _cut(label.kind, room, _SMALL)),
    ]
    if label.taken:
        made.append(_words("k", x, y + 2 * _ROW, _cut(label.taken, room, _SMALL)))
    if label.state:
        made.append(_words("m", box.x + _LEFT / 2 + 1, y, MARKS[label.state]))
    return "".join([*made, "</g>"])


def _lines(parts: Iterable[str]) -> str:
    return "\n".join(part for part in parts if part)


def _words(look: str, x: float, y: float, text: str) -> str:
    return f'<text class="{look}" x="{x:.1f}" y="{y:.1f}">{_text(text)}</text>'


def _line(line: Line) -> str:
    """Curves from place to place, that leave and arrive upright; straight through a lane."""
    (x, y), *rest = line.points
    path = f"M{x:.1f} {y:.1f}"
    for at, (to_x, to_y) in enumerate(rest):
        if at % 2:  # through a lane
            path += f"V{to_y:.1f}"
        elif abs(to_x - x) < 0.5:
            path += f"L{to_x:.1f} {to_y:.1f}"
        else:
            middle = (y + to_y) / 2
            path += f"C{x:.1f} {middle:.1f} {to_x:.1f} {middle:.1f} {to_x:.1f} {to_y:.1f}"
        x, y = to_x, to_y
    return f'<path class="e" d="{path}" marker-end="url(#tip)"/>'


def _width(text: str, size: float, bold: float = 1.0) -> float:
    """About how wide a text is. Nobody knows the reader's font, so rather a little too wide."""
    return sum(_letter(char, bold) for char in text) * size


def _letter(char: str, bold: float) -> float:
    if char.isascii():
        if char in _NARROW_LETTERS:
            return 0.36 * bold
        return (0.88 if char in _WIDE_LETTERS else 0.68 if char.isupper() else 0.57) * bold
    from unicodedata import category, east_asian_width

    if east_asian_width(char) in "WF":
        return 1.0
    return 0.0 if category(char) in {"Mn", "Me", "Cf"} else 0.65 * bold


def _cut(text: str, room: float, size: float, bold: float = 1.0) -> str:
    """`text` as far as there is room; `…` says that there was more."""
    if _width(text, size, bold) <= room:
        return text
    used = _letter("…", bold)
    for at, char in enumerate(text):
        used += _letter(char, bold)
        if used * size > room:
            return text[:at].rstrip() + "…"
    return text


def _text(text: str) -> str:
    """`text` as XML takes it, in attributes too."""
    kept = "".join(char for char in text if _allowed(ord(char)))
    for char, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;")):
        kept = kept.replace(char, entity)
    return kept


def _allowed(code: int) -> bool:
    """Whether XML 1.0 has the character, and it turns no text around."""
    if code in {0x9, 0xA, 0xD}:
        return True
    if 0x202A <= code <= 0x202E or 0x2066 <= code <= 0x2069 or 0x7F <= code <= 0x9F:
        return False
    return 0x20 <= code <= 0xD7FF or 0xE000 <= code <= 0xFFFD or 0x10000 <= code <= 0x10FFFF


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
        lines.append(f'    {names[step.id]}{opens}"{_mermaid_words(label)}"{closes}{state}')
    lines += [
        f"    {names[need]} --> {names[step.id]}"
        for step in plan.steps
        for need in needs_of(step)
        if need in names
    ]
    used = {label.state for label in said.values()}
    lines += [f"    classDef {state} {look}" for state, look in _CLASSES.items() if state in used]
    return "\n".join(lines) + "\n"


def _mermaid_words(label: Label) -> str:
    mark = f"{MARKS[label.state]} " if label.state else ""
    parts = (f"{mark}{label.title}", label.kind, label.taken)
    return "<br>".join(_mermaid_text(part) for part in parts if part)


def _mermaid_text(text: str) -> str:
    """`text` as a label takes it: whatever could end it, or be markup, is a numbered entity."""
    line = "".join(char for char in " ".join(text.split()) if char.isprintable())
    return "".join(f"#{ord(char)};" if char in '#"&<>`\\*_[]{}()|;%' else char for char in line)
