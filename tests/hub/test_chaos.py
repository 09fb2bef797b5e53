"""Eight processes at once, half of them killed: nothing acknowledged is lost, nothing is twice."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from hub.conftest import HARMFUL, KINDS, unchecked_draft
from satchel.hub.build import build
from satchel.hub.ledger import HubLedger, open_ledger
from satchel.hub.publish import publish
from satchel.hub.storage import Storage, open_storage
from satchel.store.hub_client import format as files
from satchel.store.signing import SshKey
from sizes import sized

if TYPE_CHECKING:
    from pathlib import Path

HERE = os.path.dirname(os.path.abspath(__file__))
PROCESSES = 8
KILLED = 4
ROUNDS = sized(2, 20)
LONGEST_S = {"folder": 1.0, "s3": 2.0, "git": 4.0}
"""The latest kill, after the start."""


def _round(store: str, kind: str, number: int, keys: dict[str, str], folder: Path) -> set[str]:
    """One round; returns the acknowledged releases with their trees."""
    folder.mkdir()
    (folder / "tmp").mkdir()
    start = str(folder / "start")
    source = os.path.join(os.path.dirname(os.path.dirname(HERE)), "src")
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((source, os.path.dirname(HERE))),
        "TMPDIR": str(folder / "tmp"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    chance = random.Random(f"{kind} {number}")
    running: list[subprocess.Popen[bytes]] = []
    for at in range(PROCESSES):
        name = "build" if at == 0 else f"r{number}p{at}"
        key = keys["hub"] if at == 0 else keys["acme"]
        words = [sys.executable, os.path.join(HERE, "chaos_worker.py"), store, key, name]
        with open(folder / f"{at}.out", "wb") as out, open(folder / f"{at}.err", "wb") as err:
            running.append(subprocess.Popen([*words, "3", start], env=env, stdout=out, stderr=err))
    end = time.monotonic() + 120
    while any(b"ready" not in (folder / f"{at}.out").read_bytes() for at in range(PROCESSES)):
        assert time.monotonic() < end, [(folder / f"{at}.err").read_text() for at in range(8)]
        time.sleep(0.02)
    (folder / "start").touch()
    began = time.monotonic()
    moments = sorted(chance.uniform(0, LONGEST_S[kind]) for _ in range(KILLED))
    for moment, one in zip(moments, chance.sample(running, KILLED), strict=True):
        time.sleep(max(0.0, began + moment - time.monotonic()))
        one.send_signal(signal.SIGKILL)
    for at, one in enumerate(running):
        status = one.wait(180)
        assert status in {0, -signal.SIGKILL}, (folder / f"{at}.err").read_text()
    acknowledged: set[str] = set()
    for at in range(PROCESSES):
        text = (folder / f"{at}.out").read_text()
        acknowledged.update(text[: text.rfind("\n") + 1].splitlines()[1:])
    return acknowledged


def _written(store: str) -> Counter[str]:
    """Every accepted release with its tree, and how often it is in the commits."""
    with open_storage(store) as storage:
        ledger = HubLedger(storage)
        accepted = {f"{one.name}@{one.version} {one.tree}" for one in ledger.load_all()}
        seen: Counter[str] = Counter()
        for number in range(1, ledger.count + 1):
            data = storage.get(files.commit_path(number), files.MAX_COMMIT_BYTES) or b""
            for row in storage.rows("changes", files.parse_commit(data, number).changes):
                if row["type"] == "release":
                    seen[f"{row['name']}@{row['version']} {row['tree']}"] += 1
        assert not ledger.ignored
        assert set(seen) == accepted
        return seen


@pytest.mark.timeout(sized(180, 1800))
@pytest.mark.parametrize("kind", KINDS)
def test_every_acknowledged_release_is_there_once(kind, shell, make_store, keys, tmp_path: Path):
    store = make_store(kind)
    shell.init(store, "acme")
    acknowledged: set[str] = set()
    written: Counter[str] = Counter()
    for number in range(ROUNDS):
        acknowledged |= _round(store, kind, number, keys, tmp_path / str(number))
        written = _written(store)
        assert acknowledged <= set(written)
        assert set(written.values()) <= {1}
    assert acknowledged
    state = shell.build(store)["state"]
    report = shell.check(store)
    assert (report["releases"], report["waiting"]) == (len(written), 0)
    assert report["state"]["count"] == state["count"]


class _Dying(Storage):
    """A folder that stops working after some number of writes."""

    def __init__(self, inner: Storage, writes: int) -> None:
        super().__init__(inner.name)
        self._inner = inner
        self.left = writes

    def _write(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt

    def get(self, path: str, limit: int) -> bytes | None:
        return self._inner.get(path, limit)

    def put(self, path: str, data: bytes) -> None:
        self._write()
        self._inner.put(path, data)

    def create(self, path: str, data: bytes) -> bool:
        self._write()
        return self._inner.create(path, data)


def test_a_build_that_was_killed_anywhere_can_be_run_again(shell, store, write_skill, keys):
    """With new releases, a yank, and a release that the scan blocks."""
    shell.publish(store, write_skill("acme/old"))
    shell.build(store)
    draft = unchecked_draft(write_skill("acme/bad", program=HARMFUL))
    with open_storage(store) as storage:
        publish(open_ledger(storage), [draft], SshKey(keys["acme"]))
    for number in range(3):
        shell.publish(store, write_skill(f"acme/new-{number}"))
    words = ["--because", "wrong", "--key", keys["acme"]]
    shell.ok("yank", "acme/old@1.0.0", store, *words)
    before = shell.check(store)["state"]
    writes = 0
    with open_storage(store) as storage:
        while True:
            dying = _Dying(storage, writes)
            try:
                made = build(dying, SshKey(keys["hub"]), pages=True).state
                break
            except KeyboardInterrupt:
                writes += 1
            # Only the last write replaces the state.
            assert shell.check(store)["state"] == before
    assert writes > 5
    assert made is not None
    for name in ("state", "index", "search", "revoked"):
        subprocess.run(["rm", "-r", os.path.join(store, name)], check=True)
    with open_storage(store) as storage:
        again = build(storage, SshKey(keys["hub"]), rebuild=True).state
    assert again is not None
    assert again._replace(time="") == made._replace(time="")
    assert shell.check(store)["releases"] == 5


def test_a_slow_build_does_not_replace_a_longer_state(shell, store, write_skill, keys):
    class Overtaken(_Dying):
        """Another process publishes and builds just before `state` is written."""

        reads = 0

        def get(self, path: str, limit: int) -> bytes | None:
            self.reads += path == "state"
            if path == "state" and self.reads == 2:
                shell.publish(store, write_skill())
                assert shell.build(store)["state"]["count"] == 3
            return super().get(path, limit)

    with open_storage(store) as storage:
        made = build(Overtaken(storage, 1000), SshKey(keys["hub"])).state
    assert made is not None
    assert made.count == 3
    shell.check(store)
