"""Records of one skill's page: its status, its agents, and its selection for a request."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Literal, NamedTuple

from satchel.errors import Conflict, InvalidInput, SatchelError
from satchel.explain_selection import (
    MAX_WORDS_SHOWN,
    detector_and_reason,
    difference_text,
    fields_shown,
    label,
    missing_words,
    next_steps,
    ordinal,
    verdict,
)
from satchel.i18n import render, say
from satchel.presentation.findings import FIELD_PROBLEMS, MARKS, document_problems
from satchel.presentation.skills import own_scope, row_of, source_words, state_words
from satchel.tools.framing import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from satchel.detect import RankExplanation
    from satchel.explain import SkillReport
    from satchel.explain_selection import SelectionExplanation
    from satchel.library.tool_scanner import ToolSkill
    from satchel.presentation.skills import SkillRow
    from satchel.satchel import Satchel
    from satchel.skill.model import Skill
    from satchel.store.agents import AgentVisibility, Links, SkillAgent

_WITHHELD_STATES = ("untrusted", "blocked")


class AgentRow(NamedTuple):
    """One agent and one skill."""

    id: str
    name: str
    has: bool
    mood: str
    mark: str
    words: str
    place: str
    notes: tuple[str, ...]
    can: Literal["add", "remove", ""]
    """What the switch would do; empty when it is disabled."""
    fixed: str = ""
    """Why the switch is disabled."""


class AgentRows(NamedTuple):
    """All agents in use here and one skill."""

    rows: tuple[AgentRow, ...]
    user: bool
    has_home: bool
    offered: bool
    """Only an offered skill can be linked."""
    regardless: int = 0
    """Number of agents that can read it although it is untrusted or blocked: Satchel's settings do
    not apply to them."""


class LinkOutcome(NamedTuple):
    """The result of a switch."""

    agent: str
    words: str
    mood: str
    hint: str = ""
    remove: bool = False
    """The link was to be removed."""
    undo: bool = False
    """The opposite switch reverts it."""


def agents_of(satchel: Satchel, skill: Skill, *, user: bool = False) -> AgentRows:
    """Return the agents in use here, and how each sees a skill.

    Args:
        satchel: The project's skills.
        skill: The skill.
        user: Switch for all projects of the user.
    """
    from satchel.store.agents import all_agents, user_home, visibility_of

    project, home = satchel.settings.project, user_home()
    user = user and bool(home)
    links = _links(satchel, user=user)
    rows = tuple(
        _row(agent, visibility_of(agent, project, home, skill), links, skill)
        for agent in all_agents()
        if agent.is_here(project, home)
    )
    regardless = sum(row.has for row in rows) if skill.state in _WITHHELD_STATES else 0
    return AgentRows(rows, user, bool(home), skill.state == "active", regardless)


def switch(satchel: Satchel, skill: Skill, agent_id: str, *, user: bool, on: bool) -> LinkOutcome:
    """Link a skill into an agent's folder, or remove the link.

    Args:
        satchel: The project's skills.
        skill: The skill.
        agent_id: The agent.
        user: For all projects of the user.
        on: Link it; else remove the link.

    Raises:
        SatchelError: it failed; a conflict is returned as a result.
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
        return LinkOutcome(agent.id, exc.message, "warn", exc.hint, remove=not on)
    words = {
        "made": say("{agent} has it now, by a link", agent=agent.name),
        "kept": say("{agent} had it already", agent=agent.name),
        "seen": say("{agent} looks into its own folder, and sees it there", agent=agent.name),
        "removed": say("{agent} has it no more", agent=agent.name),
    }[done.action]
    undo = done.action in ("made", "removed")
    return LinkOutcome(agent.id, words, "good", remove=done.action == "removed", undo=undo)


def _links(satchel: Satchel, *, user: bool) -> Links:
    from satchel.store.agents import Links

    return Links(satchel.settings, user=user, check=satchel.library.seals.check)


def _row(agent: SkillAgent, sight: AgentVisibility, links: Links, skill: Skill) -> AgentRow:
    has = sight.view in ("sees", "perhaps") and sight.kind != "other"
    notes = [printable(sight.why)] if sight.why else []
    mood, mark = {
        "sees": ("good", "●"),
        "perhaps": ("warn", "◐"),
        "hidden": ("bad", "✗"),
        "absent": ("plain", "○"),
    }[sight.view]
    if has and skill.state in _WITHHELD_STATES:
        notes.append(say("reads it although it is not offered here"))
    if sight.kind == "other" or (has and skill.state in _WITHHELD_STATES):
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


MAX_REQUEST_CHARS = 4_000
SECTION_TONES = {"good": "good", "bad": "warn", "broken": "bad", "plain": "plain"}
"""Mood of a section -> tone: nothing of a valid skill is red."""
_SEVERITIES = {"error": "bad", "warning": "warn", "note": "plain"}
_CODE = re.compile(r"`([^`]+)`")


class SentencePart(NamedTuple):
    """A part of a sentence."""

    text: str
    code: bool = False
    command: bool = False


class PageAction(NamedTuple):
    """A place of the page that can carry out the advice."""

    kind: str
    """`trust`, `files`, `question`, `catalogue`, `edit`, `skill`."""
    words: str
    ref: str = ""


class NextStep(NamedTuple):
    """A piece of advice."""

    text: str
    door: PageAction | None = None

    @property
    def pieces(self) -> tuple[SentencePart, ...]:
        """The text, split at its backticks."""
        return pieces(self.text)


class PageSection(NamedTuple):
    """A section of the report."""

    title: str
    mood: str
    mark: str
    lines: tuple[tuple[int, tuple[SentencePart, ...]], ...]
    """Each with its depth, 0 or 1."""


class FileTrouble(NamedTuple):
    """A problem of its files."""

    code: str
    severity: str
    mood: str
    line: int
    words: tuple[SentencePart, ...]
    fix: tuple[SentencePart, ...]


class ToolShown(NamedTuple):
    """A tool that a skill provides."""

    name: str
    description: str
    parameters: tuple[tuple[str, str, bool, str], ...]
    """Name, type, whether it is required, description."""


class ToolSkillShown(NamedTuple):
    """The tools and the program of a tool skill."""

    tools: tuple[ToolShown, ...]
    entry: str
    runtime: str
    wants: tuple[str, ...]


class SkillPage(NamedTuple):
    """One skill's page."""

    row: SkillRow
    state: tuple[str, str, str]
    """Label, explanation and tone of its state."""
    source: str
    description: str
    scope: str
    """The scope in which it can be changed; empty when it cannot."""
    verdict: str
    mood: str
    parts: tuple[PageSection, ...]
    steps: tuple[NextStep, ...]
    troubles: tuple[FileTrouble, ...]
    brings: ToolSkillShown | None
    also: str = ""
    """What would still hide it from models once the first obstacle is removed."""


def page_of(satchel: Satchel, skill: Skill) -> SkillPage:
    """Return the page of one skill."""
    row = row_of(satchel, skill)  # refreshes a small library
    story = satchel.why(skill, fresh=False)
    source = satchel.library.tools().of(skill)
    scope = own_scope(satchel, skill)
    moods = {SECTION_TONES[chapter.mood] for chapter in story.chapters}
    refused = bool(story.facts.get("refused")) or row.state == "blocked"
    offered = skill.state == "active" and not refused
    badly = row.state in ("named", "unlisted")  # a model does not see the description
    return SkillPage(
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
        _tool_skill(source) if source is not None else None,
        say("And its author keeps it from models: `disable-model-invocation` is set")
        if skill.state != "active" and not skill.for_model
        else "",
    )


def pieces(text: str) -> tuple[SentencePart, ...]:
    """Split a sentence at its backticks."""
    found: list[SentencePart] = []
    for at, part in enumerate(_CODE.split(text)):
        if part:
            code = at % 2 == 1
            found.append(SentencePart(printable(part), code, code and part.startswith("satchel ")))
    return tuple(found)


def _parts(story: SkillReport) -> Iterator[PageSection]:
    for chapter in story.chapters:
        lines: list[tuple[int, tuple[SentencePart, ...]]] = []
        for line in chapter.lines:
            deep = 1 if line.startswith(" ") else 0
            # Backticks of a path are part of it.
            whole = os.path.isabs(line)
            lines.append(
                (
                    deep,
                    (SentencePart(printable(line), code=True),) if whole else pieces(line.strip()),
                )
            )
        mood = SECTION_TONES[chapter.mood]
        yield PageSection(chapter.title, mood, MARKS[mood], tuple(lines))


def _steps(skill: Skill, story: SkillReport, *, editable: bool) -> Iterator[NextStep]:
    fixes = {problem.fix for problem in skill.problems}
    for line in story.advice:
        yield NextStep(line, _action_for(skill, line, editable=editable, mend=line in fixes))


def _action_for(skill: Skill, line: str, *, editable: bool, mend: bool) -> PageAction | None:
    """Where the page can carry out the advice. Commands are the same in every language."""
    codes = _CODE.findall(line)
    for code in codes:
        if code.startswith("satchel trust"):
            return PageAction("trust", say("Decide here"))
        if code.startswith("satchel show"):
            return PageAction("files", say("Read it here"))
        if code.startswith("satchel why") and "--goal" in code:
            return PageAction("question", say("Ask here"))
    if skill.state == "shadowed" and skill.winner:
        return PageAction("skill", say("See that one"), skill.winner)
    if {"pin", "budget"} & set(codes):
        return PageAction("catalogue", say("Try budgets"))
    return PageAction("edit", say("Edit it here")) if editable and (mend or not codes) else None


def _troubles(satchel: Satchel, skill: Skill) -> Iterator[FileTrouble]:
    """The problems that `satchel show` prints."""
    library = satchel.library
    try:
        document = library.seals.inspect(skill)
    except SatchelError as exc:
        words, fix = pieces(render(exc.message)), pieces(render(exc.hint))
        yield FileTrouble(exc.code, say("error"), "bad", 0, words, fix)
        return
    for one in document_problems(library, skill, document):
        if one.code not in FIELD_PROBLEMS:
            tone = _SEVERITIES[one.severity]
            words, fix = pieces(one.message), pieces(one.fix)
            yield FileTrouble(one.code, say(one.severity), tone, one.line, words, fix)


def _tool_skill(source: ToolSkill) -> ToolSkillShown:
    manifest = source.manifest
    return ToolSkillShown(
        tuple(
            ToolShown(
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


class FieldBar(NamedTuple):
    """The score of one field, beside that of the best skill ahead."""

    label: str
    own: float
    own_share: float
    """From 0 to 1, relative to the largest score."""
    theirs: float
    their_share: float


class Rival(NamedTuple):
    """A skill that is ranked higher."""

    name: str
    ref: str
    score: str
    by: str
    chosen: bool


class SelectionShown(NamedTuple):
    """The selection of a skill for one request."""

    goal: str
    name: str
    chosen: bool
    lines: tuple[str, ...]
    """Sentences about whether it would be selected."""
    rank: str
    of: int
    score: str
    judge: str
    reason: str
    bars: tuple[FieldBar, ...]
    rival: str
    """The skill whose scores are shown beside its own; empty when there is none."""
    lacks: tuple[str, ...]
    ahead: tuple[Rival, ...]
    steps: tuple[NextStep, ...]
    notes: tuple[str, ...]


def explain_request(satchel: Satchel, skill: Skill, goal: str) -> SelectionShown:
    """Return whether a skill would be selected for a request, and why. Nothing is recorded.

    Raises:
        InvalidInput: the request is empty or too long.
    """
    goal = goal.strip()
    if not goal:
        raise InvalidInput(say("There is no request"), say("Write what somebody would ask for"))
    if len(goal) > MAX_REQUEST_CHARS:
        raise InvalidInput(
            say("The request has more than {most} characters", most=MAX_REQUEST_CHARS),
            say("Write less"),
        )
    editable = bool(own_scope(satchel, skill))
    shown = show_selection(satchel.explain_selection(skill, goal), editable=editable)
    if shown.chosen and not shown.steps:
        step = NextStep(say("Nothing to fix: this request gets it"))
        return shown._replace(steps=(step,))
    return shown


def show_selection(standing: SelectionExplanation, *, editable: bool = False) -> SelectionShown:
    """Return the record of an explained selection.

    Args:
        standing: The explanation.
        editable: Whether the skill can be edited in the browser.
    """
    place = standing.place
    judge, reason = detector_and_reason(standing)
    missing = tuple(missing_words(standing)[:MAX_WORDS_SHOWN])
    match = place.match if place is not None and place.rank else None
    return SelectionShown(
        standing.goal,
        standing.skill.name,
        standing.chosen,
        tuple(verdict(standing)),
        ordinal(place.rank) if place is not None and place.rank else "",
        place.of if place is not None else 0,
        f"{match.score:.2f}" if match is not None else "",
        judge,
        reason,
        tuple(_bars(place)) if place is not None else (),
        place.ahead[0][0].name if place is not None and place.ahead and place.ahead[0][1] else "",
        missing,
        tuple(_ahead(standing, place)) if place is not None else (),
        tuple(_request_steps(standing, missing, editable=editable)),
        tuple(map(render, standing.answer.notes)),
    )


def _request_steps(
    standing: SelectionExplanation, missing: Sequence[str], *, editable: bool
) -> Iterator[NextStep]:
    words = [f"`{word}`" for word in missing]
    for line in next_steps(standing):
        fits = editable and words and all(word in line for word in words)
        yield NextStep(line, PageAction("edit", say("Edit it here")) if fits else None)


def _bars(place: RankExplanation) -> Iterator[FieldBar]:
    theirs: Mapping[str, float] = place.ahead[0][1] if place.ahead else {}
    whole = {**theirs, **place.fields}
    most = max((*place.fields.values(), *theirs.values()), default=0.0)
    for field in fields_shown(place):
        own, other = place.fields.get(field, 0.0), theirs.get(field, 0.0)
        yield FieldBar(label(field, whole), own, _share(own, most), other, _share(other, most))


def _share(value: float, most: float) -> float:
    return min(value / most, 1.0) if most > 0 and value > 0 else 0.0


def _ahead(standing: SelectionExplanation, place: RankExplanation) -> Iterator[Rival]:
    chosen = {match.skill.ref for match in standing.answer.matches}
    for match, fields in place.ahead:
        yield Rival(
            match.name,
            match.skill.ref,
            f"{match.score:.2f}",
            difference_text(match, fields, place.fields),
            match.skill.ref in chosen,
        )
