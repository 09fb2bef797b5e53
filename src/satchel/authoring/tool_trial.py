"""Runs of programs for authors: one tool call as an agent makes it, and the rules that need a run.

`satchel try` shows the call in full; `satchel check --run` judges the replies by the check-list.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from satchel.authoring.check_skill import RUN_RULES
from satchel.authoring.text_rules import ERROR_RULES, judge_error, language_of
from satchel.authoring.tool_tests import open_program, run_cases
from satchel.errors import BuildFailed, InvalidInput, NotFound, Refused, SatchelError
from satchel.i18n import did_you_mean, say, similar_names
from satchel.skill.problems import Problem
from satchel.tools.schema import check

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from satchel.authoring.check_skill import ProgramCheck
    from satchel.authoring.checklist import CheckSheet, State
    from satchel.authoring.tool_tests import CaseResult
    from satchel.envelope import Envelope
    from satchel.satchel import Satchel
    from satchel.session.permissions import ApprovalRequest, Approve
    from satchel.skill.manifest import ToolManifest
    from satchel.skill.model import Skill

_TRUE_WORDS = frozenset(("true", "yes", "1", "on"))
_FALSE_WORDS = frozenset(("false", "no", "0", "off"))
_CRASH_FAULTS = frozenset(("crashed", "exit-code"))
_LIMIT_FAULTS = frozenset(("cannot-start", "timeout", "cancelled", "memory", "processes"))
"""Faults that are neither a crash nor a wrong reply."""

SkipReason = Literal["refused", "incomplete"]
"""The reason why something was not run."""


class ToolTrial(NamedTuple):
    """A call and its result."""

    tool: str
    request: str
    """The input line of the program; empty if it did not run."""
    response: str
    """Its raw output; of a fault the beginning. Empty if it did not run."""
    reply: Envelope
    script: str = ""
    """The path of a script that was run instead of a tool."""

    def to_dict(self) -> dict[str, Any]:
        """The form for `--json`."""
        return {
            "tool": self.tool,
            **({"script": self.script} if self.script else {}),
            "request": self.request or None,
            "response": self.response or None,
            "envelope": self.reply.to_dict(),
        }


def find_tool(satchel: Satchel, name: str) -> str:
    """Return the tool of a name: a tool's own, a skill's with one tool, or `skill.tool`.

    Raises:
        NotFound: there is none.
        InvalidInput: the skill has several.
    """
    names = satchel.tools().names
    if name in names:
        return name
    skill_name, _, action = name.partition(".")
    snapshot = satchel.library.tools()
    entries = snapshot.find(skill_name)
    if not entries:
        near = did_you_mean(similar_names(name, names))
        raise NotFound(
            say("There is no tool `{name}`", name=name),
            near or say("Run `{command}`", command="satchel list --tools"),
        )
    tools = entries[0].tools
    if action:
        prefix = entries[0].skill.id.rpartition("/")[2].replace("-", "_")
        for tool in (action, f"{prefix}_{action}"):
            if tool in tools:
                return tool
    elif len(tools) == 1:
        return tools[0]
    raise InvalidInput(
        say("The skill `{name}` has several tools", name=skill_name), did_you_mean(tools)
    )


def read_arguments(
    satchel: Satchel, tool: str, pairs: Sequence[str], json_text: str
) -> dict[str, Any]:
    """Parse the arguments of a command line: JSON first, then each `name=value` by its type.

    Raises:
        InvalidInput: not a JSON object, or a pair without `=`.
    """
    arguments: dict[str, Any] = {}
    if json_text:
        try:
            value: Any = json.loads(json_text)
        except ValueError as exc:
            value = str(exc)
        if not isinstance(value, dict):
            raise InvalidInput(
                say("The arguments are not valid JSON"),
                say("Give one object in quotes: '{example}'", example='{"path": "a.txt"}'),
            )
        arguments.update(value)  # pyright: ignore[reportUnknownArgumentType]
    types = _parameter_types(satchel, tool)
    for pair in pairs:
        name, separator, text = pair.partition("=")
        if not separator or not name:
            raise InvalidInput(
                say("`{value}` is not valid", value=pair),
                say("Write `{value}`", value="--arg path=notes.txt"),
            )
        arguments[name] = _convert_value(text, types.get(name, "string"))
    return arguments


def _parameter_types(satchel: Satchel, tool: str) -> dict[str, str]:
    for definition in satchel.tools().definitions("mcp"):
        if definition["name"] == tool:
            properties: dict[str, dict[str, Any]] = definition["inputSchema"]["properties"]
            return {name: str(rule.get("type", "string")) for name, rule in properties.items()}
    return {}


def _convert_value(text: str, kind: str) -> Any:
    """Convert a text to the parameter's type; unconvertible text is kept for the tool to report."""
    if kind in {"integer", "number"}:
        try:
            return int(text) if kind == "integer" else float(text)
        except ValueError:
            return text
    if kind == "boolean":
        word = text.strip().lower()
        if word in _TRUE_WORDS or word in _FALSE_WORDS:
            return word in _TRUE_WORDS
        return text
    if kind == "array":
        try:
            return json.loads(text)
        except ValueError:
            return text
    return text


def try_tool(
    satchel: Satchel, tool: str, arguments: dict[str, Any], *, review: Approve = True
) -> ToolTrial:
    """Call a tool as an agent does, and keep the program's output.

    Args:
        satchel: Provides library, settings and engine.
        tool: Name of the tool.
        arguments: Its arguments.
        review: Decides about the changes that it proposes; the call itself was requested.
    """
    entry = satchel.library.tools().tools.get(tool)

    def approve(request: ApprovalRequest) -> bool | Awaitable[bool]:
        return review(request) if callable(review) and request.changes else True

    session = satchel.session(approve=approve if callable(review) else True)
    reply = session.call(tool, arguments, as_person=entry is not None)
    if "tier" not in reply.data:  # no program: refused before, or a tool in Python
        return ToolTrial(tool, "", "", reply)
    input_record: dict[str, Any] = {"arguments": arguments}
    if entry is not None:
        tool_skill, declaration = entry
        input_record = {"arguments": check(dict(arguments), declaration.schema(), {})}
        if tool_skill.manifest.several:
            input_record = {"tool": tool, **input_record}
    request = json.dumps(input_record, ensure_ascii=False)
    return ToolTrial(tool, request, str(reply.data.get("raw", "")), reply)


def try_script(
    satchel: Satchel,
    skill: Skill,
    script: str,
    args: Sequence[str],
    *,
    review: Approve,
    stdin: str = "",
) -> ToolTrial:
    """Load a skill and run one of its scripts, as an agent does.

    Args:
        satchel: The project.
        skill: The skill.
        script: The script's path below the skill's folder.
        args: Its arguments.
        review: Decides about packages to install and about the changes that it proposes.
        stdin: The text of its standard input.
    """
    session = satchel.session(approve=review)
    reply = session.call("Skill", {"name": skill.name}, as_person=True)
    if reply.error is None:
        arguments = {"skill": skill.name, "script": script, "args": list(args), "stdin": stdin}
        reply = session.call("RunScript", arguments)
    return ToolTrial("RunScript", "", "", reply, script)


def make_program_check(
    satchel: Satchel, skip_reasons: list[SkipReason] | None = None
) -> ProgramCheck:
    """Return a function that runs a skill's tests, in the sandbox and for trusted skills only.

    Args:
        satchel: Provides library, settings and engine.
        skip_reasons: Gets an entry for every skill that was not run, or not with all its examples.
    """
    reasons: list[SkipReason] = [] if skip_reasons is None else skip_reasons

    def check_program(sheet: CheckSheet, folder: str, manifest: ToolManifest) -> None:
        try:
            program = open_program(satchel, folder, is_own=_is_own(satchel, folder))
        except BuildFailed as exc:
            if manifest.runtime == "go":
                sheet.fail("go-builds", reason=exc.message)
            elif not sheet.has_failed("packages"):
                values = {"reason": exc.message, "fix": exc.hint}
                sheet.judge_problems("packages", [Problem("tool-packages", values=values)])
            sheet.skip(say("does not apply"), *RUN_RULES)
            return
        except SatchelError as exc:
            reasons.append("refused" if isinstance(exc, Refused) else "incomplete")
            sheet.skip(_skip_text(exc), *RUN_RULES, is_open=True)
            return
        if manifest.runtime == "go":
            sheet.judge("go-builds")
        results = list(run_cases(program))
        if any(result.state == "not-run" for result in results):
            reasons.append("incomplete")
        _judge_examples(sheet, results)
        _judge_invalid(sheet, results, language_of(manifest.tools[0].description))

    return check_program


def _is_own(satchel: Satchel, folder: str) -> bool:
    snapshot = satchel.library.tools()
    entries = [
        entry for entry in snapshot.skills if entry.skill.base_dir == os.path.abspath(folder)
    ]
    return bool(entries) and satchel.library.integrity.is_own(entries[0].skill)


def _skip_text(exc: SatchelError) -> str:
    reason = exc.message.splitlines()[0]
    if not isinstance(exc, Refused):
        reason = say("not run: {reason}", reason=reason)
    return f"{reason} ({exc.hint})" if exc.hint else reason


def _judge_examples(sheet: CheckSheet, results: list[CaseResult]) -> None:
    examples = [result for result in results if result.case.kind == "example"]
    ran = [result for result in examples if result.state != "not-run"]
    if not ran:
        reason = (
            say("not run: {reason}", reason=examples[0].text) if examples else say("does not apply")
        )
        sheet.skip(reason, "answers", is_open=bool(examples))
        return
    for result in ran:
        values = {"name": result.case.tool, "scenario": result.case.title, "reason": result.text}
        sheet.require("answers", result.state != "fail", **values)


def _judge_invalid(sheet: CheckSheet, results: list[CaseResult], language: str) -> None:
    """Judge the replies of the program to invalid arguments.

    Args:
        sheet: The check-list.
        results: All results.
        language: The language of errors.
    """
    for rule in ("protocol", *ERROR_RULES, "no-uncaught", "refuses"):
        sheet.judge(rule)
    for result in results:
        if result.case.kind != "program":
            continue
        if result.error:
            judge_error(sheet, result.error, language)
        elif result.state == "fail":
            if result.fault in _CRASH_FAULTS:
                rule = "no-uncaught"
            elif not result.fault or result.fault in _LIMIT_FAULTS:
                rule = "refuses"
            else:
                rule = "protocol"
            values = {"name": result.case.tool, "case": result.case.title, "reason": result.text}
            sheet.fail(rule, **values)


def is_listed(satchel: Satchel, folder: str) -> tuple[State, str]:
    """Return whether the project's tool list contains the tools of a folder, and if not, why.

    An untrusted skill is not its author's fault: the rule stays open. The library is not refreshed:
    a check of all skills asks for each of them.
    """
    snapshot = satchel.library.tools()
    path = os.path.abspath(folder)
    entries = [
        entry for entry in (*snapshot.skills, *snapshot.hidden) if entry.skill.base_dir == path
    ]
    if not entries:
        problems = [
            problem for problem in snapshot.problems if os.path.dirname(problem.path) == path
        ]
        if problems:
            return "fail", problems[0].message
        return "skip", say("does not apply")
    skill = entries[0].skill
    if skill.state in ("untrusted", "needs setup"):
        return "skip", say(skill.state)
    if skill.state != "active":
        return "fail", say(skill.state)
    names = satchel.tools().names
    missing = [name for name in entries[0].tools if name not in names]
    return ("fail", say("shadowed")) if missing else ("pass", "")
