"""`satchel trust`: trust a project's folder, or accept the risk of a blocked skill."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from satchel.cli.commands.show import show_problems
from satchel.cli.console import one_line, write_json
from satchel.cli.context import ProgressBar, command, confirm_change, skill_argument
from satchel.cli.options import cannot_combine, needs, yes_option
from satchel.errors import NotFound
from satchel.i18n import render, say
from satchel.project import refuse_locked

if TYPE_CHECKING:
    from satchel.cli.context import CliContext
    from satchel.satchel import FolderReview

_MAX_SKILLS_SHOWN = 20


@command(
    say("Trust the skills in this project's folder.")
    + "\n\n"
    + say(
        "Applies to all skills that the folder has now and later. Each is scanned before use; a "
        "blocked one is used only after `--accept-risk`, and only with its present content."
    ),
    "satchel trust",
    "satchel trust deploy --accept-risk 'our own installer, reviewed'",
    "satchel trust --revoke",
)
@skill_argument(required=False)
@click.option("--accept-risk", metavar="WHY", help=say("Use the blocked skill NAME as it is now."))
@click.option("--revoke", is_flag=True, help=say("Revoke the trust."))
@yes_option()
def trust(
    session: CliContext,
    name: str | None,
    accept_risk: str | None,
    revoke: bool,
    yes: bool,
    as_json: bool,
) -> int:
    """Show what the folder contains, ask, and store the answer."""
    if revoke and name is not None:
        raise cannot_combine("NAME", "--revoke")
    if (name is None) != (accept_risk is None):
        raise needs("NAME", "--accept-risk") if name else needs("--accept-risk", "NAME")
    if revoke:
        return _revoke(session, as_json=as_json)
    if name is not None and accept_risk is not None:
        return _accept(session, name, accept_risk, as_json=as_json)
    settings = session.satchel.settings
    refuse_locked(settings)
    yes = yes or session.satchel.library.trust.trusts(
        settings.project, settings.project
    )  # trusted already
    review = review_with_progress(session)
    if not as_json:
        print_review(session, review)
    if not yes and not _ask(session, review):
        session.err.line(say("Nothing was changed"))
        return 0
    folder = session.satchel.trust()
    if as_json:
        write_json({"trusted": folder, **_account(review)})
    else:
        session.err.write(
            session.err.paint(say("Trusted: {names}", names=one_line(folder)), "green") + "\n"
        )
    return 0


def offer_trust(session: CliContext, *, note: bool) -> None:
    """Ask once whether the skills of this folder are used.

    Args:
        session: The context of this run.
        note: Print the number of untrusted skills when nothing is asked.
    """
    satchel = session.satchel
    line = satchel.library.untrusted_notice() if satchel.settings.asks else ""
    if not line:
        return
    book, folder = satchel.library.trust, satchel.settings.project
    asks = not session.as_json and sys.stdin.isatty() and sys.stderr.isatty()
    if not asks or book.declines(folder):
        if note or session.as_json:
            session.err.line(render(line), "yellow")
        return
    review = review_with_progress(session)
    print_review(session, review)
    if _ask(session, review):
        satchel.trust()
    else:
        book.decline(folder)
        session.err.line(say("It stays untrusted; `satchel trust` changes that"))


def review_with_progress(session: CliContext) -> FolderReview:
    """Scan untrusted skills, with a progress bar."""
    with ProgressBar(say("Scanning")) as progress:
        return session.satchel.review(lambda done, total: progress("", done, total))


def _accept(session: CliContext, name: str, reason: str, *, as_json: bool) -> int:
    found = session.find(name)
    blocked = [one for one in found if one.state == "blocked"]
    skill = session.satchel.accept_risk((blocked or found)[0], reason)
    if as_json:
        write_json({"accepted": skill.ref, "reason": reason})
    else:
        session.err.line(say("Accepted: {names}", names=f"`{one_line(skill.name)}`"), "green")
        if skill.state == "untrusted":
            session.err.line(say("Run `{command}`", command="satchel trust"), "", "→ ")
    return 0


def _account(review: FolderReview) -> dict[str, Any]:
    return {
        "skills": [skill.ref for skill in review.skills],
        "programs": [skill.ref for skill in review.programs],
        "blocked": [skill.ref for skill in review.blocked],
        "problems": [problem.to_dict() for problem in review.problems],
    }


def print_review(session: CliContext, review: FolderReview) -> None:
    """Print what a folder contains."""
    if not review.skills:
        return
    from satchel.presentation.trust import show_review

    err, folder = session.err, show_review(review)
    rows: list[list[str]] = []
    styles: list[list[str]] = []
    for row in folder.rows[:_MAX_SKILLS_SHOWN]:
        holds = say("programs") if row.has_programs else say("text only")
        rows.append([
            "✗" if row.is_blocked else "?",
            one_line(row.name),
            say("blocked") if row.is_blocked else holds,
            one_line(row.ref),
        ])  # fmt: skip
        styles.append(["red", "bold", "red"] if row.is_blocked else ["yellow", "bold"])
    err.table(["", say("name"), say("contains"), say("location")], rows, styles)
    if folder.skills > _MAX_SKILLS_SHOWN:
        err.line(say("… and {count} more", count=folder.skills - _MAX_SKILLS_SHOWN))
    show_problems(err, review.problems, "")


def _ask(session: CliContext, review: FolderReview) -> bool:
    from satchel.presentation.trust import show_review

    question = show_review(review).summary + say(". ") + say("Trust this folder?")
    return confirm_change(session, question, as_json=False)


def _revoke(session: CliContext, *, as_json: bool) -> int:
    satchel = session.satchel
    if not satchel.untrust():
        raise NotFound(say("This folder is not trusted"))
    if as_json:
        write_json({"revoked": satchel.settings.project})
    else:
        session.err.line(say("Trust revoked"))
    return 0
