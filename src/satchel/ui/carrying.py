"""A yes and a no to a change that waits, the same for a page and for a script."""

from __future__ import annotations

from typing import TYPE_CHECKING

from satchel.errors import Blocked

if TYPE_CHECKING:
    from collections.abc import Collection

    from satchel.store.store import Receipt
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
        SatchelError: the disk says no, and the like. Nothing was changed, and it waits no more.
    """
    waiting = house.desk.take(key)
    try:
        reason = " ".join(accept_risk.split())
        receipt = waiting.store.carry_out(waiting.plan, accept_risk=reason, leave=leave)
    except Blocked:
        house.desk.put_back(waiting)
        raise
    except BaseException:
        house.desk.end(waiting)
        raise
    house.desk.end(waiting)
    house.arrivals.drop(waiting.arrival)
    house.satchel.refresh()
    house.live.tell("library")
    return receipt


def throw_away(house: House, key: str) -> None:
    """Do not do it, and let go of all that was kept for it.

    Raises:
        NotFound: it waits no more.
    """
    waiting = house.desk.take(key)
    house.desk.end(waiting)
    house.arrivals.drop(waiting.arrival)
