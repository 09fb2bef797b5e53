"""Commands that change skills: new, add, import, update, install, remove, rename, undo."""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING, Any, cast

import click

from satchel.authoring.scaffold import COMPILE, KINDS, SYNONYMS
from satchel.cli.console import one_line, with_error, write_json
from satchel.cli.context import command, short_path, skill_argument
from satchel.cli.options import AnyPath, OneOf, all_option, dry_run_option, flag_option
from satchel.cli.plan_prompt import (
    RISK,
    confirm_and_apply,
    decide_options,
    open_store,
    print_repairs,
    print_shadowed,
    scope_option,
)
from satchel.cli.progress import ProgressBar
from satchel.errors import Incomplete, InvalidInput, Refused
from satchel.i18n import LANGUAGES, language, say
from satchel.presentation.wording import history_words, undone_words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from satchel.authoring.scaffold import Kind, Scaffold
    from satchel.authoring.text_rules import Language
    from satchel.cli.context import CliContext
    from satchel.store.history import HistoryEntry, Undone


def _change_options(function: Callable[..., int]) -> Callable[..., int]:
    """The options of the commands that install skills."""
    function = scope_option(decide_options(function))
    return click.option("--accept-risk", metavar="WHY", default="", help=RISK)(function)


@command(
    say("Install skills from a folder, a zip or tar archive, or a git repository.")
    + "\n\n"
    + say(
        "They are read without being unpacked anywhere else, scanned, shown, and locked by digest. "
        "You are asked when something would be overwritten or the scan found something."
    ),
    "satchel import pdf-forms.zip",
    "satchel import ~/skills/pdf-forms --id fill-pdf",
    "satchel import https://example.com/skills.git --ref v2 --path skills/pdf-forms",
    "satchel import team-skills.tar.gz --all --yes",
    name="import",
)
@click.argument("source", type=AnyPath())
@click.option("--id", "skill_id", default="", help=say("The folder's name; else the source's."))
@click.option("--ref", default="", help=say("Branch, tag or commit of a repository."))
@click.option("--path", default="", help=say("The skill's folder within the source."))
@click.option(
    "--skill", "names", multiple=True, help=say("Which of several skills; may be given often.")
)
@all_option(say("Every skill of the source."))
@_change_options
def import_(
    context: CliContext,
    source: str,
    skill_id: str,
    ref: str,
    path: str,
    names: tuple[str, ...],
    everything: bool,
    everywhere: bool,
    **decision: Any,
) -> int:
    store = open_store(context, everywhere=everywhere)
    with ProgressBar(say("Reading skills")) as progress:
        plan = store.plan_import(
            source,
            skill_id=skill_id,
            ref=ref,
            path=path,
            names=names,
            everything=everything,
            progress=progress,
        )
    with plan:
        return confirm_and_apply(context, store, plan, **decision)


@command(
    say("Fetch newer versions of imported skills, and keep your own edits.")
    + "\n\n"
    + say(
        "Shows what would change before it asks: files, frontmatter, programs, hosts, secrets. "
        "Edits of yours are merged; where that is not possible the skill is left as it is."
    ),
    "satchel update",
    "satchel update pdf-forms --dry-run",
    "satchel update pdf-forms --ref v3",
)
@skill_argument("names", nargs=-1)
@click.option("--ref", default="", help=say("Another branch, tag or commit."))
@flag_option(
    "--discard-edits",
    say("Take the source's version in place of your edits; `satchel undo` brings them back."),
)
@_change_options
def update(
    context: CliContext,
    names: tuple[str, ...],
    ref: str,
    discard_edits: bool,
    everywhere: bool,
    **decision: Any,
) -> int:
    store = open_store(context, everywhere=everywhere)
    with ProgressBar(say("Looking for updates")) as progress:
        plan = store.plan_update(names, ref=ref, discard_edits=discard_edits, progress=progress)
    with plan:
        return confirm_and_apply(context, store, plan, **decision)


@command(
    say("Install what the lockfile says and the disk lacks."),
    "satchel install",
    "satchel install --frozen --yes",
    more=say(
        "With `--frozen` changed skills are brought back too, so that the disk is exactly what is "
        "locked; if that cannot be done, nothing is changed."
    ),
)
@flag_option("--frozen", say("Exactly what is locked, or nothing and an error."))
@_change_options
def install(context: CliContext, frozen: bool, everywhere: bool, **decision: Any) -> int:
    store = open_store(context, everywhere=everywhere)
    with ProgressBar(say("Reading skills")) as progress:
        plan = store.plan_install(frozen=frozen, progress=progress)
    with plan:
        if frozen and not decision["dry_run"]:
            store.require_complete(plan, accept_risk=decision["accept_risk"])
        return confirm_and_apply(context, store, plan, **decision)


@command(
    say("Write a new, minimal skill."),
    "satchel add release-notes",
    'satchel add "Release Notes" --description "Writes release notes. Use when a version ships."',
    "satchel add 周报生成 --id weekly-report",
    more=say("Its folder is the name in lower case, with hyphens for everything odd."),
)
@click.argument("name")
@click.option("--id", "skill_id", default="", help=say("The folder's name; else the name's."))
@click.option("--description", default="", help=say("What it does and when to use it."))
@scope_option
@dry_run_option()
def add(
    context: CliContext,
    name: str,
    skill_id: str,
    description: str,
    everywhere: bool,
    dry_run: bool,
    as_json: bool,
) -> int:
    store = open_store(context, everywhere=everywhere)
    _refuse_skill_folder(name, store.scope.folder)
    with store.plan_add(name, description, skill_id=skill_id) as plan:
        if plan.steps[0].id not in (name, skill_id):
            context.err.line(say("The name became `{name}`", name=plan.steps[0].id), "yellow")
        return confirm_and_apply(context, store, plan, yes=True, dry_run=dry_run, as_json=as_json)


def _refuse_skill_folder(name: str, folder: str) -> None:
    """Refuse the path of an existing skill, for which `import` is meant."""
    path = os.path.abspath(os.path.expanduser(name))
    if not name.strip() or os.path.dirname(path) == os.path.abspath(folder):
        return
    if os.path.isfile(os.path.join(path, "SKILL.md")):
        shown = one_line(name)
        raise Refused(
            say("`{path}` is a skill already, and `satchel add` writes an empty one", path=shown),
            say("Install it with `satchel import {path}`", path=shlex.quote(shown)),
        )


@command(
    say("Take skills of yours away; `satchel undo` brings them back."),
    "satchel remove release-notes",
    "satchel remove release-notes pdf-forms --yes",
)
@skill_argument("names", nargs=-1, required=True)
@scope_option
@decide_options
def remove(context: CliContext, names: tuple[str, ...], everywhere: bool, **decision: Any) -> int:
    store = open_store(context, everywhere=everywhere)
    with store.plan_remove(names) as plan:
        return confirm_and_apply(context, store, plan, **decision)


@command(
    say("Give a skill another name: its folder and its `name` field."),
    "satchel rename pdf-forms fill-pdf",
)
@skill_argument()
@click.argument("new")
@scope_option
@dry_run_option()
def rename(
    context: CliContext, name: str, new: str, everywhere: bool, dry_run: bool, as_json: bool
) -> int:
    store = open_store(context, everywhere=everywhere)
    with store.plan_rename(name, new) as plan:
        return confirm_and_apply(context, store, plan, yes=True, dry_run=dry_run, as_json=as_json)


@command(
    say("Bring back the skills and the lockfile as they were before the last change."),
    "satchel undo",
    "satchel undo --list",
    "satchel undo --redo",
)
@scope_option
@flag_option("--redo", say("Take the last undo back."))
@flag_option("--list", say("Show the changes that can be undone."), "listing")
def undo(context: CliContext, everywhere: bool, redo: bool, listing: bool, as_json: bool) -> int:
    store = open_store(context, everywhere=everywhere)
    if listing:
        return _list_history(context, store.history(), as_json=as_json)
    try:
        done = store.undo(redo=redo)
    except Incomplete as exc:
        from satchel.store.history import Undone

        if isinstance(exc.receipt, Undone):  # the change itself succeeded
            _print_undone(context, exc.receipt, redo=redo, as_json=as_json, failed=exc)
        raise
    _print_undone(context, done, redo=redo, as_json=as_json)
    return 0


def _print_undone(
    context: CliContext,
    done: Undone,
    *,
    redo: bool,
    as_json: bool,
    failed: Incomplete | None = None,
) -> None:
    if as_json:
        record = {
            "redone" if redo else "undone": done.op,
            "skills": list(done.ids),
            "number": done.number,
            "notes": list(done.notes),
            "repaired": list(done.repaired),
            "trouble": [line for line in done.trouble if line],
        }
        write_json(with_error(record, failed))
        return
    print_repairs(context, done.repaired)
    err = context.err
    err.write(err.paint(one_line(undone_words(done, redo=redo)), "green") + "\n")
    for note in done.notes:
        err.line(one_line(note), "dim")


def _list_history(context: CliContext, entries: Sequence[HistoryEntry], *, as_json: bool) -> int:
    if as_json:
        write_json([entry._asdict() for entry in entries])
        return 0
    if not entries:
        context.err.line(say("Nothing was changed here yet"))
        return 0
    rows = [
        [
            str(entry.number),
            entry.time.replace("T", " ").removesuffix("Z"),
            entry.op,
            state,
            one_line(entry.summary),
        ]
        for entry, state in zip(entries, _states(entries), strict=True)
    ]
    head = ["", say("when"), say("what"), say("state"), say("which")]
    context.out.table(head, rows, [["dim", "dim", "bold"] for _ in rows])
    return 0


def _states(entries: Sequence[HistoryEntry]) -> Iterator[str]:
    """The state of each change, newest first, marking those that undo and redo would act on."""
    words = history_words()
    steps = {"done": say("undo is next"), "undone": say("redo is next")}
    for entry in entries:
        step = steps.pop(entry.state, "")
        # A rebuilt lockfile cannot be undone, and neither can anything older.
        next_step = step if entry.op != "rebuild" else ""
        state = words[entry.state]
        yield f"{state}{say(': ')}{next_step}" if next_step else state


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
    say("Write a new skill that works as it is and passes `satchel check`: a SKILL.md or a tool.")
    + "\n\n"
    + say(
        "A tool is a program in Python, TypeScript, Go or C that counts words, with limits, "
        "errors, documentation and examples in place: change what it does. `satchel add` writes "
        "an empty SKILL.md instead."
    ),
    "satchel new style-check",
    "satchel new word-count --kind python",
    "satchel new word-count --kind go --into ~/my-skills",
    more=say(
        "The skill goes into the project's `.agents/skills` and is trusted, as it is yours. With "
        "`--into` it goes into any folder, and nothing is trusted."
    ),
)
@click.argument("name")
@click.option("--kind", type=_SkillKind(KINDS), default="skill", help=say("What it is made of."))
@click.option(
    "--into",
    metavar="DIR",
    type=AnyPath(file_okay=False),
    help=say("A folder to write it into, in place of the project's."),
)
@click.option(
    "--language",
    "tongue",
    type=OneOf(LANGUAGES),
    help=say("The language of its texts; yours by default."),
)
@scope_option
def new(
    context: CliContext,
    name: str,
    kind: str,
    into: str | None,
    tongue: str | None,
    everywhere: bool,
    as_json: bool,
) -> int:
    from satchel.authoring.scaffold import new_skill, write_into

    made = new_skill(name, cast("Kind", kind), cast("Language", tongue or language()))
    failed: Incomplete | None = None
    if into is not None:
        folder = write_into(made, os.path.abspath(os.path.expanduser(into)))
    else:
        folder, failed = _install_scaffold(context, made, everywhere=everywhere)
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
        if made.id != name:
            context.err.line(say("The name became `{name}`", name=made.id), "yellow")
        _print_next_steps(context, made, folder, trusted=into is None)
    if into is None:
        print_shadowed(context, [folder])
    if failed is not None:
        raise failed
    return 0


def _install_scaffold(
    context: CliContext, made: Scaffold, *, everywhere: bool
) -> tuple[str, Incomplete | None]:
    """Install and trust a new skill; returns its folder, and an error if part of that failed."""
    from satchel.authoring.scaffold import write_into
    from satchel.skill.file_tree import MemoryTree

    store = open_store(context, everywhere=everywhere)
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
    err = context.err
    shown = one_line(short_path(folder))
    steps: list[str] = []
    if made.missing:
        steps.append(
            say(
                "There is no C compiler here. Install one, then run `{command}` in `{path}`",
                command=made.missing,
                path=shown,
            )
        )
    main = {"skill": "SKILL.md", "python": "main.py", "typescript": "main.ts", "go": "main.go",
            "binary": "main.c"}[made.kind]  # fmt: skip
    steps.append(say("Make it yours: `{path}`", path=os.path.join(shown, main)))
    if made.kind == "binary" and not made.missing:
        steps.append(
            say(
                "Compile it after each change: `{command}` in `{path}`",
                command=" ".join(COMPILE),
                path=shown,
            )
        )
    target = made.id if trusted else shown
    steps.append(say("Check it: `satchel check {name}`", name=target))
    if made.tool and trusted:
        steps.append(say("Try it: `satchel try {name} --arg text=hello`", name=made.tool))
        steps.append(say("Run its examples: `satchel test {name}`", name=made.id))
    elif trusted:
        steps.append(say("Read it as a model does: `satchel load {name}`", name=made.id))
    if not made.tool:
        message = say("See what it is chosen for: `satchel test --triggers {name}`", name=target)
        steps.append(message)
    for at, step in enumerate(steps, 1):
        err.line(step, "", f"{at}. ")
