"""The command `eval`: measures whether a skill helps a model."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import click

from satchel._optional import must_be_installed
from satchel.cli import EXIT_FAILED, EXIT_INCOMPLETE
from satchel.cli.console import cut, one_line, plural, write_json
from satchel.cli.context import ProgressBar, command, complete_names, confirm_change, short_path
from satchel.cli.models import choose_model, quietly
from satchel.cli.options import (
    Amount,
    AnyPath,
    WholeNumber,
    allow_tools_option,
    missing,
    model_option,
    yes_option,
)
from satchel.errors import InvalidInput
from satchel.i18n import say

if TYPE_CHECKING:
    from satchel.cli.console import Screen
    from satchel.cli.context import CliContext
    from satchel.evals.comparison import Comparison
    from satchel.evals.evaluation import Evaluation
    from satchel.evals.results import CaseFigures, EvalResult

_MIN_REPEATS = 3
_MAX_REPEATS = 100
_MAX_CRITERIA_SHOWN = 3
_MAX_TEXT_COLUMNS = 100
_VERDICT_STYLES = {"helps": "green", "harms": "red"}


@command(
    say("Measure whether a skill helps a model."),
    "satchel eval pdf-forms --model anthropic:claude-sonnet-5 --max-cost 5",
    "satchel eval pdf-forms --judge openai:gpt-5",
    "satchel eval pdf-forms --against HEAD~1 --yes --junit eval.xml",
    name="eval",
)
@click.argument("names", nargs=-1, metavar="NAME...", shell_complete=complete_names)
@model_option()
@click.option("--judge", metavar="PROVIDER:NAME",
              help=say("The model that grades answers; default: the same model."))  # fmt: skip
@click.option("--repeats", type=WholeNumber(_MIN_REPEATS, _MAX_REPEATS), metavar="N",
              help=say("Runs of each case and arm; default: enough for a verdict."))  # fmt: skip
@click.option("--against", default="", metavar="REF",
              help=say("Also compare with a folder or git revision of the skill."))  # fmt: skip
@click.option("--max-cost", type=Amount(), metavar="DOLLARS",
              help=say("Stop when this much is spent; what is finished counts."))  # fmt: skip
@click.option("--junit", type=AnyPath(dir_okay=False), metavar="FILE",
              help=say("Write the result for CI as JUnit XML."))  # fmt: skip
@allow_tools_option()
@yes_option()
def eval_(
    context: CliContext,
    names: tuple[str, ...],
    model: str | None,
    judge: str | None,
    repeats: int | None,
    against: str,
    max_cost: float | None,
    junit: str | None,
    allow_tools: bool,
    yes: bool,
    as_json: bool,
) -> int:
    if not names:
        raise missing("NAME")
    for package in ("pydantic_ai", "pydantic_evals"):
        must_be_installed(package, "eval")
    os.environ.setdefault("PYDANTIC_AI_NO_BANNER", "1")
    name = choose_model(context, model)
    skills = [context.find(reference)[0] for reference in names]
    with quietly():
        with context.err.waiting(say("Starting {name}…", name=one_line(name))):
            from satchel.evals.evaluation import EvalOptions, Evaluation
            from satchel.evals.results import write_junit

            options = EvalOptions(
                name, judge or "", repeats or 0, against=against, allow_tools=allow_tools
            )
            evaluations = [Evaluation(context.satchel, skill, options) for skill in skills]
        try:
            if not _confirm(context, evaluations, max_cost, yes=yes, as_json=as_json):
                return EXIT_INCOMPLETE
            results = _run_all(context, evaluations, max_cost, as_json=as_json)
        finally:
            for evaluation in evaluations:
                evaluation.close()
    if junit:
        write_junit(junit, results)
    if as_json:
        write_json([result.to_dict() for result in results])
    return _exit_status(results)


def _exit_status(results: list[EvalResult]) -> int:
    verdicts = {result.comparison.verdict for result in results}
    is_incomplete = "not enough runs" in verdicts or any(result.stopped for result in results)
    return EXIT_FAILED if "harms" in verdicts else EXIT_INCOMPLETE if is_incomplete else 0


def _run_all(
    context: CliContext, evaluations: list[Evaluation], max_cost: float | None, *, as_json: bool
) -> list[EvalResult]:
    """Run the evaluations until one ends early, and print their results."""
    results: list[EvalResult] = []
    for evaluation in evaluations:
        spent = sum(result.spent for result in results)
        remaining_cost = None if max_cost is None else max(max_cost - spent, 0.0)
        with ProgressBar(say("Evaluating")) as bar:
            result = asyncio.run(evaluation.run(remaining_cost, bar))
        results.append(result)
        if not as_json:
            _print_result(context, result)
        _write_receipt(context, evaluation, result)
        if result.stopped:
            break
    return results


def _confirm(
    context: CliContext,
    evaluations: list[Evaluation],
    max_cost: float | None,
    *,
    yes: bool,
    as_json: bool,
) -> bool:
    """Print what the evaluations cost, and ask; refuse a limit that cannot be applied."""
    total, is_priced, has_work = 0.0, True, False
    for evaluation in evaluations:
        estimate = evaluation.estimate()
        has_work |= estimate.pairs > 0
        is_priced = is_priced and estimate.cost is not None
        total += estimate.cost or 0.0
        text = say(
            "{name}: {cases} × {repeats}, {runs} runs and {grades} requests to the judge",
            name=one_line(evaluation.skill.name),
            cases=plural(len(evaluation.cases), say("case"), say("cases")),
            repeats=evaluation.repeats,
            runs=f"{estimate.runs:,}",
            grades=f"{estimate.grades:,}",
        )
        context.err.line(text)
        if evaluation.judge_name == evaluation.model_name and estimate.grades:
            text = say(
                "The judge is the evaluated model; one of another family is fairer: `--judge`"
            )
            context.err.line(text, "dim")
    if not is_priced and max_cost is not None:
        raise InvalidInput(
            say("The price of this model is unknown, so `--max-cost` cannot be applied"),
            say("Leave it out, and limit the runs with `--repeats`"),
        )
    cost = f"${total:.2f}" if is_priced else say("unknown")
    context.err.line(say("Estimated cost: {cost}", cost=cost))
    if yes or not has_work:
        return True
    return confirm_change(context, say("Run it?"), as_json=as_json)


def _write_receipt(context: CliContext, evaluation: Evaluation, result: EvalResult) -> None:
    """Write the receipt of a complete evaluation of a skill that the user made."""
    integrity = context.satchel.library.integrity
    if result.stopped or result.comparison.pairs < result.planned_pairs:
        return
    if integrity.is_locked(evaluation.skill):
        context.err.line(say("No receipt is written into an installed skill"), "dim")
        return
    path = evaluation.write_receipt(result)
    context.err.line(say("Receipt: {path}", path=one_line(short_path(path))), "dim")


def _print_result(context: CliContext, result: EvalResult) -> None:
    out = context.out
    titles = {"without": say("without the skill"), "against": say("the other version")}
    for baseline, comparison in result.comparisons.items():
        _print_comparison(out, result, titles[baseline], comparison)
    names = {"skill": say("with the skill"), **titles}
    rows = [
        [
            names[arm],
            str(figures.runs),
            str(figures.loaded) if arm != "without" else "–",
            f"{figures.input_tokens:,.0f} + {figures.output_tokens:,.0f}",
            "–" if figures.cost is None else f"${figures.cost:.4f}",
            f"{figures.seconds:.1f}",
        ]
        for arm, figures in result.arms.items()
    ]
    head = ["", say("runs"), say("loaded by itself"), say("tokens"), say("cost"), say("seconds")]
    out.table(head, rows, [["bold", "", "", "", "", ""] for _ in rows])
    out.line()
    head = [say("case"), say("with"), say("without"), say("pairs")]
    rows = [
        [one_line(case.id), _percent(case.rate), _percent(case.baseline_rate), str(case.pairs)]
        for case in result.cases
    ]
    out.table(head, rows, [["bold", "", "dim", "dim"] for _ in rows])
    for case in result.cases:
        _print_failures(out, case)
    _print_remarks(context.err, result)


def _print_comparison(
    out: Screen, result: EvalResult, baseline: str, comparison: Comparison
) -> None:
    verdict = out.paint(say(comparison.verdict), _VERDICT_STYLES.get(comparison.verdict, "yellow"))
    out.write(f"{out.paint(one_line(result.skill), 'bold')}{say(': ')}{verdict}\n")
    if comparison.pairs:
        text = say(
            "{rate} with the skill, {other} {baseline}: {change} ({low} to {high}, n = {count})",
            rate=_percent(comparison.rate),
            other=_percent(comparison.baseline_rate),
            baseline=baseline,
            change=f"{100 * comparison.difference:+.0f}",
            low=f"{100 * comparison.low:+.0f}",
            high=f"{100 * comparison.high:+.0f}",
            count=comparison.pairs,
        )
        out.line(text, indent="  ")
    out.line()


def _print_failures(out: Screen, case: CaseFigures) -> None:
    """Print what runs with the skill did not fulfil, and where the last transcript is."""
    if not case.failed:
        return
    out.line()
    out.line(one_line(case.id), "bold")
    for failed in case.failed[:_MAX_CRITERIA_SHOWN]:
        text = cut(one_line(failed.text), _MAX_TEXT_COLUMNS)
        out.line(f"{failed.times}× {text}", indent="  ✗ ", hang="    ")
        if failed.reason:
            out.line(cut(one_line(failed.reason), _MAX_TEXT_COLUMNS), "dim", indent="    ")
        out.line(one_line(short_path(failed.transcript)), "dim", indent="    ")


def _print_remarks(err: Screen, result: EvalResult) -> None:
    if result.graded:
        swapped = plural(result.swapped, say("grade"), say("grades"))
        text = say("The order of the answers changed {swapped} of {count}", swapped=swapped,
                   count=result.graded)  # fmt: skip
        err.line(text, "dim")
    if result.is_setup_suspect:
        text = say("The skill was never loaded, or no run passed: check the description with"
                   " `satchel test --triggers`, the cases and the judge")  # fmt: skip
        err.line(text, "yellow")
    for error in result.errors:
        err.line(one_line(error), "yellow")
    if result.stopped:
        reasons = {
            "max-cost": say("the limit of the cost is reached"),
            "interrupted": say("Ctrl-C"),
        }
        text = say(
            "Stopped ({reason}) after {count} of {total} pairs; the same command continues",
            reason=reasons.get(result.stopped, one_line(result.stopped)),
            count=result.comparison.pairs,
            total=result.planned_pairs,
        )
        err.line(text, "yellow")


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
