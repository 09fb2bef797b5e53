"""What can be wrong with a plan, in one table.

A `Problem` says which rule, at which step, and with which values; the sentences live here once, so
that they can be translated, and so that a model that repairs a plan reads them in English.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from satchel._language import Message, render

MAX_STEPS = 2_000
"""Steps of one plan: what every engine can hold."""
MAX_PROMPT = 200_000
"""Characters of one prompt before anything is put in."""
MAX_ATTEMPTS = 100
MAX_TIMEOUT = 7 * 24 * 3600.0


_OURS = ("kind", "wanted", "where", "better")
"""Values that are phrases from this package, never text of a plan."""


def phrase(text: str) -> Message:
    """A phrase of ours; one without values may be a plain text."""
    return text if isinstance(text, Message) else Message(text)


class Rule(NamedTuple):
    """One kind of problem."""

    severity: Literal["error", "warning"]
    message: str
    hint: str


RULES: dict[str, Rule] = {
    # The file.
    "not-yaml": Rule("error", "The plan cannot be read: {reason}", "Write it as YAML or JSON"),
    "not-a-plan": Rule("error", "The plan is {kind}, not a mapping", "Write `goal:` and `steps:`"),
    "unknown-key": Rule("error", "The key `{key}` of {where} means nothing", "Write {better}"),
    "wrong-type": Rule("error", "`{key}` of {where} is {kind}, not {wanted}", "Write {wanted}"),
    "key-twice": Rule("error", "`{key}` stands twice in {where}", "Keep one of them"),
    # The whole plan.
    "no-goal": Rule("error", "The plan does not say what it is for", "Write it under `goal`"),
    "no-steps": Rule("error", "The plan has no steps", "Write at least one under `steps`"),
    "many-steps": Rule(
        "error", "The plan has {count} steps, and {limit} is the most", "Make several goals of it"
    ),
    "circle": Rule(
        "error", "The steps wait for each other in a circle: {path}", "Take one of these needs away"
    ),
    "range": Rule("error", "`{key}` of {where} is {value}", "Give {wanted}"),
    "bad-choice": Rule("error", "`{key}` of {where} is `{value}`", "Give one of {wanted}"),
    # One step.
    "bad-id": Rule(
        "error",
        "`{value}` cannot be the id of a step",
        "Begin with a letter or digit; then letters, digits, `-` and `_`, at most 64",
    ),
    "same-id": Rule("error", "Two steps have the id `{step}`", "Give each an id of its own"),
    "unknown-need": Rule(
        "error", "Step `{step}` needs `{name}`, and there is no such step", "{better}"
    ),
    "needs-itself": Rule("error", "Step `{step}` needs itself", "Take `{step}` out of its needs"),
    "never-runs": Rule(
        "error",
        "Step `{step}` can never run, since it depends on {names}",
        "Put these steps right first",
    ),
    "no-prompt": Rule("error", "Step `{step}` has no prompt", "Write what is to be done"),
    "long-prompt": Rule(
        "error",
        "The prompt of step `{step}` has {count} characters, and {limit} is the most",
        "Put long text into `inputs`, or into a file that a tool reads",
    ),
    "no-skill": Rule("error", "Step `{step}` does not say which skill it uses", "Write `skill:`"),
    "no-tool": Rule("error", "Step `{step}` does not say which tool it calls", "Write `tool:`"),
    "unknown-skill": Rule(
        "error", "Step `{step}` uses the skill `{name}`, which is not here", "{better}"
    ),
    "unknown-tool": Rule(
        "error", "Step `{step}` calls the tool `{name}`, which is not here", "{better}"
    ),
    "odd-field": Rule(
        "error",
        "Step `{step}` is of the type `{kind}`, which has no `{key}`",
        "Take `{key}` away, or change `action_type`",
    ),
    "bad-reference": Rule(
        "error",
        "`{field}` of step `{step}` has `{{{{{text}}}}}`, which means nothing",
        "Write `{{{{steps.ID.output}}}}`, `{{{{inputs.NAME}}}}` or `{{{{goal}}}}`; "
        "`\\{{{{` for braces that mean nothing",
    ),
    "unknown-step": Rule(
        "error",
        "`{field}` of step `{step}` mentions `{name}`, and there is no such step",
        "{better}",
    ),
    "mentions-itself": Rule(
        "error", "Step `{step}` uses its own output", "Use the output of another step"
    ),
    "missing-input": Rule(
        "error",
        "`{field}` of step `{step}` uses the input `{name}`, which the plan does not give",
        "{better}",
    ),
    "unknown-field": Rule(
        "error",
        "`{field}` of step `{step}` uses `{path}` of step `{name}`, which does not promise it",
        "Add it to `output` of step `{name}`, or use {better}",
    ),
    "bad-schema": Rule(
        "error", "`output` of step `{step}` is no schema: {reason}", "Write a JSON schema"
    ),
    "unchecked": Rule(
        "warning",
        "`output` of step `{step}` says {names}, which is not checked",
        "Rely on it only if the model does",
    ),
    "unused-input": Rule("warning", "Nothing uses the input `{name}`", "Take it away, or use it"),
    "human-retries": Rule(
        "warning",
        "Step `{step}` waits for a person, so `{key}` does nothing",
        "Take `{key}` away",
    ),
}


class Problem(NamedTuple):
    """One thing wrong with a plan."""

    code: str
    step: str = ""
    """The step it is about; empty when it is about the whole plan."""
    line: int = 0
    """1-based line in the file; 0 when not known."""
    values: dict[str, str] = {}  # noqa: RUF012 - a NamedTuple default, never changed

    @property
    def severity(self) -> Literal["error", "warning"]:
        """`error`: the plan is not run."""
        return RULES[self.code].severity

    @property
    def message(self) -> str:
        """What is wrong, in the reader's language."""
        return render(self.for_model()[0])

    @property
    def hint(self) -> str:
        """What to do next, in the reader's language."""
        return render(self.for_model()[1])

    def for_model(self) -> tuple[Message, Message]:
        """The same in English: a model's text must not follow the locale."""
        rule = RULES[self.code]
        ours = (*_OURS, "reason") if self.code == "bad-schema" else _OURS
        values = {"step": self.step, **self.values}
        values |= {key: phrase(values[key]) for key in ours if key in values}
        return Message(rule.message, **values), Message(rule.hint, **values)

    def to_dict(self) -> dict[str, Any]:
        """The form for `--json`."""
        return {
            "code": self.code,
            "severity": self.severity,
            "step": self.step or None,
            "line": self.line or None,
            "message": self.message,
            "hint": self.hint,
        }
