"""Which skills serve a request? `satchel which`: the choice, its reasons, and who came next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from satchel import standing
from satchel._language import listed, render, say
from satchel.cli.asking import offered, overruled, read_goal, repeated
from satchel.cli.output import cut, one_line, width_of, write_json
from satchel.cli.session import command, complete_names
from satchel.cli.values import AnyPath, WholeNumber
from satchel.detect.base import code_of
from satchel.errors import NotFound
from satchel.standing import EXPLICIT

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from satchel.cli.output import Screen
    from satchel.cli.session import Session
    from satchel.detect import Answer, Match
    from satchel.tools.shortlisting import Shortlist

FULL, EMPTY = "■", "·"
WIDE, NARROW = 10, 6
"""Columns of a bar, on a wide screen and on a narrow one."""
_NARROW_SCREEN = 72
_TINY_SCREEN = 56


def bar_width(screen: int) -> int:
    """How wide a bar may be on a screen of so many columns (0: nobody looks); 0 means none."""
    if screen and screen < _TINY_SCREEN:
        return 0
    return NARROW if screen and screen < _NARROW_SCREEN else WIDE


def bar(share: float, width: int) -> str:
    """A bar of `width` columns, `share` of it filled; whatever is above nothing shows a mark."""
    share = min(max(share, 0.0), 1.0) if share == share else 0.0  # noqa: PLR0124 - no number
    full = round(share * width)
    if share > 0 and width:
        full = max(full, 1)
    return FULL * full + EMPTY * (width - full)


def share_of(value: float, most: float) -> float:
    """Which part of the most a value is."""
    if most <= 0 or value <= 0:
        return 0.0
    return 1.0 if value >= most else value / most


NONE_FITS = NotFound.exit_code
"""What a script sees when no skill fits."""
GOAL_SHOWN = 200
"""Characters of the goal that are repeated to scripts, as in the trace."""
NO_REASON = "–"
"""What stands in a table where a detector gave no reason."""
_RUNNERS = 5
_FAR = 0.1
"""Who has less than this share of the best score is counted, not shown."""
_COPIES = 4
_FIRST = frozenset(("unknown-skill", "unknown-skill-near", "unknown-skills-more"))
"""Codes of notes that explain the whole answer: they are shown before it."""


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
@click.option(
    "--limit",
    type=WholeNumber(1),
    metavar="N",
    help=say("How many at most, at least 1; by default 3, the setting `shortlist`."),
)
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
@click.option(
    "--block",
    is_flag=True,
    help=say("Print the block that a model gets beside the request, and nothing else."),
)
def which(
    session: Session,
    goal: tuple[str, ...],
    file: str | None,
    limit: int | None,
    wanted: tuple[str, ...],
    never: tuple[str, ...],
    block: bool,
    as_json: bool,
) -> int:
    """What the detector decides, shown and not recorded."""
    text = read_goal(session, goal, file)
    if limit is not None:
        session.given["shortlist"] = limit
    named = [offered(session, name) for name in wanted]
    barred = [session.find(name)[0] for name in never]
    satchel = overruled(session.satchel, named, barred)
    with session.choosing():
        answer = satchel.which(text, record=False)
    made = satchel.shortlist(text, record=False) if block else None
    if as_json:
        told = to_dict(answer, text)
        write_json(told if made is None else {**told, **_block_dict(made)})
    elif made is not None:
        _show_block(session, made)
    else:
        _show(session, answer, text)
    there = answer.matches if made is None else made.text
    return 0 if there else NONE_FITS


def to_dict(answer: Answer, goal: str) -> dict[str, Any]:
    """An answer for scripts."""
    return {
        "goal": goal[:GOAL_SHOWN],
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


def match_dict(match: Match, answer: Answer) -> dict[str, Any]:
    """A match for scripts."""
    return {
        "name": match.name,
        "score": round(float(match.score), 4),
        "reason": match.reason,
        "evidence": list(match.evidence),
        "description": match.skill.description,
        "ref": match.skill.ref,
        "detector": match.detector or answer.detector,
    }


# --- for people ---------------------------------------------------------------------------


def _show(session: Session, answer: Answer, goal: str) -> None:
    first = [note for note in answer.notes if code_of(note) in _FIRST]
    show_notes(session.err, first, "")
    out = session.out
    copies: dict[str, list[str]] = {}
    for copy, original in answer.collapsed:
        copies.setdefault(original, []).append(copy)
    if answer.matches:
        _show_chosen(out, answer, copies)
        if answer.runners_up:
            out.line()
            _show_rest(out, answer, copies)
    else:
        _show_none(session, out, answer, goal)
    err = session.err
    if answer.matches:
        err.line(_summary(answer, len(session.satchel.library.snapshot().skills)))
    show_notes(err, [note for note in answer.notes if note not in first])
    if answer.cost:
        err.line(_bill(answer.cost), "dim")


def _show_chosen(out: Screen, answer: Answer, copies: dict[str, list[str]]) -> None:
    """Each chosen skill: its name and a bar, what it says it is for, then why."""
    names = [one_line(match.name) for match in answer.matches]
    room = max(map(width_of, names))
    for at, (match, name) in enumerate(zip(answer.matches, names, strict=True)):
        if at:
            out.line()
        tail = _meter(out, match, answer)
        mark, bold = out.paint("●", "green"), out.paint(name, "bold")
        taken = 4 + room + sum(width_of(part) for part, _ in tail)
        painted = "".join(out.paint(part, style) for part, style in tail)
        if out.width and taken > out.width:  # a long name has a line of its own
            out.write(f"{mark} {bold}\n  {painted}\n")
        else:
            out.write(f"{mark} {bold}{' ' * (room - width_of(name))}  {painted}\n")
        about = one_line(match.skill.description)
        out.write(f"  {out.paint(cut(about, out.width - 2 if out.width else 0), 'dim')}\n")
        if match.detector != EXPLICIT and (reason := told_reason(match)):
            out.line(reason, "", "  ")
        if match.name in copies:
            out.line(_told_copies(copies[match.name]), "dim", "  ")


def _meter(out: Screen, match: Match, answer: Answer) -> list[tuple[str, str]]:
    """A bar and who decided; a name that was called needs no bar."""
    if match.detector == EXPLICIT:
        return [(told_reason(match) or say("called by name"), "cyan")]
    judge = decider(match, answer)
    wide = bar_width(out.width)
    filled = bar(_share(match, answer), wide)
    parts = [(filled.rstrip(EMPTY), "green"), (EMPTY * filled.count(EMPTY), "dim"), ("  ", "")]
    return [*(parts if wide else ()), (judge, "cyan")]


def _show_rest(out: Screen, answer: Answer, copies: dict[str, list[str]]) -> None:
    """Who was not chosen, in grey."""
    wide = bar_width(out.width)
    near = [one for one in answer.runners_up if _share(one, answer) >= _FAR]
    if not near:
        told = say("… and {count} more, far behind", count=len(answer.runners_up))
        out.line(told, "dim")
        return
    shown = near[:_RUNNERS]
    rows: list[list[str]] = []
    for match in shown:
        filled = [bar(_share(match, answer), wide)] if wide else []
        rows.append([one_line(match.name), *filled, told_reason(match) or NO_REASON])
    head = [say("came next"), *([""] if wide else ()), say("why")]
    out.table(head, rows, [["dim", "dim", "dim"] for _ in rows])
    for match in shown:
        if match.name in copies:
            told = _told_copies(copies[match.name])
            out.line(told, "dim", "", lead=[(f"{one_line(match.name)}{say(': ')}", "dim")])
    if len(answer.runners_up) > len(shown):
        out.line(say("… and {count} more", count=len(answer.runners_up) - len(shown)), "dim")


def _show_none(session: Session, out: Screen, answer: Answer, goal: str) -> None:
    """No skill fits: how far the closest is from it, and what would help. None is named."""
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
    for step in _steps(session, answer, goal):
        out.line(step, "", "  → ")


def _steps(session: Session, answer: Answer, goal: str) -> Iterable[str]:
    """What to do when nothing fits, the most useful first."""
    satchel = session.satchel
    if answer.runners_up:
        yield say(
            "See what a skill lacks for it: `satchel why NAME --goal {goal}`", goal=repeated(goal)
        )
    if answer.runners_up and not satchel.settings.vectors:
        yield say(
            "Only words were compared; the setting `vectors` names a model that compares meanings"
        )
    yield say("Write a skill for it: `satchel new`; or fetch one: `satchel import`")


def _show_block(session: Session, made: Shortlist) -> None:
    """What the model would get, and on stderr what it is."""
    session.out.data(made.text)
    err = session.err
    notes = made.answer.notes if made.answer is not None else ()
    if not made.text:
        reason = one_line(render(made.reason))
        reason = reason[:1].lower() + reason[1:]
        err.line(say("There is no block: {reason}", reason=reason))
        show_notes(err, [note for note in notes if note not in made.reason])
        return
    count = len(made.listed)
    text = say("1 skill") if count == 1 else say("{count} skills", count=count)
    err.line(say("{skills} in {size} characters", skills=text, size=len(made.text)))
    if made.explored:
        name = one_line(made.explored)
        err.line(say("`{name}` is there because it was never used yet", name=name), "dim")
    if made.reason:
        err.line(one_line(render(made.reason)), "dim")
    show_notes(err, notes)


def _summary(answer: Answer, total: int) -> str:
    count = len(answer.matches)
    told = say("{count} of {total} skills", count=count, total=total)
    if answer.matches[0].detector == EXPLICIT or not answer.threshold:
        return told
    return told + say("; ") + say("{fit} % sure of the first", fit=_percent(answer.fit))


def show_notes(err: Screen, notes: Iterable[str], style: str = "dim") -> None:
    """What a person should know about the search itself."""
    for note in notes:
        err.line(one_line(render(note)), style)


def told_reason(match: Match) -> str:
    """Why a skill fits, on one line for a person; nothing when its detector gave no reason."""
    return one_line(standing.told_reason(match))


def _bill(cost: dict[str, float]) -> str:
    told = say(
        "A model was asked: {calls} calls, {sent} tokens sent, {got} received",
        calls=f"{cost.get('calls', 0):g}",
        sent=f"{cost.get('input_tokens', 0):g}",
        got=f"{cost.get('output_tokens', 0):g}",
    )
    return f"{told}{say('; ')}$ {cost['usd']:.4f}" if "usd" in cost else told


def decider(match: Match, answer: Answer) -> str:
    """Who chose it, in a word or two."""
    return one_line(standing.decider(match, answer))


def _share(match: Match, answer: Answer) -> float:
    """How much of a bar is filled: how sure the first one is, and the others beside it.

    Only scores of one detector can be compared. One without a threshold does not say how sure it
    is: its best match has a full bar.
    """
    every = (*answer.matches, *answer.runners_up)
    most = max(one.score for one in every if one.detector == match.detector)
    sure = answer.fit if answer.threshold else 1.0
    return share_of(match.score, most) * sure


def _told_copies(names: Sequence[str]) -> str:
    shown = listed(f"`{one_line(name)}`" for name in names[:_COPIES])
    if len(names) > _COPIES:
        shown += say(" … and {count} more", count=len(names) - _COPIES)
    if len(names) == 1:
        return say("1 near copy: {names}", names=shown)
    return say("{count} near copies: {names}", count=len(names), names=shown)


def _percent(value: float) -> int:
    return round(100 * value)
