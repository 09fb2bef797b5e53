"""Test cases of a tool skill and their execution, for `satchel test`.

example   from the manifest: the reply has output
program   invalid arguments passed to the program: it replies with an error and does not crash. Any
          reply to an unknown parameter is accepted
"""

from __future__ import annotations

import os
import re
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from satchel.authoring.checklist import RULES
from satchel.authoring.text_rules import internals_in, message_error
from satchel.errors import InvalidInput, Refused, SatchelError
from satchel.i18n import Message, language, say
from satchel.skill.manifest_parser import load_manifest
from satchel.tools.framing import one_line
from satchel.tools.lookup import blocked_skill
from satchel.tools.schema import check

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from satchel.library.snapshot import ToolSnapshot
    from satchel.library.tool_skills import ToolSkill
    from satchel.runners.base import Program, RunResult
    from satchel.satchel import Satchel
    from satchel.skill.manifest import Parameter, ToolDecl, ToolManifest

Kind = Literal["example", "program"]
ESCAPE = "../../../../../../etc/passwd"
NOWHERE = "no-such-folder/no-such-file.txt"
UNKNOWN = "no_such_parameter"
_WRONG: dict[str, Any] = {
    "string": [1, 2],
    "integer": "not a number",
    "number": "not a number",
    "boolean": "perhaps",
}
"""Type -> an invalid value."""
_PLAIN: dict[str, Any] = {"string": "text", "integer": 1, "number": 1.5, "boolean": True}


_FILE_NAME = re.compile(
    r"(?:^|_)(?:path|file|filename|filepath|dir|directory|folder)$", re.IGNORECASE
)
_FILE_WORDS = re.compile(
    r"文件路径|文件的路径|\bfile path\b|\bpath (?:of|to) (?:a|an|the)\b", re.IGNORECASE
)
"""Names and descriptions of parameters that are paths of files."""


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


def cases_of(manifest: ToolManifest, tool: ToolDecl) -> list[ToolTestCase]:
    """Every case of one tool."""
    return [*_examples(manifest, tool), *_wrong(manifest, tool)]


def _examples(manifest: ToolManifest, tool: ToolDecl) -> Iterator[ToolTestCase]:
    for at, shown in enumerate(tool.docs.examples, 1):
        needs = tuple(
            str(shown.arguments[name])
            for name in _sources(manifest, tool)
            if isinstance(shown.arguments.get(name), str) and shown.arguments[name]
        )
        title = shown.scenario or say("example {count}", count=at)
        yield ToolTestCase(
            tool.name, "example", title, dict(shown.arguments), must_fail=False, needs=needs
        )


def missing_files(case: ToolTestCase, workspace: str) -> list[str]:
    """Return files of an example that the workspace lacks.

    Paths are untrusted and checked like those of a call: no link and no `..` leads out.

    Raises:
        ToolFailed: one leads outside, is no file, or is too large.
    """
    from satchel.tools.workspace import NOT_FOUND, ToolFailed, Workspace

    missing: list[str] = []
    place = Workspace(workspace)
    for path in case.needs:
        try:
            place.check_source(path)
        except ToolFailed as exc:
            if exc.failure is not NOT_FOUND:
                raise
            missing.append(path)
    return missing


def valid_arguments(tool: ToolDecl) -> dict[str, Any]:
    """Return valid arguments: those of the first example, or generated ones."""
    if tool.docs.examples:
        return dict(tool.docs.examples[0].arguments)
    return {one.name: _PLAIN[one.type] for one in tool.parameters if one.required}


def _wrong(manifest: ToolManifest, tool: ToolDecl) -> Iterator[ToolTestCase]:
    case = partial(ToolTestCase, tool.name, "program")
    good = valid_arguments(tool)
    for one in tool.parameters:
        if one.required:
            left = {name: value for name, value in good.items() if name != one.name}
            yield case(say("without `{name}`", name=one.name), left)
    for one in tool.parameters:
        title = say("`{name}` of a wrong type", name=one.name)
        # A program may treat a wrong boolean as it likes.
        strict = one.type != "boolean"
        yield case(title, {**good, one.name: _WRONG[one.type]}, strict)
    yield case(say("an unknown parameter"), {**good, UNKNOWN: 1}, must_fail=False)
    for one in _paths(manifest, tool):
        only = _only(tool, good, one)
        yield case(say("`{name}` leads outside", name=one.name), {**only, one.name: ESCAPE})
        if one.name in _sources(manifest, tool):
            yield case(say("`{name}` is not there", name=one.name), {**only, one.name: NOWHERE})


def _paths(manifest: ToolManifest, tool: ToolDecl) -> list[Parameter]:
    named = {*_sources(manifest, tool), *manifest.files.write}
    return [one for one in tool.parameters if one.name in named]


def _sources(manifest: ToolManifest, tool: ToolDecl) -> tuple[str, ...]:
    """Parameters with paths of files that are read: the declared ones, else those that look so."""
    if manifest.files.access != "named":
        return manifest.files.read
    return tuple(one.name for one in tool.parameters if names_file(one))


def names_file(parameter: Parameter) -> bool:
    """Whether a parameter seems to be the path of a file, by its name and description."""
    return parameter.type == "string" and bool(
        _FILE_NAME.search(parameter.name) or _FILE_WORDS.search(parameter.description)
    )


def _only(tool: ToolDecl, good: dict[str, Any], path: Parameter) -> dict[str, Any]:
    """Return valid arguments beside a path: required ones only, since others may exclude it."""
    required = {one.name for one in tool.parameters if one.required}
    return {name: value for name, value in good.items() if name in required and name != path.name}


State = Literal["pass", "fail", "not-run"]


class CaseResult(NamedTuple):
    """The result of a test case."""

    case: ToolTestCase
    state: State
    said: str = ""
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
            "said": self.said,
            "ms": round(self.ms, 1),
        }


def run_cases(bench: TestBench) -> Iterator[CaseResult]:
    """Run every case of every tool, one after the other."""
    for tool in bench.manifest.tools:
        for case in cases_of(bench.manifest, tool):
            yield run_case(bench, tool, case)


def run_case(bench: TestBench, tool: ToolDecl, case: ToolTestCase) -> CaseResult:
    """Run one case; errors of a program are results."""
    try:
        if case.kind == "example":
            return _example(bench, tool, case)
        return _program(bench, tool, case)
    except SatchelError as exc:
        return CaseResult(case, "fail", exc.message)


# --- examples -----------------------------------------------------------------------------


def _example(bench: TestBench, tool: ToolDecl, case: ToolTestCase) -> CaseResult:
    from satchel.tools.workspace import ToolFailed

    try:
        missing = missing_files(case, bench.satchel.settings.project)
        if missing:
            return CaseResult(case, "not-run", say("needs {files}", files=", ".join(missing)))
        if bench.manifest.secrets:
            names = ", ".join(bench.manifest.secrets)
            return CaseResult(
                case, "not-run", say("needs the secrets {names}: use `satchel try`", names=names)
            )
        result = _run_example(bench, tool, case)
    except ToolFailed as exc:  # unused by every tool, so not copied
        return CaseResult(case, "not-run", exc.failure.message(language(), exc.values))
    return CaseResult(case, *_judge_output(result), result.ran_ms)


def _run_example(bench: TestBench, tool: ToolDecl, case: ToolTestCase) -> RunResult:
    """Run the program with the files of an agent's call.

    A tool that writes gets copies in a temporary folder, never the project.

    Raises:
        ToolFailed: one of the files may not be used.
    """
    from satchel.tools.program_tool import check_files

    project, files = bench.satchel.settings.project, bench.manifest.files
    arguments = check_files(files, check(dict(case.arguments), tool.schema(), {}), project)
    if files.access != "write":
        return bench.run(tool, arguments)
    import tempfile

    from satchel.tools.workspace import Workspace

    with tempfile.TemporaryDirectory(prefix="satchel-test-") as folder:
        # Both paths are untrusted: they are read and written only with these functions.
        source, copy = Workspace(project), Workspace(folder)
        for path in (arguments.get(name) for name in files.read):
            if isinstance(path, str) and path:
                copy.write(path, source.read(path), overwrite=True)
        return bench.run(tool, arguments, folder)


def _judge_output(result: RunResult) -> tuple[State, str]:
    if result.fault is not None:
        return "fail", _fault(result)
    if result.error:
        return "fail", result.error
    if not result.output and result.data is None:
        return "fail", say("the answer is empty")
    return "pass", result.output


# --- wrong arguments ----------------------------------------------------------------------


def _program(bench: TestBench, tool: ToolDecl, case: ToolTestCase) -> CaseResult:
    result = bench.run(tool, case.arguments)
    if result.fault is not None:
        return CaseResult(case, "fail", _fault(result), result.ran_ms, result.fault)
    if not result.error:
        said = say("it returned no error") if case.must_fail else result.output
        return CaseResult(case, "fail" if case.must_fail else "pass", said, result.ran_ms)
    for rule, bad in (
        ("error-inside", internals_in(result.error)),
        ("error-wording", message_error(result.error)),
    ):
        if bad:
            said = say(RULES[rule].demand) + say(": ") + result.error
            return CaseResult(case, "fail", said, result.ran_ms, error=result.error)
    return CaseResult(case, "pass", result.error, result.ran_ms, error=result.error)


def _fault(result: RunResult) -> str:
    said = str(result.fault)
    if result.detail:
        said = Message("{code} ({known})", code=said, known=one_line(result.detail, 300))
    last = result.stderr.strip().splitlines()[-1:] if result.stderr else []
    return Message("{said}: {answer}", said=said, answer=last[0]) if last else said


class TestBench(NamedTuple):
    """A program ready to run."""

    satchel: Satchel
    folder: str
    manifest: ToolManifest
    program: Program
    own: bool = False
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
        from satchel.runners.base import ProgramPermissions, RunRequest
        from satchel.tools.program_tool import limits_of
        from satchel.tools.workspace import named_paths

        access = self.manifest.files.access
        place, named = workspace or self.satchel.settings.project, ()
        if access == "named":
            named = named_paths(place, arguments.values(), lambda _path: False)
        if access == "none" or (access == "named" and not named):
            place = ""
        writable = access == "write" and bool(workspace)
        return self.satchel.runner.run(
            RunRequest(
                self.folder,
                tool.name,
                arguments,
                self.program,
                # A test never writes to the project.
                ProgramPermissions(place, named, writable=writable, network=self.manifest.network),
                limits_of(self.manifest, self.satchel.settings),
                several=self.manifest.several,
                own=self.own,
            )
        )


def open_program(satchel: Satchel, folder: str, *, own: bool = False) -> TestBench:
    """Prepare the skill of a folder for tests; build its program if necessary.

    Raises:
        InvalidInput: its skill.yaml cannot be used.
        Refused: it is not trusted.
        MissingRuntime: a Python, Node or Go is needed that is not here.
        BuildFailed: dependencies cannot be had, or it does not build.
    """
    reading = load_manifest(folder)
    if reading.manifest is None:
        first = next(one for one in reading.problems if one.severity == "error")
        raise InvalidInput(first.message, first.fix)
    check_trust(satchel, folder)
    program = satchel.runner.prepare(folder, reading.manifest, own=own)
    return TestBench(satchel, folder, reading.manifest, program, own)


def check_trust(satchel: Satchel, folder: str) -> None:
    """Refuse a skill that an agent could not call.

    Raises:
        Refused: it is not trusted or not offered, or the folder is not in the library.
        SatchelError: it may not be used as it is.
    """
    look = satchel.library.tools()
    path = os.path.abspath(folder)
    found = next((one for one in (*look.skills, *look.hidden) if one.skill.base_dir == path), None)
    if found is None:
        if satchel.settings.trust == "all":
            return
        raise Refused(
            say("`{path}` is not one of this project's skills", path=path),
            say("Run `{command}`", command=f"satchel install {path}"),
        )
    check_runnable(look, found)


def check_runnable(look: ToolSnapshot, source: ToolSkill) -> None:
    """Require that an agent could call the skill.

    Args:
        look: The snapshot with the skill.
        source: The skill, offered or hidden.

    Raises:
        Refused: it is not offered; the message contains the reason.
        SatchelError: it may not be used as it is.
    """
    skill = source.skill
    if skill.state == "active":
        return
    exc = look.refused.get(skill.ref)
    if exc is not None:
        raise exc
    if skill.state == "blocked":
        raise Refused(*blocked_skill(skill))
    command = "satchel trust" if skill.state == "untrusted" else f"satchel why {skill.reference}"
    raise Refused(
        say("`{name}` is not run: {state}", name=skill.reference, state=say(skill.state)),
        say("Run `{command}`", command=command),
    )
