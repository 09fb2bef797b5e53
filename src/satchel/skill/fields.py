"""The known frontmatter fields: type, status and meaning.

The Agent Skills specification defines six fields; coding agents read many more. All are kept:
`honoured` fields have an effect in Satchel, `inert` ones only in other agents.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

Kind = Literal["text", "flag", "list", "map", "any"]


class FrontmatterField(NamedTuple):
    """One frontmatter field."""

    name: str
    kind: Kind
    """`list` also accepts one line separated by commas or spaces; `any` is not checked."""
    status: Literal["honoured", "inert"]
    meaning: str
    spec: bool = False
    """Part of the published Agent Skills specification."""


_FIELDS = (
    FrontmatterField("name", "text", "honoured", "what the skill is called", spec=True),
    FrontmatterField("description", "text", "honoured", "what it does and when to use it; the model sees it", spec=True),
    FrontmatterField("license", "text", "honoured", "shown by `satchel show`", spec=True),
    FrontmatterField("compatibility", "text", "honoured", "shown by `satchel show`", spec=True),
    FrontmatterField("metadata", "map", "honoured", "kept for programs, as written", spec=True),
    FrontmatterField("allowed-tools", "list", "honoured", "tools that the skill asks to call without approval while it is loaded", spec=True),
    FrontmatterField("when_to_use", "text", "honoured", "joined to the description in the catalogue"),
    FrontmatterField("tags", "list", "honoured", "words for filters"),
    FrontmatterField("argument-hint", "text", "honoured", "shown by `satchel show`"),
    FrontmatterField("arguments", "list", "honoured", "names for `$name` in the body, in order"),
    FrontmatterField("disable-model-invocation", "flag", "honoured", "kept out of the catalogue; only a person can load it"),
    FrontmatterField("user-invocable", "flag", "inert", "`false` keeps it off a host's menu; hosts ask `Skill.for_people`"),
    FrontmatterField("disallowed-tools", "list", "honoured", "tools that are refused while the skill is loaded"),
    FrontmatterField("requires", "any", "honoured", "`bins`, `anyBins`, `env`, `skills` and `os` without which it is not offered"),
    FrontmatterField("requirements", "any", "honoured", "the same as `requires`"),
    FrontmatterField("prerequisites", "any", "honoured", "`commands` and `env_vars` without which it is not offered"),
    FrontmatterField("dependencies", "any", "honoured", "`skills` without which it is not offered"),
    FrontmatterField("platforms", "any", "honoured", "operating systems on which it is offered"),
    FrontmatterField("depends_on", "any", "inert", "other skills; those below `requires: {skills: […]}` count"),
    FrontmatterField("model", "text", "inert", "the model that should run the skill"),
    FrontmatterField("effort", "text", "inert", "how much the model should reason"),
    FrontmatterField("context", "text", "inert", "`fork` runs the skill in a sub-agent"),
    FrontmatterField("agent", "text", "inert", "the sub-agent that should run the skill"),
    FrontmatterField("hooks", "map", "inert", "commands; never run"),
    FrontmatterField("paths", "list", "inert", "offers the skill only for matching files"),
    FrontmatterField("shell", "text", "inert", "commands; never run"),
)  # fmt: skip

FIELDS: dict[str, FrontmatterField] = {field.name: field for field in _FIELDS}

SPEC_FIELDS = frozenset(field.name for field in _FIELDS if field.spec)
"""Fields that the published specification allows at the top level."""

LISTED = ("when_to_use", "tags", "argument-hint", "disable-model-invocation", "user-invocable")
"""Fields that a scan keeps beside name and description."""

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
"""Misspellings in real files, and the correct field."""


def correct_spelling(key: str) -> str | None:
    """The field that `key` misspells, or None when it is correct or unknown."""
    if key in FIELDS:
        return None
    lower = key.lower()
    if lower in FIELDS:
        return lower
    return SPELLINGS.get(lower)


def with_misspellings(names: tuple[str, ...]) -> frozenset[str]:
    """`names` and their known misspellings, in lower case."""
    return frozenset((*names, *(wrong for wrong, right in SPELLINGS.items() if right in names)))
