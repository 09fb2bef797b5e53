"""The command `hub add`: use a hub."""

from __future__ import annotations

import json
import os
import tomllib
from typing import TYPE_CHECKING

import click

from satchel._fs import read_plain, write_atomic
from satchel.cli.commands.publish import read_public_key
from satchel.cli.console import one_line, write_json
from satchel.cli.context import command, confirm_change, short_path
from satchel.cli.options import yes_option
from satchel.cli.plan_prompt import scope_option
from satchel.errors import Changed, Conflict, InvalidInput, Refused, SettingsError
from satchel.i18n import say
from satchel.settings import find_paths
from satchel.store.disk_errors import disk_errors_as_refusal
from satchel.store.hub_client.release_name import HUB_NAME
from satchel.store.signing import key_fingerprint, plain_key

if TYPE_CHECKING:
    from satchel.cli.context import CliContext
    from satchel.store.hub_client.format import HubState

_MAX_FILE_BYTES = 256 << 10


@command(
    say("Use a hub: pin its key in the settings.")
    + "\n\n"
    + say("Compare the fingerprint with the one that the hub's keeper published."),
    "satchel hub add https://skills.example.com",
    "satchel hub add https://skills.example.com --key SHA256:… --scope user",
    name="add",
)
@click.argument("url", metavar="URL")
@click.option(
    "--key", default="", metavar="KEY", help=say("The hub's key, its file, or its fingerprint.")
)
@scope_option
@yes_option()
def add(context: CliContext, url: str, key: str, scope: str, yes: bool, as_json: bool) -> int:
    from satchel.store.download import is_address
    from satchel.store.hub_client.client import Hub, HubClient
    from satchel.store.hub_client.hubs import hub_address

    address = hub_address(url, os.getcwd())
    state = HubClient(Hub("", address, "")).state()
    _require_key(state, key)
    fingerprint = key_fingerprint(state.key)
    row = {"name": state.hub, "url": address, "key": state.key, "fingerprint": fingerprint}
    err = context.err
    if not as_json:
        err.line(f"{one_line(state.hub)}  {address}")
        err.line(say("Key: {key}", key=fingerprint))
    if not yes and not key and not confirm_change(context, say("Continue?"), as_json=as_json):
        err.line(say("Nothing was changed"))
        return 0
    file = _settings_file(context, scope)
    if scope == "project" and not is_address(address) and not os.path.isabs(url):
        address = os.path.relpath(address, os.path.dirname(file))
    written = _add_table(file, state, address)
    if as_json:
        write_json({**row, "file": file, "added": written})
    elif written:
        err.line(
            say("Added: {names}", names=f"`{state.hub}` ({one_line(short_path(file))})"), "green"
        )
    else:
        err.line(say("Nothing to do"))
    return 0


def _settings_file(context: CliContext, scope: str) -> str:
    if scope == "user":
        return find_paths(os.environ).config
    return os.path.join(os.path.abspath(context.project), "satchel.toml")


def _require_key(state: HubState, key: str) -> None:
    """Refuse another key than the one that the user expects."""
    if not HUB_NAME.match(state.hub):
        raise InvalidInput(say("`{name}` is not valid", name=one_line(state.hub)))
    found = key_fingerprint(state.key)
    expected = key or found
    if not expected.startswith("SHA256:"):
        expected = key_fingerprint(read_public_key(key))
    if found != expected:
        raise Changed(
            say("The hub `{name}` has the key {key}, not {expected}",
                name=state.hub, key=found, expected=one_line(expected)),
            say("Do not use it; ask its keeper"),
        )  # fmt: skip


def _add_table(file: str, state: HubState, address: str) -> bool:
    """Append the table of a hub to a settings file; False when it is there already."""
    row = {"url": address, "key": plain_key(state.key)}
    lines = "".join(
        f"{key} = {json.dumps(text, ensure_ascii=False)}\n" for key, text in row.items()
    )
    try:
        old = read_plain(file, _MAX_FILE_BYTES).decode() if os.path.lexists(file) else ""
        table = tomllib.loads(old).get("hubs", {})
        known = table.get(state.hub)
        same = known is not None and {**known, **row} == known
        if known is None:
            gap = "" if not old else "\n" if old.endswith("\n") else "\n\n"
            new = f'{old}{gap}[hubs."{state.hub}"]\n{lines}'
            tomllib.loads(new)  # an inline table cannot be extended
            os.makedirs(os.path.dirname(file), exist_ok=True)
            with disk_errors_as_refusal(file):
                write_atomic(file, new.encode())
            return True
    except (ValueError, AttributeError, TypeError) as exc:
        raise SettingsError(
            say("`{path}` cannot be used: {reason}", path=file, reason=exc), say("Correct it")
        ) from exc
    except OSError as exc:
        raise Refused(
            say("`{path}` cannot be used: {reason}", path=file, reason=exc.strerror or exc),
            say("Check the permissions"),
        ) from exc
    if not same:
        raise Conflict(
            say("`{path}` has another address or key for the hub `{name}`",
                path=short_path(file), name=state.hub),
            say("Change it by hand"),
        )  # fmt: skip
    return False
