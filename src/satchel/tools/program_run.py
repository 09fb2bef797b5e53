"""Runs the program of a tool skill, or a script, for a tool call.

One path for both: the program is prepared and run, its changes are decided about, and secrets in
its output are replaced. `program_reply` makes the reply.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from satchel.errors import BuildFailed, Changed, MissingRuntime, SatchelError
from satchel.i18n import Message, map_text
from satchel.library import default_locations
from satchel.runners.base import BuildStopped
from satchel.tools.framing import encodable
from satchel.tools.lookup import refuse_use
from satchel.tools.program_reply import (
    UNQUOTED_FAULTS,
    reply_to_failed_build,
    reply_to_run,
    reply_to_stopped_build,
)
from satchel.tools.proposed_changes import apply_proposal
from satchel.tools.secrets import Redactor

if TYPE_CHECKING:
    from collections.abc import Callable

    from satchel.envelope import Envelope
    from satchel.library import Library
    from satchel.library.integrity import VerifiedFolder
    from satchel.runners.base import Program, ProgramLimits, RunRequest, RunResult
    from satchel.settings import Settings
    from satchel.tools.program_reply import ProgramRun
    from satchel.tools.program_runner import ProgramRunner
    from satchel.tools.proposed_changes import ProposalOutcome
    from satchel.trace import Trace

BUILD_TIMEOUT_S = 300.0
NETWORK_ERROR = re.compile(
    r"address family not supported|EAFNOSUPPORT|network is unreachable|ENETUNREACH"
    r"|temporary failure in name resolution|EAI_AGAIN|name or service not known"
    r"|failed to resolve|could not resolve host|unable to resolve host|no such host",
    re.IGNORECASE,
)
"""How runtimes report that there is no network."""


def run_program(
    run: ProgramRun,
    runner: ProgramRunner,
    prepare: Callable[[float], Program],
    make_request: Callable[[Program], RunRequest],
    *,
    trace: Trace,
    find_hint: Callable[[RunResult], Message | None],
    has_declared_data: bool = False,
) -> Envelope:
    """Prepare a program, run it, let its changes be decided about, and reply.

    Args:
        run: The run.
        runner: Runs programs.
        prepare: Builds the program where necessary, within so many seconds.
        make_request: Makes the request for the built program.
        trace: Where the run is recorded.
        find_hint: Returns the next step where a missing permission explains the result.
        has_declared_data: Whether the tool declares structured output.
    """
    call, limits = run.call, run.limits
    try:
        program = prepare(BUILD_TIMEOUT_S)
    except (MissingRuntime, BuildFailed) as exc:
        return reply_to_failed_build(run, exc)
    except Changed as exc:
        return refuse_use(call, exc)
    except BuildStopped as exc:
        return reply_to_stopped_build(run, exc.fault, BUILD_TIMEOUT_S)
    # Cut later, after redaction: a cut could split a secret.
    raw_limit = limits.reply if call.as_person else limits.raw
    wide_limits = limits._replace(output=limits.reply, raw=raw_limit)
    request = make_request(program)
    result = runner.run(request._replace(limits=wide_limits, cancel=call.cancel, key=call.key))
    if run.secrets and result.fault not in UNQUOTED_FAULTS:
        result = result._replace(detail="")  # a quotation may hold a part of a secret
    outcome = apply_proposal(call, result)
    redactor = Redactor(run.secrets)
    result = _redact_result(result, redactor, limits)
    _record_run(trace, run, result, outcome)
    return reply_to_run(
        run,
        result,
        outcome,
        redacted_count=redactor.count,
        hint=find_hint(result),
        has_declared_data=has_declared_data,
    )


def _redact_result(result: RunResult, redactor: Redactor, limits: ProgramLimits) -> RunResult:
    """Replace secrets in all texts of a result, and cut its output to the limit."""
    output = encodable(redactor.redact_text(result.output))
    excess_chars = max(len(output) - limits.output, 0)
    redacted = result._replace(
        output=output[: limits.output],
        truncated=result.truncated + excess_chars,
        error=encodable(redactor.redact_text(result.error)),
        detail=map_text(result.detail, encodable),
        data=redactor.redact_value(result.data),
        stderr=encodable(redactor.redact_shortened(result.stderr)),
    )
    redacted_count = redactor.count  # `raw` repeats what was counted
    raw = encodable(redactor.redact_shortened(result.raw))
    redactor.count = redacted_count
    return redacted._replace(raw=raw)


def _record_run(trace: Trace, run: ProgramRun, result: RunResult, outcome: ProposalOutcome) -> None:
    """Record the run without arguments and answers: they are private."""
    trace.record(
        "ran",
        (run.skill.name,),
        tool=run.tool,
        ref=run.skill.ref,
        ended=result.fault or ("error" if result.error else "well"),
        tier=result.tier,
        ran_ms=round(result.ran_ms, 1),
        waited_ms=round(result.waited_ms, 1),
        changes=len(outcome.rows),
        denied=len(outcome.denied),
        **({"script": run.entry} if run.is_script else {}),
    )


# --- before the run ---------------------------------------------------------------------------


def confirm_unchanged(verified: VerifiedFolder, name: str) -> None:
    """Check that nothing in a skill was touched since it was verified.

    Comparing the content would not do: it may have been changed and restored in between.

    Raises:
        Changed: something was touched.
    """
    from satchel.library.fingerprint import list_stamps

    try:
        is_unchanged = list_stamps(verified.path, verified.top_names) == verified.survey
    except (OSError, SatchelError):
        is_unchanged = False
    if not is_unchanged:
        raise changed_skill(name)


def changed_skill(name: str) -> Changed:
    """Return the error for a skill that changed while it was used."""
    message = Message("The skill `{name}` changed meanwhile", name=name)
    return Changed(message, Message("Try again"))


def protected_paths(library: Library, settings: Settings) -> tuple[str, ...]:
    """Return the paths in a project that no tool may change.

    These are locations of skills, lockfiles and `.satchel`, also of other agents, whether this
    library reads them or not.
    """
    paths: list[str] = []
    all_settings = settings._replace(ecosystem=True)
    for location in (*library.locations, *default_locations(all_settings)):
        if location.single:
            paths += (os.path.join(location.path, name) for name in ("SKILL.md", "skill.md"))
            continue
        paths.append(location.path)
        if location.lock:
            lock_folder = os.path.dirname(location.lock)
            paths += (location.lock, os.path.join(lock_folder, ".satchel"))
    return tuple(dict.fromkeys(paths))
