"""How do skills come, and how do they stay fresh? import, update, install."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from satchel._language import say
from satchel.cli.planning import RISK, decide_options, open_store, scope_option, settle
from satchel.cli.progress import Progress
from satchel.cli.session import command, complete_names
from satchel.cli.values import AnyPath

if TYPE_CHECKING:
    from satchel.cli.session import Session


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
