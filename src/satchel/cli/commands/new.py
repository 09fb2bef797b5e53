"""The command `new`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, cast

import click

from satchel.authoring.scaffold import COMPILE, KINDS, new_skill, write_into
from satchel.cli.console import one_line, write_json
from satchel.cli.context import command, short_path
from satchel.cli.options import OneOf, needs
from satchel.cli.plan_prompt import confirm_and_apply, open_store, print_shadowed, scope_option
from satchel.errors import InvalidInput
from satchel.i18n import language, say
from satchel.satchel import EXAMPLE_SKILL
from satchel.skill.file_tree import MemoryTree

if TYPE_CHECKING:
    from collections.abc import Sequence

    from satchel.authoring.scaffold import Kind, Scaffold
    from satchel.authoring.text_rules import Language
    from satchel.cli.context import CliContext

_MINIMAL = "minimal"


@command(
    say("Create a skill that works and passes `satchel check`."),
    "satchel new style-check",
    "satchel new word-count --kind python",
    "satchel new 周报生成 --kind minimal --id weekly-report",
)
@click.argument("name", required=False)
@click.option(
    "--kind",
    type=OneOf((KINDS[0], _MINIMAL, *KINDS[1:])),
    default="skill",
    metavar="KIND",
    help=say("`skill` (default), `minimal`, `python`, `typescript`, `go` or `binary`."),
)
@click.option("--id", "skill_id", default="", help=say("The folder's name."))
@click.option(
    "--description",
    default="",
    metavar="TEXT",
    help=say("What it does and when to use it."),
)
@scope_option
def new(
    context: CliContext,
    name: str | None,
    kind: str,
    skill_id: str,
    description: str,
    scope: str,
    as_json: bool,
) -> int:
    minimal = kind == _MINIMAL
    if (skill_id or description) and not minimal:
        raise needs("--id" if skill_id else "--description", "--kind minimal")
    if name is not None and "://" in name:
        raise InvalidInput(
            say("`{name}` is an address, not a name", name=one_line(name)),
            say("Run `{command}`", command=f"satchel install {one_line(name)}"),
        )
    if minimal:
        return _new_minimal(context, name or "", description, skill_id, scope, as_json=as_json)
    if name is None:
        return _new_example(context, as_json=as_json)

    made = new_skill(name, cast("Kind", kind), cast("Language", language()))
    folder = _install_scaffold(context, made, scope)
    if as_json:
        record = {
            "name": made.id,
            "kind": made.kind,
            "tool": made.tool or None,
            "path": folder,
            "files": sorted(made.files),
            "missing": made.missing or None,
        }
        write_json(record)
    else:
        context.out.data(folder)
        _print_renamed(context, name, made.id)
        _print_next_steps(context, made, folder)
    print_shadowed(context, [folder])
    return 0


def _new_example(context: CliContext, *, as_json: bool) -> int:
    path = context.satchel.init()
    print_shadowed(context, [os.path.dirname(path)])
    if as_json:
        write_json({"name": EXAMPLE_SKILL, "path": path})
        return 0
    context.out.data(path)
    steps = [say("Edit `{path}`", path=one_line(short_path(path))), "`satchel list`"]
    _print_steps(context, [*steps, f"`satchel show {EXAMPLE_SKILL} --as-model --args Ada`"])
    return 0


def _new_minimal(
    context: CliContext, name: str, description: str, skill_id: str, scope: str, *, as_json: bool
) -> int:
    store = open_store(context, scope)
    with store.plan_add(name, description, skill_id=skill_id) as plan:
        if not skill_id:
            _print_renamed(context, name, plan.steps[0].id)
        return confirm_and_apply(context, store, plan, yes=True, dry_run=False, as_json=as_json)


def _print_renamed(context: CliContext, name: str, skill_id: str) -> None:
    if skill_id != name:
        context.err.line(say("The name became `{name}`", name=skill_id), "yellow")


def _install_scaffold(context: CliContext, made: Scaffold, scope: str) -> str:
    """Install and trust a new skill; returns its folder."""
    store = open_store(context, scope)
    if made.missing:
        # The store refuses a skill whose program is not compiled yet.
        folder = write_into(made, store.scope.folder)
        context.satchel.library.trust.trust(folder, made=True)
        return folder
    with store.plan_new(made.id, MemoryTree(made.files, made.programs)) as plan:
        refused = plan.of_kind("refused")
        if refused and refused[0].error is not None:
            raise refused[0].error
        store.apply(plan)
    return store.scope.target(made.id)


def _print_next_steps(context: CliContext, made: Scaffold, folder: str) -> None:
    shown = one_line(short_path(folder))
    if made.missing:
        text = say("There is no C compiler here: run `{command}` in `{path}` elsewhere",
                   command=made.missing, path=shown)  # fmt: skip
        context.err.line(text, "yellow")
    main = {"skill": "SKILL.md", "python": "main.py", "typescript": "main.ts", "go": "main.go",
            "binary": "main.c"}[made.kind]  # fmt: skip
    steps = [say("Edit `{path}`", path=os.path.join(shown, main))]
    if made.kind == "binary" and not made.missing:
        steps.append(f"`cd {shown} && {' '.join(COMPILE)}`")
    steps.append(f"`satchel check {made.id}`")
    if made.tool:
        steps.append(f"`satchel try {made.tool} --arg text=hello`")
        steps.append(f"`satchel test {made.id}`")
    else:
        steps.append(f"`satchel show {made.id} --as-model`")
        steps.append(f"`satchel test --triggers {made.id}`")
    _print_steps(context, steps)


def _print_steps(context: CliContext, steps: Sequence[str]) -> None:
    for at, step in enumerate(steps, 1):
        context.err.line(step, "", f"{at}. ")
