"""The command `sandbox check`: runs escape attempts with and without each sandbox tier."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, cast

import click

from satchel.cli.console import one_line, write_json
from satchel.cli.context import command
from satchel.cli.options import OneOf
from satchel.i18n import render, say

if TYPE_CHECKING:
    from satchel.cli.context import CliContext
    from satchel.runners.base import Tier
    from satchel.runners.selfcheck import TierState
    from satchel.settings import Settings

_ESCAPED = "escaped"


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
def sandbox(context: CliContext, action: str, tier: str | None, as_json: bool) -> int:
    del action
    from satchel.runners.selfcheck import bare, check
    from satchel.runners.tiers import TIERS

    settings = context.satchel.settings
    tiers = TIERS if tier is None else (cast("Tier", tier),)
    control = bare()
    found = [check(one) for one in tiers]
    chosen = _chosen(settings, found, asked=tier is not None)
    if as_json:
        write_json(_record(settings, control, found, chosen))
        return 0 if chosen else 1
    _print_verdict(context, settings, chosen, asked=tier is not None)
    _print_tiers(context, control, found, chosen)
    _print_attempts(context, control, found)
    return 0 if chosen else 1


def _chosen(settings: Settings, found: list[TierState], *, asked: bool) -> str:
    """The tier that programs would run in, among those that were checked."""
    wanted = settings.sandbox_tier
    for state in found:
        if state.holds and (asked or wanted in {"auto", state.tier}):
            return state.tier
    return ""


def _print_verdict(context: CliContext, settings: Settings, chosen: str, *, asked: bool) -> None:
    err = context.err
    if settings.sandbox == "off":
        err.line(
            say("Tool skills run without a sandbox: `sandbox` is `off` in your settings"),
            "bold yellow", "! ",
        )  # fmt: skip
    elif not chosen:
        message = say("That sandbox does not hold here") if asked else say(
            "No sandbox holds here, so no tool skill runs"
        )  # fmt: skip
        if settings.sandbox == "own" and not asked:
            message = say("No sandbox holds here: only your own tool skills run, without one")
        err.line(message, "bold red", "✗ ")
    elif not asked:
        err.line(say("Tool skills run in the sandbox `{tier}`", tier=chosen), "bold green", "✓ ")


def _print_tiers(
    context: CliContext, control: TierState, found: list[TierState], chosen: str
) -> None:
    err = context.err
    count = sum(outcome == _ESCAPED for outcome in control.rows.values())
    for state in found:
        if state.holds:
            err.line(
                say("holds: {count} attempts succeed without a sandbox, none in it", count=count),
                "", "● ", None, [(f"{state.tier} ", "bold green")],
            )  # fmt: skip
            if gap := _gap(state):
                err.line(gap, "yellow", "! ")
        else:
            why = one_line(render(state.why))
            err.line(why, "", "✗ ", None, [(state.tier, "bold red"), (say(": "), "bold red")])
    if not chosen:
        hint = say("Programs of tool skills need Linux; `SATCHEL_SANDBOX=own` runs your own skills "
                   "without a sandbox")  # fmt: skip
        if sys.platform == "linux":
            hint = say("Install bubblewrap (`apt install bubblewrap`, `dnf install bubblewrap`); "
                       "until then no tool skill runs, unless `SATCHEL_SANDBOX` is `own` or "
                       "`off`")  # fmt: skip
        err.line(hint, "", say("hint: "))


def _gap(state: TierState) -> str:
    """What a tier that holds cannot prevent on this kernel."""
    from satchel.runners.sandbox import refuses_fifos

    if state.tier != "bwrap" or refuses_fifos():
        return ""
    return say(
        "not promised: without Landlock in this kernel a program can write to FIFOs of a "
        "workspace that it may only read"
    )


def _print_attempts(context: CliContext, control: TierState, found: list[TierState]) -> None:
    tried = [state for state in found if state.rows]
    if not tried:
        return
    context.err.line()
    head = [say("attempt"), say("without"), *(state.tier for state in tried)]
    rows: list[list[str]] = []
    styles: list[list[str]] = []
    for name, outcome in control.rows.items():
        works = outcome == _ESCAPED
        row = [name, say("succeeds") if works else "—"]
        style = ["" if works else "dim", "" if works else "dim"]
        for state in tried:
            result = state.rows.get(name, "?")
            row.append(say("GOT OUT") if result == _ESCAPED else one_line(result))
            style.append("bold red" if result == _ESCAPED else "green" if works else "dim")
        rows.append(row)
        styles.append(style)
    context.out.table(head, rows, styles)
    impossible = sum(outcome != _ESCAPED for outcome in control.rows.values())
    context.out.stream.flush()  # keeps the order of the table and its legend
    context.err.line()
    context.err.line(
        say("The last columns say how an attempt ended: `EACCES`, `EPERM`: it was refused; "
            "`ENOENT`: what it looked for is not there"), "dim",
    )  # fmt: skip
    if impossible:
        context.err.line(
            say("`—`: not even possible here without a sandbox, so it proves nothing ({count} of "
                "{total})", count=impossible, total=len(rows)), "dim",
        )  # fmt: skip


def _record(
    settings: Settings, control: TierState, found: list[TierState], chosen: str
) -> dict[str, Any]:
    return {
        "chosen": chosen or None,
        "setting": settings.sandbox,
        "without": dict(control.rows),
        "tiers": [
            {
                "tier": state.tier,
                "holds": state.holds,
                "why": state.why,
                "not_promised": _gap(state),
                "attempts": dict(state.rows),
            }
            for state in found
        ],
    }
