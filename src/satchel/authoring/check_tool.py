"""Check-list of tool skills, from their files; nothing is run.

Rules that need a run are checked by `tool_trial`, on request.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from satchel._fs import read_plain
from satchel.authoring.checklist import CheckSheet, RuleFailure
from satchel.authoring.text_rules import judge_descriptions, judge_names, judge_parameters
from satchel.authoring.tool_tests import names_file
from satchel.errors import BuildFailed, InvalidInput
from satchel.i18n import say
from satchel.runners.npm_packages import read_lock, read_package
from satchel.runners.python import REQUIREMENTS, read_requirements
from satchel.runners.scripts import script_problems
from satchel.skill.document import MANIFEST
from satchel.skill.manifest_parser import load_manifest
from satchel.skill.problems import Problem
from satchel.tools.schema import check

if TYPE_CHECKING:
    from collections.abc import Iterator

    from satchel.skill.manifest import ToolDecl, ToolManifest
    from satchel.skill.manifest_parser import ManifestResult

MAX_FILE_BYTES = 256 * 1024
_RULE_BY_CODE = {
    "tool-name": "name-shape",
    "tool-name-prefix": "name-shape",
    "tool-runtime": "entry-fits",
    "tool-entry-missing": "entry-fits",
    "tool-entry-path": "entry-fits",
    "tool-go-module": "go-builds",
}
"""Code of a manifest's problem -> its rule, other than `manifest-valid`."""
_SOURCE_ENDINGS = (".c", ".cc", ".cpp", ".rs", ".go", ".ts", ".java", ".swift", ".zig", ".h")
_ENTRY_ENDINGS = {
    "python": (".py",),
    "node": (".ts", ".js", ".mjs", ".cjs", ".mts", ".cts"),
    "go": (".go",),
}
"""Runtime -> file endings of its entry."""
_DEPENDENCY_NAMES = {
    "requirements.txt": r"^\s*([A-Za-z0-9][\w.-]*)",
    "go.mod": r"^\s*(?:require\s+)?[\w.-]+\.[\w.-]+/\S*?([\w.-]+)(?:/v\d+)?\s+v\d",
    "package.json": r"^\s*\"(?:@[\w.-]+/)?([\w.-]+)\"\s*:\s*\"[\^~>=]*\d",
}
"""File -> pattern of the names of dependencies."""
_COMMON_WORDS = frozenset((
    "requests", "sharp", "moment", "click", "rich", "express", "got", "open", "version",
))  # fmt: skip
"""Names of libraries that are also common words."""


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
    judge_parameters(sheet, [parameter for tool in manifest.tools for parameter in tool.parameters])
    _judge_start(sheet, folder, manifest, reading.lines.get("entry", 0))
    _judge_docs(sheet, manifest)
    _judge_packages(sheet, folder, manifest)
    _judge_files(sheet, manifest)
    sheet.judge_problems("files-valid", script_problems(sheet.file))
    return sheet, manifest


def _judge_reading(sheet: CheckSheet, reading: ManifestResult) -> None:
    sheet.judge("manifest-valid")
    for problem in reading.problems:
        sheet.judge_problems(_RULE_BY_CODE.get(problem.code, "manifest-valid"), [problem])


def dependency_names(folder: str) -> frozenset[str]:
    """Return the lowercase names of a skill's dependencies."""
    dependencies: set[str] = set()
    for file, pattern in _DEPENDENCY_NAMES.items():
        text = read_text(os.path.join(folder, file)) or ""
        names = re.findall(pattern, text, re.MULTILINE)
        dependencies.update(name.lower().replace("_", "-") for name in names)
    return frozenset(dependencies - _COMMON_WORDS)


# --- runtime, entry, docs -----------------------------------------------------------------


def _judge_start(sheet: CheckSheet, folder: str, manifest: ToolManifest, line: int) -> None:
    entry = manifest.entry
    ending = os.path.splitext(entry)[1].lower()
    if manifest.runtime == "binary":
        is_fitting = ending not in _SOURCE_ENDINGS
        is_executable = os.access(os.path.join(folder, entry), os.X_OK)
        values = {"entry": entry[:100], "command": f"chmod +x {entry[:100]}"}
        sheet.require("entry-executable", is_executable or not is_fitting, line, **values)
    else:
        is_fitting = ending in _ENTRY_ENDINGS[manifest.runtime]
        sheet.skip(say("does not apply"), "entry-executable")
    sheet.require("entry-fits", is_fitting, line, entry=entry[:100])
    if manifest.runtime != "go":
        sheet.skip(say("does not apply"), "go-builds")


def _judge_docs(sheet: CheckSheet, manifest: ToolManifest) -> None:
    for tool in manifest.tools:
        docs = tool.docs
        sheet.require("docs-when", docs.when_to_use, tool.line, name=tool.name)
        sheet.require("docs-when-not", docs.when_not_to_use, tool.line, name=tool.name)
        sheet.require("docs-examples", docs.examples, tool.line, name=tool.name)
        sheet.judge("docs-arguments", _find_invalid_examples(tool))


def _find_invalid_examples(tool: ToolDecl) -> Iterator[RuleFailure]:
    for example in tool.docs.examples:
        try:
            check(dict(example.arguments), tool.schema(), {})
        except InvalidInput as exc:
            scenario = example.scenario[:60]
            values = {"scenario": scenario, "name": tool.name, "reason": exc.message}
            yield RuleFailure(example.line, values)


def _judge_packages(sheet: CheckSheet, folder: str, manifest: ToolManifest) -> None:
    """Check dependencies with the readers of the build."""
    readers = {
        "python": {REQUIREMENTS: read_requirements},
        "node": {"package.json": read_package, "package-lock.json": read_lock},
    }.get(manifest.runtime, {})
    present = [name for name in readers if os.path.lexists(os.path.join(folder, name))]
    if not present:
        sheet.skip(say("does not apply"), "packages")
        return
    sheet.judge("packages")
    for name in present:
        try:
            readers[name](folder)
        except BuildFailed as exc:
            values = {"reason": exc.message, "fix": exc.hint}
            problem = Problem("tool-packages", os.path.join(folder, name), values=values)
            sheet.judge_problems("packages", [problem])


def _judge_files(sheet: CheckSheet, manifest: ToolManifest) -> None:
    sheet.judge("files-declared")
    for parameter in [parameter for tool in manifest.tools for parameter in tool.parameters]:
        is_hidden_file = manifest.files.access == "none" and names_file(parameter)
        sheet.require("files-declared", not is_hidden_file, parameter.line, name=parameter.name)


def read_text(path: str, limit: int = MAX_FILE_BYTES) -> str | None:
    """Read a small file as text; None when it is something else."""
    try:
        return read_plain(path, limit).decode("utf-8")
    except (OSError, UnicodeDecodeError):
        return None
