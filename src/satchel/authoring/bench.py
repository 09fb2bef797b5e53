"""A tool skill on the workbench: its program is run as it is, in the sandbox, once it is trusted.

An agent's call goes through the toolset, which checks arguments and trust first. An author also
wants to know what the program does with what the toolset would never hand it. Trust is asked for
here all the same: whoever checks a skill may not have written it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

from satchel._language import say
from satchel.errors import InvalidInput, Refused
from satchel.skill.manifest_read import load_manifest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from satchel.facade import Satchel
    from satchel.library.tool_snapshot import ToolSkill, ToolSnapshot
    from satchel.runners.base import Program, RunResult
    from satchel.skill.manifest import Manifest, ToolDecl


class Untrusted(Refused):
    """Nobody approved the skill, so its program is not run."""

    def __init__(self, name: str) -> None:
        super().__init__(
            say("`{name}` is not trusted, so its program is not run", name=name),
            say("Read it with `satchel show {name}`, then run `satchel trust {name}`", name=name),
        )
        self.name = name


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
        from satchel.runners.base import Powers, RunRequest
        from satchel.tools.script_tool import limits_of

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
                limits_of(self.manifest, self.satchel.settings),
                several=self.manifest.several,
                own=self.own,
            )
        )


def bench_of(satchel: Satchel, folder: str, *, own: bool = False) -> Bench:
    """Put the skill of a folder on the bench; its program is built when it must be.

    Raises:
        InvalidInput: its skill.yaml cannot be used.
        Refused: nobody trusts it.
        MissingRuntime: a Python, Node or Go is needed that is not here.
        BuildFailed: dependencies cannot be had, or it does not build.
    """
    reading = load_manifest(folder)
    if reading.manifest is None:
        first = next(one for one in reading.problems if one.severity == "error")
        raise InvalidInput(first.message, first.fix)
    check_trust(satchel, folder)
    program = satchel.engine.prepare(folder, reading.manifest, own=own)
    return Bench(satchel, folder, reading.manifest, program, own)


def check_trust(satchel: Satchel, folder: str) -> None:
    """Nothing is built or run for a skill that an agent could not call.

    Raises:
        Refused: it is not trusted or not offered, or the library does not know the folder.
        SatchelError: it is not what was locked or approved.
    """
    look = satchel.library.tools()
    path = os.path.abspath(folder)
    found = next((one for one in (*look.skills, *look.hidden) if one.skill.base_dir == path), None)
    if found is None:
        if satchel.settings.trust == "all":
            return
        raise Refused(
            say("The folder is not one of this project's skills, so nobody trusts it"),
            say("Bring it in with `satchel import {path}`, then run it by its name", path=path),
        )
    skill = found.skill
    if skill.state == "untrusted" and skill.ref not in {*look.refused, *look.asking}:
        raise Untrusted(skill.typed)
    check_runnable(look, found)


def check_runnable(look: ToolSnapshot, source: ToolSkill) -> None:
    """Let pass what an agent could call too.

    Args:
        look: What the skill was found in.
        source: The skill, offered or hidden.

    Raises:
        Refused: it is not offered; the message says why its program is not run.
        SatchelError: it is not what was locked or approved.
    """
    skill = source.skill
    if skill.state == "active":
        return
    name = skill.typed
    exc, problem = look.refused.get(skill.ref), look.asking.get(skill.ref)
    if exc is not None:
        raise exc
    if problem is not None:
        raise Refused(problem.message, problem.fix)
    if skill.state == "shadowed":
        raise Refused(
            say("`{name}` is shadowed by `{winner}`, so its program is not run",
                name=name, winner=skill.winner),
            say("Rename it, or remove `{winner}`", winner=skill.winner),
        )  # fmt: skip
    if skill.state == "excluded":
        raise Refused(
            say("`{name}` is left out by a filter, so its program is not run", name=name),
            say("Change `include`, `exclude` or `tags` in `satchel.toml`"),
        )
    raise Refused(
        say("`{name}` is not trusted, so its program is not run", name=name),
        say("Read it with `satchel show {name}`, then run `satchel trust {name}`", name=name),
    )
