"""The list of skills, trust in the folder that brings them, a row's details, and a file."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from satchel._language import say
from satchel.errors import NotFound
from satchel.ui.house import Note
from satchel.ui.render import render
from satchel.ui.view import address, go_to, house_of, page, part, wants_part
from satchel.ui.views.files import detail_of, list_files, read_file
from satchel.ui.views.skills import (
    LONGEST,
    find_name,
    key_of,
    list_skills,
    source_words,
    state_words,
)
from satchel.ui.views.trusting import can_revoke, show_folder

router = APIRouter()
WORDS: dict[str, Any] = {"source_words": source_words, "state_words": state_words}


@router.get("/skills")
def skills(
    request: Request,
    q: str = "",
    source: str = "",
    state: str = "",
    at: Annotated[int, Query(alias="page", ge=1, le=10_000_000)] = 1,
    opened: Annotated[str, Query(alias="open", max_length=4_096)] = "",
) -> Response:
    """The list; htmx gets its rows alone."""
    house = house_of(request)
    satchel = house.satchel
    listing = list_skills(satchel, words=q, source=source, state=state, page=at, opened=opened)
    values: dict[str, Any] = {
        "listing": listing,
        "longest": LONGEST,
        "folder": None if q.strip() else show_folder(satchel, house.review, listing.untrusted),
        "can_revoke": can_revoke(satchel),
        **WORDS,
    }
    if wants_part(request):
        return part(request, "skills/list.html", alone=True, **values)
    return page(request, "skills/page.html", alone=False, **values)


@router.post("/skills/trust")
def trust(request: Request) -> Response:
    """Trust the project's folder."""
    house = house_of(request)
    house.satchel.trust()
    return _decided(request, Note(say("The skills of this folder are used, now and later")))


@router.post("/skills/untrust")
def untrust(request: Request) -> Response:
    """Trust the project's folder no more."""
    house = house_of(request)
    if not house.satchel.untrust():
        raise NotFound(say("This folder was not trusted"), say("Load the page again"))
    return _decided(request, Note(say("The folder is trusted no more")))


def _decided(request: Request, note: Note) -> Response:
    house = house_of(request)
    house.changed()
    return go_to(request, address("/skills", told=house.notes.put(note)))


@router.get("/skills/row")
def row(request: Request, ref: str) -> Response:
    """What opens below a row."""
    detail = detail_of(house_of(request).satchel, ref)
    template = "skills/detail.html" if wants_part(request) else "skills/detail_page.html"
    return page(request, template, detail=detail, **WORDS)


@router.get("/skills/file")
def file(request: Request, ref: str, path: str = "") -> Response:
    """A look into one file; without htmx, a page of its own."""
    satchel = house_of(request).satchel
    content = read_file(satchel, ref, path)

    def link(other: str) -> str:
        return address("/skills/file", ref=ref, path=other)

    values: dict[str, Any] = {
        "ref": ref,
        "key": key_of(ref),
        "content": content,
        "shown": render(content, link) if content.kind == "text" else None,
    }
    if wants_part(request):
        return part(request, "skills/file.html", **values)
    name = find_name(satchel, ref)
    return page(
        request, "skills/file_page.html", name=name, files=list_files(satchel, ref), **values
    )
