"""Scans a skill: reads each file once and runs every engine over it.

`ScanReport.unscanned` lists what could not be scanned, with the reason: too large, not text, nested
too deeply, an archive, or no time left. A hostile file makes a scan incomplete; it cannot make it
hang or hide the other files.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from typing import TYPE_CHECKING

from satchel.errors import SatchelError
from satchel.i18n import Message
from satchel.security import instruction_rules, python_analysis, shell_rules
from satchel.security.disguise_rules import find_disguises
from satchel.security.instruction_rules import downgrade, is_lesson, is_secret
from satchel.security.payload_rules import find_payloads, inspect_binary
from satchel.security.regions import PROGRAMS, is_program, kind_of, regions_of
from satchel.security.report import Inventory, OutOfTime, ScanReport, TimeBudget, verdict_for
from satchel.security.rules import RULES, SEVERITIES
from satchel.security.text_rules import (
    TooDense,
    decoded,
    find_encoded,
    find_hidden_characters,
    find_patterns,
    find_secrets,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from satchel.security.regions import Region
    from satchel.security.report import Finding
    from satchel.skill.file_tree import Tree, TreeFile

_HOST = re.compile(r"://(?:[^\s/@'\"<>]{1,80}@)?([A-Za-z0-9][A-Za-z0-9.-]{2,250})")
_VARIABLES = (
    re.compile(r"process\.env\.([A-Za-z_]\w{1,60})"),
    re.compile(r"process\.env\[\s*['\"]([A-Za-z_]\w{1,60})"),
    re.compile(r"\$(?:env:)?\{?([A-Z][A-Z0-9_]{2,60})\b"),
    re.compile(r"(?:environ(?:\.get)?|getenv|ENV(?:\.fetch)?)\s*[\[(]\s*['\"]([A-Za-z_]\w{1,60})"),
)
_MAX_INVENTORY = 500
"""Hosts, and secrets, of one skill."""


class Collector:
    """Collects the inventory of a skill."""

    def __init__(self) -> None:
        self.programs: set[str] = set()
        self.hosts: set[str] = set()
        self.secrets: set[str] = set()

    def add(self, region: Region) -> None:
        """Add the hosts and secrets of a program or command."""
        if region.kind not in PROGRAMS and region.kind not in {"plain", "decoded"}:
            return
        text = region.text
        if "://" in text and len(self.hosts) < _MAX_INVENTORY:
            self.hosts.update(found.rstrip(".").lower() for found in _HOST.findall(text))
        if region.kind != "plain" and ("env" in text.lower() or "$" in text):
            for pattern in _VARIABLES:
                self.secrets.update(name for name in pattern.findall(text) if is_secret(name))

    def result(self) -> Inventory:
        """The sorted inventory."""
        return Inventory(
            tuple(sorted(self.programs)),
            tuple(sorted(self.hosts)[:_MAX_INVENTORY]),
            tuple(sorted(self.secrets)[:_MAX_INVENTORY]),
        )


_MAX_TEXT_BYTES = 1 << 20
"""More than any page or script of a real skill has."""
_MAX_FILE_BYTES = 16 << 20
_MAX_FINDINGS = 200
"""Per skill."""
_MAX_FINDINGS_PER_RULE = 5
"""Per file."""
_MAX_NAMED_PROGRAMS = 300
"""Programs of one skill that are searched for in its pages."""
_SUFFIXES = (".sh", ".bash", ".zsh", ".py", ".js", ".mjs", ".cjs", ".ts", ".ps1", ".bat", ".rb")
ENGINES = ("text", "python", "unicode", "secrets", "files", "payloads")


class _SkillScan:
    """The state of a scan."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []
        self.unscanned: list[tuple[str, str]] = []
        self.inventory = Collector()
        self.budget = TimeBudget()
        self.pages: list[tuple[str, list[Region]]] = []
        """Path and parts, kept until the programs are scanned."""
        self.names: dict[str, str] = {}
        """Name of a program -> its path."""
        self.calls: dict[str, tuple[str, ...]] = {}


def scan_tree(tree: Tree) -> ScanReport:
    """Scan every file of a skill."""
    skill = _SkillScan()
    programs = [file.path for file in tree.files if file.path.endswith(_SUFFIXES)]
    skill.names = {os.path.basename(path): path for path in programs[:_MAX_NAMED_PROGRAMS]}
    for file in tree.files:
        if file.mode == "link":
            continue  # its target is a file of the same skill
        try:
            skill.budget.check()
            _scan_file(skill, tree, file)
        except OutOfTime:
            skill.unscanned.append((file.path, Message("the scan took too long")))
        except (OSError, SatchelError) as exc:
            reason = exc.message if isinstance(exc, SatchelError) else exc.strerror or str(exc)
            skill.unscanned.append(
                (file.path, Message("it cannot be read: {reason}", reason=reason))
            )
    skill.findings += _linked_orders(skill)
    announced = instruction_rules.soften_announced(skill.findings, skill.pages)
    findings = tuple(_sorted([*announced]))
    return ScanReport(
        verdict=verdict_for(findings, skill.unscanned),
        findings=findings,
        unscanned=tuple(skill.unscanned),
        inventory=skill.inventory.result(),
        engines=ENGINES,
    )


def _linked_orders(skill: _SkillScan) -> Iterator[Finding]:
    """Side tasks in pages that start a harmful program of the skill."""
    issues: dict[str, list[str]] = {}
    for finding in skill.findings:
        if finding.path.endswith(_SUFFIXES):
            issues.setdefault(finding.path, []).append(instruction_rules.issue_of(finding))
    yield from instruction_rules.find_linked_orders(skill.pages, issues, skill.calls)


def _scan_file(skill: _SkillScan, tree: Tree, file: TreeFile) -> None:
    data = _read(tree, file.path)
    data = _cut(skill, file.path, data, _MAX_FILE_BYTES)
    seen = [*find_payloads(file.path, data)]
    binary = inspect_binary(file.path, data)
    if binary is not None:
        found, reason = binary
        skill.findings += (*seen, *found)
        if reason:
            skill.unscanned.append((file.path, reason))
        if any(one.rule.endswith("-program") for one in found):
            skill.inventory.programs.add(file.path)
        return
    text, whole = _decoded(_cut(skill, file.path, data, _MAX_TEXT_BYTES))
    if not whole:
        skill.unscanned.append((file.path, Message("it is not text")))
    kind = kind_of(file.path, text[:200])
    if is_program(file.path, kind) or (file.mode == "program" and kind != "markdown"):
        skill.inventory.programs.add(file.path)
    _scan_text(skill, file.path, text, kind, seen)


def _cut(skill: _SkillScan, path: str, data: bytes, limit: int) -> bytes:
    if len(data) > limit:
        reason = Message("only its first {size} MiB are scanned", size=limit >> 20)
        skill.unscanned.append((path, reason))
    return data[:limit]


def _scan_text(skill: _SkillScan, path: str, text: str, kind: str, seen: list[Finding]) -> None:
    regions = [*regions_of(path, text)]
    findings = [*seen, *find_hidden_characters(path, text, kind)]
    inner: list[Region] = []
    for region in regions:
        skill.budget.check()
        if region.kind == "python":
            inner += _scan_python(skill, path, region, findings)
        inner += decoded(region)
    for region in [*inner]:
        if region.kind == "decoded":
            inner += decoded(region)  # encoded twice
    page = kind in {"markdown", "prose"}
    if page:
        skill.pages.append((path, regions))
    elif path.endswith(_SUFFIXES):
        skill.calls[path] = tuple(
            where for name, where in skill.names.items() if where != path and name in text
        )
    for region in (*regions, *inner):
        skill.inventory.add(region)
        find = shell_rules.find_shell_issues if region.script else instruction_rules.find_orders
        findings += find(path, region)
        findings += find_encoded(path, region)
        findings += instruction_rules.find_flows(path, region)
        findings += find_disguises(path, region)
    findings = _in_context(findings, regions, path)
    lowered = " ".join((text.lower(), *(region.text.lower() for region in inner)))
    findings += find_secrets(path, text, lowered)
    try:
        findings += find_patterns(path, (*regions, *inner), lowered, skill.budget)
    except TooDense:
        skill.unscanned.append((path, Message("the scan took too long")))
    skill.findings += _limit_per_rule(findings)


def _in_context(findings: list[Finding], regions: list[Region], path: str) -> list[Finding]:
    """The findings; blocking ones in a text that teaches about attacks are downgraded."""
    starts = [region.line for region in regions]
    out: list[Finding] = []
    for finding in findings:
        at = bisect_right(starts, finding.line) - 1
        lesson = at >= 0 and RULES[finding.rule].talk and is_lesson(regions[at], path)
        out.append(downgrade(finding) if lesson and finding.severity == "block" else finding)
    return out


def _scan_python(
    skill: _SkillScan, path: str, region: Region, findings: list[Finding]
) -> Iterator[Region]:
    """Scan Python code; yields the commands that it passes to a shell."""
    unparsed = (path, Message("it cannot be parsed as Python"))
    if len(region.text) > python_analysis.MAX_MODULE_CHARS:
        skill.unscanned.append(unparsed)
        return
    try:
        module = python_analysis.read_python(path, region, skill.budget)
    except (RecursionError, MemoryError):
        skill.unscanned.append(unparsed)
        return
    if module is None:
        if region.script:
            skill.unscanned.append(unparsed)
        yield region._replace(kind="plain")
        return
    for found in module.findings:
        in_page = not region.script and RULES[found.rule].engine == "deeds"
        kept = instruction_rules.order_in_fence(found, region) if in_page else found
        findings += [kept] if kept is not None else []
    skill.inventory.secrets.update(module.secrets)
    yield from module.commands


def _limit_per_rule(findings: list[Finding]) -> Iterator[Finding]:
    count: dict[str, int] = {}
    for finding in dict.fromkeys(findings):
        count[finding.rule] = count.get(finding.rule, 0) + 1
        if count[finding.rule] <= _MAX_FINDINGS_PER_RULE:
            yield finding


def _sorted(findings: list[Finding]) -> list[Finding]:
    order = {severity: at for at, severity in enumerate(SEVERITIES)}
    unique = dict.fromkeys(findings)
    ranked = sorted(unique, key=lambda one: (order[RULES[one.rule].severity], one.path, one.line))
    return ranked[:_MAX_FINDINGS]


def _read(tree: Tree, path: str) -> bytes:
    data = bytearray()
    for chunk in tree.chunks(path):
        data += chunk
        if len(data) > _MAX_FILE_BYTES:
            break
    return bytes(data)


def _decoded(data: bytes) -> tuple[str, bool]:
    """(text, whether all of it is text)."""
    if data[:2] in {b"\xff\xfe", b"\xfe\xff"}:
        text = data.decode("utf-16", "replace")
    else:
        try:
            return data.decode("utf-8").replace("\r\n", "\n"), True
        except UnicodeDecodeError:
            text = data.decode("utf-8", "replace")
    broken = text.count("\ufffd")
    if broken * 20 > len(text):
        text = data.decode("latin-1")
        return text.replace("\r\n", "\n"), False
    return text.replace("\r\n", "\n"), True
