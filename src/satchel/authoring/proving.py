"""Ticks the boxes that only a run can tick, for `satchel check --run`; and the one of the list."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal

from satchel._language import say
from satchel.authoring.bench import Untrusted
from satchel.errors import BuildFailed, Refused, SatchelError

if TYPE_CHECKING:
    from satchel.authoring.check import Prove
    from satchel.authoring.draft import Draft
    from satchel.authoring.examples import Outcome
    from satchel.authoring.rules import State
    from satchel.authoring.sheet import Sheet
    from satchel.facade import Satchel

Unrun = Literal["refused", "incomplete"]
"""Why something was not run: it must not be, or it cannot be here."""
_RUNS = ("answers", "refuses")


def prover(satchel: Satchel, unrun: list[Unrun] | None = None) -> Prove:
    """What runs a skill's cases, always in the sandbox, and only where the skill is trusted.

    Args:
        satchel: Whose library, settings and engine.
        unrun: Is told of every skill that was not run, or not with all its examples.
    """
    noted: list[Unrun] = [] if unrun is None else unrun

    def prove(sheet: Sheet, folder: str, draft: Draft) -> None:
        from satchel.authoring.bench import bench_of
        from satchel.authoring.examples import run_cases

        try:
            bench = bench_of(satchel, folder, own=_is_own(satchel, folder))
        except BuildFailed as exc:
            _unbuilt(sheet, draft, exc)
            return
        except SatchelError as exc:
            noted.append("refused" if isinstance(exc, Refused) else "incomplete")
            sheet.skip(_reason(exc), "go-builds", *_RUNS, open=True)
            return
        if draft.runtime == "go":
            sheet.judge("go-builds")
        outcomes = list(run_cases(bench))
        if any(one.state == "not-run" for one in outcomes):
            noted.append("incomplete")
        _judge_cases(sheet, outcomes)

    return prove


def _is_own(satchel: Satchel, folder: str) -> bool:
    from satchel.tools.script_tool import is_own

    look = satchel.library.tools()
    found = [one for one in look.skills if one.skill.base_dir == os.path.abspath(folder)]
    return bool(found) and is_own(satchel.library, found[0])


def _reason(exc: SatchelError) -> str:
    """Why nothing was run, and what to do about it."""
    if isinstance(exc, Untrusted):
        return say(
            "not run: the skill is not trusted; read it with `satchel show {name}`, then"
            " `satchel trust {name}`",
            name=exc.name,
        )
    told = say("nothing was run: {reason}", reason=exc.message.splitlines()[0])
    return f"{told} ({exc.hint})" if exc.hint else told


def _unbuilt(sheet: Sheet, draft: Draft, exc: BuildFailed) -> None:
    if draft.runtime == "go":
        sheet.judge("go-builds", [(0, {"reason": exc.message})])
    elif not sheet.fails("packages"):
        values = {"problem": exc.message, "remedy": exc.hint}
        sheet.judge("packages", [(0, values)])
    sheet.skip(say("the program cannot be built"), *_RUNS)


def _judge_cases(sheet: Sheet, outcomes: list[Outcome]) -> None:
    shown = [one for one in outcomes if one.case.kind == "example"]
    ran = [one for one in shown if one.state != "not-run"]
    if not ran:
        why = shown[0].said if shown else say("it has no examples")
        told = say("no example was run: {reason}", reason=why)
        sheet.skip(told, "answers", open=bool(shown))
    else:
        sheet.judge(
            "answers",
            (
                (0, {"name": one.case.tool, "scenario": one.case.title, "reason": one.said})
                for one in ran
                if one.state == "fail"
            ),
        )
    wrong = [one for one in outcomes if one.case.kind == "program"]
    sheet.judge(
        "refuses",
        (
            (0, {"name": one.case.tool, "case": one.case.title, "reason": one.said,
                 "remedy": one.remedy})
            for one in wrong
            if one.state == "fail"
        ),
    )  # fmt: skip


def is_listed(satchel: Satchel, folder: str) -> tuple[State, str]:
    """Whether the tools of a folder are in the project's list of tools, and if not, why.

    That nobody trusts the skill here is no fault of its author: the box stays open then.
    """
    look = satchel.library.tools(refresh=True)
    path = os.path.abspath(folder)
    found = [one for one in (*look.skills, *look.hidden) if one.skill.base_dir == path]
    if not found:
        problems = [one for one in look.problems if os.path.dirname(one.path) == path]
        if problems:
            return "fail", problems[0].message
        return "skip", say("the folder is not one of this project's skills")
    skill = found[0].skill
    if skill.state == "untrusted":
        return "skip", say("the skill is not trusted here")
    if skill.state != "active":
        return "fail", say(skill.state)
    names = satchel.tools().names
    missing = [name for name in found[0].tools if name not in names]
    return ("fail", say("another one has its name")) if missing else ("pass", "")
