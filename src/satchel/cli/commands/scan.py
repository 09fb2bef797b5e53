"""`satchel scan`: scans skills for security risks."""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from satchel.cli.console import one_line, write_json
from satchel.cli.context import command, complete_names, short_path
from satchel.cli.options import AnyPath, OneOf
from satchel.errors import InvalidInput, NotFound, SatchelError
from satchel.i18n import listed, render, say
from satchel.library.locations import local_folder
from satchel.presentation.findings import (
    MARKS,
    TONES,
    group_findings,
    place_of,
    unscanned_report,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from satchel.cli.console import Screen
    from satchel.cli.context import CliContext
    from satchel.presentation.findings import FindingGroup
    from satchel.security.allowlist import Allowance
    from satchel.security.report import ScanReport
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
    say("Look for what a skill could do to you.")
    + "\n\n"
    + say(
        "PATH is a skill's folder, a folder with skills, or an archive; NAME is a skill of this "
        "project. The verdict is `blocked`, `review`, `incomplete` or `no findings`; none of them "
        "is a promise. Exits with 1 when something is blocked, or was not looked at; `--fail-on "
        "review` is stricter, `--allow-incomplete` less strict."
    ),
    "satchel scan ~/Downloads/some-skill",
    "satchel scan --all --fail-on review",
    "satchel scan .agents/skills --format sarif > scan.sarif",
    "satchel scan --explain fetch-and-run",
)
@click.argument("names", nargs=-1, metavar="[PATH|NAME]...", shell_complete=complete_names)
@click.option("--all", "everything", is_flag=True, help=say("Every skill of this project."))
@click.option(
    "--format",
    "form",
    type=OneOf(["text", "json", "sarif"]),
    default="text",
    help=say("How to print the result."),
)
@click.option(
    "--fail-on",
    type=OneOf(["block", "review"]),
    default="block",
    help=say("From which severity on to exit with 1; `block` by default."),
)
@click.option(
    "--allow-incomplete",
    is_flag=True,
    help=say("Do not exit with 1 only because something was not looked at."),
)
@click.option(
    "--rules", multiple=True, metavar="FILE", type=AnyPath(), help=say("YARA rules of your own.")
)
@click.option(
    "--allow",
    multiple=True,
    metavar="FILE",
    type=AnyPath(),
    help=say("An allow-list that counts in full, also for what blocks."),
)
@click.option("--explain", metavar="RULE", help=say("Say what a rule means, and nothing else."))
def scan(
    session: CliContext,
    names: tuple[str, ...],
    everything: bool,
    form: str,
    fail_on: str,
    allow_incomplete: bool,
    rules: tuple[str, ...],
    allow: tuple[str, ...],
    explain: str | None,
    as_json: bool,
) -> int:
    """Print one block per skill."""
    if explain is not None:
        return _explain(session, explain, as_json=as_json or form == "json")
    if not names and not everything:
        raise InvalidInput(
            say("Which skill? Give a path, a name or `--all`"),
            say("Run `{command} --help`", command="satchel scan"),
        )
    if names and everything:
        raise InvalidInput(
            say("Give names or `--all`, not both"),
            say("Run `{command} --help`", command="satchel scan"),
        )
    folders = _folders(session, names)
    form = "json" if as_json else form
    allowances, refused = _allowances(session, allow)
    if rules:
        from satchel.security.yara import load_rules

        load_rules(rules)  # an invalid file affects every skill
    own = () if rules or allow else session.satchel.library.every()
    known = {skill.base_dir: skill for skill in own}
    reports = dict(_reports(session, folders, allowances, rules, known))
    failed = [report for report in reports.values() if _fails(report, fail_on, allow_incomplete)]
    if form == "json":
        write_json([{"path": folder, **report.to_dict()} for folder, report in reports.items()])
    elif form == "sarif":
        _write_sarif(reports)
    else:
        for folder, report in reports.items():
            _show(session.out, folder, report)
    _summary(session, reports, refused)
    return 1 if failed else 0


def _fails(report: ScanReport, threshold: str, allow_incomplete: bool) -> bool:
    levels = {"block"} if threshold == "block" else {"block", "review"}
    return any(one.severity in levels for one in report.findings) or (
        bool(report.unscanned) and not allow_incomplete
    )


# --- selection ----------------------------------------------------------------------------


def _folders(session: CliContext, names: Sequence[str]) -> list[str]:
    """The folders to scan; without names, all of the project.

    Raises:
        NotFound: a name or path does not exist.
    """
    if not names:
        every = session.satchel.library.every()
        found = [skill.base_dir for skill in every if skill.source not in ("builtin", "server")]
        if not found:
            raise NotFound(
                say("There is no skill here"), say("Give the folder of a skill, or its name")
            )
        return list(dict.fromkeys(found))
    folders: list[str] = []
    for name in names:
        path = os.path.abspath(os.path.expanduser(name))
        if os.path.isfile(path):
            # A SKILL.md means its skill; any other file must be an archive.
            is_skill = os.path.basename(path).lower() in {"skill.md", "skill.yaml"}
            folders.append(os.path.dirname(path) if is_skill else path)
        elif os.path.isdir(path):
            folders += _below(path)
        elif os.sep in name:
            raise NotFound(
                say("There is no `{path}`", path=name), say("Give the folder of a skill")
            )
        else:
            folders.append(local_folder(session.find(name)[0]))
    return list(dict.fromkeys(folders))


def _below(path: str) -> list[str]:
    """The skill at `path`, else those below it, else the folder itself."""
    found: list[str] = []
    skipped = {".git", "node_modules", ".satchel"}
    for root, folders, files in os.walk(path):
        folders[:] = sorted(name for name in folders if name not in skipped)
        if any(name.lower() == "skill.md" or name == "skill.yaml" for name in files):
            found.append(root)
            folders.clear()
    return found or [path]


def _allowances(
    session: CliContext, given: Sequence[str]
) -> tuple[list[Allowance], list[Allowance]]:
    from satchel.security.allowlist import ALLOWLIST_FILE, gather_allowances

    settings = session.satchel.settings
    config = settings.paths.config
    own = os.path.join(os.path.dirname(config), ALLOWLIST_FILE) if config else ""
    missing = [path for path in given if not os.path.isfile(path)]
    if missing:
        raise NotFound(say("There is no `{path}`", path=missing[0]), say("Give an allow-list"))
    return gather_allowances(own, os.path.join(settings.project, ".agents", ALLOWLIST_FILE), given)


def _reports(
    session: CliContext,
    folders: Sequence[str],
    allowances: Sequence[Allowance],
    rules: Sequence[str],
    known: Mapping[str, Skill],
) -> Iterator[tuple[str, ScanReport]]:
    """Scan each folder; the report of a skill of the library is cached for all interfaces."""
    from satchel.cli.progress import with_progress
    from satchel.security import scan_tree

    for folder in with_progress(folders, say("Scanning")):
        try:
            if folder in known:
                yield folder, session.satchel.scan(known[folder])
                continue
            for path, tree in _trees(folder):
                name = os.path.basename(path)
                yield path, scan_tree(tree, name=name, allow=allowances, rules=rules)
        except (SatchelError, OSError) as exc:
            yield folder, unscanned_report(exc)


def _trees(path: str) -> Iterator[tuple[str, Tree]]:
    """The skills at a path: a folder, or the members of an archive, which is not unpacked."""
    from satchel.library.scanner import OWN_FOLDERS
    from satchel.skill.file_tree import FolderTree

    if os.path.isdir(path):
        # At the top of a project the skill is its file and its own folders, not the whole project.
        top = any(os.path.isdir(os.path.join(path, name)) for name in (".agents", ".git"))
        names = [name for name in os.listdir(path) if name.lower().startswith("skill.")]
        only = frozenset((*names, *OWN_FOLDERS)) if top and names else None
        yield path, FolderTree(path, only=only)
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
    for one in report.allowed:
        out.line(
            say(
                "{rule} in {place} is accepted until {date}: {reason}",
                rule=one.finding.rule,
                place=one_line(place_of(one.finding)),
                date=one.expires,
                reason=one_line(one.reason),
            ),
            "dim",
            indent="  · ",
        )
    for old in report.expired:
        out.line(say("The acceptance has expired: {what}", what=one_line(old)), indent="  ▲ ")
    for path, reason in report.unscanned[:_MAX_PLACES_SHOWN]:
        text = say("Not looked at: {path}: {reason}", path=one_line(path), reason=render(reason))
        out.line(text, indent="  ? ")
    more = len(report.unscanned) - _MAX_PLACES_SHOWN
    if more > 0:
        out.line(say("{count} more were not looked at", count=more), indent="  ? ")


def _show_group(out: Screen, group: FindingGroup) -> None:
    lead = [(f"{group.mark} {group.severity} {group.key}", _COLOURS[group.mood]), (": ", "")]
    out.line(group.words, indent="  ", hang="    ", lead=lead)
    for place in group.places[:_MAX_PLACES_SHOWN]:
        where = [(one_line(place.where), "cyan"), ("  ", "")]
        out.line(one_line(place.words), "dim", indent="    ", hang="      ", lead=where)
    more = group.number - _MAX_PLACES_SHOWN
    if more > 0:
        out.line(say("and {count} more places", count=more), "dim", indent="    ")
    out.line(group.fix, indent="    → ", hang="      ")


def _summary(
    session: CliContext, reports: Mapping[str, ScanReport], refused: Sequence[Allowance]
) -> None:
    err = session.err
    counts = Counter(report.verdict for report in reports.values())
    parts = [f"{counts[name]} {say(name)}" for name in _VERDICTS if name in counts]
    shown = listed(parts)
    if len(reports) == 1:
        err.line(say("1 skill scanned: {counts}", counts=next(iter(say(name) for name in counts))))
    else:
        err.line(say("{count} skills scanned: {counts}", count=len(reports), counts=shown))
    if any(report.engines and "yara" not in report.engines for report in reports.values()):
        command_ = 'pip install "satchel[scan]"'
        err.line(say("YARA rules were not used; `{command}` brings them", command=command_), "dim")
    for one in refused:
        err.line(
            say(
                "A project cannot accept `{rule}` for you; `--allow {file}` does",
                rule=one.rule,
                file=short_path(one.source),
            ),
            "yellow",
        )


def _write_sarif(reports: Mapping[str, ScanReport]) -> None:
    from satchel import __version__
    from satchel.security.report import to_sarif

    write_json(to_sarif({short_path(folder): one for folder, one in reports.items()}, __version__))


def _explain(session: CliContext, name: str, *, as_json: bool) -> int:
    import difflib

    from satchel.security.rules import OWASP, RULES

    rule = RULES.get(name)
    if rule is None:
        near = [f"`{one}`" for one in difflib.get_close_matches(name, list(RULES), 3)]
        hint = (
            say("Did you mean {names}?", names=listed(near))
            if near
            else say("The reference lists every rule")
        )
        raise NotFound(say("There is no rule `{name}`", name=one_line(name)), hint)
    classes = {one: OWASP[one] for one in rule.owasp}
    if as_json:
        row: dict[str, Any] = {
            "id": rule.id, "severity": rule.severity, "what": rule.what, "why": rule.why,
            "fix": rule.fix, "owasp": classes, "engine": rule.engine,
        }  # fmt: skip
        write_json(row)
        return 0
    out = session.out
    tone = TONES[rule.severity]
    lead = [(f"{MARKS[tone]} {say(rule.severity)}", _COLOURS[tone]), ("  ", "")]
    out.line(rule.id, "bold", lead=lead)
    out.line(say(rule.what), indent="  ")
    out.line(say(rule.why), indent="  ")
    out.line(say(rule.fix), indent="  → ")
    for key, title in classes.items():
        out.line(f"OWASP {key}: {title}", "dim", indent="  ")
    return 0
