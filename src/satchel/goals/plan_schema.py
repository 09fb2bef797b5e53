"""What may stand in a plan file? One table; its JSON schema is made from it.

The schema is what editors, the documentation and a model that writes plans are given.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from satchel.goals.problems import MAX_ATTEMPTS, MAX_PROMPT, MAX_STEPS, MAX_TIMEOUT

_ACTIONS = ["llm", "skill", "tool", "human"]
_POLICIES = ["fail_fast", "continue", "skip_dependents"]


class Field(NamedTuple):
    """One key."""

    kinds: tuple[str, ...]
    """What its value may be, as the reader knows it."""
    wanted: str
    """The same in a sentence."""
    schema: dict[str, Any]
    says: str
    """What it means."""


def _text(says: str, **more: Any) -> Field:
    return Field(("text",), "text", {"type": "string", **more}, says)


def _number(says: str, **more: Any) -> Field:
    return Field(("number",), "a number", {"type": "number", **more}, says)


def _whole(says: str, **more: Any) -> Field:
    return Field(("whole",), "a whole number", {"type": "integer", **more}, says)


def _mapping(says: str, **more: Any) -> Field:
    return Field(("mapping",), "a mapping", {"type": "object", **more}, says)


_SECONDS = {"exclusiveMinimum": 0, "maximum": MAX_TIMEOUT}

RETRY: dict[str, Field] = {
    "attempts": _whole("All tries together", minimum=1, maximum=MAX_ATTEMPTS),
    "first": _number("Seconds before the second try", minimum=0, maximum=MAX_TIMEOUT),
    "factor": _number("How many times longer each wait is", minimum=1, maximum=100),
    "most": _number("The longest wait, in seconds", minimum=0, maximum=MAX_TIMEOUT),
    "jitter": _number("Each wait varies by up to this share", minimum=0, maximum=1),
}
BUDGET: dict[str, Field] = {
    "tokens": _whole("Tokens in and out together", minimum=1),
    "cost": _number("US dollars", exclusiveMinimum=0),
    "seconds": _number("Time at work; waiting for people does not count", exclusiveMinimum=0),
}


def _object(fields: dict[str, Field], required: tuple[str, ...] = ()) -> dict[str, Any]:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {
            name: {**field.schema, "description": field.says} for name, field in fields.items()
        },
        "additionalProperties": False,
    }
    return {**schema, "required": [*required]} if required else schema


_RETRY = Field(
    ("whole", "mapping"),
    "a whole number or a mapping",
    {"anyOf": [{"type": "integer", "minimum": 1, "maximum": MAX_ATTEMPTS}, _object(RETRY)]},
    "How often a failed step is tried: a number of tries, or when and how often",
)

STEP: dict[str, Field] = {
    "id": Field(
        ("text", "name"),
        "text",
        {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$"},
        "What other steps call it",
    ),
    "title": _text("What people read; the id when empty"),
    "action_type": _text(
        "`llm` asks a model, `skill` a model with a skill's instructions, `tool` calls a tool, "
        "`human` waits for a person; when left out, as `tool` or `skill` say, else `llm`",
        enum=_ACTIONS,
    ),
    "skill": _text("For `skill`: its name"),
    "tool": _text("For `tool`: its name"),
    "arguments": _mapping(
        "For `tool`: what it is called with. A text that is one `{{…}}` alone keeps its type"
    ),
    "prompt": _text(
        "What the model or the person is told. `{{steps.ID.output}}`, `{{steps.ID.output.field}}`, "
        "`{{inputs.NAME}}` and `{{goal}}` are filled in",
        maxLength=MAX_PROMPT,
    ),
    "needs": Field(
        ("texts",),
        "a list of ids",
        {
            "anyOf": [
                {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
                {"type": "string"},
            ]
        },
        "Steps that must end before it; those that its texts mention need not be listed",
    ),
    "output": _mapping("A JSON schema of what it gives; a text when empty"),
    "model": _text("Which model is asked; the runner's own when empty"),
    "retry": _RETRY,
    "timeout": _number("Seconds for one try", **_SECONDS),
    "on_failure": _text("What its failure means for the rest", enum=_POLICIES),
}

PLAN: dict[str, Field] = {
    "goal": _text("What is to be reached, in words", minLength=1),
    "inputs": _mapping("Values for `{{inputs.NAME}}`"),
    "on_failure": _text(
        "What a failed step means: `fail_fast` stops everything, `continue` goes on without its "
        "output, `skip_dependents` leaves out what depends on it",
        enum=_POLICIES,
    ),
    "retry": _RETRY,
    "timeout": _number("Seconds for one try of a step", **_SECONDS),
    "budget": Field(("mapping",), "a mapping", _object(BUDGET), "What the whole goal may take"),
    "parallel": _whole("Steps that run at once, at most", minimum=1, maximum=10_000),
    "steps": Field(
        ("list",),
        "a list",
        {
            "type": "array",
            "items": _object(STEP, ("id",)),
            "minItems": 1,
            "maxItems": MAX_STEPS,
        },
        "What is to be done; each begins when all it needs has ended",
    ),
}


def plan_schema() -> dict[str, Any]:
    """The JSON schema of a plan file: a new one each time, to be changed at will."""
    import copy

    schema = _object(PLAN, ("goal", "steps"))
    schema["properties"]["$schema"] = {"type": "string"}
    return copy.deepcopy(
        {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": "A plan of Satchel",
            **schema,
        }
    )
