"""The list of skills: its rows, what opens below one, and a look into a file."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from satchel.ui.render import render
from satchel.ui.view import address, house_of, page, part, wants_part
from satchel.ui.views.details import detail_of
from satchel.ui.views.files import list_files, read_file
from satchel.ui.views.skills import (
    LONGEST,
    find_name,
    key_of,
    list_skills,
    source_words,
    state_words,
)

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
    satchel = house_of(request).satchel
    listing = list_skills(satchel, words=q, source=source, state=state, page=at, opened=opened)
    values: dict[str, Any] = {"listing": listing, "longest": LONGEST, **WORDS}
    if wants_part(request):
        return part(request, "skills/list.html", alone=True, **values)
    return page(request, "skills/page.html", alone=False, **values)


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
