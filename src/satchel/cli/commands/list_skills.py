"""The table of the command `list`.

`main` and click both call `show_list`. Nothing heavy is imported here, to keep the start-up short.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import NamedTuple

from satchel.cli.console import STATES, Screen, count_skills, one_line, plural, write_json
from satchel.errors import LockBroken, SatchelError
from satchel.i18n import say
from satchel.library.locations import is_of_agents, source_words
from satchel.library.snapshot import find_broken
from satchel.skill.problems import PROBLEMS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from satchel.library import Library
    from satchel.library.lockfile import LockedSource
    from satchel.library.snapshot import BrokenSkill, ToolSnapshot
    from satchel.library.tool_skills import ToolSkill
    from satchel.satchel import Satchel
    from satchel.settings import Settings
    from satchel.skill.eval_receipt import EvalReceipt
    from satchel.skill.model import Skill
    from satchel.skill.problems import Problem

_MAX_SKILLS_VERIFIED = 500
"""Without `--all`, more skills are not compared with the lockfile."""


def show_list(
    satchel: Satchel, *, everything: bool = False, benefit: bool = False, as_json: bool = False
) -> int:
    """Print the skills on stdout, with `everything` also hidden ones, and a summary on stderr."""
    listing = _read_listing(satchel, everything=everything)
    if benefit:
        listing = listing._replace(benefits=_read_benefits(satchel, listing.shown))
    if as_json:
        write_json(
            [*_skills_to_dicts(listing), *(skill.to_dict() for skill in listing.broken_shown)]
        )
        return 0
    if listing.shown or listing.broken_shown:
        _print_table(Screen(sys.stdout), listing, _find_conflicting_names(satchel, listing.tools))
    sys.stdout.flush()
    screen = Screen(sys.stderr)
    screen.line(_summary(satchel.settings, listing))
    if satchel.settings.include:
        for pattern in satchel.library.unmatched():
            text = say("No skill matches `{name}` in `include`", name=one_line(pattern))
            screen.line(text, "yellow")
    return 0


class _SkillListing(NamedTuple):
    """The skills of a project, and what the list says about them."""

    offered: list[Skill]
    hidden: list[Skill]
    broken: list[BrokenSkill]
    everything: bool
    """Whether hidden and broken skills are shown too."""
    tools: ToolSnapshot
    problems: tuple[Problem, ...]
    """Problems of locations and tools; those of a skill are in its header."""
    modified: set[str]
    """Refs of skills that differ from the lockfile."""
    hub_names: dict[str, str]
    """Ref of a hub's skill -> its name and version."""
    revoked: dict[str, str]
    """Ref of a blocked skill that its hub revoked -> the reason."""
    benefits: dict[str, list[EvalReceipt]] | None = None
    """Ref of a skill -> the results of its evaluations; None when they are not shown."""

    @property
    def shown(self) -> list[Skill]:
        """Skills of the table."""
        return [*self.offered, *self.hidden] if self.everything else self.offered

    @property
    def broken_shown(self) -> list[BrokenSkill]:
        """Broken skills of the table."""
        return self.broken if self.everything else []


def _read_listing(satchel: Satchel, *, everything: bool) -> _SkillListing:
    snapshot, tools = satchel.library.snapshot(), satchel.library.tools()
    tool_only_skills = [tool_skill.skill for tool_skill in tools.without_document()]
    active = [skill for skill in tool_only_skills if skill.state == "active"]
    offered = _tools_before_builtin(snapshot.skills, active)
    problems = (*snapshot.problems, *tools.problems)
    verified = offered if everything or len(offered) <= _MAX_SKILLS_VERIFIED else []
    hub_names = ((skill.ref, hub_name(satchel, skill)) for skill in verified)
    return _SkillListing(
        offered=offered,
        hidden=[
            *snapshot.hidden,
            *(skill for skill in tool_only_skills if skill.state != "active"),
        ],
        broken=find_broken(problems, satchel.library.locations),
        everything=everything,
        tools=tools,
        problems=problems,
        modified={skill.ref for skill in satchel.library.modified(verified)},
        hub_names={ref: name for ref, name in hub_names if name},
        revoked={
            skill.ref: reason
            for skill in snapshot.hidden
            if skill.state == "blocked" and (reason := satchel.library.integrity.revocation(skill))
        },
    )


def _read_benefits(satchel: Satchel, skills: Sequence[Skill]) -> dict[str, list[EvalReceipt]]:
    """Return the results of evaluations by the ref of the skill."""
    from satchel.skill.eval_file import has_cases
    from satchel.skill.eval_receipt import read_receipts

    benefits: dict[str, list[EvalReceipt]] = {}
    for skill in skills:
        if skill.state != "active" or skill.origin.remote or not has_cases(skill.base_dir):
            continue
        with suppress(SatchelError):  # reported by other commands
            files = satchel.library.integrity.check(skill, clean=False).tree.files
            benefits[skill.ref] = read_receipts(skill.base_dir, files)
    return benefits


def _tools_before_builtin(skills: Sequence[Skill], tool_skills: list[Skill]) -> list[Skill]:
    """Put tool skills before built-in skills, which come last."""
    if not tool_skills:
        return list(skills)
    builtin = [skill for skill in skills if skill.source == "builtin"]
    return [*(skill for skill in skills if skill.source != "builtin"), *tool_skills, *builtin]


def _tool_skills_by_folder(tools: ToolSnapshot) -> dict[tuple[str, str], ToolSkill]:
    tool_skills = (*tools.skills, *tools.hidden)
    return {(entry.skill.origin.root, entry.skill.head.id): entry for entry in tool_skills}


def _skills_to_dicts(listing: _SkillListing) -> list[dict[str, Any]]:
    """Return the skills as JSON."""
    records = [skill.to_dict() for skill in listing.shown]
    for record, skill in zip(records, listing.shown, strict=True):
        if listing.benefits is not None:
            receipts = listing.benefits.get(skill.ref, [])
            record["evaluations"] = [receipt.to_dict() for receipt in receipts]
    tool_skills = _tool_skills_by_folder(listing.tools)
    if not (tool_skills or listing.modified or listing.hub_names or listing.revoked):
        return records
    for record, skill in zip(records, listing.shown, strict=True):
        if skill.ref in listing.modified:
            record["modified"] = True
        if skill.ref in listing.revoked:
            record["revoked"] = listing.revoked[skill.ref]
        if skill.ref in listing.hub_names:
            record["hub"] = listing.hub_names[skill.ref]
        tool_skill = tool_skills.get((skill.origin.root, skill.head.id))
        record.update(tool_skill.to_dict() if tool_skill is not None else {})
    return records


def _find_conflicting_names(satchel: Satchel, tools: ToolSnapshot) -> frozenset[str]:
    """Return the names that several tools have."""
    if not tools.tools:
        return frozenset()
    from satchel.diagnosis.doctor import tool_name_conflicts

    conflicts = tool_name_conflicts(satchel.settings, tools)
    return frozenset(str(conflict.values["name"]) for conflict in conflicts)


def hub_source(library: Library, skill: Skill) -> LockedSource | None:
    """Return the source of a skill that was installed from a hub."""
    try:
        source = library.integrity.locked_source(skill)
    except LockBroken:  # reported as a problem
        return None
    return source if source is not None and source.kind == "hub" else None


def hub_name(satchel: Satchel, skill: Skill) -> str:
    """Return the name and version of a hub's skill, `acme/pdf@1.2.0`; empty for others."""
    source = hub_source(satchel.library, skill)
    if source is None:
        return ""
    publisher_and_name = "/".join(source.url.split("/")[-2:])
    return f"{publisher_and_name}@{source.commit}"


class _TableRow(NamedTuple):
    """One row of the table; cells without a style are plain."""

    cells: list[str]
    styles: list[str]


def _print_table(screen: Screen, listing: _SkillListing, conflicting_names: frozenset[str]) -> None:
    tool_skills = _tool_skills_by_folder(listing.tools)
    rows: list[_TableRow] = []
    for skill in listing.shown:
        tool_skill = tool_skills.get((skill.origin.root, skill.head.id))
        tools = tool_skill.tools if tool_skill is not None else ()
        has_conflict = not conflicting_names.isdisjoint(tools)
        rows.append(_skill_row(listing, skill, tools, has_conflict=has_conflict))
    rows += map(_broken_row, listing.broken_shown)
    titles = [
        "",
        say("name"),
        say("id"),
        say("state"),
        say("source"),
        say("tools"),
        say("description") if listing.benefits is None else say("evaluations"),
    ]
    screen.table(titles, [row.cells for row in rows], [row.styles for row in rows])


def _skill_row(
    listing: _SkillListing, skill: Skill, tools: Sequence[str], *, has_conflict: bool
) -> _TableRow:
    state = "modified" if skill.ref in listing.modified else skill.shown_state
    mark, colour = STATES[state]
    if state == "active" and (has_conflict or _count_serious(skill.head.problems)):
        mark, colour = "▲", "yellow"
    description = skill.description
    if listing.benefits is not None:
        receipts = listing.benefits.get(skill.ref, [])
        description = "; ".join(map(str, receipts))
    if skill.ref in listing.revoked:
        description = say("revoked by its hub: {reason}", reason=listing.revoked[skill.ref])
    if skill.shadowed_by:
        description = say("hidden by {ref}", ref=skill.shadowed_by)
    cells = [
        mark,
        one_line(skill.name),
        one_line(skill.id) if skill.id != skill.name else "",
        _state_label(state) if listing.everything else "",
        one_line(listing.hub_names.get(skill.ref) or _source_label(skill)),
        " ".join(tools),
        one_line(description),
    ]
    dim = "dim" if skill.state in ("shadowed", "excluded") else ""
    return _TableRow(cells, [colour, dim or "bold", "dim", colour, "dim", dim or "cyan", dim])


def _broken_row(skill: BrokenSkill) -> _TableRow:
    mark, colour = STATES["broken"]
    cells = [
        mark,
        one_line(skill.name),
        "",
        say("broken"),
        source_words(skill.source),
        "",
        one_line(skill.problem.message),
    ]
    return _TableRow(cells, [colour, "bold", "dim", colour, "dim"])


def _source_label(skill: Skill) -> str:
    label = skill.origin.label
    if skill.origin.version:
        return f"{label} {skill.origin.version}"
    return label if skill.origin.remote or is_of_agents(label) else source_words(skill.source)


def _state_label(state: str) -> str:
    return say("user only") if state == "withheld" else say(state)


def _count_serious(problems: Iterable[Problem]) -> int:
    """Count errors and warnings."""
    return sum(
        PROBLEMS[problem.code].severity != "note" and problem.code != "needs-setup"  # a state
        for problem in problems
    )


def _count_problems(listing: _SkillListing) -> int:
    warnings = sum(PROBLEMS[problem.code].severity == "warning" for problem in listing.problems)
    skills = (*listing.offered, *listing.hidden)
    return warnings + sum(
        _count_serious(skill.head.problems) for skill in skills if skill.head.problems
    )


class _SummaryCount(NamedTuple):
    """A number of the summary, and the command that shows more; 0 is not printed."""

    number: int
    noun: str
    command: str = ""

    def __str__(self) -> str:
        text = plural(self.number, self.noun, self.noun)
        return f"{text} (`{self.command}`)" if self.command else text


def _summary(settings: Settings, listing: _SkillListing) -> str:
    counts = [count for count in _summary_counts(settings, listing) if count.number]
    text = say(", ").join([count_skills(len(listing.offered)), *map(str, counts)])
    if not (listing.offered or listing.hidden or listing.broken):
        text += say(". ") + say("Run `{command}`", command="satchel new")
    return text


def _summary_counts(settings: Settings, listing: _SkillListing) -> list[_SummaryCount]:
    states = [skill.state for skill in listing.hidden]
    untrusted = states.count("untrusted")
    revoked = len(listing.revoked)
    blocked = states.count("blocked") - revoked
    unverified = states.count("unverified")
    needs_setup = states.count("needs setup")
    withheld = sum(skill.shown_state == "withheld" for skill in listing.offered)
    otherwise_hidden = len(states) - untrusted - blocked - revoked - unverified - needs_setup
    problems = _count_problems(listing)
    trust_count = _SummaryCount(untrusted, say("untrusted"), "satchel trust")
    if settings.trust == "locked" and not settings.asks:
        trust_count = _SummaryCount(untrusted, say("not pinned"), "satchel verify")
    setup_noun = say("needs setup") if needs_setup == 1 else say("need setup")
    problem_noun = say("problem") if problems == 1 else say("problems")
    return [
        _SummaryCount(withheld, say("user only")),
        _SummaryCount(
            otherwise_hidden, say("hidden"), "" if listing.everything else "satchel list --all"
        ),
        trust_count,
        _SummaryCount(needs_setup, setup_noun, "satchel doctor"),
        _SummaryCount(blocked, say("blocked"), "satchel scan --all"),
        _SummaryCount(revoked, say("revoked"), "satchel verify"),
        _SummaryCount(unverified, say("unverified"), "satchel doctor"),
        _SummaryCount(len(listing.modified), say("modified"), "satchel verify"),
        _SummaryCount(len(listing.broken), say("broken"), "" if problems else "satchel doctor"),
        _SummaryCount(problems, problem_noun, "satchel doctor"),
    ]
