"""The lockfile: one canonical form, and detection of any changed byte."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from satchel.errors import InvalidInput, LockBroken
from satchel.library.lockfile import (
    LOCK_FILE,
    LockedSource,
    LockedVerdict,
    LockEntry,
    check_id,
    is_id,
    parse_lock,
    read_lock,
    render_lock,
)
from satchel.skill.file_tree import digest_of

TEXT = st.text(max_size=12)
SOME = st.text(min_size=1, max_size=12)
MARKS = st.binary(min_size=32, max_size=32).map(lambda data: f"sha256:{data.hex()}")
PLACES = st.builds(LockedSource, SOME, TEXT, TEXT, TEXT, TEXT)
VERDICTS = st.builds(LockedVerdict, TEXT, st.lists(TEXT, max_size=3).map(tuple), TEXT, TEXT)


def _is_path(text: str) -> bool:
    return not {"", ".", ".."}.intersection(text.split("/")) and not set(text) & {"\0", "\\"}


@st.composite
def locks(draw):
    """Any lock."""
    rows = {}
    for key in draw(st.lists(SOME.filter(is_id), max_size=4, unique=True)):
        files = draw(st.dictionaries(SOME.filter(_is_path), MARKS, max_size=4))
        rows[key] = LockEntry(
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
    place = LockedSource("git", "https://example.org/x.git", "main", "c" * 40, "skills/one")
    verdict = LockedVerdict("review", ("net", "secret"), "satchel-1", "2030-01-01: read it")
    entry = LockEntry("one", "one", place, "MIT", digest_of(files), files, verdict, signer="me")
    return render_lock({"one": entry, "two": entry._replace(id="two", scan=LockedVerdict())})


@given(locks())
def test_a_written_lockfile_is_read_again(lock):
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


@pytest.mark.parametrize(
    "data",
    [
        b"{}",
        b"[]",
        b"[" * 100_000,
        b'{"version": 2, "skills": {}}',
        b'{"version": 1, "skills": {"a": {"name": "a", "source": {"kind": "x", "odd": "y"}}}}',
        b"\xff\xfe",
        b'{"version": ' + b"9" * 5_000 + b', "skills": {}}',
    ],
)
def test_an_invalid_lockfile_is_a_typed_error(data):
    with pytest.raises(LockBroken):
        parse_lock(data)


def _forged(entry: LockEntry) -> bytes:
    """A lockfile as somebody writes it who knows how the check sum is made."""
    import satchel.library.lockfile as module

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "entry_fault", lambda _: "")
        return render_lock({entry.id: entry})


BAD_IDS = [
    "../../../home/.ssh", "..", ".", "a/b", "/etc", "a\\b", "a\0b", "", ".hidden", "c:x", "a\nb",
    "a ", "a.", " a", "a\u202eb", "x" * 256, "\ud800",
]  # fmt: skip
BAD_PATHS = ["/etc/passwd", "../x", "a/../../x", "a\0b", "a\\b", "a//b", "./a", "", "a/"]


@pytest.mark.parametrize("name", BAD_IDS)
def test_a_lock_names_no_folder_but_a_skills(name):
    entry = parse_lock(_lock())["one"]._replace(id=name)
    data = _forged(entry)
    with pytest.raises(LockBroken):
        parse_lock(data)
    with pytest.raises(InvalidInput):
        render_lock({name: entry})
    with pytest.raises(InvalidInput):
        check_id(name)


@pytest.mark.parametrize("path", BAD_PATHS)
def test_a_lock_lists_no_file_but_a_skills(path):
    files = {path: "sha256:" + "a" * 64}
    entry = parse_lock(_lock())["one"]._replace(files=files, tree=digest_of(files))
    data = _forged(entry)
    with pytest.raises(LockBroken, match="cannot be a file of a skill"):
        parse_lock(data)


def test_a_digest_that_is_not_that_of_the_files_is_noticed():
    entry = parse_lock(_lock())["one"]
    data = _forged(entry._replace(tree="sha256:" + "0" * 64))
    with pytest.raises(LockBroken, match="the digest of `one` is not that of its files"):
        parse_lock(data)


def test_a_lock_that_is_a_link_or_a_pipe_is_not_read(tmp_path):
    (tmp_path / "key").write_bytes(_lock())
    path = tmp_path / LOCK_FILE
    path.symlink_to("key")
    with pytest.raises(LockBroken, match="it is a link"):
        read_lock(str(path))
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(LockBroken):
        read_lock(str(path))
