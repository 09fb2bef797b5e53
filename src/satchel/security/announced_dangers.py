"""Softens findings about dangers that the skill's description announces.

A skill for off-boarding wipes disks, and one for penetration tests has attacks in its pages. What
the start of the description announces is for review in the visible parts of pages, which people
read. What is done in every run, unasked, to the home folder or for a fixed host stays blocked, as
do orders against the user, such as secrecy, and anything that is sent away or fetched.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from satchel.security.discussed_attacks import PAGE_KINDS
from satchel.security.report import MAX_EVIDENCE_CHARS
from satchel.security.rules import RULES
from satchel.security.shell_targets import is_placeholder_host, names_fixed_host
from satchel.security.side_tasks import NO_CONSENT_WORDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from satchel.security.regions import Region
    from satchel.security.report import Finding

_REMOVAL_WORDS = (
    r"off-?board|decommission|\bwip(?:e|es|ing)\b|\beras(?:e|es|ing|ure)\b|\bgdpr\b|离职"
)
_ANNOUNCING_WORDS: tuple[tuple[tuple[str, ...], str], ...] = (
    (("side-task-destroys",), _REMOVAL_WORDS),
    (
        ("destroys-records",),
        _REMOVAL_WORDS
        + r"|\btear(?:s|ing)? down\b|\b(?:delet|remov|destroy)(?:e|es|s|ing)\b[^.]{0,40}"
        r"\b(?:namespace|environment|resource|cluster|bucket|database|stack|tenant)s?\b",
    ),
    (
        ("destroys-data",),
        _REMOVAL_WORDS
        + r"|\b(?:add|format|partition|prepar|replac|reinstall)\w*\b[^.]{0,40}\b(?:disk|drive)s?\b",
    ),
    (("encrypts-user-files",), r"\bencrypt"),
    (
        ("stops-guards", "switches-protection-off", "asks-to-lower-guard"),
        (
            r"firewall|anti-?virus|defender|selinux|apparmor|gatekeeper|\bauditd\b|\bdrivers?\b"
            r"|\bkernel\b|\bmfa\b|\b2fa\b|two-factor"
        ),
    ),
    (
        ("container-escape",),
        r"\bdebug\w*[^.]{0,40}\b(?:container|kubernetes|docker|pod|node)s?\b",
    ),
    (
        ("reverse-shell", "js-runs-decoded"),
        r"pen(?:etration)?[ -]?test|red[ -]?team|\bctf\b|offensive security|\bexploitation|\bxss\b",
    ),
)
"""Rules, and the words of a description that announces what they find."""
_ANNOUNCEMENTS = {
    rule_id: re.compile(words, re.IGNORECASE)
    for rule_ids, words in _ANNOUNCING_WORDS
    for rule_id in rule_ids
}
_ATTACK_RULES = frozenset(("reverse-shell", "js-runs-decoded"))
_AUTHORISATION_WORDS = re.compile(
    r"\b(?:authori[sz](?:ed|ation)|in[ -]scope|scope of|engagement|lab)\b|授权", re.IGNORECASE
)
_DESCRIPTION = re.compile(r"^description:[ \t]*([^\n]*(?:\n[ \t]+[^\n]*)*)", re.MULTILINE)
_MAX_ANNOUNCEMENT_CHARS = 160
_CONTEXT_LINES = 3
"""The line of a finding, with the line before and the line after it."""
_NEGATION_BEFORE = re.compile(
    r"\b(?:without|never|not?|don[’']?t|cannot)\b[^.]{0,40}$", re.IGNORECASE
)
# What happens in every run or without a question, and what is in the home folder.
_UNASKED_WORDS = re.compile(
    r"\b(?:after|before|on|during|upon|(?:start|beginning|end) of) (?:each|every|any|all|the|your) "
    r"(?:\w+ )?(?:edit|run|use|task|session|request|step|message|file|form|change|command|answer)"
    r"|\b(?:each|every|any) (?:time|session|run|use|task|request)\b|\bwhenever\b"
    r"|\bbefore (?:you|anything)\b|每次|\bsin (?:preguntar|avis)|\bohne (?:zu fragen|rückfrage)"
    r"|\b(?:quietly|silently|secretly)\b|home director|\bwithout telling\b"
    r"|~/|\$HOME\b|/home/|/Users/",
    re.IGNORECASE,
)
# The host of an assignment, of netcat or of bash's own device: computed by a command, or a name.
_ATTACK_TARGET = re.compile(
    r"(?:\b\w*(?:host|ip|addr|server)\w*\s?[=:]\s?|\bnc(?:at)?\s(?:-\w+\s(?:/bin/\w+\s)?)*|/dev/tcp/)['\"]?"
    r"(\$\(|`|(?:[a-z0-9][\w-]*\.)+[a-z0-9]+)",
    re.IGNORECASE,
)


def soften_announced(
    findings: Iterable[Finding], regions_by_path: Mapping[str, Sequence[Region]]
) -> Iterator[Finding]:
    """Return the findings; those that the skill's description announces are for review.

    Args:
        findings: Of the whole skill.
        regions_by_path: The regions of each text of the skill, by its path.
    """
    skill_md_regions = regions_by_path.get("SKILL.md", ())
    description = _read_announcement(skill_md_regions)
    for finding in findings:
        regions = regions_by_path.get(finding.path, ())
        if _may_soften(finding, description, regions, skill_md_regions):
            evidence = f"{finding.rule}: {finding.evidence}"[:MAX_EVIDENCE_CHARS]
            yield finding._replace(rule="announced-danger", evidence=evidence)
        else:
            yield finding


def _may_soften(
    finding: Finding,
    description: str,
    regions: Sequence[Region],
    skill_md_regions: Sequence[Region],
) -> bool:
    """Whether a finding that blocks is announced, and people read where it is."""
    rule = RULES[finding.rule]
    if rule.severity != "block":
        return False
    # The evidence of a side task begins with the rule that its program breaks.
    harm = finding.evidence.partition(":")[0] if rule.id == "side-task-harms" else rule.id
    if not _announces(description, harm):
        return False
    if harm in _ATTACK_RULES:
        return _is_in_visible_regions(
            finding, regions, allow_scripts=True
        ) and _is_authorised_attack(finding, regions, skill_md_regions)
    return _is_in_visible_regions(finding, regions, allow_scripts=False)


def _read_announcement(skill_md_regions: Sequence[Region]) -> str:
    """Return the start of the description in the frontmatter of `SKILL.md`."""
    if not skill_md_regions or skill_md_regions[0].kind != "front":
        return ""
    description = _DESCRIPTION.search(skill_md_regions[0].text)
    return description[1][:_MAX_ANNOUNCEMENT_CHARS] if description else ""


def _announces(description: str, harm: str) -> bool:
    """Whether a description says that its skill does a harm."""
    pattern = _ANNOUNCEMENTS.get(harm)
    announcement = pattern.search(description) if pattern else None
    if announcement is None:
        return False
    return not _NEGATION_BEFORE.search(description[: announcement.start()])


def _is_in_visible_regions(
    finding: Finding, regions: Sequence[Region], *, allow_scripts: bool
) -> bool:
    """Whether a finding is only in regions that people read, which may be programs if allowed."""
    finding_regions = [region for region in regions if _contains(region, finding)]
    return bool(finding_regions) and all(
        _is_visible_and_requested(region, finding) and (allow_scripts or not region.script)
        for region in finding_regions
    )


def _is_authorised_attack(
    finding: Finding, regions: Sequence[Region], skill_md_regions: Sequence[Region]
) -> bool:
    """Whether the skill asks for an authorisation, and no host is the target of its attack."""
    if not any(_AUTHORISATION_WORDS.search(region.text) for region in skill_md_regions):
        return False
    if any(_names_attack_target(region) for region in regions):
        return False
    return not any(
        names_fixed_host(region.text) for region in regions if _contains(region, finding)
    )


def _contains(region: Region, finding: Finding) -> bool:
    """Whether a finding is about a line of a region."""
    return region.line <= finding.line <= region.line + region.text.count("\n")


def _is_visible_and_requested(region: Region, finding: Finding) -> bool:
    """Whether people read a region, and it does its harm once, asked for, outside of their home."""
    first_line = max(0, finding.line - region.line - 1)
    lines = region.text.split("\n")[first_line : first_line + _CONTEXT_LINES]
    context = "\n".join((region.heading, region.above if region.kind != "prose" else "", *lines))
    is_asked_for = not _UNASKED_WORDS.search(context) and not NO_CONSENT_WORDS.search(context)
    return region.kind in PAGE_KINDS and is_asked_for


def _names_attack_target(region: Region) -> bool:
    """Whether a region names the host of an attack, or computes it."""
    return any(
        match[1] in {"$(", "`"} or not is_placeholder_host(match[1])
        for match in _ATTACK_TARGET.finditer(region.text)
    )
