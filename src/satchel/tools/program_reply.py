"""Builds the replies to calls that run a program: its output, its error, a fault, a failed build.

The output is untrusted: it is cut and framed. What could hold a part of a secret is for people
only. `program_run` is the caller.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from satchel._fs import is_inside
from satchel.errors import BuildFailed, MissingRuntime
from satchel.i18n import Message, for_model, map_text
from satchel.tools.framing import attribute, encodable, framed, one_line
from satchel.tools.lookup import for_person

if TYPE_CHECKING:
    from satchel.envelope import Envelope, ErrorCode
    from satchel.errors import SettingsError
    from satchel.runners.base import ProgramLimits, RunResult
    from satchel.skill.model import Skill
    from satchel.tools.base import ToolCall
    from satchel.tools.proposed_changes import ProposalOutcome

_MAX_STDERR_CHARS = 2_000
_MAX_ERROR_CHARS = 2_000
_MAX_DETAIL_CHARS = 300
_MAX_QUOTE_CHARS = 60
_MAX_REASON_CHARS, _MAX_REASON_LINES = 800, 8
_ONE_LINE_FIX = (
    "Write one line to stdout, a JSON object with `output` and `error`, and all else to stderr: "
    "correct `{path}`"
)
FAULT_FIXES = {
    "cannot-start": "Check that `{path}` can be run, and run `satchel config sandbox`",
    "not-json": _ONE_LINE_FIX,
    "not-an-object": _ONE_LINE_FIX,
    "wrong-fields": _ONE_LINE_FIX,
    "bad-utf8": _ONE_LINE_FIX,
    "two-replies": _ONE_LINE_FIX,
    "": "Correct `{path}`",
}
"""The fix of each fault, for the author of the program; `""` is for all others."""
UNQUOTED_FAULTS = frozenset((
    "cannot-start", "timeout", "cancelled", "crashed", "exit-code", "memory", "processes",
    "no-reply", "too-long", "bad-utf8", "not-an-object", "closed-input",
))  # fmt: skip
"""Faults whose detail contains no output of the program."""
_CRASH_FAULTS = frozenset(("exit-code", "crashed", "no-reply", "partial-reply"))
"""Faults whose reason a program usually writes to stderr."""
_STACK_LINE = re.compile(
    r"^\s*$|^\s+at |^\s*\^+\s*$|^Node\.js v|^goroutine \d|^\t/|^exit status \d|^\(Use `node "
)
"""Lines of stderr that do not explain a crash: frames of Node and Go, empty lines, pointers."""
_TERMINAL_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class ProgramRun(NamedTuple):
    """One run of a program, for the reply about it."""

    call: ToolCall
    tool: str
    """The name of the tool that was called."""
    skill: Skill
    limits: ProgramLimits
    project: str
    entry: str
    """The program's file below the skill's folder, for the fix of a fault."""
    secrets: tuple[tuple[str, str], ...] = ()
    """Name and value of each that it gets; with some, its stderr is for people only."""
    is_script: bool = False
    """Whether it exchanges no JSON: its output is shown also when it failed."""


# --- a program that ran -----------------------------------------------------------------------


def reply_to_run(
    run: ProgramRun,
    result: RunResult,
    outcome: ProposalOutcome,
    *,
    redacted_count: int,
    hint: Message | None,
    has_declared_data: bool,
) -> Envelope:
    """Make the reply to a call whose program ran.

    Args:
        run: The run.
        result: Its result, without secrets.
        outcome: Which of its changes were applied.
        redacted_count: How often the value of a secret was replaced in the result.
        hint: The next step where a missing permission explains the result.
        has_declared_data: Whether the tool declares structured output.
    """
    data = _collect_data(run, result, outcome, has_declared_data=has_declared_data)
    stats: dict[str, Any] = {
        "waited_ms": round(result.waited_ms, 1),
        "ran_ms": round(result.ran_ms, 1),
        "characters": len(result.output),
    }
    if result.peak:
        stats["peak_bytes"] = result.peak
    if redacted_count:
        stats["redacted_secrets"] = redacted_count
    notes = [for_model(note) for note in outcome.notes]
    if result.fault is not None or result.error:
        make_reply = _reply_to_error if result.fault is None else _reply_to_fault
        reply = make_reply(run, result, data, hint)
        text = "\n".join((reply.text, *notes))
        return reply._replace(text=text, stats={**reply.stats, **stats})
    if result.truncated:
        notes.append(for_model(_truncation_note(run, result)))
    if hint:
        notes.append(for_model(hint))
        data["hint"] = hint
    if redacted_count:
        notes.append(for_model(Message("Values of secrets were replaced by their names.")))
    outputs = _frame_script_outputs(run, result) if run.is_script else [_frame(run, result.output)]
    return run.call.answer(
        "\n".join((*outputs, *notes)), data, partial=bool(result.truncated), stats=stats
    )


def _collect_data(
    run: ProgramRun, result: RunResult, outcome: ProposalOutcome, *, has_declared_data: bool
) -> dict[str, Any]:
    """Collect what every reply reports about a run."""
    limits = run.limits
    data: dict[str, Any] = {
        "tool": run.tool,
        "skill": run.skill.name,
        "output": result.output,
        "tier": result.tier,
        "limits": {
            "timeout": limits.timeout,
            "output": limits.output,
            "memory": limits.memory,
            "file_size": limits.file_size,
        },
        "changes": list(outcome.rows),
        "denied": list(outcome.denied),
        "lost": list(outcome.lost),
        "exit": result.exit_code,
    }
    if run.is_script:
        data["script"] = run.entry
    if result.data is not None and has_declared_data:
        data["data"] = result.data
    if result.truncated:
        data["truncated"] = result.truncated
    if result.raw and (run.call.as_person or result.fault is not None):
        data["raw"] = result.raw
    if result.stderr:
        data["stderr"] = result.stderr[-_MAX_STDERR_CHARS:]
    return data


def _truncation_note(run: ProgramRun, result: RunResult) -> Message:
    return Message(
        "The answer is longer: {count} characters cut after {limit}. "
        "Ask for less at once to see the rest.",
        count=f"{result.truncated:,}",
        limit=f"{run.limits.output:,}",
    )


def _frame_script_outputs(run: ProgramRun, result: RunResult) -> list[str]:
    """Frame what a script wrote to stdout and, unless it has secrets, to stderr."""
    outputs = [_frame(run, result.output)] if result.output.strip() else []
    if result.stderr.strip() and run.secrets:
        outputs.append(for_model(Message("Its error output is not shown, because it has secrets.")))
    elif result.stderr.strip():
        text = _clean_stderr(result.stderr, run.skill.base_dir)
        outputs.append(_frame(run, encodable(text[-_MAX_STDERR_CHARS:]), "stderr"))
    return outputs or [for_model(Message("The script ended and printed nothing."))]


def _frame(run: ProgramRun, text: str, kind: str = "") -> str:
    """Put a text of the program in a frame."""
    attributes = f'tool="{run.tool}" skill="{attribute(run.skill.name)}"'
    attributes += f' script="{attribute(run.entry)}"' if run.is_script else ""
    attributes += f' kind="{kind}"' if kind else ""
    return framed("tool-output", attributes, text)


def _clean_stderr(stderr: str, folder: str) -> str:
    """Remove colours, and the skill's folder at the start of paths."""
    return _TERMINAL_COLOUR.sub("", stderr).replace(folder + os.sep, "")


# --- errors and faults ------------------------------------------------------------------------


def _reply_to_error(
    run: ProgramRun, result: RunResult, data: dict[str, Any], hint: Message | None
) -> Envelope:
    """Make the reply to an error that the program reports; its message is the next step."""
    message = one_line(result.error, _MAX_ERROR_CHARS)
    reply = run.call.fail("EXECUTION_ERROR", message, hint or "", data)
    text = _frame(run, result.error[:_MAX_ERROR_CHARS], "error")
    if result.output:
        text = f"{_frame(run, result.output)}\n{text}"
    if hint:
        text = f"{text}\n{hint}"
    return reply._replace(text=text)


def _reply_to_fault(
    run: ProgramRun, result: RunResult, data: dict[str, Any], hint: Message | None
) -> Envelope:
    """Make the reply to a program that ended without a valid answer."""
    fault = str(result.fault)
    data["fault"] = fault
    detail = _shorten_detail(result.detail, fault)
    code: ErrorCode = "TIMEOUT" if fault == "timeout" else "EXECUTION_ERROR"
    step = hint or _choose_next_step(run, fault)
    plain_message = _failure_message(run, f"`{fault}`")
    message = _failure_message(run, detail) if detail else plain_message
    reply = run.call.fail(code, message, step, data)
    if run.is_script:
        return reply._replace(text="\n".join((reply.text, *_frame_script_outputs(run, result))))
    if detail and fault not in UNQUOTED_FAULTS:  # it quotes output, which must be framed
        plain_text = run.call.fail(code, plain_message, step).text
        reply = reply._replace(text=f"{plain_text}\n{_frame(run, detail, 'fault')}")
    # A part of a secret could be in stderr: then it is for people only.
    if fault in _CRASH_FAULTS and not run.secrets:
        reason = _find_crash_reason(result.stderr, run.skill.base_dir)
        if reason:
            reply = reply._replace(text=f"{reply.text}\n{_frame(run, reason, 'stderr')}")
    return reply


def _failure_message(run: ProgramRun, reason: str) -> Message:
    if run.is_script:
        return Message("The script `{script}` failed: {fault}", script=run.entry, fault=reason)
    return Message("The tool `{tool}` failed: {fault}", tool=run.tool, fault=reason)


def _choose_next_step(run: ProgramRun, fault: str) -> Message:
    """Choose the next step after a fault; the user may be the author of the program."""
    if fault == "cancelled":
        return Message("Try again")
    if fault == "timeout":
        text_for_people = "It had {seconds} s; make it faster, or raise `timeout:` in `skill.yaml`"
        if run.is_script:
            text_for_people = "It had {seconds} s; raise the setting `tools.script_timeout`"
        return Message(
            "It has {seconds} seconds. Ask for less at once, or tell the user",
            people=text_for_people,
            seconds=f"{run.limits.timeout:g}",
        )
    if fault == "memory":
        return Message(
            "It may hold {size} MB. Ask for less at once, or tell the user",
            people="It may hold {size} MB; hold less at once, or raise the setting `tools.memory`",
            size=run.limits.memory >> 20,
        )
    if run.is_script and fault == "exit-code":
        return Message(
            "Read what it printed: the status can be its answer, such as that files differ. If "
            "not, correct the arguments, or tell the user and go on without it",
            people="Read what it printed: the status can be its answer. If not, correct the "
            "arguments or the script",
        )
    path = os.path.join(run.skill.base_dir, run.entry)
    if is_inside(path, run.project):
        path = os.path.relpath(path, run.project)
    return Message(
        "This is a fault of the skill: tell the user, and go on",
        people=FAULT_FIXES.get(fault) or FAULT_FIXES[""],
        path=path,
    )


def _find_crash_reason(stderr: str, folder: str) -> str:
    """Return the last meaningful lines of stderr: bounded, without the skill's folder."""
    lines = [
        line.rstrip()
        for line in _clean_stderr(stderr, folder).splitlines()
        if not _STACK_LINE.search(line)
    ]
    return encodable("\n".join(lines[-_MAX_REASON_LINES:])[-_MAX_REASON_CHARS:])


def _shorten_detail(detail: str, fault: str) -> str:
    if fault not in UNQUOTED_FAULTS:
        detail = map_text(detail, _shorten_quotation)
    return one_line(detail, _MAX_DETAIL_CHARS)


def _shorten_quotation(quotation: str) -> str:
    """Shorten a quotation, which may be in backticks."""
    backtick = "`" if quotation.startswith("`") else ""
    text = quotation.strip("`")
    if len(text) > _MAX_QUOTE_CHARS:
        text = text[:_MAX_QUOTE_CHARS].rstrip("…") + "…"
    return f"{backtick}{text}{backtick}"


# --- a program that did not run ---------------------------------------------------------------


def reply_to_missing_secret(call: ToolCall, tool: str, exc: SettingsError) -> Envelope:
    """Make the reply when a secret is not set."""
    return call.fail(
        "EXECUTION_ERROR",
        Message("The tool `{tool}` needs a secret. {why}", tool=tool, why=exc.message),
        for_person(exc.hint),
        {"failure": "missing-secret", "fix": exc.hint},
    )


def reply_to_failed_build(run: ProgramRun, exc: MissingRuntime | BuildFailed) -> Envelope:
    """Make the reply when no program could be built; its field `fix` is for `satchel why`."""
    kind = "missing-runtime" if isinstance(exc, MissingRuntime) else "build-failed"
    data = {"failure": kind, "fix": exc.hint}
    message = one_line(exc.message, 300)  # it quotes the build tool and the skill's files
    reply = run.call.fail(cast("ErrorCode", exc.code), message, exc.hint, data)
    if isinstance(exc, BuildFailed):
        text = _frame(run, exc.message[:_MAX_ERROR_CHARS], "fault")
        reply = reply._replace(text=f"{reply.text}\n{text}")
    return reply


def reply_to_stopped_build(run: ProgramRun, fault: str, timeout_s: float) -> Envelope:
    """Make the reply when a build was cancelled or took longer than `timeout_s`."""
    data = {"tool": run.tool, "skill": run.skill.name, "fault": fault}
    step = Message("Try again")
    if fault == "cancelled":
        return run.call.fail("EXECUTION_ERROR", _failure_message(run, f"`{fault}`"), step, data)
    reason = Message("it took longer than {seconds} seconds", seconds=f"{timeout_s:g}")
    return run.call.fail("TIMEOUT", _failure_message(run, reason), step, data)
