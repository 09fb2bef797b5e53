"""How skills come: a form for a new one; a zip, a folder or a repository for those of others."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Form, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from satchel._language import say
from satchel.errors import InvalidInput, SatchelError
from satchel.ui.addresses import check_elsewhere
from satchel.ui.arrivals import Arrival
from satchel.ui.notes import Note
from satchel.ui.uploads import MOST, MOST_FILES, Folder, OneFile, receive
from satchel.ui.view import address, go_to, house_of, page, part, wants_part
from satchel.ui.views.changes import SCOPES, done_words, scope_place, scope_words
from satchel.ui.views.drafts import id_for, show_new, there, trouble_of
from satchel.ui.views.skills import find_skill, key_of

router = APIRouter(include_in_schema=False)
Scope = Literal["project", "global"]
CHOICES = 400
"""Skills of one source that can be chosen one by one."""
_LONG = 2_048


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
    store = house.satchel.store(scope)
    try:
        with store.plan_add(name, description, skill_id=id_for(name, own)) as plan:
            store.insist(plan)
            receipt = store.carry_out(plan)
            skill_id = plan.steps[0].id
            words, more = done_words(plan, receipt)
    except SatchelError as exc:
        return _add_form(request, scope, name, description, exc, own)
    house.satchel.refresh()
    house.live.tell("library")
    ref = find_skill(house.satchel, store.scope.target(skill_id)).ref
    links = ((say("Edit it"), address("/skill/edit", ref=ref)),)
    note = Note(words, more, scope=scope, number=receipt.number, links=links)
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
    house = house_of(request)
    as_part = wants_part(request)
    answer = part if as_part else page
    return answer(
        request,
        "change/add_form.html" if as_part else "change/add.html",
        status=422 if exc is not None else 200,
        scope=scope,
        scopes=_scopes(request),
        name=name,
        description=description,
        trouble=trouble_of(exc) if exc is not None else None,
        new=show_new(house.satchel.store(scope), name, description, own),
        oob=False,
    )


# --- those of others ------------------------------------------------------------------------


@router.get("/skills/import")
def import_page(request: Request) -> Response:
    """Three ways in."""
    return page(
        request,
        "change/import.html",
        scopes=_scopes(request),
        most=MOST,
        most_files=MOST_FILES,
        local=house_of(request).access.by_link,
    )


@router.post("/skills/import/zip")
async def import_archive(request: Request) -> Response:
    """A zip or a tar, streamed to a file of ours and read there."""
    house = house_of(request)
    async with house.arrivals.spools.spool() as spool:
        sink = OneFile(spool)
        sent = await receive(request, sink)
        _need(sink.name, say("No file was chosen"), say("Choose a zip or a tar"))
        store = house.satchel.store(_scope(sent.fields))
        arrival = await run_in_threadpool(
            house.arrivals.archive, store, sink.path, sink.name, spool
        )
    return _onward(request, arrival)


@router.post("/skills/import/folder")
async def import_folder(request: Request) -> Response:
    """A folder, as files with their paths."""
    house = house_of(request)
    async with house.arrivals.spools.spool() as spool:
        sink = await run_in_threadpool(Folder, spool)
        sent = await receive(request, sink)
        _need(sent.files, say("No folder was chosen"), say("Choose a folder with a SKILL.md"))
        store = house.satchel.store(_scope(sent.fields))
        arrival = await run_in_threadpool(
            lambda: house.arrivals.folder(
                store, sink.top(), sink.name(), spool, sink.mark_programs(), tuple(sink.ignored)
            )
        )
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
    stranger = not house.access.by_link
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
        return _choose_page(request, arrival, exc)
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


def _choose_page(request: Request, arrival: Arrival, exc: SatchelError | None = None) -> Response:
    return page(
        request,
        "change/choose.html",
        status=422 if exc is not None else 200,
        arrival=arrival,
        picks=arrival.picks[:CHOICES],
        more=max(0, len(arrival.picks) - CHOICES),
        chosen=arrival.chosen if arrival.plan else None,
        there=there(arrival.store, [pick.id for pick in arrival.picks[:CHOICES]]),
        place=scope_words(arrival.store.scope.name),
        trouble=trouble_of(exc) if exc is not None else None,
    )


def _onward(request: Request, arrival: Arrival) -> Response:
    """To the plan, or to the choice that comes before it."""
    planned = arrival.state == "planned"
    return go_to(request, f"/plans/{arrival.plan}" if planned else f"/skills/import/{arrival.key}")


def _need(thing: object, words: str, hint: str) -> None:
    if not thing:
        raise InvalidInput(words, hint)


def _scope(fields: dict[str, str]) -> Scope:
    return "global" if fields.get("scope") == "global" else "project"


def _scopes(request: Request) -> list[tuple[str, str, str]]:
    satchel = house_of(request).satchel
    return [(name, scope_words(name), scope_place(satchel.store(name))) for name in SCOPES]
