"""Records of one skill's page: its status, its agents, and its selection for a request."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, NamedTuple

from satchel.diagnosis.doctor import document_problems
from satchel.diagnosis.file_problems import unique_problems
from satchel.diagnosis.selection import (
    MAX_WORDS_SHOWN,
    detector_and_reason,
    difference_text,
    missing_words,
    next_steps,
    verdict_sentences,
)
from satchel.errors import InvalidInput, SatchelError
from satchel.i18n import join_names, render, say
from satchel.presentation.files import list_files
from satchel.presentation.findings import (
    short_path,
)
from satchel.presentation.scripts import show_scripts
from satchel.presentation.skill_lookup import editable_scope, find_editable_skill
from satchel.presentation.skills import broken_row, day_of, row_of, source_label, state_words
from satchel.presentation.trust import modified_files, show_trust
from satchel.session.permissions import tool_grants
from satchel.skill.document import MANIFEST
from satchel.tools.framing import encodable, printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from satchel.detect import RankExplanation
    from satchel.diagnosis.selection import SelectionExplanation
    from satchel.library.snapshot import BrokenSkill
    from satchel.library.tool_skills import ToolSkill
    from satchel.presentation.files import FileTreeShown
    from satchel.presentation.scripts import ScriptsShown
    from satchel.presentation.skills import SkillRow
    from satchel.presentation.trust import TrustShown
    from satchel.satchel import Satchel
    from satchel.session.permissions import ToolGrants
    from satchel.skill.document import SkillDocument
    from satchel.skill.model import Skill
    from satchel.skill.problems import Problem
    from satchel.store.agents import AgentVisibility, SkillAgent

MAX_REQUEST_CHARS = 4_000
_MAX_PROBLEMS_SHOWN = 30
_SEVERITY_TONES = {"error": "bad", "warning": "warn", "note": "info"}
"""Severity -> tone, worst first."""
_CODE_SPAN = re.compile(r"`([^`]+)`")
_WITHHELD_STATES = ("untrusted", "blocked", "unverified", "needs setup")


class AgentRow(NamedTuple):
    """One detected agent, and how it sees a skill."""

    name: str
    tone: str
    symbol: str
    label: str
    location: str
    note: str
    command: str
    """The command that links the skill; empty when it cannot be linked."""


def agents_of(satchel: Satchel, skill: Skill) -> tuple[AgentRow, ...]:
    """Return the detected agents, and how each sees a skill."""
    from satchel.store.agents import all_agents, user_home, visibility_of

    project, home = satchel.settings.project, user_home()
    return tuple(
        _agent_row(agent, visibility_of(agent, project, home, skill), skill)
        for agent in all_agents()
        if agent.is_here(project, home)
    )


def _agent_row(agent: SkillAgent, visibility: AgentVisibility, skill: Skill) -> AgentRow:
    can_read = visibility.kind in ("itself", "link")
    tone, symbol = ("good", "●") if can_read else ("plain", "○")
    note = command = ""
    label = {
        "itself": say("reads this folder"),
        "link": say("linked"),
        "other": say("has another skill of this name"),
        "": say("not linked"),
    }[visibility.kind]
    is_unsafe = can_read and skill.state in _WITHHELD_STATES
    if is_unsafe:
        note = say("Reads it although it is not offered here")
    if visibility.kind == "other" or is_unsafe:
        tone, symbol = "warn", "▲"
    if not visibility.kind and skill.state == "active" and not skill.origin.remote:
        command = f"satchel link {printable(skill.reference)} --agent {agent.id}"
    return AgentRow(
        name=agent.name,
        tone=tone,
        symbol=symbol,
        label=label,
        location=printable(visibility.place) or agent.project[0],
        note=note,
        command=command,
    )


class SentencePart(NamedTuple):
    """A part of a sentence."""

    text: str
    is_code: bool = False
    is_command: bool = False


class PageFact(NamedTuple):
    """A labelled value of a skill."""

    label: str
    value: str
    is_code: bool = False
    link: str = ""
    """The ref of another skill."""


class PageProblem(NamedTuple):
    """A problem of its files."""

    code: str
    severity: str
    tone: str
    line: int
    message: tuple[SentencePart, ...]
    fix: tuple[SentencePart, ...]


class SkillPage(NamedTuple):
    """One skill's page, or that of a broken file."""

    row: SkillRow
    state: tuple[str, str, str]
    """Label, explanation and tone of its state."""
    description: str
    scope: str
    """The scope in which it can be changed; empty when it cannot."""
    is_locked: bool
    """It was installed from a source, so it can be updated."""
    modified: tuple[str, ...]
    """Its files that differ from the lockfile."""
    facts: tuple[PageFact, ...]
    problems: tuple[PageProblem, ...]
    hidden_problems_count: int
    tools: ToolSkill | None
    files: FileTreeShown
    main_file: str
    """The path of its own file; empty when it cannot be part of a URL."""
    trust: TrustShown | None
    scripts: ScriptsShown | None


def page_of(satchel: Satchel, skill: Skill) -> SkillPage:
    """Return the page of one skill."""
    row = row_of(satchel, skill)  # refreshes a small library
    source = satchel.library.tools().of(skill)
    scope = editable_scope(satchel, skill)
    is_locked = bool(scope) and _is_locked(satchel, skill)
    modified = modified_files(satchel, skill)
    document = _read_document(skill)
    problems = list(_find_problems(satchel, skill, document))
    project = satchel.settings.project
    fields = document.fields if document is not None else {}
    tools = tool_grants(satchel.library, skill, fields)
    facts = _list_facts(
        skill, row, project, tools=tools, is_locked=is_locked, is_modified=bool(modified)
    )
    return SkillPage(
        row=row,
        state=state_words(row.state),
        description=printable(" ".join(skill.description.split())),
        scope=scope,
        is_locked=is_locked,
        modified=modified,
        facts=tuple(facts),
        problems=tuple(problems[:_MAX_PROBLEMS_SHOWN]),
        hidden_problems_count=max(0, len(problems) - _MAX_PROBLEMS_SHOWN),
        tools=source,
        files=list_files(satchel, skill.ref),
        main_file=skill.head.file if encodable(skill.head.file) == skill.head.file else "",
        trust=show_trust(satchel, skill, row.state),
        scripts=show_scripts(satchel, skill),
    )


def broken_page(satchel: Satchel, item: BrokenSkill) -> SkillPage:
    """Return the page of a file that is not a valid skill."""
    path = item.problem.path
    files = list_files(satchel, path)
    location = printable(short_path(path, satchel.settings.project))
    return SkillPage(
        row=broken_row(item),
        state=state_words("broken"),
        description="",
        scope=editable_scope(satchel, find_editable_skill(satchel, path)),
        is_locked=False,
        modified=(),
        facts=(PageFact(say("Location"), location, is_code=True),),
        problems=(_show_problem(item.problem),),
        hidden_problems_count=0,
        tools=None,
        files=files,
        main_file=next((entry.path for entry in files.entries if entry.kind != "odd"), ""),
        trust=None,
        scripts=None,
    )


def _is_locked(satchel: Satchel, skill: Skill) -> bool:
    try:
        return skill.head.id in satchel.store_of(skill).lock()
    except SatchelError:  # a damaged lockfile is among the problems
        return False


def _read_document(skill: Skill) -> SkillDocument | None:
    """Return its text; None for a skill of a server, or one that cannot be read."""
    try:
        return skill.read() if not skill.origin.remote else None
    except SatchelError:  # reported where the file is shown
        return None


def _list_facts(
    skill: Skill,
    row: SkillRow,
    project: str,
    *,
    tools: ToolGrants,
    is_locked: bool,
    is_modified: bool,
) -> Iterator[PageFact]:
    yield PageFact(say("Location"), printable(short_path(skill.base_dir, project)), is_code=True)
    yield PageFact(say("Source"), source_label(row.source))
    if row.shadowed_by:
        yield PageFact(say("Shadowed by"), row.shadowed_by, is_code=True, link=skill.shadowed_by)
    if is_locked:
        yield PageFact(say("Lock status"), say("Modified") if is_modified else say("Locked"))
    yield PageFact(say("Last used"), row.last_used or say("never (in recorded history)"))
    if not skill.origin.remote and (changed := day_of(skill.mtime)):
        yield PageFact(say("Changed"), changed)
    if skill.tags:
        yield PageFact(say("Tags"), join_names(map(printable, skill.tags)))
    if tools.requested:
        yield PageFact(say("Requested tools"), printable(" ".join(tools.requested)), is_code=True)
    if tools.requested or tools.granted:
        granted = printable(" ".join(tools.granted))
        yield PageFact(say("Granted tools"), granted or say("none"), is_code=bool(granted))


def split_sentence(sentence: str) -> tuple[SentencePart, ...]:
    """Split a sentence at its backticks."""
    parts: list[SentencePart] = []
    for index, text in enumerate(_CODE_SPAN.split(sentence)):
        if text:
            is_code = index % 2 == 1
            is_command = is_code and text.startswith("satchel ")
            lines = "\n".join(map(printable, text.split("\n")))
            parts.append(SentencePart(lines, is_code, is_command))
    return tuple(parts)


def _find_problems(
    satchel: Satchel, skill: Skill, document: SkillDocument | None
) -> Iterator[PageProblem]:
    """Yield the problems, errors first.

    Those that the table of fields shows and modifications are left out.
    """
    library = satchel.library
    manifest_path = os.path.join(skill.base_dir, MANIFEST)
    problems = [problem for problem in library.tools().problems if problem.path == manifest_path]
    problems += document_problems(library, skill, document)
    listed = [problem for problem in unique_problems(problems) if problem.code != "modified"]
    listed.sort(key=lambda problem: tuple(_SEVERITY_TONES).index(problem.severity))
    return map(_show_problem, listed)


def _show_problem(problem: Problem) -> PageProblem:
    return PageProblem(
        code=problem.code,
        severity=say(problem.severity),
        tone=_SEVERITY_TONES[problem.severity],
        line=problem.line,
        message=split_sentence(problem.message),
        fix=split_sentence(problem.fix),
    )


# --- for one request ----------------------------------------------------------------------


class Rival(NamedTuple):
    """A skill that is ranked higher."""

    name: str
    ref: str
    score: str
    by: str
    selected: bool


class SelectionShown(NamedTuple):
    """The selection of a skill for one request."""

    goal: str
    name: str
    selected: bool
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


def show_selection(explanation: SelectionExplanation) -> SelectionShown:
    """Return the record of an explained selection."""
    ranking = explanation.ranking
    judge, reason = detector_and_reason(explanation)
    missing = tuple(missing_words(explanation)[:MAX_WORDS_SHOWN])
    match = ranking.match if ranking is not None and ranking.rank else None
    return SelectionShown(
        goal=explanation.goal,
        name=explanation.skill.name,
        selected=explanation.is_selected,
        lines=tuple(verdict_sentences(explanation)),
        score=f"{match.score:.2f}" if match is not None else "",
        judge=judge,
        reason=reason,
        lacks=missing,
        ahead=tuple(_list_rivals(explanation, ranking)) if ranking is not None else (),
        steps=tuple(next_steps(explanation)),
        notes=tuple(map(render, explanation.detection.notes)),
    )


def _list_rivals(explanation: SelectionExplanation, ranking: RankExplanation) -> Iterator[Rival]:
    selected_refs = {match.skill.ref for match in explanation.detection.matches}
    for match, fields in ranking.ahead:
        yield Rival(
            match.name,
            match.skill.ref,
            f"{match.score:.2f}",
            difference_text(match, fields, ranking.fields),
            match.skill.ref in selected_refs,
        )
