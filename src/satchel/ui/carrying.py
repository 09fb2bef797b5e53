"""A yes and a no to a change that waits, the same for a page and for a script."""

from __future__ import annotations

from typing import TYPE_CHECKING

from satchel.errors import Blocked, Incomplete
from satchel.store.history import Undone
from satchel.store.store import Receipt

if TYPE_CHECKING:
    from collections.abc import Collection

    from satchel.store.plan import Plan
    from satchel.store.store import Store
    from satchel.ui.house import House


def carry_out(
    house: House, key: str, accept_risk: str = "", leave: Collection[str] = ()
) -> Receipt:
    """Do it, let go of all that was kept for it, and tell every page.

    Args:
        house: Where it waits.
        key: Which change.
        accept_risk: Why blocked skills are installed as well.
        leave: Ids that stay as they are.

    Raises:
        NotFound: it waits no more.
        Blocked: nothing was begun, and it waits on.
        Conflict: something changed meanwhile. It waits no more; where it came from is still open.
        SatchelError: the disk says no, and the like; the error says whether something was changed.
            It waits no more.
    """
    waiting = house.desk.take(key)
    try:
        reason = " ".join(accept_risk.split())
        receipt = _done(waiting.store, waiting.plan, reason, leave)
    except Blocked:
        house.desk.put_back(waiting)
        raise
    except BaseException:
        house.desk.end(waiting)
        raise
    house.desk.end(waiting)
    house.arrivals.drop(waiting.arrival)
    house.changed()
    return receipt


def make(house: House, store: Store, plan: Plan) -> Receipt:
    """Do a plan at once, all of it or nothing, and tell every page. Its maker closes it.

    Raises:
        SatchelError: a part of it is refused, or the disk says no. Nothing was changed.
    """
    store.insist(plan)
    receipt = _done(store, plan)
    house.changed()
    return receipt


def take_back(house: House, store: Store, number: int, *, redo: bool) -> Undone:
    """Undo a change, or do it again, and tell every page.

    Raises:
        SatchelError: it was not done; the error says so if it was begun.
    """
    try:
        done = store.undo(redo=redo, number=number)
    except Incomplete as exc:
        if not isinstance(exc.receipt, Undone):
            raise
        done = exc.receipt
    house.changed()
    return done


def throw_away(house: House, key: str) -> None:
    """Do not do it, and let go of all that was kept for it.

    Raises:
        NotFound: it waits no more.
    """
    waiting = house.desk.take(key)
    house.desk.end(waiting)
    house.arrivals.drop(waiting.arrival)


def _done(store: Store, plan: Plan, reason: str = "", leave: Collection[str] = ()) -> Receipt:
    """What was made, was made: what could not be done after it is told, not raised."""
    try:
        return store.carry_out(plan, accept_risk=reason, leave=leave)
    except Incomplete as exc:
        if isinstance(exc.receipt, Receipt):
            return exc.receipt
        raise
