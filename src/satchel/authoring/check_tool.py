"""Check-list of tool skills, from their files; nothing is run.

Rules that need a run are checked by `tool_trial`, on request.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from satchel._fs import read_plain
from satchel.authoring.checklist import CheckSheet
from satchel.authoring.text_rules import judge_descriptions, judge_names, judge_parameters
from satchel.authoring.tool_tests import names_file
from satchel.errors import BuildFailed, InvalidInput
from satchel.i18n import say
from satchel.skill.document import MANIFEST
from satchel.skill.manifest_parser import load_manifest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from satchel.authoring.checklist import Slip
    from satchel.skill.manifest import ToolDecl, ToolManifest
    from satchel.skill.manifest_parser import ManifestResult

MAX_FOLDER_FILES = 10_000
MAX_FILE_BYTES = 256 * 1024
_OWN_RULES = {
    "tool-name": "name-shape",
    "tool-name-prefix": "name-prefix",
    "tool-runtime": "runtime-known",
    "tool-entry-missing": "entry-exists",
    "tool-entry-path": "entry-exists",
}
"""Problem of a manifest -> its rule, other than `manifest-valid`."""
_SOURCE_ONLY = (".c", ".cc", ".cpp", ".rs", ".go", ".ts", ".java", ".swift", ".zig", ".h")
ENDINGS = {
    "python": (".py",),
    "node": (".ts", ".js", ".mjs", ".cjs", ".mts", ".cts"),
    "go": (".go",),
}
"""Runtime -> file endings of its entry."""


def check_tool(folder: str) -> tuple[CheckSheet, ToolManifest | None]:
    """Check the rules that need no run; an invalid manifest is None.

    Args:
        folder: The skill's folder, absolute.

    Raises:
        OSError: there is no skill.yaml, or it cannot be read.
    """
    sheet = CheckSheet("tool", os.path.join(folder, MANIFEST))
    reading = load_manifest(folder)
    _judge_reading(sheet, reading)
    manifest = reading.manifest
    if manifest is None:
        sheet.skip_rest(say("`skill.yaml` is not valid"))
        return sheet, None
    prefix = os.path.basename(folder).replace("-", "_")
    dependencies = dependency_names(folder)
    libraries = dependencies - {prefix.replace("_", "-")}
    line = 0 if manifest.several else reading.lines.get("description", 0)
    judge_names(sheet, manifest.tools, prefix, dependencies)
    judge_descriptions(sheet, manifest.tools, libraries, line)
    judge_parameters(sheet, [one for tool in manifest.tools for one in tool.parameters])
    _judge_start(sheet, folder, manifest, reading.lines.get("entry", 0))
    _judge_docs(sheet, manifest)
    _judge_packages(sheet, folder, manifest)
    _judge_files(sheet, manifest)
    judge_line_ends(sheet, folder)
    return sheet, manifest


def _judge_reading(sheet: CheckSheet, reading: ManifestResult) -> None:
    sheet.judge("manifest-valid")
    if reading.fields:
        sheet.judge("manifest-clean")
    for problem in reading.problems:
        usual = "manifest-valid" if problem.severity == "error" else "manifest-clean"
        values = {"problem": problem.message, "remedy": problem.fix}
        sheet.judge(_OWN_RULES.get(problem.code, usual), [(problem.line, values)])


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


def _judge_start(sheet: CheckSheet, folder: str, manifest: ToolManifest, line: int) -> None:
    for rule in ("runtime-known", "entry-exists"):
        sheet.judge(rule)
    entry = manifest.entry
    values = {"entry": entry[:100], "command": f"chmod +x {entry[:100]}"}
    ending = os.path.splitext(entry)[1].lower()
    if manifest.runtime == "binary":
        fits = ending not in _SOURCE_ONLY
    else:
        fits = ending in ENDINGS[manifest.runtime]
    sheet.judge("entry-fits", [] if fits else [(line, values)])
    if manifest.runtime != "binary":
        sheet.skip(say("does not apply"), "entry-executable")
    else:
        may = os.access(os.path.join(folder, entry), os.X_OK)
        sheet.judge("entry-executable", [] if may or not fits else [(line, values)])
    if manifest.runtime == "go":
        there = os.path.isfile(os.path.join(folder, "go.mod"))
        values = {"command": f"go mod init {os.path.basename(folder)}"}
        sheet.judge("go-module", [] if there else [(0, values)], folder)
    else:
        sheet.skip(say("does not apply"), "go-module", "go-builds")


def _judge_docs(sheet: CheckSheet, manifest: ToolManifest) -> None:
    tools = manifest.tools
    for rule, empty in (
        ("docs-when", [tool for tool in tools if not tool.docs.when_to_use]),
        ("docs-when-not", [tool for tool in tools if not tool.docs.when_not_to_use]),
        ("docs-examples", [tool for tool in tools if not tool.docs.examples]),
    ):
        sheet.judge(rule, ((tool.line, {"name": tool.name}) for tool in empty))
    sheet.judge("docs-arguments", (slip for tool in tools for slip in _wrong_examples(tool)))


def _wrong_examples(tool: ToolDecl) -> Iterator[Slip]:
    from satchel.tools.schema import check

    for shown in tool.docs.examples:
        try:
            check(dict(shown.arguments), tool.schema(), {})
        except InvalidInput as exc:
            scenario = shown.scenario[:60]
            yield shown.line, {"scenario": scenario, "name": tool.name, "reason": exc.message}


def _judge_packages(sheet: CheckSheet, folder: str, manifest: ToolManifest) -> None:
    """Check dependencies with the readers of the build."""
    from satchel.runners.node import read_lock, read_package
    from satchel.runners.python import REQUIREMENTS, read_requirements

    readers = {
        "python": {REQUIREMENTS: read_requirements},
        "node": {"package.json": read_package, "package-lock.json": read_lock},
    }.get(manifest.runtime, {})
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


def _judge_files(sheet: CheckSheet, manifest: ToolManifest) -> None:
    unseen = [
        one
        for tool in manifest.tools
        for one in tool.parameters
        if manifest.files.access == "none" and names_file(one)
    ]
    sheet.judge("files-declared", ((one.line, {"name": one.name}) for one in unseen))


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


def read_text(path: str, limit: int = MAX_FILE_BYTES) -> str | None:
    """Read a small file as text; None when it is something else."""
    try:
        return read_plain(path, limit).decode("utf-8")
    except (OSError, UnicodeDecodeError):
        return None
