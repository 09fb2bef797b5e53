"""Scans a skill: reads each file once and runs every engine over it.

`ScanReport.unscanned` lists what could not be scanned, with the reason. Where that may be text, the
finding `not-examined` blocks the skill: too large, nested too deeply, a damaged archive, Python
that cannot be parsed, or no time left. A hostile file cannot make a scan hang, nor hide others.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections import Counter
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING

from satchel.errors import SatchelError
from satchel.i18n import Message
from satchel.security.announced_dangers import soften_announced
from satchel.security.discussed_attacks import downgrade, is_lesson
from satchel.security.disguise_rules import find_disguises
from satchel.security.encoded_text import decode_region, find_encoded
from satchel.security.file_text import (
    MAX_UNPACKED_BYTES,
    NotExamined,
    decode_disguised,
    decode_encodings,
    decode_text,
    extract_text,
    extract_xml_text,
    is_archive,
    is_utf8,
    split_notebook,
    unpack_members,
)
from satchel.security.hidden_characters import find_hidden_characters
from satchel.security.leaked_secrets import find_secrets
from satchel.security.payload_rules import find_payloads, inspect_binary, is_recognised
from satchel.security.python_analysis import analyse_python
from satchel.security.regions import (
    PROGRAM_KINDS,
    Region,
    detect_interpreter_kind,
    detect_kind,
    detect_known_kind,
    is_program_file,
    split_regions,
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
from satchel.security.secret_flows import find_flows, is_secret
from satchel.security.shell_rules import find_shell_issues
from satchel.security.side_tasks import (
    effective_rule,
    find_linked_orders,
    find_orders,
    judge_order_in_fence,
)
from satchel.security.text_rules import find_patterns

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from satchel.skill.file_tree import Tree, TreeFile

_HOST = re.compile(r"://(?:[^\s/@'\"<>]{1,80}@)?([A-Za-z0-9][A-Za-z0-9.-]{2,250})")
_VARIABLE_READS = (
    re.compile(r"process\.env\.([A-Za-z_]\w{1,60})"),
    re.compile(r"process\.env\[\s*['\"]([A-Za-z_]\w{1,60})"),
    re.compile(r"\$(?:env:)?\{?([A-Z][A-Z0-9_]{2,60})\b"),
    re.compile(r"(?:environ(?:\.get)?|getenv|ENV(?:\.fetch)?)\s*[\[(]\s*['\"]([A-Za-z_]\w{1,60})"),
)
_MAX_INVENTORY_NAMES = 500
"""Hosts, and secrets, of one skill."""
_MAX_TEXT_BYTES = 16 << 20
"""Of one file. Of a larger one, which blocks the skill, only the start is scanned."""
_MAX_START_BYTES = 1 << 20
_MAX_ARCHIVE_DEPTH = 3
_MAX_FINDINGS = 200
"""Per skill."""
_MAX_FINDINGS_PER_RULE = 5
"""Per file."""
_PROGRAM_SUFFIXES = (
    ".sh",
    ".bash",
    ".zsh",
    ".py",
    ".js",
    ".mjs",
    ".cjs",
    ".ts",
    ".ps1",
    ".bat",
    ".rb",
)
_FILE_NAME = re.compile(r"[\w.+-]+")
_STARTED_PROGRAM = re.compile(
    r"([bdnpsuz](?<![\w.-].)(?:(?<=[bd])ash|(?<=s)h|(?<=z)sh|(?<=s)ource|(?<=p)ython[\d.]*"
    r"|(?<=u)v run|(?<=n)ode))"
    r"(?:[ \t]+-[\w-]+)*[ \t]+[\"']?(?:[^\s\"'`;|&]{0,200}/)?(\w(?:[\w.-]*\w)?)"
)
"""The first character is a plain set, which is searched fast."""
_STARTED_KINDS = {"python": "python", "uv run": "python", "node": "javascript"}
_OFFICE_PAGE = re.compile(r"/(?:word|ppt/slides|ppt/notesSlides|xl)/[\w.]+\.xml$")
"""A part of a document of Word, PowerPoint or Excel."""
_PYTHON_IMPORT = re.compile(r"^(?:import|from)[ \t]+\w", re.MULTILINE)
_TOOL_REQUEST = re.compile("[aA][lL][lL][oO][wW][eE][dD][-_]?[tT][oO][oO][lL][sSſ]")
ENGINES = ("text", "python", "unicode", "secrets", "files", "payloads")


class _InventoryCollector:
    """Collects the inventory of a skill."""

    def __init__(self) -> None:
        self.programs: set[str] = set()
        self.hosts: set[str] = set()
        self.secrets: set[str] = set()
        self.requests: set[str] = set()

    def add(self, region: Region) -> None:
        """Add the hosts and secrets of a program or command."""
        if region.kind not in PROGRAM_KINDS and region.kind not in {"plain", "decoded"}:
            return
        text = region.text
        if "://" in text and len(self.hosts) < _MAX_INVENTORY_NAMES:
            self.hosts.update(host.rstrip(".").lower() for host in _HOST.findall(text))
        if region.kind != "plain" and ("env" in text.lower() or "$" in text):
            for pattern in _VARIABLE_READS:
                self.secrets.update(name for name in pattern.findall(text) if is_secret(name))

    def result(self) -> Inventory:
        """Return the sorted inventory."""
        return Inventory(
            tuple(sorted(self.programs)),
            tuple(sorted(self.hosts)[:_MAX_INVENTORY_NAMES]),
            tuple(sorted(self.secrets)[:_MAX_INVENTORY_NAMES]),
            tuple(sorted(self.requests)[:_MAX_INVENTORY_NAMES]),
        )


def scan_tree(tree: Tree) -> ScanReport:
    """Scan every file of a skill.

    Args:
        tree: The files, such as a `FolderTree`.

    Example:
        from satchel.security import scan_tree
        from satchel.skill.file_tree import FolderTree

        report = scan_tree(FolderTree("skills/code-review"))
        assert report.findings == ()
    """
    return _SkillScan(tree).run()


def is_attack(description: str) -> bool:
    """Whether a text rule blocks a description, or cannot examine it."""
    regions = (Region("front", description, 1),)
    findings = find_patterns("SKILL.md", regions, TimeBudget(len(description)))
    try:
        return any(finding.severity == "block" for finding in findings)
    except OutOfTime:
        return True


class _SkillScan:
    """Scans the files of one skill, and collects what it finds."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._findings: list[Finding] = []
        self._unscanned: list[tuple[str, str]] = []
        self._inventory = _InventoryCollector()
        self._budget = TimeBudget(sum(file.size for file in tree.files))
        self._unpacking_bytes = MAX_UNPACKED_BYTES
        """That archives may still take."""
        self._pages: list[tuple[str, list[Region]]] = []
        """Path and regions of each page, for the orders to run a program."""
        self._blocked_regions: dict[str, list[Region]] = {}
        """Path of each text with a blocking finding, and of SKILL.md -> its regions."""
        self._program_paths: dict[str, list[str]] = {}
        """Name of a program -> its paths."""
        self._calls: dict[str, tuple[str, ...]] = {}
        """Path of a program -> paths of the programs that it names."""
        self._started_kinds: dict[str, str] = {}
        """Name of a file -> the kind of program as which a text of the skill starts it."""

    def run(self) -> ScanReport:
        """Scan all files within the time budget."""
        for file in self._tree.files:
            if file.path.endswith(_PROGRAM_SUFFIXES):
                self._program_paths.setdefault(os.path.basename(file.path), []).append(file.path)
        path = ""
        try:
            files = [file for file in self._tree.files if file.mode != "link"]
            for file in files:  # the target of a link is a file of the same skill
                path = file.path
                self._budget.check()
                self._scan_file(file)
            for file in files:
                path = file.path
                kind = self._started_kinds.get(os.path.basename(path))
                if kind is not None:
                    self._scan_as(path, kind)
            self._findings += self._find_linked_orders()
        except OutOfTime:
            self._leave_out(path, Message("the scan took too long"))
        softened = soften_announced(self._findings, self._blocked_regions)
        findings = tuple(_sort_findings(softened))
        return ScanReport(
            verdict=verdict_for(findings, self._unscanned),
            findings=findings,
            unscanned=tuple(self._unscanned),
            inventory=self._inventory.result(),
            engines=ENGINES,
        )

    def _leave_out(self, path: str, reason: str, *, is_text: bool = True) -> None:
        """Record what is not examined; the skill is blocked where it may be text."""
        self._unscanned.append((path, reason))
        if is_text:
            self._findings.append(Finding("not-examined", path))

    # --- files ----------------------------------------------------------------------------

    def _scan_file(self, file: TreeFile) -> None:
        try:
            data = b"".join(self._tree.chunks(file.path))
        except (OSError, SatchelError) as exc:
            reason = exc.message if isinstance(exc, SatchelError) else exc.strerror or str(exc)
            reason = Message("it cannot be read: {reason}", reason=reason)
            self._leave_out(file.path, reason, is_text=False)
            return
        try:
            self._scan_data(file.path, data, is_program=file.mode == "program")
        except (RecursionError, MemoryError):
            self._leave_out(file.path, Message("it is nested too deeply"))

    def _scan_as(self, path: str, kind: str) -> None:
        """Scan a text as the program as which it is started, where its name says another kind."""
        with suppress(OSError, SatchelError):  # reported before
            data = b"".join(self._tree.chunks(path))[:_MAX_TEXT_BYTES]
            text, _ = decode_text(data)
            if detect_kind(path, text[:200]) != kind and not is_recognised(data):
                self._inventory.programs.add(path)
                self._scan_text(path, text, kind, regions=[Region(kind, text, 1, script=True)])

    def _find_linked_orders(self) -> Iterator[Finding]:
        """Find side tasks in pages that start a harmful program of the skill."""
        issues: dict[str, list[str]] = {}
        for finding in self._findings:
            if finding.path.endswith(_PROGRAM_SUFFIXES):
                issues.setdefault(finding.path, []).append(effective_rule(finding))
        yield from find_linked_orders(self._pages, issues, self._calls, self._budget)

    def _scan_data(
        self, path: str, data: bytes, *, is_program: bool = False, depth: int = 0
    ) -> None:
        """Scan the content of a file, or of a member of an archive.

        Args:
            path: For the findings.
            data: The content.
            is_program: Whether the file may be run.
            depth: How many archives are around it.
        """
        payloads = [*find_payloads(path, data)]
        is_packed = is_archive(path, data)
        is_whole = not is_packed or self._scan_archive(path, data, depth)
        binary = inspect_binary(path, data)
        if binary is None:
            self._scan_readings(path, data, payloads, is_program=is_program)
            return
        self._findings += (*payloads, *binary.findings)
        if any(finding.rule.endswith("-program") for finding in binary.findings):
            self._inventory.programs.add(path)
        if binary.unscanned_reason and (not is_packed or not is_whole):
            self._unscanned.append((path, binary.unscanned_reason))
        if detect_known_kind(path, data[:200].decode("latin-1")):
            self._scan_readings(path, data, [], is_program=is_program)
            return
        text = extract_text(data)
        if len(text) > _MAX_TEXT_BYTES:
            self._leave_out(path, _size_message())
            text = text[:_MAX_START_BYTES]
        self._scan_text(path, text, "prose")
        if not is_recognised(data):
            self._scan_encodings(path, data)

    def _scan_archive(self, path: str, data: bytes, depth: int) -> bool:
        """Scan the members of an archive; False when some are left out."""
        if depth >= _MAX_ARCHIVE_DEPTH:
            self._leave_out(path, Message("archives are nested too deeply"))
            return False
        try:
            for name, content in unpack_members(data, self._unpacking_bytes):
                self._unpacking_bytes -= len(content)
                self._budget.check()
                self._scan_data(f"{path}/{name}", content, depth=depth + 1)
        except NotExamined:
            self._leave_out(path, Message("the archive is damaged or too large"))
            return False
        return True

    def _scan_readings(
        self, path: str, data: bytes, payloads: list[Finding], *, is_program: bool
    ) -> None:
        """Scan a text file in its encoding, and in others that it may have."""
        if len(data) > _MAX_TEXT_BYTES:
            self._leave_out(path, _size_message())
            data = data[:_MAX_START_BYTES]
        text, is_complete = decode_text(data)
        kind = detect_kind(path, text[:200])
        if not is_complete:
            is_page = detect_known_kind(path, "") in {"markdown", "prose"}
            self._leave_out(path, Message("it is not text"), is_text=is_page)
        if is_program_file(path, kind) or (is_program and kind != "markdown"):
            self._inventory.programs.add(path)
        self._scan_text(path, text, kind, payloads=payloads)
        for other in decode_disguised(data, text):
            if other != text:
                self._scan_text(path, other, kind)
        if _OFFICE_PAGE.search(path):
            words = extract_xml_text(text)
            self._scan_text(path, words, "prose", regions=[Region("prose", words, 1)])
        if path.endswith(".ipynb"):
            for name, part in split_notebook(text):
                self._scan_text(f"{path}/{name}", part, detect_kind(name, ""))
        if not is_utf8(data):
            self._scan_encodings(path, data)

    def _scan_encodings(self, path: str, data: bytes) -> None:
        """Search a file that is not in UTF-8 for the words of rules, in each encoding."""
        for text in decode_encodings(data[:_MAX_TEXT_BYTES]):
            self._findings += find_patterns(path, (Region("prose", text, 1),), self._budget)

    # --- texts ----------------------------------------------------------------------------

    def _scan_text(
        self,
        path: str,
        text: str,
        kind: str,
        *,
        payloads: Iterable[Finding] = (),
        regions: list[Region] | None = None,
    ) -> None:
        """Run the engines for texts.

        Args:
            path: For the findings.
            text: The text.
            kind: Its kind, as in `Region.kind`.
            payloads: Findings in the bytes of the file.
            regions: The parts of the text; by default they are split by its path.
        """
        regions = regions or [*split_regions(path, text)]
        self._note_started_programs(path, text, kind)
        if _TOOL_REQUEST.search(text):
            self._inventory.requests.add(path)
        inner_regions: list[Region] = []
        findings: list[Finding] = []
        try:
            region_findings = self._scan_regions(path, text, kind, regions, inner_regions)
            findings.extend(_downgrade_lessons(chain(payloads, region_findings), regions, path))
            findings.extend(find_secrets(path, text))
            findings.extend(find_patterns(path, (*regions, *inner_regions), self._budget))
        finally:  # when the time is over, `findings` has those that were made before
            is_blocked = any(finding.severity == "block" for finding in findings)
            if is_blocked or path == "SKILL.md":
                self._blocked_regions.setdefault(path, regions)
            self._findings += _limit_per_rule(findings)

    def _note_started_programs(self, path: str, text: str, kind: str) -> None:
        """Remember the kinds of programs as which files are started, by this text or its own."""
        name = os.path.basename(path)
        for program, started_name in _STARTED_PROGRAM.findall(text):
            started_kind = _STARTED_KINDS.get(program.rstrip("0123456789."), "shell")
            self._started_kinds[started_name] = started_kind
        own_kind = detect_interpreter_kind(text[:200])
        if own_kind and own_kind != kind:
            self._started_kinds[name] = own_kind
        elif kind == "prose" and "." not in name and _PYTHON_IMPORT.search(text):
            self._started_kinds.setdefault(name, "python")

    def _scan_regions(
        self,
        path: str,
        text: str,
        kind: str,
        regions: list[Region],
        inner_regions: list[Region],
    ) -> Iterator[Finding]:
        """Find the issues of each region; regions inside of others are added to `inner_regions`."""
        yield from find_hidden_characters(path, text, kind)
        for region in regions:
            self._budget.check()
            if region.kind == "python":
                yield from self._scan_python(path, region, inner_regions)
            inner_regions += decode_region(region)
        for region in [*inner_regions]:
            if region.kind == "decoded":
                inner_regions += decode_region(region)  # encoded twice
        if kind in {"markdown", "prose"}:
            self._pages.append((path, regions))
        elif path.endswith(_PROGRAM_SUFFIXES):
            self._calls[path] = self._find_called_programs(path, text)
        for region in (*regions, *inner_regions):
            self._budget.check()
            self._inventory.add(region)
            if region.script:
                yield from find_shell_issues(path, region)
            else:
                yield from find_orders(path, region, self._budget)
            yield from find_encoded(path, region)
            yield from find_flows(path, region)
            yield from find_disguises(path, region)

    def _find_called_programs(self, path: str, text: str) -> tuple[str, ...]:
        """Return the paths of the other programs of the skill that a text names."""
        names = set(_FILE_NAME.findall(text)) & self._program_paths.keys()
        called = (called for name in sorted(names) for called in self._program_paths[name])
        return tuple(called_path for called_path in called if called_path != path)

    def _scan_python(
        self, path: str, region: Region, inner_regions: list[Region]
    ) -> Iterator[Finding]:
        """Scan Python code; the commands that it passes to a shell go to `inner_regions`."""
        result = analyse_python(path, region, self._budget)
        for issue in result.findings:
            is_deed_in_page = not region.script and RULES[issue.rule].engine == "deeds"
            finding = judge_order_in_fence(issue, region) if is_deed_in_page else issue
            if finding is not None:
                yield finding
        self._inventory.secrets.update(result.secrets)
        inner_regions += result.commands
        if result.is_shell or not result.is_whole:
            inner_regions.append(region._replace(kind="plain"))
            if region.script and not result.is_whole:
                self._leave_out(path, Message("it cannot be parsed as Python"))


def _size_message() -> Message:
    return Message("only its first {size} MiB are scanned", size=_MAX_START_BYTES >> 20)


def _downgrade_lessons(
    findings: Iterable[Finding], regions: list[Region], path: str
) -> Iterator[Finding]:
    """Return the findings; blocking ones in a text that teaches about attacks are downgraded."""
    starts = [region.line for region in regions]
    for finding in findings:
        index = bisect_right(starts, finding.line) - 1
        is_taught = index >= 0 and RULES[finding.rule].talk and is_lesson(regions[index], path)
        yield downgrade(finding) if is_taught and finding.severity == "block" else finding


def _limit_per_rule(findings: list[Finding]) -> Iterator[Finding]:
    counts: Counter[str] = Counter()
    for finding in dict.fromkeys(findings):
        counts[finding.rule] += 1
        if counts[finding.rule] <= _MAX_FINDINGS_PER_RULE:
            yield finding


def _sort_findings(findings: Iterable[Finding]) -> list[Finding]:
    """Return the first findings: worst first, then by file and line."""
    ranks = {severity: rank for rank, severity in enumerate(SEVERITIES)}
    ranked = sorted(
        dict.fromkeys(findings),
        key=lambda finding: (ranks[finding.severity], finding.path, finding.line),
    )
    return ranked[:_MAX_FINDINGS]
