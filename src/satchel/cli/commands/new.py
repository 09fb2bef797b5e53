"""The command `new`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, cast

import click

from satchel.authoring.scaffold import COMPILE, KINDS, SYNONYMS
from satchel.cli.console import one_line, with_error, write_json
from satchel.cli.context import command, short_path
from satchel.cli.options import AnyPath, OneOf, cannot_combine, needs
from satchel.cli.plan_prompt import confirm_and_apply, open_store, print_shadowed, scope_option
from satchel.errors import Incomplete, InvalidInput
from satchel.i18n import language, say
from satchel.satchel import EXAMPLE_SKILL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from satchel.authoring.scaffold import Kind, Scaffold
    from satchel.authoring.text_rules import Language
    from satchel.cli.context import CliContext

_MINIMAL = "minimal"


class _SkillKind(OneOf):
    """A kind of skill; the hint also corrects synonyms."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Accept a kind, in any case."""
        import difflib

        word = str(value).strip().lower()
        near = SYNONYMS.get(word) or next(iter(difflib.get_close_matches(word, self.words, 1)), "")
        try:
            return super().convert(word if word in self.words else value, param, ctx)
        except InvalidInput as exc:
            if not near:
                raise
            hint = say("Did you mean {names}?", names=f"`--kind {near}`")
            raise InvalidInput(exc.message, hint) from exc


@command(
    say("Create a skill that works and passes `satchel check`."),
    "satchel new style-check",
    "satchel new word-count --kind python",
    "satchel new 周报生成 --kind minimal --id weekly-report",
)
@click.argument("name", required=False)
@click.option(
    "--kind",
    type=_SkillKind((KINDS[0], _MINIMAL, *KINDS[1:])),
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
@click.option(
    "--into",
    metavar="DIR",
    type=AnyPath(file_okay=False),
    help=say("Write it into this folder; it is not trusted there."),
)
@scope_option
def new(
    context: CliContext,
    name: str | None,
    kind: str,
    skill_id: str,
    description: str,
    into: str | None,
    scope: str,
    as_json: bool,
) -> int:
    minimal = kind == _MINIMAL
    if (skill_id or description) and not minimal:
        raise needs("--id" if skill_id else "--description", "--kind minimal")
    if into is not None and (minimal or not name):
        raise needs("--into", "NAME") if not name else cannot_combine("--into", "--kind minimal")
    if minimal:
        return _new_minimal(context, name or "", description, skill_id, scope, as_json=as_json)
    if name is None:
        return _new_example(context, as_json=as_json)
    from satchel.authoring.scaffold import new_skill, write_into

    made = new_skill(name, cast("Kind", kind), cast("Language", language()))
    failed: Incomplete | None = None
    if into is not None:
        folder = write_into(made, os.path.abspath(os.path.expanduser(into)))
    else:
        folder, failed = _install_scaffold(context, made, scope)
    if as_json:
        record = {
            "name": made.id,
            "kind": made.kind,
            "tool": made.tool or None,
            "path": folder,
            "files": sorted(made.files),
            "missing": made.missing or None,
        }
        write_json(with_error(record, failed))
    else:
        context.out.data(folder)
        _print_renamed(context, name, made.id)
        _print_next_steps(context, made, folder, trusted=into is None)
    if into is None:
        print_shadowed(context, [folder])
    if failed is not None:
        raise failed
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


def _install_scaffold(
    context: CliContext, made: Scaffold, scope: str
) -> tuple[str, Incomplete | None]:
    """Install and trust a new skill; returns its folder, and an error if part of that failed."""
    from satchel.authoring.scaffold import write_into
    from satchel.skill.file_tree import MemoryTree

    store = open_store(context, scope)
    if made.missing:
        # The store refuses a skill whose program is not compiled yet.
        folder = write_into(made, store.scope.folder)
        context.satchel.library.trust.trust(folder, made=True)
        return folder, None
    with store.plan_new(made.id, MemoryTree(made.files, made.programs)) as plan:
        refused = plan.of_kind("refused")
        if refused and refused[0].error is not None:
            raise refused[0].error
        failed = None
        try:
            store.apply(plan)
        except Incomplete as exc:  # the skill is installed
            failed = exc
    return store.scope.target(made.id), failed


def _print_next_steps(context: CliContext, made: Scaffold, folder: str, *, trusted: bool) -> None:
    shown = one_line(short_path(folder))
    if made.missing:
        text = say("There is no C compiler here: run `{command}` in `{path}` elsewhere",
                   command=made.missing, path=shown)  # fmt: skip
        context.err.line(text, "yellow")
    main = {"skill": "SKILL.md", "python": "main.py", "typescript": "main.ts", "go": "main.go",
            "binary": "main.c"}[made.kind]  # fmt: skip
    target = made.id if trusted else shown
    steps = [say("Edit `{path}`", path=os.path.join(shown, main))]
    if made.kind == "binary" and not made.missing:
        steps.append(f"`cd {shown} && {' '.join(COMPILE)}`")
    steps.append(f"`satchel check {target}`")
    if made.tool and trusted:
        steps.append(f"`satchel try {made.tool} --arg text=hello`")
        steps.append(f"`satchel test {made.id}`")
    elif trusted:
        steps.append(f"`satchel show {made.id} --as-model`")
    if not made.tool:
        steps.append(f"`satchel test --triggers {target}`")
    _print_steps(context, steps)


def _print_steps(context: CliContext, steps: Sequence[str]) -> None:
    for at, step in enumerate(steps, 1):
        context.err.line(step, "", f"{at}. ")
