"""Report on one skill: where it was found, why it is offered or not, when it was used.

The report is rendered as text (`str(report)`), as JSON (`to_dict()`) and as a web page.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from satchel.errors import Blocked, SatchelError
from satchel.i18n import join_names, render, say
from satchel.library.locations import source_words
from satchel.session.permissions import ToolGrants, tool_grants
from satchel.skill.fields import FIELDS
from satchel.skill.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from satchel.catalogue import Account
    from satchel.library import Library
    from satchel.library.integrity import IntegrityChecker
    from satchel.library.tool_skills import ToolSkill
    from satchel.skill.model import Skill


_MAX_GOAL_CHARS = 60


class ReportSection(NamedTuple):
    """One section of a report."""

    title: str
    lines: tuple[str, ...]
    mood: str = "plain"
    """`good`, `bad`, `broken` or `plain`: its colour in a terminal."""


class SkillReport(NamedTuple):
    """The status of a skill, and what to do next."""

    name: str
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
        for chapter in self.chapters:
            lines += ["", chapter.title, *(f"  {line}" for line in chapter.lines)]
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
    taken: Sequence[Problem] = (),
) -> SkillReport:
    """Report on a skill by name, id, ref or path, as of the last refresh.

    Args:
        name: The reference, or the skill itself: a skill's name may equal the path of another.
        library: The skills.
        account: What the catalogue lists, truncates or omits.
        policy: The setting `trust`.
        taken: Problems of tools that are not offered because their names are taken.
    """
    tools = library.tools()
    if isinstance(name, str):
        found = library.find(name)
    else:
        others = library.named(name.head.name)
        found = [name, *(one for one in others if one.ref != name.ref)]
    if not found:
        return _unknown(str(name), library)
    skill = found[0]
    source = tools.of(skill)
    listed_one = skill.state == "active" and not skill.is_tool
    standing = account.standing(skill.name) if listed_one else ""
    chapters = [_location_section(skill, found), _reading_section(skill)]
    bound, refusal = _content_section(skill, library.integrity)
    if skill.is_tool:
        refusal = refusal or tools.refused.get(skill.ref)
    if bound is not None:
        chapters.append(bound)
    tools_asked = _grants_of(skill, library)
    if tools_asked.requested or tools_asked.granted:
        chapters.append(_grants_section(tools_asked))
    own = os.path.join(skill.base_dir, "skill.yaml")
    lost = [problem for problem in taken if problem.path == own]
    if source is not None:
        chapters.append(_tools_section(source, lost))
    if listed_one and refusal is None:
        chapters.append(_catalogue_section(account, standing))
    history = list(library.trace.history())
    past = _read_history(skill.name, history)
    choices = count_selections(skill.name, history)
    use = _usage_section(skill, past if source is not None else past._replace(ran=None))
    chapters.append(use._replace(lines=(*use.lines, *_selection_lines(choices))))
    facts: dict[str, Any] = {
        "found": True,
        "state": skill.state,
        "ref": skill.ref,
        "path": skill.path,
        "source": skill.source,
        "winner": skill.shadowed_by or None,
        "others": [other.ref for other in found[1:]],
        "problems": [problem.to_dict() for problem in skill.problems],
        "standing": standing or None,
        "refused": refusal.message if refusal is not None else None,
        "catalogue": {"budget": account.budget, "used": account.used, "total": account.total},
        "last_offered": past.offered,
        "last_loaded": past.loaded,
        "last_failure": past.failed,
        "selected": choices._asdict(),
    }
    if tools_asked.requested or tools_asked.granted:
        facts["requested_tools"] = list(tools_asked.requested)
        facts["granted_tools"] = list(tools_asked.granted)
    if source is not None:
        facts.update(source.to_dict(), last_ran=past.ran)
    advice = tuple(dict.fromkeys(problem.fix for problem in lost)) or tuple(
        _advice(skill, standing, policy, refusal, source, past.open_failure)
    )
    if tools_asked.refused and skill.state == "active" and not skill.origin.remote:
        advice += (grant_hint(skill),)
    return SkillReport(
        skill.name,
        say(
            "not offered ({reason})",
            reason=say("blocked") if isinstance(refusal, Blocked) else say("refused"),
        )
        if refusal is not None and (listed_one or skill.is_tool)
        else say("not offered ({reason})", reason=lost[0].message)
        if source is not None and skill.is_tool and len(lost) >= len(source.tools)
        else _verdict(skill, standing, locked=policy == "locked"),
        tuple(chapters),
        advice,
        facts,
        advice == (_no_fix_needed(skill),),
    )


def _content_section(
    skill: Skill, integrity: IntegrityChecker
) -> tuple[ReportSection | None, SatchelError | None]:
    if skill.state not in ("active", "shadowed", "blocked", "unverified"):
        return None, None
    title = say("Scan")
    try:
        integrity.check(skill, clean=False)
        accepted, files = integrity.is_accepted(skill), integrity.modified(skill)
    except SatchelError as exc:
        return ReportSection(title, (render(exc.message),), "bad"), exc
    lines = [say("you accepted its risk") if accepted else say("scanned, and not blocked")]
    if files:
        names = join_names(f"`{path}`" for path in files[:3])
        lines.append(say("modified since it was installed: {files}", files=names))
    return ReportSection(title, tuple(lines), "good"), None


def _grants_of(skill: Skill, library: Library) -> ToolGrants:
    if skill.origin.remote:
        return ToolGrants()
    try:
        return tool_grants(library, skill, skill.read().fields)
    except SatchelError:  # reported among the problems
        return ToolGrants()


def _grants_section(tools: ToolGrants) -> ReportSection:
    rows = [(say("requested"), tools.requested), (say("granted"), tools.granted)]
    lines = [
        f"{title}{say(': ')}{join_names(f'`{one}`' for one in names) or say('none')}"
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


def _tools_section(source: ToolSkill, lost: Sequence[Problem]) -> ReportSection:
    manifest = source.manifest
    lines = [
        join_names(f"`{name}`" for name in source.tools),
        say("runs `{entry}` ({runtime})", entry=manifest.entry, runtime=manifest.runtime),
    ]
    wants = source.wants
    nothing = say("may use nothing beside its own folder")
    lines.append(say("may {what}", what=join_names(wants)) if wants else nothing)
    lines += [_problem_line(problem) for problem in lost]
    if lost:
        return ReportSection(say("Tools"), tuple(lines), "bad")
    good = source.skill.state == "active"
    return ReportSection(say("Tools"), tuple(lines), "good" if good else "plain")


def _verdict(skill: Skill, standing: str, *, locked: bool) -> str:
    if skill.state != "active":
        unpinned = skill.state == "untrusted" and locked
        reason = say("not pinned") if unpinned else say(skill.state)
        return say("not offered ({reason})", reason=reason)
    if standing == "withheld":
        return say("not offered ({reason})", reason="`disable-model-invocation`")
    how = {"shortened": say("truncated"), "named": say("name only"), "unlisted": say("not listed")}
    return say("offered") + (f" ({how[standing]})" if standing in how else "")


def _location_section(skill: Skill, found: list[Skill]) -> ReportSection:
    lines = [skill.path, f"{skill.origin.label} ({source_words(skill.source)})"]
    lines += [
        say("also found: {ref} ({state})", ref=other.ref, state=say(other.state))
        for other in found[1:]
    ]
    if skill.shadowed_by:
        lines.append(say("hidden by {ref}", ref=skill.shadowed_by))
    return ReportSection(
        say("Location"), tuple(lines), "bad" if skill.state != "active" else "good"
    )


def _reading_section(skill: Skill) -> ReportSection:
    lines: list[str] = []
    if skill.origin.remote:
        lines = [skill.origin.remote, *(_problem_line(problem) for problem in skill.problems)]
        return ReportSection(say("Problems"), tuple(lines), "plain")
    try:
        document = skill.read()
    except SatchelError as exc:
        return ReportSection(say("Problems"), (render(exc.message),), "bad")
    for problem in skill.problems:
        lines.append(_problem_line(problem))
        if not _is_advised(skill, problem):
            lines.append(f"  → {problem.fix}")
    fields = {} if skill.is_tool else document.fields
    inert = [key for key in fields if key in FIELDS and FIELDS[key].status == "inert"]
    unknown = [key for key in fields if key not in FIELDS]
    if inert:
        lines.append(f"{say('ignored')}{say(': ')}{join_names(inert)}")
    if unknown:
        lines.append(f"{say('unknown')}{say(': ')}{join_names(unknown)}")
    if not lines:
        fine = skill.state not in ("blocked", "unverified")
        text = say("no problems") if fine else say("no problems in the file itself")
        return ReportSection(say("Problems"), (text,), "good")
    return ReportSection(say("Problems"), tuple(lines), "bad" if skill.problems else "plain")


def _problem_line(problem: Problem) -> str:
    at = f":{problem.line}" if problem.line else ""
    return f"{problem.code}{at}{say(': ')}{problem.message}"


def _is_advised(skill: Skill, problem: Problem) -> bool:
    """Whether the fix is among the next steps, so that it is not repeated."""
    return skill.state == "active" and problem.severity != "note"


def _catalogue_section(account: Account, standing: str) -> ReportSection:
    mood = "good" if standing in ("full", "shortened") else "bad"
    return ReportSection(say("Catalogue"), (account.summary(),), mood)


class _TraceHistory(NamedTuple):
    offered: float | None = None
    loaded: float | None = None
    failed: dict[str, Any] | None = None
    ran: float | None = None
    ended: str = ""
    """Result of its program's last run: `well`, `error` or the name of a fault."""
    well: float | None = None
    """When its program last answered, also with an error."""

    @property
    def open_failure(self) -> dict[str, Any] | None:
        """The last failure of the skill itself with no success after it."""
        failed = self.failed
        if failed is None or failed["time"] < (self.well or 0):
            return None
        return failed if "fix" in failed or self.ended not in ("", "well", "error") else None


def _read_history(name: str, history: Iterable[dict[str, Any]]) -> _TraceHistory:
    past = _TraceHistory()
    waiting: dict[str, float] = {}
    for row in history:  # the newest first
        kind = row.get("kind")
        if kind == "offered" and past.offered is None:
            digest = str(row.get("digest"))
            waiting.setdefault(digest, float(row["t"]))
            if "full" in row:  # the row that names the skills; later ones repeat its digest
                if any(name in row.get(key, ()) for key in ("full", "shortened", "named")):
                    past = past._replace(offered=waiting[digest])
                waiting.pop(digest)
        elif name not in (row.get("skills") or ()):
            continue
        elif kind == "loaded" and past.loaded is None:
            past = past._replace(loaded=float(row["t"]))
        elif kind == "ran" and past.well is None:
            moment, ended = float(row["t"]), str(row.get("ended", ""))
            if past.ran is None:
                past = past._replace(ran=moment, ended=ended)
            if ended in ("well", "error"):
                past = past._replace(well=moment)
        elif kind == "failed" and past.failed is None:
            failed = {
                "time": float(row["t"]),
                "code": row.get("code"),
                "message": row.get("reason"),
            }
            past = past._replace(failed={**failed, "fix": row["fix"]} if row.get("fix") else failed)
        if past.offered and past.loaded and past.failed and past.well:
            break
    return past


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
    found = SelectionCounts()
    for row in history:
        if row.get("kind") != "selected":
            continue
        found = found._replace(requests=found.requests + 1)
        if name in (row.get("skills") or ()):
            if not found.times:
                found = found._replace(last=float(row["t"]), goal=str(row.get("goal", "")))
            found = found._replace(times=found.times + 1)
    return found


def _selection_lines(choices: SelectionCounts) -> list[str]:
    if not choices.requests:
        return []
    share = say("{count} of {total}", count=choices.times, total=choices.requests)
    lines = [f"{say('chosen')}{say(': ')}{share}"]
    if choices.times:
        when = _format_time(choices.last)
        lines.append(f"  {when}, “{_short(choices.goal)}”")
    return lines


def _short(goal: str) -> str:
    text = " ".join(goal.split())
    return text if len(text) <= _MAX_GOAL_CHARS else text[:_MAX_GOAL_CHARS].rstrip() + "…"


def _usage_section(skill: Skill, past: _TraceHistory) -> ReportSection:
    lines: list[str] = []
    failed = past.failed
    if not skill.is_tool:
        lines = [
            f"{say('shown to a model')}{say(': ')}{_format_time(past.offered)}",
            f"{say('loaded')}{say(': ')}{_format_time(past.loaded)}",
        ]
    if skill.is_tool or past.ran is not None:
        lines.append(f"{say('ran')}{say(': ')}{_format_time(past.ran)}")
    if failed is not None:
        message = " ".join(render(failed["message"] or "").split())
        lines.append(f"{say('failed')}{say(': ')}{_format_time(failed['time'])}, {message}")
    return ReportSection(say("History"), tuple(lines))


def _format_time(moment: float | None) -> str:
    if moment is None:
        return say("never")
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(moment))


def _advice(
    skill: Skill,
    standing: str,
    policy: str,
    refusal: SatchelError | None,
    source: ToolSkill | None,
    failed: dict[str, Any] | None,
) -> list[str]:
    if skill.state == "unverified" and refusal is not None:
        return [render(refusal.hint)]
    if code := skill.problem_code(unpinned=policy == "locked"):
        values = {"name": skill.reference, "reason": "", "winner": skill.shadowed_by}
        return [Problem(code, values=values).fix]
    if skill.state == "excluded":
        return [say("Change `include`, `exclude` or `tags`: `satchel config list` says where")]
    if refusal is not None:
        return [render(refusal.hint)]
    advice = [problem.fix for problem in skill.problems if _is_advised(skill, problem)]
    if failed is not None and failed.get("fix"):
        advice.insert(0, render(failed["fix"]))
    if skill.is_tool and source is not None and not advice:
        advice.append(say("Run `{command}`", command=f"satchel try {source.tools[0]}"))
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


def _unknown(name: str, library: Library) -> SkillReport:
    """Report on a name without a skill: a broken or missing file, or a misspelt name."""
    problems, strays = (*library.snapshot().problems, *library.tools().problems), library.strays()
    related = problems_named(name, problems) or problems_named(name, strays)
    related = related or problems_named(f"{name}.md", strays)
    if related:
        lines: list[str] = []
        for problem in related:
            lines += [problem.path, f"  {_problem_line(problem)}"]
        grave = any(problem.severity == "error" for problem in related)
        chapter = ReportSection(say("Problems"), tuple(lines), "broken" if grave else "bad")
        advice = tuple(dict.fromkeys(problem.fix for problem in related))
        facts = {"found": False, "problems": [problem.to_dict() for problem in related]}
        return SkillReport(name, say("found, but it is not a skill"), (chapter,), advice, facts)
    near = names_like(name, library.every())
    names = join_names(f"`{item}`" for item in near)
    advice = [say("Did you mean {names}?", names=names)] if near else []
    advice.append(say("Run `{command}`", command="satchel list --locations"))
    facts = {"found": False, "near": near}
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
    import difflib

    names = [skill.name for skill in skills[:25_000]]
    return difflib.get_close_matches(name, dict.fromkeys(names), n=3, cutoff=0.6)
