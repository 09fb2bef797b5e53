"""How is a program that is compiled already started? As it is, if this machine can."""

from __future__ import annotations

import os

from satchel._language import say
from satchel.errors import BuildFailed
from satchel.runners.base import Program
from satchel.runners.contents import read_inside

_MACHINES = {"x86_64": 62, "amd64": 62, "aarch64": 183, "arm64": 183, "riscv64": 243, "i686": 3}
"""`e_machine` of ELF files by what `platform.machine` says."""
_KINDS = (
    (b"\x7fELF", "Linux"),
    (b"MZ", "Windows"),
    (b"\xcf\xfa\xed\xfe", "macOS"),
    (b"\xca\xfe\xba\xbe", "macOS"),
)


def prepare(folder: str, entry: str) -> Program:
    """A binary as a program.

    Raises:
        BuildFailed: it may not be executed, or was built for another system.
    """
    path = os.path.join(folder, *entry.split("/"))
    _check_system(folder, entry)
    if not os.access(path, os.X_OK):
        raise BuildFailed(
            say("`{entry}` may not be executed", entry=entry),
            say("Run `chmod +x {path}`", path=path),
        )
    return Program(argv=(path,), folder=folder, runtime="binary")


def _check_system(folder: str, entry: str) -> None:
    import platform
    import sys

    head = read_inside(folder, entry, only=20) or b""
    here = {"linux": "Linux", "win32": "Windows", "darwin": "macOS"}.get(sys.platform, "")
    built = next((name for magic, name in _KINDS if head.startswith(magic)), here)
    expected = _MACHINES.get(platform.machine().lower())
    machine = int.from_bytes(head[18:20], "little")
    if here and built != here:
        found = built
    elif built == "Linux" and head[:4] == b"\x7fELF" and expected and machine != expected:
        found = next((name for name, code in _MACHINES.items() if code == machine), str(machine))
    else:
        return
    raise BuildFailed(
        say("`{entry}` was built for {system}, not for this machine", entry=entry, system=found),
        say("Build it here, or ship it as `runtime: go` so that Satchel builds it"),
    )
