"""What is shown of goals? The rows of their list, and the board of one: its steps as they stand."""

from __future__ import annotations

import json
import math
import re
import time
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from satchel._language import render, say
from satchel.errors import InvalidInput, NotFound, StepFailed
from satchel.goals.artefacts import is_reference, load, shown
from satchel.goals.drawing.words import (
    MARKS,
    kind_of,
    seconds,
    state_word,
    took,
    usage_words,
    waited,
)
from satchel.goals.model import OVER
from satchel.goals.permission import done_again, not_done, unallowed
from satchel.goals.reports import last_sign
from satchel.goals.templates import Values, fill_value, pieces
from satchel.goals.wiring import dependents_of, needs_in, order

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from satchel.facade import Satchel
    from satchel.goals.artefacts import Artefacts
    from satchel.goals.model import (
        GoalReport,
        GoalState,
        GoalSummary,
        Plan,
        Step,
        StepResult,
    )
    from satchel.goals.templates import Piece

# --- answers ------------------------------------------------------------------------------
# A schema of texts, numbers, choices and yes or no is a form. Any other wants JSON, as in a
# terminal.

VALUE = "value"
"""What the one field is called, and how the names of several begin."""
_MOST = 24
"""Fields of a form; a larger schema wants JSON."""


class Field(NamedTuple):
    """One thing to fill in."""

    name: str
    label: str
    kind: str
    """`text`, `number`, `choice`, `yes` or `json`."""
    help: str = ""
    choices: tuple[str, ...] = ()
    required: bool = False
    whole: bool = False
    """For a number: without a fraction."""


class Ask(NamedTuple):
    """A step that asks."""

    step: str
    title: str
    text: str
    """What the person is asked."""
    fields: tuple[Field, ...]


def ask_of(step: Step, result: StepResult) -> Ask:
    """What the person is asked, and what they may fill in."""
    text = str(shown(result.output) or step.prompt)
    return Ask(step.id, " ".join((step.title or step.id).split()), text, fields_of(step.output))


def fields_of(schema: Mapping[str, Any]) -> tuple[Field, ...]:
    """The fields that a schema is filled in by."""
    if not schema:
        label = say("Your answer")
        return (Field(VALUE, label, "text", say("Left empty, it is a plain yes")),)
    single = _field(VALUE, say("Your answer"), schema, required=True)
    if single is not None:
        return (single,)
    properties = _table(schema.get("properties"))
    if schema.get("type") == "object" and 0 < len(properties) <= _MOST:
        needed = schema.get("required") or ()
        found = [
            _field(f"{VALUE}.{name}", str(_table(one).get("title") or name), _table(one),
                   required=name in needed)
            for name, one in properties.items()
        ]  # fmt: skip
        if all(one is not None for one in found):
            return tuple(cast("list[Field]", found))
    words = say("As JSON, in this form: {schema}", schema=json.dumps(schema, ensure_ascii=False))
    return (Field(VALUE, say("Your answer"), "json", words, required=True),)


def _table(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _field(name: str, label: str, schema: Mapping[str, Any], *, required: bool) -> Field | None:
    """A field for one simple value; None when it is none."""
    words = str(schema.get("description") or "")
    choices = schema.get("enum")
    if isinstance(choices, list):
        several = cast("list[Any]", choices)
        if several and all(isinstance(one, str) for one in several):
            return Field(name, label, "choice", words, tuple(several), required)
        return None
    kind = schema.get("type")
    if kind == "string":
        return Field(name, label, "text", words, required=required)
    if kind in {"integer", "number"}:
        return Field(name, label, "number", words, required=required, whole=kind == "integer")
    if kind == "boolean":
        return Field(name, label, "yes", words, required=required)
    return None


def answer_of(schema: Mapping[str, Any], given: Mapping[str, str]) -> Any:
    """What somebody filled in, in the form that the step wants; None for a plain yes.

    Raises:
        InvalidInput: a number or JSON is none.
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


def _value(field: Field, text: str, schema: Mapping[str, Any]) -> Any:
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
"""State of a step or a goal -> the colour of its badge; the others have none."""
GOAL_MARKS = {**MARKS, "queued": "○", "partial": "▲", "damaged": "✗"}
KINDS: Mapping[str, tuple[GoalState, ...]] = {
    "": (),
    "open": ("queued", "running"),
    "asking": ("asking",),
    "done": ("done",),
    "failed": ("failed", "partial", "damaged"),
    "cancelled": ("cancelled",),
}
"""What a list is asked for -> the states that it shows."""
PAGE = 50
MOST_DRAWN = 300
"""Steps of a goal that is drawn; a larger one is a picture that nobody can read."""
_CUT = 240


class State(NamedTuple):
    """A state as people see it: never by its colour alone."""

    name: str
    word: str
    mark: str
    tone: str


class Row(NamedTuple):
    """One goal of the list."""

    id: str
    state: State
    text: str
    engine: str
    begun: str
    begun_iso: str
    taken: str
    done: int
    steps: int


class Rows(NamedTuple):
    """A page of the list."""

    rows: tuple[Row, ...]
    kinds: tuple[tuple[str, str], ...]
    """What the list can be asked for, and its word."""
    kind: str
    before: str
    """Where older ones begin; empty when there are none."""
    last: str
    """The last goal of this page: its moment alone might name it again."""


class StepRow(NamedTuple):
    """One step of a board."""

    id: str
    title: str
    who: str
    state: State
    taken: str
    since: float
    """When it began, while it runs; 0 when nobody knows."""
    needs: tuple[str, ...]


class Again(NamedTuple):
    """What a retry would do."""

    steps: tuple[str, ...]
    allow: str
    """The tool that somebody has to allow for it; empty when none is."""


class Board(NamedTuple):
    """A goal as it stands."""

    id: str
    text: str
    state: State
    engine: str
    revision: int
    begun: str
    begun_iso: str
    taken: str
    usage: tuple[str, ...]
    reason: str
    counts: tuple[tuple[State, int], ...]
    done: int
    steps: tuple[StepRow, ...]
    asks: tuple[Ask, ...]
    allow: str
    """The tool that somebody has to allow before it goes on; empty when none is."""
    again: Again | None
    """What can be tried again; None while it runs, or when everything is done."""
    is_over: bool
    is_left: bool
    """Nobody is at it, and somebody here could be."""
    note: str
    """Who does its steps, where that is not us."""
    quiet_since: float
    """When something last ended, while it runs."""
    now: float
    drawn: bool


def state_of(name: str) -> State:
    """A state as people see it."""
    return State(name, state_word(name), GOAL_MARKS.get(name, "·"), TONES.get(name, ""))


def moment(at: float) -> str:
    """A time for people, by the clock of this machine."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at)) if at else ""


def iso(at: float) -> str:
    """A time for programs."""
    return datetime.fromtimestamp(at).astimezone().isoformat(timespec="seconds") if at else ""


# --- the list ----------------------------------------------------------------------------


def kinds() -> tuple[tuple[str, str], ...]:
    """What a list can be asked for, and its word."""
    return (
        ("", say("All")),
        ("open", say("At work")),
        ("asking", say("Ask a person")),
        ("done", say("Done")),
        ("failed", say("Failed")),
        ("cancelled", say("Cancelled")),
    )


def rows_of(found: Sequence[GoalSummary], kind: str = "", last: str = "") -> Rows:
    """A page of the list.

    Args:
        found: What the engine has, one more than a page at least when there is more.
        kind: What was asked for.
        last: The last goal of the page before: what comes up to it was shown.
    """
    ids = [one.id for one in found]
    if last in ids:
        found = found[ids.index(last) + 1 :]
    shown = found[:PAGE]
    began = [one.started for one in shown if one.started]
    more = len(found) > PAGE and bool(began)
    return Rows(
        tuple(map(_row, shown)),
        kinds(),
        kind,
        repr(began[-1]) if more else "",
        shown[-1].id if more else "",
    )


def _row(one: GoalSummary) -> Row:
    text = " ".join(one.goal.split())
    return Row(
        one.id,
        state_of(one.state),
        text if len(text) <= _CUT else f"{text[:_CUT]}…",
        one.engine,
        moment(one.started),
        iso(one.started),
        seconds(one.seconds) if one.seconds else "",
        one.done,
        max(one.steps, 1),
    )


# --- one goal ----------------------------------------------------------------------------


def board_of(satchel: Satchel, report: GoalReport, *, shared: bool, on: bool = False) -> Board:
    """A goal as it stands.

    Args:
        satchel: Whose tools may be called without asking.
        report: How far it is.
        shared: Whether workers of other machines do the steps.
        on: Whether a process of ours goes on with it.
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
    # A state that says `running` with a reason means that nobody is at it any more.
    alone = report.state == "queued" or (report.state == "running" and bool(report.reason))
    return Board(
        report.id,
        " ".join(report.plan.goal.split()),
        state_of(report.state),
        report.engine,
        report.revision,
        moment(report.started),
        iso(report.started),
        seconds(report.seconds) if report.seconds else "",
        usage_words(report.usage),
        "" if report.state == "asking" else render(report.reason),
        tuple(counts),
        sum(one.state == "done" for one in results.values()),
        tuple(_step_row(step, results[step.id], needs[step.id]) for step in steps),
        tuple(ask_of(step, results[step.id]) for step in asking),
        _to_allow(satchel, not_done(report), shared=shared) if asking or alone else "",
        again_of(satchel, report, shared=shared) if over and report.state != "damaged" else None,
        over,
        alone and not shared and not on,
        _who_works(satchel, report, shared=shared) if alone and not on else "",
        last_sign(report) if report.state == "running" else 0.0,
        time.time(),
        0 < len(steps) <= MOST_DRAWN,
    )


def last_of(report: GoalReport) -> str:
    """The step whose output is what a goal gave; empty while it is not done."""
    if report.state != "done":
        return ""
    wanted = {name for needs in needs_in(report.plan).values() for name in needs}
    return next((step.id for step in reversed(order(report.plan)) if step.id not in wanted), "")


def _step_row(step: Step, result: StepResult, needs: tuple[str, ...]) -> StepRow:
    if result.error is not None and result.state in {"failed", "skipped"}:
        taken = render(result.error.message)
    elif result.state == "done":
        person = step.action_type == "human"
        known = result.seconds or result.attempts
        taken = waited(result) if person else took(result) if known else ""
    else:
        taken = ""
    since = result.started if result.state == "running" else 0.0
    title = " ".join((step.title or step.id).split())
    return StepRow(step.id, title, kind_of(step), state_of(result.state), taken, since, needs)


def again_of(
    satchel: Satchel, report: GoalReport, *, shared: bool, from_step: str = ""
) -> Again | None:
    """What a retry would do; None when it would do nothing.

    Raises:
        NotFound: the plan has no step `from_step`.
    """
    plan = done_again(report, from_step)
    if not plan.steps:
        return None
    names = tuple(step.id for step in plan.steps)
    return Again(names, _to_allow(satchel, plan, shared=shared))


def _to_allow(satchel: Satchel, plan: Plan, *, shared: bool) -> str:
    """The tool that somebody has to allow; where workers are, that is theirs to say."""
    step = None if shared else unallowed(satchel, plan.steps)
    return "" if step is None else step.tool


def _who_works(satchel: Satchel, report: GoalReport, *, shared: bool) -> str:
    """How a goal goes on that nobody is at."""
    if report.engine == "local":
        return ""
    left = not_done(report)
    yes = " --allow-tools" if unallowed(satchel, left.steps) is not None else ""
    command = f"satchel worker --engine {report.engine}{yes}"
    if shared:
        return say("Workers do the steps. Start one with `{command}`", command=command)
    return say("It waits for a worker: `{command}`", command=command)


def command_of(report: GoalReport, verb: str, *words: str) -> str:
    """What does the same in a terminal."""
    return " ".join(("satchel goal", verb, report.id, *words, "--engine", report.engine))


SHORT = 6_000
"""Characters of an output that are shown at first."""
LONG = 200_000
"""The same for somebody who wants more."""
LARGEST = 4_000_000
"""Bytes of an output that is fetched for a page; more is for the terminal."""
_JSON = re.compile(
    r'(?P<key>"(?:[^"\\]|\\.)*"(?=\s*:))|(?P<text>"(?:[^"\\]|\\.)*")'
    r"|(?P<number>-?\d[\d.eE+-]*)|(?P<word>true|false|null)"
)
_TRIED = re.compile(r"try (\d+): (?:[A-Z_]+: )?(.*)", re.DOTALL)


class Token(NamedTuple):
    """A part of a text, and what it is: empty, `key`, `text`, `number` or `word`."""

    kind: str
    text: str


class Output(NamedTuple):
    """What a step gave, as far as it is shown."""

    tokens: tuple[Token, ...]
    is_json: bool
    size: int
    """Characters, or bytes of one that lies elsewhere."""
    cut: bool
    more: bool
    """Whether the page can show more of it."""


class Used(NamedTuple):
    """A skill that was loaded."""

    name: str
    ref: str
    """Empty when it is not here any more."""


class StepView(NamedTuple):
    """A step with all that is known of it."""

    goal: str
    id: str
    title: str
    who: str
    state: State
    attempts: int
    begun: str
    begun_iso: str
    taken: str
    since: float
    usage: tuple[str, ...]
    skills: tuple[Used, ...]
    tools: tuple[str, ...]
    notes: tuple[str, ...]
    error: str
    hint: str
    needs: tuple[str, ...]
    feeds: tuple[str, ...]
    prompt: tuple[Piece, ...]
    arguments: tuple[Token, ...]
    output: Output | None
    asked: str
    """What a person is asked, while they are."""
    again: Again | None
    command: str
    """What prints the whole output in a terminal."""


async def step_of(
    satchel: Satchel,
    report: GoalReport,
    name: str,
    artefacts: Artefacts,
    *,
    shared: bool,
    whole: bool = False,
) -> StepView:
    """A step of a goal.

    Args:
        satchel: Where its skills are.
        report: How far the goal is.
        name: Which step.
        artefacts: Where large outputs are.
        shared: Whether workers of other machines do the steps.
        whole: Show as much of the output as a page can take.

    Raises:
        NotFound: the goal has no such step.
        StepFailed: a large output is not there, or damaged.
    """
    import asyncio

    step = next((one for one in report.plan.steps if one.id == name), None)
    if step is None:
        raise NotFound(
            say("Goal `{goal}` has no step `{step}`", goal=report.id, step=name),
            say("Look at the goal for its steps"),
        )
    result = report.steps[name]
    given = await _output(result, artefacts, whole=whole) if result.state == "done" else None
    return await asyncio.to_thread(_view, satchel, report, step, given, shared=shared)


def _view(
    satchel: Satchel, report: GoalReport, step: Step, output: Output | None, *, shared: bool
) -> StepView:
    result, needs = report.steps[step.id], needs_in(report.plan)
    values = _values(report)
    may_retry = report.state in (OVER | {"asking"}) - {"damaged"}
    return StepView(
        report.id,
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
        tuple(_short(pieces(step.prompt, values))) if step.prompt else (),
        tokens_of(_pretty(_filled(step.arguments, values)))[0] if step.arguments else (),
        output,
        str(shown(result.output) or "") if result.state == "asking" else "",
        again_of(satchel, report, shared=shared, from_step=step.id) if may_retry else None,
        f"satchel goal show {report.id} --step {step.id} --engine {report.engine}",
    )


def _taken(step: Step, result: StepResult) -> str:
    if step.action_type == "human":
        return waited(result)
    return seconds(result.seconds) if result.seconds else ""


def _used(satchel: Satchel, name: str) -> Used:
    found = satchel.library.find(name)
    return Used(name, found[0].ref if found else "")


def _values(report: GoalReport) -> Values:
    """What fills the places of its prompts by now: large outputs by how they begin."""
    ended = {
        name: shown(one.output) if one.state == "done" else None
        for name, one in report.steps.items()
        if one.state in {"done", "failed", "skipped"}
    }
    return Values(report.plan.inputs, ended, report.plan.goal)


def _short(found: Any) -> Any:
    """Pieces till there are as many characters as a page shows."""
    left = SHORT
    for piece in found:
        if len(piece.text) > left:
            yield piece._replace(text=f"{piece.text[:left]}…")
            return
        left -= len(piece.text)
        yield piece


def _filled(value: Any, values: Values) -> Any:
    """Arguments with what is known by now."""
    if isinstance(value, dict):
        table = cast("Mapping[str, Any]", value)
        return {key: _filled(item, values) for key, item in table.items()}
    if isinstance(value, list | tuple):
        return [_filled(item, values) for item in cast("list[Any]", value)]
    try:
        return fill_value(value, values)
    except StepFailed:
        return value  # as the plan has it: nothing is there for it yet


def _pretty(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2, default=str)


async def _output(result: StepResult, artefacts: Artefacts, *, whole: bool) -> Output | None:
    """What it gave: a large one by its preview, or as much as a page can take."""
    output = result.output
    if output is None:
        return None
    if is_reference(output):
        size = int(output.get("size", 0))
        if not whole:
            fields = output.get("fields")
            text = str(output.get("head", "")) if fields is None else _pretty(fields)
            tokens, _ = tokens_of(text, plain=fields is None)
            return Output(tokens, fields is not None, size, cut=True, more=size <= LARGEST)
        if size > LARGEST:
            head, _ = tokens_of(str(output.get("head", "")), plain=True)
            return Output(head, is_json=False, size=size, cut=True, more=False)
        output = await load(output, artefacts)
    is_json = not isinstance(output, str)
    text = _pretty(output) if is_json else output
    tokens, cut = tokens_of(text, LONG if whole else SHORT, plain=not is_json)
    return Output(tokens, is_json, len(text), cut, more=cut and not whole)


def tokens_of(
    text: str, most: int = SHORT, *, plain: bool = False
) -> tuple[tuple[Token, ...], bool]:
    """JSON cut into what is coloured, and whether some of it was left out."""
    cut = len(text) > most
    text = text[:most]
    if plain:
        return (Token("", text),), cut
    found: list[Token] = []
    at = 0
    for match in _JSON.finditer(text):
        if match.start() > at:
            found.append(Token("", text[at : match.start()]))
        found.append(Token(match.lastgroup or "", match[0]))
        at = match.end()
    if at < len(text):
        found.append(Token("", text[at:]))
    return tuple(found), cut
