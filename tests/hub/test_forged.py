"""Changes by writers who have access to the storage but not the keys."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from hub.conftest import NAME
from satchel.hub.build import write_files
from satchel.hub.ledger import HubLedger, read_state, sign_changes
from satchel.hub.publish import read_draft
from satchel.hub.storage import open_storage
from satchel.store.hub_client import format as files
from satchel.store.signing import SshKey

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from satchel.hub.publish import Draft


@pytest.fixture
def hub(shell, store, write_skill) -> str:
    """A hub with one release, `acme/notes@1.0.0`."""
    shell.publish(store, write_skill())
    shell.build(store)
    return store


@pytest.fixture
def force(hub: str, keys: dict[str, str]) -> Callable[..., list[files.Row]]:
    """Append changes to the hub without any check; returns them signed."""

    def append(key: str, *rows: files.Row, hub_name: str = NAME) -> list[files.Row]:
        with open_storage(hub) as storage:
            signed = sign_changes(rows, hub_name, SshKey(keys[key])) if key else list(rows)
            HubLedger(storage).append(lambda: signed)
        return signed

    return append


def _draft(hub: str, folder: Path) -> Draft:
    draft = read_draft(str(folder), "acme")
    with open_storage(hub) as storage:
        storage.put_content("blobs", draft.archive)
    return draft


def _assert_ignored(shell: Any, hub: str, before: Any, *reasons: str) -> None:
    """A build changes nothing but the count, and build and check name the reasons."""
    report = shell.build(hub)
    for key in ("index", "search", "revoked"):
        assert report["state"][key] == before[key]
    for found in (report, shell.check(hub)):
        assert [one["reason"] for one in found["ignored"]] == list(reasons)


def test_releases_without_the_right(shell, hub, force, write_skill, keys):
    before = shell.check(hub)["state"]
    change = _draft(hub, write_skill(version="2.0.0", text="Forged.")).change
    force("mallory", change)
    force("hub", change)  # the hub's key does not sign for publishers
    force("acme", change, hub_name="another.example")
    force("", {**change, "signature": "AAAA"})
    (signed,) = force("acme", {**change, "version": "3.0.0"}, hub_name="another.example")
    force("", {**signed, "version": "4.0.0"})
    _assert_ignored(shell, hub, before, *["invalid signature"] * 6)


def test_a_second_tree_for_one_version(shell, hub, force, write_skill):
    before = shell.check(hub)["state"]
    force("acme", _draft(hub, write_skill(text="Other words.")).change)
    _assert_ignored(shell, hub, before, "`acme/notes@1.0.0` exists already")


def test_the_same_release_again_is_no_second_one(shell, hub, force, write_skill):
    before = shell.check(hub)["state"]
    force("acme", _draft(hub, write_skill()).change)
    _assert_ignored(shell, hub, before)
    assert shell.check(hub)["releases"] == 1


def test_revocations_and_keys_of_others(shell, hub, force, keys):
    before = shell.check(hub)["state"]
    with open_storage(hub) as storage:
        tree = HubLedger(storage).releases("acme/notes")["1.0.0"].tree
    revoke = {"type": "revoke", "tree": tree, "reason": "x"}
    force("acme", revoke)
    publics = {name: SshKey(path).public for name, path in keys.items()}
    row = {"type": "publisher", "publisher": "acme", "previous": publics["acme"]}
    force("mallory", {**row, "key": publics["mallory"]})
    force("mallory", {**row, "key": publics["mallory"], "publisher": "new", "previous": ""})
    force("mallory", {"type": "hub", "hub": NAME, "key": publics["mallory"]})
    _assert_ignored(
        shell, hub, before, *["invalid signature"] * 3, f"`{NAME}` exists already"
    )  # fmt: skip


def test_an_old_key_does_not_come_back(shell, hub, force, write_skill, keys):
    shell.allow(hub, "acme", "acme2", by="acme")
    before = shell.build(hub)["state"]
    old, new = (SshKey(keys[name]).public for name in ("acme", "acme2"))
    row = {"type": "publisher", "publisher": "acme", "key": old, "previous": new}
    force("acme2", row)
    force("acme", _draft(hub, write_skill(version="2.0.0")).change)
    _assert_ignored(shell, hub, before, "`acme` exists already", "invalid signature")


def test_a_blob_with_other_files(shell, hub, force, write_skill, make_store):
    draft = _draft(hub, write_skill(version="2.0.0", text="Good."))
    other = _draft(hub, write_skill(version="2.0.0", text="Evil."))
    blob = {key: other.change[key] for key in ("blob", "size")}
    force("acme", draft.change | blob)
    force("acme", draft.change | {"blob": "0" * 64})
    report = shell.build(hub)
    assert ["blobs/" in one["reason"] for one in report["ignored"]] == [True, True]
    assert shell.check(hub)["releases"] == 2
    shell.ok("hub", "mirror", hub, make_store("folder"))
    swapped = _draft(hub, write_skill(version="2.0.0", text="Swapped."))
    force("acme", swapped.change)  # the version is taken, although its blob cannot be read
    assert "exists already" in shell.build(hub)["ignored"][0]["reason"]
    shell.publish(hub, write_skill(version="2.0.0", text="Good."))  # brings the right blob
    assert shell.build(hub)["ignored"] == []
    assert shell.check(hub)["releases"] == 2


@pytest.mark.parametrize(
    "row",
    [
        {"type": "release"},
        {"type": "party", "name": "x"},
        {"type": ["release"], "name": {}},
        {"type": "release", "name": "acme/../x", "version": "1.0.0", "tree": "sha256:" + "0" * 64,
         "blob": "../../../etc/passwd", "size": 1},
        {"type": "release", "name": "acme/x", "version": "1.0.0", "tree": "sha256:" + "0" * 64,
         "blob": "0" * 64, "size": 10**12},
        {"type": "yank", "name": 3, "version": None, "reason": ""},
        {"type": "revoke", "tree": 7},
        {"type": "publisher", "publisher": "../x", "key": "k", "previous": ""},
    ],
)  # fmt: skip
def test_invalid_requests_are_refused(row, shell, hub, force):
    before = shell.check(hub)["state"]
    force("", row)
    report = shell.build(hub)
    assert len(report["ignored"]) == 1
    assert report["state"]["index"] == before["index"]


@pytest.mark.parametrize("change", ["flip", "previous", "skip", "number", "junk", "changes"])
def test_a_damaged_chain_is_refused(change, shell, hub, keys, write_skill):
    path = os.path.join(hub, "commits", "000000000003")
    with open(path, "rb") as stream:
        data = stream.read()
    row = json.loads(data)
    values = {"previous": "0" * 64, "skip": "0" * 64, "number": 4, "changes": "0" * 64}
    text = {"flip": data.replace(b"Z", b"z"), "junk": b"[" * 2000}.get(change) or files.render_row(
        {**row, change: values[change]}
    )
    with open(path, "wb") as stream:
        stream.write(text)
    status, _ = shell.run("hub", "check", hub)
    assert status in {1, 4}
    assert "hub" in shell.err
    shell.fails(4, "was rewritten", "hub", "build", hub, "--key", keys["hub"])
    words = [str(write_skill(version="1.1.0")), hub, "--as", "acme", "--key", keys["acme"]]
    shell.fails(4, "was rewritten", "publish", *words)


def test_a_forged_state_is_not_the_beginning_of_a_build(shell, hub, keys):
    """Index and state of an attacker are thrown away; the commits decide."""
    good = shell.check(hub)["state"]
    mallory = SshKey(keys["mallory"])
    with open_storage(hub) as storage:
        state = read_state(storage)
        assert state is not None
        forged = state._replace(key=mallory.public, skills=1000, index="0" * 64)
        text = files.render_state(forged, lambda text, name: mallory.sign([text], name)[0])
        storage.put("state", text)
    public = keys["hub"] + ".pub"
    shell.fails(4, "was not signed with its key", "hub", "check", hub, "--key", public)
    shell.fails(4, "--rebuild", "hub", "build", hub, "--key", keys["hub"])
    assert shell.build(hub, "--rebuild")["state"]["index"] == good["index"]
    shell.check(hub)


def test_a_check_finds_files_that_do_not_follow_from_the_commits(shell, hub, keys):
    """Even the hub's own key cannot add to the index what no publisher signed."""
    key = SshKey(keys["hub"])
    with open_storage(hub) as storage:
        ledger = HubLedger(storage, read_state(storage))
        releases = ledger.releases("acme/notes")
        forged = {"tree": "sha256:" + "0" * 64, "yanked": "hidden"}
        releases["1.0.0"] = releases["1.0.0"]._replace(**forged)
        ledger.touched.add("acme/notes")
        ledger.skills = 2
        made = write_files(storage, ledger)
        text = files.render_state(made, lambda text, name: key.sign([text], name)[0])
        storage.put("state", text)
    status, out = shell.run("hub", "check", hub, "--json")
    assert status == 1
    problems = json.loads(out)["problems"]
    assert [name in " ".join(problems) for name in ("state", "acme/notes", "search/")] == [True] * 3
