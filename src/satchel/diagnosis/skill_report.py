"""Report on one skill: where it was found, why it is offered or not, when it was used.

The report is rendered as text (`str(report)`), as JSON (`to_dict()`) and as a web page.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from satchel.diagnosis.file_problems import find_problems
from satchel.errors import Blocked, SatchelError
from satchel.i18n import did_you_mean, join_names, render, say, similar_names
from satchel.library.locations import source_words
from satchel.library.skill_code import is_in_code
from satchel.session.permissions import ToolGrants, tool_grants
from satchel.skill.eval_receipt import read_receipts
from satchel.skill.problems import Problem
from satchel.tools.framing import printable
from satchel.tools.lookup import ended_grant
from satchel.tools.secrets import variable_option

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from satchel.catalogue import Account
    from satchel.library import Library
    from satchel.library.integrity import IntegrityChecker
    from satchel.library.tool_skills import ToolSkill
    from satchel.skill.eval_receipt import EvalReceipt
    from satchel.skill.model import Skill


_MAX_GOAL_CHARS = 60
_MAX_FILES_SHOWN = 3
_MAX_SKILLS_COMPARED = 25_000


class ReportSection(NamedTuple):
    """One section of a report."""

    title: str
    lines: tuple[str, ...]
    mood: str = "plain"
    """`good`, `bad`, `broken` or `plain`: its colour in a terminal."""


class SkillReport(NamedTuple):
    """The status of a skill, why it is offered or not, and what to do next. `str()` is the text.

    Example:
        from satchel import Satchel

        report = Satchel.for_project(".").why("pdf-forms")
        print(report.verdict)
        for step in report.advice:
            print("-", step)
    """

    name: str
    """The name of the skill."""
    verdict: str
    """One sentence: whether it is offered, and how."""
    chapters: tuple[ReportSection, ...]
    advice: tuple[str, ...]
    """Next steps, most useful first."""
    facts: dict[str, Any]
    """The same as JSON values."""
    sound: bool = False
    """Nothing needs fixing: the advice only names further commands."""

    def __str__(self) -> str:
        lines = [f"{self.name}{say(': ')}{self.verdict}"]
        for section in self.chapters:
            lines += ["", section.title, *(f"  {line}" for line in section.lines)]
        if self.advice:
            lines += ["", say("What to do next"), *(f"  {line}" for line in self.advice)]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """The form for `--json`."""
        return {
            "name": self.name,
            "verdict": self.verdict,
            **self.facts,
            "advice": list(self.advice),
        }


def report_skill(
    name: str | Skill,
    library: Library,
    account: Account,
    *,
    policy: str = "all",
    tool_problems: Sequence[Problem] = (),
) -> SkillReport:
    """Report on a skill by name, id, ref or path, as of the last refresh.

    Args:
        name: The reference, or the skill itself: a skill's name may equal the path of another.
        library: The skills.
        account: What the catalogue lists, truncates or omits.
        policy: The setting `trust`.
        tool_problems: Problems of tools that are not offered because their names are taken.
    """
    tools = library.tools()
    skills = _find_skills(name, library)
    if not skills:
        return _report_unknown(str(name), library)
    skill = skills[0]
    content, refusal = _content_section(skill, library.integrity)
    if skill.is_tool:
        refusal = refusal or tools.refused.get(skill.ref)
    manifest_path = os.path.join(skill.base_dir, "skill.yaml")
    trace_rows = list(library.trace.history())
    is_listed = skill.state == "active" and not skill.is_tool
    report_input = _ReportInput(
        skill=skill,
        problems=find_problems(skill),
        others=skills[1:],
        tool_skill=tools.of(skill),
        is_listed=is_listed,
        standing=account.standing(skill.name) if is_listed else "",
        refusal=refusal,
        name_conflicts=[problem for problem in tool_problems if problem.path == manifest_path],
        grants=_find_grants(skill, library),
        receipts=_find_receipts(skill, library),
        history=_summarize_trace(skill.name, trace_rows),
        selections=count_selections(skill.name, trace_rows),
        is_locked=policy == "locked",
    )
    advice = _collect_advice(report_input, library)
    return SkillReport(
        skill.name,
        _verdict(report_input),
        tuple(_make_sections(report_input, content, account)),
        advice,
        _collect_facts(report_input, account),
        advice == (_no_fix_needed(skill),),
    )


class _ReportInput(NamedTuple):
    """What the parts of a report are written from."""

    skill: Skill
    problems: list[Problem]
    """What is wrong with its files."""
    others: list[Skill]
    """Others that its name refers to."""
    tool_skill: ToolSkill | None
    is_listed: bool
    """Whether the catalogue may list it."""
    standing: str
    """Its place in the catalogue; empty when it is not listed."""
    refusal: SatchelError | None
    name_conflicts: list[Problem]
    """Problems of its tools whose names are taken."""
    grants: ToolGrants
    receipts: list[EvalReceipt]
    """The results of its evaluations."""
    history: _TraceHistory
    selections: SelectionCounts
    is_locked: bool
    """Whether only locked skills are offered."""

    @property
    def has_grants(self) -> bool:
        return bool(self.grants.requested or self.grants.granted)


def _find_skills(name: str | Skill, library: Library) -> list[Skill]:
    if isinstance(name, str):
        return list(library.find(name))
    others = library.named(name.head.name)
    return [name, *(other for other in others if other.ref != name.ref)]


def _make_sections(
    report_input: _ReportInput, content: ReportSection | None, account: Account
) -> Iterator[ReportSection]:
    skill, tool_skill = report_input.skill, report_input.tool_skill
    history = report_input.history
    yield _location_section(skill, report_input.others)
    yield _problem_section(report_input)
    if content is not None:
        yield content
    if report_input.receipts:
        yield _benefit_section(report_input.receipts)
    if report_input.has_grants:
        yield _grants_section(report_input.grants)
    if tool_skill is not None:
        yield _tools_section(tool_skill, report_input.name_conflicts)
    if report_input.is_listed and report_input.refusal is None:
        yield _catalogue_section(account, report_input.standing)
    if tool_skill is None:
        history = history._replace(ran=None)
    usage = _usage_section(skill, history)
    yield usage._replace(lines=(*usage.lines, *_selection_lines(report_input.selections)))


def _collect_facts(report_input: _ReportInput, account: Account) -> dict[str, Any]:
    skill, refusal, history = report_input.skill, report_input.refusal, report_input.history
    facts: dict[str, Any] = {
        "found": True,
        "state": skill.state,
        "ref": skill.ref,
        "path": skill.path,
        "source": skill.source,
        "winner": skill.shadowed_by or None,
        "others": [other.ref for other in report_input.others],
        "problems": [problem.to_dict() for problem in report_input.problems],
        "standing": report_input.standing or None,
        "refused": refusal.message if refusal is not None else None,
        "catalogue": {"budget": account.budget, "used": account.used, "total": account.total},
        "last_offered": history.offered,
        "last_loaded": history.loaded,
        "last_failure": history.failed,
        "selected": report_input.selections._asdict(),
    }
    if report_input.receipts:
        facts["evaluations"] = [receipt.to_dict() for receipt in report_input.receipts]
    if report_input.has_grants:
        facts["requested_tools"] = list(report_input.grants.requested)
        facts["granted_tools"] = list(report_input.grants.granted)
    if report_input.tool_skill is not None:
        facts.update(report_input.tool_skill.to_dict(), last_ran=history.ran)
    return facts


def _collect_advice(report_input: _ReportInput, library: Library) -> tuple[str, ...]:
    skill = report_input.skill
    advice = tuple(dict.fromkeys(problem.fix for problem in report_input.name_conflicts)) or tuple(
        _status_advice(report_input)
    )
    if report_input.grants.refused and skill.state == "active" and not skill.origin.remote:
        advice += (grant_hint(skill),)
    with suppress(SatchelError):  # reported for its content
        advice += tuple(_grant_steps(library, skill))
    return advice


def _content_section(
    skill: Skill, integrity: IntegrityChecker
) -> tuple[ReportSection | None, SatchelError | None]:
    if skill.state not in ("active", "needs setup", "shadowed", "blocked", "unverified"):
        return None, None
    title = say("Scan")
    try:
        integrity.check(skill, clean=False)
        is_accepted, files = integrity.is_accepted(skill), integrity.modified(skill)
    except SatchelError as exc:
        return ReportSection(title, (render(exc.message),), "bad"), exc
    lines = [say("you accepted its risk") if is_accepted else say("scanned, and not blocked")]
    if files:
        names = join_names(f"`{path}`" for path in files[:_MAX_FILES_SHOWN])
        lines.append(say("modified since it was installed: {files}", files=names))
    return ReportSection(title, tuple(lines), "good"), None


def _find_receipts(skill: Skill, library: Library) -> list[EvalReceipt]:
    if skill.state != "active" or skill.is_tool or skill.origin.remote:
        return []
    try:
        files = library.integrity.check(skill, clean=False).tree.files
    except SatchelError:  # reported for its content
        return []
    return read_receipts(skill.base_dir, files)


def _benefit_section(receipts: list[EvalReceipt]) -> ReportSection:
    lines = tuple(map(str, receipts))
    is_bad = any(receipt.verdict == "harms" and not receipt.is_stale for receipt in receipts)
    return ReportSection(say("Evaluations"), lines, "bad" if is_bad else "plain")


def _find_grants(skill: Skill, library: Library) -> ToolGrants:
    if skill.origin.remote:
        return ToolGrants()
    try:
        return tool_grants(library, skill, skill.read().fields)
    except SatchelError:  # reported among the problems
        return ToolGrants()


def _grants_section(tools: ToolGrants) -> ReportSection:
    rows = [(say("requested"), tools.requested), (say("granted"), tools.granted)]
    lines = [
        f"{title}{say(': ')}{join_names(f'`{request}`' for request in names) or say('none')}"
        for title, names in rows
    ]
    mood = "plain" if tools.refused else "good"
    return ReportSection(say("Tools without approval"), tuple(lines), mood)


def grant_hint(skill: Skill) -> str:
    """The next step for tools that a skill requests and the user has not granted."""
    return say(
        "The tools that it requests need approval; grant them with `{command}`",
        command=f"satchel trust {skill.reference} --grant-tools",
    )


def secret_step(skill: Skill, name: str) -> str:
    """The next step for a variable that the scripts of a skill read and do not get."""
    command = f"satchel trust {printable(skill.reference)} {variable_option(name)}"
    return say("`{command}` passes the variable to its scripts", command=command)


def _grant_steps(library: Library, skill: Skill) -> Iterator[str]:
    """The next steps for a grant that ended, or for required variables that are not granted."""
    if ended := ended_grant(library, skill):
        yield ended.fix
    elif skill.requirements.env and not skill.is_tool and not skill.origin.remote:
        digest = library.integrity.digest(skill)
        grant = library.trust.script_grant(skill.base_dir, digest, skill.name)
        granted = {*grant.secrets, *grant.variables}
        for name in skill.requirements.env:
            if name not in granted and is_in_code(skill.base_dir, (name,)):
                yield secret_step(skill, name)


def _tools_section(tool_skill: ToolSkill, name_conflicts: Sequence[Problem]) -> ReportSection:
    manifest, permissions = tool_skill.manifest, tool_skill.wants
    lines = [
        join_names(f"`{name}`" for name in tool_skill.tools),
        say("runs `{entry}` ({runtime})", entry=manifest.entry, runtime=manifest.runtime),
        say("may {what}", what=join_names(permissions))
        if permissions
        else say("may use nothing beside its own folder"),
        *map(_problem_line, name_conflicts),
    ]
    mood = "good" if tool_skill.skill.state == "active" else "plain"
    return ReportSection(say("Tools"), tuple(lines), "bad" if name_conflicts else mood)


def _verdict(report_input: _ReportInput) -> str:
    skill, refusal = report_input.skill, report_input.refusal
    tool_skill, conflicts = report_input.tool_skill, report_input.name_conflicts
    if refusal is not None and (report_input.is_listed or skill.is_tool):
        reason = say("blocked") if isinstance(refusal, Blocked) else say("refused")
        return say("not offered ({reason})", reason=reason)
    if tool_skill is not None and skill.is_tool and len(conflicts) >= len(tool_skill.tools):
        return say("not offered ({reason})", reason=conflicts[0].message)
    if skill.state != "active":
        is_unpinned = skill.state == "untrusted" and report_input.is_locked
        reason = say("not pinned") if is_unpinned else say(skill.state)
        return say("not offered ({reason})", reason=reason)
    standing = report_input.standing
    if standing == "withheld":
        return say("not offered ({reason})", reason="`disable-model-invocation`")
    labels = {
        "shortened": say("truncated"), "named": say("name only"), "unlisted": say("not listed"),
    }  # fmt: skip
    return say("offered") + (f" ({labels[standing]})" if standing in labels else "")


def _location_section(skill: Skill, others: list[Skill]) -> ReportSection:
    label = f"{skill.origin.label} {skill.origin.version}".strip()
    lines = [skill.path, f"{label} ({source_words(skill.source)})"]
    lines += [
        say("also found: {ref} ({state})", ref=other.ref, state=say(other.state))
        for other in others
    ]
    if skill.shadowed_by:
        lines.append(say("hidden by {ref}", ref=skill.shadowed_by))
    return ReportSection(
        say("Location"), tuple(lines), "bad" if skill.state != "active" else "good"
    )


def _problem_section(report_input: _ReportInput) -> ReportSection:
    skill, problems = report_input.skill, report_input.problems
    lines = [skill.origin.remote] if skill.origin.remote else []
    if problems or lines:
        for problem in problems:
            lines.append(_problem_line(problem))
            if not _is_advised(skill, problem):
                lines.append(f"  → {problem.fix}")
        has_serious = any(problem.severity != "note" for problem in problems)
        is_bad = has_serious and not skill.origin.remote
        return ReportSection(say("Problems"), tuple(lines), "bad" if is_bad else "plain")
    if skill.state in ("blocked", "unverified", "untrusted"):
        lines = [say("no problems in the file itself")]
    else:
        lines = [say("no problems")]
    is_untrusted = skill.state == "untrusted"
    if is_untrusted:
        code = skill.problem_code(unpinned=report_input.is_locked)
        lines.insert(0, _problem_line(Problem(code, values={"name": skill.name})))
    return ReportSection(say("Problems"), tuple(lines), "bad" if is_untrusted else "good")


def _problem_line(problem: Problem) -> str:
    line = f":{problem.line}" if problem.line else ""
    return f"{problem.code}{line}{say(': ')}{problem.message}"


def _is_advised(skill: Skill, problem: Problem) -> bool:
    """Whether the fix is among the next steps, so that it is not repeated."""
    is_cause = problem.code == "needs-setup"
    return is_cause or (skill.state == "active" and problem.severity != "note")


def _catalogue_section(account: Account, standing: str) -> ReportSection:
    mood = "good" if standing in ("full", "shortened") else "bad"
    return ReportSection(say("Catalogue"), (account.summary(),), mood)


class _TraceHistory(NamedTuple):
    """When a skill was offered and used, according to the trace."""

    offered: float | None = None
    loaded: float | None = None
    failed: dict[str, Any] | None = None
    ran: float | None = None
    ended: str = ""
    """Result of its program's last run: `well`, `error` or the name of a fault."""
    answered: float | None = None
    """When its program last answered, also with an error."""

    @property
    def open_failure(self) -> dict[str, Any] | None:
        """The last failure of the skill itself with no success after it."""
        failed = self.failed
        if failed is None or failed["time"] < (self.answered or 0):
            return None
        return failed if "fix" in failed or self.ended not in ("", "well", "error") else None


def _summarize_trace(name: str, rows: Iterable[dict[str, Any]]) -> _TraceHistory:
    history = _TraceHistory()
    offer_times: dict[str, float] = {}
    for row in rows:  # the newest first
        if row.get("kind") == "offered":
            if history.offered is None:
                history = history._replace(offered=_offered_time(name, row, offer_times))
        elif name in (row.get("skills") or ()):
            history = _add_use(history, row)
        if history.offered and history.loaded and history.failed and history.answered:
            break
    return history


def _offered_time(name: str, row: dict[str, Any], offer_times: dict[str, float]) -> float | None:
    """Return when a skill was offered; `offer_times` has the times of digests without names."""
    digest = str(row.get("digest"))
    offer_times.setdefault(digest, float(row["t"]))
    if "full" not in row:  # only the first row of a digest names the skills
        return None
    moment = offer_times.pop(digest)
    is_named = any(name in row.get(key, ()) for key in ("full", "shortened", "named"))
    return moment if is_named else None


def _add_use(history: _TraceHistory, row: dict[str, Any]) -> _TraceHistory:
    """The history with an older row of the skill."""
    kind = row.get("kind")
    if kind == "loaded" and history.loaded is None:
        return history._replace(loaded=float(row["t"]))
    if kind == "ran" and history.answered is None:
        moment, ended = float(row["t"]), str(row.get("ended", ""))
        if history.ran is None:
            history = history._replace(ran=moment, ended=ended)
        return history._replace(answered=moment) if ended in ("well", "error") else history
    if kind == "failed" and history.failed is None:
        failed = {"time": float(row["t"]), "code": row.get("code"), "message": row.get("reason")}
        return history._replace(failed={**failed, "fix": row["fix"]} if row.get("fix") else failed)
    return history


class SelectionCounts(NamedTuple):
    """How often a skill was selected, according to the trace."""

    requests: int = 0
    """Requests with a selection."""
    times: int = 0
    """Requests for which this skill was selected."""
    last: float | None = None
    goal: str = ""
    """The last request it was selected for."""


def count_selections(name: str, history: Iterable[dict[str, Any]]) -> SelectionCounts:
    """Count the selections of one skill.

    Args:
        name: The skill's name.
        history: Rows of the trace, the newest first.
    """
    counts = SelectionCounts()
    for row in history:
        if row.get("kind") != "selected":
            continue
        counts = counts._replace(requests=counts.requests + 1)
        if name in (row.get("skills") or ()):
            if not counts.times:
                counts = counts._replace(last=float(row["t"]), goal=str(row.get("goal", "")))
            counts = counts._replace(times=counts.times + 1)
    return counts


def _selection_lines(counts: SelectionCounts) -> list[str]:
    if not counts.requests:
        return []
    share = say("{count} of {total}", count=counts.times, total=counts.requests)
    lines = [f"{say('chosen')}{say(': ')}{share}"]
    if counts.times:
        when = _format_time(counts.last)
        lines.append(f"  {when}, “{_shorten(counts.goal)}”")
    return lines


def _shorten(goal: str) -> str:
    text = " ".join(goal.split())
    return text if len(text) <= _MAX_GOAL_CHARS else text[:_MAX_GOAL_CHARS].rstrip() + "…"


def _usage_section(skill: Skill, history: _TraceHistory) -> ReportSection:
    lines: list[str] = []
    failed = history.failed
    if not skill.is_tool:
        lines = [
            f"{say('shown to a model')}{say(': ')}{_format_time(history.offered)}",
            f"{say('loaded')}{say(': ')}{_format_time(history.loaded)}",
        ]
    if skill.is_tool or history.ran is not None:
        lines.append(f"{say('ran')}{say(': ')}{_format_time(history.ran)}")
    if failed is not None:
        message = " ".join(render(failed["message"] or "").split())
        lines.append(f"{say('failed')}{say(': ')}{_format_time(failed['time'])}, {message}")
    return ReportSection(say("History"), tuple(lines))


def _format_time(moment: float | None) -> str:
    if moment is None:
        return say("never")
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(moment))


def _blocking_advice(report_input: _ReportInput) -> str | None:
    """The next step when nothing else matters; None otherwise."""
    skill, refusal = report_input.skill, report_input.refusal
    if skill.state in ("unverified", "blocked") and refusal is not None:
        return render(refusal.hint)
    if problem := skill.setup_problem:
        return problem.fix
    if code := skill.problem_code(unpinned=report_input.is_locked):
        values = {"name": skill.reference, "reason": "", "winner": skill.shadowed_by}
        return Problem(code, values=values).fix
    if skill.state == "excluded":
        return say("Change `include`, `exclude` or `tags`: `satchel config list` says where")
    return render(refusal.hint) if refusal is not None else None


def _status_advice(report_input: _ReportInput) -> list[str]:
    skill, tool_skill = report_input.skill, report_input.tool_skill
    standing = report_input.standing
    blocking = _blocking_advice(report_input)
    if blocking is not None:
        return [blocking]
    failed = report_input.history.open_failure
    advice = [problem.fix for problem in report_input.problems if _is_advised(skill, problem)]
    if failed is not None and failed.get("fix"):
        advice.insert(0, render(failed["fix"]))
    if skill.is_tool and tool_skill is not None and not advice:
        advice.append(say("Run `{command}`", command=f"satchel try {tool_skill.tools[0]}"))
    if standing == "withheld":
        command = f"satchel show --as-model {skill.reference}"
        advice.append(say("Load it yourself: mention it, or run `{command}`", command=command))
    elif standing in ("unlisted", "named", "shortened"):
        advice.append(say("Pin it: add `{name}` to `pin`, or raise `budget`", name=skill.name))
    elif standing == "full" and not advice:
        advice.append(_no_fix_needed(skill))
    return advice


def _no_fix_needed(skill: Skill) -> str:
    return say("Run `{command}`", command=f'satchel why {skill.reference} --goal "…"')


def _report_unknown(name: str, library: Library) -> SkillReport:
    """Report on a name without a skill: a broken or missing file, or a misspelt name."""
    problems = (*library.snapshot().problems, *library.tools().problems)
    strays = library.strays()
    related = (
        problems_named(name, problems)
        or problems_named(name, strays)
        or problems_named(f"{name}.md", strays)
    )
    if related:
        lines: list[str] = []
        for problem in related:
            lines += [problem.path, f"  {_problem_line(problem)}"]
        has_error = any(problem.severity == "error" for problem in related)
        section = ReportSection(say("Problems"), tuple(lines), "broken" if has_error else "bad")
        advice = tuple(dict.fromkeys(problem.fix for problem in related))
        facts = {"found": False, "problems": [problem.to_dict() for problem in related]}
        return SkillReport(name, say("found, but it is not a skill"), (section,), advice, facts)
    similar = names_like(name, library.every())
    advice = [did_you_mean(similar)] if similar else []
    advice.append(say("Run `{command}`", command="satchel list --locations"))
    facts = {"found": False, "near": similar}
    return SkillReport(name, say("no skill of that name in any location"), (), tuple(advice), facts)


def problems_named(name: str, problems: Iterable[Problem]) -> list[Problem]:
    """Problems of a folder of that name."""
    return [
        problem
        for problem in problems
        if f"{os.sep}{name}{os.sep}" in problem.path + os.sep
        or os.path.basename(problem.path) == name
    ]


def names_like(name: str, skills: Sequence[Skill]) -> list[str]:
    """Similar names of skills."""
    return similar_names(
        name, dict.fromkeys(skill.name for skill in skills[:_MAX_SKILLS_COMPARED]), 3
    )
