"""Mechanical fixes of a SKILL.md: those that keep every value as it is read already.

The fixed file is read again: it must have the same fields and the same body, apart from a name that
becomes that of the folder, and fewer problems. Otherwise nothing is fixed.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from satchel.skill.broken_yaml import fold_value
from satchel.skill.fields import correct_spelling
from satchel.skill.frontmatter import decode, split_file
from satchel.skill.frontmatter_fields import read_fields
from satchel.skill.metadata import MAX_NAME_CHARS, NAME, as_words
from satchel.skill.reader import parse_document

if TYPE_CHECKING:
    from satchel.skill.frontmatter import SplitFile
    from satchel.skill.frontmatter_fields import ParsedFields
    from satchel.skill.problems import Problem

_QUOTED_CODES = frozenset((
    "repaired-value", "unclear-value", "hash-comment", "number-value", "date-value", "bad-value",
    "name-not-text", "description-not-text", "description-spaces", "broken-surrogates",
    "yaml-refused",
))  # fmt: skip
"""Problems that quotes around the value solve."""
_NAME_CODES = frozenset(("name-mismatch", "name-missing", "name-pattern"))
_INVALID_BYTES = re.compile("[\udc80-\udcff]+")
_PLAIN_TAGS = re.compile(r"""[^"'\[\]{}]+(?:,[^"'\[\]{}]+)+""")
_UNCLOSED_QUOTE = re.compile(r"""[\w.-]+[ \t]*:[ \t]*(["'])([^"'\\\n]*)\n""")


def fix_skill_md(data: bytes, folder: str) -> bytes:
    """Return a SKILL.md with all mechanical fixes; the same bytes when there are none.

    Args:
        data: The whole file.
        folder: The name of its folder.
    """
    once = _fix_once(data, folder)
    return once if once == data else _fix_once(once, folder)  # an error may hide a problem


def _fix_once(data: bytes, folder: str) -> bytes:
    text = _decode(data)
    if text is None:
        return data
    split = split_file(text)
    if split.block is None:
        return data
    block = _fix_block(split, folder)
    body = split.body
    fixed = f"---\n{block}---\n{body}"
    if 2 * data.count(b"\r\n") > data.count(b"\n"):
        fixed = fixed.replace("\n", "\r\n")
    new_data = fixed.encode("utf-8", "replace")
    return new_data if _is_better(data, new_data, folder) else data


def _decode(data: bytes) -> str | None:
    """Return the text; single bytes of Windows-1252 are read as such. None without a sure text."""
    _, problems = decode(data)
    codes = {problem.code for problem in problems}
    if "not-text" in codes:
        return None
    if "invalid-utf8" in codes:
        text = data.decode("utf-8", "surrogateescape")
        if any(len(run) > 1 for run in _INVALID_BYTES.findall(text)):
            return None
        text = _INVALID_BYTES.sub(
            lambda run: bytes((ord(run[0]) - 0xDC00,)).decode("cp1252", "replace"), text
        )
        data = text.encode()
    return decode(data)[0]


def _fix_block(split: SplitFile, folder: str) -> str:
    """Return the frontmatter with fixed values, each on one line."""
    block = split.block or ""
    block += "" if block.endswith("\n") or not block else "\n"
    fields = read_fields(block)
    lines = block.splitlines(keepends=True)
    starts = sorted({line for line in fields.lines.values() if line > 0})
    ends = dict(zip(starts, [*starts[1:], len(lines) + 1], strict=True))
    chunks = {line: "".join(lines[line - 1 : end - 1]) for line, end in ends.items()}
    replaced = _fix_keys(block, fields, chunks, folder)
    for line in sorted(replaced, reverse=True):
        lines[max(line - 1, 0) : ends[line] - 1 if line else 0] = [replaced[line]]
    return "".join(lines)


def _fix_keys(
    block: str, fields: ParsedFields, chunks: dict[int, str], folder: str
) -> dict[int, str]:
    """Return the new text of each key to fix, by its line; 0 stands for the first line."""
    document = parse_document(f"---\n{block}---\na\n".encode(), folder, "SKILL.md", (0, 0, 0))
    has_valid_folder = bool(NAME.fullmatch(folder)) and len(folder) <= MAX_NAME_CHARS
    replaced: dict[int, str] = {}
    for problem in document.problems:
        line = problem.line - 1  # of the block
        key = problem.values.get("key") or problem.code.partition("-")[0]
        if problem.code in _NAME_CODES:
            if has_valid_folder:
                replaced[max(line, 0)] = f"name: {folder}\n"
        elif fix := _fix_value(problem, key, chunks.get(line, ""), fields.values.get(key)):
            replaced[line] = fix
    tags, line = fields.values.get("tags"), fields.lines.get("tags", 0)
    if line in chunks and isinstance(tags, str) and _PLAIN_TAGS.fullmatch(tags):
        replaced[line] = f"tags: {json.dumps(as_words(tags), ensure_ascii=False)}\n"
    return replaced


def _fix_value(problem: Problem, key: str, chunk: str, value: object) -> str:
    """Return the new lines of a key; empty when the fix is not certain."""
    code = problem.code
    if not chunk:
        return ""
    if code == "key-spelling":
        meant = problem.values["meant"]
        return meant + chunk[len(key) :] if chunk.startswith(key) else ""
    if code == "tools-list":
        return f"{key}: {problem.values['line']}\n"
    if code == "unclosed-value":
        unclosed = _UNCLOSED_QUOTE.fullmatch(chunk)
        return f"{key}: {json.dumps(unclosed[2].strip(), ensure_ascii=False)}\n" if unclosed else ""
    if code not in _QUOTED_CODES and code != "invisible-characters":
        return ""
    text = value if isinstance(value, str) and code != "hash-comment" else fold_value(chunk)
    if code == "invisible-characters":
        text = "".join(sign for sign in text if sign.isprintable() or sign == "\n")
    return f"{key}: {json.dumps(text.strip(), ensure_ascii=False)}\n"


def _is_better(old_data: bytes, new_data: bytes, folder: str) -> bool:
    """Whether the fixed file says the same with fewer problems."""
    if old_data == new_data:
        return False
    old, new = (
        parse_document(data, folder, "SKILL.md", (0, 0, 0)) for data in (old_data, new_data)
    )
    added = len(new.problems) - len(old.problems) if old.head is not None else -1
    is_worse = new.head is None or added > 0
    is_same = added == 0 and old.fields == new.fields
    lost_keys = (key for key in old.fields if key not in new.fields and not correct_spelling(key))
    if is_worse or is_same or any(lost_keys):
        return False
    had_invalid_bytes = any(problem.code == "invalid-utf8" for problem in old.problems)
    return old.body.strip() == new.body.strip() or had_invalid_bytes
