"""Publishing into each kind of storage, and building what readers use."""

from __future__ import annotations

import io
import os
import shutil
import tarfile
from datetime import UTC, datetime
from pathlib import Path

import pytest

from hub import servers
from hub.conftest import HARMFUL, KINDS, NAME, unchecked_draft, write_skill_at
from satchel.hub.ledger import HubLedger, open_ledger, read_state
from satchel.hub.publish import pack_blob, publish
from satchel.hub.storage import open_storage
from satchel.skill.file_tree import FolderTree, MemoryTree, hash_tree
from satchel.store.hub_client import format as files
from satchel.store.hub_client import signatures
from satchel.store.signing import SshKey


def _ledger(store: str) -> HubLedger:
    with open_storage(store) as storage:
        state = files.parse_state(storage.get("state", files.MAX_STATE_BYTES) or b"")
        ledger = HubLedger(storage, state, until=state.count)
        ledger.load_all()
        return ledger


def _releases(store: str, name: str) -> list[files.HubRelease]:
    return _ledger(store).sorted_releases(name)


def _search(store: str) -> list[files.Row]:
    with open_storage(store) as storage:
        state = read_state(storage)
        return [row for rows in storage.listed(state.search if state else "") for row in rows]


@pytest.mark.parametrize("kind", KINDS)
def test_a_published_skill_is_in_the_index_after_a_build(kind, shell, make_store, write_skill):
    store = make_store(kind)
    shell.init(store, "acme")
    folder = write_skill()
    made = shell.publish(store, folder)
    assert shell.publish(store, folder)["commit"] == made["commit"], "again: nothing to do"
    state = shell.build(store)["state"]
    assert (state["count"], state["skills"], state["hub"]) == (3, 1, NAME)
    (one,) = _releases(store, "acme/notes")
    assert one.tree == hash_tree(FolderTree(str(folder))).digest == made["tree"]
    assert (one.license, one.scan) == ("MIT", "no findings")
    assert signatures.signed_by({"type": "release", **one._asdict()}, NAME, one.key)
    about = "Writes notes from merged pull requests."
    assert _search(store) == [{"name": "acme/notes", "version": "1.0.0", "description": about}]
    with open_storage(store) as storage:
        data = storage.content("blobs", one.blob, one.size)
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        entries = [(entry.name, entry.mode, entry.mtime, entry.type) for entry in archive]
    assert entries == [
        ("SKILL.md", 0o644, 0, tarfile.REGTYPE),
        ("scripts/list.sh", 0o755, 0, tarfile.REGTYPE),
    ]
    assert shell.check(store)["releases"] == 1


def test_a_version_keeps_its_content(shell, store, write_skill):
    shell.publish(store, write_skill())
    changed = write_skill(text="Other words.")
    words = ["publish", str(changed), store, "--as", "acme", "--key", shell.keys["acme"]]
    shell.fails(4, "acme/notes@1.0.0` exists already", *words)
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
def test_a_publisher_without_the_right_is_refused(words, key, message, shell, store, write_skill):
    before = os.listdir(os.path.join(store, "commits"))
    assert shell.run("publish", str(write_skill()), store, *words, "--key", shell.keys[key])[0]
    assert message in shell.err
    assert os.listdir(os.path.join(store, "commits")) == before


def test_a_harmful_skill_is_not_published(shell, store, write_skill):
    folder = write_skill(program=HARMFUL)
    words = ["--as", "acme", "--key", shell.keys["acme"]]
    shell.fails(4, "The scan blocks `acme/notes`", "publish", str(folder), store, *words)
    words = ["hub", "build", store, "skills", "--key", shell.keys["hub"]]
    shell.fails(1, "acme/notes: The scan blocks", *words)


def test_a_harmful_release_of_a_careless_publisher_is_revoked(shell, store, write_skill, keys):
    shell.publish(store, write_skill("acme/good"))
    draft = unchecked_draft(write_skill("acme/bad", program=HARMFUL))
    with open_storage(store) as storage:
        publish(open_ledger(storage), [draft], SshKey(keys["acme"]))
    report = shell.build(store)
    assert report["revoked"] == ["acme/bad@1.0.0"]
    with open_storage(store) as storage:
        (row,) = storage.rows("revoked", report["state"]["revoked"])
    assert (row["tree"], row["reason"]) == (draft.change["tree"], "scan: blocked")
    assert [row["name"] for row in _search(store)] == ["acme/good"]
    assert shell.build(store)["revoked"] == []
    shell.check(store)


def test_a_yanked_release_is_not_offered(shell, store, write_skill):
    shell.publish(store, write_skill())
    shell.publish(store, write_skill(version="1.1.0"))
    key = ["--key", shell.keys["acme"]]
    shell.ok("yank", "acme/notes@1.1.0", store, "--because", "loses the last entry", *key)
    shell.build(store)
    assert [one.yanked for one in _releases(store, "acme/notes")] == ["", "loses the last entry"]
    assert [row["version"] for row in _search(store)] == ["1.0.0"]
    shell.ok("yank", "acme/notes@1.1.0", store, "--because", "again", *key)
    assert shell.build(store)["state"]["count"] == 5, "again: nothing to do"
    shell.check(store)
    why = ["--because", "x"]
    other = ["--key", shell.keys["hub"]]
    shell.fails(4, "not the key of `acme`", "yank", "acme/notes@1.1.0", store, *why, *other)
    shell.fails(3, "There is no", "yank", "acme/notes@9.0.0", store, *why, *key)
    shell.fails(2, "acme/release-notes@1.2.0", "yank", "acme/notes", store, *why, *key)
    shell.fails(2, "`--because` is missing", "yank", "acme/notes@1.1.0", store, *key)
    words = ["publish", "skills/acme/notes", store, "--as", "acme", *key]
    shell.fails(4, "exists already", *words)


def test_a_revocation_by_the_keeper_covers_every_name(shell, store, write_skill):
    folder = write_skill()
    shell.publish(store, folder)
    words = [str(folder), store, "--as", "acme", "--key", shell.keys["acme"]]
    shell.ok("publish", *words, "--version", "1.0.1")
    shell.build(store)
    words = ["hub", "revoke", store, "acme/notes@1.0.0", "--because", "sends files away", "--key"]
    assert shell.run(*words, shell.keys["acme"])[0] == 4
    assert shell.run(*words, shell.keys["hub"])[0] == 0
    assert "acme/notes@1.0.0, acme/notes@1.0.1" in shell.err
    assert shell.build(store)["state"]["count"] == 5
    assert _search(store) == []
    shell.check(store)


def test_a_publisher_changes_its_key(shell, store, write_skill, keys):
    shell.publish(store, write_skill())
    shell.allow(store, "acme", "acme2", by="acme")
    words = [str(write_skill(version="1.1.0")), store, "--as", "acme", "--key", keys["acme"]]
    shell.fails(4, "This is not the key of `acme`", "publish", *words)
    shell.build(store)
    links = _ledger(store).keys("acme")
    assert [one.previous for one in links] == ["", links[0].key]
    words = ["acme", keys["acme"] + ".pub", "--key", keys["hub"]]
    assert shell.run("hub", "allow", store, *words)[0] == 4, "an old key never comes back"


def test_a_folder_of_skills_is_a_hub(shell, make_store, write_skill, tmp_path: Path):
    store = make_store("folder")
    shell.init(store)
    write_skill("acme/notes")
    write_skill("beta/plan", "0.3.0")
    for folder in (".", "skills/acme"):
        shell.fails(3, "has no skill in a folder", "hub", "build", store, folder, "--dry-run")
    dry = shell.ok("hub", "build", store, "skills", "--dry-run")
    assert dry["published"] == ["acme/notes@1.0.0", "beta/plan@0.3.0"]
    assert dry["state"] is None
    assert shell.build(store, "skills")["state"]["skills"] == 2
    assert shell.build(store, "skills")["published"] == []
    write_skill("acme/notes", text="Changed without a new version.")
    write_skill("acme/more", version="soon")
    write_skill("state/tool")  # a folder of the hub itself
    for number in range(36):
        (write_skill("acme/big") / f"{number}.csv").write_text("0,0,0,0\n" * 30_000)
    words = ["hub", "build", store, "skills", "--key", shell.keys["hub"]]
    shell.fails(1, "acme/notes: `acme/notes@1.0.0` exists already", *words)
    assert "acme/more: `acme/more` has no version such as `1.0.0`" in shell.err
    assert "state/tool: `state/tool` is not a valid name" in shell.err
    assert "acme/big: The source is refused" in shell.err, "readers would refuse it too"
    shutil.rmtree(tmp_path / "skills" / "state")
    shutil.rmtree(tmp_path / "skills" / "acme" / "big")
    write_skill("acme/notes", "1.0.1", text="Changed with a new version.")
    write_skill("acme/more")
    assert shell.build(store, "skills")["published"] == ["acme/more@1.0.0", "acme/notes@1.0.1"]
    shutil.rmtree(os.path.join(store, "acme"))
    shell.build(store, "--rebuild")
    assert "1.0.1" in Path(store, "acme", "notes", "index.html").read_text()
    shell.check(store)


def test_a_hub_grows_over_many_bins(shell, make_store, tmp_path: Path, monkeypatch):
    for folder, kind in files.TABLES.items():
        monkeypatch.setitem(
            files.TABLES, folder, kind._replace(capacity=7, depths=range(2, 128, 2))
        )
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
    assert [one.version for one in _releases(store, "p0/skill-77")] == ["1.0.0", "1.1.0"]
    assert shell.check(store)["releases"] == 122


def test_init_refuses_a_folder_with_other_files_or_a_hub(shell, make_store, keys):
    store = make_store("folder")
    shell.init(store)
    assert not [name for name in os.listdir(store) if name.startswith("probe")]
    words = ["--name", NAME, "--key", keys["hub"]]
    assert shell.run("hub", "init", store, *words)[0] == 4
    assert shell.run("hub", "init", store + "2", "--name", "No Host", "--key", keys["hub"])[0] == 2
    assert shell.run("hub", "init", "ftp://x/y", *words)[0] == 2
    hint = "Write `git+ssh://git@host.example/hubs/x.git`"
    shell.fails(2, hint, "hub", "init", "git@host.example:hubs/x.git", *words)
    assert shell.run("hub", "build", make_store("folder"), "--key", keys["hub"])[0] == 3
    assert shell.run("hub", "build", store, "--key", keys["mallory"])[0] == 4


def test_a_storage_that_replaces_files_is_refused(shell, monkeypatch, write_skill, keys):
    with servers.careless_s3() as env:
        for name, value in env.items():
            monkeypatch.setenv(name, value)
        refusal = "replaces files that must not be replaced"
        words = ["s3://hubs/x", "--name", NAME, "--key", keys["hub"]]
        shell.fails(4, refusal, "hub", "init", *words)
        words = [str(write_skill()), "s3://hubs/x", "--as", "acme", "--key", keys["acme"]]
        shell.fails(4, refusal, "publish", *words)


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
    shell.ok("hub", "mirror", copy, store)
    blob = _releases(store, "acme/notes")[0].blob
    with open_storage(store) as storage:
        storage.put(files.content_path("blobs", blob), b"something else")
    assert shell.run("hub", "check", store)[0] == 1
    assert shell.run("hub", "mirror", store, make_store("folder"))[0] == 4


def test_the_same_files_make_the_same_blob():
    content = {"SKILL.md": b"a", "a/" + "b" * 90 + ".txt": b"c"}
    assert pack_blob(MemoryTree(content)) == pack_blob(MemoryTree(dict(reversed(content.items()))))


def test_caches_keep_only_files_that_never_change(shell, make_store, write_skill):
    from obstore.store import from_url

    store = make_store("s3")
    shell.init(store, "acme")
    shell.publish(store, write_skill())
    shell.build(store)
    bucket = from_url(store, client_options={"allow_http": True})
    paths = [row["path"] for page in bucket.list() for row in page]
    seconds: dict[str, str] = {}
    for path in paths:
        header = bucket.get(path).attributes["Cache-Control"]
        kind = "page" if path.endswith((".html", ".json")) else path.partition("/")[0]
        assert seconds.setdefault(kind, header) == header
    assert {kind: header.removeprefix("public, max-age=") for kind, header in seconds.items()} == {
        "state": "60",
        "commits": "60",  # a repair, and a restored backup, replace them
        "page": "600",
        "assets": "600",
        **dict.fromkeys(("blobs", "changes", "index", "revoked", "search"), "31536000, immutable"),
    }


def test_a_skill_without_a_version_has_the_day_as_its_version(shell, store, tmp_path: Path):
    folder = tmp_path / "skills" / "acme" / "tone"
    folder.mkdir(parents=True)
    text = "---\nname: tone\ndescription: Checks the tone of a text. Use before sending.\n---\n"

    def write(body: str) -> None:
        (folder / "SKILL.md").write_text(text + body)

    write("Read it aloud.")
    words = ["publish", str(folder), store, "--as", "acme", "--key", shell.keys["acme"]]
    assert "20" in shell.run(*words, "--dry-run")[1]
    day, _, last = shell.ok(*words)["version"].rpartition(".")
    today = datetime.now(UTC)
    assert (day, last) == (f"{today:%Y}.{today.month}{today:%d}", "0")
    assert shell.ok(*words)["version"] == f"{day}.0", "again: nothing to do"
    write("Read it twice.")
    assert shell.ok(*words)["version"] == f"{day}.1"
    shell.build(store)
    write("Read it slowly.")
    assert shell.ok(*words)["version"] == f"{day}.2"
    shell.build(store)
    assert [one.version for one in _releases(store, "acme/tone")] == [f"{day}.{n}" for n in "012"]
    shutil.copytree(folder, tmp_path / "own" / "beta" / "tone")
    assert shell.build(store, "own")["published"] == [f"beta/tone@{day}.0"]
    assert shell.build(store, "own")["published"] == []
    (tmp_path / "own" / "beta" / "tone" / "more.md").write_text("More.")
    assert shell.build(store, "own")["published"] == [f"beta/tone@{day}.1"]
