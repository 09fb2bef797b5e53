"""Check-list of SKILL.md, and the entry point for checking a folder."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from satchel.authoring import text_rules
from satchel.authoring.check_tool import check_tool, judge_line_ends
from satchel.authoring.checklist import CheckSheet
from satchel.errors import NotFound, Refused
from satchel.i18n import say
from satchel.skill.document import MANIFEST
from satchel.skill.file_tree import skill_md_name
from satchel.skill.metadata import MAX_DESCRIPTION_CHARS, NAME, UNWRITTEN, slug
from satchel.skill.problems import Problem
from satchel.skill.reader import load_document, parse_document
from satchel.skill.validate import validate_draft, validate_folder

if TYPE_CHECKING:
    from satchel.authoring.checklist import CheckResult
    from satchel.skill.document import SkillDocument

LEAST = {"en": 40, "zh": 20}
MAX_BODY_LINES = 500
_OWN_BOX = frozenset((
    "body-empty", "body-long", "file-missing", "description-too-long", "description-unwritten",
    "name-pattern", "name-mismatch", "name-missing",
))  # fmt: skip
"""Problems with a rule of their own."""
_WHEN = re.compile(
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
_WHEN_ONLY = re.compile(
    r"^\s*(?:this skill )?(?:should be |must be |can be |is )?"
    r"(?:use[ds]?|invoked?|triggers?|triggered|activate[ds]?|apply|applies)(?: this skill| it|"
    r" this| proactively| only)?"
    r" (?:when|whenever|if|before|after|while)\b(?:(?! [-–—:] )[^.。])*[.。]?\s*$|"
    r"^\s*(?:when|whenever|if)\b(?! and)[^,.。]*[.。]?\s*$|^当[^，,。]*时?使用[。]?$",
    re.IGNORECASE,
)
"""A description that only states when to use the skill."""
_PERSON = re.compile(
    r"\bI (?:can|will|help|am)\b|\bI'll\b|\bI'm\b|\bmy job\b|\byou can use (?:this|me)\b|"
    r"\blet me\b|我(?:可以|会|能)|我是",
    re.IGNORECASE,
)


def check_skill_md(folder: str, *, data: bytes | None = None) -> CheckSheet:
    """Check a SKILL.md.

    Args:
        folder: The skill's folder, absolute.
        data: Content of SKILL.md; None reads the file.

    Raises:
        SatchelError: there is no SKILL.md, or it cannot be read.
    """
    file = skill_md_name(os.listdir(folder))
    path = os.path.join(folder, file)
    sheet = CheckSheet("skill", path)
    if data is None:
        document, problems = load_document(folder, file), validate_folder(path)
    else:
        document, problems = validate_draft(data, folder, file)
    own = [problem for problem in problems if problem.code in _OWN_BOX]
    for rule, severity in (
        ("skill-valid", "error"),
        ("skill-clean", "warning"),
        ("skill-remarks", "note"),
    ):
        sheet.judge(
            rule,
            (
                (problem.line, {"problem": problem.message, "remedy": problem.fix})
                for problem in problems
                if problem.severity == severity and problem.code not in _OWN_BOX
            ),
        )
    if document.head is None:
        sheet.skip_rest(say("does not apply"))
        return sheet
    _judge_head(sheet, document, os.path.basename(folder))
    _judge_body(sheet, document, own)
    _judge_triggers(sheet, folder)
    if data is None:
        judge_line_ends(sheet, folder)
    return sheet


def check_description(text: str) -> list[CheckResult]:
    """Return problems of a description before there is a skill: length, what, when."""
    import json

    line = json.dumps(" ".join(text.split()), ensure_ascii=False)
    document = parse_document(
        f"---\nname: a\ndescription: {line}\n---\n".encode("utf-8", "replace"),
        "a",
        "SKILL.md",
        (0, 0, 0),
    )
    sheet = CheckSheet("skill", "")
    _judge_head(sheet, document, "a")
    return [one for one in sheet.report("", "").verdicts if one.state == "fail"]


def _judge_triggers(sheet: CheckSheet, folder: str) -> None:
    """Check the trigger prompts; having none is valid."""
    from satchel.skill.trigger_file import load_triggers

    triggers = load_triggers(folder)
    found = triggers.problems if triggers is not None else ()
    slips = ((one.line, {"problem": one.message, "remedy": one.fix}) for one in found)
    sheet.judge("triggers-readable", slips, triggers.path if triggers is not None else "")


def _judge_head(sheet: CheckSheet, document: SkillDocument, folder: str) -> None:
    head, lines = document.head, document.lines
    if head is None:
        return
    text, line = head.description, lines.get("description", 0)
    first = UNWRITTEN.match(text)
    unwritten = first.group().strip() if first else ""
    found = unwritten or _placeholders(document.body)
    sheet.judge("skill-filled", [(line if unwritten else 0, {"text": found})] if found else [])
    # A placeholder has no length, what or when to judge.
    least = LEAST[text_rules.language_of(text)]
    length = text_rules.length_of(text)
    fits = least <= length and len(text) <= MAX_DESCRIPTION_CHARS
    values = {"length": str(length)}
    sheet.judge("skill-length", [] if fits or unwritten else [(line, values)])
    said = text[: text_rules.MAX_EXAMINED_CHARS]
    says_what = not _WHEN_ONLY.match(said) and text_rules.has_words(said)
    sheet.judge("skill-what", [] if says_what or unwritten or length < least else [(line, {})])
    says_when = bool(_WHEN.search(said)) or "when_to_use" in document.fields
    sheet.judge("skill-when", [] if says_when or unwritten or length < least else [(line, {})])
    person = _PERSON.search(said)
    sheet.judge("skill-person", [(line, {"word": person.group()})] if person else [])
    given = document.fields.get("name")
    name = given.strip() if isinstance(given, str) else head.name
    right = bool(NAME.fullmatch(name)) and name == folder
    better = name if NAME.fullmatch(name) else slug(name)
    values = {"name": name[:80], "folder": folder[:80], "better": better}
    sheet.judge("skill-name", [] if right else [(lines.get("name", 0), values)])


def _judge_body(sheet: CheckSheet, document: SkillDocument, problems: list[Problem]) -> None:
    empty = not document.body.strip()
    sheet.judge("body-there", [(0, {})] if empty else [])
    lines = document.body.count("\n")
    sheet.judge("body-short", [(0, {"lines": str(lines)})] if lines > MAX_BODY_LINES else [])
    missing = [
        (problem.line, problem.values) for problem in problems if problem.code == "file-missing"
    ]
    scripts = [item for item in missing if item[1]["file"].startswith("scripts/")]
    sheet.judge("scripts-exist", scripts)
    sheet.judge("references-exist", (item for item in missing if item not in scripts))


def _placeholders(body: str) -> str:
    """Return template placeholders in the instructions, outside code."""
    fenced = False
    for line in body.split("\n"):
        if line.lstrip()[:3] in ("```", "~~~"):
            fenced = not fenced
        elif not fenced and (found := UNWRITTEN.match(line)):
            return found.group().strip()
    return ""


if TYPE_CHECKING:
    from collections.abc import Callable

    from satchel.authoring.checklist import CheckReport, State
    from satchel.skill.manifest import ToolManifest

    Prove = Callable[[CheckSheet, str, ToolManifest], None]
    """Checks the rules that need a run, from the sheet, the folder and the manifest."""

__all__ = ["RUN_RULES", "check_folder", "main_files"]

RUN_RULES = (
    "protocol", *text_rules.ERROR_RULES, "no-uncaught", "go-builds", "answers", "refuses",
)  # fmt: skip
"""Rules of tool skills that need a run."""


def main_files(folder: str) -> list[str]:
    """Return the main files of a folder: `SKILL.md`, `skill.yaml`, both or none."""
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    own = skill_md_name(names)
    return [*([own] if own else []), *([MANIFEST] if MANIFEST in names else [])]


def check_folder(
    folder: str,
    *,
    prove: Prove | None = None,
    listed: tuple[State, str] | None = None,
) -> list[CheckReport]:
    """Check a skill's folder with every applicable check-list.

    Args:
        folder: The folder.
        prove: Runs the program in the sandbox; without it those rules stay open.
        listed: Whether its tools are in the project's list, and why not; None if unchecked.

    Raises:
        NotFound: it has neither a SKILL.md nor a skill.yaml.
        Refused: it cannot be read.
    """
    folder = os.path.abspath(folder)
    files = main_files(folder)
    if not files:
        if os.path.lexists(os.path.join(folder, "skill.yml")):
            problem = Problem("tool-file-name")
            raise NotFound(problem.message, problem.fix)
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
            reports.append(_tool_report(folder, prove, listed))
    except OSError as exc:
        raise Refused(
            say("`{path}` cannot be read: {reason}", path=folder, reason=exc.strerror or exc),
            say("Check the permissions"),
        ) from exc
    return reports


def _tool_report(folder: str, prove: Prove | None, listed: tuple[State, str] | None) -> CheckReport:
    sheet, manifest = check_tool(folder)
    if prove is None or manifest is None:
        sheet.skip(say("not run: add `--run`"), *RUN_RULES)
    else:
        prove(sheet, folder, manifest)
    state, reason = listed or ("skip", say("does not apply"))
    if state == "skip":
        sheet.skip(reason, "listed")
    elif manifest is not None:
        tool = manifest.tools[0].name
        command = f"satchel why {os.path.basename(folder)}"
        values = {"name": tool, "command": command, "reason": reason}
        sheet.judge("listed", [(0, values)] if state == "fail" else [])
    return sheet.report(os.path.basename(folder), folder)
