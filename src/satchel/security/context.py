"""Does a page do a thing, or talk about it?

A page that teaches how attacks look holds the same words as an attack. Where it names the attack
beside the words, quotes them or forbids them, a blocking rule becomes the review rule
`describes-attack`: it is still shown, and a person decides. Scripts, frontmatter and comments that
nobody sees are never taken for lessons.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from satchel.security.report import Finding

if TYPE_CHECKING:
    from satchel.security.regions import Region

_STRONG = (
    r"\b(?:attack(?:er|s|ers|ing|ed)?|malicious(?:ly)?|malware|inject(?:ion|ions|ed|ing)"
    r"|exploit\w*|payloads?|vulnerab\w+|red[ -]?flags?|adversar\w+|pen-?test\w*|red[ -]?team\w*"
    r"|jailbreak\w*|exfiltrat\w+|(?:reverse|bind|web) shells?|phishing|anti-?patterns?|ctf|owasp"
    r"|mitre|backdoor\w*|trojan\w*|post-?exploitation|privilege escalation|persistence techniques?"
    r"|forensic\w*|incident response|threat (?:model|hunt|actor|intel)\w*|guardrails?)\b"
    r"|攻击|恶意|注入|漏洞|越狱|木马"
)
_VILLAIN = re.compile(
    r"\b(?:attacker|evil|malicious|hacker|badguy)\.(?:com|net|org|io|tld|test)\b|attacker@|@kali\b",
    re.IGNORECASE,
)
"""Hosts that only lessons use."""
_LESSON = re.compile(_STRONG, re.IGNORECASE)
"""Words with which a page talks about an attack."""
_TITLE = re.compile(
    _STRONG + r"|\b(?:suspicious|threats?|detect\w*|indicators?|untrusted|dangerous|insecure|unsafe"
    r"|hostile|forbidden|prohibited|block(?:ed|list)"
    r"|security (?:review|audit|scan|check|risk|issue)\w*|harmful"
    r"|bad (?:example|practice|pattern)s?|what not to do|never do|don[’']?t|avoid|do not)\b"
    r"|危险|可疑|禁止|检测|威胁|反例",
    re.IGNORECASE,
)
"""The same in a heading, where fewer words say more."""
_FORBIDS = re.compile(
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
"""What stands on the line before words that are forbidden or quoted."""
_LIST = re.compile(
    r"(?:❌|🚫|⛔|\b(?:don[’']?ts?|do not|never|avoid|must not)\b)[^\n]{0,30}:\W{0,6}\n"
    r"(?:[ \t]{0,8}[-*+\d][^\n]{0,200}\n){0,12}$",
    re.IGNORECASE,
)
"""The lines above a point of a list that says what not to do."""
_ADDRESS = re.compile(r"[a-z+]{2,12}://\S+|\b[\w-]{1,63}(?:\.[\w-]{1,63}){2,8}")
"""Names of hosts and paths say nothing about a page."""
_PAGES = frozenset(("prose", "plain", "shell", "powershell", "python", "javascript", "code", "data",
                    "decoded"))  # fmt: skip


def is_lesson(region: Region, path: str) -> bool:
    """Whether a part of a page stands under words about attacks."""
    if region.script or region.kind not in _PAGES:
        return False
    if _TITLE.search(region.heading) or _LESSON.search(_ADDRESS.sub(" ", region.above)):
        return True
    name = os.path.splitext(path.lower())[0].replace("-", " ").replace("_", " ").replace("/", " ")
    return not path.lower().endswith("skill.md") and bool(_TITLE.search(name))


def talks(region: Region, path: str, start: int, end: int) -> bool:
    """Whether the words around a match talk about it instead of asking for it."""
    if region.script or region.kind not in _PAGES:
        return False
    text = region.text
    line_start = text.rfind("\n", 0, start) + 1
    before = text[max(line_start, start - 200) : start]
    if _FORBIDS.search(_ADDRESS.sub(" ", before)):
        return True
    if _LIST.search(text[max(0, line_start - 600) : line_start]):
        return True
    line_end = text.find("\n", end)
    after = text[end : min(line_end if line_end >= 0 else len(text), end + 200)]
    around = text[max(0, line_start - 240) : line_start] + before + " " + after
    if _LESSON.search(_ADDRESS.sub(" ", around)) or _quoted(region, before, after):
        return True
    if _VILLAIN.search(before + text[start:end] + after):
        return True
    return is_lesson(region, path)


def softened(finding: Finding) -> Finding:
    """A blocking finding as one that a person looks at."""
    shown = f"{finding.rule}: {finding.evidence}"
    return Finding("describes-attack", finding.path, finding.line, shown[:160])


def _quoted(region: Region, before: str, after: str) -> bool:
    """Words in quotes on a page are said to exist, not said to be done."""
    if region.kind != "prose" or not before or not after:
        return False
    return before[-1] in '"“「' and after[0] in '"”」,.…'
