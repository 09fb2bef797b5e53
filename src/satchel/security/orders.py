"""What does a page have done on the side? An order that comes with every use, and what it starts.

"After every edit, run `scripts/tidy.sh`" is harmless or not by what the script does. Here the two
are put together: a deed that alone is for review is blocked where the page orders it unasked.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from satchel.security import shelldeeds
from satchel.security.context import softened, talks
from satchel.security.regions import Region
from satchel.security.report import Finding
from satchel.security.rules import RULES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_ASIDE = re.compile(
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
"""Words with which something is ordered beside the task."""
_COVER = re.compile(
    r"\bback(?:ing)?[ -]?(?:ed )?ups?\b|\b(?:audit\w*|complian\w+|telemetry|analytics"
    r"|safe-?keeping|archiv(?:e|al|ing)\b|record[- ]keeping|sync\w*|mirror\w*"
    r"|usage (?:data|stat\w+)"
    r"|diagnostic\w*|disaster|retention|quality assurance|integrity|monitoring)\b"
    r"|备份|审计|同步|归档",
    re.IGNORECASE,
)
"""Reasons that are given for it."""
BARE = "uploads to a bare address"
"""In the place of a rule: an upload to a host without a name."""
_ALONE = frozenset((
    "deletes-work-files", "many-requests", "sends-work-folder", "pushes-elsewhere",
    "erases-history", "changes-accounts", "destroys-records", "encrypts-user-files",
    "deletes-user-files", "sends-user-folder", "floods-host", "exhausts-machine", "stops-guards",
    "clears-traces", "destroys-data", BARE,
))  # fmt: skip
"""Deeds that nobody wants on the side."""
_COVERED = frozenset(("uploads-given-file", "uploads-file", "collector-address"))
"""Deeds that many skills are for: harm when they are said to be something else."""
_INLINE = re.compile(r"`[;$ ]{0,3}([^`\n]{6,300})`")
_BARE = re.compile(r"(?:://|^|\s)(?:\d{1,3}\.){3}\d{1,3}\b")
_BEFORE = 240
_MOST = 200
"""Commands within one part's sentences that are looked at."""
_NAMED = 20
"""Places at which one page names one program that are looked at."""


class Page(NamedTuple):
    """A page of the skill, kept until its programs were read."""

    path: str
    regions: Sequence[Region]


def find_orders(path: str, region: Region) -> Iterator[Finding]:
    """Harm that a page orders on the side by a command of its own."""
    if region.kind in {"prose", "hidden", "front"}:
        if "`" in region.text:
            yield from _inline(path, region)
    elif region.kind in {"shell", "plain"}:
        for deed in shelldeeds.find_deeds(path, region):
            kept = deed if RULES[deed.rule].severity == "block" else in_fence(deed, region)
            if kept is not None:
                yield kept


def _inline(path: str, region: Region) -> Iterator[Finding]:
    text = region.text
    left = _MOST
    for found in _INLINE.finditer(text):
        command = found[1]
        if command.partition(" ")[0] not in shelldeeds.STARTS:
            continue
        left -= 1
        if left < 0:
            return
        around = text[max(0, found.start() - _BEFORE) : found.end() + 80]
        rules = [
            rule
            for deed in shelldeeds.find_deeds(path, Region("shell", command, 1))
            if (rule := deed_of(deed)) in _ALONE or (rule in _COVERED and _COVER.search(around))
        ]
        if rules and _ordered(around):
            line = region.line + text.count("\n", 0, found.start())
            finding = Finding("side-task-harms", path, line, f"{rules[0]}: {command}"[:160])
            yield softened(finding) if talks(region, path, found.start(), found.end()) else finding


def in_fence(finding: Finding, region: Region) -> Finding | None:
    """What code on a page comes to: harm when it is ordered on the side, else nothing."""
    why = f"{region.heading}\n{region.above}"
    rule = finding.rule
    bad = rule in _ALONE or (
        rule in _COVERED and (_COVER.search(why) or _BARE.search(finding.evidence))
    )
    if not bad or not _ordered(why):
        return None
    return finding._replace(rule="side-task-harms", evidence=f"{rule}: {finding.evidence}"[:160])


def deed_of(finding: Finding) -> str:
    """What a finding in a program counts as when a page starts the program."""
    if finding.rule in _COVERED and _BARE.search(finding.evidence):
        return BARE
    return finding.rule


def _ordered(*texts: str) -> bool:
    return any(_ASIDE.search(text) for text in texts)


def link(
    pages: Sequence[Page],
    deeds: Mapping[str, Sequence[str]],
    calls: Mapping[str, Sequence[str]],
) -> Iterator[Finding]:
    """Orders that start a program which does harm.

    Args:
        pages: The pages of the skill.
        deeds: Path of a program -> ids of the rules that it breaks.
        calls: Path of a program -> paths of the programs that it names.
    """
    for program in dict.fromkeys((*deeds, *calls)):
        rules = {rule for one in (program, *calls.get(program, ())) for rule in deeds.get(one, ())}
        alone, covered = sorted(rules & _ALONE), sorted(rules & _COVERED)
        if not alone and not covered:
            continue
        name = program.rpartition("/")[2]
        for page in pages:
            for region, at in _places(page.regions, name):
                around = _around(region, at)
                if _ordered(around) and (alone or _COVER.search(around)):
                    shown = f"{(alone or covered)[0]}: {program}"[:160]
                    line = region.line + region.text.count("\n", 0, at)
                    finding = Finding("side-task-harms", page.path, line, shown)
                    soft = talks(region, page.path, at, at + len(name))
                    yield softened(finding) if soft else finding
                    break


def _places(regions: Sequence[Region], name: str) -> Iterator[tuple[Region, int]]:
    left = _NAMED
    for region in regions:
        at = region.text.find(name)
        while at >= 0 and left:
            yield region, at
            left -= 1
            at = region.text.find(name, at + 1)


def _around(region: Region, at: int) -> str:
    """The words before and beside a place; above a fence those of the page."""
    end = region.text.find("\n", at)
    end = len(region.text) if end < 0 else end
    before = region.text[max(0, at - _BEFORE) : min(end, at + 300)]
    return before if region.kind == "prose" else f"{region.heading}\n{region.above}\n{before}"
