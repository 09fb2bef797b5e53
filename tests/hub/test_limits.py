"""Writers refuse what readers would refuse, before anything is written."""

from __future__ import annotations

import errno
import os
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from hub.conftest import unchecked_draft
from satchel.errors import Changed, InvalidInput, Refused
from satchel.hub.ledger import HubLedger, open_ledger, read_state, sign_changes
from satchel.hub.publish import publish, revoke, yank
from satchel.hub.storage import open_storage
from satchel.store.hub_client import format as hub_format
from satchel.store.signing import SshKey


def _files(store: str) -> set[Path]:
    return {path for path in Path(store).rglob("*") if path.is_file()}


@pytest.mark.parametrize("reason", ["x" * 10_000_000, "x" * 1_001, "two\nlines", "\x1b[2J"])
def test_a_reason_that_readers_would_ignore_is_refused(reason, shell, store, write_skill, keys):
    shell.publish(store, write_skill())
    shell.build(store)
    before = _files(store)
    with open_storage(store) as storage:
        ledger = open_ledger(storage)
        tree = ledger.releases("acme/notes")["1.0.0"].tree
        with pytest.raises(InvalidInput, match="at most 1000 characters"):
            yank(ledger, "acme/notes", "1.0.0", reason, SshKey(keys["acme"]))
        with pytest.raises(InvalidInput, match="at most 1000 characters"):
            revoke(ledger, tree, reason, SshKey(keys["hub"]))
    assert _files(store) == before
    words = ["--because", "x" * 1_000, "--key", keys["acme"]]
    shell.ok("yank", "acme/notes@1.0.0", store, *words)
    assert shell.build(store)["ignored"] == []


def test_a_long_reason_of_another_program_is_ignored(shell, store, write_skill, keys):
    shell.publish(store, write_skill())
    row = {"type": "yank", "name": "acme/notes", "version": "1.0.0", "reason": "x" * 1_001}
    with open_storage(store) as storage:
        ledger = HubLedger(storage)
        rows = sign_changes([row], ledger.hub, SshKey(keys["acme"]))
        ledger.append(lambda: rows)
    assert [change["reason"] for change in shell.build(store)["ignored"]] == ["it is too long"]


def test_a_release_without_its_blob_is_refused(shell, store, write_skill, keys):
    draft = unchecked_draft(write_skill())
    before = _files(store)
    with open_storage(store) as storage:
        ledger = open_ledger(storage)
        with pytest.raises(Changed, match=f"has no `blobs/.*{draft.change['blob']}"):
            publish(ledger, [draft, draft._replace(archive=b"")], SshKey(keys["acme"]))
        assert _files(store) == before
        assert publish(ledger, [draft], SshKey(keys["acme"])) == 3
        assert publish(ledger, [draft._replace(archive=b"")], SshKey(keys["acme"])) == 3
    shell.build(store)
    shell.check(store)


def test_a_file_that_readers_would_refuse_is_not_written(store):
    before = _files(store)
    text = random.Random(1).randbytes(hub_format.MAX_FILE_BYTES).hex()
    with open_storage(store) as storage:
        ledger = HubLedger(storage)
        with pytest.raises(Refused, match=f"at most {hub_format.MAX_FILE_BYTES} are read"):
            ledger.append(lambda: [{"type": "revoke", "reason": text}])
        rows = [{"reason": "x" * hub_format.MAX_UNPACKED_BYTES}]
        with pytest.raises(Refused, match=f"at most {hub_format.MAX_UNPACKED_BYTES} are read"):
            storage.put_rows("revoked", rows)
    assert _files(store) == before


@pytest.mark.parametrize(("days", "words"), [(3, "Check the clock"), (-9, "7 days at most")])
def test_a_clock_that_is_wrong_is_named(days, words, shell, store, keys):
    key = SshKey(keys["hub"])
    with open_storage(store) as storage:
        state = read_state(storage)
        assert state is not None
        moment = datetime.now(UTC) + timedelta(days)
        state = state._replace(time=hub_format.timestamp(moment))
        data = hub_format.render_state(state, lambda text, space: key.sign([text], space)[0])
        storage.put("state", data)
    assert shell.run("hub", "check", store)[0] == 1
    assert shell.run("hub", "add", store, "--yes")[0] == 4
    assert words in shell.err


def test_a_full_disk_is_named(shell, store, monkeypatch, keys):
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("satchel.hub.storage.write_atomic", full)
    shell.fails(4, "No space left on device", "hub", "build", store, "--key", keys["hub"])
    assert "the space on its disk" in shell.err
    assert "credentials" not in shell.err
