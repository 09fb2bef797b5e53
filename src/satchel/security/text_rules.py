"""Text rules, encoded text, hidden characters and leaked credentials.

Plain words decide first: most rules are excluded before a regular expression runs. Long texts are
searched in pieces. No pattern may be superlinear: their repetitions are bounded, so that the time
is linear for any text.
"""

from __future__ import annotations

import math
import re
from base64 import b64decode
from binascii import Error, unhexlify
from bisect import bisect_right
from functools import cache, cached_property
from typing import TYPE_CHECKING, NamedTuple

from satchel._unicode import BIDI_CONTROLS, LATIN_LOOKALIKES, VARIATION_SELECTORS
from satchel.security.instruction_rules import downgrade, is_example
from satchel.security.regions import PROGRAMS, Region
from satchel.security.report import Finding
from satchel.security.rules import compiled_pattern, required_words, text_rules

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from satchel.security.report import TimeBudget
    from satchel.security.rules import ScanRule

_TAGS = re.compile("[\U000e0020-\U000e007f]{2,}")
_FLAG = "\U0001f3f4"
"""A black flag: tag characters after it legitimately spell the flag of a region."""
_SELECTORS = re.compile(f"[{VARIATION_SELECTORS}]{{4,}}")
_ZERO = re.compile("[\u200b\u200c\u200d\u2060-\u2064\ufeff\u00ad\u180e\u3164\uffa0]{8,}")
_BROKEN = re.compile("[a-z][\u200b\u2060\u00ad\u2063\u2062\ufeff][a-z]", re.IGNORECASE)
_BIDI = re.compile(f"[{BIDI_CONTROLS}]")
_HIDDEN = frozenset(
    "\u00ad\u180e\u200b\u200c\u200d\u202a\u202b\u202c\u202d\u202e\u2060\u2061\u2062\u2063\u2064\u2066"
    "\u2067\u2068\u2069\u3164\ufe00\ufe01\ufe02\ufe03\ufe04\ufe05\ufe06\ufe07\ufe08\ufe09\ufe0a\ufe0b"
    "\ufe0c\ufe0d\ufe0e\ufe0f\ufeff\uffa0"
)
_HOST = re.compile(r"https?://([^\s/'\"`<>()\[\]{}|\\^:?#]{3,253})", re.IGNORECASE)
_WORD = re.compile(r"[^\W\d_]{3,40}")
_BLANKS = re.compile(r"(?<![^\S\n])[^\S\n]{200,}+(?=\S)")
"""Matches only from the first blank of a run, possessively: linear on any text."""
_MIN_PADDING_LINES = 79
"""More than an editor's window shows."""
_PADDED_COMMAND = re.compile(
    r"\b(?:curl|wget|bash|sh|powershell|python[23]?|eval|exec|node|nc|base64|iex|rm|fetch)\b"
    r"|https?://|ignore (?:all|previous)",
    re.IGNORECASE,
)


def find_hidden_characters(path: str, text: str, kind: str) -> Iterator[Finding]:
    """Invisible, deceptive and padding characters in a text."""
    if not text.isascii():
        used = set(text)
        if not used.isdisjoint(_HIDDEN) or max(used) >= "\U000e0000":
            yield from _invisible(path, text, kind)
        if not used.isdisjoint(LATIN_LOOKALIKES):
            yield from _lookalikes(path, text, kind)
    if "    " * 50 in text or "\t" * 200 in text or "\n\n\n\n" in text:
        yield from _padding(path, text)


def _invisible(path: str, text: str, kind: str) -> Iterator[Finding]:
    for found in _TAGS.finditer(text):
        if text[found.start() - 1 : found.start()] != _FLAG:
            words = "".join(chr(ord(char) - 0xE0000) for char in found.group())
            yield _at(path, text, found.start(), "tag-characters", words)
            break
    for pattern in (_SELECTORS, _ZERO):
        found = pattern.search(text)
        if found:
            shown = f"{len(found.group())} × U+{ord(found.group()[0]):04X}"
            yield _at(path, text, found.start(), "hidden-bytes", shown)
            break
    found = _BIDI.search(text)
    if found:
        rule = "bidi-controls" if kind in PROGRAMS else "bidi-in-text"
        yield _at(path, text, found.start(), rule, f"U+{ord(found.group()):04X}")
    found = _BROKEN.search(text)
    if found:
        shown = f"{found.group()[0]} U+{ord(found.group()[1]):04X} {found.group()[2]}"
        yield _at(path, text, found.start(), "zero-width", shown)


def _lookalikes(path: str, text: str, kind: str) -> Iterator[Finding]:
    for found in _HOST.finditer(text):
        if any(mixes_scripts(label) for label in found[1].split(".")):
            yield _at(path, text, found.start(), "lookalike-host", found.group())
            break
    for found in _WORD.finditer(text):
        word = found.group()
        if not word.isascii() and mixes_scripts(word) and _disguised(word, kind):
            yield _at(path, text, found.start(), "lookalike-letters", word)
            break


def mixes_scripts(word: str) -> bool:
    """Whether a word has Latin letters and lookalikes of another script."""
    return (
        not word.isascii()
        and any("a" <= char.lower() <= "z" for char in word)
        and any(char in LATIN_LOOKALIKES for char in word)
    )


def _disguised(word: str, kind: str) -> bool:
    """Whether all foreign letters are lookalikes; `μm` and `αβ` are not disguised."""
    foreign = [char for char in word if not char.isascii()]
    latin = len(word) - len(foreign)
    return all(char in LATIN_LOOKALIKES for char in foreign) and (
        kind in PROGRAMS or (latin >= 3 and len(foreign) < latin)
    )


def _padding(path: str, text: str) -> Iterator[Finding]:
    for found in _BLANKS.finditer(text):
        end = text.find("\n", found.end())
        rest = text[found.end() : end if end >= 0 else found.end() + 400][:400]
        if len(rest) < 8 or set(rest) <= set("|-+=─│ ║╗╝"):
            continue
        rule = "padding-hides-command" if _PADDED_COMMAND.search(rest) else "padding"
        yield _at(path, text, found.end(), rule, rest[:120])
        return
    blank = 0
    for number, line in enumerate(text.split("\n"), 1):
        if not line or line.isspace():
            blank += 1
        elif blank >= _MIN_PADDING_LINES:
            yield Finding("padding", path, number, line.strip()[:80])
            return
        else:
            blank = 0


def _at(path: str, text: str, where: int, rule: str, evidence: str) -> Finding:
    return Finding(rule, path, text.count("\n", 0, where) + 1, evidence[:160])


_TOKENS = {
    "AKIA": r"(?:AKIA|ASIA)[0-9A-Z]{16}\b",
    "gh": r"gh[pousr]_[A-Za-z0-9]{36,}\b",
    "github_pat_": r"github_pat_[A-Za-z0-9_]{60,}\b",
    "glpat-": r"glpat-[A-Za-z0-9_-]{20,}\b",
    "xox": r"xox[abprs]-[0-9]{8,}-[A-Za-z0-9-]{20,}\b",
    "sk-ant-": r"sk-ant-(?:api|sid|oat)\d\d-[A-Za-z0-9_-]{60,}",
    "sk-": r"sk-(?:proj-|svcacct-)?[A-Za-z0-9]{40,}\b",
    "sk_live_": r"[rs]k_live_[A-Za-z0-9]{24,}\b",
    "AIza": r"AIza[0-9A-Za-z_-]{35}\b",
    "npm_": r"npm_[A-Za-z0-9]{36}\b",
    "pypi-": r"pypi-AgEIcHlwaS5vcmc[A-Za-z0-9_-]{50,}",
    "hf_": r"hf_[A-Za-z0-9]{34,}\b",
    "SG.": r"SG\.[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43}\b",
    "eyJ": r"eyJ[A-Za-z0-9_-]{16,}\.eyJ[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{20,}",
    "dop_v1_": r"dop_v1_[a-f0-9]{64}\b",
    "hooks.slack.com": r"hooks\.slack\.com/services/T[A-Z0-9]{8,}/B[A-Z0-9]{8,}/[A-Za-z0-9]{24}",
    "discord": r"discord(?:app)?\.com/api/webhooks/\d{17,20}/[A-Za-z0-9_-]{60,}",
    "bot": r"bot\d{8,10}:[A-Za-z0-9_-]{35}\b",
}
_COMPILED = {word: re.compile(pattern) for word, pattern in _TOKENS.items()}
_KEY = re.compile(
    r"-----BEGIN (?:RSA |EC |DSA |OPENSSH |PGP |ENCRYPTED )?PRIVATE KEY(?: BLOCK)?-----"
    r"\s{0,8}((?:[A-Za-z0-9+/=:\-, ]{20,100}\s{1,4}){3})"
)
_ASSIGNED = re.compile(r"[:=][ \t]{0,4}['\"]([^\s'\"]{12,80})['\"]")
_NAMES = ("passw", "secret", "api_key", "apikey", "token")
_NAMED = re.compile(
    r"\b(?:password|passwd|secret|api_?key|auth_?token|access_?token|client_?secret)['\"]?\s{0,4}$",
    re.IGNORECASE,
)
_PLACEHOLDER = re.compile(
    r"example|sample|dummy|fake|test|your|placeholder|redacted|changeme|xxxx|\.\.\.|<|>|\$\{|\{\{"
    r"|1234|abcd|0000|none|null|secret|password|insert|replace|todo|env|config|process|demo|mock",
    re.IGNORECASE,
)
_MIN_ENTROPY_BITS = 3.2
"""Per character of a random value."""


def find_secrets(path: str, text: str) -> Iterator[Finding]:
    """Credentials in a text; masked, so that a report does not leak them."""
    if "PRIVATE KEY" in text:
        found = _KEY.search(text)
        if found and _entropy(found[1]) > 4 and not _PLACEHOLDER.search(found[1][:40]):
            yield _at(path, text, found.start(), "secret-private-key", found.group()[:32])
    for word, pattern in _COMPILED.items():
        if word not in text:
            continue
        for found in pattern.finditer(text):
            value = found.group()
            if text[max(found.start() - 1, 0)].isalnum() and found.start():
                continue  # the middle of a longer word
            if _entropy(value) >= _MIN_ENTROPY_BITS and not _PLACEHOLDER.search(value):
                yield _at(path, text, found.start(), "secret-token", _masked(value))
                break
    lowered = text.lower()
    if not any(word in lowered for word in _NAMES):
        return
    for found in _ASSIGNED.finditer(text):
        value = found[1]
        before = text[max(0, found.start() - 40) : found.start()]
        if _NAMED.search(before) and _random(value):
            yield _at(path, text, found.start(), "secret-assigned", _masked(value))
            break


def _random(value: str) -> bool:
    kinds = (
        any(char.islower() for char in value)
        + any(char.isupper() for char in value)
        + any(char.isdigit() for char in value)
    )
    return kinds >= 2 and _entropy(value) >= 3.5 and not _PLACEHOLDER.search(value)


def _entropy(value: str) -> float:
    total = len(value)
    return -sum(
        value.count(char) / total * math.log2(value.count(char) / total) for char in set(value)
    )


def _masked(value: str) -> str:
    return f"{value[:6]}… ({len(value)} characters)"


_BASE64 = re.compile(r"(?<![A-Za-z0-9+/])[A-Za-z0-9+/]{24,}={0,2}")
_HEX = re.compile(r"(?:\\x[0-9a-fA-F]{2}){8,}|(?<![0-9a-fA-F])(?:[0-9a-fA-F]{2}){24,}")
_CODES = re.compile(r"(?:\b\d{2,3}\s{0,2},\s{0,2}){12,}\d{2,3}\b")
_MAX_DECODED_PIECES = 40
"""Of one region; further ones are searched as one text."""
_MIN_ENCODED_CHARS = 24
_COMMAND = re.compile(
    r"\b(?:curl|wget)\s+(?:-\w+\s+)*['\"]?https?://|/bin/(?:ba|z)?sh\b|\b(?:ba|z)?sh\s+-c\b"
    r"|powershell(?:\.exe)?\s+-|invoke-(?:expression|webrequest)|\biex\b\s*\(|downloadstring"
    r"|\b(?:exec|eval)\s*\(|\bos\.(?:system|popen)\s*\(|\bsubprocess\.|\bchild_process\b"
    r"|/dev/tcp/|\bnc\s+-\w*e|import\s+(?:os|socket|subprocess)\b|cmd(?:\.exe)?\s+/c",
    re.IGNORECASE,
)
_PRINTABLE = re.compile(rb"[\t\n\r -~\x80-\xff]+")
_ADDRESS = re.compile(r"^\s*(?:https?|wss?|tcp)://[^\s]{4,200}\s*$")


def decoded(region: Region) -> Iterator[Region]:
    """The decoded texts of a region."""
    text = region.text
    pieces: list[tuple[int, str]] = []
    at = 0
    for word in [word for word in text.split() if len(word) >= _MIN_ENCODED_CHARS]:
        at = max(text.find(word, at), at)
        for pattern, read in ((_BASE64, _base64), (_HEX, _hex)):
            pieces += [(at, inner) for part in pattern.findall(word) if (inner := read(part))]
        at += len(word)
    if text.count(",") > 11:
        pieces += [
            (found.start(), inner)
            for found in _CODES.finditer(text)
            if (inner := _codes(found.group()))
        ]
    for where, inner in pieces[:_MAX_DECODED_PIECES]:
        yield _inside(region, where, inner)
    if more := pieces[_MAX_DECODED_PIECES:]:
        yield _inside(region, more[0][0], "\n".join(inner for _, inner in more))


def find_encoded(path: str, region: Region) -> Iterator[Finding]:
    """A command or an address in a decoded region."""
    if region.kind != "decoded":
        return
    found = _COMMAND.search(region.text)
    if found:
        yield Finding("encoded-command", path, region.line, " ".join(region.text.split())[:160])
    elif _ADDRESS.match(region.text):
        yield Finding("encoded-address", path, region.line, region.text.strip()[:160])


def _inside(region: Region, where: int, text: str) -> Region:
    line = region.line + region.text.count("\n", 0, where)
    return Region("decoded", text, line, region.heading, region.above, region.script)


def _base64(value: str) -> str:
    head = _readable(_bytes64(value[:40]))
    return _readable(_bytes64(value)) if head else ""


def _bytes64(value: str) -> bytes:
    value = value.rstrip("=")
    if len(value) % 4 == 1:
        value = value[:-1]
    try:
        return b64decode(value + "==")
    except (Error, ValueError):
        return b""


def _hex(value: str) -> str:
    try:
        return _readable(unhexlify(value.replace("\\x", "")))
    except (Error, ValueError):
        return ""


def _codes(value: str) -> str:
    numbers = [int(part) for part in value.split(",") if part.strip()]
    return _readable(bytes(numbers)) if max(numbers) < 256 else ""


def _readable(data: bytes) -> str:
    """Printable text, or nothing."""
    if b"\0" in data[:4]:
        data = data.replace(b"\0", b"")  # UTF-16
    if len(data) < 12 or not _PRINTABLE.fullmatch(data):
        return ""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return ""


_PIECE_CHARS = 8192
_OVERLAP_CHARS = 1024
"""Long texts are searched in pieces: those without a rule's words are left out, and the time budget
is checked between them."""
_MAX_LINE_CHARS = 2000
"""Of a longer line, the part around a match decides about `unless`."""
_MAX_EVIDENCE_CHARS = 160
_MAX_CACHED_WORDS = 200_000
_MAX_CACHED_WORD_CHARS = 40
_CODE = frozenset(("shell", "powershell", "python", "javascript", "code", "data"))


class _RuleSearch(NamedTuple):
    """A rule, prepared for a search."""

    rule: ScanRule
    needs: frozenset[str]
    also: frozenset[str]
    expressions: tuple[tuple[str, tuple[tuple[str, ...], ...]], ...]
    """Regular expressions, and the words that each requires."""
    required: tuple[tuple[str, ...], ...]
    """The words that the patterns of `with` require."""


_LETTERS = re.compile(r"[^\W\d_]{3,}")
_ASCII_LETTERS = re.compile(r"[a-z]{3,}")


class _RuleIndex:
    """The text rules by the words that they need, and the words by their first three letters."""

    def __init__(self) -> None:
        self.searches = [
            _RuleSearch(
                rule,
                frozenset(rule.needs),
                frozenset(rule.also),
                tuple((one, required_words(one)) for one in rule.any),
                tuple(words for one in rule.all for words in required_words(one)),
            )
            for rule in text_rules()
        ]
        self.always = {at for at, one in enumerate(self.searches) if not one.needs}
        self.by_word: dict[str, set[int]] = {}
        for at, search in enumerate(self.searches):
            for word in search.needs:
                self.by_word.setdefault(word, set()).add(at)
        self.short: list[str] = []
        self.foreign: list[str] = []
        self.starts: dict[str, list[tuple[str, str]]] = {}
        """First three letters -> the longest run of letters of a word, and the word."""
        for word in {word for one in self.searches for word in one.needs | one.also}:
            part = max(_LETTERS.findall(word), key=len, default="")
            if len(part) < 3:
                (self.short if word.isascii() else self.foreign).append(word)
            else:
                self.starts.setdefault(part[:3], []).append((part, word))
        self.letters = {word[0] for word in self.foreign}
        """How the foreign words begin: most texts that are not ASCII have none of these."""
        self.known: dict[str, frozenset[str]] = {}
        """A word of a text -> the words of rules in it. Texts repeat their words."""
        self.plain: set[str] = set()
        """Words of texts without words of rules."""

    def words_in(self, low: str) -> set[str]:
        """The words of rules in a text in lower case."""
        known = self.known
        if low.isascii():
            present = {word for word in self.short if word in low}
            tokens = set(_ASCII_LETTERS.findall(low))
        else:
            words = self.short if self.letters.isdisjoint(low) else [*self.short, *self.foreign]
            present = {word for word in words if word in low}
            tokens = set(_LETTERS.findall(low))
        for token in tokens - self.plain:
            hits = known.get(token)
            present |= self._words_of(token) if hits is None else hits
        return {word for word in present if word.isalpha() or word in low}

    def _words_of(self, token: str) -> frozenset[str]:
        starts = self.starts
        words = frozenset(
            word
            for at in range(len(token) - 2)
            for part, word in starts.get(token[at : at + 3], ())
            if token.startswith(part, at)
        )
        if len(token) <= _MAX_CACHED_WORD_CHARS:
            if len(self.known) + len(self.plain) >= _MAX_CACHED_WORDS:
                self.known.clear()
                self.plain.clear()
            if words:
                self.known[token] = words
            else:
                self.plain.add(token)
        return words


@cache
def _index() -> _RuleIndex:
    return _RuleIndex()


class _SearchedText:
    """A region while it is searched."""

    def __init__(self, path: str, region: Region, low: str) -> None:
        self.path = path
        self.region = region
        self.low = low
        self._required: dict[str, bool] = {}

    @cached_property
    def code(self) -> str:
        return _code_only(self.region.kind, self.low)

    @cached_property
    def starts(self) -> list[int]:
        return _line_starts(self.low)

    def has_required(self, rule: ScanRule, text: str, start: int, end: int) -> bool:
        """Whether the patterns of `with` are near a match."""
        if rule.near:
            window = text[max(0, start - rule.near) : end + rule.near]
            return all(compiled_pattern(other).search(window) for other in rule.all)
        if rule.all and rule.id not in self._required:
            found = all(compiled_pattern(other).search(text) for other in rule.all)
            self._required[rule.id] = found
        return not rule.all or self._required[rule.id]


def find_patterns(path: str, regions: Iterable[Region], budget: TimeBudget) -> Iterator[Finding]:
    """The findings of the text rules in a file.

    Args:
        path: For the findings.
        regions: The parts of the file.
        budget: The time budget.

    Raises:
        OutOfTime: the time budget is exceeded.
    """
    index = _index()
    for region in regions:
        low = lower(region.text)
        here = index.words_in(low)
        rules = index.always.union(*(index.by_word.get(word, ()) for word in here))
        if not rules:
            continue
        searched = _SearchedText(path, region, low)
        for at in sorted(rules):
            search = index.searches[at]
            rule = search.rule
            if region.kind not in rule.where or (search.also and here.isdisjoint(search.also)):
                continue
            if not all(any(word in low for word in words) for words in search.required):
                continue
            for start, end in _pieces(low, search.needs & here):
                budget.check()
                yield from _rule_findings(searched, search, start, end)


def lower(text: str) -> str:
    """`text` in lower case, with the same positions."""
    low = text.lower()
    if len(low) == len(text):
        return low
    return "".join(char.lower() if len(char.lower()) == 1 else char for char in text)


def _pieces(low: str, words: Iterable[str]) -> Iterator[tuple[int, int]]:
    """The ranges to search: all of a short text, or overlapping pieces with a word of the rule."""
    if len(low) <= _PIECE_CHARS:
        yield 0, len(low)
        return
    for start in range(0, max(len(low) - _OVERLAP_CHARS, 1), _PIECE_CHARS - _OVERLAP_CHARS):
        end = min(start + _PIECE_CHARS, len(low))
        if not words or any(low.find(word, start, end) >= 0 for word in words):
            yield start, end


def _rule_findings(
    searched: _SearchedText, search: _RuleSearch, first: int, last: int
) -> Iterator[Finding]:
    rule, region = search.rule, searched.region
    text = searched.low if rule.engine == "instructions" else searched.code
    seen: set[tuple[int, int]] = set()
    discussed: set[tuple[int, int]] = set()
    for expression, required in search.expressions:
        if not all(any(text.find(word, first, last) >= 0 for word in words) for words in required):
            continue
        for found in compiled_pattern(expression).finditer(text, first, last):
            if not searched.has_required(rule, text, *found.span()):
                continue
            starts = searched.starts
            row = bisect_right(starts, found.start()) - 1
            place = (row, (found.start() - starts[row]) // _MAX_LINE_CHARS)
            if place in seen:
                continue
            line = _line_around(text, starts[row], *found.span())
            if any(compiled_pattern(other).search(line) for other in rule.unless):
                continue
            shown = _short(region.text[found.start() : found.end()])
            finding = Finding(rule.id, searched.path, region.line + row, shown)
            if rule.severity == "block" and _is_discussed(
                rule, region, searched.path, found.span()
            ):
                if place not in discussed:
                    discussed.add(place)
                    yield downgrade(finding)
            else:
                seen.add(place)
                yield finding


def _line_around(text: str, line_start: int, start: int, end: int) -> str:
    """The line of a match; of a long line, the part around the match."""
    line_end = text.find("\n", end, max(end, line_start + _MAX_LINE_CHARS))
    if line_end >= 0 or len(text) - line_start <= _MAX_LINE_CHARS:
        return text[line_start : line_end if line_end >= 0 else len(text)]
    half = _MAX_LINE_CHARS // 2
    line_end = text.find("\n", end, end + half)
    return text[max(line_start, start - half) : line_end if line_end >= 0 else end + half]


def _is_discussed(rule: ScanRule, region: Region, path: str, span: tuple[int, int]) -> bool:
    """Whether a match is discussed, not ordered. Orders in code are data of a program."""
    if not rule.talk:
        return False
    if rule.engine == "instructions" and region.kind in _CODE:
        return True
    return is_example(region, path, *span)


def _code_only(kind: str, text: str) -> str:
    """The text; comments of shell scripts are replaced by blanks."""
    if kind != "shell" or "#" not in text:
        return text
    lines = text.split("\n")
    return "\n".join(" " * len(line) if line.lstrip().startswith("#") else line for line in lines)


def _line_starts(text: str) -> list[int]:
    starts = [0]
    at = text.find("\n")
    while at >= 0:
        starts.append(at + 1)
        at = text.find("\n", at + 1)
    return starts


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _MAX_EVIDENCE_CHARS else text[: _MAX_EVIDENCE_CHARS - 1] + "…"
