"""What does a person see of a turn? One line for each call, and what it all took in the end."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from satchel._language import listed, say
from satchel.agent.records import SkillLoaded, TextDelta, ToolEnded, ToolStarted, TurnReport
from satchel.cli.output import cut, one_line, width_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from satchel.agent.records import Event

WIDE = 100
"""Columns of a line where nobody looks, so that a log can be read."""
NOBODY = "needs a person's approval"
"""How a tool's refusal reads when there was nobody to ask."""
_LEAST = 12
_SKILL = "Skill"


class Board(Protocol):
    """Where a turn is written."""

    @property
    def width(self) -> int:
        """Columns; 0 when there is no end."""
        ...

    def paint(self, text: str, style: str) -> str:
        """`text` in a style, where colour is wanted."""
        ...

    def text(self, delta: str) -> None:
        """Some more of the answer."""
        ...

    def line(self, text: str) -> None:
        """A line of its own, painted already; the text before it is ended."""
        ...

    def aside(self, text: str) -> None:
        """Something by the way, for people."""
        ...

    def busy(self, words: str) -> None:
        """What is being waited for."""
        ...

    def tick(self) -> None:
        """Some time went by."""
        ...

    def open(self) -> None:
        """A turn begins."""
        ...

    def close(self) -> None:
        """A turn ended, or makes room for a question; what was held back is written."""
        ...


class Called(NamedTuple):
    """A call that has ended."""

    name: str
    agent: str
    arguments: Mapping[str, Any]
    status: str
    seconds: float
    text: str

    def to_dict(self) -> dict[str, Any]:
        """The form for `--json`."""
        return {
            "name": self.name,
            "agent": self.agent,
            "arguments": dict(self.arguments),
            "status": self.status,
            "seconds": self.seconds,
            "error": self.text if self.status == "error" else None,
        }


class Teller:
    """Writes the events of a turn on a board."""

    def __init__(self, board: Board, *, answer: bool = True) -> None:
        """Write there.

        Args:
            board: Where.
            answer: Whether the text of the answer is written too.
        """
        self.board = board
        self.calls: list[Called] = []
        self._answer = answer
        self._running: dict[str, ToolStarted] = {}
        self._loaded: list[SkillLoaded] = []
        self._agent = ""

    def tell(self, event: Event) -> None:
        """Write one event."""
        if isinstance(event, TextDelta):
            if self._answer:
                self.board.text(event.text)
        elif isinstance(event, ToolStarted):
            self._running[event.call_id] = event
            self._enter(event.agent)
            self._wait()
        elif isinstance(event, SkillLoaded):
            self._loaded.append(event)
        elif isinstance(event, ToolEnded):
            self._ended(event)
            self._wait()

    def _ended(self, event: ToolEnded) -> None:
        started = self._running.pop(event.call_id, None)
        given: Mapping[str, Any] = started.arguments if started is not None else {}
        called = Called(event.name, event.agent, given, event.status, event.seconds, event.text)
        self.calls.append(called)
        self._enter(event.agent)
        indent = "  " * (1 + _depth(event.agent))
        skill = self._skill_of(called)
        if skill is not None:
            self._write(indent, "◆", "cyan", skill.name, "bold cyan", _loaded(skill), called)
        elif event.status == "error":
            self._write(indent, "✗", "red", event.name, "", told_error(event.text), called)
        else:
            self._write(indent, "✓", "dim", event.name, "dim", told_arguments(given), called)

    def _write(
        self, indent: str, mark: str, colour: str, name: str, style: str, more: str, called: Called
    ) -> None:
        """Mark, name, what there is to say, and how long it took."""
        board, took = self.board, told_time(called.seconds)
        name = one_line(name)
        room = (board.width or WIDE) - width_of(f"{indent}{mark} {name}    {took}")
        more = cut(more, max(room, _LEAST))
        parts = [
            f"{indent}{board.paint(mark, colour)} {board.paint(name, style)}",
            board.paint(more, "dim"),
            board.paint(took, "dim"),
        ]
        board.line("  ".join(part for part in parts if part))

    def _skill_of(self, called: Called) -> SkillLoaded | None:
        """The skill that a call loaded. Calls may run side by side, so the name counts first."""
        if called.name != _SKILL or called.status == "error":
            return None
        mine = [one for one in self._loaded if one.agent == called.agent]
        wanted = called.arguments.get("name")
        found = next((one for one in mine if one.name == wanted), mine[0] if mine else None)
        if found is not None:
            self._loaded.remove(found)
        return found

    def _enter(self, agent: str) -> None:
        """Say who works from here on, when that is a sub-agent."""
        if agent != self._agent:
            self._agent = agent
            if agent:
                name = one_line(agent.rpartition("/")[2])
                mark = self.board.paint("▸", "cyan")
                self.board.line(f"{'  ' * _depth(agent)}{mark} {self.board.paint(name, 'cyan')}")

    def _wait(self) -> None:
        self.board.busy(listed(one_line(one.name) for one in self._running.values()))


def _depth(agent: str) -> int:
    return len(agent.split("/")) if agent else 0


def _loaded(skill: SkillLoaded) -> str:
    if skill.again:
        return say("is loaded already")
    return say("loaded, {count} characters", count=f"{skill.characters:,}")


def told_error(text: str) -> str:
    """Why a call failed. The next step behind it is for the model, and left out."""
    from satchel.retelling import retell

    if "did not agree to call" in text:
        return say("not called: you said no")
    if NOBODY in text:
        return say("refused: it needs approval, and nobody can be asked")
    message = text.split("\n", 1)[0].split(". ", 1)[0].rstrip(".")
    return one_line(retell(message))


def told_arguments(arguments: Mapping[str, Any]) -> str:
    """Arguments of a call on one line: `path=src/app.py limit=20`."""
    parts: list[str] = []
    for name, value in arguments.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        text = one_line(text)
        parts.append(f"{one_line(str(name))}={_quoted(text)}")
    return " ".join(parts)


def _quoted(text: str) -> str:
    return f'"{text}"' if not text or " " in text else text


def told_time(seconds: float) -> str:
    """How long something took, as people say it."""
    if seconds < 1:
        return say("{count} ms", count=round(seconds * 1000))
    if seconds < 60:
        return say("{count} s", count=f"{seconds:.1f}")
    return say("{minutes} min {seconds} s", minutes=int(seconds // 60), seconds=int(seconds % 60))


# --- what it took -------------------------------------------------------------------------


class Sum:
    """What the turns of a conversation took together."""

    def __init__(self) -> None:
        self.reports: list[TurnReport] = []
        self.uncounted = 0
        """Turns that were broken off: nobody knows what they took."""

    def add(self, report: TurnReport) -> None:
        """Count a turn."""
        self.reports.append(report)

    @property
    def total(self) -> TurnReport:
        """All of them as one."""
        found = TurnReport()
        for one in self.reports:
            costs = [part for part in (found.cost, one.cost) if part is not None]
            found = TurnReport(
                found.requests + one.requests,
                found.input_tokens + one.input_tokens,
                found.output_tokens + one.output_tokens,
                found.cache_read_tokens + one.cache_read_tokens,
                found.cache_write_tokens + one.cache_write_tokens,
                sum(costs) if costs else None,
                (*found.tools, *one.tools),
                tuple(dict.fromkeys((*found.skills, *one.skills))),
                found.seconds + one.seconds,
            )
        return found


def told_report(report: TurnReport, loaded: Iterable[str] = (), uncounted: int = 0) -> list[str]:
    """What turns took, in lines for people.

    Args:
        report: What was counted.
        loaded: Skills that a person loaded, beside those of the report.
        uncounted: Turns that were broken off.
    """
    requests = report.requests
    parts = [
        say("1 request") if requests == 1 else say("{count} requests", count=requests),
        say("1 token in ({share} from the cache)", share=f"{report.cached:.0%}")
        if report.input_tokens == 1
        else say("{count} tokens in ({share} from the cache)",
                 count=f"{report.input_tokens:,}", share=f"{report.cached:.0%}"),
        say("1 token out")
        if report.output_tokens == 1
        else say("{count} tokens out", count=f"{report.output_tokens:,}"),
        told_cost(report.cost),
    ]  # fmt: skip
    lines = [say(", ").join(parts)]
    names = [one_line(name) for name in dict.fromkeys((*report.skills, *loaded))]
    if names:
        lines.append(say("Skills used: {names}", names=listed(names)))
    if uncounted == 1:
        lines.append(say("1 turn was broken off and is not counted"))
    elif uncounted:
        lines.append(say("{count} turns were broken off and are not counted", count=uncounted))
    return lines


def told_stop(reason: str) -> str:
    """That a limit ended a turn, and which."""
    return say("Stopped by a limit, the task may not be done: {reason}", reason=one_line(reason))


def told_cost(cost: float | None) -> str:
    """US dollars, or that nobody knows."""
    return say("the price is not known") if cost is None else f"${cost:.4f}"


def report_dict(report: TurnReport) -> dict[str, Any]:
    """The form for `--json`."""
    return {
        **report._asdict(),
        "stopped": report.stopped or None,
        "cached": round(report.cached, 4),
    }
