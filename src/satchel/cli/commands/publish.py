"""The commands `publish` and `yank`: releases of skills in a hub."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from satchel.cli.console import write_json
from satchel.cli.context import command, no_such, skill_argument
from satchel.cli.options import AnyPath, dry_run_option, missing, wrong_form
from satchel.i18n import say
from satchel.store.hub_client.versions import parse_version, split_request
from satchel.store.signing import SshKey, plain_key

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from satchel.cli.context import CliContext

_MAX_KEY_BYTES = 16 << 10


def store_argument(name: str = "store") -> Callable[..., Any]:
    """Return the argument STORE: the address of a hub's files."""
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


def read_public_key(key_or_path: str) -> str:
    """Return the public key of an argument or of the file that it names, without its comment."""
    if not key_or_path.startswith("ssh-"):
        try:
            with open(
                os.path.expanduser(key_or_path), encoding="utf-8", errors="replace"
            ) as stream:
                key_or_path = stream.read(_MAX_KEY_BYTES)
        except OSError as exc:
            raise no_such(say("file"), key_or_path) from exc
    return plain_key(key_or_path)


def parse_release(text: str) -> tuple[str, str]:
    """Return the name and version of `acme/x@1.2.0`."""
    request = split_request(text)
    if request is None or parse_version(request[1]) is None:
        raise wrong_form("RELEASE", "acme/release-notes@1.2.0", text)
    return str(request[0]), request[1]


@command(
    say("Publish a skill in a hub."),
    "satchel publish release-notes /srv/hub --as acme",
    "satchel publish skills/release-notes s3://skills --as acme --version 1.2.0",
)
@skill_argument("skill", type=AnyPath())
@store_argument()
@click.option("--as", "publisher", metavar="PUBLISHER", required=True, help=say("The publisher."))
@click.option(
    "--version",
    metavar="VERSION",
    default="",
    help=say("Default: from its SKILL.md, else the day, such as 2026.1119.0."),
)
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

    folder = _find_folder(context, skill)
    count = 0
    if dry_run:
        draft = read_draft(folder, publisher, version)
    else:
        signer = SshKey(key)
        with open_storage(store) as storage:
            ledger = open_ledger(storage)
            draft = read_draft(folder, publisher, version, ledger)
            count = submit(ledger, [draft], signer)
    if as_json:
        summary = {"scan": draft.description["scan"], "commit": count or None}
        write_json({key: value for key, value in (draft.change | summary).items() if key != "type"})
        return 0
    if draft.description["scan"] != "no findings":
        text = say("Scan: {verdict}", verdict=draft.description["scan"])
        context.err.line(text, "yellow", indent="▲ ")
    context.out.data(draft.title)
    if count:
        text = say("Commit {count}; readers see it after `satchel hub build`", count=count)
        context.err.line(text, "green")
    return 0


def _find_folder(context: CliContext, skill: str) -> str:
    """Return the folder of a skill that is given as a name or a path."""
    path = os.path.abspath(os.path.expanduser(skill))
    is_name = os.sep not in skill and not skill.startswith(".")
    matches = context.satchel.library.find(skill) if is_name else []
    if not matches and not os.path.isdir(path):
        raise context.not_found(skill) if is_name else no_such(say("folder"), skill)
    return matches[0].base_dir if matches else path


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
