"""The command `check`: the check-list of skills, with fixes; `--spec` and `--overlap`."""

from __future__ import annotations

import os
from collections import Counter
from contextlib import suppress
from itertools import groupby
from typing import TYPE_CHECKING, TypedDict

import click

from satchel._fs import read_plain
from satchel.authoring.checklist import RULES, section_title
from satchel.cli import EXIT_FAILED, EXIT_INCOMPLETE
from satchel.cli.commands.show import count_problems, problem_summary, show_fix, show_problems
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
from satchel.cli.options import all_option, cannot_combine, flag_option, needs
from satchel.cli.plan_prompt import confirm_and_apply, decide_options
from satchel.errors import NotFound, Refused, SatchelError
from satchel.i18n import join_names, render, say
from satchel.presentation.change_words import problem_counts
from satchel.skill.file_tree import skill_md_name
from satchel.skill.model import DEPENDENCIES
from satchel.skill.problems import Problem
from satchel.skill.reader import MAX_FILE_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Unpack

    from satchel.authoring.checklist import CheckReport, CheckResult, CheckRule
    from satchel.authoring.overlap import Overlap, OverlapPair
    from satchel.authoring.tool_trial import SkipReason
    from satchel.cli.console import Screen
    from satchel.cli.context import CliContext
    from satchel.skill.model import Skill
    from satchel.store.store import Store

_RESULT_MARKS = {"pass": ("✓", "green"), "skip": ("–", "dim")}
_LIST_TITLES = {"tool": "tool", "packaged": "package", "skill": "SKILL.md"}
_MAX_PAIRS_SHOWN = 20


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
@flag_option("--fix", say("Fix what is mechanical; `satchel undo` takes it back."))
@decide_options
def check(
    context: CliContext,
    skills: tuple[str, ...],
    everything: bool,
    packaged: tuple[str, ...],
    run: bool,
    spec: bool,
    overlap: bool,
    strict: bool,
    fix: bool,
    **decision: Unpack[FixDecision],
) -> int:
    as_json = decision["as_json"]
    if fix:
        return _fix_skills(context, skills, everything=everything, **decision)
    _require_no_decision(**decision)
    if overlap:
        name = skills[0] if skills else None
        return check_overlap(context, name, strict=strict, as_json=as_json)
    if spec:
        return _check_spec(context, skills, strict=strict, as_json=as_json)
    folders: dict[str, Skill | None] = {}
    if skills or not packaged:
        folders = _folders_to_check(context, skills, everything=everything)
    reports, skip_reasons = _check_all(context, folders, run_programs=run)
    if packaged:
        from satchel.authoring.check_packaged import check_packaged

        reports += [check_packaged(name) for name in packaged]
    has_failed = any(report.failures(strict=strict) for report in reports)
    status = EXIT_FAILED if has_failed else _skip_status(skip_reasons)
    if as_json:
        write_json([report.to_dict(strict=strict) for report in reports])
        return status
    for report in reports:
        _print_report(context.out, report, strict=strict)
    _print_summary(context, reports, strict=strict)
    return status


class FixDecision(TypedDict):
    """Options that decide how a plan is confirmed and applied."""

    yes: bool
    dry_run: bool
    as_json: bool


def _require_no_decision(**decision: Unpack[FixDecision]) -> None:
    """Refuse options that only a plan has."""
    if decision["yes"] or decision["dry_run"]:
        raise needs("--yes, --dry-run", "--fix")


def _fix_skills(
    context: CliContext,
    skills: tuple[str, ...],
    *,
    everything: bool,
    **decision: Unpack[FixDecision],
) -> int:
    """Fix what is mechanical, then show what is left with its lines; fails on errors left."""
    folders = _folders_to_check(context, skills, everything=everything)
    plans = _find_fixes(context, folders)
    if decision["as_json"] and len(plans) > 1:
        raise cannot_combine("--json", *(short_path(store.scope.folder) for store, _ in plans))
    status = 0
    for store, scripts in plans:
        with store.plan_fix(scripts) as plan:
            status = confirm_and_apply(context, store, plan, **decision) or status
    if decision["as_json"] or decision["dry_run"]:
        return status
    problems = [problem for folder in folders for problem in _serious_problems(folder)]
    for path, group in groupby(problems, key=lambda problem: problem.path):
        context.out.line(one_line(short_path(path)), "cyan")
        show_problems(context.out, list(group), "  ")
    context.err.line(problem_summary(len(folders), count_problems(problems)))
    has_errors = any(problem.severity == "error" for problem in problems)
    return status or (EXIT_FAILED if has_errors else 0)


def _serious_problems(folder: str) -> list[Problem]:
    """The problems that a person has to solve: no notes."""
    from satchel.diagnosis.file_problems import find_folder_problems

    return [problem for problem in find_folder_problems(folder) if problem.severity != "note"]


def _find_fixes(
    context: CliContext, folders: Iterable[str]
) -> list[tuple[Store, dict[str, list[str]]]]:
    """Each store with its skills that have mechanical fixes, and their scripts to change."""
    from satchel.diagnosis.file_problems import find_folder_problems
    from satchel.skill.file_fixes import fix_skill_md

    satchel = context.satchel
    stores = {store.scope.folder: store for store in satchel.agent_stores()}
    stores |= {store.scope.folder: store for store in map(satchel.store, ("global", "project"))}
    scripts: dict[str, dict[str, list[str]]] = {}
    for folder in folders:
        root, name = os.path.split(folder)
        problems = find_folder_problems(folder)
        paths = [problem.values["file"] for problem in problems if problem.code == "script-ends"]
        file = skill_md_name(os.listdir(folder))
        data = b""
        with suppress(OSError):  # among the problems
            data = read_plain(os.path.join(folder, file), MAX_FILE_BYTES)
        if root in stores and (paths or fix_skill_md(data, name) != data):
            scripts.setdefault(root, {})[name] = paths
    return [(stores[root], ids) for root, ids in scripts.items()]


def _skip_status(skip_reasons: Sequence[SkipReason]) -> int:
    """The exit code for programs that were not run."""
    if "refused" in skip_reasons:
        return Refused.exit_code
    return EXIT_INCOMPLETE if skip_reasons else 0


def _folders_to_check(
    context: CliContext, references: tuple[str, ...], *, everything: bool
) -> dict[str, Skill | None]:
    """The folders to check, each with its skill if the library has it."""
    from satchel.authoring.check_skill import main_files

    skills = context.satchel.library.every()
    by_folder = {skill.base_dir: skill for skill in skills if not skill.origin.remote}
    folders: dict[str, Skill | None] = {}
    for reference in references:
        for folder in skill_folders(context, reference):
            if not main_files(folder) and not os.path.lexists(os.path.join(folder, "skill.yml")):
                raise NotFound(
                    say("There is no SKILL.md in `{path}`", path=reference),
                    say("Run `{command}`", command="satchel new"),
                )
            folders[folder] = by_folder.get(folder)
    if references:
        return folders
    excluded_sources = () if everything else ("builtin", "system", "global", *DEPENDENCIES)
    folders |= {
        folder: skill for folder, skill in by_folder.items() if skill.source not in excluded_sources
    }
    folders |= {folder: None for folder in broken_folders(context) if folder not in by_folder}
    if not folders:
        raise no_skills()
    return dict(sorted(folders.items()))


def _check_all(
    context: CliContext, folders: dict[str, Skill | None], *, run_programs: bool
) -> tuple[list[CheckReport], list[SkipReason]]:
    """Check the folders; also the reasons why programs were not run."""
    from satchel.authoring.check_skill import check_folder
    from satchel.authoring.tool_trial import is_listed, make_program_check

    satchel = context.satchel
    skip_reasons: list[SkipReason] = []
    check_program = make_program_check(satchel, skip_reasons) if run_programs else None
    reports: list[CheckReport] = []
    try:
        for folder, skill in folders.items():
            is_listed_skill = None if skill is None else is_listed(satchel, folder)
            reports += check_folder(folder, check_program=check_program, listed=is_listed_skill)
    finally:
        if run_programs:
            satchel.close()
    return reports, skip_reasons


def _print_report(out: Screen, report: CheckReport, *, strict: bool) -> None:
    is_failed = bool(report.failures(strict=strict))
    mark, colour = ("✗", "red") if is_failed else ("✓", "green")
    name = one_line(report.name)
    out.write(
        f"{out.paint(mark, colour)} {out.paint(name, 'bold')}  {say(_LIST_TITLES[report.list])}  "
        f"{out.paint(one_line(short_path(report.path)), 'dim')}\n"
    )
    section = ""
    for rule_id, results in _shown_results(report).items():
        rule = RULES[rule_id]
        if rule.section != section:
            section = rule.section
            out.line(say(section_title(section, report.list)), "dim", indent="  ")
        _print_rule(out, report, rule, results)


def _shown_results(report: CheckReport) -> dict[str, list[CheckResult]]:
    """The failures of each rule, or its open result."""
    by_rule: dict[str, list[CheckResult]] = {}
    for result in report.verdicts:
        if result.state == "fail" or result.is_open:
            by_rule.setdefault(result.rule, []).append(result)
    return by_rule


def _print_rule(
    out: Screen, report: CheckReport, rule: CheckRule, results: list[CheckResult]
) -> None:
    if results[0].state != "fail":
        lead = [_RESULT_MARKS[results[0].state], (" ", "")]
        out.line(say(rule.demand), indent="    ", hang="      ", lead=lead)
    if results[0].state == "skip":
        out.line(one_line(results[0].reason), "dim", indent="      ")
    for result in results:
        if result.state == "fail":
            _print_failure(out, report, result)


def _print_failure(out: Screen, report: CheckReport, result: CheckResult) -> None:
    relative_path = os.path.relpath(result.path, report.path) if result.path else ""
    location = ""
    if relative_path not in ("", "."):
        location = f"{relative_path}:{result.line}" if result.line else relative_path
    mark, colour = SEVERITIES[result.severity]
    lead = [
        (f"{mark} {say(result.severity)}", colour),
        (f" {result.code}{f' ({one_line(location)})' if location else ''}{say(': ')}", ""),
    ]
    out.line(one_line(result.message), indent="    ", hang="      ", lead=lead)
    show_fix(out, result.fix, "      ")


def _print_summary(context: CliContext, reports: list[CheckReport], *, strict: bool) -> None:
    """Count the rules that passed, failed, and failed without consequence."""
    passed = failed = 0
    other_counts: Counter[str] = Counter()
    for report in reports:
        failed_codes = {result.code for result in report.failures(strict=strict)}
        passed += sum(result.state == "pass" for result in report.verdicts)
        failed += len(failed_codes)
        other_counts.update(
            severity for code, severity in report.failed_codes.items() if code not in failed_codes
        )
    text = say("{passed} passed, {failed} failed", passed=f"{passed:,}", failed=f"{failed:,}")
    context.err.line(
        join_names(
            filter(None, (text, problem_counts(0, other_counts["warning"], other_counts["note"])))
        )
    )


def _check_spec(context: CliContext, paths: tuple[str, ...], *, strict: bool, as_json: bool) -> int:
    """Check skill files; with `strict`, every deviation from the specification fails."""
    from satchel.authoring.check_skill import main_files

    folders = _folders_to_check(context, paths, everything=False)
    files = [os.path.join(folder, name) for folder in folders for name in main_files(folder)]
    results = {file: _validate(file, strict=strict) for file in dict.fromkeys(files)}
    failed_files = {file for file, rows in results.items() if _has_failed(rows, strict=strict)}
    if as_json:
        write_json([
            {
                "path": file,
                "ok": file not in failed_files,
                "problems": [problem.to_dict() for problem in problems],
            }
            for file, problems in results.items()
        ])  # fmt: skip
        return EXIT_FAILED if failed_files else 0
    for file, rows in results.items():
        _print_file(context.out, file, rows, failed=file in failed_files, strict=strict)
    counts = count_problems(row for rows in results.values() for row in rows)
    if strict:
        counts = {"errors": sum(counts.values()), "warnings": 0, "notes": 0}
    context.err.line(problem_summary(len(results), counts))
    return EXIT_FAILED if failed_files else 0


def _has_failed(problems: list[Problem], *, strict: bool) -> bool:
    return any(strict or problem.severity == "error" for problem in problems)


def _validate(file: str, *, strict: bool) -> list[Problem]:
    from satchel.skill.validate import validate_folder

    try:
        return validate_folder(file, strict=strict)
    except SatchelError as exc:
        return [Problem("unreadable", file, values={"reason": exc.message})]


def _print_file(
    out: Screen, file: str, problems: list[Problem], *, failed: bool, strict: bool
) -> None:
    lead = [(f"✗ {say('failed')}", "red") if failed else (f"✓ {say('ok')}", "green"), ("  ", "")]
    out.line(one_line(short_path(file)), "bold" if problems else "", lead=lead)
    show_problems(out, problems, "  ", as_errors=strict)


def check_overlap(context: CliContext, name: str | None, *, strict: bool, as_json: bool) -> int:
    """Print overlapping skills; with `strict`, near duplicates and untrusted skills fail."""
    overlap = _find_overlap(context, name)
    untrusted = context.satchel.library.untrusted_notice()
    has_copies = strict and any(pair.is_near_copy for pair in overlap.pairs)
    status = EXIT_FAILED if has_copies else EXIT_INCOMPLETE if strict and untrusted else 0
    if as_json:
        write_json({
            "ok": status == 0,
            "skills": overlap.skill_count,
            "untrusted": len(context.satchel.library.untrusted_skills()),
            "pairs": [pair.to_dict() for pair in overlap.pairs],
            "more": overlap.is_cut,
        })  # fmt: skip
    else:
        _print_overlap(context, overlap)
        if untrusted:
            context.err.line(render(untrusted), "yellow")
    return status


def _find_overlap(context: CliContext, name: str | None) -> Overlap:
    from satchel.authoring.overlap import find_overlap
    from satchel.authoring.trigger_tests import skills_with
    from satchel.cli.commands.trigger_tests import find_one_skill

    satchel = context.satchel
    skills = satchel.library.snapshot().for_model
    with suppress(OSError, SatchelError):  # another process is indexing, or a model is unavailable
        satchel.prepare()
    detector = satchel.detector.detector
    with ProgressBar(say("Checking")) as bar:

        def show_progress(completed: int, total: int) -> None:
            bar("", completed, total)

        if name is None:
            return find_overlap(skills, detector, limit=_MAX_PAIRS_SHOWN, progress=show_progress)
        skill = find_one_skill(context, name)
        compared_skills = skills_with(skills, skill)
        return find_overlap(
            compared_skills, detector, skill, limit=_MAX_PAIRS_SHOWN, progress=show_progress
        )


def _print_overlap(context: CliContext, overlap: Overlap) -> None:
    copies = [pair for pair in overlap.pairs if pair.is_near_copy]
    groups = ((say("Near duplicates"), copies), (say("Overlapping"), overlap.pairs[len(copies) :]))
    for title, pairs in groups:
        if pairs:
            context.out.line(title, "bold")
        for pair in pairs:
            _print_pair(context.out, pair)
    parts = [say("{skills} compared", skills=count_skills(overlap.skill_count))]
    if overlap.is_cut:
        parts.append("…")
    if not overlap.pairs:
        parts.append(say("none overlap"))
    context.err.line(say(", ").join(parts))


def _print_pair(out: Screen, pair: OverlapPair) -> None:
    is_same_name = pair.first.name == pair.other.name
    names = [_label(skill, by_folder=is_same_name) for skill in (pair.first, pair.other)]
    lead = [(f"{_format_score(pair.score)}  ", "yellow" if pair.is_near_copy else "dim")]
    out.line(join_names(names), indent="  ", hang="        ", lead=lead)
    shared_words = join_names(one_line(word) for word in pair.shared) or say("nothing")
    label = [(say("both"), "dim"), (say(": "), "dim")]
    out.line(shared_words, indent="        ", hang="          ", lead=label)


def _label(skill: Skill, *, by_folder: bool) -> str:
    return one_line(short_path(skill.base_dir) if by_folder else skill.name)


def _format_score(score: float) -> str:
    """Two digits, truncated: only equal words show 1.00, only near copies 0.90 and more."""
    return f"{int(score * 100 + 1e-6) / 100:.2f}"
