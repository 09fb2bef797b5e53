"""The command group `config`: settings, and the test of the sandbox."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from satchel.cli.console import one_line, write_json
from satchel.cli.context import ProgressBar, command, group, no_such, short_path
from satchel.cli.options import OneOf
from satchel.i18n import render, say
from satchel.settings import SETTINGS, similar_setting
from satchel.store.setting_files import (
    convert_value,
    find_origin,
    require_settable,
    settings_file,
    value_text,
    write_setting,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from satchel.cli.context import CliContext
    from satchel.runners.overlay import OverlaySupport
    from satchel.runners.tiers import TierState
    from satchel.settings import Setting, Settings

_BY_NAME = {setting.name: setting for setting in SETTINGS}
config = group(
    "config",
    say("Settings, and a test of the sandbox."),
    "satchel config list",
    "satchel config set shortlist 5",
    "satchel config sandbox",
    modules={
        "list": "commands.config:list_",
        "set": "commands.config:set_",
        "sandbox": "commands.config:sandbox",
    },
    synonyms={"embeddings": "set embeddings", "show": "list", "get": "list", "path": "list"},
)


@command(
    say("List the settings, their values and where each comes from."),
    "satchel config list",
    "satchel config list model",
    name="list",
)
@click.argument("name", required=False)
def list_(context: CliContext, name: str | None, as_json: bool) -> int:
    settings = context.satchel.settings
    if name is not None:
        value = getattr(settings, _find_setting(name).name)
        if as_json:
            write_json(value)
        else:
            context.out.data(value_text(value))
        return 0
    records = [
        {
            "name": setting.name,
            "value": getattr(settings, setting.name),
            "from": find_origin(settings, setting),
        }
        for setting in SETTINGS
    ]
    if as_json:
        write_json(records)
        return 0
    rows = [
        [record["name"], record["from"] or say("default"), one_line(value_text(record["value"]))]
        for record in records
    ]
    titles = [say("setting"), say("from"), say("value")]
    styles = [["bold", "cyan" if record["from"] else "dim", ""] for record in records]
    context.out.table(titles, rows, styles)
    for title, scope in ((say("user"), "user"), (say("project"), "project")):
        path = one_line(short_path(settings_file(settings, scope)))
        context.err.line(path, "dim", lead=[(title, "dim"), (say(": "), "dim")])
    return 0


@command(
    say("Change a setting in your `config.toml`, or in the project's `satchel.toml`.")
    + "\n\n"
    + say(
        "Several words, or one with commas, are a list; a table is written as JSON. "
        "Without VALUE it is removed."
    ),
    "satchel config set model anthropic:claude-sonnet-5",
    "satchel config set exclude 'git-*' --scope project",
    "satchel config set model",
    name="set",
)
@click.argument("name")
@click.argument("values", nargs=-1, metavar="[VALUE]...")
@click.option(
    "--scope",
    type=OneOf(["user", "project"]),
    default="user",
    help=say("Default: {value}.", value="user"),
)
def set_(context: CliContext, name: str, values: tuple[str, ...], scope: str, as_json: bool) -> int:
    setting = _find_setting(name)
    require_settable(setting, scope)
    settings = context.satchel.settings
    value = convert_value(context.project, setting, values) if values else None
    file = settings_file(settings, scope)
    write_setting(file, setting.name, value)
    if as_json:
        write_json({"name": setting.name, "value": value, "path": file})
    else:
        context.err.line(say("Written to {path}", path=one_line(short_path(file))), "green")
    return 0


def _find_setting(name: str) -> Setting:
    setting = _BY_NAME.get(name.replace("-", "_"))
    if setting is not None:
        return setting
    similar = similar_setting(name)
    raise no_such(say("setting"), name, [similar] if similar else (), "satchel config list")


@command(
    say("Test the sandbox of tool skills with escape attempts."),
    "satchel config sandbox",
    "satchel config sandbox --json",
)
def sandbox(context: CliContext, as_json: bool) -> int:
    from satchel.runners.tiers import TIERS, check, missing_hint

    settings = context.satchel.settings
    with ProgressBar(say("Checking")) as progress:
        states: list[TierState] = []
        for index, tier in enumerate(TIERS):
            progress(tier, index, len(TIERS))
            states.append(check(tier))
    chosen_tier = next((state.tier for state in states if state.holds), "")
    overlays: dict[str, OverlaySupport] = {}
    if chosen_tier:
        from satchel.runners.overlay import probe_overlay  # Linux only

        folder = settings.paths.state
        overlays = {
            state.tier: probe_overlay(state.tier, folder) for state in states if state.holds
        }
    if as_json:
        write_json(_sandbox_to_dict(settings, states, overlays, chosen_tier))
        return 0 if chosen_tier else 1
    _print_verdict(context, settings, chosen_tier)
    hint = say("Install bubblewrap (`apt install bubblewrap`), or set `sandbox` to `own`")
    if sys.platform != "linux":
        hint = missing_hint()
    _print_tiers(context, states, overlays, "" if chosen_tier else hint)
    return 0 if chosen_tier else 1


def _print_verdict(context: CliContext, settings: Settings, tier: str) -> None:
    err = context.err
    if settings.sandbox == "off":
        text = say("Tool skills run without a sandbox: the setting `sandbox` is `off`")
        err.line(text, "bold yellow", indent="! ")
        text = say("each call needs approval; what it writes is written at once, not proposed")
        err.line(text, indent="  ")
    elif tier:
        err.line(
            say("Tool skills run in the sandbox `{tier}`", tier=tier), "bold green", indent="✓ "
        )
    else:
        text = say(
            "No sandbox holds here; the setting `sandbox` is `{value}`", value=settings.sandbox
        )
        err.line(text, "bold red", indent="✗ ")


def _print_tiers(
    context: CliContext,
    states: list[TierState],
    overlays: Mapping[str, OverlaySupport],
    missing: str,
) -> None:
    err = context.err
    for state in states:
        if state.holds:
            err.line("", indent="● ", lead=[(state.tier, "bold green")])
            if why := overlays[state.tier].why:
                refused = say("programs that may write are refused: {reason}", reason=one_line(why))
                err.line(refused, "yellow", indent="  ")
                err.line(overlays[state.tier].hint, indent=say("hint: "))
            else:
                err.line(say("what a program writes is proposed, then applied"), indent="  ")
            if gap := _unprevented_risk(state):
                err.line(gap, "yellow", indent="  ")
        else:
            why = one_line(render(state.why))
            err.line(why, indent="✗ ", lead=[(state.tier + say(": "), "bold red")])
    if missing:
        err.line(missing, indent=say("hint: "))


def _unprevented_risk(state: TierState) -> str:
    """What a tier that holds cannot prevent on this kernel."""
    from satchel.runners.sandbox import refuses_fifos

    if state.tier != "bwrap" or not state.holds or refuses_fifos():
        return ""
    return say("without Landlock a program can write to FIFOs of a read-only workspace")


def _sandbox_to_dict(
    settings: Settings, states: list[TierState], overlays: Mapping[str, OverlaySupport], tier: str
) -> dict[str, Any]:
    return {
        "chosen": tier or None,
        "setting": settings.sandbox,
        "tiers": [
            {
                "tier": state.tier,
                "holds": state.holds,
                "why": state.why,
                "not_promised": _unprevented_risk(state),
                "overlay": overlays[state.tier]._asdict() if state.holds else None,
                "attempts": dict(state.rows),
            }
            for state in states
        ],
    }
