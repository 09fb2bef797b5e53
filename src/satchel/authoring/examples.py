"""Runs the cases of a tool skill and says what became of each: what `satchel test` shows."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from satchel._language import say
from satchel.authoring.cases import cases_of, missing_of
from satchel.authoring.error_words import inside_shown, slip_in
from satchel.errors import SatchelError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from satchel.authoring.bench import Bench
    from satchel.authoring.cases import Case
    from satchel.envelope import Envelope, ErrorCode
    from satchel.runners.base import RunResult
    from satchel.skill.manifest import ToolDecl

State = Literal["pass", "fail", "not-run"]
_REFUSALS = frozenset(("INVALID_PARAM", "ACCESS_DENIED", "NOT_FOUND", "IS_DIRECTORY"))


class Outcome(NamedTuple):
    """What became of a case."""

    case: Case
    state: State
    said: str = ""
    """What was answered, or why it was not run."""
    ms: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """The form for `--json`."""
        return {
            "tool": self.case.tool,
            "kind": self.case.kind,
            "case": self.case.title,
            "arguments": self.case.arguments,
            "state": self.state,
            "said": self.said,
            "ms": round(self.ms, 1),
        }


def run_cases(bench: Bench) -> Iterator[Outcome]:
    """Run every case of every tool, one after the other."""
    for tool in bench.manifest.tools:
        for case in cases_of(bench.manifest, tool):
            yield run_case(bench, tool, case)


def run_case(bench: Bench, tool: ToolDecl, case: Case) -> Outcome:
    """Run one case. Nothing here raises for what a program does."""
    try:
        if case.kind == "example":
            return _example(bench, tool, case)
        if case.kind == "refused":
            return _refused(bench, case)
        return _program(bench, tool, case)
    except SatchelError as exc:
        return Outcome(case, "fail", exc.message)


# --- examples -----------------------------------------------------------------------------


def _example(bench: Bench, tool: ToolDecl, case: Case) -> Outcome:
    workspace = bench.satchel.settings.project
    missing = missing_of(case, workspace)
    if missing:
        return Outcome(case, "not-run", say("needs {files}", files=", ".join(missing)))
    if bench.manifest.secrets:
        names = ", ".join(bench.manifest.secrets)
        return Outcome(
            case, "not-run", say("needs the secrets {names}: use `satchel try`", names=names)
        )
    if bench.manifest.files.access == "write":
        result = _in_a_copy(bench, tool, case)
    else:
        from satchel.tools.parameters import check

        result = bench.run(tool, check(dict(case.arguments), tool.schema(), {}))
    return Outcome(case, *_judge_output(result), result.ran_ms)


def _in_a_copy(bench: Bench, tool: ToolDecl, case: Case) -> RunResult:
    """A tool that writes gets a folder with the files it needs, never the project itself."""
    import shutil
    import tempfile

    from satchel.tools.parameters import check

    with tempfile.TemporaryDirectory(prefix="satchel-test-") as folder:
        for path in case.needs:
            target = os.path.join(folder, path)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            shutil.copy(os.path.join(bench.satchel.settings.project, path), target)
        return bench.run(tool, check(dict(case.arguments), tool.schema(), {}), folder)


def _judge_output(result: RunResult) -> tuple[State, str]:
    if result.fault is not None:
        return "fail", _fault(result)
    if result.error:
        return "fail", result.error
    if not result.output and result.data is None:
        return "fail", say("the answer is empty")
    return "pass", result.output


# --- wrong arguments ----------------------------------------------------------------------


def _refused(bench: Bench, case: Case) -> Outcome:
    """An agent's call: it must not reach the program."""
    reply = _as_agent(bench, case)
    if reply.error is None:
        return Outcome(case, "fail", say("it was not refused"))
    if "ran_ms" in reply.stats:
        return Outcome(
            case, "fail", say("the program was started: {said}", said=reply.error.message)
        )
    state: State = "pass" if reply.error.code in _REFUSALS else "fail"
    return Outcome(case, state, reply.error.message, float(reply.stats.get("time_ms", 0)))


def _as_agent(bench: Bench, case: Case) -> Envelope:
    """The answer that an agent gets, from the toolset or, outside a library, from its checks."""
    from satchel.envelope import answer, failure
    from satchel.tools.file_parameters import check_files
    from satchel.tools.parameters import check

    toolset = bench.satchel.tools()
    if case.tool in toolset.names:
        return toolset.call(case.tool, case.arguments)
    tool = next(one for one in bench.manifest.tools if one.name == case.tool)
    try:
        checked = check(dict(case.arguments), tool.schema(), {})
        check_files(bench.manifest.files, checked, bench.satchel.settings.project)
    except SatchelError as exc:
        return failure(cast("ErrorCode", exc.code), exc.message, exc.hint, params={}, time_ms=0)
    return answer("", {}, params={}, time_ms=0)


def _program(bench: Bench, tool: ToolDecl, case: Case) -> Outcome:
    """What the program does with what it should never get."""
    result = bench.run(tool, case.arguments)
    if result.fault is not None:
        return Outcome(case, "fail", _fault(result), result.ran_ms)
    if not result.error:
        state: State = "fail" if case.must_fail else "pass"
        said = say("it answered as if nothing were wrong") if case.must_fail else result.output
        return Outcome(case, state, said, result.ran_ms)
    return Outcome(case, *_judge_error(result), result.ran_ms)


def _judge_error(result: RunResult) -> tuple[State, str]:
    """An error is part of the answer: it has a form too."""
    if result.output and not result.error:
        return "fail", say("there is no error")
    if inside_shown(result.error):
        return "fail", say("the error shows the inside: {said}", said=result.error)
    if slip_in(result.error):
        words = say(
            "the error is not `<problem>: <value> — <next step>`: {said}", said=result.error
        )
        return "fail", words
    return "pass", result.error


def _fault(result: RunResult) -> str:
    detail = f" ({result.detail})" if result.detail else ""
    last = result.stderr.strip().splitlines()[-1:] if result.stderr else []
    return f"{result.fault}{detail}" + (f": {last[0]}" if last else "")
