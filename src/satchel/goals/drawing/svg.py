"""SVG drawings of plans.

A standalone SVG has no scripts, fonts or links, and follows the reader's light or dark theme.
`to_inline_svg` is for pages: without colours and fonts, every box a link. Texts of a plan are
escaped, and characters that XML does not allow are removed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from satchel.goals.drawing.labels import MARKS, labels, state_word
from satchel.goals.drawing.layout import lay_out
from satchel.goals.plan_checks import needs_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from satchel.goals.drawing.labels import Label
    from satchel.goals.drawing.layout import EdgeLine, Layout, NodeBox
    from satchel.goals.model import GoalReport, Plan

_TITLE_FONT_PX, _TEXT_FONT_PX = 14.0, 11.5
_BOLD_RATIO = 1.18
"""Bold Latin letters are wider than regular ones; Chinese characters are not."""
_MARGIN_PX = 24.0
_ROW_PX, _BOX_PADDING_PX = 20.0, 16.0
_LEFT_PX, _RIGHT_PX = 36.0, 16.0
"""Padding before and after the text of a box; the state's mark is before the text."""
_MIN_WIDTH_PX, _MAX_WIDTH_PX = 132.0, 248.0
_USAGE_WIDTH_PX = 148.0
"""Reserved width for usage: a box that grew during a run would move all others."""
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
_TIP = (
    '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
    'orient="auto-start-reverse"><path class="tip" d="M0 0.8 7.4 4 0 7.2z"/></marker></defs>'
)
_FONTS = (
    'system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "PingFang SC", '
    '"Microsoft YaHei", "Noto Sans CJK SC", sans-serif'
)


def to_svg(plan: Plan, report: GoalReport | None = None) -> str:
    """Draw a plan, or a goal with its current states."""
    texts = labels(plan, report)
    layout = _layout(plan, rows=2 if report is None else 3)
    title = _text(" ".join(plan.goal.split()))
    size = _size(layout)
    boxes = [_box(name, box, texts[name]) for name, box in layout.boxes.items()]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{title}">',
        f"<title>{title}</title>",
        f"<style>{_style()}</style>",
        *_body(layout, boxes, '<rect class="ground" width="100%" height="100%" rx="8"/>'),
    ]
    return "\n".join(parts) + "\n"


def stable_layout(plan: Plan) -> Layout:
    """A layout that does not change with the states of steps, for live drawings."""
    return _layout(plan, rows=3)


def to_inline_svg(
    report: GoalReport, link: Callable[[str], str], layout: Layout | None = None
) -> str:
    """Draw a goal as a part of a page, whose style sheet has the colours.

    Args:
        report: The goal.
        link: Step id -> URL of its details.
        layout: A cached `stable_layout` of the same plan.
    """
    layout = layout or stable_layout(report.plan)
    texts = labels(report.plan, report)
    title = _text(" ".join(report.plan.goal.split()))
    boxes = [
        _box(name, box, texts[name], link(name), report.steps[name].started)
        for name, box in layout.boxes.items()
    ]
    head = f'<svg {_size(layout)} role="group" aria-label="{title}">'
    return "\n".join([head, *_body(layout, boxes)])


def _layout(plan: Plan, rows: int) -> Layout:
    """Place the boxes of a plan; the third row is for states and usage."""
    sizes: dict[str, tuple[float, float]] = {}
    for name, label in labels(plan, None).items():
        words = max(
            _width(label.title, _TITLE_FONT_PX, _BOLD_RATIO),
            _width(label.kind, _TEXT_FONT_PX),
            _USAGE_WIDTH_PX if rows > 2 else _MIN_WIDTH_PX,
        )
        sides = (_LEFT_PX if rows > 2 else _RIGHT_PX) + _RIGHT_PX
        sizes[name] = min(words, _MAX_WIDTH_PX) + sides, rows * _ROW_PX + _BOX_PADDING_PX
    return lay_out(sizes, [(need, step.id) for step in plan.steps for need in needs_of(step)])


def _size(layout: Layout) -> str:
    width, height = layout.width + 2 * _MARGIN_PX, layout.height + 2 * _MARGIN_PX
    return f'viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}"'


def _body(layout: Layout, boxes: list[str], ground: str = "") -> list[str]:
    shift = f'<g transform="translate({_MARGIN_PX:.0f} {_MARGIN_PX:.0f})">'
    return [_TIP + ground, shift, *map(_line, layout.lines), *boxes, "</g>", "</svg>"]


def _box(name: str, box: NodeBox, label: Label, link: str = "", started: float = 0.0) -> str:
    """A box, which links to its step; a running one carries its start time for a page's clock."""
    state = label.state
    left = _LEFT_PX if state else _RIGHT_PX
    room = box.width - left - _RIGHT_PX + 0.5
    x, y = box.x + left, box.y + _BOX_PADDING_PX / 2 + 14
    word = state_word(state) if state else ""
    about = ", ".join(part for part in (label.title, label.kind, word, label.taken) if part)
    tag, more = "g", ""
    if link:
        tag = "a"
        more = f' href="{_text(link)}" data-step="{_text(name)}" id="box-{_text(name)}"'
    made = [
        f'<{tag} class="{state or "plan"}"{more}><title>{_text(about)}</title>',
        f'<rect x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}"',
        f' height="{box.height:.1f}" rx="{box.height / 2 if label.person else 7:.0f}"/>',
        _text_element("t", x, y, _cut(label.title, room, _TITLE_FONT_PX, _BOLD_RATIO)),
        _text_element("k", x, y + _ROW_PX, _cut(label.kind, room, _TEXT_FONT_PX)),
    ]
    if state:
        ticks = ""
        if state == "running" and started:
            ticks = f' data-since="{started:.3f}" data-word="{_text(word)}"'
        taken = _text(_cut(label.taken or word, room, _TEXT_FONT_PX))
        made += [
            f'<text class="k s" x="{x:.1f}" y="{y + 2 * _ROW_PX:.1f}"{ticks}>{taken}</text>',
            _text_element("m", box.x + _LEFT_PX / 2 + 1, y, MARKS[state]),
        ]
    return "".join([*made, f"</{tag}>"])


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
        f"text{{font-family:{_FONTS};font-size:{_TEXT_FONT_PX}px}}.t{{font-size:{_TITLE_FONT_PX:.0f}px;"
        f"font-weight:600}}.m{{font-size:{_TITLE_FONT_PX:.0f}px;font-weight:700;text-anchor:middle}}"
        ".e{fill:none;stroke-width:1.5}rect{stroke-width:1.5}.ground{stroke:none}"
        ".waiting rect,.skipped rect{stroke-dasharray:4 3}"
        + colours("#ffffff", "#1f2328", "#59636e", "#8c959f", _LIGHT)
        + "@media (prefers-color-scheme:dark){"
        + colours("#0d1117", "#e6edf3", "#9198a1", "#6e7681", _DARK)
        + "}"
    )


def _text_element(css_class: str, x: float, y: float, text: str) -> str:
    return f'<text class="{css_class}" x="{x:.1f}" y="{y:.1f}">{_text(text)}</text>'


def _line(line: EdgeLine) -> str:
    """Curves that leave and enter boxes vertically, and straight lines through lanes."""
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
    """Estimated width of a text. The reader's font is unknown, so it is rather too wide."""
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
    if _width(text, size, bold) <= room:
        return text
    used = _letter("…", bold)
    for at, char in enumerate(text):
        used += _letter(char, bold)
        if used * size > room:
            return text[:at].rstrip() + "…"
    return text


def _text(text: str) -> str:
    """Escape `text` for XML content and attributes."""
    kept = "".join(char for char in text if _allowed(ord(char)))
    for char, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;")):
        kept = kept.replace(char, entity)
    return kept


def _allowed(code: int) -> bool:
    """Whether XML 1.0 allows the character, and it is no bidirectional control."""
    if code in {0x9, 0xA, 0xD}:
        return True
    if 0x202A <= code <= 0x202E or 0x2066 <= code <= 0x2069 or 0x7F <= code <= 0x9F:
        return False
    return 0x20 <= code <= 0xD7FF or 0xE000 <= code <= 0xFFFD or 0x10000 <= code <= 0x10FFFF
