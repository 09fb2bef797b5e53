"""The command `check`: the check-list of skills, with fixes; `--spec` and `--overlap`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from satchel.authoring.checklist import RULES, title_of
from satchel.cli import EXIT_FAILED, EXIT_INCOMPLETE
from satchel.cli.commands.show import checked, count_problems, show_problems
from satchel.cli.commands.test import find_subject
from satchel.cli.console import SEVERITIES, count_skills, one_line, write_json
from satchel.cli.context import (
    ProgressBar,
    broken_folders,
    command,
    no_skills,
    short_path,
    skill_argument,
    skill_folders,
)
from satchel.cli.options import all_option, flag_option
from satchel.errors import NotFound, SatchelError
from satchel.i18n import join_names, say
from satchel.presentation.change_words import counted
from satchel.skill.problems import Problem

if TYPE_CHECKING:
    from satchel.authoring.checklist import CheckReport, CheckResult
    from satchel.authoring.overlap import Overlap, OverlapPair
    from satchel.authoring.tool_trial import Unrun
    from satchel.cli.console import Screen
    from satchel.cli.context import CliContext
    from satchel.skill.model import Skill

_TICKS = {"pass": ("✓", "green"), "fail": ("✗", "red"), "skip": ("–", "dim")}
_LISTS = {"tool": "tool", "packaged": "package", "skill": "SKILL.md"}


@command(
    say("Check skills against the check-list, with fixes."),
    "satchel check",
    "satchel check word-count --run",
    "satchel check .agents/skills --spec --strict",
)
@skill_argument("skills", nargs=-1, metavar="[SKILL]...")
@all_option(say("Also skills outside the project."))
@click.option(
    "--packaged", multiple=True, metavar="NAME", help=say("A packaged skill; repeatable.")
)
@flag_option("--run", say("Also run the programs of tool skills, in the sandbox."))
@flag_option("--spec", say("Check the files against the published specification instead."))
@flag_option("--overlap", say("Show skills that are easily confused instead."))
@flag_option("--strict", say("Warnings count as errors."))
def check(
    context: CliContext,
    skills: tuple[str, ...],
    everything: bool,
    packaged: tuple[str, ...],
    run: bool,
    spec: bool,
    overlap: bool,
    strict: bool,
    as_json: bool,
) -> int:
    if overlap:
        name = skills[0] if skills else None
        return check_overlap(context, name, strict=strict, as_json=as_json)
    if spec:
        return _check_spec(context, skills, strict=strict, as_json=as_json)
    targets = {} if packaged and not skills else _targets(context, skills, everything=everything)
    unrun: list[Unrun] = []
    proof = unrun if run else None
    reports = _check_all(context, targets, proof)
    if packaged:
        from satchel.authoring.check_packaged import check_packaged

        reports += [check_packaged(name) for name in packaged]
    bad = [report for report in reports if report.failed(strict=strict)]
    status = 1 if bad else 4 if "refused" in unrun else EXIT_INCOMPLETE if unrun else 0
    if as_json:
        write_json([report.to_dict(strict=strict) for report in reports])
        return status
    for report in reports:
        _show(context.out, report, strict=strict)
    _print_summary(context, reports, strict=strict)
    return status


def _targets(
    context: CliContext, given: tuple[str, ...], *, everything: bool
) -> dict[str, Skill | None]:
    """The folders to check, each with its skill if the library has it."""
    from satchel.authoring.check_skill import main_files

    every = context.satchel.library.every()
    known = {one.base_dir: one for one in every if not one.origin.remote}
    found: dict[str, Skill | None] = {}
    for word in given:
        for folder in skill_folders(context, word):
            if not main_files(folder) and not os.path.lexists(os.path.join(folder, "skill.yml")):
                raise NotFound(
                    say("There is no SKILL.md in `{path}`", path=word),
                    say("Run `{command}`", command="satchel new"),
                )
            found[folder] = known.get(folder)
    if given:
        return found
    own = () if everything else ("builtin", "system", "global")
    found |= {folder: skill for folder, skill in known.items() if skill.source not in own}
    found |= {folder: None for folder in broken_folders(context) if folder not in known}
    if not found:
        raise no_skills()
    return dict(sorted(found.items()))


def _check_all(
    context: CliContext, targets: dict[str, Skill | None], proof: list[Unrun] | None
) -> list[CheckReport]:
    """Check the targets; with `proof`, run their programs and add those that were not run to it."""
    from satchel.authoring.check_skill import check_folder
    from satchel.authoring.tool_trial import is_listed, make_runner

    satchel = context.satchel
    prove = None if proof is None else make_runner(satchel, proof)
    reports: list[CheckReport] = []
    try:
        for folder, skill in targets.items():
            listed = None if skill is None else is_listed(satchel, folder)
            reports += check_folder(folder, prove=prove, listed=listed)
    finally:
        if proof is not None:
            satchel.close()
    return reports


def _show(out: Screen, report: CheckReport, *, strict: bool) -> None:
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
        shown = verdict.state == "fail" or verdict.open
        if verdict.rule in seen or not shown:
            continue
        seen.add(verdict.rule)
        if rule.section != section:
            section = rule.section
            out.line(say(title_of(section, report.list)), "dim", "  ")
        tick, style = _TICKS[verdict.state]
        if verdict.state == "fail" and verdict.severity != "error":
            tick, style = SEVERITIES[verdict.severity]
        if verdict.state != "fail":
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
    out.line(one_line(verdict.message), "", "    ", "      ", lead)
    out.line(one_line(verdict.fix), "", "      → ")


def _print_summary(context: CliContext, reports: list[CheckReport], *, strict: bool) -> None:
    """Count the rules that passed, failed, and failed without consequence."""
    passed = failed = warned = 0
    for report in reports:
        bad = {one.rule for one in report.failed(strict=strict)}
        passed += sum(one.state == "pass" for one in report.verdicts)
        failed += len(bad)
        warned += len(report.failing - bad)
    text = say("{passed} passed, {failed} failed", passed=f"{passed:,}", failed=f"{failed:,}")
    context.err.line(join_names(filter(None, (text, counted(0, warned, 0)))))


def _check_spec(context: CliContext, paths: tuple[str, ...], *, strict: bool, as_json: bool) -> int:
    """Check skill files; with `strict`, every deviation from the specification fails."""
    from satchel.authoring.check_skill import main_files
    from satchel.skill.validate import validate_folder

    folders = _targets(context, paths, everything=False)
    files = [os.path.join(folder, name) for folder in folders for name in main_files(folder)]
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
    wrong = say("failed")
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


_MAX_PAIRS_SHOWN = 20


def check_overlap(context: CliContext, name: str | None, *, strict: bool, as_json: bool) -> int:
    """Print overlapping skills; with `strict`, near duplicates fail."""
    found = _compare(context, name)
    bad = strict and any(pair.copy for pair in found.pairs)
    if as_json:
        write_json({
            "ok": not bad,
            "skills": found.skills,
            "pairs": [pair.to_dict() for pair in found.pairs],
            "more": found.more,
        })  # fmt: skip
    else:
        _show_overlap(context, found)
    return EXIT_FAILED if bad else 0


def _compare(context: CliContext, name: str | None) -> Overlap:
    from satchel.authoring.overlap import compare

    skills = context.satchel.library.snapshot().for_model
    with ProgressBar(say("Checking")) as bar:

        def show(done: int, total: int) -> None:
            bar("", done, total)

        if name is None:
            return compare(skills, limit=_MAX_PAIRS_SHOWN, progress=show)
        from satchel.authoring.trigger_tests import skills_with

        skill = find_subject(context, name)
        among = skills_with(skills, skill)
        return compare(among, skill, limit=_MAX_PAIRS_SHOWN, progress=show)


def _show_overlap(context: CliContext, found: Overlap) -> None:
    copies = [pair for pair in found.pairs if pair.copy]
    groups = ((say("Near duplicates"), copies), (say("Overlapping"), found.pairs[len(copies) :]))
    for title, pairs in groups:
        if pairs:
            context.out.line(title, "bold")
        for pair in pairs:
            _show_pair(context.out, pair)
    parts = [say("{skills} compared", skills=count_skills(found.skills))]
    if found.more:
        parts.append("…")
    if not found.pairs:
        parts.append(say("none overlap"))
    context.err.line(say(", ").join(parts))


def _show_pair(out: Screen, pair: OverlapPair) -> None:
    several = pair.one.name == pair.other.name
    names = [_label(one, by_folder=several) for one in (pair.one, pair.other)]
    lead = [(f"{_format_score(pair.score)}  ", "yellow" if pair.copy else "dim")]
    out.line(join_names(names), "", "  ", "        ", lead)
    shown = join_names(one_line(word) for word in pair.shared) or say("nothing")
    out.line(shown, "", "        ", "          ", [(say("both"), "dim"), (say(": "), "dim")])


def _label(skill: Skill, *, by_folder: bool) -> str:
    return one_line(short_path(skill.base_dir) if by_folder else skill.name)


def _format_score(score: float) -> str:
    """Two digits, truncated: only equal words show 1.00, only near copies 0.90 and more."""
    return f"{int(score * 100 + 1e-6) / 100:.2f}"
