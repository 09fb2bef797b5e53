"""The command `show`: a skill's fields, problems, files and text."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, NamedTuple

from satchel.cli.console import (
    SEVERITIES,
    STATES,
    clean,
    cut,
    one_line,
    pad,
    width_of,
    write_json,
)
from satchel.cli.context import command, skill_argument
from satchel.cli.options import flag_option
from satchel.i18n import listed, say
from satchel.presentation.wording import counted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from satchel.cli.console import Screen
    from satchel.cli.context import CliContext
    from satchel.library import Library
    from satchel.library.tool_scanner import ToolSkill
    from satchel.skill.document import SkillDocument
    from satchel.skill.model import Skill
    from satchel.skill.problems import Problem


def count_problems(problems: Iterable[Problem]) -> dict[str, int]:
    """Count problems by severity."""
    counts = {"errors": 0, "warnings": 0, "notes": 0}
    for problem in problems:
        counts[problem.severity + "s"] += 1
    return counts


def checked(files: int, counts: dict[str, int]) -> str:
    """The last line of a report."""
    words = counted(**counts) or say("no problems")
    if files == 1:
        return say("1 file checked: {words}", words=words)
    return say("{count} files checked: {words}", count=files, words=words)


_MAX_FILES_LISTED = 200
_SHOWN_WITH_FIELDS = frozenset(("inert-field", "unknown-field"))
"""Problems that the table of fields shows already."""


class SkillFileRow(NamedTuple):
    """One file of a skill."""

    path: str
    size: int


@command(
    say("Show one skill: where it is, its fields, its problems, its files and its text.")
    + "\n\n"
    + say("Untrusted skills are shown too: this is how to read one before trusting it."),
    "satchel show hello-skill",
    "satchel show hello-skill --body",
    "satchel show hello-skill --json",
)
@skill_argument()
@flag_option("--body", say("Print the instructions and nothing else."))
def show(context: CliContext, name: str, body: bool, as_json: bool) -> int:
    from satchel.doctor import content_problem
    from satchel.skill.validate import check_document

    found = context.find(name)
    skill = found[0]
    library = context.satchel.library
    document = library.seals.inspect(skill)
    if body and not as_json:
        context.out.data(document.body.lstrip("\n"))
        return 0
    source = library.tools().of(skill)
    if skill.is_tool:
        problems = list(document.problems)
    else:
        problems = [problem.at(skill.path) for problem in check_document(document)]
    changed = content_problem(library, skill)
    if changed is not None:
        problems.insert(0, changed)
    files, more = _files_of(skill, library)
    supply = library.supply_of(skill)
    mark = supply.digest(skill) if supply is not None else ""
    if as_json:
        write_json({
            **skill.to_dict(),
            **(source.to_dict() if source is not None else {}),
            **({"mark": mark} if mark else {}),
            "problems": [problem.to_dict() for problem in problems],
            "fields": list(_fields(document)),
            "files": [file._asdict() for file in files],
            "files_not_listed": more,
            "body": document.body,
            "others": [other.ref for other in found[1:]],
        })  # fmt: skip
        return 0
    out = context.out
    _show_header(out, skill, mark, changed.code if changed is not None else "")
    if not skill.is_tool:
        _show_fields(out, document)
    if source is not None:
        _show_tools(out, source)
    problems = [problem for problem in problems if problem.code not in _SHOWN_WITH_FIELDS]
    if problems:
        out.title(say("Problems"))
        show_problems(out, problems, "  ")
    _show_files(out, files, more)
    if not skill.is_tool:
        out.title(say("Instructions"))
        out.write(clean(document.body).strip("\n") + "\n")
    if len(found) > 1:
        refs = listed(f"`{one_line(other.ref)}`" for other in found[1:])
        context.err.line(say("Others of that name: {refs}", refs=refs))
    return 0


def _show_header(out: Screen, skill: Skill, server_mark: str, problem: str) -> None:
    name = problem if problem in STATES else skill.state
    mark, colour = STATES[name]
    state = f"{mark} {say(name)}"
    name = out.paint(one_line(skill.name), "bold")
    out.write(f"{name}  {out.paint(state, colour)}  {out.paint(skill.source, 'dim')}\n")
    if skill.winner:
        out.line(say("hidden by {ref}, which goes before it", ref=one_line(skill.winner)), "dim")
    if skill.origin.remote:
        out.line(say("comes from a server: {origin}", origin=skill.origin.remote), "dim")
        out.line(say("mark: {mark}", mark=server_mark.removeprefix("sha256:")[:12]), "dim")
    out.line(one_line(skill.path), "dim")
    out.line()
    out.line(one_line(skill.description))


def _fields(document: SkillDocument) -> Iterable[dict[str, Any]]:
    from satchel.skill.fields import FIELDS, correct_spelling

    for key, value in document.fields.items():
        field = FIELDS.get(key) or FIELDS.get(correct_spelling(key) or "")
        yield {
            "name": key,
            "value": value,
            "status": field.status if field else "unknown",
            "meaning": say(field.meaning) if field else say("no known agent reads it"),
            "line": document.lines.get(key),
        }


def _show_fields(out: Screen, document: SkillDocument) -> None:
    colours = {"honoured": "green", "inert": "dim", "unknown": "yellow"}
    rows: list[list[str]] = []
    styles: list[list[str]] = []
    for field in _fields(document):
        value = field["value"]
        text = value
        if not isinstance(value, str):
            text = json.dumps(value, ensure_ascii=False, default=str)
        words = {"honoured": say("honoured"), "inert": say("inert"), "unknown": say("unknown")}
        rows.append(["", one_line(field["name"]), words[field["status"]], one_line(text)])
        styles.append(["", "bold", colours[field["status"]]])
        if field["status"] != "honoured":
            rows.append(["", "", "", one_line(field["meaning"])])
            styles.append(["", "", "", "dim"])
    out.title(say("Fields"))
    out.table(["", say("field"), say("here"), say("value")], rows, styles)


def _show_tools(out: Screen, source: ToolSkill) -> None:
    manifest = source.manifest
    out.title(say("Tools"))
    for tool in manifest.tools:
        out.line(one_line(tool.description), "", "  ", "    ", [(tool.name, "bold"), ("  ", "")])
        for one in tool.parameters:
            kind = one.type if one.required else say("{type}, optional", type=one.type)
            lead = [(one.name, "cyan"), (f" ({kind})  ", "dim")]
            out.line(one_line(one.description), "", "    ", "      ", lead)
    out.title(say("Program"))
    out.line(say("runs `{entry}` ({runtime})", entry=one_line(manifest.entry),
                 runtime=manifest.runtime), "", "  ")  # fmt: skip
    wants = source.wants
    nothing = say("may use nothing beside its own folder")
    text = say("may {what}", what=listed(wants)) if wants else nothing
    out.line(text, "yellow" if wants else "", "  ")


def _files_of(skill: Skill, library: Library) -> tuple[list[SkillFileRow], int]:
    """The files of a skill, and how many more there are."""
    supply = library.supply_of(skill)
    if supply is not None:
        rows = [SkillFileRow(one.path, one.size) for one in supply.files_of(skill).values()]
        return rows[:_MAX_FILES_LISTED], max(len(rows) - _MAX_FILES_LISTED, 0)
    folder = skill.base_dir
    found: list[SkillFileRow] = []
    more = 0
    for here, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in {".git", "node_modules"})
        for name in sorted(names):
            path = os.path.join(here, name)
            if len(found) >= _MAX_FILES_LISTED:
                more += 1
                continue
            try:
                size = os.lstat(path).st_size
            except OSError:
                size = 0
            found.append(SkillFileRow(os.path.relpath(path, folder).replace(os.sep, "/"), size))
        if more > 10 * _MAX_FILES_LISTED:
            break  # a larger folder is not walked to its end
    return found, more


def _show_files(out: Screen, files: list[SkillFileRow], more: int) -> None:
    out.title(say("Files"))
    wide = max((width_of(one_line(file.path)) for file in files), default=0)
    for file in files:
        size = f"{file.size:,} B"
        room = out.width - 16 if out.width else 0
        name = cut(one_line(file.path), room)
        out.write(f"  {pad(name, min(wide, room) if room else wide)}  {out.paint(size, 'dim')}\n")
    if more:
        out.line(say("… and {count} more", count=more), "dim", "  ")


def show_problems(
    out: Screen, problems: Iterable[Problem], indent: str, *, as_errors: bool = False
) -> None:
    """Print problems with their fixes; `as_errors` shows each as an error."""
    for problem in problems:
        severity = "error" if as_errors else problem.severity
        mark, colour = SEVERITIES[severity]
        at = say(" (line {line})", line=problem.line) if problem.line else ""
        lead = [
            (f"{mark} {say(severity)}", colour),
            (f" {problem.code}{at}{say(': ')}", ""),
        ]
        out.line(one_line(problem.message), "", indent, indent + "  ", lead)
        out.line(one_line(problem.fix), "", f"{indent}  → ")
