"""The command `install`: from a source, a hub, a server, or the lockfile."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple, TypedDict

import click

from satchel.cli.console import one_line
from satchel.cli.context import ProgressBar, command, confirm, no_such
from satchel.cli.options import AnyPath, OneOf, all_option, cannot_combine, flag_option, missing
from satchel.cli.plan_prompt import SCOPE_NAMES, change_options, confirm_and_apply
from satchel.errors import NameTaken
from satchel.i18n import render, say
from satchel.library.lockfile import LockedSource
from satchel.skill.file_tree import MemoryTree

if TYPE_CHECKING:
    from typing import Unpack

    from satchel.cli.context import CliContext
    from satchel.store.plan import ChangePlan
    from satchel.store.store import Store

_SERVER_PREFIX = "mcp:"


@command(
    say("Install skills from a hub, folder, archive, git or MCP.")
    + "\n\n"
    + say(
        "Skills are scanned, shown and pinned in the lockfile. You are asked when something would "
        "be overwritten or the scan found something. Without SOURCE the skills of the lockfile "
        "that are missing on disk are installed."
    ),
    "satchel install pdf-forms.zip",
    "satchel install https://example.com/skills.git --ref v2 --skill pdf-forms",
    "satchel install acme/pdf-forms@^1",
)
@click.argument("sources", nargs=-1, metavar="[SOURCE]...", type=AnyPath())
@click.option("--id", "skill_id", default="", help=say("The folder's name."))
@click.option(
    "--ref", default="", help=say("Branch, tag or commit of a repository; version in a hub.")
)
@click.option("--path", default="", help=say("The skill's folder within the source."))
@click.option("--skill", "names", multiple=True, help=say("Which of several skills; repeatable."))
@all_option(say("All skills."))
@click.option(
    "--to",
    "agent",
    type=OneOf(["claude", "codex", "cursor", "gemini"]),
    help=say("Install into the folder of another agent, such as `.claude/skills`."),
)
@flag_option("--frozen", say("Without SOURCE: restore exactly what is locked, or fail."))
@change_options
def install(
    context: CliContext,
    sources: tuple[str, ...],
    frozen: bool,
    scope: str,
    skill_id: str,
    ref: str,
    path: str,
    names: tuple[str, ...],
    everything: bool,
    agent: str | None,
    **decision: Unpack[InstallDecision],
) -> int:
    selection = _SkillSelection(skill_id, ref, path, names, everything)
    if frozen and sources:
        raise cannot_combine("SOURCE", "--frozen")
    if not sources and any(selection):
        raise missing("SOURCE")
    if len(sources) > 1 and (any(selection) or decision["as_json"]):
        raise cannot_combine(*sources)
    store = context.satchel.store(SCOPE_NAMES[scope], agent=agent or "")
    if not sources:
        return _install_locked(context, store, frozen=frozen, **decision)
    status = 0
    for source in sources:
        with _plan_with_free_name(context, store, source, selection, **decision) as plan:
            # The last source that fails decides the exit code.
            status = confirm_and_apply(context, store, plan, **decision) or status
    return status


class InstallDecision(TypedDict):
    """Options of `change_options` that decide how a plan is confirmed and applied."""

    accept_risk: str
    grant_tools: bool
    yes: bool
    dry_run: bool
    as_json: bool


class _SkillSelection(NamedTuple):
    """Options that choose the skills of one source."""

    skill_id: str
    ref: str
    path: str
    names: tuple[str, ...]
    everything: bool


def _plan_with_free_name(
    context: CliContext,
    store: Store,
    source: str,
    selection: _SkillSelection,
    **decision: Unpack[InstallDecision],
) -> ChangePlan:
    """Plan the installation of a source; a taken name is replaced when the user accepts it."""
    plan = _plan_source(context, store, source, selection)
    with ExitStack() as stack:
        stack.enter_context(plan)
        accepted_name = _accepted_name(context, plan, **decision)
        if not accepted_name:
            stack.pop_all()  # the caller closes the plan
            return plan
    return _plan_source(context, store, source, selection._replace(skill_id=accepted_name))


def _accepted_name(
    context: CliContext, plan: ChangePlan, **decision: Unpack[InstallDecision]
) -> str:
    """Offer a free name for a single skill whose name is taken; empty when it is not accepted."""
    error = plan.steps[0].error if len(plan.steps) == 1 else None
    if not isinstance(error, NameTaken) or not sys.stdin.isatty():
        return ""
    if decision["yes"] or decision["dry_run"] or decision["as_json"]:
        return ""
    context.err.line(one_line(error.message), "yellow")
    question = say("Install it as `{name}`?", name=error.suggestion)
    return error.suggestion if confirm(context, question) else ""


def _install_locked(
    context: CliContext, store: Store, *, frozen: bool, **decision: Unpack[InstallDecision]
) -> int:
    with ProgressBar(say("Reading skills")) as progress:
        plan = store.plan_install((), frozen=frozen, progress=progress)
    with plan:
        if frozen and not decision["dry_run"]:
            store.require_complete(plan, accept_risk=decision["accept_risk"])
        status = confirm_and_apply(context, store, plan, **decision)
    context.satchel.refresh()
    if context.satchel.settings.asks and (notice := context.satchel.library.untrusted_notice()):
        context.err.line(render(notice), "yellow")
    return status


def _plan_source(
    context: CliContext, store: Store, source: str, selection: _SkillSelection
) -> ChangePlan:
    waiting = context.err.waiting(say("Reading skills…"))
    with waiting, ProgressBar(say("Reading skills")) as progress:
        if source.startswith(_SERVER_PREFIX):
            return _plan_served_skill(context, store, source, progress, selection.skill_id)
        return store.plan_import(source, progress=progress, **selection._asdict())


def _plan_served_skill(
    context: CliContext, store: Store, source: str, progress: ProgressBar, skill_id: str
) -> ChangePlan:
    """Plan the installation of a server's skill; each file is compared with the listing.

    Raises:
        NotFound: the server has no such skill.
    """
    from satchel.store.skill_selection import select_skills
    from satchel.store.sources import Bundle

    library = context.satchel.library
    server, _, name = source.rpartition("/")
    skill = next((match for match in library.find(name) if match.origin.label == server), None)
    if skill is None:
        raise no_such(say("skill"), source, command="satchel mcp list")
    served_skills = library.served_skills_of(skill)
    assert served_skills is not None  # noqa: S101 - the skill is of a server
    files = {
        path: served_skills.fetch_verified(skill, path) for path in served_skills.files_of(skill)
    }
    served_skills.document(skill)  # raises when its frontmatter differs from the listing
    locked_source = LockedSource("upload", f"{skill.origin.label}/{skill.name}")
    bundle = Bundle(locked_source, MemoryTree(files), name=skill.name)
    return store.plan_picked(bundle, select_skills(bundle, skill_id=skill_id), progress=progress)
