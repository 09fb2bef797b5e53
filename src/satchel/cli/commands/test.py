"""The command `test`: the tests of a tool skill, or the trigger tests of skills."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from satchel.cli import EXIT_FAILED, EXIT_INCOMPLETE
from satchel.cli.commands.search import format_reason, percent
from satchel.cli.commands.try_tool import format_duration, no_tool, show_builds
from satchel.cli.console import one_line, pad, plural, print_error, width_of, wrap, write_json
from satchel.cli.context import (
    ProgressBar,
    command,
    complete_names,
    no_such,
    short_path,
    skill_folders,
)
from satchel.cli.options import all_option, cannot_combine, flag_option, missing
from satchel.errors import InvalidInput, NotFound, SkillBroken
from satchel.explain_selection import significant_words
from satchel.i18n import join_names, render, say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from satchel.authoring.tool_tests import CaseResult
    from satchel.authoring.trigger_tests import PromptResult, TriggerResult
    from satchel.cli.console import Screen
    from satchel.cli.context import CliContext
    from satchel.skill.model import Skill
    from satchel.skill.trigger_file import Triggers

_MARKS = {"pass": ("✓", "green"), "fail": ("✗", "red"), "not-run": ("–", "yellow")}


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
        return run_trigger_tests(context, names, everything=everything, as_json=as_json)
    if len(names) != 1:
        raise missing("NAME")
    return _test_calls(context, names[0], as_json=as_json)


def _test_calls(context: CliContext, name: str, *, as_json: bool) -> int:
    """Print one row per case."""
    from satchel.authoring.tool_tests import check_runnable, open_program, run_cases

    satchel = context.satchel
    snapshot = satchel.library.tools()
    found = snapshot.find(name)
    if not found:
        exc = no_such(say("tool skill"), name, command="satchel tools")
        raise no_tool(context, name, exc, tested=True)
    show_builds(context)
    source = found[0]
    try:
        check_runnable(snapshot, source)
        bench = open_program(
            satchel, source.skill.base_dir, own=satchel.library.integrity.is_own(source.skill)
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
        "{passed} passed, {failed} failed",
        passed=f"{len(outcomes) - len(failed) - len(left):,}",
        failed=f"{len(failed):,}",
    )
    unrun = say(", ") + plural(len(left), say("not run"), say("not run")) if left else ""
    context.err.line(message + unrun)
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
            say(one.case.kind),
            one_line(title),
            format_duration(round(one.ms)) if one.state != "not-run" else "",
            one_line(render(one.said)),
        ])  # fmt: skip
        styles.append([style, "dim", "", "dim", "red" if one.state == "fail" else "dim"])
    head = ["", say("checked"), say("case"), say("time"), say("answer")]
    out.table(head, rows, styles)


_MAX_WORDS_SHOWN = 4
_MAX_NOTES_SHOWN = 3
_EXAMPLE = "\nshould:\n  - Look over my pull request\nshould_not:\n  - Write the release notes"


def run_trigger_tests(
    context: CliContext,
    names: Sequence[str],
    *,
    everything: bool,
    as_json: bool,
) -> int:
    """Run the trigger tests of some skills; returns the exit code."""
    from satchel.authoring.trigger_tests import run_subjects

    chosen = _subjects(context, names, everything=everything)
    if not chosen:
        if as_json:
            write_json({**_to_dict([], [], ok=True), "notes": []})
        context.err.line(_no_tests())
        return 0
    broken = [(skill, triggers) for skill, triggers in chosen if triggers.problems]
    if broken and len(chosen) == 1:
        raise _broken_error(*broken[0])
    with ProgressBar(say("Checking")) as bar:
        results = run_subjects(context.satchel, [one for one in chosen if not one[1].problems], bar)
    notes = list(dict.fromkeys(note for one in results for row in one.rows for note in row.notes))
    passed = all(one.ok for one in results)
    status = SkillBroken.exit_code if broken else 0 if passed else EXIT_FAILED
    if as_json:
        write_json({**_to_dict(results, broken, ok=status == 0), "notes": notes})
        return status
    for at, result in enumerate(results):
        if at:
            context.out.line()
        _show(context.out, result)
    for skill, triggers in broken:
        error = _broken_error(skill, triggers)
        print_error(error.message, error.hint)
    _show_summary(context, results)
    for note in notes[:_MAX_NOTES_SHOWN]:
        context.err.line(one_line(note), "dim")
    return status


def _to_dict(
    results: list[TriggerResult],
    broken: list[tuple[Skill, Triggers]],
    *,
    ok: bool,
) -> dict[str, Any]:
    return {
        "ok": ok,
        "results": [one.to_dict() for one in results],
        "broken": [
            {
                "name": skill.name,
                "path": triggers.path,
                "problems": [problem.to_dict() for problem in triggers.problems],
            }
            for skill, triggers in broken
        ],
    }


def find_subject(context: CliContext, word: str) -> Skill:
    """Find a skill by name, or by a folder outside the library."""
    from satchel.authoring.trigger_tests import skill_at

    folder, *others = skill_folders(context, word)
    if others:
        raise InvalidInput(
            say("`{path}` has several skills", path=one_line(word)),
            say("Choose one of {names}", names=join_names(map(short_path, [folder, *others]))),
        )
    known = [one for one in context.satchel.library.every() if one.base_dir == folder]
    return known[0] if known else skill_at(folder)


def _subjects(
    context: CliContext, names: Sequence[str], *, everything: bool
) -> list[tuple[Skill, Triggers]]:
    """The named skills, or all of the project, with their trigger tests."""
    from satchel.authoring.trigger_tests import subjects
    from satchel.skill.trigger_file import FILE, load_triggers

    hint = say("Write `{file}` beside its SKILL.md", file=FILE) + _EXAMPLE
    if names:
        found: dict[str, tuple[Skill, Triggers]] = {}
        for word in names:
            skill = find_subject(context, word)
            triggers = load_triggers(skill.base_dir)
            if triggers is None:
                raise NotFound(_no_tests(), hint)
            found[skill.path] = (skill, triggers)
        return list(found.values())
    return subjects(context.satchel.library.every(), everything=everything)


def _no_tests() -> str:
    return say("There are no trigger tests")


def _broken_error(skill: Skill, triggers: Triggers) -> SkillBroken:
    """The first problem of an invalid trigger file; `satchel check` shows all of them."""
    first = triggers.problems[0]
    where = short_path(first.path) + (f":{first.line}" if first.line else "")
    text = say(
        "The trigger tests of `{name}` cannot be run: {problem}",
        name=one_line(skill.name),
        problem=one_line(first.message),
    )
    return SkillBroken(text, say("{fix} (`{path}`)", fix=one_line(first.fix), path=one_line(where)))


def _show(out: Screen, result: TriggerResult) -> None:
    mark, colour = ("✓", "green") if result.ok else ("✗", "red")
    name = out.paint(one_line(result.skill.name), "bold")
    where = out.paint(one_line(short_path(result.path)), "dim")
    out.write(f"{out.paint(mark, colour)} {name}  {where}\n")
    for row in result.rows:
        _show_row(out, row)


def _show_row(out: Screen, row: PromptResult) -> None:
    tick, style = ("✓", "green") if row.ok else ("✗", "red")
    side = say("should") if row.prompt.fires else say("should not")
    width = max(width_of(say("should")), width_of(say("should not")))
    rank = f"#{row.rank}" if row.rank else "–"
    lead = [(tick, style), (f" {pad(side, width)}  ", "dim"), (f"{rank:<4} ", "dim")]
    hang = " " * (4 + width + 2 + 5)
    lines = wrap(one_line(row.prompt.text), max(out.width - len(hang), 20) if out.width else 0)
    out.write("  " + "".join(out.paint(*part) for part in lead) + ("\n" + hang).join(lines) + "\n")
    for line in _explain(row):
        out.line(line, "dim", hang + "→ ", hang + "  ")


def _explain(row: PromptResult) -> list[str]:
    """Why the result of a prompt is wrong; empty when it is right."""
    reasons: list[str] = []
    if not row.ok and row.prompt.fires:
        reasons.append(_why_missed(row))
        missing = significant_words(row.missing)
        if missing:
            words = join_names(f"`{one_line(word)}`" for word in missing[:_MAX_WORDS_SHOWN])
            reasons.append(say("missing words") + say(": ") + words)
    elif not row.ok and row.own is not None:
        reasons.append(format_reason(row.own))
    if not row.instead:
        reasons.append(say("`{name}` was not selected instead", name=one_line(row.prompt.instead)))
    return reasons


def _why_missed(row: PromptResult) -> str:
    if row.stand_in:
        return say("`{name}` is a near duplicate", name=one_line(row.stand_in))
    if not row.rivals:
        return say(
            "the closest reaches {fit} %, {needed} % is needed",
            fit=percent(row.sure[0]),
            needed=percent(row.sure[1]),
        )
    first = row.rivals[0]
    return f"`{one_line(first.name)}`{say(': ')}{format_reason(first)}"


def _show_summary(context: CliContext, results: list[TriggerResult]) -> None:
    rows = [row for result in results for row in result.rows]
    passed = sum(row.ok for row in rows)
    context.err.line(
        say("{passed} passed, {failed} failed", passed=passed, failed=len(rows) - passed)
    )
