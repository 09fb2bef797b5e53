"""Whom do we trust? `satchel trust` shows what came with a project, asks, and remembers."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click

from satchel._language import say
from satchel.cli.output import one_line, write_json
from satchel.cli.session import command, completions
from satchel.errors import NotFound, Refused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from click.shell_completion import CompletionItem

    from satchel.cli.session import Session
    from satchel.skill.model import Skill

_PROGRAMS = frozenset((
    ".py", ".js", ".mjs", ".cjs", ".ts", ".sh", ".bash", ".zsh", ".fish", ".ps1", ".bat", ".cmd",
    ".rb", ".pl", ".php", ".lua", ".go", ".rs", ".exe", ".dll", ".so", ".dylib", ".jar", ".wasm",
))  # fmt: skip


def _complete(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """What waits for trust; with `--revoke`, what has it."""
    if not context.params.get("revoke"):
        return completions(context, incomplete, lambda _, skill: skill.state == "untrusted")
    return completions(
        context,
        incomplete,
        lambda satchel, skill: os.path.realpath(skill.base_dir) in satchel.library.trust.folders(),
    )


@command(
    say("Offer the skills that came with this project, or one of them, to models.")
    + "\n\n"
    + say(
        "Read them first: `satchel show NAME`. Without NAME the whole project is trusted, and so "
        "are skills that come to it later."
    ),
    "satchel trust",
    "satchel trust code-review",
    "satchel trust --revoke",
)
@click.argument("name", required=False, shell_complete=_complete)
@click.option("--revoke", is_flag=True, help=say("Take the trust back."))
@click.option("--yes", is_flag=True, help=say("Do not ask."))
def trust(session: Session, name: str | None, revoke: bool, yes: bool, as_json: bool) -> int:
    """Shows what will be trusted, then asks."""
    if revoke:
        return _revoke(session, name, as_json=as_json)
    satchel = session.satchel
    if satchel.settings.trust == "none":
        raise Refused(
            say("The setting `trust` is `none`: skills of a project are never offered"),
            satchel.how_to_ask(),
        )
    snapshot = satchel.library.snapshot()
    found = session.find(name) if name is not None else snapshot.hidden
    waiting = [skill for skill in found if skill.state == "untrusted"]
    if not waiting:
        return _nothing_to_trust(session, name, as_json=as_json)
    if name is not None:
        waiting = waiting[:1]
    programs = [_programs(skill) for skill in waiting]
    if not as_json:
        _show_waiting(session, waiting, programs)
    if not yes and not _ask(session, name, programs=any(programs)):
        if as_json:
            write_json({"trusted": None, "skills": []})
        session.err.line(say("Nothing was changed"))
        return 0
    folder = satchel.trust(waiting[0] if name is not None else None)
    if as_json:
        write_json({"trusted": folder, "skills": [skill.name for skill in waiting]})
    else:
        err = session.err
        err.write(err.paint(say("Trusted: {folder}", folder=one_line(folder)), "green") + "\n")
    return 0


def _show_waiting(session: Session, waiting: Sequence[Skill], programs: Sequence[int]) -> None:
    rows = [
        ["?", one_line(skill.name), _contents(count), one_line(skill.ref)]
        for skill, count in zip(waiting, programs, strict=True)
    ]
    head = ["", say("name"), say("contains"), say("location")]
    session.out.table(head, rows, [["yellow", "bold"] for _ in rows])


def _contents(programs: int) -> str:
    if not programs:
        return say("text only")
    return say("1 program") if programs == 1 else say("{count} programs", count=programs)


def _programs(skill: Skill) -> int:
    """How many files of a skill could be run."""
    from satchel.cli.showing import files_of

    files, more = files_of(skill.base_dir)
    count = more  # what is not listed is assumed to be the worst
    for file in files:
        suffix = os.path.splitext(file.path)[1].lower()
        full = os.path.join(skill.base_dir, file.path)
        runs = os.access(full, os.X_OK) and os.path.basename(full).lower() != "skill.md"
        count += suffix in _PROGRAMS or runs
    return count


def _ask(session: Session, name: str | None, *, programs: bool) -> bool:
    """Ask on the terminal, until the answer is one.

    Raises:
        Refused: nobody is there to answer.
    """
    words = f"satchel trust {name} --yes" if name is not None else "satchel trust --yes"
    if not sys.stdin.isatty():
        raise Refused(
            say("Nobody is there to ask whether the skills above are trusted"),
            say("Read them, then run `{command}`", command=words),
        )
    err = session.err
    err.line(
        say("The text reaches models, and the programs may be run.")
        if programs
        else say("The text reaches models.")
    )
    question = (
        say("Trust `{name}`?", name=one_line(name))
        if name is not None
        else say("Trust everything in this project, now and later?")
    )
    while True:
        err.write(f"{question} [y/N] ")
        err.stream.flush()
        line = sys.stdin.readline()
        answer = line.strip().lower()
        if answer in {"y", "yes", "是"}:
            return True
        if not line:
            err.line()  # the input ended, and with it the line of the question
        if answer in {"", "n", "no", "否"}:
            return False
        err.line(say("Please answer `y` for yes or `n` for no"))


def _nothing_to_trust(session: Session, name: str | None, *, as_json: bool) -> int:
    if as_json:
        write_json({"trusted": None, "skills": []})
    elif name is None:
        session.err.line(say("Nothing to trust: no skill here waits for it"))
    else:
        session.err.line(
            say("`{name}` needs no trust: nothing of that name waits for it", name=one_line(name))
        )
    return 0


def _revoke(session: Session, name: str | None, *, as_json: bool) -> int:
    satchel = session.satchel
    skill = session.find(name)[0] if name is not None else None
    gone = satchel.untrust(skill)
    if skill is not None and not gone:
        judge = satchel.library.trust.judge(skill.base_dir, {})
        if judge.everything:
            raise Refused(
                say(
                    "`{name}` is trusted together with the whole project", name=one_line(skill.name)
                ),
                say("Run `satchel trust --revoke`, then trust the others by name"),
            )
    if not gone:
        raise NotFound(
            say("There was no trust to take back"),
            say("Run `satchel list --all` to see what is trusted"),
        )
    if as_json:
        write_json({"revoked": skill.base_dir if skill is not None else satchel.settings.project})
    else:
        session.err.line(say("The trust was taken back"))
    return 0
