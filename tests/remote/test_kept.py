"""What of the kept contents is dropped, when, and how much is there?"""

from __future__ import annotations

import json
import os
import time
from hashlib import sha256

import pytest

from satchel.library.supplier import Served, ServedFile
from satchel.remote.kept import (
    AGE,
    SPARE,
    UNUSED,
    drop_unlisted,
    forget_server,
    is_due,
    measure,
    note_use,
    sweep,
)


class Home:
    """A folder as servers leave it."""

    def __init__(self, path) -> None:
        self.path = path
        (path / "contents").mkdir()

    def content(self, data: bytes, *, age: float = 0.0) -> str:
        digest = sha256(data).hexdigest()
        file = self.path / "contents" / digest
        file.write_bytes(data)
        then = time.time() - age
        os.utime(file, (then, then))
        return digest

    def list(self, name: str, *digests: str, age: float = 0.0) -> str:
        file = self.path / f"{name}.json"
        file.write_text(json.dumps({"digests": [f"sha256:{digest}" for digest in digests]}))
        then = time.time() - age
        os.utime(file, (then, then))
        return str(self.path / name)

    def has(self, digest: str) -> bool:
        return (self.path / "contents" / digest).exists()


@pytest.fixture
def home(tmp_path) -> Home:
    return Home(tmp_path)


def test_what_some_list_has_stays_however_old(home):
    old = home.content(b"listed", age=100 * AGE)
    home.list("docs-1", old)
    assert sweep(str(home.path)).files == 0
    assert home.has(old)


def test_what_no_list_has_stays_for_a_while(home):
    young, old = home.content(b"young"), home.content(b"older", age=AGE + 60)
    home.list("docs-1")
    assert measure(str(home.path)) == (2, 10, 10)
    assert sweep(str(home.path)) == (1, 5, 5)
    assert home.has(young)
    assert not home.has(old)
    assert measure(str(home.path)) == (1, 5, 5)


def test_such_contents_are_bounded_and_the_youngest_stay(home):
    home.list("docs-1")
    found = [home.content(bytes([at]) * 1_000, age=at) for at in range(5)]
    assert sweep(str(home.path), spare=2_500).files == 3
    assert [home.has(one) for one in found] == [True, True, False, False, False]
    assert SPARE > 1 << 20


def test_what_cannot_be_known_to_be_needless_stays(home):
    old = home.content(b"old", age=AGE + 60)
    (home.path / "docs-1.json").mkdir()  # a list that cannot be read
    assert sweep(str(home.path)).files == 0
    assert home.has(old)


def test_a_list_that_nobody_used_goes_with_its_files(home):
    old = home.content(b"old", age=2 * UNUSED)
    folder = home.list("gone-1", old, age=UNUSED + 60)
    os.makedirs(f"{folder}/pdf")
    with open(f"{folder}/pdf/SKILL.md", "w") as file:
        file.write("text")
    used = home.list("used-1", age=UNUSED + 60)
    note_use(f"{used}.json")
    assert sweep(str(home.path)) == (2, 7, 3)
    assert not home.has(old)
    assert sorted(os.listdir(home.path)) == ["contents", "swept", "used-1.json"]


def test_files_that_the_list_has_no_more_are_dropped(tmp_path):
    for path in ("pdf/SKILL.md", "pdf/old/a.md", "gone/SKILL.md"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("text")
    file = ServedFile("SKILL.md", "skill://pdf/SKILL.md", "0" * 64, 4)
    served = Served("pdf", "pdf", file.uri, {}, {"SKILL.md": file}, "sha256:1")
    assert drop_unlisted(str(tmp_path), {"pdf": served}) == (2, 8, 0)
    assert [one.name for one in tmp_path.rglob("*")] == ["pdf", "SKILL.md"]
    assert drop_unlisted(str(tmp_path / "nowhere"), {}) == (0, 0, 0)


def test_with_a_server_goes_only_what_no_other_had(home):
    shared, own, read = home.content(b"shared"), home.content(b"own"), home.content(b"being read")
    home.list("docs-1", shared)  # `read` was in it until a moment ago: a conversation has it
    gone = home.list("other-1", shared, own)
    assert forget_server(str(home.path), [gone]).files == 1
    assert [home.has(one) for one in (shared, own, read)] == [True, False, True]
    assert not os.path.exists(f"{gone}.json")


def test_a_file_that_is_being_written_stays(tmp_path):
    half = tmp_path / "pdf" / ".SKILL.md.123.0a1b2c3d"
    half.parent.mkdir()
    half.write_text("text")
    assert drop_unlisted(str(tmp_path), {}).files == 0
    past = time.time() - 2 * 3600
    os.utime(half, (past, past))
    assert drop_unlisted(str(tmp_path), {}).files == 1


def test_what_a_process_left_half_written_goes(home):
    young, old = (home.path / "contents" / f".{at * 64}.77.0a1b2c3d" for at in "ab")
    listed = home.path / ".docs-1.json.77.0a1b2c3d"
    past = time.time() - 2 * 3600
    for file in (young, old, listed):
        file.write_text("half")
    for file in (old, listed):
        os.utime(file, (past, past))
    assert sweep(str(home.path)).files == 2
    assert young.exists()
    assert not old.exists()
    assert not listed.exists()


def test_a_look_is_due_once_an_hour(home):
    assert is_due(str(home.path))
    sweep(str(home.path))
    assert not is_due(str(home.path))
    past = time.time() - 7200
    os.utime(home.path / "swept", (past, past))
    assert is_due(str(home.path))
