"""The command `which`: the skills chosen for a request, the reasons, and the runners-up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from satchel import explain_selection
from satchel.cli.console import count_skills, cut, one_line, width_of, write_json
from satchel.cli.context import command, complete_names
from satchel.cli.goal_text import offered, quote_goal, read_goal, with_overrides
from satchel.cli.options import AnyPath, flag_option, limit_option
from satchel.detect.base import code_of
from satchel.errors import NotFound
from satchel.explain_selection import EXPLICIT
from satchel.i18n import listed, render, say

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from satchel.cli.console import Screen
    from satchel.cli.context import CliContext
    from satchel.detect import Detection, Match
    from satchel.session.shortlist import Shortlist

NONE_FITS = NotFound.exit_code
"""Exit code when no skill fits."""
NO_REASON = "–"
"""The cell of a table for a match without a reason."""
_FULL, _EMPTY = "■", "·"
_BAR_COLUMNS, _NARROW_BAR_COLUMNS = 10, 6
_NARROW_SCREEN_COLUMNS = 72
_TINY_SCREEN_COLUMNS = 56
_MAX_GOAL_CHARS = 200
_MAX_RUNNERS_UP_SHOWN = 5
_MIN_SHARE_SHOWN = 0.1
"""Runners-up below this share of the best score are counted, not shown."""
_MAX_COPIES_SHOWN = 4
_FIRST_NOTES = frozenset(("unknown-skill", "unknown-skill-near", "unknown-skills-more"))
"""Codes of notes that are shown before the answer."""


def bar_width(screen: int) -> int:
    """The width of a bar on a screen of so many columns (0: unlimited); 0 means no bar."""
    if screen and screen < _TINY_SCREEN_COLUMNS:
        return 0
    return _NARROW_BAR_COLUMNS if screen and screen < _NARROW_SCREEN_COLUMNS else _BAR_COLUMNS


def bar(share: float, width: int) -> str:
    """A bar of `width` columns, filled by `share`; a share above 0 shows at least one mark."""
    share = min(max(share, 0.0), 1.0) if share == share else 0.0  # noqa: PLR0124 - NaN
    full = round(share * width)
    if share > 0 and width:
        full = max(full, 1)
    return _FULL * full + _EMPTY * (width - full)


def share_of(value: float, most: float) -> float:
    """The ratio of `value` to `most`, from 0 to 1."""
    if most <= 0 or value <= 0:
        return 0.0
    return 1.0 if value >= most else value / most


@command(
    say("Show which skills serve a request, at most three of them, and why.")
    + "\n\n"
    + say(
        "GOAL is what somebody would ask of an agent. A skill that it calls by name is always "
        "chosen; otherwise its words decide, and a model for meanings where the setting `vectors` "
        "names one. Exits with 3 when no skill fits."
    ),
    'satchel which "write a skill that reviews pull requests"',
    "satchel which --file README.md --limit 1",
    'satchel which "is this skill safe?" --never code-review',
    'satchel which "write a skill" --block',
)
@click.argument("goal", nargs=-1)
@click.option(
    "--file",
    type=AnyPath(),
    metavar="PATH",
    help=say("Read the goal from a file, or from stdin with `-`."),
)
@limit_option(say("How many at most, at least 1; by default 3, the setting `shortlist`."))
@click.option(
    "--skill",
    "wanted",
    multiple=True,
    metavar="NAME",
    shell_complete=complete_names,
    help=say("Choose this one, whatever the words say; may be repeated."),
)
@click.option(
    "--never",
    multiple=True,
    metavar="NAME",
    shell_complete=complete_names,
    help=say("Do not choose this one; may be repeated."),
)
@flag_option(
    "--block", say("Print the block that a model gets beside the request, and nothing else.")
)
def which(
    context: CliContext,
    goal: tuple[str, ...],
    file: str | None,
    limit: int | None,
    wanted: tuple[str, ...],
    never: tuple[str, ...],
    block: bool,
    as_json: bool,
) -> int:
    text = read_goal(context, goal, file)
    if limit is not None:
        context.given["shortlist"] = limit
    named = [offered(context, name) for name in wanted]
    excluded = [context.find(name)[0] for name in never]
    satchel = with_overrides(context.satchel, named, excluded)
    with context.index_progress():
        answer = satchel.which(text, record=False)
    made = satchel.shortlist(text, record=False) if block else None
    if as_json:
        record = _to_dict(answer, text)
        write_json(record if made is None else {**record, **_block_dict(made)})
    elif made is not None:
        _show_block(context, made)
    else:
        _show(context, answer, text)
    found = answer.matches if made is None else made.text
    return 0 if found else NONE_FITS


def _to_dict(answer: Detection, goal: str) -> dict[str, Any]:
    return {
        "goal": goal[:_MAX_GOAL_CHARS],
        "fits": bool(answer.matches),
        "skills": [match_dict(match, answer) for match in answer.matches],
        "runners_up": [match_dict(match, answer) for match in answer.runners_up],
        "near_copies": [{"name": copy, "of": first} for copy, first in answer.collapsed],
        "detector": answer.detector,
        "fit": round(float(answer.fit), 4),
        "threshold": round(float(answer.threshold), 4),
        "took_ms": round(float(answer.took_ms), 3),
        "notes": list(answer.notes),
        "cost": answer.cost,
    }


def _block_dict(made: Shortlist) -> dict[str, Any]:
    return {
        "block": made.text,
        "listed": list(made.listed),
        "never_used": made.explored or None,
        "block_note": made.reason or None,
    }


def match_dict(match: Match, answer: Detection) -> dict[str, Any]:
    """A match as JSON."""
    return {
        "name": match.name,
        "score": round(float(match.score), 4),
        "reason": match.reason,
        "evidence": list(match.evidence),
        "description": match.skill.description,
        "ref": match.skill.ref,
        "detector": match.detector or answer.detector,
    }


def _show(context: CliContext, answer: Detection, goal: str) -> None:
    first = [note for note in answer.notes if code_of(note) in _FIRST_NOTES]
    show_notes(context.err, first, "")
    out = context.out
    copies: dict[str, list[str]] = {}
    for copy, original in answer.collapsed:
        copies.setdefault(original, []).append(copy)
    if answer.matches:
        _show_chosen(out, answer, copies)
        if answer.runners_up:
            out.line()
            _show_runners_up(out, answer, copies)
    else:
        _show_none(context, out, answer, goal)
    err = context.err
    if answer.matches:
        err.line(_summary(answer, len(context.satchel.library.snapshot().skills)))
    show_notes(err, [note for note in answer.notes if note not in first])
    if answer.cost:
        err.line(_format_cost(answer.cost), "dim")


def _show_chosen(out: Screen, answer: Detection, copies: dict[str, list[str]]) -> None:
    """Print each chosen skill: its name and a bar, its description, then the reason."""
    names = [one_line(match.name) for match in answer.matches]
    room = max(map(width_of, names))
    for at, (match, name) in enumerate(zip(answer.matches, names, strict=True)):
        if at:
            out.line()
        tail = _meter(out, match, answer)
        mark, bold = out.paint("●", "green"), out.paint(name, "bold")
        taken = 4 + room + sum(width_of(part) for part, _ in tail)
        painted = "".join(out.paint(part, style) for part, style in tail)
        if out.width and taken > out.width:  # a long name gets its own line
            out.write(f"{mark} {bold}\n  {painted}\n")
        else:
            out.write(f"{mark} {bold}{' ' * (room - width_of(name))}  {painted}\n")
        about = one_line(match.skill.description)
        out.write(f"  {out.paint(cut(about, out.width - 2 if out.width else 0), 'dim')}\n")
        if match.detector != EXPLICIT and (reason := format_reason(match)):
            out.line(reason, "", "  ")
        if match.name in copies:
            out.line(_format_copies(copies[match.name]), "dim", "  ")


def _meter(out: Screen, match: Match, answer: Detection) -> list[tuple[str, str]]:
    """A bar and the detector's name; for a skill called by name only the reason."""
    if match.detector == EXPLICIT:
        return [(format_reason(match) or say("called by name"), "cyan")]
    detector = one_line(explain_selection.selected_by(match, answer))
    wide = bar_width(out.width)
    filled = bar(_share(match, answer), wide)
    parts = [(filled.rstrip(_EMPTY), "green"), (_EMPTY * filled.count(_EMPTY), "dim"), ("  ", "")]
    return [*(parts if wide else ()), (detector, "cyan")]


def _show_runners_up(out: Screen, answer: Detection, copies: dict[str, list[str]]) -> None:
    wide = bar_width(out.width)
    near = [one for one in answer.runners_up if _share(one, answer) >= _MIN_SHARE_SHOWN]
    if not near:
        out.line(say("… and {count} more, far behind", count=len(answer.runners_up)), "dim")
        return
    shown = near[:_MAX_RUNNERS_UP_SHOWN]
    rows: list[list[str]] = []
    for match in shown:
        filled = [bar(_share(match, answer), wide)] if wide else []
        rows.append([one_line(match.name), *filled, format_reason(match) or NO_REASON])
    head = [say("came next"), *([""] if wide else ()), say("why")]
    out.table(head, rows, [["dim", "dim", "dim"] for _ in rows])
    for match in shown:
        if match.name in copies:
            text = _format_copies(copies[match.name])
            out.line(text, "dim", "", lead=[(f"{one_line(match.name)}{say(': ')}", "dim")])
    if len(answer.runners_up) > len(shown):
        out.line(say("… and {count} more", count=len(answer.runners_up) - len(shown)), "dim")


def _show_none(context: CliContext, out: Screen, answer: Detection, goal: str) -> None:
    """Print how close the nearest skill is, without its name, and what to do."""
    out.line("", lead=[(say("No skill fits"), "bold")])
    if answer.runners_up and answer.threshold:
        out.line(
            say(
                "{fit} % sure of the closest; at least {needed} % is needed",
                fit=_percent(answer.fit),
                needed=_percent(answer.threshold),
            ),
            "",
            "  ",
        )
    out.title(say("What would help"))
    steps: list[str] = []
    if answer.runners_up:
        quoted = quote_goal(goal)
        steps.append(
            say("See what a skill lacks for it: `satchel why NAME --goal {goal}`", goal=quoted)
        )
    if answer.runners_up and not context.satchel.settings.vectors:
        steps.append(say(
            "Only words were compared; the setting `vectors` names a model that compares meanings"
        ))  # fmt: skip
    steps.append(say("Write a skill for it: `satchel new`; or fetch one: `satchel import`"))
    for step in steps:
        out.line(step, "", "  → ")


def _show_block(context: CliContext, made: Shortlist) -> None:
    """Print the shortlist block on stdout, its size and notes on stderr."""
    context.out.data(made.text)
    err = context.err
    notes = made.answer.notes if made.answer is not None else ()
    if not made.text:
        reason = one_line(render(made.reason))
        reason = reason[:1].lower() + reason[1:]
        err.line(say("There is no block: {reason}", reason=reason))
        show_notes(err, [note for note in notes if note not in made.reason])
        return
    text = count_skills(len(made.listed))
    err.line(say("{skills} in {size} characters", skills=text, size=len(made.text)))
    if made.explored:
        name = one_line(made.explored)
        err.line(say("`{name}` is there because it was never used yet", name=name), "dim")
    if made.reason:
        err.line(one_line(render(made.reason)), "dim")
    show_notes(err, notes)


def _summary(answer: Detection, total: int) -> str:
    count = len(answer.matches)
    text = say("{count} of {total} skills", count=count, total=total)
    if answer.matches[0].detector == EXPLICIT or not answer.threshold:
        return text
    return text + say("; ") + say("{fit} % sure of the first", fit=_percent(answer.fit))


def show_notes(err: Screen, notes: Iterable[str], style: str = "dim") -> None:
    """Print notes about the search."""
    for note in notes:
        err.line(one_line(render(note)), style)


def format_reason(match: Match) -> str:
    """The reason of a match on one line; empty when its detector gave none."""
    return one_line(explain_selection.reason_text(match))


def _format_cost(cost: dict[str, float]) -> str:
    text = say(
        "A model was asked: {calls} calls, {sent} tokens sent, {got} received",
        calls=f"{cost.get('calls', 0):g}",
        sent=f"{cost.get('input_tokens', 0):g}",
        got=f"{cost.get('output_tokens', 0):g}",
    )
    return f"{text}{say('; ')}$ {cost['usd']:.4f}" if "usd" in cost else text


def _share(match: Match, answer: Detection) -> float:
    """The filled share of a bar: the confidence for the first match, in proportion for the others.

    Only scores of the same detector are compared. Without a threshold there is no confidence, and
    the best match has a full bar.
    """
    every = (*answer.matches, *answer.runners_up)
    most = max(one.score for one in every if one.detector == match.detector)
    sure = answer.fit if answer.threshold else 1.0
    return share_of(match.score, most) * sure


def _format_copies(names: Sequence[str]) -> str:
    shown = listed(f"`{one_line(name)}`" for name in names[:_MAX_COPIES_SHOWN])
    if len(names) > _MAX_COPIES_SHOWN:
        shown += say(" … and {count} more", count=len(names) - _MAX_COPIES_SHOWN)
    if len(names) == 1:
        return say("1 near copy: {names}", names=shown)
    return say("{count} near copies: {names}", count=len(names), names=shown)


def _percent(value: float) -> int:
    return round(100 * value)
