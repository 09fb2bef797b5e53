"""The command `try`: calls a tool or runs a script once, and shows how it ran."""

from __future__ import annotations

import codecs
import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, cast

import click

from satchel.cli.change_view import ApprovalPrompt
from satchel.cli.console import clean, one_line, print_error, write_json
from satchel.cli.context import command, complete_names, exit_code
from satchel.cli.options import allow_tools_option, cannot_combine, flag_option, needs
from satchel.errors import InvalidInput, NotFound, Refused, SatchelError, SkillBroken
from satchel.i18n import Message, join_names, render, say
from satchel.presentation.scripts import show_scripts
from satchel.runners.scripts import plan_script
from satchel.skill.trigger_file import has_triggers
from satchel.tools.proposed_changes import NEEDS_PERSON

if TYPE_CHECKING:
    from collections.abc import Callable

    from satchel.authoring.tool_trial import ToolTrial
    from satchel.cli.console import Screen
    from satchel.cli.context import CliContext
    from satchel.satchel import Satchel
    from satchel.session.permissions import ApprovalRequest
    from satchel.skill.model import Skill

_EXIT_CODES = {"missing-runtime": 6, "build-failed": 7}
"""Why a program could not be started -> exit code, as of the exceptions."""
_NEEDS_TERMINAL = Message("A person must agree, and none can be asked here")
_MAX_CHARS_SHOWN = 600
_MAX_NAMES_SHOWN = 20


@command(
    say("Call a tool or run a script of a skill once."),
    "satchel try word_count_count --arg text='to be or not to be'",
    'satchel try word-count --json-args \'{"text": "to be"}\'',
    "satchel try pdf-forms scripts/fill.py -- in.pdf --out out.pdf",
    name="try",
)
@click.argument("tool", shell_complete=complete_names)
@click.argument("script", required=False)
@click.argument("args", nargs=-1)
@click.option(
    "--arg", "pairs", multiple=True, metavar="NAME=VALUE", help=say("One argument; repeatable.")
)
@click.option(
    "--json-args", "json_arguments", default="", metavar="JSON", help=say("All arguments.")
)
@flag_option(
    "--stdin", say("Pass the standard input of this command to the script."), "reads_stdin"
)
@allow_tools_option()
def try_(
    context: CliContext,
    tool: str,
    script: str | None,
    args: tuple[str, ...],
    pairs: tuple[str, ...],
    json_arguments: str,
    reads_stdin: bool,
    allow_tools: bool,
    as_json: bool,
) -> int:
    from satchel.authoring.tool_trial import find_tool, read_arguments, try_script, try_tool

    satchel = context.satchel
    declined: list[ApprovalRequest] = []
    review = True if allow_tools else make_reviewer(context, declined)
    show_builds(context)
    if script is not None and (pairs or json_arguments):
        raise cannot_combine("--arg", "--json-args", "SCRIPT")
    if script is None and reads_stdin:
        raise needs("--stdin", "SCRIPT")
    live = _LiveOutput(context)
    try:
        if script is not None:
            skill = context.find(tool)[0]
            _require_script(satchel, skill, tool, script)
            _print_plan(context, skill, script)
            stdin_bytes = sys.stdin.buffer.read() if reads_stdin else b""
            if context.out.is_terminal and not as_json:
                satchel.runner.live = live
            trial = try_script(
                satchel, skill, script, args,
                review=review, stdin=stdin_bytes.decode("utf-8", "replace"),
            )  # fmt: skip
            if live.last_text and not live.last_text.endswith("\n"):
                context.err.line()
        else:
            try:
                name = find_tool(satchel, tool)
            except NotFound as exc:
                raise explain_missing_tool(context, tool, exc) from exc
            arguments = read_arguments(satchel, name, pairs, json_arguments)
            trial = try_tool(satchel, name, arguments, review=review)
        return _report(context, trial, declined, as_json=as_json, is_printed=bool(live.last_text))
    finally:
        satchel.close()


def _require_script(satchel: Satchel, skill: Skill, reference: str, script: str) -> None:
    """Refuse a second argument that is no file of a tool skill: an option is missing."""
    tool_skill = satchel.library.tools().of(skill)
    if tool_skill is None or os.path.lexists(os.path.join(skill.base_dir, script)):
        return
    tools = tool_skill.tools
    name = one_line(reference if reference in tools else tools[0])
    raise InvalidInput(
        say("The arguments of the tool `{name}` need an option", name=name),
        say("Run `{command}`", command=f"satchel try {name} --arg NAME=VALUE"),
    )


class _LiveOutput:
    """Prints the output of a script while it runs."""

    def __init__(self, context: CliContext) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")
        screens = {"stdout": context.out, "stderr": context.err}
        self._outputs = {name: (screen, decoder("replace")) for name, screen in screens.items()}
        self.last_text = ""
        """The text that was printed last."""

    def __call__(self, stream: str, data: bytes, /) -> None:
        screen, decoder = self._outputs[stream]
        text = clean(decoder.decode(data))
        screen.write(text)
        screen.stream.flush()
        self.last_text = text or self.last_text


def _print_plan(context: CliContext, skill: Skill, script: str) -> None:
    """Print how and where a script is started; the call itself reports why it cannot be."""
    project = context.satchel.settings.project
    if project != os.getcwd():
        location = say("{path}, the project's folder, not this one", path=project)
        _print_fact(context.err, say("working folder"), location)
    with suppress(SatchelError):
        plan = plan_script(skill.base_dir, script.removeprefix("./"))
        _print_fact(context.err, say("interpreter"), plan.interpreter)
        if plan.packages:
            _print_fact(context.err, say("packages"), join_names(plan.packages))


def _report(
    context: CliContext,
    trial: ToolTrial,
    declined: list[ApprovalRequest],
    *,
    as_json: bool,
    is_printed: bool = False,
) -> int:
    hint = say("Run it in a terminal, which asks you, or pass `--allow-tools`") if declined else ""
    if as_json:
        write_json(trial.to_dict())
    else:
        _print_trial(context, trial, hint, is_printed=is_printed)
        if reply_hint := trial.reply.data.get("hint"):
            context.err.line(one_line(render(reply_hint)), indent=say("hint: "))
        if hint and trial.reply.error is None:
            context.err.line(hint, indent=say("hint: "))
    if declined:
        return Refused.exit_code
    return _EXIT_CODES.get(str(trial.reply.data.get("failure")), exit_code(trial.reply))


def make_reviewer(
    context: CliContext, declined: list[ApprovalRequest]
) -> Callable[[ApprovalRequest], bool]:
    """Return a function that shows proposed changes and asks whether to apply them.

    Without a terminal it adds the request to `declined`, and returns that a person is needed.
    """

    def review(request: ApprovalRequest) -> bool:
        if not sys.stdin.isatty():
            declined.append(request)
            reason = NEEDS_PERSON if request.changes else _NEEDS_TERMINAL
            return cast("bool", reason)
        prompt = ApprovalPrompt(context.err, request)
        decision: bool | None = None
        while decision is None:
            context.is_asking = True  # stays set after Ctrl-C
            context.err.write(prompt.keys)
            context.err.stream.flush()
            decision = prompt.answer(sys.stdin.readline())
            context.is_asking = False
        return decision

    return review


def explain_missing_tool(
    context: CliContext, name: str, exc: NotFound, *, is_test: bool = False
) -> SatchelError:
    """Return a more precise error than `exc`: a broken skill.yaml, or a skill without a program.

    Args:
        context: The context of this run.
        name: The tool or skill that was not found.
        exc: The error, which is returned if there is no better one.
        is_test: Whether the command is `test`, which suggests trigger tests.
    """
    skill_name = name.partition(".")[0]
    prefix = skill_name
    while prefix:  # a tool is named after the folder of its skill
        for folder in (prefix, prefix.replace("_", "-")):
            error = context.not_found(folder)
            if isinstance(error, SkillBroken):
                return error
        prefix = prefix.rpartition("_")[0]
    skills = context.satchel.library.snapshot().find(skill_name)
    if not skills:
        return exc
    skill = skills[0]
    display_name, reference = one_line(skill.name), one_line(skill.reference)
    suggests_triggers = is_test and has_triggers(skill.base_dir)
    scripts = show_scripts(context.satchel, skill)
    if scripts is not None and not suggests_triggers:
        names = [f"`{script.path}`" for script in scripts.rows[:_MAX_NAMES_SHOWN]]
        if scripts.more or len(scripts.rows) > len(names):
            names.append("…")
        first = next((script for script in scripts.rows if script.interpreter), scripts.rows[0])
        command = f"satchel try {reference} {first.path} -- ARGUMENTS"
        return InvalidInput(
            say("`{name}` is no tool; it has scripts", name=display_name),
            say("Its scripts are {names}: run `{command}`",
                names=join_names(names), command=command),
        )  # fmt: skip
    command = f"satchel check {reference}"
    if suggests_triggers:
        command = f"satchel test --triggers {reference}"
    return InvalidInput(
        say("`{name}` has instructions and no program", name=display_name),
        say("Run `{command}`", command=command),
    )


def show_builds(context: CliContext) -> None:
    """Print builds, which the first use of a skill may need."""

    def show(line: str) -> None:
        context.err.line(one_line(line), "dim")

    context.satchel.runner.progress = show


def _print_trial(context: CliContext, trial: ToolTrial, hint: str, *, is_printed: bool) -> None:
    err, reply = context.err, trial.reply
    data = reply.data
    if trial.request:
        _print_fact(err, say("request"), _shorten(trial.request))
    if trial.response:
        _print_block(err, say("response"), _shorten(trial.response))
    if "tier" in data:
        _print_run(context, trial)
        if data.get("stderr") and not is_printed:
            _print_block(err, "stderr", str(data["stderr"]))
    output = "" if is_printed else str(data.get("output", reply.text))
    if reply.error is not None:
        if "script" in data:
            context.out.data(output)
        print_error(reply.error.message, hint or reply.error.hint)
        return
    context.out.data(output)
    if "output" in data and data.get("truncated"):
        visible_chars = len(data["output"])
        total_chars = int(data["truncated"]) + visible_chars
        values = {"all": f"{total_chars:,}", "kept": f"{visible_chars:,}"}
        message = say("the model sees {kept} of {all} characters", **values)
        context.err.line(message, lead=[(say("warning: "), "yellow")])


def _print_run(context: CliContext, trial: ToolTrial) -> None:
    """Print how a program ran, and what it was allowed."""
    err, data = context.err, trial.reply.data
    _print_fact(err, say("time"), format_duration(float(trial.reply.stats["time_ms"])))
    _print_fact(err, say("sandbox"), str(data["tier"]))
    entry = context.satchel.library.tools().tools.get(trial.tool)
    if entry is not None and entry[0].wants:
        _print_fact(err, say("allowed"), join_names(entry[0].wants))
    for sentence in data["denied"]:
        _print_fact(err, say("denied"), one_line(str(sentence)))
    if names := [one_line(str(change["path"])) for change in data.get("changes", ())]:
        names[_MAX_NAMES_SHOWN:] = ["…"] if names[_MAX_NAMES_SHOWN:] else []
        _print_fact(err, say("changed"), join_names(names))
    for message in data.get("lost", ()):
        err.line(one_line(str(message)), lead=[(say("warning: "), "yellow")])


def _print_fact(err: Screen, title: str, text: str) -> None:
    err.line(one_line(text), hang="  ", lead=[(title, "dim"), (say(": "), "dim")])


def _print_block(err: Screen, title: str, text: str) -> None:
    """Print a text that may have several lines."""
    lines = clean(text).strip("\n").split("\n")
    if len(lines) == 1:
        _print_fact(err, title, text)
        return
    err.line("", lead=[(title, "dim"), (say(": ").rstrip(), "dim")])
    for line in lines:
        expanded = line.expandtabs(4).rstrip()
        content = expanded.lstrip(" ")
        err.line(content, indent=" " * (2 + len(expanded) - len(content)))


def _shorten(text: str) -> str:
    if len(text) <= _MAX_CHARS_SHOWN:
        return text
    return f"{text[:_MAX_CHARS_SHOWN]}… ({len(text):,})"


def format_duration(ms: float) -> str:
    """Format milliseconds."""
    if ms >= 1000:
        return f"{ms / 1000:.1f} s"
    return f"{ms:.1f} ms" if 0 < ms < 10 and ms % 1 else f"{ms:.0f} ms"
