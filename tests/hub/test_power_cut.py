"""What a power cut leaves of a hub in a folder: only what was synced to the disk by then."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from satchel.hub.build import build
from satchel.hub.storage import open_storage
from satchel.store.signing import SshKey

if TYPE_CHECKING:
    import pytest

CONTENT_FOLDERS = ("blobs", "changes", "commits", "index", "revoked", "search")


class _Disk:
    """Follows the system calls of this process: which files get a name, and what is synced."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.names: list[str] = []
        """Paths below the root in the order in which they got their content."""
        self.unsafe: list[tuple[str, str]] = []
        """A commit or state, and a file before it that a power cut would take."""
        self._content: dict[int, bytes] = {}
        self._entries: dict[int, dict[str, int]] = {}
        self._sync, self._replace, self._link = os.fsync, os.replace, os.link
        monkeypatch.setattr(os, "fsync", self._on_sync)
        monkeypatch.setattr(os, "replace", self._on_replace)
        monkeypatch.setattr(os, "link", self._on_link)

    def _on_sync(self, descriptor: int) -> None:
        self._sync(descriptor)
        info = os.fstat(descriptor)
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        if stat.S_ISDIR(info.st_mode):
            self._entries[info.st_ino] = {entry.name: entry.inode() for entry in os.scandir(path)}
        else:
            self._content[info.st_ino] = Path(path).read_bytes()

    def _on_replace(self, temporary: str, path: str) -> None:
        self._before_naming(path)
        self._replace(temporary, path)

    def _on_link(self, temporary: str, path: str) -> None:
        self._before_naming(path)
        self._link(temporary, path)

    def _before_naming(self, path: str) -> None:
        if not Path(path).is_relative_to(self.root):
            return
        name = str(Path(path).relative_to(self.root))
        if name == "state" or name.startswith("commits/"):
            left = self.left()
            self.unsafe += [(name, earlier) for earlier in self.names if not left.get(earlier)]
        if not name.startswith("probe-"):
            self.names.append(name)

    def left(self) -> dict[str, bytes]:
        """The files that a power cut would leave now; those without synced content are empty."""
        files: dict[str, bytes] = {}
        folders = [("", os.stat(self.root).st_ino)]
        for folder, number in folders:  # grows while it is walked
            for name, inode in self._entries.get(number, {}).items():
                if (self.root / folder / name).is_dir():
                    folders.append((f"{folder}{name}/", inode))
                else:
                    files[f"{folder}{name}"] = self._content.get(inode, b"")
        return files

    def write_left(self, folder: Path) -> str:
        """Write what a power cut would leave to a folder; returns its path."""
        for name, data in self.left().items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)
        return str(folder)


def test_an_acknowledged_build_survives_a_power_cut(
    shell, make_store, write_skill, tmp_path: Path, monkeypatch
):
    store = make_store("folder")
    disk = _Disk(Path(store), monkeypatch)
    shell.init(store, "acme")
    shell.publish(store, write_skill())
    published = disk.write_left(tmp_path / "published")
    write_skill("beta/plan")
    shell.build(store, "skills")
    built = disk.write_left(tmp_path / "built")
    assert disk.unsafe == []
    last_build = disk.names[len(disk.names) - disk.names[::-1].index("state", 1) :]
    kinds = [name.partition("/")[0] for name in last_build if name.startswith(CONTENT_FOLDERS)]
    commits = kinds.index("commits"), len(kinds) - kinds[::-1].index("commits")
    assert {"blobs", "changes"} <= set(kinds[: commits[1]])
    assert {"index", "revoked", "search"} <= set(kinds[commits[1] :])
    assert last_build[-1] == "state"
    shell.build(published)
    assert shell.check(published)["releases"] == 1
    assert shell.check(built)["releases"] == 2
    assert Path(built, "beta", "plan", "index.html").read_bytes()


def test_without_syncing_a_power_cut_takes_the_build(
    shell, make_store, write_skill, monkeypatch, keys
):
    """The negative control: the same calls on a storage that syncs nothing."""
    store = make_store("folder")
    shell.init(store, "acme")
    shell.publish(store, write_skill())
    disk = _Disk(Path(store), monkeypatch)
    with open_storage(store, durable=False) as storage:
        build(storage, SshKey(keys["hub"]))
    assert {name for name, _ in disk.unsafe} == {"state"}
    assert disk.left() == {}


def test_a_push_to_a_repository_on_this_machine_is_on_the_disk(
    shell, make_store, write_skill, tmp_path: Path
):
    """Each object before the branch that names it, and everything before it is acknowledged."""
    store = make_store("git")
    shell.init(store, "acme")
    log = tmp_path / "calls.log"
    words = ["publish", str(write_skill()), store, "--as", "acme", "--key", shell.keys["acme"]]
    before = set(Path(store, "objects").rglob("*"))
    calls = "trace=fsync,fdatasync,syncfs,rename,link"
    command = ["strace", "-f", "-y", "-o", str(log), "-e", calls, sys.executable, "-m", "satchel"]
    subprocess.run([*command, *words], check=True, capture_output=True)
    lines = [line for line in log.read_text().splitlines() if store in line]
    new_files = [path for path in Path(store, "objects").rglob("*") if path not in before]
    objects = [path for path in new_files if path.is_file()]
    assert objects
    (branch,) = [at for at, line in enumerate(lines) if 'main.lock", ' in line]
    synced = [line for line in lines[:branch] if "sync(" in line and "/objects/" in line]
    assert len(synced) >= len(objects)
    after = [line for line in lines[branch + 1 :] if "sync" in line]
    assert any("syncfs(" in line or "refs/heads>" in line for line in after)


def test_a_lock_that_a_power_cut_left_is_named(shell, make_store, write_skill):
    store = make_store("git")
    shell.init(store)
    write_skill()
    lock = Path(store, "refs/heads/main.lock")
    lock.touch()
    os.utime(lock, (0, 0))
    words = ["hub", "build", store, "skills", "--key", shell.keys["hub"]]
    shell.fails(4, "The repository is locked", *words)
    assert "refs/heads/main.lock" in "".join(shell.err.split())
    lock.unlink()
    shell.ok(*words)
    assert shell.check(store)["releases"] == 1
