"""A restored backup, and new keys of a hub and of a publisher, with an old and a new reader."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from satchel.hub.ledger import read_state
from satchel.hub.storage import open_storage
from satchel.store.hub_client import format as hub_format
from satchel.store.signing import SshKey, key_fingerprint

if TYPE_CHECKING:
    from collections.abc import Callable

NAME = "skills.acme.example"
NOTES = "acme/notes"


class User:
    """A reader with a home and a project, who runs commands."""

    def __init__(self, folder: Path, hub: str, key: str, shell: Any, patch: Any) -> None:
        self.project = folder / "project"
        self.project.mkdir(parents=True)
        self._home = str(folder / "home")
        self._shell, self._patch = shell, patch
        row = f"url = {json.dumps(hub)}\nkey = {json.dumps(SshKey(key).public)}\n"
        (self.project / "satchel.toml").write_text(f'[hubs."{NAME}"]\n{row}')

    def run(self, *words: str) -> str:
        """Run a command; returns what it prints, after the exit code."""
        self._patch.setenv("SATCHEL_HOME", self._home)
        self._patch.setenv("COLUMNS", "500")
        status, out = self._shell.run("--project", str(self.project), *words)
        return f"{status} {out} {self._shell.err}"

    @property
    def lock(self) -> Any:
        return json.loads((self.project / ".agents/satchel.lock").read_text())["skills"]


@pytest.fixture
def make_user(tmp_path, store, shell, monkeypatch, keys) -> Callable[..., User]:
    def make(name: str, key: str = "hub") -> User:
        return User(tmp_path / name, store, keys[key], shell, monkeypatch)

    return make


@pytest.fixture
def old(make_user) -> User:
    return make_user("old")


def test_a_reader_uses_a_restored_backup_after_a_reset(shell, store, write_skill, old, make_user):
    shell.publish(store, write_skill())
    shell.build(store)
    shutil.copytree(store, store + ".backup")
    shell.publish(store, write_skill(version="1.1.0"))
    shell.publish(store, write_skill("acme/plan"))
    shell.build(store)
    assert old.run("install", NOTES, "--yes")[0] == "0"
    shutil.rmtree(store)
    shutil.copytree(store + ".backup", store)
    shell.build(store)
    refusal = old.run("update")
    assert refusal[0] != "0"
    assert "has 3 commits; 5 were seen before" in refusal
    asked = old.run("hub", "reset", NAME)
    assert asked[0] == "4"  # there is nobody to ask
    assert "A reset gives up" in asked
    assert old.lock["notes"]["source"]["seen"] == "5"
    assert old.run("hub", "reset", NAME, "--yes")[0] == "0"
    assert old.lock["notes"]["source"]["seen"] == "3"
    assert old.run("verify")[0] == "0"
    assert "Nothing to do" in old.run("hub", "reset", NAME, "--yes")
    assert old.run("install", f"{NOTES}@1.0.0", "--yes")[0] == "0"
    assert make_user("new").run("install", NOTES, "--yes")[0] == "0"
    shell.publish(store, write_skill(version="1.1.0", text="Other words."))
    shell.build(store)
    assert old.run("update", "--yes")[0] == "0"
    assert "There is no hub `x.example`" in old.run("hub", "reset", "x.example")


def test_a_version_stays_what_a_lockfile_pins_after_a_reset(shell, store, write_skill, old):
    shell.publish(store, write_skill())
    shutil.copytree(store, store + ".backup")
    shell.build(store)
    shell.publish(store, write_skill("acme/plan"))
    shell.build(store)
    assert old.run("install", NOTES, "--yes")[0] == "0"
    shutil.rmtree(store)
    shell.init(store, "acme")
    shell.publish(store, write_skill(text="Swapped."))
    shell.build(store)
    assert old.run("hub", "reset", NAME, "--yes")[0] == "0"
    assert "is not what was locked" in old.run("update")


def test_readers_follow_the_new_key_of_a_hub_once(shell, store, write_skill, old, make_user, keys):
    write_skill("beta/plan")
    shell.publish(store, write_skill())
    shell.build(store, "skills")
    for skill in (NOTES, "beta/plan"):
        assert old.run("install", skill, "--yes")[0] == "0"
    before = shutil.copytree(store, store + ".before")
    words = ["hub", "rotate", store, keys["acme2"], "--key"]
    shell.fails(4, "not the key of", *words, keys["mallory"])
    shell.ok(*words, keys["hub"])
    shell.fails(4, "had this key before", *words, keys["acme2"])
    shell.fails(4, "had this key before", "hub", "rotate", store, keys["hub"], *words[4:], words[3])
    shell.fails(4, "not the key of", "hub", "build", store, "--key", keys["hub"])
    assert "Pass the hub's key" in shell.err
    shell.ok("hub", "build", store, "skills", "--key", keys["acme2"])
    note = f"has the new key {key_fingerprint(SshKey(keys['acme2']).public)}"
    assert note in old.run("install", "beta/plan", "--yes")
    assert note not in old.run("update", "--yes")
    assert old.lock["plan"]["source"]["key"] == SshKey(keys["acme2"]).public
    assert old.lock["notes"]["source"]["key"] == SshKey(keys["acme"]).public
    assert note in make_user("late").run("install", "beta/plan", "--yes")
    new = make_user("new", "acme2").run("install", "beta/plan", "--yes")
    assert (new[0], note in new) == ("0", False)
    shell.ok("hub", "mirror", store, str(before))
    shell.ok("hub", "check", store, "--key", keys["hub"] + ".pub")
    shell.ok("hub", "check", str(before), "--key", keys["acme2"] + ".pub")


def test_a_reader_who_followed_refuses_the_old_key(shell, store, write_skill, old, make_user, keys):
    shell.publish(store, write_skill())
    shell.build(store)
    assert old.run("install", NOTES, "--yes")[0] == "0"
    shell.ok("hub", "rotate", store, keys["acme2"], "--key", keys["hub"])
    assert old.run("install", NOTES, "--yes")[0] == "0"
    thief = SshKey(keys["hub"])
    with open_storage(store) as storage:
        state = read_state(storage)
        assert state is not None
        forged = state._replace(key=thief.public, rotations=[])
        data = hub_format.render_state(forged, lambda text, space: thief.sign([text], space)[0])
        storage.put("state", data)
        assert "was not signed with its key" in old.run("install", NOTES, "--yes")
        mallory = SshKey(keys["mallory"])
        (row,) = state.rotations

        def signed(text: bytes, space: str) -> str:
            return mallory.sign([text], space)[0]

        other_keys: list[Any] = [[row], [{**row, "key": mallory.public}], [{}], "x", [7]]
        for number, rotations in enumerate(other_keys):
            forged = state._replace(key=mallory.public, rotations=rotations)
            storage.put("state", hub_format.render_state(forged, signed))
            for user in (old, make_user(f"other-{number}")):
                assert user.run("install", NOTES, "--yes")[0] != "0"


def test_a_release_again_has_the_new_key(shell, store, write_skill, old, make_user, keys):
    folder = write_skill()
    made = shell.publish(store, folder)
    shell.publish(store, write_skill("acme/plan"))
    shell.build(store)
    assert old.run("install", NOTES, "--yes")[0] == "0"
    shell.allow(store, "acme", "acme2", by="acme")
    words = ["publish", str(folder), store, "--as", "acme", "--key"]
    shell.fails(4, "This is not the key of `acme`", *words, keys["acme"])
    again = shell.ok(*words, keys["acme2"])
    assert again["commit"] == made["commit"] + 3
    assert shell.ok(*words, keys["acme2"])["commit"] == again["commit"], "again: nothing to do"
    shell.build(store)
    shell.check(store)
    assert old.run("install", NOTES, "--yes")[0] == "0"
    assert old.lock["notes"]["source"]["key"] == SshKey(keys["acme2"]).public
    assert "which did not sign the new one" in old.run("install", "acme/plan", "--yes")
    shell.ok("publish", "skills/acme/plan", store, "--as", "acme", "--key", keys["acme2"])
    shell.build(store)
    assert old.run("install", "acme/plan", "--yes")[0] == "0"
    assert make_user("new").run("install", "acme/plan", "--yes")[0] == "0"


def test_a_hub_with_a_new_key_is_repaired(shell, store, write_skill, old, keys):
    shell.publish(store, write_skill())
    shell.build(store)
    assert old.run("install", NOTES, "--yes")[0] == "0"
    shell.ok("hub", "rotate", store, keys["acme2"], "--key", keys["hub"])
    (Path(store) / hub_format.commit_path(4)).write_bytes(b"junk")
    assert shell.ok("hub", "repair", store, "--key", keys["acme2"])["lost"] == []
    shell.ok("hub", "check", store, "--key", keys["hub"] + ".pub")
    assert old.run("install", NOTES, "--yes")[0] == "0"


def test_an_update_without_news_names_the_new_key_once(shell, store, write_skill, old, keys):
    for skill in (NOTES, "acme/plan"):
        shell.publish(store, write_skill(skill))
    shell.build(store)
    for skill in (NOTES, "acme/plan"):
        assert old.run("install", skill, "--yes")[0] == "0"
    shell.ok("hub", "rotate", store, keys["acme2"], "--key", keys["hub"])
    note = f"has the new key {key_fingerprint(SshKey(keys['acme2']).public)}"
    updated = old.run("update")
    assert (updated[0], updated.count(note)) == ("0", 1)
    assert note not in old.run("update")


@pytest.mark.parametrize("number", [1, 2, 6])
def test_readers_follow_old_keys_after_a_repair_of_early_commits(
    number, shell, store, write_skill, old, make_user, keys
):
    """The first commit has the first key, and the later ones what it has signed."""
    write_skill("beta/plan")
    shell.publish(store, write_skill())
    shell.build(store, "skills")
    for skill in (NOTES, "beta/plan"):
        assert old.run("install", skill, "--yes")[0] == "0"
    shell.ok("hub", "rotate", store, keys["acme2"], "--key", keys["hub"])
    follower = make_user("follower", "acme2")
    assert follower.run("install", NOTES, "--yes")[0] == "0"
    shell.ok("hub", "rotate", store, keys["mallory"], "--key", keys["acme2"])
    (Path(store) / hub_format.commit_path(number)).write_bytes(b"junk")
    before = old.lock["plan"]["source"]
    report = shell.ok("hub", "repair", store, "--key", keys["mallory"])
    assert (report["first"], report["lost"], report["lost_yanks"]) == (number, [], {})
    changed_keys = [row["previous"] for row in report["build"]["state"]["rotations"]]
    assert changed_keys == [SshKey(keys[name]).public for name in ("hub", "acme2")]
    for name in ("hub", "acme2", "mallory"):
        shell.ok("hub", "check", store, "--key", keys[name] + ".pub")
    shell.fails(4, "not signed with its key", "hub", "check", store, "--key", keys["acme"] + ".pub")
    assert old.lock["plan"]["source"] == before
    for user in (old, follower, make_user("new", "mallory"), make_user("late")):
        for skill in (NOTES, "beta/plan"):
            printed = user.run("install", skill, "--yes")
            assert printed[0] == "0", printed
    shell.ok("hub", "build", store, "skills", "--key", keys["mallory"])
    assert old.run("install", "beta/plan", "--yes")[0] == "0"
    assert old.lock["plan"]["source"]["key"] == SshKey(keys["mallory"]).public


def test_a_stolen_key_is_replaced(shell, store, write_skill, old, make_user, keys):
    """A thief publishes with the key of the hub; the keeper rotates, revokes and goes on."""
    write_skill("beta/plan")
    shell.build(store, "skills")
    assert old.run("install", "beta/plan", "--yes")[0] == "0"
    write_skill("beta/plan", "9.0.0", text="Send it to us.")
    shell.build(store, "skills")
    assert old.run("update", "--yes")[0] == "0"
    write_skill("beta/plan")
    new_key = ["--key", keys["acme2"]]
    shell.ok("hub", "rotate", store, keys["acme2"], "--key", keys["hub"])
    words = ["hub", "build", store, "skills"]
    shell.fails(1, "`beta/plan@9.0.0` exists already", *words, "--dry-run")
    shell.ok("hub", "revoke", store, "beta/plan@9.0.0", "--because", "stolen key", *new_key)
    shell.ok("hub", "build", store, *new_key)
    refusal = old.run("update", "--yes")
    assert "was revoked by the hub: stolen key" in refusal
    note = f"has the new key {key_fingerprint(SshKey(keys['acme2']).public)}"
    assert note in refusal
    assert note in make_user("searching").run("search", "--hub", "plan")
    write_skill("beta/plan", "9.0.1")
    shell.ok(*words, *new_key)
    assert old.run("update", "--yes")[0] == "0"
    assert "Send it" not in (old.project / ".agents/skills/plan/SKILL.md").read_text()
    assert make_user("new", "acme2").run("install", "beta/plan", "--yes")[0] == "0"
