"""The command group `hub`: making, checking and copying hubs."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import click

from satchel.cli.commands.publish import (
    key_option,
    parse_release,
    print_commit,
    read_public_key,
    reason_option,
    store_argument,
)
from satchel.cli.console import count_skills, one_line, print_error, write_json
from satchel.cli.context import command, group, no_such
from satchel.cli.options import AnyPath, dry_run_option, flag_option, missing, wrong_form
from satchel.errors import Refused
from satchel.i18n import join_names, say
from satchel.store.hub_client.versions import HUB_NAME, is_publisher
from satchel.store.signing import SshKey, key_fingerprint

if TYPE_CHECKING:
    from collections.abc import Iterable

    from satchel.cli.context import CliContext
    from satchel.hub.build import BuildReport
    from satchel.hub.garbage import Collection
    from satchel.hub.ledger import IgnoredChange


hub = group(
    "hub",
    say("Use, make, check and copy hubs."),
    "satchel hub add https://skills.acme.example",
    "satchel hub init /srv/hub --name skills.acme.example --key hub.key",
    "satchel hub build /srv/hub skills/ --key hub.key",
    modules={
        "add": "commands.hub_add:add",
        "init": "commands.hub:init",
        "build": "commands.hub:build",
        "allow": "commands.hub:allow",
        "revoke": "commands.hub:revoke",
        "check": "commands.hub:check",
        "repair": "commands.hub:repair",
        "rotate": "commands.hub:rotate",
        "reset": "commands.hub_add:reset",
        "mirror": "commands.hub:mirror",
    },
    synonyms={"new": "init", "create": "init", "verify": "check", "copy": "mirror"},
)


@command(
    say("Make an empty hub: a folder, a bucket or a git repository."),
    "satchel hub init /srv/hub --name skills.acme.example --key hub.key",
    "satchel hub init s3://skills --name skills.acme.example --key hub.key",
)
@store_argument()
@click.option(
    "--name", metavar="NAME", required=True, help=say("Its host name; a part of every signature.")
)
@key_option(required=True)
def init(context: CliContext, store: str, name: str, key: str, as_json: bool) -> int:
    from satchel.hub.build import create_hub
    from satchel.hub.storage import open_storage

    if not HUB_NAME.match(name):
        raise wrong_form("--name", "skills.acme.example", name)
    signer = SshKey(key)
    with open_storage(store, create=True) as storage:
        state = create_hub(storage, name, signer)
    if as_json:
        write_json(state._asdict() if state else None)
    else:
        context.out.data(signer.public)
    return 0


@command(
    say("Publish a folder of skills, and write index and pages."),
    "satchel hub build /srv/hub --key hub.key",
    "satchel hub build /srv/hub skills/ --key hub.key",
    "satchel hub build /srv/hub --key hub.key --clean",
)
@store_argument()
@click.argument("skills", required=False, type=AnyPath(file_okay=False))
@click.option("--key", metavar="FILE", type=AnyPath(dir_okay=False), help=say("The hub's key."))
@dry_run_option()
@flag_option("--rebuild", say("Make all files from the commits, also without a valid `state`."))
@flag_option("--clean", say("Then remove files that nothing has used for the days of `--grace`."))
@click.option(
    "--grace",
    metavar="DAYS",
    type=click.IntRange(min=1),
    default=30,
    help=say("For `--clean`; 30 unless you say otherwise."),
)
def build(
    context: CliContext, store: str, skills: str | None, key: str | None, dry_run: bool,
    rebuild: bool, clean: bool, grace: int, as_json: bool,
) -> int:  # fmt: skip
    from satchel.hub.build import build as build_hub
    from satchel.hub.garbage import collect_garbage
    from satchel.hub.storage import open_storage

    if key is None and not dry_run:
        raise missing("--key")
    signer = SshKey(key) if key and not dry_run else None
    with open_storage(store) as storage:
        report = build_hub(storage, signer, skills or "", pages=True, rebuild=rebuild)
        garbage = collect_garbage(storage, grace, dry_run=dry_run) if clean else None
    if as_json:
        record = {"garbage": garbage._asdict()} if garbage else {}
        write_json(_build_to_dict(report) | record)
        return 1 if report.refused else 0
    _print_changes(context, report)
    if garbage is not None:
        _print_garbage(context, garbage, grace)
    if report.state is not None:
        count = report.state.count
        context.err.line(
            say("{skills}, commit {count}", skills=count_skills(report.state.skills), count=count),
            "green",
        )
    return 1 if report.refused else 0


def _build_to_dict(report: BuildReport) -> dict[str, Any]:
    return {
        "state": report.state._asdict() if report.state else None,
        "published": report.published,
        "refused": [
            {"name": name, "reason": exc.message, "hint": exc.hint}
            for name, exc in report.refused.items()
        ],
        "revoked": report.revoked,
        "ignored": [change._asdict() for change in report.ignored],
    }


def _print_changes(context: CliContext, report: BuildReport) -> None:
    for name in report.published:
        context.out.data(name)
    for name in report.revoked:
        context.err.line(say("Revoked: {names}", names=one_line(name)), "yellow", indent="▲ ")
    _print_ignored(context, report.ignored)
    for name, exc in report.refused.items():
        print_error(f"{one_line(name)}: {exc.message}", exc.hint)


def _print_garbage(context: CliContext, garbage: Collection, days: int) -> None:
    for path in garbage.removed:
        context.out.line(path, "dim", indent="- ")
    text = say("{count} unused files removed; {unused} stay until {days} days are over",
               count=len(garbage.removed), unused=garbage.unused, days=days)  # fmt: skip
    context.err.line(text)


def _print_ignored(context: CliContext, ignored: Iterable[IgnoredChange]) -> None:
    for change in ignored:
        text = say(
            "Ignored in commit {count}: {change}: {reason}",
            count=change.commit, change=one_line(change.change), reason=one_line(change.reason),
        )  # fmt: skip
        context.err.line(text, "yellow", indent="▲ ")


@command(
    say("Register a publisher, or change its key."),
    "satchel hub allow /srv/hub acme acme.pub --key hub.key",
)
@store_argument()
@click.argument("publisher")
@click.argument("public", metavar="KEY.pub", type=AnyPath(dir_okay=False))
@click.option(
    "--key",
    metavar="FILE",
    type=AnyPath(dir_okay=False),
    required=True,
    help=say("The hub's key, or the publisher's present one."),
)
def allow(
    context: CliContext, store: str, publisher: str, public: str, key: str, as_json: bool
) -> int:
    from satchel.hub.ledger import open_ledger
    from satchel.hub.publish import allow as register
    from satchel.hub.storage import open_storage

    if not is_publisher(publisher):
        raise wrong_form("PUBLISHER", "acme", publisher)
    with open_storage(store) as storage:
        public = read_public_key(public)
        count = register(open_ledger(storage), [publisher], public, SshKey(key))
    print_commit(context, count, as_json=as_json)
    return 0


@command(
    say("Forbid the installation of a release, also under other names."),
    'satchel hub revoke /srv/hub acme/release-notes@1.2.0 --because "sends files away" '
    "--key hub.key",
)
@store_argument()
@click.argument("release", metavar="RELEASE|DIGEST")
@reason_option()
@key_option(required=True)
def revoke(
    context: CliContext, store: str, release: str, reason: str, key: str, as_json: bool
) -> int:
    from satchel.hub.ledger import TREE, open_ledger
    from satchel.hub.publish import revoke as forbid
    from satchel.hub.storage import open_storage

    with open_storage(store) as storage:
        ledger = open_ledger(storage)
        tree = release
        if not TREE.match(release):
            name, version = parse_release(release)
            published = ledger.releases(name).get(version)
            if published is None:
                raise no_such(say("version"), release)
            tree = published.tree
        count = forbid(ledger, tree, reason, SshKey(key))
        names = [f"{affected.name}@{affected.version}" for affected in ledger.releases_of(tree)]
    if not as_json:
        context.err.line(say("Revoked: {names}", names=join_names(map(one_line, names))))
    print_commit(context, count, as_json=as_json)
    return 0


@command(
    say("Replay all commits of a hub and compare its files with the result."),
    "satchel hub check /srv/hub",
    "satchel hub check https://skills.acme.example --key hub.pub",
)
@store_argument()
@click.option(
    "--key", "public", metavar="FILE", type=AnyPath(dir_okay=False), help=say("The hub's key.")
)
def check(context: CliContext, store: str, public: str | None, as_json: bool) -> int:
    from satchel.hub.build import check_hub
    from satchel.hub.storage import open_storage

    with open_storage(store) as storage:
        report = check_hub(storage, read_public_key(public) if public else "")
    record: dict[str, Any] = {
        **report._asdict(),
        "state": report.state._asdict(),
        "ignored": [change._asdict() for change in report.ignored],
    }
    if as_json:
        write_json(record)
        return 1 if report.problems else 0
    _print_ignored(context, report.ignored)
    shown_fix = ""
    for problem, fix in zip(report.problems, report.fixes, strict=True):
        print_error(problem, fix if fix != shown_fix else "")
        shown_fix = fix
    state = report.state
    context.out.line(
        say("{skills}, commit {count}", skills=count_skills(state.skills), count=state.count),
        lead=[(f"{state.hub} ", "bold")],
    )
    context.out.line(key_fingerprint(state.key), "dim", indent="  ")
    if report.waiting:
        text = say("Run `{command}`", command=f"satchel hub build {store}")
        context.err.line(text, indent="→ ")
    return 1 if report.problems else 0


@command(
    say("Replace commits that cannot be read; the bad files are set aside."),
    "satchel hub repair /srv/hub --key hub.key",
)
@store_argument()
@key_option(required=True)
def repair(context: CliContext, store: str, key: str, as_json: bool) -> int:
    from satchel.hub.build import repair_hub
    from satchel.hub.storage import open_storage

    with open_storage(store) as storage:
        result = repair_hub(storage, SshKey(key))
    err = context.err
    if as_json:
        record = result._asdict() | {"build": _build_to_dict(result.build)} if result else {}
        write_json({"repaired": bool(record), "lost": (), "lost_yanks": {}, **record})
    elif result is None:
        err.line(say("All commits can be read"))
    else:
        _print_ignored(context, result.build.ignored)
        for name in result.lost:
            text = say("Not restored: {names}; publish it again", names=one_line(name))
            err.line(text, "yellow", indent="▲ ")
        for name, reason in result.lost_yanks.items():
            text = say("Offered again: {names}, which its publisher must withdraw again",
                       names=one_line(name))  # fmt: skip
            err.line(text, "yellow", indent="▲ ")
            words = shlex.join(["satchel", "yank", name, store, "--because", one_line(reason)])
            err.line(say("Run `{command}`", command=words), indent="→ ")
        text = say("Replaced: commits {first} to {last}; the old files are in `set-aside`",
                   first=result.first, last=result.last)  # fmt: skip
        err.line(text, "green")
    return 1 if result and (result.lost or result.lost_yanks) else 0


@command(
    say("Replace the key of a hub; the old key signs the new one."),
    "satchel hub rotate /srv/hub new.key --key hub.key",
)
@store_argument()
@click.argument("new_key", metavar="NEWKEY", type=AnyPath(dir_okay=False))
@key_option(required=True)
def rotate(context: CliContext, store: str, new_key: str, key: str, as_json: bool) -> int:
    from satchel.hub.build import build as build_hub
    from satchel.hub.ledger import open_ledger
    from satchel.hub.publish import rotate as replace_key
    from satchel.hub.storage import open_storage

    new_signer = SshKey(new_key)
    with open_storage(store) as storage:
        replace_key(open_ledger(storage), new_signer.public, SshKey(key))
        report = build_hub(storage, new_signer, pages=True, rebuild=True)
    if as_json:
        write_json(_build_to_dict(report))
    else:
        context.out.data(new_signer.public)
        text = say("Key: {key}", key=key_fingerprint(new_signer.public))
        context.err.line(text, "green")
    return 0


@command(
    say("Copy a hub, or bring a copy up to date."),
    "satchel hub mirror https://skills.acme.example /srv/mirror",
)
@store_argument()
@store_argument("target")
@click.option(
    "--key", "public", metavar="FILE", type=AnyPath(dir_okay=False), help=say("The hub's key.")
)
def mirror(context: CliContext, store: str, target: str, public: str | None, as_json: bool) -> int:
    from satchel.hub.build import mirror_hub
    from satchel.hub.storage import open_storage

    if store == target:
        raise Refused(say("`{path}` exists already", path=target))
    with open_storage(store) as source, open_storage(target, create=True) as copy:
        state = mirror_hub(source, copy, read_public_key(public) if public else "")
    if as_json:
        write_json(state._asdict())
    else:
        context.err.line(
            say("{skills}, commit {count}", skills=count_skills(state.skills), count=state.count),
            "green",
        )
    return 0
