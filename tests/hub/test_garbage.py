"""`hub build --clean`: files that nothing leads to are removed after a grace period."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import pytest

from hub.conftest import KINDS
from satchel.hub.garbage import collect_garbage
from satchel.hub.publish import read_draft
from satchel.hub.storage import open_storage
from satchel.store.hub_client import format as hub_format

if TYPE_CHECKING:
    from collections.abc import Callable

DAY_S = 86_400


@pytest.fixture
def clean(shell, monkeypatch) -> Callable[..., Any]:
    """Build and clean as if it were some days later; returns what was removed."""

    def run(store: str, days: int, *words: str) -> Any:
        with monkeypatch.context() as patch:
            moment = time.time() + days * DAY_S
            patch.setattr("satchel.hub.garbage.time.time", lambda: moment)
            return shell.build(store, "--clean", *words)["garbage"]

    return run


def _used(store: str) -> dict[str, bytes]:
    """All files of a hub, to compare."""
    return {
        os.path.relpath(os.path.join(folder, name), store): b""
        for folder, _, names in os.walk(store)
        for name in names
    }


@pytest.mark.parametrize("kind", KINDS)
def test_what_nothing_leads_to_goes_after_the_grace_period(
    kind, shell, make_store, write_skill, clean
):
    store = make_store(kind)
    shell.init(store, "acme")
    for version in ("1.0.0", "1.1.0", "1.2.0"):
        shell.publish(store, write_skill(version=version, text=f"Version {version}."))
        shell.build(store)
    draft = read_draft(str(write_skill("acme/orphan")), "acme")
    with open_storage(store) as storage:
        storage.put_content("blobs", draft.archive)
        assert storage.save()
    shell.publish(store, write_skill("acme/waiting"))
    orphan = hub_format.content_path("blobs", draft.change["blob"])
    first = clean(store, 0)
    assert (first["removed"], first["unused"] > 6) == ([], True)
    assert clean(store, 29)["removed"] == []
    dry = clean(store, 31, "--dry-run")
    assert orphan in dry["removed"]
    removed = clean(store, 31)["removed"]
    assert set(dry["removed"]) >= set(removed) != set()
    assert orphan in removed
    assert not any(path.startswith(("commits/", "changes/")) for path in removed)
    with open_storage(store) as storage:
        assert storage.get(orphan, hub_format.MAX_BLOB_BYTES) is None
    assert shell.check(store)["releases"] == 4
    assert shell.ok("hub", "repair", store, "--key", shell.keys["hub"])["repaired"] is False
    with open_storage(store) as storage:
        collected = collect_garbage(storage, 30, dry_run=True)
    shell.build(store, "--rebuild")
    assert shell.check(store)["problems"] == []
    assert collected.removed == ()


def test_a_publisher_who_uploads_again_is_protected(shell, store, write_skill, clean):
    """The archive was garbage for long; now its commit is about to come."""
    draft = read_draft(str(write_skill()), "acme")
    path = os.path.join(store, hub_format.content_path("blobs", draft.change["blob"]))
    with open_storage(store) as storage:
        storage.put_content("blobs", draft.archive)
    clean(store, 0)
    later = time.time() + 40 * DAY_S
    os.utime(path, (later - DAY_S, later - DAY_S))  # uploaded again a day before
    removed = clean(store, 40)["removed"]
    assert removed, "nodes of the first state"
    assert not any(name.startswith("blobs/") for name in removed)
    shell.publish(store, write_skill())
    shell.build(store)
    assert shell.check(store)["releases"] == 1
    assert os.path.exists(path)


def test_a_file_that_is_used_again_is_not_removed(shell, store, write_skill, clean):
    draft = read_draft(str(write_skill()), "acme")
    with open_storage(store) as storage:
        storage.put_content("blobs", draft.archive)
    clean(store, 0)
    shell.publish(store, write_skill())
    assert hub_format.content_path("blobs", draft.change["blob"]) not in clean(store, 90)["removed"]
    assert shell.check(store)["releases"] == 1


def test_nothing_is_removed_from_a_hub_with_a_bad_file(shell, store, write_skill, clean):
    made = shell.publish(store, write_skill())
    shell.build(store)
    clean(store, 0)
    before = set(_used(store))
    changes = os.path.join(store, "changes")
    files = [os.path.join(folder, name) for folder, _, names in os.walk(changes) for name in names]
    newest = max(files, key=os.path.getmtime)
    with open(newest, "wb") as file:
        file.write(b"junk")
    words = ["hub", "build", store, "--clean", "--key", shell.keys["hub"]]
    assert shell.run(*words)[0] == 4
    assert before <= set(_used(store))
    assert made["commit"] == 3
    shell.fails(2, "--grace", *words, "--grace", "0")
