"""Publishing into each kind of storage, and building what readers use."""

from __future__ import annotations

import io
import os
import shutil
import tarfile
from typing import TYPE_CHECKING

import pytest

from hub import servers
from hub.conftest import HARMFUL, KINDS, NAME, unchecked_draft, write_skill_at
from satchel.hub.build import build
from satchel.hub.commits import HubLedger, read_content, read_rows
from satchel.hub.publish import pack_blob, publish
from satchel.hub.storage import open_storage
from satchel.skill.file_tree import FolderTree, MemoryTree, hash_tree
from satchel.store.hub_client import format as files
from satchel.store.signing import SshKey

if TYPE_CHECKING:
    from pathlib import Path


def _bin(store: str, name: str) -> list[files.HubRelease]:
    """The releases in the bin of a name, as a reader finds them."""
    with open_storage(store) as storage:
        state = files.parse_state(storage.get("state", files.MAX_STATE_BYTES) or b"")
        first, *middles = read_rows(storage, "index", state.index)
        number, low = files.bin_number(name, first["bits"]), files.low_bits(first["bits"])
        bins = read_rows(storage, "index", middles[number >> low]["middle"])
        digest = bins[number & ((1 << low) - 1)]["bin"]
        found, _ = files.read_bin(read_rows(storage, "index", digest), "bin")
        return [one for one in found if one.name == name]


def _search(store: str) -> list[files.Row]:
    with open_storage(store) as storage:
        state = files.parse_state(storage.get("state", files.MAX_STATE_BYTES) or b"")
        listed = read_rows(storage, "search", state.search)
        return [row for one in listed for row in read_rows(storage, "search", one["segment"])]


@pytest.mark.parametrize("kind", KINDS)
def test_a_published_skill_is_in_the_index_after_a_build(kind, shell, make_store, write_skill):
    store = make_store(kind)
    shell.init(store, "acme")
    folder = write_skill()
    made = shell.publish(store, folder)
    assert shell.publish(store, folder)["commit"] == made["commit"], "again: nothing to do"
    state = shell.build(store)["state"]
    assert (state["count"], state["skills"], state["hub"]) == (3, 1, NAME)
    (one,) = _bin(store, "acme/notes")
    assert one.tree == hash_tree(FolderTree(str(folder))).digest == made["tree"]
    assert (one.license, one.scan, one.count) == ("MIT", "no findings", 3)
    assert files.release_is_signed(one, NAME)
    assert _search(store) == [
        {
            "name": "acme/notes",
            "version": "1.0.0",
            "description": "Writes notes from merged pull requests.",
        }
    ]
    with open_storage(store) as storage:
        data = read_content(storage, "blobs", one.blob, one.size)
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        entries = [(entry.name, entry.mode, entry.mtime, entry.type) for entry in archive]
    assert entries == [
        ("SKILL.md", 0o644, 0, tarfile.REGTYPE),
        ("scripts/list.sh", 0o755, 0, tarfile.REGTYPE),
    ]
    assert shell.check(store)["releases"] == 1


def test_a_version_keeps_its_content(shell, make_store, write_skill):
    store = make_store("folder")
    shell.init(store, "acme")
    shell.publish(store, write_skill())
    changed = write_skill(text="Other words.")
    words = ["publish", str(changed), store, "--as", "acme", "--key", shell.keys["acme"]]
    status, _ = shell.run(*words)
    assert status == 4
    assert "acme/notes@1.0.0` exists already" in shell.err
    assert shell.ok(*words, "--version", "1.0.1")["version"] == "1.0.1"


@pytest.mark.parametrize(
    ("words", "key", "message"),
    [
        (["--as", "acme"], "mallory", "This is not the key of `acme`"),
        (["--as", "unknown"], "acme", "There is no publisher `unknown`"),
        (["--as", "Acme Inc"], "acme", "`Acme Inc/notes` is not a valid name"),
        (["--as", "acme", "--version", "1.0"], "acme", "has no version such as `1.0.0`"),
    ],
)
def test_who_may_not_publish_is_refused(words, key, message, shell, make_store, write_skill):
    store = make_store("folder")
    shell.init(store, "acme")
    before = os.listdir(os.path.join(store, "commits"))
    status, _ = shell.run("publish", str(write_skill()), store, *words, "--key", shell.keys[key])
    assert status
    assert message in shell.err
    assert os.listdir(os.path.join(store, "commits")) == before


def test_a_harmful_skill_is_not_published(shell, make_store, write_skill):
    store = make_store("folder")
    shell.init(store, "acme")
    folder = write_skill(program=HARMFUL)
    words = ["--as", "acme", "--key", shell.keys["acme"]]
    status, _ = shell.run("publish", str(folder), store, *words)
    assert status == 4
    assert "The scan blocks `acme/notes`" in shell.err
    status, _ = shell.run("hub", "build", store, "skills", "--key", shell.keys["hub"])
    assert status == 1
    assert "acme/notes: The scan blocks" in shell.err


def test_a_harmful_release_of_a_careless_publisher_is_revoked(shell, make_store, write_skill, keys):
    store = make_store("folder")
    shell.init(store, "acme")
    shell.publish(store, write_skill("acme/good"))
    draft = unchecked_draft(write_skill("acme/bad", program=HARMFUL))
    with open_storage(store) as storage:
        publish(storage, draft, SshKey(keys["acme"]))
    report = shell.build(store)
    assert report["revoked"] == ["acme/bad@1.0.0"]
    with open_storage(store) as storage:
        (row,) = read_rows(storage, "revoked", report["state"]["revoked"])
    assert (row["tree"], row["reason"]) == (draft.change["tree"], "scan: blocked")
    assert [row["name"] for row in _search(store)] == ["acme/good"]
    assert shell.build(store)["revoked"] == []
    shell.check(store)


def test_yanked_and_restored(shell, make_store, write_skill):
    store = make_store("folder")
    shell.init(store, "acme")
    shell.publish(store, write_skill())
    shell.publish(store, write_skill(version="1.1.0"))
    key = ["--key", shell.keys["acme"]]
    shell.ok("yank", "acme/notes@1.1.0", store, "--because", "loses the last entry", *key)
    shell.build(store)
    assert [one.yanked for one in _bin(store, "acme/notes")] == ["", "loses the last entry"]
    assert [row["version"] for row in _search(store)] == ["1.0.0"]
    shell.ok("yank", "acme/notes@1.1.0", store, "--undo", *key)
    shell.build(store)
    assert [one.yanked for one in _bin(store, "acme/notes")] == ["", ""]
    shell.check(store)
    status, _ = shell.run("yank", "acme/notes@1.1.0", store, "--because", "x", "--key",
                          shell.keys["hub"])  # fmt: skip
    assert status == 4
    assert shell.run("yank", "acme/notes@9.0.0", store, "--because", "x", *key)[0] == 3
    assert shell.run("yank", "acme/notes", store, "--because", "x", *key)[0] == 2


def test_revoked_by_the_keeper_under_every_name(shell, make_store, write_skill):
    store = make_store("folder")
    shell.init(store, "acme")
    shell.publish(store, write_skill())
    shell.build(store)
    words = ["hub", "revoke", store, "acme/notes@1.0.0", "--because", "sends files away", "--key"]
    assert shell.run(*words, shell.keys["acme"])[0] == 4
    shell.ok(*words, shell.keys["hub"])
    assert shell.build(store)["state"]["count"] == 4
    assert _search(store) == []
    shell.check(store)


def test_a_publisher_changes_its_key(shell, make_store, write_skill, keys):
    store = make_store("folder")
    shell.init(store, "acme")
    shell.publish(store, write_skill())
    shell.allow(store, "acme", "acme2", by="acme")
    status, _ = shell.run(
        "publish", str(write_skill(version="1.1.0")), store, "--as", "acme", "--key", keys["acme"]
    )
    assert status == 4, "the old key has no right any more"
    shell.build(store)
    with open_storage(store) as storage:
        state = files.parse_state(storage.get("state", 1 << 14) or b"")
        links = HubLedger(storage, state).keys("acme")
    assert [(one.by, bool(one.previous)) for one in links] == [("hub", False), ("publisher", True)]
    assert links[1].previous == links[0].key
    words = ["acme", keys["acme"] + ".pub", "--key", keys["hub"]]
    assert shell.run("hub", "allow", store, *words)[0] == 4, "an old key never comes back"


def test_a_folder_of_skills_is_a_hub(shell, make_store, write_skill, tmp_path: Path):
    store = make_store("folder")
    shell.init(store)
    write_skill("acme/notes")
    write_skill("beta/plan", "0.3.0")
    dry = shell.ok("hub", "build", store, "skills", "--dry-run")
    assert dry["published"] == ["acme/notes@1.0.0", "beta/plan@0.3.0"]
    assert dry["state"] is None
    assert shell.build(store, "skills")["state"]["skills"] == 2
    assert shell.build(store, "skills")["published"] == []
    write_skill("acme/notes", text="Changed without a new version.")
    write_skill("acme/more", version="")
    write_skill("state/tool")  # a folder of the hub itself
    status, _ = shell.run("hub", "build", store, "skills", "--key", shell.keys["hub"])
    assert status == 1
    assert "acme/notes: `acme/notes@1.0.0` exists already" in shell.err
    assert "acme/more: `acme/more` has no version such as `1.0.0`" in shell.err
    assert "state/tool: `state/tool` is not a valid name" in shell.err
    shutil.rmtree(tmp_path / "skills" / "state")
    write_skill("acme/notes", "1.0.1", text="Changed with a new version.")
    write_skill("acme/more")
    assert shell.build(store, "skills")["published"] == ["acme/more@1.0.0", "acme/notes@1.0.1"]
    shell.check(store)


def test_a_hub_grows_over_many_bins_and_segments(shell, make_store, tmp_path: Path, monkeypatch):
    monkeypatch.setattr(files, "SEGMENT_SKILL_COUNT", 20)
    store = make_store("folder")
    shell.init(store)
    for number in range(120):
        write_skill_at(tmp_path / "skills" / f"p{number % 7}" / f"skill-{number}", "1.0.0", "Go.")
        if number in {10, 60}:
            shell.build(store, "skills")
    shell.build(store, "skills")
    shell.check(store)
    for number in (3, 77):
        path = tmp_path / "skills" / f"p{number % 7}" / f"skill-{number}"
        write_skill_at(path, "1.1.0", "Better.")
    shell.build(store, "skills")
    assert [one.version for one in _bin(store, "p0/skill-77")] == ["1.0.0", "1.1.0"]
    assert shell.check(store)["releases"] == 122


def test_init_refuses_what_is_no_hub_or_one_already(shell, make_store, keys):
    store = make_store("folder")
    shell.init(store)
    words = ["--name", NAME, "--key", keys["hub"]]
    assert shell.run("hub", "init", store, *words)[0] == 4
    assert shell.run("hub", "init", store + "2", "--name", "No Host", "--key", keys["hub"])[0] == 2
    assert shell.run("hub", "init", "ftp://x/y", *words)[0] == 2
    assert shell.run("hub", "build", make_store("folder"), "--key", keys["hub"])[0] == 3
    assert shell.run("hub", "build", store, "--key", keys["mallory"])[0] == 4


def test_a_storage_that_replaces_files_is_refused(shell, monkeypatch, write_skill, keys):
    for env in servers.careless_s3():
        for name, value in env.items():
            monkeypatch.setenv(name, value)
        words = ["--name", NAME, "--key", keys["hub"]]
        status, _ = shell.run("hub", "init", "s3://hubs/x", *words)
        assert status == 4
        assert "replaces files that must not be replaced" in shell.err
        words = ["--as", "acme", "--key", keys["acme"]]
        assert shell.run("publish", str(write_skill()), "s3://hubs/x", *words)[0] == 4
        assert "replaces files that must not be replaced" in shell.err


def test_a_copy_is_a_hub(shell, make_store, write_skill, tmp_path: Path):
    store, copy = make_store("folder"), make_store("s3")
    shell.init(store, "acme")
    shell.publish(store, write_skill())
    shell.build(store)
    (tmp_path / "caddy").mkdir()
    for address in servers.caddy(tmp_path / "caddy", tmp_path / os.path.basename(store)):
        shell.check(address)
        assert shell.ok("hub", "mirror", address, copy)["count"] == 3
        assert shell.check(copy)["releases"] == 1
        shell.publish(store, write_skill(version="1.1.0"))
        assert shell.check(address)["waiting"] == 1
        shell.build(store)
        shell.ok("hub", "mirror", address, copy)
        assert shell.check(copy)["releases"] == 2
    status, _ = shell.run("hub", "mirror", copy, store)
    assert status == 0
    blob = _bin(store, "acme/notes")[0].blob
    with open_storage(store) as storage:
        storage.put(files.content_path("blobs", blob), b"something else")
    assert shell.run("hub", "check", store)[0] == 1
    assert shell.run("hub", "mirror", store, make_store("folder"))[0] == 4


def test_pages_are_written_before_state(shell, make_store, write_skill, keys):
    store = make_store("folder")
    shell.init(store, "acme")
    shell.publish(store, write_skill())

    def pages(**content):
        assert set(content) == {
            "state", "listing", "touched", "revoked", "open_tree", "releases_of"
        }  # fmt: skip
        (one,) = content["touched"]["acme/notes"]
        assert content["open_tree"](one).files[0].path == "SKILL.md"
        yield "acme/notes/index.html", one.description.encode()

    with open_storage(store) as storage:
        build(storage, SshKey(keys["hub"]), pages=pages)
        assert b"Writes notes" in (storage.get("acme/notes/index.html", 100) or b"")


def test_the_same_files_make_the_same_blob():
    content = {"SKILL.md": b"a", "a/" + "b" * 90 + ".txt": b"c"}
    assert pack_blob(MemoryTree(content)) == pack_blob(MemoryTree(dict(reversed(content.items()))))
