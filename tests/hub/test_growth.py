"""What a release reads and writes does not depend on the number of skills."""

from __future__ import annotations

import random
from base64 import b64encode
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hub.conftest import write_skill_at
from satchel.hub import ledger as ledgers
from satchel.hub.build import build, write_files
from satchel.hub.ledger import HubLedger, batches, open_ledger
from satchel.hub.publish import publish, read_draft, revoke
from satchel.hub.storage import Storage, open_storage
from satchel.store.hub_client import format as hub_format
from satchel.store.signing import SshKey

if TYPE_CHECKING:
    from collections.abc import Callable


class _Counting(Storage):
    """Counts what a storage reads and writes."""

    def __init__(self, inner: Storage) -> None:
        super().__init__(inner.name)
        self._inner = inner
        self.read: list[str] = []
        self.written: list[str] = []

    def get(self, path: str, limit: int) -> bytes | None:
        self.read.append(path)
        return self._inner.get(path, limit)

    def put(self, path: str, data: bytes) -> None:
        self.written.append(path)
        self._inner.put(path, data)

    def create(self, path: str, data: bytes) -> bool:
        self.written.append(path)
        return self._inner.create(path, data)


@pytest.fixture
def add_skills(store, keys, monkeypatch) -> Callable[[int], None]:
    """Add skills of `acme` to the hub, without archives and signatures."""

    def add(count: int) -> None:
        chance = random.Random(count)
        changes = [
            {"type": "release", "name": f"acme/skill-{number}", "version": "1.0.0",
             "tree": f"sha256:{chance.randbytes(32).hex()}", "blob": chance.randbytes(32).hex(),
             "size": 1_000, "signature": b64encode(chance.randbytes(64)).decode()}
            for number in range(count)
        ]  # fmt: skip
        key = SshKey(keys["hub"])
        with open_storage(store, durable=False) as storage, monkeypatch.context() as patch:
            patch.setattr(ledgers, "signed_by", lambda *_: True)
            ledger = HubLedger(storage, inspect=lambda _: {"description": "It is one of many."})
            for batch in batches(changes):
                ledger.append(lambda batch=batch: batch)
            state = write_files(storage, ledger)
            data = hub_format.render_state(state, lambda text, space: key.sign([text], space)[0])
            storage.put("state", data)

    return add


@pytest.fixture
def measure(store, keys, tmp_path) -> Callable[[], list[int]]:
    """Publish a skill, then revoke it; returns the numbers of files read and written for both."""

    def run() -> list[int]:
        folder = write_skill_at(tmp_path / "measured", "1.0.0")
        counts: list[int] = []
        with open_storage(store, durable=False) as inner:
            for step in ("release", "revocation"):
                storage = _Counting(inner)
                ledger = open_ledger(storage)
                if step == "release":
                    publish(ledger, [read_draft(str(folder), "acme")], SshKey(keys["acme"]))
                else:
                    tree = ledger.releases("acme/measured")["1.0.0"].tree
                    revoke(ledger, tree, "sends files away", SshKey(keys["hub"]))
                    names = [release.name for release in ledger.releases_of(tree)]
                    assert names == ["acme/measured"]
                build(storage, SshKey(keys["hub"]), pages=True)
                counts += [len(storage.read), len(storage.written)]
        return counts

    return run


@pytest.mark.parametrize("count", [90, 6_000])
def test_a_release_and_a_revocation_read_and_write_few_files(count, add_skills, measure, store):
    add_skills(count)
    counts = measure()
    assert all(number <= limit for number, limit in zip(counts, (70, 30, 60, 30), strict=True)), (
        counts
    )
    first_page = Path(store, "index.html").read_text()
    assert first_page.count('<th scope="row">') == min(count, 200)


def test_a_revoked_skill_is_not_listed(add_skills, measure, shell, store):
    add_skills(250)
    measure()
    state = shell.build(store)["state"]
    with open_storage(store) as storage:
        rows = [row for part in storage.listed(state["search"]) for row in part]
    assert len(rows) == 250


def test_a_hub_of_an_older_version_says_what_its_keeper_must_do(shell, store, keys, write_skill):
    shell.publish(store, write_skill())
    shell.build(store)
    state = Path(store, "state")
    state.write_bytes(state.read_bytes().replace(b'"format":2', b'"format":1'))
    for words in (["hub", "check", store], ["hub", "add", store, "--yes"]):
        shell.fails(4, "The hub has the format 1, not 2", *words)
        assert "satchel hub build --rebuild" in shell.err
    shell.fails(4, "the format 1, not 2", "hub", "build", store, "--key", keys["hub"])
    shell.publish(store, write_skill("acme/plan"))
    shell.build(store, "--rebuild")
    assert shell.check(store)["releases"] == 2
