"""Records of goals: the rows of the list, the board of one goal, its steps and their answers."""

from __future__ import annotations

import json
import math
import re
import time
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from satchel.errors import InvalidInput, NotFound, StepFailed
from satchel.goals.approvals import first_unapproved, retried_plan, unfinished_plan
from satchel.goals.artifacts import is_reference, load, preview_of
from satchel.goals.drawing.labels import (
    MARKS,
    format_seconds,
    kind_of,
    state_word,
    usage_line,
    usage_words,
    waiting_time,
)
from satchel.goals.model import OVER
from satchel.goals.plan_checks import dependents_of, needs_in, order
from satchel.goals.reports import last_event_time
from satchel.goals.templates import TemplateValues, fill_value, filled_pieces
from satchel.i18n import render, say

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from satchel.goals.artifacts import Artifacts
    from satchel.goals.model import (
        GoalReport,
        GoalState,
        GoalSummary,
        Plan,
        Step,
        StepResult,
    )
    from satchel.goals.templates import FilledText
    from satchel.satchel import Satchel

# --- answers ------------------------------------------------------------------------------
# A schema of texts, numbers, choices and booleans becomes a form. Any other needs JSON.

VALUE = "value"
"""Name of a single field, and prefix of the names of several."""
_MAX_FORM_FIELDS = 24
"""A schema with more needs JSON."""


class AnswerField(NamedTuple):
    """One field of an answer."""

    name: str
    label: str
    kind: str
    """`text`, `number`, `choice`, `yes` or `json`."""
    help: str = ""
    choices: tuple[str, ...] = ()
    required: bool = False
    whole: bool = False
    """For a number: integers only."""


class StepQuestion(NamedTuple):
    """A question of a waiting step."""

    step: str
    title: str
    text: str
    fields: tuple[AnswerField, ...]


def question_of(step: Step, result: StepResult) -> StepQuestion:
    """Return the question of a waiting step, and the fields of its answer."""
    text = str(preview_of(result.output) or step.prompt)
    return StepQuestion(
        step.id, " ".join((step.title or step.id).split()), text, fields_of(step.output)
    )


def fields_of(schema: Mapping[str, Any]) -> tuple[AnswerField, ...]:
    """Return the form fields for an answer schema."""
    if not schema:
        label = say("Your answer")
        return (AnswerField(VALUE, label, "text", say("Left empty, it is a plain yes")),)
    single = _field(VALUE, say("Your answer"), schema, required=True)
    if single is not None:
        return (single,)
    properties = _table(schema.get("properties"))
    if schema.get("type") == "object" and 0 < len(properties) <= _MAX_FORM_FIELDS:
        needed = schema.get("required") or ()
        found = [
            _field(f"{VALUE}.{name}", str(_table(one).get("title") or name), _table(one),
                   required=name in needed)
            for name, one in properties.items()
        ]  # fmt: skip
        if all(one is not None for one in found):
            return tuple(cast("list[AnswerField]", found))
    words = say("As JSON, in this form: {schema}", schema=json.dumps(schema, ensure_ascii=False))
    return (AnswerField(VALUE, say("Your answer"), "json", words, required=True),)


def _table(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _field(
    name: str, label: str, schema: Mapping[str, Any], *, required: bool
) -> AnswerField | None:
    """A field for one simple value; None for other schemas."""
    words = str(schema.get("description") or "")
    choices = schema.get("enum")
    if isinstance(choices, list):
        several = cast("list[Any]", choices)
        if several and all(isinstance(one, str) for one in several):
            return AnswerField(name, label, "choice", words, tuple(several), required)
        return None
    kind = schema.get("type")
    if kind == "string":
        return AnswerField(name, label, "text", words, required=required)
    if kind in {"integer", "number"}:
        return AnswerField(name, label, "number", words, required=required, whole=kind == "integer")
    if kind == "boolean":
        return AnswerField(name, label, "yes", words, required=required)
    return None


def answer_of(schema: Mapping[str, Any], given: Mapping[str, str]) -> Any:
    """Return the answer in the form of the step's schema; None for a plain approval.

    Raises:
        InvalidInput: a number or JSON is invalid.
    """
    fields = fields_of(schema)
    found: dict[str, Any] = {}
    for field in fields:
        text = given.get(field.name, "").replace("\r\n", "\n")
        if field.kind == "yes":
            found[field.name] = text == "true"
        elif text.strip() or (field.required and field.kind in {"text", "choice"}):
            found[field.name] = _value(field, text, schema)
    if len(fields) == 1 and fields[0].name == VALUE:
        return found.get(VALUE)
    return {name.removeprefix(f"{VALUE}."): value for name, value in found.items()}


def _value(field: AnswerField, text: str, schema: Mapping[str, Any]) -> Any:
    if field.kind in {"text", "choice"}:
        return text
    try:
        if field.kind == "number":
            return int(text) if field.whole else _number(text)
        return json.loads(text)
    except (ValueError, RecursionError) as exc:
        if field.kind == "number":
            raise InvalidInput(
                say("`{text}` is no number", text=text[:60]), say("Write digits alone")
            ) from exc
        raise InvalidInput(
            say("The answer is not JSON: {reason}", reason=exc),
            say("The step wants {schema}", schema=json.dumps(schema, ensure_ascii=False)),
        ) from exc


def _number(text: str) -> float | int:
    found = float(text)
    if not math.isfinite(found):
        raise ValueError(text)
    return int(found) if found.is_integer() and "e" not in text.lower() else found


TONES = {
    "running": "info",
    "asking": "warn",
    "done": "good",
    "partial": "warn",
    "failed": "bad",
    "damaged": "bad",
}
"""State of a step or a goal -> tone of its badge; none for other states."""
GOAL_MARKS = {**MARKS, "queued": "○", "partial": "▲", "damaged": "✗"}
FILTERS: Mapping[str, tuple[GoalState, ...]] = {
    "": (),
    "open": ("queued", "running"),
    "asking": ("asking",),
    "done": ("done",),
    "failed": ("failed", "partial", "damaged"),
    "cancelled": ("cancelled",),
}
MAX_GOALS_PER_PAGE = 50
MAX_STEPS_DRAWN = 300
"""A drawing of more steps cannot be read."""
_MAX_GOAL_CHARS = 240


class StateShown(NamedTuple):
    """A state, shown by word and symbol as well as by tone."""

    name: str
    word: str
    mark: str
    tone: str


class GoalRow(NamedTuple):
    """One goal of the list."""

    id: str
    state: StateShown
    goal: str
    engine: str
    begun: str
    begun_iso: str
    taken: str
    done: int
    steps: int

    @property
    def text(self) -> str:
        """The goal, shortened for a page."""
        cut = len(self.goal) > _MAX_GOAL_CHARS
        return f"{self.goal[:_MAX_GOAL_CHARS]}…" if cut else self.goal


class GoalRows(NamedTuple):
    """A page of the list."""

    rows: tuple[GoalRow, ...]
    kinds: tuple[tuple[str, str], ...]
    kind: str
    before: str
    """Start of the next page; empty when there is none."""
    last: str
    """The last goal of this page, which may start at the same moment as the next."""


class StepRow(NamedTuple):
    """One step of the board."""

    id: str
    title: str
    who: str
    state: StateShown
    taken: str
    since: float
    """Start time while it runs; 0 when unknown."""
    needs: tuple[str, ...]


class RetryPreview(NamedTuple):
    """What a retry would run."""

    steps: tuple[str, ...]
    allow: str
    """The tool that needs permission; empty when none does."""


class GoalBoard(NamedTuple):
    """The current state of a goal."""

    text: str
    state: StateShown
    engine: str
    revision: int
    begun: str
    begun_iso: str
    taken: str
    usage: tuple[str, ...]
    reason: str
    counts: tuple[tuple[StateShown, int], ...]
    done: int
    steps: tuple[StepRow, ...]
    asks: tuple[StepQuestion, ...]
    allow: str
    """The tool that needs permission before the goal continues; empty when none does."""
    again: RetryPreview | None
    """None while the goal runs, or when everything is done."""
    is_over: bool
    is_left: bool
    """No process runs it, and one could be started here."""
    note: str
    """Which worker runs its steps, if not this process."""
    quiet_since: float
    """When a step last ended, while it runs."""
    now: float
    drawn: bool


def state_of(name: str) -> StateShown:
    """Return a state with its word, symbol and tone."""
    return StateShown(name, state_word(name), GOAL_MARKS.get(name, "·"), TONES.get(name, ""))


def moment(at: float) -> str:
    """Format a time in local time."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at)) if at else ""


def iso(at: float) -> str:
    """Format a time as ISO 8601."""
    return datetime.fromtimestamp(at).astimezone().isoformat(timespec="seconds") if at else ""


# --- the list ----------------------------------------------------------------------------


def filter_labels() -> tuple[tuple[str, str], ...]:
    """Return the filters of the list and their labels."""
    return (
        ("", say("All")),
        ("open", say("At work")),
        ("asking", say("Ask a person")),
        ("done", say("Done")),
        ("failed", say("Failed")),
        ("cancelled", say("Cancelled")),
    )


def rows_of(found: Sequence[GoalSummary], kind: str = "", last: str = "") -> GoalRows:
    """Return a page of the list.

    Args:
        found: Goals of the engine; more than a page if there is a next page.
        kind: The filter.
        last: The last goal of the previous page; goals up to it are skipped.
    """
    ids = [one.id for one in found]
    if last in ids:
        found = found[ids.index(last) + 1 :]
    shown = found[:MAX_GOALS_PER_PAGE]
    began = [one.started for one in shown if one.started]
    more = len(found) > MAX_GOALS_PER_PAGE and bool(began)
    return GoalRows(
        tuple(map(goal_row, shown)),
        filter_labels(),
        kind,
        repr(began[-1]) if more else "",
        shown[-1].id if more else "",
    )


def goal_row(one: GoalSummary) -> GoalRow:
    """Return the row of one goal."""
    return GoalRow(
        one.id,
        state_of(one.state),
        " ".join(one.goal.split()),
        one.engine,
        moment(one.started),
        iso(one.started),
        format_seconds(one.seconds) if one.seconds else "",
        one.done,
        one.steps,
    )


# --- one goal ----------------------------------------------------------------------------


def board_of(satchel: Satchel, report: GoalReport, *, shared: bool, on: bool = False) -> GoalBoard:
    """Return the board of a goal.

    Args:
        satchel: Decides which tools need permission.
        report: The goal.
        shared: Whether workers of other machines run the steps.
        on: Whether a process started here runs it.
    """
    steps = order(report.plan)
    results = report.steps
    needs = needs_in(report.plan)
    counts = [
        (state_of(name), count)
        for name in MARKS
        if (count := sum(one.state == name for one in results.values()))
    ]
    over = report.state in OVER
    asking = [step for step in steps if results[step.id].state == "asking"]
    # The state `running` with a reason means that its process is gone.
    alone = report.state == "queued" or (report.state == "running" and bool(report.reason))
    return GoalBoard(
        " ".join(report.plan.goal.split()),
        state_of(report.state),
        report.engine,
        report.revision,
        moment(report.started),
        iso(report.started),
        format_seconds(report.seconds) if report.seconds else "",
        usage_words(report.usage),
        "" if report.state == "asking" else render(report.reason),
        tuple(counts),
        sum(one.state == "done" for one in results.values()),
        tuple(_step_row(step, results[step.id], needs[step.id]) for step in steps),
        tuple(question_of(step, results[step.id]) for step in asking),
        _to_allow(satchel, unfinished_plan(report), shared=shared) if asking or alone else "",
        retry_preview(satchel, report, shared=shared)
        if over and report.state != "damaged"
        else None,
        over,
        alone and not shared and not on,
        _who_works(satchel, report, shared=shared) if alone and not on else "",
        last_event_time(report) if report.state == "running" else 0.0,
        time.time(),
        0 < len(steps) <= MAX_STEPS_DRAWN,
    )


def last_steps(plan: Plan) -> list[str]:
    """Return the steps that no other needs: their outputs are the result of the goal."""
    needed = {need for needs in needs_in(plan).values() for need in needs}
    return [step.id for step in plan.steps if step.id not in needed]


def result_step(report: GoalReport) -> str:
    """Return the step whose output is the result of the goal; empty until it is done."""
    if report.state != "done":
        return ""
    last = last_steps(report.plan)
    return next((step.id for step in reversed(order(report.plan)) if step.id in last), "")


def _step_row(step: Step, result: StepResult, needs: tuple[str, ...]) -> StepRow:
    if result.error is not None and result.state in {"failed", "skipped"}:
        taken = render(result.error.message)
    elif result.state == "done":
        person = step.action_type == "human"
        known = result.seconds or result.attempts
        taken = waiting_time(result) if person else usage_line(result) if known else ""
    else:
        taken = ""
    since = result.started if result.state == "running" else 0.0
    title = " ".join((step.title or step.id).split())
    return StepRow(step.id, title, kind_of(step), state_of(result.state), taken, since, needs)


def retry_preview(
    satchel: Satchel, report: GoalReport, *, shared: bool, from_step: str = ""
) -> RetryPreview | None:
    """Return what a retry would run; None when there is nothing to retry.

    Raises:
        NotFound: the plan has no step `from_step`.
    """
    plan = retried_plan(report, from_step)
    if not plan.steps:
        return None
    names = tuple(step.id for step in plan.steps)
    return RetryPreview(names, _to_allow(satchel, plan, shared=shared))


def _to_allow(satchel: Satchel, plan: Plan, *, shared: bool) -> str:
    """The tool that needs permission; where steps are shared, the workers decide."""
    step = None if shared else first_unapproved(satchel, plan.steps)
    return "" if step is None else step.tool


def _who_works(satchel: Satchel, report: GoalReport, *, shared: bool) -> str:
    """How to continue a goal that no process runs."""
    if report.engine == "local":
        return ""
    left = unfinished_plan(report)
    yes = " --allow-tools" if first_unapproved(satchel, left.steps) is not None else ""
    command = f"satchel worker --engine {report.engine}{yes}"
    if shared:
        return say("Workers do the steps. Start one with `{command}`", command=command)
    return say("It waits for a worker: `{command}`", command=command)


def command_of(report: GoalReport, verb: str, *words: str) -> str:
    """Return the equivalent terminal command."""
    return " ".join(("satchel goal", verb, report.id, *words, "--engine", report.engine))


MAX_OUTPUT_CHARS = 6_000
MAX_WHOLE_OUTPUT_CHARS = 200_000
MAX_ARTIFACT_BYTES = 4_000_000
"""A larger output is left to the terminal."""
_JSON = re.compile(
    r'(?P<key>"(?:[^"\\]|\\.)*"(?=\s*:))|(?P<text>"(?:[^"\\]|\\.)*")'
    r"|(?P<number>-?\d[\d.eE+-]*)|(?P<word>true|false|null)"
)


class OutputToken(NamedTuple):
    """A part of a text. Its kind is empty, `key`, `text`, `number` or `word`."""

    kind: str
    text: str


class OutputShown(NamedTuple):
    """The output of a step, as far as it is shown."""

    tokens: tuple[OutputToken, ...]
    is_json: bool
    size: int
    """Characters, or bytes of an artifact."""
    cut: bool
    more: bool


class LoadedSkillShown(NamedTuple):
    """A skill loaded by a step."""

    name: str
    ref: str
    """Empty when it is no longer installed."""


class StepView(NamedTuple):
    """All details of a step."""

    id: str
    title: str
    who: str
    state: StateShown
    attempts: int
    begun: str
    begun_iso: str
    taken: str
    since: float
    usage: tuple[str, ...]
    skills: tuple[LoadedSkillShown, ...]
    tools: tuple[str, ...]
    notes: tuple[str, ...]
    error: str
    hint: str
    needs: tuple[str, ...]
    feeds: tuple[str, ...]
    prompt: tuple[FilledText, ...]
    arguments: tuple[OutputToken, ...]
    output: OutputShown | None
    asked: str
    again: RetryPreview | None
    command: str
    """The terminal command that prints the whole output."""


async def step_of(
    satchel: Satchel,
    report: GoalReport,
    name: str,
    artifacts: Artifacts,
    *,
    shared: bool,
    whole: bool = False,
) -> StepView:
    """Return the details of a step.

    Args:
        satchel: The project's skills.
        report: The goal.
        name: The step.
        artifacts: Storage of large outputs.
        shared: Whether workers of other machines run the steps.
        whole: Show as much of the output as fits a page.

    Raises:
        NotFound: the goal has no such step.
        StepFailed: a large output is missing or damaged.
    """
    import asyncio

    step = next((one for one in report.plan.steps if one.id == name), None)
    if step is None:
        raise NotFound(
            say("Goal `{goal}` has no step `{step}`", goal=report.id, step=name),
            say("Look at the goal for its steps"),
        )
    result = report.steps[name]
    given = await _output(result, artifacts, whole=whole) if result.state == "done" else None
    return await asyncio.to_thread(_view, satchel, report, step, given, shared=shared)


def _view(
    satchel: Satchel, report: GoalReport, step: Step, output: OutputShown | None, *, shared: bool
) -> StepView:
    result, needs = report.steps[step.id], needs_in(report.plan)
    values = _values(report)
    may_retry = report.state in (OVER | {"asking"}) - {"damaged"}
    return StepView(
        step.id,
        " ".join((step.title or step.id).split()),
        kind_of(step),
        state_of(result.state),
        result.attempts,
        moment(result.started),
        iso(result.started),
        _taken(step, result),
        result.started if result.state == "running" else 0.0,
        usage_words(result.usage),
        tuple(_used(satchel, one) for one in result.skills),
        result.tools,
        tuple(map(render, result.notes)),
        "" if result.error is None else render(result.error.message),
        "" if result.error is None else render(result.error.hint),
        needs[step.id],
        tuple(dependents_of(needs)[step.id]),
        tuple(_short(filled_pieces(step.prompt, values))) if step.prompt else (),
        tokens_of(_pretty(_filled(step.arguments, values)))[0] if step.arguments else (),
        output,
        str(preview_of(result.output) or "") if result.state == "asking" else "",
        retry_preview(satchel, report, shared=shared, from_step=step.id) if may_retry else None,
        f"satchel goal show {report.id} --step {step.id} --engine {report.engine}",
    )


def _taken(step: Step, result: StepResult) -> str:
    if step.action_type == "human":
        return waiting_time(result)
    return format_seconds(result.seconds) if result.seconds else ""


def _used(satchel: Satchel, name: str) -> LoadedSkillShown:
    found = satchel.library.find(name)
    return LoadedSkillShown(name, found[0].ref if found else "")


def _values(report: GoalReport) -> TemplateValues:
    """Template values known so far; large outputs by their preview."""
    ended = {
        name: preview_of(one.output) if one.state == "done" else None
        for name, one in report.steps.items()
        if one.state in {"done", "failed", "skipped"}
    }
    return TemplateValues(report.plan.inputs, ended, report.plan.goal)


def _short(found: Any) -> Any:
    left = MAX_OUTPUT_CHARS
    for piece in found:
        if len(piece.text) > left:
            yield piece._replace(text=f"{piece.text[:left]}…")
            return
        left -= len(piece.text)
        yield piece


def _filled(value: Any, values: TemplateValues) -> Any:
    if isinstance(value, dict):
        table = cast("Mapping[str, Any]", value)
        return {key: _filled(item, values) for key, item in table.items()}
    if isinstance(value, list | tuple):
        return [_filled(item, values) for item in cast("list[Any]", value)]
    try:
        return fill_value(value, values)
    except StepFailed:
        return value  # its values are not known yet


def _pretty(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2, default=str)


async def _output(result: StepResult, artifacts: Artifacts, *, whole: bool) -> OutputShown | None:
    """A large output is shown by its preview unless `whole` is set."""
    output = result.output
    if output is None:
        return None
    if is_reference(output):
        size = int(output.get("size", 0))
        if not whole:
            fields = output.get("fields")
            text = str(output.get("head", "")) if fields is None else _pretty(fields)
            tokens, _ = tokens_of(text, plain=fields is None)
            return OutputShown(
                tokens, fields is not None, size, cut=True, more=size <= MAX_ARTIFACT_BYTES
            )
        if size > MAX_ARTIFACT_BYTES:
            head, _ = tokens_of(str(output.get("head", "")), plain=True)
            return OutputShown(head, is_json=False, size=size, cut=True, more=False)
        output = await load(output, artifacts)
    is_json = not isinstance(output, str)
    text = _pretty(output) if is_json else output
    tokens, cut = tokens_of(
        text, MAX_WHOLE_OUTPUT_CHARS if whole else MAX_OUTPUT_CHARS, plain=not is_json
    )
    return OutputShown(tokens, is_json, len(text), cut, more=cut and not whole)


def tokens_of(
    text: str, most: int = MAX_OUTPUT_CHARS, *, plain: bool = False
) -> tuple[tuple[OutputToken, ...], bool]:
    """Split JSON into tokens for colouring; the flag tells whether text was cut."""
    cut = len(text) > most
    text = text[:most]
    if plain:
        return (OutputToken("", text),), cut
    found: list[OutputToken] = []
    at = 0
    for match in _JSON.finditer(text):
        if match.start() > at:
            found.append(OutputToken("", text[at : match.start()]))
        found.append(OutputToken(match.lastgroup or "", match[0]))
        at = match.end()
    if at < len(text):
        found.append(OutputToken("", text[at:]))
    return tuple(found), cut
