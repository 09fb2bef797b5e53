"""Tools declared in a skill.yaml: runs the skill's program with one JSON line in and one out.

Before the process starts, the arguments, the files they name and the skill are checked, and secrets
are looked up. The output of the program is untrusted: it is cut, redacted and framed.
"""

from __future__ import annotations

import json
import os
import re
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from satchel._fs import is_really_inside
from satchel.errors import InvalidInput, LockBroken, Refused, SettingsError
from satchel.i18n import Message, for_model, language, model_language
from satchel.runners.base import ProgramLimits, ProgramPermissions, RunRequest
from satchel.skill.document import MANIFEST
from satchel.tools.base import Tool
from satchel.tools.failures import NOT_READABLE, ToolFailed
from satchel.tools.framing import encodable, one_line
from satchel.tools.lookup import for_person, refuse_use
from satchel.tools.program_reply import ProgramRun, reply_to_missing_secret
from satchel.tools.program_run import (
    NETWORK_ERROR,
    changed_skill,
    confirm_unchanged,
    protected_paths,
    run_program,
)
from satchel.tools.read_file import state_at
from satchel.tools.workspace import MAX_FILE_BYTES, Workspace, named_paths

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from satchel.envelope import Envelope
    from satchel.library import Library
    from satchel.library.integrity import VerifiedFolder
    from satchel.library.tool_skills import ToolSkill
    from satchel.runners.base import Program, RunResult
    from satchel.settings import Settings
    from satchel.skill.manifest import FileAccess, ToolDecl, ToolManifest
    from satchel.tools.base import ToolCall
    from satchel.tools.program_runner import ProgramRunner
    from satchel.tools.secrets import Secrets
    from satchel.trace import Trace


MAX_REQUEST_BYTES = 1024 * 1024
"""The longest arguments that a program reads, as JSON."""
MAX_DESCRIPTION_CHARS = 1024
_MAX_SENTENCES_SHOWN = 6
_MAX_PATH_CHARS = 1_000
_FILE_ACCESS_ERROR = re.compile(
    r"FileNotFoundError|PermissionError|ENOENT|EACCES|no such file|permission denied", re.IGNORECASE
)
"""How runtimes report that a file is missing or may not be opened."""


def check_files(
    files: FileAccess,
    arguments: Mapping[str, Any],
    root: str,
    limit: int = MAX_FILE_BYTES,
    is_hidden: Callable[[str], bool] | None = None,
) -> dict[str, Any]:
    """Check the files that arguments name; returns the arguments with relative paths.

    Raises:
        ToolFailed: a path is outside, missing, no file, or too large.
    """
    checked = dict(arguments)
    workspace = Workspace(root, limit)
    for name in files.read:
        path = checked.get(name)
        if isinstance(path, str) and path:  # an omitted optional one is empty
            checked[name] = workspace.check_source(path)
            real_path = os.path.realpath(os.path.join(root, checked[name]))
            if is_hidden is not None and is_hidden(real_path):
                raise ToolFailed(NOT_READABLE, path=path)
    for name in files.write:
        path = checked.get(name)
        if isinstance(path, str) and path and name not in files.read:
            checked[name] = workspace.check_target(path, overwrite=True)
    return checked


class CheckedCall(NamedTuple):
    """A call whose skill, arguments and secrets were checked."""

    call: ToolCall
    verified: VerifiedFolder
    arguments: Mapping[str, Any]
    visible_paths: tuple[str, ...]
    """The files and folders of the project that the arguments name, where only those are shown."""
    secrets: tuple[tuple[str, str], ...]
    is_own: bool
    """Whether the skill is the user's own work."""


class ProgramTool(Tool):
    """A tool whose program is in a skill's folder."""

    def __init__(
        self,
        tool_skill: ToolSkill,
        tool: ToolDecl,
        *,
        library: Library,
        settings: Settings,
        runner: ProgramRunner,
        secrets: Secrets,
        trace: Trace,
    ) -> None:
        self._tool_skill = tool_skill
        self._tool = tool
        self._library = library
        self._settings = settings
        self._runner = runner
        self._secrets = secrets
        self._trace = trace
        manifest = tool_skill.manifest
        self.name = tool.name
        self.owner = tool_skill.skill.name
        self.description = describe_tool(tool)
        self.parameters = _shorten_texts(tool.schema())
        self.secrets = tuple(manifest.secrets)
        self.unsandboxed = settings.sandbox == "off"
        self.hints = {
            # A program may do whatever its sandbox permits, so nothing is promised.
            "readOnlyHint": False,
            "destructiveHint": self.unsandboxed or manifest.files.access == "write",
            "idempotentHint": False,
            "openWorldHint": self.unsandboxed or manifest.network,
        }

    @property
    def proposes(self) -> bool:
        """Whether an overlay catches what the program writes."""
        if self._tool_skill.manifest.files.access != "write":
            return False
        integrity, skill = self._library.integrity, self._tool_skill.skill
        return not self._runner.writes_directly(lambda: integrity.is_own(skill))

    def run(self, call: ToolCall) -> Envelope:
        """Run the program once: verify the skill, check the arguments, look up secrets, run."""
        skill, manifest = self._tool_skill.skill, self._tool_skill.manifest
        try:
            verified = self._verify()
        except (Refused, LockBroken) as exc:
            return refuse_use(call, exc)
        try:
            arguments, visible_paths = self._check_arguments(call)
        except ToolFailed as exc:
            reader_language = language() if call.as_person else model_language()
            message = exc.failure.message(reader_language, exc.values)
            return call.fail(exc.failure.code, message, "", {"failure": exc.failure.id})
        _check_size(arguments)
        try:
            secrets = self._secrets.values(manifest.secrets) if manifest.secrets else ()
        except SettingsError as exc:
            return reply_to_missing_secret(call, self.name, exc)
        is_own = self._library.integrity.is_own(skill)
        checked = CheckedCall(call, verified, arguments, visible_paths, secrets, is_own)
        program_run = ProgramRun(
            call,
            self.name,
            skill,
            program_limits(manifest, self._settings),
            project=self._settings.project,
            entry=manifest.entry,
            secrets=secrets,
        )
        return run_program(
            program_run,
            self._runner,
            partial(self._prepare, checked),
            partial(self._make_request, checked),
            trace=self._trace,
            find_hint=partial(self._find_permission_hint, call),
            has_declared_data=self._tool.returns is not None,
        )

    def _verify(self) -> VerifiedFolder:
        """Check that the skill may be used, with the manifest that was read.

        Raises:
            Refused: it may not, or it changed.
            LockBroken: the lockfile cannot be read.
        """
        skill = self._tool_skill.skill
        verified = self._library.integrity.check(skill)
        if not verified.has(MANIFEST, self._tool_skill.digest):
            raise changed_skill(skill.name)
        return verified

    def _check_arguments(self, call: ToolCall) -> tuple[Mapping[str, Any], tuple[str, ...]]:
        """Return the arguments with relative paths, and the files that the program may see by them.

        Raises:
            ToolFailed: a file may not be used.
        """
        files, project = self._tool_skill.manifest.files, self._settings.project
        if files.access == "none":
            return call.arguments, ()
        arguments = check_files(files, call.arguments, project, is_hidden=self._is_excluded)
        if files.access != "named":
            return arguments, ()
        return arguments, named_paths(project, arguments.values(), self._is_excluded)

    def _is_excluded(self, path: str) -> bool:
        return state_at(self._library, path) == "excluded"

    def _prepare(self, checked: CheckedCall, timeout_s: float) -> Program:
        """Build the program where necessary, within the time."""
        skill = self._tool_skill.skill
        return self._runner.prepare(
            skill.base_dir,
            self._tool_skill.manifest,
            checked.verified.tree.digest,
            confirm=partial(confirm_unchanged, checked.verified, skill.name),
            cancel=checked.call.cancel,
            seconds=timeout_s,
            own=checked.is_own,
        )

    def _make_request(self, checked: CheckedCall, program: Program) -> RunRequest:
        """Make the request for the built program."""
        manifest = self._tool_skill.manifest
        may_write = manifest.files.access == "write"
        return RunRequest(
            self._tool_skill.skill.ref,
            self.name,
            checked.arguments,
            program,
            self._permissions(checked.secrets, checked.visible_paths),
            several=manifest.several,
            own=checked.is_own,
            protected=protected_paths(self._library, self._settings) if may_write else (),
        )

    def _permissions(
        self, secrets: tuple[tuple[str, str], ...], visible_paths: tuple[str, ...]
    ) -> ProgramPermissions:
        manifest = self._tool_skill.manifest
        access = manifest.files.access
        return ProgramPermissions(
            self._settings.project if visible_paths or access in ("read", "write") else "",
            visible_paths,
            writable=access == "write",
            network=manifest.network,
            secrets=secrets,
        )

    def _find_permission_hint(self, call: ToolCall, result: RunResult) -> Message | None:
        """Return the next step when a program seems to miss a permission.

        - A runtime reports that there is no network, and the program may not use it.
        - A runtime reports a missing file, and the program sees no file of the project.
        - An argument is the path of a file of the project that the program did not see.
        """
        if result.fault is None and not result.error:
            return None
        manifest = self._tool_skill.manifest
        output = f"{result.error}\n{result.detail}\n{result.stderr}"
        if not manifest.network and NETWORK_ERROR.search(output):
            return for_person(
                Message("It may not use the network: add `network: true` to its `skill.yaml`")
            )
        access, values = manifest.files.access, call.arguments.values()
        if access in ("read", "write"):
            return None
        # Without a declaration the program sees the files that are named: one may just be missing.
        sees_no_files = access == "none" or not any(isinstance(value, str) for value in values)
        misses_file = sees_no_files and bool(_FILE_ACCESS_ERROR.search(output))
        if not misses_file and not any(map(self._names_unseen_file, values)):
            return None
        return for_person(
            Message("It may not read the project's files: add `files: read` to its `skill.yaml`")
        )

    def _names_unseen_file(self, value: Any) -> bool:
        """Whether an argument is the path of a file of the project that the program did not see."""
        if not isinstance(value, str) or not 0 < len(value) <= _MAX_PATH_CHARS or "\0" in value:
            return False
        project = self._settings.project
        path = os.path.join(project, value)
        if not os.path.isfile(path) or not is_really_inside(path, project):
            return False
        access = self._tool_skill.manifest.files.access
        return access == "none" or not named_paths(project, (value,), lambda _path: False)


def describe_tool(tool: ToolDecl) -> str:
    """Return the description for a model: the author's text, bounded and encodable."""
    lines = [_shorten(tool.description)]
    for title, sentences in (
        (Message("Use it when"), tool.docs.when_to_use),
        (Message("Not for"), tool.docs.when_not_to_use),
    ):
        if sentences:
            cleaned = [one_line(encodable(text), 200) for text in sentences[:_MAX_SENTENCES_SHOWN]]
            lines.append(
                for_model(Message("{said}: {answer}", said=title, answer="; ".join(cleaned)))
            )
    return "\n".join(lines)


def _shorten(text: str) -> str:
    return encodable(text[:MAX_DESCRIPTION_CHARS])


def _shorten_texts(schema: dict[str, Any]) -> dict[str, Any]:
    """Shorten the texts of a schema, in place, and return it."""
    for rule in schema["properties"].values():
        rule["description"] = _shorten(rule["description"])
        if isinstance(rule.get("default"), str):
            # A long default is an error of the skill.yaml.
            rule["default"] = _shorten(rule["default"])
    return schema


def _check_size(arguments: Mapping[str, Any]) -> None:
    """Check the size of the arguments as JSON, where a control character has six bytes.

    Raises:
        InvalidInput: they are too large for a program.
    """
    text = json.dumps(dict(arguments), ensure_ascii=False, default=str)
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > MAX_REQUEST_BYTES:
        raise InvalidInput(
            Message(
                "The arguments have {size} bytes; at most {limit} are handed over",
                size=f"{size:,}",
                limit=f"{MAX_REQUEST_BYTES:,}",
            ),
            Message("Write long text to a file and give its path"),
        )


def program_limits(manifest: ToolManifest, settings: Settings) -> ProgramLimits:
    """Return the limits of a program, for calls and for its author's tests."""
    return ProgramLimits(
        timeout=manifest.timeout or float(max(settings.tools.timeout, 1)),
        output=max(settings.tools.output, 1),
        memory=max(settings.tools.memory, 1) << 20,
    )
