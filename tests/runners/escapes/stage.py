"""What the programs of this folder try to reach: more than the self-check sets up."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import socket

from satchel.runners import tiers
from satchel.runners.seccomp import ARCHES

CANARY = "SATCHEL_ESCAPE_CANARY"
_SHM = 0o1600
"""IPC_CREAT, and readable by its owner alone."""


class Stage(tiers.ProbeStage):
    """Files, memory and devices outside the sandbox, beside those of the self-check."""

    def _set_up(self) -> None:
        super()._set_up()
        self._buffer = ctypes.create_string_buffer(b"canary in memory")
        places = {name: os.path.join(self.root, name) for name in ("other", "outside")}
        places |= {name: self.targets[name] for name in ("skill", "workspace")}
        for place, name, text in (
            ("other", "SKILL.md", "canary: another skill"),
            ("skill", "data.txt", "of the skill"),
            ("outside", "notes.txt", "canary: notes"),
            ("outside", "taken.txt", "canary: taken"),
            ("outside", "tool", "#!/bin/sh\nexit 0\n"),
            ("workspace", "old.txt", "of the user"),
            ("workspace", "kept.txt", "of the user"),
        ):
            os.makedirs(places[place], exist_ok=True)
            with open(os.path.join(places[place], name), "w", encoding="utf-8") as file:
                file.write(text)
        os.chmod(os.path.join(places["outside"], "tool"), 0o700)
        log = os.path.join(self.root, "log.sock")
        self._listen(socket.AF_UNIX, socket.SOCK_DGRAM, log)
        self.targets |= {
            **places,
            "root": self.root,
            "host_fd": str(self.secret_fd),
            "address": str(ctypes.addressof(self._buffer)),
            "numbers": json.dumps(ARCHES[os.uname().machine].numbers),
            "device": _first("/dev/mem", "/dev/kmsg", "/dev/vda", "/dev/sda", "/dev/loop0"),
            "release_agent": _release_agent(),
            "unix_datagram": log,
            "shm_file": "/dev/shm/none",
            "shm_id": "-1",
        }
        self._share_memory()

    def _share_memory(self) -> None:
        shared = f"/dev/shm/{os.path.basename(self.root)}-memory"
        with contextlib.suppress(OSError), open(shared, "x", encoding="utf-8") as file:
            file.write("canary")
            self._open.callback(os.unlink, shared)
            self.targets["shm_file"] = shared
        libc = ctypes.CDLL(None)
        number = libc.shmget(0, 4096, _SHM)
        if number >= 0:
            self._open.callback(libc.shmctl, number, 0, None)
            self.targets["shm_id"] = str(number)


def _first(*paths: str) -> str:
    return next((path for path in paths if os.path.exists(path)), paths[0])


def _release_agent() -> str:
    base = "/sys/fs/cgroup"
    with contextlib.suppress(OSError):
        for name in sorted(os.listdir(base)):
            path = os.path.join(base, name, "release_agent")
            if os.path.exists(path):
                return path
    return os.path.join(base, "cgroup.procs")
