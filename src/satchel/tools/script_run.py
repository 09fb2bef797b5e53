"""Runs a script for the tool `RunScript`, and finds the next step where it misses something.

`script_tool` imports this module at the first call: most sessions run no script.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, NamedTuple

from satchel._fs import read_plain
from satchel.i18n import Message
from satchel.library.skill_code import is_in_code, variables_read
from satchel.runners.base import ProgramLimits, ProgramPermissions, RunRequest, ScriptInput
from satchel.runners.scripts import plan_script
from satchel.tools.lookup import ended_grant, for_person
from satchel.tools.program_reply import ProgramRun, reply_to_failed_build
from satchel.tools.program_run import (
    NETWORK_ERROR,
    changed_skill,
    confirm_unchanged,
    protected_paths,
    run_program,
)
from satchel.tools.secrets import (
    UnsetSecret,
    look_up_grant,
    parse_variables,
    variable_option,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from satchel.envelope import Envelope
    from satchel.errors import BuildFailed, SettingsError
    from satchel.library import Library
    from satchel.library.integrity import VerifiedFolder
    from satchel.library.trust_store import ScriptGrant
    from satchel.runners.base import Program, RunResult
    from satchel.runners.scripts import ScriptPlan
    from satchel.settings import Settings
    from satchel.skill.model import Skill
    from satchel.tools.base import ToolCall
    from satchel.tools.program_runner import ProgramRunner
    from satchel.tools.secrets import Pairs
    from satchel.trace import Trace

_TOO_LARGE_ERROR = re.compile(r"File too large|EFBIG|SIGXFSZ|File size limit exceeded")
_TOO_LARGE_STATUS = 153
"""Of a shell, for the signal SIGXFSZ."""
_NO_COMMAND_STATUS = 127
_EXPLAINABLE_FAULTS = ("exit-code", "crashed")
"""Faults that a missing permission may explain, unlike a timeout."""
_MAX_ENV_BYTES = 256 * 1024
_MAX_OUTPUT_CHARS_SEARCHED = 20_000
_VARIABLE_NAME = re.compile(r"\b[A-Z][A-Z0-9_]{2,}\b")


class ScriptCall(NamedTuple):
    """A script with the skill as it was verified for one call."""

    skill: Skill
    verified: VerifiedFolder
    plan: ScriptPlan

    @property
    def digest(self) -> str:
        """The digest of the skill's content."""
        return self.verified.tree.digest


def plan_call(skill: Skill, verified: VerifiedFolder, path: str) -> ScriptCall:
    """Plan how a script of a skill is launched.

    Raises:
        BuildFailed: it cannot be run.
    """
    return ScriptCall(skill, verified, plan_script(skill.base_dir, path))


class ScriptLauncher:
    """Runs scripts for one tool."""

    def __init__(
        self,
        tool: str,
        *,
        library: Library,
        settings: Settings,
        runner: ProgramRunner,
        trace: Trace,
    ) -> None:
        self._tool = tool
        self._library = library
        self._settings = settings
        self._runner = runner
        self._trace = trace

    def refuse(self, call: ToolCall, skill: Skill, path: str, exc: BuildFailed) -> Envelope:
        """Make the reply for a script that cannot be run."""
        return reply_to_failed_build(self._describe_run(call, skill, path), exc)

    def run(self, call: ToolCall, script: ScriptCall, args: tuple[str, ...]) -> Envelope:
        """Run a script once, with what the user granted to its skill."""
        skill, verified, plan = script
        grant = self._library.trust.script_grant(skill.base_dir, script.digest, skill.name)
        granted = look_up_grant(self._settings, grant)
        is_own = self._library.integrity.is_own(skill)

        def prepare(timeout_s: float) -> Program:
            is_approved = call.as_person or call.resolved.examined == script.digest
            if not is_approved and not self._runner.is_built(skill.base_dir, plan):
                raise changed_skill(skill.name)
            return self._runner.prepare_script(
                skill.base_dir,
                plan,
                script.digest,
                confirm=lambda: confirm_unchanged(verified, skill.name),
                cancel=call.cancel,
                seconds=timeout_s,
                own=is_own,
            )

        def make_request(program: Program) -> RunRequest:
            # Values of secrets in live output would have to be replaced.
            live = None if granted.secrets else self._runner.live
            return RunRequest(
                skill.ref,
                self._tool,
                {},
                program,
                ProgramPermissions(
                    self._settings.project,
                    writable=True,
                    network=grant.network,
                    secrets=(*granted.secrets, *granted.variables),
                ),
                own=is_own,
                protected=protected_paths(self._library, self._settings),
                script=ScriptInput(args, str(call.arguments.get("stdin", "")), live),
            )

        hints = _HintFinder(self._library, self._settings, script, grant, granted.unset)
        return run_program(
            self._describe_run(call, skill, plan.path, granted.secrets),
            self._runner,
            prepare,
            make_request,
            trace=self._trace,
            find_hint=hints.find,
        )

    def _describe_run(
        self, call: ToolCall, skill: Skill, path: str, secrets: Pairs = ()
    ) -> ProgramRun:
        tools = self._settings.tools
        limits = ProgramLimits(
            timeout=float(max(tools.script_timeout, 1)),
            output=max(tools.output, 1),
            memory=max(tools.memory, 1) << 20,
        )
        return ProgramRun(
            call,
            self._tool,
            skill,
            limits,
            project=self._settings.project,
            entry=path,
            secrets=secrets,
            is_script=True,
        )


class _HintFinder(NamedTuple):
    """Finds the next step when a script seems to miss a command, space, or something granted."""

    library: Library
    settings: Settings
    script: ScriptCall
    grant: ScriptGrant
    unset: Mapping[str, SettingsError]
    """Why granted secrets and variables have no value, by name."""

    def find(self, result: RunResult) -> Message | None:
        """Return the next step; None where none is known."""
        skill = self.script.skill
        if ended := ended_grant(self.library, skill, self.script.digest):
            return for_person(ended.for_model()[1])
        if result.exit_code == _NO_COMMAND_STATUS:
            return Message(
                "It calls a command that is not in the sandbox. Tell the user to install it on "
                "the system, or go on without it",
                people="It calls a command that is not in the sandbox: install it on the system, "
                "below `/usr`, since programs in your home are not in the sandbox",
            )
        output = f"{result.output[-_MAX_OUTPUT_CHARS_SEARCHED:]}\n{result.stderr}"
        if not self.grant.network and NETWORK_ERROR.search(output):
            command = f"satchel trust {skill.reference} --network"
            return for_person(
                Message("It may not use the network; `{command}` grants it", command=command)
            )
        for exc in self.unset.values():
            if not isinstance(exc, UnsetSecret):
                return for_person(Message("{first}. {rest}", first=exc.message, rest=exc.hint))
        if result.fault not in _EXPLAINABLE_FAULTS and not result.error:
            return None
        if _TOO_LARGE_ERROR.search(output) or result.exit_code == _TOO_LARGE_STATUS:
            return Message(
                "A file that it writes may have {size} MB, which no setting changes: have it write "
                "several smaller ones",
                size=ProgramLimits().file_size >> 20,
            )
        for name, exc in self.unset.items():
            if is_in_code(skill.base_dir, (name,)):
                return for_person(exc.hint)
        return self._find_variable_hint(result, output)

    def _find_variable_hint(self, result: RunResult, output: str) -> Message | None:
        """Return the next step when the output mentions a variable that the script does not get."""
        skill = self.script.skill
        inventory = self.library.integrity.scan(skill, self.script.verified).inventory
        mentioned = set(_VARIABLE_NAME.findall(output)).difference(
            self.grant.secrets, self.grant.variables
        )
        missing = mentioned.intersection(inventory.secrets)
        if not missing and result.tier != "none":
            hint = self._find_env_file_hint(mentioned)
            if hint is not None:
                return hint
        if not missing:
            missing = mentioned & variables_read(skill.base_dir)
        if not missing:
            return None
        name = min(missing)
        return for_person(
            Message(
                "It has no variable `{name}`; `{command}` grants it",
                name=name,
                command=f"satchel trust {skill.reference} {variable_option(name)}",
            )
        )

    def _find_env_file_hint(self, mentioned: set[str]) -> Message | None:
        """Return the next step when a script misses a variable of `.env`, which it finds empty."""
        try:
            text = read_plain(os.path.join(self.settings.project, ".env"), _MAX_ENV_BYTES)
        except OSError:
            return None
        variables = parse_variables(text.decode("utf-8", "replace"))
        missing = mentioned.intersection(name for name, _ in variables)
        if not missing:
            return None
        return for_person(
            Message(
                "Scripts find `.env` empty; `{command}` passes a variable, whose value is in "
                "`secrets.env` or the environment",
                command=f"satchel trust {self.script.skill.reference} --secret {min(missing)}",
            )
        )
