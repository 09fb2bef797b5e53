"""Decodes files, cuts them into pages, and builds the replies of the tool `ReadFile`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from satchel.i18n import Message
from satchel.tools.framing import attribute, encodable, framed

if TYPE_CHECKING:
    from satchel.envelope import Envelope
    from satchel.tools.base import ToolCall

MAX_READ_BYTES = 16 * 1024 * 1024
"""The rest of a longer file cannot be read."""
MAX_ENTRIES_SHOWN = 100
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
"""A line as editors count them: `str.splitlines` also breaks at form feeds and others."""


class TextPage(NamedTuple):
    """One part of a text."""

    content: str
    first_line: int
    """Counted from 1."""
    last_line: int
    line_count: int
    """Number of lines of the whole text."""
    next_line: int
    """Where the rest begins; 0 when nothing was cut."""


class FileLabel(NamedTuple):
    """The names of a file or folder in a reply."""

    requested: str
    """The path as it was requested, in one line."""
    resolved: str
    """The path below the project, an absolute path elsewhere, or the address that was requested."""


def decode_text(data: bytes, *, is_cut: bool) -> tuple[str | None, str]:
    """Decode a file: its text, or None when it is binary; and the fallback that was used.

    Args:
        data: The file's bytes.
        is_cut: Whether the file is longer, so that the last character may be incomplete.
    """
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        text = data.decode("utf-16", "replace")
        return (None, "") if "\0" in text else (text, "")
    if b"\0" in data:
        return None, ""
    data = data.removeprefix(b"\xef\xbb\xbf")
    try:
        return data.decode(), ""
    except UnicodeDecodeError as exc:
        if is_cut and exc.start >= len(data) - 4:
            return data[: exc.start].decode(), ""
        return data.decode("utf-8", "replace"), "invalid-utf-8"


def cut_page(text: str, *, first_line: int, max_lines: int | None, max_chars: int) -> TextPage:
    """Cut out `max_lines` lines from `first_line` on, and of them at most `max_chars` characters.

    Reaching `max_lines` is no truncation; only `max_chars` makes a page partial. The rest of a line
    that is longer than `max_chars` is left out.
    """
    lines = _LINE.findall(text)
    line_count = len(lines)
    if first_line > line_count:
        return TextPage("", first_line, first_line - 1, line_count, 0)
    end = None if max_lines is None else first_line - 1 + int(max_lines)
    candidates = lines[first_line - 1 : end]
    page_lines: list[str] = []
    remaining_chars = max_chars
    for number, line in enumerate(candidates, first_line):
        if len(line) > remaining_chars:
            if page_lines:
                return TextPage("".join(page_lines), first_line, number - 1, line_count, number)
            content = line[:remaining_chars]
            return TextPage(content, first_line, number, line_count, number + 1)
        page_lines.append(line)
        remaining_chars -= len(line)
    last_line = first_line + len(candidates) - 1
    return TextPage("".join(page_lines), first_line, last_line, line_count, 0)


def reply_with_page(
    call: ToolCall,
    label: FileLabel,
    page: TextPage,
    *,
    file_bytes: int,
    fallback: str,
    origin: str,
) -> Envelope:
    """Make the reply with a page of a file.

    Args:
        call: The call.
        label: The names of the file.
        page: The page.
        file_bytes: Size of the whole file.
        fallback: The fallback that `decode_text` used.
        origin: The server of a served skill; empty for other files.
    """
    data: dict[str, Any] = {
        "content": page.content,
        "path": encodable(label.resolved),
        "first_line": page.first_line if page.line_count else 0,
        "last_line": page.last_line,
        "lines": page.line_count,
    }
    notes: list[str] = []
    if page.next_line:
        data["truncated"] = True
        if not page.content.endswith("\n"):
            notes.append(f"Line {page.last_line} is too long: the rest of it is left out.")
        if page.next_line <= page.line_count:
            notes.append(
                f"There is more. Call ReadFile again with offset {page.next_line} for the rest."
            )
    elif file_bytes > MAX_READ_BYTES:
        data["truncated"] = True
        notes.append(
            f"The file has {file_bytes:,} bytes; what is beyond {MAX_READ_BYTES:,} cannot be read."
        )
    if fallback:
        data["fallback"] = fallback
        notes.append("Some bytes were not valid text and are shown as `\ufffd`.")
    line_range = f"{data['first_line']}-{page.last_line} of {page.line_count}"
    attributes = f'path="{attribute(label.resolved)}" lines="{line_range}"'
    attributes += f' origin="{attribute(origin)}"' if origin else ""
    text = framed("file-read", attributes, page.content)
    stats: dict[str, Any] = {"bytes": file_bytes, "characters": len(page.content)}
    return call.answer(
        "\n".join((text, *notes)),
        data,
        partial=bool(notes),
        stats=stats,
        path=encodable(label.resolved),
    )


def reply_with_folder(
    call: ToolCall, label: FileLabel, entries: list[dict[str, str]], total: int
) -> Envelope:
    """Make the reply for a folder, with at most `MAX_ENTRIES_SHOWN` of its `total` entries."""
    entries.sort(key=lambda entry: entry["path"])
    del entries[MAX_ENTRIES_SHOWN:]
    names = [entry["path"] + ("/" if entry["type"] == "dir" else "") for entry in entries]
    ending = f" and {total - MAX_ENTRIES_SHOWN} more" if total > MAX_ENTRIES_SHOWN else ""
    step = Message("It is empty")
    if names:
        step = Message("Read a file in it: {names}", names=", ".join(names) + ending)
    return call.fail(
        "IS_DIRECTORY",
        Message("`{path}` is a folder", path=label.requested),
        step,
        {"entries": entries, "entries_total": total},
        path=label.resolved,
    )


def reply_to_unknown_address(call: ToolCall, requested: str) -> Envelope:
    """Make the reply for an address that leads to no file."""
    return call.fail(
        "NOT_FOUND",
        Message("There is no `{path}`", path=requested),
        "Give `skill://NAME/FILE`: the skill itself lists its files",
    )
