"""`satchel trust`: trust a project's folder, grant tools, or accept the risk of a blocked skill."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from satchel.cli.commands.show import show_problems
from satchel.cli.console import one_line, write_json
from satchel.cli.context import (
    ProgressBar,
    command,
    confirm,
    confirm_change,
    short_path,
    skill_argument,
)
from satchel.cli.options import cannot_combine, flag_option, yes_option
from satchel.cli.plan_prompt import print_ungranted
from satchel.diagnosis.folder_review import refuse_locked
from satchel.errors import InvalidInput, NotFound
from satchel.i18n import join_names, render, say
from satchel.library.skill_code import is_in_code
from satchel.library.trust_store import ScriptGrant
from satchel.presentation.change_words import join_ids, request_lines
from satchel.presentation.scripts import VARIABLE, grant_words, script_rights
from satchel.tools.lookup import ended_grant
from satchel.tools.secrets import look_up_grant

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from satchel.cli.console import Screen
    from satchel.cli.context import CliContext
    from satchel.diagnosis.folder_review import FolderReview, ToolRequest
    from satchel.library.tool_skills import ToolSkill
    from satchel.presentation.scripts import ScriptRights
    from satchel.skill.model import Skill

_MAX_SKILLS_SHOWN = 20
_MAX_REASONS_SHOWN = 2


@command(
    say("Trust the skills in this project's folder.")
    + "\n\n"
    + say(
        "Applies to all skills that the folder has now and later. Each is scanned before use; a "
        "blocked one is used only after `--accept-risk`, and only with its present content. Tools "
        "that a skill requests in `allowed-tools` still need approval, and its scripts have no "
        "network and no secrets, unless you grant them; a grant ends when the skill changes."
    ),
    "satchel trust",
    "satchel trust release-notes --grant-tools",
    "satchel trust weather --network --secret WEATHER_API_KEY",
)
@skill_argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--accept-risk", metavar="WHY", help=say("Use the blocked skill NAME as it is now."))
@flag_option("--grant-tools", say("Grant the tools that the skills, or NAME, request."))
@flag_option("--network", say("Let the scripts of NAME use the network."))
@click.option(
    "--secret",
    "secrets",
    multiple=True,
    metavar="VARIABLE",
    help=say("Pass this secret to the scripts of NAME; repeatable."),
)
@click.option(
    "--variable",
    "variables",
    multiple=True,
    metavar="VARIABLE",
    help=say("Pass this variable, which is no secret, to the scripts of NAME; repeatable."),
)
@flag_option("--revoke", say("Revoke the trust, or what was granted to NAME."))
@yes_option()
def trust(
    context: CliContext,
    names: tuple[str, ...],
    accept_risk: str | None,
    grant_tools: bool,
    network: bool,
    secrets: tuple[str, ...],
    variables: tuple[str, ...],
    revoke: bool,
    yes: bool,
    as_json: bool,
) -> int:
    """Show what the folder contains, ask, and store the answer."""
    grant = ScriptGrant(
        network, secrets=tuple(dict.fromkeys(secrets)), variables=tuple(dict.fromkeys(variables))
    )
    if not names:
        _refuse_name_options(accept_risk, grant)
    if (accept_risk is not None) + grant_tools + revoke + any(grant) > 1:
        raise cannot_combine("--accept-risk", "--grant-tools", "--network", "--revoke")
    if names:
        change = _show_requests
        if accept_risk is not None:
            change = partial(_accept_risk, reason=accept_risk)
        elif grant_tools:
            change = _grant_tools
        elif any(grant):
            change = partial(_grant_scripts, grant=grant, ask=not yes)
        elif revoke:
            change = _withdraw_grant
        return _change_each(context, names, change, as_json=as_json)
    if revoke:
        return _revoke_trust(context, as_json=as_json)
    return _trust_folder(context, grant_tools=grant_tools, yes=yes, as_json=as_json)


def _trust_folder(context: CliContext, *, grant_tools: bool, yes: bool, as_json: bool) -> int:
    settings = context.satchel.settings
    refuse_locked(settings)
    trusted = context.satchel.library.trust.trusts(settings.project, settings.project)
    review = review_with_progress(context)
    if not as_json:
        print_review(context, review)
    is_asked = not trusted or context.satchel.untrusted_levels()
    if not yes and is_asked and not _confirm_trust(context, review):
        context.err.line(say("Nothing was changed"))
        return 0
    folder = context.satchel.trust()
    if as_json:
        granted = _decide_requests(context, review.requests, grant=grant_tools, ask=False)
        write_json({"trusted": folder, **_review_to_dict(context, review), "granted": granted})
        return 0
    text = say("Trusted: {names}", names=one_line(folder))
    context.err.write(context.err.paint(text, "green") + "\n")
    _decide_requests(context, review.requests, grant=grant_tools, ask=not yes)
    return 0


def _refuse_name_options(accept_risk: str | None, grant: ScriptGrant) -> None:
    """Refuse the options that need the name of a skill."""
    if accept_risk is not None:
        raise InvalidInput(
            say("`--accept-risk` is for one skill, and none is named"),
            say("Run `{command}`", command="satchel trust NAME --accept-risk WHY"),
        )
    if any(grant):
        raise InvalidInput(
            say("`--network`, `--secret` and `--variable` are for one skill, and none is named"),
            say("Run `{command}`", command="satchel trust NAME --network"),
        )


def _change_each(
    context: CliContext, names: Sequence[str], change: Callable[..., None], *, as_json: bool
) -> int:
    """Call `change` with each named skill; returns the exit code."""
    if as_json and len(names) > 1:
        raise cannot_combine("--json", "NAME NAME")
    for skill in [context.find(name)[0] for name in names]:
        if len(names) > 1:
            context.err.line(one_line(skill.reference), "bold")
        change(context, skill, as_json=as_json)
    return 0


def _decide_requests(
    context: CliContext, requests: Sequence[ToolRequest], *, grant: bool, ask: bool
) -> list[str]:
    """Grant printed requests if the option or the user says so; returns the granted skills."""
    if not requests:
        return []
    names = one_line(join_ids([request.skill.name for request in requests]))
    if not grant and ask and sys.stdin.isatty():
        question = say("Let {names} call the requested tools without approval?", names=names)
        grant = confirm(context, question)
    if not grant:
        print_ungranted(context, "satchel trust --grant-tools")
        return []
    context.satchel.grant_tools(requests)
    context.err.line(say("Granted: {names}", names=names), "green")
    return [request.skill.ref for request in requests]


def _grant_tools(context: CliContext, skill: Skill, *, as_json: bool) -> None:
    requests = context.satchel.tool_requests(skill)
    if not requests:
        name = one_line(skill.name)
        raise NotFound(say("`{name}` requests no tools that are not granted yet", name=name))
    _print_requests(context.err, requests)
    granted = _decide_requests(context, requests, grant=True, ask=False)
    if as_json:
        write_json({"granted": granted})


def _grant_scripts(
    context: CliContext, skill: Skill, *, grant: ScriptGrant, ask: bool, as_json: bool
) -> None:
    """Let the scripts of a skill use the network, secrets and variables, until it changes."""
    library = context.satchel.library
    for name in (*grant.secrets, *grant.variables):
        if not VARIABLE.fullmatch(name):
            raise InvalidInput(
                say("`{value}` is not valid", value=one_line(name)),
                say("Name a variable, such as `{value}`", value="ACME_API_KEY"),
            )
    if skill.origin.remote:
        raise InvalidInput(
            say("The skill `{name}` is served, and its scripts do not run here",
                name=one_line(skill.name))
        )  # fmt: skip
    digest = library.integrity.check(skill).tree.digest
    rights = script_rights(library, skill)
    if not as_json:
        _print_rights(context, rights)
        name, names = one_line(skill.name), grant_words(grant)
        question = say("Let the scripts of `{name}` use {names}?", name=name, names=names)
        if ask and sys.stdin.isatty() and not confirm(context, question):
            context.err.line(say("Nothing was changed"))
            return
    library.trust.grant_scripts(skill.base_dir, digest, grant)
    granted = library.trust.script_grant(skill.base_dir, digest, skill.name)
    if as_json:
        write_json({"skill": skill.ref, **granted._asdict()})
        return
    context.err.line(
        say("Its scripts may use {names}, until it changes", names=grant_words(granted)), "green"
    )
    _warn_of_useless_grants(context, skill, grant, rights)


def _warn_of_useless_grants(
    context: CliContext, skill: Skill, grant: ScriptGrant, rights: ScriptRights
) -> None:
    """Warn of granted variables that no file of the skill names, or that have no value."""
    lead = [(say("warning: "), "yellow")]
    for name in (*grant.secrets, *grant.variables):
        if not is_in_code(skill.base_dir, (name,)):
            text = say("its files name no variable")
            if rights.variables:
                names = join_names(f"`{variable}`" for variable in rights.variables)
                text = say(
                    "none of its files names `{name}`; they read: {names}", name=name, names=names
                )
            context.err.line(text, lead=lead)
    for exc in look_up_grant(context.satchel.settings, grant).unset.values():
        hint = one_line(render(exc.hint))
        context.err.line(f"{render(exc.message)}{say('. ')}{hint}", lead=lead)


def _show_requests(context: CliContext, skill: Skill, *, as_json: bool) -> None:
    """Show what the programs of a skill name that the user can grant."""
    rights = script_rights(context.satchel.library, skill)
    hosts, variables, grant = rights
    if as_json:
        names = {"hosts": list(hosts), "variables": list(variables)}
        write_json({"skill": skill.ref, **names, "granted": grant._asdict()})
        return
    if not (hosts or variables or any(grant)):
        name = one_line(skill.name)
        if skill.state == "untrusted":
            raise InvalidInput(
                say("`{name}` is trusted with its folder, not by its name", name=name),
                say("Run `{command}`", command="satchel trust"),
            )
        context.err.line(
            say("Nothing is granted to `{name}`; its files name no host and no variable", name=name)
        )
        options = "`--grant-tools`, `--network`, `--secret VARIABLE`, `--variable VARIABLE`"
        context.err.line(say("Grant something with {options}", options=options), indent="→ ")
    _print_rights(context, rights)
    if ended := ended_grant(context.satchel.library, skill):
        context.err.line(ended.message, "yellow")
    if any(grant):
        names = grant_words(grant)
        context.err.line(say("Its scripts may use {names}, until it changes", names=names))
    for step in rights.steps(skill):
        context.err.line(step, indent="→ ")


def _print_rights(context: CliContext, rights: ScriptRights) -> None:
    for title, names in ((say("hosts"), rights.hosts), (say("variables"), rights.variables)):
        if names:
            text = join_names(f"`{one_line(name)}`" for name in names[:_MAX_SKILLS_SHOWN])
            context.err.line(text, hang="", lead=[(title, "dim"), (say(": "), "dim")])


def _withdraw_grant(context: CliContext, skill: Skill, *, as_json: bool) -> None:
    trust, config = context.satchel.library.trust, context.satchel.settings.paths.config
    is_revoked = trust.withdraw_grant(skill.base_dir)
    configured = any(trust.script_grant(skill.base_dir, "", skill.name))
    remaining = ""
    if configured or trust.configured_tools(skill.name):
        remaining = say(
            "`[grants.{name}]` in `{path}` grants by name: delete it there",
            name=one_line(skill.name),
            path=one_line(short_path(config)),
        )
    if not is_revoked:
        message = say("Nothing was granted to `{name}`", name=one_line(skill.name))
        raise NotFound(message, remaining)
    if as_json:
        write_json({"revoked": skill.ref})
    else:
        context.err.line(say("Grant revoked"))
    if remaining:
        context.err.line(remaining, lead=[(say("warning: "), "yellow")])


def offer_trust(context: CliContext, *, note: bool) -> None:
    """Ask once whether the skills of this folder are used.

    Args:
        context: The context of this run.
        note: Print the number of untrusted skills when nothing is asked.
    """
    satchel = context.satchel
    notice = satchel.library.untrusted_notice() if satchel.settings.asks else ""
    if not notice:
        return
    trust_store, folder = satchel.library.trust, satchel.settings.project
    can_ask = not context.as_json and sys.stdin.isatty() and sys.stderr.isatty()
    if not can_ask or trust_store.declines(folder):
        if note or context.as_json:
            context.err.line(render(notice), "yellow")
        return
    review = review_with_progress(context)
    print_review(context, review)
    if _confirm_trust(context, review):
        satchel.trust()
        _decide_requests(context, review.requests, grant=False, ask=True)
    else:
        trust_store.decline(folder)
        context.err.line(say("It stays untrusted; `satchel trust` changes that"))


def review_with_progress(context: CliContext) -> FolderReview:
    """Scan untrusted skills, with a progress bar."""
    with ProgressBar(say("Scanning")) as progress:
        return context.satchel.review(lambda completed, total: progress("", completed, total))


def _accept_risk(context: CliContext, skill: Skill, *, reason: str, as_json: bool) -> None:
    candidates = (skill, *context.satchel.library.find(skill.name))
    blocked = next((candidate for candidate in candidates if candidate.state == "blocked"), skill)
    skill = context.satchel.accept_risk(blocked, reason)
    if as_json:
        write_json({"accepted": skill.ref, "reason": reason})
    else:
        context.err.line(say("Accepted: {names}", names=f"`{one_line(skill.name)}`"), "green")
        if skill.state == "untrusted":
            context.err.line(say("Run `{command}`", command="satchel trust"), indent="→ ")


def _review_to_dict(context: CliContext, review: FolderReview) -> dict[str, Any]:
    tool_skills = _tool_skills(context, review)
    return {
        "skills": [skill.ref for skill in review.skills],
        "wants": {entry.skill.ref: entry.to_dict()["wants"] for entry in tool_skills},
        "programs": [skill.ref for skill in review.programs],
        "blocked": [skill.ref for skill in review.blocked],
        "flagged": {skill.ref: list(reasons) for skill, reasons in review.flagged},
        "problems": [problem.to_dict() for problem in review.problems],
        "requests": [
            {"skill": request.skill.ref, "tools": list(request.tools)}
            for request in review.requests
        ],
    }


def print_review(context: CliContext, review: FolderReview) -> None:
    """Print what a folder contains."""
    err = context.err
    if review.skills:
        _print_skills(err, review)
    for tool_skill in _tool_skills(context, review)[:_MAX_SKILLS_SHOWN]:
        if permissions := tool_skill.wants:
            name = one_line(tool_skill.skill.name)
            text = say("`{name}` may {what}", name=name, what=join_names(permissions))
            err.line(text, "yellow")
    _print_requests(err, review.requests)
    show_problems(err, review.problems, "")


def _tool_skills(context: CliContext, review: FolderReview) -> list[ToolSkill]:
    """The reviewed skills with tools."""
    tools = context.satchel.library.tools()
    return list(filter(None, map(tools.of, review.skills)))


def _print_requests(err: Screen, requests: Sequence[ToolRequest]) -> None:
    for line in request_lines([(request.skill.name, request.tools) for request in requests]):
        err.line(one_line(line), "yellow")


def _print_skills(err: Screen, review: FolderReview) -> None:
    from satchel.presentation.trust import show_review

    folder = show_review(review)
    rows: list[list[str]] = []
    styles: list[list[str]] = []
    for row in folder.rows[:_MAX_SKILLS_SHOWN]:
        contents = say("programs") if row.has_programs else say("text only")
        if row.reasons:
            reasons = join_names([one_line(reason) for reason in row.reasons[:_MAX_REASONS_SHOWN]])
            contents = say("review") + say(": ") + reasons
        rows.append([
            "✗" if row.is_blocked else "▲" if row.reasons else "?",
            one_line(row.name),
            say("blocked") if row.is_blocked else contents,
            one_line(row.ref),
        ])  # fmt: skip
        styles.append(["red", "bold", "red"] if row.is_blocked else ["yellow", "bold"])
    err.table(["", say("name"), say("contains"), say("location")], rows, styles)
    if folder.skills > _MAX_SKILLS_SHOWN:
        err.line(say("… and {count} more", count=folder.skills - _MAX_SKILLS_SHOWN))
    if folder.flagged:
        err.line(
            say("Read the findings with `{command}`", command="satchel scan --all"), indent="→ "
        )


def _confirm_trust(context: CliContext, review: FolderReview) -> bool:
    from satchel.presentation.trust import show_review

    question = show_review(review).summary + say(". ") + say("Trust this folder?")
    return confirm_change(context, question, as_json=False)


def _revoke_trust(context: CliContext, *, as_json: bool) -> int:
    satchel = context.satchel
    if not satchel.untrust():
        raise NotFound(say("This folder is not trusted"))
    if as_json:
        write_json({"revoked": satchel.settings.project})
    else:
        context.err.line(say("Trust revoked"))
    return 0
