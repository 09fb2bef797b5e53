"""Test cases of a tool skill and their execution, for `satchel test`.

example   from the manifest: the reply has output
program   invalid arguments passed to the program: it replies with an error and does not crash. Any
          reply to an unknown parameter is accepted
"""

from __future__ import annotations

import os
import re
import tempfile
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from satchel.authoring.checklist import RULES
from satchel.authoring.text_rules import find_internals, find_message_fault
from satchel.errors import InvalidInput, Refused, SatchelError
from satchel.i18n import Message, language, say
from satchel.runners.base import ProgramPermissions, RunRequest
from satchel.skill.manifest_parser import load_manifest
from satchel.tools.failures import NOT_FOUND, ToolFailed
from satchel.tools.framing import one_line
from satchel.tools.lookup import blocked_skill
from satchel.tools.program_tool import check_files, program_limits
from satchel.tools.schema import check
from satchel.tools.workspace import Workspace, named_paths

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from satchel.library.snapshot import ToolSnapshot
    from satchel.library.tool_skills import ToolSkill
    from satchel.runners.base import Program, RunResult
    from satchel.satchel import Satchel
    from satchel.skill.manifest import Parameter, ToolDecl, ToolManifest

Kind = Literal["example", "program"]
State = Literal["pass", "fail", "not-run"]
ESCAPING_PATH = "../../../../../../etc/passwd"
MISSING_PATH = "no-such-folder/no-such-file.txt"
UNKNOWN_PARAMETER = "no_such_parameter"
_INVALID_VALUES: dict[str, Any] = {
    "string": [1, 2],
    "integer": "not a number",
    "number": "not a number",
    "boolean": "perhaps",
}
"""Type of a parameter -> a value that it does not accept."""
_VALID_VALUES: dict[str, Any] = {"string": "text", "integer": 1, "number": 1.5, "boolean": True}
"""Type of a parameter -> a value that it accepts."""
_PATH_NAME = re.compile(
    r"(?:^|_)(?:path|file|filename|filepath|dir|directory|folder)$", re.IGNORECASE
)
_PATH_DESCRIPTION = re.compile(
    r"文件路径|文件的路径|\bfile path\b|\bpath (?:of|to) (?:a|an|the)\b", re.IGNORECASE
)
"""Matches descriptions of parameters that are paths of files, as `_PATH_NAME` does their names."""


class ToolTestCase(NamedTuple):
    """A test call."""

    tool: str
    kind: Kind
    title: str
    arguments: dict[str, Any]
    must_fail: bool = True
    """For the program: whether a reply without an error fails. Otherwise any reply passes."""
    needs: tuple[str, ...] = ()
    """Files of the workspace that an example reads."""


def make_cases(manifest: ToolManifest, tool: ToolDecl) -> list[ToolTestCase]:
    """Return every case of one tool."""
    return [*_example_cases(manifest, tool), *_invalid_cases(manifest, tool)]


def _example_cases(manifest: ToolManifest, tool: ToolDecl) -> Iterator[ToolTestCase]:
    for number, example in enumerate(tool.docs.examples, 1):
        needs = tuple(
            str(example.arguments[name])
            for name in _read_parameters(manifest, tool)
            if isinstance(example.arguments.get(name), str) and example.arguments[name]
        )
        title = example.scenario or say("example {count}", count=number)
        yield ToolTestCase(
            tool.name, "example", title, dict(example.arguments), must_fail=False, needs=needs
        )


def missing_files(case: ToolTestCase, workspace: str) -> list[str]:
    """Return files of an example that the workspace lacks.

    Paths are untrusted and checked like those of a call: no link and no `..` leads out.

    Raises:
        ToolFailed: one leads outside, is no file, or is too large.
    """
    missing: list[str] = []
    checked_workspace = Workspace(workspace)
    for path in case.needs:
        try:
            checked_workspace.check_source(path)
        except ToolFailed as exc:
            if exc.failure is not NOT_FOUND:
                raise
            missing.append(path)
    return missing


def valid_arguments(tool: ToolDecl) -> dict[str, Any]:
    """Return valid arguments: those of the first example, or generated ones."""
    if tool.docs.examples:
        return dict(tool.docs.examples[0].arguments)
    return {
        parameter.name: _VALID_VALUES[parameter.type]
        for parameter in tool.parameters
        if parameter.required
    }


def _invalid_cases(manifest: ToolManifest, tool: ToolDecl) -> Iterator[ToolTestCase]:
    case = partial(ToolTestCase, tool.name, "program")
    valid = valid_arguments(tool)
    for parameter in tool.parameters:
        if parameter.required:
            arguments = {name: value for name, value in valid.items() if name != parameter.name}
            yield case(say("without `{name}`", name=parameter.name), arguments)
    for parameter in tool.parameters:
        title = say("`{name}` of a wrong type", name=parameter.name)
        # A program may treat a wrong boolean as it likes.
        must_fail = parameter.type != "boolean"
        arguments = {**valid, parameter.name: _INVALID_VALUES[parameter.type]}
        yield case(title, arguments, must_fail)
    yield case(say("an unknown parameter"), {**valid, UNKNOWN_PARAMETER: 1}, must_fail=False)
    for parameter in _path_parameters(manifest, tool):
        others = _required_arguments(tool, valid, parameter)
        yield case(
            say("`{name}` leads outside", name=parameter.name),
            {**others, parameter.name: ESCAPING_PATH},
        )
        if parameter.name in _read_parameters(manifest, tool):
            yield case(
                say("`{name}` is not there", name=parameter.name),
                {**others, parameter.name: MISSING_PATH},
            )


def _path_parameters(manifest: ToolManifest, tool: ToolDecl) -> list[Parameter]:
    names = {*_read_parameters(manifest, tool), *manifest.files.write}
    return [parameter for parameter in tool.parameters if parameter.name in names]


def _read_parameters(manifest: ToolManifest, tool: ToolDecl) -> tuple[str, ...]:
    """Return the parameters with paths of files to read: the declared ones, else likely ones."""
    if manifest.files.access != "named":
        return manifest.files.read
    return tuple(parameter.name for parameter in tool.parameters if names_file(parameter))


def names_file(parameter: Parameter) -> bool:
    """Whether a parameter seems to be the path of a file, by its name and description."""
    return parameter.type == "string" and bool(
        _PATH_NAME.search(parameter.name) or _PATH_DESCRIPTION.search(parameter.description)
    )


def _required_arguments(tool: ToolDecl, valid: dict[str, Any], path: Parameter) -> dict[str, Any]:
    """Return the valid arguments beside a path that are required; others may exclude the path."""
    required = {parameter.name for parameter in tool.parameters if parameter.required}
    return {name: value for name, value in valid.items() if name in required and name != path.name}


class CaseResult(NamedTuple):
    """The result of a test case."""

    case: ToolTestCase
    state: State
    text: str = ""
    """The reply, or why it was not run."""
    ms: float = 0.0
    fault: str = ""
    """The fault of the program's run."""
    error: str = ""
    """The program's own error."""

    def to_dict(self) -> dict[str, Any]:
        """The form for `--json`."""
        return {
            "tool": self.case.tool,
            "kind": self.case.kind,
            "case": self.case.title,
            "arguments": self.case.arguments,
            "state": self.state,
            "said": self.text,
            "ms": round(self.ms, 1),
        }


def run_cases(program: OpenProgram) -> Iterator[CaseResult]:
    """Run every case of every tool, one after the other."""
    for tool in program.manifest.tools:
        for case in make_cases(program.manifest, tool):
            yield run_case(program, tool, case)


def run_case(program: OpenProgram, tool: ToolDecl, case: ToolTestCase) -> CaseResult:
    """Run one case; errors of a program are results."""
    try:
        if case.kind == "example":
            return _run_example(program, tool, case)
        return _run_invalid(program, tool, case)
    except SatchelError as exc:
        return CaseResult(case, "fail", exc.message)


# --- examples -----------------------------------------------------------------------------


def _run_example(program: OpenProgram, tool: ToolDecl, case: ToolTestCase) -> CaseResult:
    try:
        missing = missing_files(case, program.satchel.settings.project)
        if missing:
            return CaseResult(case, "not-run", say("needs {files}", files=", ".join(missing)))
        if program.manifest.secrets:
            names = ", ".join(program.manifest.secrets)
            return CaseResult(
                case, "not-run", say("needs the secrets {names}: use `satchel try`", names=names)
            )
        result = _call_example(program, tool, case)
    except ToolFailed as exc:  # unused by every tool, so not copied
        return CaseResult(case, "not-run", exc.failure.message(language(), exc.values))
    return CaseResult(case, *_judge_output(result), result.ran_ms)


def _call_example(program: OpenProgram, tool: ToolDecl, case: ToolTestCase) -> RunResult:
    """Run the program with the files of an agent's call.

    A tool that writes gets copies in a temporary folder, never the project.

    Raises:
        ToolFailed: one of the files may not be used.
    """
    project, files = program.satchel.settings.project, program.manifest.files
    arguments = check_files(files, check(dict(case.arguments), tool.schema(), {}), project)
    if files.access != "write":
        return program.run(tool, arguments)
    with tempfile.TemporaryDirectory(prefix="satchel-test-") as folder:
        # Both paths are untrusted: they are read and written only with these functions.
        source, copy = Workspace(project), Workspace(folder)
        for path in (arguments.get(name) for name in files.read):
            if isinstance(path, str) and path:
                copy.write(path, source.read(path), overwrite=True)
        return program.run(tool, arguments, folder)


def _judge_output(result: RunResult) -> tuple[State, str]:
    if result.fault is not None:
        return "fail", _fault_text(result)
    if result.error:
        return "fail", result.error
    if not result.output and result.data is None:
        return "fail", say("the answer is empty")
    return "pass", result.output


# --- wrong arguments ----------------------------------------------------------------------


def _run_invalid(program: OpenProgram, tool: ToolDecl, case: ToolTestCase) -> CaseResult:
    result = program.run(tool, case.arguments)
    if result.fault is not None:
        return CaseResult(case, "fail", _fault_text(result), result.ran_ms, result.fault)
    if not result.error:
        text = say("it returned no error") if case.must_fail else result.output
        return CaseResult(case, "fail" if case.must_fail else "pass", text, result.ran_ms)
    for rule, is_broken in (
        ("error-inside", bool(find_internals(result.error))),
        ("error-wording", bool(find_message_fault(result.error))),
    ):
        if is_broken:
            text = say(RULES[rule].demand) + say(": ") + result.error
            return CaseResult(case, "fail", text, result.ran_ms, error=result.error)
    return CaseResult(case, "pass", result.error, result.ran_ms, error=result.error)


def _fault_text(result: RunResult) -> str:
    fault = str(result.fault)
    if result.detail:
        fault = Message("{code} ({known})", code=fault, known=one_line(result.detail, 300))
    stderr_lines = result.stderr.strip().splitlines() if result.stderr else []
    return (
        Message("{said}: {answer}", said=fault, answer=stderr_lines[-1]) if stderr_lines else fault
    )


class OpenProgram(NamedTuple):
    """The program of a tool skill, ready to run."""

    satchel: Satchel
    folder: str
    manifest: ToolManifest
    executable: Program
    is_own: bool = False
    """Whether the skill is the user's own."""

    def run(self, tool: ToolDecl, arguments: Mapping[str, Any], workspace: str = "") -> RunResult:
        """Pass arguments to the program unchecked; secrets are not passed.

        Args:
            tool: The tool.
            arguments: Any arguments.
            workspace: The visible folder instead of the project.

        Raises:
            Unsandboxed: there is no sandbox, and the user did not agree to go without.
        """
        access = self.manifest.files.access
        visible_folder, visible_paths = workspace or self.satchel.settings.project, ()
        if access == "named":
            visible_paths = named_paths(visible_folder, arguments.values(), lambda _path: False)
        if access == "none" or (access == "named" and not visible_paths):
            visible_folder = ""
        # A test never writes to the project.
        permissions = ProgramPermissions(
            visible_folder,
            visible_paths,
            writable=access == "write" and bool(workspace),
            network=self.manifest.network,
        )
        result = self.satchel.runner.run(
            RunRequest(
                self.folder,
                tool.name,
                arguments,
                self.executable,
                permissions,
                program_limits(self.manifest, self.satchel.settings),
                several=self.manifest.several,
                own=self.is_own,
            )
        )
        if result.changes is not None:
            has_failed = result.fault is not None or bool(result.error)
            result.changes.apply(() if has_failed else result.changes.permitted)
        return result


def open_program(satchel: Satchel, folder: str, *, is_own: bool = False) -> OpenProgram:
    """Prepare the skill of a folder for tests; build its program if necessary.

    Raises:
        InvalidInput: its skill.yaml cannot be used.
        Refused: it is not trusted.
        MissingRuntime: a Python, Node or Go is needed that is not here.
        BuildFailed: dependencies cannot be had, or it does not build.
    """
    reading = load_manifest(folder)
    if reading.manifest is None:
        first = next(problem for problem in reading.problems if problem.severity == "error")
        raise InvalidInput(first.message, first.fix)
    check_trust(satchel, folder)
    executable = satchel.runner.prepare(folder, reading.manifest, own=is_own)
    return OpenProgram(satchel, folder, reading.manifest, executable, is_own)


def check_trust(satchel: Satchel, folder: str) -> None:
    """Refuse a skill that an agent could not call.

    Raises:
        Refused: it is not trusted or not offered, or the folder is not in the library.
        SatchelError: it may not be used as it is.
    """
    snapshot = satchel.library.tools()
    path = os.path.abspath(folder)
    tool_skills = (*snapshot.skills, *snapshot.hidden)
    tool_skill = next((entry for entry in tool_skills if entry.skill.base_dir == path), None)
    if tool_skill is None:
        if satchel.settings.trust == "all":
            return
        raise Refused(
            say("`{path}` is not one of this project's skills", path=path),
            say("Run `{command}`", command=f"satchel install {path}"),
        )
    check_runnable(snapshot, tool_skill)


def check_runnable(snapshot: ToolSnapshot, tool_skill: ToolSkill) -> None:
    """Require that an agent could call the skill.

    Args:
        snapshot: The snapshot with the skill.
        tool_skill: The skill, offered or hidden.

    Raises:
        Refused: it is not offered; the message contains the reason.
        SatchelError: it may not be used as it is.
    """
    skill = tool_skill.skill
    if skill.state == "active":
        return
    exc = snapshot.refused.get(skill.ref)
    if exc is not None:
        raise exc
    if skill.state == "blocked":
        raise Refused(*blocked_skill(skill))
    command = "satchel trust" if skill.state == "untrusted" else f"satchel why {skill.reference}"
    raise Refused(
        say("`{name}` is not run: {state}", name=skill.reference, state=say(skill.state)),
        say("Run `{command}`", command=command),
    )
