"""What became of one skill, and would it be chosen? The story of `why`, ready to be shown."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Literal, NamedTuple

from satchel._language import render, say
from satchel.errors import Conflict, InvalidInput, SatchelError
from satchel.standing import (
    WORDS,
    advise,
    fields_shown,
    label,
    lacking,
    ordinal,
    reason_of,
    told_more,
    verdict,
)
from satchel.tools.frame import printable
from satchel.ui.views.skills import own_scope, row_of, source_words, state_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from satchel.detect import Match, Place
    from satchel.facade import Satchel
    from satchel.library.tool_shelf import ToolSkill
    from satchel.skill.model import Skill
    from satchel.skill.problems import Problem
    from satchel.standing import Standing
    from satchel.store.agents import Agent, Links, Sight
    from satchel.ui.views.skills import Row
    from satchel.why import Story

_KEPT_BACK = ("untrusted", "blocked")


class AgentRow(NamedTuple):
    """One agent and one skill."""

    id: str
    name: str
    has: bool
    mood: str
    mark: str
    words: str
    """How it has it."""
    place: str
    notes: tuple[str, ...]
    can: Literal["add", "remove", ""]
    """What a switch would do; empty when nothing can be done here."""
    fixed: str = ""
    """Why there is nothing to switch."""


class Agents(NamedTuple):
    """The agents that are used here and one skill."""

    rows: tuple[AgentRow, ...]
    user: bool
    """For all projects of the user, not only for this one."""
    has_home: bool
    offered: bool
    """Only a skill that is offered here can be put anywhere."""
    regardless: int = 0
    """How many may read it although it is not trusted or blocked: no setting of Satchel's reaches
    them."""


class Outcome(NamedTuple):
    """The outcome of a switch."""

    agent: str
    words: str
    mood: str
    hint: str = ""
    remove: bool = False
    """It was to be taken away."""
    undo: bool = False
    """The opposite switch brings back what was."""


def agents_of(satchel: Satchel, skill: Skill, *, user: bool = False) -> Agents:
    """The agents that are used here, and how each has a skill.

    Args:
        satchel: Whose skills.
        skill: Which one.
        user: Switches are for all projects of the user.
    """
    from satchel.store.agents import all_agents, sight_of, user_home

    project, home = satchel.settings.project, user_home()
    user = user and bool(home)
    links = _links(satchel, user=user)
    rows = tuple(
        _row(agent, sight_of(agent, project, home, skill), links, skill)
        for agent in all_agents()
        if agent.is_here(project, home)
    )
    regardless = sum(row.has for row in rows) if skill.state in _KEPT_BACK else 0
    return Agents(rows, user, bool(home), skill.state == "active", regardless)


def switch(satchel: Satchel, skill: Skill, agent_id: str, *, user: bool, on: bool) -> Outcome:
    """Put a skill where an agent looks, or take it away.

    Args:
        satchel: Whose skills.
        skill: Which one.
        agent_id: For whom.
        user: For all projects of the user.
        on: Put it there; else take it away.

    Raises:
        SatchelError: it cannot be done; what is in the way is an outcome.
    """
    from satchel.store.agents import agent_named

    agent = agent_named(agent_id)
    links = _links(satchel, user=user)
    try:
        if on:
            done = links.link(skill, agent)
        else:
            folder = os.path.basename(links.target(skill, agent))
            done = links.unlink(folder, agent, skill.base_dir)
    except Conflict as exc:
        return Outcome(agent.id, exc.message, "warn", exc.hint, remove=not on)
    words = {
        "made": say("{agent} has it now, by a link", agent=agent.name),
        "kept": say("{agent} had it already", agent=agent.name),
        "seen": say("{agent} looks into its own folder, and sees it there", agent=agent.name),
        "removed": say("{agent} has it no more", agent=agent.name),
    }[done.action]
    undo = done.action in ("made", "removed")
    return Outcome(agent.id, words, "good", remove=done.action == "removed", undo=undo)


def _links(satchel: Satchel, *, user: bool) -> Links:
    from satchel.store.agents import Links

    return Links(satchel.settings, user=user, check=satchel.library.seals.check)


def _row(agent: Agent, sight: Sight, links: Links, skill: Skill) -> AgentRow:
    has = sight.view in ("sees", "perhaps") and sight.kind != "other"
    notes = [printable(sight.why)] if sight.why else []
    mood, mark = {
        "sees": ("good", "●"),
        "perhaps": ("warn", "◐"),
        "hidden": ("bad", "✗"),
        "absent": ("plain", "○"),
    }[sight.view]
    if has and skill.state in _KEPT_BACK:
        notes.append(say("reads it although it is not offered here"))
    if sight.kind == "other" or (has and skill.state in _KEPT_BACK):
        mood, mark = "warn", "▲"
    words = {
        "itself": say("looks into its own folder"),
        "link": say("by a link"),
        "other": say("has another one of that name"),
        "": say("not there"),
    }[sight.kind]
    offered = skill.state == "active"
    can: Literal["add", "remove", ""] = ""
    if sight.kind == "link" and sight.path == links.target(skill, agent):
        can = "remove"
    elif not has and offered and not skill.origin.remote:
        can = "add"
    place = printable(sight.place) or (f"~/{agent.user[0]}" if links.user else agent.project[0])
    fixed = "" if can else _why_fixed(skill, has=has, offered=offered)
    return AgentRow(agent.id, agent.name, has, mood, mark, words, place, tuple(notes), can, fixed)


def _why_fixed(skill: Skill, *, has: bool, offered: bool) -> str:
    if has:
        return say("It finds the skill by itself")
    if not offered:
        return say("It is not offered here")
    return say("It lies on a server") if skill.origin.remote else ""


LONGEST_GOAL = 4_000
"""Characters of a request that are looked at."""
MOODS = {"good": "good", "bad": "warn", "broken": "bad", "plain": "plain"}
"""How a chapter went -> its colour here: nothing of a sound skill is red."""
MARKS = {"good": "✓", "warn": "▲", "bad": "✗", "plain": "·"}
"""The same for those who see no colours."""
_SEVERITIES = {"error": "bad", "warning": "warn", "note": "plain"}
_CODE = re.compile(r"`([^`]+)`")
_TWICE = frozenset(("inert-field", "unknown-field"))
"""What the story says in a line of its own."""


class Piece(NamedTuple):
    """A part of a sentence."""

    text: str
    code: bool = False
    command: bool = False
    """To be run in a terminal as it is."""


class Door(NamedTuple):
    """Where a page itself can do what is advised."""

    kind: str
    """`trust`, `files`, `question`, `catalogue`, `edit`, `skill`."""
    words: str
    ref: str = ""
    """Of `skill`: which one."""


class Step(NamedTuple):
    """Something to do next."""

    pieces: tuple[Piece, ...]
    door: Door | None = None


class Part(NamedTuple):
    """A chapter of the story."""

    title: str
    mood: str
    mark: str
    lines: tuple[tuple[int, tuple[Piece, ...]], ...]
    """Each with its depth, 0 or 1."""


class Trouble(NamedTuple):
    """Something that is wrong with its files."""

    code: str
    severity: str
    mood: str
    line: int
    words: tuple[Piece, ...]
    fix: tuple[Piece, ...]


class OneTool(NamedTuple):
    """A tool that a skill brings."""

    name: str
    description: str
    parameters: tuple[tuple[str, str, bool, str], ...]
    """Name, kind, whether it must be given, and what it means."""


class Brings(NamedTuple):
    """What a tool skill brings."""

    tools: tuple[OneTool, ...]
    entry: str
    runtime: str
    wants: tuple[str, ...]


class Told(NamedTuple):
    """One skill's own page."""

    row: Row
    """As the list shows it."""
    state: tuple[str, str, str]
    """In the words of the list: the state, what it means, its mood."""
    source: str
    description: str
    scope: str
    """Where it may be changed; empty when it may not."""
    verdict: str
    mood: str
    parts: tuple[Part, ...]
    steps: tuple[Step, ...]
    troubles: tuple[Trouble, ...]
    brings: Brings | None
    folder: str
    also: str = ""
    """What would still keep it from models when the first obstacle is gone."""


def tell(satchel: Satchel, skill: Skill) -> Told:
    """The whole story of one skill."""
    row = row_of(satchel, skill)  # looks again where that is cheap
    story = satchel.why(skill, fresh=False)
    source = satchel.library.tools().of(skill)
    scope = own_scope(satchel, skill)
    moods = {MOODS[chapter.mood] for chapter in story.chapters}
    refused = bool(story.facts.get("refused")) or row.state == "blocked"
    offered = skill.state == "active" and not refused
    badly = row.state in ("named", "unlisted")  # a model is not told what its author wrote
    return Told(
        row,
        state_words(row.state),
        source_words(row.source),
        printable(" ".join(skill.description.split())),
        scope,
        story.verdict,
        "bad" if refused or "bad" in moods else "good" if offered and not badly else "warn",
        tuple(_parts(story)),
        tuple(_steps(skill, story, editable=bool(scope))),
        tuple(_troubles(satchel, skill)),
        _brings(source) if source is not None else None,
        printable(skill.base_dir) if not skill.origin.remote else "",
        say("And its author keeps it from models: `disable-model-invocation` is set")
        if skill.state != "active" and not skill.for_model
        else "",
    )


def pieces(text: str) -> tuple[Piece, ...]:
    """A sentence, taken apart at its backticks."""
    found: list[Piece] = []
    for at, part in enumerate(_CODE.split(text)):
        if part:
            code = at % 2 == 1
            found.append(Piece(printable(part), code, code and part.startswith("satchel ")))
    return tuple(found)


def _parts(story: Story) -> Iterator[Part]:
    for chapter in story.chapters:
        lines: list[tuple[int, tuple[Piece, ...]]] = []
        for line in chapter.lines:
            deep = 1 if line.startswith(" ") else 0
            # A path is no sentence: what it has of backticks is its own.
            whole = os.path.isabs(line)
            lines.append(
                (deep, (Piece(printable(line), code=True),) if whole else pieces(line.strip()))
            )
        mood = MOODS[chapter.mood]
        yield Part(chapter.title, mood, MARKS[mood], tuple(lines))


def _steps(skill: Skill, story: Story, *, editable: bool) -> Iterator[Step]:
    fixes = {problem.fix for problem in skill.problems}
    for line in story.advice:
        yield Step(pieces(line), _door(skill, line, editable=editable, mend=line in fixes))


def _door(skill: Skill, line: str, *, editable: bool, mend: bool) -> Door | None:
    """Where the page can do it. Commands are the same in every language."""
    codes = _CODE.findall(line)
    for code in codes:
        if code.startswith("satchel trust"):
            return Door("trust", say("Decide here"))
        if code.startswith("satchel show"):
            return Door("files", say("Read it here"))
        if code.startswith("satchel why") and "--goal" in code:
            return Door("question", say("Ask here"))
    if skill.state == "shadowed" and skill.winner:
        return Door("skill", say("See that one"), skill.winner)
    if {"pin", "budget"} & set(codes):
        return Door("catalogue", say("Try budgets"))
    return Door("edit", say("Edit it here")) if editable and (mend or not codes) else None


def _troubles(satchel: Satchel, skill: Skill) -> Iterator[Trouble]:
    """As `satchel show` tells them: what was noticed, and what an author would want."""
    from satchel._diagnosis import content_problem
    from satchel.skill.validate import check

    library = satchel.library
    try:
        document = library.seals.inspect(skill)
    except SatchelError as exc:
        yield Trouble(exc.code, say("error"), "bad", 0, pieces(render(exc.message)),
                      pieces(render(exc.hint)))  # fmt: skip
        return
    problems: list[Problem] = list(document.problems) if skill.is_tool else list(check(document))
    changed = content_problem(library, skill)
    if changed is not None:
        problems.insert(0, changed)
    for one in problems:
        if one.code in _TWICE:
            continue
        yield Trouble(
            one.code,
            say(one.severity),
            _SEVERITIES[one.severity],
            one.line,
            pieces(one.message),
            pieces(one.fix),
        )


def _brings(source: ToolSkill) -> Brings:
    manifest = source.manifest
    return Brings(
        tuple(
            OneTool(
                tool.name,
                printable(" ".join(tool.description.split())),
                tuple(
                    (
                        printable(one.name),
                        one.type,
                        one.required,
                        printable(" ".join(one.description.split())),
                    )
                    for one in tool.parameters
                ),
            )
            for tool in manifest.tools
        ),
        printable(manifest.entry),
        manifest.runtime,
        tuple(printable(one) for one in source.wants),
    )


# --- for one request ----------------------------------------------------------------------


class Bar(NamedTuple):
    """What one field gave, beside what it gave to the best one ahead."""

    label: str
    own: float
    own_share: float
    """From 0 to 100, of the largest of all."""
    theirs: float
    their_share: float


class Rival(NamedTuple):
    """A skill that is ahead."""

    name: str
    ref: str
    score: str
    by: str
    chosen: bool


class Asked(NamedTuple):
    """How a skill does for one request."""

    goal: str
    chosen: bool
    mood: str
    lines: tuple[tuple[Piece, ...], ...]
    """Whether it would be chosen, in sentences."""
    rank: str
    of: int
    score: str
    judge: str
    reason: tuple[Piece, ...]
    bars: tuple[Bar, ...]
    rival: str
    """Whose numbers stand beside its own."""
    lacks: tuple[str, ...]
    ahead: tuple[Rival, ...]
    steps: tuple[Step, ...]
    notes: tuple[tuple[Piece, ...], ...]


def ask(satchel: Satchel, skill: Skill, goal: str) -> Asked:
    """Whether a skill would be chosen for a request, and why. Nothing is recorded.

    Raises:
        InvalidInput: there is no request, or it is too long.
    """
    goal = goal.strip()
    if not goal:
        raise InvalidInput(say("There is no request"), say("Write what somebody would ask for"))
    if len(goal) > LONGEST_GOAL:
        raise InvalidInput(
            say("The request has more than {most} characters", most=LONGEST_GOAL),
            say("Write less"),
        )
    standing = satchel.stand(skill, goal)
    place = standing.place
    judge, reason = reason_of(standing)
    editable = bool(own_scope(satchel, skill))
    missing = lacking(standing)[:WORDS]
    mends = [f"`{word}`" for word in missing]
    steps = [
        Step(
            pieces(line),
            Door("edit", say("Edit it here"))
            if editable and mends and all(word in line for word in mends)
            else None,
        )
        for line in advise(standing)
    ]
    if standing.chosen and not steps:
        steps = [Step(pieces(say("Nothing to fix: this request gets it")))]
    match = place.match if place is not None else None
    return Asked(
        printable(goal),
        standing.chosen,
        "good" if standing.chosen else "warn",
        tuple(pieces(line) for line in verdict(standing)),
        ordinal(place.rank) if place is not None and place.rank else "",
        place.of if place is not None else 0,
        f"{match.score:.2f}" if match is not None and place is not None and place.rank else "",
        printable(judge),
        pieces(reason),
        tuple(_bars(place)) if place is not None else (),
        _rival(place),
        tuple(printable(word) for word in missing),
        tuple(_ahead(standing, place)) if place is not None else (),
        tuple(steps),
        tuple(pieces(render(note)) for note in standing.answer.notes),
    )


def _rival(place: Place | None) -> str:
    if place is None or not place.ahead or not place.ahead[0][1]:
        return ""
    return printable(place.ahead[0][0].name)


def _bars(place: Place) -> Iterator[Bar]:
    theirs: Mapping[str, float] = place.ahead[0][1] if place.ahead else {}
    whole = {**theirs, **place.fields}
    most = max((*place.fields.values(), *theirs.values()), default=0.0)
    for field in fields_shown(place):
        own, other = place.fields.get(field, 0.0), theirs.get(field, 0.0)
        yield Bar(printable(label(field, whole)), own, _share(own, most), other,
                  _share(other, most))  # fmt: skip


def _share(value: float, most: float) -> float:
    if not (most > 0 and value > 0):
        return 0.0
    return round(min(100.0 * value / most, 100.0), 2)


def _ahead(standing: Standing, place: Place) -> Iterator[Rival]:
    chosen = _refs(standing.answer.matches)
    for match, fields in place.ahead:
        yield Rival(
            printable(match.name),
            match.skill.ref,
            f"{match.score:.2f}",
            printable(told_more(match, fields, place.fields)),
            match.skill.ref in chosen,
        )


def _refs(matches: Iterable[Match]) -> Sequence[str]:
    return [match.skill.ref for match in matches]
