"""The rules about names and texts that tool skills and packaged skills share."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from satchel.authoring import words

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from satchel.authoring.draft import DraftTool, Part
    from satchel.authoring.sheet import Sheet, Slip

_NAME = re.compile(r"[a-z][a-z0-9]*(?:_[a-z0-9]+)*")


def judge_names(
    sheet: Sheet, tools: Sequence[DraftTool], prefix: str, libraries: frozenset[str]
) -> None:
    """`<domain>_<action>`, with the domain first, and about a subject."""
    shaped = [tool for tool in tools if _NAME.fullmatch(tool.name) and len(tool.name) <= 64]
    odd = [tool for tool in tools if tool not in shaped and tool.name]
    sheet.judge(
        "name-shape",
        (
            (tool.line, {"name": tool.name[:80], "better": better_name(tool.name, prefix)})
            for tool in odd
        ),
    )
    strangers = [
        tool
        for tool in shaped
        if prefix and tool.name != prefix and not tool.name.startswith(f"{prefix}_")
    ]
    sheet.judge(
        "name-prefix",
        (
            (
                tool.line,
                {"name": tool.name, "prefix": prefix, "better": better_name(tool.name, prefix)},
            )
            for tool in strangers
        ),
    )
    sheet.judge(
        "name-action", ((tool.line, {"name": tool.name}) for tool in shaped if tool.name == prefix)
    )
    library = prefix.replace("_", "-") if prefix else ""
    known = library in words.lexicon("libraries") or library in libraries
    line = tools[0].line if tools else 0
    sheet.judge("name-domain", [(line, {"domain": library})] if known else [])
    sheet.judge(
        "name-order",
        (
            (tool.line, {"name": tool.name, "action": prefix})
            for tool in shaped
            if prefix in words.lexicon("actions")
            and tool.name.startswith(f"{prefix}_")
            and tool.name.rpartition("_")[2] not in words.lexicon("actions")
        ),
    )


def better_name(name: str, prefix: str) -> str:
    """What a tool should be called: `ResizeImage` in the folder `image` is `image_resize`."""
    plain = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    plain = re.sub(r"[^a-z0-9]+", "_", plain.lower()).strip("_")
    if not prefix or plain == prefix or plain.startswith(f"{prefix}_"):
        return plain[:64]
    # The domain may stand behind: `write_excel` is `excel_write`.
    rest = f"_{plain}_".replace(f"_{prefix}_", "_", 1).strip("_")
    return f"{prefix}_{rest}"[:64]


def judge_descriptions(sheet: Sheet, tools: Sequence[DraftTool], libraries: frozenset[str]) -> None:
    """A verb first, a limit, a sensible length, and neither library nor praise."""
    told = [tool for tool in tools if tool.description]
    sheet.judge(
        "description-verb",
        (
            (tool.told or tool.line, {"name": tool.name, "start": _start(tool.description)})
            for tool in told
            if not words.begins_with_verb(tool.description)
        ),
    )
    sheet.judge(
        "description-limit",
        (
            (tool.told or tool.line, {"name": tool.name})
            for tool in told
            if not words.says_limit(tool.description)
        ),
    )
    sheet.judge("description-length", _lengths(told))
    for rule, odd in (
        ("description-library", [words.library_in(tool.description, libraries) for tool in told]),
        ("description-filler", [words.filler_in(tool.description) for tool in told]),
    ):
        sheet.judge(
            rule,
            (
                (tool.told or tool.line, {"name": tool.name, "word": word[:60]})
                for tool, word in zip(told, odd, strict=True)
                if word
            ),
        )


def _lengths(tools: Sequence[DraftTool]) -> Iterator[Slip]:
    for tool in tools:
        length, (least, most) = words.length_of(tool.description), words.bounds_of(tool.description)
        if not least <= length <= most:
            yield tool.told or tool.line, {
                "name": tool.name, "length": str(length), "least": str(least), "most": str(most),
            }  # fmt: skip


def _start(text: str) -> str:
    plain = " ".join(text.split())
    return plain[:8] if words.language_of(text) == "zh" else " ".join(plain.split()[:2])[:40]


def judge_parameters(sheet: Sheet, parts: Sequence[Part]) -> None:
    """The three elements: what it is, what holds for it, an example."""
    sheet.judge(
        "parameter-what",
        ((one.line, {"name": one.name}) for one in parts if not words.says_what(one.description)),
    )
    sheet.judge(
        "parameter-bound",
        ((one.line, {"name": one.name}) for one in parts if not words.says_bound(one.description)),
    )
    sheet.judge(
        "parameter-example",
        (
            (one.line, {"name": one.name})
            for one in parts
            if not words.says_example(one.description, truth=one.type == "boolean")
        ),
    )


def judge_language(sheet: Sheet, tools: Sequence[DraftTool], wanted: str, reason: str) -> None:
    """Descriptions in the language that was asked for."""
    if not wanted:
        sheet.skip(reason, "texts-language")
        return
    texts = [(tool.line, tool.name, tool.description) for tool in tools if tool.description] + [
        (one.line, one.name, one.description)
        for tool in tools
        for one in tool.parameters
        if one.description
    ]
    sheet.judge(
        "texts-language",
        ((line, {"name": name}) for line, name, text in texts if words.language_of(text) != wanted),
    )
