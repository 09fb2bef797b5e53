"""A tool skill on the workbench: its program is run as it is, in the sandbox, whoever trusts it.

An agent's call goes through the toolset, which checks arguments and trust first. An author also
wants to know what the program does with what the toolset would never hand it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from satchel.errors import InvalidInput
from satchel.skill.manifest_read import load_manifest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from satchel.facade import Satchel
    from satchel.runners.base import Program, RunResult
    from satchel.skill.manifest import Manifest, ToolDecl

TRIAL_TIMEOUT = 30.0
"""Seconds for one case, where the manifest does not say."""


class Bench(NamedTuple):
    """A program that is ready to run."""

    satchel: Satchel
    folder: str
    manifest: Manifest
    program: Program
    own: bool = False
    """The skill is the user's own work."""

    def run(self, tool: ToolDecl, arguments: Mapping[str, Any], workspace: str = "") -> RunResult:
        """Hand arguments to the program as they are; secrets are not given.

        Args:
            tool: Which of its tools.
            arguments: Whatever they are.
            workspace: The folder it may see, in place of the project.

        Raises:
            Unsandboxed: there is no sandbox, and the user did not agree to go without.
        """
        from satchel.runners.base import Limits, Powers, RunRequest

        access = self.manifest.files.access
        place = (workspace or self.satchel.settings.project) if access != "none" else ""
        writable = access == "write" and bool(workspace)
        return self.satchel.engine.run(
            RunRequest(
                self.folder,
                tool.name,
                arguments,
                self.program,
                # The project itself is never written by a trial.
                Powers(place, writable=writable, network=self.manifest.network),
                Limits(timeout=self.manifest.timeout or TRIAL_TIMEOUT),
                several=self.manifest.several,
                own=self.own,
            )
        )


def bench_of(satchel: Satchel, folder: str, *, own: bool = False) -> Bench:
    """Put the skill of a folder on the bench; its program is built when it must be.

    Raises:
        InvalidInput: its skill.yaml cannot be used.
        MissingRuntime: a Python, Node or Go is needed that is not here.
        BuildFailed: dependencies cannot be had, or it does not build.
    """
    reading = load_manifest(folder)
    if reading.manifest is None:
        first = next(one for one in reading.problems if one.severity == "error")
        raise InvalidInput(first.message, first.fix)
    program = satchel.engine.prepare(folder, reading.manifest)
    return Bench(satchel, folder, reading.manifest, program, own)
