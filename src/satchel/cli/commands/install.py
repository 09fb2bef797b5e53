"""The command `install`: from a source, a hub, a server, or the lockfile."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import click

from satchel.cli.console import one_line
from satchel.cli.context import ProgressBar, command, confirm, no_such
from satchel.cli.options import AnyPath, all_option, cannot_combine, flag_option, missing
from satchel.cli.plan_prompt import change_options, confirm_and_apply, open_store
from satchel.errors import NameTaken
from satchel.i18n import render, say
from satchel.library.lockfile import LockedSource
from satchel.skill.file_tree import MemoryTree

if TYPE_CHECKING:
    from satchel.cli.context import CliContext
    from satchel.store.plan import ChangePlan
    from satchel.store.store import Store

_SERVER = "mcp:"


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
@flag_option("--frozen", say("Without SOURCE: restore exactly what is locked, or fail."))
@change_options
def install(
    context: CliContext,
    sources: tuple[str, ...],
    frozen: bool,
    scope: str,
    everything: bool,
    **given: Any,
) -> int:
    names = ("accept_risk", "grant_tools", "yes", "dry_run", "as_json")
    decision = {name: given.pop(name) for name in names}
    chosen = {**given, "everything": everything}
    if frozen and sources:
        raise cannot_combine("SOURCE", "--frozen")
    if len(sources) != 1 and (any(chosen.values()) or (sources and decision["as_json"])):
        raise missing("SOURCE") if not sources else cannot_combine(*sources)
    store = open_store(context, scope)
    if not sources:
        return _install_locked(context, store, frozen=frozen, **decision)
    status = 0
    for source in sources:
        with ExitStack() as held:
            plan = held.enter_context(_plan(context, store, source, **chosen))
            if name := _other_name(context, plan, **decision):
                held.close()
                again = {**chosen, "skill_id": name}
                plan = held.enter_context(_plan(context, store, source, **again))
            status = confirm_and_apply(context, store, plan, **decision) or status
    return status


def _other_name(context: CliContext, plan: ChangePlan, **decision: Any) -> str:
    """A free name for a single skill whose name is taken, when the user accepts it."""
    error = plan.steps[0].error if len(plan.steps) == 1 else None
    if not isinstance(error, NameTaken) or not sys.stdin.isatty():
        return ""
    if decision["yes"] or decision["dry_run"] or decision["as_json"]:
        return ""
    context.err.line(one_line(error.message), "yellow")
    question = say("Install it as `{name}`?", name=error.suggestion)
    return error.suggestion if confirm(context, question) else ""


def _install_locked(context: CliContext, store: Store, *, frozen: bool, **decision: Any) -> int:
    with ProgressBar(say("Reading skills")) as progress:
        plan = store.plan_install((), frozen=frozen, progress=progress)
    with plan:
        if frozen and not decision["dry_run"]:
            store.require_complete(plan, accept_risk=decision["accept_risk"])
        status = confirm_and_apply(context, store, plan, **decision)
    context.satchel.refresh()
    if context.satchel.settings.asks and (line := context.satchel.library.untrusted_notice()):
        context.err.line(render(line), "yellow")
    return status


def _plan(context: CliContext, store: Store, source: str, **chosen: Any) -> ChangePlan:
    with ProgressBar(say("Reading skills")) as progress:
        if source.startswith(_SERVER):
            return _plan_served(context, store, source, progress, chosen["skill_id"])
        return store.plan_import(source, progress=progress, **chosen)


def _plan_served(
    context: CliContext, store: Store, source: str, progress: ProgressBar, skill_id: str
) -> ChangePlan:
    """Plan the installation of a server's skill; each file is compared with the listing.

    Raises:
        NotFound: the server has no such skill.
    """
    from satchel.store.planner import select_skills
    from satchel.store.sources import Bundle

    library = context.satchel.library
    server, _, name = source.rpartition("/")
    found = (skill for skill in library.find(name) if skill.origin.label == server)
    skill = next(found, None)
    if skill is None:
        raise no_such(say("skill"), source, command="satchel mcp list")
    supply = library.supply_of(skill)
    assert supply is not None  # noqa: S101 - the skill is of a server
    files = {path: supply.fetch_verified(skill, path) for path in supply.files_of(skill)}
    supply.document(skill)  # raises when its frontmatter differs from the listing
    place = LockedSource("upload", f"{skill.origin.label}/{skill.name}")
    bundle = Bundle(place, MemoryTree(files), name=skill.name)
    return store.plan_picked(bundle, select_skills(bundle, skill_id=skill_id), progress=progress)
