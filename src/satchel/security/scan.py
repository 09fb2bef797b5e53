"""What is in a skill? Reads each file once and lets every engine look at it.

Whatever cannot be looked at is in `Report.unscanned`, with the reason: too large, not text, nested
too deeply, an archive, or no time left. A hostile file makes a scan incomplete; it never makes it
hang, and it never hides the other files.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple

from satchel._language import Message
from satchel.errors import SatchelError
from satchel.security import orders, python, shelldeeds
from satchel.security.allow import apply
from satchel.security.orders import is_lesson, is_secret, softened
from satchel.security.patterns import (
    TooDense,
    decoded,
    find_encoded,
    find_patterns,
    find_secrets,
    find_unseen,
)
from satchel.security.regions import PROGRAMS, is_program, kind_of, regions_of
from satchel.security.report import Budget, Finding, Inventory, OutOfTime, Report, judge
from satchel.security.rules import RULES, SEVERITIES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import date

    from satchel.security.allow import Allowance
    from satchel.security.regions import Region
    from satchel.security.yara import Yara
    from satchel.skill.tree import File, Tree

_MAGIC: tuple[tuple[bytes, str], ...] = (
    (b"\x7fELF", "program"),
    (b"MZ", "program"),
    (b"\xfe\xed\xfa\xce", "program"),
    (b"\xfe\xed\xfa\xcf", "program"),
    (b"\xce\xfa\xed\xfe", "program"),
    (b"\xcf\xfa\xed\xfe", "program"),
    (b"\xca\xfe\xba\xbe", "program"),
    (b"\0asm", "program"),
    (b"dex\n", "program"),
    (b"PK\x03\x04", "zip"),
    (b"PK\x05\x06", "zip"),
    (b"Rar!\x1a\x07", "archive"),
    (b"7z\xbc\xaf\x27\x1c", "archive"),
    (b"\x1f\x8b", "archive"),
    (b"BZh", "archive"),
    (b"\xfd7zXZ\0", "archive"),
    (b"\x28\xb5\x2f\xfd", "archive"),
    (b"MSCF", "archive"),
    (b"!<arch>\n", "archive"),
    (b"\x89PNG", "media"),
    (b"\xff\xd8\xff", "media"),
    (b"GIF8", "media"),
    (b"RIFF", "media"),
    (b"OggS", "media"),
    (b"ID3", "media"),
    (b"\0\0\x01\0", "media"),
    (b"wOFF", "media"),
    (b"wOF2", "media"),
    (b"OTTO", "media"),
    (b"\0\x01\0\0", "media"),
    (b"BM", "media"),
    (b"II*\0", "media"),
    (b"MM\0*", "media"),
    (b"fLaC", "media"),
    (b"%PDF", "document"),
    (b"\xd0\xcf\x11\xe0", "document"),
    (b"SQLite format 3\0", "data"),
)
_OFFICE = frozenset((
    ".docx", ".xlsx", ".pptx", ".dotx", ".xltx", ".potx", ".odt", ".ods", ".odp", ".epub", ".docm",
    ".xlsm", ".pptm", ".ott", ".vsdx", ".pages", ".key", ".numbers",
))  # fmt: skip
_MEDIA = frozenset((
    ".png", ".jpg", ".jpeg", ".gif", ".webp", ".ico", ".bmp", ".tiff", ".tif", ".mp3", ".wav",
    ".ogg", ".mp4", ".mov", ".webm", ".avi", ".flac", ".ttf", ".otf", ".woff", ".woff2", ".eot",
    ".heic",
    ".avif", ".m4a", ".icns", ".mkv", ".psd", ".svgz", ".ttc", ".glb", ".aac", ".opus",
))  # fmt: skip
_TEXT_FILES = frozenset((
    ".md", ".txt", ".json", ".yaml", ".yml", ".toml", ".csv", ".html", ".xml", ".svg", ".css",
    ".log", ".rst", ".ini", ".cfg",
))  # fmt: skip
_BYTECODE = frozenset((".pyc", ".pyo"))
_ENTRY = b"PK\x01\x02"


class Binary(NamedTuple):
    """What was found out about a file that is not text."""

    findings: tuple[Finding, ...] = ()
    unscanned: str = ""
    """Why its content could not be looked at; empty when it could, or needs no look."""


def look_at_binary(path: str, data: bytes) -> Binary | None:
    """What a file of bytes is; None when it may be text."""
    suffix = os.path.splitext(path)[1].lower()
    if suffix in _BYTECODE:
        return Binary((Finding("bytecode", path),), Message("bytecode is not read"))
    kind = _kind(data)
    if kind == "":
        if suffix == ".tar" or data[257:262] == b"ustar":
            kind = "archive"
        elif b"\0" not in data[:8192] or data[:2] in {b"\xff\xfe", b"\xfe\xff"}:
            return None
    if kind == "program" and not _convincing(data):
        kind = ""
        if b"\0" not in data[:8192]:
            return None
    found = tuple(_judge(path, suffix, kind, data))
    return Binary(found, _unread(suffix, kind))


def _kind(data: bytes) -> str:
    for magic, kind in _MAGIC:
        if data.startswith(magic):
            return kind
    return "media" if data[4:8] == b"ftyp" else ""


def _convincing(data: bytes) -> bool:
    """`MZ` and `BM` begin words too: a real program has its second signature."""
    if data[:2] != b"MZ":
        return True
    offset = int.from_bytes(data[60:64], "little")
    return data[offset : offset + 2] in {b"PE", b"NE", b"LE"} or b"\0" in data[:64]


def _judge(path: str, suffix: str, kind: str, data: bytes) -> Iterator[Finding]:
    if kind == "program":
        disguised = suffix in _MEDIA | _TEXT_FILES | _OFFICE | {".pdf"}
        yield Finding("disguised-program" if disguised else "compiled-program", path)
    elif kind == "zip":
        yield from _zip(path, suffix, data)
    elif kind == "archive":
        if _locked(data):
            yield Finding("encrypted-archive", path)
        yield Finding(
            "nested-archive" if suffix not in _MEDIA | _TEXT_FILES else "disguised-file", path
        )
    elif kind == "media":
        if suffix in _TEXT_FILES:
            yield Finding("disguised-file", path)
        elif _carries(data):
            yield Finding("appended-data", path, 0, _carries(data))
    elif kind == "document":
        yield Finding("document-not-read", path)
        if data[:4] == b"\xd0\xcf\x11\xe0" and b"_VBA_PROJECT" in data:
            yield Finding("macros", path)
    elif kind == "" and suffix in _TEXT_FILES | _MEDIA and suffix != ".log":
        yield Finding("disguised-file", path)


def _zip(path: str, suffix: str, data: bytes) -> Iterator[Finding]:
    if _zip_locked(data):
        yield Finding("encrypted-archive", path)
    if suffix in _OFFICE:
        yield Finding("document-not-read", path)
        if b"vbaProject.bin" in data:
            yield Finding("macros", path, 0, "vbaProject.bin")
    elif suffix in _MEDIA | _TEXT_FILES:
        yield Finding("disguised-file", path, 0, "zip")
    else:
        yield Finding("nested-archive", path)


def _unread(suffix: str, kind: str) -> str:
    if kind == "program":
        return Message("a compiled program is not read")
    if kind == "archive" or (kind == "zip" and suffix not in _OFFICE):
        return Message("an archive inside a skill is not opened")
    if kind == "" and suffix not in _MEDIA:
        return Message("it is neither text nor a kind of file that is known")
    return ""


def _zip_locked(data: bytes) -> bool:
    at = data.find(_ENTRY)
    while at >= 0:
        if data[at + 8 : at + 9] and data[at + 8] & 1:
            return True
        at = data.find(_ENTRY, at + 46)
    return data[:4] == b"PK\x03\x04" and bool(data[6:7] and data[6] & 1)


def _locked(data: bytes) -> bool:
    """Whether a 7z or rar archive says that it is encrypted."""
    if data.startswith(b"7z\xbc\xaf\x27\x1c"):
        return b"\x06\xf1\x07\x01" in data[-4096:]
    if data.startswith(b"Rar!\x1a\x07\x00"):
        return (len(data) > 24 and bool(int.from_bytes(data[10:12], "little") & 0x80)) or (
            len(data) > 25 and bool(int.from_bytes(data[23:25], "little") & 0x04)
        )
    return False


def _carries(data: bytes) -> str:
    """What follows the end of a PNG or JPEG."""
    if data.startswith(b"\x89PNG"):
        end = data.rfind(b"IEND")
        rest = data[end + 8 :] if end > 0 else b""
    elif data.startswith(b"\xff\xd8"):
        end = data.rfind(b"\xff\xd9")
        rest = data[end + 2 :] if end > 0 else b""
    else:
        return ""
    for magic, name in (
        (b"PK\x03\x04", "zip"),
        (b"\x7fELF", "ELF"),
        (b"Rar!", "rar"),
        (b"#!/", "script"),
    ):
        if magic in rest[:4096]:
            return name
    return ""


_HOST = re.compile(r"://(?:[^\s/@'\"<>]{1,80}@)?([A-Za-z0-9][A-Za-z0-9.-]{2,250})")
_VARIABLES = (
    re.compile(r"process\.env\.([A-Za-z_]\w{1,60})"),
    re.compile(r"process\.env\[\s*['\"]([A-Za-z_]\w{1,60})"),
    re.compile(r"\$(?:env:)?\{?([A-Z][A-Z0-9_]{2,60})\b"),
    re.compile(r"(?:environ(?:\.get)?|getenv|ENV(?:\.fetch)?)\s*[\[(]\s*['\"]([A-Za-z_]\w{1,60})"),
)
_MOST = 500
"""Hosts or secrets of one skill that are listed."""


class Collector:
    """Gathers while a skill is read."""

    def __init__(self) -> None:
        self.programs: set[str] = set()
        self.hosts: set[str] = set()
        self.secrets: set[str] = set()

    def look(self, region: Region) -> None:
        """Take note of what a program or a command names."""
        if region.kind not in PROGRAMS and region.kind not in {"plain", "decoded"}:
            return
        text = region.text
        if "://" in text and len(self.hosts) < _MOST:
            self.hosts.update(found.rstrip(".").lower() for found in _HOST.findall(text))
        if region.kind != "plain" and ("env" in text.lower() or "$" in text):
            for pattern in _VARIABLES:
                self.secrets.update(name for name in pattern.findall(text) if is_secret(name))

    def result(self) -> Inventory:
        """Everything, sorted."""
        return Inventory(
            tuple(sorted(self.programs)),
            tuple(sorted(self.hosts)[:_MOST]),
            tuple(sorted(self.secrets)[:_MOST]),
        )


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
    findings = [*seen, *find_unseen(path, text, kind)]
    inner: list[Region] = []
    for region in regions:
        skill.budget.check()
        if region.kind == "python":
            inner += _python(skill, path, region, findings)
        inner += decoded(region)
    for region in [*inner]:
        if region.kind == "decoded":
            inner += decoded(region)  # once more: what was encoded twice
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
        findings += find_encoded(path, region)
        findings += orders.find_flows(path, region)
    findings = _in_context(findings, regions, path)
    lowered = " ".join((text.lower(), *(region.text.lower() for region in inner)))
    findings += find_secrets(path, text, lowered)
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
