"""`satchel trust`: decide about the folder of a project, or about a skill that the scan blocks."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from satchel._language import listed, render, say
from satchel._project import refuse_locked
from satchel.cli.output import one_line, write_json
from satchel.cli.progress import Progress
from satchel.cli.session import command, completions, yes_or_no
from satchel.cli.showing import show_problems
from satchel.errors import InvalidInput, NotFound, Refused

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from satchel.cli.session import Session
    from satchel.facade import FolderReview

_MOST_SHOWN = 20


def _complete(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Skills that the scan blocks."""
    return completions(context, incomplete, lambda _, skill: skill.state == "blocked")


@command(
    say("Use the skills that this project's folder brings.")
    + "\n\n"
    + say(
        "The folder is trusted with all that it holds now and later. Every skill is scanned before "
        "it is used; what the scan blocks is used only after `--accept-risk`, and only as it is."
    ),
    "satchel trust",
    "satchel trust --yes",
    "satchel trust deploy --accept-risk 'our own installer, read line by line'",
    "satchel trust --revoke",
)
@click.argument("name", required=False, shell_complete=_complete)
@click.option(
    "--accept-risk", metavar="WHY", help=say("Use NAME as it is now, although the scan blocks it.")
)
@click.option("--revoke", is_flag=True, help=say("Revoke the trust in this folder."))
@click.option("--yes", is_flag=True, help=say("Do not ask."))
def trust(
    session: Session,
    name: str | None,
    accept_risk: str | None,
    revoke: bool,
    yes: bool,
    as_json: bool,
) -> int:
    """Shows what the folder brings, then asks, and keeps the answer."""
    if (name is None) != (accept_risk is None) or (revoke and name is not None):
        raise InvalidInput(
            say("A folder is trusted as a whole; a name is given with `--accept-risk WHY`"),
            say("Run `satchel trust`; leave single skills out with the setting `exclude`"),
        )
    if revoke:
        return _revoke(session, as_json=as_json)
    if name is not None and accept_risk is not None:
        return _accept(session, name, accept_risk, as_json=as_json)
    settings = session.satchel.settings
    refuse_locked(settings)
    yes = yes or session.satchel.library.trust.trusts(
        settings.project, settings.project
    )  # decided before
    review = review_with_progress(session)
    if not as_json:
        show_review(session, review)
    if not yes and not _ask(session, review):
        session.err.line(say("Nothing was changed"))
        return 0
    folder = session.satchel.trust()
    if as_json:
        write_json({"trusted": folder, **_account(review)})
    else:
        session.err.write(
            session.err.paint(say("Trusted: {folder}", folder=one_line(folder)), "green") + "\n"
        )
    return 0


def offer_trust(session: Session, *, note: bool) -> None:
    """Ask once whether the skills of this folder are used.

    Args:
        session: The run of the terminal.
        note: Print how many are not trusted where nothing is asked.
    """
    satchel = session.satchel
    line = satchel.library.waiting_line() if satchel.settings.asks else ""
    if not line:
        return
    book, folder = satchel.library.trust, satchel.settings.project
    asks = not session.as_json and sys.stdin.isatty() and sys.stderr.isatty()
    if not asks or book.declines(folder):
        if note or session.as_json:
            session.err.line(render(line), "yellow")
        return
    review = review_with_progress(session)
    show_review(session, review)
    if _ask(session, review):
        satchel.trust()
    else:
        book.decline(folder)
        session.err.line(say("Not trusted. Run `satchel trust` to change that"))


def review_with_progress(session: Session) -> FolderReview:
    """Scan what waits, with a line of progress where that takes long."""
    with Progress(say("Scanning skills")) as progress:
        return session.satchel.review(lambda done, total: progress("", done, total))


def _accept(session: Session, name: str, reason: str, *, as_json: bool) -> int:
    found = session.find(name)
    blocked = [one for one in found if one.state == "blocked"]
    skill = session.satchel.accept_risk((blocked or found)[0], reason)
    if as_json:
        write_json({"accepted": skill.ref, "reason": reason})
    else:
        words = say("`{name}` is used as it is now", name=one_line(skill.name))
        if skill.state == "untrusted":
            words = say("Accepted. `{name}` is used once its folder is trusted: `satchel trust`",
                        name=one_line(skill.name))  # fmt: skip
        session.err.line(words, "green")
    return 0


def _account(review: FolderReview) -> dict[str, Any]:
    return {
        "skills": [skill.ref for skill in review.skills],
        "programs": [skill.ref for skill in review.programs],
        "blocked": [skill.ref for skill in review.blocked],
        "problems": [problem.to_dict() for problem in review.problems],
    }


def show_review(session: Session, review: FolderReview) -> None:
    """Show what a folder brings."""
    if not review.skills:
        return
    err = session.err
    blocked = {skill.ref for skill in review.blocked}
    programs = {skill.ref for skill in review.programs}
    rows: list[list[str]] = []
    styles: list[list[str]] = []
    for skill in sorted(review.skills, key=lambda one: one.ref not in blocked)[:_MOST_SHOWN]:
        bad = skill.ref in blocked
        holds = say("programs") if skill.ref in programs else say("text only")
        rows.append([
            "✗" if bad else "?",
            one_line(skill.name),
            say("blocked") if bad else holds,
            one_line(skill.ref),
        ])  # fmt: skip
        styles.append(["red", "bold", "red"] if bad else ["yellow", "bold"])
    err.table(["", say("name"), say("contains"), say("location")], rows, styles)
    if len(review.skills) > _MOST_SHOWN:
        err.line(say("and {count} more", count=len(review.skills) - _MOST_SHOWN))
    if review.blocked:
        names = listed(f"`{one_line(skill.typed)}`" for skill in review.blocked[:_MOST_SHOWN])
        err.line(
            say("Blocked by the scan and not used: {names}. See `satchel scan --all`", names=names),
            "red",
        )
    show_problems(err, review.problems, "")


def summary(review: FolderReview) -> str:
    """What a folder brings, in one sentence."""
    if not review.skills:
        return say("No skill of this folder waits for trust")
    parts = [
        say("This folder brings 1 skill")
        if len(review.skills) == 1
        else say("This folder brings {count} skills", count=len(review.skills))
    ]
    if review.programs:
        parts.append(say("{count} with programs", count=len(review.programs)))
    blocked = len(review.blocked)
    scan = say("scan: {count} blocked", count=blocked) if blocked else say("scan: none blocked")
    return say("; ").join((say(", ").join(parts), scan))


def _ask(session: Session, review: FolderReview) -> bool:
    """Ask on the terminal.

    Raises:
        Refused: there is no terminal to ask on.
    """
    if not sys.stdin.isatty():
        raise Refused(
            say("Whether to trust this folder cannot be asked: this is not a terminal"),
            say("Review its skills with `satchel list --all`, then run `satchel trust --yes`"),
        )
    question = say("Use them, now and later?")
    if not review.skills:
        question = say("Trust it all the same?")
    elif len(review.skills) == 1:
        question = say("Use it, now and later?")
    return yes_or_no(session, summary(review) + say(". ") + question)


def _revoke(session: Session, *, as_json: bool) -> int:
    satchel = session.satchel
    if not satchel.untrust():
        raise NotFound(
            say("This folder was not trusted"), say("Run `satchel list` to see what is offered")
        )
    if as_json:
        write_json({"revoked": satchel.settings.project})
    else:
        session.err.line(say("Trust revoked"))
    return 0
