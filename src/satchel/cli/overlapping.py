"""Which skills are easily mistaken for each other? `satchel overlap`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from satchel._language import listed, say
from satchel.cli.output import one_line, write_json
from satchel.cli.session import command, complete_names, short_path
from satchel.cli.values import Share, WholeNumber

if TYPE_CHECKING:
    from satchel.authoring.overlap import Group, Overlap, Pair
    from satchel.cli.output import Screen
    from satchel.cli.session import Session
    from satchel.skill.model import Skill

FAILED = 1
_NAMES = 6


@command(
    say("Show which skills are easily mistaken for each other, and by which words.")
    + "\n\n"
    + say(
        "With NAME, a name or a folder: those that this one is mistaken for. The score is 1 for "
        "the same words and 0 for none in common; a rare word weighs more. From 0.9 on they are "
        "near copies. Exits with 1 when a pair reaches `--fail-over`."
    ),
    "satchel overlap",
    "satchel overlap code-review --limit 5",
    "satchel overlap --fail-over 0.9",
)
@click.argument("name", required=False, shell_complete=complete_names)
@click.option(
    "--min",
    "least",
    type=Share(),
    default=0.3,
    metavar="SCORE",
    help=say("Leave out pairs below this score; by default 0.3."),
)
@click.option(
    "--limit",
    type=WholeNumber(1),
    default=20,
    metavar="N",
    help=say("How many pairs at most, at least 1; by default 20."),
)
@click.option(
    "--fail-over",
    type=Share(),
    metavar="SCORE",
    help=say("Exit with 1 when two skills score this or more."),
)
def overlap(
    session: Session,
    name: str | None,
    least: float,
    limit: int,
    fail_over: float | None,
    as_json: bool,
) -> int:
    """Near copies first, then the closest pairs."""
    bound = least if fail_over is None else min(least, fail_over)
    found = _compare(session, name, bound, limit)
    bad = fail_over is not None and found.worst >= fail_over
    if as_json:
        write_json({
            "ok": not bad,
            "skills": found.skills,
            "copies": [group.to_dict() for group in found.groups[:limit]],
            "pairs": [pair.to_dict() for pair in found.pairs],
            "more": found.more or len(found.groups) > limit,
        })  # fmt: skip
        return FAILED if bad else 0
    _show(session, found, limit)
    return FAILED if bad else 0


def _compare(session: Session, name: str | None, least: float, limit: int) -> Overlap:
    from satchel.authoring.overlap import compare, compare_one
    from satchel.cli.progress import Progress

    skills = session.satchel.library.snapshot().for_model
    with Progress(say("Comparing skills")) as bar:

        def tell(done: int, total: int) -> None:
            bar("", done, total)

        if name is None:
            return compare(skills, least=least, limit=limit, progress=tell)
        from satchel.authoring.triggers import line_up
        from satchel.cli.triggering import named

        skill = named(session, name)
        among = line_up(skills, skill)
        return compare_one(skill, among, least=least, limit=limit, progress=tell)


def _show(session: Session, found: Overlap, limit: int) -> None:
    from satchel.authoring.overlap import CONFUSABLE

    out = session.out
    if found.groups:
        out.line(say("Near copies"), "bold")
        for group in found.groups[:limit]:
            _show_group(out, group)
    close = [pair for pair in found.pairs if pair.score >= CONFUSABLE]
    titles = (say("Easily mistaken"), say("Some words in common"))
    for title, pairs in zip(titles, (close, found.pairs[len(close) :]), strict=True):
        if not pairs:
            continue
        if found.groups or pairs[0] is not found.pairs[0]:
            out.line()
        out.line(title, "bold")
        for pair in pairs:
            _show_pair(out, pair)
    told = [say("{count} skills compared", count=found.skills)]
    hidden = len(found.groups) - limit
    if hidden > 0:
        told.append(say("{count} more groups of near copies", count=hidden))
    if found.more:
        told.append(say("there are more pairs: `--limit`"))
    if not found.groups and not close:
        told.append(say("none is easily mistaken for another"))
    session.err.line(say(", ").join(told))


def _show_group(out: Screen, group: Group) -> None:
    several = len({one.name for one in group.skills}) < len(group.skills)
    names = [_called(one, apart=several) for one in group.skills[:_NAMES]]
    left = len(group.skills) - len(names)
    more = say(" and {count} more", count=left) if left else ""
    out.line(listed(names) + more, "", "  ", "        ", [(f"{_shown(group.score)}  ", "yellow")])


def _show_pair(out: Screen, pair: Pair) -> None:
    several = pair.one.name == pair.other.name
    names = [_called(one, apart=several) for one in (pair.one, pair.other)]
    lead = [(f"{_shown(pair.score)}  ", "yellow" if pair.copy else "dim")]
    text = listed(names) + (say(" (near copies)") if pair.copy else "")
    out.line(text, "", "  ", "        ", lead)
    _words(out, say("both"), pair.shared)
    for name, only in zip(names, pair.apart, strict=True):
        _words(out, say("only {name}", name=name), only)


def _words(out: Screen, title: str, words: tuple[str, ...]) -> None:
    shown = listed(one_line(word) for word in words) or say("nothing")
    out.line(shown, "", "        ", "          ", [(title, "dim"), (say(": "), "dim")])


def _called(skill: Skill, *, apart: bool) -> str:
    """A name, or where two have the same, the folder."""
    return one_line(short_path(skill.base_dir) if apart else skill.name)


def _shown(score: float) -> str:
    """Two digits, cut and not rounded: only the same words are 1, only near copies 0.9."""
    return f"{int(score * 100 + 1e-6) / 100:.2f}"
