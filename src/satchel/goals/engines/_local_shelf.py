"""Which goals are there? In memory, and in the folder that several processes share."""

from __future__ import annotations

import os
from typing import Any

from satchel._language import Message, say, unpack_messages
from satchel.errors import InvalidInput
from satchel.goals.engines._local_goal import AT_REST, Held
from satchel.goals.engines._local_journal import DamagedLine, Journal, lines_of
from satchel.goals.engines.base import busy, damaged, missing, other_plan
from satchel.goals.model import Answer, Goal, Plan, StepResult
from satchel.goals.reports import pack, unpack
from satchel.goals.spending import spent
from satchel.goals.wiring import at_work

KEPT = 10_000
"""Goals that stay in memory, without a folder, once they are over."""


class Shelf:
    """The goals of one engine.

    Args:
        folder: Where goals have their folders; nowhere when empty.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.here: dict[str, Held] = {}
        """Goals in memory. With a folder, only those that run here: another process may bring the
        others on, so they are read whenever they are asked for."""

    def journal(self, goal_id: str) -> Journal | None:
        """Its journal; None without a folder."""
        return Journal(os.path.join(self.folder, goal_id)) if self.folder else None

    def known(self, goal_id: str) -> Held:
        """A goal as it is now, wherever it runs.

        Raises:
            NotFound: there is none.
        """
        held = self.here.get(goal_id)
        if held is not None:
            return held
        held, journal = self._read(goal_id)
        if held.state not in AT_REST and not journal.is_run():
            held, _ = self._read(goal_id)  # it may have ended just now
            if held.state not in AT_REST:
                held.state = "queued"
                held.reason = say("Its process is gone; `satchel goal resume` goes on with it")
        if held.state == "running":  # of another process, whose journal has only what ended
            held.progress.running = dict.fromkeys(at_work(held.goal.plan, held.results), 0.0)
        return held

    def adopt(self, goal_id: str) -> Held:
        """A goal to bring on here: its lock is ours.

        Raises:
            NotFound: there is none.
            Conflict: another process runs it, or its journal is damaged.
        """
        held = self.here.get(goal_id)
        if held is not None:
            return held
        _, journal = self._read(goal_id)
        if not journal.take():
            raise busy(goal_id)
        held, _ = self._read(goal_id)
        if held.state == "damaged":
            journal.leave()
            raise damaged(goal_id)
        if held.state not in AT_REST:
            held.state = "queued"  # whoever ran it is gone, for the lock is ours
        held.journal = journal
        return held

    def let_go(self, held: Held) -> None:
        """Whoever wants may bring it on."""
        if held.journal is not None:
            held.journal.leave()
            self.here.pop(held.goal.id, None)

    def make_room(self, ended: Held) -> list[str]:
        """One more is over: keep only the latest of those in memory. Returns who is gone."""
        if self.folder:
            return []
        gone: list[str] = []
        self.here[ended.goal.id] = self.here.pop(ended.goal.id, ended)
        if len(self.here) <= KEPT + KEPT // 10:
            return gone
        for name in [name for name, held in self.here.items() if held.forgettable()]:
            if len(self.here) <= KEPT:
                break
            del self.here[name]
            gone.append(name)
        return gone

    def names(self, before: float | None = None) -> list[str]:
        """All goals, or those submitted before a moment; those first that were submitted last."""
        found: list[tuple[float, str]] = []
        if not self.folder:
            found = [(held.started, name) for name, held in self.here.items()]
        elif os.path.isdir(self.folder):
            for name in os.listdir(self.folder):
                began = Journal(os.path.join(self.folder, name)).began()
                if began is not None:
                    found.append((began, name))
        return [name for at, name in sorted(found, reverse=True) if before is None or at < before]

    def _read(self, goal_id: str) -> tuple[Held, Journal]:
        plain = goal_id not in {"", ".", ".."} and os.path.basename(goal_id) == goal_id
        journal = self.journal(goal_id) if plain and "\0" not in goal_id else None
        held = read(journal) if journal else None
        if held is None or journal is None or held.goal.id != goal_id:
            raise missing(goal_id)
        return held, journal


def must_be(held: Held, plan: Plan) -> None:
    """A goal that is there must have this plan.

    Raises:
        Conflict: it has another, or its journal is damaged.
    """
    if held.state == "damaged":
        raise damaged(held.goal.id)
    if not (same_plan(held.goal.plan, plan) or same_plan(held.first, plan)):
        raise other_plan(held.goal.id)


def read(journal: Journal) -> Held | None:
    """The goal as the lines tell it, as far as they can be read; None when there is none."""
    held: Held | None = None
    number = 0
    try:
        for number, line in lines_of(journal.path):  # noqa: B007 - named when it cannot be used
            if held is not None:
                _fold(held, line)
            else:
                held = Held(unpack(Goal, line["goal"]))
                held.started = float(line.get("at", 0.0))
    except (DamagedLine, InvalidInput, LookupError, TypeError, ValueError) as exc:
        number = exc.number if isinstance(exc, DamagedLine) else number if held else 1
        held = held or Held(Goal(os.path.basename(journal.folder), Plan("", ())))
        held.state = "damaged"
        held.reason = Message(
            "Line {count} of `{path}` is damaged", count=number, path=journal.path
        )
    return held


def _fold(held: Held, line: dict[str, Any]) -> None:
    """One line more."""
    if "step" in line:
        result = unpack(StepResult, line["step"])
        held.results[result.step] = result
    elif "answer" in line:
        if line.get("of", held.revision) == held.revision:
            held.answers[line["to"]] = unpack(Answer, line["answer"])
    elif "revision" in line:
        kept = set(line["keep"])
        results = {name: one for name, one in held.results.items() if name in kept}
        held.spent = spent(held.goal.plan, held.results, results, held.spent)
        held.results = results
        held.goal = held.goal._replace(plan=unpack(Plan, line["plan"]))
        held.revision, held.answers = int(line["revision"]), {}
        held.state, held.reason = "queued", ""
    elif "end" in line:
        held.state, held.reason = line["end"], unpack_messages(line).get("reason", "")
        held.over_since = float(line.get("at", 0.0))  # an older Satchel did not write it
    elif "run" in line:
        held.state, held.reason = "running", ""


def same_plan(one: Plan, other: Plan) -> bool:
    """Whether two plans are the same once they are written down."""
    if one == other:
        return True
    import json

    try:
        return json.dumps(pack(one), sort_keys=True) == json.dumps(pack(other), sort_keys=True)
    except (TypeError, ValueError) as exc:
        raise InvalidInput(f"The plan has a value that JSON cannot say: {exc}") from exc
