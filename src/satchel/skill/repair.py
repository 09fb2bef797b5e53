"""A frontmatter block that is not YAML -> what can still be said of it, key by key.

Of real broken files nearly all have one broken key. So the block is cut at the keys in the first
column, each is read alone, and only a broken one is taken as literal text, with a Problem.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import yaml

from satchel._language import Message
from satchel.skill.fields import FIELDS, meant
from satchel.skill.problems import Problem
from satchel.skill.yaml_block import BadValue, Pairs, Refusal, compose, value_of

_KEY = re.compile(r"^([A-Za-z_][\w.-]*)[ \t]*:(?=[ \t]|$)", re.MULTILINE)
_INDENTED_KEY = re.compile(r"^ {1,4}(name|description)[ \t]*:(?=[ \t]|$)", re.MULTILINE)
_BLOCK_HEADER = re.compile(r"([>|])[+-]?\d?[+-]?(?:[ \t]+(?=\S)|[ \t]*\n)")
_SURROGATES = re.compile(r"\\u(d[89ab][0-9a-f]{2})\\u(d[c-f][0-9a-f]{2})", re.IGNORECASE)


_MAX_KEYS = 200


class Part(NamedTuple):
    """One key of a broken block."""

    key: str
    value: Any
    text: str
    """The value's source, folded."""
    line: int
    """0-based line in the block."""


def recover(block: str, refused: Refusal | None) -> tuple[list[Part], list[Problem]]:
    """Read every key that can be read. Lines in the problems are 0-based in the block."""
    problems: list[Problem] = []
    block = _dedent(block)
    joined = _SURROGATES.sub(_join, block)
    cuts = _cuts(joined)
    _stray_start(joined[: cuts[0][0]] if cuts else joined, problems)
    parts: list[Part] = []
    wanted = _bounded(cuts, problems)
    for number, (start, key) in enumerate(cuts):
        if wanted is not None and start not in wanted:
            continue
        end = cuts[number + 1][0] if number + 1 < len(cuts) else len(joined)
        chunk = joined[start:end]
        line = joined.count("\n", 0, start)
        part, problem = _one(key, chunk.lstrip(" "), line)
        parts.append(part)
        if problem is not None:
            problems.append(problem)
    if joined != block and not problems:
        key = next(
            (part.key for part in parts if not part.text.isascii()), parts[0].key if parts else ""
        )
        problems.append(Problem("broken-surrogates", values={"key": key}))
    if refused is not None and not problems:
        # Alone every key is harmless, together they are not: say what was refused.
        key = parts[-1].key if parts else ""
        values = {"key": key, "what": refused.what}
        problems.append(Problem("yaml-refused", line=refused.line, values=values))
    return parts, problems


def _join(match: re.Match[str]) -> str:
    high, low = int(match.group(1), 16), int(match.group(2), 16)
    return chr(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00))


def _dedent(block: str) -> str:
    """Undo an indentation that the whole block shares."""
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
    """Which keys to read when there are absurdly many: the known ones. None means all."""
    if len(cuts) <= _MAX_KEYS:
        return None
    known = [at for at, key in cuts if key in FIELDS or meant(key) is not None][:_MAX_KEYS]
    values = {"key": cuts[-1][1], "what": f"more than {_MAX_KEYS} keys in broken YAML"}
    problems.append(Problem("yaml-refused", values=values))
    return set(known)


def _stray_start(text: str, problems: list[Problem]) -> None:
    for number, line in enumerate(text.split("\n")):
        if line.strip() and not line.startswith("#"):
            values = {"at": str(number + 1), "done": "left out"}
            problems.append(Problem("stray-text", line=number, values=values))
            return


def _one(key: str, chunk: str, line: int) -> tuple[Part, Problem | None]:
    """Read one key alone, or take its text."""
    try:
        node = compose(chunk)
        if isinstance(node, Pairs) and len(node.nodes) == 2:
            source = fold(chunk)
            return Part(key, value_of(node.nodes[1]), source, line), None
        why, code = "it holds more than one value", "repaired-value"
    except Refusal as exc:
        text = fold(chunk)
        values = {"key": key, "what": exc.what}
        return Part(key, text, text, line), Problem(
            "yaml-refused", line=line + exc.line, values=values
        )
    except BadValue as exc:
        values = {"key": key, "text": exc.text, "kind": exc.kind}
        return Part(key, exc.text, exc.text, line), Problem("bad-value", line=line, values=values)
    except yaml.YAMLError as exc:
        why, code = _why(chunk, exc)
    text = fold(chunk, first_only=key == "name")
    return Part(key, text, text, line), Problem(code, line=line, values={"key": key, "why": why})


def fold(chunk: str, *, first_only: bool = False) -> str:
    """The text of a chunk after its key, its lines joined as YAML would fold them."""
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


def _why(chunk: str, exc: yaml.YAMLError) -> tuple[str, str]:
    """Name the slip, and whether the literal text may be wrong."""
    first, _, rest = chunk.partition(":")[2].strip().partition("\n")
    quote = first[:1]
    if quote and quote in "\"'":
        closed = first.find(quote, 1) >= 0 or quote in rest
        return (
            "it has text outside the quotes" if closed else "a quote is never closed"
        ), "unclear-value"
    if _BLOCK_HEADER.match(first):
        return Message("text follows the {part} on its line", part=f"`{quote}`"), "repaired-value"
    if quote and quote in "[{":
        return "brackets do not close, or text follows them", "repaired-value"
    if quote and quote in "@`%*&!|>":
        return Message("it begins with {part}", part=f"`{quote}`"), "repaired-value"
    if re.search(r":[ \t]|:$", first) or re.search(r":[ \t]|:$", rest, re.MULTILINE):
        return "it contains an unquoted colon", "repaired-value"
    if re.search(r"^\S", rest, re.MULTILINE):
        return "its further lines are not indented", "repaired-value"
    problem = getattr(exc, "problem", None) or "its layout"
    return str(problem), "repaired-value"
