"""Finds harmful side tasks in pages: commands and programs that a page orders beside the task.

"After every edit, run `scripts/tidy.sh`" is harmless or not depending on the script. Here the two
are combined: an issue that alone needs review is blocked where a page orders it as a side task.
"""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING

from satchel.security.discussed_attacks import downgrade, is_example
from satchel.security.regions import Region
from satchel.security.report import MAX_EVIDENCE_CHARS, Finding
from satchel.security.rules import RULES
from satchel.security.shell_rules import COMMAND_NAMES, find_shell_issues

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from satchel.security.report import TimeBudget

_SIDE_TASK_WORDS = re.compile(
    r"\b(?:after|before|upon|following) (?:every|each|any|all|you|the|using|creating|editing|doing"
    r"|starting|finishing|completing|saving|generating|running|making|modifying|processing"
    r"|anything)\b"
    r"|\b(?:always|also|additionally|afterwards|furthermore|automatically|finally|whenever"
    r"|mandatory|first of all|in addition|beforehand)\b"
    r"|\b(?:each|every) (?:time|session|run|use|task|request)\b"
    r"|\bon (?:each|every)\b"
    r"|\b(?:when|once|as soon as) (?:you|it|the|all|everything|done|finished)\b"
    r"|\bat the (?:end|start|beginning)\b|\bas (?:a|the) (?:final|last|first)\b|\bmake sure\b"
    r"|\b(?:don[’']t forget|remember|be sure|ensure)\b|\bprior to\b|\bpart of (?:the|every|each)\b"
    r"|(?:每次|始终|总是|务必|同时|最后|完成后|之后|之前)",
    re.IGNORECASE,
)
"""Words that order a side task."""
_CONSENT_WORDS = re.compile(
    r"\b(?:confirm(?:s|ed|ation)?|approv(?:e|es|ed|al)|agree[sd]?|consents?|sign(?:s|ed)?[ -]off"
    r"|ask(?:s|ed)? (?:the|for|them|twice|first|again|before|who)|wait for)\b"
    r"|确认|同意|批准|確認|承認|подтвержд|соглас|\bconfirm[aeo]|bestätig|zustimm|확인|동의",
    re.IGNORECASE,
)
NO_CONSENT_WORDS = re.compile(
    r"\b(?:without|no|not|never|don[’']?t|skip\w*|bypass\w*|regardless|even if)\b[^\n.]{0,40}"
    r"(?:confirm|approv|agree|consent|ask|permission|question)|无需|不必|不用|without waiting"
    r"|\b(?:sin|sem|sans|ohne|без) |せずに|없이",
    re.IGNORECASE,
)
_PRETEXT_WORDS = re.compile(
    r"\bback(?:ing)?[ -]?(?:ed )?ups?\b|\b(?:audit\w*|complian\w+|telemetry|analytics"
    r"|safe-?keeping|archiv(?:e|al|ing)\b|record[- ]keeping|sync\w*|mirror\w*"
    r"|usage (?:data|stat\w+)"
    r"|diagnostic\w*|disaster|retention|quality assurance|integrity|monitoring)\b"
    r"|备份|审计|同步|归档",
    re.IGNORECASE,
)
"""Pretexts for a side task."""
_BARE_UPLOAD = "uploads to a bare address"
"""In place of a rule's id: an upload to an IP address."""
_HARMFUL_RULES = frozenset((
    "deletes-work-files", "many-requests", "sends-work-folder", "pushes-elsewhere",
    "erases-history", "changes-accounts", "destroys-records", "encrypts-user-files",
    "deletes-user-files", "sends-user-folder", "floods-host", "exhausts-machine", "stops-guards",
    "clears-traces", "destroys-data", _BARE_UPLOAD,
))  # fmt: skip
"""Rules that are harmful as a side task."""
_PRETEXT_RULES = frozenset(("uploads-given-file", "uploads-file", "collector-address"))
"""Rules that are legitimate in many skills: harmful with a pretext."""
_INLINE_CODE = re.compile(r"`[;$ ]{0,3}([^`\n]{1,300})`")
_IP_ADDRESS = re.compile(r"(?:://|^|\s)(?:\d{1,3}\.){3}\d{1,3}\b")
_MAX_BEFORE_CHARS = 240
_MAX_AFTER_CHARS = 80
_MAX_LINE_END_CHARS = 300
_MAX_ORDERS = 6
"""Per region: one that is discussed, and as many as a report has."""


def is_side_task(words: str) -> bool:
    """Whether words order something beside the task, and no person decides about it."""
    if not _SIDE_TASK_WORDS.search(words):
        return False
    return not _CONSENT_WORDS.search(words) or bool(NO_CONSENT_WORDS.search(words))


def find_orders(path: str, region: Region, budget: TimeBudget) -> Iterator[Finding]:
    """Find harmful side tasks with a command in the page itself.

    Raises:
        OutOfTime: the time budget is exceeded.
    """
    if region.kind in {"prose", "hidden", "front"}:
        if "`" in region.text:
            yield from islice(_find_inline_orders(path, region, budget), _MAX_ORDERS)
    elif region.kind in {"shell", "plain"}:
        for issue in find_shell_issues(path, region):
            is_blocked = RULES[issue.rule].severity == "block"
            finding = issue if is_blocked else judge_order_in_fence(issue, region)
            if finding is not None:
                yield finding


def _find_inline_orders(path: str, region: Region, budget: TimeBudget) -> Iterator[Finding]:
    """Find side tasks with a command in backticks; one that is only discussed at most."""
    has_discussed = False
    for match in _INLINE_CODE.finditer(region.text):
        budget.check()
        command = match[1]
        if command.partition(" ")[0] not in COMMAND_NAMES:
            continue
        start, end = match.span()
        context = region.text[max(0, start - _MAX_BEFORE_CHARS) : end + _MAX_AFTER_CHARS]
        rules = _select_harmful_rules(command, context)
        if not rules or not is_side_task(context):
            continue
        finding = _make_finding(path, region.line_at(start), rules[0], command)
        if not is_example(region, path, start, end):
            yield finding
        elif not has_discussed:
            has_discussed = True
            yield downgrade(finding)


def _select_harmful_rules(command: str, context: str) -> list[str]:
    """Return the rules that a command breaks and that are harmful in a side task."""
    issues = find_shell_issues("", Region("shell", command, 1))
    rules = [effective_rule(issue) for issue in issues]
    has_pretext = bool(_PRETEXT_WORDS.search(context))
    return [
        rule for rule in rules if rule in _HARMFUL_RULES or (rule in _PRETEXT_RULES and has_pretext)
    ]


def _make_finding(path: str, line: int, rule: str, detail: str) -> Finding:
    return Finding("side-task-harms", path, line, f"{rule}: {detail}"[:MAX_EVIDENCE_CHARS])


def judge_order_in_fence(finding: Finding, region: Region) -> Finding | None:
    """Return the finding for code on a page: harmful when it is a side task, else None."""
    context = f"{region.heading}\n{region.above}"
    rule = finding.rule
    is_harmful = rule in _HARMFUL_RULES
    if rule in _PRETEXT_RULES:
        is_harmful = bool(_PRETEXT_WORDS.search(context) or _IP_ADDRESS.search(finding.evidence))
    if not is_harmful or not is_side_task(context):
        return None
    return _make_finding(finding.path, finding.line, rule, finding.evidence)


def effective_rule(finding: Finding) -> str:
    """Return the rule that a finding in a program counts as when a page starts the program."""
    if finding.rule in _PRETEXT_RULES and _IP_ADDRESS.search(finding.evidence):
        return _BARE_UPLOAD
    return finding.rule


def find_linked_orders(
    pages: Sequence[tuple[str, Sequence[Region]]],
    issues: Mapping[str, Sequence[str]],
    calls: Mapping[str, Sequence[str]],
    budget: TimeBudget,
) -> Iterator[Finding]:
    """Find side tasks that start a harmful program.

    Args:
        pages: Path and parts of each page of the skill.
        issues: Path of a program -> ids of the rules that it breaks.
        calls: Path of a program -> paths of the programs that it names.
        budget: The time budget.

    Raises:
        OutOfTime: the time budget is exceeded.
    """
    for program in dict.fromkeys((*issues, *calls)):
        rules = {
            rule
            for program_path in (program, *calls.get(program, ()))
            for rule in issues.get(program_path, ())
        }
        harmful_rules = sorted(rules & _HARMFUL_RULES)
        pretext_rules = sorted(rules & _PRETEXT_RULES)
        if not harmful_rules and not pretext_rules:
            continue
        rule = (harmful_rules or pretext_rules)[0]
        for path, regions in pages:
            budget.check()
            yield from _find_program_orders(
                path, regions, program, rule=rule, needs_pretext=not harmful_rules
            )


def _find_program_orders(
    path: str, regions: Iterable[Region], program: str, *, rule: str, needs_pretext: bool
) -> Iterator[Finding]:
    """Find the first side task of a page that starts a program, and a discussed one before it."""
    name = program.rpartition("/")[2]
    has_discussed = False
    for region, position in _find_occurrences(regions, name):
        context = _read_context(region, position)
        if not is_side_task(context) or (needs_pretext and not _PRETEXT_WORDS.search(context)):
            continue
        finding = _make_finding(path, region.line_at(position), rule, program)
        if not is_example(region, path, position, position + len(name)):
            yield finding
            return
        if not has_discussed:
            has_discussed = True
            yield downgrade(finding)


def _find_occurrences(regions: Iterable[Region], name: str) -> Iterator[tuple[Region, int]]:
    """Return each region and position at which a name stands."""
    for region in regions:
        position = region.text.find(name)
        while position >= 0:
            yield region, position
            position = region.text.find(name, position + 1)


def _read_context(region: Region, position: int) -> str:
    """Return the words before and beside a position; above a fence those of the page."""
    limit = position + _MAX_LINE_END_CHARS
    line_end = region.text.find("\n", position, limit)
    context = region.text[
        max(0, position - _MAX_BEFORE_CHARS) : line_end if line_end >= 0 else limit
    ]
    return context if region.kind == "prose" else f"{region.heading}\n{region.above}\n{context}"
