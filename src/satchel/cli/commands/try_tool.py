"""The command `try`: call a tool once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from satchel.cli.console import clean, one_line, print_error, write_json
from satchel.cli.context import command, complete_names, exit_code
from satchel.errors import InvalidInput, NotFound, SkillBroken
from satchel.i18n import join_names, say

if TYPE_CHECKING:
    from satchel.authoring.tool_trial import ToolTrial
    from satchel.cli.console import Screen
    from satchel.cli.context import CliContext
    from satchel.errors import SatchelError

_EXIT_CODES = {"missing-runtime": 6, "build-failed": 7}
"""Why a program could not be started -> exit code, as of the exceptions."""
_MAX_CHARS_SHOWN = 600


@command(
    say("Call a tool once, as an agent would."),
    "satchel try word_count_count --arg text='to be or not to be'",
    'satchel try word-count --json-args \'{"text": "to be"}\'',
    name="try",
)
@click.argument("tool", shell_complete=complete_names)
@click.option(
    "--arg", "pairs", multiple=True, metavar="NAME=VALUE", help=say("One argument; repeatable.")
)
@click.option("--json-args", "table", default="", metavar="JSON", help=say("All arguments."))
def try_(context: CliContext, tool: str, pairs: tuple[str, ...], table: str, as_json: bool) -> int:
    from satchel.authoring.tool_trial import find_tool, read_arguments, try_tool

    satchel = context.satchel
    show_builds(context)
    try:
        try:
            name = find_tool(satchel, tool)
        except NotFound as exc:
            raise no_tool(context, tool, exc) from exc
        arguments = read_arguments(satchel, name, pairs, table)
        trial = try_tool(satchel, name, arguments)
    finally:
        satchel.close()
    if as_json:
        write_json(trial.to_dict())
    else:
        _show_trial(context, trial)
    return _EXIT_CODES.get(str(trial.reply.data.get("failure")), exit_code(trial.reply))


def no_tool(context: CliContext, name: str, exc: NotFound, *, tested: bool = False) -> SatchelError:
    """A more precise error than `exc`: its skill.yaml is broken, or the skill has no program."""
    whole = name.partition(".")[0]
    stem = whole
    while stem:  # a tool is named after the folder of its skill
        for folder in (stem, stem.replace("_", "-")):
            other = context.not_found(folder)
            if isinstance(other, SkillBroken):
                return other
        stem = stem.rpartition("_")[0]
    found = context.satchel.library.snapshot().find(whole)
    if found:
        from satchel.skill.trigger_file import has_triggers

        typed = found[0].reference
        return InvalidInput(
            say("`{name}` has instructions and no program", name=one_line(found[0].name)),
            say("Run `{command}`", command=f"satchel test --triggers {typed}")
            if tested and has_triggers(found[0].base_dir)
            else say("Run `{command}`", command=f"satchel check {typed}"),
        )
    return exc


def show_builds(context: CliContext) -> None:
    """Print builds, which the first use of a skill may need."""

    def show(line: str) -> None:
        context.err.line(one_line(line), "dim")

    context.satchel.runner.progress = show


def _show_trial(context: CliContext, trial: ToolTrial) -> None:
    err, reply = context.err, trial.reply
    data = reply.data
    if trial.request:
        _row(err, say("request"), _shortened(trial.request))
    if trial.response:
        _block(err, say("response"), _shortened(trial.response))
    if "tier" in data:
        _row(err, say("time"), format_duration(float(reply.stats["time_ms"])))
        _row(err, say("sandbox"), str(data["tier"]))
        found = context.satchel.library.tools().tools.get(trial.tool)
        if found is not None and found[0].wants:
            _row(err, say("allowed"), join_names(found[0].wants))
        if data["denied"]:
            _row(err, say("denied"), join_names(one_line(str(item)) for item in data["denied"]))
        if data.get("stderr"):
            _block(err, "stderr", str(data["stderr"]))
    if reply.error is not None:
        print_error(reply.error.message, reply.error.hint)
        return
    context.out.data(str(data["output"]) if "output" in data else reply.text)
    if "output" in data and data.get("truncated"):
        cut, kept = int(data["truncated"]), len(data["output"])
        message = say(
            "the model sees {kept} of {all} characters", all=f"{cut + kept:,}", kept=f"{kept:,}"
        )  # fmt: skip
        context.err.line(message, lead=[(say("warning: "), "yellow")])


def _row(err: Screen, title: str, text: str) -> None:
    err.line(one_line(text), "", "", "  ", [(title, "dim"), (say(": "), "dim")])


def _block(err: Screen, title: str, text: str) -> None:
    """Print a text that may have several lines."""
    lines = clean(text).strip("\n").split("\n")
    if len(lines) == 1:
        _row(err, title, text)
        return
    err.line("", lead=[(title, "dim"), (say(": ").rstrip(), "dim")])
    for line in lines:
        bare = line.expandtabs(4).rstrip()
        deep = len(bare) - len(bare.lstrip(" "))
        err.line(bare.lstrip(" "), "", "  " + " " * deep)


def _shortened(text: str) -> str:
    if len(text) <= _MAX_CHARS_SHOWN:
        return text
    return f"{text[:_MAX_CHARS_SHOWN]}… ({len(text):,})"


def format_duration(ms: float) -> str:
    """Format milliseconds."""
    if ms >= 1000:
        return f"{ms / 1000:.1f} s"
    return f"{ms:.1f} ms" if 0 < ms < 10 and ms % 1 else f"{ms:.0f} ms"
