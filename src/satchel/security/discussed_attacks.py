"""Tells texts that discuss an attack from texts that order it.

A page about attacks contains the same words as an attack. Where it names the attack, quotes the
words or forbids them, a blocking rule becomes the review rule `describes-attack`. Scripts,
frontmatter and hidden comments never count as lessons.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from satchel.security.regions import PROGRAM_KINDS
from satchel.security.report import MAX_EVIDENCE_CHARS, Finding

if TYPE_CHECKING:
    from satchel.security.regions import Region

_ATTACK_WORDS = (
    r"\b(?:attack(?:er|s|ers|ing|ed)?|malicious(?:ly)?|malware|inject(?:ion|ions|ed|ing)"
    r"|exploit\w*|payloads?|vulnerab\w+|red[ -]?flags?|adversar\w+|pen-?test\w*|red[ -]?team\w*"
    r"|jailbreak\w*|exfiltrat\w+|(?:reverse|bind|web) shells?|phishing|anti-?patterns?|ctf|owasp"
    r"|mitre|backdoor\w*|trojan\w*|post-?exploitation|privilege escalation|persistence techniques?"
    r"|forensic\w*|incident response|threat (?:model|hunt|actor|intel)\w*|guardrails?)\b"
    r"|攻击|恶意|注入|漏洞|越狱|木马|骗局|诈骗|atacante|\bataque|malicios|estafa|злоумышлен|\bатак"
    r"|вредонос|мошен|фишинг|攻撃|悪意|詐欺|フィッシング|angreifer|angriff|bösartig|schadcode|betrug"
    r"|attaquant|malveillan|hameçonnage|공격|악성|피싱|사기"
)
_EXAMPLE_HOST = re.compile(
    r"\b(?:attacker|evil|malicious|hacker|badguy)\.(?:com|net|org|io|tld|test)\b|attacker@|@kali\b",
    re.IGNORECASE,
)
"""Hosts that only examples use."""
_ATTACK_WORD = re.compile(_ATTACK_WORDS, re.IGNORECASE)
"""Words of pages about attacks."""
_WARNING_TITLE = re.compile(
    _ATTACK_WORDS
    + r"|\b(?:suspicious|threats?|detect\w*|indicators?|untrusted|dangerous|insecure|unsafe"
    r"|hostile|forbidden|prohibited|block(?:ed|list)"
    r"|security (?:review|audit|scan|check|risk|issue)\w*|harmful"
    r"|bad (?:example|practice|pattern)s?|what not to do|never do|don[’']?t|avoid|do not)\b"
    r"|危险|可疑|禁止|检测|威胁|反例",
    re.IGNORECASE,
)
"""Words of headings above such text."""
_FORBIDDING_WORDS = re.compile(
    r"(?:\b(?:never|don[’']?t|do not|does not|must not|should not|shouldn[’']?t|cannot|can[’']?t"
    r"|avoid|refuse\w*|reject\w*|forbid\w*|deny|denies|ignore (?:any )?requests?|block\w*|flag\w*"
    r"|instead of|rather than|not to|wrong|bad|e\.g\.|for example|such as|examples?|say(?:s|ing)?"
    r"|claim\w*"
    r"|looks? (?:for|like)|search(?:es)? for|grep|regex\w*|pattern\w*|detect\w*|suspicious\w*"
    r"|attempts? to|tr(?:y|ies|ying) to|requests? to|asks? (?:you )?to"
    r"|when (?:you )?(?:need|want) to"
    r"|you need to|could|would|might)\b"
    r"|[❌✗🚫⛔]|不要|切勿|禁止|例如|避免|不得)[^\n]{0,100}$",
    re.IGNORECASE,
)
"""Words before a match, in the same sentence, that forbid or quote it."""
CLAUSE_END = re.compile(
    r"[.!?:](?=[^\w/]|[A-ZÀ-ÞА-Я]|\Z)|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029。！？；;]|&&|\|\||\s[|#/-]+\s"
    r"|</?\w[^>\n]*>|<!--|-->|[^\w\s\x21-\x7e“”‘’«»，、（）—–❌✗🚫⛔]"
)
"""The end of a sentence, a command, a cell of a table or an element of a page."""
_CONTINUING_END = re.compile(r"(?:\be\.g\.|\bi\.e\.|:)\Z")
_NEGATION_WORDS = r"\b(?:never|do not|don[’']?t|does not|must not|should not|cannot|can[’']?t)"
_HOLLOW_NEGATION = re.compile(
    _NEGATION_WORDS
    + r"\s+(?:\w+\s+)?(?:mind|worry|hesitate|forget|wait|delay|fail|skip|neglect|omit|miss|refuse"
    r"|complain|object|need|have to|wrong|harmful|hurts?|ask(?!\s+(?:\w+\s+){1,3}(?:to|for)\b))\b"
    r"|"
    + _NEGATION_WORDS
    + r"\s+(?:\w+\s+)?(?:proceed|start|begin|continue|stop|finish|go on|move on|rest|answer"
    r"|respond|reply|leave)\b(?=\s*[,;]|[^.\n]{0,40}\b(?:until|before|without|unless|and|but)\b)"
    r"|\b(?:avoid|prevent)\w*\s+(?:\w+\s+){1,3}(?:and|by)\b|\bto (?:avoid|prevent)\b[^.\n,]{1,40},",
    re.IGNORECASE,
)
"""Words that forbid nothing: `do not forget to send it` is an order."""
_SECOND_ORDER = re.compile(r"\b(?:and|but|then|so)\s+" + _NEGATION_WORDS, re.IGNORECASE)
"""Words after an order that forbid something else: `send it and never log it`."""
_NEGATION = re.compile(_NEGATION_WORDS, re.IGNORECASE)
_CONDITION_START = re.compile(
    r"\W*(?:(?:and|but|or|then) )?(?:if|when|whenever|where|while|once|as)\b", re.IGNORECASE
)
_FORBIDDEN_LIST = re.compile(
    r"(?:❌|🚫|⛔|\b(?:don[’']?ts?|do not|never|avoid|must not)\b)[^\n]{0,30}:\W{0,6}\n"
    r"(?:[ \t]{0,8}[-*+\d][^\n]{0,200}\n){0,12}$",
    re.IGNORECASE,
)
"""Lines above an item in a list of things not to do."""
_ADDRESS = re.compile(r"[a-z+]{2,12}://\S+|\b[\w-]{1,63}(?:\.[\w-]{1,63}){2,8}")
"""Hosts and paths, which are ignored when a page is classified."""
_MAX_LINE_CHARS = 4000
"""Of a longer line, the part before a match is searched for words about attacks."""
_MAX_BESIDE_CHARS = 200
"""Before and after a match, in its line."""
_MAX_ABOVE_CHARS = 240
_MAX_LIST_CHARS = 600
PAGE_KINDS = PROGRAM_KINDS | {"prose", "plain", "data", "decoded"}
"""Kinds of regions that people read on a page."""


def is_lesson(region: Region, path: str) -> bool:
    """Whether a part of a page is below words about attacks."""
    if region.script or region.kind not in PAGE_KINDS:
        return False
    if _WARNING_TITLE.search(region.heading) or _has_word(_ATTACK_WORD, region.above):
        return True
    words = re.sub("[-_/]", " ", os.path.splitext(path.lower())[0])
    return not path.lower().endswith("skill.md") and bool(_WARNING_TITLE.search(words))


def is_example(region: Region, path: str, start: int, end: int) -> bool:
    """Whether the words around a match discuss it instead of ordering it."""
    if region.script or region.kind not in PAGE_KINDS:
        return False
    text = region.text
    limit = max(0, start - _MAX_LINE_CHARS)
    line_start = max(text.rfind("\n", limit, start) + 1, limit)
    before_start = max(line_start, start - _MAX_BESIDE_CHARS)
    before = text[before_start:start]
    after = text[end : end + _MAX_BESIDE_CHARS].partition("\n")[0]
    clause = text[find_clause_start(text, before_start, start, ends_at_colon=False) : start]
    lines_above = text[max(0, line_start - _MAX_ABOVE_CHARS) : line_start]
    return (
        _has_word(_FORBIDDING_WORDS, remove_hollow_negations(clause))
        or _FORBIDDEN_LIST.search(text[max(0, line_start - _MAX_LIST_CHARS) : line_start])
        is not None
        or _has_word(_ATTACK_WORD, lines_above + before + " " + after)
        or _is_quoted(region, before, after)
        or _EXAMPLE_HOST.search(before + text[start:end] + after) is not None
        or is_lesson(region, path)
    )


def _has_word(pattern: re.Pattern[str], text: str) -> bool:
    """Whether a pattern matches outside of hosts and paths."""
    return pattern.search(_ADDRESS.sub(" ", text)) is not None


def find_clause_start(text: str, start: int, end: int, *, ends_at_colon: bool = True) -> int:
    """Return where the clause begins that goes on to `end`.

    Args:
        text: The text.
        start: Where the search begins.
        end: Where it ends.
        ends_at_colon: Whether a colon, or `e.g.`, ends a clause.
    """
    for match in CLAUSE_END.finditer(text, start, end):
        if ends_at_colon or not _CONTINUING_END.search(text, start, match.end()):
            start = match.end()
    return start


def remove_hollow_negations(text: str) -> str:
    """Return a text without negations that forbid nothing."""
    return _HOLLOW_NEGATION.sub(" ", text)


def remove_asides(text: str) -> str:
    """Return what follows a match, without negations that are about something else."""
    return _SECOND_ORDER.sub(" ", text)


def remove_negation(condition: str) -> str:
    """Return a condition without its negation: `if you do not know it` forbids nothing."""
    return _NEGATION.sub(" ", condition) if _CONDITION_START.match(condition) else condition


def downgrade(finding: Finding) -> Finding:
    """Return a blocking finding as one for review."""
    evidence = f"{finding.rule}: {finding.evidence}"
    return Finding("describes-attack", finding.path, finding.line, evidence[:MAX_EVIDENCE_CHARS])


def _is_quoted(region: Region, before: str, after: str) -> bool:
    """Whether a match in prose is in quotes."""
    if region.kind != "prose" or not before or not after:
        return False
    return before[-1] in "\"“„«「『'" and after[0] in "\"”“»」』',.…!"
