"""How does a skill's folder become a program that can be started?

`Runtimes.prepare` is asked at every call. When nothing changed since the last time it only looks at
time stamps; when something did, the runtime that the manifest names is asked, which builds what is
missing. What is built stands in the cache, not in the skill's folder: that one is sealed.
"""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from satchel._language import say
from satchel.errors import BuildFailed
from satchel.runners.base import Program
from satchel.runners.contents import digest as _digest
from satchel.runners.contents import (
    digest_files,
    list_files,
    read_inside,
    stamp,
    take_stamps,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from satchel.runners.base import Cancel, Tier
    from satchel.runners.build import Workshop
    from satchel.runners.contents import Stamps
    from satchel.settings import Settings
    from satchel.skill.manifest import Manifest

_MACHINES = {"x86_64": 62, "amd64": 62, "aarch64": 183, "arm64": 183, "riscv64": 243, "i686": 3}
"""`e_machine` of ELF files by what `platform.machine` says."""
_KINDS = (
    (b"\x7fELF", "Linux"),
    (b"MZ", "Windows"),
    (b"\xcf\xfa\xed\xfe", "macOS"),
    (b"\xca\xfe\xba\xbe", "macOS"),
)


def _prepare_binary(folder: str, entry: str) -> Program:
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


class _Kept(NamedTuple):
    """A program, and what must not have changed for it to be the right one still."""

    program: Program
    digest: str
    stamps: Stamps | None
    content: str
    """Digest of all files, taken while the stamps were young: they may be the same for two."""
    stands_on: tuple[tuple[str, tuple[int, int, int, int]], ...]


class Runtimes:
    """Turns tool skills into programs.

    Args:
        cache: Satchel's cache folder; everything that is built stands below `runtimes` there.
        env: The environment to find tools in; the process's own when None.
        settings: Those that choose the sandbox of builds; loaded when None.
    """

    def __init__(
        self,
        cache: str,
        env: Mapping[str, str] | None = None,
        settings: Settings | None = None,
    ) -> None:
        self._folder = os.path.join(cache, "runtimes") if cache else ""
        self._env = env
        self._settings = settings
        self._kept: dict[tuple[str, str, str], _Kept] = {}

    def prepare(
        self,
        folder: str,
        manifest: Manifest,
        *,
        digest: str = "",
        progress: Callable[[str], None] | None = None,
        confirm: Callable[[], None] | None = None,
        cancel: Cancel | None = None,
        seconds: float = 0.0,
        own: bool = False,
    ) -> Program:
        """The program of a skill, built when it must be.

        Args:
            folder: The skill's folder.
            manifest: Its `skill.yaml`.
            digest: What the folder holds, when the caller has just checked that; it is not looked
                at again then.
            progress: Told one line at every stage of a build.
            confirm: Asked whenever the folder was looked at anew, after that and before anything is
                kept of it; raises when the folder is no longer what the caller checked.
            cancel: Becomes readable when nobody waits for it any more.
            seconds: That all of it may take; 0 leaves that to each tool's own bound.
            own: Whether the skill is the user's own: the setting `sandbox = own` lets it be built
                without a sandbox.

        Raises:
            Unsandboxed: it must be built, and there is no sandbox to do that in.
            MissingRuntime: a Python, Node or Go is needed that is not here.
            BuildFailed: dependencies cannot be had, or it does not build.
            BuildStopped: it was taken back, or took too long.
        """
        folder = os.path.abspath(folder)
        place = (folder, manifest.runtime, manifest.entry)
        try:
            stamps = None if digest else take_stamps(folder)
        except OSError as exc:
            raise BuildFailed(
                say("`{folder}` cannot be read: {reason}", folder=folder, reason=exc.strerror)
            ) from exc
        kept = self._kept.get(place)
        if (
            kept is not None
            and kept.digest == digest
            and kept.stamps == stamps
            and not (stamps is not None and stamps.young)
            and all(stamp(path) == seen for path, seen in kept.stands_on)
        ):
            return kept.program
        from satchel.runners.build import Workshop  # not before it is needed

        shop = Workshop(
            self._folder,
            self._env,
            choose=partial(_choose, self._settings, own=own),
            confirm=confirm,
            cancel=cancel,
            seconds=seconds,
        )
        try:
            program, stands_on = _prepare(shop, folder, manifest, progress or _tell_nobody)
        except OSError as exc:
            raise BuildFailed(
                say(
                    "`{skill}` cannot be prepared: {reason}",
                    skill=os.path.basename(folder),
                    reason=exc.strerror or str(exc),
                ),
                say("Look at `{path}`", path=exc.filename or self._folder),
            ) from exc
        content = _young_content(folder, stamps, kept)
        if kept is None or not _is_same(kept, program, stamps, content):
            program = program._replace(
                key=_digest(*program, digest, stamps and stamps.marks, content)
            )
        else:
            program = kept.program
        if confirm is not None:
            confirm()
        seen = tuple((path, stamp(path)) for path in stands_on)
        self._kept[place] = _Kept(program, digest, stamps, content, seen)
        return program


def _prepare(
    shop: Workshop, folder: str, manifest: Manifest, progress: Callable[[str], None]
) -> tuple[Program, tuple[str, ...]]:
    if read_inside(folder, manifest.entry, only=0) is None:
        raise BuildFailed(
            say("`{entry}` is not in the skill's folder", entry=manifest.entry),
            say("`entry` in `skill.yaml` names the program's file"),
        )
    if manifest.runtime == "python":
        from satchel.runners import python

        return python.prepare(shop, folder, manifest.entry, progress)
    if manifest.runtime == "node":
        from satchel.runners import node

        found = node.find_node(shop, manifest.entry)
        packages = node.install(shop, found, folder, progress)
        return node.prepare(found, folder, manifest.entry, packages)
    if manifest.runtime == "go":
        from satchel.runners import go

        return go.prepare(shop, folder, manifest.entry, progress)
    return _prepare_binary(folder, manifest.entry), ()


def _choose(settings: Settings | None, *, own: bool) -> Tier:
    from satchel.runners.sandbox import choose
    from satchel.settings import load_settings

    return choose(settings or load_settings(), own=own)


def _tell_nobody(_line: str) -> None:
    pass


def _young_content(folder: str, stamps: Stamps | None, kept: _Kept | None) -> str:
    """The digest of all files, where stamps alone could hide a change; else empty."""
    was_young = kept is not None and kept.stamps is not None and kept.stamps.young
    if stamps is None or not (stamps.young or was_young):
        return ""
    return digest_files(folder, list_files(folder))


def _is_same(kept: _Kept, program: Program, stamps: Stamps | None, content: str) -> bool:
    """Whether nothing but time has passed, so that processes of this program are not old."""
    return (
        stamps is not None
        and kept.stamps is not None
        and kept.stamps.marks == stamps.marks
        and (kept.content == content or not kept.stamps.young)
        and kept.program._replace(key="") == program
    )
