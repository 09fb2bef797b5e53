"""Check-list of packaged skills: record, source and tests.

Texts are checked in both languages. Tests and the docs page are searched in the checkout that
contains the module; without a checkout those rules stay open.
"""

from __future__ import annotations

import ast
import os
import re
import sys
from typing import TYPE_CHECKING, cast

from satchel.authoring.check_tool import read_text
from satchel.authoring.checklist import CheckSheet, RuleFailure
from satchel.authoring.text_rules import (
    ERROR_RULES,
    judge_descriptions,
    judge_error,
    judge_names,
    judge_parameters,
)
from satchel.errors import NotFound
from satchel.i18n import say
from satchel.skill.manifest import Parameter, ToolDecl, ToolDocs
from satchel.tools.packaged import ALWAYS, GROUP, entry_points, find_packaged

if TYPE_CHECKING:
    from collections.abc import Iterator

    from satchel.authoring.checklist import CheckReport
    from satchel.skill.manifest import ParameterType
    from satchel.tools.packaged import Packaged, PackagedSkill, PackagedTool

_LANGUAGES = ("en", "zh")
_WINDOW_CALL = re.compile(r"\b(?:tkinter|webbrowser\.open|os\.startfile|xdg-open)\b")
_MAX_TEST_FILES = 200
_MAX_PAGE_BYTES = 1 << 20
_PLACEHOLDER = re.compile(r"\{[^{}]*\}")
_PATH_PARAMETER = re.compile(r"(?:^|_)(?:path|file)$")


def check_packaged(name: str) -> CheckReport:
    """Check an installed packaged skill.

    Args:
        name: The domain: the name of the entry point.

    Raises:
        NotFound: no package offers one of that name, or it cannot be imported.
    """
    entry = next((packaged for packaged in find_packaged() if packaged.name == name), None)
    if entry is None or entry.skill is None:
        message = say("There is no skill `{name}`", name=name)
        if entry is not None and entry.reason:
            message += say(": ") + entry.reason
        raise NotFound(message, say("Run `{command}`", command="satchel list --tools"))
    skill = entry.skill
    module = skill.tools[0].run.__module__ if skill.tools else ""
    file = getattr(sys.modules.get(module), "__file__", "") or ""
    sheet = CheckSheet("packaged", file)
    _judge_texts(sheet, skill)
    _judge_errors(sheet, skill)
    _judge_safety(sheet, skill)
    root = _find_checkout(file)
    _judge_tests(sheet, skill, root)
    _judge_page(sheet, skill, root)
    _judge_registration(sheet, entry, skill)
    return sheet.report(name, os.path.dirname(file))


# --- texts --------------------------------------------------------------------------------


def _declarations(skill: PackagedSkill, language: str) -> list[ToolDecl]:
    return [
        ToolDecl(
            tool.name,
            tool.description.to(language),
            tuple(
                Parameter(
                    f"{tool.name}.{parameter.name}",
                    cast("ParameterType", parameter.type),  # an array is checked as its text
                    parameter.required,
                    None,
                    parameter.description.to(language),
                    0,
                )
                for parameter in tool.parameters
            ),
            ToolDocs(),
            None,
            0,
        )
        for tool in skill.tools
    ]


def _judge_texts(sheet: CheckSheet, skill: PackagedSkill) -> None:
    libraries = frozenset((skill.wraps.lower(), *(name.lower() for name in skill.needs)))
    judge_names(sheet, _declarations(skill, "en"), skill.name, libraries)
    for language in _LANGUAGES:
        tools = _declarations(skill, language)
        judge_descriptions(sheet, tools, libraries)
        judge_parameters(sheet, [parameter for tool in tools for parameter in tool.parameters])


def _judge_errors(sheet: CheckSheet, skill: PackagedSkill) -> None:
    for rule in ERROR_RULES:
        sheet.judge(rule)
    failures = {failure.id: failure for tool in skill.tools for failure in tool.failures}
    for failure in failures.values():
        for language in _LANGUAGES:
            text = _PLACEHOLDER.sub("…", failure.message(language))
            judge_error(sheet, text, language)


# --- safety -------------------------------------------------------------------------------


def _path_parameters(tool: PackagedTool) -> list[str]:
    return [
        parameter.name for parameter in tool.parameters if _PATH_PARAMETER.search(parameter.name)
    ]


def _judge_safety(sheet: CheckSheet, skill: PackagedSkill) -> None:
    for rule in ("limits", "safe-paths"):
        sheet.judge(rule)
    for tool in skill.tools:
        failures = [failure.id for failure in tool.failures]
        has_limit = any("large" in failure for failure in failures)
        has_paths = bool(_path_parameters(tool))
        sheet.require("limits", has_limit or not has_paths, name=tool.name)
        sheet.require("safe-paths", "outside" in failures or not has_paths, name=tool.name)
    for module in sorted({tool.run.__module__ for tool in skill.tools}):
        file = getattr(sys.modules.get(module), "__file__", "") or ""
        sheet.judge("safe-paths", _find_open_calls(file), file)


def _find_open_calls(file: str) -> Iterator[RuleFailure]:
    """Yield the calls of `open`, which reads files by name, past the workspace."""
    try:
        tree = ast.parse(read_text(file) or "")
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        called = node.func if isinstance(node, ast.Call) else None
        if isinstance(called, ast.Name) and called.id == "open":
            yield RuleFailure(called.lineno, {"name": "open"})


# --- tests and page -----------------------------------------------------------------------


def _find_checkout(file: str) -> str:
    """Return the folder with the `pyproject.toml` above a module; empty for an installed one."""
    folder = os.path.dirname(file)
    while folder and os.path.dirname(folder) != folder:
        if os.path.isfile(os.path.join(folder, "pyproject.toml")):
            return folder
        folder = os.path.dirname(folder)
    return ""


def _read_tests(root: str, name: str) -> dict[str, str]:
    """Read the test files about a skill; path -> text."""
    texts: dict[str, str] = {}
    for folder, folders, files in os.walk(os.path.join(root, "tests")):
        folders[:] = [name for name in folders if not name.startswith((".", "__"))]
        for file in files:
            path = os.path.join(folder, file)
            if file.endswith(".py") and (name in file or name in os.path.basename(folder)):
                texts[path] = read_text(path) or ""
        if len(texts) > _MAX_TEST_FILES:
            break
    return texts


def _judge_tests(sheet: CheckSheet, skill: PackagedSkill, root: str) -> None:
    tests = _read_tests(root, skill.name) if root else {}
    if not tests:
        sheet.skip_rest(say("not checked"), "tests")
        return
    text = "\n".join(tests.values())
    folder = os.path.dirname(next(iter(tests)))
    sheet.judge("tests-errors")
    common = {failure.id for failure in ALWAYS}  # covered by Satchel's own tests
    for error_id in sorted({failure.id for tool in skill.tools for failure in tool.failures}):
        has_test = error_id in common or f'"{error_id}"' in text
        sheet.require("tests-errors", has_test, path=folder, what=f"`{error_id}`")
    sheet.judge("tests-real")
    for tool in skill.tools:
        has_test = tool.name in text or f'"{tool.name.partition("_")[2]}"' in text
        sheet.require("tests-real", has_test, path=folder, name=tool.name)
    call = _WINDOW_CALL.search(text)
    sheet.require("tests-windows", call is None, path=folder, what=call.group() if call else "")
    sheet.skip(say("not run: use `pytest --cov`"), "tests-pass")


def _judge_page(sheet: CheckSheet, skill: PackagedSkill, root: str) -> None:
    if not root:
        sheet.skip(say("not checked"), "page-exists")
    else:
        path = os.path.join(root, "docs", "skills", f"{skill.name}.md")
        text = read_text(path, _MAX_PAGE_BYTES) or ""
        is_complete = bool(text) and all(f"`{tool.name}`" in text for tool in skill.tools)
        values = {"path": os.path.relpath(path, root), "command": "python scripts/skill_pages.py"}
        sheet.judge("page-exists", [] if is_complete else [RuleFailure(0, values)], path)


# --- record and registration --------------------------------------------------------------


def _judge_registration(sheet: CheckSheet, entry: Packaged, skill: PackagedSkill) -> None:
    point = next((point for point in entry_points() if point.name == entry.name), None)
    missing_fields = {
        "page-when-not": {
            "when": len(skill.when) < 3,
            "when_not": not skill.when_not,
            "cannot": not skill.cannot,
        },
        "page-output": {
            "scenarios": len(skill.scenarios) < 2,
            "prepare": skill.prepare is None
            and any(_path_parameters(tool) for tool in skill.tools),
        },
        "page-left-out": {"exposed": not skill.exposed, "left_out": not skill.left_out},
        "registered": {GROUP: point is None, "wraps": not skill.wraps},
        "start-line": {"label": not skill.label, "mark": not skill.mark},
    }
    for rule, fields in missing_fields.items():
        for name, is_missing in fields.items():
            sheet.require(rule, not is_missing, what=f"`{name}`")
    module = point.value.partition(":")[0] if point else ""
    sheet.require("module-name", entry.name in module.rpartition(".")[2], module=module)
    switched_off = find_packaged({**os.environ, skill.switch: "false"})
    state = next((packaged.state for packaged in switched_off if packaged.name == entry.name), "")
    sheet.require("switch", state == "disabled", switch=skill.switch)
