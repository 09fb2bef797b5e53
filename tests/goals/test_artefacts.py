"""Large outputs are found by what they are, and a damaged one is never handed out."""

from __future__ import annotations

import asyncio
import json
import os
import threading

import pytest

from satchel.errors import StepFailed
from satchel.goals import artefacts
from satchel.goals.artefacts import (
    FolderArtefacts,
    MemoryArtefacts,
    digest_of,
    load,
    reference,
    shown,
)

DATA = b'{"a": [1, 2, 3]}'


@pytest.fixture(params=["memory", "folder"])
def store(request, tmp_path):
    return MemoryArtefacts() if request.param == "memory" else FolderArtefacts(str(tmp_path / "x"))


def test_bytes_come_back(store):
    async def main():
        digest = await store.put(DATA)
        assert digest == digest_of(DATA) == await store.put(DATA)
        assert await store.get(digest) == DATA
        assert await load(reference(digest, DATA), store) == {"a": [1, 2, 3]}
        assert await load("as it is", store) == "as it is"

    asyncio.run(main())


@pytest.mark.parametrize("digest", ["0" * 64, "../../etc/passwd", "", "0" * 63 + "\0"])
def test_what_is_not_there_is_said(store, digest):
    with pytest.raises(StepFailed) as caught:
        asyncio.run(store.get(digest))
    assert (caught.value.code, caught.value.retryable) == ("ARTEFACT_MISSING", False)


def test_a_damaged_file_is_refused_and_healed_by_doing_the_step_again(tmp_path):
    store = FolderArtefacts(str(tmp_path))
    digest = asyncio.run(store.put(DATA))
    path = tmp_path / digest[:2] / digest
    path.write_bytes(DATA[:-1])
    with pytest.raises(StepFailed) as caught:
        asyncio.run(store.get(digest))
    assert caught.value.code == "ARTEFACT_DAMAGED"
    asyncio.run(store.put(DATA))
    assert asyncio.run(store.get(digest)) == DATA
    if os.name == "posix":
        assert path.stat().st_mode & 0o077 == 0


def test_a_reference_shows_how_it_begins():
    text = '"' + "好" * 5_000 + '"'
    made = reference("d", text.encode())
    assert made == {"$artefact": "d", "size": 15_002, "head": "好" * 300}
    assert shown(made) == "好" * 300 + "… (15002 bytes)"
    assert shown({"x": 1}) == {"x": 1}


def test_a_preview_fits_or_is_left_out():
    value = {"title": "T", "body": "大" * 1_000, "rows": [[[[[1]]]]] * 30}
    data = json.dumps(value, ensure_ascii=False).encode()
    made = reference("d", data, value, 10_000)["fields"]
    assert made["title"] == "T"
    assert made["body"] == "大" * 300 + "… (1000 characters)"
    assert made["rows"][20] == "… (10 more)"
    assert made["rows"][0] == [["… (1 members)"]]
    small = reference("d", data, value, 700)["fields"]
    assert len(json.dumps(small, ensure_ascii=False).encode()) <= 700
    assert small["body"].startswith("大" * 100 + "…")
    assert "fields" not in reference("d", data, value, 10)
    assert "fields" not in reference("d", b'"text"', "text", 10_000)
    many = {**{f"k{n}": [n] for n in range(30)}, "title": "T"}
    shown_fields = reference("d", b"", many, 10_000)["fields"]
    assert shown_fields["title"] == "T"
    assert shown_fields["…"] == "11 more"


def test_each_goal_has_its_own(store):
    async def main():
        one, two = await store.of("one").put(DATA), await store.of("two").put(DATA)
        bare = await store.put(DATA)
        assert (one, two) == (f"one/{bare}", f"two/{bare}")
        await store.forget("one")
        with pytest.raises(StepFailed, match="is not there"):
            await store.get(one)
        assert await store.get(two) == await store.of("three").get(bare) == DATA
        await store.of("one").put(DATA)
        assert await store.get(one) == DATA

    asyncio.run(main())


@pytest.mark.parametrize("goal", ["", "..", "../x", "a/b", ".", "a\0b", "é", "/"])
def test_what_is_no_goal_is_no_path(tmp_path, goal):
    store = FolderArtefacts(str(tmp_path / "x"))
    outside = tmp_path / "keep"
    outside.write_text("kept")
    name = f"{goal}/{'0' * 64}"
    with pytest.raises(StepFailed) as caught:
        asyncio.run(store.get(name))
    assert caught.value.code == "ARTEFACT_MISSING"
    with pytest.raises(StepFailed):
        asyncio.run(store.forget(goal))
    assert outside.exists()


def test_who_is_cancelled_while_it_writes_ends_when_it_has_written(tmp_path, monkeypatch):
    begun, go_on = threading.Event(), threading.Event()
    write = artefacts._write  # noqa: SLF001 - a slow disk

    def slow(path, data):
        begun.set()
        assert go_on.wait(10)
        write(path, data)

    monkeypatch.setattr(artefacts, "_write", slow)

    async def main():
        store = FolderArtefacts(str(tmp_path))
        putting = asyncio.create_task(store.of("g").put(DATA))
        assert await asyncio.to_thread(begun.wait, 10)
        for _ in range(3):  # impatient
            putting.cancel()
            await asyncio.sleep(0.02)
            assert not putting.done()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await putting
        assert store.has("g")
        await store.forget("g")
        assert not store.has("g")

    asyncio.run(main())
    assert os.listdir(tmp_path / "goals") == []
