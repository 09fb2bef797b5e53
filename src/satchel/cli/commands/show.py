"""The command `show`: a skill's fields, problems, files and text."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from satchel.cli.commands.list_skills import hub_source
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
from satchel.diagnosis.doctor import content_problem
from satchel.diagnosis.file_problems import find_problems
from satchel.diagnosis.skill_report import grant_hint
from satchel.errors import InvalidInput, NotFound, Refused, SatchelError
from satchel.i18n import join_names, say
from satchel.library.locations import source_words
from satchel.presentation.change_words import problem_counts
from satchel.presentation.scripts import show_scripts
from satchel.session.permissions import tool_grants
from satchel.skill.fields import FIELDS, correct_spelling
from satchel.skill.problems import Problem
from satchel.tools.lookup import find_skill

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from satchel.cli.console import Screen
    from satchel.cli.context import CliContext
    from satchel.library.lockfile import LockedSource
    from satchel.library.tool_skills import ToolSkill
    from satchel.presentation.scripts import ScriptsShown
    from satchel.satchel import Satchel
    from satchel.session.permissions import ToolGrants
    from satchel.skill.document import SkillDocument
    from satchel.skill.model import Skill

_MAX_FILES_LISTED = 200
_MAX_DIGEST_CHARS = 12
_FIELD_COLOURS = {"honoured": "green", "inert": "dim", "unknown": "yellow"}
"""Status of a field -> its colour."""


def count_problems(problems: Iterable[Problem]) -> dict[str, int]:
    """Count problems by severity."""
    counts = {"errors": 0, "warnings": 0, "notes": 0}
    for problem in problems:
        counts[problem.severity + "s"] += 1
    return counts


def problem_summary(file_count: int, counts: dict[str, int]) -> str:
    """Return the last line of a report: the number of files, and of problems by severity."""
    problems = problem_counts(**counts) or say("no problems")
    return f"{plural(file_count, say('file'), say('files'))}{say(': ')}{problems}"


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
    details = _SkillDetails.read(context.satchel, *context.find(name))
    if as_json:
        write_json(details.to_dict())
    else:
        _print_details(context.out, details)
    return 0


class _SkillDetails(NamedTuple):
    """Everything that is printed about a skill."""

    skill: Skill
    others: tuple[Skill, ...]
    """Skills of the same name."""
    document: SkillDocument
    tool_skill: ToolSkill | None
    modification: Problem | None
    """A difference from the lockfile or the listing."""
    problems: list[Problem]
    files: dict[str, int]
    """Path -> size."""
    hidden_files: int
    digest: str
    """Of a server's skill; empty for others."""
    hub: LockedSource | None
    tools: ToolGrants
    scripts: ScriptsShown | None

    @classmethod
    def read(cls, satchel: Satchel, skill: Skill, *others: Skill) -> _SkillDetails:
        """Read a skill and its folder."""
        from satchel.presentation.files import walk_files

        library = satchel.library
        document = library.integrity.inspect(skill)
        modification = content_problem(library, skill)
        sizes: list[tuple[str, int]] = []
        with suppress(OSError):  # a folder that cannot be read ends the list
            sizes.extend((path, size) for path, size, _, _ in walk_files(satchel, skill.ref))
        server = library.served_skills_of(skill)
        return cls(
            skill=skill,
            others=others,
            document=document,
            tool_skill=library.tools().of(skill),
            modification=modification,
            problems=[*filter(None, (modification,)), *find_problems(skill, document)],
            files=dict(sizes[:_MAX_FILES_LISTED]),
            hidden_files=max(len(sizes) - _MAX_FILES_LISTED, 0),
            digest=server.digest(skill) if server is not None else "",
            hub=hub_source(library, skill),
            tools=tool_grants(library, skill, document.fields),
            scripts=show_scripts(satchel, skill),
        )

    def to_dict(self) -> dict[str, Any]:
        """The form for `--json`."""
        return {
            **self.skill.to_dict(),
            **(self.tool_skill.to_dict() if self.tool_skill is not None else {}),
            **({"mark": self.digest} if self.digest else {}),
            **({"hub": self.hub._asdict()} if self.hub is not None else {}),
            "problems": [problem.to_dict() for problem in self.problems],
            "fields": list(_describe_fields(self.document)),
            "scripts": self.scripts and self.scripts.to_dict(),
            "files": [{"path": path, "size": size} for path, size in self.files.items()],
            "files_not_listed": self.hidden_files,
            "body": self.document.body,
            "others": [other.ref for other in self.others],
            "requested_tools": list(self.tools.requested),
            "granted_tools": list(self.tools.granted),
        }


def _print_details(out: Screen, details: _SkillDetails) -> None:
    skill = details.skill
    _print_header(out, details)
    if not skill.is_tool:
        _print_fields(out, details.document)
        _print_grants(out, skill, details.tools)
    if details.tool_skill is not None:
        _print_tools(out, details.tool_skill)
    if details.problems:
        out.title(say("Problems"))
        show_problems(out, details.problems, "  ")
    _print_scripts(out, details.scripts)
    _print_files(out, details.files, details.hidden_files)
    if not skill.is_tool:
        out.title(say("Instructions"))
        out.write(clean(details.document.body).strip("\n") + "\n")


def _show_as_model(
    context: CliContext, name: str, arguments: str, path: str | None, *, as_json: bool
) -> int:
    if path is not None:
        raise cannot_combine("--file", "--as-model")
    context.overrides["trace"] = "off"
    context.command = "show --as-model"
    call_arguments: dict[str, Any] = {"name": name, **({"args": arguments} if arguments else {})}
    reply = context.satchel.tools().call("Skill", call_arguments, as_person=True)
    if reply.error is not None and not as_json:
        error = _find_load_error(context, name)
        if error is not None:
            raise error
    return print_reply(context, reply, as_json=as_json)


def _find_load_error(context: CliContext, name: str) -> SatchelError | None:
    """Return a more precise error than the tool's, which is written for models, if there is one."""
    satchel = context.satchel
    skill = find_skill(satchel.library.snapshot(), name, satchel.settings.project)
    if skill is None:
        try:
            skills = context.find(name)
        except SatchelError as exc:
            return exc
        if not skills[0].is_tool:
            return None
        return InvalidInput(
            say("`{name}` has tools and no instructions to load", name=one_line(name)),
            say("Run `{command}`", command=f"satchel show {skills[0].reference}"),
        )
    display_name = one_line(skill.name)
    if skill.state == "untrusted" and satchel.library.is_unpinned(skill):
        problem = Problem("unpinned", values={"name": display_name})
        return Refused(problem.message, problem.fix)
    if skill.state == "excluded":
        return NotFound(
            say("The skill `{name}` is left out by a filter", name=display_name),
            say("Change `include`, `exclude` or `tags`: `satchel config list` says where"),
        )
    return None


def _show_file(context: CliContext, name: str, path: str, *, as_json: bool) -> int:
    skill = context.find(name)[0]
    target = os.path.join(skill.base_dir, os.path.expanduser(path))
    reply = context.satchel.tools().call("ReadFile", {"path": target}, as_person=True)
    return print_reply(context, reply, as_json=as_json)


def _print_header(out: Screen, details: _SkillDetails) -> None:
    skill, hub = details.skill, details.hub
    code = details.modification.code if details.modification is not None else ""
    state = code if code in STATES else skill.state
    mark, colour = STATES[state]
    name = out.paint(one_line(skill.name), "bold")
    painted_state = out.paint(f"{mark} {say(state)}", colour)
    out.write(f"{name}  {painted_state}  {out.paint(source_words(skill.source), 'dim')}\n")
    if skill.shadowed_by:
        out.line(say("hidden by {ref}", ref=one_line(skill.shadowed_by)), "dim")
    if skill.origin.version:
        out.line(one_line(f"{skill.origin.label} {skill.origin.version}"), "dim")
    if skill.origin.remote:
        digest = details.digest.removeprefix("sha256:")[:_MAX_DIGEST_CHARS]
        out.line(f"{skill.origin.remote} ({digest})", "dim")
    if hub is not None:
        from satchel.store.hub_client.client import display_key

        out.line(one_line(f"{hub.url}@{hub.commit} ({display_key(hub.key)})"), "dim")
    out.line(one_line(skill.path), "dim")
    out.line()
    out.line(one_line(skill.description))


def _describe_fields(document: SkillDocument) -> Iterator[dict[str, Any]]:
    for key, value in document.fields.items():
        field = FIELDS.get(key) or FIELDS.get(correct_spelling(key) or "")
        yield {
            "name": key,
            "value": value,
            "status": field.status if field else "unknown",
            "meaning": say(field.meaning) if field else say("no known agent reads it"),
            "line": document.lines.get(key),
        }


def _print_fields(out: Screen, document: SkillDocument) -> None:
    labels = {"honoured": say("used"), "inert": say("ignored"), "unknown": say("unknown")}
    rows: list[list[str]] = []
    styles: list[list[str]] = []
    for field in _describe_fields(document):
        value = field["value"]
        if not isinstance(value, str):
            value = json.dumps(value, ensure_ascii=False, default=str)
        rows.append(["", one_line(field["name"]), labels[field["status"]], one_line(value)])
        styles.append(["", "bold", _FIELD_COLOURS[field["status"]]])
    out.title(say("Fields"))
    out.table(["", say("field"), say("status"), say("value")], rows, styles)


def _print_grants(out: Screen, skill: Skill, tools: ToolGrants) -> None:
    if tools.requested or tools.granted:
        granted = join_names(f"`{one_line(pattern)}`" for pattern in tools.granted)
        out.line(say("Tools without approval: {names}", names=granted or say("none")), indent="  ")
    if tools.refused and not skill.origin.remote:
        out.line(grant_hint(skill), indent="  → ")


def _print_tools(out: Screen, tool_skill: ToolSkill) -> None:
    manifest = tool_skill.manifest
    out.title(say("Tools"))
    for tool in manifest.tools:
        out.line(
            one_line(tool.description),
            indent="  ",
            hang="    ",
            lead=[(tool.name, "bold"), ("  ", "")],
        )
        for parameter in tool.parameters:
            type_text = parameter.type
            if not parameter.required:
                type_text = say("{type}, optional", type=parameter.type)
            lead = [(parameter.name, "cyan"), (f" ({type_text})  ", "dim")]
            out.line(one_line(parameter.description), indent="    ", hang="      ", lead=lead)
    out.title(say("Program"))
    out.line(say("runs `{entry}` ({runtime})", entry=one_line(manifest.entry),
                 runtime=manifest.runtime), indent="  ")  # fmt: skip
    if tool_skill.wants:
        out.line(say("may {what}", what=join_names(tool_skill.wants)), "yellow", indent="  ")


def _print_scripts(out: Screen, scripts: ScriptsShown | None) -> None:
    """Print how each script is started, and what they may use."""
    if scripts is None:
        return
    out.title(say("Scripts"))
    for script in scripts.rows:
        interpreter = say("cannot run")
        if script.interpreter:
            packages = join_names(script.packages) or say("no packages")
            interpreter = f"{script.interpreter} ({packages})"
        lead = [(script.path, "bold"), ("  ", "")]
        out.line(interpreter, indent="  ", hang="      ", lead=lead)
        if script.reason:
            out.line(one_line(script.reason), indent="      ")
            show_fix(out, script.hint, "      ")
        for note in script.notes:
            out.line(note, indent="      ")
    if scripts.more:
        out.line(say("… and {count} more", count=scripts.more), "dim", indent="  ")
    facts = {
        say("Hosts named"): join_names(f"`{name}`" for name in scripts.hosts),
        say("Variables named"): join_names(f"`{name}`" for name in scripts.variables),
        say("Granted"): scripts.granted or say("no network, no secrets"),
    }
    for title, text in facts.items():
        if text:
            out.line(text, indent="  ", hang="    ", lead=[(title, "dim"), (say(": "), "dim")])
    for step in scripts.steps:
        out.line(step, indent="  → ")


def _print_files(out: Screen, files: dict[str, int], hidden_count: int) -> None:
    out.title(say("Files"))
    max_width = out.width - 16 if out.width else 0
    names = [cut(one_line(path), max_width) for path in files]
    width = max(map(width_of, names), default=0)
    for name, size in zip(names, files.values(), strict=True):
        out.write(f"  {pad(name, width)}  {out.paint(f'{size:,} B', 'dim')}\n")
    if hidden_count:
        out.line(say("… and {count} more", count=hidden_count), "dim", indent="  ")


def show_problems(
    out: Screen, problems: Iterable[Problem], indent: str, *, as_errors: bool = False
) -> None:
    """Print problems with their fixes; `as_errors` shows each as an error."""
    for problem in problems:
        severity = "error" if as_errors else problem.severity
        mark, colour = SEVERITIES[severity]
        position = say(" (line {line})", line=problem.line) if problem.line else ""
        lead = [
            (f"{mark} {say(severity)}", colour),
            (f" {problem.code}{position}{say(': ')}", ""),
        ]
        out.line(one_line(problem.message), indent=indent, hang=indent + "  ", lead=lead)
        show_fix(out, problem.fix, f"{indent}  ")


def show_fix(out: Screen, text: str, indent: str) -> None:
    """Print the next step; lines to add to a file keep their line ends."""
    arrow = "→ "
    for line in text.split("\n"):
        out.line(one_line(line), indent=indent + arrow)
        arrow = "  "
