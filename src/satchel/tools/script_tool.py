"""One tool of a tool skill: its program is given a line of JSON and answers with one.

Before a process is started: the arguments are checked, files that they name are looked at, the
skill is compared with what was approved, its secrets are found. After it: what the program said is
a stranger's text. It is cut, searched for secrets, framed, and never taken for ours.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, cast

from satchel.errors import Changed, InvalidInput, LockBroken, SettingsError
from satchel.skill.manifest import FILE
from satchel.tools.frame import attribute, disarm, encodable, one_line, plural
from satchel.tools.naming import not_as_approved
from satchel.tools.packaged_record import ToolFailed
from satchel.tools.secrets import Redactor

if TYPE_CHECKING:
    from collections.abc import Mapping

    from satchel.envelope import Envelope, ErrorCode
    from satchel.library import Library
    from satchel.library.tool_snapshot import ToolSkill
    from satchel.runners.base import Limits, Powers, RunResult
    from satchel.settings import Settings
    from satchel.skill.manifest import ToolDecl
    from satchel.tools.base import Call
    from satchel.tools.engine import Engine
    from satchel.tools.secrets import Secrets
    from satchel.trace import Trace

MAX_REQUEST = 1024 * 1024
"""Bytes of the line that a program is given."""
MAX_DESCRIPTION = 1024
MAX_SENTENCES = 6
_SHOWN_STDERR = 2_000
_LONGEST_ERROR = 2_000
_FAULTS: dict[str, str] = {
    "cannot-start": "its program cannot be started",
    "timeout": "its program took too long and was ended",
    "cancelled": "the call was taken back",
    "crashed": "its program crashed",
    "exit-code": "its program failed",
    "memory": "its program took too much memory and was ended",
    "processes": "its program started too many processes and was ended",
    "no-reply": "its program said nothing",
    "partial-reply": "its program stopped in the middle of its answer",
    "too-long": "its program's answer is too long",
    "bad-utf8": "its program's answer is not UTF-8",
    "not-json": "its program's answer is not JSON",
    "not-an-object": "its program's answer is not a JSON object",
    "wrong-fields": "its program's answer has other fields than `output` and `error`",
    "two-replies": "its program answered more than once",
    "early-reply": "its program answered before it was asked",
    "closed-input": "its program did not read what it was asked",
}


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
        engine: Engine,
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
            if sealed is not None:
                rest = skill.base_dir[len(sealed.path) :].strip(os.sep).replace(os.sep, "/")
                if not sealed.has(f"{rest}/{FILE}" if rest else FILE, source.digest):
                    raise Changed(f"The skill `{skill.name}` changed meanwhile", "Call it again")  # noqa: TRY301
        except (Changed, LockBroken) as exc:
            return not_as_approved(call, exc)
        arguments = call.arguments
        files = manifest.files
        if files.read or files.write:
            from satchel.tools.file_parameters import check_files

            try:
                arguments = check_files(files, arguments, self._settings.project)
            except ToolFailed as exc:
                message = exc.failure.told(self._settings.tool_language, exc.values)
                return call.fail(exc.failure.code, message, "", {"failure": exc.failure.id})
        _check_size(arguments)
        try:
            secrets = self._secrets.values(manifest.secrets) if manifest.secrets else ()
        except SettingsError as exc:
            return call.fail(
                "EXECUTION_ERROR",
                f"The tool `{self.name}` needs a secret. {exc.message}",
                f"Only a person can change that ({exc.hint}). Tell the user",
            )
        whole = sealed is not None and sealed.path == skill.base_dir
        program = self._engine.prepare(
            skill.base_dir, manifest, sealed.seal.digest if sealed is not None and whole else ""
        )
        redactor = Redactor(secrets)
        from satchel.runners.base import RunRequest

        limits = self._limits()
        result = self._engine.run(
            RunRequest(
                skill.ref,
                self.name,
                arguments,
                program,
                self._powers(secrets),
                # It is cut here, after secrets were taken out: a cut could halve one.
                limits._replace(output=limits.reply),
                several=manifest.several,
                workers=manifest.workers,
                cancel=call.cancel,
                own=is_own(self._library, source),
            )
        )
        return self._reply(call, _redacted(result, redactor, limits), limits, redactor.count)

    def _powers(self, secrets: tuple[tuple[str, str], ...]) -> Powers:
        from satchel.runners.base import Powers

        manifest = self._source.manifest
        access = manifest.files.access
        return Powers(
            self._settings.project if access != "none" else "",
            writable=access == "write",
            network=manifest.network,
            secrets=secrets,
        )

    def _limits(self) -> Limits:
        from satchel.runners.base import Limits

        chosen = self._settings
        return Limits(
            timeout=self._source.manifest.timeout or float(max(chosen.tool_timeout, 1)),
            output=max(chosen.tool_output, 1),
            memory=max(chosen.tool_memory, 1) << 20,
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
        framed, disarmed = self._framed(result.output, "")
        if disarmed:
            stats["disarmed_tags"] = disarmed
        notes: list[str] = []
        if result.truncated:
            notes.append(
                f"The answer is longer: {plural(result.truncated, 'character')} cut after "
                f"{limits.output:,}. Ask for less at once to see the rest."
            )
        if redacted:
            notes.append("Values of secrets were replaced by their names.")
        return call.answer(
            "\n".join((framed, *notes)), data, partial=bool(result.truncated), stats=stats
        )

    def _framed(self, text: str, kind: str) -> tuple[str, int]:
        safe, disarmed = disarm(text)
        ending = "" if not safe or safe.endswith("\n") else "\n"
        mark = f' kind="{kind}"' if kind else ""
        opening = f'<tool-output tool="{self.name}" skill="{attribute(self.owner)}"{mark}>'
        return f"{opening}\n{safe}{ending}</tool-output>", disarmed

    def _error(
        self, call: Call, result: RunResult, data: dict[str, Any], stats: dict[str, Any]
    ) -> Envelope:
        """What the program itself calls an error; its words say what to do."""
        message = one_line(result.error, _LONGEST_ERROR)
        reply = call.fail("EXECUTION_ERROR", message, "", data)
        framed = self._framed(result.error[:_LONGEST_ERROR], "error")[0]
        if result.output:
            framed = f"{self._framed(result.output, '')[0]}\n{framed}"
        return reply._replace(text=framed, stats={**reply.stats, **stats})

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
        why = _FAULTS.get(fault, "its program failed")
        detail = f" ({one_line(result.detail, 300)})" if result.detail else ""
        code, step = "EXECUTION_ERROR", "This is a fault of the skill: tell the user, and go on"
        if fault == "timeout":
            code = "TIMEOUT"
            step = f"It has {limits.timeout:g} seconds. Ask for less at once, or tell the user"
        elif fault == "memory":
            step = f"It may hold {limits.memory >> 20} MB. Ask for less at once, or tell the user"
        elif fault == "cancelled":
            step = "Call it again when it is wanted"
        reply = call.fail(
            cast("ErrorCode", code), f"The tool `{self.name}` failed: {why}{detail}", step, data
        )
        return reply._replace(stats={**reply.stats, **stats})

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
    return disarm(encodable(text[:limit]))[0]


def _clean_schema(schema: dict[str, Any]) -> dict[str, Any]:
    for rule in schema["properties"].values():
        rule["description"] = _clean(rule["description"], MAX_DESCRIPTION)
        if isinstance(rule.get("default"), str):
            rule["default"] = encodable(rule["default"])
    return schema


def _check_size(arguments: Mapping[str, Any]) -> None:
    size = sum(len(value) for value in arguments.values() if isinstance(value, str))
    if size > MAX_REQUEST // 4:
        import json

        size = len(json.dumps(dict(arguments), ensure_ascii=False).encode())
        if size > MAX_REQUEST:
            raise InvalidInput(
                f"The arguments have {size:,} bytes; at most {MAX_REQUEST:,} are handed over",
                "Write long text to a file and give its path",
            )


def _redacted(result: RunResult, redactor: Redactor, limits: Limits) -> RunResult:
    """What the program said without secrets, and no longer than it may be."""
    output = encodable(redactor.text(result.output))
    cut = max(len(output) - limits.output, 0)
    return result._replace(
        output=output[: limits.output],
        truncated=result.truncated + cut,
        error=encodable(redactor.text(result.error)),
        detail=redactor.text(result.detail),
        data=redactor.value(result.data),
        denied=tuple(redactor.text(one) for one in result.denied),
        stderr=encodable(redactor.pieces(result.stderr)),
    )


def is_own(library: Library, source: ToolSkill) -> bool:
    """Whether a skill is the user's own work: neither a project's nor installed from elsewhere."""
    skill = source.skill
    if library.seals.is_locked(skill):
        return False
    row = library.trust.folders().get(os.path.realpath(skill.base_dir))
    return skill.source in ("global", "builtin") or (row is not None and row.kind == "own")
