"""Recovers the keys of a frontmatter block that is not valid YAML.

The block is split at the keys in the first column and each is read alone; a broken value becomes
literal text. Each repair is a Problem.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import yaml

from satchel.i18n import Message
from satchel.skill.fields import FIELDS, correct_spelling
from satchel.skill.problems import Problem
from satchel.skill.yaml_reader import BadValue, Pairs, YamlRefusal, compose, value_of

_KEY_LINE = re.compile(r"^([A-Za-z_][\w.-]*)[ \t]*:(?=[ \t]|$)", re.MULTILINE)
_INDENTED_KEY_LINE = re.compile(r"^ {1,4}(name|description)[ \t]*:(?=[ \t]|$)", re.MULTILINE)
_BLOCK_HEADER = re.compile(r"([>|])[+-]?\d?[+-]?(?:[ \t]+(?=\S)|[ \t]*\n)")
_QUOTED_TEXT = re.compile(r"""\"(?:[^"\\]|\\.)*\"|'(?:[^']|'')*'(?!')""", re.DOTALL)
_QUOTE_OR_BRACKET = re.compile(rf"(?<=[\s,:\[{{])(?:{_QUOTED_TEXT.pattern})|[\[\]{{}}]", re.DOTALL)
"""A quoted text in a list or mapping, or one of their brackets."""
_SURROGATE_PAIR = re.compile(r"\\u(d[89ab][0-9a-f]{2})\\u(d[c-f][0-9a-f]{2})", re.IGNORECASE)
_UNQUOTED_COLON = re.compile(r":[ \t]|:$", re.MULTILINE)
_TAB_INDENTATION = re.compile(r"^ *\t", re.MULTILINE)
_MAX_BROKEN_KEYS = 200


class BrokenKey(NamedTuple):
    """One key of a block that is not valid YAML."""

    name: str
    value: Any
    text: str
    """The value's source, folded."""
    line: int
    """0-based line in the block."""


class KeyStart(NamedTuple):
    """Where a key begins in a block."""

    start: int
    """Its offset in the block."""
    key: str


def recover_keys(block: str, refusal: YamlRefusal | None) -> tuple[list[BrokenKey], list[Problem]]:
    """Read the keys of a broken block. Lines in the problems are 0-based in the block.

    Args:
        block: The block.
        refusal: Why the whole block was refused, when it is YAML.
    """
    problems: list[Problem] = []
    block = _dedent(block)
    joined = _join_surrogates(block)
    key_starts = _find_keys(joined)
    _report_stray_text(joined[: key_starts[0].start] if key_starts else joined, problems)
    ends = [*(key_start.start for key_start in key_starts[1:]), len(joined)]
    known_starts = _select_known_keys(key_starts, problems)
    keys: list[BrokenKey] = []
    for key_start, end in zip(key_starts, ends, strict=False):
        if known_starts is not None and key_start.start not in known_starts:
            continue
        chunk = joined[key_start.start : end]
        line = joined.count("\n", 0, key_start.start)
        broken_key, problem = _read_key(key_start.key, chunk.lstrip(" "), line)
        keys.append(broken_key)
        if problem is not None:
            problems.append(problem)
    if joined != block and not problems:
        # The first key that is not ASCII, else the first one.
        key = min(keys, key=lambda key: key.text.isascii(), default=None)
        values = {"key": key.name if key is not None else ""}
        problems.append(Problem("broken-surrogates", values=values))
    if refusal is not None and not problems:
        # Each key alone is within bounds, the whole block is not.
        values = {"key": keys[-1].name if keys else "", "what": refusal.what}
        problems.append(Problem("yaml-refused", line=refusal.line, values=values))
    return keys, problems


def _join_surrogates(text: str) -> str:
    """Replace pairs of `uXXXX` escapes that form one character, as in JSON."""
    return _SURROGATE_PAIR.sub(_join_pair, text)


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


def _find_keys(block: str) -> list[KeyStart]:
    """Find the keys in the first column, and an indented `name` or `description` among them."""
    keys = [KeyStart(match.start(), match.group(1)) for match in _KEY_LINE.finditer(block)]
    names = {key.lower() for _, key in keys}
    for match in _INDENTED_KEY_LINE.finditer(block):
        if match.group(1) not in names:
            previous_keys = [key for start, key in keys if start < match.start()]
            if not previous_keys or previous_keys[-1] in ("name", "description"):
                keys.append(KeyStart(match.start(), match.group(1)))
                names.add(match.group(1))
    return sorted(keys)


def _select_known_keys(keys: list[KeyStart], problems: list[Problem]) -> set[int] | None:
    """Start offsets of the known keys when there are too many keys; None to read all."""
    if len(keys) <= _MAX_BROKEN_KEYS:
        return None
    known_starts = [start for start, key in keys if _is_known(key)]
    values = {"key": keys[-1].key, "what": f"more than {_MAX_BROKEN_KEYS} keys in broken YAML"}
    problems.append(Problem("yaml-refused", values=values))
    return set(known_starts[:_MAX_BROKEN_KEYS])


def _is_known(key: str) -> bool:
    """Whether a key is a field, or a misspelt one."""
    return key in FIELDS or correct_spelling(key) is not None


def _report_stray_text(text: str, problems: list[Problem]) -> None:
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
            source = fold_value(chunk)
            return BrokenKey(key, value_of(node.nodes[1]), source, line), None
        why, code = "it holds more than one value", "repaired-value"
    except YamlRefusal as exc:
        text = fold_value(chunk)
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
        why, code = _explain_yaml_error(key, chunk, exc)
    text = fold_value(chunk, first_line_only=key == "name")
    reason = "what" if code == "yaml-refused" else "why"
    return BrokenKey(key, text, text, line), Problem(
        code, line=line, values={"key": key, reason: why}
    )


def fold_value(chunk: str, *, first_line_only: bool = False) -> str:
    """The text of a chunk after its key, with lines folded as in YAML."""
    value = chunk.partition(":")[2].strip()
    header = _BLOCK_HEADER.match(value)
    is_literal = header is not None and header.group(1) == "|"
    if header:
        value = value[header.end() :]
    if first_line_only:
        return value.partition("\n")[0].strip()
    lines = [line.strip() for line in value.split("\n")]
    if is_literal:
        return "\n".join(lines)
    paragraphs = "\n".join(lines).split("\n\n")
    return "\n".join(" ".join(paragraph.split("\n")).strip() for paragraph in paragraphs)


def _explain_yaml_error(key: str, chunk: str, exc: yaml.YAMLError) -> tuple[str, str]:
    """The cause of a YAML error, and the problem code: the literal text may be wrong or not."""
    value = chunk.partition(":")[2].strip()
    first_line, _, following_lines = value.partition("\n")
    quote = first_line[:1]
    if _TAB_INDENTATION.search(chunk):
        return "tabs for indentation", "yaml-refused"
    if _never_closes(value):
        is_used = key != "metadata" and _is_known(key)
        why = Message("{part} is never closed", part=f"`{quote}`")
        return why, "unclosed-value" if is_used else "unclear-value"
    if quote and quote in "\"'":
        return "text follows the closing quote", "unclear-value"
    if quote and quote in "[{@`%*&!|>":
        return Message("it begins with {part}", part=f"`{quote}`"), "repaired-value"
    if _UNQUOTED_COLON.search(first_line) or _UNQUOTED_COLON.search(following_lines):
        return "it contains an unquoted colon", "repaired-value"
    return str(getattr(exc, "problem", None) or exc), "repaired-value"


def _never_closes(value: str) -> bool:
    """Whether a value begins with a quote or a bracket whose end is missing."""
    if value[:1] in {'"', "'"}:
        return _QUOTED_TEXT.match(value) is None
    if value[:1] not in {"[", "{"}:
        return False
    depth = 0
    for match in _QUOTE_OR_BRACKET.finditer(value):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(match.group(), 0)
        if depth == 0:
            return False
    return True
