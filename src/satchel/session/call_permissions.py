"""Decides about the tool calls of a session, with the rules of the skills that it loaded.

`PermissionGate` applies rules to a tool and its arguments. This module gives it what belongs to one
call: the arguments that patterns are compared with, the grants of loaded skills, the script that
runs, and the skill whose instructions `ReadFile` would read.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from satchel.tools.argument_patterns import BaseFolder
from satchel.tools.permission_rules import RuleResult
from satchel.tools.read_file import ReadFileTool
from satchel.tools.script_tool import RunScriptTool
from satchel.tools.toolset import revision_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from satchel.library import Library
    from satchel.runners.base import Change
    from satchel.session.loaded_skills import LoadedSkills
    from satchel.session.permissions import PermissionDecision, PermissionGate, ShowChanges
    from satchel.tools.base import CancelToken, ResolvedCall, ReviewChanges


class CallPermissions:
    """Decides about the calls of one session."""

    def __init__(
        self, gate: PermissionGate, loaded: LoadedSkills, library: Library, project: str
    ) -> None:
        """Store the parts.

        Args:
            gate: Applies the rules and asks for approval.
            loaded: The loaded skills, whose rules count.
            library: Tells the revision of a skill.
            project: The folder where relative paths begin.
        """
        self._gate = gate
        self._loaded = loaded
        self._library = library
        self._base = BaseFolder(project)

    def decide(
        self, call: ResolvedCall, refresh: Callable[[ResolvedCall], None], *, approved: bool
    ) -> PermissionDecision:
        """Decide about a call, and ask for approval where it is needed.

        Args:
            call: The call; its tool is the one that the decision is about.
            refresh: Looks up the tool again, before each further evaluation.
            approved: The host asked a person already.
        """
        decision = self._gate.resolve(self._evaluator(call, refresh, approved=approved))
        call.tool = decision.tool
        return decision

    async def adecide(
        self, call: ResolvedCall, refresh: Callable[[ResolvedCall], None], *, approved: bool
    ) -> PermissionDecision:
        """`decide` without blocking the event loop."""
        decision = await self._gate.aresolve(self._evaluator(call, refresh, approved=approved))
        call.tool = decision.tool
        return decision

    def reviewer(
        self, call: ResolvedCall, *, approved: bool, cancel: CancelToken | None = None
    ) -> ReviewChanges:
        """Return the function that decides about the changes which a call proposes."""
        return self._gate.reviewer(partial(self.evaluate, call), asked=approved, cancel=cancel)

    def _evaluator(
        self, call: ResolvedCall, refresh: Callable[[ResolvedCall], None], *, approved: bool
    ) -> Callable[[], PermissionDecision]:
        """Return a function that evaluates a call; from the second time on it refreshes first."""
        is_evaluated = False

        def evaluate() -> PermissionDecision:
            nonlocal is_evaluated
            if is_evaluated:
                refresh(call)
            is_evaluated = True
            decision = self.evaluate(call)
            if approved and decision.verdict.answer == "ask":
                return decision._replace(verdict=RuleResult("allow"))
            return decision

        return evaluate

    def evaluate(
        self, call: ResolvedCall, changes: Sequence[Change] = (), show: ShowChanges = tuple
    ) -> PermissionDecision:
        """Apply the rules to a call, or to changes that it proposes; no approval is requested.

        Args:
            call: The call.
            changes: What it proposes to change.
            show: Makes these changes readable.
        """
        arguments, grants = _compared_arguments(call), self._loaded.grants()
        tool = call.tool
        decision = self._gate.evaluate(
            call.name,
            arguments,
            tool,
            grants,
            base=self._base,
            script=str(arguments["script"]) if isinstance(tool, RunScriptTool) else "",
            reasons=tool.reasons(call) if tool is not None and not changes else (),
            revision=lambda: call.examined or revision_of(self._library, call.name),
            changes=changes,
            show=show,
        )
        if isinstance(tool, ReadFileTool) and decision.verdict.answer != "deny":
            skill = tool.find_instructions(arguments)
            if skill is not None:
                load_verdict = self._gate.evaluate_load(skill.name, grants, self._base)
                if load_verdict.answer != "allow":
                    decision = decision._replace(verdict=load_verdict)
        return decision._replace(ask=decision.ask._replace(arguments=call.received))


def _compared_arguments(call: ResolvedCall) -> Mapping[str, Any]:
    """Return the arguments that the patterns of rules are compared with."""
    tool, arguments = call.tool, call.received
    if call.skill is not None and call.skill.state == "active":
        # `/deploy`, or a path to it, follows the rules for `deploy`.
        others = {key: value for key, value in arguments.items() if key not in {"name", "skill"}}
        arguments = {"name": call.skill.name, **others}
    if isinstance(tool, ReadFileTool):
        return tool.replace_addresses(arguments)
    if tool is not None and call.skill is None:
        return tool.permission_arguments(call)
    return arguments
