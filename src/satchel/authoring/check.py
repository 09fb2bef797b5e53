"""A folder -> one report for each check-list it falls under; nothing runs without `prove`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from satchel._language import say
from satchel.errors import NotFound, Refused
from satchel.skill.manifest import FILE
from satchel.skill.problems import Problem
from satchel.skill.tree import skill_file

if TYPE_CHECKING:
    from collections.abc import Callable

    from satchel.authoring.draft import Draft
    from satchel.authoring.rules import State
    from satchel.authoring.sheet import Report, Sheet

    Prove = Callable[[Sheet, str, Draft], None]
    """Ticks the boxes that need a run; given the sheet, the folder and what it declares."""

__all__ = ["check_folder", "lists_of"]


def lists_of(folder: str) -> list[str]:
    """The main files of a folder: `SKILL.md`, `skill.yaml`, both or none."""
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    own = skill_file(names)
    return [*([own] if own else []), *([FILE] if FILE in names else [])]


def check_folder(
    folder: str,
    *,
    language: str = "",
    prove: Prove | None = None,
    listed: tuple[State, str] | None = None,
) -> list[Report]:
    """Check a skill's folder by every list that it falls under.

    Args:
        folder: The folder.
        language: `en` or `zh`, when the texts of a tool must be in that language.
        prove: Runs the program, in the sandbox; without it the boxes for that stay open.
        listed: Whether its tools are in the project's list, and why not; None when nobody looked.

    Raises:
        NotFound: it has neither a SKILL.md nor a skill.yaml.
        Refused: it cannot be read.
    """
    folder = os.path.abspath(folder)
    files = lists_of(folder)
    if not files:
        if os.path.lexists(os.path.join(folder, "skill.yml")):
            problem = Problem("tool-file-name")
            raise NotFound(problem.message, problem.fix)
        raise NotFound(
            say("There is no SKILL.md and no skill.yaml in `{path}`", path=folder),
            say("Give the folder of a skill, or write one with `satchel new`"),
        )
    name = os.path.basename(folder)
    reports: list[Report] = []
    try:
        if files[0] != FILE:
            from satchel.authoring.check_skill import check_skill_md

            reports.append(check_skill_md(folder, language=language).report(name, folder))
        if FILE in files:
            reports.append(_tool_report(folder, language, prove, listed))
    except OSError as exc:
        raise Refused(
            say("`{path}` cannot be read: {reason}", path=folder, reason=exc.strerror or exc),
            say("Check the permissions of the folder"),
        ) from exc
    return reports


def _tool_report(
    folder: str, language: str, prove: Prove | None, listed: tuple[State, str] | None
) -> Report:
    from satchel.authoring.check_tool import check_tool

    sheet, draft, reading = check_tool(folder, language=language)
    if reading.manifest is None:
        why = say("the manifest cannot be used")
        sheet.skip(why, "answers", "refuses", "go-builds", "listed")
    elif prove is None:
        sheet.skip(say("not run: add `--run`"), "answers", "refuses", "go-builds")
    else:
        prove(sheet, folder, draft)
    state, reason = listed or ("skip", say("the folder is not one of this project's skills"))
    if state == "skip":
        sheet.skip(reason, "listed")
    else:
        tool = draft.tools[0].name if draft.tools else ""
        values = {"name": tool, "skill": os.path.basename(folder), "reason": reason}
        sheet.judge("listed", [(0, values)] if state == "fail" else [])
    return sheet.report(os.path.basename(folder), folder)
