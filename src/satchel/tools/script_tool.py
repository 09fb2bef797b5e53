"""One tool of a tool skill: its program is given a line of JSON and answers with one.

Before a process is started: the arguments are checked, files that they name are looked at, the
skill is checked, its secrets are found. After it: what the program said is untrusted text. It is
cut, searched for secrets and framed.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from typing import TYPE_CHECKING, Any, cast

from satchel._fs import is_inside, is_really_inside, open_beneath
from satchel._language import Message, edited, language
from satchel.errors import (
    AccessDenied,
    BuildFailed,
    Changed,
    InvalidInput,
    LockBroken,
    MissingRuntime,
    Refused,
    SatchelError,
    SettingsError,
)
from satchel.skill.manifest import FILE
from satchel.tools.frame import attribute, encodable, framed, one_line, plural
from satchel.tools.naming import refuse_use
from satchel.tools.packaged import ToolFailed
from satchel.tools.secrets import Redactor
from satchel.tools.workspace import (
    LIMIT,
    NO_FILE,
    NOT_FOUND,
    NOT_READABLE,
    OUTSIDE,
    TOO_LARGE,
    Workspace,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from satchel.envelope import Envelope, ErrorCode
    from satchel.library import Library
    from satchel.library.seal import Sealed
    from satchel.library.tool_shelf import ToolSkill
    from satchel.runners.base import Limits, Powers, RunResult
    from satchel.settings import Settings
    from satchel.skill.manifest import Files, Manifest, ToolDecl
    from satchel.tools.base import Call
    from satchel.tools.engine import LocalEngine
    from satchel.tools.secrets import Secrets
    from satchel.trace import Trace


def check_files(
    files: Files,
    arguments: Mapping[str, Any],
    root: str,
    limit: int = LIMIT,
    hidden: Callable[[str], bool] | None = None,
) -> dict[str, Any]:
    """The arguments, with paths that are relative to the workspace.

    Args:
        files: Which parameters name files.
        arguments: Checked against the schema, defaults filled in.
        root: The workspace.
        limit: Bytes of a file that is read.
        hidden: Whether the caller may not read a real path.

    Raises:
        ToolFailed: one leads outside, is not there, is no file, or is too large.
    """
    found = dict(arguments)
    place = Workspace(root, limit)
    for name in files.read:
        path = found.get(name)
        if isinstance(path, str) and path:  # an optional one that is left out is empty
            found[name] = check_source(place, path)
            if hidden is not None and hidden(os.path.realpath(os.path.join(root, found[name]))):
                raise ToolFailed(NOT_READABLE, path=path)
    for name in files.write:
        path = found.get(name)
        if isinstance(path, str) and path and name not in files.read:
            found[name] = place.check_target(path, overwrite=True)
    return found


def check_source(place: Workspace, path: str) -> str:
    """The path of a file that may be read, relative to the workspace.

    Raises:
        ToolFailed: it leads outside, is not there, is no file, or is too large.
    """
    wanted = place.relative(path)
    try:
        descriptor = open_beneath(place.root, wanted)
    except AccessDenied:
        raise ToolFailed(OUTSIDE, path=path) from None
    except OSError as exc:
        if exc.errno in (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG):
            raise ToolFailed(NOT_FOUND, path=path) from None
        odd = exc.errno in (errno.ELOOP, errno.ENXIO, errno.EINVAL)
        raise ToolFailed(NO_FILE if odd else NOT_READABLE, path=path) from None
    try:
        info = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    if not stat.S_ISREG(info.st_mode):
        raise ToolFailed(NO_FILE, path=path)
    if info.st_size > place.limit:
        size, limit = (f"{count / (1 << 20):.1f}" for count in (info.st_size, place.limit))
        raise ToolFailed(TOO_LARGE, path=path, size=size, limit=limit.removesuffix(".0"))
    return wanted


MAX_REQUEST = 1024 * 1024
"""Bytes of the line that a program is given."""
BUILD_SECONDS = 300.0
"""What preparing a program for its first use may take."""
MAX_DESCRIPTION = 1024
MAX_SENTENCES = 6
_SHOWN_STDERR = 2_000
_LONGEST_ERROR = 2_000
_FAULTS: dict[str, Message] = {
    "cannot-start": Message("its program cannot be started"),
    "timeout": Message("its program took too long and was ended"),
    "cancelled": Message("the call was taken back"),
    "crashed": Message("its program crashed"),
    "exit-code": Message("its program failed"),
    "memory": Message("its program took too much memory and was ended"),
    "processes": Message("its program started too many processes and was ended"),
    "no-reply": Message("its program said nothing"),
    "partial-reply": Message("its program stopped in the middle of its answer"),
    "too-long": Message("its program's answer is too long"),
    "bad-utf8": Message("its program's answer is not UTF-8"),
    "not-json": Message("its program's answer is not JSON"),
    "not-an-object": Message("its program's answer is not a JSON object"),
    "wrong-fields": Message("its program's answer has other fields than `output` and `error`"),
    "two-replies": Message("its program answered more than once"),
    "early-reply": Message("its program answered before it was asked"),
    "closed-input": Message("its program did not read what it was asked"),
}
_ONE_LINE = (
    "Write one line to stdout, a JSON object with `output` and `error`, and all else to stderr: "
    "mend `{path}`"
)
MENDS = {
    "processes": "Start fewer processes at once in `{path}`",
    "cannot-start": "Check that `{path}` can be run, and run `satchel sandbox check`",
    "too-long": "Answer with less at once: mend `{path}`",
    "not-json": _ONE_LINE,
    "not-an-object": _ONE_LINE,
    "wrong-fields": _ONE_LINE,
    "bad-utf8": _ONE_LINE,
    "two-replies": _ONE_LINE,
    "stderr": "Read what it wrote to stderr, then mend `{path}`",
    "": "Read one line from stdin, answer with one line on stdout: mend `{path}`",
}
"""Fault -> what its author does about it."""
_OUR_WORDS = frozenset((
    "cannot-start", "timeout", "cancelled", "crashed", "exit-code", "memory", "processes",
    "no-reply", "too-long", "bad-utf8", "not-an-object", "closed-input",
))  # fmt: skip
"""Faults that are told without quoting the program."""
_NO_FILE = re.compile(
    r"FileNotFoundError|PermissionError|ENOENT|EACCES|no such file|permission denied",
    re.IGNORECASE,
)
"""How runtimes say that a file is not there or may not be opened."""
_LONGEST_DETAIL = 300
_LONGEST_QUOTE = 60
_LONGEST_PATH = 1_000


class ScriptTool:
    """A tool whose program lies in a skill's folder."""

    about_skills = False

    def __init__(
        self,
        source: ToolSkill,
        tool: ToolDecl,
        *,
        library: Library,
        settings: Settings,
        engine: LocalEngine,
        secrets: Secrets,
        trace: Trace,
    ) -> None:
        self._source = source
        self._tool = tool
        self._library = library
        self._settings = settings
        self._engine = engine
        self._secrets = secrets
        self._trace = trace
        manifest = source.manifest
        self.name = tool.name
        self.owner = source.skill.name
        """The skill that the tool belongs to."""
        self.description = describe_tool(tool)
        self.parameters = _clean_schema(tool.schema())
        self.aliases: Mapping[str, str] = {}
        self.hints = {
            # A program may do anything that its sandbox lets it do: no promise is made for it.
            "readOnlyHint": False,
            "destructiveHint": manifest.files.access == "write",
            "idempotentHint": False,
            "openWorldHint": manifest.network,
        }

    def run(self, call: Call) -> Envelope:
        """Run its program once."""
        source, manifest = self._source, self._source.manifest
        skill = source.skill
        try:
            sealed = self._library.seals.check(skill)
            if not sealed.has(FILE, source.digest):
                raise _changed(skill.name)
        except (Refused, LockBroken) as exc:
            return refuse_use(call, exc)
        arguments = call.arguments
        files = manifest.files
        if files.read or files.write:
            from satchel.tools.read_file import state_at

            def hidden(path: str) -> bool:
                return state_at(self._library, path) == "excluded"

            try:
                arguments = check_files(files, arguments, self._settings.project, hidden=hidden)
            except ToolFailed as exc:
                reader = language() if call.as_person else self._settings.tool_language
                message = exc.failure.told(reader, exc.values)
                return call.fail(exc.failure.code, message, "", {"failure": exc.failure.id})
        _check_size(arguments)
        try:
            secrets = self._secrets.values(manifest.secrets) if manifest.secrets else ()
        except SettingsError as exc:
            return call.fail(
                "EXECUTION_ERROR",
                Message("The tool `{tool}` needs a secret. {why}", tool=self.name, why=exc.message),
                Message(
                    "Only a person can change that ({step}). Tell the user",
                    people="{step}",
                    step=exc.hint,
                ),
                {"failure": "missing-secret", "fix": exc.hint},
            )
        digest = sealed.seal.digest
        own = self._library.seals.is_own(skill)
        from satchel.runners.base import BuildStopped, RunRequest

        try:
            program = self._engine.prepare(
                skill.base_dir,
                manifest,
                digest,
                confirm=lambda: _confirm(sealed, skill.name),
                cancel=call.cancel,
                seconds=BUILD_SECONDS,
                own=own,
            )
        except (MissingRuntime, BuildFailed) as exc:
            return self._unprepared(call, exc)
        except Changed as exc:
            return refuse_use(call, exc)
        except BuildStopped as exc:
            return self._stopped(call, exc.fault)
        redactor = Redactor(secrets)
        limits = limits_of(manifest, self._settings)
        result = self._engine.run(
            RunRequest(
                skill.ref,
                self.name,
                arguments,
                program,
                self._powers(secrets),
                # It is cut here, after secrets were taken out: a cut could halve one.
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
        return self._reply(call, _redacted(result, redactor, limits), limits, redactor.count)

    def _powers(self, secrets: tuple[tuple[str, str], ...]) -> Powers:
        from satchel.runners.base import Powers

        manifest = self._source.manifest
        access = manifest.files.access
        project = self._settings.project
        return Powers(
            project if access != "none" else "",
            writable=access == "write",
            network=manifest.network,
            secrets=secrets,
            guard=guarded_paths(self._library, self._settings) if access == "write" else (),
        )

    def _reply(self, call: Call, result: RunResult, limits: Limits, redacted: int) -> Envelope:
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
            data["stderr"] = result.stderr[-_SHOWN_STDERR:]  # for people: never in the text
        stats: dict[str, Any] = {
            "waited_ms": round(result.waited_ms, 1),
            "ran_ms": round(result.ran_ms, 1),
            "characters": len(result.output),
        }
        if result.peak:
            stats["peak_bytes"] = result.peak
        if redacted:
            stats["redacted_secrets"] = redacted
        self._tell(result)
        if result.fault is not None:
            return self._fault(call, result, data, stats, limits)
        if result.error:
            return self._error(call, result, data, stats)
        notes: list[str] = []
        if result.truncated:
            notes.append(
                f"The answer is longer: {plural(result.truncated, 'character')} cut after "
                f"{limits.output:,}. Ask for less at once to see the rest."
            )
        if redacted:
            notes.append("Values of secrets were replaced by their names.")
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
        self, call: Call, result: RunResult, data: dict[str, Any], stats: dict[str, Any]
    ) -> Envelope:
        """What the program itself calls an error; its words say what to do."""
        message = one_line(result.error, _LONGEST_ERROR)
        step = self._without_files(call, result) or ""
        reply = call.fail("EXECUTION_ERROR", message, step, data)
        text = self._framed(result.error[:_LONGEST_ERROR], "error")
        if result.output:
            text = f"{self._framed(result.output)}\n{text}"
        if step:
            text = f"{text}\n{step}"
        return reply._replace(text=text, stats={**reply.stats, **stats})

    def _fault(
        self,
        call: Call,
        result: RunResult,
        data: dict[str, Any],
        stats: dict[str, Any],
        limits: Limits,
    ) -> Envelope:
        """The program did not do its part."""
        fault = str(result.fault)
        data["fault"] = fault
        why = _FAULTS.get(fault, _FAULTS["exit-code"])
        shown = _shortened(result.detail, fault)
        code = "TIMEOUT" if fault == "timeout" else "EXECUTION_ERROR"
        step = self._without_files(call, result) or self._after(
            fault, limits, complained=bool(result.stderr)
        )
        failed = whole = self._failed(why)
        if shown:
            values = {**failed.values, "detail": shown}
            whole = Message("The tool `{tool}` failed: {fault} ({detail})", **values)
        reply = call.fail(cast("ErrorCode", code), whole, step, data)
        if shown and fault not in _OUR_WORDS:  # it quotes: a model must see whose words they are
            plain = call.fail(cast("ErrorCode", code), failed, step).text
            reply = reply._replace(text=f"{plain}\n{self._framed(shown, 'fault')}")
        return reply._replace(stats={**reply.stats, **stats})

    def _after(self, fault: str, limits: Limits, *, complained: bool) -> Message:
        """What to do after a fault; a person may well be who wrote the program."""
        if fault == "cancelled":
            return Message("Call it again when it is wanted")
        if fault == "timeout":
            people = "It had {seconds} seconds; make it faster, or raise `timeout:` in `skill.yaml`"
            if limits.timeout == 1:
                people = "It had 1 second; make it faster, or raise `timeout:` in `skill.yaml`"
            told = "It has {seconds} seconds. Ask for less at once, or tell the user"
            return Message(told, people=people, seconds=f"{limits.timeout:g}")
        if fault == "memory":
            return Message(
                "It may hold {size} MB. Ask for less at once, or tell the user",
                people="It may hold {size} MB; hold less at once, or raise the setting "
                "`tool_memory`",
                size=limits.memory >> 20,
            )
        path = os.path.join(self._source.skill.base_dir, self._source.manifest.entry)
        if is_inside(path, self._settings.project):
            path = os.path.relpath(path, self._settings.project)
        people = MENDS.get(fault) or MENDS["stderr" if complained else ""]
        told = "This is a fault of the skill: tell the user, and go on"
        return Message(told, people=people, path=path)

    def _without_files(self, call: Call, result: RunResult) -> Message | None:
        """The next step after a file was not found by a program that may read none.

        It was not found where a runtime says so, or where an argument is the path of a file that
        the project has.
        """
        if self._source.manifest.files.access != "none":
            return None
        words = f"{result.error}\n{result.detail}\n{result.stderr}"
        if not _NO_FILE.search(words) and not any(map(self._has_file, call.arguments.values())):
            return None
        return Message(
            "It may not read the project's files: tell the user that `files: read` is missing in "
            "its `skill.yaml`",
            people="It may not read the project's files: add `files: read` to its `skill.yaml`",
        )

    def _has_file(self, value: Any) -> bool:
        if not isinstance(value, str) or not 0 < len(value) <= _LONGEST_PATH or "\0" in value:
            return False
        path = os.path.join(self._settings.project, value)
        return os.path.isfile(path) and is_really_inside(path, self._settings.project)

    def _failed(self, why: Message) -> Message:
        return Message("The tool `{tool}` failed: {fault}", tool=self.name, fault=why)

    def _unprepared(self, call: Call, exc: MissingRuntime | BuildFailed) -> Envelope:
        """Nothing was run. What a person has to do about it is kept, for whoever asks why."""
        kind = "missing-runtime" if isinstance(exc, MissingRuntime) else "build-failed"
        data = {"failure": kind, "fix": exc.hint}
        return call.fail(cast("ErrorCode", exc.code), exc.message, exc.hint, data)

    def _stopped(self, call: Call, fault: str) -> Envelope:
        """Its first use was being prepared, and that was given up."""
        data = {"tool": self.name, "skill": self.owner, "fault": fault}
        if fault == "cancelled":
            why, step = _FAULTS[fault], Message("Call it again when it is wanted")
            return call.fail("EXECUTION_ERROR", self._failed(why), step, data)
        why = Message(
            "preparing it for its first use took longer than {seconds} seconds",
            seconds=f"{BUILD_SECONDS:g}",
        )
        step = Message(
            "What was downloaded is kept: call it again later, or tell the user",
            people="What was downloaded is kept: try it again later",
        )
        return call.fail("TIMEOUT", self._failed(why), step, data)

    def _tell(self, result: RunResult) -> None:
        """Record that it ran. Neither arguments nor answers: they are the user's."""
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


def describe_tool(tool: ToolDecl) -> str:
    """What a model is told: the author's words, bounded, and none of our tags in them."""
    lines = [_clean(tool.description, MAX_DESCRIPTION)]
    for title, sentences in (
        ("Use it when", tool.docs.when_to_use),
        ("Not for", tool.docs.when_not_to_use),
    ):
        if sentences:
            shown = "; ".join(one_line(encodable(text), 200) for text in sentences[:MAX_SENTENCES])
            lines.append(f"{title}: {shown}")
    return "\n".join(lines)


def _clean(text: str, limit: int) -> str:
    return encodable(text[:limit])


def _clean_schema(schema: dict[str, Any]) -> dict[str, Any]:
    for rule in schema["properties"].values():
        rule["description"] = _clean(rule["description"], MAX_DESCRIPTION)
        if isinstance(rule.get("default"), str):
            # A long default is an error of the skill.yaml.
            rule["default"] = _clean(rule["default"], MAX_DESCRIPTION)
    return schema


def _check_size(arguments: Mapping[str, Any]) -> None:
    size = sum(len(value) for value in arguments.values() if isinstance(value, str))
    if size > MAX_REQUEST // 4:
        import json

        size = len(json.dumps(dict(arguments), ensure_ascii=False).encode())
        if size > MAX_REQUEST:
            raise InvalidInput(
                Message(
                    "The arguments have {size} bytes; at most {limit} are handed over",
                    size=f"{size:,}",
                    limit=f"{MAX_REQUEST:,}",
                ),
                Message("Write long text to a file and give its path"),
            )


def _redacted(result: RunResult, redactor: Redactor, limits: Limits) -> RunResult:
    """What the program said without secrets, and no longer than it may be."""
    output = encodable(redactor.text(result.output))
    cut = max(len(output) - limits.output, 0)
    clean = result._replace(
        output=output[: limits.output],
        truncated=result.truncated + cut,
        error=encodable(redactor.text(result.error)),
        detail=edited(result.detail, lambda text: encodable(redactor.scraps(text))),
        data=redactor.value(result.data),
        denied=tuple(encodable(redactor.scraps(one)) for one in result.denied),
        stderr=encodable(redactor.pieces(result.stderr)),
    )
    told = redactor.count  # what is there twice is counted once
    raw = encodable(redactor.pieces(result.raw))
    redactor.count = told
    return clean._replace(raw=raw)


def _confirm(sealed: Sealed, name: str) -> None:
    """Make sure that nothing in a skill was touched since it was checked.

    Comparing the content again would not do: what was there in between may have been put back.

    Raises:
        Changed: something was touched.
    """
    from satchel.library.survey import survey

    try:
        same = survey(sealed.path, sealed.only) == sealed.rows
    except (OSError, SatchelError):
        same = False
    if not same:
        raise _changed(name)


def _changed(name: str) -> Changed:
    message = Message("The skill `{name}` changed meanwhile", name=name)
    return Changed(message, Message("Call it again"))


def _shortened(detail: str, fault: str) -> str:
    """What is said of a fault, fit to be shown: secrets are out of it, so it may be cut."""
    if fault not in _OUR_WORDS:
        detail = edited(detail, _cut)
    return one_line(detail, _LONGEST_DETAIL)


def _cut(quoted: str) -> str:
    """What a program wrote, shortened; backticks may stand around it."""
    mark = "`" if quoted.startswith("`") else ""
    text = quoted.strip("`")
    if len(text) > _LONGEST_QUOTE:
        text = text[:_LONGEST_QUOTE].rstrip("…") + "…"
    return f"{mark}{text}{mark}"


def limits_of(manifest: Manifest, settings: Settings) -> Limits:
    """What a program is held to, for an agent's call and for its author's test alike."""
    from satchel.runners.base import Limits

    return Limits(
        timeout=manifest.timeout or float(max(settings.tool_timeout, 1)),
        output=max(settings.tool_output, 1),
        memory=max(settings.tool_memory, 1) << 20,
    )


def guarded_paths(library: Library, settings: Settings) -> tuple[str, ...]:
    """What no tool may write in a project: where skills are looked for, and what vouches for them.

    Other agents' folders too, whether this library reads them or not. Real paths up to the
    project, with whatever links follow: those must not be turned either.
    """
    from satchel.library import default_locations

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
            inside = path == project or path.startswith(project + "/")
            at = real + path[len(project) :] if inside else os.path.realpath(path)
            if at == real or at.startswith(real + "/"):
                found[at] = None
    return tuple(found)
