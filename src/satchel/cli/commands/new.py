"""The command `new`: creates a skill from a template, and trusts it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, cast

import click

from satchel.authoring.scaffold import COMPILE_COMMAND, KINDS, new_skill, write_scaffold
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
_MAIN_FILES = {
    "python": "main.py", "typescript": "main.ts", "go": "main.go", "binary": "main.c",
}  # fmt: skip
"""Kind of a tool skill -> the file to edit."""


@command(
    say("Create a skill that works and passes `satchel check`."),
    "satchel new line-count --kind scripts",
    "satchel new word-count --kind python",
    "satchel new 周报生成 --kind minimal --id weekly-report",
)
@click.argument("name", required=False)
@click.option(
    "--kind",
    type=OneOf((KINDS[0], _MINIMAL, *KINDS[1:])),
    default="skill",
    metavar="KIND",
    help=say("`skill` (default), `minimal`, `scripts`, `python`, `typescript`, `go` or `binary`."),
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
    is_minimal = kind == _MINIMAL
    if (skill_id or description) and not is_minimal:
        raise needs("--id" if skill_id else "--description", "--kind minimal")
    if name is not None and "://" in name:
        raise InvalidInput(
            say("`{name}` is an address, not a name", name=one_line(name)),
            say("Run `{command}`", command=f"satchel install {one_line(name)}"),
        )
    if is_minimal:
        return _new_minimal(context, name or "", description, skill_id, scope, as_json=as_json)
    if name is None:
        return _new_example(context, as_json=as_json)

    scaffold = new_skill(name, cast("Kind", kind), cast("Language", language()))
    folder = _install_scaffold(context, scaffold, scope)
    if as_json:
        record = {
            "name": scaffold.id,
            "kind": scaffold.kind,
            "tool": scaffold.tool or None,
            "path": folder,
            "files": sorted(scaffold.files),
            "missing": scaffold.missing or None,
        }
        write_json(record)
    else:
        context.out.data(folder)
        _print_renamed(context, name, scaffold.id)
        _print_next_steps(context, scaffold, folder)
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


def _install_scaffold(context: CliContext, scaffold: Scaffold, scope: str) -> str:
    """Install and trust a new skill; returns its folder."""
    store = open_store(context, scope)
    if scaffold.missing:
        # The store refuses a skill whose program is not compiled yet.
        folder = write_scaffold(scaffold, store.scope.folder)
        context.satchel.library.trust.trust(folder, is_authored=True)
        return folder
    with store.plan_new(scaffold.id, MemoryTree(scaffold.files, scaffold.programs)) as plan:
        refused = plan.of_kind("refused")
        if refused and refused[0].error is not None:
            raise refused[0].error
        store.apply(plan)
    return store.scope.target(scaffold.id)


def _print_next_steps(context: CliContext, scaffold: Scaffold, folder: str) -> None:
    display_path = one_line(short_path(folder))
    if scaffold.missing:
        text = say("There is no C compiler here: run `{command}` in `{path}` elsewhere",
                   command=scaffold.missing, path=display_path)  # fmt: skip
        context.err.line(text, "yellow")
    main_file = _MAIN_FILES.get(scaffold.kind, "SKILL.md")
    steps = [say("Edit `{path}`", path=os.path.join(display_path, main_file))]
    if scaffold.kind == "binary" and not scaffold.missing:
        steps.append(f"`cd {display_path} && {' '.join(COMPILE_COMMAND)}`")
    steps.append(f"`satchel check {scaffold.id}`")
    if scaffold.tool:
        steps.append(f"`satchel try {scaffold.tool} --arg text=hello`")
        steps.append(f"`satchel test {scaffold.id}`")
    else:
        if scaffold.kind == "scripts":
            steps.append(f"`satchel try {scaffold.id} scripts/count.py -- FILE`")
        steps.append(f"`satchel show {scaffold.id} --as-model`")
        steps.append(f"`satchel test --triggers {scaffold.id}`")
    _print_steps(context, steps)


def _print_steps(context: CliContext, steps: Sequence[str]) -> None:
    for number, step in enumerate(steps, 1):
        context.err.line(step, indent=f"{number}. ")
