"""The lockfile has one way to be written, and no byte of it changes unnoticed."""

from __future__ import annotations

import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from satchel.errors import LockBroken
from satchel.library.lockfile import (
    Locked,
    Place,
    Verdict,
    lock_path,
    matches,
    parse_lock,
    pending,
    read_lock,
    render_lock,
)
from satchel.skill.tree import digest_of

TEXT = st.text(max_size=12)
SOME = st.text(min_size=1, max_size=12)
MARKS = st.binary(min_size=32, max_size=32).map(lambda data: f"sha256:{data.hex()}")
PLACES = st.builds(Place, SOME, TEXT, TEXT, TEXT, TEXT)
VERDICTS = st.builds(Verdict, TEXT, st.lists(TEXT, max_size=3).map(tuple), TEXT, TEXT)


@st.composite
def locks(draw):
    """Any lock."""
    rows = {}
    for key in draw(st.lists(SOME, max_size=4, unique=True)):
        files = draw(st.dictionaries(SOME, MARKS, max_size=4))
        rows[key] = Locked(
            key,
            draw(TEXT),
            draw(PLACES),
            draw(TEXT),
            digest_of(files),
            files,
            draw(VERDICTS),
            draw(st.just("") | MARKS),
            draw(TEXT),
        )
    return rows


def _lock() -> bytes:
    files = {"SKILL.md": "sha256:" + "a" * 64, "scripts/é.py": f"sha256:{'b' * 64} x"}
    place = Place("git", "https://example.org/x.git", "main", "c" * 40, "skills/one")
    verdict = Verdict("review", ("net", "secret"), "satchel-1", "2030-01-01: read it")
    entry = Locked("one", "one", place, "MIT", digest_of(files), files, verdict, signer="me")
    return render_lock({"one": entry, "two": entry._replace(id="two", scan=Verdict())})


@given(locks())
def test_what_is_written_is_read(lock):
    data = render_lock(lock)
    assert parse_lock(data) == lock
    assert data.isascii()
    assert render_lock(dict(reversed(lock.items()))) == data


@given(locks(), st.data())
def test_any_changed_byte_is_noticed(lock, data):
    before = render_lock(lock)
    at = data.draw(st.integers(0, len(before) - 1))
    flip = data.draw(st.integers(1, 255))
    after = before[:at] + bytes([before[at] ^ flip]) + before[at + 1 :]
    with pytest.raises(LockBroken):
        parse_lock(after)


def test_every_byte_flipped_in_every_bit_is_noticed():
    before = _lock()
    for at in range(len(before)):
        for bit in range(8):
            after = bytearray(before)
            after[at] ^= 1 << bit
            with pytest.raises(LockBroken):
                parse_lock(bytes(after))


@given(locks().filter(bool), st.data())
def test_any_lost_or_doubled_line_is_noticed(lock, data):
    lines = render_lock(lock).splitlines(keepends=True)
    at = data.draw(st.integers(0, len(lines) - 1))
    for changed in (lines[:at] + lines[at + 1 :], lines[: at + 1] + lines[at:]):
        if changed != lines:
            with pytest.raises(LockBroken):
                parse_lock(b"".join(changed))


def test_line_ends_of_windows_are_let_pass():
    data = _lock()
    assert parse_lock(data.replace(b"\n", b"\r\n")) == parse_lock(data)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"[]",
        b"null",
        b"[" * 100_000,
        b'{"version": 2, "skills": {}}',
        b'{"version": 1, "skills": []}',
        b'{"version": 1, "skills": {"a": 1}}',
        b'{"version": 1, "skills": {"a": {"name": "a", "source": {"kind": "x", "odd": "y"}}}}',
        b"\xff\xfe",
        b'{"version": ' + b"9" * 5_000 + b', "skills": {}}',
    ],
)
def test_what_is_no_lock_is_an_error_of_its_kind(data):
    with pytest.raises(LockBroken):
        parse_lock(data)


def test_no_lockfile_locks_nothing(tmp_path):
    assert read_lock(str(tmp_path / "satchel.lock")) == {}
    assert read_lock(str(tmp_path / "none" / "satchel.lock")) == {}


@pytest.mark.timeout(5)
def test_a_pipe_in_its_place_makes_nobody_wait(tmp_path):
    path = str(tmp_path / "satchel.lock")
    os.mkfifo(path)
    with pytest.raises(LockBroken):
        read_lock(path)


def test_a_folder_in_its_place_is_broken(tmp_path):
    (tmp_path / "satchel.lock").mkdir()
    with pytest.raises(LockBroken):
        read_lock(str(tmp_path / "satchel.lock"))


def test_it_lies_beside_the_folder(tmp_path):
    assert lock_path(str(tmp_path / "skills")) == str(tmp_path / "satchel.lock")
    assert lock_path(str(tmp_path / "skills") + "/") == str(tmp_path / "satchel.lock")


def test_an_entry_knows_whether_its_digest_fits():
    entry = parse_lock(_lock())["one"]
    assert matches(entry)
    assert not matches(entry._replace(tree="sha256:" + "0" * 64))
    assert not entry.edited
    assert entry._replace(upstream="sha256:" + "0" * 64).edited


# --- the journal ---------------------------------------------------------------------------


def test_without_a_journal_nothing_is_pending(tmp_path):
    assert pending(str(tmp_path)) == {}


def test_a_journal_says_what_will_be_there(tmp_path):
    (tmp_path / ".satchel").mkdir()
    journal = tmp_path / ".satchel/journal.json"
    rows = [{"id": "one", "after": "sha256:1", "before": ""}, {"id": "two", "after": ""}]
    journal.write_text(json.dumps({"version": 1, "changes": rows}))
    assert pending(str(tmp_path)) == {"one": "sha256:1", "two": ""}


@pytest.mark.parametrize("data", ["", "{", "[]", "{}", '{"changes": 5}', '{"changes": [1]}'])
def test_a_damaged_journal_says_nothing(tmp_path, data):
    (tmp_path / ".satchel").mkdir()
    (tmp_path / ".satchel/journal.json").write_text(data)
    assert pending(str(tmp_path)) == {}
