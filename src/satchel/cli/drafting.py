"""How does a skill begin? `satchel new`, which writes one that works and passes its check-list."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, cast

import click

from satchel._language import LANGUAGES, language, say
from satchel.authoring.scaffold import COMPILE, KINDS, SYNONYMS
from satchel.cli.output import one_line, with_error, write_json
from satchel.cli.planning import open_store, scope_option, tell_hidden
from satchel.cli.session import command, short_path
from satchel.cli.values import AnyPath, OneOf
from satchel.errors import Incomplete, InvalidInput

if TYPE_CHECKING:
    from satchel.authoring.scaffold import Kind, Scaffold
    from satchel.authoring.words import Language
    from satchel.cli.session import Session


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
        session.satchel.library.trust.trust(folder)
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
