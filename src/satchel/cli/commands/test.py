"""The command `test`: the tests of a tool skill, or the trigger tests of skills."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from satchel.cli import EXIT_INCOMPLETE
from satchel.cli.commands.try_tool import explain_missing_tool, format_duration, show_builds
from satchel.cli.console import one_line, plural, write_json
from satchel.cli.context import command, complete_names, no_such
from satchel.cli.options import all_option, cannot_combine, flag_option, missing
from satchel.i18n import render, say

if TYPE_CHECKING:
    from satchel.authoring.tool_tests import CaseResult
    from satchel.cli.console import Screen
    from satchel.cli.context import CliContext

_CASE_MARKS = {"pass": ("✓", "green"), "fail": ("✗", "red"), "not-run": ("–", "yellow")}
"""State of a case -> its mark and colour."""


@command(
    say("Run the tests of a skill."),
    "satchel test word-count",
    "satchel test --triggers style-check",
    "satchel test --triggers --all",
)
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=complete_names)
@flag_option("--triggers", say("Run the prompts that should select the skill."))
@all_option(say("Also skills outside the project."))
def test(
    context: CliContext, names: tuple[str, ...], triggers: bool, everything: bool, as_json: bool
) -> int:
    if names and everything:
        raise cannot_combine("NAME", "--all")
    if triggers:
        from satchel.cli.commands.trigger_tests import test_triggers

        return test_triggers(context, names, everything=everything, as_json=as_json)
    if len(names) != 1:
        raise missing("NAME")
    return _test_calls(context, names[0], as_json=as_json)


def _test_calls(context: CliContext, name: str, *, as_json: bool) -> int:
    """Run the examples and invalid calls of a tool skill, and print one row per case."""
    from satchel.authoring.tool_tests import check_runnable, open_program, run_cases

    satchel = context.satchel
    snapshot = satchel.library.tools()
    sources = snapshot.find(name)
    if not sources:
        exc = no_such(say("tool skill"), name, command="satchel list --tools")
        raise explain_missing_tool(context, name, exc, is_test=True)
    show_builds(context)
    source = sources[0]
    try:
        check_runnable(snapshot, source)
        bench = open_program(
            satchel, source.skill.base_dir, is_own=satchel.library.integrity.is_own(source.skill)
        )
        results = list(run_cases(bench))
    finally:
        satchel.close()
    failed = [result for result in results if result.state == "fail"]
    not_run = [result for result in results if result.state == "not-run"]
    status = 1 if failed else EXIT_INCOMPLETE if not_run else 0
    if as_json:
        write_json({
            "name": source.skill.name,
            "ok": status == 0,
            "complete": not not_run,
            "cases": [result.to_dict() for result in results],
        })  # fmt: skip
        return status
    _show_cases(context.out, results)
    message = say(
        "{passed} passed, {failed} failed",
        passed=f"{len(results) - len(failed) - len(not_run):,}",
        failed=f"{len(failed):,}",
    )
    if not_run:
        message += say(", ") + plural(len(not_run), say("not run"), say("not run"))
    context.err.line(message)
    return status


def _show_cases(out: Screen, results: list[CaseResult]) -> None:
    has_several_tools = len({result.case.tool for result in results}) > 1
    rows: list[list[str]] = []
    styles: list[list[str]] = []
    states = {"pass": say("passed"), "fail": say("failed"), "not-run": say("not run")}
    for result in results:
        mark, style = _CASE_MARKS[result.state]
        title = (
            f"{result.case.tool}: {result.case.title}" if has_several_tools else result.case.title
        )
        rows.append([
            f"{mark} {states[result.state]}",
            say(result.case.kind),
            one_line(title),
            format_duration(round(result.ms)) if result.state != "not-run" else "",
            one_line(render(result.text)),
        ])  # fmt: skip
        styles.append([style, "dim", "", "dim", "red" if result.state == "fail" else "dim"])
    head = ["", say("checked"), say("case"), say("time"), say("answer")]
    out.table(head, rows, styles)
