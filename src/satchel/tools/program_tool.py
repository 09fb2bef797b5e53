"""Tools declared in a skill.yaml: runs the skill's program with one JSON line in and one out.

Before the process starts, the arguments, the files they name and the skill are checked, and secrets
are looked up. The output of the program is untrusted: it is cut, redacted and framed.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, cast

from satchel._fs import is_inside, is_really_inside
from satchel.errors import (
    BuildFailed,
    Changed,
    InvalidInput,
    LockBroken,
    MissingRuntime,
    Refused,
    SatchelError,
    SettingsError,
)
from satchel.i18n import Message, for_model, language, map_text, model_language
from satchel.library import default_locations
from satchel.runners.base import BuildStopped, ProgramLimits, ProgramPermissions, RunRequest
from satchel.skill.document import MANIFEST
from satchel.tools.base import Tool
from satchel.tools.framing import attribute, encodable, framed, one_line
from satchel.tools.lookup import for_person, refuse_use
from satchel.tools.packaged import ToolFailed
from satchel.tools.read_file import state_at
from satchel.tools.secrets import Redactor
from satchel.tools.workspace import MAX_FILE_BYTES, NOT_READABLE, Workspace, named_paths

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from satchel.envelope import Envelope, ErrorCode
    from satchel.library import Library
    from satchel.library.integrity import VerifiedFolder
    from satchel.library.tool_skills import ToolSkill
    from satchel.runners.base import RunResult
    from satchel.settings import Settings
    from satchel.skill.manifest import FileAccess, ToolDecl, ToolManifest
    from satchel.tools.base import ToolCall
    from satchel.tools.program_runner import ProgramRunner
    from satchel.tools.secrets import Secrets
    from satchel.trace import Trace


def check_files(
    files: FileAccess,
    arguments: Mapping[str, Any],
    root: str,
    limit: int = MAX_FILE_BYTES,
    hidden: Callable[[str], bool] | None = None,
) -> dict[str, Any]:
    """Check the files that arguments name; returns the arguments with relative paths.

    Raises:
        ToolFailed: a path is outside, missing, no file, or too large.
    """
    found = dict(arguments)
    workspace = Workspace(root, limit)
    for name in files.read:
        path = found.get(name)
        if isinstance(path, str) and path:  # an omitted optional one is empty
            found[name] = workspace.check_source(path)
            if hidden is not None and hidden(os.path.realpath(os.path.join(root, found[name]))):
                raise ToolFailed(NOT_READABLE, path=path)
    for name in files.write:
        path = found.get(name)
        if isinstance(path, str) and path and name not in files.read:
            found[name] = workspace.check_target(path, overwrite=True)
    return found


MAX_REQUEST_BYTES = 1024 * 1024
"""Of the line that a program reads."""
BUILD_TIMEOUT_S = 300.0
MAX_DESCRIPTION_CHARS = 1024
_MAX_SENTENCES_SHOWN = 6
_MAX_STDERR_CHARS = 2_000
_MAX_ERROR_CHARS = 2_000
_ONE_LINE = (
    "Write one line to stdout, a JSON object with `output` and `error`, and all else to stderr: "
    "correct `{path}`"
)
MENDS = {
    "cannot-start": "Check that `{path}` can be run, and run `satchel config sandbox`",
    "not-json": _ONE_LINE,
    "not-an-object": _ONE_LINE,
    "wrong-fields": _ONE_LINE,
    "bad-utf8": _ONE_LINE,
    "two-replies": _ONE_LINE,
    "": "Correct `{path}`",
}
"""The fix of each fault, for the author of the program."""
_UNQUOTED = frozenset((
    "cannot-start", "timeout", "cancelled", "crashed", "exit-code", "memory", "processes",
    "no-reply", "too-long", "bad-utf8", "not-an-object", "closed-input",
))  # fmt: skip
"""Faults whose detail contains no output of the program."""
_CRASHES = frozenset(("exit-code", "crashed", "no-reply", "partial-reply"))
"""Faults whose reason a program usually writes to stderr."""
_MAX_REASON_CHARS, _MAX_REASON_LINES = 800, 8
_NO_REASON = re.compile(
    r"^\s*$|^\s+at |^\s*\^+\s*$|^Node\.js v|^goroutine \d|^\t/|^exit status \d|^\(Use `node "
)
"""Lines of stderr that do not explain a crash: frames of Node and Go, marks."""
_COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_NO_FILE = re.compile(
    r"FileNotFoundError|PermissionError|ENOENT|EACCES|no such file|permission denied", re.IGNORECASE
)
"""How runtimes report that a file is missing or may not be opened."""
_NO_NETWORK = re.compile(
    r"address family not supported|EAFNOSUPPORT|network is unreachable|ENETUNREACH"
    r"|temporary failure in name resolution|EAI_AGAIN|name or service not known"
    r"|failed to resolve|no such host",
    re.IGNORECASE,
)
"""How runtimes report that there is no network."""
_MAX_DETAIL_CHARS = 300
_MAX_QUOTE_CHARS = 60
_MAX_PATH_CHARS = 1_000


class ProgramTool(Tool):
    """A tool whose program is in a skill's folder."""

    def __init__(
        self,
        source: ToolSkill,
        tool: ToolDecl,
        *,
        library: Library,
        settings: Settings,
        runner: ProgramRunner,
        secrets: Secrets,
        trace: Trace,
    ) -> None:
        self._source = source
        self._tool = tool
        self._library = library
        self._settings = settings
        self._runner = runner
        self._secrets = secrets
        self._trace = trace
        manifest = source.manifest
        self.name = tool.name
        self.owner = source.skill.name
        self.description = describe_tool(tool)
        self.parameters = _clean_schema(tool.schema())
        self.hints = {
            # A program may do whatever its sandbox permits, so nothing is promised.
            "readOnlyHint": False,
            "destructiveHint": manifest.files.access == "write",
            "idempotentHint": False,
            "openWorldHint": manifest.network,
        }

    def run(self, call: ToolCall) -> Envelope:
        """Run the program once."""
        source, manifest = self._source, self._source.manifest
        skill = source.skill
        try:
            verified = self._library.integrity.check(skill)
            if not verified.has(MANIFEST, source.digest):
                raise _changed(skill.name)
        except (Refused, LockBroken) as exc:
            return refuse_use(call, exc)
        arguments = call.arguments
        files, project = manifest.files, self._settings.project
        named: tuple[str, ...] = ()
        if files.access != "none":

            def hidden(path: str) -> bool:
                return state_at(self._library, path) == "excluded"

            try:
                arguments = check_files(files, arguments, project, hidden=hidden)
                if files.access == "named":
                    named = named_paths(project, arguments.values(), hidden)
            except ToolFailed as exc:
                reader = language() if call.as_person else model_language()
                message = exc.failure.message(reader, exc.values)
                return call.fail(exc.failure.code, message, "", {"failure": exc.failure.id})
        _check_size(arguments)
        try:
            secrets = self._secrets.values(manifest.secrets) if manifest.secrets else ()
        except SettingsError as exc:
            return call.fail(
                "EXECUTION_ERROR",
                Message("The tool `{tool}` needs a secret. {why}", tool=self.name, why=exc.message),
                for_person(exc.hint),
                {"failure": "missing-secret", "fix": exc.hint},
            )
        digest = verified.tree.digest
        own = self._library.integrity.is_own(skill)
        try:
            program = self._runner.prepare(
                skill.base_dir,
                manifest,
                digest,
                confirm=lambda: _confirm(verified, skill.name),
                cancel=call.cancel,
                seconds=BUILD_TIMEOUT_S,
                own=own,
            )
        except (MissingRuntime, BuildFailed) as exc:
            return self._build_failed(call, exc)
        except Changed as exc:
            return refuse_use(call, exc)
        except BuildStopped as exc:
            return self._build_stopped(call, exc.fault)
        redactor = Redactor(secrets)
        limits = limits_of(manifest, self._settings)
        result = self._runner.run(
            RunRequest(
                skill.ref,
                self.name,
                arguments,
                program,
                self._permissions(secrets, named),
                # Cut later, after redaction: a cut could split a secret.
                limits._replace(
                    output=limits.reply, raw=limits.reply if call.as_person else limits.raw
                ),
                several=manifest.several,
                workers=manifest.workers,
                cancel=call.cancel,
                own=own,
                key=call.key,
            )
        )
        if secrets and result.fault not in _UNQUOTED:
            result = result._replace(detail="")  # a quotation may hold a part of a secret
        return self._reply(call, _redacted(result, redactor, limits), limits, redactor.count)

    def _permissions(
        self, secrets: tuple[tuple[str, str], ...], named: tuple[str, ...]
    ) -> ProgramPermissions:
        manifest = self._source.manifest
        access = manifest.files.access
        return ProgramPermissions(
            self._settings.project if named or access in ("read", "write") else "",
            named,
            writable=access == "write",
            network=manifest.network,
            secrets=secrets,
            guard=guarded_paths(self._library, self._settings) if access == "write" else (),
        )

    def _reply(
        self, call: ToolCall, result: RunResult, limits: ProgramLimits, redacted: int
    ) -> Envelope:
        data: dict[str, Any] = {
            "tool": self.name,
            "skill": self.owner,
            "output": result.output,
            "tier": result.tier,
            "way": result.way,
            "limits": {
                "timeout": limits.timeout,
                "output": limits.output,
                "memory": limits.memory,
                "file_size": limits.file_size,
            },
            "denied": list(result.denied),
            "exit": result.exit_code,
        }
        if result.data is not None and self._tool.returns is not None:
            data["data"] = result.data
        if result.truncated:
            data["truncated"] = result.truncated
        if result.raw and (call.as_person or result.fault is not None):
            data["raw"] = result.raw
        if result.stderr:
            data["stderr"] = result.stderr[-_MAX_STDERR_CHARS:]
        stats: dict[str, Any] = {
            "waited_ms": round(result.waited_ms, 1),
            "ran_ms": round(result.ran_ms, 1),
            "characters": len(result.output),
        }
        if result.peak:
            stats["peak_bytes"] = result.peak
        if redacted:
            stats["redacted_secrets"] = redacted
        self._record(result)
        if result.fault is not None:
            return self._fault(call, result, data, stats, limits)
        if result.error:
            return self._error(call, result, data, stats)
        notes: list[str] = []
        if result.truncated:
            notes.append(
                for_model(
                    Message(
                        "The answer is longer: {count} characters cut after {limit}. "
                        "Ask for less at once to see the rest.",
                        count=f"{result.truncated:,}",
                        limit=f"{limits.output:,}",
                    )
                )
            )
        if redacted:
            notes.append(for_model(Message("Values of secrets were replaced by their names.")))
        return call.answer(
            "\n".join((self._framed(result.output), *notes)),
            data,
            partial=bool(result.truncated),
            stats=stats,
        )

    def _framed(self, text: str, kind: str = "") -> str:
        mark = f' kind="{kind}"' if kind else ""
        marks = f'tool="{self.name}" skill="{attribute(self.owner)}"{mark}'
        return framed("tool-output", marks, text)

    def _error(
        self, call: ToolCall, result: RunResult, data: dict[str, Any], stats: dict[str, Any]
    ) -> Envelope:
        """The envelope for an error that the program reports; its message is the next step."""
        message = one_line(result.error, _MAX_ERROR_CHARS)
        step = self._permission_hint(call, result) or ""
        reply = call.fail("EXECUTION_ERROR", message, step, data)
        text = self._framed(result.error[:_MAX_ERROR_CHARS], "error")
        if result.output:
            text = f"{self._framed(result.output)}\n{text}"
        if step:
            text = f"{text}\n{step}"
        return reply._replace(text=text, stats={**reply.stats, **stats})

    def _fault(
        self,
        call: ToolCall,
        result: RunResult,
        data: dict[str, Any],
        stats: dict[str, Any],
        limits: ProgramLimits,
    ) -> Envelope:
        fault = str(result.fault)
        data["fault"] = fault
        shown = _shortened(result.detail, fault)
        code = "TIMEOUT" if fault == "timeout" else "EXECUTION_ERROR"
        step = self._permission_hint(call, result) or self._next_step(fault, limits)
        failed = whole = self._failed(f"`{fault}`")
        if shown:
            whole = self._failed(shown)
        reply = call.fail(cast("ErrorCode", code), whole, step, data)
        if shown and fault not in _UNQUOTED:  # it quotes output, which must be framed
            plain = call.fail(cast("ErrorCode", code), failed, step).text
            reply = reply._replace(text=f"{plain}\n{self._framed(shown, 'fault')}")
        # A part of a secret could be in it: then it is for people only.
        crash = fault in _CRASHES and not self._source.manifest.secrets
        if crash and (reason := crash_reason(result.stderr, self._source.skill.base_dir)):
            reply = reply._replace(text=f"{reply.text}\n{self._framed(reason, 'stderr')}")
        return reply._replace(stats={**reply.stats, **stats})

    def _next_step(self, fault: str, limits: ProgramLimits) -> Message:
        """The next step after a fault; the user may be the author of the program."""
        if fault == "cancelled":
            return Message("Try again")
        if fault == "timeout":
            people = "It had {seconds} s; make it faster, or raise `timeout:` in `skill.yaml`"
            text = "It has {seconds} seconds. Ask for less at once, or tell the user"
            return Message(text, people=people, seconds=f"{limits.timeout:g}")
        if fault == "memory":
            return Message(
                "It may hold {size} MB. Ask for less at once, or tell the user",
                people="It may hold {size} MB; hold less at once, or raise the setting "
                "`tools.memory`",
                size=limits.memory >> 20,
            )
        path = os.path.join(self._source.skill.base_dir, self._source.manifest.entry)
        if is_inside(path, self._settings.project):
            path = os.path.relpath(path, self._settings.project)
        people = MENDS.get(fault) or MENDS[""]
        text = "This is a fault of the skill: tell the user, and go on"
        return Message(text, people=people, path=path)

    def _permission_hint(self, call: ToolCall, result: RunResult) -> Message | None:
        """The next step when a program seems to miss a permission.

        That is when a runtime reports it, or when an argument is the path of a file of the project.
        """
        manifest = self._source.manifest
        words = f"{result.error}\n{result.detail}\n{result.stderr}"
        if not manifest.network and _NO_NETWORK.search(words):
            return for_person(
                Message("It may not use the network: add `network: true` to its `skill.yaml`")
            )
        access, values = manifest.files.access, call.arguments.values()
        if access in ("read", "write"):
            return None
        # Without a declaration the program sees the files that are named: one may just be missing.
        by_itself = access == "none" or not any(isinstance(value, str) for value in values)
        if not (by_itself and _NO_FILE.search(words)) and not any(map(self._has_hidden, values)):
            return None
        return for_person(
            Message("It may not read the project's files: add `files: read` to its `skill.yaml`")
        )

    def _has_hidden(self, value: Any) -> bool:
        """Whether an argument is the path of a file of the project that the program did not see."""
        if not isinstance(value, str) or not 0 < len(value) <= _MAX_PATH_CHARS or "\0" in value:
            return False
        project = self._settings.project
        path = os.path.join(project, value)
        if not os.path.isfile(path) or not is_really_inside(path, project):
            return False
        access = self._source.manifest.files.access
        return access == "none" or not named_paths(project, (value,), lambda _path: False)

    def _failed(self, why: str) -> Message:
        return Message("The tool `{tool}` failed: {fault}", tool=self.name, fault=why)

    def _build_failed(self, call: ToolCall, exc: MissingRuntime | BuildFailed) -> Envelope:
        """The envelope when no program could be built; `fix` is for `satchel why`."""
        kind = "missing-runtime" if isinstance(exc, MissingRuntime) else "build-failed"
        data = {"failure": kind, "fix": exc.hint}
        message = one_line(exc.message, 300)  # it quotes the build tool and the skill's files
        reply = call.fail(cast("ErrorCode", exc.code), message, exc.hint, data)
        if isinstance(exc, BuildFailed):
            framed = self._framed(exc.message[:_MAX_ERROR_CHARS], "fault")
            reply = reply._replace(text=f"{reply.text}\n{framed}")
        return reply

    def _build_stopped(self, call: ToolCall, fault: str) -> Envelope:
        data = {"tool": self.name, "skill": self.owner, "fault": fault}
        if fault == "cancelled":
            step = Message("Try again")
            return call.fail("EXECUTION_ERROR", self._failed(f"`{fault}`"), step, data)
        why = Message("it took longer than {seconds} seconds", seconds=f"{BUILD_TIMEOUT_S:g}")
        step = Message("Try again")
        return call.fail("TIMEOUT", self._failed(why), step, data)

    def _record(self, result: RunResult) -> None:
        """Record the run without arguments and answers: they are private."""
        self._trace.record(
            "ran",
            (self.owner,),
            tool=self.name,
            ref=self._source.skill.ref,
            ended=result.fault or ("error" if result.error else "well"),
            tier=result.tier,
            way=result.way,
            ran_ms=round(result.ran_ms, 1),
            waited_ms=round(result.waited_ms, 1),
            denied=len(result.denied),
        )


def crash_reason(stderr: str, folder: str) -> str:
    """The last meaningful lines of stderr for a model: bounded, without the skill's folder."""
    text = _COLOURS.sub("", stderr).replace(folder + os.sep, "")
    lines = [line.rstrip() for line in text.splitlines() if not _NO_REASON.search(line)]
    return encodable("\n".join(lines[-_MAX_REASON_LINES:])[-_MAX_REASON_CHARS:])


def describe_tool(tool: ToolDecl) -> str:
    """The description for a model: the author's text, bounded and encodable."""
    lines = [_clean(tool.description, MAX_DESCRIPTION_CHARS)]
    for title, sentences in (
        (Message("Use it when"), tool.docs.when_to_use),
        (Message("Not for"), tool.docs.when_not_to_use),
    ):
        if sentences:
            shown = [one_line(encodable(text), 200) for text in sentences[:_MAX_SENTENCES_SHOWN]]
            lines.append(
                for_model(Message("{said}: {answer}", said=title, answer="; ".join(shown)))
            )
    return "\n".join(lines)


def _clean(text: str, limit: int) -> str:
    return encodable(text[:limit])


def _clean_schema(schema: dict[str, Any]) -> dict[str, Any]:
    for rule in schema["properties"].values():
        rule["description"] = _clean(rule["description"], MAX_DESCRIPTION_CHARS)
        if isinstance(rule.get("default"), str):
            # A long default is an error of the skill.yaml.
            rule["default"] = _clean(rule["default"], MAX_DESCRIPTION_CHARS)
    return schema


def _check_size(arguments: Mapping[str, Any]) -> None:
    size = sum(len(value) for value in arguments.values() if isinstance(value, str))
    if size > MAX_REQUEST_BYTES // 4:
        import json

        size = len(json.dumps(dict(arguments), ensure_ascii=False).encode())
        if size > MAX_REQUEST_BYTES:
            raise InvalidInput(
                Message(
                    "The arguments have {size} bytes; at most {limit} are handed over",
                    size=f"{size:,}",
                    limit=f"{MAX_REQUEST_BYTES:,}",
                ),
                Message("Write long text to a file and give its path"),
            )


def _redacted(result: RunResult, redactor: Redactor, limits: ProgramLimits) -> RunResult:
    output = encodable(redactor.text(result.output))
    cut = max(len(output) - limits.output, 0)
    clean = result._replace(
        output=output[: limits.output],
        truncated=result.truncated + cut,
        error=encodable(redactor.text(result.error)),
        detail=map_text(result.detail, encodable),
        data=redactor.value(result.data),
        denied=tuple(encodable(redactor.text(one)) for one in result.denied),
        stderr=encodable(redactor.pieces(result.stderr)),
    )
    counted = redactor.count  # `raw` repeats what was counted
    raw = encodable(redactor.pieces(result.raw))
    redactor.count = counted
    return clean._replace(raw=raw)


def _confirm(verified: VerifiedFolder, name: str) -> None:
    """Check that nothing in a skill was touched since it was verified.

    Comparing the content would not do: it may have been changed and restored in between.

    Raises:
        Changed: something was touched.
    """
    from satchel.library.fingerprint import list_stamps

    try:
        same = list_stamps(verified.path, verified.only) == verified.rows
    except (OSError, SatchelError):
        same = False
    if not same:
        raise _changed(name)


def _changed(name: str) -> Changed:
    message = Message("The skill `{name}` changed meanwhile", name=name)
    return Changed(message, Message("Try again"))


def _shortened(detail: str, fault: str) -> str:
    if fault not in _UNQUOTED:
        detail = map_text(detail, _cut)
    return one_line(detail, _MAX_DETAIL_CHARS)


def _cut(quoted: str) -> str:
    """Shorten a quotation, which may be in backticks."""
    mark = "`" if quoted.startswith("`") else ""
    text = quoted.strip("`")
    if len(text) > _MAX_QUOTE_CHARS:
        text = text[:_MAX_QUOTE_CHARS].rstrip("…") + "…"
    return f"{mark}{text}{mark}"


def limits_of(manifest: ToolManifest, settings: Settings) -> ProgramLimits:
    """The limits of a program, for calls and for its author's tests."""
    return ProgramLimits(
        timeout=manifest.timeout or float(max(settings.tools.timeout, 1)),
        output=max(settings.tools.output, 1),
        memory=max(settings.tools.memory, 1) << 20,
    )


def guarded_paths(library: Library, settings: Settings) -> tuple[str, ...]:
    """Paths in a project that no tool may write: locations of skills, lockfiles, `.satchel`.

    Includes folders of other agents, whether this library reads them or not. The paths are real up
    to the project; links below it are kept, since they must not be redirected either.
    """
    project = settings.project.rstrip("/")
    real = os.path.realpath(project)
    found: dict[str, None] = {}
    for place in (*library.locations, *default_locations(settings._replace(ecosystem=True))):
        paths = [place.path]
        if place.single:
            paths = [os.path.join(place.path, name) for name in ("SKILL.md", "skill.md")]
        elif place.lock:
            paths += (place.lock, os.path.join(os.path.dirname(place.lock), ".satchel"))
        for path in paths:
            inside = is_inside(path, project)
            at = real + path[len(project) :] if inside else os.path.realpath(path)
            if is_inside(at, real):
                found[at] = None
    return tuple(found)
