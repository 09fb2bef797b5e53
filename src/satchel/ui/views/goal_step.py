"""What is shown of one step? What it was told, what it gave, what it took, and why it failed."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from satchel._language import render, say
from satchel.errors import NotFound, StepFailed
from satchel.goals.artefacts import is_reference, load, shown
from satchel.goals.drawing.words import kind_of, seconds, waited
from satchel.goals.model import OVER
from satchel.goals.templates import Values, fill_value, pieces
from satchel.goals.wiring import dependents_of, needs_in
from satchel.ui.views.goals import again_of, iso, moment, state_of, usage_words

if TYPE_CHECKING:
    from collections.abc import Mapping

    from satchel.facade import Satchel
    from satchel.goals.artefacts import Artefacts
    from satchel.goals.model import GoalReport, Step, StepResult
    from satchel.goals.templates import Piece
    from satchel.ui.views.goals import Again, State

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
