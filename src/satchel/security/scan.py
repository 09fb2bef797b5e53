"""Scans a skill: reads each file once and runs every engine over it.

`ScanReport.unscanned` lists what could not be scanned, with the reason. Where that may be text, the
finding `not-examined` blocks the skill: too large, nested too deeply, a damaged archive, Python
that cannot be parsed, or no time left. A hostile file cannot make a scan hang, nor hide others.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from itertools import chain
from typing import TYPE_CHECKING

from satchel.errors import SatchelError
from satchel.i18n import Message
from satchel.security import instruction_rules, python_analysis, shell_rules
from satchel.security.disguise_rules import find_disguises
from satchel.security.file_text import (
    MAX_UNPACKED_BYTES,
    NotExamined,
    decode_text,
    is_archive,
    is_utf8,
    members,
    other_encodings,
    other_readings,
    text_inside,
)
from satchel.security.instruction_rules import downgrade, is_lesson, is_secret
from satchel.security.payload_rules import find_payloads, inspect_binary, is_recognised
from satchel.security.regions import (
    PROGRAMS,
    Region,
    is_program_file,
    kind_of,
    known_kind,
    regions_of,
)
from satchel.security.report import (
    Finding,
    Inventory,
    OutOfTime,
    ScanReport,
    TimeBudget,
    verdict_for,
)
from satchel.security.rules import RULES, SEVERITIES
from satchel.security.text_rules import (
    decoded,
    find_encoded,
    find_hidden_characters,
    find_patterns,
    find_secrets,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

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
        self.requests: set[str] = set()

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
            tuple(sorted(self.requests)[:_MAX_INVENTORY]),
        )


_MAX_TEXT_BYTES = 16 << 20
"""Of one file. Of a larger one, which blocks the skill, only the start is scanned."""
_MAX_START_BYTES = 1 << 20
_MAX_ARCHIVE_DEPTH = 3
_MAX_FINDINGS = 200
"""Per skill."""
_MAX_FINDINGS_PER_RULE = 5
"""Per file."""
_SUFFIXES = (".sh", ".bash", ".zsh", ".py", ".js", ".mjs", ".cjs", ".ts", ".ps1", ".bat", ".rb")
_NAME = re.compile(r"[\w.+-]+")
_REQUEST = re.compile("allowed[-_]?tools", re.IGNORECASE)
ENGINES = ("text", "python", "unicode", "secrets", "files", "payloads")


class _SkillScan:
    """The state of a scan."""

    def __init__(self, size: int) -> None:
        self.findings: list[Finding] = []
        self.unscanned: list[tuple[str, str]] = []
        self.inventory = Collector()
        self.budget = TimeBudget(size)
        self.room = MAX_UNPACKED_BYTES
        self.pages: list[tuple[str, list[Region]]] = []
        """Path and parts, kept until the programs are scanned."""
        self.names: dict[str, list[str]] = {}
        """Name of a program -> its paths."""
        self.calls: dict[str, tuple[str, ...]] = {}

    def leave_out(self, path: str, reason: str, *, is_text: bool = True) -> None:
        """Record what is not examined; the skill is blocked where it may be text."""
        self.unscanned.append((path, reason))
        if is_text:
            self.findings.append(Finding("not-examined", path))


def scan_tree(tree: Tree) -> ScanReport:
    """Scan every file of a skill."""
    skill = _SkillScan(sum(file.size for file in tree.files))
    for file in tree.files:
        if file.path.endswith(_SUFFIXES):
            skill.names.setdefault(os.path.basename(file.path), []).append(file.path)
    path = ""
    try:
        for file in tree.files:
            path = file.path
            if file.mode != "link":  # its target is a file of the same skill
                skill.budget.check()
                _scan_file(skill, tree, file)
        skill.findings += _linked_orders(skill)
    except OutOfTime:
        skill.leave_out(path, Message("the scan took too long"))
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
    yield from instruction_rules.find_linked_orders(skill.pages, issues, skill.calls, skill.budget)


def _scan_file(skill: _SkillScan, tree: Tree, file: TreeFile) -> None:
    try:
        data = b"".join(tree.chunks(file.path))
    except (OSError, SatchelError) as exc:
        reason = exc.message if isinstance(exc, SatchelError) else exc.strerror or str(exc)
        reason = Message("it cannot be read: {reason}", reason=reason)
        skill.leave_out(file.path, reason, is_text=False)
        return
    try:
        _scan_data(skill, file.path, data, is_program=file.mode == "program")
    except (RecursionError, MemoryError):
        skill.leave_out(file.path, Message("it is nested too deeply"))


def _scan_data(
    skill: _SkillScan, path: str, data: bytes, *, is_program: bool = False, depth: int = 0
) -> None:
    seen = [*find_payloads(path, data)]
    left_out = is_archive(path, data) and not _scan_archive(skill, path, data, depth)
    binary = inspect_binary(path, data)
    if binary is None:
        _scan_readings(skill, path, data, seen, is_program=is_program)
        return
    found, reason = binary
    skill.findings += (*seen, *found)
    if any(one.rule.endswith("-program") for one in found):
        skill.inventory.programs.add(path)
    if reason and (left_out or not is_archive(path, data)):
        skill.unscanned.append((path, reason))
    if known_kind(path, data[:200].decode("latin-1")):
        _scan_readings(skill, path, data, [], is_program=is_program)
        return
    text = text_inside(data)
    if len(text) > _MAX_TEXT_BYTES:
        skill.leave_out(path, _too_large())
        text = text[:_MAX_START_BYTES]
    _scan_text(skill, path, text, "prose", [])
    if not is_recognised(data):
        _scan_encodings(skill, path, data)


def _scan_archive(skill: _SkillScan, path: str, data: bytes, depth: int) -> bool:
    """Scan the members of an archive; False when some are left out."""
    if depth >= _MAX_ARCHIVE_DEPTH:
        skill.leave_out(path, Message("archives are nested too deeply"))
        return False
    try:
        for name, content in members(data, skill.room):
            skill.room -= len(content)
            skill.budget.check()
            _scan_data(skill, f"{path}/{name}", content, depth=depth + 1)
    except NotExamined:
        skill.leave_out(path, Message("the archive is damaged or too large"))
        return False
    return True


def _scan_readings(
    skill: _SkillScan, path: str, data: bytes, seen: list[Finding], *, is_program: bool
) -> None:
    """Scan a text file in its encoding, and in others that it may have."""
    if len(data) > _MAX_TEXT_BYTES:
        skill.leave_out(path, _too_large())
        data = data[:_MAX_START_BYTES]
    text, whole = decode_text(data)
    if not whole:
        skill.unscanned.append((path, Message("it is not text")))
    kind = kind_of(path, text[:200])
    if is_program_file(path, kind) or (is_program and kind != "markdown"):
        skill.inventory.programs.add(path)
    _scan_text(skill, path, text, kind, seen)
    for other in other_readings(data, text):
        if other != text:
            _scan_text(skill, path, other, kind, [])
    if not is_utf8(data):
        _scan_encodings(skill, path, data)


def _scan_encodings(skill: _SkillScan, path: str, data: bytes) -> None:
    """Search a file that is not in UTF-8 for the words of rules, in each encoding."""
    for text in other_encodings(data[:_MAX_TEXT_BYTES]):
        skill.findings += find_patterns(path, (Region("prose", text, 1),), skill.budget)


def _too_large() -> Message:
    return Message("only its first {size} MiB are scanned", size=_MAX_START_BYTES >> 20)


def _scan_text(skill: _SkillScan, path: str, text: str, kind: str, seen: list[Finding]) -> None:
    regions = [*regions_of(path, text)]
    inner: list[Region] = []
    findings: list[Finding] = []
    if _REQUEST.search(text):
        skill.inventory.requests.add(path)
    try:
        spotted = chain(seen, _region_findings(skill, path, text, kind, regions, inner))
        findings.extend(_in_context(spotted, regions, path))
        findings.extend(find_secrets(path, text))
        findings.extend(find_patterns(path, (*regions, *inner), skill.budget))
    finally:  # when the time is over, `findings` has those that were made before
        skill.findings += _limit_per_rule(findings)


def _region_findings(
    skill: _SkillScan,
    path: str,
    text: str,
    kind: str,
    regions: list[Region],
    inner: list[Region],
) -> Iterator[Finding]:
    """Findings in each region; regions that are inside of others are added to `inner`."""
    yield from find_hidden_characters(path, text, kind)
    for region in regions:
        skill.budget.check()
        if region.kind == "python":
            yield from _scan_python(skill, path, region, inner)
        inner += decoded(region)
    for region in [*inner]:
        if region.kind == "decoded":
            inner += decoded(region)  # encoded twice
    if kind in {"markdown", "prose"}:
        skill.pages.append((path, regions))
    elif path.endswith(_SUFFIXES):
        named = set(_NAME.findall(text)) & skill.names.keys()
        skill.calls[path] = tuple(
            where for name in sorted(named) for where in skill.names[name] if where != path
        )
    for region in (*regions, *inner):
        skill.budget.check()
        skill.inventory.add(region)
        if region.script:
            yield from shell_rules.find_shell_issues(path, region)
        else:
            yield from instruction_rules.find_orders(path, region, skill.budget)
        yield from find_encoded(path, region)
        yield from instruction_rules.find_flows(path, region)
        yield from find_disguises(path, region)


def _in_context(findings: Iterable[Finding], regions: list[Region], path: str) -> Iterator[Finding]:
    """The findings; blocking ones in a text that teaches about attacks are downgraded."""
    starts = [region.line for region in regions]
    for finding in findings:
        at = bisect_right(starts, finding.line) - 1
        lesson = at >= 0 and RULES[finding.rule].talk and is_lesson(regions[at], path)
        yield downgrade(finding) if lesson and finding.severity == "block" else finding


def _scan_python(
    skill: _SkillScan, path: str, region: Region, inner: list[Region]
) -> Iterator[Finding]:
    """Scan Python code; the commands that it passes to a shell are added to `inner`."""
    module = python_analysis.read_python(path, region, skill.budget)
    for found in module.findings:
        in_page = not region.script and RULES[found.rule].engine == "deeds"
        kept = instruction_rules.order_in_fence(found, region) if in_page else found
        if kept is not None:
            yield kept
    skill.inventory.secrets.update(module.secrets)
    inner += module.commands
    if not module.is_whole:
        inner.append(region._replace(kind="plain"))
        if region.script:
            skill.leave_out(path, Message("it cannot be parsed as Python"))


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
