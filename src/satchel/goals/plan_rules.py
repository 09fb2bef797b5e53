"""The kinds of problems of plans, each with its message and hint, and the limits of plans.

`plan_file` reports problems of the file and `plan_checks` those of the plan.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from satchel.errors import InvalidInput
from satchel.i18n import Message, render, say

__all__ = ["PlanProblem", "errors_in", "refusal"]

MAX_STEPS = 2_000
"""What every engine can hold."""
MAX_PROMPT_CHARS = 200_000
"""Before templates are filled."""
MAX_ATTEMPTS = 100
MAX_ITEMS = 1_000
"""Items of one `for_each`; each counts as a step."""
EVENTS = ("asking", "done", "partial", "failed")
"""What a notification may be about."""
MAX_TIMEOUT_S = 7 * 24 * 3600.0
_PHRASE_KEYS = ("kind", "wanted", "where", "better")
"""Values of problems that are phrases of this package, never text of a plan."""


def format_phrase(text: str) -> Message:
    """Return a phrase as a message; one without values may be plain text."""
    return text if isinstance(text, Message) else Message(text)


class PlanRule(NamedTuple):
    """One kind of problem."""

    severity: Literal["error", "warning"]
    message: str
    hint: str


_NO_STEP_KEY = PlanRule("error", "Step `{step}` has no `{key}`", "Write it")
_UNKNOWN_NAME = PlanRule(
    "error", "`{field}` of step `{step}` uses `{name}`, which does not exist", "{better}"
)
_NEEDS_ITSELF = PlanRule("error", "Step `{step}` depends on itself", "Remove it")
_BAD_VALUE = PlanRule("error", "`{key}` of {where} is `{value}`", "Write {wanted}")
_DUPLICATE = PlanRule("error", "`{key}` is there twice", "Remove one of them")
_NO_PLAN_KEY = PlanRule("error", "There is no `{key}`", "Write it")

RULES: dict[str, PlanRule] = {
    # The file.
    "not-yaml": PlanRule("error", "It cannot be read: {reason}", "Correct it"),
    "not-a-plan": PlanRule(
        "error", "It is {kind}, not a mapping", "Write one `key: value` per line"
    ),
    "unknown-key": PlanRule("error", "The key `{key}` of {where} means nothing", "Write {better}"),
    "wrong-type": PlanRule("error", "`{key}` of {where} is {kind}, not {wanted}", "Write {wanted}"),
    "key-twice": _DUPLICATE,
    # The whole plan.
    "no-goal": _NO_PLAN_KEY,
    "no-steps": _NO_PLAN_KEY,
    "no-notify-key": _NO_PLAN_KEY,
    "circle": PlanRule(
        "error", "The steps wait for each other in a circle: {path}", "Remove one of them"
    ),
    "range": _BAD_VALUE,
    "bad-choice": _BAD_VALUE,
    # One step.
    "bad-id": PlanRule(
        "error", "`{name}` is not a valid name", "Use letters, digits, `-` and `_`, at most 64"
    ),
    "same-id": _DUPLICATE,
    "unknown-need": _UNKNOWN_NAME,
    "needs-itself": _NEEDS_ITSELF,
    "no-prompt": _NO_STEP_KEY,
    "no-skill": _NO_STEP_KEY,
    "no-tool": _NO_STEP_KEY,
    "no-items": _NO_STEP_KEY,
    "no-comparison": _NO_STEP_KEY,
    "unknown-skill": _UNKNOWN_NAME,
    "unknown-tool": _UNKNOWN_NAME,
    "odd-field": PlanRule(
        "error", "Step `{step}` is of the type `{kind}`, which has no `{key}`", "Remove it"
    ),
    "bad-reference": PlanRule(
        "error",
        "`{field}` of step `{step}` has `{{{{{text}}}}}`, which means nothing",
        "Write `{{{{steps.ID.output}}}}`, `{{{{inputs.NAME}}}}` or `{{{{goal}}}}`; "
        "`\\{{{{` for braces that mean nothing",
    ),
    "unknown-step": _UNKNOWN_NAME,
    "mentions-itself": _NEEDS_ITSELF,
    "missing-input": _UNKNOWN_NAME,
    "unknown-field": _UNKNOWN_NAME,
    "bad-schema": PlanRule(
        "error", "`output` of step `{step}` is no schema: {reason}", "Correct it"
    ),
    "bad-default": PlanRule(
        "error", "`default` of step `{step}` does not match its `output`: {reason}", "Correct it"
    ),
    "unchecked": PlanRule(
        "warning",
        "`output` of step `{step}` says {names}, which is not checked",
        "Rely on it only if the model does",
    ),
}


class PlanProblem(NamedTuple):
    """One problem of a plan."""

    code: str
    """The kind of problem; the page on plan files lists them."""
    step: str = ""
    """The step's id; empty for the whole plan."""
    line: int = 0
    """1-based line in the file; 0 when unknown."""
    values: dict[str, str] = {}  # noqa: RUF012 - a NamedTuple default, never changed
    """What the message mentions."""

    @property
    def severity(self) -> Literal["error", "warning"]:
        """`error` prevents a run."""
        return RULES[self.code].severity

    @property
    def message(self) -> str:
        """The message in the reader's language."""
        return render(self.for_model()[0])

    @property
    def hint(self) -> str:
        """The hint in the reader's language."""
        return render(self.for_model()[1])

    def for_model(self) -> tuple[Message, Message]:
        """Message and hint in English: text for models does not follow the locale."""
        rule = RULES[self.code]
        is_own_reason = self.code == "bad-schema"  # other reasons quote a parser
        phrase_keys = (*_PHRASE_KEYS, "reason") if is_own_reason else _PHRASE_KEYS
        values = {"step": self.step, **self.values}
        values |= {key: format_phrase(values[key]) for key in phrase_keys if key in values}
        return Message(rule.message, **values), Message(rule.hint, **values)


def errors_in(problems: list[PlanProblem]) -> list[PlanProblem]:
    """Return the problems that prevent a run."""
    return [problem for problem in problems if problem.severity == "error"]


def refusal(errors: list[PlanProblem]) -> InvalidInput:
    """Return the errors of a plan as one exception."""
    more_count = len(errors) - 10
    lines = [error.message for error in errors[:10]]
    if more_count > 0:
        lines.append(say("and {count} more", count=more_count))
    if len(lines) == 1:
        return InvalidInput(lines[0], errors[0].hint)
    listed = "\n".join(f"  - {line}" for line in lines)
    return InvalidInput(
        say("The plan has {count} errors:", count=len(errors)) + f"\n{listed}", errors[0].hint
    )
