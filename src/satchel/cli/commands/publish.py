"""The commands `publish` and `yank`: releases of skills in a hub."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from satchel.cli.commands.sign import find_folder
from satchel.cli.console import write_json
from satchel.cli.context import command, no_such, skill_argument
from satchel.cli.options import AnyPath, dry_run_option, missing, wrong_form
from satchel.i18n import say
from satchel.store.hub_client.release_name import parse_version, split_request

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from satchel.cli.context import CliContext

_MAX_KEY_BYTES = 16 << 10


def store_argument(name: str = "store") -> Callable[..., Any]:
    """The argument STORE: the address of a hub's files."""
    return click.argument(name, type=AnyPath())


def key_option(*, required: bool = False) -> Callable[..., Any]:
    """`--key FILE`."""
    return click.option(
        "--key",
        metavar="FILE",
        type=AnyPath(dir_okay=False),
        default=None if required else "~/.ssh/id_ed25519",
        required=required,
        help=say("Your ed25519 key; a `.pub` file means the key in your SSH agent."),
    )


def reason_option() -> Callable[..., Any]:
    """`--because TEXT`."""

    def clean(_: object, __: object, text: str) -> str:
        if not text.strip():
            raise missing("--because")
        return " ".join(text.split())

    return click.option(
        "--because", "reason", metavar="TEXT", default="", callback=clean, help=say("The reason.")
    )


def read_public_key(given: str) -> str:
    """The public key in a file, or given itself, without its comment."""
    from satchel.store.signing import plain_key

    if not given.startswith("ssh-"):
        try:
            with open(os.path.expanduser(given), encoding="utf-8", errors="replace") as stream:
                given = stream.read(_MAX_KEY_BYTES)
        except OSError as exc:
            raise no_such(say("file"), given) from exc
    return plain_key(given)


def parse_release(text: str) -> tuple[str, str]:
    """Name and version of `acme/x@1.2.0`."""
    found = split_request(text)
    if found is None or parse_version(found[1]) is None:
        raise wrong_form("RELEASE", "acme/release-notes@1.2.0", text)
    return str(found[0]), found[1]


@command(
    say("Publish a skill in a hub."),
    "satchel publish release-notes /srv/hub --as acme",
    "satchel publish skills/release-notes s3://skills --as acme --version 1.2.0",
)
@skill_argument("skill", type=AnyPath())
@store_argument()
@click.option("--as", "publisher", metavar="PUBLISHER", required=True, help=say("The publisher."))
@click.option("--version", metavar="VERSION", default="", help=say("Default: from its SKILL.md."))
@key_option()
@dry_run_option()
def publish(
    context: CliContext,
    skill: str,
    store: str,
    publisher: str,
    version: str,
    key: str,
    dry_run: bool,
    as_json: bool,
) -> int:
    from satchel.hub.ledger import open_ledger
    from satchel.hub.publish import publish as submit
    from satchel.hub.publish import read_draft
    from satchel.hub.storage import open_storage
    from satchel.store.signing import SshKey

    draft = read_draft(find_folder(context, skill)[0], publisher, version)
    count = 0
    if not dry_run:
        signer = SshKey(key)
        with open_storage(store) as storage:
            count = submit(open_ledger(storage), [draft], signer)
    if as_json:
        about = {"scan": draft.about["scan"], "commit": count or None}
        write_json({key: one for key, one in (draft.change | about).items() if key != "type"})
        return 0
    if draft.about["scan"] != "no findings":
        text = say("Scan: {verdict}", verdict=draft.about["scan"])
        context.err.line(text, "yellow", "▲ ")
    context.out.data(draft.title)
    if count:
        text = say("Commit {count}; readers see it after `satchel hub build`", count=count)
        context.err.line(text, "green")
    return 0


@command(
    say("Withdraw a release."),
    'satchel yank acme/release-notes@1.2.0 /srv/hub --because "loses the last entry"',
)
@click.argument("release")
@store_argument()
@reason_option()
@key_option()
def yank(
    context: CliContext, release: str, store: str, reason: str, key: str, as_json: bool
) -> int:
    from satchel.hub.ledger import open_ledger
    from satchel.hub.publish import yank as withdraw
    from satchel.hub.storage import open_storage
    from satchel.store.signing import SshKey

    name, version = parse_release(release)
    with open_storage(store) as storage:
        count = withdraw(open_ledger(storage), name, version, reason, SshKey(key))
    print_commit(context, count, as_json=as_json)
    return 0


def print_commit(context: CliContext, count: int, *, as_json: bool) -> None:
    """Print the number of a commit."""
    if as_json:
        write_json({"commit": count})
    else:
        text = say("Commit {count}; readers see it after `satchel hub build`", count=count)
        context.err.line(text, "green")
