"""Ordinary archives, however they were made, give the tree that went in."""

from __future__ import annotations

import io
import os
import stat
import tarfile
import zipfile

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from satchel.errors import Unsafe
from satchel.skill.file_tree import MemoryTree, hash_tree
from satchel.store.archive import open_archive
from satchel.store.export import write_archive
from satchel.store.sources import subtree
from sizes import sized
from store.trees import CONTENT, PROGRAMS, good_tree

WANT = hash_tree(good_tree())


class Pipe(io.RawIOBase):
    """A file that cannot seek, so that writers put sizes behind the content."""

    def __init__(self) -> None:
        self.data = b""

    def writable(self) -> bool:
        return True

    def write(self, data) -> int:
        self.data += bytes(data)
        return len(data)


def _fill_zip(target, method, *, folders=False, **options) -> None:
    with zipfile.ZipFile(target, "w", method, **options) as made:
        seen = set()
        for path, data in CONTENT.items():
            folder = os.path.dirname(path)
            if folders and folder and folder not in seen:
                seen.add(folder)
                made.mkdir(folder) if hasattr(made, "mkdir") else made.writestr(f"{folder}/", b"")
            info = zipfile.ZipInfo(path)
            info.external_attr = (stat.S_IFREG | (0o755 if path in PROGRAMS else 0o644)) << 16
            info.compress_type = method
            made.writestr(info, data)


def _fill_tar(target, mode, form, *, dotted=False) -> None:
    with tarfile.open(target, mode, format=form) as made:
        if dotted:
            top = tarfile.TarInfo("./")
            top.type = tarfile.DIRTYPE
            made.addfile(top)
        for path, data in CONTENT.items():
            info = tarfile.TarInfo(f"./{path}" if dotted else path)
            info.size = len(data)
            info.mode = 0o755 if path in PROGRAMS else 0o644
            made.addfile(info, io.BytesIO(data))


def _check(path) -> None:
    with open_archive(str(path)) as tree:
        assert hash_tree(tree) == WANT
        assert tree.ignored == ()


@pytest.mark.parametrize("folders", [False, True])
@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_zip(tmp_path, method, folders):
    _fill_zip(tmp_path / "a.zip", method, folders=folders)
    _check(tmp_path / "a.zip")


FORMS = {"ustar": tarfile.USTAR_FORMAT, "pax": tarfile.PAX_FORMAT, "gnu": tarfile.GNU_FORMAT}


@pytest.mark.parametrize("dotted", [False, True])
@pytest.mark.parametrize("packing", ["", "gz"])
@pytest.mark.parametrize("form", FORMS)
def test_a_tar(tmp_path, form, packing, dotted):
    path = tmp_path / "a.tar"
    try:
        _fill_tar(path, f"w:{packing}", FORMS[form], dotted=dotted)
    except ValueError:
        # ustar has no room for the long name: the others show it
        assert form == "ustar"
        return
    _check(path)


def test_files_of_desktops_are_left_out_and_named(tmp_path):
    left = ("__MACOSX/._SKILL.md", "s/.DS_Store", "s/.git/config", "s/.git/hooks/x", "s/Thumbs.db")
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as made:
        for name in ("s/SKILL.md", *left):
            made.writestr(name, b"x")
    with open_archive(str(tmp_path / "a.zip")) as tree:
        assert [file.path for file in tree.files] == ["s/SKILL.md"]
        assert tree.ignored == ("__MACOSX", "s/.DS_Store", "s/.git", "s/Thumbs.db")


def test_ignored_entries_are_checked(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as made:
        made.writestr("__MACOSX/../../x", b"x")
    with pytest.raises(Unsafe) as caught:
        open_archive(str(tmp_path / "a.zip"))
    assert caught.value.rule == "path-escapes"


def test_a_refusal_names_the_file_without_tricks(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as made:
        made.writestr("a\x1b[31m`red`", b"x")
    with pytest.raises(Unsafe) as caught:
        open_archive(str(tmp_path / "a.zip"))
    assert "a\\u001b[31m\\u0060red\\u0060" in caught.value.message
    assert caught.value.hint


# --- properties ---------------------------------------------------------------------------

_part = st.text(st.sampled_from("abcdXYé日-_ ."), min_size=1, max_size=8).filter(
    lambda text: text[-1] not in ". " and text not in {".", ".."}
)
_path = st.lists(_part, min_size=1, max_size=4).map("/".join)
_content = st.dictionaries(_path, st.binary(max_size=700), min_size=1, max_size=6)


def _fits(content) -> bool:
    """Whether the names are free of conflicts, which have tests of their own."""
    try:
        subtree(MemoryTree(content))
    except Unsafe:
        return False
    return True


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=_content.filter(_fits), x=st.data())
def test_a_written_archive_is_read_again(tmp_path, content, x):
    programs = frozenset(x.draw(st.sets(st.sampled_from(sorted(content)))))
    tree = MemoryTree(content, programs)
    target = str(tmp_path / "a.zip")
    write_archive(tree, target, prefix="top")
    with open_archive(target) as read:
        assert hash_tree(subtree(read, "top")) == hash_tree(tree)


@pytest.fixture(scope="module")
def bases(tmp_path_factory) -> dict[str, bytes]:
    """Archives by how they were made."""
    folder = tmp_path_factory.mktemp("bases")
    _fill_zip(folder / "zip", zipfile.ZIP_DEFLATED, folders=True)
    pipe = Pipe()
    _fill_zip(pipe, zipfile.ZIP_DEFLATED)
    (folder / "late").write_bytes(pipe.data)
    _fill_tar(folder / "tar.gz", "w:gz", tarfile.GNU_FORMAT)
    return {name: (folder / name).read_bytes() for name in os.listdir(folder)}


@pytest.mark.timeout(240)
@settings(max_examples=sized(60, 250), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(x=st.data())
def test_a_flipped_bit_is_a_refusal_or_nothing_at_all(tmp_path, bases, x):
    form = x.draw(st.sampled_from(sorted(bases)))
    data = bytearray(bases[form])
    near = st.one_of(st.integers(0, 400), st.integers(len(data) - 700, len(data) - 1))
    for _ in range(x.draw(st.integers(1, 3))):
        at = x.draw(st.one_of(near, st.integers(0, len(data) - 1))) % len(data)
        data[at] ^= 1 << x.draw(st.integers(0, 7))
    target = tmp_path / "flipped"
    target.write_bytes(data)
    try:
        with open_archive(str(target)) as tree:
            found = hash_tree(tree)
    except Unsafe:
        return
    if form == "tar.gz":
        assert found == WANT  # only the gzip header has bits that mean nothing
        return
    # A name may differ if both headers were hit alike, or a mode; content never does.
    for path, mark in found.files.items():
        if path in WANT.files:
            assert mark.removesuffix(" x") == WANT.files[path].removesuffix(" x")
