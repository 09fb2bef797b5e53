"""The commands `try` (call a tool once) and `test` (run the tests of a skill)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from satchel.cli import EXIT_INCOMPLETE
from satchel.cli.console import clean, one_line, print_error, write_json
from satchel.cli.context import command, complete_names, completions, exit_code
from satchel.cli.options import Share, all_option, flag_option
from satchel.errors import InvalidInput, NotFound, SkillBroken
from satchel.i18n import listed, render, say

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from satchel.authoring.tool_tests import CaseResult
    from satchel.authoring.tool_trial import ToolTrial
    from satchel.cli.console import Screen
    from satchel.cli.context import CliContext
    from satchel.errors import SatchelError
    from satchel.skill.manifest import ToolManifest

_MARKS = {"pass": ("✓", "green"), "fail": ("✗", "red"), "not-run": ("–", "yellow")}
_KINDS = {"example": "example", "refused": "call", "program": "program"}
"""Kind of a case -> its name: a call refused before the program runs, or by the program."""
_EXIT_CODES = {"missing-runtime": 6, "build-failed": 7}
"""Why a program could not be started -> exit code, as of the exceptions."""
_MAX_CHARS_SHOWN = 600


def _complete(ctx: click.Context, _parameter: click.Parameter, start: str) -> list[CompletionItem]:
    return completions(
        ctx, start, lambda satchel, skill: bool(satchel.library.tools().find(skill.name))
    )


@command(
    say("Call a tool once, as an agent would, and show everything.")
    + "\n\n"
    + say(
        "TOOL is a tool's name, the name of a skill that has one tool, or `skill.tool`. Shows the "
        "line that the program got, what it wrote, how long it took and how it was held. Exits "
        "with 0 when it answered, 1 when it answered with an error or failed, 2 when the arguments "
        "are wrong, 3 when there is no such tool, 4 when it may not run, 5 when its `skill.yaml` "
        "is broken, 6 when a runtime is missing, 7 when it cannot be built."
    ),
    "satchel try word_count_count --arg text='to be or not to be'",
    'satchel try word-count --json-args \'{"text": "to be"}\'',
    "satchel try word-count --arg path=README.md --raw",
    name="try",
)
@click.argument("tool", shell_complete=_complete)
@click.option("--arg", "pairs", multiple=True, metavar="NAME=VALUE", help=say("One argument."))
@click.option("--json-args", "table", default="", metavar="JSON", help=say("All of them at once."))
@flag_option("--raw", say("Print what the program wrote and nothing else."))
def try_(
    context: CliContext, tool: str, pairs: tuple[str, ...], table: str, raw: bool, as_json: bool
) -> int:
    from satchel.authoring.tool_trial import find_tool, read_arguments, try_tool

    satchel = context.satchel
    _show_builds(context)
    try:
        try:
            name = find_tool(satchel, tool)
        except NotFound as exc:
            raise _no_tool(context, tool, exc) from exc
        arguments = read_arguments(satchel, name, pairs, table)
        trial = try_tool(satchel, name, arguments)
    finally:
        satchel.close()
    if as_json:
        write_json(trial.to_dict())
    elif raw:
        if trial.response or trial.reply.error is None:
            context.out.data(trial.response or trial.reply.text)
        if not trial.response or "fault" in trial.reply.data:
            _print_error(trial)
    else:
        _show_trial(context, trial)
    return _EXIT_CODES.get(str(trial.reply.data.get("failure")), exit_code(trial.reply))


def _no_tool(
    context: CliContext, name: str, exc: NotFound, *, tested: bool = False
) -> SatchelError:
    """A more precise error than `exc`: its skill.yaml is broken, or the skill has no program."""
    whole = name.partition(".")[0]
    for part in (name, whole):
        other = context.not_found(part)
        if isinstance(other, SkillBroken):
            return other
    found = context.satchel.library.snapshot().find(whole)
    if found:
        from satchel.skill.trigger_file import has_triggers

        typed = found[0].typed
        return InvalidInput(
            say("`{name}` has instructions and no program", name=one_line(found[0].name)),
            say("Run its prompts: `satchel test --triggers {name}`", name=typed)
            if tested and has_triggers(found[0].base_dir)
            else say("Check it with `satchel check {name}`", name=typed),
        )
    return exc


def _show_builds(context: CliContext) -> None:
    """Print builds, which the first use of a skill may need."""

    def show(line: str) -> None:
        context.err.line(one_line(line), "dim")

    context.satchel.engine.progress = show


def _show_trial(context: CliContext, trial: ToolTrial) -> None:
    err, reply = context.err, trial.reply
    data = reply.data
    if trial.request:
        _row(err, say("request"), _shortened(trial.request))
    if trial.response:
        _block(err, say("response"), _shortened(trial.response))
    if "tier" in data:
        limits = data["limits"]
        _row(err, say("time"), _times(reply.stats))
        ways = {"cold": say("a new process"), "warm": say("a kept process")}
        way = ways.get(data["way"], data["way"])
        _row(err, say("sandbox"), say("{tier} ({way})", tier=data["tier"], way=way))
        _row(err, say("limits"), say(
            "{seconds} s, {characters} characters, {memory} MB",
            seconds=f"{limits['timeout']:g}", characters=limits["output"],
            memory=limits["memory"] >> 20,
        ))  # fmt: skip
        found = context.satchel.library.tools().tools.get(trial.tool)
        if found is not None:
            _row(err, say("allowed"), _allowed(found[0].manifest))
        if data["denied"]:
            _row(err, say("denied"), listed(one_line(str(item)) for item in data["denied"]))
        if data.get("stderr"):
            _block(err, "stderr", str(data["stderr"]))
    if reply.error is not None:
        _print_error(trial)
        return
    context.out.data(str(data["output"]) if "output" in data else reply.text)
    if "output" in data and data.get("truncated"):
        cut, kept = int(data["truncated"]), len(data["output"])
        message = say(
            "{cut} of {all} characters were cut: a model sees {kept}",
            cut=f"{cut:,}", all=f"{cut + kept:,}", kept=f"{kept:,}",
        )  # fmt: skip
        context.err.line(message, lead=[(say("warning: "), "yellow")])


def _print_error(trial: ToolTrial) -> None:
    error = trial.reply.error
    if error is not None:
        print_error(error.message, error.hint)


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
    size = say("({count} characters)", count=len(text))
    return f"{text[:_MAX_CHARS_SHOWN]}… {size}"


def _times(stats: dict[str, Any]) -> str:
    ran, waited = float(stats.get("ran_ms", 0)), float(stats.get("waited_ms", 0))
    parts = [say("{time} to run", time=_duration(ran))]
    if waited >= 1:
        parts.append(say("{time} in the queue", time=_duration(waited)))
    parts.append(say("{time} in all", time=_duration(float(stats["time_ms"]))))
    return say(", ").join(parts)


def _duration(ms: float) -> str:
    if ms >= 1000:
        return f"{ms / 1000:.1f} s"
    return f"{ms:.1f} ms" if 0 < ms < 10 and ms % 1 else f"{ms:.0f} ms"


def _allowed(manifest: ToolManifest) -> str:
    files = {
        "none": say("sees its own folder alone"),
        "read": say("reads the project's files"),
        "write": say("reads and changes the project's files"),
    }[manifest.files.access]
    network = say("the network") if manifest.network else say("no network")
    names = listed(f"`{name}`" for name in manifest.secrets)
    secrets = say("the secrets {names}", names=names) if names else say("no secrets")
    return say("; ").join((files, say(", ").join((network, secrets))))


def _complete_tested(
    ctx: click.Context, parameter: click.Parameter, start: str
) -> list[CompletionItem]:
    if ctx.params.get("triggers"):
        return complete_names(ctx, parameter, start)
    return _complete(ctx, parameter, start)


@command(
    say("Run the tests of a skill: the calls of a tool, or the prompts that should choose it.")
    + "\n\n"
    + say("Run the examples of a tool skill, and the calls that it has to refuse.")
    + " "
    + say(
        "Wrong arguments are tried twice: as an agent sends them, which must not reach the "
        "program, and handed to the program, which must answer with an error; a parameter that it "
        "does not know it may pass over. A tool that writes works on a copy. Exits with 1 when a "
        "case fails, 8 when none does but an example could not be run, and else as `try` does."
    )
    + "\n\n"
    + say(
        "With `--triggers` the prompts in `evals/triggers.yaml` are run against the skills that "
        "are offered here, without any model: who is chosen, who took a prompt and by which "
        "words, and which words of the description would help. NAME is a name or a folder, "
        "trusted or not; without it, every skill of the project that has such a file is tested. "
        "Exits with 1 when a prompt fails, 3 when there is none, 5 when a file is broken."
    ),
    "satchel test word-count",
    "satchel test word-count --json",
    "satchel test --triggers style-check",
    "satchel test --triggers --min-recall 0.9",
)
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=_complete_tested)
@flag_option("--triggers", say("Run the prompts that should choose the skill."))
@all_option(say("With `--triggers`: also skills of other places: system, home."))
@click.option(
    "--min-recall",
    type=Share(),
    metavar="SHARE",
    help=say("With `--triggers`: the share of the `should` prompts that must pass; by default 1."),
)
@click.option(
    "--min-precision",
    type=Share(),
    metavar="SHARE",
    help=say(
        "With `--triggers`: the share of the prompts that chose the skill and should; by default 1."
    ),
)
def test(
    context: CliContext,
    names: tuple[str, ...],
    triggers: bool,
    everything: bool,
    min_recall: float | None,
    min_precision: float | None,
    as_json: bool,
) -> int:

    hint = say("Run `{command} --help`", command="satchel test")
    if triggers:
        from satchel.cli.commands.triggers import TriggerThresholds, run_trigger_tests

        if names and everything:
            raise InvalidInput(say("Give names or `--all`, not both"), hint)
        bounds = TriggerThresholds(
            1.0 if min_recall is None else min_recall,
            1.0 if min_precision is None else min_precision,
        )
        return run_trigger_tests(context, names, bounds, everything=everything, as_json=as_json)
    if everything or min_recall is not None or min_precision is not None:
        raise InvalidInput(say("That option belongs to `--triggers`"), hint)
    if not names:
        raise InvalidInput(say("`{name}` is missing", name="NAME"), hint)
    first, *others = names
    if others:
        raise InvalidInput(say("Give one tool skill at a time"), hint)
    return _test_calls(context, first, as_json=as_json)


def _test_calls(context: CliContext, name: str, *, as_json: bool) -> int:
    """Print one row per case."""
    from satchel.authoring.tool_tests import check_runnable, open_program, run_cases

    satchel = context.satchel
    snapshot = satchel.library.tools()
    found = snapshot.find(name)
    if not found:
        exc = NotFound(
            say("There is no tool skill `{name}`", name=one_line(name)),
            say("Run `satchel tools` to see what there is"),
        )
        raise _no_tool(context, name, exc, tested=True)
    _show_builds(context)
    source = found[0]
    try:
        check_runnable(snapshot, source)
        bench = open_program(
            satchel, source.skill.base_dir, own=satchel.library.seals.is_own(source.skill)
        )
        outcomes = list(run_cases(bench))
    finally:
        satchel.close()
    failed = [one for one in outcomes if one.state == "fail"]
    left = [one for one in outcomes if one.state == "not-run"]
    status = 1 if failed else EXIT_INCOMPLETE if left else 0
    if as_json:
        write_json({
            "name": source.skill.name,
            "ok": status == 0,
            "complete": not left,
            "cases": [one.to_dict() for one in outcomes],
        })  # fmt: skip
        return status
    _show_cases(context.out, outcomes)
    message = say(
        "{passed} passed, {failed} failed, {left} not run",
        passed=len(outcomes) - len(failed) - len(left),
        failed=len(failed),
        left=len(left),
    )
    context.err.line(message)
    return status


def _show_cases(out: Screen, outcomes: list[CaseResult]) -> None:
    several = len({one.case.tool for one in outcomes}) > 1
    rows: list[list[str]] = []
    styles: list[list[str]] = []
    states = {"pass": say("passed"), "fail": say("failed"), "not-run": say("not run")}
    for one in outcomes:
        mark, style = _MARKS[one.state]
        title = f"{one.case.tool}: {one.case.title}" if several else one.case.title
        rows.append([
            f"{mark} {states[one.state]}",
            say(_KINDS[one.case.kind]),
            one_line(title),
            _duration(round(one.ms)) if one.state != "not-run" else "",
            one_line(render(one.said)),
        ])  # fmt: skip
        styles.append([style, "dim", "", "dim", "red" if one.state == "fail" else "dim"])
    head = ["", say("checked"), say("case"), say("time"), say("answer")]
    out.table(head, rows, styles)
