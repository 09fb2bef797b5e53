"""Artifacts are found by their digest, and damaged ones are never returned."""

from __future__ import annotations

import asyncio
import os

import pytest

from satchel.errors import StepFailed
from satchel.goals.artifacts import FolderArtifacts, MemoryArtifacts, digest_of, load, reference

DATA = b'{"a": [1, 2, 3]}'


@pytest.fixture(params=["memory", "folder"])
def store(request, tmp_path):
    return MemoryArtifacts() if request.param == "memory" else FolderArtifacts(str(tmp_path / "x"))


async def test_bytes_come_back(store):
    digest = await store.put(DATA)
    assert digest == digest_of(DATA) == await store.put(DATA)
    assert await store.get(digest) == DATA
    assert await load(reference(digest, DATA), store) == {"a": [1, 2, 3]}
    assert await load("as it is", store) == "as it is"


@pytest.mark.parametrize("digest", ["0" * 64, "../../etc/passwd", "", "0" * 63 + "\0"])
def test_what_is_not_there_is_said(store, digest):
    with pytest.raises(StepFailed) as caught:
        asyncio.run(store.get(digest))
    assert (caught.value.code, caught.value.retryable) == ("ARTEFACT_MISSING", False)


def test_a_damaged_file_is_refused_and_healed_by_doing_the_step_again(tmp_path):
    store = FolderArtifacts(str(tmp_path))
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


async def test_each_goal_has_its_own(store):
    one, two = await store.of("one").put(DATA), await store.of("two").put(DATA)
    bare = await store.put(DATA)
    assert (one, two) == (f"one/{bare}", f"two/{bare}")
    await store.forget("one")
    with pytest.raises(StepFailed, match="is missing or damaged"):
        await store.get(one)
    assert await store.get(two) == await store.of("three").get(bare) == DATA
    await store.of("one").put(DATA)
    assert await store.get(one) == DATA


@pytest.mark.parametrize("goal", ["", "..", "../x", "a/b", ".", "a\0b", "é", "/"])
def test_what_is_no_goal_is_no_path(tmp_path, goal):
    store = FolderArtifacts(str(tmp_path / "x"))
    outside = tmp_path / "keep"
    outside.write_text("kept")
    name = f"{goal}/{'0' * 64}"
    with pytest.raises(StepFailed) as caught:
        asyncio.run(store.get(name))
    assert caught.value.code == "ARTEFACT_MISSING"
    with pytest.raises(StepFailed):
        asyncio.run(store.forget(goal))
    assert outside.exists()
