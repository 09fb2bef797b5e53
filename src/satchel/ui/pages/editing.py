"""Edit a skill's own file: checked while it is typed, saved only over what was loaded.

What somebody typed comes back with every answer, whatever went wrong: nowhere else is it kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from satchel.errors import Conflict, SatchelError
from satchel.ui.bodies import EDITED
from satchel.ui.carrying import make
from satchel.ui.failing import failure_of
from satchel.ui.house import Note
from satchel.ui.view import address, go_to, house_of, page, part
from satchel.ui.views.changes import diff_of_texts, done_words
from satchel.ui.views.drafts import as_written, check_draft, open_draft, read_file, trouble_of
from satchel.ui.views.skills import find_file

if TYPE_CHECKING:
    from satchel.ui.views.drafts import Remark

router = APIRouter()
Ref = Annotated[str, Query(max_length=4_096)]
_FIELDS = 8


@router.get("/skill/edit")
def edit_page(request: Request, ref: Ref) -> Response:
    """The file in a page."""
    satchel = house_of(request).satchel
    skill = find_file(satchel, ref)
    draft = open_draft(satchel.store_of(skill), skill)
    return _edit_page(request, ref, draft.text)


@router.post("/skill/edit/check")
async def check(request: Request, ref: Ref) -> Response:
    """What is wrong with it, and what a model would see; nothing is saved."""
    text, _ = await _typed(request)
    return await run_in_threadpool(_check, request, ref, text)


@router.post("/skill/edit")
async def save(request: Request, ref: Ref) -> Response:
    """Save it as one change that can be undone; never over what somebody else saved meanwhile."""
    text, digest = await _typed(request)
    return await run_in_threadpool(_save, request, ref, text, digest)


async def _typed(request: Request) -> tuple[str, str]:
    """The text, and the digest of what it was made of.

    A field of a form may have 1 MiB by itself, as it is sent, which is a third of that in Chinese.
    Here the body's own limit is the only one: what is too large to be saved can still be shown.
    """
    async with request.form(max_files=0, max_fields=_FIELDS, max_part_size=EDITED) as form:
        text, digest = form.get("text", ""), form.get("digest", "")
    return text if isinstance(text, str) else "", digest if isinstance(digest, str) else ""


def _check(request: Request, ref: str, text: str) -> Response:
    satchel = house_of(request).satchel
    skill = find_file(satchel, ref)
    satchel.store_of(skill)
    return part(request, "change/check.html", checked=check_draft(satchel, skill, text))


def _save(request: Request, ref: str, text: str, digest: str) -> Response:
    house = house_of(request)
    try:
        skill = find_file(house.satchel, ref)
        store, file = house.satchel.store_of(skill), skill.head.file
        files = {file: as_written(text, read_file(skill))}
        with store.plan_edit(skill.head.id, files, expect={file: digest}) as plan:
            receipt = make(house, store, plan)
            words, more = done_words(plan, receipt)
    except SatchelError as exc:
        return _not_saved(request, ref, text, exc)
    tone = "warn" if receipt.trouble else "good"
    note = Note(words, more, tone, store.scope.name, receipt.number)
    return go_to(request, address("/skill/edit", ref=ref, told=house.notes.put(note)))


def _not_saved(request: Request, ref: str, text: str, exc: SatchelError) -> Response:
    """Why not, beside what was typed; also where there is no file to go on with."""
    clash = isinstance(exc, Conflict)
    try:
        return _edit_page(request, ref, text, None if clash else trouble_of(exc), clash=clash)
    except SatchelError as closed:
        failure = failure_of(closed)
    return page(request, "change/kept.html", status=failure.status, failure=failure, text=text)


def _edit_page(
    request: Request, ref: str, text: str, trouble: Remark | None = None, *, clash: bool = False
) -> Response:
    satchel = house_of(request).satchel
    skill = find_file(satchel, ref)
    draft = open_draft(satchel.store_of(skill), skill)
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
