"""Edit a skill's own file: checked while it is typed, saved only over what was loaded."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Form, Query, Request
from starlette.responses import Response

from satchel.errors import Conflict, SatchelError
from satchel.ui.notes import Note
from satchel.ui.view import address, go_to, house_of, page, part
from satchel.ui.views.changes import done_words, store_for
from satchel.ui.views.differences import diff_of_texts
from satchel.ui.views.drafts import (
    LARGEST,
    Remark,
    as_written,
    check_draft,
    digest_of,
    open_draft,
    read_file,
    trouble_of,
)
from satchel.ui.views.skills import find_file

router = APIRouter(include_in_schema=False)
Ref = Annotated[str, Query(max_length=4_096)]
Text = Annotated[str, Form(max_length=2 * LARGEST)]


@router.get("/skill/edit")
def edit_page(request: Request, ref: Ref) -> Response:
    """The file in a page."""
    satchel = house_of(request).satchel
    skill = find_file(satchel, ref)
    draft = open_draft(store_for(satchel, skill), skill)
    return _edit_page(request, ref, draft.text)


@router.post("/skill/edit/check")
def check(request: Request, ref: Ref, text: Text = "") -> Response:
    """What is wrong with it, and what a model would see; nothing is saved."""
    satchel = house_of(request).satchel
    skill = find_file(satchel, ref)
    store_for(satchel, skill)
    return part(request, "change/check.html", checked=check_draft(satchel, skill, text))


@router.post("/skill/edit")
def save(
    request: Request, ref: Ref, digest: Annotated[str, Form(max_length=64)], text: Text = ""
) -> Response:
    """Save it as one change that can be undone; never over what somebody else saved meanwhile."""
    house = house_of(request)
    skill = find_file(house.satchel, ref)
    store = store_for(house.satchel, skill)
    before = read_file(skill)
    if digest_of(before) != digest:
        return _edit_page(request, ref, text, clash=True)
    try:
        data = as_written(text, before)
        with store.plan_edit(skill.head.id, {skill.head.file: data}) as plan:
            # The plan read the folder anew: it must be built on what was just compared.
            if digest_of(read_file(skill)) != digest:
                return _edit_page(request, ref, text, clash=True)
            store.insist(plan)
            receipt = store.carry_out(plan)
            words, more = done_words(plan, receipt)
    except Conflict:
        return _edit_page(request, ref, text, clash=True)
    except SatchelError as exc:
        return _edit_page(request, ref, text, trouble_of(exc))
    house.satchel.refresh()
    house.live.tell("library")
    note = Note(words, more, scope=store.scope.name, number=receipt.number)
    return go_to(request, address("/skill/edit", ref=ref, told=house.notes.put(note)))


def _edit_page(
    request: Request, ref: str, text: str, trouble: Remark | None = None, *, clash: bool = False
) -> Response:
    satchel = house_of(request).satchel
    skill = find_file(satchel, ref)
    draft = open_draft(store_for(satchel, skill), skill)
    mine = text.replace("\r\n", "\n")
    status = 409 if clash else 422 if trouble is not None else 200
    return page(
        request,
        "change/edit.html",
        status=status,
        ref=ref,
        skill=skill,
        draft=draft,
        text=mine,
        checked=check_draft(satchel, skill, mine),
        trouble=trouble,
        clash=clash,
        diff=diff_of_texts(draft.file, draft.text, mine) if clash else None,
    )
