"""Commands that change skills: new, add, import, update, install, remove, rename, undo."""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING, Any, cast

import click

from satchel._language import LANGUAGES, language, say
from satchel.authoring.scaffold import COMPILE, KINDS, SYNONYMS
from satchel.cli.output import one_line, with_error, write_json
from satchel.cli.planning import (
    RISK,
    decide_options,
    open_store,
    scope_option,
    settle,
    tell_hidden,
    tell_repairs,
)
from satchel.cli.progress import Progress
from satchel.cli.session import command, complete_names, short_path
from satchel.cli.values import AnyPath, OneOf
from satchel.errors import Incomplete, InvalidInput, Refused
from satchel.presentation import history_words, undone_words

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from satchel.authoring.scaffold import Kind, Scaffold
    from satchel.authoring.words import Language
    from satchel.cli.session import Session
    from satchel.store.history import Entry, Undone


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
@click.option("--all", "everything", is_flag=True, help=say("Every skill of the source."))
@click.option("--accept-risk", metavar="WHY", default="", help=RISK)
@scope_option
@decide_options
def import_(
    session: Session,
    source: str,
    skill_id: str,
    ref: str,
    path: str,
    names: tuple[str, ...],
    everything: bool,
    accept_risk: str,
    everywhere: bool,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> int:
    """Paths of what was installed on stdout, everything else on stderr."""
    store = open_store(session, everywhere=everywhere)
    with Progress(say("Reading skills")) as progress:
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
        return settle(
            session, store, plan, yes=yes, dry_run=dry_run, as_json=as_json, accept_risk=accept_risk
        )


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
@click.argument("names", nargs=-1, shell_complete=complete_names)
@click.option("--ref", default="", help=say("Another branch, tag or commit."))
@click.option(
    "--discard-edits",
    is_flag=True,
    help=say("Take the source's version in place of your edits; `satchel undo` brings them back."),
)
@click.option("--accept-risk", metavar="WHY", default="", help=RISK)
@scope_option
@decide_options
def update(
    session: Session,
    names: tuple[str, ...],
    ref: str,
    discard_edits: bool,
    accept_risk: str,
    everywhere: bool,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> int:
    """Every skill that came from somewhere, or the named ones."""
    store = open_store(session, everywhere=everywhere)
    with Progress(say("Looking for updates")) as progress:
        plan = store.plan_update(names, ref=ref, discard_edits=discard_edits, progress=progress)
    with plan:
        return settle(
            session, store, plan, yes=yes, dry_run=dry_run, as_json=as_json, accept_risk=accept_risk
        )


@command(
    say("Install what the lockfile says and the disk lacks."),
    "satchel install",
    "satchel install --frozen --yes",
    more=say(
        "With `--frozen` changed skills are brought back too, so that the disk is exactly what is "
        "locked; if that cannot be done, nothing is changed."
    ),
)
@click.option(
    "--frozen", is_flag=True, help=say("Exactly what is locked, or nothing and an error.")
)
@click.option("--accept-risk", metavar="WHY", default="", help=RISK)
@scope_option
@decide_options
def install(
    session: Session,
    frozen: bool,
    accept_risk: str,
    everywhere: bool,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> int:
    """For a fresh clone, and for CI."""
    store = open_store(session, everywhere=everywhere)
    with Progress(say("Reading skills")) as progress:
        plan = store.plan_install(frozen=frozen, progress=progress)
    with plan:
        if frozen and not dry_run:
            store.insist(plan, accept_risk=accept_risk)
        return settle(
            session, store, plan, yes=yes, dry_run=dry_run, as_json=as_json, accept_risk=accept_risk
        )


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
@click.option("--dry-run", is_flag=True, help=say("Show what would change, and stop."))
def add(
    session: Session,
    name: str,
    skill_id: str,
    description: str,
    everywhere: bool,
    dry_run: bool,
    as_json: bool,
) -> int:
    """The path on stdout."""
    store = open_store(session, everywhere=everywhere)
    _see_that_it_is_no_skill(name, store.scope.folder)
    with store.plan_add(name, description, skill_id=skill_id) as plan:
        if plan.steps[0].id not in (name, skill_id):
            session.err.line(say("The name became `{name}`", name=plan.steps[0].id), "yellow")
        return settle(session, store, plan, yes=True, dry_run=dry_run, as_json=as_json)


def _see_that_it_is_no_skill(name: str, folder: str) -> None:
    """Whoever names the folder of a skill wants that one, not an empty one of the same name.

    Raises:
        Refused: it is one. Where it is installed already, the store says so.
    """
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
@click.argument("names", nargs=-1, required=True, shell_complete=complete_names)
@scope_option
@decide_options
def remove(
    session: Session,
    names: tuple[str, ...],
    everywhere: bool,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> int:
    """Asks first."""
    store = open_store(session, everywhere=everywhere)
    with store.plan_remove(names) as plan:
        return settle(session, store, plan, yes=yes, dry_run=dry_run, as_json=as_json)


@command(
    say("Give a skill another name: its folder and its `name` field."),
    "satchel rename pdf-forms fill-pdf",
)
@click.argument("name", shell_complete=complete_names)
@click.argument("new")
@scope_option
@click.option("--dry-run", is_flag=True, help=say("Show what would change, and stop."))
def rename(
    session: Session, name: str, new: str, everywhere: bool, dry_run: bool, as_json: bool
) -> int:
    """Nothing is lost by it, so it does not ask."""
    store = open_store(session, everywhere=everywhere)
    with store.plan_rename(name, new) as plan:
        return settle(session, store, plan, yes=True, dry_run=dry_run, as_json=as_json)


@command(
    say("Bring back the skills and the lockfile as they were before the last change."),
    "satchel undo",
    "satchel undo --list",
    "satchel undo --redo",
)
@scope_option
@click.option("--redo", is_flag=True, help=say("Take the last undo back."))
@click.option("--list", "listing", is_flag=True, help=say("Show the changes that can be undone."))
def undo(session: Session, everywhere: bool, redo: bool, listing: bool, as_json: bool) -> int:
    """One step back at a time."""
    store = open_store(session, everywhere=everywhere)
    if listing:
        return _list_history(session, store.history(), as_json=as_json)
    try:
        done = store.undo(redo=redo)
    except Incomplete as exc:
        from satchel.store.history import Undone

        if isinstance(exc.receipt, Undone):  # it was made: that is told first
            _tell_undone(session, exc.receipt, redo=redo, as_json=as_json, failed=exc)
        raise
    _tell_undone(session, done, redo=redo, as_json=as_json)
    return 0


def _tell_undone(
    session: Session,
    done: Undone,
    *,
    redo: bool,
    as_json: bool,
    failed: Incomplete | None = None,
) -> None:
    if as_json:
        word = "redone" if redo else "undone"
        told = {"notes": list(done.notes), "repaired": list(done.repaired)}
        trouble = [line for line in done.trouble if line]
        made = {word: done.op, "skills": list(done.ids), "number": done.number}
        write_json(with_error({**made, **told, "trouble": trouble}, failed))
        return
    tell_repairs(session, done.repaired)
    err = session.err
    err.write(err.paint(one_line(undone_words(done, redo=redo)), "green") + "\n")
    for note in done.notes:
        err.line(one_line(note), "dim")


def _list_history(session: Session, entries: Sequence[Entry], *, as_json: bool) -> int:
    if as_json:
        write_json([entry._asdict() for entry in entries])
        return 0
    if not entries:
        session.err.line(say("Nothing was changed here yet"))
        return 0
    rows = [
        [str(entry.number), _when(entry.time), entry.op, became, one_line(entry.summary)]
        for entry, became in zip(entries, _became(entries), strict=True)
    ]
    head = ["", say("when"), say("what"), say("state"), say("which")]
    session.out.table(head, rows, [["dim", "dim", "bold"] for _ in rows])
    return 0


def _became(entries: Sequence[Entry]) -> Iterator[str]:
    """What became of each change, the newest first; one step back or forward is next."""
    words = history_words()
    steps = {"done": say("undo is next"), "undone": say("redo is next")}
    for entry in entries:
        step = steps.pop(entry.state, "")
        # What was rebuilt is not taken back, and stands before all that is older.
        told = step if entry.op != "rebuild" else ""
        yield f"{words[entry.state]}{say(': ')}{told}" if told else words[entry.state]


def _when(time: str) -> str:
    """A time of the history, as people write it."""
    return time.replace("T", " ").removesuffix("Z")


class _KindOf(OneOf):
    """A kind of skill; for another word for one, the hint names it."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The kind, however it is capitalised.

        Raises:
            InvalidInput: there is no such kind.
        """
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
@click.option("--kind", type=_KindOf(KINDS), default="skill", help=say("What it is made of."))
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
    session: Session,
    name: str,
    kind: str,
    into: str | None,
    tongue: str | None,
    everywhere: bool,
    as_json: bool,
) -> int:
    """The folder on stdout, the next steps on stderr."""
    from satchel.authoring.scaffold import make, write_into

    made = make(name, cast("Kind", kind), cast("Language", tongue or language()))
    trouble: Incomplete | None = None
    if into is not None:
        folder = write_into(made, os.path.abspath(os.path.expanduser(into)))
    else:
        folder, trouble = _into_the_store(session, made, everywhere=everywhere)
    if as_json:
        _write_made(made, folder, trouble)
    else:
        _tell_made(session, name, made, folder, own=into is None)
    if into is None:
        tell_hidden(session, [folder])
    if trouble is not None:
        raise trouble
    return 0


def _write_made(made: Scaffold, folder: str, failed: Incomplete | None) -> None:
    told = {
        "name": made.id,
        "kind": made.kind,
        "tool": made.tool or None,
        "path": folder,
        "files": sorted(made.files),
        "missing": made.missing or None,
    }
    write_json(with_error(told, failed))


def _tell_made(session: Session, name: str, made: Scaffold, folder: str, *, own: bool) -> None:
    session.out.data(folder)
    if made.id != name:
        session.err.line(say("The name became `{name}`", name=made.id), "yellow")
    _next_steps(session, made, folder, trusted=own)


def _into_the_store(
    session: Session, made: Scaffold, *, everywhere: bool
) -> tuple[str, Incomplete | None]:
    """The user's own skill, trusted whatever becomes of it; and what could not be done of it."""
    from satchel.authoring.scaffold import write_into
    from satchel.skill.tree import MemoryTree

    store = open_store(session, everywhere=everywhere)
    if made.missing:
        # A store takes only what can be used, which this will be once it is compiled.
        folder = write_into(made, store.scope.folder)
        session.satchel.library.trust.trust(folder, made=True)
        return folder, None
    with store.plan_new(made.id, MemoryTree(made.files, made.programs)) as plan:
        refused = plan.of_kind("refused")
        if refused and refused[0].error is not None:
            raise refused[0].error
        trouble = None
        try:
            store.carry_out(plan)
        except Incomplete as exc:  # it is there all the same
            trouble = exc
    return store.scope.target(made.id), trouble


def _next_steps(session: Session, made: Scaffold, folder: str, *, trusted: bool) -> None:
    err = session.err
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
        words = say("See what it is chosen for: `satchel test --triggers {name}`", name=target)
        steps.append(words)
    for at, step in enumerate(steps, 1):
        err.line(step, "", f"{at}. ")
