"""How skills come: a form for a new one; a zip, a folder or a repository for those of others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

from fastapi import APIRouter, Form, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from satchel._language import say
from satchel.errors import InvalidInput, SatchelError
from satchel.ui.arrivals import MAX_FILES, check_elsewhere, receive_archive, receive_folder, spool
from satchel.ui.bodies import MAX_UPLOAD_BYTES
from satchel.ui.carrying import make
from satchel.ui.house import Note
from satchel.ui.view import address, go_to, house_of, page, part, wants_part
from satchel.ui.views.changes import done_words
from satchel.ui.views.drafts import id_for, show_new, there, trouble_of
from satchel.ui.views.skills import find_skill, key_of, scope_words, show_scopes

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from satchel.store.choose import Pick
    from satchel.store.store import Store
    from satchel.ui.arrivals import Arrival

router = APIRouter()
Scope = Literal["project", "global"]
CHOICES = 400
"""Skills of one source that can be chosen one by one."""
_LONG = 2_048


class Choice(NamedTuple):
    """One skill of a source, as somebody left its line."""

    pick: Pick
    id: str
    ticked: bool


# --- a new one ------------------------------------------------------------------------------


@router.get("/skills/add")
def add_form(request: Request, scope: Scope = "project") -> Response:
    """The form: in a dialog, or as a page of its own."""
    return _add_form(request, scope)


@router.post("/skills/add/check")
def check_new(
    request: Request,
    name: Annotated[str, Form(max_length=200)] = "",
    description: Annotated[str, Form(max_length=10_000)] = "",
    scope: Annotated[Scope, Form()] = "project",
    own: Annotated[str, Form(max_length=200)] = "",
    asked: Annotated[bool, Form()] = False,
) -> Response:
    """What it would be called, and what its description lacks, while somebody types."""
    store = house_of(request).satchel.store(scope)
    new = show_new(store, name, description, own)
    return part(request, "change/new_check.html", new=new, oob=True, asked=asked)


@router.post("/skills/add")
def add(
    request: Request,
    name: Annotated[str, Form(max_length=200)] = "",
    description: Annotated[str, Form(max_length=10_000)] = "",
    scope: Annotated[Scope, Form()] = "project",
    own: Annotated[str, Form(max_length=200)] = "",
) -> Response:
    """Write it, and show it in the list."""
    house = house_of(request)
    try:
        store = house.satchel.store(scope)
        with store.plan_add(name, description, skill_id=id_for(name, own)) as plan:
            receipt = make(house, store, plan)
            folder = store.scope.target(plan.steps[0].id)
            words, more = done_words(plan, receipt)
    except SatchelError as exc:
        return _add_form(request, scope, name, description, exc, own)
    tone = "warn" if receipt.trouble else "good"
    note = Note(words, more, tone, scope, receipt.number)
    try:
        ref = find_skill(house.satchel, folder).ref
    except SatchelError:  # somebody was quicker, or it is left out by a setting
        return go_to(request, address("/skills", told=house.notes.put(note)))
    note = note._replace(links=((say("Edit it"), address("/skill/edit", ref=ref)),))
    told = house.notes.put(note)
    return go_to(request, address("/skills", open=ref, told=told) + f"#row-{key_of(ref)}")


def _add_form(
    request: Request,
    scope: Scope,
    name: str = "",
    description: str = "",
    exc: SatchelError | None = None,
    own: str = "",
) -> Response:
    scopes = show_scopes(house_of(request).satchel)
    usable: dict[Scope, Store] = {one.name: one.store for one in scopes if one.store is not None}
    if usable and usable.get(scope) is None:
        scope = next(iter(usable))
    as_part = wants_part(request)
    answer = part if as_part else page
    return answer(
        request,
        "change/add_form.html" if as_part else "change/add.html",
        status=422 if exc is not None else 200,
        scope=scope,
        scopes=scopes,
        name=name,
        description=description,
        trouble=trouble_of(exc) if exc is not None else None,
        new=show_new(usable.get(scope), name, description, own),
        oob=False,
    )


# --- those of others ------------------------------------------------------------------------


@router.get("/skills/import")
def import_page(request: Request) -> Response:
    """Three ways in."""
    return page(
        request,
        "change/import.html",
        scopes=show_scopes(house_of(request).satchel),
        most=MAX_UPLOAD_BYTES,
        most_files=MAX_FILES,
        local=not house_of(request).access.strangers,
    )


@router.post("/skills/import/zip")
async def import_archive(request: Request) -> Response:
    """A zip or a tar, streamed to a file of ours and read there."""
    house = house_of(request)
    async with spool() as folder:
        sent = await receive_archive(request, folder)
        store = house.satchel.store(sent.scope)
        arrival = await run_in_threadpool(house.arrivals.archive, store, sent, folder)
    return _onward(request, arrival)


@router.post("/skills/import/folder")
async def import_folder(request: Request) -> Response:
    """A folder, as files with their paths."""
    house = house_of(request)
    async with spool() as folder:
        sent = await receive_folder(request, folder)
        store = house.satchel.store(sent.scope)
        arrival = await run_in_threadpool(house.arrivals.folder, store, sent, folder)
    return _onward(request, arrival)


@router.post("/skills/import/git")
def import_git(
    request: Request,
    source: Annotated[str, Form(max_length=_LONG)],
    ref: Annotated[str, Form(max_length=_LONG)] = "",
    path: Annotated[str, Form(max_length=_LONG)] = "",
    scope: Annotated[Scope, Form()] = "project",
) -> Response:
    """A repository; the next page shows how far it is."""
    house = house_of(request)
    source = source.strip()
    # Who comes from another machine must not reach the folders and neighbours of this one.
    stranger = house.access.strangers
    if stranger:
        check_elsewhere(source)
    store = house.satchel.store(scope)
    arrival = house.arrivals.fetch(store, source, ref.strip(), path, public=stranger)
    return go_to(request, f"/skills/import/{arrival.key}")


@router.get("/skills/import/{key}")
def choose_page(request: Request, key: str) -> Response:
    """How far a fetch is; then which skills, under which ids."""
    return _choose_page(request, house_of(request).arrivals.look(key))


@router.get("/skills/import/{key}/progress")
def progress(request: Request, key: str) -> Response:
    """The same, asked every half second."""
    arrival = house_of(request).arrivals.look(key)
    if arrival.state in ("choosing", "planned"):
        return _onward(request, arrival)
    return part(request, "change/fetching.html", arrival=arrival)


@router.post("/skills/import/{key}")
def choose(
    request: Request,
    key: str,
    take: Annotated[list[int] | None, Form()] = None,
    ids: Annotated[list[str] | None, Form()] = None,
    everything: Annotated[bool, Form()] = False,
) -> Response:
    """Make a plan for what was chosen, and show it."""
    house = house_of(request)
    arrival = house.arrivals.look(key)
    wanted: dict[str, str] | None = None
    if not everything:
        given = ids or []
        wanted = {
            arrival.picks[at].path: given[at].strip()
            for at in take or ()
            if 0 <= at < min(len(given), len(arrival.picks))
        }
    try:
        house.arrivals.choose(arrival, wanted)
    except InvalidInput as exc:
        return _choose_page(request, arrival, exc, _left(arrival, ids or (), take or ()))
    return _onward(request, arrival)


@router.post("/skills/import/{key}/cancel")
def cancel(request: Request, key: str) -> Response:
    """Nobody wants it: the fetch ends, and what was sent is gone."""
    house = house_of(request)
    arrival = house.arrivals.look(key)
    house.arrivals.drop(key)
    house.desk.drop(arrival.plan)
    note = Note(say("Nothing was changed"), tone="info")
    return go_to(request, address("/skills/import", told=house.notes.put(note)))


def _choose_page(
    request: Request,
    arrival: Arrival,
    exc: SatchelError | None = None,
    typed: Iterable[Choice] | None = None,
) -> Response:
    choices = list(_chosen(arrival) if typed is None else typed)
    return page(
        request,
        "change/choose.html",
        status=422 if exc is not None else 200,
        arrival=arrival,
        choices=choices,
        more=max(0, len(arrival.picks) - CHOICES),
        there=there(arrival.store, [one.pick.id for one in choices]),
        place=scope_words(arrival.store.scope.name),
        trouble=trouble_of(exc) if exc is not None else None,
    )


def _chosen(arrival: Arrival) -> Iterable[Choice]:
    """As they were chosen last; all of them when nobody chose yet."""
    known = arrival.chosen if arrival.plan else None
    chosen = {pick.path: pick.id for pick in arrival.picks} if known is None else known
    for pick in arrival.picks[:CHOICES]:
        yield Choice(pick, chosen.get(pick.path, pick.id), pick.path in chosen)


def _left(arrival: Arrival, ids: Sequence[str], take: Collection[int]) -> Iterable[Choice]:
    """As somebody left the form that cannot be used."""
    for at, pick in enumerate(arrival.picks[:CHOICES]):
        yield Choice(pick, ids[at] if at < len(ids) else pick.id, at in take)


def _onward(request: Request, arrival: Arrival) -> Response:
    """To the plan, or to the choice that comes before it."""
    planned = arrival.state == "planned"
    return go_to(request, f"/plans/{arrival.plan}" if planned else f"/skills/import/{arrival.key}")
