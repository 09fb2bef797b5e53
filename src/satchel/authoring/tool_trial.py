"""One tool call as an agent makes it, shown in full, for `satchel try`."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from satchel.authoring.tool_tests import Untrusted
from satchel.errors import BuildFailed, InvalidInput, NotFound, Refused, SatchelError
from satchel.i18n import listed, say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from satchel.authoring.check_skill import Prove
    from satchel.authoring.checklist import CheckSheet, State
    from satchel.authoring.text_rules import DraftManifest
    from satchel.authoring.tool_tests import CaseResult
    from satchel.envelope import Envelope
    from satchel.satchel import Satchel

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
            else say("Run `satchel tools` to see what there is")
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
    shown = listed(f"`{tool}`" for tool in tools)
    raise InvalidInput(
        say("The skill `{name}` has the tools {tools}", name=whole, tools=shown),
        say("Name one of them"),
    )


def read_arguments(satchel: Satchel, tool: str, pairs: Sequence[str], table: str) -> dict[str, Any]:
    """Parse the arguments of a command line: JSON first, then each `name=value` by its type.

    Raises:
        InvalidInput: not a JSON object, a pair without `=`, or a repeated name.
    """
    given: dict[str, Any] = {}
    if table:
        try:
            value: Any = json.loads(table)
        except ValueError as exc:
            raise InvalidInput(
                say("`--json-args` is not JSON: {reason}", reason=exc),
                say("Give one object in quotes: '{example}'", example='{"path": "a.txt"}'),
            ) from exc
        if not isinstance(value, dict):
            raise InvalidInput(
                say("`--json-args` is not an object"),
                say("Give one object in quotes: '{example}'", example='{"path": "a.txt"}'),
            )
        given.update(value)  # pyright: ignore[reportUnknownArgumentType]
    types = _types(satchel, tool)
    named: set[str] = set()
    for pair in pairs:
        name, mark, text = pair.partition("=")
        if not mark or not name:
            raise InvalidInput(
                say("`--arg` needs `name=value`, not `{value}`", value=pair),
                say("Write `--arg path=notes.txt`"),
            )
        if name in named:
            raise InvalidInput(
                say("`--arg {name}=…` is given twice", name=name),
                say("Give each argument once"),
            )
        named.add(name)
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
_RUNS = ("answers", "refuses")


def make_runner(satchel: Satchel, unrun: list[Unrun] | None = None) -> Prove:
    """Return a function that runs a skill's tests, in the sandbox and for trusted skills only.

    Args:
        satchel: Provides library, settings and engine.
        unrun: Called for every skill that was not run, or not with all its examples.
    """
    noted: list[Unrun] = [] if unrun is None else unrun

    def prove(sheet: CheckSheet, folder: str, draft: DraftManifest) -> None:
        from satchel.authoring.tool_tests import open_program, run_cases

        try:
            bench = open_program(satchel, folder, own=_is_own(satchel, folder))
        except BuildFailed as exc:
            _unbuilt(sheet, draft, exc)
            return
        except SatchelError as exc:
            noted.append("refused" if isinstance(exc, Refused) else "incomplete")
            sheet.skip(_reason(exc), "go-builds", *_RUNS, open=True)
            return
        if draft.runtime == "go":
            sheet.judge("go-builds")
        outcomes = list(run_cases(bench))
        if any(one.state == "not-run" for one in outcomes):
            noted.append("incomplete")
        _judge_cases(sheet, outcomes)

    return prove


def _is_own(satchel: Satchel, folder: str) -> bool:
    look = satchel.library.tools()
    found = [one for one in look.skills if one.skill.base_dir == os.path.abspath(folder)]
    return bool(found) and satchel.library.seals.is_own(found[0].skill)


def _reason(exc: SatchelError) -> str:
    if isinstance(exc, Untrusted):
        return say("not run: its folder is not trusted yet; run `satchel trust` in the project")
    told = say("nothing was run: {reason}", reason=exc.message.splitlines()[0])
    return f"{told} ({exc.hint})" if exc.hint else told


def _unbuilt(sheet: CheckSheet, draft: DraftManifest, exc: BuildFailed) -> None:
    if draft.runtime == "go":
        sheet.judge("go-builds", [(0, {"reason": exc.message})])
    elif not sheet.fails("packages"):
        values = {"problem": exc.message, "remedy": exc.hint}
        sheet.judge("packages", [(0, values)])
    sheet.skip(say("the program cannot be built"), *_RUNS)


def _judge_cases(sheet: CheckSheet, outcomes: list[CaseResult]) -> None:
    shown = [one for one in outcomes if one.case.kind == "example"]
    ran = [one for one in shown if one.state != "not-run"]
    if not ran:
        why = shown[0].said if shown else say("it has no examples")
        told = say("no example was run: {reason}", reason=why)
        sheet.skip(told, "answers", open=bool(shown))
    else:
        sheet.judge(
            "answers",
            (
                (0, {"name": one.case.tool, "scenario": one.case.title, "reason": one.said})
                for one in ran
                if one.state == "fail"
            ),
        )
    wrong = [one for one in outcomes if one.case.kind == "program"]
    sheet.judge(
        "refuses",
        (
            (0, {"name": one.case.tool, "case": one.case.title, "reason": one.said,
                 "remedy": one.remedy})
            for one in wrong
            if one.state == "fail"
        ),
    )  # fmt: skip


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
        return "skip", say("the folder is not one of this project's skills")
    skill = found[0].skill
    if skill.state == "untrusted":
        return "skip", say("the skill is not trusted here")
    if skill.state != "active":
        return "fail", say(skill.state)
    names = satchel.tools().names
    missing = [name for name in found[0].tools if name not in names]
    return ("fail", say("another one has its name")) if missing else ("pass", "")
