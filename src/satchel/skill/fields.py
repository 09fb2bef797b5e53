"""Which frontmatter fields exist, what type each has, and whether it does anything here.

The Agent Skills specification names six fields; coding agents read many more. All are kept. An
author should never have to guess whether a field acts: `honoured` ones do, `inert` ones are
carried for the agents that read them.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

Kind = Literal["text", "flag", "list", "map", "any"]


class Field(NamedTuple):
    """One frontmatter field."""

    name: str
    kind: Kind
    """`list` also takes one line separated by commas or spaces."""
    status: Literal["honoured", "inert"]
    meaning: str
    spec: bool = False
    """Part of the published Agent Skills specification."""


_FIELDS = (
    Field("name", "text", "honoured", "what the skill is called", spec=True),
    Field("description", "text", "honoured", "what it does and when to use it; the model sees it", spec=True),
    Field("license", "text", "honoured", "shown by `satchel show`", spec=True),
    Field("compatibility", "text", "honoured", "what the skill needs; shown by `satchel show`", spec=True),
    Field("metadata", "map", "honoured", "kept for programs, as written", spec=True),
    Field("allowed-tools", "list", "honoured", "tools that need no approval while the skill is loaded", spec=True),
    Field("when_to_use", "text", "honoured", "joined to the description in the catalogue"),
    Field("tags", "list", "honoured", "words for filters"),
    Field("argument-hint", "text", "honoured", "shown beside the name, and in `satchel show`"),
    Field("arguments", "list", "honoured", "names for `$name` in the body, in order"),
    Field("disable-model-invocation", "flag", "honoured", "kept out of the catalogue; only a person can load it"),
    Field("user-invocable", "flag", "inert", "`false` keeps it off a host's menu; hosts ask `Skill.for_people`"),
    Field("disallowed-tools", "list", "honoured", "tools that are refused while the skill is loaded"),
    Field("model", "text", "honoured", "which model runs a skill with `context: fork`, where the host knows that word"),
    Field("effort", "text", "inert", "how hard the model thinks"),
    Field("context", "text", "honoured", "`fork` runs the skill in a sub-agent"),
    Field("agent", "text", "honoured", "which sub-agent runs a skill with `context: fork`"),
    Field("hooks", "map", "inert", "commands around tool calls; never run"),
    Field("paths", "list", "inert", "offers the skill only for matching files"),
    Field("shell", "text", "inert", "which shell runs inline commands; never run"),
)  # fmt: skip

FIELDS: dict[str, Field] = {field.name: field for field in _FIELDS}
"""Every known field by its name."""

SPEC_FIELDS = frozenset(field.name for field in _FIELDS if field.spec)
"""What the published specification allows at the top level."""

LISTED = ("when_to_use", "tags", "argument-hint", "disable-model-invocation", "user-invocable")
"""Fields that decide how a skill is listed, so a scan keeps them beside name and description."""

SPELLINGS = {
    "allowed_tools": "allowed-tools",
    "allowedtools": "allowed-tools",
    "disallowed_tools": "disallowed-tools",
    "argument_hint": "argument-hint",
    "when-to-use": "when_to_use",
    "whentouse": "when_to_use",
    "disable_model_invocation": "disable-model-invocation",
    "disablemodelinvocation": "disable-model-invocation",
    "user_invocable": "user-invocable",
    "user-invokable": "user-invocable",
    "user_invokable": "user-invocable",
    "desc": "description",
    "licence": "license",
}
"""Other spellings seen in real files, and the field that was meant."""


def meant(key: str) -> str | None:
    """The known field that `key` misspells, or None when it is right or unknown."""
    if key in FIELDS:
        return None
    lower = key.lower()
    if lower in FIELDS:
        return lower
    return SPELLINGS.get(lower)


def with_spellings(names: tuple[str, ...]) -> frozenset[str]:
    """`names` and every known way they are misspelt, in lower case."""
    return frozenset((*names, *(wrong for wrong, right in SPELLINGS.items() if right in names)))
