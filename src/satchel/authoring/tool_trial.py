"""One tool call as an agent makes it, shown in full, for `satchel try`."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from satchel.authoring.text_rules import ERROR_RULES, judge_error, language_of
from satchel.errors import BuildFailed, InvalidInput, NotFound, Refused, SatchelError
from satchel.i18n import join_names, say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from satchel.authoring.check_skill import Prove
    from satchel.authoring.checklist import CheckSheet, State
    from satchel.authoring.tool_tests import CaseResult
    from satchel.envelope import Envelope
    from satchel.satchel import Satchel
    from satchel.skill.manifest import ToolManifest

_TRUE = frozenset(("true", "yes", "1", "on"))
_FALSE = frozenset(("false", "no", "0", "off"))


class ToolTrial(NamedTuple):
    """A call and its result."""

    tool: str
    request: str
    """The input line of the program; empty if it did not run."""
    response: str
    """Its raw output; of a fault the beginning. Empty if it did not run."""
    reply: Envelope

    def to_dict(self) -> dict[str, Any]:
        """The form for `--json`."""
        return {
            "tool": self.tool,
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
    whole, _, action = name.partition(".")
    look = satchel.library.tools()
    found = look.find(whole)
    if not found:
        import difflib

        near = difflib.get_close_matches(name, names, 1)
        hint = (
            say("Did you mean {names}?", names=f"`{near[0]}`")
            if near
            else say("Run `{command}`", command="satchel tools")
        )
        raise NotFound(say("There is no tool `{name}`", name=name), hint)
    tools = found[0].tools
    if action:
        prefix = found[0].skill.id.rpartition("/")[2].replace("-", "_")
        for tool in (action, f"{prefix}_{action}"):
            if tool in tools:
                return tool
    elif len(tools) == 1:
        return tools[0]
    shown = join_names(f"`{tool}`" for tool in tools)
    raise InvalidInput(
        say("The skill `{name}` has several tools", name=whole),
        say("Did you mean {names}?", names=shown),
    )


def read_arguments(satchel: Satchel, tool: str, pairs: Sequence[str], table: str) -> dict[str, Any]:
    """Parse the arguments of a command line: JSON first, then each `name=value` by its type.

    Raises:
        InvalidInput: not a JSON object, or a pair without `=`.
    """
    given: dict[str, Any] = {}
    if table:
        try:
            value: Any = json.loads(table)
        except ValueError as exc:
            value = str(exc)
        if not isinstance(value, dict):
            raise InvalidInput(
                say("The arguments are not valid JSON"),
                say("Give one object in quotes: '{example}'", example='{"path": "a.txt"}'),
            )
        given.update(value)  # pyright: ignore[reportUnknownArgumentType]
    types = _types(satchel, tool)
    for pair in pairs:
        name, mark, text = pair.partition("=")
        if not mark or not name:
            raise InvalidInput(
                say("`{value}` is not valid", value=pair),
                say("Write `{value}`", value="--arg path=notes.txt"),
            )
        given[name] = _value(text, types.get(name, "string"))
    return given


def _types(satchel: Satchel, tool: str) -> dict[str, str]:
    for told in satchel.tools().definitions("mcp"):
        if told["name"] == tool:
            properties: dict[str, dict[str, Any]] = told["inputSchema"]["properties"]
            return {name: str(rule.get("type", "string")) for name, rule in properties.items()}
    return {}


def _value(text: str, kind: str) -> Any:
    """Convert a text to the parameter's type; unconvertible text is kept for the tool to report."""
    if kind in {"integer", "number"}:
        try:
            return int(text) if kind == "integer" else float(text)
        except ValueError:
            return text
    if kind == "boolean":
        word = text.strip().lower()
        return True if word in _TRUE else False if word in _FALSE else text
    if kind == "array":
        try:
            return json.loads(text)
        except ValueError:
            return text
    return text


def try_tool(satchel: Satchel, tool: str, arguments: dict[str, Any]) -> ToolTrial:
    """Call a tool as an agent does, and keep the program's output."""
    found = satchel.library.tools().tools.get(tool)
    session = satchel.session(approve=True)  # the user requested this call
    reply = session.call(tool, arguments, as_person=found is not None)
    if "tier" not in reply.data:  # no program: refused before, or a tool in Python
        return ToolTrial(tool, "", "", reply)
    sent: dict[str, Any] = {"arguments": arguments}
    if found is not None:
        source, declared = found
        from satchel.tools.schema import check

        sent = {"arguments": check(dict(arguments), declared.schema(), {})}
        if source.manifest.several:
            sent = {"tool": tool, **sent}
    request = json.dumps(sent, ensure_ascii=False)
    return ToolTrial(tool, request, str(reply.data.get("raw", "")), reply)


Unrun = Literal["refused", "incomplete"]
"""The reason why something was not run."""
_CRASHES = frozenset(("crashed", "exit-code"))
_LIMITS = frozenset(("cannot-start", "timeout", "cancelled", "memory", "processes"))
"""Faults that are neither a crash nor a wrong reply."""


def make_runner(satchel: Satchel, unrun: list[Unrun] | None = None) -> Prove:
    """Return a function that runs a skill's tests, in the sandbox and for trusted skills only.

    Args:
        satchel: Provides library, settings and engine.
        unrun: Called for every skill that was not run, or not with all its examples.
    """
    noted: list[Unrun] = [] if unrun is None else unrun

    def prove(sheet: CheckSheet, folder: str, manifest: ToolManifest) -> None:
        from satchel.authoring.check_skill import RUN_RULES
        from satchel.authoring.tool_tests import open_program, run_cases

        try:
            bench = open_program(satchel, folder, own=_is_own(satchel, folder))
        except BuildFailed as exc:
            if manifest.runtime == "go":
                sheet.judge("go-builds", [(0, {"reason": exc.message})])
            elif not sheet.fails("packages"):
                sheet.judge("packages", [(0, {"problem": exc.message, "remedy": exc.hint})])
            sheet.skip(say("does not apply"), *RUN_RULES)
            return
        except SatchelError as exc:
            noted.append("refused" if isinstance(exc, Refused) else "incomplete")
            sheet.skip(_reason(exc), *RUN_RULES, open=True)
            return
        if manifest.runtime == "go":
            sheet.judge("go-builds")
        outcomes = list(run_cases(bench))
        if any(one.state == "not-run" for one in outcomes):
            noted.append("incomplete")
        _judge_examples(sheet, outcomes)
        _judge_invalid(sheet, outcomes, language_of(manifest.tools[0].description))

    return prove


def _is_own(satchel: Satchel, folder: str) -> bool:
    look = satchel.library.tools()
    found = [one for one in look.skills if one.skill.base_dir == os.path.abspath(folder)]
    return bool(found) and satchel.library.integrity.is_own(found[0].skill)


def _reason(exc: SatchelError) -> str:
    told = exc.message.splitlines()[0]
    if not isinstance(exc, Refused):
        told = say("not run: {reason}", reason=told)
    return f"{told} ({exc.hint})" if exc.hint else told


def _judge_examples(sheet: CheckSheet, outcomes: list[CaseResult]) -> None:
    shown = [one for one in outcomes if one.case.kind == "example"]
    ran = [one for one in shown if one.state != "not-run"]
    if not ran:
        told = say("not run: {reason}", reason=shown[0].said) if shown else say("does not apply")
        sheet.skip(told, "answers", open=bool(shown))
        return
    failed = (one for one in ran if one.state == "fail")
    sheet.judge(
        "answers",
        (
            (0, {"name": one.case.tool, "scenario": one.case.title, "reason": one.said})
            for one in failed
        ),
    )


def _judge_invalid(sheet: CheckSheet, outcomes: list[CaseResult], wanted: str) -> None:
    """Judge the replies of the program to invalid arguments.

    Args:
        sheet: The check-list.
        outcomes: All results.
        wanted: The language of errors.
    """
    for rule in ("protocol", *ERROR_RULES, "no-uncaught", "refuses"):
        sheet.judge(rule)
    for one in outcomes:
        if one.case.kind != "program":
            continue
        if one.error:
            judge_error(sheet, one.error, wanted)
        elif one.state == "fail":
            crashed, limited = one.fault in _CRASHES, not one.fault or one.fault in _LIMITS
            rule = "no-uncaught" if crashed else "refuses" if limited else "protocol"
            values = {"name": one.case.tool, "case": one.case.title, "reason": one.said}
            sheet.judge(rule, [(0, values)])


def is_listed(satchel: Satchel, folder: str) -> tuple[State, str]:
    """Return whether the project's tool list contains the tools of a folder, and if not, why.

    An untrusted skill is not its author's fault: the rule stays open.
    """
    look = satchel.library.tools(refresh=True)
    path = os.path.abspath(folder)
    found = [one for one in (*look.skills, *look.hidden) if one.skill.base_dir == path]
    if not found:
        problems = [one for one in look.problems if os.path.dirname(one.path) == path]
        if problems:
            return "fail", problems[0].message
        return "skip", say("does not apply")
    skill = found[0].skill
    if skill.state == "untrusted":
        return "skip", say(skill.state)
    if skill.state != "active":
        return "fail", say(skill.state)
    names = satchel.tools().names
    missing = [name for name in found[0].tools if name not in names]
    return ("fail", say("shadowed")) if missing else ("pass", "")
