"""Runs and prints trigger tests, for `satchel test --triggers`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from satchel.authoring.trigger_tests import (
    TriggerSuite,
    find_suites,
    load_outside_skill,
    run_trigger_tests,
)
from satchel.cli import EXIT_FAILED
from satchel.cli.commands.search import format_reason
from satchel.cli.console import one_line, pad, print_error, width_of, wrap, write_json
from satchel.cli.context import ProgressBar, short_path, skill_folders
from satchel.diagnosis.selection import percent, significant_words
from satchel.errors import InvalidInput, NotFound, SkillBroken
from satchel.i18n import join_names, say
from satchel.skill.eval_file import trigger_prompts
from satchel.skill.trigger_file import FILE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from satchel.authoring.trigger_tests import PromptResult, TriggerResult
    from satchel.cli.console import Screen
    from satchel.cli.context import CliContext
    from satchel.skill.model import Skill

_MAX_WORDS_SHOWN = 4
_MAX_NOTES_SHOWN = 3
_EXAMPLE = "\nshould:\n  - Look over my pull request\nshould_not:\n  - Write the release notes"


def test_triggers(
    context: CliContext, names: Sequence[str], *, everything: bool, as_json: bool
) -> int:
    """Run the trigger tests of some skills; returns the exit code."""
    suites = _find_suites(context, names, everything=everything)
    if not suites:
        if as_json:
            write_json({**_to_dict([], [], ok=True), "notes": []})
        context.err.line(_no_tests())
        return 0
    broken = [suite for suite in suites if suite.triggers.problems]
    if broken and len(suites) == 1:
        raise _broken_error(broken[0])
    valid = [suite for suite in suites if not suite.triggers.problems]
    with ProgressBar(say("Checking")) as bar:
        results = run_trigger_tests(context.satchel, valid, bar)
    notes = _unique_notes(results)
    passed = all(result.ok for result in results)
    status = SkillBroken.exit_code if broken else 0 if passed else EXIT_FAILED
    if as_json:
        write_json({**_to_dict(results, broken, ok=status == 0), "notes": notes})
        return status
    _print_results(context.out, results)
    for suite in broken:
        error = _broken_error(suite)
        print_error(error.message, error.hint)
    _print_summary(context, results)
    for note in notes[:_MAX_NOTES_SHOWN]:
        context.err.line(one_line(note), "dim")
    return status


def _to_dict(
    results: Sequence[TriggerResult], broken: Sequence[TriggerSuite], *, ok: bool
) -> dict[str, Any]:
    return {
        "ok": ok,
        "results": [result.to_dict() for result in results],
        "broken": [
            {
                "name": suite.skill.name,
                "path": suite.triggers.path,
                "problems": [problem.to_dict() for problem in suite.triggers.problems],
            }
            for suite in broken
        ],
    }


def find_one_skill(context: CliContext, reference: str) -> Skill:
    """Find a skill by name, or by a folder outside the library."""
    folder, *others = skill_folders(context, reference)
    if others:
        raise InvalidInput(
            say("`{path}` has several skills", path=one_line(reference)),
            say("Choose one of {names}", names=join_names(map(short_path, [folder, *others]))),
        )
    skills = [skill for skill in context.satchel.library.every() if skill.base_dir == folder]
    return skills[0] if skills else load_outside_skill(folder)


def _find_suites(
    context: CliContext, references: Sequence[str], *, everything: bool
) -> list[TriggerSuite]:
    """Return the named skills, or all of the project, with their trigger tests."""
    if not references:
        return find_suites(context.satchel.library.every(), everything=everything)
    suites: dict[str, TriggerSuite] = {}
    for reference in references:
        skill = find_one_skill(context, reference)
        triggers = trigger_prompts(skill.base_dir, skill.name)
        if triggers is None:
            hint = say("Write `{file}` beside its SKILL.md", file=FILE) + _EXAMPLE
            raise NotFound(_no_tests(), hint)
        suites[skill.path] = TriggerSuite(skill, triggers)
    return list(suites.values())


def _no_tests() -> str:
    return say("There are no trigger tests")


def _broken_error(suite: TriggerSuite) -> SkillBroken:
    """Return the first problem of an invalid trigger file; `satchel check` shows all of them."""
    first = suite.triggers.problems[0]
    location = short_path(first.path) + (f":{first.line}" if first.line else "")
    text = say(
        "The trigger tests of `{name}` cannot be run: {problem}",
        name=one_line(suite.skill.name),
        problem=one_line(first.message),
    )
    return SkillBroken(
        text, say("{fix} (`{path}`)", fix=one_line(first.fix), path=one_line(location))
    )


def _unique_notes(results: Sequence[TriggerResult]) -> list[str]:
    prompt_results = _prompt_results(results)
    return list(dict.fromkeys(note for result in prompt_results for note in result.notes))


def _prompt_results(results: Sequence[TriggerResult]) -> list[PromptResult]:
    return [prompt_result for result in results for prompt_result in result.results]


def _print_results(out: Screen, results: Sequence[TriggerResult]) -> None:
    for index, result in enumerate(results):
        if index:
            out.line()
        _print_result(out, result)


def _print_result(out: Screen, result: TriggerResult) -> None:
    mark, colour = ("✓", "green") if result.ok else ("✗", "red")
    name = out.paint(one_line(result.skill.name), "bold")
    path = out.paint(one_line(short_path(result.path)), "dim")
    out.write(f"{out.paint(mark, colour)} {name}  {path}\n")
    for prompt_result in result.results:
        _print_prompt(out, prompt_result)


def _print_prompt(out: Screen, result: PromptResult) -> None:
    mark, style = ("✓", "green") if result.ok else ("✗", "red")
    expectation = say("should") if result.prompt.fires else say("should not")
    width = max(width_of(say("should")), width_of(say("should not")))
    rank = f"#{result.rank}" if result.rank else "–"
    lead = [(mark, style), (f" {pad(expectation, width)}  ", "dim"), (f"{rank:<4} ", "dim")]
    hang = " " * (4 + width + 2 + 5)
    lines = wrap(one_line(result.prompt.text), max(out.width - len(hang), 20) if out.width else 0)
    painted_lead = "".join(out.paint(text, style) for text, style in lead)
    out.write(f"  {painted_lead}" + ("\n" + hang).join(lines) + "\n")
    for reason in _failure_reasons(result):
        out.line(reason, "dim", indent=hang + "→ ", hang=hang + "  ")


def _failure_reasons(result: PromptResult) -> list[str]:
    """Return why the result of a prompt is wrong; empty when it is right."""
    reasons: list[str] = []
    if not result.ok and result.prompt.fires:
        reasons.append(_miss_reason(result))
        missing = significant_words(result.missing)
        if missing:
            words = join_names(f"`{one_line(word)}`" for word in missing[:_MAX_WORDS_SHOWN])
            reasons.append(say("missing words") + say(": ") + words)
    elif not result.ok and result.match is not None:
        reasons.append(format_reason(result.match))
    if not result.is_rival_selected:
        reasons.append(
            say("`{name}` was not selected instead", name=one_line(result.prompt.instead))
        )
    return reasons


def _miss_reason(result: PromptResult) -> str:
    """Return why a skill is not selected that should be."""
    if result.near_copy:
        return say("`{name}` is a near duplicate", name=one_line(result.near_copy))
    if not result.rivals:
        return say(
            "the closest reaches {fit} %, {needed} % is needed",
            fit=percent(result.fit),
            needed=percent(result.threshold),
        )
    first = result.rivals[0]
    return f"`{one_line(first.name)}`{say(': ')}{format_reason(first)}"


def _print_summary(context: CliContext, results: Sequence[TriggerResult]) -> None:
    prompt_results = _prompt_results(results)
    passed = sum(result.ok for result in prompt_results)
    failed = len(prompt_results) - passed
    context.err.line(say("{passed} passed, {failed} failed", passed=passed, failed=failed))
