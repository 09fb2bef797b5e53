"""The command group `config`: settings, and the test of the sandbox."""

from __future__ import annotations

import json
import os
import re
import sys
import tomllib
from typing import TYPE_CHECKING, Any, cast

import click

from satchel._fs import read_plain, write_atomic
from satchel.cli.console import one_line, write_json
from satchel.cli.context import ProgressBar, command, group, no_such, short_path
from satchel.cli.options import OneOf
from satchel.errors import Refused
from satchel.i18n import render, say
from satchel.settings import SETTINGS, load_settings, similar_setting
from satchel.store.disk_errors import disk_errors_as_refusal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from satchel.cli.context import CliContext
    from satchel.runners.overlay import OverlaySupport
    from satchel.runners.tiers import TierState
    from satchel.settings import Setting, Settings

_MAX_CONFIG_BYTES = 1 << 20
_BY_NAME = {setting.name: setting for setting in SETTINGS}
_PROJECT_TABLES = (("pyproject.toml", ("tool", "satchel")), ("satchel.toml", ()))
"""Settings files of a project and the keys of the table in them; the first one precedes."""
_ONLY_TIGHTENED = frozenset(("trust", "strict"))
"""Settings that a project cannot loosen."""

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
            context.out.data(_value_text(value))
        return 0
    records = [
        {
            "name": setting.name,
            "value": getattr(settings, setting.name),
            "from": _find_origin(context, setting),
        }
        for setting in SETTINGS
    ]
    if as_json:
        write_json(records)
        return 0
    rows = [
        [record["name"], record["from"] or say("default"), one_line(_value_text(record["value"]))]
        for record in records
    ]
    titles = [say("setting"), say("from"), say("value")]
    styles = [["bold", "cyan" if record["from"] else "dim", ""] for record in records]
    context.out.table(titles, rows, styles)
    for title, scope in ((say("user"), "user"), (say("project"), "project")):
        path = one_line(short_path(_settings_file(context, scope)))
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
    if scope == "project" and not setting.project_may_set:
        raise Refused(
            say("A project may not set `{name}`", name=setting.name),
            say("Run `{command}`",
                command=f"satchel config set {setting.name} … --scope user"),
        )  # fmt: skip
    value = _convert_value(context, setting, values) if values else None
    file = _settings_file(context, scope)
    _write_setting(file, setting.name, value)
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


def _value_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if hasattr(value, "_asdict"):
        return ", ".join(
            f"{name} = {_value_text(field)}" for name, field in value._asdict().items()
        )
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, cast("list[Any]", value)))
    return json.dumps(value, ensure_ascii=False, default=str) if value != {} else ""


def _find_origin(context: CliContext, setting: Setting) -> str:
    """Return the variable or file that the value in force comes from; empty for the default.

    A project can only tighten `trust` and `strict`: whatever it loosens is not in force.
    """
    settings = context.satchel.settings
    value = getattr(settings, setting.name)
    env_value = os.environ.get(setting.env, "").strip()
    is_tightened_by_project = setting.name == "trust" and env_value != value
    if env_value and not is_tightened_by_project:
        return setting.env
    for file, keys in _PROJECT_TABLES if setting.project_may_set else ():
        table = _read_table(os.path.join(settings.project, file), keys)
        if setting.name not in table:
            continue
        if setting.name not in _ONLY_TIGHTENED or table[setting.name] == value:
            return file
    return "config.toml" if setting.name in _read_table(settings.paths.config) else ""


def _read_table(file: str, keys: tuple[str, ...] = ()) -> dict[str, Any]:
    """Read a table of a TOML file by its keys; empty when there is none that can be read."""
    try:
        with open(file, "rb") as stream:
            table: Any = tomllib.load(stream)
        for key in keys:
            table = table.get(key, {})
        return dict(table)
    except (OSError, ValueError, AttributeError, TypeError):
        return {}


def _settings_file(context: CliContext, scope: str) -> str:
    settings = context.satchel.settings
    if scope == "user":
        return settings.paths.config
    return os.path.join(settings.project, "satchel.toml")


def _convert_value(context: CliContext, setting: Setting, values: tuple[str, ...]) -> Any:
    """The value for the file, checked as a value in code is."""
    raw_value: Any = (
        list(values) if setting.kind == "list" and len(values) > 1 else " ".join(values)
    )
    converted: Any = getattr(
        load_settings(context.project, **{setting.name: raw_value}), setting.name
    )
    return list(converted) if setting.kind == "list" else converted


def _write_setting(file: str, name: str, value: Any) -> None:
    """Write a setting, None removes it; everything else in the file stays as it is."""
    text = read_plain(file, _MAX_CONFIG_BYTES).decode() if os.path.exists(file) else ""
    line = "" if value is None else f"{name} = {_format_toml(value)}\n"
    try:
        values = {**tomllib.loads(text), name: value}
        changed = _replace_line(text, name, line)
        is_safe = tomllib.loads(changed) == {
            key: values[key] for key in values if line or key != name
        }
    except ValueError:
        is_safe, changed = False, ""
    if not is_safe:
        raise Refused(
            say("`{path}` is written in a way that cannot be changed safely",
                path=one_line(short_path(file))),
            say("Change it by hand:") + " " + one_line(line or name),
        )  # fmt: skip
    with disk_errors_as_refusal(file):
        write_atomic(file, changed.encode())


def _replace_line(text: str, name: str, line: str) -> str:
    """Replace the line or lines of a top-level key, or add it before the first table."""
    lines = text.splitlines(keepends=True)
    table_starts = (index for index, row in enumerate(lines) if row.lstrip().startswith("["))
    insertion = next(table_starts, len(lines))
    assignment = re.compile(rf"\s*{name}\s*=")
    start = next((index for index in range(insertion) if assignment.match(lines[index])), None)
    if start is not None:
        for end in range(start + 1, len(lines) + 1):
            try:
                tomllib.loads("".join(lines[start:end]))
            except ValueError:
                continue  # the value goes on
            return "".join((*lines[:start], line, *lines[end:]))
    while insertion < len(lines) and insertion and lines[insertion - 1].lstrip().startswith("#"):
        insertion -= 1  # a comment belongs to its table
    before = "".join(lines[:insertion])
    separator = "\n" if before and not before.endswith("\n") else ""
    return before + separator + line + text[len(before) :]


def _format_toml(value: Any) -> str:
    """A value as TOML on one line."""
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value).items()
        pairs = (f"{json.dumps(key)} = {_format_toml(field)}" for key, field in fields)
        return "{ " + ", ".join(pairs) + " }"
    return json.dumps(value, ensure_ascii=False)


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
