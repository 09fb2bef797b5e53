"""Records of one skill's page: its status, its agents, and its selection for a request."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, NamedTuple

from satchel.doctor import content_problem
from satchel.errors import InvalidInput, SatchelError
from satchel.explain_selection import (
    MAX_WORDS_SHOWN,
    detector_and_reason,
    difference_text,
    missing_words,
    next_steps,
    verdict,
)
from satchel.i18n import join_names, render, say
from satchel.presentation.files import list_files
from satchel.presentation.findings import (
    FIELD_PROBLEMS,
    document_problems,
    shown_path,
    unique_problems,
)
from satchel.presentation.skills import (
    broken_row,
    day_of,
    find_file,
    own_scope,
    row_of,
    source_label,
    state_words,
)
from satchel.presentation.trust import modified_files, show_trust
from satchel.session.permissions import tool_grants
from satchel.skill.document import MANIFEST
from satchel.tools.framing import encodable, printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from satchel.detect import RankExplanation
    from satchel.explain_selection import SelectionExplanation
    from satchel.library.snapshot import BrokenSkill
    from satchel.library.tool_skills import ToolSkill
    from satchel.presentation.files import FileTreeShown
    from satchel.presentation.skills import SkillRow
    from satchel.presentation.trust import TrustShown
    from satchel.satchel import Satchel
    from satchel.session.permissions import ToolGrants
    from satchel.skill.document import SkillDocument
    from satchel.skill.model import Skill
    from satchel.skill.problems import Problem
    from satchel.store.agents import AgentVisibility, SkillAgent

_WITHHELD_STATES = ("untrusted", "blocked", "unverified")


class AgentRow(NamedTuple):
    """One detected agent, and how it sees a skill."""

    name: str
    mood: str
    mark: str
    words: str
    place: str
    note: str
    command: str
    """The command that links the skill; empty when it cannot be linked."""


def agents_of(satchel: Satchel, skill: Skill) -> tuple[AgentRow, ...]:
    """Return the detected agents, and how each sees a skill."""
    from satchel.store.agents import all_agents, user_home, visibility_of

    project, home = satchel.settings.project, user_home()
    return tuple(
        _row(agent, visibility_of(agent, project, home, skill), skill)
        for agent in all_agents()
        if agent.is_here(project, home)
    )


def _row(agent: SkillAgent, sight: AgentVisibility, skill: Skill) -> AgentRow:
    has = sight.kind in ("itself", "link")
    mood, mark = ("good", "●") if has else ("plain", "○")
    note = command = ""
    words = {
        "itself": say("reads this folder"),
        "link": say("linked"),
        "other": say("has another skill of this name"),
        "": say("not linked"),
    }[sight.kind]
    unsafe = has and skill.state in _WITHHELD_STATES
    if unsafe:
        note = say("Reads it although it is not offered here")
    if sight.kind == "other" or unsafe:
        mood, mark = "warn", "▲"
    if not sight.kind and skill.state == "active" and not skill.origin.remote:
        command = f"satchel link {printable(skill.reference)} --agent {agent.id}"
    place = printable(sight.place) or agent.project[0]
    return AgentRow(agent.name, mood, mark, words, place, note, command)


MAX_REQUEST_CHARS = 4_000
_SEVERITIES = {"error": "bad", "warning": "warn", "note": "info"}
_MAX_PROBLEMS_SHOWN = 30
_CODE = re.compile(r"`([^`]+)`")


class SentencePart(NamedTuple):
    """A part of a sentence."""

    text: str
    code: bool = False
    command: bool = False


class PageFact(NamedTuple):
    """A labelled value of a skill."""

    label: str
    words: str
    code: bool = False
    link: str = ""
    """The ref of another skill."""


class PageProblem(NamedTuple):
    """A problem of its files."""

    code: str
    severity: str
    mood: str
    line: int
    words: tuple[SentencePart, ...]
    fix: tuple[SentencePart, ...]


class SkillPage(NamedTuple):
    """One skill's page, or that of a broken file."""

    row: SkillRow
    state: tuple[str, str, str]
    """Label, explanation and tone of its state."""
    description: str
    scope: str
    """The scope in which it can be changed; empty when it cannot."""
    locked: bool
    """It was installed from a source, so it can be updated."""
    modified: tuple[str, ...]
    """Its files that differ from the lockfile."""
    facts: tuple[PageFact, ...]
    problems: tuple[PageProblem, ...]
    more_problems: int
    tools: ToolSkill | None
    files: FileTreeShown
    own: str
    """The path of its own file; empty when it cannot be part of a URL."""
    trust: TrustShown | None


def page_of(satchel: Satchel, skill: Skill) -> SkillPage:
    """Return the page of one skill."""
    row = row_of(satchel, skill)  # refreshes a small library
    source = satchel.library.tools().of(skill)
    scope = own_scope(satchel, skill)
    locked = bool(scope) and _is_locked(satchel, skill)
    modified = modified_files(satchel, skill)
    document = _document(skill)
    problems = list(_problems(satchel, skill, document))
    project = satchel.settings.project
    fields = document.fields if document is not None else {}
    tools = tool_grants(satchel.library, skill, fields)
    facts = _facts(skill, row, project, tools=tools, locked=locked, modified=bool(modified))
    return SkillPage(
        row, state_words(row.state), printable(" ".join(skill.description.split())), scope, locked,
        modified, tuple(facts), tuple(problems[:_MAX_PROBLEMS_SHOWN]),
        max(0, len(problems) - _MAX_PROBLEMS_SHOWN),
        source, list_files(satchel, skill.ref),
        skill.head.file if encodable(skill.head.file) == skill.head.file else "",
        show_trust(satchel, skill, row.state),
    )  # fmt: skip


def broken_page(satchel: Satchel, item: BrokenSkill) -> SkillPage:
    """Return the page of a file that is not a valid skill."""
    path = item.problem.path
    files = list_files(satchel, path)
    place = printable(shown_path(path, satchel.settings.project))
    return SkillPage(
        broken_row(item), state_words("broken"), "", own_scope(satchel, find_file(satchel, path)),
        locked=False, modified=(), facts=(PageFact(say("Location"), place, code=True),),
        problems=(_problem(item.problem),), more_problems=0, tools=None, files=files,
        own=next((one.path for one in files.entries if one.kind != "odd"), ""), trust=None,
    )  # fmt: skip


def _is_locked(satchel: Satchel, skill: Skill) -> bool:
    try:
        return skill.head.id in satchel.store_of(skill).lock()
    except SatchelError:  # a damaged lockfile is among the problems
        return False


def _document(skill: Skill) -> SkillDocument | None:
    """Its text; None for a skill of a server, or one that cannot be read."""
    try:
        return skill.read() if not skill.origin.remote else None
    except SatchelError:  # reported where the file is shown
        return None


def _facts(
    skill: Skill,
    row: SkillRow,
    project: str,
    *,
    tools: ToolGrants,
    locked: bool,
    modified: bool,
) -> Iterator[PageFact]:
    yield PageFact(say("Location"), printable(shown_path(skill.base_dir, project)), code=True)
    yield PageFact(say("Source"), source_label(row.source))
    if row.by:
        yield PageFact(say("Shadowed by"), row.by, code=True, link=skill.shadowed_by)
    if locked:
        yield PageFact(say("Lock status"), say("Modified") if modified else say("Locked"))
    yield PageFact(say("Last used"), row.used or say("never (in recorded history)"))
    if not skill.origin.remote and (changed := day_of(skill.mtime)):
        yield PageFact(say("Changed"), changed)
    if skill.tags:
        yield PageFact(say("Tags"), join_names(map(printable, skill.tags)))
    if tools.requested:
        yield PageFact(say("Requested tools"), printable(" ".join(tools.requested)), code=True)
    if tools.requested or tools.granted:
        granted = printable(" ".join(tools.granted))
        yield PageFact(say("Granted tools"), granted or say("none"), code=bool(granted))


def pieces(text: str) -> tuple[SentencePart, ...]:
    """Split a sentence at its backticks."""
    found: list[SentencePart] = []
    for at, part in enumerate(_CODE.split(text)):
        if part:
            code = at % 2 == 1
            found.append(SentencePart(printable(part), code, code and part.startswith("satchel ")))
    return tuple(found)


def _problems(
    satchel: Satchel, skill: Skill, document: SkillDocument | None
) -> Iterator[PageProblem]:
    """Errors first; without those that the table of fields shows, and without modifications."""
    library = satchel.library
    own = os.path.join(skill.base_dir, MANIFEST)
    found = [one for one in library.tools().problems if one.path == own]
    if document is not None:
        found += document_problems(library, skill, document)
    else:
        changed = content_problem(library, skill)
        found += [*([changed] if changed is not None else []), *skill.problems]
    kept = [one for one in unique_problems(found) if one.code not in (*FIELD_PROBLEMS, "modified")]
    kept.sort(key=lambda one: tuple(_SEVERITIES).index(one.severity))
    return map(_problem, kept)


def _problem(one: Problem) -> PageProblem:
    tone, words, fix = _SEVERITIES[one.severity], pieces(one.message), pieces(one.fix)
    return PageProblem(one.code, say(one.severity), tone, one.line, words, fix)


# --- for one request ----------------------------------------------------------------------


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
    score: str
    judge: str
    reason: str
    lacks: tuple[str, ...]
    ahead: tuple[Rival, ...]
    steps: tuple[str, ...]
    notes: tuple[str, ...]


def explain_request(satchel: Satchel, skill: Skill, goal: str) -> SelectionShown:
    """Return whether a skill would be selected for a request, and why. Nothing is recorded.

    Raises:
        InvalidInput: the request is empty or too long.
    """
    goal = goal.strip()
    if not goal:
        raise InvalidInput(say("{field} is missing", field=say("Request")), say("Try again"))
    if len(goal) > MAX_REQUEST_CHARS:
        raise InvalidInput(
            say(
                "{field} has more than {most} characters",
                field=say("Request"),
                most=MAX_REQUEST_CHARS,
            ),
            say("Use fewer words"),
        )
    return show_selection(satchel.explain_selection(skill, goal))


def show_selection(standing: SelectionExplanation) -> SelectionShown:
    """Return the record of an explained selection."""
    place = standing.place
    judge, reason = detector_and_reason(standing)
    missing = tuple(missing_words(standing)[:MAX_WORDS_SHOWN])
    match = place.match if place is not None and place.rank else None
    return SelectionShown(
        standing.goal,
        standing.skill.name,
        standing.chosen,
        tuple(verdict(standing)),
        f"{match.score:.2f}" if match is not None else "",
        judge,
        reason,
        missing,
        tuple(_ahead(standing, place)) if place is not None else (),
        tuple(next_steps(standing)),
        tuple(map(render, standing.answer.notes)),
    )


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
