"""What does a skill.yaml mean to say, even where it is wrong?

A manifest with a slip is not offered, and there is no `Manifest` of it. Its author still wants to
hear about the rest. A `Draft` is the whole file read leniently, for the check-list only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, cast

if TYPE_CHECKING:
    from satchel.skill.manifest_read import Reading


class Part(NamedTuple):
    """One parameter."""

    name: str
    type: str
    required: bool
    description: str
    line: int = 0


class Shown(NamedTuple):
    """One example."""

    scenario: str
    arguments: dict[str, Any]
    line: int = 0


class DraftTool(NamedTuple):
    """One tool."""

    name: str
    description: str
    parameters: tuple[Part, ...] = ()
    when: tuple[str, ...] = ()
    when_not: tuple[str, ...] = ()
    examples: tuple[Shown, ...] = ()
    line: int = 0
    schema: dict[str, Any] | None = None
    """None when the manifest cannot be used."""
    told: int = 0
    """Line of its description, as far as that is known."""


class Draft(NamedTuple):
    """A skill.yaml."""

    tools: tuple[DraftTool, ...]
    runtime: str
    entry: str
    access: str = "none"
    shown: frozenset[str] = frozenset()
    """Parameters under `files:`."""


def draft_of(reading: Reading) -> Draft:
    """The draft of what was read."""
    fields = reading.fields
    manifest = reading.manifest
    runtime, entry = _text(fields.get("runtime")), _text(fields.get("entry"))
    entry = entry.removeprefix("./")
    if manifest is not None:
        tools = tuple(
            DraftTool(
                tool.name,
                tool.description,
                tuple(
                    Part(one.name, one.type, one.required, one.description, one.line)
                    for one in tool.parameters
                ),
                tool.docs.when_to_use,
                tool.docs.when_not_to_use,
                tuple(Shown(*one) for one in tool.docs.examples),
                tool.line,
                tool.schema(),
                0 if manifest.several else reading.lines.get("description", 0),
            )
            for tool in manifest.tools
        )
        files = manifest.files
        return Draft(tools, runtime, entry, files.access, frozenset((*files.read, *files.write)))
    listed = fields.get("tools")
    tables = _tables(listed) if isinstance(listed, list) else [fields]
    line = reading.lines.get("name", 0)
    access, shown = _files(fields.get("files"))
    return Draft(tuple(_tool(table, line) for table in tables), runtime, entry, access, shown)


def _tool(table: dict[str, Any], line: int) -> DraftTool:
    docs = _table(table.get("docs"))
    return DraftTool(
        _text(table.get("name")),
        _text(table.get("description")),
        tuple(
            Part(
                _text(one.get("name")),
                _text(one.get("type")),
                one.get("required") is True,
                _text(one.get("description")),
            )
            for one in _tables(table.get("parameters"))
        ),
        _texts(docs.get("when_to_use")),
        _texts(docs.get("when_not_to_use")),
        tuple(
            Shown(_text(one.get("scenario")), _table(one.get("arguments")))
            for one in _tables(docs.get("examples"))
        ),
        line,
    )


def _files(value: Any) -> tuple[str, frozenset[str]]:
    if isinstance(value, str):
        return value, frozenset()
    table = _table(value)
    names = frozenset((*_texts(table.get("read")), *_texts(table.get("write"))))
    return "write" if "write" in table else "read" if table else "none", names


def _text(value: Any) -> str:
    return value.strip() if isinstance(value, str) else ""


def _texts(value: Any) -> tuple[str, ...]:
    items = cast("list[Any]", value) if isinstance(value, list) else [value]
    return tuple(item.strip() for item in items if isinstance(item, str) and item.strip())


def _table(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _tables(value: Any) -> list[dict[str, Any]]:
    items = cast("list[Any]", value) if isinstance(value, list) else []
    return [cast("dict[str, Any]", item) for item in items if isinstance(item, dict)]
