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
from satchel.authoring.checklist import CheckSheet
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

    from satchel.authoring.checklist import CheckReport, Slip
    from satchel.skill.manifest import ParameterType
    from satchel.tools.packaged import Packaged, PackagedSkill, PackagedTool

_LANGUAGES = ("en", "zh")
_WINDOWS = re.compile(r"\b(?:tkinter|webbrowser\.open|os\.startfile|xdg-open)\b")
_MAX_TESTS = 200


def check_packaged(name: str) -> CheckReport:
    """Check an installed packaged skill.

    Args:
        name: The domain: the name of the entry point.

    Raises:
        NotFound: no package offers one of that name, or it cannot be imported.
    """
    every = find_packaged()
    found = next((one for one in every if one.name == name), None)
    if found is None or found.skill is None:
        message = say("There is no skill `{name}`", name=name)
        if found is not None and found.reason:
            message += say(": ") + found.reason
        raise NotFound(message, say("Run `{command}`", command="satchel tools"))
    skill = found.skill
    module = skill.tools[0].run.__module__ if skill.tools else ""
    file = getattr(sys.modules.get(module), "__file__", "") or ""
    sheet = CheckSheet("packaged", file)
    _judge_texts(sheet, skill)
    _judge_errors(sheet, skill)
    _judge_safety(sheet, skill)
    root = _checkout(file)
    _judge_tests(sheet, skill, root)
    _judge_page(sheet, skill, root)
    _judge_registration(sheet, found, skill)
    return sheet.report(name, os.path.dirname(file))


# --- texts --------------------------------------------------------------------------------


def _declared(skill: PackagedSkill, language: str) -> list[ToolDecl]:
    return [
        ToolDecl(
            tool.name,
            tool.description.to(language),
            tuple(
                Parameter(
                    f"{tool.name}.{one.name}",
                    cast("ParameterType", one.type),  # an array is checked as its text
                    one.required,
                    None,
                    one.description.to(language),
                    0,
                )
                for one in tool.parameters
            ),
            ToolDocs(),
            None,
            0,
        )
        for tool in skill.tools
    ]


def _judge_texts(sheet: CheckSheet, skill: PackagedSkill) -> None:
    wrapped = frozenset((skill.wraps.lower(), *(name.lower() for name in skill.needs)))
    judge_names(sheet, _declared(skill, "en"), skill.name, wrapped)
    for one in _LANGUAGES:
        tools = _declared(skill, one)
        judge_descriptions(sheet, tools, wrapped)
        judge_parameters(sheet, [part for tool in tools for part in tool.parameters])


def _judge_errors(sheet: CheckSheet, skill: PackagedSkill) -> None:
    for rule in ERROR_RULES:
        sheet.judge(rule)
    failures = {failure.id: failure for tool in skill.tools for failure in tool.failures}
    for failure in failures.values():
        for language in _LANGUAGES:
            text = re.sub(r"\{[^{}]*\}", "…", failure.message(language))
            judge_error(sheet, text, language)


# --- safety -------------------------------------------------------------------------------


def _paths(tool: PackagedTool) -> list[str]:
    return [one.name for one in tool.parameters if re.search(r"(?:^|_)(?:path|file)$", one.name)]


def _judge_safety(sheet: CheckSheet, skill: PackagedSkill) -> None:
    for rule, pattern in (("limits", ".*large.*"), ("safe-paths", "outside")):
        wrong = [
            tool.name
            for tool in skill.tools
            if _paths(tool) and not any(re.fullmatch(pattern, one.id) for one in tool.failures)
        ]
        sheet.judge(rule, ((0, {"name": name}) for name in wrong))
    for module in sorted({tool.run.__module__ for tool in skill.tools}):
        file = getattr(sys.modules.get(module), "__file__", "") or ""
        sheet.judge("safe-paths", _own_opens(file), file)


def _own_opens(file: str) -> Iterator[Slip]:
    """Return places that open a file by name outside the workspace."""
    try:
        tree = ast.parse(read_text(file) or "")
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == "open"
        ):
            yield node.lineno, {"name": "open"}


# --- tests and page -----------------------------------------------------------------------


def _checkout(file: str) -> str:
    """Return the folder with the `pyproject.toml` above a module; empty for an installed one."""
    folder = os.path.dirname(file)
    while folder and os.path.dirname(folder) != folder:
        if os.path.isfile(os.path.join(folder, "pyproject.toml")):
            return folder
        folder = os.path.dirname(folder)
    return ""


def _tests_of(root: str, name: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for here, folders, files in os.walk(os.path.join(root, "tests")):
        folders[:] = [one for one in folders if not one.startswith((".", "__"))]
        for file in files:
            path = os.path.join(here, file)
            if file.endswith(".py") and (name in file or name in os.path.basename(here)):
                found[path] = read_text(path) or ""
        if len(found) > _MAX_TESTS:
            break
    return found


def _judge_tests(sheet: CheckSheet, skill: PackagedSkill, root: str) -> None:
    tests = _tests_of(root, skill.name) if root else {}
    if not tests:
        sheet.skip_rest(say("not checked"), "tests")
        return
    text = "\n".join(tests.values())
    ids = sorted({failure.id for tool in skill.tools for failure in tool.failures})
    common = {failure.id for failure in ALWAYS}  # covered by Satchel's own tests
    missing = [one for one in ids if one not in common and f'"{one}"' not in text]
    folder = os.path.dirname(next(iter(tests)))
    sheet.judge("tests-errors", ((0, {"what": f"`{one}`"}) for one in missing), folder)
    sheet.judge(
        "tests-real",
        (
            (0, {"name": tool.name})
            for tool in skill.tools
            if tool.name not in text and f'"{tool.name.partition("_")[2]}"' not in text
        ),
        folder,
    )
    opened = _WINDOWS.search(text)
    sheet.judge("tests-windows", [(0, {"what": opened.group()})] if opened else [], folder)
    sheet.skip(say("not run: use `pytest --cov`"), "tests-pass")


def _judge_page(sheet: CheckSheet, skill: PackagedSkill, root: str) -> None:
    if not root:
        sheet.skip(say("not checked"), "page-exists")
    else:
        path = os.path.join(root, "docs", "skills", f"{skill.name}.md")
        text = read_text(path, 1 << 20) or ""
        whole = bool(text) and all(f"`{tool.name}`" in text for tool in skill.tools)
        values = {"path": os.path.relpath(path, root), "command": "python scripts/skill_pages.py"}
        sheet.judge("page-exists", [] if whole else [(0, values)], path)


# --- record and registration --------------------------------------------------------------


def _judge_registration(sheet: CheckSheet, found: Packaged, skill: PackagedSkill) -> None:
    point = next((one for one in entry_points() if one.name == found.name), None)
    lacks = {
        "page-when-not": {
            "when": len(skill.when) < 3,
            "when_not": not skill.when_not,
            "cannot": not skill.cannot,
        },
        "page-output": {
            "scenarios": len(skill.scenarios) < 2,
            "prepare": skill.prepare is None and any(_paths(tool) for tool in skill.tools),
        },
        "page-left-out": {"exposed": not skill.exposed, "left_out": not skill.left_out},
        "registered": {GROUP: point is None, "wraps": not skill.wraps},
        "start-line": {"label": not skill.label, "mark": not skill.mark},
    }
    for rule, parts in lacks.items():
        missing = [name for name, is_missing in parts.items() if is_missing]
        sheet.judge(rule, ((0, {"what": f"`{name}`"}) for name in missing))
    module = point.value.partition(":")[0] if point else ""
    named = found.name in module.rpartition(".")[2]
    sheet.judge("module-name", [] if named else [(0, {"module": module})])
    off = find_packaged({**os.environ, skill.switch: "false"})
    state = next((one.state for one in off if one.name == found.name), "")
    sheet.judge("switch", [] if state == "disabled" else [(0, {"switch": skill.switch})])
