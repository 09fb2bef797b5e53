"""The commands `check` (the check-list of a skill, with fixes) and `validate`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

import click

from satchel.cli import EXIT_INCOMPLETE
from satchel.cli.commands.show import checked, count_problems, show_problems
from satchel.cli.console import SEVERITIES, clean, one_line, write_json
from satchel.cli.context import command, short_path, skill_argument
from satchel.cli.options import AnyPath, OneOf, all_option, dry_run_option, flag_option
from satchel.errors import NotFound, SatchelError
from satchel.i18n import LANGUAGES, say
from satchel.library.locations import local_folder

if TYPE_CHECKING:
    from satchel.authoring.checklist import CheckReport, CheckResult
    from satchel.authoring.tool_trial import Unrun
    from satchel.cli.console import Screen
    from satchel.cli.context import CliContext
    from satchel.skill.model import Skill
    from satchel.skill.problems import Problem

_TICKS = {"pass": ("✓", "green"), "fail": ("✗", "red"), "skip": ("–", "dim")}
_MAX_NAMES_SHOWN = 5
_LISTS = {"tool": "tool", "packaged": "package", "skill": "SKILL.md"}


class CheckTarget(NamedTuple):
    """A folder to check, and its skill if the library has it."""

    folder: str
    skill: Skill | None = None


@command(
    say("Go through the check-list of a skill: every box is ticked, or says how to tick it.")
    + "\n\n"
    + say(
        "SKILL is a folder or the name of a skill; without it, every skill of the project is "
        "checked. Nothing of a skill is run without `--run`, and nothing then that is not trusted. "
        "Exits with 1 when a box of severity error is open, with `--strict` a warning too; with "
        "`--run` also with 4 when a skill may not be run, and with 8 when one cannot be run here."
    ),
    "satchel check",
    "satchel check word-count --run",
    "satchel check .agents/skills/word-count --fix",
    "satchel check --packaged excel",
)
@skill_argument("skills", nargs=-1, metavar="[SKILL]...")
@all_option(say("Also skills of other places: system, home."))
@click.option("--packaged", multiple=True, metavar="NAME", help=say("A packaged skill by name."))
@flag_option("--run", say("Also run the programs, in the sandbox."))
@flag_option("--fix", say("Mend what has one right answer; shows a diff."))
@dry_run_option(say("With `--fix`: show the diff, and stop."))
@flag_option("--strict", say("Warnings count as errors."))
@click.option(
    "--language", "tongue", type=OneOf(LANGUAGES), help=say("Texts of tools must be in this one.")
)
@flag_option("--verbose", say("Show every box, ticked ones too."))
def check(
    context: CliContext,
    skills: tuple[str, ...],
    everything: bool,
    packaged: tuple[str, ...],
    run: bool,
    fix: bool,
    dry_run: bool,
    strict: bool,
    tongue: str | None,
    verbose: bool,
    as_json: bool,
) -> int:
    targets = [] if packaged and not skills else _targets(context, skills, everything=everything)
    language = tongue or ""
    unrun: list[Unrun] = []
    proof = unrun if run else None
    reports = _check_all(context, targets, language, proof)
    if fix:
        system = {one.folder for one in targets if one.skill is not None and one.skill.is_system}
        ours = [report for report in reports if report.path not in system]
        changed = _fix(context, ours, dry_run=dry_run, as_json=as_json)
        if changed and not dry_run:
            context.satchel.refresh()
            old = [report for report in reports if report.path not in changed]
            new = [target for target in targets if target.folder in changed]
            reports = old + _check_all(context, new, language, proof)
            reports.sort(key=lambda report: report.path)
    if packaged:
        from satchel.authoring.check_packaged import check_packaged

        reports += [check_packaged(name, language=language) for name in packaged]
    bad = [report for report in reports if report.failed(strict=strict)]
    status = 1 if bad else 4 if "refused" in unrun else EXIT_INCOMPLETE if unrun else 0
    if as_json:
        write_json([report.to_dict(strict=strict) for report in reports])
        return status
    for report in reports:
        _show(context.out, report, strict=strict, whole=verbose)
    _print_summary(context, reports, bad, whole=verbose)
    readable = [
        report
        for report in reports
        if report.list == "tool" and any(verdict.state == "pass" for verdict in report.verdicts)
    ]
    if readable and not run:
        context.err.line(say("No program was run: `--run` does that, in the sandbox"), "dim")
    return status


def _targets(context: CliContext, given: tuple[str, ...], *, everything: bool) -> list[CheckTarget]:
    from satchel.authoring.check_skill import main_files

    known = {skill.base_dir: skill for skill in _known(context)}
    if not given:
        own = ("builtin", "system", "global")
        found = [
            CheckTarget(folder, skill)
            for folder, skill in known.items()
            if everything or skill.source not in own
        ]
        broken = [os.path.dirname(path) for path in _broken(context)]
        found += [CheckTarget(folder) for folder in broken if folder not in known]
        if not found:
            raise NotFound(
                say("There is no skill in this project"),
                say("Write one with `satchel new`, or give a folder"),
            )
        return sorted(_once(found), key=lambda target: target.folder)
    named: list[CheckTarget] = []
    for word in given:
        path = os.path.abspath(os.path.expanduser(word))
        if os.path.isfile(path):
            path = os.path.dirname(path)
        if main_files(path):
            named.append(CheckTarget(path, known.get(path)))
        elif os.path.isdir(path):
            folders = (entry.path for entry in os.scandir(path) if entry.is_dir())
            inner = sorted(folder for folder in folders if main_files(folder))
            if not inner and os.path.lexists(os.path.join(path, "skill.yml")):
                inner = [path]  # the check reports the wrong name
            if not inner:
                raise NotFound(
                    say("There is no SKILL.md and no skill.yaml in `{path}`", path=word),
                    say("Give the folder of a skill, or write one with `satchel new`"),
                )
            named += [CheckTarget(folder, known.get(folder)) for folder in inner]
        else:
            named.append(_by_name(context, word))
    return _once(named)


def _by_name(context: CliContext, name: str) -> CheckTarget:
    """Find a skill of the library, also a broken one."""
    folders = [os.path.dirname(path) for path in _broken(context)]
    broken = next((folder for folder in folders if os.path.basename(folder) == name), None)
    if broken is not None:
        return CheckTarget(broken)
    tools = context.satchel.library.tools().find(name)
    skill = tools[0].skill if tools else context.find(name)[0]
    return CheckTarget(local_folder(skill), skill)


def _once(targets: list[CheckTarget]) -> list[CheckTarget]:
    return list({target.folder: target for target in targets}.values())


def _known(context: CliContext) -> list[Skill]:
    """Every skill and tool skill of the library."""
    library = context.satchel.library
    snapshot = library.snapshot()
    found = [one for one in (*snapshot.skills, *snapshot.hidden) if not one.origin.remote]
    seen = {skill.base_dir for skill in found}
    tools = library.tools()
    every = (*tools.skills, *tools.hidden)
    found += [one.skill for one in every if one.skill.base_dir not in seen]
    return found


def _broken(context: CliContext) -> list[str]:
    library = context.satchel.library
    problems = [*library.snapshot().problems, *library.tools().problems]
    names = ("skill.md", "skill.yaml", "skill.yml")
    return [
        problem.path
        for problem in problems
        if problem.severity == "error" and os.path.basename(problem.path).lower() in names
    ]


def _check_all(
    context: CliContext, targets: list[CheckTarget], language: str, proof: list[Unrun] | None
) -> list[CheckReport]:
    """Check the targets; with `proof`, run their programs and add those that were not run to it."""
    from satchel.authoring.check_skill import check_folder
    from satchel.authoring.tool_trial import is_listed, make_runner

    satchel = context.satchel
    prove = None if proof is None else make_runner(satchel, proof)
    reports: list[CheckReport] = []
    try:
        for folder, skill in targets:
            listed = None if skill is None else is_listed(satchel, folder)
            reports += check_folder(folder, language=language, prove=prove, listed=listed)
    finally:
        if proof is not None:
            satchel.close()
    return reports


def _fix(
    context: CliContext, reports: list[CheckReport], *, dry_run: bool, as_json: bool
) -> set[str]:
    """Show and apply the automatic fixes; returns the folders that changed."""
    from satchel.authoring.autofix import apply, find_fixes

    changed: set[str] = set()
    folders = dict.fromkeys(report.path for report in reports)
    err = context.err
    for folder in folders:
        mends = find_fixes(folder, [report for report in reports if report.path == folder])
        if not mends:
            continue
        for mend in mends:
            err.line(say("Mends {rules}", rules=", ".join(mend.rules)), "bold")
            for row in mend.diff(os.getcwd()).splitlines():
                style = {"+": "green", "-": "red", "@": "cyan"}.get(row[:1], "")
                err.write(err.paint(clean(row, keep="\t"), style) + "\n")
        if not dry_run:
            apply(mends)
        changed.add(folder)
    if not changed and not as_json:
        err.line(say("Nothing can be mended with certainty"), "dim")
    elif dry_run:
        err.line(say("Nothing was changed"), "dim")
    return changed


def _show(out: Screen, report: CheckReport, *, strict: bool, whole: bool) -> None:
    from satchel.authoring.checklist import RULES, title_of

    bad = bool(report.failed(strict=strict))
    mark, colour = ("✗", "red") if bad else ("✓", "green")
    name = one_line(report.name)
    out.write(
        f"{out.paint(mark, colour)} {out.paint(name, 'bold')}  {say(_LISTS[report.list])}  "
        f"{out.paint(one_line(short_path(report.path)), 'dim')}\n"
    )
    section = ""
    seen: set[str] = set()
    for verdict in report.verdicts:
        rule = RULES[verdict.rule]
        shown = whole or verdict.state == "fail" or verdict.open
        if verdict.rule in seen or not shown:
            continue
        seen.add(verdict.rule)
        if rule.section != section:
            section = rule.section
            out.line(say(title_of(section, report.list)), "dim", "  ")
        tick, style = _TICKS[verdict.state]
        if verdict.state == "fail" and verdict.severity != "error":
            tick, style = SEVERITIES[verdict.severity]
        out.line(say(rule.demand), "", "    ", "      ", [(tick, style), (" ", "")])
        if verdict.state == "skip":
            out.line(one_line(verdict.reason), "dim", "      ")
        for one in report.verdicts:
            if one.rule == verdict.rule and one.state == "fail":
                _show_fail(out, report, one)


def _show_fail(out: Screen, report: CheckReport, verdict: CheckResult) -> None:
    near = os.path.relpath(verdict.path, report.path) if verdict.path else ""
    where = "" if near in ("", ".") else near + (f":{verdict.line}" if verdict.line else "")
    mark, colour = SEVERITIES[verdict.severity]
    lead = [
        (f"{mark} {say(verdict.severity)}", colour),
        (f" {verdict.rule}{f' ({one_line(where)})' if where else ''}{say(': ')}", ""),
    ]
    out.line(one_line(verdict.message), "", "      ", "        ", lead)
    out.line(one_line(verdict.fix), "", "        → ")


def _print_summary(
    context: CliContext, reports: list[CheckReport], bad: list[CheckReport], *, whole: bool
) -> None:
    every = [verdict for report in reports for verdict in report.verdicts]
    passed = sum(verdict.state == "pass" for verdict in every)
    failed = len({
        (id(report), one.rule)
        for report in reports
        for one in report.verdicts
        if one.state == "fail"
    })  # fmt: skip
    skipped = sum(verdict.state == "skip" for verdict in every)
    parts = [say("1 box ticked") if passed == 1 else say("{count} boxes ticked", count=passed)]
    if failed:
        parts.append(say("{count} open", count=failed))
    if skipped and passed:
        left = say("{count} not applicable or not looked at", count=skipped)
        parts.append(left if whole else left + say(" (`--verbose` shows them)"))
    elif skipped:
        parts.append(say("the others wait for that"))
    context.err.line(say(", ").join(parts))
    if bad:
        names = ", ".join(f"`{one_line(report.name)}`" for report in bad[:_MAX_NAMES_SHOWN])
        left = len(bad) - _MAX_NAMES_SHOWN
        more = say(" and {count} more", count=left) if left > 0 else ""
        context.err.line(say("Not done: {names}", names=names + more))


@command(
    say("Check skill files before you publish them.")
    + "\n\n"
    + say(
        "Shows every problem and how to fix it. PATH is a skill's folder, its SKILL.md or "
        "skill.yaml, or a folder with skills; without it, every skill of the project is checked. "
        "Exits with 1 when there are errors; with `--strict` when anything breaks the published "
        "specification."
    ),
    "satchel validate",
    "satchel validate .agents/skills/hello-skill --strict",
)
@click.argument("paths", nargs=-1, metavar="[PATH]...", type=AnyPath())
@flag_option("--strict", say("Check against the published specification, and nothing else."))
def validate(context: CliContext, paths: tuple[str, ...], strict: bool, as_json: bool) -> int:
    from satchel.skill.problems import Problem
    from satchel.skill.validate import validate_folder

    given = [context.satchel.settings.project] if not paths else list(paths)
    files = [file for path in given for file in _skill_files(context, path, named=bool(paths))]
    results: dict[str, list[Problem]] = {}
    for file in dict.fromkeys(files):
        try:
            results[file] = validate_folder(file, strict=strict)
        except SatchelError as exc:
            results[file] = [Problem("unreadable", file, values={"reason": exc.message})]
    bad = {
        file
        for file, rows in results.items()
        if any(strict or row.severity == "error" for row in rows)
    }
    if as_json:
        write_json([
            {"path": file, "ok": file not in bad, "problems": [row.to_dict() for row in rows]}
            for file, rows in results.items()
        ])  # fmt: skip
        return 1 if bad else 0
    out = context.out
    wrong = say("breaks the specification") if strict else say("wrong")
    for file, rows in results.items():
        mark, colour, word = ("✗", "red", wrong) if file in bad else ("✓", "green", say("ok"))
        lead = [(f"{mark} {word}", colour), ("  ", "")]
        out.line(one_line(short_path(file)), "bold" if rows else "", lead=lead)
        show_problems(out, rows, "  ", as_errors=strict)
    counts = count_problems(row for rows in results.values() for row in rows)
    if strict:
        counts = {"errors": sum(counts.values()), "warnings": 0, "notes": 0}
    context.err.line(checked(len(results), counts))
    return 1 if bad else 0


def _skill_files(context: CliContext, path: str, *, named: bool) -> list[str]:
    """The SKILL.md and skill.yaml files at or below `path`."""
    from satchel.library import Library, Location

    given = short_path(path)
    path = os.path.abspath(os.path.expanduser(path))
    if os.path.isfile(path):
        return [path]
    if not os.path.isdir(path):
        raise NotFound(say("There is no `{path}`", path=given), say("Give the folder of a skill"))
    names = sorted(os.listdir(path))
    own = [name for name in names if name.lower() == "skill.md"][:1]
    own += [name for name in names if name == "skill.yaml"]
    if own:
        return [os.path.join(path, name) for name in own]
    if named:
        library = Library([Location(path, trusted=True)])
    else:
        ours = [
            item
            for item in context.satchel.library.locations
            if item.source not in ("builtin", "global", "server")
        ]
        library = Library([item._replace(trusted=True) for item in ours])
    snapshot, tools = library.snapshot(), library.tools()
    found = [skill.path for skill in (*snapshot.skills, *snapshot.hidden)]
    found += [
        os.path.join(one.skill.base_dir, "skill.yaml") for one in (*tools.skills, *tools.hidden)
    ]
    problems = (*snapshot.problems, *tools.problems)
    broken = [problem.path for problem in problems if problem.severity == "error"]
    ours = {"skill.md", "skill.yaml"}
    found += [file for file in broken if os.path.basename(file).lower() in ours]
    if not found:
        raise NotFound(
            say("There is no SKILL.md in `{path}`", path=given),
            say("Give the folder of a skill, or write one with `satchel init`"),
        )
    return sorted(set(found))
