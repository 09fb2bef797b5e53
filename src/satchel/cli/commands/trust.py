"""`satchel trust`: trust a project's folder, grant tools, or accept the risk of a blocked skill."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from satchel.cli.commands.show import show_problems
from satchel.cli.console import one_line, write_json
from satchel.cli.context import ProgressBar, command, confirm, confirm_change, skill_argument
from satchel.cli.options import cannot_combine, flag_option, yes_option
from satchel.cli.plan_prompt import print_ungranted
from satchel.errors import InvalidInput, NotFound
from satchel.i18n import render, say
from satchel.presentation.change_words import names_of, request_lines
from satchel.project import refuse_locked

if TYPE_CHECKING:
    from collections.abc import Sequence

    from satchel.cli.console import Screen
    from satchel.cli.context import CliContext
    from satchel.satchel import FolderReview, ToolRequest
    from satchel.skill.model import Skill

_MAX_SKILLS_SHOWN = 20


@command(
    say("Trust the skills in this project's folder.")
    + "\n\n"
    + say(
        "Applies to all skills that the folder has now and later. Each is scanned before use; a "
        "blocked one is used only after `--accept-risk`, and only with its present content. Tools "
        "that a skill requests in `allowed-tools` still need approval, unless you grant them; a "
        "grant ends when the skill changes."
    ),
    "satchel trust",
    "satchel trust release-notes --grant-tools",
    "satchel trust deploy --accept-risk 'our own installer, reviewed'",
)
@skill_argument(required=False)
@click.option("--accept-risk", metavar="WHY", help=say("Use the blocked skill NAME as it is now."))
@flag_option("--grant-tools", say("Grant the tools that the skills, or NAME, request."))
@flag_option("--revoke", say("Revoke the trust, or what was granted to NAME."))
@yes_option()
def trust(
    session: CliContext,
    name: str | None,
    accept_risk: str | None,
    grant_tools: bool,
    revoke: bool,
    yes: bool,
    as_json: bool,
) -> int:
    """Show what the folder contains, ask, and store the answer."""
    if accept_risk is not None and name is None:
        raise InvalidInput(
            say("`--accept-risk` is for one skill, and none is named"),
            say("Run `{command}`", command="satchel trust NAME --accept-risk WHY"),
        )
    if name is not None and accept_risk is None and not (grant_tools or revoke):
        raise InvalidInput(
            say("With a name, `satchel trust` needs an option: the folder is trusted as a whole"),
            say("Give `--grant-tools`, `--accept-risk WHY` or `--revoke`"),
        )
    if (accept_risk is not None) + grant_tools + revoke > 1:
        raise cannot_combine("--accept-risk", "--grant-tools", "--revoke")
    if name is not None and accept_risk is not None:
        return _accept(session, name, accept_risk, as_json=as_json)
    if name is not None:
        change = _withdraw_grant if revoke else _grant_one
        return change(session, session.find(name)[0], as_json=as_json)
    if revoke:
        return _revoke(session, as_json=as_json)
    settings = session.satchel.settings
    refuse_locked(settings)
    trusted = session.satchel.library.trust.trusts(settings.project, settings.project)
    review = review_with_progress(session)
    if not as_json:
        print_review(session, review)
    if not yes and not trusted and not _ask(session, review):
        session.err.line(say("Nothing was changed"))
        return 0
    folder = session.satchel.trust()
    if not as_json:
        session.err.write(
            session.err.paint(say("Trusted: {names}", names=one_line(folder)), "green") + "\n"
        )
    granted = _decide_requests(
        session, review.requests, grant=grant_tools, ask=not yes and not as_json
    )
    if as_json:
        write_json({"trusted": folder, **_account(review), "granted": granted})
    return 0


def _decide_requests(
    session: CliContext, requests: Sequence[ToolRequest], *, grant: bool, ask: bool
) -> list[str]:
    """Grant printed requests if the option or the user says so; returns the granted skills."""
    if not requests:
        return []
    names = one_line(names_of([one.skill.name for one in requests]))
    if not grant and ask and sys.stdin.isatty():
        question = say("Let {names} call the requested tools without approval?", names=names)
        grant = confirm(session, question)
    if not grant:
        print_ungranted(session, "satchel trust --grant-tools")
        return []
    session.satchel.grant_tools(requests)
    session.err.line(say("Granted: {names}", names=names), "green")
    return [one.skill.ref for one in requests]


def _grant_one(session: CliContext, skill: Skill, *, as_json: bool) -> int:
    requests = session.satchel.tool_requests(skill)
    if not requests:
        name = one_line(skill.name)
        raise NotFound(say("`{name}` requests no tools that are not granted yet", name=name))
    _print_requests(session.err, requests)
    granted = _decide_requests(session, requests, grant=True, ask=False)
    if as_json:
        write_json({"granted": granted})
    return 0


def _withdraw_grant(session: CliContext, skill: Skill, *, as_json: bool) -> int:
    if not session.satchel.library.trust.withdraw_grant(skill.base_dir):
        raise NotFound(say("Nothing was granted to `{name}`", name=one_line(skill.name)))
    if as_json:
        write_json({"revoked": skill.ref})
    else:
        session.err.line(say("Grant revoked"))
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
        _decide_requests(session, review.requests, grant=False, ask=True)
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
        "requests": [{"skill": one.skill.ref, "tools": list(one.tools)} for one in review.requests],
    }


def print_review(session: CliContext, review: FolderReview) -> None:
    """Print what a folder contains."""
    err = session.err
    if review.skills:
        _print_skills(err, review)
    _print_requests(err, review.requests)
    show_problems(err, review.problems, "")


def _print_requests(err: Screen, requests: Sequence[ToolRequest]) -> None:
    for line in request_lines([(one.skill.name, one.tools) for one in requests]):
        err.line(one_line(line), "yellow")


def _print_skills(err: Screen, review: FolderReview) -> None:
    from satchel.presentation.trust import show_review

    folder = show_review(review)
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
