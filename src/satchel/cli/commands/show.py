"""The command `show`: a skill's fields, problems, files and text."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from satchel.cli.commands.list_skills import hub_place
from satchel.cli.console import (
    SEVERITIES,
    STATES,
    clean,
    cut,
    one_line,
    pad,
    plural,
    width_of,
    write_json,
)
from satchel.cli.context import command, print_reply, skill_argument
from satchel.cli.options import AnyPath, cannot_combine, flag_option, needs
from satchel.doctor import content_problem
from satchel.errors import InvalidInput, NotFound, Refused, SatchelError
from satchel.i18n import join_names, say
from satchel.library.locations import source_words
from satchel.presentation.change_words import counted
from satchel.session.permissions import tool_grants
from satchel.skill.fields import FIELDS, correct_spelling
from satchel.skill.problems import Problem
from satchel.skill_report import grant_hint

if TYPE_CHECKING:
    from collections.abc import Iterable

    from satchel.cli.console import Screen
    from satchel.cli.context import CliContext
    from satchel.library.lockfile import LockedSource
    from satchel.library.tool_skills import ToolSkill
    from satchel.session.permissions import ToolGrants
    from satchel.skill.document import SkillDocument
    from satchel.skill.model import Skill


def count_problems(problems: Iterable[Problem]) -> dict[str, int]:
    """Count problems by severity."""
    counts = {"errors": 0, "warnings": 0, "notes": 0}
    for problem in problems:
        counts[problem.severity + "s"] += 1
    return counts


def checked(files: int, counts: dict[str, int]) -> str:
    """The last line of a report."""
    words = counted(**counts) or say("no problems")
    return f"{plural(files, say('file'), say('files'))}{say(': ')}{words}"


_MAX_FILES_LISTED = 200
_SHOWN_WITH_FIELDS = frozenset(("inert-field", "unknown-field"))
"""Problems that the table of fields shows already."""


@command(
    say("Show one skill: status, fields, problems, files and text."),
    "satchel show hello-skill",
    "satchel show hello-skill --as-model --args Ada",
    "satchel show hello-skill --file SKILL.md",
)
@skill_argument()
@flag_option("--as-model", say("Print the text that a model gets."))
@click.option(
    "--args",
    "arguments",
    metavar="TEXT",
    help=say("With `--as-model`: the value of `$ARGUMENTS`."),
)
@click.option(
    "--file",
    "path",
    metavar="PATH",
    type=AnyPath(),
    help=say("Print one file of the skill, within the limits of an agent."),
)
def show(
    context: CliContext,
    name: str,
    as_model: bool,
    arguments: str | None,
    path: str | None,
    as_json: bool,
) -> int:
    if arguments is not None and not as_model:
        raise needs("--args", "--as-model")
    if as_model:
        return _show_as_model(context, name, arguments or "", path, as_json=as_json)
    if path is not None:
        return _show_file(context, name, path, as_json=as_json)
    from satchel.presentation.files import walk_files
    from satchel.skill.validate import check_document

    found = context.find(name)
    skill = found[0]
    library = context.satchel.library
    document = library.integrity.inspect(skill)
    source = library.tools().of(skill)
    if skill.is_tool:
        problems = list(document.problems)
    else:
        problems = [problem.at(skill.path) for problem in check_document(document)]
    changed = content_problem(library, skill)
    if changed is not None:
        problems.insert(0, changed)
    walked: list[tuple[str, int, int, str]] = []
    with suppress(OSError):  # a folder that cannot be read ends the list
        walked.extend(walk_files(context.satchel, skill.ref))
    files = {path: size for path, size, _, _ in walked[:_MAX_FILES_LISTED]}
    more = len(walked) - len(files)
    supply = library.supply_of(skill)
    mark = supply.digest(skill) if supply is not None else ""
    place = hub_place(library, skill)
    tools = tool_grants(library, skill, document.fields)
    if as_json:
        write_json({
            **skill.to_dict(),
            **(source.to_dict() if source is not None else {}),
            **({"mark": mark} if mark else {}),
            **({"hub": place._asdict()} if place is not None else {}),
            "problems": [problem.to_dict() for problem in problems],
            "fields": list(_fields(document)),
            "files": [{"path": path, "size": size} for path, size in files.items()],
            "files_not_listed": more,
            "body": document.body,
            "others": [other.ref for other in found[1:]],
            "requested_tools": list(tools.requested),
            "granted_tools": list(tools.granted),
        })  # fmt: skip
        return 0
    out = context.out
    _show_header(out, skill, mark, changed.code if changed is not None else "", place)
    if not skill.is_tool:
        _show_fields(out, document)
        _show_grants(out, skill, tools)
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
    return 0


def _show_as_model(
    context: CliContext, name: str, arguments: str, path: str | None, *, as_json: bool
) -> int:
    if path is not None:
        raise cannot_combine("--file", "--as-model")
    context.given["trace"] = "off"
    context.command = "show --as-model"
    given: dict[str, Any] = {"name": name, **({"args": arguments} if arguments else {})}
    reply = context.satchel.tools().call("Skill", given, as_person=True)
    if reply.error is not None and not as_json:
        error = _load_error(context, name)
        if error is not None:
            raise error
    return print_reply(context, reply, as_json=as_json)


def _load_error(context: CliContext, name: str) -> SatchelError | None:
    """A more precise error than that of the tool, which is written for models; None if none is."""
    from satchel.tools.lookup import find_skill

    satchel = context.satchel
    skill = find_skill(satchel.library.snapshot(), name, satchel.settings.project)
    if skill is None:
        try:
            found = context.find(name)
        except SatchelError as exc:
            return exc
        if not found[0].is_tool:
            return None
        return InvalidInput(
            say("`{name}` has tools and no instructions to load", name=one_line(name)),
            say("Run `{command}`", command=f"satchel show {found[0].reference}"),
        )
    shown = one_line(skill.name)
    if skill.state == "untrusted" and satchel.library.is_unpinned(skill):
        problem = Problem("unpinned", values={"name": shown})
        return Refused(problem.message, problem.fix)
    if skill.state == "excluded":
        return NotFound(
            say("The skill `{name}` is left out by a filter", name=shown),
            say("Change `include`, `exclude` or `tags`: `satchel config list` says where"),
        )
    return None


def _show_file(context: CliContext, name: str, path: str, *, as_json: bool) -> int:
    skill = context.find(name)[0]
    target = os.path.join(skill.base_dir, os.path.expanduser(path))
    reply = context.satchel.tools().call("ReadFile", {"path": target}, as_person=True)
    return print_reply(context, reply, as_json=as_json)


def _show_header(
    out: Screen, skill: Skill, server_mark: str, problem: str, place: LockedSource | None
) -> None:
    name = problem if problem in STATES else skill.state
    mark, colour = STATES[name]
    state = f"{mark} {say(name)}"
    name = out.paint(one_line(skill.name), "bold")
    out.write(
        f"{name}  {out.paint(state, colour)}  {out.paint(source_words(skill.source), 'dim')}\n"
    )
    if skill.shadowed_by:
        out.line(say("hidden by {ref}", ref=one_line(skill.shadowed_by)), "dim")
    if skill.origin.remote:
        digest = server_mark.removeprefix("sha256:")[:12]
        out.line(f"{skill.origin.remote} ({digest})", "dim")
    if place is not None:
        from satchel.store.hub_client.client import shown_key

        out.line(one_line(f"{place.url}@{place.commit} ({shown_key(place.key)})"), "dim")
    out.line(one_line(skill.path), "dim")
    out.line()
    out.line(one_line(skill.description))


def _fields(document: SkillDocument) -> Iterable[dict[str, Any]]:
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
        words = {"honoured": say("used"), "inert": say("ignored"), "unknown": say("unknown")}
        rows.append(["", one_line(field["name"]), words[field["status"]], one_line(text)])
        styles.append(["", "bold", colours[field["status"]]])
        if field["status"] != "honoured":
            rows.append(["", "", "", one_line(field["meaning"])])
            styles.append(["", "", "", "dim"])
    out.title(say("Fields"))
    out.table(["", say("field"), say("status"), say("value")], rows, styles)


def _show_grants(out: Screen, skill: Skill, tools: ToolGrants) -> None:
    if tools.requested or tools.granted:
        granted = join_names(f"`{one_line(pattern)}`" for pattern in tools.granted)
        out.line(say("Tools without approval: {names}", names=granted or say("none")), "", "  ")
    if tools.refused and not skill.origin.remote:
        out.line(grant_hint(skill), "", "  → ")


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
    if wants:
        out.line(say("may {what}", what=join_names(wants)), "yellow", "  ")


def _show_files(out: Screen, files: dict[str, int], more: int) -> None:
    out.title(say("Files"))
    room = out.width - 16 if out.width else 0
    names = [cut(one_line(path), room) for path in files]
    wide = max(map(width_of, names), default=0)
    for name, size in zip(names, files.values(), strict=True):
        out.write(f"  {pad(name, wide)}  {out.paint(f'{size:,} B', 'dim')}\n")
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
