"""`satchel scan`: scans skills for security risks."""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING

import click

from satchel.cli import EXIT_FAILED
from satchel.cli.console import one_line, plural, write_json
from satchel.cli.context import (
    command,
    complete_names,
    no_skills,
    no_such,
    short_path,
    skill_folders,
    with_progress,
)
from satchel.cli.options import all_option, cannot_combine, flag_option
from satchel.diagnosis.file_problems import unscanned_report
from satchel.errors import SatchelError
from satchel.i18n import join_names, render, say, similar_names
from satchel.presentation.findings import group_findings
from satchel.skill.file_tree import FolderTree

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from satchel.cli.console import Screen
    from satchel.cli.context import CliContext
    from satchel.presentation.findings import FindingGroup
    from satchel.security.report import ScanReport
    from satchel.skill.file_tree import Tree
    from satchel.skill.model import Skill

_VERDICT_MARKS = {
    "blocked": ("✗", "red"),
    "incomplete": ("?", "yellow"),
    "review": ("▲", "yellow"),
    "no findings": ("·", "dim"),
}
_TONE_COLOURS = {"bad": "red", "warn": "yellow", "info": "dim"}
_MAX_PLACES_SHOWN = 8
"""Places of one rule, or unscanned files, that are listed."""


@command(
    say("Scan skills for security risks."),
    "satchel scan ~/Downloads/some-skill",
    "satchel scan --all --strict",
    "satchel scan --all --json",
)
@click.argument("names", nargs=-1, metavar="[PATH|NAME]...", shell_complete=complete_names)
@all_option(say("All skills."))
@flag_option("--strict", say("Warnings count as errors."))
@click.option("--ignore", multiple=True, metavar="RULE", help=say("Ignore a rule; repeatable."))
def scan(
    context: CliContext,
    names: tuple[str, ...],
    everything: bool,
    strict: bool,
    ignore: tuple[str, ...],
    as_json: bool,
) -> int:
    """Print one block per skill."""
    if (names and everything) or not (names or everything):
        raise cannot_combine("PATH", "NAME", "--all")
    folders = _folders_to_scan(context, names)
    for rule in ignore:
        _require_rule(rule)
    by_folder = {skill.base_dir: skill for skill in context.satchel.library.every()}
    scanned = _scan_folders(context, folders, by_folder)
    reports = {folder: report.without(ignore) for folder, report in scanned}
    failed = [report for report in reports.values() if _has_failed(report, strict=strict)]
    if as_json:
        write_json([{"path": folder, **report.to_dict()} for folder, report in reports.items()])
    else:
        # Those with findings last, beside the summary, where they are seen among hundreds.
        for folder, report in sorted(
            reports.items(), key=lambda pair: pair[1].verdict != "no findings"
        ):
            _print_report(context.out, folder, report)
    _print_summary(context, reports)
    return EXIT_FAILED if failed else 0


def _has_failed(report: ScanReport, *, strict: bool) -> bool:
    failing_severities = {"block", "review"} if strict else {"block"}
    return bool(report.unscanned) or any(
        finding.severity in failing_severities for finding in report.findings
    )


# --- selection ----------------------------------------------------------------------------


def _folders_to_scan(context: CliContext, names: Sequence[str]) -> list[str]:
    """Return the folders to scan; without names, all of the project."""
    if names:
        return list(
            dict.fromkeys(folder for name in names for folder in skill_folders(context, name))
        )
    skills = context.satchel.library.every()
    folders = [skill.base_dir for skill in skills if skill.source not in ("builtin", "server")]
    if not folders:
        raise no_skills()
    return list(dict.fromkeys(folders))


def _scan_folders(
    context: CliContext, folders: Sequence[str], by_folder: Mapping[str, Skill]
) -> Iterator[tuple[str, ScanReport]]:
    """Scan each folder; the report of a skill of the library is cached for all interfaces."""
    from satchel.security import scan_tree

    for folder in with_progress(folders, say("Scanning")):
        try:
            if folder in by_folder:
                yield folder, context.satchel.scan(by_folder[folder])
                continue
            for path, tree in _open_trees(folder):
                yield path, scan_tree(tree)
        except (SatchelError, OSError) as exc:
            yield folder, unscanned_report(exc)


def _open_trees(path: str) -> Iterator[tuple[str, Tree]]:
    """Yield the skills at a path: a folder, or the members of an archive, which is not unpacked."""
    if os.path.isdir(path):
        yield path, FolderTree(path)
        return
    from satchel.store.archive import open_archive
    from satchel.store.sources import find_skills, subtree

    with open_archive(path) as archive:
        skills = find_skills(archive)
        for skill in skills:
            yield os.path.join(path, skill.path), subtree(archive, skill.path)
        if not skills:
            yield path, subtree(archive)


# --- output -------------------------------------------------------------------------------


def _print_report(out: Screen, folder: str, report: ScanReport) -> None:
    mark, colour = _VERDICT_MARKS[report.verdict]
    heading_style = colour if report.verdict == "blocked" else "bold"
    out.line(
        one_line(short_path(folder)),
        heading_style if report.verdict != "no findings" else "",
        lead=[(f"{mark} {say(report.verdict)}", colour), ("  ", "")],
    )
    for group in group_findings((None, finding) for finding in report.findings):
        _print_group(out, group)
    for path, reason in report.unscanned[:_MAX_PLACES_SHOWN]:
        text = say("not scanned: {path} ({reason})", path=one_line(path), reason=render(reason))
        out.line(text, indent="  ? ")
    hidden_count = len(report.unscanned) - _MAX_PLACES_SHOWN
    if hidden_count > 0:
        out.line(say("… and {count} more", count=hidden_count), indent="  ? ")


def _print_group(out: Screen, group: FindingGroup) -> None:
    lead = [(f"{group.symbol} {group.severity} {group.key}", _TONE_COLOURS[group.tone]), (": ", "")]
    out.line(group.message, indent="  ", hang="    ", lead=lead)
    for finding in group.locations[:_MAX_PLACES_SHOWN]:
        location = [(one_line(finding.location), "cyan"), ("  ", "")]
        out.line(one_line(finding.message), "dim", indent="    ", hang="      ", lead=location)
    hidden_count = group.total - _MAX_PLACES_SHOWN
    if hidden_count > 0:
        out.line(say("… and {count} more", count=hidden_count), "dim", indent="    ")
    out.line(group.fix, indent="    → ", hang="      ")


def _print_summary(context: CliContext, reports: Mapping[str, ScanReport]) -> None:
    counts = Counter(report.verdict for report in reports.values())
    verdict_labels = {name: say(name) for name in _VERDICT_MARKS} | {
        "no findings": say("without findings")
    }
    labels = [
        plural(counts[name], label, label)
        for name, label in verdict_labels.items()
        if name in counts
    ]
    context.err.line(say("Scan: {counts}", counts=join_names(labels)))


def _require_rule(name: str) -> None:
    from satchel.security.rules import RULES

    if name not in RULES:
        raise no_such(say("rule"), name, similar_names(name, RULES, 3))
