"""What is in a skill? Reads each file once and lets every engine look at it.

Whatever cannot be looked at is in `Report.unscanned`, with the reason: too large, not text, nested
too deeply, an archive, or no time left. A hostile file makes a scan incomplete; it never makes it
hang, and it never hides the other files.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from typing import TYPE_CHECKING

from satchel._language import Message
from satchel.errors import SatchelError
from satchel.security import decode, flows, orders, python, secrets, shelldeeds, unseen
from satchel.security.allow import apply
from satchel.security.budget import Budget, OutOfTime
from satchel.security.context import is_lesson, softened
from satchel.security.files import look_at_binary
from satchel.security.inventory import Collector
from satchel.security.patterns import TooDense, find_patterns
from satchel.security.regions import is_program, kind_of, regions_of
from satchel.security.report import Report, judge
from satchel.security.rules import RULES, SEVERITIES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import date

    from satchel.security.allow import Allowance
    from satchel.security.regions import Region
    from satchel.security.report import Finding
    from satchel.security.yara import Yara
    from satchel.skill.tree import File, Tree

_TEXT = 1 << 20
"""Bytes of one text file that are read; more than any page or script of a real skill."""
_BYTES = 16 << 20
"""Bytes of one other file that are read."""
_SHOWN = 200
"""Findings of one skill that are kept: the first ones of each file."""
_PER_RULE = 5
"""Findings of one rule in one file."""
_NAMED = 300
"""Programs of one skill that are looked for in its pages."""
_SUFFIXES = (".sh", ".bash", ".zsh", ".py", ".js", ".mjs", ".cjs", ".ts", ".ps1", ".bat", ".rb")
ENGINES = ("text", "python", "unicode", "secrets", "files")


class _Skill:
    """What is gathered while a skill is read."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []
        self.unscanned: list[tuple[str, str]] = []
        self.inventory = Collector()
        self.budget = Budget()
        self.pages: list[orders.Page] = []
        self.names: dict[str, str] = {}
        """Name of a program -> its path."""
        self.calls: dict[str, tuple[str, ...]] = {}


def scan_tree(
    tree: Tree,
    *,
    name: str = "",
    allow: Sequence[Allowance] = (),
    today: date | None = None,
    rules: Sequence[str] = (),
    use_yara: bool = True,
) -> Report:
    """Look at every file of a skill.

    Args:
        tree: The skill's files, wherever they are.
        name: The skill's name, for the allow-list.
        allow: Findings that were accepted.
        today: The day by which allowances end; the present one when None.
        rules: Further YARA files.
        use_yara: Whether YARA looks too, where it is installed.

    Raises:
        MissingExtra: `rules` are given, and YARA is not installed.
        InvalidInput: one of `rules` is not a YARA file.
    """
    yara = _yara(rules) if use_yara or rules else None
    skill = _Skill()
    skill.names = {os.path.basename(file.path): file.path for file in _programs(tree)}
    for file in tree.files:
        if file.mode == "link":
            continue  # it leads to a file of the same skill, which is read itself
        try:
            skill.budget.check()
            _file(skill, tree, file, yara)
        except OutOfTime:
            skill.unscanned.append((file.path, Message("there was no time left")))
        except (OSError, SatchelError) as exc:
            reason = exc.message if isinstance(exc, SatchelError) else exc.strerror or str(exc)
            skill.unscanned.append(
                (file.path, Message("it cannot be read: {reason}", reason=reason))
            )
    skill.findings += _linked(skill)
    found = _sorted(skill.findings)
    left, accepted, old = apply(
        found, allow, skill=name, today=today or _today(), digest=lambda path: _digest(tree, path)
    )
    return Report(
        verdict=judge(left, skill.unscanned),
        findings=tuple(left),
        allowed=tuple(accepted),
        unscanned=tuple(skill.unscanned),
        inventory=skill.inventory.result(),
        engines=(*ENGINES, *(("yara",) if yara else ())),
        expired=tuple(old),
    )


def _programs(tree: Tree) -> Iterator[File]:
    """The files that pages and other programs may name."""
    count = 0
    for file in tree.files:
        if count < _NAMED and file.path.endswith(_SUFFIXES):
            count += 1
            yield file


def _linked(skill: _Skill) -> Iterator[Finding]:
    """What pages order on the side, beside what the programs do that they name."""
    if not skill.pages:
        return
    deeds: dict[str, list[str]] = {}
    for finding in skill.findings:
        if finding.path.endswith(_SUFFIXES):
            deeds.setdefault(finding.path, []).append(orders.deed_of(finding))
    if deeds:
        yield from orders.link(skill.pages, deeds, skill.calls)


def _file(skill: _Skill, tree: Tree, file: File, yara: Yara | None) -> None:
    data = _read(tree, file.path)
    if len(data) > _BYTES:
        skill.unscanned.append(
            (file.path, Message("it is larger than {size} MiB", size=_BYTES >> 20))
        )
        data = data[:_BYTES]
    seen = [*yara.look(file.path, data)] if yara is not None else []
    binary = look_at_binary(file.path, data)
    if binary is not None:
        skill.findings += seen
        skill.findings += binary.findings
        if binary.unscanned:
            skill.unscanned.append((file.path, binary.unscanned))
        if any(found.rule.endswith("-program") for found in binary.findings):
            skill.inventory.programs.add(file.path)
        return
    if len(data) > _TEXT:
        skill.unscanned.append(
            (file.path, Message("only its first {size} MiB are read as text", size=_TEXT >> 20))
        )
        data = data[:_TEXT]
    text, whole = _decoded(data)
    if not whole:
        skill.unscanned.append((file.path, Message("it is not all text")))
    kind = kind_of(file.path, text[:200])
    if is_program(file.path, kind) or (file.mode == "program" and kind != "markdown"):
        skill.inventory.programs.add(file.path)
    _text(skill, file.path, text, kind, seen)


def _text(skill: _Skill, path: str, text: str, kind: str, seen: list[Finding]) -> None:
    regions = [*regions_of(path, text)]
    findings = [*seen, *unseen.find_unseen(path, text, kind)]
    inner: list[Region] = []
    for region in regions:
        skill.budget.check()
        if region.kind == "python":
            inner += _python(skill, path, region, findings)
        inner += decode.decoded(region)
    for region in [*inner]:
        if region.kind == "decoded":
            inner += decode.decoded(region)  # once more: what was encoded twice
    page = kind in {"markdown", "prose"}
    if page:
        skill.pages.append(orders.Page(path, regions))
    elif path.endswith(_SUFFIXES):
        skill.calls[path] = tuple(
            where for name, where in skill.names.items() if where != path and name in text
        )
    for region in (*regions, *inner):
        skill.inventory.look(region)
        look = shelldeeds.find_deeds if region.script else orders.find_orders
        findings += look(path, region)
        findings += decode.find_encoded(path, region)
        findings += flows.find_flows(path, region)
    findings = _in_context(findings, regions, path)
    lowered = " ".join((text.lower(), *(region.text.lower() for region in inner)))
    findings += secrets.find_secrets(path, text, lowered)
    try:
        findings += find_patterns(path, (*regions, *inner), lowered, skill.budget)
    except TooDense:
        skill.unscanned.append((path, Message("one word is repeated too often")))
    skill.findings += _few(findings)


def _in_context(findings: list[Finding], regions: list[Region], path: str) -> list[Finding]:
    """Findings by the part of the page that they stand in: a lesson is looked at, not blocked."""
    starts = [region.line for region in regions]
    out: list[Finding] = []
    for finding in findings:
        at = bisect_right(starts, finding.line) - 1
        lesson = at >= 0 and RULES[finding.rule].talk and is_lesson(regions[at], path)
        out.append(softened(finding) if lesson and finding.severity == "block" else finding)
    return out


def _python(skill: _Skill, path: str, region: Region, findings: list[Finding]) -> Iterator[Region]:
    """Look at a piece of Python; yield what it hands to a shell."""
    if len(region.text) > python.LONGEST:
        skill.unscanned.append((path, Message("it is too long to be read as Python")))
        return
    try:
        module = python.read_python(path, region, skill.budget)
    except (RecursionError, MemoryError):
        skill.unscanned.append((path, Message("it is nested too deeply to be read as Python")))
        return
    if module is None:
        if region.script:
            skill.unscanned.append((path, Message("it is not Python that can be read")))
        yield region._replace(kind="plain")
        return
    for found in module.findings:
        deed = not region.script and RULES[found.rule].engine == "deeds"
        kept = orders.in_fence(found, region) if deed else found
        findings += [kept] if kept is not None else []
    skill.inventory.secrets.update(module.secrets)
    yield from module.commands


def _few(findings: list[Finding]) -> Iterator[Finding]:
    """The first findings of each rule: a thousand of one kind say no more."""
    count: dict[str, int] = {}
    for finding in dict.fromkeys(findings):
        count[finding.rule] = count.get(finding.rule, 0) + 1
        if count[finding.rule] <= _PER_RULE:
            yield finding


def _sorted(findings: list[Finding]) -> list[Finding]:
    order = {severity: at for at, severity in enumerate(SEVERITIES)}
    unique = dict.fromkeys(findings)
    ranked = sorted(unique, key=lambda one: (order[RULES[one.rule].severity], one.path, one.line))
    return ranked[:_SHOWN]


def _read(tree: Tree, path: str) -> bytes:
    data = bytearray()
    for chunk in tree.chunks(path):
        data += chunk
        if len(data) > _BYTES:
            break
    return bytes(data)


def _decoded(data: bytes) -> tuple[str, bool]:
    """(text, whether all of it was text)."""
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


def _digest(tree: Tree, path: str) -> str:
    from hashlib import sha256

    total = sha256()
    for chunk in tree.chunks(path):
        total.update(chunk)
    return f"sha256:{total.hexdigest()}"


def _today() -> date:
    from datetime import datetime

    return datetime.now().astimezone().date()


def _yara(rules: Sequence[str]) -> Yara | None:
    from satchel.security.yara import load

    return load(tuple(rules))
