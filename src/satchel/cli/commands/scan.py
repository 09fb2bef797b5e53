"""`satchel scan`: scans skills for security risks."""

from __future__ import annotations

import difflib
import os
from collections import Counter
from typing import TYPE_CHECKING

import click

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
from satchel.errors import SatchelError
from satchel.i18n import join_names, render, say
from satchel.presentation.findings import (
    group_findings,
    unscanned_report,
)
from satchel.skill.file_tree import FolderTree

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from satchel.cli.console import Screen
    from satchel.cli.context import CliContext
    from satchel.presentation.findings import FindingGroup
    from satchel.security.report import ScanReport
    from satchel.security.rules import ScanRule
    from satchel.skill.file_tree import Tree
    from satchel.skill.model import Skill

_VERDICTS = {
    "blocked": ("✗", "red"),
    "incomplete": ("?", "yellow"),
    "review": ("▲", "yellow"),
    "no findings": ("·", "dim"),
}
_COLOURS = {"bad": "red", "warn": "yellow", "info": "dim"}
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
@click.option(
    "--ignore",
    multiple=True,
    metavar="RULE",
    help=say("Ignore a rule; repeatable."),
)
def scan(
    session: CliContext,
    names: tuple[str, ...],
    everything: bool,
    strict: bool,
    ignore: tuple[str, ...],
    as_json: bool,
) -> int:
    """Print one block per skill."""
    if bool(names) == everything:
        raise cannot_combine("PATH", "NAME", "--all")
    folders = _folders(session, names)
    for rule in ignore:
        _rule(rule)
    known = {skill.base_dir: skill for skill in session.satchel.library.every()}
    found = _reports(session, folders, known)
    reports = {folder: report.without(ignore) for folder, report in found}
    failed = [report for report in reports.values() if _fails(report, strict=strict)]
    if as_json:
        write_json([{"path": folder, **report.to_dict()} for folder, report in reports.items()])
    else:
        for folder, report in reports.items():
            _show(session.out, folder, report)
    _summary(session, reports)
    return 1 if failed else 0


def _fails(report: ScanReport, *, strict: bool) -> bool:
    levels = {"block", "review"} if strict else {"block"}
    return bool(report.unscanned) or any(one.severity in levels for one in report.findings)


# --- selection ----------------------------------------------------------------------------


def _folders(session: CliContext, names: Sequence[str]) -> list[str]:
    """The folders to scan; without names, all of the project."""
    if names:
        return list(dict.fromkeys(one for name in names for one in skill_folders(session, name)))
    every = session.satchel.library.every()
    found = [skill.base_dir for skill in every if skill.source not in ("builtin", "server")]
    if not found:
        raise no_skills()
    return list(dict.fromkeys(found))


def _reports(
    session: CliContext, folders: Sequence[str], known: Mapping[str, Skill]
) -> Iterator[tuple[str, ScanReport]]:
    """Scan each folder; the report of a skill of the library is cached for all interfaces."""
    from satchel.security import scan_tree

    for folder in with_progress(folders, say("Scanning")):
        try:
            if folder in known:
                yield folder, session.satchel.scan(known[folder])
                continue
            for path, tree in _trees(folder):
                yield path, scan_tree(tree)
        except (SatchelError, OSError) as exc:
            yield folder, unscanned_report(exc)


def _trees(path: str) -> Iterator[tuple[str, Tree]]:
    """The skills at a path: a folder, or the members of an archive, which is not unpacked."""
    if os.path.isdir(path):
        yield path, FolderTree(path)
        return
    from satchel.store.archive import open_archive
    from satchel.store.sources import find_skills, subtree

    with open_archive(path) as archive:
        found = find_skills(archive)
        for skill in found:
            yield os.path.join(path, skill.path), subtree(archive, skill.path)
        if not found:
            yield path, subtree(archive)


# --- output -------------------------------------------------------------------------------


def _show(out: Screen, folder: str, report: ScanReport) -> None:
    mark, colour = _VERDICTS[report.verdict]
    plain = colour if report.verdict == "blocked" else "bold"
    out.line(
        one_line(short_path(folder)),
        plain if report.verdict != "no findings" else "",
        lead=[(f"{mark} {say(report.verdict)}", colour), ("  ", "")],
    )
    for group in group_findings((None, finding) for finding in report.findings):
        _show_group(out, group)
    for path, reason in report.unscanned[:_MAX_PLACES_SHOWN]:
        text = say("not scanned: {path} ({reason})", path=one_line(path), reason=render(reason))
        out.line(text, indent="  ? ")
    more = len(report.unscanned) - _MAX_PLACES_SHOWN
    if more > 0:
        out.line(say("… and {count} more", count=more), indent="  ? ")


def _show_group(out: Screen, group: FindingGroup) -> None:
    lead = [(f"{group.mark} {group.severity} {group.key}", _COLOURS[group.mood]), (": ", "")]
    out.line(group.words, indent="  ", hang="    ", lead=lead)
    for place in group.places[:_MAX_PLACES_SHOWN]:
        where = [(one_line(place.where), "cyan"), ("  ", "")]
        out.line(one_line(place.words), "dim", indent="    ", hang="      ", lead=where)
    more = group.number - _MAX_PLACES_SHOWN
    if more > 0:
        out.line(say("… and {count} more", count=more), "dim", indent="    ")
    out.line(group.fix, indent="    → ", hang="      ")


def _summary(session: CliContext, reports: Mapping[str, ScanReport]) -> None:
    counts = Counter(report.verdict for report in reports.values())
    words = {name: say(name) for name in _VERDICTS} | {"no findings": say("without findings")}
    parts = [plural(counts[name], words[name], words[name]) for name in _VERDICTS if name in counts]
    session.err.line(say("Scan: {counts}", counts=join_names(parts)))


def _rule(name: str) -> ScanRule:
    from satchel.security.rules import RULES

    rule = RULES.get(name)
    if rule is None:
        raise no_such(say("rule"), name, difflib.get_close_matches(name, list(RULES), 3))
    return rule
