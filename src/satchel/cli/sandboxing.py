"""Does the sandbox hold here? sandbox check: programs try to get out, and it is said how far."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, cast

import click

from satchel._language import render, say
from satchel.cli.output import one_line, write_json
from satchel.cli.session import command
from satchel.cli.values import OneOf

if TYPE_CHECKING:
    from satchel.cli.session import Session
    from satchel.runners.base import Tier
    from satchel.runners.selfcheck import Standing
    from satchel.settings import Settings

_OUT = "escaped"


@command(
    say("Let a program try to get out of the sandbox that tool skills run in.")
    + "\n\n"
    + say(
        "The same attempts are made without a sandbox first: only what succeeds there proves "
        "anything. Nothing is harmed; what there is to steal is laid out in a temporary folder."
    ),
    "satchel sandbox check",
    "satchel sandbox check --tier landlock",
    "satchel sandbox check --json",
    more=say("Exit code 1 when the sandbox that would be used does not hold, or there is none."),
)
@click.argument("action", type=OneOf(["check"]), default="check")
@click.option(
    "--tier",
    type=OneOf(["bwrap", "landlock"]),
    help=say("Only this one; both, and the one that would be used decides, by default."),
)
def sandbox(session: Session, action: str, tier: str | None, as_json: bool) -> int:
    """The verdict for people, then a row for each attempt and a column for each tier."""
    del action
    from satchel.runners.sandbox import TIERS
    from satchel.runners.selfcheck import bare, check

    settings = session.satchel.settings
    tiers = TIERS if tier is None else (cast("Tier", tier),)
    control = bare()
    found = [check(one) for one in tiers]
    chosen = _chosen(settings, found, asked=tier is not None)
    if as_json:
        write_json(_record(settings, control, found, chosen))
        return 0 if chosen else 1
    _verdict(session, settings, chosen, asked=tier is not None)
    _sum_up(session, control, found, chosen)
    _show(session, control, found)
    return 0 if chosen else 1


def _chosen(settings: Settings, found: list[Standing], *, asked: bool) -> str:
    """The tier that programs would run in, among those that were tried."""
    wanted = settings.sandbox_tier
    for standing in found:
        if standing.holds and (asked or wanted in {"auto", standing.tier}):
            return standing.tier
    return ""


def _verdict(session: Session, settings: Settings, chosen: str, *, asked: bool) -> None:
    """What happens to a program here, before all detail."""
    err = session.err
    if settings.sandbox == "off":
        err.line(
            say("Tool skills run without a sandbox: `sandbox` is `off` in your settings"),
            "bold yellow", "! ",
        )  # fmt: skip
    elif not chosen:
        words = say("That sandbox does not hold here") if asked else say(
            "No sandbox holds here, so no tool skill runs"
        )  # fmt: skip
        if settings.sandbox == "own" and not asked:
            words = say("No sandbox holds here: only your own tool skills run, without one")
        err.line(words, "bold red", "✗ ")
    elif not asked:
        err.line(say("Tool skills run in the sandbox `{tier}`", tier=chosen), "bold green", "✓ ")


def _sum_up(session: Session, control: Standing, found: list[Standing], chosen: str) -> None:
    """How each tier did."""
    err = session.err
    count = sum(outcome == _OUT for outcome in control.rows.values())
    for standing in found:
        if standing.holds:
            err.line(
                say("holds: {count} attempts succeed without a sandbox, none in it", count=count),
                "", "● ", None, [(f"{standing.tier} ", "bold green")],
            )  # fmt: skip
            if gap := _gap(standing):
                err.line(gap, "yellow", "! ")
        else:
            why = one_line(render(standing.why))
            err.line(why, "", "✗ ", None, [(standing.tier, "bold red"), (say(": "), "bold red")])
    if not chosen:
        hint = say("Programs of tool skills need Linux; `SATCHEL_SANDBOX=own` runs your own skills "
                   "without a sandbox")  # fmt: skip
        if sys.platform == "linux":
            hint = say("Install bubblewrap (`apt install bubblewrap`, `dnf install bubblewrap`); "
                       "until then no tool skill runs, unless `SATCHEL_SANDBOX` is `own` or "
                       "`off`")  # fmt: skip
        err.line(hint, "", say("hint: "))


def _gap(standing: Standing) -> str:
    """What a tier that holds does not promise on this kernel."""
    from satchel.runners.dressing import refuses_fifos

    if standing.tier != "bwrap" or refuses_fifos():
        return ""
    return say(
        "not promised: without Landlock in this kernel a program can write to FIFOs of a "
        "workspace that it may only read"
    )


def _show(session: Session, control: Standing, found: list[Standing]) -> None:
    """Every attempt, and what became of it."""
    tried = [standing for standing in found if standing.rows]
    if not tried:
        return
    session.err.line()
    head = [say("attempt"), say("without"), *(standing.tier for standing in tried)]
    rows: list[list[str]] = []
    styles: list[list[str]] = []
    for name, outcome in control.rows.items():
        works = outcome == _OUT
        row = [name, say("succeeds") if works else "—"]
        style = ["" if works else "dim", "" if works else "dim"]
        for standing in tried:
            said = standing.rows.get(name, "?")
            row.append(say("GOT OUT") if said == _OUT else one_line(said))
            style.append("bold red" if said == _OUT else "green" if works else "dim")
        rows.append(row)
        styles.append(style)
    session.out.table(head, rows, styles)
    idle = sum(outcome != _OUT for outcome in control.rows.values())
    session.out.stream.flush()  # what explains the table comes after it
    session.err.line()
    session.err.line(
        say("The last columns say how an attempt ended: `EACCES`, `EPERM`: it was refused; "
            "`ENOENT`: what it looked for is not there"), "dim",
    )  # fmt: skip
    if idle:
        session.err.line(
            say("`—`: not even possible here without a sandbox, so it proves nothing ({count} of "
                "{total})", count=idle, total=len(rows)), "dim",
        )  # fmt: skip


def _record(
    settings: Settings, control: Standing, found: list[Standing], chosen: str
) -> dict[str, Any]:
    return {
        "chosen": chosen or None,
        "setting": settings.sandbox,
        "without": dict(control.rows),
        "tiers": [
            {
                "tier": standing.tier,
                "holds": standing.holds,
                "why": standing.why,
                "not_promised": _gap(standing),
                "attempts": dict(standing.rows),
            }
            for standing in found
        ],
    }
