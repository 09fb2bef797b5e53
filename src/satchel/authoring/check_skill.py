"""Check-list of SKILL.md, and the entry point for checking a folder."""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING

from satchel.authoring import text_rules
from satchel.authoring.check_tool import check_tool
from satchel.authoring.checklist import CheckSheet
from satchel.diagnosis.file_problems import find_file_problems, unreadable_problem
from satchel.errors import NotFound, Refused, SatchelError
from satchel.i18n import say
from satchel.skill.document import MANIFEST
from satchel.skill.file_tree import skill_md_name
from satchel.skill.metadata import UNWRITTEN
from satchel.skill.problems import Problem
from satchel.skill.reader import load_document, parse_document
from satchel.skill.validate import check_document, validate_draft

if TYPE_CHECKING:
    from collections.abc import Callable

    from satchel.authoring.checklist import CheckReport, CheckResult, State
    from satchel.skill.document import SkillDocument
    from satchel.skill.manifest import ToolManifest

    ProgramCheck = Callable[[CheckSheet, str, ToolManifest], None]
    """Checks the rules that need a run, from the sheet, the folder and the manifest."""

__all__ = ["RUN_RULES", "check_folder", "main_files"]

RUN_RULES = (
    "protocol", *text_rules.ERROR_RULES, "no-uncaught", "go-builds", "answers", "refuses",
)  # fmt: skip
"""Rules of tool skills that need a run."""

MIN_DESCRIPTION_CHARS = {"en": 40, "zh": 20}
_BODY_CODES = frozenset(("body-empty", "body-long", "conflict-marks", "file-missing"))
"""Codes of problems of the instructions."""
_WHEN_TO_USE = re.compile(
    r"\buse(?:d|ful)?\b[^.]{0,40}\b(?:when|whenever|if|for|to|before|after|during|by|in)\b|"
    r"\bwhen(?:ever)?\b|"
    r"\btrigger(?:s|ed)?\b|\binvoke[ds]?\b|\bactivate[ds]?\b|\bapplies\b|\bif (?:the user|you|"
    r"someone|asked)\b|"
    r"\buse (?:this|it|proactively|immediately)\b|\bask(?:s|ed)? (?:for|to|about)\b|\bmentions?\b|"
    r"\bfor (?:any|all|every|tasks?|questions?|projects?|requests?)\b|\bwhile \w+ing\b|"
    r"\bbefore \w+ing\b|\bafter \w+ing\b|\b(?:every|each) (?:day|week|month|morning|evening)\b|"
    r"\bon (?:request|demand|weekdays|weekends|(?:mon|tues|wednes|thurs|fri|satur|sun)days?)\b|"
    r"[时時]|当.{1,60}[，,]|场景|适用|用于|触发|需要|如果用户|场合|とき|際|場合|使用する|"
    r"uti?li[sz]\w+ (?:quand|lorsque|pour)|déclench|cuando|quando|lorsque|wenn",
    re.IGNORECASE,
)
"""A phrase that states when to use the skill."""
_ONLY_WHEN_TO_USE = re.compile(
    r"^\s*(?:this skill )?(?:should be |must be |can be |is )?"
    r"(?:use[ds]?|invoked?|triggers?|triggered|activate[ds]?|apply|applies)(?: this skill| it|"
    r" this| proactively| only)?"
    r" (?:when|whenever|if|before|after|while)\b(?:(?! [-–—:] )[^.。])*[.。]?\s*$|"
    r"^\s*(?:when|whenever|if)\b(?! and)[^,.。]*[.。]?\s*$|^当[^，,。]*时?使用[。]?$",
    re.IGNORECASE,
)
"""A description that only states when to use the skill."""
_FIRST_OR_SECOND_PERSON = re.compile(
    r"\bI (?:can|will|help|am)\b|\bI'll\b|\bI'm\b|\bmy job\b|\byou can use (?:this|me)\b|"
    r"\blet me\b|我(?:可以|会|能)|我是",
    re.IGNORECASE,
)


def check_skill_md(folder: str, *, data: bytes | None = None) -> CheckSheet:
    """Check a SKILL.md.

    Args:
        folder: The skill's folder, absolute.
        data: Content of SKILL.md; None reads the file.
    """
    file = skill_md_name(os.listdir(folder))
    path = os.path.join(folder, file)
    sheet = CheckSheet("skill", path)
    if data is None:
        try:
            document = load_document(folder, file)
        except SatchelError as exc:
            sheet.judge_problems("skill-valid", [unreadable_problem(path, exc)])
            sheet.skip_rest(say("does not apply"))
            return sheet
        problems = find_file_problems(folder, file, document)
    else:
        document, problems = validate_draft(data, folder, file)
    rules = ("skill-valid", "body-valid", "files-valid")
    for rule in rules[:1] if document.head is None else rules:
        sheet.judge(rule)
    for problem in problems:
        sheet.judge_problems(_rule_of(problem, path), [problem])
    if document.head is None:
        sheet.skip_rest(say("does not apply"))
        return sheet
    if all(problem.code != "description-unwritten" for problem in problems):
        _judge_description(sheet, document, document.head.description)
    placeholder = _find_placeholder(document.body)
    sheet.require("skill-filled", not placeholder, text=placeholder)
    sheet.skip_rest(say("does not apply"))
    return sheet


def _rule_of(problem: Problem, path: str) -> str:
    """The rule that a problem breaks."""
    if problem.code in _BODY_CODES:
        return "body-valid"
    if problem.path != path or problem.code.startswith("script-"):
        return "files-valid"
    return "skill-valid"


def check_description(text: str) -> list[CheckResult]:
    """Return problems of a description before there is a skill: length, what, when."""
    line = json.dumps(" ".join(text.split()), ensure_ascii=False)
    document = parse_document(
        f"---\nname: a\ndescription: {line}\n---\na\n".encode("utf-8", "replace"),
        "a",
        "SKILL.md",
        (0, 0, 0),
    )
    sheet = CheckSheet("skill", "")
    sheet.judge_problems("skill-valid", check_document(document))
    if not sheet.has_failed("skill-valid"):
        _judge_description(sheet, document, text)
    return [verdict for verdict in sheet.report("", "").verdicts if verdict.state == "fail"]


def _judge_description(sheet: CheckSheet, document: SkillDocument, text: str) -> None:
    """Give advice on a description; a short one is only that."""
    line = document.lines.get("description", 0)
    length = text_rules.description_length(text)
    examined = text[: text_rules.MAX_EXAMINED_CHARS]
    says_what = not _ONLY_WHEN_TO_USE.match(examined) and text_rules.has_words(examined)
    says_when = bool(_WHEN_TO_USE.search(examined)) or "when_to_use" in document.fields
    is_short = length < MIN_DESCRIPTION_CHARS[text_rules.language_of(text)]
    sheet.require("skill-length", not is_short, line, length=str(length))
    sheet.require("skill-what", says_what or is_short, line)
    sheet.require("skill-when", says_when or is_short, line)
    person = _FIRST_OR_SECOND_PERSON.search(examined)
    sheet.require("skill-person", person is None, line, word=person.group() if person else "")


def _find_placeholder(body: str) -> str:
    """Return the first template placeholder of the instructions outside code, or empty."""
    is_code = False
    for line in body.split("\n"):
        if line.lstrip()[:3] in ("```", "~~~"):
            is_code = not is_code
        elif not is_code and (match := UNWRITTEN.match(line)):
            return match.group().strip()
    return ""


def main_files(folder: str) -> list[str]:
    """Return the main files of a folder: `SKILL.md`, `skill.yaml`, both or none."""
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    skill_md = skill_md_name(names)
    return [*([skill_md] if skill_md else []), *([MANIFEST] if MANIFEST in names else [])]


def check_folder(
    folder: str,
    *,
    check_program: ProgramCheck | None = None,
    listed: tuple[State, str] | None = None,
) -> list[CheckReport]:
    """Check a skill's folder with every applicable check-list.

    Args:
        folder: The folder.
        check_program: Runs the program in the sandbox; without it those rules stay open.
        listed: Whether its tools are in the project's list, and why not; None if unchecked.

    Raises:
        NotFound: it has neither a SKILL.md nor a skill.yaml.
        Refused: it cannot be read.
    """
    folder = os.path.abspath(folder)
    files = main_files(folder)
    if not files:
        misnamed = os.path.join(folder, "skill.yml")
        if os.path.lexists(misnamed):
            sheet = CheckSheet("tool", misnamed)
            sheet.judge_problems("manifest-valid", [Problem("tool-file-name")])
            sheet.skip_rest(say("`skill.yaml` is not valid"))
            return [sheet.report(os.path.basename(folder), folder)]
        raise NotFound(
            say("There is no SKILL.md in `{path}`", path=folder),
            say("Give the folder of a skill"),
        )
    name = os.path.basename(folder)
    reports: list[CheckReport] = []
    try:
        if files[0] != MANIFEST:
            reports.append(check_skill_md(folder).report(name, folder))
        if MANIFEST in files:
            reports.append(_check_tool(folder, check_program, listed))
    except OSError as exc:
        raise Refused(
            say("`{path}` cannot be read: {reason}", path=folder, reason=exc.strerror or exc),
            say("Check the permissions"),
        ) from exc
    return reports


def _check_tool(
    folder: str, check_program: ProgramCheck | None, listed: tuple[State, str] | None
) -> CheckReport:
    sheet, manifest = check_tool(folder)
    if check_program is None or manifest is None:
        sheet.skip(say("not run: add `--run`"), *RUN_RULES)
    else:
        check_program(sheet, folder, manifest)
    state, reason = listed or ("skip", say("does not apply"))
    if state == "skip":
        sheet.skip(reason, "listed")
    elif manifest is not None:
        command = f"satchel why {os.path.basename(folder)}"
        values = {"name": manifest.tools[0].name, "command": command, "reason": reason}
        sheet.require("listed", state != "fail", **values)
    return sheet.report(os.path.basename(folder), folder)
