"""Whom do we trust? `satchel trust` shows what came with a project, asks, and remembers."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from satchel._language import listed, say
from satchel.cli.output import one_line, write_json
from satchel.cli.progress import with_progress
from satchel.cli.session import command, completions, yes_or_no
from satchel.cli.showing import show_problems
from satchel.errors import Changed, NotFound, Refused
from satchel.library.supplier import refuse_always

if TYPE_CHECKING:
    from collections.abc import Sequence

    from click.shell_completion import CompletionItem

    from satchel.cli.session import Session
    from satchel.facade import Approved
    from satchel.library.seal import Taken
    from satchel.library.tool_snapshot import ToolSkill
    from satchel.skill.model import Skill
    from satchel.skill.problems import Problem

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
        "Read them first: `satchel show NAME`. What you approve is the skill as it is now: when it "
        "changes you are asked again. Without NAME, that goes for every skill that waits."
    ),
    "satchel trust",
    "satchel trust code-review",
    "satchel trust --always",
    "satchel trust --revoke",
)
@click.argument("name", required=False, shell_complete=_complete)
@click.option(
    "--always",
    is_flag=True,
    help=say("Trust the folder, whatever it will hold: the project's, or that of NAME."),
)
@click.option("--revoke", is_flag=True, help=say("Take the trust back."))
@click.option("--yes", is_flag=True, help=say("Do not ask."))
def trust(
    session: Session, name: str | None, always: bool, revoke: bool, yes: bool, as_json: bool
) -> int:
    """Shows what will be trusted, then asks, and approves what was shown."""
    if revoke:
        return _revoke(session, name, as_json=as_json)
    satchel = session.satchel
    if satchel.settings.trust == "none":
        raise Refused(
            say("The setting `trust` is `none`: skills of a project are never offered"),
            satchel.how_to_ask(),
        )
    waiting = _waiting(session, name, always=always)
    if not waiting and not (always and name is None):
        return _nothing_to_trust(session, name, as_json=as_json)
    taken: list[Taken] = []
    refused: list[Problem] = []
    if not always:
        # Taken before the question: what is approved is what was shown, not what came since.
        if name is not None:
            taken = [satchel.library.seals.take(waiting[0])]
            _see_that_it_was_read(session, waiting[0])
        else:
            skills = with_progress(waiting, say("Reading skills"))
            taken, refused = satchel.take(skills)
    shown = waiting if always else [one.skill for one in taken]
    programs = [_programs(session, skill) for skill in shown]
    if not as_json:
        _show_waiting(session, shown, programs)
        show_problems(session.err, refused, "")
    if not always and not taken:
        if as_json:
            write_json(_account(None, (), refused))
        return 4
    if not yes and not _ask(session, _Question(name, always, len(shown), any(programs))):
        if as_json:
            write_json(_account(None, (), refused))
        session.err.line(say("Nothing was changed"))
        return 0
    done = (
        satchel.trust(waiting[0] if name is not None else None, always=True)
        if always
        else satchel.approve(taken)
    )
    if as_json:
        folder = done.folder if name is not None or always else satchel.settings.project
        account = _account(folder, [skill.name for skill in done.skills], refused)
        wants = _wants(session, done.skills)
        write_json({**account, "tools": wants} if wants else account)
    else:
        _tell(session, done, always=always)
        _tell_served(session, name)
    return 0


def _waiting(session: Session, name: str | None, *, always: bool = False) -> list[Skill]:
    """The skills that wait for an approval; of those called `name`, the first."""
    if name is None:
        return session.satchel.library.waiting()
    found = session.find(name)
    untrusted = [skill for skill in found if skill.state == "untrusted"]
    if always:
        refuse_always((untrusted or found)[0])
    if untrusted:
        return untrusted[:1]
    waiting = [skill for skill in found if _has_changed(session, skill)]
    if always and not waiting:
        waiting = [skill for skill in found if _is_bound(session, skill)]
    return waiting[:1]


def _has_changed(session: Session, skill: Skill) -> bool:
    """Whether a skill is offered, and yet refused when it is loaded."""
    try:
        session.satchel.library.seals.check(skill, clean=False)
    except Changed:
        return True
    return False


def _is_bound(session: Session, skill: Skill) -> bool:
    """Whether it is approved as it is, so that it can be approved whatever it will hold."""
    bound = session.satchel.library.trust.binding(os.path.realpath(skill.base_dir))
    return bound is not None and bool(bound.since)


def _see_that_it_was_read(session: Session, skill: Skill) -> None:
    """What a server lists may be another skill than the one the user looked at.

    Raises:
        Refused: it is.
    """
    supply = session.satchel.library.supply_of(skill)
    if supply is not None:
        from satchel.library.shown import Shown

        Shown(session.satchel.settings.paths.state).check(skill, supply)


def _wants(session: Session, waiting: Sequence[Skill]) -> dict[str, Any]:
    """What the tool skills among them want, by ref."""
    tools = session.satchel.library.tools()
    found = ((skill.ref, tools.of(skill)) for skill in waiting)
    return {ref: source.to_dict() for ref, source in found if source is not None}


def _account(
    folder: str | None, names: Sequence[str], refused: Sequence[Problem]
) -> dict[str, Any]:
    return {
        "trusted": folder,
        "skills": list(names),
        "refused": [problem.to_dict() for problem in refused],
    }


def _tell(session: Session, done: Approved, *, always: bool) -> None:
    err = session.err
    folder, count = one_line(done.folder), len(done.skills)
    if always:
        told = say("Trusted, whatever it will hold: {folder}", folder=folder)
    elif count == 1:
        told = say("Trusted as it is now: {folder}", folder=folder)
    else:
        told = say("Trusted as they are now: {count} skills", count=count)
    err.write(err.paint(told, "green") + "\n")


def _show_waiting(session: Session, waiting: Sequence[Skill], programs: Sequence[int]) -> None:
    if not waiting:
        return
    rows = [
        ["?", one_line(skill.name), _contents(count), one_line(skill.ref)]
        for skill, count in zip(waiting, programs, strict=True)
    ]
    head = ["", say("name"), say("contains"), say("location")]
    session.out.table(head, rows, [["yellow", "bold"] for _ in rows])
    tools = session.satchel.library.tools()
    for skill in waiting:
        source = tools.of(skill)
        if source is not None:
            _show_wants(session, source)
    for skill in waiting:
        if skill.origin.remote:
            _show_served(session, skill)
    asking = {*session.satchel.library.snapshot().asking, *tools.asking, *tools.refused}
    again = [
        one_line(skill.name)
        for skill in waiting
        if skill.ref in asking or (skill.state == "active" and _has_changed(session, skill))
    ]
    if again:
        names = listed(f"`{name}`" for name in again)
        session.err.line(say("Approved before, and changed since: {names}", names=names))


def _show_served(session: Session, skill: Skill) -> None:
    """What approving a skill of a server means, and what it does not."""
    lead = [(one_line(skill.name), "bold"), (say(": "), "")]
    told = say(
        "comes from a server ({origin}); none of its programs will be run",
        origin=skill.origin.remote,
    )
    session.err.line(told, "yellow", "", "  ", lead)
    supply = session.satchel.library.supply_of(skill)
    if supply is not None:
        from satchel.library.shown import short

        session.err.line(say("mark: {mark}", mark=short(supply.mark(skill))), "", "  ", "  ")


def _show_wants(session: Session, source: ToolSkill) -> None:
    """What a tool skill may do once it is trusted: that is what a person decides about."""
    names = listed(f"`{name}`" for name in source.tools)
    err, lead = session.err, [(one_line(source.skill.name), "bold"), (say(": "), "")]
    if source.wants:
        told = say(
            "models may call {names}; its program may {what}",
            names=names,
            what=listed(source.wants),
        )
        err.line(told, "yellow", "", "  ", lead)
    else:
        told = say("models may call {names}; its program sees its own folder alone", names=names)
        err.line(told, "", "", "  ", lead)


def _contents(programs: int) -> str:
    if not programs:
        return say("text only")
    return say("1 program") if programs == 1 else say("{count} programs", count=programs)


def _programs(session: Session, skill: Skill) -> int:
    """How many files of a skill could be run."""
    from satchel.cli.showing import files_in

    files, more = files_in(skill, session.satchel.library)
    count = more  # what is not listed is assumed to be the worst
    for file in files:
        suffix = os.path.splitext(file.path)[1].lower()
        full = os.path.join(skill.base_dir, file.path)
        runs = os.access(full, os.X_OK) and os.path.basename(full).lower() != "skill.md"
        count += suffix in _PROGRAMS or runs
    return count


class _Question(NamedTuple):
    """What is to be approved."""

    name: str | None
    always: bool
    skills: int
    programs: bool

    @property
    def command(self) -> str:
        """How to say yes without being asked."""
        words = ["satchel trust"]
        if self.name is not None:
            words.append(self.name)
        if self.always:
            words.append("--always")
        return " ".join((*words, "--yes"))

    @property
    def words(self) -> str:
        """The question itself."""
        name = one_line(self.name) if self.name is not None else ""
        if self.always and name:
            return say("Trust `{name}`, whatever it will hold?", name=name)
        if self.always:
            return say("Trust everything in this project, now and later?")
        if name:
            return say("Trust `{name}` as it is now?", name=name)
        if self.skills == 1:
            return say("Trust this skill as it is now?")
        return say("Trust these {count} skills as they are now?", count=self.skills)


def _ask(session: Session, question: _Question) -> bool:
    """Ask on the terminal, until the answer is one.

    Raises:
        Refused: nobody is there to answer.
    """
    if not sys.stdin.isatty():
        raise Refused(
            say("Nobody is there to ask whether the skills above are trusted"),
            say("Read them, then run `{command}`", command=question.command),
        )
    err = session.err
    err.line(
        say("The text reaches models, and the programs may be run.")
        if question.programs
        else say("The text reaches models.")
    )
    return yes_or_no(session, question.words)


def _nothing_to_trust(session: Session, name: str | None, *, as_json: bool) -> int:
    if as_json:
        write_json(_account(None, (), ()))
    elif name is None:
        session.err.line(say("Nothing to trust: no skill here waits for it"))
        _tell_served(session, name)
    else:
        session.err.line(
            say("`{name}` needs no trust: nothing of that name waits for it", name=one_line(name))
        )
    return 0


def _tell_served(session: Session, name: str | None) -> None:
    """Which skills wait all the same: what a server lists is never approved with the rest."""
    if name is not None:
        return
    served = [
        f"`{one_line(skill.name)}`"
        for skill in session.satchel.library.snapshot().hidden
        if skill.origin.remote and skill.state == "untrusted"
    ]
    if served:
        told = say("Skills of servers are approved one by one: {names}", names=listed(served))
        session.err.line(told)


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
