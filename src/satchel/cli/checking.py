"""Does a skill tick every box? `satchel check`, with fixes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

import click

from satchel._language import LANGUAGES, say
from satchel.cli.output import SEVERITIES, clean, one_line, write_json
from satchel.cli.session import command, complete_names, short_path
from satchel.cli.showing import checked, count_problems, show_problems
from satchel.cli.values import AnyPath, OneOf
from satchel.library.locations import folder_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from satchel.authoring.check_skill import Prove
    from satchel.authoring.rules import Report, Verdict
    from satchel.authoring.trial import Unrun
    from satchel.cli.output import Screen
    from satchel.cli.session import Session
    from satchel.skill.model import Skill
    from satchel.skill.problems import Problem

_TICKS = {"pass": ("✓", "green"), "fail": ("✗", "red"), "skip": ("–", "dim")}
INCOMPLETE = 8
"""Exit code: nothing is wrong as far as was looked, and not everything could be run."""
_LISTS = {"tool": "tool", "packaged": "package", "skill": "SKILL.md"}


class Target(NamedTuple):
    """One folder to check."""

    folder: str
    skill: Skill | None = None
    """What the library knows of it."""


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
@click.argument("skills", nargs=-1, metavar="[SKILL]...", shell_complete=complete_names)
@click.option(
    "--all", "everything", is_flag=True, help=say("Also skills of other places: system, home.")
)
@click.option("--packaged", multiple=True, metavar="NAME", help=say("A packaged skill by name."))
@click.option("--run", is_flag=True, help=say("Also run the programs, in the sandbox."))
@click.option("--fix", is_flag=True, help=say("Mend what has one right answer; shows a diff."))
@click.option("--dry-run", is_flag=True, help=say("With `--fix`: show the diff, and stop."))
@click.option("--strict", is_flag=True, help=say("Warnings count as errors."))
@click.option(
    "--language", "tongue", type=OneOf(LANGUAGES), help=say("Texts of tools must be in this one.")
)
@click.option("--verbose", is_flag=True, help=say("Show every box, ticked ones too."))
def check(
    session: Session,
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
    """One list per skill."""
    targets = [] if packaged and not skills else _targets(session, skills, everything=everything)
    language = tongue or ""
    unrun: list[Unrun] = []
    proof = unrun if run else None
    reports = _check_all(session, targets, language, proof)
    if fix:
        system = {one.folder for one in targets if one.skill is not None and one.skill.is_system}
        ours = [report for report in reports if report.path not in system]
        changed = _mend(session, ours, dry_run=dry_run, as_json=as_json)
        if changed and not dry_run:
            session.satchel.refresh()
            old = [report for report in reports if report.path not in changed]
            new = [target for target in targets if target.folder in changed]
            reports = old + _check_all(session, new, language, proof)
            reports.sort(key=lambda report: report.path)
    if packaged:
        from satchel.authoring.check_packaged import check_packaged

        reports += [check_packaged(name, language=language) for name in packaged]
    bad = [report for report in reports if report.failed(strict=strict)]
    status = 1 if bad else 4 if "refused" in unrun else INCOMPLETE if unrun else 0
    if as_json:
        write_json([report.to_dict(strict=strict) for report in reports])
        return status
    for report in reports:
        _show(session.out, report, strict=strict, whole=verbose)
    _conclude(session, reports, bad, whole=verbose)
    if not run and any(report.list == "tool" and _was_read(report) for report in reports):
        session.err.line(say("No program was run: `--run` does that, in the sandbox"), "dim")
    return status


# --- which ones ---------------------------------------------------------------------------


def _targets(session: Session, given: tuple[str, ...], *, everything: bool) -> list[Target]:
    from satchel.authoring.check_skill import lists_of
    from satchel.errors import NotFound

    known = {skill.base_dir: skill for skill in _known(session)}
    if not given:
        own = ("builtin", "system", "global")
        found = [
            Target(folder, skill)
            for folder, skill in known.items()
            if everything or skill.source not in own
        ]
        broken = [os.path.dirname(path) for path in _broken(session)]
        found += [Target(folder) for folder in broken if folder not in known]
        if not found:
            raise NotFound(
                say("There is no skill in this project"),
                say("Write one with `satchel new`, or give a folder"),
            )
        return sorted(_once(found), key=lambda target: target.folder)
    named: list[Target] = []
    for word in given:
        path = os.path.abspath(os.path.expanduser(word))
        if os.path.isfile(path):
            path = os.path.dirname(path)
        if lists_of(path):
            named.append(Target(path, known.get(path)))
        elif os.path.isdir(path):
            inner = sorted(
                entry.path for entry in os.scandir(path) if entry.is_dir() and lists_of(entry.path)
            )
            if not inner and os.path.lexists(os.path.join(path, "skill.yml")):
                inner = [path]  # what is wrong with it is for the check to say
            if not inner:
                raise NotFound(
                    say("There is no SKILL.md and no skill.yaml in `{path}`", path=word),
                    say("Give the folder of a skill, or write one with `satchel new`"),
                )
            named += [Target(folder, known.get(folder)) for folder in inner]
        else:
            named.append(_by_name(session, word))
    return _once(named)


def _by_name(session: Session, name: str) -> Target:
    """A skill of the library, also one that is too broken to be one."""
    folders = [os.path.dirname(path) for path in _broken(session)]
    broken = next((folder for folder in folders if os.path.basename(folder) == name), None)
    if broken is not None:
        return Target(broken)
    tools = session.satchel.library.tools().find(name)
    skill = tools[0].skill if tools else session.find(name)[0]
    return Target(folder_of(skill), skill)


def _once(targets: list[Target]) -> list[Target]:
    return list({target.folder: target for target in targets}.values())


def _known(session: Session) -> list[Skill]:
    """Every skill of the library, those with a tool too."""
    library = session.satchel.library
    snapshot = library.snapshot()
    found = [one for one in (*snapshot.skills, *snapshot.hidden) if not one.origin.remote]
    seen = {skill.base_dir for skill in found}
    tools = library.tools()
    every = (*tools.skills, *tools.hidden)
    found += [one.skill for one in every if one.skill.base_dir not in seen]
    return found


def _broken(session: Session) -> list[str]:
    library = session.satchel.library
    problems = [*library.snapshot().problems, *library.tools().problems]
    names = ("skill.md", "skill.yaml", "skill.yml")
    return [
        problem.path
        for problem in problems
        if problem.severity == "error" and os.path.basename(problem.path).lower() in names
    ]


def _check_all(
    session: Session, targets: list[Target], language: str, proof: list[Unrun] | None
) -> list[Report]:
    """Check them; with `proof`, their programs are run, and it is told of those that were not."""
    try:
        return [report for target in targets for report in _check(session, target, language, proof)]
    finally:
        if proof is not None:
            session.satchel.close()


def _check(
    session: Session, target: Target, language: str, proof: list[Unrun] | None
) -> list[Report]:
    from satchel.authoring.check_skill import check_folder

    prove: Prove | None = None
    if proof is not None:
        from satchel.authoring.trial import prover

        prove = prover(session.satchel, proof)
    listed = None
    if target.skill is not None:
        from satchel.authoring.trial import is_listed

        listed = is_listed(session.satchel, target.folder)
    return check_folder(target.folder, language=language, prove=prove, listed=listed)


# --- mending ------------------------------------------------------------------------------


def _mend(session: Session, reports: list[Report], *, dry_run: bool, as_json: bool) -> set[str]:
    """Show what is mended, then mend it; returns the folders that changed."""
    from satchel.authoring.fixing import apply, mends_for

    changed: set[str] = set()
    folders = dict.fromkeys(report.path for report in reports)
    err = session.err
    for folder in folders:
        mends = mends_for(folder, [report for report in reports if report.path == folder])
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


# --- showing ------------------------------------------------------------------------------


def _show(out: Screen, report: Report, *, strict: bool, whole: bool) -> None:
    from satchel.authoring.rules import RULES, title_of

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
        tick, style = _tick(verdict)
        out.line(say(rule.demand), "", "    ", "      ", [(tick, style), (" ", "")])
        if verdict.state == "skip":
            out.line(one_line(verdict.reason), "dim", "      ")
        for one in report.verdicts:
            if one.rule == verdict.rule and one.state == "fail":
                _show_fail(out, report, one)


def _tick(verdict: Verdict) -> tuple[str, str]:
    tick, style = _TICKS[verdict.state]
    if verdict.state == "fail" and verdict.severity != "error":
        return SEVERITIES[verdict.severity]
    return tick, style


def _show_fail(out: Screen, report: Report, verdict: Verdict) -> None:
    near = os.path.relpath(verdict.path, report.path) if verdict.path else ""
    where = "" if near in ("", ".") else near + (f":{verdict.line}" if verdict.line else "")
    mark, colour = SEVERITIES[verdict.severity]
    lead = [
        (f"{mark} {say(verdict.severity)}", colour),
        (f" {verdict.rule}{f' ({one_line(where)})' if where else ''}{say(': ')}", ""),
    ]
    out.line(one_line(verdict.message), "", "      ", "        ", lead)
    out.line(one_line(verdict.fix), "", "        → ")


def _was_read(report: Report) -> bool:
    """Whether there was anything to look at but a file that cannot be read."""
    return any(verdict.state == "pass" for verdict in report.verdicts)


def _conclude(session: Session, reports: list[Report], bad: list[Report], *, whole: bool) -> None:
    every = [verdict for report in reports for verdict in report.verdicts]
    passed = sum(verdict.state == "pass" for verdict in every)
    failed = len({
        (id(report), one.rule)
        for report in reports
        for one in report.verdicts
        if one.state == "fail"
    })  # fmt: skip
    skipped = sum(verdict.state == "skip" for verdict in every)
    told = [say("1 box ticked") if passed == 1 else say("{count} boxes ticked", count=passed)]
    if failed:
        told.append(say("{count} open", count=failed))
    if skipped and passed:
        left = say("{count} not applicable or not looked at", count=skipped)
        told.append(left if whole else left + say(" (`--verbose` shows them)"))
    elif skipped:
        told.append(say("the others wait for that"))
    session.err.line(say(", ").join(told))
    if bad:
        names = ", ".join(f"`{one_line(report.name)}`" for report in bad[:5])
        more = say(" and {count} more", count=len(bad) - 5) if len(bad) > 5 else ""
        session.err.line(say("Not done: {names}", names=names + more))


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
@click.option(
    "--strict",
    is_flag=True,
    help=say("Check against the published specification, and nothing else."),
)
def validate(session: Session, paths: tuple[str, ...], strict: bool, as_json: bool) -> int:
    """One block per file."""
    from satchel.errors import SatchelError
    from satchel.skill.problems import Problem
    from satchel.skill.validate import validate_folder

    given = [session.satchel.settings.project] if not paths else list(paths)
    files = [file for path in given for file in _skill_files(session, path, named=bool(paths))]
    results: dict[str, list[Problem]] = {}
    for file in dict.fromkeys(files):
        try:
            results[file] = validate_folder(file, strict=strict)
        except SatchelError as exc:
            results[file] = [Problem("unreadable", file, values={"reason": exc.message})]
    bad = {file for file, rows in results.items() if _fails(rows, strict=strict)}
    if as_json:
        write_json([
            {"path": file, "ok": file not in bad, "problems": [row.to_dict() for row in rows]}
            for file, rows in results.items()
        ])  # fmt: skip
        return 1 if bad else 0
    out = session.out
    wrong = say("breaks the specification") if strict else say("wrong")
    for file, rows in results.items():
        mark, colour, word = ("✗", "red", wrong) if file in bad else ("✓", "green", say("ok"))
        lead = [(f"{mark} {word}", colour), ("  ", "")]
        out.line(one_line(short_path(file)), "bold" if rows else "", lead=lead)
        show_problems(out, rows, "  ", as_errors=strict)
    counts = count_problems(row for rows in results.values() for row in rows)
    if strict:
        counts = {"errors": sum(counts.values()), "warnings": 0, "notes": 0}
    session.err.line(checked(len(results), counts))
    return 1 if bad else 0


def _fails(problems: Iterable[Problem], *, strict: bool) -> bool:
    return any(strict or problem.severity == "error" for problem in problems)


def _skill_files(session: Session, path: str, *, named: bool) -> list[str]:
    """The SKILL.md and skill.yaml files that `path` means.

    Raises:
        NotFound: there is none.
    """
    from satchel.errors import NotFound
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
            for item in session.satchel.library.locations
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
