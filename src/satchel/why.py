"""The whole story of one skill: found where, hidden by what, told to the model how, used when.

Everything here is gathered from the parts that know it; this module only asks and arranges. The
story is for people (`str(story)`), for scripts (`to_dict()`) and later for a web page.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from satchel._language import listed, render, say
from satchel.errors import SatchelError
from satchel.skill.fields import FIELDS
from satchel.skill.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from satchel.catalogue import Account
    from satchel.library import Library
    from satchel.library.seal import Seals
    from satchel.library.tool_shelf import ToolSkill
    from satchel.skill.model import Skill


_GOAL = 60
"""Characters of a past request that are repeated."""


class Chapter(NamedTuple):
    """One part of the story."""

    title: str
    lines: tuple[str, ...]
    mood: str = "plain"
    """`good`, `bad`, `broken`, `plain`: how a terminal may colour it."""


class Story(NamedTuple):
    """What became of a skill, and what to do next."""

    name: str
    verdict: str
    """One sentence: is it offered, and how."""
    chapters: tuple[Chapter, ...]
    advice: tuple[str, ...]
    """Next steps, most useful first."""
    facts: dict[str, Any]
    """The same for scripts."""
    sound: bool = False
    """Nothing is to be fixed: the advice only says where to look further."""

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


def tell_why(
    name: str | Skill,
    library: Library,
    account: Account,
    *,
    policy: str = "all",
    taken: Sequence[Problem] = (),
) -> Story:
    """Tell the story of the skill called `name` (or by id, ref or path), as of the last look.

    Args:
        name: Which one, or the very skill: a stranger may call one by the path of another.
        library: What there is.
        account: What the catalogue made of it.
        policy: The setting `trust`.
        taken: Tools that are not offered, since something else has their names.
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
    chapters = [_where(skill, found), _health(skill)]
    bound, refusal = _binding(skill, library.seals)
    if skill.is_tool:
        refusal = refusal or tools.refused.get(skill.ref)
    if bound is not None:
        chapters.append(bound)
    own = os.path.join(skill.base_dir, "skill.yaml")
    lost = [problem for problem in taken if problem.path == own]
    if source is not None:
        chapters.append(_its_tools(source, lost))
    if listed_one:
        chapters.append(_in_catalogue(skill, account, standing))
    history = list(library.trace.history())
    past = _past(skill.name, history)
    choices = choices_of(skill.name, history)
    use = _use(skill, past if source is not None else past._replace(ran=None))
    chapters.append(use._replace(lines=(*use.lines, *_told_choices(choices))))
    facts: dict[str, Any] = {
        "found": True,
        "state": skill.state,
        "ref": skill.ref,
        "path": skill.path,
        "source": skill.source,
        "winner": skill.winner or None,
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
    if source is not None:
        facts.update(source.to_dict(), last_ran=past.ran)
    advice = tuple(dict.fromkeys(problem.fix for problem in lost)) or tuple(
        _advice(skill, standing, policy, refusal, source, past.open_failure)
    )
    return Story(
        skill.name,
        say("offered, but refused when it is loaded")
        if refusal is not None and listed_one
        else say("not offered: it may not be used as it is")
        if refusal is not None and skill.is_tool
        else say("not offered: its tools have names that others have")
        if source is not None and skill.is_tool and len(lost) >= len(source.tools)
        else _verdict(skill, standing, locked=policy == "locked"),
        tuple(chapters),
        advice,
        facts,
        advice == (_nothing_to_mend(skill),),
    )


def _binding(skill: Skill, seals: Seals) -> tuple[Chapter | None, SatchelError | None]:
    """Whether it may be used as it is, and the error when it may not."""
    if skill.state not in ("active", "shadowed"):
        return None, None
    title = say("Its content")
    try:
        seals.check(skill, clean=False)
        accepted, files = seals.is_accepted(skill), seals.modified(skill)
    except SatchelError as exc:
        return Chapter(title, (render(exc.message),), "bad"), exc
    lines = [say("you accepted its risk") if accepted else say("scanned, and not blocked")]
    if files:
        names = listed(f"`{path}`" for path in files[:3])
        lines.append(say("modified since it was installed: {files}", files=names))
    return Chapter(title, tuple(lines), "good"), None


def _its_tools(source: ToolSkill, lost: Sequence[Problem]) -> Chapter:
    """What it brings beside instructions, and what its program may touch."""
    manifest = source.manifest
    lines = [
        say("tools: {names}", names=listed(f"`{name}`" for name in source.tools)),
        say("runs `{entry}` ({runtime})", entry=manifest.entry, runtime=manifest.runtime),
    ]
    wants = source.wants
    nothing = say("may use nothing beside its own folder")
    lines.append(say("may {what}", what=listed(wants)) if wants else nothing)
    lines += [_told(problem) for problem in lost]
    if lost:
        return Chapter(say("Its tools"), tuple(lines), "bad")
    good = source.skill.state == "active"
    return Chapter(say("Its tools"), tuple(lines), "good" if good else "plain")


def _verdict(skill: Skill, standing: str, *, locked: bool) -> str:
    if skill.state == "shadowed":
        return say("not offered, hidden by `{winner}`", winner=skill.winner)
    if skill.state == "untrusted" and locked:
        return say("not offered, because no lockfile pins it as it is")
    if skill.state == "untrusted":
        return say("not offered, because its folder is not trusted yet")
    if skill.state == "blocked":
        return say("not offered, because the scan blocks it")
    if skill.state == "excluded":
        return say("not offered, because a filter leaves it out")
    if skill.is_tool:
        return say("offered: models may call its tools")
    return {
        "full": say("offered, with its whole description"),
        "shortened": say("offered, with a shortened description"),
        "named": say("offered by name only: the budget has no room for its description"),
        "unlisted": say("offered, but not listed: the budget has no room; `SkillSearch` finds it"),
        "withheld": say(
            "kept from the model by its own `disable-model-invocation`; a person can load it"
        ),
    }[standing]


def _where(skill: Skill, found: list[Skill]) -> Chapter:
    lines = [
        skill.path,
        say("location {label} ({source})", label=skill.origin.label, source=skill.source),
    ]
    for other in found[1:]:
        if other.state == "shadowed":
            lines.append(say("hides {ref}", ref=other.ref))
        else:
            lines.append(say("also found: {ref} ({state})", ref=other.ref, state=say(other.state)))
    if skill.winner:
        lines.append(say("hidden by {ref}, which goes before it", ref=skill.winner))
    return Chapter(
        say("Where it was found"), tuple(lines), "bad" if skill.state != "active" else "good"
    )


def _health(skill: Skill) -> Chapter:
    lines: list[str] = []
    if skill.origin.remote:
        told = [say("from the list of a server ({origin})", origin=skill.origin.remote)]
        told.append(say("its files are fetched and compared when it is loaded"))
        told += [_told(problem) for problem in skill.problems]
        return Chapter(say("How it was read"), tuple(told), "plain")
    try:
        document = skill.read()
    except SatchelError as exc:
        return Chapter(say("How it was read"), (render(exc.message),), "bad")
    for problem in skill.problems:
        lines.append(_told(problem))
        if not _is_advised(skill, problem):
            lines.append(f"  → {problem.fix}")
    fields = {} if skill.is_tool else document.fields
    inert = [key for key in fields if key in FIELDS and FIELDS[key].status == "inert"]
    unknown = [key for key in fields if key not in FIELDS]
    if inert:
        lines.append(say("kept but inert here: {fields}", fields=listed(inert)))
    if unknown:
        lines.append(say("unknown fields, kept: {fields}", fields=listed(unknown)))
    if not lines:
        return Chapter(say("How it was read"), (say("cleanly, nothing repaired"),), "good")
    return Chapter(say("How it was read"), tuple(lines), "bad" if skill.problems else "plain")


def _told(problem: Problem) -> str:
    at = f":{problem.line}" if problem.line else ""
    return f"{problem.code}{at}{say(': ')}{problem.message}"


def _is_advised(skill: Skill, problem: Problem) -> bool:
    """Whether the fix is among the next steps: it is told once."""
    return skill.state == "active" and problem.severity != "note"


def _in_catalogue(skill: Skill, account: Account, standing: str) -> Chapter:
    cost = len(skill.description) + len(skill.when_to_use)
    lines = (
        account.summary(),
        say("its description has {count} characters", count=cost),
    )
    return Chapter(
        say("What the model is told"), lines, "good" if standing in ("full", "shortened") else "bad"
    )


class _Past(NamedTuple):
    """What the trace remembers of a skill."""

    offered: float | None = None
    loaded: float | None = None
    failed: dict[str, Any] | None = None
    ran: float | None = None
    ended: str = ""
    """How its program's last run ended: `well`, `error` or the name of a fault."""
    well: float | None = None
    """When its program last answered, if with an error."""

    @property
    def open_failure(self) -> dict[str, Any] | None:
        """The last failure, when it is the skill's own and nothing went well after it."""
        failed = self.failed
        if failed is None or failed["time"] < (self.well or 0):
            return None
        return failed if "fix" in failed or self.ended not in ("", "well", "error") else None


def _past(name: str, history: Iterable[dict[str, Any]]) -> _Past:
    past = _Past()
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


class Choices(NamedTuple):
    """How often a skill was chosen for a request, as far as the trace goes back."""

    requests: int = 0
    """For how many requests anybody chose."""
    times: int = 0
    last: float | None = None
    goal: str = ""
    """The last request it was chosen for."""
    runner_up: int = 0
    """For how many it came next."""
    passed: str = ""
    """The last request for which it came next."""
    instead: tuple[str, ...] = ()
    """Who was chosen then."""


def choices_of(name: str, history: Iterable[dict[str, Any]]) -> Choices:
    """What the trace knows of the choices that concerned one skill.

    Args:
        name: The skill's name.
        history: Rows of the trace, the newest first.
    """
    found = Choices()
    for row in history:
        if row.get("kind") != "selected":
            continue
        found = found._replace(requests=found.requests + 1)
        goal, chosen = str(row.get("goal", "")), _names(row.get("skills"))
        if name in chosen:
            if not found.times:
                found = found._replace(last=float(row["t"]), goal=goal)
            found = found._replace(times=found.times + 1)
        elif name in _names(row.get("runners_up")):
            if not found.runner_up:
                found = found._replace(passed=goal, instead=tuple(chosen))
            found = found._replace(runner_up=found.runner_up + 1)
    return found


def _names(rows: Any) -> list[str]:
    """Names of skills in a row of the trace: alone, or in pairs with a score."""
    every = cast("list[Any]", rows if isinstance(rows, list) else [])
    pairs = [cast("list[Any]", row) if isinstance(row, list) else [row] for row in every]
    return [str(pair[0]) for pair in pairs if pair]


def _told_choices(choices: Choices) -> list[str]:
    """Where hosts ask nobody to choose there is nothing to tell."""
    if not choices.requests:
        return []
    lines = [
        say("chosen for {count} of {total} requests", count=choices.times, total=choices.requests)
    ]
    if choices.times:
        when = _when(choices.last)
        lines.append(say("  last: {when}, “{goal}”", when=when, goal=_short(choices.goal)))
    if choices.runner_up:
        lines.append(say("came next for {count}", count=choices.runner_up))
        instead = listed(f"`{name}`" for name in choices.instead) or say("no skill")
        lines.append(
            say("  last: “{goal}”, which got {names}", goal=_short(choices.passed), names=instead)
        )
    return lines


def _short(goal: str) -> str:
    """The beginning of a request, on one line."""
    text = " ".join(goal.split())
    return text if len(text) <= _GOAL else text[:_GOAL].rstrip() + "…"


def _use(skill: Skill, past: _Past) -> Chapter:
    lines: list[str] = []
    failed = past.failed
    if not skill.is_tool:
        lines = [
            say("last offered to a model: {when}", when=_when(past.offered)),
            say("last loaded: {when}", when=_when(past.loaded)),
        ]
    if skill.is_tool or past.ran is not None:
        lines.append(say("its program last ran: {when}", when=_when(past.ran)))
    if failed is not None:
        told = say(
            "last failure: {when}, {message}",
            when=_when(failed["time"]),
            message=" ".join(render(failed["message"] or "").split()),
        )
        if past.loaded is not None and failed["time"] < past.loaded:
            told += say(" (before the last load)")
        elif past.well is not None and failed["time"] < past.well:
            told += say(" (it has run well since)")
        lines.append(told)
    return Chapter(say("When it was used"), tuple(lines))


def _when(moment: float | None) -> str:
    if moment is None:
        return say("never, as far as the trace goes back")
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(moment))


def _advice(
    skill: Skill,
    standing: str,
    policy: str,
    refusal: SatchelError | None,
    source: ToolSkill | None,
    failed: dict[str, Any] | None,
) -> list[str]:
    if skill.state in ("untrusted", "blocked"):
        code = "unpinned" if policy == "locked" else "untrusted"
        code = "blocked" if skill.state == "blocked" else code
        return [Problem(code, values={"name": skill.typed}).fix]
    if skill.state == "shadowed":
        return [say("Rename it, or remove `{winner}`", winner=skill.winner)]
    if skill.state == "excluded":
        return [say("Change `include`, `exclude` or `tags` in `satchel.toml`")]
    if refusal is not None:
        return [render(refusal.hint)]
    advice = [problem.fix for problem in skill.problems if _is_advised(skill, problem)]
    if failed is not None and failed.get("fix"):
        advice.insert(0, render(failed["fix"]))
    if skill.is_tool and source is not None and not advice:
        tool = source.tools[0]
        advice.append(
            say("Its last call failed. See how: `satchel try {tool}`", tool=tool)
            if failed is not None
            else say("Nothing to fix. Call one of its tools: `satchel try {tool}`", tool=tool)
        )
    if standing == "unlisted":
        advice.append(
            say(
                "Pin it: add `{name}` to `pin`, raise `budget`, or leave others out with `exclude`",
                name=skill.name,
            )
        )
    elif standing in ("named", "shortened"):
        advice.append(
            say("Put what matters for choosing it into the first sentence of its description")
        )
        advice.append(say("Pin it: add `{name}` to `pin`, or raise `budget`", name=skill.name))
    elif standing == "full" and not advice:
        advice.append(_nothing_to_mend(skill))
    return advice


def _nothing_to_mend(skill: Skill) -> str:
    return say(
        "Nothing to fix. If a model passes it by, ask about the request: "
        '`satchel why {name} --goal "…"`',
        name=skill.typed,
    )


def _unknown(name: str, library: Library) -> Story:
    """No such skill: its file may be broken or missing, or the name may be misspelt."""
    problems = (*library.snapshot().problems, *library.tools().problems)
    related = problems_named(name, problems) or [
        one for one in library.strays() if name in (base := os.path.basename(one.path), base[:-3])
    ]
    if related:
        lines: list[str] = []
        for problem in related:
            lines += [problem.path, f"  {_told(problem)}"]
        grave = any(problem.severity == "error" for problem in related)
        chapter = Chapter(say("What is wrong"), tuple(lines), "broken" if grave else "bad")
        advice = tuple(dict.fromkeys(problem.fix for problem in related))
        facts = {"found": False, "problems": [problem.to_dict() for problem in related]}
        return Story(name, say("found, but it is not a skill"), (chapter,), advice, facts)
    near = names_like(name, library.every())
    advice = (
        [say("Did you mean {names}?", names=listed(f"`{item}`" for item in near))] if near else []
    )
    advice.append(say("See where skills are looked for: `satchel locations`"))
    facts = {"found": False, "near": near}
    return Story(name, say("no skill of that name in any location"), (), tuple(advice), facts)


def problems_named(name: str, problems: Iterable[Problem]) -> list[Problem]:
    """What is wrong in a folder of that name, or in the one whose tools would be called so."""
    every = list(problems)
    found = [
        problem
        for problem in every
        if f"{os.sep}{name}{os.sep}" in problem.path + os.sep
        or os.path.basename(problem.path) == name
    ]
    return found or [problem for problem in every if _would_offer(problem, name)]


def _would_offer(problem: Problem, tool: str) -> bool:
    """Whether a problem is of a skill.yaml that may declare a tool: `folder_action` or so."""
    folder, file = os.path.split(problem.path)
    if not file.startswith("skill.y"):
        return False
    stem = os.path.basename(folder).replace("-", "_")
    words = tool.replace("-", "_").replace(".", "_")
    return words == stem or words.startswith(f"{stem}_")


def names_like(name: str, skills: Sequence[Skill]) -> list[str]:
    """Names that may have been meant."""
    import difflib

    names = [skill.name for skill in skills[:25_000]]
    return difflib.get_close_matches(name, dict.fromkeys(names), n=3, cutoff=0.6)
