"""Changes that are looked at first: import makes a plan, a yes carries it out, a no drops it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

from anyio.to_thread import run_sync
from fastapi import APIRouter, Path, Query, Request, Response
from starlette.exceptions import HTTPException

from satchel._language import listed, say
from satchel.errors import Overwrites
from satchel.store.archive.rules import shown
from satchel.tools.frame import encodable
from satchel.ui import carrying
from satchel.ui.addresses import check_elsewhere
from satchel.ui.api.answers import done, errors, planned
from satchel.ui.api.models import (
    Done,
    Fetching,
    FromGit,
    History,
    Id,
    Past,
    Planned,
    Scope,
    Which,
    Yes,
)
from satchel.ui.arrivals import Wanted
from satchel.ui.uploads import MOST
from satchel.ui.view import house_of
from satchel.ui.views.changes import unnamed

if TYPE_CHECKING:
    from satchel.ui.arrivals import Arrival

router = APIRouter(prefix="/api", tags=["changes"])
Key = Annotated[str, Path(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
_NAMED = 5
"""So many skills are named in an error; more are counted."""
_ZIP = {
    "requestBody": {
        "required": True,
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}


@router.post("/plans/git", status_code=202, responses=errors(404, 413))
def import_git(request: Request, asked: FromGit, response: Response) -> Fetching:
    """Begin to fetch a repository. Ask at `ask` till there is a plan; nothing changes before a yes.

    Few are fetched at a time; one more is refused.
    """
    # A folder of the server is its owner's, who has a terminal.
    check_elsewhere(asked.address)
    house = house_of(request)
    arrival = house.arrivals.fetch(
        house.satchel.store(asked.scope),
        asked.address,
        asked.ref,
        asked.path,
        wanted=Wanted(asked.skill_id, tuple(asked.names), asked.everything),
        public=house.access.strangers,
    )
    found = _fetching(arrival)
    response.headers["Location"] = found.ask
    return found


@router.get("/plans/git/{key}", responses=errors(404, 501))
def how_far(request: Request, key: Key) -> Fetching:
    """How far a fetch is, and the key of the change once there is one."""
    arrival = house_of(request).arrivals.look(key)
    if arrival.error is not None:
        raise arrival.error
    return _fetching(arrival)


@router.delete("/plans/git/{key}", status_code=204, responses=errors(404))
def cancel(request: Request, key: Key) -> None:
    """End a fetch, and throw away what was made of it."""
    house = house_of(request)
    arrival = house.arrivals.look(key)
    house.arrivals.drop(key)
    house.desk.drop(arrival.plan)


@router.post("/plans/zip", status_code=201, responses=errors(404, 409, 413), openapi_extra=_ZIP)
async def import_zip(
    request: Request,
    name: Annotated[
        str, Query(max_length=200, description="How its sender calls it")
    ] = "upload.zip",
    skill_id: Annotated[Id, Query()] = "",
    everything: Annotated[bool, Query()] = False,
    scope: Annotated[Scope, Query()] = "project",
) -> Planned:
    """Look at the skills of a zip, which is the body as it is. Nothing changes before a yes."""
    house = house_of(request)
    wanted = Wanted(skill_id, (), everything)
    async with house.arrivals.spools.spool() as spool:
        path = os.path.join(spool, "archive")
        await _keep(request, path)

        def look() -> Planned:
            store = house.satchel.store(scope)
            arrival = house.arrivals.archive(store, path, shown(name), spool, wanted)
            return planned(arrival.plan, house.desk.look(arrival.plan).plan)

        return await run_sync(look)


@router.get("/plans/{key}", responses=errors(404))
def one_plan(request: Request, key: Key) -> Planned:
    """A change that waits."""
    found = house_of(request).desk.look(key)
    return planned(found.key, found.plan)


@router.post("/plans/{key}/yes", responses=errors(404, 409, 413))
def carry_out(request: Request, key: Key, asked: Yes) -> Done:
    """Carry a change out, all of it or nothing.

    What the scan blocked needs `accept_risk`; what an import would overwrite is named in
    `overwrite`. Else it waits on.
    """
    house = house_of(request)
    waiting = house.desk.look(key)
    waiting.store.insist(waiting.plan, accept_risk=asked.accept_risk)
    if left := unnamed(waiting.plan, asked.overwrite):
        names = listed(f"`{one}`" for one in left[:_NAMED])
        few = say("Nothing was done: it would overwrite {names}", names=names)
        many = say("Nothing was done: it would overwrite {count} skills, among them {names}",
                   count=f"{len(left):,}", names=names)  # fmt: skip
        raise Overwrites(
            few if len(left) <= _NAMED else many,
            say("Name what may be overwritten in `overwrite`, or give `*` there for everything"),
        )
    receipt = carrying.carry_out(house, key, asked.accept_risk)
    return done(receipt)


@router.delete("/plans/{key}", status_code=204, responses=errors(404))
def drop(request: Request, key: Key) -> None:
    """Throw a change away."""
    carrying.throw_away(house_of(request), key)


@router.get("/history", responses=errors())
def history(request: Request, scope: Annotated[Scope, Query()] = "project") -> History:
    """What was changed, newest first."""
    found = house_of(request).satchel.store(scope).history()
    return History(
        changes=[
            Past(
                number=one.number,
                op=one.op,
                summary=encodable(one.summary),
                time=one.time,
                ids=list(one.ids),
                state=one.state,
            )
            for one in found
        ]
    )


@router.post("/undo", responses=errors(404, 409, 413))
def undo(request: Request, asked: Which) -> Done:
    """Bring back what was there before the last change, if that is still the one of `number`."""
    return _again(request, asked, redo=False)


@router.post("/redo", responses=errors(404, 409, 413))
def redo(request: Request, asked: Which) -> Done:
    """Do again what was undone, if the undoing of `number` is still the last."""
    return _again(request, asked, redo=True)


def _again(request: Request, asked: Which, *, redo: bool) -> Done:
    house = house_of(request)
    store = house.satchel.store(asked.scope)
    found = carrying.take_back(house, store, asked.number, redo=redo)
    notes = [encodable(line) for line in (*found.notes, *found.repaired) if line]
    trouble = [encodable(line) for line in found.trouble if line]
    return Done(number=found.number, ids=list(found.ids), left=[], trouble=trouble, notes=notes)


def _fetching(arrival: Arrival) -> Fetching:
    # Whoever asks how far it is hears why it failed.
    state = "fetching" if arrival.state == "failed" else arrival.state
    return Fetching(
        key=arrival.key,
        state=state,
        line=encodable(arrival.line),
        ask=f"/api/plans/git/{arrival.key}",
        plan=arrival.plan if state == "planned" else "",
    )


async def _keep(request: Request, path: str) -> None:
    """Write a body to a file, piece by piece."""
    size = 0
    with open(path, "xb") as stream:  # noqa: ASYNC230 - it is ours, and empty
        async for piece in request.stream():
            size += len(piece)
            if size > MOST:
                raise HTTPException(413)
            await run_sync(stream.write, piece)
