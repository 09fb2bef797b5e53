"""The command `improve`: a better description by trigger tests."""

from __future__ import annotations

import os
from difflib import unified_diff
from typing import TYPE_CHECKING

from satchel._optional import must_be_installed
from satchel.cli import EXIT_INCOMPLETE
from satchel.cli.console import one_line, write_json
from satchel.cli.context import (
    ProgressBar,
    command,
    confirm_change,
    short_path,
    skill_argument,
)
from satchel.cli.models import choose_model, quietly
from satchel.cli.options import dry_run_option, model_option, yes_option
from satchel.i18n import say

if TYPE_CHECKING:
    from satchel.cli.console import Screen
    from satchel.cli.context import CliContext
    from satchel.evals.improvement import DescriptionSearch, Improvement

_STYLES = {"+": "green", "-": "red"}


@command(
    say("Find a description with which requests select a skill."),
    "satchel improve pdf-forms --model anthropic:claude-sonnet-5",
    "satchel improve pdf-forms --dry-run --yes",
)
@skill_argument()
@model_option()
@dry_run_option()
@yes_option()
def improve(
    context: CliContext,
    name: str,
    model: str | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> int:
    for package in ("gepa", "pydantic_ai"):
        must_be_installed(package, "eval")
    os.environ.setdefault("PYDANTIC_AI_NO_BANNER", "1")
    model_name = choose_model(context, model)
    skill = context.find(name)[0]
    with quietly():
        with context.err.waiting(say("Starting {name}…", name=one_line(model_name))):
            from satchel.evals.improvement import DescriptionSearch, accept

            search = DescriptionSearch(context.satchel, skill, model_name)
        if not _confirm(context, search, yes=yes, as_json=as_json):
            return EXIT_INCOMPLETE
        with ProgressBar(say("Searching")) as bar:
            result = search.run(bar)
    if as_json:
        write_json(result.to_dict())
    else:
        _print_result(context.out, result, short_path(skill.path))
    if not result.is_better:
        context.err.line(say("No better description was found"), "yellow")
        return EXIT_INCOMPLETE
    if not dry_run and (
        yes or confirm_change(context, say("Replace the description?"), as_json=as_json)
    ):
        accept(context.satchel.store_of(skill), skill, result.proposal)
        path = one_line(short_path(skill.path))
        context.err.line(say("Changed: `{path}`; `satchel undo` takes it back", path=path))
    return 0


def _confirm(context: CliContext, search: DescriptionSearch, *, yes: bool, as_json: bool) -> bool:
    """Print what the search costs at most, and ask."""
    from satchel.evals.improvement import MAX_REQUESTS

    estimate = search.estimate()
    text = say(
        "{name}: {seen} prompts to search with, {held} held out, {others} other skills",
        name=one_line(search.skill.name),
        seen=len(search.seen),
        held=len(search.held_out),
        others=len(search.neighbours),
    )
    context.err.line(text)
    cost = say("unknown") if estimate is None else f"${estimate:.2f}"
    text = say("At most {count} requests; estimated cost: {cost}", count=MAX_REQUESTS, cost=cost)
    context.err.line(text)
    return yes or confirm_change(context, say("Run it?"), as_json=as_json)


def _print_result(out: Screen, result: Improvement, path: str) -> None:
    before, after = ([f"description: {text}"] for text in (result.description, result.proposal))
    for line in unified_diff(before, after, path, path, n=0, lineterm=""):
        if not line.startswith("@@"):
            out.line(one_line(line), _STYLES.get(line[0], ""), hang="  ")
    rows = [
        [title, f"{figures.before}/{figures.total}", f"{figures.after}/{figures.total}"]
        for title, figures in (
            (say("prompts of the search"), result.seen),
            (say("held-out prompts"), result.held_out),
            (say("prompts of other skills"), result.neighbours),
            (say("the model's choices"), result.choices),
        )
        if figures is not None
    ]
    out.table(["", say("before"), say("after")], rows, [["bold", "", ""] for _ in rows])
