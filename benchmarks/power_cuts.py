"""Power cuts of a hub's writers, on real file systems in loop devices. Needs root.

    python benchmarks/power_cuts.py --out benchmarks/results/power_cuts.json

A process publishes and builds in a hub on an ext4 or XFS image. At a random moment the file system
is shut down without writing its log, as a power cut would do: what was not synced is lost. Then it
is mounted again, which replays the log, `hub build` is run, and every release that was acknowledged
before the cut must be there, with its blob. The control is the same without syncing. A lock that
the cut left in a git repository is removed before the build, as the guide for keepers says.
"""

from __future__ import annotations

import argparse
import fcntl
import itertools
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

from measure import machine

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from hub.conftest import write_skill_at
from satchel import _fs
from satchel.errors import SatchelError
from satchel.hub import build as hub_build
from satchel.hub import publish as hub_publish
from satchel.hub import storage as hub_storage
from satchel.hub.ledger import open_ledger
from satchel.store.signing import SshKey

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from satchel.hub.publish import Draft

_SHUTDOWN = 0x8004587D  # EXT4_IOC_SHUTDOWN, XFS_IOC_GOINGDOWN
_WITHOUT_LOG = 2
_IMAGE_MIB = {"ext4": 96, "xfs": 320}
_LONGEST_S = {"folder": 3.0, "git": 4.0}
_RELEASES = 12


class Bench:
    """An image with an empty hub, of which each cut gets a copy."""

    def __init__(self, folder: Path, system: str, kind: str) -> None:
        self._model = folder / "model.img"
        self._numbers = itertools.count()
        self._mount = folder / "disk"
        self._mount.mkdir(exist_ok=True)
        self.store = str(self._mount / ("hub.git" if kind == "git" else "hub"))
        self.kind = kind
        self.key = SshKey(_make_key(folder))
        self.drafts = _make_drafts(folder / "skills")
        with open(self._model, "wb") as file:
            file.truncate(_IMAGE_MIB[system] << 20)
        force = "-F" if system == "ext4" else "-f"
        subprocess.run([f"mkfs.{system}", "-q", force, self._model], check=True)
        with self._device(self._model) as device, self._mounted(device):
            if kind == "git":
                words = ["git", "init", "-q", "--bare", "-b", "main", self.store]
                subprocess.run(words, check=True)
            _in_child(self._make_hub)

    @contextmanager
    def _device(self, image: Path) -> Generator[str]:
        """Attach an image: before and after a cut it must be the same device."""
        words = ["losetup", "--find", "--show", str(image)]
        device = subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()
        try:
            yield device
        finally:
            subprocess.run(["losetup", "--detach", device], check=True)

    @contextmanager
    def _mounted(self, device: str) -> Generator[None]:
        subprocess.run(["mount", device, self._mount], check=True)
        try:
            yield
        finally:
            words = ["umount", str(self._mount)]
            while subprocess.run(words, check=False, stderr=subprocess.DEVNULL).returncode:
                time.sleep(0.1)  # a process that was killed still has a file open

    def cut(self, moment: float, *, synced: bool) -> dict[str, Any]:
        """Cut the power once; what was acknowledged, what of it is lost, and what else is wrong."""
        image = self._model.with_name(f"disk-{next(self._numbers)}.img")
        subprocess.run(["cp", "--sparse=always", self._model, image], check=True)
        with self._device(image) as device:
            with self._mounted(device):
                acknowledged = self._interrupt(moment, synced=synced)
            with self._mounted(device):
                after = _in_child(self._build_and_check)
        image.unlink()
        lost = sorted(acknowledged.difference(after["present"]))
        return {"acknowledged": len(acknowledged), "lost": lost, "trouble": after["trouble"]}

    def _make_hub(self) -> dict[str, Any]:
        with hub_storage.open_storage(self.store, create=True) as storage:
            hub_build.create_hub(storage, "skills.acme.example", self.key)
            hub_publish.allow(open_ledger(storage), ["acme"], self.key.public, self.key)
        return {}

    def _build_and_check(self) -> dict[str, Any]:
        """Build, as the keeper does; the releases that are there, and what is wrong."""
        for lock in Path(self.store).glob("refs/heads/*.lock"):
            lock.unlink()  # as the guide says: git never removes it
        try:
            with hub_storage.open_storage(self.store) as storage:
                hub_build.build(storage, self.key, pages=True)
                problems = hub_build.check_hub(storage, self.key.public).problems
                releases = open_ledger(storage).load_all()
        except SatchelError as exc:
            return {"present": [], "trouble": exc.message[:300]}
        present = [f"{release.name}@{release.version}" for release in releases]
        return {"present": present, "trouble": "; ".join(problems)[:300]}

    def _interrupt(self, moment: float, *, synced: bool) -> set[str]:
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            os.setsid()
            os.close(reader)
            with suppress(SatchelError, OSError):  # the file system is gone
                self._work(writer, synced=synced)
            os._exit(0)
        os.close(writer)
        os.set_blocking(reader, False)
        time.sleep(moment)
        text = b""
        with suppress(BlockingIOError):
            text = os.read(reader, 1 << 16)  # what is acknowledged later does not count
        folder = os.open(self._mount, os.O_RDONLY)
        fcntl.ioctl(folder, _SHUTDOWN, struct.pack("I", _WITHOUT_LOG))
        os.close(folder)
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(reader)
        return set(text.decode().split())

    def _work(self, writer: int, *, synced: bool) -> None:
        """Publish and build in turn, and say what is acknowledged."""
        if not synced:
            mock.patch.object(os, "fsync").start()
            mock.patch.object(_fs, "_sync_file_system").start()
            receiver = "git -c core.fsync=none receive-pack"
            mock.patch.object(hub_storage, "_DURABLE_RECEIVER", receiver).start()
        for number, draft in enumerate(self.drafts):
            with hub_storage.open_storage(self.store) as storage:
                hub_publish.publish(open_ledger(storage), [draft], self.key)
            os.write(writer, draft.title.encode() + b"\n")
            if number % 2:
                with hub_storage.open_storage(self.store) as storage:
                    hub_build.build(storage, self.key, pages=True)


def _in_child(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Run in a process of its own: threads of the storage would not survive a later fork."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(reader)
        with open(writer, "w") as file:
            json.dump(work(), file)
        os._exit(0)
    os.close(writer)
    with open(reader) as file:
        text = file.read()
    os.waitpid(child, 0)
    return json.loads(text)


def _make_key(folder: Path) -> str:
    path = str(folder / "key")
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)
    return path


def _make_drafts(folder: Path) -> list[Draft]:
    paths = [folder / "acme" / f"skill-{number}" for number in range(_RELEASES)]
    return [hub_publish.read_draft(str(write_skill_at(path, "1.0.0")), "acme") for path in paths]


def main() -> int:
    """Cut the power as often as asked for; 1 when an acknowledged release was lost."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--cuts", type=int, default=200)
    parser.add_argument("--controls", type=int, default=20)
    parser.add_argument("--kinds", nargs="+", default=["folder", "git"])
    parser.add_argument("--systems", nargs="+", default=["ext4", "xfs"])
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    result: dict[str, Any] = {"machine": machine()}
    harm = 0
    for kind in options.kinds:
        for system in options.systems:
            folder = Path(tempfile.mkdtemp(prefix="power-"))
            bench = Bench(folder, system, kind)
            chance = random.Random(f"{kind} {system}")
            for name, count in (("cuts", options.cuts), ("controls", options.controls)):
                rows = [
                    bench.cut(chance.uniform(0.0, _LONGEST_S[kind]), synced=name == "cuts")
                    for _ in range(count)
                ]
                bad = [row for row in rows if row["lost"] or row["trouble"]]
                result[f"{kind} {system} {name}"] = row = {
                    "cuts": count,
                    "acknowledged": sum(row["acknowledged"] for row in rows),
                    "lost": sum(len(row["lost"]) for row in rows),
                    "with_harm": len(bad),
                    "examples": [row["trouble"] or row["lost"] for row in bad[:5]],
                }
                harm += len(bad) if name == "cuts" else 0
                print(kind, system, name, json.dumps(row), flush=True)
                if options.out:
                    options.out.write_text(json.dumps(result, indent=1) + "\n")
            shutil.rmtree(folder)
    return 1 if harm else 0


if __name__ == "__main__":
    sys.exit(main())
