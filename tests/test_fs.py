"""File access below a root, atomic writes, syncing and locks."""

from __future__ import annotations

import errno
import os
import stat
import threading
import time

import pytest

from satchel import _fs
from satchel._fs import locked, make_folders, open_beneath, sync_tree, write_atomic
from satchel.errors import AccessDenied

KERNEL, STEPS, NAMES = "the kernel", "step by step", "by real names"


@pytest.fixture(params=[KERNEL, STEPS, NAMES])
def way(request, monkeypatch):
    """Each way of opening a file in its turn; `openat2` must be there on Linux."""
    if request.param == KERNEL:
        monkeypatch.setattr(_fs, "_kernel_helps", None)
    else:
        monkeypatch.setattr(_fs, "_kernel_helps", False)
    if request.param == NAMES:
        monkeypatch.setattr(os, "supports_dir_fd", os.supports_dir_fd - {os.open})
    return request.param


@pytest.fixture
def root(tmp_path):
    """A root with a file, a folder, and a secret beside it."""
    (tmp_path / "secret.txt").write_text("secret")
    (tmp_path / "root-2").mkdir()
    (tmp_path / "root-2" / "a.txt").write_text("secret")
    folder = tmp_path / "root"
    (folder / "sub" / "deep").mkdir(parents=True)
    (folder / "a.txt").write_text("inside")
    (folder / "sub" / "b.txt").write_text("inside")
    return str(folder)


def content(root: str, path: str) -> str:
    descriptor = open_beneath(root, path)
    with os.fdopen(descriptor) as stream:
        return stream.read()


@pytest.mark.parametrize("path", ["./a.txt", "sub//b.txt", "sub/deep/../../a.txt", "sub/./b.txt"])
def test_paths_inside_are_opened(way, root, path):
    assert content(root, path) == "inside"


@pytest.mark.req("B4")
@pytest.mark.parametrize(
    "path",
    [
        "..",
        "../secret.txt",
        "sub/../../secret.txt",
        "../root-2/a.txt",
        "../root/sub/../../secret.txt",
        "/etc/hostname",
        "a\0.txt",
    ],
)
def test_paths_that_lead_outside_are_refused(way, root, path):
    with pytest.raises(AccessDenied):
        open_beneath(root, path)


@pytest.mark.req("B4")
@pytest.mark.parametrize(
    ("link", "target"),
    [
        ("out.txt", "/etc/hostname"),
        ("out.txt", "sub/../../secret.txt"),
        ("sub/out.txt", "../../secret.txt"),
        ("out", "../root-2"),
    ],
)
def test_links_that_lead_outside_are_refused(way, root, link, target):
    os.symlink(target, os.path.join(root, link))
    path = link if link.endswith(".txt") else f"{link}/a.txt"
    with pytest.raises(AccessDenied):
        open_beneath(root, path)


def test_links_that_stay_inside_are_followed(way, root):
    os.symlink("sub/b.txt", f"{root}/link.txt")
    os.symlink("sub", f"{root}/folder")
    os.symlink("../a.txt", f"{root}/sub/up.txt")
    os.symlink("folder/../sub/up.txt", f"{root}/chain.txt")
    for path in ("link.txt", "folder/b.txt", "sub/up.txt", "folder/up.txt", "chain.txt"):
        assert content(root, path) == "inside", path


def test_a_root_may_itself_be_a_link(way, root, tmp_path):
    os.symlink("root", tmp_path / "alias")
    assert content(str(tmp_path / "alias"), "a.txt") == "inside"
    with pytest.raises(AccessDenied):
        open_beneath(str(tmp_path / "alias"), "../secret.txt")


def test_loops_and_missing_things_are_errors_of_the_system(way, root):
    os.symlink("loop", f"{root}/loop")
    os.symlink("nowhere", f"{root}/dangling")
    codes = {
        "loop": errno.ELOOP,
        "dangling": errno.ENOENT,
        "missing": errno.ENOENT,
        "": errno.ENOENT,
        "a.txt/b": errno.ENOTDIR,
        "\ud800": errno.EINVAL,
        "x" * 300: errno.ENAMETOOLONG,
    }
    for path, code in codes.items():
        with pytest.raises(OSError, match="Errno") as caught:
            os.close(open_beneath(root, path))
        assert caught.value.errno == code or (way == NAMES and path in ("loop", "a.txt/b")), path


def test_a_named_pipe_does_not_make_us_wait(way, root):
    os.mkfifo(f"{root}/pipe")
    began = time.monotonic()
    descriptor = open_beneath(root, "pipe")
    assert time.monotonic() - began < 20
    assert stat.S_ISFIFO(os.fstat(descriptor).st_mode)
    os.close(descriptor)


def test_no_descriptor_is_left_open(way, root):
    os.symlink("../secret.txt", f"{root}/out")
    before = len(os.listdir("/proc/self/fd"))
    paths = ("a.txt", "out", "missing", "sub/deep/../b.txt", "..", "loop/x", "\0", "sub/b.txt/x")
    for path in paths:
        try:
            os.close(open_beneath(root, path))
        except (AccessDenied, OSError):
            continue
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.req("B4")
@pytest.mark.parametrize("way", [KERNEL, STEPS], indirect=True)
def test_a_link_swapped_in_meanwhile_never_leads_outside(way, root):
    """Somebody exchanges a folder for a link to the outside, over and over.

    Comparing real names cannot win this race, and its docstring says so.
    """
    os.mkdir(f"{root}/flip")
    with open(f"{root}/flip/a.txt", "w") as file:
        file.write("inside")
    os.symlink("../root-2", f"{root}/evil")
    stop = threading.Event()

    def swap():
        while not stop.is_set():
            os.rename(f"{root}/flip", f"{root}/away")
            os.rename(f"{root}/evil", f"{root}/flip")
            os.rename(f"{root}/flip", f"{root}/evil")
            os.rename(f"{root}/away", f"{root}/flip")

    thread = threading.Thread(target=swap)
    thread.start()
    seen = set()
    try:
        until = time.monotonic() + 1.0
        while time.monotonic() < until:
            try:
                seen.add(content(root, "flip/a.txt"))
            except AccessDenied:
                seen.add("denied")
            except OSError:
                seen.add("error")
    finally:
        stop.set()
        thread.join()
    assert "secret" not in seen
    assert "inside" in seen


def test_a_refusal_for_one_file_does_not_turn_the_kernel_off(root, monkeypatch):
    monkeypatch.setattr(_fs, "_kernel_helps", True)
    monkeypatch.setattr(_fs, "_kernel", lambda *_: (-1, errno.EPERM))
    with pytest.raises(PermissionError):
        open_beneath(root, "a.txt")
    assert vars(_fs)["_kernel_helps"] is True


def test_a_race_that_does_not_end_is_an_error(root, monkeypatch):
    monkeypatch.setattr(_fs, "_kernel_helps", True)
    monkeypatch.setattr(_fs, "_kernel", lambda *_: (-1, errno.EAGAIN))
    with pytest.raises(BlockingIOError):
        open_beneath(root, "a.txt")


# --- writing ------------------------------------------------------------------------------


@pytest.mark.parametrize(("private", "mode"), [(True, 0o600), (False, 0o644)])
def test_a_file_is_written_with_its_folder(tmp_path, private, mode):
    path = tmp_path / "new" / "file.json"
    old = os.umask(0o022)
    try:
        write_atomic(str(path), b"one", private=private)
        write_atomic(str(path), b"two", private=private, durable=False)
    finally:
        os.umask(old)
    assert path.read_bytes() == b"two"
    assert stat.S_IMODE(path.stat().st_mode) == mode
    assert os.listdir(path.parent) == ["file.json"]


def test_a_failed_write_leaves_everything_as_it_was(tmp_path):
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "x").write_text("x")
    with pytest.raises(OSError, match="taken"):
        write_atomic(str(tmp_path / "taken"), b"data")
    assert os.listdir(tmp_path) == ["taken"]


@pytest.fixture
def synced(monkeypatch) -> list[str]:
    """The paths that were brought to the disk, in order."""
    paths: list[str] = []
    original = os.fsync

    def fsync(descriptor):
        paths.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        original(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    return paths


def test_a_durable_file_is_on_the_disk_with_its_name(tmp_path, synced):
    write_atomic(str(tmp_path / "file"), b"data")
    assert [os.path.dirname(synced[0]), synced[1]] == [str(tmp_path), str(tmp_path)]
    write_atomic(str(tmp_path / "cache"), b"data", durable=False)
    assert len(synced) == 2


def test_folders_are_made_from_the_top_and_are_on_the_disk(tmp_path, synced):
    make_folders(str(tmp_path / "a/b"))
    make_folders(str(tmp_path / "a/b"))
    assert synced == [str(tmp_path), str(tmp_path / "a")]
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        make_folders(str(tmp_path / "file"))


def test_a_few_files_are_synced_one_by_one_and_each_folder_after_its_files(tmp_path, synced):
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/b/file").write_text("x")
    (tmp_path / "link").symlink_to("a/b/file")
    sync_tree(str(tmp_path))
    assert synced == [str(tmp_path / path) for path in ("a/b/file", "a/b", "a", "")]


def test_a_lock_is_held_by_one_at_a_time(tmp_path):
    path = str(tmp_path / "new/lock")
    inside, most = [0], [0]

    def work():
        for _ in range(20):
            with locked(path):
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                time.sleep(0.0005)
                inside[0] -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1]
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(tmp_path / "new").st_mode) == 0o700
