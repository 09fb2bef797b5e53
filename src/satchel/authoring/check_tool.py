"""Check-list of tool skills, from their files; nothing is run.

Rules that need a run are checked by `tool_trial`, on request.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from satchel._fs import open_beneath
from satchel.authoring import text_rules
from satchel.authoring.checklist import CheckSheet
from satchel.authoring.source_analysis import analyse_python, program_files, read_text
from satchel.authoring.text_rules import (
    ERROR_RULES,
    draft_of,
    judge_descriptions,
    judge_error,
    judge_names,
    judge_parameters,
)
from satchel.errors import AccessDenied, InvalidInput
from satchel.i18n import say
from satchel.skill.document import MANIFEST
from satchel.skill.manifest_parser import RUNTIMES, load_manifest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from satchel.authoring.checklist import Slip
    from satchel.authoring.source_analysis import SourceAnalysis
    from satchel.authoring.text_rules import DraftManifest, DraftTool
    from satchel.skill.manifest_parser import ManifestResult

MAX_FOLDER_FILES = 10_000
_OWN_BOX = frozenset((
    "tool-name", "tool-name-prefix", "tool-runtime", "tool-entry-missing", "tool-entry-path",
))  # fmt: skip
"""Manifest problems with a rule of their own."""
_FILE_NAME = re.compile(
    r"(?:^|_)(?:path|file|filename|filepath|dir|directory|folder)$", re.IGNORECASE
)
_FILE_WORDS = re.compile(
    r"文件路径|文件的路径|\bfile path\b|\bpath (?:of|to) (?:a|an|the)\b", re.IGNORECASE
)
_SOURCE_ONLY = (".c", ".cc", ".cpp", ".rs", ".go", ".ts", ".java", ".swift", ".zig", ".h")
ENDINGS = {
    "python": (".py",),
    "node": (".ts", ".js", ".mjs", ".cjs", ".mts", ".cts"),
    "go": (".go",),
}
"""Runtime -> file endings of its entry."""
_NEED_SOURCE = (
    "program-parses", "protocol-read", "protocol-write", "protocol-quiet", "error-wording",
    "error-inside", "error-language", "no-uncaught",
)  # fmt: skip


def check_tool(folder: str) -> tuple[CheckSheet, DraftManifest, ManifestResult]:
    """Check the rules that need no run.

    Args:
        folder: The skill's folder, absolute.

    Raises:
        OSError: there is no skill.yaml, or it cannot be read.
    """
    sheet = CheckSheet("tool", os.path.join(folder, MANIFEST))
    reading = load_manifest(folder)
    draft = draft_of(reading)
    _judge_reading(sheet, reading)
    if not reading.fields:
        sheet.skip_rest(say("`skill.yaml` is not valid"))
        return sheet, draft, reading
    prefix = os.path.basename(folder).replace("-", "_")
    libraries = dependency_names(folder) - {prefix.replace("_", "-")}
    judge_names(sheet, draft.tools, prefix, dependency_names(folder))
    judge_descriptions(sheet, draft.tools, libraries)
    judge_parameters(sheet, [one for tool in draft.tools for one in tool.parameters])
    _judge_start(sheet, folder, draft, reading)
    _judge_docs(sheet, draft)
    _judge_packages(sheet, folder, draft)
    _judge_code(sheet, folder, draft)
    _judge_files(sheet, draft)
    judge_line_ends(sheet, folder)
    return sheet, draft, reading


def _judge_reading(sheet: CheckSheet, reading: ManifestResult) -> None:
    rest = [problem for problem in reading.problems if problem.code not in _OWN_BOX]
    for rule, bad in (("manifest-valid", True), ("manifest-clean", False)):
        if not bad and not reading.fields:
            continue  # its content is unknown
        sheet.judge(
            rule,
            (
                (problem.line, {"problem": problem.message, "remedy": problem.fix})
                for problem in rest
                if (problem.severity == "error") is bad
            ),
        )


_DEPENDENCIES = {
    "requirements.txt": r"^\s*([A-Za-z0-9][\w.-]*)",
    "go.mod": r"^\s*(?:require\s+)?[\w.-]+\.[\w.-]+/\S*?([\w.-]+)(?:/v\d+)?\s+v\d",
    "package.json": r"^\s*\"(?:@[\w.-]+/)?([\w.-]+)\"\s*:\s*\"[\^~>=]*\d",
}
"""File -> pattern of the names of dependencies."""


def dependency_names(folder: str) -> frozenset[str]:
    """Return the lowercase names of a skill's dependencies."""
    found: set[str] = set()
    for file, pattern in _DEPENDENCIES.items():
        text = read_text(os.path.join(folder, file)) or ""
        names = re.findall(pattern, text, re.MULTILINE)
        found.update(name.lower().replace("_", "-") for name in names)
    # Library names that are also common words.
    return frozenset(
        found
        - {"requests", "sharp", "moment", "click", "rich", "express", "got", "open", "version"}
    )


# --- runtime, entry, docs -----------------------------------------------------------------


def _judge_start(
    sheet: CheckSheet, folder: str, draft: DraftManifest, reading: ManifestResult
) -> None:
    known = draft.runtime in RUNTIMES
    line = reading.lines.get("runtime", 0)
    wrong = bool(draft.runtime) and not known
    sheet.judge("runtime-known", [(line, {"value": draft.runtime[:60]})] if wrong else [])
    line = reading.lines.get("entry", 0)
    values = {"entry": draft.entry[:100], "command": f"chmod +x {draft.entry[:100]}"}
    there = bool(draft.entry) and is_regular_file(folder, draft.entry)
    sheet.judge("entry-exists", [] if there or not draft.entry else [(line, values)])
    if not known or not draft.entry:
        sheet.skip(say("`skill.yaml` is not valid"), "entry-fits", "entry-executable")
        return
    ending = os.path.splitext(draft.entry)[1].lower()
    if draft.runtime == "binary":
        fits = ending not in _SOURCE_ONLY
    else:
        fits = ending in ENDINGS[draft.runtime]
    sheet.judge("entry-fits", [] if fits else [(line, values)])
    if draft.runtime != "binary" or not there:
        sheet.skip(say("does not apply"), "entry-executable")
    else:
        may = os.access(os.path.join(folder, draft.entry), os.X_OK)
        sheet.judge("entry-executable", [] if may or not fits else [(line, values)])


def is_regular_file(folder: str, entry: str) -> bool:
    """Whether a path is a regular file inside a folder."""
    import stat

    try:
        descriptor = open_beneath(folder, entry)
    except (OSError, AccessDenied):
        return False
    try:
        return stat.S_ISREG(os.fstat(descriptor).st_mode)
    finally:
        os.close(descriptor)


def _judge_docs(sheet: CheckSheet, draft: DraftManifest) -> None:
    tools = draft.tools
    for rule, empty in (
        ("docs-when", [tool for tool in tools if not tool.when]),
        ("docs-when-not", [tool for tool in tools if not tool.when_not]),
        ("docs-examples", [tool for tool in tools if not tool.examples]),
    ):
        sheet.judge(rule, ((tool.line, {"name": tool.name}) for tool in empty))
    if any(tool.schema is None for tool in draft.tools):
        sheet.skip(say("`skill.yaml` is not valid"), "docs-arguments")
        return
    sheet.judge("docs-arguments", (slip for tool in draft.tools for slip in _wrong_examples(tool)))


def _wrong_examples(tool: DraftTool) -> Iterator[Slip]:
    from satchel.tools.schema import check

    for shown in tool.examples:
        try:
            check(dict(shown.arguments), tool.schema or {}, {})
        except InvalidInput as exc:
            scenario = shown.scenario[:60]
            yield shown.line, {"scenario": scenario, "name": tool.name, "reason": exc.message}


# --- the program --------------------------------------------------------------------------


def _judge_packages(sheet: CheckSheet, folder: str, draft: DraftManifest) -> None:
    """Check dependencies with the readers of the build."""
    from satchel.errors import BuildFailed
    from satchel.runners.node import read_lock, read_package
    from satchel.runners.python import REQUIREMENTS, read_requirements

    if draft.runtime not in RUNTIMES:
        return
    readers = {
        "python": {REQUIREMENTS: read_requirements},
        "node": {"package.json": read_package, "package-lock.json": read_lock},
    }.get(draft.runtime, {})
    there = [name for name in readers if os.path.lexists(os.path.join(folder, name))]
    if not there:
        sheet.skip(say("does not apply"), "packages")
        return
    sheet.judge("packages")
    for name in there:
        try:
            readers[name](folder)
        except BuildFailed as exc:
            values = {"problem": exc.message, "remedy": exc.hint}
            sheet.judge("packages", [(0, values)], os.path.join(folder, name))


def _judge_code(sheet: CheckSheet, folder: str, draft: DraftManifest) -> None:
    if draft.runtime == "go":
        there = os.path.isfile(os.path.join(folder, "go.mod"))
        values = {"command": f"go mod init {os.path.basename(folder)}"}
        sheet.judge("go-module", [] if there else [(0, values)], folder)
    else:
        sheet.skip(say("does not apply"), "go-module", "go-builds")
    if draft.runtime not in RUNTIMES:
        sheet.skip_rest(say("`skill.yaml` is not valid"), "code")
        return
    files = program_files(folder, draft.entry) if draft.runtime == "python" else []
    if not files:
        sheet.skip(say("not run: add `--run`"), *_NEED_SOURCE)
        return
    found = analyse_python(files)
    if found.broken is not None:
        path = os.path.join(folder, found.broken.path)
        values = {"reason": found.broken.text}
        sheet.judge("program-parses", [(found.broken.line, values)], path)
        sheet.skip(say("does not apply"), *_NEED_SOURCE)
        return
    sheet.judge("program-parses")
    _judge_protocol(sheet, folder, draft, found)
    wanted = text_rules.language_of(draft.tools[0].description if draft.tools else "")
    _judge_errors(sheet, folder, found, wanted)
    if draft.access == "write":
        bad = found.writes_files and not found.checks_existence
        sheet.judge("write-looks", [(0, {})] if bad else [], os.path.join(folder, draft.entry))


def _judge_protocol(
    sheet: CheckSheet, folder: str, draft: DraftManifest, source: SourceAnalysis
) -> None:
    for rule, spot in (("protocol-read", source.reads), ("protocol-write", source.writes)):
        slips = [(spot.line, {"what": spot.text})] if spot else []
        sheet.judge(rule, slips, os.path.join(folder, spot.path) if spot else "")
    sheet.judge("protocol-quiet")
    for spot in source.loud:
        path = os.path.join(folder, spot.path)
        sheet.judge("protocol-quiet", [(spot.line, {"what": spot.text})], path)
    bare: list[Slip] = [] if source.guarded else [(1, {})]
    sheet.judge("no-uncaught", bare, os.path.join(folder, draft.entry))


def _judge_errors(sheet: CheckSheet, folder: str, source: SourceAnalysis, wanted: str) -> None:
    if not source.errors and not source.leaks:
        sheet.skip(say("does not apply"), *ERROR_RULES)
        return
    for rule in ERROR_RULES:
        sheet.judge(rule)
    for spot in source.errors:
        judge_error(sheet, spot.text, wanted, spot.line, os.path.join(folder, spot.path))
    for spot in source.leaks:
        path = os.path.join(folder, spot.path)
        sheet.judge("error-inside", [(spot.line, {"text": spot.text})], path)


def _judge_files(sheet: CheckSheet, draft: DraftManifest) -> None:
    unseen = [
        one
        for tool in draft.tools
        for one in tool.parameters
        if one.type == "string"
        and (_FILE_NAME.search(one.name) or _FILE_WORDS.search(one.description))
        and one.name not in draft.shown
        and draft.access == "none"
    ]
    sheet.judge("files-declared", ((one.line, {"name": one.name}) for one in unseen))
    sheet.skip(say("does not apply"), "write-looks")


# --- files --------------------------------------------------------------------------------


def judge_line_ends(sheet: CheckSheet, folder: str) -> None:
    """Check line ends of scripts."""
    found = scripts_with_windows_ends(folder)
    if found is None:
        sheet.skip(say("not checked"), "script-ends")
    else:
        sheet.judge("script-ends", ((1, {"file": name}) for name in found), folder)


def scripts_with_windows_ends(folder: str) -> list[str] | None:
    """Return scripts whose `#!` line ends with a carriage return; None for too many files."""
    found: list[str] = []
    looked = 0
    for here, folders, files in os.walk(folder):
        folders[:] = sorted(
            name for name in folders if not name.startswith(".") and name != "node_modules"
        )
        looked += len(files) + len(folders)
        if looked > MAX_FOLDER_FILES:
            return None
        for name in sorted(files):
            path = os.path.join(here, name)
            if os.path.islink(path) or not os.path.isfile(path):
                continue
            try:
                with open(path, "rb") as file:
                    start = file.read(256)
            except OSError:
                continue  # an unreadable file cannot be run either
            if start.startswith(b"#!") and start.partition(b"\n")[0].endswith(b"\r"):
                found.append(os.path.relpath(path, folder).replace(os.sep, "/"))
    return found
