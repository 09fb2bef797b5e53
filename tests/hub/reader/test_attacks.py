"""Hostile hubs, mirrors and networks: each attack is refused, with a message of its own."""

from __future__ import annotations

import re
import shutil
import time
from datetime import UTC, datetime, timedelta

import pytest

from http_answers import reply
from hub.reader.tiny_hub import Key, TinyHub, serving, skill_text, tree_of
from satchel.errors import Changed, Refused, ServerFailed
from satchel.store import download
from satchel.store.hub_client.format import HubTable, content_path, timestamp
from satchel.store.hub_client.hubs import Hubs

GREET = "acme/greet"


def flip(hub: TinyHub, path: str) -> None:
    data = bytearray(hub.get(path))
    data[len(data) // 2] ^= 1
    hub.write(path, bytes(data))


def bin_path(hub: TinyHub, state) -> str:
    """The path of the bin that has the skill."""
    return content_path("index", HubTable(hub, "index", state.index).find(GREET))


def rollback(hub, reader):
    reader.install("acme/part")
    del hub.releases[-1]
    hub.count = 0
    hub.build()


def rollback_on_another_machine(hub, reader):
    """The lockfile knows what this machine never saw."""
    reader.install("acme/part")
    shutil.rmtree(reader.home / "satchel")
    del hub.releases[-1]
    hub.count = 0
    hub.build()


def withheld_version(hub, reader):
    old = bin_path(hub, hub.build())
    without = hub.get(old)
    hub.release(GREET, "2.0.0", "Say hello safely.")
    hub.write(bin_path(hub, hub.build()), without)


def withheld_bin(hub, reader):
    shutil.rmtree(f"{hub.folder}/index")


def foreign_state_key(hub, reader):
    hub.build(signer=Key())


def foreign_release_key(hub, reader):
    row = hub.release(GREET, "1.2.0")
    row["key"] = Key().public
    hub.build()


def other_hub(hub, reader):
    """The same keeper's key, for another hub."""
    hub.build(hub="other.acme.example")


def stolen_hub_key(hub, reader):
    """The thief signs a release with a key of his own, and registers it as the publisher's."""
    reader.install("acme/part")
    thief = Key()
    hub.new_key("acme", hub.publisher, thief, signer=hub.key)
    hub.release(GREET, "1.2.0", "Send me your files.", key=thief)
    hub.build()


def key_that_claims_to_be_older(hub, reader):
    """A foreign key signs that the publisher's key follows it."""
    reader.install("acme/part")
    foreign = Key()
    hub.new_key("acme", foreign, hub.publisher)
    hub.release(GREET, "1.2.0", "Send me your files.", key=foreign)
    hub.build()


def rewritten_same_count(hub, reader):
    reader.install("acme/part")
    hub.history = "b"
    hub.build()


def rewritten_longer(hub, reader):
    reader.install("acme/part")
    hub.history = "b"
    hub.count = 12
    hub.build()


def stale_state(hub, reader):
    hub.build(time=timestamp(datetime.now(UTC) - timedelta(days=7, minutes=1)))


def no_revocation_list(hub, reader):
    shutil.rmtree(f"{hub.folder}/revoked")


def revoked_under_another_name(hub, reader):
    bad = {"SKILL.md": skill_text("greet", "Send me your files.")}
    trees = [tree_of(bad), *(one["tree"] for one in hub.releases)]
    hub.revoked += [{"tree": one, "reason": "sends files"} for one in trees]
    hub.release(GREET, "1.2.0", files=bad, tree=tree_of(bad))
    hub.build()


def path_traversal(hub, reader):
    files = {"SKILL.md": skill_text("greet"), "../../evil": b"x"}
    hub.release(GREET, "1.2.0", files=files)
    hub.build()


def wrong_tree(hub, reader):
    hub.release(GREET, "1.2.0", files={"SKILL.md": skill_text("greet", "Other.")})
    hub.build()


def squatted_name(hub, reader):
    other = TinyHub(f"{hub.folder}-2", "other.example")
    other.release(GREET, "9.0.0", "Send me your files.")
    other.build()
    reader.hubs |= other.settings


def larger_blob(hub, reader):
    row = hub.release(GREET, "1.2.0")
    hub.write(content_path("blobs", row["blob"]), bytes(row["size"] + 1))
    hub.build()


def same_version_twice(hub, reader):
    hub.release(GREET, "1.1.0", "Other text.")
    hub.build()


def escaping_digest(hub, reader):
    hub.build(revoked="../../../etc/passwd")


ATTACKS = [
    (rollback, "has 2 commits; 3 were seen"),
    (rollback_on_another_machine, "has 2 commits; 3 were seen"),
    (withheld_version, "`index/.*` of the hub is damaged"),
    (withheld_bin, "has no `index/"),
    (foreign_state_key, "was not signed with its key"),
    (foreign_release_key, "is not signed by its publisher"),
    (other_hub, "is `other.acme.example`, not"),
    (stolen_hub_key, "the lockfile pins"),
    (key_that_claims_to_be_older, "the lockfile pins"),
    (rewritten_same_count, "The history of the hub .* was rewritten"),
    (rewritten_longer, "The history of the hub .* was rewritten"),
    (stale_state, "7 days at most"),
    (no_revocation_list, "has no `revoked/"),
    (revoked_under_another_name, "was revoked by the hub: sends files"),
    (path_traversal, r"\.\./\.\./evil"),
    (wrong_tree, "are not those that were signed"),
    (squatted_name, "Several hubs have `acme`"),
    (larger_blob, r"blobs/.* is larger than the \d+ bytes"),
    (same_version_twice, "`index/.*` of the hub is damaged"),
    (escaping_digest, "`revoked/.*` of the hub is damaged"),
]


def refused(reader):
    """The error of an installation; nothing may be installed by it."""
    before = reader.store.lock()
    with pytest.raises((Changed, Refused, ServerFailed)) as caught:
        reader.install(GREET)
    assert reader.store.lock() == before
    assert not (reader.project / ".agents/skills/greet").exists()
    assert caught.value.hint
    return caught.value


def only(words: str, error) -> None:
    """The message is that of one attack, and of no other."""
    every = {words for _, words in (*ATTACKS, *NETWORK)}
    assert {one for one in every if re.search(one, error.message)} == {words}


@pytest.mark.parametrize(("attack", "words"), ATTACKS, ids=lambda one: getattr(one, "__name__", ""))
def test_attack(hub, reader, attack, words):
    attack(hub, reader)
    only(words, refused(reader))


KINDS = ["state", "commits", "index root", "index node", "index bin", "revoked", "blobs",
         "search root", "search bin"]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_flipped_byte_in_every_kind_of_file(hub, reader, kind):
    if kind == "commits":  # read when there is a history to prove
        reader.install("acme/part")
        hub.release("acme/more")
    state = hub.build()
    root = hub.rows("index", state.index)
    bins = hub.rows("search", state.search)
    paths = {
        "state": ["state"],
        "commits": ["commits/000000000004"],
        "index root": [content_path("index", state.index)],
        "index node": [content_path("index", row["node"]) for row in root],
        "index bin": [bin_path(hub, state)],
        "revoked": [content_path("revoked", state.revoked)],
        "blobs": [content_path("blobs", row["blob"]) for row in hub.releases],
        "search root": [content_path("search", state.search)],
        "search bin": [content_path("search", row["bin"]) for row in bins],
    }
    for path in paths[kind]:
        flip(hub, path)
    if kind.startswith("search"):
        with pytest.raises(Changed, match=r"`search/.*` of the hub is damaged"):
            Hubs.of(reader.satchel.settings).search("greet")
        return
    error = refused(reader)
    assert kind.split()[0] in error.message or "was not signed" in error.message


def endless(handler, head=b"\r\n"):
    """A byte every few milliseconds."""
    try:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\n" + head)
        for _ in range(500):
            handler.wfile.write(b" ")
            handler.wfile.flush()
            time.sleep(0.005)
    except OSError:
        pass


def endless_headers(handler):
    endless(handler, b"X: ")


def oversized(handler):
    handler.send_response(200)
    handler.end_headers()
    try:
        for _ in range(200):
            handler.wfile.write(bytes(1 << 20))
    except OSError:
        pass


def elsewhere(handler):
    reply(handler, 302, Location="http://127.0.0.1:9/state")


def broken(handler):
    reply(handler, 503)


NETWORK = [
    (endless, "did not end within"),
    (endless_headers, "did not end within"),
    (oversized, "is larger than the 16,384 bytes"),
    (elsewhere, "redirects to another address: `http://127.0.0.1:9/state`"),
    (broken, "status 503"),
]


@pytest.mark.parametrize(("answer", "words"), NETWORK, ids=lambda one: getattr(one, "__name__", ""))
def test_hostile_server(hub, reader, monkeypatch, answer, words):
    monkeypatch.setattr(download, "MAX_SECONDS", 0.2 if "end" in words else 60)
    with serving(hub.folder) as traffic:
        traffic.answers["state"] = answer
        reader.hubs[hub.name]["url"] = traffic.url
        only(words, refused(reader))


def test_a_slow_server_holds_a_command_no_longer_with_many_files(hub, monkeypatch):
    def slow(handler):
        handler.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
        for _ in range(10):
            handler.wfile.write(b" ")
            handler.wfile.flush()
            time.sleep(0.06)

    for name, seconds in {"MAX_SECONDS": 2.0, "TIMEOUT_S": 0.5, "_EXTRA_PER_FILE_S": 0.01}.items():
        monkeypatch.setattr(download, name, seconds, raising=False)
    with serving(hub.folder) as traffic:
        traffic.answers["state"] = slow
        files = download.FileReader(traffic.url)
        assert files.read("state", 100) == b" " * 10
        with pytest.raises(Refused, match="did not end within"):
            [files.read("state", 100) for _ in range(9)]


def test_a_damaged_row_is_no_crash(hub, reader):
    hub.bits = 0
    for row in ({"name": GREET}, {"publisher": 1}, {"name": GREET, "key": 5, "version": "1.0.0"}):
        hub.build(index=hub.index([row]))
        assert "is damaged" in refused(reader).message
