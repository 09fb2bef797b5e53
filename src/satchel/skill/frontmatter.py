"""Parser for SKILL.md: frontmatter fields with line numbers, repairs of broken YAML, and the body.

Delimiters are whole lines, since descriptions may contain `---`. The block is read as YAML. When
that fails, it is split at the keys in the first column and each is read alone; a broken value
becomes literal text. Each repair is a Problem, and so are the silent surprises of YAML: the last of
two keys wins, ` #` starts a comment, `1.10` becomes 1.1.
"""

from __future__ import annotations

import re
from datetime import date
from typing import TYPE_CHECKING, Any, NamedTuple

import yaml

from satchel.i18n import Message
from satchel.skill.fields import FIELDS, correct_spelling
from satchel.skill.problems import Problem
from satchel.skill.yaml_reader import (
    UNREAD,
    BadValue,
    Pairs,
    Scalar,
    YamlRefusal,
    compose,
    value_of,
)

if TYPE_CHECKING:
    from collections.abc import Container

    from satchel.skill.yaml_reader import Node

MAX_FRONTMATTER_CHARS = 64 * 1024

_OPEN = re.compile(r"---([ \t]*)(?:\n|\Z)")
_CLOSE = re.compile(r"---([ \t]*)$", re.MULTILINE)
_ENDS_UNCLOSED = re.compile(
    r"^(?:\.\.\.|#{1,6} |```|<!--|\* |> |\|)|^[ \t]*-{3,}[ \t]*$", re.MULTILINE
)
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\x80-\x84\x86-\x9f\ufffe\uffff]")
_AGAIN = re.compile(
    r"\s*---[ \t]*\n(?:[A-Za-z_][\w-]*[ \t]*:.*\n|[ \t]+.*\n|\n){0,20}?(?:name|description)[ \t]*:"
)
_LOOKS_BINARY = (b"\x7fELF", b"PK\x03\x04", b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"%PDF", b"MZ")


class SplitFile(NamedTuple):
    """A file split into frontmatter and body."""

    block: str | None
    """The YAML between the delimiters, or None when the file is no skill."""
    first_line: int
    """Line number of the block in the file."""
    body: str
    problems: list[Problem]


def decode(data: bytes) -> tuple[str | None, list[Problem]]:
    """Decode bytes into text with Unix line ends; None when they are no text."""
    problems: list[Problem] = []
    if data.startswith(_LOOKS_BINARY):
        return None, [Problem("not-text")]
    if data.startswith(b"\xef\xbb\xbf"):
        data = data[3:]
        problems.append(Problem("bom", line=1))
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        text = data.decode("utf-16", "replace")
        problems.append(Problem("wide-encoding", values={"encoding": "UTF-16"}))
    else:
        try:
            text = data.decode()
        except UnicodeDecodeError:
            text = data.decode("utf-8", "replace")
            bad = text.count("\ufffd")
            if bad > len(text) // 10 and not text.startswith("---"):
                return None, [Problem("not-text")]
            line = text[: text.index("\ufffd")].count("\n") + 1 if bad else 1
            problems.append(Problem("invalid-utf8", line=line, values={"count": str(bad)}))
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text, problems


def split_file(text: str) -> SplitFile:
    """Find the frontmatter in decoded text."""
    problems: list[Problem] = []
    stripped = text.lstrip("\n \t\ufeff") if text[:1] in "\n \t\ufeff" else text
    skipped = len(text) - len(stripped)
    if skipped and stripped.startswith("---"):
        problems.append(Problem("leading-blank", line=1))
        start_line = text.count("\n", 0, skipped) + 1
        text = stripped
    else:
        start_line = 1
    opening = _OPEN.match(text)
    if conflict := _conflict_line(text):
        line = start_line + conflict - 1
        return SplitFile(None, 1, text, [*problems, Problem("merge-conflict", line=line)])
    if opening is None:
        return SplitFile(None, 1, text, [*problems, _not_a_skill(text)])
    if opening.group(1):
        problems.append(Problem("delimiter-spaces", line=start_line))
    start = opening.end()
    closing = _closing(text, start)
    if closing is None:
        block, body, problem = _unclosed(text, start, start_line)
        problems.append(problem)
    else:
        block = text[start : closing.start()]
        body = text[closing.end() + 1 :]
        if closing.group(1):
            line = start_line + 1 + block.count("\n")
            problems.append(Problem("delimiter-spaces", line=line))
        if body.lstrip("\n \t").startswith("---") and _AGAIN.match(body):
            line = start_line + 2 + block.count("\n")
            problems.append(Problem("doubled-frontmatter", line=line))
    if len(block) > MAX_FRONTMATTER_CHARS:
        return SplitFile(None, 1, body, [*problems, too_large()])
    control = _CONTROL.search(block)
    if control:
        line = start_line + 1 + block.count("\n", 0, control.start())
        block, count = _CONTROL.subn("", block)
        problems.append(Problem("control-characters", line=line, values={"count": str(count)}))
    return SplitFile(block, start_line + 1, body, problems)


_CONFLICT_MARKS = ("<<<<<<< ", "=======", ">>>>>>> ")


def _conflict_line(text: str) -> int:
    """The line of the first merge conflict outside code blocks, which may explain them; else 0."""
    if not all(f"\n{mark}" in f"\n{text}" for mark in _CONFLICT_MARKS):
        return 0
    fence, begin, part = "", 0, 0
    for number, line in enumerate(text.split("\n"), 1):
        if fence or line.startswith(("```", "~~~")):
            ends = bool(fence) and line.startswith(fence)
            fence = "" if ends else fence or line[:3]
        elif line.startswith(_CONFLICT_MARKS[part]):
            begin = begin if part else number
            part += 1
            if part == len(_CONFLICT_MARKS):
                return begin
    return 0


def _closing(text: str, start: int) -> re.Match[str] | None:
    """The first line after `start` that consists of `---` alone."""
    at = start - 1
    while True:
        at = text.find("\n---", at)
        if at < 0:
            return None
        closing = _CLOSE.match(text, at + 1)
        if closing is not None:
            return closing
        at += 1


def too_large() -> Problem:
    """The problem of a frontmatter over the limit."""
    return Problem("frontmatter-too-large", values={"limit": str(MAX_FRONTMATTER_CHARS)})


def _unclosed(text: str, start: int, start_line: int) -> tuple[str, str, Problem]:
    """Without a closing line, the block ends before the first line that is no YAML."""
    end = _ENDS_UNCLOSED.search(text, start)
    stop = end.start() if end else len(text)
    stop = min(stop, start + MAX_FRONTMATTER_CHARS)
    block = text[start:stop]
    line = start_line + 1 + block.count("\n")
    before = Message("line {part}", part=line) if end else "the end of the file"
    return block, text[stop:], Problem("unclosed-frontmatter", line=line, values={"before": before})


def _not_a_skill(text: str) -> Problem:
    head = text.strip()
    if len(head) < 300 and re.fullmatch(r"[\w./@-]*/[\w./@-]*", head):
        return Problem("symlink-as-text", line=1, values={"target": head})
    return Problem("no-frontmatter", line=1)


_KEY = re.compile(r"^([A-Za-z_][\w.-]*)[ \t]*:(?=[ \t]|$)", re.MULTILINE)
_INDENTED_KEY = re.compile(r"^ {1,4}(name|description)[ \t]*:(?=[ \t]|$)", re.MULTILINE)
_BLOCK_HEADER = re.compile(r"([>|])[+-]?\d?[+-]?(?:[ \t]+(?=\S)|[ \t]*\n)")
_QUOTE = re.compile(r"""\"(?:[^"\\]|\\.)*\"|'(?:[^']|'')*'(?!')""", re.DOTALL)
_FLOW_PART = re.compile(rf"(?<=[\s,:\[{{])(?:{_QUOTE.pattern})|[\[\]{{}}]", re.DOTALL)
"""A quoted text in a list or mapping, or one of their brackets."""
_SURROGATES = re.compile(r"\\u(d[89ab][0-9a-f]{2})\\u(d[c-f][0-9a-f]{2})", re.IGNORECASE)


_MAX_BROKEN_KEYS = 200


class BrokenKey(NamedTuple):
    """One key of a block that is not valid YAML."""

    key: str
    value: Any
    text: str
    """The value's source, folded."""
    line: int
    """0-based line in the block."""


def recover_keys(block: str, refused: YamlRefusal | None) -> tuple[list[BrokenKey], list[Problem]]:
    """Read the keys of a broken block. Lines in the problems are 0-based in the block."""
    problems: list[Problem] = []
    block = _dedent(block)
    joined = join_surrogates(block)
    cuts = _cuts(joined)
    _stray_start(joined[: cuts[0][0]] if cuts else joined, problems)
    parts: list[BrokenKey] = []
    wanted = _bounded(cuts, problems)
    for number, (start, key) in enumerate(cuts):
        if wanted is not None and start not in wanted:
            continue
        end = cuts[number + 1][0] if number + 1 < len(cuts) else len(joined)
        chunk = joined[start:end]
        line = joined.count("\n", 0, start)
        part, problem = _read_key(key, chunk.lstrip(" "), line)
        parts.append(part)
        if problem is not None:
            problems.append(problem)
    if joined != block and not problems:
        key = next(
            (part.key for part in parts if not part.text.isascii()), parts[0].key if parts else ""
        )
        problems.append(Problem("broken-surrogates", values={"key": key}))
    if refused is not None and not problems:
        # Each key alone is within bounds, the whole block is not.
        key = parts[-1].key if parts else ""
        values = {"key": key, "what": refused.what}
        problems.append(Problem("yaml-refused", line=refused.line, values=values))
    return parts, problems


def join_surrogates(text: str) -> str:
    """Replace pairs of `uXXXX` escapes that form one character, as in JSON."""
    return _SURROGATES.sub(_join_pair, text)


def _join_pair(match: re.Match[str]) -> str:
    high, low = int(match.group(1), 16), int(match.group(2), 16)
    return chr(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00))


def _dedent(block: str) -> str:
    if not block or block[0] not in " \n":
        return block
    lines = [line for line in block.split("\n") if line.strip()]
    width = min((len(line) - len(line.lstrip(" ")) for line in lines), default=0)
    if not width:
        return block
    return "\n".join(line[width:] for line in block.split("\n"))


def _cuts(block: str) -> list[tuple[int, str]]:
    cuts = [(match.start(), match.group(1)) for match in _KEY.finditer(block)]
    known = {key.lower() for _, key in cuts}
    for match in _INDENTED_KEY.finditer(block):
        if match.group(1) not in known:
            before = [key for at, key in cuts if at < match.start()]
            if before[-1:] in ([], ["name"], ["description"]):
                cuts.append((match.start(), match.group(1)))
                known.add(match.group(1))
    return sorted(cuts)


def _bounded(cuts: list[tuple[int, str]], problems: list[Problem]) -> set[int] | None:
    """Start offsets of the known keys when there are too many keys; None to read all."""
    if len(cuts) <= _MAX_BROKEN_KEYS:
        return None
    known = [at for at, key in cuts if key in FIELDS or correct_spelling(key) is not None][
        :_MAX_BROKEN_KEYS
    ]
    values = {"key": cuts[-1][1], "what": f"more than {_MAX_BROKEN_KEYS} keys in broken YAML"}
    problems.append(Problem("yaml-refused", values=values))
    return set(known)


def _stray_start(text: str, problems: list[Problem]) -> None:
    for number, line in enumerate(text.split("\n")):
        if line.strip() and not line.startswith("#"):
            values = {"at": str(number + 1), "done": "left out"}
            problems.append(Problem("stray-text", line=number, values=values))
            return


def _read_key(key: str, chunk: str, line: int) -> tuple[BrokenKey, Problem | None]:
    """Read one key alone; when that fails, use its text."""
    try:
        node = compose(chunk)
        if isinstance(node, Pairs) and len(node.nodes) == 2:
            source = fold(chunk)
            return BrokenKey(key, value_of(node.nodes[1]), source, line), None
        why, code = "it holds more than one value", "repaired-value"
    except YamlRefusal as exc:
        text = fold(chunk)
        values = {"key": key, "what": exc.what}
        return BrokenKey(key, text, text, line), Problem(
            "yaml-refused", line=line + exc.line, values=values
        )
    except BadValue as exc:
        values = {"key": key, "text": exc.text, "kind": exc.kind}
        return BrokenKey(key, exc.text, exc.text, line), Problem(
            "bad-value", line=line, values=values
        )
    except yaml.YAMLError as exc:
        why, code = _yaml_cause(key, chunk, exc)
    text = fold(chunk, first_only=key == "name")
    reason = "what" if code == "yaml-refused" else "why"
    return BrokenKey(key, text, text, line), Problem(
        code, line=line, values={"key": key, reason: why}
    )


def fold(chunk: str, *, first_only: bool = False) -> str:
    """The text of a chunk after its key, with lines folded as in YAML."""
    value = chunk.partition(":")[2].strip()
    header = _BLOCK_HEADER.match(value)
    literal = bool(header and header.group(1) == "|")
    if header:
        value = value[header.end() :]
    if first_only:
        return value.partition("\n")[0].strip()
    lines = [line.strip() for line in value.split("\n")]
    if literal:
        return "\n".join(lines)
    paragraphs = "\n".join(lines).split("\n\n")
    return "\n".join(" ".join(part.split("\n")).strip() for part in paragraphs)


def _yaml_cause(key: str, chunk: str, exc: yaml.YAMLError) -> tuple[str, str]:
    """The cause of a YAML error, and the problem code: the literal text may be wrong or not."""
    value = chunk.partition(":")[2].strip()
    first, _, rest = value.partition("\n")
    quote = first[:1]
    if re.search(r"^ *\t", chunk, re.MULTILINE):
        return "tabs for indentation", "yaml-refused"
    if _never_closes(value):
        acted_on = key != "metadata" and (key in FIELDS or correct_spelling(key) is not None)
        why = Message("{part} is never closed", part=f"`{quote}`")
        return why, "unclosed-value" if acted_on else "unclear-value"
    if quote and quote in "\"'":
        return "text follows the closing quote", "unclear-value"
    if quote and quote in "[{@`%*&!|>":
        return Message("it begins with {part}", part=f"`{quote}`"), "repaired-value"
    if re.search(r":[ \t]|:$", first) or re.search(r":[ \t]|:$", rest, re.MULTILINE):
        return "it contains an unquoted colon", "repaired-value"
    return str(getattr(exc, "problem", None) or exc), "repaired-value"


def _never_closes(value: str) -> bool:
    """Whether a value begins with a quote or a bracket whose end is missing."""
    if value[:1] in {'"', "'"}:
        return _QUOTE.match(value) is None
    if value[:1] not in {"[", "{"}:
        return False
    depth = 0
    for part in _FLOW_PART.finditer(value):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(part.group(), 0)
        if depth == 0:
            return False
    return True


class ParsedFields(NamedTuple):
    """The fields of a block."""

    values: dict[str, Any]
    """Top-level keys with the values of PyYAML, or literal text after a repair."""
    lines: dict[str, int]
    """Line of each key in the file."""
    texts: dict[str, str]
    """Source of each value that is no text, for fields that must be text."""
    problems: list[Problem]


def read_fields(
    block: str, first_line: int = 1, only: Container[str] | None = None
) -> ParsedFields:
    """Parse a block.

    Args:
        block: The text between the delimiters.
        first_line: Line number of the block in the file.
        only: Keys whose values are needed; the rest is only checked.
    """
    refused: YamlRefusal | None = None
    try:
        node = compose(block, only)
        if isinstance(node, Pairs):
            return _from_pairs(node, block, first_line)
        if not isinstance(node, Scalar):
            return _not_a_mapping(node, first_line)
    except YamlRefusal as exc:
        refused = exc
        node = None
    except yaml.YAMLError:
        node = None
    fields = _from_recovery(block, first_line, refused, only)
    if not fields.values:
        return _not_a_mapping(node, first_line, fields.problems)
    return fields


def _not_a_mapping(
    node: Node | None, line: int, problems: list[Problem] | None = None
) -> ParsedFields:
    kind = "empty" if node is None else "text" if isinstance(node, Scalar) else "a list"
    problem = Problem("not-a-mapping", line=line, values={"kind": kind})
    return ParsedFields({}, {}, {}, [*(problems or []), problem])


def _from_pairs(node: Pairs, block: str, first_line: int) -> ParsedFields:
    fields = ParsedFields({}, {}, {}, [])
    nodes = node.nodes
    comments = " #" in block or "\t#" in block
    for number in range(0, len(nodes), 2):
        key, item = nodes[number], nodes[number + 1]
        if not isinstance(key, Scalar):
            raise YamlRefusal("a list or mapping as a key", key.line)
        if key.plain and key.text == "<<":
            raise YamlRefusal("a merge key", key.line)
        name = key.text
        line = first_line + key.line
        if item is UNREAD:
            continue
        if name in fields.lines:
            fields.problems.append(Problem("duplicate-key", line=line, values={"key": name}))
        end = nodes[number + 2].start if number + 2 < len(nodes) else len(block)
        source = block[key.start : end]
        _add_field(fields, name, item, source, line)
        if comments and isinstance(item, Scalar) and item.plain:
            rest = block[item.end :].partition("\n")[0]
            if rest.lstrip().startswith("#") and item.text:
                fields.problems.append(Problem("hash-comment", line=line, values={"key": name}))
    _fix_spelling(fields)
    return fields


def _add_field(fields: ParsedFields, name: str, item: Node, source: str, line: int) -> None:
    try:
        value = value_of(item)
    except BadValue as exc:
        values = {"key": name, "text": exc.text, "kind": exc.kind}
        fields.problems.append(Problem("bad-value", line=line, values=values))
        value = fold(source) if not isinstance(item, Scalar) else item.text
    except YamlRefusal as exc:
        values = {"key": name, "what": exc.what}
        fields.problems.append(Problem("yaml-refused", line=line, values=values))
        value = fold(source)
    if not isinstance(value, str):
        text = item.text if isinstance(item, Scalar) else fold(source)
        fields.texts[name] = text
        _report_conversion(fields, name, value, text, line)
    fields.values[name] = value
    fields.lines[name] = line


def _report_conversion(fields: ParsedFields, name: str, value: Any, text: str, line: int) -> None:
    """Report text that YAML converted into something that reads differently."""
    if name in FIELDS and name != "metadata":
        return  # reported by its own rule
    if isinstance(value, float) and (str(value) != text or text.endswith("0")):
        values = {"key": name, "text": text, "value": str(value)}
        fields.problems.append(Problem("number-value", line=line, values=values))
    elif isinstance(value, date):
        fields.problems.append(Problem("date-value", line=line, values={"key": name, "text": text}))


def _from_recovery(
    block: str, first_line: int, refused: YamlRefusal | None, only: Container[str] | None
) -> ParsedFields:
    parts, problems = recover_keys(block, refused)
    fields = ParsedFields({}, {}, {}, [])
    for problem in problems:
        values = problem.values
        if problem.code == "stray-text":
            values = {**values, "at": str(first_line + problem.line)}
        fields.problems.append(problem._replace(line=first_line + problem.line, values=values))
    for part in parts:
        line = first_line + part.line
        if part.key in fields.lines:
            fields.problems.append(Problem("duplicate-key", line=line, values={"key": part.key}))
        if only is not None and part.key.lower() not in only:
            fields.lines[part.key] = line
            continue
        fields.values[part.key] = part.value
        fields.lines[part.key] = line
        if not isinstance(part.value, str):
            fields.texts[part.key] = part.text
            _report_conversion(fields, part.key, part.value, part.text, line)
    _fix_spelling(fields)
    return fields


def _fix_spelling(fields: ParsedFields) -> None:
    """Read `Name` as `name` and so on, when the correct spelling is absent."""
    for key in list(fields.values):
        right = correct_spelling(key)
        if right is None or right in fields.values:
            continue
        values = {"key": key, "meant": right}
        fields.problems.append(Problem("key-spelling", line=fields.lines[key], values=values))
        for table in (fields.values, fields.lines, fields.texts):
            if key in table:
                table[right] = table[key]  # pyright: ignore[reportArgumentType]
