"""The commands `hub add` and `hub reset`: use a hub, and use it again after it lost commits."""

from __future__ import annotations

import json
import os
import tomllib
from typing import TYPE_CHECKING

import click

from satchel._fs import read_plain, write_atomic
from satchel.cli.commands.publish import read_public_key
from satchel.cli.console import one_line, write_json
from satchel.cli.context import command, confirm_change, no_such, short_path
from satchel.cli.options import yes_option
from satchel.cli.plan_prompt import open_store, scope_option
from satchel.errors import Changed, Conflict, InvalidInput, Refused, SettingsError
from satchel.i18n import say
from satchel.settings import find_paths
from satchel.store.disk_errors import disk_errors_as_refusal
from satchel.store.hub_client.versions import HUB_NAME
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
    _require_hub(state, key)
    fingerprint = key_fingerprint(state.key)
    hub_record = {"name": state.hub, "url": address, "key": state.key, "fingerprint": fingerprint}
    err = context.err
    if not as_json:
        err.line(f"{one_line(state.hub)}  {address}")
        err.line(say("Key: {key}", key=fingerprint))
    if not yes and not key and not confirm_change(context, say("Continue?"), as_json=as_json):
        err.line(say("Nothing was changed"))
        return 0
    file = _settings_file(context, scope)
    stored_address = address
    if scope == "project" and not is_address(address) and not os.path.isabs(url):
        stored_address = os.path.relpath(address, os.path.dirname(file))
    is_added = _add_table(file, state, stored_address)
    if as_json:
        write_json({**hub_record, "file": file, "added": is_added})
    elif is_added:
        err.line(
            say("Added: {names}", names=f"`{state.hub}` ({one_line(short_path(file))})"), "green"
        )
    else:
        err.line(say("Nothing to do"))
    return 0


@command(
    say("Forget which commits of a hub were seen, after its keeper restored a backup."),
    "satchel hub reset skills.acme.example",
)
@click.argument("name", metavar="NAME")
@scope_option
@yes_option()
def reset(context: CliContext, name: str, scope: str, yes: bool, as_json: bool) -> int:
    from satchel.store.hub_client.client import HubClient
    from satchel.store.hub_client.hubs import Hubs

    client = next((c for c in Hubs.of(context.satchel.settings).clients if c.name == name), None)
    if client is None:
        raise no_such(say("hub"), name, command="satchel config list")
    store = open_store(context, scope)
    state = HubClient(client.hub).state()  # without what was seen
    count = max(client.read_seen().count, store.hub_count(name))
    try:
        client.state(count)
        is_needed = False
    except Changed as exc:
        is_needed = True
        if not as_json:
            context.err.line(exc.message)
            context.err.line(
                say("A reset gives up: releases, new keys and revocations of the missing commits "
                    "stay unknown until the keeper signs them again, and an attacker who has the "
                    "hub's key could hide them. Reset only if the keeper announced it.")
            )  # fmt: skip
        if not yes and not confirm_change(context, say("Continue?"), as_json=as_json):
            context.err.line(say("Nothing was changed"))
            return 0
        client.forget_seen()
        store.lower_hub_count(name, state.count)
        client.state()
    if as_json:
        write_json({"name": name, "seen": count, "count": state.count, "reset": is_needed})
    elif is_needed:
        text = say("The hub `{name}` has {count} commits", name=name, count=state.count)
        context.err.line(text, "green")
    else:
        context.err.line(say("Nothing to do"))
    return 0


def _settings_file(context: CliContext, scope: str) -> str:
    if scope == "user":
        return find_paths(os.environ).config
    return os.path.join(os.path.abspath(context.project), "satchel.toml")


def _require_hub(state: HubState, key: str) -> None:
    """Refuse an invalid name, and another key than the one that the user expects."""
    if not HUB_NAME.match(state.hub):
        raise InvalidInput(say("`{name}` is not valid", name=one_line(state.hub)))
    fingerprint = key_fingerprint(state.key)
    expected = key or fingerprint
    if not expected.startswith("SHA256:"):
        expected = key_fingerprint(read_public_key(key))
    if fingerprint != expected:
        raise Changed(
            say("The hub `{name}` has the key {key}, not {expected}",
                name=state.hub, key=fingerprint, expected=one_line(expected)),
            say("Do not use it; ask its keeper"),
        )  # fmt: skip


def _add_table(file: str, state: HubState, address: str) -> bool:
    """Append the table of a hub to a settings file; False when it is there already."""
    hub_settings = {"url": address, "key": plain_key(state.key)}
    lines = "".join(
        f"{key} = {json.dumps(text, ensure_ascii=False)}\n" for key, text in hub_settings.items()
    )
    try:
        old_text = read_plain(file, _MAX_FILE_BYTES).decode() if os.path.lexists(file) else ""
        hubs = tomllib.loads(old_text).get("hubs", {})
        existing = hubs.get(state.hub)
        is_same_hub = existing is not None and {**existing, **hub_settings} == existing
        if existing is None:
            separator = ""
            if old_text:
                separator = "\n" if old_text.endswith("\n") else "\n\n"
            new_text = f'{old_text}{separator}[hubs."{state.hub}"]\n{lines}'
            tomllib.loads(new_text)  # an inline table cannot be extended
            os.makedirs(os.path.dirname(file), exist_ok=True)
            with disk_errors_as_refusal(file):
                write_atomic(file, new_text.encode())
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
    if not is_same_hub:
        raise Conflict(
            say("`{path}` has another address or key for the hub `{name}`",
                path=short_path(file), name=state.hub),
            say("Change it by hand"),
        )  # fmt: skip
    return False
