"""`hub repair`: a bad end of the history is set aside, and the hub goes on."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from satchel import Satchel
from satchel.errors import Changed, NotFound
from satchel.hub.storage import open_storage
from satchel.store.hub_client import format as hub_format
from sizes import sample

if TYPE_CHECKING:
    from collections.abc import Callable

BAD = {"missing": None, "empty": b"", "junk": b"[" * 2_000, "large": b" " * 5_000}
LAST = 7
PLACES = list(product(range(1, LAST + 1), ("commits", "changes"), BAD))


@pytest.fixture
def install(tmp_path, shell, monkeypatch) -> Callable[..., Any]:
    """Install a skill of the hub in a project of an own user; returns the notes of the plan."""

    def run(hub: str, user: str, skill: str = "acme/notes") -> tuple[str, ...]:
        monkeypatch.setenv("SATCHEL_HOME", str(tmp_path / user))
        project = tmp_path / f"{user}-project"
        project.mkdir(exist_ok=True)
        public = Path(shell.keys["hub"] + ".pub").read_text()
        hubs = {"skills.acme.example": {"url": hub, "key": public}}
        store = Satchel.for_project(project, builtin=False, trust="ask", hubs=hubs).store()
        with store.plan_import(skill) as plan:
            store.require_complete(plan)
            store.apply(plan)
            return tuple(plan.steps[0].notes)

    return run


@pytest.fixture
def hub(shell, store, write_skill) -> str:
    """A hub with seven commits: hub, publisher, two releases, a revocation, one more release.

    The last build has read the first five.
    """
    shell.publish(store, write_skill())
    shell.publish(store, write_skill("acme/bad"))
    words = ["acme/bad@1.0.0", "--because", "sends files away", "--key", shell.keys["hub"]]
    shell.ok("hub", "revoke", store, *words)
    shell.build(store)
    shell.publish(store, write_skill("acme/plan"))
    shell.publish(store, write_skill("acme/more"))
    return store


def _paths(hub: str, number: int) -> dict[str, Path]:
    commit = Path(hub, hub_format.commit_path(number))
    changes = json.loads(commit.read_bytes())["changes"]
    return {"commits": commit, "changes": Path(hub, hub_format.content_path("changes", changes))}


def _spoil(path: Path, data: bytes | None) -> None:
    path.unlink()
    if data is not None:
        path.write_bytes(data)


@pytest.mark.parametrize(("number", "folder", "bad"), sample(PLACES, 3))
def test_a_bad_file_of_every_kind_at_every_place(
    number, folder, bad, hub, shell, write_skill, install
):
    install(hub, "old")
    path = _paths(hub, number)[folder]
    data = path.read_bytes()
    _spoil(path, BAD[bad])
    is_end = number == LAST and (folder, bad) == ("commits", "missing")
    report = shell.ok("hub", "repair", hub, "--key", shell.keys["hub"])
    assert report["repaired"] is not is_end
    assert report["lost"] == []
    state = shell.build(hub)["state"]
    lost = {6: "acme/plan", 7: "acme/more"}.get(number)
    assert shell.check(hub)["releases"] == (4 if lost is None else 3)
    assert (state["repairs"], state["skills"]) == (0 if is_end else 1, 3 if lost else 4)
    if folder == "commits" and bad != "missing":
        (aside,) = Path(hub, "set-aside").rglob(f"*-{hub_format.digest_hex(BAD[bad])}")
        assert aside.read_bytes() == BAD[bad] != data
    assert install(hub, "old", "acme/notes")
    assert install(hub, "new", "acme/notes")
    with pytest.raises(Changed, match="was revoked"):
        install(hub, "old", "acme/bad")
    if lost:
        shell.publish(hub, write_skill(lost))
        shell.build(hub)
        install(hub, "old", lost)
    assert shell.ok("hub", "repair", hub, "--key", shell.keys["hub"])["repaired"] is False


def test_a_lost_yank_is_named_and_its_publisher_signs_it_again(hub, shell, install, tmp_path):
    """The index has the reason of a yank, but no signature, and the hub cannot give one."""
    words = ["yank", "acme/notes@1.0.0", hub, "--because", "it doesn't work"]
    number = shell.ok(*words, "--key", shell.keys["acme"])["commit"]
    shell.build(hub)
    _spoil(_paths(hub, number)["changes"], b"junk")
    repair = ["hub", "repair", hub, "--key", shell.keys["hub"]]
    shutil.copytree(hub, tmp_path / "copy")
    status, out = shell.run("hub", "repair", str(tmp_path / "copy"), *repair[3:], "--json")
    assert status == 1
    assert json.loads(out)["lost_yanks"] == {"acme/notes@1.0.0": "it doesn't work"}
    assert shell.run(*repair)[0] == 1
    assert "Offered again: acme/notes@1.0.0, which its publisher must withdraw" in shell.err
    assert install(hub, "meanwhile"), "the release is offered"
    (command,) = re.findall("`(satchel yank .*)`", shell.err)
    assert shlex.split(command)[1:] == words
    shell.ok(*shlex.split(command)[1:], "--key", shell.keys["acme"])
    shell.build(hub)
    assert shell.check(hub)["ignored"] == []
    with pytest.raises(NotFound, match="was withdrawn by its publisher: it doesn't work"):
        install(hub, "later")


def test_a_reader_is_told_of_a_repair_and_refuses_one_without_the_record(
    hub, shell, install, tmp_path
):
    install(hub, "old")
    path = _paths(hub, 5)["commits"]
    path.write_bytes(path.read_bytes().replace(b"Z", b"z"))
    shell.fails(4, "satchel hub repair", "hub", "build", hub, "--key", shell.keys["hub"])
    shell.fails(4, "not the key", "hub", "repair", hub, "--key", shell.keys["mallory"])
    shell.ok("hub", "repair", hub, "--key", shell.keys["hub"])
    told = "replaced commits that could not be read"
    assert any(told in note for note in install(hub, "old"))
    assert not any(told in note for note in install(hub, "old"))
    before = Path(hub, "state").read_bytes()
    shell.build(hub)
    path.write_bytes(path.read_bytes().replace(b"Z", b"z"))
    shell.ok("hub", "repair", hub, "--key", shell.keys["hub"])
    assert any(told in note for note in install(hub, "old"))
    Path(hub, "state").write_bytes(before)
    with pytest.raises(Changed):
        install(hub, "old")


@pytest.mark.parametrize("kind", ["s3", "git"])
def test_other_storage_is_repaired_too(kind, shell, make_store, write_skill):
    store = make_store(kind)
    shell.init(store, "acme")
    shell.publish(store, write_skill())
    shell.build(store)
    with open_storage(store) as storage:
        storage.put(hub_format.commit_path(3), b"junk")
        assert storage.save()
    shell.ok("hub", "repair", store, "--key", shell.keys["hub"])
    assert shell.check(store)["releases"] == 1
