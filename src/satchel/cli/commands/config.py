"""The command group `config`: settings, search index, sandbox and completion."""

from __future__ import annotations

import json
import os
import re
import sys
from typing import TYPE_CHECKING, Any, cast

import click
from click.shell_completion import get_completion_class

from satchel._fs import read_plain, write_atomic
from satchel.cli import COMPLETE
from satchel.cli.console import count_skills, one_line, write_json
from satchel.cli.context import ProgressBar, command, group, no_such, short_path
from satchel.cli.options import OneOf, flag_option
from satchel.errors import Refused
from satchel.i18n import render, say
from satchel.settings import SETTINGS, load_settings, similar_setting
from satchel.store.disk_errors import disk_errors_as_refusal

if TYPE_CHECKING:
    from click.shell_completion import ShellComplete

    from satchel.cli.context import CliContext
    from satchel.detect.base import IndexReport
    from satchel.runners.tiers import TierState
    from satchel.settings import Setting, Settings

_MAX_CONFIG_BYTES = 1 << 20
_BY_NAME = {setting.name: setting for setting in SETTINGS}


config = group(
    "config",
    say("Settings, index, sandbox, completion."),
    "satchel config list",
    "satchel config set shortlist 5",
    "satchel config sandbox",
    modules={
        "list": "commands.config:list_",
        "get": "commands.config:get",
        "set": "commands.config:set_",
        "path": "commands.config:path",
        "index": "commands.config:index",
        "sandbox": "commands.config:sandbox",
        "completion": "commands.config:completion",
    },
    synonyms={
        "embeddings": "set embeddings",
        "show": "list",
        "reindex": "index",
        "edit": "path",
    },
)


@command(
    say("List the settings, their values and where each comes from."),
    "satchel config list",
    name="list",
)
def list_(context: CliContext, as_json: bool) -> int:
    settings = context.satchel.settings
    records = [
        {"name": one.name, "value": getattr(settings, one.name), "from": _origin(context, one)}
        for one in SETTINGS
    ]
    if as_json:
        write_json(records)
        return 0
    rows = [
        [one["name"], one["from"] or say("default"), one_line(_text(one["value"]))]
        for one in records
    ]
    head = [say("setting"), say("from"), say("value")]
    styles = [["bold", "cyan" if one["from"] else "dim", ""] for one in records]
    context.out.table(head, rows, styles)
    return 0


@command(
    say("Print the value of a setting."),
    "satchel config get model",
)
@click.argument("name")
def get(context: CliContext, name: str, as_json: bool) -> int:
    value = getattr(context.satchel.settings, _setting(name).name)
    if as_json:
        write_json(value)
    else:
        context.out.data(_text(value))
    return 0


@command(
    say("Change a setting in your `config.toml`, or in the project's `satchel.toml`.")
    + "\n\n"
    + say("Several words are a list; a table is written as JSON. Without VALUE it is removed."),
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
    setting = _setting(name)
    if scope == "project" and not setting.project_may_set:
        raise Refused(
            say("A project may not set `{name}`", name=setting.name),
            say("Run `{command}`",
                command=f"satchel config set {setting.name} … --scope user"),
        )  # fmt: skip
    value = _converted(context, setting, values) if values else None
    file = _file(context, scope)
    _write(file, setting.name, value)
    if as_json:
        write_json({"name": setting.name, "value": value, "path": file})
    else:
        context.err.line(say("Written to {path}", path=one_line(short_path(file))), "green")
    return 0


@command(
    say("Print the paths of the configuration, cache and state."),
    "satchel config path",
)
def path(context: CliContext, as_json: bool) -> int:
    settings = context.satchel.settings
    record = {"project": _file(context, "project"), "user": settings.paths.config,
              "cache": settings.paths.cache, "state": settings.paths.state}  # fmt: skip
    if as_json:
        write_json(record)
        return 0
    for name, where in record.items():
        context.out.data(f"{name:<9}{one_line(where)}")
    return 0


@command(
    say("Print a script that completes commands and names of skills in your shell."),
    "echo 'source <(satchel config completion bash)' >> ~/.bashrc",
    "satchel config completion zsh > ~/.zfunc/_satchel",
    "satchel config completion fish > ~/.config/fish/completions/satchel.fish",
    json=False,
)
@click.argument("shell", type=OneOf(["bash", "zsh", "fish"]))
def completion(context: CliContext, shell: str) -> int:
    root = click.get_current_context().find_root().command
    script = cast("type[ShellComplete]", get_completion_class(shell))(root, {}, "satchel", COMPLETE)
    # Not `source()`, which starts a shell to find its version.
    context.out.data(script.source_template % script.source_vars())
    return 0


def _setting(name: str) -> Setting:
    found = _BY_NAME.get(name.replace("-", "_"))
    if found is not None:
        return found
    near = similar_setting(name)
    raise no_such(say("setting"), name, [near] if near else (), "satchel config list")


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if hasattr(value, "_asdict"):
        return ", ".join(f"{name} = {_text(one)}" for name, one in value._asdict().items())
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, cast("list[Any]", value)))
    return json.dumps(value, ensure_ascii=False, default=str) if value != {} else ""


def _origin(context: CliContext, setting: Setting) -> str:
    """Where the value comes from; empty for the default."""
    if os.environ.get(setting.env, "").strip():
        return setting.env
    settings = context.satchel.settings
    for file in ("satchel.toml", "pyproject.toml"):
        where = os.path.join(settings.project, file)
        tables = ("tool", "satchel") if file == "pyproject.toml" else ()
        if setting.project_may_set and setting.name in _table(where, tables):
            return file
    return "config.toml" if setting.name in _table(settings.paths.config) else ""


def _table(file: str, tables: tuple[str, ...] = ()) -> dict[str, Any]:
    import tomllib

    try:
        with open(file, "rb") as stream:
            found: Any = tomllib.load(stream)
        for name in tables:
            found = found.get(name, {})
        return dict(found)
    except (OSError, ValueError, AttributeError, TypeError):
        return {}


def _file(context: CliContext, scope: str) -> str:
    settings = context.satchel.settings
    if scope == "user":
        return settings.paths.config
    return os.path.join(settings.project, "satchel.toml")


def _converted(context: CliContext, setting: Setting, values: tuple[str, ...]) -> Any:
    """The value for the file, checked as a value in code is."""
    given: Any = list(values) if setting.kind == "list" else " ".join(values)
    made: Any = getattr(load_settings(context.project, **{setting.name: given}), setting.name)
    return list(made) if setting.kind == "list" else made


def _write(file: str, name: str, value: Any) -> None:
    """Write a setting, None removes it; everything else in the file stays as it is."""
    import tomllib

    text = read_plain(file, _MAX_CONFIG_BYTES).decode() if os.path.exists(file) else ""
    line = "" if value is None else f"{name} = {_toml(value)}\n"
    try:
        held = {**tomllib.loads(text), name: value}
        changed = _with_line(text, name, line)
        is_safe = tomllib.loads(changed) == {key: held[key] for key in held if line or key != name}
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


def _with_line(text: str, name: str, line: str) -> str:
    """Replace the line or lines of a top-level key, or add it before the first table."""
    import tomllib

    lines = text.splitlines(keepends=True)
    top = next((at for at, one in enumerate(lines) if one.lstrip().startswith("[")), len(lines))
    begin = next((at for at in range(top) if re.match(rf"\s*{name}\s*=", lines[at])), None)
    if begin is not None:
        for end in range(begin + 1, len(lines) + 1):
            try:
                tomllib.loads("".join(lines[begin:end]))
            except ValueError:
                continue  # the value goes on
            return "".join((*lines[:begin], line, *lines[end:]))
    while top and lines[top - 1].lstrip().startswith("#") and top < len(lines):
        top -= 1  # a comment belongs to its table
    before = "".join(lines[:top])
    return before + "\n" * (bool(before) and not before.endswith("\n")) + line + text[len(before) :]


def _toml(value: Any) -> str:
    """A value as TOML on one line."""
    if isinstance(value, dict):
        rows = cast("dict[str, Any]", value).items()
        return "{ " + ", ".join(f"{json.dumps(key)} = {_toml(one)}" for key, one in rows) + " }"
    return json.dumps(value, ensure_ascii=False)


@command(
    say("Build the search index now."),
    "satchel config index",
    "satchel config index --rebuild",
)
@flag_option("--rebuild", say("Delete the index first."))
def index(context: CliContext, rebuild: bool, as_json: bool) -> int:
    satchel = context.satchel
    total = len(satchel.library.snapshot().skills)
    with ProgressBar(say("Building the search index")) as bar:
        made = satchel.prepare(lambda done: bar("", min(done, total), total), rebuild=rebuild)
    if made is None:
        if as_json:
            write_json(None)
        context.err.line(say("This detector has no index"))
        return 0
    if as_json:
        write_json({**made._asdict(), "seconds": round(made.seconds, 3)})
    else:
        _show_index(context, made, satchel.settings.embeddings)
    return 0


def _show_index(context: CliContext, made: IndexReport, setting: str) -> None:
    out = context.out
    values = {"changed": f"{made.changed:,}", "seconds": f"{made.seconds:.1f}"}
    text = say("{changed} re-indexed in {seconds} s", **values)
    out.line(text, lead=[(count_skills(made.skills) + say(", "), "bold")])
    out.line(one_line(made.engine), "", "  ", lead=[(say("engine") + say(": "), "dim")])
    if made.vectors:
        model = one_line(setting or made.vectors)
        text = f"{count_skills(made.embedded)} ({model})"
        out.line(text, "", "  ", lead=[(say("embeddings") + say(": "), "dim")])
    if made.folder:
        where = one_line(short_path(made.folder))
        out.line(where, "", "  ", lead=[(say("folder") + say(": "), "dim")])


@command(
    say("Test the sandbox of tool skills with escape attempts."),
    "satchel config sandbox",
    "satchel config sandbox --json",
)
def sandbox(context: CliContext, as_json: bool) -> int:
    from satchel.runners.tiers import TIERS, check

    settings = context.satchel.settings
    with ProgressBar(say("Checking")) as progress:
        found: list[TierState] = []
        for at, tier in enumerate(TIERS):
            progress(tier, at, len(TIERS))
            found.append(check(tier))
    chosen = next((state.tier for state in found if state.holds), "")
    if as_json:
        write_json(_record(settings, found, chosen))
        return 0 if chosen else 1
    _print_verdict(context, settings, chosen)
    _print_tiers(context, found, chosen)
    return 0 if chosen else 1


def _print_verdict(context: CliContext, settings: Settings, chosen: str) -> None:
    err = context.err
    if settings.sandbox == "off":
        text = say("Tool skills run without a sandbox: the setting `sandbox` is `off`")
        err.line(text, "bold yellow", "! ")
    elif chosen:
        err.line(say("Tool skills run in the sandbox `{tier}`", tier=chosen), "bold green", "✓ ")
    else:
        text = say(
            "No sandbox holds here; the setting `sandbox` is `{value}`", value=settings.sandbox
        )
        err.line(text, "bold red", "✗ ")


def _print_tiers(context: CliContext, found: list[TierState], chosen: str) -> None:
    err = context.err
    for state in found:
        if state.holds:
            err.line("", "", "● ", None, [(state.tier, "bold green")])
            if gap := _gap(state):
                err.line(gap, "yellow", "  ")
        else:
            why = one_line(render(state.why))
            err.line(why, "", "✗ ", None, [(state.tier + say(": "), "bold red")])
    if not chosen:
        hint = say("Install bubblewrap (`apt install bubblewrap`), or set `sandbox` to `own`")
        if sys.platform != "linux":
            hint = say("Tool skills need Linux; with `sandbox` set to `own` your own ones run")
        err.line(hint, "", say("hint: "))


def _gap(state: TierState) -> str:
    """What a tier that holds cannot prevent on this kernel."""
    from satchel.runners.sandbox import refuses_fifos

    if state.tier != "bwrap" or refuses_fifos():
        return ""
    return say("without Landlock a program can write to FIFOs of a read-only workspace")


def _record(settings: Settings, found: list[TierState], chosen: str) -> dict[str, Any]:
    return {
        "chosen": chosen or None,
        "setting": settings.sandbox,
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
