"""What every router of the API says of its errors, and the records that several of them give."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from satchel.tools.frame import encodable
from satchel.ui.api.models import Done, Failed, Ill, Planned, SkillRow, Step
from satchel.ui.views.changes import replaced_by

if TYPE_CHECKING:
    from collections.abc import Iterable

    from satchel.skill.problems import Problem
    from satchel.store.plan import Plan
    from satchel.store.plan import Step as PlanStep
    from satchel.store.store import Receipt
    from satchel.ui.views.skills import Row

_WORDS = {
    400: "What was sent cannot be read",
    401: "Nobody is signed in",
    403: "Forged, or a policy says no",
    404: "There is no such thing",
    409: "Somebody else's change, or your own edits, would be lost",
    413: "It is too large",
    422: "A value cannot be used",
    501: "An extra is not installed",
    502: "A server elsewhere does not answer",
}


def errors(*codes: int) -> dict[int | str, dict[str, Any]]:
    """The errors of an endpoint, for its description; who is signed out or sends rubbish always."""
    chosen = sorted({400, 401, 403, 422, *codes})
    return {code: {"model": Failed, "description": _WORDS[code]} for code in chosen}


def row_model(row: Row) -> SkillRow:
    """A line of the list."""
    return SkillRow(
        ref=row.ref,
        name=row.name,
        id=row.id or row.name,
        description=row.whole,
        source=row.source,
        place=row.place,
        is_system=row.is_system,
        state=row.state,
        hidden_by=row.by,
    )


def ills(problems: Iterable[Problem]) -> list[Ill]:
    """Problems, in the reader's language."""
    return [
        Ill(
            code=one.code,
            severity=one.severity,
            message=encodable(one.message),
            fix=encodable(one.fix),
            path=encodable(one.path),
            line=one.line,
        )
        for one in problems
    ]


def planned(key: str, plan: Plan) -> Planned:
    """A change that waits."""
    return Planned(
        key=key,
        op=plan.op,
        scope=plan.scope.name,
        steps=[_step(step) for step in plan.steps],
        blocked=bool(plan.blocked),
        replaces=bool(plan.losses),
        overwrites=list(replaced_by(plan)),
    )


def _step(step: PlanStep) -> Step:
    difference, report = step.difference, step.report
    return Step(
        id=step.id,
        name=encodable(step.name),
        action=step.kind,
        added=_clean(difference.added),
        removed=_clean(difference.removed),
        changed=_clean(difference.changed),
        verdict=report.verdict if report is not None else "",
        findings=[_tidy(one.to_dict()) for one in report.findings] if report is not None else [],
        notes=_clean(step.notes),
        error=encodable(step.error.message) if step.error is not None else "",
    )


def done(receipt: Receipt) -> Done:
    """What was done."""
    return Done(
        number=receipt.number,
        ids=[step.id for step in receipt.done],
        left=[step.id for step in receipt.left],
        trouble=[encodable(line) for line in receipt.trouble if line],
        notes=[
            encodable(line)
            for notes in (*(step.notes for step in receipt.done), receipt.notes, receipt.repaired)
            for line in notes
        ],
    )


def _clean(texts: Iterable[str]) -> list[str]:
    return [encodable(text) for text in texts]


def _tidy(table: dict[str, Any]) -> dict[str, Any]:
    return {
        key: encodable(value) if isinstance(value, str) else value for key, value in table.items()
    }
